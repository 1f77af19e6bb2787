"""Dask collections: the fit of one process, and what happens when parts of the cluster die."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import PATIENCE
from numpy.testing import assert_allclose, assert_array_equal

from riskad import ShallowRAD

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from support import wait_for
from support.rows import make_table

from riskad.rows.cluster import open_engine
from riskad.rows.engine import ClusterError

SETTINGS = [
    {"loss": "squared", "lam": 0.1},
    {"lam": "theorem"},
    {"feature_map": "poly", "lam": 0.1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_cluster_finds_the_coefficients_of_one_process(client, settings):
    X, y = make_table()
    whole = ShallowRAD(**settings, tol=1e-9).fit(X, y)
    model = ShallowRAD(**settings, tol=1e-9).fit(da.from_array(X, chunks=(700, 2)), y)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    assert model.lambda_ == pytest.approx(whole.lambda_, rel=1e-9)


def test_scores_are_lazy(client):
    X, y = make_table()
    lazy = da.from_array(X, chunks=(700, 4))
    model = ShallowRAD(lam=0.1).fit(lazy, y)
    scores = model.score_samples(lazy)
    assert scores.chunks[0] == lazy.chunks[0]
    assert_allclose(scores.compute(), model.score_samples(X))
    assert_array_equal(model.predict(lazy).compute(), model.predict(X))


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


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_does_not_lose_the_fit(client, tmp_path):
    X, y = make_table()
    settings = {"loss": "logistic", "lam": 0.01, "tol": 1e-9, "scale": False}
    whole = ShallowRAD(**settings).fit(X, y)
    make = _Slow(0.3, tmp_path / "begun")
    slow = da.from_array(X, chunks=(500, 4)).map_blocks(make, dtype=float)
    pids = list(client.run(os.getpid).values())
    model = ShallowRAD(**settings)
    thread = threading.Thread(target=model.fit, args=(slow, y))
    thread.start()
    wait_for(make.begun.exists)  # 6 parts of 0.3 s on 2 workers: they are being made
    os.kill(pids[0], signal.SIGKILL)
    thread.join(timeout=PATIENCE)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    assert len(client.run(os.getpid)) >= 1


@pytest.mark.slow
def test_a_lost_scheduler_is_a_clear_error(tmp_path):
    X, y = make_table()
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    )
    client = distributed.Client(cluster, timeout=PATIENCE)
    try:
        make = _Slow(2.0, tmp_path / "begun")
        slow = da.from_array(X, chunks=(100, 4)).map_blocks(make, dtype=float)
        threading.Thread(target=lambda: (wait_for(make.begun.exists), cluster.close())).start()
        with pytest.raises(ClusterError, match="stopped answering in the middle"):
            ShallowRAD(lam=0.1).fit(slow, y)
    finally:
        client.close()
        cluster.close()


@pytest.mark.slow
def test_an_address_where_nobody_answers():
    nobody = r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"
    with pytest.raises(ClusterError, match=nobody), open_engine("dask", "tcp://127.0.0.1:9"):
        pass


FAULTS = """
import resource
import numpy as np
from riskad.rows.cluster import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of GNU is that of Linux")
@pytest.mark.parametrize(("threshold", "kept"), [("65536", True), ("70000", False)])
def test_a_worker_keeps_the_memory_that_dask_would_return(threshold, kept):
    env = os.environ | {"MALLOC_TRIM_THRESHOLD_": threshold}
    run = subprocess.run(
        [sys.executable, "-c", FAULTS], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    before, after = map(int, run.stdout.split())
    assert before > 10_000
    assert (after < before / 10) == kept
