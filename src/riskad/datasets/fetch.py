"""Files of datasets: from a folder of the user or from the web, checked before they are read."""

from __future__ import annotations

import hashlib
import io
import os
import textwrap
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError

__all__ = ["Damage", "DatasetMissing", "File", "data_folder", "load_file", "unpack_npz"]

T = TypeVar("T")

_FOLDER_VARIABLE = "RISKAD_DATA"


class File(NamedTuple):
    """A file of a dataset.

    Parameters
    ----------
    dataset : str
        Its dataset, for messages.
    folder, name : str
        Its place in the folder that RISKAD_DATA names, and in the cache.
    url : str or None
        Where it is published; None for a file that only exists in folders.
    sha256 : str or None
        Its checksum, if known.
    """

    dataset: str
    folder: str
    name: str
    url: str | None = None
    sha256: str | None = None


class DatasetMissing(InputError):
    """A known set whose file is not available; a benchmark can list it as not run and continue.

    `reason` gives the reason without naming a folder of this machine, for records that others read.
    """

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


class Damage(Exception):
    """What is wrong with a file, in a few words."""


def data_folder() -> Path | None:
    """The folder that RISKAD_DATA names, if it names one."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    return Path(folder).absolute() if folder else None


def load_file(file: File, parse: Callable[[bytes], T]) -> T:
    """The result of `parse` for a file's bytes; it raises `Damage` for what it cannot read."""
    folder = data_folder()
    path, content = _read_local(file, folder) if folder else _read_cached(file)
    try:
        _check_sum(file, content)
        return parse(content)
    except Damage as damage:
        raise InputError(
            f"The file {str(path)!r} of {file.dataset!r} is damaged ({damage}): "
            f"delete it and fetch it again{f' from {file.url}' if file.url else ''}."
        ) from None


def _read_local(file: File, folder: Path) -> tuple[Path, bytes]:
    """Return the path and the bytes of a file in the user's own data folder."""
    path = folder / file.folder / file.name
    try:
        return path, path.read_bytes()
    except OSError as error:
        origin = f", from {file.url}," if file.url else ""
        raise DatasetMissing(
            f"The dataset {file.dataset!r} is missing: {str(path)!r} cannot be read "
            f"({error.strerror or error}). {_FOLDER_VARIABLE} is set, so nothing is downloaded. "
            f"Put the file there{origin} or unset {_FOLDER_VARIABLE}.",
            f"{file.name} is not in the folder that {_FOLDER_VARIABLE} names",
        ) from None


def _read_cached(file: File) -> tuple[Path, bytes]:
    """Return the path and the bytes of a file in the cache, downloaded there if necessary."""
    pooch = _import_pooch(file)
    try:
        path = Path(
            pooch.retrieve(
                file.url,
                known_hash=file.sha256 and f"sha256:{file.sha256}",
                fname=file.name,
                path=pooch.os_cache("riskad") / file.folder,
            )
        )
        return path, path.read_bytes()
    except OSError as error:  # the errors of requests, too, are OSErrors
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # an answer such as 404, which pooch leaves open
        raise DatasetMissing(
            f"The dataset {file.dataset!r} is missing: {file.url} could not be fetched "
            f"({_in_one_line(error)}). Check the connection; or put the file into the folder "
            f"{file.folder} of a folder of yours, and that folder's path into {_FOLDER_VARIABLE}.",
            f"{file.url} could not be fetched",
        ) from None
    except ValueError as error:  # pooch's word for a wrong checksum
        raise InputError(
            f"The download of {file.dataset!r} from {file.url} is damaged and was not kept "
            f"({_in_one_line(error)}). Fetch it again later."
        ) from None


def _import_pooch(file: File) -> Any:
    """Return the optional module pooch, or explain what to do without it."""
    try:
        return import_module("pooch")
    except ImportError:
        raise InputError(
            f"Downloading {file.dataset!r} needs pooch: pip install 'riskad[bench]'; or set the "
            f"environment variable {_FOLDER_VARIABLE} to a folder with {file.folder}/{file.name}."
        ) from None


def _check_sum(file: File, content: bytes) -> None:
    """Fail if the SHA-256 sum of the file is known and differs."""
    if file.sha256 and hashlib.sha256(content).hexdigest() != file.sha256:
        raise Damage("its SHA-256 sum is not that of the published file")


def unpack_npz(content: bytes, *names: str) -> list[NDArray[Any]]:
    """Return the arrays of these names in an .npz file, which is never unpickled."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise Damage("it is not an .npz archive")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return [np.asarray(archive[name]) for name in names]
    except MemoryError:
        raise  # the set is large, not damaged
    except KeyError:
        *most, last = names
        raise Damage(f"it does not hold the arrays {', '.join(most)} and {last}") from None
    except Exception as error:  # of zipfile, of its decompressors, of NumPy
        raise Damage(_in_one_line(error)) from None


def _in_one_line(error: Exception) -> str:
    r"""Shorten an error message to one line.

    >>> _in_one_line(OSError("no route\nto host"))
    'OSError: no route to host'
    """
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
