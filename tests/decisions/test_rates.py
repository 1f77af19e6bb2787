"""The anomaly rate, and what is decided by it, however much the kinds overlap."""

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from support.loops import each

from riskad import AutoRAD, InputError
from riskad.app.fit import fit_table, make_detector_of
from riskad.app.spec import FitSpec
from riskad.core.labels import read_codes
from riskad.decisions.anomaly_rate import (
    ANOMALIES_ALONE,
    PRIOR_ALONE,
    RANDOM,
    RateEstimate,
    as_rate_estimate,
    check_label_source,
    estimate_rate,
)
from riskad.decisions.calibration import Calibration
from riskad.decisions.score_line import intercepts
from riskad.decisions.thresholds import Likely
from riskad.detectors.registry import DETECTORS


def draw(rng, shift=0.7, rate=0.1, n=1000):
    """Scores of kinds that overlap, and which are anomalies."""
    anomalous = rng.random(n) < rate
    return rng.normal(size=n) + shift * anomalous, anomalous


def estimate(s, anomalous, labelled, source, seed=0):
    rest = ~labelled
    return estimate_rate(s[labelled], anomalous[labelled], s[rest], rest.sum(), source, seed)


def pick(rng, weights, n=60):
    labelled = np.zeros(len(weights), dtype=bool)
    labelled[rng.choice(len(weights), n, replace=False, p=weights / weights.sum())] = True
    return labelled


def covers(rate, truth):
    return rate.low <= truth <= rate.high


@each("shift", [0.3, 1.0, 3.0])
def test_a_random_sample_tells_the_rate_however_much_kinds_overlap(shift):
    rng = np.random.default_rng(0)
    errors, shares, inside = [], [], []
    for _ in range(150):
        s, anomalous = draw(rng, shift)
        labelled = pick(rng, np.ones(len(s)))
        if anomalous[labelled].sum() < 2:
            continue
        rate, truth = estimate(s, anomalous, labelled, "random"), anomalous[~labelled].mean()
        errors.append(abs(rate.value - truth))
        shares.append(abs(anomalous[labelled].mean() - truth))
        inside.append(covers(rate, truth))
    assert np.mean(inside) >= 0.93
    assert np.mean(errors) <= np.mean(shares) + 0.001
    if shift == 3.0:  # scores that tell the kinds make it better
        assert np.mean(errors) < 0.8 * np.mean(shares)


CHOICES = {  # how much more often a row is labelled
    "more anomalies": lambda rng, s, anomalous: np.where(anomalous, 5.0, 1.0),
    "high": lambda rng, s, anomalous: np.where(s > np.quantile(s, 0.9), 10.0, 1.0),
    "borderline": lambda rng, s, _: np.where(np.abs(s - np.quantile(s, 0.9)) < 0.3, 10.0, 1.0),
    "by a rule": lambda rng, s, _: np.where(s + 2 * rng.normal(size=len(s)) > 1, 5.0, 1.0),
}


@pytest.mark.slow
@each("choice", CHOICES)
@each("shift", [0.7, 2.5])
def test_chosen_labels_admit_what_they_cannot_tell(choice, shift):
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(50):
        s, anomalous = draw(rng, shift)
        labelled = pick(rng, CHOICES[choice](rng, s, anomalous))
        rate = estimate(s, anomalous, labelled, "chosen")
        inside.append(covers(rate, anomalous[~labelled].mean()))
    assert np.mean(inside) >= 0.9


def test_one_kind_of_label_leaves_the_rate_to_other_tables():
    s, normal = np.arange(40.0), np.zeros(40, dtype=bool)
    none = estimate_rate(s[:0], normal[:0], s, 40)
    assert none.assumption == PRIOR_ALONE
    assert 0.05 < none.value < 0.1
    assert none == estimate_rate(s, normal, s, 40, "chosen")
    drawn, unknown = (estimate_rate(s, normal, s, 40, word) for word in ("random", "unknown"))
    assert 0 < drawn.value < 0.05
    assert drawn.high < 0.15
    assert drawn.value < unknown.value < none.value
    assert estimate_rate(s, normal, s[:0], 0, "random") is None


def test_anomalies_alone_bound_the_rate():
    """Of 1,000 rows, 20 score as high as the labelled anomalies; or all of them do."""
    rng = np.random.default_rng(24)
    for rate in (0.02, 0.1):
        truth = rng.random(1000) < rate
        rows = rng.normal(size=1000) + 6 * truth
        anomalies = rng.normal(size=15) + 6
        found = estimate_rate(anomalies, np.ones(15, dtype=bool), rows, 1000)
        assert found.assumption == ANOMALIES_ALONE
        assert found.value == pytest.approx(truth.mean(), rel=0.5)
        assert covers(found, truth.mean())
    vague = estimate_rate(rng.normal(size=15), np.ones(15, dtype=bool), rng.normal(size=1000), 1000)
    none = estimate_rate(np.empty(0), np.zeros(0, dtype=bool), np.empty(0), 1000)
    assert vague.value == pytest.approx(none.value, rel=0.3)


