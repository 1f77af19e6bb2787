"""Clocks that jump, and placeholder moments.

- If nearly all rows follow each other in time, a step back of at least a minute is reported.
- So is a leap ahead by more than a day and more than 100 times as long as all but one in a hundred
  of the steps.
- In any order: moments that are farther from all others than ten times the span of these, and at
  least a year, such as 1970-01-01 or 9999-12-31.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.tables.suspicions.finding import Suspicion, floats_of, row_numbers
from riskad.tables.words import say_count

__all__ = ["find_clock_jumps"]

Floats = NDArray[np.float64]

_FEWEST_ROWS = 30
_IN_ORDER = 0.98
_MINUTE, _DAY, _YEAR = 60.0, 86_400.0, 365.25 * 86_400.0
_START = datetime(1970, 1, 1, tzinfo=UTC)


def find_clock_jumps(name: str, seconds: pl.Series, first_row: int) -> list[Suspicion]:
    """Look for odd moments, given as seconds since 1970-01-01.

    >>> minutes = np.arange(1.7e9, 1.7e9 + 6000, 60)
    >>> minutes[50:] -= 3600
    >>> print(find_clock_jumps("when", pl.Series(minutes), 1)[0])
    when: rows follow each other in time, but it goes back 1 time, first by 59 minutes: was the \
clock set? (row 51)
    """
    values = floats_of(seconds)
    known = np.isfinite(values)
    if known.sum() < _FEWEST_ROWS:
        return []
    far = _far_ones(values)
    found = [_say_far(name, values, far, first_row)] if far.any() else []
    places = np.flatnonzero(known & ~far)
    return found + _jumps(name, values[places], places + first_row)


def _far_ones(values: Floats) -> NDArray[np.bool_]:
    """Moments far before or after nearly all others."""
    known = np.sort(values[np.isfinite(values)])
    low, high = np.quantile(known, [0.05, 0.95], method="nearest")
    reach = max(10 * (high - low), _YEAR)
    return np.isfinite(values) & ((values < low - reach) | (values > high + reach))


def _say_far(name: str, values: Floats, far: NDArray[np.bool_], first_row: int) -> Suspicion:
    moments, counts = np.unique(values[far], return_counts=True)
    first = _day(float(moments[counts.argmax()]))
    rest = values[np.isfinite(values) & ~far]
    span = f"{_day(float(rest.min()))} to {_day(float(rest.max()))}"
    words = (
        f"{say_count(int(far.sum()), 'row')} far from all others, which are of {span}, as {first}: "
        "does it stand for a blank?"
    )
    return Suspicion(name, words, row_numbers(far, first_row))


def _jumps(name: str, values: Floats, rows: NDArray[np.int64]) -> list[Suspicion]:
    steps = np.diff(values)
    if len(steps) < _FEWEST_ROWS - 1:
        return []
    if (steps <= 0).mean() >= _IN_ORDER and (steps < 0).any():  # the latest row first
        steps = -steps
    if (steps >= 0).mean() < _IN_ORDER or not (steps > 0).any():
        return []
    found = []
    back = steps <= -_MINUTE
    if back.any():
        times = say_count(int(back.sum()), "time")
        length = _length(-float(steps[back][0]))
        words = (
            f"rows follow each other in time, but it goes back {times}, first by {length}: was "
            "the clock set?"
        )
        found.append(Suspicion(name, words, _rows(back, rows)))
    ahead = steps > max(100 * float(np.quantile(steps, 0.99)), _DAY)
    if ahead.any():
        length = _length(float(steps[ahead][0]))
        words = f"rows follow each other in time, but one comes {length} after the row before it"
        found.append(Suspicion(name, words, _rows(ahead, rows)))
    return found


def _rows(where: NDArray[np.bool_], rows: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(row) for row in rows[1:][where][:5])


def _length(seconds: float) -> str:
    """A duration in the largest unit of which it has two.

    >>> _length(7200), _length(3600), _length(400 * 86400)
    ('2 hours', '60 minutes', '400 days')
    """
    for unit, size in (("day", _DAY), ("hour", 3_600.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}s"
    return f"{seconds / _MINUTE:,.0f} minutes"


def _day(seconds: float) -> str:
    try:
        return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%d")
    except OverflowError:
        return f"{seconds:,.0f} seconds from 1970"
