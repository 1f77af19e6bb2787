"""Frames with columns of text, categories or dates, as matrices for methods that split on these.

A text column becomes a column of codes 0, 1, 2 ... for the texts seen in fit, the most frequent
first: neighbouring codes are about as frequent, and a split separates frequent texts from rare
ones. Dates, times and durations become seconds. Missing values, and at scoring time new texts, are
NaN: a tree treats them as missing.

`as_table` accepts anything that may be given as X, and `check_numbers` serves methods that take
only numbers: the same numbers give the same matrix, whether they are stored by NumPy, Arrow or
pandas' own types with NA.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from numbers import Number
from types import NoneType
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.storage.fields import COUNT, TEXT, Array, DictOf, Fields, ListOf, Maybe, State, require

__all__ = [
    "FEW_LEVELS",
    "Filled",
    "Levels",
    "MadeColumns",
    "Reduced",
    "as_table",
    "check_numbers",
    "input_errors",
    "is_frame",
    "learn_levels",
    "learn_moments",
    "to_matrix",
]

Levels: TypeAlias = dict[int, list[str]]
"""The texts of each text column, by the column's position."""

_FEWEST_OF_LEVEL = 2
FEW_LEVELS = 10
"""Most levels of a category with which each level can be a yes/no column."""


def is_frame(X: Any) -> bool:
    """Whether X is a polars or a pandas frame."""
    return _is_polars(X, "DataFrame") or (hasattr(X, "iloc") and hasattr(X, "columns"))


