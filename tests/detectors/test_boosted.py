"""Boosted trees: the risk never rises; gaps, categories, files and the common checks."""

import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import TranslatesWeighted
from support.loops import each

pytest.importorskip("lightgbm")

import riskad
from riskad.core.checks import DataWarning, InputError
from riskad.core.losses import LOSSES, Loss
from riskad.core.risks import RISKS, get_risk
from riskad.detectors import boosted
from riskad.detectors.boosted import BoostedRAD, LabelledTrees
from riskad.rows.sources import RowBlocks

QUICK = {"max_iter": 30}


@pytest.mark.slow
@each(("risk", "loss"), itertools.product(RISKS, LOSSES))
def test_no_round_raises_the_training_risk(risk, loss, contaminated_rows):
    X, y, _ = contaminated_rows
    for rate in (0.1, 1.0):
        model = BoostedRAD(
            loss, risk=risk, a=0.4, learning_rate=rate, min_samples_leaf=0.1, **QUICK
        )
        path = model.fit(X, y).train_risk_
        assert len(path) == model.n_iter_ + 1
        assert np.diff(path).max() <= 1e-12
        assert path[-1] < path[0] - 0.05
    weight = np.random.default_rng(1).choice([0.0, 0.1, 1.0, 30.0], len(y))
    path = BoostedRAD(loss, risk=risk, learning_rate=1.0, **QUICK).fit(X, y, weight).train_risk_
    assert np.diff(path).max() <= 1e-12


@each(("risk", "loss"), itertools.product(["rad", "nnrad", "nnpu"], LOSSES))
def test_the_parabola_is_above_the_risk(risk, loss, contaminated_rows):
    X, y, _ = contaminated_rows
    rng = np.random.default_rng(0)
    run = boosted._Boosting(
        RowBlocks(X, y), get_risk(risk, loss), BoostedRAD(**QUICK)._parameters(), []
    )
    for size in (0.01, 0.3, 3.0, 30.0):
        run.f = rng.normal(0, 2, len(y))
        d = rng.normal(0, size, len(y))
        for s, h in zip(run.sums, run.curvatures, strict=True):
            above = s.value(run.f, y) + s.gradient(run.f, y) @ d + h @ d**2 / 2
            assert s.value(run.f + d, y) <= above + 1e-9 * (1 + abs(above))


@each("loss", ["hinge", "double_hinge", "ramp"])
def test_rounded_kinks_keep_what_the_loss_is(loss):
    sharp, rounded = LOSSES[loss], boosted._Rounded(*LOSSES[loss].dc_parts())
    z = np.linspace(-4, 4, 801)
    assert np.abs(rounded.value(z) - sharp.value(z)).max() <= boosted._WIDTH / 8 + 1e-12
    even, odd = rounded.value(z) + rounded.value(-z), rounded.value(z) - rounded.value(-z)
    if sharp.symmetric:
        np.testing.assert_allclose(even, 1)
    if sharp.linear_odd:
        np.testing.assert_allclose(odd, -sharp.linear_odd * z, atol=1e-12)
    step = 1e-6
    slope = (rounded.value(z + step) - rounded.value(z - step)) / (2 * step)
    np.testing.assert_allclose(rounded.derivative(z), slope, atol=1e-5)


