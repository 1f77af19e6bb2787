"""Rows looked at against anomalies found, and capacity as a threshold."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from scipy.stats import beta
from sklearn.metrics import average_precision_score
from support.page import LABELS, fit_table, make_cards

from riskad.app.describe import describe_fit, describe_table
from riskad.app.model_files import load, make_header
from riskad.app.report.documents import render_page
from riskad.app.report.wording import (
    about,
    auc_cell,
    flagged_lines,
    found_line,
    option,
    percent,
    quality_lines,
    rate_lines,
    review_cells,
    sampling_lines,
    sentence,
    share_between,
    top_lines,
)
from riskad.app.score import _Totals, score_table
from riskad.app.threshold import change_threshold
from riskad.cli.main import cli
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
from riskad.decisions.capacity import (
    LabelledScores,
    Review,
    plan_capacity,
    review_rows,
    review_table,
    round_counts,
)
from riskad.decisions.thresholds import Capacity, parse_threshold
from riskad.files.records import to_plain
from riskad.metrics.estimates import Estimate
from riskad.metrics.ranking import (
    Auc,
    GroupEffect,
    average_precision_with_interval,
    precision_recall_with_interval,
    roc_with_interval,
)

# --- anomalies found ---------------------------------------------------------------------


def draw(kind, seed, n=1500, rate=0.06, labelled=0.12):
    """Scores of labelled and of other rows, and which of the others are anomalies."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < rate
    noise = rng.standard_t(3, n) if kind == "heavy tails" else rng.normal(0, 1, n)
    shift = {"overlap": 0.6, "easy": 2.5, "heavy tails": 1.5, "wide": 1.0, "half stand out": 4.0}
    stands_out = y & (rng.random(n) < 0.5) if kind == "half stand out" else y
    s = noise * (1 + (kind == "wide") * y) + shift[kind] * stands_out
    known = rng.random(n) < labelled
    return LabelledScores(s[known & ~y], s[known & y]), s[~known], y[~known]


def rate_of(labelled):
    n, m = len(labelled.normals), len(labelled.anomalies)
    low, high = beta.ppf([0.025, 0.975], m + 0.5, n + 0.5)
    return (m + 0.5) / (m + n + 1), low, high


@pytest.mark.parametrize("kind", ["overlap", "heavy tails", "half stand out"])
def test_intervals_hold_what_is_counted(kind):
    ks, inside = (10, 30, 100, 400), []
    for seed in range(10):
        labelled, scores, truth = draw(kind, seed)
        review = Review(scores, labelled, rate_of(labelled))
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
    return Review(scores, labelled, rate_of(labelled))


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


def test_probabilities_that_are_told_elsewhere_are_summed():
    labelled, scores, _ = draw("easy", 1)
    told = 1 / (1 + np.exp(3 - scores))
    review = Review(scores, labelled, (told.mean(), 0.03, 0.2), probabilities=told)
    assert review.at(40).found.value == pytest.approx(np.sort(told)[-40:].sum())
    assert review.at(len(scores)).by_chance == pytest.approx(told.sum())
    assert review.likely == (told > 0.5).sum()


def test_quantiles_stand_for_many_rows():
    labelled, scores, _ = draw("easy", 2)
    few = Review(scores, labelled, (0.06, 0.04, 0.09))
    many = Review(np.sort(scores), labelled, (0.06, 0.04, 0.09), n_rows=100 * len(scores))
    assert many.at(5000).precision.value == pytest.approx(few.at(50).precision.value, abs=0.05)
    assert many.n_rows == 100 * len(scores)


def test_labels_decide_how_much_is_found():
    labelled, scores, _ = draw("easy", 3)
    swapped = LabelledScores(labelled.anomalies, labelled.normals)
    right, wrong = (Review(scores, each, (0.06, 0.04, 0.09)) for each in (labelled, swapped))
    assert right.at(50).found.value > 4 * right.at(50).by_chance
    assert wrong.at(50).found.value < wrong.at(50).by_chance


def test_a_later_table_with_more_anomalies_holds_more():
    labelled, scores, truth = draw("easy", 4)
    more = np.concatenate([scores, np.repeat(scores[truth], 3)])
    review = Review(more, labelled, rate_of(labelled), reference=scores)
    assert review.anomalies.value > 2 * Review(scores, labelled, rate_of(labelled)).anomalies.value


def test_rows_of_groups_widen_what_is_found():
    labelled, scores, _ = draw("overlap", 5)
    alone, together = (
        Review(scores, labelled._replace(effect=effect), (0.06, 0.06, 0.06)) for effect in (1, 6)
    )
    widths = [each.at(100).found.high - each.at(100).found.low for each in (alone, together)]
    assert widths[1] > 1.15 * widths[0]


