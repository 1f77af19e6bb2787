"""How well the anomaly rate is found on the paper's sets.

5 % of the training rows are labelled, as in the paper. The truth is the rate among the rows without
label; beside the estimates stands the fixed 0.2 of the paper. The constants of the estimates were
set while looking at splits of root seed 0; these are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from riskad import InputError
from riskad.app.anomaly_rate import estimate_prior
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.studies import Record, by_dataset
from riskad.bench.trial import dataset_of, split_of
from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.datasets import read_source
from riskad.decisions.anomaly_rate import METHODS, PriorEstimate

__all__ = ["measure", "report"]

_FIXED = 0.2


def measure(cell: Cell) -> dict[str, Any]:
    """Return each method's error, and whether its interval holds the truth."""
    split, rate = split_of(cell), _rate_of_unlabelled(cell)
    errors, covered = {"fixed": abs(_FIXED - rate)}, {}
    for method in METHODS:
        estimate = _estimate_or_auto(split.X_train, split.y_train, method)
        errors[method] = float(abs(estimate.pi_n - rate))
        covered[method] = bool(estimate.interval[0] <= rate <= estimate.interval[1])
    n_anomaly = int((split.y_train == ANOMALY).sum())
    return {"rate": rate, "n_anomaly": n_anomaly, "error": errors, "covered": covered}


def _rate_of_unlabelled(cell: Cell) -> float:
    """The share of anomalies among the training rows without a label."""
    assert cell.test_share is not None
    truth = dataset_of(cell.source or read_source(cell.dataset)).y
    seed = seed_of(cell.root, cell.dataset, cell.trial, "split")
    order = np.random.default_rng(seed).permutation(len(truth))
    train = truth[order[round(cell.test_share * len(truth)) :]]
    return float((train[split_of(cell).y_train == UNLABELLED] == ANOMALY).mean())


def _estimate_or_auto(X: np.ndarray, y: np.ndarray, method: str) -> PriorEstimate:
    """What "auto" says where labels are too few for the method."""
    try:
        return estimate_prior(X, y, method=method)
    except InputError:
        return estimate_prior(X, y)


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return mean errors and coverage, over all sets and by set."""
    found = {name: _of_set(records) for name, records in by_dataset(rows).items()}
    return {
        "trials": 1 + max(row["trial"] for row in rows),
        "mean": {what: _mean_over(found, what) for what in ("error", "coverage")},
        "of": found,
    }


def _of_set(records: Sequence[Record]) -> dict[str, Any]:
    def means(what: str, digits: int) -> dict[str, float]:
        names = records[0][what]
        return {n: round(float(np.mean([r[what][n] for r in records])), digits) for n in names}

    return {
        "rate": round(float(np.mean([record["rate"] for record in records])), 4),
        "labelled_anomalies": [record["n_anomaly"] for record in records],
        "error": means("error", 4),
        "coverage": means("covered", 3),
    }


def _mean_over(found: Mapping[str, Mapping[str, Any]], what: str) -> dict[str, float]:
    names = next(iter(found.values()))[what]
    return {n: round(float(np.mean([own[what][n] for own in found.values()])), 4) for n in names}
