"""Card payments for the tests of reports, and the same with hostile names and values."""

from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import cycle

import numpy as np
import polars as pl

from riskad.app import fit as fitting
from riskad.app.spec import FitSpec

from .cards import draw_cards

# The lambda that cross-validation chooses for these cards, without it.
fit_table = partial(fitting.fit_table, model="shallow", settings={"lam": "tight"})
LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "{{7*7}}${7*7}",
    "</title></style><h1>taken",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "\U0001f469\u200d\U0001f52c",
    "nul\x00bell\x07",
    "x" * 5_000,
    "]]></svg>--><iframe src='javascript:alert(3)'>",
    "javascript:alert(4)",
    "' onmouseover='alert(5)",
    "&lt;b&gt; {% raw %}{{ data }}",
]


def make_cards(n=400, seed=0):
    """Cards whose amounts overlap."""
    return draw_cards(n, seed, usual=(30, 15), odd=(70, 15))[0]


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


def with_words(report, words):
    """A report in which every text there can be is one of `words`, in names of things, too."""
    words = cycle(words)
    named = {name: getattr(report, name) | {next(words): "?"} for name in ("settings", "versions")}
    fitted = report.fitted | {"risk_parts": {next(words): 0.5}}
    fitted["leaderboard"] = [{"member": "?", "weight": 1.0, "auc": 0.9, "seconds": 1.0}]
    full = replace(report, **named, fitted=fitted, warnings=["?"], reading=["?"])
    return _other_words(full, words)


def _other_words(value, words):
    if isinstance(value, str):
        return next(words)
    if isinstance(value, list | tuple):
        return type(value)(_other_words(each, words) for each in value)
    if isinstance(value, dict):
        return {name: _other_words(each, words) for name, each in value.items()}
    if is_dataclass(value):
        # One of a few words of the package itself; the specification is checked.
        ours = ("kind", "rule", "assumption", "spec", "trained_on", "reported", "created")
        names = [each.name for each in fields(value) if each.name not in ours]
        return replace(value, **{name: _other_words(getattr(value, name), words) for name in names})
    return value
