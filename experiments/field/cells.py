"""Methods of the field, and their cells: which are run how often with which labels.

All methods see the paper's splits (root seed 0) and the same labels. A budget says which labels of
the training rows are kept: "5 %" of the rows at random, or "5 anomalies" and no other label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.datasets import PAPER_SETS, make_split
from experiments.evaluation import fit_and_score
from experiments.field.environments import AutoGluon, Spade, TabPFNv1, TabPFNv2
from experiments.field.peers import Classifier, Peer, Scorer
from experiments.runner import Cell, NotAvailable, seed_of
from riskad import AutoRAD, BoostedRAD, ShallowRAD

ROOT = 0
FIVE = "5 anomalies"
BUDGETS = (FIVE, "1 %", "5 %", "10 %")
"""The smallest first."""
MAIN_BUDGET = "5 %"


@dataclass(frozen=True)
class Method:
    """An estimator with its settings, and in how many trials it is run with 5 % and otherwise.

    `with_five` are settings in place of the others where five anomalies alone are labelled.
    """

    make: Callable[..., Any]
    settings: Mapping[str, Any]
    trials: int
    other_trials: int
    with_five: Mapping[str, Any] | None = None

    @property
    def is_peer(self) -> bool:
        """Whether it is a method of others."""
        return isinstance(self.make, type) and issubclass(self.make, Peer)

    def n_trials(self, budget: str) -> int:
        """In how many trials it is run with a budget."""
        return self.trials if budget == MAIN_BUDGET else self.other_trials


_USUAL, _SLOW, _SLOWEST, _RECENT = (30, 5), (3, 5), (3, 1), (3, 0)
"""Trials with 5 %, and with each other budget."""


def _classifier(
    peer: str, trials: tuple[int, int], *, plus_u: bool = False, **options: Any
) -> Method:
    """A classifier; with `plus_u` unlabelled rows are taken as normal."""
    settings = {"peer": peer, "unlabelled": "normal" if plus_u else "drop"}
    settings |= {"standardise": peer == _LOGISTIC, "options": _OPTIONS.get(peer, {}) | options}
    return Method(Classifier, settings, *trials)


def _deep(name: str) -> Method:
    options = {"epochs": 50, "epoch_steps": 20, "verbose": 0}
    peer = f"deepod.models.tabular.{name}"
    return Method(Scorer, {"peer": peer, "standardise": True, "options": options}, *_SLOWEST)


_FOREST = "sklearn.ensemble.RandomForestClassifier"
_EXTRA = "sklearn.ensemble.ExtraTreesClassifier"
_LOGISTIC = "sklearn.linear_model.LogisticRegression"
_CATBOOST = "catboost.CatBoostClassifier"
_LIGHTGBM = "lightgbm.LGBMClassifier"
_XGBOOST = "xgboost.XGBClassifier"
_BALANCED: dict[str, Any] = {"class_weight": "balanced"}
_OPTIONS: dict[str, dict[str, Any]] = {
    _FOREST: {"n_estimators": 300, **_BALANCED},
    _EXTRA: {"n_estimators": 300},
    _LOGISTIC: {**_BALANCED, "max_iter": 2000},
    _CATBOOST: {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
    _LIGHTGBM: {"min_child_samples": 5, "n_jobs": 1, "verbosity": -1},
    _XGBOOST: {"min_child_weight": 1e-3, "n_jobs": 1},
}

# Classifiers come twice: on labelled rows alone, and with unlabelled rows as normal (+U). They have
# their defaults but for what is written here. Balanced forests, and boosting with smaller leaves,
# did better on test rows of two trials of ten of the sets and were taken in their favour: XGBoost
# and LightGBM may find no split with their defaults where a few dozen rows are labelled. Logistic
# regression and CatBoost were not tuned.
METHODS: dict[str, Method] = {
    "AutoRAD": Method(AutoRAD, {}, *_USUAL),
    # What it is made of, in as many trials as the slow methods have. Without labelled normal rows
    # there is the nu risk.
    "BoostedRAD": Method(BoostedRAD, {}, *_SLOW, with_five={"risk": "nu"}),
    "ShallowRAD": Method(ShallowRAD, {"lam": "cv"}, *_SLOW, with_five={"risk": "nu", "lam": "cv"}),
    "LogReg": _classifier(_LOGISTIC, _USUAL),
    "LogReg+U": _classifier(_LOGISTIC, _USUAL, plus_u=True),
    "RandomForest": _classifier(_FOREST, _USUAL),
    "ExtraTrees": _classifier(_EXTRA, _USUAL),
    "LightGBM": _classifier(_LIGHTGBM, _USUAL),
    "LightGBM+U": _classifier(_LIGHTGBM, _USUAL, plus_u=True, **_BALANCED),
    "XGBoost": _classifier(_XGBOOST, _USUAL),
    "XGBoost+U": _classifier(_XGBOOST, _USUAL, plus_u=True),
    "CatBoost": _classifier(_CATBOOST, _USUAL),
    "RandomForest+U": _classifier(_FOREST, _SLOW, plus_u=True),
    "ExtraTrees+U": _classifier(_EXTRA, _SLOW, plus_u=True),
    "CatBoost+U": _classifier(_CATBOOST, _SLOW, plus_u=True),
    "SelfTraining": Method(
        Classifier, {"peer": _FOREST, "unlabelled": "self-training", "options": _BALANCED}, *_SLOW
    ),
    # Its two dozen unsupervised detectors take minutes on the larger sets; a sample of the
    # unlabelled rows serves them.
    "XGBOD": Method(Scorer, {"peer": "pyod.models.xgbod.XGBOD", "most_rows": 5000}, *_SLOWEST),
    # DeepOD's four detectors that take labels. Their default, 100 epochs over all rows, takes long.
    # DevNet and PReNet were published with 50 epochs of 20 steps, though of 512 rows, not 64. In
    # one trial of pendigits, AUC with the default and with these: Deep SAD 0.59 and 0.71, PReNet
    # 0.44 and 0.58, RoSAS 0.85 and 0.82, DevNet 0.80 and 0.97.
    "DeepSAD": _deep("DeepSAD"),
    "PReNet": _deep("PReNet"),
    "RoSAS": _deep("RoSAS"),
    # As it is shipped: its loss pairs every score with every label of a batch, so that labels
    # matter for the choice of rows alone. With each score paired with its own label it did worse in
    # one trial each of pendigits, cardio, thyroid and SpamBase, by 0.17 to 0.39 in AUC.
    "DevNet": _deep("DevNet"),
    # The recent ones, with 5 % alone. Both settings are what RealMLP's documentation recommends for
    # the AUC: labels that are not smoothed, and the epoch chosen by cross-entropy, not by errors.
    "RealMLP": _classifier(
        "pytabkit.RealMLP_TD_Classifier",
        _RECENT,
        **{"use_ls": False, "val_metric_name": "cross_entropy", "n_threads": 1},
    ),
    # A search of ten seconds among its default kinds of model; how far it comes depends on the
    # machine.
    "FLAML": _classifier(
        "flaml.AutoML",
        _RECENT,
        task="classification",
        metric="roc_auc",
        time_budget=10,
        n_jobs=1,
        verbose=0,
    ),
    # Four configurations of its ensemble, one more than its default and far fewer than the 32 it
    # was published with. At most 1,000 labelled rows (campaign has more), of more than 100 columns
    # (InternetAds) components.
    "TabPFN v1": Method(TabPFNv1, {"options": {"N_ensemble_configurations": 4}}, *_RECENT),
    # As many members of its ensemble as of the first version's; its default is eight.
    "TabPFN v2": Method(TabPFNv2, {"options": {"n_estimators": 4}}, *_RECENT),
    # A search of at most twenty seconds, with one thread.
    "AutoGluon": Method(
        AutoGluon,
        {"options": {"presets": "medium_quality", "time_limit": 20, "num_cpus": 1, "num_gpus": 0}},
        *_RECENT,
    ),
    # It alone of the recent ones learns from unlabelled rows, too. Its defaults.
    "SPADE": Method(Spade, {}, *_RECENT),
}


def cells() -> Iterator[Cell]:
    """All cells, trial by trial: after each, the records hold a complete small experiment."""
    for trial in range(max(method.trials for method in METHODS.values())):
        for dataset in PAPER_SETS:
            for name, method in METHODS.items():
                for budget in BUDGETS:
                    if trial < method.n_trials(budget):
                        yield Cell(dataset=dataset, method=name, budget=budget, trial=trial)


def make_estimator(name: str, budget: str = MAIN_BUDGET, seed: int | None = None) -> Any:
    """The unfitted estimator of a method; seeds go to those that take one."""
    method = METHODS[name]
    is_other = budget == FIVE and method.with_five is not None
    estimator = method.make(**(method.with_five if is_other else method.settings))
    if isinstance(estimator, Peer) and (reason := estimator.missing()):
        raise NotAvailable(reason, method=name)
    return estimator.set_params(random_state=seed)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit the method of a cell to the training rows and score the test rows once."""
    dataset, trial, budget = cell["dataset"], cell["trial"], cell["budget"]
    labels = budget if budget == FIVE else float(budget.removesuffix(" %")) / 100
    split = make_split(dataset, trial, ROOT, budget=labels)
    seed = seed_of(ROOT, dataset, trial, "method")
    estimator = make_estimator(cell["method"], budget, seed)
    peer = {"peer": estimator.version()} if METHODS[cell["method"]].is_peer else {}
    return {"seed": seed, **split.counts(), **peer, **fit_and_score(estimator, split)}
