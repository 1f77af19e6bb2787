"""Detectors that take rows with gaps, and columns of text and dates; trees on a risk are two."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Self

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from riskad.core.checks import InputError, enumerate_names
from riskad.core.labels import count_labels
from riskad.core.risks import RISKS, Risk
from riskad.detectors.base import Detector, array_checks
from riskad.detectors.description import DetectorTags, RiskMinimizer, check_kinds_present
from riskad.detectors.tree_ensemble import Trees
from riskad.files import fields
from riskad.files.fields import Record, State, require
from riskad.rows.encoding import AnomalyRateEncoder, OneHotImputer
from riskad.rows.equal_rows import group_equal_rows
from riskad.rows.sources import RowBlocks
from riskad.rows.table import Table, TableSchema, as_table, input_errors, is_data_frame

ENCODER = Record(("OneHotImputer", "SingularVectors"), {"n_features_out_": "encoded"})
"""The field of an encoder of all columns, the appended ones included."""


def _n_columns_seen(state: State) -> int:
    """The number of columns of a stored state, with those appended to the given ones."""
    n_appended = len(state["schema_"].part_columns) + len(state["evidence_"].places)
    return int(state["n_features_in_"] + n_appended)


class FrameDetector(Detector):
    """A detector that accepts NaN, frames with columns of text and dates, and a `Table`.

    Texts are codes of those seen in fit. Dates are seconds, and parts of them that recur, such as
    the weekday, are appended to the columns; so is the evidence of labels on the levels of a
    category, for detectors that learn it.
    """

    _detector_tags: Any = DetectorTags(accepts_frames=True)

    schema_: Annotated[TableSchema, Record(("TableSchema",))]
    evidence_: Annotated[AnomalyRateEncoder, Record(("AnomalyRateEncoder",))]

    @classmethod
    def _check_state(cls, state: State) -> None:
        schema, evidence = state["schema_"], state["evidence_"]
        places, d = [*schema.levels, *schema.dates], state["n_features_in_"]
        require(all(place < d for place in places), "schema_: no such column")
        for place, values in zip(evidence.places, evidence.evidence, strict=True):
            levels = schema.levels.get(place)
            right = levels is not None and len(values) == len(levels) + 1
            require(right, "evidence_: of other levels")
        if "encoder_" in state:
            encoder = state["encoder_"]
            # A stored encoder of other columns would read beyond a row.
            require(encoder.n_features_in_ == _n_columns_seen(state), "encoder_: of other columns")
            if isinstance(encoder, OneHotImputer):
                right = encoder.many == "codes" and not encoder.periods_
                require(right, "encoder_: of another kind")

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """X as a float array or CSR matrix; texts of a frame as codes, dates as seconds."""
        X = as_table(X)
        schema = TableSchema.learn(X) if reset else self.schema_
        # After a fit to dates only a frame will do: a table does not say which columns are dates.
        if isinstance(X, Table) and not schema.dates:
            X = self._check_levels(X, schema, reset)
        # Numbers alone: the checks of all detectors do.
        elif schema == TableSchema():
            X = super()._check_rows(X, reset)
        elif is_data_frame(X):
            with input_errors(type(self).__name__):
                # scikit-learn stores and compares the names; the values are checked as codes.
                validate_data(self, X, reset=reset, skip_check_array=True)
                X = check_array(schema.read(X).values, **array_checks(reset))
        else:
            names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
            places = list(schema.levels or schema.dates)
            raise InputError(
                f"The model was fitted on a frame with {'text' if schema.levels else 'dates'} in "
                f"{enumerate_names(names[places].tolist())}, got "
                f"{type(X).__name__}. Give a pandas or polars frame with the same columns."
            )
        self._check_finite(X, missing=True)
        if reset:
            self.schema_ = schema
        return X

    def _check_levels(self, table: Table, schema: TableSchema, reset: bool) -> Any:
        """The values of a table, whose codes must stand for the same levels as in fit."""
        self._check_columns(table.names, table.shape[1], reset)
        # Both: a category of the fit may be missing, and a number may have become a category.
        for place in {*table.levels, *schema.levels}:
            levels = list(table.levels.get(place, ()))
            if levels != schema.levels.get(place, []):
                raise InputError(
                    f"Column {table.names[place]!r} has the levels {enumerate_names(levels, 5)}, "
                    "others than when the model was fitted. Make the table by the TablePreparer, "
                    "or with the levels, of the fit."
                )
        options = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
        with input_errors(type(self).__name__):
            return check_array(table.values, **options, **array_checks(reset))

    def _check_training(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Rows with the parts of their dates, codes and weights."""
        X, codes, weight = super()._check_training(X, y, sample_weight)
        self.evidence_ = AnomalyRateEncoder()  # none, unless the detector learns some
        return self.schema_.with_parts(X), codes, weight

    def _learn_evidence(
        self,
        X: Any,
        codes: np.ndarray,
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Any:
        """The training rows as trees see them: with evidence from labels of other rows."""
        # From all labels for new rows; training rows see that of other folds, below.
        self.evidence_ = AnomalyRateEncoder.learn(X, codes, self.schema_.levels, weight)
        if not self.evidence_.places:
            return X
        # A copy of a row in another fold would bring its own label back.
        groups = group_equal_rows(X, codes) if groups is None else groups
        return self.evidence_.cross_fit_transform(X, codes, self._seed, weight, groups)

    def _append_evidence(self, X: Any) -> Any:
        """New, validated rows as trees see them."""
        return self.evidence_.transform(self.schema_.with_parts(X))

    def _by_column(self, values: np.ndarray) -> np.ndarray:
        """Values of columns; those of appended columns are added to their origin's."""
        origins = [*self.schema_.part_columns, *self.evidence_.places]
        # Appended columns come last: first the parts of dates, then the evidence.
        d = values.shape[-1] - len(origins)
        total = values[..., :d].copy()
        for i, place in enumerate(origins):
            total[..., place] += values[..., d + i]
        return total

    def _graph_rows(self, graph: Any, rows: str) -> str:
        """The same in an ONNX graph."""
        columns = [*self.schema_.onnx_parts(graph, rows), *self.evidence_.onnx_columns(graph, rows)]
        return graph.node("Concat", rows, *columns, axis=1) if columns else rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class TreeDetector(RiskMinimizer, FrameDetector):
    """A forest or boosted trees that minimise a risk."""

    a: Annotated[float, fields.Number(-1, 1)]
    prior: Annotated[float, fields.SHARE]
    risk: Annotated[str, fields.Text(choices=RISKS)]
    trees_: Annotated[Trees, Record(("Trees",))]
    feature_importances_: Annotated[np.ndarray, fields.Array("f", ("n_features_in_",), low=0)]
    risk_parts_: Annotated[dict[str, float], fields.DictOf(fields.TEXT, fields.NUMBER)]

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        of_these = state["trees_"].n_features == _n_columns_seen(state)
        require(of_these, "trees_: of other columns")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers or NaN, in a frame also text and categories. `ForestRAD` takes no
            NaN in a sparse matrix.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            In the risk and for `min_samples_leaf` a row counts by the ratio of its weight to the
            mean weight, so equal weights change nothing. A row with weight 0 is ignored. For random
            splits a row is one row whatever its weight.
        """
        X, codes, weight = self._check_training(X, y, sample_weight)
        risk = self._check_settings()
        rows = RowBlocks(self._learn_evidence(X, codes, weight), codes, weight)
        check_kinds_present(risk, count_labels(codes), rows.totals())
        # Rows without weight, such as unlabelled ones for the risk pn, would only cost time.
        counts = np.isin(codes, list(risk.kinds())) & (True if weight is None else weight > 0)
        rows = rows if counts.all() else rows.take(np.flatnonzero(counts))
        self.trees_, importances = self._grow(rows, risk)
        self.feature_importances_ = self._by_column(importances)
        data = self._judged(rows.X), rows.y, rows.sample_weight
        parts = risk.parts(*data) | {"total": risk.value(*data)}
        self.risk_parts_ = {name: float(part) for name, part in parts.items()}
        # A fit tells its own rows apart too well to find a threshold from them.
        self.offset_ = 0.0
        return self

    @abstractmethod
    def _check_settings(self) -> Risk:
        """The bound risk; every parameter is checked before any work."""

    @abstractmethod
    def _grow(self, rows: RowBlocks, risk: Risk) -> tuple[Trees, np.ndarray]:
        """The trees, and the share of each column in the gain of all splits."""

    def _judged(self, X: Any) -> np.ndarray:
        """Scores of training rows as the risk sees them."""
        return self.trees_.predict(X)
