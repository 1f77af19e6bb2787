"""From records to numbers: means over trials, and how they stand beside the published ones.

A cell is what all trials of one method with one setting on one dataset have in common. Its mean
AUC m has the standard error s = sd / sqrt(n) over n trials, sd with n - 1. Beside a published mean
m' with standard error s' stands

    (m - m') / sqrt(s^2 + s'^2),

the difference in joint standard errors, and whether m >= m' - 2 s' ("reaches"). Where no s' is
published, the first has s alone, and the second s in its place. The target of the experiment
"main" is that at least 90 % of the cells of rAD reach.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from riskad.bench.paper import DEFAULT_A, DEFAULT_PRIOR, IMAGE_SETS, PAPER_SETS, Published

__all__ = [
    "DEFAULTS",
    "FIELD",
    "KNOWN_SETS",
    "LIKE_PUBLISHED",
    "LOSSES",
    "LOSS_NAMES",
    "METHOD_NAMES",
    "RULES",
    "SMALL_PI_N",
    "TABLE_KEYS",
    "TABLE_PROTOCOL",
    "TARGET_SHARE",
    "CellSummary",
    "NotRun",
    "Record",
    "Remark",
    "Summary",
    "TrialMean",
    "by_rule",
    "canonical_json",
    "counted",
    "loss_name",
    "method_name",
    "order_in",
    "place_in",
    "report_name",
    "setting_name",
    "value_order",
    "variant_order",
]

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
LOSSES = ("squared", "hinge", "modified_huber")  # of the shallow tables
KNOWN_SETS = (*PAPER_SETS, *IMAGE_SETS)
RULES = ("theorem", "tight", "cv", "published")

FIELD = "field"  # the report on all experiments of that suite

TARGET_SHARE = 0.9  # of rAD's cells are to reach what was published

SMALL_PI_N = 0.2  # up to here, the paper says, rAD is far better than PU

# The semi-supervised SVM that most resembles the published: it takes the unlabelled rows as normal.
LIKE_PUBLISHED = {"kernel": "biased", "unlabelled": "normal"}
# The paper's values of what it varies in "prior" and "a"; where none is recorded, these were used.
DEFAULTS = {"a": DEFAULT_A, "prior": DEFAULT_PRIOR}

# What tells the columns of the paper's tables apart; other settings are the same throughout.
TABLE_KEYS = {
    "main": ("loss", "lam", "kernel", "unlabelled"),
    "published": ("loss", "lam"),
    "prior": ("loss", "lam", "prior"),
    "a": ("loss", "lam", "a"),
    "images": ("loss", "anomaly_rate", "labelled"),
    "images-prior": ("loss", "prior", "anomaly_rate"),
    "images-a": ("loss", "a", "anomaly_rate"),
    FIELD: ("labelled",),
}
TABLE_PROTOCOL = {"test_share": 0.3, "labelled": 0.05}  # the tables' values


def loss_name(loss: str) -> str:
    """How a loss is written in tables and figures."""
    return LOSS_NAMES.get(loss, loss)


def method_name(method: str) -> str:
    """How a method is written in tables."""
    return METHOD_NAMES.get(method, method)


def setting_name(name: str) -> str:
    """How a setting is written in tables."""
    return "lambda" if name == "lam" else name


def by_rule(rule: object) -> str:
    """Say how lambda was chosen.

    >>> by_rule("cv"), by_rule(0.5)
    ('lambda by rule cv', 'lambda 0.5')
    """
    return f"lambda by rule {rule}" if isinstance(rule, str) else f"lambda {rule}"


def counted(n: int, what: str) -> str:
    """Say how many.

    >>> counted(1, "set"), counted(19, "set")
    ('1 set', '19 sets')
    """
    return f"{n} {what}{'' if n == 1 else 's'}"


def report_name(experiment: str) -> str:
    """The report that an experiment is part of: its own, or for "field-..." that of "field".

    >>> report_name("field-budgets"), report_name("images-prior")
    ('field', 'images-prior')
    """
    return FIELD if experiment.startswith(f"{FIELD}-") else experiment


def value_order(key: str, value: object) -> float:
    """Order of a prior or of a as in the paper: true, 0.9 ... 0.6, flipped; 0.1 ... 0.9."""
    if not isinstance(value, int | float):
        return 2.0 if value == "flipped" else -1.0
    return 1.0 - value if key == "prior" else float(value)


def order_in(value: object, known: Iterable[object]) -> tuple[int, str]:
    """Sort key: what is known in its order, then the rest by name."""
    return place_in(value, known), str(value)


def place_in(value: object, known: Iterable[object]) -> int:
    """Where `value` stands in `known`; at the end if it does not."""
    listed = list(known)
    return listed.index(value) if value in listed else len(listed)


def canonical_json(value: Any) -> str:
    """The value as a text to compare."""
    return json.dumps(value, sort_keys=True)


def variant_order(cell: CellSummary) -> tuple[Any, ...]:
    """Sort key of cells of one dataset: by method, then by settings in the paper's order."""
    return (
        *order_in(cell.method, METHOD_NAMES),
        place_in(cell.settings.get("loss"), LOSS_NAMES),
        place_in(cell.settings.get("lam"), RULES),
        *(value_order(key, cell.settings.get(key)) for key in DEFAULTS),
        canonical_json(cell.settings),
        canonical_json(cell.protocol),
    )


