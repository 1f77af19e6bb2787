"""The benchmark against the field in numbers: methods ranked over datasets, budget by budget.

A budget says which labels were kept: a share of the rows, or so many anomalies alone. Under each,
methods are compared on the sets and trials that all of them have. With m_ij the mean of method j
over these trials of set i, r_ij is its rank among the k methods (1 is best, equals share their
ranks), and R_j the mean of r_ij over the N sets. Friedman's test asks whether all R_j may be equal
but for chance; after Nemenyi two methods differ, at the level 0.05, where |R_j - R_l| exceeds

    CD = q sqrt(k (k + 1) / (6 N)),

q being the 95 % quantile of the range of k standard normal variables, divided by sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from riskad.bench.experiment import anomaly_budget
from riskad.bench.summary import FIELD, CellSummary, Summary, TrialMean, counted

__all__ = [
    "HEADLINE",
    "METRICS",
    "Budget",
    "Comparison",
    "Lead",
    "Target",
    "budgets",
    "comparisons",
    "critical_difference",
    "groups",
    "lead",
    "say_budget",
    "say_trials",
    "targets",
    "without_result",
]

HEADLINE = "AutoRAD"  # the method that the targets are about
METRICS = ("AUC", "average precision")
_VALUES = {"AUC": "aucs", "average precision": "precisions"}
_PEERS = "riskad.bench.peers."
_LEVEL = 0.05

# What AutoRAD is to reach with 5 % of the rows labelled.
_MAIN_BUDGET = 0.05
_LEAST = {"AUC": 0.935, "average precision": 0.76}
_MOST_SECONDS, _SMALL_SET = 20.0, 10_000

Budget = float | str


def say_budget(budget: Budget) -> str:
    """How a budget is written.

    >>> say_budget(0.05), say_budget("5 anomalies")
    ('5 %', '5 anomalies')
    """
    return budget if isinstance(budget, str) else f"{100 * budget:g} %"


def budgets(summary: Summary) -> list[Budget]:
    """Budgets of which there is a cell, the smallest first: some anomalies alone, then shares."""
    found = {cell.recorded["labelled"] for cell in summary.of(FIELD)}
    return sorted(found, key=_size)


def _size(budget: Budget) -> tuple[bool, float]:
    count = anomaly_budget(budget)
    return count is None, float(budget) if count is None else count


# --- methods side by side ----------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Methods on the sets and trials that all of them have, under one budget.

    `values` are, by metric and method, the means over trials in the order of `sets`, and `errors`
    the standard errors of the means of these over sets, by the choice of trials (None where a set
    has a single one). `n_trials` are the trials of each set; `seconds` the median time of a fit.
    `peers` are the methods of others, `left_out` the sets that some method has and others have not.
    """

    budget: Budget
    methods: tuple[str, ...]
    peers: frozenset[str]
    sets: tuple[str, ...]
    left_out: tuple[str, ...]
    n_trials: tuple[int, ...]
    values: Mapping[str, Mapping[str, tuple[float, ...]]]
    errors: Mapping[str, Mapping[str, float | None]]
    seconds: Mapping[str, float]

    def mean(self, metric: str, method: str) -> float:
        """The mean over sets."""
        return fmean(self.values[metric][method])

    @cached_property
    def ranks(self) -> dict[str, dict[str, float]]:
        """R_j by metric and method; the methods in the order of their ranks."""
        ranks = {}
        for metric, values in self.values.items():
            table = np.array([values[method] for method in self.methods])
            means = rankdata(-table, axis=0).mean(axis=1).tolist()
            pairs = zip(self.methods, means, strict=True)
            ranks[metric] = dict(sorted(pairs, key=lambda pair: pair[1]))
        return ranks

    def wins(self, metric: str, method: str) -> int:
        """On how many sets no method has a larger mean."""
        values = self.values[metric]
        best = [max(means) for means in zip(*values.values(), strict=True)]
        return sum(mean == top for mean, top in zip(values[method], best, strict=True))

    def friedman(self, metric: str) -> float | None:
        """The p-value of Friedman's test; None for fewer than three methods or two sets."""
        if len(self.methods) < 3 or len(self.sets) < 2:
            return None
        p = float(friedmanchisquare(*self.values[metric].values()).pvalue)
        return None if math.isnan(p) else p

    @property
    def critical_difference(self) -> float:
        """CD for as many methods and sets as there are."""
        return critical_difference(len(self.methods), len(self.sets))


def comparisons(summary: Summary, budget: Budget) -> list[Comparison]:
    """All methods side by side, then those that have more trials than the slowest ones."""
    cells = _cells(summary, budget)
    trials = {name: max(cell.n_ok for cell in found.values()) for name, found in cells.items()}
    often = [name for name in cells if trials[name] > min(trials.values())]
    both = [list(cells), often] if len(often) > 1 else [list(cells)]
    made = [_compare(budget, {name: cells[name] for name in names}) for names in both]
    return [comparison for comparison in made if comparison.sets]


