r"""The evidence of labelled anomalies on the levels of a category, as one number for each level.

Of m labelled anomalies k_v have level v, and so has the share f_v of all rows. If levels carried no
information, k_v would be m f_v; with r_v the factor by which anomalies are more frequent there,

    k_v ~ Poisson(m f_v r_v),        r_v ~ Gamma(s, s), of mean 1,

the posterior mean of r_v is (k_v + s) / (m f_v + s), and its logarithm is the evidence: near 0
for few rows, whatever their labels. s is the value of a grid under which the counts of all levels
are most likely. If no s makes them more likely than uninformative levels, a column has no evidence.
Neither has a column with ten levels or fewer: detectors find the information of their labels from
rows.

A row must not see its own label: at training rows the evidence is cross-fitted. Each row is in one
of five folds, and its evidence comes from labels in the other four. This includes unlabelled rows,
which could see all labels without harm to themselves: otherwise labelled rows would have values
that no unlabelled row has, and a tree would learn which rows are labelled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln

from riskad.core.labels import ANOMALY, KINDS
from riskad.rows.columns import FEW_LEVELS, Levels
from riskad.storage.fields import COUNT, Array, Fields, ListOf, Number, State, require

__all__ = ["LevelEvidence"]

_FOLDS = 5
_PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_CLEARLY = 2.0  # required gain in log likelihood, since one more number is chosen
_FEWEST_ANOMALIES = 5


@dataclass(frozen=True)
class LevelEvidence:
    """The evidence of columns of codes, appended to a matrix as further columns.

    Parameters
    ----------
    places
        The columns that have evidence; codes are 0, 1, 2 ..., and NaN is a level of its own.
    shares
        f_v of each of these columns, that of NaN last.
    priors
        s of each column.
    evidence
        Evidence of the levels of each column, that of NaN last.

    Examples
    --------
    >>> shop = np.repeat(np.arange(20.0), 10)[:, None]
    >>> codes = np.zeros(200, dtype=int)
    >>> codes[[0, 1, 2, 3, 4, 5, 30, 31]] = -1  # six of the anomalies at shop 0, two at shop 3
    >>> found = LevelEvidence.learn(shop, codes, {0: [f"shop {i}" for i in range(20)]})
    >>> found.appended(np.array([[0.0], [1.0], [3.0], [np.nan]])).round(2)
    array([[ 0.  ,  2.5 ],
           [ 1.  , -1.61],
           [ 3.  ,  1.44],
           [  nan,  0.  ]])
    """

    places: list[int]
    shares: list[np.ndarray]
    priors: list[float]
    evidence: list[np.ndarray]

    _state_fields: ClassVar[Fields] = {
        "places": ListOf(COUNT, "columns"),
        "shares": ListOf(Array("f", (None,), low=0, high=1), "columns"),
        "priors": ListOf(Number(0, open=True), "columns"),
        "evidence": ListOf(Array("f", (None,)), "columns"),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        sizes = zip(state["shares"], state["evidence"], strict=True)
        require(all(len(f) == len(e) >= 1 for f, e in sizes), "evidence: of other levels")

    @classmethod
    def learn(
        cls, matrix: Any, codes: np.ndarray, levels: Levels, weight: np.ndarray | None = None
    ) -> LevelEvidence:
        """Learn the evidence of each column in which it is clear.

        Parameters
        ----------
        matrix
            Rows; the columns that `levels` names hold codes.
        codes
            +1 normal, -1 anomaly, 0 unlabelled.
        levels
            The texts of columns of codes, by the column's position.
        weight
            A row of weight w counts as w rows.
        """
        found = cls([], [], [], [])
        anomalies = codes == ANOMALY
        if anomalies.sum() < _FEWEST_ANOMALIES:
            return found
        for place, texts in sorted(levels.items()):
            if len(texts) <= FEW_LEVELS:
                continue
            level = _level(matrix[:, place], len(texts))
            count = _counts(level, len(texts), weight)
            shares, k = count / count.sum(), _counts(level, len(texts), weight, anomalies)
            prior = _likeliest_prior(k, k.sum() * shares)
            if prior is not None:
                found.places.append(place)
                found.shares.append(shares)
                found.priors.append(prior)
                found.evidence.append(_log_ratio(k, shares, prior))
        return found

    def relearned(self, matrix: Any, codes: np.ndarray) -> LevelEvidence:
        """Return the evidence of other labels, with the same columns, shares and priors."""
        evidence = []
        for place, shares, prior in zip(self.places, self.shares, self.priors, strict=True):
            level = _level(matrix[:, place], len(shares) - 1)
            k = _counts(level, len(shares) - 1, None, codes == ANOMALY)
            evidence.append(_log_ratio(k, shares, prior))
        return replace(self, evidence=evidence)

    def appended(self, matrix: Any) -> Any:
        """Return new rows with their evidence."""
        return self._append(
            matrix,
            [
                evidence[_level(matrix[:, place], len(evidence) - 1)]
                for place, evidence in zip(self.places, self.evidence, strict=True)
            ],
        )

    def appended_in_fit(
        self,
        matrix: Any,
        codes: np.ndarray,
        seed: int,
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Any:
        """Return the training rows of the evidence, with cross-fitted evidence.

        Rows of a group share a fold.
        """
        fold = _folds(codes, seed)
        if groups is not None:
            _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
            fold = fold[first][numbers]
        columns = []
        for place, shares, prior in zip(self.places, self.shares, self.priors, strict=True):
            level = _level(matrix[:, place], len(shares) - 1)
            column = np.empty(len(level))
            for each in range(_FOLDS):
                others = (codes == ANOMALY) & (fold != each)
                k = _counts(level, len(shares) - 1, weight, others)
                here = fold == each
                column[here] = _log_ratio(k, shares, prior)[level[here]]
            columns.append(column)
        return self._append(matrix, columns)

    @staticmethod
    def _append(matrix: Any, columns: list[np.ndarray]) -> Any:
        return np.column_stack([matrix, *columns]) if columns else matrix


def _level(column: np.ndarray, n_levels: int) -> np.ndarray:
    """Codes as positions of levels; NaN is the one after all others."""
    return np.where(np.isnan(column), n_levels, column).astype(np.int64)


def _counts(
    level: np.ndarray,
    n_levels: int,
    weight: np.ndarray | None,
    among: np.ndarray | None = None,
) -> np.ndarray:
    if among is not None:
        level, weight = level[among], None if weight is None else weight[among]
    return np.bincount(level, weight, minlength=n_levels + 1).astype(float)


def _log_ratio(k: np.ndarray, shares: np.ndarray, prior: float) -> np.ndarray:
    """The evidence, log (k_v + s) / (m f_v + s)."""
    return np.asarray(np.log((k + prior) / (k.sum() * shares + prior)))


def _likeliest_prior(k: np.ndarray, expected: np.ndarray) -> float | None:
    """The s under which the counts are most likely; None if levels seem uninformative."""
    there = expected > 0
    k, mu = k[there], expected[there]
    nothing = float((k * np.log(mu) - mu).sum())

    def gain(s: float) -> float:
        spread = gammaln(k + s) - gammaln(s) + s * np.log(s / (s + mu)) - k * np.log(s + mu)
        return float((spread + k * np.log(mu)).sum()) - nothing

    best = max(_PRIORS, key=gain)
    return best if gain(best) > _CLEARLY else None


def _folds(codes: np.ndarray, seed: int) -> np.ndarray:
    """A fold for each row; each has its share of every kind."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(codes), dtype=np.int64)
    for kind in KINDS:
        places = rng.permutation(np.flatnonzero(codes == kind))
        fold[places] = np.arange(len(places)) % _FOLDS
    return fold
