"""Columns of dates, times and durations."""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import quoted
from riskad.rows.date_features import MomentParts
from riskad.rows.graph_numbers import GraphNumbers
from riskad.storage.fields import (
    ANYTHING_PLAIN,
    COUNT,
    FLAG,
    NUMBER,
    Fields,
    ListOf,
    State,
    require,
)
from riskad.tables.cells import Value
from riskad.tables.formats.moments import MomentFormat
from riskad.tables.matrices import Matrix
from riskad.tables.notes import NotAsInTraining
from riskad.tables.prepared.base import MEDIAN_ROWS, UsedColumn, thinned, with_gaps
from riskad.tables.readers import MomentReader, Reader, to_seconds
from riskad.tables.sketches import Numbers
from riskad.tables.words import say_count

__all__ = ["MomentColumn"]


@dataclass(frozen=True)
class MomentColumn(UsedColumn):
    """Moments. A model sees their parts: the hour, the weekday, the days since the first row.

    Plain values are seconds: since 1970, since midnight, or of a duration.

    Parameters
    ----------
    form
        `MomentFormat.to_dict` of their format.
    tolerant
        Whether cells that are not moments count as blank.
    parts
        `MomentParts.to_dict` of the parts that are used.
    fills
        Replacements for gaps of the matrix: the medians of its columns.
    middle, low, high
        The median, the first and the last moment.
    blanks, n_rows
        Rows without a moment, and all.
    """

    form: dict[str, Any] = field(default_factory=dict)
    tolerant: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
    fills: list[float] = field(default_factory=list)
    middle: float = 0.0
    low: float = 0.0
    high: float = 0.0
    blanks: int = 0
    n_rows: int = 0

    _state_fields: ClassVar[Fields] = {
        "form": ANYTHING_PLAIN,
        "tolerant": FLAG,
        "parts": ANYTHING_PLAIN,
        "fills": ListOf(NUMBER),
        "middle": NUMBER,
        "low": NUMBER,
        "high": NUMBER,
        "blanks": COUNT,
        "n_rows": COUNT,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        MomentFormat.from_dict(state["form"])
        parts = MomentParts.from_dict(state["parts"])
        require(len(parts.cyclic_names("")) == len(state["fills"]), "fills: one for each part")

    @classmethod
    def learn(
        cls, name: str, reader: Reader, sketch: Numbers, sample: pl.Series, remarks: list[str]
    ) -> MomentColumn:
        """Return the column that a sketch of all rows and a sample of them describe."""
        reader = cast(MomentReader, reader)
        known = to_seconds(sample.drop_nulls())
        median = cast(float | None, thinned(known, MEDIAN_ROWS).median())
        ends = pl.Series([sketch.low, sketch.high], dtype=pl.Float64)
        seconds = pl.concat([thinned(known).alias(""), ends])
        parts = MomentParts.learn(reader.format.kind, seconds)
        return cls(
            name,
            reader.format.kind,
            remarks,
            form=reader.format.to_dict(),
            tolerant=reader.tolerant,
            parts=parts.to_dict(),
            fills=[float(v) for v in np.median(parts.cyclic(seconds), axis=0)],
            middle=sketch.low if median is None else float(median),
            low=sketch.low,
            high=sketch.high,
            blanks=sketch.blanks,
            n_rows=sketch.n_rows,
        )

    def told_by(self, first: str) -> MomentColumn:
        """Return the column without what another date and the time between them show.

        Its hour is kept: from days between the two, it takes a sum and a remainder to find it.
        """
        parts = self.moment_parts
        kept = replace(parts, parts=tuple(part for part in parts.parts if part == "hour"))
        places = [parts.cyclic_names("").index(name) for name in kept.cyclic_names("")]
        remark = f"it goes with {quoted(first)}: the time between them replaces its calendar"
        return replace(
            self,
            parts=kept.to_dict(),
            fills=[self.fills[place] for place in places],
            remarks=[*self.remarks, remark],
        )

    @cached_property
    def reader(self) -> MomentReader:
        """Reads moments."""
        return MomentReader(MomentFormat.from_dict(self.form), self.tolerant)

    @cached_property
    def moment_parts(self) -> MomentParts:
        """The parts that are used."""
        return MomentParts.from_dict(self.parts)

    @property
    def usual(self) -> Value:
        """The median; None if more than half of the rows are blank."""
        return None if 2 * self.blanks > self.n_rows else self.middle

    def names(self) -> list[str]:
        """Return the names of its parts, cyclic ones twice, and one for its blanks."""
        return self.moment_parts.cyclic_names(self.name) + self._blank_name()

    def _blank_name(self) -> list[str]:
        return [f"{self.name} is blank"] * bool(self.blanks)

    def block(self, values: pl.Series) -> Matrix:
        """Return the cyclic parts, for distances, and where gaps are."""
        found = self.moment_parts.cyclic(to_seconds(values))
        filled = np.where(np.isnan(found), np.array(self.fills), found)
        if not self.blanks:
            return filled
        return np.column_stack([filled, values.is_null().cast(pl.Float64).to_numpy()])

    def frame_names(self) -> list[str]:
        """Return the names of its parts."""
        return self.moment_parts.names(self.name)

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return the parts as ordered numbers, for trees."""
        found = self.moment_parts.ordered(to_seconds(values))
        return [
            pl.Series(name, found[:, j], nan_to_null=True)
            for j, name in enumerate(self.frame_names())
        ]

    def news(self, values: pl.Series) -> NotAsInTraining | None:
        """Return how many blanks there are where there were none."""
        n = values.null_count()
        return NotAsInTraining(blanks={self.name: n}) if n and not self.blanks else None

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return seconds."""
        return to_seconds(values).to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        """Return moments."""
        seconds = pl.Series(self.name, values, dtype=pl.Float64)
        return self.reader.typed(seconds)

    def in_words(self, value: Value) -> Value:
        """Return a moment as the column writes it."""
        return value if value is None or isinstance(value, str) else self.reader.format.show(value)

    def part_of(self, feature: str) -> str:
        """Return the part that a column of the matrix or of the frame holds; blank for blanks."""
        named = dict(zip(self.frame_names(), self.moment_parts.parts, strict=True))
        return named.get(feature.removesuffix(" (sine)").removesuffix(" (cosine)"), "")

    def part_in_words(self, seconds: float, part: str) -> str:
        """Return a part of a moment: Saturday, January, day 18, hour 3; blank if it has no name.

        Parameters
        ----------
        seconds
            The moment, as `plain` has it.
        part
            One of `MomentParts.parts`.
        """
        if part not in ("weekday", "month", "day of month", "hour"):
            return ""
        [[number]] = replace(self.moment_parts, parts=(part,)).ordered(np.array([seconds]))
        if part == "weekday":
            return calendar.day_name[int(number)]
        if part == "month":
            return calendar.month_name[int(number)]
        return f"{part.removesuffix(' of month')} {int(number)}"

    def ends(self) -> tuple[str, str] | None:
        """Return words for small and large moments."""
        return ("short", "long") if self.kind == "duration" else ("early", "late")

    def made_of_it(self) -> str:
        """Say which parts are used."""
        parts = [name.removeprefix(f"{self.name}: ") for name in self.frame_names()]
        return ": ".join(filter(None, [self.reader.format.describe(), ", ".join(parts)]))

    def notes(self) -> list[str]:
        """Describe its format and the parts that are used."""
        said = [f"{self.name}: {self.made_of_it()}", *super().notes()]
        if self.blanks:
            said.append(f"{self.name}: {say_count(self.blanks, 'blank')}")
        return said

    def onnx_input(self, g: Any) -> str:
        """Add seconds: graphs cannot read dates."""
        since = {"time": "seconds since midnight", "duration": "seconds"}
        words = since.get(self.kind, "seconds since 1970-01-01 00:00 of the clock as written")
        return str(g.number(self.name, f"{words}, NaN if blank"))

    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Return the cyclic parts, for distances, and where gaps are."""
        gap = g.node("IsNaN", value)
        nodes = [part.node for part in self.moment_parts.cyclic_parts(GraphNumbers(g, value))]
        filled = [
            g.node("Where", gap, np.array(fill), node)
            for fill, node in zip(self.fills, nodes, strict=True)
        ]
        return filled + [g.cast(gap, np.float64)] * bool(self.blanks)

    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Return the parts in their order."""
        nodes = [part.node for part in self.moment_parts.ordered_parts(GraphNumbers(g, value))]
        return dict(zip(self.frame_names(), nodes, strict=True))

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return random moments between the first and the last."""
        seconds = np.floor(rng.uniform(self.low, max(self.high, self.low + 1), n))
        return self.typed(with_gaps(seconds, rng))
