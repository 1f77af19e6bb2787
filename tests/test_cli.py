import dataclasses
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import click
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from conftest import PATIENCE
from support.cards import FIT, LABELLED, SHALLOW, make_cards

import riskad
from riskad.app import demo
from riskad.app import explain as explaining
from riskad.app.fit import fit_table
from riskad.app.report.terminal import print_fit
from riskad.cli import shell
from riskad.cli.main import cli, main
from riskad.cli.shell import ALARM, Progress, printed
from riskad.core.losses import LOSSES
from riskad.core.regularization import PENALTIES
from riskad.core.risks import RISKS
from riskad.detectors import registry
from riskad.detectors.linear.feature_maps import FEATURE_MAPS
from riskad.detectors.linear.lambda_search import LAMBDA_RULES
from riskad.detectors.registry import DETECTORS, FEATURE_MAP, LAMBDA
from riskad.detectors.shallow import ShallowRAD

OUT, F1 = ["-o", "out.csv"], ["--threshold", "f1"]
QUICK = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be in a folder with cards.csv, and new.csv without labels."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_cards().write_csv("cards.csv")
    make_cards(40, seed=1).drop("label").write_csv("new.csv")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def fail(*arguments, code=1):
    """Run a command that must fail with a sentence and without a traceback or output."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Error: " in result.stderr
    return result.stderr


def files(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A model of cards.csv: fitted once, copied by those who need one."""
    folder = tmp_path_factory.mktemp("fitted")
    make_cards().write_csv(folder / "cards.csv")
    succeed("fit", folder / "cards.csv", *SHALLOW, "--id", "card", "-o", folder / "model.riskad")
    return folder / "model.riskad"


@pytest.fixture
def fitted(folder, model_file):
    shutil.copy(model_file, folder)
    return folder


# --- the way through ---------------------------------------------------------------------


def test_fit_says_what_it_did(folder):
    options = ["--id", "card", "-o", "model.riskad", "--ranked", "ranked.csv", "--verbose"]
    output = succeed("fit", "cards.csv", *SHALLOW, *options)
    for words in (
        "cards.csv: 300 rows",
        r"Labels +\d+ normal, \d+ anomalies, \d+ unlabelled",
        "1 number column: amount",
        r"1 category column: country \(2 levels\)",
        "linear, rad risk, modified_huber loss",
        r"lambda = [\d.e-]+ \(l2\), cross-validated on the labelled rows",
        r"newton converged in \d+ steps?",
        r"AUC 0\.\d+ \(95% interval|AUC 1\.000 \(95% interval",
        r"Flagged +\d+ of \d+ unlabelled rows \(\d+\.\d%\) look anomalous",
        r"Top 10 +row  card +anomaly_score  is_anomaly",
        r"Written +model\.riskad \(model\)\n +ranked\.csv \(ranked\)",
        r"Next +riskad score model\.riskad new\.csv -o scored\.csv",
    ):
        assert re.search(words, output), (words, output)
    assert max(map(len, output.splitlines())) <= 80
    assert not re.search(r"[ \t]+$|\x1b", output, flags=re.M)
    ranked = pl.read_csv("ranked.csv", infer_schema=False)
    results = ["row", "anomaly_score", "is_anomaly", "anomaly_probability"]
    assert ranked.columns == [*results, "card", "amount", "country", "label"]
    assert set(ranked["label"]) <= {"", None}
    assert ranked["card"].str.len_chars().unique().to_list() == [5]


def _wide_table():
    """80 columns of every kind, with long names, blanks and mixed formats."""
    rng = np.random.default_rng(0)
    n = 120
    kinds = {
        "number": lambda: [f"{x:.2f}".replace(".", ",") for x in rng.normal(20, 5, n)],
        "level": lambda: rng.choice(["red", "green", "blue", ""], n),
        "date": lambda: [f"{d:02}.{m:02}.2025" for d, m in rng.integers(1, 13, (n, 2))],
        "flag": lambda: rng.choice(["yes", "no"], n),
        "constant": lambda: ["same"] * n,
    }
    columns = {
        f"a {k} column with a long name {i}": f() for i in range(16) for k, f in kinds.items()
    }
    return pl.DataFrame(columns | {"label": ["ok"] * 20 + ["fraud"] * 5 + [""] * 95})


@pytest.mark.parametrize("table", ["cards", "demo", "wide"])
def test_the_summary_of_a_fit_has_at_most_40_lines(folder, table):
    words = LABELLED
    if table == "demo":
        demo.make_tables()[0].write_csv("cards.csv")
        words = ["--label", "label", "--normal", "benign", "--anomaly", "malignant"]
    elif table == "wide":
        _wide_table().write_csv("cards.csv", separator=";")
    fit = ["fit", "cards.csv", *words, "--model", "shallow", "--lam", "tight", "--force"]
    fit += ["-o", "model.riskad"]
    lines = succeed(*fit).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("Next      riskad score")
    every = succeed(*fit, "--verbose")
    assert "--verbose" not in every
    if table == "wide":
        assert re.search(r"\.\.\. \d+ more lines \(--verbose\)", "\n".join(lines))
        assert len(every.splitlines()) > 40


def test_many_warnings_do_not_lengthen_the_summary_of_a_fit(folder):
    labels = riskad.FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
    report = fit_table(pl.read_csv("cards.csv"), labels, model="shallow").report
    report = dataclasses.replace(
        report, warnings=[f"a note, number {i} of many " * 9 for i in range(30)]
    )
    for verbose, longest in ((False, 40), (True, 200)):
        text = printed(print_fit, report, {"model": "model.riskad"}, verbose)
        assert longest / 2 < len(text.splitlines()) <= longest
    assert "a note, number 29" in text


