"""Labels that look wrong: where they contradict held-out scores, and rarely on clean labels."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from support.commands import run

import riskad
from riskad.app.model_files import load_with_header
from riskad.app.suggest import doubtful_table
from riskad.core.labels import ANOMALY, NORMAL
from riskad.decisions.label_issues import LEVEL, find_label_issues


def draw(seed: int, n_wrong: int, apart: float = 4.0, n: int = 400, rate: float = 0.15):
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < rate, ANOMALY, NORMAL)
    scores = rng.normal(np.where(truth == ANOMALY, apart, 0))
    codes = truth.copy()
    wrong = rng.choice(n, n_wrong, replace=False)
    codes[wrong] = -codes[wrong]
    return scores, codes, set(wrong.tolist())


@pytest.mark.slow
def test_wrong_labels_are_found_and_counted():
    found = truly = covered = said = 0
    for seed in range(10):
        scores, codes, wrong = draw(seed, 30)
        issues = find_label_issues(scores, codes)
        rows = set(issues.rows.tolist())
        found, truly, said = found + len(rows & wrong), truly + len(wrong), said + len(rows)
        covered += issues.expected.low <= len(wrong) <= issues.expected.high
    assert found > 0.8 * truly
    assert found > 0.8 * said
    assert covered >= 8


@pytest.mark.slow
def test_clean_labels_seldom_stand_out_however_much_kinds_overlap():
    said = labels = 0
    for seed in range(30):
        scores, codes, _ = draw(seed, 0, apart=(0.5, 1.0, 1.5, 2.5, 4.0)[seed % 5])
        issues = find_label_issues(scores, codes)
        said, labels = said + len(issues), labels + len(codes)
        if len(issues):
            assert issues.p_value <= LEVEL
        else:  # few or none may be wrong
            assert issues.expected.low == 0
            assert issues.expected.high <= len(codes)
    assert said <= 0.01 * labels


def test_probabilities_fall_as_scores_agree_with_labels():
    scores, codes, _ = draw(0, 30)
    issues = find_label_issues(scores, codes)
    p = issues.probabilities
    for kind, sign in ((ANOMALY, -1), (NORMAL, 1)):
        order = np.argsort(scores[codes == kind])
        assert (sign * np.diff(p[codes == kind][order]) >= -1e-9).all()
    assert (np.diff(p[issues.rows]) <= 0).all()
    assert p[issues.rows].min() >= np.delete(p, issues.rows).max()


def test_the_other_kind_of_row_decides():
    scores, codes, _ = draw(1, 20, n=150)
    swapped = find_label_issues(-scores, -codes)
    p = find_label_issues(scores, codes).probabilities
    assert np.allclose(swapped.probabilities, p, atol=0.05)  # EM ends within its tolerance


def test_rows_without_score_or_label_are_left_out():
    scores, codes, _ = draw(0, 30)
    longer = np.append(scores, [np.nan, 3.0]), np.append(codes, [ANOMALY, 0])
    issues = find_label_issues(*longer)
    assert np.isnan(issues.probabilities[-2:]).all()
    assert np.array_equal(issues.rows, find_label_issues(scores, codes).rows)


def test_too_few_labels_of_a_kind_or_a_constant_score_tell_nothing():
    for codes in ([1] * 20, [1] * 20 + [-1] * 4, []):
        issues = find_label_issues(np.arange(len(codes), dtype=float), codes)
        assert (len(issues), issues.expected) == (0, None)
        assert "too few" in str(issues)
    assert len(find_label_issues(np.zeros(200), np.repeat([1, -1], 100))) == 0


@pytest.fixture(scope="module")
def fit():
    rng, n = np.random.default_rng(0), 400
    anomalous = rng.random(n) < 0.2
    amount = rng.normal(np.where(anomalous, 60, 20), 8)
    label = np.where(anomalous, "fraud", "ok").astype(object)
    label[250:] = ""
    wrong = np.flatnonzero(~anomalous[:250])[:12]
    label[wrong] = "fraud"
    ids = [f"p{i}" for i in range(n)]
    table = pl.DataFrame({"id": ids, "amount": amount.round(2), "label": label.tolist()})
    options = {"label": "label", "normal": "ok", "anomaly": "fraud", "id": "id"}
    return riskad.fit_table(table, model="shallow", **options), table, (wrong + 1).tolist()


def test_a_fit_names_the_rows_whose_labels_look_wrong(fit):
    result, _, wrong = fit
    doubtful = result.report.doubtful
    assert sorted(each.row for each in doubtful.rows) == wrong
    assert {each.id for each in doubtful.rows} == {f"p{row - 1}" for row in wrong}
    assert all(each.label == "anomaly" for each in doubtful.rows)
    assert "look wrong" in doubtful.summary


def test_no_doubtful_label_is_said_without_an_empty_list(tmp_path):
    table = pl.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    table.write_csv(tmp_path / "x.csv")
    data, model, again = (tmp_path / name for name in ("x.csv", "x.riskad", "again.csv"))
    run("fit", data, "-o", model)
    said = run("suggest", model, data, "--doubtful", "-o", again).stdout
    assert "too few labels to tell which are wrong" in said
    assert "anomaly_score" not in said
    assert "(no row, only names of columns)" in " ".join(said.split())
    assert pl.read_csv(again).columns == ["row", "x", "anomaly_score", "reason"]


def test_doubtful_labels_are_suggested_from_a_stored_model(fit, tmp_path):
    result, table, _ = fit
    riskad.save(result.model, tmp_path / "m.riskad", report=result.report)
    _, header = load_with_header(tmp_path / "m.riskad")
    assert header.report.doubtful.rows[0].id is None  # cells of the table are not stored
    rows, report = doubtful_table(header.report, table, 2, id="id")
    first = [each.row for each in result.report.doubtful.rows[:2]]
    assert [each.row for each in report.suggested] == first
    assert rows["id"].to_list() == [f"p{each.row - 1}" for each in report.suggested]
    with pytest.raises(riskad.InputError, match="takes the table of the fit"):
        doubtful_table(header.report, table[:50], 2)
    with pytest.raises(riskad.InputError, match="does not say which labels"):
        doubtful_table(None, table, 2)


def test_label_issues_of_any_detector():
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(0, 1, (300, 2)), rng.normal(4, 1, (40, 2))])
    y = np.repeat([1, 0, -1], [150, 150, 40])
    y[:10] = -1
    model = riskad.calibrate(riskad.ShallowRAD().fit(X, y), X, y)
    issues = riskad.label_issues(model, X, y)
    assert set(issues.rows.tolist()) == set(range(10))
    again = riskad.label_issues(riskad.ShallowRAD().fit(X, y), X, y)  # it holds out by itself
    assert np.allclose(again.probabilities, issues.probabilities, equal_nan=True)
