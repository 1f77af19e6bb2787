"""What held-out labelled rows show of a model: curves, reliability, and how scores spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.decisions.calibration import Calibration
from riskad.metrics.ranking import (
    Curve,
    Reliability,
    precision_recall_with_interval,
    reliability,
    roc_with_interval,
)

FEWEST_FOR_CURVES = 3  # labelled rows of each kind, as for an AUC
_FEWEST_FOR_RELIABILITY = 5
_RELIABILITY_BINS = 5
_BINS = 40
_FEW = 60  # rows that a chart can show one by one


@dataclass(frozen=True)
class HeldOutQuality:
    """Curves over held-out labelled rows, with 95% intervals.

    `precision_rate` is the anomaly rate for which precision is stated: the estimated one, or the
    share of anomalies among labelled rows.
    """

    roc: Curve
    precision_recall: Curve
    precision_rate: float
    reliability: Reliability | None
    why_no_reliability: str


def measure_quality(calibration: Calibration | None) -> HeldOutQuality | None:
    """Measure quality by held-out scores; None with fewer than 3 labelled rows of a kind."""
    if calibration is None:
        return None
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_CURVES:
        return None
    codes, scores = calibration.codes, calibration.scores
    rate, effect = calibration.rate, calibration.group_effect
    reliable, why_not = None, ""
    if rate is None:
        why_not = "that takes an anomaly rate, which these labels do not tell"
    elif min(n, m) < _FEWEST_FOR_RELIABILITY:
        why_not = (
            f"that takes {_FEWEST_FOR_RELIABILITY} held-out labelled rows of each kind, and there "
            f"are {min(n, m)} of the rarer kind"
        )
    else:
        probabilities = calibration.anomaly_probability(scores)
        reliable = reliability(codes, probabilities, calibration.pi_n, _RELIABILITY_BINS)
    return HeldOutQuality(
        roc=roc_with_interval(codes, scores, effect=effect),
        precision_recall=precision_recall_with_interval(codes, scores, rate, effect=effect),
        precision_rate=m / (m + n) if rate is None else calibration.pi_n,
        reliability=reliable,
        why_no_reliability=why_not,
    )


# --- how scores spread -------------------------------------------------------------------


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

    They reach from the 1% to the 99% quantile of the kinds, and to the threshold.
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
    found = []
    for kind, (each, rows) in kinds.items():
        counts, _ = np.histogram(np.clip(each, edges[0], edges[-1]), edges)
        # Scores that were kept may be quantiles of more rows.
        counts = np.rint(counts * (rows / len(each))).astype(int)
        found.append(KindScores(kind, rows, counts.tolist(), each.tolist() if rows <= _FEW else []))
    return ScoreDistribution(edges.tolist(), found)
