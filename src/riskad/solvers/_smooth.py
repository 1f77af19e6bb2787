"""Solvers for smooth objectives: closed form, Newton, L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from scipy.optimize import minimize

from riskad.core.checks import InputError
from riskad.solvers._problem import AT_ROUNDING, Problem, SmoothTask, Solution, rounding

RELATIVE_GRADIENT = "gradient norm relative to that at zero"

# Up to this many parameters a Hessian is formed and factored (8 MB, time d^3 / 3); above,
# conjugate gradients.
MAX_DENSE = 1000
_MAX_CG = 200
# Above this many rows a sample of a sixteenth is solved first, and so on for the sample.
_SAMPLE_ABOVE = 20_000
_SAMPLE_SHARE = 16
# The sample's own error is larger than this: 3 % of a mean over the 1,250 rows of the smallest.
_SAMPLE_TOL = 1e-3


def closed_form(problem: Problem, theta: np.ndarray, tol: float, max_iter: int) -> Solution:
    """Quadratic loss: the minimiser solves a linear system, from one pass over the rows."""
    gradient, model, moments = problem.gradient_at_zero, problem.model, problem.moments
    if moments is None or moments.products is None:
        H = model.hessian(np.zeros_like(gradient), problem.objective.sums)
    else:
        # The kinds' second moments, standardised by algebra. They are kept by kind, so that each
        # risk and prior costs only this sum.
        A = problem.objective.plain.A * problem.objective.risk.loss.curvature(np.zeros(1))
        move = moments.shift - model.mean  # x - mean = (x - shift) + offset
        column, corner = A @ moments.sums, float(A @ model.rows.totals())
        products = np.tensordot(A, moments.products, axes=1)
        products += np.outer(move, column) + np.outer(column, move) + corner * np.outer(move, move)
        H = model.assemble(products, column + corner * move, corner)
    H[np.diag_indices_from(H)] += 2 * problem.lam
    theta = _solve_symmetric(H, -gradient)
    residual = float(np.linalg.norm(H @ theta + gradient)) / problem.reference
    # R is quadratic: its value at theta follows from that at zero without another pass.
    zero_loss = float(problem.objective.risk.loss.value(np.zeros(1))[0])
    # For an unguarded risk of a linear-odd loss B is 0 and all weight is in A.
    at_zero = float(problem.objective.plain.A @ model.rows.totals()) * zero_loss
    value = at_zero + float(gradient @ theta + 0.5 * theta @ (H @ theta))
    # A singular system (no penalty, redundant columns) is solved in the least-squares sense.
    converged = residual <= max(tol, 1e-8)
    return Solution(theta, value, residual, RELATIVE_GRADIENT, n_iter=1, converged=converged)


def newton(problem: Problem, theta: np.ndarray, tol: float, max_iter: int) -> Solution:
    """Newton's method: Cholesky when a Hessian fits, conjugate gradients when it does not.

    From a cold start on many rows the problem is solved on a sample first. So little remains to be
    done on all rows that the sample's Hessian, improved by secants, can replace theirs.
    """
    task, inverse = problem.smooth_task, None
    small = None if theta.any() else problem.smaller(_SAMPLE_ABOVE, _SAMPLE_SHARE)
    if small is not None:
        # By way of a sample of its own, and so on, until 20,000 rows or fewer are left.
        theta = newton(small, theta, max(tol, _SAMPLE_TOL), max_iter).theta
        if len(theta) <= MAX_DENSE:
            sample = replace(task, model=small.model, sums=small.objective.sums)
            inverse = _solve_symmetric(sample.hessian(theta), np.eye(len(theta)))
            # One Newton step for the known part of the sample's error, without a pass over all
            # rows.
            theta = theta - inverse @ _sampling_error(problem, small, theta)
    minimum = minimize_smooth(task, theta, tol * problem.reference, max_iter, inverse)
    return minimum.as_solution(problem.reference, tol)


def _sampling_error(problem: Problem, small: Problem, theta: np.ndarray) -> np.ndarray:
    """The error of the sample's gradient because its rows have other means than all rows.

    If the derivatives r vary little within a kind, its part of the gradient is sum(r) times the
    mean row; the true means are known from the moments.
    """
    if problem.moments is None:
        return np.zeros_like(theta)
    slopes, sums = small.model.kind_slopes(theta, small.objective.plain)
    with np.errstate(divide="ignore", invalid="ignore"):  # a kind without rows has no mean
        means = problem.moments.sums / problem.model.rows.totals()[:, None] + problem.moments.shift
        missing = np.nan_to_num(means - sums / small.model.rows.totals()[:, None])
    return problem.model.with_constant(slopes @ missing / problem.model.scale, 0.0)


class Minimum(NamedTuple):
    """The end point of a minimisation of a smooth objective F."""

    theta: np.ndarray
    value: float
    norm: float  # of the gradient
    steps: int
    at_rounding: bool = False  # whether Newton's predicted gain was less than the rounding of F

    def as_solution(self, reference: float, tol: float) -> Solution:
        """The same, its gradient measured in units of `reference`."""
        optimality = self.norm / reference
        criterion = RELATIVE_GRADIENT + AT_ROUNDING * self.at_rounding
        converged = optimality <= tol or self.at_rounding
        return Solution(self.theta, self.value, optimality, criterion, self.steps, converged)


def minimize_smooth(
    task: SmoothTask,
    theta: np.ndarray,
    gradient_tol: float,
    max_iter: int,
    inverse: np.ndarray | None = None,
) -> Minimum:
    """Minimise a smooth convex F to ||gradient|| <= `gradient_tol`, or as far as rounding allows.

    With `inverse`, an approximate inverse Hessian, steps are quasi-Newton (BFGS) as long as each
    of them shrinks the gradient threefold; otherwise Hessians are computed.
    """
    value, gradient = task.value_and_gradient(theta)
    norm = float(np.linalg.norm(gradient))
    for step in range(max_iter):
        if norm <= gradient_tol:
            return Minimum(theta, value, norm, step)
        if inverse is not None:
            direction = -(inverse @ gradient)
        elif len(theta) <= MAX_DENSE:
            direction = _solve_symmetric(task.hessian(theta), -gradient)
        else:
            # Far from the minimum a rough direction is enough; the root of the norm keeps
            # convergence superlinear near it.
            forcing = min(0.1, norm**0.5)
            product = task.hessian_product(theta)
            direction = conjugate_gradients(product, -gradient, forcing * norm)
        trial = _line_search(task, theta, value, gradient, direction)
        if trial is None and inverse is not None:  # a poor direction, perhaps
            inverse = None
            continue
        new_theta, new_value, new_gradient = trial or (theta, value, gradient)
        new_norm = float(np.linalg.norm(new_gradient))
        if new_norm >= norm and _at_rounding(task, theta, value, gradient, direction):
            return Minimum(theta, value, norm, step, at_rounding=True)
        if trial is None:
            return Minimum(theta, value, norm, step)
        if inverse is not None:
            # The sample's Hessian is then no longer good enough: a pass for that of all rows pays.
            slow = new_norm > norm / 3
            pair = new_theta - theta, new_gradient - gradient
            inverse = None if slow else _bfgs_update(inverse, *pair)
        theta, value, gradient, norm = new_theta, new_value, new_gradient, new_norm
    return Minimum(theta, value, norm, max_iter)


def _at_rounding(
    task: SmoothTask, theta: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray
) -> bool:
    """Whether F falls by no more than its rounding on the way to where its gradient vanishes.

    By -g . d / 2, if d is a solution of H d = -g. If columns of very different size leave H without
    an inverse in floating point, d is not a solution, and nothing is known.
    """
    if -0.5 * float(gradient @ direction) > rounding(task.model, theta, value):
        return False
    dense = len(theta) <= MAX_DENSE
    image = task.hessian(theta) @ direction if dense else task.hessian_product(theta)(direction)
    return float(np.linalg.norm(image + gradient)) <= 0.5 * float(np.linalg.norm(gradient))


def _line_search(
    task: SmoothTask, theta: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Shorten the step until F falls by a share of what its slope predicts.

    F is convex along the line, so the slope at a step that is too long shows how far to go back.
    Near the minimum rounding hides changes of F; there a smaller gradient decides instead.
    """
    slope = float(gradient @ direction)
    noise = rounding(task.model, theta, value)
    norm = np.linalg.norm(gradient)
    size = 1.0
    for _ in range(40):
        trial = theta + size * direction
        trial_value, trial_gradient = task.value_and_gradient(trial)
        # Armijo's rule: a ten-thousandth of the predicted fall is enough.
        falls = trial_value <= value + 1e-4 * size * slope
        level = abs(trial_value - value) <= noise and np.linalg.norm(trial_gradient) < norm
        if falls or level:
            return trial, trial_value, trial_gradient
        # The slope is taken as linear in the step; the limits keep a poor fit from ending the
        # search.
        bend = slope - float(trial_gradient @ direction)
        size *= float(np.clip(slope / bend, 0.02, 0.8)) if bend else 0.02
    return None


