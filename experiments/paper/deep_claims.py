"""What the paper's text says of the deep experiments, judged by the records.

A setup is an image set with a share of anomalies pi_n and a share of labelled rows gamma_l. In each
trial of a setup all detectors saw the same rows, so two of them are compared by the differences of
their AUC, trial by trial. Over several setups, each trial counts with its mean over them: setups
share their normal classes and are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.datasets import IMAGE_SETS
from experiments.evaluation import TrialMean
from experiments.paper.deep import BUDGETS, LOSSES, RATES, WEIGHTS
from experiments.paper.summary import LOSS_NAMES, METHOD_NAMES, CellSummary, Summary
from experiments.tables import counted, say_difference

Trials = dict[int, float]  # a number for each trial

SLIGHT = 0.02  # AUC: the paper's "similar", "small" and "robust", which it does not measure
MNIST, FMNIST, CIFAR = IMAGE_SETS
_GAMMA_RATE = 0.1  # the share of anomalies at which the paper varies gamma_l


class Setup(NamedTuple):
    """An image set with a share of anomalies and a share of labelled rows."""

    dataset: str
    anomaly_rate: float
    budget: float


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
        method = METHOD_NAMES[self.method]
        return f"{method}, {LOSS_NAMES[self.loss]}" if self.loss else method


RADS = tuple(Detector("rad", loss) for loss in LOSSES)
SAD, NNPU = Detector("sad"), Detector("nnpu")
DETECTORS = (*RADS, SAD, NNPU)


def paper_setups(**where: Any) -> list[Setup]:
    """The setups of the paper's experiments; `where` narrows them."""
    every = (Setup(*place) for place in product(IMAGE_SETS, RATES, BUDGETS))
    return [s for s in every if all(getattr(s, name) == value for name, value in where.items())]


def find(summary: Summary, setup: Setup, detector: Detector, **wanted: Any) -> CellSummary:
    """The cell of a detector in a setup, with further settings if `wanted`."""
    if detector.loss:
        wanted["loss"] = detector.loss
    shares = {"anomaly_rate": setup.anomaly_rate, "budget": setup.budget}
    return summary.cell(setup.dataset, detector.method, **shares, **wanted)


def mean_auc(summary: Summary, setup: Setup, detector: Detector) -> float:
    """The mean AUC of a detector in a setup."""
    return find(summary, setup, detector).auc.mean


def best(summary: Summary, setup: Setup, detectors: Iterable[Detector]) -> Detector:
    """The detector with the highest mean AUC in a setup."""
    return max(detectors, key=lambda detector: mean_auc(summary, setup, detector))


def trials_of(
    summary: Summary, detectors: Iterable[Detector], setups: Iterable[Setup], **wanted: Any
) -> Trials:
    """For each trial its mean AUC over detectors and setups."""
    places = product(setups, detectors)
    return mean_trials([find(summary, setup, each, **wanted).aucs for setup, each in places])


def mean_trials(several: Sequence[Mapping[int, float]]) -> Trials:
    """The mean of each trial that all have."""
    shared = set[int].intersection(*map(set, several))
    return {trial: fmean(trials[trial] for trials in several) for trial in sorted(shared)}


def differences(ours: Trials, theirs: Trials) -> Trials:
    """For each trial that both have, the first less the second."""
    return {trial: ours[trial] - theirs[trial] for trial in ours if trial in theirs}


def lead(
    summary: Summary,
    ours: Sequence[Detector],
    theirs: Sequence[Detector],
    setups: Sequence[Setup],
) -> Trials:
    """For each trial, by how much `ours` are above `theirs` on average."""
    return differences(trials_of(summary, ours, setups), trials_of(summary, theirs, setups))


def over_trials(trials: Trials) -> TrialMean:
    """The mean over trials."""
    return TrialMean.of(list(trials.values()))


def is_clear(estimate: TrialMean) -> bool:
    """Whether a mean is more than two standard errors from zero."""
    return abs(estimate.mean) > 2 * estimate.se


# --- claims ------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A sentence of the paper, whether it holds, when we take it to hold, and our figures."""

    text: str
    verdict: str
    rule: str
    figures: str


Figures = Mapping[str, TrialMean]
Rule = tuple[str, Callable[[TrialMean], bool]]

