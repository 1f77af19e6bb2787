"""Learning from labelled normal rows and unlabelled rows, with linear scores."""

from __future__ import annotations

from typing import Any

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import Loss
from riskad.detectors.base import check_said
from riskad.detectors.label_needs import require_labels
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.memory import RowBlocks
from riskad.rows.source import RowSource

__all__ = ["ShallowPU"]


class ShallowPU(ShallowRAD):
    r"""Learning from labelled normal and unlabelled rows: the paper's PU methods, with linear
    scores.

    Finds g(x) = <w, phi(x)> + b that minimises the unbiased pu risk

        pi_p R_p^+ + R_u^- - pi_p R_p^-  +  lambda (||w||^2 + b^2)

    where R_k^{+/-} is the mean of l(+/- g) over the rows of kind k. PU learning does not use
    labelled anomalies: they become unlabelled rows, as in the published runs. Otherwise it is
    `ShallowRAD` with risk="pu", and has its attributes.

    Parameters
    ----------
    loss : str or Loss, default="modified_huber"
        Margin loss l: a name of `riskad.core.losses.LOSSES`; the paper runs "squared", "hinge" and
        "modified_huber".
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows.
    lam : "cv" or float, default="cv"
        Regularisation: the value with the lowest risk on held-out rows, or a number. Theorem 1 does
        not cover this risk.
    feature_map, fit_intercept, scale, solver, tol, max_iter, random_state :
        As in `ShallowRAD`.

    Examples
    --------
    >>> import numpy as np
    >>> import riskad
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (800, 2)), rng.normal(3, 1, (200, 2))])
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40] = 1                             # 40 known normal rows
    >>> y = riskad.parse_labels(y, normal=1, unlabelled=0)  # elsewhere 1 may mean anomaly
    >>> ShallowPU().fit(X, y).predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        loss: str | Loss = "modified_huber",
        *,
        prior: float = 0.8,
        lam: str | float = "cv",
        feature_map: Any = None,
        fit_intercept: bool = True,
        scale: bool = True,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: int | None = None,
    ):
        super().__init__(
            loss,
            risk="pu",
            prior=prior,
            lam=lam,
            feature_map=feature_map,
            fit_intercept=fit_intercept,
            scale=scale,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
        )

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> RowSource:
        """The rows of a fit, with anomalies turned into unlabelled rows."""
        rows = super()._training_rows(X, y, sample_weight)
        check_said(rows)
        if isinstance(rows, RowBlocks):  # elsewhere labels are known after the first pass
            require_labels("ShallowPU", rows.counts(), (NORMAL,), (UNLABELLED, ANOMALY))
        return rows.without_label(ANOMALY)
