"""Learned features as nodes of an ONNX graph, in doubles as in NumPy.

Nothing here is a scalar next to a product of matrices: onnxruntime would fuse both, and keep the
scalar in single precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def beside(g: Any, blocks: Sequence[str]) -> str:
    """Return blocks of columns side by side."""
    return blocks[0] if len(blocks) == 1 else str(g.node("Concat", *blocks, axis=1))


def standardised(g: Any, X: str, mean: np.ndarray, scale: np.ndarray) -> str:
    """Return (x - mean) / scale."""
    return str(g.node("Div", g.node("Sub", X, mean), scale))


def clipped(g: Any, X: str, most: float) -> str:
    """Return values clipped to +-most."""
    return str(g.node("Clip", X, np.array(-most), np.array(most)))


def log_distances(g: Any, X: str, rows: np.ndarray, k: int, floor: float) -> str:
    """Return log(d + floor), with d the distance to the k-th neighbour among `rows`, as a column.

    The k nearest rows r are those with the smallest |r|^2 - 2 <x, r>, one product of matrices. The
    distances to them are computed from differences, so that a row among them is at distance 0.
    """
    ranks = g.node("Gemm", X, rows, np.einsum("ij,ij->i", rows, rows), alpha=-2.0, transB=1)
    _, nearest = g.several("TopK", 2, ranks, np.array([min(k, len(rows))]), largest=0, sorted=0)
    away = g.node("Sub", g.node("Gather", rows, nearest), g.node("Unsqueeze", X, np.array([1])))
    squares = g.node("ReduceSumSquare", away, np.array([2]), keepdims=0)
    d = g.node("Sqrt", g.node("ReduceMax", squares, np.array([1]), keepdims=1))
    return str(g.node("Log", g.node("Add", d, np.array(floor))))


def kernels(
    g: Any, X: str, rows: np.ndarray, gammas: Iterable[float], normalizations: Iterable[np.ndarray]
) -> str:
    """Return exp(-gamma ||x - r||^2) N' for rows r, side by side for each gamma and its N."""
    norms = g.node("ReduceSumSquare", X, np.array([1]), keepdims=1)
    sums = g.node("Add", norms, np.einsum("ij,ij->i", rows, rows))
    squared = g.node("Relu", g.node("Sub", sums, g.node("MatMul", X, 2 * rows.T)))
    blocks = []
    for gamma, normalization in zip(gammas, normalizations, strict=True):
        kernel = g.node("Exp", g.node("Mul", squared, np.array(-float(gamma))))
        blocks.append(g.node("MatMul", kernel, normalization.T))
    return beside(g, blocks)
