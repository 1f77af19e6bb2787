r"""Novelty: how unlike all training rows a row is, labelled or not.

A detector that learned from labels ranks rows by their similarity to the labelled anomalies. A kind
of anomaly that nobody labelled may then rank below most normal rows. Novelty measures only the
distance from the training rows:

    novelty(x) = (u(x) - mean) / spread,    u(x) = i(x) + max(d(x), 0),

with i the score of an isolation forest, d the log distance to the tenth neighbour, both in standard
deviations from their means in the plain view, and the mean and the spread of u over the unlabelled
rows. A row farther from others than usual is new. Only positive d counts: a row in a dense group of
near-duplicates would have a very low log distance, which must not make it less new. 0 is usual; 3
is three standard deviations more unusual.

`unseen_kinds` sets its weight in the average.
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
    """The sum of outlier scores, as a member: it does not learn from labels.

    The first score counts fully, the others only where they are above the mean.

    Examples
    --------
    >>> usual, far = Novelty().fit(np.zeros((2, 2))).score_samples([[0.1, -0.1], [4.0, 2.0]])
    >>> bool(far < usual)  # as for all detectors, high is normal
    True
    """

    _state_fields: ClassVar[Fields] = {"n_features_in_": SIZE}

    def fit(self, X: Any, y: Any = None) -> Novelty:
        """Store the number of scores.

        Parameters
        ----------
        X : array of shape (n_rows, n_scores)
            Outlier scores, high for unusual rows.
        y
            Ignored.

        Returns
        -------
        Novelty
            The fitted member.
        """
        self.n_features_in_ = np.shape(X)[1]
        return self

    def lighter(self) -> Novelty:
        """Return an unfitted copy."""
        return Novelty()

    def kept_rows(self) -> int:
        """Return 0: the scores are computed elsewhere."""
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        """Return minus the sum of each row's scores: high for usual rows."""
        first, others = np.split(np.asarray(X, dtype=float), [1], axis=1)
        return -(first[:, 0] + np.maximum(others, 0).sum(axis=1))

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the same scores in an ONNX graph."""
        least = np.zeros(self.n_features_in_)
        least[0] = -np.inf  # the first score counts fully
        counted = graph.node("Max", rows, least)
        return str(graph.node("Neg", graph.node("ReduceSum", counted, np.array([1]), keepdims=0)))


def with_novelty(weights: Mapping[str, float], share: float) -> dict[str, float]:
    """Return weights of members with sum 1, in which novelty has a share, if it is a member.

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
