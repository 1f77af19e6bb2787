"""Compare the rows of a table with those that a model was fitted to."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.noticed import Progress, collect_warnings
from riskad.app.results import steps_of
from riskad.core.checks import InputError
from riskad.decisions.drift import DriftReport, drift_report

__all__ = ["TableDrift", "drift_table"]


@dataclass(frozen=True)
class TableDrift:
    """What `drift_table` found."""

    source: str
    drift: DriftReport
    warnings: list[str] = field(default_factory=list)


def drift_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    level: float = 0.05,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> TableDrift:
    """Compare the rows of a table with the unlabelled rows that the model was fitted to."""
    if not frame.height:
        raise InputError("The table has a header but no rows.")
    steps_of(model)
    with collect_warnings() as notes:
        progress("Comparing the rows with those of the fit")
        found = drift_report(model, frame, level=level)
    return TableDrift(source, found, [str(note) for note in notes])
