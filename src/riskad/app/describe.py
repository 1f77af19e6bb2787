"""Complete the report of a fit, of a model file, or of a table that a model scored.

A model file stores what only the fit knew. The rest is found here, from the model itself:
`riskad.app.report` shows it all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.explain import with_reasons
from riskad.app.fit import Fit
from riskad.app.fit_report import (
    FEWEST_FOR_AUC,
    FitReport,
    HeldOutQuality,
    KindScores,
    ScoreDistribution,
)
from riskad.app.model_files import ModelHeader, make_header
from riskad.app.pictures import picture_maps
from riskad.app.reasons import Reasons, explain_rows
from riskad.app.score import (
    Progress,
    Suspect,
    catch_notes,
    earlier_results,
    rank,
    score_table,
    steps_of,
    suspects_of,
)
from riskad.app.series import SeriesPicture, first_of_events, plain_model, scores_of_points
from riskad.decisions.calibration import Calibration, quietly
from riskad.decisions.capacity import review_rows, review_table
from riskad.metrics.ranking import precision_recall_with_interval, roc_with_interval
from riskad.tables.cells import free_name

_REASONS = 4  # of each suspicious row
_REASONS_OF_ALARM = 2
_BINS = 40
_FEW = 60  # rows that a chart can show one by one


def describe_model(model: Any, header: ModelHeader) -> FitReport:
    """Describe a model, and what the header of its file tells of its fit, if anything."""
    report = header.report or FitReport()
    return replace(report, created=header.created, versions=header.versions).of_model(model)


def describe_fit(fit: Fit, *, command: str = "") -> FitReport:
    """Complete the report of a fit, for `riskad.app.report.documents.write_report`."""
    report = describe_model(fit.model, make_header(fit.model, fit.report))
    top = fit.report.top
    return _with_rows(report, fit.model, top, fit.reasons, command, fit.ranked.head(len(top)))


def describe_table(
    model: Pipeline,
    header: ModelHeader,
    frame: pl.DataFrame,
    *,
    top: int = 10,
    source: str = "table",
    command: str = "",
    progress: Progress = lambda _: None,
    scored: Callable[[int], object] = lambda _: None,
) -> FitReport:
    """Score a table, and report on it and on the model.

    Labels in the table are not read: quality and anomaly rate are those of the fit, if the model
    stores them. `scored` is called with the number of rows that have a score. A model of windows
    scores those of the table, and the report is about them and about alarms on the clock.
    """
    fit, windows, notes = describe_model(model, header), None, list[Warning]()
    preparer, _ = steps_of(model)
    if hasattr(preparer, "windower_"):
        with catch_notes() as notes:
            windows = preparer.windower_.cut(frame)
        frame, model = windows.frame, plain_model(model)
    scored_frame, summary = score_table(
        model,
        frame.drop(earlier_results(frame.columns)),
        id=fit.spec.row_names,
        reasons=0 if windows is None else _REASONS_OF_ALARM,
        top=top,
        source=source,
        progress=progress,
        scored=scored,
    )
    if windows is not None:  # one window of each event
        names = fit.spec.row_names
        ranked = rank(scored_frame.with_row_index(free_name(scored_frame.columns), 1))
        first = first_of_events(preparer.windower_, frame, ranked).head(top)
        summary = replace(summary, top=suspects_of(first, names))
    progress("Finding reasons")
    shown = scored_frame[[suspect.row - 1 for suspect in summary.top]]
    with quietly():
        reasons = explain_rows(model, shown) if summary.top else None
    scores = scored_frame["anomaly_score"].to_numpy()
    calibration = getattr(model[-1], "calibration_", None)
    review, alarms, series = None, list[str](), list[SeriesPicture]()
    if calibration is not None and calibration.segments is None:
        review = review_table(review_rows(calibration, scores), summary.flagged, fit.rule)
    if windows is not None:
        _, raised = scores_of_points(
            windows, scored_frame, len(windows.points.rows), fit.threshold, summary.added
        )
        alarms, series = raised.in_words(top), raised.pictures()
    report = replace(
        fit,
        source=source,
        trained_on=fit.source or "an unnamed table",
        rows=summary.rows,
        flagged=summary.flagged,
        flagged_of=summary.rows,
        review=review,
        segments=[],
        alarms=alarms,
        series=series,
        warnings=[
            *map(str, notes),
            *summary.warnings,
            *(f"When fitted: {note}" for note in fit.warnings),
        ],
    )
    return _with_rows(report, model, summary.top, reasons, command, shown, scores)


def _with_rows(
    report: FitReport,
    model: Pipeline,
    suspects: list[Suspect],
    reasons: Reasons | None,
    command: str,
    rows: pl.DataFrame,
    scores: NDArray[np.float64] | None = None,
) -> FitReport:
    """Add the suspicious rows with reasons and maps, and the curves of a page."""
    calibration: Calibration | None = getattr(model[-1], "calibration_", None)
    maps = zip(suspects, picture_maps(model[0], rows), strict=False)
    return replace(
        report,
        top=with_reasons(suspects, reasons, _REASONS),
        maps={str(suspect.row): each for suspect, each in maps if each},
        usual_score=None if reasons is None else reasons.base,
        quality=_measure_quality(calibration),
        distribution=_count_scores(calibration, report.threshold, scores),
        command=command,
        reported=datetime.now(UTC).isoformat(timespec="seconds"),
    )


# --- what held-out scores show ------------------------------------------------------------


def _measure_quality(calibration: Calibration | None) -> HeldOutQuality | None:
    """The curves; None with fewer than 3 labelled rows of a kind."""
    if calibration is None:
        return None
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_AUC:
        return None
    codes, scores = calibration.codes, calibration.scores
    rate, effect = calibration.rate, calibration.group_effect
    return HeldOutQuality(
        roc=roc_with_interval(codes, scores, effect=effect),
        precision_recall=precision_recall_with_interval(codes, scores, rate, effect=effect),
        precision_rate=m / (m + n) if rate is None else calibration.pi_n,
    )


def _count_scores(
    calibration: Calibration | None, threshold: float, scores: NDArray[np.float64] | None
) -> ScoreDistribution:
    """Count the scores of a fit, and those of a table that was scored later, in common bins.

    They reach from the 1% to the 99% quantile of the kinds, and to the threshold.
    """
    kinds: dict[str, tuple[NDArray[Any], int]] = {}  # scores, and of how many rows they are
    if calibration is not None:
        normals, anomalies = calibration.normals, calibration.anomalies
        kinds = {"normal": (normals, len(normals)), "anomaly": (anomalies, len(anomalies))}
        kinds["unlabelled"] = (calibration.unlabelled, calibration.n_unlabelled)
    if scores is not None:
        kinds["table"] = (scores, len(scores))
    kinds = {kind: each for kind, each in kinds.items() if each[1]}
    ends = [np.quantile(each, (0.01, 0.99)) for each, _ in kinds.values()]
    low, high = min(threshold, *(end[0] for end in ends)), max(threshold, *(end[1] for end in ends))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    spread = []
    for kind, (each, rows) in kinds.items():  # those kept may be quantiles of more rows
        counts, _ = np.histogram(np.clip(each, edges[0], edges[-1]), edges)
        counts = np.rint(counts * (rows / len(each))).astype(int)
        shown = each.tolist() if rows <= _FEW else []
        spread.append(KindScores(kind, rows, counts.tolist(), shown))
    return ScoreDistribution(edges.tolist(), spread)