def test_score_adds_columns_and_changes_nothing(fitted):
    output = succeed("score", "model.riskad", "new.csv", "-o", "scored.csv", "--top", "3")
    new, scored = (pl.read_csv(name, infer_schema=False) for name in ("new.csv", "scored.csv"))
    added = ["anomaly_score", "is_anomaly", "anomaly_probability"]
    assert scored.columns == [*new.columns, *added]
    assert scored.select(new.columns).equals(new)
    flagged = scored.filter(pl.col("is_anomaly") == "true")
    threshold = float(re.search(r"is_anomaly where anomaly_score > (\S+)", output)[1])
    above = scored["anomaly_score"].cast(pl.Float64) > threshold
    assert above.sum() == flagged.height > 0
    assert f"{flagged.height} of 40 rows" in output
    assert "Top 3" in output


def test_the_model_is_written_before_its_columns_are_explained(folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(explaining, "explain_rows", interrupted)
    assert run("fit", "cards.csv", *FIT, "--id", "card", "-o", "model.riskad").exit_code != 0
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    succeed("score", "model.riskad", "new.csv", "-o", "scored.csv")
    assert "AUC" in succeed("inspect", "model.riskad")


def test_a_model_that_is_replaced_has_its_own_report(fitted):
    before = riskad.app.model_files.read_header("model.riskad").report
    succeed("fit", "cards.csv", *FIT, "--threshold", "top:5", "-o", "model.riskad", "--force")
    after = riskad.app.model_files.read_header("model.riskad").report
    assert (before.rule, after.rule, after.flagged) == ("risk", "top:5", 5)
    assert after.effects  # found after the model was first written
    assert str(riskad.load("model.riskad")[-1].threshold_) == "top:5"


def test_csv_and_parquet_give_the_same_scores(fitted):
    pl.read_csv("cards.csv", schema_overrides={"card": pl.String}).write_parquet("cards.parquet")
    pl.read_csv("new.csv", schema_overrides={"card": pl.String}).write_parquet("new.parquet")
    succeed("fit", "cards.parquet", *FIT, "--id", "card", "-o", "other.riskad")
    succeed("score", "model.riskad", "new.csv", "-o", "a.parquet")
    succeed("score", "other.riskad", "new.parquet", "-o", "b.parquet")
    a, b = pl.read_parquet("a.parquet"), pl.read_parquet("b.parquet")
    np.testing.assert_array_equal(a["anomaly_score"], b["anomaly_score"])
    assert b["amount"].dtype == pl.Float64


def test_thresholds_on_the_command_line(fitted):
    output = succeed("threshold", "model.riskad", "top:5", "-o", "strict.riskad")
    assert re.search(r"threshold top:5 \(was risk\)", output)
    assert re.search(r"Flagged +5 of \d+ unlabelled rows of the fit", output)
    shown = succeed("inspect", "strict.riskad")
    assert re.search(r"Decision +is_anomaly where anomaly_score > \S+ \(threshold top:5\)", shown)
    assert re.search(r"calibrated on \d+ normal rows and \d+ anomalies", shown)
    said = " ".join(shown.split())
    assert re.search(r"estimated rate of anomalies like the labelled ones \d", said)
    fit = ("fit", "cards.csv", *FIT, "-o", "b.riskad", "--force", "--threshold")
    succeed(*fit, "top")  # rules have defaults
    assert re.search(r"Flagged +5 of \d+ unlabelled rows", succeed(*fit, "top:5"))
    told = json.loads(succeed("threshold", "b.riskad", "risk", "-o", "c.riskad", "--json"))
    first = json.loads(succeed("inspect", "model.riskad", "--json"))
    assert told["threshold"] == pytest.approx(first["threshold"])
    output = succeed("score", "model.riskad", "new.csv", "-o", "top.csv", "--threshold", "top:3")
    assert "3 of 40 rows" in output


def test_selection_on_the_command_line(fitted):
    output = succeed("score", "model.riskad", "new.csv", "-o", "scored.csv", "--fdr", "0.2")
    scored = pl.read_csv("scored.csv")
    assert scored.columns[-1] == "p_value"
    assert f"{scored['is_anomaly'].sum()} of 40 rows" in output
    assert "labelled normals tell no p-value" in " ".join(output.split())
    assert "anomaly_probability and p_value" in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "model.riskad", "new.csv", "-o", "a.csv", "--threshold", "f9x"], "cannot be"),
        (["score", "model.riskad", "new.csv", "-o", "a.csv", "--fdr", "2"], "fdr must be"),
        (["score", "model.riskad", "new.csv", *OUT, "--fdr", "0.1", *F1], "give one of them"),
        (["threshold", "model.riskad", "false-alarms:1e-4", "-o", "b.riskad"], "the smallest is"),
        (["threshold", "model.riskad", "none", "-o", "b.riskad"], "is not known"),
    ],
)
def test_mistakes_in_thresholds(fitted, arguments, message):
    assert message in fail(*arguments)
    assert files(fitted) == ["cards.csv", "model.riskad", "new.csv"]


def test_inspect(fitted):
    output = succeed("inspect", "model.riskad")
    for words in (
        r"model\.riskad: a ShallowRAD, fitted to cards\.csv",
        rf"saved \d{{4}}-\d\d-\d\d \d\d:\d\d UTC by riskad {re.escape(riskad.__version__)}",
        "1 number column: amount",
        "converged in",
        "objective, with the penalty +[\\d.]+",
        r"amount +high +[\d.]+",
        "scikit-learn",
    ):
        assert re.search(words, output), (words, output)
    assert max(map(len, output.splitlines())) <= 80


def test_export(fitted):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    output = succeed("export", "model.riskad", "model.onnx")
    for words in (
        r"model\.onnx: a ShallowRAD as an ONNX graph",
        r"Inputs +amount: number, NaN if blank\n +country: text, \"\" if blank",
        "Outputs +anomaly_score, is_anomaly",
        r"Checked +scores of 1,000 random rows differ from the model's by at most (0|\de-)",
        r"Written +model\.onnx \([\d,]+ bytes\)",
    ):
        assert re.search(words, output), (words, output)
    succeed("score", "model.riskad", "new.csv", "-o", "scored.parquet")
    scored = pl.read_parquet("scored.parquet")
    session = runtime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    rows = {
        "amount": scored["amount"].cast(pl.Float64).to_numpy()[:, None],
        "country": scored["country"].to_numpy().astype(object)[:, None],
    }
    scores, flags = session.run(["anomaly_score", "is_anomaly"], rows)
    np.testing.assert_allclose(scores, scored["anomaly_score"], atol=1e-9)
    np.testing.assert_array_equal(flags, scored["is_anomaly"])
    assert onnx.load("model.onnx").producer_version == riskad.__version__


