"""Cells of one kind, counted: all of a column's, or those of a part that is joined to others."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

__all__ = ["Tally", "by_length", "join_tallies", "tally_cells"]


class Tally(NamedTuple):
    """Cells of one kind: how many, the first one with its row, and the longest one."""

    n: int
    row: int
    cell: str
    longest: str

    def joined(self, later: Tally | None) -> Tally:
        """Return what both hold."""
        if later is None:
            return self
        first = self if self.row <= later.row else later
        second = later if first is self else self
        longest = max(first.longest, second.longest, key=by_length)
        return Tally(self.n + later.n, first.row, first.cell, longest)


def by_length(cell: str) -> tuple[int, str]:
    """Order texts by length, and those of the same length by what they say."""
    return len(cell), cell


def join_tallies(first: Tally | None, second: Tally | None) -> Tally | None:
    """Return what both hold, where either may hold nothing."""
    return first.joined(second) if first else second


def tally_cells(cells: pl.Series, rows: pl.Series) -> Tally | None:
    """Count cells of which it does not matter which is the longest.

    >>> tally_cells(pl.Series(["x", "y"]), pl.Series([3, 7]))
    Tally(n=2, row=3, cell='x', longest='')
    """
    return Tally(len(cells), rows[0], str(cells[0]), "") if len(cells) else None
