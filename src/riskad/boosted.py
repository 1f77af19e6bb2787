r"""BoostedRAD: gradient-boosted trees that descend an estimated risk itself.

A risk needs only scores (`riskad.objective`), so trees can be grown on it as they are on a log-loss:

    R(f) = sum_i  A[y_i] l(f_i) + B[y_i] l(-f_i) + L[y_i] f_i.

Its second derivative is of no use for that. Where a coefficient is negative, or the loss is not
convex, it is negative, and a Newton step goes up, or far away if it is clipped. With kappa the
largest |l''|, the weights h_i = kappa (|A| + |B|)[y_i] put a parabola above the risk instead,

    R(f + d) <= R(f) + sum_i g_i d_i + h_i d_i^2 / 2,        g = the gradient of R,

and a tree that gives its leaf the value -G / (H + lambda), G and H the sums of g and h over the
leaf, times a learning rate of at most 1, lowers the right hand side. So no round ever raises the
training risk, whatever the loss. Losses with kinks are rounded over a small width first.

A guarded risk is P(f) + max(0, Q(f)), and a step may carry Q through zero. Both have a parabola above
them, P^ and Q^. With max(0, q) = max_{0 <= tau <= 1} tau q, the leaf values that are best for
P^ + max(0, Q^) are those of P^ + tau Q^, -(G_P + tau G_Q) / (H_P + tau H_Q + lambda), for the tau
where Q^ is zero, or for 0 or 1 if it is negative or positive throughout. A tree is grown with the
last round's tau and gets these leaf values, so that here, too, no round raises the risk.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from sklearn.utils.validation import check_is_fitted

from riskad._checks import DataWarning, InputError, check_choice, check_in_interval
from riskad.base import Detector, check_kinds_present, refuse_non_finite
from riskad.blocks import RowBlocks
from riskad.losses import Loss, Pointwise
from riskad.objective import Objective, RowSum
from riskad.risks import RISKS, Risk, get_risk
from riskad.selection import PNUStratifiedKFold
from riskad.thresholds import zero_one_threshold

if TYPE_CHECKING:
    import lightgbm

__all__ = ["BoostedRAD"]

# Kinks are rounded over this width, and curvatures looked for at these margins.
_WIDTH = 0.5
_MARGINS = np.linspace(-3, 3, 601)
_L2 = 1.0
_SPLITS = 5
_CV_ROWS = 20_000
# Rounds where labelled rows are too few to hold some out.
_FEW_LABELS_ROUNDS = 100


class BoostedRAD(Detector):
    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        a: float = 0.1,
        prior: float = 0.8,
        risk: str = "rad",
        n_rounds: int = 300,
        early_stopping: bool = True,
        learning_rate: float = 0.1,
        max_leaves: int = 8,
        min_leaf: float = 2.0,
        feature_fraction: float = 1.0,
        random_state: int | None = None,
        n_jobs: int = 1,
        extra=None,
        l2=1.0,
    ):
        self.loss = loss
        self.a = a
        self.prior = prior
        self.risk = risk
        self.n_rounds = n_rounds
        self.early_stopping = early_stopping
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.min_leaf = min_leaf
        self.feature_fraction = feature_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.extra = extra
        self.l2 = l2

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> BoostedRAD:
        X = self._check_rows(X, reset=True)
        codes, weight = self._check_labels(X, y, sample_weight)
        risk = get_risk(self.risk, self.loss, a=self.a, prior=self.prior)
        rows = RowBlocks(X, codes, weight)
        check_kinds_present(risk, codes, rows.totals(), besides="")
        used = np.isin(codes, list(risk.kinds()))
        if weight is not None:
            used &= weight > 0
        rows = rows if used.all() else rows.take(np.flatnonzero(used))
        self.n_rounds_ = self._choose_rounds(rows, risk)
        run = _Boosting(rows, risk, self._parameters(), self._categories())
        self.n_rounds_ = sum(1 for _ in run.rounds(self.n_rounds_))
        self.train_risk_ = np.array(run.risks)
        self._store(run, risk)
        return self

    def _choose_rounds(self, rows, risk):
        if not self.early_stopping:
            return self.n_rounds
        if rows.n_rows > _CV_ROWS:
            rng = np.random.default_rng(self._seed)
            rows = rows.sample(_CV_ROWS, risk.kind_weights(), rng)
        n_splits = min(_SPLITS, *(int((rows.y == kind).sum()) for kind in risk.kinds()))
        if n_splits < 2:
            return min(self.n_rounds, _FEW_LABELS_ROUNDS)
        folds = PNUStratifiedKFold(n_splits, random_state=self._seed).split(rows.X, rows.y)
        risks = [self._held_out_risks(rows.take(kept), rows.take(held), risk) for kept, held in folds]
        self.cv_risk_ = np.mean(risks, axis=0)
        return int(np.argmin(self.cv_risk_)) + 1

    def _held_out_risks(self, rows, held, risk):
        run = _Boosting(rows, risk, self._parameters(), self._categories())
        objective = Objective(risk, held.totals())
        scores = np.zeros(held.n_rows)
        risks = []
        for t in run.rounds(self.n_rounds):
            scores += run.booster.predict(held.X, start_iteration=t, num_iteration=1)
            risks.append(objective.value(scores, held.y, held.sample_weight))
        risks += risks[-1:] * (self.n_rounds - len(risks))
        return risks

    def _categories(self):
        return []

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    def _parameters(self) -> dict[str, Any]:
        return {
            "objective": "none",
            "learning_rate": self.learning_rate,
            "num_leaves": self.max_leaves,
            "min_data_in_leaf": 0,
            "min_sum_hessian_in_leaf": self.min_leaf,
            "min_data_in_bin": 1,
            "lambda_l2": self.l2,
            "feature_fraction": self.feature_fraction,
            "feature_pre_filter": False,
            "seed": self._seed,
            "num_threads": self.n_jobs,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **(self.extra or {}),
        }

    def _store(self, run, risk):
        self.booster_ = run.booster
        rows = run.rows
        scores = run.f
        self.offset_ = zero_one_threshold(risk, scores, rows.y, rows.sample_weight)

    def _scores(self, X):
        return self.booster_.predict(X)


class _Boosting:
    """Boosting over given rows: grows a tree at a time."""

    def __init__(self, rows: RowBlocks, risk: Risk, parameters: dict[str, Any], categories):
        import lightgbm

        self.rows = rows
        self.l2 = parameters["lambda_l2"]
        self.learning_rate = parameters["learning_rate"]
        objective = Objective(risk, rows.totals())
        rounded = _rounded(risk.loss)
        self.sums = [replace(s, loss=rounded) for s in objective.sums]
        kappa = float(np.abs(rounded.curvature(_MARGINS)).max())
        w = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
        self.curvatures = [kappa * k[rows.y] * w for k in _weights(risk, rows.totals())]
        labelled = rows.y != 0
        h = np.sum(self.curvatures, axis=0)
        self.scale = w[labelled].sum() / h[labelled].sum()
        data = lightgbm.Dataset(rows.X, params=parameters, categorical_feature=categories)
        self.booster = lightgbm.Booster(parameters, data)
        self.f = np.zeros(rows.n_rows)
        self.risks = []
        self.tau = float(len(self.sums) > 1 and self._value(self.sums[-1]) > 0)

    @property
    def risk(self):
        return Objective.join(self._value(s) for s in self.sums)

    def _value(self, s):
        return s.value(self.f, self.rows.y, self.rows.sample_weight) + s.constant

    def rounds(self, n):
        for t in range(n):
            if self.booster.update(fobj=self._derivatives):
                return
            if len(self.sums) > 1:
                self._guarded_step(t)
            yield t
        if len(self.sums) == 1:
            self.f = self.booster.predict(self.rows.X)
        self.risks.append(self.risk)

    def _derivatives(self, scores, data):
        if len(self.sums) == 1:
            self.f = scores
        self.risks.append(self.risk)
        g = [s.gradient(self.f, self.rows.y, self.rows.sample_weight) for s in self.sums]
        h = self.curvatures
        if len(self.sums) == 1:
            return self.scale * g[0], self.scale * h[0]
        return self.scale * (g[0] + self.tau * g[1]), self.scale * (h[0] + self.tau * h[1])

    def _guarded_step(self, t):
        leaf = self.booster.predict(self.rows.X, pred_leaf=True, start_iteration=t, num_iteration=1)[:, 0]
        g = [np.bincount(leaf, s.gradient(self.f, self.rows.y, self.rows.sample_weight)) for s in self.sums]
        h = [np.bincount(leaf, c) for c in self.curvatures]
        Q = self._value(self.sums[1])
        lam = self.l2 / self.scale

        def values(tau):
            return -(g[0] + tau * g[1]) / np.maximum(h[0] + tau * h[1] + lam, 1e-300)

        def guard(tau):
            v = values(tau)
            return Q + g[1] @ v + h[1] @ v**2 / 2

        if guard(1.0) >= 0:
            tau = 1.0
        elif guard(0.0) <= 0:
            tau = 0.0
        else:
            tau = brentq(guard, 0, 1)
        v = self.learning_rate * values(tau)
        self.tau = max(tau, 0.5)
        for k, value in enumerate(v):
            self.booster.set_leaf_output(t, k, value)
        self.f = self.f + v[leaf]


@dataclass(frozen=True)
class _Rounded(Pointwise):
    """A loss u - v with kinks, rounded.

    Hinges are rounded on one side of their kinks (`riskad.losses.Hinges`); moved by half the width
    the rounding is even about them, and a loss that is symmetric or linear-odd stays so.
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


def _weights(risk, totals):
    plain, guarded = np.zeros(3), np.zeros(3)
    for term in risk.terms():
        if term.weight != 0:
            (guarded if risk.guarded and term.guarded else plain)[term.kind] += abs(term.weight) / totals[term.kind]
    return [plain, guarded] if risk.guarded else [plain]
