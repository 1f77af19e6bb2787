"""The bounds of Theorems 2 and 3 for a fitted model."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from riskad.core.bounds import FittedBounds, fitted_bounds
from riskad.core.checks import InputError
from riskad.core.labels import check_codes, count_labels
from riskad.core.risks import get_risk
from riskad.detectors.description import detector_tags
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.streaming import StreamingRAD


def bounds_of(
    model: ShallowRAD | StreamingRAD, X: Any, y: Any, *, delta: float = 0.05
) -> FittedBounds:
    """The bounds of a model fitted to rows X with labels y (see `fitted_bounds`).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (9000, 2)), rng.normal(3, 1, (1000, 2))])
    >>> y = np.zeros(10_000, dtype=int)
    >>> y[:4000], y[-500:] = 1, -1
    >>> model = ShallowRAD("hinge", prior=0.9).fit(X, y)
    >>> bounds = bounds_of(model, X, y)
    >>> bounds.error.vacuous, bounds.error.by_kind.largest
    (False, 'normal')
    """
    if not detector_tags(model).has_bounds:
        raise InputError(
            f"bounds are known for a ShallowRAD or StreamingRAD, got a {type(model).__name__}. For "
            "other classes of scores use estimation_error with a MeasuredClass."
        )
    check_is_fitted(model)
    counts = count_labels(check_codes(y))
    risk = get_risk(model.risk, model.loss, a=model.a_, prior=model.prior_)
    norms = model.weight_norm_, model._largest_norm(X)
    return fitted_bounds(risk, counts, *norms, delta=delta)
