"""From the results of both passes over a table to the kind and preparation of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import polars as pl

from riskad.tables.formats.numbers import NumberLook
from riskad.tables.kinds import GivenKind, Look, numbers_rows
from riskad.tables.prepared.base import PreparedColumn
from riskad.tables.prepared.categories import MANY_LEVELS, CategoryColumn, enough_rows
from riskad.tables.prepared.left_out import LeftOut
from riskad.tables.prepared.moments import MomentColumn
from riskad.tables.prepared.numbers import FlagColumn, NumberColumn
from riskad.tables.prepared.presence import PresenceColumn
from riskad.tables.prepared.texts import TextColumn
from riskad.tables.readers import Reader
from riskad.tables.sketches import RowSample
from riskad.tables.words import say_count, say_distinct, show_number

__all__ = ["Told", "learn_column", "left_out_unread"]

# Texts of which hardly two are alike name the rows if they are codes, with digits or in one word;
# words may carry information. If many repeat, only sentences are text.
_WORDS_OF_TEXT, _WORDS_OF_ITEMS, _WORDS_OF_SENTENCES = 1.5, 3.0, 5.0
_LETTERS = r"\p{L}"
_BRACKETS = r"^[\[{(].*[\])}]$"
_SEPARATORS = (";", "|", ",")
_MOSTLY, _OFTEN = 0.9, 0.1
_LONG_LIST = 3.0  # items on average
_LOOKED_AT = 10_000
_FEWEST_TEXTS, _FEWEST_LISTS = 20, 8  # different ones, to learn what they have in common


@dataclass(frozen=True)
class Told:
    """What is known of a column after both passes.

    Parameters
    ----------
    name
        Its name.
    look, reader
        Result of the first pass, and how the column is read.
    sketch, sample
        What the second pass counted in all rows, and some of them.
    given
        The kind given by the user.
    """

    name: str
    look: Look
    reader: Reader
    sketch: Any
    sample: RowSample
    given: GivenKind | None

    @property
    def values(self) -> pl.Series:
        """Some of its values."""
        return self.sample.rows[self.name]


def left_out_unread(name: str, look: Look, group: str | None) -> LeftOut | None:
    """Return the column if a look is enough to leave it out."""
    if name == group:
        return LeftOut(name, "group", why="rows are compared within it")
    if look.blank:
        return LeftOut(name, "constant", why="every row is blank")
    if look.unusable:
        return LeftOut(name, "unusable", why=f"values of type {look.unusable} cannot be used")
    return None


def learn_column(told: Told, max_levels: int) -> PreparedColumn:
    """Return the prepared column.

    Parameters
    ----------
    told
        What is known about it.
    max_levels
        Maximum number of yes/no columns of a category.

    Returns
    -------
    PreparedColumn
        The column.
    """
    name, sketch, word = told.name, told.sketch, told.reader.word
    if word == "text":
        return _learn_text(told, max_levels)
    n_filled = sketch.n_rows - sketch.blanks
    if not n_filled:
        return LeftOut(name, "constant", why=f"it holds no {word}")
    if word == "number" and told.given is None and numbers_rows(sketch, name):
        why = f"it numbers the rows ({say_count(n_filled - sketch.repeats, 'different value')})"
        return LeftOut(name, "identifier", why=why)
    if sketch.low == sketch.high and not sketch.blanks:
        return LeftOut(name, "constant", why=f"every row holds {_shown(told)}")
    made: Any = {"number": NumberColumn, "flag": FlagColumn, "moment": MomentColumn}[word]
    column: PreparedColumn = made.learn(
        name, told.reader, sketch, told.values, _remarks(told.look, word)
    )
    if isinstance(column, MomentColumn) and not column.names():
        return LeftOut(name, column.kind, why="none of its parts differs between rows")
    return column


def _shown(told: Told) -> str:
    known = told.values.drop_nulls()
    if known.dtype.is_numeric() or not len(known):
        return show_number(told.sketch.low)
    return str(known[0])


def _remarks(look: Look, word: str) -> list[str]:
    found = {"number": look.number, "flag": look.flag, "moment": look.moment}[word]
    if found is None:
        return []
    said = list(found.remarks())
    if found.n_bad and found.first_bad is not None:
        row, cell = found.first_bad
        cells = say_count(found.n_bad, "cell")
        said.append(f"{cells} not so written count as blank, {cell!r} in row {row:,} first")
    return said


def _learn_text(told: Told, max_levels: int) -> PreparedColumn:
    name, sketch, values = told.name, told.sketch, told.values
    n_filled, n_distinct = sketch.n_rows - sketch.blanks, sketch.n_distinct
    if n_distinct == 1 and not sketch.blanks:
        return LeftOut(name, "constant", why=f"every row holds {sketch.counts['level'][0]!r}")
    hint = _number_hint(told.look.number)
    if told.given is not None:
        kind, enough = told.given.kind, 2
    else:
        number = told.look.number
        measured = number is not None and 2 * number.n_measured > n_filled  # 38,0 kg is no list
        kind = _kind_of_text(values, n_distinct, n_filled, may_be_lists=not measured)
        enough = _FEWEST_LISTS if kind == "list" else _FEWEST_TEXTS
    if kind in ("text", "list") and n_distinct >= enough:
        return TextColumn.learn(name, kind, sketch, values, hint)
    if kind == "identifier":
        about = say_distinct(n_distinct, n_filled, sketch.distinct is not None)
        if min(sketch.blanks, n_filled) >= enough_rows(sketch.n_rows) and sketch.blanks:
            return PresenceColumn(name, kind, hint, why=about, blanks=sketch.blanks)
        return LeftOut(name, kind, hint, why=about)
    column = CategoryColumn.learn(name, sketch, max_levels, hint)
    if column is None:
        enough = enough_rows(sketch.n_rows)
        return LeftOut(name, "identifier", hint, why=f"none of its values occurs in {enough} rows")
    return column


def _kind_of_text(texts: pl.Series, n_distinct: int, n_filled: int, may_be_lists: bool) -> str:
    """The kind of texts: a category, lists, informative words, or names of the rows."""
    known = texts.drop_nulls().head(_LOOKED_AT)
    different = n_distinct > n_filled / 2 and n_distinct > 2
    if not len(known):
        return "category"
    if may_be_lists and _are_lists(known):
        return "list"
    words = _mean(known.str.count_matches(r"\S+"))
    letters = _mean(known.str.count_matches(_LETTERS)) / _mean(known.str.len_chars())
    if different and words >= _WORDS_OF_TEXT and letters > 0.5:
        return "text"
    if n_distinct > MANY_LEVELS and words >= _WORDS_OF_SENTENCES and letters > 0.5:
        return "text"
    return "identifier" if different else "category"


def _mean(values: pl.Series) -> float:
    return float(cast(float, values.mean()))


def _are_lists(texts: pl.Series) -> bool:
    """Whether texts are lists: in brackets, or with few items of varying number."""
    if _mean(texts.str.contains(_BRACKETS).cast(pl.Float64)) >= _MOSTLY:
        return True
    for separator in _SEPARATORS:
        several = texts.str.contains(separator, literal=True)
        if _mean(several.cast(pl.Float64)) < _OFTEN:
            continue
        split = texts.str.split(separator)
        items = split.explode().str.strip_chars()
        short = _mean(items.str.count_matches(r"\S+")) < _WORDS_OF_ITEMS
        sizes = split.list.len()
        uneven = _mean((sizes != sizes.mode()[0]).cast(pl.Float64)) >= _OFTEN
        few = items.n_unique() <= texts.n_unique()
        few = few or (_mean(sizes) >= _LONG_LIST and 2 * items.n_unique() <= len(items))
        if short and uneven and few:
            return True
    return False


def _number_hint(look: NumberLook | None) -> list[str]:
    """Say what prevents a column from being one of numbers, if it is little."""
    if look is None or look.first_bad is None or not 0 < look.n_bad < look.n_good:
        return []
    row, cell = look.first_bad
    return [f"most are numbers, but not {cell!r} in row {row:,}: leave such blank to have it so"]
