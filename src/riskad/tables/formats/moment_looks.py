"""What the cells of a column look like as dates, times and durations, found on all rows."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.tables.formats.gaps import without_gaps
from riskad.tables.formats.moment_patterns import ISO, SPECIAL, Way, has_clock, ways_to_read
from riskad.tables.formats.moment_reading import texts_of
from riskad.tables.formats.moment_remarks import remarks_on
from riskad.tables.formats.moment_writings import (
    Cell,
    Reading,
    Writing,
    first_of,
    is_number_like,
    order_of,
)
from riskad.tables.formats.moments import MomentFormat
from riskad.tables.formats.month_names import MONTHS, language_of

__all__ = ["MomentLook"]

Look = TypeVar("Look", bound="MomentLook")

_MOST_WRITINGS = 12  # that are told apart
_MOST_PATTERNS = 3  # of one column
_AT_ENDS, _BETWEEN = 64, 256  # cells that are looked at one by one
_FEW = 1_000  # cells of which all are looked at, even if most are no moments
_NO_MOMENT = r"^[-+]?(?:[0-9]{1,7}|[0-9]*\.[0-9]+)$"  # a plain number is none in any pattern
_NAMES = {"time", "timestamp", "ts", "date", "datetime", "epoch", "dt", "day", "when", "datum"}
_NAMES |= {"zeit", "zeitpunkt", "zeitstempel", "fecha", "hora", "jour", "heure"}
_NAMES |= {"created", "updated", "modified"}
_DURATION_NAMES = {"duration", "elapsed", "runtime", "length", "took", "lap", "dauer", "laufzeit"}
_DURATION_NAMES |= {"durée", "duree", "duración", "duracion"}
# Whole numbers that may be moments lie between these, by their digits.
_DIGITS = (
    (19_000_101, 21_001_231),
    (946_684_800, 2_208_988_799),
    (190_001_010_000, 210_012_312_359),
    (946_684_800_000, 2_208_988_799_999),
    (19_000_101_000_000, 21_001_231_235_959),
)


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)]


@dataclass(frozen=True)
class MomentLook:
    """What all cells of a column, or of a part of its rows, look like as moments.

    The day comes first or the month, a clock is a time of day or a duration: both are decided by
    all cells together, by the reading that fails for fewer of them (27/03/2025 can only have the
    day first; 36:10 can only be a duration). Where both read all cells the look is `ambiguous`.
    Then dates are read so that they rise or fall steadily from row to row, if one reading makes
    them; else the month is first where clocks have AM and PM, as in the United States, and else the
    day. A clock is a duration if the column's name says so, and else a time.

    Whole numbers are moments only if all of them are, and mean nothing else: seconds or
    milliseconds since 1970 within 2000 to 2039 and a name such as `time`, `ts` or `created_at`;
    20250327 within 1900 to 2100 and such a name or at least 8 different dates. Lengths in `m` are
    metres unless another unit of time occurs. Up to three patterns
    may occur in a column; cells with others count as bad.

    Examples
    --------
    >>> look = MomentLook.of(pl.Series("when", ["27/03/2025", "01/04/2025", "soon", None]))
    >>> look.format().patterns, look.n_good, look.n_gaps, look.first_bad
    (('%d/%m/%Y',), 2, 1, (3, 'soon'))
    """

    name: str
    n_rows: int
    n_gaps: int
    writings: tuple[Writing, ...] = ()
    first_other: Cell | None = None  # a cell that is no moment
    typed: tuple[str, str] | None = None  # the kind by the column's type, and its zone
    n_typed: int = 0

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> Self:
        """Look at all cells; `first_row` is the number of the first in the table."""
        gaps = column.null_count()
        if column.dtype.is_temporal():
            typed = _typed(column.dtype)
            return cls(column.name, len(column), gaps, typed=typed, n_typed=len(column) - gaps)
        texts = None if _surely_numbers(column) else texts_of(column)
        if texts is None:
            filled = column.is_not_null()
            if column.dtype.is_float():
                filled &= column.is_not_nan().fill_null(False)
            first = _first(column, filled, first_row)
            return cls(column.name, len(column), len(column) - int(filled.sum()), first_other=first)
        rows = np.arange(first_row, first_row + len(texts))
        return _looked(cls(column.name, len(column), 0), texts, rows)

    def joined(self, other: Self) -> Self:
        """What these rows and those that follow look like."""
        found = {writing.ways: writing for writing in self.writings}
        for writing in other.writings:
            known = found.get(writing.ways)
            found[writing.ways] = known.joined(writing) if known else writing
        by_number = sorted(found.values(), key=lambda each: (-each.n, each.first))
        dropped = [each.first for each in by_number[_MOST_WRITINGS:]]
        return replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            n_gaps=self.n_gaps + other.n_gaps,
            writings=tuple(by_number[:_MOST_WRITINGS]),
            first_other=first_of(self.first_other, other.first_other, *dropped),
            typed=self.typed or other.typed,
            n_typed=self.n_typed + other.n_typed,
        )

    # --- what is decided --------------------------------------------------------------------------

    @property
    def n_good(self) -> int:
        """Cells that the format reads."""
        return self.n_typed + sum(reading.n for _, reading in self.chosen)

    @property
    def n_bad(self) -> int:
        """Cells that are neither blank nor read."""
        return self.n_rows - self.n_gaps - self.n_good

    @property
    def first_bad(self) -> Cell | None:
        """Row and value of the first cell that is neither blank nor read."""
        taken = {writing.ways: reading for writing, reading in self.chosen}
        cells = [
            taken[each.ways].unread if each.ways in taken else each.first for each in self.writings
        ]
        return first_of(self.first_other, *cells)

    @property
    def moment_name(self) -> bool:
        """Whether the column's name speaks of a moment."""
        return _is_moment_name(self.name)

    @property
    def ambiguous(self) -> bool:
        """Whether all cells can be read with the day first and with the month first."""
        best = sorted(self._orders.values())[-2:]
        return self._kind == "date" and len(best) == 2 and best[0] == best[1]

    @cached_property
    def _kind(self) -> str:
        totals = {
            kind: sum(max([each.n for each in _of_kind(w, kind)], default=0) for w in self.writings)
            for kind in ("date", "time", "duration")
        }
        says = bool(_DURATION_NAMES & set(_words(self.name)))
        return max(totals, key=lambda kind: (totals[kind], (kind == "duration") == says))

    @cached_property
    def _orders(self) -> Counter[str]:
        """How many cells with more than one order can be read in each."""
        orders: Counter[str] = Counter()
        for writing in self.writings:
            readings = _of_kind(writing, "date")
            if len(readings) > 1:
                orders.update({order_of(each.way): each.n for each in readings})
        return orders

    @cached_property
    def order(self) -> tuple[str, str]:
        """The order of day, month and year ('' if each cell tells its own), and why."""
        orders = self._orders
        if not self.ambiguous:
            return (max(orders, key=lambda each: orders[each]), "cells") if orders else ("", "")
        tied = [order for order in orders if orders[order] == max(orders.values())]
        steady = {
            order_of(each.way)
            for writing in self.writings
            for each in _of_kind(writing, "date")
            if each.steps and each.steps.steady and order_of(each.way) in tied
        }
        if len(steady) == 1:
            return steady.pop(), "rows"
        american = any("%p" in writing.ways[0][1] for writing in self.writings)
        return ("mdy" if american and "mdy" in tied else tied[0]), "custom"

    @cached_property
    def chosen(self) -> tuple[tuple[Writing, Reading], ...]:
        """The writings that the format takes, each with how it is read, the most frequent first."""
        found = []
        for writing in self.writings:
            readings = [] if writing.words == {"m"} else _of_kind(writing, self._kind)
            if self._kind == "date" and len(readings) > 1:
                readings = [each for each in readings if order_of(each.way) == self.order[0]]
            found += [(writing, each) for each in readings if each.n]
        found.sort(key=lambda pair: (-pair[1].n, pair[0].first))
        taken = tuple(found[:_MOST_PATTERNS])
        numbers = [writing for writing, each in taken if is_number_like(each.way[1])]
        if numbers and not self._numbers_are_moments(taken):
            return ()
        return taken

    def _numbers_are_moments(self, taken: tuple[tuple[Writing, Reading], ...]) -> bool:
        read = sum(reading.n for _, reading in taken)
        values = len({value for writing, _ in taken for value in writing.values})
        return read == self.n_rows - self.n_gaps and (self.moment_name or values >= 8)

    def format(self) -> MomentFormat | None:
        """How the column writes moments; None if fewer than half of its cells are moments."""
        if self.typed:
            kind, zone = self.typed
            patterns = {"date": ISO[-1:], "datetime": ISO, "time": ("%H:%M:%S", "%H:%M")}
            return MomentFormat(kind, patterns.get(kind, tuple(SPECIAL)), zone)
        if not self.chosen or self.n_good <= self.n_bad:
            return None
        words = MONTHS.keys() & set().union(*(writing.words for writing, _ in self.chosen))
        language, short = language_of(words) if words else ("en", True)
        patterns_found = tuple(
            each.way[1] if short else each.way[1].replace("%b", "%B").replace("%a", "%A")
            for _, each in self.chosen
        )
        clock = any(has_clock(pattern) for pattern in patterns_found)
        kind = "datetime" if self._kind == "date" and clock else self._kind
        return MomentFormat(kind, patterns_found, self.zone, language)

    @property
    def zone(self) -> str:
        """The zone by whose clock cells with offsets are read."""
        offsets = frozenset[float]().union(*(writing.offsets for writing, _ in self.chosen))
        if len(offsets) != 1:
            return "UTC" if offsets else ""
        minutes = round(next(iter(offsets)) / 60)
        sign, size = ("-" if minutes < 0 else "+"), abs(minutes)
        return f"{sign}{size // 60:02d}:{size % 60:02d}" if size else "UTC"

    def remarks(self) -> list[str]:
        """Plain sentences on what was ambiguous, and how to have it otherwise."""
        written = self.format()
        return remarks_on(self, written) if written and not self.typed else []


