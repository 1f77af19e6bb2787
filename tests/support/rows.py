"""Numbers and codes, for fits of the same rows from different places."""

import numpy as np


def make_table(n=3000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[: n // 10] += 2
    y = np.zeros(n, dtype=np.int16)
    y[: n // 100], y[-n // 50 :] = -1, 1
    order = rng.permutation(n)
    return X[order], y[order]
