"""What it brings to read blank cells, and categories, as such.

    python benchmarks/native_columns.py TABLES.npz results/tables/native_columns.json [--tables 60]

Real tables that the pretrained network has not seen, at most 2,000 rows each. They have neither
gaps nor texts, so that these are made, each in every other column. Cells are blanked, more of them
the larger their value, and in a third of the columns more of them in anomalies. Or a column is cut
into three to eight parts, its levels, the most frequent first. Half of the rows are there to fit,
5 % of them, at least 40, labelled at random. The network of `AutoRAD`, and its boosted trees, learn
from columns as other members get them (medians with marks, a yes/no column for each level), and
from columns as such, each with two outlier scores beside them.
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
PARTS = (3, 9)
BLANKS, MORE_IF_LARGE, MORE_IF_ANOMALOUS = 0.05, 0.3, 0.2
DETECTORS = {
    "network": lambda: PretrainedRAD(unlabelled=300, random_state=0),
    "boosted": lambda: BoostedRAD(n_rounds=150, random_state=0),
}


def blanked(X: np.ndarray, t: np.ndarray, rng: Any) -> tuple[np.ndarray, Filled]:
    """A copy with blank cells, and what fills them."""
    X = X.copy()
    for j in range(X.shape[1]):
        if rng.random() < 0.5:
            rank = np.argsort(np.argsort(X[:, j])) / len(t)
            chance = BLANKS + MORE_IF_LARGE * rng.random() * rank
            chance = chance + MORE_IF_ANOMALOUS * t * (rng.random() < 1 / 3)
            X[rng.random(len(t)) < chance, j] = np.nan
    return X, Filled()


def cut(X: np.ndarray, t: np.ndarray, rng: Any) -> tuple[np.ndarray, Filled]:
    """A copy with columns of levels, and what makes yes/no columns of these."""
    X, levels = X.copy(), {}
    for j in range(X.shape[1]):
        if rng.random() < 0.5 and len(np.unique(X[:, j])) > 2:
            n_parts = int(rng.integers(*PARTS))
            part = np.searchsorted(
                np.unique(np.quantile(X[:, j], np.arange(1, n_parts) / n_parts)), X[:, j]
            )
            counts = np.bincount(part)
            X[:, j] = np.argsort(np.argsort(-counts, kind="stable"))[part]
            levels[j] = [str(level) for level in range(len(counts))]
    return X, Filled(levels)


MAKES = {"blanks": blanked, "categories": cut}


def rows_both_ways(
    X: np.ndarray, table: Filled, fit: np.ndarray, y: np.ndarray
) -> dict[str, np.ndarray]:
    """All rows with columns as other members get them, and as such; outlier scores beside them."""
    table.fit(X[fit])
    made = table.made
    features = LearnedFeatures(
        ("columns", "outliers", "native"), marks=list(made.marks), levels=list(made.levels)
    )
    F = features.fit(table.transform(X[fit]), y).transform(table.transform(X))
    columns, outliers, native = (F[:, span] for span in features.slices_.values())
    return {"made": np.hstack([columns, outliers]), "native": np.hstack([native, outliers])}


def judge(what: str, X: np.ndarray, t: np.ndarray, rng: Any) -> dict[str, list[float]] | None:
    """AUC and average precision by detector and way; None where the table tells too little."""
    order = rng.permutation(len(t))[:MOST_ROWS]
    t = t[order]
    X, table = MAKES[what](X[order], t, rng)
    half = len(t) // 2
    fit, test = np.arange(half), np.arange(half, len(t))
    y = np.zeros(half, int)
    labelled = rng.choice(half, max(LEAST_LABELLED, round(SHARE * half)), replace=False)
    y[labelled] = np.where(t[labelled], -1, 1)
    if (y == -1).sum() < 2 or t[test].sum() < 3:
        return None
    ways = rows_both_ways(X, table, fit, y)
    if not any(table.made) or ways["made"].shape[1] > READS_COLUMNS:
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
        made, native = (
            np.array([row[f"{name}, {way}"] for row in records]) for way in ("made", "native")
        )
        gain = native - made
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        for i, metric in enumerate(("auc", "average precision")):
            figures = {"made": made[:, i].mean(), "native": native[:, i].mean()}
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
    found: dict[str, Any] = provenance()
    for what in MAKES:
        records = []
        for name in kept[: told.n_tables]:
            X, t = tables[f"{name}|X"].astype(float), tables[f"{name}|y"] == 1
            record = judge(what, X, t, np.random.default_rng(int(name_hash(name)[:8], 16)))
            if record is not None:
                records.append(record)
        found[what] = summary(records)
    text = json.dumps(found, indent=1) + "\n"
    told.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
