"""The network in torch, and its weights as `PretrainedRAD` reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from riskad.detectors.table_network import WEIGHTS, TableNetwork

WIDTH, HIDDEN, DEPTH = 96, 192, 5
ROW_WIDTH, ROW_HIDDEN, ROW_DEPTH = 256, 512, 4
HEAD = 32
WAVES = (1, 2, 4, 8, 16)
CHANNELS = 3 + 2 + 2 * len(WAVES) + 3
SAME = 1e-5  # cells that differ by no more hold the same value


def compressed(X: Tensor, context: int) -> Tensor:
    """sign(z) log(1 + |z|) of z-values by the context; constant columns are 0, blanks stay."""
    known = X[:, :context]
    mean = known.nanmean(1, keepdim=True).nan_to_num()
    spread = (known - mean).square().nanmean(1, keepdim=True).sqrt().nan_to_num()
    z = (X - mean) / (spread + 1e-6)
    z = torch.where(spread > 1e-5, z, torch.where(X.isnan(), X, 0.0))
    return torch.sign(z) * torch.log1p(z.abs())


def channels(Z: Tensor, state: Tensor, context: int) -> Tensor:
    """What is said of each cell: (tables, rows, columns, CHANNELS).

    Its value v, |v| and v^2, whether it is blank, its rank u in the context from -1 to 1 with
    waves sin and cos(pi k u), and of how many rows, anomalies and normals of the context it shares
    the value (log(1 + count), a row of the context not counting itself).
    """
    blank = Z.isnan().transpose(1, 2).contiguous()
    z = Z.nan_to_num().transpose(1, 2).contiguous()
    known = torch.where(blank, math.inf, z)[:, :, :context]
    ordered, order = known.sort(dim=2)
    left, right = (torch.searchsorted(ordered, z + shift) for shift in (-SAME, SAME))
    labels = state[:, None, :context].expand(-1, z.shape[1], -1).gather(2, order)
    filled = (ordered < math.inf).sum(2, keepdim=True).clamp(min=1)
    own = state[:, None].expand(-1, z.shape[1], -1).clone()
    own[:, :, context:] = -1
    counts = []
    for kinds in ((0, 1, 2), (2,), (1,)):
        is_kind = sum((labels == kind) for kind in kinds)
        sums = functional.pad((is_kind * (ordered < math.inf)).cumsum(2), (1, 0))
        itself = sum((own == kind) for kind in kinds)
        counts.append((sums.gather(2, right) - sums.gather(2, left) - itself).clamp(min=0))
    u = (left + right) / filled - 1
    waves = [f(math.pi * k * u) for k in WAVES for f in (torch.sin, torch.cos)]
    shared = [torch.log1p(count.float()) for count in counts]
    said = torch.stack([z, z.abs(), z * z, u, *waves, *shared], -1)
    said = torch.where(blank[..., None], 0.0, said)
    said = torch.cat([said, blank[..., None].to(said.dtype)], -1)
    return said.transpose(1, 2)


class Norm(nn.LayerNorm):
    """In the precision of what comes in, where autocast would double its bytes."""

    def forward(self, x: Tensor) -> Tensor:
        """Values with mean 0 and variance 1 in each cell, scaled and shifted."""
        weight, bias = (part.to(x.dtype) for part in (self.weight, self.bias))
        with torch.autocast(x.device.type, enabled=False):
            return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Attention(nn.Module):
    """Cells attend to cells. Fused attention wastes most of its tiles where they are few."""

    def __init__(self, width: int, *, few: bool) -> None:
        super().__init__()
        self.few = few
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        nn.init.zeros_(self.out.weight)

    def forward(self, asking: Tensor, known: Tensor) -> Tensor:
        """Each of the asking (..., n, width) attends to all that are known (..., m, width)."""
        q, k, v = (
            part.reshape(-1, part.shape[-2], part.shape[-1] // HEAD, HEAD).transpose(1, 2)
            for part in (self.query(asking), self.key(known), self.value(known))
        )
        if self.few:
            weights = (q @ k.transpose(-1, -2) * HEAD**-0.5).softmax(-1)
            found = weights.to(v.dtype) @ v
        else:
            found = functional.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).reshape(asking.shape))


class Alone(nn.Module):
    """Each cell by itself, through one hidden layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm_alone = Norm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Cells after it."""
        hidden = functional.gelu(self.up(self.norm_alone(x)), approximate="tanh")
        return x + self.down(hidden)


class Layer(Alone):
    """Among the cells of a row, to the context, alone."""

    def __init__(self) -> None:
        super().__init__(WIDTH, HIDDEN)
        self.norm_cells, self.norm_rows = Norm(WIDTH), Norm(WIDTH)
        self.cells, self.rows = Attention(WIDTH, few=True), Attention(WIDTH, few=False)

    def forward(self, x: Tensor, context: int, last: bool = False) -> Tensor:  # type: ignore
        """Cells (tables, rows, columns + 1, width) after the layer; the last has labels' alone."""
        z = self.norm_cells(x)
        asking = z[:, :, -1:] if last else z
        x = (x[:, :, -1:] if last else x) + self.cells(asking, z)
        by_column = self.norm_rows(x).transpose(1, 2).contiguous()
        x = x + self.rows(by_column, by_column[:, :, :context]).transpose(1, 2)
        return super().forward(x)


