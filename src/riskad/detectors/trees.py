"""What detectors made of trees share: rows with gaps, and trees on disk.

A tree is walked by compiled code that follows whatever numbers it holds, so that a crafted file
could make it read beyond its end. Trees that come from a file are therefore checked: that every
child lies behind its parent and exists, and every split is of a column that exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.rows.columns import Levels, as_table, input_errors, is_frame, learn_levels, to_matrix
from riskad.storage.fields import COUNT, TEXT, Array, DictOf, Fields, ListOf, State, require

__all__ = [
    "FrameDetector",
    "KeepsTrees",
    "TreeDetector",
    "check_booster_text",
    "pack_trees",
    "unpack_trees",
    "with_values",
]


class KeepsTrees:
    """An estimator that keeps trees, on disk as plain arrays."""

    trees_: list[Any]
    n_features_in_: int

    _state_fields: ClassVar[Fields] = {
        "trees_": DictOf(TEXT, Array("fiu", None, gaps=True, infinite=True)),
    }

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[call-overload]
        if "trees_" in state:
            state["trees_"] = pack_trees(self.trees_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if "trees_" in state:
            self.trees_ = unpack_trees(state["trees_"], self.n_features_in_)


class TreeDetector(Detector):
    """A detector that takes NaN for a value that is missing, and refuses infinities."""

    random_state: int | None

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix, which may hold NaN."""
        X = super()._check_rows(X, reset)
        self._refuse_infinities(X)
        return X

    def _refuse_infinities(self, X: Any) -> None:
        if np.isinf(X.data if sparse.issparse(X) else X).any():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None), missing=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class FrameDetector(TreeDetector):
    """One that also takes frames with text columns, as codes of the texts seen in fit."""

    categories_: Levels

    _state_fields: ClassVar[Fields] = {"categories_": DictOf(COUNT, ListOf(TEXT))}

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        places = state["categories_"]
        require(all(place < state["n_features_in_"] for place in places), "categories_: no column")

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix; text columns of a frame as codes."""
        X = as_table(X)
        levels = self._learn_categories(X) if reset else self.categories_
        if not levels:
            X = super()._check_rows(X, reset)
        elif is_frame(X):
            with input_errors(type(self).__name__):
                validate_data(self, X, reset=reset, skip_check_array=True)
                least, matrix = 2 if reset else 1, to_matrix(X, levels)
                X = check_array(matrix, ensure_all_finite=False, ensure_min_samples=least)
            self._refuse_infinities(X)
        else:
            names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
            raise InputError(
                "The model was fitted on a frame with text in "
                f"{enumerate_names(names[list(levels)].tolist())}, got {type(X).__name__}. Give a "
                "pandas or polars frame with the same columns."
            )
        if reset:
            self.categories_ = levels
        return X

    @staticmethod
    def _learn_categories(X: Any) -> Levels:
        return learn_levels(X) if is_frame(X) else {}


# --- trees of LightGBM --------------------------------------------------------------------------

_HEAD = {
    "version": "v4",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "0",
}
_PER_NODE = (
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "internal_value",
    "internal_weight",
    "internal_count",
)
_PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_OTHERS = ("num_leaves", "num_cat", "cat_boundaries", "cat_threshold", "is_linear", "shrinkage")


def check_booster_text(text: str, n_features: int) -> None:
    """Refuse a model of LightGBM, as text, that it could not have written."""
    head, *trees = text.removesuffix("\n\nend of trees\n").split("\n\n")
    try:
        _check_head(head, n_features)
        for number, tree in enumerate(trees):
            _check_text_tree(tree, number, n_features)
    except (AssertionError, KeyError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"The trees of this model are damaged: {error!r}.") from None


def _check_head(head: str, n_features: int) -> None:
    first, *lines = head.split("\n")
    fields = _fields(lines, {*_HEAD, "max_feature_idx", "feature_names", "feature_infos"})
    _require(first == "tree", "not a model")
    _require(fields == fields | _HEAD, "an unknown kind of model")
    _require(fields["max_feature_idx"] == str(n_features - 1), "other columns")
    for name in ("feature_names", "feature_infos"):
        _require(len(fields[name].split(" ")) == n_features, name)


def _check_text_tree(tree: str, number: int, n_features: int) -> None:
    first, *lines = tree.strip("\n").split("\n")
    fields = _fields(lines, {*_PER_NODE, *_PER_LEAF, *_OTHERS})
    _require(first == f"Tree={number}", "a tree is missing")
    _require(fields["is_linear"] == "0", "leaves are not numbers")
    n_leaves, n_cat = int(fields["num_leaves"]), int(fields["num_cat"])
    values = {name: np.array(fields[name].split(), dtype=float) for name in fields}
    for names, length in ((_PER_NODE, n_leaves - 1), (_PER_LEAF, n_leaves)):
        for name in names:
            _require(len(values.get(name, ())) == length or n_leaves == 1, name)
    _require(n_leaves >= 1 and len(values["leaf_value"]) == n_leaves, "leaf_value")
    _require(bool(np.isfinite(values["leaf_value"]).all()), "leaf_value")
    _require(not any(np.isnan(each).any() for each in values.values()), "a value is missing")
    if n_leaves > 1:
        _check_nodes(values, n_leaves, n_features)
        _check_categories(values, n_cat)


def _check_nodes(values: dict[str, np.ndarray], n_leaves: int, n_features: int) -> None:
    feature, kind = values["split_feature"], values["decision_type"]
    _require(bool(((feature >= 0) & (feature < n_features)).all()), "split_feature")
    _require(bool(((kind >= 0) & (kind < 16)).all()), "decision_type")
    place = np.arange(n_leaves - 1)
    for name in ("left_child", "right_child"):
        child = values[name]
        inner = (child > place) & (child < n_leaves - 1)
        leaf = (child < 0) & (child >= -n_leaves)
        _require(bool((inner | leaf).all()), name)


def _check_categories(values: dict[str, np.ndarray], n_cat: int) -> None:
    categorical = values["decision_type"].astype(int) % 2 == 1
    which = values["threshold"][categorical]
    _require(bool(((which >= 0) & (which < n_cat)).all()), "threshold")
    if n_cat:
        ends = values["cat_boundaries"]
        _require(len(ends) == n_cat + 1 and ends[0] == 0, "cat_boundaries")
        _require(bool((np.diff(ends) > 0).all()), "cat_boundaries")
        bits = values["cat_threshold"]
        _require(ends[-1] == len(bits), "cat_threshold")
        _require(bool(((bits >= 0) & (bits < 2**32) & (bits % 1 == 0)).all()), "cat_threshold")


def _fields(lines: list[str], known: set[str]) -> dict[str, str]:
    fields = dict(line.split("=", 1) for line in lines)
    _require(len(fields) == len(lines) and set(fields) <= known, "unknown entries")
    return fields


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


# --- trees of scikit-learn ----------------------------------------------------------------------


def pack_trees(trees: Sequence[Any]) -> dict[str, np.ndarray]:
    """Scikit-learn's trees as plain arrays, the nodes of one tree after those of the other."""
    states = [tree.__getstate__() for tree in trees]
    nodes = np.concatenate([state["nodes"] for state in states])
    columns = {name: np.ascontiguousarray(nodes[name]) for name in nodes.dtype.names or ()}
    return columns | {
        "values": np.concatenate([state["values"] for state in states]),
        "sizes": np.array([state["node_count"] for state in states]),
        "depths": np.array([state["max_depth"] for state in states]),
    }


