"""Whether the intervals of "rows looked at against anomalies found" hold what is then counted.

2,000 scores, of which one in ten is labelled at random; the share `rate` of them are anomalies.
What is said of the others (`riskad.app.review`) is compared with the truth. Scores of normal rows
are standard normal, those of anomalies

- hard, middling, easy: 0.5, 1.2 and 2.5 higher (AUC 0.64, 0.80, 0.96);
- heavy tails: 1.5 higher, both kinds with Student's distribution of 3 degrees of freedom;
- wide: 1 higher, and with twice the spread;
- half stand out: 4 higher for every second of them, like normal rows otherwise;
- steps: 1.2 higher, and rounded to halves, so that many rows tie.

The straight line of `Calibration.expected_precision` has an interval, too, which is counted beside
at 50 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from riskad.app.review import review_rows
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.peers import NotApplicable
from riskad.bench.studies import Record
from riskad.core.labels import ANOMALY, NORMAL, LabelCodes
from riskad.datasets import Dataset, DatasetSource
from riskad.decisions.calibration import Calibration

__all__ = ["Scores", "draw", "measure", "report"]

_ROWS, _LABELLED = 2_000, 0.1
_KS = (5, 10, 20, 50, 100, 200, 500)
_K_OF_LINE = 50
_SHIFTS = {
    "hard": 0.5,
    "middling": 1.2,
    "easy": 2.5,
    "heavy tails": 1.5,
    "wide": 1.0,
    "half stand out": 4.0,
    "steps": 1.2,
}


@dataclass(frozen=True)
class Scores(DatasetSource):
    """Scores, with the truth; each trial of the study draws its own."""

    def load(self) -> Dataset:
        """Draw a sample."""
        scores, truth, _ = draw("middling", 0.1, 0)
        return Dataset(self.name, scores[:, None], LabelCodes.of(_codes(truth)))


def draw(shape: str, rate: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, which of them are of anomalies, and which are labelled."""
    rng = np.random.default_rng(seed)
    truth, labelled = rng.random(_ROWS) < rate, rng.random(_ROWS) < _LABELLED
    noise = rng.standard_t(3, _ROWS) if shape == "heavy tails" else rng.standard_normal(_ROWS)
    if shape == "wide":
        noise = noise * (1 + truth)
    moved = truth & (rng.random(_ROWS) < 0.5) if shape == "half stand out" else truth
    scores = noise + _SHIFTS[shape] * moved
    return np.round(2 * scores) / 2 if shape == "steps" else scores, truth, labelled


def _codes(truth: np.ndarray) -> np.ndarray:
    return np.where(truth, ANOMALY, NORMAL).astype(np.int8)


def measure(cell: Cell) -> dict[str, Any]:
    """Return what was said and what was counted, for numbers of rows looked at."""
    shape, rate = cell.settings["shape"], cell.settings["rate"]
    scores, truth, labelled = draw(shape, rate, seed_of(cell.root, shape, str(rate), cell.trial))
    codes = np.where(labelled, _codes(truth), 0)
    calibration = Calibration.of(scores, codes, scores, 0.0, label_source="random")
    review = review_rows(calibration, calibration.unlabelled)
    if review is None:
        raise NotApplicable("it takes two labelled rows of each kind.")
    order = np.argsort(scores[~labelled])
    true = truth[~labelled][order]
    counted = np.cumsum(true[::-1])
    found = [review.at(k).found for k in _KS]
    line = calibration.expected_precision(k=_K_OF_LINE)
    precision = review.average_precision()
    return {
        "counted": [int(counted[k - 1]) for k in _KS],
        "said": [[f.value, f.low, f.high] for f in found],
        "line": None if line is None else [_K_OF_LINE * line.low, _K_OF_LINE * line.high],
        "average_precision": [precision.value, precision.low, precision.high],
        "true_average_precision": float(average_precision_score(true, calibration.unlabelled)),
    }


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return the coverage over the draws, by shape and rate."""
    places = dict.fromkeys((row["settings"]["shape"], row["settings"]["rate"]) for row in rows)
    found: dict[str, dict[str, Any]] = {}
    for shape, rate in places:
        own = [r for r in rows if r["settings"] == {"shape": shape, "rate": rate}]
        found.setdefault(shape, {})[str(rate)] = _of_draws(own)
    return {"rows_looked_at": list(_KS), "of": found}


def _of_draws(rows: Sequence[Record]) -> dict[str, Any]:
    said, counted = (np.array([row[name] for row in rows], float) for name in ("said", "counted"))
    line = np.array([row["line"] for row in rows], float)
    at_line = counted[:, _KS.index(_K_OF_LINE)]
    ap = np.array([row["average_precision"] for row in rows])
    true = np.array([row["true_average_precision"] for row in rows])
    inside = (said[..., 1] <= counted) & (counted <= said[..., 2])
    by_line = (line[:, 0] <= at_line) & (at_line <= line[:, 1])
    return {
        "draws": len(rows),
        "coverage": inside.mean(axis=0).round(3).tolist(),
        "coverage_of_line": round(float(by_line.mean()), 3),
        "width": (said[..., 2] - said[..., 1]).mean(axis=0).round(1).tolist(),
        "counted": counted.mean(axis=0).round(1).tolist(),
        "said": said[..., 0].mean(axis=0).round(1).tolist(),
        "average_precision": {
            "coverage": round(float(((ap[:, 1] <= true) & (true <= ap[:, 2])).mean()), 3),
            "bias": round(float((ap[:, 0] - true).mean()), 3),
            "width": round(float((ap[:, 2] - ap[:, 1]).mean()), 3),
        },
    }
