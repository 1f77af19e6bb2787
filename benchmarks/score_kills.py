"""Is every row scored once, whenever `riskad score --since auto` is killed?

python benchmarks/score_kills.py --kills 100 --output results/scoring/kills.json

For each kind of target (SQLite, DuckDB, a folder by day) a table grows, the command is started, and
killed (kill -9) at a random moment of the time that it takes when nobody kills it. After each kill
the target is read: how many rows it has twice, and whether it has all rows of a run or none. At the
end the command runs once more, and rows that are missing are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.killing import TARGETS, Commands, make_events, read_ids

import riskad
from riskad.app.model_files import save


def write_model(path: Path) -> None:
    labels = riskad.LabelColumn("status", ["ok"], ["fraud"])
    told = {"id": "payment", "drop": ["paid"], "model": "shallow", "settings": {"lam": 0.01}}
    fit = riskad.fit_table(make_events(300), labels, **told)
    save(fit.model, path, notes=fit.report.notes())


def kill_runs(kind: str, kills: int, step: int, commands: Commands, model: Path) -> dict:
    """Grow a table by `step` rows before each run, until so many were killed."""
    folder, rng = Path.cwd(), random.Random(kind)
    events = make_events(step * (4 * kills + 2)).drop("status")
    call = ["score", model, "events.parquet", *TARGETS[kind], "--since", "auto"]
    runs = killed = twice = torn = 0
    events[:step].write_parquet("events.parquet")
    start = time.perf_counter()
    commands.run(*call)
    whole = time.perf_counter() - start
    while killed < kills:
        runs += 1
        events[: step * (runs + 1)].write_parquet("events.parquet")
        killed += commands.run(*call, kill_after=rng.uniform(0, 1.1 * whole)) == -9
        ids = read_ids(kind, folder)
        twice += len(ids) - len(set(ids))
        torn += sorted(set(ids)) != list(range(step * (len(set(ids)) // step)))
    commands.run(*call)
    ids = read_ids(kind, folder)
    missing = step * (runs + 1) - len(set(ids))
    twice += len(ids) - len(set(ids))
    return {
        "runs": runs,
        "killed": killed,
        "rows": step * (runs + 1),
        "rows_twice": twice,
        "partial_runs_seen": torn,
        "rows_missing_at_the_end": missing,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100, help="for each kind of target")
    parser.add_argument("--step", type=int, default=500, help="rows that come between runs")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = {}
    with TemporaryDirectory() as folder, Commands() as commands:
        model = Path(folder, "model.riskad")
        write_model(model)
        for kind in TARGETS:
            place = Path(folder, kind)
            place.mkdir()
            os.chdir(place)
            found[kind] = kill_runs(kind, arguments.kills, arguments.step, commands, model)
            print(kind, found[kind], flush=True)
        os.chdir(Path(__file__).parents[1])
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
