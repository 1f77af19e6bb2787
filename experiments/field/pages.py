"""The pages of the field: targets, standings, each set by itself, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from scipy.stats import friedmanchisquare

from experiments.canvas import BLUE, GREY, draw, panels, write_svgs
from experiments.datasets import PAPER_SETS
from experiments.field.cells import MAIN_BUDGET, METHODS, ROOT
from experiments.field.ranking import (
    HEADLINE,
    METRICS,
    Comparison,
    FieldRecords,
    comparisons,
    critical_difference,
    targets,
)
from experiments.records import FAILED, SKIPPED
from experiments.tables import (
    NONE,
    Table,
    counted,
    markdown_safe,
    markdown_table,
    remark_table,
    say_difference,
    say_mean,
    shorten,
    write_text,
)

_TITLE = "riskad beside the field: classifiers, self-training, XGBOD, deep detectors and AutoML"
_LEGEND = (
    "All methods see the same splits and labels. A classifier learns from labelled rows alone; "
    "with +U it takes unlabelled rows as normal. A dash: not applicable under this budget, or not "
    "run; see below."
)
_STANDINGS_NOTE = (
    "Means and mean ranks over the sets, of means over the trials that all methods have; "
    '"best" counts sets; the time is the median of all fits.'
)


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write tables/field.md and figures/field-lead.svg."""
    records = FieldRecords(frame)
    write_text(folder / "tables" / "field.md", markdown_page(records))
    if records.budgets:
        write_svgs(draw({"field-lead": _lead_figure}, records), folder / "figures")


def markdown_page(records: FieldRecords) -> str:
    """Return the page with all tables."""
    by_budget = [comparisons(records, budget) for budget in records.budgets]
    tables = [_target_table(records), _lead_table(records)]
    for compared in by_budget:
        without = records.without_result(compared[0].budget)
        tables += [_standings(compared[0], without), *(_standings(each) for each in compared[1:])]
    tables.append(_recent_table(records))
    tables += [_set_table(c, metric) for of in by_budget for c in of for metric in METRICS]
    parts = [f"# {_TITLE}", *_opening(records)]
    for table in tables:
        if table.rows:
            note = [table.note] if table.note else []
            parts += [f"## {table.title}", *note, markdown_table(table)]
    return "\n\n".join([*parts, *_closing(records)]) + "\n"


# --- what was run ------------------------------------------------------------------------


def _opening(records: FieldRecords) -> list[str]:
    tried = [row for row in records.rows if row["status"] != SKIPPED]
    cells = Counter((row["dataset"], row["method"], row["budget"]) for row in tried)
    n_sets = len({row["dataset"] for row in tried})

    def seen(column: str) -> list[str]:
        return sorted({row[column] for row in tried if row.get(column) is not None})

    lines = [
        f"{counted(max(cells.values(), default=0), 'trial')} per cell at most (root seed {ROOT}), "
        f"on {n_sets} of the {len(PAPER_SETS)} datasets of the paper.",
        f"Versions: {'; or '.join(seen('versions'))}.",
        f"Code: {', '.join(seen('commit'))}.",
        f"Compared with: {', '.join(seen('peer'))}.",
    ]
    if len(seen("versions")) > 1:
        lines.append("**Careful: these records were made with more than one set of versions.**")
    return [*lines, _LEGEND]


def _closing(records: FieldRecords) -> list[str]:
    """What was not run, what failed and what warned."""
    tried = {row[name] for row in records.rows for name in ("dataset", "method")}
    missing = {row["dataset"]: row["reason"] for row in records.not_run if row["dataset"]}
    to_go = {name: f"{counted(n, 'cell')} to go" for name, n in records.unfinished.items()}
    lists = {"Not run": missing, "Methods not installed": records.absent}
    lists["Not finished, and not compared"] = to_go
    skipped = [(row, row["reason"]) for row in records.rows if row["status"] == SKIPPED]
    failed = [(row, row["reason"]) for row in records.rows if row["status"] == FAILED]
    warned = [(row, text) for row in records.rows for text in row.get("warnings") or ()]
    order = (*PAPER_SETS, *METHODS)
    parts = []
    for title, reasons in lists.items():
        names = sorted(set(reasons) - tried, key=order.index)
        lines = [f"- {name}: {markdown_safe(shorten(reasons[name]))}" for name in names]
        parts += [f"## {title}", "\n".join(lines)] if lines else []
    parts += ["## Not applicable", remark_table(skipped, PAPER_SETS)] if skipped else []
    parts += ["## Failed trials", remark_table(failed, PAPER_SETS) or "No trial failed."]
    return [*parts, "## Warnings", remark_table(warned, PAPER_SETS) or "No trial gave a warning."]


# --- tables ------------------------------------------------------------------------------


def _target_table(records: FieldRecords) -> Table:
    return Table(
        "Targets",
        ("AutoRAD has", "result", "met"),
        targets(records),
        note="Means are over sets; a rank is compared with that of every other method, ours too.",
        left=(0, 1, 2),
    )


def _lead_table(records: FieldRecords) -> Table:
    rows = []
    for budget, leads in records.leads.items():
        row = [budget]
        for each in leads.values():
            row += [f"{each.peer}, {counted(each.n_trials, 'trial')}", say_difference(each.over)]
        rows.append(row)
    heads = [text for metric in METRICS for text in (f"best peer in {metric}", "lead")]
    return Table(
        "AutoRAD less the best peer, by budget of labels",
        ("labelled", *heads),
        rows,
        note="The best peer is the one over which the lead is least, each compared with AutoRAD on "
        "all trials that both have. Not every peer was run under every budget. In parentheses "
        "stands the SE x 100 of the lead over sets.",
        left=(0, 1, 3),
    )


