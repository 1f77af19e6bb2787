"""Methods ranked over datasets, budget by budget, and the lead of AutoRAD over the best peer.

Under each budget of labels methods are compared on the sets and trials that all of them have. With
m_ij the mean of method j over these trials of set i, r_ij is its rank among the k methods (1 is
best, equals share their ranks), and R_j the mean of r_ij over the N sets. Friedman's test asks
whether all R_j may be equal but for chance; after Nemenyi two methods differ, at the level 0.05,
where |R_j - R_l| exceeds

    CD = q sqrt(k (k + 1) / (6 N)),

q being the 95 % quantile of the range of k standard normal variables, divided by sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from experiments.datasets import PAPER_SETS
from experiments.evaluation import TrialMean
from experiments.field.cells import BUDGETS, MAIN_BUDGET, METHODS, cells
from experiments.records import NOT_RUN, OK
from experiments.tables import counted

HEADLINE = "AutoRAD"  # the method that the targets are about
METRICS = {"AUC": "auc", "average precision": "average_precision"}
_LEVEL = 0.05

# What AutoRAD is to reach with 5 % of the rows labelled.
_LEAST = {"AUC": 0.935, "average precision": 0.76}
_MOST_SECONDS, _SMALL_SET = 20.0, 10_000

Trials = dict[str, dict[int, dict[str, Any]]]
"""Records that succeeded, by set and trial."""


class FieldRecords:
    """The records of the field: those of methods that have been run on all their cells.

    `unfinished` are methods of which cells are missing that others have; they are left out of all
    comparisons.
    """

    def __init__(self, frame: pl.DataFrame):
        rows = frame.to_dicts()
        self.not_run = [row for row in rows if row["status"] == NOT_RUN]
        tried = [row for row in rows if row["status"] != NOT_RUN]
        self.unfinished = _unfinished(tried)
        self.rows = [row for row in tried if row["method"] not in self.unfinished]
        self.absent = {row["method"]: row["reason"] for row in self.not_run if row.get("method")}

    @cached_property
    def budgets(self) -> list[str]:
        """Budgets of which there is a cell, the smallest first."""
        return [name for name in BUDGETS if any(row["budget"] == name for row in self.rows)]

    def trials(self, budget: str) -> dict[str, Trials]:
        """What succeeded under a budget, by method; sets are in the paper's order."""
        by_method: dict[str, Trials] = {}
        rows = [row for row in self.rows if row["budget"] == budget and row["status"] == OK]
        for row in sorted(rows, key=lambda row: (row["method"], _place(row["dataset"]))):
            trials = by_method.setdefault(row["method"], {}).setdefault(row["dataset"], {})
            trials[row["trial"]] = row
        return by_method

    def without_result(self, budget: str) -> list[str]:
        """Methods that have results under some budget, or could not be had, but none here."""
        somewhere = {row["method"] for row in self.rows if row["status"] == OK}
        return sorted((somewhere | set(self.absent)) - set(self.trials(budget)))


def _place(dataset: str) -> int:
    return PAPER_SETS.index(dataset)


