"""What all rows say about a row: Gaussian kernels around some of them, and outlier scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.detectors.features.graph import beside, clipped, kernels, log_distances, standardised
from riskad.detectors.features.scaling import FeatureMap
from riskad.detectors.tree_arrays import Trees
from riskad.detectors.tree_graph import sum_of_trees
from riskad.detectors.tree_growth import Growth, grow
from riskad.detectors.trees import TREES, check_trees
from riskad.storage.fields import (
    POSITIVE,
    SEED,
    SIZE,
    Array,
    Either,
    Fields,
    ListOf,
    Number,
    State,
    require,
)

_LANDMARK_ROWS = 20_000  # rows from which landmarks are chosen
_MEDIAN_ROWS = 1_000  # rows whose distances give the median
_NEIGHBOUR_ROWS = 2_000  # rows that are searched for neighbours
_MANY = 32  # rows from which a search structure is worth its cost
_TREES, _ISOLATED = 100, 256  # of the isolation forest, and rows that each tree isolates
_MOST_DEVIATIONS = 5.0  # standard deviations at which outlier scores are clipped


class GaussianKernels(FeatureMap):
    r"""Features whose inner products are near those of Gaussian kernels of several widths.

    With s^2 the median squared distance between rows, kernel k is exp(-||x - x'||^2 / (w_k s^2)),
    each approximated from landmarks among the rows (Nystroem). Fitting s makes the map independent
    of the units and of the number of columns. Rows have norm 1 or a little less.

    Parameters
    ----------
    widths : sequence of floats, default=(0.5, 1, 2)
        w_k, in multiples of the median squared distance.
    n_components : int, default=200
        Landmarks for each width.
    random_state : int, optional
        Seed; None means 0.

    Attributes
    ----------
    median_ : float
        s^2.
    landmarks_ : array of shape (n_landmarks, n_features)
        The rows from which kernels are approximated.
    gammas_ : array
        1 / (w_k s^2), for each width.
    normalizations_ : array of shape (n_widths, n_landmarks, n_landmarks)
        What kernels between a row and the landmarks are multiplied with, for each width.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> GaussianKernels(n_components=50).fit_transform(X).shape
    (100, 150)
    """

    _state_fields: ClassVar[Fields] = {
        "widths": Either(ListOf(POSITIVE, "widths"), Array("f", ("widths",))),
        "n_components": SIZE,
        "random_state": SEED,
        "median_": POSITIVE,
        "landmarks_": Array("f", ("landmarks", "n_features_in_")),
        "gammas_": Array("f", ("widths",), low=np.nextafter(0, 1)),
        "normalizations_": Array("f", ("widths", "landmarks", "landmarks")),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        width = len(state["gammas_"]) * len(state["landmarks_"])
        require(0 < width == state["n_features_out_"], "landmarks_: another number")

    def __init__(
        self,
        widths: Sequence[float] = (0.5, 1.0, 2.0),
        *,
        n_components: int = 200,
        random_state: int | None = None,
    ):
        self.widths = widths
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GaussianKernels:
        """Find the median distance and the landmarks; y is ignored."""
        from sklearn.kernel_approximation import Nystroem

        if not len(self.widths) or min(self.widths) <= 0:
            raise InputError(f"widths must be numbers > 0, got {self.widths!r}.")
        X = self._check(X, reset=True)
        seed = self.random_state or 0
        X = X[_some_places(len(X), _LANDMARK_ROWS, seed)]
        self.median_ = _median_squared_distance(X, seed)
        size = min(self.n_components, len(X))
        self.gammas_ = np.array([1 / (w * self.median_) for w in self.widths])
        maps = [
            Nystroem(gamma=gamma, n_components=size, random_state=seed).fit(X)
            for gamma in self.gammas_
        ]
        self.landmarks_ = maps[0].components_  # with one seed those of all widths
        self.normalizations_ = np.stack([each.normalization_ for each in maps])
        self.n_features_out_ = size * len(maps)
        return self

    def kept_rows(self) -> int:
        """Return the number of training rows that are centres of kernels."""
        return len(self.landmarks_)

    def transform(self, X: Any) -> np.ndarray:
        """The features of all widths, side by side."""
        check_is_fitted(self)
        X = self._check(X, reset=False)
        features = np.empty((len(X), self.n_features_out_))
        for normalization, span, K in self._kernels(X):
            features[:, span] = K @ normalization.T
        features /= len(self.gammas_) ** 0.5
        return features

    def products(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return `transform(X) @ weights`, for rows that were checked, without the features.

        The kernels of a width are K N', with N the normalisation of its landmarks: K (N' W) has
        as many columns as W, and N' W is computed once for all rows.
        """
        total = np.zeros((len(X), weights.shape[1]))
        for normalization, span, K in self._kernels(X):
            total += K @ (normalization.T @ weights[span])
        total /= len(self.gammas_) ** 0.5
        return total

    def _kernels(self, X: np.ndarray) -> Iterator[tuple[np.ndarray, slice, np.ndarray]]:
        """Each width's normalization, its place among the features, and exp(-gamma D)."""
        m, squared = len(self.landmarks_), _squared_distances(X, self.landmarks_)
        last, K = 0.0, np.empty(0)
        for i in np.argsort(self.gammas_, kind="stable"):
            gamma = float(self.gammas_[i])
            # Half the width: squaring the last kernel saves an exponential.
            K = K * K if gamma == 2 * last else np.exp(-gamma * squared)
            last = gamma
            yield self.normalizations_[i], slice(int(i * m), int((i + 1) * m)), K

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the features in an ONNX graph."""
        share = len(self.gammas_) ** -0.5
        return kernels(graph, rows, self.landmarks_, self.gammas_, self.normalizations_ * share)


class OutlierScores(FeatureMap):
    """Two unsupervised outlier scores: of an isolation forest, and the log distance to neighbours.

    The first finds rows that few cuts separate from the rest, the second rows in sparse regions.
    Both are standardised over the training rows and clipped at five standard deviations.

    Parameters
    ----------
    n_neighbors : int, default=10
        Which neighbour's distance to use, among at most 2,000 rows.
    random_state : int, optional
        Seed; None means 0.

    Examples
    --------
    >>> X = np.vstack([np.random.default_rng(0).normal(size=(200, 2)), [[9.0, 9.0]]])
    >>> OutlierScores().fit_transform(X).argmax(axis=0)
    array([200, 200])
    """

    _state_fields: ClassVar[Fields] = {
        "n_neighbors": SIZE,
        "random_state": SEED,
        "rows_": Array("f", ("rows", "n_features_in_")),
        "trees_": TREES,
        "path_length_": POSITIVE,
        "floor_": POSITIVE,
        "mean_": Array("f", (2,)),
        "scale_": Array("f", (2,), low=np.nextafter(0, 1)),
        "n_features_out_": Number(2, 2, whole=True),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state without rows for the distances."""
        check_trees(state)
        require(len(state["rows_"]) > 0, "rows_: none")

    def __init__(self, n_neighbors: int = 10, *, random_state: int | None = None):
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> OutlierScores:
        """Fit both scores; y is ignored."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit both scores and return those of the training rows, each without itself."""
        X = self._check(X, reset=True)
        seed = self.random_state or 0
        places = _some_places(len(X), _NEIGHBOUR_ROWS, seed)
        self.rows_ = X[places]
        self.trees_, self.path_length_ = _isolation_trees(X, np.random.default_rng(seed))
        # Added to distances before the logarithm: copies of a row are at distance 0.
        self.floor_ = 1e-3 * _median_squared_distance(X, seed) ** 0.5
        raw = self._raw(X, leave_out=np.isin(np.arange(len(X)), places))
        self.mean_, self.scale_ = raw.mean(axis=0), raw.std(axis=0) + 1e-12
        self.n_features_out_ = raw.shape[1]
        return self._standardised(raw)

    def kept_rows(self) -> int:
        """Return the number of training rows to which distances are measured."""
        return len(self.rows_)

    def transform(self, X: Any) -> np.ndarray:
        """The two scores of each row."""
        check_is_fitted(self)
        return self._standardised(self._raw(self._check(X, reset=False)))

    def _raw(self, X: np.ndarray, leave_out: np.ndarray | None = None) -> np.ndarray:
        distance = _neighbour_distances(X, self.rows_, self.n_neighbors, leave_out)
        # 2^(-h / c): h the mean length of a row's paths, c that in a tree of random splits.
        isolation = 2 ** (-self.trees_.mean(X) / self.path_length_)
        return np.stack([isolation, np.log(distance + self.floor_)], axis=1)

    def _standardised(self, raw: np.ndarray) -> np.ndarray:
        return np.clip((raw - self.mean_) / self.scale_, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the two scores in an ONNX graph."""
        rate = -np.log(2) / self.path_length_ / self.trees_.n_trees
        paths = graph.node("Reshape", sum_of_trees(graph, rows, self.trees_), np.array([-1, 1]))
        isolation = graph.node("Exp", graph.node("Mul", paths, np.array(rate)))
        away = log_distances(graph, rows, self.rows_, self.n_neighbors, self.floor_)
        raw = standardised(graph, beside(graph, [isolation, away]), self.mean_, self.scale_)
        return clipped(graph, raw, _MOST_DEVIATIONS)


def _isolation_trees(X: np.ndarray, rng: np.random.Generator) -> tuple[Trees, float]:
    """Trees that isolate rows by random splits, and the mean length of their paths.

    The value of a leaf is the length of the path to it, and on to each of its rows.
    """
    size = min(_ISOLATED, len(X))
    places = np.stack([rng.choice(len(X), size, replace=False) for _ in range(_TREES)])
    # Splits are random: all targets differ, and one column is tried.
    growth = Growth(tries=1, most_depth=np.ceil(np.log2(max(size, 2))))
    grown = grow(X, np.arange(len(X)), np.ones(len(X)), places, growth, int(rng.integers(2**31)))
    lengths = grown.depth + _average_path_length(grown.rows)
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
    """Squared distances of each row of X to each of `rows`, which were checked.

    >>> _squared_distances(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 4.0]])).tolist()
    [[16.0], [25.0]]
    """
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
