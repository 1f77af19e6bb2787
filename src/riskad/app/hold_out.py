"""What held-out labelled rows show about a fit: its quality, and the basis of decisions.

Labelled rows are scored by fits that have not seen them: random folds, or, with a column of dates,
fits to all earlier rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, count_labels
from riskad.decisions.calibration import Calibration, cross_scores
from riskad.decisions.label_check import auc_with_weights, weigh_labelled
from riskad.detectors.base import Detector
from riskad.metrics.folds import (
    as_groups,
    count_independent,
    cross_splits,
    forward_splits,
    labelled_folds,
    periods_of,
)
from riskad.metrics.ranking import Auc, auc_with_interval
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.tables.cells import check_columns
from riskad.tables.formats.moments import to_seconds
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is mostly chance
_NO_TIME = "the budget left no time to hold labelled rows out"
_NOTHING_LEFT = "without the groups that were to be held out there were no rows to learn from"


@dataclass(frozen=True)
class Period:
    """Rows of a period, and how well a fit to all earlier ones ranks its labelled rows."""

    start: str
    end: str
    rows: int
    normal: int
    anomaly: int
    auc: Auc | None
    """None for the earliest rows, which are never judged, and if a kind of label is missing."""


@dataclass(frozen=True)
class TrainingRows:
    """The rows in memory that a fit learns from and is judged by, and what is known of each."""

    parsed: pl.DataFrame
    codes: Codes
    features: Any
    groups: NDArray[np.intp] | None
    """Group of each row; copies of a labelled row are in one."""
    repeats: NDArray[np.bool_]
    """Whether a row is labelled and a copy of an earlier one that is."""
    copies: NDArray[np.intp] | None
    """Number of each row's set of copies, if there are copies."""
    time: str | None
    periods: NDArray[np.intp] | None
    """Period of each row, if a column of dates was named."""

    @classmethod
    def of(cls, preparer: TablePreparer, kept: KeptRows, time: str | None) -> TrainingRows:
        """Turn parsed rows into features, and find groups, copies and periods."""
        parsed, codes, groups = kept.parsed, kept.codes, None
        features = preparer.features(parsed, training=True)
        copies = number_copies(features, codes)
        if preparer.group is not None:  # a row with a blank cell is a group of its own
            groups = as_groups(parsed[preparer.group].rank("dense").to_numpy(), len(codes))
        return cls(
            parsed=parsed,
            codes=codes,
            features=features,
            groups=group_equal_rows(features, codes, groups),
            repeats=repeats_label(codes, copies),
            copies=copies,
            time=time,
            periods=None if time is None else _periods(time, preparer, parsed, codes),
        )


@dataclass(frozen=True)
class Evidence:
    """The basis of decisions, and the AUC on labelled rows or why there is none."""

    calibration: Calibration
    auc: Auc | None
    why_no_auc: str
    weighted_auc: Auc | None = None
    """AUC with labelled rows weighted towards the unlabelled ones, if they may have been chosen."""
    beyond: float = 0.0
    """The share of unlabelled rows that are like hardly any labelled one, if these were chosen."""
    held_out: NDArray[np.float64] | None = None
    """Scores of labelled rows by fits that have not seen them, NaN for other rows, if known."""
    periods: list[Period] = field(default_factory=list)
    """The earliest first, if a column of dates was named."""


def hold_out(
    model: Pipeline,
    rows: TrainingRows,
    scores: NDArray[np.float64],
    anomaly_rate: float | None,
    sampling: Any,
) -> Evidence:
    """Return what labelled rows show that a fit has not seen, or that are later than those it has.

    `scores` are anomaly scores of the rows by the fitted model. `anomaly_rate` is that of the
    unlabelled rows, if it is known, and `sampling` how rows were chosen for labelling: a word, or
    one for each row.
    """
    if rows.periods is None:
        return _by_folds(model, rows, scores, anomaly_rate, sampling)
    later = _score_later_rows(model, rows, scores)
    periods = _describe_periods(rows, later)
    calibration = _calibrate(model[1], rows, later, scores, anomaly_rate, sampling)
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_AUC:  # random folds decide
        why_no_auc = (
            f"it takes {FEWEST_FOR_AUC} labelled rows of each kind that are later by "
            f"{rows.time!r} than rows of both kinds; there are {n:,} normal and {m:,} anomalies"
        )
        by_folds = _by_folds(model, rows, scores, anomaly_rate, sampling)
        return replace(by_folds, auc=None, why_no_auc=why_no_auc, periods=periods)
    # Later rows of a group are judged by a fit that has seen its earlier ones, as in later use.
    return Evidence(
        calibration, _auc(calibration, rows, later), "", held_out=later, periods=periods
    )


