r"""Ensembles of trees as plain arrays, whichever library grew them.

Detectors store their trees as `Trees`: they score with them, explain scores, write them to model
files and export them, without the library that grew them.

Nodes are numbered level by level through all trees: first the roots, tree after tree, then their
children, pair after pair. So the children of the k-th node that splits are the nodes T + 2k (left)
and T + 2k + 1 (right) for T trees, and which nodes split determines the shape of the trees.
No list of children is stored, and none can be forged: every node but a root has exactly one parent,
in front of it, so that no walk can loop or leave the arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import sparse

from riskad.files.fields import SIZE, Array, Maybe, State, require

# Training rows of a leaf: copies of a leaf share them, and beyond doubles do not count.
_MIN_COVER, _MAX_COVER = 1e-9, 2.0**53
# Sizes of what is processed together. More and smaller steps take longer; larger arrays leave the
# cache.
_BLOCK_ROWS = 512
_BLOCK_CELLS = 2**22  # of the columns of a block of rows
_PAIRS = 2**17  # of row and tree
_TOP = 3  # levels that are compared, not walked
_FEW_ROWS = 16  # for fewer, a step of Python takes longer than the arithmetic
_MAX_TURNS = 5_000_000  # on all paths together; more need too much memory and time
_TURN_CELLS = 2**20  # of turn and row
# ONNX: how a node compares, and what becomes of the leaves.
_ONNX_NOT_ABOVE, _ONNX_EQUAL = 0, 4
_ONNX_SUM, _ONNX_NO_TRANSFORM = 1, 0


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose leaves hold a value each.

    A row at a split goes left if its value in the column `feature` is not above `threshold`, or,
    at a categorical split, if it equals `threshold`. A missing value, NaN, goes where
    `missing_left` says; at a categorical split it goes right.

    `splits` says of each node whether it splits; else it is a leaf, whose `value` is added to the
    sum over the trees. `threshold` has the precision in which rows are compared. `cover`, the
    number of training rows in each leaf, is needed by `contributions`. `categorical` says of each
    split whether it separates one category, whose code is the threshold, from all others.
    """

    n_trees: Annotated[int, SIZE]
    n_features: Annotated[int, SIZE]
    splits: Annotated[np.ndarray, Array("b", ("n_trees+splits+splits",))]
    feature: Annotated[np.ndarray, Array("i", ("splits",), low=0, below="n_features")]
    threshold: Annotated[np.ndarray, Array("f", ("splits",), itemsizes=(4, 8))]
    missing_left: Annotated[np.ndarray, Array("b", ("splits",))]
    value: Annotated[np.ndarray, Array("f", ("n_trees+splits",))]
    cover: Annotated[
        np.ndarray | None, Maybe(Array("f", ("n_trees+splits",), low=_MIN_COVER, high=_MAX_COVER))
    ] = None
    categorical: Annotated[np.ndarray | None, Maybe(Array("b", ("splits",)))] = None

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse arrays that are not trees."""
        splits, T = state["splits"], state["n_trees"]
        n_splits = np.count_nonzero(splits)  # before they are listed, in eight times the bytes
        require(len(state["feature"]) == n_splits, "feature: not one for each split")
        parents = np.flatnonzero(splits)
        behind = T + 2 * np.arange(len(parents)) > parents
        require(bool(behind.all()), "splits: a child before its parent")

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: copies and pickles lay the trees out anew."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _walk(self) -> _Walk:
        return _Walk(self)

    def predict(self, X: Any) -> np.ndarray:
        """Return the sums of the values of each row's leaves, added tree by tree.

        Rows are an array or a CSR matrix, and may hold NaN but no infinities.
        """
        total = np.zeros(X.shape[0])
        for rows, _, nodes in self._walk.leaf_nodes(X):
            terms = self._walk.value.take(nodes)
            # Added in their order, so that sums are rounded alike for any number of rows.
            if len(terms[0]) <= _FEW_ROWS:
                total[rows] = np.add.accumulate(np.vstack([total[rows], terms]))[-1]
            else:
                for term in terms:
                    total[rows] += term
        return total

    def mean(self, X: Any) -> np.ndarray:
        return self.predict(X) / self.n_trees

    def contributions(self, X: Any) -> tuple[np.ndarray, float] | None:
        r"""Return Shapley values phi, (n_rows, n_features), and the mean b over the training rows.

        They add up to the prediction: b + sum_j phi_ij = `predict(X)`_i. Instead of both, None for
        trees without `cover`, or so deep that their paths do not fit into memory.

        If a column is not known, a row takes both branches of its splits, in the shares of the
        training rows (Lundberg et al., 2020). With S known, its share in a leaf of value v is

            prod_{j in S} o_j  prod_{j not in S} z_j

        where over the columns j on the path to the leaf, o_j is 1 if the row takes all turns of
        the path at splits of column j, else 0, and z_j is the share of training rows that take
        them. The Shapley value of column j in this game has the weights of a Beta integral, and
        hence

            phi_j = v (o_j - z_j) int_0^1 prod_{k != j} (t o_k + (1 - t) z_k) dt,

        the integral of a polynomial, which Gauss-Legendre nodes t give exactly. The values of a row
        are the sums over all leaves.
        """
        if self.cover is None:
            return None
        share, depth = _shares_and_depths(self)
        phi = np.zeros((X.shape[0], self.n_features))
        base = float(self.value[depth == 0].sum())
        if not len(self.feature):
            return phi, base
        if depth.sum() > _MAX_TURNS:
            return None
        paths = _Paths.of(self, share)
        base += float(paths.value @ np.multiply.reduceat(paths.z, paths.first_pair))
        of_column = sparse.csr_matrix(
            (np.ones(len(paths.z)), (paths.column, np.arange(len(paths.z)))),
            shape=(self.n_features, len(paths.z)),
        )
        step = max(1, _TURN_CELLS // len(paths.split))
        for rows, Z, column in self._walk.blocks(X):
            for start in range(0, len(Z), step):
                part = slice(rows.start + start, min(rows.start + start + step, rows.stop))
                # o: whether rows take all turns of a path at the splits of a column.
                right = self._walk.turns(Z[start : start + step], column)
                turns = right[paths.split] == paths.to_right[:, None]
                o = np.logical_and.reduceat(turns, paths.first_turn, axis=0)
                phi[part] = (of_column @ paths.shapley_terms(o)).T
        return phi, base

    def onnx(self, graph: Any, rows: str, weight: float = 1.0) -> str:
        """Add the operator TreeEnsemble to a `riskad.app.onnx.Graph`.

        `rows` names the rows, in doubles; returned is the name of `predict` times the weight.
        """
        if self.threshold.dtype == np.float32:
            rows = graph.cast(graph.cast(rows, np.float32), np.float64)
        # The operator numbers splits and leaves apart, and trees begin with a split: a root that is
        # a leaf becomes both its branches.
        splits = self.splits
        lone = np.flatnonzero(~splits[: self.n_trees])
        number = np.where(splits, np.cumsum(splits), np.cumsum(~splits)) - 1
        roots = number[: self.n_trees].copy()
        roots[lone] = len(self.feature) + np.arange(len(lone))
        left = np.concatenate([self.left, lone])
        right = np.concatenate([self.left + 1, lone])
        none = np.zeros(len(lone), dtype=int)
        modes = np.full(len(left), _ONNX_NOT_ABOVE, dtype=np.uint8)
        if self.categorical is not None:
            modes[: len(self.feature)][self.categorical] = _ONNX_EQUAL
        scores = graph.ml(
            "TreeEnsemble",
            rows,
            n_targets=1,
            aggregate_function=_ONNX_SUM,
            post_transform=_ONNX_NO_TRANSFORM,
            tree_roots=roots.tolist(),
            nodes_featureids=np.concatenate([self.feature, none]).tolist(),
            nodes_splits=graph.tensor(
                np.concatenate([self.threshold.astype(float), none]), "splits"
            ),
            nodes_modes=graph.tensor(modes, "modes"),
            nodes_missing_value_tracks_true=np.concatenate([self.missing_left, none]).tolist(),
            nodes_truenodeids=number[left].tolist(),
            nodes_trueleafs=(~splits[left]).astype(int).tolist(),
            nodes_falsenodeids=number[right].tolist(),
            nodes_falseleafs=(~splits[right]).astype(int).tolist(),
            leaf_targetids=[0] * len(self.value),
            leaf_weights=graph.tensor(self.value * weight, "leaves"),
        )
        return graph.node("Reshape", scores, np.array([-1]))

    @property
    def left(self) -> np.ndarray:
        """The left child of each split; the right one is the next node."""
        return self.n_trees + 2 * np.arange(len(self.feature))


# --- the walk from roots to leaves ----------------------------------------------------------


class _Walk:
    """Trees in the layout for walking many rows through many trees at once, a step together.

    A leaf is its own child, with a threshold that nothing exceeds, so pairs of row and tree that
    have arrived stay there until they are dropped.
    """

    def __init__(self, trees: Trees):
        n_nodes = len(trees.splits)
        self.trees = trees
        self.inner = np.flatnonzero(trees.splits)
        self.next = np.arange(n_nodes)
        self.next[self.inner] = trees.left
        self.threshold = np.full(n_nodes, np.inf, dtype=trees.threshold.dtype)
        self.threshold[self.inner] = trees.threshold
        self.value = np.zeros(n_nodes)
        self.value[~trees.splits] = trees.value
        self.features, place = np.unique(trees.feature, return_inverse=True)
        self.column = np.zeros(n_nodes, dtype=int)
        self.column[self.inner] = place
        self.column_with_gaps = self.column.copy()
        self.column_with_gaps[self.inner[trees.missing_left]] += len(self.features)
        self.categorical = None
        if trees.categorical is not None:
            self.categorical = np.zeros(n_nodes, dtype=bool)
            self.categorical[self.inner[trees.categorical]] = True
        # The nodes of the first levels of each tree, (nodes, trees).
        level = [np.arange(trees.n_trees)]
        top = [*level]
        for _ in range(_TOP):
            level = [self.next[n] + side * trees.splits[n] for n in level for side in (0, 1)]
            top += level
        self.top = np.array(top)

    def leaf_nodes(self, X: Any) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Rows, trees, and the nodes (trees, rows) at which they end; trees in their order."""
        for rows, Z, column in self.blocks(X):
            n_at_once = max(1, _PAIRS // len(Z))
            for start in range(0, self.trees.n_trees, n_at_once):
                stop = min(start + n_at_once, self.trees.n_trees)
                nodes = self._descend(np.arange(start, stop), Z, column)
                yield rows, slice(start, stop), nodes.reshape(stop - start, len(Z))

    def blocks(self, X: Any) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Blocks of rows: which, their columns as splits see them, and the column of each node.

        A step is a single comparison even with missing values: where there are any, all columns
        stand there twice, with infinity for splits that send them right, and with minus infinity.
        """
        n_cells = max(1, 4 * len(self.features))
        n_rows = int(np.clip(_BLOCK_CELLS // n_cells, 1, _BLOCK_ROWS))
        for start in range(0, X.shape[0], n_rows):
            rows = slice(start, min(start + n_rows, X.shape[0]))
            # Columns that no split uses are not even copied.
            part = X[rows][:, self.features]
            part = part.toarray() if sparse.issparse(part) else part
            part = part.astype(self.threshold.dtype, copy=False)
            missing = np.isnan(part)
            if missing.any():
                sides = [
                    np.where(missing, part.dtype.type(away), part) for away in (np.inf, -np.inf)
                ]
                yield rows, np.concatenate(sides, axis=1), self.column_with_gaps
            else:
                yield rows, part, self.column

    def _descend(self, roots: np.ndarray, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The leaf of every pair of tree and row, tree after tree."""
        if not Z.shape[1]:  # no tree splits
            return np.repeat(roots, len(Z))
        ends, values = self._below_top(roots, Z, column), Z.ravel()
        pair = np.flatnonzero(self.trees.splits.take(ends))
        node = ends.take(pair)
        row = np.tile(np.arange(0, Z.size, Z.shape[1]), len(roots)).take(pair)
        while len(node):
            for _ in range(2):  # checking which pairs have arrived costs as much as half a step
                before, place = node, column.take(node)
                place += row
                node = self.next.take(before)
                node += self._turn_right(before, values.take(place))
            moving = np.flatnonzero(node != before)
            # Dropping pairs copies the others: worth it once a quarter has arrived.
            if len(moving) < 0.75 * len(node):
                ends[pair] = node
                node, row, pair = node.take(moving), row.take(moving), pair.take(moving)
        return ends

    def _below_top(self, roots: np.ndarray, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The node of every pair of tree and row after the first steps, tree after tree."""
        # All nodes of the first levels are compared with all rows, a column at a time: this is
        # faster than gathering what each row meets.
        if len(Z) <= _FEW_ROWS:
            return np.repeat(roots, len(Z))
        columns, levels = np.ascontiguousarray(Z.T), self.top[:, roots]
        steps: list[np.ndarray] = []  # whether rows turned right, level by level
        place = np.zeros((len(roots), len(Z)), dtype=np.uint8)
        for depth in range(_TOP):
            nodes = levels[2**depth - 1 : 2 ** (depth + 1) - 1]
            turns = [self._turn_right(n[:, None], columns.take(column[n], 0)) for n in nodes]
            for step in steps:
                half = len(turns) // 2
                pairs = zip(turns[:half], turns[half:], strict=True)
                # The turn of the left or of the right node, as `step` says, without a branch.
                turns = [left ^ (step & (left ^ right)) for left, right in pairs]
            steps += turns
            place = 2 * place + turns[0]
        bottom = levels[2**_TOP - 1 :].T
        first = np.arange(0, bottom.size, bottom.shape[1])[:, None]
        return bottom.ravel().take(first + place).ravel()

    def _turn_right(self, node: np.ndarray, x: np.ndarray) -> np.ndarray:
        right = x > self.threshold.take(node)
        # A categorical split sends to the right what does not equal its category.
        if self.categorical is not None:
            right |= self.categorical.take(node) & (x < self.threshold.take(node))
        return right

    def turns(self, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
        return self._turn_right(self.inner[:, None], Z.T[column[self.inner]])


# --- Shapley values -------------------------------------------------------------------------


def _shares_and_depths(trees: Trees) -> tuple[np.ndarray, np.ndarray]:
    """The share of a parent's training rows in each node (1 in a root), and depths of leaves."""
    starts = [0, trees.n_trees]  # of the levels: the children of one are the next
    while starts[-1] > starts[-2]:
        starts.append(starts[-1] + 2 * int(trees.splits[starts[-2] : starts[-1]].sum()))
    levels = [slice(*ends) for ends in itertools.pairwise(starts)]
    rows = np.zeros(len(trees.splits))
    rows[~trees.splits] = trees.cover
    for level, below in reversed(list(itertools.pairwise(levels))):
        rows[level][trees.splits[level]] = rows[below].reshape(-1, 2).sum(axis=1)
    share = np.ones(len(rows))
    share[trees.n_trees :] = rows[trees.n_trees :] / np.repeat(rows[trees.splits], 2)
    depth = np.repeat(np.arange(len(levels)), np.diff(starts))
    return share, depth[~trees.splits]


class _Paths(NamedTuple):
    """The turns on the paths to all leaves, in the order of leaf and column.

    A pair is a leaf and a column on its path.
    """

    split: np.ndarray  # of each turn
    to_right: np.ndarray
    first_turn: np.ndarray  # of each pair
    column: np.ndarray
    z: np.ndarray
    first_pair: np.ndarray  # of each leaf
    n_pairs: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, trees: Trees, share: np.ndarray) -> _Paths:
        node = np.flatnonzero(~trees.splits)
        leaf, inner, turns = np.arange(len(node)), np.flatnonzero(trees.splits), []
        while len(node):  # all leaves climb to their roots together
            below = node >= trees.n_trees
            node, leaf = node[below], leaf[below]
            split, to_right = np.divmod(node - trees.n_trees, 2)
            turns.append((leaf, split, to_right == 1, share[node]))
            node = inner[split]
        leaf, split, to_right, of_turn = (
            np.concatenate(parts) for parts in zip(*turns, strict=True)
        )
        order = np.lexsort((trees.feature[split], leaf))
        leaf, split, to_right, of_turn = (a[order] for a in (leaf, split, to_right, of_turn))
        column = trees.feature[split]
        first_turn = np.flatnonzero(np.r_[True, (np.diff(leaf) != 0) | (np.diff(column) != 0)])
        leaf = leaf[first_turn]
        first_pair = np.flatnonzero(np.r_[True, np.diff(leaf) != 0])
        return cls(
            split=split,
            to_right=to_right,
            first_turn=first_turn,
            column=column[first_turn],
            z=np.multiply.reduceat(of_turn, first_turn),
            first_pair=first_pair,
            n_pairs=np.diff(first_pair, append=len(leaf)),
            value=trees.value[leaf[first_pair]],
        )

    def shapley_terms(self, o: np.ndarray) -> np.ndarray:
        """The terms phi_j of the sum over leaves: (pairs of leaf and column j, rows)."""
        # k nodes are exact up to degree 2k - 1; the products have one factor less than the path
        # columns.
        t, weight = np.polynomial.legendre.leggauss((int(self.n_pairs.max()) + 1) // 2)
        z, integral = self.z[:, None], np.zeros(o.shape)
        for point, w in zip((1 + t) / 2, weight / 2, strict=True):
            factor = np.where(o, point + (1 - point) * z, (1 - point) * z)
            product = w * np.multiply.reduceat(factor, self.first_pair, axis=0)
            # All factors but that of column j; none is 0, since every node has training rows.
            integral += np.repeat(product, self.n_pairs, axis=0) / factor
        value = np.repeat(self.value, self.n_pairs)[:, None]
        return integral * (o - z) * value
