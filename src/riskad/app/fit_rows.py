"""What a fit does with the rows of a table, all at once or in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from riskad.app.results import rank
from riskad.core.checks import InputError
from riskad.core.labels import UNLABELLED, Codes
from riskad.tables.preparation import TablePreparer

__all__ = ["check_dense", "join_judged", "judge", "largest", "note_of_rows"]


def check_dense(detector: Any, matrix: Any) -> None:
    """Networks do not take sparse matrices, which tables with many different texts become."""
    if sparse.issparse(matrix) and not detector.__sklearn_tags__().input_tags.sparse:
        raise InputError(
            f"The text columns of this table have so many values that they become "
            f"{matrix.shape[1]:,} columns, mostly zeros, which networks do not take. Leave the "
            "longest out with drop, or choose model='auto'."
        )


def note_of_rows(
    frame: pl.DataFrame, codes: Codes, first_row: int, *, preparer: TablePreparer, detector: Any
) -> dict[str, float]:
    """What a detector notes about some rows."""
    return dict(detector.note_of_rows(preparer.transform(frame, first_row=first_row, quiet=True)))


def largest(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """The larger of two, by name."""
    return {name: max(value, second[name]) for name, value in first.items()}


def judge(
    frame: pl.DataFrame,
    codes: Codes,
    first_row: int,
    *,
    model: Pipeline,
    scores: NDArray[np.float64] | None,
    most: int,
    row: str,
) -> tuple[int, pl.DataFrame]:
    """Count the flagged among the unlabelled rows, and keep those with the highest scores."""
    preparer, detector = model[0], model[1]
    unlabelled = np.asarray(codes == UNLABELLED)
    rows = frame.with_row_index(row, first_row).filter(unlabelled)
    if scores is not None:
        found = scores[unlabelled]
    else:
        ready = preparer.transform(rows, quiet=True) if rows.height else None
        found = np.empty(0) if ready is None else detector.anomaly_score(ready)
    scored = rows.with_columns(pl.Series("anomaly_score", found, dtype=pl.Float64))
    if rows.height > most:  # the others need not be sorted
        scored = scored.filter(found >= np.partition(found, -most)[-most])
    return int((found > detector.anomaly_threshold).sum()), rank(scored).head(most)


def join_judged(
    first: tuple[int, pl.DataFrame], second: tuple[int, pl.DataFrame], *, most: int
) -> tuple[int, pl.DataFrame]:
    """Count both, and keep the highest scores of both."""
    both = pl.concat([first[1], second[1]], how="vertical_relaxed")
    return first[0] + second[0], rank(both).head(most)
