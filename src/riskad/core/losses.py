r"""Margin losses l(z) of Table 1, each written once over the array's own namespace.

A loss is pointwise and knows no data: `z` is the margin, f for "this row is normal" and -f for
"this row is an anomaly". Values work for NumPy arrays and torch tensors, and autograd can
differentiate them. Properties of a loss that solvers need are flags on its class:

=================  ======  ======  =========  ==========  =======  ==============  =========
loss               convex  smooth  symmetric  linear-odd  bounded  (b1, b2, b3)    calibrated
=================  ======  ======  =========  ==========  =======  ==============  =========
hinge              yes     no      no         no          no       (2, 1, 1)       yes
double_hinge       yes     no      no         c = 1       no       (1, 1/2, 1)     yes
squared            yes     yes     no         c = 2       no       (2, 1/2, 1/2)   yes
modified_huber     yes     yes     no         c = 4       no       (4, 1, 1/2)     yes
logistic           yes     yes     no         c = 1       no       (1, 1, ln 2)    yes
sigmoid            no      yes     yes        no          yes      (1, 1/2, 1)     yes
ramp               no      no      yes        no          yes      (1, 1/2, 1)     yes
=================  ======  ======  =========  ==========  =======  ==============  =========

- symmetric: l(z) + l(-z) = 1; linear-odd: l(z) - l(-z) = -c z.
- (b1, b2, b3) are the constants of Theorem 1: l(-t) - l(t) >= -b1 |t| and l(-t) >= b2 (b3 - |t|).
- At a kink the derivative is the steeper of its two sides, which is also what autograd returns.

To add a loss, subclass `Loss`, set the flags, and add an instance to `LOSSES`: this registry
defines the aliases, the command line's choices and the test matrix.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from riskad.core.checks import InputError, lookup

__all__ = ["LOSSES", "Loss", "get_loss"]

Array = Any  # of a namespace that array-api-compat knows: NumPy, torch, CuPy ...


def namespace(z: Array) -> Any:
    """The array's own namespace; for NumPy, needed in every row block, without a look-up."""
    return np if type(z) is np.ndarray else array_namespace(z)


class Pointwise(ABC):
    """A function of the margin with its first two derivatives."""

    smooth: bool = True
    convex: bool = True

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Value at each margin."""

    @abstractmethod
    def derivative(self, z: Array) -> Array:
        """First derivative at each margin; the steeper side at a kink."""

    @abstractmethod
    def curvature(self, z: Array) -> Array:
        """Second derivative where it exists, 0 at a kink of a piecewise linear function."""

    def smoothed(self, gamma: float) -> Pointwise:
        """The same function with kinks rounded over a width `gamma`; itself if it has none."""
        return self

    def dc_parts(self) -> tuple[Pointwise, Pointwise | None]:
        """Convex functions (u, v) with difference u - v; v is None if this function is convex."""
        if not self.convex:
            raise InputError(f"{self!r} is not convex and must say how it splits: dc_parts.")
        return self, None

    def support_value(self, z: Array) -> Array:
        """Value at `z` of a function below the sharp one with the slope of the rounded one.

        Solvers build duality gaps from them.
        """
        return self.value(z)


@dataclass(frozen=True)
class Hinges(Pointwise):
    r"""Convex piecewise linear function sum_j s_j max(0, k_j - z), with kinks k_j, slopes s_j > 0.

    With `gamma` > 0 each max(0, t) becomes max_{0 <= s <= 1} (s t - gamma s^2 / 2), that is 0,
    t^2 / (2 gamma) or t - gamma / 2: smooth, below max(0, t), by at most gamma / 2.
    """

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]
    gamma: float = 0.0

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether the kinks are rounded."""
        return self.gamma > 0

    def value(self, z: Array) -> Array:
        xp = namespace(z)
        total = 0.0
        for kink, slope in zip(self.kinks, self.slopes, strict=True):
            t = xp.clip(kink - z, min=0.0)
            if self.gamma > 0:
                bent = xp.clip(t, max=self.gamma)
                # One formula for all three cases: `bent` is t below gamma and gamma above.
                t = t - bent + bent * bent / (2 * self.gamma)
            total = total + slope * t
        return total

    def derivative(self, z: Array) -> Array:
        total = 0.0
        for kink, slope in zip(self.kinks, self.slopes, strict=True):
            total = total - slope * self._multiplier(kink - z)
        return total

    def _multiplier(self, t: Array) -> Array:
        """The s in [0, 1] that attains max(0, t), or its rounded form."""
        xp = namespace(t)
        if self.gamma > 0:
            return xp.clip(t / self.gamma, min=0.0, max=1.0)
        # At the kink itself (t = 0) the steeper side counts, as in autograd of clip.
        return xp.astype(t >= 0, t.dtype)

    def curvature(self, z: Array) -> Array:
        xp = namespace(z)
        # Sharp hinges are flat but for their kinks, and remain at 0.
        total = xp.zeros_like(z)
        if self.gamma > 0:
            for kink, slope in zip(self.kinks, self.slopes, strict=True):
                t = kink - z
                bent = xp.astype((t > 0) & (t < self.gamma), z.dtype)
                total = total + (slope / self.gamma) * bent
        return total

    def smoothed(self, gamma: float) -> Hinges:
        return Hinges(self.kinks, self.slopes, gamma)

    def support_value(self, z: Array) -> Array:
        # With the multipliers fixed, each term is a line below its sharp hinge.
        total = 0.0
        for kink, slope in zip(self.kinks, self.slopes, strict=True):
            t = kink - z
            total = total + slope * t * self._multiplier(t)
        return total


