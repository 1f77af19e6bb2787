"""Rows looked at against anomalies found, and capacity as a threshold."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from scipy.stats import beta
from sklearn.metrics import average_precision_score
from support.loops import each
from support.page import LABELS, fit_table, make_cards

from riskad.app.describe import describe_fit, describe_table
from riskad.app.model_files import make_header
from riskad.app.report.documents import render_page
from riskad.app.report.wording import (
    about,
    cell,
    flagged_lines,
    found_line,
    option,
    percent,
    quality_lines,
    rate_lines,
    sampling_lines,
    sentence,
    share_between,
)
from riskad.app.score import score_table
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import (
    ANOMALIES_ALONE,
    CHOSEN,
    PRIOR_ALONE,
    RANDOM,
    UNKNOWN,
    RateEstimate,
)
from riskad.decisions.calibration import Calibration, count_groups
from riskad.decisions.capacity import Review, plan_capacity
from riskad.decisions.score_line import ScoreLine
from riskad.decisions.thresholds import Capacity, parse_threshold
from riskad.files.records import to_plain
from riskad.metrics.ranking import (
    Auc,
    Estimate,
    average_precision_with_interval,
    precision_recall_with_interval,
    roc_with_interval,
)


def draw(kind, seed, n=1500, rate=0.06, labelled=0.12):
    """Scores of labelled and of other rows, and which of the others are anomalies."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < rate
    noise = rng.standard_t(3, n) if kind == "heavy tails" else rng.normal(0, 1, n)
    shift = {"overlap": 0.6, "easy": 2.5, "heavy tails": 1.5, "wide": 1.0, "half stand out": 4.0}
    stands_out = y & (rng.random(n) < 0.5) if kind == "half stand out" else y
    s = noise * (1 + (kind == "wide") * y) + shift[kind] * stands_out
    known = rng.random(n) < labelled
    return (s[known & ~y], s[known & y]), s[~known], y[~known]


def rate_of(labelled):
    n, m = map(len, labelled)
    low, high = beta.ppf([0.025, 0.975], m + 0.5, n + 0.5)
    return (m + 0.5) / (m + n + 1), low, high


def review_of(scores, labelled, rate):
    known = np.concatenate(labelled)
    line = ScoreLine.through(known, np.arange(len(known)) >= len(labelled[0]))
    likely = line.at_rate(rate[0], scores).probabilities(scores)
    return Review(scores, likely, *labelled, rate)


@each("kind", ["overlap", "heavy tails", "half stand out"])
def test_intervals_hold_what_is_counted(kind):
    ks, inside = (10, 30, 100, 400), []
    for seed in range(10):
        labelled, scores, truth = draw(kind, seed)
        review = review_of(scores, labelled, rate_of(labelled))
        counted = np.cumsum(truth[np.argsort(-scores)])
        for k in ks:
            found = review.at(k).found
            inside.append(found.low <= counted[k - 1] <= found.high)
        precision = review.average_precision()
        inside.append(precision.low <= average_precision_score(truth, scores) <= precision.high)
    assert np.mean(inside) >= 0.86  # 50 of them, in groups of five that go together


@pytest.fixture(scope="module")
def reviewed():
    labelled, scores, _ = draw("overlap", 0)
    return review_of(scores, labelled, rate_of(labelled))


def test_more_rows_find_more_and_all_rows_find_all(reviewed):
    found = [reviewed.at(k) for k in (0, 1, 10, 100, 1000, reviewed.n_rows)]
    for end in ("value", "low", "high"):
        counts = [getattr(each.found, end) for each in found]
        assert counts == sorted(counts)
    assert found[0].found.value == 0
    assert found[-1].recall.value == found[-1].recall.low == found[-1].recall.high == 1
    assert found[-1].by_chance == pytest.approx(found[-1].found.value)
    assert found[-1].lift.value == pytest.approx(1)
    assert all(0 <= f.precision.low <= f.precision.value <= f.precision.high <= 1 for f in found)


def test_costs_are_false_alarms_and_misses_priced(reviewed):
    cost, found = reviewed.cost(100, 2.0, 7.0), reviewed.at(100).found.value
    assert cost.false_alarms.value == pytest.approx(100 - found)
    assert cost.misses.value == pytest.approx(reviewed.anomalies.value - found)
    price = 2 * cost.false_alarms.value + 7 * cost.misses.value
    assert cost.cost.value == pytest.approx(price)
    assert cost.cost.low < price < cost.cost.high


def test_intervals_of_rate_curves_and_precision_count_groups():
    labelled, scores, _ = draw("easy", 8)
    held = np.concatenate([*labelled, np.full(len(scores), np.nan)])
    codes = np.repeat([1, -1, 0], [*map(len, labelled), len(scores)])
    fitted = np.concatenate([*labelled, scores])
    plain = Calibration.of(held, codes, fitted, 0.0, label_source="random")
    groups = np.arange(len(codes)) // 8
    counted = count_groups(plain, codes, groups)
    assert counted.group_effect > 2
    assert counted.rate.low < plain.rate.low < plain.rate.value == counted.rate.value
    assert counted.rate.high > plain.rate.high
    known = counted.codes, counted.scores
    for make in (roc_with_interval, precision_recall_with_interval):
        alone, wide = make(*known), make(*known, effect=counted.group_effect)
        assert np.mean(wide.high - wide.low) > 1.2 * np.mean(alone.high - alone.low)
    alone, wide = (average_precision_with_interval(*known, effect=e) for e in (1.0, 5.0))
    assert wide.low < alone.low
    assert wide.value == alone.value
    assert count_groups(plain, codes, None) is plain


