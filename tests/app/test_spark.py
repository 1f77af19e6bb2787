"""Spark itself, with two local executors: scores of dataframes are those of one process.

Spark has an environment of its own (`nox -s spark`), since it brings 450 MB.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal
from support.cards import FIT, LABELS, cards_with_gaps, fit_cards, make_cards
from support.commands import run
from support.rows import make_table
from support.stores import MOTO, s3_server

import riskad
from riskad.app import batch_scoring
from riskad.app.model_files import load
from riskad.files.remote import put_file
from riskad.tables.labelled import open_table
from riskad.tables.paths import find_tables
from riskad.tables.reading import read_batches

pytest.importorskip("pyspark", reason="Spark is tested by `nox -s spark`")
pytestmark = pytest.mark.filterwarnings("default")  # of Spark itself

from pyspark.sql import SparkSession

from riskad.rows.cluster import SparkEngine, SparkRows
from riskad.rows.engine import ClusterError


@pytest.fixture(scope="module")
def spark():
    """Two executors, whose environment is that of the process that starts them."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        if MOTO is not None:
            for name, value in stack.enter_context(s3_server()).items():
                patch.setenv(name, value)
        # A task that fails, because its process was killed for instance, is run again.
        builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", False)
        for name in ("host", "bindAddress"):
            builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
        session = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
        yield session
        session.stop()


model = pytest.fixture(fit_cards, scope="module")
new = pytest.fixture(cards_with_gaps, scope="module")


@pytest.fixture(scope="module")
def frame(spark, new):
    return spark.createDataFrame(new.to_arrow(compat_level=pl.CompatLevel.oldest()))


def assert_same(frame, table):
    """The same rows, columns and, but for rounding, numbers."""
    got, wanted = pl.DataFrame(pl.from_arrow(frame.toArrow())).sort("card"), table.sort("card")
    assert got.columns == wanted.columns
    for name in wanted.columns:
        exact = name not in ("anomaly_score", "anomaly_probability")
        same = wanted[name].to_list() if exact else pytest.approx(wanted[name].to_list(), rel=1e-9)
        assert got[name].to_list() == same


def test_executors_find_the_scores_of_one_process(model, frame, new):
    table, _ = riskad.score_table(model, new, reasons=2)
    assert 0 < table["is_anomaly"].sum() < table.height
    assert_same(riskad.spark.score(frame, model, reasons=2), table)


def test_order_and_partitions_do_not_change_a_score(model, frame, new):
    table, _ = riskad.score_table(model, new, threshold="rate:0.3")
    others = frame.repartition(5).orderBy("amount")
    assert_same(riskad.spark.score(others, model, threshold="rate:0.3"), table)


def test_partitions_without_rows(model, frame):
    few = frame.filter("amount > 1e9")
    assert riskad.spark.score(few, model, reasons=1).count() == 0


def test_mistakes_are_found_before_any_work(model, frame):
    with pytest.raises(riskad.InputError, match="depends on the scores of all rows"):
        riskad.spark.score(frame, model, threshold="top:5")
    with pytest.raises(riskad.InputError, match="a dataframe of Spark or Dask, got DataFrame"):
        riskad.spark.score(frame.toPandas(), model)
    with pytest.raises(riskad.InputError, match="amount"):
        riskad.spark.score(frame.drop("amount"), model)
    with pytest.raises(riskad.InputError, match="already has a column 'anomaly_score'"):
        riskad.spark.score(frame.withColumnRenamed("when", "anomaly_score"), model)


def killing(folder):
    """A function of batches that kills its process three times, after it has passed on some."""

    def pass_on(batches):
        for batch in batches:
            yield batch
            for i in range(3):
                try:
                    os.close(os.open(f"{folder}/killed {i}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

    return pass_on  # which Spark pickles with its code: executors do not know this module


def test_killed_processes_lose_no_row_and_write_none_twice(spark, model, frame, new, tmp_path):
    table, _ = riskad.score_table(model, new)
    parts = frame.repartition(6)
    scored = riskad.spark.score(parts, model)
    folder = str(tmp_path)
    killed = scored.mapInArrow(killing(folder), scored.schema)
    killed.write.parquet(f"{folder}/scored")
    assert len(list(tmp_path.glob("killed *"))) == 3
    assert (tmp_path / "scored" / "_SUCCESS").exists()
    again = spark.read.parquet(f"{folder}/scored")
    assert set(Counter(row.card for row in again.collect()).values()) == {1}
    assert_same(again, table)


# --- fits -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers(spark):
    """Rows of numbers with labels and weights, on Spark and in memory."""
    X, y = make_table()
    weight = np.linspace(0.5, 2, len(y)).round(3)
    table = pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])])
    table = table.with_columns(label=pl.Series(y), weight=weight)
    frame = spark.createDataFrame(table.to_arrow()).repartition(3)
    return frame.cache(), X, y, weight


