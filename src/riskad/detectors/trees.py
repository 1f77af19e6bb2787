"""Shared code of tree detectors: rows with gaps, text columns, and trees in model files."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.rows.columns import Levels, as_table, input_errors, is_frame, learn_levels, to_matrix
from riskad.rows.level_evidence import LevelEvidence
from riskad.storage.fields import (
    COUNT,
    TEXT,
    DictOf,
    Fields,
    ListOf,
    Optional,
    Record,
    State,
    require,
)

__all__ = ["TREES", "FrameDetector", "TreeDetector", "check_trees"]

TREES = Record(("Trees",))
"""The field of an ensemble of trees in a stored state."""
_NO_EVIDENCE = LevelEvidence([], [], [], [])


def check_trees(state: State, fewest: int = 1) -> None:
    """Refuse a stored state whose trees are too few, or have other columns than stated."""
    trees, appended = state["trees_"], len(state.get("evidence_", _NO_EVIDENCE).places)
    require(trees.n_features == state["n_features_in_"] + appended, "trees_: of other columns")
    require(trees.n_trees >= fewest, "trees_: none")


class TreeDetector(Detector):
    """A detector that accepts NaN as a missing value, and refuses infinities."""

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
    """A detector that also takes frames with text columns, as codes of the texts seen in fit."""

    takes_frames: ClassVar[bool] = True
    categories_: Levels
    evidence_: LevelEvidence

    _state_fields: ClassVar[Fields] = {
        "categories_": DictOf(COUNT, ListOf(TEXT)),
        "evidence_": Optional(Record(("LevelEvidence",))),  # absent from files of earlier versions
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        places = state.get("categories_", {})
        require(all(place < state["n_features_in_"] for place in places), "categories_: no column")
        evidence = state.get("evidence_", _NO_EVIDENCE)
        for place, values in zip(evidence.places, evidence.evidence, strict=True):
            right = place in places and len(values) == len(places[place]) + 1
            require(right, "evidence_: of other levels")

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

    def _learn_evidence(self, X: Any, codes: np.ndarray, weight: np.ndarray | None = None) -> Any:
        """The training rows as trees see them: with evidence from labels of other rows."""
        self.evidence_ = LevelEvidence.learn(X, codes, self.categories_, weight)
        return self.evidence_.appended_in_fit(X, codes, self._seed, weight)

    @property
    def _evidence(self) -> LevelEvidence:
        return getattr(self, "evidence_", _NO_EVIDENCE)

    def _seen(self, X: Any) -> Any:
        """New, validated rows as trees see them."""
        return self._evidence.appended(X)

    def _graph_rows(self, graph: Any, rows: str) -> str:
        """The same in an ONNX graph: the evidence of each code, looked up."""
        columns = [rows]
        for place, values in zip(self._evidence.places, self._evidence.evidence, strict=True):
            codes = graph.node("Gather", rows, np.array([place]), axis=1)
            blank = np.array(float(len(values) - 1))
            level = graph.node("Where", graph.node("IsNaN", codes), blank, codes)
            columns.append(graph.node("Gather", values, graph.cast(level, np.int64)))
        return graph.node("Concat", *columns, axis=1) if len(columns) > 1 else rows

    @staticmethod
    def _learn_categories(X: Any) -> Levels:
        return learn_levels(X) if is_frame(X) else {}
