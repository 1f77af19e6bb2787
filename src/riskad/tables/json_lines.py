"""JSON lines: one object on each line, whose keys are the columns.

Objects inside an object become columns of their own, `shop.city`; what is deeper, and lists, become
text. Types are those of JSON. All lines are looked at before the first rows come, as a key or a
type may turn up late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import polars.selectors as cs

from riskad.core.checks import InputError, quoted
from riskad.tables.csv_reading import decode_text, text_parts
from riskad.tables.paths import Place, empty_file_error, first_line

_TYPES: Mapping[frozenset[type], Any] = {
    frozenset({int}): pl.Int64,
    frozenset({float}): pl.Float64,
    frozenset({int, float}): pl.Float64,
    frozenset({bool}): pl.Boolean,
    frozenset({str}): pl.String,
    frozenset(): pl.Null,
}


def json_batches(place: Place) -> Iterator[pl.DataFrame]:
    """Read some lines at a time; the columns are those of all lines."""
    schema: dict[str, pl.DataType] = {}
    for frame in _frames(place):
        for name, dtype in frame.schema.items():
            schema[name] = common_type(schema.get(name, pl.Null()), dtype) or pl.String()
    if not schema:
        raise empty_file_error(place.name)
    for frame in _frames(place):
        missing = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
        yield frame.with_columns(missing).select(list(schema)).cast(pl.Schema(schema))


def common_type(here: pl.DataType, there: pl.DataType) -> pl.DataType | None:
    """The type that holds the values of both, if there is one."""
    if here == there or there == pl.Null:
        return here
    if here == pl.Null:
        return there
    return pl.Float64() if here.is_numeric() and there.is_numeric() else None


def frame_of_objects(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Return those columns of parsed JSON objects that a row has, as a file's lines are read.

    >>> frame_of_objects([{"paid": 1, "shop": {"city": "Gent"}}], ["shop.city"]).rows()
    [('Gent',)]
    """
    plain: dict[str, pl.Series] = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        dtype = _TYPES.get(frozenset(map(type, values)) - {type(None)})
        large = dtype == pl.Int64 and any(v and not -(2**63) <= v < 2**63 for v in values)
        if dtype is None or large:
            break  # objects, lists, values of several types, or numbers for which Int64 is small
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
    cells = ({key: row[key] for key in row if key in keys} for row in rows)
    lines = "\n".join(map(json.dumps, cells)).encode()
    frame = _flat(_parse(lines, "rows", 0), "rows")
    return frame.select(name for name in columns if name in frame.columns)


def _frames(place: Place) -> Iterator[pl.DataFrame]:
    """The lines of a file, some at a time, with the columns that these have."""
    for part in text_parts(place, lambda data: data.rfind(b"\n") + 1):
        if part.data.strip():
            yield _flat(_parse(part.data, place.name, part.lines_before), place.name)


def _parse(data: bytes, name: str, lines_before: int) -> pl.DataFrame:
    try:
        return pl.read_ndjson(data, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        decode_text(data, name, lines_before)
    # Line by line: there is a mistake, which is named, or values of several kinds.
    rows = list(_objects(data, name, lines_before))
    columns: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = columns[key] = [row.get(key) for row in rows]
        types = set(map(type, values)) - {type(None)}
        if types and types <= {int, float}:
            # By way of text, in which a number beyond all floats is infinite, and not a failure.
            columns[key] = [None if value is None else float(str(value)) for value in values]
        elif types not in ({str}, {bool}):
            columns[key] = [
                v if v is None or type(v) is str else json.dumps(v, ensure_ascii=False)
                for v in values
            ]
    return pl.DataFrame(columns, strict=False)


def _objects(data: bytes, name: str, lines_before: int) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.decode().split("\n"), lines_before + 1):
        if not line.strip():
            continue
        start = f"{name!r}, line {number}: {quoted(line.strip(), 40)} is"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Its place alone: the line that `json` counts is the first of one.
            where = (
                f"{error.msg} at character {error.pos + 1}"
                if isinstance(error, json.JSONDecodeError)
                else error
            )
            raise InputError(
                f"{start} not JSON ({where}). Each line must be an object such as "
                '{"paid": 1.5}; the file may be cut short.'
            ) from error
        if not isinstance(row, dict):
            raise InputError(
                f'{start} not an object. Each line must name its values: {{"paid": 1.5}}.'
            )
        yield row


def _flat(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Columns of numbers of two types, yes/no and text, one value in each cell."""
    try:
        frame = frame.unnest(cs.struct(), separator=".")
    except pl.exceptions.DuplicateError as error:
        raise InputError(
            f"{name!r} has a key 'a.b' and an object 'a' with a key 'b', or likewise "
            f"({first_line(error)}); rename one of them."
        ) from error
    for column in frame.select(cs.nested()):  # as JSON text
        wrapped = pl.DataFrame({"v": column}).to_struct().struct.json_encode()
        text = wrapped.str.strip_prefix('{"v":').str.strip_suffix("}")
        frame = frame.with_columns(text.set(column.is_null(), None).alias(column.name))
    return frame.with_columns((cs.numeric() - cs.by_dtype(pl.Int64)).cast(pl.Float64))
