"""Choosing and judging any detector by cross-validation.

`PNUStratifiedKFold` (`riskad.metrics.folds`) can be used as scikit-learn's `cv=`, and the scorers
here as `scoring=`. Searches (`RADSearchCV`, and `lam="cv"` of linear detectors) hold out the same
folds (`held_out_folds`) and choose by the same rule (`choose_place`): with d the gains in held-out
AUC of the best candidate over the default, fold by fold, it replaces the default only if

    mean(d) > 2 SE(d),

since few labels carry little information.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, OutlierMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, check_codes, check_rows_match
from riskad.core.losses import Loss
from riskad.core.risks import get_risk
from riskad.metrics.folds import (
    PNUStratifiedKFold,
    as_groups,
    count_independent,
    labelled_folds,
    whole_groups,
)
from riskad.metrics.ranking import Auc, auc_of_folds, auc_with_interval
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.table import as_table

__all__ = ["RADSearchCV", "RiskScorer", "evaluate_nested", "labelled_auc", "out_of_fold_scores"]

FEWEST_TO_COMPARE = 4
"""Labelled rows of each kind from which candidates are compared by AUC; below, by the risk."""
SPLITS, REPEATS = 5, 2
# Around the defaults a = 0.1 and prior = 0.8: less and more trust in the unlabelled rows, and
# anomaly rates of a half, a fifth and a twentieth. With the default these are 100 fits.
_GRID = {"a": (0.02, 0.1, 0.4), "prior": (0.5, 0.8, 0.95)}
_ERRORS = 2  # standard errors that a gain must exceed


def held_out_folds(
    codes: np.ndarray,
    groups: np.ndarray | None,
    kinds: Collection[int] = (NORMAL, ANOMALY),
    *,
    n_splits: int = SPLITS,
    n_repeats: int = REPEATS,
    seed: int = 0,
    unlabelled: bool = False,
) -> list[np.ndarray]:
    """Positions of the rows that each fold holds out: labelled ones, or with `unlabelled` of all.

    Each fold has rows of these `kinds` of label, and rows of one of the `groups` share a fold: so
    there may be fewer folds, or none.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    # A fold needs a row (or group) of each kind, so that the rarest one limits their number.
    n_splits = min(n_splits, *(count_independent(codes, kind, groups) for kind in kinds))
    if n_splits < 2:
        return []
    seeds = range(seed, seed + n_repeats)
    if not unlabelled:
        folds = [held for each in seeds for held in labelled_folds(codes, n_splits, each, groups)]
        return [whole_groups(held, groups) for held in folds]
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitters = [kind(n_splits, shuffle=True, random_state=each) for each in seeds]
    return [held for splitter in splitters for _, held in splitter.split(codes, codes, groups)]


def choose_place(scores: np.ndarray, default: int | None, n_repeats: int = REPEATS) -> int:
    """Position of the best candidate; the default unless that gains two standard errors over it.

    `scores` has a row for each candidate and a column for each fold. Without a default (None, or
    beyond the last row), the best mean decides.
    """
    best = int(np.argmax(scores.mean(axis=1)))
    if default is None or default >= len(scores):
        return best
    gain = scores[best] - scores[default]
    # Repeats hold out the same rows again: they stabilise the mean, but are not further evidence.
    error = gain.std(ddof=1) / np.sqrt(len(gain) / n_repeats)
    return default if gain.mean() <= _ERRORS * error else best


def labelled_auc(estimator: Any, X: Any, y: Any) -> float:
    """Scorer: AUC of labelled anomalies against labelled normal rows; ignores unlabelled rows.

    For any estimator with `score_samples`. scikit-learn's "roc_auc" would see three classes.
    """
    return auc_with_interval(y, -estimator.score_samples(X)).value


