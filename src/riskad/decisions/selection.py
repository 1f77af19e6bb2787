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

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, check_codes
from riskad.core.losses import Loss
from riskad.core.objective import Objective
from riskad.core.risks import KIND_NAMES, get_risk
from riskad.decisions.ranking_metrics import Auc, auc_of_folds
from riskad.decisions.row_groups import as_groups, count_independent, deal_groups
from riskad.rows.equal_rows import group_equal_rows
from riskad.storage.fields import (
    COUNT,
    NUMBER,
    TEXT,
    Array,
    Fields,
    ListOf,
    Maybe,
    Record,
    State,
    Text,
    Tuple,
    require,
)

__all__ = [
    "FEWEST_FOR_AUC",
    "Candidate",
    "PNUStratifiedKFold",
    "Selection",
    "best_place",
    "choose",
]

FEWEST_FOR_AUC = 4
"""Labelled anomalies from which candidates are compared by AUC; below, by the pu risk."""

_SPLITS = 5
_REPEATS = 2
# A gain with this many labelled anomalies counts half.
_HALF = 20
_STEPS = 10
# Kinks are rounded over this width, and curvatures are searched at these margins.
_WIDTH = 0.5
_MARGINS = np.linspace(-3, 3, 601)


@dataclass
class PNUStratifiedKFold:
    """Folds that each hold their share of normal rows, anomalies and unlabelled rows.

    For scikit-learn's tools (`cv=`). Their own stratified folds treat the three codes as classes
    and leave a rare kind out of some folds with only a warning; this class raises an error. Only
    the labelled rows of a fold are scored, so that "roc_auc" sees two kinds of row: with unlabelled
    ones it would see three classes, and give NaN. Rows are shuffled; the same seed gives the same
    folds. Copies of a row are held out together (`riskad.rows.equal_rows`), and if `split` is given
    groups, such as customers, so are the rows of a group; the shares are as close as that allows
    (`riskad.decisions.row_groups`).

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds in a round: each row is held out once.
    n_repeats : int, default=1
        Number of rounds, each with its own shuffle.
    random_state : int, optional
        Seed; None means 0.
    unlabelled : bool, default=False
        Whether unlabelled rows of a fold are scored, too, as `RiskScorer` requires.

    Examples
    --------
    >>> y = np.repeat([1, -1, 0], [6, 3, 30])
    >>> folds = PNUStratifiedKFold(3).split(y, y)
    >>> [sorted(y[held].tolist()) for _, held in folds]
    [[-1, 1, 1], [-1, 1, 1], [-1, 1, 1]]
    >>> customer = np.arange(39) % 13
    >>> train, held = next(PNUStratifiedKFold(3).split(y, y, customer))
    >>> set(customer[train]) & set(customer[held])
    set()
    """

    n_splits: int = 5
    n_repeats: int = 1
    random_state: int | None = None
    unlabelled: bool = False

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds over all rounds."""
        return self.n_splits * self.n_repeats

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers to train on and to score, fold by fold.

        `groups` is the group of each row; a row with a blank group (None, NaN) is a group of its
        own.
        """
        codes = self._check(y)
        if groups is not None:
            groups = as_groups(groups, len(codes))
        groups = group_equal_rows(X, codes, groups)
        if groups is not None:
            self._check_enough(codes, groups)
        scored = (codes != UNLABELLED) | self.unlabelled
        if not scored.any():
            raise InputError(
                "only labelled rows are scored, and y has none. Label some, or set unlabelled=True."
            )
        for fold in self.folds(codes, groups):
            yield np.flatnonzero(~fold), np.flatnonzero(fold & scored)

    def folds(self, codes: np.ndarray, groups: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Which rows each fold holds out, without an error for kinds with fewer rows than folds.

        Groups, if given, are numbers from `as_groups`.
        """
        rng = np.random.default_rng(self.random_state or 0)
        for _ in range(self.n_repeats):
            if groups is not None:
                dealt_to = deal_groups(codes, groups, self.n_splits, rng)
                yield from (dealt_to == fold for fold in range(self.n_splits))
                continue
            place = np.empty(len(codes), dtype=int)
            dealt = 0
            for kind in KINDS:
                members = rng.permutation(np.flatnonzero(codes == kind))
                # Each kind starts where the last one stopped, so that folds have the same size.
                place[members] = (dealt + np.arange(len(members))) % self.n_splits
                dealt += len(members)
            for fold in range(self.n_splits):
                yield place == fold

    def _check(self, y: Any) -> np.ndarray:
        for name in ("n_splits", "n_repeats"):
            value, least = getattr(self, name), 2 if name == "n_splits" else 1
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} must be a whole number >= {least}, got {value!r}.")
        if y is None:
            raise InputError(
                "PNUStratifiedKFold needs y: +1 normal, -1 anomaly, 0 unlabelled for each row."
            )
        codes = check_codes(y)
        for kind in KINDS:
            count = int((codes == kind).sum())
            if 0 < count < self.n_splits:
                raise InputError(
                    f"{self.n_splits} folds need {self.n_splits} {KIND_NAMES[kind]} rows, got "
                    f"{count}. Lower n_splits to {max(count, 2)}"
                    f"{' and label one more' if count == 1 else ''}."
                )
        return codes

    def _check_enough(self, codes: np.ndarray, groups: np.ndarray) -> None:
        for kind in KINDS:
            rows = groups[codes == kind]
            count = len(np.unique(rows))
            if 0 < count < self.n_splits:
                advice = f"Lower n_splits to {count}" if count > 1 else "Label rows of more groups"
                raise InputError(
                    f"{self.n_splits} folds need {KIND_NAMES[kind]} rows of {self.n_splits} groups "
                    "or more, since each group is held out as a whole, and so are the copies of a "
                    f"row; the {len(rows):,} {KIND_NAMES[kind]} rows are of {count}. {advice}."
                )


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
    their scores; `riskad.decisions.search.evaluate_nested` is stricter and refits. A single
    labelled anomaly is held out of fits of the pu risk, which need none: their AUC is a cautious
    estimate for a fit that knows it. None without an anomaly or a second normal row.
    """

    _state_fields: ClassVar[Fields] = {
        "candidates": ListOf(Tuple(NUMBER, NUMBER, NUMBER), "n"),
        "criterion": Text(choices=("auc", "pu risk", "none")),
        "scores": Array("f", ("n",), gaps=True, infinite=True),
        "errors": Array("f", ("n",), gaps=True, infinite=True),
        "chosen": COUNT,
        "reason": TEXT,
        "auc": Maybe(Record(("Auc",))),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        require(state["chosen"] < len(state["candidates"]), "chosen: no such candidate")

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

    Parameters
    ----------
    Z : array of shape (n_rows, n_parameters)
        Rows in the coordinates of the penalised weights, intercept included.
    y : array
        Codes.
    weight : array, optional
        Positive weights of the rows.
    loss : Loss
        Margin loss.
    candidates : sequence of Candidate
        Candidates, the default first.
    seed : int
        Seed of the folds.

    Returns
    -------
    Selection
        The best candidate, and the others for comparison.
    """
    groups = group_equal_rows(Z, y)
    rows = _WeightedRows(Z, y, np.ones(len(y)) if weight is None else weight, groups)
    n, m, n_u = map(rows.count, (NORMAL, ANOMALY, UNLABELLED))
    if min(n, m) >= FEWEST_FOR_AUC:
        criterion, scores = "auc", _held_out_aucs(rows, loss, candidates, seed)
    elif min(n, n_u) >= _SPLITS:
        criterion, scores = "pu risk", -_held_out_risks(rows, loss, candidates, seed)
    else:
        criterion, scores = "none", np.zeros((2 * _REPEATS, len(candidates)))
    chosen, errors = best_place(scores, m, _REPEATS)
    auc = None
    if criterion == "auc":
        auc = auc_of_folds(_cross_fitted(scores, m), min(_SPLITS, n, m), n, m)
    elif min(n, m) >= 2:  # no anomaly was used to choose
        aucs = _held_out_aucs(rows, loss, [candidates[chosen]], seed)
        auc = auc_of_folds(aucs, min(_SPLITS, n, m), n, m)
    elif m == 1 and n >= 2 and n_u:
        aucs = _aucs_without_anomalies(rows, loss, candidates[chosen], seed)
        auc = auc_of_folds(aucs, min(_SPLITS, n), n, m)
    plain = tuple((float(a), float(prior), float(lam)) for a, prior, lam in candidates)
    reason = _reason(criterion, scores, errors, chosen)
    return Selection(plain, criterion, scores.mean(axis=0), errors, chosen, reason, auc)


def _folds(rows: _WeightedRows, n_splits: int, seed: int) -> np.ndarray:
    """(folds, rows): which rows each holds out; a kind with fewer rows than folds is in none."""
    y, splitter = rows.y, PNUStratifiedKFold(n_splits, _REPEATS, seed)
    folds = np.zeros((splitter.get_n_splits(), len(y)), dtype=bool)
    enough = np.isin(y, [kind for kind in KINDS if rows.count(kind) >= n_splits])
    groups = None if rows.groups is None else as_groups(rows.groups[enough], int(enough.sum()))
    folds[:, enough] = list(splitter.folds(y[enough], groups))
    return folds


# --- the rule -----------------------------------------------------------------------------------


def best_place(scores: np.ndarray, m: float, rounds: int) -> tuple[int, np.ndarray]:
    """Position of the candidate to choose, and the standard errors of all gains.

    `scores` has a row for each fold. Further rounds hold out the same rows again: they stabilise
    the mean but are not further evidence.
    """
    d = scores - scores[:, :1]
    errors = d.std(axis=0, ddof=1) / np.sqrt(len(d) / rounds)
    bound = m / (m + _HALF) * d.mean(axis=0) - errors
    return int(np.argmax(bound)), errors  # the default, first, has 0 and wins ties


def _reason(criterion: str, scores: np.ndarray, errors: np.ndarray, chosen: int) -> str:
    if criterion == "none":
        return "labelled rows are too few to choose, and the default is kept"
    what = "AUC" if criterion == "auc" else "pu risk"
    gain = scores.mean(axis=0) - scores[:, 0].mean()
    if chosen == 0:
        return f"no other candidate gains enough in held-out {what} over the default"
    return (
        f"held-out {what} is better than the default's by {gain[chosen]:.4f} "
        f"(standard error {errors[chosen]:.4f})"
    )


def _cross_fitted(scores: np.ndarray, m: int) -> np.ndarray:
    """Scores of the whole procedure: each fold scores what the others of its round choose."""
    values = []
    for one_round in np.split(scores, _REPEATS):
        seen = m * (1 - 1 / len(one_round))
        for i, score in enumerate(one_round):
            chosen, _ = best_place(np.delete(one_round, i, axis=0), seen, rounds=1)
            values.append(float(score[chosen]))
    return np.array(values)


# --- held-out scores ----------------------------------------------------------------------------


def _held_out_aucs(
    rows: _WeightedRows, loss: Loss, candidates: Sequence[Candidate], seed: int
) -> np.ndarray:
    """AUC of labelled rows, a row for each fold and a column for each candidate."""
    folds = _folds(rows, min(_SPLITS, rows.count(NORMAL), rows.count(ANOMALY)), seed)
    held_out = _held_out(rows, loss, candidates, folds)
    return np.array([_aucs(f, y) for f, y, _ in held_out])


def _aucs_without_anomalies(
    rows: _WeightedRows, loss: Loss, candidate: Candidate, seed: int
) -> np.ndarray:
    """AUC of labelled rows by folds, where each fit minimises the pu risk and sees no anomaly."""
    folds = _folds(rows, min(_SPLITS, rows.count(NORMAL)), seed)
    folds[:, rows.y == ANOMALY] = True
    held_out = _held_out(rows, loss, [candidate], folds, risk="pu")
    return np.array([_aucs(f, y) for f, y, _ in held_out])


def _aucs(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """AUC of each column of scores, high = normal."""
    f, y = f[y != UNLABELLED], y[y != UNLABELLED]
    m, n = int((y == ANOMALY).sum()), int((y == NORMAL).sum())
    ranks = rankdata(-f, axis=0)[y == ANOMALY]
    return (ranks.sum(axis=0) - m * (m + 1) / 2) / (m * n)


def _held_out_risks(
    rows: _WeightedRows, loss: Loss, candidates: Sequence[Candidate], seed: int
) -> np.ndarray:
    """The pu risk with the default's prior, in the layout of `_held_out_aucs`.

    Anomalies, fewer than folds, all stay in training: this risk is unbiased without them. Scores
    are first scaled to one size; otherwise a heavier penalty would look like a worse model.
    """
    risk = get_risk("pu", loss, prior=candidates[0].prior)
    folds = _folds(rows, _SPLITS, seed)

    def value(f: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        f = f / np.maximum(np.sqrt(np.mean(f**2, axis=0)), 1e-12)
        means = (
            term.weight * np.average(loss.value(term.sign * f[k]), axis=0, weights=weight[k])
            for term in risk.terms()
            for k in [y == term.kind]
        )
        return np.sum(list(means), axis=0)

    return np.array([value(*part) for part in _held_out(rows, loss, candidates, folds)])


# --- all candidates in all folds ----------------------------------------------------------------


class _WeightedRows(NamedTuple):
    Z: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None

    def count(self, kind: int) -> int:
        """Number of rows of a kind, copies of a row as one."""
        return count_independent(self.y, kind, self.groups)


def _held_out(
    rows: _WeightedRows,
    loss: Loss,
    candidates: Sequence[Candidate],
    folds: np.ndarray,
    risk: str = "rad",
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Scores, codes and weights of each fold's held-out rows; a column for each candidate."""
    theta = solve_together(rows, loss, candidates, folds, risk)
    for thetas, held in zip(theta, folds, strict=True):
        yield rows.Z[held] @ thetas.T.astype(float), rows.y[held], rows.weight[held]


def solve_together(
    rows: _WeightedRows,
    loss: Loss,
    candidates: Sequence[Candidate],
    folds: np.ndarray,
    risk: str = "rad",
) -> np.ndarray:
    """Weights theta (folds, candidates, parameters), each without the rows its fold holds out."""
    rounded = loss.smoothed(_WIDTH)
    kappa = float(np.abs(rounded.curvature(_MARGINS)).max())
    tables = _tables(loss, candidates, risk)
    kinds = [_Kind.of(rows, kind, folds) for kind in KINDS if tables[:, :, kind].any()]
    lam = np.array([candidate.lam for candidate in candidates], dtype=np.float32)
    p = rows.Z.shape[1]
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


def _tables(loss: Loss, candidates: Sequence[Candidate], risk: str) -> np.ndarray:
    """(3, candidates, 3): A, B and L of each, by label code, for means over the kinds."""
    sums = {
        (a, prior): Objective(get_risk(risk, loss, a=a, prior=prior), np.ones(3)).plain
        for a, prior, _ in candidates
    }
    chosen = [sums[a, prior] for a, prior, _ in candidates]
    return np.array([[getattr(s, name) for s in chosen] for name in "ABL"], dtype=np.float32)


class _Kind(NamedTuple):
    """The rows of one kind, with the weight of each in every fold's mean of them."""

    code: int
    Z: np.ndarray
    share: np.ndarray
    """(rows, folds): weight over the fold's total, 0 if held out."""

    @classmethod
    def of(cls, rows: _WeightedRows, code: int, folds: np.ndarray) -> _Kind:
        members = rows.y == code
        weight = rows.weight[members, None] * ~folds[:, members].T
        # Ranks of held-out rows need only the digits of a float32, which is twice as fast.
        share = (weight / weight.sum(axis=0)).astype(np.float32)
        return cls(code, rows.Z[members].astype(np.float32), share)

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
