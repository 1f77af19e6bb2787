"""Studies: cells run again give what is committed, and pages are those of the records."""

import json
import sys

import numpy as np
import polars as pl
import pytest

from experiments import studies
from experiments.datasets import load_collected
from experiments.datasets import series as datasets_series
from experiments.records import read_records
from experiments.runner import RESULTS, Cell, NotAvailable, Skipped, differences
from experiments.studies import (
    choosing,
    labels,
    novelty,
    promises,
    series,
    shipped_tables,
    tables,
    theory,
)
from experiments.studies.raw_tables import DRAWN
from experiments.summaries import grid, group, rounded
from riskad import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

EXPERIMENTS = {experiment.name: experiment for experiment in studies.EXPERIMENTS}

# What the reports make of data warnings is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore::riskad.DataWarning")


def run(name, **wanted):
    """Records of the cells of a study that have these values, without what was skipped."""
    experiment, rows = EXPERIMENTS[name], []
    for cell in experiment.cells():
        if all(cell.get(key) == value for key, value in wanted.items()):
            try:
                rows.append(dict(cell) | dict(experiment.run_cell(cell)))
            except Skipped:
                continue
    assert rows, f"no cell of {name} is like {wanted}"
    return rows


def committed(path):
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def assert_same(figures, expected, place=""):
    """The committed numbers, times aside; other BLAS libraries may move the last digit."""
    for key, value in expected.items():
        if key in ("time_ratio", "seconds", "n_anomaly"):
            continue
        if isinstance(value, dict):
            assert_same(figures[key], value, f"{place}/{key}")
        else:
            assert figures[key] == pytest.approx(value, abs=2e-3), f"{place}/{key}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_cells_are_the_same(name):
    experiment = EXPERIMENTS[name]
    keys = [experiment.key(cell) for cell in experiment.cells()]
    assert len(keys) == len(set(keys)) > 0


@pytest.mark.parametrize("name", [n for n, e in EXPERIMENTS.items() if e.path().exists()])
def test_pages_are_those_of_the_records(name, tmp_path):
    experiment = EXPERIMENTS[name]
    folder = RESULTS / experiment.folder
    for page in (*folder.glob("*.json"), *folder.glob("*.md")):  # some have parts by others
        (tmp_path / page.name).write_bytes(page.read_bytes())
    experiment.report(read_records(experiment.path()), tmp_path)
    pages = list(tmp_path.iterdir())
    assert pages
    for page in pages:
        assert page.read_text() == (folder / page.name).read_text(), page.name


def test_vus_pr_is_1_for_the_truth_and_low_for_noise():
    is_anomaly = np.zeros(200, dtype=bool)
    is_anomaly[20:30], is_anomaly[120:135] = True, True
    rng = np.random.default_rng(0)
    exact = is_anomaly + 0.5 * rng.random(200)
    assert series.vus_pr(is_anomaly, exact, longest=0) == pytest.approx(1)
    near = np.roll(exact, 5)
    values = [series.vus_pr(is_anomaly, scores, longest=10) for scores in (exact, near)]
    assert 1 >= values[0] > values[1] > series.vus_pr(is_anomaly, rng.random(200), longest=10)
    assert series.vus_pr(is_anomaly, near, longest=10) > series.vus_pr(is_anomaly, near, longest=0)


def test_an_alarm_finds_one_incident_within_half_a_window():
    seconds, incident = np.arange(1000) * 60.0, np.full(1000, -1)
    for i, first in enumerate((100, 300, 500)):
        incident[first : first + 20] = i

    def measured(shift, width=20):
        scores = np.zeros(1000)
        for first in (100, 300, 500):
            scores[first + shift : first + shift + width] = 1 + first / 1000
        return series.event_metrics(seconds, incident, scores, window=1200, n_windows=100)

    assert [measured(shift)["event_f1"] for shift in (0, 25, 31)] == [1, 1, 0]
    days = 999 * 60 / 86_400
    assert measured(31)["false_a_day"] == pytest.approx(3 / days, abs=1e-5)
    assert measured(31)["false_a_window"] == pytest.approx(0.03)
    everything = series.event_metrics(seconds, incident, np.ones(1000), 1200, 100)
    assert everything["event_f1"] == pytest.approx(2 / 4)  # one alarm, three incidents


def test_a_series_comes_out_again_and_marks_only_the_past():
    first, again = (datasets_series.make_series(7) for _ in range(2))
    assert first.frame.equals(again.frame)
    end, codes = datasets_series.split_train(first, 5, np.random.default_rng(0))
    assert (codes[end:] == 0).all()
    assert len(np.unique(first.incident[codes == -1])) == 5
    assert (first.incident[codes == 1] < 0).all()


