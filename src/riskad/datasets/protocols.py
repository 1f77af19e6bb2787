"""The paper's protocols: which rows to train on, and which of their labels to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    Codes,
    LabelCodes,
    count_labels,
    read_codes,
)

__all__ = ["OneClassSplit", "label_anomalies", "mask_labels", "one_class_split"]


# --- tables: hide labels -----------------------------------------------------------------


def mask_labels(
    truth: Any,
    fraction: float = 0.05,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Codes:
    """Keep the labels of a few random rows and hide all others, as in the paper's experiments.

    Draws k = round(fraction n) of the n rows uniformly at random, and repeats the draw until it
    contains an anomaly. Unlike the paper, it must also contain a normal row: without one the
    labelled rows carry no information on normal rows, and risks that use it are not defined. At the
    paper's rates a draw without a normal row hardly ever occurs.

    Repeating draws would take long when anomalies are rare, so the accepted draw is made directly.
    Among k rows chosen uniformly from n_p normal rows and n_n anomalies, the number A of anomalies
    is hypergeometric,

        P(A = j) proportional to C(n_n, j) C(n_p, k - j),

    and given A the anomalies are uniform among the anomalies and the normal rows uniform among the
    normal rows. Repeating the draw until 1 <= A <= k - 1 conditions on this event, which depends
    only on A: it restricts A to these values in the same proportions, and leaves the distribution
    of the rows given A unchanged. So A is drawn from the restricted distribution, then A anomalies
    and k - A normal rows.

    Parameters
    ----------
    truth
        +1 normal or -1 anomaly for each training row; both must occur. Leave out test rows.
    fraction
        Share of rows to label, strictly between 0 and 1; at least two rows.
    random_state
        A seed or a generator; the same seed gives the same labels. None draws new labels each time.

    Returns
    -------
    int8 array: the truth of the chosen rows, 0 (unlabelled) for all others.

    Examples
    --------
    >>> truth = [1] * 97 + [-1] * 3
    >>> y = mask_labels(truth, 0.05, random_state=0)
    >>> count_labels(y)
    LabelCounts(normal=4, anomaly=1, unlabelled=95)
    >>> mask_labels([1, 1, -1], 0.05)
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: fraction=0.05 of 3 rows labels 0 of them, but two are needed, \
one of each kind. Give at least fraction=0.67.
    """
    codes = _check_truth(truth)
    fraction = check_in_interval("fraction", fraction, 0, 1)
    k = _check_count(fraction, len(codes))
    rng = _generator(random_state)
    normal, anomalous = np.flatnonzero(codes == NORMAL), np.flatnonzero(codes == ANOMALY)
    counts, probabilities = _anomaly_counts(len(normal), len(anomalous), k)
    a = int(rng.choice(counts, p=probabilities))
    masked = LabelCodes.of(np.full(len(codes), UNLABELLED, dtype=np.int8))
    masked[rng.choice(anomalous, a, replace=False)] = ANOMALY
    masked[rng.choice(normal, k - a, replace=False)] = NORMAL
    return masked


def label_anomalies(
    truth: Any,
    count: int = 5,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Codes:
    """Keep the labels of `count` random anomalies and hide all others: no row is known as normal.

    If there are fewer anomalies than `count`, all of them are labelled.

    Parameters
    ----------
    truth
        +1 normal or -1 anomaly for each training row; both must occur. Leave out test rows.
    count
        Number of anomalies to label, at least 1.
    random_state
        A seed or a generator; the same seed gives the same labels. None draws new labels each time.

    Returns
    -------
    int8 array: -1 for the chosen anomalies, 0 (unlabelled) for all other rows.

    Examples
    --------
    >>> count_labels(label_anomalies([1] * 90 + [-1] * 10, 5, random_state=0))
    LabelCounts(normal=0, anomaly=5, unlabelled=95)
    """
    codes = _check_truth(truth)
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise InputError(f"count must be a whole number of anomalies from 1 on, got {count!r}.")
    anomalous = np.flatnonzero(codes == ANOMALY)
    kept = _generator(random_state).permutation(anomalous)[:count]
    masked = LabelCodes.of(np.full(len(codes), UNLABELLED, dtype=np.int8))
    masked[kept] = ANOMALY
    return masked


def _check_truth(truth: Any) -> Codes:
    """Return `truth` as codes if each row is normal or an anomaly and both kinds occur."""
    try:
        codes = read_codes(truth)
    except InputError as error:
        raise InputError(f"The truth cannot be used as it is: {error}") from None
    seen = count_labels(codes)
    if seen.unlabelled:
        raise InputError(
            "truth must be +1 (normal) or -1 (anomaly) for every row, got 0 for "
            f"{seen.unlabelled:,} of {len(codes):,} rows. If 0 means normal and 1 anomaly: "
            "riskad.core.label_parsing.from_pyod(truth); if 0 means unlabelled, leave these rows "
            "out."
        )
    if not seen.normal or not seen.anomaly:
        raise InputError(
            "truth must hold rows of both kinds, since one of each is labelled at least; got "
            f"{seen.normal:,} normal and {seen.anomaly:,} anomalies. If they are there in the "
            "whole set, split it with stratify=truth."
        )
    return codes


def _check_count(fraction: float, n: int) -> int:
    """Return the number of rows to label, if it allows one of each kind."""
    k = round(fraction * n)
    if k < 2:
        raise InputError(
            f"fraction={fraction:g} of {n:,} rows labels {k} of them, but two are needed, one of "
            f"each kind. Give at least fraction={min(2 / n, 0.99):.2g}."
        )
    return k


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InputError(
            "random_state must be None, a whole number from 0 on or a numpy.random.Generator, "
            f"got {random_state!r}."
        ) from None


def _anomaly_counts(n_p: int, n_n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many of k rows can be anomalies, with a normal row left, and the probabilities.

    >>> counts, probabilities = _anomaly_counts(n_p=3, n_n=2, k=3)
    >>> counts.tolist(), probabilities.round(3).tolist()  # C(2, 1) C(3, 2) to C(2, 2) C(3, 1)
    ([1, 2], [0.667, 0.333])
    """
    counts = np.arange(max(1, k - n_p), min(k - 1, n_n) + 1)
    logs = _log_binomial(n_n, counts) + _log_binomial(n_p, k - counts)
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _log_binomial(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ln C(n, k), which overflows long after C(n, k) does."""
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


# --- images: one class is normal ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OneClassSplit:
    """Training rows with one normal class, and the labels that are kept.

    Attributes
    ----------
    rows : int64 array
        Indices of the training rows, ascending.
    truth : int8 array
        For each of them +1 normal or -1 anomaly.
    y_rad : int8 array
        Labels for rAD and Deep SAD: +1 and -1 for labelled rows, 0 for unlabelled rows.
    y_pu : int8 array
        Labels for nnPU: +1 for labelled normal rows, 0 for unlabelled rows.
    """

    rows: NDArray[np.int64]
    truth: Codes
    y_rad: Codes
    y_pu: Codes


def one_class_split(
    y: Any,
    normal_class: int,
    anomaly_rate: float,
    labelled: float,
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

    Parameters
    ----------
    y
        The class of each row.
    normal_class
        The class that is normal.
    anomaly_rate
        pi_n, strictly between 0 and 1.
    labelled
        gamma_l, strictly between 0 and 1.
    random_state
        A seed or a generator; the same seed gives the same split.

    Examples
    --------
    >>> split = one_class_split(np.arange(1000) % 10, 3, 0.1, 0.2, random_state=0)
    >>> len(split.rows), int((split.truth == ANOMALY).sum())
    (100, 10)
    >>> count_labels(split.y_rad), count_labels(split.y_pu).normal
    (LabelCounts(normal=18, anomaly=2, unlabelled=80), 20)
    """
    y = np.asarray(y)
    pi_n = check_in_interval("anomaly_rate", anomaly_rate, 0, 1)
    gamma_l = check_in_interval("labelled", labelled, 0, 1)
    rng = _generator(random_state)
    normal, others = np.flatnonzero(y == normal_class), np.flatnonzero(y != normal_class)
    n = len(normal)
    n_p = round(n * (1 - pi_n))
    _check_counts(normal_class, n_p, n - n_p, len(others), pi_n)
    k_pu, k_p, k_n = round(gamma_l * n), round(gamma_l * n * (1 - pi_n)), round(gamma_l * n * pi_n)
    _check_labelled(k_pu, k_p, n_p, gamma_l)
    rows = np.concatenate(
        [rng.permutation(normal)[:n_p], rng.choice(others, n - n_p, replace=False)]
    )
    truth, y_rad, y_pu = LabelCodes.of(np.zeros((3, n), dtype=np.int8))
    truth[:n_p], truth[n_p:] = NORMAL, ANOMALY
    # Rows are in random order within each kind, so the first ones are a random sample.
    y_pu[:k_pu] = NORMAL
    y_rad[:k_p], y_rad[n_p : n_p + max(k_n, 1)] = NORMAL, ANOMALY
    order = np.argsort(rows)  # an order that does not reveal kinds and labels
    return OneClassSplit(rows[order].astype(np.int64), truth[order], y_rad[order], y_pu[order])


def _check_counts(normal_class: Any, n_p: int, n_n: int, n_others: int, pi_n: float) -> None:
    """Refuse parts without normal rows or anomalies, or with more anomalies than there are."""
    if n_p + n_n == 0:
        raise InputError(f"no row is of the normal class {normal_class!r}; choose one of y's.")
    if n_p == 0 or n_n == 0:
        raise InputError(
            f"anomaly_rate={pi_n:g} of {n_p + n_n:,} rows makes {n_p:,} normals and {n_n:,} "
            "anomalies, and both kinds are needed. Choose another rate, or more rows."
        )
    if n_n > n_others:
        raise InputError(
            f"anomaly_rate={pi_n:g} asks for {n_n:,} rows of other classes than {normal_class!r}, "
            f"and y has {n_others:,}. Choose a smaller rate."
        )


def _check_labelled(k_pu: int, k_p: int, n_p: int, gamma_l: float) -> None:
    """Refuse shares that label no normal row, or more of them than there are."""
    if k_p == 0:
        raise InputError(f"labelled={gamma_l:g} labels no normal row. Choose a larger share.")
    if k_pu > n_p:
        raise InputError(
            f"labelled={gamma_l:g} asks nnPU for {k_pu:,} labelled normals, and the training part "
            f"has {n_p:,}. Choose a smaller share."
        )