def _bfgs_update(inverse: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Inverse Hessian that also maps the observed gradient change `y` to the step `s`."""
    sy = float(s @ y)
    # Only rounding does this to a convex F, and the update would no longer be positive definite.
    if sy <= 0:
        return inverse
    # Expanded to rank-two updates: the textbook form would multiply three d x d matrices.
    Hy = inverse @ y
    return (
        inverse
        + np.outer(s, s) * ((sy + y @ Hy) / sy**2)
        - (np.outer(Hy, s) + np.outer(s, Hy)) / sy
    )


def _solve_symmetric(H: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve H x = right for a positive definite H; nearly singular ones get the least norm."""
    try:
        factor = linalg.cho_factor(H, lower=True, check_finite=False)
        diagonal = np.diagonal(factor[0])
        # Pivots are squares of these: beyond a ratio of 1e14 the solution has no correct digit.
        if diagonal.min() > 1e-7 * diagonal.max():
            return linalg.cho_solve(factor, right, check_finite=False)
    except linalg.LinAlgError:
        pass
    if not np.isfinite(H).all():
        raise InputError(
            "sums over rows overflow to infinity, and no direction can be found: rescale the "
            "columns of X, or lower intercept_scaling."
        )
    return np.linalg.lstsq(H, right, rcond=1e-14 * len(H))[0]


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray, residual_tol: float
) -> np.ndarray:
    """Solve H x = right to ||H x - right|| <= `residual_tol`, H given by its product."""
    x = np.zeros_like(right)
    residual = right.copy()
    direction = residual.copy()
    squared = float(residual @ residual)
    for _ in range(_MAX_CG):
        if squared**0.5 <= residual_tol:
            break
        image = product(direction)
        bend = float(direction @ image)
        # A flat direction: what was reached before it is still a direction of descent.
        if bend <= 0:
            break
        x += (squared / bend) * direction
        residual -= (squared / bend) * image
        squared, previous = float(residual @ residual), squared
        direction = residual + (squared / previous) * direction
    # Not one step was possible: steepest descent.
    return x if x.any() else right


