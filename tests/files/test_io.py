import dataclasses
import json
import pickle
import re
import zipfile
from typing import Annotated

import numpy as np
import polars as pl
import pytest
from fuzz.mutations import read_archive, write_archive
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import IsolationForest
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from support.loops import each

import riskad
from riskad.app.model_files import FORMAT_VERSION, load, read_header, save
from riskad.core.checks import InputError
from riskad.detectors.features import LearnedFeatures, SmoothScaler
from riskad.files import codec as stored
from riskad.files.fields import Array
from riskad.tables.preparation import TablePreparer

RNG = np.random.default_rng(0)
TABLE = pl.DataFrame(
    {
        "amount": RNG.normal(size=60).astype(str),
        "größe": RNG.choice(["klein", "groß", "日本"], size=60),
        "age": ["", "31", "47"] * 20,
    }
)


@pytest.fixture
def model_file(tmp_path):
    model = make_pipeline(TablePreparer(), LearnedFeatures(["columns"])).fit(TABLE)
    save(model, tmp_path / "model.riskad", notes={"rows": 60, "label": "größe"})
    return tmp_path / "model.riskad"


def rewrite(path, **members):
    """Replace members of the archive, with right checksums, as a forger would."""
    changed = {name.replace("_", "."): data for name, data in members.items()}
    path.write_bytes(write_archive(read_archive(path.read_bytes()) | changed))


def change_header(path, **fields):
    header = json.loads(read_archive(path.read_bytes())["riskad.json"])
    rewrite(path, riskad_json=json.dumps(header | fields).encode())


# --- what comes back ---------------------------------------------------------------------


def test_a_file_holds_header_notes_and_no_pickle(model_file):
    header = read_header(model_file)
    assert header.notes == {"rows": 60, "label": "größe"}
    assert header.model == "sklearn.pipeline.Pipeline"
    assert header.format_version == FORMAT_VERSION
    assert header.versions["riskad"] == riskad.__version__
    libraries = {"numpy", "scipy", "scikit-learn", "safetensors"}
    assert set(header.versions) == {"riskad", "python"} | libraries
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", header.created)
    members = read_archive(model_file.read_bytes())
    assert list(members) == ["riskad.json", "state.json", "arrays.safetensors"]
    assert not any(data.startswith(b"\x80") for data in members.values())


# --- what cannot be saved ----------------------------------------------------------------


def test_no_overwriting_without_force(model_file):
    before = model_file.read_bytes()
    other = SmoothScaler().fit(np.eye(2))
    with pytest.raises(InputError, match="force=True"):
        save(other, model_file)
    assert model_file.read_bytes() == before
    save(other, model_file, force=True)
    assert read_header(model_file).model.endswith("SmoothScaler")


@each(
    ("model", "notes", "message"),
    [
        (SmoothScaler(), {}, "is not fitted"),
        (make_pipeline(SmoothScaler()), {}, "is not fitted"),
        ({"coef": 1}, {}, "Only estimators can be saved"),
        (SmoothScaler().fit(np.eye(2)), {"x": {1, 2}}, "JSON"),
        (SmoothScaler().fit(np.eye(2)), {"x": float("nan")}, "JSON"),
        (SmoothScaler().fit(np.eye(2)), {"x": "\ud800"}, "expected a text"),
        (StandardScaler().fit(np.eye(2)), {}, r"it is a sklearn.*StandardScaler.*skops\.io\.dump"),
        (IsolationForest(n_estimators=2).fit(np.eye(4)), {}, "IsolationForest.*skops"),
        (
            make_pipeline(StandardScaler(), SmoothScaler()).fit(np.eye(2)),
            {},
            r"\['standardscaler'\] is a sklearn.*StandardScaler.*skops",
        ),
        (
            make_pipeline(FunctionTransformer(lambda x: x), SmoothScaler()).fit(np.eye(2)),
            {},
            r"FunctionTransformer.*skops",
        ),
        (
            riskad.ShallowRAD(feature_map=Nystroem(n_components=2)).fit(np.eye(4), [1, -1, 0, 0]),
            {},
            "feature_map is a sklearn.*Nystroem.*skops",
        ),
        (make_pipeline(make_pipeline(SmoothScaler())).fit(np.eye(2)), {}, "expected steps"),
        (make_pipeline(SmoothScaler(), "passthrough").fit(np.eye(2)), {}, "expected steps"),
        (Pipeline([("a", SmoothScaler()), ("b", None)]).fit(np.eye(2)), {}, "expected steps"),
    ],
)
def test_what_cannot_be_saved_leaves_no_file(tmp_path, model, notes, message):
    with pytest.raises(InputError, match=message):
        save(model, tmp_path / "model.riskad", notes=notes)
    assert list(tmp_path.iterdir()) == []


