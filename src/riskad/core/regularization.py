r"""Theorem 1: the regularisation that keeps the unbiased rAD objective non-negative.

The rad risk contains -a pi_n R_n^+, so its minimum over w can fall below zero, which is impossible
for a true risk, and the fit then follows noise. With linear scores g(x) = <w, phi(x)>, the theorem
bounds the anomalies' part of the risk from below and sets lambda so that lambda R(w) covers the
rest:

    l2, R(w) = ||w||_2^2:  lambda >= ((1-a) b2 + a b1)^2 pi_n c^2 / (4 (1-a) b2 b3)
    l1, R(w) = ||w||_1:    lambda >= ((1-a) b2 + a b1) pi_n c_inf

with c = max ||phi(x)||_2 and c_inf = max ||phi(x)||_inf over the labelled anomalies. (The statement
of the theorem prints b2 b3 for b2 in the l1 case; its proof has, and needs, b2.)

The intercept is one more feature, the constant B (by default 1): its weight b / B is penalised with
the others and B is included in c and c_inf. An unpenalised intercept would void the guarantee.

**The tight value.** The theorem bounds h(t) = l(-t) - a l(t), the loss of one anomaly with score t,
through its three constants. Bounding h itself is tighter: with

    q = sup_t -h(t) / t^2   (l2),        q = sup_t -h(t) / |t|   (l1)

we have pi_n mean h(g) >= -pi_n q mean g^2, and mean g^2 <= s ||w||^2 for the largest eigenvalue s
of mean phi phi^T (l1: mean |g| <= s ||w||_1 for the largest column mean s of |phi|). So lambda =
pi_n q s is safe, for every loss, and never above the theorem's: q is at most the theorem's factor
and s at most c^2 (c_inf). With a single labelled anomaly it cannot be smaller without using the
other rows. For squared loss q = 2a / (1-a), for modified Huber 4a / (1-a): it vanishes with a, as
it should.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.losses import Loss, get_loss

__all__ = ["PENALTIES", "Reach", "measure_reach", "theorem_lambda", "theorem_margin"]

PENALTIES = ("l2", "l1")

# Above this many features the d x d matrix for the tight l2 value is too expensive.
_MAX_SPECTRAL = 2000


@dataclass(frozen=True)
class Reach:
    """How far the labelled anomalies reach in feature space, including the intercept's B.

    Each norm is given twice: the theorem's maximum over anomalies, and the mean that is sufficient.
    """

    c: float
    """max ||phi||_2."""
    c_inf: float
    """max ||phi||_inf."""
    spectral: float
    """Largest eigenvalue of mean phi phi^T (c^2 in very many dimensions): at most c^2."""
    column_mean: float
    """Largest column mean of |phi|: at most c_inf."""


def measure_reach(
    feature_blocks: Iterable[np.ndarray],
    constant: float = 1.0,
    weights: Iterable[np.ndarray | None] = itertools.repeat(None),
) -> Reach:
    """Measure the reach of the anomalies, whose features come in dense blocks of rows.

    `constant` is B, the feature of the intercept; 0 for none. If the risk weights its rows,
    `weights` are the weights of each block, none of them zero.
    """
    total, squared_norm, maximum = 0.0, 0.0, 0.0
    absolute: np.ndarray | float = 0.0
    products: np.ndarray | float | None = 0.0
    for block, weight in zip(feature_blocks, weights, strict=False):
        if not block.size:
            continue
        if not np.isfinite(block).all():  # max() would ignore a NaN
            raise InputError("the features of the labelled anomalies hold NaN or infinity.")
        phi = np.column_stack([block, np.full(len(block), constant)]) if constant else block
        weight = np.ones(len(phi)) if weight is None else weight
        total += float(weight.sum())
        squared_norm = max(squared_norm, float(np.einsum("ij,ij->i", phi, phi).max()))
        maximum = max(maximum, float(np.abs(phi).max()))
        absolute = absolute + weight @ np.abs(phi)
        wide = phi.shape[1] > _MAX_SPECTRAL
        products = None if wide or products is None else products + (phi.T * weight) @ phi
    if total == 0:
        raise InputError("Theorem 1 needs at least one labelled anomaly, and there is none.")
    spectral = squared_norm if products is None else float(np.linalg.eigvalsh(products / total)[-1])
    return Reach(
        c=squared_norm**0.5,
        c_inf=maximum,
        spectral=min(spectral, squared_norm),
        column_mean=float(np.max(absolute / total)),
    )


def theorem_lambda(
    reach: Reach | np.ndarray,
    loss: str | Loss = "modified_huber",
    *,
    a: float = 0.1,
    prior: float = 0.8,
    penalty: str = "l2",
    tight: bool = False,
    fit_intercept: bool = True,
    intercept_scaling: float = 1.0,
) -> float:
    """Smallest lambda for which a theorem keeps the rad objective non-negative.

    Parameters
    ----------
    reach : Reach or array of shape (n_anomalies, n_features)
        The labelled anomalies' features phi(x), in the coordinates of w, or their `Reach`.
    loss : str or Loss
        Margin loss.
    a, prior : float
        Mixing weight and pi_p, as in the rad risk; a = 0 is the pn risk.
    penalty : {"l2", "l1"}
        ||w||_2^2 or ||w||_1.
    tight : bool, default=False
        False for the paper's value, True for the smaller one that is also safe (see above).
    fit_intercept : bool, default=True
        Whether to add a constant feature to an array of features.
    intercept_scaling : float, default=1.0
        B, the value of that feature, as in `riskad.ShallowRAD`.

    Returns
    -------
    float
        The lambda.

    Examples
    --------
    >>> anomalies = np.array([[3.0, 4.0], [0.0, 1.0]])
    >>> round(theorem_lambda(anomalies, "squared"), 3)
    2.441
    >>> round(theorem_lambda(anomalies, "squared", tight=True), 3)
    0.6
    """
    check_choice("penalty", penalty, PENALTIES)
    a = 0.0 if a == 0 else check_in_interval("a", a, 0, 1)
    pi_n = 1 - check_in_interval("prior", prior, 0, 1)
    check_in_interval("intercept_scaling", intercept_scaling, 0, np.inf)
    loss = get_loss(loss)
    if not isinstance(reach, Reach):
        constant = intercept_scaling if fit_intercept else 0.0
        reach = measure_reach([np.atleast_2d(np.asarray(reach, dtype=float))], constant)
    b1, b2, b3 = loss.theorem_constants
    slope = (1 - a) * b2 + a * b1
    power = 2 if penalty == "l2" else 1
    factor = slope**2 / (4 * (1 - a) * b2 * b3) if power == 2 else slope
    if not tight:
        return pi_n * factor * (reach.c**2 if power == 2 else reach.c_inf)
    size = reach.spectral if power == 2 else reach.column_mean
    return pi_n * min(factor, _worst_ratio(loss, a, power)) * size


def theorem_margin(
    anomaly_scores: np.ndarray,
    penalty_value: float,
    lam: float,
    loss: str | Loss = "modified_huber",
    *,
    a: float = 0.1,
    prior: float = 0.8,
) -> float:
    r"""Theorem 1 (ii) for a given w: how far it is from failing; >= 0 proves R(w) >= 0.

    lambda R(w) - ((1-a) b2 + a b1) pi_n mean |g(x_n)| + (1-a) pi_n b2 b3

    Parameters
    ----------
    anomaly_scores : array
        g(x) of the labelled anomalies.
    penalty_value : float
        R(w), including the intercept with its weight b / B.
    lam : float
        lambda.
    loss, a, prior
        As in `theorem_lambda`.

    Returns
    -------
    float
        At least 0 if w cannot make the objective negative.

    Examples
    --------
    >>> theorem_margin(np.array([0.0]), penalty_value=0.0, lam=1.0) > 0
    True
    """
    a = 0.0 if a == 0 else check_in_interval("a", a, 0, 1)
    pi_n = 1 - check_in_interval("prior", prior, 0, 1)
    b1, b2, b3 = get_loss(loss).theorem_constants
    slope = (1 - a) * b2 + a * b1
    mean_size = float(np.mean(np.abs(anomaly_scores)))
    return lam * penalty_value - slope * pi_n * mean_size + (1 - a) * pi_n * b2 * b3


@functools.lru_cache(maxsize=256)
def _worst_ratio(loss: Loss, a: float, power: int) -> float:
    r"""sup_{s > 0} -h(-s) / s^power with h(t) = l(-t) - a l(t).

    Only negative scores matter: for t >= 0 l(-t) >= l(t), so that h >= 0. The ratio has one peak
    in log s, or rises to its limit a c (l1, linear-odd losses), which it reaches at the grid's end.
    """

    def ratio(log_s: np.ndarray | float) -> np.ndarray:
        s = np.exp(np.asarray(log_s, dtype=float))
        return (a * loss.value(-s) - loss.value(s)) / s**power

    # As a nears 1 the peak moves to s of the order of 1 - a.
    grid = np.linspace(np.log(1e-4 * (1 - a)), np.log(1e8), 2401)
    best = int(np.argmax(ratio(grid)))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    peak = minimize_scalar(
        lambda s: -float(ratio(s)), bounds=around, method="bounded", options={"xatol": 1e-10}
    )
    found = max(float(-peak.fun), float(ratio(grid[best])), 0.0)
    # The search stops slightly below the supremum; a safe value is above it.
    return found * (1 + 1e-6)
