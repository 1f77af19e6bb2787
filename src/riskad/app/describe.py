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
from riskad.app.fit import Fit, plain_parameters
from riskad.app.fit_report import FitReport, HeldOutQuality, KindScores, ScoreDistribution
from riskad.app.model_files import ModelHeader, make_header
from riskad.app.noticed import Progress, no_warnings
from riskad.app.reasons import Reasons, explain_rows
from riskad.app.results import RESULT_COLUMNS, SCORE_COLUMNS, Suspect
from riskad.app.score import score_table
from riskad.core.labels import LabelCounts
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import review_rows, review_table
from riskad.detectors.description import SelfDescribing
from riskad.metrics.ranking import (
    auc_with_interval,
    precision_recall_with_interval,
    reliability,
    roc_with_interval,
)
from riskad.tables.preparation import TablePreparer

_REASONS = 4  # of each suspicious row
_UNNAMED = "an unnamed table"
FEWEST_FOR_CURVES = 3  # labelled rows of each kind, as for an AUC
_FEWEST_FOR_RELIABILITY = 5
_RELIABILITY_BINS = 5
_BINS = 40
_FEW = 60  # rows that a chart can show one by one


def describe_model(model: Any, header: ModelHeader) -> FitReport:
    """Describe a model and what the header of its file tells of its fit.

    For a model that was saved without a report, this is what the model itself tells.
    """
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    detector, preparer = steps[-1], steps[0]
    report = header.report or FitReport(
        model=type(detector).__name__, settings=plain_parameters(detector)
    )
    report = replace(report, created=header.created, versions=header.versions)
    if isinstance(preparer, TablePreparer):
        report = replace(
            report,
            columns=preparer.kinds_,
            preparation=report.preparation or preparer.describe(),
            column_uses={each.name: each.describe() for each in preparer.columns_.values()},
        )
    if isinstance(detector, SelfDescribing):
        report = replace(
            report,
            fitted=report.fitted | detector._describe(),
            summary=detector._describe_in_words(),
            evidence=report.evidence or detector._evidence_in_words(),
            kept_rows=detector._kept_rows(),
        )
    if hasattr(detector, "offset_"):
        rule = str(getattr(detector, "threshold_", "risk"))
        report = replace(report, rule=rule, threshold=-float(detector.offset_) + 0.0)
    return _calibrated(report, getattr(detector, "calibration_", None))


def _calibrated(report: FitReport, calibration: Calibration | None) -> FitReport:
    """What the held-out scores of labelled rows tell, which the model stores."""
    if calibration is None:
        why = "the model has no scores of held-out labelled rows (riskad.calibrate)"
        return replace(report, why_no_auc=report.why_no_auc or why)
    n, m = len(calibration.normals), len(calibration.anomalies)
    auc, why_no_auc, review = report.auc, report.why_no_auc, report.review
    if auc is None and not why_no_auc:  # calibrated in Python
        if min(n, m) >= FEWEST_FOR_CURVES:
            auc = auc_with_interval(calibration.codes, calibration.scores)
        else:
            why_no_auc = (
                f"it takes {FEWEST_FOR_CURVES} held-out labelled rows of each kind, and there are "
                f"{n} normal and {m} anomalies"
            )
    if review is None and report.flagged_of:
        rows = review_rows(calibration, calibration.unlabelled, calibration.n_unlabelled)
        review = review_table(rows, report.flagged, report.rule)
    return replace(
        report,
        auc=auc,
        why_no_auc=why_no_auc,
        rate=calibration.rate,
        labels_random_p=calibration.random_p_value,
        calibrated_on=LabelCounts(n, m, calibration.n_unlabelled),
        review=review,
    )