def lbfgs(problem: Problem, theta: np.ndarray, tol: float, max_iter: int) -> Solution:
    """SciPy's L-BFGS on the true objective: any smooth one, convex or not."""
    target = tol * problem.reference
    # Only the gradient ends the search, not a step that gains little.
    limits = {"ftol": 0.0, "maxfun": 10 * max_iter}
    result = _by_scipy(problem.smooth_task, theta, target, max_iter, **limits)
    value, norm = float(result.fun), float(np.linalg.norm(result.jac))
    finished = norm <= target
    # The predicted gain of another step, by the curvature of the last ones.
    predicted = 0.5 * float(result.jac @ result.hess_inv(result.jac))
    noise = rounding(problem.model, result.x, value)
    at_rounding = not finished and result.nit < max_iter and predicted <= noise
    return Minimum(result.x, value, norm, result.nit, at_rounding).as_solution(
        problem.reference, tol
    )


def minimize_rounded(
    problem: Problem, theta: np.ndarray, width: float, tol: float, max_iter: int
) -> tuple[np.ndarray, float]:
    """Minimise an unguarded problem with its kinks rounded over `width`, roughly and fast.

    Ranks of scores are near those of the sharp problem's minimiser. Returns theta and the rounded
    objective.
    """
    sums = [s.smoothed(width) for s in problem.objective.sums]
    task = SmoothTask(problem.model, sums, problem.lam)
    _, gradient = task.value_and_gradient(np.zeros_like(theta))
    target = tol * float(np.linalg.norm(gradient))
    # Near a minimum F exceeds it by about the square of the gradient.
    result = _by_scipy(task, theta, target, max_iter, ftol=tol**2)
    return result.x, float(result.fun)


def _by_scipy(
    task: SmoothTask, theta: np.ndarray, gradient_tol: float, max_iter: int, **options: float
) -> Any:
    # SciPy looks at the largest entry of the gradient, which is at least norm / sqrt(d).
    options |= {"maxiter": max_iter, "maxcor": 20, "gtol": gradient_tol / len(theta) ** 0.5}
    return minimize(task.value_and_gradient, theta, jac=True, method="L-BFGS-B", options=options)
