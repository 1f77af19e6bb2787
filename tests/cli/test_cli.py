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

import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from support.cards import FIT, LABELLED, RULE, SHALLOW, make_cards
from support.commands import fail, invoke, result_of, succeed
from support.loops import each

import riskad
from riskad.app import demo
from riskad.app import explain as explaining
from riskad.app.fit import fit_table
from riskad.cli.main import main
from riskad.cli.shell import Progress
from riskad.core.losses import LOSSES
from riskad.core.regularization import PENALTIES
from riskad.core.risks import RISKS
from riskad.detectors import registry
from riskad.detectors.linear.feature_maps import FEATURE_MAPS
from riskad.detectors.linear.lambda_search import LAMBDA_RULES
from riskad.detectors.registry import DETECTORS, FEATURE_MAP, LAMBDA

OUT, NEW, F1 = ["-o", "out.csv"], ["-o", "m.riskad"], ["--threshold", "f1"]
QUICK = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be in a folder with cards.csv, and new.csv without labels."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_cards().write_csv("cards.csv")
    make_cards(40, seed=1).drop("label").write_csv("new.csv")
    return tmp_path


def files(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def fitted(folder, card_model):
    shutil.copy(card_model, folder)
    return folder


# --- the way through ---------------------------------------------------------------------


def test_score_names_and_counts_what_rules_hide(fitted):
    rules = RULE.format("all XX", "country = 'XX'", "2999-01-01")
    Path("rules.toml").write_text(rules + RULE.format("old", "amount > 0", "2020-01-01"))
    assert "Harmless" not in succeed("score", "model.riskad", "new.csv", "-o", "plain.csv")
    ruled = ["score", "model.riskad", "new.csv", "--harmless", "rules.toml"]
    output = succeed(*ruled, "-o", "scored.csv")
    before, after = (pl.read_csv(name) for name in ("plain.csv", "scored.csv"))
    hidden = before["is_anomaly"] & (before["country"] == "XX")
    assert hidden.any()
    assert after["is_anomaly"].equals(before["is_anomaly"] & ~hidden)
    assert (after["suppressed_by"] == "all XX").fill_null(False).equals(hidden)
    assert f"all XX: {hidden.sum()} of {hidden.sum()} matching rows suppressed" in output
    assert "the rule 'old' of rules.toml ended on 2020-01-01" in " ".join(output.split())
    told = result_of(*ruled, "-o", "again.csv")["suppressed"]
    assert [each["suppressed"] for each in told] == [hidden.sum(), 0]
    assert [each["expired"] for each in told] == [False, True]


# Seen when the file is read, with the model, and with the rows.
@each(
    ("where", "message"),
    [
        ("amount <", "cannot be read"),
        ("amont < 1", "Did you mean 'amount'"),
        ("amount > 0 OR amount <= 0 OR country = 'x'", "matches"),
    ],
)
def test_rules_that_cannot_be_right_leave_nothing_behind(fitted, where, message):
    Path("rules.toml").write_text(RULE.format("a", where, "2999-01-01"))
    error = fail("score", "model.riskad", "new.csv", *OUT, "--harmless", "rules.toml")
    assert message in " ".join(error.split())
    assert not Path("out.csv").exists()


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


@pytest.mark.slow
@each("table", ["cards", "wide"])
def test_the_summary_of_a_fit_has_at_most_40_lines(folder, table):
    words = LABELLED
    if table == "wide":
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


def test_the_model_is_written_before_its_columns_are_explained(folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(explaining, "explain_rows", interrupted)
    assert invoke("fit", "cards.csv", *FIT, "--id", "card", "-o", "model.riskad").exit_code != 0
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


def test_thresholds_on_the_command_line(fitted):
    output = succeed("threshold", "model.riskad", "top:5", "-o", "strict.riskad")
    assert re.search(r"threshold top:5 \(was risk\)", output)
    assert re.search(r"Flagged +5 of \d+ unlabelled rows of the fit", output)
    shown = succeed("inspect", "strict.riskad")
    assert re.search(r"Decision +is_anomaly where anomaly_score > \S+ \(threshold top:5\)", shown)
    assert re.search(r"calibrated on \d+ normal rows and \d+ anomalies", shown)
    said = " ".join(shown.split())
    assert re.search(r"estimated rate of anomalies like the labelled ones: \d", said)
    fit = ("fit", "cards.csv", *FIT, "-o", "b.riskad", "--force", "--threshold")
    succeed(*fit, "top")  # rules have defaults
    assert re.search(r"Flagged +5 of \d+ unlabelled rows", succeed(*fit, "top:5"))
    told = result_of("threshold", "b.riskad", "risk", "-o", "c.riskad")
    first = result_of("inspect", "model.riskad")
    assert told["threshold"] == pytest.approx(first["threshold"])
    output = succeed("score", "model.riskad", "new.csv", "-o", "top.csv", "--threshold", "top:3")
    assert "3 of 40 rows" in output


@each(
    ("arguments", "message"),
    [
        (["score", "model.riskad", "new.csv", *OUT, "--threshold", "f9x"], "cannot be"),
        (["score", "model.riskad", "new.csv", *OUT, "--fdr", "2"], "fdr must be"),
        (["score", "model.riskad", "new.csv", *OUT, "--fdr", "0.1", *F1], "give one of them"),
        (["threshold", "model.riskad", "false-alarms:1e-4", "-o", "b.riskad"], "the smallest is"),
        (["threshold", "model.riskad", "none", "-o", "b.riskad"], "is not known"),
    ],
)
def test_mistakes_in_thresholds(fitted, arguments, message):
    assert message in fail(*arguments)
    assert files(fitted) == ["cards.csv", "model.riskad", "new.csv"]


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
    found = result_of("export", "model.riskad", "other.onnx")
    assert found["inputs"] == {"amount": "number, NaN if blank", "country": 'text, "" if blank'}
    assert found["largest_difference"] is None


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
    # By convention outliers flags 5 %.
    assert flagged <= fraud if model == "outliers" else flagged == fraud
    report = result_of("explain", "m.riskad", "new.csv", "--rows", 2)
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


def test_explain_takes_the_row_that_is_named_or_says_that_there_is_none(fitted):
    report = result_of("explain", "model.riskad", "new.csv", "--only", "00007", "--only", " 00003 ")
    assert {(row["id"], row["row"]) for row in report["explained"]} == {("00007", 8), ("00003", 4)}
    cards = pl.read_csv("new.csv", infer_schema=False)
    cards.with_columns(card=pl.Series(["twice"] * 2 + ["once"] * 38)).write_csv("again.csv")
    found = result_of("explain", "model.riskad", "again.csv", "--only", "twice")
    assert sorted(row["row"] for row in found["explained"]) == [1, 2]
    cards.drop("card").write_csv("nameless.csv")
    found = result_of("explain", "model.riskad", "nameless.csv", "--only", 8)
    assert [row["row"] for row in found["explained"]] == [8]
    asked = ("explain", "model.riskad", "new.csv", "--only")
    said = "No row has '0007' in column 'card'. Did you mean '00007'?"
    assert said in fail(*asked, "0007")
    assert "Did you mean '000" in fail(*asked, "00O07")
    assert "Its values are '00000', '00001', '00002' and 37 more." in fail(*asked, "Miller")
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
    assert result_of("explain", "model.riskad", "new.csv", "--rows", 1)["command"] == "explain"


def test_hostile_tables_stay_text(folder):
    """A column's name and a value that a spreadsheet would run, and a terminal obey."""
    name, value = "=cmd|' /C calc'!A0", "@SUM(1)\x1b[31m"
    table = make_cards().rename({"country": name}).with_columns(pl.col(name).replace("XX", value))
    table.write_csv("cards.csv")
    said = succeed("fit", "cards.csv", *FIT, "--id", "card", "-o", "[bold]m.riskad")
    assert "'[bold]m.riskad'" in said  # no markup
    os.rename("[bold]m.riskad", "model.riskad")
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
    options = ("--id", "card", "-o", "model.riskad", "--ranked", "ranked.csv")
    report = json.loads(succeed("fit", "cards.csv", *FIT, *options, "--json"))
    assert report["command"] == "fit"
    assert report["written"] == {"model": "model.riskad", "ranked": "ranked.csv"}
    assert sum(report["labels"].values()) == report["rows"] == 300
    assert report["settings"]["risk"] == "rad"
    assert 0.5 < report["auc"]["low"] <= report["auc"]["value"] <= 1
    assert len(report["top"]) == 10
    report = result_of("score", "model.riskad", "new.csv", "-o", "out.csv", "--top", "2")
    assert report["command"] == "score"
    assert report["top"][0]["anomaly_score"] >= report["top"][1]["anomaly_score"]
    report = result_of("inspect", "model.riskad")
    assert (report["command"], report["spec"]["id"], report["rows"]) == ("inspect", "card", 300)
    quick = partial(fit_table, model="shallow")  # what it says does not depend on the model
    monkeypatch.setattr(demo, "fit_table", quick)
    assert result_of("demo")["riskad"]["auc"]["value"] > 0.9


def test_settings_reach_the_model(folder):
    options = "--loss logistic --risk rad --a 0.3 --prior 0.9 --lam 0.5 --penalty l2"
    options += " --feature-map poly --max-iter 77 --seed 5"
    report = result_of("fit", "cards.csv", *FIT, "-o", "model.riskad", *options.split())
    expected = {"loss": "logistic", "a": 0.3, "prior": 0.9, "lam": 0.5, "feature_map": "poly"}
    expected |= {"max_iter": 77, "random_state": 5, "risk": "rad", "penalty": "l2"}
    assert expected.items() <= report["settings"].items()
    assert report["fitted"]["lambda"] == 0.5


def test_help_of_fit_has_the_choices_of_the_library_headings_and_each_option_once():
    said = "".join(succeed("fit", "--help").split())
    for choices in (LOSSES, RISKS, PENALTIES, FEATURE_MAPS):
        assert "|".join(choices) in said
    assert all(entry.name + "".join(entry.summary.split()) in said for entry in DETECTORS.values())
    assert set(LAMBDA.choices) == set(LAMBDA_RULES)
    assert set(FEATURE_MAP.choices) == set(FEATURE_MAPS)
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


def test_files_without_labels_are_ranked_as_one_table(folder):
    pytest.importorskip("pyarrow")
    cards = make_cards().drop("label")
    for name, rows in (("a", cards[:200]), ("b", cards[200:])):
        rows.write_parquet(f"{name}.parquet")
    report = result_of("fit", "a.parquet", "b.parquet", "-o", "m.riskad")
    assert (report["rows"], report["spec"]["model"]) == (300, "outliers")
    assert any("--model outliers" in line for line in report["warnings"])


def test_columns_can_be_told_what_they_are(folder):
    table = make_cards().with_columns(mcc=pl.Series([5411, 5812, 7995] * 100))
    table.write_csv("cards.csv")
    base = ("fit", "cards.csv", *FIT, "--force", "-o", "model.riskad")
    found = result_of(*base)["columns"]
    assert " ".join(found.values()) == "identifier number category number"
    options = ("--kind", "mcc=category", "--kind", "card=number", "--drop", "country")
    assert result_of(*base, *options)["columns"] == {
        "card": "number",
        "amount": "number",
        "mcc": "category",
    }


# --- mistakes ----------------------------------------------------------------------------


@each(
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


@each(
    ("arguments", "message"),
    [
        (["--time", "t"], "give --window"),
        (["--window", "1h"], "--window 1h needs --time VALUE"),
        (["--step", "1h"], ""),
    ],
)
def test_a_series_to_label_needs_a_clock_and_a_window(folder, arguments, message):
    before = files(folder)
    assert message in fail("label", "cards.csv", *arguments, code=2)
    assert files(folder) == before


FIT_CARDS = ["fit", "cards.csv", *FIT, "-o", "model.riskad"]
NO_VALUES = (
    *(("--lam", "small"), ("--top", "-1"), ("--seed", "-1"), ("--seed", str(2**32))),
    *(("--kind", "amount"), ("--anomaly-rate", "2"), ("--threshold", "f9x")),
    ("--scheduler", "tcp://host:8786"),
)


@each(
    "arguments",
    [
        ["fit", "cards.csv", *FIT],
        ["fit", *FIT, "-o", "model.riskad"],
        [*FIT_CARDS, "--loss", "huge"],
        ["fit", "cards.csv", *LABELLED, "-o", "model.riskad", "--model", "best"],
        *([*FIT_CARDS, name, value] for name, value in NO_VALUES),
        ["score", "model.riskad", "new.csv", *OUT, "--top", str(2**63)],
        ["score", "model.riskad", "new.csv", *OUT, "--reasons", str(2**63)],
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


def test_arguments_that_are_no_text_are_refused(folder):
    """What a shell passes on of bytes that are not UTF-8 is no text that could be written."""
    for arguments in (
        ["fit", "cards\udcff.csv", *FIT, "-o", "m.riskad"],
        ["fit", "cards.csv", "--label", "\udcff", "-o", "m.riskad"],
        ["fit", "cards.csv", *FIT, "-o", "m\udcff.riskad", "--json"],
    ):
        assert "holds bytes that are not UTF-8" in fail(*arguments, code=2)
    assert files(folder) == ["cards.csv", "new.csv"]


@pytest.mark.slow
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
        ("documents.render_page", ["fit", "cards.csv", *FIT, *NEW, "--report", "r.html"]),
        ("documents.to_json", ["fit", "cards.csv", *FIT, *NEW, "--report", "r.json"]),
        ("documents.to_json", ["fit", "cards.csv", *FIT, *NEW, "--json"]),
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


def test_a_table_is_not_replaced_by_what_is_made_of_it(fitted):
    for command in (
        ("fit", "cards.csv", *FIT),
        ("refit", "model.riskad", "cards.csv"),
        ("explain", "model.riskad", "cards.csv"),
        ("suggest", "model.riskad", "cards.csv"),
        ("label", "cards.csv"),
    ):
        before = (fitted / "cards.csv").read_bytes()
        option = "--export" if command[0] == "label" else "-o"
        message = fail(*command, option, "./cards.csv", "--force")
        assert "'cards.csv' is both read and written" in message
        assert (fitted / "cards.csv").read_bytes() == before


def test_no_other_input_is_replaced_by_an_output(fitted):
    journal = fitted / "answers.jsonl"
    journal.write_text("answers\n")
    for path, *command in (
        ("model.riskad", "inspect", "model.riskad", "--card"),
        ("model.riskad", "report", "model.riskad", "cards.csv", "-o"),
        ("model.riskad", "export", "model.riskad"),
        ("answers.jsonl", "fit", "cards.csv", *FIT, "--journal", journal, "-o"),
        ("cards.csv", "refit", "model.riskad", "new.csv", "--held-out", "cards.csv", "-o"),
    ):
        before = (fitted / path).read_bytes()
        fail(*command, path, "--force")
        assert (fitted / path).read_bytes() == before


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
        "def show(arguments, heavy):\n"
        "    cli.main(arguments, standalone_mode=False)\n"
        "    print(sorted(set(heavy.split()) & set(sys.modules)), file=sys.stderr)\n"
        "for arguments in (['--help'], ['score', '--help'], ['--version']):\n"
        "    show(arguments, 'numpy scipy sklearn polars rich torch safetensors')\n"
        "show(['fit', '--help'], 'torch lightgbm polars')\n"
    )
    stdout, stderr = riskad_process(code=code).communicate(timeout=PATIENCE)
    assert stderr == 4 * "[]\n"
    assert "score [OPTIONS] MODEL DATA" in stdout
    assert riskad.__version__ in stdout


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(fitted):
    process = riskad_process("inspect", "model.riskad", cwd=fitted)
    with process:
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait(timeout=PATIENCE)


@pytest.mark.slow
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
