"""Tables into CSV, Excel and Parquet files, whole or batch by batch, complete or not at all."""

from __future__ import annotations

import io
import itertools
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import polars as pl

from riskad.core.checks import InputError, enumerate_names
from riskad.rows.parquet_files import ENDINGS as _PARQUET
from riskad.storage.files import atomic_path
from riskad.tables.columns import is_flat, to_text
from riskad.tables.csv_reading import CsvFormat, first_line
from riskad.tables.excel_writing import check_xlsxwriter, excel_writer
from riskad.tables.paths import PIPE, check_table_name, known_separator

__all__ = ["check_writable", "disk_errors", "open_writer", "write_table"]


# What a spreadsheet may take for a formula, except what can only be a number or a dash.
_FORMULA = r"^[=+\-@\t\r]"
_SEPARATORS = ";,\t"
_NUMBER_LIKE = r"^[-+]?[\d.,' %]*([eE][-+]?\d+)?$"

Write = Callable[[pl.DataFrame], None]
_PLAIN = CsvFormat()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail, before any work, if no table can be written under this name."""
    if check_table_name(path)[1] == ".xlsx":
        check_xlsxwriter()


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise what polars could not write, because the disk is full for one, as an OSError."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise OSError(f"The table could not be written: {first_line(error)}") from error


def write_table(
    frame: pl.DataFrame,
    path: str | os.PathLike[str],
    force: bool = False,
    csv: CsvFormat = _PLAIN,
) -> None:
    """Write `frame` as CSV, Excel or Parquet, as the name says; an existing file needs `force`.

    "-" is standard output, as CSV. `csv` says how a CSV is written; `riskad.tables.reading` has
    a function that finds it out of another file.

    A spreadsheet that opens a CSV runs text that begins with =, +, -, @, a tab or a carriage return
    as a formula, and rows may come from strangers. Such text, in cells and in names of columns, is
    written with a ' before it, also inside a cell behind what another spreadsheet may split it at
    (x;=1+1); numbers, negative ones too, stay as they are. Parquet needs no such care, nor does
    Excel, where text is marked as text. Columns of texts that are all numbers, or all dates, are
    numbers and dates in Excel.

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
    if str(path) == PIPE:
        _write_to_pipe(frame, csv)
        return
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part:
        if ending in _PARQUET:
            with disk_errors():
                frame.write_parquet(part)
        else:
            with _writer(part, path.name, ending, csv) as write:
                write(frame)


@contextmanager
def open_writer(
    path: str | os.PathLike[str], force: bool = False, csv: CsvFormat = _PLAIN
) -> Iterator[Write]:
    r"""Give a function that adds a frame to a table; the file is there when the block succeeds.

    The file is that of `write_table` for all rows. When the block fails, or is interrupted, `path`
    is as it was before. Frames must have the same columns, and one must be written. "-" is standard
    output, as CSV: rows go there as they are written. An Excel file is written at the end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(Path(folder, "cards.csv")) as write:
    ...         write(pl.DataFrame({"card": ["007"]}))
    ...         write(pl.DataFrame({"card": ["008"]}))
    ...     Path(folder, "cards.csv").read_text()
    'card\n007\n008\n'
    """
    if str(path) == PIPE:
        headers = itertools.chain([True], itertools.repeat(False))
        yield lambda frame: _write_to_pipe(frame, csv, next(headers))
        return
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part, _writer(part, path.name, ending, csv) as write:
        yield write


def _writer(part: Path, name: str, ending: str, csv: CsvFormat) -> AbstractContextManager[Write]:
    if ending in _PARQUET:
        return _parquet_writer(part)
    if ending == ".xlsx":
        return excel_writer(part, name)
    return _csv_writer(part, name, replace(csv, separator=known_separator(ending) or csv.separator))


@contextmanager
def _parquet_writer(part: Path) -> Iterator[Write]:
    """Feed polars' writer, which asks for frames, from a queue: the caller keeps its own thread."""
    writer = _ParquetThread(part)
    try:
        yield writer.write
    except BaseException:
        writer.close(failed=True)
        raise
    writer.close()


