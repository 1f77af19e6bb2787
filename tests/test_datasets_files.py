"""Tables of one's own as datasets of experiments: what is read, what is refused, and how."""

import json
import re
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from riskad.bench.experiment import load_experiment
from riskad.bench.records import OK, read_records
from riskad.bench.runner import run_experiment
from riskad.bench.trial import make_split
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL
from riskad.datasets import SOURCES, Dataset, DatasetSource, load_table, read_source

WORDS = {"label": "state", "normal": "ok", "anomaly": "fraud"}
METHOD = '[[methods]]\nname = "rad"\nestimator = "riskad.ShallowRAD"\n'


def payments(n=200, rate=0.2, seed=0):
    rng = np.random.default_rng(seed)
    odd = rng.random(n) < rate
    return pl.DataFrame(
        {
            "customer": [f"c{i}" for i in range(n)],
            "amount": (rng.normal(size=n) + 2.5 * odd).round(3),
            "hours": pl.Series(rng.normal(size=n) + odd).set(pl.Series(rng.random(n) < 0.1), None),
            "country": rng.choice(["de", "fr", "pl"], n),
            "state": np.where(odd, "fraud", "ok"),
        }
    )


@pytest.fixture
def folder(tmp_path):
    frame = payments()
    frame.write_csv(tmp_path / "payments.csv")
    frame.write_parquet(tmp_path / "payments.parquet")
    numbers = frame.select(pl.col("amount"), pl.col("hours").fill_null(0.0))
    np.savez(
        tmp_path / "payments.npz", X=numbers.to_numpy(), y=(frame["state"] == "fraud").cast(int)
    )
    return tmp_path


def describe(folder, datasets, more=""):
    path = folder / "mine.toml"
    path.write_text(f'title = "Mine"\ntrials = 2\nlabelled = 0.2\n{datasets}\n{more}{METHOD}')
    return path


ENTRIES = {
    "payments.csv": 'label = "state"\nnormal = "ok"\nanomaly = "fraud"\ndrop = ["customer"]',
    "payments.parquet": 'label = "state"\nnormal = "ok"\nanomaly = ["fraud"]\ndrop = ["customer"]',
    "payments.npz": "normal = 0\nanomaly = 1",
}


def entry(name):
    return f'[[datasets]]\npath = "{name}"\n{ENTRIES[name]}'


# --- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_experiment_runs_on_a_file(folder, name, monkeypatch):
    """From a description beside it, whatever folder the command is given in."""
    path = describe(folder, entry(name))
    monkeypatch.chdir("/")
    outcome = run_experiment(load_experiment(path), folder / "records")
    rows = read_records(folder / "records" / "mine.jsonl")
    assert (outcome.done, outcome.failed) == (2, 0)
    assert [(row["dataset"], row["status"]) for row in rows] == [("payments", OK)] * 2
    assert all(row["auc"] > 0.8 for row in rows)
    assert rows[0]["n_train"] + rows[0]["n_test"] == 200


def test_csv_and_parquet_give_the_same_rows(folder):
    csv, parquet = (
        read_source({"path": f"payments.{ending}", "drop": ["customer"], **WORDS}, folder)
        for ending in ("csv", "parquet")
    )
    ours, theirs = (make_split(source, 0, 0, 0.3, 0.1) for source in (csv, parquet))
    assert_array_equal(ours.X_train, theirs.X_train)
    assert_array_equal(ours.X_test, theirs.X_test)
    assert_array_equal(ours.y_train, theirs.y_train)


def test_columns_become_numbers_by_training_rows_alone(folder):
    """A word that only test rows hold has no column, and changes no other."""
    frame = payments()
    data = load_table(folder / "payments.csv", drop=("customer",), **WORDS)
    train, test = np.arange(150), np.arange(150, 200)
    before = data.parts(train, test)
    odd = frame.with_columns(
        pl.when(pl.int_range(pl.len()) >= 150)
        .then(pl.lit("xx"))
        .otherwise("country")
        .alias("country")
    )
    odd.write_csv(folder / "odd.csv")
    after = load_table(folder / "odd.csv", drop=("customer",), **WORDS).parts(train, test)
    assert_array_equal(before[0], after[0])
    assert before[1].shape == after[1].shape
    assert np.isfinite(after[1]).all()


