"""Duplicate rows, and values that mean a blank.

Copies are counted if rows would not be alike by chance: some column has different values in at
least a fifth of the different rows, and at most half of the rows are copies; fewer than 1 % hardly
matter and are ignored. A number counts as a placeholder for a blank if it is commonly used for this
(-1, -9, -99, 9999, ...), occurs several times, and lies apart: below 0 where nothing else does, or
above all others by half of their range.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from riskad.tables.suspicions.finding import Suspicion, floats_of, row_numbers
from riskad.tables.words import say_count, show_number

__all__ = ["find_copies", "find_stand_ins"]

_FEWEST, _FEWEST_DIFFERENT = 5, 10
_LEAST_DIFFERENT = 0.2
_LEAST_COPIES = 0.01
_NINES = tuple(float("9" * digits) for digits in range(2, 11))
_BELOW = (-1.0, -9.0, *(-nines for nines in _NINES))


def find_copies(raw: pl.DataFrame, first_row: int) -> list[Suspicion]:
    """Look for rows that are copies of an earlier row.

    >>> print(find_copies(pl.DataFrame({"id": [1, 2, 3, 2, 4], "x": [5, 6, 7, 6, 6]}), 1)[0])
    1 row is an exact copy of an earlier one (row 4)
    """
    if not raw.width or not raw.height:
        return []
    copies = ~raw.select(pl.struct(pl.all()).is_first_distinct())[:, 0].to_numpy()
    n, different = int(copies.sum()), int((~copies).sum())
    most = max(column.n_unique() for column in raw)
    by_nature = n > different or most < _LEAST_DIFFERENT * different
    if by_nature or n < max(1, _LEAST_COPIES * raw.height):
        return []
    what = "is an exact copy" if n == 1 else "are exact copies"
    words = f"{say_count(n, 'row')} {what} of an earlier one"
    return [Suspicion(None, words, row_numbers(copies, first_row))]


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
    for suspect in (float(known.min()), float(known.max())):
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
