r"""Train the network of `riskad.PretrainedRAD` on synthetic tables (torch; a GPU to be of use).

    python benchmarks/pretrain.py --seconds 500 --output first
    python benchmarks/pretrain.py --seconds 440 --rate 1.2e-3 --seed 1 --start first/tables.npz \
        --output second
    python benchmarks/pretrain.py --seconds 1080 --rate 1.2e-3 --seed 2 --start second/tables.npz \
        --output third

No real table takes part. Each step makes a batch of tables on the device: rows of which the share
pi are anomalies (log-uniform from 0.012 to 0.4), a few labelled ones, unlabelled rows, and rows to
be judged. The loss is the logistic loss of all rows without a label, with both classes weighted
alike in each table. There are four families:

- network: columns and the label are nodes of a random network of causes;
- kinds: rows are of several kinds, some of them anomalous, seen through a random network;
- mixture: normal rows and anomalies are mixtures of Gaussians;
- outliers: anomalies are spread, mixed up, uniform or moved in some columns.

Columns are then made skew, rounded, cut or covered by noise, as measured ones are. The schedule
goes from small tables to large ones, by the clock.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, HIDDEN, DEPTH = 96, 3, 192, 5
SPARE_ROWS = 600  # made beyond those needed, so that there are anomalies to choose from


class Stage(NamedTuple):
    """Sizes of tables up to a share of the time."""

    until: float
    cells: int
    """In a batch."""
    contexts: tuple[int, ...]
    judged: int
    columns: tuple[int, ...]


FIRST = (
    Stage(0.55, 250_000, (96, 128, 192, 256), 64, (2, 3, 4, 5, 6, 8, 10, 12)),
    Stage(1.01, 500_000, (256, 384, 512, 768), 128, (3, 4, 6, 8, 10, 14, 20, 28, 36)),
)
LATER = (
    Stage(
        1.01,
        500_000,
        (96, 160, 256, 384, 512, 768, 1024),
        128,
        (3, 4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 42),
    ),
)


# --- tables -------------------------------------------------------------------------------------


class Tables:
    """Makes batches of tables on a device."""

    def __init__(self, device: str):
        self.device = device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Numbers between low and high."""
        return torch.rand(shape, device=self.device) * (high - low) + low

    def log_uniform(self, *shape: int, low: float, high: float) -> Tensor:
        """Numbers whose logarithms are uniform."""
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers."""
        return torch.randn(shape, device=self.device)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high - 1."""
        return torch.randint(low, high, shape, device=self.device)

    def often(self, share: float, *shape: int) -> Tensor:
        """Whether, each with the chance `share`."""
        return self.uniform(*shape) < share

    # --- families ---

    def network(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Columns and the label are nodes of a network."""
        width = _any(1, max(2, min(columns, 10)) + 1)
        nodes = self._nodes(self._causes(len(pi), rows, width), columns)
        X, nodes_together, key = self._picked(nodes, columns)
        return X, self._label_by_score(self._score(nodes_together, key), pi)

    def kinds(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Up to 3 anomalous and up to 13 normal kinds of row, through a network."""
        B, width = len(pi), _any(2, max(3, min(columns, 10)) + 1)
        y = self._label_by_chance(pi, rows)
        skew = self.uniform(B, 1, low=1, high=2)
        odd = (self.uniform(B, rows) ** skew * self.whole(1, 4, B, 1)).long()
        usual = 3 + (self.uniform(B, rows) ** skew * self.whole(1, 14, B, 1)).long()
        kind = torch.where(y, odd, usual)[:, :, None].expand(-1, -1, width)
        spread = (
            self.log_uniform(B, 16, 1, low=0.5, high=2)
            * self.log_uniform(B, 1, width, low=0.5, high=2)
            * self.log_uniform(B, 1, 1, low=0.1, high=0.8)
        )
        centres = torch.gather(self.normal(B, 16, width), 1, kind)
        causes = centres + torch.gather(spread, 1, kind) * self.normal(B, rows, width)
        return self._picked(self._nodes(causes, columns)[1:], columns)[0], y

    def mixture(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Up to 8 normal and up to 3 anomalous Gaussians."""
        B, k, odd = len(pi), 8, 3
        y = self._label_by_chance(pi, rows)
        factors = self.normal(B, k + odd, columns, columns) / math.sqrt(columns)
        factors = factors * self.uniform(B, 1, 1, 1, high=1.2)
        factors = factors + torch.diag_embed(
            self.log_uniform(B, k + odd, columns, low=0.2, high=1.5)
        )
        factors = torch.where(self.often(0.5, B, 1, 1, 1), factors[:, :1], factors)
        centres = self.normal(B, k, columns) * self.uniform(B, 1, 1, low=0.2, high=3)
        n_usual, n_odd = self.whole(1, k + 1, B, 1), self.whole(1, odd + 1, B, 1)
        moved = self._moved_centres(centres, odd, n_usual)
        centres = torch.cat([centres, moved], 1)
        skew = self.uniform(B, 1, low=1, high=3)
        which = torch.where(
            y,
            k + (self.uniform(B, rows) ** skew * n_odd).long(),
            (self.uniform(B, rows) ** skew * n_usual).long(),
        )
        scale = torch.where(y, self.log_uniform(B, 1, low=0.3, high=3), 1.0)[:, :, None]
        noise = self.normal(B, rows, columns)
        heavy = noise * torch.exp(0.6 * self.normal(B, rows, 1))
        noise = torch.where(self.often(0.2, B, 1, 1), heavy, noise)
        X = torch.zeros_like(noise)
        for j in range(k + odd):
            drawn = centres[:, j : j + 1] + scale * (noise @ factors[:, j].transpose(1, 2))
            X = torch.where((which == j)[:, :, None], drawn, X)
        return X, y

    def _moved_centres(self, centres: Tensor, odd: int, n_usual: Tensor) -> Tensor:
        """Centres of anomalies: moved from those of normal rows in some columns, or anywhere."""
        B, k, columns = centres.shape
        some = self.uniform(B, odd, columns) < self.uniform(B, 1, 1, low=0.1, high=1)
        step = self.normal(B, odd, columns) * some
        step = step / (step.norm(dim=2, keepdim=True) + 1e-3)
        step = step * self.log_uniform(B, odd, 1, low=0.3, high=6)
        start = (self.whole(0, k, B, odd) % n_usual)[:, :, None].expand(-1, -1, columns)
        anywhere = self.normal(B, odd, columns) * self.uniform(B, 1, 1, low=0.2, high=3)
        return torch.where(
            self.often(0.3, B, odd, 1), anywhere, torch.gather(centres, 1, start) + step
        )

    def outliers(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Anomalies differ from other rows in some columns."""
        B, width = len(pi), _any(1, max(2, min(columns, 10)) + 1)
        nodes = self._nodes(self._causes(B, rows, width), columns)
        X = standardised(self._picked(nodes, columns)[0])
        y = self._label_by_chance(pi, rows)
        some = self.uniform(B, 1, columns) < self.uniform(B, 1, 1, low=0.1, high=1)
        changes = (
            X * self.uniform(B, 1, 1, low=1.2, high=4),
            torch.gather(X, 1, self.uniform(B, rows, columns).argsort(1)),
            self.uniform(B, rows, columns, low=-1) * self.uniform(B, 1, 1, low=1.5, high=4),
            X + self.normal(B, 1, columns) * self.uniform(B, 1, 1, low=0.5, high=3),
        )
        changed = _by_choice(changes, self.whole(0, len(changes), B, 1, 1))
        return torch.where(y[:, :, None] & some, changed, X), y

    # --- random networks ---

    def _causes(self, B: int, rows: int, width: int) -> Tensor:
        """First nodes: normal, heavy-tailed, uniform or in clusters."""
        normal = self.normal(B, rows, width)
        clusters = 8
        count = self.whole(2, clusters + 1, B, 1)
        which = (self.uniform(B, rows) ** self.uniform(B, 1, low=1, high=2) * count).long()
        centres = self.normal(B, clusters, width) * self.uniform(B, 1, 1, low=0.5, high=3)
        centres = torch.gather(centres, 1, which[:, :, None].expand(-1, -1, width))
        clustered = centres + normal * self.uniform(B, 1, width, low=0.1, high=1)
        heavy = normal * torch.exp(0.7 * self.normal(B, rows, 1))
        flat = self.uniform(B, rows, width, low=-1.7, high=1.7)
        mixed = _by_choice((normal, heavy, flat, clustered), self.whole(0, 4, B, 1, width))
        return torch.where(self.often(0.3, B, 1, 1), clustered, mixed)

    def _nodes(self, causes: Tensor, columns: int) -> list[Tensor]:
        """Layers of nodes, each made of the one before with some noise."""
        B, width = len(causes), max(16, 2 * columns)
        noise = self.log_uniform(B, 1, 1, low=0.003, high=0.3)
        density = self.uniform(B, 1, 1, low=0.15, high=1)
        nodes = [causes]
        for _ in range(_any(1, 4)):
            links = self.normal(B, nodes[-1].shape[2], width)
            links = links * (self.uniform(*links.shape) < density)
            x = standardised(nodes[-1] @ links) * self.log_uniform(B, 1, 1, low=0.3, high=2)
            x = standardised(self._activated(x + 0.6 * self.normal(B, 1, width)))
            nodes.append(x + noise * torch.randn_like(x))
        return nodes

    def _activated(self, x: Tensor) -> Tensor:
        B, _, width = x.shape
        odds = torch.tensor([odds for _, odds in ACTIVATIONS], device=self.device)
        kinds = torch.multinomial(odds, B * width, replacement=True).view(B, 1, width)
        kinds = torch.where(self.often(0.5, B, 1, 1), kinds[:, :, :1], kinds)
        return _by_choice([f(x) for f, _ in ACTIVATIONS], kinds)

    def _picked(self, nodes: list[Tensor], columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """Some nodes as columns: any, rather late ones, or neighbours."""
        together = torch.cat(nodes, 2)
        B, rows, m = together.shape
        depth = torch.cat([torch.full((x.shape[2],), float(i)) for i, x in enumerate(nodes)])
        late = self.uniform(B, 1, low=-1, high=2) * depth.to(self.device)
        gumbel = -torch.log(-torch.log(self.uniform(B, m).clamp(1e-9, 1 - 1e-7)))
        key = gumbel + late / max(1, len(nodes) - 1) * 2
        start, place = self.whole(0, max(1, m - columns), B, 1), torch.arange(m, device=self.device)
        near = (place >= start) & (place < start + columns)
        key = torch.where(self.often(0.3, B, 1) & near, key + 50, key)
        index = key.topk(columns, 1).indices
        return torch.gather(together, 2, index[:, None].expand(-1, rows, -1)), together, key

    def _score(self, nodes: Tensor, key: Tensor) -> Tensor:
        """What decides the label: one to three nodes, and some noise."""
        B, rows, m = nodes.shape
        key = torch.where(self.often(0.02, B, m), key + 3, self.uniform(B, m, high=3))
        index = key.topk(3, 1).indices
        weights = self.normal(B, 1, 3) * torch.tensor([1.0, 0.7, 0.7], device=self.device)
        weights = weights * (self.uniform(B, 1, 3) < torch.tensor([1.1, 0.4, 0.3]).to(weights))
        score = (torch.gather(nodes, 2, index[:, None].expand(-1, rows, -1)) * weights).sum(2)
        noise = self.log_uniform(B, 1, low=0.001, high=0.3) * score.std(1, keepdim=True)
        return score + noise * self.normal(B, rows)

    def _label_by_score(self, score: Tensor, pi: Tensor) -> Tensor:
        """Anomalies have the largest scores, those near a value, or those at both ends."""
        B, rows = score.shape
        rank = _ranks(score) / rows
        at = torch.where(self.often(0.75, B, 1), 1.0, self.uniform(B, 1))
        ends = torch.minimum(1 - rank, rank)
        away = torch.where(self.often(0.15, B, 1), ends, (rank - at).abs())
        return _ranks(away) / rows < pi

    def _label_by_chance(self, pi: Tensor, rows: int) -> Tensor:
        return _ranks(self.uniform(len(pi), rows)) / rows < pi

    # --- measuring and labelling ---

    def measured(self, X: Tensor) -> Tensor:
        """Columns as they are measured: skew, powers, levels, floors, yes or no, noise."""
        X = standardised(X)
        B, _, columns = X.shape
        some = (B, 1, columns)
        power = self.uniform(*some, low=0.4, high=2.5)
        shapes = (
            *[X] * 5,
            torch.exp(self.log_uniform(*some, low=0.3, high=1.5) * X.clamp(-6, 6)),
            torch.sign(X) * X.abs() ** power,
            torch.round(X * self.log_uniform(*some, low=0.7, high=4)),
            torch.relu(X - 0.8 * self.normal(*some)),
            (self.normal(*some) < X).float(),
        )
        kinds = torch.where(self.often(0.4, B, 1, 1), 0, self.whole(0, len(shapes), *some))
        share = torch.where(self.often(0.3, B, 1, 1), self.uniform(B, 1, 1, high=0.7), 0.0)
        covered = self.uniform(*some) < share
        return torch.where(covered, torch.randn_like(X), _by_choice(shapes, kinds))

    def batch(self, B: int, columns: int, context: int, judged: int) -> tuple[Tensor, ...]:
        """Values (B, context + judged, columns + 1), states (0 none, 1 normal, 2 anomaly), truth.

        The last column is an outlier score, the distance to a near neighbour in the context.
        """
        pi = self.log_uniform(B, 1, low=0.012, high=0.4)
        rows = 2 * context + SPARE_ROWS
        shares = (B - B // 4 - 2 * (B // 5), B // 4, B // 5, B // 5)
        families = (self.network, self.kinds, self.mixture, self.outliers)
        parts = [
            family(part, rows, columns)
            for family, part in zip(families, pi.split(shares), strict=True)
            if len(part)
        ]
        X, y = (torch.cat(both) for both in zip(*parts, strict=True))
        X, state, y = self._labelled(self.measured(X), y, pi, context, judged)
        X = drawn_in(X, context)
        far = torch.cdist(X, X[:, :context]).topk(_any(4, 16), 2, largest=False).values[:, :, -1:]
        return torch.cat([X, drawn_in(torch.log(far + 1e-3), context)], 2), state, y

    def _labelled(
        self, X: Tensor, y: Tensor, pi: Tensor, context: int, judged: int
    ) -> tuple[Tensor, ...]:
        """Rows in the order labelled, unlabelled, judged; up to half of the judged are
        anomalies.
        """
        B, rows = y.shape
        total = y.sum(1, keepdim=True)
        normals = self.log_uniform(B, 1, low=4, high=0.7 * context).long()
        anomalies = normals * pi / (1 - pi) * torch.exp(0.7 * self.normal(B, 1))
        anomalies = anomalies.round().long().clamp(1, 100)
        one_kind = self.uniform(B, 1)
        normals = torch.where(one_kind < 0.06, 0, normals)
        anomalies = torch.where((one_kind > 0.06) & (one_kind < 0.09), 0, anomalies)
        anomalies = torch.minimum(anomalies, total // 2)
        unlabelled = context - normals - anomalies
        odd_unlabelled = torch.minimum((unlabelled * pi).round().long(), (total - anomalies) // 2)
        odd_judged = (total - anomalies - odd_unlabelled).clamp(max=judged // 2)
        key = self.uniform(B, rows)
        group = torch.where(
            y,
            _groups(_ranks(torch.where(y, key, key + 2)), anomalies, odd_unlabelled, odd_judged),
            _groups(
                _ranks(torch.where(y, key + 2, key)),
                normals,
                unlabelled - odd_unlabelled,
                judged - odd_judged,
            ),
        )
        order = (group + 0.9 * key).argsort(1)[:, : context + judged]
        X = torch.gather(X, 1, order[:, :, None].expand(-1, -1, X.shape[2]))
        y, group = torch.gather(y, 1, order), torch.gather(group, 1, order)
        return X, torch.where(group == 0, torch.where(y, 2, 1), 0), y


ACTIVATIONS: tuple[tuple[Callable[[Tensor], Tensor], float], ...] = (
    (lambda x: x, 3.0),
    (torch.tanh, 3.0),
    (torch.relu, 3.0),
    (torch.sin, 1.0),
    (torch.abs, 1.0),
    (lambda x: (x * x).clamp(max=9), 0.7),
    (lambda x: (x > 0).to(x.dtype), 0.7),
    (lambda x: torch.exp(-x * x), 0.7),
)


def _any(low: int, high: int) -> int:
    return int(torch.randint(low, high, ()))


def _ranks(x: Tensor) -> Tensor:
    return x.argsort(1).argsort(1).float()


def _groups(rank: Tensor, *sizes: Tensor) -> Tensor:
    """0 for the first ranks, 1 for the next, and so on."""
    ends = torch.cumsum(torch.cat(sizes, 1), 1)
    return (rank[:, :, None] >= ends[:, None]).sum(2)


def _by_choice(values: Any, kinds: Tensor) -> Tensor:
    """Of several tensors the one whose number is in `kinds`, element by element."""
    chosen = values[0]
    for i, value in enumerate(values[1:], start=1):
        chosen = torch.where(kinds == i, value, chosen)
    return chosen


def standardised(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)


def drawn_in(X: Tensor, context: int) -> Tensor:
    """sign(z) log(1 + |z|) of z-values by the context; constant columns are 0."""
    known = X[:, :context]
    mean, spread = known.mean(1, keepdim=True), known.std(1, keepdim=True)
    z = torch.where(spread > 1e-5, (X - mean) / (spread + 1e-6), 0.0)
    return torch.sign(z) * torch.log1p(z.abs())


# --- the network --------------------------------------------------------------------------------


class Norm(nn.LayerNorm):
    """In the precision of what comes in, where autocast would double its bytes."""

    def forward(self, x: Tensor) -> Tensor:
        """Values with mean 0 and variance 1 in each cell, scaled and shifted."""
        weight, bias = (part.to(x.dtype) for part in (self.weight, self.bias))
        with torch.autocast(x.device.type, enabled=False):
            return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Attention(nn.Module):
    """Cells attend to cells. Fused attention wastes most of its tiles where they are few."""

    def __init__(self, *, few: bool) -> None:
        super().__init__()
        self.few = few
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, known: int) -> Tensor:
        """Each of n cells (..., n, width) attends to the first `known`."""
        first = x[..., :known, :]
        q, k, v = (
            part.reshape(-1, part.shape[-2], HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query(x), self.key(first), self.value(first))
        )
        if self.few:
            weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
            found = weights.to(v.dtype) @ v
        else:
            found = functional.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """Among the cells of a row, to the context, alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_cells, self.norm_rows, self.norm_alone = (Norm(WIDTH) for _ in range(3))
        self.cells, self.rows = Attention(few=True), Attention(few=False)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor, context: int) -> Tensor:
        """Cells (tables, rows, columns + 1, width) after the layer."""
        x = x + self.cells(self.norm_cells(x), x.shape[2])
        by_column = self.norm_rows(x).transpose(1, 2).contiguous()
        x = x + self.rows(by_column, context).transpose(1, 2)
        hidden = functional.gelu(self.up(self.norm_alone(x)), approximate="tanh")
        return x + self.down(hidden)


class Network(nn.Module):
    """`riskad.detectors.pretrained` says what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.label = nn.Linear(3, WIDTH), nn.Embedding(3, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = Norm(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, X: Tensor, state: Tensor, context: int) -> Tensor:
        """Scores s (tables, rows) of values and states."""
        cells = self.cell(torch.stack([X, X.abs(), X * X], -1))
        x = torch.cat([cells, self.label(state)[:, :, None].to(cells.dtype)], 2)
        for layer in self.layers:
            x = layer(x, context)
        return self.head(self.norm(x[:, :, -1]))[:, :, 0]


def arrays(network: Network) -> dict[str, np.ndarray]:
    """The parameters as `PretrainedRAD` reads them: linear maps as (inputs, outputs)."""

    def values(parameter: Tensor) -> np.ndarray:
        return parameter.detach().float().cpu().numpy().astype(np.float16)

    def norm(part: Any) -> np.ndarray:
        return np.stack([values(part.weight), values(part.bias)])

    def attention(part: Any) -> np.ndarray:
        maps = (part.query, part.key, part.value, part.out)
        return np.stack([values(part.weight).T for part in maps])

    def of_layers(part: Callable[[Any], np.ndarray]) -> np.ndarray:
        return np.stack([part(layer) for layer in network.layers])

    return {
        "cell": np.vstack([values(network.cell.weight).T, values(network.cell.bias)]),
        "label": values(network.label.weight),
        "norm_cells": of_layers(lambda layer: norm(layer.norm_cells)),
        "cells": of_layers(lambda layer: attention(layer.cells)),
        "norm_rows": of_layers(lambda layer: norm(layer.norm_rows)),
        "rows": of_layers(lambda layer: attention(layer.rows)),
        "norm_alone": of_layers(lambda layer: norm(layer.norm_alone)),
        "up": of_layers(lambda layer: values(layer.up.weight).T),
        "up_bias": of_layers(lambda layer: values(layer.up.bias)),
        "down": of_layers(lambda layer: values(layer.down.weight).T),
        "down_bias": of_layers(lambda layer: values(layer.down.bias)),
        "norm": norm(network.norm),
        "head": np.append(values(network.head.weight)[0], values(network.head.bias)),
    }


def restore(network: Network, saved: Mapping[str, np.ndarray]) -> None:
    """The other way round; layers that the file does not have stay as they begin: idle."""

    def put(parameter: Tensor, value: np.ndarray) -> None:
        parameter.data.copy_(torch.from_numpy(value.astype(np.float32)))

    def norm(part: Any, value: np.ndarray) -> None:
        put(part.weight, value[0])
        put(part.bias, value[1])

    def attention(part: Any, value: np.ndarray) -> None:
        maps = (part.query, part.key, part.value, part.out)
        for one, weights in zip(maps, value, strict=True):
            put(one.weight, weights.T)

    put(network.cell.weight, saved["cell"][:-1].T)
    put(network.cell.bias, saved["cell"][-1])
    put(network.label.weight, saved["label"])
    norm(network.norm, saved["norm"])
    put(network.head.weight, saved["head"][None, :-1])
    put(network.head.bias, saved["head"][-1:])
    for i, layer in enumerate(network.layers[: len(saved["up"])]):
        for name in ("norm_cells", "norm_rows", "norm_alone"):
            norm(getattr(layer, name), saved[name][i])
        for name in ("cells", "rows"):
            attention(getattr(layer, name), saved[name][i])
        for name in ("up", "down"):
            put(getattr(layer, name).weight, saved[name][i].T)
            put(getattr(layer, name).bias, saved[f"{name}_bias"][i])


# --- training -----------------------------------------------------------------------------------


def risk(scores: Tensor, state: Tensor, y: Tensor) -> Tensor:
    """Logistic risk of rows without a label, both classes weighted alike in each table."""
    free = state == 0
    odd, usual = (free & y).float(), (free & ~y).float()
    weight = sum(part / part.sum(1, keepdim=True).clamp(min=4) for part in (odd, usual)) / 2
    losses = functional.binary_cross_entropy_with_logits(scores, y.float(), reduction="none")
    return (losses * weight).sum(1).mean()


def auc(scores: Tensor, y: Tensor) -> Tensor:
    """Mean over the tables that have anomalies."""
    odd = y.sum(1).float()
    wins = (_ranks(scores) * y).sum(1) - odd * (odd - 1) / 2
    return (wins / (odd * (y.shape[1] - odd)).clamp(min=1))[odd > 0].mean()


class Trainer:
    """Adam with a cosine schedule by the clock; what is kept is the average over late steps."""

    def __init__(self, network: Network, device: str, rate: float):
        self.network, self.average = network.to(device), copy.deepcopy(network).to(device)
        if device == "cuda":
            for layer in network.layers:
                layer.compile(dynamic=True)
        self.tables, self.device, self.rate, self.steps = Tables(device), device, rate, 0
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=True
        )

    def step(self, stage: Stage, done: float) -> tuple[int, Tensor, Tensor]:
        """One batch, with `done` the share of the time that is over: tables, risk, AUC."""
        rate = self.rate * min(1, (self.steps + 1) / 300) * (1 + math.cos(math.pi * done)) / 2
        self.optimizer.param_groups[0]["lr"] = rate
        context = stage.contexts[_any(0, len(stage.contexts))]
        columns = stage.columns[_any(0, len(stage.columns))]
        rows = context + stage.judged
        most = min(256, 65_000 // rows)  # what one launch of the attention takes
        B = max(8, min(most, stage.cells // (rows * (columns + 2))))
        with torch.no_grad():
            X, state, y = self.tables.batch(B, columns, context, stage.judged)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            scores = self.network(X, state, context).float()
        loss = risk(scores, state, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        late = 1 - min(0.999, self.steps / (self.steps + 10))
        with torch.no_grad():
            both = (list(part.parameters()) for part in (self.average, self.network))
            torch._foreach_lerp_(*both, late)
        return B, loss.detach(), auc(scores[:, context:].detach(), y[:, context:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the network")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--start", type=Path, help="a tables.npz to go on from, on large tables")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    network, stages = Network(), FIRST
    if arguments.start:
        restore(network, np.load(arguments.start))
        stages = LATER
    trainer = Trainer(network, arguments.device, arguments.rate)
    begin, tables, seen = time.perf_counter(), 0, []
    while (done := (time.perf_counter() - begin) / arguments.seconds) < 1:
        B, *found = trainer.step(next(stage for stage in stages if done < stage.until), done)
        tables += B
        seen.append(found)
        if trainer.steps % 500 == 0:
            loss, area = (
                float(torch.stack(values).nanmean()) for values in zip(*seen, strict=True)
            )
            seconds = time.perf_counter() - begin
            print(
                f"{seconds:.0f} s, {tables:,} tables: risk {loss:.4f}, AUC {area:.4f}", flush=True
            )
            seen = []
            save(trainer, arguments.output)
    save(trainer, arguments.output)


def save(trainer: Trainer, output: Path) -> None:
    """The average of the last steps, so that a run that is cut off leaves something."""
    output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output / "tables.npz", **arrays(trainer.average))  # type: ignore


if __name__ == "__main__":
    main()
