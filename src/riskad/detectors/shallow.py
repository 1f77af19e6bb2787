"""ShallowRAD: the paper's shallow method, for linear scores and feature maps."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import numpy as np
from array_api_compat import is_torch_array

from riskad.core.checks import DataWarning, check_choice, enumerate_names
from riskad.core.labels import has_code_type, refuse_ambiguous
from riskad.core.losses import Loss
from riskad.core.objective import Objective
from riskad.core.regularization import PENALTIES
from riskad.core.risks import Risk
from riskad.detectors.base import RandomState, check_weight, refuse_non_finite
from riskad.detectors.description import check_kinds_present
from riskad.detectors.linear.detector import (
    LinearDetector,
    risk_parts,
    summarise_unlabelled,
    threshold_of,
)
from riskad.detectors.linear.feature_maps import Features, fit_features
from riskad.detectors.linear.lambda_search import LAMBDA_RULES, SolverSettings, find_lambda
from riskad.files.fields import Either, Number, Text
from riskad.rows.arrays import are_codes, check_tensor
from riskad.rows.engine import one_blas_thread
from riskad.rows.linear import ColumnStatistics, LinearModel, WideModel, column_statistics
from riskad.rows.sources import (
    RowBlocks,
    RowSource,
    as_rows,
    refuse_non_finite_rows,
    tensor_rows,
    unpacked,
)
from riskad.solvers import Problem, solve

# Second moments of each kind cost d x d numbers; above this, quadratic losses take one more pass.
_MAX_MOMENT_COLUMNS = 500


class ShallowRAD(LinearDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with linear scores.

    Finds g(x) = <w, phi(x)> + b that minimises an estimate of the classification risk from
    labelled normal rows (P), labelled anomalies (N) and contaminated unlabelled rows (U):

        a R_u^+ + (1 - a) pi_p R_p^+ + pi_n R_n^- - a pi_n R_n^+  +  lambda (||w||^2 + b^2)

    where R_k^{+/-} is the mean of l(+/- g) over the rows of kind k and pi_n = 1 - pi_p. With the
    default lambda of Theorem 1 the objective cannot become negative. The intercept is penalised
    with the weights, since the theorem holds only then; `intercept_scaling` sets how much.

    Parameters
    ----------
    loss : str or Loss, default="modified_huber"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    a : float in [0, 1], default=0.1
        Weight of the unlabelled rows; in [-1, 1] for risk="pnu". Risks without a mixing weight
        ignore it.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows. 1 - prior is the anomaly
        rate.
    penalty : {"l2", "l1"}, default="l2"
        ||w||_2^2 or ||w||_1. "l1" sets weights to zero; it needs a smooth convex risk.
    lam : "theorem", "tight", "cv" or float, default="theorem"
        Regularisation. "theorem" is Theorem 1's value. "tight" is the smallest value that is
        also provably safe (`riskad.core.regularization`). "cv" is the value that ranks held-out
        labelled rows best, if it beats the tight one by more than two standard errors
        (`riskad.metrics.search`). With fewer than two labelled rows of a kind there is nothing to
        hold out, and "cv" means "tight".
    risk : str, default="rad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    feature_map : None, "rbf", "nystroem", "poly" or transformer, default=None
        phi, fitted on the training rows only. None is the identity. "rbf" and "nystroem"
        approximate a Gaussian kernel of width sqrt(n_features / 2) with 300 features, "poly" adds
        squares and products. If `scale`, the map sees standardised columns.
    intercept_scaling : float >= 0, default=1.0
        B; 0 means no intercept. The intercept is b = B t, with t the weight of a constant feature
        B, so that its penalty is lambda t^2 = lambda (b / B)^2 (l1: lambda |b| / B). Raise B if
        lambda is large: a
        penalised intercept stays near 0, and then the mean of the labelled normal rows, not the
        anomalies, decides the direction of w. A free intercept balances them. Theorem 1 holds for
        every B, since the constant is part of the anomalies' reach, c^2 = ||phi(x)||^2 + B^2. If
        the theorem sets lambda (lam="theorem", "tight", the grid of "cv"), a B beyond the size of
        phi(x) raises lambda for all weights. If lam is a number, B = 1000 leaves the intercept
        practically free, and larger values only lose digits.
    scale : bool, default=True
        Whether to standardise columns. This is done by algebra; X is not copied. Before a feature
        map, sparse columns are scaled but not centred.
    tol : float, default=1e-6
        Tolerance of the solver's stopping test. If rounding does not allow such a small value, the
        smallest possible one is enough, and `criterion_` reports it.
    max_iter : int, default=100
        Maximum number of iterations of the solver.
    random_state : int, RandomState or None, default=0
        Seed for feature maps, folds and the starts of non-convex problems. With a number, the same
        data give the same model.

    Attributes
    ----------
    coef_ : ndarray
        Weights w in the units of X (of phi(x) with a feature map).
    intercept_ : float
        b in the same units.
    a_, prior_ : float
        a and prior as numbers.
    lambda_ : float
        The regularisation used, on the scale of standardised columns.
    objective_ : float
        Risk plus penalty at the solution.
    weight_norm_ : float
        ||w||_2, or ||w||_1 with that penalty, in the penalised coordinates, including the weight
        b / B of the intercept.
    risk_parts_ : dict
        What each term of the risk contributes; "total" is the risk.
    offset_ : float
        Threshold on `score_samples` that minimises the risk under the zero-one loss
        (`riskad.decisions.thresholds`). The regularised intercept alone would put it too close to
        zero.
    solver_, n_iter_, criterion_, optimality_, converged_ :
        Which solver ran, for how many iterations, what its stopping test measured, and whether
        that was small enough.
    feature_map_ : transformer or None
        The fitted feature map.
    unlabelled_ : UnlabelledSummary or None
        Quantiles of the columns and scores of unlabelled rows, for `riskad.drift_report`.
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = ShallowRAD().fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    >>> round(model.objective_, 3) >= 0        # Theorem 1
    True
    """

    penalty: Annotated[str, Text(choices=PENALTIES)]
    lam: Annotated[Any, Either(Text(choices=LAMBDA_RULES), Number(0))]

    def __init__(
        self,
        loss: str | Loss = "modified_huber",
        *,
        a: float = 0.1,
        prior: float = 0.8,
        penalty: str = "l2",
        lam: str | float = "theorem",
        risk: str = "rad",
        feature_map: Any = None,
        intercept_scaling: float = 1.0,
        scale: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: RandomState = 0,
    ):
        self.loss = loss
        self.a = a
        self.prior = prior
        self.penalty = penalty
        self.lam = lam
        self.risk = risk
        self.feature_map = feature_map
        self.intercept_scaling = intercept_scaling
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> ShallowRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows; finite numbers.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            A row of weight w counts as w rows in the risk, in column means and spreads, in Theorem
            1 and in the threshold (which is found from a sample beyond 20,000 rows). A row with
            weight 0 is ignored. Steps that look at single rows do not use the weights: the folds of
            lam="cv", feature maps that learn from rows ("nystroem", transformers), and
            `unlabelled_`.
        """
        with one_blas_thread():
            rows = self._training_rows(X, y, sample_weight)
            risk = self._check_settings()
            if isinstance(rows, RowBlocks):  # elsewhere labels are known after the first pass
                check_kinds_present(risk, rows.counts(), rows.totals(), self._remedy_setting)
            closed_form = risk.loss.quadratic and not risk.guarded and self.penalty == "l2"
            # Only a quadratic loss can be solved from sums of products, and only without a map in
            # between.
            products = closed_form and self.feature_map is None
            statistics = checked_statistics(rows, self._names, products)
            check_kinds_present(risk, rows.counts(), rows.totals(), self._remedy_setting)
            features = fit_features(self.feature_map, rows, statistics, self.scale, self._seed)
            model = linear_model(rows, features, float(self.intercept_scaling), self.penalty)
            settings = SolverSettings(self.tol, self.max_iter, self._seed)
            lam = find_lambda(self.lam, model, risk, self.penalty, settings)
            # Moments are of the columns of X: of no use for features, or for rotated rows.
            moments = statistics.moments if model.rows is rows else None
            objective = Objective(risk, rows.totals())
            problem = Problem(model, objective, lam, self.penalty, moments)
            solution = solve(problem, **settings._asdict())
            weights, parts = model.weights(solution.theta), risk_parts(problem, solution)
            offset = threshold_of(problem, solution.theta, self._seed)
            self._store(solution, features, lam, weights, offset, parts)
            if not self.coef_.any():
                warnings.warn(
                    f"all weights are zero under lam={lam:.3g}, so every row has the same "
                    "score. Choose a smaller lam: 'tight', 'cv' or a number.",
                    DataWarning,
                    stacklevel=2,
                )
            self.unlabelled_ = summarise_unlabelled(rows, self._scores, self._seed)
        return self

    def _check_settings(self) -> Risk:
        risk = super()._check_settings()
        check_choice("penalty", self.penalty, PENALTIES)
        self._check_lambda(LAMBDA_RULES)
        return risk

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> RowSource:
        X, y, sample_weight = unpacked(X, y, sample_weight)
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            self._forget_decisions()
            self._check_columns(rows.feature_names, rows.n_features, reset=True)
            return rows
        X = self._check_rows(X, reset=True)
        # Labels on a device are checked there: moving them would wait for all work before.
        if is_torch_array(X) and are_codes(y, len(X)):
            self._forget_decisions()
            rows = tensor_rows(X, y, check_weight(X, sample_weight))
            if not has_code_type(y):
                refuse_ambiguous(rows.counts())
            return rows
        codes, weight = self._check_labels(X, y, sample_weight)
        return (tensor_rows if is_torch_array(X) else RowBlocks)(X, codes, weight)

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """As for all detectors; a tensor stays one, on its device."""
        if not is_torch_array(X):
            return super()._check_rows(X, reset)
        # Never a copy to the host: the rows of a device may not fit there.
        X = check_tensor(X)
        self._check_columns(None, X.shape[1], reset)
        return X

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


# --- the rows of a fit --------------------------------------------------------------------


def checked_statistics(
    rows: RowSource, names: np.ndarray | None, products: bool
) -> ColumnStatistics:
    """Means and spreads; refuses non-finite values and warns of columns that do not vary.

    `products` says whether the solver would use sums of products of columns.
    """
    # Products of sparse columns would be dense, and those of very many columns do not fit.
    few = not rows.sparse and rows.n_features <= _MAX_MOMENT_COLUMNS
    statistics = column_statistics(rows, second_moments=products and few)
    if not statistics.finite:
        # Rows in memory can tell the first bad cell; others tell columns and counts, by another
        # pass.
        if isinstance(rows, RowBlocks) and not is_torch_array(rows.X):
            refuse_non_finite(rows.X, names)
        refuse_non_finite_rows(rows, names)
    if statistics.constant.any():
        columns = np.flatnonzero(statistics.constant)
        warnings.warn(
            f"{len(columns)} column(s) hold a single value and cannot tell rows apart: "
            f"{enumerate_names(columns.tolist() if names is None else names[columns])}. "
            "Drop them.",
            DataWarning,
            stacklevel=4,
        )
    return statistics


def linear_model(rows: RowSource, features: Features, constant: float, penalty: str) -> LinearModel:
    """Scores <w, phi(x)> + b of rows as a function of theta = (w, b / constant).

    Without a feature map columns are standardised by algebra, and a table with more columns than
    rows is rotated into the space of its rows, which does not change an l2 penalty.
    """
    if features.feature_map is not None:
        mapped = features.of_rows(rows)
        # Features of a map are not standardised again: the map has chosen their scale.
        q = mapped.n_features
        return LinearModel(mapped, np.zeros(q), np.ones(q), constant)
    # An l1 penalty depends on the axes: a rotation would change which weights are zero.
    wide = rows.n_rows < rows.n_features and not rows.sparse and penalty == "l2"
    if wide and isinstance(rows, RowBlocks) and isinstance(rows.X, np.ndarray):
        return WideModel(rows, features.mean, features.scale, constant)
    return LinearModel(rows, features.mean, features.scale, constant)
