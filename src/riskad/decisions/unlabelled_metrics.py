"""Precision and recall among unlabelled rows, without looking at them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.core.checks import DataWarning, InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.estimates import (
    Estimate,
    codes_and_scores,
    rate_interval_of,
    rate_of,
    share_interval,
)

__all__ = ["UnlabelledPrecisionRecall", "unlabelled_precision_recall"]


@dataclass(frozen=True)
class UnlabelledPrecisionRecall:
    """Precision and recall of "anomalous if the score is above a threshold" on the
    unlabelled rows.
    """

    precision: Estimate
    recall: Estimate
    flagged: float
    """Share of the unlabelled rows that score above the threshold."""
    pi_n: float
    """The anomaly rate of the unlabelled rows that the precision is computed with."""

    def __str__(self) -> str:
        return (
            f"flagged {self.flagged:.1%} of the unlabelled rows; precision {self.precision}; "
            f"recall {self.recall}"
        )


def unlabelled_precision_recall(
    y: Any, anomaly_scores: Any, threshold: float, pi_n: Any, confidence: float = 0.95
) -> UnlabelledPrecisionRecall:
    r"""Precision and recall among unlabelled rows, from an anomaly rate and labelled anomalies.

    With q the share of unlabelled rows that score above the threshold,

        recall = share of labelled anomalies above it,    precision = pi_n recall / q,

    if labelled anomalies resemble those among the unlabelled rows. No unlabelled row needs a label,
    but scores of labelled rows must come from fits that never saw them (`out_of_fold_scores`);
    otherwise both numbers are too optimistic.

    Parameters
    ----------
    y : array
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    anomaly_scores : array
        High = anomalous. Labelled normal rows are not used and may be NaN.
    threshold : float
        Rows above it are flagged; for a detector this is `-offset_`.
    pi_n : float or estimate with `.pi_n`
        Anomaly rate of the unlabelled rows. The `interval` of an estimate widens that of the
        precision.
    confidence : float, default=0.95
        Confidence of each interval: exact (Clopper-Pearson) for the recall; the precision combines
        the ends of those of recall and rate, which is conservative.

    Returns
    -------
    UnlabelledPrecisionRecall
        Both, each an `Estimate`; `flagged` is q.

    Examples
    --------
    >>> y = np.repeat([-1, 0], [4, 10])
    >>> scores = np.array([3, 3, 3, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> found = unlabelled_precision_recall(y, scores, threshold=1, pi_n=0.2)
    >>> f"{found.precision.value:.2f} {found.recall.value:.2f}"
    '0.75 0.75'
    """
    check_in_interval("confidence", confidence, 0, 1)
    n_normal, anomalies, unlabelled = _checked_scores(y, anomaly_scores)
    m, counts = len(anomalies), (n_normal, len(anomalies), confidence)
    rate, (rate_low, rate_high) = rate_of(pi_n), rate_interval_of(pi_n)
    hits, q = float((anomalies > threshold).sum()), float((unlabelled > threshold).mean())
    recall = hits / m
    low, high = share_interval(hits, m, confidence)
    _warn_of_too_many(rate, recall, q)
    precision = Estimate(
        _precision(rate, recall, q),
        _precision(rate_low, low, q),
        _precision(rate_high, high, q),
        *counts,
    )
    return UnlabelledPrecisionRecall(precision, Estimate(recall, low, high, *counts), q, rate)


def _checked_scores(y: Any, anomaly_scores: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of labelled normal rows, and scores of labelled anomalies and unlabelled rows."""
    what = "precision and recall among unlabelled rows"
    codes, scores = codes_and_scores(y, anomaly_scores, what)
    anomalies, unlabelled = scores[codes == ANOMALY], scores[codes == UNLABELLED]
    if not len(anomalies) or not len(unlabelled):
        raise InputError(
            f"{what} need labelled anomalies and unlabelled rows, got {len(anomalies)} and "
            f"{len(unlabelled)}."
        )
    if np.isnan(anomalies).any() or np.isnan(unlabelled).any():
        raise InputError(
            f"{what} need a score for each labelled anomaly and each unlabelled row, and some are "
            "NaN. out_of_fold_scores scores the labelled rows; take those of the others from a "
            "fit to all rows."
        )
    return int((codes == NORMAL).sum()), anomalies, unlabelled


def _precision(rate: float, recall: float, q: float) -> float:
    return min(1.0, rate * recall / q) if q > 0 else float("nan")


def _warn_of_too_many(rate: float, recall: float, q: float) -> None:
    if recall * rate > q:
        warnings.warn(
            f"pi_n = {rate:.3g} and a recall of {recall:.2f} would make more anomalies above the "
            f"threshold than there are rows ({q:.3g} of the unlabelled ones): the rate is too high "
            "or the labelled anomalies are easier than those among the unlabelled rows.",
            DataWarning,
            stacklevel=3,
        )
