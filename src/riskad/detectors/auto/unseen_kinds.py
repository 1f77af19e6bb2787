r"""Kinds of anomaly that fits have not seen, and the weight of novelty that they justify.

Novelty is a member of the average, with a weight w that is chosen on *held-out kinds*. The labelled
anomalies are split into two or three clusters, and each in turn is held out with an equally large
share of the labelled normal rows: fits of the quicker members have then not seen an anomaly of that
kind. With A(w) the AUC of (1 - w) s + w novelty on these rows, s the mean of these members, and SE
the standard error of the best of them,

    w = 1 / (1 + m / 50) sum_j p_j w_j exp(A(w_j) / SE) / sum_j p_j exp(A(w_j) / SE)

over the weights w_j and the p_j of `CHOICES`, with m labelled anomalies. If these are too few to
hold out kinds, A is constant. Clusters of many anomalies are always separated well enough to favour
novelty, though few kinds without a label then remain: so w falls with m. (On 100 real tables with
all rows labelled, weights that did not fall cost 0.008 of AUC and 0.02 of average precision.)
Without any labelled anomaly w is 0.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from riskad.core.labels import ANOMALY, NORMAL
from riskad.detectors.auto.held_out import fold_scores
from riskad.detectors.auto.members import LabelsGiven
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.auto.views import Views
from riskad.metrics.folds import whole_groups
from riskad.metrics.ranking import Auc, auc_of_folds, auc_with_interval

__all__ = [
    "CHOICES",
    "JUDGES",
    "MOST_KINDS",
    "Kinds",
    "hold_kinds_out",
    "kinds_to_hold_out",
    "novelty_untested",
]

CHOICES = {0.0: 8.0, 0.05: 4.0, 0.1: 2.0, 0.2: 1.0}
"""Weights that novelty may have in the average, with their prior probabilities."""
_ALONE = 0.4  # its weight if no anomaly is labelled: the other members then know little
JUDGES = ("kernel", "smooth forest", "forest")
"""The quick members, which are fitted without a kind."""
MOST_KINDS = 3
_FEWEST, _FEWEST_FOR_THREE = 4, 9  # labelled anomalies that are split into two or three kinds
_LEAST_ERROR = 0.01
_MANY_ANOMALIES = 50  # labelled anomalies that halve the weight


@dataclass(frozen=True)
class Kinds:
    """Held-out rows, fold by fold: their codes, the mean of judges, and novelty, both z-scores.

    Examples
    --------
    >>> codes = np.array([1, 1, 1, -1, -1])
    >>> blind = np.array([0.3, -0.2, 0.1, 0.2, -0.4])  # to the kind that was held out
    >>> sees = np.array([0.1, -0.3, 0.4, 2.0, 3.0])
    >>> kinds = Kinds([(codes, blind, sees), (codes, blind, sees)])
    >>> round(Kinds([]).weight(2), 3), round(kinds.weight(4), 3), round(kinds.auc().value, 2)
    (0.038, 0.185, 0.33)
    """

    folds: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def auc(self, weight: float = 0.0) -> Auc:
        """Return the AUC of held-out kinds, with a weight of novelty in the score."""
        values = [
            auc_with_interval(codes, (1 - weight) * score + weight * novelty).value
            for codes, score, novelty in self.folds
        ]
        codes = np.concatenate([codes for codes, _, _ in self.folds])
        n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
        return auc_of_folds(values, len(self.folds), n, m)

    def weight(self, n_anomaly: int) -> float:
        """Return the weight of novelty in the average, for this many labelled anomalies."""
        weights, beliefs = (np.array(list(each)) for each in (CHOICES, CHOICES.values()))
        if self.folds:
            values = np.array([self.auc(weight).value for weight in weights])
            best, m = values.max(), sum(int((fold[0] == ANOMALY).sum()) for fold in self.folds)
            beliefs = beliefs * np.exp((values - best) / max(_LEAST_ERROR, _error(best, m)))
        return float(weights @ beliefs / beliefs.sum()) / (1 + n_anomaly / _MANY_ANOMALIES)


def novelty_untested(n_anomaly: int) -> float:
    """Return the weight of novelty if no kind of anomaly was held out."""
    return Kinds().weight(n_anomaly) if n_anomaly else _ALONE


def _error(auc: float, m: int) -> float:
    """Approximate standard error of an AUC, if the anomalies are the smaller kind."""
    return float(np.sqrt(auc * (1 - auc) / m))


def kinds_to_hold_out(columns: np.ndarray, codes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return positions of labelled rows, fold by fold: a cluster of anomalies, and normal rows.

    Empty if there are fewer than 4 labelled anomalies, or if they are all the same.

    Parameters
    ----------
    columns : array of shape (n_rows, n_features)
        Rows, on one scale.
    codes : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    seed : int
        Seed of the clusters and of the parts of normal rows.

    Returns
    -------
    list of arrays
        At most three, each with rows of both kinds.
    """
    from sklearn.cluster import KMeans

    anomalies, normals = (np.flatnonzero(codes == kind) for kind in (ANOMALY, NORMAL))
    distinct = len(np.unique(columns[anomalies], axis=0)) if len(anomalies) else 0
    if min(len(anomalies), len(normals), distinct) < _FEWEST:
        return []
    n_kinds = 2 if len(anomalies) < _FEWEST_FOR_THREE else MOST_KINDS
    kind = KMeans(n_kinds, n_init=5, random_state=seed).fit_predict(columns[anomalies])
    normals = np.random.default_rng(seed).permutation(normals)
    return [
        np.concatenate([anomalies[kind == k], normals[k::n_kinds]])
        for k in range(n_kinds)
        if 0 < (kind == k).sum() < len(kind)
    ]


def hold_kinds_out(
    views: Views,
    codes: np.ndarray,
    members: Mapping[str, Callable[[LabelsGiven], Any]],
    without: Callable[[np.ndarray], Views],
    seed: int,
    groups: np.ndarray | None = None,
) -> Kinds:
    """Score kinds of anomaly by fits that have not seen them.

    Parameters
    ----------
    views, codes
        Features and labels of the rows that take part.
    members
        Makes an unfitted, light detector for the labels of a fold, from the member's name.
    without
        Returns the views as if rows at some positions had no label.
    seed
        Seed of the clusters.
    groups
        Groups of the rows; with a row, its whole group is held out.

    Returns
    -------
    Kinds
        The scores; without folds if fewer than two kinds can be held out.
    """
    columns = views.features["smooth"][:, views.learned["smooth"].slices_["columns"]]
    judges = [name for name in JUDGES if name in members]
    if not judges or NOVELTY not in members:
        return Kinds()
    folds = []
    for held in kinds_to_hold_out(columns, codes, seed):
        held = whole_groups(held, groups)
        if not {NORMAL, ANOMALY} <= set(np.delete(codes, held).tolist()):
            continue  # groups of this kind hold all labelled rows of one kind
        seen, labels = without(held), LabelsGiven.of(np.delete(codes, held))
        scores = {
            name: -fold_scores(members[name](labels), seen.seen_by(name), codes, held)
            for name in (*judges, NOVELTY)
        }
        mean = np.mean([scores[name] for name in judges], axis=0)
        folds.append((codes[held], mean, scores[NOVELTY]))
    return Kinds(folds if len(folds) > 1 else [])  # one kind says nothing of others
