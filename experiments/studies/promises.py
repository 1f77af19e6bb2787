"""Whether promises are kept: probabilities, intervals of anomalies found, p-values.

`probabilities`: ShallowRAD with logistic loss and the tight lambda on the paper's sets, whose
scores become probabilities of being an anomaly in four ways (`results/decisions/probabilities.md`).
Trials with fewer than two labelled anomalies, where probabilities are refused, are skipped.

`looking`: "rows looked at against anomalies found". 2,000 scores, of which one in ten is labelled
at random, a share of them anomalies; what `riskad.decisions.capacity` says of the others is
compared with the truth. Scores of normal rows are standard normal, those of anomalies

- hard, middling, easy: 0.5, 1.2 and 2.5 higher (AUC 0.64, 0.80, 0.96);
- heavy tails: 1.5 higher, both kinds with Student's distribution of 3 degrees of freedom;
- wide: 1 higher, and with twice the spread;
- half stand out: 4 higher for every second of them, like normal rows otherwise;
- steps: 1.2 higher, and rounded to halves, so that many rows tie.

The interval of a straight line (`_line_interval`) is counted at 50 rows.

`p-values`: each draw has 60 labelled normals, 8 labelled anomalies and 250 unlabelled rows of a
Gaussian table, of which the share pi_n are anomalies. `ShallowRAD` is fitted and calibrated, and
judges 50 new normal rows and 20 new anomalies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit
from scipy.stats import beta
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss

from experiments.canvas import BLUE, GREY, ORANGE, blank_figure, draw, write_svgs
from experiments.datasets import PAPER_SETS, Split, make_split
from experiments.runner import Cell, Experiment, Skipped, seed_of
from experiments.summaries import DATA, Row, commits, grid, group, json_page, mean, ok_rows, rounded
from riskad import ShallowRAD, calibrate
from riskad.core.labels import ANOMALY, NORMAL
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import review_rows
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.score_line import intercepts

# --- probabilities -------------------------------------------------------------------------

_WAYS = ("calibrated", "known rate", "sigmoid", "min-max")
_DRAWN, _SCORES = ("calibrated", "sigmoid"), ("brier", "log")
_LEVEL, _BINS, _CONFIDENCE = 0.1, 10, 0.95


def run_probabilities(cell: Cell) -> dict[str, Any]:
    """Return scores of the probabilities of test rows by each way, and how many fell where."""
    split = make_split(cell["dataset"], cell["trial"])
    n_anomaly = int((split.y_train == ANOMALY).sum())
    if n_anomaly < 2:
        raise Skipped("probabilities need two labelled anomalies.")
    model, with_rate = _calibrated(split), _calibrated(split, split.anomaly_rate)
    s, unlabelled = model.anomaly_score(split.X_test), model.calibration_.unlabelled
    probabilities = {
        "calibrated": model.anomaly_probability(split.X_test),
        "known rate": with_rate.anomaly_probability(split.X_test),
        "sigmoid": expit(s),
        "min-max": np.clip((s - unlabelled[0]) / (unlabelled[-1] - unlabelled[0]), 0, 1),
    }
    truth, odd = split.truth_test, split.truth_test == ANOMALY
    small = model.p_values(split.X_test)[truth != ANOMALY] <= _LEVEL
    return {
        **{f"brier {way}": float(brier_score_loss(odd, p)) for way, p in probabilities.items()},
        **{
            f"log {way}": float(log_loss(odd, np.clip(p, 1e-12, 1 - 1e-12)))
            for way, p in probabilities.items()
        },
        **{f"bins {way}": _binned(truth == ANOMALY, probabilities[way]) for way in _DRAWN},
        "small_p": float(small.mean()),
        "true_rate": split.anomaly_rate,
        "estimated_rate": float(model.calibration_.rate.value),
        "n_anomaly": n_anomaly,
    }


def _calibrated(split: Split, pi_n: float | None = None) -> Any:
    """A calibrated model; without a rate of anomalies, it is estimated."""
    model = ShallowRAD("logistic", lam="tight").fit(split.X_train, split.y_train)
    return calibrate(model, split.X_train, split.y_train, pi_n=pi_n)


def _binned(anomalous: np.ndarray, p: np.ndarray) -> list[list[float]]:
    """In each of ten bins of equal width: rows, anomalies, and the sum of probabilities."""
    place = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], p, side="right")
    weights = (None, anomalous, p)
    return [np.bincount(place, w, minlength=_BINS).astype(float).tolist() for w in weights]


def probability_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean scores over the sets, by set, and the points of the reliability diagram."""
    sets: dict[str, Any] = {
        name: {
            **{score: {w: mean(trials, f"{score} {w}") for w in _WAYS} for score in _SCORES},
            "n_anomaly": mean(trials, "n_anomaly"),
            "rate": {
                "true": trials[0]["true_rate"],
                "estimated": [row["estimated_rate"] for row in trials],
            },
            "small_p": mean(trials, "small_p"),
            "trials": len(trials),
        }
        for name, trials in group(rows, "dataset").items()
    }
    figures: dict[str, Any] = {"commits": commits(rows), "level": _LEVEL, "n_sets": len(sets)}
    for score in _SCORES:
        by_set = [each[score] for each in sets.values()]
        figures[score] = {way: mean(by_set, way) for way in _WAYS}
        better = sum(each["calibrated"] < min(each[w] for w in _WAYS[2:]) for each in by_set)
        figures.setdefault("sets_better", {})[score] = better
    figures |= {"trials": len(rows), "small_p": mean(sets.values(), "small_p"), "sets": sets}
    return rounded(figures) | {"reliability": {way: reliability(rows, way) for way in _DRAWN}}


