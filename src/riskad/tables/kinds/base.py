"""What every kind of column does, and the registry of kinds.

A table is read once into typed columns (`Column.reader`), and each of these becomes features of a
`riskad.rows.table.Table`. A new kind is a subclass of `Column`, registered by `register_kind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.files import fields
from riskad.files.codec import register
from riskad.files.fields import TEXT, ListOf
from riskad.tables.cells import BLANK, Reader, Value
from riskad.tables.formats.moments import to_seconds
from riskad.tables.notes import NotAsInTraining, pluralize
from riskad.tables.sketches import Numbers, Texts

MEDIAN_ROWS = 1 << 16
"""Rows from which medians are computed; more rows hardly change them."""


class Feature(NamedTuple):
    """A column of a `Table` that comes from a column of the user's table."""

    name: str
    values: NDArray[np.float64]
    levels: list[str] | None = None  # the texts of codes; None for numbers
    period: float | None = None  # the length of a round, for a number that comes round


@dataclass(frozen=True)
class ColumnProfile:
    """What one pass over the rows showed of a column."""

    name: str
    requested: str  # the kind that the user asked for; blank if none
    reader: Reader
    look: Any  # which formats its cells may have (`riskad.tables.profiling.Look`)
    sketch: Numbers | Texts  # counts over all rows
    values: pl.Series  # typed, of all rows, or of a random sample
    written: str = ""  # how the user asked for it: the word after the colon

    @property
    def n_filled(self) -> int:
        """Rows that are not blank."""
        return self.sketch.n_rows - self.sketch.blanks

    @property
    def is_constant(self) -> bool:
        """Whether all filled cells are the same."""
        sketch = self.sketch
        return sketch.n_distinct == 1 if isinstance(sketch, Texts) else sketch.low == sketch.high

    def remarks(self) -> list[str]:
        """Say how numbers, flags or moments were read, and which cells could not be."""
        look = self.look.cells.get(self.reader.word)
        remarks = [] if look is None else look.remarks()
        if look is not None and look.first_bad is not None:
            row, cell = look.first_bad
            cells = pluralize(look.n_bad, "cell")
            remarks.append(f"{cells} not so written count as blank, {cell!r} in row {row:,} first")
        return remarks


@dataclass(frozen=True)
class Column(ABC):
    """A column of the user's table; of those left out the kind is identifier, constant, ..."""

    name: Annotated[str, fields.NAME]
    kind: str
    # For the user, on how it was read.
    remarks: Annotated[list[str], ListOf(TEXT)] = field(default_factory=list)

    used: ClassVar[bool] = True
    dtype: ClassVar[Any] = pl.String  # of typed values
    reader: ClassVar[Reader] = Reader()  # as texts, unless a kind has formats
    forms: ClassVar[tuple[str, ...]] = ()  # words that may follow the kind and a colon

    # What a kind must say.

    @classmethod
    @abstractmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if it is of this kind; otherwise None."""

    @property
    @abstractmethod
    def typical(self) -> Value:
        """A usual value, as `plain` gives it; None for a blank."""

    @abstractmethod
    def features(self, values: pl.Series) -> list[Feature]:
        """Return the features of typed values."""

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what becomes of the column."""

    # What a kind may say besides.

    @property
    def requested_kind(self) -> str:
        """The kind by which `TablePreparer(kinds=...)` finds it again; blank if it will anyway."""
        return self.kind

    @property
    def extremes(self) -> tuple[str, str] | None:
        """Words for small and large values; None if values have no order."""
        return None

    @property
    def usual_range(self) -> tuple[float, float]:
        """Where most numbers lie."""
        return 0.0, 1.0

    def show(self, value: Value) -> Value:
        """Return a plain value as the user knows it: a number or a text."""
        return value

    def check_new(self, values: pl.Series) -> NotAsInTraining | None:
        """Return what typed values have that those of the fit did not have."""
        return None

    def listed(self) -> str:
        """Return its name for a list of columns."""
        return self.name

    def notes(self) -> list[str]:
        """List what the user should know about it."""
        return [f"{self.name}: {remark}" for remark in self.remarks]

    def onnx_features(self, graph: Any, cells: str) -> list[str]:
        """Return the nodes that give `features`; `cells` are texts, or numbers with NaN."""
        raise InputError(
            f"Column {quoted(self.name)} is of the kind {self.kind!r}, which ONNX cannot compute. "
            "Fit a model without it (drop) to export it."
        )

    # What follows.

    def plain(self, values: pl.Series) -> NDArray[Any]:
        """Return values to compare: numbers with NaN for blanks, seconds, or texts with None."""
        if values.dtype == pl.String:
            return values.to_numpy().astype(object)
        numbers = to_seconds(values) if values.dtype.is_temporal() else values.cast(pl.Float64)
        return numbers.to_numpy()

    def typed(self, values: list[Value]) -> pl.Series:
        """Return plain values as the reader would; the inverse of `plain`."""
        return pl.Series(self.name, values, dtype=self.dtype)

    def typical_of(self, values: pl.Series) -> Value:
        """Return the most frequent text, or the median number: None if most are blank."""
        plain = pl.Series(self.plain(values).tolist(), strict=False)
        if plain.dtype in (pl.String, pl.Null):
            return str(plain.cast(pl.String).fill_null(BLANK).mode().sort()[0])
        filled = plain.fill_nan(None).drop_nulls()
        return None if 2 * len(filled) < len(plain) else float(cast(float, filled.median()))

    def random_values(self, rng: np.random.Generator, n: int) -> pl.Series:
        """Return values to try a model on, a tenth of them blank.

        Numbers are of the usual range; of texts, all are the typical one.
        """
        if self.dtype == pl.String:
            return self.typed([None if rng.random() < 0.1 else self.typical for _ in range(n)])
        numbers = rng.uniform(*self.usual_range, n).round(3)
        blank = rng.random(n) < 0.1
        return self.typed([None if b else float(v) for v, b in zip(numbers, blank, strict=True)])


