"""JSON lines: one object on each line, whose keys are the columns.

Objects inside an object become columns of their own, `shop.city`; what is deeper, and lists, become
text. Types are those of JSON. All lines are looked at before the first rows come, as a key or a
type may turn up late.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.csv_reading import Utf8, check_utf8, text_blocks
from riskad.tables.paths import Place, empty_file_error

_TYPES: Mapping[frozenset[type], Any] = {
    frozenset({int}): pl.Int64,
    frozenset({float}): pl.Float64,
    frozenset({int, float}): pl.Float64,
    frozenset({bool}): pl.Boolean,
    frozenset({str}): pl.String,
    frozenset(): pl.Null,
}
_LARGEST_INT = 2**63


def json_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read some lines at a time; the columns are those of all lines."""
    schema: dict[str, pl.DataType] = {}
    for frame in _frames(place):
        for name, dtype in frame.schema.items():
            schema[name] = _common(schema.get(name, pl.Null()), dtype)
    if not schema:
        raise empty_file_error(place.name)
    for frame in _frames(place):
        missing = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
        yield frame.with_columns(missing).select(list(schema)).cast(pl.Schema(schema))


def _common(here: pl.DataType, there: pl.DataType) -> pl.DataType:
    """A type that holds what both hold."""
    if here == there or there == pl.Null:
        return here
    if here == pl.Null:
        return there
    return pl.Float64() if here.is_numeric() and there.is_numeric() else pl.String()


def frame_of_objects(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Return some columns of parsed JSON objects as the lines of a file would be read.

    Parameters
    ----------
    rows
        What `json.loads` made of each object.
    columns
        The columns that are wanted; those that no row has are left out, and so are all others.

    Examples
    --------
    >>> frame_of_objects([{"paid": 1, "shop": {"city": "Gent"}}, {"paid": 2.5}], ["paid"]).rows()
    [(1.0,), (2.5,)]
    >>> frame_of_objects([{"paid": 1, "shop": {"city": "Gent"}}], ["shop.city"]).rows()
    [('Gent',)]
    """
    plain: dict[str, pl.Series] = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        dtype = _TYPES.get(frozenset(map(type, values)) - {type(None)})
        if dtype is None or (dtype == pl.Int64 and not _fits(values)):
            break  # objects, lists or values of several types
        if dtype != pl.Null or any(name in row for row in rows):
            plain[name] = pl.Series(name, values, dtype=dtype)
        elif any(type(value) is dict for row in rows for value in row.values()):
            break  # the column may be inside an object
    else:
        return pl.DataFrame(plain)
    # A column may be inside an object: "shop.city" is of the key "shop". Other keys might be others
    # in each row, and polars would make a column of each.
    keys = {
        name[:i] for name in columns for i in range(len(name) + 1) if name[i : i + 1] in ("", ".")
    }
    wanted = ({key: row[key] for key in row if key in keys} for row in rows)
    lines = "\n".join(map(json.dumps, wanted)).encode()
    frame = _flat(_parse(lines, "rows", 0), "rows")
    return frame.select(name for name in columns if name in frame.columns)


def _fits(values: Sequence[int | None]) -> bool:
    return all(v is None or -_LARGEST_INT <= v < _LARGEST_INT for v in values)


def _frames(place: Place) -> Iterator[pl.DataFrame]:
    """The lines of a file, some at a time, with the columns that these have."""
    utf8, lines, rest = Utf8(place.name), 0, b""
    for block in text_blocks(place):
        rest += block
        end = rest.rfind(b"\n") + 1
        if rest[:end].strip():
            yield _flat(_parse(utf8(rest[:end], lines), place.name, lines), place.name)
            lines += rest.count(b"\n", 0, end)
            rest = rest[end:]
    if rest.strip():
        yield _flat(_parse(utf8(rest, lines), place.name, lines), place.name)


def _parse(data: bytes, name: str, lines_before: int) -> pl.DataFrame:
    try:
        return pl.read_ndjson(data, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        check_utf8(data, name, lines_before)
    # Line by line: there is a mistake, which is named, or values of several kinds.
    rows = list(_objects(data, name, lines_before))
    columns: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(key) for row in rows]
        types = frozenset(map(type, values)) - {type(None)}
        if types and types <= {int, float}:
            values = [None if value is None else float(value) for value in values]
        elif types not in (frozenset({str}), frozenset({bool})):
            values = [
                value
                if value is None or type(value) is str
                else json.dumps(value, ensure_ascii=False)
                for value in values
            ]
        columns[key] = values
    return pl.DataFrame(columns, strict=False)


def _objects(data: bytes, name: str, lines_before: int) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.decode().split("\n"), lines_before + 1):
        if not line.strip():
            continue
        start = f"{name!r}, line {number}: {quoted(line.strip(), 40)} is"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{start} not JSON ({error}). Each line must be an object such as "
                '{"paid": 1.5}; the file may be cut short.'
            ) from error
        if not isinstance(row, dict):
            raise InputError(f'{start} no object. Each line must name its values: {{"paid": 1.5}}.')
        yield row


def _flat(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Columns of numbers of two types, yes/no and text, one value in each cell."""
    columns: list[pl.Series] = []
    for column in frame:
        if column.dtype == pl.Struct:
            inner = column.struct.unnest()
            columns += [each.rename(f"{column.name}.{each.name}") for each in inner]
        else:
            columns.append(column)
    twice = [key for key, n in Counter(column.name for column in columns).items() if n > 1]
    if twice:
        raise InputError(
            f"{name!r} has a key {twice[0]!r} and an object whose key would be called the same; "
            "rename one of them."
        )
    return pl.DataFrame({column.name: _simple(column) for column in columns})


def _simple(column: pl.Series) -> pl.Series:
    if column.dtype.is_nested():  # as JSON text
        wrapped = pl.DataFrame({"v": column}).to_struct().struct.json_encode()
        text = wrapped.str.strip_prefix('{"v":').str.strip_suffix("}")
        return text.set(column.is_null(), None).alias(column.name)
    if column.dtype.is_numeric() and column.dtype != pl.Int64:
        return column.cast(pl.Float64)
    return column
