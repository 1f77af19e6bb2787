"""Rows that occur more than once.

A copy of a labelled row gives the label away: a fit that has seen the copy has, in effect, seen the
row. So copies are one group for everything that holds rows out.

Two rows are copies if they agree in all columns: texts and whole numbers exactly, other numbers to
a thousandth of the column's interquartile range. That tolerance is used only if pairs within it are
copies rather than neighbours in a dense table. Neighbours become at least four times as many if the
tolerance grows fourfold; copies do not.

Rows of many tables agree by nature, and a new row agrees with old ones as well. To hold all of them
out at once would test a model on values that are never new to it in use: on real tables it made the
reported AUC up to 0.35 too low. Such rows occur three times and more often, where copies mostly
occur twice. If more than a fifth of the repeated rows do, rows are copies only if labels were
copied with them, so that more pairs of equal rows are both labelled normal than by chance. Fewer
than ten different rows that occur so often tell nothing, unless they are most of the table.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.rows.arrays import on_host_array
from riskad.rows.table import Table

_TOLERANCE = 1e-3  # of a column's interquartile range
_FEWEST_NEAR = 0.01  # pairs that are nearly equal, as a share of the rows; fewer are chance
_MOST_OFTEN = 0.2  # of the repeated rows, that occur more than twice
_FEWEST_OFTEN = 10  # different rows that occur more than twice; fewer tell nothing
_FEWEST_EACH = 5  # times that each row occurs on average, where there are fewer
_SURPRISE, _SHUFFLES = 3.0, 50  # standard deviations, and the shuffles that estimate them
_CELLS = 1_000_000  # that are hashed at a time, in 8 MB
_MOST_CELLS = 20_000_000  # of a table in which nearly equal rows are looked for, for memory's sake


def number_copies(X: Any, codes: np.ndarray) -> NDArray[np.intp] | None:
    """Number sets of copies 0, 1, 2, ... in the order in which they first occur; NaN equals NaN.

    None if there are no copies, or if X is no table.

    >>> unlabelled = np.zeros(4, dtype=int)
    >>> number_copies([[0.5, 1.0], [0.7, 2.0], [0.5, 1.0], [0.1, 3.0]], unlabelled)
    array([0, 1, 0, 2])
    >>> number_copies([[0.5, 1.0], [0.7, 2.0]], unlabelled[:2]) is None
    True
    """
    matrix = _as_numbers(X)
    if matrix is None:
        return None
    # By a hash of 64 bits: two different rows of a billion share one with probability 3 %.
    numbers = _numbered(_hashes(matrix))
    if not sparse.issparse(matrix) and matrix.size <= _MOST_CELLS:
        numbers = _with_nearly_equal(matrix, numbers)
    if numbers.max() + 1 == len(numbers):
        return None
    by_nature = _agree_by_nature(numbers) and not _share_labels(numbers, codes)
    return None if by_nature else numbers


def group_equal_rows(
    X: Any, codes: np.ndarray, groups: NDArray[np.intp] | None = None
) -> NDArray[np.intp] | None:
    """Groups in which all copies of a row are in one, if some labelled row has a copy.

    `groups` numbers other groups, such as customers: those that share a row become one, unless most
    rows would then be in a single group. None if there are neither groups nor copies of labelled
    rows.

    >>> rows = [[0.1, 3.0], [0.2, 4.0], [0.3, 5.0], [0.2, 4.0], [0.4, 1.0], [0.5, 2.0], [0.6, 0.0]]
    >>> codes = np.array([0, 1, 0, 0, 0, 0, -1])
    >>> group_equal_rows(rows, codes)
    array([0, 1, 2, 1, 3, 4, 5])
    >>> group_equal_rows(rows, codes, groups=np.array([0, 0, 1, 2, 3, 4, 5]))
    array([0, 0, 1, 0, 2, 3, 4])
    """
    return group_copies(number_copies(X, codes), codes, groups)


def group_copies(
    copies: NDArray[np.intp] | None, codes: np.ndarray, groups: NDArray[np.intp] | None
) -> NDArray[np.intp] | None:
    """As `group_equal_rows`, of the sets that `number_copies` has found."""
    if copies is None or not (np.bincount(copies)[copies[codes != UNLABELLED]] > 1).any():
        return groups
    if groups is None:
        return copies
    # Groups and sets of copies are the nodes of a graph; a row links its group with its set.
    n_groups, n_nodes = groups.max() + 1, groups.max() + copies.max() + 2
    links = (np.ones(len(groups)), (groups, n_groups + copies))
    graph = sparse.coo_array(links, shape=(n_nodes, n_nodes))
    joined = _numbered(connected_components(graph, directed=False)[1][groups])
    # Rows that link most of the table, such as blank ones, would leave nothing to hold out.
    return joined if np.bincount(joined).max() <= len(joined) / 2 else groups


def repeats_label(codes: np.ndarray, copies: NDArray[np.intp] | None) -> NDArray[np.bool_]:
    """Whether an earlier copy of a labelled row has the same label."""
    repeated = np.zeros(len(codes), dtype=bool)
    if copies is not None:
        labelled = np.flatnonzero(codes != UNLABELLED)
        pairs = np.stack([copies[labelled], codes[labelled]])
        repeated[np.delete(labelled, np.unique(pairs, axis=1, return_index=True)[1])] = True
    return repeated


def _as_numbers(X: Any) -> Any:
    """X as a float matrix, texts as numbers of their own; None if X is no table."""
    if isinstance(X, Table):
        X = X.values
    if sparse.issparse(X):
        matrix = X.tocsr().astype(np.float64)
        # An entry may be stored in two parts; the hash takes each stored number as a cell.
        matrix.sum_duplicates()
        return matrix
    if hasattr(X, "columns"):
        columns = [np.asarray(X[name]) for name in X.columns]
    elif hasattr(X, "__array__") or isinstance(X, list | tuple):
        X = np.asarray(on_host_array(X))
        if X.ndim != 2:
            return None
        if X.dtype.kind in "biuf":
            return _floats(X) if X.size else None
        columns = list(X.T)
    else:
        return None
    if not columns or not len(columns[0]):
        return None
    return np.column_stack([_floats(column) for column in columns])


def _floats(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    if values.dtype.kind in "mM":
        return values.astype(np.int64).astype(np.float64)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(str(value), len(numbers)) for value in values], float)


def _with_nearly_equal(matrix: np.ndarray, equal: NDArray[np.intp]) -> NDArray[np.intp]:
    with warnings.catch_warnings(action="ignore"):  # of blank columns and infinities
        # The interquartile range, which a few far values do not widen.
        low, high = np.nanquantile(matrix, [0.25, 0.75], axis=0)
        step = _TOLERANCE * (high - low)
        whole = np.array([(column % 1 == 0).all() for column in matrix.T])
    step[~(step > 0) | ~np.isfinite(step) | whole] = 0  # whole numbers may be codes
    if not step.any():
        return equal

    def number(step: np.ndarray) -> NDArray[np.intp]:
        cells = np.floor(matrix / np.where(step > 0, step, 1))
        return _numbered(_hashes(np.where(step > 0, cells, matrix)))

    # Rounding puts some near pairs into neighbouring cells: fewer are found, and none wrongly.
    near, farther = number(step), number(4 * step)
    n_near, n_farther = (_pairs(numbers) - _pairs(equal) for numbers in (near, farther))
    # Neighbours in a dense table grow with the tolerance, copies do not.
    return near if n_near > _FEWEST_NEAR * len(equal) and n_farther < 2 * n_near else equal


def _pairs(numbers: NDArray[np.intp]) -> int:
    sizes = np.bincount(numbers)
    return int((sizes * (sizes - 1) // 2).sum())


def _agree_by_nature(numbers: NDArray[np.intp]) -> bool:
    """Whether many of the rows that are repeated occur more than twice."""
    sizes = np.bincount(numbers)
    often = sizes > 2
    many = often.sum() >= _FEWEST_OFTEN or len(numbers) > _FEWEST_EACH * len(sizes)
    return bool(many and sizes[often].sum() > _MOST_OFTEN * sizes[sizes > 1].sum())


def _share_labels(numbers: NDArray[np.intp], codes: np.ndarray) -> bool:
    """Whether equal rows are both labelled normal more often than by chance.

    Only normal rows show this, since they are most of the rows: labelled anomalies agree with each
    other more often than rows do, whoever labelled them.
    """
    numbers, normal = numbers[codes != ANOMALY], codes[codes != ANOMALY] == NORMAL
    rng = np.random.default_rng(0)
    shuffled = [_pairs(numbers[rng.permutation(normal)]) for _ in range(_SHUFFLES)]
    # One pair more than chance in any case: with few labels the spread of shuffles may be 0.
    return bool(_pairs(numbers[normal]) > np.mean(shuffled) + _SURPRISE * (np.std(shuffled) + 1))


def _numbered(values: np.ndarray) -> NDArray[np.intp]:
    """Numbers 0, 1, 2, ... in the order in which values first occur."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _hashes(matrix: Any) -> NDArray[np.uint64]:
    """A hash of each row, sum_j mix(bits of x_j) r_j modulo 2^64 with random odd r; 0 adds 0."""
    n, d = matrix.shape
    # Odd factors are invertible modulo 2^64: no bit of a cell is lost. The seed is fixed, so that
    # hashes agree between calls.
    r = np.random.default_rng(0).integers(2**63, size=d, dtype=np.uint64) * 2 + 1
    if sparse.issparse(matrix):
        terms = np.append(_mixed(matrix.data) * r[matrix.indices], np.uint64(0))
        # Sums of segments by differences of running sums, which is exact modulo 2^64.
        sums = np.concatenate([[np.uint64(0)], np.cumsum(terms, dtype=np.uint64)])
        return sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]
    size = max(1, _CELLS // max(d, 1))
    blocks = [(_mixed(matrix[i : i + size]) * r).sum(axis=1) for i in range(0, n, size)]
    return np.concatenate(blocks)


def _mixed(values: np.ndarray) -> NDArray[np.uint64]:
    """Bits of numbers, spread over all 64 places: a whole number has most of its last ones 0."""
    numbers = values + 0.0  # -0 becomes 0
    numbers[np.isnan(numbers)] = np.nan  # there are many patterns of NaN
    bits = numbers.view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))
