"""Forests on the weights of a risk: the weights themselves, files and the common checks."""

from functools import partial

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import TranslatesWeighted
from support.loops import each
from support.trees import leaves_of

import riskad
from riskad.core.checks import InputError
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.forest import ForestRAD, class_weights
from riskad.files.codec import build, state_of

QUICK = {"n_estimators": 20}


@each("risk", [name for name in RISKS if not RISKS[name].guarded])
@each("loss", ["sigmoid", "ramp"])
def test_the_risk_is_a_weighted_error_up_to_a_constant(risk, loss):
    rng = np.random.default_rng(0)
    y = np.array([0] * 7 + [1] * 4 + [-1] * 3)
    bound = get_risk(risk, loss, a=0.3, prior=0.7)
    signed = class_weights(bound, np.array([7, 4, 3]))[y]
    target = np.sign(signed)
    gaps = []
    for _ in range(20):
        f = rng.normal(0, 2, len(y))
        error = np.abs(signed) @ bound.loss.value(target * f)
        gaps.append(float(bound.value(f, y)) - error)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-12)


@pytest.fixture(params=[ForestRAD, riskad.BoostedRAD])
def make(request):
    """Makes a quick detector of this kind."""
    if request.param is ForestRAD:
        return partial(ForestRAD, **QUICK)
    pytest.importorskip("lightgbm")
    return partial(riskad.BoostedRAD, max_iter=30)


def test_anomalies_rank_below_normals_and_labels_matter(make):
    X, y, truth = make_contaminated_rows(shift=3.0)
    model = make().fit(X, y)
    scores = model.score_samples(X)
    assert roc_auc_score(truth[y == 0], scores[y == 0]) > 0.97
    assert (model.predict(X) == truth).mean() > 0.9
    assert isinstance(model, riskad.BoostedRAD) or np.abs(scores).max() <= 1
    other = make().fit(X, np.random.default_rng(0).permutation(y))
    assert roc_auc_score(truth[y == 0], other.score_samples(X[y == 0])) < 0.8


def test_with_a_at_zero_the_unlabelled_rows_do_not_count(make, contaminated_rows):
    X, y, _ = contaminated_rows
    k = y != 0
    whole = make(a=0.0).fit(X, y).score_samples(X)
    alone = make(risk="pn").fit(X[k], y[k]).score_samples(X)
    np.testing.assert_array_equal(whole, alone)
    assert not np.array_equal(whole, make().fit(X, y).score_samples(X))


def test_the_seed_decides(make, contaminated_rows):
    X, y, _ = contaminated_rows
    settings = ({}, {"random_state": 0}, {"random_state": 1})
    default, zero, one = (make(**s).fit(X, y).score_samples(X) for s in settings)
    np.testing.assert_array_equal(default, zero)
    assert not np.allclose(zero, one)


def test_it_is_scikit_learn_s_forest_on_these_weights(contaminated_rows):
    X, y, _ = contaminated_rows
    X[::7, 2] = np.nan
    model = ForestRAD(min_samples_leaf=0, **QUICK).fit(X, y)
    signed = class_weights(get_risk("rad"), np.array([(y == k).sum() for k in (0, 1, -1)]))[y]
    forest = ExtraTreesClassifier(20, random_state=0).fit(X, np.sign(signed), np.abs(signed))
    shares = forest.predict_proba(X)
    np.testing.assert_allclose(model.score_samples(X), shares[:, 1] - shares[:, 0], atol=1e-12)
    np.testing.assert_allclose(model.feature_importances_, forest.feature_importances_)


def test_the_risk_is_that_of_the_decisions(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ForestRAD(**QUICK).fit(X, y)
    called = model.predict(X)
    wrong = {k: (called[y == k] == -1).mean() for k in (0, 1, -1)}
    expected = 0.9 * 0.8 * wrong[1] + 0.2 * (1 - wrong[-1]) + 0.1 * (wrong[0] - 0.2 * wrong[-1])
    assert model.risk_parts_["total"] == pytest.approx(expected)


def test_a_leaf_weighs_as_much_as_asked(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ForestRAD(min_samples_leaf=5, **QUICK).fit(X, y)
    weights = np.abs(class_weights(get_risk("rad"), np.array([(y == k).sum() for k in (0, 1, -1)])))
    w = weights[y]
    least = 5 * w[y != 0].mean()
    for leaf in leaves_of(model.trees_, X).T:
        held = np.bincount(leaf, w)
        assert held[held > 0].min() >= least * (1 - 1e-9)


def test_bad_input_is_refused(contaminated_rows):
    X, y, _ = contaminated_rows
    for settings, message in (
        ({"n_estimators": 0}, "n_estimators must be a whole number"),
        ({"min_samples_leaf": -1}, "min_samples_leaf"),
        ({"a": 2}, "a must be"),
        ({"risk": "nnrad"}, "nnrad .* Choose risk='rad', or BoostedRAD"),
    ):
        with pytest.raises(InputError, match=message):
            ForestRAD(**settings).fit(X, y)
    gap = sparse.csr_array(np.where(np.eye(len(X), 4) > 0, np.nan, X))
    with pytest.raises(InputError, match=r"NaN.*sparse"):
        ForestRAD().fit(gap, y)
    for value, message in ((np.inf, "row 3, column 1"), (1e39, "rescale")):
        X[3, 1] = value
        with pytest.raises(InputError, match=message):
            ForestRAD().fit(X, y)


def test_trees_of_other_columns_are_refused(contaminated_rows):
    X, y, _ = contaminated_rows
    model, other = (ForestRAD(n_estimators=2).fit(rows, y) for rows in (X, X[:, :3]))
    with pytest.raises(InputError, match="trees_: of other columns"):
        build(ForestRAD, state_of(model) | {"trees_": other.trees_})
    with pytest.raises(InputError, match="trees_: expected Trees, got None"):
        build(ForestRAD, state_of(model) | {"trees_": None})


class Translated(TranslatesWeighted, ForestRAD):
    """ForestRAD on the labels of the checks."""


# `min_samples_leaf` counts rows of mean weight: equal weights change nothing, and then a row of
# weight 2 cannot be two rows. tests/rows/test_weights.py has the equivalence that holds.
LEAVES = "leaves hold as many rows of mean weight"
EQUIVALENCE = {f"check_sample_weight_equivalence_on_{k}_data": LEAVES for k in ("dense", "sparse")}


@parametrize_with_checks(
    [Translated(n_estimators=5)], expected_failed_checks=lambda estimator: EQUIVALENCE
)
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)
