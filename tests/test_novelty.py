"""Novelty: rows unlike all that a model was fitted to, whether their kind was labelled or not."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

import riskad
from riskad import AutoRAD, InputError
from riskad.cli import main
from riskad.core.labels import LabelCodes


def two_kinds(n_rows=500, seed=0):
    """Anomalies at the right are labelled, those above are not; rows, codes, kinds (0 normal)."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n_rows, p=[0.92, 0.04, 0.04])
    X = rng.normal(0, 1, (n_rows, 4))
    X[kind == 1, 0] += 6
    X[kind == 2] += np.array([-2.0, 6.0, 0.0, 0.0])
    y = np.zeros(n_rows, dtype=np.int8)
    y[np.flatnonzero(kind == 0)[:40]] = 1
    y[np.flatnonzero(kind == 1)[:8]] = -1
    return X, LabelCodes.of(y), kind


def auc(scores, kind, which):
    rows = (kind == 0) | (kind == which)
    return roc_auc_score(kind[rows] == which, scores[rows])


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = two_kinds()
    return AutoRAD(budget=600).fit(X, y)


def test_novelty_finds_a_kind_that_nobody_labelled(fitted):
    X, _, kind = two_kinds(2000, seed=1)
    score, novelty = fitted.anomaly_score_and_novelty(X)
    assert auc(score, kind, 1) > 0.97
    assert auc(novelty, kind, 2) > 0.97
    np.testing.assert_array_equal(score, fitted.anomaly_score(X))
    np.testing.assert_array_equal(novelty, fitted.novelty(X))


def test_novelty_counts_in_standard_deviations_of_unlabelled_rows(fitted):
    X, y, _ = two_kinds()
    novelty = fitted.novelty(X[y == 0])
    assert abs(novelty.mean()) < 0.1
    assert novelty.std() == pytest.approx(1, abs=0.1)
