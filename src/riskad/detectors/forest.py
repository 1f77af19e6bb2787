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
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.risks import Risk, get_risk
from riskad.detectors.base import RandomState, check_whole
from riskad.detectors.frame_detector import TreeDetector
from riskad.detectors.tree_ensemble import Trees
from riskad.detectors.tree_growth import from_forest, grow
from riskad.files import fields
from riskad.rows.arrays import to_dense
from riskad.rows.sources import RowBlocks

_LOSS = "sigmoid"  # any symmetric loss gives the same weights
_CLASSES = np.array([ANOMALY, NORMAL])
_FEW_TREES = 50  # in a fold
_FEW_CELLS = 4_000_000  # 16 MB in single precision; a sparse matrix is made dense up to here
_FEW_ROWS = 2_000  # up to here all trees are grown at once, which is 1.5 to 8 times as fast


class ForestRAD(TreeDetector):
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

    _detector_tags = replace(TreeDetector._detector_tags, supports_guarded_risks=False)
    _shape_in_words: ClassVar[str] = "random forest"

    n_estimators: Annotated[int, fields.SIZE]
    min_samples_leaf: Annotated[float, fields.Number(0)]

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

    def _check_settings(self) -> Risk:
        for name in ("n_estimators", "n_jobs"):
            check_whole(name, getattr(self, name))
        check_in_interval("min_samples_leaf", self.min_samples_leaf, 0, np.inf, closed=True)
        return get_risk(self.risk, _LOSS, a=self.a, prior=self.prior)

    def _grow(self, rows: RowBlocks, risk: Risk) -> tuple[Trees, np.ndarray]:
        signed = class_weights(risk, rows.totals())[rows.y]
        signed = signed if rows.sample_weight is None else signed * rows.sample_weight
        kind, weight = np.sign(signed), np.abs(signed)
        labelled = rows.y != UNLABELLED
        counts = labelled if rows.sample_weight is None else labelled * rows.sample_weight
        # The weight of an average labelled row, as a share of all: `min_samples_leaf` counts in it.
        share = weight[labelled].sum() / counts.sum() / weight.sum()
        # scikit-learn allows half of the weight at most: beyond, no node could split.
        least = min(float(self.min_samples_leaf) * share, 0.5) * weight.sum()
        few = rows.n_rows <= _FEW_ROWS and rows.n_rows * rows.n_features <= _FEW_CELLS
        X = to_dense(rows.X) if few else rows.X  # the same rows are the same model
        if few and not np.isnan(X).any():
            # About the square root of the columns, as in extremely randomised trees.
            growth = grow(
                X,
                kind,
                weight,
                np.tile(np.arange(len(X)), (self.n_estimators, 1)),
                max_features=max(1, int(X.shape[1] ** 0.5)),
                min_weight_leaf=least,
                seed=self._seed,
            )
            gains = np.bincount(growth.trees.feature, growth.gain, minlength=X.shape[1])
            return growth.trees, gains / max(gains.sum(), np.finfo(float).tiny)
        from sklearn.ensemble import ExtraTreesClassifier  # scoring does without

        # Many rows, or gaps, which trees grown here do not take.
        forest = ExtraTreesClassifier(
            self.n_estimators,
            min_weight_fraction_leaf=least / weight.sum(),
            random_state=self._seed,
            n_jobs=self.n_jobs,
        ).fit(rows.X, np.where(kind > 0, *_CLASSES[::-1]), weight)
        # Of each node and its one output, the shares of both classes.
        shares = np.concatenate([member.tree_.value[:, 0] for member in forest.estimators_])
        return from_forest(forest, shares @ _CLASSES), forest.feature_importances_

    def _judged(self, X: Any) -> np.ndarray:
        # Scores far from zero turn any symmetric loss into the zero-one loss.
        return np.where(self.trees_.mean(X) >= 0, 1e3, -1e3)

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
        return self.trees_.mean(self._append_evidence(X))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        return self.trees_.onnx(graph, self._graph_rows(graph, rows), 1 / self.trees_.n_trees)

    def _clone_for_fold(self) -> Self:
        return clone(self).set_params(n_estimators=min(_FEW_TREES, self.n_estimators))

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"trees": self.trees_.n_trees}

    def _describe_in_words(self) -> list[str]:
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
