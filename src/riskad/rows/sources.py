"""Where rows come from: one primitive, "sum f(block) over row blocks".

Solvers pass a function of one block to `RowSource.sum` and get back the sum over all blocks. So
memory stays bounded, and the same solver runs on any source that can do this one thing:

=================  ===============================================================================
source             rows
=================  ===============================================================================
`RowBlocks`        in memory: arrays, CSR matrices, memory-mapped arrays, torch tensors on a device
`PartitionedRows`  in parts, read again in each pass (`riskad.rows.partitions`): Parquet files
                   (`riskad.rows.parquet`), or the partitions of a Dask collection or of a Spark
                   dataframe (`riskad.rows.cluster`)
`MappedRows`       any of these behind a feature map, which is applied block by block
=================  ===============================================================================

Steps that need single rows, such as a first guess, a threshold, or the reach of the anomalies, use
the labelled rows and a random sample of the unlabelled ones: both are in memory after the first
pass.
"""

from __future__ import annotations

import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, LabelCounts
from riskad.core.losses import namespace
from riskad.rows.arrays import on_device, places_of, row_slice, to_dense, to_numpy
from riskad.rows.engine import Threads, one_blas_thread, usable_cpus

# Small enough to stay in cache, large enough that Python's cost per block is negligible.
_BLOCK_BYTES = 1 << 23
MIN_BLOCK_ROWS = 256
# On a device a block is added up in its own precision, and may be copied: a few million rows.
_DEVICE_BLOCK_ROWS = 1 << 22
_MIN_BLOCKS_PER_WORKER = 4  # a larger number keeps tables of middle size to one thread
# On a device a sample need not grow with the rows, and a pass costs no more than its request.
_DEVICE_SAMPLE_ROWS = 1 << 17
_DEVICE_FEW_ROWS = 1 << 19


class Block(NamedTuple):
    """Some rows, their label codes, their weights (None: all 1), and which of them are labelled."""

    X: Any
    y: Any
    weight: Any
    labelled: Any

    @property
    def marks(self) -> tuple[Any, Any, Any]:
        """The arguments of `RowSum` after the scores."""
        return self.y, self.weight, self.labelled

    def take(self, places: Any) -> Block:
        """These rows of the block."""
        y = self.y[places]
        weight = None if self.weight is None else self.weight[places]
        return Block(self.X[places], y, weight, places_of(y))

    def only_labelled(self) -> Block:
        """Its labelled rows; unlike `take` this does not wait for a device."""
        places = self.labelled
        weight = None if self.weight is None else self.weight[places]
        all_rows = namespace(places).arange(len(places), device=places.device)
        return Block(self.X[places], self.y[places], weight, all_rows)


