"""Fitted models as ONNX graphs, preparation of the columns included, for where there is no Python.

A graph takes one input for each column that the model uses, as a table holds it: numbers as doubles
with NaN for blank, texts as strings, without blanks around them, with "" for blank. A detector
without a `TablePreparer` takes its rows as one input, X. All graphs give `anomaly_score` and, where
it is above the model's threshold, `is_anomaly`.

The graphs are written here node by node, from the fitted attributes. What is computed in doubles
in Python is so in the graph; networks are computed in single precision in both.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import riskad
from riskad.app.onnx_trees import sum_of_trees
from riskad.core.checks import DataWarning, InputError
from riskad.rows.linear import sparse_to_dense
from riskad.storage.files import atomic_path, check_output_file
from riskad.tables.cells import BLANK
from riskad.tables.preparation import OTHER, TablePreparer

__all__ = ["EXPORTABLE", "TOLERANCE", "ExportReport", "export", "feeds", "to_onnx"]

EXPORTABLE = (
    "StreamingRAD, ShallowRAD without a feature map or with 'rbf', 'nystroem' (Gaussian kernel) or "
    "'poly'; "
    "BoostedRAD; ForestRAD; DeepRAD, NNPU and DeepSAD with a named architecture; each of them "
    "alone or behind a TablePreparer, as `riskad fit` makes it"
)
TOLERANCE = 1e-5
"""Largest difference of scores, relative where they are larger than 1, that is let pass."""

# Versions of the operators: the first with trees in doubles (onnxruntime 1.20 and later).
_OPSETS = {"": 21, "ai.onnx.ml": 5}
_IR_VERSION = 10
_TRIAL_ROWS = 1000
_TRIAL_BLANKS = 0.1


@dataclass(frozen=True)
class ExportReport:
    """What a graph takes and gives, and how near it is to the model."""

    model: str
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    bytes: int
    checked_rows: int
    largest_difference: float | None


def export(model: Any, path: str | os.PathLike[str], *, force: bool = False) -> ExportReport:
    """Write a fitted model as an ONNX file; an existing file needs `force`.

    If onnxruntime is installed the graph is run first, on rows drawn at random around those of
    training, and nothing is written if a score differs by more than 1e-5.

    >>> import tempfile
    >>> from pathlib import Path
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.repeat([1, 0, -1], [40, 950, 10])
    >>> model = riskad.ShallowRAD().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = export(model, Path(folder, "model.onnx"))
    >>> report.inputs, report.outputs, report.largest_difference < 1e-12
    ({'X': 'rows of 2 numbers'}, ('anomaly_score', 'is_anomaly'), True)
    """
    check_output_file(path, force)
    proto = to_onnx(model)
    difference = _check_parity(model, proto)
    stored: bytes = proto.SerializeToString()
    with atomic_path(path, force) as part:
        part.write_bytes(stored)
    return ExportReport(
        model=type(_steps(model)[1]).__name__,
        inputs={entry.name: entry.doc_string for entry in proto.graph.input},
        outputs=tuple(entry.name for entry in proto.graph.output),
        bytes=len(stored),
        checked_rows=0 if difference is None else _TRIAL_ROWS,
        largest_difference=difference,
    )


def to_onnx(model: Any) -> Any:
    """Return the `onnx.ModelProto` of a fitted detector, or of one behind a `TablePreparer`."""
    onnx = _onnx()
    preparer, detector = _steps(model)
    convert = _converter(detector)
    _check_fitted(detector)
    graph = _Graph(onnx)
    if preparer is not None:
        scores = convert(graph, _prepare(graph, preparer), detector, preparer.sparse_)
    else:
        scores = convert(graph, _rows_of(graph, detector), detector, False)
    graph.output("anomaly_score", graph.node("Neg", scores), onnx.TensorProto.DOUBLE)
    above = graph.node("Greater", "anomaly_score", np.array(-float(detector.offset_) + 0.0))
    graph.output("is_anomaly", above, onnx.TensorProto.BOOL)
    return graph.model(type(detector).__name__)


def _onnx() -> ModuleType:
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError(
            "Exporting needs onnx, which is not installed: pip install 'riskad[onnx]'."
        ) from None
    return onnx


def _steps(model: Any) -> tuple[TablePreparer | None, Any]:
    if not isinstance(model, Pipeline):
        return None, model
    if len(model) == 2 and isinstance(model[0], TablePreparer):
        return model[0], model[1]
    steps = ", ".join(type(step).__name__ for _, step in model.steps)
    raise InputError(f"A pipeline of {steps} cannot be exported. What can be: {EXPORTABLE}.")


def _check_fitted(detector: Any) -> None:
    try:
        check_is_fitted(detector)
    except NotFittedError as error:
        raise InputError(
            f"This {type(detector).__name__} is not fitted; call fit first."
        ) from error


# --- writing graphs ----------------------------------------------------------------------


class _Graph:
    """Nodes, one after the other; a value is the name of what a node gives."""

    def __init__(self, onnx: ModuleType):
        self.onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: int, shape: tuple[int, ...], words: str) -> str:
        info = self.onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape], words)
        self._inputs.append(info)
        return name

    def number(self, name: str) -> str:
        return self.input(name, self.onnx.TensorProto.DOUBLE, (1,), "number, NaN if blank")

    def text(self, name: str) -> str:
        return self.input(name, self.onnx.TensorProto.STRING, (1,), 'text, "" if blank')

    def output(self, name: str, value: str, kind: int) -> None:
        self._nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows"]))

    def node(self, kind: str, *inputs: str | np.ndarray, domain: str = "", **settings: Any) -> str:
        """Add a node; arrays among its inputs become constants."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        name = f"riskad:{len(self._nodes)}"
        made = self.onnx.helper.make_node(kind, names, [name], domain=domain, **settings)
        self._nodes.append(made)
        return name

    def ml(self, kind: str, *inputs: str | np.ndarray, **settings: Any) -> str:
        """Add a node of the operators for machine learning."""
        return self.node(kind, *inputs, domain="ai.onnx.ml", **settings)

    def cast(self, value: str, kind: type[np.generic]) -> str:
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.node("Cast", value, to=to)

    def tensor(self, value: np.ndarray, name: str = "") -> Any:
        return self.onnx.numpy_helper.from_array(np.asarray(value, order="C"), name)

    def _constant(self, value: np.ndarray) -> str:
        name = f"riskad:constant:{len(self._constants)}"
        self._constants.append(self.tensor(value, name))
        return name

    def model(self, detector: str) -> Any:
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


