"""Choose the rows of a table to label next."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, Progress
from riskad.app.results import check_not_scored, earlier_results, free_name, steps_of
from riskad.core.checks import InputError
from riskad.core.labels import NORMAL, UNLABELLED, read_codes
from riskad.decisions.suggest import Suggestion, suggest_rows
from riskad.tables.cells import to_text
from riskad.tables.notes import catch_kinds

__all__ = ["SuggestReport", "SuggestedRow", "suggest_table"]


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


def suggest_table(
    model: Pipeline,
    frame: pl.DataFrame,
    n: int = 20,
    *,
    label: str | None = None,
    id: str | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, SuggestReport]:
    """Return the rows of a table to label next, ready to be labelled, and a report.

    The rows have all columns, their `anomaly_score`, the `reason` why they were chosen and, without
    `id`, their number. Rows with a label in the column `label` are not suggested; if the table has
    no such column, the rows get a blank one.
    """
    if not frame.height:
        raise InputError("The table has a header but no rows.")
    frame = frame.drop(earlier_results(frame.columns))
    check_not_scored(frame.columns, ("anomaly_score", "reason"))
    preparer, detector = steps_of(model)
    labelled, said = _labelled_rows(frame, label)
    with catch_kinds(*NOTICED) as notes:
        progress("Preparing the columns")
        parsed = preparer.parse(frame)
        progress("Choosing rows")
        codes = read_codes(np.where(labelled, NORMAL, UNLABELLED))
        rows, matrix = preparer.features(parsed), preparer.matrix(parsed)
        found = suggest_rows(detector, rows, n, y=codes, compared=matrix)
    if len(found) < n:
        said.append(f"{n:,} rows were asked for, and only {len(found):,} have no label: all came.")
    id = id if id in frame.columns else None
    chosen = _chosen_rows(frame, found, id, label)
    reasons = pl.Series(found.reasons, dtype=pl.String)
    table = chosen.with_columns(anomaly_score=found.anomaly_score, reason=reasons)
    report = SuggestReport(
        source=source,
        rows=frame.height,
        labelled=int(labelled.sum()),
        label=label,
        id=id,
        suggested=_suggested(found, chosen, id),
        warnings=said + [str(note) for note in notes],
    )
    return table, report


def _chosen_rows(
    frame: pl.DataFrame, found: Suggestion, id: str | None, label: str | None
) -> pl.DataFrame:
    """The rows, with their number unless they have names, and a column for the label."""
    chosen = frame[found.rows]
    if id is None:
        chosen.insert_column(0, pl.Series(free_name(frame.columns), found.rows + 1))
    if label is not None and label not in frame.columns:
        chosen = chosen.with_columns(pl.lit(None, dtype=pl.String).alias(label))
    return chosen


def _labelled_rows(frame: pl.DataFrame, label: str | None) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows have a label, and a message about the column."""
    if label is None:
        return np.zeros(frame.height, dtype=bool), []
    if label not in frame.columns:
        said = f"there is no column {label!r} yet: no row counts as labelled"
        return np.zeros(frame.height, dtype=bool), [said]
    words = to_text(frame[label]).str.strip_chars()
    return (~words.fill_null("").is_in(["", "unlabelled"])).to_numpy(), []


def _suggested(found: Suggestion, chosen: pl.DataFrame, id: str | None) -> list[SuggestedRow]:
    ids = to_text(chosen[id]).to_list() if id is not None else [None] * len(found)
    parts = ((found.rows + 1).tolist(), ids, found.anomaly_score.tolist(), found.reasons)
    return [SuggestedRow(*line) for line in zip(*parts, strict=True)]
