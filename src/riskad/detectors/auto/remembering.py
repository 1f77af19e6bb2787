"""Features that an `AutoRAD` keeps in memory for the next fit to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from riskad.detectors.auto.views import EncodedRows, Views

__all__ = ["Remembered", "views_of"]


@dataclass(frozen=True)
class Remembered:
    """Features of rows, for as long as the rows are the same. No file or pickle holds them.

    Parameters
    ----------
    digest
        Digest of the rows and of everything else that the features depend on.
    views
        The features, which do not depend on labels.
    """

    digest: bytes
    views: Views

    @staticmethod
    def digest_of(matrix: np.ndarray, members: Sequence[str], seed: int) -> bytes:
        """Return a digest that differs if rows, members or the seed differ.

        >>> rows = np.zeros((2, 3))
        >>> first = Remembered.digest_of(rows, ["kernel"], 0)
        >>> first == Remembered.digest_of(rows.copy(), ["kernel"], 0)
        True
        >>> first == Remembered.digest_of(rows.reshape(3, 2), ["kernel"], 0)
        False
        """
        found = blake2b(np.ascontiguousarray(matrix).data, digest_size=16)
        found.update(repr((matrix.shape, str(matrix.dtype), sorted(members), seed)).encode())
        return found.digest()


def views_of(
    known: Remembered | None,
    table: EncodedRows,
    codes: np.ndarray,
    members: Sequence[str],
    seed: int,
) -> tuple[Views, Remembered | None]:
    """Return the features of rows, kept or learned, and what to keep of them."""
    digest = Remembered.digest_of(table.numbers, members, seed)
    if known is not None and known.digest == digest:
        return known.views, known
    views = Views.fit(table, codes, members, seed)
    return views, Remembered(digest, views) if views.knows_no_label else None