# --- columns -----------------------------------------------------------------------------


def _prepare(g: _Graph, preparer: TablePreparer) -> str:
    """The matrix that `TablePreparer.transform` gives."""
    blocks: list[str] = []
    for name, kind in preparer.kinds_.items():
        if kind == "number":
            blocks += _number_blocks(g, preparer, name)
        elif kind == "text":
            blocks.append(_text_block(g, g.text(name), preparer.levels_[name]))
    return g.node("Concat", *blocks, axis=1)


def _number_blocks(g: _Graph, preparer: TablePreparer, name: str) -> list[str]:
    value = g.number(name)
    blank = g.node("IsNaN", value)
    blocks = []
    if name in preparer.medians_:
        blocks.append(g.node("Where", blank, np.array(preparer.medians_[name], dtype=float), value))
    if preparer.blanks_[name]:
        blocks.append(g.cast(blank, np.float64))
    return blocks


def _text_block(g: _Graph, value: str, levels: list[str]) -> str:
    """Yes/no columns: rows of the unit matrix, and of zeros for a value that was never seen."""
    n = len(levels)
    codes = {level: i for i, level in enumerate(levels)}
    rest = codes.get(OTHER, n)
    codes[""] = codes.get(BLANK, rest)
    code = g.ml(
        "LabelEncoder",
        value,
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=rest,
    )
    units = g.node("Gather", np.eye(n + 1, n), code)
    return g.node("Reshape", units, np.array([-1, n]))


def _rows_of(g: _Graph, detector: Any) -> str:
    """X for a detector without a preparer; a column each where it reads texts by itself."""
    double, single = g.onnx.TensorProto.DOUBLE, g.onnx.TensorProto.FLOAT
    shape = getattr(detector, "shape_", (detector.n_features_in_,))
    if len(shape) > 1:
        sides = " x ".join(map(str, shape))
        return g.input("X", single, shape, f"images of {sides}, bytes divided by 255 if unscaled")
    levels = getattr(detector, "categories_", {})
    if not levels:
        return g.input("X", double, shape, f"rows of {shape[0]} numbers")
    names = detector.feature_names_in_
    columns = [
        _codes(g, g.text(name), levels[i]) if i in levels else g.number(name)
        for i, name in enumerate(names)
    ]
    return g.node("Concat", *columns, axis=1)


def _codes(g: _Graph, value: str, levels: Any) -> str:
    """Places of texts in a list, NaN for those not in it."""
    code = g.ml(
        "LabelEncoder",
        value,
        keys_strings=[str(level) for level in levels],
        values_floats=[float(i) for i in range(len(levels))],
        default_float=float("nan"),
    )
    return g.cast(code, np.float64)


# --- linear scores and feature maps ------------------------------------------------------


def _shallow(g: _Graph, X: str, detector: Any, sparse: bool) -> str:
    """<w, phi(x)> + b."""
    if detector.feature_map_ is not None:
        X = _mapped(g, _standardised(g, X, detector, centred=not sparse), detector.feature_map_)
    return g.node("Add", g.node("MatMul", X, detector.coef_), np.array(detector.intercept_))


