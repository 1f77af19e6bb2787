"""Datasets: files of a folder and of the web, damage, and splits."""

import gzip
import hashlib
import io
import sys
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from experiments.datasets import (
    IMAGE_SETS,
    PAPER_SETS,
    Dataset,
    load_adbench,
    load_collected,
    load_images,
    make_split,
    one_class_split,
)
from experiments.datasets import tables as table_files
from experiments.runner import NotAvailable
from riskad import InputError

X = np.array([[1.0, 2.5], [3.0, 4.0], [-5.0, 6.0]])
Y = np.array([0, 1, 0])


def npz(**arrays):
    """The bytes of an .npz file."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that RISKAD_DATA names; pooch must not be touched."""
    monkeypatch.setenv("RISKAD_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)
    for name in ("adbench", "images", "tables"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A web whose `content` is what every address gives, or the error that it raises."""
    fake = SimpleNamespace(content=npz(X=X, y=Y), calls=[], os_cache=lambda name: tmp_path / name)

    def retrieve(url, known_hash, fname, path):
        fake.calls.append((url, known_hash))
        if isinstance(fake.content, Exception):
            raise fake.content
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(fake.content)
        return str(path / fname)

    fake.retrieve = retrieve
    monkeypatch.delenv("RISKAD_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", fake)
    return fake


# --- tables ------------------------------------------------------------------------------


def test_the_papers_sets_have_files():
    assert len(PAPER_SETS) == 26
    assert set(PAPER_SETS) <= set(table_files._FILES)
    files = {path.partition("/")[2] for path in table_files._FILES.values()}
    assert set(table_files._SHA256) <= files
    assert table_files._FILES["pendigits"] == "Classical/28_pendigits"


def test_a_local_file_is_loaded(folder):
    (folder / "adbench" / "45_wine.npz").write_bytes(npz(X=X.astype("f"), y=Y[:, None]))
    data = load_adbench("wine")
    assert_array_equal(data.X, X)
    assert_array_equal(data.y, [1, -1, 1])
    assert (data.name, data.X.dtype, data.anomaly_rate) == ("wine", np.float64, 1 / 3)


def test_a_misspelt_name_is_guessed():
    with pytest.raises(InputError, match="Did you mean 'pendigits'"):
        load_adbench("Pendigits")


def test_a_missing_file_is_not_available_and_no_folder_is_named(folder):
    with pytest.raises(NotAvailable, match=r"^45_wine.npz is not in the folder") as info:
        load_adbench("wine")
    assert info.value.of == {"dataset": "wine"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "pickled"),
        (npz(X=X), "y is not a file in the archive"),
        (npz(X=np.array([[None]]), y=Y), "Object arrays cannot be loaded"),
    ],
)
def test_a_damaged_file_is_named_and_never_unpickled(folder, content, message):
    (folder / "adbench" / "45_wine.npz").write_bytes(content)
    with pytest.raises(InputError, match=rf"45_wine.npz' of 'wine' is damaged.*{message}"):
        load_adbench("wine")


def test_a_known_sum_is_checked(folder, monkeypatch):
    content = npz(X=X, y=Y)
    (folder / "adbench" / "28_pendigits.npz").write_bytes(content)
    with pytest.raises(InputError, match="SHA-256 sum is not that of the published"):
        load_adbench("pendigits")
    sums = {"28_pendigits": hashlib.sha256(content).hexdigest()}
    monkeypatch.setattr(table_files, "_SHA256", sums)
    assert load_adbench("pendigits").X.shape == (3, 2)


def test_a_set_is_downloaded_with_its_sum(web):
    assert_array_equal(load_adbench("wine").X, X)
    ((url, known_hash),) = web.calls
    assert url.endswith("/Classical/45_wine.npz")
    assert known_hash is None
    web.content = OSError("no route to host")
    with pytest.raises(NotAvailable, match=r"^https://.*npz could not be fetched$"):
        load_adbench("wine")


def test_collected_tables_have_numbers(folder):
    with pytest.raises(NotAvailable, match=r"tables/tables.npz is not in the folder"):
        load_collected("table 000")
    (folder / "tables" / "tables.npz").write_bytes(npz(**{"b|X": X, "b|y": Y, "a|X": X, "a|y": Y}))
    assert_array_equal(load_collected("table 001").y, [1, -1, 1])


# --- images ------------------------------------------------------------------------------


def idx(array):
    """A gzipped idx file."""
    shape = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + shape + array.tobytes())


def image_arrays(shape):
    rng = np.random.default_rng(0)
    parts = {}
    for part, n in (("train", 20), ("test", 10)):
        parts[f"x_{part}"] = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
        parts[f"y_{part}"] = (np.arange(n) % 10).astype(np.uint8)
    return parts


def published_files(name):
    """The published files of a set by name, and what they hold."""
    if name == "CIFAR-10":
        arrays = image_arrays((3, 32, 32))
        records = {
            part: np.hstack([arrays[f"y_{part}"][:, None], arrays[f"x_{part}"].reshape(n, -1)])
            for part, n in (("train", 20), ("test", 10))
        }
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            batches = [records["train"][4 * i : 4 * i + 4] for i in range(5)]
            names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
            for member, batch in zip(names, [*batches, records["test"]], strict=True):
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{member}")
                info.size = batch.nbytes
                archive.addfile(info, io.BytesIO(batch.tobytes()))
        return {"cifar-10-binary.tar.gz": file.getvalue()}, arrays
    arrays = image_arrays((28, 28))
    if name == "MNIST":
        return {"mnist.npz": npz(**arrays)}, arrays
    keys = {"train": "train", "t10k": "test"}
    files = {}
    for prefix, part in keys.items():
        files[f"{prefix}-images-idx3-ubyte.gz"] = idx(arrays[f"x_{part}"])
        files[f"{prefix}-labels-idx1-ubyte.gz"] = idx(arrays[f"y_{part}"])
    return files, arrays


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_published_files_of_a_folder_are_read(folder, name):
    files, arrays = published_files(name)
    (folder / "images" / name).mkdir()
    for file, content in files.items():
        (folder / "images" / name / file).write_bytes(content)
    data = load_images(name)
    assert data.X_train.shape == (20, *((3, 32, 32) if name == "CIFAR-10" else (1, 28, 28)))
    assert_array_equal(data.X_train.ravel(), arrays["x_train"].ravel())
    assert_array_equal(data.y_test, arrays["y_test"])


def test_damaged_images_are_named(folder):
    (folder / "images" / "F-MNIST").mkdir()
    for name in published_files("F-MNIST")[0]:
        (folder / "images" / "F-MNIST" / name).write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"'F-MNIST' is damaged \(Not a gzipped file"):
        load_images("F-MNIST")


@pytest.mark.needs_data
@pytest.mark.parametrize(("name", "n"), [("MNIST", 60_000), ("CIFAR-10", 50_000)])
def test_the_published_images_have_their_sizes(name, n):
    data = load_images(name)
    assert (len(data.X_train), len(data.X_test)) == (n, 10_000)
    assert np.unique(data.y_train).tolist() == list(range(10))


# --- splits ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wine():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(300) < 0.2, -1, 1).astype(np.int16)
    return Dataset("wine", rng.normal(size=(300, 3)), y)


def test_a_split_hides_labels_and_shares_no_row_with_the_test(wine):
    split = make_split(wine, 0)
    assert split.X_test.shape == (90, 3)
    assert split.counts()["n_train"] == 210
    assert (split.y_train != 0).sum() == round(0.05 * 210)
    assert set(split.y_train) == {-1, 0, 1}
    rows = {row.tobytes() for row in split.X_train} | {row.tobytes() for row in split.X_test}
    assert len(rows) == 300
    again = make_split.__wrapped__(wine, 0)
    assert_array_equal(split.y_train, again.y_train)
    assert not np.array_equal(split.X_test, make_split(wine, 1).X_test)


def test_budgets_of_labels_share_the_test_rows(wine):
    few, five = make_split(wine, 0, budget=0.05), make_split(wine, 0, budget="5 anomalies")
    assert_array_equal(few.X_test, five.X_test)
    assert np.unique_counts(five.y_train).counts.tolist() == [5, 205]


@pytest.mark.parametrize("pi_n", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("gamma_l", [0.05, 0.2])
def test_a_split_of_images_has_the_papers_counts(pi_n, gamma_l):
    y = np.random.default_rng(0).integers(0, 10, 9000)
    n = int((y == 3).sum())
    split = one_class_split(y, 3, pi_n, gamma_l, random_state=1)
    assert_array_equal(split.truth == 1, y[split.rows] == 3)
    assert len(split.rows) == len(set(split.rows.tolist())) == n
    assert (split.truth == 1).sum() == round(n * (1 - pi_n))
    assert (split.y_pu == 1).sum() == round(gamma_l * n)
    assert (split.y_rad == 1).sum() == round(gamma_l * n * (1 - pi_n))
    assert (split.y_rad == -1).sum() == max(1, round(gamma_l * n * pi_n))
    assert (split.truth[split.y_rad != 0] == split.y_rad[split.y_rad != 0]).all()
    assert set(np.flatnonzero(split.y_rad == 1)) <= set(np.flatnonzero(split.y_pu == 1))