class RowSource(ABC):
    """Rows with their labels and weights, wherever they are."""

    n_rows: int
    n_features: int
    sparse: bool = False  # whether blocks are CSR
    feature_names: Sequence[str] | None = None
    # Whether a pass over the rows takes much longer than one over a sample, however few they are.
    costly: bool = False
    few: int = 0  # rows up to which a sample saves nothing
    eps: float = float(np.finfo(np.float64).eps)  # the rounding of a block's numbers

    @abstractmethod
    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry: one pass over the rows."""

    @abstractmethod
    def totals(self) -> np.ndarray:
        """Total weight of each kind, indexed by label code."""

    @abstractmethod
    def counts(self) -> LabelCounts:
        """Number of rows of each kind, regardless of weight."""

    @abstractmethod
    def first(self) -> Any:
        """The rows of the first block."""

    @abstractmethod
    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        """Apply `g` to the rows of each block, a number for each row; results joined in order."""

    @abstractmethod
    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        """About `n_rows` rows, divided among the label kinds by `shares` (indexed by code).

        Risks average within each kind, so a risk of the sample estimates the risk of all rows
        however unevenly the kinds were sampled. What a rare kind cannot use goes to the others;
        each kind that has a share and rows is in the sample.
        """

    @abstractmethod
    def only_labelled(self) -> RowSource:
        """The same rows for sums in which the unlabelled rows do not count: without it, if that is
        cheap.
        """

    @abstractmethod
    def blocks_of(self, kind: int) -> Iterator[Block]:
        """Blocks of the rows labelled `kind` that have weight, small enough to be made dense."""


def joined(blocks: Sequence[Block]) -> Block:
    """The rows of all blocks in one."""
    stack = sparse.vstack if sparse.issparse(blocks[0].X) else np.concatenate
    y = np.concatenate([block.y for block in blocks])
    weighted = blocks[0].weight is not None
    weight = np.concatenate([block.weight for block in blocks]) if weighted else None
    X: Any = stack([block.X for block in blocks])
    return Block(X.tocsr() if sparse.issparse(X) else X, y, weight, places_of(y))


def add_up(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
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


def dense_rows(n_features: int) -> int:
    """Rows of a block that fits the cache when it is dense."""
    return max(1, _BLOCK_BYTES // (8 * n_features))


def rows_per_block(X: Any) -> int:
    """Rows of X in a block: as many as fit the cache."""
    if on_device(X):
        return _DEVICE_BLOCK_ROWS
    row_bytes = 8 * X.shape[1]
    if sparse.issparse(X):
        # A stored entry is a number of 8 bytes and an index of 4.
        row_bytes = 12 * max(1, X.nnz // max(1, X.shape[0]))
    return max(MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes))


class RowBlocks(RowSource):
    """Rows in memory: an array, a CSR matrix or a torch tensor, with int16 label codes.

    Blocks are views; float32 rows of an array are widened block by block, those of a tensor are
    unchanged. A row of weight w counts as w rows in totals and weighted sums.

    >>> rows = RowBlocks(np.arange(6.0).reshape(3, 2), np.array([1, 0, -1], dtype=np.int16))
    >>> rows.sum(lambda block: (block.X.sum(axis=0), float(len(block.y))))
    (array([6., 9.]), 3.0)
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, block_rows: int | None = None):
        self.X = X
        self.y = y
        self.sample_weight = sample_weight
        self.n_rows, self.n_features = X.shape
        self.block_rows = block_rows or rows_per_block(X)
        if is_torch_array(X):  # arrays are widened
            self.eps = float(namespace(X).finfo(X.dtype).eps)
        if on_device(X):
            self.few = _DEVICE_FEW_ROWS

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        return sparse.issparse(self.X)

    def totals(self) -> np.ndarray:
        weights = self.sample_weight
        if weights is None:
            return np.array([self._counts[kind] for kind in KINDS], dtype=float)
        return np.array([float(weights[self.y == kind].sum()) for kind in KINDS])

    def counts(self) -> LabelCounts:
        return LabelCounts(*(self._counts[kind] for kind in (NORMAL, ANOMALY, UNLABELLED)))

    def first(self) -> Any:
        return next(iter(self)).X

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        parts = [g(block.X) for block in self]
        return namespace(parts[0]).concat(parts)

    def __iter__(self) -> Iterator[Block]:
        return self.blocks(reuse=False)

    def blocks(
        self, first: int = 0, last: int | None = None, *, reuse: bool = True
    ) -> Iterator[Block]:
        """Blocks number `first` to `last`; with `reuse`, widened rows share the same memory."""
        widened = isinstance(self.X, np.ndarray) and self.X.dtype != np.float64
        place = np.empty((self.block_rows, self.n_features)) if reuse and widened else None
        for i in range(len(self._labelled))[first:last]:
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

    @cached_property
    def _counts(self) -> dict[int, int]:
        counts = {kind: len(places) for kind, places in self._places.items()}
        return {UNLABELLED: self.n_rows - sum(counts.values()), **counts}

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add up the tuples `f(block)`, entry by entry.

        Cores work on runs of blocks, each with single-threaded BLAS: threads inside products of
        this size gain nothing and wait for each other when cores are busy. The partial sums are
        added in the order of the rows, so the result does not depend on which core finishes first.
        """
        n_blocks = len(self._labelled)
        n_workers = n_blocks // _MIN_BLOCKS_PER_WORKER
        # `usable_cpus` reads files to find out, which small tables need not wait for.
        if n_workers > 1 and not is_torch_array(self.X):
            n_workers = min(usable_cpus(), n_workers)
        else:
            n_workers = 1
        with one_blas_thread():
            if n_workers == 1:
                return add_up(map(f, self.blocks()))
            # Consecutive blocks for each worker: rows are read in the order in which they lie in
            # memory.
            bounds = np.linspace(0, n_blocks, n_workers + 1).astype(int)
            runs = [self.blocks(i, j) for i, j in itertools.pairwise(bounds)]
            sums = Threads(n_workers).map(lambda run, _: add_up(map(f, run)), runs)
            return add_up(sums)

    def take(self, rows: Any) -> RowBlocks:
        """A copy of the rows with these indices."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return RowBlocks(self.X[rows], self.y[rows], weight)

    def only_labelled(self) -> RowBlocks:
        return self  # leaving out the unlabelled rows in each block costs almost nothing

    def blocks_of(self, kind: int) -> Iterator[Block]:
        members = self.y == kind
        if self.sample_weight is not None:
            members = members & (self.sample_weight > 0)
        rows = self.take(places_of(members))
        rows.block_rows = dense_rows(self.n_features)
        return iter(rows)

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        if is_torch_array(self.X):
            n_rows = min(n_rows, _DEVICE_SAMPLE_ROWS)
        # Kinds without a share would only take room: the risk does not use them.
        counts = {kind: self._counts[kind] for kind in KINDS if shares[kind] > 0}
        # Kinds that cannot fill their share come first: what they leave goes to the others.
        order = sorted(counts, key=lambda kind: counts[kind] / shares[kind])
        chosen: list[Any] = []
        remaining, open_share = n_rows, sum(shares[kind] for kind in order)
        for kind in order:
            # At least one: a kind that the risk uses must be in the sample, however small its
            # share.
            quota = max(1, int(np.ceil(remaining * shares[kind] / open_share)))
            chosen.append(self._pick(kind, quota, rng))
            remaining -= len(chosen[-1])
            open_share -= shares[kind]
        xp = namespace(chosen[0])
        places = xp.concat(chosen)
        # Neighbours in memory are read together; a device reads rows from anywhere.
        return self.take(places if on_device(self.X) else xp.sort(places))

    def _pick(self, kind: int, quota: int, rng: np.random.Generator) -> Any:
        """Positions of all rows of a kind, or of `quota` at random."""
        count = self._counts[kind]
        if is_torch_array(self.X) and self.n_rows // 2 < count > 20 * quota:
            # A few out of most rows: positions are drawn and checked instead of listing all;
            # occasionally one is drawn twice.
            xp, device = namespace(self.X), self.X.device
            source = xp.Generator(device).manual_seed(int(rng.integers(1 << 63)))
            size = (quota * self.n_rows // count,)
            places = xp.randint(self.n_rows, size, generator=source, device=device)
            return places[self.y[places] == kind]
        places = places_of(self.y == kind) if kind == UNLABELLED else self._places[kind]
        if count <= quota:
            return places
        return places[rng.choice(count, quota, replace=False, shuffle=False)]


def tensor_rows(X: Any, codes: Any, weight: np.ndarray | None) -> RowBlocks:
    """Codes and weights beside rows on a device."""
    xp = array_namespace(X)
    if is_torch_array(codes):
        codes = codes.to(X.device, xp.int16)
    else:
        codes = xp.asarray(codes, dtype=xp.int16, device=X.device)
    if weight is not None:
        weight = xp.asarray(weight, dtype=X.dtype, device=X.device)
    return RowBlocks(X, codes, weight)


class MappedRows(RowSource):
    """The features phi(x) of rows, computed again in each pass: too many rows to store them.

    >>> rows = RowBlocks(np.arange(4.0).reshape(2, 2), np.array([1, 0], dtype=np.int16))
    >>> squares = MappedRows(rows, lambda X: X**2, n_features=2)
    >>> squares.sum(lambda block: (block.X.sum(axis=0),))
    (array([ 4., 10.]),)
    """

    costly = True

    def __init__(self, rows: RowSource, transform: Callable[[Any], Any], n_features: int):
        self.rows = rows
        self.transform = transform
        self.n_rows = rows.n_rows
        self.n_features = n_features

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        # Without `self`, whose rows would travel to the workers of a cluster.
        transform, size = self.transform, dense_rows(self.n_features)
        return self.rows.sum(lambda block: add_up(map(f, _mapped(block, transform, size))))

    def totals(self) -> np.ndarray:
        return self.rows.totals()

    def counts(self) -> LabelCounts:
        return self.rows.counts()

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        transform = self.transform
        return self.rows.each(lambda X: g(to_dense(transform(X))))

    def first(self) -> Any:
        return to_dense(self.transform(self.rows.first()[: dense_rows(self.n_features)]))

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        return self._materialised(self.rows.sample(n_rows, shares, rng))

    def only_labelled(self) -> RowSource:
        rows = self.rows.only_labelled()
        # If nothing was left out, storing the features of all rows is what this class avoids.
        return self if rows is self.rows else self._materialised(rows)

    def blocks_of(self, kind: int) -> Iterator[Block]:
        for block in self.rows.blocks_of(kind):
            yield from _mapped(block, self.transform, dense_rows(self.n_features))

    def _materialised(self, rows: Any) -> RowBlocks:
        # Block by block: a feature map of a sparse block may be dense and wide.
        X = np.concatenate([to_dense(self.transform(block.X)) for block in rows])
        return RowBlocks(X, rows.y, rows.sample_weight)


def _mapped(block: Block, transform: Callable[[Any], Any], size: int) -> Iterator[Block]:
    """The features of a block, in blocks of at most `size` rows."""
    for start in range(0, len(block.y), size):
        part = block.take(slice(start, start + size))
        yield part._replace(X=to_dense(transform(part.X)))


# --- what detectors take besides a table in memory -----------------------------------------------


def unpacked(X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """Rows that are in memory, with their labels and weights, as the table that they are.

    So they pass the same checks as a table. Anything else is returned as it is.
    """
    if not isinstance(X, RowBlocks):
        return X, y, sample_weight
    _refuse_labels(X, y, sample_weight)
    return X.X, X.y, X.sample_weight


def as_rows(X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
    """X as a source of rows if it is one, or a Dask collection; None if it is a table in memory.

    A source carries its own labels and weights.
    """
    if isinstance(X, RowSource):
        _refuse_labels(X, y, sample_weight)
        return X
    dask = sys.modules.get("dask")  # a user with a collection has imported it
    if dask is not None and dask.is_dask_collection(X):
        from riskad.rows.cluster import DaskRows

        return DaskRows(X, y, sample_weight)
    return None


def _refuse_labels(rows: RowSource, y: Any, sample_weight: Any) -> None:
    if y is not None or sample_weight is not None:
        raise InputError(
            f"{type(rows).__name__} brings its own labels and weights: call fit(rows) alone."
        )


def at_most(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows, divided among the kinds by `shares`; on a device they stay."""
    if not isinstance(rows, RowBlocks) or rows.n_rows > n_rows:
        return rows.sample(n_rows, shares, np.random.default_rng(seed))
    return rows


def on_host(rows: RowBlocks) -> RowBlocks:
    """The rows in the computer's own memory, if they are on a device."""
    if rows.sparse or isinstance(rows.X, np.ndarray):
        return rows
    weight = None if rows.sample_weight is None else to_numpy(rows.sample_weight)
    return RowBlocks(to_numpy(rows.X), to_numpy(rows.y).astype(np.int16), weight)


def sampled(rows: RowSource, most: int, seed: int) -> RowBlocks:
    """At most about `most` rows on the host: labelled ones up to a half, the others unlabelled."""
    counts = rows.counts()
    sizes = np.zeros(3)
    for kind, count in ((NORMAL, counts.normal), (ANOMALY, counts.anomaly)):
        # A quarter for each labelled kind: with very many labels the unlabelled rows keep their
        # half.
        sizes[kind] = min(count, most / 4)
    sizes[UNLABELLED] = min(counts.unlabelled, most - sizes.sum())
    return on_host(at_most(rows, int(sizes.sum()), sizes, seed))


def refuse_non_finite_rows(rows: RowSource, names: Any) -> None:
    """Say which columns of a source hold NaN or infinity."""
    (non_finite,) = rows.sum(lambda block: ((~np.isfinite(to_dense(block.X))).sum(axis=0),))
    if not non_finite.any():
        raise InputError(
            "the rows have values so large that sums overflow to infinity; rescale their columns."
        )
    column = int(np.flatnonzero(non_finite)[0])
    where = f"column {column}" if names is None else f"column {names[column]!r}"
    others = f", and {n} other(s)" if (n := np.count_nonzero(non_finite) - 1) else ""
    raise InputError(
        f"the rows hold missing values (NaN) or infinities: {int(non_finite[column]):,} in {where}"
        f"{others}. Fill gaps first; riskad.fit_table does so by itself."
    )


def sample_in_memory(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows on the host, divided among the kinds by `shares`.

    Rows without weight are never among them.
    """
    if isinstance(rows, RowBlocks):
        # Before sampling, so that rows without weight take no places; and after, for other sources.
        rows = _with_weight(rows)
    return _with_weight(on_host(at_most(rows, n_rows, shares, seed)))


def _with_weight(rows: RowBlocks) -> RowBlocks:
    if rows.sample_weight is None or bool((rows.sample_weight > 0).all()):
        return rows
    return rows.take(places_of(rows.sample_weight > 0))
