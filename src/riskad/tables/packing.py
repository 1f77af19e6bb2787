"""Packed files, read as if they were not: gzip, bzip2, xz, zstandard, zip."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables.paths import Place

__all__ = ["open_bytes", "unpacked_size"]

_SAMPLE_BYTES = 1 << 22
_PACKED_BYTES = 1 << 16  # few: they may become a thousand times as many
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)


@contextmanager
def open_bytes(place: Place) -> Iterator[IO[bytes]]:
    """Open a file to be read, unpacked if its ending says that it is packed."""
    with open(place.path, "rb") as file:
        if not place.packing:
            yield file
            return
        with _unpacked(file, place) as unpacked:
            yield unpacked


@contextmanager
def _unpacked(file: IO[bytes], place: Place) -> Iterator[IO[bytes]]:
    """What unpackers raise on damaged files becomes an `InputError`."""
    with _errors(place):
        opened = _zip_member(file, place) if place.packing == ".zip" else _OPEN[place.packing](file)
    with opened:
        yield cast(IO[bytes], _Checked(opened, place))


class _Checked(io.RawIOBase):
    """Reads from an unpacker; only its own errors are taken for damage."""

    def __init__(self, file: Any, place: Place):
        self._file, self._place = file, place

    def read(self, size: int = -1) -> bytes:
        with _errors(self._place):
            found: bytes = self._file.read(size)
            return found


@contextmanager
def _errors(place: Place) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        kind = place.packing[1:].replace("gz", "gzip")
        raise InputError(f"{place.name!r} could not be unpacked as {kind} ({error}).") from error


def _zip_member(file: IO[bytes], place: Place) -> IO[bytes]:
    archive, part = zipfile.ZipFile(file), place.part or ""
    if archive.getinfo(part).flag_bits & 1:
        raise InputError(f"{part!r} in {place.name!r} has a password; unpack it first.")
    return archive.open(part)


class _Zstandard(io.RawIOBase):
    """Unpacks frame after frame, and knows when the last one was cut short."""

    def __init__(self, file: IO[bytes]):
        try:
            import zstandard
        except ImportError as error:
            raise MissingLibrary(
                "Reading .zst files needs zstandard: pip install 'riskad[zstd]'."
            ) from error
        self._file, self._library = file, zstandard
        self._frame: Any = None

    def read(self, size: int = -1) -> bytes:
        """At least `size` bytes, or what is left."""
        found, length = [], 0
        while (size < 0 or length < size) and (part := self._next()) is not None:
            found.append(part)
            length += len(part)
        return b"".join(found)

    def _next(self) -> bytes | None:
        packed = b""
        if self._frame is not None and self._frame.eof:
            packed, self._frame = self._frame.unused_data, None
        packed = packed or self._file.read(_PACKED_BYTES)
        if not packed:
            if self._frame is not None:
                raise EOFError("the file ended before its last frame did")
            return None
        self._frame = self._frame or self._library.ZstdDecompressor().decompressobj()
        try:
            part: bytes = self._frame.decompress(packed)
        except self._library.ZstdError as error:
            raise OSError(str(error)) from error
        return part


_OPEN: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _Zstandard,
}


def unpacked_size(place: Place) -> float:
    """Bytes of a file when unpacked, by its first ones."""
    size = place.path.stat().st_size
    if not place.packing:
        return size
    if place.packing == ".zip":
        with zipfile.ZipFile(place.path) as archive:
            return archive.getinfo(place.part or "").file_size
    with open(place.path, "rb") as packed, _unpacked(packed, place) as file:
        unpacked = len(file.read(_SAMPLE_BYTES))
        return size * unpacked / max(packed.tell(), 1)
