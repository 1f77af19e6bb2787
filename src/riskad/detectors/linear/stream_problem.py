"""The risk of all rows that arrived in batches, from their summary, and its minimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from riskad.core.losses import Loss
from riskad.core.objective import Objective, RowSum
from riskad.core.regularization import Reach
from riskad.core.risks import Risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.linear.solution import LinearFit
from riskad.detectors.linear.stream_summary import StreamSummary
from riskad.rows.linear import LinearModel
from riskad.rows.memory import RowBlocks
from riskad.solvers import SmoothTask, Solution, minimize_smooth

__all__ = ["StreamProblem"]


class StreamProblem:
    """Minimise the risk of all rows of a summary, plus lam ||theta||^2.

    `mean`, `scale` and `constant` are those of `riskad.rows.linear.LinearModel`.
    """

    def __init__(
        self,
        summary: StreamSummary,
        risk: Risk,
        mean: np.ndarray,
        scale: np.ndarray,
        constant: float,
    ):
        self.summary = summary.standardised(mean, scale)
        self.risk = risk
        plain = Objective(risk, summary.totals).plain
        self.A, self.L = plain.A, plain.L
        rows = RowBlocks(summary.X - summary.shift, summary.y, summary.weight)
        self.model = LinearModel(rows, mean - summary.shift, scale, constant)
        # (x - mean) / scale and B, from z
        S = np.zeros((len(mean) + 1, len(mean) + 1))
        S[np.diag_indices(len(mean))] = 1 / scale
        S[:-1, -1] = (summary.shift - mean) / scale
        S[-1, -1] = constant
        self._S = S if constant else S[:-1]

    @property
    def loss(self) -> Loss:
        """The loss of the risk."""
        return self.risk.loss

    @cached_property
    def _sums(self) -> np.ndarray:
        """The sums of w z of each kind, as theta sees it."""
        return self.summary.moments[:, -1] @ self._S.T

    def measure_reach(self, kind: int) -> Reach:
        """The reach of the rows of a kind; for rows that have left the sample, a bound."""
        summary, B = self.summary, self.model.constant
        Z = (summary.X[summary.y == kind] - summary.mean) / summary.scale
        largest = max(float(np.einsum("ij,ij->i", Z, Z).max(initial=0)), summary.reach[kind] ** 2)
        squared = largest + B**2
        mean_products = self._S @ summary.moments[kind] @ self._S.T / summary.totals[kind]
        spectral = min(float(np.linalg.eigvalsh(mean_products)[-1]), squared)
        return Reach(c=squared**0.5, c_inf=np.nan, spectral=spectral, column_mean=np.nan)

    def solve(self, lam: float, tol: float, max_iter: int) -> Solution:
        """Newton's method from zero; the first step is the solution if the loss is quadratic."""
        summary, S = self.summary, self._S
        task = _Task(
            self.model,
            [RowSum(self.loss, self.A, np.zeros(3), np.zeros(3))],
            lam,
            tilt=self.A @ (summary.slope @ S.T) + self.L @ self._sums,
            curvature=S @ np.tensordot(self.A, summary.curvature, axes=1) @ S.T,
            level=float(self.A @ summary.level),
        )
        theta = np.zeros(self.model.n_parameters)
        reference = _gradient_norm(task.value_and_gradient(theta)[1], self.model.constant) or 1.0
        found = minimize_smooth(task, theta, tol * reference, max_iter)
        return replace(found.as_solution(reference, tol), solver="newton")

    def report(self, solution: Solution, kept: StreamSummary) -> LinearFit:
        """The solution in the units of X; its threshold is found on the kept sample."""
        theta = solution.theta
        w, b = self.model.raw(theta)
        scores = self.scores(theta, kept.X)
        return LinearFit(
            coef=w,
            intercept=float(b - self.summary.shift @ w),
            objective=solution.value,
            weight_norm=float(np.linalg.norm(theta)),
            solver=solution.solver,
            n_iter=max(1, solution.n_iter),
            criterion=solution.criterion,
            optimality=solution.optimality,
            converged=bool(solution.converged),
            offset=zero_one_threshold(self.risk, scores, kept.y, kept.sample_weights()),
            risk_parts=self.risk_parts(theta),
        )

    def scores(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Scores of rows in the units of X."""
        return self.model.scores(theta, X - self.summary.shift)

    def risk_parts(self, theta: np.ndarray) -> dict[str, float]:
        """What each term contributes, and "total"."""
        summary, u = self.summary, self._S.T @ theta  # f = u . z
        of_kind = [RowSum(self.loss, one, np.zeros(3), np.zeros(3)) for one in np.eye(3)]
        quadratic = np.einsum("a,kab,b", u, summary.curvature, u)
        parabolas = summary.level + summary.slope @ u + 0.5 * quadratic
        as_normal = np.array(self.model.values(theta, of_kind)) + parabolas
        # l(-f) = l(f) + c f
        as_anomaly = as_normal + (self.loss.linear_odd or 0.0) * (self._sums @ theta)
        parts = {
            term.name: float(
                term.weight
                * (as_normal if term.sign > 0 else as_anomaly)[term.kind]
                / summary.totals[term.kind]
            )
            for term in self.risk.terms()
            if term.weight != 0
        }
        return parts | {"total": sum(parts.values())}

    def thinned(self, theta: np.ndarray) -> StreamSummary:
        """The summary to continue with."""
        return self.summary.thinned(lambda X: self.scores(theta, X), self.loss)


@dataclass(frozen=True)
class _Task(SmoothTask):
    """F plus the parabolas of rows that are no longer kept."""

    curvature: np.ndarray = None  # type: ignore[assignment]
    level: float = 0.0

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = super().value_and_gradient(theta)
        pull = self.curvature @ theta
        return value + self.level + 0.5 * float(theta @ pull), gradient + pull

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return super().hessian(theta) + self.curvature

    def hessian_product(self, theta: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        product = super().hessian_product(theta)
        return lambda x: product(x) + self.curvature @ x


def _gradient_norm(gradient: np.ndarray, constant: float) -> float:
    """Its norm with B counted as 1, as in `Problem.reference`."""
    if constant:
        gradient = np.append(gradient[:-1], gradient[-1] / constant)
    return float(np.linalg.norm(gradient))
