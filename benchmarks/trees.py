"""How trees that use the pile rank test rows, beside trees on the labelled rows alone.

    RISKAD_DATA=... python benchmarks/trees.py --output results/trees.json

On the paper's smaller tabular sets, 5 % of the training rows labelled, on the splits of
root seeds 101 and 102. The same splits set the defaults of BoostedRAD and ForestRAD.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from riskad import BoostedRAD, ForestRAD, ShallowRAD
from riskad.bench.trial import Split, make_split

SETS = (
    *("fault", "SpamBase", "Stamps", "thyroid", "vertebral", "vowels", "Waveform", "cardio"),
    "Cardiotocography",
)
ROOTS = (101, 102)
# LightGBM's own least 20 rows a leaf would leave most of these sets without a split.
LABELLED_ALONE: dict[str, Any] = {
    "LightGBM, labelled rows": LGBMClassifier(
        min_child_samples=1, verbosity=-1, n_jobs=1, random_state=0
    ),
    "extra trees, labelled rows": ExtraTreesClassifier(300, random_state=0),
}
DETECTORS: dict[str, Any] = {
    "ShallowRAD, lam='cv'": ShallowRAD(lam="cv"),
    "BoostedRAD": BoostedRAD(),
    "BoostedRAD, a=0": BoostedRAD(a=0),
    "BoostedRAD, nnrad": BoostedRAD(risk="nnrad"),
    "BoostedRAD, early stopping": BoostedRAD(early_stopping=True),
    "ForestRAD": ForestRAD(),
    "ForestRAD, a=0": ForestRAD(a=0),
}


def scores_of(method: Any, split: Split) -> np.ndarray:
    if hasattr(method, "predict_proba"):
        known = split.y_train != 0
        method.fit(split.X_train[known], split.y_train[known])
        return method.predict_proba(split.X_test)[:, 1]
    return method.fit(split.X_train, split.y_train).score_samples(split.X_test)


def cell(method: Any, split: Split) -> tuple[float, float, float]:
    """AUC, average precision and seconds."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = scores_of(method, split)
    seconds = time.perf_counter() - start
    anomalous = split.truth_test == -1
    return (
        float(roc_auc_score(anomalous, -scores)),
        float(average_precision_score(anomalous, -scores)),
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--trials", type=int, default=3)
    arguments = parser.parse_args()
    methods = LABELLED_ALONE | DETECTORS
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in methods}
    trials = [(d, t, r) for d in SETS for r in ROOTS for t in range(arguments.trials)]
    for dataset, trial, root in trials:
        split = make_split(dataset, trial, root, 0.3, 0.05)
        for name, method in methods.items():
            found[name].append(cell(method, split))
    summary = {}
    for name, rows in found.items():
        auc, precision, seconds = np.array(rows).mean(axis=0)
        by_set = np.array(rows)[:, 0].reshape(len(SETS), -1).mean(axis=1)
        print(f"{name:28s} AUC {auc:.4f}  AP {precision:.4f}  {seconds:.2f} s")
        summary[name] = {
            "auc": round(auc, 4),
            "average_precision": round(precision, 4),
            "seconds": round(seconds, 2),
            "auc_by_set": dict(zip(SETS, by_set.round(4).tolist(), strict=True)),
        }
    if arguments.output:
        arguments.output.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
