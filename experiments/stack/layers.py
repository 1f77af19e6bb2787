"""Layers of K networks side by side: each parameter has a leading axis of length K.

A stack maps (K, B, *shape) to (K, B), or to (K, B, rep) where networks give representations; given
(1, B, *shape), all networks see the same rows. Network k reads slice k of each parameter and
nothing else. So the gradient of a sum of K losses holds the K gradients side by side, and an
optimiser that works element by element, such as Adam, trains K independent networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riskad.deep.nets import ScoreUnit

# Grouped convolutions with fewer input channels in a group leave a GPU idle.
FEW_CHANNELS = 4
# Adjacent values of a row of the result per strip; 4 was the fastest of 1 to 32 on an H200.
STRIP = 4
# The library of the kernels: it comes with torch for GPUs, but only on Linux.
HAS_TRITON = find_spec("triton") is not None


def side_by_side(x: Tensor) -> Tensor:
    """(K, B, c, ...) as (B, K c, ...): channels of all networks side by side."""
    return x.transpose(0, 1).flatten(1, 2)


def apart(x: Tensor, n_networks: int) -> Tensor:
    """(B, K c, ...) as (K, B, c, ...)."""
    return torch.unflatten(x, 1, (n_networks, -1)).transpose(0, 1)


def _stacked(layers: Sequence[nn.Module], name: str) -> Tensor:
    return torch.stack([getattr(layer, name).detach() for layer in layers])


class StackedLinear(nn.Module):
    """x_k W_k' for K networks: (K, B, n_in) to (K, B, n_out)."""

    def __init__(self, layers: Sequence[nn.Linear]):
        super().__init__()
        self.weight = nn.Parameter(_stacked(layers, "weight"))

    def forward(self, x: Tensor) -> Tensor:
        """Linear map of each network's rows."""
        return torch.bmm(x.expand(len(self.weight), -1, -1), self.weight.mT)


