r"""Which rows each network sees in each step: stratified draws without a generator.

Every step draws b_p rows of P, b_n of N and b_u of U for each network, with replacement and from
that network's own pools. So no kind is ever absent from a batch, however rare it is, and the mean
loss over the drawn rows of a kind has the mean over the pool as its expectation: the gradient of
an unguarded risk over a batch is, in expectation, that of the risk over all rows.

A draw is a function of (seed of the network, step, column of the batch), through the integer mixer
of splitmix64 (Steele, Lea and Flood 2014). There is no state between steps, other networks do not
matter, and a CPU and a GPU draw the same rows, since integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.risks import KIND_NAMES
from riskad.deep.disk import Stored, ahead

__all__ = ["BATCH_ORDER", "Draws", "NetworkRows", "Pools", "hold_out", "mix", "pools_of"]

BATCH_ORDER = (NORMAL, ANOMALY, UNLABELLED)
"""The kinds of row in the order of the parameter `batch` and of the columns of a batch.

Arrays that are indexed by label code have the order of `riskad.core.labels.KINDS`.
"""

Pools = Mapping[int, Tensor]
"""For each kind the rows that a network draws from, as indices into the data."""

# The odd constants of splitmix64: 2^64 over the golden ratio, and the two of its mixer.
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def _signed(value: int) -> int:
    """The int64 that has the lowest 64 bits of `value`."""
    value %= 1 << 64
    return value - (1 << 64) if value >= 1 << 63 else value


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; that of int64 repeats the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """The mixer of splitmix64 on int64, a bijection in which each bit depends on all bits."""
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)


def pools_of(codes: Tensor, rows: Tensor | None = None) -> dict[int, Tensor]:
    """The rows of each kind among `rows`, or among all: one network's pools."""
    where = torch.arange(len(codes), device=codes.device) if rows is None else rows
    return {kind: where[codes[where] == kind] for kind in BATCH_ORDER}


def hold_out(pools: Pools, share: float, seed: int) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Set aside a random `share` of each pool for validation; returns the rest and the held rows.

    At least one row of a kind is held and one left. If a pool has a single row this is impossible,
    and no kind is held out. Empty pools stay empty.
    """
    if share == 0 or any(len(rows) == 1 for rows in pools.values()):
        return dict(pools), {kind: rows[:0] for kind, rows in pools.items()}
    left, held = {}, {}
    for kind, rows in pools.items():
        generator = torch.Generator().manual_seed(int(seed))
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        n_held = min(max(round(share * len(rows)), 1), len(rows) - 1) if len(rows) else 0
        held[kind], left[kind] = rows[order[:n_held]], rows[order[n_held:].sort().values]
    return left, held


class Draws:
    """Stratified batches for K networks.

    Parameters
    ----------
    pools : sequence of mappings
        For each network and kind the rows to draw from, as indices into the data.
    sizes : mapping
        Number of rows of each kind in a batch; a kind of size 0 is not drawn.
    seeds : sequence of int
        One for each network.

    Attributes
    ----------
    kinds : Tensor of shape (B,)
        Kind of each column of the batch: P first, then N, then U.

    Examples
    --------
    >>> pools = [{1: torch.tensor([0, 1]), -1: torch.tensor([2]), 0: torch.tensor([3, 4, 5])}]
    >>> draws = Draws(pools, {1: 2, -1: 1, 0: 3}, seeds=[0])
    >>> draws.kinds.tolist(), draws(step=0).shape
    ([1, 1, -1, 0, 0, 0], torch.Size([1, 6]))
    """

    def __init__(
        self,
        pools: Sequence[Pools],
        sizes: Mapping[int, int],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
    ):
        drawn = [kind for kind in BATCH_ORDER if sizes.get(kind, 0) > 0]
        _check_pools(pools, drawn)
        self.kinds = torch.tensor(
            [kind for kind in drawn for _ in range(sizes[kind])], device=device
        )
        flat = [pool[kind] for pool in pools for kind in drawn]
        counts = torch.tensor([len(rows) for rows in flat]).view(len(pools), len(drawn))
        starts = counts.flatten().cumsum(0).view_as(counts) - counts
        repeats = torch.tensor([sizes[kind] for kind in drawn])
        self._rows = torch.cat([rows.to(device) for rows in flat])
        self._counts = counts.repeat_interleave(repeats, dim=1).to(device)
        self._starts = starts.repeat_interleave(repeats, dim=1).to(device)
        self._keys = mix(torch.tensor([_signed(int(seed)) for seed in seeds]))[:, None].to(device)
        self._columns = _column_counters(drawn, sizes).to(device)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Rows (K, B) of the data for this step; for steps (S, 1, 1) all of theirs, (S, K, B)."""
        # 32 random bits u to floor(u n / 2^32): uniform up to n / 2^32, and exact in int64.
        counter = _signed(step * _STEP) if isinstance(step, int) else step * _signed(_STEP)
        u = _shifted(mix(mix(self._keys + counter) + self._columns), 32)
        return self._rows[self._starts + ((u * self._counts) >> 32)]


class NetworkRows:
    """Rows on the device as K networks see them.

    Parameters
    ----------
    data : Tensor of shape (n, *shape), or Stored
        All rows, once for all networks; `Stored` rows are loaded to the device on demand. Bytes are
        the brightness of images, and are seen as numbers from 0 to 1.
    mean, scale : Tensors of shape (K, c), default=None
        Each network sees (x - mean) / scale, by column or by channel; None: x itself.
    """

    def __init__(
        self, data: Tensor | Stored, mean: Tensor | None = None, scale: Tensor | None = None
    ):
        self.data, self.mean, self.scale = data, mean, scale

    def __len__(self) -> int:
        return len(self.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return tuple(self.data.shape[1:])

    @property
    def device(self) -> torch.device:
        """Device on which rows are seen."""
        return self.data.device

    def own(self, index: Tensor) -> Tensor:
        """Rows (K, B, *shape) for each network: those in its row of `index`."""
        return self._seen(self.data[index])

    def shared(self, start: int, stop: int) -> Tensor:
        """The same rows for all networks: (1, B, *shape), or (K, B, *shape) if they differ."""
        return self._seen(self.data[start:stop][None])

    def batches(self, draw: Callable[[int], Tensor], n_steps: int) -> Iterator[Tensor]:
        """The rows of each step, whose numbers `draw` gives; read ahead from a disk."""

        def read(step: int) -> Tensor:
            return self.own(draw(step))

        steps: Iterable[int] = range(n_steps)
        return ahead(read, steps) if isinstance(self.data, Stored) else map(read, steps)

    def _seen(self, x: Tensor) -> Tensor:
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        if self.mean is None or self.scale is None:
            return x
        across = (len(self.mean), 1, -1, *[1] * (x.ndim - 3))
        return (x - self.mean.view(across)) / self.scale.view(across)


def _column_counters(drawn: Sequence[int], sizes: Mapping[int, int]) -> Tensor:
    """A counter for each column, in a stream for each kind: b_n does not change the rows of U."""
    counters = [
        _signed((1 + j + (BATCH_ORDER.index(kind) << 32)) * _STEP)
        for kind in drawn
        for j in range(sizes[kind])
    ]
    return torch.tensor(counters)


def _check_pools(pools: Sequence[Pools], drawn: Sequence[int]) -> None:
    for k, pool in enumerate(pools):
        for kind in drawn:
            if len(pool[kind]) == 0:
                raise InputError(
                    f"network {k} has no {KIND_NAMES[kind]} rows to draw from. Give it some, or "
                    "draw none of this kind: size 0."
                )
