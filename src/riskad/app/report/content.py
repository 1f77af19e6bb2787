"""The content of each section of the page: the numbers and charts that its template shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from riskad.app.capacity import CapacityPlan
from riskad.app.report.charts import (
    Chart,
    curve_chart,
    distribution_chart,
    found_chart,
    rate_chart,
    reliability_chart,
)
from riskad.app.report.facts import list_members, list_risk_parts
from riskad.app.report.jinja import fill
from riskad.app.report.side_by_side import difference_line, side_by_side
from riskad.app.report.wording import (
    auc_cell,
    auc_is_vague,
    cost_lines,
    found_is_vague,
    looked_at,
    quality_lines,
    rate_line,
    sample_line,
    say_prior,
    share_is_vague,
    too_few_labels,
    top_lines,
)
from riskad.metrics.ranking import Auc

if TYPE_CHECKING:
    from riskad.app.report.summary import ReportData

__all__ = [
    "anomaly_rate",
    "columns",
    "headline",
    "model",
    "model_before",
    "origin",
    "over_time",
    "quality",
    "rows_looked_at",
    "scores",
    "suspicious_rows",
    "warnings",
]

_MOST_COLUMNS = 10  # whose effect is shown


def headline(data: ReportData) -> Markup:
    """Say in a few numbers what matters most; above all sections."""
    return fill(
        "headline.html",
        data=data,
        auc_is_vague=auc_is_vague,
        share_is_vague=share_is_vague,
        found_is_vague=found_is_vague,
        too_few_labels=too_few_labels,
    )


def warnings(data: ReportData) -> Markup:
    """List the warnings."""
    return fill("warnings.html", data=data)


def suspicious_rows(data: ReportData) -> Markup:
    """Show the most suspicious rows, each with the columns that add most to its score."""
    largest = max((r.adds for row in data.top for r in row.reasons), default=1.0)
    # Beside "too few labels to tell", a probability of 99.9% would be a promise.
    vague = data.review is not None and found_is_vague(data.review.table[0])
    return fill("suspicious_rows.html", data=data, largest=largest, probabilities=not vague)


def scores(data: ReportData) -> Markup:
    """Draw the distribution of the scores."""
    return fill(
        "scores.html",
        chart=distribution_chart(data.distribution, data.threshold),
        has_ticks=any(kind.scores for kind in data.distribution.kinds),
        has_bars=any(not kind.scores for kind in data.distribution.kinds),
        held_out=data.evidence,
    )


def quality(data: ReportData) -> Markup:
    """Describe and draw how well held-out labelled rows are separated."""
    found = data.quality
    roc = precision_recall = calibrated = None
    if found.roc is not None:
        diagonal = [(0.0, 0.0), (1.0, 1.0)]
        roc = curve_chart(
            found.roc, data.threshold, "false alarm rate", "anomalies found", diagonal
        )
    if found.precision_recall is not None and found.precision_rate is not None:
        level = [(0.0, found.precision_rate), (1.0, found.precision_rate)]
        precision_recall = curve_chart(
            found.precision_recall, data.threshold, "recall", "precision", level
        )
    if found.reliability is not None:
        calibrated = reliability_chart(found.reliability)
    return fill(
        "quality.html",
        data=data,
        lines=quality_lines(found.auc, found.why_no_auc, data.evidence, data.labels)
        + top_lines(data.review),
        roc=roc,
        precision_recall=precision_recall,
        reliability=calibrated,
    )


def rows_looked_at(data: ReportData) -> Markup:
    """Show how many anomalies looking at the highest scores finds, and what it costs."""
    review = data.review
    assert review is not None  # the section is not shown otherwise
    lines = cost_lines(review.cost)
    lines += [] if data.capacity is None else [str(CapacityPlan(**data.capacity))]
    cells = looked_at(review)
    if not cells:
        lines.append(too_few_labels("how many of the highest scores are anomalies"))
    return fill(
        "rows_looked_at.html", data=data, chart=found_chart(review), cells=cells, lines=lines
    )


def over_time(data: ReportData) -> Markup:
    """Show how quality and the share of anomalies among labelled rows move over time."""
    periods = [
        each | {"auc": auc_cell(each["auc"] and Auc(**each["auc"]))}
        for each in data.sections["over-time"]
    ]
    return fill("over_time.html", periods=periods)


def model_before(data: ReportData) -> Markup:
    """Show the model next to its predecessor."""
    refit = data.sections["beside-the-model-before"]
    return fill(
        "model_before.html",
        verdict=refit["verdict"][:1].upper() + refit["verdict"][1:],
        difference=difference_line(refit),
        lines=side_by_side(refit),
        cautions=(refit["comparison"] or {}).get("cautions", []),
    )


def anomaly_rate(data: ReportData) -> Markup:
    """Describe and draw the estimated anomaly rate, and the rate that the fit assumed."""
    chart: Chart | None = None
    advice = ""
    if data.rate is not None:
        rate, low, high = data.rate
        chart = rate_chart(data.rate, data.assumed_rate)
        if data.assumed_rate is not None and not low <= data.assumed_rate <= high:
            advice = say_prior(1 - rate)
    lines = rate_line(data.rate, data.rate_rests_on) + sample_line(data.labels_random_p)
    return fill("anomaly_rate.html", data=data, lines=lines, chart=chart, prior=advice)


def model(data: ReportData) -> Markup:
    """Describe what was fitted, its results, and all its settings."""
    effects = data.effects[:_MOST_COLUMNS]
    return fill(
        "model.html",
        data=data,
        lines=data.said + data.choices,
        members=list_members(data.members),
        effects=effects,
        largest=max((effect["effect"] for effect in effects), default=0.0),
        risk_parts=list_risk_parts(data.fitted),
    )


def columns(data: ReportData) -> Markup:
    """Describe what was done to the columns."""
    return fill("columns.html", data=data)


def origin(data: ReportData) -> Markup:
    """Describe how the report and the model were made."""
    return fill("origin.html", data=data)
