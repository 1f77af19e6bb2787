"""Tables in and out of files: CSV and Parquet, whole or in batches, written whole or not at all.

A CSV is read as text, every column of it: what a person wrote ("007", "1.50") comes out again
as it went in, and what a column means is decided once, in `riskad.tables.preparation`.

`read_batches` and `open_writer` hold a few batches at a time, so that a file of any length can be
read and written. `read_table` needs it to fit in memory, and says so before it reads.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import glob
import gzip
import io
import os
import queue
import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, describe_column_difference, enumerate_names
from riskad.rows.parquet import ENDINGS as _PARQUET
from riskad.rows.parquet import Paths, find_parquet
from riskad.rows.parquet_pages import DamagedPage, check_pages
from riskad.storage.files import atomic_path, check_input_file

__all__ = [
    "READABLE",
    "WRITABLE",
    "check_columns",
    "check_table_name",
    "find_tables",
    "is_larger_than_memory",
    "open_writer",
    "read_batches",
    "read_table",
    "to_text",
    "write_table",
]

READABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
WRITABLE = (".csv", ".tsv", ".parquet", ".pq")

_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
# What a spreadsheet may take for a formula, except what can only be a number or a dash.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER_LIKE = r"^[-+]?[\d.,' %]*([eE][-+]?\d+)?$"

# Batches: large enough that the cost of each does not show, small enough to forget.
_BATCH_CELLS = 1 << 19
_BATCH_BYTES = 1 << 23
_LONGEST_RECORD = 1 << 28  # bytes; a quote that is never closed ends here rather than in memory
# Products of a matrix come out to the last bit as over the whole table if batches are multiples
# of what BLAS takes at once.
_BATCH_MULTIPLE = 64

# Peak of `riskad fit` over the size of the table, as measured on tables of numbers and of texts.
_MEMORY_OF_A_FIT = 8
_SAMPLE_ROWS = 10_000
_SAMPLE_BYTES = 1 << 22

Write = Callable[[pl.DataFrame], None]


def check_table_name(
    path: str | os.PathLike[str], endings: tuple[str, ...] = WRITABLE
) -> tuple[Path, str]:
    """Return `path` and which of `endings` it has; the ending says the format.

    >>> check_table_name("cards.CSV")[1]
    '.csv'
    """
    path = Path(path)
    for ending in sorted(endings, key=len, reverse=True):
        if path.name.lower().endswith(ending):
            return path, ending
    raise InputError(
        f"{path.name!r} is no kind of table that riskad knows: the name must end in one of "
        f"{', '.join(endings)}. (A spreadsheet can be saved as CSV.)"
    )


def check_columns(names: Iterable[str], columns: Sequence[str]) -> None:
    """Fail if one of `names` is not among `columns`, and guess which was meant.

    >>> check_columns(["lable"], ["amount", "label"])
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: There is no column 'lable'. Did you mean 'label'? \
The columns are 'amount', 'label'.
    """
    for name in names:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1)
            close = close or [column for column in columns if column.lower() == name.lower()]
            guess = f" Did you mean {close[0]!r}?" if close else ""
            listed = enumerate_names(columns, 12)
            raise InputError(f"There is no column {name!r}.{guess} The columns are {listed}.")


def to_text(column: pl.Series) -> pl.Series:
    """The values of a column as text, of any type.

    >>> to_text(pl.Series([7, None])).to_list(), to_text(pl.Series([[1, 2]])).to_list()
    (['7', None], ['[1, 2]'])
    """
    if _is_flat(column) and column.dtype != pl.Duration:
        return column.cast(pl.String)
    texts = [None if value is None else str(value) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)


def _is_flat(column: pl.Series) -> bool:
    return not (column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object))


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
    path, ending = _check_readable(path)
    check_memory(path)
    if ending in _PARQUET:
        with _parquet_errors(path):
            check_pages(path)
            return pl.read_parquet(path, glob=False)
    with _open_bytes(path, ending) as file:
        return pl.concat(_csv_batches(file, path.name, _known_separator(ending)))


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
    files = [_Batches(*_check_readable(path)) for path in several]
    return files[0] if len(files) == 1 else _Chained(files, _common_schema(files))


@dataclass(frozen=True)
class _Batches:
    """The rows of a file, some at a time."""

    path: Path
    ending: str

    def __iter__(self) -> Iterator[pl.DataFrame]:
        if self.ending in _PARQUET:
            yield from _parquet_batches(self.path)
            return
        with _open_bytes(self.path, self.ending) as file:
            batches = _csv_batches(file, self.path.name, _known_separator(self.ending))
            yield from _multiples(batches)

    def schema(self) -> pl.Schema:
        """The columns and their types."""
        if self.ending in _PARQUET:
            with _parquet_errors(self.path):
                return pl.scan_parquet(self.path, glob=False).collect_schema()
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


def find_tables(given: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that are meant: a folder means the Parquet files in it, a pattern what it matches.

    >>> find_tables(["cards.csv"])
    [PosixPath('cards.csv')]
    """
    found: list[Path] = []
    for item in given:
        path = Path(item)
        plain = path.is_file() or not (path.is_dir() or glob.has_magic(str(item)))
        found += [path] if plain else find_parquet(item)
    return found


