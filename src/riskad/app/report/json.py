"""Reports as JSON, for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

__all__ = ["SCHEMA", "to_json"]

SCHEMA = "riskad-report-1"
"""The version that reports name; `schema/report-1.json` in this package describes it."""


def to_json(report: Any, **more: Any) -> str:
    """Write a report as one JSON object.

    Parameters
    ----------
    report
        An instance of one of the report dataclasses.
    **more
        Further fields, which come first.

    Returns
    -------
    str
        The JSON text, in ASCII: a terminal would obey control characters in names. Numbers that
        are not finite become null.

    Examples
    --------
    >>> from riskad.app.score import ScoreReport
    >>> print(to_json(ScoreReport("new.csv", 3, None, 0.5, 1, []), command="score"))
    {
      "command": "score",
      "source": "new.csv",
      "rows": 3,
      "id": null,
      "threshold": 0.5,
      "flagged": 1,
      "top": [],
      "warnings": [],
      "rule": "risk",
      "selection": "",
      "added": [
        "anomaly_score",
        "is_anomaly"
      ],
      "by": "score",
      "expected": null,
      "skipped": 0
    }
    """
    return json.dumps(_finite(more | asdict(report)), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
