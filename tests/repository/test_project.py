"""What the project's files promise: the names of the documents, the demo, the examples."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.loops import each

import riskad
from riskad.app import demo

ROOT = Path(__file__).parents[2]
MODULES = [module.name for module in pkgutil.walk_packages(riskad.__path__, "riskad.")]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


OPTIONAL = ("torch", "lightgbm", "pyarrow", "onnx", "onnxruntime", "pandas", "dask", "mlflow")
RESOLVE = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Missing())
import riskad

for dotted in {names!r}:
    found = riskad
    try:
        for part in dotted.split(".")[1:]:
            found = getattr(found, part)
    except (AttributeError, ImportError) as error:
        print(dotted, type(error).__name__, error, sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("missing", [(), OPTIONAL], ids=["all there", "none there"])
def test_the_names_of_the_documentation_are_there_after_a_bare_import(missing):
    """Each in a process that has imported nothing else; or the advice which package to install."""
    files = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
    files += [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    found = {name for file in files for name in re.findall(r"\briskad(?:\.\w+)+", read(file))}
    # Files and addresses are no names.
    names = sorted(n for n in found if not re.fullmatch(r"\w+\.(riskad|html|json|onnx|py)", n))
    assert {"riskad.fit_table", "riskad.load"} <= set(names)
    code = RESOLVE.format(missing=missing, names=names)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unresolved = [line for line in run.stdout.splitlines() if "pip install 'riskad[" not in line]
    assert unresolved == []
    assert missing or not run.stdout


def test_a_name_that_is_not_there_is_an_attribute_error():
    for module in (riskad, riskad.detectors):
        with pytest.raises(AttributeError, match="has no attribute 'fit_fils'"):
            _ = module.fit_fils
    assert {"app", "core", "detectors", "AutoRAD"} <= set(dir(riskad))
    assert "_cli" not in riskad._packages()


@pytest.mark.slow
def test_the_demo_is_good_and_repeats(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = map(demo.run_demo, folders)
    for report in (first, second):
        for member in report.fit.fitted["leaderboard"]:
            assert member.pop("seconds") >= 0
    assert first == second
    assert first.riskad.auc.value > 0.95
    assert first.riskad.auc.value > first.isolation_forest.auc.value
    assert first.riskad.auc.low <= first.riskad.auc.value <= first.riskad.auc.high
    written = {"model.riskad", "new.csv", "samples.csv", "scored.csv"}
    assert {entry.name for entry in folders[0].iterdir()} == written


def test_the_lowest_versions_are_those_of_the_project():
    command = [sys.executable, ROOT / ".ci/lowest.py"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == read("constraints-lowest.txt"), "run `python .ci/lowest.py` as its header says"


@pytest.mark.slow
@each("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
