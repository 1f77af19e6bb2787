"""BLAS and OpenMP kept to one thread while cores work on blocks of rows."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from threadpoolctl import OpenBLASController, ThreadpoolController

__all__ = ["one_blas_thread", "one_thread"]


_inside = contextvars.ContextVar("one_blas_thread", default=False)


class _SharedLimit:
    """BLAS libraries whose number of threads is set per process: one while anybody is inside.

    If each caller restored the previous value, overlapping calls in other threads would see each
    other's limit and leave it for good. So the first to enter sets the limit, and the last to leave
    restores the original value.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_inside:
                found = ((library, library.get_num_threads()) for library in _blas().shared)
                self._before = [(library, n) for library, n in found if n is not None and n > 1]
                for library, _ in self._before:
                    library.set_num_threads(1)
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside and self._before:
                _release_blas()
                for library, n in self._before:
                    library.set_num_threads(n)
                _release_blas()


def _release_blas() -> None:
    """Let this thread set numbers of threads: from 3.8 on, threadpoolctl only allows the first."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


class _Blas(NamedTuple):
    """The BLAS libraries of this process."""

    shared: list[Any]
    """Libraries whose number of threads is set per process."""
    own: ThreadpoolController
    """Libraries that use OpenMP, in which every thread has its own number."""


@functools.cache
def _blas() -> _Blas:
    libraries = ThreadpoolController().select(user_api="blas")
    shared = [each for each in libraries.lib_controllers if not _asks_openmp(each)]
    paths = [each.filepath for each in libraries.lib_controllers if _asks_openmp(each)]
    return _Blas(shared, libraries.select(filepath=paths))


def _asks_openmp(library: Any) -> bool:
    return getattr(library, "threading_layer", None) == "openmp"


_shared_limit = _SharedLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread; free of cost inside another such block, so enter it early."""
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    try:
        with _shared_limit, _blas().own.limit(limits=1):
            yield
    finally:
        _inside.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and, for the calling thread, OpenMP to one thread."""
    openmp = ThreadpoolController().select(user_api="openmp")
    with one_blas_thread(), openmp.limit(limits=1):
        yield
