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

lambda pulls leaf values to 0. With pi_p near 1 nearly all gradients point one way, the penalty
exceeds the gain from separating a few light anomalies, and no split is left. So after ten draws of
random splits without one that gains, it pulls them to the step c that is best for all rows equally:

    v = c - (G + H c) / (H + lambda),        c = -(sum_i g_i) / (sum_i h_i).

Trees are then grown on g_i + h_i c, whose sum is 0, so any split that separates rows gains; and
since c alone lowers the right hand side, so do c and what a tree adds to it.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, clone

from riskad.core.checks import DataWarning, InputError, MissingLibrary, check_in_interval
from riskad.core.labels import NORMAL, UNLABELLED
from riskad.core.losses import LOSSES, Loss, Pointwise
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import Risk, get_risk
from riskad.detectors.base import RandomState, check_whole
from riskad.detectors.frame_detector import TreeDetector
from riskad.detectors.tree_ensemble import Trees
from riskad.detectors.tree_growth import from_lightgbm
from riskad.files import fields
from riskad.rows.encoding import FEW_LEVELS
from riskad.rows.sources import RowBlocks

# LightGBM has one number of threads for the process, which each call sets. Memory that a call in
# one thread has reserved may be too small after a call in another one, and the process crashes.
one_fit_at_a_time = threading.Lock()

_L2 = 3.0  # lambda of a leaf's value, in labelled rows of average weight
_MIN_LEAF = 1e-3  # for smaller values, rounding in LightGBM's sums can look like a leaf
_FOLD_ITER = 100
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


class BoostedRAD(TreeDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with gradient-boosted trees.

    Grows trees with LightGBM whose sum g(x) lowers the same risk as `riskad.ShallowRAD` does with a
    linear score, round by round:

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
        Number of trees. A fixed number ranks rows better than that with the lowest risk on held-out
        rows: with few labels this risk is mostly chance.
    learning_rate : float in (0, 1], default=0.1
        Share of each leaf's best value that is added to the score.
    max_leaf_nodes : int, default=8
        Maximum number of leaves of a tree.
    min_samples_leaf : float >= 0.001, default=1.0
        Minimum weight of a leaf, where a labelled row weighs 1 on average. The risk sets the total
        weight of the unlabelled rows: with a = 0.1, about a tenth of all.
    random_state : int, RandomState or None, default=0
        Seed for splits. With a number, the same data give the same model.
    n_jobs : int, default=1
        Threads of LightGBM in `fit`. More help from about 100,000 rows on, if cores are free.

    Attributes
    ----------
    n_iter_ : int
        Number of trees; fewer than requested if no split lowers the risk further.
    train_risk_ : ndarray of n_iter_ + 1
        The training risk, with kinks rounded, before the first round and after each.
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

    _shape_in_words: ClassVar[str] = "boosted trees"

    loss: Annotated[str | Loss, fields.Text(choices=LOSSES)]
    max_iter: Annotated[int, fields.SIZE]
    learning_rate: Annotated[float, fields.POSITIVE]
    max_leaf_nodes: Annotated[int, fields.SIZE]
    min_samples_leaf: Annotated[float, fields.Number(0)]
    n_iter_: Annotated[int, fields.COUNT]
    train_risk_: Annotated[np.ndarray, fields.Array("f", ("risks",))]

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        a: float = 0.1,
        prior: float = 0.8,
        risk: str = "rad",
        max_iter: int = 300,
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
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _grow(self, rows: RowBlocks, risk: Risk) -> tuple[Trees, np.ndarray]:
        # Codes of more levels are ranks by frequency, which are split like numbers.
        few = [j for j, texts in self.schema_.levels.items() if len(texts) <= FEW_LEVELS]
        with one_fit_at_a_time:
            boosting = _Boosting(rows, risk, self._parameters(), few)
            self.n_iter_ = boosting.run(int(self.max_iter))
            trees = from_lightgbm(boosting.booster)
            gain = boosting.booster.feature_importance("gain")
        if not self.n_iter_:
            warnings.warn(
                "no split lowers the risk, so every row has the same score. Lower min_samples_leaf "
                f"(now {self.min_samples_leaf:g}), or label more rows.",
                DataWarning,
                stacklevel=3,
            )
        self.train_risk_ = np.array(boosting.risks)
        return trees, gain / max(gain.sum(), np.finfo(float).tiny)

    def _check_settings(self) -> Risk:
        for name, least in (("max_iter", 1), ("max_leaf_nodes", 2), ("n_jobs", 1)):
            check_whole(name, getattr(self, name), least)
        if check_in_interval("learning_rate", self.learning_rate, 0, 1, closed=True) == 0:
            raise InputError("learning_rate must be greater than 0: trees of weight 0 do nothing.")
        check_in_interval("min_samples_leaf", self.min_samples_leaf, _MIN_LEAF, np.inf, closed=True)
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

    def _check_rows(self, X: Any, reset: bool) -> Any:
        X = super()._check_rows(X, reset)
        return sparse.csr_matrix(X) if sparse.issparse(X) else X  # LightGBM rejects csr_array

    def _scores(self, X: Any) -> np.ndarray:
        return self.trees_.predict(self._append_evidence(X))

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        result = self.trees_.contributions(self._append_evidence(X))
        return None if result is None else (self._by_column(result[0]), result[1])

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        return self.trees_.onnx(graph, self._graph_rows(graph, rows))

    def _clone_for_fold(self) -> Self:
        return clone(self).set_params(max_iter=_FOLD_ITER)

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"rounds": int(self.n_iter_)}

    def _describe_in_words(self) -> list[str]:
        return [*super()._describe_in_words(), f"{self.n_iter_:,} rounds"]


