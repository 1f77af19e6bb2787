"""All that a report says of a fit, or of a table that a model scored: the page and JSON show it.

Labelled rows appear here with scores by fits that have not seen them
(`riskad.decisions.calibration`). What they cannot tell is None, with the reason beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.model_files import ModelHeader, make_header
from riskad.app.workflow import (
    RESULT_COLUMNS,
    SCORE_COLUMNS,
    ExplainedRow,
    Fit,
    Progress,
    Suspect,
    describe_model,
    explain_table,
    score_table,
)
from riskad.core.labels import LabelCounts
from riskad.decisions.calibration import Calibration
from riskad.decisions.curves import Curve, precision_recall_with_interval, roc_with_interval
from riskad.decisions.estimates import Estimate
from riskad.decisions.probability_metrics import Reliability, reliability
from riskad.decisions.ranking_metrics import Auc, auc_with_interval, average_precision_with_interval
from riskad.decisions.thresholds import parse_threshold

__all__ = [
    "Distribution",
    "Findings",
    "FoundRow",
    "KindScores",
    "Quality",
    "fit_findings",
    "table_findings",
]

_FEWEST_FOR_CURVES = 3  # labelled rows of each kind, as for an AUC
_FEWEST_FOR_RELIABILITY = 5
_RELIABILITY_BINS = 5
_BINS = 40
_FEW = 60  # rows that a chart can show one by one
_REASONS = 4


@dataclass(frozen=True)
class FoundRow(ExplainedRow):
    """A suspicious row, why it is so, and how probably it is an anomaly, if that is known."""

    anomaly_probability: float | None = None


@dataclass(frozen=True)
class KindScores:
    """Anomaly scores of rows of one kind: how many in each bin, and each by itself if few."""

    kind: str
    rows: int
    counts: list[int]
    scores: list[float]


@dataclass(frozen=True)
class Distribution:
    """Scores by kind of row; the first and the last bin also hold what lies beyond them."""

    edges: list[float]
    kinds: list[KindScores]


@dataclass(frozen=True)
class Quality:
    """How well labelled rows are told apart, with 95 % intervals, and what is not known.

    `precision_rate` is the anomaly rate at which precision is meant.
    """

    auc: Auc | None
    why_no_auc: str
    average_precision: Estimate | None = None
    precision_rate: float | None = None
    roc: Curve | None = None
    precision_recall: Curve | None = None
    reliability: Reliability | None = None
    why_no_reliability: str = ""


@dataclass(frozen=True)
class Findings:
    """What a report says; `subject` is "fit", or "table" for rows that a model scored later."""

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
    top: list[FoundRow]
    usual_score: float | None
    warnings: list[str]
    trained_on: str | None
    model_created: str
    labels: LabelCounts | None
    label: str | None
    rate: tuple[float, float, float] | None
    assumed_rate: float | None
    distribution: Distribution
    quality: Quality
    model: str
    settings: dict[str, Any]
    defaults: dict[str, Any]
    choices: list[str]
    fitted: dict[str, Any]
    members: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    effects_of: str
    columns: dict[str, str]
    preparation: list[str]
    reading: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def fit_findings(fit: Fit, *, command: str = "") -> Findings:
    """Return what there is to say of a fit; `command` is how it was asked for.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> from riskad.app.workflow import Labels, fit_table
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> table = pl.DataFrame({"amount": amount, "label": ["ok"] * 30 + [""] * 160 + ["fraud"] * 10})
    >>> labels = Labels("label", normal=["ok"], anomaly=["fraud"])
    >>> found = fit_findings(fit_table(table, labels, model="shallow"))
    >>> print(found.labels, "->", found.flagged, "of", found.flagged_of)
    30 normal, 10 anomalies, 160 unlabelled -> 10 of 160
    >>> found.top[0].reasons[0].column
    'amount'
    """
    report = fit.report
    return _findings(
        fit.model,
        make_header(fit.model, report.notes()),
        top=_explain(fit.model, fit.ranked.head(len(report.top)), report.top, report.id),
        subject="fit",
        source=report.source,
        rows=report.rows,
        id=report.id,
        flagged=report.unlabelled_flagged,
        flagged_of=report.labels.unlabelled,
        warnings=report.warnings,
        command=command,
    )


def table_findings(
    model: Pipeline,
    header: ModelHeader,
    frame: pl.DataFrame,
    *,
    top: int = 10,
    source: str = "table",
    command: str = "",
    progress: Progress = lambda _: None,
) -> Findings:
    """Return what there is to say of a table and of the model that scores it.

    Labels of the table are not read: quality and rate are those of the fit, as far as the model
    holds them. `header` is what `riskad.app.model_files.read_header` says of the model's file.
    """
    if set(SCORE_COLUMNS) & set(frame.columns):
        frame = frame.drop(name for name in RESULT_COLUMNS if name in frame.columns)
    training = header.notes.get("fit", {})
    scored, report = score_table(
        model, frame, id=training.get("id"), top=top, source=source, progress=progress
    )
    progress("Finding reasons")
    first = frame[[suspect.row - 1 for suspect in report.top]]
    return _findings(
        model,
        header,
        top=_explain(model, first, report.top, report.id),
        scores=scored["anomaly_score"].to_numpy(),
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


def _findings(
    model: Pipeline,
    header: ModelHeader,
    *,
    top: tuple[list[ExplainedRow], float | None],
    scores: NDArray[np.float64] | None = None,
    **known: Any,
) -> Findings:
    """Put together what is known of the rows and what the model knows of itself."""
    about, training, detector = (
        describe_model(model, header),
        header.notes.get("fit", {}),
        model[-1],
    )
    calibration: Calibration | None = getattr(detector, "calibration_", None)
    explained, usual_score = top
    threshold = about.decision["threshold"]
    prior = about.settings.get("prior")
    selection = getattr(detector, "selection_", None)
    return Findings(
        **known,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        rule=about.decision["rule"],
        threshold=threshold,
        top=_with_probabilities(explained, calibration),
        usual_score=usual_score,
        trained_on=training.get("source"),
        model_created=header.created,
        labels=LabelCounts(**training["labels"]) if training else None,
        label=training.get("label"),
        rate=None if calibration is None else calibration.rate,
        assumed_rate=1 - prior if isinstance(prior, float) else None,
        distribution=_distribution(calibration, threshold, scores),
        quality=_quality(calibration, training),
        model=about.steps[-1],
        settings=about.settings,
        defaults=_defaults(detector),
        choices=[_say_rule(about.decision["rule"])]
        + ([] if selection is None else [str(selection)]),
        fitted=about.fitted,
        members=list(getattr(detector, "leaderboard_", [])),
        effects=training.get("effects", []),
        effects_of=training.get("effects_of", ""),
        columns=model[0].kinds_,
        preparation=about.preparation,
        reading=training.get("reading", []),
        versions=header.versions,
    )


def _defaults(detector: Any) -> dict[str, Any]:
    """What the settings of a detector are unless given, as JSON can hold them."""
    parameters = inspect.signature(type(detector)).parameters.values()
    given = {each.name: each.default for each in parameters if each.default is not each.empty}
    plain = (str, int, float, bool, type(None))
    return {name: v if isinstance(v, plain) else repr(v) for name, v in given.items()}


def _say_rule(rule: str) -> str:
    """What a threshold means, in the words of its class.

    >>> _say_rule("rate")
    'threshold rate: flag as many rows of the pile as there are anomalies in it'
    """
    meaning = (parse_threshold(rule).__doc__ or "").splitlines()[0].split(".")[0]
    return f"threshold {rule}: {meaning[:1].lower()}{meaning[1:]}"


# --- rows --------------------------------------------------------------------------------


def _explain(
    model: Pipeline, rows: pl.DataFrame, suspects: Sequence[Suspect], id: str | None
) -> tuple[list[ExplainedRow], float | None]:
    """Reasons of rows that are in the order of their scores, and the score of a usual row."""
    if not suspects:
        return [], None
    _, report = explain_table(model, rows, id=id, rows=len(suspects), reasons=_REASONS)
    pairs = zip(report.explained, suspects, strict=True)
    explained = [ExplainedRow(**vars(row) | {"row": suspect.row}) for row, suspect in pairs]
    return explained, report.usual_score


def _with_probabilities(
    rows: Sequence[ExplainedRow], calibration: Calibration | None
) -> list[FoundRow]:
    if calibration is None or calibration.rate is None or not rows:
        return [FoundRow(**vars(row)) for row in rows]
    probabilities = calibration.anomaly_probability(np.array([row.anomaly_score for row in rows]))
    pairs = zip(rows, probabilities.tolist(), strict=True)
    return [FoundRow(**vars(row), anomaly_probability=p) for row, p in pairs]


# --- scores ------------------------------------------------------------------------------


def _distribution(
    calibration: Calibration | None, threshold: float, scores: NDArray[np.float64] | None
) -> Distribution:
    kinds: dict[str, tuple[NDArray[Any], int]] = {}
    if calibration is not None:
        labelled = {"normal": calibration.normals, "anomaly": calibration.anomalies}
        kinds = {kind: (each, len(each)) for kind, each in labelled.items()}
        kinds["unlabelled"] = (calibration.pile, calibration.n_pile)
    if scores is not None:
        kinds["table"] = (scores, len(scores))
    kinds = {kind: each for kind, each in kinds.items() if each[1]}
    ends = [np.quantile(each, (0.01, 0.99)) for each, _ in kinds.values()]
    low, high = min(threshold, *(end[0] for end in ends)), max(threshold, *(end[1] for end in ends))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    return Distribution(
        edges.tolist(), [_kind_scores(kind, *each, edges) for kind, each in kinds.items()]
    )


def _kind_scores(
    kind: str, scores: NDArray[Any], rows: int, edges: NDArray[np.float64]
) -> KindScores:
    """Count scores in bins; those kept may be quantiles of more rows."""
    counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
    counts = np.rint(counts * (rows / len(scores))).astype(int)
    return KindScores(kind, rows, counts.tolist(), scores.tolist() if rows <= _FEW else [])


# --- quality -----------------------------------------------------------------------------


def _quality(calibration: Calibration | None, training: Mapping[str, Any]) -> Quality:
    if calibration is None:
        return Quality(None, "the model holds no scores of labelled rows (riskad.calibrate)")
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < _FEWEST_FOR_CURVES:
        few = (
            f"it takes {_FEWEST_FOR_CURVES} labelled rows of each kind that a fit has not seen; "
            f"there are {n} normal and {m} anomalies"
        )
        return Quality(None, training.get("why_no_auc") or few, why_no_reliability=few)
    codes, scores = calibration.codes, calibration.scores
    pi_n = None if calibration.rate is None else calibration.pi_n
    found = training.get("auc")
    reliable, why_not = _reliability(calibration, min(n, m))
    return Quality(
        auc=Auc(**found) if found else auc_with_interval(codes, scores),
        why_no_auc="",
        average_precision=average_precision_with_interval(codes, scores, pi_n),
        precision_rate=m / (m + n) if pi_n is None else pi_n,
        roc=roc_with_interval(codes, scores),
        precision_recall=precision_recall_with_interval(codes, scores, pi_n),
        reliability=reliable,
        why_no_reliability=why_not,
    )


def _reliability(calibration: Calibration, fewest: int) -> tuple[Reliability | None, str]:
    if calibration.rate is None:
        return (
            None,
            "the labels cannot tell the anomaly rate, without which no probability is known",
        )
    if fewest < _FEWEST_FOR_RELIABILITY:
        return None, (
            f"it takes {_FEWEST_FOR_RELIABILITY} labelled rows of each kind to compare "
            f"probabilities with; there are {fewest} of the rarer one"
        )
    probabilities = calibration.anomaly_probability(calibration.scores)
    return reliability(calibration.codes, probabilities, calibration.pi_n, _RELIABILITY_BINS), ""
