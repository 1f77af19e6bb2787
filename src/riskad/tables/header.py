"""Where a table begins in a sheet or a CSV, and the names of its columns.

Tables often have titles, dates and remarks above them, and duplicate or missing column names. A
note reports how this was resolved.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from riskad.core.checks import InputError, enumerate_names, quoted
from riskad.tables.notes import note

__all__ = ["find_header", "find_separator", "name_columns", "split_record"]

_SEPARATORS = ";\t|,"
_NUMBER_OR_DATE = re.compile(r"\s*[-+(]?\s*[$€£]?\s*\d")
_YEAR = re.compile(r"\s*(19|20)\d\d\s*")


def split_record(record: str, separator: str) -> list[str]:
    """The fields of a record, which may span several lines; none if it is blank."""
    record = record.strip("\r\n")
    if not record:
        return []
    try:
        return next(csv.reader([record], delimiter=separator))
    except csv.Error:  # a carriage return outside quotes, or a very long field
        return record.split(separator)


def find_separator(records: Sequence[str]) -> str:
    """The separator that cuts the header into most fields, and most records into equally many.

    Only separators with which half of the records have one length count, if there is one. The
    comma, which occurs in numbers and in texts, comes last; without any separator it is the comma.

    >>> find_separator(["name;paid", "Ann;1,50", "Bob;2,25"])
    ';'
    """

    def rank(separator: str) -> tuple[bool, int, int]:
        fields = [split_record(record, separator) for record in records]
        sizes = Counter(len(each) for each in fields if len(each) > 1)
        times = max(sizes.values(), default=0)
        half = 2 * times >= sum(map(bool, fields))
        return half and times > 0, len(fields[find_header(fields)]), times

    best = max(_SEPARATORS, key=rank)
    return best if rank(best)[2] else ","


def find_header(records: Sequence[Sequence[str]]) -> int:
    """The position of the record that names the columns, below titles or remarks.

    These have at most half as many cells as most records, begin at the left, and are above a record
    of names. In doubt the first record that is not blank is the header.

    >>> find_header([["Report of March"], [], ["card", "paid", "shop"], ["007", "1.5", "A"]])
    2
    """
    filled = [[bool(cell.strip()) for cell in record] for record in records]
    first = next((i for i, cells in enumerate(filled) if any(cells)), 0)
    sizes = Counter(
        len(record) for record, cells in zip(records, filled, strict=True) if any(cells)
    )
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    if usual < 2 or sizes[usual] < 2:
        return first
    for i, (record, cells) in enumerate(zip(records, filled, strict=True)):
        if not any(cells):
            continue
        if len(record) == usual and 2 * sum(cells) > usual and _are_names(record):
            return i
        remark = record[0].startswith("#") and len(record) != usual
        if not remark and not (cells[0] and sum(cells) <= max(usual // 2, 1)):
            break
    return first


def _are_names(record: Sequence[str]) -> bool:
    """Whether no cell looks like a number or a date, except for years."""
    return not any(_NUMBER_OR_DATE.match(cell) and not _YEAR.fullmatch(cell) for cell in record)


def name_columns(header: Sequence[str], name: str) -> list[str]:
    """Names that exist and differ: `column_3` for a missing one, `paid_2` for a second.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     name_columns(["paid", "", "paid"], "cards.csv")
    ['paid', 'column_2', 'paid_2']
    """
    _check_names(header, name)
    names, taken = [], set(header)
    for place, given in enumerate(header, 1):
        if not given.strip():
            names.append(_free(f"column_{place}", taken))
        elif given in names:
            names.append(_free(given, taken, names.count(given) + 1))
        else:
            names.append(given)
        taken.add(names[-1])
    _note_renamed(header, names, name)
    return names


def _check_names(header: Sequence[str], name: str) -> None:
    if header and all(_is_number(column) for column in header):
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


def _free(wanted: str, taken: set[str], number: int = 1) -> str:
    """A name that no column has: the one requested, or with the first free number."""
    found = wanted if number == 1 else f"{wanted}_{number}"
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def _note_renamed(header: Sequence[str], names: Sequence[str], name: str) -> None:
    pairs = [pair for pair in zip(header, names, strict=True) if pair[0] != pair[1]]
    blank = [new for old, new in pairs if not old.strip()]
    twice = [f"{quoted(old)} is now {quoted(new)}" for old, new in pairs if old.strip()]
    if blank:
        has = (
            "a column without a name" if len(blank) == 1 else f"{len(blank)} columns without a name"
        )
        note(f"{name!r} has {has}: called {enumerate_names(blank)}.")
    if twice:
        more = f" and {len(twice) - 4} more" if len(twice) > 4 else ""
        note(f"{name!r} has columns of the same name: the later {', '.join(twice[:4])}{more}.")
