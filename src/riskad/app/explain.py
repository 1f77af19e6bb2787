"""Explain rows of a table, the most suspicious or those that are named, and columns of a fit."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.reasons import Reasons, explain_rows, plain_value
from riskad.app.score import (
    RESULT_COLUMNS,
    Progress,
    Suspect,
    rank,
    score_table,
    steps_of,
    suspects_of,
)
from riskad.app.series import first_of_events, plain_model
from riskad.core.checks import InputError, enumerate_names, quoted
from riskad.core.labels import UNLABELLED
from riskad.decisions.calibration import quietly
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.tables.cells import BLANK, free_name, to_text
from riskad.tables.labelled import TrainingSample

_SECONDS = 30.0  # after which no further row is explained, unless requested or there is a budget
_LATER = 0.25  # share of the budget of a fit that explaining it may take in addition
_ROWS, _ROWS_IF_SLOW = 100, 20  # to measure the importance of columns
_EFFECT_ROWS = 1_000  # enough to see which columns change the score
_SUSPICIOUS_ROWS = 20  # whose reasons are summarised if reasons are slow
_COMPARED = 10_000  # values that a misspelled one is compared with
_CLEARLY = 0.75  # share of the effect of a column that goes with high, or with low, values


@dataclass(frozen=True)
class ExplainReport:
    """What `explain_table` found; `usual_score` is the anomaly score of a usual row."""

    source: str
    rows: int
    id: str | None
    rule: str
    threshold: float | None
    usual_score: float
    importance: dict[str, float]
    importance_rows: int
    explained: list[Suspect]
    warnings: list[str] = field(default_factory=list)


def explain_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    id: str | None = None,
    rows: int = 10,
    only: Sequence[str] = (),
    reasons: int = 3,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, ExplainReport]:
    """Explain the most suspicious rows of a table, or those that have one of the values `only`.

    These are values of the column `id`; without such a column, numbers of rows, counted from 1.
    `rows` and `reasons` are how many rows to explain, and how many columns of each to report.

    Returns a table with a line for each row and each column the model uses, and a report with the
    first reasons and the importance of all columns over a sample of the table.
    """
    preparer, detector = steps_of(model)
    windower = getattr(preparer, "windower_", None)
    if windower is not None:  # the rows are windows here
        model = plain_model(model)
    # Results of an earlier run, or other columns with such names, are nothing to explain.
    frame = frame.drop(set(RESULT_COLUMNS) - set(preparer.read_columns), strict=False)
    chosen, picks = frame, list[int]()
    if only:
        picks = _named_rows(frame, id if id in frame.columns else None, only)
        chosen, rows = frame[[row - 1 for row in picks]], len(picks)
    scores, scored = score_table(model, chosen, id=id, top=rows, source=source, progress=progress)
    suspects = scored.top
    if only:  # which have their numbers in the whole table
        suspects = [replace(each, row=picks[each.row - 1]) for each in suspects]
    elif windower is not None:  # overlapping windows of an event have the same reasons
        ranked = rank(scores.with_row_index(free_name(scores.columns), 1))
        suspects = suspects_of(first_of_events(windower, frame, ranked).head(rows), scored.id)
    progress("Finding reasons")
    with quietly():
        explanation = explain_rows(model, frame[[suspect.row - 1 for suspect in suspects]])
        # Importance is a mean over rows: a hundred show the order, and those for which there is
        # time are a sample, too.
        most = min(frame.height, _ROWS_IF_SLOW if detector_tags(detector).slow_to_score else _ROWS)
        usual = explain_rows(model, frame.sample(most, seed=0), seconds=_SECONDS)
    report = ExplainReport(
        source=source,
        rows=frame.height,
        id=scored.id,
        rule=scored.rule,
        threshold=scored.threshold,
        usual_score=explanation.base,
        importance=usual.importance(),
        importance_rows=len(usual),
        explained=with_reasons(suspects, explanation, reasons),
        warnings=scored.warnings,
    )
    return _reason_table(suspects, explanation, scored.id), report


def _named_rows(frame: pl.DataFrame, id: str | None, values: Sequence[str]) -> list[int]:
    """The numbers, counted from 1, of the rows that have these values in a column."""
    if id is None:
        names = pl.int_range(1, frame.height + 1, eager=True).cast(pl.String)
    else:
        names = to_text(frame[id]).str.strip_chars()
    rows: list[int] = []
    for value in map(str.strip, values):
        places = (names == value).arg_true()
        if places.is_empty() and id is None:
            raise InputError(
                f"There is no row {quoted(value)}: rows are numbered from 1 to {len(names):,}. To "
                "name rows by a column, say which one: id='COLUMN'."
            )
        if places.is_empty():
            guess = _close_values(names, value)
            raise InputError(f"No row has {quoted(value)} in column {quoted(id)}. {guess}")
        rows += (places + 1).to_list()
    return sorted(set(rows))


def _close_values(names: pl.Series, value: str) -> str:
    """What may be meant, or some values."""
    distinct = names.unique(maintain_order=True).drop_nulls()
    close = distinct.filter(distinct.str.contains(value, literal=True)).head(3).to_list()
    if close := close or difflib.get_close_matches(value, distinct.head(_COMPARED)):
        return f"Did you mean {' or '.join(map(quoted, close))}?"
    return f"Its values are {enumerate_names(distinct, 3)}."


def with_reasons(suspects: Sequence[Suspect], reasons: Reasons | None, n: int) -> list[Suspect]:
    """Return rows with their n first reasons; `reasons`, in the same order, may be of fewer."""
    rows = list(suspects)
    if reasons is None:
        return rows
    for i, row in enumerate(rows[: len(reasons)]):
        first = reasons.top(i, n)
        others = float(reasons.contributions[i].sum()) - sum(each.adds for each in first)
        rows[i] = replace(row, reasons=first, others=others)
    return rows


def _reason_table(
    suspects: Sequence[Suspect], explanation: Reasons, id: str | None
) -> pl.DataFrame:
    """One line for each row and column; values as text, since columns have several types."""
    kinds = {"row": pl.Int64, "id": pl.String, "anomaly_score": pl.Float64, "column": pl.String}
    kinds |= {"value": pl.String, "usual": pl.String, "adds": pl.Float64}
    kinds["standard_error"] = pl.Float64
    lines = []
    for i, s in enumerate(suspects):
        for r in explanation.of(i):
            values = (None if value is None else str(value) for value in (r.value, r.usual))
            lines.append((s.row, s.id, s.anomaly_score, r.column, *values, r.adds, r.error))
    table = pl.DataFrame(lines, schema=kinds, orient="row")
    return table if id is not None else table.drop("id")


# --- columns of a fit --------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnEffect:
    """How far a column moves the score from that of a usual row, and which values are suspicious.

    It is the mean absolute contribution over random rows. If reasons are not exact, it is the
    mean contribution to the score of the most suspicious rows.
    """

    column: str
    effect: float
    suspicious: str


def explain_fit(
    model: Pipeline, training: TrainingSample, ranked: pl.DataFrame, top: int, start: float
) -> tuple[list[ColumnEffect], str, Reasons | None]:
    """Return the effects of columns, on which rows, and reasons of the `top` suspicious rows.

    `ranked` are the unlabelled rows, the most suspicious first. The `training` rows in memory show
    the effects if a detector computes these exactly. The fit started at `start` by
    `time.perf_counter`: explaining takes the rest of its budget, or a bit more.
    """
    detector, worst = model[1], ranked.head(max(top, _SUSPICIOUS_ROWS))
    rows = worst if worst.height else training.parsed[:1]
    with quietly():
        reasons = explain_rows(model, rows, seconds=_seconds_for(detector, start))
        if reasons.from_detector:
            unlabelled = training.parsed.filter(np.asarray(training.codes == UNLABELLED))
            everyone = training.parsed if training.complete or not unlabelled.height else unlabelled
            n = min(everyone.height, _EFFECT_ROWS)
            explained = explain_rows(model, everyone.sample(n, seed=detector._seed))
            effects_of = "all rows" if n == everyone.height else f"{n:,} rows at random"
            sizes = np.abs(explained.contributions).mean(axis=0)
        else:
            explained, effects_of = reasons, f"the {rows.height} most suspicious rows"
            if len(explained) < rows.height:
                effects_of = f"{len(explained)} of {effects_of}, for which the time sufficed"
            sizes = explained.contributions.mean(axis=0)
    effects = [
        ColumnEffect(explained.columns[j], float(sizes[j]), suspicious_value(explained, j))
        for j in np.argsort(-sizes, kind="stable")
        if sizes[j] > 0
    ]
    return effects, effects_of, reasons if worst.height else None


def _seconds_for(detector: Detector, start: float) -> float:
    budget = detector.get_params(deep=False).get("budget")
    if budget is None:
        return _SECONDS
    return max(budget - (time.perf_counter() - start), _LATER * budget)


def suspicious_value(reasons: Reasons, j: int) -> str:
    """Return which values of a column go with high scores: a text, or a range of numbers."""
    values, adds, usual = reasons.values[:, j], reasons.contributions[:, j], reasons.usual[j]
    if reasons.columns[j] in reasons.parts:
        # The weekday, month, day or hour that adds most, where such a part of a date counts most.
        sums: dict[str, float] = {}
        for row in np.flatnonzero(adds > 0).tolist():
            part = reasons.part_in_words(row, j, plain_value(values[row]))
            sums[part] = sums.get(part, 0.0) + float(adds[row])
        largest = max(sums, key=lambda part: sums[part], default="")
        if largest and 2 * sums.get("", 0.0) < sum(sums.values()):
            return largest
    filled = ~np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    column = reasons.described_by.get(reasons.columns[j])
    ends = None if isinstance(usual, str) else ("low", "high")
    if column is not None:
        ends = column.extremes
    if ends is None:
        # Texts have no order: the one whose rows it moves up most is named.
        means = {value: adds[values == value].mean() for value in set(values[filled])}
        if not filled.all():
            means[BLANK] = adds[~filled].mean()
        return str(max(sorted(means), key=lambda value: means[value]))
    low, high = ends
    if low == "short" and (values[adds > 0] < 0).any():
        # A time since something that may be negative: the value lies before it, not shortly after.
        low = "before"
    # Blanks that move the scores more than numbers do are what is suspicious.
    numbers, changes = values.astype(float), np.where(filled, adds, 0.0)
    size = np.abs(changes).sum()
    if not filled.any() or np.abs(adds[~filled]).sum() > size:
        return BLANK
    middle = float(np.median(numbers[filled])) if usual is None else float(usual)
    # The share of the effect of values above the middle that raise, and of those below that lower.
    together = np.abs(changes[(changes > 0) == (numbers > middle)]).sum() / (size or 1.0)
    if together > _CLEARLY:
        return high
    if together < 1 - _CLEARLY:
        return low
    if usual is not None:
        return f"{high} or {low}"
    return "not blank" if changes.sum() > 0 else BLANK