@dataclass(frozen=True)
class RiskScorer:
    """Scorer: minus the unbiased risk of `decision_function`, so that greater is better.

    It uses all three kinds of row, so folds must hold unlabelled ones, too
    (`PNUStratifiedKFold(unlabelled=True)`), and needs fewer anomalies than an AUC. All candidates
    are judged with the same prior and a: with its own, a candidate could make its own risk look
    small.

    Parameters
    ----------
    loss, a, prior, risk :
        As in `riskad.core.risks.get_risk`.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from riskad import PNUStratifiedKFold, ShallowRAD
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 2)), np.repeat([1, -1, 0], [20, 10, 60])
    >>> cv = PNUStratifiedKFold(3, unlabelled=True)
    >>> cross_val_score(ShallowRAD(), X, y, scoring=RiskScorer(prior=0.7), cv=cv).shape
    (3,)
    """

    loss: str | Loss = "modified_huber"
    a: float = 0.1
    prior: float = 0.8
    risk: str = "rad"

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return minus the risk on the rows X with codes y."""
        risk = get_risk(self.risk, self.loss, a=self.a, prior=self.prior)
        return -float(risk.value(np.asarray(estimator.decision_function(X)), check_codes(y)))


class RADSearchCV(OutlierMixin, MetaEstimatorMixin, BaseEstimator):
    """Search over the settings of any detector that keeps the default unless the gain is clear.

    Candidates are compared with the unchanged detector by repeated stratified cross-validation: by
    `labelled_auc`, or with fewer than 4 labelled rows of a kind by `RiskScorer`. The best is chosen
    only if its mean gain exceeds two standard errors. Of lambda alone, `ShallowRAD(lam="cv")`
    chooses by the same rule at a fraction of the cost.

    Parameters
    ----------
    estimator : detector
        Its own settings are the default. With a Pipeline, name the step in `param_grid`.
    param_grid : dict or list of dicts, optional
        As in scikit-learn's GridSearchCV. By default a in {0.02, 0.1, 0.4} and prior in
        {0.5, 0.8, 0.95}.
    n_splits, n_repeats : int, default=5 and 2
        Number of folds and of rounds of them; there are at most as many folds as rows of the rarer
        label.
    n_jobs : int, optional
        Number of fits at a time.
    random_state : int, optional
        Seed of the folds.

    Attributes
    ----------
    best_estimator_ : detector
        The chosen detector, fitted to all rows.
    best_params_ : dict
        The settings that were changed; empty if the default was kept.
    cv_results_ : dict
        As in GridSearchCV, the default first. None with fewer than two labelled rows of a kind,
        when nothing can be held out.
    criterion_ : {"auc", "risk", "none"}
        How candidates were compared.

    Examples
    --------
    >>> from riskad import RADSearchCV, ShallowRAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (180, 2)), rng.normal(3, 1, (20, 2))])
    >>> y = np.zeros(200, dtype=int)
    >>> y[:30], y[-6:] = 1, -1
    >>> search = RADSearchCV(ShallowRAD(), {"lam": ["tight", 0.01]}, n_repeats=1).fit(X, y)
    >>> search.best_params_
    {}
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]] | None = None,
        *,
        n_splits: int = SPLITS,
        n_repeats: int = REPEATS,
        n_jobs: int | None = None,
        random_state: int | None = None,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.n_splits = n_splits
        self.n_repeats = n_repeats
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, **fit_params: Any) -> RADSearchCV:
        """Compare all candidates, then fit the chosen one to all rows.

        Parameters
        ----------
        X, y
            All rows, and their codes +1 normal, -1 anomaly, 0 unlabelled.
        groups : array of shape (n_rows,), optional
            Rows of a group, such as a customer, are held out together. A row with a blank group
            (None, NaN) is a group of its own.
        **fit_params
            Passed to `fit` of the detector, or routed there. Weights of rows do not count in the
            comparison.
        """
        from sklearn.model_selection import GridSearchCV

        X, codes, groups = check_rows_and_labels(X, y, groups)
        rarer = min(count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
        self.criterion_ = "auc" if rarer >= FEWEST_TO_COMPARE else "risk"
        folds = held_out_folds(
            codes,
            groups,
            n_splits=self.n_splits,
            n_repeats=self.n_repeats,
            seed=self.random_state or 0,
            unlabelled=self.criterion_ == "risk",
        )
        if not folds:
            self.criterion_, self.cv_results_, self.best_params_ = "none", None, {}
            self.best_estimator_ = clone(self.estimator).fit(X, codes, **fit_params)
            return self
        settings, grid = self.estimator.get_params(), self.param_grid
        if grid is None:
            missing = [name for name in _GRID if name not in settings]
            if missing:
                raise InputError(
                    f"{type(self.estimator).__name__} has no {' and no '.join(missing)} to search "
                    "over by default. Say what to search: param_grid={...}."
                )
            grid = _GRID
        # The loss, a and prior of the default, for all candidates alike (see `RiskScorer`).
        assumed = {name: settings[name] for name in ("loss", "a", "prior") if name in settings}

        def choose(results: Mapping[str, Any]) -> int:
            scores = [results[f"split{i}_test_score"] for i in range(len(folds))]
            return choose_place(np.array(scores).T, 0, self.n_repeats)

        everything = np.arange(len(codes))
        search = GridSearchCV(
            self.estimator,
            # The empty setting is the unchanged detector, the default of `choose_place`.
            [{}, *([grid] if isinstance(grid, Mapping) else grid)],
            scoring=labelled_auc if self.criterion_ == "auc" else RiskScorer(**assumed),
            refit=choose,
            cv=[(np.setdiff1d(everything, held), held) for held in folds],
            n_jobs=self.n_jobs,
            error_score="raise",  # no candidate is passed over silently
        )
        with warnings.catch_warnings():
            # Scorers take no weights on purpose, as the docstring says.
            warnings.filterwarnings("ignore", "The scoring .* does not support sample_weight")
            search.fit(X, codes, **fit_params)
        self.cv_results_, self.best_params_ = search.cv_results_, search.best_params_
        self.best_estimator_ = search.best_estimator_
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return scores of the chosen detector: the higher, the more normal."""
        check_is_fitted(self)
        return self.best_estimator_.score_samples(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return `score_samples` minus the threshold: negative for anomalies."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def anomaly_score(self, X: Any) -> np.ndarray:
        """Return minus `score_samples`: the higher, the more anomalous."""
        return -self.score_samples(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return +1 for rows judged normal, -1 for anomalies."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the AUC on the labelled rows, as `Detector.score`."""
        return labelled_auc(self, X, y)


def evaluate_nested(
    model: Any,
    X: Any,
    y: Any,
    n_splits: int = 5,
    n_repeats: int = 1,
    random_state: int | None = None,
    confidence: float = 0.95,
) -> Auc:
    """Unbiased AUC, with an interval, of a detector that chooses its settings in `fit`.

    Every fold is scored by a fit that chose its settings without it. The best score of a search, by
    contrast, is too optimistic for the chosen candidate.

    Parameters
    ----------
    model : estimator or Pipeline with `score_samples`
        For example ShallowRAD(lam="cv") or RADSearchCV; cloned for every fold.
    X, y
        All rows, and their codes +1 normal, -1 anomaly, 0 unlabelled.
    n_splits, n_repeats, random_state
        Parameters of the outer `PNUStratifiedKFold`; there are at most as many splits as rows of
        the rarer label.
    confidence : float, default=0.95
        Confidence level of the interval.

    Returns
    -------
    Auc
        AUC of a fit to all rows, with its interval.
    """
    X, codes, groups = check_rows_and_labels(X, y)
    n, m = (count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
    if min(n, m) < 2:
        raise InputError(
            "an AUC on held-out rows needs at least 2 labelled rows of each kind, got "
            f"{min(n, m)} of the rarer one."
        )
    folds = PNUStratifiedKFold(min(n_splits, n, m), n_repeats, random_state)
    values = []
    for train, held in folds.split(X, codes):
        fitted = clone(model).fit(_safe_indexing(X, train), codes[train])
        values.append(labelled_auc(fitted, _safe_indexing(X, held), codes[held]))
    return auc_of_folds(values, folds.n_splits, n, m, confidence)


def out_of_fold_scores(
    model: Any, X: Any, y: Any, n_splits: int = 5, random_state: int | None = None
) -> np.ndarray:
    """Anomaly scores of the labelled rows, each from a fit that never saw the row; else NaN.

    scikit-learn's `cross_val_predict` renumbers the three codes before fitting; this function does
    not. Unlabelled rows are in every training set, except that copies of a row are held out
    together. There are at most as many folds as rows of the rarer label; the model is cloned for
    each.
    """
    X, codes, groups = check_rows_and_labels(X, y)
    rarer = min(count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
    folds = labelled_folds(codes, min(n_splits, rarer), random_state, groups) if rarer > 1 else []
    if not folds:
        raise InputError(
            "out-of-fold scores need at least 2 labelled rows of each kind, "
            f"got {rarer} of the rarer one. Copies of a row count as one."
        )
    scores = np.full(len(codes), np.nan)
    for held in (whole_groups(fold, groups) for fold in folds):
        train = np.setdiff1d(np.arange(len(codes)), held, assume_unique=True)
        fitted = clone(model).fit(_safe_indexing(X, train), codes[train])
        scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    return np.where(codes == UNLABELLED, np.nan, scores)


def check_rows_and_labels(
    X: Any, y: Any, groups: Any = None
) -> tuple[Any, Codes, np.ndarray | None]:
    """Rows that can be indexed, their label codes, and their groups if rows have any, or copies."""
    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    groups = None if groups is None else as_groups(groups, len(codes))
    return X, codes, group_equal_rows(X, codes, groups)
