"""How quality and the share of anomalies change over time: earlier fits judge later rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from riskad.app.evidence import FEWEST_FOR_AUC, Evidence, Known, find_evidence
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.calibration import Calibration, cross_scores
from riskad.metrics.folds import forward_splits, periods_of
from riskad.metrics.ranking import Auc, auc_with_interval
from riskad.rows.equal_rows import repeats_label
from riskad.tables.cells import check_columns
from riskad.tables.formats.moments import to_seconds
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

__all__ = ["Period", "Times", "judge_later_rows"]


@dataclass(frozen=True)
class Period:
    """Rows of a period, and how well a fit to all earlier ones ranks its labelled rows."""

    start: str
    end: str
    rows: int
    normal: int
    anomaly: int
    auc: Auc | None
    """None for the earliest rows, which are never judged, and if a kind of label is missing."""


@dataclass(frozen=True)
class Times:
    """The moments of rows, and the period of each."""

    column: str
    moments: pl.Series
    periods: NDArray[np.intp]

    @classmethod
    def of(cls, time: str | None, preparer: TablePreparer, kept: KeptRows) -> Times | None:
        """Read the column of times, which must be one of dates; None if it was not named."""
        if time is None:
            return None
        check_columns([time], list(preparer.columns_))
        kind = preparer.kinds_[time]
        if kind not in ("date", "datetime") or time not in kept.parsed.columns:
            raise InputError(
                f"time={time!r} must be a column of dates that is learned from, and it is "
                f"{kind!r}. Name another, or say how its dates are written: "
                f"kinds={{{time!r}: 'date:%d.%m.%Y'}} (--kind {time}=date:%d.%m.%Y)."
            )
        moments = kept.parsed[time]
        periods = periods_of(kept.codes, to_seconds(moments).fill_null(np.nan).to_numpy())
        if not periods.any():
            raise InputError(
                f"time={time!r} tells no labelled row from another: all are of one moment, or "
                "blank. Label rows of several, or leave time out."
            )
        return cls(time, moments, periods)


def judge_later_rows(
    preparer: TablePreparer,
    detector: Any,
    kept: KeptRows,
    scores: NDArray[np.float64],
    times: Times,
    known: Known = Known(),  # noqa: B008
) -> tuple[Evidence, list[Period]]:
    """Return what labelled rows show about fits to earlier ones, and a description of each period.

    If too few later rows can be judged, decisions use random folds, and there is no AUC. Later rows
    of a group are judged by a fit that has seen its earlier ones, as in later use; the interval of
    the AUC counts groups.

    Returns
    -------
    tuple of Evidence and list of Period
        The evidence, and all periods, the earliest first.
    """
    codes, later = kept.codes, _score_later_rows(preparer, detector, kept, scores, times)
    has_own = hasattr(detector, "calibration_")
    zero = detector.calibration_.zero if has_own else detector.anomaly_threshold
    told = (known.anomaly_rate, detector.random_state, known.label_source)
    counted = np.where(repeats_label(codes, known.copies), np.nan, later)
    calibration = Calibration.of(counted, codes, scores, zero, *told)
    periods = _describe_periods(times, codes, later)
    n, m = len(calibration.normals), len(calibration.anomalies)
    if min(n, m) < FEWEST_FOR_AUC:
        why_no_auc = (
            f"it takes {FEWEST_FOR_AUC} labelled rows of each kind that are later by "
            f"{times.column!r} than rows of both kinds; there are {n:,} normal and {m:,} anomalies"
        )
        by_chance = find_evidence(preparer, detector, kept, scores, known)
        return replace(by_chance, auc=None, why_no_auc=why_no_auc), periods
    judged = (codes != UNLABELLED) & ~np.isnan(counted)
    by_group = None if known.groups is None else known.groups[judged]
    auc = auc_with_interval(codes[judged], later[judged], groups=by_group)
    return Evidence(calibration, auc, "", held_out=later), periods


def _score_later_rows(
    preparer: TablePreparer,
    detector: Any,
    kept: KeptRows,
    scores: NDArray[np.float64],
    times: Times,
) -> NDArray[np.float64]:
    """Return anomaly scores by fits to all earlier periods, on the scale of `scores`.

    Rows of the first period have none (NaN), nor those of a period with too few earlier rows to
    learn from. A detector with a budget spends it once more on all periods together.
    """
    template = clone(detector)
    if "budget" in template.get_params():
        template.set_params(budget=detector.budget / int(times.periods.max()))
    model, found = make_pipeline(preparer.refit(), template), np.full(len(kept.codes), np.nan)
    for split in forward_splits(times.periods):
        try:
            part = cross_scores(
                model, kept.parsed, kept.codes, scores, [split], detector.random_state
            )
        except InputError:
            continue  # the earlier rows lack a kind of label, for instance
        found = np.where(np.isnan(part), found, part)
    return found


def _describe_periods(
    times: Times, codes: NDArray[Any], later: NDArray[np.float64]
) -> list[Period]:
    """Describe each period, and how well its labelled rows were ranked."""
    return [
        _describe(times.moments.filter(own), codes[own], later[own])
        for period in range(int(times.periods.max()) + 1)
        for own in [times.periods == period]
    ]


def _describe(moments: pl.Series, codes: NDArray[Any], later: NDArray[np.float64]) -> Period:
    normal, anomaly = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    judged = (codes != UNLABELLED) & ~np.isnan(later)
    has_both = {NORMAL, ANOMALY} <= set(codes[judged].tolist())
    auc = auc_with_interval(codes[judged], later[judged]) if has_both else None
    start, end = str(moments.min()), str(moments.max())
    return Period(start, end, len(codes), normal, anomaly, auc)
