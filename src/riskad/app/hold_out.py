"""What held-out labelled rows show about a fit: its quality, and the basis of decisions.

Labelled rows are scored by fits that have not seen them: random folds, or, with a column of dates,
fits to all earlier rows. `list_warnings` says what the user should know of the data and the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from riskad.app.fit_report import FEWEST_FOR_AUC, Period, few_anomalies
from riskad.core.checks import InputError, enumerate_names
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, LabelCounts, count_labels
from riskad.decisions.anomaly_rate import GIVEN, SURPRISE
from riskad.decisions.calibration import Calibration, count_groups, cross_scores
from riskad.decisions.label_weights import auc_with_weights, weigh_labelled
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.metrics.folds import (
    as_groups,
    count_independent,
    cross_splits,
    forward_splits,
    labelled_folds,
    periods_of,
)
from riskad.metrics.ranking import Auc, auc_with_interval
from riskad.rows.equal_rows import group_copies, number_copies, repeats_label
from riskad.tables.cells import check_columns
from riskad.tables.data_checks import check_data
from riskad.tables.formats.moments import to_seconds
from riskad.tables.labelled import TrainingSample
from riskad.tables.preparation import TablePreparer

_NO_TIME = "the budget left no time to hold labelled rows out"
_NOTHING_LEFT = "without the groups that were to be held out there were no rows to learn from"


@dataclass(frozen=True)
class TrainingRows:
    """The rows in memory that a fit learns from and is judged by, and what is known of each."""

    parsed: pl.DataFrame
    codes: Codes
    training_codes: Codes
    """What a detector that cross-fits learns from: the codes, and of windows some more."""
    features: Any
    groups: NDArray[np.intp] | None
    """Group of each row; copies of a labelled row are in one."""
    repeats: NDArray[np.bool_]
    """Whether a row is labelled and a copy of an earlier one that is."""
    copies: NDArray[np.intp] | None
    """Number of each row's set of copies, if there are copies."""
    time: str | None
    moments: pl.Series | None
    periods: NDArray[np.intp] | None
    """Period of each row, if a column of dates was named."""

    @classmethod
    def of(cls, preparer: TablePreparer, sample: TrainingSample, time: str | None) -> TrainingRows:
        """Turn parsed rows into features, and find groups, copies and periods."""
        parsed, codes, groups = sample.parsed, sample.codes, sample.stretches
        training_codes = codes if sample.training_codes is None else sample.training_codes
        features = preparer.features(parsed, training=True)
        copies = number_copies(features, training_codes)
        if groups is None and preparer.group is not None:
            # A row with a blank cell is a group of its own.
            groups = as_groups(parsed[preparer.group].rank("dense").to_numpy(), len(codes))
        moments, periods = None, None
        if time is not None:
            moments, periods = _order_by_time(time, preparer, sample)
        return cls(
            parsed=parsed,
            codes=codes,
            training_codes=training_codes,
            features=features,
            groups=group_copies(copies, training_codes, groups),
            repeats=repeats_label(codes, copies),
            copies=copies,
            time=time,
            moments=moments,
            periods=periods,
        )


