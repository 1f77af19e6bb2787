"""What requests and answers may hold, and the OpenAPI document (3.1) that says so.

A label that comes back is checked by the annotations of `LabelledRow`, from which its description
follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import riskad
from riskad.app.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.core.checks import InputError
from riskad.files.fields import Number, Text
from riskad.files.records import json_schema
from riskad.web.guard import Scope
from riskad.web.serve.model import ServedModel

MOST_LABELS = 1_000
"""Most labels in one request."""
SCORE_SETTINGS: Mapping[str, tuple[int, str]] = {
    "reasons": (20, "How many reasons for flagged rows."),
    "p_values": (1, "1 to add p-values of being normal."),
}
"""What may follow /score: whole numbers, each with the largest and its meaning."""


@dataclass(frozen=True)
class LabelledRow:
    """A label that comes back: of a row, by whom, and how the row was selected."""

    row: dict[str, Any]
    label: Literal[LABELS]  # type: ignore[valid-type]
    who: Annotated[str, Text(shortest=1, longest=LONGEST_NAME)]
    source: Literal[SOURCES] = "chosen"  # type: ignore[valid-type]
    note: Annotated[str, Text(longest=LONGEST_NOTE)] = ""
    number: Annotated[int, Number(1, 10**12, whole=True)] | None = None


def read_query(scope: Scope, settings: Mapping[str, tuple[int, str]]) -> dict[str, int]:
    """Return the numbers that follow an address; those that do not are 0."""
    found = dict.fromkeys(settings, 0)
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in settings:
            there = f"it takes {', '.join(settings)}" if settings else "it takes none"
            raise InputError(f"There is no setting {name[:40]!r} of {scope['path']}; {there}.")
        largest, _ = settings[name]
        whole = value.isascii() and value.isdecimal() and len(value) < 4
        if not whole or int(value) > largest:
            raise InputError(f"{name} must be a whole number from 0 to {largest}.")
        found[name] = int(value)
    return found


# --- the document -------------------------------------------------------------------------

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_FLAG: Schema = {"type": "boolean"}
_CELL: Schema = {"type": ["number", "string", "boolean", "null"]}
_WRONG: Mapping[int, str] = {
    400: "The body is not a JSON object.",
    401: "The token is missing or wrong.",
    408: "The body did not come in time.",
    411: "The length of the body is missing.",
    413: "The body is too long, or has too many rows.",
    415: "The body is not said to be JSON.",
    421: "The server does not answer to this name.",
    422: "A cell or a setting is not what the model takes; the sentence names it.",
    503: "Too many requests wait; Retry-After says for how long.",
}


def describe_service(model: ServedModel, most_rows: int) -> Schema:
    """Return the description of all addresses, with the columns of the present model."""
    parameters = [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "integer", "minimum": 0, "maximum": largest},
            "description": about,
        }
        for name, (largest, about) in SCORE_SETTINGS.items()
    ]
    save = "Append labels to the journal; they are on the disk when the answer comes."
    health = _get("Whether the service works; who shows the token is told more.", _ref("Health"))
    busy = {"description": "It is busy, or does not work.", **_content(_ref("Health"))}
    health = health | {"security": [{}, {"token": []}]}
    health["responses"] = {"200": health["responses"]["200"], "503": busy}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"riskad: {model.name}",
            "version": riskad.__version__,
            "description": "Anomaly scores, decisions and reasons for rows of a table.",
        },
        "paths": {
            "/score": {"post": _post("Score a row, or rows.", "Row") | {"parameters": parameters}},
            "/feedback": {"post": _post(save, "Label", answer="Saved")},
            "/model": {"get": _get("What the model is.", _ref("Model"))},
            "/health": {"get": health},
            "/metrics": {"get": _get("Metrics for Prometheus.", _TEXT, "text/plain")},
            "/openapi.json": {"get": _get("This description.", {"type": "object"})},
        },
        "components": {
            "schemas": _schemas(model, most_rows),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: Schema, kind: str = "application/json") -> Schema:
    return {"content": {kind: {"schema": schema}}}


def _responses(schema: Schema, statuses: Mapping[int, str], kind: str) -> Schema:
    wrong = {str(s): {"description": a, **_content(_ref("Error"))} for s, a in statuses.items()}
    return {"200": {"description": "It is done.", **_content(schema, kind)}, **wrong}


def _get(about: str, schema: Schema, kind: str = "application/json") -> Schema:
    wrong = {status: _WRONG[status] for status in (401, 421)}
    return {"summary": about, "responses": _responses(schema, wrong, kind)}


def _post(about: str, one: str, answer: str = "") -> Schema:
    """An address that takes one thing or several, and answers each unless `answer` is said."""
    good = _ref(answer) if answer else {"oneOf": [_ref("ScoredRows"), _ref("ScoredRow")]}
    body = _content({"oneOf": [_ref(f"{one}s"), _ref(one)]})
    return {
        "summary": about,
        "requestBody": {"required": True, **body},
        "responses": _responses(good, _WRONG, "application/json"),
    }


def _object(properties: Schema, optional: tuple[str, ...] = (), closed: bool = True) -> Schema:
    required = [name for name in properties if name not in optional]
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    return schema | {"additionalProperties": False} if closed else schema


def _several(name: str, one: str, most: int) -> Schema:
    return _object({name: {"type": "array", "items": _ref(one), "minItems": 1, "maxItems": most}})


def _schemas(model: ServedModel, most_rows: int) -> Schema:
    kinds = model.scorer.preparer.kinds_
    columns = {name: _CELL | {"description": kinds[name]} for name in model.scorer.columns}
    reason = {"column": _TEXT, "value": _CELL, "usual": _CELL, "adds": _NUMBER, "error": _NUMBER}
    result: Schema = {
        "anomaly_score": _NUMBER,
        "is_anomaly": _FLAG,
        "anomaly_probability": _SHARE,
        "novelty": _NUMBER,
        "p_value": _SHARE,
        "reasons": {"type": "array", "items": _ref("Reason")},
    }
    head = {"model_version": _TEXT, "notes": {"type": "array", "items": _TEXT}}
    not_always = ("anomaly_probability", "novelty", "p_value", "reasons", "notes")
    described = {
        "model_version": _TEXT,
        "file": _TEXT,
        "loaded": _TEXT | {"format": "date-time"},
        "columns": {"type": "object", "additionalProperties": _TEXT},
        "card": _TEXT | {"description": "Markdown."},
        "report": {"type": "object"},
    }
    health = {
        "live": _FLAG,
        "ready": _FLAG,
        "model_version": _TEXT,
        "reload_error": _TEXT | {"description": "Blank, or why the file is not used."},
    }
    rows = {"rows": {"type": "array", "items": _ref("Result")}}
    return {
        "Row": _object(columns, closed=False),
        "Rows": _several("rows", "Row", most_rows),
        "Reason": _object(reason | {"text": _TEXT}),
        "Result": _object(result, not_always),
        "ScoredRow": _object(head | result, not_always),
        "ScoredRows": _object(head | rows, not_always),
        "Label": json_schema(LabelledRow),
        "Labels": _several("labels", "Label", MOST_LABELS),
        "Saved": _object({"saved": {"type": "integer"}, "journal": _TEXT}),
        "Model": _object(described, closed=False),
        "Health": _object(health, ("model_version", "reload_error")),
        "Error": _object({"error": _TEXT}),
    }