def test_a_table_that_was_changed_is_run_again(folder):
    path = describe(folder, entry("payments.csv"))
    assert run_experiment(load_experiment(path), folder / "records").done == 2
    assert run_experiment(load_experiment(path), folder / "records").done == 0
    payments(n=150, seed=1).write_csv(folder / "payments.csv")
    assert run_experiment(load_experiment(path), folder / "records").done == 2
    rows = read_records(folder / "records" / "mine.jsonl")
    assert len({row["data"] for row in rows}) == 2
    assert [row["n_train"] + row["n_test"] for row in rows] == [200, 200, 150, 150]


def test_names_and_files_may_stand_side_by_side(folder):
    text = 'datasets = ["cardio", { path = "payments.npz", normal = 0, anomaly = 1, name = "own" }]'
    experiment = load_experiment(describe(folder, text))
    assert experiment.datasets == ("cardio", "own")
    assert {cell.dataset: cell.data is None for cell in experiment.cells()} == {
        "cardio": True,
        "own": False,
    }


# --- another kind of dataset -------------------------------------------------------------------


@dataclass(frozen=True)
class Toy(DatasetSource):
    """Two clouds, of which the smaller is anomalous."""

    rows: int = 100

    def load(self):
        rng = np.random.default_rng(0)
        y = np.where(np.arange(self.rows) % 5 == 0, ANOMALY, NORMAL).astype(np.int8)
        return Dataset(
            self.name, rng.normal(size=(self.rows, 2)) + 3.0 * (y == ANOMALY)[:, None], y
        )


@pytest.mark.parametrize("kind", ["toy", f"{__name__}.Toy"])
def test_a_kind_from_outside_the_package(tmp_path, monkeypatch, kind):
    """One class, and one line in the registry or none."""
    monkeypatch.setitem(SOURCES, "toy", Toy)
    path = describe(tmp_path, f'[[datasets]]\nsource = "{kind}"\nname = "clouds"\nrows = 150')
    run_experiment(load_experiment(path), tmp_path / "records")
    rows = read_records(tmp_path / "records" / "mine.jsonl")
    assert [row["n_train"] + row["n_test"] for row in rows] == [150, 150]
    assert all(row["auc"] > 0.9 for row in rows)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "adbnech",
            "source='adbnech' is not known; choose from adbench, images, file.* Did you mean",
        ),
        ("nowhere.Toy", "source = 'nowhere.Toy' cannot be imported: No module named 'nowhere'"),
        ("pathlib.Path", "must be a class over riskad.datasets.DatasetSource, got <class"),
        ("adbench", "a dataset of source ADBenchSource needs name = ..."),
    ],
)
def test_an_unknown_kind_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        read_source({"source": source})


# --- what is refused ---------------------------------------------------------------------------


def write(folder, **columns):
    path = folder / "table.csv"
    pl.DataFrame(columns).write_csv(path)
    return path


N = 30
FEW = {"x": list(range(N)), "state": ["ok"] * (N - 3) + ["fraud"] * 3}


