"""From a table as people keep it to a matrix of numbers, and a plain account of how.

The account matters as much as the matrix: a column that was silently dropped, or a code that
was taken for a number, is a mistake nobody finds later.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import (
    DataWarning,
    InputError,
    describe_column_difference,
    enumerate_names,
    quoted,
)
from riskad.storage.fields import (
    COUNT,
    FLAG,
    NAMES,
    TEXT,
    DictOf,
    Either,
    Fields,
    ListOf,
    Maybe,
    Number,
    State,
    Text,
    require,
)
from riskad.tables.columns import check_columns, to_text
from riskad.tables.sketches import Numbers, RowSample, Texts

__all__ = ["BLANK", "OTHER", "NotAsInTraining", "TablePreparer", "usual_value", "yes_no_words"]

_KINDS = ("number", "text", "dropped")

BLANK = "(blank)"
OTHER = "(other)"

Matrix: TypeAlias = Any  # NDArray[np.float64] or scipy's csr_matrix, which has no types
Value: TypeAlias = float | str | None  # of one cell; None is a number that is not there

# In a column of numbers these mean "no number"; in a text column "NA" may well be Namibia.
_MISSING_MARKS = ("na", "n/a", "#n/a", "nan", "null", "none", "?", "-", ".")
_DATE = (
    r"^(\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}( .*)?"
    r"|\d{1,2}/\d{1,2}/\d{2}( .*)?|\d{1,2}:\d{2}(:\d{2}.*)?)$"
)
_LEADING_ZERO = r"^\s*0\d+\s*$"
_DRESSED_NUMBER = r"^[$€£\s]*[-+]?\d[\d.,'\s]*[%$€£\s]*$"
_IDENTIFIER_NAME = re.compile(
    r"(^|[\W_])[iI][dD]$|[a-z]I[dD]$|^(index|row)$|^Unnamed: \d+$|^$", re.ASCII
)
# Squares of larger numbers, summed over many rows, would leave the range of floating point. Of
# smaller ones LightGBM sees no difference to zero, and spreads of some have no inverse.
_LARGEST = 1e100
_SMALLEST = 1e-35
_COUNTER_ROWS = 20  # fewer consecutive numbers than this may well be a measurement
_NEW_VALUES = 1000  # new values of a column that are told apart; more of them only take memory


# What a table that comes in parts may take: values of a column that are told apart, rows drawn at
# random for medians, and cells of these.
_MOST_VALUES = 1 << 15
_MOST_SAMPLED = 1 << 16
_FEWEST_SAMPLED = 1 << 12
_MOST_CELLS = 1 << 23

T = TypeVar("T")
Fold: TypeAlias = Callable[
    [Callable[[pl.DataFrame, int], Any], Callable[[Any, Any], Any], Iterable[Any]], Any
]


def _fold(
    function: Callable[[pl.DataFrame, int], T],
    join: Callable[[T, T], T],
    batches: Iterable[pl.DataFrame],
) -> T:
    """Join what batches tell, one after another; those without rows tell nothing."""
    total, first_row = None, 1
    for batch in batches:
        if batch.height:
            told = function(batch, first_row)
            total = told if total is None else join(total, told)
            first_row += batch.height
    if total is None:
        raise InputError("The table has no rows; nothing to do.")
    return total


class NotAsInTraining(DataWarning):
    """What rows to be scored have and training rows had not, by column.

    >>> a = NotAsInTraining(rows={"country": 2}, values={"country": {"NA"}})
    >>> b = NotAsInTraining(blanks={"age": 1}, rows={"country": 1}, values={"country": {"XX"}})
    >>> print(NotAsInTraining.of_all([a, b]))
    Not as in training: age: 1 blank filled with the median, where it had none; \
