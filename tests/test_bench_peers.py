"""Peers that need more than an adapter: TabPFN's weights, AutoGluon's environment, FLAML's seed."""

import hashlib
import io
import json
import os
import pickle
import sys
import tarfile
import types
from typing import ClassVar

import numpy as np
import pytest
from conftest import make_contaminated_rows
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from riskad.bench.experiment import built_in, load_experiment
from riskad.bench.field import _PEERS as PEERS
from riskad.bench.peers import Classifier, NotApplicable, tabpfn_v1
from riskad.bench.peers.autogluon import PYTHON_VARIABLE, AutoGluon, repeat_rare
from riskad.bench.peers.tabpfn_v1 import ARCHIVE_VARIABLE, TabPFN, read_weights, sample_by_class
from riskad.bench.trial import build_estimator
from riskad.core.checks import InputError
from riskad.datasets import label_anomalies

RECENT = load_experiment(built_in("field")["field-recent"])


def recent(name):
    """The peer as the experiment describes it."""
    return build_estimator(next(c for c in RECENT.cells() if c.method == name), seed=1)


def test_recent_peers_are_run_on_the_splits_of_the_field():
    main = load_experiment(built_in("field")["field"])
    assert (RECENT.datasets, RECENT.protocol, RECENT.seed) == (
        main.datasets,
        main.protocol,
        main.seed,
    )
    assert [m.name for m in RECENT.methods] == ["RealMLP", "FLAML", "TabPFN v1", "AutoGluon"]
    assert all(method.estimator.startswith(PEERS) for method in RECENT.methods)
    assert all(recent(method.name).unlabelled == "drop" for method in RECENT.methods)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [m.name for m in RECENT.methods])
def test_recent_peers_run_where_they_are_installed(method):
    peer = recent(method)
    if reason := peer.missing():
        pytest.skip(reason)
    if method in ("FLAML", "AutoGluon"):
        limit = {"FLAML": "time_budget", "AutoGluon": "time_limit"}[method]
        peer.set_params(options=dict(peer.options) | {limit: 4})
    X, y, truth = make_contaminated_rows(300, shift=3, seed=3)
    scores = peer.fit(X, y).score_samples(X)
    assert roc_auc_score(truth == 1, scores) > 0.8
    shuffled = np.random.default_rng(0).permutation(y)
    assert np.abs(clone(peer).fit(X, shuffled).score_samples(X) - scores).max() > 1e-3


# --- FLAML -------------------------------------------------------------------------------


class SilentSearch:
    """With the face of FLAML's: settings by any name, and a fit that returns nothing."""

    def __init__(self, **settings):
        self.settings = settings

    def fit(self, X, y):
        self.centre = X[y == 1].mean(axis=0)

    def predict_proba(self, X):
        near = np.exp(-np.linalg.norm(X - self.centre, axis=1))
        return np.column_stack([1 - near, near])


def test_a_fit_that_returns_nothing_is_kept_and_the_seed_goes_by_its_word(monkeypatch):
    module = types.ModuleType("flaml")
    module.AutoML = SilentSearch
    monkeypatch.setitem(sys.modules, "flaml", module)
    X, y, truth = make_contaminated_rows(300, shift=3, seed=1)
    peer = Classifier("flaml.AutoML", options={"time_budget": 1}, random_state=7).fit(X, y)
    assert peer.model_.settings == {"time_budget": 1, "seed": 7}
    assert roc_auc_score(truth == 1, peer.score_samples(X)) > 0.8


# --- TabPFN ------------------------------------------------------------------------------


def archive_with(path, data):
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(tabpfn_v1._MEMBER)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_other_weights_are_refused(tmp_path):
    pytest.importorskip("torch")
    path = archive_with(tmp_path / "tabpfn-0.1.tar.gz", b"weights of another kind")
    with pytest.raises(InputError, match="holds other weights"):
        read_weights(path)


