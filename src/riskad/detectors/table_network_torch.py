"""The network of `riskad.detectors.table_network` on a device that torch knows, such as a GPU.

The context is read once in NumPy; its keys and values move to the device, and rows are scored
there, with the same folded weights. NumPy computes the inputs of cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from riskad.core.checks import InputError
from riskad.detectors.table_network import (
    EPSILON,
    Attention,
    Columns,
    KeysValues,
    Layer,
    Memory,
    TableNetwork,
    affine,
    by_head,
    heads,
    through,
)

_BLOCK_CELLS = 1 << 17  # cells scored at a time: enough for a large GPU


class DeviceNetwork(TableNetwork):
    """A network and what it has read, on a device."""

    def __init__(self, network: TableNetwork, memory: Memory, device: str):
        try:
            self.device = torch.device(device)
            # A device may have a valid name and not be there.
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device={device!r} cannot be used: {error}") from None

        def put(array: np.ndarray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        def put_layer(layer: Layer) -> Layer:
            return _DeviceLayer(_DeviceAttention(*map(put, layer.rows)), *map(put, layer[1:]))

        def put_context(context: KeysValues) -> KeysValues:
            keys = put(context.keys.swapaxes(1, 2))
            return KeysValues(keys, put(context.values), context.longest_key)

        self.arrays = {name: put(array) for name, array in network.arrays.items()}
        self.among = [_DeviceAttention(*map(put, each)) for each in network.among]
        self.layers = [put_layer(each) for each in network.layers]
        self.row_layers = [put_layer(each) for each in network.row_layers]
        cells, rows = ([put_context(each) for each in part] for part in memory[1:])
        self.memory = Memory(memory.columns, cells, rows)

    def scores(self, Z: np.ndarray) -> np.ndarray:
        step = max(1, _BLOCK_CELLS // (Z.shape[1] + 1))
        blocks = (Z[start : start + step] for start in range(0, len(Z), step))
        with torch.inference_mode():
            return np.concatenate([self.score(Z, self.memory).cpu().numpy() for Z in blocks])

    def _cells(
        self, Z: np.ndarray, states: np.ndarray, columns: Columns, of_context: bool = False
    ) -> Any:
        inputs = torch.from_numpy(columns.cell_inputs(Z, None)).to(self.device)
        label = self.arrays["label"][0].expand(len(Z), 1, -1)
        return torch.cat([affine(inputs, self.arrays["cell"]), label], dim=1)


class _DeviceAttention(Attention):
    def attend_in_row(self, x: Any, last: bool) -> Any:
        first = x.shape[1] - 1 if last else 0
        z = _by_spread(x)
        queries = through(z[:, first:], self.query) + self.query_shift
        keys, values = through(z, self.key_value).chunk(2, dim=-1)
        q, k, v = (by_head(each) for each in (queries, keys, values))
        # The scale 1 / sqrt(HEAD) is folded into the queries.
        attended = scaled_dot_product_attention(q, k, v, scale=1.0).swapaxes(1, 2).flatten(2)
        return self.add_attended(x[:, first:], attended)


class _DeviceLayer(Layer):
    def change(self, x: Any, context: KeysValues) -> Any:
        queries = heads(through(_by_spread(x), self.rows.query) + self.rows.query_shift)
        keys, values = context.keys[None], context.values[None]
        attended = scaled_dot_product_attention(queries[None], keys, values, scale=1.0)[0]
        x = self.rows.add_attended(x, attended.swapaxes(0, 1).reshape(x.shape))
        hidden = gelu(through(_by_spread(x), self.up) + self.up_shift, approximate="tanh")
        # `down` is halved for the doubled GELU of NumPy.
        return x + through(2 * hidden, self.down) + self.down_shift


def _by_spread(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + EPSILON)
