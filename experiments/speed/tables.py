"""Tables in files: preparing a raw one, scoring one in batches, and fitting row batch by row batch.

`speed-tables`: a CSV of 20 mixed columns (plain and dressed numbers, dates, yes and no, categories
of few and many levels, short codes) is read by polars with the types that the columns would have if
they had been cleaned: that is the yardstick. Beside it, riskad reads the raw CSV, finds every
column's kind and prepares the frame that detectors take. Each runs in a process of its own, in
turn; ratios are those of the medians. Targets: 3 times the time, 2 times the memory.

`speed-streaming`: files of 1 and of 10 million rows, 20 columns of numbers and one of text, go
through `riskad score`, each in a fresh process. "whole" reads, scores and writes the table at once,
for the smaller file alone. Bounded memory means that ten times the rows take as much.

`stream`: 20 batches through `StreamingRAD.partial_fit` beside a fit to all rows, on at most 20,000
rows of the paper's tabular sets, 5 % labelled. Batches come in random order or sorted by the column
that varies most, which is hard on a single pass. The gap is that of the objective over all rows,
relative to what the fit to all rows gains over zero. The sample that a stream keeps, 5,000 rows of
each kind, is more than most sets have, so it is cut to 500; for the largest sets it is left as it
is, too. "sample" is a fit to the kept rows alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import roc_auc_score

import riskad
from experiments import tables
from experiments.datasets import PAPER_SETS, load_adbench
from experiments.runner import Cell, Experiment, Skipped
from experiments.speed.timing import figures, in_own_process, memory
from experiments.summaries import Row, grid, group, mean, ok_rows
from riskad import LabelColumn, ShallowRAD, StreamingRAD, fit_table, mask_labels
from riskad.app.score import score_table
from riskad.cli.main import cli
from riskad.core.objective import Objective
from riskad.detectors.linear import stream_summary
from riskad.tables.preparation import TablePreparer
from riskad.tables.reading import read_table
from riskad.tables.writing import open_writer, write_table

# --- a raw table beside a clean one ----------------------------------------------------------

_SCHEMA = {
    **{f"plain_{k}": pl.Float64() for k in range(6)},
    **{f"count_{k}": pl.Int64() for k in range(2)},
    **dict.fromkeys(("amount", "share", "german"), pl.Float64()),
    **{"when": pl.Datetime("us"), "day": pl.Date(), "paid": pl.Boolean()},
    **dict.fromkeys(("country", "channel", "shop", "town", "zip"), pl.String()),
    "gaps": pl.Float64(),
}


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
    raw.write_csv(folder / "raw.csv", separator=";")


def prepare(way: str, folder: str) -> dict[str, float]:
    """Read the clean table, or prepare the raw one. Runs in its own process."""
    before, start = memory("VmRSS"), time.perf_counter()
    if way == "typed":
        frame = pl.read_csv(Path(folder, "clean.csv"), schema=_SCHEMA)
    else:
        preparer = TablePreparer(form="frame")
        parsed = preparer.fit_parse(read_table(Path(folder, "raw.csv")))
        frame = preparer.features(parsed, training=True)
    seconds = time.perf_counter() - start
    sizes = {"peak_mb": memory("VmHWM") - before, "frame_mb": frame.estimated_size() / 2**20}
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


def report_preparation(frame: pl.DataFrame, folder: Path) -> None:
    """Write preparation.json."""
    targets = {"time_ratio": 3.0, "memory_ratio": 2.0}
    (row,) = figures(frame)
    tables.write_json(folder / "preparation.json", row | {"targets": targets})


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
        fit = fit_table(_rows_to_score(20_000, seed=1), LabelColumn("label"), model="shallow")
        riskad.save(fit.model, model)
        with open_writer(source) as write:  # block by block: it may be larger than memory
            for start in range(0, n, 100_000):
                write(_rows_to_score(min(100_000, n - start), seed=start))
        taken = in_own_process(f"{__name__}.score_file", way, model, source, target)
        size = round(Path(source).stat().st_size / 1e6)
    return taken | {"file_mb": size, "rows_per_second": round(n / taken["seconds"])}


def report_streaming(frame: pl.DataFrame, folder: Path) -> None:
    """Write streaming.json."""
    rows = [{"way": row.pop("method"), **row} for row in figures(frame)]
    tables.write_json(folder / "streaming.json", {"columns": 22, "records": rows})


# --- rows that come in batches ---------------------------------------------------------------

_MOST_ROWS, _BATCHES, _LARGE, _MOST_COLUMNS = 20_000, 20, 10_000, 1_000


def run_stream(cell: Cell) -> dict[str, float]:
    """Return gaps of the stream and of a fit to its sample, and what they cost."""
    data, rng = load_adbench(cell["dataset"]), np.random.default_rng(0)
    if data.X.shape[1] >= _MOST_COLUMNS or (cell["kept"] > 500 and len(data.y) <= _LARGE):
        raise Skipped("it has too many columns, or too few rows.")
    rows = rng.permutation(len(data.y))[:_MOST_ROWS]
    if cell["order"] == "sorted":
        column = int(np.argmax(data.X.std(axis=0)))
        rows = rows[np.argsort(data.X[rows, column], kind="stable")]
    X, truth = data.X[rows], data.y[rows]
    y, loss = mask_labels(truth, fraction=0.05, random_state=0), cell["loss"]
    lam = "tight" if cell["lam"] == "tight" else float(cell["lam"])
    begin = time.perf_counter()
    best = ShallowRAD(loss, lam=lam, tol=1e-8).fit(X, y)
    fitted = time.perf_counter()
    stream_summary.KEPT = cell["kept"]
    model = StreamingRAD(loss, lam=best.lambda_, tol=1e-8)
    for batch in np.array_split(np.arange(len(y)), _BATCHES):
        model.partial_fit(X[batch], y[batch])
    streamed = time.perf_counter()
    kept = model._summary
    sample = ShallowRAD(loss, lam=best.lambda_, tol=1e-8).fit(kept.X, kept.y)
    auc, stream_auc, sample_auc = (
        float(roc_auc_score(truth, each.score_samples(X))) for each in (best, model, sample)
    )
    flagged = [float((each.predict(X) == -1).mean()) for each in (best, model)]
    return {
        "gap": gap(model, best, X, y),
        "auc": auc,
        "auc_change": stream_auc - auc,
        "sample_gap": gap(sample, best, X, y),
        "sample_auc_change": sample_auc - auc,
        "flagged_change": flagged[1] - flagged[0],
        "left_share": 1 - len(kept.y) / len(y),
        "time_ratio": (streamed - fitted) / (fitted - begin),
    }


def gap(model: Any, best: ShallowRAD, X: np.ndarray, y: np.ndarray) -> float:
    """Return (F(model) - F(best)) / (F(0) - F(best)), where F is the objective of `best`."""
    totals = np.array([(y == kind).sum() for kind in (0, 1, -1)], dtype=float)
    risk = Objective(best._check_settings(), totals)
    # The weights in the coordinates of `best`, in which they are penalised.
    theta = np.append(model.coef_ * np.where(best.coef_ == 0, 0, best._scale), 0.0)
    theta[-1] = model.intercept_ + model.coef_ @ best._mean
    value = risk.value(model.score_samples(X), y) + best.lambda_ * float(theta @ theta)
    zero = risk.value(np.zeros(len(y)), y)
    return (value - best.objective_) / (zero - best.objective_)


def report_stream(frame: pl.DataFrame, folder: Path) -> None:
    """Write stream.json: medians, means and the largest over sets."""
    summaries = []
    settings = ("kept", "loss", "lam", "order")
    for setting, cells in group(ok_rows(frame), *settings).items():
        sizes: list[Row] = [
            {name: abs(cell[name]) for name in ("auc_change", "sample_auc_change")}
            for cell in cells
        ]
        summaries.append(
            dict(zip(settings, setting, strict=True))
            | {
                "cells": len(cells),
                "median_gap": median(cell["gap"] for cell in cells),
                "largest_gap": max(cell["gap"] for cell in cells),
                "median_sample_gap": median(cell["sample_gap"] for cell in cells),
                "largest_auc_change": max(size["auc_change"] for size in sizes),
                "mean_absolute_auc_change": mean(sizes, "auc_change"),
                "mean_absolute_sample_auc_change": mean(sizes, "sample_auc_change"),
                "median_time_ratio": median(cell["time_ratio"] for cell in cells),
            }
        )
    tables.write_json(folder / "stream.json", {"summaries": summaries})


EXPERIMENTS = (
    Experiment(
        name="speed-tables",
        title="Preparing a raw table beside reading it with types known",
        cells=grid(rows=(1_000_000,)),
        run_cell=run_preparation,
        report=report_preparation,
        folder="tables",
        minutes="1 minute",
    ),
    Experiment(
        name="speed-streaming",
        title="Memory and speed of scoring a file in batches",
        cells=grid(file=("parquet", "csv"), method=("streamed", "whole"), rows=(10**6, 10**7)),
        run_cell=run_streaming,
        report=report_streaming,
        folder="decisions",
        minutes="10 minutes, 3 GB on disk",
    ),
    Experiment(
        name="stream",
        title="How far a model that saw its rows in batches is from one fitted to all",
        cells=grid(
            kept=(5_000, 500),
            loss=("squared", "modified_huber", "logistic"),
            lam=("tight", "0.001"),
            order=("random", "sorted"),
            dataset=PAPER_SETS,
        ),
        run_cell=run_stream,
        report=report_stream,
        folder="scale",
        needs="ADBench (RISKAD_DATA)",
        minutes="15 minutes",
    ),
)
