r"""The anomaly rate of the unlabelled rows, given how rows were chosen for labelling.

y is 1 for a labelled anomaly and 0 for a labelled normal row. q(s) is the probability of being an
anomaly, by the line through their held-out scores (`riskad.decisions.score_line`). mean_L and
mean_U are means over the labelled and over the unlabelled rows, all scored by fits that have not
seen them. Three assumptions about labelling lead to three estimates:

- **Labelled rows are a random sample.** Their share of anomalies is right on average, and scores
  improve it: mean_U q + mean_L (y - q), the difference estimator of survey sampling. It has the
  error of the share if scores carry no information, and that of the residuals y - q if they do.
  Overlapping kinds cannot bias it.
- **The chance of a label depended on the row's content**: a rule found the row, or it was
  suggested. Then rows with the same score are alike, labelled or not, and mean_U q is right.
- **The chance of a label depended on the kind**: anomalies were labelled more often, say. Then
  labelled rows of each kind are like those among the unlabelled rows. These are a mixture: for any
  function q, mean_U q = (1 - pi) mean_normal q + pi mean_anomaly q, and this gives pi. If the kinds
  overlap, it determines almost nothing: all pi are kept for which the two sides differ by no more
  than their error (Fieller).

For chosen rows, it is unknown which of the last two holds. The interval covers both. The estimate
weights them by their errors, but leaves out the mixture if it does not fit at all (normal rows that
score higher than the unlabelled ones: pi would be negative). Normal rows are assumed to be labelled
at most 3 times as often as anomalies, which caps the upper end of the interval.

By default, labelled rows are compared with the unlabelled ones (`random_p_value`). Unless that test
rejects, they count as a random sample. But if the kinds overlap, the test cannot see that anomalies
were labelled more often, so the interval reaches as low as it would for chosen rows.

The prior knowledge that anomalies are rare counts as 5 labelled rows, of which half a row is an
anomaly. In a random sample these join the 60 or so labelled rows. If rows were or may have been
chosen, the estimate pi with its interval of width w is worth as many rows as a random sample would
need for that width, n = pi (1 - pi) / (w / 3.92)^2. This is mostly fewer, so the prior counts more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, norm, rankdata, t

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.decisions.score_line import ScoreLine, intercepts
from riskad.storage.fields import SHARE, Fields, Maybe, State, Text, require

__all__ = [
    "ASSUMPTIONS",
    "LABEL_SOURCES",
    "SURPRISE",
    "RateEstimate",
    "check_label_source",
    "estimate_rate",
    "given_rate",
    "random_p_value",
]

LABEL_SOURCES = ("random", "chosen", "unknown")
"""How rows were chosen for labelling."""
GIVEN, RANDOM, UNTOLD, CHOSEN, ASSUMED = (
    "given",
    "labelled rows are a random sample",
    "labelled rows are a random sample; the lower end allows for anomalies labelled more often",
    "labelled rows of each kind, or of each score, are like those among the unlabelled",
    "assumed: labels of both kinds are needed to estimate it",
)
ASSUMPTIONS = (GIVEN, RANDOM, UNTOLD, CHOSEN, ASSUMED)
"""What a rate can be based on."""

SURPRISE = 0.01
"""The p-value below which labelled rows do not count as a random sample."""
FEWEST = 2  # labelled rows of each kind, for a line through scores
FEWEST_UNLABELLED = 5
_ROWS_GUESSED, _ANOMALIES_GUESSED = 5.0, 0.5  # the prior that anomalies are rare, as labelled rows
_WIDTH = 3.92  # of a 95 % interval, in standard errors
_TRUSTED = 5  # labelled anomalies at which half of the apparent gain from scores counts
_MOST_OFTEN = 3.0  # how many times as often as anomalies normal rows may be labelled
_DRAWS, _MOST_SCORES = 300, 2_000


@dataclass(frozen=True)
class RateEstimate:
    """The share of anomalies among the unlabelled rows, with its interval and its basis.

    Examples
    --------
    >>> rate = RateEstimate(0.05, 0.02, 0.09, "labelled rows are a random sample")
    >>> print(rate)
    5.0% (95% interval 2.0% to 9.0%)
    >>> value, low, high = rate
    """

    value: float
    low: float
    high: float
    assumption: str
    confidence: float = 0.95
    share: float | None = None
    """Share of anomalies among the labelled rows."""
    by_score: float | None = None
    """mean_U q, right if rows with the same score are alike, labelled or not."""
    by_kind: float | None = None
    """Rate by the mixture, right if rows of the same kind are alike, labelled or not."""

    _state_fields: ClassVar[Fields] = dict.fromkeys(
        ("value", "low", "high", "confidence"), SHARE
    ) | {
        "assumption": Text(choices=ASSUMPTIONS),
        "share": Maybe(SHARE),
        "by_score": Maybe(SHARE),
        "by_kind": Maybe(SHARE),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        low, value, high = (state[name] for name in ("low", "value", "high"))
        require(low <= value <= high, "rate: not within its interval")

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high

    @property
    def pi_n(self) -> float:
        """The rate, under the name that all estimates of it share."""
        return self.value

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.1%} ({self.assumption})"
        low, high = f"{self.low:.1%}", f"{self.high:.1%}"
        return f"{self.value:.1%} ({self.confidence:.0%} interval {low} to {high})"

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Random rates that are compatible with the labelled rows, spread as the interval."""
        return self._away(rng.normal(size=size))

    def quantiles(self, size: int) -> np.ndarray:
        """`size` rates, evenly spaced in probability instead of random."""
        return self._away(norm.ppf((np.arange(size) + 0.5) / size))

    def _away(self, noise: np.ndarray) -> np.ndarray:
        """Rates at these numbers of standard errors from the estimate, each side by its own end.

        Angles arcsin(sqrt(rate)) have about the same spread near 0 and elsewhere. An interval may
        reach 0, where log odds would be infinite.
        """
        z = float(norm.ppf(0.5 + self.confidence / 2))
        value, low, high = np.arcsin(np.sqrt([self.value, self.low, self.high]))
        angles = value + np.where(noise < 0, value - low, high - value) / z * noise
        return np.asarray(np.sin(np.clip(angles, 0, np.pi / 2)) ** 2)


