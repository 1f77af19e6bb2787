"""Hashes of the content of rows, by which an answer finds its row in a changed table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl

from riskad.tables.cells import to_text

__all__ = ["hash_rows"]


def hash_rows(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return a hash of the content of each row in some columns.

    A cell counts as its displayed text, preceded by its length, so that two rows cannot be confused
    by moving text from one cell to the next.

    Parameters
    ----------
    frame
        Rows.
    columns
        The columns that count, in this order.

    Returns
    -------
    list of str
        16 hexadecimal digits for each row.

    Examples
    --------
    >>> table = pl.DataFrame({"card": ["ab", "a", None], "shop": ["c", "bc", "x"]})
    >>> len(set(hash_rows(table, ["card", "shop"])))
    3
    >>> hash_rows(table.reverse(), ["card"])[0] == hash_rows(table, ["card"])[2]
    True
    """
    if not columns:
        return [_digest("")] * frame.height
    texts = pl.DataFrame([to_text(frame[name]).alias(str(j)) for j, name in enumerate(columns)])
    cells = [
        pl.concat_str([pl.col(name).str.len_bytes().cast(pl.String), pl.lit(":"), pl.col(name)])
        for name in texts.columns
    ]
    joined = texts.select(pl.concat_str([cell.fill_null("-") for cell in cells], separator=","))
    return [_digest(text) for text in joined.to_series()]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
