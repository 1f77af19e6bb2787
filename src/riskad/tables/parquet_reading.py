"""Parquet files, read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError
from riskad.rows.parquet_pages import DamagedPage, check_pages
from riskad.tables.csv_reading import first_line

__all__ = ["BATCH_MULTIPLE", "parquet_batches", "parquet_errors"]


# Batches: large enough that the cost of each does not show, small enough to forget.
_BATCH_CELLS = 1 << 19
# Products of a matrix come out to the last bit as over the whole table if batches are multiples
# of what BLAS takes at once.
BATCH_MULTIPLE = 64


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into an `InputError`."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, DamagedPage) as error:
        raise InputError(
            f"{path.name!r} could not be read as Parquet ({first_line(error)}). "
            "It may be cut short, or another kind of file under this name."
        ) from error


def parquet_batches(path: Path) -> Iterator[pl.DataFrame]:
    """Slices of the file: each decodes the row groups it touches and no others."""
    with parquet_errors(path):
        check_pages(path)
        scan = pl.scan_parquet(path, glob=False)
        n_rows = int(scan.select(pl.len()).collect().item())
        n_columns = max(len(scan.collect_schema()), 1)
    wanted = max(_BATCH_CELLS // n_columns, 1)
    step = -(-wanted // BATCH_MULTIPLE) * BATCH_MULTIPLE
    for start in range(0, max(n_rows, 1), step):
        with parquet_errors(path):
            batch = scan.slice(start, step).collect()
        yield batch
