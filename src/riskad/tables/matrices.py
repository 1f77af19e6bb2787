"""Columns as blocks of a matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["FEW_ROWS", "Matrix", "join_dense", "join_sparse", "one_hot"]

Matrix: TypeAlias = Any  # NDArray[np.float64] or scipy's csr_matrix, which has no types
FEW_ROWS = 16
"""Up to which rows are read one by one: polars and scipy take longer to be called than for them."""


def one_hot(codes: NDArray[np.int32], n_levels: int) -> Matrix:
    """Return a yes/no column for each level, sparse where rows are many; codes below 0 have none.

    >>> one_hot(np.array([1, -1], dtype=np.int32), 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    known = codes >= 0
    if len(codes) <= FEW_ROWS:
        rows = np.zeros((len(codes), n_levels))
        rows[known, codes[known]] = 1.0
        return rows
    indptr = np.concatenate([[0], np.cumsum(known)])
    ones = np.ones(indptr[-1])
    return sparse.csr_matrix((ones, codes[known], indptr), shape=(len(codes), n_levels))


def join_sparse(blocks: Iterable[Matrix]) -> sparse.csr_matrix:
    """Return blocks of columns side by side, as a CSR matrix."""
    blocks = list(blocks)
    if not any(map(sparse.issparse, blocks)):  # as where rows are few
        return sparse.csr_matrix(np.concatenate(blocks, axis=1, dtype=np.float64))
    return sparse.hstack(blocks, format="csr", dtype=np.float64)


def join_dense(blocks: Iterable[Matrix], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Fill the matrix block by block, so that there is never a second copy of it."""
    matrix = np.empty(shape)
    start = 0
    for block in blocks:
        end = start + block.shape[1]
        matrix[:, start:end] = block.toarray() if sparse.issparse(block) else block
        start = end
    return matrix
