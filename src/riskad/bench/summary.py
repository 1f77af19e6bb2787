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
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any

from riskad.bench.experiment import identity_key
from riskad.bench.paper import (
    DEFAULT_A,
    DEFAULT_PRIOR,
    IMAGE_SETS,
    PAPER_SETS,
    Published,
    paper_set,
    published,
)
from riskad.bench.records import FAILED, NOT_RUN, OK, SKIPPED

__all__ = [
    "DEFAULTS",
    "FIELD",
    "LIKE_PUBLISHED",
    "LOSSES",
    "RULES",
    "SMALL_PI_N",
    "TARGET_SHARE",
    "Cell",
    "Estimate",
    "Gap",
    "NotRun",
    "Overall",
    "Reach",
    "Remark",
    "SetGap",
    "Summary",
    "Sweep",
    "by_rule",
    "counted",
    "gaps",
    "headline_rule",
    "loss_name",
    "method_name",
    "overall",
    "reach_by_loss",
    "report_name",
    "set_gaps",
    "setting_name",
    "summarise",
    "sweep_cell",
    "sweep_values",
    "sweeps",
]

Record = Mapping[str, Any]

# In the order of the paper, and how the tables and figures write them.
_LOSS_NAMES = {
    "squared": "square",
    "hinge": "hinge",
    "sigmoid": "sigmoid",
    "logistic": "logistic",
    "modified_huber": "m-Huber",
}
_METHOD_NAMES = {
    "rad": "rAD",
    "pu": "PU",
    "ocsvm": "OC-SVM",
    "semi_ocsvm": "semi-OC-SVM",
    "sad": "Deep SAD",
    "nnpu": "nnPU",
}
LOSSES = ("squared", "hinge", "modified_huber")  # of the shallow tables
_KNOWN_SETS = (*PAPER_SETS, *IMAGE_SETS)
RULES = ("theorem", "tight", "cv", "published")
_HEADLINE = "cv"

FIELD = "field"  # the report on all experiments of that suite

TARGET_SHARE = 0.9  # of rAD's cells are to reach what was published

SMALL_PI_N = 0.2  # up to here, the paper says, rAD is far better than PU

# The semi-supervised SVM that most resembles the published: it takes the pile as normal.
LIKE_PUBLISHED = {"kernel": "biased", "pile": "normal"}
# The paper's values of what it varies in "prior" and "a"; where none is recorded, these were used.
DEFAULTS = {"a": DEFAULT_A, "prior": DEFAULT_PRIOR}

# What tells the columns of the paper's tables apart; other settings are the same throughout.
_TABLE_KEYS = {
    "main": ("loss", "lam", "kernel", "pile"),
    "published": ("loss", "lam"),
    "prior": ("loss", "lam", "prior"),
    "a": ("loss", "lam", "a"),
    "images": ("loss", "anomaly_rate", "labelled"),
    "images-prior": ("loss", "prior", "anomaly_rate"),
    "images-a": ("loss", "a", "anomaly_rate"),
    FIELD: ("labelled",),
}
_PROTOCOL = {"test_share": 0.3, "labelled": 0.05}  # the tables' values


def loss_name(loss: str) -> str:
    """How a loss is written in tables and figures."""
    return _LOSS_NAMES.get(loss, loss)


def method_name(method: str) -> str:
    """How a method is written in tables."""
    return _METHOD_NAMES.get(method, method)


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


