"""StreamingRAD: linear scores fitted to rows that arrive in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.exceptions import NotFittedError

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, read_codes
from riskad.core.losses import LOSSES, Loss
from riskad.core.regularization import theorem_lambda
from riskad.core.risks import RISKS, Risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.base import RandomState
from riskad.detectors.description import DetectorTags, check_kinds_present
from riskad.detectors.linear.detector import LinearDetector, summarise_unlabelled
from riskad.detectors.linear.feature_maps import Features, fit_features
from riskad.detectors.linear.lambda_search import SAFE_RULES, theorem_terms
from riskad.detectors.linear.stream import StreamProblem, StreamSummary
from riskad.files.fields import Either, Number, Optional, Record, Text
from riskad.rows.arrays import on_host_array, to_dense
from riskad.rows.engine import one_blas_thread
from riskad.rows.linear import column_statistics
from riskad.rows.sources import RowBlocks, as_rows, unpacked
from riskad.solvers import warn_not_converged

# Six square matrices of this size are kept, and Hessians are formed.
_MAX_COLUMNS = 999


def _can_stream(loss: Loss) -> bool:
    """Whether a loss can continue as a parabola without its rows: smooth, convex, odd part linear.

    >>> [loss.name for loss in LOSSES.values() if _can_stream(loss)]
    ['squared', 'modified_huber', 'logistic']
    """
    return loss.smooth and loss.convex and loss.linear_odd is not None


class StreamingRAD(LinearDetector):
    r"""`ShallowRAD` for rows that arrive in batches: no row is needed twice.

    After each batch the model is fitted to all rows so far. It minimises

        R(g)  +  lambda (||w||^2 + b^2),      g(x) = <w, phi(x)> + b

    where R is an unguarded risk of `riskad.core.risks` over these rows. With squared loss this is
    the model of `ShallowRAD` on the same rows. With modified_huber and logistic it is the same
    model up to 5,000 rows of each kind, and close to it beyond: the loss of a row that leaves the
    sample is replaced by the parabola that touches it (`riskad.detectors.linear.stream`
    explains how, `results/scale` shows how close). The threshold is found on the sample.

    The model keeps sums of products of columns and a sample of 5,000 rows of each kind. Both are
    saved with it, so a loaded model can continue. It takes up to 999 columns (of phi); sparse rows
    are made dense. Use `ShallowRAD` for settings that need all rows at once: lam="cv",
    penalty="l1", guarded risks, losses with kinks.

    Parameters
    ----------
    loss : str or Loss, default="modified_huber"
        Margin loss l: "squared", "modified_huber" or "logistic". It cannot change between batches.
    a, prior, intercept_scaling, scale
        As in `ShallowRAD`.
    lam : "theorem", "tight" or float, default="theorem"
        Regularisation, as in `ShallowRAD`. "theorem" is computed from all labelled anomalies, up to
        5,000; for more, a bound on their norm is used, which can only make lambda larger.
    risk : str, default="rad"
        Risk estimator without a guard: "pn", "pu", "nu", "pnu" or "rad".
    feature_map : None, "rbf", "nystroem", "poly" or transformer, default=None
        As in `ShallowRAD`. The map, and the mean and scale of its input, are fitted to the first
        batch, which should be a representative sample.
    tol : float, default=1e-6
        Tolerance of Newton's method on the relative gradient norm.
    max_iter : int, default=100
        Maximum number of iterations of Newton's method for a batch.
    random_state : int, RandomState or None, default=0
        Seed for feature maps and the sample. With a number, the same batches give the same model.

    Attributes
    ----------
    coef_, intercept_, a_, prior_, lambda_, objective_, weight_norm_, risk_parts_, offset_, solver_,
    n_iter_, criterion_, optimality_, converged_, feature_map_, n_features_in_, feature_names_in_ :
        As in `ShallowRAD`, for all rows so far.
    unlabelled_ : UnlabelledSummary or None
        Quantiles of the columns and scores of the unlabelled rows in the sample, for
        `riskad.drift_report`. None with a feature map, since the sample then keeps only phi(x).

    Examples
    --------
    >>> import numpy as np
    >>> from riskad import ShallowRAD, StreamingRAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> model = StreamingRAD("squared")
    >>> for batch in np.array_split(rng.permutation(1000), 10):
    ...     model = model.partial_fit(X[batch], y[batch])
    >>> bool(np.allclose(model.coef_, ShallowRAD("squared").fit(X, y).coef_, rtol=1e-10))
    True
    """

    _remedy_setting: ClassVar[str] = " with lam=0.1"

    _summary: Annotated[StreamSummary, Optional(Record(("StreamSummary",), {"shift": "weights"}))]

    lam: Annotated[Any, Either(Text(choices=SAFE_RULES), Number(0))]

    def __init__(
        self,
        loss: str | Loss = "modified_huber",
        *,
        a: float = 0.1,
        prior: float = 0.8,
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
        self.lam = lam
        self.risk = risk
        self.feature_map = feature_map
        self.intercept_scaling = intercept_scaling
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> StreamingRAD:
        """Fit to these rows only: earlier rows are dropped, and `partial_fit` adds to these.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Rows; finite numbers.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            A row of weight w counts as w rows, except for feature maps that learn from rows
            ("nystroem" and transformers). Beyond 5,000 rows of a kind this holds only for what
            squared loss fits, including lambda. The weights then affect which rows are drawn into
            the sample, and so the threshold.
        """
        with one_blas_thread():
            risk = self._check_settings()
            X, codes, weight = self._check_batch(X, y, sample_weight, first=True)
            rows = RowBlocks(X, codes, weight)
            check_kinds_present(risk, rows.counts(), rows.totals(), self._remedy_setting)
            self._add(X, codes, weight, risk, first=True)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, forget: float = 0.0
    ) -> StreamingRAD:
        """Add rows to those so far, and fit to all of them.

        There is no model until the batches have contained each kind of row that the risk needs. The
        first call needs at least two rows.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        forget : float in [0, 1), default=0
            Share of their weight that all earlier rows lose before these rows are added.
        """
        with one_blas_thread():
            risk = self._check_settings()
            first = not hasattr(self, "_summary")
            # A fitted model without sums: a compact one, whose rows were dropped.
            if first and hasattr(self, "coef_"):
                raise InputError(
                    "the rows of this stream were forgotten, and nothing can be added to it. "
                    "fit starts another."
                )
            # A batch may lack anomalies by chance: 0 and 1 are ambiguous only if no earlier batch
            # had any either, and the risk does not wait for them.
            has_anomalies = not first and self._summary.totals[ANOMALY] > 0
            if y is not None and (has_anomalies or ANOMALY in risk.kinds()):
                y = read_codes(y)
            X, codes, weight = self._check_batch(X, y, sample_weight, first)
            # Rows that left the sample are kept as parabolas of one loss.
            if not first and self._summary.loss not in ("", risk.loss.name):
                raise InputError(
                    f"the rows so far were summed up for loss={self._summary.loss!r}, got "
                    f"{risk.loss.name!r}. a, prior, risk and lam may change on the way, the loss "
                    "may not."
                )
            self._add(X, codes, weight, risk, first, forget)
        return self

    @property
    def _detector_tags(self) -> DetectorTags:
        return replace(
            super()._detector_tags, accepts_any_source=False, supports_guarded_risks=False
        )

    def _kept_rows(self) -> int:
        return super()._kept_rows() + (len(self._summary.y) if hasattr(self, "_summary") else 0)

    def _forget_rows(self) -> StreamingRAD:
        """Drop the sums and samples: the model scores as before, but takes no further batches."""
        super()._forget_rows()
        self.__dict__.pop("_summary", None)
        return self

    def _check_settings(self) -> Risk:
        """The bound risk, if its rows may arrive in batches."""
        risk = super()._check_settings()
        if not _can_stream(risk.loss):
            fitting = [loss.name for loss in LOSSES.values() if _can_stream(loss)]
            raise _needs_all_rows(f"loss={risk.loss.name!r}", fitting)
        if risk.guarded:
            unguarded = [name for name, other in RISKS.items() if not other.guarded]
            raise _needs_all_rows(f"risk={risk.name!r}", unguarded)
        if isinstance(self.lam, str) and self.lam not in SAFE_RULES:
            raise _needs_all_rows(f"lam={self.lam!r}", ["a number", *SAFE_RULES])
        self._check_lambda(SAFE_RULES)
        return risk

    def _check_batch(
        self, X: Any, y: Any, sample_weight: Any, first: bool
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        X, y, sample_weight = unpacked(X, y, sample_weight)
        if as_rows(X) is not None:
            raise InputError(
                f"StreamingRAD takes one batch in memory at a time, got a {type(X).__name__}. Give "
                "its rows batch by batch, or fit a ShallowRAD to all of them."
            )
        # Columns are those of the first batch: later ones must match it.
        X = self._check_rows(on_host_array(X), reset=first)
        self._check_finite(X)
        codes, weight = self._check_labels(X, y, sample_weight)
        return X, codes, np.ones(len(codes)) if weight is None else weight

    def _add(
        self,
        X: Any,
        codes: np.ndarray,
        weight: np.ndarray,
        risk: Risk,
        first: bool,
        forget: float = 0.0,
    ) -> None:
        """Add a batch and fit to all rows, or wait for kinds of row that have not arrived yet.

        The feature map is fitted to the first batch.
        """
        if first:
            rows = RowBlocks(X, codes, weight)
            mapped = self.feature_map is not None
            statistics = column_statistics(rows) if mapped and self.scale else None
            features = fit_features(self.feature_map, rows, statistics, self.scale, self._seed)
        else:
            features = self._features
        Z = X if features.feature_map is None else features.transform(X)
        q = Z.shape[1]
        if q > _MAX_COLUMNS:
            raise InputError(
                f"StreamingRAD keeps sums of products of columns, of {_MAX_COLUMNS} columns at "
                f"most, got {q:,}. Leave columns out, or fit a ShallowRAD to all rows."
            )
        earlier = StreamSummary.empty(q) if first else self._summary
        summary = earlier.decay(forget).add(to_dense(Z), codes, weight, self._seed)
        mean, scale = np.zeros(q), np.ones(q)
        if features.feature_map is None:
            if self.scale and summary.totals.any():
                mean, scale = summary.column_statistics()
            features = Features(None, mean, scale)
        if summary.missing(risk):
            # An old model would be one of other rows than the stream now holds.
            self.__dict__.pop("coef_", None)
            self.feature_map_ = features.feature_map
            self._mean, self._scale = features.mean, features.scale
            waiting = summary.rescale(mean, scale)
            # Without a model all scores are 0, and parabolas touch the loss there.
            self._summary = waiting.thin(lambda Z: np.zeros(len(Z)), risk.loss)
            return
        # Everything of the rows is in the summary: a batch of any size costs the same fit.
        problem = StreamProblem(summary, risk, mean, scale, float(self.intercept_scaling))
        lam = self.lam
        if isinstance(lam, str):
            # Computed again at each batch: a new anomaly may reach further than all before.
            kind, a, prior = theorem_terms(lam, risk, "Give lam as a number.")
            reach, tight = problem.measure_reach(kind), lam == "tight"
            lam = theorem_lambda(reach, risk.loss, a=a, prior=prior, tight=tight)
        solution = problem.solve(float(lam), self.tol, self.max_iter)
        if not solution.converged:
            warn_not_converged(solution, self.tol, self.max_iter)
        # Rows leave the sample only now, when there are scores at which their parabolas can touch.
        theta = solution.theta
        sample = problem.summary.thin(lambda Z: problem.scores(theta, Z), risk.loss)
        self._summary, scores = sample, problem.scores(theta, sample.X)
        offset = zero_one_threshold(risk, scores, sample.y, sample.sample_weights())
        weights, parts = problem.weights(theta), problem.risk_parts(theta)
        self._store(solution, features, float(lam), weights, offset, parts)
        if features.feature_map is None:
            rows = RowBlocks(sample.X, sample.y)
            self.unlabelled_ = summarise_unlabelled(rows, self._scores, self._seed)

    def __sklearn_is_fitted__(self) -> bool:
        if hasattr(self, "_summary") and not hasattr(self, "coef_"):
            missing = self._summary.missing(self._check_settings())
            raise NotFittedError(
                f"the {self.risk} risk needs {' and '.join(missing)} rows as well, of which "
                "partial_fit has seen none so far: there is no model yet. Labels are +1 normal, "
                "-1 anomaly, 0 unlabelled; riskad.parse_labels translates others."
            )
        return hasattr(self, "coef_")


def _needs_all_rows(setting: str, choices: list[str]) -> InputError:
    return InputError(
        f"StreamingRAD sees every row once, which {setting} does not allow. Choose "
        f"{', '.join(choices[:-1])} or {choices[-1]}, or fit a ShallowRAD to all rows."
    )
