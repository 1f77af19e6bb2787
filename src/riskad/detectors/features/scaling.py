"""Columns on one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from riskad.detectors.features.graph import clipped, standardised
from riskad.rows.table import check_numbers
from riskad.storage.fields import COUNT, NAMES, SIZE, Array, Fields, Optional, State, require

_LARGEST = 3.0  # bound on smoothly scaled values
_FARTHEST = 1e100  # whose square is still a number
_NORMAL_IQR = 1.349  # interquartile range of a normal distribution


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of the maps: finite numbers in, numbers out."""

    _state_fields: ClassVar[Fields] = {
        "n_features_in_": SIZE,
        "feature_names_in_": Optional(NAMES),
        "n_features_out_": COUNT,
    }

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """scikit-learn's `StandardScaler` without its checks, which are slow for a single row."""

    mean: np.ndarray
    scale: np.ndarray

    _state_fields: ClassVar[Fields] = {
        "mean": Array("f", ("columns",)),
        "scale": Array("f", ("columns",), low=np.nextafter(0, 1)),
    }

    @classmethod
    def of(cls, X: np.ndarray) -> Self:
        """Those of some rows; blanks (NaN) are left out, and a constant column has the scale 1."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(X)
        return cls(scaler.mean_, scaler.scale_)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.mean)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """(X - mean) / scale, for rows that were checked."""
        Z = X - self.mean.astype(X.dtype)
        Z /= self.scale.astype(X.dtype)
        return np.asarray(Z)


class SmoothScaler(FeatureMap):
    """Columns on one scale, with large values compressed smoothly.

    With m the median and s the interquartile range of a column, as a multiple of that of a normal
    distribution, z = (x - m) / s becomes z / sqrt(1 + (z / 3)^2), which is z near 0 and never
    beyond 3. So a few huge values neither set the scale of a column nor dominate distances. If most
    values of a column are the same, s is its standard deviation. Columns with a single value are
    dropped.

    Examples
    --------
    >>> SmoothScaler().fit_transform([[0.0], [1.0], [2.0], [3.0], [1e6]]).round(2).ravel()
    array([-1.23, -0.66,  0.  ,  0.66,  3.  ])
    """

    _state_fields: ClassVar[Fields] = {
        "median_": Array("f", ("n_features_in_",)),
        "scale_": Array("f", ("n_features_in_",), low=0),
        "kept_": Array("i", ("kept",), low=0),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        kept = state["kept_"]
        require(bool((kept < state["n_features_in_"]).all()), "kept_: no such column")
        require(bool((state["scale_"][kept] > 0).all()), "scale_: zero")
        require(len(kept) == state["n_features_out_"], "kept_: another number of columns")

    def fit(self, X: Any, y: Any = None) -> SmoothScaler:
        """Find m and s of each column; y is ignored."""
        X = check_numbers(self, X, reset=True)
        low, self.median_, high = np.percentile(X, [25, 50, 75], axis=0)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        self.scale_ = np.where(high > low, (high - low) / _NORMAL_IQR, X.std(axis=0))
        self.n_features_out_ = len(self.kept_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The kept columns, on their new scale."""
        check_is_fitted(self)
        X = check_numbers(self, X, reset=False)[:, self.kept_]
        z = (X - self.median_[self.kept_]) / self.scale_[self.kept_]
        z = np.clip(z, -_FARTHEST, _FARTHEST)
        return np.asarray(z / np.sqrt(1 + (z / _LARGEST) ** 2))

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the same columns in an ONNX graph."""
        X = graph.node("Gather", rows, self.kept_, axis=1)
        z = standardised(graph, X, self.median_[self.kept_], self.scale_[self.kept_])
        z = clipped(graph, z, _FARTHEST)
        thirds = graph.node("Div", z, np.array(_LARGEST))
        squares = graph.node("Add", graph.node("Mul", thirds, thirds), np.array(1.0))
        return str(graph.node("Div", z, graph.node("Sqrt", squares)))
