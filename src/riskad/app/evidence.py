"""What held-out labelled rows say of a fit: its quality, and what decisions rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline

from riskad.core.checks import InputError
from riskad.core.labels import UNLABELLED, Codes, count_labels
from riskad.decisions.calibration import Calibration, cross_calibrate
from riskad.decisions.ranking_metrics import Auc, auc_with_interval
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

__all__ = ["Evidence", "find_evidence"]

_FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is a coin toss


@dataclass(frozen=True)
class Evidence:
    """What decisions rest on, and the AUC on labelled rows or why there is none."""

    calibration: Calibration
    auc: Auc | None
    why_no_auc: str


def find_evidence(
    preparer: TablePreparer, detector: Any, kept: KeptRows, scores: NDArray[np.float64]
) -> Evidence:
    """Return what labelled rows say that a fit has not seen.

    Parameters
    ----------
    preparer, detector
        The steps of the fitted model. A detector that has held rows out itself has a calibration.
    kept, scores
        Rows in memory, and their anomaly scores by the model.

    Returns
    -------
    Evidence
        The evidence.
    """
    why_no_auc = _too_few(kept.codes)
    if hasattr(detector, "calibration_"):  # it may have sampled the unlabelled rows
        calibration = detector.calibration_.over(scores[kept.codes == UNLABELLED])
        auc = getattr(detector, "auc_", None)
        if not why_no_auc and auc is None:
            why_no_auc = "the budget left no time to hold labelled rows out"
        return Evidence(calibration, None if why_no_auc else auc, why_no_auc)
    calibration, why_not = _calibrate(preparer, detector, kept, scores)
    if why_not or why_no_auc:
        return Evidence(calibration, None, why_not or why_no_auc)
    return Evidence(calibration, auc_with_interval(calibration.codes, calibration.scores), "")


def _too_few(codes: Codes) -> str:
    """Why the labels tell no AUC, if they do not."""
    counts = count_labels(codes)
    if min(counts.normal, counts.anomaly) >= _FEWEST_FOR_AUC:
        return ""
    return f"it takes {_FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"


def _calibrate(
    preparer: TablePreparer, detector: Any, kept: KeptRows, scores: NDArray[np.float64]
) -> tuple[Calibration, str]:
    """Return what decisions rest on, and where it lacks held-out rows, why."""
    # The kinds of the columns are settled; medians and levels are found anew in each fold.
    template = make_pipeline(preparer.refit(), detector)
    zero, seed = detector.anomaly_threshold, detector.random_state
    try:
        found = cross_calibrate(template, kept.parsed, kept.codes, scores, zero, random_state=seed)
    except InputError as error:
        unseen = np.full(len(kept.codes), np.nan)
        reason = str(error).splitlines()[0]
        why_not = f"a part of the rows cannot be fitted by itself ({reason})"
        return Calibration.of(unseen, kept.codes, scores, zero), why_not
    return found, ""
