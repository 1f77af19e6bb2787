"""Tables of DuckDB databases, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import cast

import polars as pl

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables.csv_reading import first_line
from riskad.tables.database_reading import choose_table, quote_name
from riskad.tables.paths import Place

__all__ = ["duckdb_batches"]

_BATCH_CELLS = 1 << 19
_TABLES = """
SELECT table_name FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
"""


def duckdb_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read the rows of a table or view in batches; at least one, without rows if there are none."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingLibrary(
            "Reading DuckDB files needs duckdb: pip install 'riskad[duckdb]'. Or write the table "
            "as Parquet."
        ) from error
    try:
        with closing(duckdb.connect(str(place.path), read_only=True)) as database:
            names = [name for (name,) in database.execute(_TABLES).fetchall()]
            table = database.table(quote_name(choose_table(place, names)))
            reader = table.to_arrow_reader(max(_BATCH_CELLS // len(table.columns), 1))
            yield cast(pl.DataFrame, pl.from_arrow(reader.schema.empty_table()))
            for batch in reader:
                yield cast(pl.DataFrame, pl.from_arrow(batch))
    except duckdb.Error as error:
        raise InputError(
            f"{place.name!r} could not be read as DuckDB ({first_line(error)})."
        ) from error
