"""How a row is shown: its cells, where they lie in their columns, and the labelled rows near it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from riskad.app.journal import hash_rows
from riskad.app.noticed import no_warnings
from riskad.app.reasons import show_value
from riskad.tables.cells import to_text
from riskad.tables.kinds.base import Column
from riskad.tables.preparation import TablePreparer

_KEPT = 5_000  # cards in memory
_LONGEST_CELL = 1_000
_NEAREST = 3
_WIDEST = 2_000  # features by which rows are compared
_BINS = 24
_LEVELS = 12  # most frequent; all others share a bar
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
        found = ((c.name, picture_of(c, parsed[c.name])) for c in preparer.used())
        self.pictures: dict[str, Picture] = {name: p for name, p in found if p is not None}
        matrix = _dense(preparer, parsed)
        self._mean, self._scale = matrix.mean(axis=0), matrix.std(axis=0)
        self._scale[self._scale == 0] = 1.0
        self._made: OrderedDict[int, Card] = OrderedDict()
        self._lock = Lock()

    def drawn(self) -> list[dict[str, Any]]:
        """Return the picture of each column that has one."""
        return [
            {"name": p.name, "kind": p.kind, "usual": p.usual} | p.bars()
            for p in self.pictures.values()
        ]

    def ready(self, row: int) -> bool:
        """Return whether a card is already made."""
        return row in self._made

    def of(self, rows: Sequence[int]) -> list[Card]:
        """Return the cards of rows, counted from 1; new ones are made together."""
        with self._lock:
            new = [row for row in dict.fromkeys(rows) if row not in self._made]
            cards = {row: self._made[row] for row in rows if row in self._made}
        if new:
            cards |= {card.row: card for card in self._make(new)}
        with self._lock:
            for row in rows:
                self._made[row] = cards[row]
                self._made.move_to_end(row)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return [cards[row] for row in rows]

    def _make(self, rows: Sequence[int]) -> list[Card]:
        some = self.frame[[row - 1 for row in rows]]
        with no_warnings():
            parsed = self.preparer.parse(some, quiet=True)
            vectors = ((_dense(self.preparer, parsed) - self._mean) / self._scale).astype("f4")
        hashes = hash_rows(some, self.hashed)
        plain = {c.name: c.plain(parsed[c.name]) for c in self.preparer.used()}
        texts = {name: to_text(some[name]).to_list() for name in some.columns}
        return [
            Card(
                row,
                None if self.id is None else cut(texts[self.id][i] or ""),
                hashes[i],
                [self._cell(name, text[i], plain, i) for name, text in texts.items()],
                np.nan_to_num(vectors[i]),
            )
            for i, row in enumerate(rows)
        ]

    def _cell(
        self, name: str, text: str | None, plain: Mapping[str, Any], i: int
    ) -> dict[str, Any]:
        shown = None if text is None else cut(text, _LONGEST_CELL)
        cell = {"column": name, "text": shown}
        picture = self.pictures.get(name)
        if picture is None:
            return cell
        value = plain[name][i]
        return cell | {"at": picture.at(value), "rarity": round(picture.rarity(value), 4)}

    def nearest(self, card: Card, rows: Sequence[int], n: int = _NEAREST) -> list[Card]:
        """Return the cards of the n of `rows` that are nearest to one, the nearest first.

        Distances are Euclidean over all features, each divided by its standard deviation.
        """
        others = self.of([row for row in rows if row != card.row])
        if not others:
            return []
        gaps = np.stack([other.vector for other in others]) - card.vector
        order = np.argsort(np.einsum("ij,ij->i", gaps, gaps), kind="stable")
        return [others[i] for i in order[:n]]


def _dense(preparer: TablePreparer, parsed: pl.DataFrame) -> NDArray[np.float64]:
    matrix = preparer.matrix(parsed)
    matrix = matrix[:, :_WIDEST]
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=np.float64)


# --- where a value lies in its column ------------------------------------------------------


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

    def bars(self) -> dict[str, Any]:
        """Return the heights of bars, and what stands below them."""
        edges = np.linspace(self.low, self.high, _BINS + 1)
        counts = np.histogram(np.clip(self.known, self.low, self.high), edges)[0]
        return {"counts": counts.tolist(), "ends": list(self.ends)}

    def at(self, value: Any) -> float | None:
        """Return the position of a value, 0 at the left end and 1 at the right; None if blank."""
        if not np.isfinite(value):
            return None
        return float(np.clip((value - self.low) / (self.high - self.low), 0, 1))

    def rarity(self, value: Any) -> float:
        """Return the share of rows at least as far out on the same side; 1 for a blank."""
        if not np.isfinite(value):
            return 1.0
        first, last = (np.searchsorted(self.known, value, side) for side in ("left", "right"))
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

    def bars(self) -> dict[str, Any]:
        """Return the heights of bars, and what stands below them."""
        return {"counts": self.counts, "levels": [cut(name) for name in self.levels]}

    def at(self, value: Any) -> int | None:
        """Return the bar of a level; None if blank."""
        return None if value is None else self.levels.get(str(value), len(self.levels))

    def rarity(self, value: Any) -> float:
        """Return the share of rows that hold this level; 1 for a blank."""
        return 1.0 if value is None else self.shares.get(str(value), 0.0)


Picture = NumberPicture | LevelPicture


def picture_of(column: Column, values: pl.Series) -> Picture | None:
    """Return the picture of a column; None if every cell is blank.

    Examples
    --------
    >>> from riskad import TablePreparer
    >>> table = pl.DataFrame({"amount": ["1", "2", "3", "40"], "shop": ["a", "a", "b", "a"]})
    >>> preparer = TablePreparer().fit(table)
    >>> parsed = preparer.parse(table)
    >>> amount, shop = (picture_of(c, parsed[c.name]) for c in preparer.used())
    >>> amount.at(40.0), shop.bars()["counts"], shop.at("b"), shop.rarity("b")
    (1.0, [3, 1], 1, 0.25)
    """
    plain, usual = column.plain(values), show_value(column.show(column.typical))
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


def cut(text: str, longest: int = _LONGEST) -> str:
    """Truncate a long text.

    >>> cut("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
