"""The next model: as the last one was fitted, compared with it, and kept out if clearly worse."""

import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from support.commands import invoke, run
from support.loops import each

import riskad
from riskad.app.journal import Answer, Journal, hash_rows
from riskad.app.model_files import load, read_header, save
from riskad.app.refit import refit_spec, refit_table
from riskad.app.spec import FitSpec
from riskad.files.records import to_plain
from riskad.metrics.ranking import auc_difference

LATER = "2126-01-01T00:00:00+00:00"
EARLIER = "2026-01-01T00:00:00+00:00"
LABELLED = ["--label", "status", "--normal", "ok", "--anomaly", "fraud"]


def make_cards(n=400, seed=0, labelled=40):
    """Payments; `amount` tells fraud a little, `age` much more, and only some rows are labelled."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.15
    status = np.where(fraud, "fraud", "ok")
    status[labelled:] = ""
    table = pl.DataFrame(
        {
            "card": [f"C{i:04}" for i in range(n)],
            "amount": rng.normal(30, 10, n) + 12 * fraud,
            "age": rng.normal(50, 10, n) - 25 * fraud,
            "country": rng.choice(["FR", "DE"], n),
            "status": status,
        }
    )
    return table, fraud


def write_journal(path, table, labels, when=LATER, source="random"):
    """Answers of rows, counted from 0, with their labels."""
    columns = [name for name in table.columns if name != "status"]
    journal, held = Journal(path, "cards.csv", columns, table.height), hash_rows(table, columns)
    for row, label in labels.items():
        journal.add(Answer(row + 1, held[row], label, source, "ada", when))


def words(fraud, rows):
    return {row: "anomaly" if fraud[row] else "normal" for row in rows}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, which of its rows are fraud, and a model of its first labels."""
    folder = tmp_path_factory.mktemp("refit")
    table, fraud = make_cards()
    table.write_csv(folder / "cards.csv")
    table.drop("age").write_csv(folder / "without_age.csv")
    quick = ["--id", "card", "--model", "shallow", "--lam", "0.01"]
    options = [*quick, "--drop", "country", "--threshold", "rate"]
    run("fit", folder / "cards.csv", *LABELLED, *options, "-o", folder / "old.riskad")
    run("fit", folder / "without_age.csv", *LABELLED, *quick, "-o", folder / "weak.riskad")
    return folder, table, fraud


@pytest.fixture
def folder(made, tmp_path):
    """The same, where files can be written."""
    source, table, fraud = made
    for name in ("cards.csv", "without_age.csv", "old.riskad", "weak.riskad"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    return tmp_path, table, fraud


def refit(place, *options, model="old", output="new", code=0):
    files = (place / f"{model}.riskad", place / "cards.csv")
    return run("refit", *files, "-o", place / f"{output}.riskad", *options, code=code)


def refit_result(place, *options, **settings):
    return json.loads(refit(place, *options, "--json", **settings).stdout)


# --- the fit, asked again -----------------------------------------------------------------


def test_settings_columns_and_words_of_labels_are_those_of_the_old_model(folder):
    place, table, fraud = folder
    grown = table.with_columns(shop=pl.Series(np.arange(400) % 7))  # new, and not asked for
    grown.write_csv(place / "cards.csv")
    write_journal(place / "j.jsonl", table, words(fraud, range(40, 120)))
    told = refit_result(place, "--journal", place / "j.jsonl")
    old, new = load(place / "old.riskad"), load(place / "new.riskad")
    assert new[-1].get_params() == old[-1].get_params()
    assert new[0].kinds_ == old[0].kinds_ == {"amount": "number", "age": "number"}
    assert str(new[-1].threshold_) == str(old[-1].threshold_) == "rate"
    assert told["spec"]["id"] == "card"
    assert told["labels"] == {
        "normal": 120 - int(fraud[:120].sum()),
        "anomaly": int(fraud[:120].sum()),
        "unlabelled": 280,
    }
    assert told["before"]["labels"]["unlabelled"] == 360


def test_group_time_rate_and_a_forgotten_table_are_asked_for_again(tmp_path):
    table, _ = make_cards(300, labelled=150)
    days = pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 10, 27), eager=True)
    table = table.with_columns(
        day=days.head(300), customer=pl.Series(np.arange(300) % 60).cast(pl.String)
    )
    labels = FitSpec(label="status", normal=["ok"], anomaly=["fraud"])
    options = {"time": "day", "group": "customer", "anomaly_rate": 0.1, "forget_rows": True}
    settings = {"lam": 0.01}
    fit = riskad.fit_table(table, labels, model="shallow", settings=settings, id="card", **options)
    save(fit.model, tmp_path / "old.riskad", report=fit.report)
    header = read_header(tmp_path / "old.riskad")
    again = refit_table(load(tmp_path / "old.riskad"), header, table)
    assert again.report.over_time == fit.report.over_time != []
    repeated = ("time", "group", "anomaly_rate", "forget_rows", "label", "normal", "settings")
    for name in repeated:
        assert getattr(again.report.spec, name) == getattr(fit.report.spec, name)
    assert again.model[0].group == "customer"
    assert again.report.rate.value == 0.1
    np.testing.assert_array_equal(
        again.model[-1].score_samples(again.model[0].transform(table)),
        fit.model[-1].score_samples(fit.model[0].transform(table)),
    )


