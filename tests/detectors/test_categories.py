"""Columns of categories in frames: codes by frequency, and what labels say of levels."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from support.loops import each
from support.rows import label_first

import riskad
from riskad import AutoRAD, BoostedRAD, ForestRAD, InputError
from riskad.detectors.auto.cross_fit import CrossFitter, MemberRows
from riskad.detectors.auto.members import MEMBERS
from riskad.files.codec import build, state_of
from riskad.rows.encoding import FEW_LEVELS, AnomalyRateEncoder, fit_encoder
from riskad.rows.table import TableSchema

SHOPS, RISKY = 40, 5
QUICK = [BoostedRAD(max_iter=60), ForestRAD(n_estimators=60)]


def payments(n=1_500, seed=0, labelled=150, anomalies=40):
    """Anomalies stand at few of many shops; the amount tells nothing."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < 0.1, -1, 1)
    shop = np.where(truth == -1, rng.integers(0, RISKY, n) * 7, rng.integers(0, SHOPS, n))
    frame = pl.DataFrame({"amount": rng.normal(size=n), "shop": [f"shop {i}" for i in shop]})
    return frame, label_first(truth, labelled, anomalies), truth


def levels_of(n):
    return {0: [f"level {i}" for i in range(n)]}


@each("kind", ["polars", "categories", "pandas"])
def test_codes_are_by_frequency_then_by_letters(kind):
    town = ["Ulm", "Kiel", None, "Ulm", "Äch", "Bonn", "Kiel", "Ulm"]
    frame = pl.DataFrame({"town": town})
    if kind == "categories":
        frame = frame.with_columns(pl.col("town").cast(pl.Categorical))
    if kind == "pandas":
        frame = pytest.importorskip("pandas").DataFrame({"town": town})
    schema = TableSchema.learn(frame)
    assert schema.levels == {0: ["Ulm", "Kiel", "Bonn", "Äch"]}
    expected = [0, 1, np.nan, 0, 3, 2, 1, 0]
    np.testing.assert_array_equal(schema.read(frame).values[:, 0], expected)


def test_a_column_without_a_text_has_no_codes():
    frame = pl.DataFrame({"town": [None, None]}, schema={"town": pl.String})
    schema = TableSchema.learn(frame)
    assert schema.levels == {0: []}
    assert np.isnan(schema.read(frame).values).all()
    assert np.isnan(schema.read(pl.DataFrame({"town": ["Ulm"]})).values).all()


def test_many_codes_stay_a_column_and_few_become_yes_or_no():
    few, many = FEW_LEVELS, FEW_LEVELS + 1
    codes = np.column_stack([np.arange(44.0) % few, np.arange(44.0) % many])
    levels = {0: [str(i) for i in range(few)], 1: [str(i) for i in range(many)]}
    rows = fit_encoder(codes, levels, seed=0).transform(np.array([[2.0, 3.0], [np.nan, np.nan]]))
    assert rows.shape == (2, 1 + few)
    np.testing.assert_array_equal(rows[:, 0], [3, many])  # next to the rarest
    np.testing.assert_array_equal(rows[:, 1:].sum(axis=1), [1, 0])


def test_the_evidence_is_the_posterior_mean():
    rng = np.random.default_rng(0)
    level = np.concatenate([rng.integers(0, 30, 600), np.full(20, 7)]).astype(float)
    level[:30] = np.nan
    codes = np.repeat([0, 1, -1], [560, 40, 20])
    found = AnomalyRateEncoder.learn(level[:, None], codes, levels_of(30))
    (s,), (shares,), (evidence,) = found.priors, found.shares, found.evidence
    assert shares.sum() == pytest.approx(1)
    assert shares[30] == 30 / 620
    f = (level == 7).mean()
    assert evidence[7] == pytest.approx(np.log((20 + s) / (20 * f + s)))
    absent = (level == 3).mean()
    assert evidence[3] == pytest.approx(np.log(s / (20 * absent + s)))
    rows = found.transform(np.array([[7.0], [np.nan]]))
    np.testing.assert_array_equal(rows[:, 1], evidence[[7, 30]])


def test_a_row_does_not_see_its_own_label():
    level = np.repeat(np.arange(40.0), 10)
    codes = np.zeros(400, dtype=int)
    codes[:9] = -1  # of level 0
    codes[395] = -1  # the only one of level 39
    found = AnomalyRateEncoder.learn(level[:, None], codes, levels_of(40))
    seen = found.cross_fit_transform(level[:, None], codes, seed=0)[:, 1]
    without = codes.copy()
    without[395] = 0
    assert found.evidence[0][39] > 0
    others = (codes == -1).sum() * 4 / 5  # ten anomalies, two in each fold
    prior = found.priors[0]
    assert seen[395] == pytest.approx(np.log(prior / (others / 40 + prior)))
    assert found.refit(level[:, None], without).evidence[0][39] < 0


def test_labelled_rows_have_no_values_of_their_own():
    frame, y, _ = payments()
    table = TableSchema.learn(frame).read(frame)
    matrix = table.values
    found = AnomalyRateEncoder.learn(matrix, y, table.levels)
    seen = found.cross_fit_transform(matrix, y, seed=0)
    for code in np.unique(matrix[y == -1, 1]):
        here = matrix[:, 1] == code
        assert set(seen[here & (y != 0), 2]) <= set(seen[here & (y == 0), 2])


