"""Batches as the network reads them: labels given, cells blanked, outlier scores appended."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.pretraining.draws import Draws, Labels, any_of
from benchmarks.pretraining.network import channels, drawn_in
from benchmarks.pretraining.real import Real
from benchmarks.pretraining.synthetic import Synthetic

FAR = 10.0  # what outlier scores do not exceed, in standard deviations


class Batches(Draws):
    """Real and synthetic tables, ready to be read."""

    def __init__(self, real: Real | None, device: str):
        super().__init__(device)
        self.real, self.synthetic, self.labels = real, Synthetic(device), Labels(device)

    def make(
        self, B: int, columns: int, context: int, judged: int, *, real: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Channels (B, context + judged, columns and outlier scores, ...), states and truth."""
        needed = context + judged
        if real and self.real is not None:
            X, codes, y, valid, pi, levels = self.real.pool(B, columns, needed)
        else:
            X, y, pi = self.synthetic.pool(B, columns, context)
            valid = torch.ones_like(y)
        order, state = self.labels.choose(X, y, valid, pi, context, judged)
        places = order[:, :, None].expand(-1, -1, columns)
        X, y = X.gather(1, places), y.gather(1, order)
        if real and self.real is not None:
            X = self.real.augmented(X, codes.gather(1, places), levels)
        Z = drawn_in(self._blanked(X), context)
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
        return drawn_in(torch.stack(scores, 2), context).clamp(-FAR, FAR)
