"""From a bound on the risk to a bound on the error rate: the psi-transform of a loss."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from riskad.core.checks import InputError, check_in_interval
from riskad.core.losses import Loss, get_loss

__all__ = ["psi", "psi_inverse"]


def _entropy_gap(theta: float) -> float:
    """Entropy of a fair coin minus that of one with bias theta."""
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
    return float(brentq(lambda theta: transform(theta) - value, 0.0, 1.0, xtol=1e-15))


def _psi_of(loss: str | Loss) -> Callable[[float], float]:
    name = get_loss(loss).name
    if name not in _PSI:
        raise InputError(
            f"psi of the {name} loss is not known; it is for {', '.join(_PSI)}. With another loss "
            "use the bound on the risk itself, estimation_error."
        )
    return _PSI[name]
