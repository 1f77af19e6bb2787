"""Layers of K networks side by side: each parameter has a leading axis of length K."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riskad.deep.ranks import Ranks, world

__all__ = [
    "KERNEL",
    "LEAKY_SLOPE",
    "NORM_EPS",
    "ConvBlock",
    "LinearBlock",
    "StackedBatchNorm",
    "StackedConv",
    "StackedLinear",
    "StackedUnit",
    "activate",
    "apart",
    "side_by_side",
]


NORM_EPS = 1e-4
_MOMENTUM = 0.1
LEAKY_SLOPE = 0.01
KERNEL = 5
"""Side of the convolutions."""
# Grouped convolutions with fewer input channels in a group leave a GPU idle.
_FEW_CHANNELS = 4
# Adjacent values of a row of the result per strip; 4 was the fastest of 1 to 32 on an H200.
_STRIP = 4
# The library of the kernels: it comes with torch for GPUs, but only on Linux.
_TRITON = find_spec("triton") is not None

Generators = Sequence[torch.Generator]


class StackedLinear(nn.Module):
    """x_k W_k' for K networks: (K, B, n_in) to (K, B, n_out)."""

    def __init__(self, generators: Generators, n_in: int, n_out: int):
        super().__init__()
        self.weight = _uniform(generators, (n_out, n_in), n_in)

    def forward(self, x: Tensor) -> Tensor:
        """Linear map of each network's rows."""
        return torch.bmm(x, self.weight.mT)


