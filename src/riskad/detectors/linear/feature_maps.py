"""Feature maps phi: standardised columns, or the output of a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone

from riskad.core.checks import InputError, check_choice
from riskad.detectors import features
from riskad.detectors.features.maps import beside, kernels
from riskad.files.fields import POSITIVE, SIZE, Array, Record
from riskad.rows.arrays import GraphNumbers, places_of, to_dense
from riskad.rows.linear import ColumnStatistics
from riskad.rows.sources import MappedRows, RowBlocks, RowSource

# Features of "rbf" and "nystroem": more come closer to the kernel, at a cost that grows with them.
_N_COMPONENTS = 300
# A named feature map looks at the number of columns and at some rows; this many are enough.
_MAP_ROWS = 20_000
_FAR = 1e50  # standard deviations beyond which a feature map makes no difference


@dataclass(frozen=True, eq=False)
class RandomWaves:
    """sqrt(2 / q) cos(z W + t), whose products are near a Gaussian kernel ("rbf")."""

    weights: Annotated[np.ndarray, Array("f", ("columns", "waves"))]
    offsets: Annotated[np.ndarray, Array("f", ("waves",))]

    @classmethod
    def of(cls, Z: Any, seed: int) -> Self:
        from sklearn.kernel_approximation import RBFSampler

        # Standardised rows are about sqrt(2 d) apart: the kernel between two of them is then about
        # exp(-2).
        gamma = 1 / Z.shape[1]
        sampler = RBFSampler(gamma=gamma, n_components=_N_COMPONENTS, random_state=seed).fit(Z)
        return cls(sampler.random_weights_, sampler.random_offset_)

    @property
    def n_features_in_(self) -> int:
        return len(self.weights)

    @property
    def n_features_out_(self) -> int:
        return len(self.offsets)

    def transform(self, Z: Any) -> Any:
        q = len(self.offsets)
        # A vector, since onnxruntime would fuse a scalar into the next product in single precision.
        return np.cos(Z @ self.weights + self.offsets) * np.full(q, (2 / q) ** 0.5)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        return self.transform(GraphNumbers(graph, rows)).node


@dataclass(frozen=True, eq=False)
class KernelLandmarks:
    """exp(-gamma ||z - c||^2) N' for landmarks c among the rows ("nystroem")."""

    gamma: Annotated[float, POSITIVE]
    landmarks: Annotated[np.ndarray, Array("f", ("landmarks", "columns"))]
    normalization: Annotated[np.ndarray, Array("f", ("landmarks", "landmarks"))]

    @classmethod
    def of(cls, Z: Any, seed: int) -> Self:
        from sklearn.kernel_approximation import Nystroem

        size, gamma = min(_N_COMPONENTS, Z.shape[0]), 1 / Z.shape[1]
        fitted = Nystroem(gamma=gamma, n_components=size, random_state=seed).fit(Z)
        return cls(gamma, to_dense(fitted.components_), fitted.normalization_)

    @property
    def n_features_in_(self) -> int:
        return int(self.landmarks.shape[1])

    @property
    def n_features_out_(self) -> int:
        return len(self.landmarks)

    def kept_rows(self) -> int:
        return len(self.landmarks)

    def transform(self, Z: Any) -> np.ndarray:
        from sklearn.metrics.pairwise import rbf_kernel

        return np.asarray(rbf_kernel(Z, self.landmarks, gamma=self.gamma) @ self.normalization.T)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        return kernels(graph, rows, self.landmarks, [self.gamma], [self.normalization])


@dataclass(frozen=True, eq=False)
class ColumnProducts:
    """The columns, and the products of two of them ("poly")."""

    n_features_in_: Annotated[int, SIZE]

    @classmethod
    def of(cls, Z: Any, seed: int) -> Self:
        return cls(Z.shape[1])

    @property
    def n_features_out_(self) -> int:
        d = self.n_features_in_
        return d + d * (d + 1) // 2

    def transform(self, Z: Any) -> Any:
        """Columns and products of each row; sparse rows stay sparse."""
        from sklearn.preprocessing import PolynomialFeatures

        return PolynomialFeatures(degree=2, include_bias=False).fit_transform(Z)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        pairs = np.triu_indices(self.n_features_in_)
        left, right = (graph.node("Gather", rows, columns, axis=1) for columns in pairs)
        return beside(graph, [rows, graph.node("Mul", left, right)])


