"""Preparing a raw table beside reading it with types known: time and memory, side by side.

    python benchmarks/tables.py --rows 1000000 --out results/tables/preparation.json

A CSV of 20 mixed columns (plain and dressed numbers, dates, yes and no, categories of few and many
levels, short codes) is read by polars with the types that the columns would have if they had been
cleaned: that is the yardstick. Beside it, riskad reads the raw CSV, finds every column's kind and
prepares the frame that detectors take. Each runs in a process of its own, in turn, several times;
ratios are those of the medians. Targets: at most 3 times the time, at most 2 times the memory of
the typed frame beyond what the raw frame takes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from riskad.bench.provenance import provenance

TARGETS = {"time": 3.0, "memory": 2.0}


def make_tables(n: int, folder: Path, seed: int = 0) -> None:
    """Write a table as people keep it, and the same with every column cleaned."""
    rng = np.random.default_rng(seed)
    clean: dict[str, pl.Series] = {}
    raw: dict[str, pl.Series] = {}
    for k in range(6):
        clean[f"plain_{k}"] = pl.Series(rng.normal(100, 20, n).round(3))
    for k in range(2):
        clean[f"count_{k}"] = pl.Series(rng.integers(0, 10_000, n))
    amount = pl.Series(rng.lognormal(5, 1.5, n).round(2))
    clean["amount"] = amount
    raw["amount"] = pl.select(
        pl.lit(amount).round(2).cast(pl.Decimal(18, 2)).cast(pl.String) + " €"
    ).to_series()
    share = pl.Series((100 * rng.random(n)).round(1))
    clean["share"] = share
    raw["share"] = share.cast(pl.String) + "%"
    german = pl.Series(rng.normal(300, 90, n).round(2))
    clean["german"] = german
    raw["german"] = german.cast(pl.String).str.replace(".", ",", literal=True)
    when = pl.Series(rng.integers(1_700_000_000, 1_760_000_000, n) * 10**6).cast(pl.Datetime("us"))
    clean["when"], raw["when"] = when, when.dt.strftime("%d.%m.%Y %H:%M")
    day = when.dt.date()
    clean["day"], raw["day"] = day, day.dt.strftime("%Y-%m-%d")
    paid = pl.Series(rng.random(n) < 0.7)
    clean["paid"] = paid
    raw["paid"] = pl.Series(np.where(paid.to_numpy(), "yes", "no"))
    for name, levels in (("country", 12), ("channel", 4), ("shop", 300), ("town", 3_000)):
        clean[name] = pl.Series("L" + rng.integers(0, levels, n).astype(str).astype(object))
    clean["zip"] = pl.Series(rng.integers(1_000, 99_999, n)).cast(pl.String).str.zfill(5)
    gaps = pl.Series(rng.random(n) < 0.1)
    clean["gaps"] = pl.Series(rng.normal(size=n).round(3)).set(gaps, None)
    typed = pl.DataFrame(clean)
    typed.write_csv(folder / "clean.csv")
    typed.with_columns(**raw).write_csv(folder / "raw.csv", separator=";")
    (folder / "schema.json").write_text(json.dumps({k: str(v) for k, v in typed.schema.items()}))


def typed_schema(folder: Path) -> dict[str, pl.DataType]:
    names = json.loads((folder / "schema.json").read_text())
    kinds = {"Float64": pl.Float64(), "Int64": pl.Int64(), "Boolean": pl.Boolean()}
    kinds |= {"Date": pl.Date(), "String": pl.String()}
    return {name: kinds.get(kind, pl.Datetime("us")) for name, kind in names.items()}


def run(work: str, folder: Path) -> dict[str, float]:
    """Do one of the two in this process, and say what it took."""
    before = memory("VmRSS")
    start = time.perf_counter()
    if work == "typed":
        frame = pl.read_csv(folder / "clean.csv", schema=typed_schema(folder))
    else:
        from riskad.tables.preparation import TablePreparer
        from riskad.tables.reading import read_table

        start = time.perf_counter()
        raw = read_table(folder / "raw.csv")
        preparer = TablePreparer(form="frame")
        frame = preparer.features(preparer.fit_parse(raw), training=True)
        assert "identifier" not in preparer.kinds_.values(), preparer.kinds_
    seconds = time.perf_counter() - start
    peak = memory("VmHWM") - before
    return {"seconds": seconds, "peak_mb": peak, "frame_mb": frame.estimated_size() / 2**20}


def memory(name: str) -> float:
    """Megabytes that this process has (VmRSS) or had at most (VmHWM), as Linux tells."""
    status = Path("/proc/self/status").read_text()
    return float(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(run(options.work, options.folder)))
        return
    found: dict[str, list[dict[str, float]]] = {"typed": [], "raw": []}
    with tempfile.TemporaryDirectory() as name:
        make_tables(options.rows, Path(name))
        for _ in range(options.repeats):
            for work, runs in found.items():
                command = [sys.executable, __file__, "--work", work, "--folder", name]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                runs.append(json.loads(said.splitlines()[-1]))
    medians = {
        work: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for work, runs in found.items()
    }
    ratios = {
        "time": medians["raw"]["seconds"] / medians["typed"]["seconds"],
        "memory": medians["raw"]["peak_mb"] / medians["typed"]["peak_mb"],
    }
    report = {"rows": options.rows, "ratios": ratios, "targets": TARGETS, "medians": medians}
    print(json.dumps(report, indent=2))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report | {"made_by": provenance()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
