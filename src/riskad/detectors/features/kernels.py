"""Gaussian kernels of several widths, as features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.detectors.features.base import FeatureMap, squared_distances
from riskad.detectors.features.graph import kernels
from riskad.storage.fields import (
    POSITIVE,
    SIZE,
    Array,
    Either,
    Fields,
    ListOf,
    State,
    require,
)

__all__ = ["GaussianKernels"]


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
    max_rows : int, default=20_000
        Rows from which landmarks are chosen.
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
        "max_rows": SIZE,
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
        max_rows: int = 20_000,
        random_state: int | None = None,
    ):
        self.widths = widths
        self.n_components = n_components
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GaussianKernels:
        """Find the median distance and the landmarks; y is ignored."""
        from sklearn.kernel_approximation import Nystroem

        if not len(self.widths) or min(self.widths) <= 0:
            raise InputError(f"widths must be numbers > 0, got {self.widths!r}.")
        X = self._check(X, reset=True)
        X = X[self._places(len(X), self.max_rows)]
        self.median_ = self._usual_squared_distance(X)
        size, seed = min(self.n_components, len(X)), self.random_state or 0
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
        found = np.empty((len(X), self.n_features_out_))
        for normalization, span, K in self._kernels(X):
            found[:, span] = K @ normalization.T
        found /= len(self.gammas_) ** 0.5
        return found

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the features in an ONNX graph."""
        share = len(self.gammas_) ** -0.5
        return kernels(graph, rows, self.landmarks_, self.gammas_, self.normalizations_ * share)

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
        m, squared = len(self.landmarks_), squared_distances(X, self.landmarks_)
        last, K = 0.0, np.empty(0)
        for i in np.argsort(self.gammas_, kind="stable"):
            gamma = float(self.gammas_[i])
            # Half the width: squaring the known values saves an exponential.
            K = K * K if gamma == 2 * last else np.exp(-gamma * squared)
            last = gamma
            yield self.normalizations_[i], slice(int(i * m), int((i + 1) * m)), K
