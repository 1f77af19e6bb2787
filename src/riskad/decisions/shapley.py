r"""Shapley values of any score: what each column of a row adds to it, compared with a usual row.

Few columns are enumerated, more are sampled in orders and their reverses, and very many are halved
in groups (see `riskad.app.reasons`).

If scores are slow, sets are drawn instead of orders, and the scores of several rows are computed
together. The Shapley values phi of v over k columns minimise

    sum_S w(|S|) (v(S) - v(none) - sum_{j in S} phi_j)^2,   w(s) = (k - 1) / ((k over s) s (k - s)),

among all that add up to D = v(all) - v(none). A set and its complement together give

    u(S) = (v(S) - v(none) + D - (v(rest) - v(none))) / 2,

which is exactly sum_{j in S} phi_j if at most two columns interact at a time. All sets of one
column are used, and 3 k others drawn by their weight. For the same errors, this takes half of the
scores that orders take on real tables, and as many if columns interact at random. The standard
errors are those of least squares with residuals of different sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScoredRows", "shapley_values"]

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.bool_]

_MOST_ENUMERATED, _MOST_ENUMERATED_SLOWLY = 10, 7  # columns; 2^10 or 2^7 scores for a row
_PAIRS = 8  # of orders, after which the error is checked
_MOST_PAIRS = 64
_ENOUGH = 0.02  # of the largest contribution
_MOST_SAMPLED, _MOST_SAMPLED_SLOWLY = 1_000, 100  # columns; more are compared in groups
_DRAWN = 3  # sets for each column, if scores are slow
_MOST_TOGETHER = 32  # rows whose mixed rows are scored together
_HALVED_AT_ONCE = 8
_BATCH_ENTRIES = 2_000_000  # of mixed rows in memory at a time


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
        """The position of the column that each feature comes from."""

    @property
    def slow(self) -> bool:
        """Whether scoring is slow."""

    def row(self, i: int) -> Floats:
        """Return the features of a row, dense."""

    def score_mixed(self, rows: Floats) -> Floats:
        """Return anomaly scores of mixtures of two rows."""


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
        Seed for the orders in which columns are compared, if these are sampled.
    end
        Time by `time.perf_counter` after which no further row is started, except the first.

    Returns
    -------
    tuple
        Both of shape (n_rows, n_columns), for the rows that time allowed.
    """
    contributions, errors = np.zeros((2, len(scores), len(view.columns)))
    most = _MOST_TOGETHER if view.slow else 1
    start, size = 0, most if end == math.inf else 1
    while start < len(scores) and (start == 0 or time.perf_counter() <= end):
        rows = range(start, min(start + size, len(scores)))
        games = [_Game.of(view, i, base, float(scores[i])) for i in rows]
        for i, game, found in zip(rows, games, _solved(view, games, seed), strict=True):
            contributions[i, game.players], errors[i, game.players] = found
        start, size = start + len(rows), min(2 * size, most)
    return contributions[:start], errors[:start]


