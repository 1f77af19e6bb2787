"""Tables of SQLite and DuckDB databases, some rows at a time."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import polars as pl

from riskad.core.checks import InputError, enumerate_names, required
from riskad.tables.cells import from_arrow
from riskad.tables.paths import Place, first_line, is_duckdb

_BATCH_CELLS = 1 << 19
# From the type that holds all others to the narrowest, and what polars calls them.
_SQLITE_TYPES = {"text": pl.String, "blob": pl.Binary, "real": pl.Float64, "integer": pl.Int64}
# Labelling and scoring may write to one file at the same time.
_WAIT = 60.0  # seconds for another process that writes to the database


@contextmanager
def open_database(place: Place, read_only: bool) -> Iterator[Any]:
    """Open a connection to SQLite, which commits nothing by itself, or to DuckDB."""
    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    if is_duckdb(place):
        with required(
            "DuckDB files need duckdb: pip install 'riskad[duckdb]'. Or use SQLite or Parquet."
        ):
            import duckdb
        library, errors = "DuckDB", (duckdb.Error,)
        # A view may name any file or address; a database that somebody sent reads only itself.
        alone: dict[str, Any] = {"enable_external_access": "false"}
        connect = partial(duckdb.connect, str(place.path), read_only=read_only, config=alone)
    else:
        library, errors = "SQLite", (sqlite3.Error, UnicodeDecodeError)  # names may be damaged, too
        address = place.path.absolute().as_uri() + ("?mode=ro" if read_only else "")
        connect = partial(sqlite3.connect, address, uri=True, timeout=_WAIT, isolation_level=None)
    try:
        with closing(connect()) as connection:
            yield connection
    except errors as error:
        verb = "read" if read_only else "written"
        raise InputError(
            f"{place.name!r} could not be {verb} as {library} ({first_line(error)})."
        ) from error


def quote_name(name: str) -> str:
    """A name as SQL writes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def table_names(database: Any) -> list[str]:
    """The tables and views of an open database; DuckDB has SQLite's list of them, too."""
    query = (
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    return [name for (name,) in database.execute(query).fetchall()]


def count_rows(place: Place) -> int:
    """How many rows the table has."""
    with _open_table(place) as (database, table):
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def database_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read the rows of a table or view in batches; at least one, without rows if there are none."""
    with _open_table(place) as (database, table):
        if is_duckdb(place):
            rows = database.table(table)
            # The name before 1.5 of the same method.
            read = getattr(rows, "to_arrow_reader", None) or rows.fetch_record_batch
            reader = read(max(_BATCH_CELLS // len(rows.columns), 1))
            for batch in itertools.chain([reader.schema.empty_table()], reader):
                yield from_arrow(batch, place.name)
            return
        schema = _sqlite_schema(database, table)
        cursor = database.execute(f"SELECT * FROM {table}")
        yield pl.DataFrame(schema=schema)
        while rows := cursor.fetchmany(max(_BATCH_CELLS // len(schema), 1)):
            yield pl.DataFrame(rows, schema=schema, orient="row", strict=False)


@contextmanager
def _open_table(place: Place) -> Iterator[tuple[Any, str]]:
    """The database, and the name, quoted, of the table that is named or the only one."""
    with open_database(place, read_only=True) as database:
        tables = table_names(database)
        if not tables:
            raise InputError(f"{place.name!r} holds no table.")
        table = place.part or (tables[0] if len(tables) == 1 else None)
        if table not in tables:
            problem = f"has no table {table!r}" if table else f"holds {len(tables)} tables"
            raise InputError(
                f"{place.name!r} {problem}; say which of {enumerate_names(tables)} is meant: "
                f"{place.name}::{tables[0]}"
            )
        yield database, quote_name(table)


def _sqlite_schema(database: sqlite3.Connection, table: str) -> dict[str, Any]:
    """Types that hold all values of each column: in SQLite each value has a type of its own."""
    names = [each[0] for each in database.execute(f"SELECT * FROM {table} LIMIT 0").description]
    if len(set(names)) < len(names):
        raise InputError(f"{table} has columns of the same name: {enumerate_names(names)}.")
    schema: dict[str, Any] = {}
    for name in names:
        query = f"SELECT DISTINCT typeof({quote_name(name)}) FROM {table}"
        types = {type_ for (type_,) in database.execute(query)} - {"null"}
        if "blob" in types and len(types) > 1:
            raise InputError(
                f"Column {name!r} holds bytes and other values; leave it out by a view of the "
                "table."
            )
        schema[name] = next((t for kind, t in _SQLITE_TYPES.items() if kind in types), pl.Null)
    return schema
