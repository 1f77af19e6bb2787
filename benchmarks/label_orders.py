"""Many orders in which to judge rows, with a model so quick that noise can be averaged away.

python benchmarks/label_orders.py TABLES.npz --out results/labelling/orders.json

As `label_curves.py`, with a ridge regression on 150 random Fourier features in place of a forest: a
fit takes two milliseconds. Its weights are those of the rad risk with squared loss and a = 0.3, and
n labelled anomalies give it the share n / (n + 4) of the score; the rest is the mean of the outlier
scores, as in `AutoRAD`, where few labels do not silence novelty. Orders were thought up on the
first 40 tables of the shuffle ("chosen on") and are judged by the next 40 ("confirmed on"). Each
table is split twice.

Two orders cheat: they know which rows are anomalies, and tell what an order could gain at most by
finding more of them without preferring those that are easy to find.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from label_curves import FEWEST_ANOMALIES, Table, needed, suggested
from sklearn.metrics import roc_auc_score

BATCH, ROUNDS, FEATURES, A, PRIOR, RIDGE, TRUST = 10, 10, 150, 0.3, 0.8, 3e-3, 4
HALF, SPLITS = 40, 2


class QuickTable(Table):
    """A table whose model is a ridge regression beside the outlier scores."""

    def __init__(self, X, y, rng):
        super().__init__(X, y, rng)
        span = self.learned.slices_["outliers"]
        scale = np.where(self.rows.std(axis=0) > 0, self.rows.std(axis=0), 1.0)
        own, test = (
            np.clip((F - self.rows.mean(axis=0)) / scale, -4, 4)
            for F in (self.rows, self.test_rows)
        )
        self.unlike = [standard(F[:, span].mean(axis=1)) for F in (self.rows, self.test_rows)]
        draw = np.random.default_rng(0)
        pairs = own[draw.integers(0, len(own), (2, 400))]
        gaps = ((pairs[0] - pairs[1]) ** 2).sum(axis=1)
        width = np.sqrt(np.median(gaps[gaps > 0]))
        slopes = 1.2 / width * draw.normal(size=(own.shape[1], FEATURES))
        shifts = draw.uniform(0, 2 * np.pi, FEATURES)
        self.features = [fourier(F, slopes, shifts) for F in (own, test)]
        self.best = self.fit(self.truth)[2]

    def fit(self, labels):
        """The anomaly scores of the rows, the threshold, and the AUC on test rows."""
        n = int((labels == -1).sum())
        own, test = self.unlike
        if n and (labels == 1).any():
            share = n / (n + TRUST)
            own, test = (
                share * standard(learned) + (1 - share) * unlike
                for learned, unlike in zip(self.scores(labels), self.unlike, strict=True)
            )
        auc = float(roc_auc_score(self.test_truth, test))
        return own, float(np.quantile(own, 0.95)), auc

    def scores(self, labels):
        """Of the rows and of the test rows, by weighted least squares."""
        kinds = {1: (1 - A) * PRIOR, -1: (1 + A) * (1 - PRIOR), 0: A}
        weights = sum(w * (labels == k) / max((labels == k).sum(), 1) for k, w in kinds.items())
        F = self.features[0]
        products = (F * weights[:, None]).T @ np.column_stack([F, np.where(labels == -1, 1, -1)])
        theta = np.linalg.solve(products[:, :-1] + RIDGE * np.eye(F.shape[1]), products[:, -1])
        return [each @ theta for each in self.features]


def standard(scores):
    return (scores - scores.mean()) / (scores.std() + 1e-9)


def fourier(F, slopes, shifts):
    waves = np.sqrt(2 / FEATURES) * np.cos(F @ slopes + shifts)
    return np.column_stack([waves, 0.3 * F / np.sqrt(F.shape[1]), np.ones(len(F))])


# --- orders: (table, scores, threshold, labels, rng) -> ten rows ---------------------------------


def ranked(scores, labels):
    """The rows without a label, the most anomalous first."""
    free = np.flatnonzero(labels == 0)
    return free[np.argsort(-scores[free], kind="stable")]


def with_random(chosen, labels, rng):
    """Ten rows: the chosen ones, filled up at random."""
    rest = np.setdiff1d(np.flatnonzero(labels == 0), chosen)
    return np.append(chosen, rng.choice(rest, BATCH - len(chosen), replace=False)).astype(int)


def by_chance(table, scores, threshold, labels, rng):
    return with_random([], labels, rng)


def from_the_top(table, scores, threshold, labels, rng):
    return ranked(scores, labels)[:BATCH]


def upper(table, scores, threshold, labels, rng, share):
    """Eight of ten at random from the upper part of the ranking: what is surely normal is left."""
    order = ranked(scores, labels)
    part = order[: max(BATCH, int(share * len(order)))]
    return with_random(rng.choice(part, 8, replace=False), labels, rng)


def harmonic(table, scores, threshold, labels, rng):
    """Five of ten with chances 1 / (rank + 10): many from the top, some from everywhere."""
    order = ranked(scores, labels)
    chances = 1 / (np.arange(len(order)) + 10)
    drawn = rng.choice(order, 5, replace=False, p=chances / chances.sum())
    return with_random(drawn, labels, rng)


def layers(table, scores, threshold, labels, rng):
    """One from each of ten layers of the ranking, thin at the top and thick below."""
    order = ranked(scores, labels)
    edges = np.array([0, 0.015, 0.03, 0.06, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])
    cuts = np.round(edges * len(order)).astype(int)
    return np.array([rng.choice(order[a:b]) for a, b in pairwise(cuts)])


def disputed(table, scores, threshold, labels, rng, start=by_chance, ranks=False):
    """Chances by the variance of three fits, each to half of the labels of each kind."""
    if min((labels == 1).sum(), (labels == -1).sum()) < 2:
        return start(table, scores, threshold, labels, rng)
    votes = []
    for _ in range(3):
        half = labels.copy()
        for kind in (1, -1):
            some = rng.permutation(np.flatnonzero(labels == kind))
            half[some[: len(some) // 2]] = 0
        own = table.fit(half)[0]
        votes.append(own.argsort().argsort() / len(own) if ranks else own)
    free = np.flatnonzero(labels == 0)
    chances = np.var(votes, axis=0)[free] + 1e-12
    return rng.choice(free, BATCH, replace=False, p=chances / chances.sum())


def knowing(table, scores, threshold, labels, rng, anomalies):
    """So many anomalies, drawn at random from all of them, and normals drawn at random."""
    free = np.flatnonzero(labels == 0)
    there = free[table.truth[free] == -1]
    drawn = rng.choice(there, min(anomalies, len(there)), replace=False)
    normal = rng.choice(free[table.truth[free] == 1], BATCH - len(drawn), replace=False)
    return np.append(drawn, normal)


ORDERS = {
    "random": by_chance,
    "suggested": suggested,
    "top": from_the_top,
    "upper half": partial(upper, share=0.5),
    "upper 30 %": partial(upper, share=0.3),
    "upper 15 %": partial(upper, share=0.15),
    "harmonic": harmonic,
    "layers": layers,
    "disputed": disputed,
    "disputed ranks": partial(disputed, ranks=True),
    "layers, then disputed": partial(disputed, start=layers),
    "harmonic, then disputed": partial(disputed, start=harmonic),
    "knowing: 3 of 10 anomalies": partial(knowing, anomalies=3),
    "knowing: 5 of 10 anomalies": partial(knowing, anomalies=5),
}


# --- what they need ------------------------------------------------------------------------------


def judged(table, choose, seed):
    """The AUC after each ten labels, and how many anomalies were found."""
    labels, rng = np.zeros(len(table.truth), dtype=int), np.random.default_rng(seed)
    scores, threshold, auc = table.fit(labels)
    curve = [auc]
    for _ in range(ROUNDS):
        chosen = choose(table, scores, threshold, labels, rng)
        labels[chosen] = table.truth[chosen]
        scores, threshold, auc = table.fit(labels)
        curve.append(auc)
    to95, to80 = (needed(curve, share * table.best) for share in (0.95, 0.8))
    return [to95, to80, np.mean(curve[1:]), (labels == -1).sum()]


def beside(values, base):
    gaps = values - base
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return {"mean": float(gaps.mean()), "standard error": error}


def half(stored, names):
    """What each order needs, by tables, each the mean of its splits."""
    found = {order: [] for order in ORDERS}
    for name in names:
        X, y = stored[f"{name}|X"], stored[f"{name}|y"]
        seeds = [[split, zlib.crc32(name.encode())] for split in range(SPLITS)]
        tables = [QuickTable(X, y, np.random.default_rng(seed)) for seed in seeds]
        for order, choose in ORDERS.items():
            pairs = zip(tables, seeds, strict=True)
            found[order].append(np.mean([judged(t, choose, s) for t, s in pairs], axis=0))
        print(name, file=sys.stderr, flush=True)
    columns = ("labels to 95 %", "labels to 80 %", "mean AUC")
    result = {"tables": len(names)}
    for order, rows in found.items():
        values, base = np.array(rows), np.array(found["random"])
        result[order] = {
            name: {
                "mean": float(values[:, j].mean()),
                "beside random": beside(values[:, j], base[:, j]),
            }
            for j, name in enumerate(columns)
        } | {"anomalies found": float(values[:, 3].mean())}
    return result


def rounded(found):
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    return round(found, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--tables", dest="n", type=int, default=HALF, help="Of each half.")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    stored = np.load(told.tables)
    names = sorted({name.partition("|")[0] for name in stored.files})
    np.random.default_rng(0).shuffle(names)
    names = [n for n in names if (stored[f"{n}|y"] == 1).sum() >= FEWEST_ANOMALIES]
    parts = {"chosen on": names[: told.n], "confirmed on": names[HALF : HALF + told.n]}
    found = rounded({part: half(stored, some) for part, some in parts.items()})
    print(json.dumps(found, indent=1))
    if told.out is not None:
        told.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
