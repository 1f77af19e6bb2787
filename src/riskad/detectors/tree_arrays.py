"""Ensembles of trees as plain arrays, whichever library grew them.

Detectors store their trees as `Trees`: they score with them, write them to model files and export
them, without the library that grew them.

Nodes are numbered level by level through all trees: first the roots, tree after tree, then their
children, pair after pair. So the children of the k-th node that splits are the nodes T + 2k (left)
and T + 2k + 1 (right) for T trees, and which nodes split determines the shape of the trees.
No list of children is stored, and none can be forged: every node but a root has exactly one parent,
in front of it, so that no walk can loop or leave the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from riskad.core.checks import InputError
from riskad.detectors.tree_walk import MISSING_LEFT, TINY, ZERO_IS_MISSING, TreeWalk
from riskad.storage.fields import COUNT, SIZE, Array, Fields, Maybe, State, require

__all__ = ["Trees", "from_lightgbm", "from_sklearn"]

_MOST_CODES = 2**31 - 1
_MOST_ROWS = 2.0**53  # beyond, doubles do not count


def _no_numbers() -> np.ndarray:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose leaves hold a value each.

    A row at a split goes left if its value x in the column `feature` is not above `threshold`, or,
    at a split by categories, if trunc(x) is one of the split's categories. A missing value, NaN,
    goes where `missing` says; at a split by categories it goes right.

    Attributes
    ----------
    n_trees, n_features : int
        Number of trees, and of columns of the rows.
    splits : bool array, one for each node
        Whether a node splits; else it is a leaf.
    feature, threshold, missing : arrays, one for each split
        Column; threshold, of the precision in which rows are compared; the bits of `missing` are
        1 if missing values go left, and 2 if zeros count as missing.
    value : array, one for each leaf
        Value that a leaf adds to the sum over the trees.
    cover : array, one for each leaf, or None
        Training rows in each leaf, if Shapley values are needed.
    category_splits, category_ends, category_codes : arrays
        The splits by categories; the categories of split `category_splits[k]` are
        `category_codes[category_ends[k - 1] : category_ends[k]]`, in rising order.
    """

    n_trees: int
    n_features: int
    splits: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing: np.ndarray
    value: np.ndarray
    cover: np.ndarray | None = None
    category_splits: np.ndarray = field(default_factory=_no_numbers)
    category_ends: np.ndarray = field(default_factory=_no_numbers)
    category_codes: np.ndarray = field(default_factory=_no_numbers)

    _state_fields: ClassVar[Fields] = {
        "n_trees": COUNT,
        "n_features": SIZE,
        "splits": Array("b", ("nodes",)),
        "feature": Array("i", ("splits",), low=0),
        "threshold": Array("f", ("splits",)),
        "missing": Array("u", ("splits",), high=MISSING_LEFT | ZERO_IS_MISSING),
        "value": Array("f", ("leaves",)),
        "cover": Maybe(Array("f", ("leaves",), low=1, high=_MOST_ROWS)),
        "category_splits": Array("i", ("sets",), low=0, rising=True),
        "category_ends": Array("i", ("sets",), low=1, rising=True),
        "category_codes": Array("i", ("codes",), low=0, high=_MOST_CODES),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse arrays that are not trees."""
        splits, T = state["splits"], state["n_trees"]
        n_splits = np.count_nonzero(splits)  # before they are listed, in eight times the bytes
        require(len(state["feature"]) == n_splits, "feature: not one for each split")
        parents = np.flatnonzero(splits)
        require(len(splits) == T + 2 * len(parents), "splits: not two children for each")
        behind = T + 2 * np.arange(len(parents)) > parents
        require(bool(behind.all()), "splits: a child before its parent")
        require(len(state["value"]) == len(splits) - len(parents), "value: not one for each leaf")
        require(bool((state["feature"] < state["n_features"]).all()), "feature: no such column")
        single_or_double = state["threshold"].dtype in (np.float32, np.float64)
        require(single_or_double, "threshold: neither of single nor of double precision")
        cls._check_categories(state)

    @staticmethod
    def _check_categories(state: State) -> None:
        places, ends = state["category_splits"], state["category_ends"]
        codes = state["category_codes"]
        require(bool((np.diff(places) > 0).all()), "category_splits: one twice")
        inside = not len(places) or places[-1] < len(state["feature"])
        require(bool(inside), "category_splits: no such split")
        require(bool((np.diff(ends) > 0).all()), "category_ends: a set without categories")
        require((int(ends[-1]) if len(ends) else 0) == len(codes), "category_ends: other sizes")
        rising = np.diff(codes) > 0
        rising[ends[:-1] - 1] = True  # from one set to the next
        require(bool(rising.all()), "category_codes: not in rising order")

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: copies and pickles lay the trees out anew."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def walk(self) -> TreeWalk:
        """The trees in the layout for walking."""
        return TreeWalk(self)

    @cached_property
    def left(self) -> np.ndarray:
        """The left child of each node that splits; the right one is the next node."""
        return self.n_trees + 2 * np.arange(len(self.feature))

    def sum(self, X: Any) -> np.ndarray:
        """Add the values of a row's leaves.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Rows, which may hold NaN but no infinities.

        Returns
        -------
        array of shape (n_rows,)
            The sums, added tree by tree.
        """
        return self.walk.sum(X)

    def mean(self, X: Any) -> np.ndarray:
        """`sum` divided by the number of trees."""
        return self.sum(X) / self.n_trees

    def leaves(self, X: Any) -> np.ndarray:
        """Return the position of each row's leaf in each tree: (n_rows, n_trees)."""
        return self.walk.leaves(X)


# --- from scikit-learn --------------------------------------------------------------------------


def from_sklearn(trees: Sequence[Any], values: np.ndarray, n_features: int) -> Trees:
    """Return trees that scikit-learn grew, the `tree_` of its estimators.

    Parameters
    ----------
    trees : sequence of `sklearn.tree` trees
        Read by their public attributes only.
    values : array
        One number for each node, tree after tree; those of leaves are kept.
    n_features : int
        Columns of the rows.

    Returns
    -------
    Trees
        Trees that compare rows in single precision, as scikit-learn does.
    """
    before = np.cumsum([0, *(tree.node_count for tree in trees)])
    names = ("children_left", "children_right", "feature", "threshold", "missing_go_to_left")
    left, right, feature, threshold, missing_left = (
        np.concatenate([getattr(tree, name) for tree in trees]) for name in names
    )
    shift = np.repeat(before[:-1], np.diff(before))
    order = _level_by_level(before[:-1], left, left + shift, right + shift)
    splits = left[order] != -1
    inner = order[splits]
    return Trees(
        n_trees=len(trees),
        n_features=n_features,
        splits=splits,
        feature=feature[inner].astype(np.int32),
        threshold=_single_not_above(threshold[inner]),
        missing=missing_left[inner].astype(np.uint8) * np.uint8(MISSING_LEFT),
        value=np.asarray(values[order[~splits]], dtype=float),
    )


def _level_by_level(
    roots: np.ndarray, child: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """The nodes of all trees: roots, their children, and so on."""
    level, found = roots, [roots]
    while len(parents := level[child[level] != -1]):
        level = np.stack([left[parents], right[parents]], axis=1).ravel()
        found.append(level)
    return np.concatenate(found)


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


# --- from LightGBM ------------------------------------------------------------------------------


def from_lightgbm(dump: dict[str, Any], n_features: int) -> Trees:
    """Return the trees of a LightGBM model, from its `Booster.dump_model()`.

    Parameters
    ----------
    dump : dict
        Result of `dump_model()`. The sum of its trees is the score.
    n_features : int
        Columns of the rows.

    Returns
    -------
    Trees
        Trees that compare rows in double precision, with the training rows of each leaf.
    """
    if dump["num_tree_per_iteration"] != 1 or dump["average_output"]:
        raise InputError("Only trees that are added up to one score can be taken over.")
    roots = [tree["tree_structure"] for tree in dump["tree_info"]]
    nodes = list(_dumped_level_by_level(roots))
    inner = [node for node in nodes if "split_feature" in node]
    leaves = [node for node in nodes if "split_feature" not in node]
    codes = [_codes(node) for node in inner if _by_category(node)]
    threshold = [0.0 if _by_category(node) else float(node["threshold"]) for node in inner]
    return Trees(
        n_trees=len(roots),
        n_features=n_features,
        splits=np.array(["split_feature" in node for node in nodes], dtype=bool),
        feature=np.array([node["split_feature"] for node in inner], dtype=np.int32),
        threshold=_around_zero(np.array(threshold, dtype=float)),
        missing=np.array([_missing(node) for node in inner], dtype=np.uint8),
        value=np.array([node["leaf_value"] for node in leaves], dtype=float),
        cover=np.array([max(node.get("leaf_count", 1), 1) for node in leaves], dtype=float),
        category_splits=np.flatnonzero([_by_category(node) for node in inner]).astype(np.int32),
        category_ends=np.cumsum([len(each) for each in codes], dtype=np.int32),
        category_codes=np.array([code for each in codes for code in each], dtype=np.int32),
    )


def _dumped_level_by_level(level: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    while level:
        yield from level
        parents = (node for node in level if "split_feature" in node)
        level = [node[side] for node in parents for side in ("left_child", "right_child")]


def _by_category(node: dict[str, Any]) -> bool:
    return bool(node["decision_type"] == "==")


def _codes(node: dict[str, Any]) -> list[int]:
    return sorted(map(int, node["threshold"].split("||")))


def _around_zero(threshold: np.ndarray) -> np.ndarray:
    """Thresholds that treat tiny numbers as LightGBM does, for which they are zero."""
    tiny = np.abs(threshold) <= TINY
    below = np.nextafter(-TINY, -np.inf)
    return np.where(tiny, np.where(threshold >= 0, TINY, below), threshold)


def _missing(node: dict[str, Any]) -> int:
    """What LightGBM does with NaN: as learned, also for zeros, or as with a zero."""
    if _by_category(node):
        return 0
    if node["missing_type"] == "None":
        return MISSING_LEFT * (float(node["threshold"]) >= 0)
    zero = ZERO_IS_MISSING * (node["missing_type"] == "Zero")
    return zero | MISSING_LEFT * bool(node["default_left"])
