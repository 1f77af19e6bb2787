"""Run some random cells of the committed records again, and compare.

    RISKAD_DATA=... python benchmarks/rerun.py shallow field --cells 12 --seed 0

Cells of shallow and field come out to their digits with the versions of constraints.txt; those of
deep were trained on a GPU in half precision and come out nearly. Only cells whose method is
installed are drawn: CatBoost, XGBoost, PyOD and DeepOD come with riskad[peers] or by hand. AutoRAD
leaves members out when its budget runs short, as it does on a busy machine: its cells then differ.
"""

import argparse
import importlib.util
import random
import sys
from pathlib import Path

from riskad.bench.experiment import built_in, identity_key, load_experiment
from riskad.bench.image_trial import find_device, run_together
from riskad.bench.records import OK, read_records
from riskad.bench.trial import run_cell

RESULTS = Path(__file__).parents[1] / "results"
ALLOWED = {"shallow": 2e-3, "field": 2e-3, "deep": 1e-2}  # the last digits differ by processor


def can_run(cell):
    """Whether the method of a cell is installed."""
    peer = str(cell.settings.get("peer", cell.estimator)).partition(".")[0]
    return importlib.util.find_spec(peer) is not None


def recorded_cells(suite, slowest):
    """Cells that were run in at most so many seconds, with what was recorded."""
    for name in sorted(built_in(suite)):
        rows = read_records(RESULTS / suite / "records" / f"{name}.jsonl")
        held = {identity_key(row): row for row in rows if row["status"] == OK}
        for cell in load_experiment(built_in(suite)[name]).cells():
            row = held.get(cell.key)
            if row and row["fit_seconds"] <= slowest and can_run(cell):
                yield cell, row


def run_again(suite, cell, device):
    if suite == "deep":
        (again,) = run_together([cell], find_device(device))
        return again
    return run_cell(cell)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", choices=list(ALLOWED))
    parser.add_argument("--cells", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dataset", help="only cells of this one")
    parser.add_argument("--device", default="auto", help="where networks are trained")
    parser.add_argument("--slowest", type=float, default=60.0, help="seconds of a recorded fit")
    arguments = parser.parse_args()
    n_off = 0
    for suite in arguments.suites:
        pairs = [
            (cell, row)
            for cell, row in recorded_cells(suite, arguments.slowest)
            if arguments.dataset in (None, cell.dataset, getattr(cell.dataset, "name", None))
        ]
        for cell, row in random.Random(arguments.seed).sample(pairs, arguments.cells):
            again = run_again(suite, cell, arguments.device)
            what = (suite, cell.experiment, cell.dataset, cell.method, f"trial {cell.trial}")
            if again["status"] != OK:
                n_off += 1
                print(*what, again["status"], again.get("reason"), flush=True)
                continue
            off = again["auc"] - row["auc"]
            n_off += abs(off) > ALLOWED[suite]
            print(*what, f"{row['auc']:.6f} {again['auc']:.6f} {off:+.6f}", flush=True)
    print(f"{n_off} differ by more than allowed")
    return n_off > 0


if __name__ == "__main__":
    sys.exit(main())
