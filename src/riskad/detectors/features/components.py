"""Principal components, as features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from riskad.storage.fields import Array, Fields

__all__ = ["PrincipalComponents"]


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """(x - mean) W', with a principal direction in each row of W: the arrays of a fitted PCA."""

    mean: np.ndarray
    components: np.ndarray

    _state_fields: ClassVar[Fields] = {
        "mean": Array("f", ("columns",)),
        "components": Array("f", ("components", "columns")),
    }

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.mean)

    @property
    def n_features_out_(self) -> int:
        """Number of components."""
        return len(self.components)

    def centred(self, projected: np.ndarray) -> np.ndarray:
        """The components of rows x, from their products x W'."""
        return np.asarray(projected - self.mean[None] @ self.components.T)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The components of rows that were checked."""
        return self.centred(X @ self.components.T)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the components in an ONNX graph."""
        W = self.components.T
        return str(graph.node("Sub", graph.node("MatMul", rows, W), self.mean @ W))
