"""Columns of dates, times and durations."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl

from riskad.core.checks import quoted
from riskad.rows.date_features import PERIODS, MomentParts
from riskad.rows.graph_numbers import GraphNumbers
from riskad.storage.fields import ANYTHING_PLAIN, NUMBER, Fields, State
from riskad.tables.cells import Value
from riskad.tables.formats.moments import MomentFormat, to_seconds
from riskad.tables.kinds.base import (
    MEDIAN_ROWS,
    Column,
    ColumnProfile,
    Feature,
    FormatColumn,
    LeftOut,
)
from riskad.tables.notes import say_count

_PART_ROWS = 20_000


@dataclass(frozen=True)
class MomentColumn(FormatColumn):
    """Moments. A model sees their parts: the hour, the weekday, the days since the first row.

    Plain values are seconds: since 1970, since midnight, or of a duration.
    """

    parts: dict[str, Any] = field(default_factory=dict)  # `MomentParts.to_dict` of those used
    low: float = 0.0  # the first moment
    high: float = 0.0

    format_class: ClassVar[Any] = MomentFormat
    _state_fields: ClassVar[Fields] = {"parts": ANYTHING_PLAIN, "low": NUMBER, "high": NUMBER}

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        MomentParts.from_dict(state["parts"])

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if its cells are moments of which some part differs between rows."""
        reader = profile.reader
        if reader.word != "moment":
            return None
        low, high = cast(Any, profile.sketch).low, cast(Any, profile.sketch).high
        seconds = to_seconds(profile.values.drop_nulls()).alias("")
        median = seconds.gather_every(max(1, -(-len(seconds) // MEDIAN_ROWS))).median()
        some = seconds.gather_every(max(1, -(-len(seconds) // _PART_ROWS)))
        # The first and the last moment may not be among the sampled rows.
        parts = MomentParts.learn(reader.format.kind, pl.concat([some, pl.Series([low, high])]))
        if not parts.parts:
            why = "none of its parts differs between rows"
            return LeftOut(profile.name, reader.format.kind, why=why)
        kind = reader.format.kind
        return cls.of(profile, kind, median, parts=parts.to_dict(), low=low, high=high)

    def reduced_by(self, first: str) -> MomentColumn:
        """Return the column without what another date and the time between them show.

        Its hour is kept: from days between the two, it takes a sum and a remainder to find it.
        """
        parts = self.moment_parts
        kept = replace(parts, parts=tuple(part for part in parts.parts if part == "hour"))
        remark = f"it goes with {quoted(first)}: the time between them replaces its calendar"
        return replace(self, parts=kept.to_dict(), remarks=[*self.remarks, remark])

    @cached_property
    def moment_parts(self) -> MomentParts:
        """The parts that are used."""
        return MomentParts.from_dict(self.parts)

    @property
    def extremes(self) -> tuple[str, str] | None:
        return ("short", "long") if self.kind == "duration" else ("early", "late")

    @property
    def usual_range(self) -> tuple[float, float]:
        return np.floor(self.low), max(self.high, self.low + 1)

    def features(self, values: pl.Series) -> list[Feature]:
        parts = self.moment_parts
        numbers = parts.ordered_parts(to_seconds(values).to_numpy())
        features = []
        for part, column in zip(parts.parts, numbers, strict=True):
            period = PERIODS[part][0] if part in PERIODS else None
            features.append(Feature(f"{self.name}: {part}", column, period=period))
        return features

    def typed(self, values: list[Value]) -> pl.Series:
        return self.reader.format.typed(pl.Series(self.name, values, dtype=pl.Float64))

    def show(self, value: Value) -> Value:
        return value if value is None or isinstance(value, str) else self.reader.format.show(value)

    def part_of(self, feature: str) -> str:
        """Return the part that a feature holds; blank if it is none."""
        feature = feature.removesuffix(" (sine)").removesuffix(" (cosine)")
        part = feature.removeprefix(f"{self.name}: ")
        return part if part != feature and part in self.moment_parts.parts else ""

    def show_part(self, seconds: float, part: str) -> str:
        """Return a part of a moment: Saturday, January, day 18, hour 3; blank if it has no name."""
        if part not in PERIODS:
            return ""
        [[number]] = replace(self.moment_parts, parts=(part,)).ordered(np.array([seconds]))
        if part == "weekday":
            return calendar.day_name[int(number)]
        if part == "month":
            return calendar.month_name[int(number)]
        return f"{part.removesuffix(' of month')} {int(number)}"

    def describe(self) -> str:
        parts = ", ".join(self.moment_parts.parts)
        return ": ".join(filter(None, [self.reader.format.describe(), parts]))

    def notes(self) -> list[str]:
        notes = [f"{self.name}: {self.describe()}", *super().notes()]
        return notes + [f"{self.name}: {say_count(self.blanks, 'blank')}"] * bool(self.blanks)

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        return [part.node for part in self.moment_parts.ordered_parts(GraphNumbers(graph, cells))]