# --- one cell ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialMean:
    """A mean over n trials and its standard error sd / sqrt(n), None for a single trial."""

    mean: float
    se: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> TrialMean | None:
        """TrialMean from the trials' values; None if there are none.

        >>> TrialMean.of([0.5, 0.75, 1.0])
        TrialMean(mean=0.75, se=0.14433756729740646, n=3)
        """
        n = len(values)
        if n == 0:
            return None
        se = statistics.stdev(values) / math.sqrt(n) if n > 1 else None
        return cls(fmean(values), se, n)

    @property
    def sd(self) -> float | None:
        """The standard deviation over trials, None for a single one."""
        return None if self.se is None else self.se * math.sqrt(self.n)


@dataclass(frozen=True)
class CellSummary:
    """All trials of one method with one setting on one dataset, beside the published number.

    `protocol` is what was the same for all methods, and the estimator's name. `aucs`, `precisions`
    and `seconds` have the AUC, the average precision and the time to fit of each trial by (root,
    trial), to compare cells trial by trial; `roc` has the mean true positive rates, where they were
    recorded; `n_rows` are those of the set.
    """

    experiment: str
    dataset: str
    method: str
    settings: Mapping[str, Any]
    protocol: Mapping[str, Any]
    n_ok: int
    n_failed: int
    auc: TrialMean | None
    average_precision: TrialMean | None
    fit_seconds: float | None
    published: Published | None
    aucs: Mapping[tuple[int, int], float]
    precisions: Mapping[tuple[int, int], float]
    seconds: Mapping[tuple[int, int], float]
    roc: tuple[float, ...] | None
    n_rows: int | None

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """Protocol and settings together."""
        return {**self.protocol, **self.settings}

    def fits(self, wanted: Mapping[str, Any]) -> bool:
        """Whether what is recorded agrees with `wanted`; what is not has its default."""
        return all(self.recorded.get(key, DEFAULTS.get(key)) == wanted[key] for key in wanted)

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
        difference, joint = self.difference, self.joint_se
        return difference / joint if difference is not None and joint else None

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
        units = self.difference_in_se
        return None if units is None else abs(units) <= 2

    @property
    def within_rounded(self) -> bool | None:
        """The same for the nearest mean that would be printed as m': rounding may exceed s'."""
        difference, joint = self.difference, self.joint_se
        if difference is None or self.published is None or not joint:
            return None
        return abs(difference) <= 2 * joint + self.published.rounding


@dataclass(frozen=True)
class NotRun:
    """A dataset that could not be had, or a method that was not installed, and why."""

    experiment: str
    name: str
    reason: str


@dataclass(frozen=True)
class Remark:
    """Why trials failed, or what they warned of: how many, by method and by dataset.

    `text` is what was said most often, of `n_texts` that differ only in numbers and lists.
    """

    experiment: str
    text: str
    n_texts: int
    methods: Mapping[str, int]
    datasets: Mapping[str, int]

    @property
    def count(self) -> int:
        """Number of trials concerned."""
        return sum(self.datasets.values())


