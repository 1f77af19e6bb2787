"""Columns of free text, and of lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.storage.fields import COUNT, Fields, ListOf, Number, Record
from riskad.tables.cells import BLANK, Value
from riskad.tables.prepared.base import UsedColumn
from riskad.tables.readers import TextReader
from riskad.tables.sketches import Texts
from riskad.tables.texts import TextVectors
from riskad.tables.words import say_count

__all__ = ["TextColumn"]


@dataclass(frozen=True)
class TextColumn(UsedColumn):
    """Texts of which hardly two are alike: each becomes a short vector.

    Parameters
    ----------
    vectors
        Makes the vectors.
    fills
        Replacement for a blank: the medians of the vectors.
    blanks, n_rows, n_different
        Rows without a text, all, and different texts.
    """

    vectors: TextVectors = None  # type: ignore[assignment]
    fills: list[float] = field(default_factory=list)
    blanks: int = 0
    n_rows: int = 0
    n_different: int = 0

    _state_fields: ClassVar[Fields] = {
        "vectors": Record(("TextVectors",)),
        "fills": ListOf(Number()),
        "blanks": COUNT,
        "n_rows": COUNT,
        "n_different": COUNT,
    }

    @classmethod
    def learn(
        cls, name: str, kind: str, sketch: Texts, sample: pl.Series, remarks: list[str]
    ) -> TextColumn:
        """Return the column that a sketch of all rows and a sample of them describe."""
        texts = sample.drop_nulls()
        vectors = TextVectors.learn(texts)
        medians = np.median(vectors.features(texts), axis=0)
        return cls(
            name,
            kind,
            remarks,
            vectors=vectors,
            fills=[float(v) for v in medians],
            blanks=sketch.blanks,
            n_rows=sketch.n_rows,
            n_different=sketch.n_distinct,
        )

    @property
    def reader(self) -> TextReader:
        """Reads texts."""
        return TextReader()

    @property
    def given_kind(self) -> str:
        """Return "text", also for lists."""
        return "text"

    @property
    def usual(self) -> Value:
        """No text is usual; a blank represents the middle of all."""
        return None

    def names(self) -> list[str]:
        """Return a name for each number of the vector, and one for its blanks."""
        return self.frame_names() + [f"{self.name} is blank"] * bool(self.blanks)

    def block(self, values: pl.Series) -> NDArray[np.float64]:
        """Return the vectors, with the medians for blanks, and where these are."""
        found = self._vectors(values)
        if not self.blanks:
            return found
        return np.column_stack([found, values.is_null().cast(pl.Float64).to_numpy()])

    def _vectors(self, values: pl.Series) -> NDArray[np.float64]:
        found = np.tile(np.array(self.fills), (len(values), 1))
        known = values.is_not_null().to_numpy()
        if known.any():
            found[known] = self.vectors.features(values.drop_nulls())
        return found

    def frame_names(self) -> list[str]:
        """Return a name for each number of the vector."""
        return self.vectors.names(self.name)

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return the vectors, with gaps for blanks."""
        found = self._vectors(values)
        found[values.is_null().to_numpy()] = np.nan
        names = self.frame_names()
        return [pl.Series(name, found[:, j], nan_to_null=True) for j, name in enumerate(names)]

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return the texts."""
        return values.to_numpy().astype(object)

    def typed(self, values: list[Value]) -> pl.Series:
        """Return texts."""
        return pl.Series(self.name, values, dtype=pl.String)

    def in_words(self, value: Value) -> Value:
        """Return the text."""
        return BLANK if value is None else value

    def made_of_it(self) -> str:
        """Say how long the vectors are."""
        return f"{say_count(len(self.fills), 'number')} for each text"

    def onnx_input(self, g: Any) -> str:
        """Refuse: graphs cannot take texts apart."""
        raise self._not_for_graphs()

    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Refuse."""
        raise self._not_for_graphs()

    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Refuse."""
        raise self._not_for_graphs()

    def _not_for_graphs(self) -> InputError:
        return InputError(
            f"Column {quoted(self.name)} holds free text, which ONNX cannot take apart. Fit a "
            "model without it (drop) to export it."
        )

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return blanks: there is no graph to try."""
        return self.typed([None] * n)
