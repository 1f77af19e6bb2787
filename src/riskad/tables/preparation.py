"""From a user's table to what a detector learns from, and a plain account of how.

If a column is silently dropped, or a code is read as a number, nobody finds the mistake later.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, describe_column_difference, enumerate_names, quoted
from riskad.files import fields
from riskad.files.fields import TEXT, DictOf, Maybe, Record, require
from riskad.rows.encoding import OneHotImputer
from riskad.rows.table import Table
from riskad.tables.cells import Reader, Value, as_polars, check_columns
from riskad.tables.formats.numbers import LARGEST
from riskad.tables.groups import GroupCounts
from riskad.tables.kinds.base import MEDIAN_ROWS, STORED, Column, Feature
from riskad.tables.kinds.derived import learn_derived, medians
from riskad.tables.notes import NotAsInTraining, list_names, pluralize
from riskad.tables.profiling import (
    Fold,
    KindRequest,
    first_rows,
    fold_batches,
    in_threads,
    profile_table,
)
from riskad.tables.shifts import FEWEST_ROWS, Shifts

__all__ = ["TablePreparer"]

_ROWS_FOR_THREADS = 1_000  # fewer are prepared before threads would have started
_BLOCK_ROWS = 1 << 16
_DERIVED = ("BesideGroup", "TimeBetween")
_NOUNS = {"flag": "yes/no", "categories": "many-level category"}


class TablePreparer(TransformerMixin, BaseEstimator):
    r"""Turn a table of raw columns into what detectors take; `fit` finds each column's kind.

    - *number*: in usual spellings, with thousands separators, decimal points or commas, currencies,
      percent signs, units, and spellings of a missing one ("NA", "-", "?"). In a matrix the median
      replaces blanks, and a further column marks them. Numbers beyond 1e100 are refused.
    - *flag*: yes and no in any common spelling.
    - *category*, and with more than 50 levels *categories*: in a matrix one yes/no column for each
      level that occurs in enough rows (2 to 10, by the size of the table). Rarer levels share
      "(other)", blanks become "(blank)". Whole numbers with leading zeros are codes, and so
      categories.
    - *date, datetime, time, duration*: hour, weekday, day of the month, month and time since the
      first row, if they vary; for a date that follows another one, the time between.
    - *text* and *list*: a short vector of numbers for each text, by n-grams or, for prose and where
      it is installed, by a sentence encoder (`riskad.tables.kinds.texts`).
    - Left out are columns with a single value (*constant*) and columns that number or name the rows
      (*identifier*).

    Labels are not used. `transform` ignores columns that `fit` did not see, so identifiers and
    labels may be present; missing columns are an error.

    Parameters
    ----------
    kinds : dict, optional
        Kinds of columns by name, which override what `fit` finds: number, flag, category, text,
        date, datetime, time or duration. A colon and the format of numbers and moments may follow,
        or what reads texts, ngrams or encoder:
        `{"when": "date:%d.%m.%Y", "amount": "number:1.234,50", "body": "text:ngrams"}`.
    group : str, optional
        A column that names the group of each row, such as a customer. The model does not learn from
        the column itself. But for each number and category a further number says how unusual it is
        within its group (`riskad.tables.groups`).
    max_levels : int
        Maximum number of yes/no columns for one category.
    encode : bool
        Whether `transform` gives a matrix of numbers without missing values, for any estimator
        (`riskad.rows.encoding.OneHotImputer`), or a `riskad.rows.table.Table`, which `AutoRAD`,
        `BoostedRAD` and `ForestRAD` take as it is.

    Attributes
    ----------
    columns_ : dict
        A `riskad.tables.kinds.base.Column` for each column, by name.
    derived_ : list
        `riskad.tables.kinds.derived.Derived` numbers, which are computed from several columns.
    encoder_ : OneHotImputer
        Makes the matrix.
    shifts_ : Shifts
        Ranges of numbers and counts of blank cells, to detect a changed unit later.
    n_rows_ : int
        Number of rows of the table.
    usual_row_ : dict
        Usual values by column; set only if a row of medians is suspicious (`riskad.fit_table`).

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({
    ...     "age": ["30", "", "20", "25"],
    ...     "country": ["FR", "FR", "DE", "DE"],
    ...     "plan": ["a", "a", "a", "a"],
    ... })
    >>> preparer = TablePreparer()
    >>> preparer.fit_transform(table)
    array([[30.,  0.,  0.,  1.],
           [25.,  1.,  0.,  1.],
           [20.,  0.,  1.,  0.],
           [25.,  0.,  1.,  0.]])
    >>> list(preparer.get_feature_names_out())
    ['age', 'age is blank', 'country=DE', 'country=FR']
    >>> print(*preparer.describe(), sep="\n")
    1 number column: age
    1 category column: country (2 levels)
    age: 1 blank filled with the median 25
    left out 'plan': every row holds 'a'
    """

    kinds: Annotated[Any, Maybe(DictOf(TEXT, TEXT))]
    group: Annotated[Any, Maybe(TEXT)]
    max_levels: Annotated[int, fields.Number(1, 10**6, whole=True)]
    encode: Annotated[bool, fields.FLAG]
    n_features_in_: Annotated[int, fields.COUNT]
    feature_names_in_: Annotated[Any, fields.NAMES]
    n_rows_: Annotated[int, fields.COUNT]
    columns_: Annotated[Any, DictOf(TEXT, Record(STORED))]
    derived_: Annotated[Any, fields.ListOf(Record(_DERIVED))]
    encoder_: Annotated[Any, Record(("OneHotImputer",))]
    shifts_: Annotated[Any, Maybe(Record(("Shifts",)))]
    windower_: Annotated[Any, fields.Optional(Record(("Windower",)))]
    usual_row_: Annotated[
        Any, fields.Optional(DictOf(TEXT, Maybe(fields.Either(fields.NUMBER, TEXT))))
    ]

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        columns = state["columns_"]
        require(list(columns) == list(state["feature_names_in_"]), "columns_: others")
        for name, column in columns.items():
            require(name == column.name, "columns_: of other names")
        used = {name for name, column in columns.items() if column.used}
        require(len(used) > 0, "columns_: none is used")
        # The group is read as text, which would take the place of the column's numbers.
        require(state["group"] not in used, "group: a column that the model learns from")
        fills = np.abs(state["encoder_"].fills_)  # squares of larger numbers overflow
        require(bool((fills <= LARGEST).all()), "encoder_: too large numbers")
        readable = used | {state["group"]}
        for derived in state["derived_"]:
            require(set(derived.needs()) <= readable, "derived_: of other columns")
            used |= set(derived.names())
        if "usual_row_" not in state:
            return
        require(set(state["usual_row_"]) == used, "usual_row_: of other columns")
        for name, value in state["usual_row_"].items():
            typical = columns[name].typical if name in columns else 0.0
            right = None in (value, typical) or isinstance(value, str) == isinstance(typical, str)
            require(right, "usual_row_: a text for a number, or the other way round")

    def __init__(
        self,
        *,
        kinds: Mapping[str, str] | None = None,
        group: str | None = None,
        max_levels: int = 50,
        encode: bool = True,
    ) -> None:
        self.kinds = kinds
        self.group = group
        self.max_levels = max_levels
        self.encode = encode

    def fit(self, X: Any, y: object = None) -> TablePreparer:
        """Find the kind of each column of a frame; `y` is ignored."""
        self.fit_parse(X)
        return self

    def fit_parse(self, X: Any) -> pl.DataFrame:
        """Fit to a frame, and return the result of `parse`; each cell is read once."""
        # Columns go from the clone once they are parsed: if nobody else has them, from memory, too.
        frame = as_polars(X).clone()
        del X
        rows = self._fit(frame, [frame], fold_batches, exact=True)
        return rows.select(self.read_columns)

    def fit_transform(self, X: Any, y: object = None) -> Any:
        """Fit, and return the rows for training: no row is compared with itself."""
        return self.features(self.fit_parse(X), training=True)

    def fit_batches(
        self,
        batches: Iterable[Any],
        fold: Fold = fold_batches,
        first: pl.DataFrame | None = None,
        n_rows: int = 0,
    ) -> TablePreparer:
        r"""As `fit`, for a table that comes in polars frames and need not fit in memory.

        Kinds, blanks, constant columns and levels are the same as in `fit`. If a column has more
        than 32,768 different values, their number is an estimate, and levels are those of frequent
        values. Medians are those of up to 65,536 random rows (`riskad.tables.sketches`).

        Parameters
        ----------
        batches : iterable of polars frames
            Not a generator, since it may be read again: a list, or
            `riskad.tables.reading.read_batches(path)`.
        fold : callable, optional
            Works on the batches: fold(function, join, batches) gives function(batch, first_row) of
            all of them, joined in order, where first_row counts rows from 1 over all batches.
        first : polars.DataFrame, optional
            Some rows, from which formats are expected; by default the first 1,000.
        n_rows : int, default=0
            Number of all rows, if it is known: samples of batches are then no larger than they
            must be, which matters where they cross a network.
        """
        first = first_rows(batches) if first is None else first
        self._fit(first, batches, fold, exact=False, n_rows=n_rows)
        return self

    def refit(self) -> TablePreparer:
        """Return an unfitted preparer that finds the same kinds in rows from `parse`."""
        kinds = {c.name: c.requested_kind for c in self.used() if c.requested_kind}
        return TablePreparer(
            kinds=kinds, group=self.group, max_levels=self.max_levels, encode=self.encode
        )

    def _fit(
        self, first: pl.DataFrame, batches: Iterable[Any], fold: Fold, exact: bool, n_rows: int = 0
    ) -> pl.DataFrame:
        """Find all kinds; returns the rows, or a sample of them, parsed by their kinds."""
        requests = {n: KindRequest.parse(n, kind) for n, kind in (self.kinds or {}).items()}
        names = first.columns
        check_columns([*requests, *([] if self.group is None else [self.group])], names)
        columns, sample = profile_table(
            first, batches, fold, requests=requests, group=self.group, exact=exact, of_rows=n_rows
        )
        self.__dict__.pop("usual_row_", None)
        self.columns_ = {column.name: column for column in columns}
        if not self.used():
            reasons = [
                f"\n  {quoted(column.name)}: {'; '.join([column.describe(), *column.remarks])}"
                for column in columns[:10]
            ]
            raise InputError(f"No column is left to learn from:{''.join(reasons)}")
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_, self.n_rows_ = len(columns), sample.n_rows

        def count_groups(count: Any) -> Any:
            work = partial(_count_parsed, preparer=self, count=count)
            return fold(work, GroupCounts.joined, batches)

        self.derived_, self.columns_ = learn_derived(
            self.columns_, self.group, sample.rows, None if exact else count_groups
        )
        # Quantiles and levels of many rows are those of some.
        some = sample.rows.gather_every(max(1, sample.rows.height // MEDIAN_ROWS))
        compared = [column.name for column in self.used() if column.kind in ("number", "category")]
        self.shifts_ = Shifts.learn(some.select(compared))
        self.encoder_ = OneHotImputer(max_levels=self.max_levels).fit(self.table(some))
        return sample.rows

    def used(self) -> list[Column]:
        """Return the columns that a model learns from."""
        return list(filter(attrgetter("used"), self.columns_.values()))

    @property
    def read_columns(self) -> list[str]:
        """The names of the columns that are read: the used columns, and that of groups."""
        names = [column.name for column in self.used()]
        return names if self.group is None else [*names, self.group]

    @property
    def kinds_(self) -> dict[str, str]:
        """The kind of each column, by name."""
        return {name: column.kind for name, column in self.columns_.items()}

    @property
    def usual_(self) -> dict[str, Value]:
        """Usual values of the used columns, and of numbers computed from several columns.

        They are medians and most frequent texts, unless a fit has set `usual_row_`.
        """
        if hasattr(self, "usual_row_"):
            return dict(self.usual_row_)
        usual = {column.name: column.typical for column in self.used()}
        for each in self.derived_:
            usual |= dict(zip(each.names(), each.typical, strict=True))
        return usual

    def usual_of(self, parsed: pl.DataFrame) -> dict[str, Value]:
        """Return usual values of these rows: the median number, the most frequent text."""
        usual = {column.name: column.typical_of(parsed[column.name]) for column in self.used()}
        for each in self.derived_:
            usual |= dict(zip(each.names(), medians(each.values(parsed)), strict=True))
        return usual

    @property
    def source_columns_(self) -> list[str]:
        """For each feature that detectors see, the column it comes from."""
        sources = [c.name for c in self.used() for _ in c.features(c.typed([]))]
        sources += self.derived_names()
        return [sources[j] for j in self.encoder_.columns_] if self.encode else sources

    @property
    def sparse_(self) -> bool:
        """Whether `transform` gives a sparse matrix."""
        return self.encode and self.encoder_.sparse_

    def derived_names(self) -> list[str]:
        """Return the names of the numbers that are computed from several columns."""
        return [name for derived in self.derived_ for name in derived.names()]

    @property
    def n_features_out_(self) -> int:
        """Number of columns of the result."""
        return len(self.get_feature_names_out())

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return readable names: 'income', 'income is blank', 'country=FR'."""
        check_is_fitted(self, "columns_")
        encoder = self.encoder_
        names = encoder.get_feature_names_out() if self.encode else self._empty_table().names
        return np.array(names, dtype=object)

    def _empty_table(self) -> Table:
        """The table of no rows."""
        features = [f for c in self.used() for f in c.features(c.typed([]))]
        return _as_table(features + [Feature(n, np.empty(0)) for n in self.derived_names()])

    def describe(self) -> list[str]:
        """Return the results of `fit` in plain sentences."""
        check_is_fitted(self, "columns_")
        notes = [note for column in self.columns_.values() for note in column.notes()]
        notes.sort(key=lambda note: note.startswith("left out "))  # these come last
        by_kind: dict[str, list[str]] = {}
        for column in self.used():
            noun = _NOUNS.get(column.kind, column.kind)
            by_kind.setdefault(f"{noun} column", []).append(column.listed())
        kinds = [f"{pluralize(len(c), noun)}: {list_names(c)}" for noun, c in by_kind.items()]
        return [*kinds, *(each.describe() for each in self.derived_), *notes]

    def transform(self, X: Any, *, first_row: int = 1, quiet: bool = False) -> Any:
        """Return a frame with the columns of `fit` in the form that detectors take (`encode`).

        No row depends on another row, so a table may come in parts; `first_row` is the number of
        the first row of a part in messages. With `quiet` there are no messages about cells that
        could not be read: those of training rows are known.
        """
        parsed = self.parse(X, first_row=first_row, quiet=quiet)
        enough = not quiet and parsed.height >= FEWEST_ROWS and self.shifts_ is not None
        if enough and (changes := self.shifts_.changes(parsed, first_row)):
            warnings.warn(NotAsInTraining(changes=changes), stacklevel=2)
        return self.features(parsed)

    def parse(self, X: Any, *, first_row: int = 1, quiet: bool = False) -> pl.DataFrame:
        """Return the used columns, parsed by their kinds, null if blank.

        Numbers are Float64, yes and no Boolean, moments have their own type, all else is String.
        Parsing parsed rows again does not change them.
        """
        if not hasattr(self, "columns_"):  # of a row, the check alone would take longest
            check_is_fitted(self, "columns_")
        frame = as_polars(X)
        if not set(self.read_columns) <= set(frame.columns):
            others = [name for name in frame.columns if name not in self.columns_]
            lines = describe_column_difference(self.read_columns, frame.columns).splitlines()
            missing = "\n".join(line for line in lines if not line.startswith("+"))
            also = f"\nIts other columns: {enumerate_names(others, 20)}." if others else ""
            raise InputError(
                f"The table lacks columns that the model was fitted on:\n{missing}{also}"
            )
        parsed = {}
        for column in self.used():
            parsed[column.name] = column.reader.read(frame[column.name], first_row, quiet)
        if self.group is not None:
            parsed[self.group] = Reader().read(frame[self.group])
        return pl.DataFrame(parsed)

    def features(self, parsed: pl.DataFrame, *, training: bool = False) -> Any:
        """Return rows from `parse` or `fit_parse` in the form that detectors take.

        With `training`, the preparer was fitted on these rows, and they are not compared with
        themselves.
        """
        checked = () if training else self.used()
        news = list(filter(None, [column.check_new(parsed[column.name]) for column in checked]))
        if news:
            warnings.warn(NotAsInTraining.of_all(news), stacklevel=2)
        table = self.table(parsed, training=training)
        return self.encoder_.transform(table) if self.encode else table

    def table(self, parsed: pl.DataFrame, *, training: bool = False) -> Table:
        """Return parsed rows as numbers and codes, with NaN for blanks."""
        n_rows = parsed.height
        if n_rows < _ROWS_FOR_THREADS:
            return _as_table(self._features(parsed, training))
        # Block by block, so that there is hardly anything in memory beside the matrix.
        empty = self._empty_table()
        values = np.empty((n_rows, len(empty.names)))
        size = min(_BLOCK_ROWS, -(-n_rows // (os.cpu_count() or 1)))

        def fill(start: int) -> None:
            rows = slice(start, start + size)
            for j, feature in enumerate(self._features(parsed[rows], training)):
                values[rows, j] = feature.values

        in_threads(fill, range(0, n_rows, size))
        return replace(empty, values=values)

    def _features(self, parsed: pl.DataFrame, training: bool) -> list[Feature]:
        features: list[Feature] = []
        for column in self.used():
            features += column.features(parsed[column.name])
        # Features keep the order of the columns; derived ones come last, as in `source_columns_`.
        for each in self.derived_:
            features += map(Feature, each.names(), each.values(parsed, training).T)
        return features

    def matrix(self, parsed: pl.DataFrame) -> Any:
        """Return parsed rows as a matrix of numbers without missing values, whatever `encode`."""
        return self.encoder_.transform(self.table(parsed))

    def usual_features(self, usual: Mapping[str, Value]) -> Any:
        """Return the values of `usual_`, or of `usual_of`, as the one row that a detector takes."""
        features = [f for c in self.used() for f in c.features(c.typed([usual[c.name]]))]
        features += [Feature(n, np.array([usual[n]], dtype=float)) for n in self.derived_names()]
        table = _as_table(features)
        return self.encoder_.transform(table) if self.encode else table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def _as_table(features: list[Feature]) -> Table:
    values = np.empty((len(features[0].values), len(features)))
    names, levels, periods = [], {}, {}
    for j, feature in enumerate(features):
        values[:, j] = feature.values
        names.append(feature.name)
        if feature.levels is not None:
            levels[j] = feature.levels
        if feature.period is not None:
            periods[j] = feature.period
    return Table(values, tuple(names), levels, periods)


def _count_parsed(
    frame: pl.DataFrame, first_row: int, *, preparer: TablePreparer, count: Any
) -> Any:
    return count(preparer.parse(frame, first_row=first_row, quiet=True), first_row)