def _is_polars(X: Any, kind: str) -> bool:
    """Whether X is of this class of polars, without importing polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, getattr(polars, kind))


def as_table(X: Any) -> Any:
    """X if it can be a table, a lazy frame collected; column names must be unique.

    >>> import polars as pl
    >>> as_table(pl.LazyFrame({"age": [31, 47]})).shape
    (2, 1)
    """
    if _is_polars(X, "LazyFrame"):
        return X.collect()
    if is_frame(X):
        _check_names(list(X.columns))
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
    X, who = as_table(X), type(estimator).__name__
    if sparse.issparse(X) and not options.get("accept_sparse"):
        raise InputError(f"{who} takes dense tables, and X is sparse. Give X.toarray().")
    with input_errors(who):
        if not is_frame(X) or _is_plain(X):
            return validate_data(estimator, X, dtype=dtype, reset=reset, **options)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        matrix = _to_numbers(X, who, fitted=not reset)
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
    return all(_is_numpy(kind) and kind.kind in "biuf" for kind in frame.dtypes)


def _is_numpy(kind: Any) -> bool:
    return isinstance(kind, np.dtype) or type(kind).__name__ == "SparseDtype"


def _to_numbers(frame: Any, who: str, fitted: bool = False) -> np.ndarray:
    """The frame as floats, NaN for missing values; refuses text, unless it spells a number.

    Single precision is kept if all columns have it.

    >>> import polars as pl
    >>> _to_numbers(pl.DataFrame({"age": [31, None], "paid": [True, False]}), "ShallowRAD")
    array([[31.,  1.],
           [nan,  0.]])
    """
    columns = [_column(frame, place) for place in range(frame.shape[1])]
    single = bool(columns) and all(_is_single(column.dtype) for column in columns)
    matrix = np.empty(frame.shape, dtype=np.float32 if single else np.float64)
    for place, column in enumerate(columns):
        _is_text(column)  # refuses dates
        try:
            matrix[:, place] = _floats(column)
        except ValueError:
            raise InputError(_describe_text(column, who, fitted)) from None
    return matrix


def _describe_text(column: Any, who: str, fitted: bool) -> str:
    example = next((t for t in _texts(column) if t is not None and not _spells(t)), "")
    text = f"text, {example!r} for instance"
    if fitted:
        return (
            f"Column {column.name!r} held numbers when the model was fitted and now holds {text}. "
            "Give it as numbers."
        )
    return f"Column {column.name!r} holds {text}, and {who} takes numbers. {_WITHOUT_TEXT}"


def _is_single(kind: Any) -> bool:
    return str(kind).lower() in ("float32", "float[pyarrow]")


def _spells(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def learn_levels(frame: Any) -> Levels:
    """The text columns of a frame and their texts, the most frequent first.

    Equally frequent texts are in alphabetical order.

    >>> import polars as pl
    >>> learn_levels(pl.DataFrame({"age": [31, 47, 52], "town": ["Bonn", "Ulm", "Ulm"]}))
    {1: ['Ulm', 'Bonn']}
    """
    columns = enumerate(_column(frame, place) for place in range(frame.shape[1]))
    return {
        place: _by_count(column)
        for place, column in columns
        if not _is_moment(column) and _is_text(column)
    }


def learn_moments(frame: Any) -> dict[int, list[str]]:
    """The columns of dates, times and durations, and which parts of dates matter.

    The hour, the weekday, the day of the month and the month count if they vary and recur
    (`riskad.rows.date_features.MomentParts`).

    >>> import polars as pl
    >>> days = pl.date_range(pl.date(2025, 3, 1), pl.date(2025, 3, 20), eager=True)
    >>> learn_moments(pl.DataFrame({"age": range(20), "paid": days}))
    {1: ['weekday']}
    """
    moments = {}
    for place in range(frame.shape[1]):
        column = _column(frame, place)
        if _is_moment(column):
            moments[place] = _recurring_parts(column)
    return moments


def _recurring_parts(column: Any) -> list[str]:
    from riskad.rows.date_features import MomentParts  # which imports polars

    if not _is_date(column):
        return []
    found = MomentParts.learn("datetime", _seconds(column))
    return [part for part in found.parts if part != "elapsed"]  # as the seconds are


def _by_count(column: Any) -> list[str]:
    if _is_polars(column, "Series"):
        import polars as pl

        found = column.cast(pl.String).rename("text").drop_nulls().value_counts()
        return found.sort("count", "text", descending=[True, False])["text"].to_list()
    counts = Counter(text for text in _texts(column) if text is not None)
    return sorted(counts, key=lambda text: (-counts[text], text))


def to_matrix(frame: Any, levels: Levels, moments: Collection[int] = ()) -> np.ndarray:
    """The frame as floats: codes of `levels` in the text columns, NaN for missing or new texts.

    Columns at the places `moments` become seconds.

    >>> import polars as pl
    >>> to_matrix(pl.DataFrame({"age": [31, None], "town": ["Bonn", "Ulm"]}), {1: ["Ulm"]})
    array([[31., nan],
           [nan,  0.]])
    """
    matrix = np.empty(frame.shape)
    for place in range(frame.shape[1]):
        column = _column(frame, place)
        if place in moments:
            matrix[:, place] = _seconds(column)
        elif _is_moment(column):
            raise InputError(
                f"Column {column.name!r} held no dates or times when the model was fitted and now "
                f"holds values of type {column.dtype}. Give it as it was."
            )
        elif place in levels:
            matrix[:, place] = _codes(column, levels[place])
        else:
            matrix[:, place] = _numbers(column)
    return matrix


def _codes(column: Any, levels: Sequence[str]) -> np.ndarray:
    if _is_polars(column, "Series"):
        import polars as pl

        codes = np.arange(len(levels), dtype=float)
        texts = column.cast(pl.String)
        return texts.replace_strict(levels, codes, default=None, return_dtype=pl.Float64).to_numpy()
    places = {text: code for code, text in enumerate(levels)}
    found = (places.get(text, np.nan) for text in _texts(column))  # type: ignore[arg-type]
    return np.fromiter(found, dtype=float, count=len(column))


class MadeColumns(NamedTuple):
    """Columns that were computed from others."""

    marks: Sequence[tuple[int, int]] = ()
    """Columns that had gaps, each with the column that marks them."""
    levels: Sequence[tuple[int, int]] = ()
    """Start and end of the yes/no columns of each category."""


class Filled(TransformerMixin, BaseEstimator):
    """Such a matrix without gaps, for methods that measure distances.

    The median replaces a gap in a column of numbers, and a further column marks gaps. A column of
    up to ten codes becomes one yes/no column for each code that at least two rows have. With more
    codes it is unchanged, and missing values get one code more than all: next to the rarest. As
    yes/no columns its texts would outnumber all other columns.

    >>> matrix = np.array([[31.0, 0.0], [np.nan, 1.0], [35.0, 0.0]])
    >>> Filled({1: ["Bonn", "Ulm"]}).fit_transform(matrix)
    array([[31.,  0.,  1.],
           [33.,  1.,  0.],
           [35.,  0.,  1.]])
    """

    _state_fields: ClassVar[Fields] = {
        "levels": Maybe(DictOf(COUNT, ListOf(TEXT))),
        "texts_": ListOf(COUNT),
        "numbers_": ListOf(COUNT),
        "gaps_": Array("i", ("gaps",), low=0),
        "medians_": Array("f", ("numbers",)),
        "codes_": ListOf(Array("f", (None,), low=0)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        texts, numbers = state["texts_"], state["numbers_"]
        require(sorted(texts + numbers) == list(range(len(texts + numbers))), "texts_: not all")
        require(len(state["medians_"]) == len(numbers), "medians_: one for each number")
        require(bool((state["gaps_"] < len(numbers)).all()), "gaps_: no such column")
        require(len(state["codes_"]) == len(texts), "codes_: some for each text")

    @property
    def widths(self) -> tuple[int, int]:
        """The number of columns of a matrix before and after."""
        coded = sum(len(codes) for codes in self.codes_)
        after = len(self.numbers_) + len(self.gaps_) + coded
        return len(self.numbers_) + len(self.texts_), after

    @property
    def made(self) -> MadeColumns:
        """Which columns of the result are marks and levels."""
        first = len(self.numbers_)
        marks = [(int(place), first + i) for i, place in enumerate(self.gaps_)]
        ends = np.cumsum([first + len(self.gaps_), *map(len, self.codes_)]).tolist()
        return MadeColumns(marks, [span for span in pairwise(ends) if span[0] < span[1]])

    def __init__(self, levels: Levels | None = None):
        self.levels = levels

    def fit(self, X: Any, y: Any = None) -> Filled:
        """Find medians, columns with gaps, and the codes that occur; y is ignored."""
        X = X.toarray() if sparse.issparse(X) else X
        levels = self.levels or {}
        self.texts_ = [j for j in sorted(levels) if len(levels[j]) <= FEW_LEVELS]
        self.numbers_ = [j for j in range(X.shape[1]) if j not in self.texts_]
        numbers = X[:, self.numbers_]
        self.gaps_ = np.flatnonzero(np.isnan(numbers).any(axis=0))
        known = ~np.isnan(numbers)
        empty = ~known.any(axis=0)
        self.medians_ = np.nanmedian(np.where(empty, 0.0, numbers), axis=0)
        for place, j in enumerate(self.numbers_):
            if j in levels:
                self.medians_[place] = len(levels[j])
        self.codes_ = [_frequent(X[:, j]) for j in self.texts_]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The matrix without gaps."""
        X = X.toarray() if sparse.issparse(X) else X
        numbers = X[:, self.numbers_]
        blank = np.isnan(numbers)
        columns = [np.where(blank, self.medians_, numbers), blank[:, self.gaps_].astype(float)]
        for place, codes in zip(self.texts_, self.codes_, strict=True):
            columns.append((X[:, [place]] == codes).astype(float))
        return np.hstack(columns)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the matrix without gaps in an ONNX graph (`riskad.app.onnx_graph.Graph`)."""
        columns = []
        if self.numbers_:
            numbers = graph.node("Gather", rows, np.array(self.numbers_), axis=1)
            blank = graph.node("IsNaN", numbers)
            columns.append(graph.node("Where", blank, self.medians_, numbers))
        if len(self.gaps_):
            gaps = graph.node("Gather", blank, self.gaps_, axis=1)
            columns.append(graph.cast(gaps, np.float64))
        for place, codes in zip(self.texts_, self.codes_, strict=True):
            if len(codes):
                column = graph.node("Gather", rows, np.array([place]), axis=1)
                columns.append(graph.cast(graph.node("Equal", column, codes), np.float64))
        return str(graph.node("Concat", *columns, axis=1))


@dataclass(frozen=True, eq=False)
class Reduced:
    """A wide sparse matrix as a few dense columns, by its leading singular vectors."""

    components: np.ndarray

    _state_fields: ClassVar[Fields] = {"components": Array("f", ("components", "columns"))}

    @classmethod
    def of(cls, matrix: Any, size: int, seed: int) -> Self:
        """With that many columns, learned from the rows of a matrix."""
        from sklearn.decomposition import TruncatedSVD

        return cls(TruncatedSVD(size, random_state=seed).fit(matrix).components_)

    @property
    def widths(self) -> tuple[int, int]:
        """The number of columns of a matrix before and after."""
        after, before = self.components.shape
        return before, after

    @property
    def made(self) -> MadeColumns:
        """No column of the result marks gaps or levels."""
        return MadeColumns()

    def transform(self, X: Any) -> np.ndarray:
        """The matrix with fewer columns."""
        return np.asarray(X @ self.components.T)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the matrix with fewer columns in an ONNX graph."""
        return str(graph.node("MatMul", rows, self.components.T))


