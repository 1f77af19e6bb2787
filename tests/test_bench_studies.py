"""Studies: experiments that measure something else than the AUC of estimators."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from riskad.bench.experiment import built_in, find_experiment, load_experiment
from riskad.bench.records import OK, SKIPPED, read_records
from riskad.bench.render import write_report
from riskad.bench.runner import run_experiment
from riskad.bench.studies import (
    bounds,
    choosing,
    cv_rules,
    looking,
    mixtures,
    priors,
    probabilities,
    stopping,
    suggesting,
)
from riskad.bench.trial import build_estimator, find_object, run_cell
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.datasets import DatasetSource, ImageDataset

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
def test_priors_come_out_again(dataset):
    found = priors.report(run(cells("priors", dataset=dataset)))["of"]
    assert_same(found[dataset], committed("theory/priors.json")["sets"]["of"][dataset])


@needs_results
@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["cardio", "vowels"])
def test_probabilities_come_out_again(dataset):
    rows = run(cells("probabilities", dataset=dataset))
    found = probabilities.report(rows)
    assert_same(found["sets"][dataset], committed("decisions/probabilities.json")["sets"][dataset])
    n_test = sum(point["rows"] for point in found["reliability"]["sigmoid"])
    assert n_test == sum(sum(row["bins"]["calibrated"][0]) for row in rows)


@needs_results
@pytest.mark.needs_data
def test_choices_come_out_again():
    found = choosing.report(run(cells("choosing", dataset="vertebral")))["sets"]
    assert_same(found["vertebral"], committed("theory/choosing.json")["sets"]["vertebral"])


@needs_results
@pytest.mark.needs_data
def test_curves_of_labelling_come_out_again():
    rows = run(cells("suggesting", dataset="vertebral", lam="tight"))
    found = suggesting.report(rows)["by_lambda"]["tight"]
    expected = committed("decisions/suggesting.json")["by_lambda"]["tight"]
    assert found["labels"] == expected["labels"]
    assert_same(found["sets"], {"vertebral": expected["sets"]["vertebral"]})


@pytest.mark.needs_data
def test_rules_for_lambda_come_out_again():
    """The committed file has means over all sets only; these AUCs are of the same code."""
    (row,) = run(cells("lambda-rules", dataset="vertebral", budget="2 + 20", trial=0))
    expected = {"theorem": 0.8077, "tight": 0.8525, "cv": 0.8525}
    assert row["auc"] == pytest.approx(expected, abs=2e-3)


@needs_results
@pytest.mark.needs_data
def test_trees_come_out_again():
    rows = run(cells("trees", dataset="vertebral", method="ForestRAD"))
    expected = committed("trees.json")["ForestRAD"]["auc_by_set"]["vertebral"]
    assert fmean(row["auc"] for row in rows) == pytest.approx(expected, abs=2e-3)


@needs_results
@pytest.mark.needs_data
def test_ways_to_choose_lambda_come_out_again():
    """One set and one loss of the committed file: 30 splits, all rules."""
    rows = run(cells("cv-rules", dataset="vertebral", loss="squared"))
    assert len(rows) == 30
    found = {(row["rule"], row["rounds"]): row for row in cv_rules.report(rows)["rows"]}
    for row in committed("cv_rules.json")["rows"]:
        mean = found[row["rule"], row["rounds"]]["sets"]["squared"]["vertebral"]
        assert mean == pytest.approx(row["sets"]["squared"]["vertebral"], abs=2e-3), row["rule"]


@needs_results
@pytest.mark.parametrize(
    ("risk", "loss", "counts"),
    [("rad", "squared", [50, 5, 10_000]), ("nnrad", "sigmoid", [500, 50, 100])],
)
def test_bounds_come_out_again(risk, loss, counts):
    (cell,) = cells("bounds", risk=risk, loss=loss, rows=counts)
    (found,) = bounds.report(run([cell]))["cells"]
    (expected,) = (
        each
        for each in committed("theory/bounds.json")["cells"]
        if [each[name] for name in ("risk", "loss", "normal", "anomaly", "unlabelled")]
        == [risk, loss, *counts]
    )
    assert_same(found, expected)


@needs_results
def test_biases_come_out_again():
    found = bounds.report(run(cells("bounds", method="bias")))
    assert found["summary"]["bias"] == {"within": "27 of 27"}
    for own, each in zip(found["bias"], committed("theory/bounds.json")["bias"], strict=True):
        assert own == pytest.approx(each, rel=1e-6)


# --- bounds ------------------------------------------------------------------------------------


def test_risks_of_many_rows_are_the_true_ones():
    world = bounds.World(seed=0)
    risk = bounds.get_risk("rad", "logistic", a=0.1, prior=0.8)
    many = bounds.LabelCounts(10**8, 10**8, 10**8)
    found = world.estimates(risk, many, 2, np.random.default_rng(0))
    np.testing.assert_allclose(found, [world.true_risk("logistic")] * 2, rtol=1e-3)


def test_a_bound_that_fails_is_seen():
    found = [bounds._compare(np.arange(100.0), bound) for bound in (98.0, 9.0)]
    assert [each["coverage"] for each in found] == [0.99, 0.1]
    assert [each["tightness"] for each in found] == [1.04, 0.1]
    (record,) = run(cells("bounds", risk="rad", loss="squared", rows=[50, 5, 10_000]))
    worse = record | {"settings": record["settings"] | {"loss": "hinge"}, "spread": found[1]}
    summary = bounds.report([record, worse])["summary"]
    assert summary["spread"]["least coverage"] == 0.1
    assert summary["spread"]["tightness"][0] == 0.1
    assert summary["deviation"]["least coverage"] == record["deviation"]["coverage"]


# --- rules for lam="cv" ------------------------------------------------------------------------

# Held-out AUCs of five lambdas in four folds; the place of the tight one is 1.
BY_FOLD = np.array(
    [
        [0.70, 0.72, 0.70, 0.72],
        [0.80, 0.82, 0.80, 0.82],
        [0.82, 0.83, 0.83, 0.86],
        [0.84, 0.80, 0.85, 0.86],
        [0.95, 0.75, 0.95, 0.75],
    ]
)


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("best", 4),
        ("gains 1 SE", 1),
        ("gains 1 SE, one decade", 2),
        ("nearest to tight within 1 SE", 1),
    ],
)
def test_rules_choose_from_held_out_aucs(rule, place):
    assert cv_rules.RULES[rule](BY_FOLD, 1, 1) == place


def test_more_rounds_of_folds_are_no_more_evidence():
    gain = np.array([0.0, 0.1, 0.2, 0.1])
    twice = cv_rules.standard_error(np.r_[gain, gain], 2)
    assert twice == pytest.approx(cv_rules.standard_error(gain, 1), rel=0.1)
    assert cv_rules.corrected_error(gain, 1) > cv_rules.standard_error(gain, 1)


def test_sets_are_missed_below_what_was_published():
    def row(trial, loss, tight, best):
        return {
            "dataset": "vertebral",
            "root": 101,
            "trial": trial,
            "settings": {"loss": loss},
            "auc": {"0": {"tight": tight}, "2": {"best": best}},
        }

    rows = [row(t, loss, 0.1 + t, 0.99) for t in (0, 1) for loss in ("squared", "hinge")]
    found = cv_rules.report([*rows, row(2, "hinge", 0.0, 0.99)])
    assert (found["trials"], found["losses"]) == (3, ["squared", "hinge"])
    best, tight = found["rows"]
    assert (best["rule"], best["rounds"], best["n_missed"]) == ("best", 2, 0)
    assert tight["sets"] == {"squared": {"vertebral": 0.6}, "hinge": {"vertebral": 0.4}}
    assert tight["mean"] == 0.5
    assert tight["missed"]["hinge"] == ["vertebral"]


# --- when to stop --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blobs(DatasetSource):
    """Ten classes of rows, each shifted along a column of its own."""

    def load(self):
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(10), 600)
        X = rng.standard_normal((len(y), 10), dtype=np.float32)
        X[np.arange(len(y)), y] += 4
        return ImageDataset(self.name, X, y, X[:0], y[:0])


def short(method, **settings):
    """A cell of a method with small networks and few steps; rows take the place of images."""
    cell = cells("stopping", dataset="MNIST", method=method, anomaly_rate=0.1)[0]
    settings = {**cell.settings, "module": "mlp", "learning_rate": 0.01, **settings}
    return replace(cell, source=Blobs("MNIST"), settings=settings)


def test_setups_have_the_rate_and_the_labels_they_should():
    y = np.repeat(np.arange(10), 500)
    setup = stopping.make_setup(y, 3, 0.1)
    rows = np.concatenate([part.numpy() for part in setup.pools.values()])
    assert len(set(rows)) == len(rows) == 425
    assert not set(rows) & set(setup.aside)
    assert (y[rows] != 3).mean() == pytest.approx(0.1, abs=0.002)
    assert {kind: len(part) for kind, part in setup.pools.items()} == {1: 19, -1: 2, 0: 404}
    assert set(y[setup.pools[NORMAL]]) == {3}
    assert 3 not in y[setup.pools[ANOMALY]]
    assert (setup.normal.sum(), (~setup.normal).sum()) == (
        75,
        300 - (y[setup.aside] == 3).sum() + 75,
    )


def test_every_labelled_row_is_held_out_once():
    setup = stopping.make_setup(np.repeat(np.arange(10), 2000), 3, 0.1)
    parts = list(stopping.folds(setup.pools))
    for kind in (NORMAL, ANOMALY):
        held = np.concatenate([held[kind].numpy() for _, held in parts])
        np.testing.assert_array_equal(np.sort(held), np.sort(setup.pools[kind].numpy()))
    for left, held in parts:
        assert not any(set(left[kind].tolist()) & set(held[kind].tolist()) for kind in left)


def test_networks_are_followed():
    (row,) = run([short("rad", steps=[2, 4], check_every=2, loss="logistic", prior="true")])
    assert list(row["auc"]) == ["2 steps", "4 steps", "held out", "three folds"]
    at = {rule: np.array(values) for rule, values in row["auc"].items()}
    assert all(values.shape == (10,) for values in at.values())
    # The network on all rows stops after two or four steps, whatever the folds say.
    stopped = np.isclose(at["three folds"], at["2 steps"]) | np.isclose(
        at["three folds"], at["4 steps"]
    )
    assert stopped.all()
    (entry,) = stopping.report([row])["rows"]
    assert entry["auc"]["4 steps"] == round(float(at["4 steps"].mean()), 4)
    assert (entry["pi_n"], entry["loss"], entry["prior"]) == (0.1, "logistic", "true")


def test_other_methods_are_followed():
    pu, sad = run(
        [short("nnpu", steps=[2, 4], check_every=2), short("sad", n_steps=4, pretrain_steps=2)]
    )
    assert {rule: len(values) for rule, values in pu["auc"].items()} == {
        "2 steps": 10,
        "4 steps": 10,
    }
    assert {rule: len(values) for rule, values in sad["auc"].items()} == {"4 steps": 10}
    rows = stopping.report([sad, pu])["rows"]
    assert [row["method"] for row in rows] == ["nnpu", "sad"]


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


def test_a_cell_of_looking_is_judged_by_the_truth():
    (cell,) = cells("looking", shape="easy", rate=0.1, trial=3)
    (record,) = run([cell])
    scores, truth, labelled = looking.draw("easy", 0.1, 0)
    assert scores[truth].mean() - scores[~truth].mean() == pytest.approx(2.5, abs=0.3)
    assert labelled.mean() == pytest.approx(0.1, abs=0.03)
    [found] = looking.report([record])["of"]["easy"].values()
    inside = [
        low <= n <= high
        for n, (_, low, high) in zip(record["counted"], record["said"], strict=True)
    ]
    assert found["coverage"] == [float(each) for each in inside]
    assert record["counted"][-1] > 5 * record["counted"][0]
