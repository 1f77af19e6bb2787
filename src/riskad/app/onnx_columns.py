"""Columns of a table, and their preparation, as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from riskad.app.onnx_graph import Graph
from riskad.tables.preparation import TablePreparer

__all__ = ["prepared_rows", "rows_of"]


def prepared_rows(g: Graph, preparer: TablePreparer, detector: Any) -> str:
    """Return the rows that `TablePreparer.transform` gives, as the detector sees them."""
    inputs = [(column, column.onnx_input(g)) for column in preparer.used()]
    if preparer.form == "matrix":
        blocks = [node for column, value in inputs for node in column.onnx_block(g, value)]
        return g.node("Concat", *blocks, axis=1)
    nodes = {k: v for column, value in inputs for k, v in column.onnx_frame(g, value).items()}
    return _framed_rows(g, detector, nodes)


def rows_of(g: Graph, detector: Any) -> str:
    """Return X for a detector without a preparer; a column each where it reads texts by itself."""
    double, single = g.onnx.TensorProto.DOUBLE, g.onnx.TensorProto.FLOAT
    shape = getattr(detector, "shape_", (detector.n_features_in_,))
    if len(shape) > 1:
        sides = " x ".join(map(str, shape))
        return g.input("X", single, shape, f"images of {sides}, bytes divided by 255 if unscaled")
    levels = getattr(detector, "categories_", {})
    if not levels:
        return g.input("X", double, shape, f"rows of {shape[0]} numbers")
    names = detector.feature_names_in_
    nodes = {n: g.text(n) if i in levels else g.number(n) for i, n in enumerate(names)}
    return _framed_rows(g, detector, nodes)


def _framed_rows(g: Graph, detector: Any, nodes: Mapping[str, str]) -> str:
    """Columns of a frame as the detector sees them: texts as codes."""
    levels = getattr(detector, "categories_", {})
    columns = [
        _codes(g, node, levels[i]) if i in levels else node for i, node in enumerate(nodes.values())
    ]
    return g.node("Concat", *columns, axis=1)


def _codes(g: Graph, value: str, levels: Any) -> str:
    """Places of texts in a list, NaN for those not in it."""
    code = g.ml(
        "LabelEncoder",
        value,
        keys_strings=[str(level) for level in levels],
        values_floats=[float(i) for i in range(len(levels))],
        default_float=float("nan"),
    )
    return g.cast(code, np.float64)
