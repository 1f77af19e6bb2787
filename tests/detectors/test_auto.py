"""AutoRAD: without settings, from any two kinds of row."""

import itertools
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import Translates, auc_of
from support.loops import each
from support.rows import label_first

import riskad
from riskad import AutoRAD, DataWarning, InputError, explain_rows
from riskad.core.labels import read_codes
from riskad.detectors import forest
from riskad.detectors.auto import detector, members
from riskad.detectors.auto.cross_fit import extra_labelled, member_weights
from riskad.detectors.auto.members import MEMBERS, Clock, Sizes, plan_fit, rows_within_budget
from riskad.detectors.auto.views import Views, sample_rows
from riskad.detectors.features.union import NativeColumns
from riskad.detectors.pretrained import labelled_rows_read
from riskad.metrics.ranking import Auc


def ring(n_rows=600, n_normal=40, n_anomaly=10, seed=0):
    """Anomalies lie around the normals: no line tells them apart. Rows, codes and the truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n_rows) < 0.1, -1, 1)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    far = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.normal(5, 0.5, (n_rows, 1))
    X = np.where(truth[:, None] == 1, rng.normal(0, 1, (n_rows, 2)), far)
    return X, label_first(truth, n_normal, n_anomaly), truth


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = ring()
    return AutoRAD(budget=600).fit(X, y)


def test_it_finds_what_no_line_can(fitted):
    X, _, truth = ring(seed=1)
    assert auc_of(fitted, X, truth) > 0.97
    linear = riskad.ShallowRAD(lam="cv").fit(*ring()[:2])
    assert auc_of(linear, X, truth) < 0.8


@pytest.mark.slow
def test_members_that_do_worse_on_held_out_labels_weigh_less():
    X, y, _ = make_contaminated_rows(400, 8, shift=1.0)
    model = AutoRAD().fit(X, y)
    assert set(model.weights_) == set(model.members_) == set(MEMBERS)
    assert sum(model.weights_.values()) == pytest.approx(1)
    rows = [row for row in model.leaderboard_ if row["member"] != "novelty"]  # by held-out kinds
    by_auc = sorted(rows, key=lambda row: row["auc"])
    m = int((y == -1).sum())
    beside_equals = [row["weight"] / MEMBERS[row["member"]].weight_with(m) for row in by_auc]
    np.testing.assert_allclose(beside_equals, sorted(beside_equals), atol=1e-3)  # rounded to 1e-4
    assert beside_equals[0] < beside_equals[-1]
    weights = [row["weight"] for row in model.leaderboard_]
    assert weights == sorted(weights, reverse=True)
    assert all(row["error"] > 0 for row in model.leaderboard_)


def test_the_held_out_auc_and_the_rate_are_near_the_truth(fitted):
    X, _, truth = ring(4000, seed=2)
    assert fitted.auc_.low <= auc_of(fitted, X, truth) <= fitted.auc_.high
    assert fitted.prior_ == pytest.approx(0.9, abs=0.05)
    assert (fitted.predict(X) == truth).mean() > 0.95


def sizes(n_labelled=50, n_rows=3_000, n_columns=20):
    return Sizes(n_rows, n_columns, n_labelled, n_labelled, n_labelled, n_columns + 2)


def some(*names):
    return {name: MEMBERS[name] for name in names}


def test_the_network_is_charged_for_the_labelled_rows_that_it_reads():
    """It reads 600 of 3,000: charged for all, it vanished at the default budget."""
    codes = np.repeat([1, -1, 0], [2700, 300, 3000])
    slices = {"columns": slice(0, 40), "outliers": slice(40, 42)}
    wanted = Sizes.of(codes, 40, slices, n_extra=0)
    assert wanted.read == labelled_rows_read(codes) == 600
    assert wanted.network_columns == 42
    plan = plan_fit(wanted, MEMBERS, AutoRAD().budget)
    assert {"network", "boosted"} <= set(plan.member_seconds)
    assert plan.folds == 5
    assert plan.kind_seconds > 0
    short = plan_fit(sizes(150), some("kernel", "smooth forest", "network"), 2)
    assert tuple(short.member_seconds) == ("kernel", "smooth forest")


def test_evidence_is_that_of_the_rows_that_were_held_out(monkeypatch, fitted):
    """With one fold of five, 10 rows were held out and not 50."""
    plan = plan_fit(sizes(), some("kernel", "smooth forest", "novelty"), 60)
    monkeypatch.setattr(
        detector, "plan_fit", lambda *told: replace(plan, folds=1, kind_seconds=0.0)
    )
    said = []
    model = AutoRAD(callback=said.append).fit(*ring(300)[:2])
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
    monkeypatch.setattr(members, "time", SimpleNamespace(perf_counter=lambda: 3.0 * len(said)))
    monkeypatch.setattr(detector, "Clock", lambda *told: clocks.append(Clock(*told)) or clocks[0])
    AutoRAD(callback=lambda what: said.append(what), n_jobs=1).fit(*ring(300)[:2])
    assert said[0] == "Learning features from 300 rows"
    left = [int(what.split("(about ")[1].split()[0]) for what in said if "left" in what]
    assert len(left) >= 5
    assert left[-1] < left[0]
    assert clocks[0]._finished == pytest.approx(clocks[0].planned)  # all that was planned is done


def test_a_clock_counts_in_words_that_people_use(monkeypatch):
    monkeypatch.setattr(members, "time", SimpleNamespace(perf_counter=lambda: 100.0))
    clock = Clock(60)
    assert clock.in_words() == ""
    clock.planned = 1000.0
    clock.finish(200.0)
    for spent, words in ((0.1, ""), (10, " (about 40 s left)"), (60, " (about 4 min left)")):
        clock.start = 100.0 - spent
        assert clock.in_words() == words


def test_a_fit_that_outruns_its_budget_by_far_says_so(monkeypatch):
    said = []
    late = SimpleNamespace(perf_counter=lambda: 1e6 * any("kernel" in what for what in said))
    monkeypatch.setattr(members, "time", late)
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


@pytest.mark.slow
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
    rows = [rows_within_budget(b, 100)[0] for b in budgets]
    wanted = [sizes(600, n, 100) for n in rows]
    plans = [plan_fit(w, MEMBERS, b) for w, b in zip(wanted, budgets, strict=True)]
    for less, more in itertools.pairwise(plans):
        assert set(less.member_seconds) <= set(more.member_seconds)
        assert len(less.member_seconds) < len(more.member_seconds) or less.folds <= more.folds
        assert (less.folds > 1) <= (more.folds > 1)
    assert tuple(plans[0].member_seconds) == ("smooth forest", "novelty")
    assert all(plan.seconds() <= b for plan, b in zip(plans[1:], budgets[1:], strict=True))


def test_weights_are_nearly_equal_where_anomalies_are_few():
    few = {"boosted": Auc(0.9, 0.1, 1.0, 30, 3), "smooth forest": Auc(0.8, 0.1, 1.0, 30, 3)}
    best, worse = Auc(0.9, 0.89, 0.91, 900, 300), Auc(0.8, 0.78, 0.82, 900, 300)
    many = {"boosted": best, "smooth forest": worse}
    assert member_weights(few, 3, 0.0)["smooth forest"] == pytest.approx(0.3, abs=0.02)
    assert member_weights(many, 300, 0.0)["smooth forest"] < 1e-4
    equal = member_weights(dict.fromkeys(few), 1, 0.0)
    assert equal == {"boosted": 0.6, "smooth forest": 0.4}
    # What is known of other tables counts less the more anomalies are labelled.
    alike = {"smooth forest": None, "network": None}
    weights = [member_weights(alike, m, 0.0)["network"] for m in (0, 100, 10_000)]
    assert weights[:2] == pytest.approx([6 / 7, 3 / 4])
    assert weights[2] < 0.1


def test_extra_labelled_rows_are_of_no_group_that_may_be_held_out():
    codes, rows = np.array([1, 0, -1, 1]), np.array([0, 1])
    assert extra_labelled(codes, None, rows).tolist() == [2, 3]
    assert extra_labelled(codes, np.array([0, 1, 0, 2]), rows).tolist() == [3]


@pytest.mark.slow
@each(("n_normal", "n_anomaly", "least"), [(40, 1, 0.9), (0, 8, 0.9), (40, 0, 0.8), (1, 1, 0.6)])
def test_any_two_kinds_of_row_are_enough(n_normal, n_anomaly, least):
    X, y, _ = ring(300, n_normal, n_anomaly)
    model = AutoRAD(budget=600).fit(X, read_codes(y))
    new, _, truth = ring(seed=1)
    assert auc_of(model, new, truth) > least
    assert model.auc_ is None
    assert 0 < (model.predict(new) == -1).mean() < 0.35  # one label of each kind is no rate of 1/2
    assert {row["auc"] for row in model.leaderboard_} == {None}


def test_one_kind_of_row_is_refused():
    X, y, _ = ring(50)
    for codes in (0 * y, 0 * y + 1):
        with pytest.raises(InputError, match=r"has one only.*Label some"):
            AutoRAD().fit(X, codes)


@each(
    ("setting", "message"),
    [
        ({"n_jobs": 0}, "n_jobs must be a whole number >= 1"),
        ({"n_jobs": "2"}, "n_jobs must be a whole number >= 1"),
        ({"callback": "log"}, "callback must be a function.*got 'log'"),
    ],
)
def test_settings_are_refused_before_any_work(setting, message):
    with pytest.raises(InputError, match=message):
        AutoRAD(**setting).fit(*ring(50)[:2])


def test_values_whose_squares_overflow_are_refused():
    X, y, _ = ring(50)
    for rows in (X * 1e200, sparse.csr_matrix(X * 1e200)):
        with pytest.raises(InputError, match=r"beyond 1e\+150.*rescale"):
            AutoRAD(budget=1).fit(rows, y)


@pytest.mark.slow
def test_threads_and_processes_learn_the_same_model():
    X, y, _ = ring(200)
    scores = AutoRAD(budget=1, n_jobs=1).fit(X, y).score_samples(X)
    for backend in ("threading", "loky"):
        jobs = [delayed(clone(AutoRAD(budget=1, n_jobs=n)).fit)(X, y) for n in (1, 2)]
        for model in Parallel(n_jobs=2, backend=backend)(jobs):
            np.testing.assert_array_equal(model.score_samples(X), scores)


@pytest.mark.slow
def test_the_network_reads_blank_cells_as_such():
    """What is missing at random in a column tells nothing; the median would be a value."""
    X, y, truth = ring(400)
    X[np.random.default_rng(0).random(len(X)) < 0.3, 0] = np.nan
    model = AutoRAD().fit(X, y)
    context = model.members_["network"].context_
    assert np.isnan(context[:, 0]).any()
    assert not np.isnan(context[:, 1:]).any()
    whole = AutoRAD().fit(np.nan_to_num(X), y)
    assert not np.isnan(whole.members_["network"].context_).any()
    assert NativeColumns.of(whole.encoder_, whole.views_["plain"]) is None
    assert auc_of(model, X, truth) > 0.9


def test_the_network_reads_a_category_as_one_column():
    X, y, _ = ring(400)
    town = [["Bonn", "Ulm", "Hof"][i % 3] for i in range(len(X))]
    frame = pl.DataFrame({"a": X[:, 0], "town": town, "b": X[:, 1]})
    model = AutoRAD().fit(frame, y)
    outliers = model.views_["plain"].slices_["outliers"]
    assert model.members_["network"].n_features_in_ == 3 + outliers.stop - outliers.start
    assert model.views_["plain"].slices_["columns"] == slice(0, 5)  # others have a column a town


def test_wide_sparse_rows_are_reduced():
    rng = np.random.default_rng(0)
    X = sparse.random(200, 1500, 0.02, "lil", random_state=rng)
    X[:20, :40] = 1.0
    X = X.tocsr()
    y = np.repeat([0, -1, 1, 0], [10, 10, 30, 150])
    scores = AutoRAD(budget=600).fit(X, y).anomaly_score(X)
    assert scores[:10].min() > np.quantile(scores, 0.9)


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
    model = AutoRAD(budget=0.01, callback=print).fit(X, y)
    assert set(model.members_) == {"smooth forest", "novelty"}
    assert "No time left for network" in capsys.readouterr().out
    assert model.weights_["smooth forest"] > 0.9
    assert model.auc_ is None
    assert auc_of(model, *ring(seed=1)[::2]) > 0.9


def test_a_short_budget_takes_fewer_rows():
    assert rows_within_budget(1.0, 1_000)[0] < rows_within_budget(1.0, 10)[0] <= 20_000
    codes = np.repeat([1, -1, 0], [20, 10, 5_000])
    budgets = (0.001, 2.0, 20.0)
    few = [len(sample_rows(codes, *rows_within_budget(b, 5_000), 0)) for b in budgets]
    assert few == [230, 330, 1_030]  # columns are many, but so are the unlabelled rows
    assert set(range(30)) <= set(sample_rows(codes, 1_000, 200, 0).tolist())  # every label


class Small(Translates, AutoRAD):
    """On labels of scikit-learn's checks."""


