import json
import os
import pickle
import re
import zipfile

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import OneClassSVM

import riskad
from riskad._checks import InputError
from riskad.io import FORMAT_VERSION, load, read_header, save
from riskad.prepare import TablePreparer

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
        (Nystroem(n_components=10, random_state=np.random.RandomState(0)), OneClassSVM()),
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
    assert header.format_version == FORMAT_VERSION == 1
    assert header.versions["riskad"] == riskad.__version__
    assert set(header.versions) == {"riskad", "python", "numpy", "scipy", "scikit-learn", "skops"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", header.created)


def test_there_is_no_pickle_inside(model_file):
    with zipfile.ZipFile(model_file) as archive:
        assert archive.namelist() == ["riskad.json", "model.skops"]
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
    change_header(model_file, format_version=2, versions={"riskad": "7.1"}, novelty=True)
    with pytest.raises(InputError, match=r"newer riskad \(format 2, riskad 7\.1\).*upgrade"):
        load(model_file)


def test_an_older_format_is_refused_by_name(model_file):
    change_header(model_file, format_version=0)
    with pytest.raises(InputError, match=r"no longer reads \(format 0, riskad"):
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


# --- what is trusted ---------------------------------------------------------------------


class Foreign(BaseEstimator):
    """An estimator that is nobody's but this test's."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self


def test_foreign_types_are_refused_by_name(tmp_path):
    save(Foreign().fit(None), tmp_path / "model.riskad")
    name = f"{Foreign.__module__}.Foreign"
    with pytest.raises(InputError, match=re.escape(f"trusted=['{name}']")):
        load(tmp_path / "model.riskad")
    assert load(tmp_path / "model.riskad", trusted=[name]).fitted_


def test_trees_are_refused_because_a_crafted_one_reads_past_its_end(tmp_path):
    model = IsolationForest(n_estimators=2).fit(np.eye(4))
    save(model, tmp_path / "model.riskad")
    with pytest.raises(InputError, match=r"sklearn\.tree\._tree\.Tree"):
        load(tmp_path / "model.riskad")


class Evil(BaseEstimator):
    def fit(self, X, y=None):
        self.call_ = os.system
        self.own_ = riskad.io.save
        return self


def test_functions_are_not_trusted_not_even_our_own(tmp_path):
    save(Evil().fit(None), tmp_path / "model.riskad")
    with pytest.raises(InputError, match=r"posix\.system.*riskad\.io\.save"):
        load(tmp_path / "model.riskad", trusted=[f"{Evil.__module__}.Evil"])
