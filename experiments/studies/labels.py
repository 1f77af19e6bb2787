"""Which rows to label next: what suggestions are worth, and other orders beside them.

`suggesting`: a simulated loop on the paper's sets: 10 rows are labelled at random, 2 of them
anomalies; ShallowRAD is fitted on them and the unlabelled rows, 10 of these are chosen and labelled
with the truth, it is fitted again, and so on to 100 labels. After each fit stands the AUC on test
rows, which are never labelled. At most 2,000 training rows are kept, drawn by chance. The area is
the mean of a curve without its start, which all strategies share. With lam="cv", the rule of
`riskad fit`, three strategies are compared; with lam="tight", where a fit takes a tenth of the
time, two more. The choice was designed on root seeds 101 and 102; these are splits of root seed 0.

`label-orders`: real tables and no label to begin with. Half of a table's rows, 700 at most, are a
person's table without labels, as many others are test rows. A simulated person knows the truth and
judges ten rows at a time, to 100. The model is a ridge regression on 150 random Fourier features,
which fits in two milliseconds. Its weights are those of the rad risk with squared loss and a = 0.3,
and n labelled anomalies give it the share n / (n + 4) of the score; the rest is the mean of the
outlier scores, as in `AutoRAD`, where few labels do not silence novelty. Orders were thought up on
the first 40 tables of a shuffle ("chosen on") and are judged by the next 40 ("confirmed on"), with
two splits of each. Labels needed are those after which the AUC on test rows is 95 % (80 %) of what
all labels give; where 100 do not suffice, 110 are counted. One order cheats: it knows which rows
are anomalies, and tells what an order could gain at most by finding more of them without preferring
those that are easy to find.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import euclidean_distances, roc_auc_score

from experiments.canvas import (
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
from experiments.datasets import PAPER_SETS, make_split
from experiments.datasets.fetch import data_folder
from experiments.runner import Cell, Experiment, NotAvailable, seed_of
from experiments.studies.common import (
    COLLECTED,
    DATA,
    Row,
    difference,
    group,
    mean,
    ok_rows,
    rounded,
    write_json,
)
from riskad import ShallowRAD, suggest_rows
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes
from riskad.detectors.features import LearnedFeatures

_BATCH = 10


def unlabelled_by(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the rows without a label, those with the smallest values first."""
    free = np.flatnonzero(labels == UNLABELLED)
    return free[np.argsort(values[free], kind="stable")]


# --- suggestions on the paper's sets ---------------------------------------------------------

_START = {NORMAL: 8, ANOMALY: 2}
_ROUNDS, _MOST_ROWS = 9, 2_000


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
    split = make_split(cell["dataset"], cell["trial"], 0, 0.3, 0.999)  # nearly all labels
    rng = np.random.default_rng(seed_of(*place, "start"))
    kept = rng.permutation(np.flatnonzero(split.y_train))[:_MOST_ROWS]
    X, truth = split.X_train[kept], split.y_train[kept]
    y = LabelCodes.of(np.zeros(len(truth), dtype=np.int8))
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
    figures = suggesting_figures(ok_rows(frame))
    write_json(figures, folder / "suggesting.json")
    write_svgs(draw({"suggesting": _suggesting_figure}, figures["by_lambda"]), folder)


def _suggesting_figure(by_lambda: Mapping[str, Any]) -> Any:
    colours = dict(zip(STRATEGIES, (BLUE, GREY, ORANGE, GREEN, PURPLE), strict=True))
    shown = {f"lam={lam!r}": figures for lam, figures in by_lambda.items()}
    drawing, places = panels(shown, height=3.2)
    drawing.set_figwidth(6.4)  # room for the legend
    for ax, figures in places:
        for name, strategy in figures["strategies"].items():
            errors = figures["suggested less"].get(name, {}).get("curve_se", [None])
            bars = None if None in errors else [2 * error for error in errors]
            ax.errorbar(figures["labels"], strategy["curve"], bars, label=name, color=colours[name])
        ax.set_xlabel("labelled rows")
    places[0][0].set_ylabel(f"AUC on test rows, mean of {len(figures['sets'])} sets")
    legend_below(drawing, places[-1][0])
    return drawing


# --- orders on real tables -------------------------------------------------------------------