class Loss(Pointwise):
    """A margin loss l(z) and its properties that risks, theorems and solvers use."""

    name: ClassVar[str]
    bounded: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False
    calibrated: ClassVar[bool] = True
    linear_odd: ClassVar[float | None] = None
    """c of l(z) - l(-z) = -c z, or None if the difference is not linear."""
    quadratic: ClassVar[bool] = False
    """Whether l is a polynomial of degree 2, so that sums over rows determine its risk exactly."""
    theorem_constants: ClassVar[tuple[float, float, float] | None] = None
    """(b1, b2, b3) of Theorem 1; without them lambda must be given as a number."""

    @abstractmethod
    def lipschitz(self, bound: float) -> float:
        """Smallest L with |l(s) - l(t)| <= L |s - t| for all |s|, |t| <= `bound`."""

    def __repr__(self) -> str:
        return f"<{self.name} loss>"


@dataclass(frozen=True, repr=False)
class Hinge(Loss, Hinges):
    """max(0, 1 - z)."""

    name = "hinge"
    theorem_constants = (2.0, 1.0, 1.0)
    kinks: tuple[float, ...] = (1.0,)
    slopes: tuple[float, ...] = (1.0,)

    def lipschitz(self, bound: float) -> float:
        pieces = zip(self.kinks, self.slopes, strict=True)
        return sum(slope for kink, slope in pieces if kink > -bound)


@dataclass(frozen=True, repr=False)
class DoubleHinge(Hinge):
    """max(0, (1 - z) / 2, -z): two half-slope hinges, with kinks at 1 and -1."""

    name = "double_hinge"
    linear_odd = 1.0
    theorem_constants = (1.0, 0.5, 1.0)
    kinks: tuple[float, ...] = (1.0, -1.0)
    slopes: tuple[float, ...] = (0.5, 0.5)


class Squared(Loss):
    """(z - 1)^2 / 2."""

    name = "squared"
    quadratic = True
    linear_odd = 2.0
    theorem_constants = (2.0, 0.5, 0.5)

    def value(self, z: Array) -> Array:
        t = z - 1
        return 0.5 * t * t

    def derivative(self, z: Array) -> Array:
        return z - 1

    def curvature(self, z: Array) -> Array:
        return namespace(z).ones_like(z)

    def lipschitz(self, bound: float) -> float:
        return 1.0 + bound


class ModifiedHuber(Loss):
    """max(0, 1 - z)^2 for z >= -1 and -4 z below."""

    name = "modified_huber"
    linear_odd = 4.0
    theorem_constants = (4.0, 1.0, 0.5)

    def value(self, z: Array) -> Array:
        # u^2 while u = 1 - z lies in [0, 2], and 4 (1 - z) - 4 beyond: one formula, no branch.
        t = 1 - z
        u = namespace(z).clip(t, min=0.0, max=2.0)
        return u * (2 * t - u)

    def derivative(self, z: Array) -> Array:
        return -2 * namespace(z).clip(1 - z, min=0.0, max=2.0)

    def curvature(self, z: Array) -> Array:
        xp = namespace(z)
        return 2 * xp.astype(xp.abs(z) <= 1, z.dtype)

    def lipschitz(self, bound: float) -> float:
        return 2 * (1 + min(bound, 1.0))


