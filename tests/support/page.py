"""Tables for the report: cards, and cards whose every text is hostile."""

from functools import partial

import numpy as np
import polars as pl

from riskad.app import workflow
from riskad.app.workflow import Labels

fit_table = partial(workflow.fit_table, model="shallow")
LABELS = Labels("label", normal=["ok"], anomaly=["fraud"])
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "{{7*7}}${7*7}",
    "</title></style><h1>taken",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "\U0001f469\u200d\U0001f52c",
    "nul\x00bell\x07",
    "x" * 5_000,
]


def make_cards(n=400, seed=0, labelled=0.3):
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.1
    amount = np.where(fraud, rng.normal(70, 15, n), rng.normal(30, 15, n))
    known = rng.random(n) < labelled
    return pl.DataFrame(
        {
            "card": [f"C{i}" for i in range(n)],
            "amount": amount.round(2),
            "age": rng.normal(50, 10, n).round(),
            "country": np.where(fraud, rng.choice(["XX", "FR"], n), "FR"),
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
    )


def make_hostile(n=400):
    """Cards in which names of columns, values, rows and labels are hostile."""
    cards = make_cards(n)
    rng = np.random.default_rng(1)
    odd = rng.choice(HOSTILE, n)
    return cards.with_columns(
        pl.Series(HOSTILE[0], np.where(cards["country"] == "XX", odd, HOSTILE[1])),
        pl.Series(HOSTILE[1], cards["amount"] * 2),
        pl.Series(HOSTILE[3], [HOSTILE[2]] * n),
        pl.Series("card", [f"{name}{i}" for i, name in enumerate(odd)]),
    ).rename({"amount": HOSTILE[7]})
