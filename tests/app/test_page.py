"""The report as a page and as JSON: what it says, and that it is escaped and written whole."""

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import jsonschema
import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import Pipeline
from support.commands import run
from support.loops import each
from support.page import HOSTILE, LABELS, fit_table, make_cards, with_words

from riskad import AutoRAD
from riskad.app.describe import describe_fit, describe_table
from riskad.app.explain import explain_table
from riskad.app.model_files import load, make_header, read_header, save
from riskad.app.report.blocks import Lines, Note, Section, Table
from riskad.app.report.documents import SCHEMA, render_page, report_schema, to_json, write_report
from riskad.app.report.sections import SECTIONS, add_section
from riskad.app.report.wording import quality_lines
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts
from riskad.detectors.shallow import ShallowRAD
from riskad.metrics.ranking import (
    Auc,
    auc_with_interval,
    precision_recall_with_interval,
    roc_with_interval,
)
from riskad.tables.preparation import TablePreparer


@pytest.fixture(scope="module")
def fit():
    return fit_table(make_cards(), LABELS, id="card", source="cards.csv", settings={"lam": "cv"})


@pytest.fixture(scope="module")
def findings(fit):
    return describe_fit(fit, command="riskad fit cards.csv")


@pytest.fixture(scope="module")
def few():
    """A fit with too few anomalies for curves, a rate or probabilities."""
    cards = make_cards()
    is_later = (cards["label"] == "fraud") & ((cards["label"] == "fraud").cum_sum() > 1)
    label = pl.when(is_later).then(pl.lit("")).otherwise("label")
    return fit_table(cards.with_columns(label=label), LABELS, id="card")


