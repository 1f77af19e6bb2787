"""Memory and speed of scoring a file in batches, beside scoring it whole.

    python benchmarks/streaming.py                    # 1,000,000 and 10,000,000 rows, some minutes
    python benchmarks/streaming.py --rows 100000 --output results/decisions/streaming.json

Files of n and of ten times n rows, 20 columns of numbers and one of text, go through `riskad
score`, from Parquet to Parquet and from CSV to CSV, each in a fresh process whose peak resident
size is noted. "Whole" reads, scores and writes the table at once, as riskad did before it streamed,
and is done for the smaller file alone. Bounded memory means that ten times the rows take as much.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from riskad.app.fit import fit_table
from riskad.app.model_files import save
from riskad.tables.labelled import LabelColumn

N_COLUMNS = 20
BLOCK = 100_000

# Not ru_maxrss: a process inherits that of the one which started it.
PEAK = """open("/proc/self/status").read().split("VmHWM:")[1].split()[0]"""
STREAMED = f"""
import sys
from riskad.cli.main import cli
model, source, target = sys.argv[1:]
cli.main(["score", model, source, "-o", target, "--json"], standalone_mode=False)
print({PEAK})
"""
WHOLE = f"""
import sys
from riskad.app.model_files import load
from riskad.tables.reading import read_table
from riskad.tables.writing import write_table
from riskad.app.score import score_table
model, source, target = sys.argv[1:]
write_table(score_table(load(model), read_table(source))[0], target)
print({PEAK})
"""


def make_rows(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    odd = rng.random(n) < 0.05
    X = rng.standard_normal((n, N_COLUMNS)) + odd[:, None]
    columns = {f"x{i}": X[:, i].round(6) for i in range(N_COLUMNS)}
    label = np.where(rng.random(n) < 0.05, np.where(odd, "anomaly", "normal"), "")
    return pl.DataFrame({**columns, "country": rng.choice(["FR", "DE", "XX"], n), "label": label})


def make_file(path: Path, n: int) -> None:
    """Write n rows block by block: a file larger than memory must be made in some way, too."""
    from riskad.tables.writing import open_writer

    with open_writer(path) as write:
        for start in range(0, n, BLOCK):
            write(make_rows(min(BLOCK, n - start), seed=start))


def measure(code: str, *arguments: Path) -> dict[str, float]:
    start = time.perf_counter()
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 1), "peak_mb": round(int(result.stdout.split()[-1]) / 1024)}


def measure_kind(folder: Path, model: Path, kind: str, n: int) -> list[dict[str, Any]]:
    records = []
    for rows, ways in ((n, ("streamed", "whole")), (10 * n, ("streamed",))):
        source, target = folder / f"rows.{kind}", folder / f"scored.{kind}"
        make_file(source, rows)
        for way in ways:
            found = measure(STREAMED if way == "streamed" else WHOLE, model, source, target)
            size = round(source.stat().st_size / 1e6)
            record = {"file": kind, "way": way, "rows": rows, "file_mb": size, **found}
            record["rows_per_second"] = round(rows / found["seconds"])
            print(record, flush=True)
            records.append(record)
            target.unlink()
        source.unlink()
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder, model = Path(name), Path(name, "model.riskad")
        fit = fit_table(make_rows(20_000, seed=1), LabelColumn("label"), model="shallow")
        save(fit.model, model)
        records = [
            record
            for kind in ("parquet", "csv")
            for record in measure_kind(folder, model, kind, arguments.rows)
        ]
    for kind in ("parquet", "csv"):
        few, many = (r for r in records if r["file"] == kind and r["way"] == "streamed")
        ratio = many["peak_mb"] / few["peak_mb"]
        print(f"{kind}: ten times the rows take {ratio:.2f} times the memory")
    if arguments.output:
        facts = {
            "command": f"python benchmarks/streaming.py --rows {arguments.rows}",
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "versions": {name: version(name) for name in ("numpy", "polars", "scikit-learn")},
            "columns": N_COLUMNS + 2,
            "records": records,
        }
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
