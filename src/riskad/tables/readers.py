"""From what is written in a column to typed values: numbers, yes and no, moments, texts.

A reader is decided by the looks of all rows (`riskad.tables.kinds`) and reads every row from then
on: those of the table, of its parts, and of tables to be scored. What it gives it reads again as
it is, so that typed rows pass for raw ones.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.cells import as_text, check_flat, check_sizes
from riskad.tables.formats.flags import FlagFormat
from riskad.tables.formats.moments import MomentFormat
from riskad.tables.formats.number_format import NumberFormat
from riskad.tables.notes import NotAsInTraining
from riskad.tables.words import say_count

__all__ = [
    "FlagReader",
    "FormatReader",
    "MomentReader",
    "NumberReader",
    "Reader",
    "TextReader",
    "to_seconds",
]

_MICROSECONDS = 1e6
_DAY = 86_400.0
_TYPED: Mapping[str, Any] = {"datetime": pl.Datetime("us"), "duration": pl.Duration("us")}


class Reader(ABC):
    """Reads a column as one kind of value."""

    word: ClassVar[str]
    """What the values are: number, flag, moment or text."""

    @abstractmethod
    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return typed values, null where there is none.

        Parameters
        ----------
        column
            As the table has it.
        first_row
            The number of its first row, for messages.
        quiet
            Whether to say nothing of cells that count as blank; those of training rows are known.

        Returns
        -------
        polars.Series
            Float64, Boolean, a type of moments, or String.
        """


@dataclass(frozen=True)
class FormatReader(Reader):
    """Reads by a format; of `tolerant` readers cells that do not fit count as blank and are said.

    A reader is tolerant where a few cells of the training rows did not fit either.
    """

    format: Any
    tolerant: bool = False

    expected: ClassVar[str]

    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return typed values; what does not fit is an error, or a blank that is said."""
        check_flat(column)
        values, bad = self.format.read(column)
        if bad.any():
            self._refuse(column, bad, first_row, quiet)
        return self.to_typed(values, column, first_row)

    def _refuse(self, column: pl.Series, bad: pl.Series, first_row: int, quiet: bool) -> None:
        row, n = int(bad.arg_max() or 0), int(bad.sum())
        cell = f"{quoted(column[row])} in row {first_row + row:,}"
        if self.tolerant:
            if not quiet:
                warnings.warn(NotAsInTraining(unread={column.name: (n, cell)}), stacklevel=4)
            return
        raise InputError(
            f"Column {column.name!r} holds {self._said}, but {cell} is not {self.expected} "
            f"(at least {say_count(n, 'such row')}). Correct it or leave it blank."
        )

    @property
    def _said(self) -> str:
        return str(self.format.describe())

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return what the format read of a column as values of the type that rows have then on."""
        return self._typed(values, column, first_row).alias(column.name)

    @abstractmethod
    def _typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return values of another type."""


@dataclass(frozen=True)
class NumberReader(FormatReader):
    """Reads numbers, in the way in which the column writes them."""

    format: NumberFormat
    word = "number"
    expected = "a number"

    def _typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        return check_sizes(values, column, first_row)


@dataclass(frozen=True)
class FlagReader(FormatReader):
    """Reads yes and no, in the words of the column."""

    format: FlagFormat
    word = "flag"
    expected = "one of these"

    @property
    def _said(self) -> str:
        no, yes = self.format.words
        return f"{no!r} and {yes!r}"

    def _typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        return values


@dataclass(frozen=True)
class MomentReader(FormatReader):
    """Reads dates and times, in the way in which the column writes them."""

    format: MomentFormat
    word = "moment"
    expected = "so written"

    def _typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        return self.typed(values)

    def typed(self, seconds: pl.Series) -> pl.Series:
        """Return seconds as moments; `to_seconds` undoes it."""
        if self.format.kind == "date":
            return (seconds / _DAY).floor().cast(pl.Int32, strict=False).cast(pl.Date)
        micro = (seconds * _MICROSECONDS).round().cast(pl.Int64, strict=False)
        if self.format.kind == "time":
            return (micro * 1000).cast(pl.Time, strict=False)
        return micro.cast(_TYPED[self.format.kind])


@dataclass(frozen=True)
class TextReader(Reader):
    """Reads every cell as the text that it is."""

    word = "text"

    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return the texts, without blanks around them."""
        return as_text(column).alias(column.name)


def to_seconds(moments: pl.Series) -> pl.Series:
    """Return typed moments as seconds: since 1970, since midnight, or long.

    >>> to_seconds(pl.Series(["1970-01-02"]).str.to_datetime(time_unit="us")).to_list()
    [86400.0]
    """
    if moments.dtype == pl.Date:
        return moments.cast(pl.Int32).cast(pl.Float64) * _DAY
    per_second = 1e9 if moments.dtype == pl.Time else _MICROSECONDS
    return moments.cast(pl.Int64).cast(pl.Float64) / per_second
