"""The anomaly rate among unlabelled rows, by scores of a `ShallowRAD`."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, count_labels
from riskad.decisions.anomaly_rate import FEWEST, RateEstimate
from riskad.decisions.calibration import Calibration, held_out_scores, quietly
from riskad.detectors.shallow import ShallowRAD
from riskad.metrics.folds import N_SPLITS
from riskad.metrics.search import check_rows_and_labels


def estimate_prior(
    X: Any,
    y: Any,
    *,
    label_source: Any = "unknown",
    random_state: int | None = None,
) -> RateEstimate:
    """Estimate the share of anomalies among the unlabelled rows, with an interval.

    It is the estimate of a calibrated `ShallowRAD` (`riskad.decisions.anomaly_rate`), for any
    labels and any way of choosing them: without labelled normal rows, the unlabelled ones stand in
    for them. After `riskad.calibrate` any detector has its own, `calibration_.rate`.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_features)
        All rows.
    y : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    label_source : str or array of str, default="unknown"
        How rows were chosen for labelling: "random", "chosen" or "unknown", or a word for each row.
    random_state : int, optional
        Seed of the folds. None means 0: the same data gives the same estimate.

    Returns
    -------
    RateEstimate
        The rate `pi_n` with its `interval`; detectors take 1 - pi_n as `prior`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (1900, 2)), rng.normal(3, 1, (220, 2))])
    >>> y = np.zeros(2120, dtype=int)
    >>> y[:100], y[-20:] = 1, -1               # of the other 2,000 rows 10 % are anomalies
    >>> print(estimate_prior(X, y))
    10.0% (95% interval 2.8% to 13.5%)
    """
    X, codes, groups = check_rows_and_labels(X, y)
    labels = count_labels(codes)
    if labels.unlabelled < N_SPLITS:
        raise InputError(
            f"the anomaly rate is that of the unlabelled rows, and there are too few: got {labels}."
            " Mark the rows that nobody checked with 0."
        )
    held_out = scores = np.full(len(codes), np.nan)  # with too few labels, they are only counted
    training_codes, scorer = codes, ShallowRAD(lam="tight", tol=1e-3)
    if labels.normal < FEWEST:
        # Separates anomalies from all other rows; Theorem 1 gives no lambda here.
        scorer = ShallowRAD(risk="pn", prior=0.5, lam=0.01, tol=1e-3)
        training_codes = np.where(codes == ANOMALY, codes, -ANOMALY).astype(np.int16)
    if labels.anomaly >= FEWEST:
        with quietly():
            scores = scorer.fit(X, training_codes).anomaly_score(X)
        held_out = held_out_scores(
            scorer, X, training_codes, scores, groups, random_state=random_state
        )
    calibration = Calibration.of(
        held_out, codes, scores, 0.0, random_state=random_state, label_source=label_source
    )
    assert calibration.rate is not None  # there are unlabelled rows
    return calibration.rate
