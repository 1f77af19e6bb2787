"""What commands print for people: names on the left, lines and tables beside them, through Rich.

There are colours and a width on a terminal, and plain text where the output is piped. Values from
tables are printed as they are, never read as markup; control characters are shown, not sent.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from riskad.app.report import wording
from riskad.app.report.blocks import Block, Lines, Section, Table, blocks_on
from riskad.app.report.sections import LOOK_SECTIONS, SECTIONS, model_before
from riskad.core.checks import printable, shorten, with_article
from riskad.decisions.drift import shift_in_words
from riskad.tables.notes import pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from riskad.app.change_model import CompressReport, ThresholdReport
    from riskad.app.demo import DemoReport
    from riskad.app.explain import ExplainReport
    from riskad.app.fit_report import FitReport
    from riskad.app.look import TableLook
    from riskad.app.onnx import ExportReport
    from riskad.app.score import ScoreReport, TableDrift
    from riskad.app.suggest import SuggestReport

_INDENT = 10  # the name of a section, at most nine letters, and a blank
_WIDEST = 100  # longer lines are hard to read, however wide the terminal
_LONGEST_CELL = 40
_MOST_LINES = 38  # of a summary, below its title and a blank line
_MOST_INPUTS = 20
_MOST_DRIFTS = 10


class Command(str):
    """A line to be copied: never broken."""


_BLANK_LINE = Lines([Command("")])


# --- layout -------------------------------------------------------------------------------


def show(console: Console, title: str, blocks: Iterable[Block], most: int | None = None) -> None:
    """Print lines and tables below a title; of more than `most` lines only some of each block."""
    console.print(Text(_clean(title), "bold"), "", sep="\n", soft_wrap=True)
    drawn = []  # the lines of each block, and how many of them are its head
    for block in blocks:
        if lines := _draw(block, console.width):
            drawn.append((lines, isinstance(block, Table)))
    shown = [len(lines) for lines, _ in drawn]
    if most is not None:
        # The end is nearest to the prompt and matters most: what stands above it is cut first.
        half, every = len(drawn) // 2, len(drawn)
        steps = ((4, half), (6, every), (3, half), (2, half), (4, every), (2, every), (1, every))
        for least, end in steps:
            for i, n in enumerate(shown[:end]):
                shown[i] = min(n, max(least + drawn[i][1], n - max(sum(shown) - most, 0)))
    for (lines, _), n in zip(drawn, shown, strict=True):
        if n < len(lines):
            more = f"... {len(lines) - n + 1:,} more lines (--verbose)"
            lines[n - 1 :] = [Text(" " * _INDENT + more, "dim")]
        for line in lines:
            console.print(line, soft_wrap=True)


def _draw(block: Block, width: int) -> list[Text]:
    """The lines of a block, its name beside the first."""
    pieces: list[str] = []
    if isinstance(block, Table):
        pieces = _align(block)
    elif isinstance(block, Lines):
        room = min(width, _WIDEST) - _INDENT
        wrapper = textwrap.TextWrapper(room, subsequent_indent="  ", break_on_hyphens=False)
        for line in block.lines:
            if isinstance(line, Command):
                pieces.append(_clean(line))
            else:
                pieces += [w for part in line.splitlines() for w in wrapper.wrap(_clean(part))]
    drawn = []
    for i, piece in enumerate(pieces):
        name, style = ("", "") if i else (block.name, "cyan" if isinstance(block, Table) else "")
        drawn.append(Text.assemble((f"{name:<{_INDENT}}", "cyan"), (piece, style)))
        drawn[-1].rstrip()
    return drawn


def _align(block: Table) -> list[str]:
    """The lines of a table, whose cells are on one line and not too long."""
    rows = [
        [shorten(_clean(cell), _LONGEST_CELL) for cell in row] for row in (block.head, *block.rows)
    ]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{block.title}:"] if block.title else []
    for row in rows:
        for i, (cell, size) in enumerate(zip(row, widths, strict=True)):
            pad = " " * (size - cell_len(cell))
            row[i] = pad + cell if i in block.right else set_cell_size(cell, size)
        lines.append("  ".join(row).rstrip())
    return lines


def _clean(text: object) -> str:
    """A printable text, in one line."""
    return printable(text).replace("\n", "\\n")


def _walk(sections: Sequence[Section], record: Any, medium: str) -> list[Block]:
    """The blocks of sections; each section names its first one."""
    return [
        replace(block, name=block.name or ("" if i else section.name))
        for section in sections
        for i, block in enumerate(blocks_on(medium, section.blocks(record)))
    ]


def _written(paths: Mapping[str, str]) -> Lines:
    return Lines([f"{path} ({what})" for what, path in paths.items()], name="Written")


# --- fits, models, looks ------------------------------------------------------------------


def print_fit(
    console: Console, report: FitReport, written: Mapping[str, str], verbose: bool = False
) -> None:
    """Print what a fit did and wrote, in at most 40 lines of 80 letters unless `verbose`."""
    score = f"riskad score {shlex.quote(written['model'])} new.csv -o scored.csv"
    if "image" in report.columns.values():
        score += " --backbone FILE.onnx"
    blocks = _walk(SECTIONS[::-1], report, "verbose" if verbose else "brief")
    blocks += [_written(written), Lines([Command(score)], name="Next")]
    most = None if verbose else _MOST_LINES
    show(console, f"{report.source}: {report.rows:,} {report.spec.unit}s", blocks, most)


def print_model(console: Console, report: FitReport, name: str) -> None:
    """Print what a model file holds."""
    source = f", fitted to {report.source}" if report.source else ""
    title = f"{name}: {with_article(report.model)}{source}"
    show(console, title, _walk(SECTIONS[::-1], report, "verbose"))


def print_refit(console: Console, report: FitReport, written: Mapping[str, str]) -> None:
    """Print a model and the one before it side by side, and which one to use."""
    notes = Lines(report.warnings, name="Notes")
    blocks = [*model_before(report), notes, _written(written)]
    show(console, f"{report.source}: {report.rows:,} rows", blocks)


def print_look(console: Console, look: TableLook, fit: str, page: str | None) -> None:
    """Print each column in a line, and what looks wrong; `fit` is the command to come next."""
    written = _written({} if page is None else {"page": page})
    # Labels first; what looks wrong stands nearest to the prompt.
    sections = [LOOK_SECTIONS[0], *LOOK_SECTIONS[:0:-1]]
    blocks = [*_walk(sections, look, "verbose"), written, Lines([Command(fit)], name="Next")]
    counts = f"{pluralize(look.rows, 'row')}, {pluralize(len(look.columns), 'column')}"
    show(console, f"{look.source}: {counts}", blocks)


# --- other commands -----------------------------------------------------------------------


def print_score(console: Console, report: ScoreReport, path: str) -> None:
    """Print what scoring found; `path` is where the scored table went."""
    title, blocks = f"{report.source}: {pluralize(report.rows, 'row')} scored", list[Block]()
    if report.skipped:
        skipped = f"{pluralize(report.skipped, 'row')} left out: scored before"
        blocks.append(Lines([skipped], name="Read"))
    if not report.rows:
        show(console, title, blocks)
        return
    flagged = [wording.flagged_line(report.flagged, report.rows, "rows")]
    if report.expected is not None:
        flagged += wording.flagged_lines(report.expected, report.flagged)
    flagged += [report.selection or wording.threshold_line(report.threshold, report.rule)]
    blocks += [Lines(flagged, name="Flagged"), Lines(report.warnings, name="Notes")]
    rules = [str(each) for each in report.suppressed if not each.expired]
    blocks += [Lines(rules, name="Harmless"), Lines(report.alarms, name="Alarms")]
    if report.top:
        name = "Novel" if report.by == "novelty" else "Top"
        blocks.append(wording.suspects_table(report.top, report.id, name))
    *first, last = report.added
    added = f"{path} (all columns, and {', '.join(first)} and {last})"
    show(console, title, [*blocks, Lines([added], name="Written")])


def print_explain(
    console: Console, report: ExplainReport, paths: Mapping[str, str], unit: str
) -> None:
    """Print why rows or windows are suspicious, and what was written of them, and where."""
    usual = f"a {unit} with the usual value in every column scores {report.usual_score:.4g}"
    sizes = [f"{column} {size:.3g}" for column, size in list(report.importance.items())[:5]]
    mean = f"mean change of the score over {report.importance_rows:,} {unit}s: {', '.join(sizes)}"
    blocks = [
        Lines([usual, wording.threshold_line(report.threshold, report.rule)], name="Usual"),
        Lines([mean], name="Columns"),
        Lines(report.warnings, name="Notes"),
    ]
    for row in report.explained:
        name = "" if row.id is None else f" ({row.id})"
        flagged = "" if row.is_anomaly else ", not flagged"
        lines = [f"{row.row:,}{name}: anomaly_score {row.anomaly_score:.4g}{flagged}"]
        lines += [f"- {reason}" for reason in row.reasons]
        if abs(row.others) >= 1e-9:  # otherwise there are no others, or they hold what is usual
            verb = "add" if row.others > 0 else "subtract"
            lines.append(f"- all other columns {verb} {abs(row.others):.3g}")
        blocks += [_BLANK_LINE, Lines(lines, name=unit.capitalize())]
    if paths:
        contents = {"reasons": f"every column of these {unit}s", "maps": "maps of their pictures"}
        written = {contents[name]: path for name, path in paths.items()}
        blocks += [_BLANK_LINE, _written(written)]
    show(console, f"{report.source}: {pluralize(report.rows, unit)} scored", blocks)


def print_threshold(console: Console, report: ThresholdReport, path: str) -> None:
    """Print by what a model decides now; `path` is where it was written."""
    lines = [
        wording.flagged_line(report.flagged, report.unlabelled, "unlabelled rows of the fit"),
        *wording.flagged_lines(report.expected, report.flagged),
        *wording.cost_lines(report.cost),
        wording.threshold_line(report.threshold, report.rule),
    ]
    title = f"threshold {report.rule} (was {report.before})"
    show(console, title, [Lines(lines, name="Flagged"), Lines([path], name="Written")])


def print_export(console: Console, report: ExportReport, path: str) -> None:
    """Print what a graph takes and gives, and how it compares with the model."""
    inputs = [f"{name}: {kind}" for name, kind in report.inputs.items()]
    more = [f"and {len(inputs) - _MOST_INPUTS} more"] if len(inputs) > _MOST_INPUTS else []
    checked = "not compared with the model: onnxruntime is not installed"
    if report.largest_difference is not None:
        checked = (
            f"scores of {report.checked_rows:,} random rows differ from the model's by at most "
            f"{report.largest_difference:.1g}"
        )
    blocks = [
        Lines(inputs[:_MOST_INPUTS] + more, name="Inputs"),
        Lines([", ".join(report.outputs)], name="Outputs"),
        Lines([checked], name="Checked"),
        Lines([f"{path} ({report.bytes:,} bytes)"], name="Written"),
    ]
    show(console, f"{path}: {with_article(report.model)} as an ONNX graph", blocks)


def print_suggest(console: Console, report: SuggestReport, path: str | None, unit: str) -> None:
    """Print which rows, or windows, to label next, and where they went, if anywhere."""
    rows = []
    for each in report.suggested:
        ids = [each.id or ""] if report.id else []
        rows.append([f"{each.row:,}", *ids, f"{each.anomaly_score:.4f}", each.reason])
    head = [unit, *([report.id] if report.id else []), "anomaly_score", "reason"]
    what = (
        f"these {unit}s with all columns, ready to label"
        if rows
        else f"no {unit}, only names of columns"
    )
    written = [] if path is None else [f"{path} ({what})"]
    blocks = [
        Lines(report.warnings, name="Notes"),
        *([Table(head, rows, right=(0, len(head) - 2), name="Label")] if rows else []),
        Lines(written, name="Written"),
    ]
    title = f"{report.source}: {report.rows:,} {unit}s, {report.labelled:,} labelled"
    show(console, title, blocks)


def print_drift(console: Console, report: TableDrift) -> None:
    """Print whether rows have moved, and the columns that have moved most."""
    drift, rates, alarm = report.drift, list[str](), list[str]()
    if drift.rate is not None and drift.rate_before is not None:
        shares = {"these rows": drift.rate, "the unlabelled rows of the fit": drift.rate_before}
        for rows, (value, low, high) in shares.items():
            line = f"{value:.1%} of {rows} (95% interval {low:.1%} to {high:.1%})"
            if high - low > wording.WIDE:
                line = wording.too_few_labels(f"how many of {rows} are anomalies")
            elif drift.moved and not rates:
                line = (
                    f"{low:.1%} to {high:.1%} of {rows}: columns have moved, and more anomalies "
                    "would look the same as a change of the normal rows"
                )
            rates.append(line)
    if report.fail_above is not None:
        by = f"moved by a distance of more than {report.fail_above:g}"
        alarm = [f"{', '.join(report.above)}: {by}" if report.alarm else f"none: nothing has {by}"]
    every = [*drift.columns, *([] if drift.scores is None else [drift.scores])]
    columns = [
        [
            column.name,
            f"{column.distance:.3f}",
            shift_in_words(column.shift).removesuffix(" SD"),
            f"{column.p_value:.2g}",
            "yes" if column.moved else "no",
        ]
        for column in sorted(every, key=lambda column: column.p_value)[:_MOST_DRIFTS]
    ]
    head = ["column", "distance", "shift in SD", "p-value", "moved"]
    blocks = [
        Lines([drift.verdict], name="Verdict"),
        Lines(alarm, name="Alarm"),
        Lines(rates, name="Anomalies"),
        Lines(report.warnings, name="Notes"),
        Table(head, columns, right=range(1, 5), name="Largest"),
    ]
    compared = f"{pluralize(drift.rows, 'row')}, compared with {drift.unlabelled:,} of the fit"
    show(console, f"{report.source}: {compared}", blocks)


def print_compress(console: Console, report: CompressReport, path: str) -> None:
    """Print what was learned from what, and what was lost; `path` is where it was written."""
    rows = "no training rows are in the file"
    if report.kept_rows:
        rows = "riskad score --quick uses them; without --quick the model itself scores rows"
    gained = [f"rows are scored {report.times_as_fast:.0f} times as fast", rows]
    learned = f"the scores of {report.learned_rows:,} rows, in {report.seconds:.0f} s"
    blocks = [
        Lines([learned], name="Learned"),
        Lines([report.fidelity.in_words()], name="Lost"),
        Lines(gained, name="Gained"),
        Lines(report.warnings, name="Notes"),
        Lines([path], name="Written"),
    ]
    show(console, f"{report.trees:,} trees that score rows in place of the model", blocks)


def print_demo(console: Console, report: DemoReport) -> None:
    """Print the demonstration: what was done, how good it was, and what to type next."""
    fit = report.fit
    tables = [
        f"samples.csv: {report.rows:,} rows, {fit.labels}",
        f"new.csv: {report.new_rows:,} rows without labels, of which {report.new_anomalies} are "
        "malignant",
    ]
    sections = [each for each in SECTIONS[::-1] if each.title in ("Columns", "Model", "Quality")]
    truth = "for the new rows, compared with an isolation forest, which uses no labels:"
    rows = [
        [name, *map(form.format_map, (vars(report.riskad), vars(report.isolation_forest)))]
        for name, form in (
            ("AUC", "{auc.value:.3f}"),
            ("  95% interval", "{auc.low:.3f} to {auc.high:.3f}"),
            ("average precision", "{average_precision:.3f}"),
            ("correct in top 10", "{top_right} of {top}"),
            ("correct if flagged", "{flagged_right} of {flagged}"),
        )
    ]
    command = "riskad fit data.csv --label COLUMN --normal VALUE --anomaly VALUE -o model.riskad"
    blocks = [
        Lines(tables, name="Data"),
        Lines(list(map(Command, report.commands)), name="Ran"),
        *_walk(sections, fit, "brief"),
        Lines([*fit.warnings, *report.score.warnings], name="Notes"),
        Lines([truth], name="Truth"),
        Table(["", "riskad", "isolation forest"], rows),
        _BLANK_LINE,
        Lines([Command(command), Command(report.commands[1])], name="Your data"),
    ]
    show(console, "A run on scikit-learn's breast cancer data, where benign is normal", blocks)
