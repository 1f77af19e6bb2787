"""Which files are tables: their names, their endings, and those that a folder or pattern means."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from riskad.core.checks import InputError
from riskad.rows.parquet_files import find_parquet
from riskad.storage.files import check_input_file

__all__ = [
    "READABLE",
    "WRITABLE",
    "check_readable",
    "check_table_name",
    "find_tables",
    "known_separator",
    "nothing_in",
]


READABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
WRITABLE = (".csv", ".tsv", ".parquet", ".pq")


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
    raise InputError(
        f"{path.name!r} is no kind of table that riskad knows: the name must end in one of "
        f"{', '.join(endings)}. (A spreadsheet can be saved as CSV.)"
    )


def find_tables(given: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that are meant: a folder means the Parquet files in it, a pattern what it matches.

    >>> find_tables(["cards.csv"])
    [PosixPath('cards.csv')]
    """
    found: list[Path] = []
    for item in given:
        path = Path(item)
        plain = path.is_file() or not (path.is_dir() or glob.has_magic(str(item)))
        found += [path] if plain else find_parquet(item)
    return found


def check_readable(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return `path` and its ending, if a table can be read from it."""
    path, ending = check_table_name(check_input_file(path), READABLE)
    if path.stat().st_size == 0:
        raise nothing_in(path.name)
    return path, ending


def known_separator(ending: str) -> str | None:
    """The separator that an ending stands for; None where the header tells."""
    return "\t" if "tsv" in ending else None


def nothing_in(name: str) -> InputError:
    """The error about a file without content."""
    return InputError(f"{name!r} is empty: there is no header line and no row in it.")
