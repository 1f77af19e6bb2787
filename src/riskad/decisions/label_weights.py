r"""Labelled rows that were chosen by their content, weighted towards the unlabelled rows.

If rows were labelled because of their content (found by a rule, suggested, or because they looked
odd), preferred contents x are too frequent among the labelled rows. With

    w(x) = P(unlabelled | x) / P(labelled | x),

up to a factor, the weighted labelled rows are spread as the unlabelled ones are. P is estimated by
logistic regression on the standardised columns and their absolute values, by fits that have not
seen the row. The penalty is the one that predicts best, and w lies within 1/5 and 5. n rows are
then worth (sum w)^2 / sum w^2.

If the chance of a label depended on the kind instead (anomalies were labelled more often), an AUC
needs no weights. It is unknown which was the case, and weights increase the uncertainty: so the
estimate is unchanged, and its interval is extended to that of the weighted one
(`results/decisions/selected.json` has the bias and the coverage of both). If many unlabelled rows
are like hardly any labelled one, no weights can show how these are ranked (`beyond`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.decisions.ranking_metrics import Auc, like_interval

__all__ = ["LabelWeights", "auc_with_weights", "weigh_labelled"]

_PENALTIES = (1e-3, 1e-2, 1e-1)  # of scikit-learn's C
_SPLITS = 5
_LARGEST = 5.0  # w; a row that represents more others is not reliable
_FARTHEST = 4.0  # standard deviations; values are clipped here
_FEWEST = 20  # labelled rows that are compared
_CLEARLY = 2.0  # gain in log likelihood, of labelled rows, over a constant
_MOST_ROWS, _MOST_COLUMNS = 2_000, 100
_TAIL = 0.02  # of the labelled rows, beyond which an unlabelled one is unlike them


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """How labelled rows differ from unlabelled ones, by their columns."""

    weights: np.ndarray
    """w of each labelled row, in their order."""
    clear: bool
    """Whether they differ clearly."""
    beyond: float
    """The share of unlabelled rows that are less like labelled ones than 98 % of these are."""


def weigh_labelled(X: Any, codes: np.ndarray, seed: int = 0) -> LabelWeights | None:
    """Compare labelled rows with unlabelled ones.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        All rows, as numbers.
    codes : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    seed : int
        Seed of the folds, and of the sample of rows and columns if there are very many.

    Returns
    -------
    LabelWeights or None
        None for fewer than 20 labelled or unlabelled rows, and for rows that are not a table.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, codes = rng.normal(size=(500, 2)), np.zeros(500, dtype=int)
    >>> codes[np.argsort(-X[:, 0])[:50]] = 1
    >>> found = weigh_labelled(X, codes)
    >>> found.clear, found.beyond > 0.8
    (True, True)
    """
    labelled, others = np.flatnonzero(codes != UNLABELLED), np.flatnonzero(codes == UNLABELLED)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or min(len(labelled), len(others)) < _FEWEST:
        return None
    rng = np.random.default_rng(seed)
    if len(others) > _MOST_ROWS:
        others = rng.choice(others, _MOST_ROWS, replace=False)
    rows = np.concatenate([labelled, others])
    columns = np.sort(rng.permutation(X.shape[1])[:_MOST_COLUMNS])
    is_labelled = np.arange(len(rows)) < len(labelled)
    odds, gain = _cross_fitted(_features(X[np.ix_(rows, columns)]), is_labelled, seed)
    own = odds[is_labelled]
    w = np.exp(np.clip(np.median(own) - own, -np.log(_LARGEST), np.log(_LARGEST)))
    beyond = float((odds[~is_labelled] < np.quantile(own, _TAIL)).mean())
    return LabelWeights(w, gain > _CLEARLY, beyond)


def _features(X: np.ndarray) -> np.ndarray:
    X = np.asarray(X, dtype=float)
    spread = X.std(axis=0)
    Z = np.nan_to_num((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
    Z = np.clip(Z, -_FARTHEST, _FARTHEST)
    return np.hstack([Z, np.abs(Z) - np.abs(Z).mean(axis=0)])


def _cross_fitted(F: np.ndarray, labelled: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Log odds of a label, row by row, and their gain in log likelihood over a constant."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    n = int(labelled.sum())
    weight = np.where(labelled, 1.0, n / (len(labelled) - n))  # both sides count as n rows
    folds = list(StratifiedKFold(_SPLITS, shuffle=True, random_state=seed).split(F, labelled))
    best, gain = np.zeros(len(F)), 0.0
    for C in _PENALTIES:
        odds = np.empty(len(F))
        for train, held in folds:
            fit = LogisticRegression(C=C, tol=1e-3).fit(F[train], labelled[train], weight[train])
            odds[held] = fit.decision_function(F[held])
        loss = weight @ np.logaddexp(0, np.where(labelled, -odds, odds))
        own = float(weight.sum() * np.log(2) - loss)
        if own > gain:
            best, gain = odds, own
    return best, gain


def auc_with_weights(
    auc: Auc, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> tuple[Auc, Auc]:
    """Return the AUC with its interval extended, and the weighted one.

    Parameters
    ----------
    auc
        AUC by the labelled rows.
    scores, codes
        Held-out anomaly scores of labelled rows, and +1 or -1 for each.
    weights
        w of each row.
    """
    anomalous = codes == ANOMALY
    gap = _weighted_auc(scores, anomalous, weights) - _weighted_auc(
        scores, anomalous, np.ones_like(weights)
    )
    value = min(max(auc.value + gap, 0.0), 1.0)
    worth = [
        w.sum() ** 2 / (w**2).sum() / len(w) for w in (weights[anomalous], weights[~anomalous])
    ]
    weighted = like_interval(auc, value, worth[0] * auc.n_anomaly, worth[1] * auc.n_normal)
    ends = min(auc.low, weighted.low), max(auc.high, weighted.high)
    return replace(auc, low=ends[0], high=ends[1]), weighted


def _weighted_auc(scores: np.ndarray, anomalous: np.ndarray, weights: np.ndarray) -> float:
    """The weight of pairs in which the anomaly is above; ties count half."""
    place = rankdata(scores, method="dense") - 1
    normal = np.bincount(place, weights * ~anomalous)
    below = np.cumsum(normal) - normal / 2
    anomaly = np.bincount(place, weights * anomalous)
    return float(anomaly @ below / (anomaly.sum() * normal.sum()))
