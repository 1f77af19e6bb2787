"""The kinds of detector that `AutoRAD` averages, and how many of them a budget allows.

A budget of seconds buys rows to learn from, members, rows that the network reads and scores, and
folds. All is planned before the fit from the shape of the table (`plan_fit`), with constants that
were measured once on one core of a typical machine. So the same data and seed give the same model
on a slow or busy machine; there the fit takes longer than its budget. Only if it takes ten times as
long (`Clock`), planned work is left out, with a warning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.core.checks import InputError, MissingLibrary
from riskad.core.labels import UNLABELLED, LabelCounts, count_labels
from riskad.detectors.auto.novelty import JUDGES, MOST_KINDS, NOVELTY, Novelty
from riskad.detectors.auto.views import COMPARED, Member, with_labelled
from riskad.detectors.boosted import BoostedRAD, LabelledTrees, labelled_growth, lightgbm_library
from riskad.detectors.features.union import NativeColumns
from riskad.detectors.forest import ForestRAD
from riskad.detectors.linear.candidates import Candidate, choose_candidate
from riskad.detectors.pretrained import READS_COLUMNS, PretrainedRAD, labelled_rows_read
from riskad.detectors.shallow import ShallowRAD

SPLITS = 5
FOLD_SCORED = 100  # unlabelled rows that the network scores in a fold, beside those held out
_MOST_ROWS = 20_000  # that members learn from; beyond it unlabelled rows are sampled
_MOST_READ = 300  # unlabelled rows that the network reads
# The members' settings. A larger a trusts the unlabelled rows more; at 0.02 they weigh a fiftieth
# of the risk.
_PRIOR, _A, _LAMBDA = 0.8, 0.02, 0.003
_TREES, _ROUNDS = 200, 150
_MOST_BOOSTED = 3_000  # unlabelled rows
_ANY_LEAF = 0.001  # below the weight 1 of a labelled row: each may have a leaf of its own
_FEWEST_TO_CLASSIFY, _ENOUGH_TO_CLASSIFY = 10, 50  # labelled anomalies
_KNOWLEDGE_WORTH = 100  # labelled anomalies that halve the weight of the network
# The first is the default, which wins unless another is clearly better; the others change lambda,
# or a and prior.
_KERNEL_CHOICES = [
    *(Candidate(_A, _PRIOR, lam) for lam in (_LAMBDA, 0.001, 0.01, 0.03)),
    *(Candidate(a, prior, _LAMBDA) for a, prior in ((_A, 0.95), (0.1, _PRIOR), (0.1, 0.95))),
]
_FREE_INTERCEPT = 10.0  # B: the penalty on the intercept is a hundredth of that on a weight


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine the work of a fit."""

    rows: int  # to learn from, including labelled ones
    columns: int  # in numbers
    labelled: int
    counting: int  # rows of a forest: labelled ones, or all if only one kind of label is present
    read: int  # labelled rows that the network reads
    network_columns: int  # that it reads of each row
    all_labelled: int = 0  # including those beyond `rows`

    @classmethod
    def of(
        cls, codes: np.ndarray, n_columns: int, slices: Mapping[str, slice], n_extra: int
    ) -> Sizes:
        """Those of rows with these labels and a plain view, and of further labelled rows."""
        n_labelled = int((codes != UNLABELLED).sum())
        network = columns_for_network(slices, native=None), "outliers"
        # With both kinds of label the forest learns from labelled rows alone.
        labels = count_labels(codes)
        both = labels.normal and labels.anomaly
        return cls(
            rows=len(codes),
            columns=n_columns,
            labelled=n_labelled,
            counting=n_labelled if both else len(codes),
            read=labelled_rows_read(codes),
            network_columns=sum(slices[part].stop - slices[part].start for part in network),
            all_labelled=n_labelled + n_extra,
        )


