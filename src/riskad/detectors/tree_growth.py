r"""Where `Trees` come from: grown here, or by scikit-learn or LightGBM and taken over.

Here extremely randomised trees grow, all of them at once.

A library that grows one tree after another spends most of its time between trees if rows are few.
Here the rows of every node lie side by side, and sums over nodes are sums over segments.

At a node with rows i of weight w_i and target y_i, columns are drawn without replacement until
`max_features` of them that are not constant there have been tried, each with one threshold t,
uniform between its smallest and its largest value. The split with the smallest squared error is
chosen, which is the one with the largest

    gain = S_l^2 / W_l + S_r^2 / W_r - S^2 / W,        W = sum_i w_i,  S = sum_i w_i y_i,

with l the rows with x <= t and r the others. For targets +1 and -1 that is the decrease of the Gini
impurity. A leaf's value is S / W.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from riskad.detectors.tree_ensemble import Trees

_CONSTANT = np.float32(1e-7)  # columns that vary by no more are constant
_TINY = float(np.float32(1e-35))  # up to here, LightGBM treats numbers as zero
_CHUNK = 2**15  # pairs of row and tree that are processed together: their arrays stay in the cache


class Growth(NamedTuple):
    """Trees, with the gain of each split, and the depth and number of rows of each leaf."""

    trees: Trees
    gain: np.ndarray
    depth: np.ndarray
    n_samples: np.ndarray


def grow(
    X: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    samples: np.ndarray,
    *,
    max_features: int,
    min_weight_leaf: float = 0.0,
    max_depth: float = np.inf,
    seed: int,
) -> Growth:
    """Grow trees on rows X without gaps or infinities, compared in single precision.

    `samples`, (n_trees, n), has the rows of X that each tree is grown on.

    >>> X = np.arange(8.0)[:, None]
    >>> y = np.where(X[:, 0] < 3, -1.0, 1.0)
    >>> growth = grow(X, y, np.ones(8), np.tile(np.arange(8), (50, 1)), max_features=1, seed=0)
    >>> growth.trees.mean(X).tolist()
    [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    target, weight = np.asarray(target, dtype=float), np.asarray(weight, dtype=float)
    rng = np.random.default_rng(seed)
    row, size = samples.ravel().astype(np.intp), np.full(len(samples), samples.shape[1])
    levels: list[_Level] = []
    # A level of all trees at a time; it ends when no node splits.
    while len(size):
        start = np.append(0, np.cumsum(size))
        chunks, first = [], 0
        while first < len(size):  # nodes that are split together
            last = int(np.searchsorted(start, start[first] + _CHUNK, "right")) - 1
            last = max(last, first + 1)
            members = row[start[first] : start[last]]
            nodes = _Nodes(X, target[members], weight[members], members, size[first:last])
            splittable = nodes.splittable(min_weight_leaf) & (len(levels) < max_depth)
            chunks.append(nodes.split(splittable, max_features, min_weight_leaf, rng))
            first = last
        nodes_of_chunks, rows, sizes = zip(*chunks, strict=True)
        levels.append(_Level(*map(np.concatenate, zip(*nodes_of_chunks, strict=True))))
        row, size = np.concatenate(rows), np.concatenate(sizes)
    joined = _Level(*map(np.concatenate, zip(*levels, strict=True)))
    trees = Trees(
        n_trees=len(samples),
        n_features=X.shape[1],
        splits=joined.splits,
        feature=joined.feature.astype(np.int32),
        threshold=joined.threshold,
        missing_left=np.zeros(len(joined.feature), dtype=bool),
        value=joined.value,
    )
    depth = np.repeat(np.arange(len(levels)), [len(level.value) for level in levels])
    return Growth(trees, joined.gain, depth, joined.n_samples)


class _Level(NamedTuple):
    """Nodes of one level of all trees: which split, the splits, and the leaves."""

    splits: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    gain: np.ndarray
    value: np.ndarray
    n_samples: np.ndarray


class _Nodes:
    """Nodes that are split together: their rows, side by side, and the sums over these."""

    def __init__(
        self, X: np.ndarray, y: np.ndarray, w: np.ndarray, row: np.ndarray, size: np.ndarray
    ):
        self.X, self.y, self.w, self.row, self.size = X, y, w, row, size
        self.wy = w * y
        self.cell = row * X.shape[1]  # where each row begins in the ravelled X
        self.first = np.cumsum(size) - size
        self.W, self.S = (np.add.reduceat(each, self.first) for each in (w, self.wy))

    def take(self, nodes: np.ndarray) -> _Nodes:
        if len(nodes) == len(self.size):
            return self
        chosen = np.zeros(len(self.size), dtype=bool)
        chosen[nodes] = True
        pairs = np.flatnonzero(np.repeat(chosen, self.size))
        return _Nodes(self.X, self.y[pairs], self.w[pairs], self.row[pairs], self.size[nodes])

    def splittable(self, min_weight: float) -> np.ndarray:
        low, high = (each.reduceat(self.y, self.first) for each in (np.minimum, np.maximum))
        return (self.size >= 2) & (2 * min_weight <= self.W) & (low < high)

    def split(
        self, splittable: np.ndarray, max_features: int, min_weight: float, rng: np.random.Generator
    ) -> tuple[_Level, np.ndarray, np.ndarray]:
        """Split nodes; also returns the rows of their children, side by side, and their sizes."""
        split, feature = np.flatnonzero(splittable), np.empty(0, dtype=int)
        threshold, gain = np.empty(0, dtype=np.float32), np.empty(0)
        rows, sizes = np.empty(0, dtype=np.intp), np.empty(0, dtype=int)
        if len(split):
            feature, threshold, gain = self.take(split).best_splits(max_features, min_weight, rng)
            chosen = np.flatnonzero(feature >= 0)
            split, feature = split[chosen], feature[chosen]
            threshold, gain = threshold[chosen], gain[chosen]
        if len(split):
            rows, sizes = self.take(split).children(feature, threshold)
        splits = np.zeros(len(self.size), dtype=bool)
        splits[split] = True
        value, n_samples = (self.S / self.W)[~splits], self.size[~splits]
        return _Level(splits, feature, threshold, gain, value, n_samples), rows, sizes

    def best_splits(
        self, max_features: int, min_weight: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Column (-1 for none), threshold and gain of the best split of each node."""
        n_nodes, d = len(self.size), self.X.shape[1]
        feature, gain = np.full(n_nodes, -1), np.full(n_nodes, -np.inf)
        threshold = np.zeros(n_nodes, dtype=np.float32)
        order = np.tile(np.arange(d), (n_nodes, 1))
        n_tried, open_nodes, nodes = np.zeros(n_nodes, dtype=int), np.arange(n_nodes), self
        for j in range(d):
            # The j-th of a shuffled order of the columns, separate for each node.
            at = j + (rng.random(len(open_nodes)) * (d - j)).astype(int)
            column = order[open_nodes, at]
            order[open_nodes, at] = order[open_nodes, j]
            thresholds, its_gain, varies = nodes.try_columns(column, min_weight, rng)
            better = np.flatnonzero(its_gain > gain[open_nodes])
            at = open_nodes[better]
            feature[at], threshold[at] = column[better], thresholds[better]
            gain[at] = its_gain[better]
            # Constant columns do not count: a node must try `max_features` that can split it.
            n_tried[open_nodes] += varies
            unfinished = n_tried[open_nodes] < max_features
            if not unfinished.any():
                break
            if not unfinished.all():
                open_nodes, nodes = open_nodes[unfinished], nodes.take(np.flatnonzero(unfinished))
        return feature, threshold, gain

    def try_columns(
        self, column: np.ndarray, min_weight: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random thresholds of a column for each node, their gains, and whether columns vary."""
        place = np.repeat(column, self.size)
        place += self.cell
        x = self.X.ravel().take(place)
        low, high = (each.reduceat(x, self.first) for each in (np.minimum, np.maximum))
        with np.errstate(over="ignore", invalid="ignore"):  # of huge values
            threshold = low + rng.random(len(low), dtype=np.float32) * (high - low)
            varies = high > low + _CONSTANT
        # Rounding up to the largest value would leave the right side empty.
        threshold = np.where(threshold < high, threshold, low)
        left = x <= np.repeat(threshold, self.size)
        W_l, S_l = (np.add.reduceat(each * left, self.first) for each in (self.w, self.wy))
        W_r, S_r = self.W - W_l, self.S - S_l
        lighter = np.minimum(W_l, W_r)
        at = np.flatnonzero(varies & (lighter >= min_weight) & (lighter > 0))
        gain = np.full(len(low), -np.inf)
        gain[at] = S_l[at] ** 2 / W_l[at] + S_r[at] ** 2 / W_r[at] - self.S[at] ** 2 / self.W[at]
        return threshold, gain, varies

    def children(self, feature: np.ndarray, threshold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the children of each node, side by side, and how many each has."""
        x = self.X[self.row, np.repeat(feature, self.size)]
        right = x > np.repeat(threshold, self.size)
        n_right = np.add.reduceat(right, self.first, dtype=int)
        # A stable sort by node and side; NumPy sorts 16 bits in linear time, and a chunk has less
        # than 2^15 nodes that split.
        side = np.repeat(np.arange(0, 2 * len(self.size), 2, dtype=np.uint16), self.size) + right
        sizes = np.stack([self.size - n_right, n_right], axis=1).ravel()
        return self.row[np.argsort(side, kind="stable")], sizes


# --- trees that a library grew ------------------------------------------------------------


def from_forest(forest: Any, values: np.ndarray) -> Trees:
    """Return the trees of a fitted forest of scikit-learn, which compare in single precision.

    `values` has one number for each node, tree after tree, of which those of leaves are kept. Trees
    are read by their public attributes only.
    """
    trees = [estimator.tree_ for estimator in forest.estimators_]
    names = ("children_left", "children_right", "feature", "threshold", "missing_go_to_left")
    left, right, feature, threshold, missing_left = (
        np.concatenate([getattr(tree, name) for tree in trees]) for name in names
    )
    # scikit-learn numbers nodes depth first; here the levels lie side by side.
    order = _level_by_level(left, right, [tree.node_count for tree in trees])
    splits = left[order] != -1
    inner = order[splits]
    return Trees(
        n_trees=len(trees),
        n_features=trees[0].n_features,
        splits=splits,
        feature=feature[inner].astype(np.int32),
        threshold=_single_not_above(threshold[inner]),
        missing_left=missing_left[inner].astype(bool),
        value=np.asarray(values[order[~splits]], dtype=float),
    )


def from_hist_gradient_boosting(model: Any) -> Trees:
    """Return the trees of scikit-learn's HistGradientBoostingRegressor over numbers.

    scikit-learn has no public access to these trees: they are read from `_predictors`.
    """
    rounds = [predictors[0].nodes for predictors in model._predictors]
    nodes = np.concatenate(rounds)
    left, right = (
        np.where(nodes["is_leaf"], -1, nodes[side].astype(int)) for side in ("left", "right")
    )
    order = _level_by_level(left, right, [len(each) for each in rounds])
    # The constant from which boosting starts is part of the first tree.
    value = nodes["value"].copy()
    value[: len(rounds[0])] += model._baseline_prediction.item()
    splits = left[order] != -1
    inner, leaves = nodes[order[splits]], order[~splits]
    # The threshold is infinite where a split separates missing values from all others.
    most = np.finfo(float).max
    return Trees(
        n_trees=len(rounds),
        n_features=model.n_features_in_,
        splits=splits,
        feature=inner["feature_idx"].astype(np.int32),
        threshold=np.clip(inner["num_threshold"], -most, most),
        missing_left=inner["missing_go_to_left"].astype(bool),
        value=value[leaves],
    )


def _level_by_level(left: np.ndarray, right: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The nodes of all trees: roots, their children, and so on."""
    # Children have the numbers of their own tree, tree after tree; -1 for a leaf.
    level = np.cumsum(sizes) - sizes
    shift, order = np.repeat(level, sizes), [level]
    while len(parents := level[left[level] != -1]):
        level = (np.stack([left[parents], right[parents]], axis=1) + shift[parents, None]).ravel()
        order.append(level)
    return np.concatenate(order)


def _single_not_above(threshold: np.ndarray) -> np.ndarray:
    """The largest numbers of single precision that are not above these."""
    # x <= t is the same for both where x is of single precision and finite. scikit-learn writes
    # infinity for a split between missing values and all others.
    most = np.finfo(np.float32).max
    single = np.clip(threshold, -most, most).astype(np.float32)
    above = single > threshold
    single[above] = np.nextafter(single[above], np.float32(-np.inf))
    return single


def from_lightgbm(booster: Any) -> Trees:
    """Return the trees of a LightGBM Booster whose score is their sum, with their `cover`.

    Categories are whole numbers. A split by a set of them becomes a chain of splits by one each.
    Zeros must not count as missing (`zero_as_missing`).
    """
    dump = booster.dump_model()
    # Where no split lowers a loss there may be no tree: a leaf of value 0.
    roots = [tree["tree_structure"] for tree in dump["tree_info"]] or [{"leaf_value": 0.0}]
    level = [_one_category_each(root) for root in roots]
    nodes: list[dict[str, Any]] = []
    while level:
        nodes += level
        parents = (node for node in level if "split_feature" in node)
        level = [node[side] for node in parents for side in ("left_child", "right_child")]
    splits = np.array(["split_feature" in node for node in nodes], dtype=bool)
    inner = [node for node in nodes if "split_feature" in node]
    leaves = [node for node in nodes if "split_feature" not in node]
    categorical = np.array([node["decision_type"] == "==" for node in inner], dtype=bool)
    threshold = np.array([node["threshold"] for node in inner], dtype=float)
    # Without missing values in a column, LightGBM takes NaN for a zero.
    as_learned = np.array([node["missing_type"] == "NaN" for node in inner], dtype=bool)
    learned = np.array([node["default_left"] for node in inner], dtype=bool)
    missing_left = ~categorical & np.where(as_learned, learned, threshold >= 0)
    # LightGBM reads tiny numbers as zeros: all of them go where a zero goes.
    tiny = ~categorical & (np.abs(threshold) <= _TINY)
    around_zero = np.where(threshold >= 0, _TINY, np.nextafter(-_TINY, -np.inf))
    return Trees(
        n_trees=len(roots),
        n_features=dump["max_feature_idx"] + 1,
        splits=splits,
        feature=np.array([node["split_feature"] for node in inner], dtype=np.int32),
        threshold=np.where(tiny, around_zero, threshold),
        missing_left=missing_left,
        value=np.array([node["leaf_value"] for node in leaves], dtype=float),
        cover=np.array([node["leaf_count"] for node in leaves], dtype=float),
        categorical=categorical if categorical.any() else None,
    )


def _one_category_each(node: dict[str, Any], share: float = 1.0) -> dict[str, Any]:
    """The same tree, in which each categorical split separates one category.

    The left branch is copied for each category of a set. The copies have equal shares of its
    training rows, whatever these are: Shapley values depend on their sum alone.
    """
    if "split_feature" not in node:
        return {**node, "leaf_count": share * max(node.get("leaf_count", 1), 1)}
    chain = _one_category_each(node["right_child"], share)
    codes = str(node["threshold"]).split("||")
    for code in reversed(codes):
        left = _one_category_each(node["left_child"], share / len(codes))
        chain = {**node, "threshold": float(code), "left_child": left, "right_child": chain}
    return chain
