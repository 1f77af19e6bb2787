"""What choices are worth on the paper's sets: lambda, and trees over lines.

`lambda-rules`: 70 % of the rows are for training, some of them labelled: 5 % at random, as in the
paper ("5 %"), or a number of anomalies with ten times as many normals ("2 + 20"). Splits are this
study's own.

`trees`: detectors of trees beside trees on labelled rows alone. The same splits set the defaults of
BoostedRAD and ForestRAD.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.datasets import PAPER_SETS, load_adbench, make_split
from experiments.runner import Cell, Experiment, NotAvailable
from experiments.summaries import (
    DATA,
    Row,
    grid,
    group,
    json_page,
    mean,
    rounded,
)
from riskad import BoostedRAD, ForestRAD, ShallowRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes

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
