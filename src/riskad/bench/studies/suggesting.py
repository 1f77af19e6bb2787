"""What it is worth to label the rows that `suggest_rows` chooses, on the paper's sets.

A simulated loop: 10 rows are labelled at random, 2 of them anomalies; ShallowRAD is fitted on them
and the unlabelled rows, 10 of these are chosen and labelled with the truth, it is fitted again, and
so on to 100 labels. After each fit stands the AUC on test rows, which are never labelled. At most
2,000 training rows are kept, drawn by chance. The area is the mean of a curve without its start,
which all strategies share. Errors are those of differences between strategies on the same splits.

With lam="cv", the rule of `riskad fit`, three strategies are compared; with lam="tight", where a
fit takes a tenth of the time, two more. What was compared while the choice was designed is in
results/decisions/suggesting.md; it was compared on root seeds 101 and 102. The report is for root
seed 0, which was run when the choice stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import euclidean_distances, roc_auc_score

from riskad import ShallowRAD, suggest_rows
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.studies import Record, by_dataset
from riskad.bench.trial import make_split
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes

__all__ = ["STRATEGIES", "figures", "measure", "report"]

_START = {NORMAL: 8, ANOMALY: 2}
_BATCH, _ROUNDS = 10, 9
_MOST_ROWS = 2_000

Strategy = Callable[[Any, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


# --- strategies: which rows to label next --------------------------------------------------


def _by_chance(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.flatnonzero(y == UNLABELLED), _BATCH, replace=False)


def _by_score(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return _smallest(model.score_samples(X), y, _BATCH)


def _by_margin(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return _smallest(np.abs(model.decision_function(X)), y, _BATCH)


def _by_distance(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of the 100 highest scores, one after the other, the row farthest from those chosen."""
    top = _smallest(model.score_samples(X), y, 10 * _BATCH)
    distances = euclidean_distances(X[top] / np.maximum(X.std(axis=0), 1e-12))
    chosen = [0]
    while len(chosen) < _BATCH:
        chosen.append(int(distances[chosen].min(axis=0).argmax()))
    return top[chosen]


