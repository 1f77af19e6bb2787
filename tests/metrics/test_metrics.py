"""AUC with an interval that covers, and scores of rows that the model never saw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.metrics import average_precision_score, roc_auc_score
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.decisions.anomaly_rate import as_rate_estimate
from riskad.detectors.shallow import ShallowRAD
from riskad.metrics.ranking import auc_with_interval, average_precision_with_interval, reliability
from riskad.metrics.search import out_of_fold_scores


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 10**6]))
@settings(max_examples=60, deadline=None)
def test_values_are_those_of_scikit_learn(seed, levels):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[1, -1], rng.integers(-1, 2, rng.integers(0, 40))])
    scores = rng.integers(0, levels, len(y)).astype(float)
    labelled = y != 0
    expected = roc_auc_score(y[labelled] == -1, scores[labelled])
    found = auc_with_interval(y, scores)
    assert_allclose(found.value, expected, atol=1e-14)
    assert (found.n_normal, found.n_anomaly) == ((y == 1).sum(), (y == -1).sum())
    distinct = rng.permutation(len(y)).astype(float)
    precision = average_precision_with_interval(y, distinct)
    expected = average_precision_score(y[labelled] == -1, distinct[labelled])
    assert_allclose(precision.value, expected, atol=1e-12)
    for estimate in (found, precision):
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_the_interval_is_newcombe_s():
    found = auc_with_interval([1, 1, 1, 1, -1, -1, -1], [0.1, 0.2, 0.3, 0.8, 0.4, 0.5, 0.9])
    theta, n, m, z = 10 / 12, 4, 3, norm.ppf(0.975)
    assert_allclose(found.value, theta)
    # The ends solve |estimate - end| = z * standard error at the end.
    for end in (found.low, found.high):
        inner = 1 + ((m + n) / 2 - 1) * ((1 - end) / (2 - end) + end / (1 + end))
        error = (end * (1 - end) * inner / (m * n)) ** 0.5
        assert_allclose(abs(theta - end), z * error, rtol=1e-8)
    assert found.low < theta < found.high


def test_few_anomalies_on_top_do_not_make_certainty():
    y = np.repeat([1, -1], [50, 3])
    best = auc_with_interval(y, np.arange(53))
    worst = auc_with_interval(y, -np.arange(53))
    assert (best.value, best.high) == (1, 1)
    assert (worst.value, worst.low) == (0, 0)
    assert 0.5 < best.low < 0.95
    assert_allclose(worst.high, 1 - best.low, atol=1e-9)


def test_only_ranks_matter_and_only_of_labelled_rows():
    rng = np.random.default_rng(2)
    y, scores = rng.permutation(np.repeat([1, -1, 0], [12, 5, 9])), rng.random(26)
    found = auc_with_interval(y, scores)
    assert auc_with_interval(y, np.exp(20 * scores)) == found
    assert auc_with_interval(y, np.where(y == 0, np.nan, scores)) == found
    assert auc_with_interval(y[y != 0], scores[y != 0]) == found


def test_average_precision_at_another_rate_is_that_of_repeated_normals():
    rng = np.random.default_rng(0)
    y, scores = np.repeat([1, -1], [30, 10]), rng.random(40)
    thinned = np.concatenate([np.repeat(scores[:30], 3), scores[30:]])
    expected = average_precision_with_interval(np.repeat([1, -1], [90, 10]), thinned)
    for rate in (0.1, as_rate_estimate(0.1)):
        assert_allclose(average_precision_with_interval(y, scores, rate).value, expected.value)


def gaussian_precision(pi_n, shift, threshold):
    """Precision above thresholds: normals are N(0, 1), anomalies N(shift, 1)."""
    hit, false = pi_n * norm.sf(threshold - shift), (1 - pi_n) * norm.sf(threshold)
    return hit / (hit + false)


@each("shift", [0.5, 2.0, 3.5])
@each(("n", "m"), [(50, 5), (300, 20), (20, 20)])
def test_the_interval_of_average_precision_covers(shift, n, m):
    rng = np.random.default_rng(n + m)
    pi_n, y = m / (n + m), np.repeat([1, -1], [n, m])
    truth = gaussian_precision(pi_n, shift, rng.normal(shift, 1, 200_000)).mean()
    covered = 0
    for _ in range(200):
        scores = rng.standard_normal(n + m) + shift * (y == -1)
        found = average_precision_with_interval(y, scores)
        covered += found.low <= truth <= found.high
    assert covered / 200 >= 0.92


@each("estimate", [auc_with_interval, average_precision_with_interval])
@each("say", [str, "{}".format, "{:.2f}".format, "{:.1%}".format])
def test_no_number_from_two_anomalies_is_said_without_its_interval(estimate, say):
    found = estimate([1, 1, 1, -1, -1], np.arange(5))
    assert (found.value, found.high) == (1, 1)
    assert found.low < 0.6
    assert "95% interval" in say(found)
    assert "2 anomalies" in say(found)


def test_mistakes_are_sentences():
    for call, words in (
        (lambda: auc_with_interval(read_codes([1, 1, 0]), np.zeros(3)), "got 2 normal and 0"),
        (lambda: auc_with_interval(read_codes([-1, 0]), np.zeros(2)), "got 0 normal and 1"),
        (lambda: auc_with_interval([1, 1, -1], [0.0, np.nan, 1.0]), "NaN"),
        (lambda: auc_with_interval([1, 1, -1], [0.0, 1.0]), "3 labels and 2 scores"),
        (lambda: auc_with_interval([1, -1], [0.0, 1.0], 95), "strictly between 0 and 1"),
        (lambda: auc_with_interval([1, -1], [0.0, 1.0], np.nan), "strictly between 0 and 1"),
        (lambda: auc_with_interval(["ok", "fraud"], [0.0, 1.0]), "must hold only"),
        (lambda: reliability([1, -1], [0.5, 1.5]), "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=words):
            call()


class Spy(BaseEstimator):
    """Remembers which row numbers (column 0) and labels each fit was given."""

    fits = []  # noqa: RUF012

    def fit(self, X, y):
        self.rows_ = X[:, 0].astype(int)
        self.fits.append((self.rows_, np.array(y)))
        return self

    def score_samples(self, X):
        held = X[:, 0].astype(int)
        assert not set(held) & set(self.rows_)
        return 1000.0 * len(self.fits) + held


def numbered(n_normal=13, n_anomaly=6, n_unlabelled=20, seed=0):
    y = np.repeat([1, -1, 0], [n_normal, n_anomaly, n_unlabelled])
    y = np.random.default_rng(seed).permutation(y)
    return np.arange(len(y), dtype=float)[:, None], y


@pytest.fixture
def fits():
    Spy.fits.clear()
    return Spy.fits


def test_no_fit_sees_the_rows_it_scores_and_each_sees_all_others(fits):
    X, y = numbered()
    scores = out_of_fold_scores(Spy(), X, y, random_state=0)
    assert len(fits) == 5
    assert_array_equal(np.isnan(scores), y == 0)
    for number, (rows, labels) in enumerate(fits, start=1):
        assert_array_equal(labels, y[rows])
        held = np.setdiff1d(np.arange(len(y)), rows)
        assert set(y[held]) == {1, -1}
        # High is anomalous: the sign of score_samples is turned.
        assert_array_equal(scores[held], -(1000.0 * number + held))


@pytest.mark.parametrize(("n_splits", "n_anomaly", "n_fits"), [(5, 2, 2), (5, 5, 5), (3, 6, 3)])
def test_folds_are_as_many_as_the_rarer_label_allows(fits, n_splits, n_anomaly, n_fits):
    X, y = numbered(n_anomaly=n_anomaly)
    out_of_fold_scores(Spy(), X, y, n_splits, random_state=0)
    assert len(fits) == n_fits


@each("y", [[1, 1, 1, -1, 0], [1, -1, -1, 0, 0], [0, 0, 0, 0, 0]])
def test_too_few_labels_are_counted_in_the_message(y):
    rarer = min(y.count(1), y.count(-1))
    with pytest.raises(InputError, match=rf"at least 2 labelled rows of each kind, got {rarer} of"):
        out_of_fold_scores(ShallowRAD(), np.zeros((5, 1)), y)


def test_honest_probabilities_lie_on_the_diagonal_at_any_rate():
    rng = np.random.default_rng(0)
    y, pi_n = np.repeat([1, -1], 60_000), 0.05
    p = expit(2 * np.concatenate([rng.normal(0, 1, 60_000), rng.normal(2, 1, 60_000)]) - 2)
    shifted = expit(logit(p) + logit(pi_n))
    for probabilities, rate in ((p, None), (shifted, pi_n)):
        found = reliability(y, probabilities, pi_n=rate, confidence=0.999)
        assert_allclose(found.observed, found.predicted, atol=0.05)
        assert np.all((found.low <= found.predicted) & (found.predicted <= found.high))
        assert found.count.sum() == len(y)