def test_rates_of_whole_groups_that_were_labelled_are_covered():
    inside = {"rows": [], "groups": []}
    for seed in range(25):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(150), 8)
        truth = rng.random(1200) < rng.beta(0.3, 2.7, 150)[groups]
        scores = rng.normal(0, 1, 1200) + 1.5 * truth + rng.normal(0, 0.7, 150)[groups]
        labelled = np.isin(groups, rng.choice(150, 30, replace=False))
        codes = np.where(labelled, np.where(truth, -1, 1), 0)
        by_rows = Calibration.of(scores, codes, scores, 0.0, label_source="random")
        by_groups = count_groups(by_rows, codes, groups)
        for word, found in (("rows", by_rows), ("groups", by_groups)):
            inside[word].append(found.rate.low <= truth[~labelled].mean() <= found.rate.high)
    assert np.mean(inside["groups"]) >= 0.92
    assert np.mean(inside["rows"]) < 0.9  # what counting rows came to


NOON = datetime(2024, 1, 1, 12)
MOMENTS = pl.Series("when", [NOON, NOON + timedelta(days=9, hours=3)])


CAPACITIES = [("50/day", 50, 300), ("50 per week", 50, 2100), (" 5 / Days ", 5, 300)]


@each(("capacity", "rows", "of_rows"), [*CAPACITIES, ("1,200/month", 1200, 9131.25)])
def test_days_are_counted_from_the_first_to_the_last(capacity, rows, of_rows):
    plan = plan_capacity(capacity, 3000, 2800, "when", MOMENTS)
    assert (plan.rows, plan.of_rows) == (rows, pytest.approx(of_rows))
    assert "3,000 rows of 10 days ('when')" in str(plan)
    assert plan.rule.of_rows == pytest.approx(of_rows)
    assert parse_threshold(str(plan.rule)) == plan.rule


def test_without_dates_the_table_is_one_batch_and_that_is_said():
    plan = plan_capacity(50, 3000, 2800, None, None)
    assert plan.rule == Capacity(50, 2800)
    assert "2,800 unlabelled rows are taken to be one batch" in str(plan)
    assert "of one week; name the column" in str(plan_capacity("50/week", 3000, 2800, None, None))
    assert "every row is flagged" in str(plan_capacity("400/day", 3000, 2800, "when", MOMENTS))


@each("capacity", ["", "many", "0/day", "-5", "50/fortnight", "5.5/day", "5/"])
def test_capacities_that_mean_nothing_are_refused(capacity):
    with pytest.raises(InputError, match="50, 50/day, 50/week or 200/month"):
        fit_table(make_cards(50), LABELS, capacity=capacity)


def test_a_capacity_is_a_share_of_any_number_of_rows():
    s = np.arange(1000.0)
    some = Calibration(np.empty(0), np.empty(0, dtype=int), s, len(s), 0.0)
    assert (s > Capacity(50, 500).of(some)).sum() == 100
    assert (s > Capacity(7).of(some)).sum() == 7
    assert (s > Capacity(50, 20).of(some)).all()
    for wrong in ("capacity:0", "capacity:-5:10", "capacity:5:0", "capacity:x"):
        with pytest.raises(InputError, match=r"rows|cannot be read"):
            parse_threshold(wrong)


