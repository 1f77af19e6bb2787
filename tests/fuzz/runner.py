"""Many inputs in several processes, each watched: time, memory, sudden death; and the summary.

On Linux, which tells what a process uses.
Only the standard library is imported here, so that a worker sets its threads before NumPy starts.
"""

import json
import multiprocessing
import os
import resource
import shlex
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

MODEL_KINDS = ("zip", "header", "state", "deep")
KINDS = ("csv", "numbers", "parquet", *MODEL_KINDS, "options")
HANG_SECONDS = 20
MEMORY_BYTES = 2 * 10**9
# tests/fuzz/play.py says what they mean; an error is one of the fuzzer itself.
FAILURES = ("traceback", "hang", "half-written", "memory", "silent", "mute", "crash", "error")
OUTCOMES = ("ok", "sentence", *FAILURES)
_START_SECONDS = 3600
_MOST_CROWDED = 15  # processes to a core
_POLL_SECONDS = 0.2
# Addresses that threads of other libraries leave behind would reach the limit at last.
_JOBS_OF_A_PROCESS = 5000
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
    """What a worker does: answer jobs, (kind, number) or ("prepare", file), until it is killed."""
    set_threads()
    from . import play

    play.warm_up()
    limit_memory()
    connection.send(None)
    while True:
        kind, what = connection.recv()
        if kind == "prepare":
            connection.send(play.prepare(what, store))
            continue
        try:
            last = play.play(kind, what, seed, store)[-1]
        except Exception:  # counted, so that a long run goes on
            last = play.Played("", "error", traceback.format_exc())
        connection.send((last.verdict, last.step, last.message, last.where, peak_memory()))