def _frequent(column: np.ndarray) -> np.ndarray:
    codes, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    return codes[counts >= _FEWEST_OF_LEVEL]


def _column(frame: Any, place: int) -> Any:
    return frame.to_series(place) if _is_polars(frame, "DataFrame") else frame.iloc[:, place]


def _is_moment(column: Any) -> bool:
    """Whether a column holds dates, times or durations."""
    if _is_polars(column, "Series"):
        return bool(column.dtype.is_temporal())
    elapsed = getattr(column.dtype, "kind", "O") == "m" or _holds(column, timedelta)
    return elapsed or _is_date(column)


def _is_date(column: Any) -> bool:
    if _is_polars(column, "Series"):
        import polars as pl

        return column.dtype in (pl.Date, pl.Datetime)
    return getattr(column.dtype, "kind", "O") == "M" or _holds(column, date)


def _holds(column: Any, kind: type) -> bool:
    """Whether a pandas column of Python's or Arrow's objects holds nothing but values of a type."""
    if column.dtype == object:
        values = column.dropna()
        return len(values) > 0 and all(isinstance(value, kind) for value in values)
    scalar = None if isinstance(column.dtype, np.dtype) else getattr(column.dtype, "type", None)
    return isinstance(scalar, type) and issubclass(scalar, kind)


