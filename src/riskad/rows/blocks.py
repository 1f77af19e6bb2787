"""Where rows come from: one primitive, "sum f(block) over row blocks".

Solvers never see a whole table. They hand a function of one block to `Rows.sum` and get the sum
over all blocks back, so that memory stays flat and the same solver runs on any source that can do
this one thing:

==============  ==================================================================================
source          rows
==============  ==================================================================================
`RowBlocks`     in memory: arrays, CSR matrices, memory-mapped arrays, torch tensors on a device
`PartedRows`    in parts, read anew in each pass: Parquet files (`riskad.rows.parquet`), or the
                partitions of a Dask collection (`riskad.rows.cluster`)
`MappedRows`    any of these behind a feature map, which is applied block by block
==============  ==================================================================================

What needs single rows, such as a first guess, a threshold, or the reach of the anomalies, is served
by the labelled rows and by a random sample of the pile: both are in memory after the first pass.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from array_api_compat import is_torch_array
from joblib import effective_n_jobs
from scipy import sparse
from threadpoolctl import OpenBLASController, ThreadpoolController

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts, is_said
from riskad.core.losses import namespace

__all__ = [
    "Block",
    "Engine",
    "MappedRows",
    "Part",
    "PartedRows",
    "Reservoir",
    "RowBlocks",
    "Rows",
    "Threads",
    "on_host_array",
    "one_blas_thread",
    "one_thread",
    "places_of",
    "to_numpy",
]

T = TypeVar("T")

# Small enough to stay in cache, large enough that Python's cost per block does not show.
_BLOCK_BYTES = 1 << 23
_MIN_BLOCK_ROWS = 256
_MIN_BLOCKS_PER_WORKER = 4
# On a device blocks are cut for the memory of what is made of their scores alone, a sample need not
# grow with the rows, and a pass over one costs no more than to ask for it.
_DEVICE_BLOCK_ROWS = 1 << 27
_DEVICE_SAMPLE_ROWS = 1 << 17
_DEVICE_FEW_ROWS = 1 << 19
# Rows of each kind that parted sources keep in memory, in bytes.
_KEPT_BYTES = 1 << 25
_FIRST_ROWS = 1 << 13

KINDS = (UNLABELLED, NORMAL, ANOMALY)
"""Order in which per-kind arrays are laid out, so that `array[code]` finds -1 at the end."""


class Block(NamedTuple):
    """Some rows, their label codes, their weights (None: all 1), and which of them are labelled."""

    X: Any
    y: Any
    weight: Any
    labelled: Any

    @property
    def marks(self) -> tuple[Any, Any, Any]:
        """All but the rows themselves, as `RowSum` takes it after their scores."""
        return self.y, self.weight, self.labelled

    def take(self, places: Any) -> Block:
        """These rows of the block."""
        y = self.y[places]
        weight = None if self.weight is None else self.weight[places]
        return Block(self.X[places], y, weight, places_of(y))

    def without_label(self, kind: int) -> Block:
        """The same rows, those labelled `kind` unlabelled."""
        y = _without_label(self.y, kind)
        return Block(self.X, y, self.weight, places_of(y))

    def only_labelled(self) -> Block:
        """Its labelled rows; unlike `take` this does not wait for a device."""
        places = self.labelled
        weight = None if self.weight is None else self.weight[places]
        every = namespace(places).arange(len(places), device=places.device)
        return Block(self.X[places], self.y[places], weight, every)


class Rows(ABC):
    """Rows with their labels and weights, wherever they are.

    Each has `n_rows`, `n_features`, `sparse`, whether blocks are CSR, and where columns have names
    these. `labels_said` tells whether the meaning of labels was said, should they be 0 and 1 alone
    (`riskad.core.labels`). `eps` is the rounding of a block's numbers. `costly` says that a pass
    over the rows takes much longer than one over a sample of them, however few they are, and `few`
    up to how many rows there would be nothing to save.
    """

    n_rows: int
    n_features: int
    sparse: bool = False
    feature_names: Sequence[str] | None = None
    labels_said: bool = False
    costly: bool = False
    few: int = 0
    eps: float = float(np.finfo(np.float64).eps)

    @abstractmethod
    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry: one pass over the rows."""

    @abstractmethod
    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""

    @abstractmethod
    def counts(self) -> LabelCounts:
        """Number of rows of each kind, whatever they weigh."""

    @abstractmethod
    def first(self) -> Any:
        """The rows of the first block."""

    @abstractmethod
    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """What `g` makes of the rows of each block, a number for each row, joined in order."""

    @abstractmethod
    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` rows, divided among the label kinds by `shares` (indexed by code).

        Risks average within each kind, so a risk of the sample estimates the risk of all rows
        however unevenly the kinds were sampled. What a rare kind cannot use goes to the others;
        each kind that has a share and rows is in the sample.
        """

    @abstractmethod
    def only_labelled(self) -> Rows:
        """The same rows for sums in which the pile does not count: without it, if that is cheap."""

    @abstractmethod
    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of the rows labelled `kind` that have weight, small enough to be made dense."""

    @abstractmethod
    def without_label(self, kind: int) -> Rows:
        """The same rows, those labelled `kind` unlabelled; what the others mean is then said."""

    def behind(self, transform: Callable[[Any], Any], n_features: int) -> MappedRows:
        """The features transform(x) of the rows, found anew in each pass."""
        return MappedRows(self, transform, n_features)


# --- in memory ----------------------------------------------------------------------------------


class RowBlocks(Rows):
    """Rows in memory with their labels and weights.

    Parameters
    ----------
    X : ndarray, CSR matrix or torch tensor of shape (n_rows, n_features)
        Blocks of it are views; float32 rows of an array are widened block by block, those of a
        tensor stay as they are.
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
        self.block_rows = block_rows or _rows_per_block(X)
        if is_torch_array(X):  # arrays are widened
            self.eps = float(namespace(X).finfo(X.dtype).eps)
        if _on_device(X):
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
        """Number of rows of each kind, whatever they weigh."""
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
        """What `g` makes of the rows of each block, joined in order."""
        parts = [g(block.X) for block in self]
        return namespace(parts[0]).concat(parts)

    def __iter__(self) -> Iterator[Block]:
        return self._run(0, len(self._labelled))

    def blocks(self) -> Iterator[Block]:
        """All blocks: rows in memory may be a part of more rows."""
        return self._run(0, len(self._labelled), reuse=True)

    def _run(self, first: int, last: int, reuse: bool = False) -> Iterator[Block]:
        """Blocks number `first` to `last`, made one at a time.

        With `reuse` rows that are widened stand in the same place in each block.
        """
        widened = isinstance(self.X, np.ndarray) and self.X.dtype != np.float64
        place = np.empty((self.block_rows, self.n_features)) if reuse and widened else None
        for i in range(first, last):
            rows = slice(i * self.block_rows, min((i + 1) * self.block_rows, self.n_rows))
            weight = None if self.sample_weight is None else self.sample_weight[rows]
            if place is None:
                X = _row_slice(self.X, rows)
            else:
                X = place[: rows.stop - rows.start]
                np.copyto(X, self.X[rows])
            yield Block(X, self.y[rows], weight, self._labelled[i])

    @cached_property
    def _labelled(self) -> list[Any]:
        """Places of the labelled rows in each block: few, and asked for in every pass."""
        starts = range(0, self.n_rows, self.block_rows)
        return [places_of(self.y[start : start + self.block_rows]) for start in starts]

    @cached_property
    def _places(self) -> dict[int, Any]:
        """Places of the normals, and of the anomalies, among all rows."""
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
        added in the order of the rows, so the result does not depend on who finishes first.
        """
        with one_blas_thread():
            if self._n_workers == 1:
                return _add_up(map(f, self.blocks()))
            bounds = np.linspace(0, len(self._labelled), self._n_workers + 1).astype(int)
            runs = [self._run(i, j, reuse=True) for i, j in itertools.pairwise(bounds)]
            workers = Threads(self._n_workers)
            return _add_up(workers.map(lambda run, _: _add_up(map(f, run)), runs))

    @property
    def _n_workers(self) -> int:
        useful = len(self._labelled) // _MIN_BLOCKS_PER_WORKER
        # joblib knows about affinity and containers, and says 1 inside a parallel grid search;
        # it reads files to find out, which small tables need not wait for.
        return 1 if useful <= 1 or is_torch_array(self.X) else min(effective_n_jobs(-1), useful)

    def take(self, rows: Any) -> RowBlocks:
        """A copy of the rows with these indices."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return RowBlocks(self.X[rows], self.y[rows], weight)

    def only_labelled(self) -> RowBlocks:
        """The same rows: to leave the pile out in each block costs next to nothing."""
        return self

    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of the rows labelled `kind` that have weight, small enough to be made dense."""
        members = self.y == kind
        if self.sample_weight is not None:
            members = members & (self.sample_weight > 0)
        return iter(self.take(places_of(members)).dense_sized())

    def without_label(self, kind: int) -> RowBlocks:
        """The same rows, those labelled `kind` unlabelled."""
        y = _without_label(self.y, kind)
        other = RowBlocks(self.X, y, self.sample_weight, self.block_rows)
        other.labels_said = True
        return other

    def dense_sized(self) -> RowBlocks:
        """The same rows in blocks small enough to be made dense, one at a time."""
        return RowBlocks(self.X, self.y, self.sample_weight, _dense_rows(self.n_features))

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` rows, divided among the label kinds by `shares`; see `Rows.sample`."""
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
        return self.take(places if _on_device(self.X) else xp.sort(places))

    def _pick(self, kind: int, count: int, quota: int, rng: np.random.Generator) -> Any:
        """Places of all rows of a kind, or of `quota` at random."""
        if count <= quota:
            return self._places_of(kind)
        if is_torch_array(self.X) and 20 * quota < count > self.n_rows // 2:
            # Of most rows a few: places are drawn and looked at, rather than all of them listed;
            # now and then one comes twice.
            xp, device = namespace(self.X), self.X.device
            source = xp.Generator(device).manual_seed(int(rng.integers(1 << 63)))
            size = (quota * self.n_rows // count,)
            drawn = xp.randint(self.n_rows, size, generator=source, device=device)
            return drawn[self.y[drawn] == kind]
        places = self._places_of(kind)
        return places[rng.choice(count, quota, replace=False, shuffle=False)]


# --- in parts -----------------------------------------------------------------------------------


class Part(Protocol):
    """Some of the rows of a source, wherever they are."""

    @property
    def n_rows(self) -> int:
        """How many rows."""

    def blocks(self) -> Iterator[Block]:
        """Read the rows, block by block: NumPy or CSR, in double precision.

        A block is good until the next one is asked for, which may take its place in memory.
        """


class Engine(Protocol):
    """Who works on the parts of a source."""

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        """function(item, its number) for each item, in their order."""


class Threads:
    """Threads of this process, each working on one item at a time.

    >>> list(Threads(2).map(lambda item, i: item * i, [5, 6, 7]))
    [0, 6, 14]
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_jobs = n_jobs

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        """function(item, its number) for each item, in their order; an error ends the work."""
        pool = ThreadPoolExecutor(self.n_jobs or effective_n_jobs(-1))
        try:
            # Threads do not inherit NumPy's error state, a context variable; they are given it.
            work = deque(
                pool.submit(contextvars.copy_context().run, function, item, i)
                for i, item in enumerate(items)
            )
            while work:
                yield work.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


