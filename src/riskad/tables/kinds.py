"""The kind of each column, found on all rows, and what a pass over the rows counts.

Rows are read twice. The first pass looks at the spelling of cells and decides how each column is
read; the second reads and counts them. Results for parts of a table can be joined, so parts may be
anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import polars as pl

from riskad.core.checks import InputError, check_choice, describe_column_difference, quoted
from riskad.tables.cells import is_blank
from riskad.tables.columns import is_flat
from riskad.tables.formats.flags import FlagLook
from riskad.tables.formats.moments import MomentFormat, MomentLook
from riskad.tables.formats.numbers import NumberFormat, NumberLook
from riskad.tables.readers import (
    FlagReader,
    FormatReader,
    MomentReader,
    NumberReader,
    Reader,
    TextReader,
    to_seconds,
)
from riskad.tables.sketches import Numbers, RowSample, Texts

__all__ = [
    "GIVEN_KINDS",
    "Fold",
    "GivenKind",
    "Look",
    "count_cells",
    "decide_reader",
    "fold_batches",
    "join_counts",
    "join_looks",
    "look_at",
    "numbers_rows",
    "over_columns",
]

_IDENTIFIER_NAME = re.compile(
    r"(^|[\W_])[iI][dD]$|[a-z]I[dD]$|^(index|row)$|^Unnamed: \d+$|^$|[a-z]N(o|umber)$"
    r"|(?i:^beleg|[\W_](no|number)|nr\.?|nummer|key)$",
    re.ASCII,
)
_TIME_NAME = re.compile(
    r"(?i)(year|month|day|week|hour|minute|second|time|epoch|elapsed|duration|^ts?$"
    r"|jahr|monat|tag|stunde|sekunde|zeit|dauer)"
)
_COUNTER_ROWS = 20  # fewer consecutive numbers than this may well be a measurement
# Pairs of equal numbers to expect by chance, in all and for each pair that there is, from which on
# a column holds running numbers though some are skipped.
_EXPECTED_PAIRS, _EXPECTED_PER_REPEAT = 20, 4
_FEW = 0.01  # rows of an identifier without a number, or with that of another row
_GLANCE = 1_000  # cells that show whether a column may have a kind at all
_MANY = 20_000  # rows from which some are looked at before all are read
_DECIMAL = r"^-?[0-9]*\.[0-9]+$"
_CODE = r"^\s*0[0-9]+\s*$"
# Cells that do not fit are slips, counted as blank and reported, if so few among so many.
_SLIPS = 0.01
_FEWEST_BESIDE_SLIPS = 50
# Limits for a table that comes in parts: distinct values of a column, random rows for medians, and
# cells of these.
_MOST_VALUES = 1 << 15
_MOST_SAMPLED = 1 << 16
_FEWEST_SAMPLED = 1 << 12
_MOST_CELLS = 1 << 23

T = TypeVar("T")
R = TypeVar("R")
Fold: TypeAlias = Callable[
    [Callable[[Any, int], Any], Callable[[Any, Any], Any], Iterable[Any]], Any
]


def fold_batches(
    work: Callable[[Any, int], T], join: Callable[[T, T], T], batches: Iterable[Any]
) -> T:
    """Return the joined results of batches, in order; batches without rows are skipped."""
    total, first_row = None, 1
    for batch in batches:
        if batch.height:
            told = work(batch, first_row)
            total = told if total is None else join(total, told)
            first_row += batch.height
    if total is None:
        raise InputError("The table has no rows; nothing to do.")
    return total


# --- kinds given by the user -------------------------------------------------------------

GIVEN_KINDS = ("number", "flag", "category", "text", "date", "datetime", "time", "duration")
"""Kinds that a user may give for a column; numbers and moments with their format."""
_MOMENTS = ("date", "datetime", "time", "duration")


@dataclass(frozen=True)
class GivenKind:
    """A kind given by the user: `date:%d.%m.%Y` is a kind and a format.

    >>> GivenKind.read("when", "date:%d.%m.%Y")
    GivenKind(kind='date', written='%d.%m.%Y')
    """

    kind: str
    written: str = ""

    @classmethod
    def read(cls, column: str, said: str) -> GivenKind:
        """Return the given kind of a column, if it is valid."""
        kind, _, written = said.partition(":")
        check_choice(f"The kind of column {quoted(column)}", kind, GIVEN_KINDS)
        if written and kind not in (*_MOMENTS, "number"):
            raise InputError(
                f"Column {quoted(column)}: only numbers, dates and times are written in several "
                f"ways; for {kind} give the word alone, without {written!r}."
            )
        return cls(kind, written)

    @property
    def is_text(self) -> bool:
        """Whether cells are texts."""
        return self.kind in ("category", "text")

    def reader(self, column: str, look: Look) -> Reader:
        """Return how to read the column: as given, otherwise as it looks."""
        if self.is_text:
            return TextReader()
        if self.kind == "flag":
            flags = look.flag.format() if look.flag is not None else None
            if flags is None:
                raise InputError(
                    f"Column {quoted(column)} was said to hold yes and no, and holds other values "
                    "than two such words. Say 'category' instead."
                )
            return FlagReader(flags)
        if self.kind == "number":
            numbers = look.number
            if self.written and numbers is not None:
                numbers = numbers.as_given(NumberFormat.given(self.written))
            found = numbers.format() if numbers is not None else None
            return NumberReader(found or NumberFormat())
        moments = look.moment.format() if look.moment is not None else None
        if self.written:
            return MomentReader(MomentFormat.given(self.written, self.kind))
        if moments is None:
            raise InputError(
                f"Column {quoted(column)} was said to be a {self.kind}, and is written in none of "
                f"the usual ways. Say how: {self.kind}:%d.%m.%Y for 27.03.2025, for instance."
            )
        return MomentReader(moments)


# --- the first pass: spelling ------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What the cells of a column look like; a look of None excludes a kind."""

    blank: bool
    unusable: str
    number: NumberLook | None = None
    flag: FlagLook | None = None
    moment: MomentLook | None = None
    n_rows: int = 0
    is_numeric: bool = False
    """Whether the table holds numbers, not texts that may spell numbers."""
    values: pl.Series | None = None
    """The cells, if they were already read."""

    @classmethod
    def of(
        cls,
        column: pl.Series,
        first_row: int,
        given: GivenKind | None = None,
        whole: bool = False,
    ) -> Look:
        """Look at a column; if its kind is text, only check whether it can be used.

        For a `whole` column with many rows, some rows determine the format. If all cells can be
        read in this format, it is used, and they are read.
        """
        n = len(column)
        if whole and given is None and column.dtype == pl.String and n > _MANY:
            found = _read_as_some(column, first_row)
            if found is not None:
                return found
        if is_blank(column):
            return cls(True, "", n_rows=n)
        if not is_flat(column):
            return cls(False, str(column.dtype), n_rows=n)
        if given is not None and given.is_text:
            return cls(False, "", n_rows=n)
        if column.dtype in (pl.Categorical, pl.Enum):
            column = column.cast(pl.String)
        if whole and given is None and column.dtype == pl.String and _are_decimals(column):
            return cls(False, "", NumberLook.of(column, first_row), n_rows=n)
        return cls(
            False,
            "",
            _glance(NumberLook, column, first_row, given, ("number",)),
            _glance(FlagLook, column, first_row, given, ("flag",)),
            _glance(MomentLook, column, first_row, given, _MOMENTS),
            n,
            column.dtype.is_numeric(),
        )

    def joined(self, other: Look) -> Look:
        """Return what the cells of both look like; a blank part changes nothing."""
        n = self.n_rows + other.n_rows
        if self.blank or other.blank:
            return replace(self if other.blank else other, n_rows=n)
        return Look(
            False,
            self.unusable or other.unusable,
            _joined(self.number, other.number),
            _joined(self.flag, other.flag),
            _joined(self.moment, other.moment),
            n,
            self.is_numeric and other.is_numeric,
        )


