"""Evaluation that respects three kinds of label: unlabelled rows are never scored as truth."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import beta, norm, rankdata, t

from riskad.core.checks import DataWarning, InputError, check_choice, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes, check_rows_match
from riskad.rows.columns import as_table
from riskad.storage.fields import COUNT, NUMBER, SHARE, Fields

__all__ = [
    "AUC_INTERVALS",
    "Auc",
    "Curve",
    "Estimate",
    "PilePrecisionRecall",
    "Reliability",
    "auc_of_folds",
    "auc_with_interval",
    "average_precision_with_interval",
    "brier_score",
    "fold_fits",
    "labelled_folds",
    "log_score",
    "out_of_fold_scores",
    "pile_precision_recall",
    "precision_at_k_with_interval",
    "precision_recall_with_interval",
    "reliability",
    "roc_with_interval",
]

AUC_INTERVALS = ("score", "delong")


@dataclass(frozen=True)
class Estimate:
    """A number estimated from labelled rows, with its interval.

    However it is printed or formatted, the interval comes along: two labelled anomalies make a
    number like 0.95, and only the interval says how little that means.

    Examples
    --------
    >>> f"{Estimate(0.9, 0.6, 0.98, n_normal=50, n_anomaly=2):.2f}"
    '0.90 (95% interval 0.60 to 0.98; 50 normal, 2 anomalies)'
    """

    value: float
    low: float
    high: float
    n_normal: int
    n_anomaly: int
    confidence: float = 0.95

    _state_fields: ClassVar[Fields] = dict.fromkeys(("value", "low", "high"), NUMBER) | {
        "n_normal": COUNT,
        "n_anomaly": COUNT,
        "confidence": SHARE,
    }

    def __format__(self, spec: str) -> str:
        value, low, high = (format(x, spec or ".3f") for x in (self.value, self.low, self.high))
        return (
            f"{value} ({self.confidence:.0%} interval {low} to {high}; "
            f"{self.n_normal} normal, {self.n_anomaly} anomalies)"
        )

    def __str__(self) -> str:
        return format(self)


@dataclass(frozen=True)
class Auc(Estimate):
    """Probability that a random anomaly scores above a random normal row, with its interval."""


def _labelled_scores(
    y: Any, anomaly_scores: Any, confidence: float, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the labelled anomalies and of the labelled normals, checked."""
    check_in_interval("confidence", confidence, 0, 1)
    codes, scores = _codes_and_scores(y, anomaly_scores, what)
    anomalies, normals = scores[codes == ANOMALY], scores[codes == NORMAL]
    if np.isnan(anomalies).any() or np.isnan(normals).any():
        raise InputError(f"{what} needs a score for each labelled row, and some are NaN.")
    m, n = len(anomalies), len(normals)
    if m == 0 or n == 0:
        raise InputError(f"{what} needs both kinds of label, got {n} normal and {m} anomalies.")
    return anomalies, normals


def _codes_and_scores(y: Any, anomaly_scores: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    codes = check_codes(y)
    scores = np.asarray(anomaly_scores, dtype=float)
    if scores.shape != codes.shape:
        raise InputError(
            f"{what} needs a score for each label, got {len(codes)} labels and "
            f"{scores.size} scores."
        )
    return codes, scores


def _quantile(confidence: float) -> float:
    return float(norm.ppf(0.5 + confidence / 2))


# --- AUC --------------------------------------------------------------------------------------


def auc_with_interval(
    y: Any, anomaly_scores: Any, confidence: float = 0.95, interval: str = "score"
) -> Auc:
    """AUC over the labelled rows, with an interval.

    - "score", Newcombe's, is for few labels and the default. It holds all values theta with
      |AUC - theta| <= z sqrt(V(theta)), V being the variance of Hanley and McNeil with Newcombe's
      (2006) balanced count. Unlike an interval about the estimate it does not shrink to a point
      when a handful of anomalies all score on top.
    - "delong" is for some dozens of labels of each kind: DeLong's (1988) variance

          V = var_i(V10) / m + var_j(V01) / n,

      where V10 is the share of normals below anomaly i and V01 that of anomalies above normal j,
      on the logit scale. It assumes no shape of the scores, and no number of labels is too large
      for it; with a perfect ranking V is 0 and says nothing, which is refused.

    Examples
    --------
    >>> print(auc_with_interval([1, 1, 1, 1, -1, -1], [0.1, 0.4, 0.2, 0.3, 0.9, 0.8]))
    1.000 (95% interval 0.472 to 1.000; 4 normal, 2 anomalies)
    """
    check_choice("interval", interval, AUC_INTERVALS)
    anomalies, normals = _labelled_scores(y, anomaly_scores, confidence, "an AUC")
    m, n = len(anomalies), len(normals)
    # Ranks among all rows less those within a kind count the rows of the other kind below.
    ranks = rankdata(np.concatenate([anomalies, normals]))
    value = float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))
    z = _quantile(confidence)
    if interval == "score":
        return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)
    V10 = (ranks[:m] - rankdata(anomalies)) / n
    V01 = 1 - (ranks[m:] - rankdata(normals)) / m
    return Auc(value, *_delong_interval(value, V10, V01, z), n, m, confidence)


