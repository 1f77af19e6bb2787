"""Frames of other libraries as polars frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError, enumerate_names

__all__ = ["as_polars"]


def as_polars(X: Any) -> pl.DataFrame:
    """Return a polars frame of a polars or pandas frame; anything else has no column names."""
    if not isinstance(X, pl.DataFrame):
        X = _from_pandas(X)
    if not X.height or not X.width:
        raise InputError(f"The table has {X.height} rows and {X.width} columns; nothing to do.")
    return X


def _from_pandas(X: Any) -> pl.DataFrame:
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        raise InputError(
            f"TablePreparer needs a table with named columns, a polars or a pandas frame; "
            f"got {type(X).__name__}. A matrix of numbers needs no preparing."
        )
    names = list(X.columns)
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"Column names must be different texts; got {enumerate_names(names)}.")
    return pl.DataFrame({name: _series_from_pandas(X[name]) for name in names})


def _series_from_pandas(column: Any) -> pl.Series:
    kind = getattr(column.dtype, "kind", "O")
    if isinstance(column.dtype, np.dtype) and kind in "biuf":
        return pl.Series(column.name, column.to_numpy())
    if isinstance(column.dtype, np.dtype) and kind in "mM":
        return pl.Series(column.name, column.to_numpy().astype(f"{column.dtype.str[1]}8[us]"))
    missing = column.isna().tolist()
    texts = [None if gap else str(v) for v, gap in zip(column.tolist(), missing, strict=True)]
    try:
        return pl.Series(column.name, texts, dtype=pl.String)
    except UnicodeEncodeError:
        raise InputError(
            f"Column {column.name!r} has a text with half a character (a lone surrogate), which "
            "cannot be written as UTF-8. Read the file again with its right encoding."
        ) from None
