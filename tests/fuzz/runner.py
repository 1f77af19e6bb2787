"""Many inputs in several processes, each watched: time, memory, sudden death; and the summary.

Only the standard library is imported here, so that a worker sets its threads before NumPy starts.
"""

import json
import multiprocessing
import os
import resource
import shlex
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

KINDS = ("csv", "numbers", "parquet", "zip", "header", "state", "deep", "options")
HANG_SECONDS = 20
MEMORY_BYTES = 2 * 10**9
FAILURES = ("traceback", "hang", "half-written", "memory", "silent", "mute", "crash", "error")
OUTCOMES = ("ok", "sentence", *FAILURES)
_PREPARE_SECONDS = 300
_SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def store_folder():
    """A folder for base models and inputs, in memory where that can be had."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="riskad-fuzz-", dir=place) as folder:
        yield folder


def set_threads():
    """One thread for each library: inputs are small and workers are many."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ[name] = "1"


def _work(connection, seed, store):
    set_threads()
    from . import play

    _warm_up()
    _limit_memory()
    connection.send(None)
    while (job := connection.recv()) is not None:
        kind, what = job
        if kind == "prepare":
            play.prepare(what, store)
            connection.send(None)
            continue
        try:
            last = play.play(kind, what, seed, store)[-1]
        except Exception:  # of the fuzzer itself: counted, so that a long run goes on
            last = play.Played("", "error", traceback.format_exc())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak *= 1 if sys.platform == "darwin" else 1024
        connection.send((last.verdict, last.step, last.message, last.where, peak))


def _warm_up():
    """Import what commands import when they are called, so that it is in no input's time."""
    import lightgbm  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch

    import riskad.deep.detectors
    import riskad.findings
    import riskad.page
    import riskad.workflow  # noqa: F401

    torch.set_num_threads(1)


def _limit_memory():
    """Let allocations fail before the machine is out of memory."""
    if sys.platform != "linux":
        return
    pages, resident = map(int, Path("/proc/self/statm").read_text().split()[:2])
    page = os.sysconf("SC_PAGE_SIZE")
    limit = pages * page + MEMORY_BYTES - resident * page
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


class _Worker:
    """A process that plays jobs one after another, and is replaced when it dies or hangs."""

    def __init__(self, seed, store):
        self._arguments = (seed, store)
        self._start()

    def _start(self):
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.job, self.ready = None, False
        self.deadline = time.monotonic() + _PREPARE_SECONDS

    def give(self, job):
        self.job, self.begun = job, time.monotonic()
        limit = _PREPARE_SECONDS if job[0] == "prepare" else HANG_SECONDS
        self.deadline = time.monotonic() + limit
        self.connection.send(job)

    def stop(self):
        self.process.kill()
        self.process.join()
        self.connection.close()

    def replace(self):
        self.stop()
        self._start()


def _play_all(jobs, workers, record):
    """Hand out jobs until all have an outcome; record(job, outcome) is told of each."""
    jobs, open_jobs = iter(jobs), True
    for worker in workers:
        if worker.ready:
            open_jobs = _give_next(worker, jobs) and open_jobs
    while any(worker.job or not worker.ready for worker in workers):
        ready = wait([worker.connection for worker in workers], timeout=1)
        for worker in workers:
            waiting, outcome = worker.job or not worker.ready, None
            if worker.connection in ready:
                try:
                    outcome = worker.connection.recv()
                except EOFError:
                    worker.process.join()
                    outcome = ("crash", "", f"the process ended: {worker.process.exitcode}", "", 0)
            elif waiting and time.monotonic() > worker.deadline:
                outcome = ("hang", "", f"no end after {HANG_SECONDS} s", "", 0)
            else:
                continue
            _settle(worker, outcome, record)
            if worker.ready and worker.job is None and open_jobs:
                open_jobs = _give_next(worker, jobs)


def _give_next(worker, jobs):
    job = next(jobs, None)
    if job is not None:
        worker.give(job)
    return job is not None


