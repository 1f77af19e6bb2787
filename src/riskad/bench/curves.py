"""AUC, average precision and the ROC curve by counting: a millisecond for 10,000 scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL

__all__ = ["FALSE_POSITIVE_RATES", "rank_metrics"]

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