@each("seed", range(3))
def test_leaf_values_of_a_guarded_risk_are_the_best_under_the_parabolas(seed, contaminated_rows):
    X, y, _ = contaminated_rows
    rng = np.random.default_rng(seed)
    parameters = BoostedRAD(max_leaf_nodes=4, learning_rate=0.5, random_state=seed)._parameters()
    run = boosted._Boosting(RowBlocks(X, y), get_risk("nnrad", a=0.9), parameters, [])
    run.f = rng.normal(0, 1 + seed, len(y)) + np.where(y == -1, -seed, 0)
    run.booster.update(fobj=run._derivatives)
    leaf = run.booster.predict(X, pred_leaf=True)[:, 0]
    P, Q = (s.value(run.f, y) for s in run.sums)
    (g, k), (h, m) = (
        [np.bincount(leaf, part) for part in parts] for parts in (run.gradients, run.curvatures)
    )

    def majorant(v):
        plain = P + g @ v + h @ v**2 / 2 + run.l2 * run.unit * v @ v / 2
        return plain + max(0.0, Q + k @ v + m @ v**2 / 2)

    step = run._best_step()
    found = np.array([step[leaf == j][0] for j in range(leaf.max() + 1)]) / 0.5
    np.testing.assert_allclose(run.booster.predict(X), step, atol=1e-12)
    best = minimize(majorant, found, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert majorant(found) <= best.fun + 1e-9
    assert majorant(found) <= P + max(0.0, Q)


def rare_anomalies(n_labelled=600, rate=0.032, seed=0):
    """96.8 % of the rows are normal, and labels are drawn at random: training and new rows."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(4000) < rate
    X = rng.normal(size=(4000, 6))
    X[anomalous, :3] += 1.2
    truth = np.where(anomalous, -1, 1)
    return X[:2000], np.where(np.arange(2000) < n_labelled, truth[:2000], 0), X[2000:], truth[2000:]


@pytest.mark.slow
@each(("risk", "loss"), itertools.product(RISKS, ["logistic", "hinge", "ramp"]))
def test_the_correct_prior_does_no_harm_where_anomalies_are_rare(risk, loss):
    """lambda once charged every split more than a light anomaly gains: AUC 0.909 fell to 0.500."""
    X, y, new, truth = rare_anomalies()
    aucs, paths = {}, {}
    for prior in (0.8, 0.968, 0.982, 0.99):
        model = BoostedRAD(loss, risk=risk, prior=prior, **QUICK).fit(X, y)
        aucs[prior] = roc_auc_score(truth, model.score_samples(new))
        paths[prior] = model.train_risk_
    assert min(aucs.values()) > aucs[0.8] - 0.1, aucs
    assert all(len(path) == QUICK["max_iter"] + 1 for path in paths.values())
    assert max(np.diff(path).max() for path in paths.values()) <= 1e-12


@each("risk", ["rad", "nnrad"])
def test_nor_with_a_single_column(risk):
    """A draw is then a single split, and most gain nothing at first."""
    X, y, new, truth = rare_anomalies()
    X, new = X[:, :1], new[:, :1]
    settings = {"risk": risk, **QUICK}
    usual, correct = (BoostedRAD(prior=p, **settings).fit(X, y) for p in (0.8, 0.99))
    expected = roc_auc_score(truth, usual.score_samples(new))
    assert roc_auc_score(truth, correct.score_samples(new)) > expected - 0.05


@pytest.mark.parametrize("risk", ["rad", "nnrad"])
def test_centred_leaf_values_are_the_best_near_the_common_step(risk, contaminated_rows):
    X, y, _ = contaminated_rows
    parameters = BoostedRAD(max_leaf_nodes=4, learning_rate=1.0)._parameters()
    run = boosted._Boosting(RowBlocks(X, y), get_risk(risk, a=0.9, prior=0.99), parameters, [])
    run.failed_draws = boosted._DRAWS
    assert run.centred
    assert not run.booster.update(fobj=run._derivatives)
    leaf = run.booster.predict(X, pred_leaf=True)[:, 0]
    parts = [s.value(run.f, y) for s in run.sums]

    def majorant(v):
        sums = [
            value + g @ v[leaf] + h @ v[leaf] ** 2 / 2
            for value, g, h in zip(parts, run.gradients, run.curvatures, strict=True)
        ]
        return sums[0] + max(0.0, *sums[1:]) if run.guarded else sums[0]

    n_leaves = leaf.max() + 1
    exact = {"xatol": 1e-10, "fatol": 1e-13}
    common = minimize(
        lambda c: majorant(np.repeat(c, n_leaves)), [0.0], method="Nelder-Mead", options=exact
    )

    def drawn(v):
        return majorant(v) + run.l2 * run.unit * ((v - common.x) ** 2).sum() / 2

    step = run._best_step()
    found = np.array([step[leaf == j][0] for j in range(n_leaves)])
    best = minimize(drawn, found, method="Nelder-Mead", options=exact)
    assert drawn(found) <= best.fun + 1e-8
    assert majorant(found) < common.fun < majorant(np.zeros(n_leaves))


def test_at_the_usual_prior_leaf_values_stay_drawn_to_zero(monkeypatch):
    """Centring is for the fits that would end: others, and results that rest on them, stay."""
    X, y, *_ = rare_anomalies()
    runs = []
    grow = boosted._Boosting.run
    monkeypatch.setattr(
        boosted._Boosting, "run", lambda run, n: (runs.append(run), grow(run, n))[1]
    )
    for prior in (0.8, 0.99):
        BoostedRAD(prior=prior, **QUICK).fit(X, y)
    assert [run.centred for run in runs] == [False, True]


def test_a_loss_that_cannot_be_rounded_is_refused(contaminated_rows):
    class Kinked(Loss):
        name = "kinked"
        smooth = False
        value = derivative = curvature = lambda self, z: 0 * z
        lipschitz = lambda self, bound: 1.0  # noqa: E731

    with pytest.raises(InputError, match="does not say how they are rounded"):
        BoostedRAD(Kinked(), **QUICK).fit(*contaminated_rows[:2])


def test_what_a_line_cannot_do():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    truth = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    y = np.where(rng.random(2000) < 0.2, truth, 0)
    model = BoostedRAD(prior=0.5).fit(X, y)
    assert roc_auc_score(truth[y == 0], model.score_samples(X[y == 0])) > 0.95


def test_the_risk_and_its_parts_are_those_of_the_scores(contaminated_rows):
    X, y, _ = contaminated_rows
    model = BoostedRAD(risk="nnrad", **QUICK).fit(X, y)
    risk = get_risk("nnrad", "logistic")
    scores = model.score_samples(X)
    assert model.risk_parts_["total"] == pytest.approx(float(risk.value(scores, y)), abs=1e-12)
    assert model.train_risk_[-1] == pytest.approx(model.risk_parts_["total"], abs=1e-9)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert (model.feature_importances_ > 0).all()


@pytest.mark.parametrize("risk", ["rad", "nnrad"])
def test_a_weight_is_a_repeated_row(risk, contaminated_rows, monkeypatch):
    """Where all splits are tried: random ones are drawn leaf by leaf, that of fewer rows first.

    `min_samples_leaf` and the penalty of a leaf's value count rows of mean weight.
    """

    class Exhaustive(BoostedRAD):
        def _parameters(self):
            return super()._parameters() | {"extra_trees": False}

    X, y, _ = contaminated_rows
    X = X.round()  # so few values that each has its own bin
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = Exhaustive(risk=risk, max_iter=5).fit(X, y, weight)
    mean = weight[weight > 0].mean()
    monkeypatch.setattr(boosted, "_L2", mean * boosted._L2)
    repeated = Exhaustive(risk=risk, max_iter=5, min_samples_leaf=mean * weighted.min_samples_leaf)
    repeated.fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.train_risk_, repeated.train_risk_, rtol=1e-6)
    np.testing.assert_allclose(weighted.score_samples(X), repeated.score_samples(X), atol=1e-6)


def test_where_no_split_is_left_it_says_so(contaminated_rows):
    X, y, _ = contaminated_rows
    with pytest.warns(DataWarning, match=r"every row has the same score. Lower min_samples_leaf"):
        model = BoostedRAD(min_samples_leaf=1e6, **QUICK).fit(X, y)
    assert model.n_iter_ == 0
    np.testing.assert_array_equal(model.score_samples(X), 0)


def test_gaps_carry_information(contaminated_rows):
    X, y, truth = make_contaminated_rows(shift=0.0)
    X[truth == -1, 1] = np.nan
    model = BoostedRAD(max_iter=30).fit(X, y)
    assert roc_auc_score(truth, model.score_samples(X)) > 0.99


def test_frames_are_compared_with_that_of_the_fit():
    X, y, _ = make_contaminated_rows()
    frame = pl.DataFrame(X[:, :2], schema=["age", "noise"]).with_columns(town=pl.lit("Ulm"))
    model = BoostedRAD(**QUICK).fit(frame, y)
    with pytest.raises(InputError, match=r"frame with text in 'town', got ndarray"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"'when' holds values of type List"):
        BoostedRAD().fit(frame.with_columns(when=pl.concat_list("age")), y)


def test_sparse_rows_are_the_same_rows(contaminated_rows):
    X, y, _ = contaminated_rows
    X = np.where(np.abs(X) < 2, 0, X)
    X[3, 1] = np.nan
    dense = BoostedRAD(**QUICK).fit(X, y).score_samples(X)
    found = BoostedRAD(**QUICK).fit(sparse.csr_array(X), y).score_samples(sparse.csr_matrix(X))
    np.testing.assert_allclose(found, dense, rtol=1e-12)


@each(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be a whole number >= 1, got 0"),
        ({"max_iter": True}, "max_iter must be a whole number >= 1, got True"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes must be a whole number >= 2"),
        ({"learning_rate": 1.5}, "learning_rate must be a number between 0 and 1"),
        ({"learning_rate": 0}, "greater than 0"),
        ({"min_samples_leaf": -1}, "min_samples_leaf must be"),
        ({"prior": 80}, "share of normal rows"),
        ({"loss": "logistics"}, "Did you mean 'logistic'"),
        ({"risk": "rda"}, "risk='rda' is not known"),
    ],
)
def test_bad_settings_are_refused(settings, message, contaminated_rows):
    with pytest.raises(InputError, match=message):
        BoostedRAD(**settings).fit(*contaminated_rows[:2])


def test_bad_rows_and_labels_are_refused(contaminated_rows):
    X, y, _ = contaminated_rows
    with pytest.raises(InputError, match=r"needs a labelled normal row.*risk='nu'\."):
        BoostedRAD().fit(X, np.minimum(y, 0))
    X[2, 0] = np.nan
    X[5, 1] = np.inf
    message = r"an infinity \(inf\): the first of 1 is in row 5, column 1. .* by NaN, or by a large"
    with pytest.raises(InputError, match=message):
        BoostedRAD().fit(X, y)
    X[5, 1] = 0
    model = BoostedRAD(**QUICK).fit(X, y)
    with pytest.raises(InputError, match="row 0, column 3"):
        model.predict([[0, 0, 0, -np.inf]])


def test_lightgbm_is_needed_to_fit_and_not_to_score_or_explain(
    monkeypatch, tmp_path, contaminated_rows
):
    X, y, _ = contaminated_rows
    model = BoostedRAD(**QUICK).fit(X, y)
    riskad.save(model, tmp_path / "model.riskad")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    message = r"lightgbm, which is not installed: pip install 'riskad\[boost\]'"
    with pytest.raises(InputError, match=message):
        BoostedRAD().fit(X, y)
    loaded = riskad.load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(loaded._contributions(X)[0], model._contributions(X)[0])


DRAWS = "random splits are drawn for the leaf of fewer rows first; repeated rows draw others"
EQUIVALENCE = {f"check_sample_weight_equivalence_on_{k}_data": DRAWS for k in ("dense", "sparse")}


class Translated(TranslatesWeighted, BoostedRAD):
    """BoostedRAD on the labels of the checks."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::riskad.core.checks.DataWarning")
