import json
import warnings
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.cards import draw_cards
from support.loops import each

from riskad import AutoRAD, parse_labels
from riskad.app import explain as explaining
from riskad.app import fit as fitting
from riskad.app.demo import make_tables
from riskad.app.describe import describe_model
from riskad.app.explain import explain_table
from riskad.app.model_files import load, read_header, save
from riskad.app.reasons import Reasons
from riskad.app.report.documents import to_json
from riskad.app.score import score_table
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.decisions.anomaly_rate import PRIOR_ALONE
from riskad.detectors.registry import DETECTORS
from riskad.detectors.shallow import ShallowRAD

# Linear and fast; the other models have their own tests.


def fit_table(table, labels, **options):
    """A linear model at the lambda that cross-validation chooses on these tables, without it."""
    settings = {"lam": "tight"} | options.pop("settings", {})
    return fitting.fit_table(table, labels, model="shallow", settings=settings, **options)


LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def make_cards(n=400, seed=0, labelled=0.2):
    """Cards with amounts as text, and which of them are fraud."""
    cards, fraud = draw_cards(n, seed, labelled)
    return cards.drop("age").cast({"amount": pl.String}), fraud


@pytest.fixture(scope="module")
def cards():
    return make_cards()


@pytest.fixture(scope="module")
def fit(cards):
    return fit_table(cards[0], LABELS, id="card", source="cards.csv", settings={"lam": "cv"})


# --- fit ---------------------------------------------------------------------------------


def test_columns_are_explained_while_there_is_time(cards, monkeypatch):
    settings = {"feature_map": "nystroem", "lam": 0.01}
    whole = fit_table(cards[0], LABELS, id="card", settings=settings).report
    assert whole.effects_of == "the 20 most suspicious rows"
    monkeypatch.setattr(explaining, "_SECONDS", 0.0)
    fit = fit_table(cards[0], LABELS, id="card", settings=settings)
    said = "1 of the 20 most suspicious rows, for which the time sufficed"
    assert fit.report.effects_of == said
    assert fit.report.effects
    _, report = explain_table(fit.model, cards[0], rows=3)
    assert report.importance_rows == 1
    assert len(report.explained) == 3


def test_the_report_counts_rightly(fit, cards):
    report, table = fit.report, cards[0]
    assert report.rows == 400
    assert report.labels.normal == (table["label"] == "ok").sum()
    assert report.labels.anomaly == (table["label"] == "fraud").sum()
    assert report.labels.unlabelled == (table["label"] == "").sum()
    assert report.columns == {"amount": "number", "country": "category"}
    assert report.fitted["converged"]
    assert report.fitted["lambda"] == fit.model[-1].lambda_ > 0
    copies, leak = report.warnings
    repeated = 400 - table.select("amount", "country").n_unique()  # amounts to the cent
    assert copies.startswith(f"{repeated} rows are copies of an earlier one")
    assert f"amount: alone it tells the {report.labels.anomaly} labelled anomalies" in leak


def test_the_report_warns_of_what_speaks_against_it(cards):
    table = cards[0].with_columns(currency=pl.lit("EUR"))
    fraud = (table["label"] == "fraud").cum_sum()
    label = pl.when((pl.col("label") == "fraud") & (fraud > 2)).then(pl.lit("")).otherwise("label")
    few = table.with_columns(label=label)
    report = fit_table(few, LABELS, id="card", settings={"lam": 1e-4}).report
    warned = "\n".join(report.warnings)
    assert report.fitted["risk_parts"]["total"] < 0
    assert "columns that hold the same value in every row were left out: 'currency'" in warned
    assert "2 labelled anomalies are few" in warned
    assert "the estimated risk is negative" in warned
    assert "unlike" not in warned


def test_labelled_rows_that_are_unlike_the_unlabelled_rows_are_noticed():
    table, fraud = make_cards(1500, labelled=0)
    amount = table["amount"].cast(pl.Float64).to_numpy()
    known = np.where(fraud, np.arange(1500) % 3 == 0, amount < 20)  # only small payments are normal
    label = np.where(known, np.where(fraud, "fraud", "ok"), "")
    report = fit_table(table.with_columns(label=pl.Series(label)), LABELS, id="card").report
    unlike, beyond = report.warnings[-2:]
    assert unlike.startswith("labelled rows score unlike a random sample of the table")
    assert "weighted to resemble the unlabelled ones, they would have an AUC of" in unlike
    assert "label_sampling='random'" in unlike
    assert "% of the unlabelled rows resemble hardly any labelled row" in beyond


