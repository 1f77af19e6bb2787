"""Tables in an object store: one in the memory of this process, and S3, as spoken by moto."""

import os
import signal
import threading
import time
from functools import partial

import polars as pl
import pytest
from conftest import PATIENCE
from polars.testing import assert_frame_equal
from support.cards import FIT, make_cards
from support.commands import fail, run
from support.stores import KEY, MOTO, SECRET, s3_server

import riskad
from riskad.app import batch_scoring
from riskad.app.model_files import load
from riskad.files import remote
from riskad.rows.engine import Threads
from riskad.tables.reading import read_batches

fs = pytest.importorskip("pyarrow.fs")
fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def s3():
    """The settings of a process that reaches a server on loopback."""
    if MOTO is None:
        pytest.skip("S3 is tested by `nox -s spark`")
    with s3_server() as settings:
        yield settings


@pytest.fixture(params=["memory", "s3"])
def bucket(request, tmp_path, monkeypatch):
    """The address of an empty place in a store."""
    open_store = remote._open_store
    open_store.cache_clear()
    if request.param == "s3":
        for name, value in request.getfixturevalue("s3").items():
            monkeypatch.setenv(name, value)
    else:
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        store = fs.PyFileSystem(fs.FSSpecHandler(memory))
        monkeypatch.setattr(
            remote, "_open_store", lambda root: (store, f"/{root.partition('://')[2]}")
        )
    yield f"s3://bucket/{tmp_path.name}"
    open_store.cache_clear()


@pytest.fixture
def model(card_model):
    return card_model


def succeed(*arguments):
    return run(*arguments).output


def put(frame, address, tmp_path):
    """Write a table into a store by way of this machine; in Parquet by groups of 60 rows."""
    file = tmp_path / address.rpartition("/")[2]
    frame.write_csv(file) if file.suffix == ".csv" else frame.write_parquet(file, row_group_size=60)
    remote.put_file(file, remote.Path(address))


def read(address):
    return pl.concat(read_batches(riskad.tables.paths.find_tables([address])))


@pytest.fixture
def new():
    return make_cards(240, seed=1).drop("label")


@pytest.fixture
def table(model, new):
    return riskad.score_table(load(model), new)[0]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_are_read_and_written_where_they_are(bucket, model, new, table, tmp_path, ending):
    put(new, f"{bucket}/new.{ending}", tmp_path)
    out = f"{bucket}/scored.{ending}"
    succeed("score", model, f"{bucket}/new.{ending}", "-o", out)
    there = read(out)
    assert there["anomaly_score"].cast(float).to_list() == pytest.approx(
        table["anomaly_score"].to_list(), rel=1e-9
    )
    assert f"'{out}' exists already" in fail("score", model, f"{bucket}/new.{ending}", "-o", out)
    succeed("score", model, f"{bucket}/new.{ending}", "-o", out, "--force")
    assert_frame_equal(read(out), there)


def test_a_failure_leaves_nothing_in_the_store(bucket, model, new, tmp_path, monkeypatch):
    put(new, f"{bucket}/new.csv", tmp_path)
    put(new.select("country"), f"{bucket}/bad.csv", tmp_path)
    fail("score", model, f"{bucket}/bad.csv", "-o", f"{bucket}/scored.csv")
    assert not remote.is_file(remote.Path(f"{bucket}/scored.csv"))


def test_folders_and_patterns_mean_their_files(bucket, new, tmp_path):
    for i, part in enumerate(new.iter_slices(80)):
        put(part, f"{bucket}/{i % 2}/{i}.parquet", tmp_path)
    assert_frame_equal(read(bucket).sort("card"), new)
    assert read(f"{bucket}/0/*.parquet").height == 160
    assert read(f"{bucket}/*/1.parquet").height == 80
    with pytest.raises(riskad.InputError, match=r"no Parquet file at 's3://bucket/.*none\*"):
        read(f"{bucket}/none*.parquet")
    assert "There is no file 's3://bucket" in fail("look", f"{bucket}/none.csv")


def test_fits_in_a_store_equal_those_of_files(bucket, tmp_path):
    cards = make_cards(600, seed=3)
    folder = tmp_path / "cards"
    folder.mkdir()
    for i, part in enumerate(cards.iter_slices(200)):
        part.write_parquet(folder / f"{i}.parquet", row_group_size=70)
        put(part, f"{bucket}/cards/{i}.parquet", tmp_path)
    models = []
    for where in (folder, f"{bucket}/cards"):
        out = tmp_path / "m.riskad"
        succeed("fit", where, *FIT, "--id", "card", "-o", out, "--force", "--engine", "dask")
        models.append(load(out)[1])
    assert models[0].coef_.tolist() == pytest.approx(models[1].coef_.tolist(), rel=1e-9)


