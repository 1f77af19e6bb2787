"""Payments by card, some labelled, and the options that fit them quickly."""

import numpy as np
import polars as pl

LABELLED = ["--label", "label", "--normal", "ok", "--anomaly", "fraud"]
SHALLOW = [*LABELLED, "--model", "shallow"]  # fast; the default and all others have their own tests
FIT = [*SHALLOW, "--lam", "tight"]  # which cross-validation would choose here, too


def make_cards(n=300, seed=0):
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.1
    known = rng.random(n) < 0.3
    return pl.DataFrame(
        {
            "card": [f"{i:05}" for i in range(n)],
            "amount": np.where(fraud, rng.normal(90, 10, n), rng.normal(30, 10, n)).round(2),
            "country": np.where(fraud, rng.choice(["XX", "FR"], n), "FR"),
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
    )
