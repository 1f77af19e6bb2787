"""Numbers computed from several columns: time between two dates, and comparisons with groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.files import fields
from riskad.files.fields import TEXT, ListOf
from riskad.rows.arrays import GraphNumbers
from riskad.rows.date_features import DAY, elapsed_pairs, follows
from riskad.tables.cells import Value
from riskad.tables.formats.moments import to_seconds
from riskad.tables.groups import GroupComparison, GroupCounts
from riskad.tables.kinds.base import Column
from riskad.tables.kinds.categories import CategoryColumn
from riskad.tables.kinds.numbers import FlagColumn, MomentColumn, NumberColumn
from riskad.tables.sketches import blocks


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

    typical: Annotated[list[float], ListOf(fields.NUMBER, "numbers", nonempty=True)] = field(
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

    pairs: Annotated[list[list[str]], ListOf(ListOf(TEXT, 2), "numbers")] = field(
        default_factory=list
    )

    @classmethod
    def learn(cls, dates: Mapping[str, NDArray[np.float64]]) -> TimeBetween | None:
        """Return the differences of some pairs, each from the date that is usually first."""
        pairs = [list(pair) for pair in elapsed_pairs(dates)]
        if not pairs:
            return None
        days = medians(np.column_stack(cls(pairs=pairs)._days(dates)))
        pairs = [pair if n >= 0 else pair[::-1] for pair, n in zip(pairs, days, strict=True)]
        return cls([abs(n) for n in days], pairs)

    def names(self) -> list[str]:
        return [f"{first} to {second}" for first, second in self.pairs]

    def values(self, parsed: pl.DataFrame, training: bool = False) -> NDArray[np.float64]:
        seconds = {name: to_seconds(parsed[name]).to_numpy() for name in self.needs()}
        return np.column_stack(self._days(seconds))

    def needs(self) -> list[str]:
        return list(dict.fromkeys(name for pair in self.pairs for name in pair))

    def describe(self) -> str:
        return f"time between dates: {', '.join(self.names())}"

    def onnx(self, g: Any, inputs: Mapping[str, str]) -> list[str]:
        moments = {name: GraphNumbers(g, inputs[name]) for name in self.needs()}
        return [days.node for days in self._days(moments)]

    def _days(self, moments: Mapping[str, Any]) -> list[Any]:
        return [(moments[b] - moments[a]) / DAY for a, b in self.pairs]


@dataclass(frozen=True)
class BesideGroup(Derived):
    """How unusual the cells of a row are within its group."""

    comparison: Annotated[
        GroupComparison, fields.Record(("GroupComparison",), {"columns": "numbers"})
    ] = None  # type: ignore[assignment]

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


CountGroups: TypeAlias = Callable[[Callable[[pl.DataFrame, int], GroupCounts]], GroupCounts]


def learn_derived(
    columns: Mapping[str, Column],
    group: str | None,
    rows: pl.DataFrame,
    count_groups: CountGroups | None,
) -> tuple[list[Derived], dict[str, Column]]:
    """Return what is computed from several columns, of all typed rows, and what these become.

    Dates that follow another one are reduced to what is new in them. Where the rows are some,
    `count_groups` counts groups in a pass over all, by a function of rows.
    """
    used = [column for column in columns.values() if column.used]
    dates = {
        column.name: np.concatenate([to_seconds(b).to_numpy() for b in blocks(rows[column.name])])
        for column in used
        if isinstance(column, MomentColumn) and column.kind in ("date", "datetime")
    }
    derived: list[Derived] = []
    reduced = dict(columns)
    if between := TimeBetween.learn(dates):
        derived.append(between)
        order = list(columns).index
        for first, second in (sorted(pair, key=order) for pair in between.pairs):
            if follows(dates[first], dates[second]):
                reduced[second] = cast(MomentColumn, columns[second]).reduced_by(first)
    if group is None:
        return derived, reduced
    compared = [
        column.name
        for column in used
        if isinstance(column, (NumberColumn, CategoryColumn)) and not isinstance(column, FlagColumn)
    ]

    def count(typed: pl.DataFrame, first_row: int) -> GroupCounts:
        return GroupCounts.of(typed.select(compared), typed[group], seed=first_row)

    comparison = GroupComparison.of(count_groups(count) if count_groups else count(rows, 0))
    typical = medians(comparison.features(rows, rows[group], training=True))
    derived.append(BesideGroup(typical, comparison))
    return derived, reduced
