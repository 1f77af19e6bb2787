"""Choose the rows of a table to label next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.fit_report import FitReport
from riskad.app.score import NoRows, catch_notes, check_not_scored, earlier_results, steps_of
from riskad.app.series import first_of_events
from riskad.core.checks import InputError
from riskad.core.labels import NORMAL, UNLABELLED, read_codes
from riskad.decisions.suggest import suggest_rows
from riskad.tables.cells import free_name, to_text


@dataclass(frozen=True)
class SuggestedRow:
    """A row to label, counted from 1, and why it was chosen."""

    row: int
    id: str | None
    anomaly_score: float
    reason: str


@dataclass(frozen=True)
class SuggestReport:
    """What `suggest_table` found: rows in the order to label them."""

    source: str
    rows: int
    labelled: int
    label: str | None
    id: str | None
    suggested: list[SuggestedRow]
    warnings: list[str] = field(default_factory=list)


def doubtful_table(
    report: FitReport | None,
    frame: pl.DataFrame,
    n: int = 20,
    *,
    label: str | None = None,
    id: str | None = None,
    source: str = "table",
) -> tuple[pl.DataFrame, SuggestReport]:
    """Return the rows of the table of a fit whose labels look wrong, to look at again."""
    if report is None or report.doubtful is None:
        raise InputError(
            "The model does not say which labels look wrong: fit it again with `riskad fit` on a "
            "table that fits in memory, with labels of both kinds."
        )
    if frame.height != report.rows:
        raise InputError(
            f"--doubtful takes the table of the fit, {report.source} with {report.rows:,} rows, "
            f"and {source} has {frame.height:,}."
        )
    chosen, counts = report.doubtful.rows[:n], report.labels
    return _suggested(
        frame.drop(earlier_results(frame.columns)),
        [each.row for each in chosen],
        [each.anomaly_score for each in chosen],
        [f"labelled {each.label}, probably wrong: {each.percent}" for each in chosen],
        source=source,
        labelled=0 if counts is None else counts.normal + counts.anomaly,
        label=label,
        id=id,
        warnings=[] if chosen else [report.doubtful.summary],
    )


def suggest_table(
    model: Pipeline,
    frame: pl.DataFrame,
    n: int = 20,
    *,
    label: str | None = None,
    id: str | None = None,
    source: str = "table",
    progress: Callable[[str], object] = lambda _: None,
) -> tuple[pl.DataFrame, SuggestReport]:
    """Return the rows of a table to label next, ready to be labelled, and a report.

    The rows have all columns, their `anomaly_score`, the `reason` why they were chosen and, without
    `id`, their number. Rows with a label in the column `label` are not suggested; if the table has
    no such column, the rows get a blank one.
    """
    if not frame.height:
        raise NoRows
    frame = frame.drop(earlier_results(frame.columns))
    check_not_scored(frame.columns, ("anomaly_score", "reason"))
    preparer, detector = steps_of(model)
    labelled, remarks = np.zeros(frame.height, dtype=bool), []
    missing = label if label not in frame.columns else None
    if missing is not None:
        remarks.append(f"there is no column {label!r} yet: no row counts as labelled")
    elif label is not None:
        words = to_text(frame[label]).str.strip_chars().fill_null("")
        labelled = (~words.is_in(["", "unlabelled"])).to_numpy()
    with catch_notes() as notes:
        progress("Preparing the columns")
        parsed, places = preparer.parse(frame), np.arange(frame.height)
        if hasattr(preparer, "windower_"):  # one window of each event
            scores = detector.anomaly_score(preparer.features(parsed))
            flagged = scores > detector._anomaly_threshold
            ranked = pl.DataFrame({"row": places + 1, "is_anomaly": flagged})[np.argsort(-scores)]
            first = first_of_events(preparer.windower_, frame, ranked)
            places = np.sort(first["row"].to_numpy() - 1)
            parsed = parsed[places]
        progress("Choosing rows")
        codes = read_codes(np.where(labelled[places], NORMAL, UNLABELLED))
        rows, matrix = preparer.features(parsed), preparer.matrix(parsed)
        chosen = suggest_rows(detector, rows, n, y=codes, compared=matrix)
    if len(chosen) < n:
        remarks.append(
            f"{n:,} rows were asked for, and only {len(chosen):,} have no label: all are listed"
        )
    table, report = _suggested(
        frame,
        (places[chosen.rows] + 1).tolist(),
        chosen.anomaly_score.tolist(),
        chosen.reasons,
        source=source,
        labelled=int(labelled.sum()),
        label=label,
        id=id if id in frame.columns else None,
        warnings=remarks + [str(note) for note in notes],
    )
    if missing is not None:
        table.insert_column(-2, pl.lit(None, dtype=pl.String).alias(missing))
    return table, report


def _suggested(
    frame: pl.DataFrame,
    numbers: Sequence[int],
    scores: Sequence[float],
    reasons: Sequence[str],
    *,
    id: str | None,
    **facts: Any,
) -> tuple[pl.DataFrame, SuggestReport]:
    """Return these rows of a table, with scores, reasons and perhaps numbers, and the report."""
    table, ids = frame[[number - 1 for number in numbers]], [None] * len(numbers)
    if id is None:
        table.insert_column(0, pl.Series(free_name(frame.columns), numbers, dtype=pl.Int64))
    else:
        ids = to_text(table[id]).to_list()
    suggested = list(map(SuggestedRow, numbers, ids, scores, reasons))
    types = {"anomaly_score": pl.Float64, "reason": pl.String}
    added = pl.DataFrame({"anomaly_score": scores, "reason": reasons}, schema=types)
    report = SuggestReport(rows=frame.height, suggested=suggested, id=id, **facts)
    return table.hstack(added), report