# --- one cell ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean over n trials and its standard error sd / sqrt(n), None for a single trial."""

    mean: float
    se: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate | None:
        """Estimate from the trials' values; None if there are none.

        >>> Estimate.of([0.5, 0.75, 1.0])
        Estimate(mean=0.75, se=0.14433756729740646, n=3)
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
class Cell:
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
    auc: Estimate | None
    average_precision: Estimate | None
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

    cells: tuple[Cell, ...]
    not_run: tuple[NotRun, ...]
    absent: tuple[NotRun, ...]
    skipped: tuple[Remark, ...]
    failures: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    versions: Mapping[str, tuple[str, ...]]
    peers: Mapping[str, tuple[str, ...]]
    roots: Mapping[str, tuple[int, ...]]

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments, those of the paper first."""
        missing = (*self.not_run, *self.absent)
        names = {*(c.experiment for c in self.cells), *(row.experiment for row in missing)}
        return tuple(sorted(names, key=lambda name: _order(name, _TABLE_KEYS)))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], list[Cell]]:
        index = defaultdict(list)
        for cell in self.cells:
            index[cell.experiment, cell.dataset, cell.method].append(cell)
        return dict(index)

    def of(self, experiment: str, method: str | None = None, **wanted: Any) -> list[Cell]:
        """Cells of an experiment with these settings, in the order of the paper's sets."""
        return [
            cell
            for cell in self.cells
            if cell.experiment == experiment and method in (None, cell.method) and cell.fits(wanted)
        ]

    def datasets(self, experiment: str) -> list[str]:
        """Datasets of an experiment with at least one cell, in the paper's order."""
        return list(dict.fromkeys(cell.dataset for cell in self.of(experiment)))

    def cell(self, experiment: str, dataset: str, method: str, **wanted: Any) -> Cell | None:
        """Return the cell whose settings fit `wanted`; of several, the one run most often."""
        place = self._index.get((experiment, dataset, method), [])
        found = (cell for cell in place if cell.fits(wanted))
        return max(found, key=lambda cell: cell.n_ok, default=None)

    def values(self, experiment: str, key: str, method: str = "rad", **wanted: Any) -> list[Any]:
        """Values that a setting takes in an experiment: known ones in order, then the rest."""
        cells = self.of(experiment, method, **wanted)
        found = {cell.recorded[key] for cell in cells if key in cell.recorded}
        known = {"lam": RULES, "loss": _LOSS_NAMES}.get(key, ())
        return sorted(found, key=lambda value: _order(value, known))

    def n_trials(self, experiment: str) -> int:
        """The most trials that any cell of an experiment has, failed ones included."""
        return max((cell.n_ok + cell.n_failed for cell in self.of(experiment)), default=0)

    def hidden(self, experiment: str) -> list[str]:
        """Names of what tells cells apart that share a place in the tables."""
        shared = defaultdict(list)
        for cell in self.of(experiment):
            shared[cell.dataset, cell.method, _json(self.shown(cell))].append(cell)
        names = {
            name
            for cells in shared.values()
            for name in {name for cell in cells for name in (*cell.settings, *cell.protocol)}
            if len({_json((c.settings.get(name), c.protocol.get(name))) for c in cells}) > 1
        }
        return sorted(names)

    def shown(self, cell: Cell) -> dict[str, Any]:
        """What is recorded that tells a cell from others in the tables of its experiment.

        In an experiment that the paper does not have, what its method was run with several values
        of.
        """
        keys = _TABLE_KEYS.get(cell.experiment) or self._varied[cell.experiment, cell.method]
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
                if len({_json(recorded.get(name)) for recorded in several}) > 1
            ]
            for place, several in seen.items()
        }


# --- from records ------------------------------------------------------------------------


def summarise(records: Iterable[Record]) -> Summary:
    """Summarise records: cells, what was not run, what failed and what warned.

    A cell recorded twice counts once, as it was recorded last.
    """
    records = [{**row, "experiment": report_name(row["experiment"])} for row in records]
    tried = _unique(row for row in records if row["status"] != NOT_RUN)
    trials = [row for row in tried if row["status"] != SKIPPED]
    groups = defaultdict(list)
    for row in trials:
        groups[_cell_key(row)].append(row)
    return Summary(
        cells=tuple(sorted(map(_make_cell, groups.values()), key=_cell_order)),
        not_run=_not_run(records, trials, "dataset"),
        absent=_not_run(records, tried, "method"),
        skipped=_remarks((row, row["reason"]) for row in tried if row["status"] == SKIPPED),
        failures=_remarks((row, row["reason"]) for row in trials if row["status"] == FAILED),
        warnings=_remarks((row, text) for row in trials for text in row.get("warnings", [])),
        versions=_seen(trials, "versions"),
        peers=_seen(trials, "peer"),
        roots=_seen(trials, "root"),
    )


def report_name(experiment: str) -> str:
    """The report that an experiment is part of: its own, or for "field-..." that of "field".

    >>> report_name("field-budgets"), report_name("images-prior")
    ('field', 'images-prior')
    """
    return FIELD if experiment.startswith(f"{FIELD}-") else experiment


