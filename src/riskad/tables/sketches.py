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
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

_GLANCE = 1_000  # numbers that mostly show whether all are whole
_EXACT = 2.0**53  # up to which a float holds every whole number


@dataclass(frozen=True)
class Distinct:
    """The smallest hashes of the values of a column."""

    hashes: pl.Series
    most: int | None

    @classmethod
    def of(cls, values: pl.Series, most: int | None) -> Self:
        """Sketch values, none of them null."""
        return cls._smallest(values.hash(0), most)

    def joined(self, other: Self) -> Self:
        """The sketch of both."""
        return self._smallest(pl.concat([self.hashes, other.hashes]), self.most)

    @classmethod
    def _smallest(cls, hashes: pl.Series, most: int | None) -> Self:
        hashes = hashes.unique()
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
        if not all((part % 1 == 0).all() for part in (filled.head(_GLANCE), filled)):
            return ends
        distinct, repeats = Distinct.of(filled, most), len(filled) - filled.n_unique()
        step = 1
        if ends.high - ends.low < _EXACT:
            step = int(np.gcd.reduce((filled - ends.low).to_numpy().astype(np.int64), initial=0))
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
        counts = texts.drop_nulls().alias("level").value_counts(name="rows")
        counts = counts.with_columns(pl.col("rows").cast(pl.Int64))
        return cls(len(texts), texts.null_count(), counts, most)._frequent()

    def joined(self, other: Self) -> Self:
        """The sketch of both."""
        distinct = None
        if self.distinct or other.distinct:
            distinct = self._hashed().joined(other._hashed())
        n_rows, blanks = self.n_rows + other.n_rows, self.blanks + other.blanks
        counts = pl.concat([self.counts, other.counts]).group_by("level").agg(pl.col("rows").sum())
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
        nulls = pl.DataFrame({"level": [blank], "rows": [self.blanks]}).head(self.blanks)
        counts = pl.concat([self.counts, nulls]).group_by("level").agg(pl.col("rows").sum())
        return counts.sort(["rows", "level"], descending=[True, False])


@dataclass(frozen=True)
class RowSample:
    """Random rows: each draws a key, and the smallest are kept, of parts as of the whole."""

    rows: pl.DataFrame
    keys: NDArray[np.float64]
    n_rows: int
    most: int | None

    @classmethod
    def of(cls, rows: pl.DataFrame, seed: int, most: int | None) -> Self:
        """Sample some rows; each part needs another seed."""
        n = rows.height
        keys = np.empty(0) if most is None else np.random.default_rng(seed).random(n)
        return cls(rows, keys, n, most)._thinned()

    def joined(self, other: Self) -> Self:
        """The sample of both; in the order of the rows."""
        rows = pl.concat([self.rows, other.rows], how="vertical_relaxed")
        keys = np.concatenate([self.keys, other.keys])
        return type(self)(rows, keys, self.n_rows + other.n_rows, self.most)._thinned()

    def _thinned(self) -> Self:
        if self.most is None or self.rows.height <= self.most:
            return self
        places = np.sort(np.argpartition(self.keys, self.most)[: self.most])
        return replace(self, rows=self.rows[places], keys=self.keys[places])

    @property
    def complete(self) -> bool:
        """Whether no row was left out."""
        return self.rows.height == self.n_rows
