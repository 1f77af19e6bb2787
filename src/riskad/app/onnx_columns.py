"""Columns of a table, and their preparation, as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from riskad.app.onnx_graph import Graph
from riskad.rows.table import TableSchema
from riskad.tables.preparation import TablePreparer

__all__ = ["prepared_rows", "rows_of"]

_SECONDS = "seconds since 1970-01-01 00:00 of the clock as written, or long; NaN if blank"


def prepared_rows(g: Graph, preparer: TablePreparer, detector: Any) -> str:
    """Return the rows of `TablePreparer.transform`, as the detector sees them."""
    inputs = {column.name: column.onnx_input(g) for column in preparer.used()}
    derived = [(each, each.onnx(g, inputs)) for each in preparer.derived_]
    if preparer.form == "matrix":
        blocks = [n for c in preparer.used() for n in c.onnx_block(g, inputs[c.name])]
        blocks += [
            _filled(g, *pair)
            for each, nodes in derived
            for pair in zip(nodes, each.fills, strict=True)
        ]
        return g.node("Concat", *blocks, axis=1)
    framed = [column.onnx_frame(g, inputs[column.name]) for column in preparer.used()]
    framed += [dict(zip(each.names(), nodes, strict=True)) for each, nodes in derived]
    return _framed_rows(g, detector, {k: v for each in framed for k, v in each.items()})


def _filled(g: Graph, node: str, fill: float) -> str:
    return g.node("Where", g.node("IsNaN", node), np.array(fill), node)


def rows_of(g: Graph, detector: Any) -> str:
    """Return X for a detector without a preparer; one input per column if it reads texts itself."""
    double, single = g.onnx.TensorProto.DOUBLE, g.onnx.TensorProto.FLOAT
    shape = getattr(detector, "shape_", (detector.n_features_in_,))
    if len(shape) > 1:
        sides = " x ".join(map(str, shape))
        return g.input("X", single, shape, f"images of {sides}, bytes divided by 255 if unscaled")
    schema = getattr(detector, "schema_", TableSchema())
    if schema == TableSchema():
        return g.input("X", double, shape, f"rows of {shape[0]} numbers")
    nodes = {
        name: g.text(name)
        if i in schema.levels
        else (g.number(name, _SECONDS) if i in schema.dates else g.number(name))
        for i, name in enumerate(detector.feature_names_in_)
    }
    return _framed_rows(g, detector, nodes)


def _framed_rows(g: Graph, detector: Any, nodes: Mapping[str, str]) -> str:
    """Columns of a frame as the detector sees them: texts as codes."""
    levels = getattr(detector, "schema_", TableSchema()).levels
    columns = [
        _codes(g, node, levels[i]) if i in levels else node for i, node in enumerate(nodes.values())
    ]
    return g.node("Concat", *columns, axis=1)


def _codes(g: Graph, value: str, levels: Any) -> str:
    """Positions of texts in a list, NaN for those not in it."""
    code = g.ml(
        "LabelEncoder",
        value,
        keys_strings=[str(level) for level in levels],
        values_floats=[float(i) for i in range(len(levels))],
        default_float=float("nan"),
    )
    return g.cast(code, np.float64)
