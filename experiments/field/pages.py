"""The pages of the field: targets, standings, each set by itself, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from experiments.canvas import BLUE, GREY, ORANGE, blank_figure, draw, panels, write_svgs
from experiments.datasets import PAPER_SETS
from experiments.field.cells import METHODS, ROOT
from experiments.field.ranking import (
    HEADLINE,
    METRICS,
    Comparison,
    FieldRecords,
    comparisons,
    lead,
    lead_over,
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
_LINE, _BAR = 0.16, 0.07  # inches between names, and between bars of groups


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write tables/field.md and figures/field-*.svg."""
    records = FieldRecords(frame)
    write_text(folder / "tables" / "field.md", markdown_page(records))
    write_svgs(draw_figures(records), folder / "figures")


def markdown_page(records: FieldRecords) -> str:
    """Return the page with all tables."""
    parts = [f"# {_TITLE}", *_opening(records)]
    compared = [c for budget in records.budgets for c in comparisons(records, budget)]
    each_set = [_set_table(c, metric) for c in compared for metric in METRICS]
    for table in (*_main_tables(records), *each_set):
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
        f"Versions: {'; or '.join(seen('versions')) or 'not recorded'}.",
        f"Code: {', '.join(seen('commit')) or 'not recorded'}.",
    ]
    if peers := seen("peer"):
        lines.append(f"Compared with: {', '.join(peers)}.")
    if len(seen("versions")) > 1:
        lines.append("**Careful: these records were made with more than one set of versions.**")
    return [*lines, _LEGEND]


def _closing(records: FieldRecords) -> list[str]:
    """What was not run, what failed and what warned; said also when there is nothing to say."""
    run = {row["dataset"] for row in records.rows}
    missing = {
        row["dataset"]: row["reason"]
        for row in records.not_run
        if row.get("dataset") and row["dataset"] not in run
    }
    lines = [_listed(name, missing[name]) for name in sorted(missing, key=PAPER_SETS.index)]
    absent = [
        _listed(name, reason)
        for name, reason in sorted(records.absent.items())
        if name not in {row["method"] for row in records.rows}
    ]
    unfinished = [
        f"- {name}: {counted(n, 'cell')} to go" for name, n in sorted(records.unfinished.items())
    ]
    skipped = [(row, row["reason"]) for row in records.rows if row["status"] == SKIPPED]
    failed = [(row, row["reason"]) for row in records.rows if row["status"] == FAILED]
    warned = [(row, text) for row in records.rows for text in row.get("warnings") or ()]
    parts = ["## Not run", "\n".join(lines) or "Every dataset of the paper was run."]
    parts += ["## Methods not installed", "\n".join(absent)] if absent else []
    parts += ["## Not finished, and not compared", "\n".join(unfinished)] if unfinished else []
    parts += ["## Not applicable", remark_table(skipped, PAPER_SETS)] if skipped else []
    parts += ["## Failed trials", remark_table(failed, PAPER_SETS) or "No trial failed."]
    return [*parts, "## Warnings", remark_table(warned, PAPER_SETS) or "No trial gave a warning."]


def _listed(name: str, reason: str) -> str:
    return f"- {name}: {markdown_safe(shorten(reason))}"


# --- tables ------------------------------------------------------------------------------


def _main_tables(records: FieldRecords) -> list[Table]:
    standings = [
        _standings(records, comparison, is_first=place == 0)
        for budget in records.budgets
        for place, comparison in enumerate(comparisons(records, budget))
    ]
    tables = [_target_table(records), _lead_table(records), *standings, _recent_table(records)]
    return [table for table in tables if table.rows]


def _target_table(records: FieldRecords) -> Table:
    return Table(
        "Targets",
        ("AutoRAD has", "result", "met"),
        [[target.text, target.result, target.verdict] for target in targets(records)],
        note="Means are over sets; a rank is compared with that of every other method, ours too.",
        left=(0, 1, 2),
    )


def _lead_table(records: FieldRecords) -> Table:
    rows = []
    for budget in records.budgets:
        leads = [each for metric in METRICS if (each := lead(records, budget, metric))]
        if leads:
            pairs = [
                (f"{each.peer}, {counted(each.n_trials, 'trial')}", say_difference(each.over_sets))
                for each in leads
            ]
            rows.append([budget, *(text for pair in pairs for text in pair)])
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


