r"""Difference of convex functions: hinge, ramp, sigmoid, and guarded risks.

Write the objective as F = g - h with g, h convex (`RowSum.dc_split`). For a guard,
max(0, G) with G = G1 - G2 is max(G1, G2) - G2, so G2 joins h and max(G1, G2) joins g. One step
replaces h by its tangent at theta_k and minimises the convex majorant

    S_k(theta) = g(theta) - h(theta_k) - h'(theta_k) . (theta - theta_k),

which touches F at theta_k; so F never rises. S_k is 2 lam-strongly convex, and a lower bound
D <= min S_k is always known. Replace each kink by the line below it with the slope at theta of the
kink rounded over a width gamma, and the max by a mixture tau G1 + (1 - tau) G2: the result, T, is
nowhere above S, and

    D = T(theta) - ||T'(theta)||^2 / (4 lam).

F(theta_k) - D bounds what a step can still gain: it is the stopping test, and zero only at a
critical point. Without a concave part it is the duality gap of the problem itself. This also holds
for the guarded risks of linear-odd losses, which are convex: plain + max(0, G) is the maximum of
the mixtures plain + tau G, and each of these is convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from riskad.core.objective import RowSum, merge
from riskad.rows.linear import LinearModel
from riskad.solvers._problem import AT_ROUNDING, Problem, SmoothTask, Solution
from riskad.solvers._smooth import minimize_smooth

_CONVEX_CRITERION = "duality gap relative to the objective at zero"
_CRITERION = "certified decrease still possible, relative to the objective at zero"

_N_STARTS = 3
# Kinks are not rounded over less: curvatures of 1 / gamma leave no digits in gradients.
_LEAST_GAMMA = 1e-9
# A bound this close to the objective, relative to 1 + |F|, is as close as rounding and kinks
# allow.
_CLOSEST = 1e-11
# As for Newton's method, a sample is solved first; kinks need more rows to show their place.
_SAMPLE_ABOVE = 50_000
_SAMPLE_SHARE = 16


@dataclass
class _Warm:
    """The end of the last convex step, where the next one starts."""

    theta: np.ndarray
    gamma: float = 1.0
    tau: float = 1.0


@dataclass(frozen=True)
class _Majorant:
    """S(theta) = sum(convex) + max(sum(first), sum(second)) + lam ||theta||^2 + tilt . theta."""

    model: LinearModel
    convex: Sequence[RowSum]
    first: Sequence[RowSum]
    second: Sequence[RowSum]
    lam: float
    tilt: np.ndarray

    def minimise(self, warm: _Warm, gap: float, max_iter: int) -> tuple[np.ndarray, float, float]:
        """Return theta, S(theta) and a lower bound on min S that lies within `gap` if it can."""
        if not self.first and not self.second:
            warm.theta, value, lower, _ = self._minimise_mixture(warm, gap, max_iter)
            return warm.theta, value, lower
        # delta(tau) = G1 - G2 at the mixture's minimiser falls with tau; its root balances them.
        bracket = _Bracket()
        best, value, bound = warm.theta, np.inf, -np.inf
        # A bound only: 60 halvings would exhaust the 52 bits of tau, and false position is faster.
        for _ in range(60):
            warm.theta, reached, lower, delta = self._minimise_mixture(warm, gap / 2, max_iter)
            bound = max(bound, lower)
            if reached < value:
                best, value = warm.theta, reached
            # At an end of [0, 1] whose sum is the larger one, the mixture is the maximum itself.
            if value - bound <= gap or (delta >= 0 and warm.tau == 1) or (delta <= 0 == warm.tau):
                break
            warm.tau = bracket.narrow(warm.tau, delta)
        return best, value, bound

    def _minimise_mixture(
        self, warm: _Warm, gap: float, max_iter: int
    ) -> tuple[np.ndarray, float, float, float]:
        """Minimise with tau G1 + (1 - tau) G2 in place of the max; also return G1 - G2."""
        theta, tau = warm.theta, warm.tau
        parts = [*self.convex, *(s.scaled(tau) for s in self.first)]
        mixed = merge([*parts, *(s.scaled(1 - tau) for s in self.second)])
        smooth = all(s.loss.smooth for s in mixed)
        # The last step's width is nearly right; one size coarser is cheaper to begin with.
        warm.gamma = min(1.0, 10 * warm.gamma)
        bound = -np.inf
        while True:
            rounded = mixed if smooth else [s.smoothed(warm.gamma) for s in mixed]
            task = SmoothTask(self.model, rounded, self.lam, self.tilt)
            # Spends a quarter of the gap on the gradient: ||T'||^2 / (4 lam) = gap / 4.
            gradient_tol = (self.lam * gap) ** 0.5
            if self.first:  # the balance G1 - G2 moves with theta, not with its square
                gradient_tol *= 1e-3
            theta, lower, norm, *_ = minimize_smooth(task, theta, gradient_tol, max_iter)
            value, mixture, delta = self._values(theta, tau)
            if not smooth:
                lines = sum(self.model.values(theta, rounded, support=True))
                lower = lines + self._quadratic(theta)
            lower -= norm**2 / (4 * self.lam)
            if smooth or mixture - lower <= gap:
                return theta, value, lower, delta
            bound = max(bound, lower)
            if warm.gamma < _LEAST_GAMMA:
                return theta, value, bound, delta
            # Tenfold steps: each width starts near the minimum of the last one and takes a few
            # Newton steps.
            warm.gamma *= 0.1

    def _quadratic(self, theta: np.ndarray) -> float:
        return self.lam * float(theta @ theta) + float(self.tilt @ theta)

    def _values(self, theta: np.ndarray, tau: float) -> tuple[float, float, float]:
        """S, S with the mixture in place of the max, and G1 - G2, all with sharp kinks."""
        values = self.model.values(theta, [*self.convex, *self.first, *self.second])
        n, m = len(self.convex), len(self.convex) + len(self.first)
        base = sum(values[:n]) + self._quadratic(theta)
        first, second = sum(values[n:m]), sum(values[m:])
        return base + max(first, second), base + tau * first + (1 - tau) * second, first - second


@dataclass
class _Bracket:
    """Search on [0, 1] for the root of a falling function: false position, Illinois variant."""

    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None
    last: int = 0

    def narrow(self, tau: float, delta: float) -> float:
        """Enter delta(tau) and return where to look next."""
        side = 1 if delta > 0 else -1
        # The same end moved twice: halving the other's value keeps the search from creeping.
        if side > 0:
            if self.high and self.last > 0:
                self.high = self.high[0], self.high[1] / 2
            self.low = tau, delta
        else:
            if self.low and self.last < 0:
                self.low = self.low[0], self.low[1] / 2
            self.high = tau, delta
        self.last = side
        # An end that was not tried yet is tried before anything between.
        if self.low is None:
            return 0.0
        if self.high is None:
            return 1.0
        # At least 1 % of the bracket per step, even if one end's value dwarfs the other's.
        (low, above), (high, below) = self.low, self.high
        return low + float(np.clip(above / (above - below), 0.01, 0.99)) * (high - low)


def dc(problem: Problem, theta: np.ndarray, tol: float, max_iter: int, seed: int = 0) -> Solution:
    """Convex-concave procedure from several starts; the lowest objective wins.

    From a cold start on many rows the starts compete on a sample, and only the winner continues
    with all rows.
    """
    small = None if theta.any() else problem.smaller(_SAMPLE_ABOVE, _SAMPLE_SHARE)
    if small is not None:
        # The sample is sampled again, until it is small: most steps are then taken on few rows.
        theta = dc(small, theta, tol, max_iter, seed).theta
    # The unit of the stopping test: the objective of a score of 0 for every row.
    scale = abs(problem.value(np.zeros_like(theta))) or 1.0
    # Under a large lambda even the whole decrease, at most ||F'(0)||^2 / (4 lam), is a small share
    # of F(0): measured by that alone, zero would pass for a solution.
    scale = min(scale, 100 * problem.reference**2 / (4 * problem.lam))
    # Convex sums (g, h) of the plain and the guarded part, each g - h.
    if problem.objective.convex:
        # In a convex guarded risk the guarded part need not be convex by itself: each mixture with
        # the plain one is, so it is left whole, and nothing is concave. As hinges, which can be
        # rounded; a loss of its own class cannot.
        pieces = problem.objective.risk.loss.dc_parts()[0]
        splits = [([replace(s, loss=pieces)], list[RowSum]()) for s in problem.objective.sums]
    else:
        splits = [s.dc_split() for s in problem.objective.sums]
    concave = [s for _, h in splits for s in h]
    starts = [theta]
    # A convex loss leaves little to choose, since only its share a of the anomalies is concave; and
    # a warm start is already near a good minimum. Otherwise starts compete.
    compete = bool(concave) and not problem.objective.risk.loss.convex and not theta.any()
    if compete and small is None:
        rng = np.random.default_rng(seed)
        # Scores of standardised rows then have a standard deviation of about 1.
        spread = 1 / len(theta) ** 0.5
        starts += [spread * rng.standard_normal(len(theta)) for _ in range(_N_STARTS - 1)]
    # Each to its end: the lowest of rough ends need not be the lowest in the end.
    runs = [_descend(problem, splits, concave, start, tol * scale, max_iter) for start in starts]
    theta, history, gain, n_iter = min(runs, key=lambda run: run[1][-1])
    value, finished = history[-1], gain <= tol * scale
    at_rounding = bool(not finished and gain <= _closest(value))  # numbers may be NumPy's
    criterion = (_CRITERION if concave else _CONVEX_CRITERION) + AT_ROUNDING * at_rounding
    return Solution(theta, value, gain / scale, criterion, n_iter, finished or at_rounding, history)


def _descend(
    problem: Problem,
    splits: Sequence[tuple[list[RowSum], list[RowSum]]],
    concave: Sequence[RowSum],
    theta: np.ndarray,
    gap: float,
    max_iter: int,
) -> tuple[np.ndarray, list[float], float, int]:
    (convex, _), *guard = splits
    first, second = guard[0] if guard else ([], [])
    history = [problem.value(theta)]
    warm = _Warm(theta)
    gain = np.inf
    for iteration in range(1, max_iter + 1):
        # A pass over the rows for each step; with nothing concave there is one step and no pass.
        tangent, h = np.zeros_like(theta), 0.0
        for part, slope in problem.model.values_and_gradients(theta, concave) if concave else ():
            tangent, h = tangent + slope, h + part
        majorant = _Majorant(problem.model, convex, first, second, problem.lam, -tangent)
        step_gap = gap / 4
        if concave and gain > gap:
            # Early steps need not be exact: a tenth of what the last one could gain is enough.
            step_gap = max(step_gap, min(gain, 1e3 * gap) / 10)
        new, value, lower = majorant.minimise(warm, step_gap, max_iter)
        if not concave:
            return new, [*history, value], max(value - lower, 0.0), iteration
        # majorant + tangent . theta - h touches F at theta
        gain = history[-1] - (lower + float(tangent @ theta) - h)
        new_value = problem.value(new)
        # The majorant promises a fall; only rounding or an inexact minimum prevents it.
        if new_value < history[-1]:
            theta = new
            history.append(new_value)
        elif step_gap <= gap / 4 or gain <= _closest(new_value):
            return theta, history, max(gain, 0.0), iteration
        if gain <= gap:
            return theta, history, max(gain, 0.0), iteration
    return theta, history, gain, max_iter


def _closest(value: float) -> float:
    """The smallest gap to a bound that floating point can certify."""
    return _CLOSEST * (1 + abs(value))
