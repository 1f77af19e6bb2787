"""What commands print for people, on a terminal or into a pipe."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from riskad.app.report.blocks import Lines, Table
from riskad.app.report.layout import Command, print_blocks, print_facts, print_title, walk
from riskad.app.report.look import LOOK_SECTIONS
from riskad.app.report.sections import SECTIONS, model_before, suspects_table
from riskad.app.report.wording import (
    cost_lines,
    flagged_line,
    flagged_lines,
    share_is_vague,
    threshold_line,
    too_few_labels,
)
from riskad.core.checks import with_article
from riskad.decisions.drift import say_shift

if TYPE_CHECKING:
    from rich.console import Console

    from riskad.app.compress import CompressReport
    from riskad.app.demo import DemoReport, Quality
    from riskad.app.drift import TableDrift
    from riskad.app.explain import ExplainReport
    from riskad.app.fit_report import FitReport
    from riskad.app.look import TableLook
    from riskad.app.onnx import ExportReport
    from riskad.app.results import Suspect
    from riskad.app.score import ScoreReport
    from riskad.app.suggest import SuggestReport
    from riskad.app.threshold import ThresholdReport

_MOST_LINES = 38  # of a summary, below its title and a blank line
_MOST_INPUTS = 20
_MOST_DRIFTS = 10


def print_fit(
    console: Console, report: FitReport, written: Mapping[str, str], verbose: bool = False
) -> None:
    """Print what a fit did, in at most 40 lines of 80 letters unless `verbose`.

    `written` holds the paths of the model, the ranked rows and the report.
    """
    print_title(console, f"{report.source}: {report.rows:,} rows")
    score = f"riskad score {shlex.quote(written['model'])} new.csv -o scored.csv"
    ending = [_written(written), Lines([Command(score)], name="Next")]
    medium = "verbose" if verbose else "brief"
    blocks = [*walk(SECTIONS, report, medium), *ending]
    print_blocks(console, blocks, None if verbose else _MOST_LINES)


def print_model(console: Console, report: FitReport, name: str) -> None:
    """Print what a model file holds."""
    source = f", fitted to {report.source}" if report.source else ""
    print_title(console, f"{name}: {with_article(report.model)}{source}")
    print_blocks(console, walk(SECTIONS, report, "verbose"))


def print_refit(console: Console, report: FitReport, written: Mapping[str, str]) -> None:
    """Print a model and the one before it side by side, and which one to use."""
    print_title(console, f"{report.source}: {report.rows:,} rows")
    notes = Lines(report.warnings, name="Notes")
    print_blocks(console, [*model_before(report), notes, _written(written)])


def print_look(console: Console, look: TableLook, fit: str, page: str | None) -> None:
    """Print each column in a line, how its values differ by label, and what looks wrong.

    `fit` is the command to come next, `page` the path of the page if one was written.
    """
    columns = f"{len(look.columns):,} column{'s' * (len(look.columns) != 1)}"
    print_title(console, f"{look.source}: {look.rows:,} rows, {columns}")
    written = _written({} if page is None else {"page": page})
    ending = [written, Lines([Command(fit)], name="Next")]
    print_blocks(console, [*walk(LOOK_SECTIONS, look, "verbose"), *ending])


def _written(paths: Mapping[str, str]) -> Lines:
    return Lines([f"{path} ({what})" for what, path in paths.items()], name="Written")


# --- other commands -----------------------------------------------------------------------


def print_score(console: Console, report: ScoreReport, path: str) -> None:
    """Print what scoring found; `path` is where the scored table went."""
    print_title(console, f"{report.source}: {report.rows:,} rows scored")
    skipped = f"{report.skipped:,} rows were left out: scored before, or too old"
    if not report.rows:
        print_facts(console, {"Nothing": [f"new: {skipped}"]})
        return
    expected = [] if report.expected is None else flagged_lines(report.expected, report.flagged)
    flagged = [
        flagged_line(report.flagged, report.rows, "rows"),
        *expected,
        report.selection or threshold_line(report.threshold, report.rule),
    ]
    read = [skipped] if report.skipped else []
    print_facts(console, {"Read": read, "Flagged": flagged, "Notes": report.warnings})
    if report.top:
        name = "Novel" if report.by == "novelty" else "Top"
        print_blocks(console, [suspects_table(report.top, report.id, name)])
    *first, last = report.added
    names = f"{', '.join(first)} and {last}"
    print_facts(console, {"Written": [f"{path} (all columns, and {names})"]})


def print_explain(console: Console, report: ExplainReport, path: str | None) -> None:
    """Print why rows are suspicious; `path` is where all their columns went, if anywhere."""
    print_title(console, f"{report.source}: {report.rows:,} rows scored")
    usual = f"a row with the usual value in every column scores {report.usual_score:.4g}"
    sizes = [f"{column} {size:.3g}" for column, size in list(report.importance.items())[:5]]
    mean = f"mean change of the score over {report.importance_rows:,} rows: {', '.join(sizes)}"
    facts = {
        "Usual": [usual, threshold_line(report.threshold, report.rule)],
        "Columns": [mean],
        "Notes": report.warnings,
    }
    print_facts(console, facts)
    for row in report.explained:
        console.print()
        print_facts(console, {"Row": _explained_lines(row)})
    if path is not None:
        console.print()
        print_facts(console, {"Written": [f"{path} (every column of these rows)"]})


def _explained_lines(row: Suspect) -> list[str]:
    name = "" if row.id is None else f" ({row.id})"
    flagged = "" if row.is_anomaly else ", not flagged"
    lines = [f"{row.row:,}{name}: anomaly_score {row.anomaly_score:.4g}{flagged}"]
    lines += [f"- {reason}" for reason in row.reasons]
    if abs(row.others) >= 1e-9:  # otherwise there are no others, or they hold what is usual
        verb = "add" if row.others > 0 else "subtract"
        lines.append(f"- all other columns {verb} {abs(row.others):.3g}")
    return lines


def print_threshold(console: Console, report: ThresholdReport, path: str) -> None:
    """Print by what a model decides now; `path` is where it was written."""
    print_title(console, f"threshold {report.rule} (was {report.before})")
    lines = [
        flagged_line(report.flagged, report.unlabelled, "unlabelled rows of the fit"),
        *flagged_lines(report.expected, report.flagged),
        *cost_lines(report.cost),
        threshold_line(report.threshold, report.rule),
    ]
    print_facts(console, {"Flagged": lines, "Written": [path]})


def print_export(console: Console, report: ExportReport, path: str) -> None:
    """Print what a graph takes and gives, and how it compares with the model."""
    print_title(console, f"{path}: {with_article(report.model)} as an ONNX graph")
    inputs = [f"{name}: {kind}" for name, kind in report.inputs.items()]
    more = [f"and {len(inputs) - _MOST_INPUTS} more"] if len(inputs) > _MOST_INPUTS else []
    checked = "not compared with the model: onnxruntime is not installed"
    if report.largest_difference is not None:
        checked = (
            f"scores of {report.checked_rows:,} random rows differ from the model's by at most "
            f"{report.largest_difference:.1g}"
        )
    facts = {
        "Inputs": inputs[:_MOST_INPUTS] + more,
        "Outputs": [", ".join(report.outputs)],
        "Checked": [checked],
        "Written": [f"{path} ({report.bytes:,} bytes)"],
    }
    print_facts(console, facts)


def print_suggest(console: Console, report: SuggestReport, path: str | None) -> None:
    """Print which rows to label next, and where they went, if anywhere."""
    print_title(console, f"{report.source}: {report.rows:,} rows, {report.labelled:,} labelled")
    print_facts(console, {"Notes": report.warnings})
    id = report.id
    head = ["row", *([id] if id else []), "anomaly_score", "reason"]
    rows = [
        [f"{s.row:,}", *([s.id or ""] if id else []), f"{s.anomaly_score:.4f}", s.reason]
        for s in report.suggested
    ]
    print_blocks(console, [Table(head, rows, right=(0, 2) if id else (0, 1), name="Label")])
    if path is not None:
        print_facts(console, {"Written": [f"{path} (these rows with all columns, ready to label)"]})


def print_drift(console: Console, report: TableDrift) -> None:
    """Print whether rows have moved, and the columns that have moved most."""
    drift = report.drift
    compared = f"{drift.rows:,} rows, compared with {drift.unlabelled:,} of the fit"
    print_title(console, f"{report.source}: {compared}")
    rates = []
    if drift.rate is not None and drift.rate_before is not None:
        rates = [
            _rate_line(drift.rate, "these rows", has_moved=bool(drift.moved)),
            _rate_line(drift.rate_before, "the unlabelled rows of the fit", has_moved=False),
        ]
    alarm = []
    if report.fail_above is not None:
        by = f"moved by a distance of more than {report.fail_above:g}"
        alarm = [f"{', '.join(report.above)}: {by}" if report.alarm else f"none: nothing has {by}"]
    facts = {"Verdict": [drift.verdict], "Alarm": alarm, "Anomalies": rates}
    print_facts(console, facts | {"Notes": report.warnings})
    every = [*drift.columns, *([drift.scores] if drift.scores is not None else [])]
    rows = [
        [
            column.name,
            f"{column.distance:.3f}",
            say_shift(column.shift).removesuffix(" SD"),
            f"{column.p_value:.2g}",
            "yes" if column.moved else "no",
        ]
        for column in sorted(every, key=lambda column: column.p_value)[:_MOST_DRIFTS]
    ]
    head = ["column", "distance", "shift in SD", "p-value", "moved"]
    print_blocks(console, [Table(head, rows, right=range(1, 5), name="Largest")])


def _rate_line(rate: tuple[float, float, float], rows: str, has_moved: bool) -> str:
    """Say which share of some rows are anomalies."""
    value, low, high = rate
    if share_is_vague(low, high):
        return too_few_labels(f"how many of {rows} are anomalies")
    if has_moved:
        return (
            f"{low:.1%} to {high:.1%} of {rows}: columns have moved, and more anomalies would look "
            "the same as normal rows that have changed"
        )
    return f"{value:.1%} of {rows} (95% interval {low:.1%} to {high:.1%})"


def print_compress(console: Console, report: CompressReport, path: str) -> None:
    """Print what was learned from what, and what was lost; `path` is where it was written."""
    print_title(console, f"{report.trees:,} trees that score rows in place of the model")
    rows = "no training rows are in the file"
    if report.kept_rows:
        rows = "riskad score --quick uses them; without --quick the model itself scores rows"
    facts = {
        "Learned": [f"the scores of {report.learned_rows:,} rows, in {report.seconds:.0f} s"],
        "Lost": [report.fidelity.in_words()],
        "Gained": [f"scores in 1/{report.times_as_fast:.0f} of the time", rows],
        "Notes": report.warnings,
        "Written": [path],
    }
    print_facts(console, facts)


def print_demo(console: Console, report: DemoReport) -> None:
    """Print the demonstration: what was done, how good it was, and what to type next."""
    print_title(console, "A run on scikit-learn's breast cancer data, where benign is normal")
    fit = report.fit
    tables = [
        f"samples.csv: {report.rows:,} rows, {fit.labels}",
        f"new.csv: {report.new_rows:,} rows without labels, of which {report.new_anomalies} are "
        "malignant",
    ]
    print_facts(console, {"Data": tables, "Ran": map(Command, report.commands)})
    sections = [each for each in SECTIONS if each.title in ("Columns", "Model", "Quality")]
    print_blocks(console, walk(sections, fit, "brief"))
    truth = "for the new rows, compared with an isolation forest, which uses no labels:"
    print_facts(console, {"Notes": [*fit.warnings, *report.score.warnings], "Truth": [truth]})
    methods = {"riskad": report.riskad, "isolation forest": report.isolation_forest}
    cells = [_quality_cells(quality) for quality in methods.values()]
    rows = [[name, *(each[name] for each in cells)] for name in cells[0]]
    print_blocks(console, [Table(["", *methods], rows)])
    console.print()
    command = "riskad fit data.csv --label COLUMN --normal VALUE --anomaly VALUE -o model.riskad"
    print_facts(console, {"Your data": [Command(command)], "": [Command(report.commands[1])]})


def _quality_cells(quality: Quality) -> dict[str, str]:
    return {
        "AUC": f"{quality.auc.value:.3f}",
        "  95% interval": f"{quality.auc.low:.3f} to {quality.auc.high:.3f}",
        "average precision": f"{quality.average_precision:.3f}",
        "correct in top 10": f"{quality.top_right} of {quality.top}",
        "correct if flagged": f"{quality.flagged_right} of {quality.flagged}",
    }
