"""Searches over settings; folds and scorers for scikit-learn's tools."""

import numpy as np
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from support.loops import each
from support.rows import label_first

import riskad
from riskad import InputError, PNUStratifiedKFold, RADSearchCV, ShallowRAD
from riskad.detectors.linear import candidates as together
from riskad.metrics.ranking import auc_of_folds, auc_with_interval
from riskad.metrics.search import RiskScorer, choose_place, evaluate_nested, labelled_auc


def codes(n_normal, n_anomaly, n_unlabelled, seed=0):
    y = np.repeat([1, -1, 0], [n_normal, n_anomaly, n_unlabelled])
    return np.random.default_rng(seed).permutation(y)


def with_labels(n_normal, n_anomaly, seed=0, **settings):
    """Unlabelled rows with exactly so many labels."""
    X, _, truth = make_contaminated_rows(seed=seed, **settings)
    return X, label_first(truth, n_normal, n_anomaly), truth


def oblique(n_rows=1500, n_labelled=200, seed=0):
    """Anomalies leave a long thin cloud sideways: only a light penalty finds the direction."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n_rows) < 0.3
    along, across = rng.standard_normal((2, n_rows))
    along, across = 10 * along + 4 * anomalous, 0.3 * across + 0.6 * anomalous
    X = np.column_stack([along + across, along - across])
    truth = np.where(anomalous, -1, 1)
    return X, np.where(np.arange(n_rows) < n_labelled, truth, 0), truth


def test_each_fold_has_its_share_of_every_kind():
    y = codes(23, 7, 101)
    splits = list(PNUStratifiedKFold(5, random_state=3, unlabelled=True).split(y, y))
    assert len(splits) == 5
    assert_array_equal(np.sort(np.concatenate([held for _, held in splits])), np.arange(len(y)))
    for train, held in splits:
        assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(len(y)))
        assert (y[held] == 1).sum() in (4, 5)
        assert (y[held] == -1).sum() in (1, 2)
        assert (y[held] == 0).sum() in (20, 21)
        assert len(held) in (26, 27)


def test_only_labelled_rows_are_scored_and_no_row_of_a_fold_is_trained_on():
    y = codes(23, 7, 101)
    both = (list(PNUStratifiedKFold(5, unlabelled=u).split(y, y)) for u in (False, True))
    for (train, scored), (rest, held) in zip(*both, strict=True):
        assert_array_equal(train, rest)
        assert_array_equal(scored, held[y[held] != 0])
    with pytest.raises(InputError, match=r"y has none\. Label some, or set unlabelled=True"):
        next(PNUStratifiedKFold(2).split(y, np.zeros(10, dtype=int)))


def test_rounds_hold_every_row_out_once_each_and_differ():
    y = codes(20, 8, 50)
    folds = PNUStratifiedKFold(4, 3, random_state=0, unlabelled=True)
    held = [h for _, h in folds.split(y, y)]
    assert folds.get_n_splits() == len(held) == 12
    assert_array_equal(np.bincount(np.concatenate(held)), np.full(len(y), 3))
    assert len({tuple(h) for h in held}) == 12


def test_a_kind_that_is_too_small_is_named():
    for counts, message in (
        ((20, 3, 50), "5 folds need 5 anomaly rows, got 3. Lower n_splits to 3."),
        ((4, 9, 50), "5 folds need 5 normal rows, got 4"),
        ((20, 9, 2), "5 folds need 5 unlabelled rows, got 2"),
        ((20, 1, 50), "got 1. Lower n_splits to 2 and label one more."),
    ):
        y = codes(*counts)
        with pytest.raises(InputError, match=message):
            list(PNUStratifiedKFold(5).split(y, y))


def test_the_scorers_are_the_auc_of_labelled_rows_and_minus_the_risk():
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD().fit(X, y)
    labelled = y != 0
    expected = roc_auc_score(y[labelled] == -1, -model.score_samples(X)[labelled])
    assert_allclose(labelled_auc(model, X, y), expected)
    risk = riskad.core.risks.get_risk("rad", "logistic", a=0.3, prior=0.7)
    scorer = RiskScorer("logistic", a=0.3, prior=0.7)
    assert_allclose(scorer(model, X, y), -risk.value(model.decision_function(X), y))


@each(("gain", "expected"), [(0.9, 1), (1.1, 2)])
def test_the_default_is_left_for_a_gain_of_two_standard_errors(gain, expected):
    scores = np.full((3, 10), 0.5)
    scores[2] += gain * 2 * 0.1 / np.sqrt(5) + 0.1 * stats.zscore(np.arange(10.0), ddof=1)
    assert choose_place(scores, 1) == expected
    assert choose_place(scores, None) == choose_place(scores, 7) == 2
    assert choose_place(np.full((4, 10), 0.7), 2) == 2  # ties go to the default


def test_a_clear_gain_is_taken_and_a_small_one_is_not():
    rng = np.random.default_rng(0)
    scores = 0.8 + 0.02 * rng.standard_normal((10, 1)) + np.array([0.0, 0.05, 0.001])
    noise = 0.01 * rng.standard_normal((10, 3))
    assert together.best_place(scores + noise, m=50) == 1
    assert together.best_place((scores + noise)[:, [0, 2]], m=50) == 0


def test_the_choice_follows_an_obvious_signal_and_the_labels():
    settings = ((0.1, 0.8), (0.4, 0.5))
    candidates = [together.Candidate(*s, lam) for lam in (1.0, 0.1, 0.001) for s in settings]
    X, y, _ = oblique()
    Z = np.column_stack([StandardScaler().fit_transform(X), np.ones(len(X))])
    for labels, is_first in ((y, False), (np.random.default_rng(0).permutation(y), True)):
        chosen = together.choose_candidate(Z, labels, candidates, 0)
        assert chosen == candidates[0] if is_first else chosen.lam < 1


def test_problems_solved_together_are_what_each_is_alone(monkeypatch):
    monkeypatch.setattr(together, "_STEPS", 400)
    X, y, _ = make_contaminated_rows(n_rows=200)
    X = StandardScaler().fit_transform(X)
    folds = np.array(list(PNUStratifiedKFold(3).folds(y)))
    candidates = [together.Candidate(0.1, 0.8, 0.3), together.Candidate(0.4, 0.5, 0.05)]
    Z = np.column_stack([X, np.ones(len(X))])
    found = together.solve_together(Z, y, candidates, folds)
    for fold, thetas in zip(folds, found, strict=True):
        for (a, prior, lam), theta in zip(candidates, thetas, strict=True):
            alone = ShallowRAD("squared", a=a, prior=prior, lam=lam, scale=False)
            alone.fit(X[~fold], y[~fold])
            assert_allclose(theta, [*alone.coef_, alone.intercept_], atol=2e-3)


def test_a_search_takes_a_clear_gain():
    X, y, _ = oblique(600)
    search = RADSearchCV(ShallowRAD(lam="tight"), {"lam": [0.01, 100.0]}).fit(X, y)
    assert search.best_params_ == {"lam": 0.01}
    assert_array_equal(search.score_samples(X), search.best_estimator_.score_samples(X))
    assert_array_equal(search.anomaly_score(X), -search.score_samples(X))
    assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    assert_array_equal(search.decision_function(X) >= 0, search.predict(X) == 1)


def test_a_search_keeps_the_default_where_gains_are_small():
    X, y, _ = with_labels(30, 8, shift=6.0)
    search = RADSearchCV(ShallowRAD(a=0.2)).fit(X, y)
    assert search.best_params_ == {}
    assert search.best_estimator_.a == 0.2
    assert len(search.cv_results_["params"]) == 10


@each(("n_anomaly", "criterion"), [(4, "auc"), (3, "risk"), (1, "none")])
def test_the_criterion_of_a_search_is_what_the_labels_allow(n_anomaly, criterion):
    X, y, _ = with_labels(30, n_anomaly)
    search = RADSearchCV(ShallowRAD(), {"a": [0.05]}, n_repeats=1).fit(X, y)
    assert search.criterion_ == criterion
    assert (search.cv_results_ is None) == (criterion == "none")
    assert np.isfinite(search.score_samples(X)).all()


def test_a_nested_evaluation_chooses_inside_and_scores_outside():
    X, y, truth = oblique()
    found = evaluate_nested(ShallowRAD(lam="cv"), X, y, random_state=0)
    assert found == evaluate_nested(ShallowRAD(lam="cv"), X, y, random_state=0)
    assert (found.n_normal, found.n_anomaly) == ((y == 1).sum(), (y == -1).sum())
    new, _, truth = oblique(seed=1)
    test = auc_with_interval(truth, ShallowRAD(lam="cv").fit(X, y).anomaly_score(new)).value
    assert found.low <= test <= found.high


def test_the_interval_of_folds_widens_as_labels_get_few():
    found = [auc_of_folds([0.9, 0.8], min(5, m), 500, m) for m in (2, 5, 20, 200)]
    widths = [each.high - each.low for each in found]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.8
    plain = auc_with_interval(np.repeat([1, -1], [500, 5]), np.arange(505))
    assert auc_of_folds([1.0] * 5, 5, 500, 5).low < plain.low
