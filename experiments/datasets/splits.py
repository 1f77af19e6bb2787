"""Which rows to train on, which to test with, and which labels to keep.

All methods and all experiments with the same root seed share the splits of a trial.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.tables import Dataset, load_adbench
from experiments.runner import seed_of
from riskad import mask_labels
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes

_TEST_SHARE = 0.3  # of the rows are held back

# --- tables ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Training rows with the labels that were kept, and test rows with the truth."""

    X_train: NDArray[np.float64]
    y_train: Codes
    X_test: NDArray[np.float64]
    truth_test: Codes
    anomaly_rate: float

    def counts(self) -> dict[str, int]:
        """What a record says of the split."""
        return {
            "n_train": len(self.y_train),
            "n_test": len(self.truth_test),
            "n_normal": int((self.y_train == NORMAL).sum()),
            "n_anomaly": int((self.y_train == ANOMALY).sum()),
        }


@functools.lru_cache(maxsize=32)
def _load(name: str) -> Dataset:
    return load_adbench(name)


@functools.lru_cache(maxsize=4)
def make_split(
    dataset: str | Dataset, trial: int, root: int = 0, budget: float | str = 0.05
) -> Split:
    """Return the split of a trial; test rows are the same for every budget of labels.

    `dataset` is one, or the name of a set of ADBench. `budget` is the share of the training rows
    whose label is kept; or "5 anomalies", with no other label.
    """
    data = _load(dataset) if isinstance(dataset, str) else dataset
    n = len(data.y)
    order = np.random.default_rng(seed_of(root, data.name, trial, "split")).permutation(n)
    test, train = np.split(order, [round(_TEST_SHARE * n)])
    seed = seed_of(root, data.name, trial, "labels")
    count = anomaly_budget(budget)
    if count is None:
        y = mask_labels(data.y[train], float(budget), random_state=seed)
    else:
        y = label_anomalies(data.y[train], count, random_state=seed)
    return Split(data.X[train], y, data.X[test], data.y[test], data.anomaly_rate)


def anomaly_budget(budget: float | str) -> int | None:
    """How many anomalies alone a budget labels; None for a share of all rows.

    >>> anomaly_budget("5 anomalies"), anomaly_budget(0.05)
    (5, None)
    """
    match = re.fullmatch(r"([1-9]\d*) anomal(?:y|ies)", str(budget))
    return int(match[1]) if match else None


def label_anomalies(
    truth: Codes, count: int = 5, *, random_state: int | np.random.Generator | None = None
) -> Codes:
    """Keep the labels of `count` random anomalies and hide all others: no row is known as normal.

    If there are fewer anomalies than `count`, all of them are labelled.

    >>> truth = np.array([1] * 90 + [-1] * 10, dtype=np.int16)
    >>> np.unique_counts(label_anomalies(truth, 5, random_state=0)).counts.tolist()
    [5, 95]
    """
    anomalous = np.flatnonzero(truth == ANOMALY)
    kept = np.random.default_rng(random_state).permutation(anomalous)[:count]
    masked = np.full(len(truth), UNLABELLED, dtype=np.int16)
    masked[kept] = ANOMALY
    return masked


# --- images: one class is normal ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OneClassSplit:
    """Training rows with one normal class, and the labels that are kept.

    `rows` are indices of the training rows, ascending; `truth` is +1 normal or -1 anomaly for each.
    `y_rad` are the labels for rAD and Deep SAD, of both kinds, and `y_pu` those for nnPU, of normal
    rows alone; 0 is unlabelled.
    """

    rows: NDArray[np.int64]
    truth: Codes
    y_rad: Codes
    y_pu: Codes


def one_class_split(
    y: Any,
    normal_class: int,
    pi_n: float,
    gamma_l: float,
    *,
    random_state: int | np.random.Generator | None = None,
) -> OneClassSplit:
    """Draw the training rows of the paper's deep experiments, and the labels to keep.

    Of the n rows of the normal class round(n (1 - pi_n)) are kept, and rows of all other classes
    together replace the rest, so that there are n rows with the anomaly rate pi_n. With gamma_l the
    share of labelled rows,

        nnPU             round(gamma_l n) normal rows are labelled
        rAD, Deep SAD    round(gamma_l n (1 - pi_n)) of these normal rows, and
                         round(gamma_l n pi_n) anomalies, at least one

    and all other rows are unlabelled. All draws are uniform, without replacement.

    >>> split = one_class_split(np.arange(1000) % 10, 3, 0.1, 0.2, random_state=0)
    >>> len(split.rows), int((split.truth == ANOMALY).sum())
    (100, 10)
    >>> np.unique_counts(split.y_rad).counts.tolist(), int((split.y_pu == NORMAL).sum())
    ([2, 80, 18], 20)
    """
    y = np.asarray(y)
    rng = np.random.default_rng(random_state)
    normal, others = np.flatnonzero(y == normal_class), np.flatnonzero(y != normal_class)
    n = len(normal)
    n_p = round(n * (1 - pi_n))
    k_pu, k_p, k_n = round(gamma_l * n), round(gamma_l * n * (1 - pi_n)), round(gamma_l * n * pi_n)
    rows = np.concatenate(
        [rng.permutation(normal)[:n_p], rng.choice(others, n - n_p, replace=False)]
    )
    truth, y_rad, y_pu = np.zeros((3, n), dtype=np.int16)
    truth[:n_p], truth[n_p:] = NORMAL, ANOMALY
    # Rows are in random order within each kind, so the first ones are a random sample.
    y_pu[:k_pu] = NORMAL
    y_rad[:k_p], y_rad[n_p : n_p + max(k_n, 1)] = NORMAL, ANOMALY
    order = np.argsort(rows)  # an order that does not reveal kinds and labels
    return OneClassSplit(rows[order].astype(np.int64), truth[order], y_rad[order], y_pu[order])