class Logistic(Loss):
    """ln(1 + exp(-z))."""

    name = "logistic"
    linear_odd = 1.0
    theorem_constants = (1.0, 1.0, math.log(2.0))

    def value(self, z: Array) -> Array:
        # Odd part -z/2 plus an even part: autograd at 0 is then -1/2, as it must be, which
        # max(0, -z) + log1p does not give; and several times faster than logaddexp in NumPy.
        xp = namespace(z)
        size = xp.abs(z)
        return 0.5 * (size - z) + xp.log1p(xp.exp(-size))

    def derivative(self, z: Array) -> Array:
        return 0.5 * namespace(z).tanh(0.5 * z) - 0.5

    def curvature(self, z: Array) -> Array:
        s = _expit(z)
        return s * (1 - s)

    def lipschitz(self, bound: float) -> float:
        # |l'| falls with z, so that it is largest at the lower end -bound.
        return 1 / (1 + math.exp(-bound))


class Sigmoid(Loss):
    """1 / (1 + exp(z))."""

    name = "sigmoid"
    convex = False
    bounded = True
    symmetric = True
    theorem_constants = (1.0, 0.5, 1.0)

    def value(self, z: Array) -> Array:
        return _expit(-z)

    def derivative(self, z: Array) -> Array:
        return -_expit(z) * _expit(-z)

    def curvature(self, z: Array) -> Array:
        s = _expit(z)
        t = _expit(-z)
        return s * t * (s - t)

    def dc_parts(self) -> tuple[Pointwise, Pointwise]:
        # Convex for z > 0 and concave below, where the tangent at 0 replaces the curve in u and v
        # takes the difference off again.
        return _SigmoidTail(side=1), _SigmoidTail(side=-1)

    def lipschitz(self, bound: float) -> float:
        # The slope at 0, the steepest, which every bound includes.
        return 0.25


@dataclass(frozen=True)
class _SigmoidTail(Pointwise):
    r"""Convex halves of the sigmoid loss, split at its inflection point 0.

    side +1: u(z) = l(z) for z >= 0 and the tangent 1/2 - z/4 below.
    side -1: v(z) = u(z) - l(z): 0 for z >= 0, tangent minus l below.
    """

    side: int

    def value(self, z: Array) -> Array:
        return self._half(z, _SIGMOID.value(z), 0.5 - 0.25 * z)

    def derivative(self, z: Array) -> Array:
        return self._half(z, _SIGMOID.derivative(z), -0.25 * namespace(z).ones_like(z))

    def _half(self, z: Array, loss: Array, tangent: Array) -> Array:
        xp = namespace(z)
        # `where` evaluates both branches; through tanh neither can overflow.
        if self.side > 0:
            return xp.where(z >= 0, loss, tangent)
        return xp.where(z >= 0, xp.zeros_like(z), tangent - loss)

    def curvature(self, z: Array) -> Array:
        xp = namespace(z)
        # The curvature of the loss has the sign of z: of each half, only its own side remains.
        return xp.clip(self.side * _SIGMOID.curvature(z), min=0.0)


class Ramp(Loss):
    """max(0, min(1, (1 - z) / 2))."""

    name = "ramp"
    convex = False
    smooth = False
    bounded = True
    symmetric = True
    theorem_constants = (1.0, 0.5, 1.0)

    def value(self, z: Array) -> Array:
        return namespace(z).clip((1 - z) / 2, min=0.0, max=1.0)

    def derivative(self, z: Array) -> Array:
        xp = namespace(z)
        return -0.5 * xp.astype(xp.abs(z) <= 1, z.dtype)

    def curvature(self, z: Array) -> Array:
        return namespace(z).zeros_like(z)

    def dc_parts(self) -> tuple[Pointwise, Pointwise]:
        # The ramp is a falling hinge that a second one, from z = -1 down, takes back.
        return Hinges(kinks=(1.0,), slopes=(0.5,)), Hinges(kinks=(-1.0,), slopes=(0.5,))

    def lipschitz(self, bound: float) -> float:
        return 0.5


def _expit(z: Array) -> Array:
    """1 / (1 + exp(-z)), through tanh: no overflow, no branch, and autograd is right."""
    return 0.5 + 0.5 * namespace(z).tanh(0.5 * z)


_SIGMOID = Sigmoid()

LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in [Hinge(), DoubleHinge(), Squared(), ModifiedHuber(), Logistic(), _SIGMOID, Ramp()]
}


def get_loss(loss: str | Loss) -> Loss:
    """The registered loss with this name, or the given `Loss` itself.

    >>> get_loss("modified_huber").value(np.array([-2.0, 0.0, 1.0]))
    array([8., 1., 0.])
    """
    return loss if isinstance(loss, Loss) else lookup("loss", loss, LOSSES)
