r"""The network of `riskad.PretrainedRAD` in NumPy: how it reads a table.

A table is a grid of cells. A cell with the value v begins as a linear function of what is said of
it: (v, |v|, v^2), and by later weights also

    u = 2 F(v) - 1,  sin(pi k u), cos(pi k u) for k = 1, 2, 4, 8, 16,
    log(1 + n), log(1 + n_anomaly), log(1 + n_normal),  whether the cell is blank,

where F is the distribution function of the column in the context, and n, n_anomaly and n_normal
count the rows, labelled anomalies and labelled normals of the context that share the value. So a
level of a category is known by the rows that have it, however levels are numbered. A row of the
context does not count itself. Of a blank cell nothing but its being blank is said.

Each row has one cell more, for its label: normal, anomaly or none. Each of five layers lets the
cells of a row attend to each other, then the cells of a column to those of the context, and then
changes each cell on its own. By later weights four layers more follow, in which a row is a single
cell that attends to the rows of the context; it begins as a linear function of the row's last cell
and the mean of the others. A row's score is read from its last cell, and from the single one. So
neither the order of rows nor that of columns matters, and rows outside the context do not know of
each other.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from riskad.core.checks import InputError, enumerate_names

__all__ = ["WEIGHTS", "Memory", "TableNetwork"]

WEIGHTS = ("tables-2", "tables-3")
"""Trainings of the network that come with the package."""

_NORMAL, _ANOMALY = 1, 2  # states of rows; 0 is without a label
_HEAD = 32  # width of a head
_WAVES = (1, 2, 4, 8, 16)
_SAME = np.float32(1e-5)  # cells that differ by no more hold the same value
_EPSILON = 1e-5


class Memory(NamedTuple):
    """What the network keeps of the context."""

    columns: list[_Column]
    """What the values of a cell are compared with."""
    cells: list[tuple[np.ndarray, np.ndarray]]
    """Of each layer of cells the keys and values."""
    rows: list[tuple[np.ndarray, np.ndarray]]
    """The same of layers of rows."""


class TableNetwork:
    """The trained network. Arrays of layers have one layer after the other."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.depth = len(arrays["up"])
        self.row_depth = len(arrays.get("row_up", ()))
        self.reads_blanks = len(arrays["cell"]) > 4

    @classmethod
    @lru_cache(maxsize=len(WEIGHTS))
    def load(cls, name: str) -> TableNetwork:
        """The weights that come with the package."""
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
        """Keys and values of the context, layer by layer; of the last for cells of labels alone."""
        columns = [_Column(z, states) for z in Z.T] if self.reads_blanks else []
        memory = Memory(columns, [], [])
        x = self._cells(Z, states, columns, own=True)
        for layer in range(self.depth):
            others = x[:, :-1]
            x = self._among_cells(x, layer)
            memory.cells.append(self._keys_and_values(x.swapaxes(0, 1), layer))
            if layer < self.depth - 1 or self.row_depth:
                x = self._alone(self._to_context(x, layer, *memory.cells[-1]), layer)
        if self.row_depth:
            row = self._rows(x, others)
            for layer in range(self.row_depth):
                memory.rows.append(self._keys_and_values(row, layer, "row_"))
                row = self._row_layer(row, layer, *memory.rows[-1])
        return memory

    def score(self, Z: np.ndarray, memory: Memory) -> np.ndarray:
        """s(x) of rows without a label."""
        x = self._cells(Z, np.zeros(len(Z), int), memory.columns)
        for layer, known in enumerate(memory.cells):
            others = x[:, :-1]
            x = self._among_cells(x, layer)
            x = self._alone(self._to_context(x, layer, *known), layer)
        scores = _affine(_normed(x[:, -1], self.arrays["norm"]), self.arrays["head"])
        if self.row_depth:
            row = self._rows(x, others)
            for layer, known in enumerate(memory.rows):
                row = self._row_layer(row, layer, *known)
            row = _normed(row, self.arrays["row_norm"])
            scores = scores + _affine(row, self.arrays["row_head"])
        return np.asarray(scores)

    def _cells(
        self, Z: np.ndarray, states: np.ndarray, columns: list[_Column], own: bool = False
    ) -> np.ndarray:
        """Cells (rows, columns + 1, width) as they begin; `own` are rows of the context."""
        if columns:
            said = np.stack(
                [
                    column.said(z, states if own else None)
                    for column, z in zip(columns, Z.T, strict=True)
                ],
                axis=1,
            )
        else:
            said = np.stack([Z, np.abs(Z), Z * Z], axis=-1)
        cells = _affine(said, self.arrays["cell"])
        return np.concatenate([cells, self.arrays["label"][states][:, None]], axis=1)

    def _among_cells(self, x: np.ndarray, layer: int) -> np.ndarray:
        """Cells of a row attend to all of them; in the last layer the last cell alone asks."""
        first = -1 if layer == self.depth - 1 else 0
        queries, keys, values, out = self.arrays["cells"][layer]
        z = _normed(x, self.arrays["norm_cells"][layer])
        asked = _by_head(z[:, first:] @ queries)
        found = _attention(asked, _by_head(z @ keys), _by_head(z @ values))
        return np.asarray(x[:, first:] + _joined(found) @ out)

    def _keys_and_values(
        self, x: np.ndarray, layer: int, prefix: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        _, keys, values, _ = self.arrays[f"{prefix}rows"][layer]
        z = _normed(x, self.arrays[f"{prefix}norm_rows"][layer])
        return _by_head(z @ keys), _by_head(z @ values)

    def _to_context(
        self, x: np.ndarray, layer: int, keys: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Cells of a column attend to those of the context."""
        queries, _, _, out = self.arrays["rows"][layer]
        z = _normed(x, self.arrays["norm_rows"][layer]).swapaxes(0, 1)
        columns = zip(_by_head(z @ queries), keys, values, strict=True)
        found = np.stack([_attention(*column) for column in columns])  # one at a time: memory
        return x + (_joined(found) @ out).swapaxes(0, 1)

    def _alone(self, x: np.ndarray, layer: int, prefix: str = "") -> np.ndarray:
        """Each cell by itself, through one hidden layer."""
        weights = {
            name: self.arrays[f"{prefix}{name}"][layer]
            for name in ("norm_alone", "up", "up_bias", "down", "down_bias")
        }
        z = _normed(x, weights["norm_alone"])
        z = _gelu(z @ weights["up"] + weights["up_bias"])
        return np.asarray(x + z @ weights["down"] + weights["down_bias"])

    def _rows(self, x: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Rows as single cells (rows, width)."""
        return _affine(np.hstack([x[:, -1], others.mean(axis=1)]), self.arrays["row_in"])

    def _row_layer(
        self, row: np.ndarray, layer: int, keys: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        queries, _, _, out = self.arrays["row_rows"][layer]
        z = _normed(row, self.arrays["row_norm_rows"][layer])
        found = _joined(_attention(_by_head(z @ queries), keys, values))
        return self._alone(row + found @ out, layer, "row_")


class _Column:
    """The values of a column in the context, sorted, with how many have each kind of label."""

    def __init__(self, z: np.ndarray, states: np.ndarray):
        filled = ~np.isnan(z)
        order = np.argsort(z[filled], kind="stable")
        self.ordered = z[filled][order]
        of_kind = states[filled][order]
        self.sums = np.zeros((3, len(order) + 1), np.float32)
        for row, kind in enumerate((None, _ANOMALY, _NORMAL)):
            self.sums[row, 1:] = np.cumsum(of_kind == kind if kind else np.ones_like(of_kind))

    def said(self, z: np.ndarray, states: np.ndarray | None) -> np.ndarray:
        """What is said of cells of the column (rows, channels); of the context with its states."""
        blank = np.isnan(z)
        v = np.where(blank, np.float32(0), z)
        left = np.searchsorted(self.ordered, v - _SAME)
        right = np.searchsorted(self.ordered, v + _SAME)
        counts = self.sums[:, right] - self.sums[:, left]
        if states is not None:
            counts -= np.stack([np.ones_like(states), states == _ANOMALY, states == _NORMAL])
        u = ((left + right) / max(len(self.ordered), 1) - 1).astype(np.float32)
        waves = [wave(np.float32(np.pi * k) * u) for k in _WAVES for wave in (np.sin, np.cos)]
        shared = np.log1p(np.maximum(counts, 0))
        said = np.stack([v, np.abs(v), v * v, u, *waves, *shared, np.zeros_like(v)], axis=-1)
        said[blank] = np.eye(said.shape[1], dtype=np.float32)[-1]
        return said


def _affine(x: np.ndarray, weights_and_bias: np.ndarray) -> np.ndarray:
    return np.asarray(x @ weights_and_bias[:-1] + weights_and_bias[-1])


def _by_head(x: np.ndarray) -> np.ndarray:
    """(..., n, width) as (..., heads, n, width / heads)."""
    return x.reshape(*x.shape[:-1], -1, _HEAD).swapaxes(-2, -3)


def _joined(x: np.ndarray) -> np.ndarray:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k' / sqrt(width)) v."""
    weights = (q / np.sqrt(np.float32(q.shape[-1]))) @ k.swapaxes(-1, -2)
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    return np.asarray((weights @ v) / weights.sum(axis=-1, keepdims=True))


def _normed(x: np.ndarray, scale_and_shift: np.ndarray) -> np.ndarray:
    scale, shift = scale_and_shift
    z = x - x.mean(axis=-1, keepdims=True)
    variance = (z**2).mean(axis=-1, keepdims=True)
    z /= np.sqrt(variance + np.float32(_EPSILON))
    z *= scale
    z += shift
    return np.asarray(z)


def _gelu(x: np.ndarray) -> np.ndarray:
    """Half of x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); one array, as memory takes time."""
    z = x * x
    z *= np.float32(0.044715)
    z += np.float32(1)
    z *= x
    z *= np.float32(np.sqrt(2 / np.pi))
    np.tanh(z, out=z)
    z += np.float32(1)
    z *= x
    z *= np.float32(0.5)
    return z
