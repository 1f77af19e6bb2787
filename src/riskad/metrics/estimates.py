"""A number estimated from labelled rows, with its interval, and what all such estimates need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.stats import beta

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, check_codes
from riskad.files.fields import COUNT, SHARE


@dataclass(frozen=True)
class Estimate:
    """A number estimated from labelled rows, with its interval.

    However it is printed or formatted, the interval is included: two labelled anomalies give a
    number like 0.95, and only the interval shows how uncertain that is.

    Examples
    --------
    >>> f"{Estimate(0.9, 0.6, 0.98, n_normal=50, n_anomaly=2):.2f}"
    '0.90 (95% interval 0.60 to 0.98; 50 normal, 2 anomalies)'
    """

    value: float
    low: float
    high: float
    n_normal: Annotated[int, COUNT]
    n_anomaly: Annotated[int, COUNT]
    confidence: Annotated[float, SHARE] = 0.95

    def __format__(self, spec: str) -> str:
        value, low, high = (format(x, spec or ".3f") for x in (self.value, self.low, self.high))
        return (
            f"{value} ({self.confidence:.0%} interval {low} to {high}; "
            f"{self.n_normal} normal, {self.n_anomaly} anomalies)"
        )

    def __str__(self) -> str:
        return format(self)


def codes_and_scores(y: Any, anomaly_scores: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Label codes and scores of the same rows; messages name `what` needs them."""
    codes = check_codes(y)
    scores = np.asarray(anomaly_scores, dtype=float)
    if scores.shape != codes.shape:
        raise InputError(
            f"{what} needs a score for each label, got {len(codes)} labels and "
            f"{scores.size} scores."
        )
    return codes, scores


def scores_by_kind(
    y: Any, anomaly_scores: Any, confidence: float, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the labelled anomalies and of the labelled normal rows, at least one of each."""
    check_in_interval("confidence", confidence, 0, 1)
    codes, scores = codes_and_scores(y, anomaly_scores, what)
    anomalies, normals = scores[codes == ANOMALY], scores[codes == NORMAL]
    if np.isnan(anomalies).any() or np.isnan(normals).any():
        raise InputError(f"{what} needs a score for each labelled row, and some are NaN.")
    m, n = len(anomalies), len(normals)
    if m == 0 or n == 0:
        raise InputError(f"{what} needs both kinds of label, got {n} normal and {m} anomalies.")
    return anomalies, normals


def rate_with_interval(pi_n: Any, default: float | None = None) -> tuple[float, float, float]:
    """An anomaly rate and its interval, from a number, which counts as exact, or an estimate."""
    if pi_n is None and default is not None:
        return default, default, default
    meaning = "It is the share of anomalies among the unlabelled rows."
    value = check_in_interval("pi_n", getattr(pi_n, "pi_n", pi_n), 0, 1, meaning)
    low, high = getattr(pi_n, "interval", (value, value))
    return value, float(low), float(high)


def share_above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of `scores` at or above each threshold."""
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)


def share_interval(hits: float, n: float, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share; neither hits nor n need be whole numbers."""
    tail = (1 - confidence) / 2
    low = 0.0 if hits <= 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits >= n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high
