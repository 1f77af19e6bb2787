"""Whether AutoRAD is the same model on a busy machine: scores are compared bit by bit.

    RISKAD_DATA=... python benchmarks/repeatable.py results/field/repeatable.json

Some of the paper's sets, a twentieth of the rows labelled at random. Each is fitted once as the
machine is, and once more, in a new process, while four other processes keep it busy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from riskad import AutoRAD
from riskad.bench.provenance import provenance
from riskad.datasets import load_adbench

SETS = ("thyroid", "vowels")
BUSY, SHARE = 4, 0.05
_SPAWN = multiprocessing.get_context("spawn")


def scored(name: str) -> dict[str, Any]:
    """Fit to a set; the digest of the scores of all rows, and the seconds of the fit."""
    data = load_adbench(name)
    X, t = np.asarray(data.X, dtype=float), np.asarray(data.y)
    known = np.random.default_rng(0).random(len(t)) < SHARE
    start = time.perf_counter()
    model = AutoRAD().fit(X, np.where(known, t, 0))
    seconds = round(time.perf_counter() - start, 2)
    scores = model.score_samples(X)
    digest = hashlib.sha256(np.ascontiguousarray(scores).tobytes()).hexdigest()
    return {"rows": len(t), "seconds": seconds, "scores": digest}


def in_a_process(name: str) -> dict[str, Any]:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        return pool.submit(scored, name).result()


def spin() -> None:
    """Compute until killed."""
    while True:
        np.sort(np.random.default_rng(0).random(100_000))


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other work on the machine."""
    others = [_SPAWN.Process(target=spin, daemon=True) for _ in range(processes)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path)
    told = parser.parse_args()
    found: dict[str, Any] = {**provenance(), "busy_processes": BUSY, "sets": {}}
    for name in SETS:
        first = in_a_process(name)
        with busy(BUSY):
            second = in_a_process(name)
        same = first["scores"] == second["scores"]
        found["sets"][name] = {"first": first, "busy": second, "same": same}
        print(name, first["seconds"], second["seconds"], same, flush=True)
    told.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