@dataclass(frozen=True)
class Recipe:
    """How a member is made: of which parts of which view of the columns, by which detector.

    `build` makes the unfitted detector from the numbers of labels and a seed; `tune` chooses
    settings from its features, the codes and a seed. Folds do not tune: they hold labels out.
    """

    view: str
    parts: tuple[str, ...]
    build: Callable[[LabelCounts, int], Member]
    weight: float = 1.0  # b_k: beside others that do equally well, with few anomalies
    # Of a fit on one core, rounded up.
    seconds: Callable[[Sizes], float] = lambda n: 1 + 1e-4 * n.rows * (1 + n.columns / 50)
    most_rows: int = _MOST_ROWS  # unlabelled rows that it learns from
    tune: Callable[[np.ndarray, np.ndarray, int], dict[str, Any]] | None = None
    pretrained: bool = False  # it reads training rows whenever it scores
    fewest_labels: int = 0  # of each kind
    all_labelled: bool = False  # it learns from labelled rows alone, and from all of them
    needs_lightgbm: bool = False

    def weight_with(self, n_anomaly: int) -> float:
        if self.all_labelled:
            return self.weight * min(1.0, n_anomaly / _ENOUGH_TO_CLASSIFY)
        if self.pretrained:
            return self.weight / (1 + n_anomaly / _KNOWLEDGE_WORTH)
        return self.weight

    def parts_among(
        self, slices: Mapping[str, slice], native: NativeColumns | None
    ) -> tuple[str, ...]:
        """Return the parts that the member sees, of a view that has these."""
        if not self.pretrained:
            return self.parts
        # It reads blanks and levels of categories directly, from native columns if there are any.
        columns = columns_for_network(slices, native)
        return tuple(columns if part == "columns" else part for part in self.parts)


def columns_for_network(slices: Mapping[str, slice], native: NativeColumns | None) -> str:
    """Return the part that the network reads beside outlier scores."""
    widths = {part: span.stop - span.start for part, span in slices.items()}
    n_columns = widths["columns"] if native is None else native.n_features_out_
    if n_columns + widths["outliers"] > READS_COLUMNS:
        return "components"
    return "columns" if native is None else "native"


def _risk(labels: LabelCounts) -> str:
    """The risk for which all kinds of row are present."""
    if not labels.normal:
        return "nu"
    if not labels.anomaly:
        return "pu"
    return "rad" if labels.unlabelled else "pn"


def _forest(labels: LabelCounts, seed: int) -> ForestRAD:
    # It uses unlabelled rows only through features if there are labels of both kinds.
    risk = "pn" if labels.normal and labels.anomaly else _risk(labels)
    forest = ForestRAD(risk=risk, prior=_PRIOR, n_estimators=_TREES, random_state=seed)
    # Without unlabelled rows no leaf is too small: a person has looked at each labelled row.
    return forest.set_params(min_samples_leaf=_ANY_LEAF) if risk == "pn" else forest


def _kernel(labels: LabelCounts, seed: int) -> ShallowRAD:
    # Squared loss: one linear system, and no steps that would have to converge.
    kernel = ShallowRAD("squared", risk=_risk(labels), scale=False, random_state=seed)
    settings = _KERNEL_CHOICES[0]._asdict()
    return kernel.set_params(intercept_scaling=_FREE_INTERCEPT, **settings)


def _tune_kernel(F: np.ndarray, codes: np.ndarray, seed: int) -> dict[str, Any]:
    """a, prior and lambda of the kernel member, by `riskad.detectors.linear.candidates`."""
    best = _KERNEL_CHOICES[0]
    if count_labels(codes).unlabelled:
        rows = with_labelled(codes, COMPARED)
        # As in the fit, whose intercept is penalised like the weight of such a column.
        Z = np.column_stack([F[rows], np.full(len(rows), _FREE_INTERCEPT)])
        best = choose_candidate(Z, codes[rows], _KERNEL_CHOICES, seed)
    return best._asdict()


def _boosted_seconds(sizes: Sizes) -> float:
    rows = min(sizes.rows, _MOST_BOOSTED + sizes.labelled)
    # 22 more columns: two outlier scores and 20 components.
    return 0.2 + 2.3e-6 * rows * (sizes.columns + 22)


def _labelled_trees_seconds(sizes: Sizes) -> float:
    rounds = labelled_growth(sizes.all_labelled, max(sizes.columns, 1))["num_iterations"]
    return 0.1 + 1.5e-6 * sizes.all_labelled * (sizes.columns + 10) * max(1.0, rounds / 600)


# Weights are relative: with equal held-out AUCs the network counts as six forests. Seconds were
# measured on one core and rounded up.
MEMBERS: dict[str, Recipe] = {
    "smooth forest": Recipe(
        "smooth",
        ("columns", "outliers", "components"),
        _forest,
        seconds=lambda sizes: 0.25 + 2.5e-4 * sizes.counting,
    ),
    "kernel": Recipe(
        "smooth",
        ("kernels", "outliers"),
        _kernel,
        weight=0.5,
        seconds=lambda sizes: 0.35 + 3e-5 * sizes.rows + 1e-4 * sizes.labelled,
        tune=_tune_kernel,
    ),
    "network": Recipe(
        "plain",
        ("columns", "outliers"),
        lambda labels, seed: PretrainedRAD(unlabelled=_MOST_READ, random_state=seed),
        weight=6.0,
        seconds=lambda sizes: 0.0,  # beyond what it reads and scores
        pretrained=True,
    ),
    "boosted": Recipe(
        "smooth",
        ("columns", "outliers", "components"),
        lambda labels, seed: BoostedRAD(
            risk=_risk(labels), a=_A, prior=_PRIOR, max_iter=_ROUNDS, random_state=seed
        ),
        weight=1.5,
        seconds=_boosted_seconds,
        most_rows=_MOST_BOOSTED,
        needs_lightgbm=True,
    ),
    "labelled trees": Recipe(
        "plain",
        ("columns",),
        lambda labels, seed: LabelledTrees(random_state=seed),
        weight=2.0,
        seconds=_labelled_trees_seconds,
        fewest_labels=_FEWEST_TO_CLASSIFY,
        all_labelled=True,
        needs_lightgbm=True,
    ),
    NOVELTY: Recipe(
        "plain", ("outliers",), lambda labels, seed: Novelty(), seconds=lambda sizes: 0.0
    ),
}
"""By name, in the order in which they get their share of a budget."""

