"""Probabilities from scores: a line through held-out labelled rows, with the slope they show.

With s the score of a row and z = (s - mean) / spread over labelled rows,

    log P(anomaly) / P(normal)  =  c + b z .

b is found by logistic regression with a weak penalty, b^2 / (2 * 2.5^2), so that kinds that do not
overlap have a solution, too. Ten labelled anomalies can show a slope by chance. With R twice the
gain in log likelihood over b = 0, and m the number of anomalies, the estimate is shrunk,

    b  ->  b max(0, 1 - 3 / R) m / (m + 1),

and to 0 if it is negative: then all rows have the same probability. R is used instead of
(b / error)^2, which is small if the kinds are far apart. With 1 in place of 3 (James and Stein's
rule for one number) and without m, probabilities are worse than a constant more often: a line that
is too steep costs more than one that is too flat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit, logit, xlogy

_WEAK = 1 / 2.5**2
_SHRINKAGE = 3.0
_STEPS = 50  # of Newton's method: a bound, which bisection alone would need for 15 digits


@dataclass(frozen=True)
class ScoreLine:
    """log odds of being an anomaly = intercept + slope * score."""

    intercept: float
    slope: float
    error: float  # standard error of the slope
    steepest: float  # the slope before shrinking

    @classmethod
    def through(cls, scores: np.ndarray, anomalous: np.ndarray) -> Self:
        """The line through rows of both kinds; its mean over them is the share of anomalies."""
        middle, spread = float(scores.mean()), float(scores.std()) or 1.0
        # In units of the spread, so that the penalty means the same for every detector.
        z, y = (scores - middle) / spread, anomalous.astype(float)
        m, n = int(anomalous.sum()), len(anomalous)
        # The intercept is hardly penalised, just enough that the Hessian has an inverse.
        Z, penalty = np.column_stack([np.ones_like(z), z]), np.diag([1e-8, _WEAK])
        start = np.array([logit((y.sum() + 0.5) / (n + 1)), 0.0])
        theta, _ = newton_logistic(Z, y, penalty, start)
        p, b = expit(Z @ theta), float(theta[1])
        variance = np.linalg.inv((Z.T * (p * (1 - p))) @ Z + penalty)
        error = float(np.sqrt(variance[1, 1]))
        steep = cls(0.0, max(b, 0.0) / spread, error / spread, max(b, 0.0) / spread)
        # Half a row of each kind more: with one kind alone the rate would be 0 or 1.
        steep = steep.at_rate((m + 0.5) / (n + 1), scores)
        if b <= 0:
            return steep
        p = np.where(anomalous, steep.probabilities(scores), 1 - steep.probabilities(scores))
        # The log likelihood, compared with that of the probability m / n for all rows.
        best_constant = float(xlogy(m, m / n) + xlogy(n - m, 1 - m / n))
        gain = 2 * (float(np.log(np.maximum(p, 1e-300)).sum()) - best_constant)
        # Positive part, as of James and Stein: a gain below 3 is what chance alone would show.
        factor = max(0.0, 1 - _SHRINKAGE / max(gain, 1e-12)) * m / (m + 1)
        # The intercept belongs to the slope: it is found again for the flatter line.
        shrunk = replace(steep, slope=steep.slope * factor)
        return shrunk.at_rate((m + 0.5) / (n + 1), scores)

    def at_rate(self, rate: float, scores: np.ndarray) -> Self:
        """The line with the same slope whose mean probability over these rows is the rate."""
        [intercept] = intercepts(self.slope * np.asarray(scores)[None, :], np.array([rate]))
        return replace(self, intercept=float(intercept))

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Probability of being an anomaly, row by row."""
        return np.asarray(expit(self.intercept + self.slope * np.asarray(scores)))

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Slopes as compatible with the labelled rows as the one before shrinking, none below 0."""
        return np.maximum(rng.normal(self.steepest, self.error, size), 0)


def intercepts(terms: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The c with mean_i expit(c + terms_i) = rate, for each row of terms and its rate."""
    log_odds = logit(rates)
    # c lies between the values that the smallest and the largest term would need.
    low, high = log_odds - terms.max(axis=1), log_odds - terms.min(axis=1)
    c = np.clip(log_odds - terms.mean(axis=1), low, high)
    for _ in range(_STEPS):
        p = expit(c[:, None] + terms)
        excess = p.mean(axis=1) - rates
        converged = np.abs(excess) <= 1e-9 * rates
        if converged.all():
            break
        low, high = np.where(excess < 0, c, low), np.where(excess > 0, c, high)
        step = c - excess / np.maximum((p * (1 - p)).mean(axis=1), 1e-300)
        # Newton's step, or bisection if it leaves the bounds: far from the solution expit is flat.
        inside = (step > low) & (step < high)
        c = np.where(converged, c, np.where(inside, step, (low + high) / 2))
    return np.asarray(c)


def newton_logistic(
    Z: np.ndarray, y: np.ndarray, penalty: np.ndarray, start: np.ndarray, weight: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression with a quadratic penalty: coefficients, and the Hessian."""

    def slopes(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = expit(Z @ theta)
        return weight * Z.T @ (p - y) + penalty @ theta, p

    theta = start
    for number in range(3 * _STEPS):
        gradient, p = slopes(theta)
        hessian = weight * (Z.T * (p * (1 - p))) @ Z + penalty
        step = np.linalg.solve(hessian, gradient)
        size = float(np.linalg.norm(step))
        length = min(1, 2 / max(size, 1e-12))  # Newton, kept short
        # Of kinds that hardly overlap such steps may go to and fro for ever: none goes too far.
        while number >= _STEPS and length > 1e-3 and slopes(theta - step * length)[0] @ step < 0:
            length /= 2
        theta = theta - step * length
        if size < 1e-8:
            break
    return theta, hessian
