"""Mixed units: some values of a column lie a factor away from the others.

The sizes |x| > 0 must form two clusters with hardly a value between them, each of at least 20
different values, and the quartiles of one must be those of the other times the same factor between
units (`riskad.tables.shifts`). Codes have too few values for that, and a second kind of row seldom
has the same shape at such a distance.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.tables.shifts import FACTORS, factor_between
from riskad.tables.suspicions.finding import Suspicion, floats_of, row_numbers

__all__ = ["find_mixed_units"]

_FEWEST_DIFFERENT = 20
_LEAST_SHARE = 0.01
_SAMPLE = 50_000  # values that show the clusters
_NEAR = 0.1  # how far quartiles may be off the factor, in powers of ten
_EMPTY = 0.15  # half the width of the empty stretch, in powers of ten
_QUARTILES = (0.25, 0.5, 0.75)


def find_mixed_units(column: pl.Series, first_row: int) -> Suspicion | None:
    """Look for two units in a column of numbers.

    >>> amounts = pl.Series("amount", [*np.linspace(20, 60, 300), *np.linspace(2000, 6000, 100)])
    >>> print(find_mixed_units(amounts, 1))
    amount: 100 rows have about 100 times what the 300 others have: are two units mixed? The first \
is row 301, after which all do (rows 301, 302, 303, 304, 305)
    """
    sizes = np.abs(floats_of(column))
    known = np.isfinite(sizes) & (sizes > 0)
    logs = np.log10(sizes[known])
    logs = np.sort(logs[:: len(logs) // _SAMPLE + 1])
    if len(logs) < 2 * _FEWEST_DIFFERENT:
        return None
    for factor in FACTORS:
        for sign in (1, -1):
            split = _split(logs, sign * np.log10(factor))
            if split is not None and _same_shape(logs, split, factor):
                return _say(column.name, sizes, 10**split, factor, first_row)
    return None


def _split(logs: NDArray[np.float64], step: float) -> float | None:
    """Where the clusters of sorted values separate, half a step from the middle of the larger one;
    None if it is not empty there.
    """
    larger, split = logs, 0.0
    for _ in range(3):  # the smaller cluster has moved the first middle
        split = float(larger[len(larger) // 2]) + step / 2
        at = int(np.searchsorted(logs, split))
        larger = logs[:at] if step > 0 else logs[at:]
        if not len(larger):
            return None
    small = len(logs) - len(larger)
    between = int(np.diff(np.searchsorted(logs, (split - _EMPTY, split + _EMPTY)))[0])
    least = max(_FEWEST_DIFFERENT, _LEAST_SHARE * len(logs))
    return split if least <= small <= len(logs) / 2 and between <= 0.02 * small else None


def _same_shape(logs: NDArray[np.float64], split: float, factor: float) -> bool:
    low, high = logs[logs < split], logs[logs > split]
    if min(len(np.unique(part)) for part in (low, high)) < _FEWEST_DIFFERENT:
        return False
    before, after = (10 ** np.quantile(part, _QUARTILES) for part in (low, high))
    return factor_between(before, after, near=_NEAR) == factor


def _say(
    name: str, sizes: NDArray[np.float64], split: float, factor: float, first_row: int
) -> Suspicion:
    high, low = sizes > split, (sizes > 0) & (sizes < split)
    large = high.sum() <= low.sum()
    odd, rest = (high, low) if large else (low, high)
    times = f"{factor:,.0f} times" if large else f"a {factor:,.0f}th of"
    start = int(odd.argmax())
    after = ""
    if not rest[start:].any():
        after = f" The first is row {start + first_row:,}, after which all do"
    words = (
        f"{int(odd.sum()):,} rows have about {times} what the {int(rest.sum()):,} others have: "
        f"are two units mixed?{after}"
    )
    return Suspicion(name, words, row_numbers(odd, first_row))
