"""Students of models: what is lost, what is taken over, files, and people's mistakes."""

import json

import numpy as np
import polars as pl
import pytest
from support.commands import result_of, run

from riskad import AutoRAD, ForestRAD
from riskad.app.change_model import compress_model, quick_model
from riskad.app.fit import fit_table
from riskad.app.model_files import load, make_header, read_header, save
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.detectors.compressed import CompressedRAD, _decode, _stored_rows, _synthetic_rows
from riskad.files.codec import build, state_of

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
    return X, np.repeat([1, 0, -1], [60, 920, 20])


@pytest.fixture(scope="module")
def auto(rows):
    return AutoRAD(budget=4, quick=True).fit(*rows)


@pytest.fixture(scope="module")
def small(auto):
    return auto.student_._deciding_as(auto)


def rank_correlation(*scores):
    return np.corrcoef(*(np.argsort(np.argsort(each)) for each in scores))[0, 1]


@pytest.mark.slow
def test_new_rows_are_ranked_and_decided_as_before(auto, small):
    rng = np.random.default_rng(5)
    new = np.vstack([rng.normal(0, 1, (900, 3)), rng.normal(3, 1, (100, 3))])
    before, after = auto.anomaly_score(new), small.anomaly_score(new)
    assert rank_correlation(before, after) > 0.95
    assert (auto.predict(new) == small.predict(new)).mean() > 0.97
    quartiles = [np.quantile(scores, [0.25, 0.5, 0.75]) for scores in (before, after)]
    np.testing.assert_allclose(*quartiles, atol=0.05)
    apart = auto.anomaly_probability(new) - small.anomaly_probability(new)
    assert np.abs(apart).mean() < 0.03


@pytest.mark.slow
def test_what_is_lost_is_measured_on_stored_rows_that_were_held_out(auto, small):
    assert small.fidelity_.rows == 200
    assert small.n_rows_ == 800 + 6_000
    # On new rows it is about the same: above, the rank correlation exceeds 0.95.
    assert small.fidelity_.rank_correlation > 0.9
    assert small.fidelity_.agreement > 0.95


def test_thresholds_are_the_present_ones_of_the_model(auto, small):
    assert small.offset_ == auto.offset_
    assert str(small.threshold_) == str(auto.threshold_)
    auto.set_threshold("top:50")
    assert auto.student_._deciding_as(auto).offset_ == auto.offset_ != small.offset_
    assert small.set_threshold("top:50").offset_ == auto.offset_
    auto.set_threshold("likely")
    small.set_threshold("likely")


def test_it_holds_no_training_rows_and_says_what_it_learned(auto, small):
    assert auto._kept_rows() > 0
    assert small._kept_rows() == 0
    said = " ".join(small._describe_in_words())
    assert "600 trees that learned the scores of AutoRAD for 6,800 rows" in said
    assert "rank correlation" in said
    assert "quick scores by trees" in " ".join(auto._describe_in_words())
    json.dumps(small._describe())


def test_labels_the_other_way_round_give_other_trees(auto, rows):
    X, y = rows
    first, second = (
        CompressedRAD(max_iter=20)._learn(AutoRAD(budget=1).fit(X, each)) for each in (y, -y)
    )
    assert np.corrcoef(first.score_samples(X), second.score_samples(X))[0, 1] < 0
    again = CompressedRAD(max_iter=20)._learn(AutoRAD(budget=1).fit(X, y))
    assert (again.score_samples(X) == first.score_samples(X)).all()


@pytest.mark.slow
def test_fit_learns_from_labels_by_way_of_an_auto(rows):
    model = CompressedRAD(max_iter=30).fit(*rows)
    assert model.predict([[0.0, 0.0, 0.0], [4.0, 4.0, 4.0]]).tolist() == [1, -1]


def test_stored_rows_are_the_training_rows_with_their_gaps_and_levels():
    table = make_table(300)
    y = table["status"].replace_strict({"ok": 1, "fraud": -1, "": 0}).to_numpy()
    frame = table.drop("status")
    model = AutoRAD(budget=1).fit(frame, y)
    stored = _stored_rows(model)
    trained = model.encoder_.transform(model._check_rows(frame, reset=False))
    np.testing.assert_allclose(np.sort(stored, axis=0), np.sort(trained, axis=0), atol=1e-9)
    np.testing.assert_allclose(
        model.encoder_.transform(_decode(model.encoder_, stored)), stored, atol=1e-9
    )
    made = _synthetic_rows(model, stored, np.arange(300.0), np.random.default_rng(0))
    amount, blank, countries = made[:, 0], made[:, 2] > 0.5, made[:, 3:]  # 1: hour
    np.testing.assert_allclose(countries.sum(axis=1), 1, atol=1e-9)  # of one row, together
    assert 0.02 < blank.mean() < 0.1
    np.testing.assert_allclose(amount[blank], model.encoder_.fills_[0], atol=1e-9)


