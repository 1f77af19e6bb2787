"""Novelty: rows unlike all that a model was fitted to, whether their kind was labelled or not."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from support.commands import run
from support.loops import each
from support.rows import label_first

from riskad import AutoRAD, InputError, ShallowRAD
from riskad.app.describe import describe_fit
from riskad.app.fit import fit_table
from riskad.app.model_files import load, save
from riskad.app.score import score_table
from riskad.app.spec import FitSpec
from riskad.detectors.auto.cross_fit import member_weights
from riskad.detectors.auto.novelty import (
    CHOICES,
    OF_GROUPS,
    Novelty,
    UnseenKind,
    UnseenKinds,
    split_kinds,
)
from riskad.detectors.description import detector_tags

LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def two_kinds(n_rows=500, seed=0):
    """Anomalies at the right are labelled, those above are not; rows, codes, kinds (0 normal)."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n_rows, p=[0.92, 0.04, 0.04])
    X = rng.normal(0, 1, (n_rows, 4))
    X[kind == 1, 0] += 6
    X[kind == 2] += np.array([-2.0, 6.0, 0.0, 0.0])
    return X, label_first(np.array([1, -1, 0])[kind], 40, 8).astype(np.int16), kind


def auc(scores, kind, which):
    rows = (kind == 0) | (kind == which)
    return roc_auc_score(kind[rows] == which, scores[rows])


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = two_kinds()
    return AutoRAD(budget=600).fit(X, y)


@pytest.mark.slow
def test_novelty_finds_a_kind_that_nobody_labelled(fitted, tmp_path):
    X, y, _ = two_kinds()
    usual = fitted.novelty(X[y == 0])  # in standard deviations of unlabelled rows
    assert abs(usual.mean()) < 0.1
    assert usual.std() == pytest.approx(1, abs=0.1)
    X, _, kind = two_kinds(2000, seed=1)
    score, novelty = fitted._anomaly_score_and_novelty(X)
    assert auc(score, kind, 1) > 0.97
    assert auc(novelty, kind, 2) > 0.97
    np.testing.assert_array_equal(score, fitted.anomaly_score(X))
    np.testing.assert_array_equal(novelty, fitted.novelty(X))
    save(fitted, tmp_path / "auto.riskad")
    again = load(tmp_path / "auto.riskad")
    np.testing.assert_array_equal(again.novelty(X), novelty)
    assert again.kinds_auc_ == fitted.kinds_auc_


def test_a_crowd_of_equal_rows_is_not_less_new_for_its_density():
    isolated_and_dense, usual = Novelty().fit(np.zeros((2, 2))).score_samples([[2, -4], [0, 0]])
    assert isolated_and_dense == -2 < usual == 0


def test_kinds_are_clusters_each_held_out_with_a_part_of_the_normals():
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.normal(0, 1, (60, 2)), *(rng.normal(c, 0.1, (5, 2)) for c in (9, -9))])
    codes = np.repeat([0, 1, -1], [40, 20, 10])
    folds = split_kinds(Z, codes, seed=0)
    assert sorted(np.concatenate(folds).tolist()) == list(range(40, 70))
    for held in folds:
        anomalies = held[codes[held] == -1]
        assert len({int(row >= 65) for row in anomalies}) == 1  # never of both clusters
        assert (codes[held] == 1).sum() in (6, 7)


@each("case", ["three anomalies", "three normals", "all the same"])
def test_no_kind_is_held_out_where_labels_are_too_few(case):
    Z = np.random.default_rng(0).normal(size=(20, 2))
    codes = np.repeat([1, -1], [10, 10])
    if case == "three anomalies":
        codes[13:] = 0
    elif case == "three normals":
        codes[3:10] = 0
    else:
        Z[10:] = 1.0
    assert split_kinds(Z, codes, seed=0) == []


def test_novelty_weighs_more_where_it_sees_what_members_do_not():
    codes = np.repeat([1, -1], [30, 10])
    rng = np.random.default_rng(0)
    blind, sees = rng.normal(size=40) + codes, rng.normal(size=40) - codes
    for_it = UnseenKinds([UnseenKind(codes, judges=blind, novelty=sees)] * 2)
    against_it = UnseenKinds([UnseenKind(codes, judges=sees, novelty=blind)] * 2)
    assert against_it.weight(4) < UnseenKinds().weight(4) < for_it.weight(4) <= max(CHOICES)
    assert for_it.weight(400) < for_it.weight(4) / 5  # few kinds are left that nobody labelled
    assert for_it.auc().value < 0.3 < for_it.auc(0.5).value


@pytest.mark.slow
def test_anomalies_of_a_group_count_once():
    X, y, _ = two_kinds()
    groups = np.arange(len(y))
    anomalies = np.flatnonzero(y == -1)
    groups[anomalies] = -1 - np.arange(len(anomalies)) // 4
    alone, grouped = AutoRAD(budget=3).fit(X, y), AutoRAD(budget=3).fit(X, y, groups=groups)
    few = len(np.unique(groups[anomalies]))
    ends = [w / (1 + few / 20) for w in (min(OF_GROUPS), max(OF_GROUPS))]
    assert alone.weights_["novelty"] < ends[0] <= grouped.weights_["novelty"] <= ends[1]
    assert UnseenKinds().weight(4, in_groups=True) > UnseenKinds().weight(40, in_groups=True)