_CLASSES = (ForestRAD, ShallowRAD, PretrainedRAD, BoostedRAD, LabelledTrees, Novelty)
MEMBER_TYPES = [cls.__name__ for cls in _CLASSES]
"""Names of classes that may be members, also in files."""


def add_member(name: str, recipe: Recipe, type_name: str) -> None:
    """Make another kind of detector a member of every `AutoRAD` that is fitted later."""
    if name in MEMBERS:
        raise InputError(f"AutoRAD has a member {name!r} already; choose another name.")
    MEMBERS[name] = recipe
    MEMBER_TYPES.append(type_name)


def available_members(labels: LabelCounts) -> dict[str, Recipe]:
    """Return the members that can learn from these labels, with the libraries of this machine."""
    if sum(n > 0 for n in (labels.normal, labels.anomaly, labels.unlabelled)) < 2:
        raise InputError(
            f"AutoRAD tells kinds of row apart, and y has one only: {labels}. "
            "Label some rows with -1 (anomaly) or +1 (normal), and leave the others at 0."
        )
    lacks_lightgbm = without_lightgbm() is not None
    return {
        name: recipe
        for name, recipe in MEMBERS.items()
        if min(labels.normal, labels.anomaly) >= recipe.fewest_labels
        and not (recipe.needs_lightgbm and lacks_lightgbm)
    }


def without_lightgbm() -> str | None:
    """Return what a model lacks on this machine, and why; None if it lacks nothing.

    LightGBM is installed with riskad, unless its wheel needs further steps (macOS).
    """
    try:
        lightgbm_library()
    except MissingLibrary as error:
        names = [name for name, recipe in MEMBERS.items() if recipe.needs_lightgbm]
        return f"AutoRAD goes without its members {' and '.join(names)}. {error}"
    return None


# --- the plan of a fit ----------------------------------------------------------------------

_ROWS_PER_SECOND, _FEWEST_PER_SECOND, _FEWEST_ROWS, _ENOUGH_ROWS = 1_000, 150, 200, 1_000
_PER_PAIR, _ALONE = 5e-8, 400  # seconds per cell and context row; cost of a cell without a context
# Rows that the network reads, and rows that it scores for decisions: the first that the budget
# allows.
_NETWORK_WORK = ((_MOST_READ, 3_000), (_MOST_READ, COMPARED), (150, COMPARED), (50, COMPARED))
_FOLD_SHARE = 0.3  # of the seconds of a member, for its lighter fit in a fold


def rows_within_budget(seconds: float, n_columns: int) -> tuple[int, int]:
    """Return for how many rows features can be learned, and the minimum of unlabelled rows."""
    most = _ROWS_PER_SECOND * seconds / (1 + n_columns / 50)
    fewest = min(_ENOUGH_ROWS, max(_FEWEST_ROWS, _FEWEST_PER_SECOND * seconds))
    return int(min(_MOST_ROWS, max(1, most))), int(fewest)


@dataclass(frozen=True)
class Plan:
    """The work of a fit, with its seconds on one core of a typical machine."""

    feature_seconds: float
    member_seconds: Mapping[str, float]  # in the order of the fits
    read: int  # unlabelled rows that the network reads
    decided: int  # unlabelled rows whose scores are used for decisions
    folds: int  # of five, that are held out
    fold_seconds: float  # for one of them
    kind_seconds: float  # for kinds of anomaly, which are held out, too; 0 if they are not

    def folds_at_once(self, threads: int) -> int:
        """Return how many folds this many threads hold out at a time."""
        return max(1, min(threads, self.folds))

    def seconds(self, threads: int = 1) -> float:
        """Return the seconds of the whole fit if this many threads hold out folds."""
        folds = self.folds * self.fold_seconds / self.folds_at_once(threads)
        return self.feature_seconds + sum(self.member_seconds.values()) + folds + self.kind_seconds


