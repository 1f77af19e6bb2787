"""Changed units and new blanks: the effects of a changed export on the rows to score.

`riskad.decisions.drift` tests whether columns have moved by more than chance, and by how much. This
module finds two causes that a user can fix, and names them:

- a changed unit. The middle half of a column lies a factor of 60, 100, 1,000, 3,600 or a million
  away from where it was, with each quartile moved by the same factor, and the middle lies where
  there was hardly any value before; either for all rows or for those outside the earlier range.
  Signs and zeros are ignored;
- blanks in at least 20 % more of the rows than before, by more than chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom

from riskad.storage.fields import Array, Fields, ListOf, State, Text, require
from riskad.tables.words import say_count, show_number

__all__ = ["FACTORS", "Shifts", "factor_between"]

Floats = NDArray[np.float64]

FACTORS = (60.0, 100.0, 1_000.0, 3_600.0, 1e6)
"""Factors between units: minutes and hours, cents, thousands, and per mil, hours and seconds,
millions.
"""

_LEVELS = (0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995)
_FEWEST_BEFORE, _FEWEST = 50, 20
_LEAST_SHARE = 0.1  # of the rows, if not all have moved
_NEAR = 0.15  # how far quartiles may be off the factor, in powers of ten
_MORE_BLANKS, _CHANCE = 0.2, 1e-4


@dataclass(frozen=True, eq=False)
class Shifts:
    """Earlier quantiles of each column, and the number of its blank cells.

    Examples
    --------
    >>> before = pl.DataFrame({"amount": np.linspace(30, 50, 200), "age": [40.0] * 200})
    >>> shifts = Shifts.learn(before)
    >>> shifts.compare(before)
    []
    >>> after = pl.DataFrame({"amount": np.linspace(3000, 5000, 50), "age": [None] * 50})
    >>> for sentence in shifts.compare(after):
    ...     print(sentence)
    amount: usually 40, here 4,000, 100 times as large: has the unit changed? First in row 1.
    age: 100 % of the cells are blank, where 0 % were. First in row 1.
    """

    columns: list[str]
    rows: NDArray[np.int64]
    blanks: NDArray[np.int64]
    quantiles: Floats
    """Of the sizes |x| > 0 of each column of numbers; NaN if there are too few of them."""

    _state_fields: ClassVar[Fields] = {
        "columns": ListOf(Text(), "columns_"),
        "rows": Array("i", ("columns_",), low=0),
        "blanks": Array("i", ("columns_",), low=0),
        "quantiles": Array("f", ("columns_", len(_LEVELS)), low=0, gaps=True),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        require(bool((state["blanks"] <= state["rows"]).all()), "blanks: more than rows")
        require(len(set(state["columns"])) == len(state["columns"]), "columns: a name twice")
        known = state["quantiles"][~np.isnan(state["quantiles"]).any(axis=1)]
        rising = bool((np.diff(known, axis=1) >= 0).all()) and bool((known > 0).all())
        require(rising, "quantiles: expected sizes in rising order")

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

    def compare(self, parsed: pl.DataFrame, *, first_row: int = 1) -> list[str]:
        """Describe what has changed, one sentence each; missing columns are left out.

        Parameters
        ----------
        parsed
            Rows to score, parsed like those of the fit.
        first_row
            The number of the first of these rows, if they are part of a table.
        """
        return [said for each in self.changes(parsed, first_row).values() for said in each]

    def changes(self, parsed: pl.DataFrame, first_row: int) -> dict[str, list[str]]:
        """The sentences of `compare`, by column."""
        found: dict[str, list[str]] = {}
        for place, name in enumerate(self.columns):
            if name in parsed.columns and parsed.height >= _FEWEST:
                unit = self._new_unit(place, parsed[name], first_row)
                blanks = self._new_blanks(place, parsed[name], first_row)
                found[name] = [said for said in (unit, blanks) if said]
        return {name: said for name, said in found.items() if said}

    def _new_unit(self, place: int, column: pl.Series, first_row: int) -> str | None:
        before, sizes = self.quantiles[place], _sizes(column)
        if np.isnan(before).any():
            return None
        present = ~np.isnan(sizes)
        outside = present & ((sizes < before[0]) | (sizes > before[-1]))
        for moved in (present, outside):
            if moved.sum() < max(_FEWEST, _LEAST_SHARE * present.sum()):
                continue
            factor = _factor(before, sizes[moved])
            if factor is not None:  # a wild value of the old unit is not where the new one begins
                as_before = sizes / factor
                moved &= (as_before >= before[0] / 2) & (as_before <= 2 * before[-1])
                return _say_unit(column.name, before[3], factor, sizes, moved, first_row)
        return None

    def _new_blanks(self, place: int, column: pl.Series, first_row: int) -> str | None:
        n, now = len(column), column.null_count()
        rows, before = int(self.rows[place]), int(self.blanks[place])
        if not rows or now / n < before / rows + _MORE_BLANKS:
            return None
        usual = (before + 1) / (rows + 2)
        if binom.sf(now - 1, n, usual) > _CHANCE:
            return None
        row = first_row + int(column.is_null().arg_max() or 0)
        return (
            f"{column.name}: {100 * now / n:.0f} % of the cells are blank, where "
            f"{100 * before / rows:.0f} % were. First in row {row:,}."
        )


def factor_between(before: Floats, after: Floats, near: float = _NEAR) -> float | None:
    """The factor by which all quartiles have moved, if it is a factor between units.

    >>> factor_between(np.array([1.0, 2.0, 3.0]), np.array([105.0, 200.0, 310.0]))
    100.0
    >>> factor_between(np.array([1.0, 2.0, 3.0]), np.array([0.9, 200.0, 310.0])) is None
    True
    """
    moved = np.log10(after / before)
    factors = np.array([*FACTORS, *(1 / each for each in FACTORS)])
    off = np.abs(moved[:, None] - np.log10(factors)).max(axis=0)
    return float(factors[off.argmin()]) if off.min() <= near else None


def _factor(before: Floats, sizes: Floats) -> float | None:
    """The factor between the learned quantiles and these sizes."""
    after = np.quantile(sizes, _LEVELS[2:5])
    if before[1] <= after[1] <= before[5]:
        return None
    return factor_between(before[2:5], after)


def _sizes(column: pl.Series) -> Floats:
    """|x| of each number, NaN if it is blank, 0 or not a number."""
    if not column.dtype.is_numeric():
        return np.full(len(column), np.nan)
    sizes = np.abs(column.cast(pl.Float64).fill_null(np.nan).to_numpy())
    return np.where(np.isfinite(sizes) & (sizes > 0), sizes, np.nan)


def _say_unit(
    name: str,
    usual: float,
    factor: float,
    sizes: Floats,
    moved: NDArray[np.bool_],
    first_row: int,
) -> str:
    middle = show_number(float(f"{np.median(sizes[moved]):.3g}"))
    where = "here"
    if moved.sum() < 0.9 * np.isfinite(sizes).sum():
        where = f"in {int(moved.sum()):,} of {say_count(len(sizes), 'row')}"
    as_large = f"{factor:,.0f} times as large" if factor > 1 else f"a {1 / factor:,.0f}th"
    return (
        f"{name}: usually {show_number(float(f'{usual:.3g}'))}, {where} {middle}, {as_large}: has "
        f"the unit changed? First in row {first_row + int(moved.argmax()):,}."
    )