def test_a_number_stays_a_number(folder):
    """A table that writes every fourth amount as a word would make it a category."""
    place, table, _fraud = folder
    messy = table.with_columns(
        pl.when(pl.int_range(400) % 4 == 3).then(pl.lit("n/k")).otherwise("amount").alias("amount")
    )
    messy.write_csv(place / "cards.csv")
    said = refit(place, code=1).output
    assert "Column 'amount' holds numbers, but 'n/k' in row 4" in said


# --- the comparison -----------------------------------------------------------------------


@each(("n", "m", "shared"), [(20, 5, 0.9), (80, 20, 0.5), (300, 60, 0.9)])
@each("shifts", [(1.5, 1.5), (1.0, 2.0)])
def test_the_interval_of_a_difference_holds(n, m, shared, shifts):
    rng, y = np.random.default_rng(0), np.repeat([1, -1], [n, m])
    true = np.subtract(*norm.cdf(np.array(shifts) / 2**0.5))
    held, wrong = 0, 0
    for _ in range(200):
        common = shared**0.5 * rng.normal(size=n + m)
        own = (1 - shared) ** 0.5 * rng.normal(size=(2, n + m))
        first, second = (common + own[k] + shifts[k] * (y == -1) for k in (0, 1))
        found, *_ = auc_difference(y, first, second)
        held += found.low <= true <= found.high
        wrong += found.verdict == ("worse" if shifts[0] == shifts[1] else "better")
    assert held >= 0.92 * 200  # 95 % less three standard errors of such a share
    assert wrong <= 0.07 * 200


def test_pairing_narrows_the_interval():
    rng, y = np.random.default_rng(1), np.repeat([1, -1], [80, 20])
    common = rng.normal(size=100) + 1.5 * (y == -1)
    first, second = common + 0.2 * rng.normal(size=100), common + 0.2 * rng.normal(size=100)
    paired, ours, _theirs = auc_difference(y, first, second)
    assert paired.high - paired.low < 0.75 * (ours.high - ours.low)
    assert -1 <= paired.low <= paired.value <= paired.high <= 1
    perfect, *_ = auc_difference(y, -y, -y)
    assert perfect.low < 0 < perfect.high  # a perfect ranking of 20 rows proves little


