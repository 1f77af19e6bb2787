"""Shared code of feature maps: a seed, a sample of rows, the median distance between rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from riskad.rows.table import check_numbers
from riskad.storage.fields import COUNT, NAMES, SEED, SIZE, Fields, Optional

__all__ = ["FeatureMap", "squared_distances"]

_DISTANCE_ROWS = 1000  # rows whose distances give the median


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Shared parts of the maps: a seed, a sample of rows, finite numbers in."""

    random_state: int | None

    _state_fields: ClassVar[Fields] = {
        "random_state": SEED,
        "n_features_in_": SIZE,
        "feature_names_in_": Optional(NAMES),
        "n_features_out_": COUNT,
    }

    def _check(self, X: Any, reset: bool) -> np.ndarray:
        return check_numbers(self, X, reset)

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.random_state or 0)

    def _places(self, n_rows: int, n_wanted: int) -> np.ndarray:
        """Positions of the rows to learn from: all, or as many as requested."""
        if n_rows <= n_wanted:
            return np.arange(n_rows)
        return np.sort(self._rng().choice(n_rows, n_wanted, replace=False))

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def _usual_squared_distance(self, X: np.ndarray) -> float:
        """The median squared distance between rows, of some if there are many."""
        return _median_squared_distance(X[self._places(len(X), _DISTANCE_ROWS)])


def _median_squared_distance(X: np.ndarray) -> float:
    from scipy.spatial.distance import pdist

    squared = pdist(X, "sqeuclidean")
    squared = squared[squared > 0]
    return float(np.median(squared)) if len(squared) else 1.0


def squared_distances(X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return squared distances of each row of X to each of `rows`, without checking them.

    >>> squared_distances(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 4.0]])).tolist()
    [[16.0], [25.0]]
    """
    D = X @ rows.T
    D *= -2
    D += np.einsum("ij,ij->i", X, X)[:, None]
    D += np.einsum("ij,ij->i", rows, rows)
    return np.maximum(D, 0, out=D)
