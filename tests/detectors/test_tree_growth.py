"""Trees grown all at once: beside scikit-learn's, what leaves hold, and hard rows."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from support.trees import leaves_of

from riskad.detectors.forest import ForestRAD
from riskad.detectors.tree_growth import grow


def all_rows(n, n_trees):
    return np.tile(np.arange(n), (n_trees, 1))


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6)).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] ** 2 > 1.5, -1.0, 1.0)
    return X, y, rng.uniform(0.5, 2.0, 120)


def test_scores_are_as_near_to_scikit_learns_as_two_of_its_seeds(labelled):
    X, y, w = labelled
    new = np.random.default_rng(1).normal(size=(500, 6)).astype(np.float32)

    def theirs(seed):
        forest = ExtraTreesClassifier(400, min_weight_fraction_leaf=0.02, random_state=seed)
        return forest.fit(X, y, w).predict_proba(new) @ [-1, 1]

    options = {"max_features": 2, "min_weight_leaf": 0.02 * w.sum()}
    ours = grow(X, y, w, all_rows(120, 400), **options, seed=0).trees.mean(new)
    apart = np.abs(theirs(0) - theirs(1)).mean()
    assert np.abs(ours - theirs(0)).mean() < 1.3 * apart


def test_leaves_hold_their_rows_and_means_and_gains_add_up(labelled):
    X, y, w = labelled
    options = {"max_features": 2, "min_weight_leaf": 2.5, "max_depth": 5}
    found = grow(X, y, w, all_rows(120, 30), **options, seed=0)
    leaf = leaves_of(found.trees, X)
    n = np.bincount(leaf.ravel(), minlength=len(found.n_samples))
    W = np.bincount(leaf.ravel(), np.repeat(w, 30))
    S = np.bincount(leaf.ravel(), np.repeat(w * y, 30))
    assert (n == found.n_samples).all()
    assert W.min() >= 2.5
    np.testing.assert_allclose(found.trees.value, S / W, atol=1e-12)
    assert found.depth.max() <= 5
    error = 30 * (w @ y**2 - (w @ y) ** 2 / w.sum()) - (30 * w @ y**2 - (S**2 / W).sum())
    assert found.gain.sum() == pytest.approx(error)


def test_the_one_column_that_varies_is_found_among_constant_ones():
    X = np.zeros((40, 50))
    X[:, 37] = np.arange(40)
    y = np.where(X[:, 37] < 9, -1.0, 1.0)
    found = grow(X, y, np.ones(40), all_rows(40, 20), max_features=7, seed=0)
    assert set(found.trees.feature) == {37}
    assert (found.trees.mean(X) == y).all()


def test_rows_that_are_all_the_same_are_one_leaf():
    X, y = np.ones((5, 2)), [1, 1, -1, 1, -1]
    found = grow(X, y, np.ones(5), all_rows(5, 3), max_features=2, seed=0)
    assert not found.trees.splits.any()
    np.testing.assert_allclose(found.trees.value, 0.2)


def test_the_largest_numbers_of_single_precision_are_parted():
    most = np.finfo(np.float32).max
    X = np.array([[-most], [-most], [most], [most]])
    found = grow(X, [1, 1, -1, -1], np.ones(4), all_rows(4, 5), max_features=1, seed=0)
    assert found.trees.mean(X).tolist() == [1, 1, -1, -1]


def test_a_weight_is_a_repeated_row(labelled):
    X, y, _ = labelled
    times = np.random.default_rng(2).integers(1, 4, 120)
    options = {"max_features": 2, "min_weight_leaf": 4, "seed": 0}
    weighted = grow(X, y, times, all_rows(120, 10), **options).trees
    n = times.sum()
    X2, y2 = np.repeat(X, times, axis=0), np.repeat(y, times)
    repeated = grow(X2, y2, np.ones(n), all_rows(n, 10), **options).trees
    np.testing.assert_allclose(weighted.mean(X), repeated.mean(X), atol=1e-12)


def test_a_forest_of_few_rows_and_one_of_many_rank_alike():
    """On both sides of the number of rows from which on scikit-learn grows the trees."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_002, 5))
    y = np.where(X[:, 0] > 1, -1, 1)
    new = rng.normal(size=(1_000, 5))
    few, many = (
        ForestRAD(risk="pn", n_estimators=60).fit(X[:n], y[:n]).score_samples(new)
        for n in (2_000, 2_002)
    )
    assert np.corrcoef(few, many)[0, 1] > 0.98
