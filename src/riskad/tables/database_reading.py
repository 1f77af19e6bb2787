"""Tables of SQLite databases, some rows at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from riskad.core.checks import InputError, enumerate_names
from riskad.tables.paths import Place

__all__ = ["choose_table", "quote_name", "sqlite_batches", "sqlite_size"]

_BATCH_CELLS = 1 << 19


def choose_table(place: Place, tables: Sequence[str]) -> str:
    """The table that is named, or the only one."""
    if place.part is None and len(tables) == 1:
        return tables[0]
    if not tables:
        raise InputError(f"{place.name!r} holds no table.")
    if place.part is None:
        raise InputError(
            f"{place.name!r} holds {len(tables)} tables ({enumerate_names(tables)}); say which is "
            f"meant: {place.name}::{tables[0]}"
        )
    if place.part not in tables:
        raise InputError(
            f"{place.name!r} has no table {place.part!r}; its tables are {enumerate_names(tables)}."
        )
    return place.part


def quote_name(name: str) -> str:
    """A name as SQL writes it, whatever it holds.

    >>> print(quote_name('the "best" table'))
    "the ""best"" table"
    """
    return '"' + name.replace('"', '""') + '"'


def sqlite_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read the rows of a table or view in batches; at least one, without rows if there are none."""
    with _opened(place) as (database, table):
        schema = _schema(database, table)
        size = max(_BATCH_CELLS // len(schema), 1)
        cursor = database.execute(f"SELECT * FROM {table}")
        rows = cursor.fetchmany(size)
        while True:
            yield _frame(rows, schema)
            rows = cursor.fetchmany(size)
            if not rows:
                return


def sqlite_size(place: Place) -> float:
    """Bytes of the table in memory, by its first rows."""
    with _opened(place) as (database, table):
        ((n_rows,),) = database.execute(f"SELECT count(*) FROM {table}")
    first = next(sqlite_batches(place))
    return first.estimated_size() * n_rows / max(first.height, 1)


@contextmanager
def _opened(place: Place) -> Iterator[tuple[sqlite3.Connection, str]]:
    """The database, to be read only, and the name of the table in it, quoted."""
    try:
        with closing(_connect(place.path)) as database:
            found = database.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
            )
            yield database, quote_name(choose_table(place, [name for (name,) in found]))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names and SQL may be damaged, too
        raise InputError(f"{place.name!r} could not be read as SQLite ({error}).") from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _schema(database: sqlite3.Connection, table: str) -> dict[str, Any]:
    """Types that hold all values of each column: in SQLite each value has a type of its own."""
    names = [each[0] for each in database.execute(f"SELECT * FROM {table} LIMIT 0").description]
    if len(set(names)) < len(names):
        raise InputError(f"{table} has columns of the same name: {enumerate_names(names)}.")
    schema = {}
    for name in names:
        column = quote_name(name)
        found = database.execute(f"SELECT DISTINCT typeof({column}) FROM {table}")
        schema[name] = _type({kind for (kind,) in found} - {"null"}, name)
    return schema


def _type(kinds: set[str], name: str) -> Any:
    if "blob" in kinds and len(kinds) > 1:
        raise InputError(
            f"Column {name!r} holds bytes and other values; leave it out by a view of the table."
        )
    if "text" in kinds:
        return pl.String
    if "blob" in kinds:
        return pl.Binary
    return pl.Float64 if "real" in kinds else pl.Int64 if kinds else pl.Null


def _frame(rows: list[tuple[Any, ...]], schema: dict[str, Any]) -> pl.DataFrame:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    series = []
    for (name, type_), cells in zip(schema.items(), columns, strict=True):
        texts = type_ == pl.String
        values = [None if v is None else str(v) for v in cells] if texts else list(cells)
        series.append(pl.Series(name, values, dtype=type_, strict=False))
    return pl.DataFrame(series)
