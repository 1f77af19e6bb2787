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

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import check_choice
from riskad.files.fields import State, Text, require

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
_MOST_PAIRS = 10  # of k dates there are k (k - 1) / 2 pairs, most of them noise


def _floats(seconds: pl.Series | Floats) -> Floats:
    if isinstance(seconds, pl.Series):
        return seconds.cast(pl.Float64).to_numpy().astype(np.float64)
    return np.asarray(seconds, dtype=np.float64)


# --- the calendar ---------------------------------------------------------------------------------

# Days are counted from 1970-01-01, in the Gregorian calendar extended to all years. A year is taken
# to begin in March, so that the leap day is its last: with a = 0 for March, ..., 11 for February,
# the days of such a year before month a are floor((153 a + 2) / 5), and 400 years have 146,097
# days. NaN gives NaN.


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

    >>> days = pl.Series([0.0, 1.5, 16.25, None]) * 86400
    >>> parts = MomentParts.learn("datetime", days)
    >>> parts.parts
    ('hour', 'weekday', 'elapsed')
    >>> parts.ordered(days)[:3].tolist()
    [[0.0, 3.0, 0.0], [12.0, 4.0, 1.5], [6.0, 5.0, 16.25]]
    """

    kind: Annotated[str, Text(tuple(_PARTS))]
    parts: tuple[str, ...]
    origin: float = 0.0
    span: float = 0.0  # days from the first to the last training row

    @classmethod
    def _check_state(cls, state: State) -> None:
        possible = _PARTS[state["kind"]]
        require(
            list(state["parts"]) == [part for part in possible if part in state["parts"]],
            "parts: expected some of its kind",
        )

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
        varying = (
            part
            for part, numbers in zip(parts, columns, strict=True)
            if numbers.size and numbers.min() < numbers.max()
        )
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
        for part in self.parts:  # in a graph, parts that are left out add no nodes
            if part == "hour":
                columns.append((seconds - days * DAY) / 3_600)
            elif part == "weekday":
                columns.append(np.mod(days + 3, 7))
            elif part == "elapsed":
                days_since = (seconds - self.origin) / DAY
                columns.append(np.minimum(np.maximum(days_since, 0.0), self.span))
            else:
                columns.append({"seconds": seconds, "month": month, "day of month": day}[part])
        return columns


# --- from one date to another ---------------------------------------------------------------------


def elapsed_pairs(dates: Mapping[str, Floats]) -> list[tuple[str, str]]:
    """The pairs of dates whose time difference is informative.

    Both are filled in at least half of the rows and the time between them varies. Of more than ten
    pairs those are used whose difference spreads least, relative to the spread of the columns:
    dates that belong together, and whose difference shows what neither shows alone.

    >>> elapsed_pairs({"sent": np.array([0.0, 1e6, 2e6]), "paid": np.array([5e5, 2e6, 2.1e6])})
    [('sent', 'paid')]
    """
    often = [name for name, seconds in dates.items() if np.isnan(seconds).mean() <= 0.5]
    spreads = {}
    for pair in combinations(often, 2):
        first, second = _both(*(dates[name] for name in pair))
        between = second - first
        if between.size > 1 and np.ptp(between) > 0:
            spreads[pair] = np.std(between) / max(np.std(first), np.std(second))
    nearest = sorted(spreads, key=lambda pair: spreads[pair])[:_MOST_PAIRS]
    return [pair for pair in spreads if pair in nearest]


def follows(first: Floats, second: Floats) -> bool:
    """Whether the time since the first date varies less than the second date itself.

    The first date and the time between them then contain the information of the second, with less
    noise: its own month would repeat the other's month. Unrelated dates are farther apart than
    that, since var(b - a) = var(a) + var(b).
    """
    a, b = _both(first, second)
    return bool(np.std(b - a) < np.std(b))


def _both(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """The rows that have both."""
    filled = ~np.isnan(first) & ~np.isnan(second)
    # Most tables have all dates: no copies are made then.
    return (first, second) if filled.all() else (first[filled], second[filled])
