"""Hide most labels of rows whose truth is known, as in the paper's experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, count_labels, read_codes

__all__ = ["mask_labels"]


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
    is hypergeometric, P(A = j) proportional to C(n_n, j) C(n_p, k - j), and given A the rows of
    either kind are uniform. The condition 1 <= A <= k - 1 depends only on A. So A is drawn from
    these values in the same proportions, then A anomalies and k - A normal rows.

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
    int16 array: the truth of the chosen rows, 0 (unlabelled) for all others.

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
    n = len(codes)
    k = round(check_in_interval("fraction", fraction, 0, 1) * n)
    # Before any draw, so that a refused call leaves a generator where it was.
    if k < 2:
        raise InputError(
            f"fraction={fraction:g} of {n:,} rows labels {k} of them, but two are needed, one of "
            f"each kind. Give at least fraction={min(2 / n, 0.99):.2g}."
        )
    try:
        rng = np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InputError(
            "random_state must be None, a whole number from 0 on or a numpy.random.Generator, "
            f"got {random_state!r}."
        ) from None
    normal, anomalous = np.flatnonzero(codes == NORMAL), np.flatnonzero(codes == ANOMALY)
    counts, probabilities = _anomaly_counts(len(normal), len(anomalous), k)
    # The number of anomalies first: given it, the draws of either kind are independent.
    a = int(rng.choice(counts, p=probabilities))
    # The order of the three draws is part of what a seed means.
    masked = np.full(len(codes), UNLABELLED, dtype=np.int16)
    masked[rng.choice(anomalous, a, replace=False)] = ANOMALY
    masked[rng.choice(normal, k - a, replace=False)] = NORMAL
    return masked


def _check_truth(truth: Any) -> Codes:
    """`truth` as codes if each row is normal or an anomaly and both kinds occur."""
    try:
        codes = read_codes(truth)
    except InputError as error:
        raise InputError(f"The truth cannot be used as it is: {error}") from None
    counts = count_labels(codes)
    if counts.unlabelled:
        raise InputError(
            "truth must be +1 (normal) or -1 (anomaly) for every row, got 0 for "
            f"{counts.unlabelled:,} of {len(codes):,} rows. If 0 means normal and 1 anomaly: "
            "riskad.parse_labels(truth, normal=0, anomaly=1); if 0 means unlabelled, leave these "
            "rows out."
        )
    if not counts.normal or not counts.anomaly:
        raise InputError(
            "truth must hold rows of both kinds, since one of each is labelled at least; got "
            f"{counts.normal:,} normal and {counts.anomaly:,} anomalies. If they are there in the "
            "whole set, split it with stratify=truth."
        )
    return codes


def _anomaly_counts(n_p: int, n_n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How many of k rows can be anomalies, with a normal row left, and the probabilities.

    >>> counts, probabilities = _anomaly_counts(n_p=3, n_n=2, k=3)
    >>> counts.tolist(), probabilities.round(3).tolist()  # C(2, 1) C(3, 2) to C(2, 2) C(3, 1)
    ([1, 2], [0.667, 0.333])
    """
    # At least one anomaly and one normal row, and no more of a kind than there are.
    counts = np.arange(max(1, k - n_p), min(k - 1, n_n) + 1)
    logs = _log_binomial(n_n, counts) + _log_binomial(n_p, k - counts)
    # Relative to the largest: the coefficients of a few thousand rows exceed every float.
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _log_binomial(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    # ln C(n, k), which overflows long after C(n, k) does.
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
