"""Where rows come from: one primitive, "sum f(block) over row blocks".

Solvers never see a whole table. They hand a function of one block to `RowBlocks.sum` and get the
sum over all blocks back, so that memory stays flat and the same solver runs on any source that
can do this one thing. Here the rows are in memory, dense or CSR, and a block is a view that fits
the processor's cache.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from threadpoolctl import ThreadpoolController

from riskad.labels import ANOMALY, NORMAL, UNLABELLED

__all__ = ["Block", "RowBlocks"]

# Small enough to stay in cache, large enough that Python's cost per block does not show.
_BLOCK_BYTES = 1 << 23
_MIN_BLOCK_ROWS = 256
_MIN_BLOCKS_PER_WORKER = 4

KINDS = (UNLABELLED, NORMAL, ANOMALY)
"""Order in which per-kind arrays are laid out, so that `array[code]` finds -1 at the end."""


class Block(NamedTuple):
    """Some rows, their label codes, their weights (None: all 1), and which of them are labelled."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None
    labelled: np.ndarray

    @property
    def marks(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """All but the rows themselves, as `RowSum` takes it after their scores."""
        return self.y, self.weight, self.labelled


class RowBlocks:
    """Rows in memory with their labels and weights.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features)
        Blocks of it are views; float32 rows are widened block by block.
    y : int8 array of shape (n_rows,)
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    sample_weight : float array of shape (n_rows,), optional
        A weight w counts a row as w rows.
    block_rows : int, optional
        Rows in a block; by default as many as fit the cache.

    Examples
    --------
    >>> rows = RowBlocks(np.arange(6.0).reshape(3, 2), np.array([1, 0, -1], dtype=np.int8))
    >>> rows.sum(lambda block: (block.X.sum(axis=0), float(len(block.y))))
    (array([6., 9.]), 3.0)
    """

    def __init__(
        self,
        X: Any,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        block_rows: int | None = None,
    ):
        self.X = X
        self.y = y
        self.sample_weight = sample_weight
        self.n_rows, self.n_features = X.shape
        self.block_rows = block_rows or _rows_per_block(X)

    @property
    def sparse(self) -> bool:
        """Whether blocks are CSR."""
        return sparse.issparse(self.X)

    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""
        weights = self.sample_weight
        if weights is None:
            return np.array([np.count_nonzero(self.y == kind) for kind in KINDS], dtype=float)
        return np.array([weights[self.y == kind].sum() for kind in KINDS], dtype=float)

    def __iter__(self) -> Iterator[Block]:
        return self._run(0, len(self._labelled))

    def _run(self, first: int, last: int) -> Iterator[Block]:
        """Blocks number `first` to `last`, made one at a time."""
        for i in range(first, last):
            rows = slice(i * self.block_rows, min((i + 1) * self.block_rows, self.n_rows))
            weight = None if self.sample_weight is None else self.sample_weight[rows]
            yield Block(_row_slice(self.X, rows), self.y[rows], weight, self._labelled[i])

    @cached_property
    def _labelled(self) -> list[np.ndarray]:
        """Places of the labelled rows in each block: few, and asked for in every pass."""
        starts = range(0, self.n_rows, self.block_rows)
        return [np.flatnonzero(self.y[start : start + self.block_rows]) for start in starts]

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry.

        Cores work on runs of blocks, each with single-threaded BLAS: threads inside products of
        this size gain nothing and wait for each other when cores are busy. The partial sums are
        added in the order of the rows, so the result does not depend on who finishes first.
        """
        with one_blas_thread():
            if self._n_workers == 1:
                return _add_up(map(f, self))
            bounds = np.linspace(0, len(self._labelled), self._n_workers + 1).astype(int)
            runs = [self._run(i, j) for i, j in itertools.pairwise(bounds)]
            # Threads do not inherit NumPy's error state, a context variable; they are given it.
            contexts = [contextvars.copy_context() for _ in runs]
            with ThreadPoolExecutor(self._n_workers) as pool:
                work = [
                    pool.submit(context.run, _add_up, map(f, run))
                    for context, run in zip(contexts, runs, strict=True)
                ]
                return _add_up(part.result() for part in work)

    @property
    def _n_workers(self) -> int:
        useful = len(self._labelled) // _MIN_BLOCKS_PER_WORKER
        # joblib knows about affinity and containers, and says 1 inside a parallel grid search;
        # it reads files to find out, which small tables need not wait for.
        return 1 if useful <= 1 else min(effective_n_jobs(-1), useful)

    def take(self, rows: np.ndarray) -> RowBlocks:
        """A copy of the rows with these indices."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return RowBlocks(self.X[rows], self.y[rows], weight)

    def of_kind(self, kind: int) -> RowBlocks:
        """A copy of the rows labelled `kind`, those without weight left out."""
        members = self.y == kind
        if self.sample_weight is not None:
            members &= self.sample_weight > 0
        return self.take(np.flatnonzero(members))

    def dense_sized(self) -> RowBlocks:
        """The same rows in blocks small enough to be made dense, one at a time."""
        block_rows = max(1, _BLOCK_BYTES // (8 * self.n_features))
        return RowBlocks(self.X, self.y, self.sample_weight, block_rows)

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` rows, divided among the label kinds by `shares` (indexed by code).

        Risks average within each kind, so a risk of the sample estimates the risk of all rows
        however unevenly the kinds were sampled. What a rare kind cannot use goes to the others;
        each kind that has a share and rows is in the sample.
        """
        members = {kind: np.flatnonzero(self.y == kind) for kind in KINDS if shares[kind] > 0}
        order = sorted(members, key=lambda kind: len(members[kind]) / shares[kind])
        chosen: list[np.ndarray] = []
        left, open_share = n_rows, sum(shares[kind] for kind in order)
        for kind in order:
            quota = max(1, int(np.ceil(left * shares[kind] / open_share)))
            pick = members[kind]
            if len(pick) > quota:
                pick = rng.choice(pick, quota, replace=False, shuffle=False)
            chosen.append(pick)
            left -= len(pick)
            open_share -= shares[kind]
        return self.take(np.sort(np.concatenate(chosen)))


_inside = contextvars.ContextVar("one_blas_thread", default=False)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread; free of cost inside another such block, so enter it early."""
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    try:
        with _blas_threads().limit(limits=1, user_api="blas"):
            yield
    finally:
        _inside.reset(token)


@functools.cache
def _blas_threads() -> ThreadpoolController:
    return ThreadpoolController()


def _add_up(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    parts = iter(parts)
    # The first part may be a view of the rows themselves: it is not added to in place.
    total = [part.copy() if isinstance(part, np.ndarray) else part for part in next(parts)]
    for part in parts:
        for i, entry in enumerate(part):
            total[i] += entry
    return tuple(total)


def _rows_per_block(X: Any) -> int:
    row_bytes = 8 * X.shape[1]
    if sparse.issparse(X):
        row_bytes = 12 * max(1, X.nnz // max(1, X.shape[0]))
    return max(_MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes))


def _row_slice(X: Any, rows: slice) -> Any:
    if not sparse.issparse(X):
        return np.asarray(X[rows], dtype=np.float64)
    # X[rows] copies values and indices, and so does the constructor for a small part of a large
    # matrix; arrays that are set stay shared (float32 values are widened).
    first, last = X.indptr[rows.start], X.indptr[rows.stop]
    block = type(X)((rows.stop - rows.start, X.shape[1]), dtype=np.float64)
    block.data = np.asarray(X.data[first:last], dtype=np.float64)
    block.indices = X.indices[first:last]
    block.indptr = X.indptr[rows.start : rows.stop + 1] - first
    return block
