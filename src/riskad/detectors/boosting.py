r"""Boosting on an estimated risk: each tree lowers it.

A risk needs only scores (`riskad.core.objective`), so trees can be grown on it as on a log-loss:

    R(f) = sum_i  A[y_i] l(f_i) + B[y_i] l(-f_i) + L[y_i] f_i.

Its second derivative cannot be used directly. If a coefficient is negative, or the loss is not
convex, it is negative, and a Newton step goes up, or far away if it is clipped. With kappa the
largest |l''|, the weights h_i = kappa (|A| + |B|)[y_i] put a parabola above the risk instead,

    R(f + d) <= R(f) + sum_i g_i d_i + h_i d_i^2 / 2,        g = the gradient of R,

and a tree that gives its leaf the value -G / (H + lambda), G and H the sums of g and h over the
leaf, times a learning rate of at most 1, lowers the right hand side. So no round ever raises the
training risk, for any loss. Losses with kinks are rounded over a small width first.

A guarded risk is P(f) + max(0, Q(f)), and a step may take Q through zero. Both have a parabola
above them, P^ and Q^. With max(0, q) = max_{0 <= tau <= 1} tau q, the best leaf values for
P^ + max(0, Q^) are those of P^ + tau Q^, -(G_P + tau G_Q) / (H_P + tau H_Q + lambda), for the tau
where Q^ is zero, or for 0 or 1 if it is negative or positive throughout. A tree is grown with the
last round's tau and gets these leaf values, so no round raises the risk here either.

lambda pulls leaf values to 0, which penalises a split for what all rows have in common. With pi_p
near 1 nearly all gradients point one way, the penalty exceeds the gain from separating a few light
anomalies, and no split is left. So after ten draws of random splits without one that gains, lambda
pulls leaf values to the step c that is best for all rows equally:

    v = c - (G + H c) / (H + lambda),        c = -(sum_i g_i) / (sum_i h_i).

Trees are then grown on g_i + h_i c, whose sum is 0, so any split that separates rows gains; and
since c alone lowers the right hand side, so do c and what a tree adds to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from scipy.optimize import brentq

from riskad.core.checks import InputError, MissingLibrary
from riskad.core.labels import UNLABELLED
from riskad.core.losses import Loss, Pointwise
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import Risk
from riskad.rows.memory import RowBlocks

__all__ = ["Boosting", "lightgbm_library", "one_fit_at_a_time", "rows_that_count"]

one_fit_at_a_time = threading.Lock()
"""Held while LightGBM is used.

It has one number of threads for the process, which each call sets. Memory that a call in one thread
has reserved may be too small after a call in another one, and the process crashes.
"""

# Kinks are rounded over this width, and curvatures are searched at these margins.
_WIDTH = 0.5
_MARGINS = np.linspace(-3, 3, 601)
# A guarded risk at its kink can be lowered by few trees that ignore the guard: none does fully.
_LEAST_TAU = 0.5
# A draw of random splits may contain none that gains. After this many, leaf values are centred; if
# as many more in a round fail, training ends.
_DRAWS = 10


class Boosting:
    """Trees over given rows, one at a time; `f` are the scores of the rows so far.

    LightGBM gets gradients and curvatures in units in which a labelled row has on average the
    curvature 1: the risk divides by numbers of rows, and its thresholds are meant for sums. Hold
    `one_fit_at_a_time` while growing trees.
    """

    def __init__(
        self, rows: RowBlocks, risk: Risk, parameters: dict[str, Any], categorical: list[int]
    ):
        lightgbm = lightgbm_library()
        self.rows = rows
        loss = _rounded(risk.loss)
        self.sums = [replace(s, loss=loss) for s in Objective(risk, rows.totals()).sums]
        self.curvatures = _curvatures(risk, loss, rows)
        self.unit = _mean_over_labelled(sum(self.curvatures), rows)
        self.threads = {"num_threads": parameters["num_threads"]}
        self.learning_rate, self.l2 = parameters["learning_rate"], parameters["lambda_l2"]
        data = lightgbm.Dataset(rows.X, params=parameters, categorical_feature=categorical)
        self.booster = lightgbm.Booster(parameters, data)
        self.f = np.zeros(rows.n_rows)
        self.risks = [self._risk()]
        self.tau = 1.0
        self.in_vain = 0  # draws of random splits without one that gains

    def grow(self, n_rounds: int) -> int:
        """Add `n_rounds` trees, or as many as still lower the risk; returns their number."""
        return sum(1 for _ in self.rounds(n_rounds))

    def rounds(self, n_rounds: int) -> Iterator[int]:
        """Add a tree at a time, and yield the number of the round."""
        for done in range(n_rounds):
            if not self._add_tree():
                return
            own_step = self.guarded or self.centred
            self.f = self.f + (self._best_step() if own_step else self.last_tree(self.rows.X))
            self.risks.append(self._risk())
            yield done

    def _add_tree(self) -> bool:
        """Grow a tree; False if several draws of random splits have none that gains."""
        for _ in range(2 * _DRAWS):
            if not self.booster.update(fobj=self._derivatives):
                return True
            self.in_vain += 1
        return False

    @property
    def centred(self) -> bool:
        """Whether leaf values are pulled to the step that is best for all rows equally."""
        return self.in_vain >= _DRAWS

    def last_tree(self, X: Any) -> np.ndarray:
        """What the last tree adds to the scores of these rows."""
        t = self.booster.num_trees() - 1
        return self.booster.predict(X, start_iteration=t, num_iteration=1, **self.threads)

    @property
    def guarded(self) -> bool:
        """Whether the risk is P + max(0, Q)."""
        return len(self.sums) > 1

    def _risk(self) -> float:
        return Objective.join(self._value(s) for s in self.sums)

    def _value(self, s: RowSum) -> float:
        return s.value(self.f, self.rows.y, self.rows.sample_weight) + s.constant

    def _derivatives(self, scores: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and curvature of P + tau Q, in LightGBM's format."""
        y, weight = self.rows.y, self.rows.sample_weight
        self.gradients = [s.gradient(self.f, y, weight) for s in self.sums]
        g, h = (self._mixed(parts, self.tau) for parts in (self.gradients, self.curvatures))
        if self.centred:
            g = g - h * (g.sum() / h.sum())
        return g / self.unit, h / self.unit

    @staticmethod
    def _mixed(parts: list[np.ndarray], tau: float) -> np.ndarray:
        plain, *guarded = parts
        return plain + tau * guarded[0] if guarded else plain

    def _best_step(self) -> np.ndarray:
        """Set the leaves of the last tree to the best values for P^ + max(0, Q^)."""
        t = self.booster.num_trees() - 1
        leaf = self.booster.predict(
            self.rows.X, pred_leaf=True, start_iteration=t, num_iteration=1, **self.threads
        )[:, 0]
        centre = 0.0
        if self.centred:
            centre = float(self._leaf_values(np.zeros_like(leaf), 0.0, 0.0)[0][0])
        values, tau = self._leaf_values(leaf, centre, self.l2 * self.unit)
        self.tau = max(tau, _LEAST_TAU)
        v = self.learning_rate * values
        for k, value in enumerate(v):
            self.booster.set_leaf_output(t, k, value)
        return v[leaf]

    def _leaf_values(self, leaf: np.ndarray, c: float, l2: float) -> tuple[np.ndarray, float]:
        """Values v = c - (G + H c) / (H + l2) of the leaves, and the tau of G and H."""
        g, h = (
            [np.bincount(leaf, part) for part in parts]
            for parts in (self.gradients, self.curvatures)
        )

        def values(tau: float) -> np.ndarray:
            G, H = self._mixed(g, tau), self._mixed(h, tau)
            return c - (G + H * c) / (H + l2)

        if not self.guarded:
            return values(1.0), 1.0
        Q = self._value(self.sums[1])

        def guard(tau: float) -> float:
            v = values(tau)
            return float(Q + g[1] @ v + h[1] @ v**2 / 2)

        tau = 1.0 if guard(1.0) >= 0 else 0.0 if guard(0.0) <= 0 else brentq(guard, 0.0, 1.0)
        return values(tau), tau


