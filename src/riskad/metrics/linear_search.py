r"""Choosing a, the prior and lambda from labelled and unlabelled rows, for linear scores.

Candidates c = (a, prior, lambda) differ only in the coefficients of one table
(`riskad.core.objective`), so all of them and all folds are solved together. With kappa the largest
curvature of the loss and G_k the sum of z z^T over the rows of kind k, the objective of a candidate
is below a parabola with

    H_c = kappa sum_k (|A_c| + |B_c|)[k] G_k + 2 lambda_c I,

in every fold: all share three Gram matrices, each step theta - H_c^{-1} gradient goes down, and the
first one, from zero, is the solution for a quadratic loss. A few steps with momentum are enough for
the ranks of held-out rows; they cost two matrix products, whatever the number of candidates.

Held-out rows decide. Let d be the gains of a candidate over the default, fold by fold, and m the
number of labelled anomalies. A candidate is chosen if

    m / (m + 20) mean(d) - SE(d) > 0,

and among several, the one where this is largest. With few anomalies a gain shrinks, and the rest
must exceed its standard error. Ties and small gains go to the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import rankdata

from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED
from riskad.core.losses import Loss
from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.metrics.folds import PNUStratifiedKFold, as_groups, count_independent
from riskad.metrics.ranking import Auc, auc_of_folds
from riskad.rows.equal_rows import group_equal_rows
from riskad.storage import fields

FEWEST_FOR_AUC = 4
"""Labelled anomalies from which candidates are compared by AUC; below, by the pu risk."""

_SPLITS = 5
_REPEATS = 2
_HALF = 20  # labelled anomalies with which a gain counts half
_STEPS = 10
_WIDTH = 0.5  # over which kinks are rounded
_MARGINS = np.linspace(-3, 3, 601)  # at which the largest curvature is searched


class Candidate(NamedTuple):
    """Settings that are chosen together: mixing weight, assumed share of normal rows, lambda."""

    a: float
    prior: float
    lam: float


@dataclass(frozen=True)
class Selection:
    """Which candidates were compared, how, and why one was chosen; the first is the default."""

    candidates: tuple[tuple[float, float, float], ...]
    """(a, prior, lambda) of each."""
    criterion: str
    """"auc" or "pu risk" (as a score: greater is better), or "none" where rows were too few."""
    scores: np.ndarray
    """Mean score of each candidate on held-out rows."""
    errors: np.ndarray
    """Standard error of each one's gain over the default."""
    chosen: int
    """Position of the chosen candidate."""
    reason: str
    auc: Auc | None
    """AUC of the whole procedure: chosen on the other folds, scored on each in turn.

    It costs nothing extra. The fits of the other folds have seen the rows of the fold, but not
    their scores; `riskad.metrics.search.evaluate_nested` is stricter and refits. A single
    labelled anomaly is held out of fits of the pu risk, which need none: their AUC is a cautious
    estimate for a fit that knows it. None without an anomaly or a second normal row.
    """

    _state_fields: ClassVar[fields.Fields] = {
        "candidates": fields.ListOf(fields.Tuple(*3 * [fields.NUMBER]), "n"),
        "criterion": fields.Text(choices=("auc", "pu risk", "none")),
        "scores": fields.Array("f", ("n",), gaps=True, infinite=True),
        "errors": fields.Array("f", ("n",), gaps=True, infinite=True),
        "chosen": fields.COUNT,
        "reason": fields.TEXT,
        "auc": fields.Maybe(fields.Record(("Auc",))),
    }

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        fields.require(state["chosen"] < len(state["candidates"]), "chosen: no such candidate")

    def __str__(self) -> str:
        a, prior, lam = self.candidates[self.chosen]
        auc = "unknown: too few labelled rows to hold out" if self.auc is None else str(self.auc)
        return f"a = {a:g}, prior = {prior:g}, lambda = {lam:.4g}: {self.reason}. AUC {auc}"


