"""What looking at the rows of a table with the highest scores is expected to find."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import ExpectedCost, Found, FoundCurve, LabelledScores, Review
from riskad.decisions.estimates import Estimate
from riskad.decisions.thresholds import Cost, parse_threshold

__all__ = ["ReviewReport", "review_rows", "review_table"]

_TOP_SHARES = (0.01, 0.05)
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
    kinds = calibration.normals, calibration.anomalies
    if calibration.rate is None or min(map(len, kinds)) < 2 or not len(scores):
        return None
    value, low, high = calibration.rate
    return Review(
        scores,
        LabelledScores(*kinds, effect),
        (value, low, high),
        reference=calibration.unlabelled,
        probabilities=calibration.anomaly_probability(scores),
        n_rows=n_rows,
    )


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