def _solved(view: ScoredRows, games: list[_Game], seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Shapley values and standard errors; the first sets of all games are scored together."""
    sets = [game.first_sets(seed) for game in games]
    mixed = [game.mixed(masks) for game, masks in zip(games, sets, strict=True)]
    values = _scored(view, np.concatenate(mixed))
    ends = np.cumsum([len(masks) for masks in sets])[:-1]
    for game, masks, v in zip(games, sets, np.split(values, ends), strict=True):
        yield game.solve(seed, masks, v)


def _scored(view: ScoredRows, rows: Floats) -> Floats:
    n = max(1, _BATCH_ENTRIES // rows.shape[1])
    parts = [view.score_mixed(rows[i : i + n]) for i in range(0, len(rows), n)]
    return np.concatenate([np.empty(0), *parts])


@dataclass(frozen=True)
class _Game:
    """The columns in which a row x differs from r, and v(S) of sets S of them."""

    view: ScoredRows
    x: Floats
    differing: NDArray[np.intp]  # features in which x differs from r,
    slots: NDArray[np.intp]  # and which of the k columns they come from
    players: NDArray[np.intp]  # the positions of these columns among all
    none: float  # v of no column: the score of r
    all: float  # the score of x

    @classmethod
    def of(cls, view: ScoredRows, i: int, base: float, score: float) -> Self:
        """The game of a row with its score."""
        x = view.row(i)
        differing = np.flatnonzero(x != view.reference)
        players, slots = np.unique(view.owners[differing], return_inverse=True)
        return cls(view, x, differing, slots, players, base, score)

    @property
    def k(self) -> int:
        """Number of columns that differ."""
        return len(self.players)

    @property
    def enumerated(self) -> bool:
        """Whether v is computed for all sets."""
        return self.k <= (_MOST_ENUMERATED_SLOWLY if self.view.slow else _MOST_ENUMERATED)

    @property
    def wide(self) -> bool:
        """Whether columns are compared in groups."""
        return self.k > (_MOST_SAMPLED_SLOWLY if self.view.slow else _MOST_SAMPLED)

    def mixed(self, masks: Masks) -> Floats:
        """Rows for the sets in the rows of masks: x where S has the column, r elsewhere."""
        r, at = self.view.reference, self.differing
        rows = np.tile(r, (len(masks), 1))
        rows[:, at] = np.where(masks[:, self.slots], self.x[at], r[at])
        return rows

    def value(self, masks: Masks) -> Floats:
        """v(S) for the sets in the rows of masks."""
        n = max(1, _BATCH_ENTRIES // len(self.view.reference))
        parts = (self.mixed(masks[i : i + n]) for i in range(0, len(masks), n))
        return np.concatenate([np.empty(0), *(self.view.score_mixed(part) for part in parts)])

    def first_sets(self, seed: int) -> Masks:
        """The sets that are always needed."""
        if self.enumerated:
            return _all_sets(self.k)[1:-1]
        if self.wide or not self.view.slow:
            return np.empty((0, self.k), dtype=bool)
        k, rng = self.k, np.random.default_rng(seed)
        chance = _masses(k) / _masses(k).sum()
        size = rng.choice(np.arange(2, k - 1), _DRAWN * k, p=chance)
        drawn = np.argsort(rng.random((len(size), k)), axis=1) < size[:, None]
        sets = np.concatenate([np.eye(k, dtype=bool), drawn])
        return np.concatenate([sets, ~sets])

    def solve(self, seed: int, sets: Masks, v: Floats) -> tuple[Floats, Floats]:
        """Shapley values and their standard errors, from v of the first sets and more."""
        if self.enumerated:
            return self.enumerate(v), np.zeros(self.k)
        if len(sets):
            return self.regress(sets[: len(sets) // 2], v)
        rng = np.random.default_rng(seed)
        return self.halve(rng) if self.wide else self.sample(rng)

    def enumerate(self, v: Floats) -> Floats:
        """phi_j = sum over S without j of (v(S with j) - v(S)) / (k (k-1 choose |S|))."""
        k = self.k
        sets, masks = np.arange(2**k), _all_sets(k)
        v = np.concatenate([[self.none], v, [self.all]]) if k else np.array([self.none])
        weight = np.array([1 / (k * math.comb(k - 1, size)) for size in range(k)])
        size = masks.sum(axis=1)
        phi = np.empty(k)
        for j in range(k):
            without = sets[~masks[:, j]]
            phi[j] = weight[size[without]] @ (v[without + 2**j] - v[without])
        return phi

    def regress(self, sets: Masks, v: Floats) -> tuple[Floats, Floats]:
        """Least squares over sets, the first k of one column, and their complements.

        The regression uses u and the sets after subtracting D / k for each column. These parts of
        the sets add up to 0, and so does the solution. Sets of one column are complete: only the
        others are random.
        """
        k, n = self.k, len(sets)
        D = self.all - self.none
        u = (v[:n] - v[n:] + D) / 2
        share = sets.mean(axis=1)
        Z, left = sets - share[:, None], u - share * D
        weight = np.repeat([2 / k, _masses(k).sum() / (n - k)], [k, n - k])
        inverse = np.linalg.inv(Z.T @ (weight[:, None] * Z) + 1 / k)
        phi = inverse @ (Z.T @ (weight * left))
        residual = left - Z @ phi
        spread = inverse @ (Z[k:] * (weight * residual)[k:, None]).T
        error = np.sqrt((spread**2).sum(axis=1) * n / (n - k + 1))
        return D / k + phi, error

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
        ranks = np.stack([ranks, k - 1 - ranks])  # the position of each column in the order
        masks = ranks[..., None, :] < np.arange(1, k)[:, None]  # columns present after 1 ... k-1
        v = np.empty((2, _PAIRS, k + 1))
        v[..., 0], v[..., -1] = self.none, self.all
        v[..., 1:-1] = self.value(masks.reshape(-1, k)).reshape(2, _PAIRS, k - 1)
        return np.take_along_axis(np.diff(v), ranks, axis=-1).mean(axis=0)

    def halve(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """What single columns or groups of them add; columns of a group share equally.

        The error of a single column is half of the difference between its gains with all other
        columns from x and from r. The error of a column in a group is its share, since nothing
        more is known.
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
        """The two halves of each group, which together add what it adds."""
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
    """Columns that replace those of r together, and what they add."""

    columns: NDArray[np.intp]
    adds: float
    error: float


def _all_sets(k: int) -> Masks:
    return (np.arange(2**k)[:, None] >> np.arange(k)) % 2 == 1


def _masses(k: int) -> Floats:
    """The weights of all sets of 2, 3, ..., k - 2 columns, if all of one column weigh 1."""
    size = np.arange(2, k - 1)
    return (k - 1) / (size * (k - size))