def _order_by_time(
    time: str, preparer: TablePreparer, sample: TrainingSample
) -> tuple[pl.Series, NDArray[np.intp] | None]:
    """The column of dates, and the period of each row; none of windows that labels do not order."""
    moments, stretches = sample.moments, sample.stretches
    if moments is None:  # windows bring theirs
        check_columns([time], list(preparer.columns_))
        kind = preparer.kinds_[time]
        if kind not in ("date", "datetime") or time not in sample.parsed.columns:
            raise InputError(
                f"time={time!r} must be a column of dates that is learned from, but it "
                f"was read as {kind!r}. Name another, or say how its dates are written: "
                f"--kind {time}=date:%d.%m.%Y."
            )
        moments = sample.parsed[time]
    periods = periods_of(sample.codes, to_seconds(moments).fill_null(np.nan).to_numpy())
    if stretches is not None:
        # A stretch that spans a border must not be on both sides: it is where it begins.
        first = np.full(int(stretches.max(initial=0)) + 1, len(periods))
        np.minimum.at(first, stretches, periods)
        periods = first[stretches]
    if not periods.any():
        if stretches is not None:  # time cuts the windows: it cannot be left out
            return moments, None
        raise InputError(
            f"time={time!r} does not order the labelled rows: all have the same date, or none. "
            "Label rows of several dates, or leave time out."
        )
    return moments, periods


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
    n_unlabelled: int,
) -> Evidence:
    """Return what labelled rows show that a fit has not seen, or that are later than those it has.

    `scores` are anomaly scores of the rows by the fitted model. `anomaly_rate` is that of the
    unlabelled rows, if it is known, and `sampling` how rows were chosen for labelling: a word, or
    one for each row. `n_unlabelled` rows are in the whole table.
    """
    detector = model[1]

    def calibrate(held_out: NDArray[np.float64]) -> Calibration:
        existing = getattr(detector, "calibration_", None)
        return Calibration.of(
            np.where(rows.repeats, np.nan, held_out),  # copies count once
            rows.codes,
            scores,
            zero=detector._anomaly_threshold if existing is None else existing.zero,
            pi_n=anomaly_rate,
            random_state=detector.random_state,
            label_source=sampling,
        )

    judge = _by_folds if rows.periods is None else _by_time
    evidence = judge(model, rows, scores, calibrate)
    # Intervals count groups, and copies of a labelled row count once.
    groups = None if rows.groups is None else rows.groups[~rows.repeats]
    calibration = count_groups(evidence.calibration, rows.codes[~rows.repeats], groups)
    return replace(evidence, calibration=replace(calibration, n_unlabelled=n_unlabelled))


def describe_hold_out(detector: Detector, rows: TrainingRows, group: str | None, auc: Any) -> str:
    """Describe which fits scored the held-out rows."""
    fits: str = detector._evidence_in_words
    together = f"rows of one {group!r} were held out together, and intervals count each as one"
    if rows.periods is not None and auc is not None:
        fits = f"scored by a fit to rows that are earlier by {rows.time!r}"
        together = f"the interval counts each {group!r} as one"
    return fits if group is None else f"{fits}; {together}"


# --- random folds -------------------------------------------------------------------------


def _by_folds(
    model: Pipeline,
    rows: TrainingRows,
    scores: NDArray[np.float64],
    calibrate: Callable[[NDArray[np.float64]], Calibration],
) -> Evidence:
    preparer, detector = model[0], model[1]
    codes, groups = rows.codes, rows.groups
    why_no_auc = _why_no_auc(codes, groups, preparer.group)
    if hasattr(detector, "calibration_"):  # it may have sampled the unlabelled rows
        calibration = detector.calibration_.over(scores[codes == UNLABELLED])
        auc, held_out = getattr(detector, "auc_", None), in_order(calibration, rows)
        if not why_no_auc and auc is None:
            why_no_auc = _NO_TIME if groups is None else f"{_NO_TIME}, or {_NOTHING_LEFT}"
        if held_out is not None and rows.training_codes is not codes:  # labels of a person judge
            calibration = calibrate(held_out)
            auc = auc and _auc(calibration, rows, held_out)
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
        calibration = calibrate(held_out)
        if not why_no_auc and not min(len(calibration.normals), len(calibration.anomalies)):
            why_no_auc = _NOTHING_LEFT
        auc = None if why_no_auc else _auc(calibration, rows, held_out)
    evidence = Evidence(calibration, None if why_no_auc else auc, why_no_auc, held_out=held_out)
    labelled = codes != UNLABELLED
    counts = ~rows.repeats[labelled]
    all_held_out = np.array_equal(calibration.codes, codes[labelled][counts])
    if evidence.auc is None or not calibration.seems_chosen or not all_held_out:
        return evidence
    # Widen the interval of the AUC to that of rows weighted towards the unlabelled ones.
    weighed = weigh_labelled(preparer.matrix(rows.parsed), codes, detector._seed)
    if weighed is None or not weighed.clear:
        return evidence
    wider, weighted = auc_with_weights(
        evidence.auc, calibration.scores, calibration.codes, weighed.weights[counts]
    )
    return replace(evidence, auc=wider, weighted_auc=weighted, beyond=weighed.beyond)


