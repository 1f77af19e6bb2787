"""Ours and the published in the layout of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from riskad.bench.columns import (
    DATASET_HEADS,
    SWEPT,
    Find,
    Maker,
    finder,
    say_dataset,
    say_value,
    shared_means,
    sweep_finder,
)
from riskad.bench.comparisons import sweep_values
from riskad.bench.formats import Table
from riskad.bench.summary import (
    LIKE_PUBLISHED,
    LOSSES,
    CellSummary,
    Summary,
    by_rule,
    counted,
    loss_name,
)
from riskad.bench.tables import svm_table, tables_of
from riskad.bench.words import NONE, say_mean, say_own, say_own_mean, say_printed, say_published

__all__ = ["paper_tables"]


def paper_tables(summary: Summary, experiment: str) -> list[Table]:
    """The same, with ours and the published in the layout of the paper's tables first.

    An experiment that the paper does not have keeps its tables.
    """
    makers: dict[str, Maker] = {"main": _paper_main, "prior": _paper_sweeps, "a": _paper_sweeps}
    first = makers[experiment](summary, experiment) if experiment in makers else []
    rest = tables_of(summary, experiment)
    if first:
        rest = [table for table in rest if table.head[0] not in DATASET_HEADS]
        rest += [svm_table(summary)] if experiment == "main" else []
    return [table for table in (*first, *rest) if table.rows]


_BELOW = "In italics below: as published."


def _paper_main(summary: Summary, experiment: str) -> list[Table]:
    """Tables 1 and 3 in one, once for each rule for lambda."""
    losses = _paper_losses(summary, experiment)
    rest = [
        *(finder(summary, experiment, "pu", loss=loss) for loss in losses),
        finder(summary, experiment, "ocsvm"),
        finder(summary, experiment, "semi_ocsvm", **LIKE_PUBLISHED),
    ]
    names = [loss_name(loss) for loss in losses]
    head = ("dataset", *names, *names, "OC-SVM", "semi-OC-SVM")
    groups = (("", 1), ("rAD", len(names)), ("PU", len(names)), ("", 2))
    tables = []
    for rule in summary.values(experiment, "lam"):
        own = [finder(summary, experiment, "rad", loss=loss, lam=rule) for loss in losses]
        title = f"rAD with {by_rule(rule)}, PU and one-class SVMs: mean (SE x 100). {_BELOW}"
        tables.append(
            _paired_table(summary, experiment, title, head, groups, [*own, *rest], _say_with_errors)
        )
    return tables


def _paper_sweeps(summary: Summary, experiment: str) -> list[Table]:
    """Tables 4 and 5, once for each rule for lambda."""
    name = SWEPT[experiment]
    values = {
        loss: sweep_values(summary, experiment, loss) for loss in _paper_losses(summary, experiment)
    }
    places = [(loss, value) for loss in values for value in values[loss]]
    head = ("dataset", *(say_value(experiment, value) for _, value in places))
    groups = [("", 1), *((f"{loss_name(loss)} / {name}", len(values[loss])) for loss in values)]
    tables = []
    for rule in summary.values(experiment, "lam"):
        finders = [sweep_finder(summary, experiment, loss, rule, value) for loss, value in places]
        title = f"AUC means of rAD for different {name}, {by_rule(rule)}. {_BELOW}"
        tables.append(_paired_table(summary, experiment, title, head, groups, finders, _say_means))
    return tables


def _paper_losses(summary: Summary, experiment: str) -> list[str]:
    return [loss for loss in summary.values(experiment, "loss") if loss in LOSSES]


def _paired_table(
    summary: Summary,
    experiment: str,
    title: str,
    head: Sequence[str],
    groups: Sequence[tuple[str, int]],
    finders: Sequence[Find],
    say: Callable[[CellSummary, int], tuple[str, str]],
) -> Table:
    """Two rows for each dataset, as in the paper its name and its (d, n, pi_n): ours, published."""
    datasets = [name for name in summary.datasets(experiment) if any(f(name) for f in finders)]
    trials, rows = summary.n_trials(experiment), []
    for dataset in datasets:
        name, _, facts = say_dataset(dataset).partition(" ")
        cells = [find(dataset) for find in finders]
        said = [say(cell, trials) if cell else (NONE, NONE) for cell in cells]
        rows += [[name, *(ours for ours, _ in said)], [facts, *(theirs for _, theirs in said)]]
    some = any("[" in text for row in rows for text in row)
    return Table(
        title,
        head,
        rows,
        _paired_means(datasets, finders),
        groups=[(name, width) for name, width in groups if width],
        note="[n]: only n trials succeeded." if some else "",
        pairs=True,
    )


def _paired_means(datasets: Sequence[str], finders: Sequence[Find]) -> list[list[str]]:
    cells = [[find(dataset) for dataset in datasets] for find in finders]
    n_sets, means = shared_means(
        [[(cell and cell.both) or () for cell in column] for column in cells]
    )
    if not n_sets:
        return []
    ours, theirs = ([say_mean(mean[i]) if mean else "" for mean in means] for i in (0, 1))
    return [["mean", *ours], [f"of {counted(n_sets, 'set')}", *theirs]]


def _say_with_errors(cell: CellSummary, trials: int) -> tuple[str, str]:
    ours, theirs = say_own(cell, trials), say_published(cell.published)
    return ours.replace(" ", ""), theirs.replace(" ", "")


def _say_means(cell: CellSummary, trials: int) -> tuple[str, str]:
    return say_own_mean(cell, trials).replace(" ", ""), say_printed(cell.published)
