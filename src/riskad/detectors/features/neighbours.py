"""Distances to the nearest rows of each kind, as features."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes
from riskad.detectors.features.base import FeatureMap, squared_distances
from riskad.detectors.features.graph import beside, log_distances
from riskad.storage.fields import (
    FLAG,
    POSITIVE,
    SIZE,
    Array,
    DictOf,
    Fields,
    Number,
    State,
    require,
)

__all__ = ["NeighbourDistances", "distance_floor", "distances_to"]

_MANY = 32  # rows from which a search structure is worth its cost


class NeighbourDistances(FeatureMap):
    """Log distances to the nearest labelled normal, labelled anomaly and unlabelled rows.

    A kind of row that is absent has no column. If there are labels of both kinds, the last column
    is the difference of their two: to which of them is the row nearer?

    Parameters
    ----------
    n_neighbors : int, default=1
        Which neighbour's distance to use; the last one if a kind has fewer.
    unlabelled : bool, default=True
        Whether to add the distance to unlabelled rows as a column.
    max_rows : int, default=5_000
        Maximum number of unlabelled rows that are searched for neighbours.
    random_state : int, optional
        Seed; None means 0.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [8.0], [9.0]]), [1, 0, 0, -1]
    >>> distances = NeighbourDistances().fit(X, y).transform([[0.5], [8.5]])
    >>> distances[:, -1] > 0  # nearer to the anomaly than to the normal row
    array([False,  True])
    """

    _state_fields: ClassVar[Fields] = {
        "n_neighbors": SIZE,
        "unlabelled": FLAG,
        "max_rows": SIZE,
        "places_": DictOf(Number(-1, 1, whole=True), Array("i", (None,), low=0)),
        "rows_": DictOf(Number(-1, 1, whole=True), Array("f", (None, "n_features_in_"))),
        "floor_": POSITIVE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        rows = state["rows_"]
        require(all(len(each) for each in rows.values()), "rows_: none of a kind")
        width = len(rows) + (NORMAL in rows and ANOMALY in rows)
        require(len(rows) > 0 and width == state["n_features_out_"], "rows_: other kinds")

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        unlabelled: bool = True,
        max_rows: int = 5_000,
        random_state: int | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.unlabelled = unlabelled
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NeighbourDistances:
        """Store the rows of each kind."""
        X, y = self._check(X, reset=True), check_codes(y)
        self.places_ = {}
        for kind in (NORMAL, ANOMALY, UNLABELLED)[: 3 if self.unlabelled else 2]:
            members = np.flatnonzero(y == kind)
            chosen = members[self._places(len(members), self.max_rows)]
            if len(chosen):
                self.places_[kind] = chosen
        if not self.places_:
            raise InputError("y has no labelled row to be near to. Label some, or unlabelled=True.")
        self.rows_ = {kind: X[places] for kind, places in self.places_.items()}
        self.floor_ = distance_floor(self._usual_squared_distance(X))
        both = NORMAL in self.rows_ and ANOMALY in self.rows_
        self.n_features_out_ = len(self.rows_) + both
        return self

    def fit_transform(self, X: Any, y: Any) -> np.ndarray:
        """Fit, and return the distances of the training rows, each without itself."""
        self.fit(X, y)
        X = self._check(X, reset=False)
        everyone = np.arange(len(X))
        return self._logarithms(
            X, {kind: np.isin(everyone, places) for kind, places in self.places_.items()}
        )

    def kept_rows(self) -> int:
        """Return the number of training rows to which distances are measured."""
        return sum(len(rows) for rows in self.rows_.values())

    def transform(self, X: Any) -> np.ndarray:
        """The distances of each row."""
        check_is_fitted(self)
        return self._logarithms(self._check(X, reset=False), {})

    def _logarithms(self, X: np.ndarray, leave_out: dict[int, np.ndarray]) -> np.ndarray:
        columns = {
            kind: np.log(distances_to(X, rows, self.n_neighbors, leave_out.get(kind)) + self.floor_)
            for kind, rows in self.rows_.items()
        }
        if NORMAL in columns and ANOMALY in columns:
            return np.stack([*columns.values(), columns[NORMAL] - columns[ANOMALY]], axis=1)
        return np.stack(list(columns.values()), axis=1)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the distances in an ONNX graph."""
        columns = {
            kind: log_distances(graph, rows, near, self.n_neighbors, self.floor_)
            for kind, near in self.rows_.items()
        }
        blocks = list(columns.values())
        if NORMAL in columns and ANOMALY in columns:
            blocks.append(graph.node("Sub", columns[NORMAL], columns[ANOMALY]))
        return beside(graph, blocks)


def distance_floor(usual_squared: float) -> float:
    """What is added to distances before the logarithm, a thousandth of the median distance."""
    return 1e-3 * usual_squared**0.5


def distances_to(
    X: np.ndarray, rows: np.ndarray, k: int, leave_out: np.ndarray | None = None
) -> np.ndarray:
    """Distance of each row of X to its k-th neighbour among `rows`.

    Rows marked in `leave_out` are among them: their nearest one, themselves, does not count. For
    the only row of its kind, the distance of the others to it is used.
    """
    nearest = _nearest(X, rows, k + 1)
    last = nearest.shape[1] - 1
    distance = nearest[:, min(k - 1, last)]
    if leave_out is not None and leave_out.any():
        if last:
            distance = np.where(leave_out, nearest[:, min(k, last)], distance)
        elif not leave_out.all():
            distance = np.where(leave_out, np.median(distance[~leave_out]), distance)
    return np.asarray(distance, dtype=float)


def _nearest(X: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """The k smallest distances of each row to `rows`, in rising order; fewer if there are fewer.

    A product of matrices finds the rows, but its distances have an error near zero. Distances from
    differences are exactly 0 for a row that is among them, for any number of rows at a time.
    """
    places = _places_of_nearest(X, rows, min(k, len(rows)))
    away = rows[places] - X[:, None]
    return np.sqrt(np.sort(np.einsum("nkd,nkd->nk", away, away), axis=1))


def _places_of_nearest(X: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    if len(X) >= _MANY:
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows)
        return np.asarray(search.kneighbors(X, return_distance=False))
    # For few rows, checking the stored ones would take longer than the distances.
    return np.argpartition(squared_distances(X, rows), k - 1, axis=1)[:, :k]
