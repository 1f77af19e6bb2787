"""How many rows people can review in a day, a week or a month, as a threshold rule."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.decisions.thresholds import Capacity

__all__ = ["CapacityPlan", "parse_capacity", "plan_capacity"]

_DAYS = {"day": 1.0, "week": 7.0, "month": 365.25 / 12}
_SPELLED = re.compile(r"\s*(?P<rows>\d[\d,_]*)\s*(?:(?:/|per|a)\s*(?P<period>[a-z]+?)s?)?\s*")


@dataclass(frozen=True)
class CapacityPlan:
    """How many rows can be reviewed, of how many that arrive in the same time."""

    rows: int
    period: str
    """"day", "week" or "month"; blank if none was named."""
    of_rows: float
    """Rows that arrive in a period, by the table of the fit."""
    assumed: str
    """The assumption behind this number."""

    @property
    def rule(self) -> Capacity:
        """The threshold for this capacity."""
        return Capacity(self.rows, round(self.of_rows, 3))

    def __str__(self) -> str:
        each = f" a {self.period}" if self.period else ""
        return f"{self.rows:,} rows{each} can be looked at: {self.assumed}"


def plan_capacity(
    capacity: str | int, n_rows: int, n_unlabelled: int, time: str | None, moments: pl.Series | None
) -> CapacityPlan:
    """Find how many rows arrive in the period of a capacity.

    Parameters
    ----------
    capacity
        50, "50/day", "50/week" or "200/month".
    n_rows, n_unlabelled
        Numbers of rows of the table.
    time, moments
        The column of dates, and its values. Days are counted by the calendar, from the first to the
        last that occurs. Without it the unlabelled rows count as those of one period.

    Returns
    -------
    CapacityPlan
        The plan; its `rule` is a threshold.

    Examples
    --------
    >>> from datetime import date
    >>> days = pl.Series("when", [date(2024, 1, 1), date(2024, 1, 10)])
    >>> print(plan_capacity("50/week", 3000, 2800, "when", days))
    50 rows a week can be looked at: 3,000 rows are of 10 days by 'when', 2,100 a week, and later \
tables are taken to have as many
    """
    rows, period = parse_capacity(capacity)
    if period and moments is not None and time is not None:
        first, last = moments.min(), moments.max()
        days = (last - first).days + 1  # type: ignore[operator, union-attr]
        of_rows = n_rows / days * _DAYS[period]
        said = (
            f"{n_rows:,} rows are of {days:,} days by {time!r}, {_say(of_rows)} a {period}, and "
            "later tables are taken to have as many"
        )
        if rows >= of_rows:
            said += "; that is all of them, so that every row is flagged"
        return CapacityPlan(rows, period, of_rows, said)
    taken = f"the {n_unlabelled:,} unlabelled rows are taken for one batch"
    if period:
        taken = (
            f"the {n_unlabelled:,} unlabelled rows are taken for those of one {period}; name the "
            "column of dates (time, or --time) if they are not"
        )
    return CapacityPlan(rows, period, float(max(n_unlabelled, 1)), taken)


def _say(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= 10 else f"{rows:.1f}"


def parse_capacity(capacity: str | int) -> tuple[int, str]:
    """Return the number of rows, and the period, if one is named."""
    found = _SPELLED.fullmatch(str(capacity).lower())
    rows = int(re.sub("[,_]", "", found["rows"])) if found else 0
    period = (found["period"] or "") if found else ""
    if rows < 1 or (period and period not in _DAYS):
        raise InputError(
            f"capacity={quoted(capacity)} must be a number of rows that can be looked at, and in "
            "which time: 50, 50/day, 50/week or 200/month."
        )
    return rows, period
