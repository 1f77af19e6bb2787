"""Tables from files of many formats, whole or in batches.

`read_batches` holds a few batches at a time, so it can read files of any length. `read_table` needs
the table to fit in memory, and raises an error before reading if it does not.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError, describe_column_difference
from riskad.rows.parquet_files import (
    ENDINGS,
    ParquetSchema,
    Paths,
    empty_batch,
    parquet_errors,
    record_batches,
)
from riskad.tables.cells import from_arrow
from riskad.tables.csv_reading import csv_batches
from riskad.tables.csv_reading import csv_format as csv_format
from riskad.tables.databases import count_rows, database_batches
from riskad.tables.json_lines import common_type, json_batches
from riskad.tables.notes import ReadingNote, note_each_once
from riskad.tables.paths import Place, check_readable, hive_columns, unpacked_size
from riskad.tables.pictures import folder_table
from riskad.tables.workbooks import read_sheet

# Large enough that the cost of a batch does not show, small enough to forget.
_BATCH_CELLS = 1 << 19
# Products of a matrix equal those over the whole table to the last bit, if batches are multiples of
# the block size of BLAS.
_BATCH_MULTIPLE = 64
# Peak of `riskad fit` over the size of the table, as measured on tables of numbers and of texts.
_MEMORY_OF_A_FIT = 8
_UNPACKED_SHEET = 4  # bytes in memory over bytes in a workbook, which is compressed


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
    A folder of pictures     A row for each, with its path; see `riskad.read_pictures`.
    ``-``                    Standard input, in any of these formats.
    ======================== ==================================================================

    Text may be compressed: `.gz`, `.zst`. Completely blank rows are left out. A
    `riskad.tables.notes.ReadingNote` reports what was decided about a file (an encoding, lines
    above the header, names of columns).

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cards.csv").write_text("card;amount\n007;1.50\n008;\n")
    ...     read_table(Path(folder, "cards.csv")).rows()
    [('007', '1.50'), ('008', None)]
    """
    place = check_readable(path)
    check_memory(place)
    with note_each_once(set()):
        return pl.concat(_frames(place))


def read_batches(paths: Paths | Sequence[Place]) -> Batches:
    """Read the rows that `read_table` reads, in batches; the table need not fit in memory.

    You can iterate over the result as often as you like; each pass reads the file again, and finds
    a mistake when its batch is reached. There is at least one batch, without rows if the file has
    none. Several files are read as one table: they must have the same columns, each of one kind.
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return Batches(list(map(check_readable, several)))


class Batches:
    """The rows of files in batches; each pass reads the files again."""

    def __init__(self, places: Sequence[Place]):
        self._places = places
        self._notes: set[str] = set()  # so that each is reported in one pass only
        with note_each_once(self._notes):
            self._schema = _common_schema(places) if len(places) > 1 else None

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for place in self._places:
            frames, parts, ended = _frames(place), list[pl.DataFrame](), False
            while not ended:
                with note_each_once(self._notes):
                    frame = next(frames, None)
                ended = frame is None
                rows = pl.concat(parts if frame is None else [*parts, frame])
                # What is beyond a multiple goes to the next batch, if there is one.
                whole = rows.height - (0 if ended else rows.height % _BATCH_MULTIPLE)
                batch, parts = rows[:whole], [rows[whole:]]
                if self._schema is not None:
                    batch = batch.select(self._schema.names()).cast(self._schema)
                if whole or ended:
                    yield batch

    def about_rows(self) -> float:
        """About how many rows there are, by the first ones and the size of the files."""
        n_rows = 0.0
        with warnings.catch_warnings(action="ignore", category=ReadingNote):  # who reads them says
            for place in self._places:
                if place.format in ("parquet", "database"):
                    n_rows += _count_rows(place)
                    continue
                first = next(_frames(place))
                if place.format in ("excel", "pictures") or not first.height:
                    n_rows += first.height
                    continue
                some = first.head(1_000)
                csv = place.format == "csv"
                text = some.write_csv(quote_style="never") if csv else some.write_ndjson()
                n_rows += unpacked_size(place) * some.height / len(text.encode())
        return n_rows


def _frames(place: Place) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches, as its reader splits them; at least one."""
    if place.format == "csv":
        yield from csv_batches(place)
    elif place.format == "excel":
        yield read_sheet(place)
    elif place.format == "pictures":
        yield folder_table(place.path)
    elif place.format == "parquet":
        yield from parquet_batches(place.path)
    else:
        yield from json_batches(place) if place.format == "json" else database_batches(place)


