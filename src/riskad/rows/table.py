"""The one form of rows between a file, or a frame, and a detector; every X enters here.

A `Table` holds numbers, and categories as codes 0, 1, 2 ... of the levels seen in fit, the most
frequent first: neighbouring codes are about as frequent, and a split separates frequent levels from
rare ones. Dates, times and durations are seconds. Blanks, and at scoring time new levels, are NaN.

`TableSchema` is what a detector remembers of a frame's columns, so that other frames are read into
the same `Table`. `check_numbers` serves methods that take only numbers: the same numbers give the
same matrix, whether NumPy, Arrow, polars or pandas' own types with NA store them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from numbers import Number
from types import NoneType
from typing import Annotated, Any, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.files.fields import COUNT, TEXT, DictOf, ListOf, State, Text, require
from riskad.rows.arrays import GraphNumbers, on_host_array

Levels: TypeAlias = Mapping[int, Sequence[str]]
"""The texts of each category, by the column's position, the most frequent first."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as detectors see them: numbers, and categories as codes; NaN is a blank in both.

    Trees and the network take it as it is. Methods that need finite numbers on comparable scales
    put an encoder on top (`riskad.rows.encoding.OneHotImputer`).

    >>> table = Table(np.array([[31.0, 0.0], [np.nan, 1.0]]), ("age", "town"), {1: ["Ulm", "Bonn"]})
    >>> table.shape, table[[1]].values.tolist()
    ((2, 2), [[nan, 1.0]])
    """

    values: Any
    """Array or CSR matrix; a category holds positions in `levels`, NaN for a level not seen."""
    names: tuple[str, ...]
    levels: Levels = field(default_factory=dict)
    periods: Mapping[int, float] = field(default_factory=dict)
    """Columns that come round, with the length of a round: 24 for an hour."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        n_rows, n_columns = self.values.shape
        return n_rows, n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Table:
        """Some of the rows."""
        return replace(self, values=self.values[rows])


# Parts of a date that come again; the elapsed time does not, and is the column itself.
_RECURRING = ("hour", "weekday", "day of month", "month")


