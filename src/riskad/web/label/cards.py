"""How a row is shown: its cells, where they lie in their columns, and the labelled rows near it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from riskad.app.journal import hash_rows
from riskad.app.pictures import picture_maps
from riskad.app.reasons import show_value
from riskad.core.checks import shorten
from riskad.decisions.calibration import quietly
from riskad.tables.cells import to_text
from riskad.tables.kinds.base import Column
from riskad.tables.preparation import TablePreparer

_MOST_CARDS = 5_000  # in memory
_LONGEST_CELL = 1_000
_NEAREST = 3
_WIDEST = 2_000  # features by which rows are compared
_BINS = 24
_LEVELS = 12  # most frequent; all others share a bar
_PICTURE = 384  # pixels of its longer side
_LONGEST = 40  # letters of a level's name


@dataclass(frozen=True, eq=False)
class Card:
    """A row: its number counted from 1, its content, and its features on one scale."""

    row: int
    id: str | None
    hash: str
    cells: list[dict[str, Any]]
    vector: NDArray[np.float32]


class Cards:
    """The rows of a table as they are shown, made on demand."""

    def __init__(
        self,
        frame: pl.DataFrame,
        preparer: TablePreparer,
        parsed: pl.DataFrame,
        id: str | None,
        hashed: Sequence[str],
    ):
        self.frame, self.preparer, self.id, self.hashed = frame, preparer, id, list(hashed)
        pictures = {c.name: picture_of(c, parsed[c.name]) for c in preparer.used()}
        self.pictures = {name: each for name, each in pictures.items() if each is not None}
        matrix = _dense(preparer, parsed)
        self._mean, self._scale = matrix.mean(axis=0), matrix.std(axis=0)
        self._scale[self._scale == 0] = 1.0
        self._ready: dict[int, Card] = {}

    def of(self, rows: Sequence[int]) -> list[Card]:
        """Return the cards of rows, counted from 1; new ones are made together."""
        # When there are many, all go: those that are still needed are soon made again.
        ready = self._ready if len(self._ready) <= _MOST_CARDS else {}
        new = [row for row in dict.fromkeys(rows) if row not in ready]
        if new:
            # Other threads read it meanwhile: it is never changed, but replaced.
            self._ready = ready = ready | {card.row: card for card in self._make(new)}
        return [ready[row] for row in rows]

    def _make(self, rows: Sequence[int]) -> list[Card]:
        some = self.frame[[row - 1 for row in rows]]
        with quietly():
            parsed = self.preparer.parse(some, quiet=True)
            vectors = ((_dense(self.preparer, parsed) - self._mean) / self._scale).astype("f4")
        hashes = hash_rows(some, self.hashed)
        plain = {c.name: c.plain(parsed[c.name]) for c in self.preparer.used()}
        texts = {name: to_text(some[name]).to_list() for name in some.columns}
        image = next((c.name for c in self.preparer.used() if c.kind == "image"), None)
        maps = picture_maps(self.preparer, some, longest=_PICTURE)
        cards = []
        for i, row in enumerate(rows):
            cells: list[dict[str, Any]] = []
            for name, column in texts.items():
                text = None if column[i] is None else shorten(column[i], _LONGEST_CELL)
                cells.append({"column": name, "text": text})
                if name in self.pictures:
                    at, rarity = self.pictures[name].place(plain[name][i])
                    cells[-1] |= {"at": at, "rarity": round(rarity, 4)}
                if name == image:
                    cells[-1] |= maps[i]
            id = None if self.id is None else shorten(texts[self.id][i] or "", _LONGEST)
            cards.append(Card(row, id, hashes[i], cells, np.nan_to_num(vectors[i])))
        return cards

    def nearest(self, card: Card, rows: Sequence[int]) -> list[Card]:
        """Return the cards of the three of `rows` that are nearest to one, the nearest first.

        Distances are Euclidean over all features, each divided by its standard deviation.
        """
        others = self.of([row for row in rows if row != card.row])
        if not others:
            return []
        gaps = np.stack([other.vector for other in others]) - card.vector
        order = np.argsort(np.einsum("ij,ij->i", gaps, gaps), kind="stable")
        return [others[i] for i in order[:_NEAREST]]


def _dense(preparer: TablePreparer, parsed: pl.DataFrame) -> NDArray[np.float64]:
    matrix = preparer.matrix(parsed)[:, :_WIDEST]
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=np.float64)


# --- where a value lies in its column ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Picture:
    """The bars of a column.

    `place` returns where a value lies, and its rarity. Among numbers this is from 0 at the left end
    to 1 at the right, and the share of rows at least as far out on the same side; among levels the
    number of the bar, and the share of rows that hold it. A blank lies nowhere, and is not rare.
    """

    bars: dict[str, Any]
    place: Callable[[Any], tuple[float | None, float]]


def picture_of(column: Column, values: pl.Series) -> Picture | None:
    """Return the picture of a column; None if every cell is blank."""
    plain, usual = column.plain(values), show_value(column.show(column.typical))
    picture = _of_levels(plain) if column.extremes is None else _of_numbers(column, plain)
    if picture is not None:
        picture.bars.update(name=column.name, kind=column.kind, usual=usual)
    return picture


def _of_numbers(column: Column, plain: NDArray[Any]) -> Picture | None:
    """Bars between the 1 % and the 99 % quantile; what lies beyond counts in the outer ones."""
    numbers = np.sort(plain[np.isfinite(plain)].astype(float))
    n = len(numbers)
    if not n:
        return None
    low, high = (float(q) for q in np.quantile(numbers, (0.01, 0.99)))
    if not low < high:
        low, high = float(numbers[0]), float(numbers[-1])
    if not low < high:
        low, high = low - 0.5, high + 0.5

    def place(value: Any) -> tuple[float | None, float]:
        if not np.isfinite(value):
            return None, 1.0
        first, last = (np.searchsorted(numbers, value, side) for side in ("left", "right"))
        rarity = float(min(1.0, 2 * min(last, n - first) / n + 1 / n))
        return float(np.clip((value - low) / (high - low), 0, 1)), rarity

    counts = np.histogram(np.clip(numbers, low, high), np.linspace(low, high, _BINS + 1))[0]
    ends = [show_value(column.show(end)) for end in (low, high)]
    return Picture({"counts": counts.tolist(), "ends": ends}, place)


def _of_levels(plain: NDArray[Any]) -> Picture | None:
    """A bar for each frequent level, and one for all others."""
    levels = Counter(str(value) for value in plain if value is not None)
    if not levels:
        return None
    ordered = sorted(levels, key=lambda level: (-levels[level], level))
    bars = {level: i for i, level in enumerate(ordered[:_LEVELS])}
    counts = [levels[level] for level in bars]
    if len(levels) > len(bars):
        counts.append(levels.total() - sum(counts))

    def place(value: Any) -> tuple[float | None, float]:
        if value is None:
            return None, 1.0
        return bars.get(str(value), len(bars)), levels[str(value)] / len(plain)

    return Picture(
        {"counts": counts, "levels": [shorten(level, _LONGEST) for level in bars]}, place
    )
