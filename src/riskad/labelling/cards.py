"""How a row is shown: its cells, where they lie, and the labelled rows nearest to it."""

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

from riskad.app.noticed import no_warnings
from riskad.labelling.pictures import Picture, cut, picture_of
from riskad.labelling.row_hashes import hash_rows
from riskad.tables.cells import to_text
from riskad.tables.preparation import TablePreparer

__all__ = ["Card", "Cards"]

_KEPT = 5_000  # cards in memory
_LONGEST_CELL = 1_000
_NEAREST = 3
_WIDEST = 2_000  # features by which rows are compared


@dataclass(frozen=True, eq=False)
class Card:
    """A row: its number counted from 1, its content, and its features on one scale."""

    row: int
    id: str | None
    hash: str
    cells: list[dict[str, Any]]
    vector: NDArray[np.float32]


class Cards:
    """The rows of a table as they are shown, made on demand.

    Parameters
    ----------
    frame
        The table, without its labels.
    preparer, parsed
        What was found about its columns from some of its rows, and these.
    id
        The column that names the rows, if any.
    hashed
        The columns that identify rows in a journal.
    """

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
        return [picture.drawn() for picture in self.pictures.values()]

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
