"""How `AutoRAD` scores rows: the weighted average of its members, and novelty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.auto.views import EncodedRows, NewRows, Views
from riskad.rows.blas_threads import one_blas_thread

__all__ = ["ScoresRows"]

_BLOCK = 5_000  # rows scored at a time


class ScoresRows:
    """Scoring, which does not change the detector: threads may share one."""

    encoder_: Any
    views_: dict[str, Any]
    members_: dict[str, Any]
    scales_: dict[str, tuple[float, float]]
    weights_: dict[str, float]
    _check_rows: Callable[[Any, bool], Any]
    _seen: Callable[[Any], Any]

    @property
    def tells_novelty(self) -> bool:
        """Whether `novelty` is available: not if there was no time for it."""
        return NOVELTY in getattr(self, "members_", {})

    def novelty(self, X: Any) -> np.ndarray:
        """Return how unlike all training rows each row is, labelled or not.

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
                "This model had no time to learn novelty. Fit it again, with a larger budget."
            )
        both = self._each_block(self._check_rows(X, False), self._score_and_novelty)
        return -both[:, 0], both[:, 1]

    def _score_and_novelty(self, views: NewRows) -> np.ndarray:
        mean, spread = self.scales_[NOVELTY]
        own = views.scores_by(NOVELTY, self.members_[NOVELTY])
        return np.stack([self._combine(views), (mean - own) / spread], axis=1)

    def _scores(self, X: Any) -> np.ndarray:
        return self._each_block(X, self._combine)

    def _each_block(self, X: Any, tell: Callable[[Any], np.ndarray]) -> np.ndarray:
        parts = []
        with one_blas_thread():
            for start in range(0, X.shape[0], _BLOCK):
                table = EncodedRows.of(self.encoder_, self._seen(X[start : start + _BLOCK]))
                parts.append(tell(NewRows(self.views_, table)))
        return np.concatenate(parts)

    def _combine(self, views: Views | NewRows) -> np.ndarray:
        total = np.zeros(len(views))
        for name, detector in self.members_.items():
            mean, spread = self.scales_[name]
            scores = views.scores_by(name, detector)
            total += self.weights_[name] * (scores - mean) / spread
        return total
