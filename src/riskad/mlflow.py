"""Models of tables in MLflow: save, log, register and load them (extra `mlflow`).

MLflow stores the model file of `riskad.save`, which contains no pickle: it also loads where MLflow
does not allow pickle (`MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false`). To load it as `mlflow.pyfunc`,
install riskad and give rows as a frame with the columns of the fit.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

import riskad
from riskad.app.fit_report import FitReport
from riskad.app.model_files import load, save
from riskad.app.score import added_columns, score_table, steps_of
from riskad.core.checks import InputError
from riskad.tables.cells import as_polars

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns of its own classes
        import mlflow.pyfunc
    import pandas
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema
except ImportError as error:
    raise ImportError(
        "riskad.mlflow needs MLflow, which is not installed: pip install 'riskad[mlflow]'."
    ) from error

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]

FLAVOR_NAME = "riskad"
_FILE = "model.riskad"
_FOLDER = "data"  # into which MLflow puts it
_SHOWN = ("number", "category", "text")  # kinds with a usual value that JSON can hold
_OUTPUTS = {
    "anomaly_score": DataType.double,
    "is_anomaly": DataType.boolean,
    "anomaly_probability": DataType.double,
    "novelty": DataType.double,
}


def save_model(
    model: Pipeline,
    path: str | os.PathLike[str],
    *,
    report: FitReport | None = None,
    mlflow_model: Model | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to a folder in MLflow's layout.

    Parameters
    ----------
    model
        A model from `riskad.fit_table` or `riskad.load`.
    path
        The folder, which must not exist.
    report
        `fit.report` of `fit_table`, for the model file.
    mlflow_model
        The model of MLflow that this is a flavour of; `log_model` gives one.
    signature, input_example
        By default made from the model's own columns: their names, which MLflow checks, and a row of
        usual values. The model checks the values, however they are written.
    pip_requirements
        What is needed to load the model; by default this version of riskad.
    metadata
        Other metadata for MLflow.
    """
    preparer, detector = steps_of(model)
    # Any type: the model reads cells as they are written, and MLflow would refuse "1,5".
    anything = AnyType()  # type: ignore[no-untyped-call]
    inputs = Schema([ColSpec(anything, name) for name in preparer.read_columns])
    outputs = Schema([ColSpec(_OUTPUTS[name], name) for name in added_columns(detector)])
    kinds = {column.name: column.requested_kind for column in preparer.used()}
    needed = "riskad[text]" if "text:encoder" in kinds.values() else "riskad"
    # A row of usual numbers and texts; dates and others are blank.
    usual: dict[str, Any] = dict.fromkeys(preparer.read_columns)
    usual |= {name: preparer.usual_[name] for name, k in kinds.items() if k.startswith(_SHOWN)}
    flavour = Model() if mlflow_model is None else mlflow_model
    flavour.add_flavor(
        FLAVOR_NAME, riskad_version=riskad.__version__, model_file=f"{_FOLDER}/{_FILE}"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, _FILE)
        save(model, file, report=report)
        mlflow.pyfunc.save_model(
            path=os.fspath(path),
            loader_module=__name__,
            data_path=str(file),
            mlflow_model=flavour,
            signature=signature or ModelSignature(inputs, outputs),
            input_example=pandas.DataFrame([usual]) if input_example is None else input_example,
            pip_requirements=pip_requirements or [f"{needed}=={riskad.__version__}"],
            metadata=None if metadata is None else dict(metadata),
        )


def log_model(
    model: Pipeline, name: str, *, registered_model_name: str | None = None, **options: Any
) -> Any:
    """Log a model to the current run of MLflow, and register it if a name is given.

    Parameters
    ----------
    model, name
        The model, and its name in MLflow.
    registered_model_name
        Name under which it becomes the next version in the registry.
    **options
        Options of `save_model` and of `mlflow.models.Model.log`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Its location: give `model_uri` to `load_model`.
    """
    return Model.log(
        artifact_path=None,
        name=name,
        # MLflow calls `save_model` of the module that it is given.
        flavor=riskad.mlflow,
        model=model,
        registered_model_name=registered_model_name,
        **options,
    )


def load_model(model_uri: str) -> Pipeline:
    """Load a model that `log_model` or `save_model` wrote, like `riskad.load`.

    Parameters
    ----------
    model_uri
        `models:/cards/3`, `runs:/.../model`, or a folder.
    """
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri)))
    flavour = Model.load(str(folder)).flavors.get(FLAVOR_NAME)
    if flavour is None:
        raise InputError(
            f"{model_uri!r} is no model of riskad: its MLmodel file has no flavour "
            f"{FLAVOR_NAME!r}. Load it by mlflow.pyfunc.load_model."
        )
    return load(folder / _FOLDER / _FILE)


class _Scores:
    """The object that `mlflow.pyfunc` calls: a frame of rows in, a frame of scores out."""

    def __init__(self, model: Pipeline):
        self._model = model

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return the columns that `riskad score` adds, in a pandas frame."""
        frame = as_polars(rows)
        # MLflow may pass further columns, such as labels, which the model does not read.
        read = [name for name in steps_of(self._model)[0].read_columns if name in frame.columns]
        scored, report = score_table(self._model, frame.select(read))
        scores: pl.DataFrame = scored.select(report.added)
        return pandas.DataFrame(scores.to_dict(as_series=False), index=getattr(rows, "index", None))


def _load_pyfunc(path: str) -> _Scores:
    """Return the model for `mlflow.pyfunc`; `path` is that of the model file."""
    return _Scores(load(path))
