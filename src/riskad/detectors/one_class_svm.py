r"""One-class SVMs: without labels, and after Munoz-Mari et al. with some.

Both are sums of Gaussians around training rows z_i, in standardised columns:

    g(x) = sum_i coef_i k(x, z_i),   k(x, z) = exp(-gamma ||x - z||^2),   normal where g >= offset.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import laplacian
from sklearn import svm
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph
from sklearn.utils import gen_batches

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts, count_labels
from riskad.detectors.base import MOST_SAMPLED, Detector, refuse_non_finite
from riskad.detectors.label_needs import require_labels
from riskad.rows.linear import column_statistics
from riskad.rows.memory import RowBlocks
from riskad.rows.sources import as_rows, sampled, unpacked
from riskad.storage.fields import (
    FLAG,
    POSITIVE,
    SEED,
    SHARE,
    SIZE,
    Array,
    Fields,
    Maybe,
    Number,
    Text,
)

__all__ = ["OneClassSVM", "SemiSupervisedOneClassSVM"]


# Default maximum of unlabelled rows: the graph's m x m system costs m^3, the biased SVM about m^2.
_UNLABELLED_ROWS = {"laplacian": 2_000, "biased": 10_000}
_UNLABELLED_SIDES = {"outside": ANOMALY, "normal": NORMAL}

_CACHE_MB = 500  # libsvm's default of 200 holds too few kernel rows of tens of thousands
_DUAL_TOL = 1e-7  # of the mean k(z, z): the allowed gap in the optimality conditions
_KERNEL_ENTRIES = 2**23  # scored at a time: 64 MiB
# Squares of larger numbers overflow; a Gaussian is zero long before.
_FAR = 1e100


class _KernelDetector(Detector):
    """A detector g(x) = sum_i coef_i k(x, z_i); a subclass's `fit` finds z_i, coef_i, offset."""

    gamma: float | None
    scale: bool

    _state_fields: ClassVar[Fields] = {
        "gamma": Maybe(POSITIVE),
        "scale": FLAG,
        "gamma_": POSITIVE,
        "_mean": Array("f", ("n_features_in_",)),
        "_scale": Array("f", ("n_features_in_",), low=np.nextafter(0, 1), infinite=True),
        "anchors_": Array("f", ("anchors", "n_features_in_")),
        "coef_": Array("f", ("anchors",)),
    }

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        """X as a dense float64 array of finite numbers."""
        X = self._check_table(X, reset, dtype=np.float64)
        if not np.isfinite(X).all():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        return X

    def _check_width(self) -> None:
        if self.gamma is not None:
            check_in_interval("gamma", self.gamma, 0, np.inf, "None is 1 / n_features.")

    def _learn_columns(self, X: np.ndarray) -> np.ndarray:
        """Learn the kernel's width and the columns' scale from rows; return them scaled."""
        n, d = X.shape
        self.gamma_ = 1 / d if self.gamma is None else float(self.gamma)
        self._mean, self._scale = np.zeros(d), np.ones(d)
        if self.scale:
            rows = RowBlocks(X, np.zeros(n, dtype=np.int8))
            statistics = column_statistics(rows)
            if not statistics.finite:
                refuse_non_finite(X, getattr(self, "feature_names_in_", None))
            self._mean, self._scale = statistics.mean, statistics.scale
        return self._standardised(X)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        """Rows in the units of the kernel; a column that was constant in training becomes 0."""
        with np.errstate(over="ignore"):
            return np.clip((X - self._mean) / self._scale, -_FAR, _FAR)

    def _keep(self, anchors: np.ndarray, coef: np.ndarray, offset: float) -> None:
        self.anchors_, self.coef_, self.offset_ = anchors, coef, float(offset)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        batches = gen_batches(len(X), max(1, _KERNEL_ENTRIES // len(self.anchors_)))
        return np.concatenate([self._kernel(X[batch]) @ self.coef_ for batch in batches])

    def _kernel(self, X: np.ndarray) -> np.ndarray:
        return rbf_kernel(self._standardised(X), self.anchors_, gamma=self.gamma_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False  # centred columns have no zeros
        return tags


class OneClassSVM(_KernelDetector):
    r"""The one-class SVM as the paper's experiments use it (Schoelkopf et al. 2001).

        min  1/2 ||w||^2 - rho + 1/(nu n) sum_i xi_i
        s.t. <w, phi(x_i)> >= rho - xi_i,  xi_i >= 0

    for the Gaussian kernel over standardised columns. It treats every training row as normal. The
    published runs fit it to all of them, whatever their label; if some anomalies are known, it is
    better to leave them out, as `use_labels` does.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Upper bound on the share of training rows that are judged anomalous.
    gamma : float, default=None
        Width of the kernel exp(-gamma ||x - z||^2). None means 1 / n_features.
    scale : bool, default=True
        Whether to standardise columns, by the rows it is fitted to.
    use_labels : bool, default=False
        False fits to all rows; y is ignored and may be None. True leaves out the rows labelled -1.

    Attributes
    ----------
    anchors_, coef_ : ndarray
        Support vectors, in standardised columns, and their coefficients: `score_samples` is
        sum_i coef_i k(x, anchor_i).
    gamma_ : float
        The kernel's width.
    offset_ : float
        rho, in the units of `score_samples`.
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(0, 1, (500, 2))
    >>> OneClassSVM().fit(X).predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _state_fields: ClassVar[Fields] = {"nu": SHARE, "use_labels": FLAG}

    def __init__(
        self,
        nu: float = 0.1,
        *,
        gamma: float | None = None,
        scale: bool = True,
        use_labels: bool = False,
    ):
        self.nu = nu
        self.gamma = gamma
        self.scale = scale
        self.use_labels = use_labels

    def fit(self, X: Any, y: Any = None) -> OneClassSVM:
        """Fit to rows X; of the labels y only -1 counts, and only with `use_labels`."""
        if self.use_labels:
            X, codes, _ = self._check_training(X, y)
            require_labels(
                "OneClassSVM with use_labels=True", count_labels(codes), (NORMAL, UNLABELLED)
            )
            X = X[codes != ANOMALY]
        else:
            X = self._check_unlabelled(X)
        _check_nu(self.nu)
        self._check_width()
        Z = self._learn_columns(X)
        model = svm.OneClassSVM(nu=self.nu, gamma=self.gamma_, cache_size=_CACHE_MB).fit(Z)
        self._keep(model.support_vectors_, model.dual_coef_[0], model.offset_[0])
        return self

    def _check_unlabelled(self, X: Any) -> np.ndarray:
        """Rows whose labels, if any, are ignored."""
        self._forget_decisions()
        X, _, _ = unpacked(X)
        source = as_rows(X)
        if source is None:
            return self._check_rows(X, reset=True)
        rows = self._check_rows(sampled(source, MOST_SAMPLED, seed=0).X, reset=True)
        self._check_columns(source, reset=True)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.use_labels)
        return tags


class SemiSupervisedOneClassSVM(_KernelDetector):
    r"""Semi-supervised one-class SVMs after Munoz-Mari et al. (2010, IEEE TGRS 48(8)).

    kernel="laplacian" is a one-class SVM over the labelled rows,

        min  1/2 ||w||^2 - rho + C_p sum_P xi_i + C_n sum_N xi_j,  xi >= 0
        s.t. <w, phi(x_i)> >= rho - xi_i on P,   <w, phi(x_j)> <= rho + xi_j on N
        C_p = 1 / (nu n_p),   C_n = anomaly_cost C_p,

    in which the unlabelled rows bend the kernel (Sindhwani, Niyogi and Belkin 2005). With K the
    Gaussian Gram matrix of the graph's rows, L the normalised Laplacian of their symmetric
    nearest-neighbour graph (an edge weighs 1 where either row is among the nearest of the other)
    and M = `manifold` L,

        K~(x, z) = K(x, z) - k_x' (I + M K)^{-1} M k_z.

    Since (I + M K)^{-1} M K = I - (I + M K)^{-1}, it is K~ = K (I + M K)^{-1} on the graph's rows,
    and dual coefficients s, zero on the unlabelled rows, give the score g(x) = k_x' (I + M K)^{-1}
    s.

    kernel="biased" is a two-class SVM over all rows,

        min  1/2 ||w||^2 + C_u sum_U xi_i + C_p sum_P xi_i + C_n sum_N xi_i,  xi >= 0
        s.t. t_i (<w, phi(x_i)> + b) >= 1 - xi_i,   t = +1 on P, -1 on N.

    unlabelled="outside" puts t = -1 on U (as in the citation, after Liu et al. 2003). Since the
    unlabelled rows are mostly normal, errors on labelled normal rows cost more: C_u = C, C_p = bias
    C n_u / n_p, so that in total they cost `bias` times as much. With many rows it is inside where
    bias p(x | normal) > p(x), and a row is more likely normal than not where 2 pi_p p(x | normal) >
    p(x): hence bias=2, for pi_p near 1. unlabelled="normal" puts t = +1 on U, with C_u = C_p = C;
    without unlabelled rows C_p = C, too.

    Labelled anomalies are outside in all of them, with C_n = anomaly_cost C_p. In "laplacian" they
    change nothing if normal rows alone already leave them outside. The published column
    "semi-OC-SVM" most resembles kernel="biased" with unlabelled="normal": a plain SVC that treats
    unlabelled rows as normal. Rank by its scores: if the unlabelled rows hold more anomalies than
    are labelled, its `predict` hardly finds any.

    Parameters
    ----------
    kernel : {"laplacian", "biased"}, default="laplacian"
        Which of the two. "laplacian" is the graph's, not exp(-gamma ||x - z||_1).
    nu : float in (0, 1), default=0.1
        Laplacian only. Without labelled anomalies it bounds the share of labelled normal rows that
        are judged anomalous.
    manifold : float >= 0, default=1.0
        Laplacian only. How strongly scores are smoothed along the graph; 0 ignores the unlabelled
        rows.
    n_neighbors : int, default=10
        Laplacian only. Number of nearest neighbours that a row of the graph is joined to.
    unlabelled : {"outside", "normal"}, default="outside"
        Biased only. The side of the unlabelled rows.
    C : float, default=1.0
        Biased only. Cost of an error on an unlabelled row.
    bias : float, default=2.0
        Biased only, for unlabelled="outside". Cost of errors on all labelled normal rows, in units
        of the cost on all unlabelled rows.
    anomaly_cost : float, default=1.0
        C_n / C_p: the cost of an error on a labelled anomaly, relative to a labelled normal row.
    gamma : float, default=None
        Width of the kernel exp(-gamma ||x - z||^2). None means 1 / n_features.
    scale : bool, default=True
        Whether to standardise columns, by all training rows.
    unlabelled_rows : int, default=None
        Maximum number of unlabelled rows, drawn at random; labelled rows are always used. It
        bounds the cost: one m x m system for the m rows of the graph, and about m^2 for "biased".
        None means 2,000 for "laplacian" and 10,000 for "biased".
    random_state : int, default=None
        Seed of that draw. None means 0: the same data gives the same model.

    Attributes
    ----------
    anchors_, coef_ : ndarray
        Rows, in standardised columns, and their coefficients: `score_samples` is
        sum_i coef_i k(x, anchor_i). Rows of the graph for "laplacian", support vectors otherwise.
    gamma_ : float
        The kernel's width.
    offset_ : float
        rho for "laplacian", -b for "biased".
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> x = [[0.0, 0.0], [4.0, 4.0]]
    >>> SemiSupervisedOneClassSVM("biased").fit(X, y).predict(x)
    array([ 1, -1])
    >>> normal, anomaly = SemiSupervisedOneClassSVM("laplacian").fit(X, y).score_samples(x)
    >>> bool(normal > anomaly)
    True
    """

    _state_fields: ClassVar[Fields] = {
        "kernel": Text(choices=_UNLABELLED_ROWS),
        "nu": SHARE,
        "manifold": Number(0),
        "n_neighbors": SIZE,
        "unlabelled": Text(choices=_UNLABELLED_SIDES),
        "C": Number(0),
        "bias": Number(0),
        "anomaly_cost": Number(0),
        "unlabelled_rows": Maybe(SIZE),
        "random_state": SEED,
    }

    def __init__(
        self,
        kernel: str = "laplacian",
        *,
        nu: float = 0.1,
        manifold: float = 1.0,
        n_neighbors: int = 10,
        unlabelled: str = "outside",
        C: float = 1.0,
        bias: float = 2.0,
        anomaly_cost: float = 1.0,
        gamma: float | None = None,
        scale: bool = True,
        unlabelled_rows: int | None = None,
        random_state: int | None = None,
    ):
        self.kernel = kernel
        self.nu = nu
        self.manifold = manifold
        self.n_neighbors = n_neighbors
        self.unlabelled = unlabelled
        self.C = C
        self.bias = bias
        self.anomaly_cost = anomaly_cost
        self.gamma = gamma
        self.scale = scale
        self.unlabelled_rows = unlabelled_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedOneClassSVM:
        """Fit to rows X with labels y: +1 normal, -1 anomaly, 0 unlabelled."""
        X, codes, _ = self._check_training(X, y)
        self._check_settings()
        self._check_kinds(count_labels(codes))
        Z = self._learn_columns(X)
        rows = self._rows_used(codes)
        fit = self._fit_laplacian if self.kernel == "laplacian" else self._fit_biased
        fit(Z[rows], codes[rows])
        return self

    def _check_settings(self) -> None:
        check_choice("kernel", self.kernel, _UNLABELLED_ROWS)
        check_choice("unlabelled", self.unlabelled, _UNLABELLED_SIDES)
        _check_nu(self.nu)
        check_in_interval("manifold", self.manifold, 0, 1e12, closed=True)
        for name in ("C", "bias", "anomaly_cost"):
            check_in_interval(name, getattr(self, name), 0, np.inf)
        self._check_width()
        _check_whole("n_neighbors", self.n_neighbors)
        if self.unlabelled_rows is not None:
            _check_whole("unlabelled_rows", self.unlabelled_rows)

    def _check_kinds(self, counts: LabelCounts) -> None:
        who = f"kernel={self.kernel!r}"
        if self.kernel == "laplacian":
            require_labels(who, counts, (NORMAL,))
        elif self.unlabelled == "outside":
            require_labels(
                f"{who} with unlabelled='outside'", counts, (NORMAL,), (UNLABELLED, ANOMALY)
            )
        else:
            require_labels(
                f"{who} with unlabelled='normal'", counts, (ANOMALY,), (NORMAL, UNLABELLED)
            )

    def _rows_used(self, codes: np.ndarray) -> np.ndarray:
        """All labelled rows, then as many of the unlabelled rows as requested."""
        labelled, unlabelled = np.flatnonzero(codes), np.flatnonzero(codes == UNLABELLED)
        most = (
            _UNLABELLED_ROWS[self.kernel]
            if self.unlabelled_rows is None
            else int(self.unlabelled_rows)
        )
        if len(unlabelled) > most:
            rng = np.random.default_rng(0 if self.random_state is None else self.random_state)
            unlabelled = np.sort(rng.choice(unlabelled, most, replace=False))
        return np.concatenate([labelled, unlabelled])

    def _fit_laplacian(self, Z: np.ndarray, codes: np.ndarray) -> None:
        n_l = np.count_nonzero(codes)
        K = rbf_kernel(Z, gamma=self.gamma_)
        M = self.manifold * _graph_laplacian(Z, self.n_neighbors)
        identity = np.eye(len(Z))
        # Only the columns of labelled rows of (I + M K)^{-1} meet a non-zero coefficient.
        inverse = np.linalg.solve(identity + M @ K, identity[:, :n_l])
        s, rho = _one_class_dual(K[:n_l] @ inverse, self._signed_costs(codes[:n_l]))
        self._keep(Z, inverse @ s, rho)

    def _signed_costs(self, codes: np.ndarray) -> np.ndarray:
        """C_p on normal rows and -C_n on anomalies."""
        C_p = 1 / (self.nu * np.count_nonzero(codes == NORMAL))
        return np.where(codes == NORMAL, C_p, -self.anomaly_cost * C_p)

    def _fit_biased(self, Z: np.ndarray, codes: np.ndarray) -> None:
        side = np.where(codes == UNLABELLED, _UNLABELLED_SIDES[self.unlabelled], codes)
        C_p = self._normal_cost(codes)
        cost = np.array([1.0, C_p, self.anomaly_cost * C_p])[codes]  # by code: 0, +1, -1
        model = svm.SVC(C=self.C, gamma=self.gamma_, cache_size=_CACHE_MB)
        model.fit(Z, side, sample_weight=cost)
        self._keep(model.support_vectors_, model.dual_coef_[0], -model.intercept_[0])

    def _normal_cost(self, codes: np.ndarray) -> float:
        """C_p / C; without unlabelled rows there is nothing to outweigh."""
        seen = count_labels(codes)
        if self.unlabelled == "normal" or not seen.unlabelled:
            return 1.0
        return self.bias * seen.unlabelled / seen.normal


def _graph_laplacian(Z: np.ndarray, n_neighbors: int) -> Any:
    """I - D^{-1/2} W D^{-1/2}; W_ij = 1 where i or j is among the other's nearest, D its sums."""
    nearest = kneighbors_graph(Z, min(n_neighbors, len(Z) - 1))
    return laplacian(nearest.maximum(nearest.T), normed=True)


def _one_class_dual(K: np.ndarray, signed_costs: np.ndarray) -> tuple[np.ndarray, float]:
    r"""Minimise 1/2 s'Ks over sum s = 1 with s in [0, C_p] on P and in [-C_n, 0] on N.

    Returns s and rho. libsvm solves min 1/2 g'Qg, 0 <= g <= W, sum g = S. Put g = s + c with
    c = (0 on P, C_n on N): then W = |costs|, S = 1 + sum c and, up to a constant,
    1/2 s'Ks = 1/2 g'Kg + p'g with p = -Kc. As 1'g = S, the linear term is quadratic as well:
    p'g = 1/2 g'(p1' + 1p')g / S, hence Q = K + (p1' + 1p') / S. The curvature along e_i - e_j,
    on which libsvm works, is that of K, so Q need not be positive definite.
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
    s = g - c
    return s, _level(K @ s, g / W)


def _level(scores: np.ndarray, filled: np.ndarray) -> float:
    """The rho of the optimality conditions, from the share of its box that each row fills.

    A score is >= rho where the box is empty, <= rho where it is full, and rho in between.
    """
    empty, full = filled < 1e-8, filled > 1 - 1e-8
    free = ~(empty | full)
    if free.any():
        return float(scores[free].mean())
    # sum g lies strictly between 0 and sum W, so some box is empty and some is full.
    return float((scores[empty].min() + scores[full].max()) / 2)


def _check_nu(nu: Any) -> None:
    check_in_interval("nu", nu, 0, 1, "It bounds the share of rows taken for normal that fall out.")


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")
