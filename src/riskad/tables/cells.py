"""What is written in a cell: a number, a text, a date, or nothing."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.columns import to_text
from riskad.tables.frames import as_polars
from riskad.tables.words import say_count

__all__ = [
    "BLANK",
    "LARGEST",
    "Value",
    "as_numbers",
    "as_text",
    "has_leading_zeros",
    "is_blank",
    "is_temporal",
    "number_hint",
    "parse_numbers",
    "usual_value",
    "yes_no_words",
]

BLANK = "(blank)"

Value: TypeAlias = float | str | None  # of one cell; None is a number that is not there

# In a column of numbers these mean "no number"; in a text column "NA" may well be Namibia.
_MISSING_MARKS = ("na", "n/a", "#n/a", "nan", "null", "none", "?", "-", ".")
_DATE = (
    r"^(\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}( .*)?"
    r"|\d{1,2}/\d{1,2}/\d{2}( .*)?|\d{1,2}:\d{2}(:\d{2}.*)?)$"
)
_LEADING_ZERO = r"^\s*0\d+\s*$"
_DRESSED_NUMBER = r"^[$€£\s]*[-+]?\d[\d.,'\s]*[%$€£\s]*$"
# Squares of larger numbers, summed over many rows, would leave the range of floating point. Of
# smaller ones LightGBM sees no difference to zero, and spreads of some have no inverse.
LARGEST = 1e100
_SMALLEST = 1e-35


def is_blank(column: pl.Series) -> bool:
    """Whether nothing is written in any row."""
    if column.dtype == pl.String:
        return not any(part.str.contains(r"\S").any() for part in (column.head(9), column))
    return column.null_count() == len(column) or (
        column.dtype.is_float() and bool(np.isnan(column.to_numpy()).all())
    )


def _strip(texts: pl.Series) -> pl.Series:
    """Take blanks from around texts; a text that was nothing else is null."""
    stripped = texts.str.strip_chars()
    return stripped.set(stripped == "", None)


def as_text(column: pl.Series) -> pl.Series:
    """Return the texts of a column, null where it is blank."""
    _check_flat(column)
    if not column.dtype.is_float():
        return _strip(to_text(column))
    column = column.fill_nan(None)
    texts = column.cast(pl.String)
    whole = column.set(column % 1 != 0, None).cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with(whole.is_not_null(), texts)  # 5411 is not "5411.0"


def _check_flat(column: pl.Series) -> None:
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise InputError(
            f"Column {column.name!r} holds values of type {column.dtype}, where the model was "
            "fitted on numbers or text. Give it the type it had then."
        )


def parse_numbers(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return numbers (null where there is none) and where a value is neither number nor blank."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype.is_temporal():  # a cast would give seconds or days
        return pl.Series(column.name, [None] * len(column), dtype=pl.Float64), column.is_not_null()
    values = column.cast(pl.Float64, strict=False)
    bad = values.is_null() & column.is_not_null()
    if bad.any():  # only then is it worth looking at what the texts say
        spelled = _spell_numbers(column)
        values = spelled.cast(pl.Float64, strict=False)
        bad = values.is_null() & spelled.is_not_null()
    return values.fill_nan(None), bad


def _spell_numbers(texts: pl.Series) -> pl.Series:
    """Rewrite blanks, marks of missing values, true and false as a cast to numbers needs them."""
    texts = _strip(texts)
    lower = texts.str.to_lowercase()
    texts = texts.set(lower.is_in(_MISSING_MARKS), None)
    return texts.set(lower == "true", "1").set(lower == "false", "0")


def is_temporal(column: pl.Series) -> bool:
    """Whether a column holds dates or times, by its type or, all of them, by their look."""
    if column.dtype != pl.String:
        return column.dtype.is_temporal()
    filled = _strip(column).drop_nulls()
    return bool(filled.head(100).str.contains(_DATE).all() and filled.str.contains(_DATE).all())


def as_numbers(
    column: pl.Series, first_row: int = 1, read: tuple[pl.Series, pl.Series] | None = None
) -> pl.Series:
    """Return the numbers of a column, or say which row does not hold one to compute with.

    `read` is what `parse_numbers` gave, where that is known.
    """
    _check_flat(column)
    values, bad = parse_numbers(column) if read is None else read
    sizes = np.abs(values.to_numpy())  # NaN where there is none
    faults = (
        (bad.to_numpy(), "is not a number", "Correct it or leave it blank."),
        (np.isinf(sizes), "is infinite", "Correct it or leave it blank."),
        (
            sizes > LARGEST,
            f"is beyond {LARGEST:g}, too large to compute with",
            "Correct it, leave it blank, or give the column in larger units.",
        ),
    )
    for wrong, what, remedy in faults:
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"Column {column.name!r} holds numbers, but {quoted(column[row])} in row "
                f"{first_row + row:,} {what} (at least {say_count(int(wrong.sum()), 'such row')}). "
                f"{remedy}"
            )
    tiny = (sizes < _SMALLEST) & (sizes > 0)
    return values.set(pl.Series(tiny), 0.0) if tiny.any() else values


def number_hint(texts: pl.Series, numbered: bool) -> str:
    """Say what keeps a column from being one of numbers, where little does."""
    values, bad = parse_numbers(texts)
    n_bad = int(bad.sum())
    if 0 < n_bad < len(values.drop_nulls()):
        row = int(cast(int, bad.arg_max()))
        where = f" in row {row + 1:,}" if numbered else ""
        return f"; most are numbers, but not {texts[row]!r}{where}: leave such blank"
    filled = texts.drop_nulls()
    codes = bool(filled.str.contains(_LEADING_ZERO).any())  # as postcodes, which are no numbers
    if not codes and cast(float, filled.str.contains(_DRESSED_NUMBER).mean()) > 0.9:
        return f"; {filled[0]!r} looks like a number: write it as 1234.5 to have it used"
    return ""


def usual_value(column: pl.Series) -> Value:
    """Return what a parsed column usually holds: the median number or the most frequent text.

    A blank is a text like others, but a number only where more than half of them are blank.

    >>> usual_value(pl.Series([2.0, 3.0, 900.0])), usual_value(pl.Series(["FR", None, None]))
    (3.0, '(blank)')
    """
    if column.dtype == pl.String:
        counts = column.fill_null(BLANK).alias("value").value_counts(name="rows")
        return str(counts.sort(["rows", "value"], descending=[True, False])["value"][0])
    if 2 * column.null_count() > len(column):
        return None
    return float(cast(float, column.median()))


def yes_no_words(frame: Any) -> dict[str, tuple[str, str]]:
    """How a table spells false and true, by column, where it holds nothing else.

    They are numbers to a model, and should not be to people.

    >>> yes_no_words(pl.DataFrame({"online": [True, None], "late": ["no", "TRUE"], "x": [0, 1]}))
    {'online': ('False', 'True')}
    >>> yes_no_words(pl.DataFrame({"late": ["TRUE", ""]}))
    {'late': ('FALSE', 'TRUE')}
    """
    words = {column.name: _yes_no(column) for column in as_polars(frame)}
    return {name: pair for name, pair in words.items() if pair is not None}


def _yes_no(column: pl.Series) -> tuple[str, str] | None:
    if column.dtype == pl.Boolean:
        return "False", "True"
    if column.dtype != pl.String or column.head(100).str.contains(r"\d").any():
        return None
    filled = _strip(column).drop_nulls()
    lower = filled.str.to_lowercase()
    said = filled.filter(~lower.is_in(_MISSING_MARKS)).unique()
    if not len(said) or not said.str.to_lowercase().is_in(["true", "false"]).all():
        return None
    spell = str.upper if said[0].isupper() else str.lower if said[0].islower() else str.title
    return spell("false"), spell("true")


def has_leading_zeros(texts: pl.Series) -> bool:
    """Return whether a text is a code such as '007'."""
    return bool(texts.str.contains(_LEADING_ZERO).any())
