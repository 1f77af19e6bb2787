"""Workers on the parts of a source: threads, as many as there are CPUs, each with one of BLAS."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

from riskad.core.checks import InputError

T = TypeVar("T")


class ClusterError(InputError):
    """The cluster has gone, or could not be reached: nothing was completed."""


class Engine(Protocol):
    """Works on the parts of a source."""

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        """function(item, its number) for each item, in their order; an error ends the work."""


def usable_cpus() -> int:
    """CPUs that this process may use, by its affinity and by the quota of its container."""
    import joblib  # here, since programs that read no rows need not wait for it

    return int(joblib.cpu_count())


class Threads:
    """Threads of this process, each working on one item at a time: an `Engine`.

    >>> list(Threads(2).map(lambda item, i: item * i, [5, 6, 7]))
    [0, 6, 14]
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_jobs = n_jobs

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        pool = ThreadPoolExecutor(self.n_jobs or usable_cpus())
        try:
            # Threads do not inherit NumPy's error state, a context variable; they are given it.
            work = deque(
                pool.submit(contextvars.copy_context().run, function, item, i)
                for i, item in enumerate(items)
            )
            while work:
                yield work.popleft().result()
        finally:
            # A failed item, or a caller that stops listening, leaves no work behind.
            pool.shutdown(cancel_futures=True)


# --- BLAS and OpenMP kept to one thread while cores work on blocks of rows -----------------------


_inside = contextvars.ContextVar("one_blas_thread", default=False)
_lock = threading.Lock()
_n_inside = 0
_before: list[tuple[Any, int]] = []  # the limited libraries, and their threads before


@contextmanager
def _shared_limit() -> Iterator[None]:
    """One thread for BLAS libraries whose number is set per process, while anybody is inside.

    If each caller restored the previous value, overlapping calls in other threads would see each
    other's limit and leave it for good. So the first to enter sets the limit, and the last to leave
    restores the original value.
    """
    global _n_inside
    with _lock:
        if not _n_inside:
            threads = ((library, library.get_num_threads()) for library in _blas()[0])
            _before[:] = [(library, n) for library, n in threads if n is not None and n > 1]
            for library, _ in _before:
                library.set_num_threads(1)
        # Also if no library needs a limit: the count says who is inside.
        _n_inside += 1
    try:
        yield
    finally:
        with _lock:
            _n_inside -= 1
            if not _n_inside and _before:
                # This thread may not be the one that set the limit.
                _release_blas()
                for library, n in _before:
                    library.set_num_threads(n)
                _release_blas()


def _release_blas() -> None:
    """Let this thread set numbers of threads: from 3.8 on, threadpoolctl only allows the first."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


@functools.cache
def _blas() -> tuple[list[Any], ThreadpoolController]:
    """The BLAS libraries with one number of threads, and those with one for each thread: OpenMP."""
    libraries = ThreadpoolController().select(user_api="blas")
    shared, paths = [], []
    for library in libraries.lib_controllers:
        if getattr(library, "threading_layer", None) == "openmp":
            paths.append(library.filepath)
        else:
            shared.append(library)
    return shared, libraries.select(filepath=paths)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread; free of cost inside another such block, so enter it early."""
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    try:
        with _shared_limit(), _blas()[1].limit(limits=1):
            yield
    finally:
        _inside.reset(token)
