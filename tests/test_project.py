"""What the project's files promise: the README's commands, the changelog, the examples."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose

import riskad
from riskad.app import demo
from riskad.cli.main import cli

ROOT = Path(__file__).parents[1]
DEMO = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/riskad demo"
TESTS = (
    "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt '.[dev]' && .venv/bin/pytest"
)
MODULES = [module.name for module in pkgutil.walk_packages(riskad.__path__, "riskad.")]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(language, name="README.md"):
    return re.findall(rf"^```{language}\n(.*?)^```$", read(name), flags=re.M | re.S)


def test_readme_holds_exactly_the_two_commands():
    lines = "".join(code_blocks("bash")).splitlines()
    assert [line for line in lines if line.startswith("python3 -m venv .venv &&")] == [DEMO, TESTS]
    assert read("README.md").count("python3 -m venv") == 2


OPTIONAL = (
    *("torch", "lightgbm", "pyarrow", "onnx", "onnxruntime", "pandas"),
    *("dask", "distributed", "pooch", "matplotlib", "catboost", "xgboost", "pyod", "mlflow"),
)
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


def dotted_names():
    """Every `riskad.room.name` of the documentation; files and addresses are none."""
    files = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
    files += [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    found = {name for file in files for name in re.findall(r"\briskad(?:\.\w+)+", read(file))}
    return sorted(
        name for name in found if not re.fullmatch(r"\w+\.(riskad|html|json|onnx|py)", name)
    )


@pytest.mark.parametrize("missing", [(), OPTIONAL], ids=["all there", "none there"])
def test_the_names_of_the_documentation_are_there_after_a_bare_import(missing):
    """Each in a process that has imported nothing else; or the advice which package to install."""
    names = dotted_names()
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
    assert sorted(entry.name for entry in folders[0].iterdir()) == [
        "model.riskad",
        "new.csv",
        "samples.csv",
        "scored.csv",
    ]


def test_ci_runs_the_commands_of_the_readme_without_data_and_tasks_that_exist():
    script = read(".ci/run")
    assert os.access(ROOT / ".ci/run", os.X_OK)
    subprocess.run(["bash", "-n", ROOT / ".ci/run"], check=True)
    beginning = re.search(r"grep '\^(python3 [^']+)'", script)[1]
    assert sum(line.startswith(beginning) for line in read("README.md").splitlines()) == 2
    assert "pip install" not in script  # it installs nothing but what these two install
    order = ["\nunset RISKAD_DATA\n", "${commands[0]}", "${commands[1]}", "export RISKAD_DATA"]
    assert [script.index(each) for each in order] == sorted(script.index(each) for each in order)
    tasks = set(re.findall(r"^def (\w+)\(session", read("noxfile.py"), flags=re.M))
    (several,) = re.findall(r"^for name in (.*); do$", script, flags=re.M)
    assert {*several.split(), *re.findall(r"task (\w+)$", script, flags=re.M)} <= tasks


def test_changelog_has_unreleased_and_every_release_with_its_date():
    first, *releases = re.findall(r"^## (.+)$", read("CHANGELOG.md"), flags=re.M)
    assert first == "Unreleased"
    parts = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", each) for each in releases]
    dates = [part[2] for part in parts]
    assert dates == sorted(dates, reverse=True)


def test_constraints_pin_every_line_and_no_local_build():
    lines = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_the_lowest_versions_are_those_of_the_project():
    command = [sys.executable, ROOT / ".ci/lowest.py"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == read("constraints-lowest.txt"), "run `python .ci/lowest.py` as its header says"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.usefixtures("registries_as_before")
def test_the_detector_of_the_page_works():
    names = {}
    for block in code_blocks("python", "docs/extending/detector.md"):
        exec(block, names)
    X, y, truth = make_contaminated_rows(shift=3.0)
    model = names["NearestMean"]().fit(X, y)
    assert (model.predict(X) == truth).mean() > 0.9


@pytest.mark.usefixtures("registries_as_before")
def test_the_loss_and_the_risk_of_the_pages_work():
    names = {}
    for page in ("loss", "risk"):
        for block in code_blocks("python", f"docs/extending/{page}.md"):
            exec(block, names)
    z = np.linspace(-3, 3, 13)
    loss, step = names["SharpLogistic"](), 1e-6
    slope = (loss.value(z + step) - loss.value(z - step)) / (2 * step)
    bend = (loss.derivative(z + step) - loss.derivative(z - step)) / (2 * step)
    assert_allclose(loss.derivative(z), slope, rtol=1e-6)
    assert_allclose(loss.curvature(z), bend, rtol=1e-6)
    assert_allclose(loss.value(z) - loss.value(-z), -loss.linear_odd * z, atol=1e-12)
    risk = names["Trusting"](loss, prior=0.9)
    value = risk.value(np.array([1.0, -1.0]), np.array([0, -1]))
    assert_allclose(value, loss.value(np.array(1.0)))


def test_the_page_selects_rows_at_a_false_discovery_rate(capsys):
    """An example that selects nothing teaches nothing."""
    (block,) = code_blocks("python", "docs/howto/threshold.md")
    exec(block, {})
    selected = int(re.match(r"(\d+) of 1,000 rows selected", capsys.readouterr().out)[1])
    assert 50 < selected < 150  # of which 100 are anomalies


def test_the_demo_says_how_long_it_takes():
    said = " ".join(CliRunner().invoke(cli, ["demo", "--help"]).output.split())
    assert "takes about half a minute" in said
    assert "in seconds" not in said + read("README.md")
