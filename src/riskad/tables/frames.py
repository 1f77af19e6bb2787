"""Tables of other libraries as polars frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError, enumerate_names


def is_frame(table: Any) -> bool:
    """Whether `as_polars` takes it: a table in memory of polars, pandas, Arrow or DuckDB."""
    return isinstance(table, (pl.DataFrame, pl.LazyFrame)) or any(
        hasattr(table, name) for name in ("iloc", "to_arrow_table", "__arrow_c_stream__")
    )


def as_polars(X: Any) -> pl.DataFrame:
    """Return a polars frame of any table in memory that has column names."""
    if isinstance(X, pl.LazyFrame):
        X = X.collect()
    elif not isinstance(X, pl.DataFrame):
        if hasattr(X, "to_arrow_table"):  # DuckDB
            X = X.to_arrow_table()
        if not hasattr(X, "iloc") and not hasattr(X, "__arrow_c_stream__"):
            raise InputError(
                "A table needs named columns: give a frame of polars or pandas, an Arrow table or "
                f"a DuckDB relation; got {type(X).__name__}. A matrix of numbers needs no "
                "preparing."
            )
        X = _from_pandas(X) if hasattr(X, "iloc") else from_arrow(X, type(X).__name__)
    if not X.height or not X.width:
        raise InputError(f"The table has {X.height} rows and {X.width} columns; nothing to do.")
    return X


def from_arrow(X: Any, name: str) -> pl.DataFrame:
    """Return rows of Arrow as polars has them."""
    try:
        return pl.DataFrame(pl.from_arrow(X))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InputError(
            f"{name!r} has columns that are not understood ({str(error).splitlines()[0]}). Give "
            "them different names, and write them as numbers, text or dates."
        ) from error


def _from_pandas(X: Any) -> pl.DataFrame:
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
