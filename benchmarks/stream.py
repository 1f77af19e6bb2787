"""How far a model that saw its rows in batches is from one that was fitted to all of them.

    RISKAD_DATA=... python benchmarks/stream.py --output results/scale/stream.json

On the paper's tabular sets that the data folder holds, at most 20,000 rows of each, 5 % labelled,
20 batches go through `StreamingRAD.partial_fit`, in random order and sorted by the column that
varies most, which is hard on a single pass. The gap is that of the objective over all rows,
relative to what the fit to all rows gains over zero; beside it the difference of the AUC on these
rows. The sample holds 5,000 rows of each kind, more than most sets have, so it is cut to 500; for
the largest sets it is left as it is, too. "sample" is a fit to the kept rows alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import DataWarning, ShallowRAD, StreamingRAD, mask_labels
from riskad.core.objective import Objective
from riskad.detectors.linear import stream_summary

LOSSES = ("squared", "modified_huber", "logistic")
LAMBDAS = ("tight", 1e-3)
ORDERS = ("random", "sorted")
MOST_ROWS = 20_000
BATCHES = 20
KEPT = (500, 5_000)
LARGE = 10_000


def tables(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """ADBench's classical sets: name, X, truth in {+1, -1}."""
    for path in sorted(folder.glob("adbench/[0-9]*_*.npz")):
        if not path.stem.startswith("20news"):
            with np.load(path) as data:
                X, truth = data["X"].astype(float), np.where(data["y"] == 1, -1, 1)
            if X.shape[1] < 1000:
                yield path.stem, X, truth


def put_in_order(X: np.ndarray, order: str, rng: np.random.Generator) -> np.ndarray:
    rows = rng.permutation(len(X))[:MOST_ROWS]
    if order == "sorted":
        column = int(np.argmax(X.std(axis=0)))
        rows = rows[np.argsort(X[rows, column], kind="stable")]
    return rows


def gap(model: ShallowRAD | StreamingRAD, best: ShallowRAD, X: np.ndarray, y: np.ndarray) -> float:
    """(F(model) - F(best)) / (F(0) - F(best)), where F is the objective of `best`."""
    totals = np.array([(y == kind).sum() for kind in (0, 1, -1)], dtype=float)
    risk = Objective(best._check_settings(), totals)
    # The weights in the coordinates of `best`, in which they are penalised.
    theta = np.append(model.coef_ * np.where(best.coef_ == 0, 0, best._scale), 0.0)
    theta[-1] = model.intercept_ + model.coef_ @ best._mean
    value = risk.value(model.score_samples(X), y) + best.lambda_ * float(theta @ theta)
    zero = risk.value(np.zeros(len(y)), y)
    return (value - best.objective_) / (zero - best.objective_)


def trial(X: np.ndarray, truth: np.ndarray, loss: str, lam: str | float) -> dict[str, float]:
    """Gaps of the stream and of a fit to its sample, and what they cost."""
    y = mask_labels(truth, fraction=0.05, random_state=0)
    begin = time.perf_counter()
    best = ShallowRAD(loss, lam=lam, tol=1e-8).fit(X, y)
    fitted = time.perf_counter() - begin
    model = StreamingRAD(loss, lam=best.lambda_, tol=1e-8)
    begin = time.perf_counter()
    for rows in np.array_split(np.arange(len(y)), BATCHES):
        model.partial_fit(X[rows], y[rows])
    streamed = time.perf_counter() - begin
    kept = model._summary
    sample = ShallowRAD(loss, lam=best.lambda_, tol=1e-8).fit(kept.X, kept.y)
    aucs = {
        name: float(roc_auc_score(truth, each.score_samples(X)))
        for name, each in (("best", best), ("stream", model), ("sample", sample))
    }
    flagged = [float((each.predict(X) == -1).mean()) for each in (best, model)]
    return {
        "gap": gap(model, best, X, y),
        "auc": aucs["best"],
        "auc_change": aucs["stream"] - aucs["best"],
        "sample_gap": gap(sample, best, X, y),
        "sample_auc_change": aucs["sample"] - aucs["best"],
        "flagged_change": flagged[1] - flagged[0],
        "left_share": 1 - len(kept.y) / len(y),
        "time_ratio": streamed / fitted,
    }


def summarise(cells: list[dict[str, float]]) -> dict[str, float]:
    def over(name: str) -> np.ndarray:
        return np.array([cell[name] for cell in cells])

    return {
        "cells": len(cells),
        "median_gap": float(np.median(over("gap"))),
        "largest_gap": float(over("gap").max()),
        "mean_auc_change": float(over("auc_change").mean()),
        "largest_auc_change": float(np.abs(over("auc_change")).max()),
        "median_sample_gap": float(np.median(over("sample_gap"))),
        "mean_absolute_sample_auc_change": float(np.abs(over("sample_auc_change")).mean()),
        "mean_absolute_auc_change": float(np.abs(over("auc_change")).mean()),
        "mean_absolute_flagged_change": float(np.abs(over("flagged_change")).mean()),
        "median_time_ratio": float(np.median(over("time_ratio"))),
    }


def write(path: Path | None, record: dict[str, object]) -> None:
    """What is known so far: a run that is ended early leaves its part."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RISKAD_DATA", "data")))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--output", type=Path, help="also write all cells as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)  # constant columns
    sets = list(tables(arguments.data))
    if not sets:
        parser.error(f"no ADBench sets under {arguments.data}; set RISKAD_DATA")
    summaries: list[dict[str, object]] = []
    cells: list[dict[str, object]] = []
    for kept in sorted(KEPT, reverse=True):
        stream_summary.KEPT = kept
        own = [s for s in sets if kept == KEPT[0] or len(s[1]) > LARGE]
        for loss in LOSSES:
            for lam in LAMBDAS:
                for order in ORDERS:
                    found = []
                    for name, X, truth in own:
                        for seed in range(arguments.splits):
                            rows = put_in_order(X, order, np.random.default_rng(seed))
                            cell = trial(X[rows], truth[rows], loss, lam)
                            found.append(cell)
                            cells.append({"set": name, "seed": seed, "kept": kept, "loss": loss})
                            cells[-1] |= {"lam": lam, "order": order} | cell
                    head = {"kept": kept, "loss": loss, "lam": lam, "order": order}
                    summaries.append(head | summarise(found))
                    print(json.dumps(summaries[-1]), flush=True)
                    write(arguments.output, {"summaries": summaries, "cells": cells})


if __name__ == "__main__":
    main()
