"""The leaves of random trees, as features."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from riskad.detectors.features.base import FeatureMap
from riskad.detectors.frame_detector import check_trees
from riskad.detectors.tree_conversion import from_sklearn
from riskad.detectors.tree_ensemble import TREES
from riskad.storage.fields import SIZE, Fields, Number, State, require

__all__ = ["TreeLeaves"]


class TreeLeaves(FeatureMap):
    """The leaves into which a row falls, in trees that split the rows at random.

    Rows in one leaf of many trees are alike, whatever the units of their columns. A row has one
    entry 1 / sqrt(n_estimators) for each tree, so its norm is 1; the result is sparse.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    max_depth : int, default=5
        Depth of each: at most 2^max_depth leaves.
    max_rows : int, default=20_000
        Rows on which trees are grown.
    random_state : int, optional
        Seed; None means 0.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> TreeLeaves(25).fit_transform(X).sum(axis=1).max().round(6)  # 25 times 1 / 5
    np.float64(5.0)
    """

    _state_fields: ClassVar[Fields] = {
        "n_estimators": SIZE,
        "max_depth": Number(1, 100, whole=True),
        "max_rows": SIZE,
        "trees_": TREES,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state in which a leaf has no column."""
        check_trees(state)
        places = np.sort(state["trees_"].value)
        require(len(places) == state["n_features_out_"], "trees_: another number of leaves")
        each = np.array_equal(places, np.arange(len(places)))
        require(each, "trees_: not one column for each leaf")

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int = 5,
        max_rows: int = 20_000,
        random_state: int | None = None,
    ):
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TreeLeaves:
        """Grow the trees; y is ignored."""
        from sklearn.ensemble import RandomTreesEmbedding

        X = self._check(X, reset=True)
        embedding = RandomTreesEmbedding(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            random_state=self.random_state or 0,
        ).fit(X[self._places(len(X), self.max_rows)])
        leaf = np.concatenate([each.tree_.children_left == -1 for each in embedding.estimators_])
        # The value of a leaf is its column: leaves are numbered tree after tree.
        self.trees_ = from_sklearn(embedding, np.cumsum(leaf) - 1)
        self.n_features_out_ = int(leaf.sum())
        return self

    def transform(self, X: Any) -> Any:
        """One entry for each tree."""
        check_is_fitted(self)
        leaves = self.trees_.leaves(self._check(X, reset=False))
        places = self.trees_.value.take(leaves).astype(int)
        n, T = places.shape
        ones = np.full(n * T, T**-0.5)
        ends = np.arange(0, n * T + 1, T)
        return sparse.csr_matrix((ones, places.ravel(), ends), shape=(n, self.n_features_out_))