def describe_hold_out(detector: Detector, rows: TrainingRows, group: str | None, auc: Any) -> str:
    """Describe which fits scored the held-out rows."""
    if rows.time is not None and auc is not None:
        by_time = f"scored by a fit to rows that are earlier by {rows.time!r}"
        return by_time if group is None else f"{by_time}; the interval counts each {group!r} as one"
    by_fold: str = detector._evidence_in_words()
    if group is None:
        return by_fold
    return (
        f"{by_fold}; rows of one {group!r} were held out together, and intervals count each as one"
    )


# --- random folds -------------------------------------------------------------------------


def _by_folds(
    model: Pipeline,
    rows: TrainingRows,
    scores: NDArray[np.float64],
    anomaly_rate: float | None,
    sampling: Any,
) -> Evidence:
    preparer, detector = model[0], model[1]
    codes, groups = rows.codes, rows.groups
    why_no_auc = _too_few(codes, groups, preparer.group)
    if hasattr(detector, "calibration_"):  # it may have sampled the unlabelled rows
        calibration = detector.calibration_.over(scores[codes == UNLABELLED])
        auc = getattr(detector, "auc_", None)
        if not why_no_auc and auc is None:
            why_no_auc = _NO_TIME if groups is None else f"{_NO_TIME}, or {_NOTHING_LEFT}"
        held_out = _in_order(calibration, rows)
    else:
        # The kinds of the columns are fixed; medians and levels are found again in each fold.
        template, seed = make_pipeline(preparer.refit(), detector), detector.random_state
        splits = cross_splits(codes, random_state=seed, groups=groups)
        try:
            held_out = cross_scores(template, rows.parsed, codes, scores, splits, seed)
        except InputError as error:
            held_out = np.full(len(codes), np.nan)
            reason = str(error).splitlines()[0]
            why_no_auc = f"a part of the rows cannot be fitted by itself ({reason})"
        calibration = _calibrate(detector, rows, held_out, scores, anomaly_rate, sampling)
        if not why_no_auc and not min(len(calibration.normals), len(calibration.anomalies)):
            why_no_auc = _NOTHING_LEFT
        auc = None if why_no_auc else _auc(calibration, rows, held_out)
    evidence = Evidence(calibration, None if why_no_auc else auc, why_no_auc, held_out=held_out)
    if evidence.auc is None or not calibration.seems_chosen:
        return evidence
    # Widen the interval of the AUC to that of rows weighted towards the unlabelled ones.
    labelled = codes != UNLABELLED
    counts = ~rows.repeats[labelled]
    if not np.array_equal(calibration.codes, codes[labelled][counts]):  # not all were held out
        return evidence
    weighed = weigh_labelled(preparer.matrix(rows.parsed), codes, detector._seed)
    if weighed is None or not weighed.clear:
        return evidence
    wider, weighted = auc_with_weights(
        evidence.auc, calibration.scores, calibration.codes, weighed.weights[counts]
    )
    return replace(evidence, auc=wider, weighted_auc=weighted, beyond=weighed.beyond)


def _calibrate(
    detector: Detector,
    rows: TrainingRows,
    held_out: NDArray[np.float64],
    scores: NDArray[np.float64],
    anomaly_rate: float | None,
    sampling: Any,
) -> Calibration:
    """The calibration by held-out scores, of which those of copies count once."""
    own = getattr(detector, "calibration_", None)
    zero = detector._anomaly_threshold if own is None else own.zero
    counted = np.where(rows.repeats, np.nan, held_out)
    return Calibration.of(counted, rows.codes, scores, zero, anomaly_rate, detector._seed, sampling)


def _auc(calibration: Calibration, rows: TrainingRows, held_out: NDArray[np.float64]) -> Auc:
    judged = (rows.codes != UNLABELLED) & ~rows.repeats & ~np.isnan(held_out)
    groups = None if rows.groups is None else rows.groups[judged]
    return auc_with_interval(calibration.codes, calibration.scores, groups=groups)


