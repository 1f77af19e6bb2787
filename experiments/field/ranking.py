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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import rankdata, studentized_range

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


class FieldRecords:
    """The records of the field: those of methods that have been run on all their cells.

    `unfinished` are methods of which cells are missing that others have; they are left out of all
    comparisons. `absent` are methods that could not be had, and why.
    """

    def __init__(self, frame: pl.DataFrame):
        self.not_run = frame.filter(pl.col("status") == NOT_RUN).to_dicts()
        self.absent = {row["method"]: row["reason"] for row in self.not_run if row["method"]}
        tried = frame.filter(pl.col("status") != NOT_RUN)
        done = set(tried.select("method", "dataset", "budget", "trial").iter_rows())
        methods, sets = ({key[i] for key in done} for i in (0, 1))
        planned = [(c["method"], c["dataset"], c["budget"], c["trial"]) for c in cells()]
        missing = [key for key in planned if key[0] in methods and key[1] in sets]
        self.unfinished = Counter(key[0] for key in missing if key not in done)
        finished = tried.filter(~pl.col("method").is_in(list(self.unfinished)))
        self.rows = finished.to_dicts()
        in_order = pl.col("dataset").cast(pl.Enum(PAPER_SETS))
        self._succeeded = finished.filter(pl.col("status") == OK).with_columns(in_order)

    def succeeded(self, budget: str) -> pl.DataFrame:
        """What succeeded under a budget."""
        return self._succeeded.filter(pl.col("budget") == budget)

    @cached_property
    def budgets(self) -> list[str]:
        """Budgets under which AutoRAD and some peer have results, the smallest first."""
        methods = {budget: set(self.succeeded(budget)["method"]) for budget in BUDGETS}
        return [
            budget
            for budget, names in methods.items()
            if HEADLINE in names and any(METHODS[name].is_peer for name in names)
        ]

    @cached_property
    def leads(self) -> dict[str, dict[str, Lead]]:
        """By budget and metric, AutoRAD beside the peer over which it leads least.

        Peers that lack sets are left out where others have them all.
        """
        leads = {}
        for budget in self.budgets:
            rows = self.succeeded(budget)
            peers = [name for name in rows["method"].unique().sort() if METHODS[name].is_peer]
            pairs = [Comparison(rows, [HEADLINE, peer]) for peer in peers]
            pairs = [pair for pair in pairs if len(pair.sets) == max(len(p.sets) for p in pairs)]
            leads[budget] = {
                metric: min((pair.lead(metric) for pair in pairs), key=lambda lead: lead.over.mean)
                for metric in METRICS
            }
        return leads

    def without_result(self, budget: str) -> list[str]:
        """Methods that have results under some budget, or could not be had, but none here."""
        somewhere = set(self._succeeded["method"]) | set(self.absent)
        return sorted(somewhere - set(self.succeeded(budget)["method"]))


# --- methods side by side ----------------------------------------------------------------


@dataclass(frozen=True)
class Lead:
    """By how much AutoRAD's mean over sets is above that of a peer, with the SE over sets.

    `n_trials` are the trials that both have, of each set at most; `n_ahead` the sets in which
    AutoRAD is ahead.
    """

    peer: str
    over: TrialMean
    n_trials: int
    n_ahead: int


class Comparison:
    """Methods on the sets and trials that all of them have, under one budget.

    `values` are, by metric and method, the means over trials in the order of `sets`; `n_trials` the
    trials of each set; `seconds` the median time of a fit.
    """

    def __init__(self, rows: pl.DataFrame, methods: Sequence[str]):
        self.methods, self.budget = sorted(methods), rows["budget"][0]
        rows = rows.filter(pl.col("method").is_in(self.methods))
        rows = rows.filter(pl.len().over("dataset", "trial") == len(methods))
        self._rows = rows = rows.sort("method", "dataset", "trial")
        self.sets = rows["dataset"].unique().sort().to_list()
        self.n_trials = rows.group_by("dataset").agg(pl.col("trial").n_unique())["trial"].to_list()
        # Rounded, so that means of the same values are equal in whatever order these come.
        means = rows.group_by("method", "dataset", maintain_order=True).agg(
            pl.col(METRICS.values()).mean().round(10)
        )
        tables = {
            metric: means[column].to_numpy().reshape(len(methods), len(self.sets))
            for metric, column in METRICS.items()
        }
        self.values = {
            metric: dict(zip(self.methods, table, strict=True)) for metric, table in tables.items()
        }
        medians = rows.group_by("method").agg(pl.col("fit_seconds").median())
        self.seconds: dict[str, float] = dict(medians.iter_rows())

    def mean(self, metric: str, method: str) -> float:
        """The mean over sets."""
        return float(self.values[metric][method].mean())

    def error(self, metric: str, method: str) -> float:
        """The standard error of the mean over sets, by the choice of trials."""
        own = self._rows.filter(pl.col("method") == method).group_by("dataset")
        squares = own.agg(pl.col(METRICS[metric]).var() / pl.len())[METRICS[metric]]
        return math.sqrt(squares.sum()) / len(self.sets)

    @cached_property
    def ranks(self) -> dict[str, dict[str, float]]:
        """R_j by metric and method; the methods in the order of their ranks."""
        ranks = {}
        for metric, values in self.values.items():
            means = rankdata(-np.array(list(values.values())), axis=0).mean(axis=1).tolist()
            pairs = zip(self.methods, means, strict=True)
            ranks[metric] = dict(sorted(pairs, key=lambda pair: pair[1]))
        return ranks

    def wins(self, metric: str, method: str) -> int:
        """On how many sets no method has a larger mean."""
        values = self.values[metric]
        return int((values[method] == np.max(list(values.values()), axis=0)).sum())

    def lead(self, metric: str) -> Lead:
        """AutoRAD less the other method, of two."""
        (peer,) = set(self.methods) - {HEADLINE}
        gaps = self.values[metric][HEADLINE] - self.values[metric][peer]
        estimate = TrialMean.of(gaps.tolist())
        assert estimate is not None, "no sets"
        return Lead(peer, estimate, max(self.n_trials), int((gaps > 0).sum()))

    def say_scope(self) -> str:
        """How many methods, sets and trials there are."""
        low, high = min(self.n_trials), max(self.n_trials)
        trials = counted(low, "trial") if low == high else f"{low} to {high} trials"
        return f"{counted(len(self.methods), 'method')}, {counted(len(self.sets), 'set')}, {trials}"


