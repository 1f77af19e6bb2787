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

from riskad.app.onnx_columns import prepared_rows, rows_of
from riskad.app.onnx_graph import Graph
from riskad.app.results import RESULT_COLUMNS, knows_probabilities
from riskad.core.checks import DataWarning, InputError
from riskad.detectors.description import GRAPH_TOLERANCE, SelfDescribing
from riskad.rows.table import TableSchema
from riskad.storage.files import atomic_path, check_output_file
from riskad.tables.formats.moments import to_seconds
from riskad.tables.preparation import TablePreparer

__all__ = ["EXPORTABLE", "TOLERANCE", "ExportReport", "export", "feeds", "to_onnx"]

EXPORTABLE = (
    "AutoRAD; PretrainedRAD; StreamingRAD and ShallowRAD without a feature map or with 'rbf', "
    "'nystroem' (Gaussian kernel) or 'poly'; BoostedRAD; ForestRAD; CompressedRAD; DeepRAD, NNPU "
    "and DeepSAD with a named architecture; each of them alone or behind a TablePreparer, as "
    "riskad.fit_table makes it"
)
TOLERANCE = GRAPH_TOLERANCE
"""Largest allowed difference of scores, relative for scores larger than 1, for most models."""

_TRIAL_ROWS = 1000
_TRIAL_BLANKS = 0.1


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
    precision, 1e-4).

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
    onnx = _onnx()
    preparer, detector = _steps(model)
    if not isinstance(detector, SelfDescribing):
        raise InputError(f"A {type(detector).__name__} is no detector that could be exported.")
    _check_fitted(detector)
    graph = Graph(onnx)
    rows = rows_of(graph, detector) if preparer is None else prepared_rows(graph, preparer)
    sparse = preparer is not None and preparer.sparse_
    _add_outputs(graph, detector, rows, sparse)
    return graph.model(type(detector).__name__)


def _add_outputs(graph: Graph, detector: Any, rows: str, sparse: bool) -> None:
    score, flag, probability, _, novel = RESULT_COLUMNS
    double, novelty = graph.onnx.TensorProto.DOUBLE, None
    if detector.tells_novelty:
        scores, novelty = detector.onnx_scores_and_novelty(graph, rows, sparse)
    else:
        scores = detector.onnx_scores(graph, rows, sparse)
    graph.output(score, graph.node("Neg", scores), double)
    above = graph.node("Greater", score, np.array(-float(detector.offset_) + 0.0))
    graph.output(flag, above, graph.onnx.TensorProto.BOOL)
    if knows_probabilities(detector):
        line = detector.calibration_.line
        slopes = graph.node("Mul", score, np.array(line.slope))
        odds = graph.node("Add", slopes, np.array(line.intercept))
        graph.output(probability, graph.node("Sigmoid", odds), double)
    if novelty is not None:
        graph.output(novel, novelty, double)


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
        ours = -model.score_samples(rows)
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        (theirs,) = session.run([RESULT_COLUMNS[0]], feeds(proto, rows))
    except (state.Fail, state.InvalidArgument, state.InvalidGraph) as error:
        raise InputError(
            f"onnxruntime does not run the graph of this model: {error}. Nothing was written; "
            "if the model comes from riskad.fit_table, please report it."
        ) from None
    largest = float((np.abs(ours - theirs) / np.maximum(1, np.abs(ours))).max())
    allowed = _steps(model)[1].graph_tolerance
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
    return {entry.name: _feed(rows[entry.name]) for entry in proto.graph.input}


def _feed(column: pl.Series) -> np.ndarray:
    if column.dtype == pl.String:
        return column.fill_null("").to_numpy().astype(object)[:, None]
    numbers = to_seconds(column) if column.dtype.is_temporal() else column.cast(pl.Float64)
    return numbers.fill_null(float("nan")).to_numpy()[:, None]


def _trial_rows(model: Any) -> Any:
    """Rows around the training rows, with blanks and new values."""
    rng = np.random.default_rng(0)
    preparer, detector = _steps(model)
    if preparer is not None:
        return pl.DataFrame({c.name: c.random_values(rng, _TRIAL_ROWS) for c in preparer.used()})
    X = detector.trial_rows(rng, _TRIAL_ROWS)
    schema = getattr(detector, "schema_", TableSchema())
    if schema == TableSchema():
        return X
    columns = {}
    for i, name in enumerate(detector.feature_names_in_):
        column = (
            _trial_texts(schema.levels[i], rng)
            if i in schema.levels
            else _with_blanks(X[:, i], rng)
        )
        if i in schema.dates:
            column = (1e6 * column).cast(pl.Int64).cast(pl.Datetime("us"))
        columns[name] = column
    return pl.DataFrame(columns)


def _with_blanks(values: np.ndarray, rng: np.random.Generator) -> pl.Series:
    blank = rng.random(len(values)) < _TRIAL_BLANKS
    return pl.Series(np.where(blank, np.nan, values)).fill_nan(None)


def _trial_texts(levels: list[str], rng: np.random.Generator) -> pl.Series:
    chosen = rng.choice(np.array([*levels, "a new value", None], dtype=object), _TRIAL_ROWS)
    return pl.Series(chosen.tolist(), dtype=pl.String)