@pytest.mark.parametrize(
    "settings", [{"lam": 0.1}, {"loss": "logistic", "lam": "theorem"}], ids=str
)
def test_a_fit_finds_the_coefficients_of_one_process(numbers, settings):
    frame, X, y, weight = numbers
    whole = riskad.ShallowRAD(**settings, tol=1e-9).fit(X, y, sample_weight=weight)
    rows = SparkRows(frame, label="label", weight="weight")
    model = riskad.ShallowRAD(**settings, tol=1e-9).fit(rows)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    assert model.offset_ == pytest.approx(whole.offset_, rel=1e-6, abs=1e-9)
    assert list(model.feature_names_in_) == [f"x{j}" for j in range(X.shape[1])]


def test_a_fit_goes_on_when_processes_are_killed(numbers, tmp_path):
    frame, X, y, weight = numbers
    whole = riskad.ShallowRAD(lam=0.1, tol=1e-9).fit(X, y, sample_weight=weight)
    rows = SparkRows(frame, label="label", weight="weight")
    dying = rows.engine.frame
    rows.engine.frame = dying.mapInArrow(killing(str(tmp_path)), dying.schema)
    model = riskad.ShallowRAD(lam=0.1, tol=1e-9).fit(rows)
    assert len(list(tmp_path.glob("killed *"))) == 3
    assert_allclose(model.coef_, whole.coef_, rtol=1e-6, atol=1e-9)


# --- fits of tables -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Cards in files whose row groups are also the partitions of Spark."""
    folder = tmp_path_factory.mktemp("cards")
    for i, part in enumerate(make_cards(900, seed=4).iter_slices(300)):
        part.write_parquet(folder / f"{i}.parquet", row_group_size=300)
    return folder


@pytest.fixture
def few_rows(monkeypatch):
    """Few rows of each kind are drawn, so that samples are not complete."""
    monkeypatch.setattr("riskad.tables.labelled._SAMPLED_ROWS", 150)
    monkeypatch.setattr("riskad.tables.labelled._FEWEST_SAMPLED", 150)


def read_in_order(spark, folder):
    """A dataframe whose partitions are the files; Spark itself decides which it puts together."""
    paths = sorted(map(str, folder.glob("*.parquet")))

    def read(batches):
        from pyarrow.parquet import read_table

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_table(paths[number]).to_batches()

    schema = spark.read.parquet(paths[0]).schema
    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(read, schema)


def test_a_dataframe_is_fitted_as_files_are(spark, folder, few_rows):
    options = LABELS | {"id": "card", "model": "shallow", "settings": {"lam": 0.01, "tol": 1e-9}}
    files = riskad.fit_table(folder, **options)
    there = riskad.fit_table(read_in_order(spark, folder), **options)
    assert there.report.reading[0].startswith("a dataframe of Spark, read by ")
    assert there.report.labels == files.report.labels
    assert there.report.preparation == files.report.preparation
    assert "150 of " in there.report.reading[1]
    assert there.model[1].coef_.tolist() == pytest.approx(files.model[1].coef_.tolist(), rel=1e-6)
    assert there.ranked["card"].to_list() == files.ranked["card"].to_list()
    assert there.report.flagged == files.report.flagged


def test_auto_learns_from_the_rows_that_one_process_draws(spark, folder, few_rows):
    """From a dataframe, from files on executors, and from the drawn rows without any engine."""
    options = LABELS | {"id": "card"}
    frame, new = read_in_order(spark, folder), make_cards(50, seed=9).drop("label")
    spec = riskad.FitSpec(**options)
    fits = [
        riskad.fit_table(frame, spec),
        riskad.fit_table(folder, spec, engine=SparkEngine(spark)),
        riskad.fit_table(folder, spec),
    ]
    drawn = open_table(frame, spec.labels)
    preparer = riskad.TablePreparer(encode=False)
    sample = drawn.prepare(preparer, ["amount", "country"])
    assert Counter(sample.codes.tolist())[0] == 150 < drawn.counts.unlabelled
    whole = riskad.AutoRAD(random_state=0).fit(
        preparer.features(sample.parsed, training=True), sample.codes
    )
    wanted = whole.anomaly_score(preparer.transform(new)).tolist()
    for fit in fits:
        scores = fit.model[1].anomaly_score(fit.model[0].transform(new)).tolist()
        assert scores == pytest.approx(wanted, rel=1e-9)
        assert fit.report.flagged_of == drawn.counts.unlabelled


def test_without_labels_it_says_what_to_do(spark, folder):
    with pytest.raises(riskad.InputError, match=r"riskad\.spark\.score"):
        riskad.fit_table(read_in_order(spark, folder))


