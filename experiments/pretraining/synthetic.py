"""Synthetic tables, made on the device.

Rows of which the share pi are anomalies (log-uniform from 0.012 to 0.4) come in four families:

- network: columns and the label are nodes of a random network of causes;
- kinds: rows are of several kinds, some of them anomalous, seen through a random network;
- mixture: normal rows and anomalies are mixtures of Gaussians;
- outliers: anomalies are spread, mixed up, uniform or moved in some columns.

Columns are then made skew, rounded, cut or covered by noise, as measured ones are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_SPARE_ROWS = 600  # made beyond those needed, so that there are anomalies to choose from


class Draws:
    """Random numbers on a device."""

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


def any_of(low: int, high: int) -> int:
    """A whole number from low to high - 1."""
    return int(torch.randint(low, high, ()))


def ranks(x: Tensor) -> Tensor:
    """From 0, in each table."""
    return x.argsort(1).argsort(1).float()


def by_choice(values: Sequence[Tensor], kinds: Tensor) -> Tensor:
    """Of several tensors the one whose number is in `kinds`, element by element."""
    chosen = values[0]
    for i, value in enumerate(values[1:], start=1):
        chosen = torch.where(kinds == i, value, chosen)
    return chosen


class Synthetic(Draws):
    """Makes batches of synthetic tables."""

    def pool(self, B: int, columns: int, needed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, rows, columns), whether each row is an anomaly, and its share."""
        pi = self.log_uniform(B, 1, low=0.012, high=0.4)
        rows = 2 * needed + _SPARE_ROWS
        shares = (B - B // 4 - 2 * (B // 5), B // 4, B // 5, B // 5)
        families = (self.network, self.kinds, self.mixture, self.outliers)
        parts = [
            family(part, rows, columns)
            for family, part in zip(families, pi.split(shares), strict=True)
            if len(part)
        ]
        X, y = (torch.cat(both) for both in zip(*parts, strict=True))
        return self.measured(X), y, pi

    # --- families ---

    def network(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Columns and the label are nodes of a network."""
        width = any_of(1, max(2, min(columns, 10)) + 1)
        nodes = self._nodes(self._causes(len(pi), rows, width), columns)
        X, nodes_together, key = self._picked(nodes, columns)
        return X, self._label_by_score(self._score(nodes_together, key), pi)

    def kinds(self, pi: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Up to 3 anomalous and up to 13 normal kinds of row, through a network."""
        B, width = len(pi), any_of(2, max(3, min(columns, 10)) + 1)
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
        B, width = len(pi), any_of(1, max(2, min(columns, 10)) + 1)
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
        changed = by_choice(changes, self.whole(0, len(changes), B, 1, 1))
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
        mixed = by_choice((normal, heavy, flat, clustered), self.whole(0, 4, B, 1, width))
        return torch.where(self.often(0.3, B, 1, 1), clustered, mixed)

    def _nodes(self, causes: Tensor, columns: int) -> list[Tensor]:
        """Layers of nodes, each made of the one before with some noise."""
        B, width = len(causes), max(16, 2 * columns)
        noise = self.log_uniform(B, 1, 1, low=0.003, high=0.3)
        density = self.uniform(B, 1, 1, low=0.15, high=1)
        nodes = [causes]
        for _ in range(any_of(1, 4)):
            links = self.normal(B, nodes[-1].shape[2], width)
            links = links * (self.uniform(*links.shape) < density)
            x = standardised(nodes[-1] @ links) * self.log_uniform(B, 1, 1, low=0.3, high=2)
            x = standardised(self._activated(x + 0.6 * self.normal(B, 1, width)))
            nodes.append(x + noise * torch.randn_like(x))
        return nodes

    def _activated(self, x: Tensor) -> Tensor:
        B, _, width = x.shape
        odds = torch.tensor([odds for _, odds in _ACTIVATIONS], device=self.device)
        kinds = torch.multinomial(odds, B * width, replacement=True).view(B, 1, width)
        kinds = torch.where(self.often(0.5, B, 1, 1), kinds[:, :, :1], kinds)
        return by_choice([f(x) for f, _ in _ACTIVATIONS], kinds)

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
        rank = ranks(score) / rows
        at = torch.where(self.often(0.75, B, 1), 1.0, self.uniform(B, 1))
        ends = torch.minimum(1 - rank, rank)
        away = torch.where(self.often(0.15, B, 1), ends, (rank - at).abs())
        return ranks(away) / rows < pi

    def _label_by_chance(self, pi: Tensor, rows: int) -> Tensor:
        return ranks(self.uniform(len(pi), rows)) / rows < pi

    # --- measuring ---

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
        return torch.where(covered, torch.randn_like(X), by_choice(shapes, kinds))


_ACTIVATIONS: tuple[tuple[Callable[[Tensor], Tensor], float], ...] = (
    (lambda x: x, 3.0),
    (torch.tanh, 3.0),
    (torch.relu, 3.0),
    (torch.sin, 1.0),
    (torch.abs, 1.0),
    (lambda x: (x * x).clamp(max=9), 0.7),
    (lambda x: (x > 0).to(x.dtype), 0.7),
    (lambda x: torch.exp(-x * x), 0.7),
)


def standardised(x: Tensor) -> Tensor:
    """Columns with mean 0 and spread 1."""
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
