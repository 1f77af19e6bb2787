"""Scores on other machines: what is sent to a worker, and what it does with a batch of rows.

A worker gets the model as the bytes of its file, which contain no pickle, and each of its processes
loads them once. A row has the same score in any batch: nothing is computed from several rows.

`score_files` scores Parquet files, each some row groups at a time, into a folder of files. What a
task writes appears under its own name when it is complete, so that a task that is run again, after
its worker was killed, replaces what is there by the same. The folder is complete when it holds
`_SUCCESS`; before, riskad refuses to read it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.change_model import quick_model
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
from riskad.core.checks import InputError
from riskad.decisions.thresholds import Threshold
from riskad.files.atomic import atomic_path
from riskad.files.remote import address, is_file, is_folder, is_remote, list_files, remove_file
from riskad.rows.engine import Engine, one_blas_thread
from riskad.rows.parquet_files import COMPLETE, UNFINISHED, ParquetSchema, check_alike, read_schemas
from riskad.tables.paths import hive_columns
from riskad.tables.reading import parquet_batches
from riskad.tables.writing import open_writer

# Bounds the memory of a worker, whose batches may be whole partitions.
_ROWS_AT_ONCE = 1 << 16
# A worker may score for two jobs at a time; more models are loaded again.
_LOADED_MODELS = 2
_ROWS_OF_A_TASK = 250_000  # that one file of results holds, or as many as a row group has
_PART = re.compile(r"part-\d{6}\.parquet")


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
        *,
        threshold: Threshold | str | None = None,
        reasons: int = 0,
        quick: bool = False,
    ) -> BatchScorer:
        """Check, before any work, that a model can score a table with these columns.

        `quick` lets the trees score that have learned the model's scores.
        """
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
    quick: bool = False,
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
    if not any(any(schema.group_rows) for schema in schemas):
        raise NoRows
    columns = list(schemas[0].types | hive_columns(paths[0]))
    check_alike(schemas, {name for schema in schemas for name in schema.types})
    scorer = BatchScorer.of(model, columns, threshold=threshold, reasons=reasons, quick=quick)
    _begin(output, force, paths)
    tasks = list(_tasks(schemas))
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


def _tasks(schemas: Sequence[ParquetSchema]) -> Iterator[tuple[Path, list[int]]]:
    """Part files into row groups that follow each other."""
    for schema in schemas:
        groups, n_rows = list[int](), 0
        for group, size in enumerate(schema.group_rows):
            groups, n_rows = [*groups, group], n_rows + size
            if n_rows >= _ROWS_OF_A_TASK or group == len(schema.group_rows) - 1:
                if n_rows:
                    yield schema.path, groups
                groups, n_rows = [], 0


def _score_task(
    scorer: BatchScorer,
    output: Path,
    id: str | None,
    top: int,
    task: tuple[Path, list[int]],
    number: int,
) -> Totals:
    """Score row groups on a worker, and write them to a file of their own."""
    totals = Totals(id, top)
    with open_writer(output / f"part-{number:06}.parquet", force=True) as write:
        for frame in parquet_batches(*task):
            columns = scorer.columns(frame)
            write(frame.hstack(columns))
            totals.add(frame, columns)
    totals.scores = np.empty(0)  # of no use to the driver
    return totals
