"""Estimate the anomaly rate of the unlabelled rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from riskad.app.anomaly_rate import check_labels, estimate_prior
from riskad.app.noticed import Progress, collect_warnings
from riskad.app.results import describe_left_out, earlier_results, pick_features, with_group
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import PriorEstimate
from riskad.decisions.label_check import LabelCheck
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.tables.preparation import TablePreparer

__all__ = ["PriorReport", "estimate_table_prior"]


@dataclass(frozen=True)
class PriorReport:
    """What `estimate_table_prior` found."""

    source: str
    rows: int
    label: str
    labels: LabelCounts
    preparation: list[str]
    estimate: PriorEstimate
    check: LabelCheck
    warnings: list[str] = field(default_factory=list)


def estimate_table_prior(
    frame: pl.DataFrame,
    labels: LabelColumn,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    group: str | None = None,
    method: str = "auto",
    seed: int = 0,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> PriorReport:
    """Estimate the anomaly rate of the unlabelled rows of a table, and check its assumptions.

    The parameters are those of `fit_table`; `method` is that of `riskad.estimate_prior`.
    """
    table = FrameTable(frame, labels)
    earlier = earlier_results(frame.columns)
    features = pick_features(table.columns, labels.column, id, drop, earlier)
    preparer = TablePreparer(kinds=kinds, group=group)
    with collect_warnings() as notes:
        progress("Preparing the columns")
        matrix = preparer.fit_transform(frame.select(with_group(features, group, table.columns)))
        progress("Estimating the anomaly rate")
        estimate = estimate_prior(matrix, table.codes, method=method, random_state=seed)
        progress("Comparing labelled rows with the unlabelled rows")
        names = preparer.get_feature_names_out()
        check = check_labels(matrix, table.codes, estimate=estimate, names=names, random_state=seed)
    return PriorReport(
        source=source,
        rows=frame.height,
        label=labels.column,
        labels=table.counts,
        preparation=preparer.describe() + describe_left_out(earlier),
        estimate=estimate,
        check=check,
        warnings=[str(note) for note in notes],
    )
