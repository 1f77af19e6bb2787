"""Scores into databases and folders by day: only new rows, each once, whatever is killed."""

import errno
import itertools
import json
import os
import sqlite3
from contextlib import closing

import duckdb
import polars as pl
import pytest
from support.commands import invoke, run
from support.killing import TARGETS, Commands, make_events, read_ids

import riskad
from riskad.app.model_files import save
from riskad.core.checks import InputError
from riskad.tables.reading import read_table
from riskad.tables.targets import choose_target


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that knows which column names the rows."""
    path = tmp_path_factory.mktemp("model") / "model.riskad"
    labels = riskad.FitSpec(label="status", normal=["ok"], anomaly=["fraud"])
    told = {"id": "payment", "drop": ["paid"], "model": "shallow", "settings": {"lam": 0.01}}
    fit = riskad.fit_table(make_events(300), labels, **told)
    save(fit.model, path, report=fit.report)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def events(n):
    """The first of always the same payments."""
    return make_events(10_000)[:n].drop("status")


def score(model, data, *options, code=0):
    result = run("score", model, data, *options, "--json", code=code)
    return json.loads(result.stdout) if not code else result.output


FULL = OSError(errno.ENOSPC, "No space left on device")


def fails_from(monkeypatch, module, name, k, error=FULL):
    """Let a function fail from its k-th call on."""
    calls, real = itertools.count(1), getattr(module, name)

    def counted(*arguments, **named):
        if next(calls) >= k:
            raise error
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, counted)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("step", ["fsync", "replace", "write_parquet"])
@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out"])
def test_a_full_disk_is_a_sentence_and_leaves_no_part(model, place, monkeypatch, output, step, k):
    events(60).write_csv("new.csv")
    if step.startswith("write"):
        error = pl.exceptions.ComputeError("No space left on device")
        fails_from(monkeypatch, pl.DataFrame, step, k, error)
    else:
        fails_from(monkeypatch, os, step, k)
    into = ["-o", output, *(["--day", "paid", "--add"] if output == "out" else [])]
    result = invoke("score", model, "new.csv", *into)
    assert not result.exit_code or "Error: " in result.output
    if result.exit_code:
        assert "No space left on device" in result.output
        assert not (place / output).is_file()
        assert not list(place.rglob("*.part"))
        monkeypatch.undo()
        monkeypatch.chdir(place)
        run("score", model, "new.csv", *into)
    assert not list(place.rglob("*.part"))


# --- what is written -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_are_written_once_and_only_new_ones_are_added(model, place, kind):
    events(200).write_parquet("events.parquet")
    first = score(model, "events.parquet", *TARGETS[kind])
    assert (first["rows"], first["skipped"]) == (200, 0)
    said = score(model, "events.parquet", *TARGETS[kind], code=1)
    assert "--add" in said
    events(260).write_parquet("events.parquet")
    second = score(model, "events.parquet", *TARGETS[kind], "--add")
    assert (second["rows"], second["skipped"]) == (60, 200)
    assert all(200 <= int(suspect["id"]) < 260 for suspect in second["top"])
    third = score(model, "events.parquet", *TARGETS[kind], "--add")
    assert (third["rows"], third["skipped"], third["top"]) == (0, 260, [])
    assert (
        "260 rows left out" in run("score", model, "events.parquet", *TARGETS[kind], "--add").output
    )
    assert read_ids(kind, place) == list(range(260))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_table_is_scored_into_the_database_that_it_is_in(model, place, kind):
    file = place / f"out.{kind}"
    if kind == "sqlite":
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE events (payment, amount, age, paid)")
            database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", events(80).rows())
            database.commit()
    else:
        with duckdb.connect(str(file)) as database:
            database.register("rows", events(80).to_arrow())
            database.execute("CREATE TABLE events AS SELECT * FROM rows")
    for added in (80, 0):
        told = score(model, f"{file}::events", *TARGETS[kind], "--add")
        assert told["rows"] == added
    assert read_ids(kind, place) == list(range(80))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_force_replaces_a_table_and_no_other(model, place, kind):
    events(50).write_parquet("events.parquet")
    file = f"out.{kind}"
    score(model, "events.parquet", *TARGETS[kind])
    score(model, "events.parquet", "-o", f"{file}::other")
    events(20).write_parquet("events.parquet")
    score(model, "events.parquet", *TARGETS[kind], "--force")
    assert read_ids(kind, place) == list(range(20))
    assert read_table(f"{file}::other").height == 50


# --- mistakes ------------------------------------------------------------------------------


def test_mistakes_are_sentences_and_leave_nothing(model, place):
    events(30).write_parquet("events.parquet")
    data = "events.parquet"
    for options, said in (
        (["-o", "out.csv", "--add"], "is a file, which is written whole"),
        (["-o", "-", "--add"], "is a file, which is written whole"),
        (["-o", "out.sqlite"], "out.sqlite::scored"),
        (["-o", "out.csv", "--day", "paid"], "looks like a file"),
        (["-o", "out", "--day", "pade"], "Did you mean 'paid'?"),
        (["-o", "out", "--day", "amount"], "is not a date such as 2026-11-17"),
        (["-o", "out.sqlite::scored", "--add", "--id", "nobody"], "no column 'nobody'"),
        (["-o", "out.sqlite::scored", "--add", "--id", "paid"], "names several rows"),
        (["-o", "out.csv", "--id", "paymnt"], "Did you mean 'payment'?"),
        (["-o", "nowhere/out.sqlite::scored"], "there is no folder"),
    ):
        assert said in " ".join(score(model, data, *options, code=1).split())
    assert [p.name for p in place.rglob("*") if p.is_file()] in (
        ["events.parquet"],
        ["events.parquet", "_riskad.lock"],
        ["_riskad.lock", "events.parquet"],
    )


def test_a_file_that_is_no_database_is_a_sentence(model, place):
    events(30).write_parquet("events.parquet")
    for name in ("out.sqlite", "out.duckdb"):
        (place / name).write_text("not a database, but something that somebody needs")
        said = score(model, "events.parquet", "-o", f"{name}::scored", "--add", code=1)
        assert "could not be read as" in said
        assert (place / name).read_text().startswith("not a database")


def test_two_runs_do_not_mix_in_a_folder(place):
    first, second = (choose_target("out", "paid", id="payment", add=True) for _ in range(2))
    with first.writing(), pytest.raises(InputError, match="Another run"), second.writing():
        pass


def test_a_run_that_fails_leaves_no_folder(model, place):
    events(30).with_columns(paid=pl.lit("soon")).write_csv("events.csv")
    assert "'soon'" in score(model, "events.csv", "-o", "out", "--day", "paid", code=1)
    assert not (place / "out").exists()


# --- kill -9 --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def commands():
    with Commands() as server:
        yield server


STEPS = {
    "folder": [("os", "replace", k) for k in range(1, 4)],
    "sqlite": [("polars", "read_ipc", k) for k in (1, 2)],
    "duckdb": [("polars", "read_ipc", k) for k in (1, 2)],
}


@pytest.mark.parametrize("kind", STEPS)
def test_killed_before_each_step_of_writing(model, place, kind, commands):
    """Those of a folder are its files, one for each of three days."""
    call = ["score", model, "events.parquet", *TARGETS[kind], "--add"]
    events(100).write_parquet("events.parquet")
    for round_, step in enumerate(STEPS[kind]):
        events(100 + 50 * round_).write_parquet("events.parquet")
        assert commands.run(*call, step=step) == -9
        ids = read_ids(kind, place)
        assert len(ids) == len(set(ids))
    assert commands.run(*call) == 0
    assert read_ids(kind, place) == list(range(100 + 50 * round_))
    assert not list(place.rglob("*.part"))


def test_a_folder_that_is_not_replaced_is_not_touched(tmp_path):
    target = choose_target(tmp_path / "out", "when", force=True)
    with pytest.raises(InputError, match="is not replaced"), target.writing():
        pass
    assert not (tmp_path / "out").exists()
