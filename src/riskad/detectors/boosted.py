r"""BoostedRAD: gradient-boosted trees that descend an estimated risk itself.

A risk needs only scores (`riskad.core.objective`), so trees can be grown on it as on a log-loss:

    R(f) = sum_i  A[y_i] l(f_i) + B[y_i] l(-f_i) + L[y_i] f_i.

Its second derivative is of no use for that. Where a coefficient is negative, or the loss is not
convex, it is negative, and a Newton step goes up, or far away if it is clipped. With kappa the
largest |l''|, the weights h_i = kappa (|A| + |B|)[y_i] put a parabola above the risk instead,

    R(f + d) <= R(f) + sum_i g_i d_i + h_i d_i^2 / 2,        g = the gradient of R,

and a tree that gives its leaf the value -G / (H + lambda), G and H the sums of g and h over the
leaf, times a learning rate of at most 1, lowers the right hand side. So no round ever raises the
training risk, whatever the loss. Losses with kinks are rounded over a small width first.

A guarded risk is P(f) + max(0, Q(f)), and a step may carry Q through zero. Both have a parabola
above them, P^ and Q^. With max(0, q) = max_{0 <= tau <= 1} tau q, the leaf values that are best for
P^ + max(0, Q^) are those of P^ + tau Q^, -(G_P + tau G_Q) / (H_P + tau H_Q + lambda), for the tau
where Q^ is zero, or for 0 or 1 if it is negative or positive throughout. A tree is grown with the
last round's tau and gets these leaf values, so that here, too, no round raises the risk.

lambda draws leaf values to 0, which charges a split for what all rows have in common. With pi_p
near 1 nearly all gradients pull one way, the charge exceeds what telling a few light anomalies
apart can gain, and no split is left. After ten draws of random splits without one that gains,
lambda therefore draws leaf values to the step c that is best for all rows alike:

    v = c - (G + H c) / (H + lambda),        c = -(sum_i g_i) / (sum_i h_i).

Trees are then grown on g_i + h_i c, whose sum is 0, so that any split that tells rows apart gains;
and since c alone lowers the right hand side, so do c and what a tree adds to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.optimize import brentq

from riskad.core.checks import DataWarning, InputError, MissingLibrary, check_in_interval
from riskad.core.labels import UNLABELLED, count_labels
from riskad.core.losses import LOSSES, Loss, Pointwise
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.decisions.selection import PNUStratifiedKFold
from riskad.detectors.base import check_kinds_present
from riskad.detectors.trees import FrameDetector, check_booster_text
from riskad.rows.blocks import RowBlocks
from riskad.storage.fields import (
    COUNT,
    FLAG,
    JOBS,
    NUMBER,
    POSITIVE,
    SEED,
    SHARE,
    SIZE,
    TEXT,
    Array,
    DictOf,
    Fields,
    Maybe,
    Number,
    Text,
)

__all__ = ["BoostedRAD"]

# Kinks are rounded over this width, and curvatures looked for at these margins.
_WIDTH = 0.5
_MARGINS = np.linspace(-3, 3, 601)
# lambda of a leaf's value, in labelled rows of average weight.
_L2 = 3.0
# The number of rounds is a single number: so many rows tell it well enough.
_CV_ROWS = 10_000
_CV_SPLITS = 5
# Rounds where labelled rows are too few to hold some out.
_FEW_LABELS_ROUNDS = 100
# A guarded risk at its kink can be lowered by few trees that ignore the guard: none does wholly.
_LEAST_TAU = 0.5
_LEAST_LEAF = 1e-3
# A draw of random splits may hold none that gains. After so many leaf values are centred, and if so
# many more in a round are in vain, trees are done.
_DRAWS = 10
_END_OF_TREES = "end of trees\n"


class BoostedRAD(FrameDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with gradient-boosted trees.

    Grows trees with LightGBM (`pip install 'riskad[boost]'`) whose sum g(x) lowers the same risk as
    `riskad.ShallowRAD` does with a linear score, round by round:

        a R_u^+ + (1 - a) pi_p R_p^+ + pi_n R_n^- - a pi_n R_n^+

    The training risk never rises from one round to the next, whatever the loss and the risk
    (`riskad.detectors.boosted` says why). Splits are the best of random ones, one for each column,
    as in extremely randomised trees: with few labels the best of all splits is mostly chance.

    Columns may have gaps (NaN), and those of a pandas or polars frame may hold text or
    categories. A category that was not seen in fit counts as missing.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        Margin loss l: a name of `riskad.core.losses.LOSSES`. Kinks are rounded over a width of 0.5.
    a : float in [0, 1], default=0.1
        Weight of the pile; in [-1, 1] for risk="pnu". Risks without a mixing weight ignore it.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows in the pile. 1 - prior is the anomaly rate.
    risk : str, default="rad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    n_rounds : int, default=300
        Trees; with `early_stopping`, at most.
    early_stopping : bool, default=False
        Whether the number of rounds is the one with the lowest mean risk on held-out rows, in five
        folds that each hold their share of every kind (fewer folds where a kind has fewer rows).
        With a single row of a kind there is nothing to hold out, and 100 rounds are taken. With few
        labels the held-out risk is mostly chance, and a fixed number ranks rows better
        (`results/trees.json`).
    learning_rate : float in (0, 1], default=0.1
        Share of each leaf's best value that is added to the score.
    max_leaves : int, default=8
        Most leaves of a tree.
    min_leaf : float >= 0.001, default=1.0
        Least weight of a leaf, where a labelled row weighs 1 on average. Unlabelled rows together
        weigh as much as the risk gives them, with a = 0.1 about a tenth of all.
    random_state : int, default=None
        Seed for folds and splits. None is 0: the same data gives the same model.
    n_jobs : int, default=1
        Threads of LightGBM. More pay from about 100,000 rows on, if cores are free.

    Attributes
    ----------
    n_rounds_ : int
        Rounds taken; fewer than asked for where no split lowers the risk further.
    train_risk_ : ndarray of n_rounds_ + 1
        The training risk, with kinks rounded, before the first round and after each.
    cv_risk_ : ndarray or None
        Mean risk of held-out rows after each round, if rows were held out.
    risk_parts_ : dict
        What each term of the risk contributes on the training rows; "total" is the risk.
    offset_ : float
        Threshold on `score_samples`: 0, where both decisions cost the same. The training rows,
        which trees part too well, would put it next to the labelled anomalies.
    feature_importances_ : ndarray
        Share of each column in what all splits gained.
    categories_ : dict
        Texts of each text column, by its place; the place in the list is the code in a split.
    model_ : str
        The trees, as LightGBM writes them.
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> X[::50, 0] = np.nan                    # gaps are no obstacle
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = BoostedRAD().fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    >>> bool((np.diff(model.train_risk_) <= 0).all())
    True
    """

    cv_risk_: np.ndarray | None

    _state_fields: ClassVar[Fields] = {
        "loss": Text(choices=LOSSES),
        "a": Number(-1, 1),
        "prior": SHARE,
        "risk": Text(choices=RISKS),
        "n_rounds": SIZE,
        "early_stopping": FLAG,
        "learning_rate": POSITIVE,
        "max_leaves": SIZE,
        "min_leaf": Number(0),
        "random_state": SEED,
        "n_jobs": JOBS,
        "cv_risk_": Maybe(Array("f", ("rounds tried",))),
        "n_rounds_": COUNT,
        "train_risk_": Array("f", ("risks",)),
        "model_": Text(longest=10**9),
        "feature_importances_": Array("f", ("n_features_in_",), low=0),
        "risk_parts_": DictOf(TEXT, NUMBER),
    }

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        a: float = 0.1,
        prior: float = 0.8,
        risk: str = "rad",
        n_rounds: int = 300,
        early_stopping: bool = False,
        learning_rate: float = 0.1,
        max_leaves: int = 8,
        min_leaf: float = 1.0,
        random_state: int | None = None,
        n_jobs: int = 1,
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
            A row of weight w counts as w rows in the risk and for `min_leaf`; one of weight 0 is as
            good as absent. The random splits, and the folds of `early_stopping`, are those of one
            row: repeated rows draw others, and give scores that are close but not the same.
        """
        X, codes, weight = self._check_training(X, y, sample_weight)
        risk = self._check_settings()
        rows = RowBlocks(X, codes, weight)
        check_kinds_present(risk, count_labels(codes), rows.totals(), besides="")
        rows = _counting(rows, risk)
        run = self._boosting(rows, risk)
        self.n_rounds_ = run.grow(self._choose_rounds(rows, risk))
        self._store(run, risk)
        return self

    # --- settings -------------------------------------------------------------------------

    def _check_settings(self) -> Risk:
        """The bound risk; every parameter is checked before any work."""
        for name, least in (("n_rounds", 1), ("max_leaves", 2), ("n_jobs", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} must be a whole number >= {least}, got {value!r}.")
        if check_in_interval("learning_rate", self.learning_rate, 0, 1, closed=True) == 0:
            raise InputError("learning_rate must be greater than 0: trees of weight 0 do nothing.")
        # Below, rounding in LightGBM's sums can pass for a leaf.
        check_in_interval("min_leaf", self.min_leaf, _LEAST_LEAF, np.inf, closed=True)
        check_in_interval(
            "prior", self.prior, 0, 1, "It is the share of normal rows, 1 minus the anomaly rate."
        )
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _parameters(self) -> dict[str, Any]:
        """Settings of LightGBM; its own thresholds count curvature, not rows (`_Boosting`)."""
        return {
            "objective": "none",
            "learning_rate": float(self.learning_rate),
            "num_leaves": int(self.max_leaves),
            "min_sum_hessian_in_leaf": float(self.min_leaf),
            "min_data_in_leaf": 0,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "extra_trees": True,
            "lambda_l2": _L2,
            "cat_l2": _L2,
            "cat_smooth": _L2,
            "min_data_per_group": 1,
            "seed": self._seed,
            "num_threads": int(self.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def _boosting(self, rows: RowBlocks, risk: Risk) -> _Boosting:
        return _Boosting(rows, risk, self._parameters(), list(self.categories_))

    # --- rows -----------------------------------------------------------------------------

    def _check_rows(self, X: Any, reset: bool) -> Any:
        X = super()._check_rows(X, reset)
        return sparse.csr_matrix(X) if sparse.issparse(X) else X  # LightGBM knows no csr_array

    # --- the number of rounds -------------------------------------------------------------

    def _choose_rounds(self, rows: RowBlocks, risk: Risk) -> int:
        self.cv_risk_ = None
        if not self.early_stopping:
            return int(self.n_rounds)
        if rows.n_rows > _CV_ROWS:
            rng = np.random.default_rng(self._seed)
            rows = rows.sample(_CV_ROWS, risk.kind_weights(), rng)
        n_splits = min(_CV_SPLITS, *(int((rows.y == kind).sum()) for kind in risk.kinds()))
        if n_splits < 2:
            return min(int(self.n_rounds), _FEW_LABELS_ROUNDS)
        folds = PNUStratifiedKFold(n_splits, random_state=self._seed).split(rows.X, rows.y)
        held_out = [self._held_out_risks(rows, risk, *fold) for fold in folds]
        self.cv_risk_ = np.mean(held_out, axis=0)
        return int(np.argmin(self.cv_risk_)) + 1

    def _held_out_risks(
        self, rows: RowBlocks, risk: Risk, kept: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        """The risk of the held-out rows after each round."""
        run, rest = self._boosting(rows.take(kept), risk), rows.take(held)
        objective = Objective(risk, rest.totals())
        scores = np.zeros(rest.n_rows)
        risks = np.full(self.n_rounds, objective.value(scores, rest.y, rest.sample_weight))
        for t in run.rounds(self.n_rounds):
            scores += run.last_tree(rest.X)
            risks[t:] = objective.value(scores, rest.y, rest.sample_weight)
        return risks

    # --- what is kept ---------------------------------------------------------------------

    def _store(self, run: _Boosting, risk: Risk) -> None:
        rows = run.rows
        if not self.n_rounds_:
            warnings.warn(
                "no split lowers the risk, so every row has the same score. Lower min_leaf "
                f"(now {self.min_leaf:g}), or label more rows.",
                DataWarning,
                stacklevel=3,
            )
        self.train_risk_ = np.array(run.risks)
        self.model_ = _text_of(run.booster)
        self._booster = _booster_from(self.model_)
        gain = run.booster.feature_importance("gain")
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        scores = self._scores(rows.X)
        self.offset_ = 0.0  # trees part the rows that they were grown on too well to find another
        parts = risk.parts(scores, rows.y, rows.sample_weight)
        total = risk.value(scores, rows.y, rows.sample_weight)
        self.risk_parts_ = {name: float(part) for name, part in parts.items()}
        self.risk_parts_["total"] = float(total)

    def _scores(self, X: Any) -> np.ndarray:
        return np.asarray(self._booster.predict(X, num_threads=int(self.n_jobs)))

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        """Shapley values of the trees (Lundberg et al., 2020) and their mean, by LightGBM.

        A column that a set lacks takes both ways of a split, in the shares of the training rows.
        """
        found = self._booster.predict(X, pred_contrib=True, num_threads=int(self.n_jobs))
        return found[:, :-1], float(found[0, -1])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_booster", None)  # the text says it all
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            check_booster_text(self.model_, self.n_features_in_)
            self._booster = _booster_from(self.model_)


# --- boosting -----------------------------------------------------------------------------------


class _Boosting:
    """Trees over given rows, one at a time; `f` are the scores of the rows so far.

    LightGBM is given gradients and curvatures in units in which a labelled row has on average the
    curvature 1: the risk divides by numbers of rows, and its thresholds are meant for sums.
    """

    def __init__(
        self, rows: RowBlocks, risk: Risk, parameters: dict[str, Any], categorical: list[int]
    ):
        lightgbm = _lightgbm()
        self.rows = rows
        loss = _rounded(risk.loss)
        self.sums = [replace(s, loss=loss) for s in Objective(risk, rows.totals()).sums]
        self.curvatures = _curvatures(risk, loss, rows)
        self.unit = _mean_over_labelled(sum(self.curvatures), rows)
        self.learning_rate, self.l2 = parameters["learning_rate"], parameters["lambda_l2"]
        data = lightgbm.Dataset(rows.X, params=parameters, categorical_feature=categorical)
        self.booster = lightgbm.Booster(parameters, data)
        self.f = np.zeros(rows.n_rows)
        self.risks = [self._risk()]
        self.tau = 1.0
        self.in_vain = 0  # draws of random splits without one that gains

    def grow(self, n_rounds: int) -> int:
        """Add trees, `n_rounds` or as many as still lower the risk; their number."""
        return sum(1 for _ in self.rounds(n_rounds))

    def rounds(self, n_rounds: int) -> Iterator[int]:
        """Add a tree at a time, and say which round it is."""
        for done in range(n_rounds):
            if not self._add_tree():
                return
            own_step = self.guarded or self.centred
            self.f = self.f + (self._best_step() if own_step else self.last_tree(self.rows.X))
            self.risks.append(self._risk())
            yield done

    def _add_tree(self) -> bool:
        """Grow a tree; False if none of several draws of random splits has one that gains."""
        for _ in range(2 * _DRAWS):
            if not self.booster.update(fobj=self._derivatives):
                return True
            self.in_vain += 1
        return False

    @property
    def centred(self) -> bool:
        """Whether leaf values are drawn to the step that is best for all rows alike."""
        return self.in_vain >= _DRAWS

    def last_tree(self, X: Any) -> np.ndarray:
        """What the last tree adds to the scores of these rows."""
        t = self.booster.num_trees() - 1
        return self.booster.predict(X, start_iteration=t, num_iteration=1)

    @property
    def guarded(self) -> bool:
        return len(self.sums) > 1

    def _risk(self) -> float:
        return Objective.join(self._value(s) for s in self.sums)

    def _value(self, s: RowSum) -> float:
        return s.value(self.f, self.rows.y, self.rows.sample_weight) + s.constant

    def _derivatives(self, scores: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and curvature of P + tau Q, as LightGBM asks for them."""
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
        """Give the leaves of the last tree the values that are best for P^ + max(0, Q^)."""
        t = self.booster.num_trees() - 1
        leaf = self.booster.predict(
            self.rows.X, pred_leaf=True, start_iteration=t, num_iteration=1
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


def _counting(rows: RowBlocks, risk: Risk) -> RowBlocks:
    """The rows that count in the risk: of a kind that it uses, and of some weight."""
    counts = np.isin(rows.y, list(risk.kinds()))
    if rows.sample_weight is not None:
        counts &= rows.sample_weight > 0
    return rows if counts.all() else rows.take(np.flatnonzero(counts))


def _curvatures(risk: Risk, loss: Pointwise, rows: RowBlocks) -> list[np.ndarray]:
    """h_i = kappa (|A| + |B|)[y_i] of the plain sum and, if the risk is guarded, the guarded one.

    The coefficients are those of the terms, before any cancel in the table
    (`riskad.core.objective`): a row whose loss adds up to a line would have no curvature, and weigh
    nothing.
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

    Hinges are rounded on one side of their kinks (`riskad.core.losses.Hinges`). Moved by half the
    width the rounding is even about them, and a loss that is symmetric or linear-odd stays so.
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


# --- LightGBM -----------------------------------------------------------------------------------


def _lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ModuleNotFoundError:
        raise MissingLibrary(
            "BoostedRAD needs lightgbm, which is not installed: pip install 'riskad[boost]'."
        ) from None
    return lightgbm


def _text_of(booster: Any) -> str:
    """The trees alone, without their sizes in bytes, which a reader would have to believe."""
    trees, _, _ = booster.model_to_string().partition(_END_OF_TREES)
    lines = (line for line in trees.splitlines(keepends=True) if not line.startswith("tree_sizes="))
    return "".join(lines) + _END_OF_TREES


def _booster_from(text: str) -> Any:
    return _lightgbm().Booster(model_str=text)
