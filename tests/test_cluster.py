"""Dask collections: the fit of one process, and what happens when parts of the cluster die."""

import os
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from conftest import PATIENCE
from numpy.testing import assert_allclose, assert_array_equal

from riskad import InputError, ShallowRAD

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from support.rows import make_table

from riskad.rows.cluster import ClusterError, DaskRows, dask_engine


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


SETTINGS = [
    {"lam": 0.1},
    {"loss": "squared", "lam": 0.1},
    {"loss": "logistic", "lam": 0.01},
    {"lam": "theorem"},
    {"lam": "cv"},
    {"feature_map": "poly", "lam": 0.1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_cluster_finds_the_coefficients_of_one_process(client, settings):
    X, y = make_table()
    whole = ShallowRAD(**settings, tol=1e-9).fit(X, y)
    model = ShallowRAD(**settings, tol=1e-9).fit(da.from_array(X, chunks=(700, 2)), y)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    assert model.lambda_ == pytest.approx(whole.lambda_, rel=1e-9)


def test_collections_work_without_a_cluster():
    X, y = make_table()
    weight = np.linspace(0.5, 1.5, len(y))
    lazy = da.from_array(X, chunks=(1000, 4))
    model = ShallowRAD(lam=0.1, tol=1e-9).fit(
        lazy, da.from_array(y, chunks=400), da.from_array(weight, chunks=900)
    )
    whole = ShallowRAD(lam=0.1, tol=1e-9).fit(X, y, weight)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)


def test_scores_are_lazy(client):
    X, y = make_table()
    lazy = da.from_array(X, chunks=(700, 4))
    model = ShallowRAD(lam=0.1).fit(lazy, y)
    scores = model.score_samples(lazy)
    assert scores.chunks[0] == lazy.chunks[0]
    assert_allclose(scores.compute(), model.score_samples(X))
    assert_array_equal(model.predict(lazy).compute(), model.predict(X))


def test_partitions_of_unknown_length(client):
    X, y = make_table()
    both = da.from_array(np.column_stack([X, y]), chunks=(700, 5))
    kept = both[both[:, 0] < 10]  # all of them, but Dask cannot know
    model = ShallowRAD(lam=0.1, tol=1e-9).fit(kept[:, :4], kept[:, 4])
    assert_allclose(model.coef_, ShallowRAD(lam=0.1, tol=1e-9).fit(X, y).coef_, rtol=1e-8)


def test_data_frames_keep_their_names(client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = make_table()
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=3)
    model = ShallowRAD(lam=0.1).fit(frame, y)
    assert list(model.feature_names_in_) == list("abcd")
    texts = frame.assign(a="text")
    with pytest.raises(InputError, match="'a' hold no numbers"):
        ShallowRAD().fit(texts, y)


def test_labels_must_fit_the_rows():
    X, y = make_table()
    with pytest.raises(InputError, match="one entry for each of the 3,000 rows"):
        DaskRows(da.from_array(X), y[:-1])
    with pytest.raises(InputError, match=r"must hold only \+1"):
        ShallowRAD().fit(da.from_array(X), np.full(len(y), 7))


class _Slow:
    """A loss-free way to lengthen a pass: rows that take a moment to make.

    The first worker to make some writes a file.
    """

    def __init__(self, seconds, begun):
        self.seconds = seconds
        self.begun = begun
        self.ours = os.getpid()

    def __call__(self, X):
        if os.getpid() != self.ours:  # Dask tries it here on no rows
            self.begun.touch()
        time.sleep(self.seconds)
        return X

    def wait(self):
        end = time.monotonic() + PATIENCE
        while not self.begun.exists():
            assert time.monotonic() < end, "no worker has begun"
            time.sleep(0.02)


def test_a_worker_killed_in_the_middle_does_not_lose_the_fit(client, tmp_path):
    X, y = make_table()
    settings = {"loss": "logistic", "lam": 0.01, "tol": 1e-9, "scale": False}
    whole = ShallowRAD(**settings).fit(X, y)
    make = _Slow(0.3, tmp_path / "begun")
    slow = da.from_array(X, chunks=(500, 4)).map_blocks(make, dtype=float)
    pids = list(client.run(os.getpid).values())
    found = {}

    def fit():
        found["model"] = ShallowRAD(**settings).fit(slow, y)

    thread = threading.Thread(target=fit)
    thread.start()
    make.wait()  # 6 parts of 0.3 s on 2 workers: they are being made
    os.kill(pids[0], signal.SIGKILL)
    thread.join(timeout=PATIENCE)
    assert_allclose(found["model"].coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    assert len(client.run(os.getpid)) >= 1


def test_a_lost_scheduler_is_a_clear_error(tmp_path):
    X, y = make_table()
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    )
    client = distributed.Client(cluster, timeout=PATIENCE)
    try:
        make = _Slow(2.0, tmp_path / "begun")
        slow = da.from_array(X, chunks=(100, 4)).map_blocks(make, dtype=float)
        threading.Thread(target=lambda: (make.wait(), cluster.close())).start()
        with pytest.raises(ClusterError, match="stopped answering in the middle"):
            ShallowRAD(lam=0.1).fit(slow, y)
    finally:
        client.close()
        cluster.close()


def test_an_address_where_nobody_answers():
    nobody = r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"
    with pytest.raises(ClusterError, match=nobody), dask_engine("tcp://127.0.0.1:9"):
        pass


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="needs /proc")
def test_without_an_address_no_port_is_opened_and_no_process_started():
    before = listening()
    with dask_engine() as engine:
        for ports, pid in engine.map(lambda item, i: (listening(), os.getpid()), [1, 2]):
            assert ports <= before
            assert pid == os.getpid()


def listening():
    """Ports on which this process listens."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as lines:
            rows = [line.split() for line in lines][1:]
        found |= {(row[1], row[9]) for row in rows if row[3] == "0A"}
    ours = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            ours.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {port for port, inode in found if f"socket:[{inode}]" in ours}


def test_parquet_files_on_a_cluster(tmp_path, cluster):
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    from riskad.rows.parquet import ParquetRows

    X, y = make_table()
    for i in range(3):
        rows = slice(1000 * i, 1000 * (i + 1))
        frame = pl.DataFrame(X[rows], schema=list("abcd")).with_columns(label=y[rows])
        frame.write_parquet(tmp_path / f"{i}.parquet", row_group_size=400)
    with dask_engine(cluster.scheduler_address) as engine:
        model = ShallowRAD(lam=0.1, tol=1e-9).fit(
            ParquetRows(tmp_path, label="label", engine=engine)
        )
    assert_allclose(model.coef_, ShallowRAD(lam=0.1, tol=1e-9).fit(X, y).coef_, rtol=1e-8)
