"""Scores of labelled rows by fits that never saw them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes, check_rows_match
from riskad.decisions.row_groups import as_groups, count_independent, deal_groups, whole_groups
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.table import as_table

__all__ = ["fold_fits", "labelled_folds", "out_of_fold_scores", "quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings about what a part of the rows lacks by chance, such as varying values."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def labelled_folds(
    y: np.ndarray,
    n_splits: int,
    random_state: int | None = None,
    groups: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Split the labelled rows into folds with both kinds in each; unlabelled rows are in none.

    Rows of one of the `groups` (numbers) share a fold. There are then fewer folds if this is
    necessary for each to have both kinds, and none if not even two are possible.
    """
    from sklearn.model_selection import StratifiedKFold

    labelled = np.flatnonzero(y != 0)
    if groups is not None:
        return _grouped_folds(y, labelled, groups, n_splits, random_state)
    splitter = StratifiedKFold(n_splits, shuffle=True, random_state=random_state)
    return [labelled[held] for _, held in splitter.split(labelled, y[labelled])]


def _grouped_folds(
    y: np.ndarray, labelled: np.ndarray, groups: np.ndarray, n_splits: int, seed: int | None
) -> list[np.ndarray]:
    codes, names = y[labelled], as_groups(groups[labelled], len(labelled))
    for size in range(n_splits, 1, -1):
        fold = deal_groups(codes, names, size, np.random.default_rng(seed or 0))
        if all((np.bincount(fold[codes == k], minlength=size) > 0).all() for k in np.unique(codes)):
            return [labelled[fold == place] for place in range(size)]
    return []


def fold_fits(
    model: Any, X: Any, codes: np.ndarray, folds: Iterable[np.ndarray]
) -> Iterator[tuple[Any, np.ndarray]]:
    """For each fold, a clone of `model` fitted to all other rows, and the held-out rows."""
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    for held in folds:
        train = np.setdiff1d(np.arange(len(codes)), held, assume_unique=True)
        yield clone(model).fit(_safe_indexing(X, train), codes[train]), held


def out_of_fold_scores(
    model: Any, X: Any, y: Any, n_splits: int = 5, random_state: int | None = None
) -> np.ndarray:
    """Anomaly scores of the labelled rows, each from a fit that never saw the row.

    scikit-learn's `cross_val_predict` renumbers the three codes before fitting; this function does
    not. Unlabelled rows are in every training set, except that copies of a row are held out
    together. The result is NaN for them.

    Parameters
    ----------
    model : estimator or Pipeline with `score_samples`
        Cloned for every fold.
    X : array, sparse matrix or frame
        All rows.
    y : array
        Codes +1 normal, -1 anomaly, 0 unlabelled.
    n_splits : int, default=5
        Number of folds, at most the number of rows of the rarer label.
    random_state : int, optional
        Seed of the folds.

    Returns
    -------
    ndarray of shape (n_rows,)
        High = anomalous; NaN for unlabelled rows.
    """
    from sklearn.utils import _safe_indexing

    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    groups = group_equal_rows(X, codes)
    rarer = min(count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
    folds = labelled_folds(codes, min(n_splits, rarer), random_state, groups) if rarer > 1 else []
    if not folds:
        raise InputError(
            "out-of-fold scores need at least 2 labelled rows of each kind, "
            f"got {rarer} of the rarer one. Copies of a row count as one."
        )
    scores = np.full(len(codes), np.nan)
    for fitted, held in fold_fits(model, X, codes, [whole_groups(each, groups) for each in folds]):
        scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    return np.where(codes == UNLABELLED, np.nan, scores)
