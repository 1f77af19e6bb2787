"""Dates, times and durations as a column writes them, read as seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from riskad.core.checks import InputError, check_choice, quoted
from riskad.rows.date_features import (
    DAY,
    EARLIEST,
    LATEST,
    Floats,
    civil_of_days,
)
from riskad.tables.formats.gaps import without_gaps
from riskad.tables.formats.moment_patterns import (
    COUNTS,
    ISO,
    checked_pattern,
    directives,
    has_clock,
    offset_seconds,
)
from riskad.tables.formats.moment_reading import (
    Cells,
    read_cells,
    read_count,
    read_temporal,
    texts_of,
)
from riskad.tables.formats.month_names import LANGUAGES, month_name, weekday_name

__all__ = ["MOMENT_KINDS", "MomentFormat", "way_of"]

MOMENT_KINDS = ("date", "datetime", "time", "duration")
_OFFSET = re.compile(r"[+-][0-9]{2}:[0-9]{2}")
_EXAMPLES = {"time": 65_640.0, "duration": 4_830.0}
_EXAMPLE = 1_743_099_240.0  # 2025-03-27 18:14


def way_of(kind: str) -> str:
    """How a kind is read: dates and datetimes alike.

    >>> [way_of(kind) for kind in MOMENT_KINDS]
    ['date', 'date', 'time', 'duration']
    """
    return "date" if kind == "datetime" else kind


@dataclass(frozen=True)
class MomentFormat:
    """How a column writes moments.

    A moment is read as **seconds**: dates since 1970-01-01 by the wall clock as written, times of
    day since midnight, durations their length. Where cells have offsets from Greenwich the wall
    clock is that of `zone`: the only offset of the column, UTC if there are several, or the zone of
    a typed column. So 18:14 is evening at home whatever the offset.

    Parameters
    ----------
    kind : {"date", "datetime", "time", "duration"}
        What a cell is.
    patterns : tuple of str
        As in `riskad.tables.formats.moment_patterns`; each cell is read by the first that fits.
    zone : str
        '', 'UTC', an offset such as '+02:00', or a name such as 'Europe/Berlin'.
    language : {"en", "de", "fr", "es"}
        Of the names of months where moments are shown.

    Examples
    --------
    >>> written = MomentFormat.given("%d.%m.%Y %H:%M")
    >>> seconds, bad = written.read(pl.Series(["27.03.2025 18:14", "n/a", "soon"]))
    >>> seconds.to_list(), bad.to_list()
    ([1743099240.0, None, None], [False, False, True])
    >>> written.show(1743099240.0), written.describe()
    ('27.03.2025 18:14', 'dates like 27.03.2025 18:14')
    """

    kind: str
    patterns: tuple[str, ...]
    zone: str = ""
    language: str = "en"

    @classmethod
    def given(cls, text: str, kind: str = "date") -> Self:
        """The format that a person writes after 'date:', 'time:' or 'duration:'.

        >>> MomentFormat.given("unix").kind, MomentFormat.given("%H:%M", "time").kind
        ('datetime', 'time')
        """
        way = way_of(check_choice("kind", kind, MOMENT_KINDS))
        if text == "iso" and way != "duration":
            patterns = _iso_of(way)
        else:
            patterns = (checked_pattern(way, text),)
        return cls(_kind_of(way, patterns), patterns)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Seconds, null where a cell is blank or cannot be read, and which cells cannot be read.

        A column of dates, times or durations by its type is read whatever the patterns are, and so
        is what ISO 8601 writes (2025-03-27), which has one meaning: a spreadsheet or a database may
        hold the same moments with their type.
        """
        if column.dtype.is_temporal():
            filled = column.is_not_null()
            fits = _temporal_way(column.dtype) == way_of(self.kind)
            if getattr(column.dtype, "time_zone", None) and not self.zone:
                column = column.dt.replace_time_zone(None)
            cells = read_temporal(column) if fits else Cells.unread(len(column))
        else:
            cells, filled = self._read_cells(column)
        seconds = self._wall_clock(cells)
        values = pl.Series(column.name, seconds, nan_to_null=True)
        return values, filled & values.is_null()

    def _read_cells(self, column: pl.Series) -> tuple[Cells, pl.Series]:
        count = self.patterns[0] in COUNTS
        if count and column.dtype.is_numeric():
            filled = column.is_not_null()
            if column.dtype.is_float():
                filled &= column.is_not_nan().fill_null(False)
            return read_count(column, self.patterns[0]), filled
        texts = texts_of(column)
        if texts is None:
            return Cells.unread(len(column)), column.is_not_null()
        cells = read_cells(texts, way_of(self.kind), self.patterns[0])
        if cells.read.all():
            return cells, texts.is_not_null()
        left = ~cells.read
        bare = without_gaps(texts.filter(pl.Series(left)))
        others = Cells.unread(len(bare))
        for pattern in dict.fromkeys(self.patterns + self._iso_patterns):
            open_ = ~others.read & bare.is_not_null().to_numpy()
            if open_.any():
                told = read_cells(bare.filter(pl.Series(open_)), way_of(self.kind), pattern)
                others = others.placed(open_, told)
        taken = ~left
        taken[left] = bare.is_not_null().to_numpy()
        return cells.placed(left, others), pl.Series(column.name, taken)

    @property
    def _iso_patterns(self) -> tuple[str, ...]:
        """The patterns of ISO 8601 for such moments, with offsets only if those have a clock."""
        if self.kind == "duration" or any(each.startswith("%Y-%d") for each in self.patterns):
            return ()
        patterns = _iso_of(way_of(self.kind))
        return tuple(each for each in patterns if self.zone or not each.endswith("%z"))

    def _wall_clock(self, cells: Cells) -> Floats:
        """Seconds by the wall clock of the zone; a cell without offset is taken as it is."""
        with_offset = ~np.isnan(cells.offsets)
        if not with_offset.any():
            return cells.seconds
        utc = cells.seconds - cells.offsets
        return np.where(with_offset, utc + _east_of_utc(self.zone, utc), cells.seconds)

    # --- showing ----------------------------------------------------------------------------------

    def describe(self) -> str:
        """How cells are written, in short words for people."""
        pattern = self.patterns[0]
        if pattern in COUNTS:
            return f"dates as {COUNTS[pattern]}"
        words = {"time": "times", "duration": "durations"}.get(self.kind, "dates")
        shown = self.show(_EXAMPLES.get(self.kind, _EXAMPLE))
        return f"{words} like {shown}" + (f", by the clock of {self.zone}" if self.zone else "")

    def show(self, seconds: float) -> str:
        """Write seconds as the column does; NaN is ''.

        >>> MomentFormat.given("units", "duration").show(4830)
        '1h 20m 30s'
        """
        if math.isnan(seconds):
            return ""
        if self.kind == "duration":
            return _shown_duration(seconds, self.patterns[0])
        if not EARLIEST <= seconds < LATEST:
            return f"{seconds:g} s"
        return _shown(seconds, self)

    # --- storage ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON holds.

        >>> MomentFormat.given("%d.%m.%Y").to_dict()
        {'kind': 'date', 'patterns': ['%d.%m.%Y'], 'zone': '', 'language': 'en'}
        """
        return {
            "kind": self.kind,
            "patterns": list(self.patterns),
            "zone": self.zone,
            "language": self.language,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The format of `to_dict`; anything else is refused."""
        if not isinstance(told, Mapping) or set(told) != {"kind", "patterns", "zone", "language"}:
            raise InputError(f"A format of moments has other entries than {quoted(told)}.")
        way = way_of(check_choice("kind", told["kind"], MOMENT_KINDS))
        patterns = told["patterns"]
        if not isinstance(patterns, list) or not 1 <= len(patterns) <= len(ISO):
            raise InputError(f"A format of moments has no such patterns: {quoted(patterns)}.")
        for pattern in patterns:
            if checked_pattern(way, pattern) != pattern:
                raise InputError(f"A format of moments has no such pattern: {quoted(pattern)}.")
        if way == "date" and told["kind"] != _kind_of(way, tuple(patterns)):
            raise InputError(f"The patterns {quoted(patterns)} are not of kind {told['kind']!r}.")
        check_choice("language", told["language"], LANGUAGES)
        return cls(told["kind"], tuple(patterns), _checked_zone(told["zone"]), told["language"])


