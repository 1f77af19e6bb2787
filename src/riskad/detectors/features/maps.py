"""What is learned from all rows on one scale: components, kernels, outlier scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from riskad.core.checks import InputError
from riskad.detectors.features.graph import beside, clipped, kernels, log_distances, standardised
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.detectors.tree_growth import grow
from riskad.storage.fields import POSITIVE, Array, Fields, State, require

_MOST_COMPONENTS = 20
_FEW_COLUMNS = 600  # up to here principal components are computed from the covariance
_LANDMARKS, _LANDMARK_ROWS = 200, 20_000  # and rows from which they are chosen
_MEDIAN_ROWS = 1_000  # rows whose distances give the median
_NEIGHBOUR, _NEIGHBOUR_ROWS = 10, 2_000  # whose distance counts, among so many rows
_MANY = 32  # rows from which a search structure is worth its cost
_TREES, _ISOLATED = 100, 256  # of the isolation forest, and rows that each tree isolates
_MOST_DEVIATIONS = 5.0  # standard deviations at which outlier scores are clipped


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """(x - mean) W', with a principal direction in each row of W: the arrays of a fitted PCA."""

    mean: np.ndarray
    components: np.ndarray

    _state_fields: ClassVar[Fields] = {
        "mean": Array("f", ("columns",)),
        "components": Array("f", ("components", "columns")),
    }

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
        """Numbers of columns and of components."""
        return len(self.mean), len(self.components)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the components of rows."""
        W = self.components.T
        return np.asarray(X @ W - self.mean[None] @ W)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the components in an ONNX graph."""
        W = self.components.T
        return str(graph.node("Sub", graph.node("MatMul", rows, W), self.mean @ W))