def _standings(comparison: Comparison, without: Sequence[str] = ()) -> Table:
    """Methods by their rank in AUC, and below them those without a result."""
    head = (
        "method",
        *METRICS,
        *(f"rank in {metric}" for metric in METRICS),
        *(f"best in {metric}" for metric in METRICS),
        "fit (s)",
    )
    rows = [
        [
            method,
            *(say_mean(comparison.mean(metric, method)) for metric in METRICS),
            *(f"{comparison.ranks[metric][method]:.2f}" for metric in METRICS),
            *(str(comparison.wins(metric, method)) for metric in METRICS),
            f"{comparison.seconds[method]:.2f}",
        ]
        for method in comparison.ranks["AUC"]
    ]
    rows += [[method, *[NONE] * (len(head) - 1)] for method in without]
    notes = [_STANDINGS_NOTE, *(_test_note(comparison, metric) for metric in METRICS)]
    return Table(_title(comparison), head, rows, note=" ".join(filter(None, notes)))


def _title(comparison: Comparison) -> str:
    return f"{comparison.budget} labelled: {comparison.say_scope()} each"


def _test_note(comparison: Comparison, metric: str) -> str:
    """Friedman's test, and which methods are not told apart from the best."""
    if len(comparison.methods) < 3 or len(comparison.sets) < 2:
        return ""
    p = friedmanchisquare(*comparison.values[metric].values()).pvalue
    cd = critical_difference(len(comparison.methods), len(comparison.sets))
    (best, least), *others = comparison.ranks[metric].items()
    near = [name for name, rank in others if rank - least <= cd]
    beside = f"not told apart from {best}: {', '.join(near) or 'none'}"
    chance = f"p = {p:.1g}" if p >= 1e-4 else "p < 0.0001"
    return f"{metric}: Friedman's test has {chance}, the critical difference is {cd:.2f}; {beside}."


def _recent_table(records: FieldRecords) -> Table:
    """AutoRAD beside each recent peer, and beside extra trees, on the trials that both have."""
    rows = records.succeeded(MAIN_BUDGET)
    names = [name for name, method in METHODS.items() if method.is_peer and not method.other_trials]
    recent = rows.filter(pl.col("method").is_in(names))
    if MAIN_BUDGET not in records.budgets or not len(recent):
        return Table("", (), [])
    most = recent["trial"].n_unique()
    first = rows.filter(pl.col("trial") < most)
    lines = []
    for name in set(first["method"]) & {*names, "ExtraTrees"}:
        pair = Comparison(first, [HEADLINE, name])
        line = [name]
        for metric in METRICS:
            ahead = pair.lead(metric).over
            line += [f"{pair.mean(metric, name):.4f}", f"{ahead.mean:+.4f} ({ahead.se or 0:.4f})"]
        lines.append([*line, counted(pair.lead("AUC").n_ahead, "set")])
    lines.sort(key=lambda line: -float(line[1]))
    ours = Comparison(first, [HEADLINE])
    means = [f"{ours.mean(metric, HEADLINE):.4f}" for metric in METRICS]
    return Table(
        f"AutoRAD beside recent methods, {MAIN_BUDGET} labelled, the first {most} trials",
        ("method", "AUC", "lead", "average precision", "lead", "AutoRAD ahead in AUC"),
        lines,
        [[HEADLINE, means[0], "", means[1], "", ""]],
        note="In parentheses stands the SE of AutoRAD's lead over sets.",
    )


def _set_table(comparison: Comparison, metric: str) -> Table:
    """Means on each set, the largest pointed at."""
    values, methods = comparison.values[metric], list(comparison.ranks[metric])
    columns = zip(*(values[method].tolist() for method in methods), strict=True)
    rows = [
        [name, *(f"{'> ' * (mean == max(means))}{say_mean(mean)}" for mean in means)]
        for name, means in zip(comparison.sets, columns, strict=True)
    ]
    foot = ["mean", *(say_mean(comparison.mean(metric, method)) for method in methods)]
    title = f"{metric} on each set, {_title(comparison)}"
    return Table(title, ("dataset", *methods), rows, [foot])


def _lead_figure(records: FieldRecords) -> Any:
    """AutoRAD's mean less that of the best peer against the budget, with one SE over sets."""
    shown = {
        metric: {budget: leads[metric] for budget, leads in records.leads.items()}
        for metric in METRICS
    }
    figure, drawn = panels(shown, sharey=False)
    for ax, leads in drawn:
        means = [each.over.mean for each in leads.values()]
        errors = [each.over.se or 0.0 for each in leads.values()]
        ax.axhline(0, color=GREY, linewidth=0.7)
        ax.errorbar(range(len(leads)), means, errors, color=BLUE, marker="o", elinewidth=0.8)
        for place, each in enumerate(leads.values()):
            at, offset = (place, each.over.mean), (3, -9 if place % 2 else 4)
            ax.annotate(each.peer, at, offset, textcoords="offset points", fontsize=6)
        ax.set_xticks(range(len(leads)), [budget.replace(" a", "\na") for budget in leads])
        ax.set_xlabel("labelled; beside the dots the best peer")
        ax.margins(x=0.25)
    drawn[0][0].set_ylabel("AutoRAD less the best peer")
    return figure