def reliability(rows: Sequence[Row], way: str) -> list[dict[str, float]]:
    """Return what was said and seen in each bin that is not empty, with an exact interval."""
    total = np.sum([row[f"bins {way}"] for row in rows], axis=0)
    points, tail = [], (1 - _CONFIDENCE) / 2
    for count, hits, said in total.T[total[0] > 0]:
        low = beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
        high = beta.ppf(1 - tail, hits + 1, count - hits) if hits < count else 1.0
        seen = {"seen": hits / count, "low": float(low), "high": float(high)}
        points.append({"said": said / count, **seen, "rows": int(count)})
    return points


def report_probabilities(frame: pl.DataFrame, folder: Path) -> None:
    """Write probabilities.json and the reliability diagram, with 95 % intervals of shares."""
    json_page("probabilities.json", probability_figures)(frame, folder)
    points = {way: reliability(ok_rows(frame), way) for way in _DRAWN}
    write_svgs(draw({"reliability": _reliability_diagram}, points), folder)


def _reliability_diagram(points: Mapping[str, Sequence[Mapping[str, float]]]) -> Any:
    figure = blank_figure(3.6, 3.4)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for way, colour in zip(_DRAWN, (BLUE, ORANGE), strict=True):
        said, seen, low, high = (
            np.array([point[key] for point in points[way]])
            for key in ("said", "seen", "low", "high")
        )
        bars = [seen - low, high - seen]
        axes.errorbar(said, seen, bars, marker="o", color=colour, label=way, capsize=2)
    axes.set(xlabel="said: probability of anomaly", ylabel="seen: share of anomalies")
    axes.legend(frameon=False)
    return figure


# --- rows looked at against anomalies found --------------------------------------------------

_ROWS, _LABELLED = 2_000, 0.1
_KS, _K_OF_LINE = (5, 10, 20, 50, 100, 200, 500), 50
_LINE_DRAWS = 300
_SHIFTS = {"hard": 0.5, "middling": 1.2, "easy": 2.5}
_SHIFTS |= {"heavy tails": 1.5, "wide": 1.0, "half stand out": 4.0, "steps": 1.2}


