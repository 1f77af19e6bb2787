"""AutoRAD: without settings, from any two kinds of row."""

import itertools
import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import TranslatesScore, as_codes

import riskad
from riskad import AutoRAD, InputError, explain_rows
from riskad.core.labels import read_codes
from riskad.detectors import forest
from riskad.detectors.auto import budget, detector, members
from riskad.detectors.auto.budget import Clock, Sizes, rows_to_distil, rows_to_learn_from
from riskad.detectors.auto.held_out import member_weights
from riskad.detectors.auto.plan import plan_fit, sizes_of
from riskad.detectors.auto.samples import to_learn_from
from riskad.detectors.auto.views import EncodedRows, Views
from riskad.detectors.features.native import native_columns
from riskad.detectors.pretrained import labelled_rows_read
from riskad.metrics.ranking import Auc


def ring(n_rows=600, n_normal=40, n_anomaly=10, seed=0):
    """Anomalies lie around the normals: no line tells them apart. Rows, codes and the truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n_rows) < 0.1, -1, 1)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    far = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.normal(5, 0.5, (n_rows, 1))
    X = np.where(truth[:, None] == 1, rng.normal(0, 1, (n_rows, 2)), far)
    y = np.zeros(n_rows, dtype=int)
    y[np.flatnonzero(truth == 1)[:n_normal]] = 1
    y[np.flatnonzero(truth == -1)[:n_anomaly]] = -1
    return X, y, truth


def auc(model, X, truth):
    return roc_auc_score(truth == -1, model.anomaly_score(X))


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = ring()
    return AutoRAD(budget=600).fit(X, y)


# --- what it finds --------------------------------------------------------------------------


def test_it_finds_what_no_line_can(fitted):
    X, _, truth = ring(seed=1)
    assert auc(fitted, X, truth) > 0.97
    linear = riskad.ShallowRAD(lam="cv").fit(*ring()[:2])
    assert auc(linear, X, truth) < 0.8


def test_members_that_do_worse_on_held_out_labels_weigh_less():
    names = ["kernel", "network", "smooth forest", "linear"]
    fitted = AutoRAD(members=names).fit(*ring()[:2])
    assert set(fitted.weights_) == set(fitted.members_) == set(names)
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    rows = [row for row in fitted.leaderboard_ if row["member"] != "novelty"]  # by held-out kinds
    by_auc = sorted(rows, key=lambda row: row["auc"])
    m = int((ring()[1] == -1).sum())
    beside_equals = [
        row["weight"] / members.MEMBERS[row["member"]].weight_with(m) for row in by_auc
    ]
    np.testing.assert_allclose(beside_equals, sorted(beside_equals), atol=1e-3)  # rounded to 1e-4
    assert by_auc[0]["member"] == "linear"
    assert beside_equals[0] < 0.2 * beside_equals[-1]
    weights = [row["weight"] for row in fitted.leaderboard_]
    assert weights == sorted(weights, reverse=True)


def test_the_held_out_auc_and_the_rate_are_near_the_truth(fitted):
    X, _, truth = ring(4000, seed=2)
    assert fitted.auc_.low <= auc(fitted, X, truth) <= fitted.auc_.high
    assert fitted.prior_ == pytest.approx(0.9, abs=0.05)
    assert (fitted.predict(X) == truth).mean() > 0.95


def test_the_distilled_network_follows_the_network(fitted):
    X, y, _ = ring()
    quick = AutoRAD(members="quick").fit(X, y)
    assert set(quick.members_) == {*fitted.members_, "distilled network"} - {"network"}
    new = ring(seed=1)[0]
    views, known = (
        Views.of(quick.views_, EncodedRows.of(quick.encoder_, rows)) for rows in (new, X)
    )
    teacher = riskad.PretrainedRAD().fit(known.seen_by_teacher(), y)
    scores = teacher.score_samples(views.seen_by_teacher())
    forest, features = quick.members_["distilled network"], views.seen_by("distilled network")
    assert np.corrcoef(forest.score_samples(features), scores)[0, 1] > 0.9


def test_the_network_reads_components_of_many_columns():
    X, y, truth = make_contaminated_rows(400, 120, shift=0.7)
    model = AutoRAD(budget=600).fit(X, y)
    rows = EncodedRows.of(model.encoder_, X)
    assert Views.of(model.views_, rows).seen_by_teacher().shape[1] == 22
    assert model.members_["network"].n_features_in_ == 22
    assert auc(model, X, truth) > 0.95


def sizes(n_labelled=50, n_rows=3_000, n_columns=20):
    return Sizes(n_rows, n_columns, n_labelled, n_labelled, n_labelled, n_columns + 2)


def test_a_teacher_scores_fewer_rows_in_less_time():
    few, many = (rows_to_distil(budget, sizes()) for budget in (1.0, 60.0))
    assert 0 < few < many == 1_000
    assert rows_to_distil(1.0, sizes(500)) < few
    assert rows_to_distil(1e-9, sizes()) == 0
    names = ["kernel", "distilled network", "novelty"]
    assert plan_fit(sizes(), names, 0.1).members == ("kernel", "novelty")


def test_the_teacher_is_charged_for_the_labelled_rows_that_it_reads():
    """It reads 600 of 3,000: charged for all, it vanished at the default budget."""
    codes = np.repeat([1, -1, 0], [2700, 300, 3000])
    wanted = sizes_of(codes, 40, 42)
    assert wanted.read == labelled_rows_read(codes) == 600
    plan = plan_fit(wanted, members.chosen_members(None), AutoRAD().budget)
    assert {"network", "boosted"} <= set(plan.members)
    assert (plan.folds, plan.kinds) == (5, True)
    quick = plan_fit(wanted, members.chosen_members("quick"), AutoRAD().budget)
    assert quick.distilled == 1_000
    assert (quick.folds, quick.kinds) == (5, True)


def test_evidence_is_that_of_the_rows_that_were_held_out(monkeypatch, fitted):
    """With one fold of five, 10 rows were held out and not 50."""
    plan = plan_fit(sizes(), ["kernel", "smooth forest", "novelty"], 60)
    monkeypatch.setattr(detector, "plan_fit", lambda *told: replace(plan, folds=1, kinds=False))
    said = []
    model = AutoRAD(callback=lambda what: said.append(what)).fit(*ring(300)[:2])
    assert "Holding out 10 labelled rows" in said
    assert (model.auc_.n_normal, model.auc_.n_anomaly) == (8, 2)
    calibration = model.calibration_
    assert (len(calibration.normals), len(calibration.anomalies)) == (8, 2)
    assert sum("Holding" in line for line in said) == 1
    whole = fitted.auc_
    assert (whole.n_normal, whole.n_anomaly) == (40, 10)
    assert whole.high - whole.low < model.auc_.high - model.auc_.low


def test_a_fit_says_how_long_it_will_still_take(monkeypatch):
    """Each sentence comes three seconds after the one before."""
    said, clocks = [], []
    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: 3.0 * len(said)))
    monkeypatch.setattr(detector, "Clock", lambda *told: clocks.append(Clock(*told)) or clocks[0])
    AutoRAD(callback=lambda what: said.append(what), n_jobs=1).fit(*ring(300)[:2])
    assert said[0] == "Learning features from 300 rows"
    left = [int(what.split("(about ")[1].split()[0]) for what in said if "left" in what]
    assert len(left) >= 5
    assert left[-1] < left[0]
    assert clocks[0].seconds_left() == pytest.approx(0, abs=1e-6)  # all that was planned is done


def test_a_clock_counts_in_words_that_people_use():
    clock = Clock(60)
    assert clock.in_words() == ""
    clock.expect(1000.0)
    clock.finish(200.0)
    for spent, words in ((0.1, ""), (10, " (about 40 s left)"), (60, " (about 4 min left)")):
        clock.start = budget.time.perf_counter() - spent
        assert clock.in_words() == words


def test_a_fit_that_outruns_its_budget_by_far_says_so(monkeypatch):
    said = []
    late = SimpleNamespace(perf_counter=lambda: 1e6 * any("kernel" in what for what in said))
    monkeypatch.setattr(budget, "time", late)
    with pytest.warns(riskad.DataWarning, match="lacks network, boosted"):
        model = AutoRAD(callback=lambda what: said.append(what)).fit(*ring(300)[:2])
    assert list(model.members_) == ["smooth forest", "kernel"]
    assert model.auc_ is None
    *kept, left = np.split(model.leaderboard_, [2])
    assert {row["member"] for row in kept[0]} == set(model.members_)
    assert not any("left_out" in row for row in kept[0])
    assert {row["member"] for row in left} >= {"network", "boosted"}
    assert all((row["left_out"], row["weight"], row["auc"]) == (True, 0, None) for row in left)
    assert sum(row["weight"] for row in model.leaderboard_) == pytest.approx(1, abs=1e-3)


def test_the_plan_depends_on_the_table_alone(monkeypatch, fitted):
    """On a machine a hundred times slower the same work is done."""
    ticks = iter(range(10**9))
    slow = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr(detector, "time", slow)
    X, y, _ = ring()
    again = AutoRAD(budget=60).fit(X, y)
    np.testing.assert_array_equal(again.score_samples(X), fitted.score_samples(X))


def test_more_budget_is_never_less_work():
    budgets = (0.1, 2, 5, 10, 30, 60)
    rows = [rows_to_learn_from(b, 100)[0] for b in budgets]
    wanted = [sizes(600, n, 100) for n in rows]
    names = [name for name in members.chosen_members(None) if name != "deep"]
    plans = [plan_fit(w, names, b) for w, b in zip(wanted, budgets, strict=True)]
    for less, more in itertools.pairwise(plans):
        assert set(less.members) <= set(more.members)
        assert len(less.members) < len(more.members) or less.folds <= more.folds
        assert (less.folds > 1) <= (more.folds > 1)
    assert plans[0].members == ("smooth forest", "novelty")
    assert all(plan.seconds <= b for plan, b in zip(plans[1:], budgets[1:], strict=True))


def test_weights_are_nearly_equal_where_anomalies_are_few():
    few = {"forest": Auc(0.9, 0.1, 1.0, 30, 3), "smooth forest": Auc(0.8, 0.1, 1.0, 30, 3)}
    best, worse = Auc(0.9, 0.89, 0.91, 900, 300), Auc(0.8, 0.78, 0.82, 900, 300)
    many = {"forest": best, "smooth forest": worse}
    assert member_weights(few, 3)["smooth forest"] == pytest.approx(0.4, abs=0.02)
    assert member_weights(many, 300)["smooth forest"] < 1e-4
    assert member_weights(dict.fromkeys(few), 1) == {"forest": 0.5, "smooth forest": 0.5}


def test_what_is_known_of_other_tables_counts_less_the_more_anomalies_are_labelled():
    alike = {"forest": None, "network": None}
    few, more, many = (member_weights(alike, m)["network"] for m in (0, 100, 10_000))
    assert few == pytest.approx(6 / 7)
    assert more == pytest.approx(3 / 4)
    assert many < 0.1


# --- which labels there are -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_normal", "n_anomaly", "least"), [(40, 1, 0.9), (0, 8, 0.9), (40, 0, 0.8), (1, 1, 0.6)]
)
def test_any_two_kinds_of_row_are_enough(n_normal, n_anomaly, least):
    X, y, _ = ring(300, n_normal, n_anomaly)
    model = AutoRAD(budget=600).fit(X, read_codes(y))
    new, _, truth = ring(seed=1)
    assert auc(model, new, truth) > least
    assert model.auc_ is None
    assert 0 < (model.predict(new) == -1).mean() < 0.35  # one label of each kind is no rate of 1/2
    assert {row["auc"] for row in model.leaderboard_} == {None}


def test_without_unlabelled_rows():
    X, _, truth = ring(300)
    model = AutoRAD(budget=600).fit(X, truth)
    assert auc(model, *ring(seed=1)[::2]) > 0.97


def test_one_kind_of_row_is_refused():
    X, y, _ = ring(50)
    for codes in (0 * y, 0 * y + 1):
        with pytest.raises(InputError, match=r"has one only.*Label some"):
            AutoRAD().fit(X, codes)


# --- what rows may be -----------------------------------------------------------------------


def test_the_network_reads_blank_cells_as_such():
    """What is missing at random in a column tells nothing; the median would be a value."""
    X, y, truth = ring(400)
    X[np.random.default_rng(0).random(len(X)) < 0.3, 0] = np.nan
    model = AutoRAD(members=["network", "smooth forest", "novelty"]).fit(X, y)
    context = model.members_["network"].context_
    assert np.isnan(context[:, 0]).any()
    assert not np.isnan(context[:, 1:]).any()
    whole = AutoRAD(members=["network", "novelty"]).fit(np.nan_to_num(X), y)
    assert not np.isnan(whole.members_["network"].context_).any()
    assert native_columns(whole.encoder_, whole.views_["plain"]) is None
    assert auc(model, X, truth) > 0.9


def test_the_network_reads_a_category_as_one_column():
    X, y, _ = ring(400)
    town = [["Bonn", "Ulm", "Hof"][i % 3] for i in range(len(X))]
    frame = pl.DataFrame({"a": X[:, 0], "town": town, "b": X[:, 1]})
    model = AutoRAD(members=["network", "smooth forest", "novelty"]).fit(frame, y)
    outliers = model.views_["plain"].slices_["outliers"]
    assert model.members_["network"].n_features_in_ == 3 + outliers.stop - outliers.start
    assert model.views_["plain"].slices_["columns"] == slice(0, 5)  # others have a column a town


def test_frames_with_text_and_gaps(tmp_path):
    X, y, truth = ring(300)
    rng = np.random.default_rng(0)
    town = np.where(truth == -1, "Ulm", rng.choice(["Bonn", "Kiel", "Ulm"], 300))
    gaps = [None if i % 9 == 0 else value for i, value in enumerate(X[:, 1])]
    frame = pl.DataFrame({"a": X[:, 0], "b": gaps, "town": town})
    model = AutoRAD(budget=600).fit(frame, y)
    assert auc(model, frame, truth) > 0.95
    assert [*model.feature_names_in_] == ["a", "b", "town"]
    unseen = frame.with_columns(town=pl.lit("Rom"))
    assert np.isfinite(model.score_samples(unseen)).all()
    riskad.save(model, tmp_path / "auto.riskad")
    loaded = riskad.load(tmp_path / "auto.riskad")
    assert np.array_equal(loaded.score_samples(frame), model.score_samples(frame))
    assert loaded.leaderboard_ == model.leaderboard_
    assert np.array_equal(loaded.p_values(frame), model.p_values(frame))
    assert str(loaded.auc_) == str(model.auc_)


def test_wide_sparse_rows_are_reduced():
    rng = np.random.default_rng(0)
    X = sparse.random(200, 1500, 0.02, "lil", random_state=rng)
    X[:20, :40] = 1.0
    X = X.tocsr()
    y = np.zeros(200, dtype=int)
    y[10:20], y[20:50] = -1, 1
    scores = AutoRAD(budget=600).fit(X, y).anomaly_score(X)
    assert scores[:10].min() > np.quantile(scores, 0.9)


def test_many_rows_are_sampled_with_every_label():
    codes = np.zeros(100_000, dtype=int)
    codes[:30], codes[30:35] = 1, -1
    rows = to_learn_from(codes, 20_000, 1_000, 0)
    assert len(rows) == 20_000
    assert set(range(35)) <= set(rows.tolist())


# --- a plain estimator ----------------------------------------------------------------------


def test_the_same_seed_gives_the_same_model(fitted):
    X, y, _ = ring()
    again = clone(fitted).fit(X, y)
    assert np.array_equal(again.score_samples(X), fitted.score_samples(X))
    assert again.weights_ == fitted.weights_


def test_thresholds_probabilities_and_reasons_work(fitted):
    X, _, truth = ring(seed=1)
    probability = fitted.anomaly_probability(X)
    assert probability[truth == -1].mean() > 0.5 > 0.2 > probability[truth == 1].mean()
    assert (fitted.p_values(X[truth == -1]) < 0.1).mean() > 0.8
    model = clone(fitted)
    model.__dict__.update(fitted.__dict__)
    assert (model.set_threshold("false-alarms:0.05").predict(X[truth == 1]) == -1).mean() < 0.15
    reasons = explain_rows(fitted, X[:3], background=X)
    total = reasons.base + reasons.contributions.sum(axis=1)
    assert np.allclose(total, fitted.anomaly_score(X[:3]))


def test_a_budget_that_runs_short_leaves_members_and_folds_out(capsys):
    X, y, _ = ring(300)
    model = AutoRAD(budget=0.01, verbose=True).fit(X, y)
    assert set(model.members_) == {"smooth forest", "novelty"}
    assert "No time left for network" in capsys.readouterr().out
    assert model.weights_["smooth forest"] > 0.9
    assert model.auc_ is None
    assert auc(model, *ring(seed=1)[::2]) > 0.9


def test_a_short_budget_takes_fewer_rows():
    def most(budget, n_columns):
        return rows_to_learn_from(budget, n_columns)[0]

    assert most(1.0, 10) < most(10.0, 10) <= 20_000
    assert most(1.0, 1_000) < most(1.0, 10)
    codes = np.repeat([1, -1, 0], [20, 10, 5_000])
    budgets = (0.001, 2.0, 20.0)
    few = [len(to_learn_from(codes, *rows_to_learn_from(b, 5_000), 0)) for b in budgets]
    assert few == [
        30 + 200,
        30 + 300,
        30 + 1_000,
    ]  # columns are many, but so are the unlabelled rows


def test_a_budget_that_is_none_is_refused():
    X, y, _ = ring(50)
    with pytest.raises(InputError, match="budget"):
        AutoRAD(budget=0).fit(X, y)


class Small(TranslatesScore, AutoRAD):
    """Two members only, on labels of scikit-learn's checks."""

    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))

    def _names(self):
        return ["kernel", "smooth forest"]


