"""The one form of rows between a file, or a frame, and a detector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

__all__ = ["Table"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as detectors see them: numbers, and categories as codes; NaN is a blank in both.

    Trees and the network take it as it is. Methods that need finite numbers on comparable scales
    put an encoder on top (`riskad.rows.encoding.OneHotImputer`).

    Parameters
    ----------
    values
        Array or CSR matrix of shape (n_rows, n_columns). A category holds the position of its
        level in `levels`, or NaN where it is blank or of a level that was not seen in fit.
    names
        Name of each column.
    levels
        The texts of each category, by the column's position, the most frequent first.
    periods
        Columns that come round, with the length of a round: 24 for an hour.

    Examples
    --------
    >>> table = Table(np.array([[31.0, 0.0], [np.nan, 1.0]]), ("age", "town"), {1: ["Ulm", "Bonn"]})
    >>> table.shape, table[[1]].values.tolist()
    ((2, 2), [[nan, 1.0]])
    """

    values: Any
    names: tuple[str, ...]
    levels: Mapping[int, list[str]] = field(default_factory=dict)
    periods: Mapping[int, float] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        n_rows, n_columns = self.values.shape
        return n_rows, n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Table:
        """Some of the rows."""
        return replace(self, values=self.values[rows])