_POSITIVE: Rule = ("> 0", lambda estimate: estimate.mean > 0)
_NEGATIVE: Rule = ("< 0", lambda estimate: estimate.mean < 0)
_CLEARLY_POSITIVE: Rule = ("> 2 SE", lambda estimate: estimate.mean > 0 and is_clear(estimate))
_SIMILAR: Rule = (f"at most {SLIGHT:g} either way", lambda estimate: abs(estimate.mean) <= SLIGHT)
_SMALL: Rule = (f"at most {SLIGHT:g}", lambda estimate: estimate.mean <= SLIGHT)
_NOT_BELOW: Rule = (f"not below by more than {SLIGHT:g}", lambda gain: gain.mean >= -SLIGHT)


def _judge(text: str, rule: Rule, figures: Figures) -> Claim:
    """Judge a claim by a rule that each of its figures has to meet.

    A claim about signs alone is in doubt where the figures that decide are within two standard
    errors of zero.
    """
    words, meets = rule
    against = [estimate for estimate in figures.values() if not meets(estimate)]
    verdict = "does not hold" if against else "holds"
    in_doubt = not (
        any(map(is_clear, against)) if against else all(map(is_clear, figures.values()))
    )
    if in_doubt and rule in (_POSITIVE, _NEGATIVE):
        verdict += " (within 2 SE)"
    shown = "; ".join(f"{name}: {say_difference(estimate)}" for name, estimate in figures.items())
    return Claim(text, verdict, words, shown)


def _lead(
    summary: Summary, ours: Sequence[Detector], theirs: Sequence[Detector], **where: Any
) -> TrialMean:
    return over_trials(lead(summary, ours, theirs, paper_setups(**where)))


def _growth(
    summary: Summary, rival: Detector, dataset: str, name: str, values: Sequence[float]
) -> TrialMean:
    """By how much the lead of rAD at the last of the values exceeds that at the first."""
    first, last = (
        lead(summary, RADS, [rival], paper_setups(dataset=dataset, **{name: value}))
        for value in (values[0], values[-1])
    )
    return over_trials(differences(last, first))


def detector_claims(summary: Summary) -> list[Claim]:
    """Claims about the part "images"."""
    return [
        *(claim for rival in (SAD, NNPU) for claim in _cifar_claims(summary, rival)),
        *(claim for rival in (SAD, NNPU) for claim in _fmnist_claims(summary, rival)),
        *_mnist_claims(summary),
        *_loss_claims(summary),
        *_labelled_claims(summary),
    ]


def _cifar_claims(summary: Summary, rival: Detector) -> list[Claim]:
    name, gap = rival.name, f"rAD - {rival.name}"
    few, many = RATES[0], RATES[-1]
    leads = {r: _lead(summary, RADS, [rival], dataset=CIFAR, anomaly_rate=r) for r in RATES}
    average = _lead(summary, RADS, [rival], dataset=CIFAR)
    growth = _growth(summary, rival, CIFAR, "anomaly_rate", RATES)
    claims = [
        _judge(f"{CIFAR}: rAD is better than {name} on average", _POSITIVE, {gap: average}),
        _judge(
            f"{CIFAR}: rAD and {name} are similar at pi_n = {few:g}", _SIMILAR, {gap: leads[few]}
        ),
        _judge(
            f"{CIFAR}: the lead over {name} is significant when pi_n is increased",
            _CLEARLY_POSITIVE,
            {f"{gap} at pi_n = {rate:g}": leads[rate] for rate in RATES[1:]},
        ),
        _judge(
            f"{CIFAR}: the lead over {name} grows with pi_n",
            _POSITIVE,
            {f"from pi_n = {few:g} to {many:g}": growth},
        ),
    ]
    if rival != SAD:  # that they are similar the paper says of Deep SAD alone
        del claims[1]
    return claims


def _fmnist_claims(summary: Summary, rival: Detector) -> list[Claim]:
    name = rival.name
    figures = {
        f"rAD - {name} at pi_n = {rate:g}": _lead(
            summary, RADS, [rival], dataset=FMNIST, anomaly_rate=rate
        )
        for rate in RATES[1:]
    }
    better = f"{FMNIST}: rAD is better than {name} when pi_n is increased"
    return [
        _judge(better, _POSITIVE, figures),
        _judge(f"{FMNIST}: the lead over {name} is small", _SMALL, figures),
    ]