class Reader(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.handle_data = self.words.append
        self.feed(page)
        self.text = " ".join("".join(self.words).split())
        self.charts = [attrs for tag, attrs in self.tags if tag == "svg"]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def schema():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    return jsonschema.Draft202012Validator(report_schema())


# --- what is found -----------------------------------------------------------------------


def test_reasons_add_up_to_the_scores_of_the_top_rows(findings):
    for row in findings.top:
        added = sum(reason.adds for reason in row.reasons) + row.others
        assert_allclose(findings.usual_score + added, row.anomaly_score, atol=1e-9)
        assert 0 <= row.anomaly_probability <= 1


def test_every_score_is_in_the_distribution(fit, findings):
    kinds = {kind.kind: kind for kind in findings.distribution.kinds}
    counts = fit.report.labels
    assert sum(kinds["unlabelled"].counts) == kinds["unlabelled"].rows == counts.unlabelled
    assert sum(kinds["anomaly"].counts) == kinds["anomaly"].rows == counts.anomaly
    assert len(kinds["anomaly"].scores) == counts.anomaly  # few: each is drawn
    assert kinds["normal"].scores == []
    assert findings.distribution.edges[0] < findings.threshold < findings.distribution.edges[-1]


def test_extreme_scores_do_not_squeeze_all_others(fit, monkeypatch):
    before = fit.model[-1].calibration_
    unlabelled = before.unlabelled.copy()
    unlabelled[-1] = 1e9
    calibration = replace(before, unlabelled=unlabelled)
    monkeypatch.setattr(fit.model[-1], "calibration_", calibration)
    distribution = describe_fit(fit).distribution
    assert distribution.edges[-1] < 100
    assert sum(distribution.kinds[-1].counts) == len(unlabelled)


def test_labels_that_cannot_tell_are_said_not_drawn(few):
    found = describe_fit(few)
    assert found.auc is None
    assert found.quality is None
    assert found.review is None
    page = Reader(render_page(found))
    for words in (
        "The labels do not show how good the model is: it takes 3 labelled rows of each kind",
        "How many of these rows are anomalies is not known: too few rows are labelled",
        "1 labelled anomaly is few",
    ):
        assert words in page.text
    assert len(page.charts) == 1  # the scores
    assert found.rate.high - found.rate.low > 0.05


def test_quality_says_what_was_held_out_and_from_what():
    auc, labels = Auc(0.9, 0.8, 0.95, 100, 20), LabelCounts(500, 100, 3000)
    [line] = quality_lines(auc, "", ShallowRAD()._evidence_in_words, LabelCounts(100, 20, 3000))
    assert line.endswith("the 120 labelled rows, each scored by a model fitted without its label")
    [line] = quality_lines(auc, "", AutoRAD()._evidence_in_words, labels)
    assert " on 120 of the 600 labelled rows, each scored by members that were fitted, " in line
    assert line.endswith("tuned and weighted without its label")


def test_members_left_out_are_said_and_not_averaged():
    rows = [
        {"member": "kernel", "weight": 0.6, "auc": 0.9, "seconds": 1.0},
        {"member": "forest", "weight": 0.4, "auc": 0.8, "seconds": 1.0},
        {"member": "boosted", "weight": 0.0, "auc": None, "seconds": 0.0, "left_out": True},
    ]
    model = AutoRAD()
    model.leaderboard_, model.auc_, model.kinds_auc_, model.n_rows_ = rows, None, None, 900
    model.members_, model.student_ = {"kernel": None, "forest": None}, None
    lines = model._describe_in_words()
    assert lines[0].startswith("average of 2 kinds of detector")
    assert lines[1] == "left out for lack of time (budget=60): boosted"


def test_a_table_is_reported_with_the_quality_of_the_fit(fit, tmp_path):
    save(fit.model, tmp_path / "m.riskad", report=fit.report)
    model, header = load(tmp_path / "m.riskad"), read_header(tmp_path / "m.riskad")
    new = make_cards(50, seed=3).drop("label")
    found = describe_table(model, header, new, source="new.csv", top=5)
    assert found.flagged_of == found.rows == 50
    assert found.labels == fit.report.labels
    assert found.auc == fit.report.auc
    assert [kind.kind for kind in found.distribution.kinds][-1] == "table"
    _, explained = explain_table(model, new, rows=5, reasons=4, id="card")
    assert [row.row for row in found.top] == [row.row for row in explained.explained]
    assert [row.reasons for row in found.top] == [row.reasons for row in explained.explained]
    text = Reader(render_page(found)).text
    assert "These are labelled rows of cards.csv" in text
    scored = new.with_columns(anomaly_score=0.0, is_anomaly=False, anomaly_probability=0.5)
    again = describe_table(model, header, scored, source="new.csv", top=5)
    assert [row.row for row in again.top] == [row.row for row in found.top]


def test_a_model_without_calibration_has_a_page(schema):
    cards = make_cards()
    codes = cards["label"].replace_strict({"ok": 1, "fraud": -1, "": 0}).to_numpy()
    model = Pipeline([("prepare", TablePreparer()), ("detect", ShallowRAD())])
    model.fit(cards.drop("label", "card"), codes)
    found = describe_table(model, make_header(model), cards)
    assert found.labels is None
    assert found.why_no_auc
    schema.validate(json.loads(to_json(found)))
    assert "the model has no scores of held-out labelled rows" in Reader(render_page(found)).text


# --- curves ------------------------------------------------------------------------------


def test_the_area_under_the_roc_curve_is_the_auc():
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], [60, 30])
    scores = rng.normal(size=90) + (y == -1)
    scores[::7] = 0.5  # ties
    curve = roc_with_interval(y, scores)
    assert_allclose(np.trapezoid(curve.y, curve.x), auc_with_interval(y, scores).value)
    assert ((curve.low <= curve.y) & (curve.y <= curve.high)).all()
    assert (np.diff(curve.x) >= 0).all()
    assert curve.x[-1] == curve.y[-1] == 1


