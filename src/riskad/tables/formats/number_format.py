"""Numbers as one column writes them: read, shown and kept."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.formats.gaps import BLANKS, is_gap, strip_blanks
from riskad.tables.formats.number_marks import (
    GROUP_MARKS,
    MINUS,
    SIGNS,
    body_pattern,
    cell_pattern,
    is_currency,
    scale_of,
    words_of,
)

__all__ = [
    "NumberFormat",
    "as_column_of_texts",
    "clean",
    "fit",
    "group_mark",
    "is_money",
    "plain_numbers",
    "shown_places",
]

_OTHER = {".": ",", ",": "."}
_NEGATIVE = {"-": "-{}", "()": "({})", "5-": "{}-"}
_AFFIX = re.compile(rf"[{BLANKS}]?[^\d\s(),]{{1,16}}(?:[{BLANKS}][^\d\s(),]{{1,16}})?[{BLANKS}]?")
_MOST_AFFIXES = 256
_LONGEST = (
    120  # bytes of a cell: no number of so many digits, with an exponent below 100, is infinite
)


def as_column_of_texts(column: pl.Series) -> pl.Series:
    """Return categories as texts, and other columns as they are."""
    return column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column


def plain_numbers(column: pl.Series) -> tuple[pl.Series, pl.Series | None]:
    """Read what a cast to numbers reads, and say where there is something else, if anywhere.

    Infinity is something else, not-a-number is nothing. Dates are something else: a cast would give
    their seconds.

    >>> plain_numbers(pl.Series(["1.5", "12 kg", None]))[1].to_list()
    [False, True, False]
    """
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
        nothing = pl.Series(column.name, [None], dtype=pl.Float64).new_from_index(0, len(column))
        return nothing, column.is_not_null() if column.null_count() < len(column) else None
    values = column.cast(pl.Float64, strict=False)
    whole = math.isfinite(values.sum())  # costs less than to ask each
    if whole and values.null_count() == column.null_count():
        return values, None
    if not whole:
        values = values.set(~values.is_finite(), None)
    other = values.is_null() & column.is_not_null()
    if column.dtype.is_float():
        other &= column.is_not_nan()
    return values, other if other.any() else None


def clean(texts: pl.Series) -> pl.Series:
    """Take blanks from around texts, and write m2 and m3 as m² and m³: no unit has digits.

    >>> clean(pl.Series([" 45 m2", "form2"])).to_list()
    ['45 m²', 'form2']
    """
    cells = strip_blanks(texts)
    for digit, power in (("2", "²"), ("3", "³")):
        if cells.str.ends_with(f"m{digit}").any():
            cells = cells.str.replace(rf"^([^\p{{L}}]*[ckdm]?m){digit}$", f"${{1}}{power}")
    return cells


def fit(cells: pl.Series, pattern: str) -> pl.Series:
    r"""Whether each cell follows a pattern, with both parentheses or none, and is no huge number.

    >>> fit(pl.Series(["(5)", "(5", "5)", None]), r"^\(?5\)?$").to_list()
    [True, False, False, False]
    """
    found = cells.str.contains(pattern) & (cells.str.len_bytes() <= _LONGEST)
    found &= cells.str.starts_with("(") == cells.str.ends_with(")")
    return found.fill_null(False)


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written.

    Signs, parentheses for negative numbers and marks between groups are read in any usual way; the
    decimal mark and the units are those of the column, because another one would change the value.

    Parameters
    ----------
    decimal
        The decimal mark, a point or a comma.
    thousands
        What is shown between groups of three digits, or nothing.
    prefixes, suffixes
        What may stand before and behind a number, the most frequent first, with the blank that
        separates it. Words like k or Mio. multiply the number; a percentage stays as it is:
        79.8% is 79.8.
    negative
        How negative numbers are shown: ``-`` as -5, ``()`` as (5), ``5-`` as 5-.
    places
        How many decimals are shown, or as many as are needed.

    >>> money = NumberFormat(",", ".", suffixes=(" €",), places=2)
    >>> values, bad = money.read(pl.Series(["1.234,50 €", "-12 €", "12 $", "n/a"]))
    >>> values.to_list(), bad.to_list()
    ([1234.5, -12.0, None, None], [False, False, True, False])
    >>> money.show(-1234.5), money.describe()
    ('-1.234,50 €', 'numbers with decimal comma, in €')
    """

    decimal: str = "."
    thousands: str = ""
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    negative: str = "-"
    places: int | None = None

    @classmethod
    def given(cls, example: str) -> NumberFormat:
        """Return the format of an example that a person wrote.

        >>> NumberFormat.given("1.234,50 €").show(7)
        '7,00 €'
        """
        cell = example.strip()
        for decimal, other in ((".", ","), (",", ".")):
            pattern = re.compile(
                rf"(\(?)([{re.escape(SIGNS)}]?)([^\d.,]*?){body_pattern(decimal)}"
                rf"([^\d.,][^\d]*?)?(-?)(\)?)"
            )
            found = pattern.fullmatch(cell)
            if found and _settles(cell, decimal, other):
                return cls._of_example(cell, decimal, found)
        raise InputError(
            f"{quoted(example)} does not show how numbers are written. Write a number with "
            "decimals as the column has them, such as 1.234,50 or 1,234.50 €."
        )

    @classmethod
    def _of_example(cls, cell: str, decimal: str, found: re.Match[str]) -> NumberFormat:
        opening, _, prefix, suffix, minus, _ = found.groups(default="")
        return cls(
            decimal,
            group_mark(cell, decimal),
            (prefix,) if prefix.strip(BLANKS) else (),
            (suffix,) if suffix.strip(BLANKS) else (),
            "()" if opening else "5-" if minus else "-",
            shown_places(cell, decimal, is_money(prefix, suffix)),
        )

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the numbers (null where there is none), and where a cell holds something else."""
        column = as_column_of_texts(column)
        values, other = plain_numbers(column)
        if column.dtype == pl.String and self.decimal == ",":  # a cast takes 1.234 for a little
            dots = column.str.contains(".", literal=True).fill_null(False)
            other = dots if other is None else dots | other
            other = other if other.any() else None
        if other is None:
            return values, pl.Series(np.zeros(len(values), dtype=bool))
        if column.dtype != pl.String:
            return values, other
        if other.all():
            return self._read_texts(column)
        places = other.arg_true()
        found, bad = self._read_texts(column.gather(places))
        return values.scatter(places, found), other.scatter(places, bad)

    def _read_texts(self, texts: pl.Series) -> tuple[pl.Series, pl.Series]:
        cells = clean(texts)
        good = fit(cells, self._pattern)
        if good.all():
            return self._read_good(cells), ~good
        return self._read_good(cells.set(~good, None)), ~good & ~is_gap(cells)

    def _read_good(self, cells: pl.Series) -> pl.Series:
        """Return the numbers of cells that follow the pattern."""
        minus = re.escape(MINUS)
        before = "".join(self._before).replace(".", "") + SIGNS + BLANKS + "("
        after = "".join(self.suffixes) + MINUS + BLANKS + ")"
        body = cells
        for word in self._before:
            if "." in word:  # as a whole, to leave the point of .5
                body = body.str.replace(word, "", literal=True)
        body = body.str.strip_chars_start(before).str.strip_chars_end(after)
        numbers = self._cast(body, self.thousands or _OTHER[self.decimal])
        if numbers.null_count() > cells.null_count():  # other marks occur besides the usual one
            numbers = self._cast(body, GROUP_MARKS.replace(self.decimal, ""))
        for suffix in self.suffixes:
            if (scale := scale_of(suffix)) != 1:
                scaled = cells.str.contains(
                    rf"[0-9][{BLANKS}]*{_escaped([suffix])}[{BLANKS}]*[{minus}]?\)?$"
                )
                numbers = numbers.zip_with(~scaled, numbers * scale)
        if cells.str.contains(f"[{minus}(]").any():
            negative = cells.str.contains(rf"^[^0-9]*[{minus}(]|[{minus}]\)?$")
            numbers = numbers.zip_with(~negative, -numbers)
        return numbers

    def _cast(self, body: pl.Series, marks: str) -> pl.Series:
        if self.decimal == "," and "." not in marks:  # a cast would take it for the decimal mark
            marks += "."
        for mark in marks:
            body = body.str.replace_all(mark, "", literal=True)
        if self.decimal == ",":
            body = body.str.replace(",", ".", literal=True)
        return body.cast(pl.Float64, strict=False)

    @cached_property
    def _pattern(self) -> str:
        body = body_pattern(self.decimal)
        return cell_pattern(body, _escaped(self._before), _escaped(self.suffixes))

    @cached_property
    def _before(self) -> list[str]:
        """The words that may stand before a number; where Rs may, Rs. may, too."""
        words = [prefix.strip(BLANKS) for prefix in self.prefixes]
        return words + [f"{word}." for word in words if is_currency(f"{word}.")]

    def describe(self) -> str:
        """Return in a few words how the numbers are written."""
        words = "numbers"
        if self.decimal == ",":
            words += " with decimal comma"
        units = list(dict.fromkeys(affix.strip(BLANKS) for affix in self.prefixes + self.suffixes))
        if units:
            shown = ", ".join(units[:3]) + (", ..." if len(units) > 3 else "")
            words += f"{', in' if self.decimal == ',' else ' in'} {shown}"
        return words

    def show(self, value: float) -> str:
        """Return a number as the column would write it.

        >>> NumberFormat(suffixes=("%",)).show(79.8), NumberFormat(thousands="'").show(-1234567)
        ('79.8%', "-1'234'567")
        """
        scale = scale_of(self.suffixes[0]) if self.suffixes else 1.0
        digits = _digits(abs(value) / scale, self.places)
        shown = self.decimal.join(part.replace(",", self.thousands) for part in digits.split("."))
        shown = f"{(*self.prefixes, '')[0]}{shown}{(*self.suffixes, '')[0]}"
        return _NEGATIVE[self.negative].format(shown) if value < 0 else shown

    def to_dict(self) -> dict[str, Any]:
        """Return the format as JSON has it."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, state: Any) -> NumberFormat:
        """Return the format that `to_dict` wrote, or refuse what it cannot have written."""
        names = {"decimal", "thousands", "prefixes", "suffixes", "negative", "places"}
        if not isinstance(state, dict) or set(state) != names:
            raise InputError(f"A format of numbers has the entries {', '.join(sorted(names))}.")
        places = state["places"]
        sound = (
            state["decimal"] in (".", ",")
            and isinstance(state["thousands"], str)
            and len(state["thousands"]) <= 1
            and state["thousands"] in GROUP_MARKS.replace(state["decimal"], "")
            and isinstance(state["negative"], str)
            and state["negative"] in _NEGATIVE
            and (places is None or (type(places) is int and 0 <= places <= 15))
            and all(_are_affixes(state[name]) for name in ("prefixes", "suffixes"))
        )
        if not sound:
            raise InputError(f"{quoted(state)} is no format of numbers: the model is damaged.")
        lists = {name: tuple(state[name]) for name in ("prefixes", "suffixes")}
        return cls(**{**state, **lists})


