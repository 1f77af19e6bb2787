"""Are the probabilities right? Brier and log score on test rows, calibrated and not.

ShallowRAD with logistic loss and the tight lambda, whose scores become probabilities of being an
anomaly in four ways:

- calibrated: `anomaly_probability` after `riskad.calibrate`, the anomaly rate being estimated;
- known rate: the same with the true rate, to tell what the estimate costs;
- sigmoid: 1 / (1 + exp(-s)), what logistic loss would have if its prior, its weights and its
  regularisation changed nothing;
- min-max: (s - min) / (max - min) over the unlabelled rows, within 0 and 1, as PyOD does.

The share of normal test rows with a p-value of at most 0.1 is counted as well. Trials with fewer
than two labelled anomalies, where `anomaly_probability` refuses, are skipped. With the result goes
a reliability diagram of all test rows of all sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import beta

from riskad import ShallowRAD, calibrate
from riskad.bench.canvas import BLUE, GREY, ORANGE, blank_figure
from riskad.bench.experiment import Cell
from riskad.bench.peers import NotApplicable
from riskad.bench.studies import Record, by_dataset
from riskad.bench.trial import Split, split_of
from riskad.core.labels import ANOMALY
from riskad.decisions.probability_metrics import brier_score, log_score

__all__ = ["figures", "measure", "report"]

_METHODS = ("calibrated", "known rate", "sigmoid", "min-max")
_SHOWN = ("calibrated", "sigmoid")
_LEVEL, _BINS, _CONFIDENCE = 0.1, 10, 0.95


def measure(cell: Cell) -> dict[str, Any]:
    """Return scores of the probabilities of test rows by each method, and how many fell where."""
    split = split_of(cell)
    n_anomaly = int((split.y_train == ANOMALY).sum())
    if n_anomaly < 2:
        raise NotApplicable("probabilities need two labelled anomalies.")
    model, known = _fitted(split), _fitted(split, split.anomaly_rate)
    s, unlabelled = model.anomaly_score(split.X_test), model.calibration_.unlabelled
    said = {
        "calibrated": model.anomaly_probability(split.X_test),
        "known rate": known.anomaly_probability(split.X_test),
        "sigmoid": expit(s),
        "min-max": np.clip((s - unlabelled[0]) / (unlabelled[-1] - unlabelled[0]), 0, 1),
    }
    truth = split.truth_test
    small = model.p_values(split.X_test)[truth != ANOMALY] <= _LEVEL
    return {
        "brier": {name: float(brier_score(truth, p).value) for name, p in said.items()},
        "log": {name: float(log_score(truth, p).value) for name, p in said.items()},
        "small_p": float(small.mean()),
        "rate": {"true": split.anomaly_rate, "estimated": float(model.calibration_.rate.value)},
        "n_anomaly": n_anomaly,
        "bins": {name: _binned(truth == ANOMALY, said[name]) for name in _SHOWN},
    }


def _fitted(split: Split, pi_n: float | None = None) -> Any:
    """A calibrated model; the anomaly rate is estimated if it is not given."""
    model = ShallowRAD("logistic", lam="tight").fit(split.X_train, split.y_train)
    return calibrate(model, split.X_train, split.y_train, pi_n=pi_n)


def _binned(anomalous: np.ndarray, p: np.ndarray) -> list[list[float]]:
    """In each of ten bins of equal width: rows, anomalies, and the sum of what was said."""
    place = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], p, side="right")
    weights = (None, anomalous, p)
    return [np.bincount(place, weights=w, minlength=_BINS).tolist() for w in weights]


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return mean scores over the sets, by set, and the points of the reliability diagram."""
    sets = {name: _of_set(records) for name, records in by_dataset(rows).items()}
    means = {
        score: {name: round(fmean(s[score][name] for s in sets.values()), 4) for name in _METHODS}
        for score in ("brier", "log")
    }
    better = {
        score: sum(
            s[score]["calibrated"] < min(s[score][n] for n in _METHODS[2:]) for s in sets.values()
        )
        for score in ("brier", "log")
    }
    return means | {
        "level": _LEVEL,
        "sets_better": better,
        "n_sets": len(sets),
        "trials": len(rows),
        "small_p": round(fmean(s["small_p"] for s in sets.values()), 4),
        "sets": sets,
        "reliability": {name: _reliability(rows, name) for name in _SHOWN},
    }


def _of_set(records: Sequence[Record]) -> dict[str, Any]:
    def means(score: str) -> dict[str, float]:
        return {name: round(fmean(r[score][name] for r in records), 4) for name in _METHODS}

    return {
        "brier": means("brier"),
        "log": means("log"),
        "n_anomaly": round(fmean(r["n_anomaly"] for r in records), 1),
        "rate": {
            "true": round(records[0]["rate"]["true"], 4),
            "estimated": [round(r["rate"]["estimated"], 4) for r in records],
        },
        "small_p": round(fmean(r["small_p"] for r in records), 4),
        "trials": len(records),
    }


def _reliability(rows: Sequence[Record], name: str) -> list[dict[str, float]]:
    """Of each bin that is not empty what was said, and what was seen with its exact interval."""
    total = np.sum([row["bins"][name] for row in rows], axis=0)
    points = []
    for count, hits, said in total.T:
        if count:
            tail = (1 - _CONFIDENCE) / 2
            low = beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
            high = beta.ppf(1 - tail, hits + 1, count - hits) if hits < count else 1.0
            seen = {"seen": hits / count, "low": float(low), "high": float(high)}
            points.append({"said": said / count, **seen, "rows": int(count)})
    return points


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reliability diagram; bars are 95 % intervals of binomial shares."""
    figure = blank_figure(3.6, 3.4)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for name, colour in zip(_SHOWN, (BLUE, ORANGE), strict=True):
        said, seen, low, high = (
            np.array([point[key] for point in result["reliability"][name]])
            for key in ("said", "seen", "low", "high")
        )
        bars = [seen - low, high - seen]
        axes.errorbar(said, seen, bars, marker="o", color=colour, label=name, capsize=2)
    axes.set(xlabel="said: probability of anomaly", ylabel="seen: share of anomalies")
    axes.legend(frameon=False)
    return {"reliability": figure}