def _delong_interval(
    value: float, V10: np.ndarray, V01: np.ndarray, z: float
) -> tuple[float, float]:
    m, n = len(V10), len(V01)
    V = V10.var(ddof=1) / m + V01.var(ddof=1) / n if min(m, n) > 1 else 0.0
    if not V > 0:
        raise InputError(
            f"interval='delong' has no variance to go by ({n} normal, {m} anomalies, AUC "
            f"{value:g}): its interval would be a point. Take interval='score'."
        )
    middle, spread = logit(value), z * V**0.5 / (value * (1 - value))
    return float(expit(middle - spread)), float(expit(middle + spread))


def auc_of_folds(values: Any, n_splits: int, n: int, m: int, confidence: float = 0.95) -> Auc:
    r"""AUC of a fit to all rows, from the AUCs of folds over n normals and m anomalies.

    Scores of different fits need not share a scale, so folds are ranked one by one and the value
    is the mean of `values`. The interval is Newcombe's with

        z = t sqrt(n_splits / (n_splits - 1)),

    t being Student's quantile for min(n, m) - 1 degrees of freedom: fits of folds saw fewer rows,
    and differ from each other and from the fit to all rows the more, the fewer labels there are.
    One row counts as two here, whose interval covers nearly everything as it is.
    """
    confidence = check_in_interval("confidence", confidence, 0, 1)
    value = float(np.mean(values))
    quantile = float(t.ppf(0.5 + confidence / 2, max(min(n, m) - 1, 1)))
    z = quantile * (n_splits / (n_splits - 1)) ** 0.5
    return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)