@dataclass(frozen=True)
class Summary:
    """Everything the tables and figures are made of.

    `not_run` are datasets, `absent` methods that were not installed. `skipped` counts the trials
    that methods could not run, as for want of labelled normal rows.
    """

    cells: tuple[CellSummary, ...]
    not_run: tuple[NotRun, ...]
    absent: tuple[NotRun, ...]
    skipped: tuple[Remark, ...]
    failures: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    versions: Mapping[str, tuple[str, ...]]
    commits: Mapping[str, tuple[str, ...]]
    peers: Mapping[str, tuple[str, ...]]
    roots: Mapping[str, tuple[int, ...]]

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments, those of the paper first."""
        missing = (*self.not_run, *self.absent)
        names = {*(c.experiment for c in self.cells), *(row.experiment for row in missing)}
        return tuple(sorted(names, key=lambda name: order_in(name, TABLE_KEYS)))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], list[CellSummary]]:
        index = defaultdict(list)
        for cell in self.cells:
            index[cell.experiment, cell.dataset, cell.method].append(cell)
        return dict(index)

    def of(self, experiment: str, method: str | None = None, **wanted: Any) -> list[CellSummary]:
        """Cells of an experiment with these settings, in the order of the paper's sets."""
        return [
            cell
            for cell in self.cells
            if cell.experiment == experiment and method in (None, cell.method) and cell.fits(wanted)
        ]

    def datasets(self, experiment: str) -> list[str]:
        """Datasets of an experiment with at least one cell, in the paper's order."""
        return list(dict.fromkeys(cell.dataset for cell in self.of(experiment)))

    def cell(self, experiment: str, dataset: str, method: str, **wanted: Any) -> CellSummary | None:
        """Return the cell whose settings fit `wanted`; of several, the one run most often."""
        place = self._index.get((experiment, dataset, method), [])
        found = (cell for cell in place if cell.fits(wanted))
        return max(found, key=lambda cell: cell.n_ok, default=None)

    def values(self, experiment: str, key: str, method: str = "rad", **wanted: Any) -> list[Any]:
        """Values that a setting takes in an experiment: known ones in order, then the rest."""
        cells = self.of(experiment, method, **wanted)
        found = {cell.recorded[key] for cell in cells if key in cell.recorded}
        known = {"lam": RULES, "loss": LOSS_NAMES}.get(key, ())
        return sorted(found, key=lambda value: order_in(value, known))

    def n_trials(self, experiment: str) -> int:
        """The most trials that any cell of an experiment has, failed ones included."""
        return max((cell.n_ok + cell.n_failed for cell in self.of(experiment)), default=0)

    def hidden(self, experiment: str) -> list[str]:
        """Names of what tells cells apart that share a place in the tables."""
        shared = defaultdict(list)
        for cell in self.of(experiment):
            shared[cell.dataset, cell.method, canonical_json(self.shown(cell))].append(cell)
        names = {
            name
            for cells in shared.values()
            for name in {name for cell in cells for name in (*cell.settings, *cell.protocol)}
            if len({canonical_json((c.settings.get(name), c.protocol.get(name))) for c in cells})
            > 1
        }
        return sorted(names)

    def shown(self, cell: CellSummary) -> dict[str, Any]:
        """What is recorded that tells a cell from others in the tables of its experiment.

        In an experiment that the paper does not have, what its method was run with several values
        of.
        """
        keys = TABLE_KEYS.get(cell.experiment) or self._varied[cell.experiment, cell.method]
        return {key: cell.recorded[key] for key in keys if key in cell.recorded}

    @cached_property
    def _varied(self) -> dict[tuple[str, str], list[str]]:
        seen: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for cell in self.cells:
            seen[cell.experiment, cell.method].append(cell.recorded)
        return {
            place: [
                name
                for name in sorted({name for recorded in several for name in recorded})
                if len({canonical_json(recorded.get(name)) for recorded in several}) > 1
            ]
            for place, several in seen.items()
        }