def draw_scores(shape: str, rate: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, which of them are of anomalies, and which are labelled."""
    rng = np.random.default_rng(seed)
    truth, labelled = rng.random(_ROWS) < rate, rng.random(_ROWS) < _LABELLED
    noise = rng.standard_t(3, _ROWS) if shape == "heavy tails" else rng.standard_normal(_ROWS)
    if shape == "wide":
        noise = noise * (1 + truth)
    moved = truth & (rng.random(_ROWS) < 0.5) if shape == "half stand out" else truth
    scores = noise + _SHIFTS[shape] * moved
    return np.round(2 * scores) / 2 if shape == "steps" else scores, truth, labelled


def run_looking(cell: Cell) -> dict[str, Any]:
    """Return the anomalies that were promised and those counted, by rows looked at."""
    shape, rate = cell["shape"], cell["rate"]
    scores, truth, labelled = draw_scores(shape, rate, seed_of(0, shape, str(rate), cell["trial"]))
    codes = np.where(labelled, np.where(truth, ANOMALY, NORMAL), 0).astype(np.int16)
    calibration = Calibration.of(scores, codes, scores, 0.0, label_source="random")
    review = review_rows(calibration, calibration.unlabelled)
    if review is None:
        raise Skipped("it takes two labelled rows of each kind.")
    true = truth[~labelled][np.argsort(scores[~labelled])]
    counted = np.cumsum(true[::-1])
    promises = [review.at(k).found for k in _KS]
    precision = review.average_precision()
    return {
        "counted": [int(counted[k - 1]) for k in _KS],
        "said": [float(each.value) for each in promises],
        "low": [float(each.low) for each in promises],
        "high": [float(each.high) for each in promises],
        "line": _line_interval(calibration, _K_OF_LINE),
        "average_precision": [precision.value, precision.low, precision.high],
        "true_average_precision": float(average_precision_score(true, calibration.unlabelled)),
    }


def _line_interval(calibration: Calibration, k: int) -> list[float]:
    """Ends of the number of anomalies among the k highest scores, if log odds are a line in them.

    Rates, lines and the kinds of these rows are drawn as far as the labels allow them.
    """
    rng, line = np.random.default_rng(0), calibration.line
    slopes = line.draws(_LINE_DRAWS, rng)
    rates = rng.permutation(calibration.likely_rates(_LINE_DRAWS))
    scores = calibration.unlabelled
    drawn = intercepts(slopes[:, None] * scores, rates)
    means = expit(drawn[:, None] + slopes[:, None] * scores[-k:]).mean(axis=1)
    low, high = np.quantile(rng.binomial(k, means), [0.025, 0.975])
    return [float(low), float(high)]


def looking_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the coverage over the draws, by shape and rate."""
    figures: dict[str, Any] = {}
    for (shape, rate), draws in group(rows, "shape", "rate").items():
        counted, said, low, high = (
            np.array([row[name] for row in draws], float)
            for name in ("counted", "said", "low", "high")
        )
        # A draw without a line does not cover.
        line = np.array([row["line"] or [np.nan, np.nan] for row in draws])
        at_line = counted[:, _KS.index(_K_OF_LINE)]
        ap = np.array([row["average_precision"] for row in draws])
        true = np.array([row["true_average_precision"] for row in draws])
        figures.setdefault(shape, {})[str(rate)] = {
            "draws": len(draws),
            "coverage": ((low <= counted) & (counted <= high)).mean(axis=0),
            "coverage_of_line": ((line[:, 0] <= at_line) & (at_line <= line[:, 1])).mean(),
            "width": (high - low).mean(axis=0),
            "counted": counted.mean(axis=0),
            "said": said.mean(axis=0),
            "average_precision": {
                "coverage": ((ap[:, 1] <= true) & (true <= ap[:, 2])).mean(),
                "bias": (ap[:, 0] - true).mean(),
                "width": (ap[:, 2] - ap[:, 1]).mean(),
            },
        }
    return rounded({"rows_looked_at": _KS, "of": figures, "commits": commits(rows)}, digits=3)


# --- p-values ------------------------------------------------------------------------------

_P_LEVELS, _FDR = (0.05, 0.1, 0.2, 0.5), 0.2
_N_P, _N_N, _N_U = 60, 8, 250
_NEW_NORMAL, _NEW_ANOMALOUS = 50, 20


def run_p_values(cell: Cell) -> dict[str, Any]:
    """Return shares: normal rows with small p-values, false discoveries, anomalies found."""
    rng = np.random.default_rng([cell["trial"], round(100 * cell["pi_n"])])
    n_new = _NEW_NORMAL + _NEW_ANOMALOUS
    anomalous = np.zeros(_N_P + _N_N + _N_U + n_new, dtype=bool)
    anomalous[_N_P : _N_P + _N_N + round(cell["pi_n"] * _N_U)] = True
    anomalous[-_NEW_ANOMALOUS:] = True
    rows = rng.standard_normal((len(anomalous), 4)) + 1.7 * anomalous[:, None]
    X, y, new = rows[:-n_new], np.repeat([1, -1, 0], [_N_P, _N_N, _N_U]), rows[-n_new:]
    model = calibrate(ShallowRAD(lam="tight", tol=1e-3).fit(X, y), X, y, pi_n=0.1)
    p = model.p_values(new)
    selected = select_at_fdr(p, _FDR, _N_P).selected
    small = (p[:_NEW_NORMAL, None] <= np.array(_P_LEVELS)).mean(axis=0)
    false = selected[:_NEW_NORMAL].sum() / max(1, selected.sum())
    found = selected[_NEW_NORMAL:].mean()
    return rounded({"small": small.tolist(), "false": float(false), "found": float(found)})


def p_value_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means over the draws."""
    rates = []
    for pi_n, draws in group(rows, "pi_n").items():
        small = np.mean([row["small"] for row in draws], axis=0)
        means = {"small": small, "false": mean(draws, "false"), "found": mean(draws, "found")}
        rates.append({"pi_n": pi_n, "draws": len(draws), "mean": rounded(means)})
    rates.sort(key=lambda rate: rate["pi_n"])
    return {"levels": _P_LEVELS, "fdr": _FDR, "rates": rates}


EXPERIMENTS = (
    Experiment(
        name="probabilities",
        title="Whether calibrated probabilities are right",
        cells=grid(trial=range(5), dataset=PAPER_SETS),
        run_cell=run_probabilities,
        report=report_probabilities,
        folder="decisions",
        needs=f"{DATA}, matplotlib",
        minutes="3 minutes",
    ),
    Experiment(
        name="looking",
        title="Whether intervals of anomalies found hold what is counted",
        cells=grid(trial=range(40), shape=_SHIFTS, rate=(0.03, 0.1)),
        run_cell=run_looking,
        report=json_page("looking.json", looking_figures),
        folder="decisions",
        minutes="2 minutes",
    ),
    Experiment(
        name="p-values",
        title="The level of p-values and of false discoveries",
        cells=grid(trial=range(500), pi_n=(0.05, 0.2)),
        run_cell=run_p_values,
        report=json_page("p_values.json", p_value_figures),
        folder="decisions",
        minutes="2 minutes",
    ),
)
