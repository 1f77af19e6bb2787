"""The experiments on images in numbers: detectors compared trial by trial, and the paper's claims.

A setup is an image set with a share of anomalies pi_n (`anomaly_rate`) and a share of labelled rows
gamma_l (`labelled`). In each trial of a setup all detectors saw the same rows, so two of them are
compared by the differences of their AUC, trial by trial. Over several setups, each trial counts
with its mean over them: setups share their normal classes and are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from riskad.bench.paper import IMAGE_SETS
from riskad.bench.summary import Cell, Estimate, Summary, counted, loss_name, method_name
from riskad.bench.words import NONE, say_difference, say_setting

__all__ = [
    "AS",
    "DETECTORS",
    "LABELLED",
    "NNPU",
    "PRIORS",
    "RADS",
    "RATES",
    "SAD",
    "SLIGHT",
    "TARGET_SHARE",
    "Claim",
    "Detector",
    "ImageReach",
    "Setup",
    "Study",
    "Win",
    "best",
    "claims",
    "image_reach",
    "prior_cells",
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
_MNIST, _FMNIST, _CIFAR = IMAGE_SETS
_GAMMA_RATE = 0.1  # the share of anomalies at which the paper varies gamma_l


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

    def find(self, setup: Setup, detector: Detector) -> Cell | None:
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
        return _less(self.trials(ours, setups), self.trials(theirs, setups))


def _mean_of(several: Sequence[Mapping[tuple[int, int], float]]) -> Trials:
    """The mean of each trial that all have."""
    shared = set[tuple[int, int]].intersection(*map(set, several)) if several else set()
    return {trial: fmean(trials[trial] for trials in several) for trial in sorted(shared)}


def _less(ours: Trials, theirs: Trials) -> Trials:
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
    def of(cls, name: str, cells: Sequence[Cell]) -> ImageReach:
        """Count the cells and average them."""
        both = [cell.both for cell in cells if cell.both]
        ours, theirs = (fmean(pair[i] for pair in both) if both else None for i in (0, 1))
        return cls(name, len(cells), sum(cell.reaches is True for cell in cells), ours, theirs)


def prior_cells(summary: Summary) -> list[Cell]:
    """The cells that have a place in the published table, in its order."""
    study = Study(summary, "images-prior")
    places = product(_paper_setups(labelled=LABELLED[0]), RADS, PRIORS)
    cells = (study.at(prior=prior).find(setup, detector) for setup, detector, prior in places)
    return [cell for cell in cells if cell and cell.published]


def image_reach(cells: Sequence[Cell]) -> list[ImageReach]:
    """The same cells by image set, by share of anomalies, by loss and by prior."""

    def groups(key: Callable[[Cell], str]) -> list[ImageReach]:
        names = dict.fromkeys(map(key, cells))
        return [ImageReach.of(name, [c for c in cells if key(c) == name]) for name in names]

    return [
        *groups(lambda cell: cell.dataset),
        *groups(lambda cell: f"pi_n = {cell.recorded['anomaly_rate']:g}"),
        *groups(lambda cell: f"{loss_name(cell.settings['loss'])} loss"),
        *groups(lambda cell: f"pi_p^e = {say_setting('prior', cell.settings['prior'])}"),
    ]


def _paper_setups(**where: Any) -> list[Setup]:
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
    lead: Estimate | None


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
    paired = [estimate for lead in leads if (estimate := _estimate(lead))]
    return Win(
        len(paired),
        sum(estimate.mean > 0 for estimate in paired),
        sum(_clear(estimate) and estimate.mean > 0 for estimate in paired),
        sum(_clear(estimate) and estimate.mean < 0 for estimate in paired),
        _estimate(_mean_of(leads)),
    )


def _estimate(trials: Trials) -> Estimate | None:
    return Estimate.of(list(trials.values()))


def _clear(estimate: Estimate) -> bool:
    """Whether a mean is more than two standard errors from zero."""
    return estimate.se is not None and abs(estimate.mean) > 2 * estimate.se


# --- what the paper claims ---------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, when we take it to hold, our figures, and whether it does.

    `holds` is None where a cell that the claim is about is missing. A claim about signs alone is
    `doubtful` where the figures that decide are within two standard errors of zero.
    """

    text: str
    rule: str
    figures: str
    holds: bool | None
    doubtful: bool = False

    @property
    def verdict(self) -> str:
        """In words."""
        if self.holds is None:
            return "cannot be said"
        verdict = "holds" if self.holds else "does not hold"
        return f"{verdict} (within 2 SE)" if self.doubtful else verdict


Figures: TypeAlias = Mapping[str, Estimate | None]
Rule: TypeAlias = tuple[str, Callable[[Estimate], bool]]