def _cell_key(row: Record) -> tuple[str, float | None]:
    return _trial_key(dict(row) | {"trial": None, "root": None})


def _trial_key(row: Record) -> tuple[str, float | None]:
    """What tells trials apart; only experiments on images set the share of anomalies."""
    return identity_key(row), row.get("anomaly_rate")


def _unique(rows: Iterable[Record]) -> list[Record]:
    """One row for each identity, the last."""
    return list({_trial_key(row): row for row in rows}.values())


def _make_cell(rows: Sequence[Record]) -> Cell:
    first = rows[0]
    good = [row for row in rows if row["status"] == OK]
    names = ("estimator", "anomaly_rate", *_PROTOCOL)
    protocol = {name: first[name] for name in names if first.get(name) is not None}
    as_in_paper = all(protocol.get(name, value) == value for name, value in _PROTOCOL.items())
    place = (first["experiment"], first["dataset"], first["method"], first["settings"])
    seconds = Estimate.of([row["fit_seconds"] for row in good])
    return Cell(
        *place,
        protocol=protocol,
        n_ok=len(good),
        n_failed=len(rows) - len(good),
        auc=Estimate.of([row["auc"] for row in good]),
        average_precision=Estimate.of([row["average_precision"] for row in good]),
        fit_seconds=seconds.mean if seconds else None,
        published=published(*place, first.get("anomaly_rate")) if as_in_paper else None,
        aucs=_by_trial(good, "auc"),
        precisions=_by_trial(good, "average_precision"),
        seconds=_by_trial(good, "fit_seconds"),
        roc=_mean_curve([row["roc"] for row in good if "roc" in row]),
        n_rows=first["n_train"] + first["n_test"] if "n_train" in first else None,
    )


def _by_trial(rows: Sequence[Record], key: str) -> dict[tuple[int, int], float]:
    return {(row["root"], row["trial"]): row[key] for row in rows}


def _mean_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...] | None:
    return tuple(map(fmean, zip(*curves, strict=True))) or None


def _cell_order(cell: Cell) -> tuple[Any, ...]:
    return (
        *_order(cell.experiment, _TABLE_KEYS),
        *_order(cell.dataset, _KNOWN_SETS),
        *_variant_order(cell),
    )


def _variant_order(cell: Cell) -> tuple[Any, ...]:
    return (
        *_order(cell.method, _METHOD_NAMES),
        _place(cell.settings.get("loss"), _LOSS_NAMES),
        _place(cell.settings.get("lam"), RULES),
        *(_value_order(key, cell.settings.get(key)) for key in DEFAULTS),
        _json(cell.settings),
        _json(cell.protocol),
    )


def _value_order(key: str, value: object) -> float:
    """Order of a prior or of a as in the paper: true, 0.9 ... 0.6, flipped; 0.1 ... 0.9."""
    if not isinstance(value, int | float):
        return 2.0 if value == "flipped" else -1.0
    return 1.0 - value if key == "prior" else float(value)


def _order(value: object, known: Iterable[object]) -> tuple[int, str]:
    """Sort key: what is known in its order, then the rest by name."""
    return _place(value, known), str(value)


def _place(value: object, known: Iterable[object]) -> int:
    """Where `value` stands in `known`; at the end if it does not."""
    listed = list(known)
    return listed.index(value) if value in listed else len(listed)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _not_run(records: Iterable[Record], trials: Iterable[Record], what: str) -> tuple[NotRun, ...]:
    """Datasets or methods that could not be had and of which there is still no trial."""
    run = {(row["experiment"], row[what]) for row in trials}
    missing = {}
    for row in records:
        place = row["experiment"], row.get(what, "")
        if row["status"] == NOT_RUN and what in row and place not in run:
            missing[place] = NotRun(*place, row.get("reason", ""))
    order = sorted(missing, key=lambda place: (place[0], *_order(place[1], _KNOWN_SETS)))
    return tuple(missing[place] for place in order)