def unpack_trees(packed: dict[str, np.ndarray], n_features: int) -> list[Any]:
    """The trees of `pack_trees`, after a check that they can be walked."""
    from sklearn.tree._tree import NODE_DTYPE

    try:
        values, sizes, depths = (packed[name] for name in ("values", "sizes", "depths"))
        n_nodes = int(sizes.sum())
        nodes = np.zeros(n_nodes, dtype=NODE_DTYPE)
        for name in nodes.dtype.names or ():
            _require(np.shape(packed[name]) == (n_nodes,), name)
            nodes[name] = packed[name]
        _require(values.shape == (n_nodes, 1, 2) and bool(np.isfinite(values).all()), "values")
        _require(not np.isnan(packed["threshold"]).any(), "threshold")
        _require(bool((sizes >= 1).all()) and len(sizes) == len(depths), "sizes")
        ends = np.cumsum(sizes)[:-1]
        parts = zip(np.split(nodes, ends), np.split(values, ends), depths, strict=True)
        return [_unpack_tree(*part, n_features) for part in parts]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"The trees of this model are damaged, or of another version of scikit-learn: {error}."
        ) from None


def _unpack_tree(nodes: np.ndarray, values: np.ndarray, depth: int, n_features: int) -> Any:
    from sklearn.tree._tree import Tree

    inner = nodes["left_child"] != -1
    feature, place = nodes["feature"][inner], np.flatnonzero(inner)
    _require(bool(((feature >= 0) & (feature < n_features)).all()), "feature")
    for name in ("left_child", "right_child"):
        child = nodes[name][inner]
        _require(bool(((child > place) & (child < len(nodes))).all()), name)
    tree = Tree(n_features, np.array([2], dtype=np.intp), 1)
    state = {"max_depth": int(depth), "node_count": len(nodes)}
    tree.__setstate__(state | {"nodes": nodes, "values": np.ascontiguousarray(values, dtype=float)})
    return tree


def with_values(trees: Sequence[Any], values: np.ndarray, n_features: int) -> list[Any]:
    """The trees with other values of their nodes: one for each, tree after tree."""
    packed = pack_trees(trees)
    packed["values"] = np.stack([values, np.zeros(len(values))], axis=1)[:, None, :]
    return unpack_trees(packed, n_features)
