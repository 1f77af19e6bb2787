"""Studies: experiments that measure something else than the AUC of estimators."""

import json
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from riskad.bench.experiment import built_in, find_experiment, load_experiment
from riskad.bench.records import OK, SKIPPED, read_records
from riskad.bench.render import write_report
from riskad.bench.runner import run_experiment
from riskad.bench.studies import choosing, mixtures, priors, probabilities, suggesting
from riskad.bench.trial import build_estimator, find_object, run_cell
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

RESULTS = Path(__file__).parents[1] / "results"
STUDIES = built_in("studies")
needs_results = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="results/ is part of the repository, not of the package"
)


def cells(study, **wanted):
    """Cells of a study whose settings, dataset or trial are these."""
    return [
        cell
        for cell in load_experiment(STUDIES[study]).cells()
        if all({**cell.identity, **cell.settings}.get(key) == wanted[key] for key in wanted)
    ]


def run(some):
    """Records of cells as they are read from a file, without what was skipped."""
    records = [json.loads(json.dumps(run_cell(cell))) for cell in some]
    assert {record["status"] for record in records} <= {OK, SKIPPED}, records
    return [record for record in records if record["status"] == OK]


def committed(path):
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


# --- descriptions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_described_and_imported(name):
    experiment = load_experiment(STUDIES[name])
    assert next(experiment.cells()).experiment == name
    for method in experiment.methods:
        assert callable(find_object(method.measure or method.estimator))


def test_experiments_are_found_by_name_or_by_path(tmp_path):
    assert find_experiment("trees") == STUDIES["trees"]
    assert find_experiment(Path("main")).parent.name == "shallow"
    assert find_experiment("own.toml") == Path("own.toml")
    with pytest.raises(InputError, match=r"experiment='chosing' is not known.*Did you mean 'choo"):
        find_experiment("chosing")


def test_several_seeds_are_several_roots():
    roots = [cell.root for cell in cells("trees", dataset="fault", trial=0, method="ForestRAD")]
    assert roots == [101, 102]


def test_a_random_state_that_is_given_is_kept():
    (cell, _) = cells("trees", dataset="fault", trial=0, method="ForestRAD")
    assert build_estimator(cell, seed=77).random_state == 0
    (cell, *_) = load_experiment(built_in("shallow")["main"]).cells()
    assert build_estimator(cell, seed=77).random_state == 77


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ('name = "m"', "needs an estimator to fit or a function to measure"),
        (f'name = "m"\nestimator = "riskad.ShallowRAD"\nmeasure = "{__name__}.measure"', "one of"),
        ('name = "m"\nmeasure = "riskad.nothing"', "'riskad.nothing' cannot be imported"),
    ],
)
def test_methods_that_do_neither_or_both_are_refused(tmp_path, method, message):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "Mine"\ntrials = 1\ndatasets = ["cardio"]\n[[methods]]\n{method}\n')
    with pytest.raises(InputError, match=re.escape(message)):
        run_experiment(load_experiment(path), tmp_path / "records")


# --- a study of one's own ----------------------------------------------------------------------


def measure(cell):
    if cell.trial == 2:
        raise InputError("not this one")
    return {"twice": 2 * cell.trial + cell.settings["more"]}


def report(rows):
    return {"mean": fmean(row["twice"] for row in rows), "n": len(rows)}


def test_a_study_from_outside_the_package(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        f"""
        title = "Mine"
        trials = 3
        seed = [0, 5]
        datasets = [{{ source = "riskad.bench.studies.mixtures.Mixture", name = "rows" }}]
        [[methods]]
        name = "m"
        measure = "{__name__}.measure"
        settings = {{ more = 1 }}
        """
    )
    outcome = run_experiment(load_experiment(path), tmp_path / "records")
    assert (outcome.done, outcome.failed) == (6, 2)
    assert run_experiment(load_experiment(path), tmp_path / "records").done == 0
    rows = read_records(tmp_path / "records" / "mine.jsonl")
    assert {row["reason"] for row in rows if row["status"] != OK} == {"InputError: not this one"}
    (written,) = write_report(tmp_path)
    result = json.loads(written.read_text())
    assert written.name == "mine.json"
    assert (result["mean"], result["n"], result["seeds"]) == (2.0, 4, [0, 5])
    assert len(result["commits"]) == 1


