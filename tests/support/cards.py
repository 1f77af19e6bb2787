"""Payments by card, some labelled, and the options that fit them quickly."""

import numpy as np
import polars as pl

import riskad

LABELS = {"label": "label", "normal": "ok", "anomaly": "fraud"}
LABELLED = ["--label", "label", "--normal", "ok", "--anomaly", "fraud"]
SHALLOW = [*LABELLED, "--model", "shallow"]  # fast; the default and all others have their own tests
FIT = [*SHALLOW, "--lam", "tight"]  # which cross-validation would choose here, too

# A rule in a file of the known harmless, of a name, a condition and a last day.
RULE = """
[[rule]]
name = "{}"
where = "{}"
reason = "we know"
by = "Ann"
until = {}
"""


def draw_cards(n, seed=0, labelled=0.3, usual=(30, 10), odd=(90, 10)):
    """Cards with the means and deviations of amounts, and which of them are fraud."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.1
    known = rng.random(n) < labelled
    table = pl.DataFrame(
        {
            "card": [f"C{i}" for i in range(n)],
            "amount": np.where(fraud, rng.normal(*odd, n), rng.normal(*usual, n)).round(2),
            "country": np.where(fraud, rng.choice(["XX", "FR"], n), "FR"),
            "age": rng.normal(50, 10, n).round(),
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
    )
    return table, fraud


def make_cards(n=300, seed=0, labelled=0.3):
    """Cards with names that are texts of digits."""
    cards = draw_cards(n, seed, labelled)[0].drop("age")
    return cards.with_columns(card=pl.Series([f"{i:05}" for i in range(n)]))


def make_aged_cards(n, seed=0):
    """Cards in any order, some of an unknown age."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.1
    country = np.where(fraud, rng.integers(0, 3, n), rng.integers(0, 2, n))
    return pl.DataFrame(
        {
            "card": rng.permutation(n),
            "amount": np.where(fraud, rng.normal(90, 10, n), rng.normal(30, 10, n)).round(3),
            "age": pl.Series(rng.normal(40, 9, n)).set(pl.Series(rng.random(n) < 0.1), None),
            "country": np.array(["FR", "DE", "XX"])[country],
            "label": np.where(rng.random(n) < 0.3, np.where(fraud, "fraud", "ok"), ""),
        }
    )


def cards_with_gaps():
    """New cards, with blanks and a column that no model knows."""
    cards = make_cards(90, seed=1).drop("label")
    row = pl.int_range(pl.len())
    amount = pl.when(row % 7 != 0).then("amount")
    return cards.with_columns(amount=amount, when=row)


def fit_cards():
    """A model of cards that is fitted quickly."""
    options = {"id": "card", "model": "shallow", "settings": {"lam": 0.01}}
    return riskad.fit_table(make_cards(), **LABELS, **options).model
