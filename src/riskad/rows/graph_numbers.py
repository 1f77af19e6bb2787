"""Numbers of an ONNX graph that NumPy's functions work on, so that one formula serves both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["GraphNumbers"]

_NODES = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.true_divide: "Div",
    np.floor: "Floor",
    np.maximum: "Max",
    np.minimum: "Min",
    np.sin: "Sin",
    np.cos: "Cos",
}


class GraphNumbers(NDArrayOperatorsMixin):
    """A value of a graph, in doubles; arithmetic with it adds nodes.

    Parameters
    ----------
    graph
        A `riskad.app.onnx.Graph`.
    node
        The name of the value.
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
        if ufunc not in _NODES:
            return NotImplemented
        values = [i.node if isinstance(i, GraphNumbers) else np.array(float(i)) for i in inputs]
        return GraphNumbers(self.graph, self.graph.node(_NODES[ufunc], *values))
