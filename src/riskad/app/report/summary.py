"""The content of a report on a fit, or on a table that a model scored: page and JSON show it.

Labelled rows have scores by fits that have not seen them (`riskad.decisions.calibration`). Values
that they cannot determine are None, with the reason in another field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.explain import ExplainedRow, explained_rows
from riskad.app.fit import Fit
from riskad.app.inspect import describe_model
from riskad.app.model_files import ModelHeader, make_header
from riskad.app.noticed import Progress, no_warnings
from riskad.app.reasons import explain_rows
from riskad.app.report.distribution import ScoreDistribution, count_scores
from riskad.app.report.held_out import HeldOutQuality, measure_quality
from riskad.app.report.sections import collect_data
from riskad.app.report.wording import flagged_lines
from riskad.app.results import RESULT_COLUMNS, SCORE_COLUMNS
from riskad.app.review import ReviewReport, review_rows, review_table
from riskad.app.score import score_table
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import RateEstimate
from riskad.decisions.calibration import Calibration
from riskad.decisions.thresholds import parse_threshold

__all__ = ["ReportData", "SuspiciousRow", "describe_fit", "describe_table"]

_REASONS = 4


@dataclass(frozen=True)
class SuspiciousRow(ExplainedRow):
    """A suspicious row, its reasons, and the probability that it is an anomaly, if known."""

    anomaly_probability: float | None = None


@dataclass(frozen=True)
class ReportData:
    """The content of a report; `subject` is "fit", or "table" for rows that a model scored later.

    The fields are those of the JSON report; `schema/report-1.json` explains each.
    """

    subject: str
    source: str
    rows: int
    id: str | None
    created: str
    command: str
    flagged: int
    flagged_of: int
    rule: str
    threshold: float
    top: list[SuspiciousRow]
    usual_score: float | None
    warnings: list[str]
    trained_on: str | None
    model_created: str
    labels: LabelCounts | None
    label: str | None
    rate: tuple[float, float, float] | None
    rate_rests_on: str
    labels_random_p: float | None
    assumed_rate: float | None
    expectations: list[str]
    capacity: dict[str, Any] | None
    review: ReviewReport | None
    distribution: ScoreDistribution
    quality: HeldOutQuality
    model: str
    settings: dict[str, Any]
    defaults: dict[str, Any]
    choices: list[str]
    fitted: dict[str, Any]
    said: list[str]
    evidence: str
    members: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    effects_of: str
    columns: dict[str, str]
    made_of_columns: dict[str, str]
    preparation: list[str]
    reading: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    sections: dict[str, Any] = field(default_factory=dict)


def describe_fit(
    fit: Fit, *, command: str = "", notes: Mapping[str, Any] | None = None
) -> ReportData:
    """Collect the content of a report on a fit.

    Parameters
    ----------
    fit
        Result of `riskad.fit_table`.
    command
        The command line, if there was one.
    notes
        The notes saved with the model, if they are more than the notes of the fit.

    Returns
    -------
    ReportData
        For `render_page` and `write_report`.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> from riskad.tables.labelled import LabelColumn
    >>> from riskad.app.fit import fit_table
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> table = pl.DataFrame({"amount": amount, "label": ["ok"] * 30 + [""] * 160 + ["fraud"] * 10})
    >>> labels = LabelColumn("label", normal=["ok"], anomaly=["fraud"])
    >>> data = describe_fit(fit_table(table, labels, model="shallow"))
    >>> print(data.labels, "->", data.flagged, "of", data.flagged_of)
    30 normal, 10 anomalies, 160 unlabelled -> 10 of 160
    >>> data.top[0].reasons[0].column
    'amount'
    """
    report = fit.report
    return _describe(
        fit.model,
        make_header(fit.model, notes or report.notes()),
        top=explained_rows(report.top, fit.reasons, _REASONS),
        usual_score=None if fit.reasons is None else fit.reasons.base,
        subject="fit",
        source=report.source,
        rows=report.rows,
        id=report.id,
        flagged=report.unlabelled_flagged,
        flagged_of=report.labels.unlabelled,
        warnings=report.warnings,
        command=command,
    )


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
) -> ReportData:
    """Score a table and collect the content of a report on it and on the model.

    Labels in the table are not read: quality and anomaly rate are those of the fit, if the model
    stores them.

    Parameters
    ----------
    model, header
        A fitted pipeline, and the result of `riskad.app.model_files.read_header` for its file.
    frame
        The table to score.
    top
        Number of the most suspicious rows to report.
    source, command
        Name of the table; the command line, if there was one.
    progress, scored
        Functions that are called with each step, and with the number of rows that have a score.

    Returns
    -------
    ReportData
        For `render_page` and `write_report`.
    """
    if set(SCORE_COLUMNS) & set(frame.columns):
        frame = frame.drop(name for name in RESULT_COLUMNS if name in frame.columns)
    training = header.notes.get("fit", {})
    told: dict[str, Any] = {"source": source, "progress": progress, "scored": scored}
    results, report = score_table(model, frame, id=training.get("id"), top=top, **told)
    progress("Finding reasons")
    found = None
    if report.top:
        with no_warnings():
            found = explain_rows(model, frame[[suspect.row - 1 for suspect in report.top]])
    return _describe(
        model,
        header,
        top=explained_rows(report.top, found, _REASONS),
        usual_score=None if found is None else found.base,
        scores=results["anomaly_score"].to_numpy(),
        subject="table",
        source=source,
        rows=report.rows,
        id=report.id,
        flagged=report.flagged,
        flagged_of=report.rows,
        warnings=report.warnings
        + [f"When fitted: {note}" for note in training.get("warnings", [])],
        command=command,
    )


def _describe(
    model: Pipeline,
    header: ModelHeader,
    *,
    top: Sequence[ExplainedRow],
    scores: NDArray[np.float64] | None = None,
    **known: Any,
) -> ReportData:
    """Combine what is known about the rows and the model's own description."""
    calibration: Calibration | None = getattr(model[-1], "calibration_", None)
    training = header.notes.get("fit", {})
    facts = _model_facts(model, header)
    labels = LabelCounts(**training["labels"]) if training else None
    review = _review(calibration, scores, known["flagged"], facts["rule"])
    return ReportData(
        **known,
        **facts,
        expectations=_expect(known["flagged"], review, labels),
        capacity=training.get("capacity"),
        review=review,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        top=_with_probabilities(top, calibration),
        rate=_three(calibration),
        rate_rests_on="" if (rate := _rate(calibration)) is None else rate.assumption,
        labels_random_p=None if calibration is None else calibration.random_p_value,
        distribution=count_scores(calibration, facts["threshold"], scores),
        quality=measure_quality(calibration, training),
        trained_on=training.get("source"),
        model_created=header.created,
        labels=labels,
        label=training.get("label"),
        effects=training.get("effects", []),
        effects_of=training.get("effects_of", ""),
        reading=training.get("reading", []),
        versions=header.versions,
        sections=collect_data(model, header),
    )


