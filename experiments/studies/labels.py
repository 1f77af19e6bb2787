"""Which rows to label next: what suggestions are worth, beside other strategies.

`suggesting` is a simulated loop on the paper's sets: 10 rows are labelled at random, 2 of them
anomalies; ShallowRAD is fitted on them and the unlabelled rows, 10 of these are chosen and labelled
with the truth, it is fitted again, and so on to 100 labels. With lam="cv", the rule of
`riskad fit`, three strategies are compared; with lam="tight", where a fit takes a tenth of the
time, two more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import euclidean_distances, roc_auc_score

from experiments import canvas
from experiments.datasets import PAPER_SETS, make_split
from experiments.runner import Cell, Experiment, seed_of
from experiments.summaries import DATA, Row, difference, group, json_page, ok_rows, rounded
from riskad import ShallowRAD, suggest_rows
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

_BATCH, _ROUNDS, _MOST_ROWS = 10, 9, 2_000
_START = {NORMAL: 8, ANOMALY: 2}


def unlabelled_by(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the rows without a label, those with the smallest values first."""
    free = np.flatnonzero(labels == UNLABELLED)
    return free[np.argsort(values[free], kind="stable")]


def _farthest(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of the 100 highest scores, one after the other, the row farthest from those chosen."""
    top = unlabelled_by(model.score_samples(X), y)[: 10 * _BATCH]
    distances = euclidean_distances(X[top] / np.maximum(X.std(axis=0), 1e-12))
    chosen = [0]
    while len(chosen) < _BATCH:
        chosen.append(int(distances[chosen].min(axis=0).argmax()))
    return top[chosen]


# Which rows to label next: (model, X, y, rng) -> rows.
STRATEGIES: dict[str, Callable[..., np.ndarray]] = {
    "suggested": lambda model, X, y, rng: (
        suggest_rows(model, X, _BATCH, y=y, random_state=int(rng.integers(2**31))).rows
    ),
    "random": lambda model, X, y, rng: rng.choice(
        np.flatnonzero(y == UNLABELLED), _BATCH, replace=False
    ),
    "top score": lambda model, X, y, rng: unlabelled_by(model.score_samples(X), y)[:_BATCH],
    "margin": lambda model, X, y, rng: unlabelled_by(np.abs(model.decision_function(X)), y)[
        :_BATCH
    ],
    "top score, spread": _farthest,
}


def suggesting_cells() -> Iterator[Cell]:
    """Five splits; without InternetAds, whose 1,555 columns take six times as long as others."""
    sets = [name for name in PAPER_SETS if name != "InternetAds"]
    for trial, dataset, lam in itertools.product(range(5), sets, ("cv", "tight")):
        for strategy in list(STRATEGIES)[: 3 if lam == "cv" else None]:
            yield Cell(dataset=dataset, method=strategy, trial=trial, lam=lam)


def run_suggesting(cell: Cell) -> dict[str, Any]:
    """Return the AUC and the labelled anomalies after each round, by one strategy."""
    place = (0, cell["dataset"], cell["trial"])
    split = make_split(cell["dataset"], cell["trial"], budget=0.999)  # nearly all labels
    rng = np.random.default_rng(seed_of(*place, "start"))
    kept = rng.permutation(np.flatnonzero(split.y_train))[:_MOST_ROWS]
    X, truth = split.X_train[kept], split.y_train[kept]
    y = np.zeros(len(truth), dtype=np.int16)
    for kind, n in _START.items():
        y[rng.choice(np.flatnonzero(truth == kind), n, replace=False)] = kind
    seed = seed_of(*place, "method")
    choose, rng = STRATEGIES[cell["method"]], np.random.default_rng(seed)
    aucs, anomalies = [], []
    for done in range(_ROUNDS + 1):
        model = ShallowRAD("modified_huber", lam=cell["lam"], random_state=seed).fit(X, y)
        scores = -model.score_samples(split.X_test)
        aucs.append(float(roc_auc_score(split.truth_test == ANOMALY, scores)))
        anomalies.append(int((y == ANOMALY).sum()))
        if done < _ROUNDS:
            chosen = choose(model, X, y, rng)
            y[chosen] = truth[chosen]
    return {"auc": aucs, "anomalies": anomalies}


def suggesting_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return, for each rule for lambda, mean curves and how far suggestions are ahead."""
    by_lambda = {lam: _of_rule(cells) for lam, cells in group(rows, "lam").items()}
    trials = 1 + max(row["trial"] for row in rows)
    about = {"trials": trials, "tuned_on": "splits of root seeds 101 and 102 only"}
    return about | {"most_rows": _MOST_ROWS, "by_lambda": rounded(by_lambda)}


def _of_rule(rows: Sequence[Row]) -> dict[str, Any]:
    by_method, sets = group(rows, "method"), list(group(rows, "dataset"))
    names = [name for name in STRATEGIES if name in by_method]

    def curves(name: str, what: str) -> np.ndarray:
        """Of shape (sets, trials, rounds)."""
        by_set = group(by_method[name], "dataset")
        return np.array([[row[what] for row in by_set[each]] for each in sets], float)

    aucs = {name: curves(name, "auc") for name in names}
    areas = {name: curve[..., 1:].mean(axis=-1) for name, curve in aucs.items()}
    ahead = {name: aucs["suggested"] - aucs[name] for name in names if name != "suggested"}
    return {
        "labels": [sum(_START.values()) + _BATCH * done for done in range(_ROUNDS + 1)],
        "strategies": {
            name: {
                "area": areas[name].mean(),
                "end": aucs[name][..., -1].mean(),
                "curve": aucs[name].mean(axis=(0, 1)),
                "anomalies": curves(name, "anomalies").mean(axis=(0, 1)),
            }
            for name in names
        },
        "suggested less": {
            name: {
                "area": _over_sets(gaps[..., 1:].mean(axis=-1)),
                "end": _over_sets(gaps[..., -1]),
                "curve_se": [_over_sets(gap)["se"] for gap in np.moveaxis(gaps, -1, 0)],
            }
            for name, gaps in ahead.items()
        },
        "sets": {
            dataset: {name: areas[name][i].mean() for name in names}
            for i, dataset in enumerate(sets)
        },
    }


def _over_sets(pairs: np.ndarray) -> dict[str, float | int]:
    """The mean over sets, its error over the trials of these sets, and over sets as a sample."""
    n_sets, n_trials = pairs.shape
    means = pairs.mean(axis=1)
    within = pairs.var(axis=1, ddof=1) / n_trials if n_trials > 1 else np.full(n_sets, np.nan)
    over_sets = difference(means)
    return {
        "mean": over_sets["mean"],
        "se": float(np.sqrt(within.sum()) / n_sets),
        "se_over_sets": over_sets["se"],
        "sets_better": int((means > 0).sum()),
    }


def report_suggesting(frame: pl.DataFrame, folder: Path) -> None:
    """Write suggesting.json and its figure; bars are twice the error of the difference."""
    json_page("suggesting.json", suggesting_figures)(frame, folder)
    by_lambda = suggesting_figures(ok_rows(frame))["by_lambda"]
    canvas.write_svgs(canvas.draw({"suggesting": _suggesting_figure}, by_lambda), folder)


def _suggesting_figure(by_lambda: Mapping[str, Any]) -> Any:
    palette = (canvas.BLUE, canvas.GREY, canvas.ORANGE, canvas.GREEN, canvas.PURPLE)
    colours = dict(zip(STRATEGIES, palette, strict=True))
    shown = {f"lam={lam!r}": figures for lam, figures in by_lambda.items()}
    drawing, places = canvas.panels(shown, height=3.2)
    drawing.set_figwidth(6.4)  # room for the legend
    for ax, figures in places:
        for name, strategy in figures["strategies"].items():
            errors = figures["suggested less"].get(name, {}).get("curve_se", [None])
            bars = None if None in errors else [2 * error for error in errors]
            ax.errorbar(figures["labels"], strategy["curve"], bars, label=name, color=colours[name])
        ax.set_xlabel("labelled rows")
    places[0][0].set_ylabel(f"AUC on test rows, mean of {len(figures['sets'])} sets")
    canvas.legend_below(drawing, places[-1][0])
    return drawing


EXPERIMENTS = (
    Experiment(
        name="suggesting",
        title="What it is worth to label the rows that are suggested",
        cells=suggesting_cells,
        run_cell=run_suggesting,
        report=report_suggesting,
        folder="decisions",
        needs=f"{DATA}, matplotlib",
        minutes="10 minutes",
    ),
)
