"""Columns on one scale, and what is learned from all rows on it: components, kernels, outliers.

Each map also adds itself to an ONNX graph, in doubles as in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.detectors.tree_ensemble import Trees
from riskad.detectors.tree_growth import grow
from riskad.files import fields
from riskad.files.fields import Array, State, require
from riskad.rows.arrays import GraphNumbers
from riskad.rows.table import check_numbers

_LARGEST = 3.0  # bound on smoothly scaled values
_FARTHEST = 1e100  # whose square is still a number
_NORMAL_IQR = 1.349  # interquartile range of a normal distribution
_MOST_COMPONENTS = 20
_FEW_COLUMNS = 600  # up to here principal components are computed from the covariance
_LANDMARKS, _LANDMARK_ROWS = 200, 20_000  # and rows from which they are chosen
_MEDIAN_ROWS = 1_000  # rows whose distances give the median
_NEIGHBOUR, _NEIGHBOUR_ROWS = 10, 2_000  # whose distance counts, among so many rows
_MANY = 32  # rows from which a search structure is worth its cost
_TREES, _ISOLATED = 100, 256  # of the isolation forest, and rows that each tree isolates
_MOST_DEVIATIONS = 5.0  # standard deviations at which outlier scores are clipped


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of the maps: finite numbers in, numbers out."""

    n_features_in_: Annotated[int, fields.SIZE]
    feature_names_in_: Annotated[Any, fields.Optional(fields.NAMES)]
    n_features_out_: Annotated[int, fields.COUNT]

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """scikit-learn's `StandardScaler` without its checks, which are slow for a single row."""

    mean: Annotated[np.ndarray, Array("f", ("columns",))]
    scale: Annotated[np.ndarray, Array("f", ("columns",), low=np.nextafter(0, 1))]

    @classmethod
    def of(cls, X: np.ndarray) -> Self:
        """Those of some rows; blanks (NaN) are left out, and a constant column has the scale 1."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(X)
        return cls(scaler.mean_, scaler.scale_)

    @property
    def n_features_in_(self) -> int:
        return len(self.mean)

    def transform(self, X: np.ndarray) -> np.ndarray:
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

    median_: Annotated[np.ndarray, Array("f", ("n_features_in_",))]
    scale_: Annotated[np.ndarray, Array("f", ("n_features_in_",), low=0)]
    kept_: Annotated[np.ndarray, Array("i", ("n_features_out_",), low=0, below="n_features_in_")]

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        require(bool((state["scale_"][state["kept_"]] > 0).all()), "scale_: zero")

    def fit(self, X: Any, y: Any = None) -> SmoothScaler:
        X = check_numbers(self, X, reset=True)
        low, self.median_, high = np.percentile(X, [25, 50, 75], axis=0)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        # Quartiles are equal if more than half of the values are.
        self.scale_ = np.where(high > low, (high - low) / _NORMAL_IQR, X.std(axis=0))
        self.n_features_out_ = len(self.kept_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The kept columns, on their new scale."""
        check_is_fitted(self)
        return np.asarray(self._smooth(check_numbers(self, X, reset=False)))

    def _smooth(self, X: Any) -> Any:
        columns = self.kept_
        z = np.clip(
            (X[:, columns] - self.median_[columns]) / self.scale_[columns], -_FARTHEST, _FARTHEST
        )
        thirds = z / _LARGEST
        return z / np.sqrt(1 + thirds * thirds)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        return self._smooth(GraphNumbers(graph, rows)).node


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """(x - mean) W', with a principal direction in each row of W: the arrays of a fitted PCA."""

    mean: Annotated[np.ndarray, Array("f", ("columns",))]
    components: Annotated[np.ndarray, Array("f", ("components", "columns"))]

    @classmethod
    def fit_transform(cls, X: np.ndarray, seed: int) -> tuple[Self, np.ndarray]:
        """Learn at most 20 leading components, and return those of the rows, too."""
        from sklearn.decomposition import PCA

        solver = "covariance_eigh" if X.shape[1] <= _FEW_COLUMNS else "randomized"
        pca = PCA(min(_MOST_COMPONENTS, *X.shape), svd_solver=solver, random_state=seed)
        components = np.asarray(pca.fit_transform(X))
        return cls(pca.mean_, pca.components_), components

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.mean), len(self.components)

    def transform(self, X: Any) -> Any:
        W = self.components.T
        return X @ W - self.mean[None] @ W

    def onnx_rows(self, graph: Any, rows: str) -> str:
        return self.transform(GraphNumbers(graph, rows)).node


