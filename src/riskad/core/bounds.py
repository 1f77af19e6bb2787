r"""Proposition 1, Theorems 2 and 3 and their corollary, as numbers.

How far may an estimated risk be from the true one, and a fitted model from the best of its class?
The theorems assume that the rows of each kind are drawn independently, labelled rows like those of
their kind among the unlabelled rows; that `prior` is the true share of normal rows; and that scores
are bounded, |g(x)| <= C_g, for every g of the class G. On these scores

    C_l = max_{|t| <= C_g} l(t)    bounds the loss,
    L_l                            is its Lipschitz constant (`Loss.lipschitz`).

(The paper writes G = {g : ||g||_inf <= C_g}; this means a class inside of it, since the class of
all bounded functions has a Rademacher complexity that does not vanish.)

A risk enters through W_k, the weight of each kind of row in it (`Risk.kind_weights`). For rad and
nnrad W_p = (1-a) pi_p, W_n = (1+a) pi_n and W_u = a, and the formulas below are the paper's; its
proofs use nothing else of the estimator, so that they hold for every risk of
`riskad.core.risks.RISKS`. `riskad.app.bounds.bounds_of` has the bounds of a fitted `ShallowRAD`.

Differences between the paper's statements and proofs: the proof of Proposition 1
ends with a root of a sum of squares, which its statement enlarges to a sum of roots
(`Deviation.sharper` keeps the former); the proof of Theorem 3 prints "probability at least
delta/6" for 1 - delta/6, and loses a sign in its last inequality. None of this changes a theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np
from scipy.optimize import brentq

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts
from riskad.core.losses import Loss, get_loss
from riskad.core.risks import KIND_NAMES, Risk
from riskad.core.score_classes import LinearClass, MeasuredClass

__all__ = [
    "Bias",
    "ByKind",
    "Deviation",
    "EstimationError",
    "ExcessRisk",
    "FittedBounds",
    "bias",
    "deviation",
    "estimation_error",
    "excess_risk",
    "fitted_bounds",
    "psi",
    "psi_inverse",
]


@dataclass(frozen=True)
class ByKind:
    """What the rows of each kind contribute to a bound."""

    normal: float
    anomaly: float
    unlabelled: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.normal + self.anomaly + self.unlabelled

    @property
    def largest(self) -> str:
        """The kind that contributes most: more rows of it would make the bound smaller most."""
        return max(KIND_NAMES.values(), key=lambda kind: float(getattr(self, kind)))


@dataclass(frozen=True)
class Bias:
    """0 <= E[R^(g)] - R(g) <= value; 0 if the risk has no guard."""

    value: float
    C_l: float
    rho: float

    def __str__(self) -> str:
        return f"bias between 0 and {self.value:.4g}"


@dataclass(frozen=True)
class Deviation:
    """|R^(g) - R(g)| <= value with probability 1 - delta, for one g chosen before the draw."""

    value: float
    sharper: float
    chance: ByKind
    bias: float
    delta: float
    C_l: float

    def __str__(self) -> str:
        chance = ", ".join(f"{k} {getattr(self.chance, k):.4g}" for k in KIND_NAMES.values())
        return (
            f"with probability {1 - self.delta:.4g} the estimate is within {self.value:.4g} of the "
            f"risk (chance: {chance}; bias {self.bias:.4g}); by the proof within {self.sharper:.4g}"
        )


@dataclass(frozen=True)
class EstimationError:
    """R(g^) - R(g*) <= value with probability 1 - delta."""

    value: float
    vacuous: bool  # whether it is at least C_l, which the difference never exceeds
    complexity: ByKind  # the part due to the richness of the class
    chance: ByKind  # the part due to the random draw of rows
    bias: float  # the part due to the guard of a non-negative risk, 2 epsilon
    delta: float
    C_l: float
    L_l: float
    theorem: str

    @property
    def by_kind(self) -> ByKind:
        """Complexity and chance together."""
        parts = zip(astuple(self.complexity), astuple(self.chance), strict=True)
        return ByKind(*(complexity + chance for complexity, chance in parts))

    def __str__(self) -> str:
        lines = [
            f"{self.theorem}: the risk exceeds that of the best of the class by at most "
            f"{self.value:.4g} (probability {1 - self.delta:.4g})"
            + (f"; vacuous, as no risk exceeds {self.C_l:.4g}" if self.vacuous else ""),
            f"{'':12}{'complexity':>12}{'chance':>12}",
        ]
        for kind in KIND_NAMES.values():
            numbers = (getattr(part, kind) for part in (self.complexity, self.chance))
            lines.append(f"{kind:12}" + "".join(f"{number:12.4g}" for number in numbers))
        return "\n".join([*lines, f"{'bias':12}{self.bias:12.4g}"])


@dataclass(frozen=True)
class ExcessRisk:
    """I(g^) - I* <= value, where R(g^) - R(g*) <= error and R(g*) - R* <= approximation."""

    value: float
    vacuous: bool  # whether it is 1, which a difference of error rates never exceeds
    error: float
    approximation: float
    loss: str

    def __str__(self) -> str:
        return (
            f"the error rate at threshold 0 exceeds the lowest possible by at most {self.value:.4g}"
            + (" (vacuous)" if self.vacuous else "")
        )


def bias(risk: Risk, counts: LabelCounts, C_g: float, *, rho: float | None = None) -> Bias:
    r"""Proposition 1: the bias of a non-negative risk lies between 0 and epsilon_g. For nnrad

        epsilon_g = a pi_n C_l exp(-2 pi_p^2 rho^2 / (C_l^2 (1/n_u + pi_n^2/n_n)))

    In general the guard is max(0, v_u R_u - v_k R_k), with mean (v_u - v_k) times the risk of the
    other kind, and epsilon = v_k C_l exp(-2 (v_u - v_k)^2 rho^2 / (C_l^2 (v_u^2/n_u + v_k^2/n_k))).
    Risks without a guard are unbiased.

    Parameters
    ----------
    risk : Risk
        From `riskad.core.risks.get_risk`, with its loss, a and prior.
    counts : LabelCounts
        n_p, n_n and n_u: `LabelCounts(normal, anomaly, unlabelled)`.
    C_g : float
        Bound on |g(x)|.
    rho : float, optional
        A lower bound on R_p^+(g), the mean of l(g) over normal rows (for nnpu on R_n^-(g)); by
        default the lowest loss of a score within C_g. If that is 0, epsilon is v_k C_l.

    Examples
    --------
    >>> from riskad.core.risks import get_risk
    >>> risk = get_risk("nnrad", "logistic", a=0.1, prior=0.8)
    >>> print(bias(risk, LabelCounts(100, 20, 2000), C_g=1.0))
    bias between 0 and 5.85e-15
    """
    n = _checked_counts(risk, counts)
    C_g = check_in_interval("C_g", C_g, 0, math.inf, "It bounds the scores.")
    # The loss falls up to t = 1 and is largest at an end; beyond, squared loss rises again.
    ends = risk.loss.value(np.array([-C_g, C_g, min(C_g, 1.0)]))
    C_l, lowest = float(ends.max()), float(ends.min())
    remedy = "It is a lower bound on a mean loss."
    rho = check_in_interval("rho", lowest if rho is None else rho, 0, C_l, remedy, closed=True)
    guarded = [term for term in risk.terms() if term.guarded and term.weight != 0]
    if not risk.guarded or not guarded:  # linear in the sums over rows: the mean is the risk itself
        return Bias(0.0, C_l, rho)
    # The bracket adds one kind (positive weight) and subtracts another: the larger weight is added.
    added, subtracted = sorted(guarded, key=lambda term: -term.weight)
    v_u, v_k = added.weight, -subtracted.weight
    spread = v_u**2 / n[added.kind] + v_k**2 / n[subtracted.kind]
    epsilon = v_k * C_l * math.exp(-2 * ((v_u - v_k) * rho) ** 2 / (C_l**2 * spread))
    return Bias(epsilon, C_l, rho)


def deviation(
    risk: Risk,
    counts: LabelCounts,
    C_g: float,
    *,
    delta: float = 0.05,
    rho: float | None = None,
) -> Deviation:
    r"""Proposition 1: how far the estimated risk of one score is from its true risk.

        |R^(g) - R(g)| <= C_l sqrt(ln(2/delta) / 2) sum_k W_k / sqrt(n_k)  +  epsilon_g

    with probability 1 - delta; epsilon_g is the `bias`, 0 for risks without a guard. `sharper` has
    sqrt(sum_k W_k^2 / n_k) for the sum, as the proof does before its last step.

    Parameters
    ----------
    risk, counts, C_g, rho
        As in `bias`.
    delta : float, default=0.05
        Probability with which the bound may fail.

    Examples
    --------
    >>> from riskad.core.risks import get_risk
    >>> risk = get_risk("rad", "logistic", a=0.1, prior=0.8)
    >>> bound = deviation(risk, LabelCounts(100, 20, 2000), C_g=1.0)
    >>> round(bound.value, 3), bound.chance.largest
    (0.22, 'normal')
    """
    epsilon = bias(risk, counts, C_g, rho=rho)
    chance = _chance(risk, counts, epsilon.C_l, math.log(2 / _checked_delta(delta)))
    # The kinds are drawn independently: their squared ranges add up, and the sum of roots of the
    # statement exceeds this by at most the factor sqrt(3).
    root = math.hypot(chance.normal, chance.anomaly, chance.unlabelled)
    return Deviation(
        value=chance.total + epsilon.value,
        sharper=root + epsilon.value,
        chance=chance,
        bias=epsilon.value,
        delta=delta,
        C_l=epsilon.C_l,
    )


def estimation_error(
    risk: Risk,
    counts: LabelCounts,
    scores: LinearClass | MeasuredClass,
    *,
    delta: float = 0.05,
    rho: float | None = None,
) -> EstimationError:
    r"""Theorems 2 and 3: how far the minimiser g^ of the estimated risk is from the best g*.

    Theorem 3, for risks without a guard: with probability 1 - delta

        R(g^) - R(g*) <= 4 L_l sum_k W_k Rad_k  +  2 C_l sqrt(ln(6/delta) / 2) sum_k W_k / sqrt(n_k)

    Theorem 2, for non-negative risks, over a class that contains -g with each g:

        R(g^) - R(g*) <= 8 L_l sum_k W_k Rad_k  +  2 C_l sqrt(ln(2/delta) / 2) sum_k W_k / sqrt(n_k)
                         + 2 epsilon

    with Rad_k the Rademacher complexity of the class for n_k rows of kind k, and epsilon the
    `bias` for a rho that is valid for the whole class.

    Parameters
    ----------
    risk, counts, rho
        As in `bias`.
    scores : LinearClass or MeasuredClass
        The class of scores, from `riskad.core.score_classes`.
    delta : float, default=0.05
        Probability with which the bound may fail.

    Examples
    --------
    >>> from riskad.core.risks import get_risk
    >>> risk = get_risk("rad", "ramp", a=0.1, prior=0.8)
    >>> print(estimation_error(risk, LabelCounts(2000, 500, 20_000), LinearClass(1.0, 1.0)))
    Theorem 3: the risk exceeds that of the best of the class by at most 0.1357 (probability 0.95)
                  complexity      chance
    normal            0.0322     0.04982
    anomaly          0.01968     0.03044
    unlabelled      0.001414    0.002188
    bias                   0
    """
    epsilon = bias(risk, counts, scores.C_g, rho=rho)
    # The numbers of Theorem 2 and of Theorem 3, as stated above.
    factor, events = (8, 2) if risk.guarded else (4, 6)
    L_l = risk.loss.lipschitz(scores.C_g)
    W, n = risk.kind_weights(), _checked_counts(risk, counts)
    complexity = _by_kind(W, lambda kind: factor * L_l * W[kind] * scores.complexity(kind, n[kind]))
    # Each of the events may fail with probability delta / events, and together with delta at most.
    logarithm = math.log(events / _checked_delta(delta))
    chance = _chance(risk, counts, 2 * epsilon.C_l, logarithm)
    value = complexity.total + chance.total + 2 * epsilon.value
    return EstimationError(
        value=value,
        # Such a bound is still reported: that it is vacuous is what a user of few labels has to
        # know.
        vacuous=value >= epsilon.C_l,
        complexity=complexity,
        chance=chance,
        bias=2 * epsilon.value,
        delta=delta,
        C_l=epsilon.C_l,
        L_l=L_l,
        theorem="Theorem 2" if risk.guarded else "Theorem 3",
    )


def _chance(risk: Risk, counts: LabelCounts, size: float, logarithm: float) -> ByKind:
    """Summands of McDiarmid's inequality: size sqrt(logarithm / 2) W_k / sqrt(n_k)."""
    W, n = risk.kind_weights(), _checked_counts(risk, counts)
    scale = size * math.sqrt(logarithm / 2)
    return _by_kind(W, lambda kind: scale * W[kind] / math.sqrt(n[kind]))


