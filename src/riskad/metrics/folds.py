"""Rows that are held out together, fold by fold: by label, by group, and by time.

Rows of a group, such as those of one customer, are alike in ways that labels do not explain. A fit
that has seen some of them knows the others too well, so folds keep groups together. Copies of a row
are a group (`riskad.rows.equal_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapreplace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metadata_routing import MetadataRequest

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, check_codes
from riskad.core.risks import KIND_NAMES
from riskad.rows.equal_rows import group_equal_rows

Split: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Numbers of rows to train on, and of rows to hold out."""

N_SPLITS = 5


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
        blank = values != values  # NaN differs from itself
    else:  # values of any type, which may have no order
        ids: dict[Any, int] = {}
        numbers = np.full(n_rows, -1)
        for i, value in enumerate(values.tolist()):
            same = value == value  # pandas' NA answers no comparison
            if value is not None and isinstance(same, (bool, np.bool_)) and same:
                numbers[i] = ids.setdefault(value, len(ids))
        values, blank = numbers, numbers < 0
    codes = np.zeros(n_rows, dtype=np.intp)
    names, codes[~blank] = np.unique(values[~blank], return_inverse=True)
    codes[blank] = len(names) + np.arange(blank.sum())
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]  # in the order in which groups first occur


def deal_groups(
    codes: np.ndarray, groups: NDArray[np.intp], n_splits: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return the fold of each row; rows of a group share one.

    Groups are shuffled. Those with most anomalies are assigned first, then those with most normal
    rows. With q_fk the share of all rows of kind k that fold f has so far, and q_gk that of the
    group, it goes where sum_k q_fk q_gk is lowest: this adds least to the sum of the squares of all
    q_fk, which is lowest if each fold has its share of each kind. Groups without a labelled row
    follow, each to the fold with fewest unlabelled rows.
    """
    sizes = np.zeros((int(groups.max(initial=-1)) + 1, len(KINDS)))
    for k, kind in enumerate((ANOMALY, NORMAL, UNLABELLED)):
        sizes[:, k] = np.bincount(groups[codes == kind], minlength=len(sizes))
    # A kind without rows has share 0 everywhere, not 0 / 0.
    shares = sizes / np.maximum(sizes.sum(axis=0), 1)
    order = rng.permutation(len(sizes))
    # lexsort takes its most important key last. The permutation before it decides between equals.
    order = order[np.lexsort(tuple(-sizes[order, k] for k in (2, 1, 0)))]
    labelled = sizes[order, :2].any(axis=1)
    fold_of = np.zeros(len(sizes), dtype=np.intp)
    totals = np.zeros((n_splits, len(KINDS)))
    for group in order[labelled]:
        fold_of[group] = fold = int(np.argmin(totals @ shares[group]))
        totals[fold] += shares[group]
    # A heap, since there may be as many groups as unlabelled rows.
    unlabelled = sorted((share, fold) for fold, share in enumerate(totals[:, 2]))
    rest = order[~labelled]
    for group, share in zip(rest.tolist(), shares[rest, 2].tolist(), strict=True):
        least, fold = unlabelled[0]
        fold_of[group] = fold
        heapreplace(unlabelled, (least + share, fold))
    return fold_of[groups]


def count_independent(codes: np.ndarray, kind: int, groups: NDArray[np.intp] | None) -> int:
    """Number of groups that have a row of a kind; of its rows if there are no groups."""
    of_kind = codes == kind
    return int(of_kind.sum()) if groups is None else len(np.unique(groups[of_kind]))


def whole_groups(rows: np.ndarray, groups: NDArray[np.intp] | None) -> np.ndarray:
    """Positions of all rows that share a group with one of `rows`; without groups, `rows`."""
    return rows if groups is None else np.flatnonzero(np.isin(groups, groups[rows]))


@dataclass
class PNUStratifiedKFold:
    """Folds that each hold their share of normal rows, anomalies and unlabelled rows.

    For scikit-learn's tools (`cv=`), whose own stratified folds leave a rare kind out of some folds
    with only a warning; this class raises an error. Only the labelled rows of a fold are scored, so
    that "roc_auc" sees two kinds of row. Rows are shuffled; the same seed gives the same folds.
    Copies of a row are held out together (`riskad.rows.equal_rows`), and if `split` is given
    groups, such as customers, so are the rows of a group; the shares are as close as that allows.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds in a round: each row is held out once.
    n_repeats : int, default=1
        Number of rounds, each with its own shuffle.
    random_state : int, optional
        Seed; None means 0.
    unlabelled : bool, default=False
        Whether unlabelled rows of a fold are scored, too, as `RiskScorer` requires.

    Examples
    --------
    >>> y = np.repeat([1, -1, 0], [6, 3, 30])
    >>> folds = PNUStratifiedKFold(3).split(y, y)
    >>> [sorted(y[held].tolist()) for _, held in folds]
    [[-1, 1, 1], [-1, 1, 1], [-1, 1, 1]]
    >>> customer = np.arange(39) % 13
    >>> train, held = next(PNUStratifiedKFold(3).split(y, y, customer))
    >>> set(customer[train]) & set(customer[held])
    set()
    """

    n_splits: int = N_SPLITS
    n_repeats: int = 1
    random_state: int | None = None
    unlabelled: bool = False

    def get_metadata_routing(self) -> MetadataRequest:
        """Return what `split` takes besides labels, for scikit-learn's metadata routing: groups."""
        request = MetadataRequest(owner=self)
        request.split.add_request(param="groups", alias=True)
        return request

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds over all rounds."""
        return self.n_splits * self.n_repeats

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Yield rows to train on and to score; one with a blank group is a group of its own."""
        for name, least in (("n_splits", 2), ("n_repeats", 1)):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or value < least:
                raise InputError(f"{name} must be a whole number >= {least}, got {value!r}.")
        if y is None:
            raise InputError(
                "PNUStratifiedKFold needs y: +1 normal, -1 anomaly, 0 unlabelled for each row."
            )
        codes = check_codes(y)
        groups = None if groups is None else as_groups(groups, len(codes))
        groups = group_equal_rows(X, codes, groups)
        n = self.n_splits
        for kind in KINDS:
            name, rows = KIND_NAMES[kind], int((codes == kind).sum())
            count = count_independent(codes, kind, groups)
            if 0 < rows < n:
                hint = " and label one more" if rows == 1 else ""
                raise InputError(
                    f"{n} folds need {n} {name} rows, got {rows}. Lower n_splits to "
                    f"{max(rows, 2)}{hint}."
                )
            if 0 < count < n:
                advice = f"Lower n_splits to {count}" if count > 1 else "Label rows of more groups"
                raise InputError(
                    f"{n} folds need {name} rows of {n} groups or more, since each group is held "
                    "out as a whole, and so are the copies of a row; the "
                    f"{rows:,} {name} rows are of {count}. {advice}."
                )
        scored = (codes != UNLABELLED) | self.unlabelled
        if not scored.any():
            raise InputError(
                "only labelled rows are scored, and y has none. Label some, or set unlabelled=True."
            )
        for fold in self.folds(codes, groups):
            yield np.flatnonzero(~fold), np.flatnonzero(fold & scored)

    def folds(self, codes: np.ndarray, groups: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Which rows each fold holds out, however few there are of a kind; `groups` are numbers."""
        # The same folds at each call, or candidates would be compared on different rows.
        rng = np.random.default_rng(self.random_state or 0)
        for _ in range(self.n_repeats):
            fold_of = np.empty(len(codes), dtype=np.intp)
            if groups is not None:
                fold_of = deal_groups(codes, groups, self.n_splits, rng)
            else:
                start = 0
                for kind in KINDS:
                    rows = rng.permutation(np.flatnonzero(codes == kind))
                    # Each kind starts where the last one stopped, so that folds have the same size.
                    fold_of[rows] = (start + np.arange(len(rows))) % self.n_splits
                    start += len(rows)
            yield from (fold_of == fold for fold in range(self.n_splits))


def cross_splits(
    codes: np.ndarray,
    n_splits: int = N_SPLITS,
    random_state: int | None = None,
    groups: np.ndarray | None = None,
) -> Iterator[Split]:
    """Rows to train on and to hold out; the only row or group of a kind is never held out."""
    by_group = np.arange(len(codes)) if groups is None else groups
    needed = [of_kind for kind in KINDS if len(of_kind := np.unique(by_group[codes == kind])) == 1]
    # Rows of a kind's only group are in every fit and never judged.
    several = ~np.isin(by_group, np.concatenate([*needed, np.array([], dtype=np.intp)]))
    if not (several & (codes != UNLABELLED)).any():
        return
    for fold in PNUStratifiedKFold(n_splits, random_state=random_state).folds(codes, groups):
        if (fold & several).any():
            yield np.flatnonzero(~(fold & several)), np.flatnonzero(fold & several)


def labelled_folds(
    y: np.ndarray,
    n_splits: int,
    random_state: int | None = None,
    groups: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Folds of the labelled rows with both kinds in each; with `groups` perhaps fewer, or none."""
    from sklearn.model_selection import StratifiedKFold

    labelled = np.flatnonzero(y != UNLABELLED)
    codes = y[labelled]
    if groups is None:
        splitter = StratifiedKFold(n_splits, shuffle=True, random_state=random_state)
        return [labelled[held] for _, held in splitter.split(labelled, codes)]
    names = as_groups(groups[labelled], len(labelled))
    # Fewer folds are larger ones: with enough rows each, every fold may get both kinds.
    for size in range(n_splits, 1, -1):
        fold = deal_groups(codes, names, size, np.random.default_rng(random_state or 0))
        if all((np.bincount(fold[codes == k], minlength=size) > 0).all() for k in np.unique(codes)):
            return [labelled[fold == place] for place in range(size)]
    return []


def periods_of(
    codes: np.ndarray, moments: NDArray[np.float64], n_periods: int = 5
) -> NDArray[np.intp]:
    """Return the period of each row: 0 is the earliest.

    Periods have equally many labelled rows, as nearly as possible: rows of the same moment are in
    one period. There are fewer periods if labelled rows have few moments. A row whose moment is
    blank (NaN) counts as the earliest: it is used for training, and never judged.
    """
    labelled = np.sort(moments[(codes != UNLABELLED) & ~np.isnan(moments)])
    places = np.arange(1, n_periods) * len(labelled) // n_periods
    # A period starts at a labelled row; equal moments are one start.
    starts = np.unique(labelled[places]) if len(labelled) else labelled
    # A period that starts at the earliest label would leave none of them before it.
    starts = starts[starts > labelled[:1]]
    return np.searchsorted(starts, np.where(np.isnan(moments), -np.inf, moments), side="right")


def forward_splits(periods: NDArray[np.intp]) -> Iterator[Split]:
    """Yield rows of all earlier periods to train on, and those of the next to hold out."""
    for period in range(1, int(periods.max(initial=0)) + 1):
        yield np.flatnonzero(periods < period), np.flatnonzero(periods == period)
