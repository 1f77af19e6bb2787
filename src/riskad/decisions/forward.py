"""Train on the past, judge on later rows: periods of time, and fits to the earlier of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from riskad.core.labels import UNLABELLED

__all__ = ["forward_splits", "periods_of"]

_PERIODS = 5


def periods_of(
    codes: np.ndarray, moments: NDArray[np.float64], n_periods: int = _PERIODS
) -> NDArray[np.intp]:
    """Return the period of each row: 0 is the earliest.

    Periods have equally many labelled rows, as nearly as possible: rows of the same moment are in
    one period. There are fewer periods if labelled rows have few moments. A row whose moment is
    blank (NaN) counts as the earliest: it is used for training, and never judged.

    Examples
    --------
    >>> codes = np.array([1, -1, 1, -1, 0, 0])
    >>> periods_of(codes, np.array([10.0, 20.0, 30.0, 40.0, 25.0, np.nan]), n_periods=2)
    array([0, 0, 1, 1, 0, 0])
    """
    known = np.sort(moments[(codes != UNLABELLED) & ~np.isnan(moments)])
    places = np.arange(1, n_periods) * len(known) // n_periods
    starts = np.unique(known[places]) if len(known) else known
    starts = starts[starts > known[:1]]
    return np.searchsorted(starts, np.where(np.isnan(moments), -np.inf, moments), side="right")


def forward_splits(periods: NDArray[np.intp]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of all earlier periods to train on, and those of the next to hold out.

    Yields
    ------
    tuple of ndarray
        Numbers of rows; the first period is never held out.
    """
    for period in range(1, int(periods.max(initial=0)) + 1):
        yield np.flatnonzero(periods < period), np.flatnonzero(periods == period)