def _by_kind(W: np.ndarray, term: Callable[[int], float]) -> ByKind:
    # A kind of weight 0 may have no rows at all: its term is 0, not 0 / 0.
    return ByKind(*(float(term(kind)) if W[kind] else 0.0 for kind in KIND_NAMES))


def excess_risk(
    error: EstimationError, loss: str | Loss, *, approximation: float = 0.0
) -> ExcessRisk:
    r"""Corollary: how far the error rate of the minimiser g^ is from the lowest possible one.

        I(g^) - I* <= psi^-1(B + R(g*) - R*)

    with I the error rate of the sign of g, threshold 0, and B the bound of `estimation_error`.

    Parameters
    ----------
    error : EstimationError
        The bound B.
    loss : str or Loss
        The loss of the risk; one of Table 1, all of which are classification-calibrated.
    approximation : float, default=0.0
        R(g*) - R*: how much worse the best of the class is than the best of all scores. The data
        do not show it; 0 if the class contains the best score.
    """
    remedy = "0 where the best score is in the class."
    approximation = check_in_interval(
        "approximation", approximation, 0, math.inf, remedy, closed=True
    )
    # psi is increasing, so that its inverse at a bound of the excess risk bounds the excess error.
    value = psi_inverse(loss, error.value + approximation)
    return ExcessRisk(value, value >= 1, error.value, approximation, get_loss(loss).name)


