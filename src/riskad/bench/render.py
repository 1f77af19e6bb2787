r"""Tables for people, for machines and for papers: Markdown, CSV and LaTeX from a summary.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
The Markdown sets ours beside the published column by column; the LaTeX has the layout of the
paper's tables, with ours in one line and the published in italics below. The output depends on
the records alone, not on their order and not on the day.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from riskad._checks import InputError
from riskad._files import atomic_path
from riskad.bench.paper import DEFAULT_A, DEFAULT_PRIOR, PAPER_SETS, Published, paper_set
from riskad.bench.records import read_records
from riskad.bench.summary import (
    SMALL_PI_N,
    Cell,
    Estimate,
    Overall,
    Remark,
    Summary,
    Sweep,
    gaps,
    headline_rule,
    overall,
    summarise,
    sweep_cell,
    sweep_values,
    sweeps,
)
from riskad.shallow import FEWEST_FOR_CV

__all__ = ["Table", "csv_text", "latex_text", "markdown_text", "tables_of", "write_report"]

_NONE = "-"
_LONGEST_REASON = 160
_TITLES = {
    "main": "Tables 1 and 3 of the paper: rAD beside PU and one-class SVMs",
    "prior": "Table 4 of the paper: rAD with other assumed shares of normal rows",
    "a": "Table 5 of the paper: rAD with other weights of the pile",
    "published": "What the published runs amounted to: lambda growing with n, a free intercept",
}
_LOSS_NAMES = {"squared": "square", "hinge": "hinge", "modified_huber": "m-Huber"}
_METHOD_NAMES = {"rad": "rAD", "pu": "PU", "ocsvm": "OC-SVM", "semi_ocsvm": "semi-OC-SVM"}
_LIKE_PUBLISHED = {"kernel": "biased", "pile": "normal"}
_SEMI_VARIANTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("biased, pile outside", {"kernel": "biased", "pile": "outside"}),
    ("laplacian", {"kernel": "laplacian"}),
)


# --- the report of a folder --------------------------------------------------------------


def write_report(folder: Path, figures: bool = True) -> list[Path]:
    """Write tables and figures of the records in a folder, and return where they are.

    FOLDER/records/*.jsonl is read; FOLDER/tables/NAME.{md,csv,tex} is written for each
    experiment, and FOLDER/figures/*.svg for what the records allow. Each file is replaced whole.
    """
    folder = Path(folder)
    paths = sorted((folder / "records").glob("*.jsonl"))
    records = [row for path in paths for row in read_records(path)]
    if not records:
        raise InputError(
            f"There are no records in {str(folder / 'records')!r}; make some with "
            f"riskad bench shallow --out {folder}"
        )
    summary = summarise(records)
    written = _write_tables(summary, folder / "tables")
    if figures:
        from riskad.bench.figures import write_figures

        written += write_figures(summary, folder / "figures")
    return written


def _write_tables(summary: Summary, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    writers = {"md": markdown_text, "csv": csv_text, "tex": latex_text}
    written = []
    for experiment in summary.experiments:
        for ending, write in writers.items():
            path = folder / f"{experiment}.{ending}"
            with atomic_path(path, force=True) as part:
                part.write_text(write(summary, experiment), encoding="utf-8", newline="\n")
            written.append(path)
    return written


# --- tables, before they become text -----------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table as text: rows for the datasets, then rows over all of them.

    `groups` are titles over several columns each, as (title, number of columns).
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: Sequence[Sequence[str]] = ()
    groups: Sequence[tuple[str, int]] = ()
    note: str = ""
    left: int = 1  # columns set to the left, the others to the right


@dataclass(frozen=True)
class _Column:
    """A column over datasets: a cell's text, the number to average, and what to count."""

    head: str
    find: Callable[[str], Cell | None]
    say: Callable[[Cell | None], str]
    means: Callable[[Cell | None], tuple[float | None, ...]]
    counts: bool = False


def tables_of(summary: Summary, experiment: str) -> list[Table]:
    """Tables of an experiment, in the order in which they are read."""
    makers = {"main": _main_tables, "prior": _sweep_tables, "a": _sweep_tables}
    if experiment in makers:
        tables = makers[experiment](summary, experiment)
    elif experiment == "published":
        tables = [_by_loss(summary, experiment, "rad", "rAD as the published runs amounted to")]
    else:
        tables = _plain_tables(summary, experiment)
    return [table for table in [_overview(summary, experiment), *tables] if table.rows]


def _main_tables(summary: Summary, experiment: str) -> list[Table]:
    return [
        *(_rad_table(summary, loss) for loss in summary.values(experiment, "loss")),
        _by_loss(summary, experiment, "pu", "PU, lambda cross-validated"),
        _svm_table(summary),
        _gap_table(summary),
        _pi_n_table(summary),
    ]


def _rad_table(summary: Summary, loss: str) -> Table:
    rules = [rule for rule in summary.values("main", "lam") if _has(summary, loss, rule)]
    shown = headline_rule(summary)
    shown = shown if shown in rules else next(iter(rules), None)
    find = {rule: _finder(summary, "main", "rad", loss=loss, lam=rule) for rule in rules}
    trials = summary.n_trials("main")
    columns = [
        _published_column("published", *find.values()),
        *(_own_column(str(rule), find[rule], trials) for rule in rules),
        *([_difference_column(f"{shown}: difference", find[shown])] if shown else []),
    ]
    title = f"rAD, {_LOSS_NAMES.get(loss, loss)} loss, by rule for lambda"
    return _dataset_table(summary, "main", title, columns)


def _has(summary: Summary, loss: str, rule: Any) -> bool:
    settings = (cell.settings for cell in summary.of("main", "rad"))
    return any(s.get("loss") == loss and s.get("lam") == rule for s in settings)


def _by_loss(summary: Summary, experiment: str, method: str, title: str) -> Table:
    """Ours and published, and their difference, for each loss."""
    trials, columns = summary.n_trials(experiment), []
    for loss in summary.values(experiment, "loss", method):
        find = _finder(summary, experiment, method, loss=loss)
        name = _LOSS_NAMES.get(loss, loss)
        columns += [_both_column(name, find, trials), _difference_column("difference", find)]
    note = "Ours / published."
    return replace(_dataset_table(summary, experiment, title, columns), note=note)


def _svm_table(summary: Summary) -> Table:
    trials = summary.n_trials("main")
    plain = _finder(summary, "main", "ocsvm")
    semi = _finder(summary, "main", "semi_ocsvm", **_LIKE_PUBLISHED)
    others = {
        name: _finder(summary, "main", "semi_ocsvm", **wanted) for name, wanted in _SEMI_VARIANTS
    }
    columns = [
        _both_column("OC-SVM", plain, trials),
        _difference_column("difference", plain),
        _published_column("semi: published", semi, *others.values()),
        _own_column("biased, pile normal", semi, trials),
        _difference_column("difference", semi),
        *(_own_column(name, find, trials) for name, find in others.items()),
    ]
    note = (
        "OC-SVM: ours / published. Of the three semi-supervised variants, the published column "
        'most resembles "biased, pile normal", an SVM that takes the pile as normal: that one is '
        "the comparison of like with like."
    )
    title = "OC-SVM and semi-OC-SVM"
    return replace(_dataset_table(summary, "main", title, columns), note=note)


def _sweep_tables(summary: Summary, experiment: str) -> list[Table]:
    rules = summary.values(experiment, "lam")
    losses = summary.values(experiment, "loss")
    tables = [_sweep_table(summary, experiment, loss, rule) for loss in losses for rule in rules]
    return [*tables, _spread_table(summary, experiment)]


def _sweep_table(summary: Summary, experiment: str, loss: str, rule: str) -> Table:
    columns = [
        _means_column(
            _say_value(experiment, value), _sweep_finder(summary, experiment, loss, rule, value)
        )
        for value in sweep_values(summary, experiment, loss, [rule])
    ]
    title = f"{_LOSS_NAMES.get(loss, loss)} loss, lambda by rule {rule}"
    return _dataset_table(summary, experiment, title, columns)


def _plain_tables(summary: Summary, experiment: str) -> list[Table]:
    """For an experiment the paper does not have: a table for each method and setting."""
    tables = []
    for entry in overall(summary, experiment):
        find = _finder(summary, experiment, entry.method, **entry.settings)
        columns = [
            _own_column("AUC", find, summary.n_trials(experiment)),
            _number_column("average precision", find, lambda cell: cell.average_precision),
            _Column("trials", find, lambda cell: str(cell.n_ok) if cell else _NONE, _no_means),
        ]
        title = f"{entry.method}, {_say_settings(entry.settings)}".rstrip(", ")
        tables.append(_dataset_table(summary, experiment, title, columns))
    return tables


def _overview(summary: Summary, experiment: str) -> Table:
    head = (
        "method",
        "sets",
        "AUC",
        "published",
        "difference",
        "reach",
        "within 2 SE",
        "average precision",
        "fit (ms)",
    )
    return Table(
        "Means over datasets",
        head,
        [_overview_row(entry) for entry in overall(summary, experiment)],
        note='"reach" counts sets with mean >= published - 2 published SE; "within 2 SE" those '
        "within two joint SE either way, and after the stroke also those that only the rounding "
        "of the published mean may keep out.",
    )


def _overview_row(entry: Overall) -> list[str]:
    reach = f"{entry.n_reach} of {entry.n_judged}" if entry.n_judged else _NONE
    within = f"{entry.n_within} / {entry.n_within_rounded} of {entry.n_compared}"
    name = _METHOD_NAMES.get(entry.method, entry.method)
    return [
        f"{name}, {_say_settings(entry.settings)}".rstrip(", "),
        str(entry.n_sets),
        f"{entry.auc:.3f}",
        _say_mean(entry.published),
        _say_signed(entry.difference, 3),
        reach,
        within if entry.n_compared else _NONE,
        f"{entry.average_precision:.3f}",
        f"{1000 * entry.fit_seconds:.1f}",
    ]


# --- what the paper claims ---------------------------------------------------------------


def _gap_table(summary: Summary) -> Table:
    """RAD less PU and less the one-class SVMs: per loss and rule, ours / published."""
    others = ("pu", "ocsvm", "semi_ocsvm")
    found = {
        (gap.loss, gap.rule, other): gap
        for other in others
        for gap in gaps(summary, other)
        if gap.sets == "all"
    }
    rows = []
    for loss, rule in product(summary.values("main", "loss"), summary.values("main", "lam")):
        three = [found.get((loss, rule, other)) for other in others]
        if not any(three):
            continue
        cells = [_say_pair(gap.ours, gap.published) if gap else _NONE for gap in three]
        sets = "/".join(dict.fromkeys(str(gap.n_sets) for gap in three if gap))
        rows.append([_LOSS_NAMES.get(loss, loss), rule, sets, *cells])
    return Table(
        "Claim: on average, rAD outperforms PU and the one-class SVMs",
        ("loss", "lambda", "sets", *(f"rAD - {_METHOD_NAMES[other]}" for other in others)),
        rows,
        note="Mean difference of AUC over the sets on which both were run, ours / published.",
        left=2,
    )


def _pi_n_table(summary: Summary) -> Table:
    """RAD less PU where anomalies are rare and where they are not."""
    found = {(gap.loss, gap.rule, gap.sets): gap for gap in gaps(summary, "pu")}
    rows = []
    for loss, rule in dict.fromkeys((loss, rule) for loss, rule, _ in found):
        row = [_LOSS_NAMES.get(loss, loss), rule]
        for kind in ("small", "large"):
            gap = found.get((loss, rule, kind))
            row += [str(gap.n_sets), _say_pair(gap.ours, gap.published)] if gap else ["0", _NONE]
        rows.append(row)
    small, large = f"pi_n <= {SMALL_PI_N:g}", f"pi_n > {SMALL_PI_N:g}"
    return Table(
        f"Claim: rAD - PU is large where {small} and small elsewhere",
        ("loss", "lambda", "sets", f"gap, {small}", "sets", f"gap, {large}"),
        rows,
        note="Mean difference of AUC, ours / published.",
        left=2,
    )


def _spread_table(summary: Summary, experiment: str) -> Table:
    name = {"prior": "pi_p^e", "a": "a"}[experiment]
    found = sweeps(summary, experiment)
    return Table(
        f"Claim: rAD is robust to {name}",
        ("loss", "lambda", "sets", "ours", "published", "our best", "published best"),
        [_spread_row(sweep) for sweep in found],
        note="The spread: largest less smallest mean AUC over the values of "
        f"{name}, each a mean over the same sets; and the value with the largest mean.",
        left=2,
    )


def _spread_row(sweep: Sweep) -> list[str]:
    def best(means: Sequence[float]) -> str:
        return _say_value(sweep.experiment, sweep.values[means.index(max(means))])

    return [
        _LOSS_NAMES.get(sweep.loss, sweep.loss),
        sweep.rule,
        str(sweep.n_sets),
        f"{sweep.spread:.3f}",
        f"{sweep.published_spread:.3f}",
        best(sweep.ours),
        best(sweep.published),
    ]


# --- columns and rows --------------------------------------------------------------------


def _dataset_table(
    summary: Summary, experiment: str, title: str, columns: Sequence[_Column]
) -> Table:
    """One row for each dataset that has a cell in some column, then the mean row and counts."""
    datasets = [
        name
        for name in summary.datasets(experiment)
        if any(column.find(name) for column in columns)
    ]
    found = [[column.find(name) for column in columns] for name in datasets]
    rows = [
        [
            _say_dataset(name),
            *(column.say(cell) for column, cell in zip(columns, cells, strict=True)),
        ]
        for name, cells in zip(datasets, found, strict=True)
    ]
    foot = [_mean_row(datasets, columns), *_count_rows(datasets, columns)]
    return Table(title, ("dataset (d, n, pi_n)", *(c.head for c in columns)), rows, foot)


def _mean_row(datasets: Sequence[str], columns: Sequence[_Column]) -> list[str]:
    """Means over the paper's sets on which no column that has a mean is empty.

    If no column has a published number, all datasets count.
    """
    averaged = {
        i: {name: column.means(column.find(name)) for name in datasets}
        for i, column in enumerate(columns)
        if any(_complete(column.means(column.find(name))) for name in datasets)
    }
    common = [name for name in datasets if all(_complete(by[name]) for by in averaged.values())]
    row = [f"mean of {len(common)} set{'' if len(common) == 1 else 's'}"]
    for i in range(len(columns)):
        if i not in averaged or not common:
            row.append("")
            continue
        parts = zip(*(averaged[i][name] for name in common), strict=True)
        row.append(" / ".join(_say_mean(_average(part)) for part in parts))
    return row


def _complete(values: Sequence[float | None]) -> bool:
    return bool(values) and None not in values


def _average(values: Iterable[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers)


def _count_rows(datasets: Sequence[str], columns: Sequence[_Column]) -> list[list[str]]:
    """How many cells of a column reach the published mean, and are within two joint errors."""
    counters: dict[str, Callable[[Cell], bool | None]] = {
        "reach published - 2 SE": lambda cell: cell.reaches,
        "within 2 joint SE": lambda cell: cell.within,
        "the same, rounding allowed for": lambda cell: cell.within_rounded,
    }
    rows = []
    for name, count in counters.items():
        row = [name]
        for column in columns:
            cells = [column.find(dataset) for dataset in datasets] if column.counts else []
            answers = [count(cell) for cell in cells if cell]
            answers = [answer for answer in answers if answer is not None]
            row.append(f"{sum(map(bool, answers))} of {len(answers)}" if answers else "")
        if any(row[1:]):
            rows.append(row)
    return rows


def _finder(
    summary: Summary, experiment: str, method: str, **wanted: Any
) -> Callable[[str], Cell | None]:
    return lambda dataset: summary.cell(experiment, dataset, method, **wanted)


def _sweep_finder(
    summary: Summary, experiment: str, loss: str, rule: str, value: float | str
) -> Callable[[str], Cell | None]:
    return lambda dataset: sweep_cell(summary, experiment, dataset, loss, rule, value)


def _own_column(head: str, find: Callable[[str], Cell | None], trials: int) -> _Column:
    return _Column(head, find, lambda cell: _say_own(cell, trials), _own_mean, counts=True)


def _both_column(head: str, find: Callable[[str], Cell | None], trials: int) -> _Column:
    def say(cell: Cell | None) -> str:
        return f"{_say_own(cell, trials)} / {_say_published(cell)}" if cell else _NONE

    return _Column(head, find, say, _both_means, counts=True)


def _means_column(head: str, find: Callable[[str], Cell | None]) -> _Column:
    """Means without standard errors, as in Tables 4 and 5."""

    def say(cell: Cell | None) -> str:
        if cell is None:
            return _NONE
        ours = f"{cell.auc.mean:.3f}" if cell.auc else "failed"
        return f"{ours} / {_say_printed(cell.published)}"

    return _Column(head, find, say, _both_means, counts=True)


def _published_column(head: str, *finders: Callable[[str], Cell | None]) -> _Column:
    """The published number, which any of several cells of a row can give."""

    def find(dataset: str) -> Cell | None:
        return next((cell for cell in (find(dataset) for find in finders) if cell), None)

    return _Column(head, find, _say_published, _published_mean)


def _difference_column(head: str, find: Callable[[str], Cell | None]) -> _Column:
    def say(cell: Cell | None) -> str:
        return _say_signed(cell.difference_in_se, 1) if cell else _NONE

    return _Column(head, find, say, _no_means)


def _number_column(
    head: str, find: Callable[[str], Cell | None], get: Callable[[Cell], Estimate | None]
) -> _Column:
    def say(cell: Cell | None) -> str:
        return _say_estimate(get(cell)) if cell else _NONE

    def means(cell: Cell | None) -> tuple[float | None, ...]:
        value = get(cell) if cell else None
        return (value.mean if value else None,)

    return _Column(head, find, say, means)


def _no_means(cell: Cell | None) -> tuple[float | None, ...]:
    return ()


def _own_mean(cell: Cell | None) -> tuple[float | None, ...]:
    return (cell.auc.mean if cell and cell.auc else None,)


def _published_mean(cell: Cell | None) -> tuple[float | None, ...]:
    return (cell.published.mean if cell and cell.published else None,)


def _both_means(cell: Cell | None) -> tuple[float | None, ...]:
    return _own_mean(cell) + _published_mean(cell)


# --- numbers as text ---------------------------------------------------------------------


def _say_dataset(name: str) -> str:
    facts = paper_set(name)
    return f"{name} ({facts.d}, {facts.n}, {facts.pi_n:.2f})" if facts else name


def _say_estimate(value: Estimate | None) -> str:
    if value is None:
        return "failed"
    return f"{value.mean:.3f} ({_NONE if value.se is None else f'{100 * value.se:.2f}'})"


def _say_own(cell: Cell | None, trials: int) -> str:
    """Mean (SE x 100), and in brackets the trials that succeeded where some are missing."""
    if cell is None:
        return _NONE
    few = f" [{cell.n_ok}]" if 0 < cell.n_ok < trials else ""
    return _say_estimate(cell.auc) + few


def _say_printed(value: Published | None) -> str:
    """A published mean with the digits that were printed."""
    if value is None:
        return _NONE
    return f"{value.mean:.2f}" if value.rounding == 0.005 else f"{value.mean:.3f}"


def _say_published(cell: Cell | None) -> str:
    if cell is None or cell.published is None:
        return _NONE
    se = cell.published.se
    return _say_printed(cell.published) + ("" if se is None else f" ({100 * se:.2f})")


def _say_mean(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _say_signed(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{round(value, digits) + 0.0:+.{digits}f}"


def _say_pair(ours: float, theirs: float) -> str:
    return f"{_say_signed(ours, 3)} / {_say_signed(theirs, 3)}"


def _say_value(experiment: str, value: object) -> str:
    if value == "true":
        return "1 - pi_n"
    default = {"prior": DEFAULT_PRIOR, "a": DEFAULT_A}[experiment]
    return f"{value} (main)" if value == default else str(value)


def _say_settings(settings: Mapping[str, Any]) -> str:
    """Settings in a line; a loss, a rule or a kernel needs no name."""
    bare = ("loss", "kernel")
    parts = [
        _LOSS_NAMES.get(str(value), str(value)) if key in bare else f"{key} {value}"
        for key, value in settings.items()
    ]
    return ", ".join(parts)


def _shorten(text: str) -> str:
    r"""One line of at most 160 characters.

    >>> _shorten("ValueError:\n  too  few rows")
    'ValueError: too few rows'
    """
    return textwrap.shorten(text, _LONGEST_REASON, placeholder=" ...")


# --- Markdown ----------------------------------------------------------------------------


def markdown_text(summary: Summary, experiment: str) -> str:
    """Return the report of one experiment as Markdown."""
    parts = [f"# {_TITLES.get(experiment, f'Experiment {experiment}')}"]
    parts += _opening(summary, experiment)
    for table in tables_of(summary, experiment):
        parts += [f"## {table.title}", *([table.note] if table.note else []), _markdown(table)]
    parts += _closing(summary, experiment)
    return "\n\n".join(parts) + "\n"


def _opening(summary: Summary, experiment: str) -> list[str]:
    trials, datasets = summary.n_trials(experiment), summary.datasets(experiment)
    ours = [name for name in datasets if name in PAPER_SETS]
    seeds = ", ".join(map(str, summary.roots.get(experiment, ()))) or "unknown"
    lines = [
        f"{trials} trial{'' if trials == 1 else 's'} per cell at most (root seed {seeds}), on "
        f"{len(ours)} of the {len(PAPER_SETS)} datasets of the paper."
    ]
    others = [name for name in datasets if name not in PAPER_SETS]
    if others:
        lines.append(f"Not in the paper, and not in its means: {', '.join(others)}.")
    return [
        " ".join(lines),
        *_version_lines(summary, experiment),
        _LEGEND,
        *_rule_lines(summary, experiment),
    ]


_LEGEND = (
    "Cells are mean AUC (SE x 100) over trials; [n] says that n trials succeeded where fewer did "
    'than elsewhere. "published" is the paper\'s number. A difference is (ours - published) / '
    "sqrt(SE^2 + published SE^2), with our SE alone where the paper gives none. The paper prints "
    "most means with two digits: rounding alone can be several of the smallest SE."
)


def _rule_lines(summary: Summary, experiment: str) -> list[str]:
    if not any(cell.settings.get("lam") == "auto" for cell in summary.of(experiment)):
        return []
    return [
        'The rule "auto" is not run by itself: it is, trial by trial, what "cv" gave if at least '
        f'{FEWEST_FOR_CV} labelled anomalies were there, and what "tight" gave otherwise.'
    ]


def _version_lines(summary: Summary, experiment: str) -> list[str]:
    versions = summary.versions.get(experiment, ())
    lines = [f"Versions: {'; or '.join(versions) or 'not recorded'}."]
    if len(versions) > 1:
        lines.append("**Careful: these records were made with more than one set of versions.**")
    hidden = summary.hidden(experiment)
    if hidden:
        lines.append(
            f"**Careful: some cells were run with several values of {', '.join(hidden)}, which "
            "the tables do not tell apart: they show the one with the most trials. The CSV has "
            "all.**"
        )
    return lines


def _closing(summary: Summary, experiment: str) -> list[str]:
    """What was not run, what failed and what warned; said also when there is nothing to say."""
    parts = ["## Not run"]
    absent = [row for row in summary.not_run if row.experiment == experiment]
    lines = [f"- {row.dataset}: {_markdown_safe(_shorten(row.reason))}" for row in absent]
    silent = {*summary.datasets(experiment), *(row.dataset for row in absent)}
    missing = [name for name in PAPER_SETS if name not in silent]
    if missing:
        lines.append(f"- no record at all: {', '.join(missing)}")
    parts.append("\n".join(lines) or "Every dataset of the paper was run.")
    parts += _remark_part("Failed trials", summary.failures, experiment, "No trial failed.")
    parts += _remark_part("Warnings", summary.warnings, experiment, "No trial gave a warning.")
    return parts


def _remark_part(
    title: str, remarks: Iterable[Remark], experiment: str, otherwise: str
) -> list[str]:
    rows = [
        [
            str(remark.count),
            ", ".join(f"{_METHOD_NAMES.get(m, m)} {k}" for m, k in remark.methods.items()),
            ", ".join(f"{name} {k}" for name, k in remark.datasets.items()),
            _shorten(remark.text),
        ]
        for remark in remarks
        if remark.experiment == experiment
    ]
    head = ("trials", "by method", "by dataset", "what was said")
    return [f"## {title}", _markdown(Table(title, head, rows, left=4)) if rows else otherwise]


def _markdown(table: Table) -> str:
    """A table in Markdown, readable as text too."""
    foot = [[f"*{cell}*" if cell else "" for cell in map(_markdown_safe, r)] for r in table.foot]
    body = [list(map(_markdown_safe, row)) for row in (table.head, *table.rows)]
    rows = [*body, *foot]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = [
        ":" + "-" * max(2, w - 1) if i < table.left else "-" * max(2, w - 1) + ":"
        for i, w in enumerate(widths)
    ]
    lines = [_markdown_row(rows[0], widths, table.left), f"| {' | '.join(rule)} |"]
    return "\n".join([*lines, *(_markdown_row(row, widths, table.left) for row in rows[1:])])


def _markdown_row(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if i < left else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"


def _markdown_safe(text: str) -> str:
    """Keep a bar, a bracket or a star of a message from being read as markup."""
    return re.sub(r"([|*`]|<(?=[A-Za-z/!?]))", r"\\\1", text)


# --- CSV ---------------------------------------------------------------------------------


def csv_text(summary: Summary, experiment: str) -> str:
    """Return all cells of one experiment as CSV, a row each and a column for each setting."""
    cells = summary.of(experiment)
    settings = sorted({key for cell in cells for key in cell.settings})
    protocol = sorted({key for cell in cells for key in cell.protocol})
    rows = [_csv_row(cell, settings, protocol) for cell in cells]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _csv_row(cell: Cell, settings: Sequence[str], protocol: Sequence[str]) -> dict[str, str]:
    facts = paper_set(cell.dataset)
    auc, precision, printed = cell.auc, cell.average_precision, cell.published
    row = {
        "experiment": cell.experiment,
        "dataset": cell.dataset,
        "set_d": facts and facts.d,
        "set_n": facts and facts.n,
        "set_pi_n": facts and facts.pi_n,
        "method": cell.method,
        **{name: cell.settings.get(name) for name in settings},
        **{name: cell.protocol.get(name) for name in protocol},
        "n_trials": cell.n_ok,
        "n_failed": cell.n_failed,
        "auc_mean": auc and auc.mean,
        "auc_se": auc and auc.se,
        "average_precision_mean": precision and precision.mean,
        "average_precision_se": precision and precision.se,
        "fit_seconds_mean": cell.fit_seconds,
        "published_mean": printed and printed.mean,
        "published_se": printed and printed.se,
        "published_rounding": printed and printed.rounding,
        "difference": cell.difference,
        "difference_in_joint_se": cell.difference_in_se,
        "reaches": cell.reaches,
        "within_2_joint_se": cell.within,
        "within_2_joint_se_rounded": cell.within_rounded,
    }
    return {name: _csv_value(value) for name, value in row.items()}


def _csv_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# --- LaTeX -------------------------------------------------------------------------------


def latex_text(summary: Summary, experiment: str) -> str:
    r"""Return the tables of one experiment as LaTeX, for \input in a document with booktabs."""
    makers = {"main": _paper_main, "prior": _paper_sweeps, "a": _paper_sweeps}
    tables = makers[experiment](summary, experiment) if experiment in makers else []
    others = tables_of(summary, experiment)
    if tables:
        others = [table for table in others if not table.head[0].startswith("dataset")]
        others += [_svm_table(summary)] if experiment == "main" else []
    opening = (
        f"% {_TITLES.get(experiment, experiment)}\n"
        "% Needs \\usepackage{booktabs}, and about 17 cm of text width.\n"
    )
    return opening + "\n".join(_latex(table) for table in [*tables, *others] if table.rows)


_BELOW = "In italics below: as published."


def _paper_main(summary: Summary, experiment: str) -> list[Table]:
    """Tables 1 and 3 in one, once for each rule for lambda."""
    losses = [loss for loss in _LOSS_NAMES if loss in summary.values("main", "loss")]
    rest = [_finder(summary, "main", "pu", loss=loss) for loss in losses]
    rest += [
        _finder(summary, "main", "ocsvm"),
        _finder(summary, "main", "semi_ocsvm", **_LIKE_PUBLISHED),
    ]
    names = [_LOSS_NAMES[loss] for loss in losses]
    head = ("dataset", *names, *names, "OC-SVM", "semi-OC-SVM")
    groups = (("", 1), ("rAD", len(names)), ("PU", len(names)), ("", 2))
    tables = []
    for rule in summary.values("main", "lam"):
        own = [_finder(summary, "main", "rad", loss=loss, lam=rule) for loss in losses]
        title = f"rAD with lambda by rule {rule}, PU and one-class SVMs: mean (SE x 100). {_BELOW}"
        rows = _two_line_rows(summary, experiment, [*own, *rest])
        tables.append(Table(title, head, rows, groups=groups))
    return tables


def _paper_sweeps(summary: Summary, experiment: str) -> list[Table]:
    """Tables 4 and 5, once for each rule for lambda."""
    losses = [loss for loss in _LOSS_NAMES if loss in summary.values(experiment, "loss")]
    name = {"prior": "pi_p^e", "a": "a"}[experiment]
    tables = []
    for rule in summary.values(experiment, "lam"):
        values = {loss: sweep_values(summary, experiment, loss) for loss in losses}
        finders = [
            _sweep_finder(summary, experiment, loss, rule, value)
            for loss in losses
            for value in values[loss]
        ]
        said = [_say_value(experiment, value) for loss in losses for value in values[loss]]
        groups = [
            ("", 1),
            *((f"{_LOSS_NAMES[loss]} / {name}", len(values[loss])) for loss in losses),
        ]
        title = f"AUC means of rAD for different {name}, lambda by rule {rule}. {_BELOW}"
        rows = _two_line_rows(summary, experiment, finders, errors=False)
        tables.append(Table(title, ("dataset", *said), rows, groups=groups))
    return tables


def _two_line_rows(
    summary: Summary,
    experiment: str,
    finders: Sequence[Callable[[str], Cell | None]],
    errors: bool = True,
) -> list[list[str]]:
    """Two rows for each dataset, as in the paper its name and its (d, n, pi_n): ours, published."""
    rows = []
    for name in summary.datasets(experiment):
        cells = [find(name) for find in finders]
        if not any(cells):
            continue
        said, _, facts = _say_dataset(name).partition(" ")
        if errors:
            ours = [_say_own(cell, 0).replace(" ", "") for cell in cells]
            theirs = [_say_published(cell).replace(" ", "") for cell in cells]
        else:
            ours = [_say_mean(cell.auc.mean if cell and cell.auc else None) for cell in cells]
            theirs = [_say_printed(cell.published if cell else None) for cell in cells]
        rows += [[said, *ours], [facts, *(f"{_ITALIC}{text}" for text in theirs)]]
    return rows


_ITALIC = "\x01"  # marks a cell that LaTeX sets in italics


def _latex(table: Table) -> str:
    """A table environment with booktabs' rules."""
    lines = [
        r"\begin{table}[p]",
        r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{_latex_safe(table.title)}}}",
        rf"\begin{{tabular}}{{{'l' * table.left}{'r' * (len(table.head) - table.left)}}}",
        r"\toprule",
        *_latex_groups(table.groups),
        _latex_row(table.head),
        r"\midrule",
        *map(_latex_row, table.rows),
        *([r"\midrule", *map(_latex_row, table.foot)] if table.foot else []),
        r"\bottomrule",
        r"\end{tabular}",
        *([rf"\par\medskip {_latex_safe(table.note)}"] if table.note else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_groups(groups: Sequence[tuple[str, int]]) -> list[str]:
    if not groups:
        return []
    cells, rules, column = [], [], 1
    for title, width in groups:
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex_safe(title)}}}")
        if title:
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(map(_latex_cell, row)) + r" \\"


def _latex_cell(text: str) -> str:
    if text.startswith(_ITALIC):
        return rf"\textit{{{_latex_safe(text.removeprefix(_ITALIC))}}}"
    return _latex_safe(text)


_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}
# Written in plain letters in the tables, and as mathematics in LaTeX; longer ones first.
_LATEX_MATHS = {
    "pi_p^e": r"$\pi_p^e$",
    "pi_n": r"$\pi_n$",
    "lambda": r"$\lambda$",
    "<=": r"$\leq$",
    ">=": r"$\geq$",
    " x 100": r" $\times$ 100",
    " - ": " $-$ ",
}
_LATEX_TOKENS = re.compile(
    "|".join([*map(re.escape, [*_LATEX_MATHS, *_LATEX_ESCAPES]), r"(?<![\w.)])-(?=[\d.])"])
)


def _latex_safe(text: str) -> str:
    r"""Text as LaTeX: special characters escaped, minus signs and priors as mathematics.

    >>> print(_latex_safe("CIFAR10_1 & -0.5 where pi_n <= 0.2"))
    CIFAR10\_1 \& $-$0.5 where $\pi_n$ $\leq$ 0.2
    """
    known = _LATEX_MATHS | _LATEX_ESCAPES | {"-": "$-$"}
    quoted = re.sub('"([^"]*)"', r"``\1''", text)
    return _LATEX_TOKENS.sub(lambda match: known[match.group()], quoted)
