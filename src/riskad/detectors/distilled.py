"""What learns scores rather than labels, from a teacher that takes long to give them.

A teacher such as `riskad.PretrainedRAD` scores some rows of the pile; what is fitted to these
scores finds others quickly, and is smoother than the teacher.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesRegressor

from riskad.detectors.trees import KeepsTrees, with_values
from riskad.storage.fields import JOBS, SEED, SIZE, Fields

__all__ = ["TaughtForest"]

_LEAF = 5
_TRIED = 100  # columns at each split, so that wide tables do not take long


class TaughtForest(KeepsTrees, BaseEstimator):
    """Extremely randomised trees grown on scores.

    Leaves have at least five rows, and up to 100 columns are tried at each split.

    Parameters
    ----------
    n_estimators : int, default=200
        Trees.
    random_state : int, default=None
        Seed. None is 0.
    n_jobs : int, default=1
        Trees grown at a time.

    Attributes
    ----------
    trees_ : list
        The trees, as scikit-learn grows them.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> forest = TaughtForest(n_estimators=20).fit(X, -(X**2).sum(axis=1))
    >>> low, high = forest.score_samples([[3.0, 0.0], [0.0, 0.0]])
    >>> bool(low < high)
    True
    """

    _state_fields: ClassVar[Fields] = {
        "n_estimators": SIZE,
        "random_state": SEED,
        "n_jobs": JOBS,
        "n_features_in_": SIZE,
    }

    def __init__(
        self, *, n_estimators: int = 200, random_state: int | None = None, n_jobs: int = 1
    ):
        self.n_estimators = n_estimators
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, scores: Any) -> TaughtForest:
        """Learn the scores of the rows X."""
        X = np.asarray(X, dtype=np.float32)
        forest = ExtraTreesRegressor(
            self.n_estimators,
            min_samples_leaf=_LEAF,
            max_features=min(_TRIED, X.shape[1]),
            random_state=self.random_state or 0,
            n_jobs=self.n_jobs,
        )
        grown = [member.tree_ for member in forest.fit(X, scores).estimators_]
        self.n_features_in_ = X.shape[1]
        values = np.concatenate([tree.value[:, 0, 0] for tree in grown])
        self.trees_ = with_values(grown, values, self.n_features_in_)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """What the teacher would say, on average over the trees."""
        X = np.asarray(X, dtype=np.float32)
        return np.mean([tree.predict(X)[:, 0] for tree in self.trees_], axis=0)
