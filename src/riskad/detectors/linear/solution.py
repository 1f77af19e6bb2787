"""The results of a fit of linear scores: weights, objective, risk parts and threshold."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from riskad.core.checks import DataWarning
from riskad.core.labels import UNLABELLED
from riskad.core.losses import Loss
from riskad.core.objective import RowSum
from riskad.core.risks import Term
from riskad.decisions.drift import UnlabelledSummary, rows_to_sum_up
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.linear.feature_maps import FITTED_MAP
from riskad.rows.arrays import on_host_array
from riskad.rows.source import RowSource
from riskad.rows.sources import at_most, on_host
from riskad.solvers import Problem, Solution
from riskad.storage.fields import (
    COUNT,
    FLAG,
    NUMBER,
    SHARE,
    TEXT,
    Array,
    DictOf,
    Fields,
    Maybe,
    Number,
)

__all__ = [
    "FITTED_FIELDS",
    "LinearFit",
    "report_fit",
    "risk_parts",
    "summarise_unlabelled",
    "threshold_of",
]

# This many rows determine the threshold, a single number, well enough.
_THRESHOLD_ROWS = 20_000

FITTED_FIELDS: Fields = {
    "_mean": Array("f", ("n_features_in_",)),
    "_scale": Array("f", ("n_features_in_",), low=np.nextafter(0, 1), infinite=True),
    "feature_map_": Maybe(FITTED_MAP),
    "a_": NUMBER,
    "prior_": SHARE,
    "lambda_": Number(0),
    "coef_": Array("f", ("weights",)),
    "intercept_": NUMBER,
    "objective_": NUMBER,
    "weight_norm_": Number(0),
    "solver_": TEXT,
    "n_iter_": COUNT,
    "criterion_": TEXT,
    "optimality_": NUMBER,
    "converged_": FLAG,
    "risk_parts_": DictOf(TEXT, NUMBER),
}
"""Attributes of a fitted linear detector, with their fields in a model file."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fit; the attributes of linear detectors have these names, with an underscore."""

    coef: np.ndarray
    intercept: float
    objective: float
    weight_norm: float
    solver: str
    n_iter: int
    criterion: str
    optimality: float
    converged: bool
    offset: float
    risk_parts: dict[str, float]

    def store(self, detector: Any) -> None:
        """Set `coef_`, `intercept_` and the others."""
        for field in fields(self):
            setattr(detector, f"{field.name}_", getattr(self, field.name))


def report_fit(problem: Problem, solution: Solution, seed: int) -> LinearFit:
    """The solution in the units of X, with its risk parts and threshold.

    Parameters
    ----------
    problem : Problem
        The solved problem.
    solution : Solution
        Its solution.
    seed : int
        Seed of the sample from which the threshold is found if there are many rows.

    Returns
    -------
    LinearFit
    """
    coef, intercept = problem.model.weights(solution.theta)
    if not coef.any():
        warnings.warn(
            f"all weights are zero under lam={problem.lam:.3g}, so every row has the same "
            "score. Choose a smaller lam: 'tight', 'cv' or a number.",
            DataWarning,
            stacklevel=4,
        )
    penalty = problem.penalty_value(solution.theta)
    return LinearFit(
        coef=coef,
        intercept=intercept,
        objective=solution.value,
        weight_norm=penalty**0.5 if problem.penalty == "l2" else penalty,
        solver=solution.solver,
        n_iter=max(1, solution.n_iter),
        criterion=solution.criterion,
        optimality=solution.optimality,
        converged=bool(solution.converged),
        offset=threshold_of(problem, solution.theta, seed),
        risk_parts=risk_parts(problem, solution),
    )


def threshold_of(problem: Problem, theta: np.ndarray, seed: int) -> float:
    """The threshold with the lowest zero-one risk, found on a sample of the rows."""
    risk = problem.objective.risk
    rows = at_most(problem.model.rows, _THRESHOLD_ROWS, risk.kind_weights(), seed)
    scores = rows.each(lambda X: problem.model.scores(theta, X))
    y, weight = on_host_array(rows.y), on_host_array(rows.sample_weight)
    return zero_one_threshold(risk, scores, y, weight)


def risk_parts(problem: Problem, solution: Solution) -> dict[str, float]:
    """Each term's contribution and their total, with the guard applied."""
    risk, model = problem.objective.risk, problem.model
    totals = model.rows.totals()
    penalty = problem.lam * problem.penalty_value(solution.theta)
    terms = [term for term in risk.terms() if term.weight != 0]
    # The total is known and at most one term is over unlabelled rows: if no guard hides it, that
    # term is the remainder after the labelled rows, which saves a pass over the unlabelled ones.
    spared = [term for term in terms if term.kind == UNLABELLED and not risk.guarded]
    counted = [term for term in terms if term not in spared]
    sums = [_term_sum(risk.loss, term, totals) for term in counted]
    values = dict(zip(counted, model.values(solution.theta, sums), strict=True))
    total = solution.value - penalty
    for term in spared:
        values[term] = total - sum(values.values())
    return {term.name: float(values[term]) for term in terms} | {"total": float(total)}


def _term_sum(loss: Loss, term: Term, totals: np.ndarray) -> RowSum:
    coefficient = np.zeros(3)
    coefficient[term.kind] = term.weight / totals[term.kind]
    zero = np.zeros(3)
    sides = (coefficient, zero) if term.sign > 0 else (zero, coefficient)
    return RowSum(loss, *sides, zero)


def summarise_unlabelled(
    rows: RowSource, score: Callable[[Any], np.ndarray], seed: int
) -> UnlabelledSummary | None:
    """Summarise the unlabelled rows, to compare later rows with.

    Returns
    -------
    UnlabelledSummary or None
        None if there is no unlabelled row.
    """
    shares, rng = np.array([1.0, 0.0, 0.0]), np.random.default_rng(seed)
    some = on_host(rows.sample(rows_to_sum_up(rows.n_features), shares, rng))
    if some.sample_weight is not None:
        some = some.take(np.flatnonzero(some.sample_weight > 0))
    return UnlabelledSummary.of(some.X, -score(some.X))
