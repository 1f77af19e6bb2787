"""What labels that come back may hold, and the OpenAPI document (3.1) of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import riskad
from riskad.app.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.files.fields import Number, Text
from riskad.files.records import json_schema
from riskad.web.serve.model import ServedModel
from riskad.web.serve.scoring import SCORE_SETTINGS

MOST_LABELS = 1_000  # in one request
Schema = dict[str, Any]


@dataclass(frozen=True)
class LabelledRow:
    """A label that comes back: of a row, by whom, and how the row was selected."""

    row: dict[str, Any]
    label: Literal[LABELS]  # type: ignore[valid-type]
    who: Annotated[str, Text(shortest=1, longest=LONGEST_NAME)]
    source: Literal[SOURCES] = "chosen"  # type: ignore[valid-type]
    note: Annotated[str, Text(longest=LONGEST_NOTE)] = ""
    number: Annotated[int, Number(1, 10**12, whole=True)] | None = None


def _object(properties: Schema, optional: str = "", closed: bool = True) -> Schema:
    required = [name for name in properties if name not in optional.split()]
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    return schema | {"additionalProperties": False} if closed else schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_FLAG: Schema = {"type": "boolean"}
_CELL: Schema = {"type": ["number", "string", "boolean", "null"]}
_RESULT: Schema = {
    "anomaly_score": _NUMBER,
    "is_anomaly": _FLAG,
    "anomaly_probability": _SHARE,
    "novelty": _NUMBER,
    "p_value": _SHARE,
    "suppressed_by": {"type": ["string", "null"]},
    "reasons": {"type": "array", "items": _ref("Reason")},
}
_RESULTS: Schema = {"type": "array", "items": _ref("Result")}
_HEAD: Schema = {"model_version": _TEXT, "notes": {"type": "array", "items": _TEXT}}
_SOMETIMES = "anomaly_probability novelty p_value suppressed_by reasons notes"
_MODEL: Schema = {
    "model_version": _TEXT,
    "file": _TEXT,
    "loaded": _TEXT | {"format": "date-time"},
    "columns": {"type": "object", "additionalProperties": _TEXT},
    "card": _TEXT | {"description": "Markdown."},
    "report": {"type": "object"},
}
_REASON: Schema = {"column": _TEXT, "value": _CELL, "usual": _CELL}
_REASON |= {"adds": _NUMBER, "error": _NUMBER, "text": _TEXT}
_HEALTH: Schema = {"live": _FLAG, "ready": _FLAG, "model_version": _TEXT}
_HEALTH |= {"reload_error": _TEXT | {"description": "Blank, or why the file is not used."}}
_ANSWERS: Schema = {
    "Reason": _object(_REASON),
    "Result": _object(_RESULT, _SOMETIMES),
    "ScoredRow": _object(_HEAD | _RESULT, _SOMETIMES),
    "ScoredRows": _object(_HEAD | {"rows": _RESULTS}, _SOMETIMES),
    "Saved": _object({"saved": {"type": "integer"}, "journal": _TEXT}),
    "Model": _object(_MODEL, closed=False),
    "Health": _object(_HEALTH, "model_version reload_error"),
    "Error": _object({"error": _TEXT}),
    "Description": {"type": "object"},
    "Metrics": _TEXT,
}


def _content(*names: str, kind: str = "application/json") -> Schema:
    schema = _ref(names[0]) if len(names) == 1 else {"oneOf": [_ref(name) for name in names]}
    return {"content": {kind: {"schema": schema}}}


def _operation(
    about: str, *answers: str, takes: tuple[str, ...] = (), kind: str = "application/json"
) -> Schema:
    """One address: what it takes and answers; every refusal is a sentence in {"error": ...}."""
    good = {"description": "The answer.", **_content(*answers, kind=kind)}
    refusal = {"description": "Refused; the sentence says why.", **_content("Error")}
    body = {"requestBody": {"required": True, **_content(*takes)}} if takes else {}
    return {"summary": about, **body, "responses": {"200": good, "default": refusal}}


def describe_service(model: ServedModel, most_rows: int) -> Schema:
    """Return the description of all addresses, with the columns of the present model."""
    kinds = model.scorer.kinds
    cells = {name: _CELL | {"description": kinds[name]} for name in model.scorer.columns}
    several = {"type": "array", "minItems": 1}
    bodies = {
        "Row": _object(cells, closed=False),
        "Rows": _object({"rows": {"items": _ref("Row"), "maxItems": most_rows} | several}),
        "Label": json_schema(LabelledRow),
        "Labels": _object({"labels": {"items": _ref("Label"), "maxItems": MOST_LABELS} | several}),
    }
    settings = [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "integer", "minimum": 0, "maximum": largest},
            "description": about,
        }
        for name, (largest, about) in SCORE_SETTINGS.items()
    ]
    score = _operation("Score a row, or rows.", "ScoredRow", "ScoredRows", takes=("Row", "Rows"))
    save = "Append labels to the journal; they are on the disk when the answer comes."
    health = _operation("Whether the service works; the token shows more.", "Health")
    health["responses"]["503"] = {"description": "It is busy.", **_content("Health")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"riskad: {model.name}",
            "version": riskad.__version__,
            "description": "Anomaly scores, decisions and reasons for rows of a table.",
        },
        "paths": {
            "/score": {"post": score | {"parameters": settings}},
            "/feedback": {"post": _operation(save, "Saved", takes=("Label", "Labels"))},
            "/model": {"get": _operation("What the model is.", "Model")},
            "/health": {"get": health | {"security": [{}, {"token": []}]}},
            "/metrics": {
                "get": _operation("Metrics for Prometheus.", "Metrics", kind="text/plain")
            },
            "/openapi.json": {"get": _operation("This description.", "Description")},
        },
        "components": {
            "schemas": bodies | _ANSWERS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
