"""Labelled rows beyond those that all members learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.core.labels import UNLABELLED

__all__ = ["More", "WithMore", "places_of_more"]


def places_of_more(codes: np.ndarray, groups: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return positions of labelled rows that are not among `rows`, nor of a group that is.

    These are in every fit, and a group of `rows` may be held out.

    >>> places_of_more(np.array([1, 0, -1, 1]), None, np.array([0, 1])).tolist()
    [2, 3]
    >>> places_of_more(np.array([1, 0, -1, 1]), np.array([0, 1, 0, 2]), np.array([0, 1])).tolist()
    [3]
    """
    more = np.setdiff1d(np.flatnonzero(codes != UNLABELLED), rows)
    return more if groups is None else more[~np.isin(groups[more], groups[rows])]


@dataclass(frozen=True)
class More:
    """Further labelled rows that some members learn from.

    With more than 10,000 labelled rows the other members use a sample: their time grows with the
    rows, but their quality hardly.
    """

    columns: np.ndarray
    codes: np.ndarray
    weight: np.ndarray | None

    def before(self, detector: Any) -> WithMore:
        """Return an object that fits the detector to these rows and to those given to `fit`."""
        return WithMore(detector, self)


class WithMore:
    """A detector whose fit uses more rows than it is given."""

    def __init__(self, detector: Any, more: More):
        self.detector = detector
        self.more = more

    def fit(self, F: np.ndarray, codes: np.ndarray, sample_weight: Any = None) -> Any:
        """Fit the detector to all rows, and return it."""
        more = self.more
        weight = None
        if sample_weight is not None and more.weight is not None:
            weight = np.concatenate([sample_weight, more.weight])
        rows = np.vstack([F, more.columns])
        return self.detector.fit(rows, np.concatenate([codes, more.codes]), sample_weight=weight)

    def score_samples(self, F: np.ndarray) -> np.ndarray:
        """Return the scores of the detector."""
        return np.asarray(self.detector.score_samples(F))