@pytest.mark.slow
def test_intervals_of_the_roc_curve_hold_the_truth():
    """P(score > t) of anomalies at t = 1 is 0.5; 95 % intervals hold it in at least 93 of 100."""
    rng = np.random.default_rng(0)
    y, held = np.repeat([1, -1], [50, 15]), 0
    for _ in range(300):
        scores = rng.normal(size=65) + (y == -1)
        curve = roc_with_interval(y, scores)
        i = np.flatnonzero(curve.threshold >= 1)[-1]
        held += curve.low[i] <= 0.5 <= curve.high[i]
    assert held >= 0.93 * 300


def test_precision_is_that_of_counting_at_the_rate_of_the_labels():
    rng = np.random.default_rng(1)
    y = np.repeat([1, -1], [40, 20])
    scores = rng.normal(size=60) + 1.5 * (y == -1)
    curve = precision_recall_with_interval(y, scores)
    for t, recall, precision in zip(curve.threshold, curve.x, curve.y, strict=True):
        flagged = scores >= t
        assert_allclose(recall, flagged[y == -1].mean())
        assert_allclose(precision, (y[flagged] == -1).mean())
    rarer = precision_recall_with_interval(y, scores, pi_n=0.01)
    assert (rarer.y <= curve.y + 1e-12).all()
    assert ((curve.low <= curve.y) & (curve.y <= curve.high)).all()


def test_curves_of_many_rows_have_few_points():
    rng = np.random.default_rng(2)
    y = np.where(np.arange(20_000) % 10, 1, -1)
    curve = roc_with_interval(y, rng.normal(size=20_000) + (y == -1))
    assert 150 < len(curve.x) <= 201


# --- page --------------------------------------------------------------------------------


def test_the_page_says_what_matters(findings):
    text = Reader(render_page(findings)).text
    auc, counts = findings.auc, findings.labels
    share = findings.flagged / findings.flagged_of
    for words in (
        "riskad report: cards.csv",
        f"{findings.flagged} of {findings.flagged_of} unlabelled rows ({share:.1%}) look anomalous",
        f"{auc.value:.3f} (95% interval {auc.low:.3f} to {auc.high:.3f})",
        f"{counts.normal} + {counts.anomaly}",
        f"Row {findings.top[0].row}: {findings.top[0].id}",
        "cross-validated on the labelled rows",
        "Threshold risk: where the risk of the fit",
        "the model has learned the labelled kinds",
        "ROC with 95% intervals",
        "riskad fit cards.csv",
        "scikit-learn",
    ):
        assert words in text, words


def test_the_page_shows_no_interval_that_says_nothing(findings):
    review, rate = findings.review, replace(findings.rate, value=0.4, low=0.0, high=0.9)
    top = replace(review.table[0], found=replace(review.table[0].found, low=0, high=5))
    flagged = replace(review.flagged, found=replace(review.flagged.found, low=0))
    vague = replace(review, table=[top], flagged=flagged)
    auc = replace(findings.auc, low=0.3)
    text = Reader(render_page(replace(findings, review=vague, auc=auc, rate=rate))).text
    assert "Too few labels to tell whether the order of the rows is better than chance" in text
    assert "Too few labels to tell how many of the highest scores are anomalies" in text
    assert "Too few labels to tell which share of the unlabelled rows are anomalies" in text
    assert not re.search(r"AUC on labelled rows|Anomalies among these|, probability", text)


def test_the_page_needs_nothing_else(findings):
    page = render_page(findings)
    assert not re.search(r"https?:|//|@import|url\(", page)
    reader = Reader(page)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert not [name for _, attrs in reader.tags for name in attrs if name in ("src", "href")]
    policy = [attrs for tag, attrs in reader.tags if "http-equiv" in attrs]
    assert policy[0]["content"].startswith("default-src 'none'")
    assert len(page) < 100_000


def test_charts_have_names_for_those_who_cannot_see_them(findings):
    charts = Reader(render_page(findings)).charts
    assert len(charts) == 4
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 20 for chart in charts)


