"""Columns of a table, and their preparation, as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.app.onnx_graph import Graph
from riskad.tables.cells import BLANK
from riskad.tables.preparation import OTHER, TablePreparer

__all__ = ["prepared_columns", "rows_of"]


def prepared_columns(g: Graph, preparer: TablePreparer) -> str:
    """Return the matrix that `TablePreparer.transform` gives."""
    blocks: list[str] = []
    for name, kind in preparer.kinds_.items():
        if kind == "number":
            blocks += _number_blocks(g, preparer, name)
        elif kind == "text":
            blocks.append(_text_block(g, g.text(name), preparer.levels_[name]))
    return g.node("Concat", *blocks, axis=1)


def _number_blocks(g: Graph, preparer: TablePreparer, name: str) -> list[str]:
    value = g.number(name)
    blank = g.node("IsNaN", value)
    blocks = []
    if name in preparer.medians_:
        blocks.append(g.node("Where", blank, np.array(preparer.medians_[name], dtype=float), value))
    if preparer.blanks_[name]:
        blocks.append(g.cast(blank, np.float64))
    return blocks


def _text_block(g: Graph, value: str, levels: list[str]) -> str:
    """Yes/no columns: rows of the unit matrix, and of zeros for a value that was never seen."""
    n = len(levels)
    codes = {level: i for i, level in enumerate(levels)}
    rest = codes.get(OTHER, n)
    codes[""] = codes.get(BLANK, rest)
    code = g.ml(
        "LabelEncoder",
        value,
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=rest,
    )
    units = g.node("Gather", np.eye(n + 1, n), code)
    return g.node("Reshape", units, np.array([-1, n]))


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
    columns = [
        _codes(g, g.text(name), levels[i]) if i in levels else g.number(name)
        for i, name in enumerate(names)
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
