"""Choosing a, prior and lambda; folds and scorers for scikit-learn's tools."""

import numpy as np
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import riskad
from riskad import InputError, PNUStratifiedKFold, RADSearchCV, ShallowRAD
from riskad.core.labels import read_codes
from riskad.core.losses import LOSSES
from riskad.metrics import linear_search as room
from riskad.metrics.ranking import auc_of_folds, auc_with_interval
from riskad.metrics.search import RiskScorer, evaluate_nested, labelled_auc


def codes(n_normal, n_anomaly, n_unlabelled, seed=0):
    y = np.repeat([1, -1, 0], [n_normal, n_anomaly, n_unlabelled])
    return np.random.default_rng(seed).permutation(y)


def with_labels(n_normal, n_anomaly, seed=0, **settings):
    """Unlabelled rows with exactly so many labels."""
    X, _, truth = make_contaminated_rows(seed=seed, **settings)
    y = np.zeros(len(truth), dtype=int)
    y[np.flatnonzero(truth == 1)[:n_normal]] = 1
    y[np.flatnonzero(truth == -1)[:n_anomaly]] = -1
    return X, y, truth


def oblique(n_rows=1500, n_labelled=200, seed=0):
    """Anomalies leave a long thin cloud sideways: only a light penalty finds the direction."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n_rows) < 0.3
    along, across = rng.standard_normal((2, n_rows))
    along, across = 10 * along + 4 * anomalous, 0.3 * across + 0.6 * anomalous
    X = np.column_stack([along + across, along - across])
    truth = np.where(anomalous, -1, 1)
    return X, np.where(np.arange(n_rows) < n_labelled, truth, 0), truth


# --- folds ------------------------------------------------------------------------------------


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


def test_the_seed_decides_the_folds_and_none_is_a_seed_too():
    y = codes(20, 8, 50)

    def places(seed):
        return [held.tolist() for _, held in PNUStratifiedKFold(4, random_state=seed).split(y, y)]

    assert places(1) == places(1) != places(2)
    assert places(None) == places(None)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((20, 3, 50), "5 folds need 5 anomaly rows, got 3. Lower n_splits to 3."),
        ((4, 9, 50), "5 folds need 5 normal rows, got 4"),
        ((20, 9, 2), "5 folds need 5 unlabelled rows, got 2"),
        ((20, 1, 50), "got 1. Lower n_splits to 2 and label one more."),
    ],
)
def test_a_kind_that_is_too_small_is_named(counts, message):
    y = codes(*counts)
    with pytest.raises(InputError, match=message):
        list(PNUStratifiedKFold(5).split(y, y))


def test_a_kind_that_is_absent_is_not_missed():
    y = read_codes(codes(20, 0, 50))
    assert len(list(PNUStratifiedKFold(5).split(y, y))) == 5


@pytest.mark.parametrize("settings", [{"n_splits": 1}, {"n_splits": 2.5}, {"n_repeats": 0}])
def test_numbers_of_folds_are_checked(settings):
    y = codes(20, 8, 50)
    with pytest.raises(InputError, match="must be a whole number >= "):
        list(PNUStratifiedKFold(**settings).split(y, y))


def test_folds_need_labels():
    with pytest.raises(InputError, match="needs y"):
        list(PNUStratifiedKFold().split(np.zeros(10)))


# --- scorers ----------------------------------------------------------------------------------


def test_the_scorers_are_the_auc_of_labelled_rows_and_minus_the_risk():
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD().fit(X, y)
    labelled = y != 0
    expected = roc_auc_score(y[labelled] == -1, -model.score_samples(X)[labelled])
    assert_allclose(labelled_auc(model, X, y), expected)
    risk = riskad.core.risks.get_risk("rad", "logistic", a=0.3, prior=0.7)
    scorer = RiskScorer("logistic", a=0.3, prior=0.7)
    assert_allclose(scorer(model, X, y), -risk.value(model.decision_function(X), y))


def test_a_better_model_has_the_greater_score():
    X, y, _ = make_contaminated_rows()
    good, bad = ShallowRAD(lam="tight").fit(X, y), ShallowRAD(lam="tight").fit(X, -y)
    for scorer in (labelled_auc, RiskScorer()):
        assert scorer(good, X, y) > scorer(bad, X, y)


@pytest.mark.parametrize("scoring", [labelled_auc, RiskScorer(prior=0.8)])
def test_grid_search_takes_folds_and_scorers(scoring):
    X, y, _ = make_contaminated_rows()
    model = make_pipeline(StandardScaler(), ShallowRAD())
    grid = {"shallowrad__lam": ["theorem", "tight"], "shallowrad__a": [0.05, 0.2]}
    folds = PNUStratifiedKFold(3, 2, unlabelled=scoring is not labelled_auc)
    search = GridSearchCV(model, grid, scoring=scoring, cv=folds).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.n_splits_ == 6
    assert search.best_params_.keys() == grid.keys()
    again = cross_val_score(search.best_estimator_, X, y, scoring=scoring, cv=folds)
    assert np.isfinite(again).all()


# --- the rule ---------------------------------------------------------------------------------


def test_ties_go_to_the_default():
    assert room.best_place(np.full((10, 4), 0.7), m=50, rounds=2)[0] == 0


def test_a_clear_gain_is_taken_and_a_small_one_is_not():
    rng = np.random.default_rng(0)
    scores = 0.8 + 0.02 * rng.standard_normal((10, 1)) + np.array([0.0, 0.05, 0.001])
    noise = 0.01 * rng.standard_normal((10, 3))
    assert room.best_place(scores + noise, m=50, rounds=2)[0] == 1
    assert room.best_place((scores + noise)[:, [0, 2]], m=50, rounds=2)[0] == 0


def test_the_fewer_anomalies_the_more_a_gain_must_be():
    rng = np.random.default_rng(0)
    scores = np.array([0.8, 0.82]) + 0.02 * rng.standard_normal((10, 2))
    taken = [room.best_place(scores, m, rounds=2)[0] for m in (4, 1000)]
    assert taken == [0, 1]


def test_a_second_round_is_no_more_evidence():
    scores = np.array([[0.8, 0.81], [0.8, 0.83], [0.8, 0.8], [0.8, 0.84]])
    _, once = room.best_place(scores, 50, rounds=1)
    _, twice = room.best_place(np.vstack([scores, scores]), 50, rounds=2)
    assert_allclose(twice, once, rtol=0.1)


# --- all candidates in all folds --------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "modified_huber", "logistic"])
def test_problems_solved_together_are_what_each_is_alone(loss, monkeypatch):
    monkeypatch.setattr(room, "_STEPS", 400)
    X, y, _ = make_contaminated_rows(n_rows=200)
    X = StandardScaler().fit_transform(X)
    folds = np.array(list(PNUStratifiedKFold(3).folds(y)))
    candidates = [room.Candidate(0.1, 0.8, 0.3), room.Candidate(0.4, 0.5, 0.05)]
    Z = np.column_stack([X, np.ones(len(X))])
    found = room.solve_together(Z, y, np.ones(len(y)), LOSSES[loss], candidates, folds)
    for fold, thetas in zip(folds, found, strict=True):
        for (a, prior, lam), theta in zip(candidates, thetas, strict=True):
            alone = ShallowRAD(loss, a=a, prior=prior, lam=lam, scale=False)
            alone.fit(X[~fold], y[~fold])
            assert_allclose(theta, [*alone.coef_, alone.intercept_], atol=2e-3)


def test_a_few_steps_rank_held_out_rows_as_the_solution_does():
    X, y, _ = make_contaminated_rows(n_rows=800)
    chosen = ShallowRAD(select="cv").fit(X, y).selection_
    folds = PNUStratifiedKFold(5, 2, random_state=0)
    for place in (0, 7, 20):
        a, prior, lam = chosen.candidates[place]
        model = ShallowRAD(a=a, prior=prior, lam=lam)
        exact = cross_val_score(model, X, y, scoring=labelled_auc, cv=folds).mean()
        assert_allclose(chosen.scores[place], exact, atol=0.005)


# --- select="cv" ------------------------------------------------------------------------------


def test_the_choice_follows_an_obvious_signal():
    X, y, truth = oblique()
    chosen, default = ShallowRAD(select="cv").fit(X, y), ShallowRAD(lam="tight").fit(X, y)
    assert chosen.selection_.chosen != 0
    assert chosen.lambda_ < default.lambda_
    new, _, truth = oblique(seed=1)
    aucs = [auc_with_interval(truth, model.anomaly_score(new)) for model in (chosen, default)]
    assert aucs[0].value > aucs[1].value + 0.02
    honest = chosen.selection_.auc
    assert honest.low <= aucs[0].value <= honest.high


def test_what_is_chosen_is_what_is_fitted():
    X, y, _ = oblique()
    chosen = ShallowRAD(select="cv").fit(X, y)
    place = chosen.selection_.candidates[chosen.selection_.chosen]
    assert (chosen.a_, chosen.prior_, chosen.lambda_) == place
    a, prior, lam = place
    alone = ShallowRAD(a=a, prior=prior, lam=lam).fit(X, y)
    assert_allclose(chosen.coef_, alone.coef_)
    assert chosen.offset_ == alone.offset_
    assert (alone.a_, alone.prior_, alone.selection_) == (a, prior, None)


def test_the_given_a_and_prior_with_the_tight_lambda_are_the_default():
    X, y, _ = with_labels(40, 12, shift=6.0)  # every candidate ranks perfectly
    chosen = ShallowRAD(a=0.15, prior=0.7, select="cv").fit(X, y)
    assert chosen.selection_.scores[0] == 1
    assert (chosen.a_, chosen.prior_) == (0.15, 0.7)
    assert chosen.lambda_ == ShallowRAD(a=0.15, prior=0.7, lam="tight").fit(X, y).lambda_
    assert "gains enough" in chosen.selection_.reason


def test_labels_without_meaning_rarely_move_the_default():
    moved = covered = 0
    for seed in range(20):
        X = np.random.default_rng(1000 + seed).standard_normal((300, 5))
        chosen = ShallowRAD(select="cv").fit(X, codes(40, 15, 245, seed)).selection_
        moved += chosen.chosen != 0
        covered += chosen.auc.low < 0.5 < chosen.auc.high
    assert moved <= 5
    assert covered >= 17


def test_the_reported_auc_does_not_flatter():
    values = []
    for seed in range(20):
        X = np.random.default_rng(1000 + seed).standard_normal((300, 10))
        model = ShallowRAD(select="cv").fit(X, codes(60, 40, 200, seed))
        values.append(model.selection_.auc.value)
    assert abs(np.mean(values) - 0.5) < 0.03


def test_a_single_anomaly_is_judged_by_fits_that_have_not_seen_it():
    X, y, truth = with_labels(30, 1)
    seen = ShallowRAD(select="cv").fit(X, y).selection_.auc
    # An anomaly amid the normals: a fit that knew its label would still put it far out.
    X[y == -1] = X[truth == 1].mean(axis=0)
    hidden = ShallowRAD(select="cv").fit(X, y).selection_.auc
    assert seen.value > 0.9
    assert hidden.value < 0.7
    assert seen.high - seen.low > 0.9


@pytest.mark.parametrize(
    ("n_normal", "n_anomaly", "criterion", "has_auc"),
    [
        (30, 4, "auc", True),
        (30, 3, "pu risk", True),
        (30, 1, "pu risk", True),
        (3, 3, "none", True),
        (1, 9, "none", False),
    ],
)
def test_the_criterion_is_what_the_labels_allow(n_normal, n_anomaly, criterion, has_auc):
    X, y, _ = with_labels(n_normal, n_anomaly)
    chosen = ShallowRAD(select="cv").fit(X, y).selection_
    assert chosen.criterion == criterion
    assert (chosen.auc is not None) == has_auc
    assert ("interval" in str(chosen)) == has_auc
    assert ("unknown" in str(chosen)) != has_auc
    if criterion == "none":
        assert chosen.chosen == 0


def test_one_seed_one_choice():
    X, y, _ = make_contaminated_rows()
    first, again, other = (
        ShallowRAD(select="cv", random_state=seed).fit(X, y).selection_ for seed in (1, 1, 2)
    )
    assert_array_equal(first.scores, again.scores)
    assert first.auc == again.auc
    assert first.chosen == again.chosen
    assert (first.scores != other.scores).any()


def test_labels_matter_to_the_choice():
    X, y, _ = make_contaminated_rows()
    there, back = (ShallowRAD(select="cv").fit(X, codes).selection_ for codes in (y, -y))
    assert (there.scores != back.scores).any()


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_can_choose(loss):
    X, y, truth = make_contaminated_rows(n_rows=400)
    model = ShallowRAD(loss, select="cv").fit(X, y)
    assert auc_with_interval(truth, model.anomaly_score(X)).value > 0.9
    assert model.selection_.auc.value > 0.8


@pytest.mark.parametrize(
    "settings",
    [{"feature_map": "nystroem"}, {"scale": False}, {"fit_intercept": False}],
    ids=["map", "unscaled", "no intercept"],
)
def test_every_model_can_choose(settings):
    X, y, truth = make_contaminated_rows(n_rows=400)
    model = ShallowRAD(select="cv", **settings).fit(X, y)
    assert auc_with_interval(truth, model.anomaly_score(X)).value > 0.75


def test_sparse_rows_choose_as_dense_ones():
    X, y, _ = make_contaminated_rows(n_rows=400)
    dense, thin = (ShallowRAD(select="cv").fit(Z, y) for Z in (X, sparse.csr_array(X)))
    assert_allclose(dense.selection_.scores, thin.selection_.scores, atol=1e-3)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X, y, truth = make_contaminated_rows(n_rows=120)
    X = np.hstack([X, 0.1 * rng.standard_normal((120, 500))])
    model = ShallowRAD(select="cv").fit(X, y)
    assert auc_with_interval(truth, model.anomaly_score(X)).value > 0.6


def test_weights_of_zero_leave_rows_out_of_the_choice():
    X, y, _ = make_contaminated_rows(n_rows=400)
    weight = np.ones(400)
    weight[300:] = 0
    part = ShallowRAD(select="cv", scale=False).fit(X[:300], y[:300]).selection_
    whole = ShallowRAD(select="cv", scale=False).fit(X, y, sample_weight=weight).selection_
    assert_allclose(whole.scores, part.scores)


def test_select_is_a_parameter_like_any_other():
    model = ShallowRAD(select="cv")
    assert model.get_params()["select"] == "cv"
    assert clone(model).select == "cv"
    assert clone(model).set_params(select=None).get_params() == ShallowRAD().get_params()


def test_a_chosen_model_can_be_stored(tmp_path):
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD(select="cv").fit(X, y)
    riskad.save(model, tmp_path / "model.riskad")
    again = riskad.load(tmp_path / "model.riskad")
    assert_array_equal(again.score_samples(X), model.score_samples(X))
    assert str(again.selection_) == str(model.selection_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"select": "CV"}, "Did you mean 'cv'"),
        ({"select": "cv", "lam": 1.0}, "for lam='theorem', got 1.0. Leave lam at 'theorem'"),
        ({"select": "cv", "risk": "pu"}, "for risk='rad', got 'pu'.*RADSearchCV"),
        ({"select": "cv", "penalty": "l1"}, "for penalty='l2', got 'l1'"),
    ],
)
def test_settings_that_leave_nothing_to_choose_are_refused(settings, message):
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=message):
        ShallowRAD(**settings).fit(X, y)


# --- any detector -----------------------------------------------------------------------------


def test_a_search_takes_a_clear_gain():
    X, y, _ = oblique(600)
    search = RADSearchCV(ShallowRAD(lam="tight"), {"lam": [0.01, 100.0]}).fit(X, y)
    assert search.best_params_ == {"lam": 0.01}
    assert search.criterion_ == "auc"
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


@pytest.mark.parametrize(("n_anomaly", "criterion"), [(4, "auc"), (3, "risk"), (1, "none")])
def test_the_criterion_of_a_search_is_what_the_labels_allow(n_anomaly, criterion):
    X, y, _ = with_labels(30, n_anomaly)
    search = RADSearchCV(ShallowRAD(), {"a": [0.05]}, n_repeats=1).fit(X, y)
    assert search.criterion_ == criterion
    assert (search.cv_results_ is None) == (criterion == "none")
    assert np.isfinite(search.score_samples(X)).all()


def test_a_search_can_be_cloned_and_seeded():
    X, y, _ = make_contaminated_rows(n_rows=300)
    search = RADSearchCV(ShallowRAD(), {"a": [0.05, 0.3]}, n_repeats=1, random_state=3)
    assert clone(search).get_params().keys() == search.get_params().keys()
    first, again = (clone(search).fit(X, y).cv_results_["mean_test_score"] for _ in range(2))
    assert_array_equal(first, again)


def test_a_search_needs_something_to_search():
    from riskad.detectors.outlier_mean import OutlierMean

    X, y, _ = make_contaminated_rows(n_rows=100)
    with pytest.raises(InputError, match=r"OutlierMean has no a and no prior.*param_grid"):
        RADSearchCV(OutlierMean()).fit(X, y)


def test_a_search_over_networks():
    pytest.importorskip("torch")
    X, y, _ = make_contaminated_rows(n_rows=200)
    search = RADSearchCV(riskad.DeepRAD(max_iter=5), {"prior": [0.7]}, n_splits=2, n_repeats=1)
    assert np.isfinite(search.fit(X, y).score_samples(X)).all()


# --- nested -----------------------------------------------------------------------------------


def test_a_nested_evaluation_chooses_inside_and_scores_outside():
    X, y, truth = oblique()
    found = evaluate_nested(ShallowRAD(select="cv"), X, y, random_state=0)
    assert found == evaluate_nested(ShallowRAD(select="cv"), X, y, random_state=0)
    assert (found.n_normal, found.n_anomaly) == ((y == 1).sum(), (y == -1).sum())
    new, _, truth = oblique(seed=1)
    test = auc_with_interval(truth, ShallowRAD(select="cv").fit(X, y).anomaly_score(new)).value
    assert found.low <= test <= found.high


def test_no_outer_fold_is_seen_inside():
    seen = []

    class Spy(ShallowRAD):
        def fit(self, X, y):
            seen.append(X[:, 0])
            return super().fit(X, y)

        def score_samples(self, X):
            assert not np.isin(X[:, 0], seen[-1]).any()
            return super().score_samples(X)

    X, y, _ = make_contaminated_rows(n_rows=300)
    evaluate_nested(Spy(select="cv"), X, y, n_splits=3, n_repeats=2)
    assert len(seen) == 6


def test_nothing_can_be_held_out_of_one_anomaly():
    X, y, _ = with_labels(30, 1)
    with pytest.raises(InputError, match="at least 2 labelled rows of each kind, got 1"):
        evaluate_nested(ShallowRAD(), X, y)


def test_the_interval_of_folds_widens_as_labels_get_few():
    widths = [
        found.high - found.low
        for m in (2, 5, 20, 200)
        for found in [auc_of_folds([0.9, 0.8], min(5, m), 500, m)]
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.8
    plain = auc_with_interval(np.repeat([1, -1], [500, 5]), np.arange(505))
    assert auc_of_folds([1.0] * 5, 5, 500, 5).low < plain.low
