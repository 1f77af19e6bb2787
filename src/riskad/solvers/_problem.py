"""The input and output of solvers, and the smooth sums most of them use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from riskad.core.objective import Objective, RowSum
from riskad.rows.linear import LinearModel, Moments

AT_ROUNDING = ", as small as rounding allows"
"""Added to the stopping test's description if rounding, not the tolerance, ended it."""


def rounding(model: LinearModel, theta: np.ndarray, value: float, units: float = 500) -> float:
    """Differences of an objective up to this may be only rounding.

    `units` in the last place of its value, or ten times the rounding error of a score, for a loss
    with a slope of about 1.
    """
    # The two sources of noise: the sum itself, and scores that are sums of large terms of either
    # sign.
    return max(units * model.rows.eps * (1 + abs(value)), 10 * model.score_rounding(theta))


@dataclass(frozen=True)
class Problem:
    """Minimise R(Z theta) + lam ||theta||_2^2, or + lam ||theta||_1, over theta.

    The intercept is a parameter like the others and is penalised with them, as Theorem 1 needs.
    """

    model: LinearModel
    objective: Objective
    lam: float
    penalty: str = "l2"
    moments: Moments | None = None  # of the rows, if a pass has already collected them

    @cached_property
    def gradient_at_zero(self) -> np.ndarray:
        """Gradient of an unguarded risk at theta = 0."""
        model, plain = self.model, self.objective.plain
        if self.moments is None:
            return model.values_and_gradients(np.zeros(model.n_parameters), [plain])[0][1]
        # At f = 0 all rows of a kind have the same derivative: no pass is needed.
        slope = plain.gradient(np.zeros(3), np.array([0, 1, -1]))
        totals = model.rows.totals()
        offset = self.moments.shift - model.mean
        v = slope @ (self.moments.sums + np.outer(totals, offset)) / model.scale
        return model.with_constant(v, float(slope @ totals))

    @cached_property
    def reference(self) -> float:
        """||gradient at theta = 0||, to which gradient norms are compared, with B counted as 1.

        Compared with a large B, any gradient of the other weights would look small.
        """
        gradient, constant = self.gradient_at_zero, self.model.constant
        if constant:
            # The last parameter is the intercept's weight b / B: its gradient grows with B.
            gradient = np.append(gradient[:-1], gradient[-1] / constant)
        # A gradient of exactly 0 means that zero is the minimum, and any unit will do.
        return float(np.linalg.norm(gradient)) or 1.0

    def penalty_value(self, theta: np.ndarray) -> float:
        """R(theta), without lam."""
        return float(theta @ theta if self.penalty == "l2" else np.abs(theta).sum())

    def value(self, theta: np.ndarray) -> float:
        """The true objective, including guard and kinks."""
        risk = Objective.join(self.model.values(theta, self.objective.sums))
        return risk + self.lam * self.penalty_value(theta)

    @property
    def smooth_task(self) -> SmoothTask:
        """The objective of an unguarded risk without kinks, with an l2 penalty."""
        return SmoothTask(self.model, self.objective.sums, self.lam)

    def smaller(self, above: int, share: int) -> Problem | None:
        """The problem on a sample to solve first: one row in `share` of more than `above` rows.

        If passes are costly, it is all rows in memory; None if nothing would be gained.
        """
        rows = self.model.rows
        if rows.costly:
            return self.sampled(rows.n_rows)
        return self.sampled(rows.n_rows // share) if rows.n_rows > max(above, rows.few) else None

    def sampled(self, n_rows: int) -> Problem:
        """The same problem on a sample of the rows, whose solution is a close first guess."""
        risk = self.objective.risk
        # A fixed seed, since the sample's solution is only a place to start from.
        rows = self.model.rows.sample(n_rows, risk.kind_weights(), np.random.default_rng(0))
        objective = Objective(risk, rows.totals())
        return Problem(self.model.over(rows), objective, self.lam, self.penalty)


@dataclass(frozen=True)
class Solution:
    """Where a solver stopped, and why."""

    theta: np.ndarray
    value: float  # the true objective at theta
    optimality: float  # what the stopping test measured
    criterion: str  # what `optimality` is, in words
    n_iter: int
    converged: bool  # whether `optimality` meets the tolerance, or is as small as rounding allows
    history: list[float] = field(default_factory=list)  # objectives, if the solver keeps them
    solver: str = ""


@dataclass(frozen=True)
class SmoothTask:
    """F(theta) = sum of smooth row sums + lam ||theta||^2 + tilt . theta."""

    model: LinearModel
    sums: Sequence[RowSum]
    lam: float
    tilt: np.ndarray | float = 0.0

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """F and its gradient, in one pass."""
        value, gradient = 0.0, np.zeros_like(theta)
        for part, slope in self.model.values_and_gradients(theta, self.sums):
            value, gradient = value + part, gradient + slope
        value = value + self.lam * (theta @ theta) + (theta * self.tilt).sum()
        return float(value), gradient + 2 * self.lam * theta + self.tilt

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """The Hessian of F, dense."""
        H = self.model.hessian(theta, self.sums)
        # In place: a Hessian of 1,000 parameters takes 8 MB, and a diagonal matrix as much again.
        H[np.diag_indices_from(H)] += 2 * self.lam
        return H

    def hessian_product(self, theta: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The map x -> Hessian x, a pass over the rows at each application."""
        product = self.model.hessian_product(theta, self.sums)
        return lambda x: product(x) + 2 * self.lam * x