@dataclass(frozen=True)
class LeftOut(Column):
    """A column without information, or one that names the rows, and why it is left out."""

    why: str = ""

    used = False
    typical = None

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        return None  # other kinds decide what is left out

    def features(self, values: pl.Series) -> list[Feature]:
        return []

    def describe(self) -> str:
        return f"left out: {self.why}"

    def notes(self) -> list[str]:
        return [f"left out {self.name!r}: {self.why}", *super().notes()]


class Vectors:
    """Cells as short vectors: numbers with a name each, and learned `directions`."""

    directions: NDArray[Any]  # a column each
    shape: ClassVar[tuple[str, ...]]  # the names of the other numbers
    word: ClassVar[str] = "direction"

    @property
    def names(self) -> list[str]:
        """The name of each number."""
        directions = (f"{self.word} {i + 1}" for i in range(self.directions.shape[1]))
        return [*self.shape, *directions]

    @staticmethod
    def leading(rows: Any, size: int) -> NDArray[Any]:
        """Return the leading singular directions of some rows, a row each; always the same."""
        from sklearn.utils.extmath import randomized_svd  # scoring does without

        return np.asarray(randomized_svd(rows, size, n_iter=4, random_state=0)[2])


@dataclass(frozen=True)
class VectorColumn(Column):
    """A column whose cells become short vectors; it stores none of the cells."""

    blanks: Annotated[int, fields.COUNT] = 0

    typical = None

    def typical_of(self, values: pl.Series) -> Value:
        return None

    def show(self, value: Value) -> Value:
        return BLANK if value is None else value

    def named(self, vectors: Vectors, rows: NDArray[np.float64]) -> list[Feature]:
        """Return a feature for each number of the vectors of some rows."""
        return [Feature(f"{self.name}: {n}", rows[:, j]) for j, n in enumerate(vectors.names)]


KINDS: dict[str, type[Column]] = {}
"""The kinds by the names under which a user may ask for them; the first that fits is taken."""
STORED: dict[str, type] = {"LeftOut": register(LeftOut)}
"""The classes of columns that a model file may hold, by name."""


def register_kind(cls: type[Column], *names: str) -> None:
    """Add a kind of column, which is asked before those that were there, and can be saved.

    `TablePreparer(kinds=...)` and `riskad fit --kind` call it by `names`.
    """
    STORED[cls.__name__] = register(cls)
    others = dict(KINDS)
    KINDS.clear()
    KINDS.update(dict.fromkeys(names, cls) | others)