def _unfinished(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many cells are missing, by method, of the sets that have been tried at all."""
    done = {tuple(row[name] for name in ("method", "dataset", "budget", "trial")) for row in rows}
    sets, methods = {key[1] for key in done}, {key[0] for key in done}
    missing: dict[str, int] = {}
    for cell in cells():
        key = (cell["method"], cell["dataset"], cell["budget"], cell["trial"])
        if key[0] in methods and key[1] in sets and key not in done:
            missing[cell["method"]] = missing.get(cell["method"], 0) + 1
    return missing


# --- methods side by side ----------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Methods on the sets and trials that all of them have, under one budget.

    `values` are, by metric and method, the means over trials in the order of `sets`, and `errors`
    the standard errors of the means of these over sets, by the choice of trials (None where a set
    has a single one). `n_trials` are the trials of each set; `seconds` the median time of a fit;
    `left_out` the sets that some method has and others have not.
    """

    budget: str
    methods: tuple[str, ...]
    sets: tuple[str, ...]
    left_out: tuple[str, ...]
    n_trials: tuple[int, ...]
    values: Mapping[str, Mapping[str, tuple[float, ...]]]
    errors: Mapping[str, Mapping[str, float | None]]
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, budget: str, trials: Mapping[str, Trials]) -> Comparison:
        """Compare methods, given what succeeded by method."""
        every = sorted({name for sets in trials.values() for name in sets}, key=_place)
        shared = {
            name: sorted(set.intersection(*(set(sets.get(name, {})) for sets in trials.values())))
            for name in every
        }
        sets = tuple(name for name in every if shared[name])
        means = {
            metric: {
                method: [
                    TrialMean.of([trials[method][name][trial][column] for trial in shared[name]])
                    for name in sets
                ]
                for method in trials
            }
            for metric, column in METRICS.items()
        }
        return cls(
            budget,
            tuple(trials),
            sets,
            left_out=tuple(name for name in every if not shared[name]),
            n_trials=tuple(len(shared[name]) for name in sets),
            values={
                metric: {name: tuple(each.mean for each in of) for name, of in by_method.items()}
                for metric, by_method in means.items()
            },
            errors={
                metric: {name: _joint_error(of) for name, of in by_method.items()}
                for metric, by_method in means.items()
            },
            seconds={
                method: median(by_set[s][t]["fit_seconds"] for s in sets for t in shared[s])
                for method, by_set in trials.items()
                if sets
            },
        )

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

    def groups(self, metric: str) -> list[tuple[int, int]]:
        """Places of methods that are not told apart, as `groups` has them."""
        return groups(list(self.ranks[metric].values()), self.critical_difference)

    def say_trials(self) -> str:
        """How many trials its sets have."""
        low, high = min(self.n_trials), max(self.n_trials)
        return counted(low, "trial") if low == high else f"{low} to {high} trials"

    def say_scope(self) -> str:
        """How many methods, sets and trials there are."""
        methods, sets = counted(len(self.methods), "method"), counted(len(self.sets), "set")
        return f"{methods}, {sets}, {self.say_trials()}"


def _joint_error(means: Sequence[TrialMean]) -> float | None:
    """Standard error of the mean of independent means."""
    errors = [mean.se for mean in means if mean.se is not None]
    return math.hypot(*errors) / len(errors) if 0 < len(errors) == len(means) else None


def comparisons(records: FieldRecords, budget: str) -> list[Comparison]:
    """All methods side by side, then those that have more trials than the slowest ones."""
    trials = records.trials(budget)
    most = {name: max(map(len, sets.values())) for name, sets in trials.items()}
    often = [name for name in trials if most[name] > min(most.values())]
    both = [list(trials), often] if len(often) > 1 else [list(trials)]
    made = [Comparison.of(budget, {name: trials[name] for name in names}) for names in both]
    return [comparison for comparison in made if comparison.sets]


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
    largest: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank <= cd)
        if last > first and (not largest or last > largest[-1][1]):
            largest.append((first, last))
    return largest


# --- the lead over the best peer ---------------------------------------------------------


@dataclass(frozen=True)
class Lead:
    """By how much AutoRAD's mean is above that of a peer; `over_sets` has its SE.

    `n_trials` are the trials that both have, of each set at most; `n_ahead` the sets in which
    AutoRAD is ahead.
    """

    peer: str
    over_sets: TrialMean
    n_trials: int
    n_sets: int
    n_ahead: int


def lead_over(trials: Mapping[str, Trials], peer: str, metric: str) -> Lead | None:
    """AutoRAD beside a method, on all sets and trials that both have."""
    pair = Comparison.of("", {name: trials[name] for name in (HEADLINE, peer)})
    ours, theirs = (pair.values[metric][name] for name in pair.methods)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    estimate = TrialMean.of(differences)
    if estimate is None:
        return None
    ahead = sum(difference > 0 for difference in differences)
    return Lead(peer, estimate, max(pair.n_trials), len(pair.sets), ahead)


