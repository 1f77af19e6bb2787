"""Columns of a table: named as they are there, and as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import polars as pl

from riskad.core.checks import InputError, enumerate_names

__all__ = ["check_columns", "is_flat", "to_text"]


def check_columns(names: Iterable[str], columns: Sequence[str]) -> None:
    """Fail if one of `names` is not among `columns`, and guess which was meant.

    >>> check_columns(["lable"], ["amount", "label"])
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: There is no column 'lable'. Did you mean 'label'? \
The columns are 'amount', 'label'.
    """
    for name in names:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1)
            close = close or [column for column in columns if column.lower() == name.lower()]
            guess = f" Did you mean {close[0]!r}?" if close else ""
            listed = enumerate_names(columns, 12)
            raise InputError(f"There is no column {name!r}.{guess} The columns are {listed}.")


def to_text(column: pl.Series) -> pl.Series:
    """The values of a column as text, of any type.

    >>> to_text(pl.Series([7, None])).to_list(), to_text(pl.Series([[1, 2]])).to_list()
    (['7', None], ['[1, 2]'])
    """
    if is_flat(column) and column.dtype != pl.Duration:
        return column.cast(pl.String)
    texts = [None if value is None else str(value) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)


def is_flat(column: pl.Series) -> bool:
    """Whether a cell holds one value: no list, structure, bytes or object."""
    return not (column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object))