def _of_kind(writing: Writing, kind: str) -> list[Reading]:
    return [each for each in writing.readings if each.way[0] == kind]


def _is_moment_name(name: str) -> bool:
    words = _words(name)
    return bool(_NAMES & set(words)) or (len(words) > 1 and words[-1] == "at")


# --- how cells are looked at ----------------------------------------------------------------------


def _typed(dtype: pl.DataType) -> tuple[str, str]:
    kind = {"Date": "date", "Time": "time", "Duration": "duration"}.get(type(dtype).__name__)
    return kind or "datetime", getattr(dtype, "time_zone", None) or ""


def _first(column: pl.Series, where: pl.Series, first_row: int) -> Cell | None:
    at = where.arg_max() if len(where) else None
    return (first_row + at, str(column[at])) if at is not None and where[at] else None


def _surely_numbers(column: pl.Series) -> bool:
    """Whether a column of numbers has one that is no moment, or none that is a number."""
    if not column.dtype.is_numeric():
        return False
    low, high = column.min(), column.max()
    if low is None or high is None or low != low or high != high:
        return column.null_count() < len(column)
    ranges = [pair for pair in _DIGITS if pair[0] <= float(str(low)) <= pair[1]]
    return not any(float(str(high)) <= most for _, most in ranges)


def _looked(look: Look, texts: pl.Series, rows: NDArray[np.int64]) -> Look:
    """Find writings in a few cells, read all cells by them; again with the cells that are left."""
    writings: list[Writing] = []
    tried: set[tuple[Way, ...]] = set()
    for round_ in range(_MOST_WRITINGS):
        if round_ == 1:  # most columns are read in full before a cell is stripped
            texts, rows = _filled(texts, rows)
            look = replace(look, n_gaps=look.n_rows - len(texts) - sum(w.n for w in writings))
            tried = set()
        found, hopeless = _ways_in(texts, look.moment_name)
        if hopeless and not round_:
            filled = texts.is_not_null() & (texts != "")
            first = _first(texts, filled, int(rows[0]))
            return replace(look, n_gaps=look.n_rows - int(filled.sum()), first_other=first)
        fresh = [ways for ways in found if ways not in tried][: _MOST_WRITINGS - len(tried)]
        if round_ and not fresh:
            break
        for ways in fresh:
            tried.add(ways)
            writing, taken = Writing.of(texts, rows, ways)
            if writing is not None:
                writings.append(writing)
                texts, rows = texts.filter(pl.Series(~taken)), rows[~taken]
    other = (int(rows[0]), texts[0]) if len(texts) else None
    joined = replace(look, first_other=other)
    for writing in writings:
        joined = joined.joined(replace(look, n_rows=0, n_gaps=0, writings=(writing,)))
    return joined


def _filled(texts: pl.Series, rows: NDArray[np.int64]) -> tuple[pl.Series, NDArray[np.int64]]:
    bare = without_gaps(texts)
    filled = bare.is_not_null()
    return bare.filter(filled), rows[filled.to_numpy()]


def _ways_in(texts: pl.Series, moment_name: bool) -> tuple[list[tuple[Way, ...]], bool]:
    """Ways to read a few cells, the most frequent first, and whether these are no moments."""
    n = len(texts)
    spread = np.linspace(0, n - 1, _BETWEEN if n else 0).astype(int)
    places = {*range(min(n, _AT_ENDS)), *spread.tolist(), *range(max(0, n - _AT_ENDS), n)}
    few = without_gaps(texts.gather(sorted(places))).drop_nulls()
    numbers = few.str.contains(_NO_MOMENT)
    counts = Counter(ways_to_read(text, moment_name) for text in few.filter(~numbers))
    without = counts.pop((), 0) + int(numbers.sum())
    found = [ways for ways, _ in counts.most_common()]
    return found, n > _FEW and without > 4 * counts.total()