country: 3 rows with a new value ('NA', 'XX').
    """

    def __init__(
        self,
        *,
        blanks: Mapping[str, int] | None = None,
        rows: Mapping[str, int] | None = None,
        values: Mapping[str, set[str]] | None = None,
    ):
        self.blanks = Counter(blanks or {})
        self.rows = Counter(rows or {})
        self.values = dict(values or {})
        super().__init__(self._sentence())

    @classmethod
    def of_all(cls, news: Iterable[NotAsInTraining]) -> NotAsInTraining:
        """Return the news of several batches of rows as one."""
        return reduce(cls._with, news)

    def _with(self, other: NotAsInTraining) -> NotAsInTraining:
        values = {
            name: set(sorted(self.values.get(name, set()) | more)[:_NEW_VALUES])
            for name, more in other.values.items()
        }
        return NotAsInTraining(
            blanks=self.blanks + other.blanks,
            rows=self.rows + other.rows,
            values=self.values | values,
        )

    def _sentence(self) -> str:
        notes = [
            f"{name}: {_count(n, 'blank')} filled with the median, where it had none"
            for name, n in self.blanks.items()
        ]
        for name, n in self.rows.items():
            values = sorted(self.values[name])
            shown = enumerate_names(values, 3)
            if len(values) >= _NEW_VALUES:
                shown = f"{enumerate_names(values[:3])} and at least {len(values) - 3} more"
            notes.append(f"{name}: {_count(n, 'row')} with a new value ({shown})")
        return "Not as in training: " + "; ".join(notes) + "."


class TablePreparer(TransformerMixin, BaseEstimator):
    r"""Turn a table of raw columns into numbers; each column's kind is decided in `fit`.

    - *Numbers*: every value that is not blank is a number, or true or false. Blanks become the
      median, and a further column says where they were. "NA", "null", "?" and the like count
      as blank here. Numbers beyond 1e100 are refused, and those within 1e-35 of zero count as 0.
    - *Text*: one yes/no column for each value that occurs in enough rows (2 to 10, by the size
      of the table); rarer values share "(other)", blanks have "(blank)". Whole numbers with
      leading zeros are codes, so they are text.
    - *Dropped*: columns that hold one value, that number or name the rows, and dates and times.

    No label is looked at. Columns that were not there in `fit` are ignored in `transform`, so
    that identifiers and labels may come along; columns that are missing are an error.

    Parameters
    ----------
    text, number : sequences of column names
        Columns to be read as text or as numbers, whatever they look like.
    max_levels : int
        The most yes/no columns that one text column may become.

    Attributes
    ----------
    kinds_ : dict
        "number", "text" or "dropped", by column name.
    medians_, blanks_, levels_, dropped_ : dict
        By column name: the median of a number column, the count of its blanks, the levels of
        a text column, the reason for which a column was dropped.
    rare_, rare_hashes_ : dict
        By name of a text column: how many values share "(other)", and hashes of these values where
        they are 1,000 at most. A value that is neither a level nor one of them is new.
    usual_ : dict
        By column name, what `usual_value` says of the columns that are used: with it a model can
        say later what is unusual about a row, without any row of the training table.
    source_columns_ : list of str
        For each feature of the matrix, the column it comes from.
    sparse_ : bool
        Whether `transform` gives a CSR matrix; it does when most features are yes/no columns.

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
    1 text column became 2 yes/no columns: country (2)
    age: 1 blank filled with the median 25
    dropped 'plan': every row holds 'a'
    """

    _state_fields: ClassVar[Fields] = {
        "text": ListOf(TEXT),
        "number": ListOf(TEXT),
        "max_levels": Number(1, 10**6, whole=True),
        "n_features_in_": COUNT,
        "feature_names_in_": NAMES,
        "n_rows_": COUNT,
        "kinds_": DictOf(TEXT, Text(choices=_KINDS)),
        "medians_": DictOf(TEXT, Number(-_LARGEST, _LARGEST)),
        "blanks_": DictOf(TEXT, COUNT),
        "levels_": DictOf(TEXT, ListOf(TEXT)),
        "rare_": DictOf(TEXT, COUNT),
        "rare_hashes_": DictOf(TEXT, ListOf(COUNT)),
        "dropped_": DictOf(TEXT, TEXT),
        "usual_": DictOf(TEXT, Maybe(Either(Number(-_LARGEST, _LARGEST), TEXT))),
        "source_columns_": ListOf(TEXT),
        "sparse_": FLAG,
        "_feature_names": ListOf(TEXT),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        kinds, usual, levels = state["kinds_"], state["usual_"], state["levels_"]
        of_kind = {k: {name for name in kinds if kinds[name] == k} for k in _KINDS}
        require(set(kinds) == set(state["feature_names_in_"]), "kinds_: of other columns")
        require(set(state["dropped_"]) == of_kind["dropped"], "dropped_: other columns")
        require(set(levels) == of_kind["text"], "levels_: other columns than those of text")
        require(set(state["blanks_"]) == of_kind["number"], "blanks_: other columns")
        require(set(state["medians_"]) <= of_kind["number"], "medians_: other columns")
        require(set(state["rare_hashes_"]) <= of_kind["text"], "rare_hashes_: other columns")
        require(set(usual) == of_kind["number"] | of_kind["text"], "usual_: other columns")
        require(all(isinstance(usual[name], str) for name in levels), "usual_: not text")
        numbers = (usual[name] for name in of_kind["number"])
        require(not any(isinstance(value, str) for value in numbers), "usual_: not a number")
        different = all(len(set(each)) == len(each) > 0 for each in levels.values())
        require(different, "levels_: expected different texts")
        again = object.__new__(cls)
        again.__dict__.update(state)
        again._name_features()
        names = "_feature_names", "source_columns_", "sparse_"
        require(all(getattr(again, n) == state[n] for n in names), "_feature_names: others")

    def __init__(
        self, *, text: Sequence[str] = (), number: Sequence[str] = (), max_levels: int = 50
    ) -> None:
        self.text = text
        self.number = number
        self.max_levels = max_levels

    def fit(self, X: Any, y: object = None) -> TablePreparer:
        """Decide the kind of each column of a polars or pandas frame; `y` is not looked at."""
        return self._fit([_as_polars(X)], _fold, exact=True)

    def fit_batches(self, batches: Iterable[Any], fold: Fold = _fold) -> TablePreparer:
        r"""As `fit`, for a table that comes in polars frames and need not fit in memory.

        Kinds, blanks, constant columns and levels come out as in `fit`. Where there are more than
        32,768 different values in a column, their number is an estimate that is off by some 0.6 %,
        and levels are those of frequent values. Medians are those of up to 65,536 rows drawn at
        random (`riskad.tables.sketches`).

        Parameters
        ----------
        batches : iterable of polars frames
            Gone through twice, so no generator: a list, or
            `riskad.tables.reading.read_batches(path)`.
        fold : callable, optional
            Who works on the batches: fold(function, join, batches) gives function(batch, first_row)
            of all of them, joined in order, where first_row counts rows from 1 over all batches.

        Examples
        --------
        >>> import polars as pl
        >>> parts = [pl.DataFrame({"age": ["30", ""]}), pl.DataFrame({"age": ["20", "25"]})]
        >>> print(*TablePreparer().fit_batches(parts).describe(), sep="\n")
        1 number column: age
        age: 1 blank filled with the median 25
        """
        return self._fit(batches, fold, exact=False)

    def _fit(self, batches: Iterable[Any], fold: Fold, exact: bool) -> TablePreparer:
        named = frozenset([*self.text, *self.number])
        names, looks = fold(partial(_look, named=named), _join_looks, batches)
        self._check_parameters(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        self.kinds_: dict[str, str] = {}
        self.medians_: dict[str, float] = {}
        self.blanks_: dict[str, int] = {}
        self.levels_: dict[str, list[str]] = {}
        self.rare_: dict[str, int] = {}
        self.rare_hashes_: dict[str, list[int]] = {}
        self.dropped_: dict[str, str] = {}
        self.usual_: dict[str, Value] = {}
        wanted = {name: self._first_guess(name, look) for name, look in looks.items()}
        kinds = {name: kind for name, kind in wanted.items() if kind in ("number", "text")}
        if not kinds:
            self.dropped_ = wanted
            raise self._nothing_left()
        counting = partial(_tally, kinds=kinds, exact=exact)
        tallies, sample = fold(counting, _join_tallies, batches)
        self.n_rows_ = sample.n_rows
        for name, kind in wanted.items():
            if kind == "number":
                self._fit_number(name, tallies[name], sample.rows[name])
            elif kind == "text":
                self._fit_text(name, tallies[name], sample)
            else:
                self._drop(name, kind)
        if len(self.dropped_) == len(self.kinds_):
            raise self._nothing_left()
        self._name_features()
        return self

    def transform(self, X: Any, *, first_row: int = 1) -> Matrix:
        """Return the numeric matrix of a frame that has the columns `fit` used.

        A row of it depends on no other row, so that a table may come in parts; `first_row` is the
        number that messages give to the first row of a part.
        """
        frame = self.parse(X, first_row=first_row)
        news: list[NotAsInTraining] = []
        blocks = (self._transform_column(column, news) for column in frame)
        shape = (frame.height, len(self._feature_names))
        matrix = _join_sparse(blocks) if self.sparse_ else _join_dense(blocks, shape)
        if news:
            warnings.warn(NotAsInTraining.of_all(news), stacklevel=2)
        return matrix

    def parse(self, X: Any, *, first_row: int = 1) -> pl.DataFrame:
        """Return the columns that are used, read as what they are: numbers or text, null if blank.

        Reading is most of the work; a frame that was parsed once is transformed fast.
        """
        check_is_fitted(self, "kinds_")
        frame = self._pick_used(_as_polars(X))
        return pl.DataFrame(
            {
                c.name: _as_text(c) if c.name in self.levels_ else _as_numbers(c, first_row)
                for c in frame
            }
        )

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return readable names: 'income', 'income is blank', 'country=FR'."""
        check_is_fitted(self, "kinds_")
        return np.array(self._feature_names, dtype=object)

    def describe(self) -> list[str]:
        """Return what `fit` decided, in plain sentences."""
        check_is_fitted(self, "kinds_")
        sentences = list(self._describe_kinds())
        sentences += [self._describe_blanks(name) for name, n in self.blanks_.items() if n]
        for name, rare in self.rare_.items():
            sentences.append(f"{name}: {_count(rare, 'rare value')} grouped as '{OTHER}'")
        sentences += [f"dropped {name!r}: {reason}" for name, reason in self.dropped_.items()]
        return sentences

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    # --- fit, column by column -----------------------------------------------------------

    def _check_parameters(self, columns: Sequence[str]) -> None:
        for parameter in ("text", "number"):
            check_columns(getattr(self, parameter), columns)
        both = set(self.text) & set(self.number)
        if both:
            raise InputError(
                f"Columns {enumerate_names(sorted(both))} are asked for both as text and as "
                "numbers; choose one."
            )

    def _first_guess(self, name: str, look: _Look) -> str:
        """A column's kind by what it looks like, or the reason to drop it."""
        if look.blank:
            return "every row is blank"
        if look.unusable:
            return f"values of type {look.unusable} cannot be used"
        if name in self.number or (name not in self.text and look.numeric):
            return "number"
        if name not in self.text and look.temporal:
            return "dates and times are not used; add what matters: an age, a weekday"
        return "text"

    def _drop(self, name: str, reason: str) -> None:
        self.kinds_[name], self.dropped_[name] = "dropped", reason

    def _fit_number(self, name: str, tally: Numbers, sample: pl.Series) -> None:
        n_filled = tally.n_rows - tally.blanks
        constant = tally.low == tally.high
        if not n_filled:
            self._drop(name, "it holds no number")
        elif name not in self.number and _numbers_rows(tally, name):
            self._drop(name, f"it numbers the rows ({_count(n_filled, 'different value')})")
        elif constant and not tally.blanks:
            self._drop(name, f"every row holds {_show_number(tally.low)}")
        else:
            self.kinds_[name], self.blanks_[name] = "number", tally.blanks
            middle = sample.median()
            median = tally.low if middle is None else float(cast(float, middle))
            self.usual_[name] = None if 2 * tally.blanks > tally.n_rows else median
            if not constant:  # otherwise only its blanks say something
                self.medians_[name] = median

    def _fit_text(self, name: str, tally: Texts, sample: RowSample) -> None:
        n_filled, n_distinct = tally.n_rows - tally.blanks, tally.n_distinct
        if n_distinct == 1 and not tally.blanks:
            self._drop(name, f"every row holds {tally.counts['level'][0]!r}")
        elif n_distinct > n_filled / 2 and n_distinct > 2 and name not in self.text:
            hint = _number_hint(sample.rows[name], numbered=sample.complete)
            self._drop(name, _say_distinct(n_distinct, n_filled, tally.distinct is not None) + hint)
        else:
            self._fit_levels(name, tally)

    def _fit_levels(self, name: str, tally: Texts) -> None:
        counts = tally.levels(BLANK)
        enough = min(max(tally.n_rows // 200, 2), 10)
        common = counts.filter((pl.col("rows") >= enough) & (pl.col("level") != OTHER))
        levels = common["level"].head(self.max_levels).to_list()
        n_values = counts.height if tally.distinct is None else tally.n_distinct
        n_rare = n_values - len(levels)
        if not levels:
            self._drop(name, f"none of its values occurs in {enough} rows")
            return
        self.kinds_[name], self.usual_[name] = "text", counts["level"][0]
        self.levels_[name] = levels + [OTHER] * (n_rare > 0)
        if n_rare:
            self.rare_[name] = n_rare
        if 0 < n_rare <= _NEW_VALUES and tally.distinct is None:
            rare = counts.filter(~pl.col("level").is_in(levels))["level"]
            self.rare_hashes_[name] = sorted(_hash(text) for text in rare)

    def _nothing_left(self) -> InputError:
        reasons = [f"  {quoted(name)}: {why}" for name, why in self.dropped_.items()][:10]
        return InputError("No column is left to learn from:\n" + "\n".join(reasons))

    def _name_features(self) -> None:
        self._feature_names: list[str] = []
        self.source_columns_: list[str] = []
        for name, kind in self.kinds_.items():
            names = self._names_of(name) if kind != "dropped" else []
            self._feature_names += names
            self.source_columns_ += [name] * len(names)
        n_used = len(self.kinds_) - len(self.dropped_)
        # A text column fills one of its yes/no columns in each row.
        self.sparse_ = n_used < len(self._feature_names) / 4

    def _names_of(self, name: str) -> list[str]:
        if name in self.levels_:
            return [f"{name}={level}" for level in self.levels_[name]]
        return [name] * (name in self.medians_) + [f"{name} is blank"] * bool(self.blanks_[name])

    # --- transform, column by column -----------------------------------------------------

    def _pick_used(self, frame: pl.DataFrame) -> pl.DataFrame:
        used = [name for name, kind in self.kinds_.items() if kind != "dropped"]
        if set(used) <= set(frame.columns):
            return frame.select(used)
        others = [name for name in frame.columns if name not in self.kinds_]
        lines = describe_column_difference(used, frame.columns).splitlines()
        missing = "\n".join(line for line in lines if not line.startswith("+"))
        besides = f"\nIt has besides: {enumerate_names(others, 20)}." if others else ""
        raise InputError(
            f"The table lacks columns that the model was fitted on:\n{missing}{besides}"
        )

    def _transform_column(self, column: pl.Series, news: list[NotAsInTraining]) -> Matrix:
        if column.name in self.levels_:
            return self._text_block(column, news)
        if column.null_count() and not self.blanks_[column.name]:
            news.append(NotAsInTraining(blanks={column.name: column.null_count()}))
        return self._number_block(column)

    def _number_block(self, values: pl.Series) -> NDArray[np.float64]:
        block = []
        if values.name in self.medians_:
            block.append(values.fill_null(self.medians_[values.name]).to_numpy())
        if self.blanks_[values.name]:
            block.append(values.is_null().cast(pl.Float64).to_numpy())
        return np.column_stack(block)

    def _text_block(self, column: pl.Series, news: list[NotAsInTraining]) -> sparse.csr_matrix:
        """Return yes/no columns; a row whose level was never seen is noted.

        It has a yes for "(other)", where there is one, or none.
        """
        levels = self.levels_[column.name]
        texts = column.fill_null(BLANK) if column.null_count() else column
        codes = texts.cast(pl.Enum(levels), strict=False).to_physical().cast(pl.Int32)
        if codes.null_count():
            new = self._without_rare(texts.filter(codes.is_null()))
            if len(new):
                values = {column.name: set(new.unique().sort().head(_NEW_VALUES))}
                news.append(NotAsInTraining(rows={column.name: len(new)}, values=values))
            codes = codes.fill_null(levels.index(OTHER) if OTHER in levels else -1)
        return _one_hot(codes.to_numpy(), len(levels))

    def _without_rare(self, texts: pl.Series) -> pl.Series:
        """Of texts that have no level, those that `fit` has not seen, as far as that is known."""
        if OTHER not in self.levels_[texts.name] or not len(texts):
            return texts
        seen = self.rare_hashes_.get(texts.name)
        if seen is None:
            return texts.clear()
        known = [text for text in texts.unique() if _hash(text) in set(seen)]
        return texts.filter(~texts.is_in(known))

    # --- the account ---------------------------------------------------------------------

    def _describe_kinds(self) -> Iterable[str]:
        numbers = [name for name, kind in self.kinds_.items() if kind == "number"]
        if numbers:
            yield f"{_count(len(numbers), 'number column')}: {_list_names(numbers)}"
        if self.levels_:
            sizes = {name: len(levels) for name, levels in self.levels_.items()}
            listed = _list_names([f"{name} ({size})" for name, size in sizes.items()])
            became = _count(sum(sizes.values()), "yes/no column")
            yield f"{_count(len(sizes), 'text column')} became {became}: {listed}"

    def _describe_blanks(self, name: str) -> str:
        blanks = _count(self.blanks_[name], "blank")
        if name not in self.medians_:
            return f"{name}: {blanks}, else one value; only what is blank is used"
        return f"{name}: {blanks} filled with the median {_show_number(self.medians_[name])}"


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
    words = {column.name: _yes_no(column) for column in _as_polars(frame)}
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


# --- frames of other libraries -----------------------------------------------------------


def _as_polars(X: Any) -> pl.DataFrame:
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


# --- what a pass tells -------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """What the values of a column look like: all of them, but for `numbers` and `unusable`."""

    blank: bool
    like_numbers: bool
    numbers: bool
    temporal: bool
    unusable: str

    @classmethod
    def of(cls, column: pl.Series, briefly: bool = False) -> _Look:
        kind = column.dtype
        if _is_blank(column):
            return cls(True, True, False, True, "")
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            return cls(False, False, False, False, str(kind))
        if briefly:
            return cls(False, False, False, False, "")
        values, bad = _parse_numbers(column)
        numbers = values.null_count() < len(values)
        like_numbers = not bad.any()
        if like_numbers and kind == pl.String:  # none is a code like '007'
            like_numbers = not column.str.contains(_LEADING_ZERO).any()
        temporal = not (like_numbers and numbers) and _is_temporal(column)
        return cls(False, like_numbers, numbers, temporal, "")

    @property
    def numeric(self) -> bool:
        """Whether every value is a number, and at least one is."""
        return self.like_numbers and self.numbers

    def joined(self, other: _Look) -> _Look:
        return _Look(
            self.blank and other.blank,
            self.like_numbers and other.like_numbers,
            self.numbers or other.numbers,
            self.temporal and other.temporal,
            self.unusable or other.unusable,
        )


Looks: TypeAlias = tuple[list[str], dict[str, _Look]]
Tallies: TypeAlias = tuple[dict[str, Any], RowSample]


def _look(frame: pl.DataFrame, first_row: int, *, named: Collection[str] = ()) -> Looks:
    """Look at all columns, at those whose kind was given only for whether they can be used."""
    return frame.columns, {c.name: _Look.of(c, briefly=c.name in named) for c in frame}


def _join_looks(first: Looks, second: Looks) -> Looks:
    names, looks = first
    if set(names) != set(second[0]):
        raise InputError(
            "The parts of the table have different columns:\n"
            + describe_column_difference(names, second[0])
        )
    return names, {name: look.joined(second[1][name]) for name, look in looks.items()}


def _tally(frame: pl.DataFrame, first_row: int, *, kinds: dict[str, str], exact: bool) -> Tallies:
    """Count what is in the columns, read as what they are."""
    parsed = pl.DataFrame(
        {
            name: _as_text(frame[name]) if kind == "text" else _as_numbers(frame[name], first_row)
            for name, kind in kinds.items()
        },
        height=frame.height,
    )
    most = None if exact else _MOST_VALUES
    tallies = {
        column.name: (Texts if kinds[column.name] == "text" else Numbers).of(column, most)
        for column in parsed
    }
    few = min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, _MOST_CELLS // max(1, parsed.width)))
    return tallies, RowSample.of(parsed, first_row, None if exact else few)


def _join_tallies(first: Tallies, second: Tallies) -> Tallies:
    tallies = {name: tally.joined(second[0][name]) for name, tally in first[0].items()}
    return tallies, first[1].joined(second[1])


# --- reading values ----------------------------------------------------------------------


def _is_blank(column: pl.Series) -> bool:
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


def _as_text(column: pl.Series) -> pl.Series:
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


def _parse_numbers(column: pl.Series) -> tuple[pl.Series, pl.Series]:
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


def _is_temporal(column: pl.Series) -> bool:
    """Whether a column holds dates or times, by its type or, all of them, by their look."""
    if column.dtype != pl.String:
        return column.dtype.is_temporal()
    filled = _strip(column).drop_nulls()
    return bool(filled.head(100).str.contains(_DATE).all() and filled.str.contains(_DATE).all())


def _as_numbers(column: pl.Series, first_row: int = 1) -> pl.Series:
    """Return the numbers of a column, or say which row does not hold one to compute with."""
    _check_flat(column)
    values, bad = _parse_numbers(column)
    sizes = np.abs(values.to_numpy())  # NaN where there is none
    faults = (
        (bad.to_numpy(), "is not a number", "Correct it or leave it blank."),
        (np.isinf(sizes), "is infinite", "Correct it or leave it blank."),
        (
            sizes > _LARGEST,
            f"is beyond {_LARGEST:g}, too large to compute with",
            "Correct it, leave it blank, or give the column in larger units.",
        ),
    )
    for wrong, what, remedy in faults:
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"Column {column.name!r} holds numbers, but {quoted(column[row])} in row "
                f"{first_row + row:,} {what} (at least {_count(int(wrong.sum()), 'such row')}). "
                f"{remedy}"
            )
    tiny = (sizes < _SMALLEST) & (sizes > 0)
    return values.set(pl.Series(tiny), 0.0) if tiny.any() else values


def _numbers_rows(tally: Numbers, name: str) -> bool:
    """Whether a column only counts or identifies rows: whole numbers, all different."""
    if tally.distinct is None or tally.n_rows < 3:
        return False
    consecutive = tally.high - tally.low + 1 == tally.n_rows >= _COUNTER_ROWS
    return consecutive or bool(_IDENTIFIER_NAME.search(name))


def _number_hint(texts: pl.Series, numbered: bool) -> str:
    """Say what keeps a column from being one of numbers, where little does."""
    values, bad = _parse_numbers(texts)
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


def _hash(text: str) -> int:
    """A number by which to know a text again that a model should not hold itself."""
    return zlib.crc32(text.encode())


# --- building blocks ---------------------------------------------------------------------


def _one_hot(codes: NDArray[np.int32], n_levels: int) -> sparse.csr_matrix:
    known = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(known)])
    ones = np.ones(indptr[-1])
    return sparse.csr_matrix((ones, codes[known], indptr), shape=(len(codes), n_levels))


def _join_sparse(blocks: Iterable[Matrix]) -> sparse.csr_matrix:
    return sparse.hstack(list(blocks), format="csr", dtype=np.float64)


def _join_dense(blocks: Iterable[Matrix], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Fill the matrix block by block, so that no second copy of it is ever held."""
    matrix = np.empty(shape)
    start = 0
    for block in blocks:
        end = start + block.shape[1]
        matrix[:, start:end] = block.toarray() if sparse.issparse(block) else block
        start = end
    return matrix


# --- words -------------------------------------------------------------------------------


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _say_distinct(n_distinct: int, n_rows: int, about: bool) -> str:
    if about:
        return f"about {float(f'{n_distinct:.2g}'):,.0f} different values in {n_rows:,} rows"
    return f"{n_distinct:,} different values in {n_rows:,} rows"


def _show_number(value: float) -> str:
    return f"{value:,.6g}"


def _list_names(names: Sequence[str], limit: int = 8) -> str:
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
