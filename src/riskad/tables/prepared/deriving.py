"""Which numbers are computed from several columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from riskad.rows.date_features import elapsed_pairs, follows
from riskad.tables.groups import GroupComparison, GroupCounts
from riskad.tables.kinds import Fold
from riskad.tables.prepared.base import PreparedColumn
from riskad.tables.prepared.categories import CategoryColumn
from riskad.tables.prepared.derived import BesideGroup, Derived, SincePrevious, TimeBetween
from riskad.tables.prepared.moments import MomentColumn
from riskad.tables.prepared.numbers import FlagColumn, NumberColumn
from riskad.tables.readers import to_seconds

if TYPE_CHECKING:
    from riskad.tables.preparation import TablePreparer

__all__ = ["learn_derived", "without_repeats"]


def learn_derived(
    preparer: TablePreparer, rows: pl.DataFrame, batches: Iterable[Any], fold: Fold, exact: bool
) -> list[Derived]:
    """Return what is computed from several columns.

    Parameters
    ----------
    preparer
        A preparer whose columns are known.
    rows
        Parsed rows: all of them if `exact`, or some.
    batches, fold
        The table, and how to go through it, as in `TablePreparer.fit_batches`.
    exact
        Whether the rows are the whole table.

    Returns
    -------
    list of Derived
        The numbers.
    """
    made: list[Derived] = []
    dates = [
        column
        for column in preparer.used()
        if isinstance(column, MomentColumn) and column.kind in ("date", "datetime")
    ]
    pairs = elapsed_pairs({c.name: (c.kind, to_seconds(rows[c.name])) for c in dates})
    if pairs:
        made.append(TimeBetween.learn(rows, [list(pair) for pair in pairs]))
    if preparer.group is not None:
        count = partial(_count_groups, preparer=preparer)
        if exact:
            counts = GroupCounts.of(_compared(preparer, rows), rows[preparer.group])
        else:
            counts = fold(count, GroupCounts.joined, batches)
        made.append(BesideGroup.learn(rows, GroupComparison.of(counts)))
        if exact and len(dates) == 1:  # a sample does not show which row came before
            made.append(SincePrevious.learn(rows, preparer.group, dates[0].name))
    return made


def without_repeats(
    columns: Mapping[str, PreparedColumn], derived: Iterable[Derived], rows: pl.DataFrame
) -> dict[str, PreparedColumn]:
    """Return the columns, with dates that follow another one reduced to what is new.

    Parameters
    ----------
    columns
        All columns, by name.
    derived
        Numbers computed from several columns: here only the time between dates counts.
    rows
        Parsed rows, or some of them.

    Returns
    -------
    dict
        The columns, by name.
    """
    told = dict(columns)
    pairs = [pair for each in derived if isinstance(each, TimeBetween) for pair in each.pairs]
    for first, second in (sorted(pair, key=list(columns).index) for pair in pairs):
        column = columns[second]
        if isinstance(column, MomentColumn) and follows(
            to_seconds(rows[first]), to_seconds(rows[second])
        ):
            told[second] = column.told_by(first)
    return told


def _compared(preparer: TablePreparer, rows: pl.DataFrame) -> pl.DataFrame:
    """The numbers and categories of rows."""
    return rows.select(
        column.name
        for column in preparer.used()
        if isinstance(column, (NumberColumn, CategoryColumn)) and not isinstance(column, FlagColumn)
    )


def _count_groups(frame: pl.DataFrame, first_row: int, *, preparer: TablePreparer) -> GroupCounts:
    rows = preparer.parse(frame, first_row=first_row, quiet=True)
    return GroupCounts.of(_compared(preparer, rows), rows[preparer.group or ""], seed=first_row)
