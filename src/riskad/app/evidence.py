"""What held-out labelled rows show about a fit: its quality, and the basis of decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, count_labels
from riskad.decisions.calibration import Calibration, cross_scores
from riskad.decisions.label_check import auc_with_weights, weigh_labelled
from riskad.metrics.folds import as_groups, count_independent, cross_splits, labelled_folds
from riskad.metrics.ranking import Auc, auc_with_interval
from riskad.rows.equal_rows import repeats_label
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

__all__ = ["FEWEST_FOR_AUC", "Evidence", "find_evidence", "groups_of", "say_held_out"]

FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is mostly chance
_NO_TIME = "the budget left no time to hold labelled rows out"
_NOTHING_LEFT = "without the groups that were to be held out there were no rows to learn from"


@dataclass(frozen=True)
class Known:
    """What is known about rows in addition to their labels."""

    groups: NDArray[np.intp] | None = None
    """Group of each row; copies of a labelled row are in one."""
    anomaly_rate: float | None = None
    """Anomaly rate of the unlabelled rows."""
    label_source: Any = "unknown"
    """How rows were chosen for labelling: a word, or one for each row."""
    copies: NDArray[np.intp] | None = None
    """Number of each row's set of copies, if there are copies."""


@dataclass(frozen=True)
class Evidence:
    """The basis of decisions, and the AUC on labelled rows or why there is none."""

    calibration: Calibration
    auc: Auc | None
    why_no_auc: str
    weighted_auc: Auc | None = None
    """AUC with labelled rows weighted towards the unlabelled ones, if they may have been chosen."""
    beyond: float = 0.0
    """The share of unlabelled rows that are like hardly any labelled one, if these were chosen."""
    held_out: NDArray[np.float64] | None = None
    """Scores of labelled rows by fits that have not seen them, NaN for other rows, if known."""


def groups_of(preparer: TablePreparer, kept: KeptRows) -> NDArray[np.intp] | None:
    """Return the number of each row's group, if a group column was named.

    Each row with a blank cell is a group of its own.
    """
    if preparer.group is None:
        return None
    return as_groups(kept.parsed[preparer.group].rank("dense").to_numpy(), len(kept.codes))


def say_held_out(detector: Any, group: str | None, time: str | None) -> str:
    """Describe which fits scored the held-out rows."""
    said: str = detector.evidence_in_words()
    if time is not None:
        said = f"scored by a fit to rows that are earlier by {time!r}"
        return said if group is None else f"{said}; the interval counts each {group!r} as one"
    if group is None:
        return said
    return f"{said}; rows of one {group!r} were held out together, and intervals count each as one"


def find_evidence(
    preparer: TablePreparer,
    detector: Any,
    kept: KeptRows,
    scores: NDArray[np.float64],
    known: Known = Known(),  # noqa: B008
) -> Evidence:
    """Return what labelled rows show that a fit has not seen.

    If they were chosen, or score as if they were, the interval of the AUC includes that of rows
    weighted towards the unlabelled ones (`riskad.decisions.label_check`).

    Parameters
    ----------
    preparer, detector
        The steps of the fitted model. A detector that held out rows itself has a calibration.
    kept, scores
        Rows in memory, and their anomaly scores by the model.
    known
        Other knowledge about them.

    Returns
    -------
    Evidence
        The evidence.
    """
    found = _find(preparer, detector, kept, scores, known)
    if found.auc is None or not found.calibration.seems_chosen:
        return found
    return _allow_for_choice(found, preparer, kept, known, detector.random_state or 0)


def _allow_for_choice(
    found: Evidence, preparer: TablePreparer, kept: KeptRows, known: Known, seed: int
) -> Evidence:
    codes, labelled = found.calibration.codes, kept.codes != UNLABELLED
    counts = ~repeats_label(kept.codes, known.copies)[labelled]
    if not np.array_equal(codes, kept.codes[labelled][counts]):  # not all were held out
        return found
    weighed = weigh_labelled(preparer.matrix(kept.parsed), kept.codes, seed)
    if found.auc is None or weighed is None or not weighed.clear:
        return found
    weights = weighed.weights[counts]
    wider, weighted = auc_with_weights(found.auc, found.calibration.scores, codes, weights)
    return replace(found, auc=wider, weighted_auc=weighted, beyond=weighed.beyond)