@dataclass(frozen=True)
class TableSchema:
    """What a detector remembers of the columns it was fitted on, to read other rows alike.

    `dates` has the columns of dates, times and durations, and the parts of each that vary and recur
    (`riskad.rows.date_features.MomentParts`), such as the weekday: trees see them in further
    columns.

    >>> import polars as pl
    >>> days = pl.date_range(pl.date(2025, 3, 1), pl.date(2025, 3, 20), eager=True)
    >>> frame = pl.DataFrame({"town": ["Bonn"] + ["Ulm"] * 18 + [None], "paid": days})
    >>> schema = TableSchema.learn(frame)
    >>> schema
    TableSchema(levels={0: ['Ulm', 'Bonn']}, dates={1: ['weekday']})
    >>> schema.with_parts(schema.read(frame).values[[0, -1]]).tolist()
    [[1.0, 1740787200.0, 5.0], [nan, 1742428800.0, 3.0]]
    """

    levels: Annotated[dict[int, list[str]], DictOf(COUNT, ListOf(TEXT))] = field(
        default_factory=dict
    )
    dates: Annotated[dict[int, list[str]], DictOf(COUNT, ListOf(Text(choices=_RECURRING)))] = field(
        default_factory=dict
    )

    @classmethod
    def _check_state(cls, state: State) -> None:
        require(state["levels"].keys().isdisjoint(state["dates"]), "dates: columns of text")

    @classmethod
    def learn(cls, X: Any) -> TableSchema:
        """Return the schema of a frame or a `Table`; that of anything else is empty."""
        if isinstance(X, Table):
            return cls({place: list(texts) for place, texts in X.levels.items()})
        schema = cls()
        if not is_data_frame(X):
            return schema
        import polars as pl

        from riskad.rows.date_features import MomentParts  # which imports polars

        for place, column in enumerate(_series(X)):
            if column.dtype in (pl.Date, pl.Datetime):
                parts = MomentParts.learn("datetime", _seconds(column)).parts
                # Elapsed time does not recur; it is the column itself.
                schema.dates[place] = [part for part in parts if part != "elapsed"]
            elif column.dtype.is_temporal():
                schema.dates[place] = []
            elif _is_text(column):
                # A categorical counts by its texts: two frames may number the same texts
                # differently. Equally frequent levels are in alphabetical order: codes must not
                # depend on the order of rows.
                counts = column.cast(str).rename("text").drop_nulls().value_counts()
                counts = counts.sort("count", "text", descending=[True, False])
                schema.levels[place] = counts["text"].to_list()
        return schema

    def read(self, frame: Any) -> Table:
        """Return the table of a frame with the same columns; text that is not a level is NaN."""
        # One array, filled column by column: each reader returns floats with NaN for blanks.
        values = np.empty(frame.shape)
        for place, column in enumerate(_series(frame)):
            if place in self.dates:
                values[:, place] = _seconds(column)
            elif column.dtype.is_temporal():
                raise InputError(
                    f"Column {column.name!r} held no dates or times when the model was fitted and "
                    f"now holds values of type {column.dtype}. Give it as it was."
                )
            elif place in self.levels:
                # Floats, since a text that is no level becomes NaN.
                codes = np.arange(len(self.levels[place]), dtype=float)
                values[:, place] = (
                    column.cast(str)
                    .replace_strict(self.levels[place], codes, default=None, return_dtype=float)
                    .to_numpy()
                )
            else:
                values[:, place] = _numbers(column)
        return Table(values, tuple(map(str, frame.columns)), self.levels)

    @property
    def part_columns(self) -> list[int]:
        """For each column that `with_parts` appends, the position of its date."""
        return [place for place, parts in self.dates.items() for _ in parts]

    def with_parts(self, values: Any) -> Any:
        """Return rows with the recurring parts of their dates in further columns."""
        if not self.part_columns:
            return values
        from riskad.rows.date_features import MomentParts  # which imports polars

        parts = (
            MomentParts("datetime", tuple(parts)).ordered(values[:, place])
            for place, parts in self.dates.items()
        )
        return np.column_stack([values, *parts])

    def onnx_parts(self, graph: Any, rows: str) -> list[str]:
        """Return the columns that `with_parts` appends, in an ONNX graph."""
        if not self.part_columns:
            return []
        from riskad.rows.date_features import MomentParts

        return [
            number.node
            for place, parts in self.dates.items()
            for number in MomentParts("datetime", tuple(parts)).ordered_parts(
                GraphNumbers(graph, graph.node("Gather", rows, np.array([place]), axis=1))
            )
        ]


# --- the door ----------------------------------------------------------------------------


def is_data_frame(X: Any) -> bool:
    """Whether X is a polars or a pandas frame."""
    return _is_polars(X, "DataFrame") or (hasattr(X, "iloc") and hasattr(X, "columns"))


def _is_polars(X: Any, kind: str) -> bool:
    """Whether X is of this class of polars, without importing polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, getattr(polars, kind))


def as_table(X: Any) -> Any:
    """X if it can be a table; a lazy frame is collected, and an Arrow table is one of polars.

    What a mask of NumPy hides is missing.
    """
    # Collected once, here: a plan that is run again could give other rows.
    if _is_polars(X, "LazyFrame"):
        return X.collect()
    if not is_data_frame(X) and hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        import polars as pl

        _check_names(getattr(X, "column_names", X.columns))
        return pl.DataFrame(X)
    if is_data_frame(X):
        _check_names(list(X.columns))
    elif isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
        # Otherwise the values below the mask would be used.
        return np.ma.filled(X.astype(np.float64), np.nan)
    elif getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise InputError(
            "Complex data not supported: X must hold real numbers. Give real and imaginary parts, "
            "or sizes and angles, as columns of their own."
        )
    return X


def _check_names(names: Sequence[Any]) -> None:
    """Refuse duplicate column names, and frames in which only some names are texts."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"X has several columns of one name: {enumerate_names(twice)}. Give each a name of its "
            "own, or leave all but one out."
        )
    # scikit-learn refuses such frames with a message that does not say which name it is.
    kinds = {type(name) for name in names}
    if str in kinds and len(kinds) > 1:
        other = next(name for name in names if not isinstance(name, str))
        raise InputError(
            f"names of columns must all be texts, and X has {other!r} of type "
            f"{type(other).__name__} among them. With pandas: X.columns = X.columns.astype(str)."
        )


