r"""Extremely randomised trees, all grown at once.

With few labelled rows, a library that grows one tree after another spends most of its time between
trees. Here all trees grow one level together: the rows of every node lie side by side, and sums
over nodes are sums over segments of one array.

At a node with rows i of weight w_i and target y_i, columns are drawn without replacement until
`tries` of them that are not constant there have been tried, each with one threshold t, uniform
between its smallest and its largest value. The split with the smallest squared error is chosen,
which is the one with the largest

    gain = S_l^2 / W_l + S_r^2 / W_r - S^2 / W,        W = sum_i w_i,  S = sum_i w_i y_i,

with l the rows with x <= t and r the others. For targets +1 and -1 that is the decrease of the Gini
impurity. A leaf's value is S / W.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from riskad.detectors.tree_arrays import Trees

__all__ = ["Grown", "Growth", "grow"]

_CONSTANT = np.float32(1e-7)  # columns that vary by no more are constant
_CHUNK = 2**15  # pairs of row and tree that are processed together: their arrays stay in the cache


@dataclass(frozen=True)
class Growth:
    """How trees grow.

    Parameters
    ----------
    tries
        Columns that are tried at each node.
    least_weight, least_rows
        Minimum weight and number of rows of a leaf.
    most_depth
        Maximum number of splits from a root to a leaf.
    """

    tries: int
    least_weight: float = 0.0
    least_rows: int = 1
    most_depth: float = np.inf


@dataclass(frozen=True)
class Grown:
    """Trees, with statistics of their nodes."""

    trees: Trees
    gain: np.ndarray
    """Gain of each split."""
    depth: np.ndarray
    """Number of splits on the way to each leaf."""
    rows: np.ndarray
    """Number of training rows of each leaf."""


def grow(
    X: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    places: np.ndarray,
    growth: Growth,
    seed: int,
) -> Grown:
    """Grow trees.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Rows without gaps or infinities; they are compared in single precision.
    target, weight : arrays of shape (n_rows,)
        y and w.
    places : array of shape (n_trees, n)
        The rows of X that each tree is grown on.
    growth : Growth
        How trees grow.
    seed : int
        Seed of the draws.

    Returns
    -------
    Grown
        The trees.

    Examples
    --------
    >>> X = np.arange(8.0)[:, None]
    >>> y = np.where(X[:, 0] < 3, -1.0, 1.0)
    >>> found = grow(X, y, np.ones(8), np.tile(np.arange(8), (50, 1)), Growth(tries=1), seed=0)
    >>> found.trees.mean(X).tolist()
    [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    level = _Level(
        np.ascontiguousarray(X, dtype=np.float32),
        np.asarray(target, dtype=float),
        np.asarray(weight, dtype=float),
        places.ravel().astype(np.intp),
        np.arange(0, places.size + 1, places.shape[1]),
    )
    rng = np.random.default_rng(seed)
    levels: list[_Nodes] = []
    while level.n_nodes:
        nodes, level = level.split(growth, len(levels), rng)
        levels.append(nodes)
    return _grown(levels, len(places), X.shape[1])


@dataclass(frozen=True)
class _Nodes:
    """The nodes of one level of all trees, tree after tree; splits and leaves in this order."""

    splits: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    gain: np.ndarray
    value: np.ndarray
    rows: np.ndarray


def _grown(levels: list[_Nodes], n_trees: int, n_features: int) -> Grown:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(nodes, name) for nodes in levels])

    splits = joined("splits")
    trees = Trees(
        n_trees=n_trees,
        n_features=n_features,
        splits=splits,
        feature=joined("feature").astype(np.int32),
        threshold=joined("threshold"),
        missing=np.zeros(int(splits.sum()), dtype=np.uint8),
        value=joined("value"),
    )
    depth = np.repeat(np.arange(len(levels)), [len(nodes.value) for nodes in levels])
    return Grown(trees, joined("gain"), depth, joined("rows"))


