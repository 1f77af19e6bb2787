"""Shapley values of any score: what each column of a row adds to it, beside a usual row.

Few columns are enumerated, more are sampled in orders and their reverses, and very many are halved
in groups (`riskad.app.reasons` says how well).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScoredRows", "shapley_values"]

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.bool_]

_MOST_ENUMERATED = 10  # columns; 2^10 scores for a row
_PAIRS = 8  # of orders, after which the error is looked at
_MOST_PAIRS = 64
_ENOUGH = 0.02  # of the largest contribution
_MOST_SAMPLED, _MOST_SAMPLED_SLOWLY = 1_000, 100  # columns; more are compared in groups
_HALVED_AT_ONCE = 8
_BATCH_ENTRIES = 2_000_000  # of mixed rows that are held at once


class ScoredRows(Protocol):
    """Rows as the user knows them, and the features of these columns that a model scores."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def reference(self) -> Floats:
        """The features of the usual row."""

    @property
    def owners(self) -> NDArray[np.intp]:
        """The place of the column that each feature comes from."""

    @property
    def slow(self) -> bool:
        """Whether scores take long."""

    def row(self, i: int) -> Floats:
        """Return the features of a row, dense."""

    def score_mixed(self, rows: Floats) -> Floats:
        """Return anomaly scores of rows mixed of two."""


def shapley_values(
    view: ScoredRows, scores: Floats, base: float, seed: int, end: float
) -> tuple[Floats, Floats]:
    """Return contributions and standard errors, row by row while the clock is before `end`.

    Parameters
    ----------
    view
        The rows.
    scores, base
        Anomaly scores of the rows and of the usual row.
    seed
        Of the orders in which columns are compared, where these are sampled.
    end
        When no further row is begun, by `time.perf_counter`; the first always is.

    Returns
    -------
    tuple
        Both of the shape (n_rows, n_columns), of the rows that there was time for.
    """
    contributions, errors = np.zeros((2, len(scores), len(view.columns)))
    for i, score in enumerate(scores):
        if i and time.perf_counter() > end:
            return contributions[:i], errors[:i]
        x = view.row(i)
        differing = np.flatnonzero(x != view.reference)
        players, slots = np.unique(view.owners[differing], return_inverse=True)
        game = _Game(view, x, differing, slots, len(players), base, float(score))
        contributions[i, players], errors[i, players] = game.solve(seed)
    return contributions, errors