@parametrize_with_checks(
    [Translated(max_iter=10)], expected_failed_checks=lambda estimator: EQUIVALENCE
)
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)


def test_no_two_threads_use_lightgbm_at_once(monkeypatch):
    """Its number of threads is the process's: a call that changes it under another one kills it."""
    import lightgbm

    inside, most, told = [], [], []

    def watched(name):
        whole = getattr(lightgbm.Booster, name)

        def call(booster, *args, **kwargs):
            inside.append(name)
            most.append(len(inside))
            told.append((name, kwargs.get("num_threads", booster.params.get("num_threads"))))
            time.sleep(0.001)
            try:
                return whole(booster, *args, **kwargs)
            finally:
                inside.pop()

        monkeypatch.setattr(lightgbm.Booster, name, call)

    for name in ("update", "predict"):
        watched(name)
    X, y, _ = make_contaminated_rows(200)

    def fit(i):
        models = LabelledTrees(max_iter=5), BoostedRAD(max_iter=5, n_jobs=1 + i // 2)
        return models[i % 2].fit(X, y).score_samples(X)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fit, range(4)))
    assert max(most) == 1
    assert {threads for name, threads in told if name == "predict"} == {1, 2}
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])


@pytest.mark.parametrize(
    ("model", "rounds"), [(LabelledTrees(max_iter=7), 7), (LabelledTrees()._clone_for_fold(), 80)]
)
def test_labelled_trees_with_a_given_number_of_rounds_grow_as_for_fewer_rows(model, rounds):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    model.fit(X, np.where(X[:, 0] + X[:, 1] > 2, -1, 1))
    assert model.trees_.n_trees == rounds
    assert (~model.trees_.splits).sum() > 8 * rounds  # leaves
