"""Where rows come from: one primitive, "sum f(block) over row blocks".

Solvers never see a whole table. They pass a function of one block to `RowSource.sum` and get back
the sum over all blocks. So memory stays bounded, and the same solver runs on any source that can do
this one thing:

==============  ==================================================================================
source          rows
==============  ==================================================================================
`RowBlocks`     in memory: arrays, CSR matrices, memory-mapped arrays, torch tensors on a device
                (`riskad.rows.memory`)
`PartedRows`    in parts, read again in each pass (`riskad.rows.parted`): Parquet files
                (`riskad.rows.parquet`), or the partitions of a Dask collection
                (`riskad.rows.cluster`)
`MappedRows`    any of these behind a feature map, which is applied block by block
                (`riskad.rows.mapped`)
==============  ==================================================================================

Steps that need single rows, such as a first guess, a threshold, or the reach of the anomalies, use
the labelled rows and a random sample of the unlabelled ones: both are in memory after the first
pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from riskad.core.labels import LabelCounts
from riskad.core.losses import namespace
from riskad.rows.arrays import places_of

if TYPE_CHECKING:
    from riskad.rows.mapped import MappedRows
    from riskad.rows.memory import RowBlocks

__all__ = ["Block", "RowSource", "add_up", "cut", "joined"]


class Block(NamedTuple):
    """Some rows, their label codes, their weights (None: all 1), and which of them are labelled."""

    X: Any
    y: Any
    weight: Any
    labelled: Any

    @property
    def marks(self) -> tuple[Any, Any, Any]:
        """Everything but the rows themselves, in the order of `RowSum`'s arguments."""
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
        every = namespace(places).arange(len(places), device=places.device)
        return Block(self.X[places], self.y[places], weight, every)


class RowSource(ABC):
    """Rows with their labels and weights, wherever they are.

    Each has `n_rows`, `n_features`, `sparse` (whether blocks are CSR), and the names of columns if
    they have any. `labels_said` is whether the meaning of labels is known, in case they are only 0
    and 1 (`riskad.core.labels`). `eps` is the rounding of a block's numbers. `costly` means that a
    pass over the rows takes much longer than one over a sample of them, however few they are;
    `few` is the number of rows up to which a sample saves nothing.
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

    def behind(self, transform: Callable[[Any], Any], n_features: int) -> MappedRows:
        """The features transform(x) of the rows, computed again in each pass."""
        from riskad.rows.mapped import MappedRows  # here: it is a source itself

        return MappedRows(self, transform, n_features)


def joined(blocks: Sequence[Block]) -> Block:
    """The rows of all blocks in one."""
    stack = sparse.vstack if sparse.issparse(blocks[0].X) else np.concatenate
    y = np.concatenate([block.y for block in blocks])
    weighted = blocks[0].weight is not None
    weight = np.concatenate([block.weight for block in blocks]) if weighted else None
    X: Any = stack([block.X for block in blocks])
    return Block(X.tocsr() if sparse.issparse(X) else X, y, weight, places_of(y))


def cut(block: Block, size: int) -> Iterator[Block]:
    """The block in pieces of at most `size` rows."""
    for start in range(0, len(block.y), size):
        yield block.take(slice(start, start + size))


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
