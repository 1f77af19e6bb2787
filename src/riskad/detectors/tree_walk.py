"""Walk many rows through many trees at once, in NumPy.

All rows of a block and many trees take one step together: gather each pair's column and threshold,
compare, and go to the left child or the one after it. A leaf is its own child, with a threshold
that nothing exceeds, so pairs that have arrived stay there until they are dropped.

The first steps work differently: the few nodes at the top of a tree are compared with all rows of
the block at once.

Values are prepared once for each block, so that a step is a single comparison even with missing
values: a missing value becomes minus infinity in the columns of splits that send it left, and
infinity in those of splits that send it right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from riskad.detectors.tree_arrays import Trees

__all__ = ["MISSING_LEFT", "TINY", "ZERO_IS_MISSING", "Columns", "TreeWalk"]

MISSING_LEFT, ZERO_IS_MISSING = 1, 2
TINY = float(np.float32(1e-35))  # up to here, LightGBM treats numbers as zero
_BLOCK_ROWS = 512
_BLOCK_CELLS = 2**22  # prepared values of a block
_PAIRS = 2**17  # of row and tree that step together: more and smaller steps take longer
_TOP = 3  # levels that are compared, not walked
_FEW_ROWS = 16  # for fewer, a step of Python for each tree takes longer than the sums
_CODE_BITS = 32


@dataclass(frozen=True)
class Columns:
    """The different columns that splits look at: features, by what is done with missing values."""

    of_split: np.ndarray
    feature: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, trees: Trees, gaps: bool) -> Columns:
        """The columns of all splits; without gaps, missing values make no difference."""
        matters = gaps | (trees.missing & ZERO_IS_MISSING > 0)
        rule = np.where(matters, trees.missing, 0).astype(int)
        rule[trees.category_splits] = MISSING_LEFT  # minus infinity is no category
        keys, of_split = np.unique(trees.feature.astype(int) * 4 + rule, return_inverse=True)
        return cls(of_split, keys // 4, keys % 4)

    def prepare(self, rows: np.ndarray) -> np.ndarray:
        """The columns of these rows, with infinities for missing values."""
        Z = rows[:, self.feature]
        zero_is_missing = np.flatnonzero(self.missing & ZERO_IS_MISSING)
        absent = np.isnan(Z)
        if len(zero_is_missing):
            absent[:, zero_is_missing] |= np.abs(Z[:, zero_is_missing]) <= TINY
        if absent.any():
            away = np.where(self.missing & MISSING_LEFT, -np.inf, np.inf).astype(Z.dtype)
            Z = np.where(absent, away, Z)
        return Z


class TreeWalk:
    """Trees in the layout for walking; see `riskad.detectors.tree_arrays.Trees`."""

    def __init__(self, trees: Trees):
        n_nodes = len(trees.splits)
        self.trees = trees
        self.features = np.unique(trees.feature)
        self.inner = np.flatnonzero(trees.splits)
        self.next = np.arange(n_nodes)
        self.next[self.inner] = trees.left
        self.threshold = np.full(n_nodes, np.inf, dtype=trees.threshold.dtype)
        self.threshold[self.inner] = trees.threshold
        self.leaf = np.cumsum(~trees.splits) - 1
        self.value = np.zeros(n_nodes)
        self.value[~trees.splits] = trees.value
        self._top = self._top_levels()
        self._columns: dict[bool, tuple[Columns, np.ndarray]] = {}
        sizes = np.diff(trees.category_ends, prepend=0)
        nodes = self.inner[trees.category_splits]
        self.by_category = np.zeros(n_nodes, dtype=bool)
        self.by_category[nodes] = True
        self.categories = (np.repeat(nodes, sizes) << _CODE_BITS) | trees.category_codes

    def _top_levels(self) -> np.ndarray:
        """The nodes of the first levels of each tree, (nodes, trees); a leaf is its own child."""
        splits, level = self.trees.splits, [np.arange(self.trees.n_trees)]
        found = [*level]
        for _ in range(_TOP):
            level = [self.next[n] + side * splits[n] for n in level for side in (0, 1)]
            found += level
        return np.array(found)

    def sum(self, X: Any) -> np.ndarray:
        """The values of each row's leaves, added tree by tree."""
        total = np.zeros(X.shape[0])
        for rows, _, nodes in self._walked(X):
            total[rows] = _added_in_order(total[rows], self.value.take(nodes))
        return total

    def leaves(self, X: Any) -> np.ndarray:
        """The positions of the leaves of each row, (n_rows, n_trees)."""
        found = np.empty((X.shape[0], self.trees.n_trees), dtype=np.int32)
        for rows, trees, nodes in self._walked(X):
            found[rows, trees] = self.leaf.take(nodes).T
        return found

    def _walked(self, X: Any) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Rows, trees, and the nodes (trees, rows) at which they end; trees in their order."""
        for rows, Z, column in self.blocks(X):
            n_at_once = max(1, _PAIRS // len(Z))
            for start in range(0, self.trees.n_trees, n_at_once):
                stop = min(start + n_at_once, self.trees.n_trees)
                ends = self._ends(np.arange(start, stop), Z, column)
                yield rows, slice(start, stop), ends.reshape(stop - start, len(Z))

    def blocks(self, X: Any) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Blocks of rows: which, their prepared columns, and the column of each node."""
        n_cells = max(1, 4 * len(self.features))
        n_rows = int(np.clip(_BLOCK_CELLS // n_cells, 1, _BLOCK_ROWS))
        for start in range(0, X.shape[0], n_rows):
            rows = slice(start, min(start + n_rows, X.shape[0]))
            part = X[rows][:, self.features]
            part = part.toarray() if sparse.issparse(part) else part
            part = part.astype(self.threshold.dtype)
            columns, column = self._columns_for(bool(np.isnan(part).any()))
            yield rows, columns.prepare(part), column

    def _columns_for(self, gaps: bool) -> tuple[Columns, np.ndarray]:
        if gaps not in self._columns:
            found = Columns.of(self.trees, gaps)
            of_node = np.zeros(len(self.next), dtype=int)
            of_node[self.inner] = found.of_split
            place = np.searchsorted(self.features, found.feature)
            self._columns[gaps] = Columns(found.of_split, place, found.missing), of_node
        return self._columns[gaps]

    def _ends(self, roots: np.ndarray, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
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
                node += self.turns_right(before, values.take(place))
            moving = np.flatnonzero(node != before)
            if len(moving) < 0.75 * len(node):
                ends[pair] = node
                node, row, pair = node.take(moving), row.take(moving), pair.take(moving)
        return ends

    def _below_top(self, roots: np.ndarray, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The node of every pair of tree and row after the first steps, tree after tree.

        All nodes of the first levels are compared with all rows, a column at a time: this is faster
        than gathering what each row meets.
        """
        if len(self.categories):
            return np.repeat(roots, len(Z))
        columns, levels = np.ascontiguousarray(Z.T), self._top[:, roots]
        steps: list[np.ndarray] = []  # whether rows turned right, level by level
        place = np.zeros((len(roots), len(Z)), dtype=np.uint8)
        for depth in range(_TOP):
            nodes = levels[2**depth - 1 : 2 ** (depth + 1) - 1]
            turns = [columns.take(column[n], 0) > self.threshold[n][:, None] for n in nodes]
            for step in steps:
                half = len(turns) // 2
                pairs = zip(turns[:half], turns[half:], strict=True)
                turns = [left ^ (step & (left ^ right)) for left, right in pairs]
            steps += turns
            place = 2 * place + turns[0]
        bottom = levels[2**_TOP - 1 :].T
        first = np.arange(0, bottom.size, bottom.shape[1])[:, None]
        return bottom.ravel().take(first + place).ravel()

    def turns_right(self, node: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Whether rows with these values turn right at these nodes."""
        right = x > self.threshold.take(node)
        if len(self.categories):
            at = np.flatnonzero(self.by_category.take(node))
            right[at] = ~self._among_categories(node[at], x[at])
        return right

    def _among_categories(self, node: np.ndarray, x: np.ndarray) -> np.ndarray:
        known = (x > -1) & (x < 2.0 ** (_CODE_BITS - 1))
        key = (node << _CODE_BITS) | np.where(known, x, 0).astype(np.int64)
        place = np.searchsorted(self.categories, key)
        place[place == len(self.categories)] = 0
        return known & (self.categories[place] == key)


def _added_in_order(start: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """The sum start + terms[0] + terms[1] + ..., rounded alike however many rows there are."""
    if len(start) <= _FEW_ROWS:
        return np.asarray(np.add.accumulate(np.vstack([start, terms]))[-1])
    for term in terms:
        start += term
    return start
