"""Scores of rows in memory, sparse rows and tensors, from fitted weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse

from riskad.detectors.base import refuse_non_finite
from riskad.detectors.linear.feature_maps import Features
from riskad.rows.memory import RowBlocks
from riskad.rows.sources import refuse_non_finite_rows

__all__ = ["LinearScores", "check_finite"]


@dataclass(frozen=True)
class LinearScores:
    """g(x) = <w, phi(x)> + b.

    Parameters
    ----------
    coef : array
        w, in the units of X; of phi(x) with a feature map.
    intercept : float
        b.
    features : Features
        phi.
    names : array of str, optional
        Names of the columns, for messages.
    """

    coef: np.ndarray
    intercept: float
    features: Features
    names: np.ndarray | None = None

    def __call__(self, X: Any) -> Any:
        """Scores of the rows of X, none of which may be NaN or infinite."""
        if is_torch_array(X):
            return self._of_tensor(X)
        mapped = self.features.feature_map is not None
        if mapped:
            check_finite(X, self.names)  # a map would refuse it without saying where it is
        with np.errstate(invalid="ignore", over="ignore"):  # reported by name below
            if mapped or X.dtype != np.float64:
                blocks = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8))
                scores = np.concatenate([self._of_block(block.X) for block in blocks])
            else:
                scores = X @ self.coef + self.intercept
        # A NaN in X shows in its score, unless its weight is zero and the product skipped it.
        if not np.isfinite(scores).all() or not np.all(self.coef):
            check_finite(X, self.names)
        return scores

    def _of_block(self, X: Any) -> np.ndarray:
        phi = X if self.features.feature_map is None else self.features.transform(X)
        return np.asarray(phi @ self.coef + self.intercept, dtype=np.float64)

    def _of_tensor(self, X: Any) -> Any:
        xp = array_namespace(X)
        scores = X @ xp.asarray(self.coef, dtype=X.dtype, device=X.device) + self.intercept
        if not bool(scores.isfinite().all()):
            zeros = xp.zeros(len(X), dtype=xp.int8, device=X.device)
            refuse_non_finite_rows(RowBlocks(X, zeros), self.names)
        return scores

    def contributions(self, X: Any) -> tuple[Any, float] | None:
        """w_j x_j and b; None with a feature map, in which columns interact."""
        if self.features.feature_map is not None:
            return None
        return (X.multiply(self.coef) if sparse.issparse(X) else X * self.coef), self.intercept

    def largest_norm(self, X: Any, constant: float) -> float:
        """Largest ||(phi(x), constant)||_2 of these rows."""
        rows = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8)).dense_sized()
        squared = max(float(_squared_norms(self.features(block.X)).max()) for block in rows)
        if not np.isfinite(squared):
            refuse_non_finite(X, self.names)
        return float(np.hypot(np.sqrt(squared), constant))


def check_finite(X: Any, names: np.ndarray | None) -> None:
    """Refuse a table in memory with NaN or infinities, and report where the first one is."""
    if not np.isfinite(X.data if sparse.issparse(X) else X).all():
        refuse_non_finite(X, names)


def _squared_norms(Z: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", Z, Z)
