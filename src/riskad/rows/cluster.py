"""Rows on a cluster: partitions of a Spark dataframe, or of a Dask array or dataframe.

They stay where they are. In each step of a solver every worker sums over its own partitions and
sends back a few numbers, which are added in the order of the partitions: the result does not depend
on which worker did what, and equals that of one process. If a worker dies, the engine makes its
partitions again on the others, and the fit continues.

An engine also works on items that are no partitions: row groups of files, which workers read.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from riskad.core.checks import InputError, enumerate_names, required
from riskad.core.labels import UNLABELLED, has_code_type, read_codes
from riskad.rows.engine import ClusterError, Engine
from riskad.rows.parquet import BatchReader, BatchRows
from riskad.rows.partitions import PartitionedRows
from riskad.rows.sources import Block, RowBlocks

__all__ = ["DaskEngine", "DaskRows", "SparkEngine", "SparkRows", "is_spark", "open_engine"]

T = TypeVar("T")
_SOME_ROWS = 1_000  # in which the formats of cells show
_MOST_REASON = 300  # characters


def open_engine(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """The engine "spark" or "dask", whose master or scheduler has this address.

    Without an address it is Spark as it is configured, or threads of Dask in this process: a local
    cluster would open ports, and its scheduler runs whatever any user of the machine sends to it.
    """
    return (_spark if name == "spark" else _dask)(address)


# --- Spark ----------------------------------------------------------------------------------------


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
        parts = [_SparkPart(number, n, reader) for number, n in sizes.items()]
        self._read(reader, parts, engine)
        self.feature_names = self.columns if prepare is None else None

    def _some(self, parts: Sequence[Any]) -> Block:
        (batch,) = self.some.to_batches()
        reader: BatchReader = parts[0].reader
        place = np.empty((batch.num_rows, len(reader.columns)), order="F")
        return reader.block(batch, "the dataframe", place)


def count_rows(frame: Any, label: str | None) -> tuple[dict[int, int], dict[Any, int]]:
    """Rows of each partition that has some, and how often each value of a column occurs."""
    from pyspark.sql.functions import lit, spark_partition_id

    value = lit(0) if label is None else frame[label]
    with _spark_errors():
        groups = frame.groupBy(spark_partition_id().alias("number"), value.alias("value"))
        counts = groups.count().toArrow()
    sizes, values = Counter[int](), Counter[Any]()
    columns = (column.to_pylist() for column in counts.columns)
    for number, value, n_rows in zip(*columns, strict=True):
        sizes[number] += n_rows
        values[value] += n_rows
    # In an order that does not depend on which executor was the first.
    by_count = sorted(values.items(), key=lambda each: (-each[1], str(each[0])))
    return dict(sorted(sizes.items())), dict(by_count)


class SparkEngine:
    """The executors of Spark, which work on partitions of a dataframe, or on any other items.

    Without a dataframe each item is a task of its own.
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
        work = partial(_work_on_partition, function, tasks)
        with _spark_errors():
            results = dict(frame.mapInArrow(work, "place long, result binary").collect())
        for i, part in enumerate(items):
            if i not in results:
                raise part.changed(0)
            result = pickle.loads(results[i])  # of our own executors, which run our code anyway
            if isinstance(result, InputError):
                raise result
            yield result


def _work_on_partition(
    function: Callable[[Any, int], Any],
    tasks: Mapping[int, tuple[int, Any]],
    batches: Iterator[Any],
) -> Iterator[Any]:
    from pyarrow import RecordBatch
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # on an executor there is one
    place, item = tasks.get(context.partitionId(), (None, None))
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
    yield RecordBatch.from_pydict({"place": [place], "result": [pickle.dumps(result)]})


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
        if n_read != self.n_rows:
            raise self.changed(n_read)

    def changed(self, n_read: int) -> InputError:
        """What to say if the rows are not those that were counted."""
        return InputError(
            f"Partition {self.number} had {self.n_rows:,} rows when they were counted and "
            f"{n_read:,} when they were read: the dataframe is not the same each time. Cache it, "
            "or write it to Parquet and read that."
        )


@contextmanager
def _spark(master: str | None) -> Iterator[SparkEngine]:
    with required("Spark needs pyspark, and Java: pip install 'riskad[spark]'."):
        from pyspark.sql import SparkSession
    # Errors are raised here, and need not be logged.
    settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False}
    settings |= {"spark.log.level": "FATAL"} | ({"spark.master": master} if master else {})
    builder = SparkSession.builder.appName("riskad").config(map=settings)
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


# --- Dask -----------------------------------------------------------------------------------------


class DaskRows(PartitionedRows):
    """The rows of a Dask array or dataframe of numbers, whose partitions are the parts.

    With a `distributed.Client` the partitions are kept on its workers; without one, threads of this
    process make them again in each pass. Labels and weights are arrays or Dask collections; without
    labels all rows are unlabelled.
    """

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None):
        dask, distributed = _dask_modules()
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        self.array = _as_array(X)
        chunks = self.array.chunks[0]
        pieces = (
            self.array.to_delayed()[:, 0],
            _in_chunks(y, chunks, "y"),
            _in_chunks(sample_weight, chunks, "sample_weight"),
        )
        parts = [dask.delayed(_part, pure=True)(*each) for each in zip(*pieces, strict=True)]
        # The client that is in use when the rows are made, and not another one later.
        client = None
        with suppress(ValueError):  # there is none
            client = distributed.get_client()
        if client is not None:
            # Kept on the workers: each step of a solver would read the files again.
            parts = client.compute(parts)
        n_rows = int(sum(chunks))
        super().__init__(parts, self.array.shape[1], engine=DaskEngine(client), n_rows=n_rows)
        self.feature_names = names

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        # A lazy array, with the partitions of the rows.
        return self.array.map_blocks(_apply, g, drop_axis=1, dtype=float, meta=np.empty(0))


