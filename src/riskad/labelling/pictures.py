"""Where a value lies among those of its column: bars to draw, and a position among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.app.reasons import show_value
from riskad.tables.cells import Value
from riskad.tables.kinds.base import Column

__all__ = ["LevelPicture", "NumberPicture", "Picture", "picture_of"]

_BINS = 24
_LEVELS = 12  # most frequent; all others share a bar
_LONGEST = 40  # letters of a level's name


@dataclass(frozen=True, eq=False)
class NumberPicture:
    """Bars between the 1 % and the 99 % quantile; what lies beyond counts in the outer ones."""

    name: str
    kind: str
    usual: str
    known: NDArray[np.float64]
    low: float
    high: float
    ends: tuple[str, str]

    def drawn(self) -> dict[str, Any]:
        """Return the data that the page draws."""
        edges = np.linspace(self.low, self.high, _BINS + 1)
        counts = np.histogram(np.clip(self.known, self.low, self.high), edges)[0]
        about = {"name": self.name, "kind": self.kind, "usual": self.usual}
        return about | {"counts": counts.tolist(), "ends": list(self.ends)}

    def at(self, value: Any) -> float | None:
        """Return the position of a value, 0 at the left end and 1 at the right; None if blank."""
        if not np.isfinite(value):
            return None
        return float(np.clip((value - self.low) / (self.high - self.low), 0, 1))

    def rarity(self, value: Any) -> float:
        """Return the share of rows at least as far out on the same side; 1 for a blank."""
        if not np.isfinite(value):
            return 1.0
        first, last = (
            np.searchsorted(self.known, value),
            np.searchsorted(self.known, value, "right"),
        )
        n = len(self.known)
        return float(min(1.0, 2 * min(last, n - first) / n + 1 / n))


@dataclass(frozen=True, eq=False)
class LevelPicture:
    """A bar for each frequent level, and one for all others."""

    name: str
    kind: str
    usual: str
    levels: dict[str, int]
    counts: list[int]
    shares: dict[str, float]

    def drawn(self) -> dict[str, Any]:
        """Return the data that the page draws."""
        about = {"name": self.name, "kind": self.kind, "usual": self.usual}
        return about | {"counts": self.counts, "levels": [cut(name) for name in self.levels]}

    def at(self, value: Any) -> int | None:
        """Return the bar of a level; None if blank."""
        return None if value is None else self.levels.get(str(value), len(self.levels))

    def rarity(self, value: Any) -> float:
        """Return the share of rows that hold this level; 1 for a blank."""
        return 1.0 if value is None else self.shares.get(str(value), 0.0)


Picture = NumberPicture | LevelPicture


def picture_of(column: Column, values: pl.Series) -> Picture | None:
    """Return the picture of a column; None if every cell is blank.

    Parameters
    ----------
    column
        The prepared column.
    values
        Its cells, as read by the preparer.

    Examples
    --------
    >>> from riskad import TablePreparer
    >>> table = pl.DataFrame({"amount": ["1", "2", "3", "40"], "shop": ["a", "a", "b", "a"]})
    >>> preparer = TablePreparer().fit(table)
    >>> parsed = preparer.parse(table)
    >>> amount, shop = (picture_of(c, parsed[c.name]) for c in preparer.used())
    >>> amount.at(40.0), shop.drawn()["counts"], shop.at("b"), shop.rarity("b")
    (1.0, [3, 1], 1, 0.25)
    """
    plain, usual = column.plain(values), _usual(column)
    if column.extremes is None:
        return _of_levels(column, plain, usual)
    known = np.sort(plain[np.isfinite(plain)].astype(float))
    if not len(known):
        return None
    low, high = (float(q) for q in np.quantile(known, (0.01, 0.99)))
    if not low < high:
        low, high = float(known[0]), float(known[-1])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    ends = show_value(column.show(low)), show_value(column.show(high))
    return NumberPicture(column.name, column.kind, usual, known, low, high, ends)


def _of_levels(column: Column, plain: NDArray[Any], usual: str) -> LevelPicture | None:
    texts = pl.Series([None if v is None else str(v) for v in plain], dtype=pl.String).drop_nulls()
    if not len(texts):
        return None
    counted = texts.alias("level").value_counts(name="rows")
    counted = counted.sort(["rows", "level"], descending=[True, False])
    rows = dict(counted.iter_rows())
    frequent = list(rows)[:_LEVELS]
    others = sum(rows.values()) - sum(rows[level] for level in frequent)
    counts = [rows[level] for level in frequent] + ([others] if len(rows) > len(frequent) else [])
    shares = {level: n / len(plain) for level, n in rows.items()}
    levels = {level: j for j, level in enumerate(frequent)}
    return LevelPicture(column.name, column.kind, usual, levels, counts, shares)


def _usual(column: Column) -> str:
    usual: Value = column.typical
    return show_value(column.show(usual))


def cut(text: str, longest: int = _LONGEST) -> str:
    """Truncate a long text.

    >>> cut("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
