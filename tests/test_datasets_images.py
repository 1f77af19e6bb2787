"""Image sets in all their formats, and the split that makes one class the normal one."""

import gzip
import io
import struct
import sys
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from riskad.core.checks import InputError
from riskad.datasets import IMAGE_SETS, DatasetMissing, images, load_images, one_class_split
from riskad.datasets.fetch import data_folder

KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
SHAPES = {"MNIST": (1, 28, 28), "F-MNIST": (1, 28, 28), "CIFAR-10": (3, 32, 32)}
SIZES = {"train": 20, "test": 10}
BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def arrays(name, seed=0):
    """What a small set of this name holds: x_train, y_train, x_test, y_test; channels first."""
    rng = np.random.default_rng(seed)
    made = {}
    for part, n in SIZES.items():
        made[f"x_{part}"] = rng.integers(0, 256, (n, *SHAPES[name]), dtype=np.uint8)
        made[f"y_{part}"] = (np.arange(n) % 10).astype(np.uint8)
    return made


def npz(**made):
    file = io.BytesIO()
    np.savez_compressed(file, **made)
    return file.getvalue()


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def cifar_archive(made, names=BATCHES):
    """The five batches and the test batch, four images in each of the five."""
    parts = [(made["x_train"][4 * i :][:4], made["y_train"][4 * i :][:4]) for i in range(5)]
    parts.append((made["x_test"], made["y_test"]))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, (x, y) in zip(names, parts, strict=False):
            content = np.hstack([y[:, None], x.reshape(len(x), -1)]).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def as_npz(name, made):
    """The .npz files of a folder, by name; channels last, as they are there."""
    made = {
        key: np.moveaxis(value, 1, -1).squeeze() if key[0] == "x" else value
        for key, value in made.items()
    }
    if name != "CIFAR-10":
        return {"mnist.npz" if name == "MNIST" else "fmnist.npz": npz(**made)}
    quarters = {
        f"cifar10_train_{i + 1}of4.npz": npz(
            x_train=made["x_train"][5 * i :][:5], y_train=made["y_train"][5 * i :][:5]
        )
        for i in range(4)
    }
    return quarters | {"cifar10_test.npz": npz(x_test=made["x_test"], y_test=made["y_test"])}