def test_weights_are_read_without_running_what_is_pickled_with_them(tmp_path, monkeypatch):
    """Even if the checksum were that of a harmful file."""
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    content = io.BytesIO()
    torch.save({"weight": torch.ones(3), "more": Harmful()}, content)
    monkeypatch.setattr(tabpfn_v1, "_SHA256", hashlib.sha256(content.getvalue()).hexdigest())
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        read_weights(archive_with(tmp_path / "tabpfn-0.1.tar.gz", content.getvalue()))
    assert not (tmp_path / "harm").exists()


def test_tensors_and_plain_containers_are_read(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    content = io.BytesIO()
    torch.save(({"weight": torch.ones(3)}, None, {"emsize": 512}), content)
    monkeypatch.setattr(tabpfn_v1, "_SHA256", hashlib.sha256(content.getvalue()).hexdigest())
    state, _, settings = read_weights(archive_with(tmp_path / "w.tar.gz", content.getvalue()))
    assert state["weight"].tolist() == [1, 1, 1]
    assert settings == {"emsize": 512}


def test_tabpfn_says_what_is_missing(monkeypatch, tmp_path):
    def no_code():
        raise ImportError("No module named 'tabpfn'")

    monkeypatch.setattr(tabpfn_v1, "_prediction", no_code)
    assert "tabpfn-0.1.tar.gz" in TabPFN().missing()
    monkeypatch.setattr(tabpfn_v1, "_prediction", lambda: None)
    monkeypatch.delenv(ARCHIVE_VARIABLE, raising=False)
    assert f"{ARCHIVE_VARIABLE} names no file" in TabPFN().missing()
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(archive_with(tmp_path / "w.tar.gz", b"")))
    assert TabPFN().missing() is None


def test_a_sample_by_class_keeps_shares_and_never_loses_a_class():
    target = np.array([0] * 2998 + [1] * 2)
    kept = sample_by_class(target, 1000, np.random.default_rng(0))
    assert np.bincount(target[kept]).tolist() == [999, 1]
    assert len(set(kept)) == 1000
    assert sample_by_class(target[:1000], 1000, np.random.default_rng(0)).tolist() == [*range(1000)]


class Centred:
    """In place of TabPFN's classifier: what it is given, and how rows come in."""

    models_in_memory: ClassVar = {}

    def __init__(self, device, seed, **options):
        self.seed, self.batches = seed, []

    def fit(self, X, y):
        self.shape, self.centre = X.shape, X[y == 1].mean(axis=0)

    def predict_proba(self, X):
        self.batches.append(len(X))
        near = np.exp(-np.linalg.norm(X - self.centre, axis=1))
        return np.column_stack([1 - near, near])


def test_tabpfn_gets_no_more_rows_and_columns_than_it_was_made_for(monkeypatch):
    monkeypatch.setattr(
        tabpfn_v1, "_prediction", lambda: types.SimpleNamespace(TabPFNClassifier=Centred)
    )
    monkeypatch.setattr(tabpfn_v1, "_network", lambda archive: (None, None, None))
    monkeypatch.setattr(tabpfn_v1, "_ROWS_AT_ONCE", 700)
    monkeypatch.setenv(ARCHIVE_VARIABLE, "tabpfn-0.1.tar.gz")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 120)), np.where(np.arange(1500) % 5, 1, -1)
    peer = TabPFN(random_state=3).fit(X, y)
    scores = peer.score_samples(X)
    assert (peer.model_.shape, peer.model_.seed) == ((1000, 100), 3)
    assert peer.model_.batches == [700, 700, 100]
    np.testing.assert_allclose(scores[:10], peer.score_samples(X[:10]), rtol=1e-6)
    assert TabPFN(random_state=3).fit(X[:, :9], y).model_.shape == (1000, 9)


# --- AutoGluon ---------------------------------------------------------------------------

