"""Excel workbooks, read and written.

Every cell is read as text, except for columns of decimal numbers. Text that is written stays text:
no cell becomes a formula or a link.
"""

from __future__ import annotations

import functools
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import polars as pl

from riskad.core.checks import InputError, enumerate_names, quoted, required
from riskad.tables.cells import to_text
from riskad.tables.csv_reading import find_header, name_columns, note_skipped
from riskad.tables.notes import note
from riskad.tables.paths import Place, empty_file_error, first_line

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


def read_sheet(place: Place) -> pl.DataFrame:
    """Read a sheet: the one that is named, or the first that has cells.

    A date is written as 2025-03-27 18:14:00, a formula as its last result; an error such as #DIV/0!
    is blank. A column of decimal numbers stays one: as text, 1.234 could mean a thousand.
    """
    with _open(place) as workbook:
        sheet, raw = _find_sheet(workbook, place)
        raw = raw.select(column for column in raw if column.null_count() < raw.height)
        rows = [[cell or "" for cell in row] for row in raw.head(_HEAD_ROWS).rows()]
        header = find_header(rows)
        frame = _with_decimals(raw[header + 1 :], workbook, sheet)
    above = [" ".join(filter(None, row)) for row in rows[:header] if any(row)]
    note_skipped(above, "row", place.name)
    frame.columns = name_columns(rows[header], place.name)
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    texts = frame.select(pl.col(pl.String).str.replace(_TIME, ""))
    days = [c.str.replace(_MIDNIGHT, "") for c in texts if c.str.contains(_MIDNIGHT).all()]
    return frame.with_columns(*texts).with_columns(*days)


@contextmanager
def _open(place: Place) -> Iterator[Any]:
    """The workbook; what is damaged, also where the block reads it, is an `InputError`."""
    with required(
        "Reading Excel files needs fastexcel: pip install 'riskad[excel]'. Or save the sheet as "
        "CSV."
    ):
        import fastexcel
    damage = (fastexcel.FastExcelError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
    try:  # a damaged archive may also point before its start, which is an OSError
        _check_extent(place)
        yield fastexcel.read_excel(place.path)
    except (*damage, OSError) as error:
        raise InputError(
            f"{place.name!r} could not be read as an Excel workbook ({first_line(error)}). It may "
            "be damaged or have a password: save it anew, or as CSV."
        ) from error


def _check_extent(place: Place) -> None:
    """Refuse a workbook with a filled cell far beyond the others: few bytes, but much memory."""
    with zipfile.ZipFile(place.path) as book:
        for part in book.namelist():  # a sheet may have any name
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
    """The number of a column: 1 for A, 16384 for XFD."""
    return functools.reduce(lambda number, letter: 26 * number + letter - 64, letters, 0)


def _find_sheet(workbook: Any, place: Place) -> tuple[str, pl.DataFrame]:
    names = workbook.sheet_names
    if place.part is not None and place.part not in names:
        raise InputError(
            f"{place.name!r} has no sheet {place.part!r}; its sheets are {enumerate_names(names)}."
        )
    names = names if place.part is None else [place.part]
    options = {"header_row": None, "dtypes": "string"}
    frames = {name: workbook.load_sheet(name, **options).to_polars() for name in names}
    filled = [name for name in names if frames[name].height]
    if not filled:
        raise empty_file_error(place.name if place.part is None else f"{place.name}::{place.part}")
    if len(filled) > 1:
        note(
            f"{place.name!r} has {len(filled)} sheets: {filled[0]!r} was read. For another write "
            f"{place.name}::{filled[1]}"
        )
    return filled[0], frames[filled[0]]


def _with_decimals(body: pl.DataFrame, workbook: Any, sheet: str) -> pl.DataFrame:
    """Replace texts that show numbers with a point by the numbers, where all cells are numbers."""
    decimals = [
        column.name
        for column in body
        if column.str.contains(".", literal=True).any()
        and column.cast(pl.Float64, strict=False).null_count() == column.null_count()
    ]
    if not decimals:
        return body
    load = functools.partial(workbook.load_sheet, sheet, header_row=None)
    above = load(n_rows=0).total_height - body.height
    typed = load(skip_rows=above, schema_sample_rows=None).to_polars()
    return body.with_columns(typed[name] for name in decimals if typed[name].dtype == pl.Float64)


# --- writing --------------------------------------------------------------------------------------

SHEET_ROWS = 1_048_575
"""How many rows a sheet holds below its header."""

_COLUMNS, _TEXT = 16_384, 32_767  # that a sheet holds, and letters of a cell
_EXACT = 10**15  # numbers from here on lose digits in Excel
_FIRST_YEAR = 1900
_TYPES = ("number", "moment")  # of texts that are written as such


def check_xlsxwriter() -> None:
    """Fail if the library that writes workbooks is not installed."""
    with required(
        "Writing Excel files needs xlsxwriter: pip install 'riskad[excel]'. Or write CSV."
    ):
        import xlsxwriter  # noqa: F401


def _too_large(name: str, what: str, limit: str) -> InputError:
    return InputError(
        f"{name!r} cannot hold {what}: {limit}. Write to a name that ends in .csv or .parquet."
    )


@contextmanager
def excel_writer(part: Path, name: str) -> Iterator[Callable[[pl.DataFrame], None]]:
    """Give a function that takes frames; the workbook is written when the block succeeds.

    All rows together tell whether a column of texts holds numbers or dates.
    """
    import xlsxwriter
    from xlsxwriter.exceptions import XlsxWriterException

    frames: list[pl.DataFrame] = []

    def keep(frame: pl.DataFrame) -> None:
        frames.append(frame)
        if sum(each.height for each in frames) > SHEET_ROWS:
            limit = f"a sheet of Excel has {SHEET_ROWS + 1:,} with its header"
            raise _too_large(name, "so many rows", limit)

    yield keep
    cells = pl.DataFrame([_as_cells(column) for column in pl.concat(frames)])
    if cells.width > _COLUMNS:
        raise _too_large(name, f"{cells.width:,} columns", f"a sheet of Excel has {_COLUMNS:,}")
    for column in cells.select(pl.col(pl.String)):
        longest = int(column.str.len_chars().max() or 0)  # type: ignore[arg-type]
        if max(longest, len(column.name)) > _TEXT:
            texts = f"the {longest:,} characters of a cell of column {quoted(column.name)}"
            raise _too_large(name, texts, f"Excel takes {_TEXT:,}")
    # Rows go to the disk as they come.
    options = {"constant_memory": True, "nan_inf_to_errors": True, "use_zip64": True}
    book = xlsxwriter.Workbook(part, options)
    sheet = book.add_worksheet()
    # Otherwise texts may become links, and in some versions also formulas: {=1+1}.
    sheet.add_write_handler(str, type(sheet).write_string)
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, cells.height, cells.width - 1)
    bold = book.add_format({"bold": True})
    for place, (title, dtype) in enumerate(cells.schema.items()):
        sheet.write_string(0, place, title, bold)
        if dtype.is_temporal():
            style = "yyyy-mm-dd" if dtype == pl.Date else "yyyy-mm-dd hh:mm:ss"
            sheet.set_column(place, place, None, book.add_format({"num_format": style}))
    for row, values in enumerate(cells.iter_rows(), 1):
        sheet.write_row(row, 0, values)
    try:
        book.close()
    except XlsxWriterException as error:  # a full disk, for one
        raise OSError(f"{name!r} could not be written: {error}") from error


