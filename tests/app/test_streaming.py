"""Scoring of files that are read, scored and written some rows at a time."""

import gzip
import itertools
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from support.cards import make_aged_cards
from support.commands import fail, run
from support.loops import each

from riskad.app import score
from riskad.app.fit import fit_table
from riskad.app.model_files import load, save
from riskad.app.score import score_table
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.tables import csv_reading, reading
from riskad.tables.reading import check_memory, read_batches, read_table
from riskad.tables.writing import Spool, open_writer, write_table


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of cards, on disk."""
    path = tmp_path_factory.mktemp("model") / "model.riskad"
    labels = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
    fit = fit_table(make_aged_cards(600), labels, id="card", model="shallow")
    save(fit.model, path, report=fit.report)
    return path


@pytest.fixture
def small_batches(monkeypatch):
    """Batches of 64 rows, and of some 2,000 bytes of CSV."""
    monkeypatch.setattr(reading, "_BATCH_CELLS", 64)
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 2000)


def write(cards, path):
    """Write a table as its name says."""
    if path.suffix == ".duckdb":
        with duckdb.connect(path) as database:
            database.execute("CREATE TABLE cards AS SELECT * FROM cards")
    elif path.suffix == ".sqlite":
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE cards ({', '.join(cards.columns)})")
            places = ", ".join("?" * cards.width)
            database.executemany(f"INSERT INTO cards VALUES ({places})", cards.rows())
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(cards.write_csv().encode()))
    elif path.suffix == ".jsonl":
        cards.write_ndjson(path)
    elif path.suffix == ".parquet":
        cards.write_parquet(path, row_group_size=100)
    else:
        cards.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


# --- batches of a file -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cards.csv", "cards.tsv", "cards.csv.gz", "cards.parquet"])
def test_batches_are_the_table(tmp_path, small_batches, name):
    path = write(make_aged_cards(1000), tmp_path / name)
    batches = list(read_batches(path))
    assert len(batches) > 5
    assert {batch.height % 64 for batch in batches[:-1]} == {0}
    assert pl.concat(batches).equals(read_table(path))
    assert read_table(path).height == 1000


@pytest.mark.parametrize(
    "data",
    [
        "a,b\n" + '"two\nlines, ""quoted""",1\n' * 300,
        "\n\na;b\n" + "1,5;x\n\n;\n" * 300,  # blank lines and blank rows
        "\ufeffa;b\n" + "1,5;x\n" * 900,
        "\ufeff\n\na;b\n" + "1,5;x\n" * 900,  # as some exports begin
        "a,b\r\n" + "1,\r\n" * 900,
        "a,b\r" + "1,2\r" * 900,  # line ends of the oldest spreadsheets
        "a\n" + "1\n\n" * 900,
        '"the, header\nof two lines",b\n' + "1,2\n" * 900,
        "a,b\n" + "1,2\n" * 900 + "3,4",  # no line end at the end
    ],
)
def test_cutting_a_csv_changes_nothing(tmp_path, monkeypatch, data):
    path = tmp_path / "cards.csv"
    path.write_text(data, newline="")
    whole = read_table(path)
    assert whole.height >= 300
    for size in (200, 333, 2001):
        monkeypatch.setattr(csv_reading, "_BATCH_BYTES", size)
        batches = list(read_batches(path))
        assert len(batches) > 2
        assert pl.concat(batches).equals(whole)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1\n", "line 802: 1 field where the header has 2"),
        (b"1,\x81\n", "line 802: byte 0x81 is neither UTF-8 nor Windows-1252"),
        (b'1,5" pipe\n', "line 802: a double quote stands inside"),
        (b'1,"5\n', "never closes"),
        (b'1,"5\n' + b"3,4\n" * 10_000, "or has no line ends"),  # and does not fill the memory
    ],
)
def test_lines_are_counted_from_the_top_of_the_file(
    tmp_path, small_batches, monkeypatch, line, message
):
    monkeypatch.setattr(csv_reading, "_LONGEST_RECORD", 10_000)
    (tmp_path / "cards.csv").write_bytes(b"a,b\n" + b"1,2\n" * 800 + line + b"3,4\n" * 800)
    with pytest.raises(InputError, match=message):
        list(read_batches(tmp_path / "cards.csv"))


