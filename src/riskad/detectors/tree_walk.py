"""The walk of many rows through many trees at once, in NumPy.

All rows of a block and many trees take one step together: gather each pair's column and threshold,
compare, and go to the left child or the one after it. A leaf is its own child, with a threshold
that nothing exceeds, so pairs that have arrived stand still until they are dropped.

Values are prepared once for each block, so that a step is a single comparison whatever is missing:
a missing value becomes minus infinity in the columns of splits that send it left, and infinity in
those of splits that send it right.
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
TINY = float(np.float32(1e-35))  # up to here, LightGBM takes numbers for zero
_BLOCK_ROWS = 1024
_BLOCK_CELLS = 2**22  # prepared values of a block
_PAIRS = 2**15  # of row and tree that step together: their arrays stay in the cache
_CODE_BITS = 32


@dataclass(frozen=True)
class Columns:
    """The different columns that splits look at: features, by what is done with missing values."""

    of_split: np.ndarray
    feature: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, trees: Trees, gaps: bool) -> Columns:
        """Those of all splits; where there are no gaps, missing values make no difference."""
        matters = gaps | (trees.missing & ZERO_IS_MISSING > 0)
        rule = np.where(matters, trees.missing, 0).astype(int)
        rule[trees.category_splits] = MISSING_LEFT  # minus infinity is no category
        keys, of_split = np.unique(trees.feature.astype(int) * 4 + rule, return_inverse=True)
        return cls(of_split, keys // 4, keys % 4)

    def prepare(self, rows: np.ndarray) -> np.ndarray:
        """The columns of these rows, with infinities for what is missing."""
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
    """Trees laid out for walking; see `riskad.detectors.tree_arrays.Trees`."""

    def __init__(self, trees: Trees):
        n_nodes = len(trees.splits)
        self.trees = trees
        self.inner = np.flatnonzero(trees.splits)
        self.next = np.arange(n_nodes)
        self.next[self.inner] = trees.left
        self.threshold = np.full(n_nodes, np.inf, dtype=trees.threshold.dtype)
        self.threshold[self.inner] = trees.threshold
        self.leaf = np.cumsum(~trees.splits) - 1
        self.value = np.zeros(n_nodes)
        self.value[~trees.splits] = trees.value
        self._columns: dict[bool, tuple[Columns, np.ndarray]] = {}
        sizes = np.diff(trees.category_ends, prepend=0)
        nodes = self.inner[trees.category_splits]
        self.by_category = np.zeros(n_nodes, dtype=bool)
        self.by_category[nodes] = True
        self.categories = (np.repeat(nodes, sizes) << _CODE_BITS) | trees.category_codes

    def sum(self, X: Any) -> np.ndarray:
        """The values of each row's leaves, added tree by tree."""
        total = np.zeros(X.shape[0])
        for rows, _, nodes in self._walked(X):
            part = total[rows]
            for values in self.value.take(nodes):
                part += values
        return total

    def leaves(self, X: Any) -> np.ndarray:
        """The places of the leaves of each row, (n_rows, n_trees)."""
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
        features = np.unique(self.trees.feature)
        n_cells = max(1, 4 * len(features))
        n_rows = int(np.clip(_BLOCK_CELLS // n_cells, 1, _BLOCK_ROWS))
        for start in range(0, X.shape[0], n_rows):
            rows = slice(start, min(start + n_rows, X.shape[0]))
            part = X[rows][:, features]
            part = part.toarray() if sparse.issparse(part) else part
            part = part.astype(self.threshold.dtype)
            columns, column = self._columns_for(bool(np.isnan(part).any()), features)
            yield rows, columns.prepare(part), column

    def _columns_for(self, gaps: bool, features: np.ndarray) -> tuple[Columns, np.ndarray]:
        if gaps not in self._columns:
            found = Columns.of(self.trees, gaps)
            of_node = np.zeros(len(self.next), dtype=int)
            of_node[self.inner] = found.of_split
            place = np.searchsorted(features, found.feature)
            self._columns[gaps] = Columns(found.of_split, place, found.missing), of_node
        return self._columns[gaps]

    def _ends(self, roots: np.ndarray, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The leaf of every pair of tree and row, tree after tree."""
        node = np.repeat(roots, len(Z))
        row = np.tile(np.arange(0, Z.size, max(1, Z.shape[1])), len(roots))
        pair, ends, values = np.arange(len(node)), np.empty_like(node), Z.ravel()
        if not Z.shape[1]:  # no tree splits
            return node
        while len(node):
            for _ in range(2):  # a look at who has arrived costs as much as half a step
                before, place = node, column.take(node)
                place += row
                node = self.next.take(before)
                node += self.turns_right(before, values.take(place))
            moving = np.flatnonzero(node != before)
            if len(moving) < 0.75 * len(node):
                ends[pair] = node
                node, row, pair = node[moving], row[moving], pair[moving]
        return ends

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
