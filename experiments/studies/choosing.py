"""What choices are worth on the paper's sets: lambda, a and the prior, and trees over lines.

`choosing`: ShallowRAD(select="cv") beside the defaults and beside the tight lambda, to which ties
go, all with modified Huber loss (`results/theory/choosing.md`). A set is worse where the mean gain
of its trials over the defaults is below minus its standard error.

`lambda-rules`: 70 % of the rows are for training, some of them labelled: 5 % at random, as in the
paper ("5 %"), or a number of anomalies with ten times as many normals ("2 + 20"). Splits are this
study's own.

`trees`: detectors of trees beside trees on labelled rows alone. The same splits set the defaults of
BoostedRAD and ForestRAD.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.datasets import PAPER_SETS, load_adbench, make_split
from experiments.runner import Cell, Experiment, NotAvailable, seed_of
from experiments.summaries import (
    DATA,
    Row,
    commits,
    difference,
    grid,
    group,
    json_page,
    mean,
    rounded,
)
from riskad import BoostedRAD, ForestRAD, ShallowRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes

# --- a, the prior and lambda, all at once ----------------------------------------------------

_WAYS: dict[str, dict[str, Any]] = {
    "default": {"lam": "theorem"},
    "tight": {"lam": "tight"},
    "chosen": {"select": "cv"},
}
_TARGETS = {"gain": 0.008, "sets_worse": 5, "coverage": 0.9, "time_ratio": 20}
_BANDS = {"1": (1, 1), "2 to 3": (2, 3), "4 to 9": (4, 9), "10 or more": (10, np.inf)}


def run_choosing(cell: Cell) -> dict[str, Any]:
    """Return AUC on test rows and seconds of each way, and the interval that was reported."""
    split = make_split(cell["dataset"], cell["trial"])
    seed = seed_of(0, cell["dataset"], cell["trial"], "method")
    metrics: dict[str, Any] = {"n_anomaly": int((split.y_train == ANOMALY).sum())}
    for way in ("default", *_WAYS):  # the first fit warms caches
        model = ShallowRAD("modified_huber", random_state=seed, **_WAYS[way])
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        metrics[f"{way}_seconds"] = time.perf_counter() - start
        scores = model.score_samples(split.X_test)
        metrics[way] = float(roc_auc_score(split.truth_test == ANOMALY, -scores))
    auc = model.selection_.auc
    metrics |= {"low": auc.low, "reported": auc.value, "high": auc.high}
    return metrics | {"kept_default": bool(model.selection_.chosen == 0)}


def choosing_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return gains and coverage over all sets, and by set."""
    sets: dict[str, Any] = {
        name: _of_set(trials) for name, trials in group(rows, "dataset").items()
    }
    ratios = [each["time_ratio"] for each in sets.values()]
    total = mean(rows, "chosen_seconds") / mean(rows, "default_seconds")
    bands = {
        name: [row for row in rows if least <= row["n_anomaly"] <= most]
        for name, (least, most) in _BANDS.items()
    }
    figures = {
        "tuned_on": "splits of root seeds 101 and 102 only",
        "targets": _TARGETS,
        "auc": {way: fmean(each["auc"][way] for each in sets.values()) for way in _WAYS},
        "gain": mean(sets.values(), "gain"),
        "sets_worse": [name for name, each in sets.items() if each["worse"]],
        "trials": len(rows),
        "coverage": fmean(map(_covers, rows)),
        "by_n_anomaly": {
            name: {
                "trials": len(band),
                "coverage": fmean(map(_covers, band)),
                "width": mean(band, "high") - mean(band, "low"),
            }
            for name, band in bands.items()
            if band
        },
        "time_ratio": {"total": total, "median_set": median(ratios), "slowest_set": max(ratios)},
        "sets": sets,
        "commits": commits(rows),
    }
    return rounded(figures)


def _of_set(trials: Sequence[Row]) -> dict[str, Any]:
    gain = difference([row["chosen"] - row["default"] for row in trials])
    return {
        "n_anomaly": mean(trials, "n_anomaly"),
        "auc": {way: mean(trials, way) for way in _WAYS},
        "gain": gain["mean"],
        "gain_se": gain["se"],
        "worse": gain["mean"] < -gain["se"],
        "kept_default": sum(row["kept_default"] for row in trials),
        "reported": mean(trials, "reported"),
        "trials": len(trials),
        "covered": sum(map(_covers, trials)),
        "time_ratio": median(row["chosen_seconds"] / row["default_seconds"] for row in trials),
    }


def _covers(row: Row) -> bool:
    return bool(row["low"] <= row["chosen"] <= row["high"])


# --- rules for lambda ------------------------------------------------------------------------

_RULES = ("theorem", "tight", "cv")
_BUDGETS = ("5 %", "2 + 20", "3 + 30", "5 + 50", "10 + 100")
_TEXTS_AND_IMAGES = {"CIFAR10_1", "SVHN_1", "20news_1", "agnews_1", "amazon", "imdb", "yelp"}
_TABLES = [name for name in PAPER_SETS if name not in _TEXTS_AND_IMAGES]


def run_rules(cell: Cell) -> dict[str, float]:
    """Return the AUC of each rule on the held-out rows of one split."""
    data, rng = load_adbench(cell["dataset"]), np.random.default_rng(cell["trial"])
    train, test = np.split(rng.permutation(len(data.y)), [int(0.7 * len(data.y))])
    y = _some_labels(data.y[train], cell["budget"], rng)
    X_train, X_test = data.X[train], data.X[test]
    models = {rule: ShallowRAD(lam=rule).fit(X_train, y) for rule in _RULES}
    return {
        rule: float(roc_auc_score(data.y[test], model.score_samples(X_test)))
        for rule, model in models.items()
    }


