r"""Novelty: how unlike all rows of a fit a row is, whether these are labelled or not.

A detector that learned from labels ranks rows by how much they look like the labelled anomalies. A
kind of anomaly that nobody labelled may then rank below most normal rows. Novelty asks for nothing
but distance from what was seen:

    novelty(x) = (u(x) - mean) / spread,    u the mean of the two outlier scores of the plain view,

an isolation forest's and the log distance to the tenth neighbour, with the mean and the spread of u
over the unlabelled rows. 0 is usual; 3 is three standard deviations more unusual.

It is a member of the average like any other, with as much weight as *held-out kinds* ask for. The
labelled anomalies are parted into clusters, and each cluster in turn is held out with a part of
the labelled normals: no member's fit has seen an anomaly of that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.storage.fields import SIZE, Fields

__all__ = ["NOVELTY", "Novelty", "TellsNovelty"]

NOVELTY = "novelty"
"""The member's name."""


class Novelty(BaseEstimator):
    """The mean of outlier scores, as a member: there is nothing to learn from labels.

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
        """Return the mean score of each row, with its sign changed: high for usual rows."""
        return -np.asarray(X, dtype=float).mean(axis=1)


class TellsNovelty:
    """What `AutoRAD` says of rows beside their score."""

    members_: dict[str, Any]
    scales_: dict[str, tuple[float, float]]
    _check_rows: Callable[[Any, bool], Any]
    _combine: Callable[[Any], np.ndarray]
    _each_block: Callable[[Any, Callable[[Any], np.ndarray]], np.ndarray]

    @property
    def tells_novelty(self) -> bool:
        """Whether `novelty` can be told: not by models that earlier versions saved."""
        return NOVELTY in getattr(self, "members_", {})

    def novelty(self, X: Any) -> np.ndarray:
        """How unlike all rows of the fit each row is, labelled or not.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        array of shape (n_rows,)
            0 for a usual row, in standard deviations over the unlabelled rows of the fit. A kind
            of anomaly that nobody labelled may have a high novelty and a low `anomaly_score`.
        """
        return self.anomaly_score_and_novelty(X)[1]

    def anomaly_score_and_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return `anomaly_score` and `novelty`, in the time of one of them."""
        check_is_fitted(self)
        if not self.tells_novelty:
            raise InputError(
                "This model was saved by a version of riskad that did not tell novelty, or had no "
                "time for it. Fit it again, with a larger budget."
            )
        both = self._each_block(self._check_rows(X, False), self._score_and_novelty)
        return -both[:, 0], both[:, 1]

    def _score_and_novelty(self, views: Any) -> np.ndarray:
        mean, spread = self.scales_[NOVELTY]
        own = self.members_[NOVELTY].score_samples(views.seen_by(NOVELTY))
        return np.stack([self._combine(views), (mean - own) / spread], axis=1)
