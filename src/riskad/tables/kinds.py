"""What kind of column each is, and what a pass over all rows counts in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import polars as pl

from riskad.core.checks import InputError, describe_column_difference
from riskad.tables.cells import (
    as_numbers,
    as_text,
    has_leading_zeros,
    is_blank,
    is_temporal,
    parse_numbers,
)
from riskad.tables.sketches import Numbers, RowSample, Texts

__all__ = [
    "Fold",
    "Look",
    "ReadOnce",
    "count_cells",
    "fold_batches",
    "join_counts",
    "join_looks",
    "look_at",
    "numbers_rows",
]

_IDENTIFIER_NAME = re.compile(
    r"(^|[\W_])[iI][dD]$|[a-z]I[dD]$|^(index|row)$|^Unnamed: \d+$|^$", re.ASCII
)
_COUNTER_ROWS = 20  # fewer consecutive numbers than this may well be a measurement
# What a table that comes in parts may take: values of a column that are told apart, rows drawn at
# random for medians, and cells of these.
_MOST_VALUES = 1 << 15
_MOST_SAMPLED = 1 << 16
_FEWEST_SAMPLED = 1 << 12
_MOST_CELLS = 1 << 23

T = TypeVar("T")
Fold: TypeAlias = Callable[
    [Callable[[Any, int], Any], Callable[[Any, Any], Any], Iterable[Any]], Any
]


def fold_batches(
    work: Callable[[Any, int], T], join: Callable[[T, T], T], batches: Iterable[Any]
) -> T:
    """Return what batches tell, joined one after another; those without rows tell nothing."""
    total, first_row = None, 1
    for batch in batches:
        if batch.height:
            told = work(batch, first_row)
            total = told if total is None else join(total, told)
            first_row += batch.height
    if total is None:
        raise InputError("The table has no rows; nothing to do.")
    return total


class ReadOnce:
    """Some rows of a table, of which no cell is read as a number twice."""

    def __init__(self, frame: pl.DataFrame):
        self.frame = frame
        self.height = frame.height
        self.columns = frame.columns
        self._numbers: dict[str, tuple[pl.Series, pl.Series]] = {}

    @classmethod
    def of(cls, frame: pl.DataFrame | ReadOnce) -> ReadOnce:
        """Return rows that may have been read in part."""
        return frame if isinstance(frame, ReadOnce) else cls(frame)

    def numbers(self, name: str) -> tuple[pl.Series, pl.Series]:
        """Return the numbers of a column, and where a value is neither number nor blank."""
        if name not in self._numbers:
            self._numbers[name] = parse_numbers(self.frame[name])
        return self._numbers[name]

    def parsed(self, kinds: dict[str, str], first_row: int) -> pl.DataFrame:
        """Return columns of these kinds, read as what they are."""
        columns = {
            name: as_text(self.frame[name])
            if kind == "text"
            else as_numbers(self.frame[name], first_row, self.numbers(name))
            for name, kind in kinds.items()
        }
        return pl.DataFrame(columns, height=self.height)


@dataclass(frozen=True)
class Look:
    """What the values of a column look like: all of them, but for `numbers` and `unusable`."""

    blank: bool
    like_numbers: bool
    numbers: bool
    temporal: bool
    unusable: str

    @classmethod
    def of(cls, rows: ReadOnce, name: str, briefly: bool = False) -> Look:
        """Look at a column; `briefly` only at whether it can be used."""
        column = rows.frame[name]
        kind = column.dtype
        if is_blank(column):
            return cls(True, True, False, True, "")
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            return cls(False, False, False, False, str(kind))
        if briefly:
            return cls(False, False, False, False, "")
        values, bad = rows.numbers(name)
        numbers = values.null_count() < len(values)
        like_numbers = not bad.any()
        if like_numbers and kind == pl.String:  # none is a code like '007'
            like_numbers = not has_leading_zeros(column)
        temporal = not (like_numbers and numbers) and is_temporal(column)
        return cls(False, like_numbers, numbers, temporal, "")

    @property
    def numeric(self) -> bool:
        """Whether every value is a number, and at least one is."""
        return self.like_numbers and self.numbers

    def joined(self, other: Look) -> Look:
        """Return what the values of both look like."""
        return Look(
            self.blank and other.blank,
            self.like_numbers and other.like_numbers,
            self.numbers or other.numbers,
            self.temporal and other.temporal,
            self.unusable or other.unusable,
        )


Looks: TypeAlias = tuple[list[str], dict[str, Look]]
Counts: TypeAlias = tuple[dict[str, Any], RowSample]


def look_at(rows: Any, first_row: int, *, named: Collection[str] = ()) -> Looks:
    """Look at all columns, at those whose kind was given only for whether they can be used."""
    rows = ReadOnce.of(rows)
    return rows.columns, {name: Look.of(rows, name, name in named) for name in rows.columns}


def join_looks(first: Looks, second: Looks) -> Looks:
    """Return what both parts of a table look like; they must have the same columns."""
    names, looks = first
    if set(names) != set(second[0]):
        raise InputError(
            "The parts of the table have different columns:\n"
            + describe_column_difference(names, second[0])
        )
    return names, {name: look.joined(second[1][name]) for name, look in looks.items()}


def count_cells(rows: Any, first_row: int, *, kinds: dict[str, str], exact: bool) -> Counts:
    """Count what is in the columns, read as what they are, and keep a sample of the rows.

    If `exact` the sample is all of them.
    """
    parsed = ReadOnce.of(rows).parsed(kinds, first_row)
    most = None if exact else _MOST_VALUES
    sketches = {
        column.name: (Texts if kinds[column.name] == "text" else Numbers).of(column, most)
        for column in parsed
    }
    few = min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, _MOST_CELLS // max(1, parsed.width)))
    return sketches, RowSample.of(parsed, first_row, None if exact else few)


def join_counts(first: Counts, second: Counts) -> Counts:
    """Return what both parts of a table hold."""
    sketches = {name: sketch.joined(second[0][name]) for name, sketch in first[0].items()}
    return sketches, first[1].joined(second[1])


def numbers_rows(sketch: Numbers, name: str) -> bool:
    """Return whether a column only counts or identifies rows: whole numbers, all different."""
    if sketch.distinct is None or sketch.n_rows < 3:
        return False
    consecutive = sketch.high - sketch.low + 1 == sketch.n_rows >= _COUNTER_ROWS
    return consecutive or bool(_IDENTIFIER_NAME.search(name))