def _in_order(calibration: Calibration, rows: TrainingRows) -> NDArray[np.float64] | None:
    """The held-out scores in the order of the rows; None if some labelled rows have none."""
    single = (rows.codes != UNLABELLED) & ~rows.repeats
    if len(calibration.scores) != single.sum():
        return None
    scores = np.full(len(rows.codes), np.nan)
    scores[single] = calibration.scores
    if rows.copies is not None:  # a row has the score of its copies, with which it was held out
        of_set = np.full(rows.copies.max() + 1, np.nan)
        of_set[rows.copies[single]] = calibration.scores
        scores[rows.repeats] = of_set[rows.copies[rows.repeats]]
    return scores


def _too_few(codes: Codes, groups: NDArray[np.intp] | None, column: str | None) -> str:
    """Why the labels, or groups that are held out as a whole, do not allow an AUC, if so."""
    counts = count_labels(codes)
    if min(counts.normal, counts.anomaly) < FEWEST_FOR_AUC:
        return f"it takes {FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"
    if groups is None or labelled_folds(codes, 2, groups=groups):
        return ""
    n, m = (count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
    together = "copies of a row" if column is None else f"rows of one {column!r}"
    different = "different rows" if column is None else "groups"
    return (
        f"{together} are held out together, and the labelled rows cannot be parted so that both "
        f"parts have both kinds: normal ones are of {n:,} {different}, anomalies of {m:,}"
    )


# --- earlier fits judge later rows --------------------------------------------------------


def _periods(
    time: str, preparer: TablePreparer, parsed: pl.DataFrame, codes: Codes
) -> NDArray[np.intp]:
    """The period of each row by a column of dates."""
    check_columns([time], list(preparer.columns_))
    kind = preparer.kinds_[time]
    if kind not in ("date", "datetime") or time not in parsed.columns:
        raise InputError(
            f"time={time!r} must be a column of dates that is learned from, and it is {kind!r}. "
            "Name another, or say how its dates are written: "
            f"kinds={{{time!r}: 'date:%d.%m.%Y'}} (--kind {time}=date:%d.%m.%Y)."
        )
    periods = periods_of(codes, to_seconds(parsed[time]).fill_null(np.nan).to_numpy())
    if not periods.any():
        raise InputError(
            f"time={time!r} tells no labelled row from another: all are of one moment, or blank. "
            "Label rows of several, or leave time out."
        )
    return periods


def _score_later_rows(
    model: Pipeline, rows: TrainingRows, scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return anomaly scores by fits to all earlier periods, on the scale of `scores`.

    Rows of the first period have none (NaN), nor those of a period with too few earlier rows to
    learn from. A detector with a budget spends it once more on all periods together.
    """
    assert rows.periods is not None
    detector = clone(model[1])
    if "budget" in detector.get_params():
        detector.set_params(budget=detector.budget / int(rows.periods.max()))
    template, later = make_pipeline(model[0].refit(), detector), np.full(len(rows.codes), np.nan)
    for split in forward_splits(rows.periods):
        try:
            part = cross_scores(template, rows.parsed, rows.codes, scores, [split], detector._seed)
        except InputError:
            continue  # the earlier rows lack a kind of label, for instance
        later = np.where(np.isnan(part), later, part)
    return later


def _describe_periods(rows: TrainingRows, later: NDArray[np.float64]) -> list[Period]:
    """Describe each period, and how well its labelled rows were ranked."""
    assert rows.periods is not None
    assert rows.time is not None
    described = []
    for number in range(int(rows.periods.max()) + 1):
        inside = rows.periods == number
        codes, scores = rows.codes[inside], later[inside]
        judged = (codes != UNLABELLED) & ~np.isnan(scores)
        both = {NORMAL, ANOMALY} <= set(codes[judged].tolist())
        moments, counts = rows.parsed[rows.time].filter(inside), count_labels(codes)
        described.append(
            Period(
                start=str(moments.min()),
                end=str(moments.max()),
                rows=len(codes),
                normal=counts.normal,
                anomaly=counts.anomaly,
                auc=auc_with_interval(codes[judged], scores[judged]) if both else None,
            )
        )
    return described