DAYS = [NOON.date() + timedelta(days=i // 20) for i in range(600)]
DATED = make_cards(600).with_columns(pl.Series("when", DAYS))


@pytest.fixture(scope="module")
def fit():
    return fit_table(DATED, LABELS, id="card", time="when", capacity="2/day")


def test_a_fit_flags_what_can_be_looked_at(fit):
    report = fit.report
    assert report.rule == "capacity:2:20"
    assert report.flagged == round(0.1 * report.labels.unlabelled)
    assert report.review.flagged.rows == report.flagged
    stored = to_plain(report)
    assert stored["capacity"]["of_rows"] == 20
    assert "review" not in stored


def test_the_rate_and_what_is_found_agree(fit):
    review, rate = fit.report.review, fit.report.rate.value
    assert review.anomalies.value / review.rows == pytest.approx(rate, rel=1e-6)
    assert review.flagged.by_chance == pytest.approx(rate * review.flagged.rows, rel=1e-6)
    for top in (*review.table, review.flagged):
        assert top.precision.value >= 0.999 * rate  # the ranking is better than none


def test_page_and_json_show_rows_looked_at(fit):
    page = render_page(describe_fit(fit))
    assert "Rows reviewed and anomalies found" in page
    assert "2 rows a day can be reviewed: the table has 600 rows of 30 days" in page.replace(
        "&#39;", "'"
    )
    flagged = fit.report.review.flagged
    assert found_line(flagged)[1:] in page  # a sentence, with a capital letter
    assert "by labelled rows, which may be a random sample or chosen" in page


def test_a_later_table_is_judged_by_the_same_share(fit):
    new = DATED.drop("label").head(200)
    _, report = score_table(fit.model, new)
    assert report.rule == "capacity:2:20"
    assert report.expected.rows == report.flagged > 0
    in_parts = score_table(fit.model, [new.head(120), new.tail(80)])[1]
    assert in_parts.expected == report.expected
    data = describe_table(fit.model, make_header(fit.model, fit.report), new)
    assert data.review.rows == 200
    assert data.review.flagged.found == report.expected.found


def found_like(value, low, high, k=120, rate=0.05):
    labelled, scores, _ = draw("easy", 9)
    found = review_of(scores, labelled, (rate, rate, rate)).at(k)
    count = Estimate(value, low, high, 100, 7)
    lift = Estimate(*(x / (k * rate) for x in (value, low, high)), 100, 7)
    return replace(found, found=count, lift=lift, by_chance=k * rate)


def test_expected_precision_is_said_beside_chance():
    assert found_line(found_like(35.2, 20.0, 49.5)) == (
        "about 35 of these 120 rows are anomalies (95% interval 20 to 50), compared with 6 of 120 "
        "random rows"
    )


def test_rates_say_what_they_rest_on():
    assert rate_lines(RateEstimate(0.05, 0.02, 0.09, RANDOM)) == [
        "estimated anomaly rate: 5.0% (95% interval 2.0% to 9.0%), by labelled rows as a random "
        "sample"
    ]
    for basis in (UNKNOWN, CHOSEN, ANOMALIES_ALONE):
        rate, advice = rate_lines(RateEstimate(0.05, 0.02, 0.09, basis))
        assert "rate of anomalies like the labelled ones: 5.0%" in rate
        assert advice.startswith("for a better estimate, ")
    assert "mark ten ordinary rows as normal" in advice
    assert len(rate_lines(RateEstimate(0.05, 0.02, 0.09, PRIOR_ALONE))) == 2
    assert rate_lines(RateEstimate(0.03, 0.03, 0.03, "given")) == ["anomaly rate 3.0%, as given"]
    assert rate_lines(None) == []
    assert sampling_lines(0.2)[0].startswith("labelled rows look like a random sample")
    assert "may not be a random sample" in sampling_lines(0.04)[0]
    assert "are not a random sample of the table" in sampling_lines(0.0004)[0]
    assert sampling_lines(None) == []
    assert [about(n) for n in (34.6, 3.42, 2.0, 0.004)] == ["35", "3.4", "2", "less than 0.1"]
    assert [percent(share) for share in (0.5, 0.123)] == ["50%", "12.3%"]
    assert sentence("no AUC") == "No AUC."
    assert sentence("is_anomaly if it takes over.") == "is_anomaly if it takes over."
    assert option(("ok", "fine")) == "ok, fine"
    assert option({"when": "date"}) == "when=date"
    assert share_between(Estimate(0.9999, 0.6, 1.0, 5, 5)) == ">99% (60% to 100%)"
    assert share_between(Estimate(0.7, 0.6, 1.0, 5, 5), "-") == "70% (60-100%)"


def test_an_interval_that_says_nothing_is_said_in_words():
    """They were "about 40 are anomalies (0 to 48)", "97% (0% to 100%)" and a rate of 0% to 90%."""
    wide = found_like(40, 0, 48, k=48)
    assert flagged_lines(wide, 48) == [
        "too few labels to tell how many of these 48 rows are anomalies; label 20 more "
        "(`riskad suggest`, or some at random)"
    ]
    assert "too few labels" in found_line(found_like(3378, 1, 4168, k=20_000))
    assert "too few labels to tell whether this row" in found_line(found_like(0.97, 0, 1, k=1))
    assert "about 2 of these 120 rows are anomalies (95% interval 0 to 5)" in found_line(
        found_like(2, 0, 5)
    )
    assert share_between(Estimate(0.97, 0.0, 1.0, 5, 5)) == "not known"
    [line] = rate_lines(RateEstimate(0.4, 0.0, 0.9, "given"))
    assert line.startswith("too few labels to tell which share")


def test_an_auc_that_may_be_chance_is_said_in_words():
    counts = LabelCounts(20, 6, 200)
    [line] = quality_lines(Auc(0.75, 0.41, 0.93, 20, 6), "", "held out", counts)
    assert line.startswith("too few labels to tell whether the order of the rows is better than")
    [line] = quality_lines(Auc(0.51, 0.48, 0.54, 2000, 600), "", "held out", counts)
    assert line.startswith("AUC 0.510 (95% interval 0.480 to 0.540)")
    assert cell(Auc(0.75, 0.41, 0.93, 20, 6)) == "not known"
