"""Columns of numbers, and of yes and no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.storage.fields import ANYTHING_PLAIN, COUNT, FLAG, Fields, Maybe, Number, State
from riskad.tables.cells import LARGEST, Value, WrittenNumber
from riskad.tables.formats.flags import FlagFormat
from riskad.tables.formats.number_format import NumberFormat
from riskad.tables.matrices import Matrix
from riskad.tables.notes import NotAsInTraining
from riskad.tables.prepared.base import MEDIAN_ROWS, UsedColumn, thinned, with_gaps
from riskad.tables.readers import FlagReader, NumberReader, Reader
from riskad.tables.sketches import Numbers
from riskad.tables.words import say_count

__all__ = ["FlagColumn", "NumberColumn"]

_SIZE = Maybe(Number(-LARGEST, LARGEST))


@dataclass(frozen=True)
class NumberColumn(UsedColumn):
    """Numbers. The median replaces blanks, and a further column marks them.

    Parameters
    ----------
    form
        `NumberFormat.to_dict` of their format.
    tolerant
        Whether cells that are not numbers count as blank.
    median
        None if all numbers are the same: then only blanks are informative.
    middle, spread
        The median, and half the distance between the quartiles.
    blanks, n_rows
        Rows without a number, and all.
    """

    form: dict[str, Any] = None  # type: ignore[assignment]
    tolerant: bool = False
    median: float | None = None
    middle: float = 0.0
    spread: float = 1.0
    blanks: int = 0
    n_rows: int = 0

    extremes = ("low", "high")

    _state_fields: ClassVar[Fields] = {
        "form": ANYTHING_PLAIN,
        "tolerant": FLAG,
        "median": _SIZE,
        "middle": Number(-LARGEST, LARGEST),
        "spread": Number(0, LARGEST),
        "blanks": COUNT,
        "n_rows": COUNT,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        NumberFormat.from_dict(state["form"])

    @classmethod
    def learn(
        cls, name: str, reader: Reader, sketch: Numbers, sample: pl.Series, remarks: list[str]
    ) -> NumberColumn:
        """Return the column that a sketch of all rows and a sample of them describe."""
        reader = cast(NumberReader, reader)
        middle = cast(float | None, thinned(sample, MEDIAN_ROWS).median())
        median = sketch.low if middle is None else float(middle)
        low, high = (thinned(sample).quantile(q, "linear") for q in (0.25, 0.75))
        spread = 0.0 if low is None or high is None else (float(high) - float(low)) / 2
        constant = sketch.low == sketch.high
        return cls(
            name,
            "number",
            remarks,
            form=reader.format.to_dict(),
            tolerant=reader.tolerant,
            median=None if constant else median,
            middle=median,
            spread=min(spread, LARGEST),
            blanks=sketch.blanks,
            n_rows=sketch.n_rows,
        )

    @cached_property
    def reader(self) -> NumberReader:
        """Reads numbers."""
        return NumberReader(NumberFormat.from_dict(self.form), self.tolerant)

    @property
    def usual(self) -> Value:
        """The median; None if more than half of the rows are blank."""
        return None if 2 * self.blanks > self.n_rows else self.middle

    def names(self) -> list[str]:
        """Return its name, and one for its blanks."""
        value = [self.name] * (self.median is not None)
        return value + [f"{self.name} is blank"] * bool(self.blanks)

    def n_filled(self) -> int:
        """Return 1: hardly a row is blank."""
        return 1

    def block(self, values: pl.Series) -> Matrix:
        """Return the numbers with the median in gaps, and where gaps are."""
        columns = []
        if self.median is not None:
            whole = values.fill_null(self.median) if values.null_count() else values
            columns.append(whole.to_numpy())
        if self.blanks:
            columns.append(values.is_null().cast(pl.Float64).to_numpy())
        return np.column_stack(columns)

    def frame_names(self) -> list[str]:
        """Return its name."""
        return [self.name]

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return the numbers."""
        return [values]

    def news(self, values: pl.Series) -> NotAsInTraining | None:
        """Return how many blanks there are where there were none."""
        n = values.null_count()
        return NotAsInTraining(blanks={self.name: n}) if n and not self.blanks else None

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return the numbers."""
        return values.to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        """Return numbers."""
        return pl.Series(self.name, values, dtype=pl.Float64)

    def in_words(self, value: Value) -> Value:
        """Return a number that is shown as the column writes it."""
        if not isinstance(value, float):
            return value
        return WrittenNumber(value, self.reader.format.show(value))

    def made_of_it(self) -> str:
        """Say that it is a number, and how it is written."""
        return self.reader.format.describe()

    def notes(self) -> list[str]:
        """Describe its format if that is not plain, and what became of its blanks."""
        said = super().notes()
        words = self.reader.format.describe()
        if words != "numbers":
            said.insert(0, f"{self.name}: {words}")
        if self.blanks and self.median is None:
            blanks = say_count(self.blanks, "blank")
            said.append(f"{self.name}: {blanks}, else one value; only what is blank is used")
        elif self.blanks:
            blanks, median = say_count(self.blanks, "blank"), self.in_words(self.median)
            said.append(f"{self.name}: {blanks} filled with the median {median}")
        return said

    def onnx_input(self, g: Any) -> str:
        """Add numbers."""
        return str(g.number(self.name))

    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Return the numbers with the median in gaps, and where gaps are."""
        gap = g.node("IsNaN", value)
        blocks = []
        if self.median is not None:
            blocks.append(g.node("Where", gap, np.array(self.median, dtype=float), value))
        return blocks + [g.cast(gap, np.float64)] * bool(self.blanks)

    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Return the numbers."""
        return {self.name: value}

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return numbers around the median."""
        return self.typed(with_gaps(rng.normal(self.middle, 2 * self.spread or 1.0, n), rng))