class RowLayer(Alone):
    """Rows attend to the context, then each is changed alone."""

    def __init__(self) -> None:
        super().__init__(ROW_WIDTH, ROW_HIDDEN)
        self.norm_rows, self.rows = Norm(ROW_WIDTH), Attention(ROW_WIDTH, few=False)

    def forward(self, x: Tensor, context: int) -> Tensor:  # type: ignore
        """Rows (tables, rows, width) after the layer."""
        z = self.norm_rows(x)
        return super().forward(x + self.rows(z, z[:, :context]))


class Network(nn.Module):
    """`riskad.detectors.pretrained` says what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.label = nn.Linear(CHANNELS, WIDTH), nn.Embedding(3, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = Norm(WIDTH), nn.Linear(WIDTH, 1)
        self.row_in = nn.Linear(2 * WIDTH, ROW_WIDTH)
        self.row_layers = nn.ModuleList(RowLayer() for _ in range(ROW_DEPTH))
        self.row_norm, self.row_head = Norm(ROW_WIDTH), nn.Linear(ROW_WIDTH, 1)
        nn.init.zeros_(self.row_head.weight)
        nn.init.zeros_(self.row_head.bias)

    def forward(self, said: Tensor, state: Tensor, context: int) -> Tensor:
        """Scores s (tables, rows) of channels and states."""
        cells = self.cell(said)
        x = torch.cat([cells, self.label(state)[:, :, None].to(cells.dtype)], 2)
        for layer in self.layers[:-1]:
            x = layer(x, context)
        others = x[:, :, :-1].mean(2)
        own = self.layers[-1](x, context, last=True)[:, :, 0]
        row = self.row_in(torch.cat([own, others], -1))
        for layer in self.row_layers:
            row = layer(row, context)
        return (self.head(self.norm(own)) + self.row_head(self.row_norm(row)))[:, :, 0]


# --- files -------------------------------------------------------------------------------

Places = list[tuple[tuple[Any, ...], Tensor]]
"""Which part of a stored array is which parameter."""


def places(network: Network) -> dict[str, Places]:
    """Where parameters are in the arrays that `PretrainedRAD` reads.

    Linear maps are stored as (inputs, outputs), with the bias as a last row where there is one;
    norms as weight and bias; attention as query, key, value and output; layers are stacked.
    """

    def norm(part: Any) -> Places:
        return [((0,), part.weight.data), ((1,), part.bias.data)]

    def attention(part: Any) -> Places:
        maps = (part.query, part.key, part.value, part.out)
        return [((k,), each.weight.data.T) for k, each in enumerate(maps)]

    def affine(part: Any) -> Places:
        weight, bias = part.weight.data.T, part.bias.data
        if part.out_features == 1:
            weight, bias = weight[:, 0], bias[0]
        return [((slice(-1),), weight), ((-1,), bias)]

    def stacked(parts: list[Places]) -> Places:
        return [((i, *at), value) for i, part in enumerate(parts) for at, value in part]

    def layers(of: Any, prefix: str = "") -> dict[str, Places]:
        stored = {
            "norm_rows": [norm(layer.norm_rows) for layer in of],
            "rows": [attention(layer.rows) for layer in of],
            "norm_alone": [norm(layer.norm_alone) for layer in of],
        }
        for name in ("up", "down"):
            maps = [getattr(layer, name) for layer in of]
            stored[name] = [[((), each.weight.data.T)] for each in maps]
            stored[f"{name}_bias"] = [[((), each.bias.data)] for each in maps]
        return {f"{prefix}{name}": stacked(parts) for name, parts in stored.items()}

    return {
        "cell": affine(network.cell),
        "label": [((), network.label.weight.data)],
        "norm_cells": stacked([norm(layer.norm_cells) for layer in network.layers]),
        "cells": stacked([attention(layer.cells) for layer in network.layers]),
        **layers(network.layers),
        "norm": norm(network.norm),
        "head": affine(network.head),
        "row_in": affine(network.row_in),
        **layers(network.row_layers, "row_"),
        "row_norm": norm(network.row_norm),
        "row_head": affine(network.row_head),
    }


def arrays(network: Network) -> dict[str, np.ndarray]:
    """The parameters as `PretrainedRAD` reads them, in half precision."""
    shapes = {name: a.shape for name, a in TableNetwork.load(WEIGHTS[-1]).arrays.items()}
    stored = {}
    for name, parts in places(network).items():
        stored[name] = np.empty(shapes[name], dtype=np.float16)
        for at, value in parts:
            stored[name][at] = value.float().cpu().numpy()
    return stored


def restore(network: Network, stored: Mapping[str, np.ndarray]) -> None:
    """The other way round. What the file does not have, channels of cells and layers of rows, stays
    as it begins, saying nothing.
    """
    for name, parts in places(network).items():
        for at, value in parts if name in stored else ():
            source = torch.from_numpy(np.array(stored[name][at], dtype=np.float32))
            if name == "cell" and value.ndim > 1:
                value.zero_()
                value = value[: len(source)]
            value.copy_(source)