class _Boosting:
    """Trees over given rows, one at a time; `f` are the scores of the rows so far.

    LightGBM gets gradients and curvatures in units in which a labelled row has on average the
    curvature 1: its thresholds are meant for sums, and the risk divides by numbers of rows.
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
        # Summed over plain and guarded part: min_samples_leaf must mean the same for guarded risks.
        self.unit = float(np.sum(self.curvatures, axis=0)[labelled].sum() / weight.sum())
        self.threads = {"num_threads": parameters["num_threads"]}
        self.learning_rate, self.l2 = parameters["learning_rate"], parameters["lambda_l2"]
        data = lightgbm.Dataset(rows.X, params=parameters, categorical_feature=categorical)
        self.booster = lightgbm.Booster(parameters, data)
        self.f = np.zeros(rows.n_rows)
        self.risks = [Objective.join(self._value(s) for s in self.sums)]
        self.tau = 1.0
        self.failed_draws = 0  # draws of random splits without one that gains

    def run(self, max_iter: int) -> int:
        """Add a tree at a time, while they lower the risk; returns how many there are."""
        for t in range(max_iter):
            # First with leaf values pulled to 0, then with them centred.
            for _ in range(2 * _DRAWS):
                if not self.booster.update(fobj=self._derivatives):
                    break
                self.failed_draws += 1
            else:
                return t
            resets = self.guarded or self.centred
            self.f = self.f + (self._best_step() if resets else self._last_tree())
            self.risks.append(Objective.join(self._value(s) for s in self.sums))
        return max_iter

    @property
    def centred(self) -> bool:
        """Whether leaf values are pulled to the step that is best for all rows equally."""
        return self.failed_draws >= _DRAWS

    def _last_tree(self, **options: Any) -> np.ndarray:
        t = self.booster.num_trees() - 1
        options |= {"start_iteration": t, "num_iteration": 1}
        return self.booster.predict(self.rows.X, **options, **self.threads)

    @property
    def guarded(self) -> bool:
        return len(self.sums) > 1

    def _value(self, s: RowSum) -> float:
        return s.value(self.f, self.rows.y, self.rows.sample_weight) + s.constant

    def _derivatives(self, scores: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and curvature of P + tau Q, in LightGBM's format."""
        y, weight = self.rows.y, self.rows.sample_weight
        self.gradients = [s.gradient(self.f, y, weight) for s in self.sums]
        g, h = (self._mix(parts, self.tau) for parts in (self.gradients, self.curvatures))
        if self.centred:
            g = g - h * (g.sum() / h.sum())
        return g / self.unit, h / self.unit

    @staticmethod
    def _mix(parts: list[np.ndarray], tau: float) -> np.ndarray:
        plain, *guarded = parts
        return plain + tau * guarded[0] if guarded else plain

    def _best_step(self) -> np.ndarray:
        """Set the leaves of the last tree to the best values for P^ + max(0, Q^)."""
        t = self.booster.num_trees() - 1
        leaf = self._last_tree(pred_leaf=True)[:, 0]
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
            G, H = self._mix(g, tau), self._mix(h, tau)
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
    """The h_i = kappa (|A| + |B|)[y_i] of the plain sum and, of a guarded risk, the guarded sum."""
    # The coefficients are those of the terms, before any cancel (`riskad.core.objective`): a row
    # whose loss sums to a line would otherwise have no curvature, and no weight.
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
    """A loss u - v with kinks, rounded symmetrically: a symmetric or linear-odd loss stays so."""

    u: Pointwise
    v: Pointwise | None

    def value(self, z: Any) -> Any:
        return self._difference("value", z)

    def derivative(self, z: Any) -> Any:
        return self._difference("derivative", z)

    def curvature(self, z: Any) -> Any:
        return self._difference("curvature", z)

    def _difference(self, name: str, z: Any) -> Any:
        # Hinges are rounded on one side of their kinks (`riskad.core.losses.Hinges`).
        z = z - _WIDTH / 2
        u = getattr(self.u.smoothed(_WIDTH), name)(z)
        return u if self.v is None else u - getattr(self.v.smoothed(_WIDTH), name)(z)


