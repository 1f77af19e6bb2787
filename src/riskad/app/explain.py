"""Explain the most suspicious rows of a table, or those that are named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, Progress, no_warnings
from riskad.app.reasons import Reasons, explain_rows
from riskad.app.results import (
    SCORE_COLUMNS,
    Suspect,
    earlier_results,
    free_name,
    own_decision,
    rank,
    score_columns,
    steps_of,
    suspects_of,
)
from riskad.core.checks import InputError, enumerate_names, quoted
from riskad.tables.cells import to_text
from riskad.tables.notes import catch_kinds

__all__ = ["ExplainReport", "explain_table", "with_reasons"]

_SECONDS = 30.0  # after which no further row is explained, unless requested
_ROWS, _ROWS_IF_SLOW = 100, 20  # to measure the importance of columns
_COMPARED = 10_000  # values that a misspelled one is compared with


@dataclass(frozen=True)
class ExplainReport:
    """What `explain_table` found; `usual_score` is the anomaly score of a usual row."""

    source: str
    rows: int
    id: str | None
    rule: str
    threshold: float
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
    """Explain the most suspicious rows of a table, or those that are named.

    Scores that the table already holds are computed again.

    Parameters
    ----------
    model
        A model from `riskad.fit_table`.
    frame
        The table.
    id
        Column that names the rows; no error if it is missing.
    rows, reasons
        How many rows to explain, and how many columns of each to report.
    only
        Explain all rows that have one of these values in the column `id`, instead of the most
        suspicious ones. Without such a column, the values are numbers of rows, counted from 1.
    source, progress
        Name of the table in the report; a function that is called with each step.

    Returns
    -------
    tuple
        A table with a line for each of these rows and each column the model uses: its value, the
        usual value, and what it adds to the anomaly score. And a report with the first reasons, and
        the importance of all columns over a sample of the table.
    """
    if not frame.height:
        raise InputError("The table has a header but no rows.")
    frame = frame.drop(earlier_results(frame.columns))
    id = id if id in frame.columns else None
    named = _named_rows(frame, id, only) if only else None
    preparer, detector = steps_of(model)
    with catch_kinds(*NOTICED) as notes:
        progress("Scoring")
        parsed = preparer.parse(frame)
        scores = detector.anomaly_score(preparer.features(parsed))
    decision = own_decision(detector)
    results = pl.DataFrame(score_columns(detector, scores, decision))
    suspects = _worst_rows(frame, results.select(SCORE_COLUMNS), id, rows, named)
    progress("Finding reasons")
    with no_warnings():
        found = explain_rows(model, frame[[suspect.row - 1 for suspect in suspects]])
        most = min(parsed.height, _ROWS_IF_SLOW if detector.slow_to_score else _ROWS)
        usual = explain_rows(model, parsed.sample(most, seed=0), seconds=_SECONDS)
    report = ExplainReport(
        source=source,
        rows=frame.height,
        id=id,
        rule=decision.rule,
        threshold=detector.anomaly_threshold,
        usual_score=found.base,
        importance=usual.importance(),
        importance_rows=len(usual),
        explained=with_reasons(suspects, found, reasons),
        warnings=[str(note) for note in notes],
    )
    return _reason_table(suspects, found, id), report


def _named_rows(frame: pl.DataFrame, id: str | None, values: Sequence[str]) -> list[int]:
    """The numbers, counted from 1, of the rows that have these values in a column."""
    if id is None:
        names = pl.int_range(1, frame.height + 1, eager=True).cast(pl.String)
    else:
        names = to_text(frame[id]).str.strip_chars()
    rows: list[int] = []
    for value in values:
        places = (names == value.strip()).arg_true()
        if places.is_empty():
            raise InputError(_no_such_row(names, id, value.strip()))
        rows += (places + 1).to_list()
    return rows


def _no_such_row(names: pl.Series, id: str | None, value: str) -> str:
    if id is None:
        return (
            f"There is no row {quoted(value)}: rows are numbered from 1 to {len(names):,}. To name "
            "rows by a column, say which one: id='COLUMN'."
        )
    known, half = names.unique(maintain_order=True).drop_nulls(), len(value) // 2
    close = known.filter(known.str.contains(value, literal=True)).head(3).to_list()
    if not close:
        alike = known.str.starts_with(value[:half]) | known.str.ends_with(value[-half:])
        close = difflib.get_close_matches(value, known.filter(alike).head(_COMPARED))
    guess = f"Its values are {enumerate_names(known, 3)}."
    if close:
        guess = f"Did you mean {' or '.join(map(quoted, close))}?"
    return f"No row has {quoted(value)} in column {quoted(id)}. {guess}"


def _worst_rows(
    frame: pl.DataFrame, results: pl.DataFrame, id: str | None, n: int, named: list[int] | None
) -> list[Suspect]:
    """The n rows with the highest scores, or the rows with these numbers."""
    scored = results if id is None else frame.select(id).hstack(results)
    number = free_name(scored.columns)
    ranked = rank(scored.with_row_index(number, 1))
    chosen = ranked.head(n) if named is None else ranked.filter(pl.col(number).is_in(named))
    return suspects_of(chosen, id)


def with_reasons(suspects: Sequence[Suspect], reasons: Reasons | None, n: int) -> list[Suspect]:
    """Return rows with their n first reasons; rows that were not explained have none.

    Parameters
    ----------
    suspects
        Rows in the order of `reasons`, which may have fewer.
    reasons
        Why they are suspicious.
    n
        Number of reasons of each row.
    """
    rows = list(suspects)
    if reasons is None:
        return rows
    for i in range(min(len(rows), len(reasons))):
        first = reasons.top(i, n)
        others = float(reasons.contributions[i].sum()) - sum(each.adds for each in first)
        rows[i] = replace(rows[i], reasons=first, others=others)
    return rows


def _reason_table(suspects: Sequence[Suspect], found: Reasons, id: str | None) -> pl.DataFrame:
    """One line for each row and column; values as text, since columns have several types."""
    kinds = {"row": pl.Int64, "id": pl.String, "anomaly_score": pl.Float64, "column": pl.String}
    kinds |= {"value": pl.String, "usual": pl.String, "adds": pl.Float64}
    lines = [
        (s.row, s.id, s.anomaly_score, r.column, _cell(r.value), _cell(r.usual), r.adds, r.error)
        for i, s in enumerate(suspects)
        for r in found.of(i)
    ]
    table = pl.DataFrame(lines, schema=kinds | {"standard_error": pl.Float64}, orient="row")
    return table if id is not None else table.drop("id")


def _cell(value: float | str | None) -> str | None:
    return None if value is None else str(value)