def rows_that_count(rows: RowBlocks, risk: Risk) -> RowBlocks:
    """The rows that count in the risk: of a kind that it uses, and with positive weight."""
    counts = np.isin(rows.y, list(risk.kinds()))
    if rows.sample_weight is not None:
        counts &= rows.sample_weight > 0
    return rows if counts.all() else rows.take(np.flatnonzero(counts))


def _curvatures(risk: Risk, loss: Pointwise, rows: RowBlocks) -> list[np.ndarray]:
    """h_i = kappa (|A| + |B|)[y_i] of the plain sum and, if the risk is guarded, the guarded one.

    The coefficients are those of the terms, before any cancel in the table
    (`riskad.core.objective`): a row whose loss sums to a line would otherwise have no curvature,
    and no weight.
    """
    kappa = float(np.abs(loss.curvature(_MARGINS)).max())
    if kappa == 0:
        raise InputError(
            f"the loss {risk.loss!r} has kinks and does not say how they are rounded: `smoothed`."
        )
    totals, sizes = rows.totals(), np.zeros((2, 3))
    for term in risk.terms():
        if term.weight != 0:
            sizes[int(risk.guarded and term.guarded), term.kind] += abs(term.weight)
    weight = 1.0 if rows.sample_weight is None else rows.sample_weight
    by_kind = kappa * sizes / np.where(totals > 0, totals, 1)
    return [size[rows.y] * weight for size in by_kind[: 2 if risk.guarded else 1]]


def _mean_over_labelled(values: Any, rows: RowBlocks) -> float:
    labelled = rows.y != UNLABELLED
    weight = labelled if rows.sample_weight is None else labelled * rows.sample_weight
    return float(values[labelled].sum() / weight.sum())


@dataclass(frozen=True)
class _Rounded(Pointwise):
    """A loss u - v with kinks, rounded.

    Hinges are rounded on one side of their kinks (`riskad.core.losses.Hinges`). Shifted by half the
    width, the rounding is symmetric around them, and a symmetric or linear-odd loss stays so.
    """

    u: Pointwise
    v: Pointwise | None

    def value(self, z: Any) -> Any:
        return self._difference("value", z)

    def derivative(self, z: Any) -> Any:
        return self._difference("derivative", z)

    def curvature(self, z: Any) -> Any:
        return self._difference("curvature", z)

    def _difference(self, name: str, z: Any) -> Any:
        z = z - _WIDTH / 2
        u = getattr(self.u.smoothed(_WIDTH), name)(z)
        return u if self.v is None else u - getattr(self.v.smoothed(_WIDTH), name)(z)


def _rounded(loss: Loss) -> Pointwise:
    return loss if loss.smooth else _Rounded(*loss.dc_parts())


def lightgbm_library() -> ModuleType:
    """Return LightGBM, if it is installed."""
    try:
        import lightgbm
    except ModuleNotFoundError:
        raise MissingLibrary(
            "Boosted trees need lightgbm, which is not installed: pip install 'riskad[boost]'."
        ) from None
    return lightgbm
