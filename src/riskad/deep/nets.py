r"""Networks that give one score for each row, or a representation: torch's own layers in a row.

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

Weights are drawn uniformly from +-1 / sqrt(fan in), on the CPU, by a generator of their own: a seed
gives the same network wherever it runs, and torch's global generator is left alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riskad.core.checks import InputError, check_choice

_CONVOLUTION: dict[str, Any] = {"kernel_size": 5, "padding": 2, "bias": False}
MOMENTUM = 0.1  # of running statistics

Module = str | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]


@dataclass(frozen=True)
class Architecture:
    """Channels of the convolutions, then sizes of the linear layers, the representation last."""

    channels: tuple[int, ...]
    sizes: tuple[int, ...]

    def map_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of what the linear layers flatten, for rows (columns,) or images (c, h, w)."""
        if not self.channels:
            return tuple(shape)
        return (self.channels[-1], *(side // 2 ** len(self.channels) for side in shape[1:]))

    def check_shape(self, name: str | Sequence[int], shape: Sequence[int]) -> None:
        """Refuse rows that this architecture cannot read."""
        reads, instead = "tables (n, columns)", "images choose module='lenet-mnist'"
        if self.channels:
            reads, instead = "images (n, h, w) or (n, c, h, w)", "a table choose module='mlp'"
        if len(shape) != (3 if self.channels else 1):
            raise InputError(
                f"module={name!r} reads {reads}, got rows of shape {tuple(shape)}. For {instead}."
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


def find_architecture(module: str | Sequence[int]) -> Architecture:
    """The architecture with this name, or "mlp" with linear layers of these sizes."""
    if isinstance(module, str):
        return ARCHITECTURES[check_choice("module", module, ARCHITECTURES)]
    sizes = tuple(module)
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise InputError(
            f"sizes of layers must be whole numbers > 0, such as (128, 64), got module={module!r}."
        )
    return replace(ARCHITECTURES["mlp"], sizes=sizes)


class ScoreUnit(nn.Linear):
    r"""The output: one linear unit, (B, n_in) to (B,).

    A unit that is `centred` gives its scores minus their mean over the batch, plus a bias; in
    evaluation the running mean replaces the batch's. This is for losses without slope far from 0,
    such as the sigmoid loss. Most rows are normal, so the first steps raise all scores; without
    centring, anomalies that have risen with the others would never come down again.
    """

    mean: Tensor

    def __init__(self, n_in: int, centred: bool):
        super().__init__(n_in, 1)
        self.centred = centred
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """One score for each row."""
        if not self.centred:
            return super().forward(x).squeeze(1)
        # The bias is added after centring, which would take it away again.
        scores = F.linear(x, self.weight).squeeze(1)
        mean = scores.to(self.mean.dtype).mean(0, keepdim=True) if self.training else self.mean
        if self.training:
            self.mean.lerp_(mean.detach(), MOMENTUM)
        return scores - mean + self.bias


class UserModule(nn.Module):
    """A user's module, which must map a batch (B, *shape) to one score for each row."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B,)."""
        scores: Tensor = self.module(x)
        if scores.numel() != len(x):
            raise InputError(
                f"module must map a batch of {len(x)} rows to one score for each, got an output of "
                f"shape {tuple(scores.shape)}. End it with one linear unit."
            )
        return scores.reshape(-1)


def _norm(channels: int, images: bool) -> nn.BatchNorm1d | nn.BatchNorm2d:
    layer = nn.BatchNorm2d if images else nn.BatchNorm1d
    return layer(channels, eps=1e-4, momentum=MOMENTUM, affine=False)


def _drawn(network: nn.Sequential, seed: int) -> nn.Sequential:
    """A network that was laid out on torch's meta device, with the weights that the seed gives."""
    generator = torch.Generator().manual_seed(int(seed))
    # Layers without memory get some; every number in it is set below.
    network.to_empty(device="cpu")
    for layer in network:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.data.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()
        if isinstance(layer, ScoreUnit):
            layer.mean.zero_()
    return network


def lay_out(
    architecture: Architecture, shape: Sequence[int], scores: bool = True, centred: bool = False
) -> nn.Sequential:
    """The layers of a network over rows of `shape`, on the meta device: sizes without memory."""
    sizes = [math.prod(architecture.map_shape(shape)), *architecture.sizes]
    network = nn.Sequential()
    with torch.device("meta"):
        for i, (c_in, c_out) in enumerate(pairwise([shape[0], *architecture.channels])):
            network.add_module(f"convolution{i}", nn.Conv2d(c_in, c_out, **_CONVOLUTION))
            network.add_module(f"image_norm{i}", _norm(c_out, images=True))
            # Leaky ReLU is increasing, so that it may follow the maximum: a quarter of the work.
            network.add_module(f"pool{i}", nn.MaxPool2d(2))
            network.add_module(f"image_activation{i}", nn.LeakyReLU())
        network.add_module("flatten", nn.Flatten())
        for i, (n_in, n_out) in enumerate(pairwise(sizes[:-1])):
            network.add_module(f"linear{i}", nn.Linear(n_in, n_out, bias=False))
            network.add_module(f"norm{i}", _norm(n_out, images=False))
            network.add_module(f"activation{i}", nn.LeakyReLU())
        network.add_module("representation", nn.Linear(sizes[-2], sizes[-1], bias=False))
        if scores:
            network.add_module("activation", nn.LeakyReLU())
            network.add_module("output", ScoreUnit(sizes[-1], centred))
    return network


def build_decoder(architecture: Architecture, shape: Sequence[int], seed: int) -> nn.Sequential:
    """The mirror of a network: (B, rep) to (B, *shape).

    Linear layers go back through the same sizes. Each convolution goes to the previous number of
    channels after doubling its image. The last layer is linear, for rows of any range.
    """
    sizes = [*architecture.sizes[::-1], math.prod(architecture.map_shape(shape))]
    channels = [*architecture.channels[::-1], shape[0]]
    decoder = nn.Sequential()
    with torch.device("meta"):
        for n_in, n_out in pairwise(sizes if architecture.channels else sizes[:-1]):
            decoder.append(nn.Linear(n_in, n_out, bias=False))
            decoder.extend([_norm(n_out, images=False), nn.LeakyReLU()])
        if not architecture.channels:
            decoder.append(nn.Linear(sizes[-2], sizes[-1], bias=False))
            return _drawn(decoder, seed)
        decoder.append(nn.Unflatten(1, architecture.map_shape(shape)))
        for depth, (c_in, c_out) in enumerate(pairwise(channels)):
            if depth:
                decoder.extend([_norm(c_in, images=True), nn.LeakyReLU()])
            halvings = len(channels) - 2 - depth  # those of the encoder, where sides may be odd
            sides = shape[1] // 2**halvings, shape[2] // 2**halvings
            decoder.extend([nn.Upsample(sides), nn.Conv2d(c_in, c_out, **_CONVOLUTION)])
    return _drawn(decoder, seed)


def build_network(
    module: Module, shape: Sequence[int], seed: int, scores: bool = True, centred: bool = False
) -> nn.Module:
    """A network over rows of `shape`, with the weights that the seed gives.

    `module` is a name of `ARCHITECTURES`; a module, which is copied unchanged; or a function from
    the shape of a row to a module, called under the seed. For named ones, the output is one score
    for each row, `centred` or not (`ScoreUnit`), or without `scores` the representation.
    """
    if isinstance(module, (str, list, tuple)):
        architecture = find_architecture(module)
        architecture.check_shape(module, shape)
        return _drawn(lay_out(architecture, shape, scores, centred), seed)
    if isinstance(module, nn.Module):
        return UserModule(copy.deepcopy(module))
    if not callable(module):
        raise InputError(
            f"module must be one of {', '.join(ARCHITECTURES)}, sizes of layers, an nn.Module, or "
            f"a function from the shape of a row to one, got {module!r}."
        )
    # The user's function may draw from torch's global generator: it is seeded here, and put back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = module(tuple(shape))
    if not isinstance(network, nn.Module):
        raise InputError(f"the function given as module must return an nn.Module, got {network!r}.")
    return UserModule(network)


# --- the same networks as nodes of an ONNX graph -------------------------------------------


def network_scores(g: Any, X: str, detector: Any, network: nn.Module) -> str:
    """Return scores of a named architecture: its one unit, or minus the distance from a centre."""
    if not isinstance(network, nn.Sequential):
        raise InputError(
            f"This {type(detector).__name__} has a module of your own, of which only you know the "
            f"layers; export it with torch.onnx."
        )
    images = len(detector.shape_) > 1
    if detector.scale:
        # As `DeepDetector._data`: tables are standardised in doubles, images in single precision.
        kind = np.float32 if images else np.float64
        across = (-1, *[1] * (len(detector.shape_) - 1))
        X = g.node("Sub", X, detector._mean.reshape(across).astype(kind))
        X = g.node("Div", X, detector._scale.reshape(across).astype(kind))
    x = X if images else g.cast(X, np.float32)
    for layer in network:
        x = _node(g, x, layer)
    if hasattr(detector, "centre_"):
        away = g.node("Sub", x, detector.centre_)
        # Deep SAD: the nearer to the centre, the more normal.
        x = g.node("Neg", g.node("ReduceSumSquare", away, np.array([1]), keepdims=0))
    return g.cast(x, np.float64)


def _node(g: Any, x: str, layer: nn.Module) -> Any:
    """The nodes of one layer."""
    values = {name: value.cpu().numpy() for name, value in layer.state_dict().items()}
    match layer:
        case nn.Conv2d():
            return g.node("Conv", x, values["weight"], pads=[*layer.padding, *layer.padding])
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            mean, variance = values["running_mean"], values["running_var"]
            # The operator asks for a scale and a shift, of which our layers have none.
            affine = np.ones_like(mean), np.zeros_like(mean)
            return g.node("BatchNormalization", x, *affine, mean, variance, epsilon=layer.eps)
        case nn.MaxPool2d():
            return g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        case nn.LeakyReLU():
            return g.node("LeakyRelu", x, alpha=layer.negative_slope)
        case nn.Flatten():
            return g.node("Flatten", x, axis=1)
        case ScoreUnit():  # also an nn.Linear, and therefore first
            shift = values["bias"] - values["mean"] if layer.centred else values["bias"]
            return g.node("Add", g.node("MatMul", x, values["weight"][0]), shift)
        case nn.Linear():
            return g.node("MatMul", x, values["weight"].T)
    raise TypeError(f"no node for {layer}")
