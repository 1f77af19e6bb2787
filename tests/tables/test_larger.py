"""Fit and score on Parquet files that are read some rows at a time, and what can be wrong there."""

import json
import resource
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal
from support.cards import make_aged_cards
from support.commands import fail, succeed

from riskad.app import fit as fitting
from riskad.app.fit import fit_table
from riskad.app.spec import FitSpec
from riskad.rows.engine import Threads
from riskad.tables import labelled, reading

LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
MEANING = ("--label", "label", "--normal", "ok", "--anomaly", "fraud", "--id", "card")
SHALLOW = (*MEANING, "--model", "shallow", "--lam", "0.1")


def write(cards, folder, n_files=3, row_group_size=100):
    """The table in several files of several row groups."""
    folder.mkdir(exist_ok=True)
    bounds = np.linspace(0, cards.height, n_files + 1).astype(int)
    for i in range(n_files):
        part = cards[bounds[i] : bounds[i + 1]]
        part.write_parquet(folder / f"{i}.parquet", row_group_size=row_group_size)
    return folder


@pytest.fixture(scope="module")
def cards():
    return make_aged_cards(900).with_columns(pl.col("label").replace("", None))


@pytest.fixture
def folder(cards, tmp_path):
    return write(cards, tmp_path / "cards")


# --- fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["risk", "top:20", "f1"])
def test_files_give_the_fit_of_the_table(cards, folder, threshold):
    options = {"id": "card", "model": "shallow", "settings": {"lam": 0.1}, "threshold": threshold}
    whole = fit_table(cards, LABELS, **options)
    parts = fit_table(folder, LABELS, **options)
    np.testing.assert_allclose(parts.model[1].coef_, whole.model[1].coef_, rtol=1e-6)
    np.testing.assert_allclose(parts.model[1].offset_, whole.model[1].offset_, rtol=1e-6)
    one, two = whole.report, parts.report
    for name in ("labels", "rows", "columns", "preparation", "flagged"):
        assert getattr(two, name) == getattr(one, name)
    assert [(s.row, s.id) for s in two.top] == [(s.row, s.id) for s in one.top]
    assert parts.ranked["row"].equals(whole.ranked["row"])
    assert set(parts.ranked.columns) == set(whole.ranked.columns)
    assert two.reading[1] == "learned from all rows"
    np.testing.assert_allclose(
        np.sort(parts.model[1].calibration_.unlabelled),
        np.sort(whole.model[1].calibration_.unlabelled),
    )


def test_only_a_sample_is_kept_and_the_report_says_so(folder, cards, monkeypatch):
    monkeypatch.setattr(labelled, "_SAMPLED_ROWS", 100)
    monkeypatch.setattr(fitting, "_RANKED_ROWS", 30)
    fit = fit_table(folder, LABELS, model="shallow", settings={"lam": 0.1}, threshold="top:50")
    n_unlabelled = fit.report.labels.unlabelled
    assert n_unlabelled > 600
    assert "100 of " in fit.report.reading[1]
    assert fit.report.flagged == 50
    assert fit.ranked.height == 30
    assert fit.model[1].calibration_.n_unlabelled == n_unlabelled
    assert len(fit.model[1].calibration_.unlabelled) == 100
    scores = fit.model[1].anomaly_score(fit.model[0].transform(cards))
    unlabelled = cards["label"].is_null().to_numpy()
    assert int((scores[unlabelled] > -fit.model[1].offset_).sum()) == 50
    best = np.sort(scores[unlabelled])[::-1][:30]
    np.testing.assert_allclose(fit.ranked["anomaly_score"].to_numpy(), best)


def test_engines_are_asked_for_every_pass(folder):
    class Counting(Threads):
        calls = 0

        def map(self, function, items):
            Counting.calls += len(items) > 1  # one is asked for the shape of the rows
            return super().map(function, items)

    fit = fit_table(folder, LABELS, model="shallow", settings={"lam": 0.1}, engine=Counting(1))
    said = int(fit.report.reading[0].split("read ")[1].split()[0])
    assert Counting.calls == said > 5


# --- the command line --------------------------------------------------------------------


def test_one_file_that_does_not_fit_is_read_some_rows_at_a_time(cards, tmp_path, monkeypatch):
    path = tmp_path / "cards.parquet"
    cards.write_parquet(path, row_group_size=200)
    monkeypatch.setattr(reading, "available_memory", lambda: 1000)
    found = json.loads(succeed("fit", path, *SHALLOW, "-o", tmp_path / "m.riskad", "--json"))
    assert found["reading"][0].startswith("1 file, read ")


def test_several_files_are_scored_as_one_table(cards, folder, tmp_path):
    model = tmp_path / "m.riskad"
    succeed("fit", folder, *SHALLOW, "-o", model)
    whole = tmp_path / "whole.parquet"
    cards.write_parquet(whole)
    succeed("score", model, whole, "-o", tmp_path / "one.parquet")
    for i, data in enumerate([[folder / "*.parquet"], [folder], sorted(folder.iterdir())]):
        out = tmp_path / f"{i}.parquet"
        assert json.loads(succeed("score", model, *data, "-o", out, "--json"))["rows"] == 900
        assert_frame_equal(pl.read_parquet(out), pl.read_parquet(tmp_path / "one.parquet"))
    parts = []
    for i in range(2):
        parts.append(tmp_path / f"part{i}.csv")
        cards[450 * i : 450 * (i + 1)].write_csv(parts[i])
    succeed("score", model, *parts, "-o", tmp_path / "out.csv", "--threshold", "top:5")
    assert pl.read_csv(tmp_path / "out.csv")["is_anomaly"].sum() == 5


