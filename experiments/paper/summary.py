"""From records to numbers: means over trials, and how they stand beside the published ones.

A cell is what all trials of one method with one setting on one dataset have in common. Its mean
AUC m has the standard error s = sd / sqrt(n) over n trials, sd with n - 1. Beside a published mean
m' with standard error s' stands

    (m - m') / sqrt(s^2 + s'^2),

the difference in joint standard errors, and whether m >= m' - 2 s' ("reaches"). Where no s' is
published, the first has s alone, and the second s in its place.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from experiments.evaluation import TrialMean
from experiments.paper.published import PAPER_FACTS, Published, published
from experiments.records import FAILED, NOT_RUN, OK
from experiments.runner import Cell
from experiments.tables import (
    Table,
    counted,
    markdown_safe,
    markdown_table,
    remark_table,
    say_estimate,
    say_mean,
    say_signed,
    shorten,
    write_text,
)

# How the tables and figures write them.
LOSS_NAMES = {
    "squared": "square",
    "hinge": "hinge",
    "sigmoid": "sigmoid",
    "logistic": "logistic",
    "modified_huber": "m-Huber",
}
METHOD_NAMES = {
    "rad": "rAD",
    "pu": "PU",
    "ocsvm": "OC-SVM",
    "semi_ocsvm": "semi-OC-SVM",
    "sad": "Deep SAD",
    "nnpu": "nnPU",
}
SETTINGS = ("loss", "lam", "a", "prior", "kernel", "unlabelled", "anomaly_rate", "budget")
"""What tells cells of a method apart."""

FEW = "[n] says that n trials succeeded where fewer did than elsewhere."
ROUNDED = (
    "The paper prints most means with two digits: rounding alone can be several of the smallest SE."
)
LEGEND = (
    f'Cells are mean AUC (SE x 100) over trials; {FEW} "published" is the paper\'s number. A '
    f'"difference" is (ours - published) / sqrt(SE^2 + published SE^2). {ROUNDED}'
)
_PRIORS = {"true": "1 - pi_n", "flipped": "pi_n"}


@dataclass(frozen=True)
class CellSummary:
    """All trials of one method with one setting on one dataset, beside the published number.

    `aucs` has the AUC of each trial, to compare cells trial by trial; `roc` the mean true positive
    rates, where they were recorded.
    """

    dataset: str
    method: str
    settings: Mapping[str, Any]
    n_trials: int
    auc: TrialMean
    average_precision: float
    fit_seconds: float
    published: Published | None
    aucs: Mapping[int, float]
    roc: tuple[float, ...]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> CellSummary | None:
        """Summarise the trials of a cell; None if fewer than two succeeded."""
        first, good = rows[0], [row for row in rows if row["status"] == OK]
        if len(good) < 2:
            return None
        settings = {name: first[name] for name in SETTINGS if first.get(name) is not None}
        curves = [row["roc"] for row in good if row.get("roc")]
        return cls(
            first["dataset"],
            first["method"],
            settings,
            n_trials=len(rows),
            auc=TrialMean.of([row["auc"] for row in good]),
            average_precision=fmean(row["average_precision"] for row in good),
            fit_seconds=fmean(row["fit_seconds"] for row in good),
            published=published(first["experiment"], first["dataset"], first["method"], settings),
            aucs={row["trial"]: row["auc"] for row in good},
            roc=tuple(map(fmean, zip(*curves, strict=True))),
        )

    @property
    def both(self) -> tuple[float, float]:
        """Our mean AUC and the published one."""
        return self.auc.mean, self.published.mean

    @property
    def difference(self) -> float:
        """Our mean AUC less the published one."""
        return self.auc.mean - self.published.mean

    @property
    def joint_se(self) -> float:
        """sqrt(s^2 + s'^2); s alone where s' is not published."""
        return math.hypot(self.auc.se, self.published.se or 0.0)

    @property
    def difference_in_se(self) -> float | None:
        """The difference in joint standard errors; None if there is no spread to measure by."""
        return self.difference / self.joint_se if self.joint_se else None

    @property
    def reaches(self) -> bool:
        """Whether m >= m' - 2 s', with s where no s' is published."""
        se = self.auc.se if self.published.se is None else self.published.se
        return self.auc.mean >= self.published.mean - 2 * se

    @property
    def within(self) -> bool:
        """Whether |m - m'| is at most two joint standard errors."""
        return abs(self.difference) <= 2 * self.joint_se

    @property
    def within_rounded(self) -> bool:
        """The same for the nearest mean that would be printed as m': rounding may exceed s'."""
        return abs(self.difference) <= 2 * self.joint_se + self.published.rounding

    def say(self, trials: int) -> str:
        """The mean AUC with its error, and how many trials succeeded if fewer than `trials`."""
        return say_estimate(self.auc) + few(self.auc.n, trials)


def few(n: int, trials: int) -> str:
    """In brackets, how many trials succeeded where some are missing."""
    return f" [{n}]" if n < trials else ""


def say_published(value: Published, error: bool = True) -> str:
    """A published mean with the digits that were printed and, if printed, its SE x 100."""
    digits = 2 if value.rounding == 0.005 else 3
    shown = f" ({100 * value.se:.2f})" if error and value.se is not None else ""
    return f"{value.mean:.{digits}f}{shown}"


BOTH = ("AUC", "published", "AUC - published")


def say_both(cells: Sequence[CellSummary]) -> list[str]:
    """Our mean AUC over cells, the published one, and the difference."""
    ours, theirs = map(fmean, zip(*(cell.both for cell in cells), strict=True))
    return [say_mean(ours), say_mean(theirs), say_signed(ours - theirs, 3)]


def say_setting(value: object) -> str:
    """A value of a setting; a prior in words is written as in the paper."""
    return _PRIORS.get(str(value), str(value))


def say_dataset(name: str) -> str:
    """The name with (d, n, pi_n)."""
    facts = PAPER_FACTS[name]
    return f"{name} ({facts['d']}, {facts['n']}, {facts['pi_n']:.2f})"


# --- all cells ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """What the tables and figures of one part of an experiment are made of.

    `cells` are those of datasets of which every cell was run. `not_run` says why others are not
    here; `failures` and `warnings` are tables in Markdown, blank if there were none.
    """

    experiment: str
    cells: tuple[CellSummary, ...]
    not_run: Sequence[str]
    failures: str
    warnings: str
    versions: Sequence[str]
    commits: Sequence[str]
    n_paper_sets: int

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[CellSummary]]:
        index = defaultdict(list)
        for cell in self.cells:
            index[cell.dataset, cell.method].append(cell)
        return index

    def cell(self, dataset: str, method: str, **wanted: Any) -> CellSummary:
        """The cell of a method with these settings."""
        return next(
            cell
            for cell in self._index[dataset, method]
            if all(cell.settings.get(name) == value for name, value in wanted.items())
        )

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets in the paper's order."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))

    def values(self, name: str, method: str = "rad") -> list[Any]:
        """Values that a setting of a method takes, in the order of cells."""
        return list(dict.fromkeys(c.settings[name] for c in self.cells if c.method == method))

    @cached_property
    def n_trials(self) -> int:
        """The most trials that any cell has, failed ones included."""
        return max(cell.n_trials for cell in self.cells)


def summarise(
    records: pl.DataFrame,
    part: str,
    cells: Iterable[Cell],
    among: Collection[str] | None = None,
) -> Summary:
    """Summarise the records of one part of an experiment.

    `cells` are all that the experiment has: a dataset counts when each of its cells in this part
    has two trials that succeeded and, if datasets are named, when it is `among` them.
    """
    places = dict.fromkeys(_place(c) for c in cells if c["experiment"] == part and not c["trial"])
    paper_sets = list(dict.fromkeys(dataset for dataset, *_ in places))
    trials = [
        _with_numbers(row)
        for row in records.filter(experiment=part).to_dicts()
        if row["status"] != NOT_RUN
    ]
    groups = defaultdict(list)
    for row in trials:
        groups[_place(row)].append(row)
    found = {place: CellSummary.of(groups[place]) for place in places if place in groups}
    short = {dataset for dataset, *rest in places if not found.get((dataset, *rest))}
    datasets = [d for d in paper_sets if d not in short and (among is None or d in among)]
    absent = records.filter(status=NOT_RUN).to_dicts()
    missing = {row["dataset"]: row["reason"] for row in absent}
    reasons = {name: missing[name] for name in paper_sets if name in short and name in missing}
    not_run = [f"- {name}: {markdown_safe(shorten(text))}" for name, text in reasons.items()]
    if partly := [name for name in paper_sets if name not in {*datasets, *reasons}]:
        not_run.append(f"- not all cells have two trials: {', '.join(partly)}")
    failed = [(row, row["reason"]) for row in trials if row["status"] == FAILED]
    warned = [(row, text) for row in trials for text in row.get("warnings") or ()]
    return Summary(
        part,
        cells=tuple(cell for cell in found.values() if cell and cell.dataset in datasets),
        not_run=not_run,
        failures=remark_table(failed, paper_sets, METHOD_NAMES),
        warnings=remark_table(warned, paper_sets, METHOD_NAMES),
        versions=sorted({row["versions"] for row in trials}),
        commits=sorted({row["commit"] for row in trials if row.get("commit")}),
        n_paper_sets=len(paper_sets),
    )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["dataset"], row["method"], *(row.get(name) for name in SETTINGS))


def _with_numbers(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A prior is a number or a word, so its column is text."""
    prior = row.get("prior")
    return row if prior is None or prior in _PRIORS else {**row, "prior": float(prior)}


def write_page(
    folder: Path, summary: Summary, tables: Sequence[Table], title: str, legend: str
) -> None:
    """Write FOLDER/PART.md; it depends on the records alone, not on their order or on the day."""
    trials = f"{counted(summary.n_trials, 'trial')} per cell at most (root seed 0)"
    sets = f"{len(summary.datasets)} of the {summary.n_paper_sets} datasets of the paper"
    parts = [f"# {title}", f"{trials}, on {sets}."]
    parts.append(f"Versions: {'; or '.join(summary.versions)}.")
    if summary.commits:  # older records have none
        parts.append(f"Code: {', '.join(summary.commits)}.")
    parts.append(legend)
    for table in filter(lambda table: table.rows, tables):
        parts += [f"## {table.title}", *filter(None, [table.note]), markdown_table(table)]
    parts += [
        "## Not run",
        "\n".join(summary.not_run) or "Every dataset of the paper was run.",
        "## Failed trials",
        summary.failures or "No trial failed.",
        "## Warnings",
        summary.warnings or "No trial gave a warning.",
    ]
    write_text(folder / f"{summary.experiment}.md", "\n\n".join(parts) + "\n")
