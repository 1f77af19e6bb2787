"""The experiments on images in numbers: detectors compared trial by trial.

A setup is an image set with a share of anomalies pi_n (`anomaly_rate`) and a share of labelled rows
gamma_l (`labelled`). In each trial of a setup all detectors saw the same rows, so two of them are
compared by the differences of their AUC, trial by trial. Over several setups, each trial counts
with its mean over them: setups share their normal classes and are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from riskad.bench.paper import IMAGE_SETS
from riskad.bench.summary import CellSummary, Summary, TrialMean, loss_name, method_name
from riskad.bench.words import say_setting

__all__ = [
    "AS",
    "CIFAR",
    "DETECTORS",
    "FMNIST",
    "GAMMA_RATE",
    "LABELLED",
    "MNIST",
    "NNPU",
    "PRIORS",
    "RADS",
    "RATES",
    "SAD",
    "SLIGHT",
    "TARGET_SHARE",
    "Detector",
    "ImageReach",
    "Setup",
    "Study",
    "Win",
    "best",
    "image_reach",
    "is_clear",
    "mean_over_trials",
    "paper_setups",
    "prior_cells",
    "trial_differences",
    "win",
]

Trials: TypeAlias = dict[tuple[int, int], float]  # a number for each (root, trial)

# What the paper ran.
RATES = (0.01, 0.05, 0.1, 0.2)
LABELLED = (0.05, 0.1, 0.2)
PRIORS: tuple[str | float, ...] = ("true", 0.9, 0.8, 0.7, "flipped")
AS = (0.1, 0.5, 0.9)

TARGET_SHARE = 0.95  # of the cells of the published table are to be reached
SLIGHT = 0.02  # AUC: the paper's "similar", "small" and "robust", which it does not measure
MNIST, FMNIST, CIFAR = IMAGE_SETS
GAMMA_RATE = 0.1  # the share of anomalies at which the paper varies gamma_l


class Setup(NamedTuple):
    """An image set with a share of anomalies and a share of labelled rows."""

    dataset: str
    anomaly_rate: float
    labelled: float


class Detector(NamedTuple):
    """A method and, where it has several, its loss."""

    method: str
    loss: str | None = None

    @property
    def name(self) -> str:
        """How tables and figures write it.

        >>> Detector("rad", "squared").name, Detector("sad").name
        ('rAD, square', 'Deep SAD')
        """
        method = method_name(self.method)
        return f"{method}, {loss_name(self.loss)}" if self.loss else method


RADS = tuple(Detector("rad", loss) for loss in ("squared", "sigmoid", "logistic", "modified_huber"))
SAD, NNPU = Detector("sad"), Detector("nnpu")
DETECTORS = (*RADS, SAD, NNPU)


# --- trial by trial ----------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """One experiment on images; `wanted` are settings that all its cells are to have."""

    summary: Summary
    experiment: str
    wanted: tuple[tuple[str, Any], ...] = ()

    def at(self, **wanted: Any) -> Study:
        """The same experiment at certain settings, as a=0.5."""
        return Study(self.summary, self.experiment, (*self.wanted, *wanted.items()))

    def find(self, setup: Setup, detector: Detector) -> CellSummary | None:
        """The cell of a detector in a setup, of which every trial may have failed."""
        wanted = dict(self.wanted) | {key: getattr(setup, key) for key in Setup._fields[1:]}
        if detector.loss:
            wanted["loss"] = detector.loss
        return self.summary.cell(self.experiment, setup.dataset, detector.method, **wanted)

    def detectors(self) -> list[Detector]:
        """Those of which there is a cell."""
        cells = self.summary.of(self.experiment)
        run = {
            Detector(cell.method, loss)
            for cell in cells
            for loss in (None, cell.settings.get("loss"))
        }
        return [detector for detector in DETECTORS if detector in run]

    def setups(self, **where: Any) -> list[Setup]:
        """Setups of which there is a cell, in the order of the paper; `where` narrows them."""
        found = {
            Setup(cell.dataset, cell.recorded["anomaly_rate"], cell.recorded["labelled"])
            for cell in self.summary.of(self.experiment)
            if {"anomaly_rate", "labelled"} <= set(cell.recorded)
        }
        order = {name: i for i, name in enumerate(IMAGE_SETS)}
        kept = [setup for setup in found if _is_where(setup, where)]
        return sorted(kept, key=lambda setup: (order.get(setup.dataset, len(order)), setup))

    def trials(self, detectors: Iterable[Detector], setups: Iterable[Setup]) -> Trials:
        """For each trial its mean AUC over detectors and setups; none where a cell is missing."""
        cells = [self.find(setup, detector) for setup, detector in product(setups, detectors)]
        return _mean_of([cell.aucs if cell else {} for cell in cells])

    def lead(
        self, ours: Sequence[Detector], theirs: Sequence[Detector], setups: Sequence[Setup]
    ) -> Trials:
        """For each trial, by how much `ours` are above `theirs` on average."""
        return trial_differences(self.trials(ours, setups), self.trials(theirs, setups))


def _mean_of(several: Sequence[Mapping[tuple[int, int], float]]) -> Trials:
    """The mean of each trial that all have."""
    shared = set[tuple[int, int]].intersection(*map(set, several)) if several else set()
    return {trial: fmean(trials[trial] for trials in several) for trial in sorted(shared)}


def trial_differences(ours: Trials, theirs: Trials) -> Trials:
    """For each trial that both have, the first less the second."""
    return {trial: ours[trial] - theirs[trial] for trial in ours if trial in theirs}


def _is_where(setup: Setup, where: Mapping[str, Any]) -> bool:
    return all(getattr(setup, key) == value for key, value in where.items())


# --- the published table -----------------------------------------------------------------


@dataclass(frozen=True)
class ImageReach:
    """How many of some cells reach the published mean less two published errors.

    A cell of which every trial failed is not reached. `auc` and `published` are means over the
    others, None if there are none.
    """

    name: str
    n_cells: int
    n_reach: int
    auc: float | None
    published: float | None

    @classmethod
    def of(cls, name: str, cells: Sequence[CellSummary]) -> ImageReach:
        """Count the cells and average them."""
        both = [cell.both for cell in cells if cell.both]
        ours, theirs = (fmean(pair[i] for pair in both) if both else None for i in (0, 1))
        return cls(name, len(cells), sum(cell.reaches is True for cell in cells), ours, theirs)


def prior_cells(summary: Summary) -> list[CellSummary]:
    """The cells that have a place in the published table, in its order."""
    study = Study(summary, "images-prior")
    places = product(paper_setups(labelled=LABELLED[0]), RADS, PRIORS)
    cells = (study.at(prior=prior).find(setup, detector) for setup, detector, prior in places)
    return [cell for cell in cells if cell and cell.published]


def image_reach(cells: Sequence[CellSummary]) -> list[ImageReach]:
    """The same cells by image set, by share of anomalies, by loss and by prior."""

    def groups(key: Callable[[CellSummary], str]) -> list[ImageReach]:
        names = dict.fromkeys(map(key, cells))
        return [ImageReach.of(name, [c for c in cells if key(c) == name]) for name in names]

    return [
        *groups(lambda cell: cell.dataset),
        *groups(lambda cell: f"pi_n = {cell.recorded['anomaly_rate']:g}"),
        *groups(lambda cell: f"{loss_name(cell.settings['loss'])} loss"),
        *groups(lambda cell: f"pi_p^e = {say_setting('prior', cell.settings['prior'])}"),
    ]


def paper_setups(**where: Any) -> list[Setup]:
    """The setups of the paper's experiments; `where` narrows them."""
    every = (Setup(*place) for place in product(IMAGE_SETS, RATES, LABELLED))
    return [setup for setup in every if _is_where(setup, where)]


