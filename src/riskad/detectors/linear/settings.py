"""The settings of linear detectors: which values are allowed, in a call and in a model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.losses import Loss
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.solvers import Problem, Solution, solve

LARGEST_CONSTANT = 1e100  # whose square can be computed with


def bound_risk(risk: str, loss: str | Loss, a: float, prior: float) -> Risk:
    """The risk with its loss, mixing weight and prior, each of them checked.

    Returns
    -------
    Risk
        The risk, from `riskad.core.risks`.
    """
    check_choice("risk", risk, RISKS)
    check_in_interval(
        "prior", prior, 0, 1, "It is the share of normal rows, 1 minus the anomaly rate."
    )
    a_range = RISKS[risk].a_range
    if a_range is not None:
        check_in_interval("a", a, *a_range, "It is the weight of the unlabelled rows.")
    return get_risk(risk, loss, a=a, prior=prior)


def check_lambda(lam: Any, rules: Sequence[str]) -> None:
    """Refuse a lambda that is neither the name of one of the rules nor a number >= 0."""
    if isinstance(lam, str):
        check_choice("lam", lam, rules)
    elif not isinstance(lam, Real) or not 0 <= float(lam) < np.inf:
        raise InputError(f"lam must be a number >= 0 or one of {', '.join(rules)}, got {lam!r}.")


def check_numeric(intercept_scaling: Any, tol: Any, max_iter: Any) -> None:
    """Refuse numbers that no fit can work with."""
    check_in_interval("tol", tol, 0, 1)
    check_in_interval(
        "intercept_scaling",
        intercept_scaling,
        0,
        LARGEST_CONSTANT,
        "The larger it is, the less the intercept is penalised; fit_intercept=False has none.",
    )
    if not isinstance(max_iter, Integral) or max_iter < 1:
        raise InputError(f"max_iter must be a whole number >= 1, got {max_iter!r}.")


@dataclass(frozen=True)
class SolverSettings:
    """Which solver runs, for how long, and from which random starts."""

    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 100
    seed: int = 0

    def solve(
        self,
        problem: Problem,
        theta: np.ndarray | None = None,
        tol: float | None = None,
        warn: bool = True,
    ) -> Solution:
        """The solution of a problem, as `riskad.solvers.solve` finds it."""
        return solve(
            problem,
            self.solver,
            theta=theta,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter,
            seed=self.seed,
            warn=warn,
        )
