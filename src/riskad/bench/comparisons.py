"""Methods over datasets: means, how often the published is reached, and what the paper claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from riskad.bench.paper import PAPER_SETS, paper_set
from riskad.bench.summary import (
    DEFAULTS,
    LIKE_PUBLISHED,
    SMALL_PI_N,
    CellSummary,
    Summary,
    canonical_json,
    value_order,
    variant_order,
)

__all__ = [
    "Gap",
    "LossReach",
    "Overall",
    "SetGap",
    "Sweep",
    "gaps",
    "headline_rule",
    "overall",
    "reach_by_loss",
    "set_gaps",
    "sweep_cell",
    "sweep_values",
    "sweeps",
]

_HEADLINE = "cv"


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
    cells: Mapping[str, CellSummary]
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
    groups: dict[tuple[str, str], dict[str, CellSummary]] = defaultdict(dict)
    for cell in sorted(summary.of(experiment), key=variant_order):
        place = groups[cell.method, canonical_json(summary.shown(cell))]
        best = place.get(cell.dataset)
        if cell.auc and (best is None or cell.n_ok > best.n_ok):
            place[cell.dataset] = cell
    found = [cells for cells in groups.values() if cells]
    shared = set.intersection(*(set(_candidates(cells)) for cells in found)) if found else set()
    return [_overall(summary, cells, shared) for cells in found]


def _candidates(cells: Mapping[str, CellSummary]) -> tuple[str, ...]:
    return tuple(name for name in cells if cells[name].published) or tuple(cells)


def _overall(summary: Summary, cells: Mapping[str, CellSummary], shared: set[str]) -> Overall:
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
class LossReach:
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


def reach_by_loss(summary: Summary) -> list[LossReach]:
    """The target of "main" for each loss, with the rule for lambda that stands for rAD."""
    found, rule = [], headline_rule(summary)
    for loss in summary.values("main", "loss"):
        wanted = {"loss": loss, "lam": rule, **DEFAULTS}
        places = (summary.cell("main", name, "rad", **wanted) for name in PAPER_SETS)
        cells = [cell for cell in places if cell and cell.published]
        both = [cell.both for cell in cells if cell.both]
        if both:
            found.append(
                LossReach(
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
    the variant that most resembles the published: an SVM that takes the unlabelled rows as normal.
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
    return sorted(values, key=lambda value: value_order(experiment, value))


def sweep_cell(
    summary: Summary, experiment: str, dataset: str, loss: str, rule: Any, value: float | str
) -> CellSummary | None:
    """The cell at a value of the setting; that of the default is in the experiment "main"."""
    cell = summary.cell(experiment, dataset, "rad", loss=loss, lam=rule, **{experiment: value})
    if cell is None and value == DEFAULTS[experiment]:
        return summary.cell("main", dataset, "rad", loss=loss, lam=rule, **DEFAULTS)
    return cell
