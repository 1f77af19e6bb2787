"""How good scores and probabilities are on labelled rows, with intervals: AUC, ROC curve, ...

An AUC is compared with another of the same rows (`auc_difference`), combined from folds
(`auc_of_folds`), and has an interval that counts groups of similar rows (`GroupEffect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, norm, rankdata, t

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes
from riskad.files.fields import COUNT, SHARE
from riskad.metrics.folds import as_groups

__all__ = [
    "Auc",
    "AucDifference",
    "Curve",
    "Reliability",
    "auc_difference",
    "auc_of_folds",
    "auc_with_interval",
    "average_precision_with_interval",
    "precision_recall_with_interval",
    "reliability",
    "roc_with_interval",
]

# How many groups the prior guess "rows of a group are all alike" counts as: with 3 groups of rows
# it has half of the weight, with 27 a tenth.
_GUESSED_GROUPS = 3
# Each point of a curve costs two quantiles of a beta distribution. Half are from each kind of row.
_CURVE_POINTS = 200


@dataclass(frozen=True)
class Estimate:
    """A number estimated from labelled rows, with its interval, which is always printed, too.

    Examples
    --------
    >>> f"{Estimate(0.9, 0.6, 0.98, n_normal=50, n_anomaly=2):.2f}"
    '0.90 (95% interval 0.60 to 0.98; 50 normal, 2 anomalies)'
    """

    value: float
    low: float
    high: float
    n_normal: Annotated[int, COUNT]
    n_anomaly: Annotated[int, COUNT]
    confidence: Annotated[float, SHARE] = 0.95

    @classmethod
    def of_draws(cls, value: float, draws: np.ndarray, n_normal: int, n_anomaly: int) -> Self:
        """A number, and the interval of 95 % of the draws, extended to hold the number."""
        tail = (1 - cls.confidence) / 2
        low, high = np.quantile(draws, (tail, 1 - tail))
        return cls(value, min(float(low), value), max(float(high), value), n_normal, n_anomaly)

    def __format__(self, spec: str) -> str:
        value, low, high = (format(x, spec or ".3f") for x in (self.value, self.low, self.high))
        return (
            f"{value} ({self.confidence:.0%} interval {low} to {high}; "
            f"{self.n_normal} normal, {self.n_anomaly} anomalies)"
        )

    def __str__(self) -> str:
        return format(self)


def scores_by_kind(
    y: Any, anomaly_scores: Any, confidence: float, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the labelled anomalies and of the labelled normal rows, at least one of each."""
    check_in_interval("confidence", confidence, 0, 1)
    codes, scores = check_codes(y), np.asarray(anomaly_scores, dtype=float)
    if scores.shape != codes.shape:
        raise InputError(
            f"{what} needs a score for each label, got {len(codes)} labels and "
            f"{scores.size} scores."
        )
    anomalies, normals = scores[codes == ANOMALY], scores[codes == NORMAL]
    if np.isnan(anomalies).any() or np.isnan(normals).any():
        raise InputError(f"{what} needs a score for each labelled row, and some are NaN.")
    m, n = len(anomalies), len(normals)
    if m == 0 or n == 0:
        raise InputError(f"{what} needs both kinds of label, got {n} normal and {m} anomalies.")
    return anomalies, normals


def rate_with_interval(pi_n: Any, default: float) -> tuple[float, float, float]:
    """An anomaly rate and its interval, from a number, which counts as exact, or an estimate."""
    if pi_n is None:
        return default, default, default
    value, low, high = pi_n if isinstance(pi_n, Iterable) else (pi_n, pi_n, pi_n)
    remedy = "It is the share of anomalies among the unlabelled rows."
    check_in_interval("pi_n", value, 0, 1, remedy)
    return value, low, high