def _some_labels(truth: np.ndarray, budget: str, rng: np.random.Generator) -> Codes:
    """Codes of the training rows, with at least two labelled rows of each kind."""
    if budget != "5 %":
        n_anomalies, n_normals = map(int, budget.split(" + "))
        order = rng.permutation(len(truth))
        codes = np.zeros(len(truth), dtype=np.int16)
        for kind, count in ((ANOMALY, n_anomalies), (NORMAL, n_normals)):
            codes[order[truth[order] == kind][:count]] = kind
        return codes
    while True:
        codes = np.where(rng.random(len(truth)) < 0.05, truth, 0).astype(np.int16)
        if min((codes == ANOMALY).sum(), (codes == NORMAL).sum()) >= 2:
            return codes


def rule_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean AUCs by budget and rule."""
    budgets = sorted(group(rows, "budget").items(), key=lambda item: _BUDGETS.index(item[0]))
    means = {name: {rule: mean(cells, rule) for rule in _RULES} for name, cells in budgets}
    about = {"sets": sorted(group(rows, "dataset")), "trials": len(group(rows, "trial"))}
    return about | {"auc": rounded(means)}


# --- trees -----------------------------------------------------------------------------------

_TREE_SETS = ["fault", "SpamBase", "Stamps", "thyroid", "vertebral", "vowels", "Waveform"]
_TREE_SETS += ["cardio", "Cardiotocography"]


def _lightgbm() -> Any:
    try:
        from lightgbm import LGBMClassifier
    except ImportError as error:
        raise NotAvailable(str(error), method="LightGBM, labelled rows") from None
    # LightGBM's own least 20 rows a leaf would leave most of these sets without a split.
    return LGBMClassifier(min_child_samples=1, verbosity=-1, n_jobs=1, random_state=0)


# The classifiers learn from labelled rows alone.
TREES: dict[str, Callable[[], Any]] = {
    "LightGBM, labelled rows": _lightgbm,
    "extra trees, labelled rows": lambda: ExtraTreesClassifier(300, random_state=0),
    "ShallowRAD, lam='cv'": lambda: ShallowRAD(lam="cv", random_state=0),
    "BoostedRAD": lambda: BoostedRAD(random_state=0),
    "BoostedRAD, a=0": lambda: BoostedRAD(a=0, random_state=0),
    "BoostedRAD, nnrad": lambda: BoostedRAD(risk="nnrad", random_state=0),
    "BoostedRAD, early stopping": lambda: BoostedRAD(early_stopping=True, random_state=0),
    "ForestRAD": lambda: ForestRAD(random_state=0),
    "ForestRAD, a=0": lambda: ForestRAD(a=0, random_state=0),
}


def run_trees(cell: Cell) -> dict[str, float]:
    """Return AUC and average precision on test rows, and the seconds of a fit."""
    split = make_split(cell["dataset"], cell["trial"], cell["root"])
    model, start = TREES[cell["method"]](), time.perf_counter()
    if supervised := cell["method"].endswith("labelled rows"):
        labelled = split.y_train != UNLABELLED
        model.fit(split.X_train[labelled], (split.y_train[labelled] == ANOMALY).astype(int))
    else:
        model.fit(split.X_train, split.y_train)
    seconds, X = time.perf_counter() - start, split.X_test
    scores = model.predict_proba(X)[:, 1] if supervised else -model.score_samples(X)
    truth = split.truth_test == ANOMALY
    return {
        "auc": float(roc_auc_score(truth, scores)),
        "average_precision": float(average_precision_score(truth, scores)),
        "seconds": seconds,
    }


def tree_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means over sets of means over splits, and the latter."""
    figures: dict[str, Any] = {}
    for method, cells in group(rows, "method").items():
        sets = group(cells, "dataset").values()
        names = ("auc", "average_precision", "seconds")
        figures[method] = {name: fmean(mean(each, name) for each in sets) for name in names}
        figures[method]["auc_by_set"] = {each[0]["dataset"]: mean(each, "auc") for each in sets}
    return rounded(figures)


EXPERIMENTS = (
    Experiment(
        name="choosing",
        title="What it is worth to choose a, prior and lambda from the data",
        cells=grid(trial=range(30), dataset=PAPER_SETS),
        run_cell=run_choosing,
        report=json_page("choosing.json", choosing_figures),
        folder="theory",
        needs=DATA,
        minutes="5 minutes",
    ),
    Experiment(
        name="lambda-rules",
        title="How the rules for lambda rank held-out rows, by number of labels",
        cells=grid(trial=range(5), dataset=_TABLES, budget=_BUDGETS),
        run_cell=run_rules,
        report=json_page("lambda_rules.json", rule_figures),
        folder="",
        needs=DATA,
        minutes="10 minutes",
    ),
    Experiment(
        name="trees",
        title="Trees that use unlabelled rows, beside trees on labelled rows alone",
        cells=grid(trial=range(3), root=(101, 102), dataset=_TREE_SETS, method=TREES),
        run_cell=run_trees,
        report=json_page("trees.json", tree_figures),
        folder="",
        needs=f"{DATA}, lightgbm",
        minutes="10 minutes",
    ),
)
