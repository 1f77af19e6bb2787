"""Common operations on arrays, CSR matrices and torch tensors of rows, and on values of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from riskad.core.checks import InputError


def to_dense(X: Any) -> np.ndarray:
    """A dense copy of a few rows in double precision, on the host."""
    return np.asarray(X.toarray() if sparse.issparse(X) else on_host_array(X), dtype=np.float64)


def on_host_array(values: Any) -> Any:
    """A torch tensor as an array on the host; anything else unchanged."""
    if not is_torch_array(values):
        return values
    # Without its history: scores of rows take no part in a gradient.
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


def check_tensor(X: Any) -> Any:
    """A tensor of rows on its device, in the precision, single or double, that its numbers need."""
    if X.ndim != 2 or not len(X):
        raise InputError(f"X must have rows and columns, got a tensor of shape {tuple(X.shape)}.")
    X = X.detach()
    if X.dtype.is_complex:
        raise InputError("Complex data not supported: X must hold real numbers.")
    if X.dtype.is_floating_point:
        # Half precision has three digits: too few for sums over rows.
        return X if X.element_size() >= 4 else X.float()
    return X.float() if X.element_size() < 4 else X.double()


def are_codes(y: Any, n_rows: int) -> bool:
    """Whether y is a tensor with one code for each row, checked on its device."""
    return is_torch_array(y) and tuple(y.shape) == (n_rows,) and bool((y == y.sign()).all())


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


# --- values of an ONNX graph ----------------------------------------------------------------------

_NODES = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.true_divide: "Div",
    np.matmul: "MatMul",
    np.floor: "Floor",
    np.maximum: "Max",
    np.minimum: "Min",
    np.sqrt: "Sqrt",
    np.absolute: "Abs",
    np.sign: "Sign",
    np.sin: "Sin",
    np.cos: "Cos",
}


class GraphNumbers(NDArrayOperatorsMixin):
    """Doubles in an ONNX graph: a formula of NumPy's functions adds its nodes.

    So a formula is written once, for arrays and for graphs. A scalar must not stand next to a
    product of matrices: onnxruntime would fuse both, and keep the scalar in single precision.
    """

    def __init__(self, graph: Any, node: str):
        self.graph = graph
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """Add the node of one of NumPy's functions."""
        if method != "__call__" or settings:
            return NotImplemented
        if ufunc is np.remainder:  # which ONNX has for whole numbers alone
            value, period = inputs
            return value - np.floor(value / period) * period
        if ufunc is np.log1p:
            return GraphNumbers(self.graph, self.graph.node("Log", (self + 1.0).node))
        if ufunc not in _NODES:
            return NotImplemented
        values = [
            i.node if isinstance(i, GraphNumbers) else np.asarray(i, dtype=float) for i in inputs
        ]
        return GraphNumbers(self.graph, self.graph.node(_NODES[ufunc], *values))

    def __getitem__(self, places: Any) -> GraphNumbers:
        """Some columns: [:, columns]."""
        return GraphNumbers(self.graph, self.graph.node("Gather", self.node, places[1], axis=1))

    def clip(self, low: float, high: float, **_: Any) -> GraphNumbers:
        """Between two numbers; `np.clip` calls it."""
        ends = np.array(low), np.array(high)
        return GraphNumbers(self.graph, self.graph.node("Clip", self.node, *ends))
