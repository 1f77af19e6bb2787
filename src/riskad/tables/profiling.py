"""One pass over the rows of a table: how each column is read, and what it holds.

Some rows show in which format a column is probably written. In the pass over all rows the cells are
read by that format and counted at once. Only columns with a cell that does not fit are looked at in
full, and read again. Results for parts of a table can be joined, so parts may be anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import polars as pl

from riskad.core.checks import InputError, check_choice, describe_column_difference, quoted
from riskad.tables.cells import Reader, categories_as_texts, is_blank, is_flat
from riskad.tables.formats.flags import FlagLook
from riskad.tables.formats.moments import MOMENT_KINDS, MomentFormat, MomentLook, to_seconds
from riskad.tables.formats.numbers import NumberFormat, NumberLook
from riskad.tables.kinds.base import KINDS, Column, ColumnProfile, LeftOut
from riskad.tables.notes import show_number
from riskad.tables.sketches import Numbers, RowSample, Texts, blocks

_GLANCE = 1_000  # cells that show whether a column may have a kind at all
_MANY = 20_000  # rows from which some show the format that all are read in
_DECIMAL = r"^-?[0-9]*\.[0-9]+$"
_CODE = r"^\s*0[0-9]+\s*$"
# Cells that do not fit are slips, counted as blank and reported, if so few among so many.
_SLIPS = 0.01  # more tolerance would read a column of another kind with many blanks
_FEWEST_BESIDE_SLIPS = 50
# Limits for a table that comes in parts: distinct values of a column, random rows for medians, and
# cells of these.
_MOST_VALUES = 1 << 15
_MOST_SAMPLED = 1 << 16
_FEWEST_SAMPLED = 1 << 12
_MOST_CELLS = 1 << 23  # 64 MB

T = TypeVar("T")
R = TypeVar("R")
Fold: TypeAlias = Callable[
    [Callable[[Any, int], Any], Callable[[Any, Any], Any], Iterable[Any]], Any
]
"""fold(work, join, batches): work(batch, first_row) of all batches, joined in order."""


def fold_batches(
    work: Callable[[Any, int], T], join: Callable[[T, T], T], batches: Iterable[Any]
) -> T:
    """Return the joined results of batches, in order; batches without rows are skipped."""
    total, first_row = None, 1
    for batch in batches:
        if n_rows := batch.height:  # taken here: the work may take the columns out of the batch
            result = work(batch, first_row)
            total = result if total is None else join(total, result)
            first_row += n_rows
    if total is None:
        raise InputError("The table has no rows; nothing to do.")
    return total


def first_rows(batches: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the first batches, with 1,000 rows or more if there are so many."""
    some: list[pl.DataFrame] = []
    for batch in batches:
        if batch.height:
            _check_same_columns(some[0].columns if some else batch.columns, batch.columns)
            some.append(batch.select(some[0].columns) if some else batch)
        if sum(each.height for each in some) >= _GLANCE:
            break
    if not some:
        raise InputError("The table has no rows; nothing to do.")
    return pl.concat(some, how="vertical_relaxed")


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply a function to each column, or block of rows; polars lets threads work in parallel."""
    pl.Series(np.empty(0))  # polars imports NumPy when it first meets it, which two threads may not
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


_HASHED = "image", 64  # the SHA-256 of a network, which a fit writes here


@dataclass(frozen=True)
class KindRequest:
    """A kind that the user asks for: `date:%d.%m.%Y` is a kind and a format."""

    kind: str
    written: str = ""

    @classmethod
    def parse(cls, column: str, text: str) -> KindRequest:
        """Return the kind of a column and how it is written, if both are valid."""
        kind, _, written = text.partition(":")
        check_choice(f"The kind of column {quoted(column)}", kind, tuple(KINDS))
        if written and KINDS[kind].forms:
            check_choice(f"The form of column {quoted(column)}", written, KINDS[kind].forms)
        elif written and kind not in (*MOMENT_KINDS, "number") and (kind, len(written)) != _HASHED:
            raise InputError(
                f"Column {quoted(column)}: only numbers, dates, times and texts are read in "
                f"several ways; for {kind} give the word alone, without {written!r}."
            )
        return cls(kind, written)

    @property
    def word(self) -> str:
        """What cells are read as: texts are those of categories and of kinds from outside."""
        if self.kind in ("number", "flag"):
            return self.kind
        return "moment" if self.kind in MOMENT_KINDS else "text"

    def reader(self, column: str, look: Look) -> Reader:
        """Return how to read the column: as asked for, otherwise as it looks."""
        cells = look.cells.get(self.word)
        if self.word == "text":
            return Reader()
        if self.word == "moment" and self.written:
            return Reader(MomentFormat.from_pattern(self.written, self.kind))
        if cells is not None and self.written:
            cells = replace(cells, example=NumberFormat.from_example(self.written))
        form = None if cells is None else cells.format()
        if form is not None or self.kind == "number":
            return Reader(form or NumberFormat())
        if self.kind == "flag":
            problem = (
                "yes and no, but holds values other than two such words. Say 'category' instead."
            )
        else:
            problem = (
                f"a {self.kind}, but is written in none of the usual ways. Say how: "
                f"{self.kind}:%d.%m.%Y for 27.03.2025, for instance."
            )
        raise InputError(f"Column {quoted(column)} is to be read as {problem}")


# As which values cells are looked at; a column is read as the first that fits.
_LOOKS: dict[str, Any] = {"moment": MomentLook, "flag": FlagLook, "number": NumberLook}


@dataclass(frozen=True)
class Look:
    """Which formats the cells of a column may have: looks by word, without those excluded."""

    blank: bool = False
    unusable: str = ""
    cells: Mapping[str, Any] = field(default_factory=dict)
    is_numeric: bool = False  # the table holds numbers, not texts that may spell numbers

    @classmethod
    def of(cls, column: pl.Series, first_row: int, request: KindRequest | None = None) -> Look:
        """Look at all cells of a column, or of a part of it."""
        if is_blank(column):
            return cls(blank=True)
        if not is_flat(column):
            return cls(unusable=str(column.dtype))
        column = categories_as_texts(column)
        # Each look costs a pass, so those that some of the cells rule out are not taken.
        is_text, words = column.dtype == pl.String, list(_LOOKS)
        if request is not None:
            words = [word for word in words if word == request.word]
        elif is_text and 2 * column.str.contains(_DECIMAL).sum() > len(column):
            return cls(cells={"number": NumberLook.of(column, first_row)})
        elif is_text and len(column) > _GLANCE:
            some = column.head(_GLANCE)
            words = [w for w in words if _LOOKS[w].of(some, first_row).n_bad <= _GLANCE // 2]
        cells = {word: _LOOKS[word].of(column, first_row) for word in words}
        return cls(cells=cells, is_numeric=column.dtype.is_numeric())

    def joined(self, other: Look) -> Look:
        """Return the look at both parts; a blank part changes nothing."""
        if self.blank or other.blank:
            return self if other.blank else other
        words = [word for word in self.cells if word in other.cells]
        return Look(
            unusable=self.unusable or other.unusable,
            cells={word: self.cells[word].joined(other.cells[word]) for word in words},
            is_numeric=self.is_numeric and other.is_numeric,
        )

    def reader(self) -> Reader:
        """Return how the column is read: all cells fit, except for a few slips among many."""
        for look in self.cells.values():
            few = look.n_bad <= _SLIPS * look.n_good and look.n_good >= _FEWEST_BESIDE_SLIPS
            fits = look.n_good > 0 and (look.n_bad == 0 or few)
            if fits and not getattr(look, "first_code", None) and (form := look.format()):
                return Reader(form, tolerant=look.n_bad > 0)
        return Reader(NumberFormat() if self.is_numeric else None)


@dataclass(frozen=True)
class _Counts:
    """What a part of a table holds: sketches and typed values of the columns that were read.

    A column has a look if it was looked at: in each part, or in some of them only (`undecided`),
    where a cell did not fit.
    """

    names: list[str]
    sketches: dict[str, Numbers | Texts]
    looks: dict[str, Look]
    undecided: frozenset[str]
    sample: RowSample

    def joined(self, other: _Counts) -> _Counts:
        _check_same_columns(self.names, other.names)
        read = [name for name in self.sketches if name in other.sketches]
        looks = {n: self.looks[n].joined(other.looks[n]) for n in self.looks if n in other.looks}
        samples = (replace(c.sample, rows=c.sample.rows.select(read)) for c in (self, other))
        return _Counts(
            self.names,
            {name: self.sketches[name].joined(cast(Any, other.sketches[name])) for name in read},
            looks,
            self.undecided | other.undecided | (self.looks.keys() ^ other.looks.keys()),
            RowSample.joined(*samples),
        )


def _check_same_columns(names: list[str], others: list[str]) -> None:
    if set(names) != set(others):
        raise InputError(
            "The parts of the table have different columns:\n"
            + describe_column_difference(names, others)
        )


def _count(
    frame: pl.DataFrame,
    first_row: int,
    *,
    readers: Mapping[str, Reader],
    requests: Mapping[str, KindRequest],
    decided: bool,
    exact: bool,
    of_rows: int,
) -> _Counts:
    """Read and count columns; unless it is `decided` how, look at those with cells that do not fit.

    Texts fit anything, so columns that are expected to be text are looked at, too. If `exact`, the
    frame loses the columns that will not be read again, each as soon as it was read.
    """
    names, width, height = frame.columns, frame.width, frame.height

    def count(column: pl.Series) -> tuple[pl.Series | None, Any, Look | None, pl.Series | None]:
        name, reader, look = column.name, readers[column.name], None
        values = reader.read(column, first_row, quiet=True) if decided else None
        if not decided and name not in requests:
            values = _read_exactly(column, reader, first_row)
        if values is None:
            look = Look.of(column, first_row, requests.get(name))
            # Most of these stay texts: they are read now, to spare another pass.
            if reader.format is None and not look.unusable:
                values = reader.read(column, first_row)
        sketch = None if values is None else _sketch(values, None if exact else _MOST_VALUES)
        return values, sketch, look, None if look is None else column

    # A raw column leaves memory when its typed values are there: never two whole tables at once.
    take = frame.drop_in_place if exact else frame.get_column
    counted = dict(zip(readers, in_threads(count, map(take, readers)), strict=True))
    typed = {name: values for name, (values, *_) in counted.items() if values is not None}
    if exact:
        frame.hstack([raw for *_, raw in counted.values() if raw is not None], in_place=True)
    # Where no column was read, the sample still counts the rows.
    sampled = pl.DataFrame(typed or {"": pl.repeat(None, height, eager=True)})
    # Wide tables keep fewer rows, for the same memory, but enough for a median.
    few = min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, _MOST_CELLS // width))
    return _Counts(
        names,
        {name: sketch for name, (_, sketch, _, _) in counted.items() if sketch is not None},
        {name: look for name, (_, _, look, _) in counted.items() if look is not None},
        frozenset(),
        RowSample.of(sampled, first_row, None if exact else few, of_rows),
    )


def _read_exactly(column: pl.Series, reader: Reader, first_row: int) -> pl.Series | None:
    """Return typed values if every cell fits the format; else None."""
    if reader.format is None or reader.tolerant or not is_flat(column):
        return None
    may_be_codes = column.dtype == pl.String and reader.word == "number"
    typed = []
    for part in blocks(column):
        values, misfits = reader.format.read(part)
        # A whole number with leading zeros is a code: '007'.
        if misfits.any() or (may_be_codes and part.str.contains(_CODE).any()):
            return None
        typed.append(reader.format.to_typed(values, part, first_row))
        first_row += len(part)
    return pl.concat(typed, rechunk=True)


def _sketch(column: pl.Series, most: int | None) -> Numbers | Texts:
    if column.dtype == pl.String:
        return Texts.of(column, most)
    if column.dtype == pl.Float64:
        return Numbers.of(column, most)
    ends = pl.Series([column.min(), column.max()], dtype=column.dtype)
    ends = to_seconds(ends) if column.dtype.is_temporal() else ends.cast(pl.Float64)
    return replace(Numbers.of_ends(ends), n_rows=len(column), blanks=column.null_count())


def _look_at(
    frame: pl.DataFrame, first_row: int, names: Sequence[str], requests: Mapping[str, KindRequest]
) -> dict[str, Look]:
    looks = in_threads(lambda n: Look.of(frame[n], first_row, requests.get(n)), names)
    return dict(zip(names, looks, strict=True))


def _join_looks(first: dict[str, Look], second: dict[str, Look]) -> dict[str, Look]:
    return {name: look.joined(second[name]) for name, look in first.items()}


def profile_table(
    first: pl.DataFrame,
    batches: Iterable[Any],
    fold: Fold,
    *,
    requests: Mapping[str, KindRequest],
    group: str | None,
    exact: bool,
    of_rows: int = 0,
) -> tuple[list[Column], RowSample]:
    """Return the columns of a table, and typed rows: all of them if `exact`, else random ones.

    Formats are expected from the `first` rows, which are all if `exact`. The column of groups is
    read as text. If it is known how many rows there are, samples of parts are smaller.
    """
    names = first.columns
    count = partial(_count, requests=requests, exact=exact, of_rows=of_rows)

    def decide(name: str) -> Reader | None:
        look, request = looks[name], requests.get(name)
        if name == group:
            return Reader()
        if look.blank or look.unusable:
            return None
        return request.reader(name, look) if request else look.reader()

    if exact and first.height <= _MANY:
        looks = _look_at(first, 1, names, requests)
        readers = {name: reader for name in names if (reader := decide(name)) is not None}
        counts = fold(partial(count, readers=readers, decided=True), _Counts.joined, batches)
    else:
        # Spread over all rows: the first ones of a sorted table are alike.
        some = first.gather_every(max(1, first.height // _GLANCE))
        looks = _look_at(some, 1, names, {})
        expected = {name: look.reader() for name, look in looks.items()}
        expected |= {} if group is None else {group: Reader()}
        counts = fold(partial(count, readers=expected, decided=False), _Counts.joined, batches)
        # Looks at all rows replace those at some of them.
        looks |= counts.looks
        if counts.undecided:
            work = partial(_look_at, names=sorted(counts.undecided), requests=requests)
            looks |= fold(work, _join_looks, batches)
        doubtful = counts.looks.keys() | counts.undecided
        decided = {name: decide(name) if name in doubtful else expected[name] for name in names}
        readers = {name: reader for name, reader in decided.items() if reader is not None}
        again = {
            name: reader
            for name, reader in readers.items()
            if name not in counts.sketches or reader != expected[name]
        }
        if again:
            rest = fold(partial(count, readers=again, decided=True), _Counts.joined, batches)
            # Seeds draw the same rows. A column that was not read may be the only one so far.
            rows = counts.sample.rows if counts.sketches else rest.sample.rows
            sample = replace(rest.sample, rows=rows.with_columns(rest.sample.rows))
            counts = replace(counts, sketches=counts.sketches | rest.sketches, sample=sample)

    def learn(name: str) -> Column:
        if name == group:
            return LeftOut(name, "group", why="rows are compared within it")
        if looks[name].blank and name not in readers:
            return LeftOut(name, "constant", why="every row is blank")
        if name not in readers:
            why = f"values of type {looks[name].unusable} cannot be used"
            return LeftOut(name, "unusable", why=why)
        request = requests.get(name, KindRequest(""))
        profile = ColumnProfile(
            name=name,
            requested=request.kind,
            written=request.written,
            reader=readers[name],
            look=looks[name],
            sketch=counts.sketches[name],
            values=counts.sample.rows[name],
        )
        if not profile.n_filled:
            return LeftOut(name, "constant", why=f"it holds no {profile.reader.word}")
        if profile.is_constant and not profile.sketch.blanks:
            value = profile.values.drop_nulls()[0]
            shown = repr(value) if isinstance(value, str) else f"{value!s}"
            shown = show_number(value) if isinstance(value, float) else shown
            return LeftOut(name, "constant", why=f"every row holds {shown}")
        # Several names stand for one class, which is asked once.
        for kind in dict.fromkeys([KINDS[request.kind]] if request.kind else KINDS.values()):
            if (column := kind.learn(profile)) is not None:
                return column
        raise InputError(
            f"Column {quoted(name)} cannot be of the kind {request.kind!r}. Ask for 'category', or "
            "leave it out (drop)."
        )

    return in_threads(learn, names), counts.sample