def _as_cells(column: pl.Series) -> pl.Series:
    """What Excel keeps as it is: numbers, yes and no, dates since 1900; all else as text."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return _from_texts(column.cast(pl.String))
    if column.dtype.is_numeric() and not column.dtype.is_decimal():
        column = column.fill_nan(None) if column.dtype.is_float() else column
        return column if column.dtype.is_float() or _is_exact(column) else to_text(column)
    dated = column.dtype in (pl.Date, pl.Datetime) and not getattr(column.dtype, "time_zone", None)
    if column.dtype == pl.Boolean or (dated and _is_recent(column)):
        return column
    return to_text(column)


def _from_texts(texts: pl.Series) -> pl.Series:
    """Numbers or dates, where every text is one and none is a code such as 007; else the texts."""
    from riskad.tables.profiling import Look  # which whoever only reads need not load

    cells = Look.of(texts, 1).cells
    number, moment = (cells[word].format() if word in cells else None for word in _TYPES)
    if number and not (number.prefixes or number.suffixes or cells["number"].first_code):
        numbers = number.read(texts)[0]
        if _is_exact(numbers) and numbers.null_count() == texts.null_count():
            return numbers.alias(texts.name)
    if moment and moment.kind in ("date", "datetime") and not moment.zone:
        moments = moment.to_typed(moment.read(texts)[0], texts, 1)
        complete = moments.null_count() == texts.null_count()
        if complete and _is_recent(moments) and not cells["moment"].ambiguous:
            return moments
    return texts


def _is_exact(numbers: pl.Series) -> bool:
    ends: list[Any] = [numbers.min() or 0, numbers.max() or 0]
    return all(-_EXACT < each < _EXACT for each in ends)


def _is_recent(moments: pl.Series) -> bool:
    return bool((moments.dt.year() >= _FIRST_YEAR).all())
