"""All feature maps together, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, check_choice
from riskad.detectors.features.base import FeatureMap
from riskad.detectors.features.components import PrincipalComponents
from riskad.detectors.features.graph import clipped, standardised
from riskad.detectors.features.kernels import GaussianKernels
from riskad.detectors.features.neighbours import NeighbourDistances
from riskad.detectors.features.outliers import OutlierScores
from riskad.detectors.features.scaling import ColumnScale, SmoothScaler
from riskad.storage.fields import (
    FLAG,
    POSITIVE,
    SIZE,
    Array,
    DictOf,
    Either,
    Fields,
    ListOf,
    Record,
    Span,
    State,
    Text,
    require,
)

__all__ = ["LearnedFeatures"]

_MOST_DEVIATIONS = 10.0  # standard deviations at which columns are clipped
_FEW_COLUMNS = 600  # up to here principal components are computed from the covariance
_COMPONENTS = ("components", "shapes")  # principal components
_PARTS = ("columns", "outliers", "components", "kernels", "shapes", "distances")
# What learns a part; the others are computed from the columns alone.
_MAPS: dict[str, Any] = {
    "kernels": GaussianKernels,
    "outliers": OutlierScores,
    "distances": NeighbourDistances,
    "components": PrincipalComponents,
    "shapes": PrincipalComponents,
}


class LearnedFeatures(FeatureMap):
    """Features of a row: its columns, and what was learned from all rows.

    The features come in parts, side by side:

    - "columns": the columns on one scale;
    - "outliers": `OutlierScores`;
    - "components": the leading principal components;
    - "kernels": `GaussianKernels`;
    - "shapes": the leading principal components of the kernels;
    - "distances": `NeighbourDistances`, the only part that looks at labels.

    Parameters
    ----------
    parts : sequence of str, default=("columns", "outliers", "components", "shapes", "distances")
        Which parts to include, in this order.
    smooth : bool, default=False
        Whether `SmoothScaler` scales the columns. By default they are standardised and clipped at
        10.
    widths : sequence of floats, default=(0.5, 1, 2)
        Widths of the kernels.
    n_components : int, default=20
        Maximum number of principal components, of columns and of kernels.
    random_state : int, optional
        Seed; None means 0.

    Attributes
    ----------
    slices_ : dict of slice
        Position of each part in the result.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 4)), np.repeat([1, -1, 0], [10, 5, 85])
    >>> features = LearnedFeatures(["columns", "outliers", "distances"])
    >>> features.fit_transform(X, y).shape
    (100, 9)
    >>> features.slices_["outliers"]
    slice(4, 6, None)
    """

    _state_fields: ClassVar[Fields] = {
        "parts": ListOf(Text(choices=_PARTS)),
        "smooth": FLAG,
        "widths": Either(ListOf(POSITIVE), Array("f", (None,))),
        "n_components": SIZE,
        "scaler_": Record(("SmoothScaler", "ColumnScale")),
        "kept_": Array("i", ("kept",), low=0),
        "maps_": DictOf(Text(choices=_PARTS), Record([each.__name__ for each in _MAPS.values()])),
        "slices_": DictOf(Text(choices=_PARTS), Span()),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        d, scaler, maps = state["n_features_in_"], state["scaler_"], state["maps_"]
        require(scaler.n_features_in_ == d, "scaler_: of other columns")
        require(state["smooth"] == isinstance(scaler, SmoothScaler), "scaler_: another kind")
        require(bool((state["kept_"] < d).all()), "kept_: no such column")
        require(bool((np.diff(state["kept_"]) > 0).all()), "kept_: expected rising positions")
        columns = scaler.n_features_out_ if state["smooth"] else len(state["kept_"])
        widths, given = {"columns": columns}, {}
        for part, each in maps.items():
            require(type(each) is _MAPS.get(part), f"maps_[{part!r}]: another kind")
            given[part] = each.n_features_in_
            widths[part] = each.n_features_out_
        wanted = {part: widths.get("kernels") if part == "shapes" else columns for part in maps}
        require(given == wanted, "maps_: of other columns")
        require(set(state["parts"]) <= set(widths), "parts: without their maps")
        ends = np.cumsum([0, *(widths[part] for part in state["parts"])]).tolist()
        spans = [slice(*pair) for pair in pairwise(ends)]
        slices = dict(zip(state["parts"], spans, strict=True))
        require(state["slices_"] == slices, "slices_: of other widths")
        require(state["n_features_out_"] == ends[-1], "n_features_out_: another number")

    def __init__(
        self,
        parts: Sequence[str] = ("columns", "outliers", "components", "shapes", "distances"),
        *,
        smooth: bool = False,
        widths: Sequence[float] = (0.5, 1.0, 2.0),
        n_components: int = 20,
        random_state: int | None = None,
    ):
        self.parts = parts
        self.smooth = smooth
        self.widths = widths
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LearnedFeatures:
        """Learn from all rows; only "distances" needs `y` (codes)."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn from all rows, and return their features, each row's without itself."""
        for part in self.parts:
            check_choice("parts", part, _PARTS)
        if "distances" in self.parts and y is None:
            raise InputError('the part "distances" needs y: +1 normal, -1 anomaly, 0 unlabelled.')
        X = self._check(X, reset=True)
        Z = self._fit_columns(X)
        self.maps_: dict[str, Any] = {}
        blocks = self._fit_parts(Z, y)
        widths = np.cumsum([0, *(block.shape[1] for block in blocks)])
        bounds = zip(self.parts, widths[:-1], widths[1:], strict=True)
        self.slices_ = {part: slice(int(start), int(stop)) for part, start, stop in bounds}
        self.n_features_out_ = int(widths[-1])
        return np.hstack(blocks)

    def kept_rows(self) -> int:
        """Return the number of standardised training rows that the parts hold."""
        return sum(part.kept_rows() for part in self.maps_.values() if hasattr(part, "kept_rows"))

    def transform(self, X: Any) -> np.ndarray:
        """The parts of each row, side by side."""
        Z = self.columns_of(X)
        known = {"columns": Z}
        if "kernels" in self.parts:
            known["kernels"] = self.part_of("kernels", Z)
        for part in self.parts:
            if part not in known:
                known[part] = self.part_of(part, Z, known.get("kernels"))
        return np.hstack([known[part] for part in self.parts])

    def columns_of(self, X: Any) -> np.ndarray:
        """The columns on one scale, from which all parts are computed."""
        check_is_fitted(self)
        return self._columns(self._check(X, reset=False))

    def part_of(self, part: str, Z: np.ndarray, kernels: np.ndarray | None = None) -> np.ndarray:
        """Compute one of the parts, other than the columns.

        Parameters
        ----------
        part : str
            Name of the part.
        Z : array of shape (n_rows, n_columns)
            Result of `columns_of`.
        kernels : array, optional
            The kernels, if they are already computed.
        """
        each = self.maps_[part]
        if part != "shapes":
            return np.asarray(each.transform(Z))
        if kernels is None:
            return each.centred(self.maps_["kernels"].products(Z, each.components.T))
        return np.asarray(each.transform(kernels))

    def _fit_columns(self, X: np.ndarray) -> np.ndarray:
        self.scaler_: Any = SmoothScaler().fit(X) if self.smooth else ColumnScale.of(X)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        return self._columns(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if self.smooth:
            return np.asarray(self.scaler_.transform(X))
        Z = self.scaler_.transform(X)[:, self.kept_]
        return np.clip(Z, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def _fit_parts(self, Z: np.ndarray, y: Any) -> list[np.ndarray]:
        """The parts; kernels are computed once, for themselves and for their components."""
        known = {"columns": Z}
        if "kernels" in self.parts or "shapes" in self.parts:
            known["kernels"] = self._fit_map("kernels", Z, y)
        for part in self.parts:
            if part not in known:
                seen = known["kernels" if part == "shapes" else "columns"]
                known[part] = self._fit_map(part, seen, y)
        return [known[part] for part in self.parts]

    def onnx_parts(self, graph: Any, rows: str) -> dict[str, str]:
        """Return the parts of rows in an ONNX graph, by name."""
        if self.smooth:
            Z = self.scaler_.onnx_rows(graph, rows)
        else:
            kept = graph.node("Gather", rows, self.kept_, axis=1)
            mean, scale = self.scaler_.mean[self.kept_], self.scaler_.scale[self.kept_]
            Z = clipped(graph, standardised(graph, kept, mean, scale), _MOST_DEVIATIONS)
        known = {"columns": Z}
        for name, each in sorted(self.maps_.items(), key=lambda item: item[0] in _COMPONENTS):
            seen = known["kernels" if name == "shapes" else "columns"]
            known[name] = each.onnx_rows(graph, seen)
        return known

    def _fit_map(self, name: str, rows: np.ndarray, y: Any) -> np.ndarray:
        if name in _COMPONENTS:
            return self._fit_components(name, rows)
        seed = self.random_state or 0
        settings: dict[str, dict[str, Any]] = {
            "kernels": {"widths": self.widths},
            "outliers": {},
            "distances": {"unlabelled": False},
        }
        self.maps_[name] = _MAPS[name](**settings[name], random_state=seed)
        return np.asarray(self.maps_[name].fit_transform(rows, y))

    def _fit_components(self, name: str, rows: np.ndarray) -> np.ndarray:
        from sklearn.decomposition import PCA

        size = min(self.n_components, *rows.shape)
        solver = "covariance_eigh" if rows.shape[1] <= _FEW_COLUMNS else "randomized"
        pca = PCA(size, svd_solver=solver, random_state=self.random_state or 0)
        components = pca.fit_transform(rows)
        self.maps_[name] = PrincipalComponents(pca.mean_, pca.components_)
        return np.asarray(components)
