"""The choice of a, prior and lambda together, by held-out labelled rows: `select="cv"`."""

from __future__ import annotations

from typing import Any

import numpy as np

from riskad.core.checks import InputError, check_choice
from riskad.core.risks import Risk
from riskad.detectors.linear.lambda_search import safe_lambda
from riskad.metrics.linear_search import Candidate, Selection, choose
from riskad.rows.arrays import to_dense
from riskad.rows.linear import LinearModel, RowSpace
from riskad.rows.sources import sample_in_memory

__all__ = ["SELECT_RULES", "candidates_around", "check_select", "select_candidate"]

SELECT_RULES = ("cv",)

# Candidates in addition to the given values, and rows on which they are compared.
_MIXING_WEIGHTS = (0.02, 0.1, 0.4)
_PRIORS = (0.5, 0.8, 0.95)
_DECADES = 2
_ROWS = 1_000
_WIDE = 400


def check_select(select: str, **others: Any) -> None:
    """Refuse an unknown rule, and settings with which a, prior and lambda cannot be chosen."""
    check_choice("select", select, SELECT_RULES)
    fixed = {"risk": "rad", "penalty": "l2", "lam": "theorem"}
    for name, value in fixed.items():
        if (got := others[name]) != value:
            raise InputError(
                f"select='cv' chooses a, prior and lam for {name}={value!r}, got {got!r}. "
                f"Leave {name} at {value!r}, or search with riskad.RADSearchCV."
            )


def candidates_around(a: float, prior: float, tight: float, top: float) -> list[Candidate]:
    """The candidates; the first, (a, prior, tight), is the default.

    Parameters
    ----------
    a, prior : float
        As given.
    tight, top : float
        The tight lambda, and that of Theorem 1.

    Returns
    -------
    list of Candidate
    """
    default = Candidate(a, prior, tight)
    grid = {
        Candidate(other_a, other_prior, lam)
        for other_a in (a, *_MIXING_WEIGHTS)
        for other_prior in (prior, *_PRIORS)
        for lam in (top, *(tight * 10.0**-decade for decade in range(_DECADES + 1)))
    }
    return [default, *sorted(grid - {default})]


def select_candidate(model: LinearModel, risk: Risk, seed: int) -> Selection:
    """Compare candidates around the risk's a and prior and the tight lambda on held-out rows.

    Uses a sample of the rows, as coordinates in its own span if there are many columns.

    Returns
    -------
    Selection
        A `riskad.metrics.linear_search.Selection`.
    """
    top, tight = (safe_lambda(model, risk, "l2", tight=tight) for tight in (False, True))
    n_rows = _ROWS if model.n_parameters <= _WIDE else _WIDE
    rows = sample_in_memory(model.rows, n_rows, np.ones(3), seed)
    Z = (to_dense(rows.X) - model.mean) / model.scale
    if model.constant:
        Z = np.column_stack([Z, np.full(len(Z), model.constant)])
    if Z.shape[1] > len(Z):
        Z = RowSpace.of(Z).coordinates
    candidates = candidates_around(float(risk.a), float(risk.prior), tight, top)
    return choose(Z, rows.y, rows.sample_weight, risk.loss, candidates, seed)