_TEXT = re.compile(r"could not convert string to float: (?:np\.str_\()?('.*?')")
_WITHOUT_TEXT = (
    "AutoRAD, BoostedRAD and ForestRAD take a frame with text as it is; riskad.fit_table does for "
    "every model; else turn it into numbers first, for example with sklearn's OneHotEncoder."
)


@contextmanager
def input_errors(who: str) -> Iterator[None]:
    """Turn complaints of scikit-learn and NumPy about X into mistakes of the user."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        text = _TEXT.match(str(error))
        if text:
            message = f"X holds text, {text[1]} for instance, and {who} takes numbers."
            raise InputError(f"{message} {_WITHOUT_TEXT}") from None
        raise InputError(str(error)) from error


def check_numbers(
    estimator: Any, X: Any, reset: bool, dtype: Any = (np.float64, np.float32), **options: Any
) -> Any:
    """X as an array of numbers by scikit-learn's checks, which take the `options`.

    With `reset` the estimator stores the columns, otherwise they must be the stored ones.
    """
    if not reset and _needs_no_check(estimator, X, dtype, options):
        return X
    X, who = as_table(on_host_array(X)), type(estimator).__name__
    if isinstance(X, Table):
        if X.levels:
            names = enumerate_names([X.names[place] for place in X.levels])
            raise InputError(
                f"X holds categories in {names}, and {who} takes numbers. Put "
                "riskad.rows.encoding.OneHotImputer before it."
            )
        X = X.values
    if X is None or (isinstance(X, (dict, str)) and not sparse.issparse(X)):  # one kind is a dict
        raise InputError(
            "X must hold rows and columns, as an array or a frame, such as pandas.DataFrame(X) of "
            f"a dict; got {type(X).__name__}."
        )
    if sparse.issparse(X) and not options.get("accept_sparse"):
        raise InputError(f"{who} takes dense tables, and X is sparse. Give X.toarray().")
    with input_errors(who):
        if not is_data_frame(X) or _is_plain(X):
            return validate_data(estimator, X, dtype=dtype, reset=reset, **options)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        # After the names: a frame with other columns is refused as such, and not for what its cells
        # hold.
        matrix = _to_numbers(X, who if reset else None)
        return check_array(matrix, dtype=dtype, input_name="X", estimator=estimator, **options)


def _needs_no_check(estimator: Any, X: Any, dtype: Any, options: Mapping[str, Any]) -> bool:
    """Whether an array needs no check; for few rows scikit-learn's check takes longest."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in (dtype if isinstance(dtype, tuple) else (dtype,))
        and len(X) >= options.get("ensure_min_samples", 1)
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")  # of which it would warn
        and (not options.get("ensure_all_finite", True) or bool(np.isfinite(X).all()))
    )


def _is_plain(frame: Any) -> bool:
    """Whether scikit-learn reads all columns of a frame correctly as numbers."""
    if _is_polars(frame, "DataFrame"):
        kinds = set(frame.dtypes)
        plain = all(kind.is_integer() or kind.is_float() for kind in kinds)
        gaps = any(column.null_count() for column in frame.iter_columns())
        return plain and not gaps and set(map(str, kinds)) != {"Float32"}  # which it would widen
    # pandas' own types with NA are read by `_from_pandas`.
    numpy = (isinstance(k, np.dtype) or type(k).__name__ == "SparseDtype" for k in frame.dtypes)
    return all(numpy) and all(kind.kind in "biuf" for kind in frame.dtypes)


def _to_numbers(frame: Any, who: str | None) -> np.ndarray:
    """The frame as floats, NaN for blanks; refuses text, unless it spells a number.

    Single precision is kept if all columns have it.
    """
    # All through polars: one reading of numbers, whoever made the frame.
    columns = _series(frame)
    single = bool(columns) and all(str(column.dtype) == "Float32" for column in columns)
    matrix = np.empty(frame.shape, dtype=np.float32 if single else np.float64)
    for place, column in enumerate(columns):
        _is_text(column)  # refuses dates
        matrix[:, place] = _numbers(column, who)
    return matrix


# --- columns of frames, as polars has them -----------------------------------------------


def _series(frame: Any) -> list[Any]:
    if _is_polars(frame, "DataFrame"):
        return list(frame.iter_columns())
    return [_from_pandas(frame.iloc[:, place]) for place in range(frame.shape[1])]