class PartedRows(Rows):
    """Rows in parts that need not fit in memory together; each pass reads all of them.

    The first pass keeps the labelled rows and a random sample of the pile, at most 32 MiB of each
    kind. `passes` counts how often the rows were read.

    Parameters
    ----------
    parts : sequence of Part
        Where the rows are.
    n_features : int
        Columns of a block.
    sparse : bool
        Whether blocks are CSR.
    engine : Engine, optional
        Who works on the parts; threads by default.
    n_rows : int, optional
        Rows of all parts together, where the parts themselves are elsewhere and cannot be asked.
    """

    costly = True

    def __init__(
        self,
        parts: Sequence[Any],
        n_features: int,
        sparse: bool = False,
        engine: Engine | None = None,
        n_rows: int | None = None,
    ):
        self.parts = parts
        self.n_features = n_features
        self.sparse = sparse
        self.engine = engine or Threads()
        self.n_rows = sum(part.n_rows for part in parts) if n_rows is None else n_rows
        self.passes = 0
        self._kept: Reservoir | None = None
        self._hidden: tuple[int, ...] = ()  # kinds whose rows count as unlabelled

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry, in the order of the parts."""
        if self._kept is None:
            return self._first_pass(f)
        self.passes += 1
        visits = self.engine.map(functools.partial(_visit, f, None, self._hidden), self.parts)
        return _add_up(total for total, _ in visits)

    def _first_pass(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        self.passes += 1
        most = max(_MIN_BLOCK_ROWS, _KEPT_BYTES // (8 * self.n_features))
        kept = Reservoir(most, share=most / max(1, self.n_rows))

        def totals() -> Iterator[tuple[Any, ...]]:
            visit = functools.partial(_visit, f, kept, self._hidden)
            for total, part in self.engine.map(visit, self.parts):
                kept.join(part)
                yield total

        total = _add_up(totals())
        self._kept = kept
        return total

    @property
    def kept(self) -> Reservoir:
        """What was kept of the rows; found by a pass of its own where there was none."""
        if self._kept is None:
            self._first_pass(lambda block: ())
        assert self._kept is not None
        return self._kept

    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""
        return self.kept.totals

    def counts(self) -> LabelCounts:
        """Number of rows of each kind, whatever they weigh."""
        return self.kept.counts

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """What `g` makes of the rows of each block, joined in order."""
        self.passes += 1
        return np.concatenate(list(self.engine.map(functools.partial(_each, g), self.parts)))

    def first(self) -> Any:
        """The rows of the first block."""
        for part in self.parts:
            (X,) = self.engine.map(_first, [part])
            if X is not None:
                return X
        raise InputError("there are no rows.")

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` of the rows that were kept; see `Rows.sample`."""
        return self.kept.rows.sample(n_rows, shares, rng)

    def only_labelled(self) -> Rows:
        """The labelled rows, if all of them were kept."""
        complete = all(self.kept.complete(kind) for kind in (NORMAL, ANOMALY))
        return self.kept.labelled if complete else self

    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of the rows labelled `kind` that have weight."""
        if self.kept.complete(kind):
            yield from self.kept.rows.blocks_of(kind)
            return
        self.passes += 1
        for block in self.engine.map(functools.partial(_members, kind, self._hidden), self.parts):
            if block is not None:
                yield block

    def without_label(self, kind: int) -> Rows:
        """The same rows, those labelled `kind` unlabelled; they are read anew."""
        other = copy.copy(self)
        other._hidden, other._kept, other.passes = (*self._hidden, kind), None, 0
        other.labels_said = True
        return other


def _first(part: Part, number: int) -> Any:
    """Some rows of the first block of a part; None where it has none."""
    return next((block.X[:_FIRST_ROWS] for block in part.blocks()), None)


def _blocks(part: Part, hidden: tuple[int, ...]) -> Iterator[Block]:
    """The blocks of a part, in which rows of the kinds `hidden` have no label."""
    for block in part.blocks():
        for kind in hidden:
            block = block.without_label(kind)
        yield block


def _members(kind: int, hidden: tuple[int, ...], part: Part, number: int) -> Block | None:
    """The rows of a kind that have weight."""
    found = []
    for block in _blocks(part, hidden):
        members = block.y == kind
        if block.weight is not None:
            members &= block.weight > 0
        found.append(block.take(np.flatnonzero(members)))
    return _joined(found) if found else None


def _visit(
    f: Callable[[Block], tuple[Any, ...]],
    pattern: Reservoir | None,
    hidden: tuple[int, ...],
    part: Part,
    number: int,
) -> tuple[tuple[Any, ...], Reservoir | None]:
    """The sum of f over the blocks of a part, and what is to be kept of its rows."""
    kept = None if pattern is None else pattern.empty(number)

    def sums() -> Iterator[tuple[Any, ...]]:
        for block in _blocks(part, hidden):
            if kept is not None:
                kept.add(block)
            yield f(block)

    with one_blas_thread():
        return _add_up(sums()), kept


def _each(g: Callable[[Any], np.ndarray], part: Part, number: int) -> np.ndarray:
    with one_blas_thread():
        return np.concatenate([np.empty(0), *(g(block.X) for block in part.blocks())])


class Reservoir:
    """A random sample of the rows of each kind, `most` of them, and the totals of all rows.

    Each row draws a key between 0 and 1, and the rows with the smallest keys of their kind stay:
    so samples of parts make a sample of the whole. Of the pile, whose size is known, keys above
    `share` need not even be looked at.
    """

    def __init__(self, most: int, share: float = 1.0, seed: int = 0):
        self.most = most
        self.share = share
        self.totals = np.zeros(3)
        self._rng = np.random.default_rng(seed)
        self._counts = np.zeros(3, dtype=int)
        self._blocks: list[tuple[Block, np.ndarray]] = []
        self._held = 0

    def empty(self, number: int) -> Reservoir:
        """One like it, for the part of this number."""
        return Reservoir(self.most, self.share, number)

    def add(self, block: Block) -> None:
        """Draw keys for the rows of a block."""
        keys = self._rng.random(len(block.y))
        weight = np.ones(len(block.y)) if block.weight is None else block.weight
        for kind in KINDS:
            members = block.y == kind
            self._counts[kind] += np.count_nonzero(members)
            self.totals[kind] += weight[members].sum()
        places = np.flatnonzero((keys < self.share) | (block.y != UNLABELLED))
        self._append(block.take(places), keys[places])

    def join(self, other: Reservoir | None) -> None:
        """Take in the sample of another part."""
        if other is not None:
            self._counts += other._counts
            self.totals += other.totals
            for block, keys in other._blocks:
                self._append(block, keys)

    def _append(self, block: Block, keys: np.ndarray) -> None:
        self._blocks.append((block, keys))
        self._held += len(keys)
        if self._held > 5 * self.most:
            self._thin()

    def _thin(self) -> None:
        """Drop all but the smallest keys of each kind."""
        parts, keys = zip(*self._blocks, strict=True)
        block, key = _joined(parts), np.concatenate(keys)
        members = [np.flatnonzero(block.y == kind) for kind in KINDS]
        stay = [places[np.argsort(key[places])[: self.most]] for places in members]
        places = np.sort(np.concatenate(stay))
        self._blocks = [(block.take(places), key[places])]
        self._held = len(places)

    @cached_property
    def rows(self) -> RowBlocks:
        """The rows that stayed, in order, when all have been seen."""
        self._thin()
        block = self._blocks[0][0]
        return RowBlocks(block.X, block.y, block.weight)

    @cached_property
    def labelled(self) -> RowBlocks:
        """Those of them that have a label."""
        rows = self.rows
        return rows.take(np.flatnonzero(rows.y))

    @property
    def counts(self) -> LabelCounts:
        """Number of rows of each kind that were seen."""
        unlabelled, normal, anomaly = (int(self._counts[kind]) for kind in KINDS)
        return LabelCounts(normal, anomaly, unlabelled)

    def complete(self, kind: int) -> bool:
        """Whether all rows of a kind stayed."""
        return bool(self._counts[kind] <= self.most)


def _joined(blocks: Sequence[Block]) -> Block:
    """The rows of all blocks in one."""
    stack = sparse.vstack if sparse.issparse(blocks[0].X) else np.concatenate
    y = np.concatenate([block.y for block in blocks])
    weighted = blocks[0].weight is not None
    weight = np.concatenate([block.weight for block in blocks]) if weighted else None
    X: Any = stack([block.X for block in blocks])
    return Block(X.tocsr() if sparse.issparse(X) else X, y, weight, places_of(y))


# --- behind a feature map -----------------------------------------------------------------------


class MappedRows(Rows):
    """The features phi(x) of rows that are too many to keep their features.

    >>> rows = RowBlocks(np.arange(4.0).reshape(2, 2), np.array([1, 0], dtype=np.int8))
    >>> squares = rows.behind(lambda X: X**2, n_features=2)
    >>> squares.sum(lambda block: (block.X.sum(axis=0),))
    (array([ 4., 10.]),)
    """

    costly = True

    def __init__(self, rows: Rows, transform: Callable[[Any], Any], n_features: int):
        self.rows = rows
        self.labels_said = rows.labels_said
        self.transform = transform
        self.n_rows = rows.n_rows
        self.n_features = n_features

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`: blocks are cut so small that their features are, too."""
        transform, size = self.transform, _dense_rows(self.n_features)
        return self.rows.sum(
            lambda block: _add_up(f(_mapped(part, transform)) for part in _cut(block, size))
        )

    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""
        return self.rows.totals()

    def counts(self) -> LabelCounts:
        """Number of rows of each kind, whatever they weigh."""
        return self.rows.counts()

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """What `g` makes of the features of each block, joined in order."""
        transform = self.transform
        return self.rows.each(lambda X: g(_dense(transform(X))))

    def first(self) -> Any:
        """Features of some of the first rows."""
        return _dense(self.transform(self.rows.first()[: _dense_rows(self.n_features)]))

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """Features of a sample; see `Rows.sample`."""
        return self._materialised(self.rows.sample(n_rows, shares, rng))

    def only_labelled(self) -> Rows:
        """Features of the labelled rows, if these are in memory."""
        rows = self.rows.only_labelled()
        return self if rows is self.rows else self._materialised(rows)

    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of features of the rows labelled `kind` that have weight."""
        for block in self.rows.blocks_of(kind):
            for part in _cut(block, _dense_rows(self.n_features)):
                yield _mapped(part, self.transform)

    def without_label(self, kind: int) -> Rows:
        """The same features, those of rows labelled `kind` unlabelled."""
        return MappedRows(self.rows.without_label(kind), self.transform, self.n_features)

    def _materialised(self, rows: Any) -> RowBlocks:
        parts = [self.transform(block.X) for block in rows]
        return RowBlocks(np.concatenate([_dense(X) for X in parts]), rows.y, rows.sample_weight)


def _dense_rows(n_features: int) -> int:
    """Rows of a block that fits the cache when it is dense."""
    return max(1, _BLOCK_BYTES // (8 * n_features))


def _cut(block: Block, size: int) -> Iterator[Block]:
    """The block in pieces of at most `size` rows."""
    for start in range(0, len(block.y), size):
        yield block.take(slice(start, start + size))


def _mapped(block: Block, transform: Callable[[Any], Any]) -> Block:
    return block._replace(X=_dense(transform(block.X)))


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


# --- threads, arrays ----------------------------------------------------------------------------


_inside = contextvars.ContextVar("one_blas_thread", default=False)


class _SharedLimit:
    """BLAS libraries whose number of threads is the process's, at one while anybody is inside.

    Were each caller to restore what it found, calls that overlap in other threads would find one
    another's limit and leave it for good. So the first to enter sets it, and the last to leave
    restores what was there before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_inside:
                found = ((library, library.get_num_threads()) for library in _blas().shared)
                self._before = [(library, n) for library, n in found if n is not None and n > 1]
                for library, _ in self._before:
                    library.set_num_threads(1)
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside and self._before:
                _release_blas()
                for library, n in self._before:
                    library.set_num_threads(n)
                _release_blas()


