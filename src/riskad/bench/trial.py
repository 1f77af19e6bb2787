"""One cell: split, hide labels, fit on the training rows, score the test rows once."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from riskad.bench.experiment import Cell, anomaly_budget, seed_of
from riskad.bench.peers import NotApplicable, Peer
from riskad.bench.provenance import provenance
from riskad.bench.records import FAILED, OK, SKIPPED
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL
from riskad.datasets import DatasetSource, label_anomalies, mask_labels, read_source

__all__ = [
    "Split",
    "build_estimator",
    "dataset_of",
    "find_object",
    "make_split",
    "run_cell",
    "split_of",
]

# scikit-learn's SGD, which the published runs used, penalises alpha / 2 ||w||^2 beside a mean over
# n rows. Their sample weights summed to about one, so against the risk the penalty weighs n times
# as much: lambda = n alpha / 2, with alpha = 0.01.
_PUBLISHED_LAMBDA_PER_ROW = 0.005


@dataclass(frozen=True)
class Split:
    """Training rows with the labels that were kept, and test rows with the truth."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    truth_test: np.ndarray
    anomaly_rate: float


@functools.lru_cache(maxsize=32)
def dataset_of(source: DatasetSource) -> Any:
    """The dataset of a source, read once."""
    return source.load()


@functools.lru_cache(maxsize=4)
def make_split(
    dataset: str | DatasetSource,
    trial: int,
    root: int,
    test_share: float,
    labelled: float | str,
) -> Split:
    """The split of a trial; all methods and all experiments with the same root share it.

    Test rows are the same for every budget of labels. A name is that of a set of ADBench.
    """
    source = read_source(dataset) if isinstance(dataset, str) else dataset
    data, name = dataset_of(source), source.name
    n = len(data.y)
    order = np.random.default_rng(seed_of(root, name, trial, "split")).permutation(n)
    test, train = np.split(order, [round(test_share * n)])
    y = _keep_labels(data.y[train], labelled, seed_of(root, name, trial, "labels"))
    _check_test_part(name, data.y[test])
    X_train, X_test = data.parts(train, test)
    return Split(X_train, y, X_test, data.y[test], data.anomaly_rate)


def _check_test_part(name: str, truth: np.ndarray) -> None:
    """Refuse test rows of one kind alone: there would be nothing to tell apart."""
    kinds = {"normal rows": NORMAL, "anomalies": ANOMALY}
    for kind, code in kinds.items():
        if not (truth == code).any():
            raise InputError(
                f"the {len(truth):,} test rows of {name!r} hold no {kind}. Raise test_share, or "
                "give a table with more of them."
            )


def _keep_labels(truth: np.ndarray, labelled: float | str, seed: int) -> np.ndarray:
    """The labels that a budget keeps."""
    count = anomaly_budget(labelled)
    if count is None:
        return mask_labels(truth, float(labelled), random_state=seed)
    return label_anomalies(truth, count, random_state=seed)


def split_of(cell: Cell) -> Split:
    """Return the split of a cell, which it shares with others of its trial."""
    assert cell.test_share is not None, "a cell of images"
    return make_split(
        cell.source or cell.dataset, cell.trial, cell.root, cell.test_share, cell.labelled
    )


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run one cell; whatever goes wrong in it becomes a record with the reason.

    A method that cannot learn from the kinds of label there are is skipped, which is no failure.
    """
    seed = seed_of(cell.root, cell.dataset, cell.trial, "method")
    record = cell.identity | {"settings": dict(cell.settings), "seed": seed}
    if cell.measure is not None:
        return record | _measured(cell, find_object(cell.measure)) | provenance()
    try:
        split = split_of(cell)
        record |= _counts(split)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            published = {"published": _PUBLISHED_LAMBDA_PER_ROW * len(split.y_train)}
            priors = prior_words(split.anomaly_rate)
            estimator = build_estimator(cell, seed, prior=priors, lam=published)
            record |= {"peer": estimator.version()} if isinstance(estimator, Peer) else {}
            outcome = _fit_and_score(estimator, split)
        outcome |= kept_warnings(caught) | {"status": OK}
    except NotApplicable as error:
        outcome = {"status": SKIPPED, "reason": str(error)}
    except Exception as error:
        outcome = failure(error)
    return record | outcome | provenance()


def _measured(cell: Cell, measure: Callable[[Cell], Mapping[str, Any]]) -> dict[str, Any]:
    """What a function of a study says of a cell."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = dict(measure(cell))
        return outcome | kept_warnings(caught) | {"status": OK}
    except NotApplicable as error:
        return {"status": SKIPPED, "reason": str(error)}
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> dict[str, str]:
    """What a record says of a cell that failed."""
    return {"status": FAILED, "reason": f"{type(error).__name__}: {error}"}


def kept_warnings(caught: Sequence[warnings.WarningMessage]) -> dict[str, list[str]]:
    """What a record says of the warnings of a fit, if there were any."""
    said = sorted({str(entry.message)[:200] for entry in caught})
    return {"warnings": said} if said else {}


def _counts(split: Split) -> dict[str, int]:
    return {
        "n_train": len(split.y_train),
        "n_test": len(split.truth_test),
        "n_normal": int((split.y_train == NORMAL).sum()),
        "n_anomaly": int((split.y_train == ANOMALY).sum()),
    }


def prior_words(anomaly_rate: float) -> dict[str, float]:
    """What the words for the assumed share of normal rows mean."""
    return {"true": 1 - anomaly_rate, "flipped": anomaly_rate}


def build_estimator(cell: Cell, seed: int, **words: Mapping[str, float]) -> Any:
    """The unfitted estimator of a cell; `words` say for some settings what their words mean."""
    settings = dict(cell.settings)
    for name, meanings in words.items():
        if isinstance(word := settings.get(name), str):
            settings[name] = meanings.get(word, word)
    estimator = find_object(str(cell.estimator))(**settings)
    if "random_state" in estimator.get_params() and "random_state" not in settings:
        estimator.set_params(random_state=seed)
    return estimator


def find_object(path: str) -> Any:
    """The class or function at a dotted path such as "riskad.ShallowRAD"."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, ValueError) as error:
        why = str(error).removesuffix(".")
        raise InputError(f"{path!r} cannot be imported: {why}.") from None
    if found is None:
        raise InputError(f"{path!r} cannot be imported: {module!r} has no attribute {name!r}.")
    return found


def _fit_and_score(estimator: Any, split: Split) -> dict[str, Any]:
    start = time.perf_counter()
    estimator.fit(split.X_train, split.y_train)
    fitted = time.perf_counter()
    scores = estimator.score_samples(split.X_test)
    scored = time.perf_counter()
    anomalous = split.truth_test == ANOMALY
    outcome = {
        "auc": round(float(roc_auc_score(anomalous, -scores)), 6),
        "average_precision": round(float(average_precision_score(anomalous, -scores)), 6),
        "fit_seconds": round(fitted - start, 4),
        "score_seconds": round(scored - fitted, 4),
    }
    if hasattr(estimator, "lambda_"):
        outcome["lambda"] = float(f"{estimator.lambda_:.6g}")
    return outcome
