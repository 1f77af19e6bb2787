"""Feature maps phi: standardised columns, or the output of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from riskad.core.checks import InputError, lookup
from riskad.rows.arrays import places_of
from riskad.rows.linear import ColumnStatistics, sparse_to_dense
from riskad.rows.memory import RowBlocks
from riskad.rows.source import RowSource

__all__ = ["FEATURE_MAPS", "Features", "fit_features", "named_map", "standardise"]

_N_COMPONENTS = 300
# A named feature map looks at the number of columns and at some rows; this many are enough.
_MAP_ROWS = 20_000
_FAR = 1e50  # standard deviations beyond which a feature map makes no difference


def _rbf(n: int, d: int, seed: int) -> Any:
    from sklearn.kernel_approximation import RBFSampler

    return RBFSampler(gamma=1 / d, n_components=_N_COMPONENTS, random_state=seed)


def _nystroem(n: int, d: int, seed: int) -> Any:
    from sklearn.kernel_approximation import Nystroem

    return Nystroem(gamma=1 / d, n_components=min(_N_COMPONENTS, n), random_state=seed)


def _poly(n: int, d: int, seed: int) -> Any:
    from sklearn.preprocessing import PolynomialFeatures

    return PolynomialFeatures(degree=2, include_bias=False)


# Makers of unfitted transformers for n rows and d columns.
_MAPS: dict[str, Callable[[int, int, int], Any]] = {
    "rbf": _rbf,
    "nystroem": _nystroem,
    "poly": _poly,
}
FEATURE_MAPS = tuple(_MAPS)
"""Names of feature maps."""


@dataclass(frozen=True)
class Features:
    """phi(x): (x - mean) / scale, or the output of the fitted `feature_map`.

    It can be sent to other processes.
    """

    feature_map: Any
    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        """The features of a few rows, dense."""
        if self.feature_map is None:
            return (sparse_to_dense(X) - self.mean) / self.scale
        return sparse_to_dense(self.transform(X))

    def transform(self, X: Any) -> Any:
        """The output of the feature map for some rows; sparse if the map gives sparse rows."""
        return self.feature_map.transform(standardise(X, self.mean, self.scale))

    def store(self, detector: Any) -> None:
        """Set `feature_map_`, `_mean` and `_scale`."""
        detector.feature_map_ = self.feature_map
        detector._mean, detector._scale = self.mean, self.scale

    def of_rows(self, rows: RowSource) -> RowSource:
        """The mapped features of all rows, standardised block by block.

        Features of rows in memory are kept, others are computed again in each pass.
        """
        if not isinstance(rows, RowBlocks):
            return rows.behind(self, self(rows.first()[:1]).shape[1])
        parts = [self.transform(block.X) for block in rows]
        if sparse.issparse(parts[0]):
            X = sparse.vstack(parts, format="csr")
        else:
            X = np.concatenate([np.asarray(part, dtype=float) for part in parts])
        return RowBlocks(X, rows.y, rows.sample_weight)


def fit_features(
    feature_map: Any, rows: RowSource, statistics: ColumnStatistics | None, scale: bool, seed: int
) -> Features:
    """phi, fitted to the rows of a fit.

    Parameters
    ----------
    feature_map : None, str or transformer
        A name of `FEATURE_MAPS`, or anything with fit and transform, which is cloned.
    rows : RowSource
        A named map learns from a sample if there are many rows, and a transformer from all rows in
        memory. Neither learns from rows without weight, nor uses the weights of the others.
    statistics : ColumnStatistics, optional
        Statistics of these rows; needed with `scale`.
    scale : bool
        Whether phi standardises columns.
    seed : int
        Seed of the sample, and of the random features of a named map.

    Returns
    -------
    Features
    """
    mean, spread = np.zeros(rows.n_features), np.ones(rows.n_features)
    if scale and statistics is not None:
        mean, spread = statistics.mean, statistics.scale
    if feature_map is None:
        return Features(None, mean, spread)
    named = isinstance(feature_map, str)
    if not named and not hasattr(feature_map, "transform"):
        raise InputError(
            f"feature_map must be None, one of {', '.join(FEATURE_MAPS)} or a transformer with fit "
            f"and transform, got {feature_map!r}."
        )
    X = _rows_to_learn_from(rows, named, seed)
    n, d = X.shape
    unfitted = named_map(feature_map, n, d, seed) if named else clone(feature_map)
    return Features(unfitted.fit(standardise(X, mean, spread)), mean, spread)


def _rows_to_learn_from(rows: RowSource, named: bool, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if not isinstance(rows, RowBlocks):
        return rows.sample(_MAP_ROWS, rows.totals(), rng).X
    if not isinstance(rows.X, np.ndarray) and not rows.sparse:
        raise InputError(
            "feature_map takes rows in the computer's own memory, and X is a torch tensor. "
            "Transform the tensor before fit, or give the rows as a NumPy array."
        )
    X = rows.X
    if rows.sample_weight is not None and not (rows.sample_weight > 0).all():
        X = X[places_of(rows.sample_weight > 0)]
    if named and X.shape[0] > _MAP_ROWS:
        return X[np.sort(rng.choice(X.shape[0], _MAP_ROWS, replace=False))]
    return X


def named_map(name: str, n_rows: int, n_features: int, seed: int) -> Any:
    """The unfitted transformer of a name of `FEATURE_MAPS`, for this many rows and columns."""
    return lookup("feature_map", name, _MAPS)(n_rows, n_features, seed)


def standardise(X: Any, mean: np.ndarray, scale: np.ndarray) -> Any:
    """(X - mean) / scale as a feature map sees it; sparse rows are scaled but not centred."""
    if sparse.issparse(X):
        scaled = X.tocsr().copy()
        scaled.sort_indices()  # "poly" assumes sorted indices
        scaled.data = _standardise_values(scaled.data, 0.0, scale[scaled.indices])
        return scaled
    return _standardise_values(X, mean, scale)


def _standardise_values(X: np.ndarray, mean: Any, scale: np.ndarray) -> np.ndarray:
    """(X - mean) / scale, limited to +-1e50, beyond which products of it could overflow.

    Infinities of X itself remain, to be refused.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        Z = (X - mean) / scale
        far = (np.abs(Z) > _FAR) & np.isfinite(X)
    return np.where(far, np.copysign(_FAR, Z), Z) if far.any() else Z