@pytest.fixture
def few_trees(monkeypatch):
    monkeypatch.setattr(members, "_TREES", 5)
    monkeypatch.setattr(forest, "_FEW_TREES", 3)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks([Small()])
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)


# --- threads and processes ------------------------------------------------------------------


def test_threads_that_share_a_model_get_the_same_numbers(fitted):
    rows = [ring(300, seed=seed)[0] for seed in range(8)]
    alone = [fitted.score_samples(X) for X in rows]
    fresh = pickle.loads(pickle.dumps(fitted))  # nothing is laid out for scoring yet
    start = threading.Barrier(8)

    def score(X):
        start.wait()
        return [fresh.score_samples(X) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        for expected, found in zip(alone, pool.map(score, rows), strict=True):
            for each in found:
                np.testing.assert_array_equal(each, expected)


def test_another_process_gets_the_same_numbers(fitted):
    X = ring(300, seed=1)[0]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(fitted.score_samples, X).result()
    np.testing.assert_array_equal(found, fitted.score_samples(X))


# --- members, weights of rows, another fit --------------------------------------------------


def test_members_can_be_chosen_and_mistakes_are_said(fitted):
    X, y, _ = ring(200)
    model = AutoRAD(members=["forest", "kernel", "novelty"]).fit(X, y)
    assert list(model.members_) == ["kernel", "forest", "novelty"]
    assert all(row["error"] > 0 for row in fitted.leaderboard_)
    for wrong, said in (
        (["forrest"], "Did you mean 'forest'"),
        ("fast", "'quick' or None"),
        (["novelty"], "learns from labels"),
        ([], "learns from labels"),
    ):
        with pytest.raises(InputError, match=said):
            AutoRAD(members=wrong).fit(X, y)


def test_a_member_without_its_library_is_said_if_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(members, "find_spec", lambda name: None)
    X, y, _ = ring(200)
    with pytest.raises(InputError, match="'boosted' needs lightgbm"):
        AutoRAD(members=["kernel", "boosted"]).fit(X, y)
    assert "boosted" not in AutoRAD(members="quick").fit(X, y).members_


def test_a_row_of_weight_zero_is_as_good_as_absent():
    X, y, _ = ring(300)
    weight = np.ones(300)
    weight[::7] = 0
    here = weight > 0
    names = ["kernel", "smooth forest", "novelty"]
    model = AutoRAD(members=names).fit(X, y, sample_weight=weight)
    without = AutoRAD(members=names).fit(X[here], y[here])
    np.testing.assert_allclose(model.score_samples(X), without.score_samples(X), atol=1e-9)
    heavy = np.where(X[:, 0] > 0, 5.0, 1.0)
    other = AutoRAD(members=names).fit(X, y, sample_weight=heavy)
    assert not np.allclose(
        other.score_samples(X), AutoRAD(members=names).fit(X, y).score_samples(X)
    )


def test_another_fit_of_the_same_rows_learns_no_features_again(monkeypatch):
    X, y, _ = ring(300)
    names = ["kernel", "smooth forest", "novelty"]
    model = AutoRAD(members=names).fit(X, y)
    learned = []
    whole = Views.fit.__func__
    monkeypatch.setattr(
        Views, "fit", classmethod(lambda cls, *told: learned.append(1) or whole(cls, *told))
    )
    more = y.copy()
    more[np.flatnonzero(y == 0)[:5]] = 1
    again = model.refit(X, more).score_samples(X)
    assert not learned
    np.testing.assert_array_equal(again, AutoRAD(members=names).fit(X, more).score_samples(X))
    model.refit(X + 1, more)
    assert len(learned) == 2
    assert "_remembered" not in pickle.loads(pickle.dumps(model)).__dict__