class StackedUnit(nn.Module):
    """The `ScoreUnit` of K networks, of which some may be centred: (K, B, n_in) to (K, B)."""

    mean: Tensor
    centred: Tensor

    def __init__(self, layers: Sequence[ScoreUnit]):
        super().__init__()
        self.weight = nn.Parameter(_stacked(layers, "weight"))
        self.bias = nn.Parameter(_stacked(layers, "bias"))
        self.momentum = 0.1
        self.register_buffer("mean", _stacked(layers, "mean"))
        self.register_buffer("centred", torch.tensor([[float(unit.centred)] for unit in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of each network's rows."""
        scores = torch.bmm(x, self.weight.mT).squeeze(2)
        mean = self.mean
        if self.training:
            mean = scores.to(self.mean.dtype).mean(1, keepdim=True)
            self.mean.lerp_(self.centred * mean.detach(), self.momentum)
        return scores - self.centred * mean + self.bias


class StackedNorm(nn.Module):
    """Batch normalisation with statistics of each network's own batch: (K, B, c, ...) to the same.

        (x - mean) / sqrt(variance + eps),   running <- 0.9 running + 0.1 batch

    In evaluation the running statistics replace the batch's.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, layers: Sequence[nn.BatchNorm1d | nn.BatchNorm2d]):
        super().__init__()
        self.eps, self.momentum = layers[0].eps, float(layers[0].momentum or 0)
        self.register_buffer("mean", _stacked(layers, "running_mean"))
        self.register_buffer("variance", _stacked(layers, "running_var"))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel of each network."""
        running = self.mean.view(-1), self.variance.view(-1)
        how = {"training": self.training, "momentum": self.momentum, "eps": self.eps}
        return apart(F.batch_norm(side_by_side(x), *running, **how), len(self.mean))

    def remember(self, mean: Tensor, variance: Tensor, n: int) -> None:
        """Include a batch that was normalised elsewhere: its statistics over n values each."""
        with torch.no_grad():
            self.mean.lerp_(mean.view_as(self.mean), self.momentum)
            unbiased = variance.view_as(self.variance) * (n / (n - 1))
            self.variance.lerp_(unbiased, self.momentum)


class StackedConv(nn.Module):
    """A convolution over zero-padded images for K networks, without bias.

    It maps (K, B, c_in, H, W) to (K, B, c_out, H, W). It is one grouped convolution, with the
    channels of network 0 first, then those of network 1 and so on. GPUs are slow at this if a group
    has few input channels; then strips are used.
    """

    def __init__(self, layers: Sequence[nn.Conv2d]):
        super().__init__()
        self.weight = nn.Parameter(_stacked(layers, "weight"))
        self.side = layers[0].kernel_size[0]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve each network's images."""
        few = self.weight.shape[2] < FEW_CHANNELS and x.shape[4] % STRIP == 0
        return self.by_strips(x) if few and x.is_cuda else self.by_groups(x)

    def by_groups(self, x: Tensor) -> Tensor:
        """One grouped convolution of (B, K c_in, H, W)."""
        K = len(self.weight)
        x = side_by_side(x.expand(K, *x.shape[1:]))
        weight = self.weight.flatten(0, 1)
        return apart(F.conv2d(x, weight, padding=self.side // 2, groups=K), K)

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
        padded = F.pad(x, [self.side // 2] * 4)
        strips = padded.unfold(3, self.side, 1).unfold(4, STRIP + self.side - 1, STRIP)
        strips = strips.permute(0, 1, 3, 4, 2, 5, 6).reshape(len(x), B * H * W // STRIP, -1)
        matrix = self._strip_matrix().to(strips.dtype)
        maps = torch.bmm(strips.expand(K, *strips.shape[1:]), matrix)
        return maps.view(K, B, H, W, c_out).permute(0, 1, 4, 2, 3)

    def _strip_matrix(self) -> Tensor:
        """(K, c_in 5 (4 + 4), 4 c_out): value (c, i, j) of a strip to channel o of place q.

        Entry [(c, i, j), (q, o)] is the kernel's weight[o, c, i, j - q], or 0 outside it.
        """
        weight, side = self.weight, self.side
        shift = torch.zeros(side, STRIP + side - 1, STRIP, device=weight.device)
        for q in range(STRIP):
            shift[:, q : q + side, q] = torch.eye(side, device=weight.device)
        moved = torch.matmul(weight, shift.flatten(1).to(weight.dtype))  # K, o, c, i, (j q)
        moved = torch.unflatten(moved, 4, (-1, STRIP)).permute(0, 2, 3, 4, 5, 1)
        return moved.reshape(len(weight), -1, STRIP * weight.shape[1])


class StackedConvBlock(nn.Module):
    """Convolution, batch normalisation, max-pooling over 2 x 2, leaky ReLU."""

    def __init__(self, conv: StackedConv, norm: StackedNorm, slope: float):
        super().__init__()
        self.conv, self.norm, self.slope = conv, norm, slope

    def forward(self, x: Tensor) -> Tensor:
        """(K, B, c_in, H, W) to (K, B, c_out, H / 2, W / 2)."""
        y = self.conv(x)
        even = y.shape[3] % 2 == y.shape[4] % 2 == 0
        if y.is_cuda and self.training and even and HAS_TRITON:
            return self.after_convolution(y)
        pooled = F.max_pool2d(side_by_side(self.norm(y)), 2)
        return F.leaky_relu(apart(pooled, len(y)), self.slope)

    def after_convolution(self, y: Tensor) -> Tensor:
        """All steps after the convolution in one, by the kernels of `experiments.stack.kernels`."""
        from experiments.stack.kernels import norm_pool

        K, B, c, H, W = y.shape
        if y.stride(0) == c:  # networks side by side in memory: one group
            grouped = y.permute(1, 3, 4, 0, 2).reshape(1, B, H, W, K * c)
        else:
            grouped = y.permute(0, 1, 3, 4, 2)
        if grouped.stride(4) != 1:
            grouped = grouped.contiguous()
        out, mean, variance = norm_pool(grouped, self.norm.eps, self.slope)
        self.norm.remember(mean, variance, B * H * W)
        return out.view(B, H // 2, W // 2, K, c).permute(3, 0, 4, 1, 2)


class OverChannels(nn.Module):
    """A layer without parameters that treats all channels of images alike."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """(K, B, c, H, W) to (K, B, c, ...)."""
        return apart(self.layer(side_by_side(x)), len(x))


def stack_networks(networks: Sequence[nn.Sequential]) -> nn.Sequential:
    """K networks or decoders of one shape (`riskad.deep.nets`) as one stack, weights included."""
    positions: list[Any] = list(zip(*networks, strict=True))
    stack = nn.Sequential()
    place = 0
    while place < len(positions):
        layers = positions[place]
        place += 1
        match layers[0]:
            case nn.Conv2d() if [type(each[0]) for each in positions[place : place + 2]] == [
                nn.BatchNorm2d,
                nn.MaxPool2d,
            ]:
                norm, slope = StackedNorm(positions[place]), positions[place + 2][0].negative_slope
                stack.append(StackedConvBlock(StackedConv(layers), norm, slope))
                place += 3
            case nn.Conv2d():
                stack.append(StackedConv(layers))
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                stack.append(StackedNorm(layers))
            case ScoreUnit():
                stack.append(StackedUnit(layers))
            case nn.Linear():
                stack.append(StackedLinear(layers))
            case nn.Flatten():
                stack.append(nn.Flatten(2))
            case nn.Unflatten():
                stack.append(nn.Unflatten(2, layers[0].unflattened_size))
            case nn.Upsample():
                stack.append(OverChannels(layers[0]))
            case nn.LeakyReLU():
                stack.append(layers[0])
            case other:
                raise TypeError(f"there is no stacked version of {other}")
    return stack
