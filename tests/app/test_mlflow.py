"""Models in MLflow: the file is ours, no pickle is needed, and columns are those of the fit."""

import os
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from support.cards import LABELS, make_cards

import riskad

os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
pandas = pytest.importorskip("pandas")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of itself
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.pyfunc")

pytestmark = [
    pytest.mark.slow,  # it is imported for seconds
    pytest.mark.filterwarnings("ignore"),  # likewise, at whatever it does
]
INPUTS = ["amount", "country", "device age"]


def make_rows(n=300, seed=0):
    age = pl.Series("device age", np.random.default_rng(seed).integers(0, 400, n))
    return make_cards(n, seed).with_columns(age)


@pytest.fixture(scope="module")
def fit():
    options = LABELS | {"id": "card", "model": "shallow", "settings": {"lam": 0.01}}
    return riskad.fit_table(make_rows(), **options)


@pytest.fixture(scope="module")
def saved(fit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow") / "model"
    riskad.mlflow.save_model(fit.model, folder, report=fit.report)
    return folder


@pytest.fixture
def new():
    return make_rows(50, seed=1).drop("label")


def test_scores_decisions_and_probabilities_are_those_of_the_library(fit, saved, new, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    found = mlflow.pyfunc.load_model(str(saved)).predict(new.to_pandas())
    scored, report = riskad.score_table(fit.model, new)
    assert list(found.columns) == report.added
    assert report.added == ["anomaly_score", "is_anomaly", "anomaly_probability"]
    for name in report.added:
        np.testing.assert_array_equal(found[name].to_numpy(), scored[name].to_numpy())


def test_rows_keep_their_index_and_may_come_in_any_order_of_columns(saved, new):
    rows = new.to_pandas().set_index("card")[INPUTS[::-1]].iloc[10:20]
    model = mlflow.pyfunc.load_model(str(saved))
    found = model.predict(rows)
    assert list(found.index) == new["card"][10:20].to_list()
    texts = rows.astype(str)  # as a CSV has them
    pandas.testing.assert_frame_equal(model.predict(texts), found)


def test_there_is_no_pickle_and_no_code_in_what_is_saved(saved):
    files = sorted(p.relative_to(saved).as_posix() for p in saved.rglob("*") if p.is_file())
    assert "data/model.riskad" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".py", ".skops"))]
    assert riskad.app.model_files.read_header(saved / "data/model.riskad").report.spec.id == "card"


def test_the_signature_and_the_example_are_the_models_own_columns(fit, saved):
    info = mlflow.models.get_model_info(str(saved))
    assert info.signature.inputs.input_names() == INPUTS
    assert info.signature.outputs.input_names() == [
        *("anomaly_score", "is_anomaly", "anomaly_probability")
    ]
    model = mlflow.pyfunc.load_model(str(saved))
    example = model.input_example
    assert list(example.columns) == INPUTS
    assert example["country"][0] == "FR"
    assert not model.predict(example)["is_anomaly"][0]


def test_a_column_that_is_missing_and_a_cell_that_is_odd_are_told(saved, new):
    model = mlflow.pyfunc.load_model(str(saved))
    with pytest.raises(mlflow.exceptions.MlflowException, match="country"):
        model.predict(new.drop("country").to_pandas())
    odd = new.with_columns(amount=pl.lit("many"))
    with pytest.raises(Exception, match="Column 'amount' holds numbers, but 'many' in row 1"):
        model.predict(odd.to_pandas())


def test_a_model_is_logged_registered_and_loaded(fit, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_registry_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        info = riskad.mlflow.log_model(
            fit.model, "cards", registered_model_name="cards", report=fit.report
        )
    for address in (info.model_uri, "models:/cards/1"):
        again = riskad.mlflow.load_model(address)
        rows = new.select(INPUTS)
        np.testing.assert_array_equal(again.score_samples(rows), fit.model.score_samples(rows))


def test_another_flavour_is_refused_in_a_sentence(tmp_path):
    model = mlflow.models.Model()
    model.add_flavor("other")
    model.save(str(tmp_path / "MLmodel"))
    with pytest.raises(riskad.InputError, match="no flavour 'riskad'"):
        riskad.mlflow.load_model(str(tmp_path))


MISSING = """
import sys
import riskad.app.model_files, riskad.cli.main
print("mlflow" in sys.modules)
sys.modules["mlflow"] = None
try:
    riskad.mlflow
except ImportError as error:
    print(error)
"""


def test_riskad_does_without_mlflow():
    """`import riskad` does not load it, and who asks for it is told what to install."""
    command = [sys.executable, "-c", MISSING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    loaded, advice = ended.stdout.splitlines()
    assert loaded == "False"
    assert "pip install 'riskad[mlflow]'" in advice
