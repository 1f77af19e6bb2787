"""Hiding labels: the accepted draw is made directly, with the right distribution."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.loops import each

from riskad import mask_labels
from riskad.core import masking
from riskad.core.checks import InputError


def one_error(call, *args, **kwargs):
    """The InputError of a call: in one line, and without the errors it came from."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "\n" not in str(error)
    return error


def make_truth(n_normal, n_anomalies, seed=0):
    truth = np.array([1] * n_normal + [-1] * n_anomalies, dtype=np.int16)
    return np.random.default_rng(seed).permutation(truth)


@settings(max_examples=200, deadline=None)
@given(
    n_normal=st.integers(1, 300),
    n_anomalies=st.integers(1, 300),
    fraction=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**32),
)
def test_the_right_number_of_true_labels_with_both_kinds_is_kept(
    n_normal, n_anomalies, fraction, seed
):
    truth = make_truth(n_normal, n_anomalies, seed)
    before = truth.copy()
    k = round(fraction * len(truth))
    if k < 2:
        error = one_error(mask_labels, truth, fraction)
        assert f"labels {k} of them" in str(error)
        # What the message advises does work.
        advised = float(str(error).rsplit("=", 1)[1].removesuffix("."))
        assert np.count_nonzero(mask_labels(truth, advised)) == 2
        return
    y = mask_labels(truth, fraction, random_state=seed)
    assert y.dtype == np.int16
    assert y.shape == truth.shape
    assert np.count_nonzero(y) == k
    assert set(y.tolist()) >= {-1, 1}
    assert_array_equal(y[y != 0], truth[y != 0])
    assert_array_equal(truth, before)


@each(("n_normal", "n_anomalies", "k"), [(4, 2, 3), (2, 3, 4), (5, 1, 2)])
def test_all_choices_with_both_kinds_are_equally_likely(n_normal, n_anomalies, k):
    truth = make_truth(n_normal, n_anomalies)
    n = len(truth)
    allowed = [
        chosen
        for chosen in itertools.combinations(range(n), k)
        if 0 < np.count_nonzero(truth[list(chosen)] == -1) < k
    ]
    rng = np.random.default_rng(0)
    n_draws = 3000
    seen = Counter(
        tuple(np.flatnonzero(mask_labels(truth, k / n, random_state=rng)).tolist())
        for _ in range(n_draws)
    )
    assert set(seen) == set(allowed)
    p = 1 / len(allowed)
    tolerance = 5 * math.sqrt(p * (1 - p) / n_draws)  # five standard deviations
    assert_allclose([seen[chosen] / n_draws for chosen in allowed], p, rtol=0, atol=tolerance)


@settings(max_examples=100, deadline=None)
@given(n_p=st.integers(1, 400), n_n=st.integers(1, 400), data=st.data())
def test_the_number_of_anomalies_has_the_restricted_hypergeometric_distribution(n_p, n_n, data):
    k = data.draw(st.integers(2, n_p + n_n))
    counts, probabilities = masking._anomaly_counts(n_p, n_n, k)
    ways = {j: math.comb(n_n, j) * math.comb(n_p, k - j) for j in range(1, k)}
    possible = {j: n_ways for j, n_ways in ways.items() if n_ways}
    assert counts.tolist() == list(possible)
    total = sum(possible.values())
    exact = [float(Fraction(n_ways, total)) for n_ways in possible.values()]
    assert_allclose(probabilities, exact, rtol=1e-9, atol=1e-300)


@each("rare", [1, -1])
def test_one_rare_row_is_found_at_once(rare):
    # Choosing anew would take some 50,000 draws of 100,000 rows.
    truth = np.full(100_000, -rare, dtype=np.int16)
    truth[777] = rare
    others = set()
    for seed in range(5):
        y = mask_labels(truth, 2e-5, random_state=seed)
        assert y[777] == rare
        [other] = np.flatnonzero(y == -rare)
        others.add(int(other))
    assert len(others) == 5


def test_the_same_seed_gives_the_same_labels():
    truth = make_truth(190, 10)
    first = mask_labels(truth, random_state=3)
    assert_array_equal(mask_labels(truth, random_state=3), first)
    assert_array_equal(mask_labels(truth, random_state=np.random.default_rng(3)), first)
    assert_array_equal(mask_labels(truth.tolist(), random_state=3), first)
    assert (mask_labels(truth, random_state=4) != first).any()
    rng = np.random.default_rng(3)
    assert (mask_labels(truth, random_state=rng) != mask_labels(truth, random_state=rng)).any()
    assert np.count_nonzero(mask_labels(truth)) == 10


def test_truth_fractions_and_seeds_that_are_none_are_refused():
    for truth, *parts in (
        ([0, 1, 1, 0], "0 for 2 of 4 rows", "riskad.parse_labels(truth, normal=0, anomaly=1)"),
        ([1, -1, 0], "0 for 1 of 3 rows", "leave these rows out"),
        (["ok", "fraud"], "'ok' (1 row)", "parse_labels"),
        ([1, -1, np.nan], "The truth cannot be used"),
        ([1, 2], "The truth cannot be used", "2 (1 row)"),
        ([[1, -1], [1, 1]], "one label for each row"),
        ([1, 1, 1], "3 normal and 0 anomalies", "stratify=truth"),
        ([-1, -1], "0 normal and 2 anomalies"),
        ([], "0 normal and 0 anomalies"),
    ):
        message = str(one_error(mask_labels, truth, 0.9))
        assert all(part in message for part in parts), message
    for fraction in (0, 1, -0.1, 1.5, 5, math.nan, "0.05", None, True):
        message = str(one_error(mask_labels, make_truth(90, 10), fraction))
        assert "fraction must be a number strictly between 0 and 1" in message
    for seed in (-1, 0.5, "zero"):
        message = str(one_error(mask_labels, make_truth(90, 10), random_state=seed))
        assert "random_state must be" in message
        assert repr(seed) in message