def _mnist_claims(summary: Summary) -> list[Claim]:
    leads = {
        f"Deep SAD - {rival.name}": _lead(summary, [SAD], [rival], dataset=MNIST)
        for rival in DETECTORS
        if rival != SAD
    }
    claims = [_judge(f"{MNIST}: Deep SAD is best", _POSITIVE, leads)]
    for symbol, name, values in (("pi_n", "anomaly_rate", RATES), ("gamma_l", "budget", BUDGETS)):
        text = f"{MNIST}: rAD catches up with Deep SAD when {symbol} is increased"
        change = f"change of rAD - Deep SAD, {symbol} = {values[0]:g} to {values[-1]:g}"
        figures = {change: _growth(summary, SAD, MNIST, name, values)}
        claims.append(_judge(text, _POSITIVE, figures))
    return claims


def _loss_claims(summary: Summary) -> list[Claim]:
    square, *others = RADS
    claims = []
    for dataset in (MNIST, FMNIST):
        text = f"{dataset}: the square loss is worse than the other losses of rAD"
        figures = {"square - mean of the others": _lead(summary, [square], others, dataset=dataset)}
        claims.append(_judge(text, _NEGATIVE, figures))
    logistic = Detector("rad", "logistic")
    figures = {
        f"logistic - {LOSS_NAMES[other.loss]}": _lead(summary, [logistic], [other])
        for other in RADS
        if other != logistic
    }
    return [*claims, _judge("The logistic loss is on average the best of rAD", _POSITIVE, figures)]


def _labelled_claims(summary: Summary) -> list[Claim]:
    """What more labels bring, at pi_n = 0.1."""

    def gain(detectors: Sequence[Detector], dataset: str, low: float, high: float) -> TrialMean:
        before, after = (
            trials_of(summary, detectors, [Setup(dataset, _GAMMA_RATE, budget)])
            for budget in (low, high)
        )
        return over_trials(differences(after, before))

    falling = [
        f"{detector.name} on {dataset}"
        for dataset, detector in product(IMAGE_SETS, DETECTORS)
        if any(gain([detector], dataset, *step).mean <= 0 for step in pairwise(BUDGETS))
    ]
    n_curves = len(IMAGE_SETS) * len(DETECTORS)
    exceptions = f"; not: {', '.join(falling)}" if falling else ""
    rising = f"{n_curves - len(falling)} of {counted(n_curves, 'curve')} rise throughout"
    first, second = BUDGETS[:2]
    return [
        Claim(
            f"All methods improve with gamma_l, at pi_n = {_GAMMA_RATE:g}",
            "does not hold" if falling else "holds",
            "every mean rises at every step",
            f"{rising}{exceptions}",
        ),
        _judge(
            f"rAD gains significantly from gamma_l = {first:g} to {second:g}, at "
            f"pi_n = {_GAMMA_RATE:g}",
            _CLEARLY_POSITIVE,
            {dataset: gain(RADS, dataset, first, second) for dataset in IMAGE_SETS},
        ),
    ]


def prior_claims(summary: Summary) -> list[Claim]:
    """Claims about the part "images-prior"."""
    setups = paper_setups(budget=BUDGETS[0])
    exact = trials_of(summary, RADS, setups, prior="true")
    gains = {
        f"pi_p^e = {prior:g} less pi_p^e = 1 - pi_n": over_trials(
            differences(trials_of(summary, RADS, setups, prior=prior), exact)
        )
        for prior in (0.8, 0.7)
    }
    text = "pi_p^e need not be precise: 0.8 and 0.7 are good settings"
    return [_judge(text, _NOT_BELOW, gains)]


def weight_claims(summary: Summary) -> list[Claim]:
    """Claims about the part "images-a"."""

    def changes(dataset: str, *values: float) -> Figures:
        """How far AUC moves when a is raised from its default."""
        setups = paper_setups(dataset=dataset, budget=BUDGETS[0])
        default = trials_of(summary, RADS, setups, a=WEIGHTS[0])
        return {
            f"a = {a:g} less a = {WEIGHTS[0]:g}": over_trials(
                differences(trials_of(summary, RADS, setups, a=a), default)
            )
            for a in values
        }

    falling = changes(CIFAR, WEIGHTS[-1])
    return [
        _judge(f"{CIFAR}: AUC decreases when a is increased", _NEGATIVE, falling),
        _judge(f"{CIFAR}: AUC changes little with a", _SIMILAR, changes(CIFAR, *WEIGHTS[1:])),
        *(
            _judge(f"{dataset}: rAD is robust to a", _SIMILAR, changes(dataset, *WEIGHTS[1:]))
            for dataset in (FMNIST, MNIST)
        ),
    ]
