"""What the cells of a column that are written alike tell, by each way to read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.rows.date_features import DAY, Floats
from riskad.tables.formats.moment_patterns import Way, directives
from riskad.tables.formats.moment_reading import Cells, month_words, read_cells

__all__ = ["Cell", "Reading", "Steps", "Writing", "first_of", "is_number_like", "order_of"]

Cell = tuple[int, str]  # the row and what is in it
Mask = NDArray[np.bool_]
_FEW = 8  # dates that must differ for numbers like 20250327 to be dates
_FIRST_CELLS = 256
_MONTHS_ALONE = ("%Y-%m", "%Y/%m", "%m-%Y", "%m/%Y")
_METRES = r"^-?[0-9.,]+\s?m$"  # or minutes
# Whole numbers count seconds only within 2000 to 2039.
_UNIX = (946_684_800.0, 2_208_988_800.0)


def first_of(*cells: Cell | None) -> Cell | None:
    """The cell of the lowest row."""
    return min((cell for cell in cells if cell), key=lambda cell: cell[0], default=None)


def is_number_like(pattern: str) -> bool:
    """Whether cells are whole numbers that may mean something else."""
    return pattern in ("unix", "unix ms", "%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S")


def order_of(way: Way) -> str:
    """In which order a pattern has day, month and year.

    >>> order_of(("date", "%m/%d/%Y %H:%M"))
    'mdy'
    """
    return "".join(each for each in directives(way[1].lower()) if each in "dmyb")[:3]


@dataclass(frozen=True)
class Steps:
    """How seconds go from row to row."""

    ups: int
    downs: int
    first: float
    last: float

    @classmethod
    def of(cls, seconds: Floats) -> Steps:
        """Count steps; there is at least one row."""
        steps = np.diff(seconds)
        ups, downs = int(np.sum(steps > 0)), int(np.sum(steps < 0))
        return cls(ups, downs, float(seconds[0]), float(seconds[-1]))

    def joined(self, other: Steps) -> Steps:
        """The steps of rows and of those that follow."""
        between = Steps.of(np.array([self.last, other.first]))
        ups = self.ups + between.ups + other.ups
        return Steps(ups, self.downs + between.downs + other.downs, self.first, other.last)

    @property
    def steady(self) -> bool:
        """Whether at least three steps all go one way."""
        return max(self.ups, self.downs) >= 3 and min(self.ups, self.downs) == 0


@dataclass(frozen=True)
class Reading:
    """One way to read cells: how many it can, the first it cannot, and whether rows are in order.

    `steps` is None where cells have decided for a way, and order has nothing more to say.
    """

    way: Way
    n: int
    unread: Cell | None
    steps: Steps | None

    def joined(self, other: Reading) -> Reading:
        """What both tell."""
        steps = self.steps.joined(other.steps) if self.steps and other.steps else None
        return Reading(self.way, self.n + other.n, first_of(self.unread, other.unread), steps)


@dataclass(frozen=True)
class Writing:
    """Cells that are written alike: those that at least one of the ways reads.

    `offsets` are up to two of the offsets from Greenwich, `words` the names of months or whether
    units other than `m` occur, `values` up to eight dates of cells that look like numbers.
    """

    n: int
    first: Cell
    last_row: int
    readings: tuple[Reading, ...]
    offsets: frozenset[float] = frozenset()
    words: frozenset[str] = frozenset()
    values: frozenset[float] = frozenset()

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways to read these cells."""
        return tuple(reading.way for reading in self.readings)

    @classmethod
    def of(
        cls, texts: pl.Series, rows: NDArray[np.int64], ways: tuple[Way, ...]
    ) -> tuple[Self | None, Mask]:
        """What texts tell, None if no way reads any; and which are read."""
        masks, cells = _read_by(texts, ways)
        taken: Mask = np.any(masks, axis=0)
        if not taken.any():
            return None, taken

        def cell(where: Mask) -> Cell | None:
            at = int(np.argmax(where))
            return (int(rows[at]), texts[at]) if where[at] else None

        tied = len({int(mask.sum()) for mask in masks}) < len(masks) and len(ways) > 1
        readings = tuple(
            Reading(way, int(mask.sum()), cell(taken & ~mask), _steps(texts, way, mask, tied))
            for way, mask in zip(ways, masks, strict=True)
        )
        kind, pattern = ways[0]
        last = len(taken) - 1 - int(np.argmax(taken[::-1]))
        found = cls(int(taken.sum()), cell(taken) or (0, ""), int(rows[last]), readings)
        if "%b" in pattern:
            found = replace(found, words=month_words(texts.unique(), kind, pattern))
        if pattern == "units":
            metres = texts.filter(pl.Series(taken)).str.contains(_METRES)
            has = {"m": metres.any(), "units": not metres.all()}
            found = replace(found, words=frozenset(word for word in has if has[word]))
        offsets = np.unique(cells.offsets[~np.isnan(cells.offsets)])
        values = np.unique(cells.seconds[taken])[: _FEW if is_number_like(pattern) else 0]
        found = replace(found, offsets=frozenset(offsets[:2]), values=frozenset(values))
        return found, taken

    def joined(self, other: Self) -> Self:
        """What these cells and those that follow tell; both have the same ways."""
        return replace(
            self,
            n=self.n + other.n,
            first=min(self.first, other.first),
            last_row=max(self.last_row, other.last_row),
            readings=tuple(
                one.joined(two) for one, two in zip(self.readings, other.readings, strict=True)
            ),
            offsets=frozenset(sorted(self.offsets | other.offsets)[:2]),
            words=self.words | other.words,
            values=frozenset(sorted(self.values | other.values)[:_FEW]),
        )