def test_windows_of_a_made_series_are_ranked_as_recorded():
    cell = {"dataset": "made-0", "method": "IsolationForest", "budget": 5}
    (row,) = run("series", **cell)
    [record] = read_records(EXPERIMENTS["series"].path()).filter(**cell).to_dicts()
    figures = ("auc", "average_precision", "vus_pr", "event_f1", "windows", "anomalies")
    assert_same(row, {name: record[name] for name in figures})


def test_records_without_figures_are_refused():
    frame = pl.DataFrame([{"method": "a", "status": "failed", "reason": "not today"}])
    with pytest.raises(InputError, match="no cell has figures yet"):
        EXPERIMENTS["raw-tables"].report(frame, RESULTS)


def test_rows_are_grouped_and_figures_rounded():
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}, {"a": 1, "b": "y"}]
    assert {key: len(each) for key, each in group(rows, "a", "b").items()} == {
        (1, "x"): 1,
        (2, "x"): 1,
        (1, "y"): 1,
    }
    assert rounded({"a": [0.12345, np.nan], "b": np.int64(3)}) == {"a": [0.1235, None], "b": 3}
    assert [str(cell) for cell in grid(trial=(0, 1), rate=(0.1,))()] == ["0/rate=0.1", "1/rate=0.1"]


# --- theory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("risk", "loss", "counts"),
    [("rad", "squared", (50, 5, 10_000)), ("nnrad", "sigmoid", (500, 50, 100))],
)
def test_bounds_come_out_again(risk, loss, counts):
    names = dict(zip(("normal", "anomaly", "unlabelled"), counts, strict=True))
    (row,) = run("bounds", risk=risk, loss=loss, **names)
    records = read_records(EXPERIMENTS["bounds"].path()).to_dicts()
    place = {"risk": risk, "loss": loss, **names}
    (record,) = (each for each in records if place.items() <= each.items())
    assert differences(row, record, tolerance=1e-3) == []


def test_risks_of_many_rows_are_the_true_ones():
    world = theory.World(seed=0)
    risk = theory.get_risk("rad", "logistic", a=0.1, prior=0.8)
    many = theory.LabelCounts(10**8, 10**8, 10**8)
    estimates = world.estimates(risk, many, 2, np.random.default_rng(0))
    np.testing.assert_allclose(estimates, [world.true_risk("logistic")] * 2, rtol=1e-3)


def test_a_bound_that_fails_is_seen():
    compared = [theory.compare(np.arange(100.0), bound) for bound in (98.0, 9.0)]
    assert [each["coverage"] for each in compared] == [0.99, 0.1]
    assert [each["tightness"] for each in compared] == [1.04, 0.1]
    (row,) = run("bounds", risk="rad", loss="squared", normal=50, anomaly=5)
    worse = row | {f"spread: {key}": value for key, value in compared[1].items()}
    summary = theory.bound_figures([row, worse])["summary"]
    assert summary["spread"]["least coverage"] == 0.1
    assert summary["deviation"]["least coverage"] == row["deviation: coverage"]


def test_a_mixture_has_the_rate_it_is_asked_for():
    X, y = theory.draw_mixture(0.3, seed=0)
    middle = [X[y == kind].sum(axis=1).mean() for kind in (NORMAL, ANOMALY, UNLABELLED)]
    assert (middle[2] - middle[0]) / (middle[1] - middle[0]) == pytest.approx(0.3, abs=0.05)
    (row,) = run("mixtures", method="em", rate=0.1, trial=3)
    assert row["low"] < row["estimate"] < row["high"]
    assert row["estimate"] == pytest.approx(0.1, abs=0.05)


def test_errors_and_coverage_of_estimates():
    about = {"method": "em", "rate": 0.1, "seconds": 1.0}
    first = about | {"trial": 0, "estimate": 0.12, "low": 0.05, "high": 0.15}
    second = about | {"trial": 1, "estimate": 0.06, "low": 0.04, "high": 0.08}
    figures = {"mean_absolute_error": 0.03, "bias": -0.01, "coverage": 0.5, "mean_width": 0.07}
    expected = {"draws": 2, "of": {"em": {"0.1": figures | {"seconds": 1.0}}}}
    assert theory.mixture_figures([first, second]) == expected


@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["vertebral", "thyroid"])
def test_priors_come_out_again(dataset):
    figures = theory.prior_figures([row | {"commit": ""} for row in run("priors", dataset=dataset)])
    assert_same(figures["of"][dataset], committed("theory/priors.json")["sets"]["of"][dataset])


# --- choices ---------------------------------------------------------------------------------


