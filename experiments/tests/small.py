"""A small experiment whose cells misbehave on request, for other processes to import."""

import os
import sys
import time
import warnings
from pathlib import Path

from experiments.runner import Cell, Experiment, NotAvailable, Skipped, run

TRIALS = 6


def run_cell(cell):
    if cell["dataset"] == "absent":
        raise NotAvailable("absent.npz is not here", dataset="absent")
    match cell["method"]:
        case "failing":
            raise RuntimeError("not today")
        case "dying":
            os._exit(9)
        case "skipping":
            raise Skipped("it needs labels")
        case "slow":
            time.sleep(0.15)
        case "warning":
            warnings.warn("a single value", stacklevel=1)
    return {"auc": 0.5 + cell["trial"] / 100, "fit_seconds": time.perf_counter()}


def experiment(*methods, datasets=("glass", "wine"), trials=TRIALS, **more):
    def cells():
        for trial in range(trials):
            for dataset in datasets:
                for method in methods or ("plain",):
                    yield Cell(dataset=dataset, method=method, trial=trial, prior="true", **more)
                    yield Cell(dataset=dataset, method=method, trial=trial, prior=0.8, **more)

    return Experiment("small", "A small one", cells, run_cell, write_report, "rooms")


def write_report(frame, folder):
    (folder / "page.md").write_text(f"{len(frame)} records\n")


if __name__ == "__main__":
    run(experiment("slow"), jobs=2, results=Path(sys.argv[1]))
