"""The content of a cell, whatever it means: texts, blanks, and numbers to compute with."""

from __future__ import annotations

from typing import NoReturn, Self, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.tables.columns import to_text
from riskad.tables.words import say_count

__all__ = [
    "BLANK",
    "LARGEST",
    "Value",
    "WrittenNumber",
    "as_text",
    "check_flat",
    "check_sizes",
    "is_blank",
]

BLANK = "(blank)"
FEW_ROWS = 16
"""Up to which rows are read one by one: polars takes longer to be called than for them."""
# What polars strips: Unicode's white space, which is less than what Python strips.
_WHITE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


class WrittenNumber(float):
    """A number that is shown as its column writes it.

    >>> amount = WrittenNumber(9500.0, "9.500,00")
    >>> amount + 1, str(amount)
    (9501.0, '9.500,00')
    """

    def __new__(cls, value: float, written: str) -> Self:
        """Return the number."""
        number = super().__new__(cls, value)
        number.written = written
        return number

    written: str

    def __str__(self) -> str:
        return self.written

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.written


Value: TypeAlias = float | str | None  # of one cell; None is a number that is not there

# Squares of larger numbers, summed over many rows, would overflow. LightGBM cannot distinguish
# smaller numbers from zero, and spreads of some have no inverse.
LARGEST = 1e100
_SMALLEST = 1e-35


def is_blank(column: pl.Series) -> bool:
    """Whether all rows are blank."""
    if column.dtype == pl.String:
        return not any(part.str.contains(r"\S").any() for part in (column.head(9), column))
    return column.null_count() == len(column) or (
        column.dtype.is_float() and bool(np.isnan(column.to_numpy()).all())
    )


def as_text(column: pl.Series) -> pl.Series:
    """Return the texts of a column, without surrounding blanks, null for blank cells."""
    check_flat(column)
    if column.dtype == pl.String and len(column) <= FEW_ROWS:
        texts = [(text or "").strip(_WHITE) or None for text in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)
    if not column.dtype.is_float():
        stripped = to_text(column).str.strip_chars()
        return stripped.set(stripped == "", None)
    column = column.fill_nan(None)
    shown = column.cast(pl.String)
    whole = column.set(column % 1 != 0, None).cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with(whole.is_not_null(), shown)  # 5411 is not "5411.0"


def check_flat(column: pl.Series) -> None:
    """Refuse lists, structures, bytes and objects."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise InputError(
            f"Column {column.name!r} holds values of type {column.dtype}, where the model was "
            "fitted on numbers or text. Give it the type it had then."
        )


def check_sizes(values: pl.Series, written: pl.Series, first_row: int) -> pl.Series:
    """Return numbers to compute with: none is infinite or too large, and tiny ones are 0.

    Parameters
    ----------
    values
        Numbers, null where there is none.
    written
        The original column, to show what is wrong.
    first_row
        The number of its first row.

    Returns
    -------
    polars.Series
        The numbers.
    """
    sizes = np.abs(values.to_numpy())  # NaN where there is none
    if (sizes > LARGEST).any():
        _refuse_large(sizes, written, first_row)
    tiny = (sizes < _SMALLEST) & (sizes > 0)
    return values.set(pl.Series(tiny), 0.0) if tiny.any() else values


def _refuse_large(sizes: NDArray[np.float64], written: pl.Series, first_row: int) -> NoReturn:
    """Say which number is infinite, or else too large."""
    wrong, what = np.isinf(sizes), "is infinite"
    remedy = "Correct it or leave it blank."
    if not wrong.any():
        wrong, what = sizes > LARGEST, f"is beyond {LARGEST:g}, too large to compute with"
        remedy = "Correct it, leave it blank, or give the column in larger units."
    row = int(wrong.argmax())
    raise InputError(
        f"Column {written.name!r} holds numbers, but {quoted(written[row])} in row "
        f"{first_row + row:,} {what} (at least {say_count(int(wrong.sum()), 'such row')}). {remedy}"
    )
