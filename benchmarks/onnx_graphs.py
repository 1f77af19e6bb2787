"""ONNX graphs beside the models they were made of: seconds, bytes, differences.

    python benchmarks/onnx_graphs.py --output results/onnx.json [--tables TABLES.npz]

Models of tables of 6,000 rows, 5 % of them labelled, score 2,000 new rows at once, and 20 rows one
by one. Both are timed in turns in one process with one thread, in seconds of its processor; the
least of each counts. With TABLES.npz (see `benchmarks/decisions.py`) `AutoRAD` is fitted to half of
the rows of 15 real tables, and the graph is compared with it on all of their rows: rows like those
of the fit, many of them twice, which random rows are not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import onnxruntime
from decisions import names_in_order, split

import riskad
from riskad.app.onnx import to_onnx
from riskad.bench.provenance import provenance

N_FIT, N_SCORED, N_ALONE, N_TABLES = 6_000, 2_000, 20, 15
TURNS = 3
MODELS = {
    "AutoRAD, 5 columns": (5, riskad.AutoRAD),
    "AutoRAD, 20 columns": (20, riskad.AutoRAD),
    "AutoRAD, 100 columns": (100, riskad.AutoRAD),
    "ForestRAD, 20 columns": (20, riskad.ForestRAD),
    "PretrainedRAD tables-2, 10 columns": (
        10,
        lambda: riskad.PretrainedRAD(weights="tables-2"),
    ),
    "PretrainedRAD tables-3, 10 columns": (10, riskad.PretrainedRAD),
}


def make_rows(n_rows: int, n_columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    odd = rng.random(n_rows) < 0.1
    X = rng.normal(size=(n_rows, n_columns))
    X[odd, :3] += 2
    return X, np.where(rng.random(n_rows) < 0.05, np.where(odd, -1, 1), 0)


def least_seconds(*functions: Callable[[], object]) -> list[float]:
    """Of each function, in turns, so that whatever else the machine does hits all alike."""
    seconds = np.empty((TURNS, len(functions)))
    for turn in seconds:
        for place, function in enumerate(functions):
            start = time.process_time()
            function()
            turn[place] = time.process_time() - start
    return seconds.min(axis=0).tolist()


def session_of(graph: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def beside_python(n_columns: int, make: Callable[[], Any]) -> dict[str, float]:
    model = make().fit(*make_rows(N_FIT, n_columns, 0))
    rows, _ = make_rows(N_SCORED, n_columns, 1)
    graph = to_onnx(model).SerializeToString()
    making, loading = least_seconds(lambda: to_onnx(model), lambda: session_of(graph))
    session = session_of(graph)

    def theirs(X: np.ndarray) -> np.ndarray:
        return session.run(["anomaly_score"], {"X": X})[0]

    ours = model.anomaly_score(rows)
    difference = np.abs(ours - theirs(rows)) / np.maximum(1, np.abs(ours))
    batch = least_seconds(lambda: model.anomaly_score(rows), lambda: theirs(rows))
    few = [rows[i : i + 1] for i in range(N_ALONE)]
    alone = least_seconds(
        lambda: [model.anomaly_score(row) for row in few], lambda: [theirs(row) for row in few]
    )
    return {
        "rows_per_second_python": round(N_SCORED / batch[0]),
        "rows_per_second_graph": round(N_SCORED / batch[1]),
        "ms_for_one_row_python": round(1000 * alone[0] / N_ALONE, 2),
        "ms_for_one_row_graph": round(1000 * alone[1] / N_ALONE, 2),
        "megabytes": round(len(graph) / 1e6, 1),
        "seconds_to_make": round(making, 2),
        "seconds_to_load": round(loading, 2),
        "largest_difference": float(f"{difference.max():.2g}"),
    }


def on_real_tables(path: Path) -> dict[str, Any]:
    tables = np.load(path)
    largest = []
    for name in names_in_order(tables):
        X, truth, new, _, rng = split(tables, name)
        chosen = rng.random(len(truth)) < max(0.05, 40 / len(truth))
        y = np.where(chosen, np.where(truth, -1, 1), 0)
        if len(np.unique(y)) < 3:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = riskad.AutoRAD().fit(X, y)
        rows = np.vstack([X, new])
        got = session_of(to_onnx(model).SerializeToString()).run(["anomaly_score"], {"X": rows})[0]
        largest.append(float(np.abs(model.anomaly_score(rows) - got).max()))
        print(f"{X.shape} {largest[-1]:.1g}", flush=True)
        if len(largest) == N_TABLES:
            break
    return {"tables": len(largest), "largest_difference": float(f"{max(largest):.2g}")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--tables", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name, model in MODELS.items():
        found[name] = beside_python(*model)
        print(f"{name:36s} {found[name]}", flush=True)
    if arguments.tables:
        found["AutoRAD, real tables"] = on_real_tables(arguments.tables)
    found |= provenance("onnxruntime")
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
