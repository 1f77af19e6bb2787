"""From scores to decisions: a threshold is found after scoring, from scores and labels only.

A fit sets its threshold where its risk is lowest (`zero_one_threshold`). The rules here set
another, without another fit: `detector.set_threshold(rule)` after `riskad.calibrate`. Each raises
an error if the labels are not sufficient for it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, ClassVar, get_type_hints

import numpy as np
from scipy.special import expit

from riskad.core.checks import InputError, check_choice, check_in_interval, quoted
from riskad.core.risks import Risk
from riskad.decisions.calibration import Calibration
from riskad.decisions.conformal import check_normals
from riskad.decisions.score_line import intercepts
from riskad.files.codec import register
from riskad.files.fields import POSITIVE, SHARE, Maybe, Number

_MOST = 1e15  # rows, or units of cost: squares and products of it stay exact enough
# Of log odds per standard deviation of scores: smaller values make lists longer where labels show
# no slope.
_LEAST_RISE = 0.75
_MOST_LISTED = 2.0  # rows of a list per expected anomaly
_RATES = 15  # over which the expected F1 is averaged; each costs a pass over the scores
_MOST_SCORES = 2_000  # by which intercepts are found
_FEWEST = 3  # labelled anomalies; a share of fewer is not informative


@dataclass(frozen=True)
class Threshold(ABC):
    """A rule for the threshold t: a row is an anomaly if its anomaly score exceeds t.

    `str` of a rule is its spelling on the command line: its name and its numbers, with colons.
    """

    name: ClassVar[str]
    example: ClassVar[str]  # of its spelling
    meaning: ClassVar[str]  # what it flags, in a few words
    depends_on_table: ClassVar[bool] = False
    _below: ClassVar[dict[str, tuple[float, str]]] = {}
    """For numbers that must be above 0 and below another one: that one, and what they are."""

    @property
    def top_rows(self) -> int:
        """How many of the highest scores of a table decide; 0 if this does not matter."""
        return 0

    @abstractmethod
    def of(self, calibration: Calibration) -> float:
        """The threshold t, given what is known about labelled and unlabelled rows."""

    def __post_init__(self) -> None:
        for name, (most, meaning) in self._below.items():
            if getattr(self, name) is not None:
                check_in_interval(name, getattr(self, name), 0, most, meaning)

    def __str__(self) -> str:
        spelled = self.name
        for field in fields(self):
            value = getattr(self, field.name)
            spelled += "" if value is None else f":{value:.12g}"
        return spelled


@dataclass(frozen=True)
class RiskZero(Threshold):
    """Where the risk of the fit, with the zero-one loss, is lowest. Needs nothing else."""

    name = "risk"
    example = "risk"
    meaning = "where the risk of the fit is lowest"

    def of(self, calibration: Calibration) -> float:
        """The threshold of the fit."""
        return calibration.zero


@dataclass(frozen=True)
class Likely(Threshold):
    """Flag the rows that make the best list, at most twice as many as there are anomalies.

    With p_i(pi) the probability that unlabelled row i is an anomaly at the rate pi
    (`riskad.decisions.score_line`), the k most anomalous rows have the expected F1

        mean over pi of  2 sum_{i <= k} p_i(pi) / (k + sum_i p_i(pi)),

    and k maximises it. The mean is over rates spread as the interval of the estimate: if that is
    wide, a list for the estimate alone would often be far too long. If scores carry almost no
    information, the best list is nearly all rows, which is useless: so k is at most twice the
    expected number of anomalies, and log odds are assumed to rise by 3/4 per standard deviation at
    least. If the labels do not determine a line through scores, the list is for the estimate alone.
    Without unlabelled rows, the threshold is that of the fit.
    """

    name = "likely"
    example = "likely"
    meaning = "the best list by probabilities; the default of auto"

    def of(self, calibration: Calibration) -> float:
        """The threshold with the highest expected F1."""
        if calibration.rate is None or not calibration.n_unlabelled:
            return calibration.zero
        s, pi_n = calibration.unlabelled, calibration.pi_n
        # Without a line, rows are taken to be as alike as `_LEAST_RISE` allows.
        slope, rates = 0.0, np.array([pi_n])
        if calibration.knows_probabilities:
            slope, rates = calibration.line.slope, calibration.likely_rates(_RATES)
        slope = max(slope, _LEAST_RISE / (float(s.std()) or 1.0))
        levels, first = np.unique(s, return_index=True)  # rows with equal scores stay together
        short_enough = len(s) - first <= _MOST_LISTED * pi_n * len(s)
        # Intercepts are found on a part of many scores.
        some = s[np.linspace(0, len(s) - 1, min(len(s), _MOST_SCORES)).round().astype(int)]
        f1 = np.zeros(len(first))
        for c in intercepts(np.tile(slope * some, (len(rates), 1)), rates):
            # Expected anomalies among the scores from each position on.
            hits = np.cumsum(expit(c + slope * s)[::-1])[::-1]
            f1 += 2 * hits[first] / (len(s) - first + hits[0]) / len(rates)
        f1 *= short_enough
        best = int(np.argmax(f1)) if f1.any() else len(levels) - 1
        if best == 0:  # all rows have one score, and none is more likely than another
            return float(levels[0])
        return float((levels[best - 1] + levels[best]) / 2)


@dataclass(frozen=True)
class AnomalyRate(Threshold):
    """Flag as many unlabelled rows as there are anomalies among them, as estimated or given."""

    pi_n: Annotated[float | None, Maybe(SHARE)] = None
    name = "rate"
    example = "rate, rate:0.05"
    meaning = "as many as there are anomalies, as estimated or as given"
    _below: ClassVar = {"pi_n": (1, "It is the share of rows to be flagged.")}

    def of(self, calibration: Calibration) -> float:
        """The threshold that the share pi_n of the unlabelled rows exceeds."""
        _check_unlabelled(calibration, self)
        pi_n = calibration.pi_n if self.pi_n is None else self.pi_n
        return _cut(calibration, round(pi_n * calibration.n_unlabelled))


@dataclass(frozen=True)
class BestF(Threshold):
    """The highest F_beta, the mean of precision and recall in which recall weighs beta times.

    With TPR(t) the share of labelled anomalies above t and q(t) that of the unlabelled rows, recall
    is TPR, precision is pi_n TPR / q, and

        F_beta = (1 + beta^2) pi_n TPR(t) / (beta^2 pi_n + q(t)).

    q replaces the false alarm rate of labelled normal rows, which are too few to measure small
    rates. Needs the unlabelled rows and both kinds of label, with at least 3 anomalies.
    """

    beta: Annotated[float, POSITIVE] = 1.0
    name = "f"
    example = "f1, f2, f0.5"
    meaning = "best F score; f2 weighs recall twice"
    _below: ClassVar = {"beta": (_MOST, "1 weighs precision and recall alike.")}

    def __str__(self) -> str:
        return f"f{self.beta:.12g}"

    def of(self, calibration: Calibration) -> float:
        """The threshold with the highest F_beta."""
        t, TPR, q = _paths(calibration, self)
        pi_n, b2 = calibration.pi_n, self.beta**2
        return _fewest_flagged(t, (1 + b2) * pi_n * TPR / (b2 * pi_n + q))


@dataclass(frozen=True)
class Cost(Threshold):
    """The lowest expected cost of an unlabelled row, given those of a false alarm and of a miss.

    With TPR and q as in `BestF`, false alarms are the flagged rows beyond anomalies:

        false_alarm max(0, q(t) - pi_n TPR(t)) + miss pi_n (1 - TPR(t)).

    Needs what `BestF` needs.
    """

    false_alarm: Annotated[float, POSITIVE] = 1.0
    miss: Annotated[float, POSITIVE] = 10.0
    name = "cost"
    example = "cost:1:10"
    meaning = "lowest cost of false alarms (here 1) and misses (here 10)"
    _below: ClassVar = dict.fromkeys(("false_alarm", "miss"), (_MOST, "It is what one costs."))

    def of(self, calibration: Calibration) -> float:
        """The threshold with the lowest cost."""
        t, TPR, q = _paths(calibration, self)
        pi_n = calibration.pi_n
        false_alarms, misses = np.maximum(q - pi_n * TPR, 0), pi_n * (1 - TPR)
        return _fewest_flagged(t, -(self.false_alarm * false_alarms + self.miss * misses))


@dataclass(frozen=True)
class FalseAlarms(Threshold):
    """Flag at most the share `rate` of normal rows.

    The threshold is the k-th largest score of n labelled normal rows, k = floor(rate (n + 1)): rows
    above it are those whose p-value (`riskad.decisions.conformal`) is at most `rate`. Needs
    labelled normal rows, at least 1 / rate - 1 of them, and no anomalies.
    """

    rate: Annotated[float, SHARE] = 0.01
    name = "false-alarms"
    example = "false-alarms:0.01"
    meaning = "at most this share of normal rows"
    _below: ClassVar = {"rate": (1, "It is the share of normal rows to be flagged.")}

    def of(self, calibration: Calibration) -> float:
        """The threshold that a normal row exceeds with probability at most `rate`."""
        n = len(calibration.normals)
        check_normals(n, "false alarm rates")
        # Rounding must not lose a row where the product is whole.
        k = math.floor(self.rate * (n + 1) + 1e-9)
        if k < 1:
            raise InputError(
                f"a false alarm rate of {self.rate:g} cannot be set with {n} labelled normal rows: "
                f"the smallest is 1/{n + 1} = {1 / (n + 1):.2g}. Choose that one, or label "
                f"{math.ceil(1 / self.rate - 1e-9) - 1 - n:,} more."
            )
        return float(np.sort(calibration.normals)[-k])


@dataclass(frozen=True)
class TopK(Threshold):
    """Flag the k most anomalous rows, if people can review k; ties at the end are not flagged.

    They are counted among the unlabelled rows of the fit: in a larger table, more rows are flagged.
    Needs the unlabelled rows and no labels.
    """

    k: Annotated[int, Number(1, whole=True)] = 10
    name = "top"
    example = "top:50"
    meaning = "the 50 most anomalous rows"
    depends_on_table: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole = isinstance(self.k, (int, np.integer)) and not isinstance(self.k, bool)
        if not whole or not 1 <= self.k <= _MOST:
            raise InputError(
                f"k must be a whole number of rows from 1 to {_MOST:g}, got {quoted(self.k)}."
            )

    @property
    def top_rows(self) -> int:
        """One more than are flagged: the threshold is between the two."""
        return self.k + 1

    def of(self, calibration: Calibration) -> float:
        """The threshold that k rows exceed."""
        _check_unlabelled(calibration, self)
        return _cut(calibration, self.k)


@dataclass(frozen=True)
class Capacity(Threshold):
    """Flag k of every n rows, if people can review no more of those that arrive.

    `of_rows` is by default the number of unlabelled rows of the fit; the threshold is the score
    that this share of them exceeds. In a later table twice as large, about twice as many are
    flagged, whereas `TopK` flags the same number in any table. Needs no labels.
    """

    rows: Annotated[float, POSITIVE] = 50
    of_rows: Annotated[float | None, Maybe(POSITIVE)] = None
    name = "capacity"
    example = "capacity:50:1200"
    meaning = "the most anomalous 50 of every 1,200 rows"
    _below: ClassVar = dict.fromkeys(("rows", "of_rows"), (_MOST, "It is a number of rows."))

    def of(self, calibration: Calibration) -> float:
        """The threshold that the share rows / of_rows of the unlabelled rows exceeds."""
        _check_unlabelled(calibration, self)
        share = self.rows / (self.of_rows or calibration.n_unlabelled)
        return _cut(calibration, round(share * calibration.n_unlabelled))


THRESHOLDS: dict[str, type[Threshold]] = {
    rule.name: rule
    for rule in (RiskZero, Likely, AnomalyRate, BestF, Cost, FalseAlarms, TopK, Capacity)
}
"""Rules by the names used in their spelling."""
THRESHOLD_TYPES = [rule.__name__ for rule in THRESHOLDS.values()]  # as written to model files


def register_threshold(rule: type[Threshold]) -> type[Threshold]:
    """Register a rule of your own, so that it can be spelled and saved with models.

    It is a frozen dataclass with `name`, `example` and `meaning`; a model file holds its fields.
    """
    if rule.name in THRESHOLDS:
        raise InputError(f"There is a threshold {rule.name!r} already; choose another name.")
    register(rule)
    THRESHOLDS[rule.name] = rule
    THRESHOLD_TYPES.append(rule.__name__)
    return rule


def parse_threshold(text: str) -> Threshold:
    """The rule for a spelling: likely, risk, rate:0.05, f1, cost:1:10, false-alarms:0.01, top:50.

    Examples
    --------
    >>> parse_threshold("cost:1:10")
    Cost(false_alarm=1.0, miss=10.0)
    >>> str(FalseAlarms(0.01))
    'false-alarms:0.01'
    """
    # "f2" is written without a colon.
    name, *parts = re.sub(r"^f(?=[\d.])", "f:", text.strip().lower()).split(":")
    if name not in THRESHOLDS:
        check_choice("threshold", name, ["f1" if each == "f" else each for each in THRESHOLDS])
    rule = THRESHOLDS[name]
    takes = name + ("".join(f":{field.name.upper()}" for field in fields(rule)) or " alone")
    takes = "f1, f2 or another number" if name == "f" else takes
    unreadable = InputError(f"threshold={text!r} cannot be read: write {takes}.")
    try:
        numbers = list(map(float, parts))
    except ValueError:
        raise unreadable from None
    required = sum(field.default is MISSING for field in fields(rule))
    if not required <= len(numbers) <= len(fields(rule)) or not all(map(math.isfinite, numbers)):
        raise unreadable
    types = get_type_hints(rule)
    for i, field in enumerate(fields(rule)[: len(numbers)]):
        # float("50") is 50.0, and a rule that counts rows would refuse it.
        if types[field.name] is int and numbers[i].is_integer():
            numbers[i] = int(numbers[i])
    try:
        return rule(*numbers)
    except InputError as error:  # it names one number alone
        raise InputError(f"threshold={text!r} cannot be used: {error}") from error


def _check_unlabelled(calibration: Calibration, rule: Threshold) -> None:
    if not calibration.n_unlabelled:
        raise InputError(
            f"the threshold {str(rule)!r} is found on unlabelled rows, and there are none. Mark "
            "rows that nobody checked with 0, or choose 'false-alarms' or 'risk'."
        )


def _cut(calibration: Calibration, k: int) -> float:
    """A threshold that k unlabelled rows exceed, midway between two of them."""
    n, unlabelled = calibration.n_unlabelled, calibration.unlabelled
    if k >= n:
        # A row is flagged if its score exceeds the threshold: below the lowest, all are.
        return float(np.nextafter(unlabelled[0], -np.inf))
    # Between two scores: a row that is computed in another order may differ in the last digit.
    place = (n - k - 0.5) / (n - 1) if n > 1 else 1.0
    return float(np.quantile(unlabelled, min(place, 1.0))) if k > 0 else float(unlabelled[-1])


def _paths(calibration: Calibration, rule: Threshold) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ascending thresholds between scores; shares of anomalies and unlabelled rows above them."""
    _check_unlabelled(calibration, rule)
    anomalies, unlabelled = np.sort(calibration.anomalies), calibration.unlabelled
    if len(anomalies) < _FEWEST:
        raise InputError(
            f"the threshold {str(rule)!r} takes {_FEWEST} labelled anomalies that were held out, "
            f"and there are {len(anomalies)}. Label more, or choose 'rate:SHARE', "
            "'false-alarms:RATE' or 'top:K'."
        )
    levels = np.unique(np.concatenate([anomalies, unlabelled]))
    edges = np.concatenate([levels[:1] - 1, levels])
    t = np.append((edges[:-1] + edges[1:]) / 2, edges[-1])
    TPR, q = (1 - np.searchsorted(s, t, side="right") / len(s) for s in (anomalies, unlabelled))
    return t, TPR, q