def _find(
    preparer: TablePreparer,
    detector: Any,
    kept: KeptRows,
    scores: NDArray[np.float64],
    known: Known,
) -> Evidence:
    groups = known.groups
    why_no_auc = _too_few(kept.codes) or _too_few_groups(kept.codes, groups, preparer.group)
    if hasattr(detector, "calibration_"):  # it may have sampled the unlabelled rows
        calibration = detector.calibration_.over(scores[kept.codes == UNLABELLED])
        auc = getattr(detector, "auc_", None)
        if not why_no_auc and auc is None:
            why_no_auc = _NO_TIME if groups is None else f"{_NO_TIME}, or {_NOTHING_LEFT}"
        by_row = _by_row(calibration, kept.codes, known.copies)
        return Evidence(calibration, None if why_no_auc else auc, why_no_auc, held_out=by_row)
    try:
        held_out = _score_held_out(preparer, detector, kept, scores, groups)
    except InputError as error:
        held_out = np.full(len(kept.codes), np.nan)
        reason = str(error).splitlines()[0]
        why_no_auc = f"a part of the rows cannot be fitted by itself ({reason})"
    zero, seed = detector.anomaly_threshold, detector.random_state
    told = (known.anomaly_rate, seed, known.label_source)
    counted = np.where(repeats_label(kept.codes, known.copies), np.nan, held_out)
    calibration = Calibration.of(counted, kept.codes, scores, zero, *told)
    if not why_no_auc and not min(len(calibration.normals), len(calibration.anomalies)):
        why_no_auc = _NOTHING_LEFT
    if why_no_auc:
        return Evidence(calibration, None, why_no_auc, held_out=held_out)
    judged = (kept.codes != UNLABELLED) & ~np.isnan(counted)
    by_group = None if groups is None else groups[judged]
    auc = auc_with_interval(calibration.codes, calibration.scores, groups=by_group)
    return Evidence(calibration, auc, "", held_out=held_out)


def _by_row(
    calibration: Calibration, codes: Codes, copies: NDArray[np.intp] | None
) -> NDArray[np.float64] | None:
    """The held-out scores in the order of the rows; None if some labelled rows have none."""
    labelled, repeats = codes != UNLABELLED, repeats_label(codes, copies)
    if len(calibration.scores) != (labelled & ~repeats).sum():
        return None
    found = np.full(len(codes), np.nan)
    found[labelled & ~repeats] = calibration.scores
    if copies is not None:  # a row has the score of its copies, with which it was held out
        of_set = np.full(copies.max() + 1, np.nan)
        of_set[copies[labelled & ~repeats]] = calibration.scores
        found[repeats] = of_set[copies[repeats]]
    return found


def _too_few(codes: Codes) -> str:
    """Why the labels do not allow an AUC, if so."""
    counts = count_labels(codes)
    if min(counts.normal, counts.anomaly) >= FEWEST_FOR_AUC:
        return ""
    return f"it takes {FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"


def _too_few_groups(codes: Codes, groups: NDArray[np.intp] | None, column: str | None) -> str:
    """Why groups that are held out as a whole do not allow an AUC, if so."""
    if groups is None or labelled_folds(codes, 2, groups=groups):
        return ""
    n, m = (count_independent(codes, kind, groups) for kind in (NORMAL, ANOMALY))
    together = "copies of a row" if column is None else f"rows of one {column!r}"
    different = "different rows" if column is None else "groups"
    return (
        f"{together} are held out together, and the labelled rows cannot be parted so that both "
        f"parts have both kinds: normal ones are of {n:,} {different}, anomalies of {m:,}"
    )


def _score_held_out(
    preparer: TablePreparer,
    detector: Any,
    kept: KeptRows,
    scores: NDArray[np.float64],
    groups: NDArray[np.intp] | None,
) -> NDArray[np.float64]:
    # The kinds of the columns are fixed; medians and levels are found again in each fold.
    template = make_pipeline(preparer.refit(), detector)
    seed = detector.random_state
    splits = cross_splits(kept.codes, random_state=seed, groups=groups)
    return cross_scores(template, kept.parsed, kept.codes, scores, splits, seed)
