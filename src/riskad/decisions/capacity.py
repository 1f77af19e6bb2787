r"""How many anomalies a person finds by looking at the k rows with the highest scores.

Of N rows, the share pi_n of which are anomalies, let p(s) be the probability that a row with score
s is one. Looking at the k highest finds about

    found(k) = sum of p(s) over these k rows,    sum of p(s) over all N rows = N pi_n,

where a random choice of k rows contains k pi_n. Precision is found(k) / k, recall found(k) /
found(N).

The interval is for the count itself, which a person who looks at all k rows will see. It covers
three sources of uncertainty, by 1,000 draws of each:

- the rate, by its interval;
- the shape of p. With z the score in units of the table's spread,

      logit p = alpha + beta z + gamma_1 max(z - 1, 0) + gamma_2 max(z - 2, 0)

  is fitted to held-out labelled rows with normal priors on beta and gamma, drawn from the normal
  distribution about its mode with 1.5 times its variance, and alpha set so that the mean of p is
  the rate. Straight lines are overconfident at the top, where there are few labelled rows;
- chance: each of the k rows is an anomaly or not.

`results/decisions/looking.md` has the coverage in simulations and on real tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from riskad.core.checks import InputError
from riskad.metrics.estimates import Estimate

Floats: TypeAlias = NDArray[np.float64]

_DRAWS = 1000
_BINS, _PARTS = 200, 100  # of the table, and of the rows to which the rate applies
_CURVE_POINTS = 40
_KNOTS = (1.0, 2.0)
_SLOPE, _BEND = 2.5, 1.0  # standard deviations of the priors of beta and gamma
_FARTHEST = 6.0  # spreads from the middle; beyond that a larger score changes nothing
_FITS_DIFFER = 1.5  # times the variance: labelled rows have scores of fits that saw fewer rows
_FEWEST = 2  # labelled rows of each kind


class LabelledScores(NamedTuple):
    """Anomaly scores of labelled rows by fits that have not seen them."""

    normals: Floats
    anomalies: Floats
    effect: float = 1.0
    """How many of these rows are worth as much as one that shares its group with no other."""


@dataclass(frozen=True)
class Found:
    """What looking at the highest scores is expected to find, compared with a random choice."""

    rows: int
    """Number of rows looked at."""
    threshold: float
    """The lowest of their scores."""
    found: Estimate
    """Number of anomalies among them."""
    precision: Estimate
    """Their share of the rows looked at."""
    recall: Estimate
    """Their share of all anomalies of the table."""
    by_chance: float
    """Expected anomalies among as many rows chosen at random."""
    lift: Estimate
    """Ratio of the anomalies found to those found by chance."""


@dataclass(frozen=True)
class ExpectedCost:
    """What flagging some rows costs: false alarms, missed anomalies, and the total price."""

    false_alarms: Estimate
    misses: Estimate
    cost: Estimate


@dataclass(frozen=True)
class FoundCurve:
    """Anomalies found against rows looked at, with an interval at each point."""

    rows: list[int]
    found: list[float]
    low: list[float]
    high: list[float]


class Review:
    """Anomalies among the highest scores of a table, for any number of rows looked at.

    Parameters
    ----------
    scores
        Anomaly scores of the table; for very many rows, evenly spaced quantiles.
    labelled
        Held-out scores of labelled rows, at least 2 of each kind.
    rate
        The anomaly rate, and the ends of its 95 % interval.
    reference
        Scores of the rows to which this rate applies, by default those of the table.
    probabilities
        For each of `scores`, the probability that the row is an anomaly, if it is already known:
        expected counts are then its sums. By default the mean of the draws.
    n_rows
        Number of rows of the table, if `scores` are quantiles.
    confidence
        Confidence level of all intervals.
    seed
        Seed of the draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labelled = LabelledScores(rng.normal(0, 1, 190), rng.normal(2, 1, 10))
    >>> table = np.concatenate([rng.normal(0, 1, 950), rng.normal(2, 1, 50)])
    >>> review = Review(table, labelled, (0.05, 0.03, 0.08))
    >>> f"{review.at(50).found.value:.0f} of 50, by chance {review.at(50).by_chance:.1f}"
    '27 of 50, by chance 2.6'
    """

    def __init__(
        self,
        scores: Floats,
        labelled: LabelledScores,
        rate: tuple[float, float, float],
        *,
        reference: Floats | None = None,
        probabilities: Floats | None = None,
        n_rows: int | None = None,
        confidence: float = 0.95,
        seed: int = 0,
    ):
        if min(len(labelled.normals), len(labelled.anomalies)) < _FEWEST or not len(scores):
            raise InputError(
                "what looking at rows finds is told from rows to look at and 2 held-out labelled "
                f"rows of each kind; there are {len(scores):,} rows, {len(labelled.normals)} "
                f"normal and {len(labelled.anomalies)} anomalies. Label more."
            )
        self.n_rows = len(scores) if n_rows is None else n_rows
        self._labelled, self._confidence = labelled, confidence
        order = np.argsort(-scores, kind="stable")
        self._scores = scores[order]
        each = self.n_rows / len(scores)  # rows that a score represents
        self._ends = each * np.arange(len(scores) + 1)
        self._told = None
        if probabilities is not None:
            self._told = each * np.append(0.0, np.cumsum(probabilities[order]))
        evenly = np.linspace(0, self.n_rows, min(_BINS, self.n_rows) + 1).astype(int)
        first = [k for k in round_counts(self.n_rows) if k < evenly[1]]
        self._edges = np.unique(np.append(evenly, first).astype(int))
        self._reference = _means_of_parts(self._scores if reference is None else reference)
        self._draws = self._draw(rate, np.random.default_rng(seed))

    @property
    def anomalies(self) -> Estimate:
        """Number of anomalies in the whole table."""
        return self.at(self.n_rows).found

    def at(self, k: int) -> Found:
        """What looking at the k highest scores finds; k is at most the number of rows."""
        k = min(k, self.n_rows)
        drawn, everything = self._drawn(k), self._draws[:, -1]
        value, total = self._value(k), self._value(self.n_rows)
        some = everything > 0  # a table without any anomaly has no recall
        recalled = drawn[some] / everything[some] if some.any() else np.ones(1)
        recall = self._estimate(min(value / total, 1.0), recalled)
        return Found(
            rows=k,
            threshold=float(self._score_at(k - 0.5)),
            found=self._estimate(value, drawn),
            precision=self._estimate(value / k if k else 0.0, drawn / max(k, 1)),
            recall=recall,
            by_chance=k * total / self.n_rows,
            lift=_times(recall, self.n_rows / k if k else 1.0),
        )

    @property
    def likely(self) -> int:
        """How many rows are more likely an anomaly than not, by the given probabilities."""
        if self._told is None:
            return 0
        return round(float((np.diff(self._told) > np.diff(self._ends) / 2).mean() * self.n_rows))

    def cost(self, k: int, false_alarm: float, miss: float) -> ExpectedCost:
        """The cost of flagging exactly the k highest scores."""
        drawn, everything = self._drawn(k), self._draws[:, -1]
        value, total = self._value(k), self._value(self.n_rows)
        wrong, missed = k - drawn, everything - drawn
        price = false_alarm * (k - value) + miss * max(total - value, 0.0)
        return ExpectedCost(
            self._estimate(k - value, wrong),
            self._estimate(max(total - value, 0.0), missed),
            self._estimate(price, false_alarm * wrong + miss * missed),
        )

    def average_precision(self) -> Estimate:
        r"""The mean precision at the positions of the anomalies, over all N rows of the table.

        A bin that starts below F anomalies among k rows, and holds f among n, adds f times
        (F + f / 2) / (k + n / 2). If probabilities are given, F and f are their sums, so that it
        agrees with all other counts.
        """
        drawn = self._average_precision(self._draws)
        value = float(drawn.mean())
        if self._told is not None:
            told = np.interp(self._edges, self._ends, self._told)
            value = float(self._average_precision(told[None])[0])
        return self._estimate(value, drawn)

    def _average_precision(self, found: Floats) -> Floats:
        """From counts up to each edge, row by row."""
        held, places = np.diff(found, axis=1), (self._edges[:-1] + self._edges[1:]) / 2
        precision = (found[:, :-1] + held / 2) / places
        total = np.where(found[:, -1] > 0, found[:, -1], 1.0)
        return np.asarray((held * precision).sum(axis=1) / total)

    def table(self) -> list[Found]:
        """Return what is found at 5, 10, 20, 50, ... rows, until nearly all anomalies are."""
        rows: list[Found] = []
        for k in round_counts(self.n_rows)[:-1] or [self.n_rows]:
            rows.append(self.at(k))
            if rows[-1].recall.value > 0.95:
                break
        return rows

    def curve(self, most: int) -> FoundCurve:
        """Anomalies found at evenly spaced numbers of rows, up to `most`."""
        ks = np.unique(np.linspace(0, min(most, self.n_rows), _CURVE_POINTS + 1).astype(int))
        points = [self.at(int(k)).found for k in ks]
        heights = ([getattr(p, end) for p in points] for end in ("value", "low", "high"))
        return FoundCurve(ks.tolist(), *heights)

    # --- draws ---------------------------------------------------------------------------

    def _draw(self, rate: tuple[float, float, float], rng: np.random.Generator) -> NDArray[Any]:
        """Number of anomalies up to each edge, drawn many times."""
        sizes, labelled = np.diff(self._edges), self._labelled
        low, middle, high = np.quantile(self._reference, (0.16, 0.5, 0.84))
        spread = (high - low) / 2 or self._reference.std() or 1.0

        def basis(scores: Floats) -> Floats:
            z = np.clip((scores - middle) / spread, -_FARTHEST, _FARTHEST)
            return np.stack([z, *(np.maximum(z - knot, 0) for knot in _KNOTS)], axis=-1)

        kinds = basis(labelled.normals), basis(labelled.anomalies)
        slopes = rng.multivariate_normal(*_fit_slopes(*kinds, 1 / labelled.effect), _DRAWS)
        alpha = _intercepts(slopes @ basis(self._reference).T, _draw_rates(rate, rng))
        lines = slopes @ basis(self._score_at((self._edges[:-1] + self._edges[1:]) / 2)).T
        found = np.cumsum(rng.binomial(sizes, expit(alpha[:, None] + lines)), axis=1)
        return np.pad(found, ((0, 0), (1, 0)))

    def _drawn(self, k: int) -> Floats:
        """Draws at k rows; between two edges, in proportion."""
        after = max(int(np.searchsorted(self._edges, k)), 1)
        low, high = self._edges[after - 1 : after + 1]
        before, upto = self._draws[:, after - 1], self._draws[:, after]
        return before + (k - low) / (high - low) * (upto - before)

    def _value(self, k: int) -> float:
        """The expected count, limited to between none and all of the k rows."""
        if self._told is None:
            return float(self._drawn(k).mean())
        return float(np.interp(k, self._ends, self._told))

    def _score_at(self, place: Any) -> Any:
        """The score at a position, counted in rows from the highest."""
        return np.interp(place, (self._ends[:-1] + self._ends[1:]) / 2, self._scores)

    def _estimate(self, value: float, draws: Floats) -> Estimate:
        """The value with an interval that contains it."""
        tail = (1 - self._confidence) / 2
        low, high = np.quantile(draws, (tail, 1 - tail))
        n, m = len(self._labelled.normals), len(self._labelled.anomalies)
        ends = min(float(low), value), max(float(high), value)
        return Estimate(value, *ends, n, m, self._confidence)


def round_counts(n_rows: int) -> list[int]:
    """5, 10, 20, 50, 100, ... below a number, and the number itself.

    Examples
    --------
    >>> round_counts(120)
    [5, 10, 20, 50, 100, 120]
    """
    powers = (10**power for power in range(len(str(n_rows)) + 1))
    counts = [step * power for power in powers for step in (1, 2, 5)]
    return [k for k in counts if 5 <= k < n_rows] + [n_rows]


def _times(estimate: Estimate, factor: float) -> Estimate:
    ends = {end: factor * getattr(estimate, end) for end in ("value", "low", "high")}
    return replace(estimate, **ends)


def _fit_slopes(normals: Floats, anomalies: Floats, weight: float) -> tuple[Floats, Floats]:
    """Mode and covariance of (beta, gamma), each labelled row counting as `weight` of one."""
    Z = np.concatenate([normals, anomalies])
    Z = np.column_stack([np.ones(len(Z)), Z])
    y = np.repeat([0.0, 1.0], [len(normals), len(anomalies)])
    prior = np.diag([1e-6, _SLOPE**-2.0, *(_BEND**-2.0 for _ in _KNOTS)])
    theta = np.zeros(Z.shape[1])
    for _ in range(60):
        q = expit(Z @ theta)
        gradient = weight * Z.T @ (q - y) + prior @ theta
        hessian = weight * (Z.T * (q * (1 - q))) @ Z + prior
        step = np.linalg.solve(hessian, gradient)
        size = float(np.linalg.norm(step))
        theta = theta - step * min(1.0, 2 / max(size, 1e-12))  # Newton, kept short
        if size < 1e-8:
            break
    return theta[1:], _FITS_DIFFER * np.linalg.inv(hessian)[1:, 1:]


def _draw_rates(rate: tuple[float, float, float], rng: np.random.Generator) -> Floats:
    """Rates that spread around the first as far as the 95 % interval, on each side.

    Angles arcsin(sqrt(rate)) have about the same spread near 0 and elsewhere; an interval may reach
    0.
    """
    value, low, high = np.arcsin(np.sqrt(np.clip(rate, 0, 1)))
    z = rng.normal(size=_DRAWS)
    angles = value + np.where(z < 0, value - low, high - value) / 1.96 * z
    return np.sin(np.clip(angles, 1e-3, np.pi / 2 - 1e-3)) ** 2


def _intercepts(lines: Floats, rates: Floats) -> Floats:
    """The alpha with which the mean probability of each line is its rate."""
    low, high = logit(rates) - lines.max(axis=1), logit(rates) - lines.min(axis=1)
    for _ in range(24):
        alpha = (low + high) / 2
        below = expit(alpha[:, None] + lines).mean(axis=1) < rates
        low, high = np.where(below, alpha, low), np.where(below, high, alpha)
    return (low + high) / 2


def _means_of_parts(scores: Floats) -> Floats:
    """All scores, or the means of equal parts of their order."""
    if len(scores) <= _PARTS:
        return scores
    return np.array([part.mean() for part in np.array_split(np.sort(scores), _PARTS)])
