"""Change the threshold rule of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sklearn.pipeline import Pipeline

from riskad.app.fit_report import FitReport
from riskad.app.model_files import ModelHeader
from riskad.core.checks import InputError
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import ExpectedCost, Found, review_rows, review_table
from riskad.decisions.thresholds import Threshold


@dataclass(frozen=True)
class ThresholdReport:
    """What `change_threshold` did; counts are of the unlabelled rows of the fit."""

    rule: str
    threshold: float
    before: str
    unlabelled: int
    flagged: int
    expected: Found | None = None
    """Expected anomalies among the flagged rows, if the labels determine them."""
    cost: ExpectedCost | None = None


def change_threshold(
    model: Any, header: ModelHeader, threshold: Threshold | str
) -> tuple[FitReport | None, ThresholdReport]:
    """Make a model decide by another rule, without another fit; the model itself is changed.

    Returns the report of the fit with the new rule, for the model's file, and what changed.
    """
    detector = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not hasattr(detector, "set_threshold"):
        raise InputError(f"A {type(detector).__name__} has no threshold that riskad could set.")
    calibration: Calibration = detector._calibrated("other thresholds than the model's")
    before = str(detector.threshold_)
    detector.set_threshold(threshold)
    rule, t = str(detector.threshold_), detector._anomaly_threshold
    flagged = round(float((calibration.unlabelled > t).mean()) * calibration.n_unlabelled)
    changed = header.report
    if changed is not None:
        fitted = changed.fitted | {"threshold": t}
        changed = replace(changed, rule=rule, threshold=t, flagged=flagged, fitted=fitted)
    rows = review_rows(calibration, calibration.unlabelled, calibration.n_unlabelled)
    review = review_table(rows, flagged, rule)
    return changed, ThresholdReport(
        rule=rule,
        threshold=t,
        before=before,
        unlabelled=calibration.n_unlabelled,
        flagged=flagged,
        expected=None if review is None else review.flagged,
        cost=None if review is None else review.cost,
    )