def comparisons(records: FieldRecords, budget: str) -> list[Comparison]:
    """All methods side by side, then those that have more trials than the slowest ones."""
    rows = records.succeeded(budget)
    most = dict(rows.group_by("method").agg(pl.col("trial").n_unique()).iter_rows())
    often = [name for name, n_trials in most.items() if n_trials > min(most.values())]
    both = [list(most), often] if len(often) > 1 else [list(most)]
    compared = [Comparison(rows, names) for names in both]
    return [comparison for comparison in compared if comparison.sets]


def critical_difference(k: int, n_sets: int) -> float:
    """CD of k methods over N sets.

    >>> round(critical_difference(5, 30), 3)  # q = 2.728
    1.114
    """
    q = studentized_range.ppf(1 - _LEVEL, k, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(k * (k + 1) / (6 * n_sets)))


# --- targets -----------------------------------------------------------------------------


def targets(records: FieldRecords) -> list[tuple[str, str, str]]:
    """What AutoRAD is to reach, what was measured, and whether that is enough."""
    if MAIN_BUDGET not in records.budgets:
        return []
    main = comparisons(records, MAIN_BUDGET)
    judged = [
        *(_mean_target(main[-1], metric) for metric in METRICS),
        *(_rank_target(main, metric) for metric in METRICS),
        *_lead_targets(records),
        *_time_target(records),
    ]
    return [(text, result, "yes" if is_met else "no") for text, result, is_met in judged]


def _mean_target(comparison: Comparison, metric: str) -> tuple[str, str, bool]:
    mean, error = comparison.mean(metric, HEADLINE), comparison.error(metric, HEADLINE)
    text = f"mean {metric} at {MAIN_BUDGET} >= {_LEAST[metric]:g}"
    result = f"{mean:.4f} (SE {error:.4f} over trials), {comparison.say_scope()}"
    return text, result, mean >= _LEAST[metric]


def _rank_target(main: Sequence[Comparison], metric: str) -> tuple[str, str, bool]:
    results, is_best = [], []
    for comparison in main:
        ranks = comparison.ranks[metric]
        best = next(name for name in ranks if name != HEADLINE)
        result = f"{ranks[HEADLINE]:.2f} beside {ranks[best]:.2f} of {best}"
        results.append(f"{result}, {comparison.say_scope()}")
        is_best.append(ranks[HEADLINE] < ranks[best])
    return f"best mean rank in {metric} at {MAIN_BUDGET}", "; ".join(results), all(is_best)


def _lead_targets(records: FieldRecords) -> list[tuple[str, str, bool]]:
    """With fewer labels than 5 % the lead is to be larger."""
    judged = []
    for budget in records.budgets[: records.budgets.index(MAIN_BUDGET)]:
        for metric in METRICS:
            here, there = (records.leads[each][metric] for each in (budget, MAIN_BUDGET))
            text = f"larger lead in {metric} over the best peer at {budget} than at {MAIN_BUDGET}"
            result = ", ".join(
                f"{each.over.mean:+.4f} over {each.peer} ({counted(each.n_trials, 'trial')})"
                for each in (here, there)
            )
            judged.append((text, result, here.over.mean > there.over.mean))
    return judged


def _time_target(records: FieldRecords) -> list[tuple[str, str, bool]]:
    """The median over trials of sets with fewer than 10,000 rows."""
    rows = records.succeeded(MAIN_BUDGET).filter(pl.col("method") == HEADLINE)
    rows = rows.filter(pl.col("n_train") + pl.col("n_test") < _SMALL_SET)
    medians = rows.group_by("dataset").agg(pl.col("fit_seconds").median()).sort("fit_seconds")
    if not len(rows):
        return []
    middle: Any = rows["fit_seconds"].median()
    slowest, seconds = medians.row(-1)
    text = f"median fit at most {_MOST_SECONDS:g} s on sets under {_SMALL_SET:,} rows"
    sets = counted(len(medians), "set")
    result = f"{middle:.1f} s over {sets}; the slowest is {slowest} with {seconds:.1f} s"
    return [(text, result, middle <= _MOST_SECONDS)]
