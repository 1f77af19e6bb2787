"""What detectors made of trees share: rows with gaps, text columns, and trees in model files."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.rows.columns import Levels, as_table, input_errors, is_frame, learn_levels, to_matrix
from riskad.storage.fields import COUNT, TEXT, DictOf, Fields, ListOf, Record, State, require

__all__ = ["TREES", "FrameDetector", "TreeDetector", "check_trees"]

TREES = Record(("Trees",))
"""The field of an ensemble of trees in a stored state."""


def check_trees(state: State) -> None:
    """Refuse a stored state whose trees are none, or of other columns than it says."""
    trees = state["trees_"]
    require(trees.n_features == state["n_features_in_"], "trees_: of other columns")
    require(trees.n_trees >= 1, "trees_: none")


class TreeDetector(Detector):
    """A detector that takes NaN for a value that is missing, and refuses infinities."""

    random_state: int | None

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix, which may hold NaN."""
        X = super()._check_rows(X, reset)
        self._refuse_infinities(X)
        return X

    def _refuse_infinities(self, X: Any) -> None:
        if np.isinf(X.data if sparse.issparse(X) else X).any():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None), missing=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class FrameDetector(TreeDetector):
    """One that also takes frames with text columns, as codes of the texts seen in fit."""

    takes_frames: ClassVar[bool] = True
    categories_: Levels

    _state_fields: ClassVar[Fields] = {"categories_": DictOf(COUNT, ListOf(TEXT))}

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        places = state.get("categories_", {})
        require(all(place < state["n_features_in_"] for place in places), "categories_: no column")

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix; text columns of a frame as codes."""
        X = as_table(X)
        levels = self._learn_categories(X) if reset else getattr(self, "categories_", {})
        if not levels:
            X = super()._check_rows(X, reset)
        elif is_frame(X):
            with input_errors(type(self).__name__):
                validate_data(self, X, reset=reset, skip_check_array=True)
                least, matrix = 2 if reset else 1, to_matrix(X, levels)
                X = check_array(matrix, ensure_all_finite=False, ensure_min_samples=least)
            self._refuse_infinities(X)
        else:
            names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
            raise InputError(
                "The model was fitted on a frame with text in "
                f"{enumerate_names(names[list(levels)].tolist())}, got {type(X).__name__}. Give a "
                "pandas or polars frame with the same columns."
            )
        if reset:
            self.categories_ = levels
        return X

    @staticmethod
    def _learn_categories(X: Any) -> Levels:
        return learn_levels(X) if is_frame(X) else {}
