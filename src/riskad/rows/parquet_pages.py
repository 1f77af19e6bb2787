"""Whether the pages of a Parquet file say of themselves what can be.

A decoder that believes a damaged page reserves memory for as many values as the page declares, and
a negative number of them ends the whole process, where no error can be caught. So page headers are
held against the footer before anything is decoded. They are written in Thrift's compact protocol:
a struct is a list of fields, each with its number and type. What is not understood here is left to
the decoder, which says so itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from riskad.core.checks import InputError

__all__ = ["DamagedPage", "check_pages"]

_MAGIC = b"PAR1"
_LARGEST_FOOTER = 1 << 20  # beyond it a footer takes long to read here
_MOST_PAGES = 10_000
_HEADER = 1 << 14
_DEEPEST = 20
# Numbers of fields.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_NUM_VALUES, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_PAGE_COMPRESSED, _DATA, _DATA_V2 = 3, 5, 8
_VALUES_OF_PAGE = 1


class DamagedPage(InputError):
    """A page that declares what cannot be."""


def check_pages(path: Path) -> None:
    """Refuse a file in which a page holds fewer values than none, or more than its column."""
    with open(path, "rb") as file:
        try:
            for chunk in _chunks(file):
                _check_chunk(file, chunk)
        except (_NotUnderstood, IndexError):
            return


class _NotUnderstood(Exception):
    """Bytes that are no structure of this kind."""


def _chunks(file: BinaryIO) -> Iterator[dict[int, Any]]:
    """What the footer says of each column of each group of rows."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < length <= min(size - 12, _LARGEST_FOOTER):
        raise _NotUnderstood
    file.seek(size - 8 - length)
    footer, _ = _struct(file.read(length), 0)
    for group in _of(footer, _ROW_GROUPS, list):
        for column in _of(_is(group, dict), _COLUMNS, list):
            yield _of(_is(column, dict), _META_DATA, dict)


def _check_chunk(file: BinaryIO, chunk: dict[int, Any]) -> None:
    n_values, length = _of(chunk, _NUM_VALUES, int), _of(chunk, _COMPRESSED, int)
    offsets = [chunk.get(key) for key in (_DATA_OFFSET, _DICTIONARY_OFFSET)]
    place = min((each for each in offsets if isinstance(each, int) and each > 0), default=0)
    end = min(place + length, file.seek(0, os.SEEK_END))
    for _ in range(_MOST_PAGES):
        if not 0 < place < end:
            return
        file.seek(place)
        header, used = _struct(file.read(_HEADER), 0)
        for kind in (_DATA, _DATA_V2):
            page = header.get(kind)
            found = page.get(_VALUES_OF_PAGE) if isinstance(page, dict) else 0
            if isinstance(found, int) and not 0 <= found <= max(n_values, 0):
                raise DamagedPage(
                    f"a page declares {found:,} values, where its column has {n_values:,}"
                )
        place += used + max(_of(header, _PAGE_COMPRESSED, int), 0)


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _NotUnderstood
    return value


def _of(struct: dict[int, Any], key: int, kind: type) -> Any:
    return _is(struct.get(key), kind)


# --- Thrift's compact protocol ------------------------------------------------------------


def _struct(data: bytes, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Fields by their numbers, and where the struct ends."""
    fields: dict[int, Any] = {}
    number = 0
    if depth > _DEEPEST:
        raise _NotUnderstood
    while data[place]:
        step, kind = divmod(data[place], 16)
        place += 1
        if step:
            number += step
        else:
            number, place = _signed(data, place)
        fields[number], place = _value(data, place, kind, depth)
    return fields, place + 1


def _value(data: bytes, place: int, kind: int, depth: int, listed: bool = False) -> tuple[Any, int]:
    if kind in (1, 2):  # true and false; in a list each takes a byte
        return (data[place] == 1, place + 1) if listed else (kind == 1, place)
    if kind == 3:
        return data[place], place + 1
    if kind in (4, 5, 6):
        return _signed(data, place)
    if kind == 7:
        _ = data[place + 7]  # it must be there: a list may declare any number of them
        return None, place + 8
    if kind == 8:
        length, place = _unsigned(data, place)
        return None, place + length
    if kind in (9, 10):
        return _list(data, place, depth)
    if kind == 12:
        return _struct(data, place, depth + 1)
    raise _NotUnderstood


def _list(data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
    size, kind = divmod(data[place], 16)
    place += 1
    if size == 15:
        size, place = _unsigned(data, place)
    found = []
    for _ in range(size):
        value, place = _value(data, place, kind, depth + 1, listed=True)
        found.append(value)
    return found, place


def _unsigned(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise _NotUnderstood


def _signed(data: bytes, place: int) -> tuple[int, int]:
    value, place = _unsigned(data, place)
    return (value >> 1) ^ -(value & 1), place
