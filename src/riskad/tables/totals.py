"""A row of totals at the end of a table, which does not belong to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import polars as pl

from riskad.tables.notes import note

__all__ = ["without_totals"]

_TOTAL = re.compile(
    r"\s*(grand |sub|sub-| )?(total|totals|sum|sums|summe|gesamt|gesamtsumme|insgesamt|somme|suma|"
    r"totale|totaal|summa|razem|celkem|toplam|合计|总计|合計|итого)\s*[:.]?\s*",
    re.IGNORECASE,
)
_COMPARED_ROWS = 1000


def without_totals(frames: Iterable[pl.DataFrame], name: str) -> Iterator[pl.DataFrame]:
    """Leave out a last row that is clearly one of totals; report a doubtful one.

    It is clear if the row, and no other, begins with such a word, and is blank in a column that is
    filled in all earlier rows.

    >>> import warnings
    >>> table = pl.DataFrame({"shop": ["A", "Total"], "paid": ["5", "5"], "who": ["x", None]})
    >>> with warnings.catch_warnings(action="ignore"):
    ...     next(without_totals([table], "cards.csv")).rows()
    [('A', '5', 'x')]
    """
    frames = iter(frames)
    last, before = next(frames), None
    for frame in frames:
        yield last
        before = last.tail(_COMPARED_ROWS) if last.height else before
        last = frame
    yield _without_total(last, before, name)


def _without_total(last: pl.DataFrame, before: pl.DataFrame | None, name: str) -> pl.DataFrame:
    if not last.height or last.width < 2:
        return last
    cells = ["" if cell is None else str(cell) for cell in last.row(-1)]
    filled = [(place, cell) for place, cell in enumerate(cells) if cell.strip()]
    if not filled or not _TOTAL.fullmatch(filled[0][1]):
        return last
    rows = last[:-1].tail(_COMPARED_ROWS)
    rows = rows if before is None else pl.concat([before, rows])
    place, word = filled[0]
    alone = not rows.height or word not in rows[:, place]
    blank = [column for cell, column in zip(cells, rows, strict=True) if not cell.strip()]
    if not alone or not rows.height:
        return last
    if any(not column.null_count() for column in blank):
        note(f"{name!r}: the last row, {word.strip()!r}, is one of totals and was left out.")
        return last[:-1]
    note(
        f"{name!r}: the last row begins with {word.strip()!r}. It was kept; if it is one of "
        "totals, delete it."
    )
    return last
