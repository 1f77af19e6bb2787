"""Fitting rAD as the published runs did, by stochastic gradient descent, beside our solvers.

    RISKAD_DATA=... python benchmarks/sgd.py --output results/shallow/sgd.json

The published way: each term of the risk becomes weighted rows (the labelled anomalies twice, once
with a negative weight), which scikit-learn's SGDClassifier passes over until its loss stops
improving, with alpha = 0.01. Timed side by side in one process and one thread, on the rows of the
benchmark's first trials; a ratio above 1 says that ours is faster. Fitting includes the
standardisation of columns on both sides, and on ours the theorem's lambda and the threshold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from riskad import ShallowRAD
from riskad.bench.trial import Split, make_split
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

SETS = ("pendigits", "SpamBase", "campaign")
SGD_LOSSES = {"squared": "squared_error", "hinge": "hinge", "modified_huber": "modified_huber"}
A, PRIOR = 0.1, 0.8


def fit_sgd(split: Split, loss: str, seed: int) -> Pipeline:
    """One run of SGD over weighted rows: N twice, as anomalies and, with weight < 0, as normal."""
    kinds = {kind: split.X_train[split.y_train == kind] for kind in (UNLABELLED, NORMAL, ANOMALY)}
    terms = [
        (UNLABELLED, 1, A),
        (NORMAL, 1, (1 - A) * PRIOR),
        (ANOMALY, -1, 1 - PRIOR),
        (ANOMALY, 1, -A * (1 - PRIOR)),
    ]
    X = np.concatenate([kinds[kind] for kind, _, _ in terms])
    side = np.concatenate([np.full(len(kinds[kind]), sign) for kind, sign, _ in terms])
    weight = np.concatenate([np.full(len(kinds[k]), w / len(kinds[k])) for k, _, w in terms])
    sgd = SGDClassifier(loss=SGD_LOSSES[loss], alpha=0.01, random_state=seed)
    scaler = StandardScaler().fit(split.X_train)
    return make_pipeline(scaler, sgd.fit(scaler.transform(X), side, sample_weight=weight))


def compare(name: str, loss: str, trials: int) -> dict[str, Any]:
    """Median times over trials of both ways, and their mean AUC on the test rows."""
    times: dict[str, list[float]] = {"sgd": [], "ours": []}
    aucs: dict[str, list[float]] = {"sgd": [], "ours": []}
    for trial in range(trials):
        split = make_split(name, trial, 0, 0.3, 0.05)
        for way in times:
            start = time.perf_counter()
            if way == "sgd":
                model = fit_sgd(split, loss, trial)
            else:
                model = ShallowRAD(loss, tol=1e-4).fit(split.X_train, split.y_train)
            times[way].append(time.perf_counter() - start)
            scores = model.decision_function(split.X_test)
            aucs[way].append(float(roc_auc_score(split.truth_test == NORMAL, scores)))
    sgd, ours = (median(times[way]) for way in ("sgd", "ours"))
    return {
        "set": name,
        "loss": loss,
        "ratio": round(sgd / ours, 2),
        "sgd_ms": round(1000 * sgd, 2),
        "ours_ms": round(1000 * ours, 2),
        "sgd_auc": round(float(np.mean(aucs["sgd"])), 4),
        "ours_auc": round(float(np.mean(aucs["ours"])), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", default=SETS, help="names of ADBench's datasets")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--output", type=Path, help="also write the rows as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # SGD that has not converged, columns that do not vary
    rows = [compare(name, loss, arguments.trials) for name in arguments.sets for loss in SGD_LOSSES]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    ratio = float(np.exp(np.mean(np.log([row["ratio"] for row in rows]))))
    print(f"geometric mean of the ratios: {ratio:.1f}")
    if arguments.output:
        record = {"trials": arguments.trials, "mean_ratio": round(ratio, 2), "rows": rows}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
