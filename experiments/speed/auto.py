"""Speed of `AutoRAD`: fits, scores, reasons and ONNX graphs.

Times are of the processor and of one thread, unless said otherwise, so that other work on the
machine counts little.

`speed-auto`: a fit is compared with 300 iterations of CatBoost on the labelled rows together with
an isolation forest on all rows, scores of 5,000 rows and of a single one with 300 extra trees
fitted to the labelled rows. Beside these: the same model compressed, and what eight threads gain
that score at once. Then the wall time of fits with all cores, which want a machine without other
work. Targets are in `results/field/README.md`.

`speed-reasons`: milliseconds a row of `riskad.explain_rows` for 8 suspicious rows of 3,000.

`speed-onnx`: graphs beside the models they were made of, which score 2,000 rows at once and 20 rows
one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest

import riskad
from experiments.datasets import PAPER_SETS, load_adbench
from experiments.runner import Cell, Experiment, Skipped
from experiments.speed.timing import by_method, figures, least_seconds
from experiments.summaries import Row, grid, group, json_page
from riskad import AutoRAD
from riskad.app.onnx import to_onnx
from riskad.core.labels import read_codes

_N_NEW, _N_THREADS = 5_000, 8


def make_rows(n: int, d: int, seed: int = 0, shift: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, a tenth of them shifted in three columns, and codes of a twentieth."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n) < 0.1
    X = rng.normal(size=(n, d))
    X[anomalous, :3] += shift
    y = np.where(anomalous, -1, 1)
    y[int(0.05 * n) :] = 0
    return X, y


# --- fits and scores -------------------------------------------------------------------------


def auto_cells() -> Iterator[Cell]:
    """Shapes of rows that are drawn, then fits by the clock."""
    for rows, columns in ((1_500, 10), (5_000, 20), (20_000, 20)):
        yield Cell(method="beside others", rows=rows, columns=columns)
    for dataset in PAPER_SETS:
        yield Cell(dataset=dataset, method="wall time")
    yield Cell(dataset="drawn", method="wall time", rows=100_000, columns=30)


def run_auto(cell: Cell) -> dict[str, float]:
    """Return seconds and ratios for one shape, or the seconds of a fit."""
    if cell["method"] == "beside others":
        return beside_others(cell["rows"], cell["columns"])
    if "rows" in cell:
        X, y = make_rows(cell["rows"], cell["columns"])
    else:
        data, rng = load_adbench(cell["dataset"]), np.random.default_rng(0)
        if len(data.y) >= 10_000:
            raise Skipped("it has 10,000 rows or more.")
        rows = rng.permutation(len(data.y))[: round(0.7 * len(data.y))]
        X, y = data.X[rows], read_codes(np.where(rng.random(len(rows)) < 0.05, data.y[rows], 0))
    return {"fit_seconds": round(least_seconds({"": lambda: AutoRAD().fit(X, y)}, 1)[""], 2)}


def beside_others(n: int, d: int, repetitions: int = 2) -> dict[str, float]:
    """Return seconds of fits and scores, and their ratios."""
    from catboost import CatBoostClassifier

    X, y = make_rows(n, d)
    labelled, new = y != 0, make_rows(_N_NEW, d, seed=1)[0]
    model, trees = AutoRAD(), ExtraTreesClassifier(300, random_state=0)
    boosted = CatBoostClassifier(300, thread_count=1, verbose=0, allow_writing_files=False)

    def others() -> None:
        boosted.fit(X[labelled], y[labelled])
        IsolationForest(random_state=0).fit(X)

    fits = {"auto": lambda: model.fit(X, y), "others": others}
    seconds = least_seconds(fits, repetitions, clock=time.process_time)
    trees.fit(X[labelled], y[labelled])
    small = model.compress()
    scores = {
        "compressed": lambda: small.score_samples(new),
        "auto": lambda: model.score_samples(new),
        "trees": lambda: trees.predict_proba(new),
        "auto_single": lambda: model.score_samples(new[:1]),
        "trees_single": lambda: trees.predict_proba(new[:1]),
    }
    scored = least_seconds(scores, 5 * repetitions, clock=time.process_time)
    return {
        "labelled": int(labelled.sum()),
        "fit_seconds": seconds["auto"],
        "fit_seconds_of_others": seconds["others"],
        "fit_ratio": seconds["auto"] / seconds["others"],
        "score_seconds": scored["auto"],
        "score_seconds_compressed": scored["compressed"],
        "score_seconds_of_trees": scored["trees"],
        "score_ratio": scored["auto"] / scored["trees"],
        "rows_per_second": _N_NEW / scored["auto"],
        "compressed_score_ratio": scored["compressed"] / scored["trees"],
        "compressed_rank_correlation": small.fidelity_.rank_correlation,
        "gain_by_threads": _gain_by_threads(model, new),
        "single_row_ms": 1e3 * scored["auto_single"],
        "single_row_ms_of_trees": 1e3 * scored["trees_single"],
    }


def _gain_by_threads(model: AutoRAD, new: np.ndarray) -> float:
    """How much sooner threads that share a model are done; they give the same numbers."""
    expected = model.score_samples(new)

    def score_with(n_threads: int) -> None:
        with ThreadPoolExecutor(n_threads) as pool:
            for scores in pool.map(lambda _: model.score_samples(new), range(_N_THREADS)):
                assert (scores == expected).all()

    sides = {"one": lambda: score_with(1), "all": lambda: score_with(_N_THREADS)}
    seconds = least_seconds(sides, 2)
    return seconds["one"] / seconds["all"]


def auto_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return ratios by shape, and wall times of sets with their median."""
    parts = group(rows, "method")
    sets = {row["dataset"]: row["fit_seconds"] for row in parts["wall time"]}
    large = sets.pop("drawn", None)
    wall = {"median_of_sets": float(np.median(list(sets.values()))), "100000 x 30": large}
    shapes = figures({**row, "method": None} for row in parts["beside others"])
    return {"shapes": shapes, "wall": wall | {"sets": sets}}


