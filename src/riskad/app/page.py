"""The report as a page: one HTML file that needs nothing else, neither scripts nor a network.

It is built as a tree (`riskad.app.charts.element`) and written by the standard library, which
escapes everything in it; a content security policy forbids the browser to run or fetch anything as
well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, tostring

from riskad.app.charts import (
    Child,
    append,
    curve_chart,
    distribution_chart,
    element,
    rate_chart,
    reliability_chart,
)
from riskad.app.findings import Findings, FoundRow, Quality
from riskad.app.reasons import show_value
from riskad.app.text import model_lines, quality_lines, say_held_out, to_json
from riskad.core.checks import InputError
from riskad.decisions.estimates import Estimate
from riskad.storage.files import atomic_path

__all__ = ["SCHEMA", "check_report_name", "render_page", "write_report"]

SCHEMA = "riskad-report-1"
"""Named in reports as JSON; described by riskad/schema/report-1.json."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LONGEST = 60  # letters of a name or value
_LONGEST_LINE = 500
_MOST_COLUMNS = 10  # whose weight is shown


def check_report_name(path: str | os.PathLike[str]) -> Path:
    """Return `path` if its name says what to write: a page, or JSON."""
    if Path(path).suffix.lower() in (".html", ".htm", ".json"):
        return Path(path)
    raise InputError(
        f"The name of a report, {str(path)!r}, must end in .html (a page) or .json (for machines)."
    )


def write_report(findings: Findings, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a page, or JSON where `path` ends in .json; whole or not at all."""
    if check_report_name(path).suffix.lower() == ".json":
        text = to_json(findings, schema=SCHEMA) + "\n"
    else:
        text = render_page(findings)
    with atomic_path(path, force) as part:
        part.write_text(text, encoding="utf-8")


def render_page(findings: Findings) -> str:
    """Return the page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"riskad report: {_short(findings.source)}"),
        _style(),
    )
    body = element(
        "body",
        element("main", *_headline(findings), *_warnings(findings.warnings), *_sections(findings)),
    )
    page = element("html", head, body, lang="en")
    return "<!doctype html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _style() -> Element:
    style = Element("style")
    style.text = resources.files("riskad.app").joinpath("page.css").read_text(encoding="utf-8")
    return style


def _sections(findings: Findings) -> Iterable[Element]:
    sections = {
        "Most suspicious rows": _suspects(findings),
        "Scores": _scores(findings),
        "How good it is": _quality(findings),
        "Anomaly rate": _rate(findings),
        "Model": _model(findings),
        "Columns": [_list(findings.preparation)],
        "How this was made": _origin(findings),
    }
    for name, content in sections.items():
        anchor = name.lower().replace(" ", "-")
        yield element("section", element("h2", name), *content, id=anchor)


# --- headline ----------------------------------------------------------------------------


def _headline(findings: Findings) -> list[Element]:
    what = "unlabelled rows" if findings.subject == "fit" else "rows"
    flagged = f"{findings.flagged:,} of {findings.flagged_of:,} {what}"
    done = "fitted" if findings.subject == "fit" else "scored"
    day, _, time = findings.created.partition("T")
    return [
        element("h1", "riskad report: ", _data(findings.source)),
        element(
            "p",
            f"{findings.rows:,} rows, {done} with {findings.model}, {day} {time[:5]} UTC, "
            f"riskad {findings.versions.get('riskad', '?')}",
            class_="small",
        ),
        element("p", f"{flagged} look anomalous. {_say_quality(findings)}", class_="lead"),
        element("dl", *_tiles(findings), class_="tiles"),
    ]


def _say_quality(findings: Findings) -> str:
    auc = findings.quality.auc
    if auc is None:
        return f"How good that is cannot be told: {findings.quality.why_no_auc}."
    return (
        "Of a labelled anomaly and a labelled normal row, both held out, the anomaly "
        f"scores higher in {_percent(auc.value)} of cases (95\u00a0% interval "
        f"{_percent(auc.low)} to {_percent(auc.high)})."
    )


