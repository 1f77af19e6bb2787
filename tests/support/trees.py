"""Which leaf a row reaches."""

import numpy as np


def leaves_of(trees, X):
    """Return the position of each row's leaf in each tree: (n_rows, n_trees)."""
    position = np.cumsum(~trees.splits) - 1
    leaves = np.empty((X.shape[0], trees.n_trees), dtype=np.int32)
    for rows, some, nodes in trees._walk.leaf_nodes(X):
        leaves[rows, some] = position.take(nodes).T
    return leaves