FAKE = """
import json, os
import numpy as np

class TabularDataset(dict):
    def rows(self):
        return np.column_stack([v for name, v in self.items() if name.startswith("column ")])

class Answer(list):
    def to_numpy(self):
        return np.array(self)

class TabularPredictor:
    def __init__(self, label, path, **options):
        self.label, self.path = label, path

    def fit(self, table, **options):
        if "fail" in options:
            raise ValueError("nothing can be learned")
        centre = table.rows()[np.asarray(table[self.label]) == 1].mean(axis=0).tolist()
        os.makedirs(self.path)
        n_anomalies = int(np.sum(table[self.label]))
        threads = os.environ["OMP_NUM_THREADS"]
        with open(self.path + "/model.json", "w") as file:
            json.dump([centre, options, n_anomalies, threads], file)

    @classmethod
    def load(cls, path, **options):
        return cls("target", path)

    def predict_proba(self, table, as_multiclass):
        assert not as_multiclass
        with open(self.path + "/model.json") as file:
            centre = json.load(file)[0]
        return Answer(-np.linalg.norm(table.rows() - centre, axis=1))
"""


@pytest.fixture
def fake_python(tmp_path, monkeypatch):
    """A Python in whose environment AutoGluon is a few lines."""
    place = tmp_path / "packages"
    (place / "autogluon").mkdir(parents=True)
    (place / "autogluon" / "tabular.py").write_text(FAKE)
    (place / "autogluon_tabular-9.9.dist-info").mkdir()
    described = "Metadata-Version: 2.1\nName: autogluon.tabular\nVersion: 9.9\n"
    (place / "autogluon_tabular-9.9.dist-info" / "METADATA").write_text(described)
    path = tmp_path / "python"
    isolated = f'test "$1" = -I && shift && PYTHONPATH={place} exec {sys.executable} -P "$@"\n'
    path.write_text("#!/bin/sh\n" + isolated)
    path.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(path))


@pytest.mark.usefixtures("fake_python")
def test_autogluon_is_asked_in_its_own_environment():
    X, y, truth = make_contaminated_rows(300, shift=3, seed=2)
    peer = AutoGluon(options={"time_limit": 3}).fit(X, y)
    assert (peer.missing(), peer.version()) == (None, "autogluon 9.9")
    own = X[y == -1].mean(axis=0)
    np.testing.assert_allclose(peer.score_samples(X), np.linalg.norm(X - own, axis=1))
    assert roc_auc_score(truth == 1, peer.score_samples(X)) > 0.8
    *_, options, n_anomalies, threads = json.loads(
        (peer.model_ / "model" / "model.json").read_text()
    )
    assert (options, n_anomalies, threads) == ({"time_limit": 3}, (y == -1).sum(), "1")
    folder = peer.model_
    del peer
    assert not folder.exists()


@pytest.mark.usefixtures("fake_python")
def test_autogluon_meets_few_anomalies_again_and_needs_normal_rows():
    X, y, truth = make_contaminated_rows(300, shift=3, seed=2)
    few = np.where((y == -1) & (np.cumsum(y == -1) > 1), 0, y)
    peer = AutoGluon().fit(X, few)
    stored = np.load(peer.model_ / "train.npz")
    assert stored["target"].sum() == 5
    assert len(np.unique(stored["X"][stored["target"] == 1], axis=0)) == 1
    with pytest.raises(NotApplicable, match="labelled normal rows"):
        AutoGluon().fit(X, label_anomalies(truth, random_state=0))


@pytest.mark.usefixtures("fake_python")
def test_what_fails_there_is_said_here():
    X, y, _ = make_contaminated_rows(300, shift=3, seed=2)
    with pytest.raises(RuntimeError, match="status 1: ValueError: nothing can be learned"):
        AutoGluon(options={"fail": True}).fit(X, y)


def test_autogluon_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    assert f"{PYTHON_VARIABLE} is not set" in AutoGluon().missing()
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "nowhere"))
    assert "autogluon.tabular[" in AutoGluon().missing()
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    if reason := AutoGluon().missing():
        assert "PackageNotFoundError" in reason


@pytest.mark.parametrize(
    ("target", "kept"),
    [([0, 1, 0], [0, 0, 1, 1, 1, 2]), ([0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5])],
)
def test_rare_rows_are_repeated(target, kept):
    assert repeat_rare(np.array(target), 3).tolist() == kept
