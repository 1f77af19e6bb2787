r"""How unusual a level is within its group: its share there, blended with its share in the table.

With c_gl the rows of group g that have level l, n_g its rows that have any, and p_l the share of l
in the table,

    share = (c_gl + k p_l) / (n_g + k),          unusual = -log(share).

Shares of groups vary about p as draws from a Dirichlet distribution of strength k do. Two rows of
one group then agree with probability (1 + k S) / (1 + k), where S = sum_l p_l^2 is that for two
rows of the table. So from the share A of the pairs within groups that agree,

    k = (1 - A) / (A - S).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.storage.fields import COUNT, POSITIVE, TEXT, Array, Fields, State, require
from riskad.tables.group_names import find_hashes, hash_texts

__all__ = ["MOST_LEVELS", "ShareByGroup"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_LEVELS = 1_000
"""Most levels of a column that are distinguished; the rarer ones count as one."""

_LEAST, _MOST = 0.1, 1e6  # of k: groups that hold one level each, and groups all alike


@dataclass(frozen=True, eq=False)
class ShareByGroup:
    """A column of categories: how often groups and the table have each level.

    >>> texts = pl.Series(["card", "card", "card", "cash", "cash", "cash"])
    >>> paid = ShareByGroup.learn("paid", texts, np.repeat([0, 1], 3), 2)
    >>> paid.scores(pl.Series(["card", "cash", "gold"]), np.zeros(3, dtype=int)).round(1).tolist()
    [0.0, 4.2, 5.6]
    """

    name: str
    strength: float
    """k."""
    levels: NDArray[np.uint64]
    """Hashes of the levels, in rising order; one more position is for all other levels."""
    counts: Integers
    """Rows of each level in the table, those of other levels last."""
    n: Integers
    """Rows of each group that have a level."""
    pairs: Integers
    """Each level that a group has, as group * (levels + 1) + level, in rising order."""
    rows: Integers
    """Number of rows of the group that have it."""
    n_others: int
    """Number of different levels that count as one."""

    _state_fields: ClassVar[Fields] = {
        "name": TEXT,
        "strength": POSITIVE,
        "levels": Array("u", ("levels",)),
        "counts": Array("i", (None,), low=0),
        "n": Array("i", ("groups",), low=0),
        "pairs": Array("i", ("pairs",), low=0, rising=True),
        "rows": Array("i", ("pairs",), low=1),
        "n_others": COUNT,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        levels, size = state["levels"], len(state["levels"]) + 1
        require(bool((levels[1:] > levels[:-1]).all()), "levels: expected hashes in rising order")
        require(len(state["counts"]) == size, "counts: one for each level, and the others'")
        require(len(levels) <= MOST_LEVELS, "levels: too many")
        pairs, groups = state["pairs"], len(state["n"])
        require(not len(pairs) or pairs[-1] < groups * size, "pairs: of no group")
        of_groups = np.bincount(pairs // size, state["rows"], groups)
        require(np.array_equal(of_groups, state["n"]), "rows: other numbers than those of groups")

    @classmethod
    def learn(cls, name: str, texts: pl.Series, places: Integers, n_groups: int) -> Self:
        """Learn the groups of a column; null if a cell is blank."""
        counts = texts.drop_nulls().value_counts(sort=True, name="rows")
        kept = counts.head(MOST_LEVELS)[texts.name]
        levels = np.sort(hash_texts(kept).to_numpy())
        found, size = _levels_of(texts, levels), len(levels) + 1
        known = (found >= 0) & (places >= 0)
        pairs, rows = np.unique(places[known] * size + found[known], return_counts=True)
        table = np.bincount(found[found >= 0], minlength=size)
        n = np.bincount(places[known], minlength=n_groups)
        strength = _strength(table, n, rows)
        others = counts.height - len(kept)
        return cls(name, strength, levels, table, n, pairs, rows, others)

    def scores(self, texts: pl.Series, places: Integers, *, without_itself: bool = False) -> Floats:
        """-log(share) of each level; NaN if the cell is blank.

        A training row is judged `without_itself`, by the other rows.
        """
        found, size = _levels_of(texts, self.levels), len(self.levels) + 1
        itself = float(without_itself)
        rows, n = self._rows(places * size + found, places)
        rows = np.maximum(rows - itself, 0)
        n = np.maximum(n - itself, 0)
        share = (rows + self.strength * self._in_table(found, itself)) / (n + self.strength)
        return np.where(found >= 0, -np.log(share), np.nan)

    def _rows(self, wanted: Integers, places: Integers) -> tuple[Floats, Floats]:
        """Rows of the level in the group, and rows of the group."""
        if not len(self.pairs):
            return np.zeros(len(wanted)), np.zeros(len(wanted))
        at = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        there = (places >= 0) & (self.pairs[at] == wanted)
        return np.where(there, self.rows[at], 0.0), np.where(places >= 0, self.n[places], 0.0)

    def _in_table(self, found: Integers, itself: float) -> Floats:
        """p_l, with one more row for each level and for a new one.

        Levels that count as one share its rows equally.
        """
        total = self.counts.sum() - itself + len(self.levels) + self.n_others + 1
        rows = np.maximum(self.counts[found] - itself, 0)
        as_one = found == len(self.levels)
        return (np.where(as_one, rows / (self.n_others + 1), rows) + 1) / total


def _levels_of(texts: pl.Series, levels: NDArray[np.uint64]) -> Integers:
    """The position of each text among the levels, the last if it is none, -1 if it is blank."""
    found = find_hashes(texts, levels)
    return np.where(texts.is_null().to_numpy(), -1, np.where(found < 0, len(levels), found))


def _strength(table: Integers, n: Integers, rows: Integers) -> float:
    """k, from how many pairs of rows agree within groups and in the table."""
    pairs, among_all = _pairs(n), _pairs(table.sum())
    if not pairs:
        return _MOST
    within, overall = _pairs(rows) / pairs, _pairs(table) / among_all
    if within <= overall:
        return _MOST
    return float(np.clip((1 - within) / (within - overall), _LEAST, _MOST))


def _pairs(counts: Integers | np.int64) -> float:
    """Number of ordered pairs of rows within counts."""
    counts = np.asarray(counts, dtype=float)
    return float((counts * (counts - 1)).sum())
