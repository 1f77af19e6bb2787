"""The anomaly rate, and what is decided by it, however much the kinds overlap."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

from riskad import AutoRAD, InputError
from riskad.app.fit import fit_table, make_detector_of
from riskad.app.spec import FitSpec
from riskad.cli.main import cli
from riskad.core.labels import read_codes
from riskad.decisions.anomaly_rate import (
    ANOMALIES_ALONE,
    LABEL_SOURCES,
    PRIOR_ALONE,
    RANDOM,
    UNKNOWN,
    RateEstimate,
    check_label_source,
    estimate_rate,
    given_rate,
    random_p_value,
)
from riskad.decisions.calibration import Calibration
from riskad.decisions.score_line import ScoreLine, intercepts
from riskad.decisions.thresholds import Cost, Likely
from riskad.detectors.auto.cross_fit import HeldOut, TrainingRows
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


# --- the rate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
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


def _more(rng, s, anomalous):
    return np.where(anomalous, 5.0, 1.0)


def _high(rng, s, anomalous):
    return np.where(s > np.quantile(s, 0.9), 10.0, 1.0)


def _borderline(rng, s, anomalous):
    return np.where(np.abs(s - np.quantile(s, 0.9)) < 0.3, 10.0, 1.0)


def _by_rule(rng, s, anomalous):
    return np.where(s + 2 * rng.normal(size=len(s)) > 1, 5.0, 1.0)


@pytest.mark.parametrize("choice", [_more, _high, _borderline, _by_rule])
@pytest.mark.parametrize("shift", [0.7, 2.5])
def test_chosen_labels_admit_what_they_cannot_tell(choice, shift):
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(50):
        s, anomalous = draw(rng, shift)
        labelled = pick(rng, choice(rng, s, anomalous))
        rate = estimate(s, anomalous, labelled, "chosen")
        inside.append(covers(rate, anomalous[~labelled].mean()))
    assert np.mean(inside) >= 0.9


def test_where_nothing_is_said_anomalies_may_have_been_labelled_more_often():
    rng = np.random.default_rng(13)
    inside, wider = [], []
    for _ in range(40):
        s, anomalous = draw(rng, 0.7)
        labelled = pick(rng, _more(rng, s, anomalous))
        unknown, drawn = (estimate(s, anomalous, labelled, w) for w in ("unknown", "random"))
        inside.append(covers(unknown, anomalous[~labelled].mean()))
        wider.append(unknown.low <= drawn.low)
    assert np.mean(inside) >= 0.85
    assert np.mean(wider) > 0.9


def test_suggested_labels_do_not_destroy_the_rate():
    """30 borderline rows after 30 random ones: it was 0.0 % (0.0 to 0.0)."""
    rng = np.random.default_rng(2)
    by_word = {word: [] for word in ("each", "unknown", "chosen")}
    for _ in range(40):
        s, anomalous = draw(rng, 1.5)
        random = pick(rng, np.ones(len(s)), 30)
        labelled = random | pick(rng, ~random * _borderline(rng, s, anomalous), 30)
        each = np.where(random, "random", "suggested")[labelled]
        for word, source in (("each", each), ("unknown", "unknown"), ("chosen", "chosen")):
            rate = estimate(s, anomalous, labelled, source)
            if rate is not None:
                by_word[word].append((rate.value, covers(rate, anomalous[~labelled].mean())))
    for found in by_word.values():
        values, inside = np.array(found).T
        assert np.mean(inside) >= 0.9
        assert 0.05 < np.median(values) < 0.2
        assert values.min() > 0.005


def test_no_interval_is_a_point():
    rng = np.random.default_rng(3)
    for _ in range(200):
        n, m, u = rng.integers(1, 30), rng.integers(1, 8), rng.integers(1, 50)
        far = rng.choice([0.0, 1.0, 50.0])
        scores = np.concatenate([rng.normal(size=n), rng.normal(size=m) + far])
        anomalous = np.arange(n + m) >= n
        for source in LABEL_SOURCES:
            rate = estimate_rate(scores, anomalous, rng.normal(size=u), int(u), source)
            if rate is not None:
                assert 0 <= rate.low < rate.high <= 1
                assert rate.low <= rate.value <= rate.high
                assert rate.value > 0


def test_labels_that_were_chosen_are_noticed():
    rng = np.random.default_rng(4)
    random, high, middle = [], [], []
    for _ in range(200):
        s, anomalous = draw(rng)
        labelled = pick(rng, np.ones(len(s)))
        random.append(random_p_value(s[labelled], s[~labelled]))
        labelled = pick(rng, _high(rng, s, anomalous))
        high.append(random_p_value(s[labelled], s[~labelled]))
        labelled = pick(rng, np.where(np.abs(s) < 0.3, 5.0, 1.0))
        middle.append(random_p_value(s[labelled], s[~labelled]))
    assert np.mean(np.array(random) < 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(np.array(high) < 0.01) > 0.95
    assert np.mean(np.array(middle) < 0.01) > 0.5


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


@pytest.mark.parametrize(("rate", "shift"), [(0.04, 1.5), (0.05, 2.5), (0.02, 2.5)])
@pytest.mark.parametrize("n", [30, 100])
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
    with pytest.raises(InputError, match="random, chosen, unknown"):
        check_label_source("rnadom", 3)
    with pytest.raises(InputError, match="one word for each of 3 rows, got 2"):
        check_label_source(["random", "random"], 3)
    with pytest.raises(InputError, match=r"0\.03 is 3 %"):
        given_rate(3)


# --- probabilities ------------------------------------------------------------------------------


def test_a_line_through_noise_is_flat():
    rng = np.random.default_rng(5)
    slopes = []
    for _ in range(200):
        anomalous = np.arange(60) < 8
        slopes.append(ScoreLine.through(rng.normal(size=60), anomalous).slope)
    assert np.mean(np.array(slopes) == 0) > 0.85
    apart = ScoreLine.through(np.arange(60.0), np.arange(60) >= 50)
    assert 0 < apart.slope < np.inf
    assert apart.slope > 0.8 * apart.steepest


def test_the_mean_over_unlabelled_rows_is_the_rate():
    s = np.random.default_rng(6).normal(size=500)
    slopes, rates = np.array([0.0, 1.0, 30.0, 3.0]), np.array([0.01, 0.5, 0.9, 1e-4])
    found = intercepts(slopes, rates, s)
    means = 1 / (1 + np.exp(-(found[:, None] + slopes[:, None] * s)))
    assert_allclose(means.mean(axis=1), rates, rtol=1e-6)


def overlapping(rng, shift=1.0, n=1000, labels=60, rate=0.1):
    s, anomalous = draw(rng, shift, rate, n)
    labelled = pick(rng, np.ones(n), labels)
    y = np.where(labelled, np.where(anomalous, -1, 1), 0)
    return Calibration.of(s, read_codes(y), s, 0.0, label_source="random"), s, anomalous, y


def test_probabilities_are_no_worse_than_the_rate_for_all():
    rng = np.random.default_rng(8)
    better = []
    for shift in (0.0, 0.3, 1.0, 2.0):
        for _ in range(30):
            found, s, anomalous, y = overlapping(rng, shift)
            if found.knows_probabilities:
                free = y == 0
                p = found.anomaly_probability(s[free])
                constant = np.mean((found.pi_n - anomalous[free]) ** 2)
                better.append(np.mean((p - anomalous[free]) ** 2) <= constant + 1e-12)
                assert p.mean() == pytest.approx(found.pi_n, abs=1e-6)
    assert np.mean(better) >= 0.95


# --- lists ---------------------------------------------------------------------------------------


def test_a_list_is_never_empty_nor_most_of_the_table():
    rng = np.random.default_rng(9)
    for shift in (0.0, 0.5, 4.0):
        for _ in range(20):
            found, s, _, y = overlapping(rng, shift)
            flagged = (s[y == 0] > Likely().of(found)).sum()
            assert 1 <= flagged <= max(1, 2 * found.pi_n * (y == 0).sum())


def test_rows_with_one_score_go_together():
    rng = np.random.default_rng(10)
    anomalous = rng.random(600) < 0.1
    s = np.where(rng.random(600) < np.where(anomalous, 0.9, 0.2), 1.0, 0.0)  # two values
    y = np.where(np.arange(600) < 80, np.where(anomalous, -1, 1), 0)
    found = Calibration.of(s, read_codes(y), s, 0.0)
    assert 0 < Likely().of(found) < 1


def test_a_cost_rule_has_no_collapsed_rate_to_inherit():
    rng = np.random.default_rng(11)
    for _ in range(20):
        found, s, _, y = overlapping(rng, 1.0, labels=100)
        flagged = (s[y == 0] > Cost(1, 10).of(found)).mean()
        assert 0 < flagged < 0.9


# --- AutoRAD -------------------------------------------------------------------------------------


def late_flights(seed=0, n=700):
    """Kinds that overlap: AUC about 0.7. 12 % of the rows are labelled, at random."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < 0.08, -1, 1)
    X = rng.normal(size=(n, 3)) + np.where(truth == -1, 0.6, 0.0)[:, None]
    y = np.where(rng.random(n) < 0.12, truth, 0)
    return X, y, truth


