"""The network of `riskad.detectors.table_network` on a device that torch knows, such as a GPU.

The context is read once in NumPy; its keys and values move to the device, and rows are scored
there, with the same folded weights. NumPy computes the inputs of cells.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from riskad.core.checks import InputError
from riskad.detectors.table_network import EPSILON, HEAD, Memory, TableNetwork

_BLOCK_CELLS = 1 << 17  # cells scored at a time: enough for a large GPU


class DeviceNetwork:
    """A network and what it has read, on a device."""

    def __init__(self, network: TableNetwork, memory: Memory, device: str):
        try:
            self.device = torch.device(device)
            # A device may have a valid name and not be there.
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device={device!r} cannot be used: {error}") from None
        self._columns = memory.columns

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        self._arrays = {name: put(array) for name, array in network.arrays.items()}
        self._among = [[put(part) for part in each] for each in network.among]
        layers = zip(
            (*network.layers, *network.row_layers), (*memory.cells, *memory.rows), strict=True
        )
        put_layers = [
            (
                [put(part) for part in layer.rows],
                [put(part) for part in layer[1:]],
                (put(context.keys).transpose(1, 2).contiguous(), put(context.values)),
            )
            for layer, context in layers
        ]
        self._layers = put_layers[: len(network.layers)]
        self._row_layers = put_layers[len(network.layers) :]

    def score(self, Z: np.ndarray) -> np.ndarray:
        step = max(1, _BLOCK_CELLS // (Z.shape[1] + 1))
        with torch.inference_mode():
            parts = [self._score(Z[start : start + step]) for start in range(0, len(Z), step)]
            return np.concatenate([part.cpu().numpy() for part in parts])

    def _score(self, Z: np.ndarray) -> Tensor:
        inputs = torch.from_numpy(self._columns.cell_inputs(Z, None)).to(self.device)
        label = self._arrays["label"][0].expand(len(Z), 1, -1)
        x = others = torch.cat([_affine(inputs, self._arrays["cell"]), label], dim=1)
        for i, (among, layer) in enumerate(zip(self._among, self._layers, strict=True)):
            others, x = x, _attend_in_row(x, among, last=i == len(self._layers) - 1)
            x = _change(x, *layer)
        scores = _affine(_normed(x[:, 0], self._arrays["norm"]), self._arrays["head"])
        both = torch.hstack([x[:, 0], others[:, :-1].mean(dim=1)])
        row = _affine(both, self._arrays["row_in"])[:, None]
        for layer in self._row_layers:
            row = _change(row, *layer)
        row = _normed(row[:, 0], self._arrays["row_norm"])
        return scores + _affine(row, self._arrays["row_head"])


def _attend_in_row(x: Tensor, attention: list[Tensor], last: bool) -> Tensor:
    query, query_shift, key_value, out, out_shift = attention
    first = x.shape[1] - 1 if last else 0
    z = _by_spread(x)
    q = z[:, first:] @ query + query_shift
    k, v = (z @ key_value).chunk(2, dim=-1)
    q, k, v = (each.reshape(*each.shape[:2], -1, HEAD).transpose(1, 2) for each in (q, k, v))
    # The scale 1 / sqrt(HEAD) is folded into the queries.
    attended = scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2).flatten(2)
    return x[:, first:] + attended @ out + out_shift


def _change(
    x: Tensor, attention: list[Tensor], alone: list[Tensor], context: tuple[Tensor, Tensor]
) -> Tensor:
    query, query_shift, _, out, out_shift = attention
    up, up_shift, down, down_shift = alone
    q = (_by_spread(x) @ query + query_shift).reshape(len(x), -1, HEAD).transpose(0, 1)
    attended = scaled_dot_product_attention(q[None], context[0][None], context[1][None], scale=1.0)[
        0
    ]
    x = x + attended.transpose(0, 1).reshape(x.shape) @ out + out_shift
    hidden = gelu(_by_spread(x) @ up + up_shift, approximate="tanh")
    # `down` is halved for the doubled GELU of NumPy.
    return x + 2 * hidden @ down + down_shift


def _by_spread(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + EPSILON)


def _normed(x: Tensor, scale_and_shift: Tensor) -> Tensor:
    z = x - x.mean(dim=-1, keepdim=True)
    spread = torch.sqrt((z * z).mean(dim=-1, keepdim=True) + EPSILON)
    return z / spread * scale_and_shift[0] + scale_and_shift[1]


def _affine(x: Tensor, weights_and_bias: Tensor) -> Tensor:
    return x @ weights_and_bias[:-1] + weights_and_bias[-1]
