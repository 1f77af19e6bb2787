"""How the rules for lambda rank held-out rows: theorem, tight, cross-validated.

70 % of the rows are for training, some of them labelled; the AUC is that on the others. Two ways of
labelling: 5 % of the training rows at random, as in the paper ("5 %"), and a fixed number of
anomalies with ten times as many normals ("2 + 20"). Splits are this study's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import ShallowRAD
from riskad.bench.experiment import Cell
from riskad.bench.studies import Record
from riskad.bench.trial import dataset_of
from riskad.core.labels import ANOMALY, NORMAL, LabelCodes
from riskad.datasets import read_source

__all__ = ["measure", "report"]

_RULES = ("theorem", "tight", "cv")
_SHARE = "5 %"


def measure(cell: Cell) -> dict[str, Any]:
    """Return the AUC of each rule on the held-out rows of one split."""
    data = dataset_of(cell.source or read_source(cell.dataset))
    rng = np.random.default_rng(cell.trial)
    train, test = np.split(rng.permutation(len(data.y)), [int(0.7 * len(data.y))])
    y = _labels(data.y[train], cell.settings["budget"], rng)
    X_train, X_test = data.parts(train, test)
    aucs = {}
    for rule in _RULES:
        model = ShallowRAD(lam=rule).fit(X_train, y)
        aucs[rule] = float(roc_auc_score(data.y[test], model.score_samples(X_test)))
    return {"auc": aucs}


def _labels(truth: np.ndarray, budget: str, rng: np.random.Generator) -> np.ndarray:
    """Codes for the training rows, with at least two labelled rows of each kind."""
    if budget != _SHARE:
        n_anomalies, n_normals = map(int, budget.split(" + "))
        order = rng.permutation(len(truth))
        codes = LabelCodes.of(np.zeros(len(truth), dtype=np.int8))
        for kind, count in ((ANOMALY, n_anomalies), (NORMAL, n_normals)):
            codes[order[truth[order] == kind][:count]] = kind
        return codes
    while True:
        codes = LabelCodes.of(np.where(rng.random(len(truth)) < 0.05, truth, 0).astype(np.int8))
        if min((codes == ANOMALY).sum(), (codes == NORMAL).sum()) >= 2:
            return codes


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return mean AUCs by budget and rule."""
    budgets = dict.fromkeys(row["settings"]["budget"] for row in rows)
    means = {}
    for budget in budgets:
        own = [row["auc"] for row in rows if row["settings"]["budget"] == budget]
        means[budget] = {rule: round(float(np.mean([a[rule] for a in own])), 4) for rule in _RULES}
    return {
        "sets": sorted({row["dataset"] for row in rows}),
        "trials": 1 + max(row["trial"] for row in rows),
        "auc": means,
    }
