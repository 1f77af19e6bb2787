"""What a name of an output means: a file, a table of a database, or a folder by day."""

from __future__ import annotations

import os
from pathlib import Path

from riskad.core.checks import InputError
from riskad.tables.database_targets import SqliteTarget
from riskad.tables.duckdb_targets import DuckdbTarget
from riskad.tables.folder_target import FolderTarget
from riskad.tables.paths import DATABASES, Place, file_of, is_duckdb
from riskad.tables.targets import Target

__all__ = ["choose_target"]


def choose_target(
    path: str | os.PathLike[str],
    day: str | None = None,
    *,
    id: str | None = None,
    since: bool = False,
    force: bool = False,
) -> Target | None:
    """Return where rows are to be added, or None if a file is to be written.

    Parameters
    ----------
    path
        `scores.sqlite::scored` is a table of a database, and so is one of DuckDB; with `day` it is
        a folder; anything else is a file.
    day
        The column by whose day the rows of a folder are parted.
    id, since, force
        The column that names rows; whether rows are added to those there are; whether a table that
        is there may be replaced.

    Examples
    --------
    >>> choose_target("scored.csv") is None
    True
    >>> choose_target("scores.sqlite::scored").name
    'scores.sqlite::scored'
    """
    mode = "add" if since else "replace" if force else "new"
    file, table = file_of(path)
    ending = file.suffix.lower()
    if day is not None:
        if table is not None or ending:
            raise InputError(
                f"Rows are parted by day into a folder, and {str(path)!r} looks like a file. Name "
                "a folder, or leave day='...' out."
            )
        return FolderTarget(Path(path), day, id, mode)
    if ending not in DATABASES:
        if since:
            raise InputError(
                f"since='...' adds rows to those that are there, and {str(path)!r} is a file, "
                "which is written whole. Write to a table (scores.sqlite::scored, "
                "scores.duckdb::scored), or name the column of dates by which to part a folder: "
                "day='COLUMN'."
            )
        return None
    if not table:
        raise InputError(
            f"{str(path)!r} is a database; say into which table to write: {file.name}::scored"
        )
    place = Place(file, ending, table, file.name)
    there = file.is_file() and file.stat().st_size > 0
    duckdb = is_duckdb(place) if there else ending == ".duckdb"
    return (DuckdbTarget if duckdb else SqliteTarget)(file, table, id, mode)
