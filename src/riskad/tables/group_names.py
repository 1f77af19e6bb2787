"""Hashed names of groups and levels, by which a model recognises them without storing them.

A model stores 64-bit hashes: they do not reveal names, though anyone with a list of names can find
out which of them occur. Two of 100,000 names have the same hash with a probability of
3 in 10 billion.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["as_texts", "find_hashes", "hash_texts"]


def as_texts(names: pl.Series) -> pl.Series:
    """Names as texts, null if missing; 12.0 becomes 12, since a column with gaps holds floats.

    >>> as_texts(pl.Series([12.0, None])).to_list(), as_texts(pl.Series([" Ann", ""])).to_list()
    (['12', None], ['Ann', None])
    """
    if names.dtype.is_float():
        filled = names.drop_nulls()
        if bool(((filled % 1 == 0) & (filled.abs() < 2**53)).all()):
            names = names.cast(pl.Int64)
    texts = names.cast(pl.String).str.strip_chars()
    return pl.select(pl.when(texts != "").then(texts))[:, 0].alias(names.name)


def hash_texts(texts: pl.Series) -> pl.Series:
    """A hash of each text, the same in all versions and on all machines; null for null.

    >>> hash_texts(pl.Series(["Ann", None])).to_list()
    [16065273467679184478, None]
    """
    distinct = texts.drop_nulls().unique().to_list()
    hashes = [int.from_bytes(blake2b(each.encode(), digest_size=8).digest()) for each in distinct]
    known = pl.DataFrame(
        {"text": distinct, "hash": hashes}, schema={"text": pl.String, "hash": pl.UInt64}
    )
    rows = texts.alias("text").cast(pl.String).to_frame()
    return rows.join(known, on="text", how="left", maintain_order="left")["hash"]


def find_hashes(texts: pl.Series, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The position of each text's hash among sorted `hashes`; -1 if it is not among them."""
    if not len(hashes):
        return np.full(len(texts), -1)
    wanted = hash_texts(texts)
    numbers = wanted.fill_null(0).to_numpy()
    at = np.minimum(np.searchsorted(hashes, numbers), len(hashes) - 1)
    return np.where((hashes[at] == numbers) & wanted.is_not_null().to_numpy(), at, -1)