def _common_schema(places: Sequence[Place]) -> pl.Schema:
    """The columns that all files have, with types that fit the values of each file."""
    first, *others = places
    schema = next(_frames(first)).schema
    for place in others:
        columns = next(_frames(place)).schema
        if set(columns) != set(schema):
            raise InputError(
                f"{place.name!r} has other columns than {first.name!r}:\n"
                + describe_column_difference(schema.names(), columns.names())
            )
        for name, there in columns.items():
            dtype = common_type(schema[name], there)
            if dtype is None:
                raise InputError(
                    f"Column {name!r} is {schema[name]} in {first.name!r} and {there} in "
                    f"{place.name!r}."
                )
            schema[name] = dtype
    return schema


# --- Parquet --------------------------------------------------------------------------------------


def parquet_batches(path: Path, groups: Sequence[int] | None = None) -> Iterator[pl.DataFrame]:
    """The rows of a file, or of some row groups, in batches, the first without rows.

    Its folders may be columns, too.
    """
    with parquet_errors(path):
        schema = ParquetSchema.of(path)
        folders = {name: v for name, v in hive_columns(path).items() if name not in schema.types}
        columns = [pl.lit(value, dtype=pl.String).alias(name) for name, value in folders.items()]
        size = max(_BATCH_CELLS // max(len(schema.types), 1), 1)
        batches = record_batches(path, size, groups=groups, threads=True)
        for batch in itertools.chain([empty_batch(path)], batches):
            yield from_arrow(batch, path.name).with_columns(columns)


# --- whether a table fits in memory, estimated without reading all of it --------------------------


def is_larger_than_memory(paths: Sequence[Path]) -> bool:
    """Whether tables should be read in batches: several Parquet files, or one that does not fit."""
    others = [path.name for path in paths if path.suffix.lower() not in ENDINGS]
    if len(paths) == 1:
        return not others and _memory_shortage(check_readable(paths[0])) is not None
    if others:
        raise InputError(
            f"Several files are read as one table if they are Parquet, which {others[0]!r} is not. "
            "Give one file, or write them as Parquet."
        )
    return True


def check_memory(path: str | os.PathLike[str] | Place) -> None:
    """Fail if fitting on the table needs more bytes than available, without reading all of it."""
    place = check_readable(path)
    if shortage := _memory_shortage(place):
        needed, free = (f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:,.0f} MB" for n in shortage)
        remedy = "Take a sample of the unlabelled rows, with all labelled ones"
        if place.format != "parquet":
            remedy += "; or save it as Parquet, which riskad.fit_table reads some rows at a time"
        raise InputError(
            f"{place.name!r} does not fit in memory: fitting on it takes about {needed}, and "
            f"{free} are free. {remedy}. Scoring has no such limit."
        )


def _memory_shortage(place: Place) -> tuple[int, int] | None:
    """Bytes that a fit needs and available bytes, if these are fewer and the system tells them."""
    if (available := available_memory()) is None:
        return None
    if place.format in ("parquet", "database"):
        # They pack numbers, so that bytes on disk say little about memory: by the first rows.
        first = next((frame for frame in _frames(place) if frame.height), None)
        size = 0.0 if first is None else first.estimated_size() / first.height * _count_rows(place)
    else:  # text takes what it takes on disk
        size = unpacked_size(place) * (_UNPACKED_SHEET if place.format == "excel" else 1)
    needed = int(_MEMORY_OF_A_FIT * size)
    return None if needed <= available else (needed, available)


def _count_rows(place: Place) -> int:
    if place.format == "database":
        return count_rows(place)
    return sum(ParquetSchema.of(place.path).group_rows)


def available_memory() -> int | None:
    """Bytes that this process may still use, if the system reports them."""
    free = []
    with suppress(OSError, IndexError, ValueError):
        memory = Path("/proc/meminfo").read_text()
        free.append(1024 * int(memory.split("MemAvailable:")[1].split()[0]))
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        counts = (group / "memory.stat").read_text().split()
        cached = int(counts[counts.index("inactive_file") + 1])  # files, let go when need be
        free.append(max(limit - used + cached, 0))
    if not free:
        with suppress(AttributeError, OSError, ValueError):  # Windows has none of this
            free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))  # at most
    return min(free, default=None)