def given_rate(pi_n: Any) -> RateEstimate:
    """A known rate, or an estimate of another kind with its interval.

    Examples
    --------
    >>> given_rate(0.03)
    RateEstimate(value=0.03, low=0.03, high=0.03, assumption='given', confidence=0.95, share=None, \
by_score=None, by_kind=None)
    """
    if isinstance(pi_n, RateEstimate):
        return pi_n
    value = check_in_interval(
        "the anomaly rate",
        getattr(pi_n, "pi_n", pi_n),
        0,
        1,
        "0.03 is 3 % of the unlabelled rows.",
        closed=True,
    )
    low, high = getattr(pi_n, "interval", (value, value))
    return RateEstimate(value, min(float(low), value), max(float(high), value), GIVEN)


def check_label_source(source: Any, n_rows: int) -> str | np.ndarray:
    """How rows were chosen for labelling: one word for all rows, or one for each row.

    Rows marked "random" were drawn at random; any other word ("suggested", "found by a rule") means
    that they were chosen. Words at unlabelled rows are ignored.
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


# --- which assumption holds -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Labelled rows, and scores of unlabelled rows; all by fits that have not seen them."""

    scores: np.ndarray
    anomalous: np.ndarray
    by_chance: np.ndarray
    """Which of the labelled rows were drawn at random."""
    unlabelled: np.ndarray
    n_unlabelled: int

    @property
    def tells(self) -> bool:
        """Whether scores can be used."""
        kinds = min(int(self.anomalous.sum()), int((~self.anomalous).sum()))
        return kinds >= FEWEST and len(self.unlabelled) >= FEWEST_UNLABELLED


