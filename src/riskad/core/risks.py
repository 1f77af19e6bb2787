r"""Risk estimators: how P, N and U together estimate the classification risk.

Every estimator of the paper is a short sum of weighted mean losses over scores f = g(x), high f
meaning normal. With pi_p the prior probability of a normal row, pi_n = 1 - pi_p, and R_k^{+/-}
the mean of l(+f) or l(-f) over the rows of kind k:

======  =======================================================================================
risk    estimate
======  =======================================================================================
pn      pi_p R_p^+ + pi_n R_n^-
pu      pi_p R_p^+ + [R_u^- - pi_p R_p^-]
nu      pi_n R_n^- + [R_u^+ - pi_n R_n^+]
pnu     (1 - a) pn + a nu for a >= 0, (1 + a) pn - a pu for a < 0  (Sakai et al. 2017, eta = -a)
rad     (1 - a) pi_p R_p^+ + pi_n R_n^- + a [R_u^+ - pi_n R_n^+]    (the paper's R2_s, unbiased)
======  =======================================================================================

`nnpu`, `nnnu` and `nnrad` (the paper's R1_s) put max(0, .) around the bracket, an estimate of a
quantity that cannot be negative. To add a risk, subclass `Risk`, write its `terms`, and add the
class to `RISKS`.

The paper states two forms of the pu risk: R1_pu for symmetric losses and R2_pu for linear-odd
ones. Both are this one: l(-f) = 1 - l(f), or l(-f) = l(f) + c f, turns it into either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from riskad.core.checks import InputError, check_in_interval, lookup
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import Loss, get_loss

__all__ = ["KIND_NAMES", "RISKS", "Risk", "Term", "get_risk"]

Array = Any
KIND_NAMES = {NORMAL: "normal", ANOMALY: "anomaly", UNLABELLED: "unlabelled"}


@dataclass(frozen=True)
class Term:
    """`weight` times the mean of l(sign * f) over the rows labelled `kind`."""

    kind: int
    sign: int
    weight: float
    guarded: bool = False

    @property
    def name(self) -> str:
        """For example "anomaly as normal": anomalies with the loss of a normal row."""
        return f"{KIND_NAMES[self.kind]} as {'normal' if self.sign > 0 else 'anomaly'}"


class Risk(ABC):
    """An estimator of the classification risk, bound to a loss, a prior and a mixing weight.

    Parameters
    ----------
    loss : str or Loss
        Margin loss, a name of `riskad.core.losses.LOSSES` or an instance.
    a : float, default=0.1
        Mixing weight of the unlabelled rows, for the risks that have one.
    prior : float, default=0.8
        pi_p, the probability that an unlabelled row is normal.

    Examples
    --------
    >>> scores, y = np.array([2.0, -1.0, 0.5, 1.5]), np.array([1, -1, 0, 0])
    >>> risk = RISKS["rad"]("logistic", a=0.1, prior=0.8)
    >>> round(float(risk.value(scores, y)), 4)
    0.1615
    >>> {name: round(float(part), 3) for name, part in risk.parts(scores, y).items()}
    {'normal as normal': 0.091, 'anomaly as anomaly': 0.063, 'unlabelled as normal': 0.034, \
'anomaly as normal': -0.026}
    """

    name: ClassVar[str]
    guarded: ClassVar[bool] = False
    """Whether max(0, .) is applied to the guarded terms."""
    a_range: ClassVar[tuple[float, float] | None] = None
    """Closed range of `a`, or None if the risk has no mixing weight."""

    def __init__(self, loss: str | Loss = "modified_huber", a: float = 0.1, prior: float = 0.8):
        self.loss = get_loss(loss)
        meaning = "It is the share of normal rows, 1 minus the anomaly rate."
        self.prior = check_in_interval("prior", prior, 0, 1, meaning)
        # A risk without a mixing weight ignores `a`, but nonsense is refused all the same.
        low, high = self.a_range or (-1.0, 1.0)
        self.a = check_in_interval("a", a, low, high, closed=True)

    @property
    def pi_p(self) -> float:
        """Prior probability of a normal row."""
        return self.prior

    @property
    def pi_n(self) -> float:
        """Prior probability of an anomaly: the anomaly rate."""
        return 1.0 - self.prior

    @property
    def theorem(self) -> tuple[int, float, float] | None:
        """(kind, a, prior) for Theorem 1: the kind whose reach bounds the negative term.

        None for risks that the theorem does not cover.
        """
        return None

    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """The estimate as weighted mean losses."""

    def kinds(self) -> set[int]:
        """Label kinds that the estimate needs."""
        return {term.kind for term in self.terms() if term.weight != 0}

    def kind_weights(self) -> np.ndarray:
        """The weight of each kind in the estimate, indexed by label code."""
        weights = np.zeros(3)
        for term in self.terms():
            # Anomalies count twice in rad, by themselves and in the bracket: (1 + a) pi_n.
            weights[term.kind] += abs(term.weight)
        return weights

    def parts(self, scores: Array, y: Array, sample_weight: Array | None = None) -> dict[str, Any]:
        """Each term's contribution, by name; they add up to the unguarded risk."""
        return {
            term.name: term.weight * self._mean(term, scores, y, sample_weight)
            for term in self._active()
        }

    def value(self, scores: Array, y: Array, sample_weight: Array | None = None) -> Array:
        """The estimated risk of `scores`, for NumPy arrays or torch tensors."""
        plain, guarded = list[Any](), list[Any]()
        for term in self._active():
            part = term.weight * self._mean(term, scores, y, sample_weight)
            (guarded if self.guarded and term.guarded else plain).append(part)
        # A risk without a guard must stay differentiable: clip would have a kink at 0.
        if not guarded:
            return sum(plain)
        return sum(plain) + array_namespace(scores).clip(sum(guarded), min=0.0)

    def _active(self) -> Iterator[Term]:
        # A term of weight 0 would otherwise need rows of its kind, which the user may not have.
        return (term for term in self.terms() if term.weight != 0)

    def _mean(self, term: Term, scores: Array, y: Array, sample_weight: Array | None) -> Array:
        xp = array_namespace(scores)
        rows = y == term.kind
        # Without its rows of weight 0 a kind may be empty: an error, not 0 / 0.
        if sample_weight is not None:
            rows = rows & (sample_weight != 0)
        if not xp.any(rows):
            raise InputError(
                f"the {self.name} risk needs {KIND_NAMES[term.kind]} rows, and there are none."
            )
        # Rows of other kinds are left out before the loss is evaluated: 0 x inf would be NaN.
        losses = self.loss.value(term.sign * scores[rows])
        if sample_weight is None:
            return xp.mean(losses)
        weights = sample_weight[rows]
        return xp.sum(weights * losses) / xp.sum(weights)

    def __repr__(self) -> str:
        mixing = "" if self.a_range is None else f", a={self.a:g}"
        return f"<{self.name} risk: {self.loss.name} loss, prior={self.prior:g}{mixing}>"


