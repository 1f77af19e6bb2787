"""How long the network of `PretrainedRAD` takes, beside the form it had in an earlier commit.

    python benchmarks/network.py results/pretrained/speed.json [--tables TABLES.npz]

One core (the script sets the threads of BLAS), processor time, both forms in turn in one run; the
least of some repetitions counts. The earlier form read the context at each call. With real tables,
rows of some tables of the training side are scored by both: rank correlations and AUC are compared.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.pretraining.evaluate import labelled
from benchmarks.pretraining.split import read_tables, side
from riskad import PretrainedRAD
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.table_network import TableNetwork

BEFORE = "5f229b5"
FILE = "src/riskad/detectors/table_network.py"
SHAPES = ((10, 450), (30, 450))  # columns, rows of the context
CALLS = (1, 250, 500)  # rows in a call
BLOCKS = {"before": 250, "now": 256}


def earlier(commit: str) -> ModuleType:
    """The module as it was."""
    told = ["git", "-C", str(ROOT), "show", f"{commit}:{FILE}"]
    module = ModuleType("riskad.detectors.earlier_table_network")
    sys.modules[module.__name__] = module
    exec(subprocess.run(told, check=True, capture_output=True, text=True).stdout, module.__dict__)
    return module


def seconds(repetitions: int, ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Processor time of each way, in turn; the least counts."""
    least = dict.fromkeys(ways, np.inf)
    for _ in range(repetitions):
        for name, way in ways.items():
            start = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - start)
    return least


def in_blocks(network: Any, Z: np.ndarray, memory: Any, size: int) -> np.ndarray:
    """Scores, as `PretrainedRAD` has them made."""
    return np.concatenate([network.score(Z[i : i + size], memory) for i in range(0, len(Z), size)])


def compared(networks: dict[str, Any], columns: int, context: int) -> dict[str, Any]:
    """Milliseconds a row in bulk and for the context, and seconds of calls."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(context, columns)).astype(np.float32)
    states = np.repeat([1, 2, 0], [100, 50, context - 150])
    rows = rng.normal(size=(max(CALLS), columns)).astype(np.float32)
    read = {name: network.read(Z, states) for name, network in networks.items()}

    def score(name: str, size: int, memory: Any = None) -> np.ndarray:
        memory = memory or networks[name].read(Z, states)
        return in_blocks(networks[name], rows[:size], memory, BLOCKS[name])

    ways: dict[str, Callable[[], Any]] = {}
    for name, network in networks.items():
        ways[f"{name}, ms a row in bulk"] = lambda n=name: score(n, max(CALLS), read[n])
        ways[f"{name}, ms a row read"] = lambda n=network: n.read(Z, states)
        for size in CALLS:
            kept = None if name == "before" else read[name]
            ways[f"{name}, s of a call with {size}"] = lambda n=name, s=size, k=kept: score(n, s, k)
    found = seconds(3, ways)
    for name in networks:
        found[f"{name}, ms a row in bulk"] *= 1000 / max(CALLS)
        found[f"{name}, ms a row read"] *= 1000 / context
    ratios = {
        key.removeprefix("now, "): round(found[key.replace("now", "before")] / value, 2)
        for key, value in found.items()
        if key.startswith("now")
    }
    apart = np.abs(np.subtract(*(score(name, 250) for name in networks))).max()
    found = {key: float(f"{value:.4g}") for key, value in found.items()}
    return {**found, "before / now": ratios, "largest difference": float(f"{apart:.2g}")}


def on_tables(networks: dict[str, Any], weights: str, source: Path) -> dict[str, Any]:
    """The least rank correlation and the largest difference of AUC over some tables."""
    X, y = read_tables(source)
    names = side(ROOT / "results" / "pretrained" / "split.json", list(X), "train")[::40]
    correlations, areas, apart = [], [], []
    for name in names:
        F = LearnedFeatures(("columns", "outliers"), smooth=True).fit_transform(
            X[name].astype(float)
        )
        known = labelled(y[name], 0.05, 0)
        model = PretrainedRAD(weights=weights).fit(F, np.where(known, np.where(y[name], -1, 1), 0))
        rows = np.concatenate([np.flatnonzero(y[name])[:50], np.flatnonzero(~y[name])[:200]])
        Z = model._columns(F[rows]).astype(np.float32)
        scores = [
            network.score(Z, network.read(model.context_, model.states_))
            for network in networks.values()
        ]
        apart.append(np.abs(np.subtract(*scores)).max())
        correlations.append(spearmanr(*scores)[0])
        areas.append(abs(np.subtract(*(roc_auc_score(y[name][rows], one) for one in scores))))
    return {
        "tables": len(names),
        "least rank correlation": round(float(min(correlations)), 8),
        "largest difference": float(f"{max(apart):.2g}"),
        "largest difference of AUC": round(float(max(areas)), 8),
    }


def main() -> None:
    """Compare both forms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--before", default=BEFORE, help="commit of the earlier form")
    parser.add_argument("--tables", type=Path, help="real tables")
    told = parser.parse_args()
    was = earlier(told.before).TableNetwork
    found: dict[str, Any] = {"before": told.before}
    for weights in ("tables-2", "tables-3"):
        networks = {"before": was.load(weights), "now": TableNetwork.load(weights)}
        for columns, context in SHAPES:
            key = f"{weights}, {columns} columns, {context} rows read"
            found[key] = compared(networks, columns, context)
            print(key, found[key]["before / now"], flush=True)
        if told.tables:
            found[f"{weights}, real tables"] = on_tables(networks, weights, told.tables)
    told.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
