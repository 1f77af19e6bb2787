"""Tables into Excel workbooks. Text stays text: no cell becomes a formula or a link."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables.columns import to_text
from riskad.tables.profiling import Look
from riskad.tables.readers import MomentReader

__all__ = ["SHEET_ROWS", "check_sheet_rows", "check_xlsxwriter", "excel_writer"]

SHEET_ROWS = 1_048_575
"""How many rows a sheet holds below its header."""

_COLUMNS, _TEXT = 16_384, 32_767  # that a sheet holds, and letters of a cell
_EXACT = 10**15  # numbers from here on lose digits in Excel
_FIRST_YEAR = 1900
_DATE, _DATETIME = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss"


def check_xlsxwriter() -> None:
    """Fail if the library that writes workbooks is not installed."""
    try:
        import xlsxwriter  # noqa: F401
    except ImportError as error:
        raise MissingLibrary(
            "Writing Excel files needs xlsxwriter: pip install 'riskad[excel]'. Or write CSV."
        ) from error


def check_sheet_rows(frames: Iterable[pl.DataFrame], name: str) -> None:
    """Fail if there are more rows than a sheet holds."""
    n_rows = 0
    for frame in frames:
        n_rows += frame.height
        if n_rows > SHEET_ROWS:
            raise InputError(
                f"{name!r} cannot hold so many rows: a sheet of Excel has {SHEET_ROWS + 1:,} with "
                "its header. Write to a name that ends in .csv or .parquet."
            )


@contextmanager
def excel_writer(part: Path, name: str) -> Iterator[Callable[[pl.DataFrame], None]]:
    """Give a function that takes frames; the workbook is written when the block succeeds.

    All rows together tell whether a column of texts holds numbers or dates.
    """
    frames: list[pl.DataFrame] = []

    def keep(frame: pl.DataFrame) -> None:
        frames.append(frame)
        check_sheet_rows(frames, name)

    yield keep
    _write(pl.concat(frames), part, name)


def _write(frame: pl.DataFrame, part: Path, name: str) -> None:
    import xlsxwriter
    from xlsxwriter.exceptions import XlsxWriterException

    if frame.width > _COLUMNS:
        raise InputError(
            f"{name!r} cannot hold {frame.width:,} columns: a sheet of Excel has at most "
            f"{_COLUMNS:,}. Write to a name that ends in .csv or .parquet."
        )
    cells = pl.DataFrame([_as_cells(column) for column in frame])
    _check_lengths(cells, name)
    # Rows go to the disk as they come.
    options = {"constant_memory": True, "nan_inf_to_errors": True, "use_zip64": True}
    book = xlsxwriter.Workbook(part, options)
    sheet = book.add_worksheet()
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, cells.height, cells.width - 1)
    bold = book.add_format({"bold": True})
    for place, title in enumerate(cells.columns):
        sheet.write_string(0, place, title, bold)
    writers = [_cell_writer(book, sheet, column.dtype) for column in cells]
    for row, values in enumerate(cells.iter_rows(), 1):
        for place, (value, write) in enumerate(zip(values, writers, strict=True)):
            if value is not None:
                write(row, place, value)
    try:
        book.close()
    except XlsxWriterException as error:  # a full disk, for one
        raise OSError(f"{name!r} could not be written: {error}") from error


def _check_lengths(cells: pl.DataFrame, name: str) -> None:
    texts = [column for column in cells if column.dtype == pl.String]
    for column in texts:
        longest = int(column.str.len_chars().max() or 0)  # type: ignore[arg-type]
        if max(longest, len(column.name)) > _TEXT:
            raise InputError(
                f"{name!r} cannot hold the {longest:,} characters of a cell of column "
                f"{column.name!r}: Excel takes {_TEXT:,}. Write to a name that ends in .csv."
            )


def _cell_writer(book: Any, sheet: Any, dtype: pl.DataType) -> Callable[[int, int, Any], Any]:
    if dtype == pl.Boolean:
        return sheet.write_boolean
    if dtype == pl.String:
        return sheet.write_string
    if not dtype.is_temporal():
        return sheet.write_number
    style = book.add_format({"num_format": _DATE if dtype == pl.Date else _DATETIME})
    return lambda row, place, value: sheet.write_datetime(row, place, value, style)


def _as_cells(column: pl.Series) -> pl.Series:
    """What Excel keeps as it is: numbers, yes and no, dates since 1900; all else as text."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return _from_texts(column.cast(pl.String))
    if column.dtype.is_numeric() and not column.dtype.is_decimal():
        column = column.fill_nan(None) if column.dtype.is_float() else column
        return column if column.dtype.is_float() or _is_exact(column) else to_text(column)
    dated = column.dtype in (pl.Date, pl.Datetime) and getattr(column.dtype, "time_zone", 0) is None
    if column.dtype == pl.Boolean or ((dated or column.dtype == pl.Date) and _is_recent(column)):
        return column
    return to_text(column)


def _from_texts(texts: pl.Series) -> pl.Series:
    """Numbers or dates, where every text is one and none is a code such as 007; else the texts."""
    look = Look.of(texts, 1)
    number = look.number.format() if look.number and not look.number.codes else None
    if number is not None and not (number.prefixes or number.suffixes):
        numbers = number.read(texts)[0]
        if _is_exact(numbers) and numbers.null_count() == texts.null_count():
            return numbers.alias(texts.name)
    moment = look.moment.format() if look.moment and not look.moment.ambiguous else None
    if moment is not None and moment.kind in ("date", "datetime") and not moment.zone:
        moments = MomentReader(moment).typed(moment.read(texts)[0])
        if moments.null_count() == texts.null_count() and _is_recent(moments):
            return moments.alias(texts.name)
    return texts


def _is_exact(numbers: pl.Series) -> bool:
    ends: list[Any] = [numbers.min() or 0, numbers.max() or 0]
    return all(-_EXACT < each < _EXACT for each in ends)


def _is_recent(moments: pl.Series) -> bool:
    return bool((moments.dt.year() >= _FIRST_YEAR).all())