def _standings(records: FieldRecords, comparison: Comparison, is_first: bool) -> Table:
    """Methods by their rank in AUC; below the first of a budget, those without a result."""
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
    if is_first:
        missing = records.without_result(comparison.budget)
        rows += [[method, *[NONE] * (len(head) - 1)] for method in missing]
    return Table(_title(comparison), head, rows, note=_standings_note(comparison))


def _title(comparison: Comparison) -> str:
    return f"{comparison.budget} labelled: {comparison.say_scope()} each"


def _standings_note(comparison: Comparison) -> str:
    parts = [
        "Means and mean ranks over the sets, of means over the trials that all methods have; "
        '"best" counts sets; the time is the median of all fits.'
    ]
    if comparison.left_out:
        parts.append(f"Not all methods have {', '.join(comparison.left_out)}.")
    parts += [_test_note(comparison, metric) for metric in METRICS]
    return " ".join(filter(None, parts))


def _test_note(comparison: Comparison, metric: str) -> str:
    """Friedman's test, and which methods are not told apart from the best."""
    p = comparison.friedman(metric)
    if p is None:
        return ""
    names = list(comparison.ranks[metric])
    first, *_ = comparison.groups(metric) or [(0, 0)]
    near = names[1 : first[1] + 1] if first[0] == 0 else []
    beside = f"not told apart from {names[0]}: {', '.join(near) or 'none'}"
    chance = f"p = {p:.1g}" if p >= 1e-4 else "p < 0.0001"
    cd = comparison.critical_difference
    return f"{metric}: Friedman's test has {chance}, the critical difference is {cd:.2f}; {beside}."


def _recent_table(records: FieldRecords) -> Table:
    """AutoRAD beside each recent peer, and beside extra trees, on the trials that both have."""
    budget = "5 %"
    trials = records.trials(budget)
    recent = [
        name
        for name, method in METHODS.items()
        if method.is_peer and not method.other_trials and name in trials
    ]
    if HEADLINE not in trials or not recent:
        return Table("", (), [])
    most = max(len(rows) for name in recent for rows in trials[name].values())
    first = {
        name: {s: {t: row for t, row in rows.items() if t < most} for s, rows in sets.items()}
        for name, sets in trials.items()
    }
    beside = [*recent, *(name for name in ("ExtraTrees",) if name in trials)]
    rows = []
    for name in beside:
        pair = Comparison.of(budget, {each: first[each] for each in (HEADLINE, name)})
        leads = {metric: lead_over(first, name, metric) for metric in METRICS}
        values = [
            text
            for metric in METRICS
            for text in (
                f"{pair.mean(metric, name):.4f}",
                f"{leads[metric].over_sets.mean:+.4f} ({leads[metric].over_sets.se or 0:.4f})",
            )
        ]
        rows.append([name, *values, counted(leads["AUC"].n_ahead, "set")])
    rows.sort(key=lambda row: -float(row[1]))
    whole = Comparison.of(budget, {HEADLINE: first[HEADLINE]})
    means = [f"{whole.mean(metric, HEADLINE):.4f}" for metric in METRICS]
    return Table(
        f"AutoRAD beside recent methods, {budget} labelled, the first {counted(most, 'trial')}",
        ("method", "AUC", "lead", "average precision", "lead", "AutoRAD ahead in AUC"),
        rows,
        [[HEADLINE, means[0], "", means[1], "", ""]],
        note="In parentheses stands the SE of AutoRAD's lead over sets.",
    )


def _set_table(comparison: Comparison, metric: str) -> Table:
    """Means on each set, the largest pointed at."""
    values, methods = comparison.values[metric], list(comparison.ranks[metric])
    rows = []
    for i, name in enumerate(comparison.sets):
        means = [values[method][i] for method in methods]
        rows.append([name, *(f"{'> ' * (mean == max(means))}{say_mean(mean)}" for mean in means)])
    foot = ["mean", *(say_mean(comparison.mean(metric, method)) for method in methods)]
    title = f"{metric} on each set, {_title(comparison)}"
    return Table(title, ("dataset", *methods), rows, [foot])


# --- figures -----------------------------------------------------------------------------


def draw_figures(records: FieldRecords) -> dict[str, Any]:
    """Return the matplotlib figures by name; one without anything to show is left out."""
    makers: dict[str, Callable[[FieldRecords], Any]] = {"field-lead": _lead_figure}
    for budget in records.budgets:
        place = budget.replace(" %", "pct").replace(" ", "-")
        makers[f"field-ranks-{place}"] = partial(_rank_figure, budget=budget)
    return draw(makers, records)


