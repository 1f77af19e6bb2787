"""The notes that a model file contains, and their allowed values.

Notes may be anything that JSON can hold, except for "fit": there `riskad fit` stores what it did
and found, which `inspect`, `report`, `bound` and others show later. Under "refit", `riskad refit`
stores how the model compares with the one before it.
"""

from __future__ import annotations

from typing import Any

from riskad.app.asked import ASKED
from riskad.core.checks import InputError, is_unicode
from riskad.decisions.thresholds import parse_threshold
from riskad.storage.fields import (
    ANYTHING_PLAIN,
    COUNT,
    FLAG,
    NUMBER,
    SHARE,
    TEXT,
    DictOf,
    Fields,
    Fixed,
    ListOf,
    Maybe,
    Number,
    Optional,
    check_state,
)

__all__ = ["check_notes", "known_to_fit"]

_DEEPEST = 40
_AUC: Fields = dict.fromkeys(("value", "low", "high", "confidence"), SHARE) | {
    "n_normal": COUNT,
    "n_anomaly": COUNT,
}
_FIT: Fields = {
    "source": TEXT,
    "rows": COUNT,
    "label": TEXT,
    "id": Maybe(TEXT),
    "labels": Fixed(dict.fromkeys(("normal", "anomaly", "unlabelled"), COUNT)),
    "columns": DictOf(TEXT, TEXT),
    "preparation": ListOf(TEXT),
    "settings": DictOf(TEXT, ANYTHING_PLAIN),
    "fitted": DictOf(TEXT, ANYTHING_PLAIN),
    "said": ListOf(TEXT),
    "evidence": TEXT,
    "effects": ListOf(Fixed({"column": TEXT, "effect": NUMBER, "suspicious": TEXT})),
    "auc": Maybe(Fixed(_AUC)),
    "why_no_auc": TEXT,
    "unlabelled_flagged": COUNT,
    "warnings": ListOf(TEXT),
    "rule": TEXT,
    "rate": Maybe(ListOf(SHARE, 3)),
    "rate_rests_on": Optional(TEXT),
    "labels_random_p": Optional(Maybe(SHARE)),
    "model": TEXT,
    "effects_of": TEXT,
    "reading": ListOf(TEXT),
    "capacity": Optional(
        Maybe(Fixed({"rows": COUNT, "period": TEXT, "of_rows": Number(0), "assumed": TEXT}))
    ),
    "asked": Optional(Maybe(Fixed(ASKED))),
    "over_time": Optional(
        ListOf(
            Fixed(
                {"start": TEXT, "end": TEXT, "auc": Maybe(Fixed(_AUC))}
                | dict.fromkeys(("rows", "normal", "anomaly"), COUNT)
            )
        )
    ),
}
_FACTS: Fields = {
    "source": TEXT,
    "created": TEXT,
    "rows": COUNT,
    "labels": _FIT["labels"],
    "auc": _FIT["auc"],
    "rate": _FIT["rate"],
    "rule": TEXT,
    "unlabelled_flagged": COUNT,
}
_JUDGED: Fields = {"auc": Fixed(_AUC), "anomalies_flagged": COUNT, "normals_flagged": COUNT}
_REFIT: Fields = {
    "verdict": TEXT,
    "before": Fixed(_FACTS),
    "after": Fixed(_FACTS),
    "comparison": Maybe(
        Fixed(
            {
                "rests_on": TEXT,
                "difference": Fixed(
                    {**_AUC, **dict.fromkeys(("value", "low", "high"), Number(-1, 1))}
                ),
                "before": Fixed(_JUDGED),
                "after": Fixed(_JUDGED),
                "drawn_at_random": COUNT,
                "cautions": ListOf(TEXT),
            }
        )
    ),
    "why_not_compared": TEXT,
}
# The inputs of bounds; only the fit itself knows them.
_KNOWN_TO_FIT: Fields = {
    "converged": Optional(Maybe(FLAG)),
    "weight_norm": Optional(Number(0)),
    "row_norm": Optional(Number(0)),
}
_BOUND_SETTINGS: Fields = {"risk": TEXT, "loss": TEXT, "a": NUMBER, "prior": SHARE}


def check_notes(notes: Any) -> None:
    """Refuse notes that are not a JSON object, or whose "fit" is not from `riskad fit`.

    Likewise "refit", which holds the further notes of `riskad refit`.
    """
    if not isinstance(notes, dict):
        raise InputError("notes: expected names with values")
    _check_plain(notes, 0)
    for name, check in (("fit", _check_fit), ("refit", _check_refit)):
        if name not in notes:
            continue
        try:
            check(notes[name])
        except InputError as error:
            raise InputError(f"notes[{name!r}] {error}") from None


def known_to_fit(fit: dict[str, Any]) -> dict[str, Any]:
    """What the notes of a fit contain that the model itself does not know."""
    fitted = fit.get("fitted", {})
    return {name: fitted[name] for name in _KNOWN_TO_FIT if name in fitted}


def _check_fit(fit: Any) -> None:
    if not isinstance(fit, dict):
        raise InputError("expected names with values")
    check_state(fit, _FIT)
    parse_threshold(fit["rule"])
    for name in _KNOWN_TO_FIT.keys() & fit["fitted"]:
        check_state({name: fit["fitted"][name]}, _KNOWN_TO_FIT)
    if "weight_norm" in fit["fitted"]:
        for name, field in _BOUND_SETTINGS.items():
            check_state({name: fit["settings"].get(name)}, {name: field})


def _check_refit(refit: Any) -> None:
    if not isinstance(refit, dict):
        raise InputError("expected names with values")
    check_state(refit, _REFIT)


def _check_plain(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError("notes: nested too deeply")
    if isinstance(value, dict):
        _check_plain([*value, *value.values()], depth)
    elif isinstance(value, list):
        for each in value:
            _check_plain(each, depth + 1)
    elif isinstance(value, str) and not is_unicode(value):
        raise InputError(f"notes: {value!a} is not a text")
