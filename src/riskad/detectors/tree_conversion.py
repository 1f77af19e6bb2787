"""Trees that scikit-learn or LightGBM grew, as our arrays (`riskad.detectors.tree_ensemble`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.detectors.tree_ensemble import Trees

_TINY = float(np.float32(1e-35))  # up to here, LightGBM treats numbers as zero


def from_sklearn(forest: Any, values: np.ndarray | None = None) -> Trees:
    """Return the trees of a fitted forest of scikit-learn, which compare in single precision.

    `values` has one number for each node, tree after tree, of which those of leaves are kept; by
    default, what a regressor predicts. Trees are read by their public attributes only.
    """
    trees = [estimator.tree_ for estimator in forest.estimators_]
    names = ("children_left", "children_right", "feature", "threshold", "missing_go_to_left")
    left, right, feature, threshold, missing_left = (
        np.concatenate([getattr(tree, name) for tree in trees]) for name in names
    )
    if values is None:
        values = np.concatenate([tree.value[:, 0, 0] for tree in trees])
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
    """Return the trees of scikit-learn's HistGradientBoostingRegressor, with their `cover`.

    Their sum is what the model predicts, before any link of its loss. scikit-learn has no public
    access to these trees: they are read from `_predictors`.
    """
    rounds = [predictors[0].nodes for predictors in model._predictors]
    nodes = np.concatenate(rounds)
    if model.n_trees_per_iteration_ != 1 or nodes["is_categorical"].any():
        raise InputError(
            "Only gradient boosting of numbers with one tree a round can be taken over. Encode "
            "categories as numbers first, and learn a single score."
        )
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
        cover=np.maximum(nodes["count"][leaves], 1).astype(float),
    )


def _level_by_level(left: np.ndarray, right: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The nodes of all trees: roots, their children, and so on.

    Children are given in the numbers of their own tree, tree after tree; -1 for a leaf.
    """
    level = np.cumsum(sizes) - sizes
    shift, order = np.repeat(level, sizes), [level]
    while len(parents := level[left[level] != -1]):
        level = (np.stack([left[parents], right[parents]], axis=1) + shift[parents, None]).ravel()
        order.append(level)
    return np.concatenate(order)


def _single_not_above(threshold: np.ndarray) -> np.ndarray:
    """The largest numbers of single precision that are not above these.

    x <= t is the same for both where x is of single precision and finite; scikit-learn writes
    infinity for a split between missing values and all others.
    """
    most = np.finfo(np.float32).max
    single = np.clip(threshold, -most, most).astype(np.float32)
    above = single > threshold
    single[above] = np.nextafter(single[above], np.float32(-np.inf))
    return single


def from_lightgbm(booster: Any) -> Trees:
    """Return the trees of a LightGBM Booster whose score is their sum, with their `cover`.

    Categories are whole numbers. A split by a set of them becomes a chain of splits by one each.
    """
    dump = booster.dump_model()
    if dump["num_tree_per_iteration"] != 1 or dump["average_output"]:
        raise InputError("Only trees that are added up to one score can be taken over.")
    # Where no split lowers a loss there may be no tree: a leaf of value 0.
    roots = [tree["tree_structure"] for tree in dump["tree_info"]] or [{"leaf_value": 0.0}]
    nodes = list(_nodes_level_by_level([_one_category_each(root) for root in roots]))
    splits = np.array(["split_feature" in node for node in nodes], dtype=bool)
    inner = [node for node in nodes if "split_feature" in node]
    leaves = [node for node in nodes if "split_feature" not in node]
    categorical = np.array([node["decision_type"] == "==" for node in inner], dtype=bool)
    if any(node["missing_type"] == "Zero" for node in inner):
        raise InputError("Trees that take zeros for missing (zero_as_missing) are not supported.")
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


def _nodes_level_by_level(level: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    while level:
        yield from level
        parents = (node for node in level if "split_feature" in node)
        level = [node[side] for node in parents for side in ("left_child", "right_child")]
