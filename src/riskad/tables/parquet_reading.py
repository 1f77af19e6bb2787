"""Tables out of Parquet files, read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import polars as pl

from riskad.core.checks import InputError
from riskad.rows.parquet_files import ParquetSchema, empty_batch, parquet_errors, record_batches

__all__ = ["parquet_batches", "parquet_size", "parquet_types"]

# Large enough that the cost of a batch does not show, small enough to forget.
_BATCH_CELLS = 1 << 19
_SAMPLE_ROWS = 10_000


def parquet_batches(path: Path) -> Iterator[pl.DataFrame]:
    """Read the rows of a file in batches; at least one, without rows if the file has none."""
    with parquet_errors(path):
        schema = ParquetSchema.of(path)
        size = max(_BATCH_CELLS // max(len(schema.types), 1), 1)
        if not sum(schema.group_rows):
            yield _frame(empty_batch(path))
        for batch in record_batches(path, size, threads=True):
            yield _frame(batch)


def parquet_types(path: Path) -> pl.Schema:
    """The columns of a file with their types."""
    with parquet_errors(path):
        ParquetSchema.of(path)
        return _frame(empty_batch(path)).schema


def parquet_size(path: Path) -> float:
    """Bytes of the table in memory, by its first rows."""
    with parquet_errors(path):
        n_rows = sum(ParquetSchema.of(path).group_rows)
        for batch in record_batches(path, _SAMPLE_ROWS):
            return _frame(batch).estimated_size() * n_rows / max(batch.num_rows, 1)
    return 0.0


def _frame(batch: Any) -> pl.DataFrame:
    with _conversion_errors():
        return cast(pl.DataFrame, pl.from_arrow(batch))


@contextmanager
def _conversion_errors() -> Iterator[None]:
    """Types of Arrow that polars lacks."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InputError(
            f"a column has a type that is not understood ({str(error).splitlines()[0]}). "
            "Write it as numbers, text or dates."
        ) from error
