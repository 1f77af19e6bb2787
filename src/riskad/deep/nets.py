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
Deep SAD measures distances in. For a score, a leaky ReLU and one linear unit with a bias follow.

Weights are drawn uniformly from +-1 / sqrt(fan in), on the CPU, by a generator for each network: a
seed gives the same network whatever K is and wherever it runs.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riskad.core.checks import InputError, check_choice
from riskad.deep.layers import (
    ConvBlock,
    LinearBlock,
    StackedBatchNorm,
    StackedConv,
    StackedLinear,
    StackedUnit,
    activate,
    apart,
    side_by_side,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Autoencoder",
    "Decoder",
    "ModuleStack",
    "Stack",
    "StackedNet",
    "build_stack",
]


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
        """Whether a row is an image (c, h, w) instead of a list of columns."""
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
        self.convs = nn.ModuleList(ConvBlock(generators, *pair) for pair in pairwise(channels))
        *hidden, rep = architecture.sizes
        sizes = [math.prod(architecture.map_shape(shape)), *hidden]
        self.hidden = nn.ModuleList(LinearBlock(generators, *pair) for pair in pairwise(sizes))
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
        return x if self.output is None else self.output(activate(x))


class Decoder(Stack):
    """The mirror of a `StackedNet`: (K, B, rep) to (K, B, *shape).

    Linear layers go back through the same sizes. Each convolution goes to the previous number of
    channels after doubling its image. The last layer is linear, for rows of any range.
    """

    def __init__(self, architecture: Architecture, shape: Sequence[int], seeds: Sequence[int]):
        super().__init__()
        self.n_networks = len(seeds)
        self.shape = tuple(shape)
        self.map_shape = architecture.map_shape(shape)
        generators = _generators(seeds)
        sizes = [*architecture.sizes[::-1], math.prod(self.map_shape)]
        blocks = [LinearBlock(generators, *pair) for pair in pairwise(sizes)]
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
            x = side_by_side(x)
            if depth:
                x = activate(self.norms[depth - 1](x))
            x = conv(apart(F.interpolate(x, size=self._side(depth)), self.n_networks))
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
        """The reconstruction minus the input: (K, B, values)."""
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
    """The architecture with this name; `hidden` replaces the sizes of its linear layers.

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

    `module` is a name of `ARCHITECTURES`; a module, which is copied unchanged; or a function from
    the shape of a row to a module, called under the seed. The latter two make stacks of one
    arbitrary network; `centred` is for the named ones.
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
