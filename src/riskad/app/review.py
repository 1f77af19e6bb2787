"""What looking at the rows of a table with the highest scores is expected to find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from riskad.core.labels import UNLABELLED, Codes
from riskad.decisions.anomaly_rate import RateEstimate
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import ExpectedCost, Found, FoundCurve, LabelledScores, Review
from riskad.decisions.thresholds import Cost, parse_threshold
from riskad.metrics.estimates import Estimate
from riskad.metrics.ranking import FoldScores, GroupEffect

__all__ = [
    "ReviewReport",
    "count_groups",
    "review_rows",
    "review_table",
]

_TOP_SHARES = (0.01, 0.05)
_FEWEST_UNSEEN = 5  # below that, scores of the fit to all rows are used instead
_CURVE_BEYOND = 1.25  # times the last number of the table, or the number of flagged rows


@dataclass(frozen=True)
class ReviewReport:
    """Rows looked at against anomalies found, in the order of the scores of a table."""

    rows: int
    anomalies: Estimate
    """Number in the whole table."""
    flagged: Found
    """What is found among the rows above the threshold."""
    table: list[Found]
    """At 5, 10, 20, 50, ... rows."""
    curve: FoundCurve
    average_precision: Estimate
    tops: list[Found]
    """Among the highest 1 % and 5 %, and among as many rows as there are anomalies."""
    likely: int = 0
    """Number of rows that are more likely an anomaly than not."""
    cost: ExpectedCost | None = None
    """For a rule that weighs false alarms against misses."""


def review_rows(
    calibration: Calibration, scores: NDArray[np.float64], n_rows: int | None = None
) -> Review | None:
    """Find how many anomalies looking at rows finds.

    Parameters
    ----------
    calibration
        Held-out scores of labelled rows, and the anomaly rate of the unlabelled rows of the fit.
    scores, n_rows
        Anomaly scores of the table, its `unlabelled` or others; and its number of rows, if these
        are quantiles.

    Returns
    -------
    Review or None
        None if the labels do not allow it: without 2 held-out rows of each kind, or a rate.
    """
    if calibration.rate is None or not calibration.tells_kinds or not len(scores):
        return None
    value, low, high = calibration.rate
    line, reference = calibration.line, None
    if scores is calibration.unlabelled:  # the rows to which the rate applies
        line = line.at_rate(calibration.pi_n, scores)
    else:  # new to the fit, like the rows that it has held out
        held = calibration.held_unlabelled
        reference = held if len(held) >= _FEWEST_UNSEEN else calibration.unlabelled
    return Review(
        scores,
        LabelledScores(calibration.normals, calibration.anomalies, calibration.group_effect),
        (value, low, high),
        reference=reference,
        probabilities=line.probabilities(scores),
        n_rows=n_rows,
    )


def review_table(review: Review | None, flagged: int, rule: str) -> ReviewReport | None:
    """Return the content for a report: `flagged` rows are above the threshold of a rule."""
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
        likely=review.likely,
        cost=_cost(review, flagged, rule),
    )


def _cost(review: Review, flagged: int, rule: str) -> ExpectedCost | None:
    weighs = parse_threshold(rule)
    if not isinstance(weighs, Cost):
        return None
    return review.cost(flagged, weighs.false_alarm, weighs.miss)


# --- groups ------------------------------------------------------------------------------


def count_groups(
    calibration: Calibration, codes: Codes, groups: NDArray[np.intp] | None
) -> Calibration:
    """Return the calibration with intervals that count groups.

    The log odds of the ends of the anomaly rate are moved away from the estimate by the root of the
    factor by which groups raise the variance of the share of anomalies among labelled rows. A given
    rate is unchanged. The factor for the AUC is also used for counts and curves.

    Parameters
    ----------
    calibration
        The calibration without groups.
    codes, groups
        Codes and groups of all rows of the fit; None means no groups.
    """
    labelled = codes != UNLABELLED
    if groups is None or not labelled.any():
        return calibration
    codes, groups = codes[labelled], groups[labelled]
    wider = GroupEffect.on_share(codes, groups).variance ** 0.5
    effect = _effect_on_ranks(calibration, groups)
    return replace(calibration, rate=_spread(calibration.rate, wider), group_effect=effect)


def _effect_on_ranks(calibration: Calibration, groups: NDArray[np.intp]) -> float:
    if not min(len(calibration.normals), len(calibration.anomalies)):
        return 1.0
    if len(groups) != len(calibration.codes):  # some were not held out: assume groups all alike
        sizes = np.unique(groups, return_counts=True)[1]
        return float((sizes**2).sum() / sizes.sum())
    part = FoldScores(calibration.codes, calibration.scores, groups)
    return float(GroupEffect.on_auc([part]).variance)


def _spread(rate: RateEstimate | None, wider: float) -> RateEstimate | None:
    if rate is None or rate.low == rate.high:
        return rate
    low, value, high = logit(np.clip([rate.low, rate.value, rate.high], 1e-6, 1 - 1e-6))
    ends = expit([value - wider * (value - low), value + wider * (high - value)])
    return replace(rate, low=min(float(ends[0]), rate.low), high=max(float(ends[1]), rate.high))
