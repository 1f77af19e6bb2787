"""How often the paper's bounds hold and how loose they are, where the truth is known.

Normal rows and anomalies sit on 40 points of the unit disc, so that true risks are finite sums;
rows are drawn, and the minimiser of the estimated risk is sought among 2,000 linear scores <w, x>
with ||w|| <= 2. Each bound is compared with what it bounds:

- deviation (Proposition 1): |R^(g) - R(g)| of one score;
- spread: sup (R - R^) + sup (R^ - R) over the class, what the proofs of Theorems 2 and 3 bound;
- estimation error (Theorems 2 and 3): R(g^) - R(g*);
- bias (Proposition 1): E[R^(g)] - R(g), exactly, for losses of two values and few rows.

Coverage is the share of draws in which a bound holds; tightness is the bound divided by the
(1 - delta) quantile of what it bounds: 1 would be perfect. In the summary it is the least, the
median and the largest over all cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from riskad.bench.experiment import Cell
from riskad.bench.studies import Record
from riskad.bench.trial import dataset_of
from riskad.core.bounds import bias, deviation, estimation_error
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts
from riskad.core.losses import LOSSES
from riskad.core.risks import Risk, get_risk
from riskad.core.score_classes import LinearClass
from riskad.datasets import DatasetSource

__all__ = ["Disc", "measure", "measure_bias", "report"]

_C_W, _C_X, _PRIOR, _A, _DELTA = 2.0, 1.0, 0.8, 0.1, 0.05
_N_POINTS, _N_SCORES = 40, 2000
_SEED_OF_POINTS, _SEED_OF_ROWS = 0, 1
_COUNTS = ("normal", "anomaly", "unlabelled")
_COMPARED = ("deviation", "deviation, sharper", "spread", "estimation error")


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
        risk: np.ndarray = (
            _PRIOR * as_normal + (1 - _PRIOR) * value(-self.scores) @ self.shares[ANOMALY]
        )
        return risk

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


@dataclass(frozen=True)
class Disc(DatasetSource):
    """The world from which every cell draws its rows."""

    def load(self) -> World:
        """Place the points, and draw the class of scores."""
        return World(_SEED_OF_POINTS)


def _in_disc(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.standard_normal((n, 2))
    return x / np.linalg.norm(x, axis=1)[:, None] * np.sqrt(rng.random((n, 1)))


def measure(cell: Cell) -> dict[str, Any]:
    """Return coverage and tightness of each bound, and what decides the bound of Theorem 2 or 3."""
    assert cell.source is not None, "this study has a source of its own"
    world: World = dataset_of(cell.source)
    settings = cell.settings
    risk = get_risk(settings["risk"], settings["loss"], a=_A, prior=_PRIOR)
    counts = LabelCounts(*settings["rows"])
    truth = world.true_risk(settings["loss"])
    rng = np.random.default_rng(_SEED_OF_ROWS)
    error = world.estimates(risk, counts, settings["draws"], rng) - truth
    near = deviation(risk, counts, _C_W, delta=_DELTA)
    far = estimation_error(risk, counts, LinearClass(_C_W, _C_X), delta=_DELTA)
    excess = truth[(error + truth).argmin(axis=1)] - truth.min()
    return {
        "deviation": _compare(np.abs(error[:, 0]), near.value),
        "deviation, sharper": _compare(np.abs(error[:, 0]), near.sharper),
        "spread": _compare(error.max(axis=1) - error.min(axis=1), far.value),
        "estimation error": _compare(excess, far.value),
        "vacuous": far.vacuous,
        "largest term": far.by_kind.largest,
    }


def _compare(values: np.ndarray, bound: float) -> dict[str, float | None]:
    quantile = float(np.quantile(values, 1 - _DELTA))
    return {
        "bound": round(bound, 5),
        "quantile": round(quantile, 5),
        "coverage": float((values <= bound).mean()),
        # Where most draws find the best of the 2,000 scores itself there is nothing to divide by.
        "tightness": round(bound / quantile, 2) if quantile > 0 else None,
    }


def measure_bias(cell: Cell) -> dict[str, float]:
    """Return the bias of nnrad where the losses of rows are 0.05 or 1: a sum over two binomials.

    A normal row has loss 1 with probability 0.1, an anomaly taken for normal with 0.9.
    """
    a, prior, n_n, n_u = (cell.settings[name] for name in ("a", "prior", "anomaly", "unlabelled"))
    chance = {NORMAL: 0.1, ANOMALY: 0.9, UNLABELLED: 0.1 * prior + 0.9 * (1 - prior)}
    k_u, k_n = np.arange(n_u + 1)[:, None], np.arange(n_n + 1)
    weight = binom.pmf(k_u, n_u, chance[UNLABELLED]) * binom.pmf(k_n, n_n, chance[ANOMALY])
    guarded = a * (0.05 + 0.95 * k_u / n_u - (1 - prior) * (0.05 + 0.95 * k_n / n_n))
    exact = float((weight * np.maximum(-guarded, 0)).sum())
    risk, rho = get_risk("nnrad", "ramp", a=a, prior=prior), 0.05 + 0.95 * chance[NORMAL]
    bound = bias(risk, LabelCounts(1, n_n, n_u), 1.0, rho=rho).value
    return {"bound": float(bound), "exact": exact, "tightness": round(float(bound) / exact, 2)}


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return what holds over all cells, each cell, and the biases."""
    cells = sorted(
        (_cell(row) for row in rows if "spread" in row),
        key=lambda cell: [cell[name] for name in ("risk", "loss", *_COUNTS)],
    )
    biases = sorted(
        (_bias(row) for row in rows if "exact" in row),
        key=lambda cell: [cell[name] for name in ("prior", "anomaly", "unlabelled")],
    )
    found = {"settings": _settings(rows), "summary": _summary(cells, biases)}
    return found | {"cells": cells, "bias": biases}


def _settings(rows: Sequence[Record]) -> dict[str, Any]:
    draws = sorted({row["settings"]["draws"] for row in rows if "spread" in row})
    constants = {"a": _A, "prior": _PRIOR, "delta": _DELTA, "C_w": _C_W, "C_x": _C_X}
    return constants | {"draws": draws}


def _cell(row: Record) -> dict[str, Any]:
    settings = row["settings"]
    counts = dict(zip(_COUNTS, settings["rows"], strict=True))
    measured = {name: row[name] for name in (*_COMPARED, "vacuous", "largest term")}
    return {"risk": settings["risk"], "loss": settings["loss"], **counts, **measured}


def _bias(row: Record) -> dict[str, float]:
    settings = {name: row["settings"][name] for name in ("prior", "anomaly", "unlabelled")}
    return settings | {name: row[name] for name in ("bound", "exact", "tightness")}


def _summary(cells: Sequence[dict[str, Any]], biases: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Least coverage and the range of tightness of each bound, over all cells."""
    out: dict[str, Any] = {}
    for name in _COMPARED if cells else ():
        tightness = [x for cell in cells if (x := cell[name]["tightness"]) is not None]
        out[name] = {
            "least coverage": min(cell[name]["coverage"] for cell in cells),
            "tightness": _range(tightness) if tightness else None,
        }
    within = sum(0 <= each["exact"] <= each["bound"] for each in biases)
    return out | {
        "vacuous": f"{sum(cell['vacuous'] for cell in cells)} of {len(cells)}",
        "bias": {"within": f"{within} of {len(biases)}"},
    }


def _range(values: Sequence[float]) -> list[float]:
    return [min(values), round(float(np.median(values)), 2), max(values)]