def limit_memory():
    """Let huge allocations fail; addresses are more than memory, so this alone cannot judge."""
    limit = _memory("self", 0) + 3 * MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _memory(process, which):
    """Bytes that a process has mapped (0) or holds (1); none once it has died."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[which]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_memory():
    """The most bytes that this process has held.

    Linux starts the `ru_maxrss` of a new process with what its parent held; VmHWM begins anew.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _seconds(process):
    """Seconds that a process has computed for; on a busy machine fewer than have passed."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Worker:
    """A process that answers jobs, and is started anew when it has died or hung."""

    def __init__(self, seed, store):
        self._arguments, self._process, self._asked = (seed, store), None, 0

    def ask(self, job):
        """The answer to a job, or what happened instead."""
        self._asked += 1
        if self._asked % _JOBS_OF_A_PROCESS == 0:
            self.stop()
        if self._process is None:
            self._start()
        limit = _START_SECONDS if job[0] == "prepare" else HANG_SECONDS
        pid = self._process.pid
        try:
            # One that waits computes nothing, so that what has passed counts as well in the end.
            start, end = _seconds(pid), time.monotonic() + _MOST_CROWDED * limit
            self._connection.send(job)
            held = 0
            while not (done := self._connection.poll(_POLL_SECONDS)):
                held = _memory(pid, 1)
                late = _seconds(pid) - start > limit or time.monotonic() > end
                if held > MEMORY_BYTES or late:
                    break
            answer = self._connection.recv() if done else None
            if done and (answer is None or answer[-1] <= MEMORY_BYTES):
                return answer
            held = answer[-1] if done else held
            if held > MEMORY_BYTES:
                lost = ("memory", "", f"{held:,} bytes in use", "", held)
            else:
                lost = ("hang", "", f"no end after {limit:.0f} s of work", "", held)
        except (EOFError, ConnectionError):
            self._process.join()
            lost = ("crash", "", f"the process ended with {self._process.exitcode}", "", 0)
        self.stop()
        return lost

    def _start(self):
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START_SECONDS):
            raise RuntimeError(f"A worker did not start in {_START_SECONDS} s.")
        self._connection.recv()

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def _play_all(jobs, workers, record):
    """Give every worker jobs until there are none; record(job, answer, seconds) hears of each."""
    jobs, lock, ended = iter(jobs), threading.Lock(), threading.Event()

    def serve(worker):
        while not ended.is_set():
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            start = time.monotonic()
            answer = worker.ask(job)
            with lock:
                record(job, answer, time.monotonic() - start)

    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for served in [pool.submit(serve, worker) for worker in workers]:
                served.result()
        finally:
            ended.set()


def run(inputs, seed=0, kinds=KINDS, processes=2, progress=lambda done, failed: None):
    """Play so many inputs, kind after kind in turn; `progress` hears of each and what failed."""
    counts, spent = {kind: Counter() for kind in kinds}, Counter()
    groups, peak, done, start = {}, 0, 0, time.monotonic()

    def prepared(job, answer, seconds):
        if answer is not None:
            raise RuntimeError(f"The file {job[1]} of the fuzzer could not be made: {answer[2]}.")

    def record(job, answer, seconds):
        nonlocal peak, done
        verdict, step, message, where, memory = answer
        counts[job[0]][verdict] += 1
        spent[job[0]] += seconds
        peak, done, failed = max(peak, memory), done + 1, None
        if verdict in FAILURES:
            what = {"verdict": verdict, "kind": job[0], "where": where, "count": 0}
            example = {"replay": replay(*job, seed)}
            example |= {"command": _printable(step), "message": _last_line(message)}
            groups.setdefault((verdict, job[0], where), what | example)["count"] += 1
            failed = f"{verdict} {where}: {example['replay']}"
        progress(done, failed)

    with store_folder() as store:
        workers = [_Worker(seed, store) for _ in range(processes)]
        try:
            _play_all([("prepare", name) for name in files()], workers, prepared)
            jobs = ((kinds[i % len(kinds)], i // len(kinds)) for i in range(inputs))
            _play_all(jobs, workers, record)
        finally:
            for worker in workers:
                worker.stop()
    return {
        "seed": seed,
        "inputs": done,
        "outcomes": {name: sum(c[name] for c in counts.values()) for name in OUTCOMES},
        "by_kind": {kind: dict(sorted(counts[kind].items())) for kind in kinds},
        "mean_milliseconds": {k: round(1000 * spent[k] / max(1, counts[k].total())) for k in kinds},
        "peak_memory_mb": round(peak / 1e6),
        "seconds": round(time.monotonic() - start),
        "failures": sorted(groups.values(), key=lambda group: -group["count"]),
    }


def files():
    """What inputs are made of."""
    from . import bases

    return (*bases.NAMES, "plain.csv")


def _last_line(message):
    """What went wrong, without the paths of a machine."""
    return _printable("".join(message.strip().splitlines()[-1:])[:300])


def _printable(text):
    return text.encode(errors="backslashreplace").decode()


def replay(kind, number, seed):
    words = ("python", "-m", "tests.fuzz", "--kind", kind, "--number", number, "--seed", seed)
    return shlex.join(map(str, words))


def write(summary, folder):
    """Write summary.json, and README.md that says the same to people."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=1) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    (folder / "README.md").write_text(_page(summary, folder), encoding="utf-8")


def _page(summary, folder):
    inputs, seed, kinds = summary["inputs"], summary["seed"], tuple(summary["by_kind"])
    only = "" if kinds == KINDS else f" --kind {'model' if kinds == MODEL_KINDS else kinds[0]}"
    rows = [("kind", *OUTCOMES), ("---",) * (1 + len(OUTCOMES))]
    for kind, counts in (summary["by_kind"] | {"all": summary["outcomes"]}).items():
        rows.append((kind, *(f"{counts.get(name, 0):,}" for name in OUTCOMES)))
    lines = [
        "# Fuzzing",
        "",
        f"{inputs:,} inputs in {summary['seconds']:,} s, each process with at most "
        f"{summary['peak_memory_mb']:,} MB. Outcomes are explained in\n"
        "`tests/fuzz/play.py`. Made by",
        f"`python -m tests.fuzz --inputs {inputs} --seed {seed}{only} --out {folder}`.",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    for group in summary["failures"]:
        what = f"- {group['verdict']} {group['where']}, {group['count']:,} times"
        lines.append(f"{what}, for example `{group['replay']}`")
    return "\n".join(lines) + "\n"