def test_export_writes_whole_files_where_it_may(fitted, monkeypatch):
    pytest.importorskip("onnx")
    (fitted / "model.onnx").write_text("precious")
    before = files(fitted)
    assert "--force" in fail("export", "model.riskad", "model.onnx")
    assert "is not a riskad model" in fail("export", "cards.csv", "other.onnx")
    assert (fitted / "model.onnx").read_text() == "precious"
    assert files(fitted) == before
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    output = succeed("export", "model.riskad", "model.onnx", "--force")
    assert "not compared with the model: onnxruntime is not installed" in output
    found = json.loads(succeed("export", "model.riskad", "other.onnx", "--json"))
    assert found["inputs"] == {"amount": "number, NaN if blank", "country": 'text, "" if blank'}
    assert found["largest_difference"] is None


def test_inspect_of_a_model_from_python(folder):
    rng = np.random.default_rng(0)
    model = ShallowRAD(lam=0.5).fit(rng.normal(size=(60, 2)), rng.choice([1, -1, 0], size=60))
    riskad.app.model_files.save(model, "bare.riskad")
    output = succeed("inspect", "bare.riskad")
    assert "bare.riskad: a ShallowRAD" in output
    assert "lambda = 0.5 (l2), as given" in output
    assert "not made by riskad.fit_table" in fail(
        "score", "bare.riskad", "new.csv", "-o", "out.csv"
    )


@pytest.mark.parametrize("model", DETECTORS)
def test_the_way_through_with_every_model(folder, model):
    if DETECTORS[model].library:
        pytest.importorskip(DETECTORS[model].library)
    options = [] if model == "auto" else ["--model", model]
    options += ["--id", "card", "-o", "m.riskad", "--report", "r.html", "--verbose"]
    output = succeed("fit", "cards.csv", *LABELLED, *options)
    said = {
        "auto": r"Model +average of \d kinds of detector, weighted by held-out labels\n"
        r" +learned from 300 rows\n +[Mm]embers of the average:\n"
        r" +member +weight +held-out AUC +standard error +seconds\n"
        r"( +\w[\w ]+0\.\d\d +[01]\.\d{3} +0\.\d{3} +[\d.]+\n){4,6}",
        "shallow": "linear, rad risk, modified_huber loss",
        "boosted": r"boosted trees, rad risk, logistic loss(.|\n)*?\n +300 rounds",
        "forest": r"random forest, rad risk(.|\n)*?\n +300 trees",
        "pretrained": r"network trained on real and synthetic tables(.|\n)*?\n +reads \d+ of",
        "outliers": r"mean of two outlier scores; unsupervised(.|\n)*?learned from 300 rows",
        "deep": r"neural network, nnrad risk, logistic loss(.|\n)*?\n +100 steps",
    }[model]
    assert re.search(said, output), output
    assert re.search(r"amount +high +[\d.]+\n", output)
    assert re.search(r"country +XX +[\d.]+\n", output)
    assert re.search(said, succeed("inspect", "m.riskad"))
    succeed("score", "m.riskad", "new.csv", "-o", "scored.csv", "--reasons", 1)
    scored = pl.read_csv("scored.csv", schema_overrides={"card": pl.String})
    fraud = set(make_cards(40, seed=1).filter(pl.col("amount") > 60)["card"])
    flagged = set(scored.filter("is_anomaly")["card"])
    assert (
        flagged <= fraud if model == "outliers" else flagged == fraud
    )  # by convention it flags 5 %
    report = json.loads(succeed("explain", "m.riskad", "new.csv", "--rows", 2, "--json"))
    assert {row["id"] for row in report["explained"]} <= fraud
    assert "Flagged   5 of" in succeed("threshold", "m.riskad", "top:5", "-o", "five.riskad") or (
        model == "boosted"  # rows in one leaf have one score
    )
    succeed("report", "m.riskad", "new.csv", "-o", "new.html")
    if model in ("auto", "outliers"):
        pytest.importorskip("onnx")
        assert "m.onnx" in succeed("export", "m.riskad", "m.onnx")


@pytest.mark.parametrize(("model", "library"), [("boosted", "lightgbm"), ("deep", "torch")])
def test_a_model_whose_library_is_missing(folder, monkeypatch, model, library):
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == library else name)
    message = fail("fit", "cards.csv", *LABELLED, "--model", model, "-o", "model.riskad")
    assert f"needs {library}, which is not installed: pip install 'riskad[" in message


def test_a_single_word_is_not_taken_for_normal(folder):
    cards = pl.read_csv("cards.csv", infer_schema=False)
    cards.with_columns(pl.col("label").replace("ok", "")).write_csv("frauds.csv")
    said = fail("fit", "frauds.csv", "--label", "label", "-o", "model.riskad")
    assert "If it is an anomaly: --anomaly fraud; if it is normal: --normal fraud" in said


def test_explain_takes_the_row_that_is_named(fitted):
    asked = ("explain", "model.riskad", "new.csv", "--json")
    report = json.loads(succeed(*asked, "--only", "00007", "--only", " 00003 "))
    assert {(row["id"], row["row"]) for row in report["explained"]} == {("00007", 8), ("00003", 4)}
    cards = pl.read_csv("new.csv", infer_schema=False)
    cards.with_columns(card=pl.Series(["twice"] * 2 + ["once"] * 38)).write_csv("again.csv")
    found = json.loads(succeed("explain", "model.riskad", "again.csv", "--only", "twice", "--json"))
    assert sorted(row["row"] for row in found["explained"]) == [1, 2]
    cards.drop("card").write_csv("nameless.csv")
    found = json.loads(succeed("explain", "model.riskad", "nameless.csv", "--only", 8, "--json"))
    assert [row["row"] for row in found["explained"]] == [8]


