"""Rows in memory, with their labels and weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from scipy import sparse

from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, LabelCounts, is_said
from riskad.core.losses import namespace
from riskad.rows.arrays import on_device, places_of, row_slice
from riskad.rows.blas_threads import one_blas_thread
from riskad.rows.block_sizes import dense_rows, rows_per_block
from riskad.rows.engine import Threads, usable_cpus
from riskad.rows.source import Block, RowSource, add_up

__all__ = ["RowBlocks"]


_MIN_BLOCKS_PER_WORKER = 4
# On a device a sample need not grow with the rows, and a pass costs no more than its request.
_DEVICE_SAMPLE_ROWS = 1 << 17
_DEVICE_FEW_ROWS = 1 << 19


class RowBlocks(RowSource):
    """Rows in memory with their labels and weights.

    Parameters
    ----------
    X : ndarray, CSR matrix or torch tensor of shape (n_rows, n_features)
        Blocks of it are views; float32 rows of an array are widened block by block, those of a
        tensor are unchanged.
    y : int8 array or tensor of shape (n_rows,)
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    sample_weight : float array or tensor of shape (n_rows,), optional
        In totals and weighted sums a row of weight w counts as w rows.
    block_rows : int, optional
        Rows in a block; by default as many as fit the cache.

    Examples
    --------
    >>> rows = RowBlocks(np.arange(6.0).reshape(3, 2), np.array([1, 0, -1], dtype=np.int8))
    >>> rows.sum(lambda block: (block.X.sum(axis=0), float(len(block.y))))
    (array([6., 9.]), 3.0)
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, block_rows: int | None = None):
        self.X = X
        self.labels_said = is_said(y)
        self.y = np.asarray(y) if self.labels_said else y
        self.sample_weight = sample_weight
        self.n_rows, self.n_features = X.shape
        self.block_rows = block_rows or rows_per_block(X)
        if is_torch_array(X):  # arrays are widened
            self.eps = float(namespace(X).finfo(X.dtype).eps)
        if on_device(X):
            self.few = _DEVICE_FEW_ROWS

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether blocks are CSR."""
        return sparse.issparse(self.X)

    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""
        weights = self.sample_weight
        if weights is None:
            return np.array([self._counts[kind] for kind in KINDS], dtype=float)
        return np.array([float(weights[self.y == kind].sum()) for kind in KINDS])

    def counts(self) -> LabelCounts:
        """Number of rows of each kind, regardless of weight."""
        unlabelled, normal, anomaly = (self._counts[kind] for kind in KINDS)
        return LabelCounts(normal, anomaly, unlabelled)

    @cached_property
    def _counts(self) -> dict[int, int]:
        counts = {kind: len(places) for kind, places in self._places.items()}
        return {UNLABELLED: self.n_rows - sum(counts.values()), **counts}

    def first(self) -> Any:
        """The rows of the first block."""
        return next(iter(self)).X

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """Apply `g` to the rows of each block; results are joined in order."""
        parts = [g(block.X) for block in self]
        return namespace(parts[0]).concat(parts)

    def __iter__(self) -> Iterator[Block]:
        return self._run(0, len(self._labelled))

    def blocks(self) -> Iterator[Block]:
        """All blocks: rows in memory may be a part of more rows."""
        return self._run(0, len(self._labelled), reuse=True)

    def _run(self, first: int, last: int, reuse: bool = False) -> Iterator[Block]:
        """Blocks number `first` to `last`, made one at a time.

        With `reuse`, widened rows use the same memory in each block.
        """
        widened = isinstance(self.X, np.ndarray) and self.X.dtype != np.float64
        place = np.empty((self.block_rows, self.n_features)) if reuse and widened else None
        for i in range(first, last):
            rows = slice(i * self.block_rows, min((i + 1) * self.block_rows, self.n_rows))
            weight = None if self.sample_weight is None else self.sample_weight[rows]
            if place is None:
                X = row_slice(self.X, rows)
            else:
                X = place[: rows.stop - rows.start]
                np.copyto(X, self.X[rows])
            yield Block(X, self.y[rows], weight, self._labelled[i])

    @cached_property
    def _labelled(self) -> list[Any]:
        """Positions of the labelled rows in each block: few, and needed in every pass."""
        starts = range(0, self.n_rows, self.block_rows)
        return [places_of(self.y[start : start + self.block_rows]) for start in starts]

    @cached_property
    def _places(self) -> dict[int, Any]:
        """Positions of the normal rows, and of the anomalies, among all rows."""
        starts = range(0, self.n_rows, self.block_rows)
        parts = [start + part for start, part in zip(starts, self._labelled, strict=True)]
        places = namespace(parts[0]).concat(parts)
        kinds = self.y[places]
        return {kind: places[kinds == kind] for kind in (NORMAL, ANOMALY)}

    def _places_of(self, kind: int) -> Any:
        return places_of(self.y == kind) if kind == UNLABELLED else self._places[kind]

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry.

        Cores work on runs of blocks, each with single-threaded BLAS: threads inside products of
        this size gain nothing and wait for each other when cores are busy. The partial sums are
        added in the order of the rows, so the result does not depend on which core finishes first.
        """
        with one_blas_thread():
            if self._n_workers == 1:
                return add_up(map(f, self.blocks()))
            bounds = np.linspace(0, len(self._labelled), self._n_workers + 1).astype(int)
            runs = [self._run(i, j, reuse=True) for i, j in itertools.pairwise(bounds)]
            workers = Threads(self._n_workers)
            return add_up(workers.map(lambda run, _: add_up(map(f, run)), runs))

    @property
    def _n_workers(self) -> int:
        useful = len(self._labelled) // _MIN_BLOCKS_PER_WORKER
        # `usable_cpus` reads files to find out, which small tables need not wait for.
        return 1 if useful <= 1 or is_torch_array(self.X) else min(usable_cpus(), useful)

    def take(self, rows: Any) -> RowBlocks:
        """A copy of the rows with these indices."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return RowBlocks(self.X[rows], self.y[rows], weight)

    def only_labelled(self) -> RowBlocks:
        """The same rows: leaving out the unlabelled rows in each block costs almost nothing."""
        return self

    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of the rows labelled `kind` that have weight, small enough to be made dense."""
        members = self.y == kind
        if self.sample_weight is not None:
            members = members & (self.sample_weight > 0)
        return iter(self.take(places_of(members)).dense_sized())

    def dense_sized(self) -> RowBlocks:
        """The same rows in blocks small enough to be made dense, one at a time."""
        return RowBlocks(self.X, self.y, self.sample_weight, dense_rows(self.n_features))

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` rows, divided among the kinds by `shares`; see `RowSource.sample`."""
        if is_torch_array(self.X):
            n_rows = min(n_rows, _DEVICE_SAMPLE_ROWS)
        counts = {kind: self._counts[kind] for kind in KINDS if shares[kind] > 0}
        order = sorted(counts, key=lambda kind: counts[kind] / shares[kind])
        chosen: list[Any] = []
        left, open_share = n_rows, sum(shares[kind] for kind in order)
        for kind in order:
            quota = max(1, int(np.ceil(left * shares[kind] / open_share)))
            pick = self._pick(kind, counts[kind], quota, rng)
            chosen.append(pick)
            left -= len(pick)
            open_share -= shares[kind]
        xp = namespace(chosen[0])
        places = xp.concat(chosen)
        # Neighbours in memory are read together; a device reads rows from anywhere.
        return self.take(places if on_device(self.X) else xp.sort(places))

    def _pick(self, kind: int, count: int, quota: int, rng: np.random.Generator) -> Any:
        """Positions of all rows of a kind, or of `quota` at random."""
        if count <= quota:
            return self._places_of(kind)
        if is_torch_array(self.X) and 20 * quota < count > self.n_rows // 2:
            # A few out of most rows: positions are drawn and checked instead of listing all;
            # occasionally one is drawn twice.
            xp, device = namespace(self.X), self.X.device
            source = xp.Generator(device).manual_seed(int(rng.integers(1 << 63)))
            size = (quota * self.n_rows // count,)
            drawn = xp.randint(self.n_rows, size, generator=source, device=device)
            return drawn[self.y[drawn] == kind]
        places = self._places_of(kind)
        return places[rng.choice(count, quota, replace=False, shuffle=False)]
