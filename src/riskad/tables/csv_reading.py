"""CSV files, read as text some records at a time, with errors that name the line.

Every column is text: what a person wrote ("007", "1.50") comes out again as it went in, and what a
column means is decided once, in `riskad.tables.preparation`. Encoding, separator and header are
found, and a note reports what was decided.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, enumerate_names, quoted
from riskad.tables.notes import ReadingNote, note
from riskad.tables.paths import Place, empty_file_error, ending_by_magic, first_line, read_blocks

_BATCH_BYTES = 1 << 23  # a part of a file
_LONGEST_RECORD = 1 << 28  # bytes; a quote that is never closed ends here rather than in memory
_HEAD_BYTES, _HEAD_RECORDS = 1 << 16, 200  # by which separator and header are found


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV is written, so that another is written like it."""

    separator: str = ","
    encoding: str = "utf-8"
    mark: bytes = b""  # the byte order mark
    decimal_comma: bool = False


def csv_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read some records at a time; at least one frame, without rows if there are none."""
    parts = text_parts(place, _last_record_end)
    head = next(parts, _NOTHING).data
    parser = _Parser(head, place)
    yield parser.parse(head[parser.start :], head.count(b"\n", 0, parser.start))
    for part in parts:
        yield parser.parse(part.data, part.lines_before)


def csv_format(places: Sequence[Place]) -> CsvFormat:
    """Return how CSV files are written; the usual format if they differ, or are no CSV.

    A file is read until a letter shows its encoding.
    """
    formats = set()
    with warnings.catch_warnings(action="ignore", category=ReadingNote):  # who reads them says it
        for place in places:
            if place.format != "csv":
                return CsvFormat()
            parts = text_parts(place, _last_record_end)
            head = next(parts, _NOTHING)
            parser = _Parser(head.data, place)
            cells = pl.concat(list(parser.parse(head.data[parser.start :], 0).head(_HEAD_RECORDS)))
            commas, points = cells.str.contains(_COMMA).sum(), cells.str.contains(_POINT).sum()
            # Fields are separated by semicolons where the comma is the decimal mark.
            comma = commas > points or (commas == points and parser.separator == ";")
            encoding = head.encoding
            while encoding is None and (part := next(parts, None)):
                encoding = part.encoding
            separator = "," if place.separator else parser.separator
            formats.add(CsvFormat(separator, encoding or "utf-8", head.mark, comma))
    return formats.pop() if len(formats) == 1 else CsvFormat()


# Numbers that show the decimal mark: 12,5 and 1.234,5, but not 1,234; likewise for the point.
_COMMA, _POINT = (
    rf"^\D{{0,4}}(\d+{mark}(\d\d?|\d{{4,}})|\d{{1,3}}({other}\d{{3}})+{mark}\d+)\D{{0,4}}$"
    for mark, other in ((",", r"[.' ]"), (r"\.", "[,' ]"))
)


class _Parser:
    """Finds separator, header and first row by the first part of a file, and parses all parts."""

    def __init__(self, head: bytes, place: Place):
        self.name = place.name
        if not head.strip():
            raise empty_file_error(self.name)
        # With an odd number of quotes one is out of place, which `parse` reports.
        quotes = head.count(b'"') % 2 == 0
        ends = _places(head[:_HEAD_BYTES], "\n", quotes)
        if not ends.size or not head[: ends[-1]].strip():  # a header of many kilobytes
            ends = _places(head, "\n", quotes)
        ends = ends[:_HEAD_RECORDS] if ends.size else np.array([len(head) - 1])
        cuts = zip([0, *(ends[:-1] + 1)], ends + 1, strict=True)
        records = [head[start:end].decode() for start, end in cuts]
        if re.fullmatch(r"sep=([,;|\t:^~ ])", records[0].strip("\r\n"), re.IGNORECASE):
            # Written for Excel. The lines tell better: it stays when a file is saved with another.
            records[0] = ""
        self.separator, fields, header = _find_layout(records, place.separator or ";\t|,")
        title = records[header]
        if "\r" in title.strip("\r\n") and '"' not in title:
            raise InputError(
                f"The header of {self.name!r} holds a carriage return "
                f"({quoted(title[-60:].strip())}): the line ends of the file are mixed. Save it "
                "again with line ends of one kind."
            )
        if header:
            note_skipped([r.strip() for r in records[:header] if r.strip()], "line", self.name)
        self.columns = name_columns(fields[header], self.name)
        self.start = int(ends[header]) + 1

    def parse(self, records: bytes, lines_before: int) -> pl.DataFrame:
        """Return the rows of some records that `lines_before` lines precede."""
        # A header line that no reader mistakes; the real names may be blank, twice, or long.
        top = self.separator.join(map("c{}".format, range(len(self.columns)))) + "\n"
        data, lines_before = top.encode() + records, lines_before - 1
        # Counting bytes costs far less than parsing: only parts that look wrong are gone through.
        quotes = data.count(b'"')
        if quotes % 2:  # some readers take the rest of the file for one field
            self._check_records(data, lines_before)
        try:
            frame = pl.read_csv(data, separator=self.separator, infer_schema=False)
        except pl.exceptions.PolarsError as error:
            decode_text(data, self.name, lines_before)
            self._check_records(data, lines_before)
            raise InputError(
                f"{self.name!r} could not be read as CSV ({first_line(error)})."
            ) from error
        # Fewer rows than lines: a field runs over several, or a quote is missing that should end it
        wrong = quotes and frame.height < data.count(b"\n") - 1
        if not wrong and frame.height and frame[:, -1].null_count():
            # Rows may have too few fields, which polars fills with nulls, silently.
            mark = self.separator
            n_marks = len(_places(data, mark)) if quotes else data.count(mark.encode())
            wrong = n_marks != (frame.width - 1) * (frame.height + 1)
        if wrong:
            self._check_records(data, lines_before)
        frame.columns = self.columns
        # Blank lines are no rows, except in a table of one column, where they are blank cells.
        if frame.width == 1 or not frame.null_count().min_horizontal()[0]:
            return frame
        return frame.filter(~pl.all_horizontal(pl.all().is_null()))

    def _check_records(self, data: bytes, lines_before: int) -> None:
        """Fail, naming the line, at the first record that does not have the header's fields."""
        mark = re.escape(self.separator.encode())
        # Possessive (++, *+): a damaged record must not be tried in exponentially many ways.
        field = rb'(?:"(?:[^"]++|"")*+"|[^"\n%b]*+)' % mark
        end = rb"(?:\r?\n|\Z)"
        others = len(self.columns) - 1
        right = re.match(rb"(?:%b(?:%b%b){%d}%b|\r?\n)*+" % (field, mark, field, others, end), data)
        place = right.end() if right else 0
        if place == len(data):
            return
        start = f"{self.name!r}, line {_line_of(place, data, lines_before)}: "
        record = re.compile(rb"%b(?:%b%b)*+%b" % (field, mark, field, end)).match(data, place)
        if record is None:
            raise InputError(
                f"{start}a double quote stands inside a field or never closes. Put such a field in "
                'double quotes and write the quote twice: "5"" pipe".'
            )
        fields = re.sub(rb'"(?:[^"]++|"")*+"', b"", record[0])
        n_fields = fields.count(self.separator.encode()) + 1
        raise InputError(
            f"{start}{n_fields} field{'s' * (n_fields != 1)} where the header has "
            f"{len(self.columns)}. A field that contains {self.separator!r} must be in double "
            "quotes, blank fields must be there, too, and the file must not be cut short."
        )


