"""Fitted models as plain values: a tree of types, numbers and texts, and arrays by name.

A model file may contain only a closed list of types, those of `OURS`, and pipelines of them. Each
type declares the allowed values of its attributes (`riskad.files.fields`), and everything is
checked against these before anything is built. Nothing in a file names a function, a module or a
path, and building a model only calls methods of these types.

The tree is JSON. Numbers, texts, true, false, null and lists represent themselves; all else is an
object with one key, which names its kind:

=============  ======================================================
`$number`      "nan", "inf" or "-inf"
`$tuple`       a list of values
`$dict`        a list of pairs of key and value
`$array`       the name of an array, which no other value names
`$transposed`  the same, of an array that is stored transposed
`$objects`     a list of values, for an array of texts
`$type`        [name, {attribute: value}]
`$pipeline`    a list of pairs of the name of a step and the step
=============  ======================================================
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from riskad.core.checks import InputError, MissingLibrary, enumerate_names, is_unicode
from riskad.core.losses import LOSSES, Loss
from riskad.files.fields import Optional, check_state, expect, fields_of, require

_TYPES = {
    "riskad.decisions.anomaly_rate": ["RateEstimate"],
    "riskad.decisions.calibration": ["Calibration"],
    "riskad.decisions.segments": ["Segments"],
    "riskad.decisions.drift": ["UnlabelledSummary"],
    "riskad.decisions.thresholds": [
        "AnomalyRate",
        "BestF",
        "Capacity",
        "Cost",
        "FalseAlarms",
        "Likely",
        "RiskZero",
        "TopK",
    ],
    "riskad.deep.deep_sad": ["DeepSAD"],
    "riskad.deep.risk_detectors": ["DeepRAD", "NNPU"],
    "riskad.detectors.auto": ["AutoRAD"],
    "riskad.detectors.auto.novelty": ["Novelty"],
    "riskad.detectors.boosted": ["BoostedRAD", "LabelledTrees"],
    "riskad.detectors.compressed": ["CompressedRAD", "Fidelity"],
    "riskad.detectors.features": ["LearnedFeatures", "SmoothScaler"],
    "riskad.detectors.features.maps": [
        "ColumnScale",
        "GaussianKernels",
        "OutlierScores",
        "PrincipalComponents",
    ],
    "riskad.detectors.forest": ["ForestRAD"],
    "riskad.detectors.linear.feature_maps": ["ColumnProducts", "KernelLandmarks", "RandomWaves"],
    "riskad.detectors.linear.stream": ["StreamSummary"],
    "riskad.detectors.outlier_mean": ["OutlierMean"],
    "riskad.detectors.pretrained": ["PretrainedRAD"],
    "riskad.detectors.shallow": ["ShallowRAD"],
    "riskad.detectors.streaming": ["StreamingRAD"],
    "riskad.detectors.tree_ensemble": ["Trees"],
    "riskad.metrics.ranking": ["Auc"],
    "riskad.rows.date_features": ["MomentParts"],
    "riskad.rows.encoding": ["AnomalyRateEncoder", "OneHotImputer", "SingularVectors"],
    "riskad.rows.table": ["TableSchema"],
    "riskad.tables.cells": ["Reader"],
    "riskad.tables.formats.flags": ["FlagFormat"],
    "riskad.tables.formats.moments": ["MomentFormat"],
    "riskad.tables.formats.numbers": ["NumberFormat"],
    "riskad.tables.groups": ["GroupComparison", "NumberByGroup", "ShareByGroup"],
    "riskad.tables.kinds.derived": ["BesideGroup", "TimeBetween"],
    "riskad.tables.preparation": ["TablePreparer"],
    "riskad.tables.shifts": ["Shifts"],
    "riskad.tables.windows": ["History", "Windower"],
}
OURS = {name: module for module, names in _TYPES.items() for name in names}
"""The closed list: the modules of our types, by their names."""

_REGISTERED: dict[str, type] = {}
_DEEPEST = 40
# JSON becomes objects that take up to 250 bytes for each bracket; what riskad writes has one in 9
# bytes at most.
_BYTES_OF_BRACKET, _FEW_BRACKETS = 6, 10_000
# The header of arrays, which is compressed, by the bytes of the JSON that names them.
_HEADER_BYTES, _FEW_BYTES = 2, 100_000
# Numbers can be chosen so that a dict of them takes quadratic time.
_MOST_NUMBER_KEYS, _LARGEST_KEY = 10_000, 2**31
# A function, and what belongs to a computer: a file neither runs code nor starts threads.
_NOT_STORED = ("callback", "device", "n_jobs")
_NUMBERS = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def register(cls: type) -> type:
    """Allow models of your own class to be saved and loaded; usable as a decorator.

    The class states its stored attributes as annotations (`riskad.files.fields`), and may have a
    static method `_check_state(state)` that raises an `InputError` if individually valid values are
    inconsistent. Its parameters `callback`, `device` and `n_jobs` are not stored, unless it states
    them. A file can only contain it if it has been registered.
    """
    name = cls.__name__
    if name in OURS or not (dataclasses.is_dataclass(cls) or fields_of(cls)):
        raise InputError(
            f"{name} cannot be registered: the name is taken, or no annotation of the class says "
            "what is stored."
        )
    _REGISTERED[name] = cls
    return cls


def _find_type(name: str) -> type | None:
    """The listed type with this name; types of networks need libraries that may be missing."""
    if name in _REGISTERED or name not in OURS:
        return _REGISTERED.get(name)
    try:
        return getattr(importlib.import_module(OURS[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibrary(
            "Networks are saved and loaded with torch, which is not installed: "
            "pip install 'riskad[deep]'."
        ) from None


# --- from objects to a tree ---------------------------------------------------------------


def to_tree(model: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A fitted model as a tree and its arrays.

    >>> from riskad.metrics.ranking import Auc
    >>> to_tree(Auc(0.9, 0.8, 1.0, n_normal=20, n_anomaly=4))
    ({'$type': ['Auc', {'value': 0.9, 'low': 0.8, 'high': 1.0, 'n_normal': 20, 'n_anomaly': 4, \
'confidence': 0.95}]}, {})
    """
    arrays: dict[str, np.ndarray] = {}
    return _to_tree(model, "", arrays), arrays