_MAPS: dict[str, Any] = {"rbf": RandomWaves, "nystroem": KernelLandmarks, "poly": ColumnProducts}
FEATURE_MAPS = tuple(_MAPS)
# Fields of model files; transformers of others are not stored.
UNFITTED_MAP = Record(features.__all__, fitted=False)
FITTED_MAP = Record(
    (*features.__all__, *(each.__name__ for each in _MAPS.values())),
    {"n_features_in_": "n_features_in_"},
)


@dataclass(frozen=True)
class Features:
    """phi(x): (x - mean) / scale, or the output of the fitted `feature_map`."""

    feature_map: Any
    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        """The features of a few rows, dense."""
        if self.feature_map is None:
            return (to_dense(X) - self.mean) / self.scale
        return to_dense(self.transform(X))

    def transform(self, X: Any) -> Any:
        return self.feature_map.transform(standardise(X, self.mean, self.scale))

    def of_rows(self, rows: RowSource) -> RowSource:
        """The mapped features of all rows, standardised block by block."""
        # Features of rows in memory are kept, others are computed again in each pass.
        if not isinstance(rows, RowBlocks):
            return MappedRows(rows, self, self(rows.first()[:1]).shape[1])
        parts = [self.transform(block.X) for block in rows]
        if sparse.issparse(parts[0]):
            X = sparse.vstack(parts, format="csr")
        else:
            X = np.concatenate([np.asarray(part, dtype=float) for part in parts])
        return RowBlocks(X, rows.y, rows.sample_weight)


def fit_features(
    feature_map: Any, rows: RowSource, statistics: ColumnStatistics | None, scale: bool, seed: int
) -> Features:
    """phi, fitted to the rows of a fit; `statistics` are needed with `scale`.

    Maps do not learn from rows without weight, nor use the weights of the others.
    """
    mean, spread = np.zeros(rows.n_features), np.ones(rows.n_features)
    if scale and statistics is not None:
        mean, spread = statistics.mean, statistics.scale
    if feature_map is None:
        return Features(None, mean, spread)
    by_name = isinstance(feature_map, str)
    if not by_name and not hasattr(feature_map, "transform"):
        raise InputError(
            f"feature_map must be None, one of {', '.join(FEATURE_MAPS)} or a transformer with fit "
            f"and transform, got {feature_map!r}."
        )
    Z = standardise(_rows_to_learn_from(rows, by_name, seed), mean, spread)
    if by_name:
        check_choice("feature_map", feature_map, _MAPS)
        return Features(_MAPS[feature_map].of(Z, seed), mean, spread)
    return Features(clone(feature_map).fit(Z), mean, spread)


def _rows_to_learn_from(rows: RowSource, by_name: bool, seed: int) -> Any:
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
    if by_name and X.shape[0] > _MAP_ROWS:
        return X[np.sort(rng.choice(X.shape[0], _MAP_ROWS, replace=False))]
    return X


def standardise(X: Any, mean: np.ndarray, scale: np.ndarray) -> Any:
    """(X - mean) / scale as a feature map sees it; sparse rows are scaled but not centred."""
    if sparse.issparse(X):
        scaled = X.tocsr().copy()
        scaled.sort_indices()  # "poly" assumes sorted indices
        scaled.data = _standardise_values(scaled.data, 0.0, scale[scaled.indices])
        return scaled
    return _standardise_values(X, mean, scale)


def _standardise_values(X: np.ndarray, mean: Any, scale: np.ndarray) -> np.ndarray:
    # Limited to +-1e50, beyond which products could overflow. Infinities of X itself remain, to be
    # refused.
    with np.errstate(invalid="ignore", over="ignore"):
        Z = (X - mean) / scale
        far = (np.abs(Z) > _FAR) & np.isfinite(X)
    return np.where(far, np.copysign(_FAR, Z), Z) if far.any() else Z