def _tiles(findings: Findings) -> Iterable[Element]:
    share = f" ({_percent(findings.flagged / findings.flagged_of)})" if findings.flagged_of else ""
    yield _tile("Flagged", f"{findings.flagged:,}", f"of {findings.flagged_of:,} rows{share}")
    auc, rate, labels = findings.quality.auc, findings.rate, findings.labels
    if auc is not None:
        yield _tile("AUC on labelled rows", f"{auc.value:.3f}", _say_interval(auc, ".3f"))
    if rate is not None:
        ends = f"95\u00a0% interval {_percent(rate[1])} to {_percent(rate[2])}"
        yield _tile("Estimated anomaly rate", _percent(rate[0]), ends)
    if labels is not None:
        known = f"{labels.normal:,} + {labels.anomaly:,}"
        yield _tile(
            "Labelled normal + anomalies", known, f"and {labels.unlabelled:,} rows without a label"
        )


def _tile(name: str, number: str, more: str) -> Element:
    return element(
        "div",
        element("dt", name),
        element("dd", number, class_="number"),
        element("dd", more, class_="small"),
    )


def _warnings(warnings: Sequence[str]) -> list[Element]:
    if not warnings:
        return []
    content = element("h2", "Warnings"), _list(warnings)
    return [element("section", *content, class_="warnings", id="warnings")]


# --- rows --------------------------------------------------------------------------------


def _suspects(findings: Findings) -> list[Element]:
    if not findings.top:
        return [element("p", "No rows were asked for.")]
    largest = max((r.adds for row in findings.top for r in row.reasons), default=1.0)
    kind = "The unlabelled rows" if findings.subject == "fit" else "The rows"
    return [
        element(
            "p",
            f"{kind} with the highest anomaly score, and the columns that add most to it, compared "
            f"with a usual row, which scores {findings.usual_score:.3g}. "
            f"Above {findings.threshold:.3g} a row is flagged (threshold {findings.rule}). "
            "Rows are counted from 1, below the header.",
        ),
        element("ol", *(_card(row, largest) for row in findings.top), class_="cards"),
    ]


def _card(row: FoundRow, largest: float) -> Element:
    name = element("h3", f"Row {row.row:,}")
    if row.id is not None:
        append(name, ": ")
        append(name, _data(row.id))
    probability = row.anomaly_probability
    said = "" if probability is None else f", probability {_likely(probability)}"
    flag = element("span", "flagged", class_="flag") if row.is_anomaly else "not flagged"
    score = element("p", f"score {row.anomaly_score:.3g}{said}, ", flag, class_="small")
    return element("li", name, score, *_reasons(row, largest))


def _reasons(row: FoundRow, largest: float) -> list[Element]:
    if not row.reasons:
        return [element("p", "No column adds to its score.", class_="small")]
    rows: list[list[Child]] = [
        [
            _data(reason.column),
            _value(reason.value),
            _value(reason.usual),
            _meter(reason.adds, largest),
        ]
        for reason in row.reasons
    ]
    return [_table(["column", "holds", "usual", "adds"], rows)]


def _meter(adds: float, largest: float) -> Element:
    width = max(0.0, min(1.0, adds / largest)) if largest > 0 else 0.0
    bar = element("span", style=f"width:{100 * width:.0f}%")
    return element("div", f"{adds:.3g}", bar, class_="meter")


# --- charts ------------------------------------------------------------------------------


def _scores(findings: Findings) -> list[Element]:
    ticks = any(kind.scores for kind in findings.distribution.kinds)
    bars = any(not kind.scores for kind in findings.distribution.kinds)
    means = [
        "Anomaly scores from left (usual) to right (anomalous).",
        "A tick is a row." if ticks else "",
        "Bars grow with the square root of the rows, so that few rows are seen, too; the highest "
        "of each kind has the same height."
        if bars
        else "",
        f"Labelled rows were {say_held_out(findings.model)}.",
        "What lies beyond an end is counted in the last bar there.",
    ]
    chart = distribution_chart(findings.distribution, findings.threshold)
    return [_figure(chart, " ".join(filter(None, means)))]


