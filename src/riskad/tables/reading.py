"""Tables out of CSV and Parquet files, whole or in batches.

`read_batches` holds a few batches at a time, so that a file of any length can be read.
`read_table` needs it to fit in memory, and says so before it reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError, describe_column_difference
from riskad.rows.parquet_files import ENDINGS as _PARQUET
from riskad.rows.parquet_files import Paths
from riskad.tables.csv_reading import csv_batches, open_bytes
from riskad.tables.memory import check_memory
from riskad.tables.parquet_reading import parquet_batches, parquet_types
from riskad.tables.paths import check_readable, known_separator

__all__ = ["read_batches", "read_table"]

# Products of a matrix come out to the last bit as over the whole table if batches are multiples
# of what BLAS takes at once.
_BATCH_MULTIPLE = 64


def read_table(path: str | os.PathLike[str]) -> pl.DataFrame:
    r"""Read a CSV (every column as text, blank as null) or a Parquet file (its own types).

    Commas, semicolons, tabs and bars are told apart by the header line; rows that are blank
    from end to end are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cards.csv").write_text("card;amount\n007;1.50\n008;\n")
    ...     read_table(Path(folder, "cards.csv")).rows()
    [('007', '1.50'), ('008', None)]
    """
    path, ending = check_readable(path)
    check_memory(path)
    if ending in _PARQUET:
        return pl.concat(parquet_batches(path))
    with open_bytes(path, ending) as file:
        return pl.concat(csv_batches(file, path.name, known_separator(ending)))


def read_batches(paths: Paths) -> Iterable[pl.DataFrame]:
    r"""Read the rows that `read_table` reads, some at a time; the table need not fit in memory.

    What is returned can be gone through as often as you like, and reads the file each time. A
    mistake in the file is found when its batch is reached. There is at least one batch, without
    rows if the file has none.

    Several files come one after the other, as one table: they must have the same columns, each of
    one kind. Whole and other numbers are one kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cards.csv").write_text("card;amount\n007;1.50\n008;\n")
    ...     [batch.rows() for batch in read_batches(Path(folder, "cards.csv"))]
    [[('007', '1.50'), ('008', None)]]
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = [_Batches(*check_readable(path)) for path in several]
    return files[0] if len(files) == 1 else _Chained(files, _common_schema(files))


@dataclass(frozen=True)
class _Batches:
    """The rows of a file, some at a time."""

    path: Path
    ending: str

    def __iter__(self) -> Iterator[pl.DataFrame]:
        if self.ending in _PARQUET:
            yield from _multiples(parquet_batches(self.path))
            return
        with open_bytes(self.path, self.ending) as file:
            batches = csv_batches(file, self.path.name, known_separator(self.ending))
            yield from _multiples(batches)

    def schema(self) -> pl.Schema:
        """The columns and their types."""
        if self.ending in _PARQUET:
            return parquet_types(self.path)
        return next(iter(self)).schema


@dataclass(frozen=True)
class _Chained:
    """The rows of several files, one after the other."""

    files: Sequence[_Batches]
    schema: pl.Schema

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for file in self.files:
            for batch in file:
                yield batch.select(self.schema.names()).cast(self.schema)


def _common_schema(files: Sequence[_Batches]) -> pl.Schema:
    """The columns that all files have, with types that hold what each of them holds."""
    first, *others = files
    schema = first.schema()
    for file in others:
        found = file.schema()
        if set(found) != set(schema):
            raise InputError(
                f"{str(file.path)!r} has other columns than {str(first.path)!r}:\n"
                + describe_column_difference(schema.names(), found.names())
            )
        for name, there in found.items():
            here = schema[name]
            if here.is_numeric() and there.is_numeric() and here != there:
                schema[name] = pl.Float64()
            elif here == pl.Null:
                schema[name] = there
            elif there not in (here, pl.Null):
                raise InputError(
                    f"Column {name!r} is {here} in {str(first.path)!r} and {there} in "
                    f"{str(file.path)!r}. Write the files with one type for each column."
                )
    return schema


def _multiples(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Move the odd rows at the end of a frame to the next one."""
    rest = None
    for frame in frames:
        both = frame if rest is None else pl.concat([rest, frame])
        whole = both.height - both.height % _BATCH_MULTIPLE
        if whole:
            yield both[:whole]
        rest = both[whole:]
    if rest is not None:
        yield rest