@dataclass(frozen=True)
class _Game:
    """The columns in which a row x differs from r, and v(S) of sets S of them."""

    view: ScoredRows
    x: Floats
    differing: NDArray[np.intp]  # features in which x is not r,
    slots: NDArray[np.intp]  # and which of the k columns they come from
    k: int
    none: float  # v of no column: the score of r
    all: float  # the score of x

    def value(self, masks: Masks) -> Floats:
        """v(S) for the sets in the rows of masks: x where S has the column, r elsewhere."""
        r, at = self.view.reference, self.differing
        n = max(1, _BATCH_ENTRIES // len(r))
        parts = [np.empty(0)]
        for start in range(0, len(masks), n):
            chosen = masks[start : start + n, self.slots]
            mixed = np.tile(r, (len(chosen), 1))
            mixed[:, at] = np.where(chosen, self.x[at], r[at])
            parts.append(self.view.score_mixed(mixed))
        return np.concatenate(parts)

    def solve(self, seed: int) -> tuple[Floats, Floats]:
        """Shapley values and their standard errors."""
        if self.k <= _MOST_ENUMERATED:
            return self.enumerate(), np.zeros(self.k)
        rng = np.random.default_rng(seed)
        most = _MOST_SAMPLED_SLOWLY if self.view.slow else _MOST_SAMPLED
        return self.sample(rng) if self.k <= most else self.halve(rng)

    def enumerate(self) -> Floats:
        """phi_j = sum over S without j of (v(S with j) - v(S)) / (k (k-1 choose |S|))."""
        k = self.k
        sets = np.arange(2**k)
        masks = (sets[:, None] >> np.arange(k)) % 2 == 1
        v = np.concatenate([[self.none], self.value(masks[1:-1]), [self.all]])
        weight = np.array([1 / (k * math.comb(k - 1, size)) for size in range(k)])
        size = masks.sum(axis=1)
        phi = np.empty(k)
        for j in range(k):
            without = sets[~masks[:, j]]
            phi[j] = weight[size[without]] @ (v[without + 2**j] - v[without])
        return phi

    def sample(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Means over pairs of orders, until the error is small or the pairs are many."""
        pairs = np.empty((0, self.k))
        while len(pairs) < (_PAIRS if self.view.slow else _MOST_PAIRS):
            pairs = np.concatenate([pairs, self.gains_of_pairs(rng)])
            phi, error = pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / math.sqrt(len(pairs))
            if error.max() <= _ENOUGH * np.abs(phi).max():
                break
        return phi, error

    def gains_of_pairs(self, rng: np.random.Generator) -> Floats:
        """What each column gains when it comes in, averaged over an order and its reverse."""
        k = self.k
        ranks = rng.permuted(np.tile(np.arange(k), (_PAIRS, 1)), axis=1)
        ranks = np.stack([ranks, k - 1 - ranks])  # the place of each column in the order
        masks = ranks[..., None, :] < np.arange(1, k)[:, None]  # who is in after 1 ... k-1 came
        v = np.empty((2, _PAIRS, k + 1))
        v[..., 0], v[..., -1] = self.none, self.all
        v[..., 1:-1] = self.value(masks.reshape(-1, k)).reshape(2, _PAIRS, k - 1)
        return np.take_along_axis(np.diff(v), ranks, axis=-1).mean(axis=0)

    def halve(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """What single columns or groups of them add; columns of a group share alike.

        The error of a column alone is half of what its gains differ by with all other columns from
        x and from r; that of a column in a group is its share, of which nothing is known.
        """
        groups = [_Group(rng.permutation(self.k), self.all - self.none, 0.0)]
        for _ in range(math.ceil(math.log2(self.k)) + 3):
            groups.sort(key=lambda group: (len(group.columns) > 1) * abs(group.adds))
            chosen = [group for group in groups[-_HALVED_AT_ONCE:] if len(group.columns) > 1]
            groups = [group for group in groups if group not in chosen] + self.halves(chosen)
        phi, error = np.empty((2, self.k))
        for group in groups:
            share = group.adds / len(group.columns)
            phi[group.columns] = share
            error[group.columns] = group.error if len(group.columns) == 1 else abs(share)
        return phi, error

    def halves(self, groups: list[_Group]) -> list[_Group]:
        """The two halves of each group, which add what it adds."""
        pairs = [np.array_split(group.columns, 2) for group in groups]
        inside = np.zeros((len(groups), 3, self.k), dtype=bool)  # A, B and both
        for masks, (first, second) in zip(inside, pairs, strict=True):
            masks[0, first] = masks[1, second] = True
            masks[2] = masks[0] | masks[1]
        outside = ~inside[:, 2]
        joined = inside | outside[:, None]  # with all columns of other groups; the third is all
        masks = np.concatenate([inside, joined[:, :2], outside[:, None]], axis=1)
        v = self.value(masks.reshape(-1, self.k)).reshape(len(groups), -1)
        found = []
        for group, pair, (a, b, both, a_too, b_too, others) in zip(groups, pairs, v, strict=True):
            absent = (a - self.none + both - b) / 2, (b - self.none + both - a) / 2
            present = (
                (a_too - others + self.all - b_too) / 2,
                (b_too - others + self.all - a_too) / 2,
            )
            rest = group.adds - (sum(absent) + sum(present)) / 2
            for columns, alone, too in zip(pair, absent, present, strict=True):
                adds = (alone + too + rest) / 2
                found.append(_Group(columns, float(adds), float(abs(alone - too) / 2)))
        return found


@dataclass(frozen=True, eq=False)
class _Group:
    """Columns that take the place of those of r together, and what they add."""

    columns: NDArray[np.intp]
    adds: float
    error: float