@pytest.fixture(scope="module")
def flights():
    X, y, _ = late_flights()
    return AutoRAD(budget=600).fit(X, y)


def test_hard_tables_are_not_said_to_have_no_anomalies(flights):
    """Seven of eight fits said 0 %, [0, 0], and flagged nothing."""
    _, y, truth = late_flights()
    rate, share = flights.calibration_.rate, (truth[y == 0] == -1).mean()
    assert covers(rate, share)
    assert abs(rate.value - share) < 0.06
    assert rate.high - rate.low < 0.25
    new = late_flights(seed=1)[0]
    assert 0.02 < (flights.predict(new) == -1).mean() < 0.35
    assert flights.anomaly_probability(new).mean() == pytest.approx(rate.value, abs=0.02)
    assert isinstance(flights.threshold_, Likely)


def test_unlabelled_rows_are_held_out_with_labelled_ones(flights):
    c = flights.calibration_
    assert len(c.held_unlabelled) == (late_flights()[1] == 0).sum()
    assert c.random_p_value > 0.001
    assert c.label_source == "unknown"
    assert flights._evidence_in_words() == (
        "scored by members that were fitted, tuned and weighted without its label"
    )


def test_the_auc_of_noise_is_a_half():
    """Weights by the labels that are judged flatter six members that know nothing."""
    rng = np.random.default_rng(12)
    names = ["kernel", "smooth forest", "network", "boosted", "labelled trees"]
    nested, plain = [], []
    for _ in range(30):
        codes = np.repeat([1, -1], [40, 10])
        folds = [np.arange(50)[i::5] for i in range(5)]
        scores = {name: [rng.normal(size=10) for _ in folds] for name in names}
        repeats = np.zeros(50, dtype=bool)
        rows = TrainingRows(None, codes, groups=None, weight=None, views=None, repeats=repeats)
        found = HeldOut(rows, np.arange(50), scores, folds, 5, kinds_auc=None, novelty=0.0)
        nested.append(found.auc(found.combined()).value)
        weights = found.weights()
        same = [sum(w * scores[name][i] for name, w in weights.items()) for i in range(5)]
        plain.append(found.auc(same).value)
    assert np.mean(nested) == pytest.approx(0.5, abs=0.04)
    assert np.mean(plain) > np.mean(nested) + 0.02


