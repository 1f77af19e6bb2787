"""Numbers computed from several columns: time between two dates, and comparisons with groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.files import fields
from riskad.files.fields import TEXT, Array, ListOf, State, require
from riskad.rows.date_features import DAY, GapToPrevious, elapsed, elapsed_pairs, follows
from riskad.tables.cells import Value
from riskad.tables.formats.moments import to_seconds
from riskad.tables.groups import GroupComparison, GroupCounts
from riskad.tables.kinds.base import Column
from riskad.tables.kinds.categories import CategoryColumn
from riskad.tables.kinds.numbers import FlagColumn, MomentColumn, NumberColumn


@dataclass(frozen=True)
class DerivedColumn:
    """A number of a row in the form that is shown."""

    name: str
    unit: str
    extremes: tuple[str, str]  # words for small and large numbers

    def show(self, value: Value) -> Value:
        """Return the number with its unit."""
        if not isinstance(value, float) or not self.unit:
            return value
        if self.unit == "days" and value < 0:
            return f"{-value:,.3g} days before"
        return f"{value:,.3g} {self.unit}"


@dataclass(frozen=True)
class Derived(ABC):
    """Numbers of each row that are computed from several columns."""

    typical: Annotated[list[float], ListOf(fields.NUMBER)] = field(
        default_factory=list
    )  # medians of the training rows

    @abstractmethod
    def names(self) -> list[str]:
        """Return the name of each number."""

    @abstractmethod
    def values(self, parsed: pl.DataFrame, training: bool = False) -> NDArray[np.float64]:
        """Return the numbers of parsed rows, NaN for blanks; no `training` row sees itself."""

    @abstractmethod
    def needs(self) -> list[str]:
        """Return the columns from which they are computed."""

    @abstractmethod
    def describe(self) -> str:
        """Describe the numbers."""

    def column(self, name: str) -> DerivedColumn:
        """Return how one of the numbers is shown."""
        return DerivedColumn(name, "days", ("short", "long"))

    def onnx(self, g: Any, inputs: Mapping[str, str]) -> list[str]:
        """Return the nodes of a graph that give the numbers, NaN for gaps."""
        raise InputError(
            f"What a model knows of {quoted(self.needs()[0])} (rows beside their group) cannot be "
            "exported: ONNX cannot look groups up. Fit a model without group= to export it."
        )


def medians(values: NDArray[np.float64]) -> list[float]:
    """Return the median of each column, 0 if all is blank."""
    filled = (column[~np.isnan(column)] for column in values.T)
    return [float(np.median(column)) if len(column) else 0.0 for column in filled]


@dataclass(frozen=True)
class TimeBetween(Derived):
    """Days from one date of a row to another, for pairs of columns."""

    pairs: Annotated[list[list[str]], ListOf(ListOf(TEXT, 2))] = field(default_factory=list)

    @classmethod
    def _check_state(cls, state: State) -> None:
        require(len(state["pairs"]) == len(state["typical"]) > 0, "typical: one for each pair")

    @classmethod
    def learn(cls, parsed: pl.DataFrame, pairs: list[list[str]]) -> TimeBetween:
        """Return the differences of pairs of columns, each from the date that is usually first."""
        usual = medians(cls(pairs=pairs).values(parsed))
        pairs = [pair if days >= 0 else pair[::-1] for pair, days in zip(pairs, usual, strict=True)]
        return cls([abs(days) for days in usual], pairs)

    def names(self) -> list[str]:
        return [f"{first} to {second}" for first, second in self.pairs]

    def values(self, parsed: pl.DataFrame, training: bool = False) -> NDArray[np.float64]:
        seconds = {name: to_seconds(parsed[name]) for name in self.needs()}
        return np.column_stack([elapsed(seconds[a], seconds[b]) for a, b in self.pairs])

    def needs(self) -> list[str]:
        return list(dict.fromkeys(name for pair in self.pairs for name in pair))

    def describe(self) -> str:
        return f"time between dates: {', '.join(self.names())}"

    def onnx(self, g: Any, inputs: Mapping[str, str]) -> list[str]:
        return [
            g.node("Div", g.node("Sub", inputs[second], inputs[first]), np.array(DAY))
            for first, second in self.pairs
        ]


@dataclass(frozen=True)
class BesideGroup(Derived):
    """How unusual the cells of a row are within its group."""

    comparison: GroupComparison = None  # type: ignore[assignment]

    @classmethod
    def _check_state(cls, state: State) -> None:
        n = len(state["comparison"].columns)
        require(n == len(state["typical"]) > 0, "typical: one for each column")

    def names(self) -> list[str]:
        return self.comparison.names()

    def values(self, parsed: pl.DataFrame, training: bool = False) -> NDArray[np.float64]:
        groups = parsed[self.comparison.group]
        return self.comparison.features(parsed, groups, training=training)

    def needs(self) -> list[str]:
        return [self.comparison.group, *self.comparison.columns]

    def describe(self) -> str:
        return self.comparison.describe()

    def column(self, name: str) -> DerivedColumn:
        compared = self.comparison.columns[self.names().index(name)]
        if any(number.name == compared for number in self.comparison.numbers):
            return DerivedColumn(name, "SD", ("low", "high"))
        return DerivedColumn(name, "", ("common", "rare"))


@dataclass(frozen=True)
class SincePrevious(Derived):
    """Days since the last earlier training row of the same group (`GapToPrevious`)."""

    group: str = ""
    moment: str = ""
    kept: Annotated[
        dict[str, Any],
        fields.Fixed(
            {"groups": Array("i", ("kept",), rising=True), "seconds": Array("f", ("kept",))}
        ),
    ] = field(default_factory=dict)  # `GapToPrevious.to_dict`

    @classmethod
    def _check_state(cls, state: State) -> None:
        require(len(state["typical"]) == 1, "typical: one number")
        GapToPrevious.from_dict(state["kept"])

    def names(self) -> list[str]:
        return [f"{self.moment} since the row before of its {self.group}"]

    def values(self, parsed: pl.DataFrame, training: bool = False) -> NDArray[np.float64]:
        kept = GapToPrevious.from_dict(self.kept)
        return kept.gaps(parsed[self.group], to_seconds(parsed[self.moment]))[:, None] / DAY

    def needs(self) -> list[str]:
        return [self.group, self.moment]

    def describe(self) -> str:
        return f"{self.group}: time since the row before, by {self.moment}"


# --- what is computed of a table -------------------------------------------------------------


def learn_derived(
    columns: Mapping[str, Column],
    group: str | None,
    rows: pl.DataFrame,
    count_groups: Callable[[Callable[[pl.DataFrame, int], GroupCounts]], GroupCounts] | None,
) -> list[Derived]:
    """Return what is computed from several columns, of all typed rows.

    Where the rows are some, `count_groups` counts groups in a pass over all, by a function of rows.
    """
    dates = {
        name: (column.kind, to_seconds(rows[name]))
        for name, column in columns.items()
        if isinstance(column, MomentColumn) and column.kind in ("date", "datetime")
    }
    pairs = [list(pair) for pair in elapsed_pairs(dates)]
    derived: list[Derived] = [TimeBetween.learn(rows, pairs)] if pairs else []
    if group is None:
        return derived
    compared = [
        name
        for name, column in columns.items()
        if isinstance(column, (NumberColumn, CategoryColumn)) and not isinstance(column, FlagColumn)
    ]

    def count(typed: pl.DataFrame, first_row: int) -> GroupCounts:
        return GroupCounts.of(typed.select(compared), typed[group], seed=first_row)

    counts = count(rows, 0) if count_groups is None else count_groups(count)
    comparison = GroupComparison.of(counts)
    typical = medians(comparison.features(rows, rows[group], training=True))
    derived.append(BesideGroup(typical, comparison))
    if count_groups is None and len(dates) == 1:  # a sample does not show which row came before
        ((moment, (_, seconds)),) = dates.items()
        kept = GapToPrevious.learn(rows[group], seconds)
        typical = medians(kept.gaps(rows[group], seconds)[:, None] / DAY)
        derived.append(SincePrevious(typical, group, moment, kept.to_dict()))
    return derived


def without_repeats(
    columns: Mapping[str, Column], derived: Iterable[Derived], rows: pl.DataFrame
) -> dict[str, Column]:
    """Return the columns, with dates that follow another one reduced to what is new in them."""
    reduced = dict(columns)
    pairs = [pair for each in derived if isinstance(each, TimeBetween) for pair in each.pairs]
    for first, second in (sorted(pair, key=list(columns).index) for pair in pairs):
        column, seconds = columns[second], to_seconds(rows[second])
        if isinstance(column, MomentColumn) and follows(to_seconds(rows[first]), seconds):
            reduced[second] = column.reduced_by(first)
    return reduced
