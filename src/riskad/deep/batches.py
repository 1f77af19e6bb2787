r"""Which rows a network sees in each step: stratified draws without a generator.

Every step draws b_p rows of P, b_n of N and b_u of U, with replacement. So no kind is ever absent
from a batch, and the gradient of an unguarded risk over a batch is, in expectation, that of the
risk over all rows.

A draw is a function of (seed, step, column of the batch), through the integer mixer of splitmix64
(Steele, Lea and Flood 2014). There is no state between steps, and a CPU and a GPU draw the same
rows, since integers are exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.risks import KIND_NAMES

# The kinds of row in the order of the parameter `batch`; arrays by label code have that of `KINDS`.
BATCH_ORDER = (NORMAL, ANOMALY, UNLABELLED)

Pools = Mapping[int, Tensor]  # for each kind the rows to draw from, as indices into the data

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


def pools_of(codes: Tensor) -> dict[int, Tensor]:
    """The rows of each kind."""
    return {kind: torch.nonzero(codes == kind)[:, 0] for kind in BATCH_ORDER}


def split_pools(
    pools: Pools, share: float, seed: int
) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Set aside a random `share` of each pool for validation; returns the rest and the held rows.

    At least one row of a kind is held and one left; where a kind has a single row none is held out.
    """
    if share == 0 or any(len(rows) == 1 for rows in pools.values()):
        return dict(pools), {kind: rows[:0] for kind, rows in pools.items()}
    training, held = {}, {}
    for kind, rows in pools.items():
        # The same seed for each kind: what is held out of one does not depend on the rows of
        # another.
        generator = torch.Generator().manual_seed(int(seed))
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        n_held = min(max(round(share * len(rows)), 1), len(rows) - 1) if len(rows) else 0
        held[kind], training[kind] = rows[order[:n_held]], rows[order[n_held:].sort().values]
    return training, held


class BatchSampler:
    """Stratified batches of `sizes[kind]` rows of each kind, of which 0 are not drawn.

    `kinds` (B,) is the kind of each column of a batch: P first, then N, then U.
    """

    def __init__(
        self, pools: Pools, sizes: Mapping[int, int], seed: int, device: torch.device | str = "cpu"
    ):
        kinds = [kind for kind in BATCH_ORDER if sizes.get(kind, 0) > 0]
        for kind in kinds:
            if len(pools[kind]) == 0:
                raise InputError(
                    f"there are no {KIND_NAMES[kind]} rows to draw from. Give some, or draw none "
                    "of this kind: size 0."
                )
        counts = torch.tensor([len(pools[kind]) for kind in kinds])
        repeats = torch.tensor([sizes[kind] for kind in kinds])
        # A counter for each column, in a stream for each kind: b_n does not change the rows of U.
        columns = [
            _signed((1 + j + (BATCH_ORDER.index(kind) << 32)) * _STEP)
            for kind in kinds
            for j in range(sizes[kind])
        ]
        self.kinds = torch.tensor(kinds).repeat_interleave(repeats).to(device)
        # All pools end to end, so that one gather serves a step.
        self._rows = torch.cat([pools[kind].to(device) for kind in kinds])
        self._counts = counts.repeat_interleave(repeats).to(device)
        self._starts = (counts.cumsum(0) - counts).repeat_interleave(repeats).to(device)
        self._columns = torch.tensor(columns, device=device)
        self._key = mix(torch.tensor(_signed(int(seed)))).to(device)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Rows (B,) of the data for this step; for steps (S, 1) all of theirs, (S, B)."""
        # 32 random bits u to floor(u n / 2^32): uniform up to n / 2^32, and exact in int64.
        counter = _signed(step * _STEP) if isinstance(step, int) else step * _signed(_STEP)
        # Mixed twice: steps and columns are consecutive numbers, whose sums would repeat.
        u = _shifted(mix(mix(self._key + counter) + self._columns), 32)
        return self._rows[self._starts + ((u * self._counts) >> 32)]


def read_rows(data: Tensor, index: Tensor | slice) -> Tensor:
    """Rows of the data as a network sees them: bytes are brightness, numbers from 0 to 1."""
    rows = data[index]
    return rows.float() / 255 if rows.dtype == torch.uint8 else rows
