"""Judge trainings of the network on the kept tables, beside forests and boosted trees.

    python -m benchmarks.pretraining.judge TABLES.npz results/pretrained/split.json \
        results/pretrained/kept.jsonl
    python -m benchmarks.pretraining.judge --report results/pretrained/kept.jsonl

Of each table some rows are labelled, once: 1, 5 or 20 % of them at random ("few": 5 %, of whose
anomalies one to three keep their label). The others are unlabelled. Detectors are judged by at most
600 of them. The networks read columns and outlier scores; trees learn from the labelled rows. All
but 5 % are tried in every third table.
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

from benchmarks.pretraining.evaluate import labelled
from benchmarks.pretraining.split import name_hash, read_tables, side
from riskad import PretrainedRAD
from riskad.detectors.features import LearnedFeatures

JUDGED = 600
SHARES = {"5%": 0.05, "few": 0.05, "1%": 0.01, "20%": 0.2}
SELDOM = 3  # all but 5 % are tried in every third table

KINDS = {"anomalies": -1, "normals": 1}

Detector = Callable[..., np.ndarray]


def network(weights: str) -> Detector:
    """The network that reads columns and outlier scores, as the documentation advises."""

    def scores(X: np.ndarray, F: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return -PretrainedRAD(weights=weights).fit(F, codes).score_samples(F[rows])

    return scores


def extra_trees(X: np.ndarray, F: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """500 trees on the labelled rows."""
    known = codes != 0
    forest = ExtraTreesClassifier(500, random_state=0).fit(X[known], codes[known] == -1)
    return forest.predict_proba(X[rows])[:, 1]


def catboost(X: np.ndarray, F: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """CatBoost with its own settings on the labelled rows."""
    from catboost import CatBoostClassifier

    known = codes != 0
    model = CatBoostClassifier(
        random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    return model.fit(X[known], codes[known] == -1).predict_proba(X[rows])[:, 1]


DETECTORS: dict[str, Detector] = {
    "tables-2": network("tables-2"),
    "tables-3": network("tables-3"),
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


def judge(source: str, split: str, output: str) -> None:
    """Go on where the file ends."""
    file = Path(output)
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    done = {(line["setting"], line["table"]) for line in lines}
    X, y = read_tables(source)
    for seed, name in enumerate(side(split, list(X), "kept")):
        wanted = list(SHARES) if seed % SELDOM == 0 else ["5%"]
        wanted = [setting for setting in wanted if (setting, name_hash(name)) not in done]
        if not wanted:
            continue
        values = X[name].astype(float)
        F = LearnedFeatures(("columns", "outliers"), smooth=True).fit_transform(values)
        for setting in wanted:
            line = {"setting": setting, "table": name_hash(name)}
            line |= judged(values, F, y[name], labels(y[name], setting, seed), seed)
            with file.open("a") as opened:
                opened.write(json.dumps(line) + "\n")


def judged(
    X: np.ndarray, F: np.ndarray, y: np.ndarray, codes: np.ndarray, seed: int
) -> dict[str, Any]:
    """AUC, average precision and seconds of each detector."""
    rows = judged_rows(y, codes, seed)
    line: dict[str, Any] = {kind: int((codes == code).sum()) for kind, code in KINDS.items()}
    for detector, score in DETECTORS.items():
        start = time.process_time()
        found = score(X, F, codes, rows)
        line[detector] = [
            round(float(roc_auc_score(y[rows], found)), 4),
            round(float(average_precision_score(y[rows], found)), 4),
            round(time.process_time() - start, 2),
        ]
    return line


def report(file: str) -> None:
    """Means, and differences from tables-3 with standard errors over tables."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    for setting in dict.fromkeys(line["setting"] for line in lines):
        chosen = [line for line in lines if line["setting"] == setting]
        print(f"{setting}: {len(chosen)} tables")
        base = np.array([line["tables-3"] for line in chosen])
        for name in DETECTORS:
            values = np.array([line[name] for line in chosen])
            found = said(values, base - values)
            print(f"  {name:25} {found} (tables-3 less it); {values[:, 2].mean():.2f} s")


def said(values: np.ndarray, differences: np.ndarray) -> str:
    """Mean AUC and average precision, and mean differences with standard errors over tables."""
    mean = differences.mean(axis=0)
    error = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    return (
        f"AUC {values[:, 0].mean():.4f} AP {values[:, 1].mean():.4f}; "
        f"{mean[0]:+.4f} ({error[0]:.4f}), {mean[1]:+.4f} ({error[1]:.4f})"
    )


if __name__ == "__main__":
    if sys.argv[1] == "--report":
        report(sys.argv[2])
    else:
        judge(*sys.argv[1:])
