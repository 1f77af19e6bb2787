"""Features of dates, times and durations: numbers computed from seconds.

A date is in seconds since 1970-01-01 by the wall clock, a time of day in seconds since midnight, a
duration in seconds (`riskad.tables.formats.moments`). With s the seconds and D = floor(s / 86400)

- hour = (s - 86400 D) / 3600, with its fraction,
- weekday = (D + 3) mod 7, Monday 0,
- day of month and month from D by floors and remainders
  (`riskad.rows.moment_calendar.civil_of_days`),
- elapsed = (s - origin) / 86400, days since the earliest row of the training table, within those
  of its rows,

all in float64, by operations that ONNX has: Floor, Mod (of floats, with the sign of the divisor,
which is positive), Mul, Sub, Max, Min, Sin and Cos. A gap is NaN in all parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, check_choice, quoted
from riskad.rows.moment_calendar import DAY, Floats, civil_of_days

__all__ = ["GapToPrevious", "MomentParts", "elapsed", "elapsed_pairs", "follows"]

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
    known = values[~np.isnan(values)]
    return known.size > 1 and bool(known.min() < known.max())


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
    >>> parts.names("when")
    ['when: hour', 'when: weekday', 'when: elapsed']
    >>> parts.ordered(days)[:3].tolist()
    [[0.0, 3.0, 0.0], [12.0, 4.0, 1.5], [6.0, 5.0, 16.25]]
    """

    kind: str
    parts: tuple[str, ...]
    origin: float = 0.0
    span: float = 0.0
    """Days from the first to the last training row."""

    @classmethod
    def learn(cls, kind: str, seconds: pl.Series | Floats) -> Self:
        """Find the parts that vary in the training rows, or in a sample of them."""
        known = _floats(seconds)
        known = known[~np.isnan(known)]
        check_choice("kind", kind, tuple(_PARTS))
        dated = kind in ("date", "datetime") and known.size > 0
        origin = float(known.min()) if dated else 0.0
        span = (float(known.max()) - origin) / DAY if dated else 0.0
        parts = tuple(
            part
            for part in _PARTS[kind]
            if not dated or span >= _ROUNDS * PERIODS.get(part, (0, 0))[1]
        )
        every = cls(kind, parts, origin, span).ordered(known)
        kept = tuple(part for part, values in zip(parts, every.T, strict=True) if _varies(values))
        return cls(kind, kept, origin, span)

    def names(self, column: str) -> list[str]:
        """Names of the columns of `ordered`."""
        return [f"{column}: {part}" for part in self.parts]

    def ordered(self, seconds: pl.Series | Floats) -> Floats:
        """Each part as one number, for trees: (rows, parts)."""
        values = _floats(seconds)
        made = self.ordered_parts(values)
        return np.column_stack(made) if made else np.empty((len(values), 0))

    def ordered_parts(self, seconds: Any) -> list[Any]:
        """Each part separately, for anything with NumPy's functions: arrays, or graph numbers."""
        days = np.floor(seconds / DAY)
        calendar = civil_of_days(days) if {"month", "day of month"} & set(self.parts) else None
        return [
            self._elapsed(seconds) if part == "elapsed" else _part(part, seconds, days, calendar)
            for part in self.parts
        ]

    def _elapsed(self, seconds: Any) -> Any:
        days = (seconds - self.origin) / DAY
        return np.minimum(np.maximum(days, 0.0), self.span)

    def cyclic_names(self, column: str) -> list[str]:
        """Names of the columns of `cyclic`.

        >>> MomentParts("time", ("hour",)).cyclic_names("at")
        ['at: hour (sine)', 'at: hour (cosine)']
        """
        return [
            f"{column}: {part}{ending}"
            for part in self.parts
            for ending in ((" (sine)", " (cosine)") if part in PERIODS else ("",))
        ]

    def cyclic(self, seconds: pl.Series | Floats) -> Floats:
        """Recurring parts as points on a circle, sin and cos of 2 π part / period, others
        unchanged: for linear and kernel methods, so that 23:59 is near 0:00.
        """
        values = _floats(seconds)
        made = self.cyclic_parts(values)
        return np.column_stack(made) if made else np.empty((len(values), 0))

    def cyclic_parts(self, seconds: Any) -> list[Any]:
        """The columns of `cyclic`, one by one, for arrays or for numbers of a graph."""
        made: list[Any] = []
        for part, numbers in zip(self.parts, self.ordered_parts(seconds), strict=True):
            if part in PERIODS:
                angle = numbers * (2 * math.pi / PERIODS[part][0])
                made += [np.sin(angle), np.cos(angle)]
            else:
                made.append(numbers)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        moments = {"origin": self.origin, "span": self.span}
        return {"kind": self.kind, "parts": list(self.parts), **moments}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; anything else is refused."""
        if not isinstance(told, Mapping) or set(told) != {"kind", "parts", "origin", "span"}:
            raise InputError(f"Parts of moments have other entries than {quoted(told)}.")
        kind = check_choice("kind", told["kind"], tuple(_PARTS))
        parts, origin, span = told["parts"], told["origin"], told["span"]
        if not isinstance(parts, list) or parts != [each for each in _PARTS[kind] if each in parts]:
            raise InputError(f"A column of kind {kind!r} has no such parts: {quoted(parts)}.")
        for name, value in (("origin", origin), ("span", span)):
            if not isinstance(value, float) or not math.isfinite(value):
                raise InputError(f"The {name} of a column of dates is no number: {quoted(value)}.")
        return cls(kind, tuple(parts), origin, span)


def _part(part: str, seconds: Any, days: Any, calendar: Any) -> Any:
    if part == "seconds":
        return seconds
    if part == "hour":
        return (seconds - days * DAY) / 3_600
    if part == "weekday":
        return np.mod(days + 3, 7)
    _, month, day = calendar
    return month if part == "month" else day


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
    dates that belong together, and whose difference shows what neither shows alone.

    Parameters
    ----------
    columns : mapping of str to (kind, seconds)
        Columns of moments, all rows or the same sample of them.

    Examples
    --------
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
    spreads = {
        pair: spread
        for pair in combinations(dates, 2)
        if (spread := _spread(dates[pair[0]], dates[pair[1]])) > 0
    }
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
    a, b = _floats(first), _floats(second)
    both = ~np.isnan(a) & ~np.isnan(b)
    return bool(np.std(b[both] - a[both]) < np.std(b[both]))


def _spread(first: Floats, second: Floats) -> float:
    """Standard deviation of the difference, relative to the larger of the two; 0 if constant."""
    both = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    if not _varies(second - first):
        return 0.0
    return float(np.std(second - first) / max(np.std(first), np.std(second)))


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

    groups: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    seconds: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def learn(cls, groups: pl.Series, seconds: pl.Series | Floats) -> Self:
        """Store the moments of training rows, in any order."""
        rows = _by_group(groups, seconds).select("group", "second").unique()
        rows = rows.top_k(_MOST_KEPT, by=["second", "group"]).sort("group", "second")
        return cls(rows["group"].to_numpy(), rows["second"].to_numpy())

    def gaps(self, groups: pl.Series, seconds: pl.Series | Floats) -> Floats:
        """The gap of each row, in their order."""
        rows = _by_group(groups, seconds).sort("second")
        kept = pl.DataFrame({"group": self.groups, "before": self.seconds}).sort("before")
        found = rows.join_asof(
            kept,
            left_on="second",
            right_on="before",
            by="group",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        gaps = np.full(len(groups), np.nan)
        gaps[found["row"].to_numpy()] = (found["second"] - found["before"]).to_numpy()
        return gaps

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """The arrays that a model stores."""
        return {"groups": self.groups, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; anything else is refused."""
        if not isinstance(told, Mapping) or set(told) != {"groups", "seconds"}:
            raise InputError("The moments of groups are 'groups' and 'seconds', nothing else.")
        groups, seconds = np.asarray(told["groups"]), np.asarray(told["seconds"])
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
    if len(groups) != len(seconds):
        raise InputError(f"There are {len(groups):,} groups for {len(seconds):,} moments.")
    if groups.dtype.is_float():  # whole numbers with blanks among them: 17.0 is the group 17
        groups = groups.fill_nan(None).cast(pl.String).str.strip_suffix(".0")
    names = groups.cast(pl.String)
    frame = pl.DataFrame(
        {
            "name": names,
            "second": _floats(seconds),
            "row": np.arange(len(names)),
        }
    ).filter(pl.col("name").is_not_null() & pl.col("second").is_finite())
    distinct = frame["name"].unique()
    known = pl.DataFrame({"name": distinct, "group": _hashes(distinct)})
    return frame.join(known, on="name", how="left").select("group", "second", "row")


def _hashes(names: pl.Series) -> NDArray[np.int64]:
    """64 bits of each name that are the same on every machine and for every version."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)