@pytest.mark.slow
@each(("rate", "shift"), [(0.04, 1.5), (0.05, 2.5), (0.02, 2.5)])
@each("n", [30, 100])
def test_a_case_control_sample_does_not_multiply_the_rate(rate, shift, n):
    """30 % of the labels are anomalies: the rate was 3.6 times the truth, in 20 of 20 fits."""
    rng = np.random.default_rng(25)
    ratios, inside = [], []
    for _ in range(25):
        s, anomalous = draw(rng, shift, rate, 2000)
        labelled = np.zeros(2000, dtype=bool)
        m = round(0.3 * n)
        labelled[rng.choice(np.flatnonzero(anomalous), min(m, anomalous.sum() // 2), False)] = True
        labelled[rng.choice(np.flatnonzero(~anomalous), n - m, False)] = True
        found, truth = estimate(s, anomalous, labelled, "unknown"), anomalous[~labelled].mean()
        ratios.append(found.value / truth)
        inside.append(covers(found, truth))
    assert np.mean(inside) >= 0.85
    assert 0.6 < np.median(ratios) < 3.0


def test_bad_sources_and_rates_are_sentences():
    with pytest.raises(InputError, match="one word for each of 3 rows, got 2"):
        check_label_source(["random", "random"], 3)
    with pytest.raises(InputError, match=r"0\.03 is 3 %"):
        as_rate_estimate(3)


def test_the_mean_over_unlabelled_rows_is_the_rate():
    s = np.random.default_rng(6).normal(size=500)
    slopes, rates = np.array([0.0, 1.0, 30.0, 3.0]), np.array([0.01, 0.5, 0.9, 1e-4])
    found = intercepts(slopes[:, None] * s, rates)
    means = 1 / (1 + np.exp(-(found[:, None] + slopes[:, None] * s)))
    assert_allclose(means.mean(axis=1), rates, rtol=1e-6)


def test_a_list_is_never_empty_nor_most_of_the_table():
    rng = np.random.default_rng(9)
    for shift in (0.0, 0.5, 4.0):
        for _ in range(20):
            s, anomalous = draw(rng, shift)
            labelled = pick(rng, np.ones(len(s)))
            y = read_codes(np.where(labelled, np.where(anomalous, -1, 1), 0))
            found = Calibration.of(s, y, s, 0.0, label_source="random")
            flagged = (s[y == 0] > Likely().of(found)).sum()
            assert 1 <= flagged <= max(1, 2 * found.pi_n * (y == 0).sum())


def late_flights(seed=0, n=700):
    """Kinds that overlap: AUC about 0.7. 12 % of the rows are labelled, at random."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < 0.08, -1, 1)
    X = rng.normal(size=(n, 3)) + np.where(truth == -1, 0.6, 0.0)[:, None]
    y = np.where(rng.random(n) < 0.12, truth, 0)
    return X, y, truth


@pytest.mark.slow
def test_hard_tables_are_not_said_to_have_no_anomalies():
    """Seven of eight fits said 0 %, [0, 0], and flagged nothing."""
    X, y, truth = late_flights()
    flights = AutoRAD(budget=600).fit(X, y)
    rate, share = flights.calibration_.rate, (truth[y == 0] == -1).mean()
    assert covers(rate, share)
    assert abs(rate.value - share) < 0.06
    assert rate.high - rate.low < 0.25
    new = late_flights(seed=1)[0]
    assert 0.02 < (flights.predict(new) == -1).mean() < 0.35
    assert flights.anomaly_probability(new).mean() == pytest.approx(rate.value, abs=0.02)
    assert isinstance(flights.threshold_, Likely)


def test_a_known_rate_reaches_every_model():
    for name, entry in DETECTORS.items():
        settings = make_detector_of(FitSpec(model=name, anomaly_rate=0.03)).get_params()
        takes = {setting.name for setting in entry.settings}
        if name == "auto":
            assert settings["contamination"] == 0.03
        elif "prior" in takes:
            assert settings["prior"] == 0.97
    spec = FitSpec(model="shallow", anomaly_rate=0.03, settings={"prior": 0.5})
    assert make_detector_of(spec).prior == 0.5
    with pytest.raises(InputError, match="the anomaly rate"):
        FitSpec(anomaly_rate=1.5)


def test_tables_take_a_rate_and_the_source_of_labels():
    X, y, _ = late_flights(n=400)
    source = np.where(np.arange(400) % 2 == 0, "Random", "rule")
    columns = {"label": np.array(["fraud", "", "ok"])[y + 1], "how": source}
    table = pl.DataFrame({f"x{j}": X[:, j] for j in range(3)} | columns)
    spec = FitSpec(label="label", normal=["ok"], anomaly=["fraud"], model="shallow")
    report = fit_table(table, spec, drop=["how"], anomaly_rate=0.03).report
    assert tuple(report.rate) == (0.03, 0.03, 0.03)
    assert report.rate.assumption == "given"
    assert report.settings["prior"] == 0.97
    fit = fit_table(table, spec, label_sampling="how")
    assert fit.report.rate.assumption == RANDOM
    assert "how" not in fit.report.columns
    assert fit.model[-1].calibration_.label_source == "random"
    with pytest.raises(InputError, match="neither one of random, chosen, unknown nor a column"):
        fit_table(table, spec, label_sampling="hwo")


def test_quantiles_of_a_rate_are_spread_as_its_interval():
    rate = RateEstimate(0.1, 0.0, 0.3, RANDOM)
    found = rate.quantiles(400)
    assert (np.diff(found) >= 0).all()
    assert_allclose(found[[10, 199, 389]], [0.0, 0.1, 0.3], atol=0.01)
    assert np.median(found) == pytest.approx(0.1, abs=0.002)
    assert_allclose(as_rate_estimate(0.03).quantiles(5), 0.03)
