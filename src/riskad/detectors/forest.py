r"""ForestRAD: randomised trees, each of which lowers an estimated risk.

With the zero-one loss, or any loss with l(f) + l(-f) = 1, a risk

    R(f) = sum_i  A[y_i] l(f_i) + B[y_i] l(-f_i)

is a weighted classification error: A l(f) + B l(-f) = (A - B) l(f) + B. So, up to a constant, a row
has weight |A - B|, in the class normal if A > B and else in the class anomaly. For rad the weights
are

    (1 - a) pi_p / n_p as normal,   a / n_u as normal,   (1 + a) pi_n / n_n as anomaly:

the negative term has become a larger weight of the labelled anomalies, and no weight is negative.
Any classifier that takes sample weights can then minimise the risk; here it is a forest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.detectors.base import RandomState
from riskad.detectors.description import DetectorTags, MinimisesRisk, check_kinds_present
from riskad.detectors.frame_detector import FrameDetector, check_trees
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.detectors.tree_growth import from_sklearn, grow
from riskad.files import fields
from riskad.rows.arrays import to_dense
from riskad.rows.sources import RowBlocks

__all__ = ["ForestRAD", "class_weights"]

_LOSS = "sigmoid"  # any symmetric loss gives the same weights
_CLASSES = np.array([ANOMALY, NORMAL])
_FEW_TREES = 50  # in a fold
_FEW_CELLS = 4_000_000
_FEW_ROWS = 2_000  # up to here all trees are grown at once, which is 1.5 to 8 times as fast


class ForestRAD(MinimisesRisk, FrameDetector):
    r"""Semi-supervised anomaly detection by a forest that is grown on the weights of a risk.

    Extremely randomised trees classify rows as normal or anomaly. A labelled normal row weighs
    (1 - a) pi_p / n_p, a labelled anomaly (1 + a) pi_n / n_n, and an unlabelled row counts as
    normal with weight a / n_u: under the zero-one loss, the weighted error is the rad risk
    (see `riskad.detectors.forest`). The score of a row is P(normal) - P(anomaly), averaged over
    the trees.

    Columns may have missing values (NaN), and columns of a pandas or polars frame may hold text,
    categories or dates. Categories are split by their frequency and, if there are more than ten, by
    the evidence of the labelled anomalies on each (`riskad.rows.encoding`). A category that
    was not seen in fit counts as missing.

    Parameters
    ----------
    a : float in [0, 1], default=0.1
        Weight of the unlabelled rows. Risks without a mixing weight ignore it.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows. 1 - prior is the anomaly
        rate.
    risk : {"rad", "pn", "pu", "nu", "pnu"}, default="rad"
        Risk estimator. Guarded risks are not sums over rows, and are refused.
    n_estimators : int, default=300
        Number of trees.
    min_samples_leaf : float, default=0.5
        Minimum weight of a leaf, where a labelled row weighs 1 on average. Without it every
        unlabelled row would get a leaf of its own and be classified as normal.
    random_state : int, RandomState or None, default=0
        Seed. With a number, the same data give the same model.
    n_jobs : int, default=1
        Trees grown at a time, with more than 2,000 rows or missing values. With fewer rows all
        trees are grown at once (`riskad.detectors.tree_growth`).

    Attributes
    ----------
    trees_ : Trees
        The trees (`riskad.detectors.tree_ensemble`); the value of a leaf is P(normal) - P(anomaly).
    risk_parts_ : dict
        What each term of the risk contributes on the training rows under the zero-one loss, for
        the decisions of `predict`; "total" is the risk.
    offset_ : float
        Threshold on `score_samples`: 0, where both classes weigh the same.
    feature_importances_ : ndarray
        Share of each column in the gain of all splits.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> model = ForestRAD(n_estimators=50).fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _shape_in_words: ClassVar[str] = "random forest"

    a: Annotated[float, fields.Number(-1, 1)]
    prior: Annotated[float, fields.SHARE]
    risk: Annotated[str, fields.Text(choices=RISKS)]
    n_estimators: Annotated[int, fields.SIZE]
    min_samples_leaf: Annotated[float, fields.Number(0)]
    random_state: Annotated[Any, fields.SEED]
    trees_: Annotated[Any, TREES]
    feature_importances_: Annotated[np.ndarray, fields.Array("f", ("n_features_in_",), low=0)]
    risk_parts_: Annotated[Any, fields.DictOf(fields.TEXT, fields.NUMBER)]

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        super()._check_state(state)
        check_trees(state)

    def __init__(
        self,
        *,
        a: float = 0.1,
        prior: float = 0.8,
        risk: str = "rad",
        n_estimators: int = 300,
        min_samples_leaf: float = 0.5,
        random_state: RandomState = 0,
        n_jobs: int = 1,
    ):
        self.a = a
        self.prior = prior
        self.risk = risk
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> ForestRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, in a dense table also NaN, in a frame also text and categories.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            In the risk and for `min_samples_leaf` a row counts by the ratio of its weight to the
            mean weight, so equal weights change nothing. A row with weight 0 is ignored. For random
            splits a row is one row whatever its weight.
        """
        X, codes, weight = self._check_training(X, y, sample_weight)
        for name in ("n_estimators", "n_jobs"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")
        check_in_interval("min_samples_leaf", self.min_samples_leaf, 0, np.inf, closed=True)
        risk = get_risk(self.risk, _LOSS, a=self.a, prior=self.prior)
        rows = RowBlocks(self._learn_evidence(X, codes, weight), codes, weight)
        totals = rows.totals()
        check_kinds_present(risk, count_labels(codes), totals)
        signed = class_weights(risk, totals)[codes] * (1.0 if weight is None else weight)
        counting = np.flatnonzero(signed)
        rows, signed = rows.take(counting), signed[counting]
        self.trees_, importances = self._grow(rows, np.sign(signed), np.abs(signed))
        self.feature_importances_ = self._by_column(importances)
        self.offset_ = 0.0  # trees separate their training rows too well to find another
        # Scores far from zero turn any symmetric loss into the zero-one loss.
        decisions = np.where(self.trees_.mean(rows.X) >= self.offset_, 1e3, -1e3)
        parts = risk.parts(decisions, rows.y, rows.sample_weight)
        self.risk_parts_ = {name: float(part) for name, part in parts.items()}
        self.risk_parts_["total"] = float(sum(parts.values()))
        return self

    def _grow(
        self, rows: RowBlocks, kind: np.ndarray, weight: np.ndarray
    ) -> tuple[Trees, np.ndarray]:
        """The trees, and the share of each column in the gain of all splits."""
        labelled = rows.y != UNLABELLED
        counts = labelled if rows.sample_weight is None else labelled * rows.sample_weight
        share = weight[labelled].sum() / counts.sum() / weight.sum()
        least = min(float(self.min_samples_leaf) * share, 0.5) * weight.sum()
        few = rows.n_rows <= _FEW_ROWS and rows.n_rows * rows.n_features <= _FEW_CELLS
        X = to_dense(rows.X) if few else rows.X  # the same rows are the same model
        if few and not np.isnan(X).any():
            grown = grow(
                X,
                kind,
                weight,
                np.tile(np.arange(len(X)), (self.n_estimators, 1)),
                max_features=max(1, int(X.shape[1] ** 0.5)),
                min_weight_leaf=least,
                seed=self._seed,
            )
            gains = np.bincount(grown.trees.feature, grown.gain, minlength=X.shape[1])
            return grown.trees, gains / max(gains.sum(), np.finfo(float).tiny)
        from sklearn.ensemble import ExtraTreesClassifier  # scoring does without

        forest = ExtraTreesClassifier(
            self.n_estimators,
            min_weight_fraction_leaf=least / weight.sum(),
            random_state=self._seed,
            n_jobs=self.n_jobs,
        ).fit(rows.X, np.where(kind > 0, *_CLASSES[::-1]), weight)
        shares = np.concatenate([member.tree_.value[:, 0] for member in forest.estimators_])
        return from_sklearn(forest, shares @ _CLASSES), forest.feature_importances_

    def _check_rows(self, X: Any, reset: bool) -> Any:
        X = super()._check_rows(X, reset)
        values = X.data if sparse.issparse(X) else X
        if (np.abs(values) > np.finfo(np.float32).max).any():  # false for NaN
            raise InputError(
                "X has values beyond 3e38, which the trees cannot tell apart; rescale its columns."
            )
        if sparse.issparse(X) and np.isnan(values).any():
            raise InputError(
                "Input X contains a missing value (NaN) in a sparse matrix, which the trees cannot "
                "take. Give a dense table, or fill gaps first."
            )
        return X

    def _scores(self, X: Any) -> np.ndarray:
        return self.trees_.mean(self._seen(X))

    def __riskad_tags__(self) -> DetectorTags:
        return replace(super().__riskad_tags__(), supports_guarded_risks=False)

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the mean of P(normal) - P(anomaly) over the trees."""
        return self.trees_.onnx(graph, self._graph_rows(graph, rows), 1 / self.trees_.n_trees)

    def _clone_for_fold(self) -> Self:
        """Return an unfitted copy with fewer trees."""
        return clone(self).set_params(n_estimators=min(_FEW_TREES, self.n_estimators))

    def _describe(self) -> dict[str, Any]:
        """Return the number of trees, the threshold and the parts of the risk."""
        return super()._describe() | {"trees": self.trees_.n_trees}

    def _describe_in_words(self) -> list[str]:
        """Return the settings of the forest, and its number of trees."""
        return [*super()._describe_in_words(), f"{self.trees_.n_trees:,} trees"]


def class_weights(risk: Risk, totals: np.ndarray) -> np.ndarray:
    """Weight of a row of each kind, by label code: above 0 as normal, below 0 as anomaly.

    >>> from riskad.core.risks import get_risk
    >>> class_weights(get_risk("rad", a=0.1, prior=0.8), np.array([10, 4, 2])).round(3).tolist()
    [0.01, 0.18, -0.11]
    """
    if risk.guarded:
        raise InputError(
            f"the {risk.name} risk has max(0, .) around some of its terms and is no sum of weights "
            f"over rows. Choose risk={risk.name.removeprefix('nn')!r}, or BoostedRAD, which takes "
            "both."
        )
    weights = np.zeros(3)
    for term in risk.terms():
        if term.weight != 0:
            weights[term.kind] += term.sign * term.weight / totals[term.kind]
    return weights