def lead(records: FieldRecords, budget: str, metric: str) -> Lead | None:
    """AutoRAD beside the peer over which it leads least; None if it or all peers are missing.

    Peers that lack sets are left out where others have them all.
    """
    trials = records.trials(budget)
    if HEADLINE not in trials:
        return None
    leads = [lead_over(trials, peer, metric) for peer in trials if METHODS[peer].is_peer]
    there = [each for each in leads if each is not None]
    most = max((each.n_sets for each in there), default=0)
    complete = [each for each in there if each.n_sets == most]
    return min(complete, key=lambda each: each.over_sets.mean, default=None)


# --- targets -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What AutoRAD is to reach, what was measured, and whether that is enough (None: not run)."""

    text: str
    result: str = "not run"
    is_met: bool | None = None

    @property
    def verdict(self) -> str:
        """In a word."""
        return {True: "yes", False: "no", None: "cannot be said"}[self.is_met]


def targets(records: FieldRecords) -> list[Target]:
    """All targets, with verdicts computed from the records."""
    main = [c for c in comparisons(records, MAIN_BUDGET) if HEADLINE in c.methods]
    return [
        *(_mean_target(main, metric) for metric in METRICS),
        *(_rank_target(main, metric) for metric in METRICS),
        *_lead_targets(records),
        _time_target(records),
    ]


def _mean_target(main: Sequence[Comparison], metric: str) -> Target:
    """Over the comparison with the most trials, which comes last."""
    text = f"mean {metric} at {MAIN_BUDGET} >= {_LEAST[metric]:g}"
    if not main:
        return Target(text)
    mean, error = main[-1].mean(metric, HEADLINE), main[-1].errors[metric][HEADLINE]
    precision = "" if error is None else f" (SE {error:.4f} over trials)"
    return Target(text, f"{mean:.4f}{precision}, {main[-1].say_scope()}", mean >= _LEAST[metric])


def _rank_target(main: Sequence[Comparison], metric: str) -> Target:
    text = f"best mean rank in {metric} at {MAIN_BUDGET}"
    results, is_best = [], []
    for comparison in main:
        ranks = comparison.ranks[metric]
        others = {name: rank for name, rank in ranks.items() if name != HEADLINE}
        if others:
            best = min(others, key=others.__getitem__)
            result = f"{ranks[HEADLINE]:.2f} beside {others[best]:.2f} of {best}"
            results.append(f"{result}, {comparison.say_scope()}")
            is_best.append(ranks[HEADLINE] < others[best])
    return Target(text, "; ".join(results), all(is_best)) if results else Target(text)


def _lead_targets(records: FieldRecords) -> list[Target]:
    """With fewer labels than 5 % the lead is to be larger."""
    made = []
    fewer = BUDGETS[: BUDGETS.index(MAIN_BUDGET)]
    for budget in (name for name in records.budgets if name in fewer):
        for metric in METRICS:
            text = f"larger lead in {metric} over the best peer at {budget} than at {MAIN_BUDGET}"
            here, there = (lead(records, each, metric) for each in (budget, MAIN_BUDGET))
            if here is None or there is None:
                made.append(Target(text))
                continue
            result = ", ".join(
                f"{each.over_sets.mean:+.4f} over {each.peer} ({counted(each.n_trials, 'trial')})"
                for each in (here, there)
            )
            made.append(Target(text, result, here.over_sets.mean > there.over_sets.mean))
    return made


def _time_target(records: FieldRecords) -> Target:
    """The median over trials of sets with fewer than 10,000 rows."""
    text = f"median fit at most {_MOST_SECONDS:g} s on sets under {_SMALL_SET:,} rows"
    seconds: dict[str, list[float]] = {}
    for name, trials in records.trials(MAIN_BUDGET).get(HEADLINE, {}).items():
        first = next(iter(trials.values()))
        if first["n_train"] + first["n_test"] < _SMALL_SET:
            seconds[name] = [row["fit_seconds"] for row in trials.values()]
    if not seconds:
        return Target(text)
    middle = median(each for of in seconds.values() for each in of)
    slowest = max(seconds, key=lambda name: median(seconds[name]))
    result = (
        f"{middle:.1f} s over {counted(len(seconds), 'set')}; the slowest is {slowest} with "
        f"{median(seconds[slowest]):.1f} s"
    )
    return Target(text, result, middle <= _MOST_SECONDS)
