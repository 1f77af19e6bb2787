"""Tables in files: preparing a raw one, and scoring one in batches.

`speed-tables`: a CSV of 20 mixed columns is read by polars with the types that the columns would
have if they had been cleaned: that is the yardstick. Beside it, riskad reads the raw CSV, finds
every column's kind and prepares the frame that detectors take. Each runs in a process of its own.

`speed-streaming`: files of 1 and of 10 million rows, 20 columns of numbers and one of text, go
through `riskad score`, each in a fresh process. "whole" reads, scores and writes the table at once,
for the smaller file alone. Bounded memory means that ten times the rows take as much.

`speed-windows`: 1,000,000 points of 8 columns of ten machines, one a minute, become windows of an
hour or a day every 10 minutes, in processor seconds. Beside it, polars computes nothing but means
and deviations of the same windows (`group_by_dynamic`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import polars as pl

import riskad
from experiments.runner import Cell, Experiment, Skipped
from experiments.speed.timing import figures, in_own_process, least_seconds, memory
from experiments.summaries import Row, grid, json_page
from riskad import fit_table
from riskad.app.score import score_table
from riskad.app.spec import FitSpec
from riskad.cli.main import cli
from riskad.tables.preparation import TablePreparer
from riskad.tables.reading import read_table
from riskad.tables.writing import open_writer, write_table

# --- a raw table beside a clean one ----------------------------------------------------------


def make_tables(n: int, folder: Path) -> None:
    """Write a table as people keep it, and the same with every column cleaned."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"plain_{k}": rng.normal(100, 20, n).round(3) for k in range(6)}
    columns |= {f"count_{k}": rng.integers(0, 10_000, n) for k in range(2)}
    columns["amount"] = rng.lognormal(5, 1.5, n).round(2)
    columns["share"] = (100 * rng.random(n)).round(1)
    columns["german"] = rng.normal(300, 90, n).round(2)
    moments = pl.Series(rng.integers(1_700_000_000, 1_760_000_000, n) * 10**6)
    columns["when"] = moments.cast(pl.Datetime("us"))
    columns["day"] = columns["when"].dt.date()
    columns["paid"] = rng.random(n) < 0.7
    for name, levels in (("country", 12), ("channel", 4), ("shop", 300), ("town", 3_000)):
        columns[name] = "L" + rng.integers(0, levels, n).astype(str).astype(object)
    columns["zip"] = pl.Series(rng.integers(1_000, 99_999, n)).cast(pl.String).str.zfill(5)
    gaps = pl.Series(rng.random(n) < 0.1)
    columns["gaps"] = pl.Series(rng.normal(size=n).round(3)).set(gaps, None)
    clean = pl.DataFrame(columns)
    raw = clean.with_columns(
        pl.col("amount").cast(pl.Decimal(18, 2)).cast(pl.String) + " €",
        pl.col("share").cast(pl.String) + "%",
        pl.col("german").cast(pl.String).str.replace(".", ",", literal=True),
        pl.col("when").dt.strftime("%d.%m.%Y %H:%M"),
        pl.col("day").dt.strftime("%Y-%m-%d"),
        pl.when("paid").then(pl.lit("yes")).otherwise(pl.lit("no")).alias("paid"),
    )
    clean.write_csv(folder / "clean.csv")
    clean.clear().write_parquet(folder / "types.parquet")
    raw.write_csv(folder / "raw.csv", separator=";")


def prepare(way: str, folder: str) -> dict[str, float]:
    """Read the clean table, or prepare the raw one. Runs in its own process."""
    types = pl.read_parquet_schema(Path(folder, "types.parquet"))
    before, start = memory("VmRSS"), time.perf_counter()
    if way == "typed":
        size = pl.read_csv(Path(folder, "clean.csv"), schema=types).estimated_size()
    else:
        preparer = TablePreparer(encode=False)
        parsed = preparer.fit_parse(read_table(Path(folder, "raw.csv")))
        size = preparer.features(parsed, training=True).values.nbytes
    seconds = time.perf_counter() - start
    sizes = {"peak_mb": memory("VmHWM") - before, "frame_mb": size / 2**20}
    return {"seconds": seconds, **sizes}


def run_preparation(cell: Cell) -> dict[str, float]:
    """Return medians of both ways over three runs, and ratios."""
    with TemporaryDirectory() as folder:
        make_tables(cell["rows"], Path(folder))
        ways = ("typed", "raw")
        runs = [[in_own_process(f"{__name__}.prepare", w, folder) for w in ways] for _ in range(3)]
    medians = {
        f"{way}_{key}": median(run[place][key] for run in runs)
        for place, way in enumerate(ways)
        for key in runs[0][0]
    }
    ratios = {
        "time_ratio": medians["raw_seconds"] / medians["typed_seconds"],
        "memory_ratio": medians["raw_peak_mb"] / medians["typed_peak_mb"],
    }
    return ratios | medians


