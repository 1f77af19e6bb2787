"""Changed units and new blanks: the effects of a changed export on the rows to score.

Two causes are found that a user can fix:

- a changed unit. The middle half of a column lies a factor of 60, 100, 1,000, 3,600 or a million
  away from where it was, with each quartile moved by the same factor, and the middle lies where
  there was hardly any value before; either for all rows or for those outside the earlier range;
- blanks in at least 20 % more of the rows than before, by more than chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom

from riskad.files.fields import TEXT, Array, ListOf, State, require
from riskad.tables.notes import pluralize, show_number

Floats = NDArray[np.float64]

UNIT_FACTORS = (60.0, 100.0, 1_000.0, 3_600.0, 1e6)
"""Minutes and hours, cents, thousands and per mil, hours and seconds, millions."""

_LEVELS = (0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995)
_FEWEST_BEFORE, FEWEST_ROWS = 50, 20
_LEAST_SHARE = 0.1  # of the rows, if not all have moved
_MORE_BLANKS, _CHANCE = 0.2, 1e-4
_SMALLEST = float(np.nextafter(0, 1))  # of the sizes above 0


@dataclass(frozen=True, eq=False)
class Shifts:
    """Earlier quantiles of each column, and the number of its blank cells.

    >>> before = pl.DataFrame({"amount": np.linspace(30, 50, 200), "age": [40.0] * 200})
    >>> after = pl.DataFrame({"amount": np.linspace(3000, 5000, 50), "age": [None] * 50})
    >>> for sentences in Shifts.learn(before).changes(after, first_row=1).values():
    ...     print(*sentences)
    amount: usually 40, here 4,000, 100 times as large: has the unit changed? First in row 1.
    age: 100 % of the cells are blank, where 0 % were. First in row 1.
    """

    columns: Annotated[list[str], ListOf(TEXT, "columns_", different=True)]
    rows: Annotated[NDArray[np.int64], Array("i", ("columns_",), low=0)]
    blanks: Annotated[NDArray[np.int64], Array("i", ("columns_",), low=0)]
    quantiles: Annotated[
        Floats, Array("f", ("columns_", len(_LEVELS)), low=_SMALLEST, gaps=True, rising=True)
    ]  # of the sizes |x| > 0; NaN if there are too few of them

    @classmethod
    def _check_state(cls, state: State) -> None:
        require(bool((state["blanks"] <= state["rows"]).all()), "blanks: more than rows")

    @classmethod
    def learn(cls, parsed: pl.DataFrame) -> Self:
        """Summarise the training rows, or a sample of them; null if a cell is blank."""
        quantiles = np.full((parsed.width, len(_LEVELS)), np.nan)
        for place, column in enumerate(parsed):
            sizes = _sizes(column)
            sizes = sizes[~np.isnan(sizes)]
            if len(sizes) >= _FEWEST_BEFORE:
                quantiles[place] = np.quantile(sizes, _LEVELS)
        blanks = np.array([column.null_count() for column in parsed], dtype=np.int64)
        rows = np.full(parsed.width, parsed.height, dtype=np.int64)
        return cls(parsed.columns, rows, blanks, quantiles)

    def changes(self, parsed: pl.DataFrame, first_row: int) -> dict[str, list[str]]:
        """Sentences by column; `first_row` is the number of the first of these rows."""
        sentences: dict[str, list[str]] = {}
        for place, name in enumerate(self.columns):
            if name in parsed.columns and parsed.height >= FEWEST_ROWS:
                for check in (self._new_unit, self._new_blanks):
                    if change := check(place, parsed[name]):
                        sentence, row = change[0], first_row + change[1]
                        words = f"{name}: {sentence} First in row {row:,}."
                        sentences.setdefault(name, []).append(words)
        return sentences

    def _new_unit(self, place: int, column: pl.Series) -> tuple[str, int] | None:
        before, sizes = self.quantiles[place], _sizes(column)
        if np.isnan(before).any():
            return None
        present = ~np.isnan(sizes)
        outside = present & ((sizes < before[0]) | (sizes > before[-1]))
        for candidates in (present, outside):
            if candidates.sum() < max(FEWEST_ROWS, _LEAST_SHARE * present.sum()):
                continue
            after = np.quantile(sizes[candidates], _LEVELS[2:5])
            factor = factor_between(before[2:5], after, near=0.15)
            if factor is None or before[1] <= after[1] <= before[5]:
                continue
            # A wild value of the old unit is not where the new one begins.
            as_before = sizes / factor
            new = candidates & (as_before >= before[0] / 2) & (as_before <= 2 * before[-1])
            medians = before[3], np.median(sizes[new])
            usual, middle = (show_number(float(f"{median:.3g}")) for median in medians)
            where, n = "here", int(new.sum())
            if n < 0.9 * present.sum():
                where = f"in {n:,} of {pluralize(len(sizes), 'row')}"
            large = f"{factor:,.0f} times as large" if factor > 1 else f"a {1 / factor:,.0f}th"
            sentence = f"usually {usual}, {where} {middle}, {large}: has the unit changed?"
            return sentence, int(new.argmax())
        return None

    def _new_blanks(self, place: int, column: pl.Series) -> tuple[str, int] | None:
        n, now = len(column), column.null_count()
        rows, before = int(self.rows[place]), int(self.blanks[place])
        many_more = rows and now / n >= before / rows + _MORE_BLANKS
        if not many_more or binom.sf(now - 1, n, (before + 1) / (rows + 2)) > _CHANCE:
            return None
        shares = f"{100 * now / n:.0f} % of the cells are blank, where {100 * before / rows:.0f} %"
        return f"{shares} were.", int(column.is_null().arg_max() or 0)


def factor_between(before: Floats, after: Floats, *, near: float) -> float | None:
    """The factor between units by which quartiles moved, off by `near` powers of ten at most."""
    factors = np.array([*UNIT_FACTORS, *(1 / factor for factor in UNIT_FACTORS)])
    off = np.abs(np.log10(after / before)[:, None] - np.log10(factors)).max(axis=0)
    return float(factors[off.argmin()]) if off.min() <= near else None


def finite_or_nan(column: pl.Series) -> Floats:
    """Numbers, NaN for blanks and infinities."""
    values = column.cast(pl.Float64).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


def _sizes(column: pl.Series) -> Floats:
    """|x| of each number, NaN if it is blank, 0 or not a number."""
    if not column.dtype.is_numeric():
        return np.full(len(column), np.nan)
    sizes = np.abs(finite_or_nan(column))
    return np.where(sizes > 0, sizes, np.nan)
