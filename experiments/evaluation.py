"""Fit, score, and how well scores rank anomalies; means over trials."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.datasets.splits import Split
from riskad import InputError
from riskad.core.labels import ANOMALY, NORMAL


def fit_and_score(estimator: Any, split: Split) -> dict[str, Any]:
    """Fit on the training rows, score the test rows once, and return the metrics of a record."""
    start = time.perf_counter()
    estimator.fit(split.X_train, split.y_train)
    fitted = time.perf_counter()
    scores = estimator.score_samples(split.X_test)
    scored = time.perf_counter()
    anomalous = split.truth_test == ANOMALY
    metrics = {
        "auc": round(float(roc_auc_score(anomalous, -scores)), 6),
        "average_precision": round(float(average_precision_score(anomalous, -scores)), 6),
        "fit_seconds": round(fitted - start, 4),
        "score_seconds": round(scored - fitted, 4),
    }
    if hasattr(estimator, "lambda_"):
        metrics["lambda"] = float(f"{estimator.lambda_:.6g}")
    return metrics


# (i / 25)^2: curves bend near zero. Divided once, so that a rate equals that of a count exactly.
FALSE_POSITIVE_RATES = np.arange(26) ** 2 / 625


def rank_metrics(truth: NDArray[Any], scores: NDArray[Any]) -> dict[str, Any]:
    """How well `scores` (high = normal) rank anomalies below normal rows; ties are exact.

    For an anomaly with the score s let N_<, N_= and N_<= be the numbers of normal rows, of n_p,
    that score below s, equal to s and at most s, and A_<= that of anomalies, of n_n. Then

        AUC  = mean over anomalies of 1 - (N_< + N_= / 2) / n_p
        AP   = mean over anomalies of A_<= / (A_<= + N_<=)
        ROC  = (N_< / n_p, A_< / n_n) and (N_<= / n_p, A_<= / n_n) for each anomaly,

    anomalies being the positive class. `roc` holds the true positive rates at
    `FALSE_POSITIVE_RATES`, interpolated linearly.

    >>> rank_metrics(np.array([1, 1, 1, -1]), np.array([0.9, 0.8, 0.1, 0.2]))["auc"]
    0.666667
    """
    if not np.isfinite(scores).all():
        raise InputError("the scores are not finite: training broke. Try a smaller learning_rate.")
    normal, anomalous = np.sort(scores[truth == NORMAL]), np.sort(scores[truth == ANOMALY])
    n_p, n_n = len(normal), len(anomalous)
    below, at_most = (np.searchsorted(normal, anomalous, side) for side in ("left", "right"))
    ours_below, ours = (np.searchsorted(anomalous, anomalous, side) for side in ("left", "right"))
    false = np.column_stack([below, at_most]).ravel() / n_p
    true = np.column_stack([ours_below, ours]).ravel() / n_n
    # Of several points at one false positive rate np.interp takes the last, which is the highest.
    roc = np.interp(FALSE_POSITIVE_RATES, np.append(false, 1), np.append(true, 1))
    return {
        "auc": round(float(1 - (below + at_most).mean() / (2 * n_p)), 6),
        "average_precision": round(float((ours / (ours + at_most)).mean()), 6),
        "roc": [round(float(rate), 4) for rate in roc],
    }


@dataclass(frozen=True)
class TrialMean:
    """A mean over n trials and its standard error sd / sqrt(n), None for a single trial."""

    mean: float
    se: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> TrialMean | None:
        """TrialMean from the trials' values; None if there are none.

        >>> TrialMean.of([0.5, 0.75, 1.0])
        TrialMean(mean=0.75, se=0.14433756729740646, n=3)
        """
        n = len(values)
        if n == 0:
            return None
        se = statistics.stdev(values) / math.sqrt(n) if n > 1 else None
        return cls(statistics.fmean(values), se, n)

    @property
    def sd(self) -> float | None:
        """The standard deviation over trials, None for a single one."""
        return None if self.se is None else self.se * math.sqrt(self.n)
