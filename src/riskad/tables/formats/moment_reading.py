"""Cells read by a pattern, all at once: seconds, and the offsets from Greenwich beside them.

There are two ways to the same seconds. A pattern of padded numbers (``27.03.2025 18:14``) has its
fields at fixed places, and polars reads it quickly; what is left, and all other patterns, is taken
apart by a regular expression. `read_cells` tries the first and then the second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.rows.date_features import (
    DAY,
    EARLIEST,
    LATEST,
    Floats,
    civil_of_days,
    days_of_civil,
)
from riskad.tables.formats.moment_patterns import COUNTS, directives, expression, offset_seconds
from riskad.tables.formats.month_names import MONTHS

__all__ = [
    "Cells",
    "month_words",
    "read_cells",
    "read_count",
    "read_temporal",
    "texts_of",
]

_PADDED = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2}
_TAIL = r"^(?:[.,](?P<f>[0-9]{1,9}))?\s?(?P<z>Z|z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?$"
_FEW = 4_096  # cells fewer than this are not worth a second way


@dataclass(frozen=True)
class Cells:
    """Seconds of cells, NaN where they cannot be read, and their offsets, NaN where none is."""

    seconds: Floats
    offsets: Floats

    @classmethod
    def unread(cls, n: int) -> Cells:
        """Cells of which none was read."""
        return cls(np.full(n, np.nan), np.full(n, np.nan))

    @property
    def read(self) -> NDArray[np.bool_]:
        """Which cells were read."""
        return ~np.isnan(self.seconds)

    def placed(self, where: NDArray[np.bool_], others: Cells) -> Cells:
        """These cells, but for those of `others` at the places `where`."""
        self.seconds[where], self.offsets[where] = others.seconds, others.offsets
        return self


def read_cells(texts: pl.Series, kind: str, pattern: str) -> Cells:
    """Read texts by a pattern; nulls and what it does not fit are NaN.

    >>> read_cells(pl.Series(["01.01.1970 00:01", "1.1.1970 1:00", "x"]), "date", "%d.%m.%Y %H:%M")
    Cells(seconds=array([  60., 3600.,   nan]), offsets=array([nan, nan, nan]))
    """
    if pattern in COUNTS:
        return read_count(texts.str.strip_chars(), pattern)
    width = _width(pattern) if kind == "date" else None
    if width is None or len(texts) < _FEW:
        return _taken_apart(texts, kind, pattern)
    cells = _padded(texts, pattern, width)
    left = ~cells.read & texts.is_not_null().to_numpy()
    if left.any():
        cells = cells.placed(left, _taken_apart(texts.filter(pl.Series(left)), kind, pattern))
    return cells


def read_count(numbers: pl.Series, pattern: str) -> Cells:
    """Read seconds or milliseconds since 1970, or days since 1899-12-30 as spreadsheets count."""
    values = numbers.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)
    if pattern == "unix ms":
        values = values / 1000
    seconds = (values - 25_569) * DAY if pattern == "excel" else values
    return Cells(_within(seconds), np.full(len(seconds), np.nan))


def _within(seconds: Floats) -> Floats:
    """Seconds, NaN beyond the years 1 to 9999."""
    with np.errstate(invalid="ignore"):
        return np.where((seconds >= EARLIEST) & (seconds < LATEST), seconds, np.nan)


# --- fields at fixed places -----------------------------------------------------------------------


def _width(pattern: str) -> int | None:
    """Characters of a cell with padded numbers, up to the seconds; None for other patterns."""
    body = pattern.removesuffix("%z").rstrip()
    if not set(directives(body)) <= set(_PADDED) or "%d" not in body:
        return None
    if "%S" in body and not body.endswith("%S"):
        return None
    return len(body) + sum(_PADDED[each] - 2 for each in directives(body))


def _padded(texts: pl.Series, pattern: str, width: int) -> Cells:
    body = pattern.removesuffix("%z").rstrip()
    heads, tails = texts, None
    just = (texts.str.len_bytes() == width).fill_null(True)
    if body != pattern or (body.endswith("%S") and not just.all()):
        heads, tails = texts.str.head(width), texts.str.slice(width)
    elif not just.all():
        heads = texts.set(~just, None)
    # Polars also takes '+2025' for a year and ' 3' for a month.
    odd = heads.str.count_matches(" ", literal=True) != body.count(" ")
    odd |= heads.str.contains("+", literal=True)
    heads = heads.set(odd.fill_null(False), None) if odd.any() else heads
    if "%H" in body:
        # Without a cache: most moments occur once.
        read = heads.str.to_datetime(body, strict=False, time_unit="us", cache=False)
        seconds = read.to_physical().cast(pl.Float64).to_numpy() / 1e6
    else:
        read = heads.str.to_date(body, strict=False, cache=False)
        seconds = read.to_physical().cast(pl.Float64).to_numpy() * DAY
    cells = Cells(_within(seconds), np.full(len(seconds), np.nan))
    return cells if tails is None else _with_tails(cells, tails, pattern.endswith("%z"))


def _with_tails(cells: Cells, tails: pl.Series, zone: bool) -> Cells:
    """Add fractions of seconds, and read the offsets that follow."""
    distinct = tails.drop_nulls().unique()
    groups = distinct.str.extract_groups(_TAIL).struct.unnest()
    good = distinct.str.contains(_TAIL) & (groups["z"].is_not_null() == zone)
    told = pl.DataFrame(
        {
            "tail": distinct,
            "fraction": ("0." + groups["f"].fill_null("0")).cast(pl.Float64).set(~good, None),
            "offset": _offsets(groups["z"]),
        }
    )
    both = tails.alias("tail").to_frame().join(told, on="tail", how="left", maintain_order="left")
    offsets = both["offset"].to_numpy().astype(np.float64)
    seconds = cells.seconds + both["fraction"].to_numpy().astype(np.float64)
    return Cells(np.where(np.isnan(offsets), np.nan, seconds) if zone else seconds, offsets)


def _offsets(texts: pl.Series) -> pl.Series:
    found = {text: offset_seconds(text) for text in texts.drop_nulls().unique()}
    if not found:
        return pl.Series(np.full(len(texts), np.nan))
    return texts.replace_strict(found, default=None, return_dtype=pl.Float64)


# --- fields by a regular expression ---------------------------------------------------------------


def _taken_apart(texts: pl.Series, kind: str, pattern: str) -> Cells:
    """Read texts, those that occur often only once."""
    if len(texts) >= _FEW:
        distinct = texts.unique()
        if 2 * len(distinct) <= len(texts):
            cells = _taken_apart(distinct, kind, pattern)
            places = pl.Series(np.arange(len(distinct)))
            known = pl.DataFrame({"text": distinct, "place": places})
            both = texts.alias("text").to_frame()
            both = both.join(known, on="text", how="left", maintain_order="left", nulls_equal=True)
            at = both["place"].to_numpy()
            return Cells(cells.seconds[at], cells.offsets[at])
    return _durations(texts, pattern) if kind == "duration" else _moments(texts, kind, pattern)


def _groups(texts: pl.Series, kind: str, pattern: str) -> pl.DataFrame:
    frame = texts.str.extract_groups(expression(kind, pattern)).struct.unnest()
    return frame.select(pl.exclude("^\\d+$"))


def _floats(groups: pl.DataFrame, name: str, absent: float) -> Floats:
    """A field as numbers; `absent` if the pattern has none, NaN where the cell has none."""
    if name not in groups.columns:
        return np.full(groups.height, absent)
    texts = groups[name]
    if name == "S" or math.isnan(absent):  # of clocks only seconds, of durations all parts
        texts = texts.str.replace(",", ".", literal=True)
    return texts.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)


def _moments(texts: pl.Series, kind: str, pattern: str) -> Cells:
    """Read dates or times of day."""
    groups = _groups(texts, kind, pattern)
    days = _days(groups) if kind == "date" else np.zeros(groups.height)
    hour, minute, second = (_floats(groups, name, 0.0) for name in "HMS")
    if "I" in groups.columns:
        twelve = _floats(groups, "I", 0.0)
        after_noon = groups["p"].str.to_lowercase().eq("p").fill_null(False).to_numpy()
        hour = np.where((twelve >= 1) & (twelve <= 12), np.mod(twelve, 12), np.nan)
        hour = hour + 12.0 * after_noon
    with np.errstate(invalid="ignore"):
        good = (hour < 24) & (minute < 60) & (second < 61)  # a leap second is the next second
    seconds = np.where(good, days * DAY + hour * 3_600 + minute * 60 + second, np.nan)
    offsets = np.full(groups.height, np.nan)
    if "z" in groups.columns:
        offsets = _offsets(groups["z"]).to_numpy().astype(np.float64)
        seconds = np.where(np.isnan(offsets), np.nan, seconds)
    return Cells(_within(seconds), offsets)


def _days(groups: pl.DataFrame) -> Floats:
    year, day = _floats(groups, "Y", np.nan), _floats(groups, "d", 1.0)
    if "y" in groups.columns:
        short = _floats(groups, "y", np.nan)
        year = short + np.where(short < 69, 2000, 1900)
    if "b" in groups.columns:
        names = groups["b"].str.to_lowercase()
        month = names.replace_strict(MONTHS, default=None, return_dtype=pl.Float64).to_numpy()
        month = month.astype(np.float64)
    else:
        month = _floats(groups, "m", np.nan)
    days = days_of_civil(year, month, day)
    again = civil_of_days(days)  # 31 February comes back as 3 March
    same = (again[0] == year) & (again[1] == month) & (again[2] == day)
    return np.where(same, days, np.nan)


def month_words(texts: pl.Series, kind: str, pattern: str) -> frozenset[str]:
    """The names of months that occur, in small letters."""
    names = _groups(texts, kind, pattern)["b"].drop_nulls().str.to_lowercase().unique()
    return frozenset(name for name in names if name in MONTHS)


_SECONDS_OF = {"w": 7 * DAY, "D": DAY, "H": 3_600.0, "M": 60.0, "S": 1.0, "f": 0.001}


def _durations(texts: pl.Series, pattern: str) -> Cells:
    groups = _groups(texts, "duration", pattern)
    parts = {name: _floats(groups, name, np.nan) for name in _SECONDS_OF if name in groups.columns}
    absent = np.all([np.isnan(part) for part in parts.values()], axis=0)
    sign = np.where(groups["sign"].is_not_null().to_numpy(), -1.0, 1.0)
    if pattern == "days and clock":  # '-1 days +04:05:06' is four hours after a day before
        parts["D"], sign = sign * parts["D"], np.ones(groups.height)
    total = sum((np.nan_to_num(part) * _SECONDS_OF[name] for name, part in parts.items()))
    if pattern.startswith("%"):  # 01:75 is no clock
        small = [part for name, part in parts.items() if f"%{name}" != pattern[:2]]
        absent |= np.any([part >= 60 for part in small], axis=0)
    seconds = np.where(absent, np.nan, sign * np.asarray(total) + 0.0)
    return Cells(seconds, np.full(len(seconds), np.nan))


# --- columns that have a type ---------------------------------------------------------------------


def texts_of(column: pl.Series) -> pl.Series | None:
    """Cells as texts, whole numbers as their digits; None for a type that holds no such texts."""
    if column.dtype.is_integer():
        return column.cast(pl.String)
    if column.dtype.is_float() or column.dtype.is_decimal():
        numbers = column.cast(pl.Float64).fill_nan(None)
        whole = numbers.is_null() | (numbers == numbers.floor())
        return numbers.set(~whole, -1.0).cast(pl.Int64, strict=False).cast(pl.String)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    return column.cast(pl.String) if column.dtype == pl.Null else None


def read_temporal(column: pl.Series) -> Cells:
    """Seconds of a column of dates, datetimes, times or durations; of its zone the UTC seconds."""
    unit = getattr(column.dtype, "time_unit", "ns") or "us"
    scale = {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit]
    values = column.to_physical().cast(pl.Float64).to_numpy().astype(np.float64)
    seconds = values * DAY if column.dtype == pl.Date else values / scale
    zoned = getattr(column.dtype, "time_zone", None) is not None
    offsets = np.where(np.isnan(seconds), np.nan, 0.0 if zoned else np.nan)
    if column.dtype in (pl.Date, pl.Datetime):
        seconds = _within(seconds)
    return Cells(seconds, offsets)
