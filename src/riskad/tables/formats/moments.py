"""Dates, times of day and durations: how a column writes them, and what they are in seconds.

A pattern is text with directives:

========= ==================================== ====== =========================================
``%Y %y`` year of 4 or of 2 digits             ``%H`` hour, 0 to 23
``%m``    month, 1 to 12                       ``%I`` hour, 1 to 12, beside ``%p``, AM or PM
``%b %B`` name of a month, shortened or not    ``%M`` minute
``%d``    day of the month                     ``%S`` second, with a fraction or without
``%a``    name of a weekday, which is not read ``%z`` Z, UTC, GMT, +02, +0200 or +02:00
========= ==================================== ====== =========================================

Leading zeros may be absent. Years of 2 digits are 1970 to 2069. A date without a day is the first
of its month. Dates may also be counts: ``unix``, ``unix ms`` and ``excel``. Durations are clocks
(``%H:%M:%S``, ``%H:%M``) or have ``units`` (1h 20m, 2 days 04:05:06, PT1H20M).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self, TypeAlias

import polars as pl

from riskad.core.checks import InputError, check_choice, quoted
from riskad.files.fields import State, Text, require
from riskad.rows.date_features import DAY, EARLIEST, LATEST
from riskad.tables.cells import CellFormat, CellLook, Tally, filled, tally_filled, without_blanks

Way: TypeAlias = tuple[str, str]  # "date", "time" or "duration", and a pattern

MOMENT_KINDS = ("date", "datetime", "time", "duration")
_COUNTS = {"unix": "Unix seconds", "unix ms": "Unix milliseconds", "excel": "days since 1900"}
# What has one meaning is read in every column of dates, of times or of durations.
_CLOCKS = ("%H:%M:%S", "%H:%M")
_ISO_CLOCKS = tuple(f"%Y-%m-%d{mark}{clock}" for mark in " T" for clock in _CLOCKS)
_ISO = {
    "date": ("%Y-%m-%d", *_ISO_CLOCKS, *(f"{each}%z" for each in _ISO_CLOCKS)),
    "time": _CLOCKS,
    "duration": (*_CLOCKS, "units"),
}
_MONTH_NAMES = """
    january jan januar jän jänner janvier janv enero ene
    february feb februar février févr fév fevrier fevr febrero
    march mar märz mär mrz maerz mars marzo
    april apr avril avr abril abr
    may mai mayo
    june jun juni juin junio
    july jul juli juillet juil julio
    august aug août aout agosto ago
    september sep sept septembre septiembre setiembre
    october oct oktober okt octobre octubre
    november nov novembre noviembre
    december dec dezember dez décembre déc decembre diciembre dic
