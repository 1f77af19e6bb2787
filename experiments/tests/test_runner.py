"""The runner: records that survive anything, parallel runs, and the command line."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from experiments import __main__ as command_line
from experiments.datasets import Dataset, splits
from experiments.records import Records, commit, read_records, row_key, versions
from experiments.runner import Cell, _interrupt_later, _pool, _submit, check, run, seed_of
from experiments.tests.small import experiment, run_cell
from riskad import InputError

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 120  # seconds, on a busy machine


def results(folder):
    """Records less their times, by cell."""
    rows = read_records(folder / "rooms" / "small.parquet").to_dicts()
    names = ("dataset", "method", "trial", "prior")
    kept = {
        row_key(row, names): {k: v for k, v in row.items() if k != "fit_seconds"} for row in rows
    }
    assert len(kept) == len(rows), "a cell was recorded twice"
    return kept


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The records of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    run(experiment(), results=folder)
    return results(folder)


# --- cells and records -------------------------------------------------------------------


def test_seeds_depend_on_every_part_of_the_path_and_never_change():
    assert seed_of(0, "pendigits", 3, "split") == 1317296130
    places = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a", 1, "x"), (0, "a1")]
    assert len({seed_of(*place) for place in places}) == len(places)


def test_cells_are_mappings_that_can_be_compared():
    cell = Cell(dataset="cardio", trial=1, a=None)
    assert cell == {"dataset": "cardio", "trial": 1}
    assert {cell, Cell(trial=1, dataset="cardio")} == {cell}
    with pytest.raises(TypeError):
        cell["trial"] = 2


def test_cells_are_chosen_by_a_pattern_or_at_random():
    small = experiment("plain", "slow")
    assert {cell["dataset"] for cell in small.chosen("wine/*")} == {"wine"}
    assert len(small.chosen("5")) == 5
    assert small.chosen(5) == small.chosen("5")
    with pytest.raises(InputError, match=r"no cell of 'small' matches 'wien.*glass/plain/0"):
        small.chosen("wien/*")


def test_columns_of_words_and_numbers_are_text_and_identify_all_the_same(tmp_path, straight):
    run(experiment(), results=tmp_path)
    frame = read_records(tmp_path / "rooms" / "small.parquet")
    assert frame.schema["prior"] == pl.String
    assert frame.schema["trial"] == pl.Int64
    assert frame.columns[:3] == ["experiment", "dataset", "method"]
    assert frame["commit"].unique().to_list() == [commit()]
    assert frame["versions"].unique().to_list() == [versions()]
    assert run(experiment(), results=tmp_path).done == 0


def test_a_torn_line_is_cut_off_and_nothing_else(tmp_path):
    path = tmp_path / "r.parquet"
    journal = tmp_path / "r.journal.jsonl"
    journal.write_bytes(b'{"status":"ok","x":1}\n{"status":"ok","x":2}\n{"status":"o')
    assert read_records(path)["x"].to_list() == [1, 2]
    with Records(path, identity=("x",)) as records:
        records.append({"status": "ok", "x": 3})
        assert records.frame["x"].to_list() == [1, 2, 3]
    assert read_records(path)["x"].to_list() == [1, 2, 3]
    assert not journal.exists()


def test_a_journal_that_was_folded_but_not_removed_changes_nothing(tmp_path):
    path = tmp_path / "r.parquet"
    with Records(path, identity=("x",)) as records:
        records.append({"status": "ok", "x": 1, "auc": 0.5})
        line = (tmp_path / "r.journal.jsonl").read_bytes()
    (tmp_path / "r.journal.jsonl").write_bytes(line)
    with Records(path, identity=("x",)):
        pass
    assert len(read_records(path)) == 1


def test_two_runs_cannot_write_to_one_file(tmp_path):
    first, second = (Records(tmp_path / "r.parquet", identity=("x",)) for _ in range(2))
    with first, pytest.raises(InputError, match="another run is writing"), second:
        pass


# --- runs --------------------------------------------------------------------------------


def test_processes_give_the_same_records(tmp_path, straight):
    run(experiment(), results=tmp_path, jobs=2)
    assert results(tmp_path) == straight


def test_a_run_goes_on_where_another_stopped(tmp_path, straight):
    cells = list(experiment().cells())
    run(experiment(), cells=cells[:5], results=tmp_path)
    states = []
    outcome = run(experiment(), results=tmp_path, progress=lambda *state: states.append(state))
    assert (outcome.before, outcome.done) == (5, len(cells) - 5)
    assert (states[0], states[-1]) == ((5, 24), (24, 24))
    assert results(tmp_path) == straight


def test_cells_can_be_run_anew(tmp_path, straight):
    path = tmp_path / "rooms" / "small.parquet"
    run(experiment(), results=tmp_path)
    times = read_records(path)["fit_seconds"]
    some = list(experiment().cells())[:3]
    assert run(experiment(), cells=some, resume=False, results=tmp_path).done == 3
    assert (read_records(path)["fit_seconds"] != times).sum() == 3
    assert results(tmp_path) == straight


def test_a_failure_is_a_row_with_its_reason(tmp_path):
    mixed = experiment("plain", "failing", "skipping", "warning", trials=1)
    assert run(mixed, results=tmp_path).failed == 4
    rows = {row["method"]: row for row in results(tmp_path).values()}
    assert rows["failing"]["status"] == "failed"
    assert rows["failing"]["reason"] == "RuntimeError: not today"
    assert rows["failing"]["auc"] is None
    assert rows["skipping"]["status"] == "skipped"
    assert rows["warning"]["warnings"] == ["a single value"]
    assert run(mixed, results=tmp_path).done == 0


def test_a_process_that_dies_is_a_failed_row_and_the_others_go_on(tmp_path):
    outcome = run(experiment("plain", "dying", trials=1), results=tmp_path, jobs=2)
    assert (outcome.done, outcome.failed) == (8, 4)
    for row in results(tmp_path).values():
        assert row["status"] == ("failed" if row["method"] == "dying" else "ok")
        assert ("died" in (row["reason"] or "")) == (row["method"] == "dying")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_missing_set_is_noted_once_and_the_others_are_run(tmp_path, jobs):
    small = experiment(datasets=("glass", "absent"), trials=2)
    for _ in range(2):
        outcome = run(small, results=tmp_path, jobs=jobs)
        assert outcome.missing == ["absent"]
        (noted,) = (row for row in results(tmp_path).values() if row["status"] == "not run")
        assert (noted["dataset"], noted["reason"]) == ("absent", "absent.npz is not here")
    assert "not available: absent" in str(outcome)
    assert outcome.before == 4


def test_cells_that_are_run_again_are_compared_with_their_records(tmp_path):
    small = experiment()
    cells = list(small.cells())
    run(small, cells=cells[1:], results=tmp_path)
    path = tmp_path / "rooms" / "small.parquet"
    frame = read_records(path)
    frame.with_columns(auc=pl.col("auc") + (pl.col("trial") == 1) * 0.1).write_parquet(path)
    lines = dict(check(small, cells, results=tmp_path))
    assert lines[cells[0]] == ["status is ok, recorded was None", "auc is 0.5, recorded was None"]
    assert lines[cells[1]] == []
    (line,) = lines[Cell(dataset="wine", method="plain", trial=1, prior=0.8)]
    assert line.startswith("auc is 0.51, recorded was 0.61")
    assert read_records(path).height == frame.height


# --- kills and Ctrl-C --------------------------------------------------------------------


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(word) for word in listed.stdout.split()]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start(folder, **more):
    command = [sys.executable, "-m", "experiments.tests.small", str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY, **more)


def test_a_killed_run_loses_only_what_was_in_flight(tmp_path):
    """Killed twice at arbitrary moments, with its workers; the third run completes the records."""
    journal = tmp_path / "rooms" / "small.journal.jsonl"
    written = 0
    for wanted in (3, 9):
        process = start(tmp_path)
        wait_for(lambda wanted=wanted: n_lines(journal) >= wanted)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda workers=workers: not any(map(is_alive, workers)))  # no orphan goes on
        assert n_lines(journal) >= max(wanted, written)
        written = n_lines(journal)
    outcome = run(experiment("slow"), results=tmp_path)
    assert outcome.before >= written
    run(experiment("slow"), results=tmp_path / "expected")
    assert results(tmp_path) == results(tmp_path / "expected")


def _heed_ctrl_c():
    """A shell starts what runs in its background with Ctrl-C ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def ctrl_c():
    before = signal.getsignal(signal.SIGINT)
    _heed_ctrl_c()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("done", [0, 2], ids=["workers-importing", "cells-done"])