def test_explain_says_that_no_row_has_this_name(fitted):
    asked = ("explain", "model.riskad", "new.csv", "--only")
    said = fail(*asked, "0007")
    assert "No row has '0007' in column 'card'. Did you mean '00007'?" in said
    assert "Did you mean '000" in fail(*asked, "00O07")
    assert "Its values are '00000', '00001', '00002' and 37 more." in fail(*asked, "Miller")
    pl.read_csv("new.csv").drop("card").write_csv("nameless.csv")
    said = fail("explain", "model.riskad", "nameless.csv", "--only", "41")
    assert "There is no row '41': rows are numbered from 1 to 40." in said
    assert "--id COLUMN" in said


def test_explain_says_why(fitted):
    output = succeed("explain", "model.riskad", "new.csv", "--rows", 4, "-o", "reasons.csv")
    for words in (
        "new.csv: 40 rows scored",
        r"Usual +a row with the usual value in every column scores -0\.\d+",
        r"Columns +mean change of the score over 40 rows: amount 0\.\d+",
        r"Row +10 \(00009\): anomaly_score 1\.\d+\n +- country XX \(usual FR\) adds 0\.\d+\n"
        r" +- amount 94\.46 \(usual [\d.]+\) adds 0\.\d+\n\n",
        ", not flagged",
        r"Written +reasons\.csv \(every column of these rows\)",
    ):
        assert re.search(words, output), (words, output)
    assert output.count("anomaly_score ") == 5
    assert max(map(len, output.splitlines())) <= 80
    written = pl.read_csv("reasons.csv", infer_schema=False)
    columns = "row id anomaly_score column value usual adds standard_error"
    assert written.columns == columns.split()
    assert written.height == 8
    report = json.loads(succeed("explain", "model.riskad", "new.csv", "--rows", 1, "--json"))
    assert report["command"] == "explain"
    (explained,) = report["explained"]
    total = report["usual_score"] + explained["others"]
    total += sum(reason["adds"] for reason in explained["reasons"])
    assert total == pytest.approx(explained["anomaly_score"], abs=1e-8)


def test_explain_takes_another_id_and_names_mistakes(fitted):
    output = succeed("explain", "model.riskad", "new.csv", "--id", "amount", "--reasons", 1)
    assert "10 (94.46): anomaly_score" in output
    assert "all other columns add 0.5" in output
    message = fail("explain", "model.riskad", "new.csv", "--id", "amuont")
    assert "Did you mean 'amount'" in message
    assert "--force" in fail("explain", "model.riskad", "new.csv", "-o", "cards.csv")
    assert "must end in" in fail("explain", "model.riskad", "new.csv", "-o", "out.json")
    assert "no file" in fail("explain", "model.riskad", "nowhere.csv")


def test_score_writes_reasons(fitted):
    output = succeed("score", "model.riskad", "new.csv", "-o", "scored.csv", "--reasons", 2)
    assert "reason_1 and reason_2" in " ".join(output.split())
    scored = pl.read_csv("scored.csv", infer_schema=False)
    assert scored.columns[-2:] == ["reason_1", "reason_2"]
    assert scored["reason_1"][9].startswith("country XX (usual FR) adds 0.")


def test_hostile_tables_stay_text(folder):
    """A column's name and a value that a spreadsheet would run, and a terminal obey."""
    name, value = "=cmd|' /C calc'!A0", "@SUM(1)\x1b[31m"
    table = make_cards().rename({"country": name}).with_columns(pl.col(name).replace("XX", value))
    table.write_csv("cards.csv")
    succeed("fit", "cards.csv", *FIT, "--id", "card", "-o", "model.riskad")
    output = succeed("explain", "model.riskad", "cards.csv", "-o", "reasons.csv")
    assert f"- {name} @SUM(1)\\x1b[31m (usual FR) adds" in output
    assert "\x1b" not in output
    succeed("score", "model.riskad", "cards.csv", "-o", "scored.csv", "--reasons", 2)
    for file in ("reasons.csv", "scored.csv"):
        frame = pl.read_csv(file, infer_schema=False)
        cells = [*frame.columns, *(cell for row in frame.rows() for cell in row if cell)]
        assert not [c for c in cells if c[0] in "=@+" or (c[0] == "-" and not _is_number(c))]
        assert any(cell.startswith("'=cmd") for cell in cells)


def _is_number(text):
    return re.fullmatch(r"-[\d.e-]+", text) is not None


# --- for machines ------------------------------------------------------------------------


def test_json_is_the_only_output(folder, monkeypatch):
    options = ("--id", "card", "-o", "model.riskad", "--ranked", "ranked.csv", "--json")
    report = json.loads(succeed("fit", "cards.csv", *FIT, *options))
    assert report["command"] == "fit"
    assert report["written"] == {"model": "model.riskad", "ranked": "ranked.csv"}
    assert sum(report["labels"].values()) == report["rows"] == 300
    assert report["settings"]["risk"] == "rad"
    assert 0.5 < report["auc"]["low"] <= report["auc"]["value"] <= 1
    assert len(report["top"]) == 10
    report = json.loads(
        succeed("score", "model.riskad", "new.csv", "-o", "out.csv", "--json", "--top", "2")
    )
    assert report["command"] == "score"
    assert report["top"][0]["anomaly_score"] >= report["top"][1]["anomaly_score"]
    report = json.loads(succeed("inspect", "model.riskad", "--json"))
    assert (report["command"], report["spec"]["id"], report["rows"]) == ("inspect", "card", 300)
    quick = partial(fit_table, model="shallow")  # what it says does not depend on the model
    monkeypatch.setattr(demo, "fit_table", quick)
    report = json.loads(succeed("demo", "--json"))
    assert report["riskad"]["auc"]["value"] > 0.9


