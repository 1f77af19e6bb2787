"""Where a table is: a file, what its name says about it, and its bytes, unpacked.

`cards.csv.gz` is a packed text, `cards.xlsx::March` a sheet, `cards.sqlite::payments` a table of a
database, `-` standard input, and `scored/day=2026-11-17/` a folder whose name is a column.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from riskad.core.checks import InputError, required
from riskad.files.atomic import check_input_file
from riskad.files.remote import (
    address,
    check_no_secret,
    file_size,
    is_file,
    is_folder,
    is_remote,
    open_stream,
)
from riskad.rows.parquet_files import find_parquet
from riskad.tables.pictures import is_picture_folder

PIPE = "-"
"""Standard input or output, in place of a path."""

_ENDINGS = {
    "csv": (".csv", ".tsv", ".txt"),
    "json": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "excel": (".xlsx",),
    "database": (".sqlite", ".sqlite3", ".duckdb", ".db"),
}
_FORMATS = {ending: format for format, endings in _ENDINGS.items() for ending in endings}
_PACKINGS = (".gz", ".zst")
_TEXTS = (*_ENDINGS["csv"], *_ENDINGS["json"])
DATABASES = _ENDINGS["database"]
_FORMATS |= {text + packing: _FORMATS[text] for text in _TEXTS for packing in _PACKINGS}
READABLE = tuple(_FORMATS)
WRITABLE = (".csv", ".tsv", ".xlsx", ".parquet", ".pq")
_INSIDE = "::"  # between a file and the sheet or table in it
_MAGIC = {
    b"PAR1": ".parquet",
    b"SQLite format 3\0": ".sqlite",
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".xlsx",
}
# Few: 4 bytes of Zstandard may become 128 KB.
_PACKED_BYTES = 1 << 14
_SAMPLE_BYTES = 1 << 22


@dataclass(frozen=True)
class Place:
    """Where a table is: a file, what its ending says, and the sheet or table in it."""

    path: Path
    ending: str
    part: str | None = None
    name: str = ""

    @property
    def format(self) -> str:
        """One of csv, json, parquet, excel, database, or pictures: a folder of them."""
        return _FORMATS[self.ending] if self.ending else "pictures"

    @property
    def separator(self) -> str:
        """The separator that the ending stands for; empty where the lines tell."""
        return "\t" if "tsv" in self.ending else ""


def check_table_name(
    path: str | os.PathLike[str], endings: tuple[str, ...] = WRITABLE
) -> tuple[Path, str]:
    """Return `path` and which of `endings` it has; the ending says the format."""
    path = Path(path)
    for ending in sorted(endings, key=len, reverse=True):
        if path.name.lower().endswith(ending):
            return path, ending
    raise InputError(
        f"{path.name!r} is not a kind of table that riskad knows: its name must end in one of "
        f"{', '.join(endings)}. Another program can save it as CSV."
    )


def file_of(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The file, and the sheet or table in it that is meant."""
    file, mark, part = str(path).rpartition(_INSIDE)
    return (Path(path), None) if not mark or Path(path).exists() else (Path(file), part)


def find_tables(names: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that are meant: a folder means its Parquet files, a pattern what it matches.

    A folder of pictures is one table.
    """
    files: list[Path] = []
    for path in map(Path, names):
        inside = file_of(path)[1] is not None
        check_no_secret(path)
        if inside or is_picture_folder(path) or is_file(path):
            files.append(path)
        else:
            several = is_folder(path) or glob.has_magic(str(path))
            files += find_parquet(path) if several else [path]
    return files


def check_readable(path: str | os.PathLike[str] | Place) -> Place:
    """Return where a table is, if it can be read; "-" is standard input, kept in a file."""
    if isinstance(path, Place):
        return path
    if str(path) == PIPE:
        return _standard_input()
    path, part = file_of(path)
    if is_picture_folder(path):
        return Place(path, "", name=path.name)
    path, ending = check_table_name(check_input_file(path), READABLE)
    if file_size(path) == 0:
        raise empty_file_error(path.name)
    place = Place(path, ending, part, path.name)
    if is_remote(path) and place.format in ("excel", "database"):
        raise InputError(
            f"{address(path)!r} can only be read on this machine: copy it here. Parquet, CSV and "
            "JSON lines are read where they are."
        )
    if part is not None and place.format not in ("excel", "database"):
        raise InputError(
            f"{path.name!r} holds one table: leave out {_INSIDE + part!r}. Only workbooks and "
            "databases hold several."
        )
    return place


def _standard_input() -> Place:
    """Keep what is piped into this process, so that it can be gone through more than once."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            f"{PIPE!r} is standard input, and nothing is piped into it. Give the path of a table, "
            f"or pipe one: cat new.csv | riskad score model.riskad {PIPE} -o {PIPE}"
        )
    start = sys.stdin.buffer.read(4096)
    if not start:
        raise empty_file_error("standard input")
    text = ".jsonl" if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else ".csv"
    ending = ending_by_magic(start) or text
    if ending in _PACKINGS:
        raise InputError(
            f"What comes through standard input is packed ({ending}). Give the path of the file, "
            "or unpack it before the pipe."
        )
    with tempfile.NamedTemporaryFile(prefix="riskad-", delete=False) as file:
        place = Place(Path(file.name), ending, name="standard input")
        weakref.finalize(place, place.path.unlink, missing_ok=True)
        file.write(start)
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    return place


