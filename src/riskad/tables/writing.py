"""Tables into CSV, Excel and Parquet files, whole or batch by batch, complete or not at all."""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeAlias

import polars as pl
import polars.selectors as cs

from riskad.core.checks import InputError, enumerate_names
from riskad.files.atomic import atomic_path
from riskad.rows.parquet_files import ENDINGS as _PARQUET
from riskad.tables.cells import is_flat, to_text
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.paths import PIPE, check_table_name, first_line
from riskad.tables.workbooks import check_xlsxwriter, excel_writer

# What a spreadsheet may take for a formula, except what can only be a number or a dash.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER_LIKE = r"^[-+]?[\d.,' %]*([eE][-+]?\d+)?$"
_SEPARATORS = ";,\t"
_SLICE_ROWS = 1 << 16  # of which the text is in memory

Write: TypeAlias = Callable[[pl.DataFrame], None]
_PLAIN = CsvFormat()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail, before any work, if no table can be written under this name."""
    if check_table_name(path)[1] == ".xlsx":
        check_xlsxwriter()


def write_table(
    frame: pl.DataFrame, path: str | os.PathLike[str], force: bool = False, csv: CsvFormat = _PLAIN
) -> None:
    """Write `frame` as CSV, Excel or Parquet, as the name says; an existing file needs `force`.

    "-" is standard output, as CSV. `csv` says how a CSV is written.

    A spreadsheet that opens a CSV runs text that begins with =, +, -, @, a tab or a carriage return
    as a formula, and rows may come from strangers. Such text, in cells and in names of columns, is
    written with a ' before it, also inside a cell behind what another spreadsheet may split it at
    (x;=1+1); numbers, negative ones too, stay as they are. Parquet needs no such care, nor does
    Excel, where text is marked as text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "out.csv")
    ...     write_table(pl.DataFrame({"n": [-1.5, 2], "t": ["=1+1", "x;=1+1;-3"]}), path)
    ...     print(path.read_text())
    n,t
    -1.5,'=1+1
    2.0,x;'=1+1;-3
    <BLANKLINE>
    """
    with open_writer(path, force, csv) as write:
        write(frame)


@contextmanager
def open_writer(
    path: str | os.PathLike[str], force: bool = False, csv: CsvFormat = _PLAIN
) -> Iterator[Write]:
    """Give a function that adds a frame to a table; the file is there when the block succeeds.

    The file is that of `write_table` for all rows. When the block fails, or is interrupted, `path`
    is as it was before. Frames must have the same columns, and one must be written.
    """
    if str(path) == PIPE:
        yield _csv_writer(sys.stdout.buffer, "standard output", csv)
        return
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part:
        if ending == ".xlsx":
            with excel_writer(part, path.name) as write:
                yield write
        elif ending in _PARQUET:
            with Spool() as spool:
                yield spool.add
                spool.write_parquet(part)
        else:
            csv = replace(csv, separator="\t" if ending == ".tsv" else csv.separator)
            with open(part, "wb") as file:
                yield _csv_writer(file, path.name, csv)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise what polars could not write, because the disk is full for one, as an OSError."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise OSError(f"The table could not be written: {first_line(error)}") from error


class Spool:
    """Frames that wait on the disk, in their order, until all of them are there."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="riskad-", ignore_cleanup_errors=True)
        self._paths: list[Path] = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def add(self, frame: pl.DataFrame) -> None:
        """Keep a frame."""
        path = Path(self._folder.name, f"{len(self._paths):06}.ipc")
        with disk_errors():
            # Packed files are read; others would be mapped, and count as memory of this process.
            frame.write_ipc(path, compression="lz4")
        self._paths.append(path)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return map(pl.read_ipc, self._paths)

    def write_parquet(self, path: Path, without: Sequence[str] = ()) -> None:
        """Write all frames as one Parquet file, some rows at a time."""
        with disk_errors():
            rows = pl.scan_ipc(self._paths, glob=False)
            rows.drop(without, strict=False).sink_parquet(path)


def _csv_writer(file: IO[bytes], name: str, csv: CsvFormat) -> Write:
    """Return a function that writes a frame, the first one with the header."""
    start: bytes | None = csv.mark  # None once the header is written

    def write(frame: pl.DataFrame) -> None:
        nonlocal start
        unwritable = [column.name for column in frame if not is_flat(column)]
        if unwritable:
            raise InputError(
                f"Columns {enumerate_names(unwritable)} hold lists, structures or bytes, which "
                f"{name!r} cannot; write to a name that ends in .parquet."
            )
        frame = frame.with_columns(map(to_text, frame.select(cs.duration())))
        frame = _without_formulas(frame, csv.separator)
        for row in range(0, max(frame.height, 1), _SLICE_ROWS):
            # Python writes, for it knows a full disk, and a reader of a pipe that went away.
            text = frame[row : row + _SLICE_ROWS].write_csv(
                separator=csv.separator,
                include_header=start is not None,
                decimal_comma=csv.decimal_comma and csv.separator != ",",
            )
            file.write((start or b"") + text.encode(csv.encoding, "replace"))
            start = None
        file.flush()

    return write


def _without_formulas(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Put a ' before text that a spreadsheet would run, in cells and in names of columns."""
    texts = frame.select(pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String))
    frame = frame.with_columns(map(_quote_formulas, texts, itertools.repeat(separator)))
    names = frame.columns
    for name, quoted in zip(names, _quote_formulas(pl.Series(names), separator), strict=True):
        if quoted != name:
            free = quoted
            while free in frame.columns:
                free = f"'{free}"
            frame = frame.rename({name: free})
    return frame


def _quote_formulas(texts: pl.Series, separator: str) -> pl.Series:
    runs = texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER_LIKE)
    texts = texts.zip_with(~runs.fill_null(False), "'" + texts) if runs.any() else texts
    # Quotes keep a cell together only where the separator is ours: another one splits lines anew.
    others = _SEPARATORS.replace(separator, "")
    places = texts.str.contains(rf'[{others}\r\n]"*[=+\-@]').fill_null(False).arg_true()
    if not len(places):
        return texts
    piece = re.compile(rf'([{others}\r\n]"*)([=+\-@][^{others}\r\n]*)')

    def quote(match: re.Match[str]) -> str:
        return match[0] if re.match(_NUMBER_LIKE, match[2]) else f"{match[1]}'{match[2]}"

    return texts.scatter(places, [piece.sub(quote, texts[place]) for place in places])
