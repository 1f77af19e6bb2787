"""Anomaly detection from a few labelled rows and a contaminated unlabelled pile.

Names are loaded when they are first used: `import riskad` costs next to nothing and never loads
torch or LightGBM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riskad._checks import DataWarning, InputError
    from riskad.auto import AutoRAD
    from riskad.boosted import BoostedRAD
    from riskad.calibration import calibrate
    from riskad.datasets import load_adbench, mask_labels
    from riskad.deep.detectors import NNPU, DeepRAD, DeepSAD
    from riskad.drift import drift_report
    from riskad.explain import explain_rows
    from riskad.forest import ForestRAD
    from riskad.io import load, save
    from riskad.labels import parse_labels
    from riskad.losses import LOSSES
    from riskad.pretrained import PretrainedRAD
    from riskad.priors import PriorEstimate, estimate_prior
    from riskad.regularization import theorem_lambda
    from riskad.risks import RISKS, get_risk
    from riskad.search import RADSearchCV, RiskScorer, evaluate_nested, labelled_auc
    from riskad.selection import PNUStratifiedKFold
    from riskad.shallow import ShallowRAD
    from riskad.suggest import suggest_rows

__version__ = "0.1.0.dev0"

__all__ = [
    "LOSSES",
    "NNPU",
    "RISKS",
    "AutoRAD",
    "BoostedRAD",
    "DataWarning",
    "DeepRAD",
    "DeepSAD",
    "ForestRAD",
    "InputError",
    "PNUStratifiedKFold",
    "PretrainedRAD",
    "PriorEstimate",
    "RADSearchCV",
    "RiskScorer",
    "ShallowRAD",
    "calibrate",
    "drift_report",
    "estimate_prior",
    "evaluate_nested",
    "explain_rows",
    "get_risk",
    "labelled_auc",
    "load",
    "load_adbench",
    "mask_labels",
    "parse_labels",
    "save",
    "suggest_rows",
    "theorem_lambda",
]

_ROOM_OF = {
    "AutoRAD": "auto",
    "BoostedRAD": "boosted",
    "DataWarning": "_checks",
    "DeepRAD": "deep.detectors",
    "DeepSAD": "deep.detectors",
    "ForestRAD": "forest",
    "InputError": "_checks",
    "LOSSES": "losses",
    "NNPU": "deep.detectors",
    "PNUStratifiedKFold": "selection",
    "PretrainedRAD": "pretrained",
    "PriorEstimate": "priors",
    "RADSearchCV": "search",
    "RISKS": "risks",
    "RiskScorer": "search",
    "ShallowRAD": "shallow",
    "calibrate": "calibration",
    "drift_report": "drift",
    "estimate_prior": "priors",
    "evaluate_nested": "search",
    "explain_rows": "explain",
    "get_risk": "risks",
    "labelled_auc": "search",
    "load": "io",
    "load_adbench": "datasets",
    "mask_labels": "datasets",
    "parse_labels": "labels",
    "save": "io",
    "suggest_rows": "suggest",
    "theorem_lambda": "regularization",
}


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        return getattr(_import_room(_ROOM_OF[name]), name)
    if name in _rooms():
        return _import_room(name)
    raise AttributeError(f"module 'riskad' has no attribute {name!r}")


def _rooms() -> list[str]:
    """The modules of the package that have no underscore before their name."""
    from pkgutil import iter_modules

    return [found.name for found in iter_modules(__path__) if not found.name.startswith("_")]


def _import_room(room: str) -> Any:
    try:
        return import_module(f"riskad.{room}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        message = "Neural networks need torch, which is not installed: pip install 'riskad[deep]'."
        raise ImportError(message) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF, *_rooms()})
