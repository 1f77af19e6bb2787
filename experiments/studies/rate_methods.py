r"""Estimates of the anomaly rate from scores alone, to compare with that of the package.

Scores of rows that the fit has not seen are a mixture,

    p_u(s) = (1 - pi_n) p_p(s) + pi_n p_n(s),

if labelled rows are like those of their kind among the unlabelled rows. "em" finds the most likely
rate given calibrated scores (Saerens, Latinne and Decaestecker, 2002); "divergence" the mixture of
labelled rows closest to the unlabelled rows in Pearson divergence (du Plessis and Sugiyama, 2014);
"shift" compares how often a row is flagged (Lipton, Wang and Smola, 2018). "pu" and "nu" need no
labelled anomalies or no labelled normal rows: they find the largest share that the labelled kind
can have among the unlabelled rows (Blanchard, Lee and Scott, 2010), which is right only if some
region contains only this kind. "auto" is `riskad.estimate_prior`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, t
from sklearn.base import clone

from riskad import InputError, ShallowRAD, estimate_prior
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes

METHODS = ("auto", "em", "divergence", "shift", "pu", "nu")

_N_SPLITS, _SEED = 5, 0
_CUTS = np.arange(3, 11) / 10

Floats: TypeAlias = NDArray[np.float64]
Found: TypeAlias = tuple[float, tuple[float, float], dict[str, float]]
"""The rate pi_n, its interval, and intermediate results of the method."""

RESAMPLES = 300

_BINS = 50  # for each kind of row


@dataclass(frozen=True)
class Histograms:
    """Numbers of normal rows (p), anomalies (n) and unlabelled rows (u) with scores in each bin.

    s is the mean score of a bin. p, n and u may have a leading axis, over resamples; results
    computed from them then have it, too.
    """

    s: Floats
    p: NDArray[Any]
    n: NDArray[Any]
    u: NDArray[Any]

    @classmethod
    def of(cls, scores: Floats, codes: Codes) -> Histograms:
        """Count scores in bins that hold, for some kind, about equally many rows."""
        kinds = [scores[codes == kind] for kind in (NORMAL, ANOMALY, UNLABELLED)]
        inner = np.arange(1, _BINS) / _BINS
        edges = np.unique(np.concatenate([np.quantile(own, inner) for own in kinds]))
        bins = np.searchsorted(edges, scores, side="right")
        _, bins = np.unique(bins, return_inverse=True)  # without empty bins
        total = np.bincount(bins)
        p, n, u = (
            np.bincount(bins[codes == kind], minlength=len(total))
            for kind in (NORMAL, ANOMALY, UNLABELLED)
        )
        return cls(np.bincount(bins, scores) / total, p, n, u)

    def resampled(self, size: int, rng: np.random.Generator) -> Histograms:
        """Resample all three kinds of row, `size` times."""
        draws = (rng.multinomial(c.sum(), c / c.sum(), size) for c in (self.p, self.n, self.u))
        return Histograms(self.s, *draws)

    def shares(self) -> tuple[Floats, Floats, Floats]:
        """The histograms as distributions."""
        p, n, u = (c / c.sum(axis=-1, keepdims=True) for c in (self.p, self.n, self.u))
        return p, n, u


def find_rate(h: Histograms, method: str, confidence: float, seed: int) -> Found:
    """The rate by "em", "divergence" or "shift"."""
    if method == "shift":
        return shift(h, confidence)
    estimate = {"em": em, "divergence": divergence}[method]
    resamples = estimate(h.resampled(RESAMPLES, np.random.default_rng(seed)))
    pi_n, interval = _bootstrap(float(estimate(h)), resamples, int(h.n.sum()), confidence)
    return pi_n, interval, _separation(h)


def _bootstrap(
    pi_n: float, resamples: Floats, n_n: int, confidence: float
) -> tuple[float, tuple[float, float]]:
    """The estimate minus the bias of resamples, and an interval as wide as they spread.

    Resamples of a few anomalies vary too little: for a mean of n rows, by sqrt((n - 1) / n) and by
    the difference of normal and Student's quantiles. Angles arcsin(sqrt(pi)) have about the same
    spread near 0 and elsewhere.
    """
    tail = (1 - confidence) / 2
    wider = t.ppf(1 - tail, n_n - 1) / norm.ppf(1 - tail) * np.sqrt(n_n / (n_n - 1))
    angles = np.arcsin(np.sqrt(resamples))
    mean = angles.mean()
    centre = 2 * np.arcsin(np.sqrt(pi_n)) - mean
    ends = centre + wider * (np.quantile(angles, [tail, 1 - tail]) - mean)
    low, middle, high = np.sin(np.clip([ends[0], centre, ends[1]], 0, np.pi / 2)) ** 2
    return float(middle), (float(low), float(high))


def _separation(h: Histograms) -> dict[str, float]:
    """AUC of the scores on held-out labelled rows: at 0.5 they carry no information."""
    p, n, _ = h.shares()
    return {"auc": float(n @ (np.cumsum(p) - p / 2))}


def log_ratio(h: Histograms) -> Floats:
    """The calibration log r(s) = log p_n(s) / p_p(s) in each bin, kept within e^-30 and e^30."""
    alpha, beta = calibration_line(h)
    return np.clip(alpha[..., None] + beta[..., None] * h.s, -30, 30)


def calibration_line(h: Histograms) -> tuple[Floats, Floats]:
    """The line log r(s) = alpha + beta s, by logistic regression; s should have a spread near 1.

    Targets are Platt's (1 / (n_p + 2) for normal rows, (n_n + 1) / (n_n + 2) for anomalies) instead
    of 0 and 1, so that kinds that do not overlap also have a solution.
    """
    n_p, n_n = (c.sum(axis=-1, keepdims=True) for c in (h.p, h.n))
    Z = np.stack([np.ones_like(h.s), h.s], axis=1)
    rows = h.p + h.n
    wanted = h.p / (n_p + 2) + h.n * (n_n + 1) / (n_n + 2)
    theta = np.concatenate([np.log(n_n / n_p), np.zeros(n_p.shape)], axis=-1)
    for _ in range(30):
        q = expit(theta @ Z.T)
        gradient = (rows * q - wanted) @ Z
        hessian = np.einsum("...j,ja,jb->...ab", rows * q * (1 - q), Z, Z) + 1e-6 * np.eye(2)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        size = np.linalg.norm(step, axis=-1, keepdims=True)
        theta = theta - step * np.minimum(1, 2 / np.maximum(size, 1e-12))  # Newton, kept short
        if size.max() < 1e-6:
            break
    return theta[..., 0] - np.log(n_n / n_p)[..., 0], theta[..., 1]


def em(h: Histograms) -> Floats:
    """The rate at which the unlabelled rows are most likely, corrected for errors of the
    calibration.

    The steps pi <- mean_u pi r / (1 - pi + pi r) climb the concave likelihood mean_u log(1 - pi +
    pi r) to where the mean of g(s) = (r - 1) / (1 - pi + pi r) over the unlabelled rows is 0. Here
    bisection finds it directly. If r is p_n / p_p, then pi mean_n g + (1 - pi) mean_p g is also 0;
    for any other r the mixture still has

        mean_u g = pi mean_n g + (1 - pi) mean_p g,

    and this, with the means over held-out labelled rows, gives the estimate.
    """
    excess = np.expm1(log_ratio(h))
    p, n, u = h.shares()
    low, high = np.zeros(u.shape[:-1]), np.ones(u.shape[:-1])
    for _ in range(30):
        pi = (low + high) / 2
        uphill = (u * excess / (1 + pi[..., None] * excess)).sum(axis=-1) > 0
        low, high = np.where(uphill, pi, low), np.where(uphill, high, pi)
    g = excess / (1 + pi[..., None] * excess)
    mean_p, mean_n, mean_u = ((share * g).sum(axis=-1) for share in (p, n, u))
    return _solve_mixture(mean_p, mean_n, mean_u)


def _solve_mixture(mean_p: Floats, mean_n: Floats, mean_u: Floats) -> Floats:
    """The pi in [0, 1] nearest to mean_u = pi mean_n + (1 - pi) mean_p, where n scores higher."""
    return np.clip((mean_u - mean_p) / np.maximum(mean_n - mean_p, 1e-12), 0, 1)


def divergence(h: Histograms) -> Floats:
    """The mixture q = (1 - pi) p_p + pi p_n with the smallest Pearson divergence from p_u.

    The divergence is 1/2 mean_u (q / p_u - 1)^2. With q / p_u modelled by Gaussian kernels phi and
    least squares, H = (mean_p phi, mean_n phi), G = mean_u phi phi' and A = (G + lambda I)^-1 H, it
    is up to a constant 1/2 theta' Q theta for theta = (1 - pi, pi), where Q = 2 H'A - A'GA: the
    best pi has a closed form. Kernels use the mean rank of a score among the three kinds, which has
    no unit.
    """
    p, n, u = h.shares()
    share = np.mean([p, n, u], axis=0)
    share = share.reshape(-1, share.shape[-1]).mean(axis=0)
    rank, centres = np.cumsum(share) - share / 2, np.linspace(0, 1, 20)
    phi = np.exp(-0.5 * ((rank[:, None] - centres) / 0.1) ** 2)
    H = np.stack([p @ phi, n @ phi], axis=-1)
    G = np.einsum("...j,ja,jb->...ab", u, phi, phi)
    A = np.linalg.solve(G + 0.01 * np.eye(len(centres)), H)
    A_t = np.swapaxes(A, -1, -2)
    Q = 2 * A_t @ H - A_t @ G @ A
    towards_n = Q[..., 0, 0] - Q[..., 0, 1]
    towards_p = Q[..., 1, 1] - Q[..., 0, 1]
    return np.clip(towards_n / np.maximum(towards_n + towards_p, 1e-12), 0, 1)


def shift(h: Histograms, confidence: float) -> Found:
    """The rate that explains how often unlabelled rows are flagged.

    A row is flagged if r(s) > 1. With FPR, TPR and q the shares of flagged rows among normal rows,
    anomalies and unlabelled rows, q = (1 - pi) FPR + pi TPR. The interval holds all pi for which
    the two sides differ by at most t standard errors (Fieller): everything, if TPR = FPR. Shares
    for the interval are (k + 1) / (n + 2), so that none counts as certain.
    """
    flagged = log_ratio(h) > 0
    k = np.array([c[flagged].sum() for c in (h.p, h.n, h.u)])
    n = np.array([c.sum() for c in (h.p, h.n, h.u)])
    fpr, tpr, q = k / n
    share = (k + 1) / (n + 2)
    pi = np.linspace(0, 1, 2001)
    sides = np.stack([1 - pi, pi, -np.ones_like(pi)])
    error = np.sqrt((share * (1 - share) / n) @ sides**2)
    distance = np.abs(share @ sides) / error
    limit = max(t.ppf(0.5 + confidence / 2, n[1] - 1), distance.min())
    inside = pi[distance <= limit]
    pi_n = float(_solve_mixture(fpr, tpr, q))
    seen = {"flagged": float(q), "tpr": float(tpr), "fpr": float(fpr)}
    interval = (min(float(inside[0]), pi_n), max(float(inside[-1]), pi_n))
    return pi_n, interval, seen | _separation(h)


def estimate_by(method: str, X: np.ndarray, y: Codes) -> tuple[float, float, float]:
    """The rate by a method, and both ends of its 95 % interval."""
    if method == "auto":
        return tuple(estimate_prior(X, y))  # type: ignore[return-value]
    n, m = (int((y == kind).sum()) for kind in (NORMAL, ANOMALY))
    if (n < 2 and method != "nu") or (m < 2 and method != "pu"):
        raise InputError(
            f"{method} takes 2 labelled rows of a kind, got {n} normal, {m} anomalies."
        )
    if method in ("pu", "nu"):
        pi_n, (low, high) = _from_one_kind(X, y, method)
    else:
        scores = _cross_fit(X, y, ShallowRAD(lam="tight", tol=1e-3))
        pi_n, (low, high), _ = find_rate(Histograms.of(scores, y), method, 0.95, _SEED)
    return float(pi_n), float(low), float(high)


def _cross_fit(X: np.ndarray, codes: Codes, estimator: Any) -> Floats:
    """Anomaly scores of all rows, each by a fit that has not seen it, of labelled spread 1."""
    scores = np.empty(len(codes))
    for held in _folds(codes):
        fitted = clone(estimator).fit(np.delete(X, held, axis=0), np.delete(codes, held))
        scores[held] = -fitted.score_samples(X[held])
    labelled = scores[codes != UNLABELLED]
    return (scores - labelled.mean()) / (labelled.std() or 1.0)


def _folds(codes: Codes) -> Iterator[NDArray[Any]]:
    """Row numbers to hold out, fold by fold, with an even share of each kind."""
    rng = np.random.default_rng(_SEED)
    kinds = np.unique(codes)
    n_splits = min(_N_SPLITS, *(int((codes == kind).sum()) for kind in kinds))
    fold = np.empty(len(codes), dtype=int)
    for rows in (np.flatnonzero(codes == kind) for kind in kinds):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % n_splits
    for k in range(n_splits):
        yield np.flatnonzero(fold == k)


def _from_one_kind(X: np.ndarray, codes: Codes, method: str) -> tuple[float, tuple[float, float]]:
    """The rate from normal and unlabelled rows ("pu"), or anomalies and unlabelled rows ("nu")."""
    kind = NORMAL if method == "pu" else ANOMALY
    rows = np.flatnonzero((codes == kind) | (codes == UNLABELLED))
    stand_in = np.where(codes[rows] == kind, kind, -kind).astype(np.int16)
    scorer = ShallowRAD(risk="pn", prior=0.5, lam=0.01, tol=1e-3)
    likeness, own = -kind * _cross_fit(X[rows], stand_in, scorer), stand_in == kind
    shares, _ = _largest_share(likeness[own], likeness[~own], 0.95)
    low, pi_n, high = map(float, 1 - shares[::-1] if method == "pu" else shares)
    return pi_n, (low, high)


def _largest_share(known: Floats, unlabelled: Floats, confidence: float) -> tuple[Floats, float]:
    """The largest share pi_k that the known kind can have among the unlabelled rows: low, estimate,
    high.

    In any region C the unlabelled rows have at least the rows of the known kind, U(C) >= pi_k K(C),
    so that pi_k <= U(C) / K(C), with equality if the other kind has no rows there. C is where rows
    look most like the known kind, with K(C) = 0.3, 0.4, ..., 1. If one of these regions is free of
    the other kind, pi_k is the smallest ratio, and lies between the smallest lower and the smallest
    upper limit of all; the limits hold together (Bonferroni). The estimate is the ratio with the
    smallest upper limit; its K(C) is also returned.
    """
    n_k, n_u = len(known), len(unlabelled)
    cuts = np.quantile(known, 1 - _CUTS, method="lower")
    K, U = ((rows[:, None] >= cuts).mean(axis=0) for rows in (known, unlabelled))
    U = np.maximum(U, 1 / n_u)
    error = np.sqrt((1 - K) / (K * n_k) + (1 - U) / (U * n_u))  # of log U / K
    margin = np.exp(t.ppf(1 - (1 - confidence) / (2 * len(_CUTS)), n_k - 1) * error)
    ratio = U / K
    best = int(np.argmin(ratio * margin))
    shares = [(ratio / margin).min(), ratio[best], (ratio * margin).min()]
    return np.minimum(shares, 1), float(K[best])
