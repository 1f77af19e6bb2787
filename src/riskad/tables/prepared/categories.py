"""Columns of categories: texts that each name a kind of row."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.storage.fields import COUNT, TEXT, Fields, ListOf, Maybe, State, require
from riskad.tables.cells import BLANK, Value
from riskad.tables.matrices import FEW_ROWS, Matrix, one_hot
from riskad.tables.notes import MOST_NEW_VALUES, NotAsInTraining
from riskad.tables.prepared.base import UsedColumn
from riskad.tables.readers import TextReader
from riskad.tables.sketches import Texts
from riskad.tables.words import say_count

__all__ = ["MANY_LEVELS", "OTHER", "CategoryColumn"]

OTHER = "(other)"
MANY_LEVELS = 50
"""Levels beyond which a category is one of many levels."""


@dataclass(frozen=True)
class CategoryColumn(UsedColumn):
    """Texts, each of them a level.

    In a matrix each level that occurs in enough rows (2 to 10, by the size of the table) has a
    yes/no column, rarer ones share "(other)", and blanks have "(blank)". In a frame the texts are
    unchanged, for detectors that can use them.

    Parameters
    ----------
    levels
        Levels that have a yes/no column.
    n_levels
        Number of all levels, or an estimate.
    rare
        Number of levels that share "(other)".
    rare_hashes
        Hashes of these if there are at most 1,000; otherwise None. A text that is neither a level
        nor one of them is new.
    most_frequent
        The level that most rows have.
    """

    levels: list[str] = field(default_factory=list)
    n_levels: int = 0
    rare: int = 0
    rare_hashes: list[int] | None = None
    most_frequent: str = ""

    _state_fields: ClassVar[Fields] = {
        "levels": ListOf(TEXT),
        "n_levels": COUNT,
        "rare": COUNT,
        "rare_hashes": Maybe(ListOf(COUNT)),
        "most_frequent": TEXT,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        levels = state["levels"]
        require(len(set(levels)) == len(levels) > 0, "levels: expected different texts")

    @classmethod
    def learn(
        cls, name: str, sketch: Texts, max_levels: int, remarks: list[str]
    ) -> CategoryColumn | None:
        """Return the column that a sketch of all rows describes; None if no level is frequent."""
        counts = sketch.levels(BLANK)
        enough = enough_rows(sketch.n_rows)
        common = counts.filter((pl.col("rows") >= enough) & (pl.col("level") != OTHER))
        levels = common["level"].head(max_levels).to_list()
        if not levels:
            return None
        n_values = counts.height if sketch.distinct is None else sketch.n_distinct
        n_rare = n_values - len(levels)
        hashes = None
        if 0 < n_rare <= MOST_NEW_VALUES and sketch.distinct is None:
            rare = counts.filter(~pl.col("level").is_in(levels))["level"]
            hashes = sorted(_hash(text) for text in rare)
        return cls(
            name,
            "categories" if sketch.n_distinct > MANY_LEVELS else "category",
            remarks,
            levels=levels + [OTHER] * (n_rare > 0),
            n_levels=n_values,
            rare=n_rare,
            rare_hashes=hashes,
            most_frequent=counts["level"][0],
        )

    @property
    def reader(self) -> TextReader:
        """Reads texts."""
        return TextReader()

    @property
    def given_kind(self) -> str:
        """Return "category", for any number of levels."""
        return "category"

    @property
    def usual(self) -> Value:
        """The most frequent level."""
        return self.most_frequent

    def names(self) -> list[str]:
        """Return a name for each level."""
        return [f"{self.name}={level}" for level in self.levels]

    def n_columns(self) -> int:
        """Return the number of levels."""
        return len(self.levels)

    def n_filled(self) -> int:
        """Return 1: a row has one level."""
        return 1

    def block(self, values: pl.Series) -> Matrix:
        """Return yes/no columns; a text that was never seen has "(other)", or none."""
        codes = self._codes(_filled(values))
        if OTHER in self._places:
            codes = np.where(codes < 0, np.int32(self._places[OTHER]), codes)
        return one_hot(codes, len(self.levels))

    def _codes(self, texts: pl.Series) -> NDArray[np.int32]:
        """The place of each text among the levels; -1 where it is none of them."""
        if len(texts) <= FEW_ROWS:
            places = self._places
            return np.array([places.get(text, -1) for text in texts.to_list()], dtype=np.int32)
        codes = texts.cast(self._enum, strict=False).to_physical().cast(pl.Int32)
        return codes.fill_null(-1).to_numpy()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {level: place for place, level in enumerate(self.levels)}

    @cached_property
    def _enum(self) -> pl.Enum:
        return pl.Enum(self.levels)

    def frame_names(self) -> list[str]:
        """Return its name."""
        return [self.name]

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return the texts."""
        return [values]

    def news(self, values: pl.Series) -> NotAsInTraining | None:
        """Return which levels are new, if that is known."""
        texts = _filled(values)
        unknown = self._codes(texts) < 0
        if not unknown.any():
            return None
        new = self._without_rare(texts.filter(pl.Series(unknown)))
        if not len(new):
            return None
        shown = set(new.unique().sort().head(MOST_NEW_VALUES))
        return NotAsInTraining(rows={self.name: len(new)}, values={self.name: shown})

    def _without_rare(self, texts: pl.Series) -> pl.Series:
        """Of texts that have no level, those that `fit` has not seen."""
        if OTHER not in self.levels or not len(texts):
            return texts
        if self.rare_hashes is None:
            return texts.clear()
        seen = set(map(str, self.rare_hashes))  # numbers can be chosen so that a set is slow
        known = [text for text in texts.unique() if str(_hash(text)) in seen]
        return texts.filter(~texts.is_in(known))

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return the texts."""
        return values.to_numpy().astype(object)

    def typed(self, values: list[Value]) -> pl.Series:
        """Return texts."""
        return pl.Series(self.name, values, dtype=pl.String)

    def listed(self) -> str:
        """Return its name and how many levels it has."""
        return f"{self.name} ({self.made_of_it()})"

    def made_of_it(self) -> str:
        """Say how many levels it has."""
        return say_count(self.n_levels, "level")

    def notes(self) -> list[str]:
        """Say which levels are grouped."""
        said = super().notes()
        if self.rare and self.kind == "category":
            said.append(f"{self.name}: {say_count(self.rare, 'rare value')} grouped as '{OTHER}'")
        return said

    def onnx_input(self, g: Any) -> str:
        """Add texts."""
        return str(g.text(self.name))

    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Return yes/no columns: rows of the unit matrix, and of zeros for new texts."""
        n = len(self.levels)
        codes = {level: i for i, level in enumerate(self.levels)}
        rest = codes.get(OTHER, n)
        codes[""] = codes.get(BLANK, rest)
        code = g.ml(
            "LabelEncoder",
            value,
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=rest,
        )
        units = g.node("Gather", np.eye(n + 1, n), code)
        return [g.node("Reshape", units, np.array([-1, n]))]

    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Return the texts."""
        return {self.name: value}

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return random levels, and a new one."""
        some = np.array([*self.levels, "a new value", None], dtype=object)
        return self.typed(rng.choice(some, n).tolist())


def enough_rows(n_rows: int) -> int:
    """Return how many rows must have a level for it to be distinguished."""
    return min(max(n_rows // 200, 2), 10)


def _filled(texts: pl.Series) -> pl.Series:
    return texts.fill_null(BLANK) if texts.null_count() else texts


def _hash(text: str) -> int:
    """A number by which to recognise a text that a model should not store."""
    return zlib.crc32(text.encode())
