"""Tables in and out of files: CSV and Parquet, read whole, written whole or not at all.

A CSV is read as text, every column of it: what a person wrote ("007", "1.50") comes out again
as it went in, and what a column means is decided once, in `riskad.prepare`.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad._checks import InputError, enumerate_names
from riskad._files import atomic_path, check_input_file

__all__ = ["READABLE", "WRITABLE", "check_columns", "check_table_name", "read_table", "write_table"]

READABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
WRITABLE = (".csv", ".tsv", ".parquet", ".pq")

_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
# What a spreadsheet may take for a formula, except what can only be a number or a dash.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER_LIKE = r"^[-+]?[\d.,' %]*([eE][-+]?\d+)?$"


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
    riskad._checks.InputError: There is no column 'lable'. Did you mean 'label'? \
The columns are 'amount', 'label'.
    """
    for name in names:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1)
            close = close or [column for column in columns if column.lower() == name.lower()]
            guess = f" Did you mean {close[0]!r}?" if close else ""
            listed = enumerate_names(columns, 12)
            raise InputError(f"There is no column {name!r}.{guess} The columns are {listed}.")


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
    path, ending = check_table_name(check_input_file(path), READABLE)
    if path.stat().st_size == 0:
        raise InputError(f"{path.name!r} is empty: there is no header line and no row in it.")
    if ending in (".parquet", ".pq"):
        return _read_parquet(path)
    return _read_csv(_read_bytes(path, ending), path.name, "\t" if "tsv" in ending else None)


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
        if ending in (".parquet", ".pq"):
            frame.write_parquet(part)
        else:
            _write_csv(frame, part, path.name, "\t" if ending == ".tsv" else ",")


def _write_csv(frame: pl.DataFrame, part: Path, name: str, separator: str) -> None:
    nested = [column for column, kind in frame.schema.items() if kind.is_nested()]
    if nested:
        raise InputError(
            f"Columns {enumerate_names(nested)} hold lists or structures, which {name!r} cannot; "
            "write to a name that ends in .parquet."
        )
    _without_formulas(frame).write_csv(part, separator=separator)


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


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, glob=False)
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{path.name!r} could not be read as Parquet ({_first_line(error)}). "
            "It may be cut short, or another kind of file under this name."
        ) from error


def _read_bytes(path: Path, ending: str) -> bytes:
    data = path.read_bytes()
    if not ending.endswith(".gz"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name!r} could not be unpacked as gzip ({error}).") from error


def _read_csv(data: bytes, name: str, separator: str | None) -> pl.DataFrame:
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")  # line ends of the oldest spreadsheets
    if not data.strip():
        raise InputError(f"{name!r} is empty: there is no header line and no row in it.")
    separator = separator or _find_separator(_first_record(data, name, None))
    header = _first_record(data, name, separator)
    _check_header(header, name)
    if data.count(b'"') % 2:  # some readers take the rest of the file for one field
        _check_quotes(data, name, separator)
    try:
        frame = pl.read_csv(data, separator=separator, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise _explain_csv_error(data, name, separator, len(header), error) from error
    # A row with too few fields is filled with nulls at its end, silently.
    if frame.height and frame[:, -1].null_count():
        _check_row_lengths(data, name, separator, len(header))
    return frame.filter(~pl.all_horizontal(pl.all().is_null())) if frame.width > 1 else frame


def _first_record(data: bytes, name: str, separator: str | None) -> list[str]:
    """Return the fields of the first line that is not blank; without a separator, one field."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    try:
        if separator is None:
            return [next(line for line in text if line.strip())]
        return next(record for record in csv.reader(text, delimiter=separator) if record)
    except UnicodeDecodeError as error:
        raise _not_utf8(data, name) from error
    except csv.Error as error:
        raise InputError(f"The header of {name!r} could not be read ({error}).") from error


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


def _explain_csv_error(
    data: bytes, name: str, separator: str, n_fields: int, error: Exception
) -> InputError:
    """Find out, after reading failed, what a person can mend and on which line."""
    try:
        data.decode()
        _check_quotes(data, name, separator)
        _check_row_lengths(data, name, separator, n_fields)
    except UnicodeDecodeError:
        return _not_utf8(data, name)
    except InputError as found:
        return found
    return InputError(f"{name!r} could not be read as CSV ({_first_line(error)}).")


def _check_quotes(data: bytes, name: str, separator: str) -> None:
    """Fail, naming the line, if a double quote neither opens nor closes a field."""
    beside = b'[^"\r\n' + re.escape(separator.encode()) + b"]"
    stray = re.search(beside + b'"' + beside, data)
    if stray:
        raise InputError(
            f"{name!r}, line {_line_of(data, stray.start())}: a double quote stands inside a "
            'field. Put the field in double quotes and write the quote twice: "5"" pipe".'
        )
    if data.count(b'"') % 2:
        raise InputError(f"{name!r} opens a double quote that it never closes.")


def _not_utf8(data: bytes, name: str) -> InputError:
    remedy = "Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."
    try:
        data.decode()
    except UnicodeDecodeError as error:
        where = f"line {_line_of(data, error.start)}: byte 0x{data[error.start]:02x}"
        return InputError(f"{name!r}, {where} is not UTF-8. {remedy}")
    return InputError(f"{name!r} is not UTF-8. {remedy}")


def _check_row_lengths(data: bytes, name: str, separator: str, n_fields: int) -> None:
    """Fail, naming the line, if a record has more or fewer fields than the header."""
    starts, counts = _count_fields(data, separator)
    (wrong,) = np.nonzero((counts != n_fields) & (counts > 0))
    if wrong.size:
        line = _line_of(data, int(starts[wrong[0]]))
        others = f" ({wrong.size - 1:,} more lines like it)" if wrong.size > 1 else ""
        count = int(counts[wrong[0]])
        raise InputError(
            f"{name!r}, line {line}: {count} field{'s' * (count != 1)} where the header has "
            f"{n_fields}{others}. A field that contains {separator!r} must be in double quotes."
        )


def _count_fields(data: bytes, separator: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each record of a CSV starts and how many fields it has (0: a blank line)."""
    text = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    ends = _outside_quotes(np.flatnonzero(text == ord("\n")), quotes)
    separators = _outside_quotes(np.flatnonzero(text == ord(separator)), quotes)
    starts = np.concatenate([[0], ends[:-1] + 1])
    counts = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    blank = (ends - starts == 0) | ((ends - starts == 1) & (text[starts] == ord("\r")))
    return starts, np.where(blank, 0, counts)


def _outside_quotes(positions: NDArray[np.int64], quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keep the positions before which an even number of double quotes stands."""
    even: NDArray[np.bool_] = np.searchsorted(quotes, positions) % 2 == 0
    return positions[even]


def _line_of(data: bytes, position: int) -> int:
    """Return the number of the line, counted from 1, on which a byte stands."""
    return data.count(b"\n", 0, position) + 1


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