class _ParquetThread:
    """A thread in which frames become one Parquet file; the first frame says the columns."""

    def __init__(self, path: Path):
        self._path = path
        self._frames: queue.Queue[pl.DataFrame | BaseException | None] = queue.Queue(1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def write(self, frame: pl.DataFrame) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(frame.schema,), daemon=True)
            self._thread.start()
        self._put(frame)

    def close(self, failed: bool = False) -> None:
        """Wait for the file to be complete; if the work failed, only for it to be let go."""
        if self._thread is None:
            return
        self._put(_Abandoned() if failed else None)
        self._thread.join()
        if self._error is not None and not failed:
            raise self._error

    def _put(self, item: pl.DataFrame | BaseException | None) -> None:
        while self._thread is not None and self._thread.is_alive():
            try:
                return self._frames.put(item, timeout=0.1)
            except queue.Full:
                continue
        if self._error is not None and not isinstance(item, BaseException):
            raise self._error

    def _run(self, schema: pl.Schema) -> None:
        from polars.io.plugins import register_io_source

        try:
            with disk_errors():
                register_io_source(self._received, schema=schema).sink_parquet(self._path)
        except BaseException as error:
            self._error = error

    def _received(self, *_: Any) -> Iterator[pl.DataFrame]:
        while (item := self._frames.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item


class _Abandoned(Exception):
    """What was to be written is not wanted any more."""


@contextmanager
def _csv_writer(part: Path, name: str, csv: CsvFormat) -> Iterator[Write]:
    with open(part, "wb") as file:

        def write(frame: pl.DataFrame) -> None:
            _write_csv(frame, file, name, csv, header=file.tell() == 0)

        yield write


def _write_to_pipe(frame: pl.DataFrame, csv: CsvFormat, header: bool = True) -> None:
    """Write rows by Python, which knows a reader that went away; polars calls it an error."""
    text = io.BytesIO()
    _write_csv(frame, text, "standard output", csv, header)
    sys.stdout.buffer.write(text.getbuffer())
    sys.stdout.buffer.flush()


def _write_csv(
    frame: pl.DataFrame, file: IO[bytes], name: str, csv: CsvFormat, header: bool
) -> None:
    unwritable = [column.name for column in frame if not is_flat(column)]
    if unwritable:
        raise InputError(
            f"Columns {enumerate_names(unwritable)} hold lists, structures or bytes, which "
            f"{name!r} cannot; write to a name that ends in .parquet."
        )
    frame = frame.with_columns(to_text(c) for c in frame if c.dtype == pl.Duration)
    file.write(csv.mark if header else b"")
    recoded = None if csv.encoding == "utf-8" else io.BytesIO()
    with disk_errors():
        _without_formulas(frame, csv.separator).write_csv(
            recoded or file,
            separator=csv.separator,
            include_header=header,
            decimal_comma=csv.decimal_comma and csv.separator != ",",
        )
    if recoded is not None:
        file.write(recoded.getvalue().decode().encode(csv.encoding, "replace"))


def _without_formulas(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Put a ' before text that a spreadsheet would run."""
    kinds = (pl.String, pl.Categorical, pl.Enum)
    texts = [column.cast(pl.String) for column in frame if column.dtype in kinds]
    frame = frame.with_columns(_quoted(each, separator) for each in texts)
    for name, quoted in zip(
        frame.columns, _quoted(pl.Series(frame.columns, dtype=pl.String), separator), strict=True
    ):
        if quoted != name:
            frame = frame.rename({name: _free(quoted, frame.columns)})
    return frame


def _quoted(texts: pl.Series, separator: str) -> pl.Series:
    runs = texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER_LIKE)
    texts = texts.zip_with(~runs.fill_null(False), "'" + texts) if runs.any() else texts
    # Quotes keep a cell together only where the separator is ours: another one splits lines anew.
    others = _SEPARATORS.replace(separator, "")
    split = re.compile(rf'([{others}\r\n]"*)([=+\-@][^{others}\r\n]*)')
    places = texts.str.contains(rf'[{others}\r\n]"*[=+\-@]').fill_null(False).arg_true()
    if not len(places):
        return texts
    return texts.scatter(places, [split.sub(_quote_piece, texts[place]) for place in places])


def _quote_piece(found: re.Match[str]) -> str:
    return found[0] if re.match(_NUMBER_LIKE, found[2]) else f"{found[1]}'{found[2]}"


def _free(name: str, columns: Sequence[str]) -> str:
    while name in columns:
        name = f"'{name}"
    return name
