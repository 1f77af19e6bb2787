"""Fitted models as ONNX graphs, including the preparation of columns, for use without Python.

A graph takes one input for each column that the model uses. Numbers are doubles with NaN for blank.
Texts are strings without surrounding blanks, with "" for blank. Dates and times are seconds: a
graph cannot read "27.03.2025" or "1,234.50 €". A detector without a `TablePreparer` takes its rows
as one input, X. All graphs give `anomaly_score`, and `is_anomaly`: whether the score is above the
model's threshold. They also give `anomaly_probability` and `novelty`, if the model has them.

The graphs are built here node by node, from the fitted attributes. They use double precision where
Python does; networks use single precision in both.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import riskad
from riskad.app.score import knows_probabilities, segments_of
from riskad.core.checks import DataWarning, InputError
from riskad.detectors.base import Detector
from riskad.detectors.description import SelfDescribing, detector_tags
from riskad.files.atomic import atomic_path, check_output_file
from riskad.rows.table import TableSchema
from riskad.tables.formats.moments import to_seconds
from riskad.tables.kinds.categories import onnx_codes
from riskad.tables.preparation import TablePreparer

EXPORTABLE = (
    "AutoRAD; PretrainedRAD; StreamingRAD and ShallowRAD without a feature map or with 'rbf', "
    "'nystroem' (Gaussian kernel) or 'poly'; BoostedRAD; ForestRAD; CompressedRAD; DeepRAD, NNPU "
    "and DeepSAD with a named architecture; each of them alone or behind a TablePreparer, as "
    "riskad.fit_table makes it"
)
_TRIAL_ROWS = 1000
_TRIAL_BLANKS = 0.1  # share of cells, so that a graph is tested on blanks, too
# Versions of the operators: the first with trees in doubles (onnxruntime 1.20 and later).
_OPSETS = {"": 21, "ai.onnx.ml": 5}
_IR_VERSION = 10  # of the file: the oldest that these operators allow, for older runtimes
_SINCE = "seconds since 1970-01-01 00:00 of the clock as written"


@dataclass(frozen=True)
class ExportReport:
    """Inputs and outputs of a graph, and how close it is to the model."""

    model: str
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    bytes: int
    checked_rows: int
    largest_difference: float | None


def export(model: Any, path: str | os.PathLike[str], *, force: bool = False) -> ExportReport:
    """Write a fitted model as an ONNX file; an existing file needs `force`.

    If onnxruntime is installed, the graph is first run on random rows around the training rows, and
    nothing is written if a score differs by more than 1e-5 (for a pretrained network, in single
    precision, 3e-4).

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, riskad
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
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError(
            "Exporting needs onnx, which is not installed: pip install 'riskad[onnx]'."
        ) from None
    preparer, detector = _steps(model)
    if hasattr(preparer, "windower_"):
        raise InputError("A model of windows of time series cannot be exported.")
    try:
        check_is_fitted(detector)
    except NotFittedError as error:
        name = type(detector).__name__
        raise InputError(f"This {name} is not fitted; call fit first.") from error
    if (segments := segments_of(detector)) is not None:
        raise InputError(
            f"A graph has one threshold, and this model has one for each {segments.column!r}. Fit "
            "it without threshold_by to export it."
        )
    graph = Graph(onnx)
    rows = _input_rows(graph, detector) if preparer is None else _prepared_rows(graph, preparer)
    sparse = preparer is not None and preparer.sparse_
    double, novelty = onnx.TensorProto.DOUBLE, None
    if detector_tags(detector).supports_novelty:
        scores, novelty = detector._onnx_scores_and_novelty(graph, rows, sparse)
    else:
        scores = detector._onnx_scores(graph, rows, sparse)
    graph.output("anomaly_score", graph.node("Neg", scores), double)
    # + 0.0 turns a negative zero into zero, as in `Detector._anomaly_threshold`.
    above = graph.node("Greater", "anomaly_score", np.array(-float(detector.offset_) + 0.0))
    graph.output("is_anomaly", above, onnx.TensorProto.BOOL)
    if knows_probabilities(detector):
        line = detector.calibration_.line
        slopes = graph.node("Mul", "anomaly_score", np.array(line.slope))
        odds = graph.node("Add", slopes, np.array(line.intercept))
        graph.output("anomaly_probability", graph.node("Sigmoid", odds), double)
    if novelty is not None:
        graph.output("novelty", novelty, double)
    return graph.model(type(detector).__name__)


def _steps(model: Any) -> tuple[TablePreparer | None, Any]:
    preparer, detector = None, model
    if isinstance(model, Pipeline):
        if len(model) != 2 or not isinstance(model[0], TablePreparer):
            steps = "A pipeline of " + ", ".join(type(step).__name__ for _, step in model.steps)
            raise InputError(f"{steps} cannot be exported. What can be: {EXPORTABLE}.")
        preparer, detector = model[0], model[1]
    if not isinstance(detector, SelfDescribing):
        raise InputError(f"A {type(detector).__name__} is no detector that could be exported.")
    return preparer, detector


