"""The tests themselves: each module stands alone, and none looks at a clock to judge."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from conftest import PATIENCE

TESTS = Path(__file__).parent
NAMES = sorted(path.stem for path in TESTS.glob("test_*.py"))
CLOCKS = {"perf_counter", "process_time", "monotonic", "thread_time", "time_ns", "default_timer"}


@cache
def module(name):
    return ast.parse((TESTS / f"{name}.py").read_text("utf-8"))


def imported(tree):
    """The modules that are imported anywhere in `tree`, by their first name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("name", NAMES)
def test_no_test_imports_another(name):
    """What two of them need is in conftest.py (fixtures) or in support/."""
    assert [other for other in imported(module(name)) if other.startswith("test_")] == []


def test_support_imports_no_test():
    for path in (TESTS / "conftest.py", *(TESTS / "support").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        assert [other for other in imported(tree) if other.startswith("test_")] == [], path


def clock_reads(tree):
    """Assertions that read a clock or a name that holds a reading of one, but to give up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node.test)}
            if names & CLOCKS and not node.msg:
                yield node.lineno


@pytest.mark.parametrize("name", NAMES)
def test_no_assertion_reads_a_clock(name):
    """A busy machine would fail it: count passes, calls or rows, or measure in experiments/speed.

    Waiting for another process may end by an assertion that says so in a message.
    """
    assert list(clock_reads(module(name))) == []


def short_waits(tree):
    """Waits that end after a number of seconds that is not PATIENCE."""
    for node in ast.walk(tree):
        limits = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "")
            limits += node.args[:1] if name in ("wait", "join", "settimeout") else []
            limits += [each.value for each in node.keywords if each.arg == "timeout"]
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Call):
            limits += [node.right] if getattr(node.left.func, "attr", "") in CLOCKS else []
        if any(isinstance(getattr(limit, "value", None), int | float) for limit in limits):
            yield node.lineno


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.stem)
def test_no_test_gives_up_before_its_patience_is_at_an_end(path):
    """A busy machine would fail it: `PATIENCE` is what only a hang takes."""
    assert list(short_waits(ast.parse(path.read_text("utf-8")))) == []


def test_a_short_wait_is_found():
    code = "assert gone.wait(60)\nrun(x, timeout=5)\nend = time.monotonic() + 20\nthread.join(2.5)"
    assert list(short_waits(ast.parse(code))) == [1, 2, 3, 4]
    code = "gone.wait(PATIENCE)\nrun(x, timeout=PATIENCE)\nend = monotonic() + PATIENCE\n''.join(x)"
    assert list(short_waits(ast.parse(code))) == []


def test_hypothesis_sets_no_deadline():
    assert hypothesis.settings().deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check


def test_a_clock_in_an_assertion_is_found():
    late = "assert time.perf_counter() - start < 2"
    waiting = "assert time.monotonic() < end, 'waited in vain'"
    assert list(clock_reads(ast.parse(late))) == [1]
    assert list(clock_reads(ast.parse(waiting))) == []


MARKED = """
import pytest

@pytest.mark.needs_data
@pytest.mark.parametrize("number", range(2))
def test_with_the_mark(number):
    raise FileNotFoundError

@pytest.mark.needs_data
def test_with_the_mark_and_the_folder(data_folder):
    assert (data_folder / "adbench").is_dir()

def test_with_the_folder_alone(data_folder):
    pass
"""


@pytest.mark.parametrize(
    ("folder", "outcome"),
    [
        ("", "3 skipped, 1 error"),
        ("of something else", "3 skipped, 1 error"),
        ("data", "2 failed, 1 passed, 1 error"),
    ],
)
def test_the_mark_skips_what_needs_data_and_only_with_it_they_are_read(folder, outcome, tmp_path):
    (tmp_path / "of something else").mkdir()
    (tmp_path / "data" / "adbench").mkdir(parents=True)
    (tmp_path / "test_marked.py").write_text(MARKED)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-W", "ignore"],
        env=os.environ | {"RISKAD_DATA": folder, "PYTHONPATH": str(TESTS)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.stdout.splitlines()[-1].startswith(f"{outcome} in "), ended.stdout
