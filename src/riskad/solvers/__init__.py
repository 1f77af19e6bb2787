"""Solvers: each declares what it needs from a problem, and a mismatch is reported in one sentence.

==============  ==================================================================================
solver          for
==============  ==================================================================================
closed_form     quadratic losses with an l2 penalty, unguarded risk: one linear system
newton          smooth convex risks with an l2 penalty
lbfgs           smooth risks, convex or not, with an l2 penalty
proximal        smooth convex risks with an l1 penalty
dc              anything else with an l2 penalty: kinks, non-convex losses, guarded risks
==============  ==================================================================================

All are written over one primitive, a sum over row blocks (`riskad.rows.sources`). To add a solver,
write a function `(problem, theta, tol, max_iter) -> Solution` and add it to `SOLVERS` with its
needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from riskad.core.checks import InputError, check_choice
from riskad.solvers._dc import dc
from riskad.solvers._problem import Problem, SmoothTask, Solution
from riskad.solvers._proximal import proximal
from riskad.solvers._smooth import closed_form, lbfgs, minimize_rounded, minimize_smooth, newton

__all__ = [
    "SOLVERS",
    "Problem",
    "SmoothTask",
    "Solution",
    "Solver",
    "choose_solver",
    "minimize_rounded",
    "minimize_smooth",
    "solve",
    "warn_not_converged",
]


@dataclass(frozen=True)
class Solver:
    """A solver and what it needs from a problem."""

    name: str
    run: Callable[..., Solution]
    penalty: str
    quadratic: bool = False
    convex: bool = False
    smooth: bool = False
    positive_lambda: bool = False
    max_parameters: float = float("inf")
    random_starts: bool = False
    """Whether it takes a seed."""
    needs_warm_start: bool = False
    """Whether to start from the solution for a sample if passes over rows are costly."""

    def mismatch(self, problem: Problem) -> str | None:
        """Why this solver cannot solve `problem`, in one sentence; None if it can."""
        risk, objective = problem.objective.risk, problem.objective
        what = f"the {risk.name} risk with {risk.loss.name} loss"
        n_parameters = problem.model.n_parameters
        if self.penalty != problem.penalty:
            reason = f"penalty={self.penalty!r}, got {problem.penalty!r}"
        elif self.quadratic and (not risk.loss.quadratic or objective.guarded):
            reason = f"an unguarded risk with a quadratic loss, such as squared loss, got {what}"
        elif self.smooth and not objective.smooth:
            reason = f"a smooth risk, and {what} has kinks"
        elif self.convex and not objective.convex:
            reason = f"a convex risk, and {what} is not convex"
        elif self.positive_lambda and problem.lam <= 0:
            reason = f"lam > 0, got {problem.lam:g}"
        elif n_parameters > self.max_parameters:
            reason = f"at most {self.max_parameters:,} parameters, got {n_parameters:,}"
        else:
            return None
        return f"solver={self.name!r} needs {reason}."


# In order of preference: "auto" chooses the first that fits. `dc` comes before `lbfgs` because it
# bounds what a step can still gain; `lbfgs` is left for lam = 0. A system of 5,000 unknowns takes
# 200 MB.
SOLVERS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        Solver("closed_form", closed_form, "l2", quadratic=True, max_parameters=5000),
        Solver("newton", newton, "l2", convex=True, smooth=True),
        Solver("proximal", proximal, "l1", convex=True, smooth=True, needs_warm_start=True),
        Solver("dc", dc, "l2", positive_lambda=True, random_starts=True),
        Solver("lbfgs", lbfgs, "l2", smooth=True, needs_warm_start=True),
    )
}


def choose_solver(problem: Problem, name: str = "auto") -> Solver:
    """The named solver, or with "auto" the first that fits; an error says what is missing."""
    check_choice("solver", name, ["auto", *SOLVERS])
    if name != "auto":
        mismatch = SOLVERS[name].mismatch(problem)
        if mismatch is None:
            return SOLVERS[name]
        raise InputError(f"{mismatch} solver='auto' chooses one that fits, if there is one.")
    # The registry is in order of preference.
    for solver in SOLVERS.values():
        if solver.mismatch(problem) is None:
            return solver
    # Only two kinds of problem have no solver: an l1 penalty on a risk that is not smooth and
    # convex, and lam = 0 where `dc` alone would do.
    remedy = "Choose a smooth convex loss (squared, modified_huber, logistic) or penalty='l2'."
    if problem.penalty == "l2":
        remedy = "Choose lam > 0."
    # The mismatch of the solver with the fewest needs for this penalty.
    fewest = SOLVERS["proximal" if problem.penalty == "l1" else "dc"]
    raise InputError(f"{fewest.mismatch(problem)} No other solver fits. {remedy}")


def solve(
    problem: Problem,
    solver: str = "auto",
    *,
    theta: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    seed: int = 0,
    warn: bool = True,
) -> Solution:
    """Minimise the problem from `theta`, or zero; `warn` if the stopping test was not met.

    `tol` is that of the solver's stopping test, reported as `Solution.optimality`. If rounding does
    not allow such a small value, the smallest possible one is enough, and `Solution.criterion`
    reports it. `seed` is for the random starts of non-convex problems.
    """
    chosen = choose_solver(problem, solver)
    start = np.zeros(problem.model.n_parameters) if theta is None else theta
    # Only solvers of non-convex problems draw starts; a seed for others would be an option without
    # use.
    extra = {"seed": seed} if chosen.random_starts else {}
    # Each step of these solvers reads all rows: a good start saves most of the passes.
    if theta is None and problem.model.rows.costly and chosen.needs_warm_start:
        # As many as are in memory: a source in parts has a sample of its rows there.
        small = problem.sampled(problem.model.rows.n_rows)
        start = chosen.run(small, start, tol, max_iter).theta
    solution = replace(chosen.run(problem, start, tol, max_iter, **extra), solver=chosen.name)
    if warn and not solution.converged:
        warn_not_converged(solution, tol, max_iter)
    return solution


def warn_not_converged(solution: Solution, tol: float, max_iter: int) -> None:
    """Warn that a stopping test was not met, and suggest remedies."""
    from sklearn.exceptions import ConvergenceWarning

    # An unbiased risk can fall without limit if lambda is below that of Theorem 1.
    if solution.value < 0:
        remedy = "the risk has become negative and may have no minimum: raise lam"
    elif solution.n_iter >= max_iter:
        remedy = f"raise max_iter (now {max_iter}) or lam"
    else:
        remedy = "raise tol or lam: floating point allows no further progress"
    warnings.warn(
        f"{solution.solver} stopped after {solution.n_iter} iterations with {solution.criterion} "
        f"{solution.optimality:.1e} > tol={tol:g}; {remedy}.",
        ConvergenceWarning,
        stacklevel=3,
    )
