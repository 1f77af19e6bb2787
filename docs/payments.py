"""Simulated payments, for pages and pictures that need a table."""

from __future__ import annotations

import numpy as np
import polars as pl


def make_payments(n: int = 3000, seed: int = 4, looked_at: float = 0.067) -> pl.DataFrame:
    """Payments of which 6 % are fraud; by default one in fifteen was looked at."""
    rng = np.random.default_rng(seed)
    fraud, known = rng.random(n) < 0.06, rng.random(n) < looked_at
    hour = np.where(fraud, rng.normal(4, 4, n), rng.normal(14, 4, n)) % 24
    abroad = rng.random(n) < np.where(fraud, 0.5, 0.05)
    return pl.DataFrame(
        {
            "payment": [f"P{i:05}" for i in range(1, n + 1)],
            "amount": np.exp(rng.normal(np.where(fraud, 4.7, 3.6), 0.7)).round(2),
            "hour": hour.round(1),
            "country": np.where(abroad, rng.choice(["BR", "SG", "US"], n), "BE"),
            "device_age_days": np.exp(rng.normal(np.where(fraud, 3, 5.5), 1)).round(),
            "attempts": 1 + rng.poisson(np.where(fraud, 1.5, 0.2)),
            "currency": "EUR",
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
    )


def write_payments(n: int = 1200) -> None:
    """Write payments.csv, with customers and days besides, and new.csv without labels."""
    rng = np.random.default_rng(0)
    days = pl.date_range(pl.date(2025, 1, 1), pl.date(2025, 6, 30), eager=True)
    for name, seed in (("payments.csv", 4), ("new.csv", 5)):
        table = make_payments(n, seed, looked_at=0.15).with_columns(
            pl.Series("customer", rng.integers(1, 80, n)).cast(pl.String).str.zfill(4),
            pl.Series("day", days.sample(n, with_replacement=True, seed=seed).sort()),
        )
        (table if name == "payments.csv" else table.drop("label")).write_csv(name)
