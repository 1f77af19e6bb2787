"""The fuzzer of tests/fuzz finds nothing in 2,000 inputs, and would if there were something."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Linux tells what a process uses", allow_module_level=True)
pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from fuzz import play, runner


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
