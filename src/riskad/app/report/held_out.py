"""The quality of a model on held-out labelled rows: the AUC, curves and reliability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from riskad.app.review import review_rows
from riskad.decisions.calibration import Calibration
from riskad.metrics.curves import Curve, precision_recall_with_interval, roc_with_interval
from riskad.metrics.estimates import Estimate
from riskad.metrics.probabilities import Reliability, reliability
from riskad.metrics.ranking import Auc, auc_with_interval, average_precision_with_interval

__all__ = ["HeldOutQuality", "measure_quality"]

_FEWEST_FOR_CURVES = 3  # labelled rows of each kind, as for an AUC
_FEWEST_FOR_RELIABILITY = 5
_RELIABILITY_BINS = 5


@dataclass(frozen=True)
class HeldOutQuality:
    """How well scores separate held-out labelled rows, with 95% intervals, or why that is unknown.

    `precision_rate` is the anomaly rate for which precision is stated.
    """

    auc: Auc | None
    why_no_auc: str
    average_precision: Estimate | None = None
    precision_rate: float | None = None
    roc: Curve | None = None
    precision_recall: Curve | None = None
    reliability: Reliability | None = None
    why_no_reliability: str = ""


def measure_quality(calibration: Calibration | None, training: Mapping[str, Any]) -> HeldOutQuality:
    """Measure the quality of a model by the held-out scores that it stores.

    Parameters
    ----------
    calibration
        Scores of labelled rows by fits that have not seen them, if the model has them.
    training
        The notes of the fit in the model's file; empty if there are none.

    Returns
    -------
    HeldOutQuality
        Values that the labels cannot determine are None, with the reason in another field.
    """
    if calibration is None:
        return HeldOutQuality(
            None, "the model has no scores of held-out labelled rows (riskad.calibrate)"
        )
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < _FEWEST_FOR_CURVES:
        few = (
            f"it takes {_FEWEST_FOR_CURVES} held-out labelled rows of each kind; "
            f"there are {n} normal and {m} anomalies"
        )
        return HeldOutQuality(None, training.get("why_no_auc") or few, why_no_reliability=few)
    codes, scores = calibration.codes, calibration.scores
    rate, effect = calibration.rate, calibration.group_effect
    pi_n = None if rate is None else calibration.pi_n
    found = training.get("auc")
    reliable, why_not = _reliability(calibration, min(n, m))
    return HeldOutQuality(
        auc=Auc(**found) if found else auc_with_interval(codes, scores),
        why_no_auc="",
        average_precision=_average_precision(calibration, pi_n),
        precision_rate=m / (m + n) if pi_n is None else pi_n,
        roc=roc_with_interval(codes, scores, effect=effect),
        precision_recall=precision_recall_with_interval(codes, scores, rate, effect=effect),
        reliability=reliable,
        why_no_reliability=why_not,
    )


def _average_precision(calibration: Calibration, pi_n: float | None) -> Estimate:
    """Over the unlabelled rows of the fit; only by labelled rows if the rate is not known."""
    review = review_rows(calibration, calibration.unlabelled, calibration.n_unlabelled)
    if review is not None:
        return review.average_precision()
    effect = calibration.group_effect
    return average_precision_with_interval(
        calibration.codes, calibration.scores, pi_n, effect=effect
    )


def _reliability(calibration: Calibration, fewest: int) -> tuple[Reliability | None, str]:
    if calibration.rate is None:
        return None, "they take an estimated anomaly rate, which these labels cannot give"
    if fewest < _FEWEST_FOR_RELIABILITY:
        return None, (
            f"it takes {_FEWEST_FOR_RELIABILITY} held-out labelled rows of each kind; "
            f"there are {fewest} of the rarer kind"
        )
    probabilities = calibration.anomaly_probability(calibration.scores)
    return reliability(calibration.codes, probabilities, calibration.pi_n, _RELIABILITY_BINS), ""
