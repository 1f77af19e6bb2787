"""BoostedRAD: gradient-boosted trees that descend a risk (`riskad.detectors.boosting`)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone

from riskad.core.checks import DataWarning, InputError, check_in_interval
from riskad.core.labels import count_labels
from riskad.core.losses import LOSSES, Loss
from riskad.core.objective import Objective
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.detectors.boosting import Boosting, one_fit_at_a_time, rows_that_count
from riskad.detectors.description import MinimisesRisk, check_kinds_present
from riskad.detectors.tree_arrays import Trees, from_lightgbm
from riskad.detectors.tree_graph import sum_of_trees
from riskad.detectors.tree_shapley import shapley_values
from riskad.detectors.trees import TREES, FrameDetector, check_trees
from riskad.metrics.folds import PNUStratifiedKFold, count_independent
from riskad.rows.encoding import FEW_LEVELS
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.memory import RowBlocks
from riskad.storage.fields import (
    COUNT,
    FLAG,
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
    State,
    Text,
    require,
)

__all__ = ["BoostedRAD"]

# lambda of a leaf's value, in labelled rows of average weight.
_L2 = 3.0
# This many rows determine the number of rounds, a single number, well enough.
_CV_ROWS = 10_000
_CV_SPLITS = 5
# Rounds if there are too few labelled rows to hold some out.
_FEW_LABELS_ROUNDS = 100
_FOLD_ROUNDS = 100
_LEAST_LEAF = 1e-3


class BoostedRAD(MinimisesRisk, FrameDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with gradient-boosted trees.

    Grows trees with LightGBM (`pip install 'riskad[boost]'`) whose sum g(x) lowers the same risk as
    `riskad.ShallowRAD` does with a linear score, round by round:

        a R_u^+ + (1 - a) pi_p R_p^+ + pi_n R_n^- - a pi_n R_n^+

    The training risk never rises from one round to the next, for any loss and risk (see
    `riskad.detectors.boosting`). Splits are the best of random ones, one for each column, as in
    extremely randomised trees: with few labels the best of all splits is mostly chance.

    Columns may have missing values (NaN), and columns of a pandas or polars frame may hold text,
    categories or dates. With up to ten categories a split separates one from the others. More
    categories are split by their frequency, and by the evidence of the labelled anomalies on each
    (`riskad.rows.encoding`): the sets of categories that LightGBM forms would fit their few
    labels by chance. A category that was not seen in fit counts as missing.

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
    n_rounds : int, default=300
        Number of trees; with `early_stopping`, the maximum.
    early_stopping : bool, default=False
        Whether to use the number of rounds with the lowest mean risk on held-out rows, in five
        folds that each hold their share of every kind (fewer folds if a kind has fewer rows). With
        a single row of a kind there is nothing to hold out, and the number is 100. With few labels
        the held-out risk is mostly chance, and a fixed number ranks rows better
        (`results/trees.json`).
    learning_rate : float in (0, 1], default=0.1
        Share of each leaf's best value that is added to the score.
    max_leaves : int, default=8
        Maximum number of leaves of a tree.
    min_leaf : float >= 0.001, default=1.0
        Minimum weight of a leaf, where a labelled row weighs 1 on average. The risk sets the total
        weight of the unlabelled rows: with a = 0.1, about a tenth of all.
    random_state : int, default=None
        Seed for folds and splits. None means 0: the same data gives the same model.
    n_jobs : int, default=1
        Threads of LightGBM in `fit`. More help from about 100,000 rows on, if cores are free.

    Attributes
    ----------
    n_rounds_ : int
        Number of rounds; fewer than requested if no split lowers the risk further.
    train_risk_ : ndarray of n_rounds_ + 1
        The training risk, with kinks rounded, before the first round and after each.
    cv_risk_ : ndarray or None
        Mean risk of held-out rows after each round, if rows were held out.
    risk_parts_ : dict
        What each term of the risk contributes on the training rows; "total" is the risk.
    offset_ : float
        Threshold on `score_samples`: 0, where both decisions cost the same. Trees separate the
        training rows too well: a threshold found on them would be next to the labelled anomalies.
    feature_importances_ : ndarray
        Share of each column in the gain of all splits.
    schema_ : TableSchema
        The texts of each text column, whose positions are the codes in a split, and the parts of
        dates that are used.
    evidence_ : AnomalyRateEncoder
        Evidence of the labelled anomalies on each text, for columns with many texts.
    trees_ : Trees
        The trees, which no longer need LightGBM (`riskad.detectors.tree_arrays`).
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
    shape_in_words: ClassVar[str] = "boosted trees"
    trees_: Trees

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
        "cv_risk_": Maybe(Array("f", ("rounds tried",))),
        "n_rounds_": COUNT,
        "train_risk_": Array("f", ("risks",)),
        "trees_": TREES,
        "feature_importances_": Array("f", ("n_features_in_",), low=0),
        "risk_parts_": DictOf(TEXT, NUMBER),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        check_trees(state, fewest=0)
        require(
            state["trees_"].cover is not None, "trees_: without the training rows of their leaves"
        )

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
            In the risk and for `min_leaf` a row counts by the ratio of its weight to the mean
            weight, so equal weights change nothing. A row with weight 0 is ignored. For random
            splits and the folds of `early_stopping` a row is one row whatever its weight.
        """
        X, codes, weight = self._check_training(X, y, sample_weight)
        risk = self._check_settings()
        rows = RowBlocks(self._learn_evidence(X, codes, weight), codes, weight)
        check_kinds_present(risk, count_labels(codes), rows.totals())
        rows = rows_that_count(rows, risk)
        with one_fit_at_a_time:
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
        # For smaller values, rounding in LightGBM's sums can look like a leaf.
        check_in_interval("min_leaf", self.min_leaf, _LEAST_LEAF, np.inf, closed=True)
        check_in_interval(
            "prior", self.prior, 0, 1, "It is the share of normal rows, 1 minus the anomaly rate."
        )
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _parameters(self) -> dict[str, Any]:
        """Settings of LightGBM; its own thresholds count curvature, not rows (`Boosting`)."""
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
            "max_cat_to_onehot": FEW_LEVELS,  # splits separate one category from the others
            "seed": self._seed,
            "num_threads": int(self.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def _boosting(self, rows: RowBlocks, risk: Risk) -> Boosting:
        few = [j for j, texts in self.schema_.levels.items() if len(texts) <= FEW_LEVELS]
        return Boosting(rows, risk, self._parameters(), few)

    # --- rows -----------------------------------------------------------------------------

    def _check_rows(self, X: Any, reset: bool) -> Any:
        X = super()._check_rows(X, reset)
        return sparse.csr_matrix(X) if sparse.issparse(X) else X  # LightGBM rejects csr_array

    # --- the number of rounds -------------------------------------------------------------

    def _choose_rounds(self, rows: RowBlocks, risk: Risk) -> int:
        self.cv_risk_ = None
        if not self.early_stopping:
            return int(self.n_rounds)
        if rows.n_rows > _CV_ROWS:
            rng = np.random.default_rng(self._seed)
            rows = rows.sample(_CV_ROWS, risk.kind_weights(), rng)
        groups = group_equal_rows(rows.X, rows.y)
        counts = [count_independent(rows.y, kind, groups) for kind in risk.kinds()]
        n_splits = min(_CV_SPLITS, *counts)
        if n_splits < 2:
            return min(int(self.n_rounds), _FEW_LABELS_ROUNDS)
        folds = PNUStratifiedKFold(n_splits, random_state=self._seed, unlabelled=True)
        splits = folds.split(rows.X, rows.y)
        held_out = [self._held_out_risks(rows, risk, *split) for split in splits]
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

    # --- fitted attributes ----------------------------------------------------------------

    def _store(self, run: Boosting, risk: Risk) -> None:
        rows = run.rows
        if not self.n_rounds_:
            warnings.warn(
                "no split lowers the risk, so every row has the same score. Lower min_leaf "
                f"(now {self.min_leaf:g}), or label more rows.",
                DataWarning,
                stacklevel=3,
            )
        self.train_risk_ = np.array(run.risks)
        self.trees_ = from_lightgbm(run.booster.dump_model(), rows.n_features)
        gain = self._by_column(run.booster.feature_importance("gain"))
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        scores = self.trees_.sum(rows.X)
        self.offset_ = 0.0  # trees separate their training rows too well to find another
        parts = risk.parts(scores, rows.y, rows.sample_weight)
        total = risk.value(scores, rows.y, rows.sample_weight)
        self.risk_parts_ = {name: float(part) for name, part in parts.items()}
        self.risk_parts_["total"] = float(total)

    def _scores(self, X: Any) -> np.ndarray:
        return self.trees_.sum(self._seen(X))

    def describe(self) -> dict[str, Any]:
        """Return the number of rounds, the threshold and the parts of the risk."""
        return super().describe() | {"rounds": int(self.n_rounds_)}

    def describe_in_words(self) -> list[str]:
        """Return what was minimised, and in how many rounds."""
        return [*super().describe_in_words(), f"{self.n_rounds_:,} rounds"]

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the sum of the trees."""
        return sum_of_trees(graph, self._graph_rows(graph, rows), self.trees_)

    def lighter(self) -> Self:
        """Return an unfitted copy that grows for fewer rounds."""
        return clone(self).set_params(n_rounds=_FOLD_ROUNDS)

    def contributions(self, X: Any) -> tuple[Any, float] | None:
        """Shapley values of the trees (Lundberg et al., 2020) and their mean.

        Where a set lacks a column, both branches of its splits count, in the shares of the training
        rows.
        """
        found = shapley_values(self.trees_, self._seen(X))
        return None if found is None else (self._by_column(found[0]), found[1])