def test_costs_are_false_alarms_and_misses_priced(reviewed):
    cost, found = reviewed.cost(100, 2.0, 7.0), reviewed.at(100).found.value
    assert cost.false_alarms.value == pytest.approx(100 - found)
    assert cost.misses.value == pytest.approx(reviewed.anomalies.value - found)
    price = 2 * cost.false_alarms.value + 7 * cost.misses.value
    assert cost.cost.value == pytest.approx(price)
    assert cost.cost.low < price < cost.cost.high


@pytest.mark.parametrize("n", [1, 4, 5, 6, 30])
def test_tables_of_few_rows_have_a_table(n):
    labelled, scores, _ = draw("easy", 6)
    rows = Review(scores[:n], labelled, (0.06, 0.04, 0.09)).table()
    assert rows
    assert all(1 <= found.rows <= n for found in rows)
    assert round_counts(n)[-1] == n


def test_one_label_of_a_kind_tells_nothing():
    labelled, scores, _ = draw("easy", 7)
    with pytest.raises(InputError, match=r"2 held-out labelled rows of each kind; .* 1 anomalies"):
        Review(scores, labelled._replace(anomalies=np.array([3.0])), (0.06, 0.04, 0.09))


# --- groups ------------------------------------------------------------------------------


def test_shares_of_groups_that_are_all_alike_count_groups():
    codes, groups = np.repeat([1, -1, 1, 1], 25), np.repeat(np.arange(4), 25)
    assert GroupEffect.on_share(codes, groups).variance == pytest.approx(25)
    assert GroupEffect.on_share(codes, np.arange(100)).variance == pytest.approx(1)


def test_intervals_of_rate_curves_and_precision_count_groups():
    labelled, scores, _ = draw("easy", 8)
    held = np.concatenate([labelled.normals, labelled.anomalies, np.full(len(scores), np.nan)])
    kinds = [len(labelled.normals), len(labelled.anomalies), len(scores)]
    codes = np.repeat([1, -1, 0], kinds)
    fitted = np.concatenate([labelled.normals, labelled.anomalies, scores])
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
        for word, each in (("rows", by_rows), ("groups", by_groups)):
            inside[word].append(each.rate.low <= truth[~labelled].mean() <= each.rate.high)
    assert np.mean(inside["groups"]) >= 0.92
    assert np.mean(inside["rows"]) < 0.9  # what counting rows came to


# --- capacity ----------------------------------------------------------------------------

NOON = datetime(2024, 1, 1, 12)
MOMENTS = pl.Series("when", [NOON, NOON + timedelta(days=9, hours=3)])


@pytest.mark.parametrize(
    ("capacity", "rows", "of_rows"),
    [
        ("50/day", 50, 300),
        ("50 per week", 50, 2100),
        ("1,200/month", 1200, 9131.25),
        (" 5 / Days ", 5, 300),
    ],
)
def test_days_are_counted_from_the_first_to_the_last(capacity, rows, of_rows):
    plan = plan_capacity(capacity, 3000, 2800, "when", MOMENTS)
    assert (plan.rows, plan.of_rows) == (rows, pytest.approx(of_rows))
    assert "3,000 rows are of 10 days by 'when'" in str(plan)
    assert plan.rule.of_rows == pytest.approx(of_rows)
    assert parse_threshold(str(plan.rule)) == plan.rule


def test_without_dates_the_table_is_one_batch_and_that_is_said():
    plan = plan_capacity(50, 3000, 2800, None, None)
    assert plan.rule == Capacity(50, 2800)
    assert "2,800 unlabelled rows are taken for one batch" in str(plan)
    assert "of one week; name the column" in str(plan_capacity("50/week", 3000, 2800, None, None))
    assert "every row is flagged" in str(plan_capacity("400/day", 3000, 2800, "when", MOMENTS))


@pytest.mark.parametrize("capacity", ["", "many", "0/day", "-5", "50/fortnight", "5.5/day", "5/"])
def test_capacities_that_mean_nothing_are_refused(capacity):
    with pytest.raises(InputError, match="50, 50/day, 50/week or 200/month"):
        fit_table(make_cards(50), LABELS, capacity=capacity)


def test_a_threshold_beside_a_capacity_is_refused():
    with pytest.raises(InputError, match="two ways to decide"):
        fit_table(make_cards(50), LABELS, capacity=5, threshold="top:5")


def test_a_capacity_is_a_share_of_any_number_of_rows():
    s = np.arange(1000.0)
    some = Calibration(np.empty(0), np.empty(0, dtype=int), s, len(s), 0.0)
    assert (s > Capacity(50, 500).of(some)).sum() == 100
    assert (s > Capacity(7).of(some)).sum() == 7
    assert (s > Capacity(50, 20).of(some)).all()
    for wrong in ("capacity:0", "capacity:-5:10", "capacity:5:0", "capacity:x"):
        with pytest.raises(InputError, match=r"rows|cannot be read"):
            parse_threshold(wrong)


