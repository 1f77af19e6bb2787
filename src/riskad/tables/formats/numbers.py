"""Numbers as people write them: with marks, signs, currencies and units."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.files.fields import Number, Text
from riskad.tables.cells import (
    SPACES,
    Cell,
    CellFormat,
    CellLook,
    Tally,
    are_blank,
    categories_as_texts,
    filled,
    strip_spaces,
    tally_filled,
)
from riskad.tables.notes import pluralize

# --- the marks of which a number consists ---------------------------------------------------------

_MINUS = "-\u2212\u2013"  # as on the keyboard, as in mathematics, as typesetters do
_GROUP_MARKS = ",.'\u2019" + SPACES  # between the groups of a long number
# Codes that are also English words (ALL, TOP) are left out.
_MONEY = """
    € $ £ ¥ ₹ ₽ ₩ ₺ ₴ ₪ ₫ ₦ ₱ ₿ ฿ ¢ ₡ ₲ ₸ ₮ ₼ ₾ ₵ US$ C$ CA$ A$ AU$ NZ$ HK$ S$ R$ MX$ NT$
    zł zl Kč Ft lei kr kr. Kr Kr. Fr Fr. SFr SFr. Rs Rs. Rp \u0440\u0443\u0431 \u0440\u0443\u0431.
    EUR USD GBP JPY CHF CAD AUD NZD CNY RMB HKD SGD INR PKR BDT LKR KRW TWD THB VND IDR MYR PHP
    PLN CZK HUF RON BGN SEK NOK DKK ISK RUB UAH TRY ILS AED SAR QAR KWD EGP ZAR NGN KES GHS MAD
    BRL MXN ARS CLP COP PEN UYU BTC ETH Euro Euros euro euros Dollar dollars dollar
"""
_CURRENCIES = frozenset(_MONEY.split())
# What a number is counted in; a word that is not here is one where most cells have it.
_MEASURES = """
    % ‰ pp bps ° °C °F °K µm µg µs μm μg μs ng mg g kg t lb lbs oz ton tons tonnes
    nm mm cm m km in ft yd mi mile miles m² m³ km² cm² cm³ mm² ha sqm sqft ft² ac acre acres
    ml cl dl l L hl gal bbl ns ms s sec secs second seconds min mins minute minutes
    h hr hrs hour hours Std d day days Tage week weeks wk mo month months yr yrs year years Jahre
    km/h kmh kph mph m/s kn knots rpm K C F W kW MW GW Wh kWh MWh GWh J kJ MJ cal kcal
    V mV kV A mA Ah mAh Hz kHz MHz GHz Ω kΩ N kN Nm Pa hPa kPa MPa bar mbar psi dB dBm ppm ppb
    mol mmol mmol/l mg/dl mg/l g/l g/cm³ kg/m³ U/l IU lx lm cd
    B KB kB MB GB TB PB KiB MiB GiB TiB bit kbit/s Mbit/s Gbit/s kbps Mbps Gbps MB/s px dpi
    pcs pc Stk Stück x hp PS bhp cc ccm kVA
"""
_KNOWN = _CURRENCIES.union(_MEASURES.split())
_FOLDED_UNITS = frozenset(unit.casefold() for unit in _KNOWN if len(unit) > 1)
# Words that multiply what stands before them: no units where other numbers are without them.
_MULTIPLIERS = """
    k K M MM B Tsd Tsd. mn mln mio Mio Mio. million millions bn bln Mrd Mrd. billion billions
