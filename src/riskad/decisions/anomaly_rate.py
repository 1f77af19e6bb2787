r"""The anomaly rate of the unlabelled rows, with an interval, from normal rows, anomalies and
unlabelled rows.

If labelled rows are like those of their kind among the unlabelled rows, the unlabelled rows are a
mixture,

    p_u = pi_p p_p + pi_n p_n,    pi_p = 1 - pi_n,

and so are the scores s that a detector gives to rows it has not seen (`riskad.decisions.mixture`).
`riskad.decisions.label_check` tests this assumption.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import t
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from riskad.core.checks import DataWarning, InputError, check_choice, check_in_interval
from riskad.core.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    Codes,
    LabelCounts,
    check_codes,
    check_rows_match,
    count_labels,
)
from riskad.decisions.held_out import fold_fits
from riskad.decisions.mixture import (
    Floats,
    Found,
    Histograms,
    find_rate,
)
from riskad.decisions.rates import FEWEST, check_label_source, estimate_rate
from riskad.decisions.row_groups import count_independent, deal_groups
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.table import as_table

__all__ = ["METHODS", "N_SPLITS", "PriorEstimate", "check_table", "cross_fit", "find_anomaly_rate"]


METHODS = ("auto", "em", "divergence", "shift", "pu", "nu")

N_SPLITS = 5
_FEW = 3  # labelled rows of a kind; the scores of so few may lie anywhere
_CANNOT_TELL = 0.5  # width of an interval that is almost uninformative
_CUTS = np.arange(3, 11) / 10


@dataclass(frozen=True)
class PriorEstimate:
    """Shares of normal rows and of anomalies among the unlabelled rows; `interval` is for pi_n.

    `pi_p` is the `prior` of detectors; `diagnostics` holds intermediate results of the method.
    """

    pi_p: float
    pi_n: float
    interval: tuple[float, float]
    method: str
    diagnostics: dict[str, float]
    labels: LabelCounts
    confidence: float = 0.95

    def __str__(self) -> str:
        low, high = self.interval
        how = "" if self.method == "auto" else f"by {self.method} "
        normal = f"{self.labels.normal:,} normal" if self.method != "nu" else ""
        anomalous = f"{self.labels.anomaly:,} anomalous" if self.method != "pu" else ""
        return (
            f"anomaly rate {_percent(self.pi_n)} ({100 * self.confidence:g}% interval "
            f"{_percent(low)} to {_percent(high)}), {how}from "
            f"{', '.join(filter(None, (normal, anomalous)))} and "
            f"{self.labels.unlabelled:,} unlabelled rows"
        )


def _percent(share: float) -> str:
    return f"{share:.1%}"


def find_anomaly_rate(
    X: Any,
    y: Any,
    scorer: Any,
    *,
    one_kind_scorer: Any = None,
    method: str = "auto",
    label_source: Any = "unknown",
    confidence: float = 0.95,
    seed: int = 0,
) -> PriorEstimate:
    """Estimate the share of anomalies among unlabelled rows from the scores of a detector.

    Parameters
    ----------
    X, y, method, label_source, confidence
        As in `riskad.estimate_prior`.
    scorer : detector
        Computes the scores: any estimator with `fit(X, y)` and `score_samples` (high = normal);
        cloned for each fold.
    one_kind_scorer : detector, optional
        The same for "pu" and "nu", where unlabelled rows replace the kind that has no labels; by
        default `scorer`.
    seed : int, default=0
        Seed of folds and resamples.

    Returns
    -------
    PriorEstimate
        The rate with its interval.
    """
    check_choice("method", method, METHODS)
    confidence = check_in_interval("confidence", confidence, 0, 1)
    X, codes = check_table(X, y)
    labels = count_labels(codes)
    _check_kinds(method, labels)
    one_kind = scorer if one_kind_scorer is None else one_kind_scorer
    if method in ("pu", "nu"):
        found = _from_one_kind(X, codes, method, one_kind, confidence, seed)
    elif method == "auto":
        found = _as_a_fit_does(X, codes, scorer, one_kind, label_source, confidence, seed)
    else:
        scores = cross_fit(X, codes, scorer, seed)
        found = find_rate(Histograms.of(scores, codes), method, confidence, seed)
    pi_n, (low, high), diagnostics = found
    _warn_if_vague(labels, high - low)
    return PriorEstimate(1 - pi_n, pi_n, (low, high), method, diagnostics, labels, confidence)


def check_table(X: Any, y: Any) -> tuple[Any, Codes]:
    """Rows as a table that can be indexed, and their label codes."""
    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    return X.tocsr() if sparse.issparse(X) else X, codes


def _check_kinds(method: str, labels: LabelCounts) -> None:
    needed = {"normal rows": (labels.normal, "nu"), "anomalies": (labels.anomaly, "pu")}
    needed = {} if method == "auto" else needed
    for name, (count, instead) in needed.items():
        if method != instead and count < 2:
            other = f", or do without: method={instead!r}" if method not in ("pu", "nu") else ""
            raise InputError(
                f"method={method!r} needs at least 2 labelled {name}, got {labels}. Label more"
                f"{other}."
            )
    if labels.unlabelled < N_SPLITS:
        raise InputError(
            f"the anomaly rate is that of the unlabelled rows, and there are too few: got {labels}."
            " Mark the rows that nobody checked with 0."
        )


def _warn_if_vague(labels: LabelCounts, width: float) -> None:
    counts = {"anomalies": labels.anomaly, "normal rows": labels.normal}
    few = [f"{count} labelled {kind}" for kind, count in counts.items() if 0 < count <= _FEW]
    if few or width >= _CANNOT_TELL:
        because = f" from {' and '.join(few)}" if few else ""
        warnings.warn(
            f"the data says little about the anomaly rate{because}: the interval is "
            f"{100 * width:.0f} points wide. Label more rows, or trust what else you know of it.",
            DataWarning,
            stacklevel=4,
        )


def cross_fit(X: Any, codes: Codes, estimator: Any, seed: int) -> Floats:
    """Anomaly scores of all rows, each by a fit that has not seen it, of labelled spread 1.

    Every kind of row is divided evenly among the folds. Scores of each fold have their own scale;
    the unlabelled rows are then the same mixture of the two kinds in each fold and in all together.
    """
    if not (hasattr(estimator, "fit") and hasattr(estimator, "score_samples")):
        raise InputError(
            f"estimator must have fit(X, y) and score_samples(X), got {estimator!r}. Detectors of "
            "riskad do, and pipelines that end in one."
        )
    scores = np.empty(len(codes))
    with warnings.catch_warnings():
        # If a fold lacks something by chance, the user need not know.
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        groups = group_equal_rows(X, codes)
        for fitted, held in fold_fits(estimator, X, codes, _folds(codes, seed, groups)):
            scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    if np.ptp(scores) == 0:
        raise InputError(
            f"all rows have the same score by {estimator!r}, which tells nothing about the anomaly "
            "rate. Give columns that vary, or another estimator."
        )
    known = scores[codes != UNLABELLED]
    return (scores - known.mean()) / (known.std() or 1.0)


def _folds(
    codes: Codes, seed: int, groups: NDArray[np.intp] | None = None
) -> Iterator[NDArray[Any]]:
    """Row numbers to hold out, fold by fold; rows of a group together."""
    rng = np.random.default_rng(seed)
    kinds = np.unique(codes)
    n_splits = min(N_SPLITS, *(count_independent(codes, kind, groups) for kind in kinds))
    if n_splits < 2:  # all rows of a kind are copies of one
        groups, n_splits = None, min(N_SPLITS, *(int((codes == kind).sum()) for kind in kinds))
    if groups is not None:
        fold = deal_groups(codes, groups, n_splits, rng)
    else:
        fold = np.empty(len(codes), dtype=int)
        for rows in (np.flatnonzero(codes == kind) for kind in kinds):
            fold[rng.permutation(rows)] = np.arange(len(rows)) % n_splits
    for k in range(n_splits):
        yield np.flatnonzero(fold == k)


def _as_a_fit_does(
    X: Any,
    codes: Codes,
    scorer: Any,
    one_kind_scorer: Any,
    label_source: Any,
    confidence: float,
    seed: int,
) -> Found:
    """The rate by held-out scores, however rows were chosen (`riskad.decisions.rates`)."""
    n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    labelled = codes != UNLABELLED
    scores = np.zeros(len(codes))
    if min(n, m) >= FEWEST:
        scores = cross_fit(X, codes, scorer, seed)
    elif m >= FEWEST:
        rows, found, _ = _one_kind_scores(X, codes, ANOMALY, one_kind_scorer, seed)
        scores[rows] = found
        labelled = codes == ANOMALY
    unlabelled = scores[codes == UNLABELLED] if scores.any() else np.empty(0)
    source = check_label_source(label_source, len(codes))
    rate = estimate_rate(
        scores[labelled],
        codes[labelled] == ANOMALY,
        unlabelled,
        int((codes == UNLABELLED).sum()),
        source if isinstance(source, str) else source[labelled],
        seed,
        confidence,
    )
    assert rate is not None  # there are unlabelled rows
    return rate.value, rate.interval, {}


def _one_kind_scores(
    X: Any, codes: Codes, kind: int, scorer: Any, seed: int
) -> tuple[NDArray[Any], Floats, NDArray[Any]]:
    """Rows of one kind and unlabelled rows, their scores, and which are of the kind."""
    rows = np.flatnonzero((codes == kind) | (codes == UNLABELLED))
    stand_in = np.where(codes[rows] == kind, kind, -kind).astype(np.int8)
    return rows, cross_fit(_safe_indexing(X, rows), stand_in, scorer, seed), stand_in == kind


def _from_one_kind(
    X: Any, codes: Codes, method: str, scorer: Any, confidence: float, seed: int
) -> Found:
    """The rate from normal and unlabelled rows ("pu"), or from anomalies and unlabelled rows
    ("nu").
    """
    kind = NORMAL if method == "pu" else ANOMALY
    _, scores, of_kind = _one_kind_scores(X, codes, kind, scorer, seed)
    likeness = -kind * scores
    shares, region = _largest_share(likeness[of_kind], likeness[~of_kind], confidence)
    low, pi_n, high = map(float, 1 - shares[::-1] if method == "pu" else shares)
    return pi_n, (low, high), {"region": region}


def _largest_share(known: Floats, unlabelled: Floats, confidence: float) -> tuple[Floats, float]:
    """The largest share pi_k that the known kind can have among the unlabelled rows: low, estimate,
    high.

    In any region C the unlabelled rows have at least the rows of the known kind, U(C) >= pi_k K(C),
    so that pi_k <= U(C) / K(C), with equality if the other kind has no rows there. C is where rows
    look most like the known kind, with K(C) = 0.3, 0.4, ..., 1. If one of these regions is free of
    the other kind, pi_k is the smallest ratio, and lies between the smallest lower and the smallest
    upper limit of all; the limits hold together (Bonferroni). The estimate is the ratio with the
    smallest upper limit; its K(C) is also returned.
    """
    n_k, n_u = len(known), len(unlabelled)
    cuts = np.quantile(known, 1 - _CUTS, method="lower")
    K, U = ((rows[:, None] >= cuts).mean(axis=0) for rows in (known, unlabelled))
    U = np.maximum(U, 1 / n_u)
    error = np.sqrt((1 - K) / (K * n_k) + (1 - U) / (U * n_u))  # of log U / K
    margin = np.exp(t.ppf(1 - (1 - confidence) / (2 * len(_CUTS)), n_k - 1) * error)
    ratio = U / K
    best = int(np.argmin(ratio * margin))
    shares = [(ratio / margin).min(), ratio[best], (ratio * margin).min()]
    return np.minimum(shares, 1), float(K[best])
