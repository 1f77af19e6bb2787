"""Does the network gain if it reads each table several times, in different ways?

    python -m benchmarks.pretraining.readings TABLES.npz results/pretrained/split.json \
        results/pretrained/readings.jsonl
    python -m benchmarks.pretraining.readings --report results/pretrained/readings.jsonl

Kept tables, labels and judged rows are those of `judge`, with 5 % of the labels. The network scores
the rows after each reading by itself, and scores of several readings are averaged. Tables are named
by hashes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from scipy.stats import norm, rankdata
from sklearn.decomposition import PCA
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.pretraining.judge import judged_rows, labels, said
from benchmarks.pretraining.split import name_hash, read_tables, side
from riskad import PretrainedRAD
from riskad.detectors.features import LearnedFeatures

READINGS = ("smooth", "mirrored", "ranks", "components", "plain", "other rows")
"""smooth: columns as `judge` has them. mirrored: every column, or its negative, at random. ranks:
columns made normal. components: principal components. plain: standardised columns. other rows:
another sample of the unlabelled rows."""
AVERAGED = [(name,) for name in READINGS] + [READINGS[:n] for n in (2, 4, 6)]
_COMPONENTS = 20


def readings(X: np.ndarray, seed: int) -> dict[str, tuple[np.ndarray, int]]:
    """What the network is given in each reading, and the seed of its sample of rows."""
    parts = ("columns", "outliers")
    smooth = LearnedFeatures(parts, smooth=True).fit_transform(X)
    columns, outliers = smooth[:, :-2], smooth[:, -2:]
    varying = X[:, X.min(axis=0) < X.max(axis=0)]
    ranks = norm.ppf((rankdata(varying, axis=0) - 0.5) / len(X))
    size = min(_COMPONENTS, *columns.shape)
    components = PCA(size, whiten=True, random_state=0).fit_transform(columns)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], columns.shape[1])
    return {
        "smooth": (smooth, 0),
        "mirrored": (np.hstack([columns * signs, outliers]), 0),
        "ranks": (np.hstack([ranks, outliers]), 0),
        "components": (np.hstack([components, outliers]), 0),
        "plain": (LearnedFeatures(parts).fit_transform(X), 0),
        "other rows": (smooth, 1),
    }


def run(source: str, split: str, output: str) -> None:
    """Go on where the file ends."""
    file = Path(output)
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    done = {line["table"] for line in lines}
    X, y = read_tables(source)
    for seed, name in enumerate(side(split, list(X), "kept")):
        if name_hash(name) in done:
            continue
        codes = labels(y[name], "5%", seed)
        rows = judged_rows(y[name], codes, seed)
        scores = {
            reading: -PretrainedRAD(random_state=sample).fit(F, codes).score_samples(F[rows])
            for reading, (F, sample) in readings(X[name].astype(float), seed).items()
        }
        line = {"table": name_hash(name)}
        for names in AVERAGED:
            mean = np.mean([scores[one] for one in names], axis=0)
            measures = (roc_auc_score, average_precision_score)
            line[" + ".join(names)] = [round(float(m(y[name][rows], mean)), 4) for m in measures]
        with file.open("a") as opened:
            opened.write(json.dumps(line) + "\n")


def report(file: str) -> None:
    """Means, and differences to the first reading with standard errors over tables."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    base = np.array([line[READINGS[0]] for line in lines])
    for names in AVERAGED:
        values = np.array([line[" + ".join(names)] for line in lines])
        print(f"{' + '.join(names):64} {said(values, values - base)}")


if __name__ == "__main__":
    if sys.argv[1] == "--report":
        report(sys.argv[2])
    else:
        run(*sys.argv[1:])