def is_larger_than_memory(paths: Sequence[Path]) -> bool:
    """Whether tables are to be read some rows at a time: several files, or one that does not fit.

    That takes Parquet; of several files all must be.
    """
    others = [path.name for path in paths if path.suffix.lower() not in _PARQUET]
    if len(paths) == 1:
        return not others and _shortage(*_check_readable(paths[0])) is not None
    if others:
        raise InputError(
            f"Several files are read as one table if they are Parquet, which {others[0]!r} is not. "
            "Give one file, or write them as Parquet."
        )
    return True


def write_table(frame: pl.DataFrame, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write `frame` as CSV or Parquet, as the name says; an existing file needs `force`.

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
    is as it was before. Frames must have the same columns, and one must be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(Path(folder, "cards.csv")) as write:
    ...         write(pl.DataFrame({"card": ["007"]}))
    ...         write(pl.DataFrame({"card": ["008"]}))
    ...     Path(folder, "cards.csv").read_text()
    'card\n007\n008\n'
    """
    path, ending = check_table_name(path)
    with atomic_path(path, force) as part:
        open_ = _parquet_writer if ending in _PARQUET else _csv_writer
        with open_(part, path.name, ending) as write:
            yield write


def _check_readable(path: str | os.PathLike[str]) -> tuple[Path, str]:
    path, ending = check_table_name(check_input_file(path), READABLE)
    if path.stat().st_size == 0:
        raise _nothing_in(path.name)
    return path, ending


def _known_separator(ending: str) -> str | None:
    return "\t" if "tsv" in ending else None


def _written_separator(ending: str) -> str:
    return _known_separator(ending) or ","


# --- memory ------------------------------------------------------------------------------


def check_memory(path: str | os.PathLike[str], available: int | None = None) -> None:
    """Fail if fitting on the table needs more memory than there is, without reading all of it.

    `available` is in bytes; None asks the system, and checks nothing where it does not answer.
    """
    path, ending = _check_readable(path)
    shortage = _shortage(path, ending, available)
    if shortage is not None:
        needed, available = shortage
        rows = "Take a sample of the unlabelled rows, with all labelled ones"
        if ending not in _PARQUET:
            rows += "; or save it as Parquet, which `riskad fit` reads some rows at a time"
        raise InputError(
            f"{path.name!r} does not fit in memory: fitting on it takes about "
            f"{_show_bytes(needed)}, and {_show_bytes(available)} are free. {rows}. "
            "Scoring has no such limit."
        )


def _shortage(path: Path, ending: str, available: int | None = None) -> tuple[int, int] | None:
    """Bytes that a fit needs and bytes there are, where these are fewer."""
    available = available_memory() if available is None else available
    needed = int(_MEMORY_OF_A_FIT * _estimate_size(path, ending))
    return None if available is None or needed <= available else (needed, available)


def available_memory() -> int | None:
    """Bytes that this process may still take, as far as the system tells."""
    found = [_free_memory(), _free_in_container()]
    return min((free for free in found if free is not None), default=None)


def _free_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # all there is: at most
    except (AttributeError, OSError, ValueError):
        return None


def _free_in_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
        counts = (folder / "memory.stat").read_text().split()
        cached = int(counts[counts.index("inactive_file") + 1])  # files, let go when need be
        return max(limit - used + cached, 0)
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None


def _estimate_size(path: Path, ending: str) -> float:
    """Bytes of the table in memory, by its first rows; text takes what it takes on disk."""
    if ending in _PARQUET:
        with _parquet_errors(path):
            check_pages(path)
            scan = pl.scan_parquet(path, glob=False)
            first = scan.head(_SAMPLE_ROWS).collect()
            n_rows = int(scan.select(pl.len()).collect().item())
        return first.estimated_size() * n_rows / max(first.height, 1)
    size = path.stat().st_size
    if not ending.endswith(".gz"):
        return size
    with open(path, "rb") as packed, _gzip_errors(path), gzip.GzipFile(fileobj=packed) as file:
        unpacked = len(file.read(_SAMPLE_BYTES))
        return size * unpacked / packed.tell()


def _show_bytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:,.0f} MB"


# --- Parquet -----------------------------------------------------------------------------


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, DamagedPage) as error:
        raise InputError(
            f"{path.name!r} could not be read as Parquet ({_first_line(error)}). "
            "It may be cut short, or another kind of file under this name."
        ) from error


def _parquet_batches(path: Path) -> Iterator[pl.DataFrame]:
    """Slices of the file: each decodes the row groups it touches and no others."""
    with _parquet_errors(path):
        check_pages(path)
        scan = pl.scan_parquet(path, glob=False)
        n_rows = int(scan.select(pl.len()).collect().item())
        n_columns = max(len(scan.collect_schema()), 1)
    wanted = max(_BATCH_CELLS // n_columns, 1)
    step = -(-wanted // _BATCH_MULTIPLE) * _BATCH_MULTIPLE
    for start in range(0, max(n_rows, 1), step):
        with _parquet_errors(path):
            batch = scan.slice(start, step).collect()
        yield batch


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
            self._error = OSError(f"The table could not be written: {_first_line(error)}")
        except BaseException as error:
            self._error = error

    def _received(self, *_: Any) -> Iterator[pl.DataFrame]:
        while (item := self._frames.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item


class _Abandoned(Exception):
    """What was to be written is not wanted any more."""


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


# --- CSV, out ----------------------------------------------------------------------------


@contextmanager
def _csv_writer(part: Path, name: str, ending: str) -> Iterator[Write]:
    with open(part, "wb") as file:

        def write(frame: pl.DataFrame) -> None:
            _write_csv(frame, file, name, _written_separator(ending), header=file.tell() == 0)

        yield write


def _write_csv(
    frame: pl.DataFrame, part: Path | IO[bytes], name: str, separator: str, header: bool = True
) -> None:
    unwritable = [column.name for column in frame if not _is_flat(column)]
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


# --- CSV, in -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Csv:
    """The header of a CSV with some of its records, and what messages about them need."""

    data: bytes
    name: str
    separator: str
    n_fields: int
    lines_before: int = 0

    def line_of(self, position: int) -> int:
        """Return the number in the file, counted from 1, of the line on which a byte stands."""
        return self.lines_before + self.data.count(b"\n", 0, position) + 1


def _open_bytes(path: Path, ending: str) -> AbstractContextManager[IO[bytes]]:
    return _unpacked(path) if ending.endswith(".gz") else open(path, "rb")


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    with _gzip_errors(path), gzip.open(path, "rb") as file:
        yield cast(IO[bytes], file)


@contextmanager
def _gzip_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name!r} could not be unpacked as gzip ({error}).") from error


def _csv_batches(file: IO[bytes], name: str, separator: str | None) -> Iterator[pl.DataFrame]:
    """Read some records at a time, each time with the header above them."""
    parts = _csv_parts(file, name)
    first = _begin_csv(next(parts, b""), name, separator)
    yield _parse_csv(first)
    top = _header_bytes(first.data)
    lines = first.data.count(b"\n")
    for part in parts:
        yield _parse_csv(replace(first, data=top + part, lines_before=lines - top.count(b"\n")))
        lines += part.count(b"\n")


def _csv_parts(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Cut a file into parts that end where a record does."""
    rest = b""
    for block in _blocks(file):
        rest += block
        ends = _record_ends(rest)
        if ends.size:
            yield rest[: ends[-1] + 1]
            rest = rest[ends[-1] + 1 :]
        elif len(rest) > _LONGEST_RECORD:
            raise InputError(f"{name!r} opens a double quote that it never closes.")
    if rest:
        yield rest


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    block = file.read(_BATCH_BYTES)
    old = b"\n" not in block  # line ends of the oldest spreadsheets
    while block:
        yield block.replace(b"\r", b"\n") if old else block
        block = file.read(_BATCH_BYTES)


def _begin_csv(data: bytes, name: str, separator: str | None) -> _Csv:
    """The first part of a file: its separator and header are found and checked."""
    if not data.strip():
        raise _nothing_in(name)
    separator = separator or _find_separator(_first_record(data, name, None))
    header = _first_record(data, name, separator)
    _check_header(header, name)
    return _Csv(data, name, separator, len(header))


def _header_bytes(data: bytes) -> bytes:
    """The header line as it stands in the file, with what is blank above it."""
    for end in _record_ends(data).tolist():
        if data[: end + 1].removeprefix(codecs.BOM_UTF8).strip():
            return data[: end + 1]
    return data


def _parse_csv(table: _Csv) -> pl.DataFrame:
    if table.data.count(b'"') % 2:  # some readers take the rest of the file for one field
        _check_quotes(table)
    try:
        frame = pl.read_csv(table.data, separator=table.separator, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise _explain_csv_error(table, error) from error
    # A row with too few fields is filled with nulls at its end, silently.
    if frame.height and frame[:, -1].null_count():
        _check_row_lengths(table)
    return frame.filter(~pl.all_horizontal(pl.all().is_null())) if frame.width > 1 else frame


def _first_record(data: bytes, name: str, separator: str | None) -> list[str]:
    """Return the fields of the first line that is not blank; without a separator, one field."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    try:
        if separator is None:
            found = next(([line] for line in text if line.strip()), None)
        else:
            found = next(
                (record for record in csv.reader(text, delimiter=separator) if record), None
            )
    except UnicodeDecodeError as error:
        raise _not_utf8(_Csv(data, name, "", 0)) from error
    except csv.Error as error:
        raise InputError(f"The header of {name!r} could not be read ({error}).") from error
    if found is None:  # a byte order mark and blank lines
        raise _nothing_in(name)
    return found


def _nothing_in(name: str) -> InputError:
    return InputError(f"{name!r} is empty: there is no header line and no row in it.")


def _find_separator(first_line: list[str]) -> str:
    bare = _QUOTED.sub("", first_line[0])
    return max(_SEPARATORS, key=bare.count)  # the first of them where there is none


def _check_header(header: list[str], name: str) -> None:
    twice = [column for column, times in Counter(header).items() if times > 1]
    if "" in twice:
        raise InputError(f"{name!r} has {header.count('')} columns without a name; name them.")
    if twice:
        raise InputError(
            f"{name!r} has more than one column named {enumerate_names(twice)}; "
            "rename them so that each name occurs once."
        )
    if all(_is_number(column) for column in header):
        raise InputError(
            f"The first line of {name!r} holds only numbers ({enumerate_names(header, 4)}); "
            "it must name the columns. Add a header line."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _explain_csv_error(table: _Csv, error: Exception) -> InputError:
    """Find out, after reading failed, what a person can mend and on which line."""
    try:
        table.data.decode()
        _check_quotes(table)
        _check_row_lengths(table)
    except UnicodeDecodeError:
        return _not_utf8(table)
    except InputError as found:
        return found
    return InputError(f"{table.name!r} could not be read as CSV ({_first_line(error)}).")


def _check_quotes(table: _Csv) -> None:
    """Fail, naming the line, if a double quote neither opens nor closes a field."""
    beside = b'[^"\r\n' + re.escape(table.separator.encode()) + b"]"
    stray = re.search(beside + b'"' + beside, table.data)
    if stray:
        raise InputError(
            f"{table.name!r}, line {table.line_of(stray.start())}: a double quote stands inside a "
            'field. Put the field in double quotes and write the quote twice: "5"" pipe".'
        )
    if table.data.count(b'"') % 2:
        raise InputError(
            f"{table.name!r} opens a double quote that it never closes; it may be cut short."
        )


def _not_utf8(table: _Csv) -> InputError:
    remedy = "Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."
    try:
        table.data.decode()
    except UnicodeDecodeError as error:
        line, byte = table.line_of(error.start), table.data[error.start]
        return InputError(f"{table.name!r}, line {line}: byte 0x{byte:02x} is not UTF-8. {remedy}")
    return InputError(f"{table.name!r} is not UTF-8. {remedy}")


def _check_row_lengths(table: _Csv) -> None:
    """Fail, naming the line, if a record has more or fewer fields than the header."""
    starts, counts = _count_fields(table.data, table.separator)
    (wrong,) = np.nonzero((counts != table.n_fields) & (counts > 0))
    if wrong.size:
        line, count = table.line_of(int(starts[wrong[0]])), int(counts[wrong[0]])
        others = f" (at least {wrong.size - 1:,} more lines like it)" if wrong.size > 1 else ""
        why = f"A field that contains {table.separator!r} must be in double quotes."
        if count < table.n_fields:
            cut = "the file" if wrong[0] == len(counts) - 1 else "the line"
            why = f"It seems that {cut} was cut short: write out all fields, blank ones too."
        raise InputError(
            f"{table.name!r}, line {line}: {count} field{'s' * (count != 1)} where the header has "
            f"{table.n_fields}{others}. {why}"
        )


def _count_fields(data: bytes, separator: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each record of a CSV starts and how many fields it has (0: a blank line)."""
    data = data if data.endswith(b"\n") else data + b"\n"
    text = np.frombuffer(data, dtype=np.uint8)
    ends = _record_ends(data)
    quotes = np.flatnonzero(text == ord('"'))
    separators = _outside_quotes(np.flatnonzero(text == ord(separator)), quotes)
    starts = np.concatenate([[0], ends[:-1] + 1])
    counts = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    blank = (ends - starts == 0) | ((ends - starts == 1) & (text[starts] == ord("\r")))
    return starts, np.where(blank, 0, counts)


def _record_ends(data: bytes) -> NDArray[np.int64]:
    """Return the places of line ends that are not inside double quotes."""
    text = np.frombuffer(data, dtype=np.uint8)
    return _outside_quotes(np.flatnonzero(text == ord("\n")), np.flatnonzero(text == ord('"')))


def _outside_quotes(positions: NDArray[np.int64], quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keep the positions before which an even number of double quotes stands."""
    even: NDArray[np.bool_] = np.searchsorted(quotes, positions) % 2 == 0
    return positions[even]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