def _quality(findings: Findings) -> list[Element]:
    quality = findings.quality
    lines = quality_lines(quality.auc, quality.why_no_auc, findings.model, findings.labels)
    said = [f"{line[0].upper()}{line[1:]}." for line in lines]
    if findings.subject == "table" and findings.trained_on is not None:
        said.append(
            f"These are labelled rows of {_short(findings.trained_on)}, on which the model was "
            "fitted; labels of this table, if there are any, were not read."
        )
    if quality.auc is not None and quality.why_no_reliability:
        said.append(f"Probabilities are not compared with labels: {quality.why_no_reliability}.")
    content = [element("p", sentence) for sentence in said]
    figures = list(_curves(quality, findings.threshold))
    return content + ([element("div", *figures, class_="charts")] if figures else [])


def _curves(quality: Quality, threshold: float) -> Iterable[Element]:
    rate = quality.precision_rate
    if quality.roc is not None:
        chart = curve_chart(
            quality.roc, threshold, "false alarm rate", "anomalies found", [(0, 0), (1, 1)]
        )
        caption = (
            "ROC with 95\u00a0% intervals: the share of labelled anomalies found, over the share "
            "of labelled normals flagged. The point is the threshold; chance is dotted."
        )
        yield _figure(chart, caption)
    if quality.precision_recall is not None and rate is not None:
        level = [(0.0, rate), (1.0, rate)]
        chart = curve_chart(quality.precision_recall, threshold, "recall", "precision", level)
        precision = quality.average_precision
        said = "" if precision is None else f" Average {precision.value:.3f} ({_ends(precision)})."
        caption = (
            f"Precision if {_percent(rate)} of all rows are anomalies, over the share of anomalies "
            f"found, with cautious 95\u00a0% intervals.{said}"
        )
        yield _figure(chart, caption)
    if quality.reliability is not None:
        caption = (
            "Reliability: of labelled rows said to be anomalies with some probability, the share "
            "that are, at the estimated rate. On the dotted line probabilities are right."
        )
        yield _figure(reliability_chart(quality.reliability), caption)


def _rate(findings: Findings) -> list[Element]:
    rate, assumed = findings.rate, findings.assumed_rate
    if rate is None:
        needs = "it takes 2 labelled rows of each kind that a fit has not seen, and a pile"
        return [element("p", f"Not known: {needs}.")]
    said = [
        f"An estimated {_percent(rate[0])} of the unlabelled rows of the fit are anomalies "
        f"(95\u00a0% interval {_percent(rate[1])} to {_percent(rate[2])}), if labelled rows are "
        "like those of their kind among them."
    ]
    if assumed is not None:
        inside = rate[1] <= assumed <= rate[2]
        advice = "" if inside else f" Consider --prior {min(max(1 - rate[0], 0.001), 0.999):.3f}."
        said.append(f"The fit assumed {_percent(assumed)}.{advice}")
    return [element("p", " ".join(said)), _figure(rate_chart(rate, assumed), None)]


# --- model -------------------------------------------------------------------------------


def _model(findings: Findings) -> Iterable[Element]:
    lines = model_lines(findings.model, findings.settings, findings.fitted)
    yield _list([*lines, *findings.choices])
    tables = {
        "Members, and their AUC on held-out labelled rows": _members(findings.members),
        _say_effects(findings.effects_of): _effects(findings.effects[:_MOST_COLUMNS]),
        "Parts of the estimated risk": _risk_parts(findings.fitted.get("risk_parts", {})),
    }
    blocks = [
        element("div", element("h3", name), table)
        for name, table in tables.items()
        if table is not None
    ]
    if blocks:
        yield element("div", *blocks, class_="blocks")
    summary = element("summary", f"All settings of {findings.model}")
    yield element("details", summary, _settings(findings))


def _say_effects(rows: str) -> str:
    return f"Columns that move the score most{f', in {rows}' if rows else ''}"


