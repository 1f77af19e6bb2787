"""Scores of Spark dataframes (extra `spark`), computed where the rows are.

riskad must be installed on the executors, too. The model travels as its file, without pickle, and
each Python process of an executor loads it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.batch_scoring import BatchScorer
from riskad.core.checks import InputError
from riskad.decisions.thresholds import Threshold
from riskad.rows.spark import is_spark

__all__ = ["score"]

_SPARK_TYPES = {pl.Float64: "double", pl.Boolean: "boolean", pl.String: "string"}
_OLDEST = pl.CompatLevel.oldest()  # texts as Spark has them


def score(
    frame: Any,
    model: Pipeline,
    *,
    threshold: Threshold | str | None = None,
    reasons: int = 0,
    quick: bool = False,
) -> Any:
    """Add `anomaly_score`, `is_anomaly` and more to the rows of a Spark dataframe.

    The result is lazy, as everything in Spark is. All columns and the order of rows stay, and each
    row has the score that `riskad.score_table` gives it, in whichever partition it is. Cells that
    cannot be read count as blank, without a message: run `riskad.score_table` on a sample to see
    what has changed since the fit.

    Parameters
    ----------
    frame
        A `pyspark.sql.DataFrame` with the columns of the fit; others are passed on.
    model
        A model from `riskad.fit_table` or `riskad.load`.
    threshold
        Rule to decide by, instead of the model's own; none that depends on all rows, like "top:50".
    reasons
        How many columns `reason_1`, `reason_2`, ... explain in words why rows are flagged.
    quick
        Whether the trees of `riskad compress` or `fit --quick` score rows, without novelty.

    Returns
    -------
    pyspark.sql.DataFrame
        The same rows with `anomaly_score`, `is_anomaly`, `anomaly_probability` if the model is
        calibrated, `novelty` if it has it, and reasons.
    """
    if not is_spark(frame):
        raise InputError(
            f"riskad.spark.score takes a dataframe of Spark, got {type(frame).__name__}. Tables in "
            "memory are for riskad.score_table, those of Dask for riskad.dask.score."
        )
    scorer = BatchScorer.of(model, frame.columns, threshold=threshold, reasons=reasons, quick=quick)
    schema = type(frame.schema)(list(frame.schema.fields))  # a copy: `add` changes it
    for name, kind in scorer.schema.items():
        schema = schema.add(name, _SPARK_TYPES[kind])
    # A closure of more than 1 MB is broadcast by Spark: the model travels once to each executor.
    return frame.mapInArrow(partial(_score_batches, scorer), schema)


def _score_batches(scorer: BatchScorer, batches: Iterator[Any]) -> Iterator[Any]:
    """Add the columns of scoring to record batches; all others stay as they came."""
    from pyarrow import RecordBatch

    for batch in batches:
        read = batch.select(scorer.read_columns)
        added = scorer.columns(pl.DataFrame(pl.from_arrow(read))).to_arrow(compat_level=_OLDEST)
        columns = [column.combine_chunks() for column in added.columns]
        names = [*batch.schema.names, *added.column_names]
        yield RecordBatch.from_arrays([*batch.columns, *columns], names)
