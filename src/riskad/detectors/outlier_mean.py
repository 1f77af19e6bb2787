"""A ranking without labels: the mean of the outlier scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from riskad.core.labels import LabelCounts
from riskad.detectors.auto.views import rows_around
from riskad.detectors.base import RandomState
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.frame_detector import ENCODER, FrameDetector
from riskad.files.fields import COUNT, Record, State, require
from riskad.rows.encoding import fit_encoder
from riskad.rows.engine import one_blas_thread

_FLAGGED = 0.05  # of the training rows
_MOST_ROWS = 20_000


class OutlierMean(FrameDetector):
    """Rows that are unlike the others: an unsupervised ranking for tables without labels.

    The anomaly score is the mean of two outlier scores (`riskad.detectors.features.maps`). An
    unusual row is not necessarily an anomaly, and the number of anomalies is unknown: the share
    that is flagged, a twentieth of the training rows, is a convention.

    Parameters
    ----------
    random_state : int, RandomState or None, default=0
        Seed.

    Attributes
    ----------
    n_rows_ : int
        Number of rows to learn from: all, or 20,000 drawn at random.

    Examples
    --------
    >>> X = np.vstack([np.random.default_rng(0).normal(size=(200, 2)), [[9.0, 9.0]]])
    >>> OutlierMean().fit(X, np.zeros(201, dtype=int)).anomaly_score(X).argmax()
    np.int64(200)
    """

    _detector_tags = replace(FrameDetector._detector_tags, slow_to_score=True, needs_rows=True)

    n_rows_: Annotated[int, COUNT]
    encoder_: Annotated[Any, ENCODER]
    features_: Annotated[Any, Record(("LearnedFeatures",), {"n_features_in_": "encoded"})]

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        require("outliers" in state["features_"].slices_, "features_: without outlier scores")

    def __init__(self, *, random_state: RandomState = 0):
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> OutlierMean:
        """Learn what rows are like; y, one label for each row, is checked but not learned from."""
        # Labels are checked although they are not used: a wrong `y` is a mistake with any detector.
        matrix, _, _ = self._check_training(X, y)
        if matrix.shape[0] > _MOST_ROWS:
            rng = np.random.default_rng(self._seed)
            matrix = matrix[np.sort(rng.choice(matrix.shape[0], _MOST_ROWS, replace=False))]
        self.n_rows_ = matrix.shape[0]
        with one_blas_thread():
            self.encoder_ = fit_encoder(matrix, self.schema_.levels, self._seed)
            self.features_ = LearnedFeatures(("columns", "outliers"), random_state=self._seed)
            F = self.features_.fit_transform(self.encoder_.transform(matrix))
        # Low means are anomalous here, as all scores: the lowest twentieth is flagged.
        self.offset_ = float(np.quantile(self._mean(F), _FLAGGED))
        return self

    def _mean(self, F: np.ndarray) -> np.ndarray:
        # Outlier scores are high for odd rows, and scores here for normal ones.
        return np.asarray(-F[:, self.features_.slices_["outliers"]].mean(axis=1))

    def _scores(self, X: Any) -> np.ndarray:
        with one_blas_thread():
            return self._mean(
                self.features_.transform(self.encoder_.transform(self._append_evidence(X)))
            )

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        numbers = self.encoder_.onnx_rows(graph, self._graph_rows(graph, rows))
        parts = self.features_.onnx_parts(graph, numbers)
        mean = graph.node("ReduceMean", parts["outliers"], np.array([1]), keepdims=0)
        return graph.node("Neg", mean)

    def _trial_rows(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        return rows_around(self.encoder_, self.features_, self.n_features_in_, rng, n_rows)

    def _check_counts(self, counts: LabelCounts) -> None:
        """Accept any labels, or none."""

    def _kept_rows(self) -> int:
        return self.features_.kept_rows()

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"rows": self.n_rows_}

    def _describe_in_words(self) -> list[str]:
        return [
            "mean of two outlier scores; unsupervised: no label was learned from, and the share of "
            "rows that is flagged, 5 %, is a convention",
            f"learned from {self.n_rows_:,} rows",
        ]