@pytest.mark.needs_data
def test_rules_for_lambda_come_out_again():
    """The committed file has means over all sets only; these AUCs are of the same code."""
    (row,) = run("lambda-rules", dataset="vertebral", budget="2 + 20", trial=0)
    for rule, auc in {"theorem": 0.8077, "tight": 0.8525, "cv": 0.8525}.items():
        assert row[rule] == pytest.approx(auc, abs=2e-3)
    assert choosing.rule_figures([row])["auc"]["2 + 20"]["cv"] == round(row["cv"], 4)


@pytest.mark.needs_data
@pytest.mark.parametrize("method", ["ForestRAD", "extra trees, labelled rows"])
def test_trees_come_out_again(method):
    figures = choosing.tree_figures(run("trees", dataset="vertebral", method=method))[method]
    expected = committed("trees.json")[method]["auc_by_set"]["vertebral"]
    assert figures["auc"] == pytest.approx(expected, abs=2e-3)


@pytest.mark.needs_data
def test_curves_of_labelling_come_out_again(tmp_path):
    rows = run("suggesting", dataset="vertebral", lam="tight")
    figures = labels.suggesting_figures(rows)["by_lambda"]["tight"]
    expected = committed("decisions/suggesting.json")["by_lambda"]["tight"]
    assert figures["labels"] == expected["labels"]
    assert_same(figures["sets"], {"vertebral": expected["sets"]["vertebral"]})
    pytest.importorskip("matplotlib")
    labels.report_suggesting(pl.DataFrame(rows).with_columns(status=pl.lit("ok")), tmp_path)
    assert sorted(page.name for page in tmp_path.iterdir()) == ["suggesting.json", "suggesting.svg"]


# --- promises --------------------------------------------------------------------------------


@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["cardio", "vowels"])
def test_probabilities_come_out_again(dataset):
    rows = run("probabilities", dataset=dataset)
    figures = promises.probability_figures(rows)
    assert_same(
        figures["sets"][dataset], committed("decisions/probabilities.json")["sets"][dataset]
    )
    n_test = sum(point["rows"] for point in figures["reliability"]["sigmoid"])
    assert n_test == sum(sum(row["bins calibrated"][0]) for row in rows)


def test_a_cell_of_looking_is_judged_by_the_truth():
    (row,) = run("looking", shape="easy", rate=0.1, trial=3)
    scores, truth, labelled = promises.draw_scores("easy", 0.1, 0)
    assert scores[truth].mean() - scores[~truth].mean() == pytest.approx(2.5, abs=0.3)
    assert labelled.mean() == pytest.approx(0.1, abs=0.03)
    (figures,) = promises.looking_figures([row])["of"]["easy"].values()
    triples = zip(row["low"], row["counted"], row["high"], strict=True)
    assert figures["coverage"] == [float(low <= n <= high) for low, n, high in triples]
    assert row["counted"][-1] > 5 * row["counted"][0]


LEVELS = np.array([0.05, 0.1, 0.2, 0.5])


@pytest.mark.parametrize("pi_n", [0.05, 0.2])
def test_levels_of_p_values_are_held_over_500_draws(pi_n):
    records = read_records(EXPERIMENTS["p-values"].path()).filter(pl.col("pi_n") == pi_n)
    small, false = np.array(records["small"].to_list()), records["false"].to_numpy()
    assert len(small) == 500

    def below(values, level):
        """Whether a mean over draws is at most the level, but for chance."""
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        return np.all(values.mean(axis=0) <= level + 3 * error)

    assert below(small, LEVELS)
    assert np.all(small.mean(axis=0) > 0.7 * LEVELS)  # and not by being useless
    assert below(false, 0.2)
    assert records["found"].mean() > 0.5


@pytest.mark.parametrize("trial", [0, 1, 200, 499])
def test_draws_of_p_values_come_out_again(trial):
    records = read_records(EXPERIMENTS["p-values"].path()).filter(pl.col("trial") == trial)
    for record in records.to_dicts():
        again = promises.run_p_values(Cell(trial=trial, pi_n=record["pi_n"]))
        for name, value in again.items():
            np.testing.assert_allclose(value, record[name], atol=0.051)  # a row or two


# --- novelty ---------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["one kind", "normals", "random"])
def test_labels_are_of_the_rows_that_the_study_says(who):
    kinds = np.repeat([-1, 0, 1, 2], [700, 40, 30, 30])
    anomalous = kinds >= 0
    codes = novelty.draw_labels(who, anomalous, kinds, np.random.default_rng(0))
    assert (codes[anomalous] != NORMAL).all()
    assert (codes[~anomalous] != ANOMALY).all()
    seen = kinds[codes == ANOMALY]
    assert len(set(seen)) == {"random": len(set(seen)), "one kind": 1, "normals": 0}[who]
    assert 25 <= (codes == NORMAL).sum() <= 40
    assert len(seen) <= 20


