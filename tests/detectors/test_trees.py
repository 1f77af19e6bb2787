"""Trees as plain arrays: the leaves of the libraries that grew them, Shapley values, files."""

import dataclasses
import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from support.loops import each
from support.trees import leaves_of

from riskad.core.checks import InputError
from riskad.detectors import tree_ensemble
from riskad.detectors.tree_ensemble import Trees
from riskad.detectors.tree_growth import (
    _single_not_above,
    from_forest,
    from_hist_gradient_boosting,
    from_lightgbm,
)
from riskad.files.codec import build, from_members, to_members


def rows_with_gaps(n=500, seed=0):
    """Numbers of all sizes, integers, a constant, and codes of categories in the last column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * [1, 1e-30, 1e30, 1, 1, 1]
    X[:, 3] = rng.integers(-2, 3, n)
    X[:, 4] = 7.0
    X[:, 5] = rng.integers(0, 9, n)
    X[rng.random(X.shape) < 0.1] = np.nan
    target = np.nan_to_num(X[:, 0]) + (X[:, 3] == 1) + 2 * np.isin(X[:, 5], [1, 5])
    return X, target


def on_thresholds(X, trees, seed=0):
    """The rows with some values exactly on a threshold, and next to it on both sides."""
    X, rng = X.copy(), np.random.default_rng(seed)
    for row in X:
        split = rng.integers(len(trees.feature))
        near = np.clip(trees.threshold[split], -1e38, 1e38)  # with neighbours that are finite
        sides = (near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf))
        row[trees.feature[split]] = sides[rng.integers(3)]
    return X


@each(
    "forest",
    [
        ExtraTreesRegressor(20, random_state=0),
        ExtraTreesClassifier(20, min_samples_leaf=20, random_state=0),
        RandomForestClassifier(20, random_state=0),
        ExtraTreesRegressor(3, max_depth=1, random_state=0),
        ExtraTreesRegressor(3, min_samples_split=10**6, random_state=0),
    ],
)
@each("gaps", [False, True])
def test_rows_reach_the_leaves_of_scikit_learn(forest, gaps):
    X, target = rows_with_gaps()
    seen = X if gaps else np.nan_to_num(X)
    forest.fit(seen, target > 0.5 if "Classifier" in str(forest) else target)
    theirs = [member.tree_ for member in forest.estimators_]
    ours = from_forest(forest, np.concatenate([tree.value[:, 0, 0] for tree in theirs]))
    new = on_thresholds(rows_with_gaps(seed=1)[0], ours) if len(ours.feature) else X
    leaf = np.stack([tree.apply(new.astype(np.float32)) for tree in theirs], axis=1)
    assert_same_partition(leaves_of(ours, new), leaf)
    total = sum(tree.predict(new.astype(np.float32)).reshape(len(new), -1)[:, 0] for tree in theirs)
    np.testing.assert_array_equal(ours.predict(new), total)  # added in the same order


def assert_same_partition(ours, theirs):
    for own, other in zip(ours.T, theirs.T, strict=True):
        pairs = set(zip(own.tolist(), other.tolist(), strict=True))
        assert len(pairs) == len(set(own.tolist())) == len(set(other.tolist()))


def test_a_split_between_missing_and_all_others():
    X = np.array([[np.nan], [np.nan], [1.0], [2.0], [3.0]] * 20)
    new = np.array([[np.nan], [-3e38], [3e38]])
    forest = RandomForestClassifier(5, bootstrap=False).fit(X, np.isnan(X[:, 0]))
    boosting = HistGradientBoostingRegressor(max_iter=3, learning_rate=1.0)
    boosting.fit(X, np.isnan(X[:, 0]))
    thresholds = [member.tree_.threshold for member in forest.estimators_]
    thresholds.append(boosting._predictors[0][0].nodes["num_threshold"])
    assert sum(np.isinf(each).any() for each in thresholds) > 1
    shares = np.concatenate([member.tree_.value[:, 0, 1] for member in forest.estimators_])
    for trees in (from_forest(forest, shares / 5), from_hist_gradient_boosting(boosting)):
        assert np.isfinite(trees.threshold).all()
        np.testing.assert_allclose(trees.predict(new), [1, 0, 0], atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.floats(min_value=-3.4e38), st.floats(width=32, allow_nan=False))
def test_thresholds_in_single_precision_compare_as_in_double(threshold, x):
    if np.isfinite(x):
        single = _single_not_above(np.array([threshold]))
        assert single.dtype == np.float32
        assert (np.float32(x) <= single[0]) == (float(x) <= threshold)


@each(
    "options",
    [{}, {"max_leaf_nodes": None, "min_samples_leaf": 1}, {"max_depth": 1}, {"max_bins": 3}],
)
@each("gaps", [False, True])
def test_histogram_boosting_predicts_the_same(options, gaps):
    X, target = rows_with_gaps()
    model = HistGradientBoostingRegressor(max_iter=40, random_state=0, **options)
    model.fit(X if gaps else np.nan_to_num(X), target)
    ours = from_hist_gradient_boosting(model)
    new = on_thresholds(rows_with_gaps(n=800, seed=1)[0], ours)
    np.testing.assert_allclose(ours.predict(new), model.predict(new), rtol=1e-12)


def test_histogram_boosting_of_a_log_odds_and_of_constants():
    X, target = rows_with_gaps()
    model = HistGradientBoostingClassifier(max_iter=5).fit(X, target > 0.5)
    found = from_hist_gradient_boosting(model).predict(X)
    np.testing.assert_allclose(found, model.decision_function(X), rtol=1e-9)
    constant = HistGradientBoostingRegressor(max_iter=2).fit(X, np.full(len(X), 7.5))
    np.testing.assert_allclose(from_hist_gradient_boosting(constant).predict(X), 7.5)


def boosted(params, seed=0, rounds=40):
    lightgbm = pytest.importorskip("lightgbm")
    X, target = rows_with_gaps(seed=seed)
    params = {"verbosity": -1, "num_threads": 1, "max_cat_to_onehot": 100, **params}
    data = lightgbm.Dataset(X, target, categorical_feature=[5], params=params)
    booster = lightgbm.train(params, data, rounds)
    return booster, from_lightgbm(booster)


BOOSTED = {
    "usual": {},
    "no missing values": {"use_missing": False},
    "small leaves": {"min_data_in_leaf": 1},
    "sets of categories": {"max_cat_to_onehot": 1, "cat_smooth": 1, "min_data_per_group": 5},
    "stumps of random splits": {"extra_trees": True, "num_leaves": 2},
    "deep": {"num_leaves": 200, "min_data_in_leaf": 1},
}


def new_rows(trees):
    new = on_thresholds(rows_with_gaps(n=800, seed=1)[0], trees)
    new[:, 5] = np.round(new[:, 5])
    new[:100, 5] = 40  # a category that was never seen
    new[100:150] = np.nan
    new[150:200] = 0.0
    new[200:250, :3] = [-0.0, 1e-36, -1e-36]
    new[250:300, 5] = -1
    new[300:350, 5] = 2e9
    return new


@each("name", BOOSTED)
def test_rows_and_shapley_values_are_those_of_lightgbm(name):
    booster, ours = boosted(BOOSTED[name])
    new = new_rows(ours)
    assert ours.categorical.any()
    if name != "sets of categories":  # of which each category has leaves of its own
        assert_same_partition(
            leaves_of(ours, new), booster.predict(new, pred_leaf=True).astype(int)
        )
    np.testing.assert_array_equal(ours.predict(new), booster.predict(new))
    booster, ours = boosted(BOOSTED[name], rounds=10)
    theirs = booster.predict(new, pred_contrib=True)
    values, base = ours.contributions(new)
    np.testing.assert_allclose(values, theirs[:, :-1], atol=1e-12)
    np.testing.assert_allclose(base, theirs[0, -1], atol=1e-12)
    np.testing.assert_allclose(base + values.sum(axis=1), ours.predict(new), atol=1e-12)


def test_trees_so_deep_that_paths_fill_memory_have_no_shapley_values(monkeypatch):
    _, ours = boosted({}, rounds=2)
    monkeypatch.setattr(tree_ensemble, "_MAX_TURNS", 10)
    assert ours.contributions(np.zeros((1, 6))) is None
    assert dataclasses.replace(ours, cover=None).contributions(np.zeros((1, 6))) is None


def dumped(*trees):
    dump = {"max_feature_idx": 1, "tree_info": [{"tree_structure": each} for each in trees]}
    return SimpleNamespace(dump_model=lambda: dump)


def test_no_rows_no_tree_and_a_lone_leaf():
    _, ours = boosted({}, rounds=2)
    assert ours.predict(np.empty((0, 6))).shape == (0,)
    assert leaves_of(ours, np.empty((0, 6))).shape == (0, 2)
    rows = np.array([[0.0, 1.0], [np.nan, 3.0]])
    none = from_lightgbm(dumped())  # becomes a leaf
    np.testing.assert_array_equal(none.predict(rows), [0, 0])
    assert leaves_of(none, rows).shape == (2, 1)
    lone = from_lightgbm(dumped({"leaf_value": 1.5}))
    np.testing.assert_array_equal(lone.predict(rows), [1.5, 1.5])
    values, base = lone.contributions(rows)
    assert base == 1.5
    np.testing.assert_array_equal(values, 0)


@pytest.mark.parametrize(("rows", "pairs", "cells"), [(7, 30, 2**22), (1024, 1, 50), (1, 1, 1)])
def test_blocks_of_any_size_give_the_same(rows, pairs, cells, monkeypatch):
    _, ours = boosted({}, rounds=8)
    X = new_rows(ours)[::5]
    leaves, total = leaves_of(ours, X), ours.predict(X)
    values, _ = ours.contributions(X)
    for name, size in (("_BLOCK_ROWS", rows), ("_PAIRS", pairs), ("_BLOCK_CELLS", cells)):
        monkeypatch.setattr(tree_ensemble, name, size)
    np.testing.assert_array_equal(leaves_of(ours, X), leaves)
    np.testing.assert_array_equal(ours.predict(X), total)
    monkeypatch.setattr(tree_ensemble, "_TURN_CELLS", pairs)
    np.testing.assert_allclose(ours.contributions(X)[0], values, atol=1e-15)


@each("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_are_those_with_zeros(kind):
    _, ours = boosted({})
    X = np.where(np.random.default_rng(0).random((300, 6)) < 0.7, 0.0, new_rows(ours)[:300])
    np.testing.assert_array_equal(ours.predict(kind(X)), ours.predict(X))
    np.testing.assert_array_equal(ours.contributions(kind(X))[0], ours.contributions(X)[0])


def test_only_columns_that_trees_use_become_dense():
    """A hundred thousand columns of a thousand rows would be 800 MB."""
    X, target = rows_with_gaps()
    forest = ExtraTreesRegressor(3, random_state=0).fit(np.nan_to_num(X), target)
    values = [member.tree_.value[:, 0, 0] for member in forest.estimators_]
    narrow = from_forest(forest, np.concatenate(values))
    wide = dataclasses.replace(narrow, n_features=100_000, feature=narrow.feature * 10_000)
    rows = sparse.random_array((1000, 100_000), density=1e-4, rng=0, format="csr")
    np.testing.assert_array_equal(
        wide.predict(rows), narrow.predict(rows[:, np.arange(6) * 10_000].toarray())
    )


def test_trees_come_back_as_they_were():
    _, ours = boosted({})
    X = new_rows(ours)
    fresh = pickle.dumps(ours)
    expected = ours.predict(X)  # and with what was prepared for the walk, which is not stored
    assert pickle.dumps(ours) == fresh
    for again in (from_members(*to_members(ours)), pickle.loads(pickle.dumps(ours))):
        np.testing.assert_array_equal(again.predict(X), expected)


@pytest.fixture(scope="module")
def state():
    _, ours = boosted({}, rounds=4)
    return {field.name: getattr(ours, field.name) for field in dataclasses.fields(ours)}


def changed(state, name, change):
    value = state[name].copy() if isinstance(state[name], np.ndarray) else state[name]
    return {**state, name: change(value)}


def put(place, new):
    def change(values):
        values[place] = new
        return values

    return change


@each(
    ("name", "change", "message"),
    [
        ("n_trees", lambda n: n + 1, "splits: expected a size of"),
        ("n_trees", lambda n: 0, "n_trees"),
        ("n_features", lambda n: 1, "values below 1"),
        ("splits", lambda v: v[:-1], "splits: expected a size of"),
        ("splits", lambda v: v[::-1], "child before its parent"),
        ("splits", lambda v: v.astype(np.uint8), "truth values"),
        ("feature", lambda v: v[:-1], "size of"),
        ("feature", put(0, 6), "values below 6"),
        ("feature", put(0, -1), "between 0"),
        ("feature", lambda v: v.astype(float), "whole numbers"),
        ("threshold", put(0, np.nan), "NaN"),
        ("threshold", put(0, np.inf), "infinities"),
        ("threshold", lambda v: (0 * v).astype(np.float16), "numbers of 32 or 64 bits"),
        ("missing_left", lambda v: v.astype(np.uint8), "truth values"),
        ("value", put(0, np.inf), "infinities"),
        ("value", lambda v: v[1:], "size of"),
        ("cover", put(0, 0.0), "between"),
        ("cover", lambda v: v[1:], "size of"),
        ("categorical", lambda v: v[:-1], "size of"),
    ],
)
def test_forged_trees_are_refused(state, name, change, message):
    build(Trees, state)
    with pytest.raises(InputError, match=message):
        build(Trees, changed(state, name, change))


def test_leaves_and_splits_must_be_counted_right(state):
    """Sizes that agree with each other, and not with the shape of the trees."""
    for names, message in (
        (("feature", "threshold", "missing_left", "categorical"), "feature: expected a size of"),
        (("value", "cover"), "value: expected a size of"),
    ):
        shorter = {name: state[name][:-1] for name in names}
        with pytest.raises(InputError, match=message):
            build(Trees, state | shorter)


def test_whatever_shape_a_file_gives_is_walked_to_an_end_or_refused():
    """All ways in which up to seven nodes of two trees may split."""
    walked = 0
    for shape in itertools.product([False, True], repeat=6):
        n = sum(shape)
        state = {
            "n_trees": 2,
            "n_features": 1,
            "splits": np.array(shape),
            "feature": np.zeros(n, dtype=np.int32),
            "threshold": np.linspace(-1, 1, n),
            "missing_left": np.zeros(n, dtype=bool),
            "value": np.arange(6.0 - n),
            "cover": np.ones(6 - n),
            "categorical": None,
        }
        try:
            trees = build(Trees, state)
        except InputError:
            continue
        rows = np.linspace(-2, 2, 9)[:, None]
        found = leaves_of(trees, rows)
        assert found.max() < len(trees.value)
        np.testing.assert_allclose(trees.value[found].sum(axis=1), trees.predict(rows))
        walked += 1
    assert walked == 5  # two splits among two roots and what is below them