# --- what is refused ---------------------------------------------------------------------


@each(
    "data",
    [b"", b"hello", bytes(range(256)) * 40, pickle.dumps({"model": 1}), b"PK\5\6" + b"\0" * 18],
)
def test_foreign_files(tmp_path, data):
    path = tmp_path / "model.riskad"
    path.write_bytes(data)
    for read in (load, read_header):
        with pytest.raises(InputError, match=r"'model\.riskad' is not a riskad model"):
            read(path)


@each("header", [b"[]", b"{}", b"\xff", b'{"format": "other"}', b'"x"', b"nul"])
def test_a_header_of_another_kind(model_file, header):
    rewrite(model_file, riskad_json=header)
    with pytest.raises(InputError, match="is not a riskad model"):
        load(model_file)


def test_a_newer_format_asks_for_an_upgrade(model_file):
    newer = FORMAT_VERSION + 1
    change_header(model_file, format_version=newer, versions={"riskad": "7.1"}, novelty=True)
    message = f"has version {newer} of the format.*reads version {FORMAT_VERSION}; upgrade riskad"
    with pytest.raises(InputError, match=message):
        load(model_file)


@each("version", [0, FORMAT_VERSION - 1])
def test_an_older_format_is_refused_by_its_version(model_file, version):
    """Also where the header was compressed, as those of earlier versions were."""
    change_header(model_file, format_version=version)
    message = f"has version {version} of the format.*reads version {FORMAT_VERSION}; fit the model"
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        model_file.write_bytes(write_archive(read_archive(model_file.read_bytes()), method))
        for read in (load, read_header):
            with pytest.raises(InputError, match=message):
                read(model_file)


# --- what can be saved -------------------------------------------------------------------


def test_pipelines_keep_their_steps_and_leave_their_settings(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.resize([1, -1, 0, 0], 60)
    steps = [("scale", SmoothScaler()), ("detect", riskad.ForestRAD(n_estimators=3, n_jobs=2))]
    model = Pipeline(steps, memory=str(tmp_path / "cache"), verbose=True).fit(X, y)
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    assert [name for name, _ in again.steps] == ["scale", "detect"]
    assert (again.memory, again.verbose, again["detect"].n_jobs) == (None, False, 1)
    clone(again).fit(X, y)


def test_a_search_says_to_save_what_it_found(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.resize([1, -1, 0, 0], 80)
    search = riskad.RADSearchCV(riskad.ShallowRAD("squared"), {"a": [0.1, 0.2]}).fit(X, y)
    with pytest.raises(InputError, match="Save its best_estimator_"):
        save(search, tmp_path / "model.riskad")
    save(search.best_estimator_, tmp_path / "model.riskad")


class Foreign(BaseEstimator):
    """An estimator that is nobody's but this test's."""

    mean_: Annotated[np.ndarray, Array("f", ("columns",))]

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self


def test_a_class_of_ones_own_must_be_registered(tmp_path, monkeypatch):
    model = Foreign().fit(np.eye(2))
    with pytest.raises(InputError, match=r"Foreign, and .*files\.codec\.register"):
        save(model, tmp_path / "model.riskad")
    monkeypatch.setattr(stored, "_REGISTERED", {})
    stored.register(Foreign)
    save(model, tmp_path / "model.riskad")
    np.testing.assert_array_equal(load(tmp_path / "model.riskad").mean_, model.mean_)
    monkeypatch.setattr(stored, "_REGISTERED", {})
    with pytest.raises(InputError, match="'Foreign' is not on the list"):
        load(tmp_path / "model.riskad")


def test_every_type_on_the_list_says_what_it_may_hold():
    for name in stored.OURS:
        cls = stored._find_type(name)
        fields = stored.fields_of(cls)
        if issubclass(cls, BaseEstimator):
            stored_settings = set(cls._get_param_names()) - {"callback", "device", "n_jobs"}
            assert stored_settings <= set(fields), name
        else:
            names = getattr(cls, "_fields", None) or [f.name for f in dataclasses.fields(cls)]
            assert set(names) == set(fields), name
