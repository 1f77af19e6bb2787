"""The tables of the benchmark against the field: targets, standings, and each set by itself."""

from __future__ import annotations

from collections.abc import Sequence

from riskad.bench.field import (
    METRICS,
    Comparison,
    budgets,
    comparisons,
    groups,
    lead,
    say_budget,
    say_trials,
    targets,
    without_result,
)
from riskad.bench.formats import Table
from riskad.bench.summary import Summary, counted
from riskad.bench.words import NONE, say_difference, say_mean

__all__ = ["field_paper_tables", "field_tables"]


def field_tables(summary: Summary, experiment: str) -> list[Table]:
    """All tables, in the order in which they are read."""
    compared = _all_comparisons(summary)
    each_set = [_set_table(c, metric) for c in compared for metric in METRICS]
    return [*field_paper_tables(summary, experiment), *each_set]


def field_paper_tables(summary: Summary, experiment: str) -> list[Table]:
    """The same without the tables over sets, which are too wide for a page."""
    compared = _all_comparisons(summary)
    standings = [_standings(summary, comparison) for comparison in compared]
    tables = [_target_table(summary), _lead_table(summary), *standings]
    return [table for table in tables if table.rows]


def _all_comparisons(summary: Summary) -> list[Comparison]:
    return [c for budget in budgets(summary) for c in comparisons(summary, budget)]


def _target_table(summary: Summary) -> Table:
    return Table(
        "Targets",
        ("AutoRAD has", "found", "met"),
        [[target.text, target.found, target.verdict] for target in targets(summary)],
        note="Means are over sets; a rank is compared with that of every other method, ours too.",
        left=(0, 1, 2),
        broken=(0, 1),
    )


def _lead_table(summary: Summary) -> Table:
    rows = []
    for budget in budgets(summary):
        leads = [lead(summary, budget, metric) for metric in METRICS]
        said = [
            text
            for one in leads
            if one
            for text in (
                f"{one.peer}, {counted(one.n_trials, 'trial')}",
                say_difference(one.over_sets),
            )
        ]
        if said:
            rows.append([say_budget(budget), *said])
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


# --- standings ---------------------------------------------------------------------------


def _standings(summary: Summary, comparison: Comparison) -> Table:
    """Methods by their rank in AUC; below, those without a result."""
    head = (
        "method",
        *METRICS,
        *(f"rank in {metric}" for metric in METRICS),
        *(f"best in {metric}" for metric in METRICS),
        "fit (s)",
    )
    rows = [_standing(comparison, method) for method in comparison.ranks[METRICS[0]]]
    whole = comparisons(summary, comparison.budget)[0]
    missing = without_result(summary, comparison.budget) if comparison == whole else []
    rows += [[method, *[NONE] * (len(head) - 1)] for method in missing]
    return Table(_title(comparison), head, rows, note=_standings_note(comparison))


def _standing(comparison: Comparison, method: str) -> list[str]:
    return [
        method,
        *(say_mean(comparison.mean(metric, method)) for metric in METRICS),
        *(f"{comparison.ranks[metric][method]:.2f}" for metric in METRICS),
        *(str(comparison.wins(metric, method)) for metric in METRICS),
        f"{comparison.seconds[method]:.2f}",
    ]


def _title(comparison: Comparison) -> str:
    return (
        f"{say_budget(comparison.budget)} labelled: {counted(len(comparison.methods), 'method')}, "
        f"{counted(len(comparison.sets), 'set')}, {say_trials(comparison)} each"
    )


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
    ranks, cd = comparison.ranks[metric], comparison.critical_difference
    first, *_ = groups(list(ranks.values()), cd) or [(0, 0)]
    near = list(ranks)[1 : first[1] + 1] if first[0] == 0 else []
    beside = f"not told apart from {next(iter(ranks))}: {', '.join(near) or 'none'}"
    said = f"p = {p:.1g}" if p >= 1e-4 else "p < 0.0001"
    return f"{metric}: Friedman's test has {said}, the critical difference is {cd:.2f}; {beside}."


# --- each set ----------------------------------------------------------------------------


def _set_table(comparison: Comparison, metric: str) -> Table:
    values, methods = comparison.values[metric], list(comparison.ranks[metric])
    rows = [
        [name, *_marked([values[method][i] for method in methods])]
        for i, name in enumerate(comparison.sets)
    ]
    means = [say_mean(comparison.mean(metric, method)) for method in methods]
    title = f"{metric} on each set, {_title(comparison)}"
    return Table(title, ("dataset", *methods), rows, [["mean", *means]])


def _marked(values: Sequence[float]) -> list[str]:
    """Means with three digits; the largest is pointed at."""
    return [f"> {say_mean(value)}" if value == max(values) else say_mean(value) for value in values]