def _standardised(g: _Graph, X: str, detector: Any, centred: bool = True) -> str:
    """(x - mean) / scale; sparse rows are not centred before a feature map."""
    if centred:
        X = g.node("Sub", X, detector._mean)
    return g.node("Div", X, detector._scale)


def _mapped(g: _Graph, Z: str, feature_map: Any) -> str:
    kind = type(feature_map).__name__
    gaussian = getattr(feature_map, "kernel", "rbf") == "rbf"
    if kind not in _MAPS or not gaussian:
        raise InputError(f"A feature map {feature_map!r} cannot be exported: {EXPORTABLE}.")
    return _MAPS[kind](g, Z, feature_map)


def _nystroem(g: _Graph, Z: str, feature_map: Any) -> str:
    """exp(-gamma ||z - c||^2) N' for the landmarks c."""
    C = sparse_to_dense(feature_map.components_)
    gamma = feature_map.gamma if feature_map.gamma is not None else 1 / C.shape[1]
    own = g.node("ReduceSumSquare", Z, np.array([1]), keepdims=1)
    squares = g.node("Add", own, (C**2).sum(axis=1))
    distances = g.node("Relu", g.node("Sub", squares, g.node("MatMul", Z, 2 * C.T)))
    kernel = g.node("Exp", g.node("Mul", distances, np.array(-float(gamma))))
    return g.node("MatMul", kernel, feature_map.normalization_.T)


def _random_features(g: _Graph, Z: str, feature_map: Any) -> str:
    """sqrt(2 / q) cos(z W + t)."""
    W, t = feature_map.random_weights_, feature_map.random_offset_
    waves = g.node("Cos", g.node("Add", g.node("MatMul", Z, W), t))
    # A vector, since onnxruntime would fuse a scalar into the next product in single precision.
    return g.node("Mul", waves, np.full(len(t), (2 / len(t)) ** 0.5))


def _polynomial(g: _Graph, Z: str, feature_map: Any) -> str:
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


_MAPS = {
    "Nystroem": _nystroem,
    "RBFSampler": _random_features,
    "PolynomialFeatures": _polynomial,
}


# --- networks ----------------------------------------------------------------------------


def _network(g: _Graph, X: str, detector: Any, sparse: bool) -> str:
    """Scores of the one unit of a named architecture, or minus the distance from a centre."""
    from riskad.deep.layers import LEAKY_SLOPE, NORM_EPS

    if not isinstance(detector.module, str):
        raise InputError(
            f"This {type(detector).__name__} has a module of your own, of which only you know the "
            f"layers; export it with torch.onnx. What can be exported here: {EXPORTABLE}."
        )
    weights = {name: value[0] for name, value in detector.weights_.items()}
    x = _layers(g, _seen(g, X, detector), weights, NORM_EPS, LEAKY_SLOPE)
    if hasattr(detector, "centre_"):
        away = g.node("Sub", x, detector.centre_)
        scores = g.node("Neg", g.node("ReduceSumSquare", away, np.array([1]), keepdims=0))
    else:
        shift = weights["output.bias"]
        if detector._check_risk().loss.bounded:  # such networks centre their scores
            shift = shift - weights["output.mean"]
        x = g.node("LeakyRelu", x, alpha=LEAKY_SLOPE)
        scores = g.node("Add", g.node("MatMul", x, weights["output.weight"][0]), shift)
    return g.cast(scores, np.float64)


def _seen(g: _Graph, X: str, detector: Any) -> str:
    """Rows as the network sees them: standardised by column or channel, in single precision."""
    images = len(detector.shape_) > 1
    kind = np.float32 if images else np.float64
    across = (-1, *[1] * (len(detector.shape_) - 1))
    if detector.scale:
        X = g.node("Sub", X, detector._mean.reshape(across).astype(kind))
        X = g.node("Div", X, detector._scale.reshape(across).astype(kind))
    return X if images else g.cast(X, np.float32)


def _layers(g: _Graph, x: str, weights: dict[str, np.ndarray], eps: float, slope: float) -> str:
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


# --- trees -------------------------------------------------------------------------------


def _boosted(g: _Graph, X: str, detector: Any, sparse: bool) -> str:
    """The sum of the trees."""
    return sum_of_trees(g, X, detector.trees_)


def _random_forest(g: _Graph, X: str, detector: Any, sparse: bool) -> str:
    """The mean of P(normal) - P(anomaly) over the trees."""
    return sum_of_trees(g, X, detector.trees_, weight=1 / detector.trees_.n_trees)


# --- which is which ----------------------------------------------------------------------

