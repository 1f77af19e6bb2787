r"""How unusual a number is within its group: a z-score that borrows from the table.

Values of group g are modelled as draws from N(mu_g, sigma_g^2), where mu_g ~ N(m, tau^2) and
1 / sigma_g^2 ~ chi^2_d / (d s^2) over the groups. m, tau^2, s^2 and d are found by moments from the
n_g values, mean m_g and variance s_g^2 of all groups. With k = s^2 / tau^2, the group then has

    mean      (n_g m_g + k m) / (n_g + k)
    variance  (d s^2 + (n_g - 1) s_g^2) / (d + n_g - 1)

and a new value x of the group has the score

    z = (x - mean) / sqrt(variance + tau^2 k / (n_g + k)).

A group with many rows is judged by its own rows, one with few rows mostly by the table, and a new
one (n_g = 0) only by the table, with its spread between groups and within them.

Some of the rows are anomalies. So values are first clipped to within 1.5 standard deviations of
their group: a few extreme values then hardly change mean and variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import norm

from riskad.storage.fields import NUMBER, POSITIVE, TEXT, Array, Fields, Maybe, Number

__all__ = ["NumberByGroup"]

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
"""The group of each row, by its position among the groups; -1 if it is not among them."""

_REACH = 1.5
_ROUNDS = 4
_MOST_DEGREES = 1e4  # variances that differ by less than sampling does
_LEAST_SCALE = 1e-3  # of the table's: if groups hold one value each, a difference still has a size
_LARGEST = 1e100  # squares of larger numbers might overflow
_FARTHEST = 30.0  # beyond so many standard deviations all values count the same
# E min(Z^2, c^2) of a standard normal Z: by so much drawing in lowers the variance.
_KEPT = float(1 - 2 * _REACH * norm.pdf(_REACH) + 2 * (_REACH**2 - 1) * norm.sf(_REACH))


@dataclass(frozen=True, eq=False)
class NumberByGroup:
    """A column of numbers: statistics of each group, and of all groups together.

    >>> values = np.array([10.0, 11, 12, 10, 11, 50, 52, 51, 49, 50])
    >>> amount = NumberByGroup.learn("amount", values, np.repeat([0, 1], 5), 2)
    >>> amount.scores(np.array([50.0, 50, 50]), np.array([0, 1, -1])).round(1).tolist()
    [28.2, -0.3, 0.7]
    """

    name: str
    floor: float | None
    """Lower limit of values whose logarithms are compared; None: values are not transformed."""
    centre: float
    """m."""
    between: float
    """tau^2."""
    within: float
    """s^2."""
    degrees: float
    """d."""
    n: NDArray[np.int64]
    mean: Floats
    variance: Floats

    _state_fields: ClassVar[Fields] = {
        "name": TEXT,
        "floor": Maybe(POSITIVE),
        "centre": NUMBER,
        "between": Number(0),
        "within": POSITIVE,
        "degrees": POSITIVE,
        "n": Array("i", ("groups",), low=0),
        "mean": Array("f", ("groups",)),
        "variance": Array("f", ("groups",), low=0),
    }

    @classmethod
    def learn(cls, name: str, values: Floats, places: Places, n_groups: int) -> Self:
        """Learn the groups of a column; NaN if a cell is blank."""
        known = np.isfinite(values) & (places >= 0)
        floor = _floor(values[np.isfinite(values)])
        x, of = _on_scale(values[known], floor), places[known]
        own = _Groups.of(x, of, n_groups)
        return cls(name, floor, *_moments(own), own.n, own.mean, own.variance)

    def scores(self, values: Floats, places: Places, *, without_itself: bool = False) -> Floats:
        """Z of each value; NaN if the cell is blank.

        A training row is judged `without_itself`, by the other rows of its group: a new row of the
        group will not be among the rows that judge it.
        """
        x = _on_scale(values, self.floor)
        known = places >= 0
        n, mean, variance = (
            np.where(known, each[places], 0.0) if len(each) else np.zeros(len(x))
            for each in (self.n, self.mean, self.variance)
        )
        if without_itself:
            n, mean, variance = self._without(x, n, mean, variance)
        trust = n * self.between / (n * self.between + self.within)
        about = self._blended(n, variance) + self.between * (1 - trust)
        z = (x - trust * mean - (1 - trust) * self.centre) / np.sqrt(about)
        return np.clip(z, -_FARTHEST, _FARTHEST)

    def _blended(self, n: Floats, variance: Floats) -> Floats:
        own = np.maximum(n - 1, 0)
        blended = (self.degrees * self.within + own * variance) / (self.degrees + own)
        return np.maximum(blended, _LEAST_SCALE**2 * (self.between + self.within))

    def _without(self, x: Floats, n: Floats, mean: Floats, variance: Floats) -> list[Floats]:
        """Number, mean and variance of a group after removing one of its values."""
        reach = _REACH * np.sqrt(self._blended(n, variance))
        gap = np.clip(x - mean, -reach, reach)
        others = np.where(np.isnan(x), n, np.maximum(n - 1, 0))
        squares = np.maximum(n - 1, 0) * variance * _KEPT
        squares = np.maximum(squares - gap**2 * n / np.maximum(others, 1), 0)
        variance = squares / np.maximum(others - 1, 1) / _KEPT
        return [others, mean - gap / np.maximum(others, 1), variance]


# --- the scale ----------------------------------------------------------------------------


def _floor(values: Floats) -> float | None:
    """The smallest value whose logarithm is taken, if logarithms spread more evenly than values.

    Amounts of money are an example: customers differ by factors, and so do the payments of one.
    """
    if not len(values) or values.min() <= 0 or _skew(values) < 0.1:
        return None
    return float(values.min()) / 2 if abs(_skew(np.log(values))) < _skew(values) / 2 else None


def _skew(values: Floats) -> float:
    """How much farther the upper tail reaches than the lower: from -1 to 1, 0 if both are equal."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return float((high + low - 2 * middle) / (high - low)) if high > low else 0.0


