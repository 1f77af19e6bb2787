"""Files of datasets: from a folder of the user or from the web, checked before they are read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from experiments.runner import NotAvailable
from riskad import InputError

T = TypeVar("T")

_FOLDER_VARIABLE = "RISKAD_DATA"


class File(NamedTuple):
    """A file of a dataset: its place in the folder that RISKAD_DATA names, and in the cache."""

    dataset: str
    folder: str
    name: str
    url: str | None = None  # where it is published; None for a file that only exists in folders
    sha256: str | None = None


def data_folder() -> Path | None:
    """The folder that RISKAD_DATA names, if it names one."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    return Path(folder).absolute() if folder else None


def load_file(file: File, parse: Callable[[bytes], T]) -> T:
    """The result of `parse` for a file's bytes.

    A file that is not to be had raises `NotAvailable`, whose reason names no folder of this
    machine: others read it in records.
    """
    folder = data_folder()
    path = folder / file.folder / file.name if folder else _download(file)
    try:
        content = path.read_bytes()
    except OSError:
        raise NotAvailable(
            f"{file.name} is not in the folder that {_FOLDER_VARIABLE} names", dataset=file.dataset
        ) from None
    try:
        if file.sha256 and hashlib.sha256(content).hexdigest() != file.sha256:
            raise ValueError("its SHA-256 sum is not that of the published file")
        return parse(content)
    except Exception as error:  # of zipfile, of decompressors, of NumPy
        raise InputError(
            f"The file {str(path)!r} of {file.dataset!r} is damaged ({error}): delete it and fetch "
            "it again."
        ) from error


def _download(file: File) -> Path:
    """Return the path of a file in the cache, downloaded there if necessary."""
    import pooch

    known_hash = file.sha256 and f"sha256:{file.sha256}"
    cache = pooch.os_cache("riskad") / file.folder
    try:
        return Path(pooch.retrieve(file.url, known_hash, fname=file.name, path=cache))
    except OSError as error:  # the errors of requests, too, are OSErrors
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # an answer such as 404, which pooch leaves open
        raise NotAvailable(f"{file.url} could not be fetched", dataset=file.dataset) from None


def unpack_npz(content: bytes, *names: str) -> list[NDArray[Any]]:
    """Return the arrays of these names in an .npz file, which is never unpickled."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return [archive[name] for name in names]
