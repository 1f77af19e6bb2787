"""MNIST, F-MNIST and CIFAR-10: images of ten classes, from which experiments make anomalies.

In the folder `images` of the folder that `RISKAD_DATA` names, a set may be stored as .npz files
with the arrays x_train, y_train, x_test and y_test (`mnist.npz`, `fmnist.npz`,
`cifar10_train_1of4.npz` and so on, `cifar10_test.npz`; channels last), or as its published files in
its own folder (`images/F-MNIST`). Without `RISKAD_DATA` these are downloaded.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.fetch import Damage, File, data_folder, load_file, unpack_npz
from riskad import InputError
from riskad.core.checks import lookup

Array = NDArray[Any]
Parse = Callable[[bytes], dict[str, Array]]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_N_CLASSES = 10


# --- formats -----------------------------------------------------------------------------


def _parse_npz(content: bytes, names: tuple[str, ...] = _ARRAYS) -> dict[str, Array]:
    """Arrays of an .npz file, images (n, h, w) or (n, h, w, c)."""
    arrays = dict(zip(names, unpack_npz(content, *names), strict=True))
    return {name: np.moveaxis(a, -1, 1) if a.ndim == 4 else a for name, a in arrays.items()}


def _parse_idx(content: bytes, name: str) -> dict[str, Array]:
    """The array of bytes in a gzipped idx file.

    The file holds the bytes 0, 0, 8 (for unsigned bytes) and the number of dimensions, then each
    dimension as four bytes, the highest first, then the numbers.
    """
    try:
        data = gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        raise Damage("it is not a gzip file") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise Damage("it does not begin as an idx file of bytes")
    begin = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:begin], dtype=">u4").tolist()
    if len(data) - begin != prod(shape):
        raise Damage(f"it holds {len(data) - begin:,} numbers and says {prod(shape):,}")
    return {name: np.frombuffer(data, np.uint8, offset=begin).reshape(shape)}


def _parse_cifar(content: bytes) -> dict[str, Array]:
    """The archive of CIFAR-10's binary version: five files to train with, one to test."""
    batches = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            train = b"".join(_member(archive, name) for name in batches)
            test = _member(archive, "cifar-10-batches-bin/test_batch.bin")
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        raise Damage("it is not a tar.gz archive") from None
    (x_train, y_train), (x_test, y_test) = _records(train), _records(test)
    return dict(zip(_ARRAYS, (x_train, y_train, x_test, y_test), strict=True))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise Damage(f"it does not hold the file {name}")
    return file.read()


def _records(data: bytes) -> tuple[Array, Array]:
    """Images (n, 3, 32, 32) and classes: a byte of class and 3 x 32 x 32 of image each."""
    size = 1 + prod(_CIFAR_SHAPE)
    if len(data) % size:
        raise Damage(f"its length is not a multiple of {size:,} bytes")
    table = np.frombuffer(data, np.uint8).reshape(-1, size)
    return table[:, 1:].reshape(-1, *_CIFAR_SHAPE), table[:, 0]


# --- which sets there are ----------------------------------------------------------------

_MNIST_SHAPE, _CIFAR_SHAPE = (1, 28, 28), (3, 32, 32)
_KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
_TORONTO = "https://www.cs.toronto.edu/~kriz"

# Of the .npz files that a folder may hold.
_SHA256 = {
    "mnist.npz": "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
    "fmnist.npz": "5b6d2c4c694a91887af8ab7d039c04f80af3c29378d731c93a538d2e831aa469",
    "cifar10_train_1of4.npz": "0a91051088d3930c12c1905dd2c1a9541a77cae15e554d64d15363762cafa686",
    "cifar10_train_2of4.npz": "109d5ee07a7226ff85a1f8bcdc1d76f4d01fdb9eb7b6397fa3812f60592651cd",
    "cifar10_train_3of4.npz": "e49097d10f30d7615f5ea07b7ffd3266cf89a4c5aec4160d640e2ba212ac168d",
    "cifar10_train_4of4.npz": "4bcff4d0ff94956faf749b4ff1b95f540ebe69942a35e529686699872d742ab1",
    "cifar10_test.npz": "db416ae49abad84f07becad2bf4d66130b970f92f3efde766a31b4a32a0abe7a",
}


