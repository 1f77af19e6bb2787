r"""The calibration of any detector: it is refitted to folds.

Each fold is fitted once, and thresholds, p-values, probabilities and the AUC all use these fits.
Each fit has its own scale of scores. With F_k and F the distributions of the scores of the fit to
fold k and of the fit to all rows, over the rows that both have seen,

    s  ->  F^{-1}(F_k(s))

maps a score of the former to the scale of the latter: as many rows are above it in both.

The fit of a fold leaves out all rows of the fold, as if they arrived later. A new normal row is
then exchangeable with a labelled one, except that its fit has seen some more labels. So p-values
hold their level nearly, not exactly. The bound of cross-conformal prediction (Vovk, 2015) would
require keeping and applying the fits of all folds, and is twice the level.
Simulations (`experiments/studies`) show how close the level is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import NORMAL, UNLABELLED, check_codes, check_rows_match
from riskad.decisions.calibration import Calibration
from riskad.decisions.conformal import DensityRatio, check_normals
from riskad.metrics.folds import N_SPLITS, Split, as_groups, cross_splits
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.rows.table import as_table

_MOST = 20_000  # unlabelled rows that folds score


def calibrate(
    model: Any,
    X: Any,
    y: Any,
    *,
    pi_n: Any = None,
    weighted: bool = False,
    n_splits: int = N_SPLITS,
    random_state: int | None = None,
    groups: Any = None,
    label_source: Any = "unknown",
) -> Any:
    """Add to a fitted detector what thresholds, p-values and probabilities need.

    A copy of the model is fitted for each of `n_splits` folds; the fit of the model itself does not
    change. Afterwards it has `calibration_`, and `set_threshold`, `p_values` and
    `anomaly_probability` work.

    Parameters
    ----------
    model : detector, or Pipeline that ends in one
        The model, fitted to X and y.
    X, y
        The rows it was fitted to, and their codes +1 normal, -1 anomaly, 0 unlabelled.
    pi_n : float or estimate with `.pi_n`, optional
        Anomaly rate of the unlabelled rows; by default estimated from the same folds.
    weighted : bool, default=False
        Whether to learn how labelled normal rows differ from the normal rows among the unlabelled
        ones, for weighted p-values.
    n_splits : int, default=5
        Number of folds. With few rows of a kind, some folds hold none of it out. A row that is the
        only one of its kind is in every fit.
    random_state : int, optional
        Seed of the folds; None means 0.
    groups : array, optional
        Group of each row, such as its customer: rows of a group are held out together. A row with a
        blank group (None, NaN) is a group of its own. Copies of a row are one group in any case.
    label_source : str or array of str, default="unknown"
        How rows were chosen for labelling, which affects the anomaly rate: "random", "chosen" or
        "unknown", or a word for each row (`riskad.decisions.anomaly_rate`).

    Returns
    -------
    estimator
        The given model, with its calibration.

    Examples
    --------
    >>> from riskad import ShallowRAD, calibrate
    >>> from riskad.decisions.thresholds import FalseAlarms
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:60], y[-10:] = 1, -1
    >>> model = calibrate(ShallowRAD().fit(X, y), X, y)
    >>> model.set_threshold(FalseAlarms(0.02)).predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    >>> model.p_values([[0.0, 0.0], [4.0, 4.0]]).round(3)
    array([0.557, 0.016])
    """
    detector = model[-1] if hasattr(model, "steps") else model
    X, codes = as_table(X), check_codes(y)
    if not hasattr(detector, "set_threshold") or not hasattr(detector, "offset_"):
        raise InputError(
            f"calibrate takes a fitted detector of riskad, or a pipeline that ends in one, got "
            f"{model!r}. Call fit first."
        )
    check_rows_match(X, codes)
    fitted = -model.score_samples(X)
    zero = detector.calibration_.zero if hasattr(detector, "calibration_") else -detector.offset_
    groups = None if groups is None else as_groups(groups, len(codes))
    groups = group_equal_rows(X, codes, groups)
    held_out = held_out_scores(model, X, codes, fitted, groups, n_splits, random_state)
    calibration = Calibration.of(held_out, codes, fitted, zero, pi_n, random_state, label_source)
    if weighted:
        rows = model[:-1].transform(X) if hasattr(model, "steps") else X
        rows = detector._check_rows(rows, reset=False)  # as p-values of new rows see them
        calibration = with_weights(calibration, rows, codes, fitted, random_state)
    detector.calibration_ = calibration
    detector.set_threshold(detector.threshold_)
    return model


def held_out_scores(
    template: Any,
    X: Any,
    codes: np.ndarray,
    fitted: np.ndarray,
    groups: np.ndarray | None,
    n_splits: int = N_SPLITS,
    random_state: int | None = None,
) -> np.ndarray:
    """Anomaly scores by fits that have not seen the row, on the scale of `fitted`; else NaN.

    Copies of a row count as one: all but the first have NaN.
    """
    splits = cross_splits(codes, n_splits, random_state, groups)
    scores = cross_scores(template, X, codes, fitted, splits, random_state)
    scores[repeats_label(codes, number_copies(X, codes))] = np.nan
    return scores


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings about what a part of the rows lacks by chance, such as varying values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def cross_scores(
    template: Any,
    X: Any,
    codes: np.ndarray,
    fitted: np.ndarray,
    splits: Iterable[Split],
    random_state: int | None = None,
) -> np.ndarray:
    """Anomaly scores of held-out rows by the fits to training rows, on the scale of `fitted`;
    NaN for rows that no fit has scored.
    """
    held_out = np.full(len(codes), np.nan)
    watched = _watched(codes, random_state)
    rows = _safe_indexing(X, watched)
    with quietly():
        for train, held in splits:
            fit = clone(template).fit(_safe_indexing(X, train), codes[train])
            scores = -fit.score_samples(rows)
            out, seen = np.isin(watched, held), np.isin(watched, train)
            held_out[watched[out]] = on_scale(scores[out], scores[seen], fitted[watched[seen]])
    return held_out


def _watched(codes: np.ndarray, seed: int | None) -> np.ndarray:
    """The labelled rows, and enough of the unlabelled rows to estimate their distribution."""
    unlabelled = np.flatnonzero(codes == UNLABELLED)
    if len(unlabelled) > _MOST:
        unlabelled = np.random.default_rng(seed or 0).choice(unlabelled, _MOST, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(codes != UNLABELLED), unlabelled]))


def on_scale(scores: np.ndarray, own: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """F^{-1}(F_k(s)); beyond all shared rows, by the ratio of their spreads."""
    own, fitted = np.sort(own), np.sort(fitted)
    beyond = np.minimum(scores - own[0], 0) + np.maximum(scores - own[-1], 0)
    spread = own.std()
    return np.interp(scores, own, fitted) + beyond * (fitted.std() / spread if spread > 0 else 1.0)


def with_weights(
    calibration: Calibration, X: Any, codes: np.ndarray, fitted: np.ndarray, seed: int | None = None
) -> Calibration:
    """The calibration with weights, for labelled normal rows that differ from the unlabelled ones.

    Unlabelled rows count by their probability of being normal, so that labelled normal rows are
    compared with the normal rows among them. Weights of labelled normal rows are cross-fitted.
    """
    from sklearn.model_selection import KFold

    check_normals(len(calibration.normals), "weights")
    if getattr(X, "ndim", 2) != 2:
        raise InputError("weighted=True compares columns; rows must be those of a table.")
    if not calibration.n_unlabelled:
        raise InputError(
            "weighted=True compares labelled normals with unlabelled rows, and there are none."
        )
    X = X if hasattr(X, "tocsr") else np.asarray(X, dtype=float)
    normals, unlabelled = (
        _safe_indexing(X, np.flatnonzero(codes == k)) for k in (NORMAL, UNLABELLED)
    )
    unlabelled_scores = fitted[codes == UNLABELLED]
    likely = (
        np.ones(len(unlabelled_scores))
        if calibration.rate is None or not calibration.tells_kinds
        else 1 - calibration.anomaly_probability(unlabelled_scores)
    )
    n = normals.shape[0]
    weights = np.empty(n)
    for train, held in KFold(min(N_SPLITS, n), shuffle=True, random_state=seed or 0).split(weights):
        weights[held] = DensityRatio.between(normals[train], unlabelled, likely)(normals[held])
    return replace(
        calibration, weights=weights, ratio=DensityRatio.between(normals, unlabelled, likely)
    )
