"""Scores on other machines: what is sent to a worker, and what it does with a batch of rows.

A worker gets the model as the bytes of its file, which contain no pickle, and each of its processes
loads them once. A row has the same score in any batch: nothing is computed from several rows.

`score_frame` scores dataframes of Spark and Dask, which stay there; `score_files` scores Parquet
files, a row group at a time, into a folder of files. What a task writes appears under its own name
when it is complete, so that a task that is run again, after its worker was killed, replaces what is
there by the same. The folder is complete when it holds `_SUCCESS`; before, riskad refuses to read
it.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.change_model import has_quick_scores, quick_model
from riskad.app.model_files import load, save
from riskad.app.score import (
    RESULT_TYPES,
    Decision,
    NoRows,
    Progress,
    ScoreReport,
    Totals,
    added_columns,
    catch_notes,
    check_not_scored,
    decide,
    rank,
    reason_columns,
    score_columns,
    segments_of,
    steps_of,
    suspects_of,
)
from riskad.core.checks import DataWarning, InputError
from riskad.decisions.thresholds import Threshold
from riskad.files.atomic import atomic_path
from riskad.files.remote import address, is_file, is_folder, is_remote, list_files, remove_file
from riskad.rows.cluster import is_spark, keep_memory
from riskad.rows.engine import Engine, one_blas_thread
from riskad.rows.parquet_files import COMPLETE, UNFINISHED, check_alike, read_schemas
from riskad.tables.cells import as_polars
from riskad.tables.paths import hive_columns
from riskad.tables.reading import parquet_batches
from riskad.tables.writing import open_writer

MANY_ROWS = 1_000_000
"""Tables with more rows are scored by the trees that have learned the scores, if there are any."""
QUICK_NOTE = (
    f"The table has more than {MANY_ROWS:,} rows: they are scored by the trees that have learned "
    "the model's scores, without novelty. quick=False lets the model itself score them."
)
# Bounds the memory of a worker, whose batches may be whole partitions.
_ROWS_AT_ONCE = 1 << 16
# A worker may score for two jobs at a time; more models are loaded again.
_LOADED_MODELS = 2
# Of the columns that scoring adds, in Spark and in pandas.
_ENGINE_TYPES = {
    pl.Float64: ("double", "float64"),
    pl.Boolean: ("boolean", "bool"),
    pl.String: ("string", "str"),
}
_OLDEST = pl.CompatLevel.oldest()  # texts as Spark has them
_PART = re.compile(r"part-\d{6}\.parquet")


def score_frame(
    frame: Any,
    model: Pipeline,
    *,
    threshold: Threshold | str | None = None,
    reasons: int = 0,
    quick: bool | None = None,
) -> Any:
    """Add `anomaly_score`, `is_anomaly` and more to the rows of a dataframe of Spark or Dask.

    It is `riskad.spark.score` and `riskad.dask.score`. The result is lazy, as everything in these
    engines is. All columns, the index, partitions and the order of rows stay, and each row has the
    score that `riskad.score_table` gives it, in whichever partition it is. Cells that cannot be
    read count as blank, without a message: run `riskad.score_table` on a sample to see what has
    changed since the fit.

    Parameters
    ----------
    frame
        A `pyspark.sql.DataFrame`, or a Dask dataframe, with the columns of the fit; others are
        passed on. riskad must be installed on the executors or workers, too.
    model
        A model from `riskad.fit_table` or `riskad.load`.
    threshold
        Rule to decide by, instead of the model's own; none that depends on all rows, like "top:50".
    reasons
        How many columns `reason_1`, `reason_2`, ... explain in words why rows are flagged.
    quick
        Whether the trees of `riskad compress` or `fit --quick` score rows, without novelty. By
        default they do if the model has them and the table more than 1,000,000 rows; a
        `riskad.DataWarning` says so. Only then rows are counted here.

    Returns
    -------
    pyspark.sql.DataFrame or dask.dataframe.DataFrame
        The same rows with `anomaly_score`, `is_anomaly`, `anomaly_probability` if the model is
        calibrated, `novelty` if it has it, and reasons.
    """
    on_spark = is_spark(frame)
    if not on_spark and not (hasattr(frame, "map_partitions") and hasattr(frame, "columns")):
        raise InputError(
            f"This takes a dataframe of Spark or Dask, got {type(frame).__name__}. Tables in "
            "memory are for riskad.score_table; scores of a Dask array of numbers come from "
            "model.score_samples."
        )

    def count_rows() -> int:
        return frame.limit(MANY_ROWS + 1).count() if on_spark else len(frame)

    scorer = BatchScorer.of(model, list(frame.columns), threshold, reasons, quick, count_rows)
    if on_spark:
        schema = type(frame.schema)(list(frame.schema.fields))  # a copy: `add` changes it
        for name, kind in scorer.schema.items():
            schema = schema.add(name, _ENGINE_TYPES[kind][0])
        # A closure of more than 1 MB is broadcast: the model travels once to each executor.
        return frame.mapInArrow(partial(_score_batches, scorer), schema)
    from dask.delayed import delayed

    meta = _beside(frame._meta, pl.DataFrame(schema=scorer.schema))
    # As a task of the graph the model travels once to each worker, and again to a new one.
    return frame.map_partitions(_score_partition, delayed(scorer), meta=meta)


def _score_batches(scorer: BatchScorer, batches: Iterator[Any]) -> Iterator[Any]:
    """Add the columns of scoring to record batches; all others stay as they came."""
    from pyarrow import RecordBatch

    for batch in batches:
        read = batch.select(scorer.read_columns)
        added = scorer.columns(pl.DataFrame(pl.from_arrow(read))).to_arrow(compat_level=_OLDEST)
        columns = [column.combine_chunks() for column in added.columns]
        names = [*batch.schema.names, *added.column_names]
        yield RecordBatch.from_arrays([*batch.columns, *columns], names)


def _score_partition(rows: Any, scorer: BatchScorer) -> Any:
    """The rows of a partition, a pandas frame, with the columns of scoring."""
    keep_memory()
    read = rows[scorer.read_columns]
    added = scorer.columns(as_polars(read)) if len(rows) else pl.DataFrame(schema=scorer.schema)
    return _beside(rows, added)


def _beside(rows: Any, added: pl.DataFrame) -> Any:
    """The rows with more columns, whose types do not depend on what they hold."""
    from pandas import array

    types = {column.name: _ENGINE_TYPES[column.dtype.base_type()][1] for column in added}
    return rows.assign(**{c.name: array(c.to_list(), dtype=types[c.name]) for c in added})


# --- batches --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchScorer:
    """Computes the columns that `riskad.score_table` adds, for batches of rows on any machine.

    `file` is the content of the model file.
    """

    file: bytes
    decision: Decision
    added: tuple[str, ...]
    reasons: int = 0

    @classmethod
    def of(
        cls,
        model: Pipeline,
        columns: Sequence[str],
        threshold: Threshold | str | None,
        reasons: int,
        quick: bool | None,
        count_rows: Callable[[], int],
    ) -> BatchScorer:
        """Check, before any work, that a model can score a table with these columns.

        If `quick` is None, trees score a table of many rows, if the model has them; a warning says
        so. Rows are counted only if that matters.
        """
        if quick is None:
            quick = has_quick_scores(model) and count_rows() > MANY_ROWS
            if quick:
                warnings.warn(DataWarning(QUICK_NOTE), stacklevel=3)
        model = quick_model(model) if quick else model
        preparer, detector = steps_of(model)
        if hasattr(preparer, "windower_"):
            raise InputError(
                "This model is one of windows of time series, whose rows belong together: score "
                "them in one process, riskad.score_table."
            )
        added = added_columns(detector, None, reasons)
        check_not_scored(columns, added)
        # One blank row: missing columns are reported here and not by a worker.
        preparer.parse(pl.DataFrame({name: [None] for name in columns}), quiet=True)
        decision = decide(detector, threshold, None, _refuse_all_scores)
        with tempfile.TemporaryDirectory(prefix="riskad-") as folder:
            path = Path(folder, "model.riskad")
            save(model, path)
            return cls(path.read_bytes(), decision, tuple(added), reasons)

    @property
    def schema(self) -> dict[str, Any]:
        """Names and types of the columns that scoring adds; reasons are texts."""
        return {name: RESULT_TYPES.get(name, pl.String) for name in self.added}

    @property
    def read_columns(self) -> list[str]:
        """The columns that the model reads."""
        preparer, detector = steps_of(_loaded(self.file))
        segments = segments_of(detector)
        by = [] if segments is None else [segments.column]
        return list(dict.fromkeys([*preparer.read_columns, *by]))

    def columns(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the columns that scoring adds to the rows of a frame."""
        model = _loaded(self.file)
        preparer, detector = steps_of(model)
        parts = [pl.DataFrame(schema=self.schema)]
        with one_blas_thread(), catch_notes():
            for rows in frame.iter_slices(_ROWS_AT_ONCE) if frame.height else ():
                prepared = preparer.transform(rows, quiet=True)
                scores, novelty = detector._anomaly_score_and_novelty(prepared)
                part = pl.DataFrame(score_columns(detector, scores, self.decision, novelty, rows))
                if self.reasons:
                    flags = part["is_anomaly"]
                    part = part.hstack(reason_columns(model, rows, flags, self.reasons))
                parts.append(part)
        return pl.concat(parts)


