"""Rows in a file that is read while training: memory-mapped arrays.

`np.load(path, mmap_mode="r")` opens a file of `np.save` without reading it. A detector reads blocks
of rows of this array, one after another, to check and to standardise, and then the rows of each
batch, in the order of the file. Memory holds a few batches and a few numbers for each row; pages of
the file that the system caches are released when memory is needed elsewhere.

You can write a file larger than memory block by block, here from Parquet by polars:

    frame = pl.scan_parquet("rows/*.parquet")
    n, columns = frame.select(pl.len()).collect().item(), frame.collect_schema().names()
    X = np.lib.format.open_memmap("rows.npy", "w+", np.float32, (n, len(columns)))
    for start in range(0, n, 100_000):
        X[start : start + 100_000] = frame.slice(start, 100_000).collect().to_numpy()
    X.flush()

Functions that make folds (`riskad.calibrate`) copy them into memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["Stored", "ahead", "blocks", "on_disk"]

# Values in a block of rows: a few MB.
_BLOCK = 2**20
# Batches that are read in advance, in parallel: a disk answers several at once.
_AHEAD = 4

T = TypeVar("T")


def on_disk(X: Any) -> bool:
    """Whether the rows of X are in a file: an `np.memmap`, or a view of one."""
    while X is not None and not isinstance(X, np.memmap):
        X = getattr(X, "base", None)
    return X is not None


def blocks(X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Consecutive rows of X, about a million values at a time, each with its first row number."""
    at_once = max(1, _BLOCK // max(1, math.prod(X.shape[1:])))
    for start in range(0, len(X), at_once):
        yield start, X[start : start + at_once]


class Stored:
    """Rows on disk that are indexed like a tensor of rows on the device.

    Parameters
    ----------
    X : ndarray of shape (n, *shape)
        The mapped array.
    prepare : callable
        Turns some rows of X into rows as the network sees them.
    device : torch.device
        Device to which requested rows go.
    """

    def __init__(
        self, X: np.ndarray, prepare: Callable[[np.ndarray], np.ndarray], device: torch.device
    ):
        self._X, self._prepare, self.device = X, prepare, device
        self.shape = X.shape

    def __len__(self) -> int:
        return len(self._X)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Rows by their numbers, of any shape, or consecutive ones."""
        if isinstance(index, slice):
            return self._read(self._X[index])
        rows, places = np.unique(index.cpu().numpy(), return_inverse=True)
        return self._read(self._X[rows])[torch.from_numpy(places).to(self.device)]

    def _read(self, X: np.ndarray) -> Tensor:
        seen = self._prepare(X)
        return torch.from_numpy(seen if seen.flags.writeable else seen.copy()).to(self.device)


def ahead(read: Callable[[int], T], steps: Iterable[int]) -> Iterator[T]:
    """`read(step)` for each step in turn, with the next ones already being read.

    >>> list(ahead(lambda step: step**2, range(6)))
    [0, 1, 4, 9, 16, 25]
    """
    left = iter(steps)
    with ThreadPoolExecutor(_AHEAD) as pool:
        coming = deque(pool.submit(read, step) for step in islice(left, _AHEAD))
        while coming:
            done = coming.popleft()
            coming.extend(pool.submit(read, step) for step in islice(left, 1))
            yield done.result()
