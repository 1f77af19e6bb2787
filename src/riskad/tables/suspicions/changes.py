"""A column that changes its meaning halfway.

Rows are taken in their order, in up to 64 blocks, and values in 32 classes: numbers by their
quantiles, texts by their most frequent levels, blanks as a class of their own. For each border
between blocks the distance of the shares F before it and G after it is

    D = max_j |F_j - G_j|  of cumulative shares (numbers),     sum_j |f_j - g_j| / 2  (texts).

A change is said where the largest D is at least 0.5 and far beyond chance, and where either side is
uniform: wherever its middle half is parted, its own D is a quarter of that at most, and what chance
adds. A column that trends with the rows, or wanders, differs within the sides as well and is left
alone. So is one that holds one value on either side, by which the rows are sorted, and so are
columns that change where the labels do. If more than half of the columns change, they are said
together: two tables may have been joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
_SAMPLE = 50_000  # values that tell quantiles well enough
_LEAST_SIDE = 0.1  # of the rows: a few odd ones at an end are no change of meaning


@dataclass(frozen=True)
class _Change:
    """A column, and how many rows come before the change."""

    column: str
    rows: int


def find_changes(parsed: pl.DataFrame, codes: NDArray[np.int8], first_row: int) -> list[Suspicion]:
    """Look for columns that change in some row.

    >>> rng = np.random.default_rng(0)
    >>> score = [*rng.normal(0, 1, 300), *rng.normal(6, 3, 200)]
    >>> found = find_changes(pl.DataFrame({"score": score}), np.zeros(500, dtype=np.int8), 1)
    >>> print(found[0])
    score: its values are others from row 301 on: does it mean something else there? (row 301)
    """
    if parsed.height < _FEWEST_ROWS:
        return []
    labels = codes.astype(np.int64) + 1
    found = []
    for column in parsed:
        classes, ordered = _classes(column)
        rows = _change(classes, ordered, len(parsed.columns))
        if rows is not None and not _labels_change(labels, rows):
            found.append(_Change(column.name, rows))
    return _say(found, parsed.width, first_row)


def _classes(column: pl.Series) -> tuple[Integers, bool]:
    """The class of each cell, and whether classes are in an order."""
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


def _change(classes: Integers, ordered: bool, n_columns: int) -> int | None:
    """How many rows come before a change; None where there is none."""
    n = len(classes)
    blocks = min(_BLOCKS, n // 10)
    borders = np.linspace(0, n, blocks + 1).astype(int)
    size = _CLASSES + 2
    cells = np.repeat(np.arange(blocks) * size, np.diff(borders)) + classes
    counts = np.bincount(cells, minlength=blocks * size).reshape(blocks, size).astype(float)
    distances = _distances(counts, ordered)
    sides = (borders[1:-1] >= _LEAST_SIDE * n) & (borders[1:-1] <= (1 - _LEAST_SIDE) * n)
    at = int(np.where(sides, distances, 0).argmax())
    distance, rows = float(distances[at]), int(borders[at + 1])
    by_chance = kstwo.sf(distance, max(1, rows * (n - rows) // n)) * blocks * n_columns
    if distance < _DISTANCE or by_chance > _CHANCE or not _uniform(counts, at + 1, ordered):
        return None
    near = borders[max(at - 1, 0)], borders[min(at + 3, blocks)]
    rows = _exact(classes, (int(near[0]), int(near[1])))
    sorted_by_it = all(np.ptp(side) == 0 for side in (classes[:rows], classes[rows:]))
    return None if sorted_by_it else rows


def _distances(counts: NDArray[np.float64], ordered: bool) -> NDArray[np.float64]:
    """D of each border between blocks."""
    before = counts.cumsum(axis=0)
    after = before[-1] - before
    before, after = before[:-1], after[:-1]
    gaps = before / before.sum(axis=1, keepdims=True) - after / after.sum(axis=1, keepdims=True)
    if ordered:
        return np.abs(gaps.cumsum(axis=1)).max(axis=1)
    return np.abs(gaps).sum(axis=1) / 2


def _uniform(counts: NDArray[np.float64], at: int, ordered: bool) -> bool:
    """Whether the rows of either side are alike, wherever its middle half is parted."""
    distance = _distances(counts, ordered)[at - 1]
    for side in (counts[:at], counts[at:]):
        inner = _distances(side, ordered)[len(side) // 4 : -(len(side) // 4) or None]
        by_chance = 3.5 / np.sqrt(side.sum())
        if len(inner) and inner.max() > _WITHIN * distance + by_chance:
            return False
    return True


def _exact(classes: Integers, near: tuple[int, int]) -> int:
    """The row of the change, among those near the border that was found.

    Each class of rows speaks for the side where it is the more frequent, by the logarithm of how
    much more.
    """
    size = _CLASSES + 2
    before = np.bincount(classes[: near[0]], minlength=size) + 0.5
    after = np.bincount(classes[near[1] :], minlength=size) + 0.5
    speaks = np.log(before / before.sum()) - np.log(after / after.sum())
    gained = np.concatenate([[0.0], speaks[classes[near[0] : near[1]]].cumsum()])
    return near[0] + int(gained.argmax())


def _labels_change(labels: Integers, rows: int) -> bool:
    before, after = (np.bincount(side, minlength=3) for side in (labels[:rows], labels[rows:]))
    gaps = before / before.sum() - after / after.sum()
    return bool(np.abs(gaps).sum() / 2 >= _DISTANCE)


def _say(found: Sequence[_Change], n_columns: int, first_row: int) -> list[Suspicion]:
    if len(found) > max(1, n_columns / 2):
        first = min(change.rows for change in found) + first_row
        names = list_names([change.column for change in found])
        words = (
            f"{len(found)} of {n_columns} columns hold other values further down ({names}): are "
            "two tables joined, or the rows sorted?"
        )
        return [Suspicion(None, words, (first,))]
    return [
        Suspicion(
            change.column,
            f"its values are others from row {change.rows + first_row:,} on: does it mean "
            "something else there?",
            (change.rows + first_row,),
        )
        for change in found
    ]
