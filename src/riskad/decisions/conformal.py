"""p-values of being normal, from labelled normal rows, and selection at a false discovery rate.

With s_1, ..., s_n the anomaly scores of labelled normal rows, by fits that have not seen them, the
p-value of a row with score s is

    p = (1 + #{i : s_i >= s}) / (n + 1).

If the row is normal and exchangeable with the labelled normal rows, then P(p <= q) <= q for every
q, whatever the scores mean. If labelled normal rows were chosen and score lower than others, more
have a small p-value: nothing here corrects for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from riskad.core.checks import InputError, check_in_interval


def check_normals(n: int, what: str) -> None:
    """Refuse if there are no held-out labelled normal rows."""
    if n < 2:
        raise InputError(
            f"{what} rest on labelled normal rows that were held out, and there are {n}. Label at "
            "least 2 normal rows, preferably 50, and calibrate again."
        )


def conformal_p_values(normals: Any, scores: Any) -> np.ndarray:
    """p-values of rows being normal, from anomaly scores of labelled normal rows; ties count too.

    Examples
    --------
    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0, 4.0])
    array([1.  , 0.75, 0.25])
    """
    n = len(normals)
    # A normal row with the same score counts, too: p-values may be too large, never too small.
    above = n - np.searchsorted(np.sort(np.asarray(normals, dtype=float)), scores, side="left")
    return np.asarray((1 + above) / (n + 1))


@dataclass(frozen=True)
class FdrSelection:
    """Rows selected at a false discovery rate, and what is possible with so many normal rows."""

    selected: np.ndarray  # whether each row is
    fdr: float
    n_normal: int

    @property
    def n_selected(self) -> int:
        """Number of selected rows."""
        return int(self.selected.sum())

    @property
    def fewest(self) -> int:
        """The fewest rows that can be selected: k with 1 / (n + 1) <= fdr k / m; else m + 1.

        1 / (n + 1) is the p-value of a row that scores above all n labelled normal rows.
        """
        m, smallest_p = len(self.selected), 1 / (self.n_normal + 1)
        if smallest_p > self.fdr:  # the procedure's last limit
            return m + 1
        # Rounding must not ask for one row more where the quotient is whole.
        return max(1, math.ceil(m * smallest_p / self.fdr - 1e-9))

    def __str__(self) -> str:
        rows, smallest_p = len(self.selected), 1 / (self.n_normal + 1)
        selected = f"{self.n_selected:,} of {rows:,} rows are selected"
        if self.n_selected:
            selected += f", of which on average at most {self.fdr:.0%} are normal"
        limit = (
            f"with {self.n_normal:,} labelled normal rows no p-value is below "
            f"1/{self.n_normal + 1:,} = {smallest_p:.2g}"
        )
        if self.fewest > rows:
            limit += f", so at {self.fdr:g} no row can be selected, however anomalous"
        elif self.fewest > 1:
            limit += (
                f", so at {self.fdr:g} either no row is selected or at least {self.fewest:,}, all "
                "of which score above nearly all of these normal rows"
            )
        return f"{selected}; {limit}"


def select_at_fdr(p_values: Any, fdr: float, n_normal: int) -> FdrSelection:
    """Select rows so that on average at most the share `fdr` of them is normal.

    Applies Benjamini and Hochberg's procedure: selects the k smallest p-values, for the largest k
    such that the k-th is at most fdr k / m. It is valid for conformal p-values, which depend on
    each other through the labelled normal rows that they share (Bates et al., 2023). `n_normal`
    labelled normal rows are behind the p-values.

    Examples
    --------
    >>> p = np.array([0.05, 0.05, 0.4, 0.9])
    >>> print(select_at_fdr(p, 0.1, n_normal=19))
    2 of 4 rows are selected, of which on average at most 10% are normal; with 19 labelled normal \
rows no p-value is below 1/20 = 0.05, so at 0.1 either no row is selected or at least 2, all of \
which score above nearly all of these normal rows
    """
    fdr = check_in_interval("fdr", fdr, 0, 1, "It is the share of false alarms among the selected.")
    p = np.asarray(p_values, dtype=float)
    # Rounding of the procedure's own division must not exclude a p-value on the limit.
    selected = false_discovery_control(p) <= fdr * (1 + 1e-12) if len(p) else np.zeros(0, bool)
    return FdrSelection(selected, fdr, int(n_normal))
