"""The AUC and p-values under labels that were chosen, with and without weights.

    python benchmarks/selected_labels.py TABLES.npz FOLDER results/decisions/selected.json

FOLDER has the fits of `benchmarks/decisions.py fit`. Of each table the rows to test, which the fit
has not seen, are labelled anew in six ways, and what labelled rows say is compared with the truth
of the others: nothing is fitted. Four ways are those of `benchmarks/decisions.py`; of the others
nothing can be corrected:

- alerts: only rows among the fifth with the highest score of an isolation forest are labelled;
- found: anomalies beyond the 70 % quantile of one column are 20 times as likely to be labelled as
  other anomalies, and normal rows are labelled by chance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from decisions import SELECTED, codes_of, digits, draw, names_in_order, split
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from riskad import suggest_rows
from riskad.bench.provenance import provenance
from riskad.core.labels import UNLABELLED, read_codes
from riskad.decisions.calibration import Calibration
from riskad.decisions.cross_calibration import with_weights
from riskad.decisions.label_weights import auc_with_weights, weigh_labelled
from riskad.decisions.ranking_metrics import auc_of_folds, auc_with_interval

WAYS = ("random", *SELECTED, "alerts", "found")
SIZES = (60, 300)
FEWEST = 3  # labelled rows of each kind
FOLDS = 5


class Scored:
    """What `suggest_rows` asks of a model, with scores that are there already."""

    def __init__(self, scores: np.ndarray, threshold: float):
        self.scores, self.offset_ = scores, -threshold

    def score_samples(self, X: Any) -> np.ndarray:
        return -self.scores


def choose(way: str, X: np.ndarray, t: np.ndarray, s: np.ndarray, n: int, rng: Any) -> np.ndarray:
    """Which rows are labelled."""
    if way == "suggested":
        rows = draw("random", X, t, n // 2, rng)
        model = Scored(s, float(np.quantile(s, 0.9)))
        y = read_codes(codes_of(rows, t))
        return np.concatenate([rows, suggest_rows(model, X, n - n // 2, y=y).rows])
    if way == "alerts":
        odd = -IsolationForest(random_state=0).fit(X).score_samples(X)
        place = np.flatnonzero(odd >= np.quantile(odd, 0.8))
        return rng.choice(place, min(n, len(place) - 20), replace=False)
    if way == "found":
        several = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) > 2]
        x = X[:, rng.choice(several)] * rng.choice([-1, 1]) + 1e-9 * rng.random(len(t))
        weight = np.where(t, np.where(x >= np.quantile(x, 0.7), 10.0, 0.5), 1.0)
        return rng.choice(len(t), n, replace=False, p=weight / weight.sum())
    return draw(way, X, t, n, rng)


def judge(X: np.ndarray, t: np.ndarray, s: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """What labelled rows say, beside what is so among the others."""
    codes = codes_of(rows, t)
    known, free = codes != UNLABELLED, codes == UNLABELLED
    m, n = int(t[known].sum()), int((~t[known]).sum())
    auc = auc_of_folds([auc_with_interval(codes, s).value], FOLDS, n, m)
    weighed = weigh_labelled(X, codes)
    wider, weighted = auc_with_weights(auc, s[known], codes[known], weighed.weights)
    wider = wider if weighed.clear else auc
    true = float(roc_auc_score(t[free], s[free]))
    calibration = Calibration.of(s, read_codes(codes), s, 0.0, None, 0, "chosen")
    normal = free & ~t
    p = calibration.p_values(s[normal])
    other = with_weights(calibration, X, codes, s, 0)
    q = other.p_values(s[normal], other.ratio(X[normal]))
    return {
        **{"error": auc.value - true, "weighted error": weighted.value - true},
        **{"covered": auc.low <= true <= auc.high, "width": auc.high - auc.low},
        **{"wider covered": wider.low <= true <= wider.high, "wider width": wider.high - wider.low},
        **{"clear": weighed.clear, "beyond": weighed.beyond},
        **{"p <= 0.1": float((p <= 0.1).mean()), "weighted p <= 0.1": float((q <= 0.1).mean())},
    }


def records(tables: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """One for each table, size and way, where there are labels of both kinds."""
    names = {digits(name)[:12]: name for name in names_in_order(tables)}
    paths = {path.stem.split("_")[0]: path for path in sorted(folder.glob("*.npz"))}
    for table, path in paths.items():
        kept = dict(np.load(path))
        if "none" in kept:
            continue
        _, _, X, t, _ = split(tables, names[table])
        X, s = np.nan_to_num(X), kept["w"] @ kept["test"]
        for size in SIZES:
            for way in WAYS:
                rng = np.random.default_rng([size, int(table[:8], 16), *way.encode()])
                rows = choose(way, X, t, s, min(size, len(t) // 3), rng)
                if min(t[rows].sum(), (~t[rows]).sum()) >= FEWEST and t.sum() > t[rows].sum():
                    about = {"table": table, "labels": size, "way": way}
                    yield about | {k: round(float(v), 4) for k, v in judge(X, t, s, rows).items()}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over tables."""
    found: dict[str, Any] = {"tables": len(rows)}
    for error in ("error", "weighted error"):
        values = np.array([row[error] for row in rows])
        found[f"mean {error}"] = values.mean()
        found[f"root mean square {error}"] = np.sqrt(np.mean(values**2))
    for name in list(rows[0])[5:]:
        found[name] = np.mean([row[name] for row in rows])
    return {name: round(float(value), 4) for name, value in found.items()}


def main() -> None:
    """Judge all tables that were fitted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("tables", "folder", "output"):
        parser.add_argument(name, type=Path)
    told = parser.parse_args()
    rows = list(records(np.load(told.tables), told.folder))
    figures = {
        f"{way}, {size} labels": summary(own)
        for size in SIZES
        for way in WAYS
        if (own := [row for row in rows if (row["labels"], row["way"]) == (size, way)])
    }
    lines = ",\n".join(json.dumps(row) for row in rows)
    about = json.dumps({**provenance(), "figures": figures}, indent=1)[:-2]
    told.output.write_text(f'{about},\n"records": [\n{lines}\n]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
