"""What looks wrong in a table, as a message."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["Suspicion", "floats_of", "row_numbers"]

_SHOWN = 5


@dataclass(frozen=True)
class Suspicion:
    """Something that looks wrong, and the first of the rows where it does.

    >>> print(Suspicion("amount", "-1 in 12 rows: does it stand for a blank?", (3, 8)))
    amount: -1 in 12 rows: does it stand for a blank? (rows 3, 8)
    """

    column: str | None
    """None if it is about whole rows."""
    words: str
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        start = "" if self.column is None else f"{self.column}: "
        if not self.rows:
            return f"{start}{self.words}"
        noun = "row" if len(self.rows) == 1 else "rows"
        return f"{start}{self.words} ({noun} {', '.join(f'{row:,}' for row in self.rows)})"


def row_numbers(where: NDArray[np.bool_], first_row: int) -> tuple[int, ...]:
    """The numbers of the first few rows where something holds."""
    return tuple(int(place) + first_row for place in np.flatnonzero(where)[:_SHOWN])


def floats_of(column: pl.Series) -> NDArray[np.float64]:
    """Numbers, NaN for missing values and infinities."""
    values = column.cast(pl.Float64).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)
