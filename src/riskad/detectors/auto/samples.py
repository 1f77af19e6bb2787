"""Which rows take part if not all do."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.labels import UNLABELLED

__all__ = [
    "COMPARED",
    "some_unlabelled",
    "taken",
    "thinned",
    "to_learn_from",
    "with_labelled",
    "without_absent",
]

COMPARED = 1_000
"""Unlabelled rows whose scores set the scale of a member's scores."""
_MOST_LABELLED = 10_000


def thinned(places: np.ndarray, most: int) -> np.ndarray:
    """Return at most this many of the positions, evenly spaced."""
    return places[:: max(1, -(-len(places) // most))]


def some_unlabelled(codes: np.ndarray, most: int) -> np.ndarray:
    """Return positions of some unlabelled rows, or of rows of any kind if there are none."""
    places = np.flatnonzero(codes == UNLABELLED)
    return thinned(places if len(places) else np.arange(len(codes)), most)


def with_labelled(codes: np.ndarray, most: int) -> np.ndarray:
    """Return positions of the labelled rows and of at most `most` unlabelled ones, in order."""
    unlabelled = thinned(np.flatnonzero(codes == UNLABELLED), most)
    return np.sort(np.concatenate([np.flatnonzero(codes != UNLABELLED), unlabelled]))


def to_learn_from(codes: np.ndarray, most: int, fewest: int, seed: int) -> np.ndarray:
    """Return positions of rows to learn from: labelled rows, then at least `fewest` unlabelled."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order] == UNLABELLED, kind="stable")]
    labelled = int((codes != UNLABELLED).sum())
    kept = order[: min(labelled, _MOST_LABELLED)]
    unlabelled = order[labelled:][: max(most - len(kept), fewest)]
    return np.sort(np.concatenate([kept, unlabelled]))


def without_absent(
    matrix: Any, codes: Any, groups: Any, source: Any, weight: Any
) -> tuple[Any, ...]:
    """Return all arrays without the rows of weight 0."""
    if weight is None or (weight > 0).all():
        return matrix, codes, groups, source, weight
    rows = np.flatnonzero(weight > 0)
    source = source if isinstance(source, str) else source[rows]
    return matrix[rows], codes[rows], *taken(rows, groups), source, weight[rows]


def taken(rows: np.ndarray, *arrays: np.ndarray | None) -> list[np.ndarray | None]:
    """Return some rows of each array that is not None."""
    return [None if each is None else each[rows] for each in arrays]
