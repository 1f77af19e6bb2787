"""Files of datasets: from a folder of the user or from the web, checked before they are read."""

from __future__ import annotations

import hashlib
import io
import os
import textwrap
import zipfile
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


class Damage(Exception):
    """What is wrong with a file, in a few words."""


def data_folder() -> Path | None:
    """The folder that RISKAD_DATA names, if it names one."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    return Path(folder).absolute() if folder else None


def load_file(file: File, parse: Callable[[bytes], T]) -> T:
    """The result of `parse` for a file's bytes; it raises `Damage` for what it cannot read.

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
            raise Damage("its SHA-256 sum is not that of the published file")
        return parse(content)
    except Damage as damage:
        raise InputError(
            f"The file {str(path)!r} of {file.dataset!r} is damaged ({damage}): "
            f"delete it and fetch it again{f' from {file.url}' if file.url else ''}."
        ) from None


def _download(file: File) -> Path:
    """Return the path of a file in the cache, downloaded there if necessary."""
    import pooch

    try:
        return Path(
            pooch.retrieve(
                file.url,
                known_hash=file.sha256 and f"sha256:{file.sha256}",
                fname=file.name,
                path=pooch.os_cache("riskad") / file.folder,
            )
        )
    except OSError as error:  # the errors of requests, too, are OSErrors
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # an answer such as 404, which pooch leaves open
        raise NotAvailable(f"{file.url} could not be fetched", dataset=file.dataset) from None
    except ValueError as error:  # pooch's word for a wrong checksum
        raise InputError(
            f"The download of {file.dataset!r} from {file.url} is damaged and was not kept "
            f"({_in_one_line(error)}). Fetch it again later."
        ) from None


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
        raise Damage(f"it does not hold all of the arrays {', '.join(names)}") from None
    except Exception as error:  # of zipfile, of its decompressors, of NumPy
        raise Damage(_in_one_line(error)) from None


def _in_one_line(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
