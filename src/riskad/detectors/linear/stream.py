r"""The risk of rows that arrive in batches, from sums over all of them and a sample.

Every row contributes to the moments of its kind k, with z = (x - shift, 1),

    M_k = sum_i w_i z_i z_i^T,

from which totals, column means and spreads, the linear part of the risk and the tight lambda follow
when they are needed. A sample of 5,000 rows of each kind is kept as well. These count by their own
loss. From the moment a row leaves the sample, it counts by the parabola that touches its loss at
its score f_i at that moment,

    l(f) ~ l(f_i) + l'(f_i) (f - f_i) + l''(f_i) (f - f_i)^2 / 2,

and parabolas add up: three sums hold them all. `StreamProblem` minimises this risk. For a quadratic
loss the parabola is the loss, and the fit equals that to all rows at once. For others it is exact
until rows leave the sample, and then an approximation.

The sample draws rows by weight. Row i has the key e_i / w_i, e_i exponential, and the smallest keys
of a kind are kept; a row of weight w is then in the sample with probability 1 - exp(-w t), where t
is the smallest key that was left out, and represents w / (1 - exp(-w t)) rows (Cohen and Kaplan,
2007). Forgetting divides keys as it multiplies weights, so that a stream that forgets has a sample
of recent rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import KINDS
from riskad.core.losses import LOSSES, Loss
from riskad.core.objective import Objective, RowSum
from riskad.core.regularization import Reach
from riskad.core.risks import KIND_NAMES, Risk
from riskad.files.fields import COUNT, Array, Text
from riskad.rows.linear import LinearModel
from riskad.rows.sources import Block, RowBlocks
from riskad.solvers import SmoothTask, Solution, minimize_smooth

SAMPLE_SIZE = 5_000  # rows of each kind that are kept
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class StreamSummary:
    """The summary of all rows so far; arrays over kinds are indexed by label code.

    Every change returns a new summary: a failed change leaves the old one intact.
    """

    shift: Annotated[np.ndarray, Array("f", ("d",))]  # the mean of all rows
    moments: Annotated[np.ndarray, Array("f", (3, "d+1", "d+1"))]  # M_k, of all rows
    # The parabolas of rows that have left the sample: sum w l'' z z^T, sum w (l' - l'' f) z and
    # sum w (l - l' f + l'' f^2 / 2).
    curvature: Annotated[np.ndarray, Array("f", (3, "d+1", "d+1"))]
    slope: Annotated[np.ndarray, Array("f", (3, "d+1"))]
    level: Annotated[np.ndarray, Array("f", (3,))]
    X: Annotated[np.ndarray, Array("f", ("n", "d"))]  # the sample
    y: Annotated[np.ndarray, Array("i", ("n",), -1, 1)]
    weight: Annotated[np.ndarray, Array("f", ("n",), low=0)]
    key: Annotated[np.ndarray, Array("f", ("n",), low=0, infinite=True)]
    # Smallest key of a row that has left the sample.
    cutoff: Annotated[np.ndarray, Array("f", (3,), low=0, infinite=True)]
    # No row that has left is further than this from `mean`, in units of `scale`.
    reach: Annotated[np.ndarray, Array("f", (3,), low=0)]
    mean: Annotated[np.ndarray, Array("f", ("d",))]
    scale: Annotated[np.ndarray, Array("f", ("d",), low=0, infinite=True)]
    n_seen: Annotated[int, COUNT] = 0  # rows that were ever added: the number seeds the keys
    loss: Annotated[str, Text(choices=("", *LOSSES))] = ""  # of these parabolas

    @classmethod
    def empty(cls, d: int) -> StreamSummary:
        p = d + 1
        return cls(
            shift=np.zeros(d),
            moments=np.zeros((3, p, p)),
            curvature=np.zeros((3, p, p)),
            slope=np.zeros((3, p)),
            level=np.zeros(3),
            X=np.zeros((0, d)),
            y=np.zeros(0, dtype=np.int16),
            weight=np.zeros(0),
            key=np.zeros(0),
            cutoff=np.full(3, np.inf),
            reach=np.zeros(3),
            mean=np.zeros(d),
            scale=np.ones(d),
        )

    @property
    def totals(self) -> np.ndarray:
        return self.moments[:, -1, -1]

    @property
    def complete(self) -> np.ndarray:
        """For which kinds every row is in the sample."""
        return np.isinf(self.cutoff)

    def missing(self, risk: Risk) -> list[str]:
        return [KIND_NAMES[kind] for kind in sorted(risk.kinds()) if not self.totals[kind] > 0]

    def column_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each column, infinite if it does not vary."""
        M = self.moments.sum(axis=0)
        variance = np.diagonal(M)[:-1] / M[-1, -1]
        # The variance of a constant column is rounding: up to about (eps |mean|)^2.
        constant = variance <= (10 * _EPS * np.abs(self.shift)) ** 2
        return self.shift, np.where(constant, np.inf, np.sqrt(variance))

    def sample_weights(self) -> np.ndarray:
        """As how many rows of its kind each row of the sample counts."""
        with np.errstate(over="ignore"):
            # expm1 keeps the digits of 1 - exp(-w t) where w t is small; an infinite t gives w
            # itself.
            return self.weight / -np.expm1(-self.weight * self.cutoff[self.y])

    def decay(self, rate: float) -> StreamSummary:
        """All rows so far, without the share `rate` of their weight."""
        if not 0 <= rate < 1:
            raise InputError(
                f"forget must be at least 0 and below 1, got {rate!r}. It is the share of their "
                "weight that earlier rows lose; for a half-life of h batches give 1 - 0.5 ** (1/h)."
            )
        remaining = 1 - rate
        return replace(
            self,
            # Sums forget by a factor: no row need be known for it.
            moments=remaining * self.moments,
            curvature=remaining * self.curvature,
            slope=remaining * self.slope,
            level=remaining * self.level,
            weight=remaining * self.weight,
            # Older rows get larger keys, and leave the sample sooner than new ones of the same
            # weight.
            key=self.key / remaining,
            cutoff=self.cutoff / remaining,
        )

    def add(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int = 0) -> StreamSummary:
        """With these rows, all of them in the sample until `thin` is called."""
        # A row without weight would have an infinite key.
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        shift = self.shift if self.totals.any() else weight @ X / weight.sum()
        # Rows seen so far are part of the seed: batches get different keys, and the same stream the
        # same.
        rng = np.random.default_rng([seed, self.n_seen])
        moments = self.moments
        if len(y):
            blocks = RowBlocks(X, y, weight)
            moments = moments + blocks.sum(lambda block: (_block_moments(block, shift),))[0]
        summary = replace(
            self,
            shift=shift,
            moments=moments,
            X=np.concatenate([self.X, X]),
            y=np.concatenate([self.y, y]),
            weight=np.concatenate([self.weight, weight]),
            key=np.concatenate([self.key, rng.exponential(size=len(y)) / weight]),
            n_seen=self.n_seen + len(y),
        )
        return summary._centre()

    def thin(self, score: Callable[[np.ndarray], np.ndarray], loss: Loss) -> StreamSummary:
        """The sample with `SAMPLE_SIZE` rows of each kind; `score` gives where parabolas touch."""
        stays = np.ones(len(self.y), dtype=bool)
        for kind in KINDS:
            rows = np.flatnonzero(self.y == kind)
            stays[rows[np.argsort(self.key[rows], kind="stable")[SAMPLE_SIZE:]]] = False
        if stays.all():
            return self
        out = ~stays
        X, y, weight = self.X[out], self.y[out], self.weight[out]
        # The parabola at a score f has the curvature l'', the slope l' - l'' f, and a level.
        f, Z = score(X), np.column_stack([X - self.shift, np.ones(len(X))])
        first, second = loss.derivative(f), loss.curvature(f)
        slopes = weight * (first - second * f)
        levels = weight * (loss.value(f) - first * f + 0.5 * second * f * f)
        cutoff, reach = self.cutoff.copy(), self.reach.copy()
        # `at`, since several rows of a kind may leave at once.
        np.minimum.at(cutoff, y, self.key[out])
        np.maximum.at(reach, y, np.linalg.norm((X - self.mean) / self.scale, axis=1))
        return replace(
            self,
            curvature=self.curvature + _by_kind(Z, y, weight * second),
            slope=self.slope + np.stack([slopes[y == kind] @ Z[y == kind] for kind in KINDS]),
            level=self.level + np.array([levels[y == kind].sum() for kind in KINDS]),
            cutoff=cutoff,
            reach=reach,
            loss=loss.name,
            X=self.X[stays],
            y=self.y[stays],
            weight=self.weight[stays],
            key=self.key[stays],
        )

    def rescale(self, mean: np.ndarray, scale: np.ndarray) -> StreamSummary:
        """Measure rows that have left the sample from another mean, in other units.

        By the triangle inequality ||(x - mean') / scale'|| is at most max(scale / scale') times
        ||(x - mean) / scale||, and ||(mean - mean') / scale'|| more. A column that was constant so
        far does not contribute to the first.
        """
        varied = np.isfinite(self.scale)
        stretch = float(np.max(self.scale[varied] / scale[varied], initial=0.0))
        distance = float(np.linalg.norm((self.mean - mean) / scale))
        reach = np.where(self.complete, 0.0, self.reach * stretch + distance)
        return replace(self, reach=reach, mean=mean, scale=scale)

    def _centre(self) -> StreamSummary:
        """The same sums around the mean of all rows, where they lose no digits."""
        M = self.moments.sum(axis=0)
        if not M[-1, -1] > 0:
            return self
        # Moved at every batch, so that a mean that wanders loses no digits.
        move = M[-1, :-1] / M[-1, -1]
        T = np.eye(len(M))
        T[:-1, -1] = -move  # z' = T z
        return replace(
            self,
            shift=self.shift + move,
            moments=T @ self.moments @ T.T,
            curvature=T @ self.curvature @ T.T,
            slope=self.slope @ T.T,
        )


