"""What the project's files promise: the README's commands and code, the changelog, the examples."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import riskad

ROOT = Path(__file__).parents[1]
DEMO = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/riskad demo"
TESTS = (
    "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt '.[dev]' && .venv/bin/pytest"
)
MODULES = [module.name for module in pkgutil.walk_packages(riskad.__path__, "riskad.")]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", read("README.md"), flags=re.M | re.S)


def test_readme_holds_exactly_the_two_commands():
    lines = "".join(code_blocks("bash")).splitlines()
    assert [line for line in lines if line.startswith("python3 -m venv .venv &&")] == [DEMO, TESTS]
    assert read("README.md").count("python3 -m venv") == 2


def test_ci_takes_the_commands_from_the_readme():
    script = read(".ci/run")
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert "pip install" not in script
    subprocess.run(["bash", "-n", ROOT / ".ci/run"], check=True)


def test_changelog_has_unreleased_and_every_release():
    headings = re.findall(r"^## \[?([^\]\s]+)", read("CHANGELOG.md"), flags=re.M)
    assert headings[0] == "Unreleased"
    assert ".dev" in riskad.__version__ or riskad.__version__ in headings


def test_constraints_pin_every_line_and_no_local_build():
    lines = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
