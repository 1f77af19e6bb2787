r"""BoostedRAD: gradient-boosted trees that descend an estimated risk.

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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, clone

from riskad.core.checks import DataWarning, InputError, MissingLibrary, check_in_interval
from riskad.core.labels import NORMAL, UNLABELLED, count_labels
from riskad.core.losses import LOSSES, Loss, Pointwise
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.detectors.base import RandomState
from riskad.detectors.description import MinimisesRisk, check_kinds_present
from riskad.detectors.frame_detector import FrameDetector, check_trees
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.detectors.tree_growth import from_lightgbm
from riskad.files import fields
from riskad.metrics.folds import PNUStratifiedKFold, count_independent
from riskad.rows.encoding import FEW_LEVELS
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.sources import RowBlocks

__all__ = ["BoostedRAD", "LabelledTrees"]

# LightGBM has one number of threads for the process, which each call sets. Memory that a call in
# one thread has reserved may be too small after a call in another one, and the process crashes.
one_fit_at_a_time = threading.Lock()

_L2 = 3.0  # lambda of a leaf's value, in labelled rows of average weight
_MIN_LEAF = 1e-3  # for smaller values, rounding in LightGBM's sums can look like a leaf
_FOLD_ITER = 100
# Early stopping: this many rows determine the number of rounds, a single number, well enough; with
# too few labelled rows to hold some out it is fixed.
_CV_ROWS, _CV_SPLITS = 10_000, 5
_FEW_LABELS_ITER = 100
# Kinks are rounded over this width, and curvatures are searched at these margins.
_WIDTH = 0.5
_MARGINS = np.linspace(-3, 3, 601)
# A guarded risk at its kink can be lowered by few trees that ignore the guard: none does fully.
_MIN_TAU = 0.5
# `LabelledTrees`: numbers of labelled rows, and of cells that all rounds together read.
_MANY, _VERY_MANY, _MAX_CELLS = 2_000, 20_000, 8e9
_LABELLED_FOLD_ITER = 80
# A draw of random splits may contain none that gains. After this many, leaf values are centred; if
# as many more in a round fail, training ends.
_DRAWS = 10


class BoostedRAD(MinimisesRisk, FrameDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with gradient-boosted trees.

    Grows trees with LightGBM (`pip install 'riskad[boost]'`) whose sum g(x) lowers the same risk as
    `riskad.ShallowRAD` does with a linear score, round by round:

        a R_u^+ + (1 - a) pi_p R_p^+ + pi_n R_n^- - a pi_n R_n^+

    The training risk never rises from one round to the next, for any loss and risk (see
    `riskad.detectors.boosted`). Splits are the best of random ones, one for each column, as in
    extremely randomised trees: with few labels the best of all splits is mostly chance.

    Columns may have missing values (NaN), and columns of a pandas or polars frame may hold text,
    categories or dates. With up to ten categories a split separates one from the others. More
    categories are split by their frequency, and by the evidence of the labelled anomalies on each
    (`riskad.rows.encoding`). A category that was not seen in fit counts as missing.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        Margin loss l: a name of `riskad.core.losses.LOSSES`. Kinks are rounded over a width of 0.5.
    a : float in [0, 1], default=0.1
        Weight of the unlabelled rows; in [-1, 1] for risk="pnu". Risks without a mixing weight
        ignore it.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows. 1 - prior is the anomaly
        rate.
    risk : str, default="rad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    max_iter : int, default=300
        Number of trees; with `early_stopping`, the maximum.
    early_stopping : bool, default=False
        Whether to use the number of trees with the lowest mean risk on held-out rows, in at most
        five folds; 100 with a single row of a kind. With few labels the held-out risk is mostly
        chance, and a fixed number ranks rows better (`results/trees.json`).
    learning_rate : float in (0, 1], default=0.1
        Share of each leaf's best value that is added to the score.
    max_leaf_nodes : int, default=8
        Maximum number of leaves of a tree.
    min_samples_leaf : float >= 0.001, default=1.0
        Minimum weight of a leaf, where a labelled row weighs 1 on average. The risk sets the total
        weight of the unlabelled rows: with a = 0.1, about a tenth of all.
    random_state : int, RandomState or None, default=0
        Seed for folds and splits. With a number, the same data give the same model.
    n_jobs : int, default=1
        Threads of LightGBM in `fit`. More help from about 100,000 rows on, if cores are free.

    Attributes
    ----------
    n_iter_ : int
        Number of trees; fewer than requested if no split lowers the risk further.
    train_risk_ : ndarray of n_iter_ + 1
        The training risk, with kinks rounded, before the first round and after each.
    cv_risk_ : ndarray or None
        Mean risk of held-out rows after each round, if rows were held out.
    risk_parts_ : dict
        What each term of the risk contributes on the training rows; "total" is the risk.
    offset_ : float
        Threshold on `score_samples`: 0, where both decisions cost the same.
    feature_importances_ : ndarray
        Share of each column in the gain of all splits.
    trees_ : Trees
        The trees, which no longer need LightGBM (`riskad.detectors.tree_ensemble`).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> X[::50, 0] = np.nan            # gaps are no obstacle
    >>> y = np.zeros(1000, dtype=int)  # nobody checked these
    >>> y[:40], y[-10:] = 1, -1        # 40 labelled normal rows, 10 labelled anomalies
    >>> model = BoostedRAD().fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    >>> bool((np.diff(model.train_risk_) <= 0).all())
    True
    """

    cv_risk_: Annotated[np.ndarray | None, fields.Maybe(fields.Array("f", ("rounds tried",)))]
    _shape_in_words: ClassVar[str] = "boosted trees"
    trees_: Annotated[Trees, TREES]

    loss: Annotated[str | Loss, fields.Text(choices=LOSSES)]
    a: Annotated[float, fields.Number(-1, 1)]
    prior: Annotated[float, fields.SHARE]
    risk: Annotated[str, fields.Text(choices=RISKS)]
    max_iter: Annotated[int, fields.SIZE]
    early_stopping: Annotated[bool, fields.FLAG]
    learning_rate: Annotated[float, fields.POSITIVE]
    max_leaf_nodes: Annotated[int, fields.SIZE]
    min_samples_leaf: Annotated[float, fields.Number(0)]
    random_state: Annotated[Any, fields.SEED]
    n_iter_: Annotated[int, fields.COUNT]
    train_risk_: Annotated[np.ndarray, fields.Array("f", ("risks",))]
    feature_importances_: Annotated[np.ndarray, fields.Array("f", ("n_features_in_",), low=0)]
    risk_parts_: Annotated[Any, fields.DictOf(fields.TEXT, fields.NUMBER)]

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        super()._check_state(state)
        check_trees(state)
        counted = state["trees_"].cover is not None
        fields.require(counted, "trees_: without the training rows of their leaves")

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        a: float = 0.1,
        prior: float = 0.8,
        risk: str = "rad",
        max_iter: int = 300,
        early_stopping: bool = False,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 8,
        min_samples_leaf: float = 1.0,
        random_state: RandomState = 0,
        n_jobs: int = 1,
    ):
        self.loss = loss
        self.a = a
        self.prior = prior
        self.risk = risk
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> BoostedRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers or NaN, in a frame also text and categories.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            In the risk and for `min_samples_leaf` a row counts by the ratio of its weight to the
            mean weight, so equal weights change nothing. A row with weight 0 is ignored. For random
            splits and the folds of `early_stopping` a row is one row whatever its weight.
        """
        X, codes, weight = self._check_training(X, y, sample_weight)
        risk = self._check_settings()
        rows = RowBlocks(self._learn_evidence(X, codes, weight), codes, weight)
        check_kinds_present(risk, count_labels(codes), rows.totals())
        counts = np.isin(codes, list(risk.kinds())) & (True if weight is None else weight > 0)
        rows = rows if counts.all() else rows.take(np.flatnonzero(counts))
        with one_fit_at_a_time:
            max_iter = self._choose_max_iter(rows, risk)
            boosting = self._boosting(rows, risk)
            self.n_iter_ = sum(1 for _ in boosting.rounds(max_iter))
            self.trees_ = from_lightgbm(boosting.booster)
            gain = self._by_column(boosting.booster.feature_importance("gain"))
        if not self.n_iter_:
            warnings.warn(
                "no split lowers the risk, so every row has the same score. Lower min_samples_leaf "
                f"(now {self.min_samples_leaf:g}), or label more rows.",
                DataWarning,
                stacklevel=2,
            )
        self.train_risk_ = np.array(boosting.risks)
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        # Trees separate their training rows too well to find another threshold on these.
        self.offset_ = 0.0
        scores = self.trees_.predict(rows.X)
        parts = risk.parts(scores, rows.y, rows.sample_weight)
        self.risk_parts_ = {name: float(part) for name, part in parts.items()}
        self.risk_parts_["total"] = float(risk.value(scores, rows.y, rows.sample_weight))
        return self

    def _check_settings(self) -> Risk:
        """The bound risk; every parameter is checked before any work."""
        for name, least in (("max_iter", 1), ("max_leaf_nodes", 2), ("n_jobs", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} must be a whole number >= {least}, got {value!r}.")
        if check_in_interval("learning_rate", self.learning_rate, 0, 1, closed=True) == 0:
            raise InputError("learning_rate must be greater than 0: trees of weight 0 do nothing.")
        check_in_interval("min_samples_leaf", self.min_samples_leaf, _MIN_LEAF, np.inf, closed=True)
        meaning = "It is the share of normal rows, 1 minus the anomaly rate."
        check_in_interval("prior", self.prior, 0, 1, meaning)
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _parameters(self) -> dict[str, Any]:
        """Settings of LightGBM; its own thresholds count curvature, not rows (`_Boosting`)."""
        return {
            "objective": "none",
            "learning_rate": float(self.learning_rate),
            "num_leaves": int(self.max_leaf_nodes),
            "min_sum_hessian_in_leaf": float(self.min_samples_leaf),
            "min_data_in_leaf": 0,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "extra_trees": True,
            "lambda_l2": _L2,
            "max_cat_to_onehot": FEW_LEVELS,
            **_shared_parameters(self._seed, n_jobs=self.n_jobs),
        }

    def _boosting(self, rows: RowBlocks, risk: Risk) -> _Boosting:
        few = [j for j, texts in self.schema_.levels.items() if len(texts) <= FEW_LEVELS]
        return _Boosting(rows, risk, self._parameters(), few)

    def _choose_max_iter(self, rows: RowBlocks, risk: Risk) -> int:
        self.cv_risk_ = None
        if not self.early_stopping:
            return int(self.max_iter)
        if rows.n_rows > _CV_ROWS:
            rng = np.random.default_rng(self._seed)
            rows = rows.sample(_CV_ROWS, risk.kind_weights(), rng)
        groups = group_equal_rows(rows.X, rows.y)
        counts = [count_independent(rows.y, kind, groups) for kind in risk.kinds()]
        n_splits = min(_CV_SPLITS, *counts)
        if n_splits < 2:
            return min(int(self.max_iter), _FEW_LABELS_ITER)
        folds = PNUStratifiedKFold(n_splits, random_state=self._seed, unlabelled=True)
        risks = []
        for train, test in folds.split(rows.X, rows.y):
            boosting, held_out = self._boosting(rows.take(train), risk), rows.take(test)
            objective, scores = Objective(risk, held_out.totals()), np.zeros(held_out.n_rows)
            before = objective.value(scores, held_out.y, held_out.sample_weight)
            risks.append(np.full(self.max_iter, before))
            for t in boosting.rounds(self.max_iter):
                scores += boosting.last_tree(held_out.X)
                risks[-1][t:] = objective.value(scores, held_out.y, held_out.sample_weight)
        self.cv_risk_ = np.mean(risks, axis=0)
        return int(np.argmin(self.cv_risk_)) + 1

    def _check_rows(self, X: Any, reset: bool) -> Any:
        X = super()._check_rows(X, reset)
        return sparse.csr_matrix(X) if sparse.issparse(X) else X  # LightGBM rejects csr_array

    def _scores(self, X: Any) -> np.ndarray:
        return self.trees_.predict(self._seen(X))

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        """Return the Shapley values of the trees (`Trees.contributions`), and their mean."""
        result = self.trees_.contributions(self._seen(X))
        return None if result is None else (self._by_column(result[0]), result[1])

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the sum of the trees."""
        return self.trees_.onnx(graph, self._graph_rows(graph, rows))

    def _clone_for_fold(self) -> Self:
        """Return an unfitted copy that grows for fewer rounds."""
        return clone(self).set_params(max_iter=_FOLD_ITER)

    def _describe(self) -> dict[str, Any]:
        """Return the number of rounds, the threshold and the parts of the risk."""
        return super()._describe() | {"rounds": int(self.n_iter_)}

    def _describe_in_words(self) -> list[str]:
        """Return what was minimised, and in how many rounds."""
        return [*super()._describe_in_words(), f"{self.n_iter_:,} rounds"]


