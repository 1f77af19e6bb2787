"""Labels that look wrong, as a fit reports them: which rows, why, and how many to expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.reasons import Reason, explain_rows, show_value
from riskad.core.labels import ANOMALY, Codes
from riskad.decisions.calibration import quietly
from riskad.decisions.label_issues import find_label_issues
from riskad.files.fields import SHARE
from riskad.files.records import Count
from riskad.metrics.ranking import Estimate
from riskad.tables.cells import to_text

MOST_SHOWN = 20
_REASONS = 2
_UNSTORED = {"stored": False}  # cells of the table are in no model file


@dataclass(frozen=True)
class DoubtfulLabel:
    """A label that looks wrong; rows are counted from 1, below the header."""

    row: Count
    label: str
    p_wrong: Annotated[float, SHARE]
    anomaly_score: float  # by a fit that has not seen the label
    id: str | None = field(default=None, metadata=_UNSTORED)
    reasons: list[Reason] = field(default_factory=list, metadata=_UNSTORED)

    @property
    def percent(self) -> str:
        """How probably the label is wrong, in words that promise no certainty."""
        return f"{min(self.p_wrong, 0.99):.0%}"

    @property
    def looks(self) -> str:
        """What the row looks like to fits that have not seen its label."""
        if self.label == "anomaly":
            return "normal"
        values = [
            f"{each.column} {show_value(each.value)} (usual {show_value(each.usual)})"
            for each in self.reasons
        ]
        return f"anomalous{': ' if values else ''}{', '.join(values)}"


@dataclass(frozen=True)
class DoubtfulLabels:
    """Labels that look wrong, the most probable first."""

    summary: str
    expected: Estimate | None = None
    p_value: Annotated[float, SHARE] | None = None
    rows: list[DoubtfulLabel] = field(default_factory=list)


def check_labels_of_fit(
    model: Pipeline, codes: Codes, held_out: np.ndarray, parsed: pl.DataFrame, ids: pl.Series | None
) -> DoubtfulLabels:
    """Find the labels of a fit that look wrong; reasons are for the first of these rows.

    `held_out` are anomaly scores by fits that have not seen the label, NaN where there is none.
    """
    issues = find_label_issues(held_out, codes)
    names = [None] * len(issues) if ids is None else to_text(ids.gather(issues.rows)).to_list()
    reasons: list[list[Reason]] = [[]] * len(issues)
    if len(issues):
        with quietly():
            explained = explain_rows(model, parsed[issues.rows[:MOST_SHOWN]])
        reasons[:MOST_SHOWN] = [explained.top(i, _REASONS) for i in range(len(explained))]
    rows = [
        DoubtfulLabel(
            row=int(place) + 1,
            label="anomaly" if codes[place] == ANOMALY else "normal",
            p_wrong=float(issues.probabilities[place]),
            anomaly_score=float(held_out[place]),
            id=name,
            reasons=why,
        )
        for place, name, why in zip(issues.rows, names, reasons, strict=True)
    ]
    return DoubtfulLabels(str(issues), issues.expected, issues.p_value, rows)
