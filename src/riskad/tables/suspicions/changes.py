"""A column that changes its meaning halfway.

Rows are used in their order, in up to 64 blocks, and values in 32 classes: numbers by their
quantiles, texts by their most frequent levels, blanks as a separate class. For each border
between blocks the distance of the shares F before it and G after it is

    D = max_j |F_j - G_j|  of cumulative shares (numbers),     sum_j |f_j - g_j| / 2  (texts).

A change is reported if the largest D is at least 0.5 and far beyond chance, and if both sides are
uniform: wherever the middle half of a side is split, its own D is at most a quarter of that, plus
what chance adds. A column that trends with the rows, or wanders, also differs within the sides and
is ignored. So are

- a column that holds one value on each side, by which the rows are sorted;
- columns that change where the labels do;
- columns that change where more than a quarter of the others also move, by a D of 0.15: there the
  rows differ, not the meaning of the column. If more than half of the columns change outright, this
  is reported, once: two tables may have been joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import kstwo

from riskad.tables.suspicions.finding import Suspicion, floats_of
from riskad.tables.words import list_names

__all__ = ["find_changes"]

Integers = NDArray[np.int64]

_FEWEST_ROWS = 200
_BLOCKS, _CLASSES = 64, 32
_DISTANCE, _WITHIN = 0.5, 0.25
_CHANCE = 1e-4
_MOVED, _MANY = 0.15, 0.25  # other columns: how far, and how many of them
_SAMPLE = 50_000  # values that determine quantiles well enough
_LEAST_SIDE = 0.1  # of the rows: a few odd ones at an end are no change of meaning


@dataclass(frozen=True, eq=False)
class _Column:
    """Number of cells of each class in each block."""

    name: str
    counts: NDArray[np.float64]
    ordered: bool

    @classmethod
    def of(cls, column: pl.Series, borders: Integers) -> Self:
        classes, ordered = _classes(column)
        n, size = len(borders) - 1, _CLASSES + 2
        cells = np.repeat(np.arange(n) * size, np.diff(borders)) + classes
        counts = np.bincount(cells, minlength=n * size).reshape(n, size).astype(float)
        return cls(column.name, counts, ordered)

    def distances(self, blocks: slice = slice(None)) -> NDArray[np.float64]:
        """D of each border between these blocks."""
        before = self.counts[blocks].cumsum(axis=0)
        after = before[-1] - before
        before, after = before[:-1], after[:-1]
        gaps = before / before.sum(axis=1, keepdims=True) - after / after.sum(axis=1, keepdims=True)
        if self.ordered:
            return np.abs(gaps.cumsum(axis=1)).max(axis=1)
        return np.abs(gaps).sum(axis=1) / 2


@dataclass(frozen=True)
class _Change:
    """A column, the border where it changes, and how many rows come before."""

    column: str
    border: int
    rows: int


def find_changes(parsed: pl.DataFrame, codes: NDArray[np.int8], first_row: int) -> list[Suspicion]:
    """Look for columns that change in some row.

    >>> rng = np.random.default_rng(0)
    >>> score = [*rng.normal(0, 1, 300), *rng.normal(6, 3, 200)]
    >>> found = find_changes(pl.DataFrame({"score": score}), np.zeros(500, dtype=np.int8), 1)
    >>> print(found[0])
    score: its values are others from row 301 on: does it mean something else there? (row 301)
    """
    n = parsed.height
    if n < _FEWEST_ROWS:
        return []
    borders = np.linspace(0, n, min(_BLOCKS, n // 10) + 1).astype(np.int64)
    columns = [_Column.of(column, borders) for column in parsed]
    found = []
    for column in columns:
        at = _border(column, borders, len(columns))
        if at is not None:
            rows = _exact(_classes(parsed[column.name])[0], borders, at)
            if rows is not None and not _labels_change(codes, rows):
                found.append(_Change(column.name, at, rows))
    if len(found) > max(1, len(columns) / 2):
        return [_say_all(found, len(columns), first_row)]
    alone = [change for change in found if not _others_move(columns, change)]
    return [_say(change, first_row) for change in alone]


def _classes(column: pl.Series) -> tuple[Integers, bool]:
    """The class of each cell, and whether classes are ordered."""
    if column.dtype.is_numeric():
        values = floats_of(column)
        known = values[np.isfinite(values)]
        if not len(known):
            return np.zeros(len(values), dtype=np.int64), True
        some = known[:: len(known) // _SAMPLE + 1]
        edges = np.unique(np.quantile(some, np.arange(1, _CLASSES) / _CLASSES))
        above = np.searchsorted(edges, values, side="right") + 1
        return np.where(np.isfinite(values), above, 0), True
    texts = column.cast(pl.String)
    counts = texts.drop_nulls().value_counts(sort=True, name="rows")
    levels = counts[texts.name].head(_CLASSES - 1)
    numbers = pl.Series(range(1, len(levels) + 1), dtype=pl.Int64)
    found = texts.replace_strict(levels, numbers, default=_CLASSES, return_dtype=pl.Int64)
    return np.where(texts.is_null().to_numpy(), 0, found.to_numpy()), False


def _border(column: _Column, borders: Integers, n_columns: int) -> int | None:
    """The border where a column changes, counted from 1; None if it does not."""
    n, inner = int(borders[-1]), borders[1:-1]
    distances = column.distances()
    sides = (inner >= _LEAST_SIDE * n) & (inner <= (1 - _LEAST_SIDE) * n)
    at = 1 + int(np.where(sides, distances, 0).argmax())
    distance, rows = float(distances[at - 1]), int(borders[at])
    if distance < _DISTANCE:
        return None
    by_chance = kstwo.sf(distance, max(1, rows * (n - rows) // n)) * len(inner) * n_columns
    if by_chance > _CHANCE:
        return None
    uniform = (_uniform(column, side, distance) for side in (slice(None, at), slice(at, None)))
    return at if all(uniform) else None


def _uniform(column: _Column, side: slice, distance: float) -> bool:
    """Whether the rows of a side are alike, wherever its middle half is split."""
    inner = column.distances(side)
    inner = inner[len(inner) // 4 : -(len(inner) // 4) or None]
    by_chance = 3.5 / np.sqrt(column.counts[side].sum())
    return not len(inner) or bool(inner.max() <= _WITHIN * distance + by_chance)


def _exact(classes: Integers, borders: Integers, at: int) -> int | None:
    """How many rows come before the change, which is near a border; None if rows are sorted by it.

    Each row near the border votes for the side where its class is more frequent, with the logarithm
    of the ratio as its weight.
    """
    start, stop = int(borders[at - 1]), int(borders[at + 1])
    size = _CLASSES + 2
    before = np.bincount(classes[: int(borders[at])], minlength=size) + 0.5
    after = np.bincount(classes[int(borders[at]) :], minlength=size) + 0.5
    speaks = np.log(before / before.sum()) - np.log(after / after.sum())
    gained = np.concatenate([[0.0], speaks[classes[start:stop]].cumsum()])
    rows = start + int(gained.argmax())
    sorted_by_it = all(np.ptp(side) == 0 for side in (classes[:rows], classes[rows:]) if len(side))
    return None if sorted_by_it else rows


def _others_move(columns: Sequence[_Column], change: _Change) -> bool:
    """Whether the rows differ after a change, not only the column that changes."""
    others = [column for column in columns if column.name != change.column]
    moved = [column.distances()[change.border - 1] >= _MOVED for column in others]
    return len(others) > 0 and bool(np.mean(moved) > _MANY)


def _labels_change(codes: NDArray[np.int8], rows: int) -> bool:
    labels = codes.astype(np.int64) + 1
    before, after = (np.bincount(side, minlength=3) for side in (labels[:rows], labels[rows:]))
    gaps = before / before.sum() - after / after.sum()
    return bool(np.abs(gaps).sum() / 2 >= _DISTANCE)


def _say(change: _Change, first_row: int) -> Suspicion:
    row = change.rows + first_row
    words = f"its values are others from row {row:,} on: does it mean something else there?"
    return Suspicion(change.column, words, (row,))


def _say_all(found: Sequence[_Change], n_columns: int, first_row: int) -> Suspicion:
    row = int(np.median([change.rows for change in found])) + first_row
    names = list_names([change.column for change in found])
    words = (
        f"{len(found)} of {n_columns} columns hold other values from about row {row:,} on "
        f"({names}): are two tables joined, or the rows sorted?"
    )
    return Suspicion(None, words, (row,))
