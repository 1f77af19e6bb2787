"""Columns that name some of the rows: whether there is a name may be informative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.storage.fields import COUNT, TEXT, Fields
from riskad.tables.cells import BLANK, Value
from riskad.tables.prepared.base import UsedColumn, with_gaps
from riskad.tables.readers import TextReader
from riskad.tables.words import say_count

__all__ = ["PresenceColumn"]

_FILLED = "(filled)"


@dataclass(frozen=True)
class PresenceColumn(UsedColumn):
    """A column of which only the blanks are used: a telephone number, a reference.

    Plain values are 1 for a blank and 0 for anything else.

    Parameters
    ----------
    why
        Why its values are not used.
    blanks
        Rows without a value.
    """

    why: str = ""
    blanks: int = 0

    _state_fields: ClassVar[Fields] = {"why": TEXT, "blanks": COUNT}

    @property
    def reader(self) -> TextReader:
        """Reads texts."""
        return TextReader()

    @property
    def given_kind(self) -> str:
        """Return that there is none: it is found again."""
        return ""

    @property
    def usual(self) -> Value:
        """A value that is there."""
        return 0.0

    def names(self) -> list[str]:
        """Return a name for its blanks."""
        return [f"{self.name} is blank"]

    def block(self, values: pl.Series) -> NDArray[np.float64]:
        """Return where it is blank."""
        return self.plain(values)[:, None]

    def frame_names(self) -> list[str]:
        """Return a name for its blanks."""
        return self.names()

    def frame_columns(self, values: pl.Series) -> list[pl.Series]:
        """Return where it is blank."""
        return [pl.Series(self.names()[0], self.plain(values))]

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return 1 for a blank."""
        return values.is_null().cast(pl.Float64).to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        """Return some text for 0, and null for 1."""
        return pl.Series(self.name, [None if v else _FILLED for v in values], dtype=pl.String)

    def in_words(self, value: Value) -> Value:
        """Return whether it is blank."""
        return BLANK if value else _FILLED

    def ends(self) -> tuple[str, str] | None:
        """Return what 0 and 1 mean."""
        return _FILLED, BLANK

    def listed(self) -> str:
        """Return its name, and that only blanks count."""
        return f"{self.name} (only whether it is blank)"

    def made_of_it(self) -> str:
        """Say what is used."""
        return f"whether it is blank; else left out: {self.why}"

    def notes(self) -> list[str]:
        """Say what is used."""
        blanks = say_count(self.blanks, "blank")
        return [f"{self.name}: {blanks}; what it holds is not used ({self.why})", *super().notes()]

    def onnx_input(self, g: Any) -> str:
        """Add texts."""
        return str(g.text(self.name))

    def onnx_block(self, g: Any, value: str) -> list[str]:
        """Return where it is blank."""
        codes = {"keys_strings": [""], "values_floats": [1.0], "default_float": 0.0}
        return [g.cast(g.ml("LabelEncoder", value, **codes), np.float64)]

    def onnx_frame(self, g: Any, value: str) -> Mapping[str, str]:
        """Return where it is blank."""
        return {self.names()[0]: self.onnx_block(g, value)[0]}

    def trial(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return some values and some blanks."""
        return self.typed([1.0 if v is None else 0.0 for v in with_gaps(np.zeros(n), rng)])