class DaskEngine:
    """The workers of a Dask cluster, or without a client the threads of Dask itself."""

    def __init__(self, client: Any = None):
        self.client = client

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        dask, _ = _dask_modules()
        if self.client is None:
            call = dask.delayed(function)
            calls = (call(item, i) for i, item in enumerate(items))
            yield from dask.compute(*calls, scheduler="threads")
            return
        with _dask_errors(self.client.scheduler.address):
            # As a task of its own, the function travels once to each worker, and to a new one.
            whole = self.client.submit(_call, partial, function, pure=False)
            functions, numbers = [whole] * len(items), range(len(items))
            yield from self.client.gather(
                self.client.map(_call, functions, items, numbers, pure=False)
            )


@contextmanager
def _dask(address: str | None) -> Iterator[DaskEngine]:
    _, distributed = _dask_modules()
    if address is None:
        yield DaskEngine()
        return
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:  # a time-out is an OSError
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}). Start one "
            "with `dask scheduler`, or leave the address out for the threads of this process."
        ) from error
    with client:
        yield DaskEngine(client)


@contextmanager
def _dask_errors(address: str) -> Iterator[None]:
    """Turn failures of a cluster into one-sentence errors."""
    _, distributed = _dask_modules()
    try:
        yield
    except distributed.scheduler.KilledWorker as error:
        raise ClusterError(
            f"workers of the Dask cluster died again and again over the same part: {error}. They "
            "may be short of memory: make partitions smaller. Nothing was completed."
        ) from error
    except (CancelledError, distributed.comm.CommClosedError, TimeoutError) as error:
        raise ClusterError(
            f"the Dask scheduler at {address} stopped answering in the middle of "
            "the work. Start it again, and run the command anew; nothing was completed."
        ) from error


def _dask_modules() -> tuple[Any, Any]:
    with required("Rows on Dask need dask and distributed: pip install 'riskad[scale]'."):
        import dask
        import distributed
    return dask, distributed


def _part(X: Any, y: Any, weight: Any) -> RowBlocks:
    """A partition as rows in the memory of a worker."""
    X = np.ascontiguousarray(X)
    # On the worker: labels of a Dask collection need not pass through this process.
    codes = np.full(len(X), UNLABELLED, dtype=np.int16) if y is None else read_codes(y)
    if y is not None and not has_code_type(y):
        codes = codes.astype(int)  # 0 and 1 of another type are refused when all labels are known
    weight = None if weight is None else np.asarray(weight, dtype=np.float64)
    return RowBlocks(X, codes, weight)


def _call(function: Callable[..., T], *arguments: Any) -> T:
    keep_memory()
    return function(*arguments)


@functools.cache
def keep_memory() -> None:
    """Let this worker keep some of the memory that it frees, for the next block of rows.

    Dask has each array of more than 64 KiB returned to the system at once, and the system then
    takes several times as long to give pages to new ones as NumPy to fill them. Another setting
    than that of Dask was chosen by somebody, and stays.
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") == "65536":
        with suppress(AttributeError, OSError, TypeError):  # without the C library of GNU
            library = ctypes.CDLL(None)
            library.mallopt(-1, 1 << 26)  # M_TRIM_THRESHOLD: what may be free at the heap's end
            library.mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD: larger arrays are outside of it


def _apply(X: np.ndarray, g: Callable[[Any], np.ndarray]) -> np.ndarray:
    return g(X) if len(X) else np.empty(0)


def _as_array(X: Any) -> Any:
    """Floats in partitions of whole rows whose lengths are known."""
    if hasattr(X, "to_dask_array"):
        texts = [str(name) for name, kind in X.dtypes.items() if kind.kind not in "biuf"]
        if texts:
            raise InputError(
                f"columns {enumerate_names(texts)} hold no numbers. Leave them out, or turn them "
                "into numbers first."
            )
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise InputError(f"X must have rows and columns, got {X.ndim} dimension(s).")
    # A block of rows must have all columns: a score needs each of them.
    X = X.rechunk({1: -1})
    # A dataframe knows its lengths only when it has been read.
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _in_chunks(values: Any, chunks: tuple[int, ...], name: str) -> Sequence[Any]:
    """Labels or weights in the partitions of the rows."""
    if values is None:
        return [None] * len(chunks)
    import dask.array as da

    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if not isinstance(values, da.Array):
        values = np.asarray(values)
        if len(values) == sum(chunks):
            # Chunk by chunk: a part that depends on all labels would be made where these are.
            values = da.from_array(values, chunks=(chunks,))  # type: ignore[no-untyped-call]
    elif np.isnan(values.shape[0]):
        values = values.compute_chunk_sizes()  # type: ignore[no-untyped-call]
    if values.shape != (sum(chunks),):
        raise InputError(f"{name} must have one entry for each of the {sum(chunks):,} rows of X.")
    return values.rechunk((chunks,)).to_delayed().ravel()
