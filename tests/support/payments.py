"""Payments whose anomalies are odd only for the customer that they are of."""

import numpy as np
import polars as pl

from riskad.core.labels import ANOMALY, NORMAL

_CUSTOMERS, _ROWS, _SHOPS, _RATE = 300, 6_000, 12, 0.05


def draw_payments(seed: int) -> tuple[pl.DataFrame, pl.Series, np.ndarray]:
    """Return payments, the customer of each, and which of them are anomalies."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(2.0, size=_CUSTOMERS)  # some pay often, some hardly ever
    customer = rng.choice(_CUSTOMERS, _ROWS, p=weights / weights.sum())
    truth = np.where(rng.random(_ROWS) < _RATE, ANOMALY, NORMAL).astype(np.int16)
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
