"""What labels that come back may hold, and the OpenAPI document: `openapi.json`, completed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import riskad
from riskad.app.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.files.fields import Number, Text
from riskad.files.records import json_schema
from riskad.web.serve.model import ServedModel
from riskad.web.serve.scoring import SCORE_SETTINGS

MOST_LABELS = 1_000  # in one request


@dataclass(frozen=True)
class LabelledRow:
    """A label that comes back: of a row, by whom, and how the row was selected."""

    row: dict[str, Any]
    label: Literal[LABELS]  # type: ignore[valid-type]
    who: Annotated[str, Text(shortest=1, longest=LONGEST_NAME)]
    source: Literal[SOURCES] = "chosen"  # type: ignore[valid-type]
    note: Annotated[str, Text(longest=LONGEST_NOTE)] = ""
    number: Annotated[int, Number(1, 10**12, whole=True)] | None = None


def describe_service(model: ServedModel, most_rows: int) -> dict[str, Any]:
    """Return the description of all addresses, with the columns of the present model."""
    document: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
    document["info"] |= {"title": f"riskad: {model.name}", "version": riskad.__version__}
    cell, kinds = {"type": ["number", "string", "boolean", "null"]}, model.scorer.kinds
    columns = {name: cell | {"description": kinds[name]} for name in model.scorer.columns}
    schemas = document["components"]["schemas"]
    schemas["Label"] = json_schema(LabelledRow)
    schemas["Row"] |= {"properties": columns, "required": list(columns)}
    schemas["Rows"]["properties"]["rows"]["maxItems"] = most_rows
    schemas["Labels"]["properties"]["labels"]["maxItems"] = MOST_LABELS
    document["paths"]["/score"]["post"]["parameters"] = [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "integer", "minimum": 0, "maximum": largest},
            "description": about,
        }
        for name, (largest, about) in SCORE_SETTINGS.items()
    ]
    return document
