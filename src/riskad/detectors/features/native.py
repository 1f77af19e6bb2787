"""Columns as the pretrained network reads them: blanks as blanks, a category as one column."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.detectors.features.graph import beside
from riskad.rows.encoding import OneHotImputer, SingularVectors, level_places

__all__ = ["NativeColumns", "native_columns"]


class NativeColumns:
    """Numbers on one scale with NaN where blank, then categories as codes.

    Numbers are those of Z, the encoded columns on one scale, without the marks of blanks: only a
    number that never varies leaves its mark. With K levels that have a yes/no column in Z, the
    codes of a category are 0 to K - 1, and K for any other cell.

    Parameters
    ----------
    encoder
        A fitted encoder with marks or levels.
    kept
        The encoded columns that vary: those of Z.
    """

    def __init__(self, encoder: OneHotImputer, kept: np.ndarray):
        n_numbers, n_marks = len(encoder.numbers_), len(encoder.marks_)
        varies = np.zeros(encoder.n_features_out_, dtype=bool)
        varies[kept] = True
        place = np.cumsum(varies) - 1
        number_of = np.searchsorted(encoder.numbers_, encoder.marks_)
        mark = n_numbers + np.arange(n_marks)
        both = varies[number_of] & varies[mark]
        alone = varies[mark] & ~varies[number_of]
        numbers = np.flatnonzero(varies[:n_numbers])
        self.cells = place[np.concatenate([numbers, mark[alone]])]
        """Positions in Z."""
        self.marked = np.searchsorted(numbers, number_of[both])
        """Positions among the cells of those that may be blank."""
        self.blanks = np.array(encoder.marks_, dtype=int)[both]
        """The columns of a table that tell whether they are."""
        self.categories: list[tuple[int, np.ndarray]] = []
        """Columns of a table, with their levels."""
        start = n_numbers + n_marks
        for column, codes in zip(encoder.categories_, encoder.codes_, strict=True):
            levels = codes[varies[start : start + len(codes)]]
            start += len(codes)
            if len(levels):
                self.categories.append((column, levels))

    @property
    def n_features_out_(self) -> int:
        """Number of columns."""
        return len(self.cells) + len(self.categories)

    def transform(self, Z: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the columns of rows of a table, and of the same rows encoded on one scale."""
        cells = Z[:, self.cells]
        blank = np.isnan(rows[:, self.blanks])
        cells[:, self.marked] = np.where(blank, np.nan, cells[:, self.marked])
        if not self.categories:
            return cells
        codes = [level_places(rows[:, j], levels, len(levels)) for j, levels in self.categories]
        return np.hstack([cells, np.column_stack(codes).astype(float)])

    def onnx_columns(self, graph: Any, Z: str, rows: str) -> str:
        """Return the same columns in an ONNX graph."""
        blocks = []
        if len(self.cells):
            cells = graph.node("Gather", Z, self.cells, axis=1)
            if len(self.marked):
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
            code = graph.node("MatMul", yes, np.arange(-n_levels, 0.0)[:, None])
            blocks.append(graph.node("Add", code, np.array([float(n_levels)])))
        return beside(graph, blocks)


def native_columns(encoder: OneHotImputer | SingularVectors, view: Any) -> NativeColumns | None:
    """Return the native columns of a view of encoded rows; None if they are those of the view."""
    if isinstance(encoder, OneHotImputer) and (encoder.marks_ or any(map(len, encoder.codes_))):
        return NativeColumns(encoder, view.kept_)
    return None