"""

_SPACE, _SIGN = f"[{SPACES}]", f"[{re.escape(_MINUS)}+]"
_ANY_PREFIX = "|".join(re.escape(word) for word in sorted(_CURRENCIES, key=len, reverse=True))
_ANY_SUFFIX = rf"[\p{{L}}\p{{Sc}}%\u2030°/²³.]{{1,12}}(?:{_SPACE}[\p{{L}}\p{{Sc}}.]{{1,8}})?"
# Bytes of a cell: no number of so many digits, with an exponent below 100, is infinite (1e308).
_LONGEST = 120
# Squares of larger numbers, summed over many rows, would overflow. LightGBM cannot distinguish
# smaller numbers from zero, and spreads of some have no inverse.
LARGEST = 1e100
_SMALLEST = 1e-35


def _digits(decimal: str) -> str:
    """The pattern of a number without sign and unit, by its decimal mark.

    Groups are of three digits behind one to three, the first of which is no zero, or of two digits
    before the last three, as in India (12,34,567). Only numbers without groups have exponents.
    """
    mark, other = re.escape(decimal), "," if decimal == "." else r"\."
    groups = "|".join(f"(?:{each}[0-9]{{3}})+" for each in (other, "['\u2019]", _SPACE))
    indian = "|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}" if decimal == "." else ""
    grouped = f"(?:[1-9][0-9]{{0,2}}(?:{groups}){indian})(?:{mark}[0-9]+)?"
    return f"(?:{grouped}|(?:[0-9]+(?:{mark}[0-9]+)?|{mark}[0-9]+)(?:[eE][-+]?0?[0-9]{{1,2}})?)"


def _cell_pattern(decimal: str, prefix: str = _ANY_PREFIX, suffix: str = _ANY_SUFFIX) -> str:
    """The pattern of a cell: a number with its signs, and what may stand around it."""
    before = f"(?:(?:{prefix}){_SPACE}*{_SIGN}?{_SPACE}*)?" if prefix else ""
    after = f"(?:(?:{suffix}){_SPACE}*)?" if suffix else ""
    minus = f"[{re.escape(_MINUS)}]"
    return rf"^\(?{_SIGN}?{_SPACE}*{before}{_digits(decimal)}{_SPACE}*{after}{minus}?\)?$"


def _is_money(prefix: str, suffix: str) -> bool:
    return not _CURRENCIES.isdisjoint(prefix.split() + suffix.split())


def _is_unit(suffix: str) -> bool:
    """Whether what stands behind a number is well known: nothing, a unit or a currency."""
    words = suffix.split()
    return all(word in _KNOWN or word.rstrip(".").casefold() in _FOLDED_UNITS for word in words)


def _accepted_suffixes(counts: Counter[str], n_filled: int) -> set[str]:
    """The suffixes that leave a number a number.

    These are: nothing, a well-known unit, a currency, or a word of two letters or more if at most
    three such words occur and at least half of all filled cells have one of them or a known unit.
    One letter (5m) is a unit where no other letter occurs (12a and 12b are house numbers), or
    behind a space. A word that multiplies is one only where all cells have it: 1.2k beside 900
    would be read as less.
    """
    units = {suffix for suffix in counts if _is_unit(suffix)}
    words = {
        suffix
        for suffix in counts.keys() - units
        if suffix.strip().casefold() not in ("am", "pm", "a.m.", "p.m.", "uhr")
        and suffix.casefold() not in ("st", "nd", "rd", "th")  # but 3 St are three pieces
        and all(len(word) > 1 for word in suffix.split())
    }
    n_measured = sum(counts[suffix] for suffix in words | units if suffix)
    if len({word.strip().casefold() for word in words}) <= 3 and 2 * n_measured >= n_filled:
        units |= words
    letters = {suffix for suffix in counts if re.fullmatch(r"\s*[^\W\d_]", suffix)}
    apart = all(letter[0].isspace() and _is_unit(letter) for letter in letters)
    if len({letter.strip() for letter in letters}) > 1 and not apart:
        units -= letters
    multiplied = {
        suffix
        for suffix in counts.keys() - {"", " K", " B"}  # kelvins and bytes
        if suffix.split()[0].rstrip("€$£") in _MULTIPLIERS.split()
    }
    return units - multiplied if len(counts) > 1 or multiplied == {"B"} else units | multiplied


# --- reading and showing --------------------------------------------------------------------------


def _plain_numbers(column: pl.Series) -> tuple[pl.Series, pl.Series | None]:
    """Read what a cast to numbers reads, and say where there is something else, if anywhere.

    Infinity is something else, and so are dates: a cast would give their seconds.
    """
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
        nothing = pl.repeat(None, len(column), dtype=pl.Float64, eager=True)
        return nothing.alias(column.name), column.is_not_null()
    values = column.cast(pl.Float64, strict=False)
    # A sum is finite only if all its terms are, which costs less than to ask each.
    finite = math.isfinite(values.sum())
    if finite and values.null_count() == column.null_count():
        return values, None
    if not finite:
        values = values.set(~values.is_finite(), None)
    other = values.is_null() & filled(column)
    return values, other if other.any() else None


def _clean(texts: pl.Series) -> pl.Series:
    """Take spaces from around texts, and write m2 and m3 as m² and m³: no unit has digits."""
    cells = strip_spaces(texts)
    for digit, power in (("2", "²"), ("3", "³")):
        if cells.str.ends_with(f"m{digit}").any():
            cells = cells.str.replace(rf"^([^\p{{L}}]*[ckdm]?m){digit}$", f"${{1}}{power}")
    return cells


def _fit(cells: pl.Series, pattern: str) -> pl.Series:
    """Whether each cell follows a pattern, with both parentheses or none, and is no huge number."""
    fits = cells.str.contains(pattern) & (cells.str.len_bytes() <= _LONGEST)
    # With one parenthesis alone a cell is cut off, and holds no number.
    return (fits & (cells.str.starts_with("(") == cells.str.ends_with(")"))).fill_null(False)


def _any_of(affixes: tuple[str, ...]) -> str:
    """The pattern of any of these words; where there are none, of nothing."""
    words = sorted({affix.strip(SPACES) for affix in affixes}, key=len, reverse=True)
    return "|".join(re.sub(r"\\? ", f"{_SPACE}+", re.escape(word)) for word in words)


@dataclass(frozen=True)
class NumberFormat(CellFormat):
    """How the numbers of a column are written.

    Signs, parentheses for negative numbers and marks between groups are read in any usual way; the
    decimal mark and the units are those of the column, because another one would change the value.
    What may stand before and behind a number has the space that separates it, and the most frequent
    comes first; 79.8% is 79.8. `places` is how many decimals are shown, None as many as are needed.

    >>> money = NumberFormat(",", ".", suffixes=(" €",), places=2)
    >>> values, bad = money.read(pl.Series(["1.234,50 €", "-12 €", "12 $", "n/a"]))
    >>> values.to_list(), bad.to_list()
    ([1234.5, -12.0, None, None], [False, False, True, False])
    >>> money.show(-1234.5), money.describe()
    ('-1.234,50 €', 'numbers with decimal comma, in €')
    """

    decimal: Annotated[str, Text((".", ","))] = "."
    thousands: Annotated[str, Text(("", *_GROUP_MARKS))] = ""
    prefixes: tuple[Annotated[str, Text(longest=40)], ...] = ()
    suffixes: tuple[Annotated[str, Text(longest=40)], ...] = ()
    places: Annotated[int, Number(0, 15, whole=True)] | None = None

    word = "number"
    expected = "a number"

    @classmethod
    def from_example(cls, example: str) -> NumberFormat:
        """Return the format of an example that a person wrote."""
        for decimal in ".,":
            around = rf"\(?{_SIGN}?([^\d.,]*?)({_digits(decimal)})([^\d.,][^\d]*?)?-?\)?"
            parts = re.fullmatch(around, example.strip())
            if parts and not re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", parts[2]):  # has two readings
                affixes = (tuple(filter(str.strip, [part or ""])) for part in (parts[1], parts[3]))
                return cls._like(parts[0], decimal, *affixes)
        raise InputError(
            f"{quoted(example)} does not show how numbers are written. Write a number with "
            "decimals as the column has them, such as 1.234,50 or 1,234.50 €."
        )

    @classmethod
    def _like(
        cls, cell: str, decimal: str, prefixes: tuple[str, ...], suffixes: tuple[str, ...]
    ) -> NumberFormat:
        """The format that shows the mark between groups and the places of a cell."""
        marks = re.escape(_GROUP_MARKS.replace(decimal, ""))
        mark = re.search(rf"\d([{marks}])\d{{3}}(?!\d)", cell)
        # Two places of money, if the cell has them; of other numbers as many as are needed.
        money = _is_money((*prefixes, "")[0], (*suffixes, "")[0])
        places = 2 if money and re.search(rf"\{decimal}\d\d(?!\d)", cell) else None
        return cls(decimal, mark[1] if mark else "", prefixes, suffixes, places)

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        column = categories_as_texts(column)
        if column.dtype != pl.String or not (self.decimal == "," or self.prefixes or self.suffixes):
            return self._read_any(column)
        # Most cells have no marks but the usual ones, and these are read three times as quickly.
        prefix, suffix = (*self.prefixes, "")[0], (*self.suffixes, "")[0]
        digits = f"[0-9]{{1,15}}(?:{re.escape(self.decimal)}[0-9]{{1,15}})?"
        others = ~column.str.contains(f"^{re.escape(prefix)}-?{digits}{re.escape(suffix)}$")
        body = column.str.strip_prefix(prefix) if prefix else column
        body = body.str.strip_suffix(suffix) if suffix else body
        body = body.str.replace(",", ".", literal=True) if self.decimal == "," else body
        values, bad = body.cast(pl.Float64, strict=False), pl.Series(np.zeros(len(body), bool))
        if others.any():
            places = others.arg_true()
            rest, bad_rest = self._read_any(column.gather(places))
            values, bad = values.scatter(places, rest), bad.scatter(places, bad_rest)
        return values, bad

    def _read_any(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        values, other = _plain_numbers(column)
        if column.dtype == pl.String and self.decimal == ",":  # a cast takes 1.234 for a little
            dots = column.str.contains(".", literal=True).fill_null(False)
            other = dots if other is None else dots | other
        if other is None or not other.any():
            return values, pl.Series(np.zeros(len(values), dtype=bool))
        if column.dtype != pl.String:
            return values, other
        places = other.arg_true()
        cells = _clean(column.gather(places))
        pattern = _cell_pattern(self.decimal, _any_of(self._before), _any_of(self.suffixes))
        good = _fit(cells, pattern)
        bad = ~good
        if bad.any():
            bad &= ~are_blank(cells)
            cells = cells.set(~good, None)
        return values.scatter(places, self._read_good(cells)), other.scatter(places, bad)

    def _read_good(self, cells: pl.Series) -> pl.Series:
        """The numbers of cells that follow the pattern."""
        body, minus = cells, re.escape(_MINUS)
        for word in self._before:
            if "." in word:  # as a whole, to leave the point of .5
                body = body.str.replace(word, "", literal=True)
        before = "".join(self._before).replace(".", "") + _MINUS + "+(" + SPACES
        after = "".join(self.suffixes) + _MINUS + ")" + SPACES
        body = body.str.strip_chars_start(before).str.strip_chars_end(after)
        numbers = self._cast(body, self.thousands or (",", ".")[self.decimal == ","])
        if numbers.null_count() > cells.null_count():  # other marks occur besides the usual one
            numbers = self._cast(body, _GROUP_MARKS.replace(self.decimal, ""))
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
    def _before(self) -> tuple[str, ...]:
        """The words that may stand before a number; where Rs may, Rs. may, too."""
        words = [prefix.strip(SPACES) for prefix in self.prefixes]
        return (*words, *(f"{word}." for word in words if f"{word}." in _CURRENCIES))

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return numbers to compute with: none is infinite or too large, and tiny ones are 0."""
        sizes = np.abs(values.to_numpy())  # NaN where there is none
        if (sizes > LARGEST).any():
            wrong, what = np.isinf(sizes), "is infinite"
            remedy = "Correct it or leave it blank."
            if not wrong.any():
                wrong, what = sizes > LARGEST, f"is beyond {LARGEST:g}, too large to compute with"
                remedy = "Correct it, leave it blank, or give the column in larger units."
            row, such_rows = int(wrong.argmax()), pluralize(int(wrong.sum()), "such row")
            raise InputError(
                f"Column {column.name!r} holds numbers, but {quoted(column[row])} in row "
                f"{first_row + row:,} {what} (at least {such_rows}). {remedy}"
            )
        tiny = (sizes < _SMALLEST) & (sizes > 0)
        values = values.set(pl.Series(tiny), 0.0) if tiny.any() else values
        return values.alias(column.name)

    def describe(self) -> str:
        words = "numbers with decimal comma," if self.decimal == "," else "numbers"
        affixes = (*self.prefixes, *self.suffixes)
        units = list(dict.fromkeys(affix.strip(SPACES) for affix in affixes))
        if not units:
            return words.rstrip(",")
        return f"{words} in {', '.join(units[:3])}{', ...' if len(units) > 3 else ''}"

    def show(self, value: float) -> str:
        prefix, suffix = (*self.prefixes, "")[0], (*self.suffixes, "")[0]
        size = abs(value)
        if not math.isfinite(size) or size >= 1e15 or 0 < size < 1e-4:
            digits = f"{size:.6g}"
        elif self.places is None:  # six significant digits
            needed = 5 - math.floor(math.log10(size)) if size else 0
            digits = f"{size:,.{max(0, needed)}f}"
            digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        else:
            digits = f"{size:,.{self.places}f}"
        shown = self.decimal.join(part.replace(",", self.thousands) for part in digits.split("."))
        return f"{'-' if value < 0 else ''}{prefix}{shown}{suffix}"


