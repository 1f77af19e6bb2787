"""Describe the contents of a model file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sklearn.pipeline import Pipeline

from riskad.app.fit_notes import known_to_fit
from riskad.app.model_files import ModelHeader
from riskad.detectors.description import SelfDescribing
from riskad.tables.preparation import TablePreparer

__all__ = ["ModelReport", "describe_model", "plain_parameters"]


@dataclass(frozen=True)
class ModelReport:
    """The contents of a model file: its header, and the description by the model itself."""

    header: ModelHeader
    steps: list[str]
    settings: dict[str, Any]
    fitted: dict[str, Any]
    said: list[str]
    evidence: str
    preparation: list[str]
    decision: dict[str, Any] = field(default_factory=dict)
    kept_rows: int = 0

    @property
    def training(self) -> dict[str, Any]:
        """The notes that a fit stored in the file, if there are any."""
        training: dict[str, Any] = self.header.notes.get("fit", {})
        return training


def describe_model(model: Any, header: ModelHeader) -> ModelReport:
    """Describe a model and the header of its file.

    Parameters
    ----------
    model, header
        Results of `riskad.load` and `riskad.app.model_files.read_header`.

    Returns
    -------
    ModelReport
        The description.
    """
    detector = model.steps[-1][1] if isinstance(model, Pipeline) else model
    first = model.steps[0][1] if isinstance(model, Pipeline) else None
    known = detector if isinstance(detector, SelfDescribing) else None
    return ModelReport(
        header=header,
        steps=[type(step).__name__ for _, step in getattr(model, "steps", [("", model)])],
        settings=plain_parameters(detector),
        fitted={}
        if known is None
        else known.describe() | known_to_fit(header.notes.get("fit", {})),
        said=[] if known is None else known.describe_in_words(),
        evidence="" if known is None else known.evidence_in_words(),
        preparation=first.describe() if isinstance(first, TablePreparer) else [],
        decision=_decision_facts(detector),
        kept_rows=0 if known is None else known.kept_rows(),
    )


def plain_parameters(detector: Any) -> dict[str, Any]:
    """Return the parameters of an estimator in a form that JSON can hold."""
    parameters = detector.get_params(deep=False)
    plain = (str, int, float, bool, type(None))
    return {k: v if isinstance(v, plain) else repr(v) for k, v in parameters.items()}


def _decision_facts(detector: Any) -> dict[str, Any]:
    """The rule by which the model decides, and which others are possible."""
    if not hasattr(detector, "offset_"):
        return {}
    facts = {
        "rule": str(getattr(detector, "threshold_", "risk")),
        "threshold": -float(detector.offset_) + 0.0,
    }
    if hasattr(detector, "calibration_"):
        calibration = detector.calibration_
        rate = None if calibration.rate is None else tuple(calibration.rate)
        n, m = len(calibration.normals), len(calibration.anomalies)
        rests_on = "" if calibration.rate is None else calibration.rate.assumption
        facts |= {"rate": rate, "rate_rests_on": rests_on, "normals": n, "anomalies": m}
    return facts
