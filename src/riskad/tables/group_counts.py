"""The rows of each group, in bounded memory: counts of parts of a table that join.

Each group keeps a limited number of rows, so that all groups together hold no more than 8 million
cells: those with the smallest of random keys, so that the rows kept from parts are a sample of the
whole. Small groups keep every row. Of more than 100,000 groups those with the most rows are kept;
if a dropped group occurs again in a later part, learning about it starts again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl

from riskad.core.checks import InputError
from riskad.tables.group_names import as_texts, hash_texts

__all__ = ["MOST_GROUPS", "GroupCounts", "check_groups"]

MOST_GROUPS = 100_000
_MOST_CELLS = 8_000_000
_OF, _KEY = "\0group", "\0key"  # no column of a table has these names


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """Rows with the hash of their group, those of one group together.

    >>> part = pl.DataFrame({"amount": [1.0, 2.0]})
    >>> counts = GroupCounts.of(part, pl.Series("customer", ["Ann", "Bob"]))
    >>> later = GroupCounts.of(part, pl.Series("customer", ["Cid", "Ann"]), seed=1)
    >>> counts.joined(later).n_groups
    3
    """

    group: str
    """The name of the group column."""
    rows: pl.DataFrame
    most_rows: int
    dropped: int = 0
    """Number of dropped groups."""

    @classmethod
    def of(cls, parsed: pl.DataFrame, groups: pl.Series, *, seed: int = 0) -> Self:
        """Count rows; each part needs another seed. Rows without a group are kept separately."""
        check_groups(parsed, groups)
        keys = np.random.default_rng(seed).random(parsed.height, dtype=np.float32)
        hashes = hash_texts(as_texts(groups))
        rows = parsed.with_columns(hashes.alias(_OF), pl.Series(_KEY, keys))
        return cls(groups.name, rows, _MOST_CELLS // (parsed.width + 2))._thinned()

    def joined(self, other: Self) -> Self:
        """The counts of both."""
        if self.rows.columns != other.rows.columns:
            raise InputError(
                f"parts of one table have the same columns, got {self.columns} and {other.columns}."
            )
        rows = pl.concat([self.rows, other.rows], how="vertical_relaxed")
        return replace(self, rows=rows, dropped=self.dropped + other.dropped)._thinned()

    @property
    def columns(self) -> list[str]:
        """The columns that are compared."""
        return [name for name in self.rows.columns if name not in (_OF, _KEY)]

    @property
    def hashes(self) -> pl.Series:
        """The group of each row, null if it has none."""
        return self.rows[_OF]

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return self.hashes.drop_nulls().n_unique()

    def _thinned(self) -> Self:
        rows = self.rows.sort([_OF, _KEY])
        sizes = rows[_OF].drop_nulls().value_counts(name="rows")
        kept = sizes.sort(["rows", _OF], descending=True).head(MOST_GROUPS)
        dropped = sizes.height - kept.height
        if dropped:
            stays = pl.col(_OF).is_in(kept[_OF].implode()) | pl.col(_OF).is_null()
            rows = rows.filter(stays)
        if rows.height > self.most_rows:
            most = _most_each(kept["rows"].to_numpy(), self.most_rows)
            rows = rows.filter(pl.int_range(pl.len()).over(_OF) < most)
        return replace(self, rows=rows, dropped=self.dropped + dropped)


def _most_each(sizes: np.ndarray, most: int) -> int:
    """How many rows each group may keep, at least one, so that all keep at most `most`."""
    ordered = np.sort(sizes)
    before = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    left = len(ordered) - np.arange(len(ordered))
    caps = (most - before) // np.maximum(left, 1)  # if all smaller groups keep every row
    fits = caps < ordered
    return max(1, int(caps[fits][0])) if fits.any() else most


def check_groups(parsed: pl.DataFrame, groups: pl.Series) -> None:
    """Refuse groups of other rows, and unparsed cells."""
    if len(groups) != parsed.height:
        raise InputError(
            f"each row is of one group, got {len(groups):,} groups for {parsed.height:,} rows."
        )
    if groups.dtype.is_nested():
        raise InputError(
            f"{groups.name!r} cannot say which group a row is of: its cells are lists ("
            f"{groups.dtype}). Name a column of texts or numbers."
        )
    for name, dtype in parsed.schema.items():
        if not (dtype.is_numeric() or dtype in (pl.String, pl.Categorical, pl.Boolean)):
            raise InputError(
                f"column {name!r}: rows are compared within their group by numbers and texts, got "
                f"{dtype}. Parse it first, or leave it out."
            )
