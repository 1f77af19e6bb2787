"""How many rows a block holds."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from riskad.rows.arrays import on_device

__all__ = ["MIN_BLOCK_ROWS", "dense_rows", "rows_per_block"]


# Small enough to stay in cache, large enough that Python's cost per block is negligible.
_BLOCK_BYTES = 1 << 23
MIN_BLOCK_ROWS = 256
# On a device a block is added up in its own precision, and may be copied: a few million rows.
_DEVICE_BLOCK_ROWS = 1 << 22


def dense_rows(n_features: int) -> int:
    """Rows of a block that fits the cache when it is dense."""
    return max(1, _BLOCK_BYTES // (8 * n_features))


def rows_per_block(X: Any) -> int:
    """Rows of X in a block: as many as fit the cache."""
    if on_device(X):
        return _DEVICE_BLOCK_ROWS
    row_bytes = 8 * X.shape[1]
    if sparse.issparse(X):
        row_bytes = 12 * max(1, X.nnz // max(1, X.shape[0]))
    return max(MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes))
