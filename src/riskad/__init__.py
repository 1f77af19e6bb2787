"""Anomaly detection from a few labelled rows and many unlabelled ones, some of them anomalies.

Names are loaded when they are first used: `import riskad` costs almost nothing and never loads
torch or LightGBM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riskad._lazy import import_named, lazy_modules

if TYPE_CHECKING:  # for type checkers, to which `as` says that a name is exported
    from riskad.app.anomaly_rate import estimate_prior as estimate_prior
    from riskad.app.fit import fit_table as fit_table
    from riskad.app.model_files import load as load
    from riskad.app.model_files import save as save
    from riskad.app.onnx import export as export
    from riskad.app.reasons import explain_rows as explain_rows
    from riskad.app.score import score_table as score_table
    from riskad.app.series import mark_spans as mark_spans
    from riskad.app.spec import FitSpec as FitSpec
    from riskad.core.checks import DataWarning as DataWarning
    from riskad.core.checks import InputError as InputError
    from riskad.core.label_parsing import parse_labels as parse_labels
    from riskad.core.masking import mask_labels as mask_labels
    from riskad.decisions.calibration import calibrate as calibrate
    from riskad.decisions.drift import drift_report as drift_report
    from riskad.decisions.label_issues import label_issues as label_issues
    from riskad.decisions.suggest import suggest_rows as suggest_rows
    from riskad.deep.deep_sad import DeepSAD as DeepSAD
    from riskad.deep.risk_detectors import NNPU as NNPU
    from riskad.deep.risk_detectors import DeepRAD as DeepRAD
    from riskad.detectors.auto import AutoRAD as AutoRAD
    from riskad.detectors.boosted import BoostedRAD as BoostedRAD
    from riskad.detectors.forest import ForestRAD as ForestRAD
    from riskad.detectors.pretrained import PretrainedRAD as PretrainedRAD
    from riskad.detectors.shallow import ShallowRAD as ShallowRAD
    from riskad.detectors.streaming import StreamingRAD as StreamingRAD
    from riskad.metrics.folds import PNUStratifiedKFold as PNUStratifiedKFold
    from riskad.metrics.search import RADSearchCV as RADSearchCV
    from riskad.rows.parquet import ParquetRows as ParquetRows
    from riskad.tables.backbones import trust_backbone as trust_backbone
    from riskad.tables.pictures import read_pictures as read_pictures
    from riskad.tables.preparation import TablePreparer as TablePreparer
    from riskad.tables.reading import read_table as read_table
    from riskad.tables.windows import windows as windows
    from riskad.web.label.notebook import label as label

__version__: str  # that of the installed distribution: the last tag, and the commit after it

_MODULE_OF = {
    "AutoRAD": "detectors.auto",
    "BoostedRAD": "detectors.boosted",
    "DataWarning": "core.checks",
    "DeepRAD": "deep.risk_detectors",
    "DeepSAD": "deep.deep_sad",
    "FitSpec": "app.spec",
    "ForestRAD": "detectors.forest",
    "InputError": "core.checks",
    "NNPU": "deep.risk_detectors",
    "PNUStratifiedKFold": "metrics.folds",
    "ParquetRows": "rows.parquet",
    "PretrainedRAD": "detectors.pretrained",
    "RADSearchCV": "metrics.search",
    "ShallowRAD": "detectors.shallow",
    "StreamingRAD": "detectors.streaming",
    "TablePreparer": "tables.preparation",
    "calibrate": "decisions.calibration",
    "drift_report": "decisions.drift",
    "estimate_prior": "app.anomaly_rate",
    "explain_rows": "app.reasons",
    "export": "app.onnx",
    "fit_table": "app.fit",
    "label": "web.label.notebook",
    "label_issues": "decisions.label_issues",
    "load": "app.model_files",
    "mark_spans": "app.series",
    "mask_labels": "core.masking",
    "parse_labels": "core.label_parsing",
    "read_pictures": "tables.pictures",
    "read_table": "tables.reading",
    "save": "app.model_files",
    "score_table": "app.score",
    "suggest_rows": "decisions.suggest",
    "trust_backbone": "tables.backbones",
    "windows": "tables.windows",
}
__all__ = list(_MODULE_OF)
_get_package, _packages = lazy_modules(__name__, __path__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes longer than all else here

        return version("riskad")
    if name in _MODULE_OF:
        return getattr(import_named(f"riskad.{_MODULE_OF[name]}"), name)
    return _get_package(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_packages(), "__version__"})
