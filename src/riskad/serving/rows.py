"""JSON in: what a body may contain, and the table that it makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import polars as pl

from riskad.app.online import RowScorer
from riskad.core.checks import InputError
from riskad.tables.json_lines import frame_of_objects
from riskad.web.guarding import Refusal

__all__ = ["check_nesting", "make_frame", "parse_body", "parse_rows"]

_DEEPEST = 8
_MOST_KEYS = 10_000
_MOST_NESTED = 1_000_000
_EXAMPLE = '{"amount": 12.5, "country": "BE"} or {"rows": [{"amount": 12.5}, {"amount": 3}]}'


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; anything else is refused with status 400.

    >>> parse_body(b'{"amount": 1}')
    {'amount': 1}
    """
    if not body.strip():
        raise Refusal(400, f"The body is empty; send {_EXAMPLE}.")
    try:
        text = body.decode("utf-8-sig")
        said = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
    except RecursionError:
        raise Refusal(400, "The body is nested too deeply.") from None
    except ValueError as error:  # also where it is not UTF-8, or a number has too many digits
        raise Refusal(400, f"The body is not JSON in UTF-8: {_reason(error)}.") from None
    if not isinstance(said, dict):
        raise Refusal(400, f"The body must be a JSON object, such as {_EXAMPLE}.")
    if b"\\ud" in body.lower():
        _check_letters(said)
    return said


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number; send null for a blank")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the body; of two values under one key nobody knows which is meant."""
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refusal(400, f"An object names {twice[:40]!r} twice; send each column once.")
    return made


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start:,} is no letter"
    return str(error).partition(";")[0] if "digits" in str(error) else str(error)


def _check_letters(said: Any) -> None:
    try:
        json.dumps(said, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(400, "The body holds half a letter (a lone surrogate).") from None


def parse_rows(said: Mapping[str, Any], most: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Return the rows of a body, and whether it is a single row.

    A body is a row, unless it has a list under "rows".

    >>> parse_rows({"amount": 1}, 10)
    ([{'amount': 1}], True)
    >>> parse_rows({"rows": [{"amount": 1}, {"amount": 2}]}, 10)
    ([{'amount': 1}, {'amount': 2}], False)
    """
    rows = said.get("rows")
    if not isinstance(rows, list):
        return [said], True
    if len(said) > 1:
        other = next(key for key in said if key != "rows")
        raise InputError(
            f'"rows" must stand alone, and {other[:40]!r} is beside it; leave that out.'
        )
    if not rows:
        raise InputError("rows is empty; send at least one row.")
    if len(rows) > most:
        raise Refusal(413, f"There are {len(rows):,} rows; send at most {most:,} at once.")
    for number, row in enumerate(rows, 1):
        if type(row) is not dict:
            raise InputError(f"Row {number:,} is not an object of columns; send {_EXAMPLE}.")
    return rows, False


def make_frame(rows: Sequence[Mapping[str, Any]], single: bool, scorer: RowScorer) -> pl.DataFrame:
    """Return the columns of rows that the model reads, parsed like the lines of a JSON file.

    Every row must have all of these columns, so that the answer to a row is the same alone and
    among others.
    """
    columns = scorer.columns
    for number, row in enumerate(rows, 1):
        if not row.keys() >= set(columns):
            names = [*row, *_inner_names(row)]
            scorer.check_columns(names, "The row" if single else f"Row {number:,}")
    check_nesting(rows)
    return frame_of_objects(rows, columns)


def _inner_names(row: Mapping[str, Any]) -> list[str]:
    """Names of columns that are inside an object: `shop.city`."""
    return [f"{k}.{inner}" for k, v in row.items() if type(v) is dict for inner in v]


def check_nesting(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse cells that are nested so deeply or widely that reading them would take minutes."""
    n_values, keys = 0, set[str]()
    for row in rows:
        for name, cell in row.items():
            if type(cell) in (dict, list):
                if _deeper_than(cell, _DEEPEST):
                    raise InputError(
                        f"The cell {name[:40]!r} is nested more than {_DEEPEST} levels deep; send "
                        "a number, a text or null."
                    )
                for value in _lists_and_objects(cell):
                    n_values += 1
                    keys.update(value if type(value) is dict else ())
    # Each object becomes a row of a table with all the keys.
    if len(keys) > _MOST_KEYS or n_values * (1 + len(keys)) > _MOST_NESTED:
        raise InputError(
            f"The cells hold {n_values:,} lists and objects with {len(keys):,} different keys, "
            "which would take too long to read; send numbers, texts or nulls."
        )


def _lists_and_objects(value: Any) -> Iterator[Any]:
    if type(value) in (dict, list):
        yield value
        for inner in value.values() if type(value) is dict else value:
            yield from _lists_and_objects(inner)


def _deeper_than(value: Any, levels: int) -> bool:
    if type(value) not in (dict, list):
        return False
    inner = value.values() if type(value) is dict else value
    return levels == 0 or any(_deeper_than(each, levels - 1) for each in inner)