# --- an engine writes a folder --------------------------------------------------------------------


def test_an_engine_writes_a_folder_with_all_rows_once(bucket, model, new, table, tmp_path):
    put(new, f"{bucket}/new.parquet", tmp_path)
    out = f"{bucket}/scored"
    command = ["score", model, f"{bucket}/new.parquet", "-o", out, "--engine", "dask"]
    assert f"{int(table['is_anomaly'].sum()):,}" in succeed(*command, "--reasons", 1)
    there = read(out)
    assert there.columns == [*table.columns, "reason_1"]
    assert_frame_equal(there.select(table.columns), table, rel_tol=1e-9)
    assert "holds '_SUCCESS' already" in fail(*command)
    succeed(*command, "--force")
    assert_frame_equal(read(out), table, rel_tol=1e-9)
    options = ("--add", "--by", "novelty")
    assert "--add, --by: not with --engine dask" in fail(*command, *options, code=2)


def test_tasks_are_row_groups_and_suspects_are_numbered_over_all(model, tmp_path):
    new = make_cards(500, seed=2).drop("label")
    new[:310].write_parquet(tmp_path / "0.parquet", row_group_size=60)
    new[310:].write_parquet(tmp_path / "1.parquet", row_group_size=60)
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    options = {"id": "card", "top": 5}
    report = batch_scoring.score_files(load(model), paths, tmp_path / "out", Threads(2), **options)
    whole = riskad.score_table(load(model), new, **options)[1]
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 10
    assert (report.rows, report.flagged) == (whole.rows, whole.flagged)
    top, expected = ([(each.row, each.id) for each in one.top] for one in (report, whole))
    assert top == expected


def test_many_rows_are_scored_by_the_student_which_is_said(model, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_scoring, "MANY_ROWS", 100)
    make_cards(150).write_parquet(tmp_path / "new.parquet")
    seen = []

    def student(model):
        seen.append(model)
        return model

    monkeypatch.setattr(batch_scoring, "has_quick_scores", lambda model: True)
    monkeypatch.setattr(batch_scoring, "quick_model", student)
    score = partial(batch_scoring.score_files, load(model), [tmp_path / "new.parquet"])
    report = score(tmp_path / "a", Threads(1))
    assert len(seen) == 1
    assert "scored by the trees" in report.warnings[0]
    assert not score(tmp_path / "b", Threads(1), quick=False).warnings
    assert len(seen) == 1


class Dies(Threads):
    """An engine that is killed after some tasks."""

    def map(self, function, items):
        yield from super().map(function, items[:2])
        raise KeyboardInterrupt


def test_half_of_an_output_is_not_taken_for_all(bucket, model, new, tmp_path):
    put(new, f"{bucket}/new.parquet", tmp_path)
    paths, out = riskad.tables.paths.find_tables([f"{bucket}/new.parquet"]), f"{bucket}/scored"
    score = partial(batch_scoring.score_files, load(model), paths, remote.Path(out))
    with pytest.raises(KeyboardInterrupt):
        score(Dies(1))
    for half in (out, f"{out}/*.parquet"):
        with pytest.raises(riskad.InputError, match="is not complete"):
            read(half)
    score(Threads(1), force=True)
    assert read(out)["card"].to_list() == new["card"].to_list()
    # A second run that is killed does not leave the rows of the first as complete.
    with pytest.raises(KeyboardInterrupt):
        score(Dies(1), force=True)
    with pytest.raises(riskad.InputError, match="is not complete"):
        read(out)