def _remarks(remarks: Iterable[tuple[Record, str]]) -> tuple[Remark, ...]:
    """Group rows by experiment and by what is said of them, the most frequent first."""
    groups = defaultdict(list)
    for row, text in remarks:
        groups[row["experiment"], _gist(text)].append((row, text))
    made = [_remark(experiment, said) for (experiment, _), said in groups.items()]
    return tuple(sorted(made, key=lambda remark: (remark.experiment, -remark.count, remark.text)))


def _remark(experiment: str, said: Sequence[tuple[Record, str]]) -> Remark:
    rows = {id(row): row for row, _ in said}.values()  # a trial may say the like twice
    texts = Counter(text for _, text in said)
    return Remark(
        experiment,
        min(texts, key=lambda text: (-texts[text], text)),
        len(texts),
        _count((row["method"] for row in rows), _METHOD_NAMES),
        _count((row["dataset"] for row in rows), _KNOWN_SETS),
    )


_NUMBER = r"[-+]?\b\d[\d.,]*(?<![.,])(?:e[-+]?\d+)?\b"
_QUOTED = r"(?<!=)(?:'[^']*'|\"[^\"]*\")"  # after "=" stands a setting, which tells texts apart
_ITEM = rf"(?:{_NUMBER}|{_QUOTED})"
_ITEMS = re.compile(rf"{_ITEM}(?:, {_ITEM})*(?: and {_ITEM}(?: more)?)?")


def _gist(text: str) -> str:
    """A message without its numbers and lists.

    >>> _gist("2 column(s) hold a single value: 0, 39.")
    '# column(s) hold a single value: #.'
    >>> _gist("25 column(s) hold a single value: 'a', 'b' and 17 more.")
    '# column(s) hold a single value: #.'
    >>> _gist("lam='cv' stopped at 1.5e-03")
    "lam='cv' stopped at #"
    """
    return _ITEMS.sub("#", text)


def _count(names: Iterable[str], known: Iterable[str]) -> dict[str, int]:
    counts = Counter(names)
    return {name: counts[name] for name in sorted(counts, key=lambda name: _order(name, known))}


def _seen(rows: Iterable[Record], key: str) -> dict[str, tuple[Any, ...]]:
    """What a key holds, for each experiment."""
    seen = defaultdict(set)
    for row in rows:
        if row.get(key) is not None:
            seen[row["experiment"]].add(row[key])
    return {experiment: tuple(sorted(values)) for experiment, values in sorted(seen.items())}


# --- over datasets -----------------------------------------------------------------------