@lru_cache(_LOADED_MODELS)
def _loaded(file: bytes) -> Pipeline:
    """The model whose file has this content."""
    with tempfile.TemporaryDirectory(prefix="riskad-") as folder:
        path = Path(folder, "model.riskad")
        path.write_bytes(file)
        return load(path)


def _refuse_all_scores(shifted: bool) -> NDArray[np.float64]:
    raise InputError(
        "This threshold depends on the scores of all rows, which are on several machines. Decide "
        "by another rule or by the model's own, and sort the result by anomaly_score for the top k."
    )


# --- files ----------------------------------------------------------------------------------------


def score_files(
    model: Pipeline,
    paths: Sequence[Path],
    output: Path,
    engine: Engine,
    *,
    id: str | None = None,
    threshold: Threshold | str | None = None,
    reasons: int = 0,
    quick: bool | None = None,
    top: int = 10,
    force: bool = False,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> ScoreReport:
    """Score Parquet files on the workers of an engine, which write Parquet files to a folder.

    All columns and rows stay; a file of results has rows of one file, in their order, and their
    names follow the order of the files. Paths must be those that the workers, too, can reach. With
    `force` the results of an earlier run are replaced; the others are options of
    `riskad.spark.score` and `riskad.score_table`.
    """
    if not is_remote(output):
        output = output.absolute()
    schemas = read_schemas([p if is_remote(p) else p.absolute() for p in paths])
    n_rows = sum(sum(schema.group_rows) for schema in schemas)
    if not n_rows:
        raise NoRows
    columns = list(schemas[0].types | hive_columns(paths[0]))
    check_alike(schemas, {name for schema in schemas for name in schema.types})
    with catch_notes() as notes:
        scorer = BatchScorer.of(model, columns, threshold, reasons, quick, lambda: n_rows)
    _begin(output, force, paths)
    tasks = [
        (schema.path, group)
        for schema in schemas
        for group, size in enumerate(schema.group_rows)
        if size
    ]
    id, worst, rows, flagged = id if id in columns else None, [], 0, 0
    for totals in engine.map(partial(_score_task, scorer, output, id, top), tasks):
        worst.append(totals.worst.with_columns(pl.nth(0).cast(pl.Int64) + rows))
        rows, flagged = rows + totals.rows, flagged + totals.flagged
        progress(f"Scoring: {rows:,} rows done")
    missing = len(tasks) - sum(bool(_PART.fullmatch(each.name)) for each in _files_in(output))
    if missing:
        raise InputError(
            f"{missing} files that workers wrote are not in {address(output)!r} as it is seen from "
            "here: name a folder of an object store, or of a disk that all machines share."
        )
    _mark(output / COMPLETE)
    remove_file(output / UNFINISHED)
    return ScoreReport(
        source=source,
        rows=rows,
        id=id,
        threshold=scorer.decision.threshold,
        flagged=flagged,
        top=suspects_of(rank(pl.concat(worst)).head(top), id),
        warnings=[str(note) for note in notes],
        rule=scorer.decision.rule,
        added=list(scorer.added),
    )


def _begin(output: Path, force: bool, tables: Sequence[Path]) -> None:
    """Make the folder of the results, without earlier ones, and mark it as not complete."""
    if is_file(output) or output.suffix:
        raise InputError(f"{address(output)!r}: workers write several files; name a folder.")
    files = _files_in(output) if is_folder(output) else []
    # Names may differ for one file, and what riskad replaces it removes before it reads.
    if {os.path.realpath(path) for path in files} & {os.path.realpath(path) for path in tables}:
        raise InputError(f"{address(output)!r} is both read and written here; name another folder.")
    ours = [each for each in files if _PART.fullmatch(each.name) or each.name == COMPLETE]
    others = [each for each in files if each not in ours and each.name != UNFINISHED]
    if others or (ours and not force):
        raise InputError(
            f"{address(output)!r} holds {(others or ours)[0].name!r} already and was left as it "
            "is; name another folder"
            + ("." if others else ", or replace what riskad wrote there with force=True.")
        )
    if not is_remote(output):
        output.mkdir(exist_ok=True)
    _mark(output / UNFINISHED)
    for each in sorted(ours, key=lambda each: each.name != COMPLETE):  # which goes first
        remove_file(each)


def _files_in(folder: Path) -> list[Path]:
    return list_files(folder) if is_remote(folder) else sorted(folder.iterdir())


def _mark(path: Path) -> None:
    with atomic_path(path, force=True) as part:
        part.touch()


def _score_task(
    scorer: BatchScorer,
    output: Path,
    id: str | None,
    top: int,
    task: tuple[Path, int],
    number: int,
) -> Totals:
    """Score a row group on a worker, and write it to a file of its own."""
    path, group = task
    totals = Totals(id, top)
    with open_writer(output / f"part-{number:06}.parquet", force=True) as write:
        for frame in parquet_batches(path, [group]):
            columns = scorer.columns(frame)
            write(frame.hstack(columns))
            totals.add(frame, columns)
    totals.scores = np.empty(0)  # of no use to the driver
    return totals