class StackedConv(nn.Module):
    """A 5 x 5 convolution over zero-padded images for K networks, without bias.

    It maps (K, B, c_in, H, W) to (K, B, c_out, H, W); given (1, B, c_in, H, W), all networks see
    the same images. It is one grouped convolution, with the channels of network 0 first, then those
    of network 1 and so on. GPUs are slow at this if a group has few input channels; then strips are
    used.
    """

    def __init__(self, generators: Generators, c_in: int, c_out: int):
        super().__init__()
        self.weight = _uniform(generators, (c_out, c_in, KERNEL, KERNEL), c_in * KERNEL**2)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve each network's images."""
        few = self.weight.shape[2] < _FEW_CHANNELS and x.shape[4] % _STRIP == 0
        return self.by_strips(x) if few and x.is_cuda else self.by_groups(x)

    def by_groups(self, x: Tensor) -> Tensor:
        """One grouped convolution of (B, K c_in, H, W)."""
        K = len(self.weight)
        x = side_by_side(x.expand(K, *x.shape[1:]))
        return apart(F.conv2d(x, self.weight.flatten(0, 1), padding=KERNEL // 2, groups=K), K)

    def by_strips(self, x: Tensor) -> Tensor:
        r"""One product of matrices for each network.

        A strip of 5 rows and 4 + 4 columns of the image holds all that 4 neighbours in a row of the
        result depend on. They are its product with a matrix that has the kernel in it 4 times, each
        a column further: more multiplications than needed, but all of them in one large product,
        and fewer copies of the image than one for each place of the kernel.
        """
        K, c_out = self.weight.shape[:2]
        _, B, _, H, W = x.shape
        # Every value is copied 10 times: in the precision of the product, not in a wider one.
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        padded = F.pad(x, [KERNEL // 2] * 4)
        strips = padded.unfold(3, KERNEL, 1).unfold(4, _STRIP + KERNEL - 1, _STRIP)
        strips = strips.permute(0, 1, 3, 4, 2, 5, 6).reshape(len(x), B * H * W // _STRIP, -1)
        matrix = self._strip_matrix().to(strips.dtype)
        maps = torch.bmm(strips.expand(K, *strips.shape[1:]), matrix)
        return maps.view(K, B, H, W, c_out).permute(0, 1, 4, 2, 3)

    def _strip_matrix(self) -> Tensor:
        """(K, c_in 5 (4 + 4), 4 c_out): value (c, i, j) of a strip to channel o of place q.

        Entry [(c, i, j), (q, o)] is the kernel's weight[o, c, i, j - q], or 0 outside it.
        """
        weight = self.weight
        shift = torch.zeros(KERNEL, _STRIP + KERNEL - 1, _STRIP, device=weight.device)
        for q in range(_STRIP):
            shift[:, q : q + KERNEL, q] = torch.eye(KERNEL, device=weight.device)
        moved = torch.matmul(weight, shift.flatten(1).to(weight.dtype))  # K, o, c, i, (j q)
        moved = torch.unflatten(moved, 4, (-1, _STRIP)).permute(0, 2, 3, 4, 5, 1)
        return moved.reshape(len(weight), -1, _STRIP * weight.shape[1])


class StackedBatchNorm(nn.Module):
    """Batch normalisation of (B, K c, ...) with statistics of each network's own batch.

        (x - mean) / sqrt(variance + eps),   running <- 0.9 running + 0.1 batch

    In evaluation the running statistics replace the batch's. If several processes train, the batch
    is that of all of them.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, n_networks: int, channels: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_networks, channels))
        self.register_buffer("variance", torch.ones(n_networks, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel of each network."""
        ranks = world()
        if self.training and ranks.size > 1:
            return self._over_ranks(x, ranks)
        mean, variance = self.mean.view(-1), self.variance.view(-1)
        return F.batch_norm(
            x, mean, variance, training=self.training, momentum=_MOMENTUM, eps=NORM_EPS
        )

    def _over_ranks(self, x: Tensor, ranks: Ranks) -> Tensor:
        """Normalise by the statistics of all ranks' parts of the batch."""
        over = [axis for axis in range(x.ndim) if axis != 1]
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, n = ranks.mean(wide, over)
        variance, _ = ranks.mean((wide - mean).square(), over)
        self.remember(mean, variance, n)
        return ((wide - mean) * torch.rsqrt(variance + NORM_EPS)).to(x.dtype)

    def remember(self, mean: Tensor, variance: Tensor, n: int | Tensor) -> None:
        """Include a batch that was normalised elsewhere: its statistics over n values each."""
        with torch.no_grad():
            self.mean.lerp_(mean.view_as(self.mean), _MOMENTUM)
            self.variance.lerp_(variance.view_as(self.variance) * (n / (n - 1)), _MOMENTUM)


class StackedUnit(nn.Module):
    r"""The output: one linear unit for each network, (K, B, n_in) to (K, B).

    A network that is `centred` gives its scores minus their mean over the batch, plus a bias; in
    evaluation the running mean replaces the batch's. This is for losses without slope far from 0,
    such as the sigmoid loss. Most rows are normal, so the first steps raise all scores; without
    centring, anomalies that have risen with the others would never come down again.
    """

    mean: Tensor
    centred: Tensor

    def __init__(self, generators: Generators, n_in: int, centred: Sequence[bool]):
        super().__init__()
        self.weight = _uniform(generators, (1, n_in), n_in)
        self.bias = _uniform(generators, (1,), n_in)
        self.any_centred = any(centred)
        self.register_buffer("mean", torch.zeros(len(generators), 1))
        self.register_buffer("centred", torch.tensor([centred]).float().T, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of each network's rows."""
        scores = torch.bmm(x, self.weight.mT).squeeze(2)
        if not self.any_centred:
            return scores + self.bias
        mean = self._batch_mean(scores) if self.training else self.mean
        if self.training:
            self.mean.lerp_(mean.detach(), _MOMENTUM)
        return scores - self.centred * mean + self.bias

    def _batch_mean(self, scores: Tensor) -> Tensor:
        return world().mean(scores.to(self.mean.dtype), [1])[0]


def _uniform(generators: Generators, shape: tuple[int, ...], fan_in: int) -> nn.Parameter:
    """A parameter (K, *shape), uniform in +-1 / sqrt(fan_in), each network from its generator."""
    bound = 1 / math.sqrt(fan_in)
    each = [torch.empty(shape).uniform_(-bound, bound, generator=g) for g in generators]
    return nn.Parameter(torch.stack(each))


def activate(x: Tensor) -> Tensor:
    """Leaky ReLU."""
    return F.leaky_relu(x, LEAKY_SLOPE)


class LinearBlock(nn.Module):
    """Linear, batch normalisation, leaky ReLU: (K, B, n_in) to (K, B, n_out)."""

    def __init__(self, generators: Generators, n_in: int, n_out: int):
        super().__init__()
        self.linear = StackedLinear(generators, n_in, n_out)
        self.norm = StackedBatchNorm(len(generators), n_out)

    def forward(self, x: Tensor) -> Tensor:
        """One hidden layer."""
        x = self.linear(x)
        return activate(apart(self.norm(side_by_side(x)), len(x)))


class ConvBlock(nn.Module):
    """Convolution, batch normalisation, leaky ReLU, max-pooling: halves the sides of images."""

    def __init__(self, generators: Generators, c_in: int, c_out: int):
        super().__init__()
        self.conv = StackedConv(generators, c_in, c_out)
        self.norm = StackedBatchNorm(len(generators), c_out)

    def forward(self, x: Tensor) -> Tensor:
        """One convolutional layer: (K, B, c_in, H, W) to (K, B, c_out, H / 2, W / 2)."""
        y = self.conv(x)
        even = y.shape[3] % 2 == y.shape[4] % 2 == 0
        if y.is_cuda and self.training and even and _TRITON and world().size == 1:
            return self._in_one(y)
        # Leaky ReLU is increasing, so that it may follow the maximum: a quarter of the work.
        return apart(activate(F.max_pool2d(self.norm(side_by_side(y)), 2)), len(y))

    def _in_one(self, y: Tensor) -> Tensor:
        """All steps after the convolution, by our own kernels."""
        from riskad.deep.kernels import norm_pool

        K, B, c, H, W = y.shape
        if y.stride(0) == c:  # networks side by side in memory: one group
            grouped = y.permute(1, 3, 4, 0, 2).reshape(1, B, H, W, K * c)
        else:
            grouped = y.permute(0, 1, 3, 4, 2)
        if grouped.stride(4) != 1:
            grouped = grouped.contiguous()
        out, mean, variance = norm_pool(grouped, NORM_EPS, LEAKY_SLOPE)
        self.norm.remember(mean, variance, B * H * W)
        return out.view(B, H // 2, W // 2, K, c).permute(3, 0, 4, 1, 2)


def side_by_side(x: Tensor) -> Tensor:
    """(K, B, c, ...) as (B, K c, ...): channels of all networks side by side."""
    return x.transpose(0, 1).flatten(1, 2)


def apart(x: Tensor, n_networks: int) -> Tensor:
    """(B, K c, ...) as (K, B, c, ...)."""
    return torch.unflatten(x, 1, (n_networks, -1)).transpose(0, 1)
