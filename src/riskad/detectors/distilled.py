"""A forest trained to reproduce the scores of a slower detector.

A slow detector such as `riskad.PretrainedRAD` scores some unlabelled rows. A forest fitted to these
scores gives scores of other rows quickly, and more smoothly than the slow detector.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from riskad.detectors.frame_detector import check_trees
from riskad.detectors.tree_conversion import from_sklearn
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.storage.fields import SEED, SIZE, Fields, State

__all__ = ["DistilledForest"]

_LEAF_ROWS = 5
_SPLIT_COLUMNS = 100  # tried at each split, so that wide tables do not take long


class DistilledForest(BaseEstimator):
    """Extremely randomised trees grown on scores.

    Leaves have at least five rows. Each split tries half of the columns, at most 100: trees that
    differ more average better, and take half the time.

    Parameters
    ----------
    n_estimators : int, default=200
        Number of trees.
    random_state : int, default=None
        Seed. None means 0.
    n_jobs : int, default=1
        Trees grown at a time.

    Attributes
    ----------
    trees_ : Trees
        The trees (`riskad.detectors.tree_ensemble`); the value of a leaf is the mean of its scores.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> forest = DistilledForest(n_estimators=20).fit(X, -(X**2).sum(axis=1))
    >>> low, high = forest.score_samples([[3.0, 0.0], [0.0, 0.0]])
    >>> bool(low < high)
    True
    """

    _state_fields: ClassVar[Fields] = {
        "n_estimators": SIZE,
        "random_state": SEED,
        "n_features_in_": SIZE,
        "trees_": TREES,
    }

    trees_: Trees

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state without trees, or with trees of other columns."""
        check_trees(state)

    def __init__(
        self, *, n_estimators: int = 200, random_state: int | None = None, n_jobs: int = 1
    ):
        self.n_estimators = n_estimators
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, scores: Any) -> DistilledForest:
        """Learn scores of the rows X.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows without infinities.
        scores : array of shape (n_rows,)
            The scores of these rows by the slow detector.

        Returns
        -------
        DistilledForest
            The fitted forest.
        """
        from sklearn.ensemble import ExtraTreesRegressor  # scoring does without

        X = np.asarray(X, dtype=np.float32)
        forest = ExtraTreesRegressor(
            self.n_estimators,
            min_samples_leaf=_LEAF_ROWS,
            max_features=min(_SPLIT_COLUMNS, -(-X.shape[1] // 2)),
            random_state=self.random_state or 0,
            n_jobs=self.n_jobs,
        )
        self.n_features_in_ = X.shape[1]
        self.trees_ = from_sklearn(forest.fit(X, scores))
        return self

    def kept_rows(self) -> int:
        """Return 0: trees hold no rows."""
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the predicted scores, averaged over the trees."""
        return self.trees_.mean(np.asarray(X))

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the same scores in an ONNX graph."""
        return self.trees_.onnx(graph, rows, weight=1 / self.trees_.n_trees)