def _iso_of(way: str) -> tuple[str, ...]:
    return ISO if way == "date" else ("%H:%M:%S", "%H:%M")


def _kind_of(way: str, patterns: tuple[str, ...]) -> str:
    if way != "date":
        return way
    return "datetime" if any(has_clock(pattern) for pattern in patterns) else "date"


def _temporal_way(dtype: pl.DataType) -> str:
    return {"Time": "time", "Duration": "duration"}.get(type(dtype).__name__, "date")


# --- zones ----------------------------------------------------------------------------------------


def _checked_zone(zone: object) -> str:
    if isinstance(zone, str) and (zone in ("", "UTC") or _OFFSET.fullmatch(zone)):
        return zone
    try:
        pl.Series([0]).cast(pl.Datetime("us")).dt.replace_time_zone(str(zone))
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"The time zone {quoted(zone)} is not known; write for example 'Europe/Berlin'."
        ) from error
    return str(zone)


def _east_of_utc(zone: str, utc: Floats) -> Floats:
    """Seconds that the wall clock of a zone is ahead of UTC."""
    if zone in ("", "UTC"):
        return np.zeros(len(utc))
    if _OFFSET.fullmatch(zone):
        return np.full(len(utc), float(offset_seconds(zone) or 0))
    thousandths = (pl.Series(np.floor(utc), nan_to_null=True) * 1000).cast(pl.Int64)
    moments = thousandths.cast(pl.Datetime("ms", "UTC")).dt.convert_time_zone(zone)
    ahead = moments.dt.base_utc_offset() + moments.dt.dst_offset()
    return ahead.dt.total_seconds().cast(pl.Float64).to_numpy().astype(np.float64)