# --- graphs and their inputs -------------------------------------------------------------


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
        # "rows" is a name and not a number: a graph takes any number of rows.
        value_info = self.onnx.helper.make_tensor_value_info
        self._inputs.append(value_info(name, kind, ["rows", *shape], words))
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
        # No column of a table has such a name, so that inputs keep theirs.
        first = f"riskad:{len(self._nodes)}"
        outputs = [first, *(f"{first}:{i}" for i in range(1, n_values))]
        node = self.onnx.helper.make_node(kind, names, outputs, domain=domain, **settings)
        self._nodes.append(node)
        return outputs

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
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*versions) for versions in _OPSETS.items()],
            ir_version=_IR_VERSION,
            producer_name="riskad",
            producer_version=riskad.__version__,
        )
        columns = {entry.name: entry.doc_string for entry in self._inputs}
        # Whoever runs the graph finds its inputs in the file itself.
        helper.set_model_props(model, {"detector": detector, "inputs": json.dumps(columns)})
        self.onnx.checker.check_model(model)
        return model


def _prepared_rows(g: Graph, preparer: TablePreparer) -> str:
    """The rows of `TablePreparer.transform`; graphs read no dates, so these are seconds."""
    since = {"time": "seconds since midnight", "duration": "seconds"}
    cells, nodes = {}, []
    for column in preparer.used():
        name, dtype = column.name, column.typed([]).dtype
        if dtype == pl.String:
            cells[name] = g.text(name)
        elif dtype.is_temporal():
            cells[name] = g.number(name, f"{since.get(column.kind, _SINCE)}, NaN if blank")
        else:
            cells[name] = g.number(name)
        nodes += column.onnx_features(g, cells[name])
    nodes += [node for each in preparer.derived_ for node in each.onnx(g, cells)]
    table = g.node("Concat", *nodes, axis=1)
    return preparer.encoder_.onnx_rows(g, table) if preparer.encode else table


def _input_rows(g: Graph, detector: Detector) -> str:
    """X for a detector without a preparer; one input per column if it reads texts itself."""
    shape = getattr(detector, "shape_", (detector.n_features_in_,))
    if len(shape) > 1:
        words = f"images of {' x '.join(map(str, shape))}, bytes divided by 255 if unscaled"
        return g.input("X", g.onnx.TensorProto.FLOAT, shape, words)
    schema = getattr(detector, "schema_", TableSchema())
    if schema == TableSchema():
        return g.input("X", g.onnx.TensorProto.DOUBLE, shape, f"rows of {shape[0]} numbers")
    nodes = []
    for i, name in enumerate(detector.feature_names_in_):
        if i in schema.levels:
            nodes.append(onnx_codes(g, g.text(name), schema.levels[i]))
        elif i in schema.dates:
            nodes.append(g.number(name, f"{_SINCE}, or long; NaN if blank"))
        else:
            nodes.append(g.number(name))
    return g.node("Concat", *nodes, axis=1)


# --- parity ------------------------------------------------------------------------------


def _check_parity(model: Any, proto: Any) -> float | None:
    """The largest difference of scores on rows drawn at random; None without onnxruntime."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    rows = _trial_rows(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # about blanks and new values
        expected = -model.score_samples(rows)
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        # On the processor: a GPU may round products to fewer digits.
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        (scores,) = session.run(["anomaly_score"], feeds(proto, rows))
    except (state.Fail, state.InvalidArgument, state.InvalidGraph) as error:
        raise InputError(
            f"onnxruntime does not run the graph of this model: {error}. Nothing was written; "
            "if the model comes from riskad.fit_table, please report it."
        ) from None
    # Relative for large scores, absolute for small ones.
    largest = float((np.abs(expected - scores) / np.maximum(1, np.abs(expected))).max())
    allowed = _steps(model)[1]._graph_tolerance
    if not largest <= allowed:
        raise InputError(
            f"The graph gives other scores than the model: they differ by {largest:.2g} at most, "
            f"where {allowed:g} is allowed. Nothing was written; please report it, with the "
            "model's settings."
        )
    return largest


def feeds(proto: Any, rows: Any) -> dict[str, np.ndarray]:
    """Return rows, a polars frame or an array, in onnxruntime's form for a graph of ours."""
    if not isinstance(rows, pl.DataFrame):
        return {"X": rows}
    inputs = {}
    for name in (entry.name for entry in proto.graph.input):
        column = rows[name]
        if column.dtype == pl.String:
            cells = column.fill_null("").to_numpy().astype(object)
        else:
            numbers = to_seconds(column) if column.dtype.is_temporal() else column.cast(pl.Float64)
            cells = numbers.fill_null(float("nan")).to_numpy()
        inputs[name] = cells[:, None]
    return inputs


def _trial_rows(model: Any) -> Any:
    """Rows around the training rows, with blanks and new values."""
    rng = np.random.default_rng(0)
    preparer, detector = _steps(model)
    if preparer is not None:
        return pl.DataFrame({c.name: c.random_values(rng, _TRIAL_ROWS) for c in preparer.used()})
    X = detector._trial_rows(rng, _TRIAL_ROWS)
    schema = getattr(detector, "schema_", TableSchema())
    if schema == TableSchema():
        return X
    columns = {}
    for i, name in enumerate(detector.feature_names_in_):
        if i in schema.levels:
            texts = np.array([*schema.levels[i], "a new value", None], dtype=object)
            column = pl.Series(rng.choice(texts, _TRIAL_ROWS).tolist(), dtype=pl.String)
        else:
            blank = rng.random(_TRIAL_ROWS) < _TRIAL_BLANKS
            column = pl.Series(np.where(blank, np.nan, X[:, i])).fill_nan(None)
        if i in schema.dates:
            column = (1e6 * column).cast(pl.Int64).cast(pl.Datetime("us"))
        columns[name] = column
    return pl.DataFrame(columns)
