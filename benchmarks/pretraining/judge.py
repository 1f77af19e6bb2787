"""Judge trainings of the network on the kept tables, beside forests and boosted trees.

    python -m benchmarks.pretraining.judge TABLES.npz results/pretrained/split.json \
        results/pretrained/kept.jsonl 5% few 1% 20%
    python -m benchmarks.pretraining.judge --report results/pretrained/kept.jsonl

Of each table some rows are labelled, once: 1, 5 or 20 % of them at random ("few": 5 %, of whose
anomalies one to three keep their label). The others are unlabelled. Detectors are judged by at most
600 of them. The networks read columns and outlier scores; trees learn from the labelled rows.
Tables are named by hashes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks.pretraining.evaluate import labelled
from benchmarks.pretraining.split import name_hash, read_tables, side
from riskad import PretrainedRAD
from riskad.detectors.features import LearnedFeatures

JUDGED = 600
SHARES = {"1%": 0.01, "5%": 0.05, "few": 0.05, "20%": 0.2}


def network(weights: str) -> Callable[..., np.ndarray]:
    """The network as the documentation advises."""

    def scores(X: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        model = make_pipeline(
            LearnedFeatures(("columns", "outliers"), smooth=True), PretrainedRAD(weights=weights)
        )
        return -model.fit(X, codes).score_samples(X[rows])

    return scores


def alone(X: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The network with nothing but the columns."""
    return -PretrainedRAD(weights="tables-3").fit(X, codes).score_samples(X[rows])


def extra_trees(X: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """500 trees on the labelled rows."""
    known = codes != 0
    forest = ExtraTreesClassifier(500, random_state=0).fit(X[known], codes[known] == -1)
    return forest.predict_proba(X[rows])[:, 1]


def catboost(X: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """CatBoost with its own settings on the labelled rows."""
    from catboost import CatBoostClassifier

    known = codes != 0
    model = CatBoostClassifier(
        random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    return model.fit(X[known], codes[known] == -1).predict_proba(X[rows])[:, 1]


DETECTORS: dict[str, Callable[..., np.ndarray]] = {
    "tables-2": network("tables-2"),
    "tables-3": network("tables-3"),
    "tables-3, columns alone": alone,
    "extra trees": extra_trees,
    "catboost": catboost,
}


def labels(y: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """+1 normal, -1 anomaly, 0 unlabelled."""
    known = labelled(y, SHARES[setting], seed)
    if setting == "few":
        rng = np.random.default_rng(seed)
        odd = rng.permutation(np.flatnonzero(known & y))
        known[odd[rng.integers(1, 4) :]] = False
    return np.where(known, np.where(y, -1, 1), 0)


def judged_rows(y: np.ndarray, codes: np.ndarray, seed: int) -> np.ndarray:
    """Some of the unlabelled rows, with as many anomalies as their share says."""
    free = np.random.default_rng(seed).permutation(np.flatnonzero(codes == 0))
    odd, usual = free[y[free]], free[~y[free]]
    share = min(1.0, JUDGED / len(free))
    return np.concatenate(
        [odd[: max(5, round(share * len(odd)))], usual[: round(share * len(usual))]]
    )


def judge(source: str, split: str, output: str, settings: list[str]) -> None:
    """Go on where the file ends."""
    file = Path(output)
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    done = {(line["setting"], line["table"]) for line in lines}
    X, y = read_tables(source)
    for setting in settings:
        for seed, name in enumerate(side(split, list(X), "kept")):
            if (setting, name_hash(name)) in done:
                continue
            codes = labels(y[name], setting, seed)
            rows = judged_rows(y[name], codes, seed)
            line: dict[str, Any] = {"setting": setting, "table": name_hash(name)}
            line |= {"anomalies": int((codes == -1).sum()), "normals": int((codes == 1).sum())}
            for detector, score in DETECTORS.items():
                start = time.process_time()
                found, truth = score(X[name].astype(float), codes, rows), y[name][rows]
                line[detector] = [
                    round(float(roc_auc_score(truth, found)), 4),
                    round(float(average_precision_score(truth, found)), 4),
                    round(time.process_time() - start, 2),
                ]
            with file.open("a") as opened:
                opened.write(json.dumps(line) + "\n")


def report(file: str) -> None:
    """Means, and differences from tables-3 with standard errors over tables."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    for setting in dict.fromkeys(line["setting"] for line in lines):
        chosen = [line for line in lines if line["setting"] == setting]
        print(f"{setting}: {len(chosen)} tables")
        base = np.array([line["tables-3"] for line in chosen])
        for name in DETECTORS:
            values = np.array([line[name] for line in chosen])
            less = base - values
            error = less.std(axis=0, ddof=1) / np.sqrt(len(less))
            print(
                f"  {name:25} AUC {values[:, 0].mean():.4f} AP {values[:, 1].mean():.4f}; "
                f"tables-3 less it {less[:, 0].mean():+.4f} ({error[0]:.4f}), "
                f"{less[:, 1].mean():+.4f} ({error[1]:.4f}); {values[:, 2].mean():.2f} s"
            )


if __name__ == "__main__":
    if sys.argv[1] == "--report":
        report(sys.argv[2])
    else:
        judge(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
