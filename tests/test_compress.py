"""Compressed models: what is lost, what is taken over, files, and people's mistakes."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from riskad import AutoRAD, ForestRAD
from riskad.app.compress import compress_table
from riskad.app.fit import fit_table
from riskad.app.model_files import load, make_header, read_header, save
from riskad.app.spec import FitSpec
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.detectors.compressed import CompressedRAD
from riskad.storage.codec import build, state_of

LABELS = FitSpec(label="status", normal=["ok"], anomaly=["fraud"])


def make_table(n=900, seed=0):
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.25
    amount = np.where(fraud, rng.normal(4, 1, n), rng.normal(0, 1, n))
    amount[rng.random(n) < 0.05] = np.nan
    country = np.where(fraud, rng.choice(["XX", "DE"], n), rng.choice(["DE", "FR"], n))
    status = np.where(rng.random(n) < 0.4, np.where(fraud, "fraud", "ok"), "")
    columns = {"amount": amount, "hour": rng.normal(size=n), "country": country, "status": status}
    return pl.DataFrame(columns).with_columns(pl.col("amount").fill_nan(None))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 1, (900, 3)), rng.normal(3, 1, (100, 3))])
    y = np.zeros(1000, dtype=int)
    y[:60], y[-20:] = 1, -1
    return X, y


@pytest.fixture(scope="module")
def auto(rows):
    return AutoRAD(budget=4).fit(*rows)


@pytest.fixture(scope="module")
def small(auto, rows):
    return CompressedRAD().learn(auto, *rows)


def test_new_rows_are_ranked_and_decided_as_before(auto, small):
    rng = np.random.default_rng(5)
    new = np.vstack([rng.normal(0, 1, (900, 3)), rng.normal(3, 1, (100, 3))])
    before, after = auto.anomaly_score(new), small.anomaly_score(new)
    ranks = [np.argsort(np.argsort(scores)) for scores in (before, after)]
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    assert (auto.predict(new) == small.predict(new)).mean() > 0.97
    quartiles = [np.quantile(scores, [0.25, 0.5, 0.75]) for scores in (before, after)]
    np.testing.assert_allclose(*quartiles, atol=0.05)
    apart = auto.anomaly_probability(new) - small.anomaly_probability(new)
    assert np.abs(apart).mean() < 0.03


def test_what_is_lost_is_measured_on_rows_that_were_not_learned_from(auto, small):
    fidelity = small.fidelity_
    assert fidelity.rows + small.n_rows_ + 150 == 1000  # 150 rows map scores
    few = np.random.default_rng(0).normal(size=(60, 3))
    noise = CompressedRAD(n_estimators=5).learn(auto, few)
    assert noise.fidelity_.rank_correlation < fidelity.rank_correlation
    assert noise.fidelity_.auc_before is None  # no labels were given
    assert 0 <= fidelity.auc_before <= 1


def test_thresholds_are_those_of_the_model(auto, small):
    assert small.offset_ == auto.offset_
    assert str(small.threshold_) == str(auto.threshold_)
    assert small.set_threshold("top:50").offset_ == AutoRAD.set_threshold(auto, "top:50").offset_
    auto.set_threshold("likely")
    small.set_threshold("likely")


def test_it_holds_no_training_rows_and_says_whose_scores_it_learned(auto, small):
    assert auto.kept_rows() > 0
    assert small.kept_rows() == 0
    said = " ".join(small.describe_in_words())
    assert "learned the scores of AutoRAD from 700 rows" in said
    assert "rank correlation" in said
    json.dumps(small.describe())


def test_other_scores_give_another_forest(auto, rows):
    X, y = rows
    other = ForestRAD(n_estimators=10).fit(X, np.where(y == 0, 0, -y))
    first, second = (CompressedRAD(n_estimators=5).learn(t, X) for t in (auto, other))
    assert np.corrcoef(first.score_samples(X), second.score_samples(X))[0, 1] < 0


def test_the_same_seed_gives_the_same_numbers(auto, rows):
    first, second = (CompressedRAD(n_estimators=5).learn(auto, rows[0]) for _ in range(2))
    assert (first.score_samples(rows[0]) == second.score_samples(rows[0])).all()


def test_fit_learns_from_labels_by_way_of_an_auto(rows):
    model = CompressedRAD(n_estimators=10, budget=1).fit(*rows)
    assert model.teacher_ == "AutoRAD"
    assert model.predict([[0.0, 0.0, 0.0], [4.0, 4.0, 4.0]]).tolist() == [1, -1]


def test_too_few_rows_are_refused(auto, rows):
    with pytest.raises(InputError, match=r"49 rows are too few .* at least 50"):
        CompressedRAD().learn(auto, rows[0][:49])


def test_a_teacher_that_says_the_same_of_all_rows_is_no_obstacle(rows):
    X, _ = rows
    teacher = ForestRAD(n_estimators=2, min_samples_leaf=1e9).fit(*rows)
    model = CompressedRAD(n_estimators=3).learn(teacher, X)
    assert model.score_samples(X).std() < 1e-12
    assert model.fidelity_.agreement == 1
    assert model.fidelity_.rank_correlation == 0  # there is nothing to rank


def test_a_file_gives_the_same_scores_and_keeps_what_was_lost(small, rows, tmp_path):
    save(small, tmp_path / "small.riskad")
    again = load(tmp_path / "small.riskad")
    assert (again.score_samples(rows[0]) == small.score_samples(rows[0])).all()
    assert again.fidelity_ == small.fidelity_


def test_a_forged_file_is_refused(small):
    falling = small.knots_[:, ::-1]
    with pytest.raises(InputError, match="knots_: falling"):
        build(CompressedRAD, state_of(small) | {"knots_": falling})
    other = ForestRAD(n_estimators=2, risk="pn").fit(np.eye(4), [1, 1, -1, -1])
    with pytest.raises(InputError, match="trees_: of other columns"):
        build(CompressedRAD, state_of(small) | {"trees_": other.trees_})


# --- tables and the command line ------------------------------------------------------------


def test_tables_with_gaps_and_words_are_compressed(tmp_path):
    fit = fit_table(make_table(), LABELS, model="forest")
    header = make_header(fit.model, fit.report)
    labels = LABELS.labels
    small, stored, report = compress_table(fit.model, header, make_table(seed=1), labels=labels)
    assert report.fidelity.rank_correlation > 0.9
    assert report.fidelity.auc_after is not None
    assert stored.fitted["fidelity"]["rows"] == report.fidelity.rows
    with pytest.raises(InputError, match="compressed already"):
        compress_table(small, header, make_table())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_table().write_csv("cards.csv")
    return tmp_path


LABELLED = ["--label", "status", "--normal", "ok", "--anomaly", "fraud"]


def run(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def test_the_command_says_what_is_lost_and_keeps_it_in_the_file(folder):
    run("fit", "cards.csv", *LABELLED, "--model", "forest", "-o", "cards.riskad")
    done = run("compress", "cards.riskad", "cards.csv", *LABELLED, "-o", "small.riskad")
    assert done.exit_code == 0, done.output
    assert "ForestRAD as 100 trees" in done.output
    assert "rank correlation" in done.output
    assert "AUC on the labelled ones" in done.output
    assert read_header("small.riskad").report.rows == 900
    shown = run("inspect", "small.riskad").output
    assert "learned the scores of ForestRAD" in shown
    scored = run("score", "small.riskad", "cards.csv", "-o", "scored.csv")
    assert scored.exit_code == 0, scored.output
    said = run("compress", "cards.riskad", "cards.csv", "-o", "other.riskad", "--json").output
    assert json.loads(said)["fidelity"]["auc_before"] is None


def test_mistakes_at_the_command_are_told_in_one_sentence(folder):
    run("fit", "cards.csv", *LABELLED, "--model", "forest", "-o", "cards.riskad")
    make_table(40).write_csv("few.csv")
    few = run("compress", "cards.riskad", "few.csv", "-o", "small.riskad")
    assert few.exit_code != 0
    assert "40 rows are too few" in few.output
    assert "Traceback" not in few.output
    assert not (folder / "small.riskad").exists()
    (folder / "there.riskad").write_text("mine")
    taken = run("compress", "cards.riskad", "cards.csv", "-o", "there.riskad")
    assert taken.exit_code != 0
    assert (folder / "there.riskad").read_text() == "mine"