def plan_fit(sizes: Sizes, recipes: Mapping[str, Recipe], budget: float) -> Plan:
    """Return a plan within the budget, but always with one member.

    Members come first, as long as one fold could still be held out of all of them; then folds, then
    kinds of anomaly. If seconds are short, a network first reads fewer rows, and fewer rows are
    used for decisions. It is left out if nothing could be held out otherwise.
    """
    networks = {name for name, recipe in recipes.items() if recipe.pretrained}
    plans = []
    for read, decided in _NETWORK_WORK:
        plan = _plan(sizes, recipes, budget, read, decided)
        if plan.folds == SPLITS and networks <= set(plan.member_seconds):
            return plan
        plans.append(plan)
    others = {name: recipe for name, recipe in recipes.items() if name not in networks}
    plans.append(_plan(sizes, others or recipes, budget, *_NETWORK_WORK[-1]))
    # Weights need two folds; then more members count, and last more folds.
    return max(plans, key=lambda plan: (plan.folds > 1, len(plan.member_seconds), plan.folds))


def _plan(
    sizes: Sizes, recipes: Mapping[str, Recipe], budget: float, read: int, decided: int
) -> Plan:
    """The plan, if a network reads and scores this many rows."""
    features = 0.4 + 1.2e-4 * sizes.rows * (1 + sizes.columns / 100)
    planned, in_fold = features, 0.0
    members: dict[str, float] = {}
    for name, recipe in recipes.items():
        fit = recipe.seconds(sizes)
        fold = _FOLD_SHARE * fit
        if recipe.pretrained:
            fit += _network_seconds(sizes, scored=min(decided, sizes.rows), unlabelled=read)
            held_out = (COMPARED + sizes.labelled) // SPLITS
            # Half the unlabelled rows in a fold, as in `PretrainedRAD._clone_for_fold`.
            fold = _network_seconds(sizes, FOLD_SCORED + held_out, unlabelled=read // 2)
        # The first member is always planned, and novelty, which takes no time of its own.
        if members and fit > 0 and planned + fit + in_fold + fold > budget:
            continue
        members[name] = fit
        planned, in_fold = planned + fit, in_fold + fold
    folds = int(np.clip((budget - planned) // max(in_fold, 1e-9), 0, SPLITS))
    judges = [recipes[name] for name in JUDGES if name in members]
    in_kinds = MOST_KINDS * sum(_FOLD_SHARE * recipe.seconds(sizes) for recipe in judges)
    time_for_kinds = folds > 1 and planned + folds * in_fold + in_kinds <= budget
    return Plan(
        feature_seconds=features,
        member_seconds=members,
        read=read,
        decided=decided,
        folds=folds,
        fold_seconds=in_fold,
        kind_seconds=in_kinds * time_for_kinds,
    )


def _network_seconds(sizes: Sizes, scored: int, unlabelled: int) -> float:
    read = sizes.read + unlabelled
    return _PER_PAIR * (scored + read) * (sizes.network_columns + 1) * (read + _ALONE)


# --- wall time ------------------------------------------------------------------------------

_PATIENCE = 10.0  # a fit that takes this many times its budget does not start another step
_LEAST_PATIENCE = 60.0  # seconds
# A forecast needs a tenth of the work behind it, and is not worth reading below two seconds.
_FORECAST_FROM, _SHORTEST_FORECAST = 0.1, 2.0


class Clock:
    """Wall time, which does not affect planned work unless it exceeds the budget by far.

    It predicts how long the rest takes by the planned and actual seconds of finished steps.
    """

    def __init__(self, budget: float):
        self.seconds = max(_PATIENCE * budget, _LEAST_PATIENCE)
        self.start = time.perf_counter()
        self.ran_out = False
        self.planned = self._finished = 0.0
        self._lock = threading.Lock()  # folds end in threads

    def allows_more(self) -> bool:
        """Return whether another step may start, and remember if not."""
        self.ran_out = self.ran_out or time.perf_counter() - self.start > self.seconds
        return not self.ran_out

    def finish(self, planned: float) -> None:
        with self._lock:
            self._finished += planned

    def in_words(self) -> str:
        """Return the remaining time, to be appended to a sentence; "" if it is short."""
        if self._finished < _FORECAST_FROM * self.planned or not self._finished:
            return ""
        spent = time.perf_counter() - self.start
        seconds = spent * max(self.planned - self._finished, 0.0) / self._finished
        if seconds < _SHORTEST_FORECAST:
            return ""
        about = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        return f" (about {about} left)"
