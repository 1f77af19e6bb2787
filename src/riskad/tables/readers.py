"""From what is written in a column to typed values: numbers, yes and no, moments, texts.

A reader is decided by the looks of all rows (`riskad.tables.kinds`) and reads every row from then
on: those of the table, of its parts, and of tables to be scored. What it gives it reads again as
it is, so that typed rows pass for raw ones.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.cells import as_text, check_flat, check_sizes
from riskad.tables.formats.flags import FlagFormat
from riskad.tables.formats.moments import MomentFormat
from riskad.tables.formats.numbers import NumberFormat
from riskad.tables.notes import NotAsInTraining
from riskad.tables.words import say_count

_MICROSECONDS = 1e6
_DAY = 86_400.0


class Reader(ABC):
    """Reads a column as one kind of value."""

    word: ClassVar[str]
    """What the values are: number, flag, moment or text."""

    @abstractmethod
    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return typed values (Float64, Boolean, moments or String), null where there is none.

        `first_row` is the number of the first row, for messages; where `quiet`, nothing is said of
        cells that count as blank, as those of training rows are known.
        """


@dataclass(frozen=True)
class TextReader(Reader):
    """Reads every cell as the text that it is."""

    word = "text"

    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return the texts, without spaces around them."""
        return as_text(column).alias(column.name)


@dataclass(frozen=True)
class FormatReader(Reader):
    """Reads by a format; for a `tolerant` reader cells that do not fit are blank, with a warning.

    A reader is tolerant where a few cells of the training rows did not fit either.
    """

    format: Any
    tolerant: bool = False

    expected: ClassVar[str]

    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return typed values; what does not fit is an error, or a blank with a warning."""
        check_flat(column)
        values, bad = self.format.read(column)
        if bad.any():
            row, n = int(bad.arg_max() or 0), int(bad.sum())
            cell = f"{quoted(column[row])} in row {first_row + row:,}"
            if not self.tolerant:
                raise InputError(
                    f"Column {column.name!r} holds {self.format.describe()}, but {cell} is not "
                    f"{self.expected} (at least {say_count(n, 'such row')}). Correct it or leave "
                    "it blank."
                )
            if not quiet:
                warnings.warn(NotAsInTraining(unread={column.name: (n, cell)}), stacklevel=3)
        return self.to_typed(values, column, first_row)

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return what the format read of a column as values of the type that rows have then on."""
        return values.alias(column.name)


@dataclass(frozen=True)
class NumberReader(FormatReader):
    """Reads numbers, in the way in which the column writes them."""

    format: NumberFormat
    word = "number"
    expected = "a number"

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return numbers to compute with."""
        return check_sizes(values, column, first_row).alias(column.name)


@dataclass(frozen=True)
class FlagReader(FormatReader):
    """Reads yes and no, in the words of the column."""

    format: FlagFormat
    word = "flag"
    expected = "one of these"


@dataclass(frozen=True)
class MomentReader(FormatReader):
    """Reads dates and times, in the way in which the column writes them."""

    format: MomentFormat
    word = "moment"
    expected = "so written"

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return seconds as moments."""
        return self.typed(values).alias(column.name)

    def typed(self, seconds: pl.Series) -> pl.Series:
        """Return seconds as moments; `to_seconds` undoes it."""
        if self.format.kind == "date":
            return (seconds / _DAY).floor().cast(pl.Int32, strict=False).cast(pl.Date)
        micro = (seconds * _MICROSECONDS).round().cast(pl.Int64, strict=False)
        if self.format.kind == "time":
            return (micro * 1000).cast(pl.Time, strict=False)
        return micro.cast(
            pl.Duration("us") if self.format.kind == "duration" else pl.Datetime("us")
        )


def to_seconds(moments: pl.Series) -> pl.Series:
    """Return typed moments as seconds: since 1970, since midnight, or long.

    >>> to_seconds(pl.Series(["1970-01-02"]).str.to_datetime(time_unit="us")).to_list()
    [86400.0]
    """
    if moments.dtype == pl.Date:
        return moments.cast(pl.Int32).cast(pl.Float64) * _DAY
    per_second = 1e9 if moments.dtype == pl.Time else _MICROSECONDS
    return moments.cast(pl.Int64).cast(pl.Float64) / per_second
