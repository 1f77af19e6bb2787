"""The basis of the decisions of an `AutoRAD`: held-out scores, the anomaly rate, a threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.core.risks import get_risk
from riskad.decisions.calibration import Calibration
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.auto.held_out import HeldOut

__all__ = ["calibrated"]


def calibrated(
    fitted: np.ndarray,
    codes: np.ndarray,
    held_out: HeldOut | None,
    anomaly_rate: float | None,
    label_source: Any,
    seed: int,
) -> tuple[Calibration, float]:
    """Return the calibration of a fit, and the share of normal rows among the unlabelled ones.

    Parameters
    ----------
    fitted, codes
        Scores by the fit to all rows, high = normal, and their codes. NaN for rows whose scores are
        not needed, labelled or not.
    held_out
        Scores by members of rows that they had not seen.
    anomaly_rate, label_source, seed
        As in `AutoRAD`, and its seed.
    """
    unseen = np.full(len(codes), np.nan)
    for places, scores in () if held_out is None else held_out.on_scale_of(fitted):
        unseen[places] = scores
    n_unlabelled = int((codes == UNLABELLED).sum())
    rows = np.flatnonzero((codes != UNLABELLED) | ~np.isnan(fitted))
    unseen, fitted, codes = unseen[rows], fitted[rows], codes[rows]
    source = label_source if isinstance(label_source, str) else label_source[rows]
    found = Calibration.of(-unseen, codes, -fitted, 0.0, anomaly_rate, seed, source)
    found = replace(found, n_unlabelled=n_unlabelled)
    prior = 1 - (_labelled_share(codes) if found.rate is None else found.pi_n)
    return replace(found, zero=-_zero(unseen, fitted, codes, prior, found)), prior


def _zero(
    unseen: np.ndarray, fitted: np.ndarray, codes: np.ndarray, prior: float, found: Calibration
) -> float:
    """The threshold with the lowest zero-one risk of held-out rows; without these, by the prior."""
    if found.rate is None or not found.tells_kinds:
        scores = fitted[codes == UNLABELLED]
        scores = scores if len(scores) else fitted[~np.isnan(fitted)]
        return float(np.quantile(scores, 1 - prior))
    seen = ~np.isnan(unseen)
    if not (codes[seen] == UNLABELLED).any():  # so few that none was held out
        unseen = np.where(codes == UNLABELLED, fitted, unseen)
        seen = ~np.isnan(unseen)
    return zero_one_threshold(get_risk("rad", prior=prior), unseen[seen], codes[seen])


def _labelled_share(codes: np.ndarray) -> float:
    """The share of anomalies if all rows are labelled; neither 0 nor 1."""
    m = int((codes == ANOMALY).sum())
    return (m + 0.5) / (len(codes) + 1)
