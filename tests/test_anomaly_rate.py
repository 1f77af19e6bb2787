import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from riskad.decisions.mixture import Histograms, divergence, em, log_ratio
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import riskad
from riskad import DataWarning, InputError, ShallowRAD, estimate_prior
from riskad.app.anomaly_rate import check_labels
from riskad.core.labels import read_codes
from riskad.decisions.anomaly_rate import (
    METHODS,
    PriorEstimate,
    _folds,
    _largest_share,
    cross_fit,
    estimate_rate,
)

BOTH_KINDS = ("em", "divergence", "shift")


def make_mixture(rate, n_p=300, n_n=40, n_u=3000, *, d=4, distance=3.0, seed=0):
    """Labelled rows and unlabelled rows in which exactly the share `rate` is anomalous."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.array([1, -1, 0], dtype=np.int8), [n_p, n_n, n_u])
    anomalous = y == -1
    anomalous[n_p + n_n : n_p + n_n + round(rate * n_u)] = True
    X = rng.standard_normal((len(y), d)) + distance / np.sqrt(d) * anomalous[:, None]
    return X, y


# --- known truth -------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.4])
@pytest.mark.parametrize("method", METHODS)
def test_the_rate_is_found(method, rate):
    found = estimate_prior(*make_mixture(rate), method=method)
    low, high = found.interval
    assert 0 <= low <= rate <= high <= 1
    assert low <= found.pi_n <= high
    assert_allclose(found.pi_p, 1 - found.pi_n)
    if method in BOTH_KINDS or (method == "auto" and rate <= 0.1):  # 40 % are not believed at once
        assert_allclose(found.pi_n, rate, atol=0.04)


@pytest.mark.parametrize("method", BOTH_KINDS)
def test_intervals_cover_and_errors_are_small_over_draws(method):
    found = [estimate_prior(*make_mixture(0.1, seed=s), method=method) for s in range(30)]
    assert np.mean([abs(f.pi_n - 0.1) for f in found]) < 0.02
    # with true coverage 0.95 fewer than 25 of 30 are a matter of 1 in 300
    assert sum(f.interval[0] <= 0.1 <= f.interval[1] for f in found) >= 25


@pytest.mark.parametrize("method", BOTH_KINDS)
def test_unlabelled_rows_of_one_kind_is_seen(method):
    assert estimate_prior(*make_mixture(0.0), method=method).pi_n < 0.02
    assert estimate_prior(*make_mixture(1.0), method=method).pi_n > 0.95


@pytest.mark.parametrize("method", BOTH_KINDS)
def test_labels_matter(method):
    X, y = make_mixture(0.1)
    known = y != 0
    y[known] = np.random.default_rng(1).permutation(y[known])
    with pytest.warns(DataWarning, match="says little"):
        found = estimate_prior(X, y, method=method)
    assert found.interval[1] - found.interval[0] > 0.5


@pytest.mark.filterwarnings("ignore:the data says little")
@pytest.mark.parametrize("method", BOTH_KINDS)
def test_fewer_labels_widen_the_interval(method):
    widths = []
    for n_n in (80, 20, 5):
        found = [
            estimate_prior(*make_mixture(0.2, n_n=n_n, seed=seed), method=method).interval
            for seed in range(5)
        ]
        widths.append(np.mean([high - low for low, high in found]))
    assert widths[0] < widths[1] < widths[2]


def test_more_confidence_widens_the_interval():
    X, y = make_mixture(0.1)
    for method in METHODS:
        wide, narrow = (
            estimate_prior(X, y, method=method, confidence=c).interval for c in (0.99, 0.5)
        )
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize("n_n", [2, 3])
@pytest.mark.parametrize("method", BOTH_KINDS)
def test_two_or_three_anomalies_call_for_a_warning(method, n_n):
    with pytest.warns(DataWarning, match=f"from {n_n} labelled anomalies: the interval is"):
        found = estimate_prior(*make_mixture(0.2, n_n=n_n), method=method)
    assert found.interval[1] - found.interval[0] > 0.1


def test_kinds_that_cannot_be_told_apart_call_for_a_warning():
    with pytest.warns(DataWarning, match="says little about the anomaly rate: the interval"):
        estimate_prior(*make_mixture(0.2, distance=0.0), method="em")


# --- one kind of label -------------------------------------------------------------------


def test_auto_is_the_estimate_of_a_fit_for_any_labels():
    X, y = make_mixture(0.1)
    y = read_codes(y)
    kinds = {"both": y != 2, "anomalies": y != 1, "normal rows": y != -1, "none": y == 0}
    found = {name: estimate_prior(X[rows], y[rows]) for name, rows in kinds.items()}
    widths = {name: each.interval[1] - each.interval[0] for name, each in found.items()}
    for each in found.values():
        assert each.method == "auto"
        assert each.interval[0] <= 0.1 <= each.interval[1]
    assert widths["both"] < widths["anomalies"] < widths["none"]
    assert "from 0 normal, 0 anomalous and 3,000 unlabelled rows" in str(found["none"])
    scores = cross_fit(X, y, ShallowRAD(lam="tight", tol=1e-3), 0)
    free = y == 0
    rate = estimate_rate(scores[~free], y[~free] == -1, scores[free], free.sum())
    assert found["both"].pi_n == rate.value


def test_said_sources_reach_the_estimate():
    X, y = make_mixture(0.1)
    unknown, drawn = (estimate_prior(X, y, label_source=s) for s in ("unknown", "random"))
    assert unknown.pi_n != drawn.pi_n
    with pytest.raises(InputError, match="random, chosen, unknown"):
        estimate_prior(X, y, label_source="rnadom")


def test_the_largest_share_is_the_ratio_in_a_pure_region():
    rng = np.random.default_rng(0)
    known = rng.normal(3, 1, 20_000)
    unlabelled = np.concatenate([rng.normal(3, 1, 14_000), rng.normal(-6, 1, 6_000)])
    (low, share, high), _ = _largest_share(known, unlabelled, 0.95)
    assert_allclose(share, 0.7, atol=0.01)
    assert low < 0.7 < high


# --- the parts ---------------------------------------------------------------------------


def test_calibration_finds_the_log_ratio_of_gaussians():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(0, 1, 50_000), rng.normal(2, 1, 50_000), [0.0] * 10])
    codes = np.repeat(np.array([1, -1, 0], dtype=np.int8), [50_000, 50_000, 10])
    h = Histograms.of(scores, codes)
    # log N(s; 2, 1) / N(s; 0, 1) = 2 s - 2
    assert_allclose(log_ratio(h), 2 * h.s - 2, atol=0.15)


def test_em_ends_where_its_steps_stand_still():
    """With a calibration that is right there is nothing to correct: EM's own fixed point."""
    s = np.linspace(-4, 6, 200)
    p, n = (np.exp(-((s - m) ** 2) / 2) for m in (0, 2))
    p, n = p / p.sum(), n / n.sum()
    h = Histograms(s, 1e7 * p, 1e7 * n, 0.7 * p + 0.3 * n)
    r, pi = np.exp(log_ratio(h)), 0.5
    for _ in range(500):
        pi = np.average(pi * r / (1 - pi + pi * r), weights=h.u)
    assert_allclose(em(h), pi, atol=1e-4)
    assert_allclose(pi, 0.3, atol=1e-3)
    assert_allclose(divergence(h), 0.3, atol=1e-3)


