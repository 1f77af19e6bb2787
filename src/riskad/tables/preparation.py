"""From a table as people keep it to a matrix of numbers, and a plain account of how.

The account matters as much as the matrix: a column that was silently dropped, or a code that
was taken for a number, is a mistake nobody finds later.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import (
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
from riskad.tables.cells import BLANK, LARGEST, Value, as_numbers, as_text, number_hint
from riskad.tables.columns import check_columns
from riskad.tables.differences import MOST_NEW_VALUES, NotAsInTraining
from riskad.tables.frames import as_polars
from riskad.tables.kinds import (
    Fold,
    Look,
    ReadOnce,
    count_cells,
    fold_batches,
    join_counts,
    join_looks,
    look_at,
    numbers_rows,
)
from riskad.tables.matrices import Matrix, join_dense, join_sparse, one_hot
from riskad.tables.sketches import Numbers, RowSample, Texts
from riskad.tables.words import list_names, say_count, say_distinct, show_number

__all__ = ["OTHER", "TablePreparer"]

_KINDS = ("number", "text", "dropped")
OTHER = "(other)"


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
        "medians_": DictOf(TEXT, Number(-LARGEST, LARGEST)),
        "blanks_": DictOf(TEXT, COUNT),
        "levels_": DictOf(TEXT, ListOf(TEXT)),
        "rare_": DictOf(TEXT, COUNT),
        "rare_hashes_": DictOf(TEXT, ListOf(COUNT)),
        "dropped_": DictOf(TEXT, TEXT),
        "usual_": DictOf(TEXT, Maybe(Either(Number(-LARGEST, LARGEST), TEXT))),
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
        self._fit([ReadOnce(as_polars(X))], fold_batches, exact=True)
        return self

    def fit_parse(self, X: Any) -> pl.DataFrame:
        """Fit, and return what `parse` would; each cell is read once.

        Parameters
        ----------
        X
            A polars or pandas frame.

        Returns
        -------
        polars.DataFrame
            The columns that are used, read as what they are.
        """
        rows = self._fit([ReadOnce(as_polars(X))], fold_batches, exact=True)
        return rows.select(self.used_columns)

    def fit_batches(self, batches: Iterable[Any], fold: Fold = fold_batches) -> TablePreparer:
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
        self._fit(batches, fold, exact=False)
        return self

    @property
    def used_columns(self) -> list[str]:
        """The columns of the table that numbers are made of."""
        return [name for name, kind in self.kinds_.items() if kind != "dropped"]

    def _begin(self, names: Sequence[str]) -> None:
        """Forget an earlier fit."""
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

    def _fit(self, batches: Iterable[Any], fold: Fold, exact: bool) -> pl.DataFrame:
        """Decide all kinds; gives the rows, or a sample of them, read as what they are."""
        named = frozenset([*self.text, *self.number])
        names, looks = fold(partial(look_at, named=named), join_looks, batches)
        self._check_parameters(names)
        self._begin(names)
        wanted = {name: self._first_guess(name, look) for name, look in looks.items()}
        kinds = {name: kind for name, kind in wanted.items() if kind in ("number", "text")}
        if not kinds:
            self.dropped_ = wanted
            raise self._nothing_left()
        counting = partial(count_cells, kinds=kinds, exact=exact)
        sketches, sample = fold(counting, join_counts, batches)
        self.n_rows_ = sample.n_rows
        for name, kind in wanted.items():
            if kind == "number":
                self._fit_number(name, sketches[name], sample.rows[name])
            elif kind == "text":
                self._fit_text(name, sketches[name], sample)
            else:
                self._drop(name, kind)
        if len(self.dropped_) == len(self.kinds_):
            raise self._nothing_left()
        self._name_features()
        return sample.rows

    def transform(self, X: Any, *, first_row: int = 1) -> Matrix:
        """Return the numeric matrix of a frame that has the columns `fit` used.

        A row of it depends on no other row, so that a table may come in parts; `first_row` is the
        number that messages give to the first row of a part.
        """
        return self.matrix(self.parse(X, first_row=first_row))

    def matrix(self, parsed: pl.DataFrame) -> Matrix:
        """Return the numeric matrix of rows that `parse` or `fit_parse` gave."""
        news: list[NotAsInTraining] = []
        blocks = (self._transform_column(column, news) for column in parsed)
        shape = (parsed.height, len(self._feature_names))
        matrix = join_sparse(blocks) if self.sparse_ else join_dense(blocks, shape)
        if news:
            warnings.warn(NotAsInTraining.of_all(news), stacklevel=2)
        return matrix

    def parse(self, X: Any, *, first_row: int = 1) -> pl.DataFrame:
        """Return the columns that are used, read as what they are: numbers or text, null if blank.

        Reading is most of the work; a frame that was parsed once is transformed fast.
        """
        check_is_fitted(self, "kinds_")
        frame = self._pick_used(as_polars(X))
        return pl.DataFrame(
            {
                c.name: as_text(c) if c.name in self.levels_ else as_numbers(c, first_row)
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
            sentences.append(f"{name}: {say_count(rare, 'rare value')} grouped as '{OTHER}'")
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

    def _first_guess(self, name: str, look: Look) -> str:
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

    def _fit_number(self, name: str, sketch: Numbers, sample: pl.Series) -> None:
        n_filled = sketch.n_rows - sketch.blanks
        constant = sketch.low == sketch.high
        if not n_filled:
            self._drop(name, "it holds no number")
        elif name not in self.number and numbers_rows(sketch, name):
            self._drop(name, f"it numbers the rows ({say_count(n_filled, 'different value')})")
        elif constant and not sketch.blanks:
            self._drop(name, f"every row holds {show_number(sketch.low)}")
        else:
            self.kinds_[name], self.blanks_[name] = "number", sketch.blanks
            middle = sample.median()
            median = sketch.low if middle is None else float(cast(float, middle))
            self.usual_[name] = None if 2 * sketch.blanks > sketch.n_rows else median
            if not constant:  # otherwise only its blanks say something
                self.medians_[name] = median

    def _fit_text(self, name: str, sketch: Texts, sample: RowSample) -> None:
        n_filled, n_distinct = sketch.n_rows - sketch.blanks, sketch.n_distinct
        if n_distinct == 1 and not sketch.blanks:
            self._drop(name, f"every row holds {sketch.counts['level'][0]!r}")
        elif n_distinct > n_filled / 2 and n_distinct > 2 and name not in self.text:
            hint = number_hint(sample.rows[name], numbered=sample.complete)
            self._drop(name, say_distinct(n_distinct, n_filled, sketch.distinct is not None) + hint)
        else:
            self._fit_levels(name, sketch)

    def _fit_levels(self, name: str, sketch: Texts) -> None:
        counts = sketch.levels(BLANK)
        enough = min(max(sketch.n_rows // 200, 2), 10)
        common = counts.filter((pl.col("rows") >= enough) & (pl.col("level") != OTHER))
        levels = common["level"].head(self.max_levels).to_list()
        n_values = counts.height if sketch.distinct is None else sketch.n_distinct
        n_rare = n_values - len(levels)
        if not levels:
            self._drop(name, f"none of its values occurs in {enough} rows")
            return
        self.kinds_[name], self.usual_[name] = "text", counts["level"][0]
        self.levels_[name] = levels + [OTHER] * (n_rare > 0)
        if n_rare:
            self.rare_[name] = n_rare
        if 0 < n_rare <= MOST_NEW_VALUES and sketch.distinct is None:
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
        used = self.used_columns
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
                values = {column.name: set(new.unique().sort().head(MOST_NEW_VALUES))}
                news.append(NotAsInTraining(rows={column.name: len(new)}, values=values))
            codes = codes.fill_null(levels.index(OTHER) if OTHER in levels else -1)
        return one_hot(codes.to_numpy(), len(levels))

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
            yield f"{say_count(len(numbers), 'number column')}: {list_names(numbers)}"
        if self.levels_:
            sizes = {name: len(levels) for name, levels in self.levels_.items()}
            listed = list_names([f"{name} ({size})" for name, size in sizes.items()])
            became = say_count(sum(sizes.values()), "yes/no column")
            yield f"{say_count(len(sizes), 'text column')} became {became}: {listed}"

    def _describe_blanks(self, name: str) -> str:
        blanks = say_count(self.blanks_[name], "blank")
        if name not in self.medians_:
            return f"{name}: {blanks}, else one value; only what is blank is used"
        return f"{name}: {blanks} filled with the median {show_number(self.medians_[name])}"


def _hash(text: str) -> int:
    """A number by which to know a text again that a model should not hold itself."""
    return zlib.crc32(text.encode())
