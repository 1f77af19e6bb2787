"""Tables into CSV and Parquet files, whole or batch by batch, complete or not at all."""

from __future__ import annotations

import io
import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import polars as pl

from riskad.core.checks import InputError, enumerate_names
from riskad.rows.parquet_files import ENDINGS as _PARQUET
from riskad.storage.files import atomic_path
from riskad.tables.columns import is_flat, to_text
from riskad.tables.csv_reading import first_line
from riskad.tables.paths import PIPE, check_table_name, known_separator

__all__ = ["open_writer", "write_table"]


# What a spreadsheet may take for a formula, except what can only be a number or a dash.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER_LIKE = r"^[-+]?[\d.,' %]*([eE][-+]?\d+)?$"

Write = Callable[[pl.DataFrame], None]


def write_table(frame: pl.DataFrame, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write `frame` as CSV or Parquet, as the name says; an existing file needs `force`.

    "-" is standard output, as CSV.

    A spreadsheet that opens a CSV runs text that begins with =, +, -, @, a tab or a carriage return
    as a formula, and rows may come from strangers. Such text, in cells and in names of columns, is
    written with a ' before it; numbers, negative ones too, stay as they are. Parquet needs no such
    care.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "out.csv")
    ...     write_table(pl.DataFrame({"n": [-1.5, 2], "t": ["=1+1", "-3"]}), path)
    ...     print(path.read_text())
    n,t
    -1.5,'=1+1
    2.0,-3
    <BLANKLINE>
    """
    if str(path) == PIPE:
        _write_to_pipe(frame)
        return
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part:
        if ending in _PARQUET:
            frame.write_parquet(part)
        else:
            _write_csv(frame, part, path.name, _written_separator(ending))


@contextmanager
def open_writer(path: str | os.PathLike[str], force: bool = False) -> Iterator[Write]:
    r"""Give a function that adds a frame to a table; the file is there when the block succeeds.

    The file is that of `write_table` for all rows. When the block fails, or is interrupted, `path`
    is as it was before. Frames must have the same columns, and one must be written. "-" is standard
    output, as CSV: rows go there as they are written.

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
        yield lambda frame: _write_to_pipe(frame, next(headers))
        return
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part:
        open_ = _parquet_writer if ending in _PARQUET else _csv_writer
        with open_(part, path.name, ending) as write:
            yield write


def _written_separator(ending: str) -> str:
    return known_separator(ending) or ","


@contextmanager
def _parquet_writer(part: Path, name: str, ending: str) -> Iterator[Write]:
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
            register_io_source(self._received, schema=schema).sink_parquet(self._path)
        except pl.exceptions.PolarsError as error:  # a full disk, for one
            self._error = OSError(f"The table could not be written: {first_line(error)}")
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
def _csv_writer(part: Path, name: str, ending: str) -> Iterator[Write]:
    with open(part, "wb") as file:

        def write(frame: pl.DataFrame) -> None:
            _write_csv(frame, file, name, _written_separator(ending), header=file.tell() == 0)

        yield write


def _write_to_pipe(frame: pl.DataFrame, header: bool = True) -> None:
    """Write rows by Python, which knows a reader that went away; polars calls it an error."""
    text = io.BytesIO()
    _write_csv(frame, text, "standard output", ",", header)
    sys.stdout.buffer.write(text.getbuffer())
    sys.stdout.buffer.flush()


def _write_csv(
    frame: pl.DataFrame, part: Path | IO[bytes], name: str, separator: str, header: bool = True
) -> None:
    unwritable = [column.name for column in frame if not is_flat(column)]
    if unwritable:
        raise InputError(
            f"Columns {enumerate_names(unwritable)} hold lists, structures or bytes, which "
            f"{name!r} cannot; write to a name that ends in .parquet."
        )
    frame = frame.with_columns(to_text(c) for c in frame if c.dtype == pl.Duration)
    _without_formulas(frame).write_csv(part, separator=separator, include_header=header)


def _without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a ' before text that a spreadsheet would run."""
    kinds = (pl.String, pl.Categorical, pl.Enum)
    frame = frame.with_columns(_quoted(c.cast(pl.String)) for c in frame if c.dtype in kinds)
    names = [name for name in frame.columns if _quoted(pl.Series([name]))[0] != name]
    return frame.rename({name: _free_quoted(name, frame.columns) for name in names})


def _quoted(texts: pl.Series) -> pl.Series:
    runs = texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER_LIKE)
    return texts.zip_with(~runs.fill_null(False), "'" + texts) if runs.any() else texts


def _free_quoted(name: str, columns: Sequence[str]) -> str:
    while name in columns:
        name = f"'{name}"
    return name