@dataclass(frozen=True)
class Overall:
    """A method with one setting over datasets.

    `cells` are those that succeeded, by dataset. All that follows is about `sets`: `auc` and
    `published` are means of the sets' means, `fewest` is the smallest number of trials of a set,
    `n_reach` counts cells out of the `n_judged` of which it can be said, `n_within` and
    `n_within_rounded` out of the `n_compared` that have a difference in joint standard errors.
    """

    experiment: str
    method: str
    settings: Mapping[str, Any]
    cells: Mapping[str, Cell]
    sets: tuple[str, ...]
    fewest: int
    auc: float
    average_precision: float
    fit_seconds: float
    published: float | None
    n_judged: int
    n_reach: int
    n_compared: int
    n_within: int
    n_within_rounded: int

    @property
    def n_sets(self) -> int:
        """Number of sets that the means are over."""
        return len(self.sets)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The sets that means could be over: those with a published number, or all if none has."""
        return _candidates(self.cells)

    @property
    def difference(self) -> float | None:
        """Mean difference of ours from the published."""
        return None if self.published is None else self.auc - self.published


def overall(summary: Summary, experiment: str) -> list[Overall]:
    """Each method and setting, over the sets that all of them have; without what never succeeded.

    If there is no such set, each is taken over its own.
    """
    groups: dict[tuple[str, str], dict[str, Cell]] = defaultdict(dict)
    for cell in sorted(summary.of(experiment), key=_variant_order):
        place = groups[cell.method, _json(summary.shown(cell))]
        best = place.get(cell.dataset)
        if cell.auc and (best is None or cell.n_ok > best.n_ok):
            place[cell.dataset] = cell
    found = [cells for cells in groups.values() if cells]
    shared = set.intersection(*(set(_candidates(cells)) for cells in found)) if found else set()
    return [_overall(summary, cells, shared) for cells in found]


def _candidates(cells: Mapping[str, Cell]) -> tuple[str, ...]:
    return tuple(name for name in cells if cells[name].published) or tuple(cells)


def _overall(summary: Summary, cells: Mapping[str, Cell], shared: set[str]) -> Overall:
    sets = tuple(name for name in _candidates(cells) if name in shared) or _candidates(cells)
    used = [cells[name] for name in sets]
    printed = [cell.published.mean for cell in used if cell.published]
    return Overall(
        used[0].experiment,
        used[0].method,
        summary.shown(used[0]),
        cells,
        sets,
        fewest=min(cell.n_ok for cell in used),
        auc=fmean(cell.auc.mean for cell in used if cell.auc),
        average_precision=fmean(c.average_precision.mean for c in used if c.average_precision),
        fit_seconds=fmean(cell.fit_seconds for cell in used if cell.fit_seconds is not None),
        published=fmean(printed) if printed else None,
        n_judged=sum(cell.reaches is not None for cell in used),
        n_reach=sum(cell.reaches is True for cell in used),
        n_compared=sum(cell.within is not None for cell in used),
        n_within=sum(cell.within is True for cell in used),
        n_within_rounded=sum(cell.within_rounded is True for cell in used),
    )


@dataclass(frozen=True)
class Reach:
    """How often rAD with one loss reaches the published mean less two published errors.

    `n_sets` counts the paper's sets on which it was run, those on which every trial failed
    included: they are not reached. `auc` and `published` are means over the others.
    """

    loss: str
    rule: Any
    n_sets: int
    fewest: int
    auc: float
    published: float
    missed: tuple[str, ...]

    @property
    def n_reach(self) -> int:
        """Number of sets on which it reaches."""
        return self.n_sets - len(self.missed)


def reach_by_loss(summary: Summary) -> list[Reach]:
    """The target of "main" for each loss, with the rule for lambda that stands for rAD."""
    found, rule = [], headline_rule(summary)
    for loss in summary.values("main", "loss"):
        wanted = {"loss": loss, "lam": rule, **DEFAULTS}
        places = (summary.cell("main", name, "rad", **wanted) for name in PAPER_SETS)
        cells = [cell for cell in places if cell and cell.published]
        both = [cell.both for cell in cells if cell.both]
        if both:
            found.append(
                Reach(
                    loss,
                    rule,
                    len(cells),
                    min(cell.n_ok for cell in cells),
                    auc=fmean(ours for ours, _ in both),
                    published=fmean(theirs for _, theirs in both),
                    missed=tuple(cell.dataset for cell in cells if not cell.reaches),
                )
            )
    return found


# --- what the paper claims ---------------------------------------------------------------


@dataclass(frozen=True)
class SetGap:
    """AUC of rAD less that of another method on one set, ours and published."""

    dataset: str
    pi_n: float
    ours: float
    published: float


@dataclass(frozen=True)
class Gap:
    """The mean of such gaps over the sets of one kind: "all", "small" or "large" pi_n."""

    loss: str
    rule: Any  # a name, or lambda itself
    other: str
    sets: str
    n_sets: int
    ours: float
    published: float


def headline_rule(summary: Summary) -> Any | None:
    """The rule for lambda that stands for rAD: "cv" where it was run, else the first that was."""
    rules = summary.values("main", "lam")
    return _HEADLINE if _HEADLINE in rules else next(iter(rules), None)


def set_gaps(summary: Summary, loss: str, rule: Any, other: str) -> list[SetGap]:
    """AUC of rAD less that of `other` on each of the paper's sets on which both were run.

    PU is taken with the same loss. The one-class SVM has none, and its semi-supervised sibling is
    the variant that most resembles the published: an SVM that takes the pile as normal.
    """
    wanted = {"pu": {"loss": loss}, "semi_ocsvm": LIKE_PUBLISHED}.get(other, {})
    found = []
    for dataset in PAPER_SETS:
        rad = summary.cell("main", dataset, "rad", loss=loss, lam=rule)
        rival = summary.cell("main", dataset, other, **wanted)
        facts = paper_set(dataset)
        if facts and rad and rival and rad.both and rival.both:
            ours, theirs = (x - y for x, y in zip(rad.both, rival.both, strict=True))
            found.append(SetGap(dataset, facts.pi_n, ours, theirs))
    return found


def gaps(summary: Summary, other: str) -> list[Gap]:
    """Mean gaps per loss and rule: over all sets, those with pi_n <= 0.2, and the others."""
    kinds: dict[str, Callable[[SetGap], bool]] = {
        "all": lambda gap: True,
        "small": lambda gap: gap.pi_n <= SMALL_PI_N,
        "large": lambda gap: gap.pi_n > SMALL_PI_N,
    }
    found = []
    for loss, rule in product(summary.values("main", "loss"), summary.values("main", "lam")):
        by_set = set_gaps(summary, loss, rule, other)
        for kind, belongs in kinds.items():
            some = [gap for gap in by_set if belongs(gap)]
            if some:
                ours, theirs = fmean(gap.ours for gap in some), fmean(gap.published for gap in some)
                found.append(Gap(loss, rule, other, kind, len(some), ours, theirs))
    return found


@dataclass(frozen=True)
class Sweep:
    """Mean AUC of rAD over sets at each value of a setting, ours and published.

    The sets are those on which each rule of the curves was run with this loss at every value.
    """

    experiment: str
    loss: str
    rule: Any  # a name, or lambda itself
    n_sets: int
    values: tuple[Any, ...]
    ours: tuple[float, ...]
    published: tuple[float, ...]

    @property
    def spread(self) -> float:
        """The largest of our means less the smallest."""
        return max(self.ours) - min(self.ours)

    @property
    def published_spread(self) -> float:
        """The largest of the published means less the smallest."""
        return max(self.published) - min(self.published)


def sweeps(summary: Summary, experiment: str) -> list[Sweep]:
    """Curves over the setting that an experiment ("prior" or "a") is named after.

    The paper's default, a = 0.1 and prior = 0.8, is taken from the experiment "main". A rule that
    no set has at every value has no curve.
    """
    rules = summary.values(experiment, "lam")
    found = []
    for loss in summary.values(experiment, "loss"):
        values = sweep_values(summary, experiment, loss, rules)
        # Of each rule a line for each value; in it, our mean and the published of each set.
        curves = {}
        for rule in rules:
            curve = [_sweep_line(summary, experiment, loss, rule, value) for value in values]
            if _sets_in_all(curve):
                curves[rule] = curve
        sets = _sets_in_all([line for curve in curves.values() for line in curve])
        for rule, curve in curves.items() if sets else ():
            means = [tuple(fmean(line[name][i] for name in sets) for line in curve) for i in (0, 1)]
            found.append(Sweep(experiment, loss, rule, len(sets), tuple(values), *means))
    return found


def _sets_in_all(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in PAPER_SETS if all(name in line for line in lines)]


def _sweep_line(
    summary: Summary, experiment: str, loss: str, rule: Any, value: float | str
) -> dict[str, tuple[float, float]]:
    """Our mean AUC and the published one of each of the paper's sets that has both."""
    cells = (sweep_cell(summary, experiment, name, loss, rule, value) for name in PAPER_SETS)
    return {cell.dataset: cell.both for cell in cells if cell and cell.both}


def sweep_values(
    summary: Summary, experiment: str, loss: str, rules: Sequence[Any] = ()
) -> list[float | str]:
    """Values in the order of the paper: prior true, 0.9 ... 0.6, and a 0.1 ... 0.9.

    The default is one of them if "main" was run with one of `rules`.
    """
    default = DEFAULTS[experiment]
    values = set(summary.values(experiment, experiment))
    if any(
        sweep_cell(summary, experiment, dataset, loss, rule, default)
        for dataset in PAPER_SETS
        for rule in rules
    ):
        values.add(default)
    return sorted(values, key=lambda value: _value_order(experiment, value))


def sweep_cell(
    summary: Summary, experiment: str, dataset: str, loss: str, rule: Any, value: float | str
) -> Cell | None:
    """The cell at a value of the setting; that of the default is in the experiment "main"."""
    cell = summary.cell(experiment, dataset, "rad", loss=loss, lam=rule, **{experiment: value})
    if cell is None and value == DEFAULTS[experiment]:
        return summary.cell("main", dataset, "rad", loss=loss, lam=rule, **DEFAULTS)
    return cell
