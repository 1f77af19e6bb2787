"""Common operations on arrays, CSR matrices and torch tensors of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from scipy import sparse

__all__ = ["on_device", "on_host_array", "places_of", "row_slice", "to_dense", "to_numpy"]


def to_dense(X: Any) -> np.ndarray:
    """A dense copy of a few rows in double precision, on the host."""
    return np.asarray(X.toarray() if sparse.issparse(X) else on_host_array(X), dtype=np.float64)


def on_host_array(values: Any) -> Any:
    """A torch tensor as an array on the host; anything else unchanged."""
    if not is_torch_array(values):
        return values
    values = values.detach().cpu()
    half = values.dtype.is_floating_point and values.element_size() < 4
    return (values.float() if half else values).numpy()  # NumPy has no bfloat16


def to_numpy(array: Any) -> np.ndarray:
    """The array in double precision on the host."""
    return np.asarray(on_host_array(array), dtype=np.float64)


def places_of(mask: Any) -> Any:
    """Positions of entries that are not 0, as an array of the same kind."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.nonzero()[:, 0]


def on_device(X: Any) -> bool:
    """Whether X is a torch tensor in the memory of an accelerator."""
    return is_torch_array(X) and X.device.type != "cpu"


def row_slice(X: Any, rows: slice) -> Any:
    """Consecutive rows of X, without a copy if possible; all but tensors in float64."""
    if is_torch_array(X):
        return X[rows]
    if not sparse.issparse(X):
        return np.asarray(X[rows], dtype=np.float64)
    # X[rows] copies values and indices, and so does the constructor for a small part of a large
    # matrix; arrays that are set stay shared (float32 values are widened).
    first, last = X.indptr[rows.start], X.indptr[rows.stop]
    block = type(X)((rows.stop - rows.start, X.shape[1]), dtype=np.float64)
    block.data = np.asarray(X.data[first:last], dtype=np.float64)
    block.indices = X.indices[first:last]
    block.indptr = X.indptr[rows.start : rows.stop + 1] - first
    return block
