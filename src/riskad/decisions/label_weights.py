"""Labelled rows that differ from the unlabelled ones by their columns, and weights against that.

Rows may have been labelled because of their content (found by a rule, suggested, or because they
looked odd): preferred contents x are then too frequent among the labelled rows. With

    w(x) = P(unlabelled | x) / P(labelled | x),

up to a factor, the weighted labelled rows are spread as the unlabelled ones are. P is estimated by
logistic regression on the standardised columns and their absolute values, by fits that have not
seen the row. The penalty is the one that predicts best, and w lies within 1/5 and 5. n rows are
then worth (sum w)^2 / sum w^2.

If the chance of a label depended on the kind instead, an AUC needs no weights. It is unknown which
was the case, and weights increase the uncertainty: so the estimate is unchanged, and its interval
is extended to that of the weighted one (`results/decisions/selected.json` has the bias and the
coverage of both). If many unlabelled rows are like hardly any labelled one, no weights can show how
these are ranked (`beyond`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.metrics.ranking import Auc, like_interval

_PENALTIES = (1e-3, 1e-2, 1e-1)  # of scikit-learn's C
_SPLITS = 5
_LARGEST = 5.0  # w; larger ones would let single rows decide a weighted mean
_FARTHEST = 4.0  # standard deviations, or a single far value would decide a logistic regression
_FEWEST = 20  # labelled rows that are compared
_CLEARLY = 2.0  # gain in log likelihood, of labelled rows, over a constant
_MOST_ROWS, _MOST_COLUMNS = 2_000, 100
_TAIL = 0.02  # of the labelled rows, beyond which an unlabelled one is unlike them


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """How labelled rows differ from unlabelled ones, by their columns."""

    weights: np.ndarray  # w of each labelled row, in their order
    clear: bool  # whether they differ clearly
    beyond: float  # share of unlabelled rows that 98 % of labelled rows are more like


def weigh_labelled(X: Any, codes: np.ndarray, seed: int = 0) -> LabelWeights | None:
    """Compare labelled rows with unlabelled ones, by columns of numbers; None for fewer than 20."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    labelled, others = np.flatnonzero(codes != UNLABELLED), np.flatnonzero(codes == UNLABELLED)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or min(len(labelled), len(others)) < _FEWEST:
        return None
    rng = np.random.default_rng(seed)
    if len(others) > _MOST_ROWS:
        others = rng.choice(others, _MOST_ROWS, replace=False)
    rows = np.concatenate([labelled, others])
    columns = np.sort(rng.permutation(X.shape[1])[:_MOST_COLUMNS])
    is_labelled = np.arange(len(rows)) < len(labelled)
    some = np.asarray(X[np.ix_(rows, columns)], dtype=float)
    spread = some.std(axis=0)
    Z = np.nan_to_num((some - some.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
    Z = np.clip(Z, -_FARTHEST, _FARTHEST)
    # Values at both ends may be preferred: the absolute value shows it to a linear model.
    F = np.hstack([Z, np.abs(Z) - np.abs(Z).mean(axis=0)])
    n = len(labelled)
    weight = np.where(is_labelled, 1.0, n / (len(F) - n))  # both sides count as n rows
    folds = list(StratifiedKFold(_SPLITS, shuffle=True, random_state=seed).split(F, is_labelled))
    best, gain = np.zeros(len(F)), 0.0  # log odds of a label; log likelihood over a constant
    for C in _PENALTIES:
        odds = np.empty(len(F))
        for train, held in folds:
            fit = LogisticRegression(C=C, tol=1e-3)
            fit.fit(F[train], is_labelled[train], weight[train])
            odds[held] = fit.decision_function(F[held])
        loss = weight @ np.logaddexp(0, np.where(is_labelled, -odds, odds))
        gain_here = float(weight.sum() * np.log(2) - loss)
        if gain_here > gain:
            best, gain = odds, gain_here
    labelled_odds = best[is_labelled]
    # Relative to the median, since a factor common to all weights has no effect.
    most = np.log(_LARGEST)
    w = np.exp(np.clip(np.median(labelled_odds) - labelled_odds, -most, most))
    beyond = float((best[~is_labelled] < np.quantile(labelled_odds, _TAIL)).mean())
    return LabelWeights(w, gain > _CLEARLY, beyond)


def auc_with_weights(
    auc: Auc, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> tuple[Auc, Auc]:
    """The AUC of labelled rows with its interval extended, and the weighted one."""
    anomalous = codes == ANOMALY
    # Only the gap is used: the given AUC may be one of folds, each ranked by itself.
    gap = roc_auc_score(anomalous, scores, sample_weight=weights) - roc_auc_score(anomalous, scores)
    value = min(max(auc.value + float(gap), 0.0), 1.0)
    m, n = (w.sum() ** 2 / (w**2).sum() / len(w) for w in (weights[anomalous], weights[~anomalous]))
    weighted = like_interval(auc, value, m * auc.n_anomaly, n * auc.n_normal)
    low, high = min(auc.low, weighted.low), max(auc.high, weighted.high)
    return replace(auc, low=low, high=high), weighted
