"""The columns that scoring adds to a table, the rule that flags rows, and the worst rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.reasons import Reason
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError, enumerate_names
from riskad.decisions.calibration import Calibration
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.thresholds import Threshold, parse_threshold
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.tables.cells import check_columns, to_text
from riskad.tables.preparation import TablePreparer

SCORE_COLUMNS = ("anomaly_score", "is_anomaly")
SUSPECT_COLUMNS = "^(anomaly_score|is_anomaly|novelty)$"  # those of them that there are
RESULT_COLUMNS = (*SCORE_COLUMNS, "anomaly_probability", "p_value", "novelty")
"""Columns that scoring may add: a probability if the model is calibrated, a p-value with a false
discovery rate, novelty if the model has it. Reasons come after these."""
_RESULT_COLUMN = re.compile("|".join((*RESULT_COLUMNS, r"reason(_\d+)?")))


@dataclass(frozen=True)
class Suspect:
    """A row that looks anomalous; rows are counted from 1, below the header."""

    row: int
    id: str | None
    anomaly_score: float
    is_anomaly: bool
    novelty: float | None = None
    anomaly_probability: float | None = None
    reasons: list[Reason] = field(default_factory=list)
    """The columns that raise its score most, if it was explained."""
    others: float = 0.0
    """What all other columns add."""


@dataclass(frozen=True)
class Decision:
    """Which rows are flagged: those above a threshold, or those with p-values up to a maximum."""

    rule: str
    threshold: float | None
    largest_p: float = 0.0
    selection: str = ""


def steps_of(model: object) -> tuple[TablePreparer, Any]:
    """Return the preparer and the detector of a model that was fitted on a table."""
    if (
        isinstance(model, Pipeline)
        and len(model) == 2
        and isinstance(model[0], TablePreparer)
        and hasattr(model[1], "anomaly_score")
    ):
        return model[0], model[1]
    raise InputError(
        f"This model, a {type(model).__name__}, was not made by riskad.fit_table, so it does not "
        "know how to read a table. Score it in Python, or save "
        "Pipeline([('prepare', TablePreparer()), ('detect', detector)]) instead."
    )


# --- columns -----------------------------------------------------------------------------


def earlier_results(columns: Sequence[str]) -> list[str]:
    """Return the columns with old results, in rows that were scored and then labelled."""
    if not set(SCORE_COLUMNS) & set(columns):
        return []  # a column p_value then belongs to the table itself
    return [name for name in columns if _RESULT_COLUMN.fullmatch(name)]


def check_not_scored(columns: Sequence[str], added: Sequence[str]) -> None:
    """Refuse a table with columns that results would overwrite."""
    if not set(added).isdisjoint(columns):
        taken = [name for name in added if name in columns]
        raise InputError(
            f"The table already has {'a column' if len(taken) == 1 else 'columns'} "
            f"{enumerate_names(taken)}, under which the scores would be written; it may have been "
            f"scored before. Rename {'it or take it' if len(taken) == 1 else 'them or take them'} "
            "out."
        )


def pick_features(
    columns: Sequence[str], label: str | None, spec: FitSpec, earlier: Sequence[str]
) -> list[str]:
    """Return the columns to learn from, without results of an earlier run.

    The group column is among them, even if it names the rows.
    """
    out = [name for name in (label, spec.id) if name is not None]
    out += [name for name in spec.drop if name not in earlier]
    out += [name for name in [spec.label_sampling] if name in columns]
    check_columns(out, columns if label is None else [*columns, label])
    features = [name for name in columns if name not in {*out, *earlier}]
    if not features:
        raise InputError("Every column is left out; there is nothing to learn from.")
    if spec.group is not None and spec.group not in features:
        check_columns([spec.group], columns)
        features.append(spec.group)
    return features


def free_name(columns: Sequence[str]) -> str:
    """Return a name for the row number that no column has."""
    name = "row"
    while name in columns:
        name += "_"
    return name


# --- decisions ---------------------------------------------------------------------------


def own_decision(detector: Detector) -> Decision:
    """Return the decision by the model's own threshold."""
    return Decision(str(getattr(detector, "threshold_", "risk")), detector._anomaly_threshold)


def decide(
    detector: Detector,
    rule: Threshold | str | None,
    fdr: float | None,
    all_scores: Callable[[], NDArray[np.float64]],
) -> Decision:
    """Decide by a rule or at a false discovery rate, else by the model's own rule.

    The model does not change. `all_scores` returns the scores of the whole table; it is called if
    the decision depends on them.
    """
    if fdr is not None:
        calibration: Calibration = detector._calibrated("p-values")
        scores = all_scores()
        p_values = calibration.p_values(scores)
        likely = (
            calibration.anomaly_probability(scores) if calibration.knows_probabilities else None
        )
        chosen = select_at_fdr(p_values, fdr, len(calibration.normals), likely)
        largest = float(p_values[chosen.selected].max(initial=0.0))
        return Decision(f"fdr:{fdr:g}", None, largest, str(chosen))
    if rule is None:
        return own_decision(detector)
    rule = parse_threshold(rule) if isinstance(rule, str) else rule
    calibration = detector._calibrated("other thresholds than the model's")
    if rule.depends_on_table:
        calibration = calibration.over(all_scores())
    return Decision(str(rule), rule.of(calibration))


def score_rows(
    detector: Detector, rows: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the anomaly scores of prepared rows and, if the detector has it, novelty."""
    if detector_tags(detector).supports_novelty:
        scores, novelty = detector._anomaly_score_and_novelty(rows)
        return scores, novelty
    return detector.anomaly_score(rows), None


def knows_probabilities(detector: Any) -> bool:
    """Return whether a model gives the probability that a row is an anomaly."""
    calibration = getattr(detector, "calibration_", None)
    return calibration is not None and calibration.knows_probabilities


def score_columns(
    detector: Any,
    scores: NDArray[np.float64],
    decision: Decision,
    novelty: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the columns that scoring adds, except reasons, in the order of `RESULT_COLUMNS`."""
    columns: dict[str, Any] = {"anomaly_score": scores}
    p_values = None
    if decision.threshold is not None:
        columns["is_anomaly"] = scores > decision.threshold
    else:
        p_values = detector.calibration_.p_values(scores)
        columns["is_anomaly"] = p_values <= decision.largest_p
    if knows_probabilities(detector):
        columns["anomaly_probability"] = detector.calibration_.anomaly_probability(scores)
    if p_values is not None:
        columns["p_value"] = p_values
    if novelty is not None:
        columns["novelty"] = novelty
    return columns


# --- rows --------------------------------------------------------------------------------


def rank(scored: pl.DataFrame, by: str = "anomaly_score") -> pl.DataFrame:
    """Return rows, the most suspicious, or the newest, first."""
    return scored.sort(by, descending=True, maintain_order=True)


def suspects_of(ranked: pl.DataFrame, id: str | None) -> list[Suspect]:
    """Return ranked rows for a report; their first column is their number."""
    rows = ranked.get_column(ranked.columns[0]).to_list()
    ids = to_text(ranked[id]).to_list() if id is not None else [None] * len(rows)
    return list(map(Suspect, rows, ids, *ranked.select(SUSPECT_COLUMNS)))
