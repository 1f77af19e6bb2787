"""The tests themselves: each module stands alone, and none looks at a clock to judge."""

import ast
from functools import cache
from pathlib import Path

import hypothesis
import pytest

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
    """A busy machine would fail it: count passes, calls or rows, or measure in benchmarks/.

    Waiting for another process may end by an assertion that says so in a message.
    """
    assert list(clock_reads(module(name))) == []


def test_hypothesis_sets_no_deadline():
    assert hypothesis.settings().deadline is None


def test_a_clock_in_an_assertion_is_found():
    late = "assert time.perf_counter() - start < 2"
    waiting = "assert time.monotonic() < end, 'waited in vain'"
    assert list(clock_reads(ast.parse(late))) == [1]
    assert list(clock_reads(ast.parse(waiting))) == []
