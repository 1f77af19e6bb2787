"""Lambda: Theorem 1's value, the smallest provably safe value, or the best on held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.objective import Objective
from riskad.core.regularization import Reach, measure_reach, theorem_lambda
from riskad.core.risks import Risk
from riskad.detectors.linear.settings import SolverSettings
from riskad.metrics.folds import count_independent, labelled_folds, whole_groups
from riskad.metrics.ranking import auc_value
from riskad.rows.arrays import to_dense, to_numpy
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.linear import LinearModel
from riskad.rows.sources import RowBlocks, sample_in_memory
from riskad.solvers import Problem, minimize_rounded

__all__ = [
    "CV_DECADES",
    "CV_REPEATS",
    "CV_ROWS",
    "LAMBDA_RULES",
    "SAFE_RULES",
    "LambdaGrid",
    "choose_place",
    "cross_validated_lambda",
    "find_lambda",
    "held_out_aucs",
    "held_out_folds",
    "safe_lambda",
    "theorem_terms",
]

SAFE_RULES = ("theorem", "tight")
"""Rules that only need a bound on the rows."""
LAMBDA_RULES = (*SAFE_RULES, "cv")

CV_DECADES = 3
"""Decades below the tight lambda at which the grid of "cv" ends."""
CV_REPEATS = 2
"""Rounds of folds."""
CV_ROWS = 5_000
"""Rows on which lambdas are compared: enough to choose a single number."""
# Ranks of held-out rows settle long before the last digits: a relative gradient norm, a relative
# gap if kinks are not rounded, and the width over which they are.
_CV_TOL = 1e-3
_CV_GAP = 1e-2
_CV_WIDTH = 0.5
_CV_SPLITS = 5
_CV_ERRORS = 2
_CV_PATIENCE = 2
_CV_CLEARLY = 0.01


def find_lambda(
    rule: str | float, model: LinearModel, risk: Risk, penalty: str, settings: SolverSettings
) -> float:
    """Lambda by a rule.

    Parameters
    ----------
    rule : str or float
        A name of `LAMBDA_RULES`, or lambda itself.
    model : LinearModel
        The rows of the fit, and how they are standardised.
    risk : Risk
        The risk with its loss, a and prior.
    penalty : {"l2", "l1"}
        The penalty that lambda multiplies.
    settings : SolverSettings
        Settings for the fits of "cv".

    Returns
    -------
    float
        Lambda, on the scale of standardised columns.
    """
    if not isinstance(rule, str):
        return float(rule)
    if rule == "cv":
        return cross_validated_lambda(model, risk, penalty, settings)
    theorem_terms(rule, risk)
    return safe_lambda(model, risk, penalty, tight=rule == "tight")


# --- Theorem 1 ----------------------------------------------------------------------------


def theorem_terms(
    rule: str, risk: Risk, remedy: str = "Give a number or lam='cv'."
) -> tuple[int, float, float]:
    """(kind, a, prior) for Theorem 1, if it covers the risk."""
    if risk.theorem is None:
        raise InputError(f"lam={rule!r}: Theorem 1 has no value for the {risk.name} risk. {remedy}")
    return risk.theorem


def safe_lambda(model: LinearModel, risk: Risk, penalty: str, tight: bool) -> float:
    """Theorem 1's lambda; for risks that it does not cover, that of a = 0, for its size."""
    kind, a, prior = risk.theorem or (next(iter(risk.kinds() - {0})), 0.0, risk.prior)
    reach = _reach(model, kind)
    return theorem_lambda(reach, risk.loss, a=a, prior=prior, penalty=penalty, tight=tight)


def _reach(model: LinearModel, kind: int) -> Reach:
    """Reach of the labelled rows of a kind, standardised a block at a time."""
    blocks, again = itertools.tee(model.rows.blocks_of(kind))
    features = ((to_dense(block.X) - model.mean) / model.scale for block in blocks)
    weights = (None if block.weight is None else to_numpy(block.weight) for block in again)
    return measure_reach(features, model.constant, weights)


# --- cross-validation ---------------------------------------------------------------------


@dataclass(frozen=True)
class LambdaGrid:
    """Lambdas from the theorem's value down, in decades of the tight one."""

    values: np.ndarray
    tight: int | None
    """Position of the tight lambda; None for risks that have none."""

    @classmethod
    def between(cls, top: float, tight: float) -> LambdaGrid:
        """From `top` down past the tight value; six decades if that is zero.

        >>> LambdaGrid.between(5.0, 1.0).values.tolist()
        [5.0, 1.0, 0.1, 0.01, 0.001]
        """
        if not tight > 0:
            return cls(top * 10.0 ** -np.arange(6), None)
        above = int(np.ceil(np.log10(top / tight)))
        values = np.minimum(top, tight * 10.0 ** np.arange(above, -CV_DECADES - 1, -1))
        return cls(values, above)


def cross_validated_lambda(
    model: LinearModel, risk: Risk, penalty: str, settings: SolverSettings
) -> float:
    """The lambda of a grid that ranks held-out rows best, if it is clearly the best.

    The grid goes in decades from the theorem's value down past the tight one, which is kept unless
    another gains more than two standard errors over it, since few labels carry little information.
    The search ends where the objective becomes negative, which is impossible for a true risk: from
    there on the fit follows noise. It also ends after two decades of clearly worse values, since
    the smallest lambdas cost the most.

    Returns
    -------
    float
        Lambda; the tight one if fewer than two rows of a kind are labelled.
    """
    top = safe_lambda(model, risk, penalty, tight=False)
    tight = safe_lambda(model, risk, penalty, tight=True) if risk.theorem else 0.0
    grid = LambdaGrid.between(top, tight)
    rows = sample_in_memory(model.rows, CV_ROWS, risk.kind_weights(), settings.seed)
    folds = held_out_folds(rows, risk, settings.seed)
    if not folds and grid.tight is None:
        raise InputError(
            "lam='cv' needs at least 2 labelled rows of each kind that the risk uses. Label more "
            "rows, or give a number."
        )
    if not folds:
        return tight
    problem = Problem(model.over(rows), Objective(risk, rows.totals()), top, penalty)
    aucs = held_out_aucs(problem, grid.values, folds, settings)
    return float(grid.values[choose_place(aucs, grid.tight)])


