"""The network of `riskad.PretrainedRAD` as nodes of an ONNX graph, in single precision.

The context is read by NumPy. Constants of the graph are its cells, as each layer attends to them;
onnxruntime computes keys and values from them once, when it loads a graph. A file thus takes up to
2 MB for each column. Reading the whole context at load time would save these, but take gigabytes of
memory: onnxruntime keeps all that it computes from constants until the last of them is computed.

Cells have the shape (columns + 1, rows, width): attention to the context, the largest part of the
work, is then one product of matrices for each column and head. A row in the layers of rows has the
shape (1, rows, width), as if it were one column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.detectors.table_network import EPSILON, HEAD, SAME, WAVES, TableNetwork, kind_indicators

_AFFINE = ("cell", "row_in", "head", "row_head")  # weights, with the bias as their last row


def table_network_scores(
    g: Any, Z: str, network: TableNetwork, context: np.ndarray, states: np.ndarray
) -> str:
    """s(x) of rows Z, without a label, in doubles; the network reads `context` and its `states`."""
    arrays = network.arrays
    layers = _Layers(g, arrays)
    cells = iter(network.context_cells(context, states))
    # (columns + 1, rows, width): inputs of cells, and the label, which is none.
    width = np.array([arrays["label"].shape[1]])
    shape = g.node("Concat", np.array([1]), g.node("Shape", Z, start=0, end=1), width, axis=0)
    label = g.node("Expand", arrays["label"][0], shape)
    x = g.node(
        "Concat", layers.affine(layers.cell_inputs(Z, context, states), "cell"), label, axis=0
    )
    depth = len(arrays["up"])
    for layer in range(depth):
        others, x = layers.sliced(x, 0, -1), layers.among_cells(x, layer, layer == depth - 1)
        x = layers.read_context(x, next(cells), layer)
    scores = layers.read_out(x)
    # Rows as single cells (1, rows, width), from the last cell and the mean of the others.
    mean = g.node("ReduceMean", others, np.array([0]), keepdims=1)
    x = layers.affine(g.node("Concat", x, mean, axis=2), "row_in")
    for layer in range(len(arrays["row_up"])):
        x = layers.read_context(x, next(cells), layer, "row_")
    scores = g.node("Add", scores, layers.read_out(x, "row_"))
    return g.cast(scores, np.float64)


class _Layers:
    """The parts of the network; `riskad.detectors.table_network` has the same in NumPy."""

    def __init__(self, g: Any, arrays: dict[str, np.ndarray]):
        self.g = g
        self.arrays = arrays | {
            part: arrays[name][rows]
            for name in _AFFINE
            for part, rows in ((name, slice(None, -1)), (f"{name}_bias", -1))
        }
        self.constants: dict[tuple[Any, ...], str] = {}

    def weights(self, name: str, *place: Any, scale: float = 1.0) -> str:
        """Weights as a constant, which exists once for all uses."""
        if (name, *place) not in self.constants:
            value = self.arrays[name][place] * np.float32(scale)
            self.constants[name, *place] = self.g.constant(value)
        return self.constants[name, *place]

    def cell_inputs(self, Z: str, context: np.ndarray, states: np.ndarray) -> str:
        """Inputs of each cell, (columns, rows, channels)."""
        g = self.g
        z = g.node("Unsqueeze", g.node("Transpose", Z, perm=[1, 0]), np.array([2]))
        blank = g.node("IsNaN", z)
        v = g.node("Where", blank, np.float32(0), z)
        # How many cells of the context are below v, twice, and how many of each kind share v. A
        # blank cell of the context is above every value, and so in none of the counts; cells with
        # the same value count once, the others below it twice.
        values = np.where(np.isnan(context), np.inf, context).astype(np.float32).T[:, None]
        ends = (g.node("Sub", v, SAME), g.node("Add", v, SAME))
        less = [g.cast(g.node("Less", values, end), np.float32) for end in ends]
        below = g.node("ReduceSum", g.node("Add", *less), np.array([2]), keepdims=1)
        kinds = kind_indicators(states).T.astype(np.float32)  # (rows, 3)
        counts = g.node("MatMul", g.node("Sub", *less[::-1]), kinds)
        filled = np.maximum((~np.isnan(context)).sum(axis=0), 1.0)[:, None, None]
        # In doubles, as in NumPy, where counts are whole numbers.
        u = g.node("Sub", g.node("Div", g.cast(below, np.float64), filled), np.array(1.0))
        u = g.cast(u, np.float32)
        angles = [g.node("Mul", u, np.float32(np.pi * k)) for k in WAVES]
        waves = [g.node(wave, angle) for angle in angles for wave in ("Sin", "Cos")]
        shared = g.node("Log", g.node("Add", counts, np.float32(1)))
        powers = (v, g.node("Abs", v), g.node("Mul", v, v), u)
        of_value = g.node("Concat", *powers, *waves, shared, axis=2)
        of_value = g.node("Where", blank, np.float32(0), of_value)
        return g.node("Concat", of_value, g.cast(blank, np.float32), axis=2)

    def among_cells(self, x: str, layer: int, last: bool) -> str:
        """Cells of a row attend to all cells of the row; in the last layer only the last cell."""
        z = self.normed(x, "norm_cells", layer)
        source, normed = (self.sliced(each, -1, 2**31) if last else each for each in (x, z))
        queries = self.by_head(normed, "cells", layer, 0, perm=[1, 2, 0, 3])
        keys = self.by_head(z, "cells", layer, 1, perm=[1, 2, 3, 0])
        values = self.by_head(z, "cells", layer, 2, perm=[1, 2, 0, 3])
        attended = self.attention(queries, keys, values, back=[2, 0, 1, 3])
        return self.add_attended(source, attended, "cells", layer)

    def read_context(self, x: str, context: np.ndarray, layer: int, prefix: str = "") -> str:
        """Cells of a column attend to those of the context, and then change on their own."""
        kind = f"{prefix}rows"
        z, cells = self.normed(x, f"{prefix}norm_rows", layer), self.g.constant(context)
        _, keys, values, _ = (W.reshape(len(W), -1, HEAD) for W in self.arrays[kind][layer])
        attended = self.attention(
            self.by_head(z, kind, layer, 0, perm=[0, 2, 1, 3]),
            self.g.node("Einsum", cells, keys, equation="rcw,whd->chdr"),
            self.g.node("Einsum", cells, values, equation="rcw,whd->chrd"),
            back=[0, 2, 1, 3],
        )
        x = self.add_attended(x, attended, kind, layer)
        # Each cell on its own, through one hidden layer.
        g, z = self.g, self.normed(x, f"{prefix}norm_alone", layer)
        z = g.node("MatMul", z, self.weights(f"{prefix}up", layer))
        z = g.node(
            "Gelu", g.node("Add", z, self.weights(f"{prefix}up_bias", layer)), approximate="tanh"
        )
        z = g.node("MatMul", z, self.weights(f"{prefix}down", layer))
        return g.node("Add", x, g.node("Add", z, self.weights(f"{prefix}down_bias", layer)))

    def read_out(self, x: str, prefix: str = "") -> str:
        """The score of each row, from its last cell (1, rows, width)."""
        z = self.normed(x, f"{prefix}norm")
        return self.g.node("Reshape", self.affine(z, f"{prefix}head"), np.array([-1]))

    def affine(self, x: str, name: str) -> str:
        product = self.g.node("MatMul", x, self.weights(name))
        return self.g.node("Add", product, self.weights(f"{name}_bias"))

    def normed(self, x: str, name: str, *layer: int) -> str:
        scale, shift = self.weights(name, *layer, 0), self.weights(name, *layer, 1)
        return self.g.node("LayerNormalization", x, scale, shift, epsilon=EPSILON)

    def by_head(self, z: str, name: str, layer: int, which: int, perm: list[int]) -> str:
        """A projection with its heads apart; queries are divided by the root of a head's width."""
        scale = HEAD**-0.5 if which == 0 else 1.0
        product = self.g.node("MatMul", z, self.weights(name, layer, which, scale=scale))
        heads = self.g.node("Reshape", product, np.array([0, 0, -1, HEAD]))
        return self.g.node("Transpose", heads, perm=perm)

    def attention(self, queries: str, keys: str, values: str, back: list[int]) -> str:
        """softmax(q k') v, with the heads joined again."""
        g = self.g
        weights = g.node("Softmax", g.node("MatMul", queries, keys), axis=-1)
        attended = g.node("Transpose", g.node("MatMul", weights, values), perm=back)
        return g.node("Reshape", attended, np.array([0, 0, -1]))

    def add_attended(self, x: str, attended: str, name: str, layer: int) -> str:
        product = self.g.node("MatMul", attended, self.weights(name, layer, 3))
        return self.g.node("Add", x, product)

    def sliced(self, x: str, start: int, stop: int) -> str:
        """Some of the cells of each row; the label is the last one."""
        return self.g.node("Slice", x, *(np.array([i]) for i in (start, stop, 0)))
