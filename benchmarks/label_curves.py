"""How many labels it takes, by the order in which rows are judged, beginning with none.

python benchmarks/label_curves.py TABLES.npz --skip 27 --tables 35 --out curves.json

TABLES holds `NAME|X` and `NAME|y` (1 anomaly, 0 normal) for each table. Half of a table's rows, 700
at most, are a person's table without labels, as many others are test rows. A simulated person knows
the truth and judges ten rows at a time: as `riskad label` shows them ("suggested": nine by
`suggest_rows`, one at random), with more of them at random ("six of ten suggested"), by chance
("random"), or from the top of the ranking ("top"). Before
there is a label of each kind, the ranking is that of outlier scores; then a forest of 60 trees is
fitted after each ten. That takes a fraction of the time of `AutoRAD`: the curves are of the order,
not of the page's own model. Labels needed are those after which the AUC on test rows is 95 %
(80 %) of what all labels give; where 100 do not suffice, 110 are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import ForestRAD
from riskad.core.labels import LabelCodes
from riskad.decisions.suggest import suggest_rows
from riskad.detectors.features import LearnedFeatures

BATCH, ROUNDS, MOST_ROWS, TREES = 10, 10, 700, 60
FEWEST_ANOMALIES = 40
FLAGGED = 0.05  # of the rows, as long as nothing tells how many are anomalies


class Known:
    """A model whose scores of all rows are known."""

    def __init__(self, anomaly_score, threshold):
        self.scores, self.offset_ = -anomaly_score, -threshold

    def score_samples(self, X):
        return self.scores


class Table:
    """Rows to be labelled and test rows, as features, with the truth of both."""

    def __init__(self, X, y, rng):
        order, n = rng.permutation(len(X)), min(MOST_ROWS, len(X) // 2)
        own, test = order[:n], order[n : 2 * n]
        self.learned = LearnedFeatures(("columns", "outliers"), random_state=0)
        self.rows = self.learned.fit_transform(X[own].astype(float))
        self.test_rows = self.learned.transform(X[test].astype(float))
        self.truth, self.test_truth = np.where(y[own] == 1, -1, 1), y[test] == 1

    def fit(self, labels):
        """The anomaly scores of the rows, the threshold, and the AUC on test rows."""
        if min((labels == 1).sum(), (labels == -1).sum()) < 1:
            span = self.learned.slices_["outliers"]
            own, test = (F[:, span].mean(axis=1) for F in (self.rows, self.test_rows))
            threshold = float(np.quantile(own, 1 - FLAGGED))
        else:
            risk = "rad" if (labels == 0).any() else "pn"
            model = ForestRAD(n_estimators=TREES, risk=risk, random_state=0)
            model.fit(self.rows, LabelCodes.of(labels.astype(np.int8)))
            own, test = model.anomaly_score(self.rows), model.anomaly_score(self.test_rows)
            threshold = model.anomaly_threshold
        return own, threshold, float(roc_auc_score(self.test_truth, test))


def by_chance(table, scores, threshold, labels, rng):
    return rng.choice(np.flatnonzero(labels == 0), BATCH, replace=False)


def from_the_top(table, scores, threshold, labels, rng):
    free = np.flatnonzero(labels == 0)
    return free[np.argsort(-scores[free], kind="stable")[:BATCH]]


def suggested(table, scores, threshold, labels, rng, n=9):
    columns = table.rows[:, table.learned.slices_["columns"]]
    known = LabelCodes.of(labels.astype(np.int8))
    model, seed = Known(scores, threshold), int(rng.integers(2**31))
    chosen = suggest_rows(model, table.rows, n, y=known, compared=columns, random_state=seed).rows
    rest = np.setdiff1d(np.flatnonzero(labels == 0), chosen)
    return np.append(chosen, rng.choice(rest, BATCH - n, replace=False))


ORDERS = {
    "suggested": suggested,
    "six of ten suggested": partial(suggested, n=6),
    "random": by_chance,
    "top": from_the_top,
}


def curves(table, seed):
    """The AUC after each ten labels, by order, and what all labels give."""
    found = {"all labels": table.fit(table.truth)[2]}
    for name, choose in ORDERS.items():
        labels, rng = np.zeros(len(table.truth), dtype=int), np.random.default_rng(seed)
        scores, threshold, auc = table.fit(labels)
        found[name] = [auc]
        for _ in range(ROUNDS):
            chosen = choose(table, scores, threshold, labels, rng)
            labels[chosen] = table.truth[chosen]
            scores, threshold, auc = table.fit(labels)
            found[name].append(auc)
    return found


def needed(curve, wanted):
    """Labels after which the AUC is first as high as wanted."""
    enough = np.flatnonzero(np.array(curve) >= wanted)
    return BATCH * int(enough[0]) if len(enough) else BATCH * (ROUNDS + 1)


def summed_up(found):
    """Mean curves and labels needed over tables, with errors of differences from random order."""
    result = {
        "tables": len(found),
        "all labels": round(np.mean([f["all labels"] for f in found]), 4),
    }
    for name in ORDERS:
        mean = np.mean([f[name] for f in found], axis=0)
        result[name] = {"curve": mean.round(4).tolist(), "area": round(float(mean[1:].mean()), 4)}
        gaps = [np.mean(f[name][1:]) - np.mean(f["random"][1:]) for f in found]
        result[name]["area beside random"] = {
            "mean": round(float(np.mean(gaps)), 4),
            "standard error": round(float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))), 4),
        }
    for share in (0.8, 0.95):
        counts = {
            name: np.array([needed(f[name], share * f["all labels"]) for f in found])
            for name in ORDERS
        }
        for name, count in counts.items():
            gap = count - counts["random"]
            result[name][f"labels to {share:.0%}"] = {
                "mean": round(float(count.mean()), 1),
                "beside random": round(float(gap.mean()), 1),
                "standard error": round(float(gap.std(ddof=1) / np.sqrt(len(gap))), 1),
                "fewer on": int((gap < 0).sum()),
                "more on": int((gap > 0).sum()),
            }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--tables", dest="n", type=int, default=20)
    parser.add_argument("--skip", type=int, default=0, help="Tables to leave out first.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    stored = np.load(told.tables)
    names = sorted({name.partition("|")[0] for name in stored.files})
    np.random.default_rng(told.seed).shuffle(names)
    enough = [n for n in names if (stored[f"{n}|y"] == 1).sum() >= FEWEST_ANOMALIES]
    found = []
    for name in enough[told.skip : told.skip + told.n]:
        X, y = stored[f"{name}|X"], stored[f"{name}|y"]
        table = Table(X, y, np.random.default_rng([told.seed, zlib.crc32(name.encode())]))
        found.append(curves(table, told.seed))
        print(f"{len(found)} tables", file=sys.stderr, flush=True)
        if len(found) > 1 and told.out is not None:  # what is there so far
            told.out.write_text(json.dumps(summed_up(found), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summed_up(found), indent=1))


if __name__ == "__main__":
    main()