def test_settings_reach_the_model(folder):
    options = "--loss logistic --risk rad --a 0.3 --prior 0.9 --lam 0.5 --penalty l2"
    options += " --feature-map poly --max-iter 77 --seed 5"
    report = json.loads(
        succeed("fit", "cards.csv", *FIT, "-o", "model.riskad", "--json", *options.split())
    )
    expected = {"loss": "logistic", "a": 0.3, "prior": 0.9, "lam": 0.5, "feature_map": "poly"}
    expected |= {"max_iter": 77, "random_state": 5, "risk": "rad", "penalty": "l2"}
    assert expected.items() <= report["settings"].items()
    assert report["fitted"]["lambda"] == 0.5


def test_the_defaults_are_those_of_the_estimator_but_for_lambda(folder):
    report = json.loads(succeed("fit", "cards.csv", *SHALLOW, "-o", "model.riskad", "--json"))
    assert report["settings"] == ShallowRAD(lam="cv", random_state=0).get_params()


def test_with_one_anomaly_lambda_is_the_tight_one(folder):
    table = make_cards()
    few = pl.col("label").is_in(["ok", ""]) | (pl.col("label") == "fraud").cum_sum().le(1)
    table.with_columns(label=pl.when(few).then("label").otherwise(None)).write_csv("few.csv")
    fit = ("fit", "few.csv", *SHALLOW, "--json")
    report = json.loads(succeed(*fit, "-o", "model.riskad"))
    assert report["labels"]["anomaly"] == 1
    tight = json.loads(succeed(*fit, "-o", "tight.riskad", "--lam", "tight"))
    assert report["fitted"]["lambda"] == tight["fitted"]["lambda"]


def test_choices_are_those_of_the_library():
    said = "".join(succeed("fit", "--help").split())
    for choices in (LOSSES, RISKS, PENALTIES, FEATURE_MAPS):
        assert "|".join(choices) in said
    assert all(entry.name + "".join(entry.summary.split()) in said for entry in DETECTORS.values())
    assert set(LAMBDA.choices) == set(LAMBDA_RULES)
    assert set(FEATURE_MAP.choices) == set(FEATURE_MAPS)


def test_help_of_fit_has_headings_and_each_option_once():
    said = succeed("fit", "--help")
    headings = re.findall(r"^(\w.*):$", said, re.M)
    first = ["Labels", "Output", "Decision", "Columns", "Model", "Large tables", "Models"]
    assert headings[: len(first)] == first
    owners = ", ".join(heading.removeprefix("Settings of ") for heading in headings[7:]).split(", ")
    assert set(owners) == {entry.name for entry in DETECTORS.values() if entry.settings}
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", said[said.index("Labels:") :], re.M)
    names = {each.name for each in dataclasses.fields(riskad.FitSpec)} - {"settings", "kinds"}
    names |= {setting.name for entry in DETECTORS.values() for setting in entry.settings}
    names = {f"--{name.replace('_', '-')}" for name in names} | {"--kind"}
    assert names <= set(options)
    assert len(set(options)) == len(options)


def test_help_of_fit_loads_neither_torch_nor_lightgbm():
    code = (
        "import sys; from riskad.cli.main import cli\n"
        "cli.main(['fit', '--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'lightgbm', 'polars'} & set(sys.modules)), file=sys.stderr)\n"
    )
    assert riskad_process(code=code).communicate(timeout=PATIENCE)[1] == "[]\n"


def test_how_rows_were_selected_for_labelling(folder):
    how = pl.Series("how", ["random", "chosen"] * 150)
    make_cards().with_columns(how).write_csv("cards.csv")
    fit = ("fit", "cards.csv", *FIT, "--json", "--force", "-o", "m.riskad", "--label-sampling")
    for word in ("random", "chosen", "unknown", "how"):
        report = json.loads(succeed(*fit, word))
        assert report["spec"]["label_sampling"] == word
        assert "how" not in report["columns"] or word != "how"
    assert "--label-sampling ranom is neither one of random, chosen" in fail(*fit, "ranom")


def test_files_without_labels_are_ranked_as_one_table(folder):
    pytest.importorskip("pyarrow")
    cards = make_cards().drop("label")
    for name, rows in (("a", cards[:200]), ("b", cards[200:])):
        rows.write_parquet(f"{name}.parquet")
    report = json.loads(succeed("fit", "a.parquet", "b.parquet", "-o", "m.riskad", "--json"))
    assert (report["rows"], report["spec"]["model"]) == (300, "outliers")
    assert any("--model outliers" in line for line in report["warnings"])


def test_columns_can_be_told_what_they_are(folder):
    table = make_cards().with_columns(mcc=pl.Series([5411, 5812, 7995] * 100))
    table.write_csv("cards.csv")
    base = ("fit", "cards.csv", *FIT, "--json", "--force", "-o", "model.riskad")
    report = json.loads(succeed(*base))
    assert report["columns"] == {
        "card": "identifier",
        "amount": "number",
        "country": "category",
        "mcc": "number",
    }
    options = ("--kind", "mcc=category", "--kind", "card=number", "--drop", "country")
    report = json.loads(succeed(*base, *options))
    assert report["columns"] == {"card": "number", "amount": "number", "mcc": "category"}


