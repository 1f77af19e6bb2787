"""What detectors take other than a table in memory: sources of rows, Dask collections."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes
from riskad.rows.arrays import places_of, to_numpy
from riskad.rows.memory import RowBlocks
from riskad.rows.source import RowSource

__all__ = [
    "as_rows",
    "at_most",
    "in_memory",
    "on_host",
    "refuse_non_finite_rows",
    "sampled",
    "unpacked",
]


def unpacked(X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """Rows that are in memory, with their labels and weights, as the table that they are.

    So they pass the same checks as a table. Anything else is returned as it is.
    """
    if not isinstance(X, RowBlocks):
        return X, y, sample_weight
    _refuse_more(X, y, sample_weight)
    return X.X, LabelCodes.of(X.y) if X.labels_said else X.y, X.sample_weight


def as_rows(X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
    """X as a source of rows if it is one, or a Dask collection; None if it is a table in memory.

    A source carries its own labels and weights.
    """
    if isinstance(X, RowSource):
        _refuse_more(X, y, sample_weight)
        return X
    dask = sys.modules.get("dask")  # a user with a collection has imported it
    if dask is not None and dask.is_dask_collection(X):
        from riskad.rows.cluster import DaskRows

        return DaskRows(X, y, sample_weight)
    return None


def _refuse_more(rows: RowSource, y: Any, sample_weight: Any) -> None:
    if y is not None or sample_weight is not None:
        raise InputError(
            f"{type(rows).__name__} brings its own labels and weights: call fit(rows) alone."
        )


def at_most(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows, divided among the kinds by `shares`; on a device they stay."""
    if not isinstance(rows, RowBlocks) or rows.n_rows > n_rows:
        return rows.sample(n_rows, shares, np.random.default_rng(seed))
    return rows


def in_memory(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows on the host, divided among the kinds by `shares`."""
    return on_host(at_most(rows, n_rows, shares, seed))


def on_host(rows: RowBlocks) -> RowBlocks:
    """The rows in the computer's own memory, if they are on a device."""
    if rows.sparse or isinstance(rows.X, np.ndarray):
        return rows
    weight = None if rows.sample_weight is None else to_numpy(rows.sample_weight)
    return RowBlocks(to_numpy(rows.X), to_numpy(rows.y).astype(np.int8), weight)


def sampled(rows: RowSource, most: int, seed: int) -> RowBlocks:
    """At most about `most` rows on the host: labelled ones up to a half, the others unlabelled."""
    counts = rows.counts()
    wanted = np.zeros(3)
    for kind, count in ((NORMAL, counts.normal), (ANOMALY, counts.anomaly)):
        wanted[kind] = min(count, most / 4)
    wanted[UNLABELLED] = min(counts.unlabelled, most - wanted.sum())
    return in_memory(rows, int(wanted.sum()), wanted, seed)


def refuse_non_finite_rows(rows: RowSource, names: Any) -> None:
    """Say which columns of a source hold NaN or infinity."""
    (bad,) = rows.sum(lambda block: (_not_finite(block.X),))
    if not bad.any():
        raise InputError(
            "the rows have values so large that sums overflow to infinity; rescale their columns."
        )
    column = int(np.flatnonzero(bad)[0])
    where = f"column {column}" if names is None else f"column {names[column]!r}"
    others = f", and {n} other(s)" if (n := np.count_nonzero(bad) - 1) else ""
    raise InputError(
        f"the rows hold missing values (NaN) or infinities: {int(bad[column]):,} in {where}"
        f"{others}. Fill gaps first; riskad.fit_table does so by itself."
    )


def _not_finite(X: Any) -> np.ndarray:
    X = X.toarray() if hasattr(X, "toarray") else to_numpy(X)
    return (~np.isfinite(X)).sum(axis=0)


def sample_in_memory(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows on the host, divided among the kinds by `shares`.

    Rows without weight are never among them.
    """
    if isinstance(rows, RowBlocks):
        rows = _with_weight(rows)
    return _with_weight(in_memory(rows, n_rows, shares, seed))


def _with_weight(rows: RowBlocks) -> RowBlocks:
    if rows.sample_weight is None or bool((rows.sample_weight > 0).all()):
        return rows
    return rows.take(places_of(rows.sample_weight > 0))