def ending_by_magic(start: bytes) -> str | None:
    """The ending of files that begin so; None for texts."""
    return _MAGIC.get(next(filter(start.startswith, _MAGIC), b""))


def is_duckdb(place: Place) -> bool:
    """Whether a database is one of DuckDB, by its first bytes, else by its ending."""
    start = b""
    with suppress(FileNotFoundError), open(place.path, "rb") as file:
        start = file.read(16)
    return start[8:12] == b"DUCK" or (place.ending == ".duckdb" and not start.startswith(b"SQLite"))


def empty_file_error(name: str) -> InputError:
    """The error about a file without content."""
    return InputError(f"{name!r} is empty: there is no header line and no row in it.")


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# --- bytes ------------------------------------------------------------------------------------


def read_blocks(place: Place, size: int) -> Iterator[bytes]:
    """The bytes of a file, `size` at a time, unpacked if its ending says so."""
    with open_stream(place.path) as file:
        if not place.ending.endswith(_PACKINGS):
            while text := file.read(size):
                yield text
            return
        block = bytearray()
        for part in _unpack(file, place):
            block += part
            while len(block) >= size:
                yield bytes(block[:size])
                del block[:size]
        yield bytes(block)


def unpacked_size(place: Place) -> float:
    """Bytes of a file when unpacked, by its first ones."""
    size, unpacked = file_size(place.path), 0
    if not place.ending.endswith(_PACKINGS):
        return size
    with open_stream(place.path) as file:
        for part in _unpack(file, place):
            unpacked += len(part)
            if unpacked > _SAMPLE_BYTES:
                break
        return size * unpacked / max(file.tell(), 1)


def _unpack(file: IO[bytes], place: Place) -> Iterator[bytes]:
    """Unpack frame after frame; one that is damaged or cut short is an `InputError`."""
    library_error: type[Exception] = zlib.error
    new_frame: Callable[[], Any] = partial(zlib.decompressobj, wbits=31)  # with the header of gzip
    if place.ending.endswith(".zst"):
        with required("Reading .zst files needs zstandard: pip install 'riskad[zstd]'."):
            import zstandard
        library_error, new_frame = zstandard.ZstdError, zstandard.ZstdDecompressor().decompressobj
    frame = None
    try:
        while packed := file.read(_PACKED_BYTES):
            while packed:
                frame = frame or new_frame()
                yield frame.decompress(packed)
                packed = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
        if frame is not None:
            raise EOFError("the file ended before its last frame did")
    except (library_error, EOFError) as error:
        raise InputError(f"{place.name!r} could not be unpacked ({error}).") from error


# --- folders whose names are columns, as Hive, Spark and DuckDB write them ------------------------

_HIVE_FOLDER = re.compile(r"([^\W\d]\w*)=(.+)", re.ASCII)
_HIVE_BLANK = "__HIVE_DEFAULT_PARTITION__"


def hive_columns(path: Path) -> dict[str, str | None]:
    """The columns that the folders of a file name: day=2026-11-17/shop=a%2Fb/part.parquet."""
    matches = (_HIVE_FOLDER.fullmatch(part) for part in path.parts[:-1])
    values = {match[1]: unquote(match[2]) for match in matches if match is not None}
    return {name: None if value == _HIVE_BLANK else value for name, value in values.items()}


def hive_folder(name: str, value: str | None) -> str:
    """The name of the folder for rows that have a value."""
    return f"{name}={_HIVE_BLANK if value is None else quote(value, safe=' ')}"
