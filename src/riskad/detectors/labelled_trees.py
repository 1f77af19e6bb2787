"""Boosted trees that classify labelled rows, and ignore unlabelled ones.

With few labels the unlabelled rows carry most of the information, and detectors that minimise a
risk of all rows rank best. With thousands of labels an ordinary classifier does equally well, is
quick to fit to all of them, and makes other mistakes: `AutoRAD` then adds it as a member.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from riskad.core.labels import NORMAL, UNLABELLED
from riskad.detectors.boosting import lightgbm_library, one_fit_at_a_time
from riskad.detectors.tree_arrays import Trees, from_lightgbm
from riskad.detectors.tree_graph import sum_of_trees
from riskad.detectors.trees import TREES, check_trees
from riskad.storage.fields import SEED, SIZE, Fields, Maybe, State

__all__ = ["Growth", "LabelledTrees"]

_L2, _SHARE = 1.0, 0.8
_MANY, _VERY_MANY = 2_000, 20_000  # labelled rows from which trees grow differently
_FOLD_ROUNDS = 80
_STEPS = 50.0  # rounds times rate, for very many rows
_MOST_ROUNDS, _FEWEST_ROUNDS = 2_000, 500
_MOST_CELLS = 8e9  # cells that all rounds together read


class Growth(NamedTuple):
    """How trees grow."""

    leaves: int
    leaf_rows: int
    """Minimum rows of a leaf."""
    rounds: int = 200
    rate: float = 0.05
    columns: float = _SHARE
    """Share of the columns that a tree may use."""

    @classmethod
    def of(cls, n_labelled: int, n_columns: int) -> Growth:
        """For this many labelled rows: more of them allow smaller steps, and more.

        >>> Growth.of(100, 10).rounds, Growth.of(30_000, 10).rounds, Growth.of(10**6, 100).rounds
        (200, 2000, 500)
        """
        if n_labelled < _VERY_MANY:
            return cls(15, 5) if n_labelled < _MANY else cls(31, 20)
        affordable = _MOST_CELLS / (n_labelled * n_columns)
        rounds = round(np.clip(affordable, _FEWEST_ROUNDS, _MOST_ROUNDS))
        return cls(8, 20, rounds, _STEPS / rounds, 1.0)


class LabelledTrees(BaseEstimator):
    """Gradient-boosted trees with the logistic loss on labelled rows, grown by LightGBM.

    Parameters
    ----------
    n_rounds : int, optional
        Number of trees. None means 200 below 20,000 labelled rows, and with more 500 to 2,000
        smaller trees.
    random_state : int, optional
        Seed; None means 0.
    n_jobs : int, default=1
        Threads in `fit`.

    Attributes
    ----------
    trees_ : Trees
        The trees; their sum is the log-odds of a normal row.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (200, 2)), rng.normal(3, 1, (50, 2))])
    >>> model = LabelledTrees().fit(X, np.repeat([1, -1], [200, 50]))
    >>> usual, odd = model.score_samples([[0.0, 0.0], [3.0, 3.0]])
    >>> bool(odd < 0 < usual)
    True
    """

    _state_fields: ClassVar[Fields] = {
        "n_rounds": Maybe(SIZE),
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
        self, *, n_rounds: int | None = None, random_state: int | None = None, n_jobs: int = 1
    ):
        self.n_rounds = n_rounds
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LabelledTrees:
        """Learn from the labelled rows of X.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly; rows with 0 are ignored.
        sample_weight : array of shape (n_rows,), optional
            Weight of each row.

        Returns
        -------
        LabelledTrees
            The fitted detector.
        """
        lightgbm = lightgbm_library()
        X, codes = np.asarray(X), np.asarray(y)
        known = np.flatnonzero(codes != UNLABELLED)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        self.n_features_in_ = X.shape[1]
        growth = self._growth(len(known))
        settings = self._settings(growth)
        with one_fit_at_a_time:
            data = lightgbm.Dataset(
                X[known], codes[known] == NORMAL, weight=weight, params=settings
            )
            booster = lightgbm.train(settings, data, growth.rounds)
            self.trees_ = from_lightgbm(booster.dump_model(), self.n_features_in_)
        return self

    def _growth(self, n_labelled: int) -> Growth:
        """As rows allow; as for fewer rows if the rounds are given."""
        if self.n_rounds is None:
            return Growth.of(n_labelled, self.n_features_in_)
        fewer = min(n_labelled, _VERY_MANY - 1)
        return Growth.of(fewer, self.n_features_in_)._replace(rounds=self.n_rounds)

    def _settings(self, growth: Growth) -> dict[str, Any]:
        return {
            "objective": "binary",
            "learning_rate": growth.rate,
            "num_leaves": growth.leaves,
            "min_data_in_leaf": growth.leaf_rows,
            "lambda_l2": _L2,
            "bagging_fraction": _SHARE,
            "bagging_freq": 1,
            "feature_fraction": growth.columns,
            "seed": self.random_state or 0,
            "num_threads": self.n_jobs,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def lighter(self) -> LabelledTrees:
        """Return an unfitted copy that grows for fewer rounds."""
        return clone(self).set_params(n_rounds=min(self.n_rounds or _FOLD_ROUNDS, _FOLD_ROUNDS))

    def kept_rows(self) -> int:
        """Return 0: trees hold no rows."""
        return 0

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-odds of being normal."""
        return self.trees_.sum(np.asarray(X))

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the sum of the trees."""
        return sum_of_trees(graph, rows, self.trees_)