"""
_MONTHS = {
    name: f"{number:02d}"
    for number, names in enumerate(_MONTH_NAMES.strip().splitlines(), 1)
    for name in names.split()
}
_LONGEST_FIRST = sorted(_MONTHS, key=len, reverse=True)

_DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": "(?P<m>[0-9]{1,2})",
    "b": r"(?P<b>[^\W\d_]{3,})\.?",
    "B": r"(?P<b>[^\W\d_]{3,})\.?",
    "d": "(?P<d>[0-9]{1,2})(?:st|nd|rd|th|er|º)?",
    "a": r"[^\W\d_]+\.?",
    "H": "(?P<H>[0-9]{1,2})",
    "I": "(?P<I>[0-9]{1,2})",
    "M": "(?P<M>[0-9]{1,2})",
    "S": "(?P<S>[0-9]{1,2}(?:[.,][0-9]{1,9})?)",
    "p": r"(?P<p>[AaPp])\.?\s?[Mm]\.?",
    "z": "",
}
_ZONE = r"\s?(Z|z|UTC|GMT|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_FRACTION = "(:[0-9]{1,2})[.,]([0-9]{1,9})"
_PLAIN = re.compile("%[YmdHMS](?:[-./: T]%[YmdHMS])*")  # polars reads these as they are
_PART = r"(?:(?P<{}>[0-9]+(?:[.,][0-9]+)?)\s?(?:{})\.?,?\s*)?"
# Every part may be absent: what matches may be empty, and `read` asks for one part at least.
_DURATION = (
    r"^(?P<sign>-)?P?"
    + _PART.format("D", "d|D|days?|Tage?")
    + "T?"
    + _PART.format("H", "h|H|hrs?|hours?|Std|Stunden?")
    + _PART.format("M", "m|M|mins?|minutes?|Min|Minuten?")
    + _PART.format("S", "s|S|secs?|seconds?|Sek|Sekunden?")
    + r"(?:(?P<h>[0-9]+):(?P<m>[0-5][0-9])(?::(?P<s>[0-5][0-9](?:[.,][0-9]{1,9})?))?)?$"
)
_MANY = 4_096  # texts from which on equal ones are read once, if at least half are repeats
_SECONDS_OF = {"D": DAY, "H": 3_600.0, "M": 60.0, "S": 1.0, "h": 3_600.0, "m": 60.0, "s": 1.0}


# --- reading --------------------------------------------------------------------------------------


def _directives(pattern: str) -> list[str]:
    return re.findall("%(.?)", pattern)


def _has_clock(pattern: str) -> bool:
    return pattern in _COUNTS or "%H" in pattern or "%I" in pattern


@lru_cache(maxsize=256)
def _plan(way: Way) -> tuple[str, str, str]:
    """How polars reads a pattern: a regular expression, what to make of its groups, and a pattern.

    A pattern that polars would not read is first written as ISO 8601 does.
    """
    kind, pattern = way
    if kind == "duration":
        return _DURATION, "duration", ""
    pieces = [piece for piece in re.split(r"(%.|\s+)", pattern) if piece]
    expression = ""
    for before, piece, after in zip(["", *pieces], pieces, [*pieces[1:], ""], strict=False):
        if piece.startswith("%"):
            close = before.startswith("%") or after.startswith("%")  # 20250327
            # Without a mark between them parts have two digits each: 2025111 has two readings.
            group = _DIRECTIVES[piece[1]]
            expression += group.replace("{1,2}", "{2}") if close else group
        else:  # AM and PM may stand close to the clock
            space = r"\s?" if after == "%p" else r"\s+"
            expression += space if piece.isspace() else re.escape(piece)
    expression = f"^{expression}$"
    if kind == "date" and _PLAIN.fullmatch(pattern):
        return expression, "", pattern
    groups = {one: f"${{{one.lower() if one == 'B' else one}}}" for one in _directives(pattern)}
    year, month = ("y" if "y" in groups else "Y"), groups.keys() & {"m", "b", "B"}
    # A clock alone is read as one of the first day, so that seconds count from midnight.
    dated, target = "1970-01-01", f"%{year}-%m-%d"
    if kind == "date":
        dated = f"${{{year}}}-{groups[month.pop()]}-{groups.get('d', '01')}"
    if _has_clock(pattern):
        clock = [groups.get("H") or groups["I"], groups.get("M", "00"), groups.get("S", "00")]
        dated += f" {':'.join(clock)}" + (" ${p}m" if "I" in groups else "")
        target += " %I:%M:%S %p" if "I" in groups else " %H:%M:%S"
    return expression, dated, target


def read_texts(texts: pl.Series, way: Way, zone: str = "") -> pl.Series:
    """Seconds of texts by the clock of a zone, null where they are not so written."""
    kind, pattern = way
    if pattern in _COUNTS:
        return _read_counts(texts.str.strip_chars().cast(pl.Float64, strict=False), pattern)
    if pattern.endswith("%z"):
        offsets, local = texts.str.extract(_ZONE), texts.str.replace(_ZONE, "")
        # A column has few different offsets: each is computed once.
        sizes = {each: _offset_seconds(each) for each in offsets.drop_nulls().unique()}
        utc = read_texts(local, (kind, pattern.removesuffix("%z").rstrip()))
        utc -= offsets.replace_strict(sizes, default=None, return_dtype=pl.Float64)
        return utc + _ahead_of_utc(zone, utc)
    expression, dated, target = _plan(way)
    if dated and len(texts) >= _MANY and 2 * len(distinct := texts.unique()) <= len(texts):
        seconds = read_texts(distinct, way)
        return texts.replace_strict(distinct, seconds, default=None, return_dtype=pl.Float64)
    if kind == "duration":
        parts = {
            name: pl.col(name).str.replace(",", ".", literal=True).cast(pl.Float64) * size
            for name, size in _SECONDS_OF.items()
        }
        sign = pl.when(pl.col("sign").is_null()).then(1.0).otherwise(-1.0)
        present = pl.any_horizontal(pl.col(*parts).is_not_null())
        total = pl.when(present).then(sign * pl.sum_horizontal(parts.values()))
        groups = texts.str.extract_groups(expression).struct.unnest()
        return groups.select(total).to_series().alias(texts.name)
    fits = texts.str.contains(expression)
    body = texts if fits.all() else texts.set(~fits, None)
    if dated:
        body = body.str.replace(expression, dated)
    if "${b}" in dated:
        # The longest names first: "mar" would leave "ch" of "march".
        numbers = [_MONTHS[name] for name in _LONGEST_FIRST]
        body = body.str.to_lowercase().str.replace_many(_LONGEST_FIRST, numbers, leftmost=True)
    fractions = pl.Series([0.0])
    if "%S" in pattern and body.str.contains(_FRACTION).any():  # slow to parse for polars
        fractions = ("0." + body.str.extract(_FRACTION, 2)).cast(pl.Float64).fill_null(0.0)
        body = body.str.replace(_FRACTION, "$1")
    moments = body.str.to_datetime(target, strict=False, time_unit="us", cache=False)
    seconds = moments.to_physical().cast(pl.Float64) / 1e6 + fractions
    return _within_years(seconds).alias(texts.name)


def _read_counts(numbers: pl.Series, pattern: str) -> pl.Series:
    values = numbers.cast(pl.Float64).fill_nan(None)
    if pattern == "excel":
        # 25,569 days from 1899-12-30 to 1970-01-01. Spreadsheets count a 29th of February 1900.
        return _within_years((values - 25_569) * DAY)
    return _within_years(values / 1000 if pattern == "unix ms" else values)


def _within_years(seconds: pl.Series) -> pl.Series:
    return seconds.set((seconds < EARLIEST) | (seconds >= LATEST), None)


def _offset_seconds(text: str) -> float:
    """Seconds east of Greenwich of an offset as `%z` reads it: Z, +0530, -02."""
    digits = re.sub(r"\D", "", text).ljust(4, "0")
    size = 3_600.0 * int(digits[:2]) + 60 * int(digits[2:])
    return -size if text.startswith("-") else size


def _ahead_of_utc(zone: str, utc: pl.Series) -> pl.Series | float:
    """Seconds that the clock of a zone is ahead of UTC."""
    if zone in ("", "UTC") or zone[0] in "+-":
        return _offset_seconds(zone)
    moments = (utc.floor() * 1000).cast(pl.Int64).cast(pl.Datetime("ms", "UTC"))
    local = moments.dt.convert_time_zone(zone)
    return (local.dt.base_utc_offset() + local.dt.dst_offset()).dt.total_seconds().cast(pl.Float64)


def _digits_as_texts(column: pl.Series) -> pl.Series | None:
    """Cells as texts, whole numbers as their digits; None for a type that holds no such texts."""
    if column.dtype.is_float() or column.dtype.is_decimal():
        numbers = column.cast(pl.Float64).fill_nan(None)
        # A number with a fraction, or beyond all moments, is none; -1 fits no pattern.
        is_none = (numbers != numbers.floor()) | (numbers.abs() >= 1e18)
        column = numbers.set(is_none, -1.0).cast(pl.Int64)
    if column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return column.cast(pl.String)
    return None


def _kind_of_type(dtype: Any) -> str:
    return "time" if dtype == pl.Time else "duration" if dtype == pl.Duration else "date"


@dataclass(frozen=True)
class MomentFormat(CellFormat):
    """How a column writes moments.

    A moment is read as **seconds**: dates since 1970-01-01 by the wall clock as written, times of
    day since midnight, durations their length. Where cells have offsets from Greenwich the wall
    clock is that of `zone` ('UTC', '+02:00' or 'Europe/Berlin'): the only offset of the column, UTC
    if there are several, or the zone of a typed column.

    >>> written = MomentFormat.from_pattern("%d.%m.%Y %H:%M")
    >>> seconds, bad = written.read(pl.Series(["27.03.2025 18:14", "n/a", "soon"]))
    >>> seconds.to_list(), bad.to_list()
    ([1743099240.0, None, None], [False, False, True])
    >>> written.show(1743099240.0), written.describe()
    ('27.03.2025 18:14', 'dates like 27.03.2025 18:14')
    """

    kind: Annotated[str, Text(MOMENT_KINDS)]
    pattern: Annotated[str, Text(longest=60)]
    zone: Annotated[str, Text(longest=40)] = ""

    word = "moment"
    expected = "so written"

    @classmethod
    def from_pattern(cls, text: str, kind: str = "date") -> MomentFormat:
        """The format that a person writes after 'date:', 'time:' or 'duration:'."""
        check_choice("kind", kind, MOMENT_KINDS)
        if kind in ("time", "duration"):
            return cls(kind, _checked_pattern(kind, text))
        if text == "iso":
            return cls("datetime", "%Y-%m-%d %H:%M:%S", "UTC")
        pattern = _checked_pattern("date", text)
        return cls("datetime" if _has_clock(pattern) else "date", pattern)

    @classmethod
    def _check_state(cls, state: State) -> None:
        kind, pattern, zone = state["kind"], state["pattern"], state["zone"]
        same = cls.from_pattern(pattern, kind)
        require((same.kind, same.pattern) == (kind, pattern), "pattern: of another form")
        if not re.fullmatch("(?:UTC|[+-][0-9]{2}:[0-9]{2})?", zone):
            try:
                _ahead_of_utc(zone, pl.Series([0.0]))
            except pl.exceptions.PolarsError as error:
                raise InputError(f"The time zone {quoted(zone)} is not known.") from error

    @property
    def _way(self) -> Way:
        return "date" if self.kind == "datetime" else self.kind, self.pattern

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Seconds, null where a cell is blank or cannot be read, and which cells cannot be read.

        A column of dates, times or durations by its type is read whatever the pattern is, and so
        is what ISO 8601 writes (2025-03-27), which has one meaning.
        """
        texts = _digits_as_texts(column)
        if self.pattern in _COUNTS and column.dtype.is_numeric():
            seconds = _read_counts(column, self.pattern)
        elif texts is None:
            seconds = self._read_typed(column)
        else:
            seconds = read_texts(texts, self._way, self.zone)
            if seconds.null_count():
                return self._read_rest(texts, seconds)
        return seconds.alias(column.name), filled(column) & seconds.is_null()

    def _read_rest(self, texts: pl.Series, seconds: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Read blanks, what has spaces around it, and what ISO 8601 writes."""
        bad = seconds.is_null()
        unread, kind = bad.arg_true(), self._way[0]
        cells = without_blanks(texts.gather(unread))
        # Beside dates of the year-day-month kind, 2025-03-04 has two meanings.
        iso = () if self.pattern.startswith("%Y-%d") else _ISO[kind]
        rest = pl.repeat(None, len(cells), dtype=pl.Float64, eager=True)
        for pattern in dict.fromkeys((self.pattern, *iso)):
            if pattern.endswith("%z") and not self.zone:  # by which clock is not known
                continue
            places = (rest.is_null() & cells.is_not_null()).arg_true()
            if not len(places):
                break
            again = read_texts(cells.gather(places), (kind, pattern), self.zone)
            rest = rest.scatter(places, again)
        wrong = cells.is_not_null() & rest.is_null()
        return seconds.scatter(unread, rest), bad.scatter(unread, wrong)

    def _read_typed(self, column: pl.Series) -> pl.Series:
        kind, dtype = self._way[0], column.dtype
        if not dtype.is_temporal() or _kind_of_type(dtype) != kind:
            return pl.repeat(None, len(column), dtype=pl.Float64, eager=True)
        if (zoned := getattr(dtype, "time_zone", None) is not None) and not self.zone:
            column = column.dt.replace_time_zone(None)
        seconds = to_seconds(column)
        if zoned and self.zone:
            seconds = seconds + _ahead_of_utc(self.zone, seconds)
        return _within_years(seconds) if kind == "date" else seconds

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return seconds as moments; `to_seconds` undoes it."""
        values = values.alias(column.name)
        if self.kind == "date":
            return (values / DAY).floor().cast(pl.Int32, strict=False).cast(pl.Date)
        micro = (values * 1e6).round().cast(pl.Int64, strict=False)
        if self.kind == "time":
            return (micro * 1000).cast(pl.Time, strict=False)
        return micro.cast(pl.Duration("us") if self.kind == "duration" else pl.Datetime("us"))

    def describe(self) -> str:
        if self.pattern in _COUNTS:
            return f"dates as {_COUNTS[self.pattern]}"
        example = {"time": 65_640.0, "duration": 4_830.0}.get(self.kind, 1_743_099_240.0)
        words = f"{self._way[0]}s like {self.show(example)}"
        return f"{words}, by the clock of {self.zone}" if self.zone else words

    def show(self, seconds: float) -> str:
        """Write seconds as the column does; NaN is ''."""
        if math.isnan(seconds):
            return ""
        if self.kind == "duration":
            sign, total = ("-" if seconds < 0 else ""), abs(seconds)
            hours, minutes = int(total // 3_600), int(total // 60 % 60)
            rest = round(total % 60, 6)
            if self.pattern == "units":
                parts = ((hours // 24, "d"), (hours % 24, "h"), (minutes, "m"), (rest, "s"))
                return sign + (" ".join(f"{n:g}{unit}" for n, unit in parts if n) or "0s")
            clock = f"{sign}{hours}:{minutes:02d}"
            return f"{clock}:{_shown_seconds(rest)}" if self.pattern.endswith("%S") else clock
        if not EARLIEST <= seconds < LATEST:
            return f"{seconds:g} s"
        if self.pattern in _COUNTS:
            scaled = {"unix": seconds, "unix ms": seconds * 1000, "excel": seconds / DAY + 25_569}
            return f"{scaled[self.pattern]:.{10 if self.pattern == 'excel' else 15}g}"
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
        fields = {
            "Y": f"{moment.year:04d}",
            "I": str((moment.hour + 11) % 12 + 1),
            "S": _shown_seconds(moment.second + moment.microsecond / 1e6),
            "p": "PM" if moment.hour >= 12 else "AM",
            "z": "Z" if self.zone in ("", "UTC") else self.zone,
        }
        return re.sub(
            "%(.)", lambda one: fields.get(one[1]) or moment.strftime(one[0]), self.pattern
        )


def _shown_seconds(value: float) -> str:
    """Seconds of a clock, with a fraction only where there is one: 03 and 03.5."""
    return f"{value:09.6f}".rstrip("0").rstrip(".") if value % 1 else f"{value:02.0f}"


_SAME_AS = {"%e": "%d", "%-d": "%d", "%-m": "%m", "%-H": "%H", "%-I": "%I", "%h": "%b", "%A": "%a"}
_SAME_AS |= {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y"}
_SAME_AS |= {"%S.%f": "%S", "%S,%f": "%S", "%S%.f": "%S"}
_REMEDIES = {
    "date": "'date:%d.%m.%Y %H:%M', 'date:iso', 'date:unix', 'date:unix ms' or 'date:excel'",
    "time": "'time:%H:%M' or 'time:%I:%M %p'",
    "duration": "'duration:%H:%M:%S', 'duration:%H:%M' or 'duration:units' (1h 20m)",
}


def _checked_pattern(kind: str, text: str) -> str:
    """A pattern that a person or a file gave, in the form that is used here."""
    pattern = " ".join(text.split())
    for spelled, same in _SAME_AS.items():
        pattern = pattern.replace(spelled, same)
    if pattern in {"date": _COUNTS, "time": (), "duration": _ISO["duration"]}[kind]:
        return pattern
    used = "".join(sorted(_directives(pattern.replace("%B", "%b"))))
    clock, dated = re.sub("[^HIMSp]", "", used), re.sub("[^Ymby]", "", used)
    known = kind != "duration" and used and len(pattern) <= _LONGEST_CELL and pattern.isprintable()
    unknown = [one for one in _directives(pattern) if one not in _DIRECTIVES]
    problems = {
        "is not known": not known,
        f"has %{''.join(unknown[:1])}, which is not known": bool(unknown),
        "says the same thing twice": len(set(used)) < len(used),
        "has no whole clock": clock not in ("", "H", "HM", "HMS", "Ip", "IMp", "IMSp"),
        "has no year and month, or one of them twice": kind == "date"
        and dated not in ("Ym", "Yb", "my", "by"),
        "is not a time of day alone": kind == "time" and used != clock,
        "has %z before its end": "%z" in pattern[:-2],
    }
    for problem, holds in problems.items():
        if holds:
            raise InputError(f"{quoted(f'{kind}:{text}')} {problem}; write {_REMEDIES[kind]}.")
    return pattern


# --- patterns that may have written a cell --------------------------------------------------------

_LONGEST_CELL = 60
_COMPACT = re.compile("[0-9]{8}(?:(?P<H>T?[0-9]{4})(?P<S>[0-9]{2})?)?(?P<z>Z|[+-][0-9]{4})?")
_CLOCK = re.compile(  # behind a date
    r"(?P<date>.*?)(?P<glue>| |T|, ?|:| at | um | à )(?<![\d.])(?P<H>\d{1,2}:\d{2})"
    r"(?P<S>:\d{2}(?:[.,]\d{1,9})?)?(?P<p> ?[AaPp]\.? ?[Mm]\.?)?(?P<end> Uhr)?"
    r"(?P<z> ?(?:Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?"
)
_WEEKDAY = re.compile(r"(?i)(?:mo|tu|we|th|fr|sa|su|di|mi|do|so|lu|ma|me|je|ve|sá)[^\W\d_]*\.?,? ")
_USUAL = """%Y-%m-%d|%Y/%m/%d|%Y.%m.%d|%d.%m.%Y|%m.%d.%Y|%d/%m/%Y|%m/%d/%Y|%d-%m-%Y|%m-%d-%Y
|%d. %m. %Y|%d %m %Y|%d.%m.%y|%m.%d.%y|%d/%m/%y|%m/%d/%y|%d-%m-%y|%m-%d-%y|%y-%m-%d|%Y-%m|%Y/%m
|%m/%Y|%m-%Y|%d %b %Y|%d. %b %Y|%d-%b-%Y|%d/%b/%Y|%d.%b.%Y|%d%b%Y|%d-%b-%y|%d %b %y|%b %d, %Y
|%b %d %Y|%b-%d-%Y|%Y-%b-%d|%Y %b %d|%b %Y|%b-%Y|%b-%y|%d de %b de %Y|%d of %b %Y"""
_DATES = {
    pattern.strip(): re.compile(_plan(("date", pattern.strip()))[0])
    for pattern in _USUAL.split("|")
}
# Most cells are no dates, which one search shows.
_ANY_DATE = re.compile("|".join(re.sub(r"\?P<\w>", "?:", form.pattern) for form in _DATES.values()))


@lru_cache(maxsize=1 << 12)
def ways_to_read(cell: str, moment_name: bool = False) -> tuple[Way, ...]:
    """The patterns that may have written a cell, none where it is no moment.

    There are several where the cell alone does not decide: 03/04/2025 is in April or in March. Ten
    digits count seconds only if the column's name speaks of a date or time (`moment_name`).

    >>> ways_to_read("27. März 2025 18:14")
    (('date', '%d. %b %Y %H:%M'),)
    >>> ways_to_read("03/04/2025")
    (('date', '%d/%m/%Y'), ('date', '%m/%d/%Y'))
    """
    cell = re.sub(r"\s", " ", cell)
    if not cell.isprintable() or len(cell) > _LONGEST_CELL or not re.search("[0-9]", cell):
        return ()
    if moment_name and re.fullmatch("[0-9]{10}|[0-9]{13}", cell):
        return (("date", "unix" if len(cell) == 10 else "unix ms"),)
    if compact := _COMPACT.fullmatch(cell):
        clock = (compact["H"] or "").rstrip("0123456789") + "%H%M" * bool(compact["H"])
        clock += "%S" * bool(compact["S"]) + "%z" * bool(compact["z"])
        return (("date", f"%Y%m%d{clock}"),) if "T" in clock or "%z" not in clock else ()
    if duration := re.match(_DURATION, cell):
        parts = [name for name in "DHMS" if duration[name]]
        if duration["h"] and not parts:
            return (*(("time", clock) for clock in _CLOCKS), ("duration", "%H:%M:%S"))
        # A number with one unit is a number: 5m may be metres, and the 50s are an age.
        if len(parts) + bool(duration["h"]) > 1 or (parts and "P" in cell):
            return (("duration", "units"),)
    clock = _CLOCK.fullmatch(cell)
    date, behind = cell, ""
    if clock:
        hour, half = ("%I", " %p") if clock["p"] else ("%H", "")
        time = f"{hour}:%M{':%S' * bool(clock['S'])}{half}"
        if not clock["date"]:
            return () if clock["glue"] or clock["end"] or clock["z"] else (("time", time),)
        date = clock["date"]
        behind = f"{clock['glue']}{time}{clock['end'] or ''}{'%z' * bool(clock['z'])}"
    before, day = "", _WEEKDAY.match(date)
    if day and not _ANY_DATE.match(date):
        before, date = re.sub(r"^\w+\.?", "%a", day[0]), date[day.end() :]
    forms = _DATES.items() if _ANY_DATE.match(date) else ()
    patterns = [pattern for pattern, form in forms if form.match(date)]
    return tuple(("date", f"{before}{pattern}{behind}") for pattern in patterns)


# --- what all cells look like ---------------------------------------------------------------------

_MOST_PATTERNS = 24  # that are counted apart
_AT_ENDS, _BETWEEN = 64, 256  # cells that are looked at one by one
_FEW = 1_000  # cells up to which all are read even if most of those looked at are no moments
_DIFFERENT = 8  # dates that must differ for numbers like 20250327 to be dates
# Cells that may mean something else must lie within the years 2000 to 2039, 1900 to 2100, and 1500
# to 2100: 4711-05 is the number of something.
_NUMBER_LIKE = dict.fromkeys(("unix", "unix ms"), (946_684_800.0, 2_208_988_800.0))
_NUMBER_LIKE |= dict.fromkeys(
    ("%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"), (-2_208_988_800.0, 4_133_980_800.0)
)
_YEARS = _NUMBER_LIKE | dict.fromkeys(
    ("%Y-%m", "%Y/%m", "%m-%Y", "%m/%Y"), (-14_831_769_600.0, 4_133_980_800.0)
)
_MOMENT_NAMES = """
    time timestamp ts date datetime epoch dt day when datum zeit zeitpunkt zeitstempel fecha hora
    jour heure created updated modified
"""
_DURATION_NAMES = """
    duration elapsed runtime length took lap dauer laufzeit durée duree duración duracion
"""


@dataclass(frozen=True)
class MomentLook(CellLook):
    """What all cells of a column, or of a part of its rows, look like as moments.

    The day comes first or the month, a clock is a time of day or a duration: the reading that fails
    for fewer of all cells is taken (27/03/2025 can only have the day first; 36:10 can only be a
    duration). Where both read all cells the look is `ambiguous`, and the day comes first, or the
    month where clocks have AM and PM. A clock is a duration if the column's name says so.

    Whole numbers are moments only if all of them are, and mean nothing else: seconds since 1970
    with a name such as `ts` or `created_at`; 20250327 with such a name or 8 different dates. Beside
    the one pattern of a column what ISO 8601 writes is read; cells with others count as bad.
    `words` are offsets, and some cells that are like numbers; `zone` is that of a typed column.
    """

    name: str = ""
    words: set[str] = field(default_factory=set)
    zone: str = ""

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> MomentLook:
        """Look at all cells; `first_row` is the number of the first in the table."""
        name, (tallies, n_blank) = column.name, tally_filled(column, first_row)
        if column.dtype.is_temporal():
            kind = _kind_of_type(column.dtype)
            clock = " %H:%M:%S" if column.dtype == pl.Datetime else ""
            way = kind, {"time": "%H:%M:%S", "duration": "units"}.get(kind, f"%Y-%m-%d{clock}")
            zone = getattr(column.dtype, "time_zone", None) or ""
            all_cells = {(way,): tallies[None]} if tallies else {}
            return cls(all_cells, n_blank, name, zone=zone)
        look, texts = cls(tallies, n_blank, name), _digits_as_texts(column)
        if texts is None or (column.dtype.is_numeric() and not look._ways_in(column)):
            return look
        cells = pl.DataFrame({"cell": without_blanks(texts)}).with_row_index("row", first_row)
        frame = cells.drop_nulls()
        look, families = cls({}, len(column) - len(frame), name), look._ways_in(frame["cell"])
        for ways in families[:_MOST_PATTERNS]:
            frame = look._take(frame, ways)
        if len(frame):
            look.tallies[None] = Tally(len(frame), *frame.row(0))
        return look

    def _ways_in(self, column: pl.Series) -> list[tuple[Way, ...]]:
        """Ways to read a few cells, the most frequent first; none if most of many are others."""
        n = len(column)
        ends = column.head(_AT_ENDS), column.tail(_AT_ENDS)
        few = _digits_as_texts(pl.concat([*ends, column.gather_every(max(1, n // _BETWEEN))]))
        cells: list[str] = [] if few is None else without_blanks(few).drop_nulls().to_list()
        counts = Counter(ways_to_read(cell, self.moment_name) for cell in cells)
        others = counts.pop((), 0)
        # Four in five cells are no moments: texts with some dates are no column of dates.
        hopeless = n > _FEW and others > 4 * counts.total()
        return [] if hopeless else [ways for ways, _ in counts.most_common()]

    def _take(self, frame: pl.DataFrame, ways: tuple[Way, ...]) -> pl.DataFrame:
        """Count the cells that some of these ways read, and return the others."""
        cells, masks = frame["cell"], []
        for way in ways:
            seconds = read_texts(cells, way)
            if years := _YEARS.get(way[1]):
                low, high = years
                whole = ~cells.str.contains(".", literal=True)
                seconds = seconds.set(~(whole & (seconds >= low) & (seconds < high)), None)
            if way[0] == "duration":  # one with units is not counted as a clock, whichever is first
                units = cells.str.contains(r"\p{L}")
                seconds = seconds.set(units if way[1] != "units" else ~units, None)
            masks.append(seconds.is_not_null().alias(" ".join(way)))
        readable = pl.DataFrame(masks).max_horizontal()
        rows, (_, pattern) = frame.hstack(masks).filter(readable), ways[0]
        columns = [mask.name for mask in masks]
        counted = rows.group_by(columns).agg(pl.len(), pl.col("row", "cell").first())
        for *read, n, row, cell in counted.iter_rows():
            key = tuple(way for way, is_read in zip(ways, read, strict=True) if is_read)
            self.tallies[key] = Tally(n, row, cell)
        if pattern in _NUMBER_LIKE:
            # As many different words as decide, and no more: a look stays small.
            self.words.update(rows["cell"].unique().sort().head(_DIFFERENT))
        if pattern.endswith("%z"):
            self.words.update(rows["cell"].str.extract(_ZONE).unique())
        return frame.filter(~readable)

    def joined(self, other: Self) -> Self:
        both = super().joined(other)
        tallies = both.tallies
        ways = sorted(filter(None, tallies), key=lambda each: (-tallies[each].n, tallies[each].row))
        for rare in ways[_MOST_PATTERNS:]:  # so that a look stays small
            tallies[None] = tallies.pop(rare).joined(tallies.get(None))
        return replace(both, words=self.words | other.words, zone=self.zone or other.zone)

    @cached_property
    def _name_words(self) -> list[str]:
        return [word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", self.name)]

    @property
    def moment_name(self) -> bool:
        """Whether the column's name speaks of a moment, as `ts` and `created_at` do."""
        words = self._name_words
        return words[1:][-1:] == ["at"] or not set(words).isdisjoint(_MOMENT_NAMES.split())

    @cached_property
    def _main(self) -> list[Way]:
        """The way that reads most cells, first of those that read the very same ones.

        What ISO 8601 writes counts together, and is shown with units or a clock if any has these.
        """
        tallies = {ways: tally for ways, tally in self.tallies.items() if ways}
        candidates = sorted({way for ways in tallies for way in ways})  # the day before the month
        duration = not set(self._name_words).isdisjoint(_DURATION_NAMES.split())

        def rank(way: Way) -> tuple[int, bool, int, int, int]:
            kind, pattern = way
            alike = {(kind, iso) for iso in _ISO[kind]} if pattern in _ISO[kind] else {way}
            n_alike = sum(tally.n for ways, tally in tallies.items() if alike & set(ways))
            reads = [tally for ways, tally in tallies.items() if way in ways]
            n, first = sum(tally.n for tally in reads), min(tally.row for tally in reads)
            # At equal numbers a duration if the name says so, a clock, then the first row. Units
            # read clocks, too: where both occur, looks at parts must agree with one at all.
            shown_first = 2 * (pattern == "units") + _has_clock(pattern)
            return n_alike, (kind == "duration") == duration, shown_first, n, -first

        main = max(candidates, key=rank, default=("", ""))
        same = [
            way
            for way in candidates
            if way[0] == main[0] and all((way in ways) == (main in ways) for ways in tallies)
        ]
        return sorted(same, key=lambda way: not ("%p" in way[1] and way[1].startswith("%m")))

    @cached_property
    def _good(self) -> set[tuple[Way, ...]]:
        if not self._main:
            return set()
        kind, pattern = self._main[0]
        alike = {(kind, each) for each in (pattern, *_ISO[kind])}
        good = {ways for ways in self.tallies if ways and not alike.isdisjoint(ways)}
        if pattern in _NUMBER_LIKE:
            different = sum(word.isdecimal() for word in self.words) >= _DIFFERENT
            return good if good == set(self.tallies) and (different or self.moment_name) else set()
        return good

    @property
    def ambiguous(self) -> bool:
        """Whether all cells can be read with the day first and with the month first."""
        return len(self._main) > 1 and self._main[0][0] == "date"

    @property
    def _offsets(self) -> set[float]:
        return {_offset_seconds(word) for word in self.words if not word.isdecimal()}

    def format(self) -> MomentFormat | None:
        if not self._good or self.n_good <= self.n_bad:
            return None
        (kind, pattern), zone = self._main[0], self.zone
        if offsets := self._offsets:
            # Several offsets, as of summer and winter: only the clock of UTC does not jump.
            minutes = round(offsets.pop() / 60) if len(offsets) == 1 else 0
            hours, rest = divmod(abs(minutes), 60)
            zone = f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else "UTC"
        kind = "datetime" if kind == "date" and _has_clock(pattern) else kind
        return MomentFormat(kind, pattern, zone)

    def remarks(self) -> list[str]:
        moments = self.format()
        if moments is None or moments.pattern in _COUNTS:
            return []
        remarks, (main, *same) = list[str](), self._main
        example = min(self.tallies[ways] for ways in self._good if main in ways).cell
        kind, pattern = main
        if self.ambiguous:
            order = "the month" if pattern.startswith("%m") else "the day"
            others = " or ".join(f"'date:{other}'" for _, other in same)
            remarks.append(
                f"{example!r} could have the day or the month first; read with {order} first "
                f"because no cell decides it. Say kind 'date:{pattern}' to confirm, or {others} to "
                "change it."
            )
        if len(self._offsets) > 1:
            remarks.append("Several offsets from UTC occur: all moments are by the clock of UTC.")
        is_clock = any(("duration", "%H:%M:%S") in ways for ways in self._good)
        if kind == "time" and is_clock and not self.moment_name:
            remarks.append(
                f"{example} is read as a time of day; if it is a duration, say kind "
                "'duration:%H:%M:%S'."
            )
        if "%y" in pattern:
            remarks.append("Years of two digits are read as 1970 to 2069.")
        return remarks


def to_seconds(moments: pl.Series) -> pl.Series:
    """Return typed moments as seconds: since 1970, since midnight, or long."""
    seconds = moments.to_physical().cast(pl.Float64)
    if moments.dtype == pl.Date:
        return seconds * DAY
    unit = getattr(moments.dtype, "time_unit", "ns")  # times of day count nanoseconds
    return seconds / {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit]