@pytest.mark.parametrize("estimate", [em, divergence])
def test_resamples_are_estimated_as_if_one_by_one(estimate):
    rng = np.random.default_rng(0)
    p, n, u = rng.integers(1, 50, (3, 40))
    h = Histograms(np.linspace(-2, 2, 40), p, n, u)
    two = Histograms(h.s, np.stack([p, p]), np.stack([n, n]), np.stack([u, u]))
    assert_allclose(estimate(two), [estimate(h)] * 2, atol=1e-8)


def test_folds_deal_every_kind_evenly_and_once():
    y = np.repeat(np.array([1, -1, 0], dtype=np.int8), [50, 7, 101])
    folds = list(_folds(y, 0))
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(158))
    counts = np.array([[(y[held] == kind).sum() for kind in (1, -1, 0)] for held in folds])
    assert np.ptp(counts, axis=0).max() <= 1


# --- what may be given -------------------------------------------------------------------


def test_the_same_seed_gives_the_same_estimate():
    X, y = make_mixture(0.1)
    for method in METHODS:
        first, second, other = (
            estimate_prior(X, y, method=method, random_state=seed) for seed in (3, 3, 4)
        )
        assert first == second
        assert first != other
    assert estimate_prior(X, y) == estimate_prior(X, y, random_state=0)


