"""Choose the rows of a table to label next."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, Progress
from riskad.app.results import check_not_scored, earlier_results, free_name, steps_of
from riskad.core.checks import InputError
from riskad.core.labels import NORMAL, UNLABELLED, read_codes
from riskad.decisions.suggest import suggest_rows
from riskad.tables.cells import to_text
from riskad.tables.notes import catch_kinds


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
    labelled, said = np.zeros(frame.height, dtype=bool), []
    if label is not None and label in frame.columns:
        words = to_text(frame[label]).str.strip_chars().fill_null("")
        labelled = (~words.is_in(["", "unlabelled"])).to_numpy()
    elif label is not None:
        said.append(f"there is no column {label!r} yet: no row counts as labelled")
    with catch_kinds(*NOTICED) as notes:
        progress("Preparing the columns")
        parsed = preparer.parse(frame)
        progress("Choosing rows")
        codes = read_codes(np.where(labelled, NORMAL, UNLABELLED))
        rows, matrix = preparer.features(parsed), preparer.matrix(parsed)
        chosen = suggest_rows(detector, rows, n, y=codes, compared=matrix)
    if len(chosen) < n:
        said.append(f"{n:,} rows were asked for, and only {len(chosen):,} have no label: all came.")
    table, numbers = frame[chosen.rows], chosen.rows + 1
    id = id if id in frame.columns else None
    ids = [None] * len(chosen) if id is None else to_text(table[id]).to_list()
    if id is None:
        table.insert_column(0, pl.Series(free_name(frame.columns), numbers))
    if label is not None and label not in frame.columns:
        table = table.with_columns(pl.lit(None, dtype=pl.String).alias(label))
    reasons = pl.Series(chosen.reasons, dtype=pl.String)
    table = table.with_columns(anomaly_score=chosen.anomaly_score, reason=reasons)
    lines = zip(numbers.tolist(), ids, chosen.anomaly_score.tolist(), chosen.reasons, strict=True)
    report = SuggestReport(
        source=source,
        rows=frame.height,
        labelled=int(labelled.sum()),
        label=label,
        id=id,
        suggested=[SuggestedRow(*line) for line in lines],
        warnings=said + [str(note) for note in notes],
    )
    return table, report
