"""The basis of the decisions of an `AutoRAD`: held-out scores, the anomaly rate, a threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.risks import get_risk
from riskad.decisions.calibration import Calibration
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.auto.held_out import HeldOut
from riskad.detectors.auto.members import PRIOR

__all__ = ["calibrated"]

_GUESSED = 5  # rows that the default guess of the anomaly rate counts as


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
    prior = 1 - (labelled_rate(codes) if found.rate is None else found.pi_n)
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


def labelled_rate(codes: np.ndarray) -> float:
    """Return the share of anomalies among labelled rows, with the usual guess as five more rows.

    If only one kind of label is present, it is the guess.
    """
    n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    guess = 1 - PRIOR
    return (m + _GUESSED * guess) / (n + m + _GUESSED) if n and m else guess