def estimate_rate(
    scores: np.ndarray,
    anomalous: np.ndarray,
    unlabelled: np.ndarray,
    n_unlabelled: int,
    source: str | np.ndarray = "unknown",
    seed: int = 0,
) -> RateEstimate | None:
    """The anomaly rate of the unlabelled rows; None if the labels cannot determine it.

    Parameters
    ----------
    scores, anomalous
        Held-out anomaly scores of the labelled rows, and which of them are anomalies.
    unlabelled, n_unlabelled
        Held-out anomaly scores of unlabelled rows, all or some, and the number of unlabelled rows.
    source
        How the rows were chosen for labelling (`LABEL_SOURCES`), or a word for each row.
    seed
        Seed of random draws.

    Returns
    -------
    RateEstimate or None
        The rate; its interval is never a point.
    """
    each = not isinstance(source, str)
    by_chance = np.asarray(source) == "random" if each else np.ones(len(scores), dtype=bool)
    unlabelled = _thinned(unlabelled)
    rows = _Rows(scores, anomalous.astype(bool), by_chance, unlabelled, max(n_unlabelled, 1))
    both = rows.anomalous.any() and (~rows.anomalous).any()
    if each and by_chance.any() and (~by_chance).any():
        return _by_chance(rows) if both else None
    word = ("random" if by_chance.any() else "chosen") if each else source
    if not n_unlabelled or not (both or (word == "random" and len(scores))):
        return None
    if word == "random" or (word == "unknown" and not rows.tells):
        return _by_chance(rows)
    if not rows.tells:
        return None
    chosen = _chosen(rows, np.random.default_rng(seed))
    if word == "chosen" or random_p_value(scores, rows.unlabelled) < SURPRISE:
        return chosen
    rate = _by_chance(rows)
    low = min(rate.low, chosen.low)
    return _guessed(replace(rate, low=low, by_kind=chosen.by_kind, assumption=UNTOLD))


def random_p_value(labelled: np.ndarray, unlabelled: np.ndarray) -> float:
    """p-value of labelled rows being a random sample, by the ranks of held-out scores.

    Ranks r among all rows, between 0 and 1, have mean 1/2, and their squared distances from it have
    mean 1/12. Over a random sample, both sums are nearly normal and uncorrelated, and the sum of
    their squares is chi-squared with two degrees of freedom (Lepage, 1971). It detects rows that
    score higher than others, and rows that were chosen from the middle or from both ends.

    Examples
    --------
    >>> rows = np.random.default_rng(0).permutation(1000)
    >>> bool(random_p_value(rows[:50], rows[50:]) > 0.05)
    True
    >>> bool(random_p_value(np.arange(900, 950), rows) < 0.001)
    True
    """
    n, total = len(labelled), len(labelled) + len(unlabelled)
    if not n or not len(unlabelled):
        return 1.0
    r = (rankdata(np.concatenate([labelled, unlabelled]))[:n] - 0.5) / total - 0.5
    error = np.sqrt(1 / n - 1 / total)
    place = r.mean() / (error / np.sqrt(12))
    spread = (r**2 - 1 / 12).mean() / (error / np.sqrt(180))
    return float(np.exp(-(place**2 + spread**2) / 2))


def _thinned(scores: np.ndarray) -> np.ndarray:
    ordered = np.sort(scores)
    if len(ordered) <= _MOST_SCORES:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, _MOST_SCORES).round().astype(int)]


# --- the estimates --------------------------------------------------------------------------------


def _by_chance(rows: _Rows) -> RateEstimate:
    """The difference estimator over the rows that were drawn at random.

    The variance is that of the residuals over the labelled and over the unlabelled rows. Residuals
    may look smaller than y - mean y by chance: only m / (m + 5) of the reduction counts for m
    labelled anomalies. The prior knowledge that anomalies are rare is added as 5 more labelled
    rows, of which half a row is an anomaly.
    """
    y = rows.anomalous[rows.by_chance].astype(float)
    n, m = len(y), float(y.sum())
    value = (m + _ANOMALIES_GUESSED) / (n + _ROWS_GUESSED)
    ratio, by_score = 1.0, None
    if rows.tells and n:
        line = ScoreLine.through(rows.scores, rows.anomalous)
        line = line.at_rate((m + 0.5) / (n + 1), rows.scores[rows.by_chance])
        q = line.probabilities(rows.scores[rows.by_chance])
        by_score = float(line.probabilities(rows.unlabelled).mean())
        value += by_score - float(q.mean())
        left = np.mean((y - q) ** 2) * n / max(n - 2, 1) / max(y.var(), 1e-12)
        ratio = 1 - max(0.0, 1 - float(left)) * m / (m + _TRUSTED)
    least = 0.5 / (n + _ROWS_GUESSED)
    value = min(max(value, least), 1 - least)
    size = 1 / ratio / (1 / n + 1 / rows.n_unlabelled)
    low = float(beta.ppf(0.025, value * size, (1 - value) * size + 0.5))
    high = float(beta.ppf(0.975, value * size + 0.5, (1 - value) * size + 0.5))
    share = float(rows.anomalous.mean())
    return RateEstimate(
        value, min(low, value), max(high, value), RANDOM, share=share, by_score=by_score
    )