def test_a_better_model_takes_over_and_the_file_says_after_which(folder):
    place, table, fraud = folder
    write_journal(place / "j.jsonl", table, words(fraud, range(40, 300)))
    result = refit(place, "--journal", place / "j.jsonl", "--report", place / "refit.html")
    assert "Verdict" in result.output
    assert "takes over" in result.output
    found = read_header(place / "new.riskad").report.before.comparison
    assert found.difference.n_normal + found.difference.n_anomaly == 260
    assert found.drawn_at_random == 260
    html = (place / "refit.html").read_text()
    assert "Compared with the model before" in html
    assert f"{found.after.anomalies_flagged} of {int(fraud[40:300].sum())}" in html
    again = run("report", place / "new.riskad", place / "cards.csv", "-o", place / "page.json")
    assert "Wrote" in again.output
    before = json.loads((place / "page.json").read_text())["before"]
    assert before["comparison"] == to_plain(found)


def test_the_new_model_is_judged_by_fits_that_have_not_seen_the_row(folder):
    """Answers that have nothing to do with the rows: nothing that learned them can rank them."""
    place, table, _fraud = folder
    guesses = np.random.default_rng(3).random(400) < 0.3
    write_journal(place / "j.jsonl", table, words(guesses, range(40, 240)))
    files = (place / "old.riskad", place / "cards.csv", "--journal", place / "j.jsonl")
    options = ("-o", place / "new.riskad", "--even-if-worse", "--json")
    result = invoke("refit", *files, *options)  # by chance it may be clearly worse, or not
    found = json.loads(result.stdout)["before"]["comparison"]
    assert abs(found["after"]["auc"]["value"] - 0.5) < 0.15
    assert abs(found["before"]["auc"]["value"] - 0.5) < 0.15


def flipped(fraud, rows):
    return {row: "normal" if fraud[row] else "anomaly" for row in rows}


def test_a_clearly_worse_model_does_not_take_over(folder):
    """The old labels were turned round by mistake, and what is learned from them is no good."""
    place, table, fraud = folder
    wrong = pl.Series("status", np.where(fraud, "ok", "fraud"))
    status = pl.when(pl.int_range(400) < 250).then(wrong).otherwise(pl.lit("")).alias("status")
    table.with_columns(status).write_csv(place / "cards.csv")
    write_journal(place / "j.jsonl", table, words(fraud, range(250, 330)), source="suggested")
    bytes_before = (place / "old.riskad").read_bytes()
    journal = ("--journal", place / "j.jsonl")
    told = refit_result(place, *journal, "--force", output="old", code=3)
    before = told["before"]
    assert (before["alarm"], before["takes_over"], told["written"]) == (True, False, {})
    assert before["comparison"]["difference"]["high"] < 0
    assert "the old one stays" in before["verdict"]
    assert any("were not drawn at random" in line for line in told["warnings"])
    assert (place / "old.riskad").read_bytes() == bytes_before
    result = refit(place, *journal, "--even-if-worse", code=3)
    assert "clearly worse; it takes over" in result.output
    assert read_header(place / "new.riskad").report.before.verdict.startswith("the new model")


def test_a_model_is_replaced_in_place_in_one_step(folder):
    place, table, fraud = folder
    write_journal(place / "j.jsonl", table, words(fraud, range(40, 120)))
    journal = ("--journal", place / "j.jsonl")
    assert "exists already" in refit(place, *journal, output="old", code=1).output
    refit(place, *journal, "--force", output="old")
    assert read_header(place / "old.riskad").report.before is not None
    again = refit(place, *journal, output="next")  # the answers are older now
    assert "takes over" in again.output


def test_labels_that_the_old_model_may_have_learned_do_not_count(folder):
    place, table, fraud = folder
    write_journal(place / "j.jsonl", table, words(fraud, range(40, 120)), when=EARLIER)
    told = refit_result(place, "--journal", place / "j.jsonl")["before"]
    assert told["comparison"] is None
    assert "there are 0 normal and 0 anomalies" in told["verdict"]
    result = refit(place, "--force")
    assert "Give the journal with the answers since then" in " ".join(result.output.split())


