"""The interface of all detectors: labels in, scores out, with fixed directions.

`score_samples` and `decision_function` are high for normal rows and `predict` gives +1 or -1, as
in scikit-learn's outlier detectors. `anomaly_score` is high for anomalies: the only change of sign
in the package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from riskad.core.checks import InputError, enumerate_names
from riskad.core.labels import ANOMALY, NORMAL, check_codes, check_rows_match
from riskad.core.losses import namespace
from riskad.decisions.calibration import Calibration
from riskad.decisions.conformal import FdrSelection, select_at_fdr
from riskad.decisions.drift import UnlabelledSummary
from riskad.decisions.thresholds import THRESHOLD_TYPES, RiskZero, Threshold, parse_threshold
from riskad.detectors.description import SelfDescribing
from riskad.files.fields import (
    LARGEST_SEED,
    NAMES,
    NUMBER,
    SEED,
    Either,
    Maybe,
    Number,
    Optional,
    Record,
)
from riskad.metrics.search import labelled_auc
from riskad.rows.arrays import on_host_array, to_numpy
from riskad.rows.sources import as_rows, sampled, unpacked
from riskad.rows.table import check_numbers

RandomState: TypeAlias = int | np.random.RandomState | None
"""As in scikit-learn; the default, 0, gives the same model for the same data."""

MOST_SAMPLED = 200_000
"""Rows of a source that are sampled for detectors that need their rows in memory."""
_SUMMARY = Either(
    *(Record(("UnlabelledSummary",), {"n_columns": n}) for n in (0, "n_features_in_"))
)


class Detector(SelfDescribing, OutlierMixin, BaseEstimator, ABC):
    """Base class of detectors that learn from y in {+1 normal, -1 anomaly, 0 unlabelled}.

    A subclass implements `fit`, which sets `offset_`, and `_scores`, and overrides those methods of
    `SelfDescribing` whose defaults are wrong for it. `riskad.calibrate` sets `calibration_`, from
    which thresholds, p-values and probabilities are computed; `riskad.decisions.drift` compares new
    rows with `unlabelled_`. A new fit removes both.
    """

    random_state: Annotated[RandomState, Optional(SEED)]
    offset_: Annotated[float, NUMBER]
    calibration_: Annotated[Calibration, Optional(Record(("Calibration",)))]
    unlabelled_: Annotated[UnlabelledSummary | None, Optional(Maybe(_SUMMARY))]
    threshold_: Annotated[Threshold, Optional(Record(THRESHOLD_TYPES))] = RiskZero()

    n_features_in_: Annotated[int, Number(1, 10**8, whole=True)]
    feature_names_in_: Annotated[Any, Optional(NAMES)]

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit to X and y, then predict +1 (normal) or -1 (anomaly) for the same rows."""
        return self.fit(X, y, **fit_params).predict(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return scores g(x): the higher, the more normal."""
        if not hasattr(self, "offset_"):  # of one row, the check alone would take longest
            check_is_fitted(self)
        # An array is no source, and the score of one row need not wait for the search.
        if type(X) is not np.ndarray:
            X, _, _ = unpacked(X)
            if (rows := as_rows(X)) is not None:
                self._check_columns(rows.feature_names, rows.n_features, reset=False)
                return checked_scores(rows.each(self._scores))
        return checked_scores(self._scores(self._check_rows(X, reset=False)))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return `score_samples` minus the threshold: negative for anomalies."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return +1 for rows judged normal, -1 for anomalies."""
        decisions = self.decision_function(X)
        # A row exactly on the threshold is normal, as in scikit-learn.
        return namespace(decisions).where(decisions >= 0, NORMAL, ANOMALY)

    def anomaly_score(self, X: Any) -> np.ndarray:
        """Return minus `score_samples`: the higher, the more anomalous."""
        return -self.score_samples(X)

    def _anomaly_score_and_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return `anomaly_score` and novelty, in the time of one; None if it has no novelty."""
        return -self.score_samples(X), None

    def set_threshold(self, rule: Threshold | str) -> Self:
        """Decide by another rule of `riskad.decisions.thresholds`, without another fit.

        A string has the form used on the command line, for instance "false-alarms:0.01".
        """
        check_is_fitted(self)
        rule = parse_threshold(rule) if isinstance(rule, str) else rule
        if not isinstance(rule, Threshold):
            raise InputError(
                "a threshold is a rule of riskad.decisions.thresholds, or its spelling, such as "
                f"'false-alarms:0.01'; got {rule!r}. To set a number yourself, compare "
                "anomaly_score(X) with it."
            )
        # Without a calibration `offset_` is still that of the fit, which `RiskZero` asks for.
        if not isinstance(rule, RiskZero) or hasattr(self, "calibration_"):
            self.offset_ = -self._calibrated("thresholds other than 'risk'").threshold(rule)
        self.threshold_ = rule
        return self

    def p_values(self, X: Any) -> np.ndarray:
        """Conformal p-values, valid for normal rows that are like the labelled ones."""
        return self._calibrated("p-values").p_values(self.anomaly_score(X))

    def select_anomalies(self, X: Any, fdr: float = 0.1) -> FdrSelection:
        """Select rows of which on average at most the share `fdr` is normal.

        The result says, too, what the labelled normal rows allow (`riskad.decisions.conformal`).
        """
        return select_at_fdr(self.p_values(X), fdr, len(self.calibration_.normals))

    def anomaly_probability(self, X: Any) -> np.ndarray:
        """Return the probability of being an anomaly, at the anomaly rate of unlabelled rows."""
        return self._calibrated("probabilities").anomaly_probability(self.anomaly_score(X))

    @property
    def classes_(self) -> np.ndarray:
        """The kinds of row that are told apart, as codes in the order of `predict_proba`."""
        check_is_fitted(self)
        return np.array([ANOMALY, NORMAL])

    @available_if(  # type: ignore[untyped-decorator]
        lambda self: self._calibrated("probabilities").line
    )
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of being an anomaly and of being normal, in two columns.

        The method exists once the detector is calibrated: `AutoRAD` by `fit`, others by
        `riskad.calibrate`.
        """
        probability = self.anomaly_probability(X)
        return np.column_stack([probability, 1 - probability])

    def score(self, X: Any, y: Any) -> float:
        """Return the AUC of labelled anomalies against labelled normal rows; 0 is ignored."""
        return labelled_auc(self, X, y)

    def _calibrated(self, what: str) -> Calibration:
        check_is_fitted(self)
        if not hasattr(self, "calibration_"):
            raise InputError(
                f"{what} rest on labelled rows that fits have not seen: call "
                "riskad.calibrate(model, X, y) with the rows of the fit first. It fits the model a "
                "few times more."
            )
        return self.calibration_

    @abstractmethod
    def _scores(self, X: Any) -> np.ndarray:
        """Scores of validated rows."""

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix; finiteness is checked where the rows are read."""
        return check_numbers(self, X, reset, accept_sparse="csr", **array_checks(reset))

    @property
    def _names(self) -> np.ndarray | None:
        return getattr(self, "feature_names_in_", None)

    def _check_finite(self, X: Any, missing: bool = False) -> None:
        """Refuse infinities and, unless `missing`, NaN, and say where the first one is."""
        values = X.data if sparse.issparse(X) else X
        if np.isinf(values).any() if missing else not np.isfinite(values).all():
            refuse_non_finite(X, self._names, missing)

    def _check_columns(self, names: Sequence[str] | None, n_columns: int, reset: bool) -> None:
        """Remember the columns of a source or a `Table`, or compare them with those of the fit."""
        if reset:
            self.n_features_in_ = n_columns
            # A fit to rows without names must not keep those of an earlier fit.
            self.__dict__.pop("feature_names_in_", None)
            if names is not None:
                self.feature_names_in_ = np.asarray(names, dtype=object)
            return
        fitted_names = self._names
        if names is not None and fitted_names is not None and list(names) != list(fitted_names):
            raise InputError(
                f"the rows have columns {enumerate_names(names)}, and the model was fitted to "
                f"{enumerate_names(fitted_names)}. Give the same columns in the same order."
            )
        if n_columns != self.n_features_in_:
            raise InputError(
                f"the rows have {n_columns} columns, and the model was fitted to "
                f"{self.n_features_in_}."
            )

    def _check_training(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Rows in memory with their codes and weights; from a source, a sample of its rows."""
        # Rows in memory pass the checks of a table, whatever wraps them.
        X, y, sample_weight = unpacked(X, y, sample_weight)
        source = as_rows(X, y, sample_weight)
        if source is not None:
            # The same rows for every detector and seed, so that results can be compared.
            rows = sampled(source, MOST_SAMPLED, seed=0)
            X, y, sample_weight = rows.X, rows.y, rows.sample_weight
        X = self._check_rows(X, reset=True)
        codes, weight = self._check_labels(X, y, sample_weight)
        if source is not None:
            self._check_columns(source.feature_names, source.n_features, reset=True)
        if weight is not None and (weight > 0).any():
            # Only ratios matter. Equal weights change nothing: None spares products with them.
            alike = (weight == weight[0]).all()
            weight = None if alike else weight / weight[weight > 0].mean()
        return X, codes, weight

    def _check_labels(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Codes and weights for the rows of X, at the start of a fit."""
        self._forget_decisions()
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Give "
                "one label for each row: +1 normal, -1 anomaly, 0 unlabelled."
            )
        # Before the codes: a wrong length of weights is told by its own name.
        weight = check_weight(X, sample_weight)
        codes = check_codes(y)
        check_rows_match(X, codes)
        return codes, weight

    def _forget_decisions(self) -> None:
        for name in ("calibration_", "threshold_", "unlabelled_", "_drawn_seed"):
            self.__dict__.pop(name, None)

    @property
    def _seed(self) -> int:
        """`random_state` as a number; None or a generator draws one for each fit."""
        seed = self.random_state
        if isinstance(seed, Integral) and not isinstance(seed, bool) and 0 <= seed <= LARGEST_SEED:
            return int(seed)
        if seed is not None and not isinstance(seed, np.random.RandomState):
            raise InputError(
                f"random_state must be None, a numpy.random.RandomState or a whole number from 0 "
                f"to {LARGEST_SEED:,}, got {seed!r}. A number gives the same model for the same "
                "data."
            )
        # Drawn once for a fit: its parts and its refits must agree on the seed.
        if not hasattr(self, "_drawn_seed"):
            self._drawn_seed = int(check_random_state(seed).randint(2**31 - 1))
        return self._drawn_seed

    def __getstate__(self) -> dict[str, Any]:
        # A seed that was drawn belongs to one fit, and a callback is code.
        state = {**super().__getstate__()}
        state.pop("_drawn_seed", None)
        return state | ({"callback": None} if "callback" in state else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


def checked_scores(scores: np.ndarray) -> np.ndarray:
    """Return the scores if none is NaN, which would silently be neither normal nor an anomaly."""
    # False for NaN, too, in one pass and without a copy on a device.
    if not bool((abs(scores) < np.inf).all()):
        bad = ~np.isfinite(to_numpy(scores))
        raise InputError(
            f"the scores of {int(bad.sum()):,} rows are not finite, the first in row "
            f"{int(np.argmax(bad))}: its values, or the weights of the model, are too large to "
            "compute with. Rescale the columns; if the model comes from a file, fit it again."
        )
    return scores


def check_weight(X: Any, sample_weight: Any) -> np.ndarray | None:
    """Weights of the rows of X as doubles; none may be negative."""
    if sample_weight is None:
        return None
    weight = on_host_array(sample_weight)
    try:
        return _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
    except ValueError as error:
        raise InputError(
            f"sample_weight must hold one number for each row, 0 or more: {error}"
        ) from error


def array_checks(reset: bool) -> dict[str, Any]:
    """Options of scikit-learn's checks; the place of NaN is found where rows are read."""
    return {"ensure_all_finite": False, "ensure_min_samples": 2 if reset else 1}


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse a parameter that is not a whole number, or below the least."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {value!r}.")


def refuse_non_finite(X: Any, names: np.ndarray | None, missing: bool = False) -> None:
    """Report where the first NaN or infinity of X is; with `missing`, NaN is allowed."""
    values = X.data if sparse.issparse(X) else X
    # Only now, when an error is certain: a fit does not pay for finding the place.
    bad = np.isinf(values) if missing else ~np.isfinite(values)
    if not bad.any():
        raise InputError(
            "X has values so large that sums over rows overflow to infinity; rescale its columns."
        )
    if sparse.issparse(X):
        position = X.tocoo()
        entry = int(np.argmax(bad))
        row, column = int(position.row[entry]), int(position.col[entry])
    else:
        row, column = (int(i) for i in np.argwhere(bad)[0])
    value = X[row, column]
    what = "a missing value (NaN)" if np.isnan(value) else "an infinity (inf)"
    where = f"column {column}" if names is None else f"column {names[column]!r}"
    filled = "" if missing else " and fill these"
    remedy = (
        "Fill gaps first, for example with make_pipeline(SimpleImputer(), ...); riskad.fit_table "
        "does so by itself."
        if np.isnan(value)
        else f"Replace infinities by NaN{filled}, or by a large number."
    )
    count = int(bad.sum())
    raise InputError(
        f"Input X contains {what}: the first of {count:,} is in row {row}, {where}. {remedy}"
    )
