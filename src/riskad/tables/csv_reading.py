"""CSV files, read as text some records at a time, with errors that name the line.

Every column is text: what a person wrote ("007", "1.50") comes out again as it went in, and what a
column means is decided once, in `riskad.tables.preparation`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, enumerate_names
from riskad.tables.paths import nothing_in

__all__ = ["csv_batches", "first_line", "gzip_errors", "open_bytes"]


_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_BATCH_BYTES = 1 << 23
_LONGEST_RECORD = 1 << 28  # bytes; a quote that is never closed ends here rather than in memory


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


def open_bytes(path: Path, ending: str) -> AbstractContextManager[IO[bytes]]:
    """Open a file to be read, unpacked if its ending says that it is packed."""
    return _unpacked(path) if ending.endswith(".gz") else open(path, "rb")


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    with gzip_errors(path), gzip.open(path, "rb") as file:
        yield cast(IO[bytes], file)


@contextmanager
def gzip_errors(path: Path) -> Iterator[None]:
    """Turn what gzip raises on damaged files into an `InputError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name!r} could not be unpacked as gzip ({error}).") from error


def csv_batches(file: IO[bytes], name: str, separator: str | None) -> Iterator[pl.DataFrame]:
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
        raise nothing_in(name)
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
        raise nothing_in(name)
    return found


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
    return InputError(f"{table.name!r} could not be read as CSV ({first_line(error)}).")


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


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return str(error).strip().splitlines()[0]
