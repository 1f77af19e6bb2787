"""How well the anomaly rate is found on Gaussian mixtures, where it is known.

500 labelled normals, 50 labelled anomalies, 10,000 unlabelled rows, 5 columns; anomalies lie 3
standard deviations from the normals. The unlabelled rows are drawn from the mixture, so that their
own rate varies about the one that is to be found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.app.anomaly_rate import estimate_prior
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.studies import Record
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes
from riskad.datasets import Dataset, DatasetSource

__all__ = ["Mixture", "measure", "report"]

_SIZES = {NORMAL: 500, ANOMALY: 50, UNLABELLED: 10_000}
_N_COLUMNS, _DISTANCE = 5, 3.0


@dataclass(frozen=True)
class Mixture(DatasetSource):
    """Rows from the mixture, with the truth; each trial of the study draws rows of its own."""

    def load(self) -> Dataset:
        """Draw a sample, a tenth of it anomalous."""
        rng = np.random.default_rng(0)
        y = LabelCodes.of(np.where(rng.random(1_000) < 0.1, ANOMALY, NORMAL).astype(np.int8))
        return Dataset(self.name, _rows(rng, y == ANOMALY), y)


def _rows(rng: np.random.Generator, anomalous: np.ndarray) -> np.ndarray:
    shift = _DISTANCE / np.sqrt(_N_COLUMNS)
    return rng.standard_normal((len(anomalous), _N_COLUMNS)) + shift * anomalous[:, None]


def draw(rate: float, seed: int) -> tuple[np.ndarray, LabelCodes]:
    """Return rows and labels, the unlabelled rows anomalous with probability `rate`."""
    rng = np.random.default_rng(seed)
    y = LabelCodes.of(np.repeat(np.array([*_SIZES], dtype=np.int8), [*_SIZES.values()]))
    anomalous = (y == ANOMALY) | ((y == UNLABELLED) & (rng.random(len(y)) < rate))
    return _rows(rng, np.asarray(anomalous)), y


def measure(cell: Cell) -> dict[str, Any]:
    """Return the estimate from one draw; draws of different rates share nothing."""
    rate, method = cell.settings["rate"], cell.settings["method"]
    X, y = draw(rate, seed_of(cell.root, "mixture", str(rate), cell.trial))
    start = time.perf_counter()
    estimate = estimate_prior(X, y, method=method)
    return {
        "estimate": float(estimate.pi_n),
        "interval": [float(end) for end in estimate.interval],
        "seconds": time.perf_counter() - start,
    }


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return errors and coverage over the draws, by method and rate."""
    found: dict[str, dict[str, Any]] = {}
    places = dict.fromkeys((row["settings"]["method"], row["settings"]["rate"]) for row in rows)
    for method, rate in places:
        wanted = {"method": method, "rate": rate}
        own = [row for row in rows if row["settings"] == wanted]
        found.setdefault(method, {})[str(rate)] = _of_draws(own, rate)
    return {"draws": 1 + max(row["trial"] for row in rows), "of": found}


def _of_draws(rows: Sequence[Record], rate: float) -> dict[str, float]:
    errors = np.array([row["estimate"] - rate for row in rows])
    ends = np.array([row["interval"] for row in rows])
    covered = (ends[:, 0] <= rate) & (rate <= ends[:, 1])
    return {
        "mean_absolute_error": float(np.abs(errors).mean().round(4)),
        "bias": float(errors.mean().round(4)),
        "coverage": float(covered.mean().round(4)),
        "mean_width": float((ends[:, 1] - ends[:, 0]).mean().round(4)),
        "seconds": round(float(np.mean([row["seconds"] for row in rows])), 3),
    }