def _read_as_some(column: pl.Series, first_row: int) -> Look | None:
    """Read all cells in the format of some of them; None if some do not fit."""
    look = Look.of(column.gather_every(len(column) // _GLANCE), first_row)
    reader = decide_reader(look)
    if not isinstance(reader, FormatReader) or reader.tolerant:
        return None
    values, bad = reader.format.read(column)
    if bad.any() or (reader.word == "number" and _has_codes(column)):
        return None
    return replace(look, n_rows=len(column), values=reader.to_typed(values, column, first_row))


def _has_codes(texts: pl.Series) -> bool:
    """Whether a text is a whole number with leading zeros, which is a code: '007'."""
    zeros = texts.filter(texts.str.strip_chars_start().str.starts_with("0"))
    return bool(zeros.str.contains(_CODE).any())


def _are_decimals(texts: pl.Series) -> bool:
    """Whether so many cells have decimals that they are neither moments nor yes and no."""
    return 2 * int(texts.str.contains(_DECIMAL).sum()) > len(texts)


def _glance(
    look: Any, column: pl.Series, first_row: int, given: GivenKind | None, words: Collection[str]
) -> Any:
    """Look at all cells, unless the first of them show that the column has another kind."""
    if given is not None and given.kind not in words:
        return None
    if given is None and column.dtype == pl.String and len(column) > _GLANCE:
        glance = look.of(column.head(_GLANCE), first_row)
        if glance.n_bad > _GLANCE // 2:
            return None
    return look.of(column, first_row)


def _joined(first: Any, second: Any) -> Any:
    return None if first is None or second is None else first.joined(second)


def decide_reader(look: Look) -> Reader:
    """Return how a column is read by its looks: as moments, yes and no, numbers, else as text."""
    looks: tuple[tuple[Any, Any], ...] = (
        (look.moment, MomentReader),
        (look.flag, FlagReader),
        (look.number, NumberReader),
    )
    for found, reader in looks:
        if found is None or not _fits(found):
            continue
        form = found.format()
        if form is not None:
            return reader(form, tolerant=found.n_bad > 0)
    return NumberReader(NumberFormat()) if look.is_numeric else TextReader()


def _fits(look: Any) -> bool:
    """Whether all cells have a kind, except for a few slips among many."""
    if getattr(look, "codes", False):
        return False
    few = look.n_bad <= _SLIPS * look.n_good and look.n_good >= _FEWEST_BESIDE_SLIPS
    return look.n_good > 0 and (look.n_bad == 0 or few)


Looks: TypeAlias = tuple[list[str], dict[str, Look]]
Counts: TypeAlias = tuple[dict[str, Any], RowSample]


def look_at(
    frame: pl.DataFrame, first_row: int, *, given: Mapping[str, GivenKind], whole: bool = False
) -> Looks:
    """Look at all columns of a table, or of a part of it."""

    def look(column: pl.Series) -> Look:
        return Look.of(column, first_row, given.get(column.name), whole)

    return frame.columns, dict(
        zip(frame.columns, over_columns(look, frame.get_columns()), strict=True)
    )


def over_columns(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to each column; polars lets threads work in parallel."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


def join_looks(first: Looks, second: Looks) -> Looks:
    """Return what both parts of a table look like; they must have the same columns."""
    names, looks = first
    if set(names) != set(second[0]):
        raise InputError(
            "The parts of the table have different columns:\n"
            + describe_column_difference(names, second[0])
        )
    return names, {name: look.joined(second[1][name]) for name, look in looks.items()}


# --- the second pass: content ------------------------------------------------------------


def count_cells(
    frame: pl.DataFrame,
    first_row: int,
    *,
    readers: Mapping[str, Reader],
    exact: bool,
    read: Mapping[str, pl.Series | None],
) -> Counts:
    """Count the content of the columns, parsed by their kinds, and keep a sample of the rows.

    If `exact` the sample is all rows, and some columns may already have been read.
    """
    most = None if exact else _MOST_VALUES

    def count(name: str) -> tuple[pl.Series, Any]:
        values = read.get(name)
        if values is None:
            values = readers[name].read(frame[name], first_row, quiet=True)
        return values, _sketch(values, most)

    counted = over_columns(count, list(readers))
    typed = pl.DataFrame({values.name: values for values, _ in counted})
    sketches = {values.name: sketch for values, sketch in counted}
    few = min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, _MOST_CELLS // max(1, typed.width)))
    return sketches, RowSample.of(typed, first_row, None if exact else few)


def _sketch(column: pl.Series, most: int | None) -> Numbers | Texts:
    if column.dtype == pl.String:
        return Texts.of(column, most)
    if column.dtype.is_temporal():
        return Numbers.of(to_seconds(column), most)
    return Numbers.of(column.cast(pl.Float64), most)


def join_counts(first: Counts, second: Counts) -> Counts:
    """Return what both parts of a table hold."""
    sketches = {name: sketch.joined(second[0][name]) for name, sketch in first[0].items()}
    return sketches, first[1].joined(second[1])


def numbers_rows(sketch: Numbers, name: str) -> bool:
    """Return whether a column only numbers the rows, with gaps or without: a document number.

    Its numbers are whole and hardly two are equal, though with n measurements between low and high
    about n^2 / 2 / (high - low) pairs would be: running numbers lie too densely to be measured. Few
    repeats come from rows that occur twice. Clocks and years lie densely as well: their names tell
    them, or that they are read every ten seconds.

    >>> import numpy as np
    >>> gaps = np.random.default_rng(0).integers(1, 9, 3_000)
    >>> numbers_rows(Numbers.of(pl.Series(5_100_000_000 + gaps.cumsum()), None), "Referenz")
    True
    """
    n = sketch.n_rows - sketch.blanks
    if sketch.distinct is None or n < 3 or max(sketch.blanks, sketch.repeats) > _FEW * n:
        return False
    if _IDENTIFIER_NAME.search(name):
        return True
    span = sketch.high - sketch.low + 1
    consecutive = n - sketch.repeats == span >= _COUNTER_ROWS
    pairs = n * (n - 1) / 2 / span
    dense = pairs > _EXPECTED_PAIRS + _EXPECTED_PER_REPEAT * sketch.repeats and sketch.step == 1
    return (consecutive or dense) and not _TIME_NAME.search(name)
