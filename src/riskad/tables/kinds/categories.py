"""Columns of categories, and columns of which only the blanks count."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Annotated, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.files.fields import COUNT, TEXT, ListOf
from riskad.tables.cells import BLANK, FEW_ROWS, Value
from riskad.tables.kinds.base import Column, ColumnProfile, Feature, LeftOut
from riskad.tables.kinds.texts import MANY_LEVELS, format_hint, text_kind
from riskad.tables.notes import MOST_NEW_VALUES, NotAsInTraining, pluralize
from riskad.tables.pictures import picture_columns
from riskad.tables.sketches import Texts

_FILLED = "(filled)"


def enough_rows(n_rows: int) -> int:
    """Return how many rows must have a level for it to be told from others."""
    return min(max(n_rows // 200, 2), 10)


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Texts, each of them a level."""

    levels: Annotated[list[str], ListOf(TEXT, different=True, nonempty=True)] = field(
        default_factory=list
    )  # the most frequent first
    n_levels: Annotated[int, COUNT] = 0  # of all levels, or an estimate
    complete: bool = True  # whether `levels` are all, so that another text is new
    blanks: Annotated[int, COUNT] = 0
    frequent: str = ""  # the level that most rows have, "(blank)" if most are blank

    requested_kind = "category"

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column of any texts; it is left out if hardly two rows share one."""
        sketch, hint = cast(Texts, profile.sketch), format_hint(profile.look)
        counts, enough = sketch.levels(BLANK), enough_rows(profile.sketch.n_rows)
        if counts["rows"][0] < enough:
            why = f"none of its values occurs in {enough} rows"
            return LeftOut(profile.name, "identifier", hint, why=why)
        n_rare = sketch.n_distinct - counts.filter(pl.col("rows") >= enough).height
        if sketch.n_distinct <= MANY_LEVELS and n_rare > 0:
            hint = [*hint, f"{pluralize(n_rare, 'value')} in fewer than {enough} rows"]
        return cls(
            profile.name,
            "categories" if sketch.n_distinct > MANY_LEVELS else "category",
            hint,
            levels=counts.filter(pl.col("level") != BLANK)["level"].to_list(),
            n_levels=sketch.n_distinct + (sketch.blanks > 0),
            complete=sketch.distinct is None,
            blanks=sketch.blanks,
            frequent=counts["level"][0],
        )

    @property
    def typical(self) -> Value:
        return self.frequent

    def features(self, values: pl.Series) -> list[Feature]:
        """Return codes: NaN where a cell is blank or holds a new level."""
        codes = self._codes(values)
        return [Feature(self.name, np.where(codes < 0, np.nan, codes), self.levels)]

    def _codes(self, texts: pl.Series) -> NDArray[np.int32]:
        """The position of each text among the levels, -1 where it is none of them."""
        if len(texts) <= FEW_ROWS:  # for which polars takes longer to be called
            positions = list(map(self._positions.get, texts.to_list(), repeat(-1)))
            return np.array(positions, dtype=np.int32)
        levels = texts.cast(pl.Enum(self.levels), strict=False)
        return levels.to_physical().cast(pl.Int32).fill_null(-1).to_numpy()

    @cached_property
    def _positions(self) -> dict[str | None, int]:
        return {level: code for code, level in enumerate(self.levels)}

    def check_new(self, values: pl.Series) -> NotAsInTraining | None:
        # Only where all levels are stored is another one new; blank is one.
        unseen = pl.Series(self._codes(values) < 0) if self.complete else values.is_null()
        if self.blanks and values.null_count():
            unseen &= values.is_not_null()
        if not unseen.any():
            return None
        new = values.filter(unseen).fill_null(BLANK).unique().sort().head(MOST_NEW_VALUES)
        return NotAsInTraining(rows={self.name: int(unseen.sum())}, values={self.name: set(new)})

    def typed(self, values: list[Value]) -> pl.Series:
        texts = [None if value == BLANK else value for value in values]
        return pl.Series(self.name, texts, dtype=pl.String)

    def random_values(self, rng: np.random.Generator, n: int) -> pl.Series:
        texts = np.array([*self.levels, "a new value", None], dtype=object)
        return self.typed(rng.choice(texts, n).tolist())

    def listed(self) -> str:
        return f"{self.name} ({self.describe()})"

    def describe(self) -> str:
        return pluralize(self.n_levels, "level")

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        return [onnx_codes(graph, cells, self.levels)]


def onnx_codes(graph: Any, texts: str, levels: list[str]) -> str:
    """Return the positions of texts among levels in a graph, NaN for others."""
    codes = {"keys_strings": levels, "values_floats": [float(code) for code in range(len(levels))]}
    encoded = graph.ml("LabelEncoder", texts, **codes, default_float=float("nan"))
    return str(graph.cast(encoded, np.float64))


@dataclass(frozen=True)
class PresenceColumn(Column):
    """A column of which only the blanks count: a telephone number, a reference.

    Plain values are 1 for a blank and 0 for anything else.
    """

    why: str = ""  # its values are not used
    blanks: Annotated[int, COUNT] = 0

    requested_kind = "presence"
    typical = 0.0
    extremes = _FILLED, BLANK

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if its texts name the rows; without blanks it is left out."""
        if profile.requested != "presence" and text_kind(profile) != "identifier":
            return None
        sketch, hint = cast(Texts, profile.sketch), format_hint(profile.look)
        if picture_columns(profile.values.to_frame()):
            hint.append("a network can look at these pictures: riskad fit --backbone FILE.onnx")
        n_distinct = f"{sketch.n_distinct:,}"
        if sketch.distinct is not None:  # an estimate
            n_distinct = f"about {float(f'{sketch.n_distinct:.2g}'):,.0f}"
        why = f"{n_distinct} different values in {profile.n_filled:,} rows"
        if not sketch.blanks or min(sketch.blanks, profile.n_filled) < enough_rows(sketch.n_rows):
            return LeftOut(profile.name, "identifier", hint, why=why)
        return cls(profile.name, "identifier", hint, why=why, blanks=sketch.blanks)

    def features(self, values: pl.Series) -> list[Feature]:
        return [Feature(f"{self.name} is blank", self.plain(values))]

    def plain(self, values: pl.Series) -> NDArray[Any]:
        return values.is_null().cast(pl.Float64).to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        return pl.Series(self.name, [None if v else _FILLED for v in values], dtype=pl.String)

    def random_values(self, rng: np.random.Generator, n: int) -> pl.Series:
        return self.typed(rng.integers(0, 2, n).tolist())

    def show(self, value: Value) -> Value:
        return BLANK if value else _FILLED

    def listed(self) -> str:
        return f"{self.name} (only whether it is blank)"

    def describe(self) -> str:
        return f"whether it is blank; else left out: {self.why}"

    def notes(self) -> list[str]:
        blanks = pluralize(self.blanks, "blank")
        return [f"{self.name}: {blanks}; what it holds is not used ({self.why})", *super().notes()]

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        codes = {"keys_strings": [""], "values_floats": [1.0], "default_float": 0.0}
        return [graph.cast(graph.ml("LabelEncoder", cells, **codes), np.float64)]
