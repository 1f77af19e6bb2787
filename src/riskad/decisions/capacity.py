"""How many anomalies a person finds by looking at the k rows with the highest scores.

Of N rows, the share pi_n of which are anomalies, let p(s) be the probability that a row with score
s is one. Looking at the k highest finds about

    found(k) = sum of p(s) over these k rows,    sum of p(s) over all N rows = N pi_n,

where a random choice of k rows contains k pi_n. Precision is found(k) / k, recall found(k) /
found(N). The interval is for the count that a person who looks at all k rows will see. It covers
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

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from riskad.core.checks import InputError, quoted
from riskad.decisions.anomaly_rate import rates_around
from riskad.decisions.calibration import Calibration
from riskad.decisions.score_line import intercepts, newton_logistic
from riskad.decisions.thresholds import Capacity, Cost, parse_threshold
from riskad.metrics.ranking import Estimate

Floats: TypeAlias = NDArray[np.float64]

_DRAWS = 1000  # the ends of an interval are then about the 25th from either side
_BINS, _PARTS = 200, 100  # of the table, and of the rows to which the rate applies
_CURVE_POINTS = 40  # on 250 units of a chart
_KNOTS = (1.0, 2.0)  # spreads above the middle, where the line may bend
_SLOPE, _BEND = 2.5, 1.0  # standard deviations of the priors of beta and gamma
_FARTHEST = 6.0  # spreads from the middle; beyond that a larger score changes nothing
_FITS_DIFFER = 1.5  # times the variance: labelled rows have scores of fits that saw fewer rows
_FEWEST_UNSEEN = 5  # below that, scores of the fit to all rows are used instead
_CURVE_BEYOND = 1.25  # times the last number of the table, or the number of flagged rows
_DAYS = {"day": 1.0, "week": 7.0, "month": 365.25 / 12}
_CAPACITY = re.compile(r"\s*(\d[\d,_]*)\s*(?:(?:/|per|a)\s*([a-z]+?)s?)?\s*")


@dataclass(frozen=True)
class TopRows:
    """What looking at the highest scores is expected to find, compared with a random choice."""

    rows: int  # looked at
    threshold: float  # the lowest of their scores
    found: Estimate  # number of anomalies among them
    precision: Estimate  # their share of the rows looked at
    recall: Estimate  # their share of all anomalies of the table
    by_chance: float  # expected anomalies among as many rows chosen at random
    lift: Estimate  # ratio of the anomalies found to those found by chance


@dataclass(frozen=True)
class ExpectedCost:
    """What flagging some rows costs: false alarms, missed anomalies, and the total price."""

    false_alarms: Estimate
    misses: Estimate
    cost: Estimate


@dataclass(frozen=True)
class ReviewCurve:
    """Anomalies found against rows looked at, with an interval at each point."""

    rows: list[int]
    found: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class ReviewReport:
    """What looking at the rows of a table in the order of their scores finds."""

    rows: int
    anomalies: Estimate  # in the whole table
    flagged: TopRows  # among the rows above the threshold
    table: list[TopRows]  # at 5, 10, 20, 50, ... rows
    curve: ReviewCurve
    average_precision: Estimate
    likely: int = 0  # rows that are more likely an anomaly than not
    cost: ExpectedCost | None = None  # for a rule that weighs false alarms against misses


class Review:
    """Anomalies among the highest scores of a table, for any number of rows looked at.

    Expected counts are sums of the `probabilities` of being an anomaly. `normals` and `anomalies`
    are held-out scores of labelled rows, at least 2 of each; `effect` of them are worth as much as
    one that shares its group with no other. `rate` is the anomaly rate with the ends of its 95 %
    interval, and `reference` has the scores of the rows to which it applies, by default those of
    the table. `n_rows` is the number of rows of the table, if `scores` are evenly spaced quantiles.
    """

    def __init__(
        self,
        scores: Floats,
        probabilities: Floats,
        normals: Floats,
        anomalies: Floats,
        rate: Iterable[float],
        *,
        effect: float = 1.0,
        reference: Floats | None = None,
        n_rows: int | None = None,
    ):
        self.n_rows = len(scores) if n_rows is None else n_rows
        powers = 10 ** np.arange(len(str(self.n_rows)) + 1)
        round_numbers = np.outer(powers, (1, 2, 5)).ravel().tolist()
        # 5, 10, 20, 50, 100, ... below the number of rows, and that number.
        self.counts = [k for k in round_numbers if 5 <= k < self.n_rows] + [self.n_rows]
        self._labelled, self._effect = (normals, anomalies), effect
        order = np.argsort(-scores, kind="stable")
        self._scores = scores[order]
        each = self.n_rows / len(scores)  # rows that a score represents
        # Rows up to and including each score, of the whole table.
        self._ends = each * np.arange(len(scores) + 1)
        self._expected = each * np.append(0.0, np.cumsum(probabilities[order]))
        evenly = np.linspace(0, self.n_rows, min(_BINS, self.n_rows) + 1).astype(int)
        # Short lists, which people read, are counted exactly and not in parts of a bin.
        first = [k for k in self.counts if k < evenly[1]]
        self._edges = np.unique(np.append(evenly, first).astype(int))
        self._reference = self._scores if reference is None else reference
        if len(self._reference) > _PARTS:
            # Only the mean probability over them matters, which means of 100 parts hardly change.
            parts = np.array_split(np.sort(self._reference), _PARTS)
            self._reference = np.array([part.mean() for part in parts])
        # A fixed seed: a report that is made twice must say the same.
        self._draws = self._draw(rate, np.random.default_rng(0))

    def found(self, k: int) -> Estimate:
        """Number of anomalies among the k highest scores."""
        return self._estimate(*self._count(k))

    @property
    def anomalies(self) -> Estimate:
        """Number of anomalies in the whole table."""
        return self.found(self.n_rows)

    def at(self, k: int) -> TopRows:
        """What looking at the k highest scores finds; k is at most the number of rows."""
        k = min(k, self.n_rows)
        (value, draws), (total, everything) = self._count(k), self._count(self.n_rows)
        some = everything > 0  # a table without any anomaly has no recall
        recalled = draws[some] / everything[some] if some.any() else np.ones(1)
        recall = self._estimate(min(value / total, 1.0), recalled)
        lift = self.n_rows / k if k else 1.0
        ends = {end: lift * getattr(recall, end) for end in ("value", "low", "high")}
        return TopRows(
            rows=k,
            threshold=float(self._score_at(k - 0.5)),
            found=self._estimate(value, draws),
            precision=self._estimate(value / k if k else 0.0, draws / max(k, 1)),
            recall=recall,
            by_chance=k * total / self.n_rows,
            lift=replace(recall, **ends),
        )

    @property
    def likely(self) -> int:
        """How many rows are more likely an anomaly than not, by their probabilities."""
        likely = np.diff(self._expected) > np.diff(self._ends) / 2
        return round(float(likely.mean() * self.n_rows))

    def cost(self, k: int, false_alarm: float, miss: float) -> ExpectedCost:
        """The cost of flagging exactly the k highest scores."""
        (value, draws), (total, everything) = self._count(k), self._count(self.n_rows)
        misses, missed_draws = max(total - value, 0.0), everything - draws
        price = false_alarm * (k - value) + miss * misses
        return ExpectedCost(
            self._estimate(k - value, k - draws),
            self._estimate(misses, missed_draws),
            self._estimate(price, false_alarm * (k - draws) + miss * missed_draws),
        )

    def average_precision(self) -> Estimate:
        """The mean precision at the positions of the anomalies, over all N rows of the table.

        A bin that starts below F anomalies among k rows, and holds f among n, adds f times
        (F + f / 2) / (k + n / 2). F and f are sums of probabilities, as in all other counts.
        """
        places = (self._edges[:-1] + self._edges[1:]) / 2
        expected = np.interp(self._edges, self._ends, self._expected)
        values = []
        for anomalies in (expected[None], self._draws):
            in_bin = np.diff(anomalies, axis=1)
            precision = (anomalies[:, :-1] + in_bin / 2) / places
            total = np.where(anomalies[:, -1] > 0, anomalies[:, -1], 1.0)
            values.append((in_bin * precision).sum(axis=1) / total)
        return self._estimate(float(values[0][0]), values[1])

    def _draw(self, rate: Iterable[float], rng: np.random.Generator) -> NDArray[Any]:
        """Number of anomalies up to each edge, drawn many times."""
        # Far scores do not change these quantiles: the unit is a standard deviation of normal ones.
        low, middle, high = np.quantile(self._reference, (0.16, 0.5, 0.84))
        spread = (high - low) / 2 or self._reference.std() or 1.0

        def basis(scores: Floats) -> Floats:
            z = np.clip((scores - middle) / spread, -_FARTHEST, _FARTHEST)
            return np.stack([z, *(np.maximum(z - knot, 0) for knot in _KNOTS)], axis=-1)

        Z = np.concatenate([basis(kind) for kind in self._labelled])
        theta, hessian = newton_logistic(
            np.column_stack([np.ones(len(Z)), Z]),
            np.repeat([0.0, 1.0], [len(kind) for kind in self._labelled]),
            penalty=np.diag([1e-6, _SLOPE**-2.0, *(_BEND**-2.0 for _ in _KNOTS)]),
            start=np.zeros(Z.shape[1] + 1),
            weight=1 / self._effect,
        )
        covariance = _FITS_DIFFER * np.linalg.inv(hessian)[1:, 1:]
        slopes = rng.multivariate_normal(theta[1:], covariance, _DRAWS)
        rates = rates_around(rate, rng.normal(size=_DRAWS), 1.96, least=1e-3)
        alpha = intercepts(slopes @ basis(self._reference).T, rates)
        lines = slopes @ basis(self._score_at((self._edges[:-1] + self._edges[1:]) / 2)).T
        # Rows of a bin share a probability: a draw takes a binomial for each of 200 bins instead of
        # a coin for each row.
        in_bins = rng.binomial(np.diff(self._edges), expit(alpha[:, None] + lines))
        anomalies = np.cumsum(in_bins, axis=1)
        return np.pad(anomalies, ((0, 0), (1, 0)))

    def _count(self, k: int) -> tuple[float, Floats]:
        """The expected count of anomalies among k rows, and draws; between edges in proportion."""
        after = max(int(np.searchsorted(self._edges, k)), 1)
        low, high = self._edges[after - 1 : after + 1]
        before, upto = self._draws[:, after - 1], self._draws[:, after]
        draws = before + (k - low) / (high - low) * (upto - before)
        return float(np.interp(k, self._ends, self._expected)), draws

    def _score_at(self, place: Any) -> Any:
        """The score at a position, counted in rows from the highest."""
        return np.interp(place, (self._ends[:-1] + self._ends[1:]) / 2, self._scores)

    def _estimate(self, value: float, draws: Floats) -> Estimate:
        return Estimate.of_draws(value, draws, *map(len, self._labelled))


def review_rows(
    calibration: Calibration, scores: Floats | None = None, n_rows: int | None = None
) -> Review | None:
    """The review of a table, by default of the unlabelled rows; None if labels do not allow it."""
    of_fit = scores is None
    if scores is None:
        scores, n_rows = calibration.unlabelled, calibration.n_unlabelled
    if calibration.rate is None or not calibration.has_both_kinds or not len(scores):
        return None
    line, reference = calibration.line, None
    if of_fit:  # the rows to which the rate applies
        line = line.at_rate(calibration.pi_n, scores)
    else:  # new to the fit, like the rows that it has held out
        held_out = calibration.held_unlabelled
        reference = held_out if len(held_out) >= _FEWEST_UNSEEN else calibration.unlabelled
    return Review(
        scores,
        line.probabilities(scores),
        calibration.normals,
        calibration.anomalies,
        calibration.rate,
        effect=calibration.group_effect,
        reference=reference,
        n_rows=n_rows,
    )


def review_table(review: Review | None, flagged: int, rule: str) -> ReviewReport | None:
    """Return the content for a report: `flagged` rows are above the threshold of a rule."""
    if review is None:
        return None
    n_rows = review.n_rows
    table: list[TopRows] = []
    for k in review.counts[:-1] or [n_rows]:
        table.append(review.at(k))
        # The lines after this one would hardly differ.
        if table[-1].recall.value > 0.95:
            break
    most = min(round(max(table[-1].rows, _CURVE_BEYOND * flagged)), n_rows)
    ks = np.unique(np.linspace(0, most, _CURVE_POINTS + 1).astype(int)).tolist()
    curve = [(each.value, each.low, each.high) for each in map(review.found, ks)]
    threshold, cost = parse_threshold(rule), None
    if isinstance(threshold, Cost):
        cost = review.cost(flagged, threshold.false_alarm, threshold.miss)
    return ReviewReport(
        rows=n_rows,
        anomalies=review.anomalies,
        flagged=review.at(flagged),
        table=table,
        curve=ReviewCurve(ks, *map(list, zip(*curve, strict=True))),
        average_precision=review.average_precision(),
        likely=review.likely,
        cost=cost,
    )


@dataclass(frozen=True)
class CapacityPlan:
    """How many rows can be reviewed, of how many that arrive in the same time."""

    rows: int
    period: str  # "day", "week" or "month"; blank if none was named
    of_rows: float  # that arrive in a period, by the table of the fit
    assumed: str  # the assumption behind this number

    @property
    def rule(self) -> Capacity:
        """The threshold for this capacity."""
        return Capacity(self.rows, round(self.of_rows, 3))

    def __str__(self) -> str:
        each = f" a {self.period}" if self.period else ""
        return f"{self.rows:,} rows{each} can be reviewed: {self.assumed}"


def parse_capacity(capacity: str | int) -> tuple[int, str]:
    """The number of rows, and the period if one is named: 50, 50/day, 50/week or 200/month."""
    match = _CAPACITY.fullmatch(str(capacity).lower())
    rows, period = (re.sub("[,_]", "", match[1]), match[2] or "") if match else ("0", "")
    if int(rows) < 1 or (period and period not in _DAYS):
        raise InputError(
            f"capacity={quoted(capacity)} must be how many rows can be reviewed, and in what time: "
            "50, 50/day, 50/week or 200/month."
        )
    return int(rows), period


def plan_capacity(
    capacity: str | int, n_rows: int, n_unlabelled: int, time: str | None, moments: Any
) -> CapacityPlan:
    """Find how many rows arrive in the period of a capacity.

    `moments` is the column of dates of the table, named `time`. Days are counted by the calendar,
    the first and the last included. Without it the unlabelled rows count as those of one period.
    """
    rows, period = parse_capacity(capacity)
    if period and moments is not None and time is not None:
        days = (moments.max() - moments.min()).days + 1
        of_rows = n_rows / days * _DAYS[period]
        pace = f"{of_rows:,.0f}" if of_rows >= 10 else f"{of_rows:.1f}"
        assumed = (
            f"the table has {n_rows:,} rows of {days:,} days ({time!r}), {pace} a {period}, and "
            "later tables are assumed to have as many"
        )
        if rows >= of_rows:
            assumed += "; that is all of them, so every row is flagged"
        return CapacityPlan(rows, period, of_rows, assumed)
    assumed = f"the {n_unlabelled:,} unlabelled rows are taken to be "
    assumed += (
        f"those of one {period}; name the column of dates (time, or --time) if they are not"
        if period
        else "one batch"
    )
    return CapacityPlan(rows, period, float(max(n_unlabelled, 1)), assumed)