# --- mistakes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["card.csv", *FIT], "no file 'card.csv'. Did you mean 'cards.csv'"),
        ([".", *FIT], "no Parquet file at"),
        (["cards.csv", "--label", "lable"], "no column 'lable'. Did you mean 'label'"),
        (["cards.csv", "--label", "label"], "--normal ok, --anomaly fraud"),
        (["cards.csv", "--label", "label", "--normal", "OK"], "Did you mean 'ok'"),
        (["cards.csv", "--label", "label", "--normal", "ok"], "'fraud' (9 rows)"),
        (["cards.csv", *FIT, "--id", "cart"], "Did you mean 'card'"),
        (["cards.csv", *FIT, "--prior", "2"], "prior must be a number strictly between 0 and 1"),
        (["cards.csv", *FIT, "--a", "0"], "a must be a number strictly between 0 and 1"),
        (["cards.csv", *FIT, "--lam", "-1"], "lam must be a number >= 0"),
        (["cards.csv", *FIT, "--budget", "9"], "no setting 'budget'; auto has one: --model"),
        (["cards.csv", *LABELLED, "--loss", "hinge"], "have one: --model shallow"),
        (
            ["cards.csv", *LABELLED, "--max-iter", "9"],
            "shallow, boosted and deep have one: --model shallow",
        ),
        (["cards.csv", *LABELLED, "--budget", "-1"], "budget must be a number strictly between 0"),
        (["cards.csv", *LABELLED, "--model", "boosted", "--lam", "1"], "has no setting 'lam'"),
        (["cards.csv", *FIT, "--ranked", "ranked.ods"], "must end in one of"),
        (["cards.csv", *FIT, "--ranked", "no/ranked.csv"], "there is no folder"),
    ],
)
def test_mistakes_in_fit(folder, arguments, message):
    before = files(folder)
    assert message in fail("fit", *arguments, "-o", "model.riskad")
    assert files(folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "cards.csv", *FIT],
        ["fit", *FIT, "-o", "model.riskad"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--loss", "huge"],
        ["fit", "cards.csv", *LABELLED, "-o", "model.riskad", "--model", "best"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--lam", "small"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--top", "-1"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--seed", "-1"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--seed", str(2**32)],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--kind", "amount"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--anomaly-rate", "2"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--threshold", "f9x"],
        ["fit", "cards.csv", *FIT, "-o", "model.riskad", "--scheduler", "tcp://host:8786"],
        ["score", "model.riskad", "new.csv", "-o", "out.csv", "--top", str(2**63)],
        ["score", "model.riskad", "new.csv", "-o", "out.csv", "--reasons", str(2**63)],
        ["score", "model.riskad"],
        ["bogus"],
    ],
)
def test_mistakes_in_usage(folder, arguments):
    said = fail(*arguments, code=2)
    assert "Usage: " in said
    options = [each for each in arguments if each.startswith("--") and each not in FIT]
    assert all(each.strip("-") in said.replace(" ", "-") for each in options)
    assert files(folder) == ["cards.csv", "new.csv"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"amount,label\n", "no rows"),
        (b"amount,label\n3,ok\n", "--anomaly fraud never occurs"),
        (b"amount,label\n3,ok\n4,fraud\n", "needs an unlabelled row, and there is none"),
        (b"amount,label\n3,\n4,\n", "never occurs"),
        (b"amount,label\n3,ok\n4\n", "line 3: 1 field"),
        (b"amount,label\n3,ok\n\xff,fraud\n", "read as Windows-1252: byte 0xff on line 3"),
        (b"amount,amount\n3,ok\n", "called 'amount_2'"),
        (b"amount,label\n3,ok\n\x81,fraud\n", "line 3: byte 0x81 is neither UTF-8 nor"),
        (b"amount,label\n3,ok\n3,fraud\n3,\n", "every row holds 3"),
        (b"amount,label\ninf,ok\n3,fraud\n4,\n", "most are numbers, but not 'inf' in row 1"),
        (b"label\nok\nfraud\n\n", "nothing to learn from"),
    ],
)
def test_small_and_broken_tables(folder, data, message):
    (folder / "bad.csv").write_bytes(data)
    before = files(folder)
    assert message in fail("fit", "bad.csv", *FIT, "-o", "model.riskad")
    assert files(folder) == before


@pytest.mark.parametrize(
    "convert",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace(",", ";").encode(),
        lambda text: text.replace("FR", '"F,R\nance"').encode(),
        lambda text: text.replace("amount", "größe 国").encode(),
    ],
    ids=["byte order mark", "CRLF", "semicolons", "quoted newlines", "unicode"],
)
def test_tables_from_elsewhere(fitted, convert):
    cards = convert((fitted / "cards.csv").read_text())
    (fitted / "other.csv").write_bytes(cards)
    report = json.loads(
        succeed("fit", "other.csv", *FIT, "--id", "card", "-o", "other.riskad", "--json")
    )
    expected = json.loads(succeed("inspect", "model.riskad", "--json"))
    assert report["labels"] == expected["labels"]
    assert report["fitted"]["objective"] == expected["fitted"]["objective"]


def test_mistakes_in_score(fitted):
    before = files(fitted)
    (fitted / "renamed.csv").write_text(
        (fitted / "new.csv").read_text().replace("amount", "Amount")
    )
    (fitted / "text.csv").write_text("amount,country\n12,FR\nlots,FR\n")
    (fitted / "header.csv").write_text("amount,country\n")
    message = fail("score", "model.riskad", "renamed.csv", "-o", "out.csv")
    assert "- missing: 'amount' (did you mean 'Amount'?)" in message
    for data, message in (
        ("text.csv", "'lots' in row 2 is not a number"),
        ("header.csv", "no rows"),
        ("nowhere.csv", "There is no file"),
        (".", "no Parquet file at"),
    ):
        assert message in fail("score", "model.riskad", data, "-o", "out.csv")
    for model in ("cards.csv", "header.csv"):
        assert "is not a riskad model" in fail("score", model, "new.csv", "-o", "out.csv")
    assert "must end in" in fail("score", "model.riskad", "new.csv", "-o", "out.json")
    succeed("score", "model.riskad", "new.csv", "-o", "out.csv")
    assert "already has columns" in fail("score", "model.riskad", "out.csv", "-o", "out2.csv")
    assert files(fitted) == sorted([*before, "renamed.csv", "text.csv", "header.csv", "out.csv"])


def test_scoring_says_what_is_new(fitted):
    (fitted / "odd.csv").write_text("amount,country\n12,ZZ\n,FR\n")
    output = succeed("score", "model.riskad", "odd.csv", "-o", "out.csv")
    assert "1 row with a new value ('ZZ')" in output
    assert "1 blank filled with the median" in output


