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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import polars as pl

from experiments.datasets import IMAGE_SETS, PAPER_SETS
from experiments.evaluation import TrialMean
from experiments.paper.published import PAPER_FACTS, Published, published
from experiments.records import FAILED, NOT_RUN, OK
from experiments.tables import NONE, remark_table, say_estimate, say_mean

Record = Mapping[str, Any]

# In the order of the paper, and how the tables and figures write them.
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
RULES = ("theorem", "tight", "cv", "published")
KNOWN_SETS = (*PAPER_SETS, *IMAGE_SETS)
SETTINGS = ("loss", "lam", "a", "prior", "kernel", "unlabelled", "anomaly_rate", "budget")
"""What tells cells of a method apart, in the order in which they are sorted."""

_PRIORS = {"true": "1 - pi_n", "flipped": "pi_n"}


# --- one cell ----------------------------------------------------------------------------


@dataclass(frozen=True)
class CellSummary:
    """All trials of one method with one setting on one dataset, beside the published number.

    `aucs` has the AUC of each trial, to compare cells trial by trial; `roc` the mean true positive
    rates, where they were recorded.
    """

    experiment: str
    dataset: str
    method: str
    settings: Mapping[str, Any]
    n_ok: int
    n_failed: int
    auc: TrialMean | None
    average_precision: TrialMean | None
    fit_seconds: float | None
    published: Published | None
    aucs: Mapping[int, float]
    roc: tuple[float, ...] | None

    @classmethod
    def of(cls, rows: Sequence[Record]) -> CellSummary:
        """Summarise the trials of a cell."""
        first, good = rows[0], [row for row in rows if row["status"] == OK]
        settings = {name: first[name] for name in SETTINGS if first.get(name) is not None}
        place = first["experiment"], first["dataset"], first["method"]
        curves = [row["roc"] for row in good if row.get("roc")]
        return cls(
            *place,
            settings=settings,
            n_ok=len(good),
            n_failed=len(rows) - len(good),
            auc=TrialMean.of([row["auc"] for row in good]),
            average_precision=TrialMean.of([row["average_precision"] for row in good]),
            fit_seconds=fmean(row["fit_seconds"] for row in good) if good else None,
            published=published(*place, settings),
            aucs={row["trial"]: row["auc"] for row in good},
            roc=tuple(map(fmean, zip(*curves, strict=True))) or None,
        )

    @property
    def both(self) -> tuple[float, float] | None:
        """Our mean AUC and the published one, where there are both."""
        return (self.auc.mean, self.published.mean) if self.auc and self.published else None

    @property
    def difference(self) -> float | None:
        """Our mean AUC less the published one."""
        return self.both[0] - self.both[1] if self.both else None

    @property
    def joint_se(self) -> float | None:
        """sqrt(s^2 + s'^2); s alone where s' is not published; None for fewer than two trials."""
        if self.auc is None or self.published is None or self.auc.se is None:
            return None
        return math.hypot(self.auc.se, self.published.se or 0.0)

    @property
    def difference_in_se(self) -> float | None:
        """The difference in joint standard errors; None if there is no spread to measure by."""
        if self.difference is None or not self.joint_se:
            return None
        return self.difference / self.joint_se

    @property
    def reaches(self) -> bool | None:
        """Whether m >= m' - 2 s', with s where no s' is published."""
        if self.auc is None or self.published is None:
            return None
        se = self.auc.se if self.published.se is None else self.published.se
        return None if se is None else self.auc.mean >= self.published.mean - 2 * se

    @property
    def within(self) -> bool | None:
        """Whether |m - m'| is at most two joint standard errors."""
        return None if self.difference_in_se is None else abs(self.difference_in_se) <= 2

    @property
    def within_rounded(self) -> bool | None:
        """The same for the nearest mean that would be printed as m': rounding may exceed s'."""
        if self.difference is None or self.published is None or not self.joint_se:
            return None
        return abs(self.difference) <= 2 * self.joint_se + self.published.rounding

    def say(self, trials: int) -> str:
        """The mean AUC with its error, and how many trials succeeded if fewer than `trials`."""
        return say_estimate(self.auc) + few(self.n_ok, trials)

    def say_mean(self, trials: int) -> str:
        """The same without its standard error."""
        return (say_mean(self.auc.mean) if self.auc else "failed") + few(self.n_ok, trials)


def few(n: int, trials: int) -> str:
    """In brackets, how many trials succeeded where some are missing."""
    return f" [{n}]" if 0 < n < trials else ""


