"""Proximal Newton for smooth convex risks with an l1 penalty."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from riskad.solvers._problem import AT_ROUNDING, Problem, SmoothTask, Solution, rounding
from riskad.solvers._smooth import MAX_DENSE

_CRITERION = "least subgradient norm relative to the risk's gradient at zero"

# An objective that has fallen to minus this many times its first value is unbounded.
_NO_MINIMUM = 1e4
# Differences of the objective that count as rounding, in units of its last place.
_UNITS = 50

Operator = Callable[[np.ndarray], np.ndarray]


def proximal(problem: Problem, theta: np.ndarray, tol: float, max_iter: int) -> Solution:
    """Minimise R(theta) + lam ||theta||_1.

    Each step minimises a quadratic model of R plus the penalty, which costs no pass over the rows
    when a Hessian fits, and searches the line towards that minimiser.
    """
    lam = problem.lam
    # The risk alone: the penalty has kinks and is treated apart in every step.
    risk = SmoothTask(problem.model, problem.objective.sums, lam=0.0)
    value, gradient = risk.value_and_gradient(theta)
    value += lam * np.abs(theta).sum()
    target = tol * problem.reference
    step = 0
    # Below Theorem 1's lambda an unbiased risk may fall for ever: steps then grow until max_iter.
    bottom = -_NO_MINIMUM * abs(value)
    norm = _subgradient_norm(theta, gradient, lam)
    at_rounding = False
    while norm > target and step < max_iter and value >= bottom:
        # An inexact Newton step: ten times closer to the model's minimum than theta is enough.
        if len(theta) <= MAX_DENSE:
            goal = _as_lasso(risk.hessian(theta), theta, gradient, lam, 0.1 * norm)
        else:
            goal = _fista(risk.hessian_product(theta), theta, gradient, lam, 0.1 * norm)
        trial = _line_search(risk, theta, value, gradient, goal - theta, lam)
        new_norm = norm if trial is None else _subgradient_norm(trial[0], trial[2], lam)
        if new_norm >= norm:
            at_rounding = _at_rounding(risk, theta, value, gradient, goal, lam)
        if trial is None or at_rounding:
            break
        theta, value, gradient = trial
        norm = new_norm
        step += 1
    optimality = norm / problem.reference
    criterion = _CRITERION + AT_ROUNDING * at_rounding
    converged = optimality <= tol or at_rounding
    return Solution(theta, float(value), optimality, criterion, step, converged)


def _at_rounding(
    risk: SmoothTask,
    theta: np.ndarray,
    value: float,
    gradient: np.ndarray,
    goal: np.ndarray,
    lam: float,
) -> bool:
    """Whether the objective falls by no more than its rounding on the way to its minimum.

    The quadratic model predicts this, if `goal` is where the model is lowest: where its subgradient
    is much smaller, or only the rounding of terms as large as lam and of scores.
    """
    predicted = _forecast(theta, gradient, goal - theta, lam)
    if -predicted > rounding(risk.model, theta, value, _UNITS):
        return False
    slope = gradient + risk.hessian_product(theta)(goal - theta)
    term = risk.model.rows.eps * lam + risk.model.score_rounding(theta)
    noise = 10 * term * len(theta) ** 0.5
    remaining = _subgradient_norm(goal, slope, lam)
    return remaining <= max(0.5 * _subgradient_norm(theta, gradient, lam), noise)


def _as_lasso(
    H: np.ndarray, theta: np.ndarray, gradient: np.ndarray, lam: float, residual: float
) -> np.ndarray:
    """Minimise g.(x - theta) + (x - theta).H (x - theta) / 2 + lam ||x||_1: a lasso.

    With design S and target t, S^T S = H and S^T t = H theta - g. Directions in which R is flat get
    a trace of curvature; the line search corrects for this.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    n = len(H)
    # Curvature for flat directions: a hundred-millionth of the mean eigenvalue, trace / n.
    flat = max(1e-8 * float(np.trace(H)) / n, 1e-10)
    size, directions = np.linalg.eigh(H + flat * np.eye(n))
    root = np.sqrt(np.maximum(size, flat))
    design = root[:, None] * directions.T
    target = (directions.T @ (H @ theta + flat * theta - gradient)) / root
    lasso = Lasso(alpha=lam / n, fit_intercept=False, warm_start=True, max_iter=10_000)
    # scikit-learn stops at a duality gap of tol ||t||^2: this asks for a thousandth of residual^2.
    lasso.set_params(tol=min(1e-4, 1e-3 * residual**2 / float(target @ target)))
    # A warm start: near the end most coefficients are right, and zeros stay zeros.
    lasso.coef_ = theta.copy()
    with warnings.catch_warnings():  # a rough step is enough: the outer loop continues
        warnings.simplefilter("ignore", ConvergenceWarning)
        return lasso.fit(design, target).coef_


