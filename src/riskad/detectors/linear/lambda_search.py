"""Lambda: Theorem 1's value, the smallest provably safe value, or the best on held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.objective import Objective
from riskad.core.regularization import measure_reach, theorem_lambda
from riskad.core.risks import Risk
from riskad.metrics.ranking import auc_value
from riskad.metrics.search import choose_place, held_out_folds
from riskad.rows.arrays import to_dense, to_numpy
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.linear import LinearModel
from riskad.rows.sources import RowBlocks, sample_in_memory
from riskad.solvers import Problem, minimize_rounded, solve

SAFE_RULES = ("theorem", "tight")  # which need only a bound on the rows
LAMBDA_RULES = (*SAFE_RULES, "cv")

CV_DECADES = 3  # below the tight lambda, at which the grid of "cv" ends
CV_ROWS = 5_000  # on which lambdas are compared: enough to choose a single number
# Ranks of held-out rows settle long before the last digits: a relative gradient norm, a relative
# gap if kinks are not rounded, and the width over which they are.
_CV_TOL = 1e-3
_CV_GAP = 1e-2
_CV_WIDTH = 0.5
_CV_PATIENCE = 2
_CV_CLEARLY = 0.01


class SolverSettings(NamedTuple):
    """How long the solver runs, and from which random starts."""

    tol: float
    max_iter: int
    seed: int


def find_lambda(
    rule: str | float, model: LinearModel, risk: Risk, penalty: str, settings: SolverSettings
) -> float:
    """Lambda by a rule of `LAMBDA_RULES`, or the number itself, for standardised columns.

    `model` has the rows of the fit and their scale; `settings` are for the fits of "cv".
    """
    if not isinstance(rule, str):
        return float(rule)
    # Before the check of the theorem: "cv" is there for risks that it does not cover.
    if rule == "cv":
        return cross_validated_lambda(model, risk, penalty, settings)
    theorem_terms(rule, risk)
    return safe_lambda(model, risk, penalty, tight=rule == "tight")


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
    # Of the labelled rows of the kind, standardised a block at a time.
    blocks, again = itertools.tee(model.rows.blocks_of(kind))
    features = ((to_dense(block.X) - model.mean) / model.scale for block in blocks)
    weights = (None if block.weight is None else to_numpy(block.weight) for block in again)
    reach = measure_reach(features, model.constant, weights)
    return theorem_lambda(reach, risk.loss, a=a, prior=prior, penalty=penalty, tight=tight)


def lambda_grid(top: float, tight: float) -> tuple[np.ndarray, int | None]:
    """Lambdas from `top` down past the tight one in decades, and its place; six decades if it is 0.

    >>> lambda_grid(5.0, 1.0)
    (array([5.e+00, 1.e+00, 1.e-01, 1.e-02, 1.e-03]), 1)
    >>> lambda_grid(5.0, 0.0)[0].round(5).tolist()
    [5.0, 0.5, 0.05, 0.005, 0.0005, 5e-05]
    """
    if not tight > 0:
        return top * 10.0 ** -np.arange(6), None
    # Decades are counted from the tight value, so that it is on the grid itself.
    above = int(np.ceil(np.log10(top / tight)))
    return np.minimum(top, tight * 10.0 ** np.arange(above, -CV_DECADES - 1, -1)), above


def cross_validated_lambda(
    model: LinearModel, risk: Risk, penalty: str, settings: SolverSettings
) -> float:
    """The lambda of a grid that ranks held-out rows best, if it is clearly the best.

    The grid goes in decades from the theorem's value down past the tight one, which is the default
    of the search (`riskad.metrics.search`), also if fewer than two rows of a kind are labelled.
    The search ends where the objective becomes negative, which is impossible for a true risk: from
    there on the fit follows noise. It also ends after two decades of clearly worse values, since
    the smallest lambdas cost the most.
    """
    top = safe_lambda(model, risk, penalty, tight=False)
    tight = safe_lambda(model, risk, penalty, tight=True) if risk.theorem else 0.0
    lambdas, default = lambda_grid(top, tight)
    # By the weights of the risk, so that labelled rows, where they are few, are all in it.
    rows = sample_in_memory(model.rows, CV_ROWS, risk.kind_weights(), settings.seed)
    kinds, groups = risk.kinds() - {UNLABELLED}, group_equal_rows(rows.X, rows.y)
    # With a single kind of label, unlabelled rows replace the other.
    folds = held_out_folds(rows.y, groups, kinds, seed=settings.seed, unlabelled=len(kinds) < 2)
    if not folds and default is None:
        raise InputError(
            "lam='cv' needs at least 2 labelled rows of each kind that the risk uses. Label more "
            "rows, or give a number."
        )
    if not folds:
        return tight
    problem = Problem(model.over(rows), Objective(risk, rows.totals()), top, penalty)
    aucs = held_out_aucs(problem, lambdas, folds, settings)
    return float(lambdas[choose_place(aucs, default)])


def held_out_aucs(
    problem: Problem, lambdas: np.ndarray, folds: list[np.ndarray], settings: SolverSettings
) -> np.ndarray:
    """AUC of each fold's held-out rows, a row for each lambda until the search ends.

    Unlabelled rows replace a kind of label that the risk does not use: AUC(P, U) = pi_p / 2 +
    pi_n AUC(P, N), and likewise for N, so that the best ranking is the same.
    """
    model, kinds = problem.model, problem.objective.risk.kinds()
    rows = model.rows
    assert isinstance(rows, RowBlocks)
    y = rows.y
    for kind in (NORMAL, ANOMALY):
        if kind not in kinds:
            y = np.where(y == UNLABELLED, kind, y)
    held_out = [(rows.X[held], y[held] == ANOMALY, y[held] == NORMAL) for held in folds]
    paths = [_path(problem, lambdas, held, settings) for held in folds]
    aucs: list[list[float]] = []
    for thetas in zip(*paths, strict=False):  # until the first path ends
        aucs.append([])
        for theta, (X, anomalies, normals) in zip(thetas, held_out, strict=True):
            scores = -model.scores(theta, X)
            aucs[-1].append(auc_value(scores[anomalies], scores[normals]))
        means = np.mean(aucs, axis=1)
        if max(means[-_CV_PATIENCE:]) < max(means) - _CV_CLEARLY:
            break
    return np.array(aucs)


def _path(
    problem: Problem, lambdas: np.ndarray, held: np.ndarray, settings: SolverSettings
) -> Iterator[np.ndarray]:
    """Solutions without the held-out rows, from the largest lambda down."""
    risk, rows = problem.objective.risk, problem.model.rows
    assert isinstance(rows, RowBlocks)
    # Weights of 0 leave rows out without copying the others.
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight.copy()
    weight[held] = 0
    rows = RowBlocks(rows.X, rows.y, weight)
    model, objective = problem.model.over(rows), Objective(risk, rows.totals())
    exact = objective.guarded or problem.penalty == "l1" or risk.loss.quadratic
    # Each lambda starts from the solution for the one before, ten times as large.
    theta = np.zeros(model.n_parameters)
    for lam in lambdas:
        candidate, previous = Problem(model, objective, float(lam), problem.penalty), theta
        if exact:
            rough = settings._replace(tol=max(settings.tol, _CV_GAP))
            solution = solve(candidate, theta=theta, **rough._asdict(), warn=False)
            theta, value = solution.theta, solution.value
        else:
            theta, value = minimize_rounded(candidate, theta, _CV_WIDTH, _CV_TOL, settings.max_iter)
        # The first lambda is used whatever its value: a path has at least one point.
        if value < 0 and previous.any():
            return
        yield theta
