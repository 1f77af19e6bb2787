"""Reports as files: a page or JSON, depending on the file name."""

from __future__ import annotations

import os
from pathlib import Path

from riskad.app.report.html import render_page
from riskad.app.report.json import SCHEMA, to_json
from riskad.app.report.summary import ReportData
from riskad.core.checks import InputError
from riskad.storage.files import atomic_path

__all__ = ["check_report_name", "write_report"]


def check_report_name(path: str | os.PathLike[str]) -> Path:
    """Check that the name of a report has a known ending.

    Returns
    -------
    Path
        `path`, if it ends in .html, .htm or .json.
    """
    if Path(path).suffix.lower() in (".html", ".htm", ".json"):
        return Path(path)
    raise InputError(
        f"The name of a report, {str(path)!r}, must end in .html (a page) or .json (for machines)."
    )


def write_report(data: ReportData, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a page, or JSON if `path` ends in .json, atomically."""
    if check_report_name(path).suffix.lower() == ".json":
        text = to_json(data, schema=SCHEMA) + "\n"
    else:
        text = render_page(data)
    with atomic_path(path, force) as part:
        part.write_text(text, encoding="utf-8")
