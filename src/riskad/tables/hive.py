"""Folders whose names are columns, as Hive, Spark and DuckDB write them: day=2026-11-17."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

import polars as pl

__all__ = ["hive_columns", "hive_folder", "with_hive_columns"]

_NAMED = re.compile(r"([^\W\d]\w*)=(.+)", re.ASCII)
_BLANK = "__HIVE_DEFAULT_PARTITION__"


def hive_columns(path: Path) -> dict[str, str | None]:
    """Return the columns that the folders of a file tell.

    >>> hive_columns(Path("scored/day=2026-11-17/shop=a%2Fb/part.parquet"))
    {'day': '2026-11-17', 'shop': 'a/b'}
    """
    found = (_NAMED.fullmatch(part) for part in path.parts[:-1])
    values = {each[1]: unquote(each[2]) for each in found if each is not None}
    return {name: None if value == _BLANK else value for name, value in values.items()}


def hive_folder(name: str, value: str | None) -> str:
    """Return the name of the folder for rows that have a value.

    >>> hive_folder("day", "2026-11-17"), hive_folder("shop", "a/b")
    ('day=2026-11-17', 'shop=a%2Fb')
    """
    return f"{name}={_BLANK if value is None else quote(value, safe=' ')}"


def with_hive_columns(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Add the columns that the folders of a file tell, as text; those in the file go before."""
    told = {name: value for name, value in hive_columns(path).items() if name not in frame.columns}
    return frame.with_columns(
        pl.lit(value, dtype=pl.String).alias(name) for name, value in told.items()
    )
