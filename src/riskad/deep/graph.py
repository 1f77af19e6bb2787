"""Networks as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from riskad.core.checks import InputError
from riskad.deep.nets import ScoreUnit


def network_scores(g: Any, X: str, detector: Any, network: nn.Module) -> str:
    """Return scores of a named architecture: its one unit, or minus the distance from a centre."""
    if not isinstance(network, nn.Sequential):
        raise InputError(
            f"This {type(detector).__name__} has a module of your own, of which only you know the "
            f"layers; export it with torch.onnx."
        )
    x = _standardised(g, X, detector)
    for layer in network:
        x = _node(g, x, layer)
    if hasattr(detector, "centre_"):
        away = g.node("Sub", x, detector.centre_)
        x = g.node("Neg", g.node("ReduceSumSquare", away, np.array([1]), keepdims=0))
    return str(g.cast(x, np.float64))


def _standardised(g: Any, X: str, detector: Any) -> str:
    """Rows as the network sees them: standardised by column or channel, in single precision."""
    images = len(detector.shape_) > 1
    kind = np.float32 if images else np.float64
    across = (-1, *[1] * (len(detector.shape_) - 1))
    if detector.scale:
        X = g.node("Sub", X, detector._mean.reshape(across).astype(kind))
        X = g.node("Div", X, detector._scale.reshape(across).astype(kind))
    return X if images else g.cast(X, np.float32)


def _node(g: Any, x: str, layer: nn.Module) -> Any:
    """The nodes of one layer."""
    values = {name: value.cpu().numpy() for name, value in layer.state_dict().items()}
    match layer:
        case nn.Conv2d():
            return g.node("Conv", x, values["weight"], pads=[*layer.padding, *layer.padding])
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            mean, variance = values["running_mean"], values["running_var"]
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