def _settings(findings: Findings) -> Element:
    rows: list[list[Child]] = [
        [element("code", name), _data(str(value)), _data(str(findings.defaults.get(name, "")))]
        for name, value in findings.settings.items()
    ]
    return _table(["setting", "value", "default"], rows)


def _risk_parts(parts: Mapping[str, float]) -> Element | None:
    rows: list[list[Child]] = [[name, f"{part:.4g}"] for name, part in parts.items()]
    return _table(["rows", "risk"], rows, {1}) if rows else None


def _members(members: Sequence[Mapping[str, Any]]) -> Element | None:
    def number(value: float | None, spec: str) -> str:
        return "" if value is None else format(value, spec)

    rows: list[list[Child]] = [
        [
            str(member["member"]),
            number(member.get("weight"), ".3f"),
            number(member.get("auc"), ".3f"),
            number(member.get("seconds"), ".1f"),
        ]
        for member in members
        if not member.get("left_out")  # `model_lines` names them
    ]
    return _table(["member", "weight", "AUC", "seconds"], rows, {1, 2, 3}) if rows else None


def _effects(effects: Sequence[Mapping[str, Any]]) -> Element | None:
    if not effects:
        return None
    largest = max(effect["effect"] for effect in effects)
    rows: list[list[Child]] = [
        [_data(effect["column"]), _data(effect["suspicious"]), _meter(effect["effect"], largest)]
        for effect in effects
    ]
    return _table(["column", "suspicious when", "moves it by"], rows)


def _origin(findings: Findings) -> Iterable[Element]:
    if findings.command:
        yield element("pre", findings.command)
    if findings.subject == "table":
        day, _, time = findings.model_created.partition("T")
        origin = _short(findings.trained_on) if findings.trained_on else "rows it does not name"
        yield element("p", f"The model was made from {origin}, {day} {time[:5]} UTC.")
    if findings.reading:
        yield _list(findings.reading)
    versions = ", ".join(f"{name} {version}" for name, version in findings.versions.items())
    yield element("p", f"Versions: {versions}.", class_="small")


# --- parts -------------------------------------------------------------------------------


def _data(text: str) -> Element:
    """Text from the data: shortened, and kept from turning the direction of what is around it."""
    return element("bdi", _short(text))


def _value(value: float | str | None) -> Element:
    """A value of a table; numbers are not broken."""
    return (
        _data(value)
        if isinstance(value, str)
        else element("bdi", show_value(value), class_="number")
    )


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def _list(lines: Iterable[str]) -> Element:
    return element("ul", *(element("li", _short(line, _LONGEST_LINE)) for line in lines))


def _table(
    head: Sequence[str], rows: Sequence[Sequence[Child]], right: Iterable[int] = ()
) -> Element:
    """A table that scrolls in its own box where it is too wide."""
    sides = ["right" if j in set(right) else "left" for j in range(len(head))]
    top = element("tr", *(_cell("th", *pair) for pair in zip(head, sides, strict=True)))
    lines = (
        element("tr", *(_cell("td", *pair) for pair in zip(row, sides, strict=True)))
        for row in rows
    )
    return element(
        "div",
        element("table", element("thead", top), element("tbody", *lines)),
        class_="scroll",
        tabindex="0",
    )


def _cell(tag: str, content: Child, side: str) -> Element:
    return element(tag, content, class_=side)


def _figure(chart: Element, caption: str | None) -> Element:
    return element("figure", chart, element("figcaption", caption) if caption else None)


def _say_interval(estimate: Estimate, spec: str) -> str:
    return f"95\u00a0% interval {estimate.low:{spec}} to {estimate.high:{spec}}"


def _ends(estimate: Estimate) -> str:
    return f"{estimate.low:.3f} to {estimate.high:.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + "\u00a0%"


def _likely(probability: float) -> str:
    """A probability is never said to be 0 or 1."""
    if 0.001 <= probability <= 0.999:
        return _percent(probability)
    return "below 0.1\u00a0%" if probability < 0.5 else "above 99.9\u00a0%"