def _rank_figure(records: FieldRecords, budget: str) -> Any | None:
    """Mean ranks of all methods, a panel for each metric; bars join those not told apart."""
    compared = [c for c in comparisons(records, budget) if len(c.methods) > 2 and len(c.sets) > 1]
    if not compared:
        return None
    comparison = compared[0]
    rows = (len(comparison.methods) + 1) // 2
    bars = max(len(comparison.groups(metric)) for metric in METRICS)
    height = 0.75 + rows * _LINE + bars * _BAR
    figure = blank_figure(6.4, height * len(METRICS))
    for ax, metric in zip(figure.subplots(len(METRICS), 1), METRICS, strict=True):
        _draw_ranks(ax, comparison, metric)
    return figure


def _draw_ranks(ax: Any, comparison: Comparison, metric: str) -> None:
    """The axis at the top, bars of groups below it, then names: the better half on the left."""
    ranks, k = comparison.ranks[metric], len(comparison.methods)
    bars = comparison.groups(metric)
    top = -0.14 - _BAR * len(bars)
    half = (k + 1) // 2
    for place, (method, rank) in enumerate(ranks.items()):
        left = place < half
        y = top - _LINE * (place if left else k - 1 - place)
        edge = 1 - 0.02 * k if left else k + 0.02 * k
        colour = GREY if METHODS[method].is_peer else BLUE
        ax.plot([rank, rank, edge], [0, y, y], color=colour, linewidth=0.7, clip_on=False)
        text = f"{method}  {rank:.2f}" if left else f"{rank:.2f}  {method}"
        side = "right" if left else "left"
        ax.text(edge, y, f" {text} ", ha=side, va="center", color=colour, fontsize=7)
    values = list(ranks.values())
    for row, (first, last) in enumerate(bars):
        y = -0.1 - _BAR * row
        ends = [values[first] - 0.01 * k, values[last] + 0.01 * k]
        ax.plot(ends, [y, y], color="black", linewidth=2.2, solid_capstyle="butt")
    _draw_axis(ax, k, comparison.critical_difference)
    ax.set(xlim=(1 - 0.35 * k, k + 0.35 * k), ylim=(top - _LINE * half, 0.35))
    ax.set_title(f"{metric}, {comparison.budget} labelled, {len(comparison.sets)} sets")


def _draw_axis(ax: Any, k: int, cd: float) -> None:
    ax.set_axis_off()
    ax.plot([1, k], [0, 0], color="black", linewidth=0.8)
    for rank in range(1, k + 1):
        ax.plot([rank, rank], [0, 0.04], color="black", linewidth=0.8)
        ax.text(rank, 0.06, str(rank), ha="center", va="bottom", fontsize=6.5)
    ax.plot([1, 1 + cd], [0.24, 0.24], color=ORANGE, linewidth=1.6)
    ax.text(1 + cd, 0.24, f"  CD {cd:.2f}", va="center", fontsize=7, color=ORANGE)


def _lead_figure(records: FieldRecords) -> Any | None:
    """AutoRAD's mean less that of the best peer against the budget, with one SE over sets."""
    shown: dict[str, list[tuple[str, Any]]] = {
        metric: [
            (budget, each) for budget in records.budgets if (each := lead(records, budget, metric))
        ]
        for metric in METRICS
    }
    if len(shown["AUC"]) < 2:
        return None
    figure, drawn = panels(shown, sharey=False)
    for ax, points in drawn:
        means = [each.over_sets.mean for _, each in points]
        errors = [each.over_sets.se or 0.0 for _, each in points]
        ax.axhline(0, color=GREY, linewidth=0.7)
        ax.errorbar(range(len(points)), means, errors, color=BLUE, marker="o", elinewidth=0.8)
        for place, (_, each) in enumerate(points):
            at, offset = (place, each.over_sets.mean), (3, -9 if place % 2 else 4)
            ax.annotate(each.peer, at, offset, textcoords="offset points", fontsize=6)
        ax.set_xticks(range(len(points)), [budget.replace(" a", "\na") for budget, _ in points])
        ax.set_xlabel("labelled; beside the dots the best peer")
        ax.margins(x=0.25)
    drawn[0][0].set_ylabel("AutoRAD less the best peer")
    return figure