def say_published(value: Published | None, error: bool = True) -> str:
    """A published mean with the digits that were printed and, if printed, its SE x 100."""
    if value is None:
        return NONE
    digits = 2 if value.rounding == 0.005 else 3
    shown = f" ({100 * value.se:.2f})" if error and value.se is not None else ""
    return f"{value.mean:.{digits}f}{shown}"


def say_setting(name: str, value: object) -> str:
    """A value of a setting; a prior in words is written as in the paper."""
    return _PRIORS.get(str(value), str(value)) if name == "prior" else str(value)


def say_dataset(name: str) -> str:
    """The name, for a table of the paper with (d, n, pi_n)."""
    facts = PAPER_FACTS.get(name)
    return f"{name} ({facts.d}, {facts.n}, {facts.pi_n:.2f})" if facts else name


def value_order(name: str, value: object) -> float:
    """Order of a prior or of a as in the paper: true, 0.9 ... 0.6, flipped; 0.1 ... 0.9."""
    if not isinstance(value, int | float):
        return 2.0 if value == "flipped" else -1.0
    return 1.0 - value if name == "prior" else float(value)


def _cell_order(cell: CellSummary) -> tuple[Any, ...]:
    known = {"loss": list(LOSS_NAMES), "lam": RULES}
    order: list[Any] = [KNOWN_SETS.index(cell.dataset), list(METHOD_NAMES).index(cell.method)]
    for name in SETTINGS:
        value = cell.settings.get(name)
        if name in known:
            order.append(known[name].index(value) if value else -1)
        else:
            order.append(
                str(value) if name in ("kernel", "unlabelled") else value_order(name, value)
            )
    return tuple(order)


# --- all cells ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """What the tables and figures of one part of an experiment are made of.

    `not_run` has the datasets that were not available, with the reason; `failures` and `warnings`
    are tables in Markdown, blank if there were none.
    """

    experiment: str
    cells: tuple[CellSummary, ...]
    not_run: Mapping[str, str]
    failures: str
    warnings: str
    versions: tuple[str, ...]
    commits: tuple[str, ...]

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[CellSummary]]:
        index = defaultdict(list)
        for cell in self.cells:
            index[cell.dataset, cell.method].append(cell)
        return index

    def cell(self, dataset: str, method: str, **wanted: Any) -> CellSummary | None:
        """The cell of a method with these settings, if it was run."""
        for cell in self._index.get((dataset, method), ()):
            if all(cell.settings.get(name) == value for name, value in wanted.items()):
                return cell
        return None

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets with at least one cell, in the paper's order."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))

    def values(self, name: str, method: str = "rad") -> list[Any]:
        """Values that a setting of a method takes, in the order of cells."""
        values = (cell.settings.get(name) for cell in self.cells if cell.method == method)
        return [value for value in dict.fromkeys(values) if value is not None]

    @cached_property
    def n_trials(self) -> int:
        """The most trials that any cell has, failed ones included."""
        return max((cell.n_ok + cell.n_failed for cell in self.cells), default=0)


def summarise(records: pl.DataFrame, experiment: str) -> Summary:
    """Summarise the records of one part: cells, what was not run, what failed and what warned."""
    rows = [_with_numbers(row) for row in records.to_dicts()]
    trials = [r for r in rows if r["experiment"] == experiment and r["status"] != NOT_RUN]
    groups = defaultdict(list)
    for row in trials:
        groups[row["dataset"], row["method"], *(row.get(name) for name in SETTINGS)].append(row)
    run = {row["dataset"] for row in trials}
    missing = {row["dataset"]: row["reason"] for row in rows if row["status"] == NOT_RUN}
    failed = [(row, row["reason"]) for row in trials if row["status"] == FAILED]
    warned = [(row, text) for row in trials for text in row.get("warnings") or ()]
    return Summary(
        experiment,
        cells=tuple(sorted(map(CellSummary.of, groups.values()), key=_cell_order)),
        not_run={name: missing[name] for name in KNOWN_SETS if name in missing and name not in run},
        failures=remark_table(failed, KNOWN_SETS, METHOD_NAMES),
        warnings=remark_table(warned, KNOWN_SETS, METHOD_NAMES),
        versions=_distinct(trials, "versions"),
        commits=_distinct(trials, "commit"),
    )


def _with_numbers(row: Record) -> Record:
    """A prior is a number or a word, so its column is text."""
    prior = row.get("prior")
    return row if prior is None or prior in _PRIORS else {**row, "prior": float(prior)}


def _distinct(rows: Iterable[Record], name: str) -> tuple[str, ...]:
    return tuple(sorted({row[name] for row in rows if row.get(name) is not None}))
