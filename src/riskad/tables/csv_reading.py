"""CSV files, read as text some records at a time, with errors that name the line.

Every column is text: what a person wrote ("007", "1.50") comes out again as it went in, and what a
column means is decided once, in `riskad.tables.preparation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.tables.csv_encoding import Utf8, check_utf8, find_mark, utf8_blocks
from riskad.tables.formats.numbers import NumberLook
from riskad.tables.header import find_header, find_separator, name_columns, split_record
from riskad.tables.notes import note
from riskad.tables.packing import open_bytes
from riskad.tables.paths import Place, known_separator, nothing_in

__all__ = ["CsvFormat", "csv_batches", "file_blocks", "find_csv_format", "first_line"]


_BATCH_BYTES = 1 << 23
_LONGEST_RECORD = 1 << 28  # bytes; a quote that is never closed ends here rather than in memory
_HEAD_BYTES, _HEAD_RECORDS = 1 << 16, 200  # by which separator and header are found
_SEPARATOR_LINE = re.compile(r"sep=([,;|\t:^~ ])", re.IGNORECASE)  # written for Excel


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV is written, so that another is written like it.

    Attributes
    ----------
    separator
        What stands between fields.
    encoding, mark
        Encoding of the text, and the byte order mark before it.
    decimal_comma
        Whether numbers have a decimal comma.
    """

    separator: str = ","
    encoding: str = "utf-8"
    mark: bytes = b""
    decimal_comma: bool = False


@dataclass(frozen=True)
class _Layout:
    """How a CSV is written: its separator, its columns, and where its rows begin."""

    separator: str
    names: list[str]
    start: int

    def top(self) -> bytes:
        """A header line that no reader mistakes; the real names may be blank, twice, or long."""
        return (self.separator.join(f"c{k}" for k in range(len(self.names))) + "\n").encode()


@dataclass(frozen=True)
class _Csv:
    """A header line with some records of a CSV, and what messages about them need."""

    data: bytes
    name: str
    separator: str
    n_fields: int
    lines_before: int = 0

    def line_of(self, position: int) -> int:
        """Return the number in the file, counted from 1, of the line on which a byte stands."""
        return self.lines_before + self.data.count(b"\n", 0, position) + 1


def csv_batches(file: IO[bytes], name: str, separator: str | None) -> Iterator[pl.DataFrame]:
    """Read some records at a time; at least one frame, without rows if there are none."""
    parts, utf8 = _csv_parts(file, name), Utf8(name)
    part = utf8(next(parts, b""), 0)
    layout = _find_layout(part, name, separator)
    top, lines = layout.top(), part.count(b"\n", 0, layout.start)
    part = part[layout.start :]
    while True:
        table = _Csv(top + part, name, layout.separator, len(layout.names), lines - 1)
        frame = _parse_csv(table)
        frame.columns = layout.names
        yield frame
        lines += part.count(b"\n")
        following = next(parts, None)
        if following is None:
            return
        part = utf8(following, lines)


def find_csv_format(place: Place) -> CsvFormat:
    """Return how a CSV is written. It is read until a letter shows its encoding."""
    with open_bytes(place) as file:
        encoding, mark = find_mark(file.read(_HEAD_BYTES))
    utf8, known = Utf8(place.name), known_separator(place.ending)
    with open_bytes(place) as file:
        parts = _csv_parts(file, place.name)
        part = utf8(next(parts, b""), 0)
        while utf8.encoding is None and (later := next(parts, b"")):
            utf8(later, 0)
    layout = _find_layout(part, place.name, known)
    rows = layout.top() + part[layout.start :]
    head = _parse_csv(_Csv(rows, place.name, layout.separator, len(layout.names)))
    commas = sum(NumberLook.of(column).commas for column in head.head(_HEAD_RECORDS))
    return CsvFormat(
        "," if known else layout.separator,
        encoding if encoding != "utf-8" else utf8.encoding or encoding,
        mark,
        # Fields are separated by semicolons where the comma is the decimal mark.
        commas > 0 or (commas == 0 and layout.separator == ";"),
    )


