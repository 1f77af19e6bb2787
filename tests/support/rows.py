"""Numbers and codes, for fits of the same rows from different places."""

import numpy as np
from scipy import sparse

LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr_array": sparse.csr_array,
    "float32 csr_array": lambda X: sparse.csr_array(X.astype(np.float32)),
}


def make_table(n=3000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[: n // 10] += 2
    y = np.zeros(n, dtype=np.int16)
    y[: n // 100], y[-n // 50 :] = -1, 1
    order = rng.permutation(n)
    return X[order], y[order]


def label_first(truth, n_normal, n_anomaly):
    """Codes: the first so many normals and anomalies are labelled."""
    y = np.zeros(len(truth), dtype=int)
    y[np.flatnonzero(truth == 1)[:n_normal]] = 1
    y[np.flatnonzero(truth == -1)[:n_anomaly]] = -1
    return y


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)
