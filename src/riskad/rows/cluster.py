"""Rows on a Dask cluster: they stay on the workers, and each step of a solver is one round.

In a round every worker sums over its own parts of the rows and sends back a few numbers, which are
added in the order of the parts: the result does not depend on which worker did what, and equals
that of one process. If a worker dies, its parts are lost; Dask makes them again on the others, from
the files or the graph they came from, and the fit continues.

>>> import dask.array as da
>>> from riskad import ShallowRAD
>>> X = np.random.default_rng(0).normal(size=(1000, 2))
>>> X[:100] += 3
>>> y = np.zeros(1000, dtype=int)
>>> y[:20], y[-20:] = -1, 1
>>> lazy = ShallowRAD().fit(da.from_array(X, chunks=(250, 2)), y)
>>> bool(np.allclose(lazy.coef_, ShallowRAD().fit(X, y).coef_, rtol=1e-8))
True
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np

from riskad.core.checks import InputError, enumerate_names, required
from riskad.core.labels import UNLABELLED, has_code_type, read_codes
from riskad.rows.engine import ClusterError
from riskad.rows.partitions import PartitionedRows
from riskad.rows.sources import RowBlocks

T = TypeVar("T")
# M_TRIM_THRESHOLD: what may be free at the end of the heap; M_MMAP_THRESHOLD: arrays outside it.
_KEPT_MEMORY = {-1: 1 << 26, -3: 1 << 25}


class DaskRows(PartitionedRows):
    """The rows of a Dask array or dataframe of numbers, whose partitions are the parts.

    With a `distributed.Client` the partitions are kept on its workers; without one, threads of this
    process make them again in each pass. Labels and weights are arrays or Dask collections; without
    labels all rows are unlabelled.
    """

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None):
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        self.array = _as_array(X)
        chunks = self.array.chunks[0]
        delayed = _dask().delayed
        made = [
            delayed(_part, pure=True)(*pieces)
            for pieces in zip(
                self.array.to_delayed()[:, 0],
                _beside(y, chunks, "y"),
                _beside(sample_weight, chunks, "sample_weight"),
                strict=True,
            )
        ]
        # The client that is in use when the rows are made, and not another one later.
        client = None
        with suppress(ValueError, InputError):
            client = _distributed().get_client()
        engine = DaskEngine(client)
        # Kept on the workers: each step of a solver would read the files again.
        parts = made if client is None else client.compute(made)
        super().__init__(parts, self.array.shape[1], engine=engine, n_rows=int(sum(chunks)))
        self.feature_names = names

    def each(self, g: Callable[[Any], np.ndarray]) -> Any:
        # A lazy array, with the partitions of the rows.
        return self.array.map_blocks(_apply, g, drop_axis=1, dtype=float, meta=np.empty(0))


class DaskEngine:
    """The workers of a Dask cluster, or without a client the threads of Dask itself."""

    def __init__(self, client: Any = None):
        self.client = client
        self.address = None if client is None else client.scheduler.address

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        if self.client is None:
            call = _dask().delayed(function, pure=False)
            yield from _dask().compute(*(call(item, i) for i, item in enumerate(items)))
            return
        with _cluster_errors(self.address):
            # As a task of its own, the function travels once to each worker, and to a new one.
            whole = self.client.submit(_call, partial, function, pure=False)
            functions, numbers = [whole] * len(items), range(len(items))
            futures = self.client.map(_call, functions, items, numbers, pure=False)
            yield from self.client.gather(futures)


@contextmanager
def dask_engine(address: str | None = None) -> Iterator[DaskEngine]:
    """The engine of the cluster whose scheduler has this address; by default threads of Dask.

    The threads are those of this process. A local cluster would open ports, and its scheduler runs
    whatever any user of the machine sends to it.
    """
    if address is None:
        yield DaskEngine()
        return
    try:
        client = _distributed().Client(address, timeout="10s")
    except (OSError, ValueError) as error:  # a time-out is an OSError
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}). Start one "
            "with `dask scheduler`, or leave the address out for the threads of this process."
        ) from error
    with client:
        yield DaskEngine(client)


@contextmanager
def _cluster_errors(address: str | None) -> Iterator[None]:
    """Turn failures of a cluster into one-sentence errors."""
    distributed = _distributed()
    from concurrent.futures import CancelledError

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
            for parameter, size in _KEPT_MEMORY.items():
                library.mallopt(parameter, size)


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


def _beside(values: Any, chunks: tuple[int, ...], name: str) -> Sequence[Any]:
    """Labels or weights in the partitions of the rows."""
    if values is None:
        return [None] * len(chunks)
    import dask.array as da

    n_rows = sum(chunks)
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if not isinstance(values, da.Array):
        values = np.asarray(values)
        if len(values) == n_rows:
            values = da.from_array(values, chunks=(chunks,))  # type: ignore[no-untyped-call]
    elif np.isnan(values.shape[0]):
        values = values.compute_chunk_sizes()  # type: ignore[no-untyped-call]
    if values.shape != (n_rows,):
        raise InputError(f"{name} must have one entry for each of the {n_rows:,} rows of X.")
    return values.rechunk((chunks,)).to_delayed().ravel()


def _dask() -> Any:
    with required(_INSTALL):
        import dask
    return dask


def _distributed() -> Any:
    with required(_INSTALL):
        import distributed
    return distributed


_INSTALL = "A cluster needs Dask: pip install 'riskad[scale]'."