def test_sparse_rows_and_frames_give_what_arrays_give():
    X, y = make_mixture(0.1, n_u=1000)
    X[np.abs(X) < 0.5] = 0
    names = list("abcd")
    expected = estimate_prior(X, y)
    for rows in (
        sparse.csr_matrix(X),
        sparse.coo_array(X),
        pd.DataFrame(X, columns=names),
        pl.DataFrame(X, schema=names),
    ):
        found = estimate_prior(rows, y)
        assert_allclose((found.pi_n, *found.interval), (expected.pi_n, *expected.interval), 1e-3)
        assert_allclose(
            check_labels(rows, y).normal_p_value, check_labels(X, y).normal_p_value, atol=0.3
        )


def test_a_scorer_of_ones_own_is_used_and_left_unfitted():
    X, y = make_mixture(0.2)
    pipeline = make_pipeline(StandardScaler(), ShallowRAD(lam="tight"))
    found = estimate_prior(X, y, estimator=pipeline)
    assert_allclose(found.pi_n, 0.2, atol=0.04)
    with pytest.raises(NotFittedError):
        pipeline.score_samples(X)


class Half:
    """A scorer that knows nothing."""

    def get_params(self, deep=True):
        return {}

    def fit(self, X, y):
        return self

    def score_samples(self, X):
        return np.full(len(X), 0.5)


@pytest.mark.parametrize("method", METHODS)
def test_constant_scores_are_refused(method):
    X, y = make_mixture(0.2, n_u=100)
    with pytest.raises(InputError, match="all rows have the same score by <"):
        estimate_prior(X, y, method=method, estimator=Half())


@pytest.mark.parametrize(
    ("counts", "method", "message"),
    [
        ((30, 0, 100), "em", r"method='em' needs at least 2 labelled anomalies.*method='pu'"),
        ((1, 30, 100), "shift", r"needs at least 2 labelled normal rows.*method='nu'"),
        ((30, 1, 100), "nu", r"method='nu' needs at least 2 labelled anomalies, got 30 normal"),
        ((30, 30, 0), "auto", r"there are too few.*Mark the rows that nobody checked with 0"),
    ],
)
def test_missing_kinds_are_errors_with_a_remedy(counts, method, message):
    y = read_codes(np.repeat([1, -1, 0], counts))
    X = np.random.default_rng(0).standard_normal((len(y), 2))
    with pytest.raises(InputError, match=message):
        estimate_prior(X, y, method=method)


def test_other_mistakes_are_errors_too():
    X, y = make_mixture(0.1, n_u=100)
    with pytest.raises(InputError, match="Did you mean 'divergence'"):
        estimate_prior(X, y, method="divergance")
    with pytest.raises(InputError, match="confidence must be"):
        estimate_prior(X, y, confidence=95)
    with pytest.raises(InputError, match="estimator must have fit"):
        estimate_prior(X, y, estimator=StandardScaler())
    with pytest.raises(InputError, match=r"y must hold only \+1"):
        estimate_prior(X, np.where(y == 0, 2, y))
    with pytest.raises(InputError, match=r"X has .* rows and y"):
        estimate_prior(X[1:], y)
    X[3, 1] = np.nan
    with pytest.raises(InputError, match="missing value"):
        estimate_prior(X, y)


def test_an_estimate_says_what_it_is():
    labels = riskad.core.labels.LabelCounts(500, 50, 10_000)
    found = PriorEstimate(0.921, 0.079, (0.051, 0.112), "em", {}, labels)
    assert str(found) == (
        "anomaly rate 7.9% (95% interval 5.1% to 11.2%), by em from 500 normal, 50 anomalous "
        "and 10,000 unlabelled rows"
    )


# --- the check ---------------------------------------------------------------------------


