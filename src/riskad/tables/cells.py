"""The cells of a column, whatever they mean: texts, blanks, and how a column is read.

What a column holds is decided by looks at all of its rows (`CellLook`). A look leads to a format
(`CellFormat`), and a `Reader` reads every row by it from then on. What a reader gives it reads
again as it is, so that typed rows pass for raw ones.
"""

from __future__ import annotations

import difflib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import polars as pl

from riskad.core.checks import InputError, enumerate_names, quoted
from riskad.files.fields import Maybe, Record
from riskad.tables.notes import NotAsInTraining, pluralize

BLANK = "(blank)"
FEW_ROWS = 16
"""Up to which rows are read one by one: polars takes longer to be called than for them."""
Value: TypeAlias = float | str | None  # of one cell; None is a number that is not there
Cell: TypeAlias = tuple[int, str]  # the number of a row, and what is written there


def check_columns(names: Iterable[str], columns: Sequence[str]) -> None:
    """Fail if one of `names` is not among `columns`, and guess which was meant."""
    for name in names:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1)
            close = close or [column for column in columns if column.lower() == name.lower()]
            guess = f" Did you mean {close[0]!r}?" if close else ""
            column_names = enumerate_names(columns, 12)
            raise InputError(f"There is no column {name!r}.{guess} The columns are {column_names}.")


def free_name(columns: Sequence[str], name: str = "row") -> str:
    """Return a name that no column has: this one, or with underscores behind it."""
    while name in columns:
        name += "_"
    return name


def to_text(column: pl.Series) -> pl.Series:
    """The values of a column as text, of any type; moments without fractions of zeros."""
    if column.dtype == pl.Datetime:
        return column.cast(pl.String).str.replace(r"\.0+($|[ +-])", "${1}")
    if is_flat(column) and column.dtype != pl.Duration:
        return column.cast(pl.String)
    texts = [None if value is None else str(value) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)


def is_flat(column: pl.Series) -> bool:
    """Whether a cell holds one value: no list, structure, bytes or object."""
    return not (column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object))


# Inside a number: a space, one that does not break the line, and the thin ones of typesetters.
SPACES = " \u00a0\u2007\u2009\u200a\u202f"
# Around a cell all white space of Unicode, and what cannot be seen at all: a byte order mark,
# spaces without width.
_AROUND = SPACES + (
    "\t\n\v\f\r\x85\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2028\u2029\u205f\u3000"
    "\u200b\u2060\ufeff"
)
# Among numbers, dates or yes and no these say that there is none. Among words they may be words:
# NA is Namibia, None a maiden name, and "unknown" tells something about a customer.
_WORDS = """
    na n/a n.a. n.a #n/a #na nan #nan <na> null (null) nil none nat
    ? ?? - -- --- \u2013 \u2014 \u2212 . .. \u2026 / \\ * \\n
    blank (blank) empty (empty) missing (missing) unknown (unknown) undefined unspecified
    #value! #ref! #div/0! #null! #num! #name? nd n.d. tbd tba k.a. s/o 0000-00-00
"""
BLANK_WORDS = {*_WORDS.split(), "not available", "not applicable", "no data", "keine angabe"}
_ANY_BLANK_WORD = f"^(?i:{'|'.join(re.escape(word) for word in sorted(BLANK_WORDS))})$"


def as_text(column: pl.Series) -> pl.Series:
    """Return the texts of a column, without spaces around them, null for blank cells."""
    if column.dtype == pl.String and len(column) <= FEW_ROWS:
        few = column.to_list()
        for place, text in enumerate(few):
            few[place] = (text or "").strip(_AROUND) or None
        return pl.Series(column.name, few, dtype=pl.String)
    if not column.dtype.is_float():
        return strip_spaces(to_text(column))
    column = column.fill_nan(None)
    shown = column.cast(pl.String)
    whole = column.set(column % 1 != 0, None).cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with(whole.is_not_null(), shown)  # 5411 is not "5411.0"


def categories_as_texts(column: pl.Series) -> pl.Series:
    """Return categories as texts, and other columns as they are."""
    return column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column


def is_blank(column: pl.Series) -> bool:
    """Whether all rows are blank."""
    if column.dtype == pl.String:
        # The first nine cells decide for most columns, without a search of the whole.
        return not any(part.str.contains(r"\S").any() for part in (column.head(9), column))
    return not filled(column).any()


def filled(column: pl.Series) -> pl.Series:
    """Whether each row of a column holds something: neither null nor not-a-number."""
    if column.dtype.is_float():
        return column.is_not_nan().fill_null(False)
    return column.is_not_null()


def strip_spaces(texts: pl.Series) -> pl.Series:
    """Take spaces from around texts; a text that was nothing else, blank among words, is null."""
    stripped = texts.str.strip_chars(_AROUND)
    if (stripped == texts).all() and (texts != "").all():  # the same texts take no more memory
        return texts
    return stripped.set(stripped == "", None)


def are_blank(stripped: pl.Series) -> pl.Series:
    """Whether stripped texts say that nothing is there, as in numbers, dates or yes and no."""
    return stripped.str.contains(_ANY_BLANK_WORD).fill_null(True)