def _on_scale(values: Floats, floor: float | None) -> Floats:
    if floor is None:
        return np.clip(values, -_LARGEST, _LARGEST)
    return np.log(np.maximum(values, floor))


# --- the groups ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Groups:
    """Number, mean and variance of each group, for clipped values."""

    n: NDArray[np.int64]
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, x: Floats, of: Places, n_groups: int) -> Self:
        """Start at medians, and clip values around the last estimate."""
        n = np.bincount(of, minlength=n_groups)
        mean = _medians(x, of, n_groups)
        own = _medians(np.abs(x - mean[of]), of, n_groups) / norm.ppf(0.75)
        usual = float(np.median(own[n > 1])) if (n > 1).any() else 0.0
        usual = usual or float(np.std(x)) or 1.0 if len(x) else 1.0
        own = np.maximum(own, _LEAST_SCALE * usual)
        scale = np.exp((n * np.log(own) + 5 * np.log(usual)) / (n + 5))
        for _ in range(_ROUNDS):
            drawn = np.clip(x, (mean - _REACH * scale)[of], (mean + _REACH * scale)[of])
            found = cls._of_sums(n, drawn, of)
            mean, (_, _, within, degrees) = found.mean, _moments(found)
            blended = degrees * within + np.maximum(n - 1, 0) * found.variance
            scale = np.sqrt(blended / (degrees + np.maximum(n - 1, 0)))
        return found

    @classmethod
    def _of_sums(cls, n: NDArray[np.int64], drawn: Floats, of: Places) -> Self:
        mean = np.bincount(of, drawn, len(n)) / np.maximum(n, 1)
        squares = np.bincount(of, (drawn - mean[of]) ** 2, len(n))
        return cls(n, mean, squares / np.maximum(n - 1, 1) / _KEPT)


def _medians(x: Floats, of: Places, n_groups: int) -> Floats:
    """The median of each group, 0 if it has no values."""
    rows = pl.DataFrame({"of": of, "x": x})
    found = rows.group_by("of").agg(pl.col("x").median())
    medians = np.zeros(n_groups)
    medians[found["of"].to_numpy()] = found["x"].to_numpy()
    return medians


# --- all groups together ------------------------------------------------------------------


def _moments(own: _Groups) -> tuple[float, float, float, float]:
    """Return m, tau^2, s^2 and d."""
    some, n = own.n > 0, own.n[own.n > 0].astype(float)
    if not len(n):
        return 0.0, 0.0, 1.0, _MOST_DEGREES
    means = _drawn_in(own.mean[some])
    if n.max() < 2:  # no group tells what is within
        return float(means.mean()), 0.0, float(means.var()) or 1.0, _MOST_DEGREES
    within, degrees, pooled = _variances(n, own.variance[some])
    centre = float(np.average(means, weights=n))
    if len(n) < 2:
        return centre, 0.0, within, degrees
    # Means of groups vary by tau^2, and also by pooled / n_g.
    apart = float(n @ (means - centre) ** 2) - (len(n) - 1) * pooled
    between = max(0.0, apart / (n.sum() - n @ n / n.sum()))
    trust = n * between / (n * between + within)
    centre = float(np.average(means, weights=trust)) if between > 0 else centre
    return centre, between, within, degrees


def _drawn_in(means: Floats) -> Floats:
    """Means of groups, extreme ones clipped."""
    middle = np.median(means)
    reach = 3 * np.median(np.abs(means - middle)) / norm.ppf(0.75)
    return np.clip(means, middle - reach, middle + reach) if reach > 0 else means


def _variances(n: Floats, variance: Floats) -> tuple[float, float, float]:
    """Return s^2, d, and the average variance.

    log s_g^2 has mean log s^2 + (psi(f/2) - log(f/2)) - (psi(d/2) - log(d/2)) and variance
    psi'(f/2) + psi'(d/2), with f = n_g - 1 (Smyth, 2004).
    """
    f, variance = n[n > 1] - 1, variance[n > 1]
    pooled = float(np.average(variance, weights=f))
    if pooled <= 0:
        return np.finfo(float).tiny, _MOST_DEGREES, 0.0
    logs = np.log(np.maximum(variance, _LEAST_SCALE**2 * pooled))
    sizes, at = np.unique(f, return_inverse=True)  # few: groups are many, and these slow
    logs += (np.log(sizes / 2) - digamma(sizes / 2))[at]
    middle = float(np.average(logs, weights=f))
    by_chance = polygamma(1, sizes / 2)[at]
    spread = float(np.average((logs - middle) ** 2 - by_chance, weights=f))
    degrees = _degrees(spread)
    return float(np.exp(middle + digamma(degrees / 2) - np.log(degrees / 2))), degrees, pooled


def _degrees(spread: float) -> float:
    """The d whose psi'(d/2) is the spread of log-variances."""
    if spread <= polygamma(1, _MOST_DEGREES / 2):
        return _MOST_DEGREES
    least = 1e-2
    if spread >= polygamma(1, least / 2):
        return least
    return float(brentq(lambda d: polygamma(1, d / 2) - spread, least, _MOST_DEGREES))