_POSITIVE: Rule = ("> 0", lambda estimate: estimate.mean > 0)
_NEGATIVE: Rule = ("< 0", lambda estimate: estimate.mean < 0)
_CLEARLY_POSITIVE: Rule = ("> 2 SE", lambda estimate: estimate.mean > 0 and _clear(estimate))
_SIMILAR: Rule = (f"at most {SLIGHT:g} either way", lambda estimate: abs(estimate.mean) <= SLIGHT)
_SMALL: Rule = (f"at most {SLIGHT:g}", lambda estimate: estimate.mean <= SLIGHT)


def claims(summary: Summary, experiment: str) -> list[Claim]:
    """What the paper's text says about an experiment, confronted with the records."""
    study = Study(summary, experiment)
    makers = {"images": _image_claims, "images-prior": _prior_claims, "images-a": _a_claims}
    return makers[experiment](study)


def _judge(text: str, rule: Rule, figures: Figures) -> Claim:
    """Judge a claim by a rule that each of its figures has to meet."""
    said, meets = rule
    known = [estimate for estimate in figures.values() if estimate]
    against = [estimate for estimate in known if not meets(estimate)]
    in_doubt = not any(map(_clear, against)) if against else not all(map(_clear, known))
    complete = len(known) == len(figures)
    return Claim(
        text,
        said,
        "; ".join(f"{name}: {say_difference(estimate)}" for name, estimate in figures.items()),
        not against if complete else None,
        in_doubt and rule in (_POSITIVE, _NEGATIVE),
    )


def _image_claims(study: Study) -> list[Claim]:
    return [
        *(claim for rival in (SAD, NNPU) for claim in _cifar_claims(study, rival)),
        *(claim for rival in (SAD, NNPU) for claim in _fmnist_claims(study, rival)),
        *_mnist_claims(study),
        *_loss_claims(study),
        *_labelled_claims(study),
    ]


def _lead(
    study: Study, ours: Sequence[Detector], theirs: Sequence[Detector], **where: Any
) -> Estimate | None:
    return _estimate(study.lead(ours, theirs, _paper_setups(**where)))


def _growth(
    study: Study, rival: Detector, dataset: str, key: str, values: Sequence[float]
) -> Estimate | None:
    """By how much the lead of rAD at the last of the values exceeds that at the first."""
    first, last = (
        study.lead(RADS, [rival], _paper_setups(dataset=dataset, **{key: value}))
        for value in (values[0], values[-1])
    )
    return _estimate(_less(last, first))


def _cifar_claims(study: Study, rival: Detector) -> list[Claim]:
    name, gap = rival.name, f"rAD - {rival.name}"
    few, many = RATES[0], RATES[-1]
    leads = {rate: _lead(study, RADS, [rival], dataset=_CIFAR, anomaly_rate=rate) for rate in RATES}
    similar = _judge(
        f"{_CIFAR}: rAD and {name} are similar at pi_n = {few:g}", _SIMILAR, {gap: leads[few]}
    )
    return [
        _judge(
            f"{_CIFAR}: rAD is better than {name} on average",
            _POSITIVE,
            {gap: _lead(study, RADS, [rival], dataset=_CIFAR)},
        ),
        *([similar] if rival == SAD else []),  # the paper says it of Deep SAD alone
        _judge(
            f"{_CIFAR}: the lead over {name} is significant when pi_n is increased",
            _CLEARLY_POSITIVE,
            {f"{gap} at pi_n = {rate:g}": leads[rate] for rate in RATES[1:]},
        ),
        _judge(
            f"{_CIFAR}: the lead over {name} grows with pi_n",
            _POSITIVE,
            {
                f"from pi_n = {few:g} to {many:g}": _growth(
                    study, rival, _CIFAR, "anomaly_rate", RATES
                )
            },
        ),
    ]


def _fmnist_claims(study: Study, rival: Detector) -> list[Claim]:
    figures = {
        f"rAD - {rival.name} at pi_n = {rate:g}": _lead(
            study, RADS, [rival], dataset=_FMNIST, anomaly_rate=rate
        )
        for rate in RATES[1:]
    }
    return [
        _judge(
            f"{_FMNIST}: rAD is better than {rival.name} when pi_n is increased",
            _POSITIVE,
            figures,
        ),
        _judge(f"{_FMNIST}: the lead over {rival.name} is small", _SMALL, figures),
    ]


