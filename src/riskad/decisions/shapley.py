"""Shapley values of any score: what each column of a row adds to it, compared with a usual row.

Let v(S) be the score of the row that has the columns S from x and all others from the usual row r.
Only the k columns in which x and r differ take part. Their Shapley values phi minimise

    sum_S w(|S|) (v(S) - v(none) - sum_{j in S} phi_j)^2,   w(s) = (k - 1) / ((k over s) s (k - s)),

among all that add up to D = v(all) - v(none). A set and its complement are always scored together:

    u(S) = (v(S) - v(none) + D - (v(rest) - v(none))) / 2

is exactly sum_{j in S} phi_j if at most two columns interact at a time.

- *Few columns* (k <= 10; 7 if scores are slow): all sets, so that the values are exact.
- *More columns*: all sets of one column, and 3 k others drawn by their weight: 8 k scores. That is
  all if scores are slow. Otherwise more sets are drawn until no standard error exceeds 2 % of the
  largest value, or 128 k scores were computed. The standard errors are those of least squares with
  residuals of different sizes. Orders of columns, the usual alternative, need three to five times
  as many scores for the same largest error (up to 300 columns).
- *Very many columns* (k > 1,000; 100 if scores are slow): 250 groups of them change together, and
  those with the largest effects are divided again, until 24 columns stand alone. These and 8 groups
  of all others then share the score as above; columns of a group share its value equally. It finds
  columns that stand out; where hundreds matter equally, the values are rough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats: TypeAlias = NDArray[np.float64]
Sets: TypeAlias = NDArray[np.bool_]  # of columns, one in each row
# A computation yields the rows that it needs and is sent their scores, so that the rows of several
# can be scored together: slow models score many rows almost as fast as one.
Scoring: TypeAlias = Generator[Floats, Floats, Floats]
_Game: TypeAlias = Generator[Floats, Floats, tuple[NDArray[np.intp], Floats, Floats]]


class _Effort(NamedTuple):
    """Up to how many columns all sets are scored and columns change one by one; sets drawn."""

    enumerated: int
    one_by_one: int
    drawn: int  # for each column, at most


_FAST = _Effort(enumerated=10, one_by_one=1_000, drawn=63)
_SLOW = _Effort(enumerated=7, one_by_one=100, drawn=3)
_FIRST_DRAWN = 3  # sets for each column, after which the error is checked
_ENOUGH = 0.02  # error, as a share of the largest value
_DESIGN_ENTRIES = 10_000_000  # of least squares: no more sets than these, 80 MB
_SCREENED = 250  # groups of very many columns, of which
_SINGLES, _OTHER_GROUPS = 24, 8  # so many are divided in the end, and groups of all others
_TOGETHER = 32  # rows whose mixtures are scored together, at most
_BATCH_ENTRIES = 2_000_000  # of mixed rows in memory at a time


def shapley_values(
    score: Callable[[Floats], Floats],
    X: Any,
    reference: Floats,
    owners: NDArray[np.intp],
    n_columns: int,
    *,
    scores: Floats,
    base: float,
    slow: bool,
    random_state: int,
    end: float,
) -> tuple[Floats, Floats]:
    """Contributions and standard errors of rows, as many as are started before `end`, or one.

    `score` takes dense rows of features; X (dense or CSR) has those of the rows, `reference` of the
    usual row, and `scores` and `base` are their scores. `owners` has of each feature the column
    that it comes from, whose features change together. `slow` says whether scoring is. `end` is a
    time by `time.perf_counter`. The values of a row do not depend on which other rows there are.
    """
    contributions, errors = np.zeros((2, len(scores), n_columns))
    effort = _SLOW if slow else _FAST
    entries = 8 * min(n_columns, effort.one_by_one) * len(reference)  # of the first mixtures
    most = max(1, min(_TOGETHER, _BATCH_ENTRIES // entries))
    # With a deadline first a single row, to see how long it takes.
    start, size = 0, most if end == math.inf else 1
    while start < len(scores) and (start == 0 or time.perf_counter() <= end):
        rows = range(start, min(start + size, len(scores)))
        games = []
        for i in rows:
            x = X[[i]].toarray()[0] if sparse.issparse(X) else X[i]
            # The same seed for each row, whose reasons must not depend on the other rows.
            rng = np.random.default_rng(random_state)
            games.append(_play(x, reference, owners, float(scores[i]) - base, effort, rng))
        for i, (players, phi, error) in zip(rows, _score_together(games, score), strict=True):
            # Columns in which the row is as usual add nothing.
            contributions[i, players], errors[i, players] = phi, error
        start, size = start + len(rows), min(2 * size, most)
    return contributions[:start], errors[:start]


def _score_together(games: Sequence[_Game], score: Callable[[Floats], Floats]) -> list[Any]:
    """The results of games; the rows that they ask for next are scored together."""
    results: list[Any] = [None] * len(games)
    # A generator is started by sending None.
    answers: dict[int, Any] = dict.fromkeys(range(len(games)))
    while answers:
        requests = {}
        for i, answer in answers.items():
            try:
                requests[i] = games[i].send(answer)
            except StopIteration as end:
                results[i] = end.value
        if not requests:
            break
        mixed = np.concatenate(list(requests.values()))
        n = max(1, _BATCH_ENTRIES // mixed.shape[1])
        v = np.concatenate([score(mixed[i : i + n]) for i in range(0, len(mixed), n)])
        ends = np.cumsum([len(rows) for rows in requests.values()])[:-1]
        answers = dict(zip(requests, np.split(v, ends), strict=True))
    return results


def _play(
    x: Floats,
    reference: Floats,
    owners: NDArray[np.intp],
    D: float,
    effort: _Effort,
    rng: np.random.Generator,
) -> _Game:
    """Columns in which a row differs from the usual one, their values and standard errors."""
    # A column that is as usual would change nothing in any set: its value is exactly 0.
    differing = np.flatnonzero(x != reference)
    players, slots = np.unique(owners[differing], return_inverse=True)

    def worth(sets: Sets) -> Scoring:
        mixed = np.tile(reference, (2 * len(sets), 1))
        inside = np.concatenate([sets, ~sets])[:, slots]
        mixed[:, differing] = np.where(inside, x[differing], reference[differing])
        # Sets first, then their complements, in one batch.
        v = yield mixed
        return (v[: len(sets)] - v[len(sets) :] + D) / 2

    k = len(players)
    # One column has the whole difference; none, nothing.
    if k < 2:
        return players, np.full(k, D), np.zeros(k)
    if k <= effort.one_by_one:
        phi, error = yield from _values(worth, k, D, effort, rng)
        return players, phi, error
    groups = yield from _find_groups(worth, k, rng)
    group_of = _members(groups, k).argmax(axis=0)
    sizes = np.bincount(group_of)
    phi, error = yield from _values(
        lambda sets: worth(sets[:, group_of]), len(groups), D, effort, rng
    )
    share = phi / sizes
    error = np.where(sizes == 1, error, np.abs(share))  # nothing more is known of a share
    return players, share[group_of], error[group_of]


def _values(
    worth: Callable[[Sets], Scoring], k: int, D: float, effort: _Effort, rng: np.random.Generator
) -> Generator[Floats, Floats, tuple[Floats, Floats]]:
    """Shapley values of k columns that add up to D, and their standard errors."""
    if k <= effort.enumerated:
        # Those without the last column; all others are their complements.
        sets = (np.arange(1, 2 ** (k - 1))[:, None] >> np.arange(k)) % 2 == 1
        weights = np.array([1 / (math.comb(k, s) * s * (k - s)) for s in sets.sum(axis=1)])
        u = yield from worth(sets)
        return _regress(sets, u, weights, D, n_drawn=0)
    sizes = np.arange(2, k - 1)
    masses = (k - 1) / (sizes * (k - sizes))  # of all sets of a size, if those of one column have 1
    most = max(_FIRST_DRAWN * k, min(effort.drawn * k, _DESIGN_ENTRIES // k))
    sets, u, n = np.empty((0, k), dtype=bool), np.empty(0), 0
    while True:
        n_new = min(n or _FIRST_DRAWN * k, most - n)
        # Sets of one column and their complements are scored already.
        size = rng.choice(sizes, n_new, p=masses / masses.sum())
        # A random order of columns, of which the first `size` are in the set.
        draws = np.argsort(rng.random((n_new, k)), axis=1) < size[:, None]
        added = draws if n else np.concatenate([np.eye(k, dtype=bool), draws])
        u = np.append(u, (yield from worth(added)))
        sets, n = np.concatenate([sets, added]), n + n_new
        weights = np.repeat([2 / k, masses.sum() / n], [k, n])
        phi, error = _regress(sets, u, weights, D, n_drawn=n)
        if n == most or error.max() <= _ENOUGH * np.abs(phi).max():
            return phi, error


def _regress(
    sets: Sets, u: Floats, weights: Floats, D: float, n_drawn: int
) -> tuple[Floats, Floats]:
    """Weighted least squares, and standard errors, as the last n_drawn sets are random.

    After D / k is taken off for each column, the rows of the design add up to 0, and so does the
    solution: adding 1 / k makes the normal equations regular and does not change it.
    """
    (n, k), root, share = sets.shape, np.sqrt(weights), sets.mean(axis=1)
    Z, target = (sets - share[:, None]) * root[:, None], (u - share * D) * root
    inverse = np.linalg.inv(Z.T @ Z + 1 / k)
    # k x k: for the widest design, 1,000 columns, 8 MB.
    phi = inverse @ (Z.T @ target)
    moves = (Z * (target - Z @ phi)[:, None])[n - n_drawn :]
    variance = np.einsum("ij,ij->i", inverse @ (moves.T @ moves), inverse)
    phi += D / k
    phi[np.abs(phi) < 1e-12 * np.abs(phi).max()] = 0.0  # rounding, of a column that adds nothing
    return phi, np.sqrt(np.maximum(variance, 0.0) * n / (n - k + 1)) if n_drawn else np.zeros(k)


def _find_groups(
    worth: Callable[[Sets], Scoring], k: int, rng: np.random.Generator
) -> Generator[Floats, Floats, list[NDArray[np.intp]]]:
    """Groups of k columns; those that matter most, if they come first and if last, stand alone."""
    columns, effects = rng.permutation(k), np.zeros(k)
    chosen = np.ones(k, dtype=bool)
    while chosen.sum() > _SINGLES:
        candidates = columns[chosen[columns]]
        groups = np.array_split(candidates, min(_SCREENED, len(candidates)))
        u = yield from worth(_members(groups, k))
        for i in np.argsort(-np.abs(u), kind="stable")[_SINGLES:]:
            chosen[groups[i]] = False
            effects[groups[i]] = u[i] / len(groups[i])
    others = np.flatnonzero(~chosen)
    # Columns with similar effects share a group: those that raise the score, and those that do not.
    others = others[np.argsort(effects[others], kind="stable")]
    return [*np.flatnonzero(chosen)[:, None], *np.array_split(others, _OTHER_GROUPS)]


def _members(groups: Sequence[NDArray[np.intp]], k: int) -> Sets:
    inside = np.zeros((len(groups), k), dtype=bool)
    for row, group in zip(inside, groups, strict=True):
        row[group] = True
    return inside