def test_workers_whose_disk_is_another_one_are_noticed(model, tmp_path):
    class Elsewhere(Threads):
        def map(self, function, items):
            yield from super().map(function, items)
            (tmp_path / "out" / "part-000000.parquet").unlink()

    paths = [tmp_path / "new.parquet"]
    make_cards(50).write_parquet(*paths)
    with pytest.raises(riskad.InputError, match="a disk that all machines share"):
        batch_scoring.score_files(load(model), paths, tmp_path / "out", Elsewhere(1))
    assert not (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("amount"), r"1\.parquet has no column 'amount'"),
        (lambda frame: frame.with_columns(more=1), r"0\.parquet has no column 'more'"),
        (lambda frame: frame.cast({"amount": pl.String}), "'amount' is double in"),
    ],
)
def test_files_with_other_columns_are_refused_before_any_work(model, tmp_path, change, message):
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, some in zip(paths, (make_cards(50), change(make_cards(50))), strict=True):
        some.write_parquet(path)
    with pytest.raises(riskad.InputError, match=message):
        batch_scoring.score_files(load(model), paths, tmp_path / "out", Threads(1))
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_not_replaced(model, tmp_path):
    make_cards(50).write_parquet(tmp_path / "new.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "theirs.parquet").write_text("theirs")
    score = partial(batch_scoring.score_files, load(model), [tmp_path / "new.parquet"])
    with pytest.raises(riskad.InputError, match=r"holds 'theirs\.parquet' already"):
        score(tmp_path / "out", Threads(1), force=True)
    with pytest.raises(riskad.InputError, match="name a folder"):
        score(tmp_path / "out.parquet", Threads(1))


def test_a_folder_that_is_read_is_not_written_whatever_its_files_are_called(model, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "new")
    new = make_cards(50).drop("label")
    new.write_parquet(tmp_path / "new" / "part-000000.parquet")
    for out in ("new", "link"):
        command = ["score", model, tmp_path / "new", "-o", tmp_path / out, "--engine", "dask"]
        assert "is both read and written here" in fail(*command, "--force")
    assert_frame_equal(pl.read_parquet(tmp_path / "new" / "part-000000.parquet"), new)


@pytest.mark.slow
def test_workers_that_are_killed_lose_no_row_and_write_none_twice(model, tmp_path):
    distributed = pytest.importorskip("distributed")
    from riskad.rows.cluster import DaskEngine

    new = make_cards(2000, seed=5).drop("label")
    new.write_parquet(tmp_path / "new.parquet", row_group_size=50)
    out = tmp_path / "out"
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        killed = next(iter(client.run(os.getpid).values()))

        def kill():
            end = time.monotonic() + PATIENCE
            while not list(out.glob("part-*.parquet")) and time.monotonic() < end:
                time.sleep(0.005)
            os.kill(killed, signal.SIGKILL)  # a worker that this test has started

        thread = threading.Thread(target=kill)
        thread.start()
        paths = [tmp_path / "new.parquet"]
        batch_scoring.score_files(load(model), paths, out, DaskEngine(client))
        thread.join()
    assert_frame_equal(read(out), riskad.score_table(load(model), new)[0], rel_tol=1e-9)


# --- credentials ----------------------------------------------------------------------------------


def test_credentials_get_into_no_file_and_no_message(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    put(make_cards(), f"{bucket}/cards.parquet", tmp_path)
    files = [tmp_path / name for name in ("m.riskad", "page.html", "fit.json", "card.md")]
    fit = ["fit", f"{bucket}/cards.parquet", *FIT, "--id", "card", "--engine", "dask", "-o"]
    words = [succeed(*fit, files[0], "--report", files[1], "-v")]
    words.append(succeed(*fit, files[0], "--report", files[2], "--force", "--json"))
    words.append(succeed("inspect", files[0], "--card", files[3]))
    words.append(succeed("score", files[0], f"{bucket}/cards.parquet", "-o", tmp_path / "s.csv"))
    words.append(fail("score", files[0], f"{bucket}/none.parquet", "-o", tmp_path / "t.csv"))
    written = b"".join(file.read_bytes() for file in files)
    for secret in (KEY, SECRET):
        assert secret.encode() not in written
        assert not any(secret in text for text in words)


@pytest.mark.parametrize(
    "address", [f"s3://{KEY}:{SECRET}@bucket/a.csv", f"abfs://box@account/a.csv?sig={SECRET}"]
)
def test_an_address_with_a_password_is_refused_and_not_repeated(address, model, tmp_path):
    for command in (
        ["look", address],
        ["score", model, address, "-o", tmp_path / "a.csv"],
        ["score", model, tmp_path / "cards.csv", "-o", address],
    ):
        message = fail(*command)
        assert "AWS_ACCESS_KEY_ID" in message or "no file" in message
        assert SECRET not in message


def test_tables_of_other_kinds_are_copied_first(bucket, tmp_path):
    file = tmp_path / "cards.xlsx"
    file.write_bytes(b"PK\3\4")
    remote.put_file(file, remote.Path(f"{bucket}/cards.xlsx"))
    assert "copy it here" in fail("look", f"{bucket}/cards.xlsx")