def _fista(
    hessian: Operator, theta: np.ndarray, gradient: np.ndarray, lam: float, residual: float
) -> np.ndarray:
    """The same without H as a matrix: accelerated proximal gradients with restarts."""
    # Power iteration nears the eigenvalue from below, and steps longer than its inverse diverge.
    size = 1.1 * _largest_eigenvalue(hessian, len(theta))
    x = point = theta
    momentum = 1.0
    for iteration in range(1000):
        slope = gradient + hessian(point - theta)
        new = point - slope / size
        new = np.sign(new) * np.maximum(np.abs(new) - lam / size, 0)
        # Momentum that points uphill is dropped (adaptive restart).
        restart = float((point - new) @ (new - x)) > 0
        new_momentum = 1.0 if restart else (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        point = new if restart else new + (momentum - 1) / new_momentum * (new - x)
        x, momentum = new, new_momentum
        # The test costs a product with H, as much as a step: so every tenth time.
        checked = iteration % 10 == 9
        if checked and _subgradient_norm(x, gradient + hessian(x - theta), lam) <= residual:
            break
    return x


def _subgradient_norm(theta: np.ndarray, gradient: np.ndarray, lam: float) -> float:
    """Norm of the smallest element of gradient + lam d||theta||_1; 0 exactly at a minimum."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - lam, 0)
    return float(np.linalg.norm(np.where(theta == 0, at_zero, gradient + lam * np.sign(theta))))


def _largest_eigenvalue(hessian: Operator, n: int) -> float:
    # A random start has a part along every eigenvector, which a constant one may lack.
    x = np.random.default_rng(0).standard_normal(n)
    size = 0.0
    for _ in range(100):
        x /= np.linalg.norm(x)
        x = hessian(x)
        size, previous = float(np.linalg.norm(x)), size
        if size == 0 or abs(size - previous) <= 1e-4 * size:
            break
    return size or 1.0


def _forecast(theta: np.ndarray, gradient: np.ndarray, direction: np.ndarray, lam: float) -> float:
    """By how much the objective would change if R were linear."""
    change = float(np.abs(theta + direction).sum() - np.abs(theta).sum())
    return float(gradient @ direction) + lam * change


def _line_search(
    risk: SmoothTask,
    theta: np.ndarray,
    value: float,
    gradient: np.ndarray,
    direction: np.ndarray,
    lam: float,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    predicted = _forecast(theta, gradient, direction, lam)
    noise = rounding(risk.model, theta, value, _UNITS)
    size = 1.0
    for _ in range(40):
        # At size 1 the goal itself, so that its exact zeros survive.
        trial = theta + size * direction
        if size == 1:
            trial[direction == -theta] = 0.0
        # Value and gradient in one pass: the gradient of the accepted trial starts the next step.
        risk_value, trial_gradient = risk.value_and_gradient(trial)
        trial_value = risk_value + lam * np.abs(trial).sum()
        # Armijo's rule: a ten-thousandth of the predicted fall is enough.
        if trial_value <= value + 1e-4 * size * predicted + noise:
            return trial, trial_value, trial_gradient
        size *= 0.5
    return None
