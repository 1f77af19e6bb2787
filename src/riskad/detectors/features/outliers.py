"""Unsupervised outlier scores, as features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.detectors.features.base import FeatureMap
from riskad.detectors.features.graph import beside, clipped, log_distances, standardised
from riskad.detectors.features.neighbours import distance_floor, distances_to
from riskad.detectors.frame_detector import check_trees
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.detectors.tree_growth import grow
from riskad.storage.fields import POSITIVE, SIZE, Array, Fields, Number, State, require

__all__ = ["OutlierScores"]

_TREES, _ISOLATED = 100, 256  # of the isolation forest, and rows that each tree isolates
_MOST_DEVIATIONS = 5.0  # standard deviations at which scores are clipped


class OutlierScores(FeatureMap):
    """Two unsupervised outlier scores: of an isolation forest, and the log distance to neighbours.

    The first finds rows that few cuts separate from the rest, the second rows in sparse regions.
    Both are standardised over the training rows and clipped at five standard deviations.

    Parameters
    ----------
    n_neighbors : int, default=10
        Which neighbour's distance to use.
    max_rows : int, default=2_000
        Maximum number of rows that are searched for neighbours.
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
        "max_rows": SIZE,
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

    def __init__(
        self, n_neighbors: int = 10, *, max_rows: int = 2_000, random_state: int | None = None
    ):
        self.n_neighbors = n_neighbors
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> OutlierScores:
        """Fit both scores; y is ignored."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit both scores and return those of the training rows, each without itself."""
        X = self._check(X, reset=True)
        places = self._places(len(X), self.max_rows)
        self.rows_ = X[places]
        self.trees_, self.path_length_ = _isolation_trees(X, self._rng())
        self.floor_ = distance_floor(self._usual_squared_distance(X))
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
        k = distances_to(X, self.rows_, self.n_neighbors, leave_out)
        return np.stack([self._isolation(X), np.log(k + self.floor_)], axis=1)

    def _isolation(self, X: np.ndarray) -> np.ndarray:
        """2^(-h / c): h the mean length of a row's paths, c that in a tree of random splits."""
        h = self.trees_.mean(X)
        return np.asarray(2 ** (-h / self.path_length_))

    def _standardised(self, raw: np.ndarray) -> np.ndarray:
        return np.clip((raw - self.mean_) / self.scale_, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the two scores in an ONNX graph."""
        rate = -np.log(2) / self.path_length_ / self.trees_.n_trees
        paths = graph.node("Reshape", self.trees_.onnx(graph, rows), np.array([-1, 1]))
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
