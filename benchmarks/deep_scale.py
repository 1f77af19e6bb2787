"""Deep training by two processes beside one, and from disk beside memory: seconds a step, memory.

    python benchmarks/deep_scale.py --output results/scale/deep.json     # some minutes

Every fit is a fresh process with one thread. The time of a step is the median over stretches of ten
steps between two checks, so that starting and reading the rows once do not count. Two processes
share each batch and are compared with one that has the whole batch to itself. Rows on disk are
compared with the same rows in memory; the file stays in the system's cache, so this is the price of
gathering rows, not that of a slow disk. Memory is what a process has allocated at most beyond what
it had when the rows were opened (RssAnon: without the pages of files, which the system can drop).
Pairs are taken in turn, and the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

EVERY = 10
NETS = {
    "mlp, 200 columns, batch 224": {"shape": [200], "module": "mlp", "times": 1},
    "mlp, 200 columns, batch 3584": {"shape": [200], "module": "mlp", "times": 16},
    "lenet-mnist, 28 x 28, batch 224": {"shape": [28, 28], "module": "lenet-mnist", "times": 1},
}


# --- one fit, in a process of its own ----------------------------------------------------------


def allocated() -> float:
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024


class Peak:
    """Most megabytes allocated while this is open, beyond those at the beginning."""

    def __enter__(self) -> Peak:
        self.start = self.most = allocated()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.most = max(self.most, allocated())

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self.megabytes = round(self.most - self.start)


def work(job: dict[str, Any]) -> None:
    """Fit as the job says, and print seconds a step and the peak."""
    import torch
    import torch.distributed as dist

    from riskad import DeepRAD

    torch.set_num_threads(1)
    if job["size"] > 1:
        store = dist.FileStore(job["store"], job["size"])
        limit = timedelta(minutes=5)
        dist.init_process_group(
            "gloo", store=store, rank=job["rank"], world_size=job["size"], timeout=limit
        )
    checks: list[float] = []
    with Peak() as peak:
        X = np.load(job["rows"], mmap_mode="r" if job["mapped"] else None)
        y = np.zeros(len(X), dtype=int)
        y[:200], y[-100:] = 1, -1
        batch = tuple(b * job["times"] for b in (64, 32, 128))
        DeepRAD(
            job["module"],
            batch=batch,
            n_steps=job["steps"],
            check_every=EVERY,
            device="cpu",
            callback=lambda progress: checks.append(time.perf_counter()),
        ).fit(X, y)
    step = statistics.median(np.diff(checks)) / EVERY
    print(json.dumps({"ms_a_step": round(1000 * step, 3), "allocated_mb": peak.megabytes}))


# --- all of them -------------------------------------------------------------------------------


def run(job: dict[str, Any], folder: Path, size: int = 1, mapped: bool = False) -> dict[str, float]:
    """What rank 0 of `size` processes prints."""
    store = folder / "store"
    store.unlink(missing_ok=True)
    started = []
    for rank in range(size):
        more = {"size": size, "rank": rank, "store": str(store), "mapped": mapped}
        command = [sys.executable, __file__, "--job", json.dumps(job | more)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a fit failed; its message is above")
    return json.loads(printed[0])


def make_rows(path: Path, shape: list[int], n: int) -> None:
    X = np.lib.format.open_memmap(path, "w+", "f4", (n, *shape))
    rng = np.random.default_rng(0)
    for start in range(0, n, 10_000):
        X[start : start + 10_000] = rng.standard_normal(X[start : start + 10_000].shape, "f4")
    X[-100:] += 1
    X.flush()


def compare(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """The second of each pair over the first, and the medians of both."""

    def median(which: int, key: str) -> float:
        return statistics.median(pair[which][key] for pair in pairs)

    ratios = [other["ms_a_step"] / one["ms_a_step"] for one, other in pairs]
    return {
        "ms_a_step": [median(0, "ms_a_step"), median(1, "ms_a_step")],
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "allocated_mb": [median(0, "allocated_mb"), median(1, "allocated_mb")],
    }


def measure(megabytes: int, steps: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"two processes over one": {}, "disk over memory": {}}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for title, net in NETS.items():
            rows = folder / "rows.npy"
            make_rows(rows, net["shape"], megabytes * 2**18 // int(np.prod(net["shape"])))
            job = net | {"rows": str(rows), "steps": steps}
            one, two, disk = [], [], []
            for _ in range(rounds):
                one.append(run(job, folder))
                two.append(run(job, folder, size=2))
                disk.append(run(job, folder, mapped=True))
            found["two processes over one"][title] = compare(list(zip(one, two, strict=True)))
            found["disk over memory"][title] = compare(list(zip(one, disk, strict=True)))
            print(
                title, json.dumps({kind: each[title] for kind, each in found.items()}), flush=True
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, default=400, help="size of the file of rows")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.job:
        work(json.loads(options.job))
        return
    found = measure(options.megabytes, options.steps, options.rounds)
    about = {
        "torch": version("torch"),
        "python": platform.python_version(),
        "megabytes": options.megabytes,
        "steps": options.steps,
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(about | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