def assert_finds_the_fraud(fit, cards):
    table, fraud = cards
    hidden = fraud & (table["label"] == "").to_numpy()
    first = fit.ranked.head(int(hidden.sum()))["card"].to_list()
    assert np.mean([fraud[int(card[1:])] for card in first]) > 0.9


def test_the_ranking_finds_the_fraud(fit, cards):
    table = cards[0]
    assert_finds_the_fraud(fit, cards)
    assert fit.ranked["anomaly_score"].is_sorted(descending=True)
    added = ["anomaly_score", "is_anomaly", "anomaly_probability"]
    assert fit.ranked.columns == ["row", *added, *table.columns]
    assert fit.ranked["label"].unique().to_list() == [""]
    top = fit.report.top
    assert [s.id for s in top] == fit.ranked["card"].head(10).to_list()
    assert [s.row for s in top] == [int(s.id[1:]) + 1 for s in top]
    assert fit.report.flagged == fit.ranked["is_anomaly"].sum()
    scored = score_table(fit.model, table)[0].filter(pl.col("label") == "")
    same = ["anomaly_score", "is_anomaly"]
    assert scored.select(same).equals(fit.ranked.sort("row").select(same))


@each("offset", [-0.3, 0.0, 0.3])
def test_flags_are_those_of_predict_wherever_the_threshold_is(cards, offset):
    fit = fit_table(cards[0], LABELS, id="card")
    scores = fit.model.score_samples(cards[0])
    fit.model[-1].offset_ = offset + float(np.sort(scores)[200])  # with 0, exactly a row's
    scored, report = score_table(fit.model, cards[0])
    expected = fit.model.predict(cards[0]) == -1
    np.testing.assert_array_equal(scored["is_anomaly"].to_numpy(), expected)
    np.testing.assert_array_equal(scored["anomaly_score"].to_numpy() > report.threshold, expected)