Converter = Callable[[_Graph, str, Any, bool], str]

# By name, so that neither torch nor LightGBM is needed for what does without them.
_CONVERTERS: dict[str, Converter] = {
    "ShallowRAD": _shallow,
    "StreamingRAD": _shallow,
    "BoostedRAD": _boosted,
    "ForestRAD": _random_forest,
    "DeepRAD": _network,
    "NNPU": _network,
    "DeepSAD": _network,
}


def _converter(detector: Any) -> Converter:
    for kind in type(detector).__mro__:
        if kind.__module__.startswith("riskad.") and kind.__name__ in _CONVERTERS:
            return _CONVERTERS[kind.__name__]
    name = type(detector).__name__
    averaged = name == "AutoRAD"
    other = " Fit another with `riskad fit --model shallow` or `--model boosted`." * averaged
    raise InputError(
        f"A model of class {name} cannot be exported.{other} What can be: {EXPORTABLE}."
    )


# --- parity ------------------------------------------------------------------------------


def _check_parity(model: Any, proto: Any) -> float | None:
    """The largest difference of scores on rows drawn at random; None without onnxruntime."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    rows = _trial_rows(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # that there are blanks and new values
        ours = -model.score_samples(rows)
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        theirs, _ = session.run(None, feeds(proto, rows))
    except (state.Fail, state.InvalidArgument, state.InvalidGraph) as error:
        raise InputError(
            f"onnxruntime does not run the graph of this model: {error}. Nothing was written; "
            "if the model comes from `riskad fit`, please report it."
        ) from None
    largest = float((np.abs(ours - theirs) / np.maximum(1, np.abs(ours))).max())
    if not largest <= TOLERANCE:
        raise InputError(
            f"The graph gives other scores than the model: they differ by {largest:.2g} at most, "
            f"where {TOLERANCE:g} is allowed. Nothing was written; please report it, with the "
            "model's settings."
        )
    return largest


def feeds(proto: Any, rows: Any) -> dict[str, np.ndarray]:
    """Return rows, a polars frame or an array, as onnxruntime takes them for a graph of ours."""
    if not isinstance(rows, pl.DataFrame):
        return {"X": rows}
    return {entry.name: _feed(rows[entry.name]) for entry in proto.graph.input}


def _feed(column: pl.Series) -> np.ndarray:
    if column.dtype == pl.String:
        return column.fill_null("").to_numpy().astype(object)[:, None]
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()[:, None]


def _trial_rows(model: Any) -> Any:
    """Rows around those of training, with blanks and new values."""
    rng = np.random.default_rng(0)
    preparer, detector = _steps(model)
    if preparer is not None:
        names = [name for name, kind in preparer.kinds_.items() if kind != "dropped"]
        levels = preparer.levels_
    elif getattr(detector, "categories_", {}):
        names = list(detector.feature_names_in_)
        levels = {names[i]: list(texts) for i, texts in detector.categories_.items()}
    else:
        return _trial_matrix(detector, rng)
    spreads = _spreads(preparer, detector)
    return pl.DataFrame(
        {
            name: _trial_texts(levels[name], rng)
            if name in levels
            else _trial_numbers(*spreads.get(name, (0.0, 1.0)), rng)
            for name in names
        }
    )


def _spreads(preparer: TablePreparer | None, detector: Any) -> dict[str, tuple[float, float]]:
    """Middle and spread of number columns, as far as the model remembers them."""
    if preparer is None:
        return {}
    places = {name: i for i, name in enumerate(preparer.get_feature_names_out())}
    scale = getattr(detector, "_scale", None)
    return {
        name: (median, abs(median) + 1 if scale is None else float(scale[places[name]]))
        for name, median in preparer.medians_.items()
    }


def _trial_matrix(detector: Any, rng: np.random.Generator) -> np.ndarray:
    shape = getattr(detector, "shape_", (detector.n_features_in_,))
    X = rng.standard_normal((_TRIAL_ROWS, *shape))
    if hasattr(detector, "_scale"):
        across = (-1, *[1] * (len(shape) - 1))
        X = detector._mean.reshape(across) + detector._scale.reshape(across) * X
    return X.astype(np.float32) if len(shape) > 1 else X


def _trial_numbers(middle: float, spread: float, rng: np.random.Generator) -> pl.Series:
    values = rng.normal(middle, spread, _TRIAL_ROWS)
    values[rng.random(_TRIAL_ROWS) < _TRIAL_BLANKS] = np.nan
    return pl.Series(values).fill_nan(None)


def _trial_texts(levels: list[str], rng: np.random.Generator) -> pl.Series:
    chosen = rng.choice(np.array([*levels, "a new value", None], dtype=object), _TRIAL_ROWS)
    return pl.Series(chosen.tolist(), dtype=pl.String)