# --- writing -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet"])
def test_what_is_written_in_parts_is_what_is_written_whole(tmp_path, name):
    cards = make_aged_cards(500).with_columns(
        day=pl.date(2026, 1, 1) + pl.duration(days=pl.int_range(500)),
        kind=pl.col("country").cast(pl.Categorical),
        nothing=pl.lit(None, dtype=pl.Float32),
    )
    write_table(cards, tmp_path / f"whole-{name}")
    with open_writer(tmp_path / name) as write:
        for start in range(0, 500, 90):
            write(cards[start : start + 90])
    if name.endswith("parquet"):
        assert pl.read_parquet(tmp_path / name).equals(cards)
        assert pl.read_parquet_schema(tmp_path / name) == cards.schema
    else:
        assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_an_error_of_the_system():
    with Spool() as spool:
        spool.add(make_aged_cards(10_000))
        with pytest.raises(OSError, match="No space left"):
            spool.write_parquet(Path("/dev/full"))


# --- scoring -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_streaming_gives_what_scoring_the_whole_table_gives(tmp_path, small_batches, model, kind):
    row = pl.int_range(pl.len())
    new = pl.concat_str(pl.lit("new"), row % 4)
    cards = make_aged_cards(3000, seed=1).drop("label")
    cards = cards.with_columns(
        amount=pl.when(row % 500 != 3).then("amount"),
        country=pl.when(row % 700 == 5).then(new).otherwise("country"),
    )
    source = write(cards, tmp_path / f"cards.{kind}")
    whole, expected = score_table(load(model), read_table(source), id="card", source=source.name)
    said, batches = [], []
    options = {"id": "card", "source": source.name, "progress": said.append}
    _, report = score_table(load(model), read_batches(source), batches.append, **options)
    assert len(batches) > 10
    assert pl.concat(batches).equals(whole)  # to the last bit
    assert report == expected  # the suspects and the notes, too
    assert len(report.warnings) == 1
    assert "amount: 6 blanks filled" in report.warnings[0]
    assert re.search(r"country: 5 rows with a new value \('new\d'", report.warnings[0])
    assert said[-1] == "Scoring: 3,000 rows done"


OPTIONS = (
    *({"threshold": "top:17"}, {"threshold": "f1"}, {"threshold": "rate:0.05"}, {"fdr": 0.2}),
    *({"reasons": 2}, {"threshold": "top:17", "reasons": 3}, {"fdr": 0.2, "reasons": 1}),
)


@pytest.mark.slow
@each(("kind", "options"), itertools.product(["csv", "parquet"], OPTIONS))
def test_every_option_gives_what_it_gives_for_the_whole_table(
    tmp_path, small_batches, model, options, kind
):
    cards = make_aged_cards(1000, seed=1).drop("label")
    source = write(cards, tmp_path / f"cards.{kind}")
    whole, expected = score_table(load(model), read_table(source), id="card", **options)
    batches = []
    _, report = score_table(load(model), read_batches(source), batches.append, id="card", **options)
    assert len(batches) > 10
    assert pl.concat(batches).equals(whole)
    assert report == expected
    assert report.added == whole.columns[cards.width :]
    assert 0 < report.flagged < 1000


def test_decisions_over_batches_are_those_of_the_detector(model):
    pipeline, cards = load(model), make_aged_cards(1000, seed=1)
    preparer, detector = pipeline
    batches = [cards[start : start + 64] for start in range(0, 1000, 64)]

    def flags(**options):
        scored = []
        score_table(pipeline, batches, scored.append, **options)
        return pl.concat(scored)["is_anomaly"].to_numpy()

    matrix = preparer.transform(cards)
    scores = detector.anomaly_score(matrix)
    chosen = detector.select_anomalies(matrix, fdr=0.2)
    assert 0 < chosen.n_selected < 1000
    np.testing.assert_array_equal(flags(fdr=0.2), chosen.selected)
    np.testing.assert_array_equal(flags(threshold="top:17"), scores > np.sort(scores)[-18])
    np.testing.assert_array_equal(flags(fdr=1e-6), np.zeros(1000, bool))
    np.testing.assert_array_equal(flags(), detector.predict(matrix) == -1)
    detector.set_threshold("f2")
    np.testing.assert_array_equal(flags(), detector.predict(matrix) == -1)


