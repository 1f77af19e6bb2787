"""How fast our trees are walked, beside the compiled code of the libraries that grew them.

    python benchmarks/tree_walk.py --output results/trees_walk.json

200 trees, 5,000 rows, 50 columns, one thread: the sum of the values of a row's leaves by
`riskad.detectors.tree_arrays.Trees`, by `predict` of scikit-learn's trees and by LightGBM's. Both
are timed in turns in one process, in seconds of its processor; the least of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import lightgbm
import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, IsolationForest

from riskad.detectors.tree_arrays import Trees, from_lightgbm, from_sklearn
from riskad.detectors.tree_shapley import shapley_values

N_TREES, N_ROWS, N_COLUMNS, N_EXPLAINED = 200, 5_000, 50, 500
TURNS = 9


def make_rows(seed: int, gaps: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, N_COLUMNS))
    target = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=N_ROWS)
    X[rng.random(X.shape) < gaps] = np.nan
    return X, target


def least_seconds(*functions: Callable[[], object]) -> list[float]:
    """Of each function, in turns, so that whatever else the machine does hits all alike."""
    seconds = np.empty((TURNS, len(functions)))
    for turn in seconds:
        for place, function in enumerate(functions):
            start = time.process_time()
            function()
            turn[place] = time.process_time() - start
    return seconds.min(axis=0).tolist()


def record(ours: float, theirs: float, difference: float) -> dict[str, float]:
    return {
        "ours_ms": round(1000 * ours, 1),
        "theirs_ms": round(1000 * theirs, 1),
        "ratio": round(ours / theirs, 2),
        "largest_difference": difference,
    }


def beside_sklearn(forest, gaps: float = 0.0) -> dict[str, float]:
    X, target = make_rows(0, gaps)
    target = target > 0 if isinstance(forest, ExtraTreesClassifier) else target
    grown = [member.tree_ for member in forest.fit(X, target).estimators_]
    trees = from_sklearn(grown, np.concatenate([tree.value[:, 0, 0] for tree in grown]), N_COLUMNS)
    new = make_rows(1, gaps)[0]

    def theirs() -> np.ndarray:
        single = new.astype(np.float32)
        return sum(tree.predict(single).reshape(N_ROWS, -1)[:, 0] for tree in grown)

    difference = float(np.abs(trees.sum(new) - theirs()).max())
    return record(*least_seconds(lambda: trees.sum(new), theirs), difference)


def grow_boosted(n_leaves: int, gaps: float) -> tuple[lightgbm.Booster, Trees]:
    settings = {"num_leaves": n_leaves, "extra_trees": True, "verbosity": -1, "num_threads": 1}
    X, target = make_rows(0, gaps)
    booster = lightgbm.train(settings, lightgbm.Dataset(X, target), N_TREES)
    return booster, from_lightgbm(booster.dump_model(), N_COLUMNS)


def beside_lightgbm(n_leaves: int, gaps: float = 0.0) -> dict[str, float]:
    booster, trees = grow_boosted(n_leaves, gaps)
    new = make_rows(1, gaps)[0]

    def theirs() -> np.ndarray:
        return booster.predict(new, num_threads=1)

    difference = float(np.abs(trees.sum(new) - theirs()).max())
    return record(*least_seconds(lambda: trees.sum(new), theirs), difference)


def shapley_beside_lightgbm(n_leaves: int) -> dict[str, float]:
    booster, trees = grow_boosted(n_leaves, 0.0)
    new = make_rows(1)[0][:N_EXPLAINED]

    def ours() -> np.ndarray:
        return shapley_values(trees, new)[0]

    def theirs() -> np.ndarray:
        return booster.predict(new, num_threads=1, pred_contrib=True)[:, :-1]

    difference = float(np.abs(ours() - theirs()).max())
    return record(*least_seconds(ours, theirs), difference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = {
        "scikit-learn, leaves of 5 rows": beside_sklearn(
            ExtraTreesRegressor(N_TREES, min_samples_leaf=5, random_state=0)
        ),
        "scikit-learn, leaves of 1 row": beside_sklearn(
            ExtraTreesClassifier(N_TREES, random_state=0)
        ),
        "scikit-learn, leaves of 5 rows, 5 % gaps": beside_sklearn(
            ExtraTreesRegressor(N_TREES, min_samples_leaf=5, random_state=0), gaps=0.05
        ),
        "scikit-learn, isolation trees": beside_sklearn(
            IsolationForest(n_estimators=N_TREES, random_state=0)
        ),
        "LightGBM, 8 leaves": beside_lightgbm(8),
        "LightGBM, 8 leaves, 5 % gaps": beside_lightgbm(8, gaps=0.05),
        "LightGBM, 63 leaves": beside_lightgbm(63),
        f"Shapley values of {N_EXPLAINED} rows, LightGBM, 8 leaves": shapley_beside_lightgbm(8),
    }
    for name, row in found.items():
        print(f"{name:52s} {row}")
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
