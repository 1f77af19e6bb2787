"""Summaries of columns in one pass over a table: sketches of parts that join, in bounded memory.

Each sketch is made `of` some rows and is `joined` with that of the following rows, so that parts
may be counted anywhere and in parallel. `most` bounds its size; None is for rows that are already
in memory, and then everything is exact. Counts of rows and blanks, extremes, and up to `most`
different values are always exact. Beyond that

- the number of different values is estimated from the `most` smallest of their hashes, which are
  spread evenly over [0, 1): with h the largest there are about (most - 1) / h;
- frequent texts are found by Misra and Gries's method: if there are too many, all counts are
  lowered by that of the first text to go. A text in more than (rows / most) rows is never lost;
- medians come from a random sample of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

_BLOCK_ROWS, _MANY_LEVELS = 1 << 16, 1 << 13
_EXACT = 2.0**53  # up to which a float holds every whole number


def blocks(column: pl.Series) -> Iterator[pl.Series]:
    """A column in parts, of which there is one at least: steps need little memory beside it."""
    for start in range(0, max(len(column), 1), _BLOCK_ROWS):
        yield column[start : start + _BLOCK_ROWS]


def _sum_by_level(counts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    rows = pl.concat([part.cast({"rows": pl.Int64}) for part in counts])
    return rows.group_by("level").agg(pl.col("rows").sum())


@dataclass(frozen=True)
class Distinct:
    """The smallest hashes of the values of a column."""

    hashes: pl.Series
    most: int | None

    @classmethod
    def of(cls, values: pl.Series, most: int | None) -> Self:
        """Sketch values, none of them null."""
        return cls.smallest(values.hash(0).unique(), most)

    def joined(self, other: Self) -> Self:
        """The sketch of both."""
        return self.smallest(pl.concat([self.hashes, other.hashes]).unique(), self.most)

    @classmethod
    def smallest(cls, hashes: pl.Series, most: int | None) -> Self:
        """Sketch values of these hashes, none of them twice."""
        return cls(hashes if most is None or len(hashes) <= most else hashes.bottom_k(most), most)

    def n_shared(self, other: Self) -> int:
        """How many values are in both, or an estimate: only the smallest hashes can meet."""
        both = pl.concat([self.hashes, other.hashes])
        return round((len(both) - both.n_unique()) / min(self._share, other._share))

    @property
    def _share(self) -> float:
        """The share of all possible hashes that are small enough to be kept."""
        if self.most is None or len(self.hashes) < self.most:
            return 1.0
        return float(cast(int, self.hashes.max())) / 2.0**64

    @property
    def number(self) -> int:
        """The number of different values, or an estimate."""
        n, share = len(self.hashes), self._share
        return n if share == 1 else round((n - 1) / share)


@dataclass(frozen=True)
class Numbers:
    """A column of numbers; `distinct` is kept as long as all are whole.

    `repeats` counts the values that occurred before; between parts with many values it is an
    estimate. All whole numbers lie on a grid of `step` from `low`.
    """

    n_rows: int
    blanks: int
    low: float
    high: float
    distinct: Distinct | None = None
    repeats: int = 0
    step: int = 0

    @classmethod
    def of_ends(cls, values: pl.Series) -> Self:
        """Sketch numbers, null if missing, without what whole numbers have in common."""
        low, high = (cast(float | None, end) for end in (values.min(), values.max()))
        low, high = math.inf if low is None else low, -math.inf if high is None else high
        return cls(len(values), values.null_count(), low, high)

    @classmethod
    def of(cls, values: pl.Series, most: int | None) -> Self:
        """Sketch numbers, null if missing."""
        ends, filled = cls.of_ends(values), values.drop_nulls()
        if not all((part % 1 == 0).all() for part in blocks(filled)):
            return ends
        hashes = pl.concat([part.hash(0).unique() for part in blocks(filled)]).unique()
        distinct, repeats = Distinct.smallest(hashes, most), len(filled) - len(hashes)
        # A float beyond 2^53 no longer holds each whole number, so that a grid would be rounding.
        step = 0 if ends.high - ends.low < _EXACT else 1
        for part in blocks(filled):
            if step != 1:
                apart = (part - ends.low).to_numpy().astype(np.int64)
                step = int(np.gcd.reduce(apart, initial=step))
        return replace(ends, distinct=distinct, repeats=repeats, step=step)

    def joined(self, other: Self) -> Self:
        """The sketch of both."""
        distinct, repeats, step = None, 0, 0
        if self.distinct and other.distinct:
            distinct = self.distinct.joined(other.distinct)
            repeats = self.repeats + other.repeats + self.distinct.n_shared(other.distinct)
            filled = min(self.n_rows - self.blanks, other.n_rows - other.blanks) > 0
            apart = abs(self.low - other.low) if filled else 0.0
            step = math.gcd(self.step, other.step, int(apart) if apart < _EXACT else 1)
        n_rows, blanks = self.n_rows + other.n_rows, self.blanks + other.blanks
        low, high = min(self.low, other.low), max(self.high, other.high)
        return type(self)(n_rows, blanks, low, high, distinct, repeats, step)


@dataclass(frozen=True)
class Texts:
    """A column of texts: how often each occurs. `distinct` is kept if some were dropped."""

    n_rows: int
    blanks: int
    counts: pl.DataFrame
    most: int | None
    distinct: Distinct | None = None

    @classmethod
    def of(cls, texts: pl.Series, most: int | None) -> Self:
        """Sketch texts, null if missing."""
        filled = texts.drop_nulls().alias("level")
        few = 2 * filled.head(_MANY_LEVELS).n_unique() <= _MANY_LEVELS
        parts = blocks(filled) if few else [filled]  # counts of many levels take more than texts
        counts = _sum_by_level(part.value_counts(name="rows") for part in parts)
        return cls(len(texts), texts.null_count(), counts, most)._frequent()

    def joined(self, other: Self) -> Self:
        """The sketch of both."""
        inexact = self.distinct or other.distinct
        distinct = self._hashed().joined(other._hashed()) if inexact else None
        n_rows, blanks = self.n_rows + other.n_rows, self.blanks + other.blanks
        counts = _sum_by_level([self.counts, other.counts])
        return type(self)(n_rows, blanks, counts, self.most, distinct)._frequent()

    def _hashed(self) -> Distinct:
        return self.distinct or Distinct.of(self.counts["level"], self.most)

    def _frequent(self) -> Self:
        if self.most is None or self.counts.height <= self.most:
            return self
        ordered = self.counts.sort("rows", descending=True)
        lowered = ordered.head(self.most).with_columns(pl.col("rows") - ordered["rows"][self.most])
        return replace(self, counts=lowered.filter(pl.col("rows") > 0), distinct=self._hashed())

    @property
    def n_distinct(self) -> int:
        """The number of different texts, or an estimate."""
        return self.counts.height if self.distinct is None else self.distinct.number

    def levels(self, blank: str) -> pl.DataFrame:
        """Texts and how often they occur, the most frequent first; nulls count as `blank`."""
        counts = self.counts
        if self.blanks:
            nulls = pl.DataFrame({"level": [blank], "rows": [self.blanks]})
            counts = _sum_by_level([counts, nulls])
        return counts.sort(["rows", "level"], descending=[True, False])


@dataclass(frozen=True)
class RowSample:
    """Random rows: each draws a key, and the smallest are kept, of parts as of the whole."""

    rows: pl.DataFrame
    keys: NDArray[np.float64]
    n_rows: int
    most: int | None

    @classmethod
    def of(cls, rows: pl.DataFrame, seed: int, most: int | None, of_rows: int = 0) -> Self:
        """Sample some rows; each part needs another seed.

        If it is known of how many rows these are some, keys that will not be among the smallest of
        all of them, by more than eight standard deviations, are dropped at once.
        """
        n = rows.height
        if most is None:
            return cls(rows, np.empty(0), n, most)
        keys = np.random.default_rng(seed).random(n)
        if of_rows > most:
            small = np.flatnonzero(keys * of_rows < most + 8 * math.sqrt(most))
            rows, keys = rows[small], keys[small]
        return cls(rows, keys, n, most)._thinned()

    def joined(self, other: Self) -> Self:
        """The sample of both; in the order of the rows."""
        rows = pl.concat([self.rows, other.rows], how="vertical_relaxed")
        keys = np.concatenate([self.keys, other.keys])
        return type(self)(rows, keys, self.n_rows + other.n_rows, self.most)._thinned()

    def _thinned(self) -> Self:
        if self.most is None or self.rows.height <= self.most:
            return self
        # Sorted again, so that the rows keep their order.
        places = np.sort(np.argpartition(self.keys, self.most)[: self.most])
        return replace(self, rows=self.rows[places], keys=self.keys[places])

    @property
    def complete(self) -> bool:
        """Whether no row was left out."""
        return self.rows.height == self.n_rows
