"""Which files are tables: their names, their endings, and those that a folder or pattern means."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from riskad.core.checks import InputError, enumerate_names
from riskad.rows.parquet_files import find_parquet
from riskad.storage.files import check_input_file

__all__ = [
    "DATABASES",
    "PIPE",
    "READABLE",
    "WRITABLE",
    "Place",
    "check_is_text",
    "check_readable",
    "check_table_name",
    "file_of",
    "find_tables",
    "is_duckdb",
    "known_separator",
    "nothing_in",
]

PIPE = "-"
"""Standard input or output, in place of a path."""

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".sqlite": "database",
    ".sqlite3": "database",
    ".duckdb": "database",
    ".db": "database",
}
DATABASES = tuple(ending for ending, kind in _FORMATS.items() if kind == "database")
_TEXTS = tuple(ending for ending, kind in _FORMATS.items() if kind in ("csv", "json"))
_PACKINGS = (".gz", ".bz2", ".xz", ".zst", ".zip")
READABLE = (*_FORMATS, *(text + packing for text in _TEXTS for packing in _PACKINGS), ".zip")
WRITABLE = (".csv", ".tsv", ".xlsx", ".parquet", ".pq")
_INSIDE = "::"  # between a file and the sheet, table or member that is meant
_MAGIC = {
    b"PAR1": ".parquet",
    b"SQLite format 3\0": ".sqlite",
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
}


@dataclass(frozen=True)
class Place:
    """Where a table is: a file, what its ending says, and the sheet, table or member in it."""

    path: Path
    ending: str
    part: str | None = None
    name: str = ""

    @property
    def format(self) -> str:
        """One of csv, json, parquet, excel, database."""
        return _FORMATS[self.ending.removesuffix(self.packing)]

    @property
    def packing(self) -> str:
        """The ending that says how the file is packed; empty if it is not."""
        return next((packing for packing in _PACKINGS if self.ending.endswith(packing)), "")


def check_table_name(
    path: str | os.PathLike[str], endings: tuple[str, ...] = WRITABLE
) -> tuple[Path, str]:
    """Return `path` and which of `endings` it has; the ending says the format.

    >>> check_table_name("cards.CSV")[1]
    '.csv'
    """
    path = Path(path)
    for ending in sorted(endings, key=len, reverse=True):
        if path.name.lower().endswith(ending):
            return path, ending
    listed = [each for each in endings if each == ".zip" or not each.endswith(_PACKINGS)]
    packed = " (text also packed: .csv.gz, .csv.zst, ...)" if len(listed) < len(endings) else ""
    raise InputError(
        f"{path.name!r} is no kind of table that riskad knows: the name must end in one of "
        f"{', '.join(listed)}{packed}. Another program can save it as CSV."
    )


def file_of(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The file, and the sheet, table or member in it that is meant.

    >>> file_of("cards.xlsx::March")
    (PosixPath('cards.xlsx'), 'March')
    """
    file, mark, part = str(path).rpartition(_INSIDE)
    return (Path(path), None) if not mark or Path(path).exists() else (Path(file), part)


def find_tables(given: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that are meant: a folder means the Parquet files in it, a pattern what it matches.

    >>> find_tables(["cards.csv"])
    [PosixPath('cards.csv')]
    """
    found: list[Path] = []
    for item in given:
        path = Path(item)
        inside = file_of(path)[1] is not None
        plain = inside or path.is_file() or not (path.is_dir() or glob.has_magic(str(item)))
        found += [path] if plain else find_parquet(item)
    return found


def check_readable(path: str | os.PathLike[str] | Place) -> Place:
    """Return where a table is, if it can be read; "-" is standard input, kept in a file."""
    if isinstance(path, Place):
        return path
    if str(path) == PIPE:
        return _standard_input()
    path, part = file_of(path)
    path, ending = check_table_name(check_input_file(path), READABLE)
    if path.stat().st_size == 0:
        raise nothing_in(path.name)
    if ending.endswith(".zip"):
        part = _member(path, part)
        ending = f"{check_table_name(part, _TEXTS)[1]}.zip"
    place = Place(path, ending, part, path.name)
    if part is not None and not place.packing and place.format not in ("excel", "database"):
        raise InputError(
            f"{path.name!r} holds one table: leave out {_INSIDE + part!r}. Only workbooks, "
            "databases and zip archives hold several."
        )
    return place


def _member(path: Path, part: str | None) -> str:
    """The file in a zip archive that is named, or the only one."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path.name!r} could not be unpacked as zip ({error}).") from error
    members = [member for member in members if not member.startswith("__MACOSX/")]
    if part in members or (part is None and len(members) == 1):
        return part or members[0]
    if not members:
        raise nothing_in(path.name)
    holds = "1 file" if len(members) == 1 else f"{len(members)} files"
    missing = "" if part is None else f", and no {part!r}"
    raise InputError(
        f"{path.name!r} holds {holds} ({enumerate_names(members, 4)}){missing}; say which is "
        f"meant: {path.name}{_INSIDE}{members[0]}"
    )


def _standard_input() -> Place:
    """Keep what is piped into this process, so that it can be gone through more than once."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            f"{PIPE!r} is standard input, and nothing is piped into it. Give the path of a table, "
            f"or pipe one: cat new.csv | riskad score model.riskad {PIPE} -o {PIPE}"
        )
    with tempfile.NamedTemporaryFile(prefix="riskad-", delete=False) as file:
        path = Path(file.name)
        try:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        except BaseException:
            path.unlink()
            raise
    name = "standard input"
    place = Place(path, _ending_of(path, name), name=name)
    weakref.finalize(place, path.unlink, missing_ok=True)
    return place


def _ending_of(path: Path, name: str) -> str:
    """The ending that a file should have, by its first bytes."""
    with open(path, "rb") as file:
        start = file.read(4096)
    try:
        if not start:
            raise nothing_in(name)
        found = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), None)
        if found in _PACKINGS and not (found == ".zip" and _is_workbook(path)):
            raise InputError(
                f"What comes through {name} is packed ({found}). Give the path of the file, or "
                "unpack it before the pipe."
            )
    except InputError:
        path.unlink()
        raise
    if found is not None:
        return ".xlsx" if found == ".zip" else found
    return ".jsonl" if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else ".csv"


def check_is_text(start: bytes, name: str) -> None:
    """Fail if a file that should be text begins as another kind of file does."""
    found = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), None)
    if found is not None:
        what = ".xlsx (a workbook) or .zip" if found == ".zip" else found
        raise InputError(
            f"{name!r} is no text: its first bytes are those of a {what} file. Give it that ending."
        )


def _is_workbook(path: Path) -> bool:
    """Whether a zip archive is an Excel workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def is_duckdb(place: Place) -> bool:
    """Whether a database is one of DuckDB, by its first bytes, else by its ending."""
    with open(place.path, "rb") as file:
        start = file.read(16)
    return start[8:12] == b"DUCK" or (place.ending == ".duckdb" and not start.startswith(b"SQLite"))


def known_separator(ending: str) -> str | None:
    """The separator that an ending stands for; None where the lines tell."""
    return "\t" if "tsv" in ending else None


def nothing_in(name: str) -> InputError:
    """The error about a file without content."""
    return InputError(f"{name!r} is empty: there is no header line and no row in it.")