class _Level:
    """Nodes of one level, of which node k has the rows `row[start[k] : start[k + 1]]`."""

    def __init__(
        self,
        X: np.ndarray,
        target: np.ndarray,
        weight: np.ndarray,
        row: np.ndarray,
        start: np.ndarray,
    ):
        self.X, self.target, self.weight = X, target, weight
        self.row, self.start = row, start
        self.n_nodes = len(start) - 1

    def split(self, growth: Growth, depth: int, rng: np.random.Generator) -> tuple[_Nodes, _Level]:
        """Split the nodes that can be split; returns these nodes, and the level below."""
        chunks = [self._chunk(*ends).split(growth, depth, rng) for ends in self._chunk_ends()]
        names = ("splits", "feature", "threshold", "gain", "value", "rows")
        nodes = _Nodes(*(np.concatenate([getattr(c[0], name) for c in chunks]) for name in names))
        row = np.concatenate([c[1] for c in chunks])
        start = _starts(np.concatenate([c[2] for c in chunks]))
        return nodes, _Level(self.X, self.target, self.weight, row, start)

    def _chunk_ends(self) -> list[tuple[int, int]]:
        """First and last of the nodes that are split together."""
        ends = [0]
        while ends[-1] < self.n_nodes:
            stop = int(np.searchsorted(self.start, self.start[ends[-1]] + _CHUNK, "right")) - 1
            ends.append(max(stop, ends[-1] + 1))
        return list(itertools.pairwise(ends))

    def _chunk(self, first: int, last: int) -> _Chunk:
        start = self.start[first : last + 1]
        row = self.row[start[0] : start[-1]]
        return _Chunk(self.X, self.target[row], self.weight[row], row, start - start[0])


