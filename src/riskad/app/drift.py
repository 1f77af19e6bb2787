"""Compare the rows of a table with the training rows of a model."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, Progress
from riskad.app.results import steps_of
from riskad.core.checks import InputError
from riskad.decisions.drift import DriftReport, drift_report
from riskad.tables.notes import catch_kinds


@dataclass(frozen=True)
class TableDrift:
    """What `drift_table` found.

    `alarm` is whether anything has moved further than `fail_above`; `above` lists what has, the
    furthest first: columns, and "scores".
    """

    source: str
    drift: DriftReport
    warnings: list[str] = field(default_factory=list)
    fail_above: float | None = None
    alarm: bool = False
    above: list[str] = field(default_factory=list)


def drift_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    level: float = 0.05,
    fail_above: float | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> TableDrift:
    """Compare the rows of a table with the unlabelled rows that the model was fitted to.

    `level` is the probability of reporting a change if nothing has moved. Beyond `fail_above`, a
    distance D (`riskad.decisions.drift`), a column that has moved, or the scores, raise an alarm.
    In few rows a distance may be large by chance: a column that has not moved at this `level`
    raises no alarm, however large its D.
    """
    if not frame.height:
        raise InputError("The table has a header but no rows.")
    if fail_above is not None and not 0 <= fail_above < 1:
        raise InputError(
            f"fail_above must be at least 0 and below 1, got {fail_above:g}. It is a distance of "
            "two distributions: 0 is for any that has moved, 0.2 for one of which a fifth has."
        )
    steps_of(model)
    with catch_kinds(*NOTICED) as notes:
        progress("Comparing the rows with those of the fit")
        drift = drift_report(model, frame, level=level)
    above: list[str] = []
    if fail_above is not None:
        compared = [*drift.columns, *([] if drift.scores is None else [drift.scores])]
        beyond = [each for each in compared if each.moved and each.distance > fail_above]
        above = [each.name for each in sorted(beyond, key=lambda each: -each.distance)]
    return TableDrift(source, drift, list(map(str, notes)), fail_above, bool(above), above)
