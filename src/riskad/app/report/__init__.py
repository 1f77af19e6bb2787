"""The ways to show a report: on the terminal, as an HTML page, as JSON.

A report is a record, such as a `riskad.app.fit_report.FitReport`. `sections` turns it into `blocks`
of text, tables and charts; `look` does so for a look at a table. `page` draws them, `layout` prints
them, and `riskad.app.card` writes them as a model card. `wording` has the sentences and `charts`
the charts. `files` writes pages and JSON, and `terminal` prints what each command did.
"""

from typing import Any

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of reports, which follows from the annotations of `FitReport`."""
    from riskad.app.fit_report import FitReport
    from riskad.app.report.files import SCHEMA
    from riskad.storage.records import json_schema

    schema = json_schema(FitReport)
    written = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "riskad report",
        **schema,
        "properties": {"schema": {"const": SCHEMA}, "written": written, **schema["properties"]},
        "required": ["schema", *schema["required"]],
    }
