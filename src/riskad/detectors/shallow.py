"""ShallowRAD: the paper's shallow method, for linear scores and feature maps."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import (
    DataWarning,
    InputError,
    check_choice,
    check_in_interval,
    enumerate_names,
)
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, read_codes
from riskad.core.losses import LOSSES, Loss
from riskad.core.objective import Objective, RowSum
from riskad.core.regularization import PENALTIES, Reach, measure_reach, theorem_lambda
from riskad.core.risks import RISKS, Risk, Term, get_risk
from riskad.decisions.drift import PileSummary, rows_to_sum_up
from riskad.decisions.held_out import labelled_folds
from riskad.decisions.ranking_metrics import auc_with_interval
from riskad.decisions.selection import Candidate, Selection, choose
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.base import (
    Detector,
    check_said,
    check_weight,
    refuse_non_finite,
)
from riskad.detectors.description import check_kinds_present
from riskad.detectors.shallow_description import DescribesLinearScores
from riskad.detectors.stream import Stream, StreamProblem
from riskad.rows.arrays import on_host_array, places_of, to_numpy
from riskad.rows.blas_threads import one_blas_thread
from riskad.rows.linear import (
    ColumnStatistics,
    LinearModel,
    RowSpace,
    WideModel,
    column_statistics,
    sparse_to_dense,
)
from riskad.rows.memory import RowBlocks
from riskad.rows.source import RowSource
from riskad.rows.sources import (
    as_rows,
    at_most,
    in_memory,
    on_host,
    refuse_non_finite_rows,
    unpacked,
)
from riskad.solvers import SOLVERS, Problem, Solution, minimize_rounded, solve, warn_not_converged
from riskad.storage.fields import (
    COUNT,
    FLAG,
    NUMBER,
    SEED,
    SHARE,
    TEXT,
    Array,
    DictOf,
    Either,
    Fields,
    Maybe,
    Number,
    Optional,
    Record,
    State,
    Text,
    require,
)

__all__ = ["FEATURE_MAPS", "ShallowRAD"]

FEATURE_MAPS = ("rbf", "nystroem", "poly")
LAMBDA_RULES = ("theorem", "tight", "cv")
SELECT = ("cv",)

_N_COMPONENTS = 300
_LARGEST_CONSTANT = 1e100  # whose square can be computed with
# The threshold and lambda are single numbers: so many rows tell them well enough.
_THRESHOLD_ROWS = 20_000
_CV_ROWS = 5_000
# Ranks of held-out rows settle long before the last digits: a relative gradient norm, a relative
# gap where kinks are not rounded, and the width over which they are.
_CV_TOL = 1e-3
_CV_GAP = 1e-2
_CV_WIDTH = 0.5
_CV_SPLITS = 5
_CV_REPEATS = 2
_CV_ERRORS = 2
_CV_DECADES = 3
_CV_PATIENCE = 2
_CV_CLEARLY = 0.01
# Candidates of select="cv" beside what is given, and rows by which they are compared.
_SELECT_A = (0.02, 0.1, 0.4)
_SELECT_PRIORS = (0.5, 0.8, 0.95)
_SELECT_DECADES = 2
_SELECT_ROWS = 1_000
_SELECT_WIDE = 400
# A named feature map looks at the number of columns and at some rows; so many are enough.
_MAP_ROWS = 20_000
_FAR = 1e50  # standard deviations beyond which a feature map makes no difference
# Second moments of each kind cost d x d numbers; above this, squared loss takes one more pass.
_MAX_MOMENT_COLUMNS = 500
# A stream keeps six such squares, and forms Hessians.
_MAX_STREAM_COLUMNS = 999


class ShallowRAD(DescribesLinearScores, Detector):
    r"""Semi-supervised anomaly detection by risk minimisation, with linear scores.

    Finds g(x) = <w, phi(x)> + b that minimises an estimate of the classification risk from
    labelled normals (P), labelled anomalies (N) and a contaminated unlabelled pile (U):

        a R_u^+ + (1 - a) pi_p R_p^+ + pi_n R_n^- - a pi_n R_n^+  +  lambda (||w||^2 + b^2)

    where R_k^{+/-} is the mean of l(+/- g) over the rows of kind k and pi_n = 1 - pi_p. With the
    default lambda of Theorem 1 the objective cannot become negative. The intercept is penalised
    with the weights, since the theorem holds only then; `intercept_scaling` says how much.

    Parameters
    ----------
    loss : str or Loss, default="modified_huber"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    a : float in (0, 1), default=0.1
        Weight of the pile; in (-1, 1) for risk="pnu". Risks without a mixing weight ignore it.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows in the pile. 1 - prior is the anomaly rate.
    penalty : {"l2", "l1"}, default="l2"
        ||w||_2^2 or ||w||_1. "l1" sets weights to zero; it needs a smooth convex risk.
    lam : "theorem", "tight", "cv" or float, default="theorem"
        Regularisation: Theorem 1's value; the smallest one that is provably safe as well
        (`riskad.core.regularization`); the one that ranks held-out labelled rows best, if it does
        so better than the tight one by more than two standard errors; or a number. With fewer than
        two labelled rows of a kind there is nothing to hold out, and "cv" is "tight".
    risk : str, default="rad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    feature_map : None, "rbf", "nystroem", "poly" or transformer, default=None
        phi, fitted on the training rows only. None is the identity. "rbf" and "nystroem"
        approximate a Gaussian kernel of width sqrt(n_features / 2) with 300 features, "poly" adds
        squares and products. The map sees standardised columns if `scale`.
    fit_intercept : bool, default=True
        Whether g has an intercept b.
    intercept_scaling : float > 0, default=1.0
        B: the intercept is b = B t, with t the weight of a constant feature B, so that its penalty
        is lambda t^2 = lambda (b / B)^2 (l1: lambda |b| / B). Raise it where lambda is large: a
        penalised intercept stays near 0, and the mean of the labelled normals rather than the
        anomalies then decides the direction of w; a free intercept balances them. Theorem 1 holds
        for every B, since the constant is counted in the anomalies' reach, c^2 = ||phi(x)||^2 +
        B^2: where the theorem sets lambda (lam="theorem", "tight", the grid of "cv"), a B beyond
        the size of phi(x) raises lambda for all weights. Under a lam that is a number, B = 1000
        leaves the intercept as good as free, and more only costs digits. Without an intercept it
        has no effect.
    scale : bool, default=True
        Whether columns are standardised. This is done by algebra; X is not copied. Before a
        feature map sparse columns are scaled but not centred.
    solver : str, default="auto"
        A name of `riskad.solvers.SOLVERS`.
    select : None or "cv", default=None
        "cv" chooses a, prior and lam together, by how candidates around the given a and prior and
        the tight lambda rank held-out labelled rows (`riskad.decisions.selection`). Ties and small
        gains go to these three. Below 4 labelled anomalies held-out rows are not ranked but charged
        with the unbiased pu risk, which needs none. Takes risk="rad" and penalty="l2";
        `riskad.RADSearchCV` searches over anything.
    tol : float, default=1e-6
        Tolerance of the solver's stopping test. Where rounding allows no value as small, the least
        it allows is enough, and `criterion_` says so.
    max_iter : int, default=100
        Most iterations of the solver.
    random_state : int, default=None
        Seed for feature maps, folds and the starts of non-convex problems. None is 0: the same
        data gives the same model.

    Attributes
    ----------
    coef_ : ndarray
        Weights w in the units of X (of phi(x) with a feature map).
    intercept_ : float
        b in those units.
    a_, prior_ : float
        Those used: the given ones, or with `select` the chosen ones.
    selection_ : Selection or None
        With `select`: candidates, their scores, why one was taken, and an AUC with its
        interval of the whole procedure, each fold scored by what the other folds chose.
    lambda_ : float
        The regularisation used, on the scale of standardised columns.
    objective_ : float
        Risk plus penalty at the solution.
    weight_norm_ : float
        ||w||_2, or ||w||_1 with that penalty, in the coordinates that are penalised; the weight
        b / B of the intercept is counted.
    risk_parts_ : dict
        What each term of the risk contributes; "total" is the risk.
    offset_ : float
        Threshold on `score_samples`: where the risk, with the zero-one loss for its own, is lowest
        (`riskad.decisions.thresholds`). The regularised intercept alone would put it too near to
        zero.
    solver_, n_iter_, criterion_, optimality_, converged_ :
        Which solver ran, for how many iterations, what its stopping test measured, and whether
        that was small enough.
    feature_map_ : transformer or None
        The fitted feature map.
    pile_ : PileSummary or None
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

    _state_fields: ClassVar[Fields] = {
        "loss": Text(choices=LOSSES),
        "a": Number(-1, 1),
        "prior": SHARE,
        "penalty": Text(choices=PENALTIES),
        "lam": Either(Text(choices=LAMBDA_RULES), Number(0)),
        "risk": Text(choices=RISKS),
        "feature_map": Maybe(Either(Text(choices=FEATURE_MAPS), Record(fitted=False))),
        "fit_intercept": FLAG,
        "intercept_scaling": Number(0, _LARGEST_CONSTANT),
        "scale": FLAG,
        "solver": Text(choices=("auto", *SOLVERS)),
        "select": Maybe(Text(choices=SELECT)),
        "tol": Number(0),
        "max_iter": Number(1, 10**9, whole=True),
        "random_state": SEED,
        "_mean": Array("f", ("n_features_in_",)),
        "_scale": Array("f", ("n_features_in_",), low=np.nextafter(0, 1), infinite=True),
        "_stream": Optional(Record(("Stream",))),
        "feature_map_": Maybe(Record()),
        "selection_": Maybe(Record(("Selection",))),
        "a_": NUMBER,
        "prior_": SHARE,
        "lambda_": Number(0),
        "coef_": Array("f", ("weights",)),
        "intercept_": NUMBER,
        "objective_": NUMBER,
        "weight_norm_": Number(0),
        "solver_": TEXT,
        "n_iter_": COUNT,
        "criterion_": TEXT,
        "optimality_": NUMBER,
        "converged_": FLAG,
        "risk_parts_": DictOf(TEXT, NUMBER),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        phi, d, stream = state["feature_map_"], state["n_features_in_"], state.get("_stream")
        if phi is not None:
            require(getattr(phi, "n_features_in_", d) == d, "feature_map_: of other columns")
            d = len(phi.get_feature_names_out())
        require(len(state["coef_"]) == d, f"coef_: expected {d} weights")
        require(stream is None or len(stream.shift) == d, "_stream: of other columns")

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
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        scale: bool = True,
        solver: str = "auto",
        select: str | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: int | None = None,
    ):
        self.loss = loss
        self.a = a
        self.prior = prior
        self.penalty = penalty
        self.lam = lam
        self.risk = risk
        self.feature_map = feature_map
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.scale = scale
        self.solver = solver
        self.select = select
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
            A weight w counts a row as w rows.
        """
        self.__dict__.pop("_stream", None)
        with one_blas_thread():
            return self._fit(X, y, sample_weight)

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, forget: float = 0.0
    ) -> ShallowRAD:
        """Add rows to those of earlier calls, and fit to all of them; no row is needed twice.

        With squared loss the model is that of `fit` on all rows so far; earlier rows whose weight
        was forgotten count as much less. With modified_huber and logistic it is so up to 5,000
        rows of each kind, and close to it beyond (`riskad.detectors.stream` says how,
        `results/scale` how close). The threshold is then that of a sample of 5,000 rows of each
        kind, which is kept, and saved with the model. Up to 999 columns (of phi); sparse rows are
        made dense.

        lam="theorem" is measured on all labelled anomalies, up to 5,000; of those beyond a bound
        on the norm is known, with which lambda can only be larger. A feature map, and the mean
        and scale of what it sees, are fitted to the first batch, which should be a fair sample.
        Until the stream has had each kind of row that the risk needs, there is no model; its first
        call takes two rows at least, and after `fit` it starts anew. lam="cv", select,
        penalty="l1", guarded risks and other losses need all rows at once: they are refused.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        forget : float in [0, 1), default=0
            Share of their weight that all earlier rows lose before these are added.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
        >>> y = np.zeros(1000, dtype=int)
        >>> y[:40], y[-10:] = 1, -1
        >>> order = rng.permutation(1000)
        >>> stream = ShallowRAD("squared")
        >>> for batch in np.array_split(order, 10):
        ...     stream = stream.partial_fit(X[batch], y[batch])
        >>> bool(np.allclose(stream.coef_, ShallowRAD("squared").fit(X, y).coef_, rtol=1e-10))
        True
        """
        with one_blas_thread():
            risk = self._check_stream()
            first = not hasattr(self, "_stream")
            if first and hasattr(self, "coef_"):
                warnings.warn(
                    "this model comes from fit, which keeps nothing that could be added to: "
                    "partial_fit starts anew with these rows. Give it those of fit first; its "
                    "first call fits as fit does.",
                    DataWarning,
                    stacklevel=2,
                )
            X = self._check_rows(on_host_array(X), reset=first)
            Z, codes, weight = self._stream_rows(X, y, sample_weight, risk, fit_map=first)
            before = Stream.empty(Z.shape[1]) if first else self._stream
            self._fit_stream(before.forgotten(forget).added(Z, codes, weight, self._seed), risk)
        return self

    def remove(self, X: Any, y: Any = None, sample_weight: Any = None) -> ShallowRAD:
        """Take rows out again that `partial_fit` has added, with the labels they were added with.

        Exact, for squared loss without a feature map; with other losses nobody knows any more how
        much a row has moved the model. A row counts with the weight it has now: one that was added
        with weight 1 and of which a tenth was forgotten twice has 0.81, to be given as
        `sample_weight`. A row that was never added is refused where that can be noticed: always
        up to 5,000 rows of its kind, beyond if what is left could not be sums over rows.
        """
        if not hasattr(self, "_stream"):
            raise InputError("remove takes out rows that partial_fit has added, and it added none.")
        with one_blas_thread():
            risk = self._check_stream()
            if risk.loss.name != "squared" or self.feature_map is not None:
                raise InputError(
                    "remove needs loss='squared' and feature_map=None, got "
                    f"loss={risk.loss.name!r} and feature_map={self.feature_map!r}. Fit again "
                    "without these rows."
                )
            X = self._check_rows(on_host_array(X), reset=False)
            Z, codes, weight = self._stream_rows(X, y, sample_weight, risk, fit_map=False)
            self._fit_stream(self._stream.removed(Z, codes, weight), risk)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> ShallowRAD:
        rows = self._check_source(X, y, sample_weight)
        risk = self._check_settings()
        if isinstance(rows, RowBlocks):  # elsewhere labels are known after the first pass
            _check_kinds(risk, rows)
        statistics = self._column_statistics(rows, risk)
        _check_kinds(risk, rows)
        totals = rows.totals()
        model = self._linear_model(rows, statistics)
        if self.select is None:
            self.selection_ = None
            self.a_, self.prior_ = float(self.a), float(self.prior)
            self.lambda_ = self._lambda(model, risk)
        else:
            self.selection_ = self._selection(model, risk)
            self.a_, self.prior_, self.lambda_ = self.selection_.candidates[self.selection_.chosen]
            risk = get_risk(self.risk, self.loss, a=self.a_, prior=self.prior_)
        moments = statistics.moments if model.rows is rows else None
        problem = Problem(model, Objective(risk, totals), self.lambda_, self.penalty, moments)
        self._store(problem, self._solve(problem))
        self.pile_ = self._sum_up(rows)
        return self

    def largest_norm(self, X: Any) -> float:
        """Largest ||(phi(x), B)||_2 of these rows, in the coordinates of `weight_norm_`.

        No score of theirs exceeds the product of the two: with the penalty "l2" by Cauchy and
        Schwarz, with "l1" all the more.
        """
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        rows = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8)).dense_sized()
        squared = max(float(_squared_norms(self._features(block.X)).max()) for block in rows)
        if not np.isfinite(squared):
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        constant = float(self.intercept_scaling) if self.fit_intercept else 0.0
        return float(np.hypot(np.sqrt(squared), constant))

    def _features(self, X: Any) -> np.ndarray:
        """The features phi(x) of a few rows, dense."""
        if self.feature_map_ is not None:
            return sparse_to_dense(self.feature_map_.transform(self._standardised(X)))
        return (sparse_to_dense(X) - self._mean) / self._scale

    # --- settings -------------------------------------------------------------------------

    def _check_settings(self) -> Risk:
        """The bound risk; every parameter is checked before any work."""
        check_choice("risk", self.risk, RISKS)
        check_choice("penalty", self.penalty, PENALTIES)
        check_in_interval(
            "prior", self.prior, 0, 1, "It is the share of normal rows, 1 minus the anomaly rate."
        )
        a_range = RISKS[self.risk].a_range
        if a_range is not None:
            check_in_interval("a", self.a, *a_range, "It is the weight of the unlabelled pile.")
        check_in_interval("tol", self.tol, 0, 1)
        check_in_interval(
            "intercept_scaling",
            self.intercept_scaling,
            0,
            _LARGEST_CONSTANT,
            "The larger it is, the less the intercept is penalised; fit_intercept=False has none.",
        )
        if isinstance(self.lam, str):
            check_choice("lam", self.lam, LAMBDA_RULES)
        elif not isinstance(self.lam, Real) or not 0 <= float(self.lam) < np.inf:
            rules = ", ".join(LAMBDA_RULES)
            raise InputError(f"lam must be a number >= 0 or one of {rules}, got {self.lam!r}.")
        if not isinstance(self.max_iter, (int, np.integer)) or self.max_iter < 1:
            raise InputError(f"max_iter must be a whole number >= 1, got {self.max_iter!r}.")
        if self.select is not None:
            self._check_select()
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _check_select(self) -> None:
        check_choice("select", self.select, SELECT)
        fixed = {"risk": "rad", "penalty": "l2", "lam": "theorem"}
        for name, value in fixed.items():
            if (got := getattr(self, name)) != value:
                raise InputError(
                    f"select='cv' chooses a, prior and lam for {name}={value!r}, got {got!r}. "
                    f"Leave {name} at {value!r}, or search with riskad.RADSearchCV."
                )

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    # --- rows and columns -----------------------------------------------------------------

    def _check_source(self, X: Any, y: Any, sample_weight: Any) -> RowSource:
        """The rows of a fit, from wherever they come."""
        X, y, sample_weight = unpacked(X, y, sample_weight)
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            self._forget_decisions()
            self._check_columns(rows, reset=True)
            return rows
        X = self._check_rows(X, reset=True)
        if is_torch_array(X) and is_torch_array(y) and _are_codes(y, len(X)):
            self._forget_decisions()
            weight = check_weight(X, sample_weight)
            on_device = y.to(X.device, array_namespace(y).int8)
            return RowBlocks(X, on_device, None if weight is None else _beside(weight, X))
        codes, weight = self._check_labels(X, y, sample_weight)
        if not is_torch_array(X):
            return RowBlocks(X, codes, weight)
        rows = RowBlocks(X, _beside(codes, X), None if weight is None else _beside(weight, X))
        rows.labels_said = True
        return rows

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """As for all detectors; a tensor stays one, on its device."""
        if not is_torch_array(X):
            return super()._check_rows(X, reset)
        if X.ndim != 2 or not len(X):
            raise InputError(
                f"X must have rows and columns, got a tensor of shape {tuple(X.shape)}."
            )
        X = _as_floats(X.detach())
        self._check_columns(RowBlocks(X, None), reset)
        return X

    def _column_statistics(self, rows: RowSource, risk: Risk) -> ColumnStatistics:
        """Means and spreads; refuses what is not finite and warns of what does not vary."""
        names = getattr(self, "feature_names_in_", None)
        closed_form = risk.loss.name == "squared" and self.penalty == "l2" and not risk.guarded
        statistics = column_statistics(
            rows,
            second_moments=closed_form
            and self.feature_map is None
            and not rows.sparse
            and rows.n_features <= _MAX_MOMENT_COLUMNS,
        )
        if not statistics.finite:
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
                stacklevel=3,
            )
        return statistics

    def _linear_model(self, rows: RowSource, statistics: ColumnStatistics) -> LinearModel:
        d = rows.n_features
        self._mean = statistics.mean if self.scale else np.zeros(d)
        self._scale = statistics.scale if self.scale else np.ones(d)
        self.feature_map_ = self._fit_map(rows)
        constant = float(self.intercept_scaling) if self.fit_intercept else 0.0
        if self.feature_map_ is None:
            wide = rows.n_rows < rows.n_features and not rows.sparse and self.penalty == "l2"
            if wide and isinstance(rows, RowBlocks) and isinstance(rows.X, np.ndarray):
                return WideModel(rows, self._mean, self._scale, constant)
            return LinearModel(rows, self._mean, self._scale, constant)
        mapped = self._mapped(rows)
        q = mapped.n_features
        return LinearModel(mapped, np.zeros(q), np.ones(q), constant)

    def _fit_map(self, rows: RowSource) -> Any:
        if self.feature_map is None:
            return None
        X = self._rows_for_map(rows)
        if not isinstance(self.feature_map, str):
            if not hasattr(self.feature_map, "transform"):
                raise InputError(
                    f"feature_map must be None, one of {', '.join(FEATURE_MAPS)} or a transformer "
                    f"with fit and transform, got {self.feature_map!r}."
                )
            return clone(self.feature_map).fit(self._standardised(X))
        return self._named_map(X.shape).fit(self._standardised(X))

    def _rows_for_map(self, rows: RowSource) -> Any:
        """The rows that a feature map learns from: a sample where they are many.

        A transformer of the user's gets all rows that are in memory.
        """
        if not isinstance(rows, RowBlocks):
            return rows.sample(_MAP_ROWS, rows.totals(), np.random.default_rng(self._seed)).X
        if not isinstance(rows.X, np.ndarray) and not rows.sparse:
            raise InputError(
                "feature_map takes rows in the computer's own memory, and X is a torch tensor. "
                "Transform the tensor before fit, or give the rows as a NumPy array."
            )
        if isinstance(self.feature_map, str) and rows.n_rows > _MAP_ROWS:
            rng = np.random.default_rng(self._seed)
            return rows.X[np.sort(rng.choice(rows.n_rows, _MAP_ROWS, replace=False))]
        return rows.X

    def _named_map(self, shape: tuple[int, int]) -> Any:
        from sklearn.kernel_approximation import Nystroem, RBFSampler
        from sklearn.preprocessing import PolynomialFeatures

        check_choice("feature_map", self.feature_map, FEATURE_MAPS)
        n, d = shape
        if self.feature_map == "poly":
            return PolynomialFeatures(degree=2, include_bias=False)
        if self.feature_map == "rbf":
            return RBFSampler(gamma=1 / d, n_components=_N_COMPONENTS, random_state=self._seed)
        return Nystroem(gamma=1 / d, n_components=min(_N_COMPONENTS, n), random_state=self._seed)

    def _standardised(self, X: Any) -> Any:
        """A copy of these rows as a feature map sees them."""
        return _standardised(X, self._mean, self._scale)

    def _mapped(self, rows: RowSource) -> RowSource:
        """The features phi(x) of all rows, standardised block by block.

        Those of rows in memory are kept, others are found anew in each pass.
        """
        if not isinstance(rows, RowBlocks):
            phi = _Features(self.feature_map_, self._mean, self._scale)
            return rows.behind(phi, phi(rows.first()[:1]).shape[1])
        parts = [self.feature_map_.transform(self._standardised(block.X)) for block in rows]
        if sparse.issparse(parts[0]):
            X = sparse.vstack(parts, format="csr")
        else:
            X = np.concatenate([np.asarray(part, dtype=float) for part in parts])
        return RowBlocks(X, rows.y, rows.sample_weight)

    # --- lambda ---------------------------------------------------------------------------

    def _lambda(self, model: LinearModel, risk: Risk) -> float:
        if not isinstance(self.lam, str):
            return float(self.lam)
        if self.lam == "cv":
            return self._cross_validated_lambda(model, risk)
        self._theorem(risk)
        return self._safe_lambda(model, risk, tight=self.lam == "tight")

    def _theorem(self, risk: Risk) -> tuple[int, float, float]:
        """(kind, a, prior) for Theorem 1, if it covers the risk."""
        if risk.theorem is None:
            raise InputError(
                f"lam={self.lam!r}: Theorem 1 has no value for the {risk.name} risk. Give a number "
                "or lam='cv'."
            )
        return risk.theorem

    def _safe_lambda(self, model: LinearModel, risk: Risk, tight: bool) -> float:
        """Theorem 1's lambda; for risks that it does not cover that of a = 0, for its size."""
        kind, a, prior = risk.theorem or (next(iter(risk.kinds() - {0})), 0.0, risk.prior)
        reach = _reach(model, kind)
        return theorem_lambda(reach, risk.loss, a=a, prior=prior, penalty=self.penalty, tight=tight)

    def _cross_validated_lambda(self, model: LinearModel, risk: Risk) -> float:
        """The lambda of a grid that ranks held-out rows best, if it is clearly the best.

        The grid goes in decades from the theorem's value down past the tight one, which is kept
        unless another gains more than two standard errors over it: few labels say little. The way
        down ends where the objective becomes negative, which no true risk is: from there on the
        fit chases noise. It also ends after two decades of clearly worse values, since the smallest
        lambdas cost the most.
        """
        top = self._safe_lambda(model, risk, tight=False)
        safe = self._safe_lambda(model, risk, tight=True) if risk.theorem else 0.0
        anchor = int(np.ceil(np.log10(top / safe))) if safe > 0 else None
        if anchor is None:
            grid = top * 10.0 ** -np.arange(6)
        else:
            grid = np.minimum(top, safe * 10.0 ** np.arange(anchor, -_CV_DECADES - 1, -1))
        rows = in_memory(model.rows, _CV_ROWS, risk.kind_weights(), self._seed)
        folds = self._folds(rows, risk)
        if not folds and anchor is None:
            raise InputError(
                "lam='cv' needs at least 2 labelled rows of each kind that the risk uses. Label "
                "more rows, or give a number."
            )
        if not folds:
            return safe
        aucs = self._held_out_aucs(model, rows, risk, grid, folds)
        best = int(np.argmax(aucs.mean(axis=1)))
        if anchor is not None and anchor < len(aucs):
            gain = aucs[best] - aucs[anchor]
            # Repeats hold the same rows out again: they steady the mean, and are no more evidence.
            error = gain.std(ddof=1) / np.sqrt(len(folds) / _CV_REPEATS)
            if gain.mean() <= _CV_ERRORS * error:
                best = anchor
        return float(grid[best])

    def _held_out_aucs(
        self,
        model: LinearModel,
        rows: RowBlocks,
        risk: Risk,
        grid: np.ndarray,
        folds: list[np.ndarray],
    ) -> np.ndarray:
        """AUC of each fold's held-out rows, a row for each lambda until the way down ends."""
        held_out = [(rows.X[held], rows.y[held]) for held in folds]
        paths = [self._path(model, rows, risk, grid, held) for held in folds]
        aucs: list[list[float]] = []
        for thetas in zip(*paths, strict=False):  # until the first path ends
            aucs.append(
                [
                    _held_out_auc(model.scores(theta, X), y, risk.kinds())
                    for theta, (X, y) in zip(thetas, held_out, strict=True)
                ]
            )
            means = np.mean(aucs, axis=1)
            if max(means[-_CV_PATIENCE:]) < max(means) - _CV_CLEARLY:
                break
        return np.array(aucs)

    def _path(
        self,
        model: LinearModel,
        rows: RowBlocks,
        risk: Risk,
        grid: np.ndarray,
        held: np.ndarray,
    ) -> Iterator[np.ndarray]:
        """Solutions without the held-out rows, from the largest lambda down."""
        rows = RowBlocks(rows.X, rows.y, _without(rows, held))
        objective = Objective(risk, rows.totals())
        theta = np.zeros(model.n_parameters)
        for lam in grid:
            problem = Problem(model.over(rows), objective, lam, self.penalty)
            previous, (theta, value) = theta, self._solve_roughly(problem, theta)
            if value < 0 and previous.any():
                return
            yield theta

    def _solve_roughly(self, problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """Theta and objective, as far as ranks of held-out rows need them."""
        objective = problem.objective
        if objective.guarded or problem.penalty == "l1" or objective.risk.loss.name == "squared":
            solution = self._solve(problem, theta, tol=max(self.tol, _CV_GAP), warn=False)
            return solution.theta, solution.value
        return minimize_rounded(problem, theta, _CV_WIDTH, _CV_TOL, self.max_iter)

    def _folds(self, rows: RowBlocks, risk: Risk) -> list[np.ndarray]:
        """Rows to hold out: labelled ones, and with a single kind of label the pile as well."""
        from sklearn.model_selection import StratifiedKFold

        y, used = rows.y, sorted(risk.kinds() - {UNLABELLED})
        if rows.sample_weight is not None:
            y = np.where(rows.sample_weight > 0, y, UNLABELLED)
        n_splits = min(_CV_SPLITS, *(int((y == kind).sum()) for kind in used))
        if n_splits < 2:
            return []
        seeds = range(self._seed, self._seed + _CV_REPEATS)
        if len(used) == 2:
            return [held for seed in seeds for held in labelled_folds(y, n_splits, seed)]
        splitters = [StratifiedKFold(n_splits, shuffle=True, random_state=seed) for seed in seeds]
        return [held for splitter in splitters for _, held in splitter.split(y, y)]

    # --- a, prior and lambda --------------------------------------------------------------

    def _selection(self, model: LinearModel, risk: Risk) -> Selection:
        """What the held-out rows say of candidates around the given a and prior and tight lambda.

        A sample of the rows is compared, as coordinates in its own span where columns are many.
        """
        top, tight = (self._safe_lambda(model, risk, tight=tight) for tight in (False, True))
        default = Candidate(float(self.a), float(self.prior), tight)
        grid = {
            Candidate(a, prior, lam)
            for a in (default.a, *_SELECT_A)
            for prior in (default.prior, *_SELECT_PRIORS)
            for lam in (top, *(tight * 10.0**-decade for decade in range(_SELECT_DECADES + 1)))
        }
        n_rows = _SELECT_ROWS if model.n_parameters <= _SELECT_WIDE else _SELECT_WIDE
        rows = model.rows
        if isinstance(rows, RowBlocks) and rows.sample_weight is not None:
            rows = rows.take(places_of(rows.sample_weight > 0))
        rows = in_memory(rows, n_rows, np.ones(3), self._seed)
        Z = (sparse_to_dense(rows.X) - model.mean) / model.scale
        if model.constant:
            Z = np.column_stack([Z, np.full(len(Z), model.constant)])
        if Z.shape[1] > len(Z):
            Z = RowSpace.of(Z).coordinates
        candidates = [default, *sorted(grid - {default})]
        return choose(Z, rows.y, rows.sample_weight, risk.loss, candidates, self._seed)

    # --- rows in batches ------------------------------------------------------------------

    def _check_stream(self) -> Risk:
        """The risk, if all settings are such that rows may come in batches."""
        risk = self._check_settings()
        takes: dict[str, tuple[bool, object, str]] = {
            "loss": (
                risk.loss.smooth and risk.loss.convex and risk.loss.linear_odd is not None,
                risk.loss.name,
                "squared, modified_huber or logistic",
            ),
            "risk": (not risk.guarded, risk.name, "one without a guard, such as rad or pu"),
            "penalty": (self.penalty == "l2", self.penalty, "l2"),
            "lam": (self.lam != "cv", self.lam, "a number, theorem or tight"),
            "select": (self.select is None, self.select, "None"),
            "solver": (self.solver in ("auto", "newton"), self.solver, "auto or newton"),
        }
        for name, (fine, got, choices) in takes.items():
            if not fine:
                raise InputError(
                    f"partial_fit sees every row once, which {name}={got!r} does not allow. Choose "
                    f"{choices}, or call fit with all rows."
                )
        parabolas = self._stream.loss if hasattr(self, "_stream") else ""
        if parabolas not in ("", risk.loss.name):
            raise InputError(
                f"the rows so far were summed up for loss={parabolas!r}, got {risk.loss.name!r}. "
                "a, prior, risk and lam may change on the way, the loss may not."
            )
        return risk

    def _stream_rows(
        self, X: Any, y: Any, sample_weight: Any, risk: Risk, fit_map: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, codes and weights of a batch."""
        # A batch may lack anomalies by chance: its 0 and 1 are ambiguous only in a stream that has
        # had none either, and for a risk that does not wait for them.
        known = hasattr(self, "_stream") and self._stream.totals[ANOMALY] > 0
        if y is not None and (known or ANOMALY in risk.kinds()):
            y = read_codes(y)
        codes, weight = self._check_labels(X, y, sample_weight)
        codes = np.asarray(codes)
        self._refuse_non_finite(X)
        if fit_map:
            self._start_map(RowBlocks(X, codes, weight))
        if self.feature_map_ is not None:
            X = self.feature_map_.transform(self._standardised(X))
        if X.shape[1] > _MAX_STREAM_COLUMNS:
            raise InputError(
                f"partial_fit keeps sums of products of columns, of {_MAX_STREAM_COLUMNS} columns "
                f"at most, got {X.shape[1]:,}. Leave columns out, or call fit with all rows."
            )
        return sparse_to_dense(X), codes, np.ones(len(codes)) if weight is None else weight

    def _start_map(self, rows: RowBlocks) -> None:
        """The feature map, and the mean and scale that it sees, of the first batch."""
        d = rows.n_features
        self._mean, self._scale = np.zeros(d), np.ones(d)
        if self.feature_map is not None and self.scale:
            statistics = column_statistics(rows)
            self._mean, self._scale = statistics.mean, statistics.scale
        self.feature_map_ = self._fit_map(rows)

    def _fit_stream(self, stream: Stream, risk: Risk) -> None:
        """Fit to all rows of a stream, or wait for kinds of row that it has not had."""
        q = len(stream.shift)
        mean, scale = np.zeros(q), np.ones(q)
        if self.feature_map_ is None and self.scale and stream.totals.any():
            mean, scale = stream.column_statistics()
        if stream.missing(risk):
            self.__dict__.pop("coef_", None)
            self._stream = stream.standardised(mean, scale).thinned(
                lambda X: np.zeros(len(X)), risk.loss
            )
            return
        constant = float(self.intercept_scaling) if self.fit_intercept else 0.0
        problem = StreamProblem(stream, risk, mean, scale, constant)
        lam = self._stream_lambda(problem)
        solution = problem.solve(lam, self.tol, self.max_iter)
        if not solution.converged:
            warn_not_converged(solution, self.tol, self.max_iter)
        if self.feature_map_ is None:
            self._mean, self._scale = mean, scale
        self._stream = problem.thinned(solution.theta)
        self._store_stream(problem, solution, lam)

    def _stream_lambda(self, problem: StreamProblem) -> float:
        risk = problem.risk
        if not isinstance(self.lam, str):
            return float(self.lam)
        kind, a, prior = self._theorem(risk)
        reach, tight = problem.measure_reach(kind), self.lam == "tight"
        return theorem_lambda(reach, risk.loss, a=a, prior=prior, tight=tight)

    def _store_stream(self, problem: StreamProblem, solution: Solution, lam: float) -> None:
        theta = solution.theta
        self.selection_ = None
        self.a_, self.prior_, self.lambda_ = float(self.a), float(self.prior), lam
        self.coef_, self.intercept_ = problem.weights(theta)
        self.objective_ = solution.value
        self.weight_norm_ = float(np.linalg.norm(theta))
        self.solver_, self.n_iter_ = solution.solver, max(1, solution.n_iter)
        self.criterion_, self.optimality_ = solution.criterion, solution.optimality
        self.converged_ = solution.converged
        self.risk_parts_ = problem.risk_parts(theta)
        self.offset_ = problem.threshold(theta, self._stream)
        if self.feature_map_ is None:
            kept = self._stream
            self.pile_ = self._sum_up(RowBlocks(kept.X, kept.y))

    def __sklearn_is_fitted__(self) -> bool:
        if hasattr(self, "_stream") and not hasattr(self, "coef_"):
            missing = self._stream.missing(self._check_settings())
            raise NotFittedError(
                f"the {self.risk} risk needs {' and '.join(missing)} rows as well, of which "
                "partial_fit has seen none so far: there is no model yet. Labels are +1 normal, "
                "-1 anomaly, 0 unlabelled; riskad.parse_labels translates others."
            )
        return hasattr(self, "coef_")

    # --- solution -------------------------------------------------------------------------

    def _solve(
        self,
        problem: Problem,
        theta: np.ndarray | None = None,
        tol: float | None = None,
        warn: bool = True,
    ) -> Solution:
        return solve(
            problem,
            self.solver,
            theta=theta,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter,
            seed=self._seed,
            warn=warn,
        )

    def _store(self, problem: Problem, solution: Solution) -> None:
        self.coef_, self.intercept_ = problem.model.weights(solution.theta)
        if not self.coef_.any():
            warnings.warn(
                f"all weights are zero under lam={self.lambda_:.3g}, so every row has the same "
                "score. Choose a smaller lam: 'tight', 'cv' or a number.",
                DataWarning,
                stacklevel=3,
            )
        self.objective_ = solution.value
        penalty = problem.penalty_value(solution.theta)
        self.weight_norm_ = penalty**0.5 if self.penalty == "l2" else penalty
        self.solver_ = solution.solver
        self.n_iter_ = max(1, solution.n_iter)
        self.criterion_ = solution.criterion
        self.optimality_ = solution.optimality
        self.converged_ = solution.converged
        self.offset_ = self._threshold(problem, solution.theta)
        self.risk_parts_ = _risk_parts(problem, solution)

    def _threshold(self, problem: Problem, theta: np.ndarray) -> float:
        """Where the zero-one risk is lowest; a sample of the rows tells it well enough."""
        risk = problem.objective.risk
        rows = at_most(problem.model.rows, _THRESHOLD_ROWS, risk.kind_weights(), self._seed)
        scores = rows.each(lambda X: problem.model.scores(theta, X))
        y, weight = on_host_array(rows.y), on_host_array(rows.sample_weight)
        return zero_one_threshold(risk, scores, y, weight)

    def _sum_up(self, rows: RowSource) -> PileSummary | None:
        """What is kept of the pile, to compare later rows with."""
        shares, rng = np.array([1.0, 0.0, 0.0]), np.random.default_rng(self._seed)
        some = on_host(rows.sample(rows_to_sum_up(rows.n_features), shares, rng))
        if some.sample_weight is not None:
            some = some.take(np.flatnonzero(some.sample_weight > 0))
        return PileSummary.of(some.X, -self._scores(some.X))

    def _scores(self, X: Any) -> Any:
        if is_torch_array(X):
            return self._tensor_scores(X)
        if self.feature_map_ is not None:
            self._refuse_non_finite(X)  # a map would refuse it without saying where it is
        with np.errstate(invalid="ignore", over="ignore"):  # reported by name below
            if self.feature_map_ is not None or X.dtype != np.float64:
                blocks = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8))
                scores = np.concatenate([self._block_scores(block.X) for block in blocks])
            else:
                scores = X @ self.coef_ + self.intercept_
        # A NaN in X shows in its score, unless its weight is zero and the product skipped it.
        if not np.isfinite(scores).all() or not np.all(self.coef_):
            self._refuse_non_finite(X)
        return scores

    def _refuse_non_finite(self, X: Any) -> None:
        if not np.isfinite(X.data if sparse.issparse(X) else X).all():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))

    def _tensor_scores(self, X: Any) -> Any:
        w = array_namespace(X).asarray(self.coef_, dtype=X.dtype, device=X.device)
        scores = X @ w + self.intercept_
        if not bool(scores.isfinite().all()):
            zeros = np.zeros(len(X), dtype=np.int8)
            refuse_non_finite_rows(
                RowBlocks(X, _beside(zeros, X)), getattr(self, "feature_names_in_", None)
            )
        return scores

    def _block_scores(self, X: Any) -> np.ndarray:
        if self.feature_map_ is not None:
            X = self.feature_map_.transform(self._standardised(X))
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)


@dataclass(frozen=True)
class _Features:
    """phi(x) of a block of rows, as something that can travel to other processes."""

    feature_map: Any
    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        return sparse_to_dense(self.feature_map.transform(_standardised(X, self.mean, self.scale)))


def _standardised(X: Any, mean: np.ndarray, scale: np.ndarray) -> Any:
    if sparse.issparse(X):
        scaled = X.tocsr().copy()
        scaled.sort_indices()  # "poly" takes them to be sorted
        scaled.data = _within_reach(scaled.data, 0.0, scale[scaled.indices])
        return scaled
    return _within_reach(X, mean, scale)


def _within_reach(X: np.ndarray, mean: Any, scale: np.ndarray) -> np.ndarray:
    """(X - mean) / scale, but drawn in where it is so far out that products of it overflow.

    Infinities of X itself stay, to be refused.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        Z = (X - mean) / scale
        far = (np.abs(Z) > _FAR) & np.isfinite(X)
    return np.where(far, np.copysign(_FAR, Z), Z) if far.any() else Z


def _beside(values: np.ndarray, X: Any) -> Any:
    """Labels or weights as a tensor on the device of the rows."""
    dtype = None if values.dtype == np.int8 else X.dtype
    return array_namespace(X).asarray(values, dtype=dtype, device=X.device)


def _as_floats(X: Any) -> Any:
    """A tensor of single or double precision: the least that holds its numbers."""
    if X.dtype.is_complex:
        raise InputError("Complex data not supported: X must hold real numbers.")
    if X.dtype.is_floating_point:
        return X if X.element_size() >= 4 else X.float()
    return X.float() if X.element_size() < 4 else X.double()


def _check_kinds(risk: Risk, rows: RowSource) -> None:
    """The labels of a fit must be known to mean what they say, and be those the risk needs."""
    check_said(rows)
    check_kinds_present(risk, rows.counts(), rows.totals(), ShallowRAD.remedy_setting)


def _are_codes(y: Any, n_rows: int) -> bool:
    """Whether a tensor holds one code for each row, seen where it is."""
    return tuple(y.shape) == (n_rows,) and bool((y == y.sign()).all())


def _reach(model: LinearModel, kind: int) -> Reach:
    """Reach of the labelled rows of a kind, standardised a block at a time."""
    blocks, again = itertools.tee(model.rows.blocks_of(kind))
    features = ((sparse_to_dense(block.X) - model.mean) / model.scale for block in blocks)
    weights = (None if block.weight is None else to_numpy(block.weight) for block in again)
    return measure_reach(features, model.constant, weights)


def _squared_norms(Z: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", Z, Z)


def _held_out_auc(f: np.ndarray, y: np.ndarray, kinds: set[int]) -> float:
    """AUC of held-out rows; for a kind of label that the risk does not use the pile stands in.

    If labelled rows are like those of their kind in the pile, AUC(P, U) = pi_p / 2 +
    pi_n AUC(P, N), and likewise for N: what ranks best against the pile ranks best against the
    other kind.
    """
    if NORMAL not in kinds:
        y = np.where(y == UNLABELLED, NORMAL, y)
    if ANOMALY not in kinds:
        y = np.where(y == UNLABELLED, ANOMALY, y)
    return auc_with_interval(y, -f).value


def _without(rows: RowBlocks, held: np.ndarray) -> np.ndarray:
    """Weights that leave these rows out without copying the others."""
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight.copy()
    weight[held] = 0
    return weight


def _risk_parts(problem: Problem, solution: Solution) -> dict[str, float]:
    """Each term's contribution and their total, the guard applied."""
    risk, model = problem.objective.risk, problem.model
    totals = model.rows.totals()
    penalty = problem.lam * problem.penalty_value(solution.theta)
    terms = [term for term in risk.terms() if term.weight != 0]
    # The total is known and at most one term is over the pile: where no guard hides it, that
    # term is what the labelled rows leave, and the pile is spared a pass.
    spared = [term for term in terms if term.kind == UNLABELLED and not risk.guarded]
    counted = [term for term in terms if term not in spared]
    sums = [_term_sum(risk.loss, term, totals) for term in counted]
    values = dict(zip(counted, model.values(solution.theta, sums), strict=True))
    total = solution.value - penalty
    for term in spared:
        values[term] = total - sum(values.values())
    return {term.name: float(values[term]) for term in terms} | {"total": float(total)}


def _term_sum(loss: Loss, term: Term, totals: np.ndarray) -> RowSum:
    coefficient = np.zeros(3)
    coefficient[term.kind] = term.weight / totals[term.kind]
    zero = np.zeros(3)
    sides = (coefficient, zero) if term.sign > 0 else (zero, coefficient)
    return RowSum(loss, *sides, zero)
