"""Change a model without another fit: its threshold rule, and trees that score rows quickly."""

from __future__ import annotations

import time
import timeit
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from riskad.app.fit_report import FitReport
from riskad.app.model_files import ModelHeader
from riskad.app.score import Progress, steps_of
from riskad.core.checks import InputError
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import ExpectedCost, TopRows, review_rows, review_table
from riskad.decisions.thresholds import FalseAlarms, Threshold
from riskad.detectors.auto import AutoRAD
from riskad.detectors.compressed import Fidelity

_TIMED_ROWS = 500  # made up, as only the ratio of the two times counts


@dataclass(frozen=True)
class CompressReport:
    """What `compress_model` did."""

    trees: int
    learned_rows: int  # stored training rows, and rows made of them
    fidelity: Fidelity
    seconds: float  # that learning took
    times_as_fast: float
    """Seconds of scoring by the model, divided by those of the trees, on random rows."""
    kept_rows: int  # number of training rows in the file
    warnings: list[str] = field(default_factory=list)


def compress_model(
    model: Pipeline,
    header: ModelHeader,
    *,
    alone: bool = False,
    progress: Progress = lambda _: None,
) -> tuple[Pipeline, FitReport | None, CompressReport]:
    """Let boosted trees, the student, learn the scores of an auto model. No table is needed.

    Returns the model with its student, or the student `alone`, which holds no training rows; the
    report of the fit for its file; and what was done.
    """
    preparer, detector = steps_of(model)
    if not isinstance(detector, AutoRAD):
        name = type(detector).__name__
        raise InputError(f"Only auto models are compressed; {name} scores rows quickly as it is.")
    progress("Learning the scores")
    start = time.perf_counter()
    student = detector.compress()
    seconds = round(time.perf_counter() - start, 1)
    # The student of an auto model stays beside its members unless nothing of the training rows may
    # be kept.
    scorer: Any = student if alone else detector
    report = CompressReport(
        trees=student.trees_.n_trees,
        learned_rows=student.n_rows_,
        fidelity=student.fidelity_,
        seconds=seconds,
        times_as_fast=times_as_fast(detector),
        kept_rows=scorer._kept_rows(),
    )
    changed, fit_report = Pipeline([("prepare", preparer), ("detect", scorer)]), header.report
    if fit_report is not None:
        blank = replace(fit_report, model="", fitted={}, settings={}, evidence="")
        fit_report = blank.of_model(changed)
    return changed, fit_report, report


def has_quick_scores(model: Pipeline) -> bool:
    """Whether a model has a student, trees that have learned its scores."""
    return getattr(steps_of(model)[1], "student_", None) is not None


def quick_model(model: Pipeline) -> Pipeline:
    """Return the student of a model as a model, which decides as the model does."""
    preparer, detector = steps_of(model)
    student = getattr(detector, "student_", None)
    if student is not None:
        return Pipeline([("prepare", preparer), ("detect", student._deciding_as(detector))])
    if isinstance(detector, AutoRAD):
        raise InputError(
            "The model has not learned quick scores. Let it: riskad compress MODEL, or fit with "
            "quick=True."
        )
    return model  # trees and linear models are quick


def times_as_fast(detector: AutoRAD) -> float:
    """Return how many times as fast the student of a detector scores random rows."""
    # Rows as the columns of the fit could have them: no table is at hand.
    rows = detector._trial_rows(np.random.default_rng(0), _TIMED_ROWS)
    fastest = []
    for each in (detector, detector.student_):
        # Processor time, since other programs would count in that of the clock; the minimum of two
        # runs, since nothing makes a run too fast.
        seconds = timeit.repeat(partial(each._scores, rows), time.process_time, number=1, repeat=2)
        fastest.append(max(min(seconds), 1e-6))
    return fastest[0] / fastest[1]


# --- threshold rule ---------------------------------------------------------------------


@dataclass(frozen=True)
class ThresholdReport:
    """What `change_threshold` did; counts are of the unlabelled rows of the fit."""

    rule: str
    threshold: float
    before: str
    unlabelled: int
    flagged: int
    expected: TopRows | None = None
    """Expected anomalies among the flagged rows, if the labels determine them."""
    cost: ExpectedCost | None = None


def change_threshold(
    model: Any, header: ModelHeader, threshold: Threshold | str
) -> tuple[FitReport | None, ThresholdReport]:
    """Make a model decide by another rule, without another fit; the model itself is changed.

    Returns the report of the fit with the new rule, for the model's file, and what changed.
    """
    detector = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not hasattr(detector, "set_threshold"):
        raise InputError(f"A {type(detector).__name__} has no threshold that riskad could set.")
    calibration: Calibration = detector._calibrated("other thresholds than the model's")
    before, segments = str(detector.threshold_), calibration.segments
    detector.set_threshold(threshold)
    rule, t = str(detector.threshold_), detector._anomaly_threshold
    if segments is not None and isinstance(detector.threshold_, FalseAlarms):
        raise InputError(
            f"The model has thresholds by {segments.column!r}, and false alarm rates of segments "
            "take the rows of the fit: fit it again with this threshold."
        )
    if segments is not None:
        shifted = segments.shifted(calibration)
        # Scores are shifted so that one threshold serves all segments.
        share = (shifted.unlabelled > detector.threshold_.of(shifted)).mean()
    else:
        share = (calibration.unlabelled > t).mean()
    # Of many scores the file keeps quantiles, and their number.
    flagged = round(float(share) * calibration.n_unlabelled)
    changed, review = header.report, None
    if changed is not None:
        facts = changed.fitted | {"threshold": t}
        changed = replace(changed, rule=rule, threshold=t, flagged=flagged, fitted=facts)
        changed = replace(changed, segments=[])  # which rows are of which, only the fit knows
    if segments is None:
        review = review_table(review_rows(calibration), flagged, rule)
    return changed, ThresholdReport(
        rule=rule,
        threshold=t,
        before=before,
        unlabelled=calibration.n_unlabelled,
        flagged=flagged,
        expected=None if review is None else review.flagged,
        cost=None if review is None else review.cost,
    )
