"""The anomaly rate of the unlabelled rows, given how rows were chosen for labelling.

y is 1 for a labelled anomaly and 0 for a labelled normal row. q(s) is the probability of being an
anomaly, by the line through their held-out scores (`riskad.decisions.score_line`). mean_L and
mean_U are means over the labelled and over the unlabelled rows. pi is the rate. Three assumptions
about labelling lead to three likelihoods of pi:

- **Labelled rows are a random sample.** Their share of anomalies is right on average, and scores
  improve it: mean_U q + mean_L (y - q), the difference estimator of survey sampling. It counts as
  a share among N rows, N from its variance. Overlapping kinds cannot bias it.
- **The chance of a label depended on the kind**: anomalies were labelled more often, say. Then the
  unlabelled rows are a mixture of rows like the labelled ones: for any function q,
  mean_U q = (1 - pi) mean_normal q + pi mean_anomaly q, up to the errors of the means. And not
  many more are anomalies than score as high as the labelled ones (`_bound`).
- **The chance of a label depended on the row's content**: a rule found the row, or it was
  suggested. Then rows with the same score are alike, labelled or not, and pi is mean_U q.

**Anomalies are rare, and that is knowledge.** The rates of real tables are the prior of pi, a Beta
distribution that counts as some 18 labelled rows (`RATE_PRIOR`). Where kinds overlap and labels
were chosen, or without labelled anomalies, the posterior is close to it.

If nobody said how rows were chosen, each assumption has a prior probability, and three things tell
them apart. (1) Ranks: those of a random sample differ from ranks of unlabelled rows by chance alone
(`random_p_value`); of chosen rows, both standardised differences have the variance 1 + n / 25.
(2) The share of anomalies: in a random sample it is pi up to chance, among chosen rows anything.
(3) Ranks of normal rows: where the kind alone decided, labelled ones rank no higher than unlabelled
rows but by chance; where content did, their standardised difference has the variance 1 + n / 5. The
estimate is the median of the posterior over all assumptions, and the interval has its quantiles.

The prior and the probabilities of the assumptions were chosen on real tables by how far estimates
are from the truth in four ways of labelling; `results/decisions` has figures for other tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, logit
from scipy.stats import norm, rankdata

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.decisions.score_line import ScoreLine, intercepts
from riskad.files.fields import SHARE, Text

LABEL_SOURCES = ("random", "chosen", "unknown")  # how rows were chosen for labelling
GIVEN, RANDOM, UNKNOWN, CHOSEN, ANOMALIES_ALONE, PRIOR_ALONE = (
    "given",
    "by labelled rows as a random sample",
    "by labelled rows, which may be a random sample or chosen, and by the rates of other tables",
    "by labelled rows that were chosen, and by the rates of other tables",
    "by labelled anomalies, which set an upper limit, and by the rates of other tables",
    "by the rates of other tables alone, since these labels do not tell it",
)
_ASSUMPTIONS = (GIVEN, RANDOM, UNKNOWN, CHOSEN, ANOMALIES_ALONE, PRIOR_ALONE)

# Beta distribution of the rate: its mean is 9 %, and 95 % lie between 1 % and 25 %.
RATE_PRIOR = (1.7, 16.5)
# Probabilities of the three assumptions.
_BELIEFS = {"random": (1.0, 0.0, 0.0), "chosen": (0.0, 0.6, 0.4), "unknown": (0.2, 0.52, 0.28)}
SURPRISE = 0.01  # the p-value below which labelled rows do not count as a random sample
FEWEST = 2  # labelled rows of a kind, for a line through scores
FEWEST_UNLABELLED = 5
_MORE_THAN_CHANCE = 1 / 25  # variance of the ranks of a chosen row beyond that of a random one
_NORMALS_BY_CONTENT = 1 / 5  # the same for normal rows, if content decided which were labelled
_TRUSTED = 5  # labelled anomalies at which half of the apparent gain from scores counts
_CUTS = np.arange(3, 11) / 10  # shares of the labelled anomalies that the bound looks at
_PURE, _PURE_ERROR = 0.5, 0.35  # log of the rate over the bound where anomalies stand apart
_DRAWS, _MOST_SCORES, _CONFIDENCE = 300, 2_000, 0.95
# Rates from 0.01 % to 98 %, in steps of 2.5 % of the odds: likelihoods are sums over these.
_LOG_ODDS = np.linspace(-9, 4, 521)
_RATES = expit(_LOG_ODDS)
# The density of log odds is that of the rate times rate (1 - rate): both exponents are one larger.
_LOG_PRIOR = RATE_PRIOR[0] * np.log(_RATES) + RATE_PRIOR[1] * np.log1p(-_RATES)
_LOG_PRIOR -= np.log(np.exp(_LOG_PRIOR).sum())


@dataclass(frozen=True)
class RateEstimate:
    """The share of anomalies among the unlabelled rows, with its interval and its basis.

    Examples
    --------
    >>> rate = RateEstimate(0.05, 0.02, 0.09, "by labelled rows as a random sample")
    >>> print(rate)
    5.0% (95% interval 2.0% to 9.0%)
    >>> value, low, high = rate
    """

    value: Annotated[float, SHARE]
    low: Annotated[float, SHARE]
    high: Annotated[float, SHARE]
    assumption: Annotated[str, Text(choices=_ASSUMPTIONS)]
    confidence: Annotated[float, SHARE] = _CONFIDENCE

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.1%} ({self.assumption})"
        low, high = f"{self.low:.1%}", f"{self.high:.1%}"
        return f"{self.value:.1%} ({self.confidence:.0%} interval {low} to {high})"

    def quantiles(self, size: int) -> np.ndarray:
        """`size` rates that are compatible with the labelled rows, evenly spaced in probability."""
        z = float(norm.ppf(0.5 + self.confidence / 2))
        return rates_around(self, norm.ppf((np.arange(size) + 0.5) / size), z)


def as_rate_estimate(pi_n: Any) -> RateEstimate:
    """An estimate, or a known rate as one."""
    if isinstance(pi_n, RateEstimate):
        return pi_n
    what, remedy = "the anomaly rate", "0.03 is 3 % of the unlabelled rows."
    value = check_in_interval(what, pi_n, 0, 1, remedy, closed=True)
    return RateEstimate(value, value, value, GIVEN)


def check_label_source(source: Any, n_rows: int) -> str | np.ndarray:
    """How rows were chosen for labelling: one word for all rows, or one for each row.

    Rows marked "random" were drawn at random; any other word means that they were chosen.
    """
    if isinstance(source, str):
        return check_choice("label_source", source, LABEL_SOURCES)
    words = np.asarray(source).astype(str)
    if words.shape != (n_rows,):
        raise InputError(
            f"label_source needs one word for each of {n_rows:,} rows, got {words.size:,}. Or say "
            f"one of {', '.join(LABEL_SOURCES)} of all of them."
        )
    return words


def rates_around(
    rate: Iterable[float], noise: np.ndarray, z: float, least: float = 0.0
) -> np.ndarray:
    """Rates that spread by standard normal `noise` around the first as far as its interval.

    `rate` has the value and its interval of z standard errors, each side of which counts by itself.
    """
    value, low, high = np.arcsin(np.sqrt(np.clip(list(rate), 0, 1)))
    # Angles have about the same spread near 0 and elsewhere; log odds of 0 would be infinite.
    angles = value + np.where(noise < 0, value - low, high - value) / z * noise
    return np.asarray(np.sin(np.clip(angles, least, np.pi / 2 - least)) ** 2)


class _Rows(NamedTuple):
    """Labelled rows, and scores of unlabelled rows; all by fits that have not seen them."""

    scores: np.ndarray
    anomalous: np.ndarray
    unlabelled: np.ndarray
    n_unlabelled: int
    by_chance: np.ndarray  # which of the labelled rows were drawn at random
    line: ScoreLine | None  # through the scores of both kinds, if there are enough rows


def estimate_rate(
    scores: np.ndarray,
    anomalous: np.ndarray,
    unlabelled: np.ndarray,
    n_unlabelled: int,
    source: str | np.ndarray = "unknown",
    seed: int = 0,
) -> RateEstimate | None:
    """The anomaly rate of the unlabelled rows; None if there are none.

    `scores` and `anomalous` are of the labelled rows; `unlabelled` are scores of all or some of the
    unlabelled rows. All are held-out anomaly scores; without them, labels are only counted.
    `source` is one of `LABEL_SOURCES`, or a word for each row. The interval is never a point.
    """
    # A share of no rows is no number, and every caller has to say so in its own words.
    if not n_unlabelled:
        return None
    anomalous = np.asarray(anomalous, dtype=bool)
    by_chance = np.ones(len(scores), dtype=bool)
    if not isinstance(source, str):
        by_chance = np.asarray(source) == "random"
        # Chosen rows beside random ones improve the line through scores; random ones are counted.
        source = "random" if by_chance.any() else "chosen"
        by_chance = by_chance if by_chance.any() else ~by_chance
    unlabelled = np.sort(unlabelled)
    if len(unlabelled) > _MOST_SCORES:
        # Evenly spaced quantiles: means of a smooth function over them hardly differ.
        some = np.linspace(0, len(unlabelled) - 1, _MOST_SCORES).round().astype(int)
        unlabelled = unlabelled[some]
    m = int(anomalous.sum())
    n = len(anomalous) - m
    enough = len(unlabelled) >= FEWEST_UNLABELLED
    line = ScoreLine.through(scores, anomalous) if enough and min(n, m) >= FEWEST else None
    rows = _Rows(scores, anomalous, unlabelled, n_unlabelled, by_chance, line)
    if not m + n or (source == "chosen" and line is None and m < FEWEST):
        return _summary(np.zeros_like(_RATES), PRIOR_ALONE)
    # Without labelled normal rows there is no line through scores; only how many rows score as high
    # as anomalies is left.
    if not n and source != "random":
        if m < FEWEST or not enough:
            return _summary(np.zeros_like(_RATES), PRIOR_ALONE)
        return _summary(_bound(rows), ANOMALIES_ALONE)
    log_likelihood = _over_assumptions(rows, _BELIEFS[source], np.random.default_rng(seed))
    basis = {"random": RANDOM, "chosen": CHOSEN, "unknown": UNKNOWN if m else PRIOR_ALONE}
    return _summary(log_likelihood, basis[source])


def _summary(log_likelihood: np.ndarray, assumption: str) -> RateEstimate:
    """The median of the posterior, and the quantiles between which it has 95 % probability."""
    log_posterior = log_likelihood + _LOG_PRIOR
    weights = np.exp(log_posterior - log_posterior.max())
    # Half of its own weight: the middle of a rate's share of the posterior.
    share = (np.cumsum(weights) - weights / 2) / weights.sum()
    levels = [0.5 - _CONFIDENCE / 2, 0.5, 0.5 + _CONFIDENCE / 2]
    low, value, high = expit(np.interp(levels, share, _LOG_ODDS))
    return RateEstimate(float(value), float(low), float(high), assumption, _CONFIDENCE)


def _over_assumptions(
    rows: _Rows, beliefs: tuple[float, float, float], rng: np.random.Generator
) -> np.ndarray:
    """Log likelihood of each rate, over the assumptions about labelling by their probabilities."""
    # The difference estimator over rows drawn at random, and the rows that it is worth.
    y = rows.anomalous[rows.by_chance].astype(float)
    n, m = len(y), float(y.sum())
    value, ratio = m / n, 1.0
    if rows.line is not None:
        line = rows.line.at_rate((m + 0.5) / (n + 1), rows.scores[rows.by_chance])
        q = line.probabilities(rows.scores[rows.by_chance])
        value += float(line.probabilities(rows.unlabelled).mean() - q.mean())
        unexplained = np.mean((y - q) ** 2) * n / max(n - 2, 1) / max(y.var(), 1e-12)
        # Residuals may look smaller than y - mean y by chance: a part of the reduction counts.
        ratio = 1 - max(0.0, 1 - float(unexplained)) * m / (m + _TRUSTED)
    size = 1 / ratio / (1 / n + 1 / rows.n_unlabelled)
    # It counts like a binomial share of so many rows.
    # A quarter of a row from either end: else one kind alone would make a rate of 0 or 1 certain.
    k = min(max(value * size, 0.25), size - 0.25)  # anomalies among `size` rows; neither is whole
    ways = gammaln(size + 1) - gammaln(k + 1) - gammaln(size - k + 1)
    parts = [np.asarray(ways + k * np.log(_RATES) + (size - k) * np.log1p(-_RATES))]
    if beliefs[0] < 1:
        chosen = -np.log1p(size)  # any number of anomalies among the labelled rows is as likely
        if rows.line is None:
            parts += [np.full_like(_RATES, chosen)] * 2
        else:
            # A standardised square is chi-squared; for chosen rows it is `spread` times as large,
            # and the density has the logarithm of it.
            squares = sum(d**2 for d in _rank_deviations(rows.scores, rows.unlabelled))
            spread = 1 + _MORE_THAN_CHANCE * len(rows.scores)
            parts[0] -= squares / 2
            chosen -= squares / (2 * spread) + np.log(spread)
            # Only normal rows tell kind from content: anomalies rank higher either way.
            normals = rows.scores[~rows.anomalous]
            higher, _ = _rank_deviations(normals, rows.unlabelled)
            by_content = 1 + _NORMALS_BY_CONTENT * len(normals)
            # Lower ranks are no evidence: only the unlabelled rows hold anomalies.
            by_kind = chosen - max(higher, 0.0) ** 2 / 2
            by_score = chosen - higher**2 / (2 * by_content) - np.log(by_content) / 2
            parts.append(by_kind + _alike_by_kind(rows, rows.line))
            parts.append(by_score + _alike_by_score(rows, rows.line, rng))
    weighted = [
        np.log(belief) + part for belief, part in zip(beliefs, parts, strict=False) if belief
    ]
    return np.asarray(np.logaddexp.reduce(weighted))


def random_p_value(labelled: np.ndarray, unlabelled: np.ndarray) -> float:
    """p-value of labelled rows being a random sample, by the ranks of held-out scores.

    Over a random sample the sum of the squared deviations is nearly chi-squared (Lepage, 1971).
    """
    if not len(labelled) or not len(unlabelled):
        return 1.0
    place, spread = _rank_deviations(labelled, unlabelled)
    return float(np.exp(-(place**2 + spread**2) / 2))


def _rank_deviations(labelled: np.ndarray, unlabelled: np.ndarray) -> tuple[float, float]:
    """How far ranks of labelled rows are from those of a random sample, in standard errors."""
    n, total = len(labelled), len(labelled) + len(unlabelled)
    r = (rankdata(np.concatenate([labelled, unlabelled]))[:n] - 0.5) / total - 0.5
    error = np.sqrt(1 / n - 1 / total)
    # Of a uniform distribution on [-1/2, 1/2], r has the variance 1/12 and r^2 the variance 1/180.
    place = r.mean() / (error / np.sqrt(12))  # of rows that score higher than others
    # Of rows from the middle or from both ends.
    spread = (r**2 - 1 / 12).mean() / (error / np.sqrt(180))
    return float(place), float(spread)


def _alike_by_score(rows: _Rows, line: ScoreLine, rng: np.random.Generator) -> np.ndarray:
    """Log likelihood of rates near mean_U q, as far as labelled rows determine the line."""
    slopes = line.draws(_DRAWS, rng)
    m = rows.anomalous.sum()
    # Jeffreys' posterior of the share of anomalies among the labelled rows.
    shares = rng.beta(m + 0.5, len(rows.anomalous) - m + 0.5, _DRAWS)
    starts = intercepts(slopes[:, None] * rows.scores, shares)
    means = expit(starts[:, None] + slopes[:, None] * rows.unlabelled).mean(axis=1)
    log_odds = logit(np.clip(means, 1e-6, 1 - 1e-6))
    # No better than 0.1 in log odds, even if all draws agree.
    distance = (_LOG_ODDS - np.median(log_odds)) / np.hypot(log_odds.std(), 0.1)
    return np.asarray(-(distance**2) / 2)


def _alike_by_kind(rows: _Rows, line: ScoreLine) -> np.ndarray:
    """Log likelihood of rates at which the unlabelled rows are a mixture of the labelled kinds."""
    bound = _bound(rows)
    # The bound says nothing of how rows were chosen: over the prior its mean is 1.
    bound = bound - np.log((np.exp(bound + _LOG_PRIOR)).sum())
    if line.steepest <= 0:
        return np.asarray(bound)
    # 0.3: the function q only has to separate kinds; its own rate does not matter to the identity.
    steep = replace(line, slope=line.steepest).at_rate(0.3, rows.scores)
    q = steep.probabilities(rows.scores)
    kinds = [q[~rows.anomalous], q[rows.anomalous], steep.probabilities(rows.unlabelled)]
    # A few rows of a kind may look alike by chance: all labelled ones count as two rows of each.
    spread = [(len(k) * float(k.var()) + 2 * float(q.var())) / (len(k) + 1) / len(k) for k in kinds]
    normal, anomaly, mixed = (float(kind.mean()) for kind in kinds)
    distance = mixed - (1 - _RATES) * normal - _RATES * anomaly
    variance = (1 - _RATES) ** 2 * spread[0] + _RATES**2 * spread[1] + spread[2]
    # Student's distribution, with the freedom of the anomalies: their mean is the least certain.
    freedom = max(len(kinds[1]) - 1, 1)
    return np.asarray(bound - (freedom + 1) / 2 * np.log1p(distance**2 / variance / freedom))


def _bound(rows: _Rows) -> np.ndarray:
    """Log likelihood of rates that scores allow: no more anomalies than rows that score as high.

    If the share K of the labelled anomalies and U of the unlabelled rows exceed a score, then pi K
    <= U, with equality if no normal row does. The score is the one with the smallest upper limit of
    U / K. Where anomalies stand apart the rate is about exp(0.5) U / K on real tables, because
    labelled anomalies that were held out score a little lower than others.
    """
    anomalies, unlabelled = rows.scores[rows.anomalous], rows.unlabelled
    cuts = np.quantile(anomalies, 1 - _CUTS, method="lower")
    K, U = ((kind[:, None] >= cuts).mean(axis=0) for kind in (anomalies, unlabelled))
    # Where no row exceeds a score one might have: log 0 would exclude every rate.
    U = np.maximum(U, 1 / len(unlabelled))
    error = np.sqrt((1 - K) / (K * len(anomalies)) + (1 - U) / (U * len(unlabelled)))
    # With its error: at high scores U / K is small but rests on one or two rows.
    best = int(np.argmin(np.log(U / K) + error))
    limit = np.log(U[best] / K[best]) + _PURE
    return np.asarray(norm.logcdf((limit - np.log(_RATES)) / np.hypot(_PURE_ERROR, error[best])))
