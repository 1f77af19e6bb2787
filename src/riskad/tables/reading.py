"""Tables from files of many formats, whole or in batches.

`read_batches` holds a few batches at a time, so it can read files of any length. `read_table` needs
the table to fit in memory, and raises an error before reading if it does not.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from riskad.core.checks import InputError, describe_column_difference
from riskad.rows.parquet_files import Paths
from riskad.tables.csv_reading import CsvFormat, csv_batches, find_csv_format
from riskad.tables.database_reading import sqlite_batches
from riskad.tables.duckdb_reading import duckdb_batches
from riskad.tables.excel_reading import excel_table
from riskad.tables.hive import with_hive_columns
from riskad.tables.json_reading import json_batches
from riskad.tables.memory import check_place, estimate_rows
from riskad.tables.notes import ReadingNote, saying_once
from riskad.tables.packing import open_bytes
from riskad.tables.parquet_reading import parquet_batches, parquet_types
from riskad.tables.paths import Place, check_readable, is_duckdb, known_separator
from riskad.tables.totals import without_totals

__all__ = ["Batches", "csv_format", "read_batches", "read_table"]

# Products of a matrix equal those over the whole table to the last bit, if batches are multiples of
# the block size of BLAS.
_BATCH_MULTIPLE = 64


def read_table(path: str | os.PathLike[str] | Place) -> pl.DataFrame:
    r"""Read a table; the file name determines the format.

    ======================== ==================================================================
    CSV, TSV, text           Every column as text, blank as null. The separator (comma, semicolon,
                             tab or bar) and the header are found; UTF-8, UTF-16 and Windows-1252
                             are told apart.
    Excel                    Every column as text, but decimal numbers as such. The first sheet, or
                             `cards.xlsx::March`.
    JSON lines               Numbers, yes/no and text; objects inside become columns `shop.city`.
    Parquet                  Its own types. Folders such as `day=2026-11-17` become columns of text.
    SQLite, DuckDB           Their own types. The only table, or `cards.sqlite::payments`.
    ``-``                    Standard input, in any of these formats.
    ======================== ==================================================================

    Text may be compressed: `.gz`, `.bz2`, `.xz`, `.zst`, `.zip`. Completely blank rows are left
    out, and so is a last row of totals. A `riskad.tables.notes.ReadingNote` reports what was
    decided about a file (an encoding, lines above the header, names of columns).

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cards.csv").write_text("card;amount\n007;1.50\n008;\n")
    ...     read_table(Path(folder, "cards.csv")).rows()
    [('007', '1.50'), ('008', None)]
    """
    place = check_readable(path)
    check_place(place)
    with saying_once(set()):
        return pl.concat(_frames(place))


def read_batches(paths: Paths | Sequence[Place]) -> Batches:
    r"""Read the rows that `read_table` reads, in batches; the table need not fit in memory.

    You can iterate over the result as often as you like; each pass reads the file again. Its method
    `about_rows` estimates the number of rows by the first ones and the size of the file. A mistake
    in the file is found when its batch is reached. There is at least one batch, without rows if the
    file has none.

    Several files are read one after the other, as one table: they must have the same columns, each
    of one kind. Whole and other numbers are one kind.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cards.csv").write_text("card;amount\n007;1.50\n008;\n")
    ...     [batch.rows() for batch in read_batches(Path(folder, "cards.csv"))]
    [[('007', '1.50'), ('008', None)]]
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = [_Batches(check_readable(path)) for path in several]
    return files[0] if len(files) == 1 else _Chained(files, _common_schema(files))


def csv_format(places: Sequence[Place]) -> CsvFormat:
    """Return how CSV files are written; the usual format if they differ, or are no CSV."""
    with warnings.catch_warnings(action="ignore", category=ReadingNote):  # who reads them says it
        formats = {
            find_csv_format(each) if each.format == "csv" else CsvFormat() for each in places
        }
    return formats.pop() if len(formats) == 1 else CsvFormat()


def _frames(place: Place) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches, as its reader splits them."""
    if place.format == "csv":
        with open_bytes(place) as file:
            rows = csv_batches(file, place.name, known_separator(place.ending))
            yield from without_totals(rows, place.name)
    elif place.format == "json":
        yield from json_batches(place)
    elif place.format == "excel":
        yield from without_totals([excel_table(place)], place.name)
    elif place.format == "parquet":
        yield from (with_hive_columns(frame, place.path) for frame in parquet_batches(place.path))
    else:
        yield from (duckdb_batches if is_duckdb(place) else sqlite_batches)(place)


class Batches(Protocol):
    """The rows of a table in batches."""

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """Read the table."""

    def about_rows(self) -> float:
        """About how many rows there are, by the first ones and the size of the files."""


@dataclass(frozen=True)
class _Batches:
    """The rows of a file in batches."""

    place: Place
    said: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        frames = _multiples(_frames(self.place))
        while True:
            with saying_once(self.said):
                frame = next(frames, None)
            if frame is None:
                return
            yield frame

    def about_rows(self) -> float:
        """About how many rows there are."""
        return estimate_rows(self.place, next(iter(self)))

    def schema(self) -> pl.Schema:
        """The columns and their types."""
        if self.place.format == "parquet":
            empty = pl.DataFrame(schema=parquet_types(self.place.path))
            return with_hive_columns(empty, self.place.path).schema
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

    def about_rows(self) -> float:
        """About how many rows there are."""
        return sum(file.about_rows() for file in self.files)


def _common_schema(files: Sequence[_Batches]) -> pl.Schema:
    """The columns that all files have, with types that fit the values of each file."""
    first, *others = files
    schema = first.schema()
    for file in others:
        found = file.schema()
        if set(found) != set(schema):
            raise InputError(
                f"{file.place.name!r} has other columns than {first.place.name!r}:\n"
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
                    f"Column {name!r} is {here} in {first.place.name!r} and {there} in "
                    f"{file.place.name!r}. Write the files with one type for each column."
                )
    return schema


def _multiples(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Move the surplus rows at the end of a frame to the next one."""
    rest = None
    for frame in frames:
        both = frame if rest is None else pl.concat([rest, frame])
        whole = both.height - both.height % _BATCH_MULTIPLE
        if whole:
            yield both[:whole]
        rest = both[whole:]
    if rest is not None:
        yield rest