@each(("trained_on", "first"), itertools.product(["", "cards.csv"], range(len(HOSTILE))))
def test_no_text_of_any_field_becomes_an_element_or_an_attribute(findings, trained_on, first):
    """All fields of a report hold one hostile text, then the next; the elements stay the same."""
    report = replace(findings, trained_on=trained_on)
    usual = Reader(render_page(with_words(report, ["zzz"])))
    page = render_page(with_words(report, [HOSTILE[first]]))
    reader = Reader(page)
    assert reader.tags == usual.tags
    assert len(reader.words) >= len(usual.words)
    assert not re.search(r"[\x00-\x08]|<script|<iframe|<img", page)
    said = HOSTILE[first].replace("\x00", r"\x00").replace("\x07", r"\x07")[:59]
    assert reader.text.count(said) >= usual.text.count("zzz")


# --- sections ----------------------------------------------------------------------------


def test_a_section_from_outside_is_escaped(findings, monkeypatch):
    blocks = [Lines(["a line"]), Note(HOSTILE[0]), Table(["a head"], [[HOSTILE[1]]]), Lines([])]
    own = Section("Own", "Own", lambda report: blocks)
    monkeypatch.setattr("riskad.app.report.documents.SECTIONS", [*SECTIONS, own])
    reader = Reader(render_page(findings))
    assert ("section", {"id": "own"}) in reader.tags
    assert "script" not in {tag for tag, _ in reader.tags}
    assert reader.text.endswith(f"Own a line {HOSTILE[0]} a head {HOSTILE[1]}")
    with pytest.raises(InputError, match="There is a section 'Quality' already"):
        add_section(replace(own, title="Quality"))


# --- JSON --------------------------------------------------------------------------------


def test_json_is_as_the_schema_says(findings, few, schema):
    for found in (findings, describe_fit(few)):
        written = json.loads(to_json(found))
        schema.validate(written)
        assert written["schema"] == SCHEMA
    broken = json.loads(to_json(findings)) | {"threshold": "high"}
    assert not schema.is_valid(broken)


# --- files -------------------------------------------------------------------------------


def test_a_report_is_written_whole_and_never_over_another(findings, tmp_path):
    path = tmp_path / "r.html"
    write_report(findings, path)
    first = path.read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>\n<html lang")
    with pytest.raises(InputError, match="exists already"):
        write_report(findings, path)
    write_report(findings, path, force=True)
    with pytest.raises(InputError, match=r"must end in \.html"):
        write_report(findings, tmp_path / "r.pdf")
    with pytest.raises(InputError, match="there is no folder"):
        write_report(findings, tmp_path / "none" / "r.html")
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.html"]


def test_reports_from_the_command_line(tmp_path, monkeypatch, schema):
    monkeypatch.chdir(tmp_path)
    make_cards().write_csv("cards.csv")
    fit = ["fit", "cards.csv", "--label", "label", "--normal", "ok", "--anomaly", "fraud"]
    fit += ["--id", "card", "-o", "m.riskad", "--model", "shallow"]
    assert "must end in .html" in run(*fit, "--report", "r.pdf", code=1).stderr
    assert not (tmp_path / "m.riskad").exists()
    assert "r.html (report)" in run(*fit, "--report", "r.html").stdout
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"riskad {' '.join(fit)} --report r.html" in Reader(page).text
    run("report", "m.riskad", "cards.csv", "-o", "r.html", code=1)
    said = run("report", "m.riskad", "cards.csv", "-o", "r.json", "--top", "3").stdout
    assert "Wrote r.json." in said
    written = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    schema.validate(written)
    assert written["trained_on"] == "cards.csv"
    assert len(written["top"]) == 3
    (tmp_path / "r.json").unlink()
    save(ShallowRAD().fit(np.eye(3), [1, -1, 0]), "bare.riskad")
    said = run("report", "bare.riskad", "cards.csv", "-o", "r.json", code=1).stderr
    assert "was not made by riskad.fit_table" in said
