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

__all__ = ["PENALTIES", "Reach", "measure_reach", "theorem_lambda"]

PENALTIES = ("l2", "l1")

# Above this many features the d x d matrix for the tight l2 value is too expensive: 32 MB here, and
# its eigenvalues take time d^3.
_MAX_SPECTRAL = 2000


@dataclass(frozen=True)
class Reach:
    """How far the labelled anomalies reach in feature space, including the intercept's B.

    Each norm is given twice: the theorem's maximum over anomalies, and the mean that is sufficient.
    """

    c: float  # max ||phi||_2
    c_inf: float  # max ||phi||_inf
    spectral: float  # largest eigenvalue of mean phi phi^T (c^2 in very many dimensions)
    column_mean: float  # largest column mean of |phi|


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
    for block, block_weights in zip(feature_blocks, weights, strict=False):
        if not block.size:
            continue
        if not np.isfinite(block).all():  # max() would ignore a NaN
            raise InputError("the features of the labelled anomalies hold NaN or infinity.")
        # The intercept is penalised like a weight, so its feature B counts like the others.
        phi = np.column_stack([block, np.full(len(block), constant)]) if constant else block
        # The theorem's maxima below are over rows of any weight; the means weigh them.
        weight = np.ones(len(phi)) if block_weights is None else block_weights
        total += float(weight.sum())
        squared_norm = max(squared_norm, float(np.einsum("ij,ij->i", phi, phi).max()))
        maximum = max(maximum, float(np.abs(phi).max()))
        absolute = absolute + weight @ np.abs(phi)
        wide = phi.shape[1] > _MAX_SPECTRAL
        # One d x d matrix for all blocks: its eigenvalue is that of all anomalies together.
        products = None if wide or products is None else products + (phi.T * weight) @ phi
    if total == 0:
        raise InputError("Theorem 1 needs at least one labelled anomaly, and there is none.")
    spectral = squared_norm if products is None else float(np.linalg.eigvalsh(products / total)[-1])
    return Reach(
        c=squared_norm**0.5,
        c_inf=maximum,
        # It never exceeds c^2; its rounding may.
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
    intercept_scaling : float, default=1.0
        B, the value of the constant feature that is added to an array of features, as in
        `riskad.ShallowRAD`; 0 adds none.

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
    largest = np.finfo(float).max
    check_in_interval("intercept_scaling", intercept_scaling, 0, largest, closed=True)
    loss = get_loss(loss)
    if not isinstance(reach, Reach):
        phi = np.atleast_2d(np.asarray(reach, dtype=float))
        reach = measure_reach([phi], intercept_scaling)
    if loss.theorem_constants is None:
        raise InputError(
            f"the {loss.name} loss has no constants of Theorem 1 (theorem_constants), from which "
            "lambda would follow. Give lam as a number, or choose another loss."
        )
    b1, b2, b3 = loss.theorem_constants
    slope = (1 - a) * b2 + a * b1
    if penalty == "l2":
        # From lam t^2 / c^2 - slope pi_n t + (1 - a) pi_n b2 b3 >= 0 for every size t of a score:
        # its discriminant must not be positive.
        factor = slope**2 / (4 * (1 - a) * b2 * b3)
        power, size, tight_size = 2, reach.c**2, reach.spectral
    else:
        factor, power, size, tight_size = slope, 1, reach.c_inf, reach.column_mean
    if not tight:
        return pi_n * factor * size
    # The ratio never exceeds the factor; the numerical search for it may, by rounding.
    return pi_n * min(factor, _worst_ratio(loss, a, power)) * tight_size


# All lambdas of a grid share one loss and a, and the search evaluates the loss 2,400 times.
@functools.lru_cache(maxsize=256)
def _worst_ratio(loss: Loss, a: float, power: int) -> float:
    r"""sup_{s > 0} -h(-s) / s^power with h(t) = l(-t) - a l(t).

    Only negative scores matter: for t >= 0 l(-t) >= l(t), so that h >= 0. The ratio has one peak
    in log s, or rises to its limit a c (l1, linear-odd losses), which it reaches at the grid's end.
    """

    def ratio(log_s: np.ndarray | float) -> np.ndarray:
        s = np.exp(np.asarray(log_s, dtype=float))
        return (a * loss.value(-s) - loss.value(s)) / s**power

    # As a nears 1 the peak moves to s of the order of 1 - a. At s = 1e8 the ratio is within about
    # 1e-8 of its limit; neighbours on the grid differ by 1 %, and a local search refines the peak.
    grid = np.linspace(np.log(1e-4 * (1 - a)), np.log(1e8), 2401)
    # A grid before the local search: the latter alone may stop at the flat end of the ratio.
    best = int(np.argmax(ratio(grid)))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    peak = minimize_scalar(
        lambda s: -float(ratio(s)), bounds=around, method="bounded", options={"xatol": 1e-10}
    )
    supremum = max(float(-peak.fun), float(ratio(grid[best])), 0.0)
    # The search stops slightly below the supremum; a safe value is above it.
    return supremum * (1 + 1e-6)
