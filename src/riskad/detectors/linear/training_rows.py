"""The rows of a fit: tensors on a device, checks of labels and columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from riskad.core.checks import DataWarning, InputError, enumerate_names
from riskad.core.risks import Risk
from riskad.detectors.base import check_said, refuse_non_finite
from riskad.detectors.description import check_kinds_present
from riskad.detectors.linear.feature_maps import Features
from riskad.rows.arrays import places_of
from riskad.rows.linear import ColumnStatistics, LinearModel, WideModel, column_statistics
from riskad.rows.memory import RowBlocks
from riskad.rows.source import RowSource
from riskad.rows.sources import in_memory, refuse_non_finite_rows

__all__ = [
    "are_codes",
    "check_labels_suffice",
    "check_tensor",
    "checked_statistics",
    "linear_model",
    "sample_in_memory",
    "tensor_rows",
]

# Second moments of each kind cost d x d numbers; above this, quadratic losses take one more pass.
_MAX_MOMENT_COLUMNS = 500


# --- tensors ------------------------------------------------------------------------------


def check_tensor(X: Any) -> Any:
    """A tensor of rows in single or double precision, the smallest that holds its numbers.

    It stays on its device.
    """
    if X.ndim != 2 or not len(X):
        raise InputError(f"X must have rows and columns, got a tensor of shape {tuple(X.shape)}.")
    X = X.detach()
    if X.dtype.is_complex:
        raise InputError("Complex data not supported: X must hold real numbers.")
    if X.dtype.is_floating_point:
        return X if X.element_size() >= 4 else X.float()
    return X.float() if X.element_size() < 4 else X.double()


def are_codes(y: Any, n_rows: int) -> bool:
    """Whether y is a tensor with one code for each row, checked on its device."""
    return is_torch_array(y) and tuple(y.shape) == (n_rows,) and bool((y == y.sign()).all())


def tensor_rows(X: Any, codes: Any, weight: np.ndarray | None) -> RowBlocks:
    """RowSource, codes and weights together on the device of the rows."""
    xp = array_namespace(X)
    if is_torch_array(codes):
        codes = codes.to(X.device, xp.int8)
    else:
        codes = xp.asarray(codes, dtype=xp.int8, device=X.device)
    if weight is not None:
        weight = xp.asarray(weight, dtype=X.dtype, device=X.device)
    return RowBlocks(X, codes, weight)


# --- labels and columns -------------------------------------------------------------------


def check_labels_suffice(risk: Risk, rows: RowSource, besides: str) -> None:
    """Check that the meaning of the labels is known, and that the risk has the kinds it needs."""
    check_said(rows)
    check_kinds_present(risk, rows.counts(), rows.totals(), besides)


def sample_in_memory(rows: RowSource, n_rows: int, shares: np.ndarray, seed: int) -> RowBlocks:
    """At most about `n_rows` rows on the host, divided among the kinds by `shares`.

    Rows without weight are never among them.
    """
    if isinstance(rows, RowBlocks):
        rows = _with_weight(rows)
    return _with_weight(in_memory(rows, n_rows, shares, seed))


def _with_weight(rows: RowBlocks) -> RowBlocks:
    if rows.sample_weight is None or bool((rows.sample_weight > 0).all()):
        return rows
    return rows.take(places_of(rows.sample_weight > 0))


def checked_statistics(
    rows: RowSource, names: np.ndarray | None, products: bool
) -> ColumnStatistics:
    """Means and spreads; refuses non-finite values and warns of columns that do not vary.

    Parameters
    ----------
    rows : RowSource
        The rows of a fit.
    names : array of str, optional
        Names of the columns, for messages.
    products : bool
        Whether a solver would use sums of products of columns. They are computed if rows are dense
        and there are few enough columns.

    Returns
    -------
    ColumnStatistics
        Statistics from `riskad.rows.linear`.
    """
    few = not rows.sparse and rows.n_features <= _MAX_MOMENT_COLUMNS
    statistics = column_statistics(rows, second_moments=products and few)
    if not statistics.finite:
        if isinstance(rows, RowBlocks) and not is_torch_array(rows.X):
            refuse_non_finite(rows.X, names)
        refuse_non_finite_rows(rows, names)
    if statistics.constant.any():
        columns = np.flatnonzero(statistics.constant)
        warnings.warn(
            f"{len(columns)} column(s) hold a single value and cannot tell rows apart: "
            f"{enumerate_names(columns.tolist() if names is None else names[columns])}. "
            "Drop them.",
            DataWarning,
            stacklevel=4,
        )
    return statistics


def linear_model(rows: RowSource, features: Features, constant: float, penalty: str) -> LinearModel:
    """Scores <w, phi(x)> + b of rows as a function of theta = (w, b / constant).

    Without a feature map columns are standardised by algebra, and a table with more columns than
    rows is rotated into the space of its rows, which does not change an l2 penalty.
    """
    if features.feature_map is not None:
        mapped = features.of_rows(rows)
        q = mapped.n_features
        return LinearModel(mapped, np.zeros(q), np.ones(q), constant)
    wide = rows.n_rows < rows.n_features and not rows.sparse and penalty == "l2"
    if wide and isinstance(rows, RowBlocks) and isinstance(rows.X, np.ndarray):
        return WideModel(rows, features.mean, features.scale, constant)
    return LinearModel(rows, features.mean, features.scale, constant)
