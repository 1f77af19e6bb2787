"""What theory promises, where the truth is known: bounds, and estimates of the anomaly rate.

`bounds`: normal rows and anomalies sit on 40 points of the unit disc, so that true risks are finite
sums; rows are drawn, and the minimiser of the estimated risk is sought among 2,000 linear scores
<w, x> with ||w|| <= 2. Each bound is compared with what it bounds:

- deviation (Proposition 1): |R^(g) - R(g)| of one score;
- spread: sup (R - R^) + sup (R^ - R) over the class, what the proofs of Theorems 2 and 3 bound;
- estimation error (Theorems 2 and 3): R(g^) - R(g*).

Coverage is the share of draws in which a bound holds; tightness is the bound divided by the
(1 - delta) quantile of what it bounds; the summary has the least, the median and the largest.

`mixtures` has the anomaly rate of Gaussian mixtures, in which anomalies lie 3 standard deviations
from the normals; `priors` has that of the paper's sets, where the truth is the rate among the rows
without label, and the fixed 0.2 of the paper stands beside the estimates.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.datasets import PAPER_SETS, make_split
from experiments.runner import Cell, Experiment, seed_of
from experiments.studies.rate_methods import METHODS, estimate_by
from experiments.summaries import DATA, Row, commits, grid, group, json_page, mean, rounded
from riskad import InputError
from riskad.core.bounds import deviation, estimation_error
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, LabelCounts
from riskad.core.losses import LOSSES
from riskad.core.risks import Risk, get_risk
from riskad.core.score_classes import LinearClass

# --- bounds --------------------------------------------------------------------------------

_C_W, _C_X, _PRIOR, _A, _DELTA = 2.0, 1.0, 0.8, 0.1, 0.05
_N_POINTS, _N_SCORES, _DRAWS = 40, 2000, 1000
_LOSSES = ("hinge", "double_hinge", "squared", "modified_huber", "logistic", "sigmoid", "ramp")
_ROW_COUNTS = (
    *itertools.product((50, 500, 5000), (5, 50, 500), (10_000,)),
    *((500, 50, n_u) for n_u in (100, 1000, 100_000)),
)
_COMPARED = ("deviation", "deviation, sharper", "spread", "estimation error")


def bound_cells() -> Iterator[Cell]:
    """Risks, losses and counts of rows."""
    for risk, loss, counts in itertools.product(("rad", "nnrad"), _LOSSES, _ROW_COUNTS):
        names = ("normal", "anomaly", "unlabelled")
        yield Cell(method="bounds", risk=risk, loss=loss, **dict(zip(names, counts, strict=True)))


class World:
    """A distribution on points of the disc, and a symmetric class of scores."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        X = _in_disc(rng, _N_POINTS)
        tilt = np.exp(3 * X[:, 0])
        p, n = tilt / tilt.sum(), (1 / tilt) / (1 / tilt).sum()
        self.shares = {NORMAL: p, ANOMALY: n, UNLABELLED: _PRIOR * p + (1 - _PRIOR) * n}
        W = _C_W * _in_disc(rng, _N_SCORES // 2)
        self.scores = np.vstack([W, -W]) @ X.T

    def true_risk(self, loss: str) -> np.ndarray:
        """R(g) of each score."""
        value = LOSSES[loss].value
        as_normal = value(self.scores) @ self.shares[NORMAL]
        return _PRIOR * as_normal + (1 - _PRIOR) * value(-self.scores) @ self.shares[ANOMALY]

    def estimates(
        self, risk: Risk, counts: LabelCounts, draws: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Estimated risks, a row for each draw and a column for each score."""
        n = {NORMAL: counts.normal, ANOMALY: counts.anomaly, UNLABELLED: counts.unlabelled}
        seen = {k: rng.multinomial(n[k], self.shares[k], draws) / n[k] for k in n}
        losses = {sign: risk.loss.value(sign * self.scores).T for sign in (1, -1)}
        total, guarded = np.zeros((2, draws, len(self.scores)))
        for term in risk.terms():
            part = guarded if risk.guarded and term.guarded else total
            part += term.weight * seen[term.kind] @ losses[term.sign]
        return total + np.maximum(guarded, 0)


def _in_disc(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.standard_normal((n, 2))
    return x / np.linalg.norm(x, axis=1)[:, None] * np.sqrt(rng.random((n, 1)))


def run_bound(cell: Cell) -> dict[str, Any]:
    """Return coverage and tightness of each bound, and what decides that of Theorem 2 or 3."""
    world, counts = World(seed=0), LabelCounts(cell["normal"], cell["anomaly"], cell["unlabelled"])
    risk = get_risk(cell["risk"], cell["loss"], a=_A, prior=_PRIOR)
    truth = world.true_risk(cell["loss"])
    error = world.estimates(risk, counts, _DRAWS, np.random.default_rng(1)) - truth
    near = deviation(risk, counts, _C_W, delta=_DELTA)
    far = estimation_error(risk, counts, LinearClass(_C_W, _C_X), delta=_DELTA)
    excess = truth[(error + truth).argmin(axis=1)] - truth.min()
    bounded = {
        "deviation": (np.abs(error[:, 0]), near.value),
        "deviation, sharper": (np.abs(error[:, 0]), near.sharper),
        "spread": (error.max(axis=1) - error.min(axis=1), far.value),
        "estimation error": (excess, far.value),
    }
    metrics: dict[str, Any] = {"vacuous": far.vacuous, "largest term": far.by_kind.largest}
    for name, (values, bound) in bounded.items():
        metrics |= {f"{name}: {key}": v for key, v in compare(values, bound).items()}
    return metrics


def compare(values: np.ndarray, bound: float) -> dict[str, float | None]:
    """Return a bound beside the values that it is to bound."""
    quantile = float(np.quantile(values, 1 - _DELTA))
    return {
        "bound": round(bound, 5),
        "quantile": round(quantile, 5),
        "coverage": float((values <= bound).mean()),
        # Where most draws find the best of the 2,000 scores itself there is nothing to divide by.
        "tightness": round(bound / quantile, 2) if quantile > 0 else None,
    }


def bound_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the least coverage and the range of tightness of each bound, over all cells."""
    summary: dict[str, Any] = {}
    for name in _COMPARED:
        tight = [row[f"{name}: tightness"] for row in rows if row[f"{name}: tightness"] is not None]
        summary[name] = {
            "least coverage": min(row[f"{name}: coverage"] for row in rows),
            "tightness": [min(tight), round(float(np.median(tight)), 2), max(tight)],
        }
    summary["vacuous"] = f"{sum(row['vacuous'] for row in rows)} of {len(rows)}"
    settings = {"a": _A, "prior": _PRIOR, "delta": _DELTA, "C_w": _C_W, "C_x": _C_X}
    return {"settings": settings | {"draws": _DRAWS}, "summary": summary}


# --- the anomaly rate of mixtures ------------------------------------------------------------

_SIZES = {NORMAL: 500, ANOMALY: 50, UNLABELLED: 10_000}
_N_COLUMNS, _DISTANCE = 5, 3.0
_RATES = (0.02, 0.05, 0.1, 0.2, 0.4)


def draw_mixture(rate: float, seed: int) -> tuple[np.ndarray, Codes]:
    """Return rows and labels, the unlabelled rows anomalous with probability `rate`."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.array([*_SIZES], dtype=np.int16), [*_SIZES.values()])
    anomalous = np.asarray((y == ANOMALY) | ((y == UNLABELLED) & (rng.random(len(y)) < rate)))
    shift = _DISTANCE / np.sqrt(_N_COLUMNS)
    return rng.standard_normal((len(y), _N_COLUMNS)) + shift * anomalous[:, None], y


def run_mixture(cell: Cell) -> dict[str, Any]:
    """Return the estimate from one draw; draws of different rates share nothing."""
    X, y = draw_mixture(cell["rate"], seed_of(0, "mixture", str(cell["rate"]), cell["trial"]))
    start = time.perf_counter()
    estimate, low, high = estimate_by(cell["method"], X, y)
    seconds = time.perf_counter() - start
    return {"estimate": estimate, "low": low, "high": high, "seconds": seconds}


def mixture_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return errors and coverage over the draws, by method and rate."""
    figures: dict[str, Any] = {}
    for (method, rate), draws in group(rows, "method", "rate").items():
        errors = np.array([row["estimate"] - rate for row in draws])
        low, high = (np.array([row[end] for row in draws]) for end in ("low", "high"))
        figures.setdefault(method, {})[str(rate)] = {
            "mean_absolute_error": np.abs(errors).mean(),
            "bias": errors.mean(),
            "coverage": ((low <= rate) & (rate <= high)).mean(),
            "mean_width": (high - low).mean(),
            "seconds": mean(draws, "seconds"),
        }
    return rounded({"draws": 1 + max(row["trial"] for row in rows), "of": figures})


# --- the anomaly rate of the paper's sets ----------------------------------------------------

_ROOT, _FIXED = 7, 0.2


def run_prior(cell: Cell) -> dict[str, Any]:
    """Return each method's error, and whether its interval holds the truth."""
    split = make_split(cell["dataset"], cell["trial"], _ROOT)
    labelled, tested = ((y == ANOMALY).sum() for y in (split.y_train, split.truth_test))
    n_rows, unlabelled = len(split.y_train) + len(split.truth_test), split.y_train == UNLABELLED
    rate = float((round(split.anomaly_rate * n_rows) - tested - labelled) / unlabelled.sum())
    metrics = {"rate": rate, "n_anomaly": int(labelled), "error fixed": abs(_FIXED - rate)}
    for method in METHODS:
        try:
            estimate, low, high = estimate_by(method, split.X_train, split.y_train)
        except InputError:  # labels are too few for the method
            estimate, low, high = estimate_by("auto", split.X_train, split.y_train)
        metrics[f"error {method}"] = abs(estimate - rate)
        metrics[f"covered {method}"] = float(low <= rate <= high)
    return metrics


def prior_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean errors and coverage, over all sets and by set."""
    sets: dict[str, Any] = {
        name: {
            "rate": mean(trials, "rate"),
            "labelled_anomalies": [row["n_anomaly"] for row in trials],
            "error": {each: mean(trials, f"error {each}") for each in ("fixed", *METHODS)},
            "coverage": {each: mean(trials, f"covered {each}") for each in METHODS},
        }
        for name, trials in group(rows, "dataset").items()
    }
    means = {
        what: {name: mean([each[what] for each in sets.values()], name) for name in first}
        for what, first in next(iter(sets.values())).items()
        if what in ("error", "coverage")
    }
    trials = 1 + max(row["trial"] for row in rows)
    return rounded({"trials": trials, "mean": means, "of": sets, "commits": commits(rows)})


EXPERIMENTS = (
    Experiment(
        name="bounds",
        title="How often the paper's bounds hold, and how loose they are",
        cells=bound_cells,
        run_cell=run_bound,
        report=json_page("bounds.json", bound_figures),
        folder="theory",
        minutes="some minutes",
    ),
    Experiment(
        name="mixtures",
        title="How well the anomaly rate is estimated on Gaussian mixtures",
        cells=grid(trial=range(200), method=METHODS[1:], rate=_RATES),
        run_cell=run_mixture,
        report=json_page("priors.json", mixture_figures, key="mixtures"),
        folder="theory",
        minutes="10 minutes",
    ),
    Experiment(
        name="priors",
        title="How well the anomaly rate is estimated on the paper's sets",
        cells=grid(trial=range(3), dataset=PAPER_SETS),
        run_cell=run_prior,
        report=json_page("priors.json", prior_figures, key="sets"),
        folder="theory",
        needs=DATA,
        minutes="2 minutes",
    ),
)