@dataclass(frozen=True, eq=False)
class GaussianKernels:
    r"""Features whose inner products are near those of Gaussian kernels of several widths.

    With s^2 the median squared distance between rows, kernel k is exp(-||x - x'||^2 / (w_k s^2)),
    each approximated from landmarks among the rows (Nystroem). Fitting s makes the map independent
    of the units and of the number of columns. Rows have norm 1 or a little less.
    """

    rows: Annotated[np.ndarray, Array("f", ("landmarks", "columns"))]  # the landmarks
    # For each width 1 / (w_k s^2), and the normalization of kernels between a row and landmarks.
    gammas: Annotated[np.ndarray, Array("f", ("widths",), low=np.nextafter(0, 1))]
    normalizations: Annotated[np.ndarray, Array("f", ("widths", "landmarks", "landmarks"))]

    @classmethod
    def fit_transform(
        cls, X: np.ndarray, seed: int, widths: Sequence[float]
    ) -> tuple[Self, np.ndarray]:
        """Find the median distance and at most 200 landmarks, and return the features of rows."""
        from sklearn.kernel_approximation import Nystroem

        if not len(widths) or min(widths) <= 0:
            raise InputError(f"widths must be numbers > 0, got {widths!r}.")
        rows = X[_some_places(len(X), _LANDMARK_ROWS, seed)]
        median = _median_squared_distance(rows, seed)
        gammas = np.array([1 / (w * median) for w in widths])
        settings = {"n_components": min(_LANDMARKS, len(rows)), "random_state": seed}
        maps = [Nystroem(gamma=gamma, **settings).fit(rows) for gamma in gammas]
        # With one seed the landmarks are those of all widths.
        normalizations = np.stack([each.normalization_ for each in maps])
        fitted = cls(maps[0].components_, gammas, normalizations)
        return fitted, fitted.transform(X)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[1], len(self.rows) * len(self.gammas)

    def transform(self, X: np.ndarray) -> np.ndarray:
        features = np.empty((len(X), self.shape[1]))
        for normalization, span, K in self._kernels(X):
            features[:, span] = K @ normalization.T
        features /= len(self.gammas) ** 0.5
        return features

    def products(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return `transform(X) @ weights` without the features."""
        # The kernels of a width are K N', with N the normalisation of its landmarks: K (N' W) has
        # as many columns as W, and N' W is computed once for all rows.
        total = np.zeros((len(X), weights.shape[1]))
        for normalization, span, K in self._kernels(X):
            total += K @ (normalization.T @ weights[span])
        total /= len(self.gammas) ** 0.5
        return total

    def _kernels(self, X: np.ndarray) -> Iterator[tuple[np.ndarray, slice, np.ndarray]]:
        """Each width's normalization, its place among the features, and exp(-gamma D)."""
        m, squared = len(self.rows), _squared_distances(X, self.rows)
        last, K = 0.0, np.empty(0)
        for i in np.argsort(self.gammas, kind="stable"):
            gamma = float(self.gammas[i])
            # Half the width: squaring the last kernel saves an exponential.
            K = K * K if gamma == 2 * last else np.exp(-gamma * squared)
            last = gamma
            yield self.normalizations[i], slice(int(i * m), int((i + 1) * m)), K

    def onnx_rows(self, graph: Any, rows: str) -> str:
        share = len(self.gammas) ** -0.5
        return kernels(graph, rows, self.rows, self.gammas, self.normalizations * share)


@dataclass(frozen=True, eq=False)
class OutlierScores:
    """Two unsupervised outlier scores: of an isolation forest, and a log distance.

    The first finds rows that few cuts separate from the rest, the second, the log distance to the
    tenth neighbour among at most 2,000 rows, rows in sparse regions. Both are standardised over the
    training rows and clipped at five standard deviations.
    """

    rows: Annotated[np.ndarray, Array("f", ("rows", "columns"), nonempty=True)]
    trees: Annotated[Trees, fields.Record(("Trees",), {"n_features": "columns"})]
    # Mean length of a path in a tree of random splits.
    path_length: Annotated[float, fields.POSITIVE]
    # Added to distances before the logarithm: copies of a row are at distance 0.
    floor: Annotated[float, fields.POSITIVE]
    mean: Annotated[np.ndarray, Array("f", (2,))]
    scale: Annotated[np.ndarray, Array("f", (2,), low=np.nextafter(0, 1))]

    @classmethod
    def fit_transform(cls, X: np.ndarray, seed: int) -> tuple[Self, np.ndarray]:
        """Learn both scores, and return those of the rows, each without itself."""
        places = _some_places(len(X), _NEIGHBOUR_ROWS, seed)
        trees, path_length = _isolation_trees(X, np.random.default_rng(seed))
        # A thousandth of a usual distance: copies are close, but not infinitely so on a log scale.
        floor = 1e-3 * _median_squared_distance(X, seed) ** 0.5
        fitted = cls(X[places], trees, path_length, floor, mean=np.zeros(2), scale=np.ones(2))
        raw = fitted._raw(X, leave_out=np.isin(np.arange(len(X)), places))
        # A constant score has the scale 1e-12, not 0: it becomes 0.
        fitted = replace(fitted, mean=raw.mean(axis=0), scale=raw.std(axis=0) + 1e-12)
        return fitted, fitted._standardised(raw)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[1], len(self.mean)

    def transform(self, X: np.ndarray) -> np.ndarray:
        return self._standardised(self._raw(X))

    def _raw(self, X: np.ndarray, leave_out: np.ndarray | None = None) -> np.ndarray:
        distance = _neighbour_distances(X, self.rows, _NEIGHBOUR, leave_out)
        isolation = 2 ** (-self.trees.mean(X) / self.path_length)
        return np.stack([isolation, np.log(distance + self.floor)], axis=1)

    def _standardised(self, raw: Any) -> Any:
        return np.clip((raw - self.mean) / self.scale, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        # One factor for the base 2, the mean over the trees and the mean length of a path.
        rate = -np.log(2) / self.path_length / self.trees.n_trees
        paths = graph.node("Reshape", self.trees.onnx(graph, rows), np.array([-1, 1]))
        isolation = graph.node("Exp", graph.node("Mul", paths, np.array(rate)))
        # log(d + floor), d the distance to the tenth neighbour. The nearest rows r are those with
        # the smallest |r|^2 - 2 <x, r>, one product of matrices. The distances to them are computed
        # from differences, so that a row among them is at distance 0.
        norms, k = np.einsum("ij,ij->i", self.rows, self.rows), min(_NEIGHBOUR, len(self.rows))
        ranks = graph.node("Gemm", rows, self.rows, norms, alpha=-2.0, transB=1)
        _, nearest = graph.several("TopK", 2, ranks, np.array([k]), largest=0, sorted=0)
        near = graph.node("Gather", self.rows, nearest)
        away = graph.node("Sub", near, graph.node("Unsqueeze", rows, np.array([1])))
        squares = graph.node("ReduceSumSquare", away, np.array([2]), keepdims=0)
        d = graph.node("Sqrt", graph.node("ReduceMax", squares, np.array([1]), keepdims=1))
        away = graph.node("Log", graph.node("Add", d, np.array(self.floor)))
        return self._standardised(GraphNumbers(graph, beside(graph, [isolation, away]))).node


def _isolation_trees(X: np.ndarray, rng: np.random.Generator) -> tuple[Trees, float]:
    """Trees that isolate rows by random splits, and the mean length of their paths.

    The value of a leaf is the length of the path to it, and on to each of its rows.
    """
    size = min(_ISOLATED, len(X))
    places = np.stack([rng.choice(len(X), size, replace=False) for _ in range(_TREES)])
    # Splits are random: all targets differ, and one column is tried. A tree ends at the depth at
    # which halving would isolate each row; `_average_path_length` adds the rest.
    growth = grow(
        X,
        np.arange(len(X)),
        np.ones(len(X)),
        places,
        max_features=1,
        max_depth=np.ceil(np.log2(max(size, 2))),
        seed=int(rng.integers(2**31)),
    )
    lengths = growth.depth + _average_path_length(growth.n_samples)
    # A single row is isolated from the start: any positive length shows this.
    mean_length = float(_average_path_length(np.array([size]))[0]) or 1.0
    return replace(growth.trees, value=lengths), mean_length


def _average_path_length(n: np.ndarray) -> np.ndarray:
    """Mean length of a path to one of n rows, in a tree that isolates each by random splits."""
    # For one or two rows the formula has no value; those are written out below.
    rows = np.maximum(n, 3).astype(float)
    of_many = 2 * (np.log(rows - 1) + np.euler_gamma) - 2 * (rows - 1) / rows
    return np.where(n > 2, of_many, np.where(n == 2, 1.0, 0.0))


def _some_places(n_rows: int, most: int, seed: int) -> np.ndarray:
    """Positions of all rows, or of at most so many that are drawn at random."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, most, replace=False))


def _median_squared_distance(X: np.ndarray, seed: int) -> float:
    """The median over pairs of rows that differ, of some rows if there are many."""
    from scipy.spatial.distance import pdist

    squared = pdist(X[_some_places(len(X), _MEDIAN_ROWS, seed)], "sqeuclidean")
    # In tables of few levels most pairs may be equal, and their median 0.
    squared = squared[squared > 0]
    return float(np.median(squared)) if len(squared) else 1.0


def _squared_distances(X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # |x|^2 - 2 x r + |r|^2 in place: one product of matrices, and no second array of its size.
    D = X @ rows.T
    D *= -2
    D += np.einsum("ij,ij->i", X, X)[:, None]
    D += np.einsum("ij,ij->i", rows, rows)
    # Rounding can make the distance of equal rows negative.
    return np.maximum(D, 0, out=D)


def _neighbour_distances(
    X: np.ndarray, rows: np.ndarray, k: int, leave_out: np.ndarray | None
) -> np.ndarray:
    """Distance of each row of X to its k-th neighbour among `rows`, or the last if they are fewer.

    Rows of X marked in `leave_out` are among them: their nearest one, themselves, does not count.
    """
    size = min(k + 1, len(rows))
    if len(X) >= _MANY:
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(n_neighbors=size, algorithm="brute").fit(rows)
        places = np.asarray(search.kneighbors(X, return_distance=False))
    else:  # for few rows, checking the stored ones would take longer than the distances
        places = np.argpartition(_squared_distances(X, rows), size - 1, axis=1)[:, :size]
    # A product of matrices finds the rows, but its distances have an error near zero. Those from
    # differences are exactly 0 for a row that is among them, for any number of rows at a time.
    away = rows[places] - X[:, None]
    nearest = np.sqrt(np.sort(np.einsum("nkd,nkd->nk", away, away), axis=1))
    distance = nearest[:, min(k, size) - 1]
    if leave_out is None or size == 1:
        return np.asarray(distance)
    return np.where(leave_out, nearest[:, min(k, size - 1)], distance)


# --- nodes of an ONNX graph ----------------------------------------------------------------
# Nothing here is a scalar next to a product of matrices: onnxruntime would fuse both, and keep the
# scalar in single precision.


def beside(g: Any, blocks: Sequence[str]) -> str:
    """Return blocks of columns side by side."""
    return blocks[0] if len(blocks) == 1 else g.node("Concat", *blocks, axis=1)


def kernels(
    g: Any, X: str, rows: np.ndarray, gammas: Iterable[float], normalizations: Iterable[np.ndarray]
) -> str:
    """Return exp(-gamma ||x - r||^2) N' for rows r, side by side for each gamma and its N."""
    norms = g.node("ReduceSumSquare", X, np.array([1]), keepdims=1)
    sums = g.node("Add", norms, np.einsum("ij,ij->i", rows, rows))
    squared = g.node("Relu", g.node("Sub", sums, g.node("MatMul", X, 2 * rows.T)))
    blocks = []
    for gamma, normalization in zip(gammas, normalizations, strict=True):
        kernel = g.node("Exp", g.node("Mul", squared, np.array(-float(gamma))))
        blocks.append(g.node("MatMul", kernel, normalization.T))
    return beside(g, blocks)
