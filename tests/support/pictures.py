"""A network and pictures that tests make themselves."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image


def tiny_network(path, *, side=32, seed=0, channels=3, flat=False, residual=False):
    """Write a network of two convolutions, of 16 x 16 and 8 x 8 places, with random weights."""
    rng = np.random.default_rng(seed)
    kernels = {"a": rng.normal(size=(8, channels, 3, 3)), "b": rng.normal(size=(16, 8, 3, 3)) / 3}
    weights = [numpy_helper.from_array(k.astype(np.float32), n) for n, k in kernels.items()]
    fold = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["first"], **fold),
        helper.make_node("Relu", ["first"], ["fine"]),
        helper.make_node("Conv", ["fine", "b"], ["second"], **fold),
        helper.make_node("Relu", ["second"], ["coarse"]),
        helper.make_node("GlobalAveragePool", ["coarse"], ["y"]),
    ]
    if flat:
        nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
        weights = []
    if residual:
        nodes[-1:] = [
            helper.make_node("Add", ["coarse", "second"], ["sum"]),
            helper.make_node("Concat", ["sum", "sum"], ["wide"], axis=1),
            helper.make_node("GlobalAveragePool", ["wide"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, side, side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(path),
    )
    return path


def surface(rng, *, defect=False, size=48):
    """Stripes with noise; a defect is a bright square without any. Returns its place, too."""
    x, _ = np.meshgrid(np.arange(size), np.arange(size))
    grey = 128 + 60 * np.sin(x / 2 + rng.uniform(0, 6)) + rng.normal(0, 6, (size, size))
    inside = np.zeros((size, size), dtype=bool)
    if defect:
        top, left = rng.integers(6, size - 20, 2)
        inside[top : top + 14, left : left + 14] = True
        grey[inside] = 250
    pixels = np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
    return pixels, inside


def folder_of_surfaces(folder, n=40, n_labelled=6):
    """Write pictures into the folders unlabelled, normal and anomaly; a tenth have a defect."""
    rng = np.random.default_rng(0)
    for i in range(n + 2 * n_labelled):
        kind = "unlabelled" if i < n else "normal" if i < n + n_labelled else "anomaly"
        pixels, _ = surface(rng, defect=kind == "anomaly" or (kind == "unlabelled" and i % 10 == 0))
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / kind / f"part_{i:03}.png")
    return folder