@dataclass(frozen=True)
class FittedBounds:
    """The bounds of a fitted model, and their inputs."""

    counts: LabelCounts
    C_w: float
    C_x: float
    error: EstimationError
    excess: ExcessRisk

    def __str__(self) -> str:
        return f"{self.counts}; ||w|| <= {self.C_w:.4g}, ||x|| <= {self.C_x:.4g}\n{self.error}"


def fitted_bounds(
    risk: Risk, counts: LabelCounts, weight_norm: float, row_norm: float, *, delta: float = 0.05
) -> FittedBounds:
    r"""Theorem 2 or 3 and the corollary for a regularised linear fit with ||w^|| = `weight_norm`.

    A minimiser w^ of risk plus penalty also minimises the risk alone among all w no longer than
    itself: it is the g^ of the class G = {||w|| <= ||w^||}. But this class depends on the random
    draw, which the theorems do not allow. So they are applied to all radii 2^k at once, with
    delta_k = delta / (4 (1 + k^2)), whose sum over the integers k is below delta. The bound for
    the smallest 2^k >= ||w^|| is used: it holds for the fit and every competitor in G. An l1 ball
    lies inside the l2 ball of its radius.

    `row_norm` counts as a bound on all later rows, and standardisation and feature map as given:
    the bound does not apply to rows longer than the longest one seen.
    """
    _checked_delta(delta)
    # A fit with w = 0 has no logarithm. The floor need only be small: k enters through ln(1 + k^2).
    k = math.ceil(math.log2(max(weight_norm, 2.0**-20)))
    scores = LinearClass(2.0**k, row_norm)
    error = estimation_error(risk, counts, scores, delta=delta / (4 * (1 + k**2)))
    return FittedBounds(counts, scores.C_w, scores.C_x, error, excess_risk(error, risk.loss))