def _rate(calibration: Calibration | None) -> RateEstimate | None:
    return None if calibration is None else calibration.rate


def _three(calibration: Calibration | None) -> tuple[float, float, float] | None:
    """The anomaly rate and the ends of its interval, if there is one."""
    rate = _rate(calibration)
    return None if rate is None else (rate.value, rate.low, rate.high)


def _review(
    calibration: Calibration | None, scores: NDArray[np.float64] | None, flagged: int, rule: str
) -> ReviewReport | None:
    """What looking at rows finds: those of a table, or the unlabelled ones of the fit."""
    if calibration is None:
        return None
    if scores is not None:
        return review_table(review_rows(calibration, scores), flagged, rule)
    rows = review_rows(calibration, calibration.unlabelled, calibration.n_unlabelled)
    return review_table(rows, flagged, rule)


def _expect(
    flagged: int,
    review: ReviewReport | None,
    labels: LabelCounts | None,
) -> list[str]:
    """How many of the flagged rows are expected to be right, in lines."""
    expected = None if review is None else review.flagged
    likely = 0 if review is None else review.likely
    return flagged_lines(expected, flagged, labels, likely)


def _model_facts(model: Pipeline, header: ModelHeader) -> dict[str, Any]:
    """The model's description: its rule, settings, results and columns."""
    about, detector = describe_model(model, header), model[-1]
    prior = about.settings.get("prior")
    selection = getattr(detector, "selection_", None)
    rule = about.decision["rule"]
    return {
        "rule": rule,
        "threshold": about.decision["threshold"],
        "assumed_rate": 1 - prior if isinstance(prior, float) else None,
        "model": about.steps[-1],
        "settings": about.settings,
        "defaults": _defaults(detector),
        "choices": [_say_rule(rule)] + ([] if selection is None else [str(selection)]),
        "fitted": about.fitted,
        "said": about.said,
        "evidence": about.training.get("evidence", about.evidence),
        "members": about.fitted.get("leaderboard", []),
        "columns": model[0].kinds_,
        "made_of_columns": {c.name: c.describe() for c in model[0].columns_.values()},
        "preparation": about.preparation,
    }


def _defaults(detector: Any) -> dict[str, Any]:
    """The default settings of a detector, in a form that JSON can hold."""
    parameters = inspect.signature(type(detector)).parameters.values()
    given = {each.name: each.default for each in parameters if each.default is not each.empty}
    plain = (str, int, float, bool, type(None))
    return {name: v if isinstance(v, plain) else repr(v) for name, v in given.items()}


def _say_rule(rule: str) -> str:
    """What a threshold means, in the words of its class.

    >>> _say_rule("rate")
    'threshold rate: flag as many unlabelled rows as there are anomalies among them'
    """
    meaning = (parse_threshold(rule).__doc__ or "").splitlines()[0].split(".")[0]
    return f"threshold {rule}: {meaning[:1].lower()}{meaning[1:]}"


# --- rows --------------------------------------------------------------------------------


def _with_probabilities(
    rows: Sequence[ExplainedRow], calibration: Calibration | None
) -> list[SuspiciousRow]:
    if calibration is None or not calibration.knows_probabilities or not rows:
        return [SuspiciousRow(**vars(row)) for row in rows]
    probabilities = calibration.anomaly_probability(np.array([row.anomaly_score for row in rows]))
    pairs = zip(rows, probabilities.tolist(), strict=True)
    return [SuspiciousRow(**vars(row), anomaly_probability=p) for row, p in pairs]