# --- the command line, and S3 ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["here", "s3"])
def test_commands_fit_and_score_where_the_files_are(spark, folder, tmp_path, place):
    if place == "s3" and MOTO is None:
        pytest.skip("there is no server of S3: `nox -s spark` installs one")
    table = pl.concat(map(pl.read_parquet, sorted(folder.glob("*.parquet"))))
    where = str(folder) if place == "here" else f"s3://bucket/{tmp_path.name}"
    for path in folder.glob("*.parquet") if place == "s3" else []:
        put_file(path, Path(where) / path.name)
    out = str(tmp_path / "scored") if place == "here" else f"{where}-scored"
    model, engine = tmp_path / "m.riskad", ["--engine", "spark"]
    fit = ["fit", f"{where}/*.parquet", *FIT, "--id", "card", "-o", model]
    assert "3 files, read" in run(*fit, *engine).output
    coefficients = load(model)[1].coef_.tolist()
    run(*fit, "--force")
    assert load(model)[1].coef_.tolist() == pytest.approx(coefficients, rel=1e-6)
    run("score", model, where, "-o", out, *engine, "--reasons", 1)
    scored = pl.concat(read_batches(find_tables([out])))
    assert_frame_equal(scored, riskad.score_table(load(model), table, reasons=1)[0], rel_tol=1e-9)


class Killing(SparkEngine):
    """Executors whose process is killed once before a task, and once when it has written."""

    def __init__(self, session, folder):
        super().__init__(session)

        def die(when):
            try:
                os.close(os.open(f"{folder}/killed {when}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

        def work(function, item, number):
            die("before")
            result = function(item, number)
            die("after")
            return result

        self.work = work

    def map(self, function, items):
        return super().map(partial(self.work, function), items)


def test_executors_killed_while_they_score_files_write_no_row_twice(spark, folder, model, tmp_path):
    paths, out = sorted(folder.glob("*.parquet")), tmp_path / "out"
    batch_scoring.score_files(model, paths, out, Killing(spark, tmp_path))
    assert len(list(tmp_path.glob("killed *"))) == 2
    table = pl.concat(map(pl.read_parquet, paths))
    scored = pl.concat(read_batches(find_tables([out])))
    assert_frame_equal(scored, riskad.score_table(model, table)[0], rel_tol=1e-9)


# --- failures -------------------------------------------------------------------------------------


def test_a_process_works_on_many_items(spark):
    """Each has imported riskad and read the model, which takes seconds."""
    processes = SparkEngine(spark).map(lambda item, number: os.getpid(), range(8))
    assert len(set(processes)) < 8


def test_what_fails_on_executors_is_one_sentence(spark):
    def fail(item, number):
        raise OSError("the disk is full")

    def die(item, number):
        os.kill(os.getpid(), signal.SIGKILL)

    failed = r"^Spark could not finish the job: [^\n]*{}[^\n]*Nothing was completed\.$"
    for work, reason in ((fail, "OSError: the disk is full"), (die, "exited unexpectedly")):
        with pytest.raises(ClusterError, match=failed.format(reason)):
            list(SparkEngine(spark).map(work, range(3)))
    assert list(SparkEngine(spark).map(lambda item, number: item, range(3))) == [0, 1, 2]


@pytest.mark.parametrize("missing", ["a master", "Java"])
def test_spark_that_does_not_start_is_one_sentence(folder, model, tmp_path, missing):
    riskad.save(model, tmp_path / "m.riskad")
    command = [sys.executable, "-m", "riskad", "score", "m.riskad", folder, "-o", "out"]
    command += ["--engine", "spark"] + ["--scheduler", "nowhere"] * (missing == "a master")
    env = dict(os.environ)
    if missing == "Java":
        # What starts Java is a script of bash.
        (tmp_path / "bash").symlink_to(shutil.which("bash"))
        env = env | {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    process = subprocess.run(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    *_, last = process.stderr.splitlines()
    assert process.returncode == 1
    assert last.startswith("Error: Spark could not start")
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "out").exists()


# --- MLflow ---------------------------------------------------------------------------------------


def test_the_function_that_mlflow_makes_for_spark(spark, model, frame, new, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow.pyfunc")
    riskad.mlflow.save_model(model, tmp_path / "model")
    result = "anomaly_score double, is_anomaly boolean, anomaly_probability double"
    score = mlflow.spark_udf(spark, str(tmp_path / "model"), result, env_manager="local")
    scored = frame.withColumn("s", score("amount", "country")).select("card", "s.*")
    table, _ = riskad.score_table(model, new)
    assert_same(scored, table.select(scored.columns))


def test_columns_of_texts_are_refused(frame):
    with pytest.raises(riskad.InputError, match=r"country.* hold no numbers"):
        SparkRows(frame, label="when")


def test_a_dataframe_that_changes_between_passes_is_refused(spark):
    def some(batches):
        for batch in batches:
            yield batch.slice(0, int.from_bytes(os.urandom(4)) % batch.num_rows)

    frame = spark.range(2000).selectExpr("double(id) AS x", "int(id % 3) - 1 AS label")
    with pytest.raises(riskad.InputError, match="not the same each time"):
        riskad.ShallowRAD(lam=0.1).fit(
            SparkRows(frame.mapInArrow(some, frame.schema), label="label")
        )
