"""All feature maps side by side, and the columns as a network reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, check_choice
from riskad.detectors.features.maps import (
    ColumnScale,
    FeatureMap,
    GaussianKernels,
    OutlierScores,
    PrincipalComponents,
    SmoothScaler,
    beside,
)
from riskad.files import fields
from riskad.files.fields import State, require
from riskad.rows.arrays import GraphNumbers
from riskad.rows.encoding import OneHotImputer, SingularVectors, level_places
from riskad.rows.table import check_numbers

_MOST_DEVIATIONS = 10.0  # standard deviations at which columns are clipped
# What learns a part from the columns on one scale.
_MAPS: dict[str, Any] = {
    "outliers": OutlierScores,
    "components": PrincipalComponents,
    "kernels": GaussianKernels,
}
_PARTS = ("columns", *_MAPS)
Encoder = OneHotImputer | SingularVectors


class LearnedFeatures(FeatureMap):
    """Features of a row: its columns, and what was learned from all rows.

    The features come in parts, side by side:

    - "columns": the columns on one scale;
    - "outliers": two outlier scores, of an isolation forest and of distances to neighbours;
    - "components": at most 20 leading principal components;
    - "kernels": Gaussian kernels of several widths, around at most 200 rows.

    Parameters
    ----------
    parts : sequence of str, default=("columns", "outliers", "components")
        Which parts to include, in this order.
    smooth : bool, default=False
        Whether `SmoothScaler` scales the columns. By default they are standardised and clipped at
        10.
    widths : sequence of floats, default=(0.5, 1, 2)
        Widths of the kernels, in multiples of the median squared distance between rows.
    random_state : int, optional
        Seed; None means 0.

    Attributes
    ----------
    slices_ : dict of slice
        Position of each part in the result.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> features = LearnedFeatures(["columns", "outliers"])
    >>> features.fit_transform(X).shape
    (100, 6)
    >>> features.slices_["outliers"]
    slice(4, 6, None)
    """

    parts: Annotated[Any, fields.ListOf(fields.Text(choices=_PARTS))]
    smooth: Annotated[bool, fields.FLAG]
    widths: Annotated[
        Any, fields.Either(fields.ListOf(fields.POSITIVE), fields.Array("f", (None,)))
    ]
    random_state: Annotated[Any, fields.SEED]
    scaler_: Annotated[
        Any, fields.Record(("SmoothScaler", "ColumnScale"), {"n_features_in_": "n_features_in_"})
    ]
    kept_: Annotated[
        np.ndarray,
        fields.Array("i", ("kept",), low=0, below="n_features_in_", rising=True, different=True),
    ]
    maps_: Annotated[
        dict[str, Any],
        fields.DictOf(
            fields.Text(choices=_PARTS), fields.Record([each.__name__ for each in _MAPS.values()])
        ),
    ]

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        scaler, maps = state["scaler_"], state["maps_"]
        require(state["smooth"] == isinstance(scaler, SmoothScaler), "scaler_: another kind")
        columns = scaler.n_features_out_ if state["smooth"] else len(state["kept_"])
        widths = {"columns": columns}
        for part, each in maps.items():
            require(type(each) is _MAPS.get(part), f"maps_[{part!r}]: another kind")
            require(each.shape[0] == columns, "maps_: of other columns")
            require(each.shape[1] > 0, f"maps_[{part!r}]: empty")
            widths[part] = each.shape[1]
        require(set(state["parts"]) <= set(widths), "parts: without their maps")
        total = sum(widths[part] for part in state["parts"])
        require(state["n_features_out_"] == total, "n_features_out_: another number")

    def __init__(
        self,
        parts: Sequence[str] = ("columns", "outliers", "components"),
        *,
        smooth: bool = False,
        widths: Sequence[float] = (0.5, 1.0, 2.0),
        random_state: int | None = None,
    ):
        self.parts = parts
        self.smooth = smooth
        self.widths = widths
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LearnedFeatures:
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn from all rows, and return their features, each row's without itself."""
        for part in self.parts:
            check_choice("parts", part, _PARTS)
        X = check_numbers(self, X, reset=True)
        self.scaler_ = SmoothScaler().fit(X) if self.smooth else ColumnScale.of(X)
        # A constant column has no scale, and would be 0 / 0.
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        # Every part is learned from the same columns, so that scoring computes them once.
        Z, seed = self.columns_of(X), self.random_state or 0
        self.maps_ = {}
        blocks = {}
        for part in self.parts:
            if part == "columns":
                blocks[part] = Z
            else:
                settings = {"widths": self.widths} if part == "kernels" else {}
                self.maps_[part], blocks[part] = _MAPS[part].fit_transform(Z, seed, **settings)
        F = np.hstack(list(blocks.values()))
        self.n_features_out_ = F.shape[1]
        return F

    def transform(self, X: Any) -> np.ndarray:
        """The parts of each row, side by side."""
        check_is_fitted(self)
        Z = self.columns_of(check_numbers(self, X, reset=False))
        return np.hstack([self.part_of(part, Z) for part in self.parts])

    @property
    def slices_(self) -> dict[str, slice]:
        """Position of each part in the result."""
        columns = self.scaler_.n_features_out_ if self.smooth else len(self.kept_)
        ends = accumulate(
            (columns if part == "columns" else self.maps_[part].shape[1] for part in self.parts),
            initial=0,
        )
        return {part: slice(*pair) for part, pair in zip(self.parts, pairwise(ends), strict=True)}

    def part_of(self, part: str, Z: np.ndarray) -> np.ndarray:
        return Z if part == "columns" else np.asarray(self.maps_[part].transform(Z))

    def columns_of(self, X: np.ndarray) -> np.ndarray:
        """The columns of checked rows on one scale, from which all parts are computed."""
        if self.smooth:
            return np.asarray(self.scaler_.transform(X))
        Z = self.scaler_.transform(X)[:, self.kept_]
        return np.clip(Z, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def kept_rows(self) -> int:
        """Return the number of standardised training rows that the parts hold."""
        maps = self.maps_.items()
        return sum(len(each.rows) for part, each in maps if part in ("outliers", "kernels"))

    def onnx_parts(self, graph: Any, rows: str) -> dict[str, str]:
        """Return the parts of rows in an ONNX graph, by name."""
        if self.smooth:
            Z = self.scaler_.onnx_rows(graph, rows)
        else:
            mean, scale = self.scaler_.mean[self.kept_], self.scaler_.scale[self.kept_]
            numbers = (GraphNumbers(graph, rows)[:, self.kept_] - mean) / scale
            Z = np.clip(numbers, -_MOST_DEVIATIONS, _MOST_DEVIATIONS).node
        return {"columns": Z} | {
            part: each.onnx_rows(graph, Z) for part, each in self.maps_.items()
        }


class NativeColumns:
    """Columns as the pretrained network reads them: blanks as blanks, a category as one column.

    First come numbers on one scale with NaN where blank: those of Z, the encoded columns that vary
    (`kept`) on one scale. Then come categories. With K levels that have a yes/no column in Z, their
    codes are 0 to K - 1, and K for any other cell.
    """

    def __init__(self, encoder: OneHotImputer, kept: np.ndarray):
        n_numbers, n_marks = len(encoder.numbers_), len(encoder.marks_)
        varies = np.zeros(encoder.n_features_out_, dtype=bool)
        varies[kept] = True
        # Encoded column j, if it varies, is column place[j] of Z.
        place = np.cumsum(varies) - 1
        number_of = np.searchsorted(encoder.numbers_, encoder.marks_)
        mark = n_numbers + np.arange(n_marks)
        both = varies[number_of] & varies[mark]
        # A number that is the same in all filled rows shows only whether it is filled.
        alone = varies[mark] & ~varies[number_of]
        numbers = np.flatnonzero(varies[:n_numbers])
        self.cells = place[np.concatenate([numbers, mark[alone]])]  # positions in Z
        # Positions among the cells of those that may be blank, and the columns of a table that
        # tell whether they are.
        self.marked = np.searchsorted(numbers, number_of[both])
        self.blanks = np.array(encoder.marks_, dtype=int)[both]
        self.categories: list[tuple[int, np.ndarray]] = []  # columns of a table with their levels
        start = n_numbers + n_marks
        for column, codes in zip(encoder.categories_, encoder.codes_, strict=True):
            levels = codes[varies[start : start + len(codes)]]
            start += len(codes)
            if len(levels):
                self.categories.append((column, levels))

    @classmethod
    def of(cls, encoder: Encoder, view: LearnedFeatures) -> NativeColumns | None:
        """Those of a view of encoded rows; None if they are the columns of the view."""
        if isinstance(encoder, OneHotImputer) and (encoder.marks_ or any(map(len, encoder.codes_))):
            return cls(encoder, view.kept_)
        return None

    @property
    def n_features_out_(self) -> int:
        return len(self.cells) + len(self.categories)

    def transform(self, Z: np.ndarray, rows: np.ndarray) -> np.ndarray:
        cells = Z[:, self.cells]
        blank = np.isnan(rows[:, self.blanks])
        cells[:, self.marked] = np.where(blank, np.nan, cells[:, self.marked])
        if not self.categories:
            return cells
        codes = [level_places(rows[:, j], levels, len(levels)) for j, levels in self.categories]
        return np.hstack([cells, np.column_stack(codes).astype(float)])

    def onnx_columns(self, graph: Any, Z: str, rows: str) -> str:
        blocks = []
        if len(self.cells):
            cells = graph.node("Gather", Z, self.cells, axis=1)
            if len(self.marked):
                # Cells that are never blank look at column 0, and `may_be` rules them out.
                which = np.zeros(len(self.cells), dtype=int)
                which[self.marked] = self.blanks
                blank = graph.node("IsNaN", graph.node("Gather", rows, which, axis=1))
                may_be = np.isin(np.arange(len(self.cells)), self.marked)
                blank = graph.node("And", blank, may_be)
                cells = graph.node("Where", blank, np.array(np.nan), cells)
            blocks.append(cells)
        for j, levels in self.categories:
            column, n_levels = graph.node("Gather", rows, np.array([j]), axis=1), len(levels)
            yes = graph.cast(graph.node("Equal", column, levels), np.float64)
            # A cell equals one level at most: the product is code - K, or 0 for any other cell.
            code = graph.node("MatMul", yes, np.arange(-n_levels, 0.0)[:, None])
            blocks.append(graph.node("Add", code, np.array([float(n_levels)])))
        return beside(graph, blocks)