def test_existing_files_are_left_alone_without_force(fitted):
    (fitted / "out.csv").write_text("precious")
    before = (fitted / "model.riskad").read_bytes()
    assert "--force" in fail("fit", "cards.csv", *FIT, "-o", "model.riskad")
    assert "--force" in fail("fit", "cards.csv", *FIT, "-o", "m2.riskad", "--ranked", "out.csv")
    assert "--force" in fail("score", "model.riskad", "new.csv", "-o", "out.csv")
    assert (fitted / "out.csv").read_text() == "precious"
    assert (fitted / "model.riskad").read_bytes() == before
    assert not (fitted / "m2.riskad").exists()
    succeed("score", "model.riskad", "new.csv", "-o", "out.csv", "--force")
    assert (fitted / "out.csv").read_text().startswith("card,amount")


def test_outputs_that_cannot_be_written(fitted, monkeypatch):
    assert "is a folder" in fail("score", "model.riskad", "new.csv", "-o", ".")
    (fitted / "dir.csv").mkdir()
    assert "is a folder" in fail("score", "model.riskad", "new.csv", "-o", "dir.csv")
    assert "there is no folder" in fail("score", "model.riskad", "new.csv", "-o", "no/out.csv")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert "does not let you write" in fail("score", "model.riskad", "new.csv", "-o", "out.csv")


def test_a_full_disk_is_a_sentence(fitted, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "out.csv")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    before = files(fitted)
    message = fail("score", "model.riskad", "new.csv", "-o", "out.csv")
    assert "No space left on device: out.csv" in message
    assert files(fitted) == before


def test_arguments_that_are_no_text_are_refused(folder):
    """What a shell passes on of bytes that are not UTF-8 is no text that could be written."""
    for arguments in (
        ["fit", "cards\udcff.csv", *FIT, "-o", "m.riskad"],
        ["fit", "cards.csv", "--label", "\udcff", "-o", "m.riskad"],
        ["fit", "cards.csv", *FIT, "-o", "m\udcff.riskad", "--json"],
    ):
        assert "holds bytes that are not UTF-8" in fail(*arguments, code=2)
    assert files(folder) == ["cards.csv", "new.csv"]


@pytest.mark.parametrize("command", ["drift", "score"])
def test_letters_that_a_terminal_lacks_are_no_failure(fitted, monkeypatch, command):
    monkeypatch.setitem(QUICK, "PYTHONIOENCODING", "ascii")
    os.rename("new.csv", "é.csv")
    more = [] if command == "drift" else ["-o", "scored.csv"]
    process = riskad_process(command, "model.riskad", "é.csv", *more)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert ".csv: 40 rows" in output


def late(*args, **kwargs):
    raise riskad.InputError("failed late")


@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        ("terminal.print_fit", ["fit", "cards.csv", *FIT, "-o", "m.riskad", "--ranked", "r.csv"]),
        (
            "documents.render_page",
            ["fit", "cards.csv", *FIT, "-o", "m.riskad", "--report", "r.html"],
        ),
        ("documents.to_json", ["fit", "cards.csv", *FIT, "-o", "m.riskad", "--report", "r.json"]),
        ("documents.to_json", ["fit", "cards.csv", *FIT, "-o", "m.riskad", "--json"]),
        ("terminal.print_score", ["score", "model.riskad", "new.csv", *OUT]),
        ("documents.to_json", ["score", "model.riskad", "new.csv", "-o", "s.parquet", "--json"]),
        ("terminal.print_explain", ["explain", "model.riskad", "new.csv", *OUT]),
        ("terminal.print_suggest", ["suggest", "model.riskad", "new.csv", *OUT]),
        ("terminal.print_threshold", ["threshold", "model.riskad", "top:5", "-o", "m.riskad"]),
        ("terminal.print_export", ["export", "model.riskad", "m.onnx"]),
        ("terminal.print_refit", ["refit", "model.riskad", "cards.csv", "-o", "m.riskad"]),
        ("terminal.print_model", ["inspect", "model.riskad", "--card", "m.md"]),
        ("terminal.print_look", ["look", "cards.csv", "--page", "look.html"]),
    ],
)
def test_a_command_that_fails_late_leaves_no_file(fitted, monkeypatch, place, arguments):
    if arguments[0] == "export":
        pytest.importorskip("onnx")
    before = files(fitted)
    monkeypatch.setattr(f"riskad.app.report.{place}", late)
    assert "failed late" in fail(*arguments)
    assert files(fitted) == before


def test_two_outputs_need_two_files(folder):
    message = fail("fit", "cards.csv", *FIT, "-o", "a.csv", "--ranked", "./a.csv")
    assert "'a.csv' is named for two different outputs" in message
    assert files(folder) == ["cards.csv", "new.csv"]


def test_a_table_is_not_replaced_by_what_is_made_of_it(fitted):
    for command in (
        ("fit", "cards.csv", *FIT),
        ("refit", "model.riskad", "cards.csv"),
        ("explain", "model.riskad", "cards.csv"),
        ("suggest", "model.riskad", "cards.csv"),
    ):
        before = (fitted / "cards.csv").read_bytes()
        message = fail(*command, "-o", "./cards.csv", "--force")
        assert "'cards.csv' is both read and written" in message
        assert (fitted / "cards.csv").read_bytes() == before


def test_values_are_never_markup_or_escapes(folder):
    table = make_cards().with_columns(card=pl.format("[red]{}\x1b[31m", "card"))
    table.write_csv("cards.csv")
    output = succeed("fit", "cards.csv", *FIT, "--id", "card", "-o", "[bold]m.riskad")
    assert "[red]0" in output
    assert "\\x1b[31m" in output
    assert "\x1b" not in output
    assert "'[bold]m.riskad'" in output


HOSTILE = "x\x1b[31m\x9b2J\u202ey"  # red, erase the screen, from right to left