# --- what all cells look like ---------------------------------------------------------------------

# How a number may be read. What fits only one decimal mark is evidence for it.
_POINT, _COMMA = "point", "comma"  # 12.5, 1,234.5 and 1,234,567; 12,5, 1.234,5 and 1.234.567
_DOT3, _COMMA3 = "1.234", "1,234"  # fit both, with different values
_WHOLE = "whole"  # 123 and 1 234 and 1'234 fit both, with the same value
_FOUR = "1234"  # does, too, and shows that no mark separates groups
_PHONE = "123 456 789"  # is a number, too, but not where all cells are like it
_PHONE_NUMBER = rf"^\+?[0-9]{{2,3}}(?:{_SPACE}[0-9]{{3}}){{2,3}}$"
_ROW = attrgetter("row")
_MANY = 20  # of so many numbers with three decimals, one ends in 0 and would be written shorter
_MOST_UNITS = 64  # that are not well known; with more of them, they are words and no units
_BY_MARK = {mark: _cell_pattern(mark) for mark in (".", ",")}


class NumberStyle(NamedTuple):
    """One way of writing numbers: what stands around them, and how they may be read."""

    prefix: str
    suffix: str
    shape: str


@dataclass(frozen=True)
class NumberLook(CellLook):
    """What all cells of a column, or of a part of its rows, look like as numbers.

    The decimal mark is decided by all rows together. A cell that has only one reading is evidence:
    ``12.5``, ``1,234.5`` and ``0.123`` for the point, ``12,5``, ``1.234,5`` and ``0,123`` for the
    comma. The mark with more evidence is that of the column; cells that contradict it are bad.
    Without evidence, ``1,234`` is one thousand and ``1.234`` is between one and two (programs write
    so). But ``1.234`` is one thousand where it is money (``1.234 €``), which has no thousandths,
    and where twenty numbers or more are like it and all others are whole and below 1000.

    `first_code` is the first whole number with leading zeros, which is a code ('007'). What a
    person wrote as an `example` settles the decimal mark and adds to the units.
    """

    first_code: Cell | None = None
    example: NumberFormat | None = None  # that a person wrote

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> NumberLook:
        """Look at all cells of a column, the first of which is in row `first_row`."""
        column = categories_as_texts(column)
        if column.dtype == pl.Boolean:  # yes and no, though a cast would do
            return cls(*tally_filled(column, first_row))
        values, other = _plain_numbers(column)
        look = _look_at_plain(column, values, first_row)
        if other is None:
            return look
        if column.dtype == pl.String:
            rows = other.arg_true()
            return look.joined(_look_at_dressed(_clean(column.gather(rows)), rows + first_row))
        others = column.to_frame().select(pl.when(other).then(pl.first())).to_series()
        return look.joined(cls(tally_filled(others, first_row)[0]))

    def joined(self, other: Self) -> Self:
        both = super().joined(other)
        tallies, codes = both.tallies, (self.first_code, other.first_code)
        unknown = [way for way in tallies if way and not _is_unit(way.suffix)]
        if len({way.suffix for way in unknown}) > _MOST_UNITS:  # so that a look stays small
            for way in unknown:
                tallies[None] = tallies.pop(way).joined(tallies.get(None))
        first_code = min(filter(None, codes), default=None)
        return replace(both, first_code=first_code, example=self.example or other.example)

    @property
    def n_measured(self) -> int:
        """How many cells are a number and a word behind it, be that a unit or not."""
        return sum(tally.n for way, tally in self.tallies.items() if way and way.suffix)

    @cached_property
    def _measured(self) -> dict[NumberStyle, Tally]:
        """The tallies of numbers with nothing or a unit behind them."""
        counts: Counter[str] = Counter()
        for way, tally in self.tallies.items():
            counts[way.suffix if way else "?"] += tally.n
        n_filled, _ = counts.total(), counts.pop("?", 0)
        units = {suffix.strip() for suffix in _accepted_suffixes(counts, n_filled)}
        units |= {suffix.strip() for suffix in self.example.suffixes} if self.example else set()
        return {way: n for way, n in self.tallies.items() if way and way.suffix.strip() in units}

    def _of_shape(self, *shapes: str) -> list[Tally]:
        return [tally for way, tally in self._measured.items() if way.shape in shapes]

    def _count(self, *shapes: str) -> int:
        return sum(tally.n for tally in self._of_shape(*shapes))

    @cached_property
    def _decimal(self) -> str:
        if self.example is not None:
            return self.example.decimal
        if self._count(_POINT, _COMMA, _COMMA3):
            return "," if self._count(_COMMA) > self._count(_POINT) else "."
        # Without evidence, only numbers like 1.234 are left to decide.
        lone = [way for way in self._measured if way.shape == _DOT3]
        money = bool(lone) and all(_is_money(way.prefix, way.suffix) for way in lone)
        grouped = self._count(_DOT3) >= _MANY and self._count(_WHOLE) and not self._count(_FOUR)
        return "," if money or grouped else "."

    @cached_property
    def _good(self) -> dict[NumberStyle, Tally]:
        phones = all(way.shape == _PHONE for way in self._measured)
        bad = (_COMMA if self._decimal == "." else _POINT, _PHONE if phones else "")
        return {way: tally for way, tally in self._measured.items() if way.shape not in bad}

    def format(self) -> NumberFormat | None:
        if self.n_good == 0 or self.n_good < self.n_bad:
            return None
        affixes = list[tuple[str, ...]]()
        for side in ("prefix", "suffix"):
            counts = Counter[str]()
            for way, tally in self._good.items():
                counts[getattr(way, side)] += tally.n
            counts.pop("", None)
            affixes.append(tuple(sorted(counts, key=lambda affix: (-counts[affix], affix))))
        # The longest number shows the mark between groups, if any does.
        longest = max((tally.longest for tally in self._good.values()), key=lambda s: (len(s), s))
        return NumberFormat._like(longest, self._decimal, *affixes)

    def remarks(self) -> list[str]:
        numbers = self.format()
        if numbers is None:
            return []
        remarks, two_readings = [], self._of_shape(_DOT3, _COMMA3)
        shape, name = (_COMMA, "comma") if self._decimal == "." else (_POINT, "point")
        if unread := self._of_shape(shape):
            first, cells = min(unread, key=_ROW), pluralize(self._count(shape), "such cell")
            remarks.append(
                f"{quoted(first.cell)} in row {first.row:,} has a decimal {name}, unlike most: "
                f"{cells} cannot be read."
            )
        elif self.example is None and two_readings and not self._count(_POINT, _COMMA):
            cell = min(two_readings, key=_ROW).cell
            value = numbers.read(pl.Series([cell]))[0][0]
            other = "1.234,5" if self._decimal == "." else "1,234.5"
            remarks.append(
                f"{quoted(cell)} can be read in two ways, and no row decides which: it is read "
                f"as {value:.10g}. Say kind 'number:{other}' for the other one."
            )
        if self.first_code is not None:
            row, code = self.first_code
            remarks.append(f"{quoted(code)} in row {row:,} has leading zeros, as codes have them.")
        return remarks