@pytest.mark.parametrize(
    ("columns", "words", "message"),
    [
        (FEW, WORDS | {"label": "stat"}, "There is no column 'stat'. Did you mean 'state'?"),
        (FEW, WORDS | {"drop": ("y",)}, "There is no column 'y'"),
        (FEW, WORDS | {"label": None}, "which column holds the truth? Name it: label = "),
        (FEW, WORDS | {"anomaly": None}, "both normal = ... and anomaly = ... are needed"),
        (
            FEW,
            WORDS | {"anomaly": "fruad"},
            "anomaly='fruad' never occurs in column 'state' of table.csv. Did you mean",
        ),
        (FEW, WORDS | {"drop": ("x",)}, "has no column left to learn from beside 'state'"),
        (FEW | {"state": ["ok"] * N}, WORDS, "has the same value in every row"),
        (
            FEW | {"state": ["ok"] * (N - 1) + ["fraud"]},
            WORDS,
            "29 normal rows and 1 anomalies: too few",
        ),
        (
            FEW | {"state": ["ok"] * 20 + [None] * 5 + ["fraud"] * 5},
            WORDS,
            "is blank in 5 of 30 rows",
        ),
        (
            FEW | {"state": ["ok"] * 20 + ["open"] * 5 + ["fraud"] * 5},
            WORDS,
            "values of unknown meaning: 'open' (5 rows)",
        ),
        (
            {"x": [1, 2, 3, 4], "state": ["ok", "ok", "fraud", "fraud"]},
            WORDS,
            "at least 20 rows, 2 of each kind",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, columns, words, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load_table(write(tmp_path, **columns), **words)


@pytest.mark.parametrize(
    ("arrays", "words", "message"),
    [
        (
            {"X": np.zeros((30, 2))},
            {},
            "it does not hold the arrays X and y. Write it with numpy.savez",
        ),
        (
            {"X": np.zeros(30), "y": np.zeros(30)},
            {},
            "must be a table of numbers (rows x columns), got shape",
        ),
        ({"X": np.zeros((30, 2)), "y": np.zeros(29)}, {}, "has 30 rows and y 29"),
        ({"X": np.full((30, 2), np.nan), "y": np.zeros(30)}, {}, "got nan in row 0, column 0"),
        ({"X": np.zeros((30, 2)), "y": np.zeros(30)}, {"label": "y"}, "label names a column"),
        (
            {"X": np.zeros((30, 2)), "y": np.arange(30) % 2},
            {},
            "Values seen: 0 (15 rows), 1 (15 rows)",
        ),
    ],
)
def test_archives_that_cannot_be_used_are_refused(tmp_path, arrays, words, message):
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(InputError, match=re.escape(message)):
        load_table(tmp_path / "rows.npz", **words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[datasets]]\npath = "none.csv"\nlabel = "y"', "none.csv"),
        ('[[datasets]]\npath = "payments.csv"\nlable = "state"', "Did you mean 'label'?"),
        ('[[datasets]]\npath = "payments.xlsx"\nlabel = "y"\nname = "cardio"', "payments.xlsx"),
        ("datasets = [3]", "each of datasets is a name or a table of entries"),
        ('datasets = ["cardio", "cardio"]', "two datasets are named 'cardio'"),
        ('datasets = [{ source = "images", name = "MNIST" }]', "say anomaly_rates"),
    ],
)
def test_descriptions_that_cannot_be_run_are_refused(folder, text, message):
    path = describe(folder, text)
    with pytest.raises(InputError, match=re.escape(message)):
        run_experiment(load_experiment(path), folder / "records")


def test_test_rows_of_one_kind_are_a_failure_with_its_reason(tmp_path):
    """Two anomalies, both of which fall among the training rows in some trial."""
    write(tmp_path, x=list(range(40)), state=["ok"] * 38 + ["fraud"] * 2)
    text = '[[datasets]]\npath = "table.csv"\nlabel = "state"\nnormal = "ok"\nanomaly = "fraud"'
    path = describe(tmp_path, text)
    path.write_text(path.read_text().replace("trials = 2", "trials = 8"))
    run_experiment(load_experiment(path), tmp_path / "records")
    lines = (tmp_path / "records" / "mine.jsonl").read_text().splitlines()
    reasons = {json.loads(line).get("reason", "") for line in lines}
    assert any("test rows of 'table' hold no anomalies. Raise test_share" in r for r in reasons)