# --- how moments are shown ------------------------------------------------------------------------


def _decimal(value: float) -> str:
    """Seconds of a clock, with a fraction only where there is one.

    >>> _decimal(3.0), _decimal(3.5)
    ('03', '03.5')
    """
    text = f"{value:09.6f}".rstrip("0").rstrip(".")
    return text if "." in text else f"{int(text or 0):02d}" if value else "00"


def _shown(seconds: float, written: MomentFormat) -> str:
    pattern = written.patterns[0]
    if pattern in COUNTS:
        scaled = {"unix": seconds, "unix ms": seconds * 1000, "excel": seconds / DAY + 25_569}
        return f"{scaled[pattern]:.10g}" if pattern == "excel" else f"{scaled[pattern]:.0f}"
    days = math.floor(seconds / DAY)
    year, month, day = (int(part) for part in civil_of_days(np.asarray(days, dtype=np.float64)))
    clock = seconds - days * DAY
    hour, minute = int(clock // 3_600), int(clock // 60 % 60)
    language, weekday = written.language, (days + 3) % 7
    values = {
        "Y": f"{year:04d}",
        "y": f"{year % 100:02d}",
        "m": f"{month:02d}",
        "d": f"{day:02d}",
        "b": month_name(month, language, True),
        "B": month_name(month, language, False),
        "a": weekday_name(weekday, language, True),
        "A": weekday_name(weekday, language, False),
        "H": f"{hour:02d}",
        "I": str((hour + 11) % 12 + 1),
        "M": f"{minute:02d}",
        "S": _decimal(round(clock % 60, 6)),
        "p": "PM" if hour >= 12 else "AM",
        "z": "Z" if written.zone in ("", "UTC") else written.zone,
    }
    return re.sub("%(.)", lambda found: values[found[1]], pattern)


def _shown_duration(seconds: float, pattern: str) -> str:
    sign, total = ("-" if seconds < 0 else ""), abs(seconds)
    days, rest = divmod(total, DAY)
    hours, minutes, left = int(rest // 3_600), int(rest // 60 % 60), round(rest % 60, 6)
    if pattern == "%M:%S":
        return f"{sign}{int(total // 60)}:{_decimal(left)}"
    if pattern.startswith("%"):
        clock = f"{sign}{int(total // 3_600)}:{minutes:02d}"
        return f"{clock}:{_decimal(left)}" if "S" in directives(pattern) else clock
    if pattern == "days and clock":
        days = math.floor(seconds / DAY)  # the clock counts on from there
        rest = seconds - days * DAY
        clock = f"{int(rest // 3_600):02d}:{int(rest // 60 % 60):02d}"
        return f"{days} days {clock}:{_decimal(round(rest % 60, 6))}"
    parts = [(int(days), "d"), (hours, "h"), (minutes, "m"), (left, "s")]
    texts = [f"{value:g}{unit}" for value, unit in parts if value]
    if pattern == "units":
        return sign + (" ".join(texts) or "0s")
    clock = "".join(texts[1:] if days else texts).upper()
    date = texts[0].upper() if days else ""
    return f"{sign}P{date}" + (f"T{clock}" if clock else "" if date else "T0S")