def test_a_label_that_was_changed_later_is_no_new_one(folder):
    """The old model may have learned what was said first."""
    place, table, fraud = folder
    write_journal(place / "j.jsonl", table, flipped(fraud, range(40, 60)), when=EARLIER)
    write_journal(place / "j.jsonl", table, words(fraud, range(40, 90)), when=LATER)
    found = refit_result(place, "--journal", place / "j.jsonl")["before"]["comparison"]
    assert found["difference"]["n_normal"] + found["difference"]["n_anomaly"] == 30


def test_another_table_judges_models_that_read_other_columns(folder):
    place, _table, _fraud = folder
    fresh, kinds = make_cards(300, seed=9, labelled=300)
    fresh.write_csv(place / "fresh.csv")
    told = refit_result(place, "--held-out", place / "fresh.csv", model="weak")
    found = told["before"]["comparison"]
    assert found["rests_on"] == "labels of a table that neither model has learned from"
    assert found["difference"]["n_anomaly"] == int(kinds.sum())
    assert "age" not in load(place / "new.riskad")[0].kinds_


# --- mistakes -----------------------------------------------------------------------------


def test_mistakes_are_sentences(folder):
    place, _table, _ = folder
    model, data, out = place / "old.riskad", place / "cards.csv", ["-o", place / "new.riskad"]
    lost = run("refit", model, place / "without_age.csv", *out, code=1).output
    assert "- missing: 'age'" in lost
    save(load(model), place / "bare.riskad")
    assert "saved from Python" in run("refit", place / "bare.riskad", data, *out, code=1).output
    assert "no column 'kind'" in run("refit", model, data, "-l", "kind", *out, code=1).output
    assert not (place / "new.riskad").exists()


def test_a_held_out_table_is_not_passed_over_for_want_of_a_label_column(folder):
    place, table, _ = folder
    bare, model = place / "bare.csv", place / "outliers.riskad"
    table.drop("status").write_csv(bare)
    run("fit", bare, "--id", "card", "-o", model)
    held_out = ["--held-out", place / "cards.csv", "-o", place / "new.riskad"]
    refused = run("refit", model, bare, *held_out, code=1).output
    assert "fitted without a label column: name it with --label" in refused
    assert not (place / "new.riskad").exists()


def test_words_that_are_not_given_are_those_of_the_fit(made):
    header = read_header(made[0] / "old.riskad")
    both = refit_spec(header, label="", normal=["normal"], unlabelled=["?"])
    assert (both.label, both.normal, both.anomaly) == ("status", ("normal",), ("fraud",))
    assert (both.unlabelled, both.others_unlabelled) == (("?",), False)
    other = refit_spec(header, label="checked", normal=["yes"])
    assert (other.label, other.normal, other.anomaly) == ("checked", ("yes",), ())


# --- the same facts everywhere ------------------------------------------------------------


def test_inspect_card_report_and_refit_show_the_facts_of_the_fit(folder):
    place, _table, _fraud = folder
    model, data = place / "old.riskad", place / "cards.csv"
    fitted = read_header(model).report
    shown = json.loads(run("inspect", model, "--card", place / "card.md", "--json").stdout)
    run("report", model, data, "-o", place / "page.json")
    page = json.loads((place / "page.json").read_text())
    before = refit_result(place)["before"]
    facts = {name: to_plain(getattr(fitted, name)) for name in ("labels", "auc", "rate", "rule")}
    assert all(facts.values())
    for other in (shown, page, before):
        assert {name: other[name] for name in facts} == facts
    assert shown["spec"] == to_plain(fitted.spec)
    assert shown["flagged"] == before["flagged"] == fitted.flagged
    card = (place / "card.md").read_text()
    text = run("inspect", model).stdout
    for sentence in (f"AUC {fitted.auc.value:.3f}", str(fitted.labels), f"{fitted.rate.value:.1%}"):
        assert sentence in card
        assert sentence in text
