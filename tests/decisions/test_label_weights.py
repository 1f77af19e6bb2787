"""Labelled rows that were chosen by content: what that does to the AUC, and what is said of it."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from riskad.decisions.label_weights import auc_with_weights, weigh_labelled
from riskad.metrics.ranking import auc_with_interval


def table(rng, n=1500):
    """Rows of two columns; the score is good where the second is high, and useless elsewhere."""
    anomalous = rng.random(n) < 0.15
    x, place = rng.normal(size=n), rng.normal(size=n)
    score = x + np.where(place > 0, 2.5, 0.0) * anomalous
    return np.column_stack([x, place]), score, anomalous


def estimates(rng, weight_of):
    """AUC as labels tell it and weighted, and that of the unlabelled rows."""
    X, score, anomalous = table(rng)
    weight, codes = weight_of(X[:, 1]), np.zeros(len(X), dtype=int)
    rows = rng.choice(len(X), 200, replace=False, p=weight / weight.sum())
    codes[rows] = np.where(anomalous[rows], -1, 1)
    known = codes != 0
    found = weigh_labelled(X, codes)
    plain = auc_with_interval(codes, score)
    wider, weighted = auc_with_weights(plain, score[known], codes[known], found.weights)
    truth = roc_auc_score(anomalous[~known], score[~known])
    return found, plain, wider, weighted, truth


def test_weights_undo_a_choice_by_content():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(8):
        found, plain, wider, weighted, truth = estimates(rng, lambda x: np.where(x > 0, 8.0, 1.0))
        assert found.clear
        assert wider.value == plain.value
        assert wider.low <= min(plain.low, weighted.low)
        assert wider.high >= max(plain.high, weighted.high)
        gaps.append((plain.value - truth, weighted.value - truth))
    before, after = np.mean(gaps, axis=0)
    assert before > 0.08  # chosen rows flatter
    assert abs(after) < 0.7 * before  # weights are limited, so that a part is left


def test_rows_that_nobody_looked_at_are_seen_to_be_beyond():
    rng = np.random.default_rng(2)
    found, *_ = estimates(rng, lambda x: np.where(x > 0.7, 1.0, 1e-9))
    assert found.clear
    assert found.beyond > 0.6


def test_too_few_rows_or_no_table_are_not_compared():
    X, codes = np.zeros((100, 2)), np.zeros(100, dtype=int)
    codes[:10] = 1
    assert weigh_labelled(X, codes) is None
    codes[:30] = 1
    assert weigh_labelled(np.zeros((100, 2, 2)), codes) is None
    constant = weigh_labelled(X, codes)
    assert not constant.clear
    assert_allclose(constant.weights, 1)
