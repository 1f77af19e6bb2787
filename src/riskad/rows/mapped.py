"""The features of rows, for too many rows to store their features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from riskad.core.labels import LabelCounts
from riskad.rows.arrays import to_dense
from riskad.rows.block_sizes import dense_rows
from riskad.rows.memory import RowBlocks
from riskad.rows.source import Block, RowSource, add_up, cut

__all__ = ["MappedRows"]


class MappedRows(RowSource):
    """The features phi(x) of rows, for too many rows to store their features.

    >>> rows = RowBlocks(np.arange(4.0).reshape(2, 2), np.array([1, 0], dtype=np.int8))
    >>> squares = rows.behind(lambda X: X**2, n_features=2)
    >>> squares.sum(lambda block: (block.X.sum(axis=0),))
    (array([ 4., 10.]),)
    """

    costly = True

    def __init__(self, rows: RowSource, transform: Callable[[Any], Any], n_features: int):
        self.rows = rows
        self.labels_said = rows.labels_said
        self.transform = transform
        self.n_rows = rows.n_rows
        self.n_features = n_features

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, in blocks small enough for their features."""
        transform, size = self.transform, dense_rows(self.n_features)
        return self.rows.sum(
            lambda block: add_up(f(_mapped(part, transform)) for part in cut(block, size))
        )

    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""
        return self.rows.totals()

    def counts(self) -> LabelCounts:
        """Number of rows of each kind, regardless of weight."""
        return self.rows.counts()

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """Apply `g` to the features of each block; results are joined in order."""
        transform = self.transform
        return self.rows.each(lambda X: g(to_dense(transform(X))))

    def first(self) -> Any:
        """Features of some of the first rows."""
        return to_dense(self.transform(self.rows.first()[: dense_rows(self.n_features)]))

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """Features of a sample; see `RowSource.sample`."""
        return self._materialised(self.rows.sample(n_rows, shares, rng))

    def only_labelled(self) -> RowSource:
        """Features of the labelled rows, if these are in memory."""
        rows = self.rows.only_labelled()
        return self if rows is self.rows else self._materialised(rows)

    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of features of the rows labelled `kind` that have weight."""
        for block in self.rows.blocks_of(kind):
            for part in cut(block, dense_rows(self.n_features)):
                yield _mapped(part, self.transform)

    def _materialised(self, rows: Any) -> RowBlocks:
        parts = [self.transform(block.X) for block in rows]
        return RowBlocks(np.concatenate([to_dense(X) for X in parts]), rows.y, rows.sample_weight)


def _mapped(block: Block, transform: Callable[[Any], Any]) -> Block:
    return block._replace(X=to_dense(transform(block.X)))
