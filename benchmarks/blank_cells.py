"""What it brings to read blank cells as such, rather than filled with medians and marked.

    python benchmarks/blank_cells.py TABLES.npz results/tables/blank_cells.json [--tables 60]

Real tables that the pretrained network has not seen, at most 2,000 rows each. None has gaps, so
that they are made: in every other column cells are blanked, more of them the larger their value,
and in a third of these columns more of them in anomalies. Half of the rows are there to fit, 5 % of
them, at least 40, labelled at random. The network of `AutoRAD`, and its boosted trees, learn from
filled columns with marks, and from columns with blanks, each with two outlier scores beside them.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.pretraining.split import name_hash, side
from riskad import BoostedRAD, PretrainedRAD
from riskad.bench.provenance import provenance
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.rows.columns import Filled

MOST_ROWS, LEAST_LABELLED, SHARE = 2_000, 40, 0.05
BLANKS, MORE_IF_LARGE, MORE_IF_ANOMALOUS = 0.05, 0.3, 0.2
DETECTORS = {
    "network": lambda: PretrainedRAD(unlabelled=300, random_state=0),
    "boosted": lambda: BoostedRAD(n_rounds=150, random_state=0),
}


def blanked(X: np.ndarray, t: np.ndarray, rng: Any) -> np.ndarray:
    """A copy with blank cells."""
    X = X.copy()
    for j in range(X.shape[1]):
        if rng.random() < 0.5:
            rank = np.argsort(np.argsort(X[:, j])) / len(t)
            chance = BLANKS + MORE_IF_LARGE * rng.random() * rank
            chance = chance + MORE_IF_ANOMALOUS * t * (rng.random() < 1 / 3)
            X[rng.random(len(t)) < chance, j] = np.nan
    return X


def rows_both_ways(X: np.ndarray, fit: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """All rows with filled and marked columns, and with blanks; outlier scores beside them."""
    table = Filled().fit(X[fit])
    features = LearnedFeatures(("columns", "outliers", "native"), marks=table.made.marks)
    F = features.fit(table.transform(X[fit]), y).transform(table.transform(X))
    columns, outliers, blanks = (F[:, span] for span in features.slices_.values())
    return {"filled": np.hstack([columns, outliers]), "blank": np.hstack([blanks, outliers])}


def judge(X: np.ndarray, t: np.ndarray, rng: Any) -> dict[str, list[float]] | None:
    """AUC and average precision by detector and way; None where the table tells too little."""
    order = rng.permutation(len(t))[:MOST_ROWS]
    X, t = blanked(X[order], t[order], rng), t[order]
    half = len(t) // 2
    fit, test = np.arange(half), np.arange(half, len(t))
    y = np.zeros(half, int)
    labelled = rng.choice(half, max(LEAST_LABELLED, round(SHARE * half)), replace=False)
    y[labelled] = np.where(t[labelled], -1, 1)
    if not np.isnan(X).any() or (y == -1).sum() < 2 or t[test].sum() < 3:
        return None
    ways = rows_both_ways(X, fit, y)
    if ways["filled"].shape[1] > READS_COLUMNS:
        return None
    found = {}
    for name, make in DETECTORS.items():
        for way, F in ways.items():
            s = -make().fit(F[fit], y).score_samples(F[test])
            aps = average_precision_score(t[test], s)
            found[f"{name}, {way}"] = [float(roc_auc_score(t[test], s)), float(aps)]
    return found


def summary(records: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Means over tables, and the gain with its standard error."""
    found: dict[str, Any] = {"tables": len(records)}
    for name in DETECTORS:
        filled, blank = (
            np.array([r[f"{name}, {w}"] for r in records]) for w in ("filled", "blank")
        )
        gain = blank - filled
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        for i, metric in enumerate(("auc", "average precision")):
            figures = {"filled": filled[:, i].mean(), "blank": blank[:, i].mean()}
            figures |= {"gain": gain[:, i].mean(), "standard error": error[i]}
            found[f"{name}, {metric}"] = {key: round(float(v), 4) for key, v in figures.items()}
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tables", dest="n_tables", type=int, default=60)
    told = parser.parse_args()
    tables = np.load(told.tables)
    names = sorted({key.split("|")[0] for key in tables.files})
    kept = sorted(side(ROOT / "results/pretrained/split.json", names, "kept"), key=name_hash)
    records = []
    for name in kept[: told.n_tables]:
        X, t = tables[f"{name}|X"].astype(float), tables[f"{name}|y"] == 1
        found = judge(X, t, np.random.default_rng(int(name_hash(name)[:8], 16)))
        if found is not None:
            records.append(found)
    text = json.dumps({**provenance(), **summary(records)}, indent=1) + "\n"
    told.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
