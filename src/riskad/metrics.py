"""Evaluation that respects three kinds of label: unlabelled rows are never scored as truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, rankdata

from riskad._checks import InputError, check_in_interval
from riskad.labels import ANOMALY, NORMAL, check_codes

__all__ = ["Auc", "auc_with_interval", "labelled_folds", "out_of_fold_scores"]


@dataclass(frozen=True)
class Auc:
    """Probability that a random anomaly scores above a random normal row, with its interval."""

    value: float
    low: float
    high: float
    n_normal: int
    n_anomaly: int
    confidence: float = 0.95

    def __str__(self) -> str:
        return (
            f"{self.value:.3f} ({self.confidence:.0%} interval {self.low:.3f} to {self.high:.3f}; "
            f"{self.n_normal} normal, {self.n_anomaly} anomalies)"
        )


def auc_with_interval(y: Any, anomaly_scores: Any, confidence: float = 0.95) -> Auc:
    """AUC over the labelled rows, with Newcombe's score interval.

    The interval holds all values theta with |AUC - theta| <= z sqrt(V(theta)), V being the variance
    of Hanley and McNeil with Newcombe's (2006) balanced count. Unlike an interval about the
    estimate it does not shrink to a point when a handful of anomalies all score on top.

    Examples
    --------
    >>> print(auc_with_interval([1, 1, 1, 1, -1, -1], [0.1, 0.4, 0.2, 0.3, 0.9, 0.8]))
    1.000 (95% interval 0.472 to 1.000; 4 normal, 2 anomalies)
    """
    confidence = check_in_interval("confidence", confidence, 0, 1)
    codes = check_codes(y)
    scores = np.asarray(anomaly_scores, dtype=float)
    if scores.shape != codes.shape:
        raise InputError(
            f"an AUC needs a score for each label, got {len(codes)} labels and "
            f"{scores.size} scores."
        )
    labelled = codes != 0
    codes, scores = codes[labelled], scores[labelled]
    if np.isnan(scores).any():
        raise InputError("an AUC needs a score for each labelled row, and some are NaN.")
    m, n = int((codes == ANOMALY).sum()), int((codes == NORMAL).sum())
    if m == 0 or n == 0:
        raise InputError(f"an AUC needs both kinds of label, got {n} normal and {m} anomalies.")
    ranks = rankdata(scores)
    value = float((ranks[codes == ANOMALY].sum() - m * (m + 1) / 2) / (m * n))
    z = float(norm.ppf(0.5 + confidence / 2))
    return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)


def _score_interval(value: float, m: int, n: int, z: float) -> tuple[float, float]:
    balanced = (m + n) / 2

    def excess(theta: float) -> float:
        spread = 1 + (balanced - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (value - theta) ** 2 - z**2 * theta * (1 - theta) * spread / (m * n)

    # Inside the interval excess is negative, just inside of an estimate of 0 or 1 too.
    inside = min(max(value, 1e-12), 1 - 1e-12)
    low = 0.0 if value == 0 else float(brentq(excess, 0.0, inside))
    high = 1.0 if value == 1 else float(brentq(excess, inside, 1.0))
    return low, high


def labelled_folds(
    y: np.ndarray, n_splits: int, random_state: int | None = None
) -> list[np.ndarray]:
    """Split the labelled rows into folds with both kinds in each; unlabelled rows are in none."""
    from sklearn.model_selection import StratifiedKFold

    labelled = np.flatnonzero(y != 0)
    splitter = StratifiedKFold(n_splits, shuffle=True, random_state=random_state)
    return [labelled[held] for _, held in splitter.split(labelled, y[labelled])]


def out_of_fold_scores(
    model: Any, X: Any, y: Any, n_splits: int = 5, random_state: int | None = None
) -> np.ndarray:
    """Anomaly scores of the labelled rows, each from a fit that never saw the row.

    scikit-learn's `cross_val_predict` renumbers the three codes before it fits; this does not.
    Unlabelled rows are in every training set. The result is NaN for them.

    Parameters
    ----------
    model : estimator or Pipeline with `score_samples`
        Cloned for every fold.
    X : array, sparse matrix or frame
        All rows.
    y : array
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    n_splits : int, default=5
        Number of folds, lowered to the number of rows of the rarer label.
    random_state : int, optional
        Seed of the folds.
    """
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    codes = check_codes(y)
    rarer = min(int((codes == ANOMALY).sum()), int((codes == NORMAL).sum()))
    if rarer < 2:
        raise InputError(
            "out-of-fold scores need at least 2 labelled rows of each kind, "
            f"got {rarer} of the rarer one."
        )
    scores = np.full(len(codes), np.nan)
    for held in labelled_folds(codes, min(n_splits, rarer), random_state):
        train = np.setdiff1d(np.arange(len(codes)), held, assume_unique=True)
        fitted = clone(model).fit(_safe_indexing(X, train), codes[train])
        scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    return scores