def _csv_parts(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Cut a file into parts that end where a record does."""
    rest = b""
    for block in file_blocks(file, name):
        rest += block
        ends = _record_ends(rest)
        if ends.size:
            yield rest[: ends[-1] + 1]
            rest = rest[ends[-1] + 1 :]
        elif len(rest) > _LONGEST_RECORD:
            raise InputError(f"{name!r} opens a double quote that it never closes.")
    if rest:
        yield rest


def file_blocks(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The text of a file, some bytes at a time, with line ends of one kind and no wide letters."""
    blocks = utf8_blocks(iter(lambda: file.read(_BATCH_BYTES), b""), name)
    first = next(blocks, b"")
    old = b"\n" not in first  # line ends of the oldest spreadsheets
    for block in _chained(first, blocks):
        yield block.replace(b"\r", b"\n") if old else block


def _chained(first: bytes, others: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _find_layout(data: bytes, name: str, separator: str | None) -> _Layout:
    """Separator, header and beginning of the rows, by the first part of a file."""
    if not data.strip():
        raise nothing_in(name)
    if data.count(b'"') % 2:
        lines = data[:_HEAD_BYTES].decode(errors="replace").splitlines()
        _check_quotes(_Csv(data, name, separator or find_separator(lines), 0))
    ends = _head_ends(data)
    starts = [0, *(end + 1 for end in ends[:-1])]
    records = [data[a : b + 1].decode() for a, b in zip(starts, ends, strict=True)]
    if _SEPARATOR_LINE.fullmatch(records[0].strip("\r\n")):
        records[0] = ""  # the lines tell better: it stays when a file is saved with another
    separator = separator or find_separator(records)
    fields = [split_record(record, separator) for record in records]
    header = find_header(fields)
    _check_header_line(records[header], name)
    _note_skipped([record for record in records[:header] if record.strip()], name)
    return _Layout(separator, name_columns(fields[header], name), ends[header] + 1)


def _head_ends(data: bytes) -> list[int]:
    """Where the first records end; at least one."""
    ends = _record_ends(data[:_HEAD_BYTES])
    if not ends.size:
        ends = _record_ends(data)
    return [int(end) for end in ends[:_HEAD_RECORDS]] or [len(data) - 1]


def _check_header_line(record: str, name: str) -> None:
    if "\r" in record.strip("\r\n") and '"' not in record:
        raise InputError(
            f"The header of {name!r} holds a carriage return ({quoted(record[-60:].strip())}): the "
            "line ends of the file are mixed. Save it again with line ends of one kind."
        )


def _note_skipped(records: list[str], name: str) -> None:
    if records:
        lines = "1 line" if len(records) == 1 else f"{len(records)} lines"
        note(f"{name!r}: skipped {lines} above the header ({quoted(records[0].strip())}).")


def _parse_csv(table: _Csv) -> pl.DataFrame:
    if table.data.count(b'"') % 2:  # some readers take the rest of the file for one field
        _check_quotes(table)
    try:
        frame = pl.read_csv(table.data, separator=table.separator, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise _explain_csv_error(table, error) from error
    # Fewer rows than lines: a field runs over several, or a quote is missing that should end it.
    if b'"' in table.data and frame.height < table.data.count(b"\n") - 1:
        _check_quotes(table)
    # A row with too few fields is filled with nulls at its end, silently.
    if frame.height and frame[:, -1].null_count():
        _check_row_lengths(table)
    return frame.filter(~pl.all_horizontal(pl.all().is_null())) if frame.width > 1 else frame


def _explain_csv_error(table: _Csv, error: Exception) -> InputError:
    """Find out, after reading failed, what a person can mend and on which line."""
    try:
        check_utf8(table.data, table.name, table.lines_before)
        _check_quotes(table)
        _check_row_lengths(table)
    except InputError as found:
        return found
    return InputError(f"{table.name!r} could not be read as CSV ({first_line(error)}).")


def _check_quotes(table: _Csv) -> None:
    """Fail, naming the line, if a double quote neither opens nor closes a field."""
    mark = re.escape(table.separator.encode())
    quoted_field, bare_field = rb'"(?:[^"]++|"")*+"', rb'[^"\n' + mark + rb"]*+"
    end_of_field = mark + rb"|\r?\n|\Z"
    fields = rb"(?:(?:%b|%b)(?:%b))*+" % (quoted_field, bare_field, end_of_field)
    right = re.match(fields, table.data)
    place = right.end() if right else 0
    if place == len(table.data):
        return
    line = table.line_of(place)
    if not re.match(quoted_field, table.data[place:]) and table.data[place : place + 1] == b'"':
        raise InputError(
            f"{table.name!r}, line {line} opens a double quote that it never closes; the file may "
            "be cut short."
        )
    raise InputError(
        f"{table.name!r}, line {line}: a double quote stands inside a field. Put the field in "
        'double quotes and write the quote twice: "5"" pipe".'
    )


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