def _settle(worker, outcome, record):
    lost = outcome is not None and outcome[0] in ("hang", "crash")
    if worker.job is None or worker.job[0] == "prepare":
        if lost:
            raise RuntimeError(f"A worker could not begin with {worker.job}: {outcome[2]}")
        worker.ready, worker.job = True, None
        return
    if outcome[4] > MEMORY_BYTES:
        outcome = ("memory", outcome[1], f"a peak of {outcome[4]:,} bytes", "", outcome[4])
        lost = True
    record(worker.job, outcome, time.monotonic() - worker.begun)
    worker.job = None
    if lost:
        worker.replace()


def run(inputs, seed=0, kinds=KINDS, processes=2, progress=lambda done, failed: None):
    """Play that many inputs, the same number of each kind, and return the summary."""
    counts = {kind: Counter() for kind in kinds}
    spent = Counter()
    groups, peak, done, start = {}, 0, 0, time.monotonic()

    def record(job, outcome, seconds):
        nonlocal peak, done
        verdict, step, message, where, memory = outcome
        counts[job[0]][verdict] += 1
        spent[job[0]] += seconds
        peak, done = max(peak, memory), done + 1
        if verdict in FAILURES:
            kind = {"verdict": verdict, "kind": job[0], "where": where, "count": 0}
            example = {"replay": replay(*job, seed), "command": step, "message": message[-2000:]}
            groups.setdefault((verdict, job[0], where), kind | example)["count"] += 1
        progress(done, sum(group["count"] for group in groups.values()))

    jobs = ((kind, number) for number in range(-(-inputs // len(kinds))) for kind in kinds)
    with store_folder() as store:
        workers = [_Worker(seed, store) for _ in range(processes)]
        try:
            _play_all([("prepare", name) for name in files()], workers, record)
            _play_all((job for job, _ in zip(jobs, range(inputs), strict=False)), workers, record)
        finally:
            for worker in workers:
                worker.stop()
    return {
        "seed": seed,
        "inputs": done,
        "outcomes": {name: sum(c[name] for c in counts.values()) for name in OUTCOMES},
        "by_kind": {kind: dict(sorted(counts[kind].items())) for kind in counts},
        "mean_milliseconds": {k: round(1000 * spent[k] / counts[k].total(), 1) for k in counts},
        "peak_memory_mb": round(peak / 1e6),
        "seconds": round(time.monotonic() - start),
        "failures": sorted(groups.values(), key=lambda group: -group["count"]),
    }


def files():
    """Base models, slow ones first, and a table."""
    quick = ("boosted", "forest", "mapped", "pipeline", "pretrained", "rad", "nnpu", "sad")
    return ("auto", "deep", "shallow", *quick, "plain.csv")


def replay(kind, number, seed):
    return shlex.join(
        ["python", "-m", "tests.fuzz", "--kind", kind, "--number", str(number), "--seed", str(seed)]
    )


def write(summary, folder):
    """Write summary.json, and README.md that says the same to people."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=1) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    (folder / "README.md").write_text(_page(summary), encoding="utf-8")


def _page(summary):
    rows = [("kind", *OUTCOMES), ("---",) * (1 + len(OUTCOMES))]
    rows += [(k, *(f"{c.get(n, 0):,}" for n in OUTCOMES)) for k, c in summary["by_kind"].items()]
    rows += [("all", *(f"{summary['outcomes'][name]:,}" for name in OUTCOMES))]
    lines = [
        "# Fuzzing",
        "",
        f"{summary['inputs']:,} inputs, seed {summary['seed']}, {summary['seconds']:,} s, at most "
        f"{summary['peak_memory_mb']:,} MB in a process. Made by `python -m tests.fuzz --inputs "
        f"{summary['inputs']} --seed {summary['seed']} --out results/fuzz`; `tests/fuzz/play.py` "
        "says what each outcome means.",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    for group in summary["failures"]:
        first = f"- {group['verdict']}, {group['kind']}: {group['where'] or 'no exception'}"
        lines.append(f"{first}, {group['count']:,} times, for example `{group['replay']}`")
    return "\n".join(lines) + "\n"