def _seconds(column: Any) -> np.ndarray:
    """Dates as seconds since 1970 by the clock as written, times since midnight, durations."""
    if not _is_moment(column) and not _is_blank(column):
        raise InputError(
            f"Column {column.name!r} held dates or times when the model was fitted and now holds "
            f"values of type {column.dtype}. Give it as dates or times."
        )
    if _is_polars(column, "Series"):
        return _polars_seconds(column)
    zoned = getattr(column.dtype, "pyarrow_dtype", column.dtype)
    if getattr(zoned, "tz", None) is not None:
        column = column.dt.tz_localize(None)
    kind = "m8[us]" if not _is_date(column) and not _is_blank(column) else "M8[us]"
    plain = isinstance(column.dtype, np.dtype) and column.dtype != object
    values = column.to_numpy() if plain else column.to_numpy(dtype=object, na_value=None)
    moments = values.astype(kind)
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def _is_blank(column: Any) -> bool:
    blank = column.is_null() if _is_polars(column, "Series") else column.isna()
    return bool(blank.all())


def _polars_seconds(column: Any) -> np.ndarray:
    import polars as pl

    if column.dtype == pl.Datetime and column.dtype.time_zone is not None:
        column = column.dt.replace_time_zone(None)
    if column.dtype == pl.Time:
        column = column.cast(pl.Duration("ns"))
    kind = pl.Duration("us") if column.dtype == pl.Duration else pl.Datetime("us")
    return column.cast(kind).cast(pl.Int64).cast(pl.Float64).to_numpy() / 1e6


def _is_text(column: Any) -> bool:
    """Whether a column holds texts or categories; dates are neither these nor numbers."""
    if _is_polars(column, "Series"):
        import polars as pl

        if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            return False
        text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    else:
        kind = getattr(column.dtype, "kind", "O")
        if kind in "biuf" or _holds_numbers(column.dtype):
            return False
        text = kind in "OU"
        if column.dtype == object:
            return not all(isinstance(value, Number) for value in column.dropna())
    if not text:
        raise InputError(
            f"Column {column.name!r} holds values of type {column.dtype}, neither numbers nor "
            "categories. AutoRAD, BoostedRAD and ForestRAD take dates as they are, and "
            "riskad.TablePreparer turns them into numbers; drop a column of anything else."
        )
    return True


def _holds_numbers(kind: Any) -> bool:
    """Whether a pandas type that is not NumPy's holds numbers: decimals, or nothing."""
    scalar = None if isinstance(kind, np.dtype) else getattr(kind, "type", None)
    return isinstance(scalar, type) and issubclass(scalar, (Number, NoneType))


def _texts(column: Any) -> list[str | None]:
    if _is_polars(column, "Series"):
        import polars as pl

        return column.cast(pl.String).to_list()
    missing = column.isna().tolist()
    return [None if gap else str(v) for v, gap in zip(column.tolist(), missing, strict=True)]


def _numbers(column: Any) -> np.ndarray:
    try:
        return _floats(column)
    except ValueError:
        raise InputError(
            f"Column {column.name!r} held numbers when the model was fitted and now holds values "
            f"of type {column.dtype}. Give it as numbers."
        ) from None


def _floats(column: Any) -> np.ndarray:
    """The numbers of a column, NaN where it has none; a ValueError if they are not numbers."""
    if _is_polars(column, "Series"):
        return _polars_floats(column)
    try:
        return column.to_numpy(dtype=float, na_value=np.nan)
    except TypeError as error:  # pandas of values that are no numbers
        raise ValueError(str(error)) from error


def _polars_floats(column: Any) -> np.ndarray:
    import polars as pl

    kind = pl.Float32 if column.dtype == pl.Float32 else pl.Float64
    try:
        return column.cast(kind).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from error
