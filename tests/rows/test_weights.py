"""What `sample_weight` means to each detector: what docstrings promise, and what they do not."""

import numpy as np
import pytest
from conftest import make_contaminated_rows
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils.validation import has_fit_parameter
from support.loops import each

import riskad
from riskad import AutoRAD, BoostedRAD, ForestRAD, ShallowRAD, StreamingRAD
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS
from riskad.metrics.search import held_out_folds
from riskad.rows.equal_rows import group_equal_rows

LINEAR = [
    *(ShallowRAD(loss, lam=lam, tol=1e-8) for loss in LOSSES for lam in ("theorem", "tight", 0.01)),
    *(ShallowRAD(risk=risk, lam=0.1, tol=1e-8) for risk in RISKS),
    ShallowRAD(penalty="l1", lam=0.01, tol=1e-8),
    ShallowRAD(feature_map="rbf", lam=0.1, tol=1e-8),
    ShallowRAD(feature_map="poly", lam=0.1, tol=1e-8),
    StreamingRAD("squared"),
    StreamingRAD(tol=1e-8),
    StreamingRAD(feature_map="rbf", lam=0.1, tol=1e-8),
]
FEW_ROWS = ForestRAD(n_estimators=5)
TREES = [BoostedRAD(max_iter=10)]
AVERAGE = AutoRAD()  # of its quick members
pytestmark = pytest.mark.usefixtures("few_members")
LEARNED_FROM_ROWS = ["nystroem", PCA(2)]


def make_weighted(n=400):
    X, y, _ = make_contaminated_rows(n, 4)
    return X, y, np.random.default_rng(1).integers(0, 4, n).astype(float)


def assert_same_scores(one, other, X, tol=1e-6):
    scores = one.score_samples(X)
    largest = np.abs(scores).max()
    np.testing.assert_allclose(other.score_samples(X), scores, atol=tol * largest)
    assert other.offset_ == pytest.approx(one.offset_, abs=tol * largest)


def repeat(X, y, weight):
    times = weight.astype(int)
    order = np.random.default_rng(0).permutation(times.sum())
    return np.repeat(X, times, axis=0)[order], np.repeat(y, times)[order]


@pytest.mark.slow
@each("model", [*LINEAR, FEW_ROWS, ForestRAD(n_estimators=5, min_samples_leaf=20), *TREES, AVERAGE])
@each("weight", [2.0, 0.1])
def test_equal_weights_change_nothing(model, weight):
    X, y, _ = make_weighted()
    weighted = clone(model).fit(X, y, sample_weight=np.full(len(y), weight))
    assert_same_scores(weighted, clone(model).fit(X, y), X)


@each("model", [FEW_ROWS, *TREES, AVERAGE])
def test_only_ratios_of_weights_matter(model):
    X, y, weight = make_weighted()
    once, twice = (clone(model).fit(X, y, sample_weight=k * weight) for k in (1, 2))
    assert_same_scores(once, twice, X)


@pytest.mark.slow
@each("model", [*LINEAR, FEW_ROWS])
def test_to_linear_scores_and_forests_of_few_rows_a_row_of_weight_w_is_w_rows(model):
    X, y, weight = make_weighted()
    weighted, other = clone(model).fit(X, y, sample_weight=weight), clone(model)
    if "min_samples_leaf" in model.get_params():
        # Its leaves hold as many repeated rows as they hold rows of mean weight.
        leaf = model.min_samples_leaf * weight[weight > 0].mean()
        other.set_params(min_samples_leaf=leaf)
    assert_same_scores(weighted, other.fit(*repeat(X, y, weight)), X)


@pytest.mark.slow
@each(
    "model",
    [
        *LINEAR,
        FEW_ROWS,
        *TREES,
        AVERAGE,
        *(ShallowRAD(feature_map=each, lam=0.1, tol=1e-8) for each in LEARNED_FROM_ROWS),
        ShallowRAD(lam="cv"),
        ShallowRAD(risk="pu", lam="cv"),
    ],
)
def test_to_every_detector_a_row_of_weight_0_is_absent(model):
    X, y, weight = make_weighted()
    X[weight == 0] *= 100
    weighted = clone(model).fit(X, y, sample_weight=weight)
    there = weight > 0
    absent = clone(model).fit(X[there], y[there], sample_weight=weight[there])
    assert_same_scores(weighted, absent, X[there])


@pytest.mark.slow
@each(
    "model",
    [
        *TREES,
        AVERAGE,
        *(ShallowRAD(feature_map=each, lam=0.1) for each in LEARNED_FROM_ROWS),
        StreamingRAD(feature_map="nystroem", lam=0.1),
    ],
)
def test_what_draws_or_looks_at_single_rows_takes_repeated_rows_for_more_of_them(model):
    """Why no docstring of these promises that a row of weight w is w rows."""
    X, y, weight = make_weighted()
    scores = clone(model).fit(X, y, sample_weight=weight).score_samples(X)
    others = clone(model).fit(*repeat(X, y, weight)).score_samples(X)
    assert np.abs(scores - others).max() > 1e-3 * np.abs(scores).max()


def test_folds_hold_out_rows_whatever_their_weight_or_copies():
    """A single anomaly cannot be held out and learned from, of weight 5 or as five copies."""
    X, y, _ = make_weighted()
    y[np.flatnonzero(y == -1)[1:]] = 0
    weight = np.where(y == -1, 5.0, 1.0)
    assert held_out_folds(y, group_equal_rows(X, y)) == []
    X, y = repeat(X, y, weight)
    assert held_out_folds(y, group_equal_rows(X, y)) == []


def test_every_public_detector_that_takes_weights_is_tested_here():
    detectors = [getattr(riskad, name) for name in riskad.__all__ if name.endswith("RAD")]
    tested = {type(model) for model in (*LINEAR, FEW_ROWS, *TREES, AVERAGE)}
    assert {each for each in detectors if has_fit_parameter(each, "sample_weight")} <= tested
