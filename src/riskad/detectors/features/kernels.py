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
    Record,
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
    maps_ : list of Nystroem
        One for each width.

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
        "maps_": ListOf(Record(("Nystroem",)), "widths"),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        maps = state["maps_"]
        same = all(each.n_features_in_ == state["n_features_in_"] for each in maps)
        require(same, "maps_: of other columns")
        width = sum(len(each.components_) for each in maps)
        require(len(maps) > 0 and width == state["n_features_out_"], "maps_: another size")

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
        self.maps_ = [
            Nystroem(gamma=1 / (w * self.median_), n_components=size, random_state=seed).fit(X)
            for w in self.widths
        ]
        self.n_features_out_ = size * len(self.maps_)
        return self

    def kept_rows(self) -> int:
        """Return the number of training rows that are centres of kernels."""
        return sum(len(each.components_) for each in self.maps_)

    def transform(self, X: Any) -> np.ndarray:
        """The features of all widths, side by side."""
        check_is_fitted(self)
        X = self._check(X, reset=False)
        found = np.empty((len(X), self.n_features_out_))
        for part, span, K in self._kernels(X):
            found[:, span] = K @ part.normalization_.T
        found /= len(self.maps_) ** 0.5
        return found

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the features in an ONNX graph."""
        return kernels(graph, rows, self.maps_)

    def products(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return `transform(X) @ weights`, for rows that were checked, without the features.

        The kernels of a width are K N', with N the normalisation of its landmarks: K (N' W) has
        as many columns as W, and N' W is computed once for all rows.
        """
        total = np.zeros((len(X), weights.shape[1]))
        for part, span, K in self._kernels(X):
            total += K @ (part.normalization_.T @ weights[span])
        total /= len(self.maps_) ** 0.5
        return total

    def _kernels(self, X: np.ndarray) -> Iterator[tuple[Any, slice, np.ndarray]]:
        """Each width's map, its position among the features, and exp(-gamma D) to its landmarks."""
        ends = np.cumsum([0, *(len(part.components_) for part in self.maps_)])
        landmarks, gamma, K = None, 0.0, np.empty(0)
        for i in np.argsort([part.gamma for part in self.maps_], kind="stable"):
            part = self.maps_[i]
            same = landmarks is not None and np.array_equal(part.components_, landmarks)
            if not same:  # with one seed all widths have the same landmarks
                landmarks = part.components_
                squared = squared_distances(X, landmarks)
            # Half the width: squaring the known values saves an exponential.
            K = K * K if same and part.gamma == 2 * gamma else np.exp(-part.gamma * squared)
            gamma = part.gamma
            yield part, slice(int(ends[i]), int(ends[i + 1])), K
