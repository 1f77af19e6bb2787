"""ONNX graphs, node by node."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np

import riskad

__all__ = ["Graph"]

# Versions of the operators: the first with trees in doubles (onnxruntime 1.20 and later).
_OPSETS = {"": 21, "ai.onnx.ml": 5}
_IR_VERSION = 10


class Graph:
    """Nodes, one after the other; a value is the name of a node's output."""

    def __init__(self, onnx: ModuleType):
        self.onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: int, shape: tuple[int, ...], words: str) -> str:
        """Add an input; `words` describe it."""
        info = self.onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape], words)
        self._inputs.append(info)
        return name

    def number(self, name: str, words: str = "number, NaN if blank") -> str:
        """Add a column of numbers as an input."""
        return self.input(name, self.onnx.TensorProto.DOUBLE, (1,), words)

    def text(self, name: str) -> str:
        """Add a column of texts as an input."""
        return self.input(name, self.onnx.TensorProto.STRING, (1,), 'text, "" if blank')

    def output(self, name: str, value: str, kind: int) -> None:
        """Make a value an output with this name."""
        self._nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows"]))

    def node(self, kind: str, *inputs: str | np.ndarray, domain: str = "", **settings: Any) -> str:
        """Add a node; arrays among its inputs become constants."""
        return self.several(kind, 1, *inputs, domain=domain, **settings)[0]

    def several(
        self, kind: str, n_values: int, *inputs: str | np.ndarray, domain: str = "", **settings: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        own = f"riskad:{len(self._nodes)}"
        given = [own if not i else f"{own}:{i}" for i in range(n_values)]
        made = self.onnx.helper.make_node(kind, names, given, domain=domain, **settings)
        self._nodes.append(made)
        return given

    def ml(self, kind: str, *inputs: str | np.ndarray, **settings: Any) -> str:
        """Add a node of the operators for machine learning."""
        return self.node(kind, *inputs, domain="ai.onnx.ml", **settings)

    def cast(self, value: str, kind: type[np.generic]) -> str:
        """Add a change of type."""
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.node("Cast", value, to=to)

    def tensor(self, value: np.ndarray, name: str = "") -> Any:
        """Return an array as ONNX stores it."""
        return self.onnx.numpy_helper.from_array(np.asarray(value, order="C"), name)

    def constant(self, value: np.ndarray) -> str:
        """Add a constant, for nodes that share it."""
        name = f"riskad:constant:{len(self._constants)}"
        self._constants.append(self.tensor(value, name))
        return name

    def model(self, detector: str) -> Any:
        """Return the checked model of all nodes so far."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self._nodes, "riskad", self._inputs, self._outputs, self._constants
        )
        opsets = [helper.make_opsetid(*versions) for versions in _OPSETS.items()]
        made = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=_IR_VERSION,
            producer_name="riskad",
            producer_version=riskad.__version__,
        )
        columns = {entry.name: entry.doc_string for entry in self._inputs}
        helper.set_model_props(made, {"detector": detector, "inputs": json.dumps(columns)})
        self.onnx.checker.check_model(made)
        return made