def test_a_file_gives_the_same_scores_and_keeps_what_was_lost(auto, rows, tmp_path):
    save(auto, tmp_path / "auto.riskad")
    again = load(tmp_path / "auto.riskad")
    small, loaded = (model.student_._deciding_as(model) for model in (auto, again))
    assert (loaded.score_samples(rows[0]) == small.score_samples(rows[0])).all()
    assert (loaded.predict(rows[0]) == small.predict(rows[0])).all()
    assert loaded.fidelity_ == small.fidelity_
    save(small, tmp_path / "small.riskad")
    assert (load(tmp_path / "small.riskad").predict(rows[0]) == small.predict(rows[0])).all()


@pytest.mark.slow
def test_a_forged_file_is_refused(auto, small):
    other = ForestRAD(n_estimators=2, risk="pn").fit(np.eye(4), [1, 1, -1, -1])
    with pytest.raises(InputError, match="trees_: of another size"):
        build(CompressedRAD, state_of(small) | {"trees_": other.trees_})
    stranger = AutoRAD(budget=1, quick=True).fit(
        np.random.default_rng(0).normal(size=(60, 2)), np.repeat([1, -1, 0], 20)
    )
    with pytest.raises(InputError, match="student_: of another size"):
        build(AutoRAD, state_of(auto) | {"student_": stranger.student_})


# --- tables and the command line ------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_table().write_csv("cards.csv")
    return tmp_path


LABELLED = ["--label", "status", "--normal", "ok", "--anomaly", "fraud"]


def late(*_):
    raise InputError("failed late")


@pytest.mark.slow
def test_tables_with_gaps_and_words_are_scored_quickly():
    fit = fit_table(make_table(), LABELS, settings={"budget": 2}, quick=True)
    new, (_, detector) = make_table(seed=1), fit.model.steps[1]
    quick = quick_model(fit.model)
    assert rank_correlation(fit.model.score_samples(new), quick.score_samples(new)) > 0.9
    assert quick[1].calibration_ is detector.calibration_
    with pytest.raises(InputError, match="Only auto models"):
        compress_model(quick, make_header(fit.model, fit.report))
    assert quick_model(quick) is quick


@pytest.mark.slow
def test_the_command_stores_a_student_and_score_uses_it(folder, monkeypatch):
    run("fit", "cards.csv", *LABELLED, "--budget", "2", "-o", "cards.riskad")
    quick = ("score", "cards.riskad", "cards.csv", "-o", "quick.csv", "--quick")
    assert "riskad compress MODEL" in run(*quick, code=1).output
    assert "rank correlation" in run("compress", "cards.riskad").output
    assert read_header("cards.riskad").report.rows == 900
    assert "quick scores by trees" in " ".join(run("inspect", "cards.riskad").output.split())
    run(*quick)
    run("score", "cards.riskad", "cards.csv", "-o", "slow.csv")
    quick, slow = pl.read_csv("quick.csv"), pl.read_csv("slow.csv")
    assert set(slow.columns) - set(quick.columns) == {"novelty"}
    assert (quick["is_anomaly"] == slow["is_anomaly"]).mean() > 0.95
    before = (folder / "cards.riskad").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("riskad.app.report.terminal.print_compress", late)
        assert "failed late" in run("compress", "cards.riskad", code=1).output
    assert (folder / "cards.riskad").read_bytes() == before
    alone = result_of("compress", "cards.riskad", "--alone", "-o", "small.riskad")
    assert alone["kept_rows"] == 0
    shown = " ".join(run("inspect", "small.riskad").output.split())
    assert "learned the scores of AutoRAD" in shown


@pytest.mark.slow
def test_mistakes_at_the_command_are_told_in_one_sentence(folder):
    run("fit", "cards.csv", *LABELLED, "--model", "forest", "-o", "cards.riskad")
    before = (folder / "cards.riskad").read_bytes()
    said = run("compress", "cards.riskad", code=1).output
    assert "ForestRAD scores rows quickly as it is" in said
    assert (folder / "cards.riskad").read_bytes() == before
    assert "--output" in run("compress", "cards.riskad", "--alone", code=1).output
    (folder / "there.riskad").write_text("mine")
    run("compress", "cards.riskad", "-o", "there.riskad", code=1)
    assert (folder / "there.riskad").read_text() == "mine"