def test_its_share_is_kept_whatever_its_auc(fitted):
    assert 0 < fitted.weights_["novelty"] <= max(CHOICES)
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert (fitted.kinds_auc_.n_normal, fitted.kinds_auc_.n_anomaly) == (40, 8)
    weights = member_weights({"kernel": None, "boosted": None, "novelty": None}, 5, 0.1)
    assert weights == pytest.approx({"kernel": 0.225, "boosted": 0.675, "novelty": 0.1})


def test_with_normals_alone_it_does_not_lose_to_an_isolation_forest():
    X, y, kind = two_kinds()
    y[y == -1] = 0
    model = AutoRAD(budget=600).fit(X, y)
    assert model.weights_["novelty"] == pytest.approx(UnseenKinds().weight(0))
    assert model.kinds_auc_ is None
    new, _, kind = two_kinds(2000, seed=1)
    forest = IsolationForest(random_state=0).fit(X)
    ours = roc_auc_score(kind > 0, model.anomaly_score(new))
    assert ours > roc_auc_score(kind > 0, -forest.score_samples(new)) - 0.005


def as_frame(X, y):
    words = np.array(["", "ok", "fraud"])[np.asarray(y)]
    return pl.DataFrame(X, schema=list("abcd")).with_columns(label=pl.Series(words))


@pytest.fixture(scope="module")
def fit(fitted):
    X, y, _ = two_kinds()
    return fit_table(as_frame(X, y), LABELS, settings={"random_state": 0})


def test_a_scored_table_has_novelty_and_may_be_ranked_by_it(fit, tmp_path):
    X, _, kind = two_kinds(300, seed=1)
    save(fit.model, tmp_path / "model.riskad")
    pl.DataFrame(X, schema=list("abcd")).write_csv(tmp_path / "new.csv")
    command, told = ("score", tmp_path / "model.riskad", tmp_path / "new.csv", "--top", "5"), {}
    for by in ("score", "novelty"):
        told[by] = json.loads(
            run(*command, "-o", tmp_path / f"{by}.csv", "--by", by, "--json").stdout
        )
    scored = pl.read_csv(tmp_path / "novelty.csv")
    assert scored.columns[4:] == ["anomaly_score", "is_anomaly", "anomaly_probability", "novelty"]
    assert pl.read_csv(tmp_path / "score.csv").equals(scored)
    order = scored["novelty"].to_numpy().argsort()[::-1]
    assert [row["row"] for row in told["novelty"]["top"]] == (order[:5] + 1).tolist()
    assert told["novelty"]["top"][0]["novelty"] == pytest.approx(scored["novelty"].max())
    assert (kind[order[:5]] > 0).all()
    assert told["score"]["top"] != told["novelty"]["top"]


def test_the_report_of_a_fit_tells_the_novelty_of_its_top_rows(fit):
    X, _, _ = two_kinds()
    top = describe_fit(fit).top
    rows = np.array([row.row - 1 for row in top])
    expected = fit.model[-1].novelty(fit.model[0].transform(as_frame(X, np.zeros(500, int))[rows]))
    np.testing.assert_allclose([row.novelty for row in top], expected)


def test_a_column_called_novelty_is_the_tables_own(fit):
    X, y, _ = two_kinds()
    table = as_frame(X, y).rename({"a": "novelty"})
    own = fit_table(table, LABELS, settings={"budget": 1e-9})
    assert set(own.ranked["novelty"]) <= set(table["novelty"])


def test_models_that_do_not_tell_novelty_say_so(fit, tmp_path):
    X, y, _ = two_kinds()
    shallow = fit_table(as_frame(X, y), LABELS, model="shallow").model
    with pytest.raises(InputError, match="ShallowRAD has no novelty"):
        score_table(shallow, as_frame(X, y).drop("label"), by="novelty")
    with pytest.raises(InputError, match="by"):
        score_table(shallow, as_frame(X, y).drop("label"), by="age")
    scored, report = score_table(shallow, as_frame(X, y).drop("label"))
    assert "novelty" not in scored.columns
    assert report.top[0].novelty is None
    assert not hasattr(ShallowRAD, "novelty")


def test_a_model_without_time_for_novelty_still_scores(fitted):
    X, _, _ = two_kinds(50, seed=1)
    old = AutoRAD()
    old.__dict__ = dict(vars(fitted))
    kept = [name for name in fitted.members_ if name != "novelty"]
    for name in ("members_", "weights_", "scales_"):
        setattr(old, name, {member: getattr(fitted, name)[member] for member in kept})
    assert not detector_tags(old).supports_novelty
    assert old.score_samples(X).shape == (50,)
    with pytest.raises(InputError, match="Fit it again"):
        old.novelty(X)