def _suggested(model: Any, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return suggest_rows(model, X, _BATCH, y=y, random_state=int(rng.integers(2**31))).rows


def _smallest(values: np.ndarray, y: np.ndarray, n: int) -> np.ndarray:
    free = np.flatnonzero(y == UNLABELLED)
    return free[np.argsort(values[free], kind="stable")[:n]]


STRATEGIES: dict[str, Strategy] = {
    "suggested": _suggested,
    "random": _by_chance,
    "top score": _by_score,
    "margin": _by_margin,
    "top score, spread": _by_distance,
}


# --- the loop ------------------------------------------------------------------------------


def measure(cell: Cell) -> dict[str, Any]:
    """Return the AUC and the labelled anomalies after each round, by one strategy."""
    X, truth, y, X_test, anomalous = _start(cell)
    seed = seed_of(cell.root, cell.dataset, cell.trial, "method")
    choose, rng = STRATEGIES[cell.settings["strategy"]], np.random.default_rng(seed)

    def fit() -> Any:
        model = ShallowRAD("modified_huber", lam=cell.settings["lam"], random_state=seed).fit(X, y)
        aucs.append(float(roc_auc_score(anomalous, -model.score_samples(X_test))))
        found.append(int((y == ANOMALY).sum()))
        return model

    aucs: list[float] = []
    found: list[int] = []
    model = fit()
    for _ in range(_ROUNDS):
        chosen = choose(model, X, y, rng)
        y[chosen] = truth[chosen]
        model = fit()
    return {"auc": aucs, "anomalies": found}


def _start(cell: Cell) -> tuple[np.ndarray, ...]:
    """Training rows, their truth, the labels at the start, test rows, which are anomalies."""
    assert cell.test_share is not None
    source = cell.source or cell.dataset
    # What few labels the split hides are not kept.
    split = make_split(source, cell.trial, cell.root, cell.test_share, 0.999)
    rng = np.random.default_rng(seed_of(cell.root, cell.dataset, cell.trial, "start"))
    kept = rng.permutation(np.flatnonzero(split.y_train))[:_MOST_ROWS]
    X, truth = split.X_train[kept], split.y_train[kept]
    y = LabelCodes.of(np.zeros(len(truth), dtype=np.int8))
    for kind, n in _START.items():
        y[rng.choice(np.flatnonzero(truth == kind), n, replace=False)] = kind
    return X, truth, y, split.X_test, split.truth_test == ANOMALY


# --- the report ----------------------------------------------------------------------------


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return, for each rule for lambda, mean curves and how far suggestions are ahead."""
    rules = dict.fromkeys(row["settings"]["lam"] for row in rows)
    by_lambda = {lam: [row for row in rows if row["settings"]["lam"] == lam] for lam in rules}
    return {
        "trials": 1 + max(row["trial"] for row in rows),
        "tuned_on": "splits of root seeds 101 and 102 only",
        "most_rows": _MOST_ROWS,
        "by_lambda": {lam: _of_rule(own) for lam, own in by_lambda.items()},
    }


def _of_rule(rows: Sequence[Record]) -> dict[str, Any]:
    """Mean curves over sets, and how far the first strategy is above the others."""
    ran = {row["settings"]["strategy"] for row in rows}
    names = [name for name in STRATEGIES if name in ran]
    curves = {name: _curves(rows, name, "auc") for name in names}
    areas = {name: curve[..., 1:].mean(axis=-1) for name, curve in curves.items()}
    ends = {name: curve[..., -1] for name, curve in curves.items()}
    anomalies = {name: _curves(rows, name, "anomalies").mean(axis=(0, 1)) for name in names}
    ours = names[0]
    return {
        "labels": [sum(_START.values()) + _BATCH * done for done in range(_ROUNDS + 1)],
        "strategies": {
            name: {
                "area": _round(areas[name].mean()),
                "end": _round(ends[name].mean()),
                "curve": [_round(value) for value in curves[name].mean(axis=(0, 1))],
                "anomalies": [round(float(value), 1) for value in anomalies[name]],
            }
            for name in names
        },
        f"{ours} less": {
            name: {
                "area": _difference(areas[ours] - areas[name]),
                "end": _difference(ends[ours] - ends[name]),
                "curve_se": [_difference(gap)["se"] for gap in _gaps(curves[ours], curves[name])],
            }
            for name in names[1:]
        },
        "sets": {
            dataset: {name: _round(areas[name][i].mean()) for name in names}
            for i, dataset in enumerate(by_dataset(rows))
        },
    }


def _curves(rows: Sequence[Record], name: str, what: str) -> np.ndarray:
    """Of shape (sets, trials, rounds)."""
    own = by_dataset(row for row in rows if row["settings"]["strategy"] == name)
    return np.array([[record[what] for record in own[dataset]] for dataset in by_dataset(rows)])


def _gaps(ours: np.ndarray, theirs: np.ndarray) -> list[np.ndarray]:
    """Differences after each round, of shape (sets, trials)."""
    return [ours[..., j] - theirs[..., j] for j in range(ours.shape[-1])]


def _difference(pairs: np.ndarray) -> dict[str, float | int | None]:
    """The mean over sets, its error over the trials of these sets, and over sets as a sample."""
    n_sets, n_trials = pairs.shape
    means = pairs.mean(axis=1)
    within = pairs.var(axis=1, ddof=1) / n_trials if n_trials > 1 else None
    return {
        "mean": _round(means.mean()),
        "se": None if within is None else _round(np.sqrt(within.sum()) / n_sets),
        "se_over_sets": _round(means.std(ddof=1) / np.sqrt(n_sets)) if n_sets > 1 else None,
        "sets_better": int((means > 0).sum()),
    }


def _round(value: Any) -> float:
    return round(float(value), 4)


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean curves; bars are twice the error of the difference from ours."""
    from riskad.bench.canvas import draw

    return draw({"suggesting": _figure}, result)


def _figure(result: Mapping[str, Any]) -> Any:
    from riskad.bench.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, legend_below, panels

    colours = dict(zip(STRATEGIES, (BLUE, GREY, ORANGE, GREEN, PURPLE), strict=True))
    shown = {f"lam={lam!r}": found for lam, found in result["by_lambda"].items()}
    drawn, places = panels(shown, height=3.2)
    drawn.set_figwidth(6.4)  # room for the legend
    for ax, found in places:
        for name, strategy in found["strategies"].items():
            errors = found["suggested less"].get(name, {}).get("curve_se", [None])
            bars = None if None in errors else [2 * error for error in errors]
            ax.errorbar(found["labels"], strategy["curve"], bars, label=name, color=colours[name])
        ax.set_xlabel("labelled rows")
    places[0][0].set_ylabel(f"AUC on test rows, mean of {len(found['sets'])} sets")
    legend_below(drawn, places[-1][0])
    return drawn
