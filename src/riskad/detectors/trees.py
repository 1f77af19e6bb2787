"""Shared code of tree detectors: rows with gaps, columns of text and dates, trees in files."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.rows.columns import (
    Levels,
    as_table,
    input_errors,
    is_frame,
    learn_levels,
    learn_moments,
    to_matrix,
)
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.graph_numbers import GraphNumbers
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
    Text,
    require,
)

__all__ = ["TREES", "FrameDetector", "TreeDetector", "check_trees", "width_seen"]

TREES = Record(("Trees",))
"""The field of an ensemble of trees in a stored state."""
_NO_EVIDENCE = LevelEvidence([], [], [], [])
_RECURRING = ("hour", "weekday", "day of month", "month")


def check_trees(state: State, fewest: int = 1) -> None:
    """Refuse a stored state whose trees are too few, or have other columns than stated."""
    trees = state["trees_"]
    require(trees.n_features == width_seen(state), "trees_: of other columns")
    require(trees.n_trees >= fewest, "trees_: none")


def width_seen(state: State) -> int:
    """Return the number of columns of a stored state, with those appended to the given ones."""
    parts = sum(map(len, state.get("moments_", {}).values()))
    return int(state["n_features_in_"] + parts + len(state.get("evidence_", _NO_EVIDENCE).places))


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
    """A detector that also takes frames with columns of text and dates.

    Texts are codes of those seen in fit. Dates are seconds, and parts of them that recur, such as
    the weekday, are appended to the columns.
    """

    takes_frames: ClassVar[bool] = True
    categories_: Levels
    moments_: dict[int, list[str]]
    evidence_: LevelEvidence

    _state_fields: ClassVar[Fields] = {
        "categories_": DictOf(COUNT, ListOf(TEXT)),
        "moments_": DictOf(COUNT, ListOf(Text(choices=_RECURRING))),
        "evidence_": Optional(Record(("LevelEvidence",))),  # not all learn it
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        places, moments = state.get("categories_", {}), state.get("moments_", {})
        for name, given in (("categories_", places), ("moments_", moments)):
            require(all(place < state["n_features_in_"] for place in given), f"{name}: no column")
        require(places.keys().isdisjoint(moments), "moments_: columns of text")
        evidence = state.get("evidence_", _NO_EVIDENCE)
        for place, values in zip(evidence.places, evidence.evidence, strict=True):
            right = place in places and len(values) == len(places[place]) + 1
            require(right, "evidence_: of other levels")

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix; texts of a frame as codes, dates as seconds."""
        X = as_table(X)
        if reset:
            levels = learn_levels(X) if is_frame(X) else {}
            moments = learn_moments(X) if is_frame(X) else {}
        else:
            levels, moments = getattr(self, "categories_", {}), self._moments
        if not levels and not moments:
            X = super()._check_rows(X, reset)
        elif is_frame(X):
            with input_errors(type(self).__name__):
                validate_data(self, X, reset=reset, skip_check_array=True)
                least, matrix = 2 if reset else 1, to_matrix(X, levels, moments)
                X = check_array(matrix, ensure_all_finite=False, ensure_min_samples=least)
            self._refuse_infinities(X)
        else:
            names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
            raise InputError(
                f"The model was fitted on a frame with {'text' if levels else 'dates'} in "
                f"{enumerate_names(names[list(levels or moments)].tolist())}, got "
                f"{type(X).__name__}. Give a pandas or polars frame with the same columns."
            )
        if reset:
            self.categories_, self.moments_ = levels, moments
        return X

    def _check_training(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Rows with the parts of their dates, codes and weights."""
        X, codes, weight = super()._check_training(X, y, sample_weight)
        return self._with_parts(X), codes, weight

    @property
    def _moments(self) -> dict[int, list[str]]:
        return getattr(self, "moments_", {})

    def _with_parts(self, X: Any) -> Any:
        """Validated rows with the parts of their dates, in further columns."""
        if not any(self._moments.values()):
            return X
        from riskad.rows.date_features import MomentParts

        columns = (
            MomentParts("datetime", tuple(parts)).ordered(X[:, place])
            for place, parts in self._moments.items()
        )
        return np.column_stack([X, *columns])

    def _learn_evidence(
        self,
        X: Any,
        codes: np.ndarray,
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Any:
        """The training rows as trees see them: with evidence from labels of other rows."""
        self.evidence_ = LevelEvidence.learn(X, codes, self.categories_, weight)
        if not self.evidence_.places:
            return X
        groups = group_equal_rows(X, codes) if groups is None else groups
        return self.evidence_.appended_in_fit(X, codes, self._seed, weight, groups)

    @property
    def _evidence(self) -> LevelEvidence:
        return getattr(self, "evidence_", _NO_EVIDENCE)

    def _seen(self, X: Any) -> Any:
        """New, validated rows as trees see them."""
        return self._evidence.appended(self._with_parts(X))

    def _by_column(self, values: np.ndarray) -> np.ndarray:
        """Values of columns; those of appended columns are added to their origin's."""
        origins = [place for place, parts in self._moments.items() for _ in parts]
        origins += self._evidence.places
        d = values.shape[-1] - len(origins)
        total = values[..., :d].copy()
        for i, place in enumerate(origins):
            total[..., place] += values[..., d + i]
        return total

    def _graph_rows(self, graph: Any, rows: str) -> str:
        """The same in an ONNX graph: parts of dates, and the evidence of each code, looked up."""
        columns = [rows]
        for place, parts in self._moments.items():
            if parts:
                from riskad.rows.date_features import MomentParts

                seconds = graph.node("Gather", rows, np.array([place]), axis=1)
                found = MomentParts("datetime", tuple(parts))
                numbers = found.ordered_parts(GraphNumbers(graph, seconds))
                columns += [number.node for number in numbers]
        for place, values in zip(self._evidence.places, self._evidence.evidence, strict=True):
            codes = graph.node("Gather", rows, np.array([place]), axis=1)
            blank = np.array(float(len(values) - 1))
            level = graph.node("Where", graph.node("IsNaN", codes), blank, codes)
            columns.append(graph.node("Gather", values, graph.cast(level, np.int64)))
        return graph.node("Concat", *columns, axis=1) if len(columns) > 1 else rows