def share_above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of `scores` at or above each threshold."""
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)


def share_interval(hits: Any, n: float, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's intervals of shares; neither hits nor n need be whole numbers."""
    tail = (1 - confidence) / 2
    # At 0 hits, or n of n, one of the two distributions does not exist; the end is that of the
    # range.
    low = np.where(hits <= 0, 0.0, beta.ppf(tail, hits, n - hits + 1))
    return low, np.where(hits >= n, 1.0, beta.ppf(1 - tail, hits + 1, n - hits))


@dataclass(frozen=True)
class Auc(Estimate):
    """Probability that a random anomaly scores above a random normal row, with its interval."""


def auc_value(anomalies: np.ndarray, normals: np.ndarray) -> float:
    """The AUC of anomaly scores of rows of both kinds, without checks or an interval."""
    m, n = len(anomalies), len(normals)
    # Mann and Whitney's count of pairs, from ranks: ties count one half.
    ranks = rankdata(np.concatenate([anomalies, normals]))
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))


def auc_with_interval(
    y: Any, anomaly_scores: Any, confidence: float = 0.95, groups: Any = None
) -> Auc:
    """AUC over the labelled rows, with an interval.

    The interval is Newcombe's, for few labels: it holds all values theta with |AUC - theta| <= z
    sqrt(V(theta)), V being the variance of Hanley and McNeil with Newcombe's (2006) balanced count.
    It does not shrink to a point if a few anomalies all have the highest scores. With `groups`, the
    group of each row such as its customer, V is multiplied by the effect of similar rows within
    groups (`GroupEffect`); a row with a blank group is a group of its own.

    Examples
    --------
    >>> print(auc_with_interval([1, 1, 1, 1, -1, -1], [0.1, 0.4, 0.2, 0.3, 0.9, 0.8]))
    1.000 (95% interval 0.472 to 1.000; 4 normal, 2 anomalies)
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "an AUC")
    m, n = len(anomalies), len(normals)
    z = float(norm.ppf(0.5 + confidence / 2))
    if groups is not None:
        codes, scores = check_codes(y), np.asarray(anomaly_scores, dtype=float)
        groups, labelled = as_groups(groups, len(codes)), codes != UNLABELLED
        part = FoldScores(codes[labelled], scores[labelled], groups[labelled])
        # A variance D times as large is a z sqrt(D) times as large.
        z *= GroupEffect.on_auc([part]).variance ** 0.5
    value = auc_value(anomalies, normals)
    return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)


def auc_of_folds(
    values: Any,
    n_splits: int,
    n: int,
    m: int,
    confidence: float = 0.95,
    effect: GroupEffect | None = None,
) -> Auc:
    """AUC of a fit to all rows, from the AUCs of folds over n normal rows and m anomalies.

    Scores of different fits may have different scales, so folds are ranked separately and the value
    is the mean of `values`. The interval is Newcombe's with

        z = t sqrt(n_splits / (n_splits - 1)),

    t being Student's quantile for min(n, m) - 1 degrees of freedom, or 1 at least: fits of folds
    saw fewer rows, and differ more from each other and from the fit to all rows if there are fewer
    labels. The effect of groups widens the interval, and t counts groups.
    """
    confidence = check_in_interval("confidence", confidence, 0, 1)
    value = float(np.mean(values))
    rarer = min(n, m) if effect is None else effect.n_groups
    quantile = float(t.ppf(0.5 + confidence / 2, max(rarer - 1, 1)))
    # Each fit lacks one of n_splits parts of the rows: its AUC varies so much more.
    z = quantile * (n_splits / (n_splits - 1)) ** 0.5
    if effect is not None:
        z *= effect.variance**0.5
    return Auc(value, *_score_interval(value, m, n, z), n, m, confidence)


def like_interval(other: Auc, value: float, m: float, n: float) -> Auc:
    """An AUC with counts m and n, which need not be whole, and an interval of another one's z."""
    end = other.low if other.value > 0 else other.high
    # The end that does not lie on the edge of [0, 1], where the variance is 0: it gives z back.
    z = abs(other.value - end) / _variance(end, other.n_anomaly, other.n_normal) ** 0.5
    ends = _score_interval(value, m, n, z)
    return Auc(value, *ends, other.n_normal, other.n_anomaly, other.confidence)


