"""A random sample of the rows of each kind, drawn in one pass."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from riskad.core.labels import KINDS, UNLABELLED, LabelCounts
from riskad.rows.memory import RowBlocks
from riskad.rows.source import Block, joined

__all__ = ["Reservoir"]


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
        self._held = 0

    def empty(self, number: int) -> Reservoir:
        """An empty reservoir with the same settings, for the part with this number."""
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
        """Add the sample of another part."""
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
        block, key = joined(parts), np.concatenate(keys)
        members = [np.flatnonzero(block.y == kind) for kind in KINDS]
        stay = [places[np.argsort(key[places])[: self.most]] for places in members]
        places = np.sort(np.concatenate(stay))
        self._blocks = [(block.take(places), key[places])]
        self._held = len(places)

    @cached_property
    def rows(self) -> RowBlocks:
        """The kept rows, in order, when all have been seen."""
        self._thin()
        block = self._blocks[0][0]
        return RowBlocks(block.X, block.y, block.weight)

    @cached_property
    def labelled(self) -> RowBlocks:
        """The kept rows that have a label."""
        rows = self.rows
        return rows.take(np.flatnonzero(rows.y))

    @property
    def counts(self) -> LabelCounts:
        """Number of rows of each kind that were seen."""
        unlabelled, normal, anomaly = (int(self._counts[kind]) for kind in KINDS)
        return LabelCounts(normal, anomaly, unlabelled)

    def complete(self, kind: int) -> bool:
        """Whether all rows of a kind were kept."""
        return bool(self._counts[kind] <= self.most)
