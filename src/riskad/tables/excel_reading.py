"""Sheets of Excel workbooks, every cell as text, except for columns of decimal numbers."""

from __future__ import annotations

import functools
import re
import zipfile
import zlib
from typing import IO, Any

import polars as pl

from riskad.core.checks import InputError, MissingLibrary, enumerate_names
from riskad.tables.csv_reading import first_line
from riskad.tables.header import find_header, name_columns
from riskad.tables.notes import note
from riskad.tables.paths import Place, nothing_in

__all__ = ["excel_table"]

_HEAD_ROWS = 200
_MIDNIGHT = r" 00:00:00$"
_TIME = r"^1899-12-3[01] "  # the day zero of Excel, which a time of day carries
# The rectangle up to the last cell is held in memory, and may be far larger than the file.
_MOST_CELLS, _MOST_PER_FILLED = 1 << 22, 100
_CHUNK = 1 << 20
_TAG = re.compile(
    rb"<(?:\w+:)?(row|c)(?=[\s/>])"
    rb"(?:[^<]*?\sr\s*=\s*[\"']([A-Z]{0,4})([0-9]{1,9})[\"'])?[^<>]*?(/?)>"
)
_TAG_START = re.compile(rb"<(?:\w+:)?(row|c)\s")


def excel_table(place: Place) -> pl.DataFrame:
    """Read a sheet: the one that is named, or the first that has cells.

    A date is written as 2025-03-27 18:14:00, a formula as its last result; an error such as #DIV/0!
    is blank. A column of decimal numbers stays one: as text, 1.234 could mean a thousand.
    """
    workbook = _open(place)
    sheet, raw = _named(workbook, place, place.part) if place.part else _first(workbook, place)
    raw = raw.select(column for column in raw if column.null_count() < raw.height)
    rows = [[cell or "" for cell in row] for row in raw.head(_HEAD_ROWS).rows()]
    header = find_header(rows)
    skipped = [" ".join(filter(None, row)) for row in rows[:header] if any(row)]
    if skipped:
        lines = "1 row" if len(skipped) == 1 else f"{len(skipped)} rows"
        note(f"{place.name!r}: skipped {lines} above the header ({skipped[0][:60]!r}).")
    frame = _with_decimals(raw[header + 1 :], workbook, sheet, place)
    frame.columns = name_columns(rows[header], place.name)
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return frame.select(_clock(column) for column in frame)


def _open(place: Place) -> Any:
    try:
        import fastexcel
    except ImportError as error:
        raise MissingLibrary(
            "Reading Excel files needs fastexcel: pip install 'riskad[excel]'. Or save the sheet "
            "as CSV."
        ) from error
    try:
        _check_extent(place)
        return fastexcel.read_excel(place.path)
    except (
        fastexcel.FastExcelError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
    ) as error:
        raise InputError(
            f"{place.name!r} could not be read as an Excel workbook ({first_line(error)}). It may "
            "be damaged or have a password: save it anew, or as CSV."
        ) from error


def _check_extent(place: Place) -> None:
    """Refuse a workbook with a filled cell far beyond the others: few bytes, but much memory."""
    with zipfile.ZipFile(place.path) as book:
        for part in book.namelist():
            if not part.endswith(".xml"):
                continue
            with book.open(part) as file:
                last_row, last_column, n_filled = _extent(file)
            if last_row * last_column > max(_MOST_CELLS, _MOST_PER_FILLED * n_filled):
                raise InputError(
                    f"{place.name!r} has cells up to row {last_row:,} and column {last_column:,}, "
                    f"but only {n_filled:,} are filled. Delete the cells that lie far from the "
                    "others (Ctrl+End in Excel goes to the last one), or save the sheet as CSV."
                )


def _extent(file: IO[bytes]) -> tuple[int, int, int]:
    """The last row and column with a filled cell, and how many cells are filled.

    A row or cell without a number follows the one before it.
    """
    row = column = last_row = last_column = n_filled = 0
    rest = b""
    while chunk := file.read(_CHUNK):
        text = rest + chunk
        end = max(text.rfind(b"<"), 0)
        rest = text[end:]
        if len(rest) > _CHUNK:  # a long text
            if _TAG_START.match(rest):
                raise zipfile.BadZipFile("a tag without an end")
            rest = b""
        for tag, letters, digits, empty in _TAG.findall(text, 0, end):
            row = int(digits) if digits else row + (tag == b"row")
            if tag == b"row":
                column = 0
                continue
            column = _column_number(letters) if letters else column + 1
            if not empty:
                n_filled += 1
                last_row, last_column = max(row, last_row), max(column, last_column)
    return last_row, last_column, n_filled


@functools.cache
def _column_number(letters: bytes) -> int:
    """The number of a column.

    >>> _column_number(b"A"), _column_number(b"XFD")
    (1, 16384)
    """
    return functools.reduce(lambda number, letter: 26 * number + letter - 64, letters, 0)


def _load(workbook: Any, sheet: str, place: Place, **options: Any) -> pl.DataFrame:
    import fastexcel

    try:
        frame: pl.DataFrame = workbook.load_sheet(sheet, header_row=None, **options).to_polars()
    except fastexcel.FastExcelError as error:
        raise InputError(
            f"Sheet {sheet!r} of {place.name!r} could not be read ({first_line(error)}). Save it "
            "anew, or as CSV."
        ) from error
    return frame


def _with_decimals(body: pl.DataFrame, workbook: Any, sheet: str, place: Place) -> pl.DataFrame:
    """Replace texts that show numbers with a point by the numbers, where all cells are numbers."""
    shown = [
        column.name
        for column in body
        if column.str.contains(".", literal=True).any()
        and column.cast(pl.Float64, strict=False).null_count() == column.null_count()
    ]
    if not shown:
        return body
    above = workbook.load_sheet(sheet, header_row=None, n_rows=0).total_height - body.height
    typed = _load(workbook, sheet, place, skip_rows=above, schema_sample_rows=None)
    return body.with_columns(typed[name] for name in shown if typed[name].dtype == pl.Float64)


def _named(workbook: Any, place: Place, sheet: str) -> tuple[str, pl.DataFrame]:
    sheets = workbook.sheet_names
    if sheet not in sheets:
        raise InputError(
            f"{place.name!r} has no sheet {sheet!r}; its sheets are {enumerate_names(sheets)}."
        )
    frame = _load(workbook, sheet, place, dtypes="string")
    if not frame.height:
        raise nothing_in(f"{place.name}::{sheet}")
    return sheet, frame


def _first(workbook: Any, place: Place) -> tuple[str, pl.DataFrame]:
    """The first sheet with cells; the others are named, if they have some, too."""
    found = pl.DataFrame()
    full: list[str] = []
    for sheet in workbook.sheet_names:
        frame = _load(workbook, sheet, place, dtypes="string")
        if frame.height:
            found = found if full else frame
            full.append(sheet)
    if not full:
        raise nothing_in(place.name)
    if len(full) > 1:
        note(
            f"{place.name!r} has {len(full)} sheets: {full[0]!r} was read. For another write "
            f"{place.name}::{full[1]}"
        )
    return full[0], found


def _clock(column: pl.Series) -> pl.Series:
    """Days without a time, and times without a day."""
    if column.dtype != pl.String:
        return column
    column = column.str.replace(_TIME, "")
    days = column.str.contains(_MIDNIGHT)
    return column.str.replace(_MIDNIGHT, "") if days.any() and days.all() else column