def _release_blas() -> None:
    """Let this thread set numbers of threads: from 3.8 on, threadpoolctl heeds only the first."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


class _Blas(NamedTuple):
    """The BLAS libraries of this process."""

    shared: list[Any]
    """Those whose number of threads is the process's."""
    own: ThreadpoolController
    """Those that ask OpenMP, in which every thread has a number of its own."""


@functools.cache
def _blas() -> _Blas:
    libraries = ThreadpoolController().select(user_api="blas")
    shared = [each for each in libraries.lib_controllers if not _asks_openmp(each)]
    paths = [each.filepath for each in libraries.lib_controllers if _asks_openmp(each)]
    return _Blas(shared, libraries.select(filepath=paths))


def _asks_openmp(library: Any) -> bool:
    return getattr(library, "threading_layer", None) == "openmp"


_shared_limit = _SharedLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread; free of cost inside another such block, so enter it early."""
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    try:
        with _shared_limit, _blas().own.limit(limits=1):
            yield
    finally:
        _inside.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and, for the calling thread, OpenMP to one thread."""
    openmp = ThreadpoolController().select(user_api="openmp")
    with one_blas_thread(), openmp.limit(limits=1):
        yield


def _add_up(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Sums of the entries; the empty tuple, from what has no rows, adds nothing."""
    total: list[Any] = []
    for part in parts:
        if not total:
            # The first part may be a view of the rows themselves: it is not added to in place.
            total = [entry.copy() if isinstance(entry, np.ndarray) else entry for entry in part]
        else:
            for i, entry in enumerate(part):
                total[i] += entry
    return tuple(total)


def on_host_array(values: Any) -> Any:
    """A torch tensor as an array on the host; anything else as it is."""
    if not is_torch_array(values):
        return values
    values = values.detach().cpu()
    half = values.dtype.is_floating_point and values.element_size() < 4
    return (values.float() if half else values).numpy()  # NumPy has no bfloat16


def to_numpy(array: Any) -> np.ndarray:
    """The array in double precision on the host."""
    return np.asarray(on_host_array(array), dtype=np.float64)


def places_of(mask: Any) -> Any:
    """Places of entries that are not 0, as an array of the same kind."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.nonzero()[:, 0]


def _without_label(y: Any, kind: int) -> Any:
    return y * (y != kind)  # arrays and tensors alike; the type stays


def _on_device(X: Any) -> bool:
    return is_torch_array(X) and X.device.type != "cpu"


def _rows_per_block(X: Any) -> int:
    if _on_device(X):
        return _DEVICE_BLOCK_ROWS
    row_bytes = 8 * X.shape[1]
    if sparse.issparse(X):
        row_bytes = 12 * max(1, X.nnz // max(1, X.shape[0]))
    return max(_MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes))


def _row_slice(X: Any, rows: slice) -> Any:
    if is_torch_array(X):
        return X[rows]
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