# --- what a person knows -------------------------------------------------------------------------


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


LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def payments(n=400):
    X, y, _ = late_flights(n=n)
    words = np.array(["fraud", "", "ok"])[y + 1]
    source = np.where(np.arange(n) % 2 == 0, "Random", "rule")
    table = {f"x{j}": X[:, j] for j in range(3)} | {"label": words, "how": source}
    return pl.DataFrame(table)


def test_tables_take_a_rate_and_the_source_of_labels():
    report = fit_table(payments(), LABELS, model="shallow", drop=["how"], anomaly_rate=0.03).report
    assert tuple(report.rate) == (0.03, 0.03, 0.03)
    assert report.rate.assumption == "given"
    assert report.settings["prior"] == 0.97
    fit = fit_table(payments(), LABELS, model="shallow", label_sampling="how")
    assert fit.report.rate.assumption == RANDOM
    assert "how" not in fit.report.columns
    assert fit.model[-1].calibration_.label_source == "random"
    with pytest.raises(InputError, match="neither one of random, chosen, unknown nor a column"):
        fit_table(payments(), LABELS, model="shallow", label_sampling="hwo")


def test_the_command_line_takes_both(tmp_path):
    path = tmp_path / "flights.csv"
    payments(300).drop("how").write_csv(path)
    told = [str(path), "--label", "label", "--normal", "ok", "--anomaly", "fraud", "--json"]
    told += ["-o", str(tmp_path / "m.riskad"), "--model", "shallow", "--label-sampling", "random"]
    done = CliRunner().invoke(cli, ["fit", *told, "--anomaly-rate", "0.04"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [found["rate"][name] for name in ("value", "low", "high")] == [0.04, 0.04, 0.04]
    refused = CliRunner().invoke(cli, ["fit", *told, "--anomaly-rate", "4", "--force"])
    assert refused.exit_code != 0


def test_a_person_is_told_that_labels_are_no_random_sample():
    rng = np.random.default_rng(14)
    anomalous = rng.random(600) < 0.1
    x = rng.normal(size=600) + 2 * anomalous
    labelled = pick(rng, np.where(x > 1.2, 30.0, 1.0), 80)
    words = np.where(labelled, np.where(anomalous, "fraud", "ok"), "")
    table = pl.DataFrame({"x": x, "z": rng.normal(size=600), "label": words})
    report = fit_table(table, LABELS, model="shallow").report
    assert report.labels_random_p < 0.01
    assert any("counts them as chosen" in said for said in report.warnings)
    told = fit_table(table, LABELS, model="shallow", label_sampling="chosen").report
    assert told.rate.value == pytest.approx(report.rate.value, rel=0.1)
    assert not any("unlike a random sample" in said for said in told.warnings)


def test_a_given_rate_is_what_auto_goes_by():
    X, y, _ = late_flights(n=250)
    model = AutoRAD(budget=600, contamination=0.3).fit(X, y, label_source="random")
    assert model.calibration_.rate == RateEstimate(0.3, 0.3, 0.3, "given")
    assert model.prior_ == pytest.approx(0.7)
    assert model.anomaly_probability(X[y == 0]).mean() == pytest.approx(0.3, abs=0.02)
    assert model.calibration_.label_source == "random"
    with pytest.raises(InputError, match="the anomaly rate"):
        AutoRAD(contamination=30).fit(X, y)


def test_the_list_is_shorter_where_the_rate_may_be_lower():
    """A vague rate of 30 % that may as well be 2 % made a list of more than half of the rows."""
    rng = np.random.default_rng(21)
    s, anomalous = draw(rng, 2.5, 0.2, 600)
    codes = np.where(np.arange(600) < 60, np.where(anomalous, -1, 1), 0)
    calibration = Calibration.of(s, read_codes(codes), s, 0.0)

    def flagged(low, high):
        rate = RateEstimate(0.3, low, high, RANDOM)
        return int((s > Likely().of(replace(calibration, rate=rate))).sum())

    assert 0 < flagged(0.02, 0.35) < flagged(0.28, 0.32)


def test_quantiles_of_a_rate_are_spread_as_its_interval():
    rate = RateEstimate(0.1, 0.0, 0.3, RANDOM)
    found = rate.quantiles(400)
    assert (np.diff(found) >= 0).all()
    assert_allclose(found[[10, 199, 389]], [0.0, 0.1, 0.3], atol=0.01)
    assert np.median(found) == pytest.approx(0.1, abs=0.002)
    assert_allclose(given_rate(0.03).quantiles(5), 0.03)


def test_the_guess_that_anomalies_are_rare_counts_where_labels_tell_little():
    """Anomalies labelled 5 times as often, kinds that overlap: the estimate was the label share."""
    rng = np.random.default_rng(22)
    errors = []
    for _ in range(30):
        s, anomalous = draw(rng, 0.7)
        labelled = pick(rng, _more(rng, s, anomalous))
        rate = estimate(s, anomalous, labelled, "chosen")
        assert rate.low <= rate.value <= rate.high
        errors.append((rate.value, anomalous[labelled].mean(), anomalous[~labelled].mean()))
    value, share, truth = np.mean(errors, axis=0)
    assert value - truth < 0.75 * (share - truth)


def test_a_rate_says_what_it_rests_on():
    rng = np.random.default_rng(23)
    s, anomalous = draw(rng, 0.7)
    labelled = pick(rng, np.ones(len(s)))
    assert estimate(s, anomalous, labelled, "unknown").assumption == UNKNOWN
    assert estimate(s, anomalous, labelled, "random").assumption == RANDOM
