"""Which columns change the scores of a fit most, and which of their values are suspicious."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.noticed import no_warnings
from riskad.app.reasons import Reasons, explain_rows
from riskad.core.labels import UNLABELLED
from riskad.tables.cells import BLANK, Value
from riskad.tables.labelled import KeptRows

__all__ = ["ColumnEffect", "FitReasons", "explain_fit"]

_EFFECT_ROWS = 1_000  # enough to see which columns change the score
_SUSPICIOUS_ROWS = 20  # whose reasons are summarised if reasons are slow
_SECONDS = 30.0  # after which no further row is explained, unless there is a budget
_LATER = 0.25  # of the budget of a fit, which explaining it may take in addition
_CLEARLY = 0.75  # share of the effect of a column that goes with high, or with low, values


@dataclass(frozen=True)
class ColumnEffect:
    """How far a column moves the score from that of a usual row, and which values are suspicious.

    It is the mean absolute contribution over random rows. If reasons are not exact, it is the
    mean contribution to the score of the most suspicious rows.
    """

    column: str
    effect: float
    suspicious: str


@dataclass(frozen=True)
class FitReasons:
    """Effects of columns, on which rows they were measured, and reasons of suspicious rows."""

    effects: list[ColumnEffect]
    effects_of: str
    reasons: Reasons | None


def explain_fit(
    model: Pipeline,
    kept: KeptRows,
    ranked: pl.DataFrame,
    top: int,
    start: float,
) -> FitReasons:
    """Explain the most suspicious rows once, and summarise the effects of columns.

    Parameters
    ----------
    model
        The fitted pipeline.
    kept
        Rows in memory; some of them show the effects if a detector computes these exactly.
    ranked, top
        Unlabelled rows, the most suspicious first, and how many of them need reasons.
    start
        Start of the fit, by `time.perf_counter`: explaining takes the rest of its budget, or a bit
        more.

    Returns
    -------
    FitReasons
        The effects and the reasons.
    """
    preparer, detector = model[0], model[1]
    worst = ranked.head(max(top, _SUSPICIOUS_ROWS))
    rows = preparer.parse(worst, quiet=True) if worst.height else kept.parsed[:1]
    one_row = detector._check_rows(preparer.features(rows[:1]), reset=False)
    seconds = _seconds_for(detector, start)
    with no_warnings():
        found = explain_rows(model, rows, seconds=seconds)
        if detector.contributions(one_row) is not None:
            effects, effects_of = _effects_of_random_rows(model, kept)
        else:
            effects, effects_of = _effects_of_worst_rows(found, min(rows.height, _SUSPICIOUS_ROWS))
    return FitReasons(effects, effects_of, found if worst.height else None)


def _seconds_for(detector: Any, start: float) -> float:
    budget = detector.get_params(deep=False).get("budget")
    if budget is None:
        return _SECONDS
    return max(budget - (time.perf_counter() - start), _LATER * budget)


def _effects_of_random_rows(model: Pipeline, kept: KeptRows) -> tuple[list[ColumnEffect], str]:
    """Mean absolute contributions, if a detector computes its own: rows cost almost nothing."""
    unlabelled = kept.parsed.filter(np.asarray(kept.codes == UNLABELLED))
    rows = kept.parsed if kept.complete or not unlabelled.height else unlabelled
    seed = model[1].random_state or 0
    sampled = rows.sample(min(rows.height, _EFFECT_ROWS), seed=seed)
    explained = explain_rows(model, sampled)
    said = "all rows" if sampled.height == rows.height else f"{sampled.height:,} rows at random"
    return _listed(explained, explained.importance()), said


def _effects_of_worst_rows(found: Reasons, wanted: int) -> tuple[list[ColumnEffect], str]:
    """Mean contributions of columns to the scores of the most suspicious rows."""
    found = found.first(wanted)
    means = found.contributions.mean(axis=0)
    order = np.argsort(-means, kind="stable")
    said = f"the {wanted} most suspicious rows"
    if len(found) < wanted:
        said = f"{len(found)} of {said}, for which the time sufficed"
    return _listed(found, {found.columns[j]: float(means[j]) for j in order}), said


def _listed(found: Reasons, sizes: Mapping[str, float]) -> list[ColumnEffect]:
    return [
        ColumnEffect(column, size, suspicious_value(found, found.columns.index(column)))
        for column, size in sizes.items()
        if size > 0
    ]


def suspicious_value(found: Reasons, j: int) -> str:
    """Return which values of a column go with high scores: a text, or a range of numbers."""
    values, adds, usual = found.values[:, j], found.contributions[:, j], found.usual[j]
    known = np.array([value is not None and value == value for value in values])  # NaN is not
    ends = found.ends(j)
    if part := _suspicious_part(found, j):
        return part
    if ends is not None:
        said = _suspicious_number(values.astype(float), adds, known, _number(usual))
        low = "before" if ends[0] == "short" and (values[adds > 0] < 0).any() else ends[0]
        words = {"low": low, "high": ends[1], "high or low": f"{ends[1]} or {low}"}
        return words.get(said, said)
    means = {value: adds[values == value].mean() for value in set(values[known])}
    if (~known).any():
        means[BLANK] = adds[~known].mean()
    return str(max(sorted(means), key=lambda value: means[value]))


def _suspicious_part(found: Reasons, j: int) -> str:
    """The weekday, month, day or hour that adds most, where such a part of a date counts most."""
    adds: dict[str, float] = {}
    for row, added in enumerate(found.contributions[:, j]):
        part = found.part_in_words(row, j)
        adds[part] = adds.get(part, 0.0) + max(float(added), 0.0)
    largest = max(adds, key=lambda part: adds[part], default="")
    return largest if 2 * adds.get("", 0.0) < sum(adds.values()) else ""


def _number(usual: Value) -> float | None:
    return None if usual is None else float(usual)


def _suspicious_number(
    values: NDArray[np.float64],
    adds: NDArray[np.float64],
    known: NDArray[np.bool_],
    usual: float | None,
) -> str:
    """Whether high or low numbers, or blanks, add to the score; non-blanks if blanks are usual."""
    changes = np.where(known, adds, 0.0)
    size = np.abs(changes).sum()
    if not known.any() or np.abs(adds[~known]).sum() > size:
        return BLANK
    middle = float(np.median(values[known])) if usual is None else usual
    together = np.abs(changes[(changes > 0) == (values > middle)]).sum() / (size or 1.0)
    if together > _CLEARLY:
        return "high"
    if together < 1 - _CLEARLY:
        return "low"
    if usual is not None:
        return "high or low"
    return "not blank" if changes.sum() > 0 else BLANK