def choose_place(aucs: np.ndarray, tight: int | None) -> int:
    """Position of the best lambda; the tight one unless that gains two standard errors over it.

    Parameters
    ----------
    aucs : array of shape (n_lambdas, n_folds)
        Held-out AUCs.
    tight : int or None
        Position of the tight lambda. It may lie beyond the last row.

    Returns
    -------
    int
        A row of `aucs`.
    """
    best = int(np.argmax(aucs.mean(axis=1)))
    if tight is None or tight >= len(aucs):
        return best
    gain = aucs[best] - aucs[tight]
    # Repeats hold out the same rows again: they stabilise the mean, but are not further evidence.
    error = gain.std(ddof=1) / np.sqrt(len(gain) / CV_REPEATS)
    return tight if gain.mean() <= _CV_ERRORS * error else best


def held_out_folds(rows: RowBlocks, risk: Risk, seed: int) -> list[np.ndarray]:
    """Positions of rows to hold out: labelled ones, and with a single kind of label all kinds."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    y, used = rows.y, sorted(risk.kinds() - {UNLABELLED})
    groups = group_equal_rows(rows.X, y)
    n_splits = min(_CV_SPLITS, *(count_independent(y, kind, groups) for kind in used))
    if n_splits < 2:
        return []
    seeds = range(seed, seed + CV_REPEATS)
    if len(used) == 2:
        folds = [held for each in seeds for held in labelled_folds(y, n_splits, each, groups)]
        return [whole_groups(held, groups) for held in folds]
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitters = [kind(n_splits, shuffle=True, random_state=each) for each in seeds]
    return [held for splitter in splitters for _, held in splitter.split(y, y, groups)]


def held_out_aucs(
    problem: Problem, lambdas: np.ndarray, folds: list[np.ndarray], settings: SolverSettings
) -> np.ndarray:
    """AUC of each fold's held-out rows, a row for each lambda until the search ends.

    Parameters
    ----------
    problem : Problem
        The problem; its rows are in memory, and its own lambda is ignored.
    lambdas : array
        Lambdas from the largest to the smallest.
    folds : list of arrays
        Positions of the rows that each fold holds out.
    settings : SolverSettings
        Settings for the fits to the other rows.

    Returns
    -------
    array of shape (at most n_lambdas, n_folds)
    """
    model, kinds = problem.model, problem.objective.risk.kinds()
    rows = model.rows
    assert isinstance(rows, RowBlocks)
    held_out = [(rows.X[held], rows.y[held]) for held in folds]
    paths = [_path(problem, lambdas, held, settings) for held in folds]
    aucs: list[list[float]] = []
    for thetas in zip(*paths, strict=False):  # until the first path ends
        aucs.append(
            [
                _held_out_auc(model.scores(theta, X), y, kinds)
                for theta, (X, y) in zip(thetas, held_out, strict=True)
            ]
        )
        means = np.mean(aucs, axis=1)
        if max(means[-_CV_PATIENCE:]) < max(means) - _CV_CLEARLY:
            break
    return np.array(aucs)


def _path(
    problem: Problem, lambdas: np.ndarray, held: np.ndarray, settings: SolverSettings
) -> Iterator[np.ndarray]:
    """Solutions without the held-out rows, from the largest lambda down."""
    model, rows = problem.model, problem.model.rows
    assert isinstance(rows, RowBlocks)
    rows = RowBlocks(rows.X, rows.y, _without(rows, held))
    objective = Objective(problem.objective.risk, rows.totals())
    theta = np.zeros(model.n_parameters)
    for lam in lambdas:
        own = Problem(model.over(rows), objective, float(lam), problem.penalty)
        previous, (theta, value) = theta, _solve_roughly(own, theta, settings)
        if value < 0 and previous.any():
            return
        yield theta


def _solve_roughly(
    problem: Problem, theta: np.ndarray, settings: SolverSettings
) -> tuple[np.ndarray, float]:
    """Theta and objective, as precisely as ranks of held-out rows need them."""
    objective = problem.objective
    if objective.guarded or problem.penalty == "l1" or objective.risk.loss.quadratic:
        tol = max(settings.tol, _CV_GAP)
        solution = settings.solve(problem, theta, tol=tol, warn=False)
        return solution.theta, solution.value
    return minimize_rounded(problem, theta, _CV_WIDTH, _CV_TOL, settings.max_iter)


def _without(rows: RowBlocks, held: np.ndarray) -> np.ndarray:
    """Weights that leave these rows out without copying the others."""
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight.copy()
    weight[held] = 0
    return weight


def _held_out_auc(f: np.ndarray, y: np.ndarray, kinds: set[int]) -> float:
    """AUC of held-out rows; unlabelled rows replace a kind of label that the risk does not use.

    If labelled rows are like the unlabelled ones of their kind, AUC(P, U) = pi_p / 2 +
    pi_n AUC(P, N), and likewise for N: the best ranking against the unlabelled rows is also the
    best against the other kind.
    """
    if NORMAL not in kinds:
        y = np.where(y == UNLABELLED, NORMAL, y)
    if ANOMALY not in kinds:
        y = np.where(y == UNLABELLED, ANOMALY, y)
    return auc_value(-f[y == ANOMALY], -f[y == NORMAL])
