"""Batches from real tables: their own labels, or a column of theirs as the target.

A batch has as many columns as some table; narrower tables are filled up with columns that say
nothing or say the same in other words. Columns are turned, bent, rounded and ranked, categories
renumbered and merged; what is an anomaly stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from benchmarks.pretraining.draws import Draws, any_of, by_choice

MOST_ROWS, MOST_COLUMNS = 3000, 128
COMPONENTS, WIDE = 24, 40  # tables of more than 40 columns take part by their components as well
LEVELS = 32  # a column of no more values may be a category
OWN_LABELS = 0.5


class Real(Draws):
    """All tables on the device, padded to the same size."""

    def __init__(self, X: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray], device: str):
        super().__init__(device)
        rng = np.random.default_rng(0)
        views = [view for name in X for view in _views(X[name], y[name], rng)]
        n = len(views)
        self.X = torch.zeros(n, MOST_ROWS, MOST_COLUMNS, device=device)
        self.codes = torch.zeros(n, MOST_ROWS, MOST_COLUMNS, dtype=torch.int16, device=device)
        self.y = torch.zeros(n, MOST_ROWS, dtype=torch.bool, device=device)
        self.levels = torch.zeros(n, MOST_COLUMNS, device=device)
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
        places = torch.arange(MOST_ROWS, device=self.device)
        valid = places < self.rows[table][:, None]
        target = (self.uniform(B) * self.columns[table]).long()
        y, own = self._targets(table, target, valid)
        taken = torch.where(own, -1, target)
        key = self.uniform(B, MOST_COLUMNS)
        index = torch.arange(MOST_COLUMNS, device=self.device)
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
        places = torch.arange(MOST_ROWS, device=self.device)[None]
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
        few = self.levels[table, target][:, None] <= LEVELS
        y = torch.where(few & self.often(0.7, B, 1), codes == code0, tail)
        share = (y & valid).sum(1) / n[:, 0]
        own = self.often(OWN_LABELS, B) | (share < 0.004) | (share > 0.4)
        return torch.where(own[:, None], self.y[table], y) & valid, own

    def augmented(self, X: Tensor, codes: Tensor, levels: Tensor) -> Tensor:
        """Values of chosen rows, told in other words column by column."""
        B, _, columns = X.shape
        some = (B, 1, columns)
        X = torch.where(self.often(0.5, *some), X, -X)
        rank = (codes / levels[:, None].clamp(max=MOST_ROWS) * 2 - 1).clamp(-1, 1)
        power = self.uniform(*some, low=0.4, high=2.5)
        bent = (
            X,
            torch.sign(X) * X.abs().clamp(max=1e4) ** power,
            torch.exp(self.log_uniform(*some, low=0.3, high=1.2) * X.clamp(-8, 8)),
            torch.round(X * self.log_uniform(*some, low=0.7, high=6)),
            torch.where(levels[:, None] < MOST_ROWS + 1, rank, X),
            torch.relu(X - 0.8 * self.normal(*some)),
        )
        kinds = self.whole(1, len(bent), *some) * self.often(0.35, *some)
        plain = self.often(0.35, B, 1, 1)
        X = by_choice(bent, torch.where(plain, 0, kinds))
        return torch.where(plain, X, self._renumbered(X, codes, levels))

    def _renumbered(self, X: Tensor, codes: Tensor, levels: Tensor) -> Tensor:
        """Some categories with other numbers; of some, levels are merged."""
        B, _, columns = X.shape
        numbers = self.uniform(B, columns, LEVELS).argsort(2).float()
        merged = torch.where(self.often(0.25, B, columns, 1), 2.0, 1.0)
        numbers = torch.floor(numbers / merged)
        short = codes.long().clamp(0, LEVELS - 1).transpose(1, 2)
        new = numbers.gather(2, short).transpose(1, 2)
        change = (levels <= LEVELS) & (levels > 2) & self.often(0.3, B, columns)
        return torch.where(change[:, None], new, X)


def _quantile(x: Tensor, valid: Tensor, share: Tensor) -> Tensor:
    """Of the valid values of each row, the one below which that share lies."""
    ordered = torch.where(valid, x, math.inf).sort(1).values
    return ordered.gather(1, (share * (valid.sum(1, keepdim=True) - 1)).round().long())


def _views(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> list[tuple]:
    """A table as z-values and codes; a wide one a second time, by its components."""
    X = X.astype(float)
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    tables = [Z[:, rng.permutation(Z.shape[1])[:MOST_COLUMNS]]]
    if Z.shape[1] > WIDE:
        drawn = np.sign(Z) * np.log1p(np.abs(Z))
        drawn = drawn - drawn.mean(axis=0)
        U = np.linalg.svd(drawn, full_matrices=False)[0][:, :COMPONENTS]
        tables.append(U * math.sqrt(len(U)))
    return [(view.astype(np.float32), _codes(view), y.astype(bool)) for view in tables]


def _codes(Z: np.ndarray) -> np.ndarray:
    """Places of the values of each column among its values."""
    return np.stack([np.unique(z, return_inverse=True)[1] for z in Z.T], axis=1).astype(np.int16)
