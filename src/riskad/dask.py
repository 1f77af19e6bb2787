"""Scores of Dask dataframes (extra `scale`, and pandas), computed where the rows are.

riskad must be installed on the workers, too. The model travels as its file, without pickle, and
each worker loads it once.

>>> import pandas
>>> import dask.dataframe as dd
>>> import polars as pl
>>> import riskad
>>> amounts = [*range(10, 40), *range(80, 90)]
>>> table = pl.DataFrame({"amount": amounts, "label": ["ok"] * 12 + [""] * 22 + ["fraud"] * 6})
>>> labels = riskad.FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
>>> model = riskad.fit_table(table, labels, model="shallow").model
>>> new = dd.from_pandas(pandas.DataFrame({"amount": [15.0, 85.0]}), npartitions=2)
>>> score(new, model).compute()["is_anomaly"].tolist()
[False, True]
"""

from __future__ import annotations

from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.batch_scoring import BatchScorer
from riskad.core.checks import InputError
from riskad.decisions.thresholds import Threshold
from riskad.rows.cluster import keep_memory
from riskad.tables.cells import as_polars

__all__ = ["score"]

_PANDAS_TYPES = {pl.Float64: "float64", pl.Boolean: "bool", pl.String: "str"}


def score(
    frame: Any,
    model: Pipeline,
    *,
    threshold: Threshold | str | None = None,
    reasons: int = 0,
    quick: bool = False,
) -> Any:
    """Add `anomaly_score`, `is_anomaly` and more to the rows of a Dask dataframe.

    As `riskad.spark.score`: the result is lazy and has the partitions, the index and all columns of
    `frame`, and each row has the score that `riskad.score_table` gives it.

    Parameters
    ----------
    frame
        A Dask dataframe with the columns of the fit; others are passed on.
    model
        A model from `riskad.fit_table` or `riskad.load`.
    threshold, reasons, quick
        As in `riskad.spark.score`.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with more columns.
    """
    if not hasattr(frame, "map_partitions") or not hasattr(frame, "columns"):
        raise InputError(
            f"riskad.dask.score takes a Dask dataframe, got {type(frame).__name__}. Scores of a "
            "Dask array of numbers come from model.score_samples; tables in memory are for "
            "riskad.score_table."
        )
    scorer = BatchScorer.of(
        model, list(frame.columns), threshold=threshold, reasons=reasons, quick=quick
    )
    from dask.delayed import delayed

    meta = _beside(frame._meta, pl.DataFrame(schema=scorer.schema))
    # As a task of the graph the model travels once to each worker, and again to a new one.
    return frame.map_partitions(_score_partition, delayed(scorer), meta=meta)


def _score_partition(rows: Any, scorer: BatchScorer) -> Any:
    """The rows of a partition, a pandas frame, with the columns of scoring."""
    keep_memory()
    read = rows[scorer.read_columns]
    added = scorer.columns(as_polars(read)) if len(rows) else pl.DataFrame(schema=scorer.schema)
    return _beside(rows, added)


def _beside(rows: Any, added: pl.DataFrame) -> Any:
    """The rows with more columns, whose types do not depend on what they hold."""
    from pandas import array

    columns = {
        column.name: array(column.to_list(), dtype=_PANDAS_TYPES[column.dtype.base_type()])
        for column in added
    }
    return rows.assign(**columns)
