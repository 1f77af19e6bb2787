"""The fuzzer of tests/fuzz finds nothing in 2,000 inputs, and would if there were something."""

import json
import multiprocessing
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource")
pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from random import Random

from fuzz import bases, play, runner

from riskad import DataWarning


@pytest.mark.slow
def test_no_input_ends_in_a_traceback_a_hang_or_half_done_work():
    summary = runner.run(2000, seed=0)
    shown = [
        f"{group['count']} x {group['verdict']} {group['where']}: {group['replay']}\n"
        f"{group['command']}\n{group['message'][-500:]}"
        for group in summary["failures"][:5]
    ]
    assert summary["inputs"] == 2000
    assert not summary["failures"], "\n\n".join(shown)
    assert summary["peak_memory_mb"] < 2000


def test_the_committed_run_of_100_000_inputs_found_nothing():
    root = Path(__file__).parents[1]
    summary = json.loads((root / "results/fuzz/summary.json").read_text())
    assert summary["inputs"] == 100_000
    assert summary["failures"] == []
    assert summary["outcomes"]["ok"] + summary["outcomes"]["sentence"] == 100_000
    assert set(summary["by_kind"]) == set(runner.KINDS)
    assert summary["peak_memory_mb"] < 2000


def test_the_committed_run_of_20_000_model_files_found_nothing():
    root = Path(__file__).parents[1]
    summary = json.loads((root / "results/fuzz/model_files/summary.json").read_text())
    assert summary["inputs"] == 20_000
    assert summary["failures"] == []
    assert summary["outcomes"]["ok"] + summary["outcomes"]["sentence"] == 20_000
    assert set(summary["by_kind"]) == set(runner.MODEL_KINDS)
    assert summary["peak_memory_mb"] < 2000


def test_every_file_of_the_fixtures_is_changed():
    """`tests/test_model_format.py` sees to it that these files hold every type."""
    fixtures = Path(__file__).parent / "fixtures" / "models"
    assert {f"fixture_{path.stem}" for path in fixtures.glob("*.riskad")} <= set(bases.NAMES)


def leave(code, said="", name=None, text=""):
    def main(words):
        if name:
            with open(name, "a") as file:
                file.write(text)
        print(said, end="", file=sys.stderr)
        sys.exit(code)

    return main


def fail(words):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("main", "verdict"),
    [
        (leave(0), "ok"),
        (leave(1, "Error: why"), "sentence"),
        (leave(1), "mute"),
        (leave(3, "Error: why"), "mute"),
        (fail, "traceback"),
        (leave(1, "Error: why", "out.csv"), "half-written"),
        (leave(1, "Error: why", "old.csv", "more"), "half-written"),
        (leave(0, "", ".out.csv.part"), "half-written"),
        (leave(0, "", "scored.csv", "anomaly_score\n1.5\nnan\n"), "silent"),
        (leave(0, "", "scored.csv", "anomaly_score\n1.5\n-inf\n"), "ok"),
    ],
)
def test_a_command_is_judged_by_what_it_says_and_leaves(main, verdict, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(play, "main", main)
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "table.csv").write_text("amount\n1.5\n2.5\n")
    step = ["riskad", "score", "model.riskad", "table.csv"]
    assert play._judge(step, tmp_path).verdict == verdict


def test_scores_that_are_not_finite_are_silent_unless_a_warning_says_so(tmp_path, monkeypatch):
    class Model:
        warning = None

        def score_samples(self, X):
            if self.warning:
                warnings.warn("not finite", self.warning, stacklevel=2)
            return [float("inf")] * len(X)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(play, "read_header", lambda path: None)
    monkeypatch.setattr(play.riskad, "load", lambda path: Model(), raising=False)
    verdicts = []
    for Model.warning in (None, RuntimeWarning, DataWarning):
        verdicts.append(play._judge(["python", "score", "x", "fixture_shallow"], tmp_path).verdict)
    assert verdicts == ["silent", "silent", "ok"]


@pytest.mark.parametrize("kind", ["csv", "numbers", "parquet", "options"])
def test_an_input_is_made_of_its_seed_alone(kind, tmp_path):
    play.prepare("plain.csv", tmp_path)
    made = []
    for number in (7, 7, 8):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        steps = play.GENERATORS[kind](Random(f"0/{kind}/{number}"), folder, tmp_path)
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        made.append((steps, files))
    assert made[0] == made[1] != made[2]


@pytest.mark.slow
def test_a_worker_that_hangs_or_dies_is_reported_and_replaced(tmp_path, monkeypatch):
    worker = runner._Worker(0, str(tmp_path))
    try:
        assert worker.ask(("prepare", "plain.csv")) is None
        assert worker.ask(("options", 0))[0] in ("ok", "sentence")
        worker._process.kill()
        assert worker.ask(("options", 0))[0] == "crash"
        monkeypatch.setattr(runner, "HANG_SECONDS", 0)
        monkeypatch.setattr(runner, "_POLL_SECONDS", 0)
        assert worker.ask(("options", 0))[0] == "hang"
        monkeypatch.undo()
        assert worker.ask(("options", 0))[0] in ("ok", "sentence")
        monkeypatch.setattr(runner, "MEMORY_BYTES", 1)
        assert worker.ask(("options", 0))[0] == "memory"
    finally:
        worker.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a parent's memory")
def test_a_worker_is_not_charged_for_the_memory_of_its_parent():
    ours = np.ones(50_000_000)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        theirs = pool.submit(runner.peak_memory).result()
    assert 5_000_000 < theirs < runner.peak_memory() - ours.nbytes / 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a process computed")
def test_a_hang_is_judged_by_the_seconds_that_a_process_computed():
    """On a busy machine a sound process may wait long for its turn."""
    works, waits = (
        subprocess.Popen(
            [sys.executable, "-c", f"print(flush=True)\nwhile True: {what}"], stdout=-1
        )
        for what in ("pass", "__import__('time').sleep(60)")
    )
    try:
        for process in (works, waits):
            process.stdout.readline()
        began = [runner._seconds(process.pid) for process in (works, waits)]
        while runner._seconds(works.pid) - began[0] < 0.5:
            time.sleep(0.05)
        assert runner._seconds(waits.pid) - began[1] < 0.1
    finally:
        for process in (works, waits):
            process.kill()
            process.communicate()
