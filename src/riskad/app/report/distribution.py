"""How anomaly scores are spread, for each kind of row: what the chart of the scores shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.decisions.calibration import Calibration

__all__ = ["KindScores", "ScoreDistribution", "count_scores"]

_BINS = 40
_FEW = 60  # rows that a chart can show one by one


@dataclass(frozen=True)
class KindScores:
    """Anomaly scores of the rows of one kind: counts in bins, and each score if they are few."""

    kind: str
    rows: int
    counts: list[int]
    scores: list[float]


@dataclass(frozen=True)
class ScoreDistribution:
    """Scores by kind of row; the first and the last bin also hold what lies beyond them."""

    edges: list[float]
    kinds: list[KindScores]


def count_scores(
    calibration: Calibration | None, threshold: float, scores: NDArray[np.float64] | None
) -> ScoreDistribution:
    """Count the scores of a fit, and those of a table that was scored later, in common bins.

    Returns
    -------
    ScoreDistribution
        Bins from the 1% to the 99% quantile of the kinds, and wide enough for the threshold.
    """
    kinds: dict[str, tuple[NDArray[Any], int]] = {}
    if calibration is not None:
        labelled = {"normal": calibration.normals, "anomaly": calibration.anomalies}
        kinds = {kind: (each, len(each)) for kind, each in labelled.items()}
        kinds["unlabelled"] = (calibration.unlabelled, calibration.n_unlabelled)
    if scores is not None:
        kinds["table"] = (scores, len(scores))
    kinds = {kind: each for kind, each in kinds.items() if each[1]}
    ends = [np.quantile(each, (0.01, 0.99)) for each, _ in kinds.values()]
    low, high = min(threshold, *(end[0] for end in ends)), max(threshold, *(end[1] for end in ends))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    return ScoreDistribution(
        edges.tolist(), [_kind_scores(kind, *each, edges) for kind, each in kinds.items()]
    )


def _kind_scores(
    kind: str, scores: NDArray[Any], rows: int, edges: NDArray[np.float64]
) -> KindScores:
    """Count scores in bins; those kept may be quantiles of more rows."""
    counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
    counts = np.rint(counts * (rows / len(scores))).astype(int)
    return KindScores(kind, rows, counts.tolist(), scores.tolist() if rows <= _FEW else [])
