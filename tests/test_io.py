import dataclasses
import json
import pickle
import re
import zipfile
from typing import ClassVar

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import riskad
from riskad.app.model_files import FORMAT_VERSION, load, read_header, save
from riskad.core.checks import InputError
from riskad.detectors.baselines import OneClassSVM
from riskad.detectors.features import LearnedFeatures, TreeLeaves
from riskad.storage import codec as stored
from riskad.storage.fields import Array, Fields
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
    model = make_pipeline(TablePreparer(), StandardScaler()).fit(TABLE)
    save(model, tmp_path / "model.riskad", notes={"rows": 60, "label": "größe"})
    return tmp_path / "model.riskad"


def rewrite(path, **members):
    """Replace members of the archive, with right checksums, as a forger would."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept |= {name.replace("_", "."): data for name, data in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in kept.items():
            archive.writestr(name, data)


def change_header(path, **fields):
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("riskad.json"))
    rewrite(path, riskad_json=json.dumps(header | fields))


# --- what comes back ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        (StandardScaler(), OneClassSVM()),
        (Nystroem(n_components=10, random_state=3), OneClassSVM()),
        (RBFSampler(n_components=10, random_state=0), OneClassSVM(gamma=0.5)),
    ],
    ids=["scaled", "nystroem", "rbf"],
)
def test_scores_are_the_same_to_the_last_bit(tmp_path, steps):
    model = make_pipeline(TablePreparer(), *steps).fit(TABLE)
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(TABLE), model.score_samples(TABLE))
    assert again[0].describe() == model[0].describe()
    assert again.get_params().keys() == model.get_params().keys()


def test_header_and_notes(model_file):
    header = read_header(model_file)
    assert header.notes == {"rows": 60, "label": "größe"}
    assert header.model == "sklearn.pipeline.Pipeline"
    assert header.format_version == FORMAT_VERSION == 2
    assert header.versions["riskad"] == riskad.__version__
    libraries = {"numpy", "scipy", "scikit-learn", "safetensors"}
    assert set(header.versions) == {"riskad", "python"} | libraries
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", header.created)


def test_there_is_no_pickle_inside(model_file):
    with zipfile.ZipFile(model_file) as archive:
        assert archive.namelist() == ["riskad.json", "state.json", "arrays.safetensors"]
        for name in archive.namelist():
            assert not archive.read(name).startswith(b"\x80")


# --- what cannot be saved ----------------------------------------------------------------


def test_no_overwriting_without_force(model_file):
    before = model_file.read_bytes()
    other = StandardScaler().fit(np.eye(2))
    with pytest.raises(InputError, match="force=True"):
        save(other, model_file)
    assert model_file.read_bytes() == before
    save(other, model_file, force=True)
    assert read_header(model_file).model.endswith("StandardScaler")


@pytest.mark.parametrize(
    ("model", "notes", "message"),
    [
        (StandardScaler(), {}, "is not fitted"),
        (make_pipeline(StandardScaler()), {}, "is not fitted"),
        ({"coef": 1}, {}, "Only scikit-learn estimators"),
        (StandardScaler().fit(np.eye(2)), {"x": {1, 2}}, "JSON"),
        (StandardScaler().fit(np.eye(2)), {"x": float("nan")}, "JSON"),
        (StandardScaler().fit(np.eye(2)), {"fit": "yes"}, "notes"),
        (StandardScaler().fit(np.eye(2)), {"x": "\ud800"}, "is not a text"),
        (
            Nystroem(n_components=2, random_state=np.random.RandomState(0)).fit(np.eye(2)),
            {},
            "random_state is a numpy.*RandomState, not on the list",
        ),
        (
            make_pipeline(FunctionTransformer(lambda x: x), StandardScaler()).fit(np.eye(2)),
            {},
            "without pickle",
        ),
    ],
)
def test_what_cannot_be_saved_leaves_no_file(tmp_path, model, notes, message):
    with pytest.raises(InputError, match=message):
        save(model, tmp_path / "model.riskad", notes=notes)
    assert list(tmp_path.iterdir()) == []


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        bytes(range(256)) * 40,
        pickle.dumps({"model": 1}),
        b"PK\x05\x06" + b"\0" * 18,
    ],
    ids=["empty", "text", "bytes", "pickle", "empty zip"],
)
def test_foreign_files(tmp_path, data):
    path = tmp_path / "model.riskad"
    path.write_bytes(data)
    for read in (load, read_header):
        with pytest.raises(InputError, match=r"'model\.riskad' is not a riskad model"):
            read(path)


def test_another_zip_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as archive:
        archive.writestr("chapter.txt", "It was a dark night.")
    with pytest.raises(InputError, match="is not a riskad model"):
        load(tmp_path / "book.zip")


@pytest.mark.parametrize("header", [b"[]", b"{}", b"\xff", b'{"format": "other"}', b'"x"', b"nul"])
def test_a_header_of_another_kind(model_file, header):
    rewrite(model_file, riskad_json=header)
    with pytest.raises(InputError, match="is not a riskad model"):
        load(model_file)


def test_missing_files(tmp_path, model_file):
    with pytest.raises(InputError, match=r"Did you mean 'model\.riskad'"):
        load(tmp_path / "mdel.riskad")
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)


def test_a_newer_format_asks_for_an_upgrade(model_file):
    change_header(model_file, format_version=3, versions={"riskad": "7.1"}, novelty=True)
    with pytest.raises(InputError, match=r"newer riskad \(format 3\).*upgrade"):
        load(model_file)


def test_an_older_format_is_refused_by_name(model_file):
    change_header(model_file, format_version=0)
    with pytest.raises(InputError, match=r"no longer reads \(format 0\)"):
        load(model_file)


def test_damage_never_passes(tmp_path, model_file):
    """Whatever byte is changed or cut off: an InputError, or the very same model."""
    whole = model_file.read_bytes()
    expected = load(model_file).transform(TABLE)
    broken = tmp_path / "broken.riskad"
    step = max(len(whole) // 400, 1)
    survived = 0
    for position in range(0, len(whole), step):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        for data in (flipped, whole[:position]):
            broken.write_bytes(data)
            try:
                again = load(broken)
            except InputError:
                continue
            survived += 1
            np.testing.assert_array_equal(again.transform(TABLE), expected)
    # Dates and attributes of members may change unnoticed; the model may not.
    assert survived < 0.1 * 2 * len(whole) / step


# --- what can be saved -------------------------------------------------------------------


def test_the_readmes_pipeline_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.resize([1, -1, 0, 0], 60)
    X[::5, 1] = np.nan
    model = make_pipeline(SimpleImputer(), riskad.ShallowRAD()).fit(X, y)
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


@pytest.mark.parametrize(
    "step",
    [
        MinMaxScaler(),
        MaxAbsScaler(),
        RobustScaler(),
        PowerTransformer(),
        QuantileTransformer(n_quantiles=10),
        Normalizer(),
        PolynomialFeatures(include_bias=False),
        SimpleImputer(add_indicator=True),
        PCA(2),
        TruncatedSVD(2),
        VarianceThreshold(),
        FunctionTransformer(),
        FeatureUnion([("a", StandardScaler()), ("b", PCA(2))]),
        make_column_transformer((StandardScaler(), [0]), remainder="passthrough"),
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0])),
        make_column_transformer((OrdinalEncoder(), [0]), ("drop", [1]), remainder="passthrough"),
        LearnedFeatures(("columns", "outliers"), smooth=True),
        TreeLeaves(5),
    ],
    ids=lambda step: str(step)[:40],
)
def test_the_usual_transformers_come_back(tmp_path, step):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)).round(1), np.resize([1, -1, 0, 0], 60)
    model = make_pipeline(step, riskad.ShallowRAD("squared")).fit(X, y)
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    clone(again).fit(X, y)


def test_levels_of_text_come_back(tmp_path):
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"shop": rng.choice(["a", "b", "日本"], 60), "x": rng.normal(size=60)})
    encode = make_column_transformer((OneHotEncoder(), ["shop"]), remainder="passthrough")
    model = make_pipeline(encode, riskad.ShallowRAD("squared"))
    frame = pytest.importorskip("pandas").DataFrame(table.to_dict(as_series=False))
    model.fit(frame, np.resize([1, -1, 0], 60))
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))


def test_a_search_says_to_save_what_it_found(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.resize([1, -1, 0, 0], 80)
    search = riskad.RADSearchCV(riskad.ShallowRAD("squared"), {"a": [0.1, 0.2]}).fit(X, y)
    with pytest.raises(InputError, match="Save its best_estimator_"):
        save(search, tmp_path / "model.riskad")
    save(search.best_estimator_, tmp_path / "model.riskad")


class Foreign(BaseEstimator):
    """An estimator that is nobody's but this test's."""

    _state_fields: ClassVar[Fields] = {"mean_": Array("f", ("columns",))}

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self


def test_a_class_of_ones_own_must_be_registered(tmp_path, monkeypatch):
    model = Foreign().fit(np.eye(2))
    with pytest.raises(InputError, match=r"Foreign, not on the list.*codec\.register"):
        save(model, tmp_path / "model.riskad")
    monkeypatch.setattr(stored, "_REGISTERED", {})
    stored.register(Foreign)
    save(model, tmp_path / "model.riskad")
    np.testing.assert_array_equal(load(tmp_path / "model.riskad").mean_, model.mean_)
    monkeypatch.setattr(stored, "_REGISTERED", {})
    with pytest.raises(InputError, match="'Foreign' is not on the list"):
        load(tmp_path / "model.riskad")


def test_trees_of_scikit_learn_are_not_saved(tmp_path):
    model = IsolationForest(n_estimators=2).fit(np.eye(4))
    with pytest.raises(InputError, match="IsolationForest, not on the list"):
        save(model, tmp_path / "model.riskad")


def test_every_type_on_the_list_says_what_it_may_hold():
    for name in stored.OURS:
        cls = stored._find_type(name)
        fields = stored.fields_of(cls)
        if issubclass(cls, BaseEstimator):
            assert set(cls._get_param_names()) <= set(fields), name
        else:
            names = getattr(cls, "_fields", None) or [f.name for f in dataclasses.fields(cls)]
            assert set(names) == set(fields), name


def test_a_pipeline_that_ends_in_nothing_is_not_saved(tmp_path):
    model = make_pipeline(StandardScaler(), "passthrough").fit(np.eye(2))
    with pytest.raises(InputError, match="the last does nothing"):
        save(model, tmp_path / "model.riskad")