class PN(Risk):
    """Labelled rows only."""

    name = "pn"

    @property
    def theorem(self) -> tuple[int, float, float]:
        # The pn risk has no negative term: lambda of the theorem is that of a = 0.
        return ANOMALY, 0.0, self.prior

    def terms(self) -> tuple[Term, ...]:
        return Term(NORMAL, +1, self.pi_p), Term(ANOMALY, -1, self.pi_n)


class PU(Risk):
    """Labelled normal rows and unlabelled rows."""

    name = "pu"

    def terms(self) -> tuple[Term, ...]:
        # The bracket is marked here; only the non-negative subclass applies max(0, .) to it.
        return (
            Term(NORMAL, +1, self.pi_p),
            Term(UNLABELLED, -1, 1.0, guarded=True),
            Term(NORMAL, -1, -self.pi_p, guarded=True),
        )


class NU(Risk):
    """Labelled anomalies and unlabelled rows."""

    name = "nu"

    def terms(self) -> tuple[Term, ...]:
        return (
            Term(ANOMALY, -1, self.pi_n),
            Term(UNLABELLED, +1, 1.0, guarded=True),
            Term(ANOMALY, +1, -self.pi_n, guarded=True),
        )


class RAD(Risk):
    """The paper's unbiased estimator R2_s: (1 - a) pn + a nu."""

    name = "rad"
    # From the pn risk, a = 0, to the nu risk, a = 1, unlabelled rows weigh more and more.
    a_range = (0.0, 1.0)

    @property
    def theorem(self) -> tuple[int, float, float]:
        return ANOMALY, self.a, self.prior

    def terms(self) -> tuple[Term, ...]:
        a = self.a
        return (
            Term(NORMAL, +1, (1 - a) * self.pi_p),
            Term(ANOMALY, -1, self.pi_n),
            Term(UNLABELLED, +1, a, guarded=True),
            Term(ANOMALY, +1, -a * self.pi_n, guarded=True),
        )


class PNU(RAD):
    """pn mixed with nu (a > 0, then the same as `rad`) or with pu (a < 0)."""

    name = "pnu"
    a_range = (-1.0, 1.0)

    @property
    def theorem(self) -> tuple[int, float, float]:
        # With a < 0 normal rows and anomalies change places.
        return super().theorem if self.a >= 0 else (NORMAL, -self.a, self.pi_n)

    def terms(self) -> tuple[Term, ...]:
        if self.a >= 0:
            return super().terms()
        eta = -self.a  # Sakai's mixing weight, positive where the pu risk joins
        return (
            Term(NORMAL, +1, self.pi_p),
            Term(ANOMALY, -1, (1 - eta) * self.pi_n),
            Term(UNLABELLED, -1, eta, guarded=True),
            Term(NORMAL, -1, -eta * self.pi_p, guarded=True),
        )


class NonNegativePU(PU):
    """The non-negative pu risk of Kiryo et al. 2017 (the paper's R3_pu)."""

    name = "nnpu"
    guarded = True


class NonNegativeNU(NU):
    """The nu risk with its bracket kept non-negative."""

    name = "nnnu"
    guarded = True


class NonNegativeRAD(RAD):
    """The paper's non-negative estimator R1_s."""

    name = "nnrad"
    guarded = True


RISKS: dict[str, type[Risk]] = {
    risk.name: risk for risk in (PN, PU, NonNegativePU, NU, NonNegativeNU, PNU, RAD, NonNegativeRAD)
}


def get_risk(
    risk: str | type[Risk], loss: str | Loss = "modified_huber", a: float = 0.1, prior: float = 0.8
) -> Risk:
    """The risk with this name, with its loss, mixing weight and prior."""
    kind = lookup("risk", risk, RISKS) if isinstance(risk, str) else risk
    return kind(loss, a=a, prior=prior)
