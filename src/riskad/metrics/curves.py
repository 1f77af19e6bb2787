"""ROC and precision-recall curves over labelled rows, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.metrics.estimates import (
    rate_with_interval,
    scores_by_kind,
    share_above,
    share_interval,
)

__all__ = ["Curve", "precision_recall_with_interval", "roc_with_interval"]


@dataclass(frozen=True)
class Curve:
    """A curve over thresholds, the highest first, with an interval at each point."""

    threshold: np.ndarray
    """Rows that score at least this are flagged."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


def roc_with_interval(
    y: Any, anomaly_scores: Any, confidence: float = 0.95, points: int = 200, effect: float = 1.0
) -> Curve:
    """TPR, the share of labelled anomalies flagged, over FPR, that of labelled normal rows.

    The interval of TPR is the exact one (Clopper-Pearson) of a share of the anomalies. Of many
    thresholds about `points` are used, as quantiles of each kind. With groups, `effect` rows are
    worth as much as one row without a group (`riskad.metrics.ranking.GroupEffect`).

    Examples
    --------
    >>> curve = roc_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "an ROC curve")
    t = _curve_thresholds(anomalies, normals, points)
    TPR, FPR = share_above(anomalies, t), share_above(normals, t)
    return Curve(t, FPR, TPR, *_share_intervals(TPR, len(anomalies) / effect, confidence))


def precision_recall_with_interval(
    y: Any,
    anomaly_scores: Any,
    pi_n: Any = None,
    confidence: float = 0.95,
    points: int = 200,
    effect: float = 1.0,
) -> Curve:
    r"""Precision over recall, if the share pi_n of all rows are anomalies.

        recall = TPR,    precision = pi_n TPR / (pi_n TPR + (1 - pi_n) FPR)

    with TPR and FPR as in `roc_with_interval`, from the first anomaly on. The interval of the
    precision combines the ends of those of TPR, FPR and the rate, which is conservative. `pi_n` is
    a number or an estimate that has it; None is the share of the labels. `effect` is as there.

    Examples
    --------
    >>> curve = precision_recall_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.round(2).tolist()
    ([0.5, 0.5, 1.0, 1.0], [1.0, 0.5, 0.67, 0.5])
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "a precision")
    m, n = len(anomalies), len(normals)
    rate, least, most = rate_with_interval(pi_n, default=m / (m + n))
    t = _curve_thresholds(anomalies, normals, points)
    t = t[share_above(anomalies, t) > 0]
    TPR, FPR = share_above(anomalies, t), share_above(normals, t)
    TPR_low, TPR_high = _share_intervals(TPR, m / effect, confidence)
    FPR_low, FPR_high = _share_intervals(FPR, n / effect, confidence)

    def precision(rate: float, TPR: np.ndarray, FPR: np.ndarray) -> np.ndarray:
        return rate * TPR / (rate * TPR + (1 - rate) * FPR)

    low, high = precision(least, TPR_low, FPR_high), precision(most, TPR_high, FPR_low)
    return Curve(t, TPR, precision(rate, TPR, FPR), low, high)


def _curve_thresholds(anomalies: np.ndarray, normals: np.ndarray, points: int) -> np.ndarray:
    """Scores of each kind, all of them or as many quantiles, above them infinity."""
    shares = np.linspace(0, 1, points // 2)
    kinds = [np.quantile(kind, shares, method="inverted_cdf") for kind in (anomalies, normals)]
    return np.append(np.inf, np.unique(np.concatenate(kinds))[::-1])


def _share_intervals(shares: np.ndarray, n: float, confidence: float) -> np.ndarray:
    """Lower and upper ends of intervals of shares of n rows; n need not be an integer."""
    pairs = np.array([share_interval(share * n, n, confidence) for share in shares])
    return pairs.T
