"""Linear scores and feature maps as nodes of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.detectors.linear.feature_maps import KernelLandmarks, RandomWaves
from riskad.rows.linear import sparse_to_dense

__all__ = ["linear_scores"]


def linear_scores(g: Any, X: str, detector: Any, sparse: bool) -> str:
    """Return <w, phi(x)> + b."""
    if detector.feature_map_ is not None:
        X = _mapped(g, _standardised(g, X, detector, centred=not sparse), detector.feature_map_)
    return str(g.node("Add", g.node("MatMul", X, detector.coef_), np.array(detector.intercept_)))


def _standardised(g: Any, X: str, detector: Any, centred: bool = True) -> str:
    """(x - mean) / scale; sparse rows are not centred before a feature map."""
    if centred:
        X = g.node("Sub", X, detector._mean)
    return g.node("Div", X, detector._scale)


def _mapped(g: Any, Z: str, feature_map: Any) -> str:
    if hasattr(feature_map, "onnx_rows"):
        return str(feature_map.onnx_rows(g, Z))
    kind = type(feature_map).__name__
    gaussian = getattr(feature_map, "kernel", "rbf") == "rbf"
    if kind not in _SKLEARN or not gaussian:
        raise InputError(
            f"A feature map {feature_map!r} cannot be exported; 'rbf', 'nystroem' with a Gaussian "
            "kernel and 'poly' can."
        )
    return _SKLEARN[kind](g, Z, feature_map)


def _nystroem(g: Any, Z: str, feature_map: Any) -> str:
    landmarks = sparse_to_dense(feature_map.components_)
    gamma = feature_map.gamma if feature_map.gamma is not None else 1 / landmarks.shape[1]
    return KernelLandmarks(gamma, landmarks, feature_map.normalization_).onnx_rows(g, Z)


def _random_features(g: Any, Z: str, feature_map: Any) -> str:
    return RandomWaves(feature_map.random_weights_, feature_map.random_offset_).onnx_rows(g, Z)


def _polynomial(g: Any, Z: str, feature_map: Any) -> str:
    """Products of columns: factor k of each feature, for k = 1 .. degree; 1 where it has fewer."""
    powers = feature_map.powers_
    d, degree = powers.shape[1], max(int(powers.sum(axis=1).max()), 1)
    factors = np.full((len(powers), degree), d)
    for i, power in enumerate(powers):
        columns = np.repeat(np.arange(d), power)
        factors[i, : len(columns)] = columns
    columns_and_one = g.node("Pad", Z, np.array([0, 0, 0, 1]), np.array(1.0))
    product, *others = (g.node("Gather", columns_and_one, index, axis=1) for index in factors.T)
    for other in others:
        product = g.node("Mul", product, other)
    return product


# Maps that were given as transformers of scikit-learn.
_SKLEARN = {
    "Nystroem": _nystroem,
    "RBFSampler": _random_features,
    "PolynomialFeatures": _polynomial,
}
