"""What the cells of a column look like where they may be numbers, and how they are written then."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import polars as pl

from riskad.core.checks import quoted
from riskad.tables.formats.gaps import BLANKS, is_gap
from riskad.tables.formats.number_format import (
    NumberFormat,
    as_column_of_texts,
    clean,
    fit,
    group_mark,
    is_money,
    plain_numbers,
    shown_places,
)
from riskad.tables.formats.number_marks import (
    CURRENCIES,
    MINUS,
    SIGNS,
    body_pattern,
    cell_pattern,
    is_unit,
    unit_of,
)
from riskad.tables.formats.tallies import Tally, by_length, join_tallies, tally_cells
from riskad.tables.formats.units import accepted
from riskad.tables.words import say_count

__all__ = ["NumberLook", "Written"]

# How a number may be read. What fits only one decimal mark is evidence for it.
POINT, COMMA = "point", "comma"  # 12.5 and 1,234.5 or 1,234,567; 12,5 and 1.234,5 or 1.234.567
DOT3, COMMA3 = "1.234", "1,234"  # fit both, with different values
WHOLE = "whole"  # 123 and 1 234 and 1'234 fit both, with the same value
FOUR = "1234"  # does, too, and shows that no mark separates groups
PHONE = "123 456 789"  # is a number, too, but not where all cells are like it
_MANY = 20  # of so many numbers with three decimals, one ends in 0 and would be written shorter
_MOST_UNITS = 64  # that are not known; with more of them, they are words and no units

_PATTERNS = {mark: cell_pattern(body_pattern(mark)) for mark in (".", ",")}
_PHONE = rf"^\+?[0-9]{{2,3}}(?:[{BLANKS}][0-9]{{3}}){{2,3}}$"
_LONE_DOT = r"^[-+]?[1-9][0-9]{0,2}\.[0-9]{3}$"


class Written(NamedTuple):
    """One way of writing numbers: what stands around them, and how they may be read."""

    prefix: str
    suffix: str
    shape: str


@dataclass(frozen=True)
class NumberLook:
    """What all cells of a column, or of a part of its rows, look like as numbers.

    The decimal mark is decided by all rows together. A cell that has only one reading is evidence:
    ``12.5``, ``1,234.5``, ``1,234,567`` and ``0.123`` for the point, ``12,5``, ``1.234,5``,
    ``1.234.567`` and ``0,123`` for the comma. The mark with more evidence is that of the column;
    cells that contradict it are bad. Without evidence, ``1,234`` is one thousand and ``1.234`` is
    between one and two (programs write so). But ``1.234`` is one thousand where it is money
    (``1.234 €``), which has no thousandths, and where twenty numbers or more are like it and all
    others are whole and below 1000: of so many numbers with three decimals one would end in 0 and
    be written shorter. `remarks` says where this was a guess.

    Numbers all of which are like ``612 345 678`` or ``+49 170 123 456`` are those of telephones.

    Units count as part of the number where they are known or where most cells have the same
    one; see `riskad.tables.formats.units`.

    Attributes
    ----------
    tallies
        Cells that may be numbers, by how they are written.
    others
        Cells that are not numbers in any way.
    n_gaps
        Blank cells and those with a word for nothing.
    n_parentheses, n_trailing
        Cells like (5) and 5-.
    first_code
        Row and text of the first whole number with leading zeros, which is a code ('007').
    many_units
        Whether there are too many words behind numbers to be units.
    given
        What a person said about the numbers, see `as_given`.

    >>> look = NumberLook.of(pl.Series(["1.234,50 €", "12 €", "n/a", "?", "call us"]))
    >>> look.n_good, look.n_gaps, look.n_bad, look.first_bad
    (2, 2, 1, (5, 'call us'))
    >>> look.format().describe()
    'numbers with decimal comma, in €'
    >>> parts = NumberLook.of(pl.Series(["1.234"])).joined(NumberLook.of(pl.Series(["1,5"]), 2))
    >>> parts.format().read(pl.Series(["1.234"]))[0].to_list()
    [1234.0]
    """

    tallies: dict[Written, Tally] = field(default_factory=dict)
    others: Tally | None = None
    n_gaps: int = 0
    n_parentheses: int = 0
    n_trailing: int = 0
    first_code: tuple[int, str] | None = None
    many_units: bool = False
    given: NumberFormat | None = None

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> NumberLook:
        """Look at all cells of a column, the first of which is in row `first_row`."""
        column = as_column_of_texts(column)
        if column.dtype == pl.Boolean:  # yes and no, though a cast would do
            other: pl.Series | None = column.is_not_null()
            values = column.cast(pl.Float64).set(column.is_not_null(), None)
        else:
            values, other = plain_numbers(column)
        look = _look_at_plain(column, values, first_row)
        if other is None:
            return look
        rows = other.arg_true()
        rest = column.gather(rows)
        if column.dtype != pl.String:
            return look.joined(cls(others=tally_cells(rest, rows + first_row)))
        return look.joined(_look_at_dressed(rest, rows + first_row))

    def joined(self, other: NumberLook) -> NumberLook:
        """Return what the cells of both look like together."""
        codes = [each for each in (self.first_code, other.first_code) if each]
        return NumberLook(
            self.tallies
            | {way: tally.joined(self.tallies.get(way)) for way, tally in other.tallies.items()},
            join_tallies(self.others, other.others),
            self.n_gaps + other.n_gaps,
            self.n_parentheses + other.n_parentheses,
            self.n_trailing + other.n_trailing,
            min(codes, default=None),
            self.many_units or other.many_units,
            self.given or other.given,
        )._bounded()

    def as_given(self, given: NumberFormat) -> NumberLook:
        """Return the look where a person's word settles the decimal mark and adds to the units.

        >>> look = NumberLook.of(pl.Series(["1,234 €", "5 €"])).as_given(NumberFormat.given("1,5"))
        >>> look.format().read(pl.Series(["1,234 €"]))[0].to_list()
        [1.234]
        """
        return replace(self, given=given)

    def _bounded(self) -> NumberLook:
        """Give up on units where there are too many, so that a look stays small."""
        unknown = [way for way in self.tallies if not is_unit(way.suffix)]
        many = self.many_units or len({way.suffix for way in unknown}) > _MOST_UNITS
        if not many or not unknown:
            return self
        others = self.others
        for way in unknown:
            others = join_tallies(others, self.tallies[way])
        known = {way: tally for way, tally in self.tallies.items() if is_unit(way.suffix)}
        return replace(self, tallies=known, others=others, many_units=True)

    @property
    def codes(self) -> bool:
        """Whether whole numbers with leading zeros occur, which are codes."""
        return self.first_code is not None

    @cached_property
    def _units(self) -> set[str]:
        counts: dict[str, int] = {}
        for way, tally in self.tallies.items():
            counts[way.suffix] = counts.get(way.suffix, 0) + tally.n
        units = accepted(counts, sum(counts.values()) + (self.others.n if self.others else 0))
        said = {suffix.strip(BLANKS) for suffix in self.given.suffixes} if self.given else set()
        return units | {suffix for suffix in counts if suffix.strip(BLANKS) in said}

    def _count(self, *shapes: str) -> int:
        return sum(
            tally.n
            for way, tally in self.tallies.items()
            if way.suffix in self._units and way.shape in shapes
        )

    @property
    def commas(self) -> int:
        """How many more cells have a decimal comma for sure than have a decimal point."""
        return self._count(COMMA) - self._count(POINT)

    @cached_property
    def _decimal(self) -> str:
        if self.given is not None:
            return self.given.decimal
        points, commas = self._count(POINT), self._count(COMMA)
        if points or commas or self._count(COMMA3):
            return "," if commas > points else "."
        lone = [way for way in self.tallies if way.shape == DOT3 and way.suffix in self._units]
        money = bool(lone) and all(is_money(*way[:2]) for way in lone)
        grouped = self._count(DOT3) >= _MANY and self._count(WHOLE) and not self._count(FOUR)
        return "," if money or grouped else "."

    def _is_good(self, way: Written) -> bool:
        bad = (COMMA if self._decimal == "." else POINT, "" if self._has_other_shapes else PHONE)
        return way.suffix in self._units and way.shape not in bad

    @cached_property
    def _has_other_shapes(self) -> bool:
        return any(way.shape != PHONE for way in self.tallies if way.suffix in self._units)

    @cached_property
    def n_good(self) -> int:
        """How many cells hold numbers, written as `format` says."""
        return sum(tally.n for way, tally in self.tallies.items() if self._is_good(way))

    @cached_property
    def _bad(self) -> Tally | None:
        bad = self.others
        for way, tally in self.tallies.items():
            if not self._is_good(way):
                bad = join_tallies(bad, tally)
        return bad

    @property
    def n_measured(self) -> int:
        """How many cells are a number and a word behind it, be that a unit or not."""
        return sum(tally.n for way, tally in self.tallies.items() if way.suffix)

    @property
    def n_bad(self) -> int:
        """How many cells hold something else."""
        return self._bad.n if self._bad else 0

    @property
    def first_bad(self) -> tuple[int, str] | None:
        """The first row, with its text, that holds something else."""
        return (self._bad.row, self._bad.cell) if self._bad else None

    def format(self) -> NumberFormat | None:
        """Return how the numbers are written, or None if less than half of the cells hold any."""
        if self.n_good == 0 or self.n_good < self.n_bad:
            return None
        good = {way: tally for way, tally in self.tallies.items() if self._is_good(way)}
        longest = max((tally.longest for tally in good.values()), key=by_length)
        prefixes, suffixes = (_most_frequent(good, side) for side in (0, 1))
        style = "()" if self.n_parentheses else "5-" if self.n_trailing else "-"
        return NumberFormat(
            self._decimal,
            group_mark(longest, self._decimal),
            prefixes,
            suffixes,
            style,
            shown_places(longest, self._decimal, is_money(*_first_of(prefixes, suffixes))),
        )

    def remarks(self) -> list[str]:
        """Say, in sentences, what was a guess and what looks wrong."""
        found = self.format()
        if found is None:
            return []
        said = [self._remark_on_marks(found), self._remark_on_units(), self._remark_on_codes()]
        return [remark for remark in said if remark]

    def _remark_on_marks(self, found: NumberFormat) -> str:
        losing, name = (COMMA, "comma") if self._decimal == "." else (POINT, "point")
        if n_losing := self._count(losing):
            first = self._first(losing)
            return (
                f"{quoted(first.cell)} in row {first.row:,} has a decimal {name}, unlike most: "
                f"{say_count(n_losing, 'such cell')} cannot be read."
            )
        settled = self.given is not None or self._count(POINT, COMMA)
        if settled or not self._count(DOT3, COMMA3):
            return ""
        cell = self._first(DOT3, COMMA3).cell
        value = found.read(pl.Series([cell]))[0][0]
        other = "1.234,5" if self._decimal == "." else "1,234.5"
        return (
            f"{quoted(cell)} has two readings and no row settles which: it is read as "
            f"{value:.10g}. Say kind 'number:{other}' for the other one."
        )

    def _remark_on_units(self) -> str:
        units: dict[str, Tally] = {}
        for way, tally in self.tallies.items():
            if self._is_good(way):
                unit = unit_of(way.prefix, way.suffix)
                units[unit] = tally.joined(units.get(unit))
        if len(units) < 2:
            return ""
        ranked = sorted(units.values(), key=lambda tally: (-tally.n, tally.row))
        shown = ", ".join(
            f"{quoted(each.cell)} in {say_count(each.n, 'row')}" for each in ranked[:4]
        )
        more = f" and {len(ranked) - 4} more" if len(ranked) > 4 else ""
        return f"Units are mixed: {shown}{more}; the numbers are taken as they are written."

    def _remark_on_codes(self) -> str:
        if self.first_code is None:
            return ""
        row, code = self.first_code
        return f"{quoted(code)} in row {row:,} has leading zeros, as codes have them."

    def _first(self, *shapes: str) -> Tally:
        found = [
            tally
            for way, tally in self.tallies.items()
            if way.suffix in self._units and way.shape in shapes
        ]
        return min(found, key=lambda tally: tally.row)


def _first_of(*affixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple((*each, "")[0] for each in affixes)


def _most_frequent(tallies: dict[Written, Tally], side: int) -> tuple[str, ...]:
    """Return the prefixes (side 0) or suffixes (side 1), the most frequent first."""
    counts: dict[str, int] = {}
    for way, tally in tallies.items():
        counts[way[side]] = counts.get(way[side], 0) + tally.n
    return tuple(sorted((each for each in counts if each), key=lambda each: (-counts[each], each)))


def _look_at_plain(column: pl.Series, values: pl.Series, first_row: int) -> NumberLook:
    """Look at the cells that a cast reads; nulls are gaps."""
    n = len(values) - values.null_count()
    n_gaps = column.null_count()
    if column.dtype.is_float():
        n_gaps += int(column.is_nan().sum())
    filled = values.is_not_null()
    if not n:
        return NumberLook(n_gaps=n_gaps)
    if column.dtype != pl.String:
        return NumberLook(
            {Written("", "", WHOLE): _plain_tally(column, filled, first_row)}, None, n_gaps
        )
    dots = column.str.contains(".", literal=True) & filled
    lone = _lone_dots(column, values, dots)
    four = (values.abs() >= 1000).fill_null(False) & ~dots
    whole = filled & ~dots & ~four
    ways = ((WHOLE, whole), (FOUR, four), (POINT, dots & ~lone), (DOT3, lone))
    tallies = {
        Written("", "", shape): _plain_tally(column, cells, first_row)
        for shape, cells in ways
        if cells.any()
    }
    rows = pl.int_range(first_row, first_row + len(column), eager=True)
    code = _first_code(column, filled, rows)
    return NumberLook(tallies, n_gaps=n_gaps, first_code=code)


def _plain_tally(column: pl.Series, cells: pl.Series, first_row: int) -> Tally:
    """Count cells that a cast reads, in none of which marks between groups can be seen."""
    row = cells.arg_max() or 0
    return Tally(int(cells.sum()), first_row + row, str(column[row]), "")


def _lone_dots(column: pl.Series, values: pl.Series, dots: pl.Series) -> pl.Series:
    """Find cells like 1.234, by their size and length where these say already that they are not."""
    length = column.str.len_bytes()
    likely = dots & length.is_between(5, 8) & (values.abs() < 1000)
    if not likely.any():
        return likely
    places = likely.arg_true()
    return likely.scatter(places, column.gather(places).str.contains(_LONE_DOT))


def _first_code(cells: pl.Series, filled: pl.Series, rows: pl.Series) -> tuple[int, str] | None:
    zeros = (cells.str.starts_with("0") & filled).arg_true()
    codes = zeros.filter(cells.gather(zeros).str.contains("^0[0-9]+$"))
    return (rows[codes[0]], cells[codes[0]]) if len(codes) else None


def _look_at_dressed(texts: pl.Series, rows: pl.Series) -> NumberLook:
    """Look at the cells that a cast does not read."""
    cells = clean(texts)
    point, comma = (fit(cells, _PATTERNS[mark]) for mark in ".,")
    fits = point | comma
    rest, rest_rows = cells.filter(~fits), rows.filter(~fits)
    gaps = is_gap(rest)
    look = NumberLook(
        others=tally_cells(rest.filter(~gaps), rest_rows.filter(~gaps)),
        n_gaps=int(gaps.sum()),
        first_code=_first_code(cells, fits, rows),
    )
    if not fits.any():
        return look
    frame = pl.DataFrame({"cell": cells, "row": rows, "point": point, "comma": comma})
    return look.joined(_count_ways(_group_ways(frame.filter(fits))))


def _group_ways(frame: pl.DataFrame) -> pl.DataFrame:
    """Count cells by what stands before and behind the digits, and by their shape."""
    cell = pl.col("cell")
    shape = (
        pl.when(~pl.col("comma"))
        .then(pl.lit(POINT))
        .when(~pl.col("point"))
        .then(pl.lit(COMMA))
        .when(cell.str.contains(",", literal=True))
        .then(pl.lit(COMMA3))
        .when(cell.str.contains(r"[0-9]\.[0-9]"))
        .then(pl.lit(DOT3))
        .when(cell.str.contains(_PHONE))
        .then(pl.lit(PHONE))
        .when(cell.str.contains("[0-9]{4}"))
        .then(pl.lit(FOUR))
        .otherwise(pl.lit(WHOLE))
    )
    length = cell.str.len_chars()
    return (
        frame.select(
            cell,
            "row",
            before=cell.str.extract("^([^0-9]*)"),
            after=cell.str.extract("([^0-9]*)$"),
            shape=shape,
        )
        .group_by("before", "after", "shape")
        .agg(
            n=pl.len(),
            row=pl.col("row").first(),
            cell=cell.first(),
            longest=cell.filter(length == length.max()).max(),
        )
    )


def _count_ways(groups: pl.DataFrame) -> NumberLook:
    """Join groups that differ in signs and in how many blanks they have."""
    before, after, minus = pl.col("before"), pl.col("after"), f"[{re.escape(MINUS)}]"
    prefix = (
        before.str.replace_all(f"[{re.escape(SIGNS)}(]", "")
        .str.strip_chars_start(BLANKS)
        .str.replace(f"[{BLANKS}]+$", " ")
    )
    point = prefix.str.ends_with(".") & ~prefix.is_in(list(CURRENCIES))  # that of $.50
    groups = groups.with_columns(
        prefix=pl.when(point | prefix.str.ends_with(","))
        .then(prefix.str.strip_chars_end(",." + BLANKS))
        .otherwise(prefix),
        suffix=after.str.replace(rf"{minus}?\)?$", "")
        .str.strip_chars_end(BLANKS)
        .str.replace(f"^[{BLANKS}]+", " "),
        parentheses=before.str.contains("(", literal=True),
        trailing=after.str.contains(f"{minus}$"),
    )
    tallies: dict[Written, Tally] = {}
    for group in groups.iter_rows(named=True):
        way = Written(group["prefix"], group["suffix"], group["shape"])
        tally = Tally(group["n"], group["row"], group["cell"], group["longest"])
        tallies[way] = tally.joined(tallies.get(way))
    return NumberLook(
        tallies,
        n_parentheses=int(groups.filter("parentheses")["n"].sum()),
        n_trailing=int(groups.filter("trailing")["n"].sum()),
    )