def describe_fit(fit: Fit, *, command: str = "") -> FitReport:
    """Complete the report of a fit, for `riskad.app.report.documents.write_report`.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> from riskad import fit_table
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> table = pl.DataFrame({"amount": amount, "label": ["ok"] * 30 + [""] * 160 + ["fraud"] * 10})
    >>> fit = fit_table(table, label="label", normal="ok", anomaly="fraud", model="shallow")
    >>> report = describe_fit(fit)
    >>> print(report.labels, "->", report.flagged, "of", report.flagged_of)
    30 normal, 10 anomalies, 160 unlabelled -> 10 of 160
    >>> report.top[0].reasons[0].column
    'amount'
    """
    report = describe_model(fit.model, make_header(fit.model, fit.report))
    return _with_rows(report, fit.model, fit.report.top, fit.reasons, command)


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
    stores them. `scored` is called with the number of rows that have a score.
    """
    if set(SCORE_COLUMNS) & set(frame.columns):
        frame = frame.drop(name for name in RESULT_COLUMNS if name in frame.columns)
    fitted = describe_model(model, header)
    results, found = score_table(
        model, frame, id=fitted.spec.id, top=top, source=source, progress=progress, scored=scored
    )
    progress("Finding reasons")
    reasons = None
    if found.top:
        with no_warnings():
            reasons = explain_rows(model, frame[[suspect.row - 1 for suspect in found.top]])
    scores = results["anomaly_score"].to_numpy()
    calibration = getattr(model[-1], "calibration_", None)
    review = None
    if calibration is not None:
        review = review_table(review_rows(calibration, scores), found.flagged, fitted.rule)
    report = replace(
        fitted,
        source=source,
        trained_on=fitted.source or _UNNAMED,
        rows=found.rows,
        flagged=found.flagged,
        flagged_of=found.rows,
        review=review,
        warnings=found.warnings + [f"When fitted: {note}" for note in fitted.warnings],
    )
    return _with_rows(report, model, found.top, reasons, command, scores)


def _with_rows(
    report: FitReport,
    model: Pipeline,
    suspects: list[Suspect],
    reasons: Reasons | None,
    command: str,
    scores: NDArray[np.float64] | None = None,
) -> FitReport:
    """Add the suspicious rows with reasons, and the curves of a page."""
    calibration: Calibration | None = getattr(model[-1], "calibration_", None)
    top = with_reasons(suspects, reasons, _REASONS)
    if top and calibration is not None and calibration.knows_probabilities:
        likely = calibration.anomaly_probability(np.array([row.anomaly_score for row in top]))
        pairs = zip(top, likely.tolist(), strict=True)
        top = [replace(row, anomaly_probability=probability) for row, probability in pairs]
    return replace(
        report,
        top=top,
        usual_score=None if reasons is None else reasons.base,
        quality=measure_quality(calibration),
        distribution=count_scores(calibration, report.threshold, scores),
        command=command,
        reported=datetime.now(UTC).isoformat(timespec="seconds"),
    )


# --- what held-out scores show ------------------------------------------------------------


def measure_quality(calibration: Calibration | None) -> HeldOutQuality | None:
    """Measure quality by held-out scores; None with fewer than 3 labelled rows of a kind."""
    if calibration is None:
        return None
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_CURVES:
        return None
    codes, scores = calibration.codes, calibration.scores
    rate, effect = calibration.rate, calibration.group_effect
    reliable, why_not = None, ""
    if rate is None:
        why_not = "that takes an anomaly rate, which these labels do not tell"
    elif min(n, m) < _FEWEST_FOR_RELIABILITY:
        why_not = (
            f"that takes {_FEWEST_FOR_RELIABILITY} held-out labelled rows of each kind, and there "
            f"are {min(n, m)} of the rarer kind"
        )
    else:
        likely = calibration.anomaly_probability(scores)
        reliable = reliability(codes, likely, calibration.pi_n, _RELIABILITY_BINS)
    return HeldOutQuality(
        roc=roc_with_interval(codes, scores, effect=effect),
        precision_recall=precision_recall_with_interval(codes, scores, rate, effect=effect),
        precision_rate=m / (m + n) if rate is None else calibration.pi_n,
        reliability=reliable,
        why_no_reliability=why_not,
    )


def count_scores(
    calibration: Calibration | None, threshold: float, scores: NDArray[np.float64] | None
) -> ScoreDistribution:
    """Count the scores of a fit, and those of a table that was scored later, in common bins.

    They reach from the 1% to the 99% quantile of the kinds, and to the threshold.
    """
    kinds: dict[str, tuple[NDArray[Any], int]] = {}
    if calibration is not None:
        labelled = {"normal": calibration.normals, "anomaly": calibration.anomalies}
        kinds = {kind: (each, len(each)) for kind, each in labelled.items()}
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
