"""The description of all addresses, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import riskad
from riskad.labelling.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.serving.feedback import MOST_LABELS
from riskad.serving.models import ServedModel

__all__ = ["describe_service"]

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_CELL: Schema = {"type": ["number", "string", "boolean", "null"]}


def describe_service(model: ServedModel, most_rows: int) -> Schema:
    """Return the description, with the columns of the present model."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"riskad: {model.name}",
            "version": riskad.__version__,
            "description": "Anomaly scores, decisions and reasons for rows of a table.",
        },
        "paths": {
            "/score": {"post": _score()},
            "/feedback": {"post": _feedback()},
            "/model": {"get": _get("What the model is.", _ref("Model"))},
            "/health": {"get": _health()},
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


def _responses(good: Schema, *statuses: int, words: str = "It is done.") -> Schema:
    wrong = {str(s): {"description": _WRONG[s], **_content(_ref("Error"))} for s in statuses}
    return {"200": {"description": words, **good}, **wrong}


def _get(words: str, schema: Schema, kind: str = "application/json") -> Schema:
    return {"summary": words, "responses": _responses(_content(schema, kind), 401, 421)}


def _score() -> Schema:
    whole: Schema = {"type": "integer", "minimum": 0}
    return {
        "summary": "Score a row, or rows.",
        "parameters": [
            _parameter("reasons", whole | {"maximum": 20}, "How many reasons for flagged rows."),
            _parameter("p_values", whole | {"maximum": 1}, "1 to add p-values of being normal."),
        ],
        "requestBody": {
            "required": True,
            **_content({"oneOf": [_ref("Rows"), _ref("Row")]}),
        },
        "responses": _responses(
            _content({"oneOf": [_ref("ScoredRows"), _ref("ScoredRow")]}),
            *(400, 401, 408, 411, 413, 415, 421, 422, 503),
            words="A result for each row, in their order.",
        ),
    }


def _parameter(name: str, schema: Schema, words: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": words}


def _feedback() -> Schema:
    return {
        "summary": "Append labels to the journal; they are on the disk when the answer comes.",
        "requestBody": {
            "required": True,
            **_content({"oneOf": [_ref("Labels"), _ref("Label")]}),
        },
        "responses": _responses(
            _content(_ref("Saved")), *(400, 401, 408, 411, 413, 415, 421, 422, 503)
        ),
    }


def _health() -> Schema:
    good = _content(_ref("Health"))
    return {
        "summary": "Whether the service works; who shows the token is told more.",
        "security": [{}, {"token": []}],
        "responses": {
            "200": {"description": "It works.", **good},
            "503": {"description": "It is busy, or does not work.", **good},
        },
    }


def _object(properties: Schema, required: list[str], **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": required, **more}


def _schemas(model: ServedModel, most_rows: int) -> Schema:
    scorer, kinds = model.scorer, model.scorer.preparer.kinds_
    columns = {name: _CELL | {"description": kinds[name]} for name in scorer.columns}
    return {
        "Row": _object(columns, scorer.columns),
        "Rows": _object(
            {"rows": _list(_ref("Row"), most_rows)}, ["rows"], additionalProperties=False
        ),
        **_results(),
        **_labels(),
        "Model": _object(
            {
                "model_version": _TEXT,
                "file": _TEXT,
                "loaded": _TEXT | {"format": "date-time"},
                "columns": {"type": "object", "additionalProperties": _TEXT},
                "card": _TEXT | {"description": "Markdown."},
                "report": {"type": "object"},
            },
            ["model_version", "file", "loaded", "columns", "card", "report"],
        ),
        "Health": _object(
            {
                "live": {"type": "boolean"},
                "ready": {"type": "boolean"},
                "model_version": _TEXT,
                "reload_error": _TEXT | {"description": "Blank, or why the file is not used."},
            },
            ["live", "ready"],
            additionalProperties=False,
        ),
        "Error": _object({"error": _TEXT}, ["error"], additionalProperties=False),
    }


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def _results() -> Schema:
    result: Schema = {
        "anomaly_score": _NUMBER,
        "is_anomaly": {"type": "boolean"},
        "anomaly_probability": _SHARE,
        "novelty": _NUMBER,
        "p_value": _SHARE,
        "reasons": {"type": "array", "items": _ref("Reason")},
    }
    always = ["anomaly_score", "is_anomaly"]
    notes = {"type": "array", "items": _TEXT}
    told = {"model_version": _TEXT, "notes": notes}
    reason = {"column": _TEXT, "value": _CELL, "usual": _CELL, "adds": _NUMBER, "error": _NUMBER}
    return {
        "Reason": _object(reason | {"text": _TEXT}, [*reason, "text"], additionalProperties=False),
        "Result": _object(result, always, additionalProperties=False),
        "ScoredRow": _object(told | result, ["model_version", *always], additionalProperties=False),
        "ScoredRows": _object(
            told | {"rows": {"type": "array", "items": _ref("Result")}},
            ["model_version", "rows"],
            additionalProperties=False,
        ),
    }


def _labels() -> Schema:
    label: Schema = {
        "row": {"type": "object", "additionalProperties": _CELL},
        "label": {"enum": list(LABELS)},
        "who": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
        "source": {"enum": list(SOURCES)},
        "note": {"type": "string", "maxLength": LONGEST_NOTE},
        "number": {"type": "integer", "minimum": 1},
    }
    return {
        "Label": _object(label, ["row", "label", "who"], additionalProperties=False),
        "Labels": _object(
            {"labels": _list(_ref("Label"), MOST_LABELS)}, ["labels"], additionalProperties=False
        ),
        "Saved": _object(
            {"saved": {"type": "integer"}, "journal": _TEXT},
            ["saved", "journal"],
            additionalProperties=False,
        ),
    }
