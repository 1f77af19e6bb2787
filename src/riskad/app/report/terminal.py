"""What commands print for people, on a terminal or into a pipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from riskad.app.demo import DemoReport, Quality
from riskad.app.drift import TableDrift
from riskad.app.explain import ColumnEffect, ExplainedRow, ExplainReport
from riskad.app.fit import FitReport
from riskad.app.inspect import ModelReport
from riskad.app.onnx import ExportReport
from riskad.app.over_time import Period
from riskad.app.report.facts import list_members, list_risk_parts
from riskad.app.report.layout import (
    Command,
    fact_blocks,
    print_blocks,
    print_facts,
    print_line,
    print_table,
    print_title,
    table_block,
)
from riskad.app.report.terminal_review import review_blocks
from riskad.app.report.wording import (
    auc_cell,
    cost_lines,
    flagged_lines,
    quality_lines,
    rate_line,
    sample_line,
    say_labels,
    share_is_vague,
    too_few_labels,
    top_lines,
)
from riskad.app.results import SCORE_COLUMNS, Suspect
from riskad.app.score import ScoreReport
from riskad.app.suggest import SuggestReport
from riskad.app.threshold import ThresholdReport
from riskad.core.checks import with_article
from riskad.core.labels import LabelCounts
from riskad.decisions.drift import say_shift
from riskad.decisions.ranking_metrics import Auc

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "print_demo",
    "print_drift",
    "print_explain",
    "print_export",
    "print_fit",
    "print_model",
    "print_score",
    "print_suggest",
    "print_threshold",
]

_MOST_INPUTS = 20
_MOST_DRIFTS = 10
_MOST_LINES = 38  # of a summary, below its title and a blank line


def print_fit(
    console: Console, report: FitReport, written: Mapping[str, str], verbose: bool = False
) -> None:
    """Print what a fit did, in at most 40 lines of 80 letters unless `verbose`.

    `written` holds the paths of the model and of the ranked rows.
    """
    print_title(console, f"{report.source}: {report.rows:,} rows")
    flagged = [
        _say_flagged(report.unlabelled_flagged, report.labels.unlabelled, "unlabelled rows"),
        *_expected_lines(report),
        _say_threshold(report.fitted["threshold"], report.rule),
        *rate_line(report.rate, report.rate_rests_on),
        *sample_line(report.labels_random_p),
    ]
    described = {"Read": report.reading, "Labels": [say_labels(report.labels, report.label)]}
    files = [f"{path} ({what})" for what, path in written.items()]
    score = f"riskad score {shlex.quote(written['model'])} new.csv -o scored.csv"
    blocks = [
        *fact_blocks(console, described),
        *_fitted_blocks(console, report, verbose),
        *fact_blocks(console, {"Notes": report.warnings, "Flagged": flagged}),
        *review_blocks(console, report.review, report.capacity),
        _suspects_block(report.top, report.id),
        *fact_blocks(console, {"Written": files, "Next": [Command(score)]}),
    ]
    print_blocks(console, blocks, None if verbose else _MOST_LINES)


def _expected_lines(report: FitReport) -> list[str]:
    """Say how many of the flagged rows are expected to be right."""
    flagged, review = report.unlabelled_flagged, report.review
    if review is None:
        return flagged_lines(None, flagged, report.labels)
    return flagged_lines(review.flagged, flagged, report.labels, review.likely)


def _fitted_blocks(console: Console, report: FitReport, verbose: bool) -> list[list[Text]]:
    """Return what was fitted to which columns, and how good it is; members only if `verbose`."""
    quality = quality_lines(report.auc, report.why_no_auc, report.evidence, report.labels)
    quality += top_lines(report.review)
    return [
        *fact_blocks(console, {"Columns": report.preparation, "Model": report.said}),
        _members_block(report.fitted) if verbose else [],
        *fact_blocks(console, {"Quality": quality, "Effects": _effect_line(report)}),
        _periods_block(report.over_time),
    ]


def print_score(console: Console, report: ScoreReport, path: str) -> None:
    """Print what scoring found; `path` is where the scored table went."""
    print_title(console, f"{report.source}: {report.rows:,} rows scored")
    before = f"{report.skipped:,} rows were left out: scored before, or too old"
    if not report.rows:
        print_facts(console, {"Nothing": [f"new: {before}"]})
        return
    print_facts(
        console,
        {
            "Read": [before] if report.skipped else [],
            "Flagged": [
                _say_flagged(report.flagged, report.rows, "rows"),
                *(
                    []
                    if report.expected is None
                    else flagged_lines(report.expected, report.flagged)
                ),
                report.selection or _say_threshold(report.threshold, report.rule),
            ],
            "Notes": report.warnings,
        },
    )
    title = "Novel" if report.by == "novelty" else "Top"
    print_blocks(console, [_suspects_block(report.top, report.id, title)])
    *first, last = report.added
    names = f"{', '.join(first)} and {last}"
    print_facts(console, {"Written": [f"{path} (all columns, and {names})"]})


def print_explain(console: Console, report: ExplainReport, path: str | None) -> None:
    """Print why rows are suspicious; `path` is where all their columns went, if anywhere."""
    print_title(console, f"{report.source}: {report.rows:,} rows scored")
    sizes = [f"{column} {size:.3g}" for column, size in list(report.importance.items())[:5]]
    print_facts(
        console,
        {
            "Usual": [
                f"a row with the usual value in every column scores {report.usual_score:.4g}",
                _say_threshold(report.threshold, report.rule),
            ],
            "Columns": [
                f"mean change of the score over {report.importance_rows:,} rows: "
                + ", ".join(sizes)
            ],
            "Notes": report.warnings,
        },
    )
    for explained in report.explained:
        print_line(console)
        print_facts(console, {"Row": _explained_lines(explained)})
    if path is not None:
        print_line(console)
        print_facts(console, {"Written": [f"{path} (every column of these rows)"]})


def _explained_lines(explained: ExplainedRow) -> list[str]:
    name = "" if explained.id is None else f" ({explained.id})"
    flagged = "" if explained.is_anomaly else ", not flagged"
    return [
        f"{explained.row:,}{name}: anomaly_score {explained.anomaly_score:.4g}{flagged}",
        *(f"- {reason}" for reason in explained.reasons),
        *_others_line(explained.others),
    ]


def _others_line(change: float) -> list[str]:
    if abs(change) < 1e-9:  # there are no others, or they hold what is usual
        return []
    does = f"add {change:.3g}" if change > 0 else f"subtract {-change:.3g}"
    return [f"- all other columns {does}"]


def print_threshold(console: Console, report: ThresholdReport, path: str) -> None:
    """Print by what a model decides now; `path` is where it was written."""
    print_title(console, f"threshold {report.rule} (was {report.before})")
    print_facts(
        console,
        {
            "Flagged": [
                _say_flagged(report.flagged, report.unlabelled, "unlabelled rows of the fit"),
                *flagged_lines(report.expected, report.flagged),
                *cost_lines(report.cost),
                _say_threshold(report.threshold, report.rule),
            ],
            "Written": [path],
        },
    )


def print_export(console: Console, report: ExportReport, path: str) -> None:
    """Print what a graph takes and gives, and how it compares with the model."""
    print_title(console, f"{path}: {with_article(report.model)} as an ONNX graph")
    listed = list(report.inputs.items())
    takes = [f"{name}: {what}" for name, what in listed[:_MOST_INPUTS]]
    takes += [f"and {len(listed) - _MOST_INPUTS} more"] * (len(listed) > _MOST_INPUTS)
    checked = "not compared with the model: onnxruntime is not installed"
    if report.largest_difference is not None:
        checked = (
            f"scores of {report.checked_rows:,} random rows differ from the model's by at most "
            f"{report.largest_difference:.1g}"
        )
    print_facts(
        console,
        {
            "Inputs": takes,
            "Outputs": [", ".join(report.outputs)],
            "Checked": [checked],
            "Written": [f"{path} ({report.bytes:,} bytes)"],
        },
    )


def print_suggest(console: Console, report: SuggestReport, path: str | None) -> None:
    """Print which rows to label next, and where they went, if anywhere."""
    print_title(console, f"{report.source}: {report.rows:,} rows, {report.labelled:,} labelled")
    print_facts(console, {"Notes": report.warnings})
    head = ["row", *([report.id] if report.id else []), "anomaly_score", "reason"]
    rows = [
        [f"{s.row:,}", *([s.id or ""] if report.id else []), f"{s.anomaly_score:.4f}", s.reason]
        for s in report.suggested
    ]
    print_table(console, "Label", head, rows, left={1, 3} if report.id else {2})
    if path is not None:
        print_facts(console, {"Written": [f"{path} (these rows with all columns, ready to label)"]})


def print_drift(console: Console, report: TableDrift) -> None:
    """Print whether rows have moved, and the columns that have moved most."""
    found = report.drift
    print_title(
        console,
        f"{report.source}: {found.rows:,} rows, compared with {found.unlabelled:,} of the fit",
    )
    lines = []
    if found.rate is not None and found.rate_before is not None:
        lines = [
            _rate_of(found.rate, "these rows", bool(found.moved)),
            _rate_of(found.rate_before, "the unlabelled rows of the fit", moved=False),
        ]
    said = {"Verdict": [found.verdict], "Alarm": _alarm_lines(report), "Anomalies": lines}
    print_facts(console, said | {"Notes": report.warnings})
    head = ["column", "distance", "shift in SD", "p-value", "moved"]
    compared = [*found.columns, *([found.scores] if found.scores is not None else [])]
    largest = sorted(compared, key=lambda column: column.p_value)[:_MOST_DRIFTS]
    rows = [
        [
            column.name,
            f"{column.distance:.3f}",
            say_shift(column.shift).removesuffix(" SD"),
            f"{column.p_value:.2g}",
            _yes(column.moved),
        ]
        for column in largest
    ]
    print_table(console, "Largest", head, rows, left={0})


def _rate_of(rate: tuple[float, float, float], rows: str, moved: bool) -> str:
    """Say which share of some rows are anomalies."""
    value, low, high = rate
    if share_is_vague(low, high):
        return too_few_labels(f"how many of {rows} are anomalies")
    if moved:
        return (
            f"{low:.1%} to {high:.1%} of {rows}: columns have moved, and more anomalies would look "
            "the same as normal rows that have changed"
        )
    return f"{value:.1%} of {rows} (95% interval {low:.1%} to {high:.1%})"


def _alarm_lines(report: TableDrift) -> list[str]:
    """Say what has moved further than it may, if a limit was given."""
    if report.fail_above is None:
        return []
    if not report.alarm:
        return [f"none: nothing has moved by a distance of more than {report.fail_above:g}"]
    return [f"{', '.join(report.above)}: moved by a distance of more than {report.fail_above:g}"]


def print_model(console: Console, report: ModelReport, name: str) -> None:
    """Print what a model file holds."""
    header, training = report.header, report.training
    print_title(console, f"{name}: {' and '.join(with_article(step) for step in report.steps)}")
    facts: dict[str, Iterable[str]] = {"Created": [_say_made(header.created, header.versions)]}
    if training:
        facts["Fitted"] = _training_lines(training)
    facts["Columns"] = report.preparation
    if report.fitted:
        facts["Model"] = report.said
        print_facts(console, facts)
        print_blocks(console, [_members_block(report.fitted)])
        facts = {"Risk": _risk_lines(report.fitted)}
    else:
        facts["Settings"] = [f"{key} = {value!r}" for key, value in report.settings.items()]
    facts["Decision"] = _decision_lines(report.decision)
    if report.kept_rows:
        facts["Holds"] = [f"{report.kept_rows:,} training rows, standardised; scoring needs them"]
    effects = [ColumnEffect(**effect) for effect in training.get("effects", [])]
    facts["Effects"] = _effect_lines(effects[:10], training.get("effects_of", ""))
    facts["Versions"] = [", ".join(f"{key} {value}" for key, value in header.versions.items())]
    print_facts(console, facts)


def print_demo(console: Console, report: DemoReport) -> None:
    """Print the demonstration: what was done, how good it was, and what to type next."""
    print_title(console, "A run on scikit-learn's breast cancer data, where benign is normal")
    fit = report.fit
    print_facts(
        console,
        {
            "Data": [
                f"samples.csv: {report.rows:,} rows, {fit.labels}",
                f"new.csv: {report.new_rows:,} rows without labels, of which "
                f"{report.new_anomalies} are malignant",
            ],
            "Ran": map(Command, report.commands),
        },
    )
    print_blocks(console, _fitted_blocks(console, fit, verbose=False))
    print_facts(
        console,
        {
            "Notes": [*fit.warnings, *report.score.warnings],
            "Truth": ["for the new rows, compared with an isolation forest, which uses no labels:"],
        },
    )
    methods = {"riskad": report.riskad, "isolation forest": report.isolation_forest}
    columns = [_quality_cells(quality) for quality in methods.values()]
    names = [
        "AUC",
        "  95% interval",
        "average precision",
        "correct in top 10",
        "correct if flagged",
    ]
    print_table(
        console, "", ["", *methods], list(zip(names, *columns, strict=True)), left={0, 1, 2}
    )
    print_line(console)
    command = "riskad fit data.csv --label COLUMN --normal VALUE --anomaly VALUE -o model.riskad"
    print_facts(console, {"Your data": [Command(command)], "": [Command(report.commands[1])]})


def _quality_cells(quality: Quality) -> list[str]:
    return [
        f"{quality.auc.value:.3f}",
        f"{quality.auc.low:.3f} to {quality.auc.high:.3f}",
        f"{quality.average_precision:.3f}",
        f"{quality.top_right} of {quality.top}",
        f"{quality.flagged_right} of {quality.flagged}",
    ]


def _risk_lines(fitted: Mapping[str, Any]) -> list[str]:
    parts = [f"{name}: {value:.4g}" for name, value in list_risk_parts(fitted).items()]
    objective = [f"objective: {fitted['objective']:.4g}"] if "objective" in fitted else []
    return [*objective, *parts]


def _effect_line(report: FitReport) -> list[str]:
    """Say which columns move the score farthest."""
    listed = ", ".join(f"{each.column} ({each.suspicious})" for each in report.effects[:5])
    where = f" in {report.effects_of}" if "suspicious" in report.effects_of else ""
    return (
        [f"columns that move the score most{where}, with suspicious values: {listed}"]
        if listed
        else []
    )


def _effect_lines(effects: Sequence[ColumnEffect], rows: str) -> list[str]:
    """Say how far columns move the score, the farthest first."""
    lines = [f"{e.column}: {e.effect:.3f}, suspicious when {e.suspicious}" for e in effects]
    return [*lines, f"(means over {rows})"] if lines and rows else lines


def _say_flagged(flagged: int, n_rows: int, what: str) -> str:
    share = f" ({flagged / n_rows:.1%})" if n_rows else ""
    return f"{flagged:,} of {n_rows:,} {what}{share} look anomalous"


def _say_threshold(threshold: float | None, rule: str) -> str:
    return f"is_anomaly where anomaly_score > {threshold:.4g} (threshold {rule})"


def _decision_lines(decision: Mapping[str, Any]) -> list[str]:
    """Describe by what a model decides and which other rules are possible."""
    if not decision:
        return []
    lines = [_say_threshold(decision["threshold"], decision["rule"])]
    if "normals" in decision:
        n, m = decision["normals"], decision["anomalies"]
        lines.append(
            f"calibrated on {n:,} normal rows and {m:,} anomalies, all held out"
            + (f"; no p-value is below {1 / (n + 1):.2g}" if n > 1 else "")
        )
    return lines + rate_line(decision.get("rate"), decision.get("rate_rests_on", ""))


def _say_made(created: str, versions: Mapping[str, str]) -> str:
    day, _, time = created.partition("T")
    return f"{day} {time[:5]} UTC by riskad {versions.get('riskad', '?')}"


def _training_lines(training: Mapping[str, Any]) -> list[str]:
    labels = LabelCounts(**training["labels"])
    auc = Auc(**training["auc"]) if training["auc"] else None
    return [
        f"to {training['source']}: {training['rows']:,} rows, {labels} "
        f"(column {training['label']!r})",
        *training.get("reading", []),
        *quality_lines(auc, training["why_no_auc"], training["evidence"], labels),
    ]


def _members_block(fitted: Mapping[str, Any]) -> list[Text]:
    """Return the members of an average, with their weights."""
    rows = [
        [
            each["member"],
            f"{each['weight']:.2f}",
            "" if each["auc"] is None else f"{each['auc']:.3f}",
            f"{each['error']:.3f}" if each.get("error") is not None else "",
        ]
        for each in list_members(fitted.get("leaderboard", []))
    ]
    heads = ["member", "weight", "held-out AUC", "standard error"]
    return table_block("", heads, rows, left={0}) if rows else []


def _periods_block(periods: Sequence[Period]) -> list[Text]:
    """Return how quality and the share of anomalies among labelled rows move over time."""
    rows = [
        [
            period.start,
            period.end,
            f"{period.rows:,}",
            f"{period.normal + period.anomaly:,}",
            f"{period.anomaly:,}",
            auc_cell(period.auc),
        ]
        for period in periods
    ]
    head = ["from", "to", "rows", "labelled", "anomalies", "AUC, of fits to earlier rows"]
    return table_block("Over time", head, rows, left={0, 1}) if rows else []


def _suspects_block(suspects: Sequence[Suspect], id: str | None, title: str = "Top") -> list[Text]:
    """Return the most suspicious rows, the first first."""
    if not suspects:
        return []
    told = suspects[0].novelty is not None
    head = ["row", *([id] if id else []), *SCORE_COLUMNS, *(["novelty"] if told else [])]
    rows = [
        [
            f"{s.row:,}",
            *([s.id or ""] if id else []),
            f"{s.anomaly_score:.4f}",
            "yes" if s.is_anomaly else "no",
            *([f"{s.novelty:.2f}"] if told else []),
        ]
        for s in suspects
    ]
    return table_block(f"{title} {len(rows)}", head, rows, left={1} if id else ())


def _yes(value: bool) -> str:
    return "yes" if value else "no"
