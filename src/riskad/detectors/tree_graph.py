"""Trees as nodes of an ONNX graph: the operator TreeEnsemble."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.detectors.tree_arrays import Trees
from riskad.detectors.tree_walk import MISSING_LEFT, ZERO_IS_MISSING

__all__ = ["sum_of_trees"]

_NOT_ABOVE, _MEMBER = 0, 6  # how a node of the operator compares
_SUM, _NO_TRANSFORM = 1, 0


def sum_of_trees(g: Any, X: str, trees: Trees, weight: float = 1.0) -> str:
    """Add the operator to a graph.

    Parameters
    ----------
    g : riskad.app.onnx.Graph
        The graph to which nodes are added.
    X : str
        The rows, of shape (n_rows, n_features), in doubles.
    trees : Trees
        The trees.
    weight : float, default=1.0
        Factor of the values of leaves.

    Returns
    -------
    str
        The name of the sums of the trees, of shape (n_rows,).
    """
    if (trees.missing & ZERO_IS_MISSING).any():
        raise InputError("Trees that take zeros for missing (zero_as_missing) cannot be exported.")
    if not trees.n_trees:
        trees = _no_tree(trees)
    if trees.threshold.dtype == np.float32:
        X = g.cast(g.cast(X, np.float32), np.float64)
    scores = g.ml("TreeEnsemble", X, **_settings(g, trees, weight))
    return str(g.node("Reshape", scores, np.array([-1])))


def _no_tree(trees: Trees) -> Trees:
    """A tree with a single leaf of value 0, since the operator needs at least one tree."""
    none = np.empty(0)
    return Trees(
        n_trees=1,
        n_features=trees.n_features,
        splits=np.array([False]),
        feature=none.astype(np.int32),
        threshold=none,
        missing=none.astype(np.uint8),
        value=np.zeros(1),
    )


def _settings(g: Any, trees: Trees, weight: float) -> dict[str, Any]:
    """The attributes of the operator, which numbers inner nodes and leaves apart.

    A root that is a leaf becomes both branches of a split.
    """
    lone = np.flatnonzero(~trees.splits[: trees.n_trees])
    number = np.where(trees.splits, np.cumsum(trees.splits), np.cumsum(~trees.splits)) - 1
    left = np.concatenate([trees.left, lone])
    right = np.concatenate([trees.left + 1, lone])
    roots = number[: trees.n_trees].copy()
    roots[lone] = len(trees.feature) + np.arange(len(lone))
    extra = np.zeros(len(lone))
    modes = np.full(len(left), _NOT_ABOVE, dtype=np.uint8)
    modes[trees.category_splits] = _MEMBER
    settings = {
        "n_targets": 1,
        "aggregate_function": _SUM,
        "post_transform": _NO_TRANSFORM,
        "tree_roots": roots.tolist(),
        "nodes_featureids": [*trees.feature.tolist(), *[0] * len(lone)],
        "nodes_splits": g.tensor(np.concatenate([trees.threshold, extra]).astype(float), "splits"),
        "nodes_modes": g.tensor(modes, "modes"),
        "nodes_missing_value_tracks_true": [
            *(trees.missing & MISSING_LEFT).tolist(),
            *[0] * len(lone),
        ],
        "nodes_truenodeids": number[left].tolist(),
        "nodes_trueleafs": (~trees.splits[left]).astype(int).tolist(),
        "nodes_falsenodeids": number[right].tolist(),
        "nodes_falseleafs": (~trees.splits[right]).astype(int).tolist(),
        "leaf_targetids": [0] * len(trees.value),
        "leaf_weights": g.tensor(trees.value * weight, "leaves"),
    }
    if len(trees.category_splits):
        settings["membership_values"] = g.tensor(_members(trees), "members")
    return settings


def _members(trees: Trees) -> np.ndarray:
    """The categories of each split by categories, each list with NaN at its end."""
    return np.insert(trees.category_codes.astype(float), trees.category_ends, np.nan)