def _score_interval(value: float, m: int, n: int, z: float) -> tuple[float, float]:
    balanced = (m + n) / 2

    def excess(theta: float) -> float:
        spread = 1 + (balanced - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (value - theta) ** 2 - z**2 * theta * (1 - theta) * spread / (m * n)

    # Inside the interval excess is negative, just inside of an estimate of 0 or 1 too.
    inside = min(max(value, 1e-12), 1 - 1e-12)
    low = 0.0 if value == 0 else float(brentq(excess, 0.0, inside))
    high = 1.0 if value == 1 else float(brentq(excess, inside, 1.0))
    return low, high


# --- precision --------------------------------------------------------------------------------


def average_precision_with_interval(
    y: Any, anomaly_scores: Any, pi_n: Any = None, confidence: float = 0.95
) -> Estimate:
    r"""Average precision over the labelled rows, with an interval.

        AP = mean over anomalies i of  pi_n TPR_i / (pi_n TPR_i + (1 - pi_n) FPR_i)

    where TPR_i and FPR_i are the shares of anomalies and of normals that score at least as high
    as i. Precision depends on how rare anomalies are: `pi_n` is their rate where the scores will
    be used, a number or an estimate that has it as `.pi_n`; None is their share of the labels.

    AP is a mean over m anomalies of numbers between 0 and 1: its variance is at most that of a
    share of m. The interval is the exact (Clopper-Pearson) one of such a share, which stays wide
    for few anomalies and does not shrink to a point when all of them are on top.

    Examples
    --------
    >>> print(average_precision_with_interval([1, 1, 1, -1, -1], [0.1, 0.2, 0.8, 0.7, 0.9]))
    0.833 (95% interval 0.087 to 1.000; 3 normal, 2 anomalies)
    """
    what = "an average precision"
    anomalies, normals = _labelled_scores(y, anomaly_scores, confidence, what)
    m, n = len(anomalies), len(normals)
    pi_n = m / (m + n) if pi_n is None else _rate(pi_n)
    TPR, FPR = _share_above(anomalies, anomalies), _share_above(normals, anomalies)
    value = float(np.mean(pi_n * TPR / (pi_n * TPR + (1 - pi_n) * FPR)))
    return Estimate(value, *_share_interval(value * m, m, confidence), n, m, confidence)


def precision_at_k_with_interval(
    y: Any, anomaly_scores: Any, k: int, confidence: float = 0.95
) -> Estimate:
    """Share of anomalies among the k labelled rows with the highest scores, with an interval.

    Rows that tie at the last place count by their share. The interval is the exact
    (Clopper-Pearson) one of a share of k rows.

    Examples
    --------
    >>> print(precision_at_k_with_interval([1, 1, 1, -1, -1], [0.1, 0.2, 0.8, 0.7, 0.9], k=2))
    0.500 (95% interval 0.013 to 0.987; 3 normal, 2 anomalies)
    """
    what = "a precision at k"
    anomalies, normals = _labelled_scores(y, anomaly_scores, confidence, what)
    m, n = len(anomalies), len(normals)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= m + n:
        raise InputError(
            f"k must be a whole number from 1 to {m + n}, the number of labelled rows, got {k!r}."
        )
    scores = np.concatenate([anomalies, normals])
    last = np.sort(scores)[-k]
    above, level = scores > last, scores == last
    share = (k - above.sum()) / level.sum()
    hits = float(above[:m].sum() + share * level[:m].sum())
    return Estimate(hits / k, *_share_interval(hits, k, confidence), n, m, confidence)


@dataclass(frozen=True)
class PilePrecisionRecall:
    """Precision and recall of "anomalous if the score is above a threshold" on the pile."""

    precision: Estimate
    recall: Estimate
    flagged: float
    """Share of the pile that scores above the threshold."""
    pi_n: float
    """The anomaly rate of the pile on which the precision rests."""

    def __str__(self) -> str:
        return (
            f"flagged {self.flagged:.1%} of the pile; precision {self.precision}; "
            f"recall {self.recall}"
        )


def pile_precision_recall(
    y: Any, anomaly_scores: Any, threshold: float, pi_n: Any, confidence: float = 0.95
) -> PilePrecisionRecall:
    r"""Precision and recall among unlabelled rows, from an anomaly rate and labelled anomalies.

    With q the share of unlabelled rows that score above the threshold,

        recall = share of labelled anomalies above it,    precision = pi_n recall / q,

    if labelled anomalies resemble those in the pile. Nobody needs to look at the pile, but scores
    of labelled rows must come from fits that never saw them (`out_of_fold_scores`), or both
    numbers flatter.

    Parameters
    ----------
    y : array
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    anomaly_scores : array
        High = anomalous. Labelled normals are not used and may be NaN.
    threshold : float
        Rows above it are flagged; for a detector this is `-offset_`.
    pi_n : float or estimate with `.pi_n`
        Anomaly rate of the pile. The `interval` of an estimate widens that of the precision.
    confidence : float, default=0.95
        Of each interval: exact (Clopper-Pearson) for the recall; the precision takes the ends of
        those of recall and rate together, which is cautious.

    Examples
    --------
    >>> y = np.repeat([-1, 0], [4, 10])
    >>> scores = np.array([3, 3, 3, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> found = pile_precision_recall(y, scores, threshold=1, pi_n=0.2)
    >>> f"{found.precision.value:.2f} {found.recall.value:.2f}"
    '0.75 0.75'
    """
    check_in_interval("confidence", confidence, 0, 1)
    codes, scores = _codes_and_scores(y, anomaly_scores, "precision and recall on the pile")
    anomalies, pile = scores[codes == ANOMALY], scores[codes == UNLABELLED]
    n, m = int((codes == NORMAL).sum()), len(anomalies)
    if m == 0 or len(pile) == 0:
        raise InputError(
            "precision and recall on the pile need labelled anomalies and unlabelled rows, got "
            f"{m} and {len(pile)}."
        )
    if np.isnan(anomalies).any() or np.isnan(pile).any():
        raise InputError(
            "precision and recall on the pile need a score for each labelled anomaly and each "
            "unlabelled row, and some are NaN. out_of_fold_scores scores the labelled rows; take "
            "those of the others from a fit to all rows."
        )
    rate, (rate_low, rate_high) = _rate(pi_n), _rate_interval(pi_n)
    hits, q = float((anomalies > threshold).sum()), float((pile > threshold).mean())
    recall = hits / m
    low, high = _share_interval(hits, m, confidence)
    counts = n, m, confidence

    def precision(rate: float, recall: float) -> float:
        return min(1.0, rate * recall / q) if q > 0 else float("nan")

    if recall * rate > q:
        warnings.warn(
            f"pi_n = {rate:.3g} and a recall of {recall:.2f} would make more anomalies above the "
            f"threshold than there are rows ({q:.3g} of the pile): the rate is too high or the "
            "labelled anomalies are easier than those in the pile.",
            DataWarning,
            stacklevel=2,
        )
    return PilePrecisionRecall(
        Estimate(
            precision(rate, recall), precision(rate_low, low), precision(rate_high, high), *counts
        ),
        Estimate(recall, low, high, *counts),
        flagged=q,
        pi_n=rate,
    )


# --- curves -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A curve over thresholds, the highest first, with an interval for each of its heights."""

    threshold: np.ndarray
    """Rows that score at least this are flagged."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


def roc_with_interval(
    y: Any, anomaly_scores: Any, confidence: float = 0.95, points: int = 200
) -> Curve:
    """TPR, the share of labelled anomalies that are flagged, over FPR, that of labelled normals.

    The interval of TPR is the exact one (Clopper-Pearson) of a share of the anomalies. Of many
    thresholds about `points` are taken, as quantiles of either kind.

    Examples
    --------
    >>> curve = roc_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    anomalies, normals = _labelled_scores(y, anomaly_scores, confidence, "an ROC curve")
    t = _curve_thresholds(anomalies, normals, points)
    TPR, FPR = _share_above(anomalies, t), _share_above(normals, t)
    return Curve(t, FPR, TPR, *_share_intervals(TPR, len(anomalies), confidence))


def precision_recall_with_interval(
    y: Any, anomaly_scores: Any, pi_n: Any = None, confidence: float = 0.95, points: int = 200
) -> Curve:
    r"""Precision over recall, if the share pi_n of all rows are anomalies.

        recall = TPR,    precision = pi_n TPR / (pi_n TPR + (1 - pi_n) FPR)

    with TPR and FPR as in `roc_with_interval`, from the first anomaly on. The interval of the
    precision takes the ends of those of TPR, FPR and the rate together, which is cautious. `pi_n`
    is a number or an estimate that has it; None is the share of the labels.

    Examples
    --------
    >>> curve = precision_recall_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.round(2).tolist()
    ([0.5, 0.5, 1.0, 1.0], [1.0, 0.5, 0.67, 0.5])
    """
    anomalies, normals = _labelled_scores(y, anomaly_scores, confidence, "a precision")
    m, n = len(anomalies), len(normals)
    rates = (m / (m + n),) * 3 if pi_n is None else (_rate(pi_n), *_rate_interval(pi_n))
    t = _curve_thresholds(anomalies, normals, points)
    t = t[_share_above(anomalies, t) > 0]
    TPR, FPR = _share_above(anomalies, t), _share_above(normals, t)
    TPR_low, TPR_high = _share_intervals(TPR, m, confidence)
    FPR_low, FPR_high = _share_intervals(FPR, n, confidence)

    def precision(rate: float, TPR: np.ndarray, FPR: np.ndarray) -> np.ndarray:
        return rate * TPR / (rate * TPR + (1 - rate) * FPR)

    value = precision(rates[0], TPR, FPR)
    low, high = precision(rates[1], TPR_low, FPR_high), precision(rates[2], TPR_high, FPR_low)
    return Curve(t, TPR, value, low, high)


def _curve_thresholds(anomalies: np.ndarray, normals: np.ndarray, points: int) -> np.ndarray:
    """Scores of either kind, all of them or as many quantiles, above them infinity."""
    shares = np.linspace(0, 1, points // 2)
    kinds = [np.quantile(kind, shares, method="inverted_cdf") for kind in (anomalies, normals)]
    return np.append(np.inf, np.unique(np.concatenate(kinds))[::-1])


def _share_intervals(
    shares: np.ndarray, n: int, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([_share_interval(round(share * n), n, confidence) for share in shares])
    return pairs[:, 0], pairs[:, 1]


# --- probabilities ----------------------------------------------------------------------------


def brier_score(y: Any, probabilities: Any, pi_n: Any = None, confidence: float = 0.95) -> Estimate:
    """Mean squared error of probabilities of being an anomaly, with an interval.

        pi_n mean_n (1 - p)^2 + (1 - pi_n) mean_p p^2

    over labelled anomalies and normals; the lower the better. `pi_n` is the anomaly rate where the
    probabilities are used, a number or an estimate that has it; None is the share of the labels.

    Examples
    --------
    >>> print(brier_score([1, 1, 1, -1, -1, -1], [0.1, 0.2, 0.1, 0.9, 0.6, 0.7], pi_n=0.1))
    0.027 (95% interval 0.000 to 0.070; 3 normal, 3 anomalies)
    """
    return _mean_loss(y, probabilities, pi_n, confidence, np.square)


def log_score(y: Any, probabilities: Any, pi_n: Any = None, confidence: float = 0.95) -> Estimate:
    """Mean negative log-likelihood of probabilities of being an anomaly, with an interval.

        - pi_n mean_n log p - (1 - pi_n) mean_p log(1 - p)

    as in `brier_score`. A probability of 0 or 1 that is wrong costs as much as one of 1e-12.

    Examples
    --------
    >>> print(log_score([1, 1, 1, -1, -1, -1], [0.1, 0.2, 0.1, 0.9, 0.6, 0.7], pi_n=0.1))
    0.163 (95% interval 0.002 to 0.323; 3 normal, 3 anomalies)
    """
    return _mean_loss(
        y, probabilities, pi_n, confidence, lambda wrong: -np.log(np.maximum(1 - wrong, 1e-12))
    )


def _mean_loss(
    y: Any,
    probabilities: Any,
    pi_n: Any,
    confidence: float,
    loss: Callable[[np.ndarray], np.ndarray],
) -> Estimate:
    """Mean loss of |truth - p| at an anomaly rate; the interval is Student's, never below 0."""
    anomalies, normals = _probabilities(y, probabilities, confidence)
    m, n = len(anomalies), len(normals)
    pi_n = m / (m + n) if pi_n is None else _rate(pi_n)
    parts = (pi_n, loss(1 - anomalies)), (1 - pi_n, loss(normals))
    value = float(sum(share * each.mean() for share, each in parts))
    if min(m, n) < 2:
        return Estimate(value, 0.0, float("inf"), n, m, confidence)
    variance = sum(share**2 * each.var(ddof=1) / len(each) for share, each in parts)
    spread = float(t.ppf(0.5 + confidence / 2, min(m, n) - 1) * variance**0.5)
    return Estimate(value, max(value - spread, 0.0), value + spread, n, m, confidence)


def _probabilities(y: Any, probabilities: Any, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    anomalies, normals = _labelled_scores(y, probabilities, confidence, "a score of probabilities")
    for each in (anomalies, normals):
        if each.min() < 0 or each.max() > 1:
            raise InputError(
                "probabilities lie between 0 and 1; scores become probabilities by "
                "anomaly_probability of a calibrated detector."
            )
    return anomalies, normals


@dataclass(frozen=True)
class Reliability:
    """For bins of probabilities: their mean, and the share of anomalies with its interval."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    """Labelled rows in each bin."""

    def __str__(self) -> str:
        rows = zip(self.predicted, self.observed, self.low, self.high, self.count, strict=True)
        return "\n".join(
            f"{p:.3f} said, {o:.3f} seen ({low:.3f} to {high:.3f}; {count} rows)"
            for p, o, low, high, count in rows
        )


def reliability(
    y: Any, probabilities: Any, pi_n: Any = None, bins: int = 10, confidence: float = 0.95
) -> Reliability:
    """Whether of the rows that are said to be anomalies with probability p, the share p is.

    Bins are of equal width; empty ones are left out. The interval of a share is the exact one
    (Clopper-Pearson). `pi_n` as in `brier_score`: odds in a bin are changed by the same factor as
    the odds of anomalies among all labelled rows.

    Examples
    --------
    >>> print(reliability([1, 1, 1, -1, 1, -1], [0.1, 0.1, 0.1, 0.1, 0.7, 0.9], bins=2))
    0.100 said, 0.250 seen (0.006 to 0.806; 4 rows)
    0.800 said, 0.500 seen (0.013 to 0.987; 2 rows)
    """
    anomalies, normals = _probabilities(y, probabilities, confidence)
    m, n = len(anomalies), len(normals)
    pi_n = m / (m + n) if pi_n is None else _rate(pi_n)
    factor = np.array([(1 - pi_n) / n, pi_n / m])  # what a normal and an anomaly stand for
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    p, kind = np.concatenate([normals, anomalies]), np.repeat([0, 1], [n, m])
    place = np.searchsorted(edges, p, side="right")
    rows = []
    for place_of_bin in np.unique(place):
        own = place == place_of_bin
        hits, count = int(kind[own].sum()), int(own.sum())
        shares = hits / count, *_share_interval(hits, count, confidence)
        at_rate = [q * factor[1] / (q * factor[1] + (1 - q) * factor[0]) for q in shares]
        rows.append((np.average(p[own], weights=factor[kind[own]]), *at_rate, count))
    return Reliability(*map(np.array, zip(*rows, strict=True)))


def _rate(pi_n: Any) -> float:
    """The anomaly rate, of a number or of an estimate."""
    value = getattr(pi_n, "pi_n", pi_n)
    return check_in_interval("pi_n", value, 0, 1, "It is the share of anomalies in the pile.")


def _rate_interval(pi_n: Any) -> tuple[float, float]:
    """The interval of an estimate of the anomaly rate; a number is taken as known."""
    if not hasattr(pi_n, "interval"):
        return _rate(pi_n), _rate(pi_n)
    low, high = pi_n.interval
    return float(low), float(high)


def _share_above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of `scores` at or above each threshold."""
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)


def _share_interval(hits: float, n: float, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share; hits need not be whole."""
    tail = (1 - confidence) / 2
    low = 0.0 if hits <= 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits >= n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high


# --- rows that the model never saw ------------------------------------------------------------


def labelled_folds(
    y: np.ndarray, n_splits: int, random_state: int | None = None
) -> list[np.ndarray]:
    """Split the labelled rows into folds with both kinds in each; unlabelled rows are in none."""
    from sklearn.model_selection import StratifiedKFold

    labelled = np.flatnonzero(y != 0)
    splitter = StratifiedKFold(n_splits, shuffle=True, random_state=random_state)
    return [labelled[held] for _, held in splitter.split(labelled, y[labelled])]


def fold_fits(
    model: Any, X: Any, codes: np.ndarray, folds: Iterable[np.ndarray]
) -> Iterator[tuple[Any, np.ndarray]]:
    """For the rows that each fold holds out, a clone of `model` fitted to all others."""
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    for held in folds:
        train = np.setdiff1d(np.arange(len(codes)), held, assume_unique=True)
        yield clone(model).fit(_safe_indexing(X, train), codes[train]), held


def out_of_fold_scores(
    model: Any, X: Any, y: Any, n_splits: int = 5, random_state: int | None = None
) -> np.ndarray:
    """Anomaly scores of the labelled rows, each from a fit that never saw the row.

    scikit-learn's `cross_val_predict` renumbers the three codes before it fits; this does not.
    Unlabelled rows are in every training set. The result is NaN for them.

    Parameters
    ----------
    model : estimator or Pipeline with `score_samples`
        Cloned for every fold.
    X : array, sparse matrix or frame
        All rows.
    y : array
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    n_splits : int, default=5
        Number of folds, lowered to the number of rows of the rarer label.
    random_state : int, optional
        Seed of the folds.
    """
    from sklearn.utils import _safe_indexing

    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    rarer = min(int((codes == ANOMALY).sum()), int((codes == NORMAL).sum()))
    if rarer < 2:
        raise InputError(
            "out-of-fold scores need at least 2 labelled rows of each kind, "
            f"got {rarer} of the rarer one."
        )
    scores = np.full(len(codes), np.nan)
    folds = labelled_folds(codes, min(n_splits, rarer), random_state)
    for fitted, held in fold_fits(model, X, codes, folds):
        scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    return scores
