"""Rows on disk are trained on as rows in memory are, and stay on disk."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import make_contaminated_rows
from sklearn.utils.validation import check_array

from riskad.core.checks import InputError
from riskad.deep import Together, base, disk
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD

torch.set_num_threads(1)
QUICK = {"n_steps": 12, "check_every": 4}


@pytest.fixture
def store(tmp_path):
    """A function that puts an array on disk."""

    def put(X):
        np.save(tmp_path / "X.npy", X)
        return np.load(tmp_path / "X.npy", mmap_mode="r")

    return put


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(disk, "_BLOCK", 500)
    monkeypatch.setattr("riskad.deep.trainer._ROWS_AT_ONCE", {"cpu": 70})


def table(kind):
    X, y, _ = make_contaminated_rows()
    return (10 * X).astype(kind), y


def images(kind, shape=(8, 8)):
    rng = np.random.default_rng(0)
    y = rng.choice([1, -1, 0], 90)
    return (rng.uniform(0, 200, (90, *shape)) + 20 * (y == -1).reshape(-1, 1, 1)).astype(kind), y


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        pytest.param(DeepRAD(**QUICK), table("f4"), id="float32"),
        pytest.param(DeepRAD(**QUICK), table("f8"), id="float64"),
        pytest.param(DeepRAD(**QUICK), table("i2"), id="int16"),
        pytest.param(DeepRAD(scale=False, **QUICK), table("f4"), id="as it is"),
        pytest.param(DeepRAD(validation=0.3, patience=1, **QUICK), table("f4"), id="held out"),
        pytest.param(NNPU(**QUICK), table("f4"), id="nnpu"),
        pytest.param(DeepSAD(pretrain_steps=5, **QUICK), table("f4"), id="sad"),
        pytest.param(DeepRAD("lenet-mnist", **QUICK), images("u1"), id="bytes"),
        pytest.param(DeepRAD("lenet-mnist", scale=False, **QUICK), images("u1"), id="brightness"),
        pytest.param(DeepRAD("lenet-mnist", **QUICK), images("f8"), id="float64 images"),
    ],
)
def test_the_same_bits_from_disk_and_from_memory(store, model, rows):
    X, y = rows
    stored = store(X)
    scores = model.fit(X, y).score_samples(X)
    weights, offset, curve = model.weights_, model.offset_, model.history_["risk"]
    model.fit(stored, y)
    for name, value in model.weights_.items():
        np.testing.assert_array_equal(value, weights[name], err_msg=name)
    assert model.offset_ == offset
    np.testing.assert_array_equal(model.history_["risk"], curve)
    np.testing.assert_array_equal(model.score_samples(stored), scores)
    np.testing.assert_array_equal(
        model.predict(stored[5:25]), np.where(scores >= offset, 1, -1)[5:25]
    )


def test_together_from_disk(store):
    X, y = table("f4")
    rows = [np.arange(600), np.arange(0, 600, 2)]
    scores = [
        Together([DeepRAD(prior=prior, **QUICK) for prior in (0.7, 0.9)])
        .fit(each, rows, [y[part] for part in rows])
        .score_samples(each)
        for each in (X, store(X))
    ]
    np.testing.assert_array_equal(*scores)


def test_what_is_on_disk(store):
    X = store(np.zeros((20, 3)))
    for view in (X, X[3:], X[:, None], np.asarray(X), check_array(X), X.T):
        assert disk.on_disk(view)
    for copy in (X[[1, 2]], X + 1, np.array(X), [[1.0]], torch.zeros(2)):
        assert not disk.on_disk(copy)


def test_rows_are_read_once_each_in_the_order_of_the_file():
    asked = []

    class Spy(np.ndarray):
        def __getitem__(self, index):
            asked.append(index)
            return np.asarray(self)[index]

    X = np.arange(20.0, dtype="f4").reshape(10, 2)
    stored = disk.Stored(X.view(Spy), np.asarray, torch.device("cpu"))
    index = torch.tensor([[7, 2, 7], [0, 9, 2]])
    assert torch.equal(stored[index], torch.from_numpy(X)[index])
    assert asked[0].tolist() == [0, 2, 7, 9]


def test_columns_are_learned_over_blocks():
    """To the last digits but a few, where squares less the squared mean would have none left."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3)) * [1e-3, 1, 1e3] + 1e6
    mean, spread = base._moments(X)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-14)
    np.testing.assert_allclose(spread, X.std(0), rtol=1e-8)


@pytest.mark.parametrize("rows", [table("f4"), images("f4")])
def test_a_gap_is_found_wherever_it_is(store, rows):
    X, y = rows
    model = DeepRAD("mlp" if X.ndim == 2 else "lenet-mnist", **QUICK).fit(X, y)
    X[77, 1] = np.inf
    for call in (lambda Z: model.fit(Z, y), model.score_samples):
        with pytest.raises(InputError, match="NaN or infinity, first in row 77"):
            call(store(X))


def test_text_on_disk_is_refused(store):
    with pytest.raises(InputError, match="X holds text, 'a' for instance"):
        DeepRAD().fit(store(np.array([["a"], ["b"]])), [1, -1])


def test_reading_ahead_keeps_the_order_and_raises_what_goes_wrong():
    def read(step):
        if step == 9:
            raise OSError("the disk is gone")
        return step

    assert list(disk.ahead(read, range(9))) == list(range(9))
    with pytest.raises(OSError, match="the disk is gone"):
        list(disk.ahead(read, range(20)))


LIMITED = """
import resource, sys
import numpy as np, torch
from riskad import DeepRAD
torch.set_num_threads(1)
small = np.random.default_rng(0).standard_normal((50, 2000)).astype("f4")
DeepRAD(n_steps=5).fit(small, [1, -1, 0, 0, 0] * 10)  # libraries have loaded what they need
X = np.load(sys.argv[1], mmap_mode="r")
y = np.zeros(len(X), dtype=int)
y[:50], y[-50:] = 1, -1
used = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[2]), -1))
if "copy" in sys.argv:
    X = np.array(X)
model = DeepRAD(n_steps=20, batch=(64, 32, 256)).fit(X, y)
print(len(model.score_samples(X)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits on data and sparse files are Linux's")
def test_a_file_of_600_mb_takes_less_than_200_mb_of_memory(tmp_path):
    """The limit is on what a process allocates, not on pages of files, which can be dropped."""
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", "f4", (75_000, 2000))
    X[::1000] = np.random.default_rng(0).standard_normal((75, 2000))  # a sparse file
    X.flush()

    def fit(*more):
        command = [sys.executable, "-c", LIMITED, str(tmp_path / "X.npy"), str(200 << 20), *more]
        return subprocess.run(command, capture_output=True, text=True)

    assert "MemoryError" in fit("copy").stderr
    done = fit()
    assert done.stdout == "75000\n", done.stderr