def test_an_interrupted_run_ends_in_a_sentence_and_goes_on_later(tmp_path, done):
    program = (
        "import sys; from experiments import __main__ as m; from experiments.tests import small\n"
        "if __name__ == '__main__':\n"
        "    m.find = lambda name: small.experiment('slow', trials=1000); sys.exit(m.main())"
    )
    (tmp_path / "go.py").write_text(program)
    options = ["run", "small", "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "go.py"), *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_heed_ctrl_c,
    )
    journal = tmp_path / "rooms" / "small.journal.jsonl"
    if done:
        wait_for(lambda: n_lines(journal) >= done)
    else:
        wait_for(lambda: len(children(process.pid)) > 1)  # a tracker, and a worker that imports
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does in a terminal
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Interrupted. Run the same command again" in errors
    assert b"Traceback" not in errors
    if done:
        assert done <= len(results(tmp_path)) < 4000


def test_ctrl_c_waits_until_a_worker_is_started(ctrl_c):
    """Threads of libraries let the signal through, whatever the main thread blocks."""
    begin, sent = threading.Event(), threading.Event()

    def interrupt():
        begin.wait(PATIENCE)
        signal.raise_signal(signal.SIGINT)  # in this thread, which does not block it
        sent.set()

    reached = []

    def start_worker():
        with _interrupt_later():
            begin.set()
            sent.wait(PATIENCE)
            reached.append(True)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        start_worker()
    thread.join()
    assert reached


