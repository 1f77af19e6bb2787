"""Make a model small and fast: a forest that has learned its scores from the rows of a table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.fit_report import FitReport
from riskad.app.model_files import ModelHeader
from riskad.app.noticed import NOTICED, Progress
from riskad.app.results import steps_of
from riskad.core.checks import InputError
from riskad.detectors.compressed import CompressedRAD, Fidelity
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.tables.notes import catch_kinds

_TIMED_ROWS = 2_000


@dataclass(frozen=True)
class CompressReport:
    """What `compress_table` did."""

    source: str
    rows: int
    teacher: str
    trees: int
    learned_rows: int
    fidelity: Fidelity
    times_as_fast: float
    """Seconds of scoring before, divided by seconds now, on some of the rows."""
    kept_rows_before: int
    """Number of training rows that the original model stored."""
    warnings: list[str] = field(default_factory=list)


def compress_table(
    model: Pipeline,
    header: ModelHeader,
    frame: pl.DataFrame,
    *,
    labels: LabelColumn | None = None,
    seed: int | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[Pipeline, FitReport | None, CompressReport]:
    """Train a forest to reproduce the scores of a model on the rows of a table.

    These should be like the rows to be scored later; the training rows will do. The forest does not
    learn from `labels`, which only measure the loss as an AUC, too. Returns the small model, the
    report of the fit for its file, and what was done.
    """
    if not frame.height:
        raise InputError("The table has a header but no rows.")
    preparer, teacher = steps_of(model)
    if isinstance(teacher, CompressedRAD):
        raise InputError("The model is compressed already. Compress the one it was made from.")
    codes = None if labels is None else FrameTable(frame, labels).codes
    with catch_kinds(*NOTICED) as notes:
        progress("Preparing the columns")
        rows = preparer.features(preparer.parse(frame))
        progress(f"Scoring {frame.height:,} rows and learning their scores")
        student = CompressedRAD(random_state=seed).learn(teacher, rows, codes)
    some = rows[:_TIMED_ROWS]
    report = CompressReport(
        source=source,
        rows=frame.height,
        teacher=type(teacher).__name__,
        trees=student.trees_.n_trees,
        learned_rows=student.n_rows_,
        fidelity=student.fidelity_,
        times_as_fast=_seconds(teacher, some) / _seconds(student, some),
        kept_rows_before=teacher.kept_rows(),
        warnings=[str(note) for note in notes],
    )
    fitted = header.report
    if fitted is not None:
        fitted = replace(
            fitted,
            model=type(student).__name__,
            fitted=student.describe(),
            settings=student.get_params(deep=False),
            summary=student.describe_in_words(),
            kept_rows=student.kept_rows(),
            evidence=student.evidence_in_words(),
        )
    return Pipeline([("prepare", preparer), ("detect", student)]), fitted, report


def _seconds(detector: Any, rows: Any) -> float:
    """Processor time of scoring, the minimum of two runs."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        detector.anomaly_score(rows)
        seconds.append(time.process_time() - start)
    return max(min(seconds), 1e-6)
