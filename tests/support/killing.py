"""Commands that are killed, at a random moment or before a chosen step, and started again.

A server process imports everything once and forks for each command, before polars has threads.
"""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import duckdb
import numpy as np
import polars as pl

from .cards import draw_cards

SERVER = """
import gc, json, os, signal, sys, time
import riskad.app.model_files, riskad.app.report.terminal, riskad.app.score
import riskad.detectors.shallow, riskad.tables.targets, riskad.files.codec
import duckdb, pyarrow.parquet, sqlite3
from riskad.cli.main import main


def before_step(module, name, k):
    '''Let the process kill itself before the k-th call of a function.'''
    calls, real = [0], getattr(module, name)

    def counted(*arguments, **named):
        calls[0] += 1
        if calls[0] == k:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(module, name, counted)


gc.disable()  # or each child would touch, and so copy, all that it shares with the others
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    task = json.loads(line)
    child = os.fork()
    if not child:
        sys.stdout = open(os.devnull, "w")
        os.chdir(task["folder"])
        if task["step"]:
            module, name, k = task["step"]
            before_step(sys.modules[module], name, k)
        main(task["arguments"])
    if task["kill_after"] is not None:
        time.sleep(task["kill_after"])
        os.kill(child, signal.SIGKILL)  # it is ours until we have waited for it
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Commands:
    """Runs commands of riskad one after the other."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self._server.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def run(self, *arguments, kill_after=None, step=None):
        """Run a command and return its exit code, -9 where it was killed."""
        arguments = [str(each) for each in arguments]
        task = {"arguments": arguments, "step": step, "kill_after": kill_after}
        task["folder"] = os.getcwd()
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


def make_events(n, seed=0):
    """Payments of three days, named by numbers."""
    minutes = np.random.default_rng(seed).integers(0, 3 * 60, n)
    paid = [f"2026-11-{15 + m // 60} 08:{m % 60:02}:00" for m in minutes]
    cards = draw_cards(n, seed)[0].with_columns(payment=pl.int_range(n), paid=pl.Series(paid))
    return cards.select("payment", "amount", "age", "paid", status="label")


TARGETS = {
    "sqlite": ["-o", "out.sqlite::scored"],
    "duckdb": ["-o", "out.duckdb::scored"],
    "folder": ["-o", "out", "--day", "paid"],
}


def read_ids(kind, folder):
    """The ids of all rows of an output, which may not be there yet."""
    query = "SELECT payment FROM scored"
    if kind == "folder":
        if not list((folder / "out").glob("*/*.parquet")):
            return []
        with duckdb.connect() as database:
            query = f"SELECT payment FROM read_parquet('{folder}/out/*/*.parquet')"
            return sorted(int(id) for (id,) in database.execute(query).fetchall())
    file = folder / f"out.{kind}"
    if not file.exists():
        return []
    try:
        connect = sqlite3.connect if kind == "sqlite" else duckdb.connect
        with closing(connect(str(file))) as database:
            return sorted(int(id) for (id,) in database.execute(query).fetchall())
    except (sqlite3.OperationalError, duckdb.CatalogException):
        return []  # no such table yet