def _auc(calibration: Calibration, rows: TrainingRows, held_out: NDArray[np.float64]) -> Auc:
    judged = (rows.codes != UNLABELLED) & ~rows.repeats & ~np.isnan(held_out)
    groups = None if rows.groups is None else rows.groups[judged]
    return auc_with_interval(calibration.codes, calibration.scores, groups=groups)


def in_order(calibration: Calibration, rows: TrainingRows) -> NDArray[np.float64] | None:
    """Return held-out scores in the order of the rows; None if some labelled rows have none."""
    # The calibration holds one score for each set of copies.
    repeats = repeats_label(rows.training_codes, rows.copies)
    single = (rows.training_codes != UNLABELLED) & ~repeats
    if len(calibration.scores) != single.sum():
        return None
    scores = np.full(len(rows.codes), np.nan)
    scores[single] = calibration.scores
    if rows.copies is not None:  # a row has the score of its copies, with which it was held out
        of_set = np.full(rows.copies.max() + 1, np.nan)
        of_set[rows.copies[single]] = calibration.scores
        scores[repeats] = of_set[rows.copies[repeats]]
    return scores


def _why_no_auc(codes: Codes, groups: NDArray[np.intp] | None, column: str | None) -> str:
    """Why the labels, or groups that are held out as a whole, do not allow an AUC, if so."""
    counts = count_labels(codes)
    if min(counts.normal, counts.anomaly) < FEWEST_FOR_AUC:
        return f"it takes {FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"
    if groups is None or labelled_folds(codes, 2, groups=groups):
        return ""
    n, m = count_independent(codes, NORMAL, groups), count_independent(codes, ANOMALY, groups)
    together = "copies of a row" if column is None else f"rows of one {column!r}"
    different = "different rows" if column is None else "groups"
    return (
        f"{together} are held out together, and the labelled rows cannot be split so that both "
        f"parts have both kinds: the normal ones are from {n:,} {different}, the anomalies from "
        f"{m:,}"
    )


# --- earlier fits judge later rows --------------------------------------------------------


def _by_time(
    model: Pipeline,
    rows: TrainingRows,
    scores: NDArray[np.float64],
    calibrate: Callable[[NDArray[np.float64]], Calibration],
) -> Evidence:
    later = _score_later_rows(model, rows, scores)
    periods, calibration = _describe_periods(rows, later), calibrate(later)
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_AUC:  # random folds decide
        why_no_auc = (
            f"it takes {FEWEST_FOR_AUC} labelled rows of each kind that come after labelled rows "
            f"of both kinds ({rows.time!r}); there are {n:,} normal rows and {m:,} anomalies"
        )
        by_folds = _by_folds(model, rows, scores, calibrate)
        return replace(by_folds, auc=None, why_no_auc=why_no_auc, periods=periods)
    # Later rows of a group are judged by a fit that has seen its earlier ones, as in later use.
    auc = _auc(calibration, rows, later)
    return Evidence(calibration, auc, "", held_out=later, periods=periods)