@dataclass(frozen=True)
class _Source:
    """An image set: the shape of a row, and its files with what reads them.

    The reading of published files is tested with files made for it. The download itself is not
    tested, and the checksums are not known here, so none are compared.
    """

    shape: tuple[int, int, int]
    npz: Mapping[str, Parse]
    published: Mapping[str, Parse]

    def files(self, name: str) -> list[tuple[File, Parse]]:
        """The .npz files if the user's folder has them, else the published ones."""
        folder = data_folder()
        if folder and (folder / "images" / next(iter(self.npz))).exists():
            return [
                (File(name, "images", file, sha256=_SHA256[file]), parse)
                for file, parse in self.npz.items()
            ]
        return [
            (File(name, f"images/{name}", url.rpartition("/")[2], url), parse)
            for url, parse in self.published.items()
        ]


_SOURCES = {
    "MNIST": _Source(
        _MNIST_SHAPE,
        npz={"mnist.npz": _parse_npz},
        published={f"{_KERAS}/mnist.npz": _parse_npz},
    ),
    "F-MNIST": _Source(
        _MNIST_SHAPE,
        npz={"fmnist.npz": _parse_npz},
        published={
            f"{_KERAS}/train-images-idx3-ubyte.gz": partial(_parse_idx, name="x_train"),
            f"{_KERAS}/train-labels-idx1-ubyte.gz": partial(_parse_idx, name="y_train"),
            f"{_KERAS}/t10k-images-idx3-ubyte.gz": partial(_parse_idx, name="x_test"),
            f"{_KERAS}/t10k-labels-idx1-ubyte.gz": partial(_parse_idx, name="y_test"),
        },
    ),
    "CIFAR-10": _Source(
        _CIFAR_SHAPE,
        npz={
            f"cifar10_train_{i}of4.npz": partial(_parse_npz, names=("x_train", "y_train"))
            for i in range(1, 5)
        }
        | {"cifar10_test.npz": partial(_parse_npz, names=("x_test", "y_test"))},
        # Of the two versions the one that is not pickled.
        published={f"{_TORONTO}/cifar-10-binary.tar.gz": _parse_cifar},
    ),
}
IMAGE_SETS = tuple(_SOURCES)


# --- loading -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images of ten classes, in the published parts for training and for testing.

    Images are bytes, C-contiguous, of shape (n, channels, height, width); classes are 0 to 9.
    `one_class_split` makes one of them the normal one.
    """

    name: str
    X_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


def load_images(name: str) -> ImageDataset:
    """Load an image set: "MNIST", "F-MNIST" or "CIFAR-10".

    ADBench's "mnist" is another set, a table (`load_adbench`).
    """
    source = lookup("name", name, _SOURCES)
    parts = [load_file(file, parse) for file, parse in source.files(name)]
    x_train, y_train, x_test, y_test = (
        np.concatenate([part[key] for part in parts if key in part]) for key in _ARRAYS
    )
    train = _check_part(name, "train", source.shape, x_train, y_train)
    return ImageDataset(name, *train, *_check_part(name, "test", source.shape, x_test, y_test))


def _check_part(
    name: str, part: str, shape: tuple[int, int, int], x: Array, y: Array
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, c, h, w) and their classes, if they are consistent and those of the set."""
    X = x[:, None] if x.ndim == 3 else x
    y = y.ravel()
    if X.dtype != np.uint8 or y.dtype.kind not in "iu" or X.shape[1:] != shape:
        wrong = f"images must be bytes of shape {shape}, got {X.dtype} of shape {X.shape[1:]}"
    elif not len(X) or len(X) != len(y):
        wrong = f"there are {len(X):,} images and {len(y):,} classes"
    elif y.min() < 0 or y.max() >= _N_CLASSES:
        wrong = f"classes must be 0 to {_N_CLASSES - 1}, got {y.min()} to {y.max()}"
    else:
        return np.ascontiguousarray(X), y.astype(np.uint8)
    raise InputError(
        f"The files of {name!r} do not hold what they should ({part} part: {wrong}): delete them "
        "and fetch them again."
    )
