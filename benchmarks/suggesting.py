"""What it is worth to label the rows that `suggest_rows` chooses, on the paper's sets.

    RISKAD_DATA=... python benchmarks/suggesting.py --output results/decisions/suggesting.json

A simulated loop: 10 rows are labelled at random, 2 of them anomalies; ShallowRAD is fitted on them
and the pile, 10 rows of the pile are chosen and labelled with the truth, it is fitted again, and so
on to 100 labels. After each fit stands the AUC on test rows, which are never labelled. Sets and
splits are those of `riskad bench shallow main`; at most 2,000 training rows are kept, drawn by
chance. The area is the mean of a curve without its start, which all strategies share. Errors are
those of differences between strategies on the same splits.

With lam="cv", the rule of `riskad fit`, three strategies are compared; with lam="tight", where a
fit takes a tenth of the time, two more. What was compared while the choice was designed is in
results/decisions/suggesting.md; it was compared on root seeds 101 and 102. The report is for root
seed 0, which was run when the choice stood.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from cv_rules import sets_at_hand
from sklearn.metrics import euclidean_distances, roc_auc_score

from riskad import DataWarning, ShallowRAD, suggest_rows
from riskad.bench.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    draw,
    legend_below,
    panels,
    write_svgs,
)
from riskad.bench.experiment import seed_of
from riskad.bench.trial import make_split
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

START = {NORMAL: 8, ANOMALY: 2}
BATCH, ROUNDS = 10, 9
MOST_ROWS = 2_000
SKIPPED = ("InternetAds",)  # 1,555 columns: a fit takes six times as long as elsewhere

Strategy = Callable[[ShallowRAD, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


# --- strategies --------------------------------------------------------------------------


def by_chance(model, X, y, rng):
    return rng.choice(np.flatnonzero(y == UNLABELLED), BATCH, replace=False)


def by_score(model, X, y, rng):
    return _smallest(model.score_samples(X), y, BATCH)


def by_margin(model, X, y, rng):
    return _smallest(np.abs(model.decision_function(X)), y, BATCH)


def by_score_and_distance(model, X, y, rng):
    """Of the 100 highest scores, one after the other, the row farthest from those chosen."""
    top = _smallest(model.score_samples(X), y, 10 * BATCH)
    distances = euclidean_distances(X[top] / np.maximum(X.std(axis=0), 1e-12))
    chosen = [0]
    while len(chosen) < BATCH:
        chosen.append(int(distances[chosen].min(axis=0).argmax()))
    return top[chosen]


def by_suggestion(model, X, y, rng):
    return suggest_rows(model, X, BATCH, y=y, random_state=int(rng.integers(2**31))).rows


def _smallest(values, y, n):
    free = np.flatnonzero(y == UNLABELLED)
    return free[np.argsort(values[free], kind="stable")[:n]]


STRATEGIES: dict[str, Strategy] = {
    "suggested": by_suggestion,
    "random": by_chance,
    "top score": by_score,
    "margin": by_margin,
    "top score, spread": by_score_and_distance,
}
BY_LAMBDA = {"cv": ("suggested", "random", "top score"), "tight": tuple(STRATEGIES)}
COLOURS = dict(zip(STRATEGIES, (BLUE, GREY, ORANGE, GREEN, PURPLE), strict=True))


# --- the loop ----------------------------------------------------------------------------


def make_start(dataset: str, trial: int, root: int) -> tuple[np.ndarray, ...]:
    """Training rows, their truth, the labels at the start, test rows, which are anomalies."""
    split = make_split(dataset, trial, root, 0.3, 0.999)  # what few labels it hides are not kept
    rng = np.random.default_rng(seed_of(root, dataset, trial, "start"))
    kept = rng.permutation(np.flatnonzero(split.y_train))[:MOST_ROWS]
    X, truth = split.X_train[kept], split.y_train[kept]
    y = np.zeros(len(truth), dtype=np.int8)
    for kind, n in START.items():
        y[rng.choice(np.flatnonzero(truth == kind), n, replace=False)] = kind
    return X, truth, y, split.X_test, split.truth_test == ANOMALY


def run_trial(dataset: str, trial: int, root: int, lam: str) -> dict[str, Any]:
    """Of each strategy the AUC and the labelled anomalies after each round."""
    X, truth, start, X_test, anomalous = make_start(dataset, trial, root)
    seed = seed_of(root, dataset, trial, "method")

    def fit(y: np.ndarray) -> tuple[ShallowRAD, float]:
        model = ShallowRAD("modified_huber", lam=lam, random_state=seed).fit(X, y)
        return model, float(roc_auc_score(anomalous, -model.score_samples(X_test)))

    first = fit(start)
    record = {}
    for name in BY_LAMBDA[lam]:
        rng = np.random.default_rng(seed)
        y, (model, auc) = start.copy(), first
        aucs, found = [auc], [START[ANOMALY]]
        for _ in range(ROUNDS):
            chosen = STRATEGIES[name](model, X, y, rng)
            y[chosen] = truth[chosen]
            model, auc = fit(y)
            aucs.append(auc)
            found.append(int((y == ANOMALY).sum()))
        record[name] = {"auc": aucs, "anomalies": found}
    return record


# --- the report --------------------------------------------------------------------------


def report(trials: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Mean curves over sets, and how far the first strategy is above the others."""
    names = list(next(iter(trials.values()))[0])
    curves = {name: _curves(trials, name, "auc") for name in names}
    areas = {name: curve[..., 1:].mean(axis=-1) for name, curve in curves.items()}
    ends = {name: curve[..., -1] for name, curve in curves.items()}
    ours = names[0]
    return {
        "labels": [sum(START.values()) + BATCH * done for done in range(ROUNDS + 1)],
        "strategies": {
            name: {
                "area": _round(areas[name].mean()),
                "end": _round(ends[name].mean()),
                "curve": [_round(value) for value in curves[name].mean(axis=(0, 1))],
                "anomalies": [
                    round(float(value), 1)
                    for value in _curves(trials, name, "anomalies").mean(axis=(0, 1))
                ],
            }
            for name in names
        },
        f"{ours} less": {
            name: {
                "area": _difference(areas[ours] - areas[name]),
                "end": _difference(ends[ours] - ends[name]),
                "curve_se": [
                    _difference(curves[ours][..., j] - curves[name][..., j])["se"]
                    for j in range(ROUNDS + 1)
                ],
            }
            for name in names[1:]
        },
        "sets": {
            dataset: {name: _round(areas[name][i].mean()) for name in names}
            for i, dataset in enumerate(trials)
        },
    }