def as_published(name, made):
    """The published files, by the end of their address."""
    if name == "MNIST":
        return {"mnist.npz": npz(**{key: value.squeeze() for key, value in made.items()})}
    if name == "CIFAR-10":
        return {"cifar-10-binary.tar.gz": cifar_archive(made)}
    return {
        "train-images-idx3-ubyte.gz": idx(made["x_train"][:, 0]),
        "train-labels-idx1-ubyte.gz": idx(made["y_train"]),
        "t10k-images-idx3-ubyte.gz": idx(made["x_test"][:, 0]),
        "t10k-labels-idx1-ubyte.gz": idx(made["y_test"]),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of image files; checksums of made-up files are not compared."""
    monkeypatch.setenv("RISKAD_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setattr(images, "_SHA256", dict.fromkeys(images._SHA256))
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def check(found, name, made):
    assert found.name == name
    for part in SIZES:
        X, y = getattr(found, f"X_{part}"), getattr(found, f"y_{part}")
        assert X.dtype == y.dtype == np.uint8
        assert X.flags.c_contiguous
        assert_array_equal(X, made[f"x_{part}"])
        assert_array_equal(y, made[f"y_{part}"])


# --- formats -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_npz_files_of_a_folder_are_read(folder, name):
    write(folder, as_npz(name, arrays(name)))
    check(load_images(name), name, arrays(name))


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_published_files_of_a_folder_are_read(folder, name):
    write(folder / name, as_published(name, arrays(name)))
    check(load_images(name), name, arrays(name))


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_published_files_are_downloaded(tmp_path, monkeypatch, name):
    files = as_published(name, arrays(name))
    asked = []

    def retrieve(url, known_hash, fname, path):
        assert known_hash is None
        assert path == tmp_path / "riskad" / "images" / name
        asked.append(url)
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(files[fname])
        return str(path / fname)

    fake = SimpleNamespace(os_cache=lambda project: tmp_path / project, retrieve=retrieve)
    monkeypatch.setitem(sys.modules, "pooch", fake)
    monkeypatch.delenv("RISKAD_DATA", raising=False)
    assert data_folder() is None
    check(load_images(name), name, arrays(name))
    assert [url.rpartition("/")[2] for url in asked] == list(files)
    assert all(url.startswith((KERAS, "https://www.cs.toronto.edu/~kriz/")) for url in asked)


def test_a_set_is_shown_in_one_line(folder):
    write(folder, as_npz("MNIST", arrays("MNIST")))
    found = load_images("MNIST")
    line = "MNIST: 20 images to train with and 10 to test, 1 x 28 x 28, 10 classes"
    assert (str(found), repr(found)) == (line, f"<ImageDataset {line}>")


# --- what can be wrong -------------------------------------------------------------------


def test_an_unknown_set_is_refused():
    with pytest.raises(InputError, match="name='mnist' is not known; choose from MNIST"):
        load_images("mnist")


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_a_missing_set_says_what_to_put_where(folder, name):
    with pytest.raises(DatasetMissing, match="Put the file there, from https") as caught:
        load_images(name)
    assert str(folder / name) in str(caught.value)
    assert "is not in the folder that RISKAD_DATA names" in caught.value.reason


def test_a_missing_part_is_named(folder):
    files = as_npz("CIFAR-10", arrays("CIFAR-10"))
    del files["cifar10_train_3of4.npz"]
    write(folder, files)
    with pytest.raises(DatasetMissing, match=r"cifar10_train_3of4.npz.*Put the file there or"):
        load_images("CIFAR-10")


def test_a_known_sum_is_checked(folder, monkeypatch):
    monkeypatch.setitem(images._SHA256, "mnist.npz", "0" * 64)
    write(folder, as_npz("MNIST", arrays("MNIST")))
    with pytest.raises(InputError, match="SHA-256"):
        load_images("MNIST")


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("MNIST", "mnist.npz", b"<html>", "not an .npz archive"),
        ("MNIST", "mnist.npz", npz(x_train=[0]), "arrays x_train, y_train, x_test and y_test"),
        ("F-MNIST", "train-images-idx3-ubyte.gz", b"<html>", "not a gzip file"),
        ("F-MNIST", "train-images-idx3-ubyte.gz", idx(np.zeros(9, np.uint8))[:-9], "not a gzip"),
        (
            "F-MNIST",
            "train-labels-idx1-ubyte.gz",
            gzip.compress(b"\0\0\x09\1", mtime=0),
            "does not begin",
        ),
        (
            "F-MNIST",
            "train-labels-idx1-ubyte.gz",
            gzip.compress(b"\0\0", mtime=0),
            "does not begin",
        ),
        (
            "F-MNIST",
            "train-labels-idx1-ubyte.gz",
            gzip.compress(b"\0\0\x08\1\0\0\0\5abc", mtime=0),
            "holds 3 numbers and says 5",
        ),
        ("CIFAR-10", "cifar-10-binary.tar.gz", b"<html>", "not a tar.gz archive"),
        (
            "CIFAR-10",
            "cifar-10-binary.tar.gz",
            cifar_archive(arrays("CIFAR-10"))[:900],
            "not a tar.gz archive",
        ),
        (
            "CIFAR-10",
            "cifar-10-binary.tar.gz",
            cifar_archive(arrays("CIFAR-10"), BATCHES[:-1]),
            "does not hold the file cifar-10-batches-bin/test_batch.bin",
        ),
    ],
)
def test_a_damaged_file_is_named(folder, name, file, content, message):
    write(folder / name, as_published(name, arrays(name)) | {file: content})
    with pytest.raises(InputError, match=f"{file}.*is damaged.*{message}.*from https") as caught:
        load_images(name)
    assert not isinstance(caught.value, DatasetMissing)


def test_a_record_cut_short_is_damage():
    with pytest.raises(images.Damage, match="multiple of 3,073"):
        images._records(bytes(3072))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": np.zeros(19, np.uint8)}, "train part: there are 20 images and 19 classes"),
        ({"y_test": np.full(10, 10)}, "test part: classes must be 0 to 9, got 10 to 10"),
        ({"x_test": np.zeros((10, 28, 27), np.uint8)}, r"got uint8 of shape \(1, 28, 27\)"),
        ({"x_train": np.zeros((20, 28, 28))}, "got float64"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, change, message):
    made = {key: value.squeeze() for key, value in arrays("MNIST").items()}
    write(folder, {"mnist.npz": npz(**made | change)})
    with pytest.raises(InputError, match=f"files of 'MNIST'.*{message}.*fetch them again"):
        load_images("MNIST")


@pytest.mark.needs_data
@pytest.mark.parametrize("name", IMAGE_SETS)
def test_the_published_sets_have_their_sizes(data_folder, monkeypatch, name):
    if not (data_folder / "images").is_dir():
        pytest.skip("no images among the benchmark data")
    monkeypatch.setenv("RISKAD_DATA", str(data_folder))
    found = load_images(name)
    n = 50_000 if name == "CIFAR-10" else 60_000
    assert found.X_train.shape == (n, *SHAPES[name])
    assert found.X_test.shape == (10_000, *SHAPES[name])
    assert_array_equal(np.unique(found.y_train), np.arange(10))
    assert_array_equal(np.unique(found.y_test), np.arange(10))
    if name != "MNIST":
        assert set(np.bincount(found.y_test).tolist()) == {1000}


# --- the split ---------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(150, 400), min_size=2, max_size=5),
    pi_n=st.sampled_from([0.01, 0.05, 0.1, 0.2]),
    gamma_l=st.sampled_from([0.05, 0.1, 0.2]),
    seed=st.integers(0, 2**32),
)
def test_a_split_has_the_papers_counts(sizes, pi_n, gamma_l, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    normal_class = seed % len(sizes)
    n = sizes[normal_class]
    split = one_class_split(y, normal_class, pi_n, gamma_l, random_state=seed)
    assert len(split.rows) == len(np.unique(split.rows)) == n
    assert_array_equal(split.truth, np.where(y[split.rows] == normal_class, 1, -1))
    n_p = round(n * (1 - pi_n))
    assert (split.truth == 1).sum() == n_p
    assert (split.y_pu == 1).sum() == round(gamma_l * n)
    assert (split.y_rad == 1).sum() == round(gamma_l * n * (1 - pi_n))
    assert (split.y_rad == -1).sum() == max(1, round(gamma_l * n * pi_n))
    for labels in (split.y_pu, split.y_rad):
        assert_array_equal(labels[labels != 0], split.truth[labels != 0])
    assert (split.y_pu >= 0).all()
    assert (split.y_pu[split.y_rad == 1] == 1).all()  # rAD's normals are among nnPU's


def test_types_and_order_of_a_split():
    split = one_class_split(np.arange(500) % 10, 4, 0.2, 0.2, random_state=1)
    assert split.rows.dtype == np.int64
    assert split.truth.dtype == split.y_rad.dtype == split.y_pu.dtype == np.int8
    assert (np.diff(split.rows) > 0).all()


def test_the_same_seed_gives_the_same_split():
    y = np.arange(2000) % 10
    one, same, other = (one_class_split(y, 0, 0.1, 0.1, random_state=s) for s in (3, 3, 4))
    for name in ("rows", "truth", "y_rad", "y_pu"):
        assert_array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))


def test_all_rows_are_equally_likely():
    y = np.arange(200) % 10
    splits = [one_class_split(y, 0, 0.5, 0.2, random_state=seed) for seed in range(400)]
    chosen = np.mean([np.isin(np.arange(200), split.rows) for split in splits], axis=0)
    assert chosen[y == 0] == pytest.approx(0.5, abs=0.13)
    assert chosen[y != 0] == pytest.approx(10 / 180, abs=0.06)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"anomaly_rate": 0}, "anomaly_rate must be"),
        ({"labelled": 1.0}, "labelled must be"),
        ({"normal_class": 11}, "no row is of the normal class 11"),
        ({"anomaly_rate": 0.001}, "makes 100 normals and 0 anomalies"),
        ({"y": np.repeat([0, 1], [95, 5]), "anomaly_rate": 0.2}, "asks for 19 rows.*y has 5"),
        ({"labelled": 0.001}, "labels no normal row"),
        ({"labelled": 0.95}, "asks nnPU for 95 labelled normals.*has 90"),
        ({"random_state": "x"}, "random_state must be"),
    ],
)
def test_impossible_splits_are_refused(change, message):
    settings = {"y": np.arange(1000) % 10, "normal_class": 0, "anomaly_rate": 0.1, "labelled": 0.1}
    with pytest.raises(InputError, match=message):
        one_class_split(**settings | change)