def _look_at_plain(column: pl.Series, values: pl.Series, first_row: int) -> NumberLook:
    """Look at the cells that a cast reads; nulls are blank."""
    numbers, n_blank = values.is_not_null(), len(column) - int(filled(column).sum())
    if not numbers.any():
        return NumberLook(n_blank=n_blank)
    shapes, code = {_WHOLE: numbers}, None
    if column.dtype == pl.String:
        dots = column.str.contains(".", literal=True) & numbers
        # Bytes of 1.234 to -123.456: a cheap sieve before the regular expression.
        lone = dots & (values.abs() < 1000) & column.str.len_bytes().is_between(5, 8)
        places = lone.arg_true()
        alone = column.gather(places).str.contains(r"^[-+]?[1-9][0-9]{0,2}\.[0-9]{3}$")
        lone = lone.scatter(places, alone)
        four = (values.abs() >= 1000).fill_null(False) & ~dots
        whole = numbers & ~dots & ~four
        shapes = {_WHOLE: whole, _FOUR: four, _POINT: dots & ~lone, _DOT3: lone}
        rows = pl.int_range(first_row, first_row + len(column), eager=True)
        code = _first_code(column, numbers, rows)
    tallies = {}
    for shape, cells in shapes.items():
        if n := int(cells.sum()):
            row = int(cells.arg_max() or 0)
            tallies[NumberStyle("", "", shape)] = Tally(n, first_row + row, str(column[row]))
    return NumberLook(tallies, n_blank, first_code=code)