def test_novelty_is_compared_with_the_isolation_forest():
    aucs = {"AutoRAD": 0.8, "without novelty": 0.7, "novelty": 0.6, "isolation forest": 0.5}
    row = {"labels": "normals", "weight": 0.1, "held_out": 0.9, "held_out_kinds": None}
    row |= {f"all: {name}": auc for name, auc in aucs.items()}
    figures = novelty.unseen_figures([row])["labels"]["normals"]
    assert figures["mean_held_out_auc_of_kinds"] is None
    assert figures["auc"]["all"]["AutoRAD"]["less_isolation_forest"]["mean"] == pytest.approx(0.3)
    assert figures["auc"]["all"]["AutoRAD"]["less_without_novelty"]["mean"] == pytest.approx(0.1)


@pytest.mark.needs_data
@pytest.mark.slow
def test_a_table_with_unseen_kinds_comes_out_again():
    try:
        load_collected("table 001")
    except NotAvailable as error:
        pytest.skip(str(error))
    (row,) = run("kinds-unseen", dataset="table 001", labels="normals")
    records = read_records(EXPERIMENTS["kinds-unseen"].path()).to_dicts()
    names = ("dataset", "labels", "novelty")
    (record,) = (each for each in records if all(each[name] == row[name] for name in names))
    assert row["all: novelty"] == pytest.approx(record["all: novelty"], abs=2e-3)


# --- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_tables.SHIPPED)
def test_shipped_tables_are_texts_and_columns_by_hand(name):
    try:
        table = shipped_tables.load_shipped(name, 3)
    except NotAvailable as error:
        pytest.skip(str(error))
    assert set(table.raw.dtypes) == {pl.String}
    assert table.raw.height == table.engineered.height == len(table.anomalous)
    assert set(table.engineered.dtypes) <= {pl.String, pl.Float64}
    assert 0.02 < table.anomalous.mean() < 0.5


def test_a_trial_hides_labels_and_holds_rows_back(monkeypatch):
    trial = tables.make_trial("german", 0)
    assert not set(trial.train) & set(trial.test)
    assert len(trial.train) + len(trial.test) == len(trial.table.anomalous)
    assert np.mean(trial.codes != 0) == pytest.approx(0.1, abs=0.001)
    labelled = trial.codes != 0
    assert ((trial.codes[labelled] == -1) == trial.table.anomalous[trial.train[labelled]]).all()

    def by_value(trial):
        return np.abs(trial.table.engineered["value"].to_numpy()[trial.test] - 380)

    monkeypatch.setitem(tables.WAYS, "raw", by_value)
    (row,) = run("raw-tables", dataset="german", method="raw", trial=0)
    assert row["auc"] > 0.95  # the column that tells nearly all


def test_catboost_takes_plain_numbers_as_such():
    frame = pl.DataFrame({"a": ["1", "2.5", None], "b": ["1", "x", None], "c": ["1,5", "2", "3"]})
    numbers = tables.plain_numbers(frame)
    assert numbers.dtypes == [pl.Float64, pl.String, pl.String]
    assert numbers["a"].to_list() == [1.0, 2.5, None]


def test_catboost_that_is_not_installed_is_noted(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(NotAvailable) as caught:
        tables.run_raw(Cell(dataset="german", method="CatBoost, raw", trial=0))
    assert caught.value.of == {"method": "CatBoost, raw"}


def test_the_report_says_how_far_raw_is_behind():
    def row(dataset, way, auc, many):
        about = {"dataset": dataset, "method": way, "trial": 0, "many_levels": many}
        return about | {"auc": auc, "average_precision": auc / 2, "seconds": 1.0}

    first, second = list(DRAWN)[:2]
    rows = [row(first, "raw", 0.8, True), row(first, "engineered", 0.9, True)]
    rows += [row(second, "raw", 0.7, False), row(second, "engineered", 0.6, False)]
    figures = tables.raw_figures(rows)
    assert figures["lines"][2] == f"| {first} | 0.800 / 0.400 | 0.900 / 0.450 |  |  |"
    less = figures["raw less"]["engineered"]["auc"]
    assert less == {"mean": 0.0, "worst": {first: -0.1}, "tables": 2}
    assert figures["raw less, with very many levels"]["engineered"]["auc"]["mean"] == -0.1
    assert figures["raw less"]["CatBoost, raw"] == {}


@pytest.mark.slow
def test_a_draw_of_groups_comes_out_again():
    (row,) = run("groups", method="compared", trial=0)
    expected = committed("tables/groups.json")["of"]["compared"]["auc"][0]
    assert row["auc"] == pytest.approx(expected, abs=0.02)