def _checked_delta(delta: float) -> float:
    return check_in_interval("delta", delta, 0, 1, "It is the probability that the bound fails.")


def _checked_counts(risk: Risk, counts: LabelCounts) -> dict[int, int]:
    """Rows of each kind by label code; at least one of each kind that the risk uses."""
    n = {NORMAL: counts.normal, ANOMALY: counts.anomaly, UNLABELLED: counts.unlabelled}
    for kind in risk.kinds():
        if not n[kind] >= 1:
            raise InputError(
                f"the {risk.name} risk needs {KIND_NAMES[kind]} rows, got {n[kind]} ({counts})."
            )
    return n


# --- from a bound on the risk to a bound on the error rate: the psi-transform of a loss ----------


def _entropy_gap(theta: float) -> float:
    """Entropy of a fair coin minus that of one with bias theta."""
    # x ln x tends to 0 with x, which floating point does not know.
    rest = (1 - theta) * math.log1p(-theta) if theta < 1 else 0.0
    return 0.5 * ((1 + theta) * math.log1p(theta) + rest)


# psi of each loss as Table 1 scales it. Bartlett, Jordan and McAuliffe (2006) work out the hinge,
# squared (so truncated), logistic and sigmoid ones, up to scale. The others follow likewise: for a
# convex loss psi(theta) = l(0) - H((1 + theta) / 2), and modified Huber has the minimisers of the
# squared loss; double hinge, sigmoid and ramp have H(eta) = min(eta, 1 - eta) and l(0) = 1/2.
_PSI: dict[str, Callable[[float], float]] = {
    "hinge": lambda theta: theta,
    "double_hinge": lambda theta: theta / 2,
    "squared": lambda theta: theta**2 / 2,
    "modified_huber": lambda theta: theta**2,
    "logistic": _entropy_gap,
    "sigmoid": lambda theta: theta / 2,
    "ramp": lambda theta: theta / 2,
}