def _chosen(rows: _Rows, rng: np.random.Generator) -> RateEstimate:
    """The rates that both assumptions about a choice allow."""
    by_score, score_ends = _alike_by_score(rows, rng)
    by_kind, kind_ends = _alike_by_kind(rows)
    widths = [max(high - low, 1e-3) for low, high in (score_ends, kind_ends)]
    weight = widths[0] ** -2 / (widths[0] ** -2 + widths[1] ** -2) if by_kind > 0 else 1.0
    n, m = len(rows.anomalous), int(rows.anomalous.sum())
    most = float(beta.ppf(0.975, m + 0.5, n - m + 0.5))
    cap = float(expit(logit(most) + np.log(_MOST_OFTEN)))
    least = 0.5 / (n + _ROWS_GUESSED)
    value = min(max(weight * by_score + (1 - weight) * by_kind, least), 1 - least)
    low = min(score_ends[0], kind_ends[0], value)
    high = max(min(max(score_ends[1], kind_ends[1]), cap), value)
    share = m / n
    found = RateEstimate(value, low, high, CHOSEN, share=share, by_score=by_score, by_kind=by_kind)
    return _guessed(found)


def _guessed(rate: RateEstimate) -> RateEstimate:
    """The estimate and the prior that anomalies are rare, weighted by the rows each is worth."""
    error = max((rate.high - rate.low) / _WIDTH, 1e-3)
    n = rate.value * (1 - rate.value) / error**2
    value = (n * rate.value + _ANOMALIES_GUESSED) / (n + _ROWS_GUESSED)
    return replace(rate, value=value, low=min(rate.low, value), high=max(rate.high, value))


def _alike_by_score(rows: _Rows, rng: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """mean_U q, and its interval over lines that are compatible with the labelled rows."""
    line = ScoreLine.through(rows.scores, rows.anomalous)
    slopes = line.draws(_DRAWS, rng)
    n, m = len(rows.anomalous), int(rows.anomalous.sum())
    shares = rng.beta(m + 0.5, n - m + 0.5, _DRAWS)
    found = intercepts(slopes, shares, rows.scores)
    means = expit(found[:, None] + slopes[:, None] * rows.unlabelled).mean(axis=1)
    value = float(line.probabilities(rows.unlabelled).mean())
    low, high = np.quantile(means, [0.025, 0.975])
    return value, (min(float(low), value), max(float(high), value))


def _alike_by_kind(rows: _Rows) -> tuple[float, tuple[float, float]]:
    """The mixture's rate, and all rates that agree with it up to chance.

    A few rows of a kind may look alike by chance: the variance of each kind is increased by that of
    all labelled rows, counted as two rows.
    """
    line = ScoreLine.through(rows.scores, rows.anomalous)
    if line.steepest <= 0:
        return 0.0, (0.0, 1.0)
    steep = replace(line, slope=line.steepest).at_rate(0.3, rows.scores)
    q = steep.probabilities(rows.scores)
    kinds = [q[~rows.anomalous], q[rows.anomalous], steep.probabilities(rows.unlabelled)]
    spread = [(len(k) * float(k.var()) + 2 * float(q.var())) / (len(k) + 1) / len(k) for k in kinds]
    normal, anomaly, mixed = (float(kind.mean()) for kind in kinds)
    pi = np.linspace(0, 1, 1001)
    sides = np.abs(mixed - (1 - pi) * normal - pi * anomaly)
    error = np.sqrt((1 - pi) ** 2 * spread[0] + pi**2 * spread[1] + spread[2])
    distance = sides / error
    limit = max(float(t.ppf(0.975, max(len(kinds[1]) - 1, 1))), float(distance.min()))
    inside = pi[distance <= limit]
    value = min(max((mixed - normal) / max(anomaly - normal, 1e-12), 0.0), 1.0)
    return value, (min(float(inside[0]), value), max(float(inside[-1]), value))
