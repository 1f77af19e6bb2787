"""Quality of probabilities: Brier score, log score, reliability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t

from riskad.core.checks import InputError
from riskad.metrics.estimates import (
    Estimate,
    rate_with_interval,
    scores_by_kind,
    share_interval,
)

__all__ = ["Reliability", "brier_score", "log_score", "reliability"]


def brier_score(y: Any, probabilities: Any, pi_n: Any = None, confidence: float = 0.95) -> Estimate:
    """Mean squared error of probabilities of being an anomaly, with an interval.

        pi_n mean_n (1 - p)^2 + (1 - pi_n) mean_p p^2

    over labelled anomalies and normal rows; the lower the better. `pi_n` is the anomaly rate where
    the probabilities are used, a number or an estimate that has it; None is the share of the
    labels.

    Examples
    --------
    >>> print(brier_score([1, 1, 1, -1, -1, -1], [0.1, 0.2, 0.1, 0.9, 0.6, 0.7], pi_n=0.1))
    0.027 (95% interval 0.000 to 0.070; 3 normal, 3 anomalies)
    """
    return _mean_loss(y, probabilities, pi_n, confidence, np.square)


def log_score(y: Any, probabilities: Any, pi_n: Any = None, confidence: float = 0.95) -> Estimate:
    """Mean negative log-likelihood of probabilities of being an anomaly, with an interval.

        - pi_n mean_n log p - (1 - pi_n) mean_p log(1 - p)

    as in `brier_score`. A wrong probability of 0 or 1 costs as much as one of 1e-12.

    Examples
    --------
    >>> print(log_score([1, 1, 1, -1, -1, -1], [0.1, 0.2, 0.1, 0.9, 0.6, 0.7], pi_n=0.1))
    0.163 (95% interval 0.002 to 0.323; 3 normal, 3 anomalies)
    """
    return _mean_loss(
        y, probabilities, pi_n, confidence, lambda wrong: -np.log(np.maximum(1 - wrong, 1e-12))
    )


def _mean_loss(
    y: Any,
    probabilities: Any,
    pi_n: Any,
    confidence: float,
    loss: Callable[[np.ndarray], np.ndarray],
) -> Estimate:
    """Mean loss of |truth - p| at an anomaly rate; the interval is Student's, never below 0."""
    anomalies, normals = _probabilities_by_kind(y, probabilities, confidence)
    m, n = len(anomalies), len(normals)
    rate, *_ = rate_with_interval(pi_n, default=m / (m + n))
    parts = (rate, loss(1 - anomalies)), (1 - rate, loss(normals))
    value = float(sum(share * each.mean() for share, each in parts))
    if min(m, n) < 2:
        return Estimate(value, 0.0, float("inf"), n, m, confidence)
    variance = sum(share**2 * each.var(ddof=1) / len(each) for share, each in parts)
    spread = float(t.ppf(0.5 + confidence / 2, min(m, n) - 1) * variance**0.5)
    return Estimate(value, max(value - spread, 0.0), value + spread, n, m, confidence)


def _probabilities_by_kind(
    y: Any, probabilities: Any, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    anomalies, normals = scores_by_kind(y, probabilities, confidence, "a score of probabilities")
    for each in (anomalies, normals):
        if each.min() < 0 or each.max() > 1:
            raise InputError(
                "probabilities lie between 0 and 1; scores become probabilities by "
                "anomaly_probability of a calibrated detector."
            )
    return anomalies, normals


@dataclass(frozen=True)
class Reliability:
    """For bins of probabilities: their mean, and the share of anomalies with its interval."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    """Number of labelled rows in each bin."""

    def __str__(self) -> str:
        rows = zip(self.predicted, self.observed, self.low, self.high, self.count, strict=True)
        return "\n".join(
            f"{p:.3f} said, {o:.3f} seen ({low:.3f} to {high:.3f}; {count} rows)"
            for p, o, low, high, count in rows
        )


def reliability(
    y: Any, probabilities: Any, pi_n: Any = None, bins: int = 10, confidence: float = 0.95
) -> Reliability:
    """Compare predicted probabilities p with the observed share of anomalies.

    Bins have equal width; empty ones are left out. The interval of a share is the exact one
    (Clopper-Pearson). `pi_n` as in `brier_score`: odds in a bin are changed by the same factor as
    the odds of anomalies among all labelled rows.

    Examples
    --------
    >>> print(reliability([1, 1, 1, -1, 1, -1], [0.1, 0.1, 0.1, 0.1, 0.7, 0.9], bins=2))
    0.100 said, 0.250 seen (0.006 to 0.806; 4 rows)
    0.800 said, 0.500 seen (0.013 to 0.987; 2 rows)
    """
    anomalies, normals = _probabilities_by_kind(y, probabilities, confidence)
    m, n = len(anomalies), len(normals)
    rate, *_ = rate_with_interval(pi_n, default=m / (m + n))
    weight = np.array([(1 - rate) / n, rate / m])  # of a normal row and of an anomaly
    p, kind = np.concatenate([normals, anomalies]), np.repeat([0, 1], [n, m])
    bin_of = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p, side="right")
    rows = []
    for own in (bin_of == each for each in np.unique(bin_of)):
        hits, count = int(kind[own].sum()), int(own.sum())
        shares = hits / count, *share_interval(hits, count, confidence)
        at_rate = [q * weight[1] / (q * weight[1] + (1 - q) * weight[0]) for q in shares]
        rows.append((np.average(p[own], weights=weight[kind[own]]), *at_rate, count))
    return Reliability(*map(np.array, zip(*rows, strict=True)))
