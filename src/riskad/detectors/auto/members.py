"""The kinds of detector that `AutoRAD` averages: what each sees and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from riskad.core.checks import InputError, enumerate_names, lookup
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.core.losses import get_loss
from riskad.detectors.auto.budget import MOST_READ, MOST_ROWS, Sizes
from riskad.detectors.auto.novelty import NOVELTY, Novelty
from riskad.detectors.auto.samples import COMPARED, with_labelled
from riskad.detectors.boosted import BoostedRAD, LabelledTrees, labelled_growth
from riskad.detectors.distilled import DistilledForest
from riskad.detectors.forest import ForestRAD
from riskad.detectors.pretrained import READS_COLUMNS, PretrainedRAD
from riskad.detectors.shallow import ShallowRAD
from riskad.metrics.linear_search import FEWEST_FOR_AUC, Candidate, choose

__all__ = [
    "MEMBERS",
    "MEMBER_TYPES",
    "PRIOR",
    "LabelsGiven",
    "Recipe",
    "add_member",
    "chosen_members",
]

PRIOR = 0.8
_A, _LAMBDA = 0.02, 0.003
_TREES, _DISTILLED_TREES, _ROUNDS = 200, 100, 150
_MOST_BOOSTED = 3_000  # unlabelled rows
_ANY_LEAF = 0.001
_FEWEST_TO_CLASSIFY, _ENOUGH_TO_CLASSIFY = 10, 50  # labelled anomalies
_KNOWLEDGE_WORTH = 100  # labelled anomalies that halve the weight of pretrained members
_KERNEL_LOSS = "squared"
_KERNEL_CHOICES = [
    Candidate(_A, PRIOR, _LAMBDA),
    *(Candidate(_A, PRIOR, lam) for lam in (0.001, 0.01, 0.03)),
    Candidate(_A, 0.95, _LAMBDA),
    Candidate(0.1, PRIOR, _LAMBDA),
    Candidate(0.1, 0.95, _LAMBDA),
]
_FREE_INTERCEPT = 10.0


@dataclass(frozen=True)
class LabelsGiven:
    """The number of rows of each kind, and the risk that they allow."""

    normal: int
    anomaly: int
    unlabelled: int

    @classmethod
    def of(cls, codes: np.ndarray) -> LabelsGiven:
        """Count codes; refuse labels from which nothing can be learned."""
        labels = cls(*(int((codes == kind).sum()) for kind in (NORMAL, ANOMALY, UNLABELLED)))
        if (labels.normal > 0) + (labels.anomaly > 0) + (labels.unlabelled > 0) < 2:
            raise InputError(
                f"AutoRAD tells kinds of row apart, and y has one only: {count_labels(codes)}. "
                "Label some rows with -1 (anomaly) or +1 (normal), and leave the others at 0."
            )
        return labels

    @property
    def risk(self) -> str:
        """The risk for which all kinds of row are present."""
        if not self.normal:
            return "nu"
        if not self.anomaly:
            return "pu"
        return "rad" if self.unlabelled else "pn"

    @property
    def labelled_risk(self) -> str:
        """The same for members that use unlabelled rows only through features."""
        return "pn" if self.risk == "rad" else self.risk


# --- seconds of a fit: measured once, and rounded up ----------------------------------------


def _usual_seconds(sizes: Sizes) -> float:
    return 1 + 1e-4 * sizes.rows * (1 + sizes.columns / 50)


def _kernel_seconds(sizes: Sizes) -> float:
    return 0.35 + 3e-5 * sizes.rows + 1e-4 * sizes.labelled


def _forest_seconds(sizes: Sizes) -> float:
    return 0.25 + 2.5e-4 * sizes.counting


def _linear_seconds(sizes: Sizes) -> float:
    return 0.05 + 1e-3 * sizes.columns + 1e-6 * sizes.rows


def _boosted_seconds(sizes: Sizes) -> float:
    rows = min(sizes.rows, _MOST_BOOSTED + sizes.labelled)
    return 0.2 + 2.3e-6 * rows * (sizes.columns + 22)


def _distilled_seconds(sizes: Sizes) -> float:
    return 1.0  # in addition to the pretrained network


def _labelled_trees_seconds(sizes: Sizes) -> float:
    rounds = labelled_growth(sizes.all_labelled, max(sizes.columns, 1))["num_iterations"]
    return 0.1 + 1.5e-6 * sizes.all_labelled * (sizes.columns + 10) * max(1.0, rounds / 600)


def _no_seconds(sizes: Sizes) -> float:
    return 0.0


@dataclass(frozen=True)
class Recipe:
    """How a member is made.

    Parameters
    ----------
    view, parts
        Which parts of which view of the columns the member sees.
    build
        Makes the unfitted detector from the labels and a seed.
    weight
        b_k, its weight relative to others that do equally well on held-out rows, with few
        anomalies.
    most_rows
        Most unlabelled rows that it learns from.
    distilled
        Whether it learns the scores of a pretrained network instead of labels.
    pretrained
        Whether it is the pretrained network itself, which reads training rows whenever it scores.
    fewest_labels
        Minimum number of labelled rows of each kind.
    all_labelled
        Whether it learns only from labelled rows, and from more of them than the others.
    default
        Whether it is a member by default.
    seconds
        Seconds of a fit on one core of a typical machine.
    tune
        Chooses settings from the member's features, the codes and a seed.
    chooses
        Whether labels choose its settings, by `tune` or in its own fit. Folds then use the settings
        it is built with, or choose again, so that held-out labels have no influence.
    needs
        A library that must be installed.
    asked_for
        The parameter of `AutoRAD` that adds it; without one it needs no parameter.
    """

    view: str
    parts: tuple[str, ...]
    build: Callable[[LabelsGiven, int], Any]
    weight: float = 1.0
    most_rows: int = MOST_ROWS
    distilled: bool = False
    pretrained: bool = False
    fewest_labels: int = 0
    all_labelled: bool = False
    default: bool = True
    tune: Callable[[np.ndarray, np.ndarray, int], dict[str, Any]] | None = None
    seconds: Callable[[Sizes], float] = _usual_seconds
    chooses: bool = False
    needs: str = ""
    asked_for: str = ""

    def weight_with(self, n_anomaly: int) -> float:
        """Return b_k for this many labelled anomalies."""
        if self.all_labelled:
            return self.weight * min(1.0, n_anomaly / _ENOUGH_TO_CLASSIFY)
        if not (self.distilled or self.pretrained):
            return self.weight
        return self.weight / (1 + n_anomaly / _KNOWLEDGE_WORTH)

    def parts_among(self, slices: Mapping[str, slice], native: int | None) -> tuple[str, ...]:
        """Return the parts that the member sees, of a view that has these.

        A network reads blank cells and levels of categories directly, from `native` columns if
        there are any, and components instead of columns if there are too many columns.
        """
        if not self.pretrained:
            return self.parts
        widths = {part: span.stop - span.start for part, span in slices.items()}
        columns, width = ("columns", widths["columns"]) if native is None else ("native", native)
        if width + widths["outliers"] > READS_COLUMNS:
            columns = "components"
        return tuple(columns if part == "columns" else part for part in self.parts)

    def learns_from(self, labels: LabelsGiven) -> bool:
        """Return whether there are enough labels of both kinds."""
        return min(labels.normal, labels.anomaly) >= self.fewest_labels

    def can_be_had(self, auto: Any) -> bool:
        """Return whether its library is installed, and its parameter set if it has one."""
        wanted = not self.asked_for or bool(getattr(auto, self.asked_for))
        return wanted and (not self.needs or find_spec(self.needs) is not None)


def _forest(labels: LabelsGiven, seed: int) -> ForestRAD:
    forest = ForestRAD(
        risk=labels.labelled_risk, prior=PRIOR, n_estimators=_TREES, random_state=seed
    )
    # Without unlabelled rows no leaf is too small: a person has looked at each labelled row.
    return forest.set_params(min_samples_leaf=_ANY_LEAF) if forest.risk == "pn" else forest


def _kernel(labels: LabelsGiven, seed: int) -> ShallowRAD:
    return ShallowRAD(
        _KERNEL_LOSS,
        risk=labels.risk,
        a=_A,
        prior=PRIOR,
        lam=_LAMBDA,
        scale=False,
        intercept_scaling=_FREE_INTERCEPT,
        random_state=seed,
    )


def _tune_kernel(F: np.ndarray, codes: np.ndarray, seed: int) -> dict[str, Any]:
    """a, prior and lambda of the kernel member, by `riskad.metrics.linear_search`."""
    chosen = _KERNEL_CHOICES[0]
    kinds = {int(code) for code in np.unique(codes)}
    if kinds == {NORMAL, ANOMALY, UNLABELLED} and all(
        (codes == kind).sum() >= FEWEST_FOR_AUC for kind in (NORMAL, ANOMALY)
    ):
        rows = with_labelled(codes, COMPARED)
        Z = np.column_stack([F[rows], np.full(len(rows), _FREE_INTERCEPT)])
        selection = choose(Z, codes[rows], None, get_loss(_KERNEL_LOSS), _KERNEL_CHOICES, seed)
        chosen = _KERNEL_CHOICES[selection.chosen]
    return chosen._asdict()


def _linear(labels: LabelsGiven, seed: int) -> ShallowRAD:
    if labels.risk == "rad":
        return ShallowRAD(select="cv", random_state=seed)
    return ShallowRAD(risk=labels.risk, lam=0.1, random_state=seed)


def _boosted(labels: LabelsGiven, seed: int) -> BoostedRAD:
    return BoostedRAD(risk=labels.risk, a=_A, prior=PRIOR, max_iter=_ROUNDS, random_state=seed)


def _network(labels: LabelsGiven, seed: int) -> PretrainedRAD:
    return PretrainedRAD(unlabelled=MOST_READ, random_state=seed)


def _labelled_trees(labels: LabelsGiven, seed: int) -> LabelledTrees:
    return LabelledTrees(random_state=seed)


def _distilled_forest(labels: LabelsGiven, seed: int) -> DistilledForest:
    return DistilledForest(n_estimators=_DISTILLED_TREES, random_state=seed)


def _deep(labels: LabelsGiven, seed: int) -> Any:
    # By name, since networks are in a higher package than detectors that need no torch.
    deep = import_module("riskad.deep.risk_detectors")
    risk = labels.risk if labels.risk == "pn" else "nn" + labels.risk
    return deep.DeepRAD(risk=risk, prior=PRIOR, random_state=seed)


def _novelty(labels: LabelsGiven, seed: int) -> Novelty:
    return Novelty()


_TABLE = ("columns", "outliers", "components")
_ALL = (*_TABLE, "shapes", "distances")
_KERNELS = ("kernels", "outliers")
MEMBERS = {
    "smooth forest": Recipe("smooth", _TABLE, _forest, seconds=_forest_seconds),
    "kernel": Recipe(
        "smooth",
        _KERNELS,
        _kernel,
        seconds=_kernel_seconds,
        weight=0.5,
        tune=_tune_kernel,
        chooses=True,
    ),
    "network": Recipe(
        "plain",
        ("columns", "outliers"),
        _network,
        seconds=_no_seconds,  # beyond what it reads and scores
        weight=6.0,
        pretrained=True,
    ),
    "boosted": Recipe(
        "smooth",
        _TABLE,
        _boosted,
        seconds=_boosted_seconds,
        weight=1.5,
        most_rows=_MOST_BOOSTED,
        needs="lightgbm",
    ),
    "labelled trees": Recipe(
        "plain",
        ("columns",),
        _labelled_trees,
        seconds=_labelled_trees_seconds,
        weight=2.0,
        fewest_labels=_FEWEST_TO_CLASSIFY,
        all_labelled=True,
        needs="lightgbm",
    ),
    "forest": Recipe("plain", _ALL, _forest, seconds=_forest_seconds, default=False),
    # The kernel member can do the same.
    "linear": Recipe(
        "smooth",
        ("columns",),
        _linear,
        seconds=_linear_seconds,
        weight=0.5,
        chooses=True,
        default=False,
    ),
    "distilled network": Recipe(
        "smooth",
        _TABLE,
        _distilled_forest,
        seconds=_distilled_seconds,
        weight=3.0,
        distilled=True,
        default=False,
    ),
    "deep": Recipe("smooth", _TABLE, _deep, asked_for="deep"),
    NOVELTY: Recipe("plain", ("outliers",), _novelty, seconds=_no_seconds),
}
"""By name, in the order in which they get their share of a budget."""

MEMBER_TYPES = [
    "ForestRAD",
    "ShallowRAD",
    "BoostedRAD",
    "DistilledForest",
    "DeepRAD",
    "LabelledTrees",
    "Novelty",
    "PretrainedRAD",
]
"""Names of classes that may be members, also in files."""

QUICK = "quick"
_QUICK = ("smooth forest", "kernel", "distilled network", "boosted", "labelled trees", NOVELTY)


def chosen_members(asked: str | Sequence[str] | None) -> list[str]:
    """Return the names of the requested members.

    Parameters
    ----------
    asked
        Names; "quick" for members that score rows quickly; None for the default members.

    Examples
    --------
    >>> chosen_members(["forest", "kernel"])
    ['kernel', 'forest']
    >>> "network" in chosen_members(None), "network" in chosen_members("quick")
    (True, False)
    """
    if asked is None:
        return [name for name, recipe in MEMBERS.items() if recipe.default]
    if isinstance(asked, str):
        if asked != QUICK:
            raise InputError(
                f"members must be a list of names, {QUICK!r} or None, got {asked!r}. "
                f"Names are {enumerate_names(MEMBERS)}."
            )
        return [name for name in MEMBERS if name in _QUICK]
    names = {lookup("members", name, MEMBERS) and name for name in asked}
    if not names - {NOVELTY}:
        raise InputError(
            f"members must name a detector that learns from labels, got {list(asked)!r}. "
            f"Names are {enumerate_names(MEMBERS)}."
        )
    return [name for name in MEMBERS if name in names]


def add_member(name: str, recipe: Recipe, type_name: str) -> None:
    """Make another kind of detector a member of every `AutoRAD` that is fitted later."""
    if name in MEMBERS:
        raise InputError(f"AutoRAD has a member {name!r} already; choose another name.")
    MEMBERS[name] = recipe
    MEMBER_TYPES.append(type_name)