def _places(data: bytes, mark: str, outside_quotes: bool = True) -> NDArray[np.int64]:
    """The places of a mark, or of those before which an even number of double quotes stands."""
    codes = np.frombuffer(data, dtype=np.uint8)
    places = np.flatnonzero(codes == ord(mark))
    if not outside_quotes:
        return places
    n_quotes = np.searchsorted(np.flatnonzero(codes == ord('"')), places)
    return places[n_quotes % 2 == 0]


def _last_record_end(data: bytes) -> int:
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends = _places(data, "\n")
    return int(ends[-1]) + 1 if ends.size else 0


def _line_of(place: int, data: bytes, lines_before: int) -> int:
    return lines_before + data.count(b"\n", 0, place) + 1


# --- encodings ------------------------------------------------------------------------------------
# UTF-16 and UTF-32 are recognised by a byte order mark, UTF-8 by being valid.
# What is not valid is Windows-1252, which most spreadsheets wrote for decades; Latin-1 is in it.

_MARKS = {  # the longer ones first: that of UTF-32 begins as that of UTF-16
    codecs.BOM_UTF8: None,  # which some programs write before Windows-1252
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_WINDOWS = "cp1252"
_SAVE_AGAIN = "Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."


class TextPart(NamedTuple):
    """Some whole records of a text file, as UTF-8 unless its parser finds that they are not."""

    data: bytes
    lines_before: int
    encoding: str | None  # of the file; None while all of it was plain ASCII
    mark: bytes  # the byte order mark of the file


_NOTHING = TextPart(b"", 0, None, b"")


def text_parts(place: Place, last_end: Callable[[bytes], int]) -> Iterator[TextPart]:
    """The text of a file in parts that end where a record does, which `last_end` finds.

    The first part that is not plain ASCII tells the encoding where no byte order mark does.
    """
    name, blocks = place.name, read_blocks(place, _BATCH_BYTES)
    start = next(blocks, b"")
    if (ending := ending_by_magic(start)) is not None:
        raise InputError(
            f"{name!r} is not text: its first bytes are those of a {ending} file, or .zip. Give it "
            "that ending, or unpack it."
        )
    mark = next(filter(start.startswith, _MARKS), b"")
    encoding, lines, rest = _MARKS.get(mark), 0, b""
    blocks = itertools.chain([start[len(mark) :]], blocks)
    if encoding is not None:
        blocks = _recode(blocks, encoding, name)
    first = next(blocks, b"")
    oldest = b"\n" not in first  # line ends of the oldest spreadsheets
    for block in itertools.chain([first], blocks, [None]):
        if block is not None:
            rest += block.replace(b"\r", b"\n") if oldest else block
        end = len(rest) if block is None else last_end(rest)
        if end:
            data, rest = rest[:end], rest[end:]
            if encoding is None and not data.isascii():
                encoding = _find_encoding(data, name, lines)
            if encoding == _WINDOWS:
                data = decode_text(data, name, lines, _WINDOWS).encode()
            yield TextPart(data, lines, encoding, mark)
            lines += data.count(b"\n")
        elif len(rest) > _LONGEST_RECORD:
            raise InputError(
                f"{name!r} opens a double quote that it never closes, or has no line ends."
            )


def _recode(blocks: Iterable[bytes], encoding: str, name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise InputError(
            f"{name!r} begins as {encoding[:6].upper()} and goes on as something else, or was cut "
            f"short. {_SAVE_AGAIN}"
        ) from error


def decode_text(data: bytes, name: str, lines_before: int, encoding: str = "utf-8") -> str:
    """Decode a part of a file; what cannot be is an error that names line and byte."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line, byte = _line_of(error.start, data, lines_before), data[error.start]
        why = "not UTF-8, which the rest of the file is"
        why = "neither UTF-8 nor Windows-1252" if encoding == _WINDOWS else why
        raise InputError(
            f"{name!r}, line {line}: byte 0x{byte:02x} is {why}. {_SAVE_AGAIN}"
        ) from error


def _find_encoding(data: bytes, name: str, lines_before: int) -> str:
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError as error:
        text = data.decode(errors="replace")
        # A replacement is one letter here: with more others than these, it is a bad byte.
        beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
        if beyond_ascii > 2 * text.count("\ufffd"):  # most such letters are UTF-8
            decode_text(data, name, lines_before)
        note(
            f"{name!r} was read as Windows-1252: byte 0x{data[error.start]:02x} on line "
            f"{_line_of(error.start, data, lines_before)} is not UTF-8. If letters look wrong, "
            "save it again as UTF-8."
        )
        return _WINDOWS


# --- where a table begins, in a CSV or a sheet ----------------------------------------------------

_NUMBER_OR_DATE = re.compile(r"\s*[-+(]?\s*[$€£]?\s*\d")
_YEAR = re.compile(r"\s*(19|20)\d\d\s*")


def _find_layout(records: Sequence[str], separators: str) -> tuple[str, list[list[str]], int]:
    """The separator, the fields of the records, and which of these is the header.

    The separator cuts the header into most fields, and most records into equally many. Only those
    with which half of the records have one length count, if there is one. The comma, which occurs
    in numbers and in texts, comes last; without any separator it is the comma.
    """
    layouts: dict[tuple[Any, ...], tuple[str, list[list[str]], int]] = {}
    for separator in separators:
        fields: list[list[str]] = []
        for record in records:
            text = record.strip("\r\n")
            try:
                fields.append(next(csv.reader([text], delimiter=separator)) if text else [])
            except csv.Error:  # a carriage return outside quotes, or a very long field
                fields.append(text.split(separator))
        header, sizes = find_header(fields), Counter(map(len, fields))
        n_filled = len(fields) - sizes.pop(0, 0)
        del sizes[1]
        # Records of a single field show nothing: every separator that does not occur gives them.
        times = max(sizes.values(), default=0)
        half = times > 0 and 2 * times >= n_filled
        rank = half, len(fields[header]), times, not times and separator == ","
        if rank > max(layouts, default=(False,)):
            layouts[rank] = separator, fields, header
    return layouts[max(layouts)]


def find_header(records: Sequence[Sequence[str]]) -> int:
    """The position of the record that names the columns, below titles or remarks.

    These have at most half as many cells as most records, begin at the left, and are above a record
    of names. In doubt the first record that is not blank is the header.
    """
    stripped = (list(map(str.strip, record)) for record in records)
    filled = {i: cells for i, cells in enumerate(stripped) if any(cells)}
    first = min(filled, default=0)
    sizes = Counter(map(len, filled.values()))
    times, usual = max(zip(sizes.values(), sizes, strict=True), default=(0, 0))
    if usual < 2 or times < 2:
        return first
    for i, cells in filled.items():
        n_filled = sum(map(bool, cells))
        names = not any(_NUMBER_OR_DATE.match(c) and not _YEAR.fullmatch(c) for c in cells)
        if len(cells) == usual and 2 * n_filled > usual and names:
            return i
        remark = records[i][0].startswith("#") and len(cells) != usual
        if not remark and not (cells[0] and n_filled <= max(usual // 2, 1)):
            break
    return first


def note_skipped(above: Sequence[str], kind: str, file: str) -> None:
    """Report lines or rows above the header, if there are some."""
    if above:
        lines = f"{len(above)} {kind}{'s' * (len(above) > 1)}"
        note(f"{file!r}: skipped {lines} above the header ({quoted(above[0])}).")


def name_columns(header: Sequence[str], file: str) -> list[str]:
    """Names that exist and differ: `column_3` for a missing one, `paid_2` for a second."""
    titles = pl.Series(header, dtype=pl.String).str.strip_chars()
    if header and not titles.cast(pl.Float64, strict=False).null_count():
        raise InputError(
            f"The first line of {file!r} holds only numbers ({enumerate_names(header, 4)}); "
            "it must name the columns. Add a header line."
        )
    names, renamed = dict[str, None](), []
    used_names = set(header)
    for place, title in enumerate(header, 1):
        name = base = title if title.strip() else f"column_{place}"
        if name in names or base != title:
            numbered = (f"{base}_{k}" for k in itertools.count(2))
            # An invented name must not be one that a later column has.
            name = next(n for n in itertools.chain([base], numbered) if n not in used_names)
            used_names.add(name)
            renamed.append(name)
        names[name] = None
    if renamed:
        columns = "a column" if len(renamed) == 1 else f"{len(renamed)} columns"
        which = "without a name, or with the name of another"
        note(f"{file!r} has {columns} {which}: called {enumerate_names(renamed)}.")
    return list(names)