def test_the_auc_is_out_of_fold():
    """On pure noise the AUC of the fit itself is high, that of unseen rows is near one half."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame(rng.normal(size=(120, 60)), schema=[f"x{i}" for i in range(60)])
    table = table.with_columns(label=pl.Series(["ok"] * 30 + ["fraud"] * 30 + [""] * 60))
    auc = fit_table(table, LABELS, settings={"lam": 1e-4}).report.auc
    assert auc.low < 0.5 < auc.high
    assert (auc.n_normal, auc.n_anomaly) == (30, 30)


def test_no_auc_where_a_part_of_the_rows_cannot_stand_alone():
    """Without one labelled row of the three that differ, the only column is constant."""
    table = pl.DataFrame({"x": ["1"] * 9 + ["2"], "label": ["ok"] * 3 + [""] * 4 + ["fraud"] * 3})
    report = fit_table(table, LABELS).report
    assert report.auc is None
    assert "cannot be fitted by itself (No column is left" in report.why_no_auc


@pytest.mark.slow
@each("model", DETECTORS)
def test_number_columns_that_are_mostly_blank_are_fitted(model):
    """A usual blank is no text: a delay that is there only for late flights is still a number."""
    if DETECTORS[model].library:
        pytest.importorskip(DETECTORS[model].library)
    table, fraud = make_cards(120)
    rng = np.random.default_rng(1)
    filled = fraud | (rng.random(120) < 0.2)
    delay = np.where(filled, rng.normal(size=120).round(1).astype(str), None)
    delays = pl.Series("delay", delay.tolist(), dtype=pl.String)
    table = table.with_columns(delays).select("amount", "delay", "country", "label")
    settings = {"auto": {"budget": 0.1}, "deep": {"max_iter": 20}}.get(model, {})
    report = fitting.fit_table(table, LABELS, model=model, settings=settings).report
    assert report.columns["delay"] == "number"
    effects = {effect.column: effect.suspicious for effect in report.effects}
    assert effects.get("delay") in (None, "high", "low", "not blank", "(blank)")


@each(
    ("values", "adds", "usual", "said"),
    [
        ([1.0, 2.0, 3.0, 4.0], [-1, -0.5, 0.5, 1], 2.5, "high"),
        ([1.0, 2.0, 3.0, 4.0], [1, 0.5, -0.5, -1], 2.5, "low"),
        ([1.0, 2.0, np.nan, np.nan], [0.1, 0, 2, 2], 1.5, "(blank)"),
        ([1.0, 2.0, 3.0, 4.0, np.nan], [-1, -0.5, 0.5, 1, 0], None, "high"),
        ([1.0, 2.0, 3.0, 4.0, None], [1, 0.5, -0.5, -1, 0], None, "low"),
        ([1.0, 2.0, 3.0, 4.0, None], [1, 1, 1, 1, 0], None, "not blank"),
        ([1.0, 2.0, 3.0, 4.0, None], [-1, -1, -1, -1, 0], None, "(blank)"),
        ([None, None], [0, 0], None, "(blank)"),
        (["a", "b", None], [0, 1, 2], "(blank)", "(blank)"),
        (["a", "b", None], [0, 3, 2], "a", "b"),
    ],
)
def test_what_is_suspicious_in_a_column(values, adds, usual, said):
    values = np.array(values)[:, None]
    adds = np.array(adds, dtype=float)[:, None]
    found = Reasons(("x",), values, (usual,), adds, np.zeros_like(adds), 0.0, adds[:, 0])
    assert explaining.suspicious_value(found, 0) == said


def test_warnings_are_collected_not_shouted(cards):
    settings = {"max_iter": 1, "loss": "logistic", "lam": 1e-6}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = fit_table(cards[0], LABELS, id="card", settings=settings).report
    assert not report.fitted["converged"]
    assert any("max_iter" in text for text in report.warnings)


@each(
    ("values", "said"),
    [
        (["Betrug", ""], "an anomaly: anomaly='Betrug'; if it is normal: normal='Betrug'"),
        (["Betrug", "Betrug", "geprüft"], "normal=..., anomaly=..."),
        (["OK", "fraud", "stolen"], "For example: normal='OK', anomaly=..."),
        (["In Ordnung", "Betrug"], "For example: normal='In Ordnung', anomaly='Betrug'"),
        (["ok", "good", "fraud"], "normal=..., anomaly=..."),
    ],
)
def test_only_a_word_that_is_plainly_normal_is_called_normal(values, said):
    """The hint was "For example: normal='Betrug'", which would teach that fraud is normal."""
    table = pl.DataFrame({"amount": range(len(values)), "label": values})
    with pytest.raises(InputError) as error:
        fit_table(table, FitSpec(label="label"))
    assert str(error.value).endswith(said)


def test_other_warnings_pass(cards, monkeypatch):
    def noisy(*args, **kwargs):
        warnings.warn("elsewhere", UserWarning, stacklevel=1)
        return original(*args, **kwargs)

    original = ShallowRAD.fit
    monkeypatch.setattr(ShallowRAD, "fit", noisy)
    with pytest.warns(UserWarning, match="elsewhere"):
        fit_table(cards[0], LABELS, id="card")


@pytest.mark.parametrize(
    ("change", "labels", "options", "message"),
    [
        ({"label": ""}, FitSpec(label="label"), {}, "blank in every row"),
        ({"label": "?"}, FitSpec(label="label", normal=["?"]), {}, "needs a labelled anomaly"),
        ({}, LABELS, {"drop": ["x"]}, "no column 'x'"),
        ({}, LABELS, {"drop": ["card", "amount", "country"]}, "nothing to learn from"),
        ({"amount": "1", "country": "FR"}, LABELS, {"id": "card"}, "No column is left"),
    ],
)
def test_mistakes(cards, change, labels, options, message):
    table = cards[0].with_columns(**{name: pl.lit(value) for name, value in change.items()})
    with pytest.raises(InputError, match=message):
        fit_table(table, labels, **options)


@pytest.mark.parametrize("unlabelled", [False, True])
def test_another_model_is_named_only_where_it_does_without(cards, unlabelled):
    words = ["", "ok"] if unlabelled else ["ok", "ok"]
    table = cards[0].with_columns(label=pl.Series(words * (cards[0].height // 2)))
    with pytest.raises(InputError, match="needs a labelled anomaly") as caught:
        fit_table(table, FitSpec(label="label", normal=["ok"], model="shallow"), id="card")
    assert ("choose model='auto', which does without" in str(caught.value)) == unlabelled


# --- AutoRAD, the default ----------------------------------------------------------------


@pytest.fixture(scope="module")
def auto_fit(cards):
    said = []
    return fitting.fit_table(cards[0], LABELS, id="card", progress=said.append), said


def test_auto_decides_by_what_it_held_out_itself(cards, auto_fit):
    fit, said = auto_fit
    report, detector = fit.report, fit.model[-1]
    assert report.model == "AutoRAD"
    assert report.auc == detector.auc_
    assert report.rate == detector.calibration_.rate
    assert report.rule == "likely"
    assert report.fitted["leaderboard"] == detector.leaderboard_
    assert report.fitted["rows"] == 400
    assert not {"lambda", "weight_norm", "converged"} & set(report.fitted)
    assert any(each.startswith("Fitting kernel") for each in said)  # or how long it takes, too
    assert detector.callback is report.settings["callback"] is None
    assert detector.calibration_.n_unlabelled == report.labels.unlabelled
    effects = [(effect.column, effect.suspicious) for effect in report.effects]
    assert effects == [("amount", "high"), ("country", "XX")]
    assert report.effects_of == "the 20 most suspicious rows"
    assert_finds_the_fraud(fit, cards)


def test_auto_is_saved_without_its_callback(auto_fit, cards, tmp_path):
    model = auto_fit[0].model
    model[-1].set_params(callback=lambda sentence: None)
    save(model, tmp_path / "model.riskad", report=auto_fit[0].report)
    again = load(tmp_path / "model.riskad")
    assert again[-1].callback is None
    np.testing.assert_array_equal(again.score_samples(cards[0]), model.score_samples(cards[0]))


def test_networks_take_no_sparse_tables():
    pytest.importorskip("torch")
    shop = [f"S{i}" for i in np.random.default_rng(0).integers(40, size=2000)]
    label = ["ok"] * 50 + ["fraud"] * 50 + [""] * 1900
    table = pl.DataFrame({"shop": shop, "label": label})
    with pytest.raises(InputError, match="mostly zeros, which networks do not take"):
        fitting.fit_table(table, LABELS, model="deep")


# --- score -------------------------------------------------------------------------------


def test_scoring_keeps_rows_and_columns(fit):
    new, _ = make_cards(50, seed=1)
    new = new.drop("label").with_columns(note=pl.lit("x"), row=pl.lit("kept"))
    scored, report = score_table(fit.model, new, id="card", top=3)
    added = ["anomaly_score", "is_anomaly", "anomaly_probability"]
    assert scored.drop(added).equals(new)
    assert scored.columns[-3:] == added == report.added
    assert report.rows == 50
    assert report.flagged == scored["is_anomaly"].sum()
    best = scored.sort("anomaly_score", descending=True).head(3)
    assert [suspect.id for suspect in report.top] == best["card"].to_list()


def test_a_model_that_reads_no_table():
    for model in (StandardScaler().fit(np.eye(2)), make_pipeline(StandardScaler()).fit(np.eye(2))):
        with pytest.raises(InputError, match="not made by riskad"):
            score_table(model, pl.DataFrame({"a": [1.0]}))


def test_the_result_of_a_fit_is_not_its_model(fit, cards):
    with pytest.raises(InputError, match=r"result of riskad\.fit_table.*give fit\.model"):
        score_table(fit, cards[0])


def test_tables_and_specifications_of_other_types_are_refused(cards):
    with pytest.raises(InputError, match=r"needs named columns.*got ndarray"):
        fit_table(np.eye(3), LABELS)
    with pytest.raises(InputError, match=r"FitSpec, got dict.*fit_table\(table, \*\*entries\)"):
        fit_table(cards[0], {"label": "label"})
    with pytest.raises(InputError, match=r"seed='a' must be a whole number from 0 to"):
        FitSpec(seed="a")


# --- reasons -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[None, "nystroem"])
def either_fit(request, cards):
    """A linear model and one with a feature map."""
    settings = {"feature_map": request.param, "lam": 0.05}
    return fit_table(cards[0], LABELS, id="card", settings=settings)


def test_reasons_add_up_to_the_scores(either_fit):
    new, _ = make_cards(60, seed=1)
    scored, _ = score_table(either_fit.model, new)
    table, report = explain_table(either_fit.model, new, id="card", rows=7, reasons=1)
    worst = scored.sort("anomaly_score", descending=True, maintain_order=True).head(7)
    assert [explained.id for explained in report.explained] == worst["card"].to_list()
    for explained in report.explained:
        total = report.usual_score + explained.others + sum(r.adds for r in explained.reasons)
        assert total == pytest.approx(explained.anomaly_score, abs=1e-8)
        own = table.filter(row=explained.row)
        assert set(own["column"]) == {"amount", "country"}
        assert report.usual_score + own["adds"].sum() == pytest.approx(own["anomaly_score"][0])
    assert table["anomaly_score"].unique(maintain_order=True).to_list() == pytest.approx(
        worst["anomaly_score"].to_list()
    )
    assert set(report.importance) == {"amount", "country"}
    assert report.importance_rows == 60


def test_scoring_with_reasons(either_fit):
    new, _ = make_cards(60, seed=1)
    plain, _ = score_table(either_fit.model, new)
    scored, _ = score_table(either_fit.model, new, reasons=3)
    assert scored.columns == [*plain.columns, "reason_1", "reason_2", "reason_3"]
    assert scored.select(plain.columns).equals(plain)
    flagged = scored.filter("is_anomaly")
    assert 0 < flagged.height < 60
    assert flagged["reason_1"].str.contains(r"^(amount|country) \S+ \(usual \S+\) adds ").all()
    assert scored.filter(~pl.col("is_anomaly"))["reason_1"].null_count() == 60 - flagged.height
    assert scored["reason_3"].null_count() == 60  # there are two columns


def test_scored_tables_are_explained_and_fitted_again_but_not_scored(fit, cards):
    scored, _ = score_table(fit.model, cards[0], reasons=2)
    assert explain_table(fit.model, scored)[1] == explain_table(fit.model, cards[0])[1]
    with pytest.raises(InputError, match="'anomaly_probability', 'reason_1'"):
        score_table(fit.model, scored, reasons=1)
    scored, _ = score_table(fit.model, cards[0], reasons=2, fdr=0.1)
    again = fit_table(scored, LABELS, id="card").report
    assert again.columns == {"amount": "number", "country": "category"}
    assert "anomaly_probability, p_value, reason_1, reason_2" in again.preparation[-1]


def test_effects_are_the_importance_of_columns(fit, cards):
    first, second = fit.report.effects
    assert (first.column, first.suspicious) == ("amount", "high")
    assert (second.column, second.suspicious) == ("country", "XX")
    amount = cards[0]["amount"].cast(pl.Float64)
    usual = fit.model[0].usual_["amount"]
    expected = abs(fit.model[1].coef_[0]) * (amount - usual).abs().mean()
    assert first.effect == pytest.approx(expected)


# --- on disk -----------------------------------------------------------------------------


def test_notes_hold_no_rows(fit, tmp_path):
    save(fit.model, tmp_path / "model.riskad", report=fit.report)
    header = read_header(tmp_path / "model.riskad")
    assert "C1" not in json.dumps(header.notes)
    report = describe_model(load(tmp_path / "model.riskad"), header)
    assert report.fitted["converged"] is True
    assert report.source == "cards.csv"
    assert report.preparation == fit.report.preparation
    assert json.loads(to_json(report))["model"] == "ShallowRAD"


# --- the demonstration -------------------------------------------------------------------


def test_the_demo_holds_truth_back():
    table, new, truth = make_tables(seed=5)
    assert set(table.columns) - set(new.columns) == {"label"}
    assert "truth" not in table.columns
    assert set(table["sample"]).isdisjoint(new["sample"])
    assert (table.height, new.height, len(truth)) == (250, 167, 167)
    assert table["label"].value_counts().sort("count")["count"].to_list() == [6, 20, 224]


# --- decisions ---------------------------------------------------------------------------


def test_without_labelled_anomalies_there_are_p_values_but_no_probabilities(cards):
    table = cards[0].with_columns(label=pl.col("label").replace({"fraud": ""}))
    labels = FitSpec(label="label", normal=["ok"])
    options = {"id": "card", "settings": {"risk": "pu", "lam": 0.1}}
    fit = fit_table(table, labels, **options)
    assert fit.report.rate.assumption == PRIOR_ALONE
    assert "anomaly_probability" not in fit.ranked.columns
    scored, _ = score_table(fit.model, table, fdr=0.2)
    assert scored["p_value"].min() > 0
    with pytest.raises(InputError, match="held out, and there are 0"):
        fit_table(table, labels, threshold="f1", **options)


def test_columns_of_a_table_may_be_called_as_what_is_not_added_and_as_nothing_else(cards):
    table = cards[0].with_columns(p_value=cards[0]["amount"].cast(pl.Float64) / 100)
    fit = fit_table(table, LABELS, id="card")
    assert fit.report.columns["p_value"] == "number"
    scored, _ = score_table(fit.model, table)
    assert scored["p_value"].equals(table["p_value"])
    with pytest.raises(InputError, match="already has a column 'p_value'"):
        score_table(fit.model, table, fdr=0.1)
    table = cards[0].with_columns(anomaly_probability=pl.col("amount"))
    with pytest.raises(InputError, match="already has a column 'anomaly_probability'"):
        fit_table(table, LABELS)
    _, report = explain_table(fit_table(cards[0], LABELS).model, table, rows=2)
    assert len(report.explained) == 2


@each("words", [(False, True), ("FALSE", "TRUE"), ("false", "true")])
def test_reasons_say_true_and_false_as_the_table_does(words):
    table, fraud = make_cards(200)
    online = pl.Series([words[int(f)] for f in fraud])
    table = table.with_columns(online=online).select("online", "amount", "label")
    fit = fit_table(table, LABELS)
    effects = {effect.column: effect.suspicious for effect in fit.report.effects}
    assert effects["online"] == str(words[1])
    _, report = explain_table(fit.model, table, rows=3)
    reason = next(r for r in report.explained[0].reasons if r.column == "online")
    assert (reason.value, reason.usual) == (str(words[1]), str(words[0]))
    assert str(reason).startswith(f"online {words[1]} (usual {words[0]})")


@each(
    "of", [lambda i: timedelta(seconds=i), lambda i: bytes([i]), lambda i: [i], lambda i: {"a": i}]
)
def test_rows_may_be_named_by_values_of_any_type(of):
    table, _ = make_cards(200)
    values = [of(i) for i in range(200)]
    table = table.with_columns(name=pl.Series(values)).drop("card")
    fit = fit_table(table, LABELS, id="name")
    first = fit.report.top[0]
    assert first.id == str(values[first.row - 1])


def test_copies_of_a_labelled_row_do_not_make_another_model(cards):
    """Rows of a fit come in groups of copies; those are no groups of anomalies that count once."""
    table = cards[0].select("amount", "label")
    fraud = table.with_row_index("at").filter(pl.col("label") == "fraud")["at"][0]
    table = pl.concat([table, table[[fraud, fraud]]])
    fit = fitting.fit_table(table, LABELS, settings={"budget": 1})
    preparer, detector = fit.model[0], fit.model[1]
    codes = parse_labels(table["label"], normal="ok", anomaly="fraud")
    alone = AutoRAD(budget=1).fit(preparer.transform(table), codes)
    rows = preparer.transform(table)
    np.testing.assert_array_equal(alone.anomaly_score(rows), detector.anomaly_score(rows))


# --- training rows in models ---------------------------------------------------------------


@pytest.mark.parametrize("model", ["auto", "pretrained", "shallow", "forest"])
def test_models_that_forget_hold_no_row_and_others_do_not_promise_it(cards, model, tmp_path):
    if model in ("auto", "pretrained"):
        with pytest.raises(InputError, match=r"cannot do without these.*model='boosted'"):
            fitting.fit_table(cards[0], LABELS, model=model, forget_rows=True)
        return
    fit = fitting.fit_table(cards[0], LABELS, id="card", model=model, forget_rows=True)
    save(fit.model, tmp_path / "m.riskad", report=fit.report)
    header = read_header(tmp_path / "m.riskad")
    assert describe_model(load(tmp_path / "m.riskad"), header).kept_rows == 0
