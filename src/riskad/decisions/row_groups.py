r"""Groups of rows, such as those of one customer, and their effect on estimates.

Rows of a group are alike in ways that labels do not explain. A fit that has seen some of them
knows the others too well, so folds keep groups together (`deal_groups`). And many rows of few
groups carry less information than as many rows without groups, so intervals are widened
(`GroupEffect`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED

__all__ = [
    "GroupEffect",
    "Judged",
    "as_groups",
    "count_independent",
    "deal_groups",
    "has_others",
    "whole_groups",
]

# How many groups the prior guess "rows of a group are all alike" counts as.
_GUESSED = 3


def as_groups(groups: Any, n_rows: int) -> NDArray[np.intp]:
    """Number groups 0, 1, 2, ...; a row with a blank group (None, NaN) is a group of its own.

    Examples
    --------
    >>> as_groups(["ann", "bob", None, "ann", None], 5)
    array([0, 1, 2, 0, 3])
    """
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise InputError(
            f"groups must say for each of the {n_rows:,} rows which group it is of, got an array "
            f"of shape {values.shape}."
        )
    if values.dtype != object:
        return _numbered(values, values != values)  # NaN differs from itself
    blank = np.array([_is_blank(value) for value in values.tolist()], dtype=bool)
    known: dict[Any, int] = {}
    places = [known.setdefault(value, len(known)) for value in values[~blank].tolist()]
    codes = np.zeros(n_rows, dtype=np.intp)
    codes[~blank] = places
    codes[blank] = len(known) + np.arange(blank.sum())
    return _numbered(codes, np.zeros(n_rows, dtype=bool))


def _is_blank(value: Any) -> bool:
    """Whether a value is None, NaN or the NA of pandas, which answers no comparison."""
    same = value == value
    return value is None or not isinstance(same, (bool, np.bool_)) or not same


def _numbered(values: NDArray[Any], blank: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Numbers in the order in which groups first occur."""
    codes = np.zeros(len(values), dtype=np.intp)
    known, codes[~blank] = np.unique(values[~blank], return_inverse=True)
    codes[blank] = len(known) + np.arange(blank.sum())
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def deal_groups(
    codes: np.ndarray, groups: NDArray[np.intp], n_splits: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    r"""Return the fold of each row; rows of a group share one.

    Groups are shuffled. Those with most anomalies are assigned first, then those with most normal
    rows. With q_fk the share of all rows of kind k that fold f has so far, and q_gk that of the
    group, it goes where sum_k q_fk q_gk is lowest: this adds least to the sum of the squares of all
    q_fk, which is lowest if each fold has its share of each kind. Groups without a labelled row
    follow, the largest first, each to the fold with fewest unlabelled rows.
    """
    sizes = np.zeros((int(groups.max(initial=-1)) + 1, len(KINDS)))
    for k, kind in enumerate((ANOMALY, NORMAL, UNLABELLED)):
        sizes[:, k] = np.bincount(groups[codes == kind], minlength=len(sizes))
    shares = sizes / np.maximum(sizes.sum(axis=0), 1)
    order = rng.permutation(len(sizes))
    order = order[np.lexsort(tuple(-sizes[order, k] for k in (2, 1, 0)))]
    labelled = sizes[order, :2].any(axis=1)
    fold_of = np.zeros(len(sizes), dtype=np.intp)
    held = np.zeros((n_splits, len(KINDS)))
    for group in order[labelled]:
        fold_of[group] = fold = int(np.argmin(held @ shares[group]))
        held[fold] += shares[group]
    unlabelled = [(share, fold) for fold, share in enumerate(held[:, 2])]
    unlabelled.sort()
    rest = order[~labelled]
    for group, share in zip(rest.tolist(), shares[rest, 2].tolist(), strict=True):
        least, fold = unlabelled[0]
        fold_of[group] = fold
        heapreplace(unlabelled, (least + share, fold))
    return fold_of[groups]


def has_others(codes: np.ndarray, groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether rows of each kind remain without the group of a row."""
    needed = [seen for kind in KINDS if len(seen := np.unique(groups[codes == kind])) == 1]
    return ~np.isin(groups, np.concatenate([*needed, np.array([], dtype=np.intp)]))


def count_independent(codes: np.ndarray, kind: int, groups: NDArray[np.intp] | None) -> int:
    """Number of groups that have a row of a kind; of its rows if there are no groups."""
    own = codes == kind
    return int(own.sum()) if groups is None else len(np.unique(groups[own]))


def whole_groups(rows: np.ndarray, groups: NDArray[np.intp] | None) -> np.ndarray:
    """Positions of all rows that share a group with one of `rows`; without groups, `rows`."""
    return rows if groups is None else np.flatnonzero(np.isin(groups, groups[rows]))


class Judged(NamedTuple):
    """Held-out rows that one fit has scored: codes of labelled ones, anomaly scores, groups."""

    codes: np.ndarray
    scores: np.ndarray
    groups: np.ndarray


class GroupEffect(NamedTuple):
    """How much less information on a number rows in groups carry than rows without groups."""

    variance: float
    """Factor by which its variance must be multiplied."""
    n_groups: float
    """How many groups the rows of the rarer kind count for."""

    @classmethod
    def on_auc(cls, parts: Sequence[Judged]) -> GroupEffect:
        r"""The effect on the mean AUC of some parts.

        With V_i DeLong's (1988) components, the share of rows of the other kind that row i ranks
        correctly, A their mean and c_i the number of rows of i's kind in its part,
        d_i = (V_i - A) / c_i, the ratio of variances over groups and over rows is (Obuchowski,
        1997)

            D = sum_g (sum_{i in g} d_i)^2 / sum_i d_i^2.

        Few groups determine D badly, and a perfect ranking not at all. So its largest possible
        value, if all rows of a group are alike (sum_g c_g^2 / c for c_g rows of a kind), is
        averaged in as if seen in 3 groups. A result below 1 is raised to 1.
        """
        components = [_components(part) for part in parts]
        own = [part.codes == ANOMALY for part in parts]
        auc = np.mean([V[anomaly].mean() for V, anomaly in zip(components, own, strict=True)])
        d = np.concatenate(
            [
                (V - auc) / np.where(anomaly, anomaly.sum(), (~anomaly).sum())
                for V, anomaly in zip(components, own, strict=True)
            ]
        )
        codes, groups = (
            np.concatenate(each) for each in zip(*((p.codes, p.groups) for p in parts), strict=True)
        )
        return cls._of_components(d, codes, groups)

    @classmethod
    def on_share(cls, codes: np.ndarray, groups: np.ndarray) -> GroupEffect:
        """The effect on the share of anomalies among labelled rows: d_i = y_i - mean y."""
        anomalous = (codes == ANOMALY).astype(float)
        one_kind = np.full(len(codes), NORMAL)  # all rows of a group may be of one kind
        return cls._of_components(anomalous - anomalous.mean(), one_kind, groups)

    @classmethod
    def _of_components(cls, d: np.ndarray, codes: np.ndarray, groups: np.ndarray) -> GroupEffect:
        kinds = [kind for kind in (NORMAL, ANOMALY) if (codes == kind).any()]
        at_most = {kind: _largest_effect(groups[codes == kind]) for kind in kinds}
        n_groups = min((codes == kind).sum() / most for kind, most in at_most.items())
        squares = {kind: float(np.sum(d[codes == kind] ** 2)) for kind in at_most}
        total = sum(squares.values())
        if not total > 0:
            return cls(max(at_most.values()), n_groups)
        largest = sum(squares[kind] * at_most[kind] for kind in at_most) / total
        seen = float(np.sum(np.bincount(as_groups(groups, len(groups)), d) ** 2)) / total
        effect = (n_groups * seen + _GUESSED * largest) / (n_groups + _GUESSED)
        return cls(max(effect, 1.0), n_groups)


def _largest_effect(groups: np.ndarray) -> float:
    """Sum of n_g^2 / n over groups: the mean number of rows in the group of a row."""
    _, sizes = np.unique(groups, return_counts=True)
    return float(np.sum(sizes**2) / sizes.sum())


def _components(part: Judged) -> np.ndarray:
    """DeLong's V of each row."""
    ranks, V = rankdata(part.scores), np.empty(len(part.scores))
    for kind in (ANOMALY, NORMAL):
        own = part.codes == kind
        below = (ranks[own] - rankdata(part.scores[own])) / (~own).sum()
        V[own] = below if kind == ANOMALY else 1 - below
    return V