@dataclass(frozen=True, eq=False)
class GaussianKernels:
    r"""Features whose inner products are near those of Gaussian kernels of several widths.

    With s^2 the median squared distance between rows, kernel k is exp(-||x - x'||^2 / (w_k s^2)),
    each approximated from landmarks among the rows (Nystroem). Fitting s makes the map independent
    of the units and of the number of columns. Rows have norm 1 or a little less.
    """

    rows: np.ndarray  # the landmarks
    gammas: np.ndarray  # 1 / (w_k s^2), for each width
    normalizations: np.ndarray  # of the kernels between a row and the landmarks, for each width

    _state_fields: ClassVar[Fields] = {
        "rows": Array("f", ("landmarks", "columns")),
        "gammas": Array("f", ("widths",), low=np.nextafter(0, 1)),
        "normalizations": Array("f", ("widths", "landmarks", "landmarks")),
    }

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
        learned = cls(maps[0].components_, gammas, normalizations)
        return learned, learned.transform(X)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of columns and of features."""
        return self.rows.shape[1], len(self.rows) * len(self.gammas)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the features of all widths, side by side."""
        features = np.empty((len(X), self.shape[1]))
        for normalization, span, K in self._kernels(X):
            features[:, span] = K @ normalization.T
        features /= len(self.gammas) ** 0.5
        return features

    def products(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return `transform(X) @ weights` without the features.

        The kernels of a width are K N', with N the normalisation of its landmarks: K (N' W) has
        as many columns as W, and N' W is computed once for all rows.
        """
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
        """Return the features in an ONNX graph."""
        share = len(self.gammas) ** -0.5
        return kernels(graph, rows, self.rows, self.gammas, self.normalizations * share)


@dataclass(frozen=True, eq=False)
class OutlierScores:
    """Two unsupervised outlier scores: of an isolation forest, and a log distance.

    The first finds rows that few cuts separate from the rest, the second, the log distance to the
    tenth neighbour among at most 2,000 rows, rows in sparse regions. Both are standardised over the
    training rows and clipped at five standard deviations.
    """

    rows: np.ndarray
    trees: Trees
    path_length: float  # mean length of a path in a tree of random splits
    floor: float  # added to distances before the logarithm: copies of a row are at distance 0
    mean: np.ndarray
    scale: np.ndarray

    _state_fields: ClassVar[Fields] = {
        "rows": Array("f", ("rows", "columns")),
        "trees": TREES,
        "path_length": POSITIVE,
        "floor": POSITIVE,
        "mean": Array("f", (2,)),
        "scale": Array("f", (2,), low=np.nextafter(0, 1)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state without rows or trees, or with those of other columns."""
        rows, trees = state["rows"], state["trees"]
        require(len(rows) > 0, "rows: none")
        require(trees.n_features == rows.shape[1], "trees: of other columns")
        require(trees.n_trees > 0, "trees: none")

    @classmethod
    def fit_transform(cls, X: np.ndarray, seed: int) -> tuple[Self, np.ndarray]:
        """Learn both scores, and return those of the rows, each without itself."""
        places = _some_places(len(X), _NEIGHBOUR_ROWS, seed)
        trees, path_length = _isolation_trees(X, np.random.default_rng(seed))
        floor = 1e-3 * _median_squared_distance(X, seed) ** 0.5
        learned = cls(X[places], trees, path_length, floor, np.zeros(2), np.ones(2))
        raw = learned._raw(X, leave_out=np.isin(np.arange(len(X)), places))
        learned = replace(learned, mean=raw.mean(axis=0), scale=raw.std(axis=0) + 1e-12)
        return learned, learned._standardised(raw)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of columns and of scores."""
        return self.rows.shape[1], len(self.mean)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the two scores of each row."""
        return self._standardised(self._raw(X))

    def _raw(self, X: np.ndarray, leave_out: np.ndarray | None = None) -> np.ndarray:
        distance = _neighbour_distances(X, self.rows, _NEIGHBOUR, leave_out)
        isolation = 2 ** (-self.trees.mean(X) / self.path_length)
        return np.stack([isolation, np.log(distance + self.floor)], axis=1)

    def _standardised(self, raw: np.ndarray) -> np.ndarray:
        return np.clip((raw - self.mean) / self.scale, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the two scores in an ONNX graph."""
        rate = -np.log(2) / self.path_length / self.trees.n_trees
        paths = graph.node("Reshape", self.trees.onnx(graph, rows), np.array([-1, 1]))
        isolation = graph.node("Exp", graph.node("Mul", paths, np.array(rate)))
        away = log_distances(graph, rows, self.rows, _NEIGHBOUR, self.floor)
        raw = standardised(graph, beside(graph, [isolation, away]), self.mean, self.scale)
        return clipped(graph, raw, _MOST_DEVIATIONS)


def _isolation_trees(X: np.ndarray, rng: np.random.Generator) -> tuple[Trees, float]:
    """Trees that isolate rows by random splits, and the mean length of their paths.

    The value of a leaf is the length of the path to it, and on to each of its rows.
    """
    size = min(_ISOLATED, len(X))
    places = np.stack([rng.choice(len(X), size, replace=False) for _ in range(_TREES)])
    # Splits are random: all targets differ, and one column is tried.
    grown = grow(
        X,
        np.arange(len(X)),
        np.ones(len(X)),
        places,
        max_features=1,
        max_depth=np.ceil(np.log2(max(size, 2))),
        seed=int(rng.integers(2**31)),
    )
    lengths = grown.depth + _average_path_length(grown.n_samples)
    # A single row is isolated from the start: any positive length shows this.
    usual = float(_average_path_length(np.array([size]))[0]) or 1.0
    return replace(grown.trees, value=lengths), usual


def _average_path_length(n: np.ndarray) -> np.ndarray:
    """Mean length of a path to one of n rows, in a tree that isolates each by random splits."""
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
    squared = squared[squared > 0]
    return float(np.median(squared)) if len(squared) else 1.0


def _squared_distances(X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    D = X @ rows.T
    D *= -2
    D += np.einsum("ij,ij->i", X, X)[:, None]
    D += np.einsum("ij,ij->i", rows, rows)
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
