"""Methods of the field, and their cells: which are run how often with which labels.

All methods see the paper's splits (root seed 0) and the same labels. A budget says which labels of
the training rows are kept: "5 %" of the rows at random, or "5 anomalies" and no other label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    settings: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 3
    other_trials: int = 0
    with_five: Mapping[str, Any] | None = None

    @property
    def is_peer(self) -> bool:
        """Whether it is a method of others."""
        return isinstance(self.make, type) and issubclass(self.make, Peer)

    def n_trials(self, budget: str) -> int:
        """In how many trials it is run with a budget."""
        return self.trials if budget == MAIN_BUDGET else self.other_trials

    def estimator(self, budget: str, seed: int) -> Any:
        """The unfitted estimator; seeds go to those that take one."""
        settings = self.settings
        if budget == FIVE and self.with_five is not None:
            settings = self.with_five
        estimator = self.make(**settings)
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=seed)
        return estimator


def _classifier(peer: str, options: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    return {"peer": peer, "options": dict(options), **settings}


_FOREST = "sklearn.ensemble.RandomForestClassifier"
_EXTRA = "sklearn.ensemble.ExtraTreesClassifier"
_LOGISTIC = "sklearn.linear_model.LogisticRegression"
_CATBOOST = "catboost.CatBoostClassifier"
_LIGHTGBM = "lightgbm.LGBMClassifier"
_XGBOOST = "xgboost.XGBClassifier"
_BALANCED = {"class_weight": "balanced"}
_LOGISTIC_OPTIONS = {**_BALANCED, "max_iter": 2000}
_FOREST_OPTIONS = {"n_estimators": 300, **_BALANCED}
_CATBOOST_OPTIONS = {"thread_count": 1, "verbose": 0, "allow_writing_files": False}
_LIGHTGBM_OPTIONS = {"min_child_samples": 5, "n_jobs": 1, "verbosity": -1}
_XGBOOST_OPTIONS = {"min_child_weight": 1e-3, "n_jobs": 1}
_USUAL: dict[str, Any] = {"trials": 30, "other_trials": 5}
_SLOW: dict[str, Any] = {"trials": 3, "other_trials": 5}
_SLOWEST: dict[str, Any] = {"trials": 3, "other_trials": 1}


def _deep(name: str) -> Method:
    settings = {
        "peer": f"deepod.models.tabular.{name}",
        "standardise": True,
        "options": {"epochs": 50, "epoch_steps": 20, "verbose": 0},
    }
    return Method(Scorer, settings, **_SLOWEST)


def _with_unlabelled(peer: str, options: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    return _classifier(peer, options, unlabelled="normal", **settings)


# Classifiers come twice: on labelled rows alone, and with unlabelled rows as normal (+U). They have
# their defaults but for what is written here. Balanced forests, and boosting with smaller leaves,
# did better on test rows of two trials of ten of the sets and were taken in their favour: XGBoost
# and LightGBM may find no split with their defaults where a few dozen rows are labelled. Logistic
# regression and CatBoost were not tuned.
METHODS: dict[str, Method] = {
    "AutoRAD": Method(AutoRAD, **_USUAL),
    # What it is made of, in as many trials as the slow methods have. Without labelled normal rows
    # there is the nu risk.
    "BoostedRAD": Method(BoostedRAD, with_five={"risk": "nu"}, **_SLOW),
    "ShallowRAD": Method(ShallowRAD, {"lam": "cv"}, with_five={"risk": "nu", "lam": "cv"}, **_SLOW),
    "LogReg": Method(
        Classifier, _classifier(_LOGISTIC, _LOGISTIC_OPTIONS, standardise=True), **_USUAL
    ),
    "LogReg+U": Method(
        Classifier, _with_unlabelled(_LOGISTIC, _LOGISTIC_OPTIONS, standardise=True), **_USUAL
    ),
    "RandomForest": Method(Classifier, _classifier(_FOREST, _FOREST_OPTIONS), **_USUAL),
    "ExtraTrees": Method(Classifier, _classifier(_EXTRA, {"n_estimators": 300}), **_USUAL),
    "LightGBM": Method(Classifier, _classifier(_LIGHTGBM, _LIGHTGBM_OPTIONS), **_USUAL),
    "LightGBM+U": Method(
        Classifier, _with_unlabelled(_LIGHTGBM, {**_LIGHTGBM_OPTIONS, **_BALANCED}), **_USUAL
    ),
    "XGBoost": Method(Classifier, _classifier(_XGBOOST, _XGBOOST_OPTIONS), **_USUAL),
    "XGBoost+U": Method(Classifier, _with_unlabelled(_XGBOOST, _XGBOOST_OPTIONS), **_USUAL),
    "CatBoost": Method(Classifier, _classifier(_CATBOOST, _CATBOOST_OPTIONS), **_USUAL),
    "RandomForest+U": Method(Classifier, _with_unlabelled(_FOREST, _FOREST_OPTIONS), **_SLOW),
    "ExtraTrees+U": Method(Classifier, _with_unlabelled(_EXTRA, {"n_estimators": 300}), **_SLOW),
    "CatBoost+U": Method(Classifier, _with_unlabelled(_CATBOOST, _CATBOOST_OPTIONS), **_SLOW),
    "SelfTraining": Method(
        Classifier, _classifier(_FOREST, _BALANCED, unlabelled="self-training"), **_SLOW
    ),
    # Its two dozen unsupervised detectors take minutes on the larger sets; a sample of the
    # unlabelled rows serves them.
    "XGBOD": Method(Scorer, {"peer": "pyod.models.xgbod.XGBOD", "most_rows": 5000}, **_SLOWEST),
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
    "RealMLP": Method(
        Classifier,
        _classifier(
            "pytabkit.RealMLP_TD_Classifier",
            {"use_ls": False, "val_metric_name": "cross_entropy", "n_threads": 1},
        ),
    ),
    # A search of ten seconds among its default kinds of model; how far it comes depends on the
    # machine.
    "FLAML": Method(
        Classifier,
        _classifier(
            "flaml.AutoML",
            {
                "task": "classification",
                "metric": "roc_auc",
                "time_budget": 10,
                "n_jobs": 1,
                "verbose": 0,
            },
        ),
    ),
    # Four configurations of its ensemble, one more than its default and far fewer than the 32 it
    # was published with. At most 1,000 labelled rows (campaign has more), of more than 100 columns
    # (InternetAds) components.
    "TabPFN v1": Method(TabPFNv1, {"options": {"N_ensemble_configurations": 4}}),
    # As many members of its ensemble as of the first version's; its default is eight.
    "TabPFN v2": Method(TabPFNv2, {"options": {"n_estimators": 4}}),
    # A search of at most twenty seconds, with one thread.
    "AutoGluon": Method(
        AutoGluon,
        {
            "options": {
                "presets": "medium_quality",
                "time_limit": 20,
                "num_cpus": 1,
                "num_gpus": 0,
            }
        },
    ),
    # It alone of the recent ones learns from unlabelled rows, too. Its defaults.
    "SPADE": Method(Spade),
}


def cells() -> Iterator[Cell]:
    """All cells, trial by trial: after each, the records hold a complete small experiment."""
    most = max(method.n_trials(budget) for method in METHODS.values() for budget in BUDGETS)
    for trial in range(most):
        for dataset in PAPER_SETS:
            for name, method in METHODS.items():
                for budget in BUDGETS:
                    if trial < method.n_trials(budget):
                        yield Cell(dataset=dataset, method=name, budget=budget, trial=trial)


def share(budget: str) -> float | str:
    """The budget as splits have it: a share of the rows, or so many anomalies.

    >>> share("5 %"), share("5 anomalies")
    (0.05, '5 anomalies')
    """
    return float(budget.removesuffix(" %")) / 100 if budget.endswith(" %") else budget


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit the method of a cell to the training rows and score the test rows once."""
    dataset, trial, budget = cell["dataset"], cell["trial"], cell["budget"]
    split = make_split(dataset, trial, ROOT, budget=share(budget))
    seed = seed_of(ROOT, dataset, trial, "method")
    estimator = METHODS[cell["method"]].estimator(budget, seed)
    peer = {}
    if isinstance(estimator, Peer):
        if reason := estimator.missing():
            raise NotAvailable(reason, method=cell["method"])
        peer = {"peer": estimator.version()}
    return {"seed": seed, **split.counts(), **peer, **fit_and_score(estimator, split)}
