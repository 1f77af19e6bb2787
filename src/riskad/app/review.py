"""What looking at the rows of a table with the highest scores is expected to find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from riskad.core.labels import UNLABELLED, Codes
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import ExpectedCost, Found, FoundCurve, LabelledScores, Review
from riskad.decisions.estimates import Estimate
from riskad.decisions.row_groups import GroupEffect, Judged
from riskad.decisions.thresholds import Cost, parse_threshold

__all__ = [
    "ReviewReport",
    "count_groups",
    "effect_of_groups",
    "review_rows",
    "review_table",
]

_TOP_SHARES = (0.01, 0.05)
_FEWEST_UNSEEN = 5  # below that scores of the fit to all rows take their place
_CURVE_BEYOND = 1.25  # of the rows that the table of numbers ends with, or that are flagged


@dataclass(frozen=True)
class ReviewReport:
    """Rows looked at against anomalies found, in the order of the scores of a table."""

    rows: int
    anomalies: Estimate
    """In the whole table."""
    flagged: Found
    """What is found among the rows above the threshold."""
    table: list[Found]
    """At 5, 10, 20, 50, ... rows."""
    curve: FoundCurve
    average_precision: Estimate
    tops: list[Found]
    """Among the highest 1 % and 5 %, and among as many rows as there are anomalies."""
    cost: ExpectedCost | None = None
    """By a rule that weighs false alarms against misses."""


def review_rows(
    calibration: Calibration,
    scores: NDArray[np.float64],
    n_rows: int | None = None,
    effect: float = 1.0,
) -> Review | None:
    """Find what looking at rows finds.

    Parameters
    ----------
    calibration
        Held-out scores of labelled rows, and the anomaly rate of the unlabelled rows of the fit.
    scores, n_rows
        Anomaly scores of the table; and how many rows it has, if these are quantiles.
    effect
        How many labelled rows tell as much as one that shares its group with no other.

    Returns
    -------
    Review or None
        None where the labels cannot tell it: without 2 held-out rows of each kind, or a rate.
    """
    if calibration.rate is None or not calibration.tells_kinds or not len(scores):
        return None
    value, low, high = calibration.rate
    return Review(
        scores,
        LabelledScores(calibration.normals, calibration.anomalies, effect),
        (value, low, high),
        reference=_unseen(calibration),
        probabilities=calibration.anomaly_probability(scores),
        n_rows=n_rows,
    )


def _unseen(calibration: Calibration) -> NDArray[np.float64]:
    """Scores of unlabelled rows by fits that have not seen them, as labelled rows have them."""
    held = calibration.held_unlabelled
    return held if len(held) >= _FEWEST_UNSEEN else calibration.unlabelled


def review_table(review: Review | None, flagged: int, rule: str) -> ReviewReport | None:
    """Return what a report says of it: `flagged` rows are above the threshold of a rule."""
    if review is None:
        return None
    n_rows, anomalies, table = review.n_rows, review.anomalies, review.table()
    counts = [round(share * n_rows) for share in _TOP_SHARES] + [round(anomalies.value)]
    return ReviewReport(
        rows=n_rows,
        anomalies=anomalies,
        flagged=review.at(flagged),
        table=table,
        curve=review.curve(round(max(table[-1].rows, _CURVE_BEYOND * flagged))),
        average_precision=review.average_precision(),
        tops=[review.at(k) for k in counts if k],
        cost=_cost(review, flagged, rule),
    )


def _cost(review: Review, flagged: int, rule: str) -> ExpectedCost | None:
    weighs = parse_threshold(rule)
    if not isinstance(weighs, Cost):
        return None
    return review.cost(flagged, weighs.false_alarm, weighs.miss)


# --- groups ------------------------------------------------------------------------------


def effect_of_groups(
    calibration: Calibration, codes: Codes, groups: NDArray[np.intp] | None
) -> float:
    """How many held-out labelled rows tell as much as one that shares its group with no other.

    Parameters
    ----------
    calibration
        Their scores.
    codes, groups
        Of all rows of the fit. Without groups each row is of its own.

    Returns
    -------
    float
        The factor of the variance of the AUC, which serves for curves and counts as well.
    """
    kinds = min(len(calibration.normals), len(calibration.anomalies))
    if groups is None or not kinds:
        return 1.0
    own = groups[codes != UNLABELLED]
    if len(own) != len(calibration.codes):  # some were not held out: as if groups were all alike
        sizes = np.unique(own, return_counts=True)[1]
        return float((sizes**2).sum() / sizes.sum())
    return GroupEffect.on_auc([Judged(calibration.codes, calibration.scores, own)]).variance


def count_groups(
    calibration: Calibration, codes: Codes, groups: NDArray[np.intp] | None
) -> Calibration:
    """Return the calibration with an interval of the anomaly rate that counts groups.

    Log odds are spread farther from the estimate by the root of the factor by which groups raise
    the variance of the share of anomalies among labelled rows. A rate that was given stays.
    """
    labelled = codes != UNLABELLED
    rate = calibration.rate
    if groups is None or rate is None or rate.low == rate.high or not labelled.any():
        return calibration
    wider = GroupEffect.on_share(codes[labelled], groups[labelled]).variance ** 0.5
    low, value, high = logit(np.clip([rate.low, rate.value, rate.high], 1e-6, 1 - 1e-6))
    ends = expit([value - wider * (value - low), value + wider * (high - value)])
    low, high = min(float(ends[0]), rate.low), max(float(ends[1]), rate.high)
    return replace(calibration, rate=replace(rate, low=low, high=high))
