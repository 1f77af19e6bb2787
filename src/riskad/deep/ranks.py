r"""Several processes that train one detector as one process would: `torch.distributed`.

If a process group is initialised, its P processes, called ranks, train together; no other setting
is needed. Every rank is given all rows and all labels and draws the same batch of B rows
in each step, as draws are functions of seed and step (`riskad.deep.batches`). Rank r runs the
networks over columns r, r + P, r + 2P ... of the batch, so that it has its share of every kind of
label. Then

    outputs      are joined: each rank has those of the whole batch, and from them the same risk,
                 whose max(0, .) is decided by the whole batch and never by a part of it;
    statistics   of batch normalisation are means over the columns of all ranks;
    gradients    dR/dw = sum_r dR/dw through the columns of rank r, summed over ranks.

So each rank takes the step that a single process with the same batch takes, up to rounding, and
ends with the same weights, learning curves and threshold as the others. Held-out rows, and the
scores for the threshold, are divided in the same way. A fitted detector scores alone.

A single process is P = 1, for which all of this does nothing.

With `train.py`

    import numpy as np
    import riskad
    import torch.distributed as dist

    dist.init_process_group("gloo")  # on GPUs "nccl", after torch.cuda.set_device(local rank)
    X, y = np.load("rows.npy", mmap_mode="r"), np.load("labels.npy")
    model = riskad.DeepRAD(batch=(256, 128, 2048)).fit(X, y)
    if dist.get_rank() == 0:
        riskad.save(model, "model.riskad")
    dist.destroy_process_group()

`torchrun --nproc_per_node 2 train.py` trains in two processes. All of them must call what fits
(`fit`, `riskad.calibrate`), since each waits for the others; any of them may score and save.
Callbacks are called in each. A process that ends, or that is slower than the `timeout` of
`init_process_group`, raises an error in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from riskad.core.checks import InputError

__all__ = ["ALONE", "Ranks", "world"]


@dataclass(frozen=True)
class Ranks:
    """A process among those that train together.

    Parameters
    ----------
    rank : int, default=0
        r, counted from 0.
    size : int, default=1
        P.

    Examples
    --------
    >>> batch = torch.arange(7)[None]
    >>> [batch[:, Ranks(rank, 3).columns].tolist() for rank in range(3)]
    [[[0, 3, 6]], [[1, 4]], [[2, 5]]]
    >>> Ranks(1, 3).part(7), world() == ALONE
    (slice(2, 4, None), True)
    """

    rank: int = 0
    size: int = 1

    @property
    def columns(self) -> slice:
        """The columns of a batch for this rank: some of every kind of label."""
        return slice(self.rank, None, self.size)

    def part(self, n: int) -> slice:
        """The rows of n for this rank, consecutive."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def join(self, mine: Tensor, where: slice, n: int) -> Tensor:
        """All ranks' parts of (K, n, ...), given this one's: (K, n of `where`, ...).

        A gradient returns only to the rank's own part, since every rank continues from the whole in
        the same way.
        """
        if self.size == 1:
            return mine
        whole: Tensor = _Join.apply(mine, where, n)  # type: ignore[no-untyped-call]
        return whole

    def mean(self, x: Tensor, over: list[int]) -> tuple[Tensor, Tensor]:
        """Mean of all ranks' values along axes, which are kept, and the number of values."""
        if self.size == 1:
            mean = x.mean(over, keepdim=True)
            return mean, x.new_full((), x.numel() // mean.numel())
        total = x.sum(over, keepdim=True)
        count = total.new_full((1,), x.numel() // total.numel())
        sums = _Sum.apply(torch.cat([total.flatten(), count]))  # type: ignore[no-untyped-call]
        return sums[:-1].view_as(total) / sums[-1], sums[-1].detach()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over ranks."""
        if self.size == 1:
            return
        gradients = [each.grad for each in parameters if each.grad is not None]
        sums = _reduced(torch.cat([each.flatten() for each in gradients]))
        parts = torch.split_with_sizes(sums, [each.numel() for each in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def begin(self, stack: nn.Module, batch: int) -> None:
        """Before the first step: check that ranks can share the work, and copy rank 0's weights."""
        if self.size == 1:
            return
        if batch < self.size:
            raise InputError(
                f"a batch of {batch} rows cannot be shared by {self.size} processes. Raise "
                "`batch`, or start fewer of them."
            )
        for name, layer in stack.named_modules():
            if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                raise InputError(
                    f"layer {name!r} of your module is {type(layer).__name__}, which would take "
                    "its statistics from one process's part of a batch. Use a named architecture, "
                    "nn.GroupNorm or nn.LayerNorm, or on GPUs "
                    "nn.SyncBatchNorm.convert_sync_batchnorm."
                )
        for value in stack.state_dict().values():
            with _collective(value.device):
                dist.broadcast(value, src=0)

    def check_same(self, given: Mapping[str, bytes], device: torch.device) -> None:
        """Refuse, on all ranks, input that differs between ranks.

        Otherwise they would train something unintended, or wait for each other.
        """
        if self.size == 1:
            return
        digests = [blake2b(each, digest_size=8).digest() for each in given.values()]
        mine = torch.tensor([int.from_bytes(each, signed=True) for each in digests], device=device)
        most, least = _reduced(mine, dist.ReduceOp.MAX), _reduced(mine, dist.ReduceOp.MIN)
        same = (most == least).tolist()
        differ = [name for name, alike in zip(given, same, strict=True) if not alike]
        if differ:
            raise InputError(
                f"the {self.size} processes were not given the same: {' and '.join(differ)} "
                "differ. Fit the same detector to all rows and labels in every process; each takes "
                "its share of every batch by itself."
            )


ALONE = Ranks()


def world() -> Ranks:
    """The rank of this process in the initialised process group, or `ALONE`."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return ALONE


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, where: slice, n: int) -> Tensor:
        ctx.where = where
        whole = mine.new_zeros(mine.shape[0], n, *mine.shape[2:])
        whole[:, where] = mine
        return _reduced(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][:, ctx.where], None, None


class _Sum(torch.autograd.Function):
    """The sum over ranks. Each rank uses it differently, so gradients are summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _reduced(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _reduced(gradients[0])


def _reduced(x: Tensor, how: Any = None) -> Tensor:
    """The sum over ranks, or the reduction `how`, as a new tensor."""
    x = x.detach().clone(memory_format=torch.contiguous_format)
    with _collective(x.device):
        dist.all_reduce(x, op=dist.ReduceOp.SUM if how is None else how)
    return x


@contextmanager
def _collective(device: torch.device) -> Iterator[None]:
    """Explain what it may mean that processes cannot reach each other."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            "this process lost the others that it trains with: one of them has ended, see its own "
            "message, or was slower than the timeout of init_process_group, or the backend is not "
            f"one for {device.type!r} (gloo for CPUs, nccl for GPUs). torch says: {error}"
        ) from error
