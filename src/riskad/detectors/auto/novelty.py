r"""Novelty: how unlike all training rows a row is, and how much that counts.

A detector that learned from labels ranks rows by their similarity to the labelled anomalies. A kind
of anomaly that nobody labelled may then rank below most normal rows. Novelty measures only the
distance from the training rows:

    novelty(x) = (u(x) - mean) / spread,    u(x) = i(x) + max(d(x), 0),

with i the score of an isolation forest, d the log distance to the tenth neighbour, both in standard
deviations from their means in the plain view, and the mean and the spread of u over the unlabelled
rows. Only positive d counts: a row in a dense group of near-duplicates would have a very low log
distance, which must not make it less new.

Novelty is a member of the average, with a weight w that is chosen on *unseen kinds*. The labelled
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

With groups, such as the windows of an incident of a time series, m and the standard error count
groups: anomalies of one group are much alike, so others without a label are more often of another
kind. There w_j is 0.1 to 0.4 with equal p_j, and w falls as 1 / (1 + m / 20). (On windows of 21
series with 5 labelled incidents that was worth 0.05 of average precision; with 20, 0.01.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from riskad.core.labels import ANOMALY, NORMAL
from riskad.files.fields import SIZE
from riskad.metrics.ranking import Auc, auc_of_folds, auc_with_interval

NOVELTY = "novelty"  # the member's name
CHOICES = {0.0: 8.0, 0.05: 4.0, 0.1: 2.0, 0.2: 1.0}  # weights in the average; prior probabilities
OF_GROUPS = dict.fromkeys((0.1, 0.2, 0.3, 0.4), 1.0)  # the same if rows are in groups
JUDGES = ("kernel", "smooth forest")  # the quick members, which are fitted without a kind
MOST_KINDS = 3
_ALONE = 0.4  # its weight if no anomaly is labelled: the other members then know little
# Labelled anomalies that are split into two or three kinds: two or three of each on average.
_FEWEST, _FEWEST_FOR_THREE = 4, 9
_LEAST_ERROR = 0.01  # a perfect AUC has a standard error of 0, and any gap would be decisive
_MANY_ANOMALIES, _MANY_GROUPS = 50, 20  # labelled anomalies, or groups, that halve the weight


class Novelty(BaseEstimator):
    """The sum of outlier scores, as a member: it does not learn from labels.

    The first score counts fully, the others only where they are above the mean.
    """

    n_features_in_: Annotated[int, SIZE]

    def fit(self, X: Any, y: Any = None) -> Novelty:
        self.n_features_in_ = np.shape(X)[1]
        return self

    def _clone_for_fold(self) -> Novelty:
        return Novelty()

    def _kept_rows(self) -> int:
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        first, others = np.split(np.asarray(X, dtype=float), [1], axis=1)
        return -(first[:, 0] + np.maximum(others, 0).sum(axis=1))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        least = np.zeros(self.n_features_in_)
        least[0] = -np.inf  # the first score counts fully
        counted = graph.node("Max", rows, least)
        return graph.node("Neg", graph.node("ReduceSum", counted, np.array([1]), keepdims=0))


class UnseenKind(NamedTuple):
    """The held-out rows of a kind: anomaly scores by fits that have not seen it, as z-scores."""

    codes: np.ndarray
    judges: np.ndarray  # the mean of the members of `JUDGES`
    novelty: np.ndarray


@dataclass(frozen=True)
class UnseenKinds:
    """Scores of kinds of anomaly that were held out one by one; without any, nothing is known."""

    folds: Sequence[UnseenKind] = ()

    def auc(self, weight: float = 0.0) -> Auc | None:
        if not self.folds:
            return None
        values = [
            auc_with_interval(fold.codes, (1 - weight) * fold.judges + weight * fold.novelty).value
            for fold in self.folds
        ]
        codes = np.concatenate([fold.codes for fold in self.folds])
        n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
        return auc_of_folds(values, len(self.folds), n, m)

    def weight(self, n_anomaly: int, in_groups: bool = False) -> float:
        """Return the weight of novelty with so many labelled anomalies, or groups of them."""
        if not n_anomaly:
            return _ALONE
        choices, many = (OF_GROUPS, _MANY_GROUPS) if in_groups else (CHOICES, _MANY_ANOMALIES)
        weights, beliefs = (np.array(list(each)) for each in (choices, choices.values()))
        aucs = [auc for weight in weights if (auc := self.auc(weight)) is not None]
        if aucs:
            values = np.array([auc.value for auc in aucs])
            best = values.max()
            # The standard error of an AUC, if the anomalies are the smaller kind.
            error = float(np.sqrt(best * (1 - best) / min(n_anomaly, aucs[0].n_anomaly)))
            beliefs = beliefs * np.exp((values - best) / max(_LEAST_ERROR, error))
        return float(weights @ beliefs / beliefs.sum()) / (1 + n_anomaly / many)


def split_kinds(columns: np.ndarray, codes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return positions of labelled rows, fold by fold: a cluster of anomalies, and normal rows."""
    from sklearn.cluster import KMeans

    anomalies, normals = (np.flatnonzero(codes == kind) for kind in (ANOMALY, NORMAL))
    distinct = len(np.unique(columns[anomalies], axis=0)) if len(anomalies) else 0
    if min(len(anomalies), len(normals), distinct) < _FEWEST:
        return []
    n_kinds = 2 if len(anomalies) < _FEWEST_FOR_THREE else MOST_KINDS
    kind = KMeans(n_kinds, n_init=5, random_state=seed).fit_predict(columns[anomalies])
    # A random order, since rows of a table may be sorted; every n_kinds-th goes to each fold.
    normals = np.random.default_rng(seed).permutation(normals)
    return [
        np.concatenate([anomalies[kind == k], normals[k::n_kinds]])
        for k in range(n_kinds)
        # A fold with all anomalies would leave none to learn from.
        if 0 < (kind == k).sum() < len(kind)
    ]
