"""Score rows into a target that already holds scored rows, each row once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.results import own_decision, steps_of
from riskad.app.score import NoRows, ScoreReport, score_table
from riskad.tables.targets import NewRows, Since, Target

__all__ = ["score_into"]


def score_into(
    model: Pipeline,
    batches: Iterable[pl.DataFrame],
    target: Target,
    since: Since | None = None,
    *,
    source: str = "table",
    **options: Any,
) -> ScoreReport:
    """Score the rows of a table, and add them to a target in one step.

    Parameters
    ----------
    model, batches
        As in `riskad.score_table`.
    target
        Where the rows go (`riskad.tables.targets.choose_target`).
    since
        Which rows to look at; rows that are in the target are left out. None means all rows.
    source, **options
        As in `riskad.score_table`.

    Returns
    -------
    ScoreReport
        What was found in the new rows; there may be none.
    """
    rows = None if since is None else NewRows(batches, since, target)
    with target.writing():
        try:
            told = {"source": source, **options}
            _, report = score_table(model, batches if rows is None else rows, target.add, **told)
        except NoRows:
            if rows is None:
                raise
            report = _nothing_new(model, source, options.get("id"))
    return report if rows is None else replace(report, skipped=rows.skipped)


def _nothing_new(model: Pipeline, source: str, id: str | None) -> ScoreReport:
    decision = own_decision(steps_of(model)[1])
    return ScoreReport(source, 0, id, decision.threshold, 0, [], rule=decision.rule)