# --- what is committed comes out again -----------------------------------------------------------


def assert_same(found, expected, place=""):
    """The committed numbers, times aside; other BLAS libraries may move the last digit."""
    for key, value in expected.items():
        if key in ("time_ratio", "refused", "seconds"):
            continue
        if isinstance(value, dict):
            assert_same(found[key], value, f"{place}/{key}")
        else:
            assert found[key] == pytest.approx(value, abs=2e-3), f"{place}/{key}"


@needs_results
@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["vertebral", "thyroid"])
def test_priors_come_out_again(dataset, data_folder):
    found = priors.report(run(cells("priors", dataset=dataset)))["of"]
    assert_same(found[dataset], committed("theory/priors.json")["sets"]["of"][dataset])


@needs_results
@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["cardio", "vowels"])
def test_probabilities_come_out_again(dataset, data_folder):
    rows = run(cells("probabilities", dataset=dataset))
    found = probabilities.report(rows)
    assert_same(found["sets"][dataset], committed("decisions/probabilities.json")["sets"][dataset])
    n_test = sum(point["rows"] for point in found["reliability"]["sigmoid"])
    assert n_test == sum(sum(row["bins"]["calibrated"][0]) for row in rows)


@needs_results
@pytest.mark.needs_data
def test_choices_come_out_again(data_folder):
    found = choosing.report(run(cells("choosing", dataset="vertebral")))["sets"]
    assert_same(found["vertebral"], committed("theory/choosing.json")["sets"]["vertebral"])


@needs_results
@pytest.mark.needs_data
def test_curves_of_labelling_come_out_again(data_folder):
    rows = run(cells("suggesting", dataset="vertebral", lam="tight"))
    found = suggesting.report(rows)["by_lambda"]["tight"]
    expected = committed("decisions/suggesting.json")["by_lambda"]["tight"]
    assert found["labels"] == expected["labels"]
    assert_same(found["sets"], {"vertebral": expected["sets"]["vertebral"]})


@pytest.mark.needs_data
def test_rules_for_lambda_come_out_again(data_folder):
    """The committed file has means over all sets only; these AUCs are of the same code."""
    (row,) = run(cells("lambda-rules", dataset="vertebral", budget="2 + 20", trial=0))
    expected = {"theorem": 0.8077, "tight": 0.8525, "cv": 0.8525}
    assert row["auc"] == pytest.approx(expected, abs=2e-3)


@needs_results
@pytest.mark.needs_data
def test_trees_come_out_again(data_folder):
    rows = run(cells("trees", dataset="vertebral", method="ForestRAD"))
    expected = committed("trees.json")["ForestRAD"]["auc_by_set"]["vertebral"]
    assert fmean(row["auc"] for row in rows) == pytest.approx(expected, abs=2e-3)


# --- mixtures --------------------------------------------------------------------------------


def test_a_mixture_has_the_rate_it_is_asked_for():
    X, y = mixtures.draw(0.3, seed=0)
    assert [(y == kind).sum() for kind in (NORMAL, ANOMALY, UNLABELLED)] == [500, 50, 10_000]
    middle = [X[y == kind].sum(axis=1).mean() for kind in (NORMAL, ANOMALY, UNLABELLED)]
    share = (middle[2] - middle[0]) / (middle[1] - middle[0])
    assert share == pytest.approx(0.3, abs=0.05)


def test_errors_and_coverage_of_estimates():
    def row(trial, estimate, low, high):
        return {
            "trial": trial,
            "settings": {"method": "em", "rate": 0.1},
            "estimate": estimate,
            "interval": [low, high],
            "seconds": 1.0,
        }

    found = mixtures.report([row(0, 0.12, 0.05, 0.15), row(1, 0.06, 0.04, 0.08)])
    assert found == {
        "draws": 2,
        "of": {
            "em": {
                "0.1": {
                    "mean_absolute_error": 0.03,
                    "bias": -0.01,
                    "coverage": 0.5,
                    "mean_width": 0.07,
                    "seconds": 1.0,
                }
            }
        },
    }


def test_a_cell_of_mixtures():
    (cell,) = cells("mixtures", method="em", rate=0.1, trial=3)
    (record,) = run([cell])
    assert record["estimate"] == pytest.approx(0.1, abs=0.05)
    assert np.diff(record["interval"]) > 0