def choose(
    Z: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    loss: Loss,
    candidates: Sequence[Candidate],
    seed: int = 0,
) -> Selection:
    """Choose from candidates, of which the first is the default.

    Z are rows in the coordinates of the penalised weights, intercept included, y their codes, and
    `weight` their positive weights.
    """
    weight = np.ones(len(y)) if weight is None else weight
    search = _Search(Z, y, weight, group_equal_rows(Z, y), loss, seed)
    n, m, n_u = map(search.count, (NORMAL, ANOMALY, UNLABELLED))
    n_splits = min(_SPLITS, n, m)
    if min(n, m) >= FEWEST_FOR_AUC:
        criterion, scores = "auc", search.aucs(candidates, n_splits)
    elif min(n, n_u) >= _SPLITS:
        criterion, scores = "pu risk", -search.pu_risks(candidates)
    else:
        criterion, scores = "none", np.zeros((2 * _REPEATS, len(candidates)))
    chosen, errors = best_place(scores, m, _REPEATS)
    auc = None
    if criterion == "auc":
        auc = auc_of_folds(_cross_fitted(scores, m), n_splits, n, m)
    elif n >= 2 and (m >= 2 or (m == 1 and n_u)):  # no anomaly was used to choose
        n_splits = n_splits if m >= 2 else min(_SPLITS, n)
        aucs = search.aucs([candidates[chosen]], n_splits, without_anomalies=m == 1)
        auc = auc_of_folds(aucs, n_splits, n, m)
    what = "AUC" if criterion == "auc" else criterion
    gain = scores[:, chosen].mean() - scores[:, 0].mean()
    if criterion == "none":
        reason = "labelled rows are too few to choose, and the default is kept"
    elif chosen == 0:
        reason = f"no other candidate gains enough in held-out {what} over the default"
    else:
        reason = (
            f"held-out {what} is better than the default's by {gain:.4f} "
            f"(standard error {errors[chosen]:.4f})"
        )
    return Selection(
        candidates=tuple((float(a), float(prior), float(lam)) for a, prior, lam in candidates),
        criterion=criterion,
        scores=scores.mean(axis=0),
        errors=errors,
        chosen=chosen,
        reason=reason,
        auc=auc,
    )


def best_place(scores: np.ndarray, m: float, rounds: int) -> tuple[int, np.ndarray]:
    """Position of the candidate to choose, and the standard errors of all gains.

    `scores` has a row for each fold. Further rounds hold out the same rows again: they stabilise
    the mean but are not further evidence.
    """
    d = scores - scores[:, :1]
    errors = d.std(axis=0, ddof=1) / np.sqrt(len(d) / rounds)
    bound = m / (m + _HALF) * d.mean(axis=0) - errors
    return int(np.argmax(bound)), errors  # the default, first, has 0 and wins ties


def _cross_fitted(scores: np.ndarray, m: int) -> np.ndarray:
    """Scores of the whole procedure: each fold scores what the others of its round choose."""
    values = []
    for one_round in np.split(scores, _REPEATS):
        seen = m * (1 - 1 / len(one_round))
        for i, score in enumerate(one_round):
            chosen, _ = best_place(np.delete(one_round, i, axis=0), seen, rounds=1)
            values.append(float(score[chosen]))
    return np.array(values)


# --- held-out scores -----------------------------------------------------------------------


