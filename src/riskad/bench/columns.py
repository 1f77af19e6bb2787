"""Columns of tables over datasets: where their cells are, how to say one, what to average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from riskad.bench.comparisons import Gap, Overall, sweep_cell
from riskad.bench.formats import Table
from riskad.bench.paper import Published, paper_set
from riskad.bench.summary import (
    DEFAULTS,
    CellSummary,
    Summary,
    TrialMean,
    counted,
    loss_name,
    method_name,
    setting_name,
)
from riskad.bench.words import (
    NONE,
    say_mean,
    say_own,
    say_own_mean,
    say_printed,
    say_published,
    say_setting,
    say_signed,
)

__all__ = [
    "DATASET_HEADS",
    "STROKE",
    "SWEPT",
    "Column",
    "Find",
    "Maker",
    "both_column",
    "dataset_table",
    "difference_column",
    "finder",
    "mean_of",
    "means_column",
    "own_column",
    "published_column",
    "say_dataset",
    "say_gap",
    "say_value",
    "say_variant",
    "shared_means",
    "sweep_finder",
]

Find: TypeAlias = Callable[[str], CellSummary | None]  # the cell of a dataset
Maker: TypeAlias = Callable[[Summary, str], list[Table]]

SWEPT = {"prior": "pi_p^e", "a": "a"}
STROKE = "Ours / published."
DATASET_HEADS = ("dataset", "dataset (d, n, pi_n)")  # of sets of one's own, of the paper's


@dataclass(frozen=True)
class Column:
    """A column over datasets: where its cells are, how to say one, what to average and count.

    `means` are the numbers of a cell that go into the row of means; none if one is missing.
    """

    head: str
    find: Find
    say: Callable[[CellSummary], str]
    means: Callable[[CellSummary], tuple[float, ...]] = lambda cell: ()
    counts: bool = False

    def text(self, dataset: str) -> str:
        """What the column says of a dataset."""
        cell = self.find(dataset)
        return self.say(cell) if cell else NONE

    def numbers(self, dataset: str) -> tuple[float, ...]:
        """What goes into the row of means."""
        cell = self.find(dataset)
        return self.means(cell) if cell else ()


def dataset_table(
    summary: Summary, experiment: str, title: str, columns: Sequence[Column], note: str = ""
) -> Table:
    """One row for each dataset that has a cell in some column, then the mean row and counts."""
    datasets = [
        dataset
        for dataset in summary.datasets(experiment)
        if any(column.find(dataset) for column in columns)
    ]
    head = (DATASET_HEADS[any(map(paper_set, datasets))], *(column.head for column in columns))
    rows = [
        [say_dataset(dataset), *(column.text(dataset) for column in columns)]
        for dataset in datasets
    ]
    foot = [*_mean_rows(datasets, columns), *_count_rows(datasets, columns)]
    return Table(title, head, rows, foot, note=note)


def _mean_rows(datasets: Sequence[str], columns: Sequence[Column]) -> list[list[str]]:
    """The row of means, if there is a set that it can be over."""
    numbers = [[column.numbers(dataset) for dataset in datasets] for column in columns]
    n_sets, means = shared_means(numbers)
    if not n_sets:
        return []
    texts = [" / ".join(map(say_mean, mean)) for mean in means]
    return [[f"mean of {counted(n_sets, 'set')}", *texts]]


def shared_means(
    numbers: Sequence[Sequence[tuple[float, ...]]],
) -> tuple[int, list[tuple[float, ...]]]:
    """Means of columns over the sets on which every column has its numbers, if it has any at all.

    So, if one column is of published numbers, only the paper's sets count. Returns how many sets
    those are, too.

    >>> shared_means([[(0.5,), (0.75,)], [(), (1.0,)], [(), ()]])
    (1, [(0.75,), (1.0,), ()])
    """
    averaged = [column for column in numbers if any(column)]
    rows = [i for i in range(len(averaged[0])) if all(c[i] for c in averaged)] if averaged else []
    parts = [zip(*(column[i] for i in rows), strict=True) for column in numbers]
    return len(rows), [tuple(map(fmean, part)) for part in parts]


def _count_rows(datasets: Sequence[str], columns: Sequence[Column]) -> list[list[str]]:
    """How many cells of a column reach the published mean, and are within two joint errors."""
    questions: dict[str, Callable[[CellSummary], bool | None]] = {
        "reach published - 2 SE": lambda cell: cell.reaches,
        "within 2 joint SE": lambda cell: cell.within,
        "the same, rounding allowed for": lambda cell: cell.within_rounded,
    }
    rows = []
    for name, ask in questions.items():
        row = [name]
        for column in columns:
            cells = map(column.find, datasets) if column.counts else ()
            answers = [answer for cell in cells if cell and (answer := ask(cell)) is not None]
            row.append(f"{sum(answers)} of {len(answers)}" if answers else "")
        if any(row[1:]):
            rows.append(row)
    return rows


def finder(summary: Summary, experiment: str, method: str, **wanted: Any) -> Find:
    """Look for cells of a method with these settings."""
    return lambda dataset: summary.cell(experiment, dataset, method, **wanted)


def sweep_finder(
    summary: Summary, experiment: str, loss: str, rule: object, value: float | str
) -> Find:
    """Look for cells at one value of the setting that an experiment varies."""
    return lambda dataset: sweep_cell(summary, experiment, dataset, loss, rule, value)


def own_column(head: str, find: Find, trials: int) -> Column:
    """Our means with their standard errors."""
    return Column(
        head,
        find,
        lambda cell: say_own(cell, trials),
        lambda cell: mean_of(cell.auc),
        counts=True,
    )


def both_column(head: str, find: Find, trials: int) -> Column:
    """Our means and the published ones, with their standard errors."""

    def say(cell: CellSummary) -> str:
        return f"{say_own(cell, trials)} / {say_published(cell.published)}"

    return Column(head, find, say, lambda cell: cell.both or (), counts=True)


def means_column(head: str, find: Find, trials: int) -> Column:
    """Means without standard errors, as in Tables 4 and 5."""

    def say(cell: CellSummary) -> str:
        return f"{say_own_mean(cell, trials)} / {say_printed(cell.published)}"

    return Column(head, find, say, lambda cell: cell.both or (), counts=True)


def published_column(head: str, *finders: Find) -> Column:
    """The published number, which any of several cells of a row can give."""
    return Column(
        head,
        lambda dataset: next(filter(None, (find(dataset) for find in finders)), None),
        lambda cell: say_published(cell.published),
        lambda cell: mean_of(cell.published),
    )


def difference_column(find: Find, head: str = "difference") -> Column:
    """The difference from the published mean in joint standard errors."""
    return Column(head, find, lambda cell: say_signed(cell.difference_in_se, 1))


def mean_of(value: TrialMean | Published | None) -> tuple[float, ...]:
    """The mean as `Column.means` wants it."""
    return (value.mean,) if value else ()


# --- numbers as text ---------------------------------------------------------------------


def say_dataset(name: str) -> str:
    """The name, for a set of the paper with (d, n, pi_n)."""
    facts = paper_set(name)
    return f"{name} ({facts.d}, {facts.n}, {facts.pi_n:.2f})" if facts else name


def say_gap(gap: Gap | None) -> str:
    """Our difference of AUC and the published one."""
    return f"{say_signed(gap.ours, 3)} / {say_signed(gap.published, 3)}" if gap else NONE


def say_value(experiment: str, value: object) -> str:
    """A value of the setting that an experiment varies; its default is that of "main"."""
    default = " (main)" if value == DEFAULTS[experiment] else ""
    return say_setting(experiment, value) + default


def say_variant(entry: Overall) -> str:
    """A method and its settings in a line; a loss or a kernel needs no name."""
    parts = []
    for name, value in entry.settings.items():
        said = loss_name(str(value)) if name == "loss" else say_setting(name, value)
        parts.append(said if name in ("loss", "kernel") else f"{setting_name(name)} {said}")
    return ", ".join([method_name(entry.method), *parts])