def without_blanks(texts: pl.Series) -> pl.Series:
    """Take spaces from around texts; null where nothing is left, or a word for nothing."""
    stripped = strip_spaces(texts)
    return stripped.set(are_blank(stripped), None)


class Tally(NamedTuple):
    """Cells of one kind: how many, the first one with its row, and the longest one."""

    n: int
    row: int
    cell: str
    longest: str = ""

    def joined(self, other: Tally | None) -> Tally:
        """Return what both hold."""
        if other is None:
            return self
        first = min(self, other, key=lambda tally: tally.row)
        # Of equal lengths the later in the alphabet: joining must not depend on the order of parts.
        longest = max(self.longest, other.longest, key=lambda text: (len(text), text))
        return Tally(self.n + other.n, first.row, first.cell, longest)


def tally_filled(column: pl.Series, first_row: int) -> tuple[dict[None, Tally], int]:
    """Count the cells of a column that holds something else altogether, and its blanks."""
    full = filled(column)
    n, place = int(full.sum()), full.arg_max() or 0
    tallies = {None: Tally(n, first_row + place, str(column[place]))} if n else {}
    return tallies, len(column) - n


@dataclass(frozen=True)
class CellLook(ABC):
    """What cells look like as one kind of value; looks of parts of a column can be joined.

    Cells are counted by how they are written; None is for those that hold something else.
    `format()` says how the column is written, None if too few cells fit, and `remarks()`, in
    sentences, what was a guess.
    """

    tallies: dict[Any, Tally] = field(default_factory=dict)
    n_blank: int = 0

    @property
    @abstractmethod
    def _good(self) -> Collection[Any]:
        """The ways of writing that the format of the column reads."""

    @cached_property
    def n_good(self) -> int:
        """How many cells the format reads."""
        return sum(tally.n for way, tally in self.tallies.items() if way in self._good)

    @property
    def n_bad(self) -> int:
        """How many cells hold something else."""
        return sum(tally.n for tally in self.tallies.values()) - self.n_good

    @property
    def first_bad(self) -> Cell | None:
        """The first row, with its text, that holds something else."""
        bad = [tally[1:3] for way, tally in self.tallies.items() if way not in self._good]
        return min(bad, default=None)

    def joined(self, other: Self) -> Self:
        """Return what these rows and those of the other look look like together."""
        tallies = dict(self.tallies)
        for way, tally in other.tallies.items():
            tallies[way] = tally.joined(tallies.get(way))
        return replace(self, tallies=tallies, n_blank=self.n_blank + other.n_blank)


class CellFormat:
    """How a column writes its cells: a dataclass that model files hold.

    `read(column)` returns values, null where there is none, and where a cell holds something else;
    `show(value)` writes a value as the column does; `describe()` says how cells are written.
    """

    word: ClassVar[str]  # number, flag or moment
    expected: ClassVar[str]  # what a cell that does not fit is not

    def to_typed(self, values: pl.Series, column: pl.Series, first_row: int) -> pl.Series:
        """Return what was read of a column as values of the type that rows have from then on."""
        return values.alias(column.name)


_FORMATS = ("NumberFormat", "FlagFormat", "MomentFormat")


@dataclass(frozen=True)
class Reader:
    """Reads a column by a format; without one, every cell as the text that it is.

    For a `tolerant` reader cells that do not fit are blank, with a warning: a few cells of the
    training rows did not fit either.
    """

    format: Annotated[Any, Maybe(Record(_FORMATS))] = None
    tolerant: bool = False

    @property
    def word(self) -> str:
        """The kind of value: number, flag, moment or text."""
        return "text" if self.format is None else str(self.format.word)

    def read(self, column: pl.Series, first_row: int = 1, quiet: bool = False) -> pl.Series:
        """Return typed values (Float64, Boolean, moments or String), null where there is none.

        `first_row` is the number of the first row, for messages. With `quiet` there is no warning
        about cells that count as blank: of training rows they are reported already.
        """
        if not is_flat(column):
            raise InputError(
                f"Column {column.name!r} holds values of type {column.dtype}, where the model was "
                "fitted on numbers or text. Give it the type it had then."
            )
        if self.format is None:
            return as_text(column).alias(column.name)
        values, bad = self.format.read(column)
        if bad.any():
            row, n = int(bad.arg_max() or 0), int(bad.sum())
            cell = f"{quoted(column[row])} in row {first_row + row:,}"
            if not self.tolerant:
                raise InputError(
                    f"Column {column.name!r} holds {self.format.describe()}, but {cell} is not "
                    f"{self.format.expected} (at least {pluralize(n, 'such row')}). Correct it or "
                    "leave it blank."
                )
            if not quiet:
                warnings.warn(NotAsInTraining(unread={column.name: (n, cell)}), stacklevel=3)
        return self.format.to_typed(values, column, first_row)


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
    for k, column in enumerate(getattr(X, "schema", ())):
        if str(getattr(column, "type", "")).startswith("decimal256"):
            # polars ends in a panic, with a stack on stderr; detectors take floats anyhow.
            X = X.set_column(k, column.name, X.column(k).cast("float64"))
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