# --- reasons ---------------------------------------------------------------------------------


def run_reasons(cell: Cell) -> dict[str, float]:
    """Return milliseconds a row."""
    d, rng = int(cell["method"].split()[0]), np.random.default_rng(0)
    odd = rng.random(3_000) < 0.1
    X = rng.normal(size=(3_000, d)) @ rng.normal(size=(d, d))
    X[odd] += rng.normal(0, 2, d)
    y = np.where(rng.random(3_000) < 0.05, np.where(odd, -1, 1), 0)
    model = AutoRAD().fit(X, y)
    rows = X[np.argsort(-model.anomaly_score(X))[:8]]
    explain = {"": lambda: riskad.explain_rows(model, rows, background=X)}
    return {"ms_a_row": round(1000 * least_seconds(explain, 2, time.process_time)[""] / 8, 1)}


# --- ONNX graphs -----------------------------------------------------------------------------

_GRAPHS: dict[str, tuple[int, Callable[[], Any]]] = {
    "AutoRAD, 5 columns": (5, AutoRAD),
    "AutoRAD, 20 columns": (20, AutoRAD),
    "AutoRAD, 100 columns": (100, AutoRAD),
    "ForestRAD, 20 columns": (20, riskad.ForestRAD),
    "PretrainedRAD tables-3, 10 columns": (10, riskad.PretrainedRAD),
}


def run_graph(cell: Cell) -> dict[str, float]:
    """Return speed of the model and of its graph, the graph's size, and how they differ."""
    import onnxruntime

    d, make = _GRAPHS[cell["method"]]
    model = make().fit(*make_rows(6_000, d, shift=2.0))
    rows, graph = make_rows(2_000, d, seed=1)[0], to_onnx(model).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def load() -> Any:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    session = load()

    def by_graph(X: np.ndarray) -> np.ndarray:
        return session.run(["anomaly_score"], {"X": X})[0]

    few = [rows[i : i + 1] for i in range(20)]
    sides = {
        "making": lambda: to_onnx(model),
        "loading": load,
        "python": lambda: model.anomaly_score(rows),
        "graph": lambda: by_graph(rows),
        "python, one": lambda: [model.anomaly_score(row) for row in few],
        "graph, one": lambda: [by_graph(row) for row in few],
    }
    seconds, ours = least_seconds(sides, 3, clock=time.process_time), model.anomaly_score(rows)
    off = np.abs(ours - by_graph(rows)) / np.maximum(1, np.abs(ours))
    return {
        "rows_per_second_python": round(len(rows) / seconds["python"]),
        "rows_per_second_graph": round(len(rows) / seconds["graph"]),
        "ms_for_one_row_python": round(1000 * seconds["python, one"] / len(few), 2),
        "ms_for_one_row_graph": round(1000 * seconds["graph, one"] / len(few), 2),
        "megabytes": round(len(graph) / 1e6, 1),
        "seconds_to_make": round(seconds["making"], 2),
        "seconds_to_load": round(seconds["loading"], 2),
        "largest_difference": float(f"{off.max():.2g}"),
    }


EXPERIMENTS = (
    Experiment(
        name="speed-auto",
        title="Fits and scores of AutoRAD beside others, and by the clock",
        cells=auto_cells,
        run_cell=run_auto,
        report=json_page("speed.json", auto_figures),
        folder="field",
        needs="catboost, ADBench (RISKAD_DATA)",
        minutes="20 minutes",
    ),
    Experiment(
        name="speed-reasons",
        title="Milliseconds that reasons take",
        cells=grid(method=[f"{columns} columns" for columns in (5, 10, 20, 40)]),
        run_cell=run_reasons,
        report=json_page("reasons.json", by_method),
        folder="",
        minutes="3 minutes",
    ),
    Experiment(
        name="speed-onnx",
        title="ONNX graphs beside the models they were made of",
        cells=grid(method=_GRAPHS),
        run_cell=run_graph,
        report=json_page("onnx.json", by_method),
        folder="",
        needs="onnxruntime",
        minutes="3 minutes",
    ),
)