def _cells(summary: Summary, budget: Budget) -> dict[str, dict[str, CellSummary]]:
    """What succeeded under a budget, by method and set."""
    cells: dict[str, dict[str, CellSummary]] = {}
    for cell in summary.of(FIELD, labelled=budget):
        if cell.auc:
            cells.setdefault(cell.method, {})[cell.dataset] = cell
    return cells


def _compare(budget: Budget, cells: Mapping[str, Mapping[str, CellSummary]]) -> Comparison:
    every = list(dict.fromkeys(name for found in cells.values() for name in found))
    shared = {name: _shared_trials([found.get(name) for found in cells.values()]) for name in every}
    sets = [name for name in every if shared[name]]

    def by_set(metric: str, method: str) -> list[TrialMean]:
        values = {name: getattr(cells[method][name], _VALUES[metric]) for name in sets}
        made = (TrialMean.of([values[name][trial] for trial in shared[name]]) for name in sets)
        return [estimate for estimate in made if estimate]

    means = {metric: {method: by_set(metric, method) for method in cells} for metric in METRICS}
    return Comparison(
        budget,
        tuple(cells),
        frozenset(name for name, found in cells.items() if _is_peer(next(iter(found.values())))),
        tuple(sets),
        tuple(name for name in every if not shared[name]),
        tuple(len(shared[name]) for name in sets),
        {m: {name: tuple(one.mean for one in of[name]) for name in of} for m, of in means.items()},
        {m: {name: _joint_error(of[name]) for name in of} for m, of in means.items()},
        {
            name: median(found[s].seconds[trial] for s in sets for trial in shared[s])
            for name, found in cells.items()
            if sets
        },
    )


def _joint_error(means: Sequence[TrialMean]) -> float | None:
    """Standard error of the mean of independent means."""
    errors = [mean.se for mean in means if mean.se is not None]
    return math.hypot(*errors) / len(errors) if 0 < len(errors) == len(means) else None


def _shared_trials(cells: Sequence[CellSummary | None]) -> list[tuple[int, int]]:
    """Trials in which every cell succeeded."""
    trials = [set(cell.aucs) if cell else set() for cell in cells]
    return sorted(set[tuple[int, int]].intersection(*trials))


def _is_peer(cell: CellSummary) -> bool:
    return str(cell.protocol.get("estimator")).startswith(_PEERS)


def without_result(summary: Summary, budget: Budget) -> list[str]:
    """Methods that have results under some budget, or could not be had, and none under this one."""
    run = {cell.method for cell in summary.of(FIELD) if cell.auc}
    absent = {row.name for row in summary.absent if row.experiment == FIELD}
    here = {cell.method for cell in summary.of(FIELD, labelled=budget) if cell.auc}
    return sorted((run | absent) - here)


# --- ranks that differ -------------------------------------------------------------------


def critical_difference(k: int, n_sets: int) -> float:
    """CD of k methods over N sets.

    >>> round(critical_difference(5, 30), 3)  # q = 2.728
    1.114
    """
    q = studentized_range.ppf(1 - _LEVEL, k, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(k * (k + 1) / (6 * n_sets)))


def groups(ranks: Sequence[float], cd: float) -> list[tuple[int, int]]:
    """Places (first, last) of the largest groups of methods of which no two differ by more than CD.

    `ranks` are in ascending order; a method that differs from all others is in no group.

    >>> groups([1.0, 1.5, 2.2, 4.0], cd=1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank <= cd)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


# --- the lead over the best peer ---------------------------------------------------------


@dataclass(frozen=True)
class Lead:
    """By how much AutoRAD's mean is above that of the best peer; `over_sets` has its SE."""

    metric: str
    peer: str
    over_sets: TrialMean
    n_trials: int
    """Trials that both have, of each set at most."""


def lead(summary: Summary, budget: Budget, metric: str) -> Lead | None:
    """AutoRAD beside the peer over which it leads least; None if it or all peers are missing.

    Each peer is compared on all sets and trials that it and AutoRAD have; peers that lack sets are
    left out where others have them all.
    """
    cells = _cells(summary, budget)
    rivals = [name for name, found in cells.items() if _is_peer(next(iter(found.values())))]
    if HEADLINE not in cells or not rivals:
        return None
    pairs = [_compare(budget, {name: cells[name] for name in (HEADLINE, peer)}) for peer in rivals]
    most = max(len(pair.sets) for pair in pairs)
    found = [_lead(pair, metric) for pair in pairs if pair.sets and len(pair.sets) == most]
    return min(filter(None, found), key=lambda one: one.over_sets.mean, default=None)


