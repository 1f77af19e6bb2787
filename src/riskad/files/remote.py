"""Files on this machine and in object stores: S3, Google Cloud Storage and Azure, by pyarrow.

An address such as s3://bucket/payments/1.parquet is a `Path` like any other, which keeps one slash
of two. Credentials come from the environment, from profiles or from the machine's role, as the
libraries of these stores have it; an address with a password in it is refused, since it would get
into reports and logs.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from riskad.core.checks import InputError, required

_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
_SECRET = re.compile(r"//?[^/]*:[^/]*@|\?[^/]*=")
_BUFFER = 1 << 20  # bytes of one request


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address in an object store.

    >>> is_remote("s3://bucket/cards.csv"), is_remote("cards.csv")
    (True, False)
    """
    return Path(path).parts[:1] in [(f"{store}:",) for store in _STORES]


def address(path: str | os.PathLike[str]) -> str:
    """Return a path as people write it.

    >>> address(Path("s3://bucket/cards.csv"))
    's3://bucket/cards.csv'
    """
    return Path(path).as_posix().replace(":/", "://", 1) if is_remote(path) else str(path)


def is_file(path: Path) -> bool:
    """Whether there is a file."""
    return _info(path).is_file if is_remote(path) else path.is_file()


def is_folder(path: Path) -> bool:
    """Whether there is a folder; in a store, whether there are files below it."""
    return _info(path).type.name == "Directory" if is_remote(path) else path.is_dir()


def file_size(path: Path) -> int:
    """Bytes of a file."""
    return int(_info(path).size) if is_remote(path) else path.stat().st_size


def open_file(path: Path) -> Any:
    """Open a file in a store for reading at any place in it."""
    store, key = _store(path)
    return store.open_input_file(key)


def open_stream(path: Path) -> IO[bytes]:
    """Open a file for reading from its beginning, in small pieces too."""
    if not is_remote(path):
        return open(path, "rb")
    return cast(IO[bytes], io.BufferedReader(open_file(path), _BUFFER))


def list_files(pattern: Path) -> list[Path]:
    """The files below a folder in a store, or those that match a pattern."""
    depth = next((i for i, part in enumerate(pattern.parts) if glob.has_magic(part)), None)
    folder = Path(*pattern.parts[:depth])
    from pyarrow.fs import FileSelector

    store, key = _store(folder)
    with _store_errors(folder):
        entries = store.get_file_info(FileSelector(key, allow_not_found=True, recursive=True))
    keys = [PurePosixPath(each.path).relative_to(key) for each in entries if each.is_file]
    files = sorted(folder / each for each in keys)
    if depth is None:
        return files
    return [f for f in files if len(f.parts) == len(pattern.parts) and f.match(str(pattern))]


def put_file(file: Path, path: Path) -> None:
    """Copy a file into a store, where it is seen when all of it is there."""
    store, key = _store(path)
    with open(file, "rb") as source, store.open_output_stream(key) as target:
        while block := source.read(_BUFFER):
            target.write(block)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    if not is_remote(path):
        path.unlink(missing_ok=True)
    elif is_file(path):
        store, key = _store(path)
        store.delete_file(key)


def check_no_secret(path: str | os.PathLike[str]) -> None:
    """Refuse an address with credentials, without repeating it."""
    if is_remote(path) and _SECRET.search(str(path)):
        raise InputError(
            "An address holds a key, a password or settings (user:password@ or ?name=value), which "
            "would get into reports and logs. Leave them out, and give credentials as the store's "
            "own programs take them: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, a profile or a role."
        )


def _info(path: Path) -> Any:
    store, key = _store(path)
    with _store_errors(path):
        return store.get_file_info(key)


def _store(path: Path) -> tuple[Any, str]:
    check_no_secret(path)
    if len(path.parts) < 2:
        raise InputError(f"{address(path)!r} names no bucket: s3://bucket/cards.csv")
    store, base = _open_store(address(Path(*path.parts[:2])))
    return store, "/".join([base, *path.parts[2:]])


@lru_cache
def _open_store(root: str) -> tuple[Any, str]:
    with required("Object stores need pyarrow: pip install 'riskad[parquet]'."):
        from pyarrow.fs import FileSystem
    with _store_errors(root):
        return cast(tuple[Any, str], FileSystem.from_uri(root))


@contextmanager
def _store_errors(path: str | Path) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"{address(path)!r} cannot be reached: {reason}. Check the name, and the credentials "
            "and settings of the store in the environment."
        ) from error
