"""Reports as files and as JSON: a page or JSON, depending on the file name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from riskad.app.fit_report import FitReport
from riskad.core.checks import InputError
from riskad.storage.files import atomic_path

SCHEMA = "riskad-report-1"
"""The version that reports name; `riskad.app.report.report_schema` describes it."""


def check_report_name(path: str | os.PathLike[str]) -> Path:
    """Return the path of a report, if it ends in .html, .htm or .json."""
    if Path(path).suffix.lower() in (".html", ".htm", ".json"):
        return Path(path)
    raise InputError(
        f"The name of a report, {str(path)!r}, must end in .html (a page) or .json (for machines)."
    )


def write_report(report: FitReport, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a page, or JSON if `path` ends in .json, atomically."""
    if check_report_name(path).suffix.lower() == ".json":
        text = to_json(report) + "\n"
    else:
        from riskad.app.report.page import render_page

        text = render_page(report)
    with atomic_path(path, force) as part:
        part.write_text(text, encoding="utf-8")


def to_json(report: Any, **more: Any) -> str:
    """Write a record as one JSON object, after other fields; a `FitReport` names its schema.

    The text is ASCII, because a terminal would obey control characters in names. Numbers that are
    not finite become null.
    """
    schema = {"schema": SCHEMA} if isinstance(report, FitReport) else {}
    return json.dumps(_finite(schema | more | asdict(report)), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
