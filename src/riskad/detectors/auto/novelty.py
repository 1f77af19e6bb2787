r"""Novelty: how unlike all rows of a fit a row is, whether these are labelled or not.

A detector that learned from labels ranks rows by how much they look like the labelled anomalies. A
kind of anomaly that nobody labelled may then rank below most normal rows. Novelty asks for nothing
but distance from what was seen:

    novelty(x) = (u(x) - mean) / spread,    u(x) = i(x) + max(d(x), 0),

with i the score of an isolation forest, d the log distance to the tenth neighbour, both in standard
deviations from their means in the plain view, and the mean and the spread of u over the unlabelled
rows. A row farther from others than usual is new; one among many that are nearly the same, of which
log d would make much, is not for that less so. 0 is usual; 3 is three standard deviations more
unusual.

What it weighs in the average is in `unseen_kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from riskad.storage.fields import SIZE, Fields

__all__ = ["NOVELTY", "Novelty", "with_novelty"]

NOVELTY = "novelty"
"""The member's name."""


class Novelty(BaseEstimator):
    """The sum of outlier scores, as a member: there is nothing to learn from labels.

    Of the first score all counts, of others what is above the mean.

    Examples
    --------
    >>> usual, far = Novelty().fit(np.zeros((2, 2))).score_samples([[0.1, -0.1], [4.0, 2.0]])
    >>> bool(far < usual)  # as for all detectors, high is normal
    True
    """

    _state_fields: ClassVar[Fields] = {"n_features_in_": SIZE}

    def fit(self, X: Any, y: Any = None) -> Novelty:
        """Remember how many scores there are.

        Parameters
        ----------
        X : array of shape (n_rows, n_scores)
            Outlier scores, high for unusual rows.
        y
            Not looked at.

        Returns
        -------
        Novelty
            Itself.
        """
        self.n_features_in_ = np.shape(X)[1]
        return self

    def lighter(self) -> Novelty:
        """Return an unfitted copy."""
        return Novelty()

    def kept_rows(self) -> int:
        """Return 0: the scores are found elsewhere."""
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the sum of each row's scores, with its sign changed: high for usual rows."""
        first, others = np.split(np.asarray(X, dtype=float), [1], axis=1)
        return -(first[:, 0] + np.maximum(others, 0).sum(axis=1))

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the same in an ONNX graph."""
        least = np.zeros(self.n_features_in_)
        least[0] = -np.inf  # of the first score all counts
        counted = graph.node("Max", rows, least)
        return str(graph.node("Neg", graph.node("ReduceSum", counted, np.array([1]), keepdims=0)))


def with_novelty(weights: Mapping[str, float], share: float) -> dict[str, float]:
    """Return weights of members that add up to 1, of which novelty has a share, if it is one.

    >>> with_novelty({"kernel": 0.5, "forest": 0.5}, 0.2)
    {'kernel': 0.5, 'forest': 0.5}
    >>> with_novelty({"kernel": 3.0, "forest": 1.0, "novelty": 7.0}, 0.5)
    {'kernel': 0.375, 'forest': 0.125, 'novelty': 0.5}
    """
    others = {name: weight for name, weight in weights.items() if name != NOVELTY}
    if not others:
        return dict.fromkeys(weights, 1.0)
    share = share if NOVELTY in weights else 0.0
    total = sum(others.values())
    scaled = {name: (1 - share) * weight / total for name, weight in others.items()}
    return {name: scaled.get(name, share) for name in weights}