class _Boosting:
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
        loss = risk.loss if risk.loss.smooth else _Rounded(*risk.loss.dc_parts())
        self.sums = [replace(s, loss=loss) for s in Objective(risk, rows.totals()).sums]
        self.curvatures = _curvatures(risk, loss, rows)
        labelled = rows.y != UNLABELLED
        weight = labelled if rows.sample_weight is None else labelled * rows.sample_weight
        self.unit = float(np.sum(self.curvatures, axis=0)[labelled].sum() / weight.sum())
        self.threads = {"num_threads": parameters["num_threads"]}
        self.learning_rate, self.l2 = parameters["learning_rate"], parameters["lambda_l2"]
        data = lightgbm.Dataset(rows.X, params=parameters, categorical_feature=categorical)
        self.booster = lightgbm.Booster(parameters, data)
        self.f = np.zeros(rows.n_rows)
        self.risks = [Objective.join(self._value(s) for s in self.sums)]
        self.tau = 1.0
        self.in_vain = 0  # draws of random splits without one that gains

    def rounds(self, max_iter: int) -> Iterator[int]:
        """Add a tree at a time, while they lower the risk, and yield the number of the round."""
        for t in range(max_iter):
            for _ in range(2 * _DRAWS):
                if not self.booster.update(fobj=self._derivatives):
                    break
                self.in_vain += 1
            else:
                return
            own_step = self.guarded or self.centred
            self.f = self.f + (self._best_step() if own_step else self.last_tree(self.rows.X))
            self.risks.append(Objective.join(self._value(s) for s in self.sums))
            yield t

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
        self.tau = max(tau, _MIN_TAU)
        v = self.learning_rate * values
        for k, value in enumerate(v):
            self.booster.set_leaf_output(t, k, value)
        return v[leaf]

    def _leaf_values(self, leaf: np.ndarray, c: float, l2: float) -> tuple[np.ndarray, float]:
        """Values v = c - (G + H c) / (H + l2) of the leaves, and the tau of G and H."""
        g = [np.bincount(leaf, part) for part in self.gradients]
        h = [np.bincount(leaf, part) for part in self.curvatures]

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


