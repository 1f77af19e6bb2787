"""Batches as the network reads them: of real tables or synthetic ones, with labels for some rows.

A table of a batch of real ones has its own labels, or a column of its as the target. A batch has as
many columns as some table; narrower tables are filled up with columns that say nothing or say the
same in other words. Columns are turned, bent, rounded and ranked, categories renumbered and merged;
what is an anomaly stays. Then labels are given to some rows, cells are blanked, and outlier scores
are appended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from experiments.pretraining.network import channels, compressed
from experiments.pretraining.synthetic import Draws, Synthetic, any_of, by_choice, ranks

_MOST_ROWS, _MOST_COLUMNS = 3000, 128
_COMPONENTS, _WIDE = 24, 40  # tables of more than 40 columns take part by their components as well
_LEVELS = 32  # a column of no more values may be a category
_OWN_LABELS = 0.5
_FAR = 10.0  # what outlier scores do not exceed, in standard deviations


class Batches(Draws):
    """Real and synthetic tables, ready to be read."""

    def __init__(self, real: Real, device: str):
        super().__init__(device)
        self.real, self.synthetic, self.labels = real, Synthetic(device), Labels(device)

    def make(
        self, B: int, columns: int, context: int, judged: int, *, real: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Channels (B, context + judged, columns and outlier scores, ...), states and truth."""
        needed = context + judged
        if real:
            X, codes, y, valid, pi, levels = self.real.pool(B, columns, needed)
        else:
            X, y, pi = self.synthetic.pool(B, columns, context)
            valid = torch.ones_like(y)
        order, state = self.labels.choose(X, y, valid, pi, context, judged)
        places = order[:, :, None].expand(-1, -1, columns)
        X, y = X.gather(1, places), y.gather(1, order)
        if real:
            X = self.real.augmented(X, codes.gather(1, places), levels)
        Z = compressed(self._blanked(X), context)
        Z = torch.cat([Z, self._outliers(Z, context)], 2)
        return channels(Z, state, context), state, y

    def _blanked(self, X: Tensor) -> Tensor:
        """In a quarter of the tables some columns have blanks: anywhere, or at one end."""
        B, n, columns = X.shape
        share = self.log_uniform(B, 1, columns, low=0.01, high=0.6)
        some = self.often(0.25, B, 1, 1) & self.often(0.5, B, 1, columns)
        edge = X.mean(1, keepdim=True) + self.normal(B, 1, columns) * X.std(1, keepdim=True)
        at_end = self.often(0.4, B, 1, columns) & (edge > X)
        chance = torch.where(at_end, (3 * share).clamp(max=0.95), share)
        return torch.where(some & (self.uniform(B, n, columns) < chance), torch.nan, X)

    def _outliers(self, Z: Tensor, context: int) -> Tensor:
        """None, one or two columns: how far a near neighbour is, and how far out cells are."""
        count = (0, 1, 2, 2)[any_of(0, 4)]
        if not count:
            return Z[:, :, :0]
        Z, k = Z.nan_to_num(), any_of(4, 16)
        near = torch.cdist(Z, Z[:, :context]).topk(k + 1, 2, largest=False).values
        far = torch.cat([near[:, :context, k], near[:, context:, k - 1]], 1)
        scores = [torch.log(far + 0.03), Z.square().mean(2)][:count]
        return compressed(torch.stack(scores, 2), context).clamp(-_FAR, _FAR)


# --- labels ---------------------------------------------------------------------------


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


# --- real tables ----------------------------------------------------------------------


