"""The anomaly rate among unlabelled rows, and whether labels fit it, with our own detectors."""

from __future__ import annotations

from typing import Any

from riskad.decisions.anomaly_rate import PriorEstimate, find_anomaly_rate
from riskad.decisions.label_check import LabelCheck, compare_labels
from riskad.decisions.rates import RateEstimate
from riskad.detectors.shallow import ShallowRAD

__all__ = ["check_labels", "estimate_prior"]


def estimate_prior(
    X: Any,
    y: Any,
    *,
    method: str = "auto",
    label_source: Any = "unknown",
    estimator: Any = None,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> PriorEstimate:
    """Estimate the share of anomalies among the unlabelled rows, with an interval.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_features)
        All rows.
    y : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    method : {"auto", "em", "divergence", "shift", "pu", "nu"}, default="auto"
        "auto" is the estimate of `AutoRAD`, for any labels and any way of choosing them
        (`riskad.decisions.rates`). The others assume that labelled rows of each kind are like those
        among the unlabelled ones: "em" finds the most likely rate given calibrated scores (Saerens,
        Latinne and Decaestecker, 2002); "divergence" the mixture of labelled rows closest to the
        unlabelled rows in Pearson divergence (du Plessis and Sugiyama, 2014); "shift" compares how
        often a row is flagged (Lipton, Wang and Smola, 2018). "pu" and "nu" need no labelled
        anomalies or no labelled normal rows: they find the largest share that the known kind can
        have among the unlabelled rows (Blanchard, Lee and Scott, 2010), which is right only if some
        region contains only the known kind.
    label_source : str or array of str, default="unknown"
        For "auto", how rows were chosen for labelling: "random", "chosen" or "unknown", or one of
        these for each row.
    estimator : detector, optional
        Computes the scores: any estimator with `fit(X, y)` and `score_samples` (high = normal);
        cloned for each fold. By default a `ShallowRAD`. For "pu" and "nu" the unlabelled rows are
        used as the missing kind.
    confidence : float in (0, 1), default=0.95
        Confidence level of the interval.
    random_state : int, optional
        Seed for folds and resamples. None means 0: the same data gives the same estimate.

    Returns
    -------
    PriorEstimate
        The rate `pi_n`, its `interval`, and `pi_p`, which detectors take as `prior`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (1900, 2)), rng.normal(3, 1, (220, 2))])
    >>> y = np.zeros(2120, dtype=int)
    >>> y[:100], y[-20:] = 1, -1               # of the other 2,000 rows 10 % are anomalies
    >>> print(estimate_prior(X, y))
    anomaly rate 10.1% (95% interval 3.0% to 13.5%), from 100 normal, 20 anomalous and 2,000 \
unlabelled rows
    """
    return find_anomaly_rate(
        X,
        y,
        estimator or _default_scorer(),
        one_kind_scorer=estimator or _one_kind_scorer(),
        method=method,
        label_source=label_source,
        confidence=confidence,
        seed=random_state or 0,
    )


def _default_scorer() -> ShallowRAD:
    return ShallowRAD(lam="tight", tol=1e-3)


def _one_kind_scorer() -> ShallowRAD:
    """Separates labelled rows of one kind from unlabelled ones; Theorem 1 gives no lambda here."""
    return ShallowRAD(risk="pn", prior=0.5, lam=0.01, tol=1e-3)


def check_labels(
    X: Any,
    y: Any,
    *,
    estimate: PriorEstimate | RateEstimate | None = None,
    estimator: Any = None,
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

    Parameters
    ----------
    X, y, estimator, random_state
        As in `estimate_prior`.
    estimate : PriorEstimate or RateEstimate, optional
        The rate of these rows; computed if not given.
    names : sequence of str, optional
        Names of the columns for the verdict; by default those of a frame, or numbers.
    significance : float in (0, 1), default=0.05
        Chance of a false alarm, at most.

    Returns
    -------
    LabelCheck
        p-values of both tests, and the verdict in words.
    """
    return compare_labels(
        X,
        y,
        estimator or _default_scorer(),
        estimate=estimate,
        names=names,
        significance=significance,
        seed=random_state or 0,
    )