def test_processes_import_nothing_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__ + ' ')\n"
    for name in {*sys.stdlib_module_names, "sitecustomize", "riskad", "numpy", "polars"}:
        (tmp_path / f"{name}.py").write_text(code)
    cell = Cell(dataset="glass", method="plain", trial=0)
    with _pool(1) as pool:
        assert _submit(pool, run_cell, cell).result(PATIENCE)["auc"] == 0.5
    assert not (tmp_path / "imported").exists()


# --- the command line --------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, tmp_path):
    """The command line with the small experiment alone, as exit code and output."""
    small = experiment(datasets=("glass", "absent"), trials=2)
    monkeypatch.setattr(command_line, "rooms", lambda: [("rooms", {"small": small})])

    def invoke(*words):
        result = CliRunner().invoke(command_line.cli, words)
        return result.exit_code, result.output, result.exception

    return invoke


def test_the_command_line_runs_an_experiment_and_writes_its_pages(command, tmp_path):
    code, output, _ = command("run", "small", "--out", str(tmp_path))
    assert code == 0, output
    assert "4 cells run" in output
    assert "not available: absent" in output
    assert "4 were there" in command("run", "small", "--out", str(tmp_path))[1]
    page = tmp_path / "rooms" / "page.md"
    assert page.read_text() == "5 records\n"
    page.unlink()
    command("report", "small", "--out", str(tmp_path))
    assert page.exists()
    code, output, _ = command("check", "small", "--cells", "glass/*", "--out", str(tmp_path))
    assert (code, output.splitlines()[-1]) == (0, "4 of 4 cells are as recorded.")
    assert "no cell of 'small' matches" in str(
        command("check", "small", "--cells", "absent/*", "--out", str(tmp_path))[2]
    )


def test_the_command_line_lists_experiments_and_cells(command):
    assert "small: A small one" in command("list")[1]
    assert command("list", "small")[1].splitlines()[0] == "glass/plain/0/prior=true"


def test_the_command_line_says_what_is_wrong(command, tmp_path):
    assert "Did you mean 'small'?" in str(command("run", "smal")[2])
    assert "Run the experiment first" in str(command("report", "small", "--out", str(tmp_path))[2])


def test_a_room_whose_packages_are_missing_says_so(monkeypatch, capsys):
    monkeypatch.setattr(command_line, "ROOMS", ("no_such_room",))
    with pytest.raises(InputError):
        command_line.find("small")
    assert "no_such_room cannot be loaded" in capsys.readouterr().err


def test_the_experiment_of_the_readme_runs(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(300) < 0.2, -1, 1).astype(np.int16)
    data = Dataset("cardio", rng.normal(size=(300, 3)) + (truth[:, None] == -1), truth)
    monkeypatch.setattr(splits, "_load", lambda name: data)
    text = (REPOSITORY / "experiments" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    names = {}
    exec(block, names)
    assert run(names["MINE"], results=tmp_path).done == 6
    path = names["MINE"].path(tmp_path)
    names["MINE"].report(read_records(path), path.parent)
    assert (path.parent / "losses.md").read_text().count("\n") == 4
