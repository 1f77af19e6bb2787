r"""The network of `riskad.PretrainedRAD` in NumPy: how it reads a table.

A table is a grid of cells. A cell with the value v starts as a linear function of its inputs

    v, |v|, v^2,  u = 2 F(v) - 1,  sin(pi k u), cos(pi k u) for k = 1, 2, 4, 8, 16,
    log(1 + n), log(1 + n_anomaly), log(1 + n_normal),  whether the cell is blank,

where F is the distribution function of the column in the context, and n, n_anomaly and n_normal
count the rows, labelled anomalies and labelled normal rows of the context with the same value. So
the network knows a level of a category by the rows that have it, however levels are numbered. A row
of the context does not count itself. The only input of a blank cell is that it is blank.

Each row has one more cell, for its label: normal, anomaly or none. In each of five layers, the
cells of a row attend to each other, the cells of a column attend to those of the context, and each
cell then changes on its own. In four more layers a row is a single cell that attends to the rows of
the context; it starts as a linear function of the row's last cell and the mean of the others. A
row's score is read from its last cell and from the single cell. So the order of rows and columns
does not matter, and rows outside the context do not affect each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from riskad.core.checks import InputError, enumerate_names
from riskad.core.losses import namespace

WEIGHTS = ("tables-3",)
"""Names of the weights that come with the package."""

NORMAL, ANOMALY = 1, 2  # states of rows; 0 is unlabelled
HEAD = 32  # width of a head
WAVES = (1, 2, 4, 8, 16)
SAME = np.float32(1e-5)  # cells that differ by at most this hold the same value
EPSILON = 1e-5
_SAFE = 60.0  # exponentials of logits up to this do not overflow, nor do sums of them
_AT_ONCE = 1 << 17  # logits that fit the cache of a core


class Memory(NamedTuple):
    """What the network keeps of the context."""

    columns: Columns  # what the values of a cell are compared with
    cells: list[KeysValues]  # for each layer of cells
    rows: list[KeysValues]  # for each layer of rows

    @property
    def bytes(self) -> int:
        return sum(one.keys.nbytes + one.values.nbytes for one in (*self.cells, *self.rows))


class KeysValues(NamedTuple):
    """Keys (heads, HEAD, rows) and values (heads, rows, HEAD) of the rows of the context.

    Heads of the first column come first, then those of the second, and so on. They may be tensors.
    """

    keys: Any
    values: Any
    longest_key: np.ndarray  # the largest norm of a key of each head


class TableNetwork:
    """The trained network. Arrays of layers are stacked by layer."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        depth, row_depth = len(arrays["up"]), len(arrays["row_up"])
        self.among = [Attention.of(arrays, "norm_cells", "cells", i) for i in range(depth)]
        self.layers = [Layer.of(arrays, "", i) for i in range(depth)]
        self.row_layers = [Layer.of(arrays, "row_", i) for i in range(row_depth)]

    @classmethod
    @lru_cache(maxsize=len(WEIGHTS))
    def load(cls, name: str) -> TableNetwork:
        """Load weights that come with the package."""
        if name not in WEIGHTS:
            raise InputError(
                f"The model was made with the weights {name!r}, which this version of riskad does "
                f"not have (it has {enumerate_names(WEIGHTS)}); take the version that the model "
                "was saved with."
            )
        file = files("riskad.detectors") / "weights" / f"{name}.npz"
        with file.open("rb") as opened, np.load(opened) as arrays:
            return cls({key: arrays[key].astype(np.float32) for key in arrays})

    def read(self, Z: np.ndarray, states: np.ndarray) -> Memory:
        """Keys and values of the context, layer by layer; in the last only of label cells."""
        columns = Columns(Z, states)
        context = [context for _, context in self._context(Z, states, columns)]
        depth = len(self.layers)
        return Memory(columns, context[:depth], context[depth:])

    def context_cells(self, Z: np.ndarray, states: np.ndarray) -> list[np.ndarray]:
        """Cells (rows, columns, width) of the context that each layer attends to, normed."""
        norms = [*self.arrays["norm_rows"], *self.arrays["row_norm_rows"]]
        cells = (cells for cells, _ in self._context(Z, states, Columns(Z, states)))
        return [_normed(each, norm) for each, norm in zip(cells, norms, strict=True)]

    def _context(
        self, Z: np.ndarray, states: np.ndarray, columns: Columns
    ) -> Iterator[tuple[np.ndarray, KeysValues]]:
        """The cells that each layer attends to, with their keys and values."""
        x = others = self._cells(Z, states, columns, of_context=True)
        for among, layer in zip(self.among, self.layers, strict=True):
            others, x = x, among.attend_in_row(x, last=layer is self.layers[-1])
            context = layer.context(x)
            yield x, context
            x = layer.change(x, context)
        row = self._rows(x, others)
        for layer in self.row_layers:
            context = layer.context(row)
            yield row, context
            row = layer.change(row, context)

    def score(self, Z: np.ndarray, memory: Memory) -> Any:
        x = others = self._cells(Z, np.zeros(len(Z), int), memory.columns)
        for among, layer, context in zip(self.among, self.layers, memory.cells, strict=True):
            others, x = x, among.attend_in_row(x, last=layer is self.layers[-1])
            x = layer.change(x, context)
        scores = affine(_normed(x[:, 0], self.arrays["norm"]), self.arrays["head"])
        row = self._rows(x, others)
        for layer, context in zip(self.row_layers, memory.rows, strict=True):
            row = layer.change(row, context)
        row = _normed(row[:, 0], self.arrays["row_norm"])
        return scores + affine(row, self.arrays["row_head"])

    def _cells(
        self, Z: np.ndarray, states: np.ndarray, columns: Columns, of_context: bool = False
    ) -> np.ndarray:
        """Initial cells (rows, columns + 1, width); `of_context` marks rows of the context."""
        cells = affine(columns.cell_inputs(Z, states if of_context else None), self.arrays["cell"])
        return np.concatenate([cells, self.arrays["label"][states][:, None]], axis=1)

    def _rows(self, x: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Rows as single cells (rows, 1, width)."""
        means = others[:, :-1].mean(axis=1)
        return affine(namespace(x).hstack([x[:, 0], means]), self.arrays["row_in"])[:, None]


class Attention(NamedTuple):
    """Weights of an attention, with the preceding norm folded in.

    With the scale s and the shift t of the norm before it, a product with W is

        ((x - mean) / sd s + t) W = (x / sd) W' + t W,  W' = (I - 11'/width) diag(s) W.

    For a key, t W adds the same to all logits of a query, and so changes nothing. For values, it
    passes through the weights, which sum to 1, and is part of the shift of the output.
    """

    query: np.ndarray
    query_shift: np.ndarray
    key_value: np.ndarray  # for keys and values at once
    out: np.ndarray
    out_shift: np.ndarray

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], norm: str, name: str, layer: int) -> Attention:
        queries, keys, values, out = arrays[name][layer].astype(float)
        scale, shift = arrays[norm][layer].astype(float)
        # The usual scale of logits, folded into the weights once.
        queries = queries / np.sqrt(HEAD)
        parts = (
            _folded(scale, queries),
            shift @ queries,
            _folded(scale, np.hstack([keys, values])),
            out,
            shift @ values @ out,
        )
        return cls(*(part.astype(np.float32) for part in parts))

    def attend_in_row(self, x: np.ndarray, last: bool) -> np.ndarray:
        """Cells of a row attend to all cells of the row; in the `last` layer only the last cell."""
        n, count, width = x.shape
        first = count - 1 if last else 0
        z = _by_spread(x)
        queries = through(z[:, first:], self.query)
        queries += self.query_shift
        # One product for keys and values: larger products are faster than more of them.
        both = through(z, self.key_value).reshape(n, count, 2, -1, HEAD)
        weights = by_head(queries) @ both[:, :, 0].transpose(0, 2, 3, 1)
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        # Written by head into its place: no second array, no transposition afterwards.
        attended = np.empty((n, count - first, width), np.float32)
        np.matmul(weights, both[:, :, 1].swapaxes(1, 2), out=by_head(attended))
        return self.add_attended(x[:, first:], attended)

    def add_attended(self, x: Any, attended: Any) -> Any:
        after = through(attended, self.out)
        after += self.out_shift
        after += x
        return after


class Layer(NamedTuple):
    """Cells attend to the context, and each then passes through a hidden layer on its own."""

    rows: Attention
    up: np.ndarray
    up_shift: np.ndarray
    down: np.ndarray
    down_shift: np.ndarray

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], prefix: str, layer: int) -> Layer:
        scale, shift = arrays[f"{prefix}norm_alone"][layer].astype(float)
        up, up_shift, down, down_shift = (
            arrays[f"{prefix}{name}"][layer].astype(float)
            for name in ("up", "up_bias", "down", "down_bias")
        )
        parts = (_folded(scale, up), shift @ up + up_shift, down / 2, down_shift)  # _twice_gelu
        attention = Attention.of(arrays, f"{prefix}norm_rows", f"{prefix}rows", layer)
        return cls(attention, *(part.astype(np.float32) for part in parts))

    def context(self, x: np.ndarray) -> KeysValues:
        """Keys and values of cells (rows, columns, width) of the context."""
        both = through(_by_spread(x), self.rows.key_value).reshape(*x.shape[:2], 2, -1)
        keys, values = (heads(np.ascontiguousarray(both[:, :, i])) for i in range(2))
        longest_key = np.sqrt(np.einsum("hrw,hrw->hr", keys, keys).max(axis=1))
        # Laid out as the product reads them: they are read for every block of rows that is scored.
        keys = np.ascontiguousarray(keys.swapaxes(1, 2))
        return KeysValues(keys, np.ascontiguousarray(values), longest_key)

    def change(self, x: np.ndarray, context: KeysValues) -> np.ndarray:
        queries = through(_by_spread(x), self.rows.query)
        queries += self.rows.query_shift
        x = self.rows.add_attended(x, _attend(queries, context))
        hidden = through(_by_spread(x), self.up)
        hidden += self.up_shift
        after = through(_twice_gelu(hidden), self.down)
        after += self.down_shift
        after += x
        return after


class Columns:
    """The sorted values of each column in the context, and how many rows have each label."""

    def __init__(self, Z: np.ndarray, states: np.ndarray):
        order = np.argsort(Z, axis=0, kind="stable")  # blanks come last
        filled = ~np.isnan(Z)
        self.filled = filled.sum(axis=0)
        ordered = np.take_along_axis(Z, order, axis=0).T
        self.ordered = [z[:n] for z, n in zip(ordered, self.filled, strict=True)]
        kinds = kind_indicators(states)[:, order] * np.take_along_axis(filled, order, axis=0)
        self.sums = np.zeros((3, len(Z) + 1, Z.shape[1]), np.float32)
        self.sums[:, 1:] = np.cumsum(kinds, axis=1)

    def cell_inputs(self, Z: np.ndarray, states: np.ndarray | None) -> np.ndarray:
        """Inputs of cells (rows, columns, channels); `states` if the rows are of the context."""
        blank = np.isnan(Z)
        v = np.where(blank, np.float32(0), Z)
        # Sorted values and two searches count the cells below and up to v without comparing all
        # pairs.
        ends = np.stack([v - SAME, v + SAME])
        places = np.empty(ends.shape, int)
        for column, ordered in enumerate(self.ordered):
            places[:, :, column] = ordered.searchsorted(ends[:, :, column])
        left, right = (np.take_along_axis(self.sums, place[None], axis=1) for place in places)
        counts = right - left
        if states is not None:
            # A row of the context does not count itself: it would know its own label.
            counts -= kind_indicators(states)[:, :, None]
        # The mean of both places: cells with the same value count half.
        u = (places.sum(axis=0) / np.maximum(self.filled, 1) - 1).astype(np.float32)
        inputs = np.empty((*Z.shape, 3 + 1 + 2 * len(WAVES) + len(counts) + 1), np.float32)
        for i, value in enumerate((v, np.abs(v), v * v, u)):
            inputs[..., i] = value
        for i, k in enumerate(WAVES):
            angle = np.float32(np.pi * k) * u
            inputs[..., 4 + 2 * i], inputs[..., 5 + 2 * i] = np.sin(angle), np.cos(angle)
        inputs[..., -1 - len(counts) : -1] = np.log1p(np.maximum(counts, 0)).transpose(1, 2, 0)
        inputs[blank] = 0
        # Set last: all other inputs of a blank cell are 0.
        inputs[..., -1] = blank
        return inputs


def kind_indicators(states: np.ndarray) -> np.ndarray:
    """Indicators of rows: any row, anomaly, normal."""
    return np.stack([np.ones_like(states), states == ANOMALY, states == NORMAL])


# Of arrays and of tensors, as `riskad.detectors.table_network_torch` has them:


def affine(x: Any, weights_and_bias: Any) -> Any:
    """The product x W + b, with b the last row of the weights."""
    return through(x, weights_and_bias[:-1]) + weights_and_bias[-1]


def through(x: Any, weights: Any) -> Any:
    """The product x W as one product; NumPy would compute one for each row of cells."""
    return (x.reshape(-1, x.shape[-1]) @ weights).reshape(*x.shape[:-1], *weights.shape[1:])


def by_head(x: Any) -> Any:
    """(..., n, width) as (..., heads, n, width / heads)."""
    return x.reshape(*x.shape[:-1], -1, HEAD).swapaxes(-2, -3)


def heads(x: Any) -> Any:
    """(rows, columns, width) as (columns x heads, rows, HEAD)."""
    return x.reshape(len(x), -1, HEAD).swapaxes(0, 1)


def _attend(queries: np.ndarray, context: KeysValues) -> np.ndarray:
    """softmax(q k') v of queries (rows, columns, width), which are scaled already."""
    # As many heads at a time as have weights that fit the cache of a core.
    attended = np.empty(queries.shape, np.float32)
    q, target = heads(queries), heads(attended)
    # No logit exceeds the product of the norms (Cauchy and Schwarz): mostly no maximum is needed.
    largest = np.sqrt(np.einsum("hrw,hrw->hr", q, q).max(axis=1)) * context.longest_key
    n_context = context.keys.shape[-1]
    ones = np.ones(n_context, np.float32)
    step = max(1, _AT_ONCE // (len(queries) * n_context))
    for start in range(0, len(q), step):
        some = slice(start, start + step)
        weights = q[some] @ context.keys[some]
        if largest[some].max() > _SAFE:
            weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        np.matmul(weights, context.values[some], out=target[some])
        target[some] /= (weights @ ones)[..., None]  # a product is quicker than a sum
    return attended


def _folded(scale: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(I - 11'/width) diag(scale) W."""
    scaled = scale[:, None] * weights
    return np.asarray(scaled - scaled.mean(axis=0))


def _by_spread(x: np.ndarray) -> np.ndarray:
    """Cells divided by their standard deviation; folded weights subtract the mean."""
    flat = x.reshape(-1, x.shape[-1])
    means = flat @ _equal_shares(flat.shape[1])
    # E[x^2] - mean^2: two products on the fly, without an array of differences.
    variances = np.einsum("ij,ij->i", flat, flat)
    variances /= np.float32(flat.shape[1])
    variances -= means * means
    variances += np.float32(EPSILON)
    return (flat / np.sqrt(variances)[:, None]).reshape(x.shape)


@lru_cache
def _equal_shares(width: int) -> np.ndarray:
    return np.full(width, 1 / width, np.float32)


def _normed(x: Any, scale_and_shift: Any) -> Any:
    scale, shift = scale_and_shift
    z = x - x.mean(axis=-1, keepdims=True)
    return z / ((z * z).mean(axis=-1, keepdims=True) + EPSILON) ** 0.5 * scale + shift


def _twice_gelu(x: np.ndarray) -> np.ndarray:
    """Twice the GELU, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), in place: memory is slow."""
    z = x * x
    z *= np.float32(0.044715 * np.sqrt(2 / np.pi))
    z += np.float32(np.sqrt(2 / np.pi))
    z *= x
    np.tanh(z, out=z)
    z += np.float32(1)
    z *= x
    return z
