"""Segments: offsets that labels tell, thresholds and rates by segment, false alarms as stated."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from scipy.stats import norm

import riskad
from riskad.app.change_model import change_threshold
from riskad.app.model_files import load_with_header
from riskad.app.refit import refit_table
from riskad.app.report.documents import render_page
from riskad.app.score import score_table
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.calibration import Calibration
from riskad.decisions.segments import describe_segments, learn_segments, segment_offsets
from riskad.decisions.thresholds import AnomalyRate, FalseAlarms, Likely
from riskad.tables.labelled import FrameTable

SIZES = (3000, 2000, 1500, 200)
OPTIONS = {"label": "label", "normal": "ok", "anomaly": "fraud", "model": "shallow"}


def simulate(seed: int, spread: float, labelled_share: float = 0.2):
    rng = np.random.default_rng(seed)
    means = spread * rng.normal(size=len(SIZES))
    of = np.repeat(np.arange(len(SIZES)), SIZES)
    anomalous = rng.random(len(of)) < 0.08
    scores = rng.normal(means[of] + 3 * anomalous)
    labelled = rng.random(len(of)) < labelled_share
    codes = np.where(labelled, np.where(anomalous, ANOMALY, NORMAL), UNLABELLED)
    calibration = Calibration.of(scores, codes, scores, 0.0, label_source="random")
    names = np.array([f"s{i}" for i in of], dtype=object)
    unlabelled = names[~labelled], scores[~labelled], calibration
    segments = learn_segments("s", names[labelled], *unlabelled)
    return segments, unlabelled, means, anomalous[~labelled], of[~labelled]


def test_offsets_are_those_of_a_model_with_a_random_intercept():
    rng = np.random.default_rng(0)
    places, lines = np.repeat(np.arange(30), 60), rng.normal(0, 1.5, 1800)
    true = rng.normal(0, 1.0, 30)
    anomalous = rng.random(1800) < expit(-2 + true[places] + lines)
    delta, errors, spread = segment_offsets(places, anomalous, lines, 30)
    assert 0.5 <= spread <= 1.5
    assert np.corrcoef(delta, true)[0, 1] > 0.8
    assert np.mean(np.abs(delta - true) < 1.96 * errors) > 0.85
    few = segment_offsets(places[::10], anomalous[::10], lines[::10], 30)
    assert np.abs(few[0]).mean() < np.abs(delta).mean()  # less evidence, closer to the whole


def test_segments_that_do_not_differ_have_the_threshold_of_the_whole():
    segments, (_, _, calibration), *_ = simulate(1, spread=0.0)
    assert segments.spread == 0
    thresholds = segments.thresholds(Likely(), calibration)
    assert (thresholds == Likely().of(calibration)).all()


def test_false_alarms_hold_their_rate_in_every_segment_with_a_hundred_normal_rows():
    rate, alarms, of_one = 0.05, [], []
    for seed in range(60):
        segments, (_, _, calibration), means, *_ = simulate(seed, spread=1.0)
        *own, small, whole = segments.thresholds(FalseAlarms(rate), calibration)
        alarms.append(norm.sf(own - means[:3]))
        of_one.append(norm.sf(whole - means[:3]))
        assert small == whole  # too few normal rows
    # The mean over calibrations is below the rate; its standard error is about 0.001.
    assert np.mean(alarms) < rate + 0.003
    assert np.mean(np.array(of_one) > 2 * rate) > 0.1  # one threshold breaks it in many


def test_rates_by_segment_are_closer_than_one_rate_and_intervals_cover():
    rng = np.random.default_rng(0)
    own, one, covered = [], [], []
    for seed in range(15):
        segments, unlabelled, _, anomalous, of = simulate(seed, spread=1.0)
        thresholds, draws = segments.thresholds(Likely(), unlabelled[2]), int(rng.integers(99))
        for result in describe_segments(segments, thresholds, *unlabelled, seed=draws):
            truth = anomalous[of == int(result.name[1:])].mean()
            own.append(abs(result.rate.value - truth))
            one.append(abs(unlabelled[2].rate.value - truth))
            covered.append(result.rate.low <= truth <= result.rate.high)
    assert np.mean(covered) > 0.85
    assert np.mean(own) < 0.03


def test_the_mean_probability_stays_the_rate_and_rules_flag_as_many_rows_as_they_say():
    segments, (names, scores, calibration), *_ = simulate(3, spread=1.5)
    places = segments.places(names)
    shifted = scores + segments.shift_of(places)
    means = [calibration.anomaly_probability(each).mean() for each in (shifted, scores)]
    assert means[0] == pytest.approx(means[1], rel=0.01)
    assert np.allclose(np.sort(shifted), segments.unlabelled)
    thresholds = segments.thresholds(AnomalyRate(0.07), calibration)[places]
    assert (scores > thresholds).mean() == pytest.approx(0.07, abs=0.001)


@pytest.fixture(scope="module")
def shops():
    rng = np.random.default_rng(0)
    n = 1200
    shop = rng.choice(["a", "b", "c"], n)
    anomalous = rng.random(n) < 0.1
    amount = rng.normal(20, 5, n) + 40 * anomalous
    label = np.where(anomalous, "fraud", "ok").astype(object)
    label[500:] = ""
    noise = rng.normal(size=n)
    shop = [None if i % 97 == 0 else s for i, s in enumerate(shop)]
    return pl.DataFrame({"amount": amount, "noise": noise, "shop": shop, "label": label.tolist()})


@pytest.fixture(scope="module")
def fit(shops, tmp_path_factory):
    path = tmp_path_factory.mktemp("shops") / "shops.parquet"
    shops.write_parquet(path)
    return riskad.fit_table(path, threshold_by="shop", threshold="likely", **OPTIONS)


def test_a_fit_reports_and_scores_by_segment(fit, shops, tmp_path):
    results = {each.name: each.threshold for each in fit.report.segments}
    assert set(results) == {"a", "b", "c"}
    scored, _ = score_table(fit.model, shops)
    known = scored.filter(pl.col("shop").is_not_null())
    thresholds = known["shop"].replace_strict(results)
    assert (known["is_anomaly"] == (known["anomaly_score"] > thresholds)).all()
    riskad.save(fit.model, tmp_path / "m.riskad", report=fit.report)
    again, _ = score_table(riskad.load(tmp_path / "m.riskad"), shops)
    assert again.equals(scored)
    page = render_page(fit.report)
    assert page.count("Anomaly rate by segment") == 1  # the picture beside the table
    for each in fit.report.segments:
        assert f">{each.name}: {each.rate.value:.1%}<" in page


def test_new_segments_have_the_threshold_of_the_whole_and_are_named(fit, shops):
    new = shops.with_columns(shop=pl.lit("z"))
    scored, report = score_table(fit.model, new)
    assert (scored["is_anomaly"] == (scored["anomaly_score"] > report.threshold)).all()
    assert any("'z'" in warning and "1,200 rows" in warning for warning in report.warnings)


@pytest.mark.parametrize("n_segments", [2, 60])
def test_other_thresholds_are_named_only_where_there_are_some(shops, n_segments):
    """Of many segments only the largest are in the report, which says nothing of the others."""
    names = pl.Series([f"s{i % n_segments}" for i in range(shops.height)])
    table = shops.with_columns(shop=names)
    fit = riskad.fit_table(table, threshold_by="shop", **OPTIONS)
    assert all(each.as_the_whole for each in fit.report.segments)
    page, few = render_page(fit.report), n_segments == 2
    assert ("no &#39;shop&#39; needs a threshold" in page) == few
    assert ("others by &#39;shop&#39;" in page) == (not few)
    assert ("none of the largest needs a threshold" in page) == (not few)
    assert score_table(fit.model, table)[1].rule == fit.report.rule == "risk"


@pytest.fixture(scope="module")
def web_fit(shops):
    """A fit that learns nothing of shops, of which one has higher amounts."""
    web = (pl.col("shop") == "c").fill_null(False)
    table = shops.with_columns(amount=pl.col("amount") + 30 * web, place=pl.col("shop"))
    table = table.drop("shop")
    return riskad.fit_table(table, threshold_by="place", drop=("place",), **OPTIONS), table


@pytest.fixture(scope="module")
def stored(web_fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "m.riskad"
    riskad.save(web_fit[0].model, path, report=web_fit[0].report)
    return path


@pytest.mark.parametrize("rule", ["top:60", "rate:0.05", "capacity:60:1200"])
def test_another_rule_flags_by_segment_too(web_fit, rule):
    fit, table = web_fit
    assert fit.model[1].calibration_.segments.spread > 0
    scored, report = score_table(fit.model, table, threshold=rule)
    assert report.rule == f"{rule}, and others by 'place'"
    assert abs(report.flagged - 60) <= 5
    flagged = scored.filter(pl.col("is_anomaly"))
    lowest = flagged.group_by("place").agg(pl.col("anomaly_score").min()).drop_nulls()
    assert lowest["anomaly_score"].max() > lowest["anomaly_score"].min() + 0.1
    # As many as by the rows that are most probably anomalies.
    least, most = (
        scored.filter(pl.col("is_anomaly") == flag)["anomaly_probability"] for flag in (True, False)
    )
    assert least.min() >= most.max()


def test_a_changed_rule_is_by_segment_too(web_fit, stored):
    fit, table = web_fit
    expected, _ = score_table(fit.model, table, threshold="rate:0.05")
    model, header = load_with_header(stored)
    _, report = change_threshold(model, header, "rate:0.05")
    scored, _ = score_table(model, table)
    assert scored["is_anomaly"].equals(expected["is_anomaly"])
    unlabelled = scored.filter(pl.col("label") == "")
    assert report.flagged == pytest.approx(unlabelled["is_anomaly"].sum(), abs=1)
    with pytest.raises(riskad.InputError, match="fit it again"):
        change_threshold(model, header, "false-alarms:0.05")


def test_a_refit_is_by_segment_too(web_fit, stored):
    fit, table = web_fit
    old, header = load_with_header(stored)
    other = FrameTable(table, fit.report.spec.labels)
    again = refit_table(old, header, table, held_out=other)
    assert again.report.segments == fit.report.segments
    scored, _ = score_table(old, table)
    frauds = scored.filter(pl.col("label") == "fraud")["is_anomaly"].sum()
    assert again.report.before.comparison.before.anomalies_flagged == frauds


def test_a_model_of_segments_is_not_exported(web_fit):
    pytest.importorskip("onnx")
    from riskad.app.onnx import to_onnx

    with pytest.raises(riskad.InputError, match="one threshold"):
        to_onnx(web_fit[0].model)


def test_a_missing_segment_column_is_refused_in_a_sentence(fit, shops):
    written = []
    with pytest.raises(riskad.InputError, match="shop"):
        score_table(fit.model, shops.drop("shop"), written.append)
    assert not written
    with pytest.raises(riskad.InputError, match="shopp"):
        riskad.fit_table(shops, threshold_by="shopp", **OPTIONS)
    blank = shops.with_columns(shop=pl.lit(" "))
    with pytest.raises(riskad.InputError, match="blank in every row, so that there are no seg"):
        riskad.fit_table(blank, threshold_by="shop", **OPTIONS)
