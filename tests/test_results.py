"""What is committed under results/ is what the code gives: some cells are run again."""

import runpy
from pathlib import Path

import pytest

from riskad.bench.experiment import built_in, identity_key, load_experiment
from riskad.bench.image_trial import find_device, run_together
from riskad.bench.provenance import versions
from riskad.bench.records import NOT_RUN, OK, read_records
from riskad.bench.render import markdown_text
from riskad.bench.summarise import summarise
from riskad.bench.summary import report_name
from riskad.bench.trial import make_split, run_cell

RESULTS = Path(__file__).parents[1] / "results"
SUITES = {"shallow": 7, "deep": 0, "field": 7}  # with the number of sets that could not be had
EXPERIMENTS = {
    suite: sorted(built_in(suite)) for suite in SUITES if (RESULTS / suite / "records").is_dir()
}
NAMES = [(suite, name) for suite, names in EXPERIMENTS.items() for name in names]
REPORTS = list(dict.fromkeys((suite, report_name(name)) for suite, name in NAMES))

pytestmark = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="results/ is part of the repository, not of the package"
)


def load(suite, name):
    return load_experiment(built_in(suite)[name])


def records(suite, name):
    return read_records(RESULTS / suite / "records" / f"{name}.jsonl")


@pytest.mark.parametrize(("suite", "name"), NAMES)
def test_every_cell_that_could_be_run_is_recorded_once(suite, name):
    rows = records(suite, name)
    missing = {row["dataset"] for row in rows if row["status"] == NOT_RUN and "dataset" in row}
    expected = {cell.key for cell in load(suite, name).cells() if cell.dataset not in missing}
    keys = [identity_key(row) for row in rows if row["status"] != NOT_RUN]
    assert len(missing) == SUITES[suite]
    assert len(keys) == len(set(keys))
    assert set(keys) == expected


@pytest.mark.parametrize(("suite", "name"), REPORTS)
def test_the_committed_tables_are_those_of_the_records(suite, name):
    rows = [row for other in EXPERIMENTS[suite] for row in records(suite, other)]
    text = (RESULTS / suite / "tables" / f"{name}.md").read_text(encoding="utf-8")
    assert markdown_text(summarise(rows), name) == text


def run_again(cell, recorded):
    """Run a cell; other versions of NumPy or of BLAS may move the last digits."""
    again = run_cell(cell)
    assert again["status"] == recorded["status"] == OK, again.get("reason")
    assert (again["seed"], again["n_anomaly"]) == (recorded["seed"], recorded["n_anomaly"])
    assert again["auc"] == pytest.approx(recorded["auc"], abs=2e-3), cell.settings
    return again


@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["vertebral", "cardio"])
@pytest.mark.parametrize("name", EXPERIMENTS.get("shallow", []))
def test_recorded_cells_come_out_again(name, dataset):
    """All cells of a trial."""
    make_split.cache_clear()
    cells = [c for c in load("shallow", name).cells() if (c.dataset, c.trial) == (dataset, 3)]
    recorded = {identity_key(row): row for row in records("shallow", name)}
    for cell in cells:
        run_again(cell, recorded[cell.key])


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("method", "trial"),
    [("AutoRAD", 17), ("BoostedRAD", 0), ("ShallowRAD", 0), ("LogReg", 0), ("ExtraTrees", 0)],
)
def test_cells_of_the_field_come_out_again(method, trial):
    """With the versions of the record, to its digits: trees of others draw other splits."""
    cells = load("field", "field").cells()
    (cell,) = (c for c in cells if (c.dataset, c.trial, c.method) == ("vertebral", trial, method))
    recorded = {identity_key(row): row for row in records("field", "field")}[cell.key]
    if recorded["versions"] != versions():
        pytest.skip(f"recorded with {recorded['versions']}")
    again = run_again(cell, recorded)
    assert again["auc"] == pytest.approx(recorded["auc"], abs=1e-5)
    assert again["average_precision"] == pytest.approx(recorded["average_precision"], abs=1e-5)


@pytest.mark.needs_data
@pytest.mark.parametrize("loss", ["squared", "sigmoid"])
def test_networks_come_out_again_on_a_cpu(loss):
    """Nearly: what was recorded was trained on a GPU, with products in half precision."""
    pytest.importorskip("torch")
    (cell,) = (
        c
        for c in load("deep", "images-prior").cells()
        if (c.dataset, c.trial, c.anomaly_rate) == ("MNIST", 0, 0.1)
        and (c.settings["prior"], c.settings["loss"]) == ("flipped", loss)
    )
    recorded = {identity_key(row): row for row in records("deep", "images-prior")}[cell.key]
    (again,) = run_together([cell], find_device("cpu"))
    assert again["status"] == OK, again.get("reason")
    assert (again["seed"], again["n_anomaly"]) == (recorded["seed"], recorded["n_anomaly"])
    assert again["auc"] == pytest.approx(recorded["auc"], abs=0.01)


def test_the_page_of_decisions_is_made_of_the_figures_beside_it():
    folder = RESULTS / "decisions"
    script = runpy.run_path(str(RESULTS.parent / "benchmarks" / "decisions_readme.py"))
    text = (folder / "README.md").read_text(encoding="utf-8")
    made = script["parts"](folder)
    assert script["page"](text, made) == text
    assert all(f"<!-- {name} -->" in text for name in made)