def _score_later_rows(
    model: Pipeline, rows: TrainingRows, scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Anomaly scores by fits to all earlier periods, on the scale of `scores`.

    Rows of the first period have none (NaN), nor those with too few earlier rows to learn from.
    """
    assert rows.periods is not None
    detector = clone(model[1])
    if "budget" in detector.get_params():
        # Together these fits take as long as the one that they judge.
        detector.set_params(budget=detector.budget / int(rows.periods.max()))
    template, later = make_pipeline(model[0].refit(), detector), np.full(len(rows.codes), np.nan)
    for split in forward_splits(rows.periods):
        try:
            part = cross_scores(
                template, rows.parsed, rows.training_codes, scores, [split], detector.random_state
            )
        except InputError:
            continue  # the earlier rows lack a kind of label, for instance
        later = np.where(np.isnan(part), later, part)
    return later


def _describe_periods(rows: TrainingRows, later: NDArray[np.float64]) -> list[Period]:
    """Describe each period, and how well its labelled rows were ranked."""
    assert rows.periods is not None
    assert rows.moments is not None
    described = []
    for number in range(int(rows.periods.max()) + 1):
        inside = rows.periods == number
        if not inside.any():  # windows of one stretch may fill several periods
            continue
        codes, scores, moments = rows.codes[inside], later[inside], rows.moments.filter(inside)
        judged = (codes != UNLABELLED) & ~np.isnan(scores)
        auc, counts = None, count_labels(codes)
        if {NORMAL, ANOMALY} <= set(codes[judged].tolist()):
            auc = auc_with_interval(codes[judged], scores[judged])
        first, last = str(moments.min()), str(moments.max())
        described.append(Period(first, last, len(codes), counts.normal, counts.anomaly, auc))
    return described


# --- what the user should know ----------------------------------------------------------

_FEW_ANOMALIES = 5  # labelled; below that a single one more or less changes the answer
_MANY = 0.3  # of the unlabelled rows; for a random sample about 0.02 are beyond


def list_warnings(
    model: Pipeline,
    sample: TrainingSample,
    counts: LabelCounts,
    notes: Sequence[Warning],
    evidence: Evidence,
) -> list[str]:
    """Return everything that the user should know, in sentences.

    `sample` are the rows in memory, `counts` the labels of the whole table, `notes` the warnings of
    the fit.
    """
    preparer, detector = model[0], model[1]
    warnings, used = [], detector._used_kinds()  # labels are too expensive to waste unnoticed
    labels = ((NORMAL, counts.normal, "normal rows"), (ANOMALY, counts.anomaly, "anomalies"))
    for kind, count, name in labels:
        if count and kind not in used:
            warnings.append(
                f"the {detector.risk} risk does not use the {count:,} labelled {name}; rad uses "
                "both kinds of label."
            )
    warnings += map(str, notes)
    if not hasattr(preparer, "windower_"):  # features of windows are what riskad computed
        constant = [name for name, kind in preparer.kinds_.items() if kind == "constant"]
        if constant:
            names = enumerate_names(constant)
            words = f"columns that hold the same value in every row were left out: {names}."
            warnings.append(words)
        kinds = {column.name: column.kind for column in preparer.used()}
        warnings += map(str, check_data(sample.parsed, sample.codes, kinds))
    if 0 < counts.anomaly < _FEW_ANOMALIES:
        warnings.append(
            f"{few_anomalies(counts.anomaly)}: one more could change the ranking, and its quality "
            "and the anomaly rate are only roughly known. Label more."
        )
    # A true risk is a mean loss, and no loss is negative.
    total = detector._describe().get("risk_parts", {}).get("total", 0.0)
    if total < 0 and detector_tags(detector).supports_guarded_risks:
        stronger = "Regularise more (lam='tight' or lam='theorem'), or choose"
        remedy = stronger if "lam" in detector.get_params() else "Choose"
        warnings.append(
            f"the estimated risk is negative ({total:.3g}), which no true risk is: the fit follows "
            f"noise in the labelled rows. {remedy} the risk with a guard (risk='nnrad')."
        )
    return warnings + _not_drawn_at_random(evidence)


def _not_drawn_at_random(evidence: Evidence) -> list[str]:
    """Describe the limits of labelled rows that were chosen, or score unlike a random sample."""
    calibration, lines = evidence.calibration, []
    p, source, rate = calibration.random_p_value, calibration.label_source, calibration.rate
    if p is not None and p < SURPRISE and source != "chosen":
        observation = f"labelled rows score unlike a random sample of the table (p = {p:.1g})"
        alike = "the AUC and p-values are those of rows like the labelled ones"
        if evidence.weighted_auc is not None:
            alike += (
                f" (weighted to resemble the unlabelled ones, they would have an AUC of "
                f"{evidence.weighted_auc.value:.3f}, which the interval allows for)"
            )
        if source == "random" or rate is None or rate.assumption == GIVEN:
            lines = [f"{observation}: {alike}."]
        else:
            lines = [
                f"{observation}: the anomaly rate counts them as chosen, and {alike}. Label some "
                "rows drawn at random and say so (label_sampling='random'), or give the rate "
                "(anomaly_rate=...)."
            ]
    if evidence.beyond >= _MANY:
        lines.append(
            f"{evidence.beyond:.0%} of the unlabelled rows resemble hardly any labelled row: "
            "nothing here can tell how well they are ranked. Label some of them, drawn at random."
        )
    return lines
