"""Rows with known truth, for experiments."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import DataWarning
from riskad.core.labels import ANOMALY, Codes
from riskad.tables.preparation import TablePreparer

__all__ = ["Dataset", "FrameDataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of numbers, and the truth about each row.

    Attributes
    ----------
    name : str
        Name in records and tables; for a set of ADBench its name without a number.
    X : float64 array of shape (n_rows, n_features)
        C-contiguous; as published, not scaled.
    y : int8 array of shape (n_rows,)
        +1 normal, -1 anomaly. To learn from it, split it first and hide most labels of the
        training rows with `mask_labels`.

    Examples
    --------
    >>> print(Dataset("tiny", np.eye(4), np.array([1, 1, 1, -1], dtype=np.int8)))
    tiny: 4 rows, 4 features, 1 anomaly (25%)
    """

    name: str
    X: NDArray[np.float64]
    y: Codes

    @property
    def anomaly_rate(self) -> float:
        """The share of anomalies among all rows."""
        return float(np.mean(self.y == ANOMALY))

    def parts(self, train: NDArray[Any], test: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows to train on and rows to test on.

        Parameters
        ----------
        train, test
            Positions of the rows.

        Returns
        -------
        Two float64 arrays.
        """
        return self.X[train], self.X[test]

    def __str__(self) -> str:
        return _describe(self.name, self.X.shape, self.y)

    def __repr__(self) -> str:
        return f"<Dataset {self}>"


@dataclass(frozen=True, eq=False, repr=False)
class FrameDataset:
    """A table as the user stores it, and the truth about each row.

    Only training rows decide how its columns become numbers, separately in every split.

    Attributes
    ----------
    name : str
        Name in records and tables.
    frame : polars.DataFrame
        The columns to learn from, as read from the file.
    y : int8 array of shape (n_rows,)
        +1 normal, -1 anomaly.
    """

    name: str
    frame: pl.DataFrame
    y: Codes

    @property
    def anomaly_rate(self) -> float:
        """The share of anomalies among all rows."""
        return float(np.mean(self.y == ANOMALY))

    def parts(self, train: NDArray[Any], test: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows to train on and rows to test on, as numbers.

        Parameters
        ----------
        train, test
            Positions of the rows.

        Returns
        -------
        Two float64 arrays with the columns that `TablePreparer` makes from the training rows.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # words that occur only in test rows
            preparer = TablePreparer().fit(self.frame[train])
            X_train, X_test = (preparer.transform(self.frame[rows]) for rows in (train, test))
        return _dense(X_train), _dense(X_test)

    def __str__(self) -> str:
        return _describe(self.name, self.frame.shape, self.y)

    def __repr__(self) -> str:
        return f"<FrameDataset {self}>"


def _dense(X: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def _describe(name: str, shape: tuple[int, ...], y: Codes) -> str:
    n_rows, n_features = shape
    n_anomalies = int(np.count_nonzero(y == ANOMALY))
    features = "feature" if n_features == 1 else "features"
    anomalies = "anomaly" if n_anomalies == 1 else "anomalies"
    return (
        f"{name}: {n_rows:,} rows, {n_features:,} {features}, "
        f"{n_anomalies:,} {anomalies} ({100 * n_anomalies / n_rows:.3g}%)"
    )