def _steps(texts: pl.Series, way: Way, mask: Mask, tied: bool) -> Steps | None:
    if not tied or way[0] != "date" or not mask.any():
        return None
    seconds = read_cells(texts, *way).seconds
    return Steps.of(seconds[~np.isnan(seconds)])


def _read_by(texts: pl.Series, ways: tuple[Way, ...]) -> tuple[list[Mask], Cells]:
    """Which cells each way reads, and the cells by the way that reads most of the first ones."""
    if len(ways) == 1:
        cells = read_cells(texts, *ways[0])
        if is_number_like(ways[0][1]) or ways[0][1] in _MONTHS_ALONE:
            return [cells.read & _plausible(texts, cells.seconds, ways[0][1])], cells
        return [cells.read], cells
    few = texts.drop_nulls().head(_FIRST_CELLS)
    counts = [int(read_cells(few, *way).read.sum()) for way in ways]
    best = int(np.argmax(counts))
    cells = read_cells(texts, *ways[best])
    masks = [
        cells.read if way == ways[best] else _also_read(texts, cells, ways[best], way)
        for way in ways
    ]
    return masks, cells


def _also_read(texts: pl.Series, cells: Cells, way: Way, other: Way) -> Mask:
    """Which cells the other way reads, most of which were read by the first.

    Where day and month change places a cell can be read both ways if the day is at most 12.
    """
    if {order_of(way), order_of(other)} != {"dmy", "mdy"}:
        return read_cells(texts, *other).read
    read = cells.read
    days = pl.Series(np.floor(cells.seconds / DAY), nan_to_null=True).cast(pl.Int32).cast(pl.Date)
    mask = (days.dt.day() <= 12).fill_null(False).to_numpy().copy()
    mask[~read] = read_cells(texts.filter(pl.Series(~read)), *other).read
    return mask


def _plausible(texts: pl.Series, seconds: Floats, pattern: str) -> Mask:
    """Whether numbers may be moments: whole, seconds of our time or dates of 1900 to 2100.

    4711-05 is a number of something, too.
    """
    whole = texts.str.contains(r"^\s*[0-9]+([-/][0-9]+)?\s*$").fill_null(False).to_numpy()
    low, high = _UNIX if pattern.startswith("unix") else (-2_208_988_800.0, 4_133_980_800.0)
    with np.errstate(invalid="ignore"):
        return whole & (seconds >= low) & (seconds < high)