def test_levels_that_tell_nothing_rarely_have_evidence():
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        level = rng.integers(0, 60, 800).astype(float)[:, None]
        codes = np.repeat([0, 1, -1], [700, 70, 30])
        found += len(AnomalyRateEncoder.learn(level, codes, levels_of(60)).places)
    assert found <= 2


def test_few_levels_and_few_anomalies_have_no_evidence():
    level = np.repeat(np.arange(20.0), 20)[:, None]
    codes = np.where(level[:, 0] < 1, -1, 0)
    assert AnomalyRateEncoder.learn(level, codes, levels_of(20)).places == [0]
    assert AnomalyRateEncoder.learn(level // 2, codes, levels_of(10)).places == []
    codes[4:] = 0
    assert AnomalyRateEncoder.learn(level, codes, levels_of(20)).places == []


def test_a_row_of_weight_two_is_two_rows():
    frame, y, _ = payments(400)
    table = TableSchema.learn(frame).read(frame)
    matrix, levels = table.values, table.levels
    twice = AnomalyRateEncoder.learn(np.vstack([matrix, matrix]), np.concatenate([y, y]), levels)
    heavy = AnomalyRateEncoder.learn(matrix, y, levels, np.full(len(y), 2.0))
    np.testing.assert_allclose(heavy.evidence, twice.evidence)
    assert heavy.priors == twice.priors


@each("detector", QUICK)
def test_trees_learn_which_levels_are_risky(detector, tmp_path):
    frame, y, _ = payments()
    new, _, truth = payments(seed=1)
    model = detector.fit(frame, y)
    scores = model.score_samples(new)
    assert roc_auc_score(truth, scores) > 0.9
    assert len(model.feature_importances_) == 2
    assert model.feature_importances_[1] > model.feature_importances_[0]
    unseen, blank = (
        new.with_columns(shop=pl.lit(shop, dtype=pl.String)) for shop in ("a new one", None)
    )
    np.testing.assert_array_equal(model.score_samples(unseen), model.score_samples(blank))
    riskad.save(model, tmp_path / "model.riskad", force=True)
    loaded = riskad.load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(loaded.score_samples(new), scores)


def test_shares_of_columns_add_up_to_the_score():
    frame, y, _ = payments(600)
    model = BoostedRAD(max_iter=40).fit(frame, y)
    assert model.evidence_.places == [1]
    matrix = model._check_rows(frame, reset=False)
    shares, base = model._contributions(matrix)
    assert shares.shape == (600, 2)
    np.testing.assert_allclose(shares.sum(axis=1) + base, model.score_samples(frame), atol=1e-9)


@each("detector", QUICK)
def test_a_graph_looks_evidence_up(detector):
    onnxruntime = pytest.importorskip("onnxruntime")
    from riskad.app.onnx import feeds, to_onnx

    frame, y, _ = payments(800)
    model = detector.fit(frame, y)
    assert model.evidence_.places == [1]
    proto = to_onnx(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    theirs = session.run(None, feeds(proto, frame))[0]
    np.testing.assert_allclose(theirs, model.anomaly_score(frame), atol=1e-9)


@each("detector", QUICK)
def test_evidence_of_other_levels_is_refused(detector):
    frame, y, _ = payments(800)
    model = detector.fit(frame, y)
    evidence = model.evidence_
    shorter = replace(evidence, evidence=[e[:-1] for e in evidence.evidence])
    for wrong, message in (
        (shorter, "evidence_: of other levels"),
        (replace(evidence, places=[0]), "evidence_: of other levels"),
        (AnomalyRateEncoder(), "trees_: of other columns"),
    ):
        with pytest.raises(InputError, match=message):
            build(type(model), state_of(model) | {"evidence_": wrong})
    with pytest.raises(InputError, match="evidence: of other levels"):
        build(AnomalyRateEncoder, vars(shorter))


@pytest.fixture(scope="module")
def auto():
    frame, y, _ = payments(500, labelled=60, anomalies=20)
    return AutoRAD(budget=20).fit(frame, y), frame, y


def test_members_learn_which_levels_are_risky(auto, tmp_path):
    model, *_ = auto
    new, _, truth = payments(400, seed=1)
    scores = model.score_samples(new)
    assert roc_auc_score(truth, scores) > 0.85
    assert model.evidence_.places == [1]
    riskad.save(model, tmp_path / "auto.riskad")
    loaded = riskad.load(tmp_path / "auto.riskad")
    np.testing.assert_array_equal(loaded.score_samples(new), scores)
    with pytest.raises(InputError, match="encoder_: of other columns"):
        build(AutoRAD, state_of(model) | {"evidence_": AnomalyRateEncoder()})


def test_labels_of_held_out_rows_do_not_enter(auto):
    model, frame, y = auto
    matrix = model._check_rows(frame, reset=False)
    held = np.flatnonzero(y != 0)[::4]
    flipped = y.copy()
    flipped[held] *= -1
    views = []
    for codes in (y, flipped):
        rows = MemberRows(matrix, np.asarray(codes), None, None, views=None, repeats=None)
        fitter = CrossFitter(rows, model.members_, model.encoder_, model.evidence_, seed=0)
        views.append(fitter.views_without(held))
    for name in model.members_:
        first, second = (each.features_for(MEMBERS[name]) for each in views)
        np.testing.assert_array_equal(first, second)
        assert np.isfinite(first).all()