def psi(loss: str | Loss, theta: float) -> float:
    r"""Bartlett, Jordan and McAuliffe's (2006) transform of error rates into risks:

        psi(I(g) - I*) <= R(g) - R*

    For theta = 2 eta - 1 in [0, 1] it is the largest convex function below H^-(eta) - H(eta), with

        H(eta) = inf_t eta l(t) + (1-eta) l(-t),   H^-(eta): the same over t (2 eta - 1) <= 0,

    the lowest risk of scores where a row is normal with probability eta, and the lowest risk of
    scores with the wrong sign.

    >>> psi("modified_huber", 0.5), psi("hinge", 0.5)
    (0.25, 0.5)
    """
    theta = check_in_interval("theta", theta, 0, 1, closed=True)
    return _psi_of(loss)(theta)


def psi_inverse(loss: str | Loss, value: float) -> float:
    """The theta with psi(theta) = `value`; 1 from psi(1) on, since no error rate is further off.

    >>> psi_inverse("modified_huber", 0.25), psi_inverse("hinge", 7.0)
    (0.5, 1.0)
    """
    value = check_in_interval("value", value, 0, math.inf, "It bounds a risk.", closed=True)
    transform = _psi_of(loss)
    if value >= transform(1.0):
        return 1.0
    # Finer than brentq's default: a quadratic psi is flat at 0, where small risks have small theta.
    return float(brentq(lambda theta: transform(theta) - value, 0.0, 1.0, xtol=1e-15))


def _psi_of(loss: str | Loss) -> Callable[[float], float]:
    name = get_loss(loss).name
    if name not in _PSI:
        raise InputError(
            f"psi of the {name} loss is not known; it is for {', '.join(_PSI)}. With another loss "
            "use the bound on the risk itself, estimation_error."
        )
    return _PSI[name]
