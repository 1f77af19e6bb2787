"""Networks as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.deep.layers import LEAKY_SLOPE, NORM_EPS

__all__ = ["network_scores"]


def network_scores(g: Any, X: str, detector: Any) -> str:
    """Return scores of a named architecture: its one unit, or minus the distance from a centre."""
    if not isinstance(detector.module, str):
        raise InputError(
            f"This {type(detector).__name__} has a module of your own, of which only you know the "
            f"layers; export it with torch.onnx."
        )
    weights = {name: value[0] for name, value in detector.weights_.items()}
    x = _layers(g, _seen(g, X, detector), weights, NORM_EPS, LEAKY_SLOPE)
    if hasattr(detector, "centre_"):
        away = g.node("Sub", x, detector.centre_)
        scores = g.node("Neg", g.node("ReduceSumSquare", away, np.array([1]), keepdims=0))
    else:
        shift = weights["output.bias"]
        if detector._check_risk().loss.bounded:  # these networks centre their scores
            shift = shift - weights["output.mean"]
        x = g.node("LeakyRelu", x, alpha=LEAKY_SLOPE)
        scores = g.node("Add", g.node("MatMul", x, weights["output.weight"][0]), shift)
    return str(g.cast(scores, np.float64))


def _seen(g: Any, X: str, detector: Any) -> str:
    """Rows as the network sees them: standardised by column or channel, in single precision."""
    images = len(detector.shape_) > 1
    kind = np.float32 if images else np.float64
    across = (-1, *[1] * (len(detector.shape_) - 1))
    if detector.scale:
        X = g.node("Sub", X, detector._mean.reshape(across).astype(kind))
        X = g.node("Div", X, detector._scale.reshape(across).astype(kind))
    return X if images else g.cast(X, np.float32)


def _layers(g: Any, x: str, weights: dict[str, np.ndarray], eps: float, slope: float) -> str:
    """Layers up to the representation (`riskad.deep.nets.StackedNet`)."""

    def normalised(x: str, layer: str) -> str:
        mean, variance = weights[f"{layer}.norm.mean"], weights[f"{layer}.norm.variance"]
        unit, zero = np.ones_like(mean), np.zeros_like(mean)
        return g.node("BatchNormalization", x, unit, zero, mean, variance, epsilon=eps)

    for layer in _numbered(weights, "convs"):
        kernel = weights[f"{layer}.conv.weight"]
        x = normalised(g.node("Conv", x, kernel, pads=[kernel.shape[-1] // 2] * 4), layer)
        x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = g.node("LeakyRelu", x, alpha=slope)
    x = g.node("Flatten", x, axis=1)
    for layer in _numbered(weights, "hidden"):
        x = normalised(g.node("MatMul", x, weights[f"{layer}.linear.weight"].T), layer)
        x = g.node("LeakyRelu", x, alpha=slope)
    return g.node("MatMul", x, weights["representation.weight"].T)


def _numbered(weights: dict[str, np.ndarray], group: str) -> list[str]:
    numbers = {int(name.split(".")[1]) for name in weights if name.startswith(f"{group}.")}
    return [f"{group}.{i}" for i in sorted(numbers)]
