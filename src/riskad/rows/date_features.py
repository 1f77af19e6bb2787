"""Features of dates, times and durations: numbers computed from seconds.

A date is in seconds since 1970-01-01 by the wall clock, a time of day in seconds since midnight, a
duration in seconds. With s the seconds and D = floor(s / 86400)

- hour = (s - 86400 D) / 3600, with its fraction,
- weekday = (D + 3) mod 7, Monday 0,
- day of month and month from D by floors and remainders (`civil_of_days`),
- elapsed = (s - origin) / 86400, days since the earliest row of the training table, within those
  of its rows,

all in float64, by operations that ONNX has: Floor, Mod (of floats, with the sign of the divisor,
which is positive), Mul, Sub, Max, Min, Sin and Cos. A gap is NaN in all parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, check_choice, quoted

Floats: TypeAlias = NDArray[np.float64]

DAY = 86_400.0
EARLIEST = -62_135_596_800.0  # the first second of year 1
LATEST = 253_402_300_800.0  # the end of year 9999
_MARCH_0000 = 719_468  # days from 0000-03-01 to 1970-01-01

# The period of each part in its units, and in days.
PERIODS = {"hour": (24, 1), "weekday": (7, 7), "day of month": (31, 31), "month": (12, 365)}
_PARTS = {
    "date": ("weekday", "day of month", "month", "elapsed"),
    "datetime": ("hour", "weekday", "day of month", "month", "elapsed"),
    "time": ("hour",),
    "duration": ("seconds",),
}
_ROUNDS = 2  # of a recurring part, to distinguish it from elapsed time
_MOST_PAIRS = 10
_MOST_KEPT = 200_000


def _floats(seconds: pl.Series | Floats) -> Floats:
    if isinstance(seconds, pl.Series):
        return seconds.cast(pl.Float64).to_numpy().astype(np.float64)
    return np.asarray(seconds, dtype=np.float64)


def _varies(values: Floats) -> bool:
    filled = values[~np.isnan(values)]
    return filled.size > 1 and bool(filled.min() < filled.max())


# --- the calendar ---------------------------------------------------------------------------------

# Days are counted from 1970-01-01, in the Gregorian calendar extended to all years. A year is taken
# to begin in March, so that the leap day is its last: with a = 0 for March, ..., 11 for February,
# the days of such a year before month a are floor((153 a + 2) / 5), and 400 years have 146,097
# days. NaN gives NaN.


def days_of_civil(year: Floats, month: Floats, day: Floats) -> Floats:
    """Days from 1970-01-01 to a date.

    >>> float(days_of_civil(np.float64(2024), np.float64(2), np.float64(29)))
    19782.0
    """
    year = year - np.floor((14 - month) / 12)  # January and February end the year before
    era = np.floor(year / 400)
    in_era = year - 400 * era
    in_year = np.floor((153 * np.mod(month + 9, 12) + 2) / 5) + day - 1
    leap = np.floor(in_era / 4) - np.floor(in_era / 100)
    return 146_097 * era + 365 * in_era + leap + in_year - _MARCH_0000


def civil_of_days(days: Floats) -> tuple[Floats, Floats, Floats]:
    """Year, month and day of the month, days after 1970-01-01.

    >>> [float(part) for part in civil_of_days(np.float64(19782))]
    [2024.0, 2.0, 29.0]
    """
    shifted = days + _MARCH_0000
    era = np.floor(shifted / 146_097)
    in_era = shifted - 146_097 * era
    leap = np.floor(in_era / 1_460) - np.floor(in_era / 36_524) + np.floor(in_era / 146_096)
    year = np.floor((in_era - leap) / 365)
    in_year = in_era - (365 * year + np.floor(year / 4) - np.floor(year / 100))
    from_march = np.floor((5 * in_year + 2) / 153)
    day = in_year - np.floor((153 * from_march + 2) / 5) + 1
    return year + 400 * era + np.floor(from_march / 10), np.mod(from_march + 2, 12) + 1, day


# --- parts of a moment ----------------------------------------------------------------------------


@dataclass(frozen=True)
class MomentParts:
    """The informative parts of a column of moments.

    A part is left out if it is the same in all training rows. A recurring part (the hour, the
    weekday, the day of the month, the month) is also left out if the rows span less than two
    periods of it (2, 14, 62 or 730 days): it has not recurred yet, the elapsed time contains nearly
    the same information, and what would be learned about March would be learned from one March. A
    year is not a part: it never recurs.

    The elapsed time ends where it ended in training. Time passes for normal rows, too: later rows
    count as the latest that were seen, and do not look odd for being late.

    Examples
    --------
    >>> days = pl.Series([0.0, 1.5, 16.25, None]) * 86400
    >>> parts = MomentParts.learn("datetime", days)
    >>> parts.parts
    ('hour', 'weekday', 'elapsed')
    >>> parts.ordered(days)[:3].tolist()
    [[0.0, 3.0, 0.0], [12.0, 4.0, 1.5], [6.0, 5.0, 16.25]]
    """

    kind: str
    parts: tuple[str, ...]
    origin: float = 0.0
    span: float = 0.0  # days from the first to the last training row

    @classmethod
    def learn(cls, kind: str, seconds: pl.Series | Floats) -> Self:
        """Find the parts that vary in the training rows, or in a sample of them."""
        check_choice("kind", kind, tuple(_PARTS))
        filled = _floats(seconds)
        filled = filled[~np.isnan(filled)]
        origin = span = 0.0
        parts = _PARTS[kind]
        if kind in ("date", "datetime") and filled.size:
            origin = float(filled.min())
            span = (float(filled.max()) - origin) / DAY
            parts = tuple(p for p in parts if span >= _ROUNDS * PERIODS.get(p, (0, 0))[1])
        columns = cls(kind, parts, origin, span).ordered_parts(filled)
        varying = (part for part, numbers in zip(parts, columns, strict=True) if _varies(numbers))
        return cls(kind, tuple(varying), origin, span)

    def ordered(self, seconds: pl.Series | Floats) -> Floats:
        """Each part as one number, for trees: (rows, parts)."""
        values = _floats(seconds)
        return np.column_stack([np.empty((len(values), 0)), *self.ordered_parts(values)])

    def ordered_parts(self, seconds: Any) -> list[Any]:
        """Each part separately, for anything with NumPy's functions: arrays, or graph numbers."""
        days = np.floor(seconds / DAY)
        dated = {"month", "day of month"} & set(self.parts)
        _, month, day = civil_of_days(days) if dated else (None, None, None)
        columns: list[Any] = []
        for part in self.parts:  # of a graph, numbers that are not asked for add no nodes
            if part == "hour":
                columns.append((seconds - days * DAY) / 3_600)
            elif part == "weekday":
                columns.append(np.mod(days + 3, 7))
            elif part == "elapsed":
                since = (seconds - self.origin) / DAY
                columns.append(np.minimum(np.maximum(since, 0.0), self.span))
            else:
                columns.append({"seconds": seconds, "month": month, "day of month": day}[part])
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return vars(self) | {"parts": list(self.parts)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; anything else is refused."""
        if not isinstance(state, Mapping) or set(state) != {"kind", "parts", "origin", "span"}:
            raise InputError(f"Parts of moments have other entries than {quoted(state)}.")
        kind = check_choice("kind", state["kind"], tuple(_PARTS))
        parts = state["parts"]
        if not isinstance(parts, list) or parts != list(filter(parts.__contains__, _PARTS[kind])):
            raise InputError(f"A column of kind {kind!r} has no such parts: {quoted(parts)}.")
        for name in ("origin", "span"):
            if not isinstance(state[name], float) or not math.isfinite(state[name]):
                number = quoted(state[name])
                raise InputError(f"The {name} of a column of dates is no number: {number}.")
        return cls(kind, tuple(parts), state["origin"], state["span"])


# --- from one date to another ---------------------------------------------------------------------


def elapsed(first: pl.Series | Floats, second: pl.Series | Floats) -> Floats:
    """Days from one date to another.

    >>> elapsed(np.array([0.0, np.nan]), np.array([129600.0, 0.0])).tolist()
    [1.5, nan]
    """
    return (_floats(second) - _floats(first)) / DAY


def elapsed_pairs(
    columns: Mapping[str, tuple[str, pl.Series | Floats]],
) -> list[tuple[str, str]]:
    """The pairs of date columns whose time difference is informative.

    Both are filled in at least half of the rows and the time between them varies. Of more than ten
    pairs those are used whose difference spreads least, relative to the spread of the columns:
    dates that belong together, and whose difference shows what neither shows alone. `columns` are
    the kind and the seconds by name, of all rows or the same sample of them.

    >>> sent, paid = pl.Series([0.0, 1e6, 2e6]), pl.Series([5e5, 2e6, 2.1e6])
    >>> elapsed_pairs({"sent": ("date", sent), "paid": ("date", paid), "n": ("duration", sent)})
    [('sent', 'paid')]
    """
    dates = {
        name: values
        for name, (kind, seconds) in columns.items()
        if kind in ("date", "datetime")
        and 2 * np.isnan(values := _floats(seconds)).sum() <= len(values)
    }
    spreads = {}
    for pair in combinations(dates, 2):
        first, second = _both(*(dates[name] for name in pair))
        if _varies(second - first):
            spreads[pair] = np.std(second - first) / max(np.std(first), np.std(second))
    nearest = sorted(spreads, key=lambda pair: spreads[pair])[:_MOST_PAIRS]
    return [pair for pair in spreads if pair in nearest]


def follows(first: pl.Series | Floats, second: pl.Series | Floats) -> bool:
    """Whether the time since the first date varies less than the second date itself.

    The first date and the time between them then contain the information of the second, with less
    noise: its own month would repeat the other's month. Unrelated dates are farther apart than
    that, since var(b - a) = var(a) + var(b).

    >>> sent, paid = pl.Series([0.0, 1e6, 2e6]), pl.Series([5e5, 2e6, 2.1e6])
    >>> follows(sent, paid), follows(sent, paid.reverse())
    (True, False)
    """
    a, b = _both(_floats(first), _floats(second))
    return bool(np.std(b - a) < np.std(b))


def _both(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """The rows that have both."""
    filled = ~np.isnan(first) & ~np.isnan(second)
    return first[filled], second[filled]


# --- from one row to the next of its group --------------------------------------------------------


@dataclass(frozen=True)
class GapToPrevious:
    """Seconds since the previous row of the same group, among the training rows.

    A row has the time since the last earlier training row of its group, independent of the other
    rows that are given: so a training row has the same gap when it is scored, and rows of a table
    in parts have those of the whole. Without an earlier row, or if group or moment is blank, it is
    NaN. It stores the moments of the last 200,000 training rows, with 64 bits of a hash of their
    groups' names.

    Examples
    --------
    >>> who, when = pl.Series(["a", "b", "a"]), pl.Series([10.0, 20.0, 70.0])
    >>> kept = GapToPrevious.learn(who, when)
    >>> kept.gaps(who, when).tolist()
    [nan, nan, 60.0]
    >>> kept.gaps(pl.Series(["a", "c"]), pl.Series([75.0, 80.0])).tolist()
    [5.0, nan]
    """

    groups: NDArray[np.int64]
    seconds: Floats

    @classmethod
    def learn(cls, groups: pl.Series, seconds: pl.Series | Floats) -> Self:
        """Store the moments of training rows, in any order."""
        rows = _by_group(groups, seconds).select("group", "second").unique()
        rows = rows.top_k(_MOST_KEPT, by=["second", "group"]).sort("group", "second")
        return cls(rows["group"].to_numpy(), rows["second"].to_numpy())

    def gaps(self, groups: pl.Series, seconds: pl.Series | Floats) -> Floats:
        """The gap of each row, in their order."""
        kept = pl.DataFrame({"group": self.groups, "before": self.seconds}).sort("before")
        rows = _by_group(groups, seconds).sort("second")
        rows = rows.join_asof(
            kept,
            left_on="second",
            right_on="before",
            by="group",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        gaps = np.full(len(groups), np.nan)
        gaps[rows["row"].to_numpy()] = (rows["second"] - rows["before"]).to_numpy()
        return gaps

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """The arrays that a model stores."""
        return {"groups": self.groups, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; anything else is refused."""
        if not isinstance(state, Mapping) or set(state) != {"groups", "seconds"}:
            raise InputError("The moments of groups are 'groups' and 'seconds', nothing else.")
        groups, seconds = np.asarray(state["groups"]), np.asarray(state["seconds"])
        if (
            groups.dtype != np.int64
            or seconds.dtype != np.float64
            or groups.ndim != 1
            or groups.shape != seconds.shape
            or len(groups) > _MOST_KEPT
            or not np.all(groups[1:] >= groups[:-1])
            or not np.all(np.isfinite(seconds))
        ):
            raise InputError("The moments of groups are not those of a model; save it again.")
        return cls(groups, seconds)


def _by_group(groups: pl.Series, seconds: pl.Series | Floats) -> pl.DataFrame:
    """Rows with a group and a moment: the hash of the group, the moment, the row's position."""
    rows = pl.DataFrame({"name": groups, "second": _floats(seconds)}).with_row_index("row")
    rows = rows.filter(pl.col("name").is_not_null() & pl.col("second").is_finite())
    names = rows["name"].unique()
    # 64 bits of each name that are the same on every machine and for every version.
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    hashes = pl.DataFrame({"name": names, "group": np.frombuffer(digests, "<i8").astype(np.int64)})
    return rows.join(hashes, on="name", how="left").select("group", "second", "row")
