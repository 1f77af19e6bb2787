"""Random numbers on a device, and labels for some rows of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


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


class Labels(Draws):
    """Chooses rows: labelled, unlabelled and judged ones.

    Mostly labelled rows are a random sample of their kind. In three tables of ten they are not:
    labelled anomalies are neighbours of each other (others are of another kind), or labels are
    given where a column is large. In a quarter only one to three anomalies are labelled; in some,
    rows of one kind alone.
    """

    def choose(
        self, X: Tensor, y: Tensor, valid: Tensor, pi: Tensor, context: int, judged: int
    ) -> tuple[Tensor, Tensor]:
        """Places (B, context + judged) in the order labelled, unlabelled, judged, and states.

        A state is 0 (none), 1 (normal) or 2 (anomaly); up to half of the judged are anomalies.
        """
        B, rows = y.shape
        total = (y & valid).sum(1, keepdim=True)
        normals, anomalies = self._sizes(pi, total, context)
        unlabelled = context - normals - anomalies
        odd_unlabelled = torch.minimum((unlabelled * pi).round().long(), (total - anomalies) // 2)
        odd_judged = (total - anomalies - odd_unlabelled).clamp(max=judged // 2)
        key = self.uniform(B, rows)
        first = self._first(X, y, valid, key)
        groups = []
        for kind, labelled, free, seen in (
            (y & valid, anomalies, odd_unlabelled, odd_judged),
            (~y & valid, normals, unlabelled - odd_unlabelled, judged - odd_judged),
        ):
            chosen = kind & (ranks(torch.where(kind, first, 1e9)) < labelled)
            order = ranks(torch.where(chosen, -1.0, torch.where(kind, key, 1e9)))
            groups.append(_groups(order, labelled, free, seen))
        group = torch.where(y, groups[0], groups[1])
        group = torch.where(valid, group, 9)
        order = (group + 0.9 * key).argsort(1)[:, : context + judged]
        known = torch.gather(group, 1, order) == 0
        return order, torch.where(known, torch.gather(y, 1, order).long() + 1, 0)

    def _sizes(self, pi: Tensor, total: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """How many normals and anomalies are labelled."""
        B = len(pi)
        normals = self.log_uniform(B, 1, low=4, high=0.7 * context).long()
        anomalies = normals * pi / (1 - pi) * torch.exp(0.7 * self.normal(B, 1))
        anomalies = anomalies.round().long().clamp(1, 200)
        few = self.often(0.25, B, 1)
        anomalies = torch.where(few, self.whole(1, 4, B, 1), anomalies)
        one_kind = self.uniform(B, 1)
        normals = torch.where(one_kind < 0.07, 0, normals)
        anomalies = torch.where((one_kind > 0.07) & (one_kind < 0.1), 0, anomalies)
        anomalies = torch.minimum(anomalies, total // 2)
        return normals, torch.minimum(anomalies, context - normals)

    def _first(self, X: Tensor, y: Tensor, valid: Tensor, key: Tensor) -> Tensor:
        """Rows with the smallest of these are labelled."""
        B, rows = y.shape
        X = X[:, :, :8].nan_to_num()
        X = (X - X.mean(1, keepdim=True)) / (X.std(1, keepdim=True) + 1e-5)
        odd = torch.where(y & valid, key, 2.0).argmin(1)
        centre = torch.gather(X, 1, odd[:, None, None].expand(-1, 1, X.shape[2]))
        far = (X - centre).clamp(-5, 5).square().sum(2)
        far = torch.where(y, ranks(far) / rows + 0.03 * key, key)
        large = -ranks(X[:, :, 0]) / rows + self.uniform(B, 1, low=0.1, high=1) * key
        kind = self.uniform(B, 1)
        return torch.where(kind < 0.15, far, torch.where(kind < 0.3, large, key))


def _groups(rank: Tensor, *sizes: Tensor) -> Tensor:
    """0 for the first ranks, 1 for the next, and so on."""
    ends = torch.cumsum(torch.cat(sizes, 1), 1)
    return (rank[:, :, None] >= ends[:, None]).sum(2)
