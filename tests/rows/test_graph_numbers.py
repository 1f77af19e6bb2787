"""Formulas over arrays and over values of an ONNX graph: one text, the same numbers."""

import numpy as np
import pytest
from support.loops import each

from riskad.rows.arrays import GraphNumbers

W = np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 0.25]])
X = np.array([[0.0, 1.5, -2.0], [10.0, -0.75, 3.0], [-5.5, 2.0, np.nan]])
FORMULAS = {
    "scale": lambda x: (x - W[:, 0]) / (1 + W[:, 1] ** 2),
    "smooth": lambda x: x / np.sqrt(1 + x * x),
    "log": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    "waves": lambda x: np.sin(2 * x) + np.cos(x - 1),
    "rounds": lambda x: np.mod(np.floor(x) + 3, 7),
    "bounds": lambda x: np.minimum(np.maximum(x, -1.0), 2.0) - np.clip(x, -3.0, 3.0),
    "columns": lambda x: x[:, np.array([2, 0])],
    "product": lambda x: x @ W + W[0],
}


@each("name", FORMULAS)
def test_a_formula_is_the_same_in_a_graph(name):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from riskad.app.onnx import Graph

    formula, graph = FORMULAS[name], Graph(onnx)
    rows = graph.input("X", onnx.TensorProto.DOUBLE, X.shape[1:], "rows")
    expected = formula(X)
    value = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.DOUBLE, ["n", "m"])
    graph.output("out", formula(GraphNumbers(graph, rows)).node, onnx.TensorProto.DOUBLE)
    graph._outputs[0] = value
    model = graph.model("formula").SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["out"], {"X": X})[0], expected, rtol=1e-14, atol=1e-15)


def test_what_a_graph_does_not_have_is_no_formula():
    with pytest.raises(TypeError):
        np.arctan2(GraphNumbers(None, "x"), 1.0)
    with pytest.raises(TypeError):
        np.add.reduce(GraphNumbers(None, "x"))
