"""The anomaly rate among unlabelled rows, and whether labels fit it, with our own detectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, Codes, check_codes, check_rows_match, count_labels
from riskad.decisions.anomaly_rate import FEWEST, RateEstimate
from riskad.decisions.calibration import Calibration, held_out_scores, quietly
from riskad.decisions.label_check import LabelCheck, compare_labels
from riskad.detectors.shallow import ShallowRAD
from riskad.metrics.folds import N_SPLITS
from riskad.metrics.search import check_rows_and_labels
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.table import as_table


def estimate_prior(
    X: Any,
    y: Any,
    *,
    label_source: Any = "unknown",
    estimator: Any = None,
    random_state: int | None = None,
) -> RateEstimate:
    """Estimate the share of anomalies among the unlabelled rows, with an interval.

    It is the estimate of a calibrated detector (`riskad.decisions.anomaly_rate`), for any labels
    and any way of choosing them.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_features)
        All rows.
    y : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    label_source : str or array of str, default="unknown"
        How rows were chosen for labelling: "random", "chosen" or "unknown", or a word for each row.
    estimator : detector, optional
        Computes the scores: any estimator with `fit(X, y)` and `score_samples` (high = normal);
        cloned for each fold. By default a `ShallowRAD`. If no normal row is labelled, the
        unlabelled rows are used as such.
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
    labels_used = codes
    scorer = ShallowRAD(lam="tight", tol=1e-3)
    if labels.normal < FEWEST:
        # Separates anomalies from all other rows; Theorem 1 gives no lambda here.
        scorer = ShallowRAD(risk="pn", prior=0.5, lam=0.01, tol=1e-3)
        labels_used = np.where(codes == ANOMALY, codes, -ANOMALY).astype(np.int16)
    if labels.anomaly >= FEWEST:
        held_out, scores = _cross_fit(estimator or scorer, X, labels_used, groups, random_state)
    calibration = Calibration.of(
        held_out, codes, scores, 0.0, random_state=random_state, label_source=label_source
    )
    assert calibration.rate is not None  # there are unlabelled rows
    return calibration.rate


def check_labels(
    X: Any,
    y: Any,
    *,
    estimate: RateEstimate | None = None,
    scores: np.ndarray | None = None,
    names: Any = None,
    significance: float = 0.05,
    random_state: int | None = None,
) -> LabelCheck:
    """Test whether labelled rows resemble those of their kind among the unlabelled rows.

    Anomalies of a type that the unlabelled rows lack are neighbours of each other, and of hardly
    any unlabelled rows. Normal rows that were not picked at random have other column means than the
    normal rows among the unlabelled rows. Both tests keep their level for any unlabelled anomalies,
    as long as the labelled ones are like them; each verdict is at half the significance. Fewer than
    20 labelled normal rows are not compared: their spread is then too uncertain to keep a level.

    Arguments are those of `estimate_prior`. `estimate` is the rate of these rows, and `scores` are
    anomaly scores by fits that have not seen the row (NaN for rows to leave out); both are computed
    if not given. `names` of the columns are for the verdict, by default those of a frame, or
    numbers. `significance` is the chance of a false alarm, at most.
    """
    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    labels = count_labels(codes)
    if min(labels.normal, labels.anomaly) < FEWEST or labels.unlabelled < N_SPLITS:
        reason = f"this takes 2 labelled rows of each kind and unlabelled rows; there are {labels}"
        return LabelCheck(None, None, None, f"not checked: {reason}.")
    names = getattr(X, "columns", None) if names is None else names
    if scores is None:
        groups, scorer = group_equal_rows(X, codes), ShallowRAD(lam="tight", tol=1e-3)
        scores, _ = _cross_fit(scorer, X, codes, groups, random_state)
    if estimate is None:
        estimate = Calibration.of(scores, codes, scores, 0.0, random_state=random_state).rate
    assert estimate is not None  # there are unlabelled rows
    return compare_labels(
        X, codes, scores, estimate, names=names, significance=significance, seed=random_state or 0
    )


def _cross_fit(
    estimator: Any, X: Any, codes: Codes, groups: np.ndarray | None, seed: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Anomaly scores by fits that have not seen the row, and by the fit to all rows."""
    if not (hasattr(estimator, "fit") and hasattr(estimator, "score_samples")):
        raise InputError(
            f"estimator must have fit(X, y) and score_samples(X), got {estimator!r}. Detectors of "
            "riskad do, and pipelines that end in one."
        )
    with quietly():
        scores = -np.asarray(clone(estimator).fit(X, codes).score_samples(X), dtype=float)
    return held_out_scores(estimator, X, codes, scores, groups, random_state=seed), scores