def _first_code(cells: pl.Series, numbers: pl.Series, rows: pl.Series) -> Cell | None:
    zeros = (cells.str.starts_with("0") & numbers).arg_true()
    codes = zeros.filter(cells.gather(zeros).str.contains("^0[0-9]+$"))
    return (rows[codes[0]], cells[codes[0]]) if len(codes) else None


def _look_at_dressed(cells: pl.Series, rows: pl.Series) -> NumberLook:
    """Look at the cells that a cast does not read, by what stands around their digits."""
    by_point, by_comma = (_fit(cells, _BY_MARK[mark]) for mark in ".,")
    fits = by_point | by_comma
    blank = ~fits
    blank = blank.scatter(blank.arg_true(), are_blank(cells.filter(blank)))
    tallies: dict[Any, Tally] = {}
    bad = ~fits & ~blank
    if n_bad := int(bad.sum()):
        first = int(bad.arg_max() or 0)
        tallies[None] = Tally(n_bad, rows[first], cells[first])
    cell, length = pl.col("cell"), pl.col("cell").str.len_chars()
    shapes = {  # the first that holds
        _POINT: ~pl.col("by_comma"),
        _COMMA: ~pl.col("by_point"),
        _COMMA3: cell.str.contains(",", literal=True),
        _DOT3: cell.str.contains(r"[0-9]\.[0-9]"),
        _PHONE: cell.str.contains(_PHONE_NUMBER),
        _FOUR: cell.str.contains("[0-9]{4}"),
    }
    named = [pl.when(holds).then(pl.lit(name)) for name, holds in shapes.items()]
    shape = pl.coalesce(*named, pl.lit(_WHOLE))
    frame = pl.DataFrame({"cell": cells, "row": rows, "by_point": by_point, "by_comma": by_comma})
    groups = (
        frame.filter(fits)
        .group_by(
            before=cell.str.extract("^([^0-9]*)"), after=cell.str.extract("([^0-9]*)$"), shape=shape
        )
        .agg(
            pl.len(),
            pl.col("row").first(),
            first=cell.first(),
            longest=cell.filter(length == length.max()).max(),
        )
    )
    for before, after, name, *tally in groups.iter_rows():
        prefix = re.sub(f"{_SPACE}+$", " ", re.sub(rf"{_SIGN}|\(", "", before).lstrip(SPACES))
        if prefix.endswith((",", ".")) and prefix not in _CURRENCIES:  # the point of $.50
            prefix = prefix.rstrip(",." + SPACES)
        suffix = re.sub(rf"[{re.escape(_MINUS)}]?\)?$", "", after).rstrip(SPACES)
        way = NumberStyle(prefix, re.sub(f"^{_SPACE}+", " ", suffix), name)
        tallies[way] = Tally(*tally).joined(tallies.get(way))
    return NumberLook(tallies, int(blank.sum()), _first_code(cells, fits, rows))
