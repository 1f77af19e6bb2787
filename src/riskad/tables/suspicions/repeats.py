"""Copies of rows, and values that mean a blank.

Copies agree in all columns that are learned from (`riskad.rows.equal_rows`). A number counts as a
placeholder for a blank if it is commonly used for this (-1, -9, -99, 9999, ...), occurs several
times, and lies apart: below 0 where nothing else does, or above all others by half of their range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.rows.equal_rows import number_copies
from riskad.tables.suspicions.finding import Suspicion, floats_of, row_numbers
from riskad.tables.words import say_count, show_number

__all__ = ["find_copies", "find_stand_ins"]

_FEWEST, _FEWEST_DIFFERENT = 5, 10
_SHOWN = 5  # rows with contradictory labels
_NINES = tuple(float("9" * digits) for digits in range(2, 11))
_BELOW = (-1.0, -9.0, *(-nines for nines in _NINES))


def find_copies(rows: pl.DataFrame, codes: NDArray[Any], first_row: int) -> list[Suspicion]:
    """Look for rows that are copies of an earlier row, and for copies with contradictory labels.

    >>> rows = pl.DataFrame({"x": [5.5, 6.1, 7.2, 6.1], "y": [1, 2, 3, 2]})
    >>> for suspicion in find_copies(rows, np.array([0, 1, 0, -1]), 1):
    ...     print(suspicion)
    1 row is a copy of an earlier one in all columns that are learned from (row 4)
    copies of one row are labelled both normal and anomaly: which label is right? (rows 2, 4)
    """
    copies = number_copies(rows, codes)
    if copies is None:
        return []
    repeated = np.full(len(copies), True)
    repeated[np.unique(copies, return_index=True)[1]] = False
    n = int(repeated.sum())
    what = "is a copy" if n == 1 else "are copies"
    words = f"{say_count(n, 'row')} {what} of an earlier one in all columns that are learned from"
    found = [Suspicion(None, words, row_numbers(repeated, first_row))]
    both = np.intersect1d(*(copies[codes == kind] for kind in (NORMAL, ANOMALY)))
    words = "copies of one row are labelled both normal and anomaly: which label is right?"
    for place in both[:_SHOWN]:
        labelled = (copies == place) & (codes != UNLABELLED)
        found.append(Suspicion(None, words, row_numbers(labelled, first_row)))
    return found


def find_stand_ins(column: pl.Series, first_row: int) -> Suspicion | None:
    """Look for a number that means a blank.

    >>> print(find_stand_ins(pl.Series("age", [*range(20, 80), *[999] * 6]), 1))
    age: 999 in 6 rows, far from all other values: does it stand for a blank? (rows 61, 62, 63, \
64, 65)
    """
    values = floats_of(column)
    known = values[np.isfinite(values)]
    if len(known) < 2 * _FEWEST:
        return None
    for suspect in {float(known.min()), float(known.max())} & {*_BELOW, *_NINES}:
        here, others = values == suspect, known[known != suspect]
        several = here.sum() >= _FEWEST and len(np.unique(others)) >= _FEWEST_DIFFERENT
        if several and _apart(suspect, float(others.min()), float(others.max())):
            words = (
                f"{show_number(suspect)} in {say_count(int(here.sum()), 'row')}, far from all "
                "other values: does it stand for a blank?"
            )
            return Suspicion(column.name, words, row_numbers(here, first_row))
    return None


def _apart(suspect: float, low: float, high: float) -> bool:
    if suspect in _BELOW:
        return low >= 0
    return suspect in _NINES and suspect - high >= (high - low) / 2