def test_names_in_errors_notes_and_json_send_nothing_to_the_terminal(folder):
    for name in (HOSTILE, "other"):
        with closing(sqlite3.connect("cards.sqlite")) as database:
            database.execute(f'CREATE TABLE "{name}" (a)')
    make_cards().rename({"amount": HOSTILE}).write_csv(f"{HOSTILE}.csv")
    outputs = [
        fail("look", "cards.sqlite"),
        fail("look", f"cards.sqlite::{HOSTILE}?"),
        fail("look", f"no{HOSTILE}.csv"),
        fail("look", f"{HOSTILE}.csv", "--kind", f"{HOSTILE}=ship"),
        fail("look", f"{HOSTILE}.csv", f"--{HOSTILE}", code=2),
        succeed("look", f"{HOSTILE}.csv"),
        succeed("look", f"{HOSTILE}.csv", "--json"),
    ]
    for output in outputs:
        assert not {"\x1b", "\x9b", "\u202e"} & set(output), output
    assert json.loads(outputs[-1])["columns"][1]["name"] == HOSTILE


# --- as a process ------------------------------------------------------------------------


def riskad_process(*arguments, code="from riskad.cli.main import main; main()", **options):
    # A shell that runs tests in the background has SIGINT ignored.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + code
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=QUICK,
        **options,
    )


def test_help_and_version_load_nothing_heavy():
    code = (
        "import sys; from riskad.cli.main import cli\n"
        "for arguments in (['--help'], ['score', '--help'], ['--version']):\n"
        "    cli.main(arguments, standalone_mode=False)\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'polars', 'rich', 'torch', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    stdout, stderr = riskad_process(code=code).communicate(timeout=PATIENCE)
    assert stderr == "[]\n"
    assert "score [OPTIONS] MODEL DATA" in stdout
    assert riskad.__version__ in stdout


def test_exit_codes_and_streams(folder, monkeypatch, capsys):
    process = riskad_process("fit", "cards.csv", *FIT, "-o", "model.riskad", cwd=folder)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (0, "")
    assert stdout.startswith("cards.csv: 300 rows")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # that of this process stays
    for arguments, code in ((["score", "no.riskad", "new.csv", "-o", "x.csv"], 1), (["fit"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        stdout, stderr = capsys.readouterr()
        assert (ended.value.code, stdout) == (code, "")
        assert "Traceback" not in stderr
        assert "Error: " in stderr


def test_the_documents_list_all_exit_codes():
    """Those that the command line ends with by itself, and those of click's errors."""
    folder = Path(__file__).parents[1]
    source = (folder / "src" / "riskad" / "cli" / "main.py").read_text()
    codes = {int(code) for code in re.findall(r"(?:code = |exit\()(\d+)", source)}
    codes |= {0, click.ClickException.exit_code, click.UsageError.exit_code, ALARM}
    table = re.findall(
        r"^\| ([\d, ]+) \|", (folder / "docs/reference/commands.md").read_text(), re.M
    )
    assert {int(code) for codes in table for code in codes.split(",")} == codes
    assert codes == {0, 1, 2, 3, 130, 143}


SLOW_WRITE = """
import signal, riskad.tables.writing
from riskad.cli.main import main
def slow(part, name, csv):
    part.write(b"half")
    print("half", flush=True)
    signal.pause()
riskad.tables.writing._csv_writer = slow
main()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "kill"]
)
def test_interrupted_in_the_middle_of_writing(fitted, number, code):
    before = files(fitted)
    process = riskad_process(
        "score", "model.riskad", "new.csv", "-o", "out.csv", code=SLOW_WRITE, cwd=fitted
    )
    with process:
        assert process.stdout.readline() == "half\n"
        assert len(files(fitted)) == len(before) + 1
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == code
        assert "Traceback" not in process.stderr.read()
    assert files(fitted) == before


def test_a_reader_that_leaves_early_is_no_error(fitted):
    process = riskad_process("inspect", "model.riskad", cwd=fitted)
    with process:
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait(timeout=PATIENCE)


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "riskad", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=QUICK).stdout
    assert printed.startswith(f"riskad {riskad.__version__}")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal_goes_to_stderr(fitted):
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "riskad", "inspect", "model.riskad", "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=QUICK | {"TERM": "xterm"},
        cwd=fitted,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(stdout)["command"] == "inspect"
    assert b"Reading model.riskad" in shown


def test_score_says_beforehand_how_long_it_takes(capsys):
    now = iter([0.0, 1.0, 2.2, 5.0])
    shown = Progress(clock=lambda: next(now))
    shown.count_rows = lambda: 2_000_000
    shown.hint = lambda seconds: " A quicker model: riskad compress"
    for done in (0, 512, 2_000, 4_000):
        shown.rows(done)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "Scoring about 2,000,000 rows takes about 37 minutes. A quicker model: riskad compress\n"
    )
    for count_rows in (lambda: 10_000, None):  # quick, or of unknown length
        now = iter([0.0, 2.5])
        shown = Progress(clock=lambda now=now: next(now))
        shown.count_rows = count_rows
        for done in (0, 9_000):
            shown.rows(done)
    assert capsys.readouterr() == ("", "")


def test_score_hints_at_quick_scores_only_for_slow_models(fitted, monkeypatch):
    hints = []
    monkeypatch.setattr(shell, "_SECONDS_TO_TELL", 0.0)
    monkeypatch.setattr(shell, "_LONG", 0.0)
    for model in (["shallow"], ["auto", "--budget", "1"], ["auto", "--budget", "1", "--quick"]):
        options = [*LABELLED, "--model", *model, "-o", "m.riskad", "--force"]
        assert run("fit", "cards.csv", *options).exit_code == 0
        result = run("score", "m.riskad", "new.csv", "-o", "s.csv", "--json", "--force")
        assert json.loads(result.stdout)["rows"] == 40
        assert re.match(r"Scoring about \d\d rows takes about 0 seconds\.", result.stderr)
        hints.append(("riskad compress m.riskad" in result.stderr, "--quick: " in result.stderr))
    assert hints == [(False, False), (True, False), (False, True)]
