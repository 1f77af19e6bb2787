"""Tables of DuckDB databases, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import polars as pl

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables.csv_reading import first_line
from riskad.tables.database_reading import choose_table, quote_name
from riskad.tables.paths import Place

__all__ = ["ALONE", "duckdb_batches", "duckdb_size"]

_BATCH_CELLS = 1 << 19
# A view may name any file or address; a database that somebody sent reads nothing but itself.
ALONE: dict[str, Any] = {"enable_external_access": "false"}
_TABLES = """
SELECT table_name FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
"""


def duckdb_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read the rows of a table or view in batches; at least one, without rows if there are none."""
    with _opened(place) as table:
        reader = table.to_arrow_reader(max(_BATCH_CELLS // len(table.columns), 1))
        yield cast(pl.DataFrame, pl.from_arrow(reader.schema.empty_table()))
        for batch in reader:
            yield cast(pl.DataFrame, pl.from_arrow(batch))


def duckdb_size(place: Place) -> float:
    """Bytes of the table in memory, by its first rows."""
    with _opened(place) as table:
        ((n_rows,),) = table.count("*").fetchall()
        reader = table.to_arrow_reader(max(_BATCH_CELLS // len(table.columns), 1))
        for batch in reader:
            first = cast(pl.DataFrame, pl.from_arrow(batch))
            return first.estimated_size() * n_rows / max(first.height, 1)
    return 0.0


@contextmanager
def _opened(place: Place) -> Iterator[Any]:
    """The table that is meant, in a database that is only read."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingLibrary(
            "Reading DuckDB files needs duckdb: pip install 'riskad[duckdb]'. Or write the table "
            "as Parquet."
        ) from error
    try:
        with closing(duckdb.connect(str(place.path), read_only=True, config=ALONE)) as database:
            names = [name for (name,) in database.execute(_TABLES).fetchall()]
            yield database.table(quote_name(choose_table(place, names)))
    except duckdb.Error as error:
        raise InputError(
            f"{place.name!r} could not be read as DuckDB ({first_line(error)})."
        ) from error
