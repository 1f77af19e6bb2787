"""Rows in parts that need not fit in memory together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import (
    ANOMALY,
    KINDS,
    NORMAL,
    UNLABELLED,
    LabelCounts,
    ambiguity_hint,
    has_code_type,
)
from riskad.rows.engine import Engine, Threads, one_blas_thread
from riskad.rows.sources import MIN_BLOCK_ROWS, Block, RowBlocks, RowSource, add_up, joined

__all__ = ["Part", "PartitionedRows"]

_RESERVOIR_BYTES = 1 << 25  # of rows of each kind that stay in memory
_FIRST_ROWS = 1 << 13  # of the first block: it may travel between processes


class Part(Protocol):
    """Some of the rows of a source, wherever they are."""

    @property
    def n_rows(self) -> int: ...

    def blocks(self) -> Iterator[Block]:
        """Read the rows, block by block: NumPy or CSR, in double precision.

        A block is valid until the next one is requested, which may reuse its memory.
        """


class PartitionedRows(RowSource):
    """Rows in parts that need not fit in memory together; each pass reads all of them.

    The first pass keeps the labelled rows and a random sample of the unlabelled rows, at most 32
    MiB of each kind. `passes` counts how often the rows were read.

    Parameters
    ----------
    parts : sequence of Part
        The parts, on which an `engine` works: threads by default.
    n_features, sparse : int, bool
        Columns of a block, and whether it is CSR.
    n_rows : int, optional
        Number of rows of all parts together, if the parts are elsewhere and cannot report it.
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
        self._reservoir: Reservoir | None = None

    def sum(self, f: Callable[[Block], tuple[Any, ...]]) -> tuple[Any, ...]:
        self.passes += 1
        if self._reservoir is not None:
            visits = self.engine.map(functools.partial(_visit, f, None), self.parts)
            return add_up(total for total, _ in visits)
        # At least a few hundred rows of each kind, however wide the table is.
        most = max(MIN_BLOCK_ROWS, _RESERVOIR_BYTES // (8 * self.n_features))
        reservoir = Reservoir(most, share=most / max(1, self.n_rows))

        def totals() -> Iterator[tuple[Any, ...]]:
            visit = functools.partial(_visit, f, reservoir)
            # In the order of the parts: the sample is the same on any cluster.
            for total, part in self.engine.map(visit, self.parts):
                reservoir.join(part)
                yield total

        # Consumes the generator, and with it fills the reservoir: one pass does both.
        total = add_up(totals())
        hint = ambiguity_hint(reservoir.counts)
        # Labels of the type int16 were translated, and are not ambiguous.
        if hint and not has_code_type(reservoir.rows.y):
            raise InputError(hint)
        self._reservoir = reservoir
        return total

    @property
    def reservoir(self) -> Reservoir:
        """The rows in memory; drawn in a separate pass if there was none yet."""
        if self._reservoir is None:
            self.sum(lambda block: ())
        assert self._reservoir is not None
        return self._reservoir

    def totals(self) -> np.ndarray:
        return self.reservoir.totals

    def counts(self) -> LabelCounts:
        return self.reservoir.counts

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        def results(part: Part, number: int) -> np.ndarray:
            with one_blas_thread():
                # A part may be empty, and concatenating nothing is an error.
                return np.concatenate([np.empty(0), *(g(block.X) for block in part.blocks())])

        self.passes += 1
        return np.concatenate(list(self.engine.map(results, self.parts)))

    def first(self) -> Any:
        def rows(part: Part, number: int) -> Any:
            return next((block.X[:_FIRST_ROWS] for block in part.blocks()), None)

        for part in self.parts:
            (X,) = self.engine.map(rows, [part])
            if X is not None:
                return X
        raise InputError("there are no rows.")

    def sample(self, n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> RowBlocks:
        return self.reservoir.rows.sample(n_rows, shares, rng)

    def only_labelled(self) -> RowSource:
        # Only if none was dropped: a sum over a sample of them would be another sum.
        complete = all(self.reservoir.complete(kind) for kind in (NORMAL, ANOMALY))
        return self.reservoir.labelled if complete else self

    def blocks_of(self, kind: int) -> Iterator[Block]:
        if self.reservoir.complete(kind):
            yield from self.reservoir.rows.blocks_of(kind)
            return
        self.passes += 1
        for block in self.engine.map(functools.partial(_members, kind), self.parts):
            if block is not None:
                yield block


class Reservoir:
    """A random sample of the rows of each kind, `most` of them, and the totals of all rows.

    Each row draws a key between 0 and 1, and the rows with the smallest keys of their kind are
    kept: so samples of parts make a sample of the whole. For the unlabelled rows, whose number is
    known, keys above `share` need not be considered.
    """

    def __init__(self, most: int, share: float = 1.0, seed: int = 0):
        self.most = most
        self.share = share
        self.totals = np.zeros(3)
        self._rng = np.random.default_rng(seed)
        self._counts = np.zeros(3, dtype=int)
        self._blocks: list[tuple[Block, np.ndarray]] = []
        self._n_stored = 0

    def add(self, block: Block) -> None:
        """Draw keys for the rows of a block."""
        # A key for every row, also for those that cannot stay: the draws must not depend on the
        # labels.
        keys = self._rng.random(len(block.y))
        weight = np.ones(len(block.y)) if block.weight is None else block.weight
        for kind in KINDS:
            members = block.y == kind
            self._counts[kind] += np.count_nonzero(members)
            self.totals[kind] += weight[members].sum()
        # Almost all unlabelled rows go here, before they are copied.
        places = np.flatnonzero((keys < self.share) | (block.y != UNLABELLED))
        self._append(block.take(places), keys[places])

    def join(self, other: Reservoir | None) -> None:
        """Add the sample of another part."""
        if other is not None:
            # Counts and totals are exact, of all rows; only the rows themselves are sampled.
            self._counts += other._counts
            self.totals += other.totals
            for block, keys in other._blocks:
                self._append(block, keys)

    def _append(self, block: Block, keys: np.ndarray) -> None:
        self._blocks.append((block, keys))
        self._n_stored += len(keys)
        # Up to three kinds of `most` rows stay: thinning, which sorts, is rare, and memory bounded.
        if self._n_stored > 5 * self.most:
            self._thin()

    def _thin(self) -> None:
        """Drop all but the smallest keys of each kind."""
        parts, keys = zip(*self._blocks, strict=True)
        block, key = joined(parts), np.concatenate(keys)
        members = [np.flatnonzero(block.y == kind) for kind in KINDS]
        smallest = [places[np.argsort(key[places])[: self.most]] for places in members]
        places = np.sort(np.concatenate(smallest))
        self._blocks = [(block.take(places), key[places])]
        self._n_stored = len(places)

    @cached_property
    def rows(self) -> RowBlocks:
        """The kept rows, in order, when all have been seen."""
        self._thin()
        block = self._blocks[0][0]
        return RowBlocks(block.X, block.y, block.weight)

    @cached_property
    def labelled(self) -> RowBlocks:
        """The kept rows that have a label."""
        return self.rows.take(np.flatnonzero(self.rows.y))

    @property
    def counts(self) -> LabelCounts:
        """Number of rows of each kind that were seen."""
        return LabelCounts(*(int(self._counts[kind]) for kind in (NORMAL, ANOMALY, UNLABELLED)))

    def complete(self, kind: int) -> bool:
        """Whether all rows of a kind were kept."""
        return bool(self._counts[kind] <= self.most)


def _members(kind: int, part: Part, number: int) -> Block | None:
    """The rows of a kind that have weight."""
    blocks = []
    for block in part.blocks():
        members = block.y == kind
        if block.weight is not None:
            members &= block.weight > 0
        blocks.append(block.take(np.flatnonzero(members)))
    return joined(blocks) if blocks else None


def _visit(
    f: Callable[[Block], tuple[Any, ...]],
    pattern: Reservoir | None,
    part: Part,
    number: int,
) -> tuple[tuple[Any, ...], Reservoir | None]:
    """The sum of f over the blocks of a part, and the rows to keep."""
    # The number of the part is its seed: parts draw differently, and the same on every machine.
    reservoir = None if pattern is None else Reservoir(pattern.most, pattern.share, seed=number)

    def sums() -> Iterator[tuple[Any, ...]]:
        for block in part.blocks():
            if reservoir is not None:
                reservoir.add(block)
            yield f(block)

    with one_blas_thread():
        return add_up(sums()), reservoir
