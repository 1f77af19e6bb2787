"""Scored rows into tables of databases, in one transaction."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import polars as pl

from riskad.core.checks import InputError, enumerate_names
from riskad.storage.files import check_output_file
from riskad.tables.columns import check_columns, is_flat, to_text
from riskad.tables.database_reading import quote_name
from riskad.tables.targets import Spool, Target, check_same_columns, without_known

__all__ = ["DatabaseTarget", "SqliteTarget"]

D = TypeVar("D")
_WAIT = 60.0  # seconds for another process that writes to the database


class DatabaseTarget(Target, Generic[D]):
    """A table of a database.

    Parameters
    ----------
    path, table
        The file, which need not exist, and the table in it.
    id, mode
        See `Target`.
    """

    def __init__(self, path: Path, table: str, id: str | None, mode: str):
        super().__init__(f"{path.name}::{table}", id, mode)
        self.path, self.table = path, table
        self._known = pl.Series("id", [], dtype=pl.String)

    @abstractmethod
    def reading(self) -> Any:
        """Open the database, to be read only; a context."""

    @abstractmethod
    def changing(self) -> Any:
        """Open the database in a transaction that the end of the block commits; a context."""

    @abstractmethod
    def columns(self, database: D) -> list[str] | None:
        """Return the columns of the table; None if there is no such table."""

    @abstractmethod
    def ids(self, database: D) -> pl.Series:
        """Return the ids of all rows of the table, as text."""

    @abstractmethod
    def create(self, database: D, frame: pl.DataFrame) -> None:
        """Make the table, with the columns of a frame."""

    @abstractmethod
    def insert(self, database: D, frame: pl.DataFrame) -> None:
        """Add rows."""

    def check(self) -> None:
        """Look at what is there, and remember which rows."""
        check_output_file(self.path, force=True)
        if not (self.path.exists() and self.path.stat().st_size):
            return
        with self.reading() as database:
            there = self.columns(database)
            self._check_mode(there)
            if there is not None and self.mode == "add":
                self._known = self._ids(database, there)

    def _check_mode(self, there: Sequence[str] | None) -> None:
        if there is not None and self.mode == "new":
            raise InputError(
                f"{self.name!r} exists already and was left as it is. Add rows that it lacks by "
                "since='auto', replace it with force=True, or name another table."
            )

    def _ids(self, database: D, there: Sequence[str]) -> pl.Series:
        assert self.id is not None
        check_columns([self.id], there)
        return self.ids(database)

    def lacking(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose id was not in the table when the run began."""
        return frame if self.id is None else without_known(frame, self.id, self._known)

    def take(self, frames: Spool) -> None:
        """Add all frames in one transaction.

        Rows that another process has added since are left out.
        """
        with self.changing() as database:
            there = self.columns(database)
            self._check_mode(there)
            if there is not None and self.mode == "replace":
                database.execute(f"DROP TABLE {quote_name(self.table)}")
                there = None
            known = self._known.clear()
            if there is not None:
                known = self._ids(database, there)
            for frame in frames:
                if there is None:
                    _check_names([self.table, *frame.columns], self.name)
                    self.create(database, frame)
                    there = frame.columns
                check_same_columns(there, frame, self.name)
                if self.id is not None:
                    frame = without_known(frame, self.id, known)
                if frame.height:
                    self.insert(database, frame.select(there))


def _check_names(names: Sequence[str], target: str) -> None:
    """Refuse names that no database can hold."""
    cut = [name for name in names if "\0" in name]
    if cut:
        raise InputError(
            f"The names {enumerate_names(cut)} hold a zero byte, which {target!r} cannot; rename "
            "them, or write to a file such as Parquet."
        )


class SqliteTarget(DatabaseTarget[sqlite3.Connection]):
    """A table of SQLite. Dates and times are written as ISO 8601 text, yes and no as 1 and 0."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open the database, to be read only."""
        with self._opened(f"{self.path.absolute().as_uri()}?mode=ro") as database:
            yield database

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that no other process can write in; commit it at the end."""
        with self._opened(self.path.absolute().as_uri()) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextmanager
    def _opened(self, address: str) -> Iterator[sqlite3.Connection]:
        try:
            opened = sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)
            with closing(opened) as database:
                yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self.name!r}: SQLite says {str(error)!r}.") from error

    def columns(self, database: sqlite3.Connection) -> list[str] | None:
        """Return the columns of the table; None if there is no such table."""
        found = database.execute("SELECT name FROM pragma_table_info(?)", [self.table])
        return [name for (name,) in found] or None

    def ids(self, database: sqlite3.Connection) -> pl.Series:
        """Return the ids of all rows of the table, as text."""
        column, table = quote_name(str(self.id)), quote_name(self.table)
        found = database.execute(f"SELECT CAST({column} AS TEXT) FROM {table}")
        return pl.Series("id", [id for (id,) in found], dtype=pl.String)

    def create(self, database: sqlite3.Connection, frame: pl.DataFrame) -> None:
        """Make the table, with the columns of a frame."""
        columns = [f"{quote_name(column.name)} {_sqlite_type(column.dtype)}" for column in frame]
        database.execute(f"CREATE TABLE {quote_name(self.table)} ({', '.join(columns)})")

    def insert(self, database: sqlite3.Connection, frame: pl.DataFrame) -> None:
        """Add rows."""
        names = ", ".join(map(quote_name, frame.columns))
        places = ", ".join("?" * frame.width)
        rows = pl.DataFrame([_sqlite_values(column, self.name) for column in frame]).iter_rows()
        database.executemany(
            f"INSERT INTO {quote_name(self.table)} ({names}) VALUES ({places})", rows
        )


def _sqlite_type(dtype: pl.DataType) -> str:
    if dtype.is_integer() or dtype == pl.Boolean:
        return "INTEGER"
    if dtype.is_numeric():
        return "REAL"
    return "BLOB" if dtype == pl.Binary else "TEXT"


def _sqlite_values(column: pl.Series, name: str) -> pl.Series:
    """The values of a column as SQLite can hold them."""
    if column.dtype == pl.Boolean:
        return column.cast(pl.Int64)
    if column.dtype in (pl.Binary, pl.Null) or column.dtype.is_integer():
        return column
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if not is_flat(column):
        raise InputError(
            f"Columns {enumerate_names([column.name])} hold lists or structures, which {name!r} "
            "cannot; write to DuckDB or to Parquet."
        )
    return to_text(column)
