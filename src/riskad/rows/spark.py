"""Rows of a Spark dataframe: they stay on the executors, and each step of a solver is one job.

In a job every partition is summed where it is, and a few numbers come back to the driver, which
adds them in the order of the partitions: the result does not depend on which executor did what, and
equals that of one process. If an executor dies, Spark runs its tasks again.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from riskad.core.checks import InputError, required
from riskad.rows.engine import ClusterError
from riskad.rows.parquet import BatchReader, BatchRows
from riskad.rows.sources import Block

__all__ = ["SparkEngine", "SparkRows", "is_spark", "spark_engine"]

T = TypeVar("T")
_SOME_ROWS = 1_000  # in which the formats of cells show
_RESULT = "number int, result binary"
_MOST_REASON = 300  # characters


def is_spark(table: object) -> bool:
    """Whether a table is a dataframe of Spark."""
    return hasattr(table, "mapInArrow")


class SparkRows(BatchRows):
    """The rows of a Spark dataframe, as a source for `fit`.

    Every pass over the rows is a job, in which Spark makes the dataframe again unless it is cached:
    cache what takes long to make, or is not the same each time.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Rows; riskad must be installed on the executors.
    label, columns, weight, prepare :
        As for `riskad.ParquetRows`.
    counted : tuple, optional
        What `count_rows` has returned, to spare a pass.
    **meanings :
        Meaning of the labels: normal, anomaly, unlabelled and others of `riskad.parse_labels`.
    """

    def __init__(
        self,
        frame: Any,
        *,
        label: str | None = None,
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        prepare: Callable[[Any], Any] | None = None,
        counted: tuple[dict[int, int], dict[Any, int]] | None = None,
        **meanings: Any,
    ):
        engine = SparkEngine(frame.sparkSession, frame)
        with _spark_errors():
            self.some = frame.limit(_SOME_ROWS).toArrow().combine_chunks()
        types = dict(zip(self.some.schema.names, self.some.schema.types, strict=True))
        reader = BatchReader.of(types, "the dataframe", columns, label, weight, prepare)
        if not self.some.num_rows:
            raise InputError("The dataframe has no rows.")
        sizes, values = counted or count_rows(frame, label)
        if label is not None:
            reader = reader.with_labels(values, **meanings)
        parts = [_SparkPart(number, n, reader) for number, n in sizes.items() if n]
        self._read(reader, parts, engine)
        self.feature_names = self.columns if prepare is None else None

    def _some(self, parts: Sequence[Any]) -> Block:
        (batch,) = self.some.to_batches()
        reader: BatchReader = parts[0].reader
        place = np.empty((batch.num_rows, len(reader.columns)), order="F")
        return reader.block(batch, "the dataframe", place)


class SparkEngine:
    """The executors of Spark, which work on partitions of a dataframe, or on any other items.

    Without a dataframe each item is a task of its own: row groups of files, which executors read.
    """

    def __init__(self, session: Any, frame: Any = None):
        self.session, self.frame = session, frame

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        if self.frame is None:
            frame = self.session.range(0, len(items), 1, len(items))
            tasks = dict(enumerate(enumerate(items)))
        else:
            frame = self.frame.select(items[0].reader.read_columns)
            tasks = {part.number: (i, part) for i, part in enumerate(items)}
        work = partial(_work_on_item, function, tasks)
        with _spark_errors():
            results = dict(frame.mapInArrow(work, _RESULT).collect())
        for i, part in enumerate(items):
            if i not in results:
                raise _changed(part.number, part.n_rows, 0)
            result = pickle.loads(results[i])  # of our own executors, which run our code anyway
            if isinstance(result, InputError):
                raise result
            yield result


@contextmanager
def spark_engine(master: str | None = None) -> Iterator[SparkEngine]:
    """The engine of Spark, whose master has this address; by default as Spark is configured."""
    with required("Spark needs pyspark, and Java: pip install 'riskad[spark]'."):
        from pyspark.sql import SparkSession
    builder = SparkSession.builder.appName("riskad").config("spark.ui.enabled", False)
    builder = builder.config("spark.ui.showConsoleProgress", False)
    builder = builder.config("spark.log.level", "FATAL")  # other errors are raised here
    if master is not None:
        builder = builder.master(master)
    if master is None or master.startswith("local"):
        # Processes beside this one have its packages, and only they talk to it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    there = SparkSession.getActiveSession()
    with _spark_errors(f"start at {master!r}" if master else "start"):
        session = builder.getOrCreate()
    try:
        yield SparkEngine(session)
    finally:
        if there is None:
            with suppress(Exception):  # it may have died
                session.stop()


@contextmanager
def _spark_errors(do: str = "finish the job") -> Iterator[None]:
    """Turn failures of Spark, which are pages of two languages, into one sentence."""
    try:
        yield
    except Exception as error:  # which are of many kinds: of Spark, of Java, of its connection
        lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
        # What the code of a worker raised comes last, what Spark itself raised second.
        ours = "Python worker" in str(lines[:1])
        reason = lines[-1] if ours else "".join(lines[1:2] or lines).removeprefix(": ")
        raise ClusterError(
            f"Spark could not {do}: {reason[:_MOST_REASON].rstrip('.')}. It needs Java, a master "
            "that answers, and riskad on all executors. Nothing was completed."
        ) from error


@dataclass(frozen=True)
class _SparkPart:
    """A partition of a dataframe; on its executor it has its rows, as record batches."""

    number: int
    n_rows: int
    reader: BatchReader
    batches: Any = None

    def blocks(self) -> Iterator[Block]:
        """The rows, batch by batch, as Spark hands them over: 10,000 at a time by default."""
        n_read, place = 0, np.empty((0, len(self.reader.columns)))
        for batch in self.batches:
            if batch.num_rows > len(place):
                place = np.empty((batch.num_rows, place.shape[1]), order="F")
            n_read += batch.num_rows
            if batch.num_rows:
                yield self.reader.block(batch, f"Partition {self.number}", place)
            if self.n_rows < n_read:
                break
        else:
            if n_read == self.n_rows:
                return
        raise _changed(self.number, self.n_rows, n_read)


def _work_on_item(
    function: Callable[[Any, int], Any],
    tasks: Mapping[int, tuple[int, Any]],
    batches: Iterator[Any],
) -> Iterator[Any]:
    place, item = tasks.get(_partition(), (None, None))
    if isinstance(item, _SparkPart):
        item = replace(item, batches=batches)
    else:
        # A process that leaves its input unread is ended by Spark, and its imports are lost.
        deque(batches, maxlen=0)
    if place is None:
        return
    result: Any
    try:
        result = function(item, place)
    except InputError as error:  # which Spark would wrap in a page of its own words
        result = error
    yield _row(place, result)


def count_rows(frame: Any, label: str | None) -> tuple[dict[int, int], dict[Any, int]]:
    """Rows of each partition, and how often each value of a column occurs: a pass over it."""
    one = frame.select(frame.columns[0] if label is None else label)
    with _spark_errors():
        rows = one.mapInArrow(partial(_count_batches, label is not None), _RESULT).collect()
    counts = dict(rows)
    sizes, values = dict[int, int](), Counter[Any]()
    for number in sorted(counts):
        sizes[number], some = pickle.loads(counts[number])
        values.update(some)
    return sizes, dict(values.most_common())


def _count_batches(labelled: bool, batches: Iterator[Any]) -> Iterator[Any]:
    n_rows, values = 0, Counter[Any]()
    for batch in batches:
        n_rows += batch.num_rows
        for each in batch.column(0).value_counts().to_pylist() if labelled else []:
            values[each["values"]] += each["counts"]
    yield _row(_partition(), (n_rows, values))


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # on an executor there is one
    return context.partitionId()


def _row(number: int, result: Any) -> Any:
    from pyarrow import RecordBatch, array, int32

    columns = [array([number], int32()), array([pickle.dumps(result)])]
    return RecordBatch.from_arrays(columns, ["number", "result"])


def _changed(number: int, n_rows: int, n_read: int) -> InputError:
    return InputError(
        f"Partition {number} had {n_rows:,} rows when they were counted and {n_read:,} when they "
        "were read: the dataframe is not the same each time. Cache it, or write it to Parquet and "
        "read that."
    )