def _from_pandas(column: Any) -> Any:
    """A column of pandas as one of polars: floats, moments to the microsecond, or texts.

    pandas stores one kind of value in many ways: by NumPy, by its own types with NA, by Arrow, as
    Python's objects. polars' own conversion of some of them needs pyarrow.
    """
    import polars as pl

    name, dtype, kind = str(column.name), column.dtype, getattr(column.dtype, "kind", "O")
    cell_type = _held_type(column)
    # Objects that are all numbers, too: pandas makes them of columns with None.
    if kind in "biuf" or issubclass(cell_type, (Number, NoneType)):
        precision = np.float32 if str(dtype).lower() in ("float32", "float[pyarrow]") else float
        try:
            numbers = column.to_numpy(dtype=precision, na_value=np.nan)
        except TypeError:  # complex numbers
            raise _neither(name, dtype) from None
        return pl.Series(name, numbers, nan_to_null=True)
    if kind in "mM" or issubclass(cell_type, (date, timedelta)):
        if getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None) is not None:
            # The clock as written: daylight saving time would move a shop's opening hour.
            column = column.dt.tz_localize(None)
        plain = isinstance(column.dtype, np.dtype) and column.dtype != object
        values = column.to_numpy() if plain else column.to_numpy(dtype=object, na_value=None)
        return pl.Series(
            name, values.astype("m8[us]" if issubclass(cell_type, timedelta) else "M8[us]")
        )
    if kind not in "OU":
        raise _neither(name, dtype)
    blank = column.isna().tolist()
    texts = [None if gap else str(cell) for cell, gap in zip(column.tolist(), blank, strict=True)]
    return pl.Series(name, texts, dtype=pl.String)


def _held_type(column: Any) -> type:
    """The type of all values of a pandas column, `object` if they have none in common."""
    if column.dtype == object:
        values = column.dropna()
        for kind in (Number, timedelta, date):
            if all(isinstance(value, kind) for value in values):
                return kind
        return object
    if isinstance(column.dtype, np.dtype):
        return timedelta if column.dtype.kind == "m" else object
    cell_type = getattr(column.dtype, "type", object)
    return cell_type if isinstance(cell_type, type) else object


def _neither(name: str, dtype: Any) -> InputError:
    return InputError(
        f"Column {name!r} holds values of type {dtype}, neither numbers nor categories. AutoRAD, "
        "BoostedRAD and ForestRAD take dates as they are, and riskad.TablePreparer turns them into "
        "numbers; drop a column of anything else."
    )


def _is_text(column: Any) -> bool:
    """Whether a column holds texts or categories; dates are neither these nor numbers."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return False
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise _neither(column.name, column.dtype)
    return True


def _seconds(column: Any) -> np.ndarray:
    """Dates as seconds since 1970 by the clock as written, times since midnight, durations."""
    import polars as pl

    if not column.dtype.is_temporal() and column.null_count() < len(column):
        raise InputError(
            f"Column {column.name!r} held dates or times when the model was fitted and now holds "
            f"values of type {column.dtype}. Give it as dates or times."
        )
    if column.dtype == pl.Datetime and column.dtype.time_zone is not None:
        column = column.dt.replace_time_zone(None)
    if column.dtype == pl.Time:
        # Times are nanoseconds since midnight: durations.
        column = column.cast(pl.Duration("ns"))
    kind = pl.Duration("us") if column.dtype == pl.Duration else pl.Datetime("us")
    return np.asarray(column.cast(kind).cast(pl.Int64).cast(pl.Float64).to_numpy() / 1e6)


def _numbers(column: Any, who: str | None = None) -> np.ndarray:
    """The numbers of a column, NaN where it is blank; in a fit, `who` takes numbers only."""
    import polars as pl

    try:
        kind = pl.Float32 if column.dtype == pl.Float32 else pl.Float64
        return np.asarray(column.cast(kind).to_numpy())
    except pl.exceptions.PolarsError:
        texts = column.cast(str)
        # The first cell that is no number, for the message.
        example = texts.filter(texts.cast(float, strict=False).is_null()).drop_nulls()[0]
        text = f"text, {example!r} for instance"
    if who is None:
        raise InputError(
            f"Column {column.name!r} held numbers when the model was fitted and now holds {text}. "
            "Give it as numbers."
        )
    raise InputError(
        f"Column {column.name!r} holds {text}, and {who} takes numbers. {_WITHOUT_TEXT}"
    )