def _lead(pair: Comparison, metric: str) -> Lead | None:
    ours, theirs = (pair.values[metric][name] for name in pair.methods)
    estimate = TrialMean.of([a - b for a, b in zip(ours, theirs, strict=True)])
    return Lead(metric, pair.methods[1], estimate, max(pair.n_trials)) if estimate else None


# --- targets -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What AutoRAD is to reach, what was found, and whether that is enough (None: not run)."""

    text: str
    found: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """In a word."""
        return {True: "yes", False: "no", None: "cannot be said"}[self.met]


def targets(summary: Summary) -> list[Target]:
    """All targets, with verdicts computed from the records."""
    compared = {budget: comparisons(summary, budget) for budget in budgets(summary)}
    main = [c for c in compared.get(_MAIN_BUDGET, []) if HEADLINE in c.methods]
    return [
        *(_mean_target(main, metric) for metric in METRICS),
        *(_rank_target(main, metric) for metric in METRICS),
        *_lead_targets(summary),
        _time_target(summary),
    ]


def _mean_target(main: Sequence[Comparison], metric: str) -> Target:
    """Over the comparison with the most trials, which comes last."""
    least = _LEAST[metric]
    text = f"mean {metric} at {say_budget(_MAIN_BUDGET)} >= {least:g}"
    if not main:
        return Target(text, "not run", None)
    mean, error = main[-1].mean(metric, HEADLINE), main[-1].errors[metric][HEADLINE]
    said = f"{mean:.4f}" if error is None else f"{mean:.4f} (SE {error:.4f} over trials)"
    return Target(text, f"{said}, {_scope(main[-1])}", mean >= least)


def _rank_target(main: Sequence[Comparison], metric: str) -> Target:
    text = f"best mean rank in {metric} at {say_budget(_MAIN_BUDGET)}"
    found, met = [], []
    for comparison in main:
        ranks = comparison.ranks[metric]
        others = {name: rank for name, rank in ranks.items() if name != HEADLINE}
        if others:
            best = min(others, key=others.__getitem__)
            said = f"{ranks[HEADLINE]:.2f} beside {others[best]:.2f} of {best}"
            found.append(f"{said}, {_scope(comparison)}")
            met.append(ranks[HEADLINE] < others[best])
    return Target(text, "; ".join(found) or "not run", all(met) if met else None)


def _lead_targets(summary: Summary) -> list[Target]:
    """With fewer labels than 5 % the lead is to be larger."""
    made = []
    fewer = [budget for budget in budgets(summary) if _size(budget) < _size(_MAIN_BUDGET)]
    for budget in fewer:
        for metric in METRICS:
            text = (
                f"larger lead in {metric} over the best peer at {say_budget(budget)} than at "
                f"{say_budget(_MAIN_BUDGET)}"
            )
            here, there = (lead(summary, one, metric) for one in (budget, _MAIN_BUDGET))
            if here is None or there is None:
                made.append(Target(text, "not run", None))
                continue
            found = ", ".join(
                f"{one.over_sets.mean:+.4f} over {one.peer} ({counted(one.n_trials, 'trial')})"
                for one in (here, there)
            )
            made.append(Target(text, found, here.over_sets.mean > there.over_sets.mean))
    return made


def _time_target(summary: Summary) -> Target:
    """The median over trials of sets with fewer than 10,000 rows."""
    text = f"median fit at most {_MOST_SECONDS:g} s on sets under {_SMALL_SET:,} rows"
    cells = [
        cell
        for cell in summary.of(FIELD, HEADLINE, labelled=_MAIN_BUDGET)
        if cell.seconds and cell.n_rows and cell.n_rows < _SMALL_SET
    ]
    if not cells:
        return Target(text, "not run", None)
    middle = median(seconds for cell in cells for seconds in cell.seconds.values())
    slowest = max(cells, key=lambda cell: median(cell.seconds.values()))
    found = (
        f"{middle:.1f} s over {counted(len(cells), 'set')}; the slowest is {slowest.dataset} with "
        f"{median(slowest.seconds.values()):.1f} s"
    )
    return Target(text, found, middle <= _MOST_SECONDS)


def _scope(comparison: Comparison) -> str:
    methods, sets = len(comparison.methods), len(comparison.sets)
    return f"{counted(methods, 'method')}, {counted(sets, 'set')}, {say_trials(comparison)}"


def say_trials(comparison: Comparison) -> str:
    """How many trials its sets have."""
    low, high = min(comparison.n_trials), max(comparison.n_trials)
    return counted(low, "trial") if low == high else f"{low} to {high} trials"
