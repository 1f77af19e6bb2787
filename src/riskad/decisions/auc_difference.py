r"""Does one model rank rows better than another? Their AUCs on the same labelled rows, paired.

With theta_1 and theta_2 the two AUCs, (l_k, u_k) their own intervals
(`riskad.decisions.ranking_metrics`) and r the correlation of the two estimates by DeLong's (1988)
components, the interval of theta_1 - theta_2 is that of Zou and Donner (2008):

    low  = d - sqrt(a^2 + b^2 - 2 r a b),   a = theta_1 - l_1,  b = u_2 - theta_2,
    high = d + sqrt(a^2 + b^2 - 2 r a b),   a = u_1 - theta_1,  b = theta_2 - l_2.

Both models make most of their mistakes on the same rows, so r is large and the interval of the
difference much narrower than those of the AUCs. If one of them ranks perfectly, its components do
not vary and r cannot be estimated: it is set to 0, which is conservative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from riskad.decisions.estimates import Estimate, scores_by_kind
from riskad.decisions.ranking_metrics import Auc, auc_with_interval

__all__ = ["AucDifference", "auc_difference"]


@dataclass(frozen=True)
class AucDifference(Estimate):
    """How much higher the first AUC is than the second, with its interval."""

    @property
    def verdict(self) -> str:
        """One of "better", "worse" and "unclear": whether the interval excludes 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "unclear"


def auc_difference(
    y: Any, first: Any, second: Any, confidence: float = 0.95, groups: Any = None
) -> tuple[AucDifference, Auc, Auc]:
    """Compare two models by the anomaly scores that both give to the same labelled rows.

    Parameters
    ----------
    y
        Codes +1 normal, -1 anomaly; unlabelled rows (0) are ignored.
    first, second
        Anomaly scores of these rows; each model may have its own scale.
    confidence
        Probability with which the interval contains the difference.
    groups
        Group of each row, if there are groups; see `auc_with_interval`.

    Returns
    -------
    tuple of AucDifference, Auc and Auc
        The first minus the second, and the two AUCs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, -1], [80, 20])
    >>> second = rng.normal(size=100) - y
    >>> difference, *_ = auc_difference(y, second - 2 * y, second)
    >>> print(f"{difference:+.3f}", difference.verdict)
    +0.094 (95% interval +0.013 to +0.204; 80 normal, 20 anomalies) better
    """
    ours = auc_with_interval(y, first, confidence, groups=groups)
    theirs = auc_with_interval(y, second, confidence, groups=groups)
    d = ours.value - theirs.value
    r = _correlation(*(_components(y, scores, confidence) for scores in (first, second)))
    below = _joined(ours.value - ours.low, theirs.high - theirs.value, r)
    above = _joined(ours.high - ours.value, theirs.value - theirs.low, r)
    ends = max(d - below, -1.0), min(d + above, 1.0)
    return AucDifference(d, *ends, ours.n_normal, ours.n_anomaly, confidence), ours, theirs


def _joined(a: float, b: float, r: float) -> float:
    return float(np.sqrt(max(a**2 + b**2 - 2 * r * a * b, 0.0)))


def _components(y: Any, scores: Any, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """For each anomaly the share of normal rows below it; for each normal row, anomalies above."""
    anomalies, normals = scores_by_kind(y, scores, confidence, "a difference of AUCs")
    m, n = len(anomalies), len(normals)
    ranks = rankdata(np.concatenate([anomalies, normals]))
    return (ranks[:m] - rankdata(anomalies)) / n, 1 - (ranks[m:] - rankdata(normals)) / m


def _correlation(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> float:
    """Correlation of two AUCs: var is the sum over both kinds of var(V) / (number of its rows)."""

    def covariance(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> float:
        pairs = zip(a, b, strict=True)
        return float(sum(np.mean((u - u.mean()) * (v - v.mean())) / len(u) for u, v in pairs))

    spread = np.sqrt(covariance(first, first) * covariance(second, second))
    return float(np.clip(covariance(first, second) / spread, -1, 1)) if spread > 0 else 0.0
