"""How well scores rank labelled rows, with intervals: AUC, average precision, precision at k.

Unlabelled rows never count as truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import rankdata, t

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.labels import UNLABELLED
from riskad.decisions.estimates import (
    Estimate,
    codes_and_scores,
    normal_quantile,
    rate_of,
    scores_by_kind,
    share_above,
    share_interval,
)
from riskad.decisions.row_groups import GroupEffect, Judged, as_groups

__all__ = [
    "AUC_INTERVALS",
    "Auc",
    "auc_of_folds",
    "auc_with_interval",
    "average_precision_with_interval",
    "like_interval",
    "precision_at_k_with_interval",
]


AUC_INTERVALS = ("score", "delong")


@dataclass(frozen=True)
class Auc(Estimate):
    """Probability that a random anomaly scores above a random normal row, with its interval."""


def auc_with_interval(
    y: Any,
    anomaly_scores: Any,
    confidence: float = 0.95,
    interval: str = "score",
    groups: Any = None,
) -> Auc:
    """AUC over the labelled rows, with an interval.

    - "score", Newcombe's, is for few labels and the default. It holds all values theta with
      |AUC - theta| <= z sqrt(V(theta)), V being the variance of Hanley and McNeil with Newcombe's
      (2006) balanced count. Unlike an interval around the estimate, it does not shrink to a point
      if a few anomalies all have the highest scores.
    - "delong" is for some dozens of labels of each kind: DeLong's (1988) variance

          V = var_i(V10) / m + var_j(V01) / n,

      where V10 is the share of normal rows below anomaly i and V01 that of anomalies above normal
      row j, on the logit scale. It assumes no distribution of the scores, and works for any large
      number of labels. With a perfect ranking V is 0 and uninformative, which is an error.

    With `groups`, the group of each row such as its customer, V is multiplied by the effect of
    similar rows within groups (`riskad.decisions.row_groups.GroupEffect`); a row with a blank group
    is a group of its own.

    Examples
    --------
    >>> print(auc_with_interval([1, 1, 1, 1, -1, -1], [0.1, 0.4, 0.2, 0.3, 0.9, 0.8]))
    1.000 (95% interval 0.472 to 1.000; 4 normal, 2 anomalies)
    """
    check_choice("interval", interval, AUC_INTERVALS)
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "an AUC")
    m, n = len(anomalies), len(normals)
    # Ranks among all rows minus those within a kind count the rows of the other kind below.
    ranks = rankdata(np.concatenate([anomalies, normals]))
    value = float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))
    z = normal_quantile(confidence)
    if groups is not None:
        z *= _group_effect(y, anomaly_scores, groups).variance ** 0.5
    if interval == "score":
        return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)
    V10 = (ranks[:m] - rankdata(anomalies)) / n
    V01 = 1 - (ranks[m:] - rankdata(normals)) / m
    return Auc(value, *_delong_interval(value, V10, V01, z), n, m, confidence)


def _group_effect(y: Any, anomaly_scores: Any, groups: Any) -> GroupEffect:
    codes, scores = codes_and_scores(y, anomaly_scores, "an AUC")
    groups, known = as_groups(groups, len(codes)), codes != UNLABELLED
    return GroupEffect.on_auc([Judged(codes[known], scores[known], groups[known])])


def _delong_interval(
    value: float, V10: np.ndarray, V01: np.ndarray, z: float
) -> tuple[float, float]:
    m, n = len(V10), len(V01)
    V = V10.var(ddof=1) / m + V01.var(ddof=1) / n if min(m, n) > 1 else 0.0
    if not V > 0:
        raise InputError(
            f"interval='delong' has no variance to go by ({n} normal, {m} anomalies, AUC "
            f"{value:g}): its interval would be a point. Take interval='score'."
        )
    middle, spread = logit(value), z * V**0.5 / (value * (1 - value))
    return float(expit(middle - spread)), float(expit(middle + spread))


def auc_of_folds(
    values: Any,
    n_splits: int,
    n: int,
    m: int,
    confidence: float = 0.95,
    effect: GroupEffect | None = None,
) -> Auc:
    r"""AUC of a fit to all rows, from the AUCs of folds over n normal rows and m anomalies.

    Scores of different fits may have different scales, so folds are ranked separately and the value
    is the mean of `values`. The interval is Newcombe's with

        z = t sqrt(n_splits / (n_splits - 1)),

    t being Student's quantile for min(n, m) - 1 degrees of freedom: fits of folds saw fewer rows,
    and differ more from each other and from the fit to all rows if there are fewer labels.
    One row counts as two here, whose interval already covers nearly everything. With groups, their
    effect widens the interval, and t counts groups.
    """
    confidence = check_in_interval("confidence", confidence, 0, 1)
    value = float(np.mean(values))
    rarer = min(n, m) if effect is None else effect.n_groups
    quantile = float(t.ppf(0.5 + confidence / 2, max(rarer - 1, 1)))
    z = quantile * (n_splits / (n_splits - 1)) ** 0.5
    if effect is not None:
        z *= effect.variance**0.5
    return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)


def like_interval(auc: Auc, value: float, m: float, n: float) -> Auc:
    """Another AUC, with other counts, with an interval of the same z as a given one.

    Examples
    --------
    >>> print(like_interval(auc_with_interval([1, 1, 1, -1, -1], [1, 2, 4, 3, 5]), 0.8, 20, 30))
    0.800 (95% interval 0.643 to 0.894; 3 normal, 2 anomalies)
    """
    end = auc.low if auc.value > 0 else auc.high
    z = abs(auc.value - end) / _variance(end, auc.n_anomaly, auc.n_normal) ** 0.5
    return Auc(value, *_score_interval(value, m, n, z), auc.n_normal, auc.n_anomaly, auc.confidence)


def _variance(theta: float, m: float, n: float) -> float:
    """Variance of an estimated AUC, by Hanley and McNeil with Newcombe's balanced count."""
    spread = 1 + ((m + n) / 2 - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
    return theta * (1 - theta) * spread / (m * n)


def _score_interval(value: float, m: float, n: float, z: float) -> tuple[float, float]:
    def excess(theta: float) -> float:
        return (value - theta) ** 2 - z**2 * _variance(theta, m, n)

    # Inside the interval excess is negative, also just inside of an estimate of 0 or 1.
    inside = min(max(value, 1e-12), 1 - 1e-12)
    low = 0.0 if value == 0 else float(brentq(excess, 0.0, inside))
    high = 1.0 if value == 1 else float(brentq(excess, inside, 1.0))
    return low, high


def average_precision_with_interval(
    y: Any, anomaly_scores: Any, pi_n: Any = None, confidence: float = 0.95, effect: float = 1.0
) -> Estimate:
    r"""Average precision over the labelled rows, with an interval.

        AP = mean over anomalies i of  pi_n TPR_i / (pi_n TPR_i + (1 - pi_n) FPR_i)

    where TPR_i and FPR_i are the shares of anomalies and of normal rows that score at least as high
    as i. Precision depends on how rare anomalies are: `pi_n` is their rate where the scores will
    be used, a number or an estimate that has it as `.pi_n`; None is their share of the labels.

    AP is a mean over m anomalies of numbers between 0 and 1: its variance is at most that of a
    share of m. The interval is the exact (Clopper-Pearson) one of this share, which stays wide for
    few anomalies and does not shrink to a point if all of them have the highest scores. With
    groups, `effect` rows are worth as much as one row without a group
    (`riskad.decisions.row_groups.GroupEffect`).

    Examples
    --------
    >>> print(average_precision_with_interval([1, 1, 1, -1, -1], [0.1, 0.2, 0.8, 0.7, 0.9]))
    0.833 (95% interval 0.087 to 1.000; 3 normal, 2 anomalies)
    """
    what = "an average precision"
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, what)
    m, n = len(anomalies), len(normals)
    pi_n = m / (m + n) if pi_n is None else rate_of(pi_n)
    TPR, FPR = share_above(anomalies, anomalies), share_above(normals, anomalies)
    value = float(np.mean(pi_n * TPR / (pi_n * TPR + (1 - pi_n) * FPR)))
    ends = share_interval(value * m / effect, m / effect, confidence)
    return Estimate(value, *ends, n, m, confidence)


def precision_at_k_with_interval(
    y: Any, anomaly_scores: Any, k: int, confidence: float = 0.95
) -> Estimate:
    """Share of anomalies among the k labelled rows with the highest scores, with an interval.

    Rows that tie at the last position count by their share. The interval is the exact
    (Clopper-Pearson) one of a share of k rows.

    Examples
    --------
    >>> print(precision_at_k_with_interval([1, 1, 1, -1, -1], [0.1, 0.2, 0.8, 0.7, 0.9], k=2))
    0.500 (95% interval 0.013 to 0.987; 3 normal, 2 anomalies)
    """
    what = "a precision at k"
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, what)
    m, n = len(anomalies), len(normals)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= m + n:
        raise InputError(
            f"k must be a whole number from 1 to {m + n}, the number of labelled rows, got {k!r}."
        )
    scores = np.concatenate([anomalies, normals])
    last = np.sort(scores)[-k]
    above, level = scores > last, scores == last
    share = (k - above.sum()) / level.sum()
    hits = float(above[:m].sum() + share * level[:m].sum())
    return Estimate(hits / k, *share_interval(hits, k, confidence), n, m, confidence)
