"""Columns of a table, and their preparation, as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import polars as pl

from riskad.app.onnx_graph import Graph
from riskad.rows.table import TableSchema
from riskad.tables.kinds.base import Column
from riskad.tables.kinds.categories import onnx_codes
from riskad.tables.preparation import TablePreparer

__all__ = ["prepared_rows", "rows_of"]

_SECONDS = "seconds since 1970-01-01 00:00 of the clock as written, or long; NaN if blank"


def prepared_rows(g: Graph, preparer: TablePreparer) -> str:
    """Return the rows of `TablePreparer.transform`."""
    cells = {column.name: _cells(g, column) for column in preparer.used()}
    nodes = [n for c in preparer.used() for n in c.onnx_features(g, cells[c.name])]
    nodes += [node for each in preparer.derived_ for node in each.onnx(g, cells)]
    table = g.node("Concat", *nodes, axis=1)
    return preparer.encoder_.onnx_rows(g, table) if preparer.encode else table


def _cells(g: Graph, column: Column) -> str:
    """Add a column to the inputs; graphs read no dates, so these are seconds."""
    dtype = column.typed([]).dtype
    if dtype == pl.String:
        return g.text(column.name)
    if not dtype.is_temporal():
        return g.number(column.name)
    since = {"time": "seconds since midnight", "duration": "seconds"}
    words = since.get(column.kind, "seconds since 1970-01-01 00:00 of the clock as written")
    return g.number(column.name, f"{words}, NaN if blank")


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
    columns = [
        onnx_codes(g, node, schema.levels[i]) if i in schema.levels else node
        for i, node in enumerate(nodes.values())
    ]
    return g.node("Concat", *columns, axis=1)
