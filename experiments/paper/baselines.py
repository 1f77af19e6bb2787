r"""The one-class SVMs that the paper compares shallow rAD with.

They are sums of Gaussians around training rows z_i, in standardised columns:

    g(x) = sum_i coef_i k(x, z_i),   k(x, z) = exp(-||x - z||^2 / d),   the higher, the more normal.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import laplacian
from sklearn import svm
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED

_CACHE_MB = 500  # libsvm's default of 200 holds too few kernel rows of tens of thousands
_DUAL_TOL = 1e-7  # of the mean k(z, z): the allowed gap in the optimality conditions
_KERNEL_ENTRIES = 2**23  # scored at a time: 64 MiB

Array = NDArray[Any]


class _GaussianDetector(BaseEstimator):
    """g(x) = sum_i coef_i k(x, z_i); a subclass's `fit` finds z_i and coef_i."""

    def _scaled(self, X: Array) -> Array:
        """Learn the scale of columns, and the kernel's width 1 / d, from rows; return them so."""
        self.scaler_, self.gamma_ = StandardScaler().fit(X), 1 / X.shape[1]
        # A column that is constant in training says nothing of new rows, whatever they hold.
        self.scaler_.scale_[np.ptp(X, axis=0) == 0] = np.inf
        return self.scaler_.transform(X)

    def score_samples(self, X: Array) -> Array:
        """Return g(x) for each row."""
        batches = gen_batches(len(X), max(1, _KERNEL_ENTRIES // len(self.anchors_)))
        Z = self.scaler_.transform(X)
        return np.concatenate(
            [rbf_kernel(Z[b], self.anchors_, gamma=self.gamma_) @ self.coef_ for b in batches]
        )


class OneClassSVM(_GaussianDetector):
    r"""The one-class SVM of Schoelkopf et al. (2001),

        min  1/2 ||w||^2 - rho + 1/(nu n) sum_i xi_i
        s.t. <w, phi(x_i)> >= rho - xi_i,  xi_i >= 0.

    As in the published runs it takes every training row as normal, whatever its label.
    """

    def __init__(self, nu: float = 0.1):
        self.nu = nu

    def fit(self, X: Array, y: Any = None) -> Self:
        """Fit to rows X; labels are ignored."""
        model = svm.OneClassSVM(nu=self.nu, gamma=1 / X.shape[1], cache_size=_CACHE_MB)
        model.fit(self._scaled(X))
        self.anchors_, self.coef_ = model.support_vectors_, model.dual_coef_[0]
        return self


class SemiSupervisedOneClassSVM(_GaussianDetector):
    r"""Semi-supervised one-class SVMs after Munoz-Mari et al. (2010, IEEE TGRS 48(8)).

    kernel="laplacian" is a one-class SVM over the labelled rows,

        min  1/2 ||w||^2 - rho + C_p sum_P xi_i + C_n sum_N xi_j,  xi >= 0
        s.t. <w, phi(x_i)> >= rho - xi_i on P,   <w, phi(x_j)> <= rho + xi_j on N
        C_p = C_n = 1 / (nu n_p),

    in which the unlabelled rows bend the kernel (Sindhwani, Niyogi and Belkin 2005). With K the
    Gaussian Gram matrix of all rows and L the normalised Laplacian of their symmetric graph of ten
    nearest neighbours,

        K~(x, z) = K(x, z) - k_x' (I + L K)^{-1} L k_z.

    Since (I + L K)^{-1} L K = I - (I + L K)^{-1}, it is K~ = K (I + L K)^{-1} on the graph's rows,
    and dual coefficients s, zero on the unlabelled rows, give g(x) = k_x' (I + L K)^{-1} s.

    kernel="biased" is a two-class SVM over all rows,

        min  1/2 ||w||^2 + C_u sum_U xi_i + C_p sum_P xi_i + C_n sum_N xi_i,  xi >= 0
        s.t. t_i (<w, phi(x_i)> + b) >= 1 - xi_i,   t = +1 on P, -1 on N.

    unlabelled="outside" puts t = -1 on U (as in the citation, after Liu et al. 2003), with C_u = 1
    and C_p = C_n = 2 n_u / n_p, since the unlabelled rows are mostly normal: with many rows it is
    inside where 2 p(x | normal) > p(x). unlabelled="normal" puts t = +1 on U, with equal costs: a
    plain SVC that takes the unlabelled rows as normal, which the published column most resembles.

    At most `unlabelled_rows` of the unlabelled rows are used, drawn at random: they bound the cost.
    """

    def __init__(
        self,
        kernel: str = "laplacian",
        *,
        unlabelled: str = "outside",
        unlabelled_rows: int = 1_000,
        random_state: int = 0,
    ):
        self.kernel = kernel
        self.unlabelled = unlabelled
        self.unlabelled_rows = unlabelled_rows
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Fit to rows X with labels y: +1 normal, -1 anomaly, 0 unlabelled."""
        Z, codes = self._scaled(X), np.asarray(y)
        labelled, unlabelled = np.flatnonzero(codes), np.flatnonzero(codes == UNLABELLED)
        if len(unlabelled) > self.unlabelled_rows:
            rng = np.random.default_rng(self.random_state)
            unlabelled = np.sort(rng.choice(unlabelled, self.unlabelled_rows, replace=False))
        rows = np.concatenate([labelled, unlabelled])
        fit = self._fit_laplacian if self.kernel == "laplacian" else self._fit_biased
        fit(Z[rows], codes[rows])
        return self

    def _fit_laplacian(self, Z: Array, codes: Array, nu: float = 0.1) -> None:
        n_l = np.count_nonzero(codes)
        K = rbf_kernel(Z, gamma=self.gamma_)
        nearest = kneighbors_graph(Z, min(10, len(Z) - 1))
        L = laplacian(nearest.maximum(nearest.T), normed=True)
        # Only the columns of labelled rows of (I + L K)^{-1} meet a non-zero coefficient.
        identity = np.eye(len(Z))
        inverse = np.linalg.solve(identity + L @ K, identity[:, :n_l])
        cost = 1 / (nu * np.count_nonzero(codes == NORMAL))
        signed_costs = np.where(codes[:n_l] == NORMAL, cost, -cost)
        self.anchors_ = Z
        self.coef_ = inverse @ one_class_dual(K[:n_l] @ inverse, signed_costs)

    def _fit_biased(self, Z: Array, codes: Array) -> None:
        outside = self.unlabelled == "outside"
        side = np.where(codes == UNLABELLED, ANOMALY if outside else NORMAL, codes)
        n_u, n_p = (np.count_nonzero(codes == kind) for kind in (UNLABELLED, NORMAL))
        cost = np.where(codes == UNLABELLED, 1.0, 2 * n_u / n_p if outside else 1.0)
        model = svm.SVC(gamma=self.gamma_, cache_size=_CACHE_MB).fit(Z, side, sample_weight=cost)
        self.anchors_, self.coef_ = model.support_vectors_, model.dual_coef_[0]


def one_class_dual(K: Array, signed_costs: Array) -> Array:
    r"""Minimise 1/2 s'Ks over sum s = 1 with s in [0, C_p] on P and in [-C_n, 0] on N.

    libsvm solves min 1/2 g'Qg, 0 <= g <= W, sum g = S. Put g = s + c with c = (0 on P, C_n on N):
    then W = |costs|, S = 1 + sum c and, up to a constant, 1/2 s'Ks = 1/2 g'Kg + p'g with p = -Kc.
    As 1'g = S, the linear term is quadratic as well: p'g = 1/2 g'(p1' + 1p')g / S, hence
    Q = K + (p1' + 1p') / S. The curvature along e_i - e_j, on which libsvm works, is that of K, so
    Q need not be positive definite.
    """
    K = (K + K.T) / 2
    W = np.abs(signed_costs)
    c = np.where(signed_costs < 0, W, 0.0)
    S, p = 1 + c.sum(), -K @ c
    tol = _DUAL_TOL * float(np.mean(np.diagonal(K)))
    model = svm.OneClassSVM(kernel="precomputed", nu=S / W.sum(), tol=tol, cache_size=_CACHE_MB)
    model.fit(K + (p[:, None] + p) / S, sample_weight=W)
    g = np.zeros(len(W))
    g[model.support_] = model.dual_coef_[0]
    return g - c
