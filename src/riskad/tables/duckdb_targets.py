"""Scored rows into tables of DuckDB databases, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import polars as pl

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables.csv_reading import first_line
from riskad.tables.database_reading import quote_name
from riskad.tables.database_targets import DatabaseTarget
from riskad.tables.duckdb_reading import ALONE

__all__ = ["DuckdbTarget"]

_ROWS = "riskad_rows_to_add"


class DuckdbTarget(DatabaseTarget[Any]):
    """A table of DuckDB, with the types of the rows."""

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Open the database, to be read only."""
        with self._opened(read_only=True) as database:
            yield database

    @contextmanager
    def changing(self) -> Iterator[Any]:
        """Begin a transaction, and commit it at the end."""
        with self._opened(read_only=False) as database:
            database.execute("BEGIN TRANSACTION")
            yield database  # a connection that is closed before the commit rolls back
            database.execute("COMMIT")

    @contextmanager
    def _opened(self, read_only: bool) -> Iterator[Any]:
        try:
            import duckdb
        except ImportError as error:
            raise MissingLibrary(
                "Writing to DuckDB needs duckdb: pip install 'riskad[duckdb]'. Or write to SQLite."
            ) from error
        try:
            opened = duckdb.connect(str(self.path), read_only=read_only, config=ALONE)
            with closing(opened) as database:
                yield database
        except duckdb.Error as error:
            raise InputError(f"{self.name!r}: DuckDB says {first_line(error)!r}.") from error

    def columns(self, database: Any) -> list[str] | None:
        """Return the columns of the table; None if there is no such table."""
        found = database.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND schema_name = "
            "current_schema() AND database_name = current_database() ORDER BY column_index",
            [self.table],
        )
        return [name for (name,) in found.fetchall()] or None

    def ids(self, database: Any) -> pl.Series:
        """Return the ids of all rows of the table, as text."""
        column, table = quote_name(str(self.id)), quote_name(self.table)
        found = database.sql(f"SELECT CAST({column} AS VARCHAR) AS id FROM {table}")
        return pl.DataFrame(found.to_arrow_table()).to_series().cast(pl.String)

    def create(self, database: Any, frame: pl.DataFrame) -> None:
        """Make the table, with the columns of a frame."""
        database.register(_ROWS, frame.head(0).to_arrow())
        database.execute(f"CREATE TABLE {quote_name(self.table)} AS SELECT * FROM {_ROWS}")
        database.unregister(_ROWS)

    def insert(self, database: Any, frame: pl.DataFrame) -> None:
        """Add rows."""
        database.register(_ROWS, frame.to_arrow())
        database.execute(f"INSERT INTO {quote_name(self.table)} BY NAME SELECT * FROM {_ROWS}")
        database.unregister(_ROWS)
