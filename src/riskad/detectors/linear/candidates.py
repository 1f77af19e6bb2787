r"""Which a, prior and lambda rank held-out rows best: all candidates in all folds, solved together.

Candidates c = (a, prior, lambda) with the squared loss differ only in the coefficients of one table
(`riskad.core.objective`). With G_k the sum of z z^T over the rows of kind k in any fold, the
objective of a candidate is below a parabola with

    H_c = sum_k |A_c[k]| G_k + 2 lambda_c I,

in every fold: all share three Gram matrices, and each step theta - H_c^{-1} gradient goes down. A
few steps with momentum are enough for the ranks of held-out rows; they cost two matrix products,
whatever the number of candidates.

Let d be the gains in held-out AUC of a candidate over the first one, fold by fold, and m the number
of labelled anomalies. The candidate with the largest

    m / (m + 20) mean(d) - SE(d)

is chosen: with few anomalies a gain shrinks, and the rest must exceed its standard error. Ties and
small gains go to the first candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED
from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.metrics.folds import PNUStratifiedKFold, as_groups, count_independent
from riskad.metrics.search import FEWEST_TO_COMPARE
from riskad.rows.equal_rows import group_equal_rows

_SPLITS, _REPEATS = 5, 2
_HALF = 20  # labelled anomalies with which a gain counts half
_STEPS = 10


class Candidate(NamedTuple):
    """Settings that are chosen together: mixing weight, assumed share of normal rows, lambda."""

    a: float
    prior: float
    lam: float


def choose_candidate(
    Z: np.ndarray, y: np.ndarray, candidates: Sequence[Candidate], seed: int = 0
) -> Candidate:
    """The candidate to fit; the first one unless the gain of another is clear.

    Z are rows in the coordinates of the penalised weights, intercept included, and y their codes.
    """
    groups = group_equal_rows(Z, y)
    counts = {kind: count_independent(y, kind, groups) for kind in KINDS}
    m = counts[ANOMALY]
    if min(counts[NORMAL], m) < FEWEST_TO_COMPARE:
        return candidates[0]
    n_splits = min(_SPLITS, counts[NORMAL], m)
    splitter = PNUStratifiedKFold(n_splits, _REPEATS, seed)
    folds = np.zeros((splitter.get_n_splits(), len(y)), dtype=bool)
    # A kind with fewer rows than folds stays in training: some folds could not hold any of it out.
    enough = np.isin(y, [kind for kind in KINDS if counts[kind] >= n_splits])
    groups = None if groups is None else as_groups(groups[enough], int(enough.sum()))
    folds[:, enough] = list(splitter.folds(y[enough], groups))
    aucs = _held_out_aucs(Z, y, candidates, folds)
    return candidates[best_place(aucs, m)]


def best_place(scores: np.ndarray, m: float) -> int:
    """Position of the candidate to choose; `scores` has a row for each fold."""
    # Further rounds hold out the same rows again: they stabilise the mean but are no evidence.
    d = scores - scores[:, :1]
    errors = d.std(axis=0, ddof=1) / np.sqrt(len(d) / _REPEATS)
    return int(np.argmax(m / (m + _HALF) * d.mean(axis=0) - errors))  # the first wins ties


def _held_out_aucs(
    Z: np.ndarray, y: np.ndarray, candidates: Sequence[Candidate], folds: np.ndarray
) -> np.ndarray:
    """AUC of labelled rows, a row for each fold and a column for each candidate."""
    values = []
    for thetas, held in zip(solve_together(Z, y, candidates, folds), folds, strict=True):
        f, kinds = Z[held] @ thetas.T.astype(float), y[held]
        f, kinds = f[kinds != UNLABELLED], kinds[kinds != UNLABELLED]
        m, n = int((kinds == ANOMALY).sum()), int((kinds == NORMAL).sum())
        ranks = rankdata(-f, axis=0)[kinds == ANOMALY]
        values.append((ranks.sum(axis=0) - m * (m + 1) / 2) / (m * n))
    return np.array(values)


def solve_together(
    Z: np.ndarray, y: np.ndarray, candidates: Sequence[Candidate], folds: np.ndarray
) -> np.ndarray:
    """Weights theta (folds, candidates, parameters), each without the rows its fold holds out."""
    # (2, candidates, 3): A and L of each, by label code, for means over the kinds; with the squared
    # loss, B is part of L.
    sums = {}
    for a, prior, _ in candidates:
        sums[a, prior] = Objective(get_risk("rad", "squared", a=a, prior=prior), np.ones(3)).plain
    tables = np.array(
        [[getattr(sums[candidate[:2]], name) for candidate in candidates] for name in "AL"],
        dtype=np.float32,
    )
    kinds = [_Kind.of(Z, y, code, folds) for code in KINDS if tables[:, :, code].any()]
    lam = np.array([candidate.lam for candidate in candidates], dtype=np.float32)
    p = Z.shape[1]
    H = 2.0 * lam[:, None, None] * np.eye(p)
    for kind in kinds:
        H += np.abs(tables[0, :, kind.code])[:, None, None] * kind.gram()
    # Inverted in double precision, for all candidates at once; steps need fewer digits.
    inverse = np.linalg.inv(H).astype(np.float32)

    theta = previous = np.zeros((len(folds), len(candidates), p), dtype=np.float32)
    for step in range(_STEPS):
        # Nesterov's momentum: the gradient is taken ahead of the last step.
        point = theta + np.float32(step / (step + 3)) * (theta - previous)
        gradient = 2 * lam[:, None] * point
        for kind in kinds:
            gradient += kind.gradient(tables, point)
        down = inverse @ gradient.transpose(1, 2, 0)  # (candidates, parameters, folds)
        previous, theta = theta, point - down.transpose(2, 0, 1)
    return theta


class _Kind(NamedTuple):
    """The rows of one kind, with the weight of each in every fold's mean of them."""

    code: int
    Z: np.ndarray
    share: np.ndarray
    """(rows, folds): one over the fold's number of them, 0 if held out."""

    @classmethod
    def of(cls, Z: np.ndarray, y: np.ndarray, code: int, folds: np.ndarray) -> _Kind:
        rows = y == code
        used = (~folds[:, rows].T).astype(float)
        # Ranks of held-out rows need only the digits of a float32, which is twice as fast.
        return cls(code, Z[rows].astype(np.float32), (used / used.sum(axis=0)).astype(np.float32))

    def gram(self) -> np.ndarray:
        """Sum z z^T with the largest share of each row in any fold: a bound for every fold."""
        return (self.Z.T * self.share.max(axis=1)) @ self.Z

    def gradient(self, tables: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The kind's part of the risk's gradient, for theta (folds, candidates, parameters)."""
        F, C, p = theta.shape
        A, L = tables[:, :, self.code]
        f = (self.Z @ theta.reshape(-1, p).T).reshape(-1, F, C)
        r = (A * (f - 1) + L) * self.share[:, :, None]
        return (r.reshape(len(r), -1).T @ self.Z).reshape(F, C, p)