class _Chunk:
    """Nodes that are split together: their rows, and the sums over these."""

    def __init__(
        self, X: np.ndarray, y: np.ndarray, w: np.ndarray, row: np.ndarray, start: np.ndarray
    ):
        self.X, self.y, self.w, self.row = X, y, w, row
        self.wy = w * y
        self.begin = row * X.shape[1]  # of each row in the ravelled X
        self.first, self.size = start[:-1], np.diff(start)
        self.W, self.S = (np.add.reduceat(each, self.first) for each in (w, self.wy))

    def take(self, nodes: np.ndarray) -> _Chunk:
        """Some of the nodes."""
        if len(nodes) == len(self.size):
            return self
        chosen = np.zeros(len(self.size), dtype=bool)
        chosen[nodes] = True
        pairs = np.flatnonzero(np.repeat(chosen, self.size))
        start = _starts(self.size[nodes])
        return _Chunk(self.X, self.y[pairs], self.w[pairs], self.row[pairs], start)

    def split(
        self, growth: Growth, depth: int, rng: np.random.Generator
    ) -> tuple[_Nodes, np.ndarray, np.ndarray]:
        """The nodes; the rows of their children, side by side, and how many each has."""
        able = np.flatnonzero(self._may_split(growth, depth))
        found = _Splits.none(0)
        if len(able):
            found = self.take(able).best(growth, rng)
        split = able[found.feature >= 0]
        found = found.take(np.flatnonzero(found.feature >= 0))
        splits = np.zeros(len(self.size), dtype=bool)
        splits[split] = True
        nodes = _Nodes(
            splits,
            found.feature,
            found.threshold,
            found.gain,
            (self.S / self.W)[~splits],
            self.size[~splits],
        )
        return nodes, *(self.take(split).parted(found) if len(split) else _NO_CHILDREN)

    def _may_split(self, growth: Growth, depth: int) -> np.ndarray:
        low, high = (each.reduceat(self.y, self.first) for each in (np.minimum, np.maximum))
        enough = self.size >= 2 * growth.least_rows
        enough &= (2 * growth.least_weight <= self.W) & (low < high)
        return enough & (depth < growth.most_depth)

    def best(self, growth: Growth, rng: np.random.Generator) -> _Splits:
        """The best split of each node, among `tries` columns that are not constant."""
        n_nodes, d = len(self.size), self.X.shape[1]
        found = _Splits.none(n_nodes)
        order = np.tile(np.arange(d), (n_nodes, 1))
        tried, wanting, chunk = np.zeros(n_nodes, dtype=int), np.arange(n_nodes), self
        for j in range(d):
            # The j-th of a shuffled order of the columns, separate for each node.
            at = j + (rng.random(len(wanting)) * (d - j)).astype(int)
            column = order[wanting, at]
            order[wanting, at] = order[wanting, j]
            varies = chunk._try(column, growth, rng, found, wanting)
            tried[wanting] += varies
            still = tried[wanting] < growth.tries
            if not still.any():
                break
            if not still.all():
                wanting = wanting[still]
                chunk = chunk.take(np.flatnonzero(still))
        return found

    def _try(
        self,
        column: np.ndarray,
        growth: Growth,
        rng: np.random.Generator,
        found: _Splits,
        nodes: np.ndarray,
    ) -> np.ndarray:
        """Try a split of each node by a column; returns where these are not constant."""
        place = np.repeat(column, self.size)
        place += self.begin
        x = self.X.ravel().take(place)
        low, high = (each.reduceat(x, self.first) for each in (np.minimum, np.maximum))
        with np.errstate(over="ignore", invalid="ignore"):  # of huge values
            threshold = low + rng.random(len(low), dtype=np.float32) * (high - low)
            varies = high > low + _CONSTANT
        threshold = np.where(threshold < high, threshold, low)
        left = x <= np.repeat(threshold, self.size)
        W_l, S_l = (np.add.reduceat(each * left, self.first) for each in (self.w, self.wy))
        W_r, S_r = self.W - W_l, self.S - S_l
        allowed = varies & (np.minimum(W_l, W_r) >= growth.least_weight)
        allowed &= np.minimum(W_l, W_r) > 0
        if growth.least_rows > 1:
            n_l = np.add.reduceat(left, self.first, dtype=int)
            allowed &= np.minimum(n_l, self.size - n_l) >= growth.least_rows
        gain = np.full(len(low), -np.inf)
        at = np.flatnonzero(allowed)
        gain[at] = S_l[at] ** 2 / W_l[at] + S_r[at] ** 2 / W_r[at] - self.S[at] ** 2 / self.W[at]
        found.improve(nodes, column, threshold, gain)
        return varies

    def parted(self, found: _Splits) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the children, and how many each has, if each node splits as found."""
        x = self.X[self.row, np.repeat(found.feature, self.size)]
        right = x > np.repeat(found.threshold, self.size)
        n_right = np.add.reduceat(right, self.first, dtype=int)
        sizes = np.stack([self.size - n_right, n_right], axis=1).ravel()
        begin = np.cumsum(sizes) - sizes
        row = np.empty_like(self.row)
        for side, own in enumerate((np.flatnonzero(~right), np.flatnonzero(right))):
            # Lefts, and rights, are in the order of nodes: each moves as far as its node's first.
            n = sizes[side::2]
            row[np.repeat(begin[side::2] - (np.cumsum(n) - n), n) + np.arange(len(own))] = self.row[
                own
            ]
        return row, sizes


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Where segments of these sizes begin, and where the last one ends."""
    return np.append(0, np.cumsum(sizes))


_NO_CHILDREN = (np.empty(0, dtype=np.intp), np.empty(0, dtype=int))


@dataclass(frozen=True)
class _Splits:
    """The best split of each node so far: a column, or -1 for none."""

    feature: np.ndarray
    threshold: np.ndarray
    gain: np.ndarray

    @classmethod
    def none(cls, n: int) -> _Splits:
        return cls(np.full(n, -1), np.zeros(n, dtype=np.float32), np.full(n, -np.inf))

    def take(self, nodes: np.ndarray) -> _Splits:
        return _Splits(self.feature[nodes], self.threshold[nodes], self.gain[nodes])

    def improve(
        self, nodes: np.ndarray, feature: np.ndarray, threshold: np.ndarray, gain: np.ndarray
    ) -> None:
        """Keep splits of these nodes that gain more."""
        better = np.flatnonzero(gain > self.gain[nodes])
        at = nodes[better]
        self.feature[at], self.threshold[at] = feature[better], threshold[better]
        self.gain[at] = gain[better]