def to_members(model: Any) -> tuple[bytes, bytes]:
    """A fitted model as the bytes of a JSON text and of a safetensors file."""
    tree, arrays = to_tree(model)
    return json.dumps(tree, allow_nan=False).encode(), save_arrays(arrays)


def _to_tree(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    def each(values: Any) -> list[Any]:
        return [_to_tree(v, f"{where}[{place}]", arrays) for place, v in enumerate(values)]

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"$number": repr(value)}
    if isinstance(value, np.random.RandomState):
        return None  # a generator has no number; a further fit draws from NumPy's own
    # A registered loss is stored by its name; any other one is code.
    if isinstance(value, Loss) and LOSSES.get(value.name) is value:
        return value.name
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OU" and value.ndim == 1:
            return {"$objects": each(value.tolist())}
        if value.dtype.name not in _NUMBERS:
            raise InputError(f"{where} is an array of {value.dtype}, which cannot be stored.")
        # A product of matrices rounds otherwise for another layout: the layout is part of the
        # scores.
        transposed = value.flags.f_contiguous and not value.flags.c_contiguous
        arrays[where] = np.asarray(value.T if transposed else value, order="C")
        return {"$transposed" if transposed else "$array": where}
    if type(value) is list:
        return each(value)
    if type(value) is tuple:
        return {"$tuple": each(value)}
    if type(value) in (dict, Pipeline):
        kind = "$dict" if type(value) is dict else "$pipeline"
        items = value.items() if type(value) is dict else value.steps
        return {
            kind: [
                [_to_tree(k, where, arrays), _to_tree(v, f"{where}[{k!r}]", arrays)]
                for k, v in items
            ]
        }
    name = type(value).__name__
    if _find_type(name) is not type(value):
        raise InputError(
            f"{where or 'it'} is a {type(value).__module__}.{name}, and a model file holds "
            "riskad's detectors, feature maps and TablePreparer, and pipelines of these. Save "
            "anything else with skops (skops.io.dump), or register a class of your own "
            "(riskad.files.codec.register)."
        )
    before = f"{where}." if where else ""
    state = {key: _to_tree(v, before + key, arrays) for key, v in state_of(value).items()}
    return {"$type": [name, state]}


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object that a file holds."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    state = dict(value.__getstate__())
    state.pop("_sklearn_version", None)  # the header of the file has it
    left_out = _not_stored(type(value))
    return {name: each for name, each in state.items() if name not in left_out}


# --- from a tree to objects ---------------------------------------------------------------


def from_members(text: bytes, arrays: bytes) -> Any:
    """The model of `to_members`; an `InputError` explains what is wrong with the bytes."""
    # safetensors reads the whole header before it checks anything: its length comes first in the
    # file.
    if int.from_bytes(arrays[:8], "little") > _FEW_BYTES + _HEADER_BYTES * len(text):
        raise InputError("it holds more arrays than the model names")
    tree = read_json(text)
    try:
        arrays_by_name = load_arrays(arrays)  # which checks sizes against the number of bytes
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type NumPy lacks
        raise InputError(f"its arrays cannot be read: {error}") from None
    return from_tree(tree, arrays_by_name)


