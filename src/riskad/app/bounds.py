"""The bounds of Theorems 2 and 3 for a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from riskad.core.bounds import FittedBounds, fitted_bounds
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts, check_codes
from riskad.core.risks import get_risk
from riskad.detectors.description import detector_tags
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.streaming import StreamingRAD


def bounds_of(
    model: ShallowRAD | StreamingRAD,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    delta: float = 0.05,
) -> FittedBounds:
    """The bounds of a model fitted to rows X with labels y (see `fitted_bounds`).

    With `select`, a and prior are the chosen values; the bounds do not account for choosing them on
    the same rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (9000, 2)), rng.normal(3, 1, (1000, 2))])
    >>> y = np.zeros(10_000, dtype=int)
    >>> y[:4000], y[-500:] = 1, -1
    >>> model = ShallowRAD("hinge", prior=0.9).fit(X, y)
    >>> found = bounds_of(model, X, y)
    >>> found.error.vacuous, found.error.by_kind.largest
    (False, 'normal')
    """
    if not detector_tags(model).has_bounds:
        raise InputError(
            f"bounds are known for a ShallowRAD or StreamingRAD, got a {type(model).__name__}. For "
            "other classes of scores use estimation_error with a MeasuredClass."
        )
    check_is_fitted(model)
    codes = check_codes(y)
    w = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if w.shape != codes.shape:
        raise InputError(f"got {len(codes)} labels and weights of shape {w.shape}.")
    counts = []  # rows of each kind; for weighted rows (sum w)^2 / sum w^2 replaces n
    for kind in (NORMAL, ANOMALY, UNLABELLED):
        own = w[codes == kind]
        counts.append(int(own.sum() ** 2 / max((own**2).sum(), 1e-300) + 1e-9))
    risk = get_risk(model.risk, model.loss, a=model.a_, prior=model.prior_)
    norms = model.weight_norm_, model._largest_norm(X)
    return fitted_bounds(risk, LabelCounts(*counts), *norms, delta=delta)
