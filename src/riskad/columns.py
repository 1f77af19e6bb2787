"""Frames with columns of text or categories, as matrices for methods that split on either.

A text column becomes a column of codes 0, 1, 2 ... for the texts seen in fit. What is missing, and
at scoring time what was never seen, is NaN: a tree sends it where missing values go.
"""

from __future__ import annotations

from numbers import Number
from typing import Any, ClassVar, TypeAlias

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator, TransformerMixin

from riskad._checks import InputError
from riskad.fields import COUNT, TEXT, Array, DictOf, Fields, ListOf, Maybe, State, require

__all__ = ["Filled", "Levels", "is_frame", "learn_levels", "to_matrix"]

Levels: TypeAlias = dict[int, list[str]]
"""The texts of each text column, by the column's place."""

_FEWEST_OF_LEVEL = 2


def is_frame(X: Any) -> bool:
    """Whether X is a polars or a pandas frame."""
    return isinstance(X, pl.DataFrame) or (hasattr(X, "iloc") and hasattr(X, "columns"))


def learn_levels(frame: Any) -> Levels:
    """The text columns of a frame and what they hold, in order.

    >>> learn_levels(pl.DataFrame({"age": [31, 47], "town": ["Ulm", None]}))
    {1: ['Ulm']}
    """
    columns = (_column(frame, place) for place in range(frame.shape[1]))
    texts = {place: _texts(column) for place, column in enumerate(columns) if _is_text(column)}
    return {place: sorted({t for t in found if t is not None}) for place, found in texts.items()}


def to_matrix(frame: Any, levels: Levels) -> np.ndarray:
    """The frame as floats: codes of `levels` in the text columns, NaN for what is missing or new.

    >>> to_matrix(pl.DataFrame({"age": [31, None], "town": ["Bonn", "Ulm"]}), {1: ["Ulm"]})
    array([[31., nan],
           [nan,  0.]])
    """
    matrix = np.empty(frame.shape)
    for place in range(frame.shape[1]):
        column = _column(frame, place)
        if place in levels:
            codes = {text: code for code, text in enumerate(levels[place])}
            found = (codes.get(text, np.nan) for text in _texts(column))  # type: ignore[arg-type]
            matrix[:, place] = np.fromiter(found, dtype=float, count=len(column))
        else:
            matrix[:, place] = _numbers(column)
    return matrix


class Filled(TransformerMixin, BaseEstimator):
    """Such a matrix without gaps, for methods that measure distances.

    A gap in a column of numbers becomes the median, and a further column says where gaps were; a
    column of codes becomes one yes/no column for each code that at least two rows have.

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
        """Refuse a stored state whose parts do not fit each other."""
        texts, numbers = state["texts_"], state["numbers_"]
        require(sorted(texts + numbers) == list(range(len(texts + numbers))), "texts_: not all")
        require(len(state["medians_"]) == len(numbers), "medians_: one for each number")
        require(bool((state["gaps_"] < len(numbers)).all()), "gaps_: no such column")
        require(len(state["codes_"]) == len(texts), "codes_: some for each text")

    @property
    def widths(self) -> tuple[int, int]:
        """How many columns a matrix has before and after."""
        coded = sum(len(codes) for codes in self.codes_)
        after = len(self.numbers_) + len(self.gaps_) + coded
        return len(self.numbers_) + len(self.texts_), after

    def __init__(self, levels: Levels | None = None):
        self.levels = levels

    def fit(self, X: np.ndarray, y: Any = None) -> Filled:
        """Find medians, columns with gaps, and the codes that occur; y is not looked at."""
        self.texts_ = sorted(self.levels or {})
        self.numbers_ = [j for j in range(X.shape[1]) if j not in self.texts_]
        numbers = X[:, self.numbers_]
        self.gaps_ = np.flatnonzero(np.isnan(numbers).any(axis=0))
        known = ~np.isnan(numbers)
        empty = ~known.any(axis=0)
        self.medians_ = np.nanmedian(np.where(empty, 0.0, numbers), axis=0)
        self.codes_ = [_frequent(X[:, j]) for j in self.texts_]
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The matrix without gaps."""
        numbers = X[:, self.numbers_]
        blank = np.isnan(numbers)
        columns = [np.where(blank, self.medians_, numbers), blank[:, self.gaps_].astype(float)]
        for place, codes in zip(self.texts_, self.codes_, strict=True):
            columns.append((X[:, [place]] == codes).astype(float))
        return np.hstack(columns)


def _frequent(column: np.ndarray) -> np.ndarray:
    codes, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    return codes[counts >= _FEWEST_OF_LEVEL]


def _column(frame: Any, place: int) -> Any:
    return frame.to_series(place) if isinstance(frame, pl.DataFrame) else frame.iloc[:, place]


def _is_text(column: Any) -> bool:
    """Whether a column holds texts or categories; dates are neither these nor numbers."""
    if isinstance(column, pl.Series):
        if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            return False
        text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    else:
        kind = getattr(column.dtype, "kind", "O")
        if kind in "biuf":
            return False
        text = kind in "OU"
        if column.dtype == object:
            return not all(isinstance(value, Number) for value in column.dropna())
    if not text:
        raise InputError(
            f"Column {column.name!r} holds values of type {column.dtype}, neither numbers "
            "nor categories. Turn them into what matters, such as an age or a weekday, or drop it."
        )
    return True


def _texts(column: Any) -> list[str | None]:
    if isinstance(column, pl.Series):
        return column.cast(pl.String).to_list()
    missing = column.isna().tolist()
    return [None if gap else str(v) for v, gap in zip(column.tolist(), missing, strict=True)]


def _numbers(column: Any) -> np.ndarray:
    try:
        if isinstance(column, pl.Series):
            return column.cast(pl.Float64).to_numpy()
        return column.to_numpy(dtype=float, na_value=np.nan)
    except (ValueError, TypeError, pl.exceptions.PolarsError):
        raise InputError(
            f"Column {column.name!r} held numbers when the model was fitted and now holds values "
            f"of type {column.dtype}. Give it as numbers."
        ) from None
