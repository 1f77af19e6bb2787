"""The methods of every column of a prepared table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.storage.fields import NAME, TEXT, Fields, ListOf
from riskad.tables.cells import BLANK, Value
from riskad.tables.matrices import Matrix
from riskad.tables.notes import NotAsInTraining
from riskad.tables.readers import Reader

__all__ = ["MEDIAN_ROWS", "PreparedColumn", "UsedColumn", "thinned", "with_gaps"]

MEDIAN_ROWS = 1 << 16
"""Rows from which medians are computed; more rows hardly change them."""


@dataclass(frozen=True)
class PreparedColumn(ABC):
    """A column as `TablePreparer.fit` found it.

    Parameters
    ----------
    name
        The column's name in the table.
    kind
        Its kind: number, flag, category, categories, date, datetime, time, duration, text, list,
        identifier, constant or unusable.
    remarks
        What the user should know about how it was read.
    """

    name: str
    kind: str
    remarks: list[str] = field(default_factory=list)

    used: ClassVar[bool] = True

    _state_fields: ClassVar[Fields] = {"name": NAME, "kind": TEXT, "remarks": ListOf(TEXT)}

    @abstractmethod
    def made_of_it(self) -> str:
        """Describe in a few words what becomes of the column."""

    def notes(self) -> list[str]:
        """List what the user should know about it."""
        return [f"{self.name}: {remark}" for remark in self.remarks]


@dataclass(frozen=True)
class UsedColumn(PreparedColumn):
    """A column that a model learns from. `values` are those from its reader."""

    @property
    @abstractmethod
    def reader(self) -> Reader:
        """The reader of the column."""

    @property
    @abstractmethod
    def usual(self) -> Value:
        """Its usual value, in the form of `plain`."""

    @property
    def given_kind(self) -> str:
        """Return the kind by which `TablePreparer(kinds=...)` finds it again in parsed rows."""
        return self.kind

    def usual_of(self, values: pl.Series) -> Value:
        """Return the usual value: the median number, or the most frequent text.

        A blank is a text like others, but the usual number only if more than half are blank.
        """
        plain = pl.Series(self.plain(values).tolist(), strict=False)
        if plain.dtype in (pl.String, pl.Null):
            counts = plain.cast(pl.String).fill_null(BLANK).alias("value").value_counts(name="rows")
            return str(counts.sort(["rows", "value"], descending=[True, False])["value"][0])
        known = plain.fill_nan(None).drop_nulls()
        if 2 * len(known) < len(plain):
            return None
        return float(cast(float, known.median()))

    # --- for detectors -------------------------------------------------------------------

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of its columns in the matrix."""

    def n_columns(self) -> int:
        """Return the number of these columns."""
        return len(self.names())

    def n_filled(self) -> int:
        """Return how many of these columns a row usually fills: the others are 0."""
        return self.n_columns()

    @abstractmethod
    def block(self, values: pl.Series) -> Matrix:
        """Return its columns of the matrix, without gaps."""

    @abstractmethod
    def frame_names(self) -> list[str]:
        """Return the names of its columns in the frame, for detectors that take frames."""

    @abstractmethod
    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return its columns of the frame: Float64 or String, null for a gap."""

    def news(self, values: pl.Series) -> NotAsInTraining | None:
        """Return what these values have that those of the fit did not have."""
        return None

    # --- for people ----------------------------------------------------------------------

    extremes: ClassVar[tuple[str, str] | None] = None
    """Words for small and large values; None if values have no order."""

    @abstractmethod
    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return values to compare: numbers with NaN for gaps, or texts with None."""

    @abstractmethod
    def typed(self, values: list[Value]) -> pl.Series:
        """Return values of `plain` in the form of the reader."""

    def listed(self) -> str:
        """Return its name for a list."""
        return self.name

    def in_words(self, value: Value) -> Value:
        """Return a plain value as the user knows it: a number or a text."""
        return value

    def ends(self) -> tuple[str, str] | None:
        """Return words for small and large values of this column."""
        return self.extremes

    # --- for graphs ----------------------------------------------------------------------

    @abstractmethod
    def onnx_input(self, g: Any) -> str:
        """Add the column to the inputs of an ONNX graph."""

    @abstractmethod
    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Return the nodes that give `block`."""

    @abstractmethod
    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Return the nodes that give `frame_columns`, by their names."""

    @abstractmethod
    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return values like those of the fit, with gaps and new ones, to test a graph on."""


def thinned(values: pl.Series, most: int = 20_000) -> pl.Series:
    """Return at most `most` of the values, evenly spread over the rows."""
    return values.gather_every(max(1, -(-len(values) // most)))


def with_gaps(values: NDArray[np.float64], rng: np.random.Generator) -> list[Value]:
    """Return numbers, a tenth of them replaced by gaps."""
    gone = rng.random(len(values)) < 0.1
    return [None if gap else float(v) for v, gap in zip(values, gone, strict=True)]
