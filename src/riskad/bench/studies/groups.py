"""What comparing rows within their group is worth where nothing else can help.

Payments of 300 customers: an amount and an hour that vary about the customer's own, and a shop out
of the few that the customer goes to. An anomaly is a payment of one customer on another's account:
its cells are those of a normal row, so that all that is odd is whose they are. 5 % of the rows are
anomalies, among the unlabelled ones too; 10 % of the training rows are labelled.

`plain` is `AutoRAD` on the columns, `codes` with a number for each customer besides (how many rows
the customer has, and an arbitrary one), and `compared` with the columns of `GroupComparison`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import roc_auc_score

from riskad.bench.experiment import Cell, seed_of
from riskad.bench.studies import Record
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes
from riskad.datasets import Dataset, DatasetSource
from riskad.detectors.auto import AutoRAD
from riskad.tables.groups import GroupComparison

__all__ = ["Payments", "draw", "measure", "report"]

_CUSTOMERS, _ROWS, _SHOPS = 300, 6_000, 12
_RATE, _LABELLED, _TEST = 0.05, 0.1, 1 / 3


@dataclass(frozen=True)
class Payments(DatasetSource):
    """Payments, with the truth; each trial of the study draws rows of its own."""

    def load(self) -> Dataset:
        """Draw the numbers of a sample."""
        rows, _, truth = draw(0)
        return Dataset(self.name, rows.select("amount", "hour").to_numpy(), LabelCodes.of(truth))


def draw(seed: int) -> tuple[pl.DataFrame, pl.Series, np.ndarray]:
    """Return payments, the customer of each, and which of them are anomalies."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(2.0, size=_CUSTOMERS)  # some pay often, some hardly ever
    customer = rng.choice(_CUSTOMERS, _ROWS, p=weights / weights.sum())
    truth = np.where(rng.random(_ROWS) < _RATE, ANOMALY, NORMAL).astype(np.int8)
    another = (customer + rng.integers(1, _CUSTOMERS, _ROWS)) % _CUSTOMERS
    payer = np.where(truth == ANOMALY, another, customer)
    level, hour = rng.normal(3.5, 1.0, _CUSTOMERS), rng.uniform(6, 22, _CUSTOMERS)
    tastes = rng.dirichlet(np.full(_SHOPS, 0.3), _CUSTOMERS).cumsum(axis=1)
    shop = (rng.random((_ROWS, 1)) > tastes[payer]).sum(axis=1).clip(max=_SHOPS - 1)
    rows = pl.DataFrame(
        {
            "amount": np.exp(rng.normal(level[payer], 0.4)).round(2),
            "hour": np.mod(rng.normal(hour[payer], 1.5), 24).round(2),
            "shop": [f"shop {place}" for place in shop],
        }
    )
    return rows, pl.Series("customer", [f"customer {place}" for place in customer]), truth


def measure(cell: Cell) -> dict[str, Any]:
    """Return the AUC on test rows of one draw, with what the cell adds to the columns."""
    rows, customers, truth = draw(seed_of(cell.root, "payments", cell.trial))
    rng = np.random.default_rng(seed_of(cell.root, "payments", cell.trial, "split"))
    test = rng.random(_ROWS) < _TEST
    y = np.where(rng.random(_ROWS) < _LABELLED, truth, UNLABELLED)[~test]
    X = _matrix(rows, customers, test, cell.settings["adds"])
    model = AutoRAD(random_state=cell.trial).fit(X[~test], y)
    return {
        "auc": float(roc_auc_score(truth[test] == ANOMALY, model.anomaly_score(X[test]))),
        "labelled_anomalies": int((y == ANOMALY).sum()),
    }


def _matrix(rows: pl.DataFrame, customers: pl.Series, test: np.ndarray, adds: str) -> np.ndarray:
    """The rows as numbers; what is added is learned from training rows alone."""
    plain = rows.to_dummies("shop").to_numpy().astype(float)
    if adds == "compared":
        return np.hstack([plain, _compared(rows, customers, test)])
    if adds == "codes":
        own = customers.rank("dense").to_numpy()
        often = np.bincount(own[~test], minlength=own.max() + 1)[own]
        return np.column_stack([plain, own, often])
    return plain


def _compared(rows: pl.DataFrame, customers: pl.Series, test: np.ndarray) -> np.ndarray:
    known = rows.filter(~test), customers.filter(pl.Series(~test))
    comparison = GroupComparison.learn(*known)
    found = np.empty((rows.height, rows.width))
    found[~test] = comparison.training_features(*known)
    found[test] = comparison.features(rows.filter(test), customers.filter(pl.Series(test)))
    return found


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return the AUC by what was added: mean, lowest and highest over the draws, and each."""
    found = {}
    for adds in dict.fromkeys(row["settings"]["adds"] for row in rows):
        own = sorted((r for r in rows if r["settings"]["adds"] == adds), key=lambda r: r["trial"])
        aucs = [round(row["auc"], 4) for row in own]
        mean = round(float(np.mean(aucs)), 4)
        found[adds] = {"mean": mean, "low": min(aucs), "high": max(aucs), "auc": aucs}
    return {"draws": 1 + max(row["trial"] for row in rows), "of": found}