def read_json(data: bytes) -> Any:
    """The content of a JSON text; numbers must be finite, and brackets not too many."""
    if data.count(b"[") + data.count(b"{") > _FEW_BRACKETS + len(data) // _BYTES_OF_BRACKET:
        raise InputError("it holds almost nothing but brackets")
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError("values are nested too deeply") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number of thousands of digits
        raise InputError(f"it holds no JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def from_tree(tree: Any, arrays: dict[str, np.ndarray], depth: int = 0) -> Any:
    """The model of a tree and its arrays; an `InputError` explains what is wrong with them.

    Innermost values are built first; arrays that are used are taken out.
    """
    content: Any
    if depth > _DEEPEST:
        raise InputError("values are nested too deeply")
    if isinstance(tree, str) and not is_unicode(tree):
        raise InputError(f"{tree!a} is not a text")
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return [from_tree(each, arrays, depth + 1) for each in tree]
    kind, content = next(iter(tree.items())) if len(tree) == 1 else ("", None)
    if kind == "$number":
        expect(content in ("nan", "inf", "-inf"), "nan, inf or -inf", content)
        return float(content)
    if kind in ("$array", "$transposed"):
        unused = isinstance(content, str) and content in arrays
        expect(unused, "an array that nothing else uses", content)
        return arrays.pop(content) if kind == "$array" else arrays.pop(content).T
    if kind == "$type":
        right = isinstance(content, list) and len(content) == 2 and isinstance(content[0], str)
        expect(right and isinstance(content[1], dict), "a name and a state", content)
        name, state = content
        # A `$type` holds its state in a list: two levels of nesting at a time.
        inside = [from_tree(each, arrays, depth + 2) for each in state.values()]
        return _from_state(name, dict(zip(state, inside, strict=True)))
    if kind not in ("$tuple", "$dict", "$objects", "$pipeline"):
        raise InputError(f"{enumerate_names(tree, 3)} says nothing of what it is")
    expect(isinstance(content, list), "a list", content)
    values = [from_tree(each, arrays, depth + 2) for each in content]
    if kind == "$tuple":
        return tuple(values)
    if kind == "$objects":
        expect(not any(isinstance(v, list | dict | tuple) for v in values), "texts", content)
        texts = np.empty(len(values), dtype=object)
        texts[:] = values
        return texts
    for pair in values:
        right = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)
        expect(right, "pairs", content)
    if kind == "$pipeline":
        return _make_pipeline(values)
    numbers = [key for key, _ in values if type(key) is int]
    few = len(numbers) <= _MOST_NUMBER_KEYS and all(abs(key) < _LARGEST_KEY for key in numbers)
    expect(few, f"at most {_MOST_NUMBER_KEYS:,} numbers as keys", content)
    return dict(values)


def _from_state(name: str, state: dict[str, Any]) -> Any:
    cls = _find_type(name)
    if cls is None:
        raise InputError(
            f"{name!a} is not on the list of types that a model file may hold (a class of your "
            "own must be registered first: riskad.files.codec.register)"
        )
    try:
        return build(cls, state)
    except MissingLibrary:
        raise
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def build(cls: type, state: Mapping[str, Any]) -> Any:
    """Build an object of a listed type with this state, if the state is valid."""
    names: Any = getattr(cls, "_get_param_names", None)  # of an estimator
    settings = set() if names is None else set(names())
    fitted = names is None or bool(set(state) - settings)
    fields, needed = fields_of(cls), settings - _not_stored(cls)
    if fitted:
        needed |= {name for name, field in fields.items() if not isinstance(field, Optional)}
    check_state(state, fields, needed=needed)
    if fitted and hasattr(cls, "_check_state"):
        cls._check_state(state)
    if dataclasses.is_dataclass(cls):
        return cls(**state)
    instance: Any = object.__new__(cls)
    parameters = inspect.signature(cls).parameters
    for name in _not_stored(cls):
        if name in parameters:
            setattr(instance, name, parameters[name].default)
    vars(instance).update(state)
    return instance


def _make_pipeline(pairs: list[Any]) -> Pipeline:
    """A pipeline of fitted steps that can follow each other."""
    width = None
    for name, step in pairs:
        allowed = isinstance(step, BaseEstimator) and _find_type(type(step).__name__) is type(step)
        expect(allowed and type(name) is str, "steps", name)
        require(name != "" and "__" not in name, "steps: bad names")
        require(set(vars(step)) > set(step.get_params(deep=False)), f"{name!a} is not fitted")
        takes = getattr(step, "n_features_in_", width)
        require(width in (None, takes), f"{name!a} takes {takes} columns and is given {width}")
        # All but the last step must transform, and give as many columns as the next one takes.
        if step is not pairs[-1][1]:
            require(hasattr(step, "transform"), f"{name!a} transforms nothing")
            width = getattr(step, "n_features_out_", None)
    require(len(dict(pairs)) == len(pairs) > 0, "steps: expected different names")
    return Pipeline([(name, step) for name, step in pairs])


def _not_stored(cls: type) -> set[str]:
    """Parameters that depend on the machine, and not on the model."""
    return set(_NOT_STORED) - set(fields_of(cls))
