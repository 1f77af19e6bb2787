"""Zip archives of a few known members, read within bounds.

An archive's own statements are trusted only within limits: its members are the expected ones, each
once. JSON, which becomes objects many times its size, is not compressed unless it is small (the
headers of earlier versions were, and must be read to say so), and arrays may expand by no more than
a fixed factor. So the memory for reading is bounded by the size of the file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from riskad.core.checks import InputError, enumerate_names

__all__ = ["read_members", "write_members"]

_MOST_EXPANSION = 10  # of arrays
_LEVEL = 1  # numbers hardly shrink, whatever the effort
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SMALL = 100_000  # bytes to which anything may expand
_ENCRYPTED = 0x1
# Exceptions of the zipfile module for damaged archives, depending on the damage.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
    OSError,
)


def write_members(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive; a member that would shrink too much to be read again is not compressed."""
    with zipfile.ZipFile(path, "x") as archive:
        for name, data in members.items():
            shrunk = len(zlib.compress(data, _LEVEL)) - 6  # less its header and checksum
            shrinks = shrunk < len(data) <= _expansion(name) * shrunk
            method = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            archive.writestr(name, data, method, _LEVEL)


def _expansion(name: str) -> int:
    return 1 if name.endswith(".json") else _MOST_EXPANSION


def read_members(path: Path, names: Sequence[str], others: bool = False) -> dict[str, bytes]:
    """The bytes of the members, if the archive contains each once, and no others.

    With `others` it may contain more, which are ignored.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.namelist()
            known = [name for name in found if name in names] if others else found
            if sorted(known) != sorted(names):
                wanted = enumerate_names(names)
                raise InputError(f"it holds {enumerate_names(found, 4)} instead of {wanted}")
            return {name: _read(archive, name, path.stat().st_size) for name in names}
    except (InputError, PermissionError):
        raise
    except _DAMAGE as error:
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(f"{type(error).__name__}: {text}") from None


def _read(archive: zipfile.ZipFile, name: str, file_size: int) -> bytes:
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
        raise InputError(f"{name!r} is compressed or encrypted in a way that riskad never does")
    most = max(_expansion(name) * info.compress_size, _SMALL)
    if info.compress_size > file_size or info.file_size > most:
        raise InputError(
            f"{name!r} says that it becomes {info.file_size:,} bytes from {info.compress_size:,}"
        )
    with archive.open(info) as member:
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise InputError(f"{name!r} is not as long as it says")
    return data
