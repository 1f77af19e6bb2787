"""What is committed under results/ is what the code gives: some cells are run again."""

from pathlib import Path

import pytest

from riskad.bench.experiment import built_in, identity_key, load_experiment
from riskad.bench.records import NOT_RUN, OK, read_records
from riskad.bench.render import markdown_text
from riskad.bench.summary import summarise
from riskad.bench.trial import make_split, run_cell

FOLDER = Path(__file__).parents[1] / "results" / "shallow"
EXPERIMENTS = sorted(built_in("shallow"))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="results/ is part of the repository, not of the package"
)


@pytest.fixture(scope="module", params=EXPERIMENTS)
def experiment(request):
    return load_experiment(built_in("shallow")[request.param])


def test_every_cell_that_could_be_run_is_recorded_once(experiment):
    rows = read_records(FOLDER / "records" / f"{experiment.name}.jsonl")
    missing = {row["dataset"] for row in rows if row["status"] == NOT_RUN}
    expected = {cell.key for cell in experiment.cells() if cell.dataset not in missing}
    keys = [identity_key(row) for row in rows if row["status"] != NOT_RUN]
    assert len(missing) == 7
    assert len(keys) == len(set(keys))
    assert set(keys) == expected


def test_the_committed_tables_are_those_of_the_records(experiment):
    paths = sorted((FOLDER / "records").glob("*.jsonl"))
    summary = summarise(row for path in paths for row in read_records(path))
    text = (FOLDER / "tables" / f"{experiment.name}.md").read_text(encoding="utf-8")
    assert markdown_text(summary, experiment.name) == text


@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["vertebral", "cardio"])
def test_recorded_cells_come_out_again(experiment, dataset, data_folder):
    """All cells of a trial; other versions of NumPy or of BLAS may move the last digits."""
    make_split.cache_clear()
    cells = [c for c in experiment.cells() if (c.dataset, c.trial) == (dataset, 3)]
    rows = read_records(FOLDER / "records" / f"{experiment.name}.jsonl")
    recorded = {identity_key(row): row for row in rows}
    for cell in cells:
        again = run_cell(cell)
        assert again["status"] == recorded[cell.key]["status"] == OK, again.get("reason")
        assert again["n_anomaly"] == recorded[cell.key]["n_anomaly"]
        assert again["auc"] == pytest.approx(recorded[cell.key]["auc"], abs=2e-3), cell.settings
