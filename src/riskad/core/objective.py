r"""Loss x risk x labels: value, gradient and curvature of the risk with respect to scores.

A risk is a table of coefficients over the label kinds k,

    R(f) = sum_i  A[y_i] l(f_i) + B[y_i] l(-f_i) + L[y_i] f_i  +  constant,

which `RowSum` evaluates row by row. No row is duplicated to express a coefficient. Before use, the
table is converted to the form that its loss allows:

- linear-odd, l(-f) = l(f) + c f: all weight moves to l(f) and the linear term, so that negative
  coefficients cancel and the risk is visibly convex;
- symmetric, l(-f) = 1 - l(f): one of A and B remains, and it is not negative;
- otherwise (hinge) the table is unchanged, and a negative A marks a concave term.

The same step makes sums exact for large scores, where l(f) - l(-f) would cancel, and halves the
work. A guarded risk is plain + max(0, guarded), two tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from riskad.core.checks import InputError
from riskad.core.losses import Loss, Pointwise, namespace
from riskad.core.risks import KIND_NAMES, Risk, Term

Array: TypeAlias = Any  # of NumPy, or torch tensors on one device


@dataclass(frozen=True)
class RowSum:
    """sum_i A[y_i] l(f_i) + B[y_i] l(-f_i) + L[y_i] f_i + constant, for a pointwise l.

    `A`, `B` and `L` have three entries, found by label code (0, 1, and -1 for the last).
    """

    loss: Pointwise
    A: np.ndarray
    B: np.ndarray
    L: np.ndarray
    constant: float = 0.0

    # Each takes the scores and label codes of some rows, their weights (None: all 1), and the
    # positions of the labelled rows among them, if known.

    def value(self, f: Array, y: Array, weight: Array = None, labelled: Array = None) -> float:
        """The sum over these rows, without the constant."""
        return self._total(self.loss.value, f, y, weight, labelled)

    def support_value(
        self, f: Array, y: Array, weight: Array = None, labelled: Array = None
    ) -> float:
        """As `value`, for the lines below the loss that its rounded form touches (see `Hinges`)."""
        return self._total(self.loss.support_value, f, y, weight, labelled)

    def gradient(self, f: Array, y: Array, weight: Array = None, labelled: Array = None) -> Array:
        """First derivative d sum / d f_i for each row."""
        return self._by_row(self.loss.derivative, f, y, weight, labelled, odd=-1.0)

    def curvature(self, f: Array, y: Array, weight: Array = None, labelled: Array = None) -> Array:
        """Second derivative d^2 sum / d f_i^2 for each row."""
        return self._by_row(self.loss.curvature, f, y, weight, labelled, odd=1.0)

    # Most rows are unlabelled and share their coefficients: they need no look-up, and cost nothing
    # if the risk does not use them. The few labelled rows are then corrected. On a device, one
    # look-up for all rows costs less than the dozen steps of that.

    @cached_property
    def unlabelled(self) -> tuple[float, float, float] | None:
        """The coefficients of unlabelled rows; None if these do not count."""
        shared = float(self.A[0]), float(self.B[0]), float(self.L[0])
        return shared if any(shared) else None

    @cached_property
    def _labelled(self) -> bool:
        return bool(self._tables[0][:, 1:].any())

    def _total(self, function: Any, f: Array, y: Array, weight: Array, labelled: Array) -> float:
        if not isinstance(f, np.ndarray):
            rows = _combine(function, f, *self._of(y, f), 1.0, f)
            rows = rows if weight is None else rows * weight
            # Scores on a device are often float32, in which a sum over millions of rows loses
            # digits.
            return float(rows.sum(dtype=namespace(f).float64))
        labelled = np.flatnonzero(y) if labelled is None else labelled
        total = 0.0
        if self.unlabelled:
            # All rows as if they were unlabelled, which nearly all are.
            rows = _combine(function, f, *self.unlabelled, odd=1.0, linear=f)
            rows = rows if weight is None else rows * weight
            rows[labelled] = 0  # not subtracted: large scores would leave rounding errors
            total += float(rows.sum())
        if self._labelled and len(labelled):
            f = f[labelled]
            rows = _combine(function, f, *self._of(y[labelled], f), 1.0, f)
            total += float(rows.sum() if weight is None else rows @ weight[labelled])
        return total

    def _by_row(
        self, function: Any, f: Array, y: Array, weight: Array, labelled: Array, odd: float
    ) -> Array:
        linear = 1.0 if odd < 0 else 0.0  # L f has a first derivative and no second
        if not isinstance(f, np.ndarray):
            out = _combine(function, f, *self._of(y, f), odd, linear)
            return out if weight is None else out * weight
        if self.unlabelled:
            out = _combine(function, f, *self.unlabelled, odd, linear)
        else:
            out = np.zeros(len(f))
        labelled = np.flatnonzero(y) if labelled is None else labelled
        if len(labelled):
            f = f[labelled]
            out[labelled] = _combine(function, f, *self._of(y[labelled], f), odd, linear)
        return out if weight is None else out * weight

    @cached_property
    def _tables(self) -> tuple[np.ndarray, list[bool]]:
        """A, B and L, and which of them are not 0."""
        tables = np.stack([self.A, self.B, self.L])
        return tables, [bool(table.any()) for table in tables]

    def _of(self, kinds: Any, f: Any) -> tuple[Any, Any, Any]:
        """Coefficients of rows of these kinds: arrays like their scores, or 0.0 for all."""
        tables, used = self._tables
        if isinstance(f, np.ndarray):
            entries = tables[:, kinds]
        else:
            xp = namespace(f)
            # torch takes int64 as an index and no int16; -1 means the last entry, as in NumPy.
            entries = xp.asarray(tables, dtype=f.dtype, device=f.device)[:, kinds.long()]
        A, B, L = entries
        return A if used[0] else 0.0, B if used[1] else 0.0, L if used[2] else 0.0

    @property
    def convex(self) -> bool:
        """Whether it is certainly convex in the scores: a convex l and no negative coefficient."""
        return self.loss.convex and bool((self.A >= 0).all() and (self.B >= 0).all())

    def scaled(self, factor: float) -> RowSum:
        """The sum times `factor`."""
        A, B, L = (factor * table for table in (self.A, self.B, self.L))
        return RowSum(self.loss, A, B, L, factor * self.constant)

    def smoothed(self, gamma: float) -> RowSum:
        """The same sum with the kinks of its loss rounded over a width `gamma`."""
        return replace(self, loss=self.loss.smoothed(gamma))

    def dc_split(self) -> tuple[list[RowSum], list[RowSum]]:
        """Convex sums (g, h) with this = sum(g) - sum(h).

        With l = u - v, a coefficient A >= 0 gives A u to g and A v to h; A < 0 the reverse.
        """
        u, v = self.loss.dc_parts()
        positive = (np.maximum(self.A, 0), np.maximum(self.B, 0))
        negative = (np.maximum(-self.A, 0), np.maximum(-self.B, 0))
        zero, has_negative = np.zeros(3), any(map(np.any, negative))
        # The linear term and the constant are convex and concave alike: they stay in g.
        g = [RowSum(u, *positive, self.L, self.constant)]
        h = [RowSum(u, *negative, zero)] if has_negative else []
        if v is not None:
            h += [RowSum(v, *positive, zero)]
            g += [RowSum(v, *negative, zero)] if has_negative else []
        return g, h


class Objective:
    """A risk over rows of which each kind has this number or weight, `totals`, by label code:

    R(f) = plain(f) + max(0, guarded(f)).

    >>> from riskad.core.risks import get_risk
    >>> f, y = np.array([2.0, -1.0, 0.5, 1.5]), np.array([1, -1, 0, 0])
    >>> objective = Objective(get_risk("rad", "logistic"), totals=np.array([2, 1, 1]))
    >>> round(objective.join(s.value(f, y) + s.constant for s in objective.sums), 4)
    0.1615
    """

    def __init__(self, risk: Risk, totals: np.ndarray):
        self.risk = risk
        plain = [t for t in risk.terms() if not (risk.guarded and t.guarded)]
        guarded = [t for t in risk.terms() if risk.guarded and t.guarded]
        # Apart from each other, since the maximum is taken of the guarded sum over all rows and not
        # row by row.
        self.plain = _row_sum(risk.loss, plain, totals)
        self.guarded = _row_sum(risk.loss, guarded, totals) if guarded else None

    @property
    def sums(self) -> list[RowSum]:
        """The plain sum and, if the risk is guarded, the guarded one."""
        return [self.plain] if self.guarded is None else [self.plain, self.guarded]

    @property
    def convex(self) -> bool:
        """Whether the risk is convex in the scores.

        plain + max(0, guarded) is the larger of plain and plain + guarded, convex if both are:
        so are the guarded risks of linear-odd losses.
        """
        if self.guarded is None:
            return self.plain.convex
        return self.plain.convex and merge([self.plain, self.guarded])[0].convex

    @property
    def smooth(self) -> bool:
        """Whether the risk has a gradient everywhere."""
        return self.guarded is None and self.risk.loss.smooth

    @staticmethod
    def join(sums: Iterable[float]) -> float:
        """The risk plain + max(0, guarded) from the values of `sums`, constants included."""
        plain, *guarded = sums
        # Blocks of rows are summed before this: the maximum of a sum is no sum of maxima.
        return plain + sum(max(0.0, value) for value in guarded)


def merge(sums: Iterable[RowSum]) -> list[RowSum]:
    """Add up the sums that share a loss, so that coefficients of either sign cancel."""
    # Losses compare by value where they are dataclasses: rounded hinges of one width are one.
    by_loss: dict[Pointwise, RowSum] = {}
    for s in sums:
        t = by_loss.get(s.loss)
        if t is None:
            by_loss[s.loss] = s
        else:  # only sums over the same l can be added coefficient by coefficient
            added = s.A + t.A, s.B + t.B, s.L + t.L, s.constant + t.constant
            by_loss[s.loss] = RowSum(s.loss, *added)
    return list(by_loss.values())


def _row_sum(loss: Loss, terms: Iterable[Term], totals: np.ndarray) -> RowSum:
    """The table of `terms`, converted to the form that the loss allows."""
    alpha, beta = np.zeros(3), np.zeros(3)
    for term in terms:
        # With a = 0 a risk has terms of weight 0, which need no rows of their kind.
        if term.weight != 0:
            if not totals[term.kind] > 0:
                raise InputError(
                    f"the risk needs {KIND_NAMES[term.kind]} rows, and there are none."
                )
            (alpha if term.sign > 0 else beta)[term.kind] += term.weight / totals[term.kind]
    zero = np.zeros(3)
    if loss.linear_odd is not None:
        # beta l(-f) = beta l(f) + beta c f
        return RowSum(loss, alpha + beta, zero, loss.linear_odd * beta)
    if loss.symmetric:
        # alpha l(f) + beta l(-f) = (alpha - beta) l(f) + beta, or the same seen from l(-f)
        constant = float(np.minimum(alpha, beta) @ totals)
        # The smaller of the two appears in both and adds up to a constant; what is left is of one
        # sign.
        difference = alpha - beta
        return RowSum(loss, np.maximum(difference, 0), np.maximum(-difference, 0), zero, constant)
    return RowSum(loss, alpha, beta, zero)


def _combine(
    function: Any, f: np.ndarray, A: Any, B: Any, L: Any, odd: float, linear: Any
) -> np.ndarray:
    """A function(f) + odd B function(-f) + L linear, for coefficients shared or by row."""
    # A new array, to which the rest may be added in place.
    rows = A * function(f)
    # Coefficients by row are arrays; what is 0 for all rows is a float.
    if not (isinstance(B, float) and B == 0):
        rows += odd * B * function(-f)
    if not any(isinstance(factor, float) and factor == 0 for factor in (L, linear)):
        rows += L * linear
    return rows