def labels_with(problem, seed):
    X, y = make_mixture(0.1, n_n=30, d=5, seed=seed)
    rng = np.random.default_rng(seed)
    normal, anomaly = np.flatnonzero(y == 1), np.flatnonzero(y == -1)
    if problem == "absent type":
        X[anomaly[:15]] = rng.normal([-6, 6, 0, 0, 0], 1, (15, 5))
    elif problem == "shifted normals":
        X[normal, 1] += 0.4
    elif problem == "narrow normals":
        X[normal, 1] *= 0.3
    return X, y


def p_values(problem, draws):
    checks = [check_labels(*labels_with(problem, seed)) for seed in range(draws)]
    return np.array([[c.normal_p_value, c.anomaly_p_value] for c in checks], dtype=float), checks


def test_the_check_holds_its_level():
    found, _ = p_values("none", 40)
    # at 5 %, more than 6 of 40 are a matter of 1 in 300
    assert ((found <= 0.05).sum(axis=0) <= 6).all()


def test_the_check_finds_a_type_that_is_absent():
    found, checks = p_values("absent type", 6)
    assert (found[:, 1] <= 0.025).sum() >= 5
    said = [check.verdict for check in checks]
    assert sum("some type of them seems to be absent" in verdict for verdict in said) >= 5


@pytest.mark.parametrize("problem", ["shifted normals", "narrow normals"])
def test_the_check_finds_normals_that_were_not_picked_at_random(problem):
    found, checks = p_values(problem, 6)
    assert (found[:, 0] <= 0.025).sum() >= 5
    assert sum("most in column 1" in str(check) for check in checks) >= 5


def with_levels(levels, seed, *, often=1.0):
    """A category of so many levels, as yes/no columns; the first is labelled so much as often."""
    X, y = make_mixture(0.1, n_p=100, n_n=20, n_u=1500, seed=seed)
    rng = np.random.default_rng(seed)
    level = rng.integers(levels, size=len(y))
    share = np.ones(levels)
    share[0] = often
    level[y == 1] = rng.choice(levels, 100, p=share / share.sum())
    return np.hstack([X, level[:, None] == np.arange(levels)]), y


@pytest.mark.parametrize("levels", [20, 50, 100])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_check_holds_its_level_with_categories(levels, form):
    """A rare level that no labelled row has was once a large difference: 100 % false alarms."""
    draws = [with_levels(levels, seed) for seed in range(8)]
    alarms = sum(check_labels(form(X), y).normal_p_value <= 0.025 for X, y in draws)
    assert alarms <= 1  # two of 8 at 2.5 % are a matter of 1 in 60


def test_the_check_warns_of_no_constant_column_in_sparse_rows():
    """Rounding made its variance negative: warnings are errors here."""
    X, y = with_levels(20, 0)
    with_constant = np.hstack([X, np.full((len(X), 1), 0.1)])
    found, without = (check_labels(sparse.csr_matrix(rows), y) for rows in (with_constant, X))
    assert found.normal_p_value == pytest.approx(without.normal_p_value, abs=0.02)


def test_the_check_finds_a_level_that_was_picked_too_often():
    checks = [check_labels(*with_levels(20, seed, often=5.0)) for seed in range(6)]
    assert sum(check.normal_p_value <= 0.025 for check in checks) >= 5
    assert sum(check.column == 4 for check in checks) >= 5


def test_the_check_names_columns_and_is_deterministic():
    X, y = labels_with("shifted normals", 0)
    frame = pd.DataFrame(X, columns=["a", "amount", "c", "d", "e"])
    check = check_labels(frame, y)
    assert check.column == "amount"
    assert "column 'amount'" in check.verdict
    assert check == check_labels(frame, y, estimate=estimate_prior(X, y), random_state=0)


def test_the_check_says_when_it_cannot_be_made():
    X, y = make_mixture(0.1, n_n=1, n_u=100)
    check = check_labels(X, y)
    assert (check.normal_p_value, check.anomaly_p_value) == (None, None)
    assert check.verdict.startswith("not checked: this takes 2 labelled rows of each kind")


def test_a_handful_of_normals_is_not_compared():
    X, y = make_mixture(0.1, n_p=19, n_n=20, n_u=500)
    check = check_labels(X, y)
    assert (check.normal_p_value, check.column) == (None, None)
    assert "fewer than 20 labelled, not compared" in check.verdict
