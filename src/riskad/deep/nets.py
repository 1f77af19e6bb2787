r"""K networks of one shape as one stack, trained and scored together.

A stack maps (K, B, *shape) to (K, B), one output unit, or to (K, B, rep), a representation; given
(1, B, *shape), all networks see the same rows. Its parameters have a leading axis of length K, and
network k reads slice k of each and nothing else. So the gradient of a sum of K losses holds the K
gradients side by side, and an optimiser that works element by element, such as Adam, trains K
independent networks.

==============  ===============================================================================
architecture    layers before the output (those of Deep SAD, Ruff et al. 2020)
==============  ===============================================================================
mlp             hidden linear layers
lenet-mnist     convolutions to 8 and 4 channels, linear to 32
lenet-fmnist    convolutions to 16 and 32 channels, linear to 128, linear to 64
lenet-cifar10   convolutions to 32, 64 and 128 channels, linear to 128
==============  ===============================================================================

Convolutions are 5 x 5 over zero-padded images and are followed by max-pooling over 2 x 2. No layer
has a bias; all but the last linear one are followed by batch normalisation (eps = 1e-4, without
scale and shift) and leaky ReLU (slope 0.01). The last linear layer gives the representation, which
Deep SAD measures distances in. For a score a leaky ReLU and one linear unit with a bias follow.

Weights are drawn uniformly from +-1 / sqrt(fan in), on the CPU, by a generator for each network: a
seed gives the same network whatever K is and wherever it runs.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riskad.core.checks import InputError, check_choice
from riskad.deep.ranks import Ranks, world

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Autoencoder",
    "Decoder",
    "ModuleStack",
    "Stack",
    "StackedBatchNorm",
    "StackedConv",
    "StackedLinear",
    "StackedNet",
    "StackedUnit",
    "build_stack",
]

_EPS = 1e-4
_MOMENTUM = 0.1
_SLOPE = 0.01
_KERNEL = 5
# Grouped convolutions with fewer input channels in a group leave a GPU idle.
_FEW_CHANNELS = 4
# Neighbours in a row of the result that a strip gives; 4 was the fastest of 1 to 32 on an H200.
_STRIP = 4
# What the kernels are written in: it comes with torch for GPUs, but only on Linux.
_TRITON = find_spec("triton") is not None

Generators = Sequence[torch.Generator]


# --- layers ---------------------------------------------------------------------------------


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
    the same images. One grouped convolution does it, its channels those of network 0, then of
    network 1 and so on. GPUs are slow at that where a group has few input channels; there strips
    are used.
    """

    def __init__(self, generators: Generators, c_in: int, c_out: int):
        super().__init__()
        self.weight = _uniform(generators, (c_out, c_in, _KERNEL, _KERNEL), c_in * _KERNEL**2)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve each network's images."""
        few = self.weight.shape[2] < _FEW_CHANNELS and x.shape[4] % _STRIP == 0
        return self.by_strips(x) if few and x.is_cuda else self.by_groups(x)

    def by_groups(self, x: Tensor) -> Tensor:
        """One grouped convolution of (B, K c_in, H, W)."""
        K = len(self.weight)
        x = _side_by_side(x.expand(K, *x.shape[1:]))
        return _apart(F.conv2d(x, self.weight.flatten(0, 1), padding=_KERNEL // 2, groups=K), K)

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
        padded = F.pad(x, [_KERNEL // 2] * 4)
        strips = padded.unfold(3, _KERNEL, 1).unfold(4, _STRIP + _KERNEL - 1, _STRIP)
        strips = strips.permute(0, 1, 3, 4, 2, 5, 6).reshape(len(x), B * H * W // _STRIP, -1)
        matrix = self._strip_matrix().to(strips.dtype)
        maps = torch.bmm(strips.expand(K, *strips.shape[1:]), matrix)
        return maps.view(K, B, H, W, c_out).permute(0, 1, 4, 2, 3)

    def _strip_matrix(self) -> Tensor:
        """(K, c_in 5 (4 + 4), 4 c_out): value (c, i, j) of a strip to channel o of place q.

        Entry [(c, i, j), (q, o)] is the kernel's weight[o, c, i, j - q], or 0 outside it.
        """
        weight = self.weight
        shift = torch.zeros(_KERNEL, _STRIP + _KERNEL - 1, _STRIP, device=weight.device)
        for q in range(_STRIP):
            shift[:, q : q + _KERNEL, q] = torch.eye(_KERNEL, device=weight.device)
        moved = torch.matmul(weight, shift.flatten(1).to(weight.dtype))  # K, o, c, i, (j q)
        moved = torch.unflatten(moved, 4, (-1, _STRIP)).permute(0, 2, 3, 4, 5, 1)
        return moved.reshape(len(weight), -1, _STRIP * weight.shape[1])


class StackedBatchNorm(nn.Module):
    """Batch normalisation of (B, K c, ...) with statistics of each network's own batch.

        (x - mean) / sqrt(variance + eps),   running <- 0.9 running + 0.1 batch

    In evaluation the running statistics stand in for the batch's. Where several processes train,
    the batch is that of all of them.
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
        return F.batch_norm(x, mean, variance, training=self.training, momentum=_MOMENTUM, eps=_EPS)

    def _over_ranks(self, x: Tensor, ranks: Ranks) -> Tensor:
        """Normalise by the statistics of all ranks' parts of the batch."""
        over = [axis for axis in range(x.ndim) if axis != 1]
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, n = ranks.mean(wide, over)
        variance, _ = ranks.mean((wide - mean).square(), over)
        self.remember(mean, variance, n)
        return ((wide - mean) * torch.rsqrt(variance + _EPS)).to(x.dtype)

    def remember(self, mean: Tensor, variance: Tensor, n: int | Tensor) -> None:
        """Count in a batch that was normalised elsewhere: its statistics over n values each."""
        with torch.no_grad():
            self.mean.lerp_(mean.view_as(self.mean), _MOMENTUM)
            self.variance.lerp_(variance.view_as(self.variance) * (n / (n - 1)), _MOMENTUM)


class StackedUnit(nn.Module):
    r"""The output: one linear unit for each network, (K, B, n_in) to (K, B).

    A network that is `centred` gives its scores less their mean over the batch, then a bias; in
    evaluation the running mean stands in for the batch's. This is for losses without slope far
    from 0, such as the sigmoid loss. Most rows are normal, so the first steps raise all scores;
    without the centring, where anomalies have gone up with the others, nothing would bring them
    down again.
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


def _activate(x: Tensor) -> Tensor:
    return F.leaky_relu(x, _SLOPE)


class _LinearBlock(nn.Module):
    """Linear, batch normalisation, leaky ReLU: (K, B, n_in) to (K, B, n_out)."""

    def __init__(self, generators: Generators, n_in: int, n_out: int):
        super().__init__()
        self.linear = StackedLinear(generators, n_in, n_out)
        self.norm = StackedBatchNorm(len(generators), n_out)

    def forward(self, x: Tensor) -> Tensor:
        """One hidden layer."""
        x = self.linear(x)
        return _activate(_apart(self.norm(_side_by_side(x)), len(x)))


class _ConvBlock(nn.Module):
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
        return _apart(_activate(F.max_pool2d(self.norm(_side_by_side(y)), 2)), len(y))

    def _in_one(self, y: Tensor) -> Tensor:
        """All that follows the convolution, by kernels of our own."""
        from riskad.deep.kernels import norm_pool

        K, B, c, H, W = y.shape
        if y.stride(0) == c:  # networks side by side in memory: one group
            grouped = y.permute(1, 3, 4, 0, 2).reshape(1, B, H, W, K * c)
        else:
            grouped = y.permute(0, 1, 3, 4, 2)
        if grouped.stride(4) != 1:
            grouped = grouped.contiguous()
        out, mean, variance = norm_pool(grouped, _EPS, _SLOPE)
        self.norm.remember(mean, variance, B * H * W)
        return out.view(B, H // 2, W // 2, K, c).permute(3, 0, 4, 1, 2)


def _side_by_side(x: Tensor) -> Tensor:
    """(K, B, c, ...) as (B, K c, ...): channels of all networks side by side."""
    return x.transpose(0, 1).flatten(1, 2)


def _apart(x: Tensor, n_networks: int) -> Tensor:
    """(B, K c, ...) as (K, B, c, ...)."""
    return torch.unflatten(x, 1, (n_networks, -1)).transpose(0, 1)


# --- stacks ---------------------------------------------------------------------------------


class Stack(nn.Module, ABC):
    """K networks of one shape; a subclass implements `forward` from (K, B, *shape)."""

    n_networks: int

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Outputs (K, B) or (K, B, rep)."""


@dataclass(frozen=True)
class Architecture:
    """Channels of the convolutions, then sizes of the linear layers, the representation last."""

    channels: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def takes_images(self) -> bool:
        """Whether a row is an image (c, h, w) rather than a list of columns."""
        return bool(self.channels)

    def map_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of what the linear layers flatten."""
        if not self.channels:
            return tuple(shape)
        shrunk = (side // 2 ** len(self.channels) for side in shape[1:])
        return (self.channels[-1], *shrunk)

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Refuse rows that this architecture cannot read."""
        if self.takes_images and len(shape) != 3:
            raise InputError(
                f"module={name!r} reads images: X must have shape (n, h, w) or (n, c, h, w), got "
                f"rows of shape {tuple(shape)}. For a table choose module='mlp'."
            )
        if not self.takes_images and len(shape) != 1:
            raise InputError(
                f"module={name!r} reads tables: X must have shape (n, columns), got rows of shape "
                f"{tuple(shape)}. For images choose module='lenet-mnist' or another lenet."
            )
        if 0 in self.map_shape(shape):
            least = 2 ** len(self.channels)
            raise InputError(
                f"module={name!r} halves the sides of images {len(self.channels)} times: they must "
                f"be at least {least} x {least}, got {shape[1]} x {shape[2]}."
            )


ARCHITECTURES: dict[str, Architecture] = {
    "mlp": Architecture((), (128, 64)),
    "lenet-mnist": Architecture((8, 4), (32,)),
    "lenet-fmnist": Architecture((16, 32), (128, 64)),
    "lenet-cifar10": Architecture((32, 64, 128), (128,)),
}


class StackedNet(Stack):
    """K networks of a named architecture over rows of a shape, one for each seed.

    Parameters
    ----------
    architecture : Architecture
        Layers up to the representation.
    shape : sequence of int
        Shape of a row: (columns,) or (c, h, w).
    seeds : sequence of int
        One for each network.
    scores : bool, default=True
        Whether one linear unit follows, so that the output is (K, B); else it is (K, B, rep).
    centred : sequence of bool, default=()
        Which networks centre their scores (`StackedUnit`); none if empty.
    """

    def __init__(
        self,
        architecture: Architecture,
        shape: Sequence[int],
        seeds: Sequence[int],
        scores: bool = True,
        centred: Sequence[bool] = (),
    ):
        super().__init__()
        self.n_networks = len(seeds)
        generators = _generators(seeds)
        channels = [shape[0], *architecture.channels] if architecture.channels else []
        self.convs = nn.ModuleList(_ConvBlock(generators, *pair) for pair in pairwise(channels))
        *hidden, rep = architecture.sizes
        sizes = [math.prod(architecture.map_shape(shape)), *hidden]
        self.hidden = nn.ModuleList(_LinearBlock(generators, *pair) for pair in pairwise(sizes))
        self.representation = StackedLinear(generators, sizes[-1], rep)
        centred = centred or [False] * len(seeds)
        self.output = StackedUnit(generators, rep, centred) if scores else None

    def forward(self, x: Tensor) -> Tensor:
        """Scores (K, B), or representations (K, B, rep)."""
        for layer in self.convs:
            x = layer(x)
        x = x.flatten(2).expand(self.n_networks, -1, -1)
        for layer in self.hidden:
            x = layer(x)
        x = self.representation(x)
        return x if self.output is None else self.output(_activate(x))


class Decoder(Stack):
    """The mirror of a `StackedNet`: (K, B, rep) to (K, B, *shape).

    Linear layers go back through the same sizes, each convolution is one to the previous number
    of channels after its image was doubled. The last layer is linear, for rows of any range.
    """

    def __init__(self, architecture: Architecture, shape: Sequence[int], seeds: Sequence[int]):
        super().__init__()
        self.n_networks = len(seeds)
        self.shape = tuple(shape)
        self.map_shape = architecture.map_shape(shape)
        generators = _generators(seeds)
        sizes = [*architecture.sizes[::-1], math.prod(self.map_shape)]
        blocks = [_LinearBlock(generators, *pair) for pair in pairwise(sizes)]
        channels = [*architecture.channels[::-1], shape[0]] if architecture.channels else []
        if not channels:
            blocks.pop()
        self.hidden = nn.ModuleList(blocks)
        self.linear = None if channels else StackedLinear(generators, sizes[-2], sizes[-1])
        self.convs = nn.ModuleList(StackedConv(generators, *pair) for pair in pairwise(channels))
        self.norms = nn.ModuleList(StackedBatchNorm(len(seeds), c) for c in channels[1:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Rows rebuilt from representations."""
        for layer in self.hidden:
            x = layer(x)
        if self.linear is not None:
            return torch.unflatten(self.linear(x), 2, self.shape)
        x = torch.unflatten(x, 2, self.map_shape)
        for depth, conv in enumerate(self.convs):
            x = _side_by_side(x)
            if depth:
                x = _activate(self.norms[depth - 1](x))
            x = conv(_apart(F.interpolate(x, size=self._side(depth)), self.n_networks))
        return x

    def _side(self, depth: int) -> tuple[int, int]:
        """Sides of the image that layer `depth` convolves: those of the encoder, backwards."""
        halvings = len(self.convs) - 1 - depth
        return self.shape[1] // 2**halvings, self.shape[2] // 2**halvings


class Autoencoder(Stack):
    """Encoder and decoder: (K, B, *shape) to (K, B, values of a row)."""

    def __init__(self, encoder: Stack, decoder: Stack):
        super().__init__()
        self.n_networks = encoder.n_networks
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, x: Tensor) -> Tensor:
        """What is rebuilt, less what was given: (K, B, values)."""
        return (self.decoder(self.encoder(x)) - x).flatten(2)


class ModuleStack(Stack):
    """A stack of one network: any module that maps a batch (B, *shape) to one score a row."""

    n_networks = 1

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Scores (1, B)."""
        scores = self.module(x[0])
        if scores.numel() != x.shape[1]:
            raise InputError(
                f"module must map a batch of {x.shape[1]} rows to one score for each, got an "
                f"output of shape {tuple(scores.shape)}. End it with one linear unit."
            )
        return scores.reshape(1, -1)


def _generators(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(int(seed)) for seed in seeds]


def find_architecture(module: str, hidden: Sequence[int] | None = None) -> Architecture:
    """The architecture of that name; `hidden` are sizes of the linear layers in place of its own.

    >>> find_architecture("mlp", hidden=(32, 16)).sizes
    (32, 16)
    """
    architecture = ARCHITECTURES[check_choice("module", module, ARCHITECTURES)]
    if hidden is None:
        return architecture
    sizes = tuple(hidden)
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise InputError(f"hidden must be whole numbers > 0, such as (128, 64), got {hidden!r}.")
    return replace(architecture, sizes=sizes)


def build_stack(
    module: str | nn.Module | Callable[[tuple[int, ...]], nn.Module],
    shape: Sequence[int],
    seeds: Sequence[int],
    hidden: Sequence[int] | None = None,
    centred: Sequence[bool] = (),
) -> Stack:
    """A stack of scoring networks over rows of `shape`, one for each seed.

    `module` is a name of `ARCHITECTURES`; a module, of which a copy is taken as it is; or a
    function from the shape of a row to a module, called under the seed. The latter two make
    stacks of one network, which does as it likes; `centred` is for the named ones.
    """
    if isinstance(module, str):
        architecture = find_architecture(module, hidden)
        architecture.check_shape(module, shape)
        return StackedNet(architecture, shape, seeds, centred=centred)
    if hidden is not None:
        raise InputError("hidden is for the named architectures; a module has its own sizes.")
    if len(seeds) != 1:
        raise InputError(f"a module of your own makes one network, got {len(seeds)} seeds.")
    return ModuleStack(_own_module(module, tuple(shape), seeds[0]))


def _own_module(module: Any, shape: tuple[int, ...], seed: int) -> nn.Module:
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if callable(module):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = module(shape)
        if isinstance(made, nn.Module):
            return made
        raise InputError(f"the function given as module must return an nn.Module, got {made!r}.")
    names = ", ".join(ARCHITECTURES)
    raise InputError(
        f"module must be one of {names}, an nn.Module, or a function from the shape of a row to "
        f"one, got {module!r}."
    )