# --- reports -----------------------------------------------------------------------------


def dated_cards():
    cards = make_cards(600)
    days = [NOON.date() + timedelta(days=i // 20) for i in range(600)]
    return cards.with_columns(pl.Series("when", days))


@pytest.fixture(scope="module")
def fit():
    return fit_table(dated_cards(), LABELS, id="card", time="when", capacity="2/day")


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
    for top in (*review.table, *review.tops, review.flagged):
        assert top.precision.value >= 0.999 * rate  # the ranking is better than none


def test_page_and_json_show_rows_looked_at(fit):
    page = render_page(describe_fit(fit))
    assert "Rows reviewed and anomalies found" in page
    assert "2 rows a day can be looked at: 600 rows are of 30 days" in page.replace("&#39;", "'")
    flagged = fit.report.review.flagged
    assert found_line(flagged)[1:] in page  # a sentence, with a capital letter
    assert "by labelled rows, which may be a random sample or chosen" in page


def test_a_later_table_is_judged_by_the_same_share(fit):
    new = dated_cards().drop("label").head(200)
    _, report = score_table(fit.model, new)
    assert report.rule == "capacity:2:20"
    assert report.expected.rows == report.flagged > 0
    in_parts = score_table(fit.model, [new.head(120), new.tail(80)])[1]
    assert in_parts.expected == report.expected
    data = describe_table(fit.model, make_header(fit.model, fit.report), new)
    assert data.review.rows == 200
    assert data.review.flagged.found == report.expected.found


def test_cost_rules_show_what_they_expect(fit):
    header = make_header(fit.model, fit.report)
    changed, report = change_threshold(fit.model, header, "cost:1:10")
    try:
        assert report.cost.false_alarms.value == pytest.approx(
            report.flagged - report.expected.found.value
        )
        page = render_page(
            describe_table(fit.model, replace(header, report=changed), dated_cards().drop("label"))
        )
        assert "false alarms (" in page
    finally:
        change_threshold(fit.model, header, fit.report.rule)


def test_normals_alone_say_that_other_tables_tell_the_rate():
    cards = make_cards().with_columns(pl.col("label").replace("fraud", ""))
    labels = replace(LABELS, anomaly=[])
    fit = fit_table(cards, labels, model="auto", settings={"budget": 1.0, "random_state": 0})
    assert fit.report.review is None
    assert 0.02 < fit.report.rate.value < 0.1
    page = " ".join(render_page(describe_fit(fit)).split())
    assert "by the rates of other tables alone, since these labels do not tell it" in page
    assert "no anomaly is labelled" in page


def test_the_command_line_takes_a_capacity(tmp_path):
    table, model = tmp_path / "cards.csv", tmp_path / "cards.riskad"
    dated_cards().write_csv(table)
    words = f"fit {table} --label label --normal ok --anomaly fraud --id card --model shallow"
    run = CliRunner().invoke(cli, [*words.split(), "-o", str(model), "--capacity", "30", "-v"])
    assert run.exit_code == 0, run.output
    said = " ".join(run.output.split())
    assert "of these 30 rows about" in said
    assert "of 30 random rows" in said
    assert "Review rows anomalies share of all precision by chance" in said
    assert "average precision" in said
    assert "times as many as by chance" in said
    assert load(model)[-1].threshold_ == Capacity(30, (dated_cards()["label"] == "").sum())
    wrong = CliRunner().invoke(cli, [*words.split(), "-o", "other.riskad", "--capacity", "2/hour"])
    assert wrong.exit_code == 2
    assert "--capacity '2/hour' must be a number of rows" in " ".join(wrong.output.split())


# --- sentences ---------------------------------------------------------------------------


def found_like(value, low, high, k=120, rate=0.05):
    labelled, scores, _ = draw("easy", 9)
    found = Review(scores, labelled, (rate, rate, rate)).at(k)
    count = Estimate(value, low, high, 100, 7)
    lift = Estimate(*(x / (k * rate) for x in (value, low, high)), 100, 7)
    return replace(found, found=count, lift=lift, by_chance=k * rate)


def test_expected_precision_is_said_beside_chance():
    assert found_line(found_like(35.2, 20.0, 49.5)) == (
        "of these 120 rows about 35 are anomalies (95% interval 20 to 50); of 120 random rows 6 "
        "would be"
    )


def test_what_may_be_chance_is_said():
    labels = LabelCounts(100, 7, 1000)
    vague = flagged_lines(found_like(8, 3, 20), 120, labels)
    assert "7 labelled anomalies are too few to tell whether this is better than chance" in vague[1]
    assert len(flagged_lines(found_like(35, 20, 50), 120, labels)) == 1
    assert "the table of rows reviewed shows" in flagged_lines(found_like(0, 0, 0), 0, labels)[0]


def test_likely_rows_beyond_the_threshold_are_said():
    labels = LabelCounts(100, 7, 1000)
    lines = flagged_lines(found_like(110, 90, 120), 120, labels, likely=150)
    assert "30 more rows are more likely an anomaly than not, but not flagged" in lines[1]
    [one, _] = flagged_lines(found_like(0, 0, 0), 0, labels, likely=1)
    assert one.startswith("1 row is more likely")
    assert len(flagged_lines(found_like(60, 40, 80), 120, labels, likely=70)) == 1


def test_rates_say_what_they_rest_on():
    assert rate_lines(RateEstimate(0.05, 0.02, 0.09, RANDOM)) == [
        "estimated anomaly rate 5.0% (95% interval 2.0% to 9.0%), by labelled rows as a random "
        "sample"
    ]
    for basis in (UNKNOWN, CHOSEN, ANOMALIES_ALONE):
        rate, advice = rate_lines(RateEstimate(0.05, 0.02, 0.09, basis))
        assert "rate of anomalies like the labelled ones 5.0%" in rate
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
    assert "about 2 are anomalies (95% interval 0 to 5)" in found_line(found_like(2, 0, 5))
    assert share_between(Estimate(0.97, 0.0, 1.0, 5, 5)) == "not known"
    [line] = rate_lines(RateEstimate(0.4, 0.0, 0.9, "given"))
    assert line.startswith("too few labels to tell which share")


def test_an_auc_that_may_be_chance_is_said_in_words():
    counts = LabelCounts(20, 6, 200)
    [line] = quality_lines(Auc(0.75, 0.41, 0.93, 20, 6), "", "held out", counts)
    assert line.startswith("too few labels to tell whether the order of the rows is better than")
    [line] = quality_lines(Auc(0.51, 0.48, 0.54, 2000, 600), "", "held out", counts)
    assert line.startswith("AUC 0.510 (95% interval 0.480 to 0.540)")
    assert auc_cell(Auc(0.75, 0.41, 0.93, 20, 6)) == "not known"


def test_rows_whose_anomalies_are_not_known_are_not_in_the_table():
    labelled, scores, _ = draw("easy", 9)
    sure = review_table(Review(scores, labelled, (0.05, 0.04, 0.06)), 20, "top:20")
    assert [cells[0] for cells in review_cells(sure)].count("flagged 20") == 1
    vague = review_table(Review(scores, labelled, (0.05, 0.0, 0.6)), 20, "top:20")
    assert review_cells(vague) == []
    assert top_lines(vague)[0].startswith("too few labels to tell how many of the highest scores")


def test_scores_of_many_rows_are_sampled_evenly(monkeypatch):
    monkeypatch.setattr("riskad.app.score._KEPT_SCORES", 100)
    totals = _Totals(None, 10, "anomaly_score")
    for start in range(0, 1000, 37):
        scores = np.arange(start, min(start + 37, 1000), dtype=float)
        results = pl.DataFrame({"anomaly_score": scores, "is_anomaly": scores > 990})
        totals.add(results.select(amount="anomaly_score"), results)
    assert np.array_equal(totals.scores, np.arange(0, 1000, 16))
    assert (totals.rows, totals.flagged, totals.worst["row"][0]) == (1000, 9, 1000)


def test_a_model_without_labels_of_both_kinds_has_no_review():
    rows = np.arange(10.0)
    none = Calibration(np.empty(0), np.empty(0, dtype=int), rows, 10, 0.0)
    assert review_rows(none, rows) is None


def test_average_precision_agrees_with_the_counts_beside_it():
    """It was 0.19 beside "1.0 times as many as by chance" at every height."""
    rng = np.random.default_rng(30)
    labelled = LabelledScores(rng.normal(0, 1, 50), rng.normal(0.3, 1, 6))
    table = rng.normal(size=800)
    flat = Review(table, labelled, (0.1, 0.02, 0.2), probabilities=np.full(800, 0.1))
    assert flat.at(50).lift.value == pytest.approx(1)
    assert flat.average_precision().value == pytest.approx(0.1)
    steep = Review(table, labelled, (0.1, 0.02, 0.2), probabilities=(table > 1.28) * 1.0)
    assert steep.average_precision().value > 0.95


def test_few_rows_do_not_hold_all_anomalies_of_a_table_that_may_have_none():
    """5 of 3,000 rows were said to hold 0 % to 100 % of all anomalies."""
    rng = np.random.default_rng(31)
    labelled = LabelledScores(rng.normal(0, 1, 50), rng.normal(0.5, 1, 7))
    review = Review(rng.normal(size=3000), labelled, (0.1, 0.0, 0.2))
    assert review.at(5).recall.high < 0.5
