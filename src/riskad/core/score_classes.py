"""Classes of scores, and how well they fit random signs: their Rademacher complexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from riskad.core.checks import InputError, check_in_interval
from riskad.core.risks import KIND_NAMES

__all__ = ["LinearClass", "MeasuredClass", "Rademacher", "measure_rademacher"]


@dataclass(frozen=True)
class LinearClass:
    """Scores <w, phi(x)> with ||w|| <= C_w, over rows with ||phi(x)|| <= C_x.

    >>> LinearClass(C_w=2.0, C_x=3.0).complexity(0, n=36)
    1.0
    """

    C_w: float
    C_x: float

    def __post_init__(self) -> None:
        for name in ("C_w", "C_x"):
            check_in_interval(name, getattr(self, name), 0, math.inf, "It bounds a norm.")

    @property
    def C_g(self) -> float:
        """Bound on |g(x)|: C_w C_x, by Cauchy and Schwarz."""
        return self.C_w * self.C_x

    def complexity(self, kind: int, n: int) -> float:
        r"""Rademacher complexity for `n` rows of a kind: C_w C_x / sqrt(n), whatever the kind.

        sup_w <w, sum_i s_i phi_i> / n = C_w ||sum_i s_i phi_i|| / n, and the mean of that norm over
        random signs s is at most the root of the mean square, sqrt(sum_i ||phi_i||^2).
        """
        return self.C_w * self.C_x / math.sqrt(n)


@dataclass(frozen=True)
class MeasuredClass:
    """Scores bounded by C_g, with known Rademacher complexity for the rows of each kind.

    They may come from `measure_rademacher`. Theorem 2 requires that the class contains -g with g.
    """

    C_g: float
    normal: float
    anomaly: float
    unlabelled: float

    def __post_init__(self) -> None:
        check_in_interval("C_g", self.C_g, 0, math.inf, "It bounds the scores.")
        for name in KIND_NAMES.values():
            remedy = "It is a Rademacher complexity, which does not exceed C_g."
            check_in_interval(name, getattr(self, name), 0, self.C_g, remedy, closed=True)

    def complexity(self, kind: int, n: int) -> float:
        """The value measured on rows of this kind."""
        return float(getattr(self, KIND_NAMES[kind]))


@dataclass(frozen=True)
class Rademacher:
    """An empirical Rademacher complexity and the standard error of its draws."""

    value: float
    standard_error: float
    draws: int

    def __str__(self) -> str:
        return f"{self.value:.4g} (standard error {self.standard_error:.1g})"


def measure_rademacher(
    scores: np.ndarray | Callable[[np.ndarray], float],
    n: int | None = None,
    *,
    draws: int = 1000,
    random_state: int = 0,
) -> Rademacher:
    r"""Empirical Rademacher complexity E_s sup_g (1/n) sum_i s_i g(x_i), by random signs s.

    Parameters
    ----------
    scores : array of shape (n_functions, n_rows), or callable
        g(x_i) of the functions of a finite class; or, for an infinite class, a function that takes
        signs s of shape (n,) and returns the supremum.
    n : int, optional
        Number of rows; only for a callable.
    draws : int, default=1000
        Number of draws of signs.
    random_state : int, default=0
        Seed.

    Notes
    -----
    The theorems need the mean of this also over rows. By McDiarmid's inequality that is at most
    C_g sqrt(2 ln(1/delta) / n) higher, with probability 1 - delta.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> ball = measure_rademacher(lambda s: np.linalg.norm(s @ X) / 50, n=50)  # ||w|| <= 1
    >>> bool(ball.value <= LinearClass(1.0, 3**0.5).complexity(0, 50))
    True
    """
    if not callable(scores):
        table = np.asarray(scores, dtype=float)
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise InputError(
                "scores must be finite numbers, a line for each function of the class and a column "
                f"for each row, got an array of shape {table.shape}."
            )
        scores, n = (lambda signs: float((table @ signs).max()) / len(signs)), table.shape[1]
    if n is None:
        raise InputError("n is missing: with a callable, say for how many rows it takes signs.")
    # A single draw would have no standard error.
    if min(n, draws) < 1 or draws < 2:
        raise InputError(f"it takes 1 row and 2 draws at least, got n={n} and draws={draws}.")
    rng = np.random.default_rng(random_state)
    # One draw at a time: a table of all signs would take draws x n numbers.
    suprema = [float(scores(rng.choice([-1.0, 1.0], n))) for _ in range(draws)]
    # The draws are independent, so that the error of their mean falls as 1 / sqrt(draws).
    error = float(np.std(suprema, ddof=1) / math.sqrt(draws))
    return Rademacher(float(np.mean(suprema)), error, draws)
