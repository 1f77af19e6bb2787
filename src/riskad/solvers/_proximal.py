"""Proximal Newton for smooth convex risks with an l1 penalty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from riskad.solvers._problem import Problem, SmoothTask, Solution
from riskad.solvers._smooth import MAX_DENSE

__all__ = ["proximal"]

CRITERION = "least subgradient norm relative to the risk's gradient at zero"

Operator = Callable[[np.ndarray], np.ndarray]


def proximal(problem: Problem, theta: np.ndarray, tol: float, max_iter: int) -> Solution:
    """Minimise R(theta) + lam ||theta||_1.

    Each step minimises a quadratic model of R plus the penalty, which costs no pass over the rows
    when a Hessian fits, and searches the line towards that minimiser.
    """
    lam = problem.lam
    risk = SmoothTask(problem.model, problem.objective.sums, lam=0.0)
    value, gradient = risk.value_and_gradient(theta)
    value += lam * np.abs(theta).sum()
    target = tol * problem.reference
    step = 0
    while (norm := _subgradient_norm(theta, gradient, lam)) > target and step < max_iter:
        hessian, matrix = _hessian(risk, theta)
        goal = _minimise_model(theta, gradient, hessian, matrix, lam, residual=0.1 * norm)
        moved = _line_search(risk, theta, value, gradient, goal - theta, lam)
        if moved is None:
            break
        theta, value, gradient = moved
        step += 1
    optimality = norm / problem.reference
    return Solution(theta, float(value), optimality, CRITERION, step, optimality <= tol)


def _hessian(risk: SmoothTask, theta: np.ndarray) -> tuple[Operator, np.ndarray | None]:
    if len(theta) > MAX_DENSE:
        return risk.hessian_product(theta), None
    H = risk.hessian(theta)
    return H.__matmul__, H


def _subgradient_norm(theta: np.ndarray, gradient: np.ndarray, lam: float) -> float:
    """Norm of the smallest element of gradient + lam d||theta||_1; 0 exactly at a minimum."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - lam, 0)
    return float(np.linalg.norm(np.where(theta == 0, at_zero, gradient + lam * np.sign(theta))))


def _soft(x: np.ndarray, threshold: float) -> np.ndarray:
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0)


def _minimise_model(
    theta: np.ndarray,
    gradient: np.ndarray,
    hessian: Operator,
    matrix: np.ndarray | None,
    lam: float,
    residual: float,
) -> np.ndarray:
    """Minimise g.(x - theta) + (x - theta).H (x - theta) / 2 + lam ||x||_1 by FISTA with restarts.

    Once the signs have settled the rest is a linear system, solved directly where H is at hand.
    """
    size = 1.05 * _largest_eigenvalue(hessian, len(theta))
    x = point = theta
    momentum = 1.0
    for iteration in range(2000):
        slope = gradient + hessian(point - theta)
        new = _soft(point - slope / size, lam / size)
        # Momentum that points uphill is dropped (adaptive restart).
        restart = float((point - new) @ (new - x)) > 0
        new_momentum = 1.0 if restart else (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        point = new if restart else new + (momentum - 1) / new_momentum * (new - x)
        x, momentum = new, new_momentum
        if iteration % 20 == 19:
            if matrix is not None:
                x = point = _settle_signs(x, theta, gradient, matrix, lam)
            if _subgradient_norm(x, gradient + hessian(x - theta), lam) <= residual:
                break
    return x


def _settle_signs(
    x: np.ndarray, theta: np.ndarray, gradient: np.ndarray, H: np.ndarray, lam: float
) -> np.ndarray:
    """The model's minimiser if the signs of `x` are right; `x` itself if that contradicts them."""
    support = np.flatnonzero(x)
    if len(support) == 0:
        return x
    right = (H @ theta - gradient)[support] - lam * np.sign(x[support])
    inner = H[np.ix_(support, support)]
    solved = np.linalg.lstsq(inner, right, rcond=1e-12)[0]
    if not np.array_equal(np.sign(solved), np.sign(x[support])):
        return x
    better = np.zeros_like(x)
    better[support] = solved
    return better


def _largest_eigenvalue(hessian: Operator, n: int) -> float:
    x = np.random.default_rng(0).standard_normal(n)
    size = 0.0
    for _ in range(30):
        x /= np.linalg.norm(x)
        x = hessian(x)
        size, previous = float(np.linalg.norm(x)), size
        if size == 0 or abs(size - previous) <= 1e-3 * size:
            break
    return size or 1.0


def _line_search(
    risk: SmoothTask,
    theta: np.ndarray,
    value: float,
    gradient: np.ndarray,
    direction: np.ndarray,
    lam: float,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    promised = float(gradient @ direction)
    promised += lam * float(np.abs(theta + direction).sum() - np.abs(theta).sum())
    rounding = 1e-14 * (1 + abs(value))
    size = 1.0
    for _ in range(40):
        # At size 1 the goal itself, so that its exact zeros survive.
        trial = theta + size * direction if size < 1 else _exact_zeros(theta, direction)
        risk_value, trial_gradient = risk.value_and_gradient(trial)
        trial_value = risk_value + lam * np.abs(trial).sum()
        if trial_value <= value + 1e-4 * size * promised + rounding:
            return trial, trial_value, trial_gradient
        size *= 0.5
    return None


def _exact_zeros(theta: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.where(direction == -theta, 0.0, theta + direction)
