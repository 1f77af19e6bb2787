"""Workers on the parts of a source: the threads of this process, as many as it has CPUs."""

from __future__ import annotations

import contextvars
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

__all__ = ["Engine", "Threads", "usable_cpus"]


T = TypeVar("T")
_CGROUPS = Path("/sys/fs/cgroup")


class Engine(Protocol):
    """Works on the parts of a source."""

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        """function(item, its number) for each item, in their order."""


def usable_cpus() -> int:
    """CPUs that this process may use, by its affinity and by the quota of its container.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> 1 <= usable_cpus() <= os.cpu_count()
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _container_cpus(_CGROUPS)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _container_cpus(folder: Path) -> float | None:
    """CPUs by the quota of a control group, version 2 or 1; None without a quota."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            files = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
            quota, period = ((folder / name).read_text().strip() for name in files)
        except OSError:
            return None
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0  # "max", "-1": no limit
    return int(quota) / int(period) if limited else None


class Threads:
    """Threads of this process, each working on one item at a time.

    >>> list(Threads(2).map(lambda item, i: item * i, [5, 6, 7]))
    [0, 6, 14]
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_jobs = n_jobs

    def map(self, function: Callable[[Any, int], T], items: Sequence[Any]) -> Iterator[T]:
        """function(item, its number) for each item, in their order; an error ends the work."""
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
            pool.shutdown(cancel_futures=True)