def _curves(trials: dict[str, list[dict[str, Any]]], name: str, what: str) -> np.ndarray:
    """Of shape (sets, trials, rounds)."""
    return np.array([[record[name][what] for record in records] for records in trials.values()])


def _difference(pairs: np.ndarray) -> dict[str, float]:
    """The mean over sets, its error over the trials of these sets, and over sets as a sample."""
    n_sets, n_trials = pairs.shape
    within = pairs.var(axis=1, ddof=1) / n_trials if n_trials > 1 else np.full(n_sets, np.nan)
    means = pairs.mean(axis=1)
    return {
        "mean": _round(means.mean()),
        "se": _round(np.sqrt(within.sum()) / n_sets),
        "se_over_sets": _round(means.std(ddof=1) / np.sqrt(n_sets)),
        "sets_better": int((means > 0).sum()),
    }


def _round(value: float) -> float:
    return round(float(value), 4)


def figure(result: dict[str, Any]) -> Any:
    """The mean curves; bars are twice the error of the difference from ours."""
    shown = {f"lam={lam!r}": found for lam, found in result["by_lambda"].items()}
    drawn, places = panels(shown, height=3.2)
    drawn.set_figwidth(6.4)  # room for the legend
    for ax, found in places:
        for name, strategy in found["strategies"].items():
            less = found["suggested less"].get(name)
            bars = None if less is None else [2 * error for error in less["curve_se"]]
            colour = COLOURS[name]
            ax.errorbar(found["labels"], strategy["curve"], bars, label=name, color=colour)
        ax.set_xlabel("labelled rows")
    places[0][0].set_ylabel(f"AUC on test rows, mean of {len(found['sets'])} sets")
    legend_below(drawn, places[-1][0])
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="root seeds")
    parser.add_argument("--trials", type=int, default=5, help="splits of each set from each seed")
    parser.add_argument("--lam", nargs="+", choices=BY_LAMBDA, default=[*BY_LAMBDA])
    parser.add_argument("--output", type=Path, help="also write the result as JSON and SVG")
    arguments = parser.parse_args()
    sets = [name for name in sets_at_hand() if name not in SKIPPED]
    if not sets:
        parser.error("none of the paper's sets can be had; set RISKAD_DATA")
    warnings.simplefilter("ignore", DataWarning)  # constant columns after a split
    began = time.process_time()
    trials: dict[str, Any] = {lam: {} for lam in arguments.lam}
    for lam, name in product(arguments.lam, sets):
        trials[lam][name] = [
            run_trial(name, trial, root, lam)
            for root in arguments.seeds
            for trial in range(arguments.trials)
        ]
        print(lam, name, f"{time.process_time() - began:.0f} s", flush=True)
    result = {
        "seeds": arguments.seeds,
        "trials": arguments.trials,
        "tuned_on": "splits of root seeds 101 and 102 only",
        "most_rows": MOST_ROWS,
        "skipped": list(SKIPPED),
        "cpu_seconds": round(time.process_time() - began),
        "by_lambda": {lam: report(found) for lam, found in trials.items()},
    }
    show(result)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
        write_svgs(draw({arguments.output.stem: figure}, result), arguments.output.parent)


def show(result: dict[str, Any]) -> None:
    for lam, found in result["by_lambda"].items():
        print(f"lam={lam!r:<18} area    end     anomalies  suggested less it, area (SE), end (SE)")
        for name, strategy in found["strategies"].items():
            less = found["suggested less"].get(name, {})
            parts = [
                f"{less[k]['mean']:+.4f} ({less[k]['se']:.4f})" for k in less if k != "curve_se"
            ]
            scores = (
                f"{strategy['area']:.4f}  {strategy['end']:.4f}  {strategy['anomalies'][-1]:>9}"
            )
            print(f"{name:<22} {scores}  {'  '.join(parts)}")


if __name__ == "__main__":
    main()
