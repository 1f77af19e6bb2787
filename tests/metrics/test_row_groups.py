"""Rows that belong together: folds that keep them on one side, and intervals that count groups."""

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from support.loops import each

from riskad import ForestRAD, InputError, PNUStratifiedKFold, RADSearchCV
from riskad.app.fit import fit_table
from riskad.app.spec import FitSpec
from riskad.detectors.auto.cross_fit import folds_to_hold_out
from riskad.metrics.folds import as_groups, cross_splits, deal_groups
from riskad.metrics.ranking import auc_with_interval
from riskad.metrics.search import labelled_auc

LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def repeated_rows(n_groups=160, n_copies=5, n_columns=6, seed=0):
    """Groups of nearly equal rows whose labels have nothing to do with their columns."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), n_copies)
    X = rng.normal(size=(n_groups, n_columns))[groups] + rng.normal(0, 0.01, (len(groups), 6))
    of_group = rng.permutation(np.arange(n_groups) % 4 == 0)
    y = np.where(of_group[groups], -1, 1)
    y[rng.random(len(y)) < 0.4] = 0
    return X, y, groups


def as_table(X, y, groups):
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    label = [{1: "ok", -1: "fraud", 0: None}[code] for code in y.tolist()]
    return pl.DataFrame(columns | {"customer": [f"c{g}" for g in groups], "label": label})


@each(
    "groups",
    [
        ["b", "a", None, "b", None],
        [7.0, 3.0, np.nan, 7.0, np.nan],
        np.array(["b", 3, None, "b", float("nan")], dtype=object),
        pl.Series(["b", "a", None, "b", None]),
    ],
)
def test_groups_are_numbered_as_they_occur_and_blanks_stay_apart(groups):
    assert_array_equal(as_groups(groups, 5), [0, 1, 2, 0, 3])


@each("seed", range(5))
def test_no_group_is_on_both_sides_and_kinds_are_spread_evenly(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 80, 1_000)
    y = rng.choice([1, -1, 0], 1_000, p=[0.2, 0.05, 0.75])
    dealt = PNUStratifiedKFold(5, random_state=seed, unlabelled=True)
    folds = list(dealt.split(y, y, groups))
    assert_array_equal(np.sort(np.concatenate([held for _, held in folds])), np.arange(1_000))
    for train, held in folds:
        assert not set(groups[train]) & set(groups[held])
        assert len(train) + len(held) == 1_000
        for kind in (1, -1, 0):
            share = (y[held] == kind).sum() / (y == kind).sum()
            assert 0.14 < share < 0.26


def test_a_huge_group_is_balanced_by_the_others():
    groups = np.concatenate([np.zeros(500, dtype=int), np.arange(1, 501)])
    place = deal_groups(np.zeros(1_000, dtype=int), groups, 3, np.random.default_rng(0))
    assert sorted(np.bincount(place)) == [250, 250, 500]


def test_too_few_groups_of_a_kind_are_refused():
    y = np.repeat([-1, 1, 0], [12, 30, 60])
    for count, advice in ((3, "Lower n_splits to 3"), (1, "more groups")):
        groups = np.concatenate([np.arange(12) % count, 100 + np.arange(90)])
        with pytest.raises(InputError, match=rf"the 12 anomaly rows are of {count}\. .*{advice}"):
            next(PNUStratifiedKFold(5).split(y, y, groups))


def test_scikit_learn_hands_groups_on():
    X, y, groups = repeated_rows()
    model, folds = ForestRAD(n_estimators=30), PNUStratifiedKFold(4)
    told = cross_val_score(model, X, y, groups=groups, cv=folds, scoring=labelled_auc)
    untold = cross_val_score(model, X, y, cv=folds, scoring=labelled_auc)
    assert untold.mean() > 0.95  # it has seen copies of each row
    assert told.mean() < 0.65
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(
            model, X, y, params={"groups": groups}, cv=folds, scoring=labelled_auc
        )
    assert_array_equal(routed, told)


def test_a_search_holds_groups_out_together():
    X, y, groups = repeated_rows()
    search = RADSearchCV(ForestRAD(n_estimators=30), {"prior": [0.5]}, n_splits=4, n_repeats=1)
    told, untold = (clone(search).fit(X, y, groups=each).cv_results_ for each in (groups, None))
    assert untold["mean_test_score"][0] > 0.95
    assert told["mean_test_score"][0] < 0.65
    search.fit(X, y, groups=groups, sample_weight=np.ones(len(y)))  # without a warning


def test_members_never_see_the_unlabelled_rows_of_a_held_out_group():
    _, y, groups = repeated_rows()
    folds = folds_to_hold_out(y, 5, 0, groups)
    for held in folds:
        assert {*y[held]} == {1, -1, 0}
        seen = np.setdiff1d(np.arange(len(y)), held)
        assert not set(groups[seen]) & set(groups[held])
    assert len(np.concatenate(folds)) == len(np.unique(np.concatenate(folds))) == len(y)
    one_has_all = np.where(y == 0, 0, groups)
    assert all((y[out] == 0).sum() == 0 for out in folds_to_hold_out(y, 5, 0, one_has_all))


def test_a_group_without_which_a_kind_is_missing_stays():
    y = np.array([-1, -1, 1, 1, 0, 0, 1])
    groups = np.array([0, 0, 0, 1, 2, 3, 4])  # without the first there is no anomaly left
    held = np.concatenate([held for _, held in cross_splits(y, groups=groups)])
    assert_array_equal(np.sort(held), [3, 4, 5, 6])


AUTO = pytest.param({"model": "auto", "settings": {"budget": 20.0}}, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("fit", [AUTO, {"model": "forest"}], ids=["auto", "forest"])
def test_copies_of_a_row_do_not_flatter_a_fit_by_groups(fit):
    table = as_table(*repeated_rows())
    told = fit_table(table, LABELS, group="customer", **fit).report
    untold = fit_table(table, LABELS, drop=["customer"], **fit).report
    assert untold.auc.value > 0.95
    assert told.auc.value < 0.7
    assert told.auc.low < 0.5 < told.auc.high  # the labels say nothing
    assert "rows of one 'customer' were held out together" in told.evidence
    assert "held out together" not in untold.evidence


@pytest.mark.slow
def test_anomalies_of_one_group_tell_no_auc_and_the_report_says_why():
    X, y, groups = repeated_rows()
    table = as_table(X, y, np.where(y == -1, 0, groups))
    for model in ("auto", "shallow"):
        report = fit_table(table, LABELS, group="customer", model=model).report
        assert report.auc is None
        assert "anomalies from 1" in report.why_no_auc
        assert "'customer'" in report.why_no_auc


def grouped_scores(rng, n_groups, size, likeness, auc=0.8):
    """Scores of so many groups of each kind, alike within a group."""
    groups = np.repeat(np.arange(2 * n_groups), size)
    y = np.where(groups < n_groups, -1, 1)
    own, common = rng.normal(size=len(y)), rng.normal(size=2 * n_groups)[groups]
    scores = np.sqrt(likeness) * common + np.sqrt(1 - likeness) * own
    return y, scores + norm.ppf(auc) * np.sqrt(2) * (y == -1), groups


@pytest.mark.slow
@each("likeness", [0.0, 0.5, 1.0])
@each("n_groups", [4, 20])
def test_intervals_by_groups_hold_the_truth(n_groups, likeness):
    rng = np.random.default_rng(n_groups)
    found = [grouped_scores(rng, n_groups, 10, likeness) for _ in range(300)]
    told = [auc_with_interval(y, scores, groups=groups) for y, scores, groups in found]
    untold = [auc_with_interval(y, scores) for y, scores, _ in found]
    covered, without = (np.mean([a.low <= 0.8 <= a.high for a in each]) for each in (told, untold))
    assert covered > 0.92
    if likeness == 1:
        assert without < 0.6


def test_a_perfect_ranking_of_few_groups_is_not_taken_for_certain():
    y = np.repeat([-1, 1], [40, 400])
    scores = np.where(y == -1, 1.0, 0.0)
    rows = auc_with_interval(y, scores)
    groups = auc_with_interval(y, scores, groups=np.where(y == -1, np.arange(440) % 2, 2))
    assert rows.value == groups.value == 1
    assert groups.low < 0.6 < 0.9 < rows.low