_ORDER_ROUNDS, _OWN_ROWS, _FEWEST_ANOMALIES = 10, 700, 40
_HALVES = {"chosen on": 0, "confirmed on": 40}
_FEATURES, _A, _PRIOR, _RIDGE, _TRUST = 150, 0.3, 0.8, 3e-3, 4


class QuickTable:
    """Rows to be labelled and test rows, with the truth, and a model that is fitted at once."""

    def __init__(self, X: np.ndarray, anomalous: np.ndarray, rng: np.random.Generator):
        order, n = rng.permutation(len(X)), min(_OWN_ROWS, len(X) // 2)
        own, test = order[:n], order[n : 2 * n]
        self.truth, self.test_truth = np.where(anomalous[own], ANOMALY, NORMAL), anomalous[test]
        learned = LearnedFeatures(("columns", "outliers"), random_state=0)
        self.rows = learned.fit_transform(X[own].astype(float))
        test_rows = learned.transform(X[test].astype(float))
        self.columns = self.rows[:, learned.slices_["columns"]]
        scale = np.where(self.rows.std(axis=0) > 0, self.rows.std(axis=0), 1.0)
        standard = [
            np.clip((F - self.rows.mean(axis=0)) / scale, -4, 4) for F in (self.rows, test_rows)
        ]
        span = learned.slices_["outliers"]
        self.outlying = [_standardised(F[:, span].mean(axis=1)) for F in (self.rows, test_rows)]
        self.features = self._fourier_features(standard)
        self.best_auc = self.fit(self.truth)[1]

    def _fourier_features(self, standard: Sequence[np.ndarray]) -> list[np.ndarray]:
        rng, (own, _) = np.random.default_rng(0), standard
        pairs = own[rng.integers(0, len(own), (2, 400))]
        gaps = ((pairs[0] - pairs[1]) ** 2).sum(axis=1)
        width = np.sqrt(np.median(gaps[gaps > 0]))
        slopes = 1.2 / width * rng.normal(size=(own.shape[1], _FEATURES))
        shifts = rng.uniform(0, 2 * np.pi, _FEATURES)
        waves = [np.sqrt(2 / _FEATURES) * np.cos(F @ slopes + shifts) for F in standard]
        return [
            np.column_stack([wave, 0.3 * F / np.sqrt(F.shape[1]), np.ones(len(F))])
            for wave, F in zip(waves, standard, strict=True)
        ]

    def fit(self, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the anomaly scores of the rows, and the AUC on test rows."""
        n, scores = int((labels == ANOMALY).sum()), self.outlying
        if n and (labels == NORMAL).any():
            kinds = {NORMAL: (1 - _A) * _PRIOR, ANOMALY: (1 + _A) * (1 - _PRIOR), UNLABELLED: _A}
            weights = sum(w * (labels == k) / max((labels == k).sum(), 1) for k, w in kinds.items())
            F, target = self.features[0], np.where(labels == ANOMALY, 1, -1)
            products = (F * weights[:, None]).T @ np.column_stack([F, target])
            theta = np.linalg.solve(products[:, :-1] + _RIDGE * np.eye(F.shape[1]), products[:, -1])
            share = n / (n + _TRUST)
            scores = [
                share * _standardised(features @ theta) + (1 - share) * outlying
                for features, outlying in zip(self.features, self.outlying, strict=True)
            ]
        return scores[0], float(roc_auc_score(self.test_truth, scores[1]))


def _standardised(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean()) / (scores.std() + 1e-9)


class _Scored:
    """A model whose scores of all rows are known; a twentieth of them is flagged."""

    def __init__(self, anomaly_scores: np.ndarray):
        self.scores, self.offset_ = -anomaly_scores, -float(np.quantile(anomaly_scores, 0.95))

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return self.scores


def _suggested(
    table: QuickTable, scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Nine of ten suggested, as `riskad label` shows them."""
    codes, seed = LabelCodes.of(labels.astype(np.int8)), int(rng.integers(2**31))
    about = {"y": codes, "compared": table.columns, "random_state": seed}
    chosen = suggest_rows(_Scored(scores), table.rows, _BATCH - 1, **about).rows
    rest = np.setdiff1d(np.flatnonzero(labels == UNLABELLED), chosen)
    return np.append(chosen, rng.choice(rest, 1, replace=False))


def _knowing(
    table: QuickTable, scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Three anomalies, drawn at random from all of them, and normals drawn at random."""
    free = np.flatnonzero(labels == UNLABELLED)
    there = free[table.truth[free] == ANOMALY]
    chosen = rng.choice(there, min(3, len(there)), replace=False)
    normal = rng.choice(free[table.truth[free] == NORMAL], _BATCH - len(chosen), replace=False)
    return np.append(chosen, normal)


# Ten rows to label: (table, scores, labels, rng) -> rows.
ORDERS: dict[str, Callable[..., np.ndarray]] = {
    "random": lambda table, scores, labels, rng: rng.choice(
        np.flatnonzero(labels == UNLABELLED), _BATCH, replace=False
    ),
    "suggested": _suggested,
    "top": lambda table, scores, labels, rng: unlabelled_by(-scores, labels)[:_BATCH],
    "knowing: 3 of 10 anomalies": _knowing,
}


def order_cells() -> Iterator[Cell]:
    """Forty tables of each half, by their place in the shuffle."""
    for half, place, order in itertools.product(_HALVES, range(40), ORDERS):
        yield Cell(method=order, half=half, place=place)


@functools.cache
def _tables() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Names, rows and which are anomalies, of tables with enough of these, in random order."""
    folder = data_folder()
    path = None if folder is None else folder / "tables" / "tables.npz"
    if path is None or not path.exists():
        raise NotAvailable(f"{COLLECTED} is missing", experiment="label-orders")
    with np.load(path) as arrays:
        names = sorted({key.partition("|")[0] for key in arrays.files})
        np.random.default_rng(0).shuffle(names)
        tables = [(name, arrays[f"{name}|X"], arrays[f"{name}|y"] == 1) for name in names]
    return [table for table in tables if table[2].sum() >= _FEWEST_ANOMALIES]


def run_order(cell: Cell) -> dict[str, float]:
    """Return labels needed, the mean AUC on the way, and anomalies found: means of two splits."""
    name, X, anomalous = _tables()[_HALVES[cell["half"]] + cell["place"]]
    splits = [_judge(cell["method"], X, anomalous, [i, zlib.crc32(name.encode())]) for i in (0, 1)]
    return {key: mean(splits, key) for key in splits[0]}


def _judge(order: str, X: np.ndarray, anomalous: np.ndarray, seed: list[int]) -> dict[str, float]:
    table = QuickTable(X, anomalous, np.random.default_rng(seed))
    labels, rng = np.zeros(len(table.truth), dtype=int), np.random.default_rng(seed)
    scores, auc = table.fit(labels)
    aucs = [auc]
    for _ in range(_ORDER_ROUNDS):
        chosen = ORDERS[order](table, scores, labels, rng)
        labels[chosen] = table.truth[chosen]
        scores, auc = table.fit(labels)
        aucs.append(auc)
    figures = {"mean AUC": np.mean(aucs[1:]), "anomalies found": (labels == ANOMALY).sum()}
    for share in (0.95, 0.8):
        enough = np.flatnonzero(np.array(aucs) >= share * table.best_auc)
        rounds = enough[0] if len(enough) else _ORDER_ROUNDS + 1
        figures[f"labels to {share:.0%}".replace("%", " %")] = _BATCH * rounds
    return {key: float(value) for key, value in figures.items()}


def report_orders(frame: pl.DataFrame, folder: Path) -> None:
    """Write orders.json: means over tables, and differences from random order."""
    figures: dict[str, Any] = {}
    for half, rows in group(ok_rows(frame), "half").items():
        orders = group(sorted(rows, key=lambda row: row["place"]), "method")
        figures[half] = {"tables": len(orders["random"])}
        for order, tables in orders.items():
            figures[half][order] = {"anomalies found": mean(tables, "anomalies found")}
            for name in ("labels to 95 %", "labels to 80 %", "mean AUC"):
                pairs = zip(tables, orders["random"], strict=True)
                gaps = difference([own[name] - random[name] for own, random in pairs])
                beside = {"mean": gaps["mean"], "standard error": gaps["se"]}
                figures[half][order][name] = {"mean": mean(tables, name), "beside random": beside}
    write_json(rounded(figures), folder / "orders.json")


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
    Experiment(
        name="label-orders",
        title="How many labels it takes, by the order in which rows are judged",
        cells=order_cells,
        run_cell=run_order,
        report=report_orders,
        folder="labelling",
        needs=COLLECTED,
        minutes="10 minutes",
    ),
)