def labelled_growth(n_labelled: int, n_columns: int) -> dict[str, Any]:
    """How `LabelledTrees` grow for this many labelled rows: more allow smaller steps, and more.

    >>> [labelled_growth(n, 10)["num_iterations"] for n in (100, 30_000, 10**7)]
    [200, 2000, 500]
    """
    growth: dict[str, Any] = {"num_iterations": 200, "learning_rate": 0.05, "feature_fraction": 0.8}
    if n_labelled < _MANY:
        return growth | {"num_leaves": 15, "min_data_in_leaf": 5}
    if n_labelled < _VERY_MANY:
        return growth | {"num_leaves": 31, "min_data_in_leaf": 20}
    affordable = _MAX_CELLS / (n_labelled * n_columns)
    rounds = round(np.clip(affordable, 500, 2_000))
    growth = {"num_iterations": rounds, "learning_rate": 50.0 / rounds, "feature_fraction": 1.0}
    return growth | {"num_leaves": 8, "min_data_in_leaf": 20}


class LabelledTrees(BaseEstimator):
    """Gradient-boosted trees with the logistic loss on labelled rows, grown by LightGBM.

    Unlabelled rows are ignored. With few labels they carry most of the information, and detectors
    that minimise a risk of all rows rank best. With thousands of labels an ordinary classifier does
    equally well, is quick to fit to all of them, and makes other mistakes: `AutoRAD` then adds it
    as a member. `max_iter=None` is as many rounds as `labelled_growth` finds right.

    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (200, 2)), rng.normal(3, 1, (50, 2))])
    >>> model = LabelledTrees().fit(X, np.repeat([1, -1], [200, 50]))
    >>> usual, odd = model.score_samples([[0.0, 0.0], [3.0, 3.0]])
    >>> bool(odd < 0 < usual)
    True
    """

    max_iter: Annotated[Any, fields.Maybe(fields.SIZE)]
    random_state: Annotated[Any, fields.SEED]
    n_features_in_: Annotated[int, fields.SIZE]

    trees_: Annotated[Trees, TREES]

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        check_trees(state)

    def __init__(self, *, max_iter: int | None = None, random_state: int | None = None):
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LabelledTrees:
        """Learn from the rows of X with y = +1 (normal) or -1 (anomaly), and their weights."""
        lightgbm = lightgbm_library()
        X, codes = np.asarray(X), np.asarray(y)
        labelled = np.flatnonzero(codes != UNLABELLED)
        weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
        self.n_features_in_ = X.shape[1]
        # As for fewer rows if the number of rounds is given.
        n_labelled = len(labelled) if self.max_iter is None else min(len(labelled), _VERY_MANY - 1)
        growth = labelled_growth(n_labelled, self.n_features_in_)
        rounds = growth.pop("num_iterations")
        parameters = {
            "objective": "binary",
            "lambda_l2": 1.0,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            **growth,
            **_shared_parameters(self.random_state or 0, n_jobs=1),
        }
        with one_fit_at_a_time:
            normal = codes[labelled] == NORMAL
            data = lightgbm.Dataset(X[labelled], normal, weight=weight, params=parameters)
            self.trees_ = from_lightgbm(lightgbm.train(parameters, data, self.max_iter or rounds))
        return self

    def _clone_for_fold(self) -> LabelledTrees:
        """Return an unfitted copy that grows for fewer rounds."""
        most = self.max_iter or _LABELLED_FOLD_ITER
        return clone(self).set_params(max_iter=min(most, _LABELLED_FOLD_ITER))

    def _kept_rows(self) -> int:
        """Return 0: trees hold no rows."""
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-odds of being normal."""
        return self.trees_.predict(np.asarray(X))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the sum of the trees."""
        return self.trees_.onnx(graph, rows)


def _shared_parameters(seed: int, n_jobs: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "num_threads": int(n_jobs),
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }


def lightgbm_library() -> ModuleType:
    """Return LightGBM, or say how to get it."""
    try:
        import lightgbm
    except ModuleNotFoundError:
        raise MissingLibrary(
            "Boosted trees need lightgbm, which is not installed: pip install 'riskad[boost]'."
        ) from None
    except OSError as error:  # its wheel for macOS expects libomp on the machine
        raise MissingLibrary(
            f"Boosted trees need lightgbm, which cannot be loaded ({error}). On macOS it needs "
            "OpenMP: brew install libomp."
        ) from None
    return lightgbm