# --- rAD against its rivals --------------------------------------------------------------


@dataclass(frozen=True)
class Win:
    """How rAD does against a rival over setups: of those that have both, how many it wins.

    "Clearly" is by more than two standard errors of the paired difference. `lead` is the mean
    difference over all these setups, None if no trial succeeded in all of them.
    """

    n_setups: int
    n_won: int
    n_clearly_won: int
    n_clearly_lost: int
    lead: TrialMean | None


def best(study: Study, setup: Setup, detectors: Iterable[Detector]) -> Detector | None:
    """The detector with the highest mean AUC in a setup."""
    means = {
        detector: cell.auc.mean
        for detector in detectors
        if (cell := study.find(setup, detector)) and cell.auc
    }
    return max(means, key=lambda detector: means[detector], default=None)


def win(
    study: Study,
    setups: Sequence[Setup],
    choose: Callable[[Setup], Detector | None],
    rival: Detector,
) -> Win:
    """Compare the rAD that `choose` names for each setup with a rival."""
    leads = []
    for setup in setups:
        chosen = choose(setup)
        lead = study.lead([chosen], [rival], [setup]) if chosen else {}
        if lead:
            leads.append(lead)
    paired = [estimate for lead in leads if (estimate := mean_over_trials(lead))]
    return Win(
        len(paired),
        sum(estimate.mean > 0 for estimate in paired),
        sum(is_clear(estimate) and estimate.mean > 0 for estimate in paired),
        sum(is_clear(estimate) and estimate.mean < 0 for estimate in paired),
        mean_over_trials(_mean_of(leads)),
    )


def mean_over_trials(trials: Trials) -> TrialMean | None:
    """The mean over trials, None if there are none."""
    return TrialMean.of(list(trials.values()))


def is_clear(estimate: TrialMean) -> bool:
    """Whether a mean is more than two standard errors from zero."""
    return estimate.se is not None and abs(estimate.mean) > 2 * estimate.se
