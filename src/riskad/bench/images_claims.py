"""What the paper's text says about its experiments on images, confronted with the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from riskad.bench.images import (
    AS,
    CIFAR,
    DETECTORS,
    FMNIST,
    GAMMA_RATE,
    LABELLED,
    MNIST,
    NNPU,
    RADS,
    RATES,
    SAD,
    SLIGHT,
    Detector,
    Setup,
    Study,
    is_clear,
    mean_over_trials,
    paper_setups,
    trial_differences,
)
from riskad.bench.paper import IMAGE_SETS
from riskad.bench.summary import Summary, TrialMean, counted, loss_name
from riskad.bench.words import NONE, say_difference

__all__ = ["Claim", "claims"]


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


Figures: TypeAlias = Mapping[str, TrialMean | None]
Rule: TypeAlias = tuple[str, Callable[[TrialMean], bool]]

_POSITIVE: Rule = ("> 0", lambda estimate: estimate.mean > 0)
_NEGATIVE: Rule = ("< 0", lambda estimate: estimate.mean < 0)
_CLEARLY_POSITIVE: Rule = ("> 2 SE", lambda estimate: estimate.mean > 0 and is_clear(estimate))
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
    in_doubt = not any(map(is_clear, against)) if against else not all(map(is_clear, known))
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
) -> TrialMean | None:
    return mean_over_trials(study.lead(ours, theirs, paper_setups(**where)))


def _growth(
    study: Study, rival: Detector, dataset: str, key: str, values: Sequence[float]
) -> TrialMean | None:
    """By how much the lead of rAD at the last of the values exceeds that at the first."""
    first, last = (
        study.lead(RADS, [rival], paper_setups(dataset=dataset, **{key: value}))
        for value in (values[0], values[-1])
    )
    return mean_over_trials(trial_differences(last, first))


def _cifar_claims(study: Study, rival: Detector) -> list[Claim]:
    name, gap = rival.name, f"rAD - {rival.name}"
    few, many = RATES[0], RATES[-1]
    leads = {rate: _lead(study, RADS, [rival], dataset=CIFAR, anomaly_rate=rate) for rate in RATES}
    similar = _judge(
        f"{CIFAR}: rAD and {name} are similar at pi_n = {few:g}", _SIMILAR, {gap: leads[few]}
    )
    return [
        _judge(
            f"{CIFAR}: rAD is better than {name} on average",
            _POSITIVE,
            {gap: _lead(study, RADS, [rival], dataset=CIFAR)},
        ),
        *([similar] if rival == SAD else []),  # the paper says it of Deep SAD alone
        _judge(
            f"{CIFAR}: the lead over {name} is significant when pi_n is increased",
            _CLEARLY_POSITIVE,
            {f"{gap} at pi_n = {rate:g}": leads[rate] for rate in RATES[1:]},
        ),
        _judge(
            f"{CIFAR}: the lead over {name} grows with pi_n",
            _POSITIVE,
            {
                f"from pi_n = {few:g} to {many:g}": _growth(
                    study, rival, CIFAR, "anomaly_rate", RATES
                )
            },
        ),
    ]


def _fmnist_claims(study: Study, rival: Detector) -> list[Claim]:
    figures = {
        f"rAD - {rival.name} at pi_n = {rate:g}": _lead(
            study, RADS, [rival], dataset=FMNIST, anomaly_rate=rate
        )
        for rate in RATES[1:]
    }
    return [
        _judge(
            f"{FMNIST}: rAD is better than {rival.name} when pi_n is increased",
            _POSITIVE,
            figures,
        ),
        _judge(f"{FMNIST}: the lead over {rival.name} is small", _SMALL, figures),
    ]


def _mnist_claims(study: Study) -> list[Claim]:
    rivals = [detector for detector in DETECTORS if detector != SAD]
    grown = {
        "pi_n": _growth(study, SAD, MNIST, "anomaly_rate", RATES),
        "gamma_l": _growth(study, SAD, MNIST, "labelled", LABELLED),
    }
    ends = {"pi_n": RATES, "gamma_l": LABELLED}
    return [
        _judge(
            f"{MNIST}: Deep SAD is best",
            _POSITIVE,
            {
                f"Deep SAD - {rival.name}": _lead(study, [SAD], [rival], dataset=MNIST)
                for rival in rivals
            },
        ),
        *(
            _judge(
                f"{MNIST}: rAD catches up with Deep SAD when {key} is increased",
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
            for dataset in (MNIST, FMNIST)
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
            f"All methods improve with gamma_l, at pi_n = {GAMMA_RATE:g}",
            "every mean rises at every step",
            f"{n_rising} of {counted(len(curves), 'curve')} rise throughout{exceptions}"
            if complete
            else NONE,
            not falling if complete else None,
        ),
        _judge(
            f"rAD gains significantly from gamma_l = {first:g} to {second:g}, at "
            f"pi_n = {GAMMA_RATE:g}",
            _CLEARLY_POSITIVE,
            {dataset: _gain(study, RADS, [dataset], first, second) for dataset in IMAGE_SETS},
        ),
    ]


def _gain(
    study: Study, detectors: Sequence[Detector], datasets: Sequence[str], low: float, high: float
) -> TrialMean | None:
    before, after = (
        study.trials(detectors, [Setup(dataset, GAMMA_RATE, labelled) for dataset in datasets])
        for labelled in (low, high)
    )
    return mean_over_trials(trial_differences(after, before))


def _prior_claims(study: Study) -> list[Claim]:
    setups = paper_setups(labelled=LABELLED[0])
    exact = study.at(prior="true").trials(RADS, setups)
    gains = {
        f"pi_p^e = {prior:g} less pi_p^e = 1 - pi_n": mean_over_trials(
            trial_differences(study.at(prior=prior).trials(RADS, setups), exact)
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
        setups = paper_setups(dataset=dataset, labelled=LABELLED[0])
        default = study.at(a=AS[0]).trials(RADS, setups)
        return {
            f"a = {a:g} less a = {AS[0]:g}": mean_over_trials(
                trial_differences(study.at(a=a).trials(RADS, setups), default)
            )
            for a in values
        }

    return [
        _judge(f"{CIFAR}: AUC decreases when a is increased", _NEGATIVE, changes(CIFAR, AS[-1])),
        _judge(f"{CIFAR}: AUC changes little with a", _SIMILAR, changes(CIFAR, *AS[1:])),
        *(
            _judge(f"{dataset}: rAD is robust to a", _SIMILAR, changes(dataset, *AS[1:]))
            for dataset in (FMNIST, MNIST)
        ),
    ]