def labelled_growth(n_labelled: int, n_columns: int) -> dict[str, Any]:
    """How `LabelledTrees` grow for this many labelled rows: more allow smaller steps, and more.

    >>> names = ("num_iterations", "learning_rate", "num_leaves")
    >>> [[labelled_growth(n, 10)[name] for name in names] for n in (100, 19_999, 30_000, 10**7)]
    [[200, 0.05, 15], [200, 0.05, 31], [2000, 0.025, 8], [500, 0.1, 8]]
    """
    growth: dict[str, Any] = {"num_iterations": 200, "learning_rate": 0.05, "feature_fraction": 0.8}
    if n_labelled < _MANY:
        return growth | {"num_leaves": 15, "min_data_in_leaf": 5}
    if n_labelled < _VERY_MANY:
        return growth | {"num_leaves": 31, "min_data_in_leaf": 20}
    affordable = _MAX_CELLS / (n_labelled * n_columns)
    rounds = round(np.clip(affordable, 500, 2_000))
    # The number of rounds times their size is constant: fewer rounds go as far.
    growth = {"num_iterations": rounds, "learning_rate": 50.0 / rounds, "feature_fraction": 1.0}
    return growth | {"num_leaves": 8, "min_data_in_leaf": 20}


class LabelledTrees(BaseEstimator):
    """Gradient-boosted trees with the logistic loss on labelled rows, grown by LightGBM.

    With thousands of labels such a classifier ranks as well as detectors that minimise a risk of
    all rows, is quick to fit, and makes other mistakes: `AutoRAD` then adds it as a member.
    `max_iter=None` is as many rounds as `labelled_growth` finds right.

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

    trees_: Annotated[Trees, fields.Record(("Trees",), {"n_features": "n_features_in_"})]

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
            # Each tree sees four fifths of the rows, so that trees differ more.
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
        return clone(self).set_params(max_iter=_LABELLED_FOLD_ITER)

    def _kept_rows(self) -> int:
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        return self.trees_.predict(np.asarray(X))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        return self.trees_.onnx(graph, rows)


def _shared_parameters(seed: int, n_jobs: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "num_threads": int(n_jobs),
        "deterministic": True,
        # Otherwise LightGBM times two ways of counting and takes the faster one, which may differ
        # from run to run, and with it the last digits.
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