def preparation_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what was measured, and targets."""
    (row,) = figures(rows)
    return row | {"targets": {"time_ratio": 3.0, "memory_ratio": 2.0}}


# --- files that are scored in batches --------------------------------------------------------


def _rows_to_score(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    odd = rng.random(n) < 0.05
    X = rng.standard_normal((n, 20)) + odd[:, None]
    columns = {f"x{i}": X[:, i].round(6) for i in range(20)}
    label = np.where(rng.random(n) < 0.05, np.where(odd, "anomaly", "normal"), "")
    return pl.DataFrame({**columns, "country": rng.choice(["FR", "DE", "XX"], n), "label": label})


def score_file(way: str, model: str, source: str, target: str) -> dict[str, float]:
    """Score a file in batches or whole. Runs in its own process."""
    start = time.perf_counter()
    if way == "streamed":
        arguments = ["score", model, source, "-o", target, "--json"]
        cli.main(arguments, standalone_mode=False)
    else:
        write_table(score_table(riskad.load(model), read_table(source))[0], target)
    return {"seconds": round(time.perf_counter() - start, 1), "peak_mb": round(memory("VmHWM"))}


def run_streaming(cell: Cell) -> dict[str, float]:
    """Return the seconds and the peak of memory of scoring a file."""
    kind, way, n = cell["file"], cell["method"], cell["rows"]
    if way == "whole" and n > 1_000_000:
        raise Skipped("the whole table is too large.")
    with TemporaryDirectory() as name:
        model, source, target = (
            f"{name}/{file}" for file in ("model", f"in.{kind}", f"out.{kind}")
        )
        fit = fit_table(_rows_to_score(20_000, seed=1), FitSpec(label="label"), model="shallow")
        riskad.save(fit.model, model)
        with open_writer(source) as write:  # block by block: it may be larger than memory
            for start in range(0, n, 100_000):
                write(_rows_to_score(min(100_000, n - start), seed=start))
        taken = in_own_process(f"{__name__}.score_file", way, model, source, target)
        size = round(Path(source).stat().st_size / 1e6)
    return taken | {"file_mb": size, "rows_per_second": round(n / taken["seconds"])}


def streaming_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what was measured by way and file."""
    records = [{"way": row.pop("method"), **row} for row in figures(rows)]
    return {"columns": 22, "records": records}


# --- points to windows ----------------------------------------------------------------------


def run_windows(cell: Cell) -> dict[str, Any]:
    """Return the least processor seconds of cutting points, and of two plain statistics of them."""
    n, rng = cell["rows"], np.random.default_rng(0)
    machine = np.repeat([f"m{i}" for i in range(10)], n // 10)
    t = np.tile(np.arange(n // 10), 10).astype("m8[m]") + np.datetime64("2024-01-01", "us")
    columns = {f"x{j}": rng.normal(size=n).cumsum() for j in range(8)}
    points = pl.DataFrame({"t": t, "machine": machine} | columns)
    named = {"window": cell["window"], "step": "10m"}
    statistics = [pl.col(columns).mean(), pl.col(columns).std().name.suffix(" std")]

    def cut() -> pl.DataFrame:
        return riskad.windows(points, time="t", group="machine", **named)

    def dynamic() -> pl.DataFrame:
        by_time = {"period": cell["window"], "every": "10m", "group_by": "machine"}
        return points.group_by_dynamic("t", **by_time).agg(statistics)

    windows = cut()
    seconds = least_seconds({"windows": cut, "polars": dynamic}, 3, clock=process_time)
    return {
        "windows": windows.height,
        "features": windows.width - 3,
        "seconds": round(seconds["windows"], 3),
        "polars_mean_and_std_seconds": round(seconds["polars"], 3),
    }


def windows_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what was measured, and the target."""
    return {"cells": figures(rows), "targets": {"seconds of 1,000,000 x 8": 5.0}}


EXPERIMENTS = (
    Experiment(
        name="speed-windows",
        title="Points of time series to windows, beside means and deviations by polars",
        cells=grid(rows=(1_000_000,), window=("1h", "1d")),
        run_cell=run_windows,
        report=json_page("windows.json", windows_figures),
        folder="series",
        minutes="1 minute",
    ),
    Experiment(
        name="speed-tables",
        title="Preparing a raw table beside reading it with types known",
        cells=grid(rows=(1_000_000,)),
        run_cell=run_preparation,
        report=json_page("preparation.json", preparation_figures),
        folder="tables",
        minutes="1 minute",
    ),
    Experiment(
        name="speed-streaming",
        title="Memory and speed of scoring a file in batches",
        cells=grid(file=("parquet", "csv"), method=("streamed", "whole"), rows=(10**6, 10**7)),
        run_cell=run_streaming,
        report=json_page("streaming.json", streaming_figures),
        folder="decisions",
        minutes="10 minutes, 3 GB on disk",
    ),
)