def test_what_depends_on_all_rows_needs_them_twice(model):
    cards = make_aged_cards(300)
    batches = [cards[:64], cards[64:]]
    assert score_table(load(model), iter(batches), id)[1].rows == 300  # once is enough
    for options in ({"threshold": "top:5"}, {"fdr": 0.1}):
        with pytest.raises(InputError, match=r"reads the table twice.*read_batches"):
            score_table(load(model), iter(batches), id, **options)


def test_a_table_that_grows_while_it_is_scored(model):
    cards = make_aged_cards(300)

    class Growing:
        rows = 100

        def __iter__(self):
            self.rows += 64
            return iter([cards[:64], cards[64 : self.rows]])

    with pytest.raises(InputError, match="it had changed in between"):
        score_table(load(model), Growing(), id, threshold="top:5")


def test_a_rule_that_labels_cannot_support_is_refused_before_a_row_is_read(model):
    with pytest.raises(InputError, match="a false alarm rate of 1e-05 cannot be set"):
        score_table(load(model), None, id, threshold="false-alarms:1e-5")


def test_equal_scores_are_listed_in_the_order_of_the_rows(model, small_batches, tmp_path):
    pl.concat([make_aged_cards(1)] * 300).write_parquet(tmp_path / "same.parquet")
    _, report = score_table(load(model), read_batches(tmp_path / "same.parquet"), id, top=5)
    assert [suspect.row for suspect in report.top] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "sqlite", "duckdb"])
def test_rows_are_estimated_by_the_first_ones(tmp_path, small_batches, ending):
    path = write(make_aged_cards(3000), tmp_path / f"cards.{ending}")
    assert read_batches(path).about_rows() == pytest.approx(3000, rel=0.15)
    if ending == "csv":
        assert read_batches([path, path]).about_rows() == pytest.approx(6000, rel=0.15)


def test_scores_in_slices_are_those_of_the_whole_and_are_counted(model, monkeypatch):
    monkeypatch.setattr(score, "_FIRST_SLICE", 64)
    monkeypatch.setattr(score, "_SECONDS_OF_A_SLICE", 0.0)
    counts, cards = [], make_aged_cards(1000)
    scored, _ = score_table(load(model), cards, scored=counts.append)
    assert counts == [*range(0, 1000, 64), 1000]
    assert_array_equal(scored["anomaly_score"], -load(model).score_samples(cards))


def test_a_file_may_take_its_own_place(tmp_path, small_batches, model):
    path = write(make_aged_cards(1000), tmp_path / "cards.parquet")
    run("score", model, path, "-o", path, "--force")
    assert pl.read_parquet(path).shape == (1000, 8)


# --- bad input ---------------------------------------------------------------------------


def where(row, value, name="amount"):
    """A column with this value in a row far from its beginning."""
    return pl.when(pl.int_range(pl.len()) == row).then(value).otherwise(name)


CHANGES = {
    "other columns": {"Amount": pl.col("amount")},
    "text for numbers": {"amount": where(1500, pl.lit("lots"), pl.col("amount").cast(pl.String))},
    "lists for numbers": {"amount": pl.concat_list("amount")},
    "lists for text": {"country": pl.concat_list("country")},
    "bytes for numbers": {"amount": pl.col("country").cast(pl.Binary)},
    "dates for numbers": {"amount": pl.date(2026, 1, 1)},
    "an infinity": {"amount": where(1700, float("inf"))},
    "scored before": {"is_anomaly": True},
}
DAMAGE = {
    "empty": lambda data, middle: b"",
    "cut short": lambda data, middle: data[:middle],
    "damaged in the middle": lambda data, half: data[:half] + bytes(3000) + data[half + 3000 :],
    "another kind of file": lambda data, middle: b"PK\x03\x04" + bytes(100),
}