class Real(Draws):
    """All tables on the device, padded to the same size."""

    def __init__(self, tables: Mapping[str, tuple[np.ndarray, np.ndarray]], device: str):
        super().__init__(device)
        rng = np.random.default_rng(0)
        views = [view for X, y in tables.values() for view in _views(X, y, rng)]
        n = len(views)
        self.X = torch.zeros(n, _MOST_ROWS, _MOST_COLUMNS, device=device)
        self.codes = torch.zeros(n, _MOST_ROWS, _MOST_COLUMNS, dtype=torch.int16, device=device)
        self.y = torch.zeros(n, _MOST_ROWS, dtype=torch.bool, device=device)
        self.levels = torch.zeros(n, _MOST_COLUMNS, device=device)
        for i, (Z, codes, odd) in enumerate(views):
            rows, columns = Z.shape
            self.X[i, :rows, :columns] = torch.from_numpy(Z).to(device)
            self.codes[i, :rows, :columns] = torch.from_numpy(codes).to(device)
            self.y[i, :rows] = torch.from_numpy(odd).to(device)
            self.levels[i, :columns] = torch.from_numpy(codes.max(axis=0) + 1.0).to(device)
        self.widths = [Z.shape[1] for Z, _, _ in views]
        self.columns = torch.tensor(self.widths, device=device)
        self.rows = torch.tensor([len(Z) for Z, _, _ in views], device=device)

    def some_columns(self) -> int:
        """How many columns a batch has: mostly as many as some table."""
        columns = min(self.widths[any_of(0, len(self.widths))], 100)
        if any_of(0, 10) < 3:
            columns = any_of(min(3, columns), columns + 1)
        return columns

    def pool(self, B: int, columns: int, needed: int) -> tuple[Tensor, ...]:
        """Values and codes (B, rows, columns), anomalies, valid rows, their share, levels."""
        wide = (self.columns >= 0.75 * columns) & (self.rows >= needed)
        table = torch.multinomial(wide.float(), B, replacement=True)
        places = torch.arange(_MOST_ROWS, device=self.device)
        valid = places < self.rows[table][:, None]
        target = (self.uniform(B) * self.columns[table]).long()
        y, own = self._targets(table, target, valid)
        taken = torch.where(own, -1, target)
        key = self.uniform(B, _MOST_COLUMNS)
        index = torch.arange(_MOST_COLUMNS, device=self.device)
        out = (index >= self.columns[table][:, None]) | (index == taken[:, None])
        key, chosen = torch.where(out, 2.0, key).sort(1)
        real = key[:, :columns] < 1.5
        again = chosen.gather(1, (self.uniform(B, columns) * real.sum(1, keepdim=True)).long())
        chosen = torch.where(real, chosen[:, :columns], again)
        every = (table[:, None, None], places[None, :, None], chosen[:, None])
        X, codes = self.X[every], self.codes[every]
        X = self._filled_up(X, real, valid)
        pi = (y & valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True)
        pi = (pi * torch.exp(0.4 * self.normal(B, 1))).clamp(0.005, 0.45)
        levels = torch.where(real, self.levels[table].gather(1, chosen), 1e9)
        return X, codes, y, valid, pi, levels

    def _filled_up(self, X: Tensor, real: Tensor, valid: Tensor) -> Tensor:
        """Columns beyond those of a table: other ones with their rows mixed, or with noise.

        In one table of ten, some of its own columns have their rows mixed, too.
        """
        B, rows, columns = X.shape
        key = torch.where(valid, self.uniform(B, rows), 2.0)
        mixed = X.gather(1, key.argsort(1)[:, :, None].expand(-1, -1, columns))
        noisy = X + self.log_uniform(B, 1, columns, low=0.05, high=2) * torch.randn_like(X)
        other = torch.where(self.often(0.5, B, 1, columns), mixed, noisy)
        idle = self.often(0.1, B, 1) & self.often(0.3, B, columns)
        return torch.where((real & ~idle)[:, None], X, other)

    def _targets(self, table: Tensor, target: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """What is an anomaly, and whether these are a table's own."""
        B = len(table)
        places = torch.arange(_MOST_ROWS, device=self.device)[None]
        x = self.X[table[:, None], places, target[:, None]]
        codes = self.codes[table[:, None], places, target[:, None]]
        n = self.rows[table][:, None]
        row = (self.uniform(B, 1) * n).long()
        pi = self.log_uniform(B, 1, low=0.01, high=0.3)
        x0, code0 = x.gather(1, row), codes.gather(1, row)
        middle = _quantile(x, valid, torch.full_like(pi, 0.5))
        high, low, ends, near = x, -x, (x - middle).abs(), -(x - x0).abs()
        score = by_choice((high, low, ends, near), self.whole(0, 4, B, 1))
        tail = score >= _quantile(score, valid, 1 - pi)
        few = self.levels[table, target][:, None] <= _LEVELS
        y = torch.where(few & self.often(0.7, B, 1), codes == code0, tail)
        share = (y & valid).sum(1) / n[:, 0]
        own = self.often(_OWN_LABELS, B) | (share < 0.004) | (share > 0.4)
        return torch.where(own[:, None], self.y[table], y) & valid, own

    def augmented(self, X: Tensor, codes: Tensor, levels: Tensor) -> Tensor:
        """Values of chosen rows, told in other words column by column."""
        B, _, columns = X.shape
        some = (B, 1, columns)
        X = torch.where(self.often(0.5, *some), X, -X)
        rank = (codes / levels[:, None].clamp(max=_MOST_ROWS) * 2 - 1).clamp(-1, 1)
        power = self.uniform(*some, low=0.4, high=2.5)
        bent = (
            X,
            torch.sign(X) * X.abs().clamp(max=1e4) ** power,
            torch.exp(self.log_uniform(*some, low=0.3, high=1.2) * X.clamp(-8, 8)),
            torch.round(X * self.log_uniform(*some, low=0.7, high=6)),
            torch.where(levels[:, None] < _MOST_ROWS + 1, rank, X),
            torch.relu(X - 0.8 * self.normal(*some)),
        )
        kinds = self.whole(1, len(bent), *some) * self.often(0.35, *some)
        plain = self.often(0.35, B, 1, 1)
        X = by_choice(bent, torch.where(plain, 0, kinds))
        return torch.where(plain, X, self._renumbered(X, codes, levels))

    def _renumbered(self, X: Tensor, codes: Tensor, levels: Tensor) -> Tensor:
        """Some categories with other numbers; of some, levels are merged."""
        B, _, columns = X.shape
        numbers = self.uniform(B, columns, _LEVELS).argsort(2).float()
        merged = torch.where(self.often(0.25, B, columns, 1), 2.0, 1.0)
        numbers = torch.floor(numbers / merged)
        short = codes.long().clamp(0, _LEVELS - 1).transpose(1, 2)
        new = numbers.gather(2, short).transpose(1, 2)
        change = (levels <= _LEVELS) & (levels > 2) & self.often(0.3, B, columns)
        return torch.where(change[:, None], new, X)


def _quantile(x: Tensor, valid: Tensor, share: Tensor) -> Tensor:
    """Of the valid values of each row, the one below which that share lies."""
    ordered = torch.where(valid, x, math.inf).sort(1).values
    return ordered.gather(1, (share * (valid.sum(1, keepdim=True) - 1)).round().long())


def _views(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """A table as z-values and codes; a wide one a second time, by its components."""
    X = X.astype(float)
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    tables = [Z[:, rng.permutation(Z.shape[1])[:_MOST_COLUMNS]]]
    if Z.shape[1] > _WIDE:
        drawn = np.sign(Z) * np.log1p(np.abs(Z))
        drawn = drawn - drawn.mean(axis=0)
        U = np.linalg.svd(drawn, full_matrices=False)[0][:, :_COMPONENTS]
        tables.append(U * math.sqrt(len(U)))
    return [(view.astype(np.float32), _codes(view), y.astype(bool)) for view in tables]


def _codes(Z: np.ndarray) -> np.ndarray:
    """Places of the values of each column among its values."""
    return np.stack([np.unique(z, return_inverse=True)[1] for z in Z.T], axis=1).astype(np.int16)
