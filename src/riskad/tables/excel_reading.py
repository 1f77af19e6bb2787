"""Sheets of Excel workbooks, every cell as text."""

from __future__ import annotations

from typing import Any

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


def excel_table(place: Place) -> pl.DataFrame:
    """Read a sheet: the one that is named, or the first that has cells.

    A date is written as 2025-03-27 18:14:00, a number with a point, a formula as its last result;
    an error such as #DIV/0! is blank.
    """
    workbook = _open(place)
    raw = _named(workbook, place, place.part) if place.part else _first(workbook, place)
    raw = raw.select(column for column in raw if column.null_count() < raw.height)
    rows = [[cell or "" for cell in row] for row in raw.head(_HEAD_ROWS).rows()]
    header = find_header(rows)
    skipped = [" ".join(filter(None, row)) for row in rows[:header] if any(row)]
    if skipped:
        lines = "1 row" if len(skipped) == 1 else f"{len(skipped)} rows"
        note(f"{place.name!r}: skipped {lines} above the header ({skipped[0][:60]!r}).")
    frame = raw[header + 1 :]
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
        return fastexcel.read_excel(place.path)
    except fastexcel.FastExcelError as error:
        raise InputError(
            f"{place.name!r} could not be read as an Excel workbook ({first_line(error)}). It may "
            "be damaged or have a password: save it anew, or as CSV."
        ) from error


def _load(workbook: Any, sheet: str, place: Place) -> pl.DataFrame:
    import fastexcel

    try:
        frame: pl.DataFrame = workbook.load_sheet(
            sheet, header_row=None, dtypes="string"
        ).to_polars()
    except fastexcel.FastExcelError as error:
        raise InputError(
            f"Sheet {sheet!r} of {place.name!r} could not be read ({first_line(error)}). Save it "
            "anew, or as CSV."
        ) from error
    return frame


def _named(workbook: Any, place: Place, sheet: str) -> pl.DataFrame:
    sheets = workbook.sheet_names
    if sheet not in sheets:
        raise InputError(
            f"{place.name!r} has no sheet {sheet!r}; its sheets are {enumerate_names(sheets)}."
        )
    frame = _load(workbook, sheet, place)
    if not frame.height:
        raise nothing_in(f"{place.name}::{sheet}")
    return frame


def _first(workbook: Any, place: Place) -> pl.DataFrame:
    """The first sheet with cells; the others are named, if they have some, too."""
    found = pl.DataFrame()
    full: list[str] = []
    for sheet in workbook.sheet_names:
        frame = _load(workbook, sheet, place)
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
    return found


def _clock(column: pl.Series) -> pl.Series:
    """Days without a time, and times without a day."""
    column = column.str.replace(_TIME, "")
    days = column.str.contains(_MIDNIGHT)
    return column.str.replace(_MIDNIGHT, "") if days.any() and days.all() else column