def _are_affixes(entries: Any) -> bool:
    return (
        isinstance(entries, list)
        and len(entries) <= _MOST_AFFIXES
        and all(isinstance(each, str) and _AFFIX.fullmatch(each) for each in entries)
    )


def _settles(cell: str, decimal: str, other: str) -> bool:
    """Whether an example has only this reading: 1,234 has two."""
    digits = re.findall(rf"[\d{re.escape(GROUP_MARKS)}]+", cell)[0].strip(BLANKS)
    lone = other in digits and decimal not in digits and digits.count(other) == 1
    three = re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", digits)
    return not (lone or three)


def _escaped(affixes: tuple[str, ...] | list[str]) -> str:
    """Return the pattern of any of these words; where there are none, of nothing."""
    words = sorted({affix.strip(BLANKS) for affix in affixes}, key=len, reverse=True)
    return "|".join(re.sub(r"\\? ", f"[{BLANKS}]+", re.escape(word)) for word in words)


def group_mark(cell: str, decimal: str) -> str:
    """Return the mark between groups of digits in a cell, if there is one."""
    marks = GROUP_MARKS.replace(decimal, "")
    found = re.search(rf"\d([{re.escape(marks)}])\d{{3}}(?!\d)", cell)
    return found[1] if found else ""


def is_money(prefix: str, suffix: str) -> bool:
    """Whether an amount of a currency is written."""
    return any(is_currency(word) for word in words_of(prefix) + words_of(suffix))


def shown_places(cell: str, decimal: str, money: bool) -> int | None:
    """Return how many decimals to show: two of money, if this cell has them, or what is needed."""
    return 2 if money and re.search(rf"\{decimal}\d\d(?!\d)", cell) else None


def _digits(size: float, places: int | None) -> str:
    """Return a number without sign, with commas between groups, to about six digits."""
    if not math.isfinite(size) or size >= 1e15 or 0 < size < 1e-4:
        return f"{size:.6g}"
    if places is None:
        needed = 5 - math.floor(math.log10(size)) if size else 0
        digits = f"{size:,.{max(0, needed)}f}"
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{size:,.{places}f}"