def _variance(theta: float, m: float, n: float) -> float:
    """Variance of an estimated AUC, by Hanley and McNeil with Newcombe's balanced count."""
    spread = 1 + ((m + n) / 2 - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
    return theta * (1 - theta) * spread / (m * n)


def _score_interval(value: float, m: float, n: float, z: float) -> tuple[float, float]:
    def excess(theta: float) -> float:
        return (value - theta) ** 2 - z**2 * _variance(theta, m, n)

    # Inside the interval excess is negative, also just inside of an estimate of 0 or 1.
    inside = min(max(value, 1e-12), 1 - 1e-12)
    low = 0.0 if value == 0 else float(brentq(excess, 0.0, inside))
    high = 1.0 if value == 1 else float(brentq(excess, inside, 1.0))
    return low, high


@dataclass(frozen=True)
class AucDifference(Estimate):
    """How much higher the first AUC is than the second, with its interval."""

    @property
    def verdict(self) -> str:
        """One of "better", "worse" and "unclear": whether the interval excludes 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "unclear"


def auc_difference(
    y: Any, first: Any, second: Any, confidence: float = 0.95, groups: Any = None
) -> tuple[AucDifference, Auc, Auc]:
    """Compare two models by the anomaly scores that both give to the same labelled rows.

    With theta_1 and theta_2 the two AUCs, (l_k, u_k) their own intervals and r the correlation of
    the two estimates by DeLong's (1988) components, the interval is that of Zou and Donner (2008):

        low  = d - sqrt(a^2 + b^2 - 2 r a b),   a = theta_1 - l_1,  b = u_2 - theta_2,
        high = d + sqrt(a^2 + b^2 - 2 r a b),   a = u_1 - theta_1,  b = theta_2 - l_2.

    Both models make most of their mistakes on the same rows, so r is large and the interval of the
    difference much narrower than those of the AUCs. If one of them ranks perfectly, its components
    do not vary, and r is set to 0, which is conservative. Each model may have its own scale;
    unlabelled rows are ignored. `groups` are as in `auc_with_interval`. Returns the first AUC minus
    the second, and the two.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, -1], [80, 20])
    >>> second = rng.normal(size=100) - y
    >>> difference, *_ = auc_difference(y, second - 2 * y, second)
    >>> print(f"{difference:+.3f}", difference.verdict)
    +0.094 (95% interval +0.013 to +0.204; 80 normal, 20 anomalies) better
    """
    aucs = [auc_with_interval(y, scores, confidence, groups) for scores in (first, second)]
    kinds = [scores_by_kind(y, scores, confidence, "an AUC") for scores in (first, second)]
    V = [_delong_components(*kind) for kind in kinds]
    spread = np.sqrt(_covariance(V[0], V[0]) * _covariance(V[1], V[1]))
    # Rounding may carry a correlation of two equal models beyond 1.
    r = float(np.clip(_covariance(*V) / spread, -1, 1)) if spread > 0 else 0.0
    auc_1, auc_2 = aucs

    def distance(a: float, b: float) -> float:
        # With r near 1 and a near b rounding can make the sum negative.
        return float(np.sqrt(max(a**2 + b**2 - 2 * r * a * b, 0.0)))

    d = auc_1.value - auc_2.value
    low = max(d - distance(auc_1.value - auc_1.low, auc_2.high - auc_2.value), -1.0)
    high = min(d + distance(auc_1.high - auc_1.value, auc_2.value - auc_2.low), 1.0)
    counts = auc_1.n_normal, auc_1.n_anomaly
    return AucDifference(d, low, high, *counts, confidence), auc_1, auc_2


def _delong_components(anomalies: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each anomaly the share of normal rows below it; for each normal row, anomalies above."""
    m, n = len(anomalies), len(normals)
    # Ranks among all rows minus those within a kind count the rows of the other kind below.
    ranks = rankdata(np.concatenate([anomalies, normals]))
    return (ranks[:m] - rankdata(anomalies)) / n, 1 - (ranks[m:] - rankdata(normals)) / m