class _Search(NamedTuple):
    """The rows on which candidates are compared; the equal ones among them are groups."""

    Z: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None
    loss: Loss
    seed: int

    def count(self, kind: int) -> int:
        """Number of rows of a kind, copies of a row as one."""
        return count_independent(self.y, kind, self.groups)

    def folds(self, n_splits: int) -> np.ndarray:
        """(folds, rows): the rows that each holds out; none of a kind with fewer than folds."""
        splitter = PNUStratifiedKFold(n_splits, _REPEATS, self.seed)
        folds = np.zeros((splitter.get_n_splits(), len(self.y)), dtype=bool)
        enough = np.isin(self.y, [kind for kind in KINDS if self.count(kind) >= n_splits])
        groups = None if self.groups is None else as_groups(self.groups[enough], int(enough.sum()))
        folds[:, enough] = list(splitter.folds(self.y[enough], groups))
        return folds

    def aucs(
        self, candidates: Sequence[Candidate], n_splits: int, without_anomalies: bool = False
    ) -> np.ndarray:
        """AUC of labelled rows, a row for each fold and a column for each candidate.

        Fits without anomalies minimise the pu risk, and every fold scores all anomalies.
        """
        folds = self.folds(n_splits)
        if without_anomalies:
            folds[:, self.y == ANOMALY] = True
        risk = "pu" if without_anomalies else "rad"
        values = []
        for f, held in self._held_out(candidates, folds, risk):
            y = self.y[held]
            f, y = f[y != UNLABELLED], y[y != UNLABELLED]
            m, n = int((y == ANOMALY).sum()), int((y == NORMAL).sum())
            ranks = rankdata(-f, axis=0)[y == ANOMALY]
            values.append((ranks.sum(axis=0) - m * (m + 1) / 2) / (m * n))
        return np.array(values)

    def pu_risks(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """The pu risk with the default's prior, in the layout of `aucs`.

        Anomalies, fewer than folds, all stay in training: this risk is unbiased without them.
        Scores are first scaled to one size; otherwise a heavier penalty would look like a worse
        model.
        """
        risk, values = get_risk("pu", self.loss, prior=candidates[0].prior), []
        for f, held in self._held_out(candidates, self.folds(_SPLITS), "rad"):
            f = f / np.maximum(np.sqrt(np.mean(f**2, axis=0)), 1e-12)
            y, weight = self.y[held], self.weight[held]
            parts = []
            for term in risk.terms():
                own = y == term.kind
                losses = self.loss.value(term.sign * f[own])
                parts.append(term.weight * np.average(losses, axis=0, weights=weight[own]))
            values.append(np.sum(parts, axis=0))
        return np.array(values)

    def _held_out(
        self, candidates: Sequence[Candidate], folds: np.ndarray, risk: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Scores of each fold's held-out rows, a column for each candidate; and these rows."""
        theta = solve_together(self.Z, self.y, self.weight, self.loss, candidates, folds, risk)
        for thetas, held in zip(theta, folds, strict=True):
            yield self.Z[held] @ thetas.T.astype(float), held


# --- all candidates in all folds -----------------------------------------------------------


def solve_together(
    Z: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    loss: Loss,
    candidates: Sequence[Candidate],
    folds: np.ndarray,
    risk: str = "rad",
) -> np.ndarray:
    """Weights theta (folds, candidates, parameters), each without the rows its fold holds out."""
    rounded = loss.smoothed(_WIDTH)
    kappa = float(np.abs(rounded.curvature(_MARGINS)).max())
    # (3, candidates, 3): A, B and L of each, by label code, for means over the kinds.
    sums = {}
    for a, prior, _ in candidates:
        sums[a, prior] = Objective(get_risk(risk, loss, a=a, prior=prior), np.ones(3)).plain
    tables = np.array(
        [[getattr(sums[candidate[:2]], name) for candidate in candidates] for name in "ABL"],
        dtype=np.float32,
    )
    kinds = [_Kind.of(Z, y, weight, code, folds) for code in KINDS if tables[:, :, code].any()]
    lam = np.array([candidate.lam for candidate in candidates], dtype=np.float32)
    p = Z.shape[1]
    H = 2.0 * lam[:, None, None] * np.eye(p)
    for kind in kinds:
        bend = np.abs(tables[:2, :, kind.code]).sum(axis=0)
        H += kappa * bend[:, None, None] * kind.gram()
    inverse = np.linalg.inv(H).astype(np.float32)

    theta = previous = np.zeros((len(folds), len(candidates), p), dtype=np.float32)
    for step in range(_STEPS):
        point = theta + np.float32(step / (step + 3)) * (theta - previous)
        gradient = 2 * lam[:, None] * point
        for kind in kinds:
            gradient += kind.gradient(rounded, tables, point)
        down = inverse @ gradient.transpose(1, 2, 0)  # (candidates, parameters, folds)
        previous, theta = theta, point - down.transpose(2, 0, 1)
    return theta


class _Kind(NamedTuple):
    """The rows of one kind, with the weight of each in every fold's mean of them."""

    code: int
    Z: np.ndarray
    share: np.ndarray
    """(rows, folds): weight over the fold's total, 0 if held out."""

    @classmethod
    def of(
        cls, Z: np.ndarray, y: np.ndarray, weight: np.ndarray, code: int, folds: np.ndarray
    ) -> _Kind:
        own = y == code
        weight = weight[own, None] * ~folds[:, own].T
        # Ranks of held-out rows need only the digits of a float32, which is twice as fast.
        share = (weight / weight.sum(axis=0)).astype(np.float32)
        return cls(code, Z[own].astype(np.float32), share)

    def gram(self) -> np.ndarray:
        """Sum z z^T with the largest share of each row in any fold: a bound for every fold."""
        return (self.Z.T * self.share.max(axis=1)) @ self.Z

    def gradient(self, loss: Any, tables: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The kind's part of the risk's gradient, for theta (folds, candidates, parameters)."""
        F, C, p = theta.shape
        A, B, L = tables[:, :, self.code]
        f = (self.Z @ theta.reshape(-1, p).T).reshape(-1, F, C)
        r = loss.derivative(f)
        r *= A
        if B.any():
            r -= B * loss.derivative(-f)
        r += L
        r *= self.share[:, :, None]
        return (r.reshape(len(r), -1).T @ self.Z).reshape(F, C, p)
