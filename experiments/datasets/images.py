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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.fetch import File, data_folder, load_file, unpack_npz
from riskad.core.checks import lookup

Array = NDArray[Any]
Parse = Callable[[bytes], dict[str, Array]]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


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
    data = gzip.decompress(content)
    begin = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:begin], dtype=">u4").tolist()
    return {name: np.frombuffer(data, np.uint8, offset=begin).reshape(shape)}


def _parse_cifar(content: bytes) -> dict[str, Array]:
    """The archive of CIFAR-10's binary version: five files to train with, one to test.

    Of each image they hold a byte of class and 3 x 32 x 32 of image.
    """
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        files = [archive.extractfile(f"cifar-10-batches-bin/{name}.bin").read() for name in names]
    train, test = (
        np.frombuffer(data, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        for data in (b"".join(files[:5]), files[5])
    )
    images = [table[:, 1:].reshape(-1, 3, 32, 32) for table in (train, test)]
    return dict(zip(_ARRAYS, (images[0], train[:, 0], images[1], test[:, 0]), strict=True))


# --- which sets there are ----------------------------------------------------------------

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


# Of each set the .npz files that a folder may hold, and the published ones, with what reads them.
# The reading of the latter is tested with files made for it. Their download is not tested, and
# their checksums are not known here, so none are compared.
_FILES: dict[str, tuple[dict[str, Parse], dict[str, Parse]]] = {
    "MNIST": ({"mnist.npz": _parse_npz}, {f"{_KERAS}/mnist.npz": _parse_npz}),
    "F-MNIST": (
        {"fmnist.npz": _parse_npz},
        {
            f"{_KERAS}/train-images-idx3-ubyte.gz": partial(_parse_idx, name="x_train"),
            f"{_KERAS}/train-labels-idx1-ubyte.gz": partial(_parse_idx, name="y_train"),
            f"{_KERAS}/t10k-images-idx3-ubyte.gz": partial(_parse_idx, name="x_test"),
            f"{_KERAS}/t10k-labels-idx1-ubyte.gz": partial(_parse_idx, name="y_test"),
        },
    ),
    "CIFAR-10": (
        {
            f"cifar10_train_{i}of4.npz": partial(_parse_npz, names=("x_train", "y_train"))
            for i in range(1, 5)
        }
        | {"cifar10_test.npz": partial(_parse_npz, names=("x_test", "y_test"))},
        # Of the two versions the one that is not pickled.
        {f"{_TORONTO}/cifar-10-binary.tar.gz": _parse_cifar},
    ),
}
IMAGE_SETS = tuple(_FILES)


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
    npz, published = lookup("name", name, _FILES)
    folder = data_folder()
    if folder and all((folder / "images" / file).exists() for file in npz):
        files = {File(name, "images", file, sha256=_SHA256[file]): npz[file] for file in npz}
    else:
        place = f"images/{name}"
        files = {
            File(name, place, url.rpartition("/")[2], url): published[url] for url in published
        }
    parts = [load_file(file, parse) for file, parse in files.items()]
    x_train, y_train, x_test, y_test = (
        np.concatenate([part[key] for part in parts if key in part]) for key in _ARRAYS
    )
    train, test = _as_bytes(x_train, y_train), _as_bytes(x_test, y_test)
    return ImageDataset(name, *train, *test)


def _as_bytes(x: Array, y: Array) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, c, h, w) and their classes."""
    X = x[:, None] if x.ndim == 3 else x
    return np.ascontiguousarray(X), y.ravel().astype(np.uint8)