def _fewest_flagged(t: np.ndarray, value: np.ndarray) -> float:
    """The threshold with the highest value; among several, the one that flags fewest rows."""
    # Values that differ by rounding are equal.
    return float(t[value >= value.max() - 1e-12][-1])


def zero_one_threshold(
    risk: Risk, scores: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """The threshold t whose decisions "normal if score >= t" have the lowest estimated error.

    It minimises the given risk with the zero-one loss in place of its own loss: for rad

        a U(t) + (1 - a) pi_p P(t) + pi_n (1 - N(t)) - a pi_n N(t)

    where K(t) is the share of rows of kind K that score below t. With heavy regularisation, a fit
    ranks rows well long before its scores are on both sides of zero. If a whole interval is best,
    its middle is used, and among several the one nearest to zero.
    """
    if sample_weight is not None:
        # Rows without weight would still end intervals between scores.
        weighty = sample_weight > 0
        scores, y, sample_weight = scores[weighty], y[weighty], sample_weight[weighty]
    order = np.argsort(scores)
    order = order[np.isin(y[order], list(risk.kinds()))]
    scores, y = scores[order], y[order]
    weight = True if sample_weight is None else sample_weight[order]
    # All thresholds in (levels[i-1], levels[i]] decide the same; so do all beyond either end.
    first = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
    levels, places = scores[first], np.append(first, len(scores))
    plain, guarded = np.zeros((2, len(places)))
    for term in risk.terms():
        if term.weight != 0:
            before = np.append(0, np.cumsum(weight * (y == term.kind)))[places]
            below = before / before[-1]  # share of the kind that is called anomalous
            wrong = below if term.sign > 0 else 1 - below
            (guarded if risk.guarded and term.guarded else plain)[:] += term.weight * wrong
    error = plain + (np.maximum(guarded, 0) if risk.guarded else guarded)
    # A threshold below all scores, and one above: the distance of 1 is arbitrary.
    edges = np.concatenate([levels[:1] - 1, levels, levels[-1:] + 1])
    middles = (edges[:-1] + edges[1:]) / 2
    best = middles[error <= error.min() + 1e-12]
    return float(best[np.argmin(np.abs(best))])