def _mnist_claims(study: Study) -> list[Claim]:
    rivals = [detector for detector in DETECTORS if detector != SAD]
    grown = {
        "pi_n": _growth(study, SAD, _MNIST, "anomaly_rate", RATES),
        "gamma_l": _growth(study, SAD, _MNIST, "labelled", LABELLED),
    }
    ends = {"pi_n": RATES, "gamma_l": LABELLED}
    return [
        _judge(
            f"{_MNIST}: Deep SAD is best",
            _POSITIVE,
            {
                f"Deep SAD - {rival.name}": _lead(study, [SAD], [rival], dataset=_MNIST)
                for rival in rivals
            },
        ),
        *(
            _judge(
                f"{_MNIST}: rAD catches up with Deep SAD when {key} is increased",
                _POSITIVE,
                {f"change of rAD - Deep SAD, {key} = {ends[key][0]:g} to {ends[key][-1]:g}": grown},
            )
            for key, grown in grown.items()
        ),
    ]


def _loss_claims(study: Study) -> list[Claim]:
    square, others = RADS[0], RADS[1:]
    logistic = Detector("rad", "logistic")
    return [
        *(
            _judge(
                f"{dataset}: the square loss is worse than the other losses of rAD",
                _NEGATIVE,
                {"square - mean of the others": _lead(study, [square], others, dataset=dataset)},
            )
            for dataset in (_MNIST, _FMNIST)
        ),
        _judge(
            "The logistic loss is on average the best of rAD",
            _POSITIVE,
            {
                f"logistic - {loss_name(str(other.loss))}": _lead(study, [logistic], [other])
                for other in RADS
                if other != logistic
            },
        ),
    ]


def _labelled_claims(study: Study) -> list[Claim]:
    """What more labels bring, at pi_n = 0.1."""
    curves = {
        f"{detector.name} on {dataset}": [
            _gain(study, [detector], [dataset], *step) for step in pairwise(LABELLED)
        ]
        for dataset in IMAGE_SETS
        for detector in DETECTORS
    }
    known = [gain for gains in curves.values() for gain in gains if gain]
    falling = [name for name, gains in curves.items() if any(g and g.mean <= 0 for g in gains)]
    complete = len(known) == sum(map(len, curves.values()))
    n_rising = len(curves) - len(falling)
    exceptions = f"; not: {', '.join(falling)}" if falling else ""
    first, second = LABELLED[:2]
    return [
        Claim(
            f"All methods improve with gamma_l, at pi_n = {_GAMMA_RATE:g}",
            "every mean rises at every step",
            f"{n_rising} of {counted(len(curves), 'curve')} rise throughout{exceptions}"
            if complete
            else NONE,
            not falling if complete else None,
        ),
        _judge(
            f"rAD gains significantly from gamma_l = {first:g} to {second:g}, at "
            f"pi_n = {_GAMMA_RATE:g}",
            _CLEARLY_POSITIVE,
            {dataset: _gain(study, RADS, [dataset], first, second) for dataset in IMAGE_SETS},
        ),
    ]


def _gain(
    study: Study, detectors: Sequence[Detector], datasets: Sequence[str], low: float, high: float
) -> Estimate | None:
    before, after = (
        study.trials(detectors, [Setup(dataset, _GAMMA_RATE, labelled) for dataset in datasets])
        for labelled in (low, high)
    )
    return _estimate(_less(after, before))


def _prior_claims(study: Study) -> list[Claim]:
    setups = _paper_setups(labelled=LABELLED[0])
    exact = study.at(prior="true").trials(RADS, setups)
    gains = {
        f"pi_p^e = {prior:g} less pi_p^e = 1 - pi_n": _estimate(
            _less(study.at(prior=prior).trials(RADS, setups), exact)
        )
        for prior in (0.8, 0.7)
    }
    return [
        _judge(
            "pi_p^e need not be precise: 0.8 and 0.7 are good settings",
            (f"not below by more than {SLIGHT:g}", lambda gain: gain.mean >= -SLIGHT),
            gains,
        )
    ]


def _a_claims(study: Study) -> list[Claim]:
    def changes(dataset: str, *values: float) -> Figures:
        """How far AUC moves when a is raised from its default."""
        setups = _paper_setups(dataset=dataset, labelled=LABELLED[0])
        default = study.at(a=AS[0]).trials(RADS, setups)
        return {
            f"a = {a:g} less a = {AS[0]:g}": _estimate(
                _less(study.at(a=a).trials(RADS, setups), default)
            )
            for a in values
        }

    return [
        _judge(f"{_CIFAR}: AUC decreases when a is increased", _NEGATIVE, changes(_CIFAR, AS[-1])),
        _judge(f"{_CIFAR}: AUC changes little with a", _SIMILAR, changes(_CIFAR, *AS[1:])),
        *(
            _judge(f"{dataset}: rAD is robust to a", _SIMILAR, changes(dataset, *AS[1:]))
            for dataset in (_FMNIST, _MNIST)
        ),
    ]