def test_files_to_score_must_be_alike(folder, cards, tmp_path):
    model = tmp_path / "m.riskad"
    succeed("fit", folder, *SHALLOW, "-o", model)
    extra = folder / "9.parquet"
    cards.with_columns(pl.col("age").cast(pl.String)).write_parquet(extra)
    message = fail("score", model, folder, "-o", tmp_path / "out.parquet")
    assert "Column 'age' is Float64 in" in message
    assert "9.parquet" in message
    cards.drop("age").write_parquet(extra)
    assert "missing: 'age'" in fail("score", model, folder, "-o", tmp_path / "out.parquet")
    whole = cards.with_columns(pl.col("amount").round(0).cast(pl.Int32))
    whole.head(5).write_parquet(extra)
    succeed("score", model, folder, "-o", tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").height == 905


# --- faults ------------------------------------------------------------------------------


@pytest.fixture
def old_model(tmp_path):
    """A file where the model is to be written, which must survive."""
    path = tmp_path / "model.riskad"
    path.write_text("old")
    return path


def fail_to_fit(data, old_model, *options):
    message = fail("fit", data, *SHALLOW, *options, "-o", old_model, "--force")
    assert old_model.read_text() == "old"
    assert [path.name for path in old_model.parent.iterdir() if ".part" in path.name] == []
    return message


def damage(path, place):
    """Flip bits of the second column of the second row group, at this share of its length."""
    chunk = pq.read_metadata(path).row_group(1).column(1)
    start = chunk.data_page_offset + int(place * chunk.total_compressed_size)
    data = bytearray(path.read_bytes())
    data[start : start + 8] = bytes(byte ^ 0xFF for byte in data[start : start + 8])
    path.write_bytes(data)


def test_a_damaged_row_group_ends_scoring(folder, tmp_path):
    model, out = tmp_path / "m.riskad", tmp_path / "scored.parquet"
    succeed("fit", folder, *SHALLOW, "-o", model)
    path = folder / "1.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=100, compression="zstd")
    damage(path, place=0)  # elsewhere only a checksum can tell it from data
    out.write_text("old")
    assert "1.parquet" in fail("score", model, folder, "-o", out, "--force")
    assert out.read_text() == "old"


def test_a_file_that_is_removed_meanwhile_ends_the_fit(folder, old_model, monkeypatch):
    def then_remove(*arguments):
        kept = keep(*arguments)
        (folder / "1.parquet").unlink()
        return kept

    keep = labelled.BatchedTable.prepare
    monkeypatch.setattr(labelled.BatchedTable, "prepare", then_remove)
    assert "1.parquet is no longer there" in fail_to_fit(folder, old_model)


def test_labels_that_nobody_explained_end_the_fit(folder, old_model):
    path = folder / "2.parquet"
    part = pl.read_parquet(path)
    part.with_columns(pl.col("label").replace("fraud", "Fraud?")).write_parquet(path)
    message = fail_to_fit(folder, old_model)
    assert "'Fraud?'" in message
    assert "--others-unlabelled" in message
    message = fail("fit", folder, "--label", "lable", "-o", old_model, "--force")
    assert "Did you mean 'label'?" in message


@contextmanager
def full_disk(n_bytes):
    """No file may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_model(folder, old_model):
    with full_disk(3000):
        message = fail_to_fit(folder, old_model)
    assert "File too large" in message


# --- memory ------------------------------------------------------------------------------

_PEAK = """
import resource, sys
from riskad.rows import engine, partitions
from riskad.tables import labelled
from riskad.app.spec import FitSpec
from riskad.app.fit import fit_table

# What is kept does not grow with the table, but is much beside one that is small enough to test.
partitions._RESERVOIR_BYTES, labelled._SAMPLED_ROWS = 1 << 22, 10_000

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def fit(pattern):
    labels = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
    settings = {"lam": 0.1, "loss": "squared"}
    fit_table([pattern], labels, model="shallow", settings=settings, engine=engine.Threads(1))
    return peak()

print(fit(sys.argv[1]), fit(sys.argv[2]))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(10)]
    block = pl.DataFrame(rng.normal(size=(125_000, 10)).astype(np.float32), schema=names)
    label = ["ok"] * 50 + ["fraud"] * 10 + [None] * (block.height - 60)
    table = block.with_columns(label=pl.Series(label)).to_arrow()
    for name, n_groups in (("small", 1), ("large", 24)):
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", table.schema) as writer:
            for _ in range(n_groups):
                writer.write_table(table)
    command = [sys.executable, "-c", textwrap.dedent(_PEAK)]
    files = [str(tmp_path / f"{name}.parquet") for name in ("small", "large")]
    found = subprocess.run([*command, *files], capture_output=True, text=True, check=True)
    small, large = map(float, found.stdout.split())
    in_memory = 3_000_000 * 10 * 8 / 1e6  # megabytes of the numbers that a fit works on
    assert large - small < in_memory / 2
