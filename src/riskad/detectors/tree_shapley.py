r"""Exact Shapley values of trees, where a column that a set lacks takes both branches of a split.

If a column is not known, a row takes both branches, in the shares of the training rows that went
there (Lundberg et al., 2020). If the columns S are known, a leaf of value v is then reached by the
share

    prod_{j in S} o_j  prod_{j not in S} z_j

of a row: over the columns j on the path to the leaf, o_j is 1 if the row takes all turns of the
path at splits of column j, else 0, and z_j is the share of training rows that take them. The
Shapley value of column j in this game has the weights of a Beta integral, and hence

    phi_j = v (o_j - z_j) int_0^1 prod_{k != j} (t o_k + (1 - t) z_k) dt,

the integral of a polynomial, which Gauss-Legendre nodes t give exactly. The values of a row are the
sums over all leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from riskad.detectors.tree_arrays import Trees

__all__ = ["shapley_values"]

_LONGEST_PATHS = 5_000_000  # turns on all paths together; more need too much memory and time
_CELLS = 2**20


@dataclass(frozen=True)
class _Paths:
    """The turns on the paths to all leaves, in the order of leaf and column.

    A pair is a leaf and a column on its path.
    """

    split: np.ndarray  # of each turn
    to_right: np.ndarray
    first_turn: np.ndarray  # of each pair
    column: np.ndarray
    z: np.ndarray
    first_pair: np.ndarray  # of each leaf
    pairs_of_leaf: np.ndarray
    value: np.ndarray


def shapley_values(trees: Trees, X: Any) -> tuple[np.ndarray, float] | None:
    """Return what each column adds to the sum of the trees.

    Parameters
    ----------
    trees : Trees
        Trees with the `cover` of their leaves.
    X : array or CSR matrix of shape (n_rows, n_features)
        Rows; NaN is missing.

    Returns
    -------
    values : array of shape (n_rows, n_features)
        phi, with base + sum_j phi_ij = `trees.sum(X)`_i.
    base : float
        The mean of the sum of the trees over the training rows. Instead of both, None for trees so
        deep that their paths do not fit into memory.
    """
    if trees.cover is None:
        raise ValueError("these trees do not know how many training rows are in their leaves")
    share, climbs = _shares(trees)
    phi = np.zeros((X.shape[0], trees.n_features))
    base = float(trees.value[climbs == 0].sum())
    if not len(trees.feature):
        return phi, base
    if climbs.sum() > _LONGEST_PATHS:
        return None
    paths = _paths(trees, share)
    base += float(paths.value @ np.multiply.reduceat(paths.z, paths.first_pair))
    to_column = sparse.csr_matrix(
        (np.ones(len(paths.z)), (paths.column, np.arange(len(paths.z)))),
        shape=(trees.n_features, len(paths.z)),
    )
    for rows, Z, column in trees.walk.blocks(X):
        step = max(1, _CELLS // len(paths.split))
        for start in range(0, len(Z), step):
            part = slice(rows.start + start, min(rows.start + start + step, rows.stop))
            phi[part] = (to_column @ _of_pairs(trees, paths, Z[start : start + step], column)).T
    return phi, base


def _shares(trees: Trees) -> tuple[np.ndarray, np.ndarray]:
    """The share of a parent's training rows in each node (1 in a root), and depths of leaves."""
    rows = np.zeros(len(trees.splits))
    rows[~trees.splits] = trees.cover
    inner = np.flatnonzero(trees.splits)
    for level in reversed(_levels(trees)):
        parents = trees.left[level]
        rows[inner[level]] = rows[parents] + rows[parents + 1]
    share, depth = np.ones(len(rows)), np.zeros(len(rows), dtype=int)
    for level in _levels(trees):
        for side in (0, 1):
            child = trees.left[level] + side
            share[child] = rows[child] / rows[inner[level]]
            depth[child] = depth[inner[level]] + 1
    return share, depth[~trees.splits]


def _levels(trees: Trees) -> list[np.ndarray]:
    """The splits, level by level."""
    number = np.cumsum(trees.splits) - 1
    found, nodes = [], np.arange(trees.n_trees)
    while len(nodes := nodes[trees.splits[nodes]]):
        found.append(number[nodes])
        left = trees.left[number[nodes]]
        nodes = np.stack([left, left + 1], axis=1).ravel()
    return found


def _paths(trees: Trees, share: np.ndarray) -> _Paths:
    leaf, split, to_right, of_turn = _turns(trees, share)
    column = trees.feature[split]
    order = np.lexsort((column, leaf))
    leaf, split, to_right = leaf[order], split[order], to_right[order]
    column, of_turn = column[order], of_turn[order]
    new_pair = np.r_[True, (np.diff(leaf) != 0) | (np.diff(column) != 0)]
    first_turn = np.flatnonzero(new_pair)
    leaf = leaf[first_turn]
    first_pair = np.flatnonzero(np.r_[True, np.diff(leaf) != 0])
    return _Paths(
        split=split,
        to_right=to_right,
        first_turn=first_turn,
        column=column[first_turn],
        z=np.multiply.reduceat(of_turn, first_turn),
        first_pair=first_pair,
        pairs_of_leaf=np.diff(first_pair, append=len(leaf)),
        value=trees.value[leaf[first_pair]],
    )


def _turns(trees: Trees, share: np.ndarray) -> tuple[np.ndarray, ...]:
    """Leaf, split, side and share of every turn on the way from a leaf up to its root."""
    node = np.flatnonzero(~trees.splits)
    leaf, T = np.arange(len(node)), trees.n_trees
    inner, found = np.flatnonzero(trees.splits), []
    while len(node):
        below = node >= T
        node, leaf = node[below], leaf[below]
        split, to_right = np.divmod(node - T, 2)
        found.append((leaf, split, to_right == 1, share[node]))
        node = inner[split]
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


def _of_pairs(trees: Trees, paths: _Paths, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The terms phi_j of the sum over leaves: for each pair of leaf and column j, and each row."""
    o, z = _taken(trees, paths, Z, column), paths.z[:, None]
    t, weight = np.polynomial.legendre.leggauss((int(paths.pairs_of_leaf.max()) + 1) // 2)
    integral = np.zeros(o.shape)
    for point, w in zip((1 + t) / 2, weight / 2, strict=True):
        factor = np.where(o, point + (1 - point) * z, (1 - point) * z)
        product = w * np.multiply.reduceat(factor, paths.first_pair, axis=0)
        integral += np.repeat(product, paths.pairs_of_leaf, axis=0) / factor
    value = np.repeat(paths.value, paths.pairs_of_leaf)[:, None]
    return integral * (o - z) * value


def _taken(trees: Trees, paths: _Paths, Z: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Whether each row takes the turns of each pair: o."""
    walk = trees.walk
    x = Z.T[column[walk.inner]]
    right = walk.turns_right(np.repeat(walk.inner, len(Z)), x.ravel()).reshape(x.shape)
    turns = right[paths.split] == paths.to_right[:, None]
    return np.logical_and.reduceat(turns, paths.first_turn, axis=0)
