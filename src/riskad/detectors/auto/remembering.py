"""What an `AutoRAD` in memory remembers of the rows that it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from riskad.detectors.auto.views import Views
from riskad.rows.columns import MadeColumns

__all__ = ["Remembered", "views_of"]


@dataclass(frozen=True)
class Remembered:
    """Features of rows, for as long as the rows are the same. No file or pickle holds them.

    Parameters
    ----------
    digest
        Of the rows and of all else that the features depend on.
    views
        The features, none of which knows a label.
    """

    digest: bytes
    views: Views

    @staticmethod
    def digest_of(matrix: np.ndarray, members: Sequence[str], seed: int) -> bytes:
        """Return what differs if rows, members or the seed do.

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
    matrix: np.ndarray,
    codes: np.ndarray,
    members: Sequence[str],
    seed: int,
    made: MadeColumns,
) -> tuple[Views, Remembered | None]:
    """Return the features of rows, remembered or learned, and what is to be remembered of them."""
    digest = Remembered.digest_of(matrix, members, seed)
    if known is not None and known.digest == digest:
        return known.views, known
    views = Views.fit(matrix, codes, members, seed, made)
    return views, Remembered(digest, views) if views.knows_no_label else None
