"""All feature maps together, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, check_choice
from riskad.detectors.features.base import FeatureMap
from riskad.detectors.features.graph import clipped, principal, standardised
from riskad.detectors.features.kernels import GaussianKernels
from riskad.detectors.features.neighbours import NeighbourDistances
from riskad.detectors.features.outliers import OutlierScores
from riskad.detectors.features.scaling import SmoothScaler
from riskad.storage.fields import (
    COUNT,
    FLAG,
    POSITIVE,
    SIZE,
    Array,
    DictOf,
    Either,
    Fields,
    ListOf,
    Maybe,
    Record,
    Span,
    State,
    Text,
    Tuple,
    require,
)

__all__ = ["LearnedFeatures"]

_MOST_DEVIATIONS = 10.0  # standard deviations at which columns are clipped
_FEW_COLUMNS = 600  # up to which principal components are found from the covariance
_COMPONENTS = ("components", "shapes")  # principal ones
_BLANKED = "blanked"
_PARTS = ("columns", "outliers", "components", "kernels", "shapes", "distances", _BLANKED)


class LearnedFeatures(FeatureMap):
    """All that the rows say about a row: its columns, and what was learned from all of them.

    The features come in parts, side by side:

    - "columns": the columns on one scale;
    - "outliers": `OutlierScores`;
    - "components": the leading principal components;
    - "kernels": `GaussianKernels`;
    - "shapes": the leading principal components of the kernels;
    - "distances": `NeighbourDistances`, the only part that looks at labels;
    - "blanked": the columns with NaN where a mark says that a cell was blank, without the marks,
      for what reads blanks as such.

    Parameters
    ----------
    parts : sequence of str, default=("columns", "outliers", "components", "shapes", "distances")
        Which parts, in which order.
    smooth : bool, default=False
        Whether columns are brought to one scale by `SmoothScaler` rather than standardised and
        clipped at 10.
    widths : sequence of floats, default=(0.5, 1, 2)
        Of the kernels.
    n_components : int, default=20
        Most principal components, of columns and of kernels.
    random_state : int, optional
        Seed; None is 0.
    marks : sequence of pairs of int, optional
        Columns whose blanks were filled, each with the column that marks them with 1. Where columns
        are smooth there can be no part "blanked".

    Attributes
    ----------
    slices_ : dict of slice
        Where each part is in the result.

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
        "marks": Maybe(ListOf(Tuple(COUNT, COUNT))),
        "scaler_": Record(("SmoothScaler", "StandardScaler")),
        "kept_": Array("i", ("kept",), low=0),
        "maps_": DictOf(Text(choices=_PARTS), Record()),
        "slices_": DictOf(Text(choices=_PARTS), Span()),
    }

    @classmethod
    def _upgrade_state(cls, state: State) -> State:
        """A state from before there were marks."""
        return {"marks": None, **state}

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        d, scaler, maps = state["n_features_in_"], state["scaler_"], state["maps_"]
        require(scaler.n_features_in_ == d, "scaler_: of other columns")
        require(state["smooth"] == isinstance(scaler, SmoothScaler), "scaler_: another kind")
        require(bool((state["kept_"] < d).all()), "kept_: no such column")
        columns = scaler.n_features_out_ if state["smooth"] else len(state["kept_"])
        widths, given = {"columns": columns}, {}
        for part, each in maps.items():
            require(type(each) in _map_types(part), f"maps_[{part!r}]: another kind")
            given[part] = each.n_features_in_
            widths[part] = len(each.get_feature_names_out())
        places, marks = _places(state["kept_"], state["marks"])
        widths[_BLANKED] = columns - len(marks)
        require(len({*places, *marks}) == 2 * len(marks), "marks: of the same columns")
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
        marks: Sequence[tuple[int, int]] | None = None,
    ):
        self.parts = parts
        self.smooth = smooth
        self.widths = widths
        self.n_components = n_components
        self.random_state = random_state
        self.marks = marks

    def fit(self, X: Any, y: Any = None) -> LearnedFeatures:
        """Learn from all rows; `y` (codes) is needed for "distances" alone."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn from all rows, and give their features, each row's without itself."""
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
        """Return the number of training rows, standardised, that the parts hold."""
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
        """The columns on one scale, from which all parts are made."""
        check_is_fitted(self)
        return self._columns(self._check(X, reset=False))

    def part_of(self, part: str, Z: np.ndarray, kernels: np.ndarray | None = None) -> np.ndarray:
        """One of the parts, other than the columns.

        Parameters
        ----------
        part : str
            Its name.
        Z : array of shape (n_rows, n_columns)
            What `columns_of` gave.
        kernels : array, optional
            The kernels, where they are known already.
        """
        if part == _BLANKED:
            return self._blanked(Z)
        each = self.maps_[part]
        if part not in _COMPONENTS:
            return np.asarray(each.transform(Z))
        # As PCA does, without a look at rows that were looked at already.
        W = each.components_.T
        if part == "components":
            projected = Z @ W
        elif kernels is None:
            projected = self.maps_["kernels"].products(Z, W)
        else:
            projected = kernels @ W
        return np.asarray(projected - each.mean_[None] @ W)

    def _fit_columns(self, X: np.ndarray) -> np.ndarray:
        from sklearn.preprocessing import StandardScaler

        self.scaler_ = (SmoothScaler() if self.smooth else StandardScaler()).fit(X)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        return self._columns(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        Z = self.scaler_.transform(X)
        return np.asarray(
            Z if self.smooth else np.clip(Z[:, self.kept_], -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
        )

    def _blanked(self, Z: np.ndarray) -> np.ndarray:
        """Columns with NaN for what was blank; a mark is above its mean, 0, where it is 1."""
        places, marks = _places(self.kept_, self.marks)
        out = Z.copy()
        out[:, places] = np.where(Z[:, marks] > 0, np.nan, Z[:, places])
        return np.delete(out, marks, axis=1)

    def _fit_parts(self, Z: np.ndarray, y: Any) -> list[np.ndarray]:
        """The parts; kernels are found once, whether they or their components are wanted."""
        known = {"columns": Z}
        if "kernels" in self.parts or "shapes" in self.parts:
            known["kernels"] = self._fit_map("kernels", Z, y)
        if _BLANKED in self.parts:
            known[_BLANKED] = self._blanked(Z)
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
            mean, scale = self.scaler_.mean_[self.kept_], self.scaler_.scale_[self.kept_]
            Z = clipped(graph, standardised(graph, kept, mean, scale), _MOST_DEVIATIONS)
        known = {"columns": Z}
        if _BLANKED in self.parts:
            known[_BLANKED] = self._onnx_blanked(graph, Z)
        for name, each in sorted(self.maps_.items(), key=lambda item: item[0] in _COMPONENTS):
            seen = known["kernels" if name == "shapes" else "columns"]
            known[name] = (
                principal(graph, seen, each) if name in _COMPONENTS else each.onnx_rows(graph, seen)
            )
        return known

    def _onnx_blanked(self, graph: Any, Z: str) -> str:
        places, marks = _places(self.kept_, self.marks)
        mark = np.full(len(self.kept_), -1)
        mark[places] = marks
        rest = np.setdiff1d(np.arange(len(mark)), marks)
        cells = graph.node("Gather", Z, rest, axis=1)
        marked = graph.node("Gather", Z, np.maximum(mark[rest], 0), axis=1)
        blank = graph.node("And", graph.node("Greater", marked, np.array(0.0)), mark[rest] >= 0)
        return str(graph.node("Where", blank, np.array(np.nan), cells))

    def _fit_map(self, name: str, rows: np.ndarray, y: Any) -> np.ndarray:
        self.maps_[name] = self._map(name, rows.shape)
        return np.asarray(self.maps_[name].fit_transform(rows, y))

    def _map(self, name: str, shape: tuple[int, int]) -> Any:
        from sklearn.decomposition import PCA

        seed = self.random_state or 0
        if name == "kernels":
            return GaussianKernels(self.widths, random_state=seed)
        if name == "outliers":
            return OutlierScores(random_state=seed)
        if name == "distances":
            return NeighbourDistances(unlabelled=False, random_state=seed)
        size = min(self.n_components, *shape)
        solver = "covariance_eigh" if shape[1] <= _FEW_COLUMNS else "randomized"
        return PCA(size, svd_solver=solver, random_state=seed)


def _places(
    kept: np.ndarray, marks: Sequence[tuple[int, int]] | None
) -> tuple[list[int], list[int]]:
    """Where marked columns, and their marks, are among the columns that vary."""
    place = {int(column): i for i, column in enumerate(kept)}
    both = [(place[one], place[other]) for one, other in marks or () if {one, other} <= set(place)]
    return [one for one, _ in both], [other for _, other in both]


def _map_types(part: str) -> tuple[type, ...]:
    """What may learn a part."""
    from sklearn.decomposition import PCA

    known = {
        "kernels": GaussianKernels,
        "outliers": OutlierScores,
        "distances": NeighbourDistances,
        "components": PCA,
        "shapes": PCA,
    }
    return (known[part],) if part in known else ()
