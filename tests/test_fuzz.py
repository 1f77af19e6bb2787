"""The fuzzer of tests/fuzz finds nothing in 2,000 inputs; results/fuzz has a run of 100,000."""

import pytest

pytest.importorskip("resource")
pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from fuzz import runner


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
