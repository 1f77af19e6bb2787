"""Anomaly detection from a few labelled rows and contaminated unlabelled rows.

Names are loaded when they are first used: `import riskad` costs next to nothing and never loads
torch or LightGBM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riskad._lazy import import_named, lazy_modules

if TYPE_CHECKING:
    from riskad.app.anomaly_rate import estimate_prior
    from riskad.app.model_files import load, save
    from riskad.app.reasons import explain_rows
    from riskad.core.checks import DataWarning, InputError
    from riskad.core.label_parsing import parse_labels
    from riskad.core.losses import LOSSES
    from riskad.core.regularization import theorem_lambda
    from riskad.core.risks import RISKS, get_risk
    from riskad.datasets import load_adbench, mask_labels
    from riskad.decisions.anomaly_rate import PriorEstimate
    from riskad.decisions.calibration import calibrate
    from riskad.decisions.drift import drift_report
    from riskad.decisions.search import RADSearchCV, RiskScorer, evaluate_nested, labelled_auc
    from riskad.decisions.selection import PNUStratifiedKFold
    from riskad.decisions.suggest import suggest_rows
    from riskad.deep.deep_sad import DeepSAD
    from riskad.deep.risk_detectors import NNPU, DeepRAD
    from riskad.detectors.auto import AutoRAD
    from riskad.detectors.boosted import BoostedRAD
    from riskad.detectors.forest import ForestRAD
    from riskad.detectors.pretrained import PretrainedRAD
    from riskad.detectors.shallow import ShallowRAD
    from riskad.detectors.streaming import StreamingRAD

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
    "StreamingRAD",
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

_MODULE_OF = {
    "AutoRAD": "detectors.auto",
    "BoostedRAD": "detectors.boosted",
    "DataWarning": "core.checks",
    "DeepRAD": "deep.risk_detectors",
    "DeepSAD": "deep.deep_sad",
    "ForestRAD": "detectors.forest",
    "InputError": "core.checks",
    "LOSSES": "core.losses",
    "NNPU": "deep.risk_detectors",
    "PNUStratifiedKFold": "decisions.selection",
    "PretrainedRAD": "detectors.pretrained",
    "PriorEstimate": "decisions.anomaly_rate",
    "RADSearchCV": "decisions.search",
    "RISKS": "core.risks",
    "RiskScorer": "decisions.search",
    "ShallowRAD": "detectors.shallow",
    "StreamingRAD": "detectors.streaming",
    "calibrate": "decisions.calibration",
    "drift_report": "decisions.drift",
    "estimate_prior": "app.anomaly_rate",
    "evaluate_nested": "decisions.search",
    "explain_rows": "app.reasons",
    "get_risk": "core.risks",
    "labelled_auc": "decisions.search",
    "load": "app.model_files",
    "load_adbench": "datasets",
    "mask_labels": "datasets",
    "parse_labels": "core.label_parsing",
    "save": "app.model_files",
    "suggest_rows": "decisions.suggest",
    "theorem_lambda": "core.regularization",
}


_get_package, _packages = lazy_modules(__name__, __path__)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_named(f"riskad.{_MODULE_OF[name]}"), name)
    return _get_package(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_packages(), "__version__"})
