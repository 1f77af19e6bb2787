"""Quick scores: let trees learn the scores of a model, and use these."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from riskad.app.fit_report import FitReport
from riskad.app.model_files import ModelHeader
from riskad.app.noticed import Progress
from riskad.app.results import steps_of
from riskad.core.checks import InputError
from riskad.detectors.auto import AutoRAD
from riskad.detectors.compressed import Fidelity

_TIMED_ROWS = 500


@dataclass(frozen=True)
class CompressReport:
    """What `compress_model` did."""

    trees: int
    learned_rows: int
    """Stored training rows, and rows made of them."""
    fidelity: Fidelity
    seconds: float
    """That learning took."""
    times_as_fast: float
    """Seconds of scoring by the model, divided by those of the trees, on random rows."""
    kept_rows: int
    """Number of training rows in the file."""
    warnings: list[str] = field(default_factory=list)


def compress_model(
    model: Pipeline,
    header: ModelHeader,
    *,
    alone: bool = False,
    progress: Progress = lambda _: None,
) -> tuple[Pipeline, FitReport | None, CompressReport]:
    """Let boosted trees, the student, learn the scores of a model. No table is needed.

    Parameters
    ----------
    model, header
        A model of `riskad.fit_table` with model="auto", and the header of its file.
    alone
        Whether to return the student alone, which holds no training rows, instead of the model with
        its student.
    progress
        Called with each step.

    Returns
    -------
    tuple
        The model, the report of the fit for its file, and what was done.
    """
    preparer, detector = steps_of(model)
    if not isinstance(detector, AutoRAD):
        name = type(detector).__name__
        raise InputError(f"Only auto models are compressed; {name} scores rows quickly as it is.")
    progress("Learning the scores")
    start = time.perf_counter()
    student = detector.compress()
    seconds = time.perf_counter() - start
    kept: Any = student if alone else detector
    report = CompressReport(
        trees=student.trees_.n_trees,
        learned_rows=student.n_rows_,
        fidelity=student.fidelity_,
        seconds=round(seconds, 1),
        times_as_fast=times_as_fast(detector),
        kept_rows=kept._kept_rows(),
    )
    fit_report = header.report
    if fit_report is not None:
        fit_report = replace(
            fit_report,
            model=type(kept).__name__,
            fitted=kept._describe(),
            settings=kept.get_params(deep=False),
            summary=kept._describe_in_words(),
            kept_rows=kept._kept_rows(),
            evidence=kept._evidence_in_words(),
        )
    return Pipeline([("prepare", preparer), ("detect", kept)]), fit_report, report


def quick_model(model: Pipeline) -> Pipeline:
    """Return the student of a model as a model, which decides as the model does."""
    preparer, detector = steps_of(model)
    student = getattr(detector, "student_", None)
    if student is not None:
        return Pipeline([("prepare", preparer), ("detect", student.deciding_as(detector))])
    if isinstance(detector, AutoRAD):
        raise InputError(
            "The model has not learned quick scores. Let it: riskad compress MODEL, or fit with "
            "quick=True."
        )
    return model  # trees and linear models are quick


def times_as_fast(detector: AutoRAD) -> float:
    """Return how many times as fast the student of a detector scores random rows."""
    rows = detector._trial_rows(np.random.default_rng(0), _TIMED_ROWS)
    return _seconds(detector, rows) / _seconds(detector.student_, rows)


def _seconds(detector: Any, rows: np.ndarray) -> float:
    """Processor time of scoring, the minimum of two runs."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        detector._scores(rows)
        seconds.append(time.process_time() - start)
    return max(min(seconds), 1e-6)