def _block_moments(block: Block, shift: np.ndarray) -> np.ndarray:
    Z = np.column_stack([block.X - shift, np.ones(len(block.X))])
    return _by_kind(Z, block.y, block.weight)


def _by_kind(Z: np.ndarray, y: np.ndarray, weight: Any) -> np.ndarray:
    members = [y == kind for kind in KINDS]
    return np.stack([(Z[m].T * weight[m]) @ Z[m] for m in members])


class StreamProblem:
    """Minimise the risk of all rows of a summary, plus lam ||theta||^2.

    `mean`, `scale` and `constant` are those of `riskad.rows.linear.LinearModel`.
    """

    def __init__(
        self,
        summary: StreamSummary,
        risk: Risk,
        mean: np.ndarray,
        scale: np.ndarray,
        constant: float,
    ):
        self.summary = summary.rescale(mean, scale)
        self.risk, self.loss = risk, risk.loss
        plain = Objective(risk, summary.totals).plain
        self.A, self.L = plain.A, plain.L
        rows = RowBlocks(summary.X - summary.shift, summary.y, summary.weight)
        self.model = LinearModel(rows, mean - summary.shift, scale, constant)
        # (x - mean) / scale and B, from z
        S = np.zeros((len(mean) + 1, len(mean) + 1))
        S[np.diag_indices(len(mean))] = 1 / scale
        S[:-1, -1] = (summary.shift - mean) / scale
        S[-1, -1] = constant
        self._S = S if constant else S[:-1]
        # The sums of w z of each kind, as theta sees it.
        self._sums = summary.moments[:, -1] @ self._S.T

    def measure_reach(self, kind: int) -> Reach:
        """The reach of the rows of a kind; for rows that have left the sample, a bound."""
        summary, B = self.summary, self.model.constant
        Z = (summary.X[summary.y == kind] - summary.mean) / summary.scale
        # Exact for rows of the sample; for others the bound that they left behind.
        largest = max(float(np.einsum("ij,ij->i", Z, Z).max(initial=0)), summary.reach[kind] ** 2)
        squared = largest + B**2
        mean_products = self._S @ summary.moments[kind] @ self._S.T / summary.totals[kind]
        # Exact even for rows that have left: the moments hold all of them.
        spectral = min(float(np.linalg.eigvalsh(mean_products)[-1]), squared)
        return Reach(c=squared**0.5, c_inf=np.nan, spectral=spectral, column_mean=np.nan)

    def solve(self, lam: float, tol: float, max_iter: int) -> Solution:
        """Newton's method from zero; the first step is the solution if the loss is quadratic."""
        summary, S = self.summary, self._S
        task = _Task(
            self.model,
            [RowSum(self.loss, self.A, np.zeros(3), np.zeros(3))],
            lam,
            tilt=self.A @ (summary.slope @ S.T) + self.L @ self._sums,
            curvature=S @ np.tensordot(self.A, summary.curvature, axes=1) @ S.T,
            level=float(self.A @ summary.level),
        )
        # From zero: the fit depends on what was summed up, and not on the path of earlier fits.
        theta = np.zeros(self.model.n_parameters)
        gradient = task.value_and_gradient(theta)[1]
        if B := self.model.constant:  # counted as 1, as in `Problem.reference`
            gradient = np.append(gradient[:-1], gradient[-1] / B)
        reference = float(np.linalg.norm(gradient)) or 1.0
        minimum = minimize_smooth(task, theta, tol * reference, max_iter)
        return replace(minimum.as_solution(reference, tol), solver="newton")

    def weights(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        w, b = self.model.raw(theta)
        return w, float(b - self.summary.shift @ w)

    def scores(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return self.model.scores(theta, X - self.summary.shift)

    def risk_parts(self, theta: np.ndarray) -> dict[str, float]:
        summary, u = self.summary, self._S.T @ theta  # f = u . z
        of_kind = [RowSum(self.loss, one, np.zeros(3), np.zeros(3)) for one in np.eye(3)]
        quadratic = np.einsum("a,kab,b", u, summary.curvature, u)
        parabolas = summary.level + summary.slope @ u + 0.5 * quadratic
        as_normal = np.array(self.model.values(theta, of_kind)) + parabolas
        # l(-f) = l(f) + c f
        as_anomaly = as_normal + (self.loss.linear_odd or 0.0) * (self._sums @ theta)
        parts = {
            term.name: float(
                term.weight
                * (as_normal if term.sign > 0 else as_anomaly)[term.kind]
                / summary.totals[term.kind]
            )
            for term in self.risk.terms()
            if term.weight != 0
        }
        return parts | {"total": sum(parts.values())}


@dataclass(frozen=True)
class _Task(SmoothTask):
    """F plus the parabolas of rows that are no longer kept."""

    curvature: np.ndarray = None  # type: ignore[assignment]
    level: float = 0.0

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = super().value_and_gradient(theta)
        pull = self.curvature @ theta
        return value + self.level + 0.5 * float(theta @ pull), gradient + pull

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return super().hessian(theta) + self.curvature

    def hessian_product(self, theta: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        product = super().hessian_product(theta)
        return lambda x: product(x) + self.curvature @ x
