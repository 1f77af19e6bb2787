"""How the rules for lambda rank held-out rows: theorem, tight, cross-validated.

    RISKAD_DATA=... python benchmarks/lambda_rules.py --output results/lambda_rules.json

On the paper's tabular sets that the data folder holds: 70 % of the rows for training, some of them
labelled, AUC on the others. Two ways of labelling: 5 % of the training rows at random, as in the
paper, and a fixed number of anomalies with ten times as many normals.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import DataWarning, ShallowRAD

RULES = ("theorem", "tight", "cv")
BUDGETS = ("5 %", 2, 3, 5, 10)


def tables(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """ADBench's classical sets: name, X, truth in {+1, -1}."""
    for path in sorted(folder.glob("adbench/[0-9]*_*.npz")):
        if not path.stem.startswith("20news"):
            with np.load(path) as data:
                yield path.stem, data["X"].astype(float), np.where(data["y"] == 1, -1, 1)


def label(truth: np.ndarray, budget: str | int, rng: np.random.Generator) -> np.ndarray:
    """Codes for the training rows, with at least two labelled rows of each kind."""
    if isinstance(budget, int):
        order = rng.permutation(len(truth))
        codes = np.zeros(len(truth), dtype=np.int8)
        for kind, count in ((-1, budget), (1, 10 * budget)):
            codes[order[truth[order] == kind][:count]] = kind
        return codes
    while True:
        codes = np.where(rng.random(len(truth)) < 0.05, truth, 0).astype(np.int8)
        if min((codes == -1).sum(), (codes == 1).sum()) >= 2:
            return codes


def trial(X: np.ndarray, truth: np.ndarray, budget: str | int, seed: int) -> list[float]:
    """AUC of each rule on the held-out rows of one split."""
    rng = np.random.default_rng(seed)
    train, test = np.split(rng.permutation(len(X)), [int(0.7 * len(X))])
    y = label(truth[train], budget, rng)
    models = [ShallowRAD(lam=rule).fit(X[train], y) for rule in RULES]
    return [float(roc_auc_score(truth[test], m.score_samples(X[test]))) for m in models]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RISKAD_DATA", "data")))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the means as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)  # constant columns after a split
    sets = list(tables(arguments.data))
    if not sets:
        parser.error(f"no ADBench sets under {arguments.data}; set RISKAD_DATA")
    print(f"mean AUC over {len(sets)} sets x {arguments.trials} trials (modified Huber, a = 0.1)")
    print("labels     " + "".join(f"{rule:>10}" for rule in RULES))
    means = {}
    for budget in BUDGETS:
        aucs = np.array(
            [trial(X, t, budget, seed) for _, X, t in sets for seed in range(arguments.trials)]
        )
        name = budget if isinstance(budget, str) else f"{budget} + {10 * budget}"
        means[name] = dict(zip(RULES, aucs.mean(axis=0).round(4).tolist(), strict=True))
        print(f"{name:<11}" + "".join(f"{auc:10.4f}" for auc in aucs.mean(axis=0)), flush=True)
    if arguments.output:
        record = {"sets": [name for name, *_ in sets], "trials": arguments.trials, "auc": means}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