def break_file(path, kind):
    """Write a table with something wrong far from its beginning."""
    cards = make_aged_cards(0 if kind == "no rows" else 2000, seed=1)
    cards = cards.with_columns(**CHANGES.get(kind, {}))
    cards = cards.drop("amount") if kind == "other columns" else cards
    write(cards, path)
    if kind in DAMAGE:
        data = path.read_bytes()
        path.write_bytes(DAMAGE[kind](data, len(data) // 2))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a.parquet", "other columns", r"lacks columns.*\n- missing: 'amount' \(did you mean 'Amo"),
        ("a.parquet", "text for numbers", "'amount' holds numbers, but 'lots' in row 1,501 is not"),
        ("a.csv", "text for numbers", "'amount' holds numbers, but 'lots' in row 1,501 is not"),
        ("a.parquet", "lists for numbers", r"'amount' holds values of type List\(Float64\)"),
        ("a.parquet", "lists for text", r"'country' holds values of type List\(String\)"),
        ("a.parquet", "bytes for numbers", "'amount' holds values of type Binary"),
        ("a.parquet", "dates for numbers", "'amount' holds numbers, but .* in row 1 is not"),
        ("a.parquet", "an infinity", "inf in row 1,701 is not a number"),
        ("a.parquet", "no rows", "a header but no rows"),
        ("a.csv", "no rows", "a header but no rows"),
        ("a.parquet", "scored before", "already has a column 'is_anomaly'"),
        ("a.parquet", "empty", "'a.parquet' is empty"),
        ("a.csv", "empty", "'a.csv' is empty"),
        ("a.parquet", "cut short", "cannot be read as Parquet: .* may be cut short"),
        ("a.csv", "cut short", "line .* where the header has 5"),
        ("a.parquet", "damaged in the middle", "cannot be read as Parquet"),
        ("a.csv", "damaged in the middle", "line .* where the header has 5|is not a number"),
        ("a.parquet", "another kind of file", "cannot be read as Parquet"),
    ],
)
@each("target", ["out.csv", "out.parquet"])
def test_bad_input_is_a_sentence_and_nothing_is_written(
    tmp_path, small_batches, model, name, kind, message, target
):
    break_file(tmp_path / name, kind)
    (tmp_path / target).write_text("precious")
    said = fail("score", model, tmp_path / name, "-o", tmp_path / target, "--force")
    assert re.search(message, said)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, target])
    assert (tmp_path / target).read_text() == "precious"
    (tmp_path / target).unlink()


# --- memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cards.csv", "cards.csv.gz", "cards.parquet"])
def test_a_table_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    path = write(make_aged_cards(20_000), tmp_path / name)
    monkeypatch.setattr(reading, "available_memory", lambda: 10**9)
    check_memory(path)
    monkeypatch.setattr(reading, "available_memory", lambda: 10**6)
    with pytest.raises(InputError, match=r"takes about \d+ MB, and 1 MB are free.*sample"):
        check_memory(path)
    monkeypatch.setattr(csv_reading._Parser, "parse", None)  # it is not even begun
    monkeypatch.setattr(pl, "read_parquet", None)
    if name.endswith("parquet"):  # fit reads it some rows at a time
        assert reading.is_larger_than_memory([path])
        with pytest.raises(InputError, match="does not fit in memory"):
            read_table(path)
        return
    said = fail("fit", path, "--label", "label", "-o", tmp_path / "model.riskad")
    assert "save it as Parquet" in said
    assert "does not fit in memory" in said
    assert not (tmp_path / "model.riskad").exists()


# Not ru_maxrss: a process inherits that of the one which started it.
MEASURED = """
import sys
from riskad.cli.main import cli
cli.main(["score", *sys.argv[1:]], standalone_mode=False)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def peak_memory(model, source, target):
    """Peak resident size, in kilobytes, of a process that scores a file."""
    command = [sys.executable, "-c", MEASURED, str(model), str(source), "-o", str(target), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_million_rows_take_little_more_memory_than_some(tmp_path, model):
    peaks = {}
    for n in (200_000, 1_000_000):
        source, target = tmp_path / f"{n}.parquet", tmp_path / f"{n}-scored.parquet"
        make_aged_cards(n).write_parquet(source, row_group_size=100_000)
        peaks[n] = peak_memory(model, source, target)
        assert pl.scan_parquet(target).select(pl.len()).collect().item() == n
    assert peaks[1_000_000] < 1.3 * peaks[200_000], peaks
