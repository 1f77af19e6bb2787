"""Columns that are read by a format: numbers, yes and no, dates and times."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self, cast

import numpy as np
import polars as pl

from riskad.core.checks import quoted
from riskad.files.fields import COUNT, Number, State, require
from riskad.rows.arrays import GraphNumbers
from riskad.rows.date_features import PERIODS, MomentParts
from riskad.tables.cells import CellFormat, Reader, Value
from riskad.tables.formats.flags import FlagFormat
from riskad.tables.formats.moments import MomentFormat, to_seconds
from riskad.tables.formats.numbers import LARGEST, NumberFormat
from riskad.tables.kinds import base
from riskad.tables.kinds.base import Column, ColumnProfile, Feature, LeftOut
from riskad.tables.notes import NotAsInTraining, pluralize
from riskad.tables.sketches import Numbers

_QUARTILE_ROWS = _PART_ROWS = 20_000
_IDENTIFIER_NAME = re.compile(
    r"(^|[\W_])[iI][dD]$|[a-z]I[dD]$|^(index|row)$|^Unnamed: \d+$|^$|[a-z]N(o|umber)$"
    r"|(?i:^beleg|[\W_](no|number)|nr\.?|nummer|key)$",
    re.ASCII,
)
_TIME_NAME = re.compile(
    r"(?i)(year|month|day|week|hour|minute|second|time|epoch|elapsed|duration|^ts?$"
    r"|jahr|monat|tag|stunde|sekunde|zeit|dauer)"
)
_COUNTER_ROWS = 20  # fewer consecutive numbers than this may well be a measurement
# Pairs of equal numbers to expect by chance, in all and for each pair that there is, from which on
# a column holds running numbers though some are skipped.
_EXPECTED_PAIRS, _EXPECTED_PER_REPEAT = 20, 4
_FEW = 0.01  # rows of an identifier without a number, or with that of another row


def _numbers_rows(sketch: Numbers, name: str) -> bool:
    """Whether a column only numbers the rows, with gaps or without: a document number.

    Its numbers are whole and hardly two are equal, though with n measurements between low and high
    about n^2 / 2 / (high - low) pairs would be: running numbers lie too densely to be measured.
    Clocks and years do as well: their names tell them, or that they are read every ten seconds.
    """
    n = sketch.n_rows - sketch.blanks
    if sketch.distinct is None or n < 3 or max(sketch.blanks, sketch.repeats) > _FEW * n:
        return False
    if _IDENTIFIER_NAME.search(name):
        return True
    span = sketch.high - sketch.low + 1
    consecutive = n - sketch.repeats == span >= _COUNTER_ROWS
    pairs = n * (n - 1) / 2 / span
    dense = pairs > _EXPECTED_PAIRS + _EXPECTED_PER_REPEAT * sketch.repeats and sketch.step == 1
    return (consecutive or dense) and not _TIME_NAME.search(name)


class WrittenNumber(float):
    """A number that is shown as its column writes it."""

    written: str

    def __new__(cls, value: float, written: str) -> Self:
        number = super().__new__(cls, value)
        number.written = written
        return number

    def __str__(self) -> str:
        return self.written

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.written


@dataclass(frozen=True)
class FormatColumn(Column):
    """A column whose cells are read by a format, as numbers, yes and no or moments."""

    reader: Reader = field(default_factory=Reader)  # type: ignore[misc]
    middle: float = 0.0  # the median
    blanks: Annotated[int, COUNT] = 0
    n_rows: Annotated[int, COUNT] = 0

    format_class: ClassVar[type[CellFormat]]

    @classmethod
    def _check_state(cls, state: State) -> None:
        require(type(state["reader"].format) is cls.format_class, "reader: of another kind")

    @classmethod
    def of(cls, profile: ColumnProfile, kind: str, middle: Any, **others: Any) -> Self:
        """Return the column of a profile; without a median, the middle is the lowest value."""
        sketch = cast(Numbers, profile.sketch)
        return cls(
            profile.name,
            kind,
            profile.remarks(),
            reader=profile.reader,
            middle=sketch.low if middle is None else float(middle),
            blanks=sketch.blanks,
            n_rows=sketch.n_rows,
            **others,
        )

    @property
    def typical(self) -> Value:
        """The median; None if more than half of the rows are blank."""
        return None if 2 * self.blanks > self.n_rows else self.middle

    def check_new(self, values: pl.Series) -> NotAsInTraining | None:
        n = values.null_count()
        return NotAsInTraining(blanks={self.name: n}) if n and not self.blanks else None


@dataclass(frozen=True)
class NumberColumn(FormatColumn):
    """Numbers."""

    middle: Annotated[float, Number(-LARGEST, LARGEST)] = 0.0  # the median
    spread: Annotated[float, Number(0, LARGEST)] = 1.0  # half the distance between the quartiles

    dtype: ClassVar[Any] = pl.Float64
    format_class: ClassVar[Any] = NumberFormat

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        if profile.reader.word != "number":
            return None
        sketch = cast(Numbers, profile.sketch)
        if not profile.requested and _numbers_rows(sketch, profile.name):
            n_distinct = pluralize(profile.n_filled - sketch.repeats, "different value")
            return LeftOut(profile.name, "identifier", why=f"it numbers the rows ({n_distinct})")
        values = profile.values
        middle = values.gather_every(-(-len(values) // base.MEDIAN_ROWS)).median()
        some = values.gather_every(-(-len(values) // _QUARTILE_ROWS))
        first, third = (some.quantile(q, "linear") for q in (0.25, 0.75))
        spread = 0.0 if first is None or third is None else (float(third) - float(first)) / 2
        column = cls.of(profile, "number", middle, spread=min(spread, LARGEST))
        if profile.is_constant:
            column.remarks.append("all are the same, so only what is blank is used")
        return column

    @property
    def extremes(self) -> tuple[str, str] | None:
        return "low", "high"

    @property
    def usual_range(self) -> tuple[float, float]:
        reach = 4 * self.spread or 1.0
        return self.middle - reach, self.middle + reach

    def features(self, values: pl.Series) -> list[Feature]:
        return [Feature(self.name, values.cast(pl.Float64).to_numpy())]

    def show(self, value: Value) -> Value:
        if not isinstance(value, float):
            return value
        return WrittenNumber(value, self.reader.format.show(value))

    def describe(self) -> str:
        return self.reader.format.describe()

    def notes(self) -> list[str]:
        notes = super().notes()
        if self.describe() != "numbers":
            notes.insert(0, f"{self.name}: {self.describe()}")
        if self.blanks:
            blanks, middle = pluralize(self.blanks, "blank"), self.show(self.middle)
            notes.append(f"{self.name}: {blanks} filled with the median {middle}")
        return notes

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        return [cells]


@dataclass(frozen=True)
class FlagColumn(NumberColumn):
    """Yes and no: the numbers 1 and 0, shown with the words of the column."""

    dtype: ClassVar[Any] = pl.Boolean
    format_class: ClassVar[Any] = FlagFormat

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        if profile.reader.word != "flag":
            return None
        share = cast(float | None, profile.values.mean())
        return cls.of(profile, "flag", None if share is None else share > 0.5, spread=0.5)

    @property
    def extremes(self) -> tuple[str, str] | None:
        return self.reader.format.words

    def typed(self, values: list[Value]) -> pl.Series:
        return pl.Series(self.name, values, dtype=pl.Float64) >= 0.5

    def show(self, value: Value) -> Value:
        return self.reader.format.words[int(value)] if value in (0.0, 1.0) else value

    def describe(self) -> str:
        return " or ".join(self.reader.format.words)

    def notes(self) -> list[str]:
        notes = Column.notes(self)
        if self.blanks:
            middle = self.show(self.middle)
            notes.append(f"{self.name}: {pluralize(self.blanks, 'blank')} filled with {middle!r}")
        return notes


@dataclass(frozen=True)
class MomentColumn(FormatColumn):
    """Moments. A model sees their parts: the hour, the weekday, the days since the first row.

    Plain values are seconds: since 1970, since midnight, or of a duration.
    """

    parts: MomentParts = field(default_factory=partial(MomentParts, "date", ()))  # those used
    low: float = 0.0  # the first moment
    high: float = 0.0

    format_class: ClassVar[Any] = MomentFormat

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if its cells are moments of which some part differs between rows."""
        reader = profile.reader
        if reader.word != "moment":
            return None
        sketch = cast(Numbers, profile.sketch)
        moments = profile.values.drop_nulls().alias("")
        many, some = (
            to_seconds(moments.gather_every(max(1, -(-len(moments) // most))))
            for most in (base.MEDIAN_ROWS, _PART_ROWS)
        )
        # The first and the last moment may not be among the sampled rows.
        kind, low, high = reader.format.kind, sketch.low, sketch.high
        parts = MomentParts.learn(kind, pl.concat([some, pl.Series([low, high])]))
        if not parts.parts:
            return LeftOut(profile.name, kind, why="none of its parts differs between rows")
        return cls.of(profile, kind, many.median(), parts=parts, low=low, high=high)

    def reduced_by(self, first: str) -> MomentColumn:
        """Return the column without what another date and the time between them show.

        Its hour is kept: from days between the two, it takes a sum and a remainder to find it.
        """
        hours = tuple(part for part in self.parts.parts if part == "hour")
        parts = replace(self.parts, parts=hours)
        remark = f"it goes with {quoted(first)}: the time between them replaces its calendar"
        return replace(self, parts=parts, remarks=[*self.remarks, remark])

    @property
    def extremes(self) -> tuple[str, str] | None:
        return ("short", "long") if self.kind == "duration" else ("early", "late")

    @property
    def usual_range(self) -> tuple[float, float]:
        return np.floor(self.low), max(self.high, self.low + 1)

    def features(self, values: pl.Series) -> list[Feature]:
        numbers = self.parts.ordered_parts(to_seconds(values).to_numpy())
        return [
            Feature(f"{self.name}: {part}", column, period=PERIODS.get(part, (None,))[0])
            for part, column in zip(self.parts.parts, numbers, strict=True)
        ]

    def typed(self, values: list[Value]) -> pl.Series:
        seconds = pl.Series(self.name, values, dtype=pl.Float64)
        return self.reader.format.to_typed(seconds, seconds, 1)

    def show(self, value: Value) -> Value:
        return value if value is None or isinstance(value, str) else self.reader.format.show(value)

    def part_of(self, feature: str) -> str:
        """Return the part that a feature holds; blank if it is none."""
        feature = feature.removesuffix(" (sine)").removesuffix(" (cosine)")
        part = feature.removeprefix(f"{self.name}: ")
        return part if part != feature and part in self.parts.parts else ""

    def show_part(self, seconds: float, part: str) -> str:
        """Return a part of a moment: Saturday, January, day 18, hour 3; blank if it has no name."""
        if part not in PERIODS:
            return ""
        [[number]] = replace(self.parts, parts=(part,)).ordered(np.array([seconds])).astype(int)
        names: Any = {"weekday": calendar.day_name, "month": calendar.month_name}.get(part)
        return names[number] if names else f"{part.removesuffix(' of month')} {number}"

    def describe(self) -> str:
        parts = ", ".join(self.parts.parts)
        return ": ".join(filter(None, [self.reader.format.describe(), parts]))

    def notes(self) -> list[str]:
        notes = [f"{self.name}: {self.describe()}", *super().notes()]
        return notes + [f"{self.name}: {pluralize(self.blanks, 'blank')}"] * bool(self.blanks)

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        return [part.node for part in self.parts.ordered_parts(GraphNumbers(graph, cells))]
