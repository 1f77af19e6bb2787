r"""What is kept of rows that arrive in batches: sums over all of them, and a sample.

Every row contributes to the moments of its kind k, with z = (x - shift, 1),

    M_k = sum_i w_i z_i z_i^T,

from which totals, column means and spreads, the linear part of the risk and the tight lambda follow
when they are needed. A sample of 5,000 rows of each kind is kept as well. These count by their own
loss. From the moment a row leaves the sample, it counts by the parabola that touches its loss at
its score f_i at that moment,

    l(f) ~ l(f_i) + l'(f_i) (f - f_i) + l''(f_i) (f - f_i)^2 / 2,

and parabolas add up: three sums hold them all. `riskad.detectors.linear.stream_problem` minimises
this risk. For a quadratic loss the parabola is the loss, and the fit equals that to all rows at
once. For others it is exact until rows leave the sample, and then an approximation.

The sample draws rows by weight. Row i has the key e_i / w_i, e_i exponential, and the smallest keys
of a kind are kept; a row of weight w is then in the sample with probability 1 - exp(-w t), where t
is the smallest key that was left out, and represents w / (1 - exp(-w t)) rows (Cohen and Kaplan,
2007). Forgetting divides keys as it multiplies weights, so that a stream that forgets has a sample
of recent rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import KINDS
from riskad.core.losses import LOSSES, Loss, Pointwise
from riskad.core.risks import KIND_NAMES, Risk
from riskad.rows.memory import RowBlocks
from riskad.rows.source import Block
from riskad.storage.fields import COUNT, Array, Fields, State, Text, require

__all__ = ["KEPT", "StreamSummary"]

KEPT = 5_000
"""Number of rows of each kind that are kept."""

_ROUNDING = 1e-9  # of a weight: allowed error of sums of weights
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class StreamSummary:
    """The summary of all rows so far; arrays over kinds are indexed by label code.

    Every change returns a new summary: a failed change leaves the old one intact.
    """

    shift: np.ndarray
    """The mean of all rows."""
    moments: np.ndarray
    """M_k, of all rows."""
    curvature: np.ndarray
    """sum w l'' z z^T of the rows that have left the sample; with the next two, their parabolas."""
    slope: np.ndarray
    """sum w (l' - l'' f) z."""
    level: np.ndarray
    """sum w (l - l' f + l'' f^2 / 2)."""
    X: np.ndarray
    """The sample."""
    y: np.ndarray
    weight: np.ndarray
    key: np.ndarray
    cutoff: np.ndarray
    """Smallest key of a row that has left the sample."""
    reach: np.ndarray
    """No row that has left is further than this from `mean`, in units of `scale`."""
    mean: np.ndarray
    scale: np.ndarray
    n_seen: int = 0
    """Number of rows that were ever added: it seeds the keys."""
    loss: str = ""
    """Loss of these parabolas."""

    _state_fields: ClassVar[Fields] = {
        "shift": Array("f", ("d",)),
        "moments": Array("f", (3, "p", "p")),
        "curvature": Array("f", (3, "p", "p")),
        "slope": Array("f", (3, "p")),
        "level": Array("f", (3,)),
        "X": Array("f", ("n", "d")),
        "y": Array("i", ("n",), -1, 1),
        "weight": Array("f", ("n",), low=0),
        "key": Array("f", ("n",), low=0, infinite=True),
        "cutoff": Array("f", (3,), low=0, infinite=True),
        "reach": Array("f", (3,), low=0),
        "mean": Array("f", ("d",)),
        "scale": Array("f", ("d",), low=0, infinite=True),
        "n_seen": COUNT,
        "loss": Text(choices=("", *LOSSES)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        p, d = len(state["slope"][0]), len(state["shift"])
        require(p == d + 1, "moments: of other columns")

    @classmethod
    def empty(cls, d: int) -> StreamSummary:
        """The summary of no rows, with d columns."""
        p = d + 1
        return cls(
            shift=np.zeros(d),
            moments=np.zeros((3, p, p)),
            curvature=np.zeros((3, p, p)),
            slope=np.zeros((3, p)),
            level=np.zeros(3),
            X=np.zeros((0, d)),
            y=np.zeros(0, dtype=np.int8),
            weight=np.zeros(0),
            key=np.zeros(0),
            cutoff=np.full(3, np.inf),
            reach=np.zeros(3),
            mean=np.zeros(d),
            scale=np.ones(d),
        )

    @property
    def totals(self) -> np.ndarray:
        """Total weight of each kind."""
        return self.moments[:, -1, -1]

    @property
    def complete(self) -> np.ndarray:
        """For which kinds every row is in the sample."""
        return np.isinf(self.cutoff)

    def missing(self, risk: Risk) -> list[str]:
        """The kinds of row that the risk needs and that have not arrived yet."""
        return [KIND_NAMES[kind] for kind in sorted(risk.kinds()) if not self.totals[kind] > 0]

    def column_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each column, infinite if it does not vary."""
        M = self.moments.sum(axis=0)
        variance = np.diagonal(M)[:-1] / M[-1, -1]
        constant = variance <= (10 * _EPS * np.abs(self.shift)) ** 2
        return self.shift, np.where(constant, np.inf, np.sqrt(variance))

    def sample_weights(self) -> np.ndarray:
        """As how many rows of its kind each row of the sample counts."""
        with np.errstate(over="ignore"):
            return self.weight / -np.expm1(-self.weight * self.cutoff[self.y])

    # --- changes --------------------------------------------------------------------------

    def forgotten(self, rate: float) -> StreamSummary:
        """All rows so far, without the share `rate` of their weight."""
        if not 0 <= rate < 1:
            raise InputError(
                f"forget must be at least 0 and below 1, got {rate!r}. It is the share of their "
                "weight that earlier rows lose; for a half-life of h batches give 1 - 0.5 ** (1/h)."
            )
        left = 1 - rate
        return replace(
            self,
            moments=left * self.moments,
            curvature=left * self.curvature,
            slope=left * self.slope,
            level=left * self.level,
            weight=left * self.weight,
            key=self.key / left,
            cutoff=self.cutoff / left,
        )

    def added(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int = 0
    ) -> StreamSummary:
        """With these rows, all of them in the sample until `thinned` is called."""
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        shift = self.shift if self.totals.any() else weight @ X / weight.sum()
        rng = np.random.default_rng([seed, self.n_seen])
        grown = replace(
            self,
            shift=shift,
            moments=self.moments + _moments(X, y, weight, shift),
            X=np.concatenate([self.X, X]),
            y=np.concatenate([self.y, y]),
            weight=np.concatenate([self.weight, weight]),
            key=np.concatenate([self.key, rng.exponential(size=len(y)) / weight]),
            n_seen=self.n_seen + len(y),
        )
        return grown._centred()

    def removed(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, loss: Loss
    ) -> StreamSummary:
        """Without these rows, whose loss is quadratic; each must have been added.

        If all rows of a kind are in the sample, every row is looked up. Otherwise, a row that is
        not in the sample is subtracted from the sums, which must remain sums over some rows.
        """
        rest, not_found = _taken_out(self, X, y, weight)
        gone = not_found > _ROUNDING * weight
        for i in np.flatnonzero(gone & self.complete[y]):
            raise InputError(
                f"row {i} of those to be removed is not there as {KIND_NAMES[int(y[i])]} with "
                f"weight {weight[i]:.6g}: it was never added with this label, was removed before, "
                "or counts less since earlier rows were forgotten. Nothing was removed."
            )
        shrunk = replace(
            self,
            moments=self.moments - _moments(X, y, weight, self.shift),
            weight=rest,
        )
        if gone.any():
            zeros = np.zeros(gone.sum())  # a parabola is the same wherever it touches
            lost = _parabolas(X[gone], y[gone], not_found[gone], zeros, loss, self.shift)
            shrunk = shrunk._without_parabolas(*lost)
            _check_sums(shrunk.curvature, self.curvature)
        shrunk = shrunk._only(rest > 0)
        # If all rows are available, the sums are computed again, without errors of subtraction.
        anew = _moments(shrunk.X, shrunk.y, shrunk.weight, shrunk.shift)
        moments = np.where(self.complete[:, None, None], anew, shrunk.moments)
        return replace(shrunk, moments=moments)._centred()

    def thinned(self, score: Callable[[np.ndarray], np.ndarray], loss: Loss) -> StreamSummary:
        """The sample reduced to `KEPT` rows of each kind; `score` gives where parabolas touch."""
        stays = np.ones(len(self.y), dtype=bool)
        for kind in KINDS:
            rows = np.flatnonzero(self.y == kind)
            stays[rows[np.argsort(self.key[rows], kind="stable")[KEPT:]]] = False
        if stays.all():
            return self
        out = ~stays
        X, y, weight = self.X[out], self.y[out], self.weight[out]
        curvature, slope, level = _parabolas(X, y, weight, score(X), loss, self.shift)
        cutoff, reach = self.cutoff.copy(), self.reach.copy()
        np.minimum.at(cutoff, y, self.key[out])
        np.maximum.at(reach, y, np.linalg.norm((X - self.mean) / self.scale, axis=1))
        shrunk = replace(
            self,
            curvature=self.curvature + curvature,
            slope=self.slope + slope,
            level=self.level + level,
            cutoff=cutoff,
            reach=reach,
            loss=loss.name,
        )
        return shrunk._only(stays)

    def standardised(self, mean: np.ndarray, scale: np.ndarray) -> StreamSummary:
        """Measure rows that have left the sample from another mean, in other units.

        By the triangle inequality ||(x - mean') / scale'|| is at most max(scale / scale') times
        ||(x - mean) / scale||, and ||(mean - mean') / scale'|| more. A column that was constant so
        far does not contribute to the first.
        """
        varied = np.isfinite(self.scale)
        stretch = float(np.max(self.scale[varied] / scale[varied], initial=0.0))
        moved = float(np.linalg.norm((self.mean - mean) / scale))
        reach = np.where(self.complete, 0.0, self.reach * stretch + moved)
        return replace(self, reach=reach, mean=mean, scale=scale)

    def _only(self, rows: np.ndarray) -> StreamSummary:
        return replace(
            self, X=self.X[rows], y=self.y[rows], weight=self.weight[rows], key=self.key[rows]
        )

    def _without_parabolas(
        self, curvature: np.ndarray, slope: np.ndarray, level: np.ndarray
    ) -> StreamSummary:
        return replace(
            self,
            curvature=self.curvature - curvature,
            slope=self.slope - slope,
            level=self.level - level,
        )

    def _centred(self) -> StreamSummary:
        """The same sums around the mean of all rows, where they lose no digits."""
        M = self.moments.sum(axis=0)
        if not M[-1, -1] > 0:
            return self
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


def _moments(X: np.ndarray, y: np.ndarray, weight: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """M_k of these rows."""
    p = len(shift) + 1

    def block_moments(block: Block) -> tuple[np.ndarray]:
        Z = _with_one(block.X - shift)
        return (_by_kind(Z, block.y, block.weight),)

    return RowBlocks(X, y, weight).sum(block_moments)[0] if len(y) else np.zeros((3, p, p))


def _parabolas(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, f: np.ndarray, loss: Pointwise, shift: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Curvature, slope and level of these rows, whose scores are f."""
    Z = _with_one(X - shift)
    first, second = loss.derivative(f), loss.curvature(f)
    tilt = weight * (first - second * f)
    level = weight * (loss.value(f) - first * f + 0.5 * second * f * f)
    slopes = np.stack([tilt[y == kind] @ Z[y == kind] for kind in KINDS])
    levels = np.array([level[y == kind].sum() for kind in KINDS])
    return _by_kind(Z, y, weight * second), slopes, levels


def _by_kind(Z: np.ndarray, y: np.ndarray, weight: Any) -> np.ndarray:
    """The sums of w z z^T of each kind."""
    members = [y == kind for kind in KINDS]
    return np.stack([(Z[m].T * weight[m]) @ Z[m] for m in members])


def _with_one(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X, np.ones(len(X))])


def _taken_out(
    summary: StreamSummary, X: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the sample's rows without these, and how much of these was not in the sample."""
    places: dict[tuple[int, bytes], list[int]] = {}
    for i, name in enumerate(_row_names(summary.X, summary.y)):
        places.setdefault(name, []).append(i)
    rest, not_found = summary.weight.copy(), weight.copy()
    for j, name in enumerate(_row_names(X, y)):
        for i in places.get(name, ()):
            taken = min(rest[i], not_found[j])
            rest[i] -= taken
            not_found[j] -= taken
            if rest[i] <= _ROUNDING * summary.weight[i]:
                rest[i] = 0.0
    return rest, not_found


def _row_names(X: np.ndarray, y: np.ndarray) -> list[tuple[int, bytes]]:
    X = X + 0.0  # -0.0 and 0.0 have different bytes
    return [(int(kind), row.tobytes()) for kind, row in zip(y, X, strict=True)]


def _check_sums(left: np.ndarray, before: np.ndarray) -> None:
    """Check that the remainder can be weights and squares of some rows: not negative."""
    if (np.einsum("kii->ki", left) < -_ROUNDING * np.einsum("kii->ki", before)).any():
        raise InputError(
            "the rows to be removed weigh or spread more than all that were added with these "
            "labels: some of them were never added. Nothing was removed."
        )