@pytest.fixture
def few_trees(monkeypatch, few_members):
    monkeypatch.setattr(members, "_TREES", 5)
    monkeypatch.setattr(forest, "_FEW_TREES", 3)


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [Small()],
    expected_failed_checks=lambda _: {
        "check_outliers_fit_predict": "contamination is that of the unlabelled rows, and the "
        "default rule flags what is likely, not as many"
    },
)
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)


def test_every_member_scores_new_rows_as_it_would_all_their_features(fitted):
    X, new = ring()[0], ring(700, seed=1)[0]
    learned = fitted.views_["smooth"]
    rows = Views(fitted.views_, fitted.encoder_, new)
    for name, member in fitted.members_.items():
        F, recipe = rows.features_for(MEMBERS[name]), MEMBERS[name]
        np.testing.assert_allclose(
            rows.scores_by(recipe, member), member.score_samples(F), rtol=1e-9, atol=1e-9
        )
    whole = learned.transform(fitted.encoder_.transform(new))
    kernels = whole[:, learned.slices_["kernels"]]
    np.testing.assert_array_equal(rows.part("smooth", "kernels"), kernels)
    alone = [fitted.score_samples(X[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(alone, fitted.score_samples(X)[:5], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
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


def test_members_whose_library_is_missing_are_left_out(monkeypatch, fitted):
    assert set(fitted.members_) >= {"boosted", "labelled trees"}
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.warns(
        DataWarning, match="without its members boosted and labelled trees.*pip install"
    ):
        without = AutoRAD().fit(*ring(200)[:2])
    assert set(without.members_) == set(MEMBERS) - {"boosted", "labelled trees"}