def _covariance(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Covariance of two AUCs, the sum over both kinds of cov(V, V') / (number of its rows)."""
    pairs = zip(first, second, strict=True)
    return float(sum(np.mean((u - u.mean()) * (v - v.mean())) / len(u) for u, v in pairs))


class FoldScores(NamedTuple):
    """Labelled rows that one fit has scored: their codes, anomaly scores and groups."""

    codes: np.ndarray
    scores: np.ndarray
    groups: np.ndarray


class GroupEffect(NamedTuple):
    """How much less information on a number rows in groups carry than rows without groups."""

    variance: float  # factor by which its variance must be multiplied
    n_groups: float  # how many groups the rows of the rarer kind count for

    @classmethod
    def on_auc(cls, folds: Sequence[FoldScores]) -> GroupEffect:
        """The effect on the mean AUC of some folds.

        With V_i DeLong's (1988) components, the share of rows of the other kind that row i ranks
        correctly, A their mean and c_i the number of rows of i's kind in its fold, d_i = (V_i - A)
        / c_i, the ratio of variances over groups and over rows is (Obuchowski, 1997)

            D = sum_g (sum_{i in g} d_i)^2 / sum_i d_i^2.

        Few groups determine D badly, and a perfect ranking not at all. So its largest possible
        value, if all rows of a group are alike (sum_g c_g^2 / c for c_g rows of a kind), is
        averaged in as if seen in 3 groups. A result below 1 is raised to 1.
        """
        V, counts, means = [], [], []
        for codes, scores, _ in folds:
            anomalous, v = codes == ANOMALY, np.empty(len(codes))
            kinds = scores[anomalous], scores[~anomalous]
            v[anomalous], v[~anomalous] = _delong_components(*kinds)
            V.append(v)
            counts.append(np.where(anomalous, *map(len, kinds)))
            means.append(v[anomalous].mean())
        d = (np.concatenate(V) - np.mean(means)) / np.concatenate(counts)
        codes = np.concatenate([fold.codes for fold in folds])
        return cls._of_components(d, codes, np.concatenate([fold.groups for fold in folds]))

    @classmethod
    def on_share(cls, codes: np.ndarray, groups: np.ndarray) -> GroupEffect:
        """The effect on the share of anomalies among labelled rows: d_i = y_i - mean y."""
        anomalous = (codes == ANOMALY).astype(float)
        one_kind = np.full(len(codes), NORMAL)  # all rows of a group may be of one kind
        return cls._of_components(anomalous - anomalous.mean(), one_kind, groups)

    @classmethod
    def _of_components(cls, d: np.ndarray, codes: np.ndarray, groups: np.ndarray) -> GroupEffect:
        at_most, squares, n_groups = {}, {}, np.inf
        for kind in (NORMAL, ANOMALY):
            of_kind = codes == kind
            if of_kind.any():
                # The mean number of rows in the group of a row: all of them may be alike.
                sizes = np.unique(groups[of_kind], return_counts=True)[1]
                at_most[kind] = float(np.sum(sizes**2) / sizes.sum())
                n_groups = min(n_groups, of_kind.sum() / at_most[kind])
                squares[kind] = float(np.sum(d[of_kind] ** 2))
        total = sum(squares.values())
        if not total > 0:
            # A perfect ranking has no variance to measure: the guess stands alone.
            return cls(max(at_most.values()), n_groups)
        largest = sum(squares[kind] * at_most[kind] for kind in at_most) / total
        observed = float(np.sum(np.bincount(as_groups(groups, len(groups)), d) ** 2)) / total
        effect = (n_groups * observed + _GUESSED_GROUPS * largest) / (n_groups + _GUESSED_GROUPS)
        return cls(max(effect, 1.0), n_groups)


def average_precision_with_interval(
    y: Any, anomaly_scores: Any, pi_n: Any = None, confidence: float = 0.95, effect: float = 1.0
) -> Estimate:
    """Average precision over the labelled rows, with an interval.

        AP = mean over anomalies i of  pi_n TPR_i / (pi_n TPR_i + (1 - pi_n) FPR_i)

    where TPR_i and FPR_i are the shares of anomalies and of normal rows that score at least as high
    as i. Precision depends on how rare anomalies are: `pi_n` is their rate where the scores will be
    used, a number or a `RateEstimate`; None is their share of the labels.

    AP is a mean over m anomalies of numbers between 0 and 1: its variance is at most that of a
    share of m, whose exact (Clopper-Pearson) interval it has. With groups, `effect` rows are worth
    as much as one row without a group (`GroupEffect`).

    Examples
    --------
    >>> print(average_precision_with_interval([1, 1, 1, -1, -1], [0.1, 0.2, 0.8, 0.7, 0.9]))
    0.833 (95% interval 0.087 to 1.000; 3 normal, 2 anomalies)
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "an average precision")
    m, n = len(anomalies), len(normals)
    rate, *_ = rate_with_interval(pi_n, default=m / (m + n))
    TPR, FPR = share_above(anomalies, anomalies), share_above(normals, anomalies)
    value = float(np.mean(rate * TPR / (rate * TPR + (1 - rate) * FPR)))
    # A share of m rows that are worth m / effect: neither number is whole.
    low, high = share_interval(value * m / effect, m / effect, confidence)
    return Estimate(value, float(low), float(high), n, m, confidence)


@dataclass(frozen=True)
class Curve:
    """A curve over thresholds, the highest first, with an interval at each point."""

    threshold: np.ndarray  # rows that score at least this are flagged
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


def roc_with_interval(
    y: Any, anomaly_scores: Any, confidence: float = 0.95, effect: float = 1.0
) -> Curve:
    """TPR, the share of labelled anomalies flagged, over FPR, that of labelled normal rows.

    The interval of TPR is the exact one (Clopper-Pearson) of a share of the anomalies. `effect` is
    as in `average_precision_with_interval`.

    Examples
    --------
    >>> curve = roc_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "an ROC curve")
    t = _curve_thresholds(anomalies, normals)
    TPR, FPR = share_above(anomalies, t), share_above(normals, t)
    m = len(anomalies) / effect
    return Curve(t, FPR, TPR, *share_interval(TPR * m, m, confidence))


def precision_recall_with_interval(
    y: Any, anomaly_scores: Any, pi_n: Any = None, confidence: float = 0.95, effect: float = 1.0
) -> Curve:
    """Precision over recall, if the share pi_n of all rows are anomalies.

        recall = TPR,    precision = pi_n TPR / (pi_n TPR + (1 - pi_n) FPR)

    with TPR and FPR as in `roc_with_interval`, from the first anomaly on. The interval of the
    precision combines the ends of those of TPR, FPR and the rate, which is conservative. `pi_n` and
    `effect` are as in `average_precision_with_interval`.

    Examples
    --------
    >>> curve = precision_recall_with_interval([1, 1, -1, -1], [0.1, 0.8, 0.7, 0.9])
    >>> curve.x.tolist(), curve.y.round(2).tolist()
    ([0.5, 0.5, 1.0, 1.0], [1.0, 0.5, 0.67, 0.5])
    """
    anomalies, normals = scores_by_kind(y, anomaly_scores, confidence, "a precision")
    m, n = len(anomalies), len(normals)
    rate, least, most = rate_with_interval(pi_n, default=m / (m + n))
    t = _curve_thresholds(anomalies, normals)
    t = t[share_above(anomalies, t) > 0]
    TPR, FPR = share_above(anomalies, t), share_above(normals, t)
    TPR_low, TPR_high = share_interval(TPR * (m / effect), m / effect, confidence)
    FPR_low, FPR_high = share_interval(FPR * (n / effect), n / effect, confidence)

    def precision(rate: float, TPR: np.ndarray, FPR: np.ndarray) -> np.ndarray:
        return rate * TPR / (rate * TPR + (1 - rate) * FPR)

    # Precision rises with the rate and with TPR and falls with FPR: the corners give its extremes.
    low, high = precision(least, TPR_low, FPR_high), precision(most, TPR_high, FPR_low)
    return Curve(t, TPR, precision(rate, TPR, FPR), low, high)


def _curve_thresholds(anomalies: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """Scores of each kind, all of them or as many quantiles, above them infinity."""
    shares = np.linspace(0, 1, _CURVE_POINTS // 2)
    # Quantiles that are scores themselves: between two scores the curve has no corner.
    kinds = [np.quantile(kind, shares, method="inverted_cdf") for kind in (anomalies, normals)]
    return np.append(np.inf, np.unique(np.concatenate(kinds))[::-1])


@dataclass(frozen=True)
class Reliability:
    """For bins of probabilities: their mean, and the share of anomalies with its interval."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray  # number of labelled rows in each bin

    def __str__(self) -> str:
        rows = zip(self.predicted, self.observed, self.low, self.high, self.count, strict=True)
        return "\n".join(
            f"{p:.3f} predicted, {o:.3f} observed ({low:.3f} to {high:.3f}; {count} rows)"
            for p, o, low, high, count in rows
        )


def reliability(
    y: Any, probabilities: Any, pi_n: Any = None, bins: int = 10, confidence: float = 0.95
) -> Reliability:
    """Compare predicted probabilities p with the observed share of anomalies.

    Bins have equal width; empty ones are left out. The interval of a share is the exact one
    (Clopper-Pearson). `pi_n` is as in `average_precision_with_interval`: odds in a bin are changed
    by the same factor as the odds of anomalies among all labelled rows.

    Examples
    --------
    >>> print(reliability([1, 1, 1, -1, 1, -1], [0.1, 0.1, 0.1, 0.1, 0.7, 0.9], bins=2))
    0.100 predicted, 0.250 observed (0.006 to 0.806; 4 rows)
    0.800 predicted, 0.500 observed (0.013 to 0.987; 2 rows)
    """
    anomalies, normals = scores_by_kind(y, probabilities, confidence, "reliability")
    if min(anomalies.min(), normals.min()) < 0 or max(anomalies.max(), normals.max()) > 1:
        raise InputError(
            "probabilities lie between 0 and 1; scores become probabilities by "
            "anomaly_probability of a calibrated detector."
        )
    m, n = len(anomalies), len(normals)
    rate, *_ = rate_with_interval(pi_n, default=m / (m + n))
    # Labelled rows are weighted as if the share pi_n of all rows were anomalies.
    weight = np.array([(1 - rate) / n, rate / m])  # of a normal row and of an anomaly
    p, kind = np.concatenate([normals, anomalies]), np.repeat([0, 1], [n, m])
    # Inner edges only: a probability of 1 belongs to the last bin.
    bin_of = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p, side="right")
    rows = []
    for members in (bin_of == each for each in np.unique(bin_of)):
        hits, count = kind[members].sum(), int(members.sum())
        shares = hits / count, *share_interval(hits, count, confidence)
        at_rate = [q * weight[1] / (q * weight[1] + (1 - q) * weight[0]) for q in shares]
        mean = np.average(p[members], weights=weight[kind[members]])
        rows.append((mean, *at_rate, count))
    return Reliability(*map(np.array, zip(*rows, strict=True)))