@dataclass(frozen=True)
class FlagColumn(NumberColumn):
    """Yes and no: the numbers 1 and 0, shown with the words of the column."""

    _state_fields: ClassVar[Fields] = {}

    @classmethod
    def _check_state(cls, state: State) -> None:
        FlagFormat.from_dict(state["form"])

    @classmethod
    def learn(
        cls, name: str, reader: Reader, sketch: Numbers, sample: pl.Series, remarks: list[str]
    ) -> FlagColumn:
        """Return the column that a sketch of all rows and a sample of them describe."""
        reader = cast(FlagReader, reader)
        share = cast(float | None, sample.cast(pl.Float64).mean())
        usual = sketch.low if share is None else float(share > 0.5)
        return cls(
            name,
            "flag",
            remarks,
            form=reader.format.to_dict(),
            tolerant=reader.tolerant,
            median=None if sketch.low == sketch.high else usual,
            middle=usual,
            spread=0.5,
            blanks=sketch.blanks,
            n_rows=sketch.n_rows,
        )

    @cached_property
    def reader(self) -> FlagReader:  # type: ignore[override]
        """Reads yes and no."""
        return FlagReader(FlagFormat.from_dict(self.form), self.tolerant)

    def block(self, values: pl.Series) -> Matrix:
        """Return 1 for yes and 0 for no."""
        return super().block(values.cast(pl.Float64))

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return 1 for yes and 0 for no."""
        return [values.cast(pl.Float64)]

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return 1 for yes and 0 for no."""
        return values.cast(pl.Float64).to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        """Return truth values."""
        return pl.Series(self.name, values, dtype=pl.Float64).cast(pl.Boolean)

    def in_words(self, value: Value) -> Value:
        """Return the word of the column for 0 or 1."""
        return self.reader.format.words[int(value)] if value in (0.0, 1.0) else value

    def ends(self) -> tuple[str, str] | None:
        """Return the words of the column."""
        return self.reader.format.words

    def made_of_it(self) -> str:
        """Say what its words are."""
        no, yes = self.reader.format.words
        return f"{no} or {yes}"

    def notes(self) -> list[str]:
        """Say what became of its blanks."""
        said = [f"{self.name}: {remark}" for remark in self.remarks]
        if self.blanks:
            usual = self.in_words(self.middle)
            said.append(f"{self.name}: {say_count(self.blanks, 'blank')} filled with {usual!r}")
        return said

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return random yes and no."""
        return self.typed(with_gaps(rng.integers(0, 2, n).astype(float), rng))
