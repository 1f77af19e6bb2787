"""Fitted models as plain values: a tree of types, numbers and texts, and arrays by name.

A model file may contain only a closed list of types, those of `OURS`, and pipelines of them. Each
type declares the allowed values of its attributes (`riskad.storage.fields`), and everything is
checked against these before anything is built. Nothing in a file names a function, a module or a
path, and building a model only calls methods of these types.

The tree is JSON. Numbers, texts, true, false, null and lists represent themselves; all else is an
object with one key, which names its kind:

=============  ======================================================
`$number`      "nan", "inf" or "-inf"
`$tuple`       a list of values
`$dict`        a list of pairs of key and value
`$slice`       [start, stop]
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
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from riskad.core.checks import InputError, MissingLibrary, enumerate_names, is_unicode
from riskad.core.losses import LOSSES, Loss
from riskad.storage.fields import Field, check_state, require

__all__ = [
    "OURS",
    "from_members",
    "from_tree",
    "read_json",
    "register",
    "state_of",
    "to_members",
    "to_tree",
]

OURS = {
    "AnomalyRate": "riskad.decisions.thresholds",
    "AnomalyRateEncoder": "riskad.rows.encoding",
    "Auc": "riskad.metrics.ranking",
    "AutoRAD": "riskad.detectors.auto",
    "BesideGroup": "riskad.tables.kinds.derived",
    "BestF": "riskad.decisions.thresholds",
    "BoostedRAD": "riskad.detectors.boosted",
    "Calibration": "riskad.decisions.calibration",
    "Capacity": "riskad.decisions.thresholds",
    "ColumnProducts": "riskad.detectors.linear.feature_maps",
    "ColumnScale": "riskad.detectors.features.maps",
    "CompressedRAD": "riskad.detectors.compressed",
    "Cost": "riskad.decisions.thresholds",
    "DeepRAD": "riskad.deep.risk_detectors",
    "DeepSAD": "riskad.deep.deep_sad",
    "FalseAlarms": "riskad.decisions.thresholds",
    "Fidelity": "riskad.detectors.compressed",
    "ForestRAD": "riskad.detectors.forest",
    "GaussianKernels": "riskad.detectors.features.maps",
    "GroupComparison": "riskad.tables.groups",
    "KernelLandmarks": "riskad.detectors.linear.feature_maps",
    "LabelledTrees": "riskad.detectors.boosted",
    "LearnedFeatures": "riskad.detectors.features",
    "Likely": "riskad.decisions.thresholds",
    "NNPU": "riskad.deep.risk_detectors",
    "Novelty": "riskad.detectors.auto.novelty",
    "NumberByGroup": "riskad.tables.groups",
    "OneHotImputer": "riskad.rows.encoding",
    "OutlierMean": "riskad.detectors.outlier_mean",
    "OutlierScores": "riskad.detectors.features.maps",
    "PretrainedRAD": "riskad.detectors.pretrained",
    "PrincipalComponents": "riskad.detectors.features.maps",
    "RandomWaves": "riskad.detectors.linear.feature_maps",
    "RateEstimate": "riskad.decisions.anomaly_rate",
    "RiskZero": "riskad.decisions.thresholds",
    "ShallowRAD": "riskad.detectors.shallow",
    "ShareByGroup": "riskad.tables.groups",
    "Shifts": "riskad.tables.shifts",
    "SincePrevious": "riskad.tables.kinds.derived",
    "SingularVectors": "riskad.rows.encoding",
    "SmoothScaler": "riskad.detectors.features",
    "StreamSummary": "riskad.detectors.linear.stream",
    "StreamingRAD": "riskad.detectors.streaming",
    "TablePreparer": "riskad.tables.preparation",
    "TableSchema": "riskad.rows.table",
    "TimeBetween": "riskad.tables.kinds.derived",
    "TopK": "riskad.decisions.thresholds",
    "Trees": "riskad.detectors.tree_ensemble",
    "UnlabelledSummary": "riskad.decisions.drift",
}
"""The modules of our types."""

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

    The class has `_state_fields`, a `riskad.storage.fields.Field` for each attribute, and may have
    a static method `_check_state(state)` that raises an `InputError` if individually valid values
    are inconsistent. Its parameters `callback`, `device` and `n_jobs` are not stored, unless it has
    fields for them. A file can only contain it if it has been registered.
    """
    name = cls.__name__
    if name in OURS or not getattr(cls, "_state_fields", None):
        raise InputError(
            f"{name} cannot be registered: the name is taken, or the class has no _state_fields."
        )
    _REGISTERED[name] = cls
    return cls


# --- from objects to a tree ---------------------------------------------------------------


def to_tree(model: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A fitted model as a tree and its arrays.

    >>> from riskad.metrics.ranking import Auc
    >>> to_tree(Auc(0.9, 0.8, 1.0, n_normal=20, n_anomaly=4))
    ({'$type': ['Auc', {'value': 0.9, 'low': 0.8, 'high': 1.0, 'n_normal': 20, 'n_anomaly': 4, \
'confidence': 0.95}]}, {})
    """
    writer = _Writer()
    return writer.tree(model, ""), writer.arrays


class _Writer:
    """Turns objects into trees."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def tree(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, np.random.RandomState):
            return None  # a generator has no number; a further fit draws from NumPy's own
        if isinstance(value, np.generic):
            return self.tree(value.item(), where)
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if np.isfinite(value) else {"$number": repr(value)}
        if isinstance(value, Loss) and LOSSES.get(value.name) is value:
            return value.name
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        return self._compound(value, where)

    def _compound(self, value: Any, where: str) -> Any:
        if type(value) is list:
            return self._each(value, where)
        if type(value) is tuple:
            return {"$tuple": self._each(value, where)}
        if type(value) is dict:
            pairs = [
                [self.tree(k, where), self.tree(v, f"{where}[{k!r}]")] for k, v in value.items()
            ]
            return {"$dict": pairs}
        if isinstance(value, slice):
            return {"$slice": [value.start, value.stop]}
        if type(value) is Pipeline:
            steps = [[name, self.tree(step, f"{where}[{name!r}]")] for name, step in value.steps]
            return {"$pipeline": steps}
        return self._object(value, where)

    def _each(self, values: Any, where: str) -> list[Any]:
        return [self.tree(each, f"{where}[{place}]") for place, each in enumerate(values)]

    def _array(self, value: np.ndarray, where: str) -> Any:
        if value.dtype.kind in "OU" and value.ndim == 1:
            return {"$objects": self._each(value.tolist(), where)}
        if value.dtype.name not in _NUMBERS:
            raise InputError(f"{where} is an array of {value.dtype}, which cannot be stored.")
        transposed = value.flags.f_contiguous and not value.flags.c_contiguous
        self.arrays[where] = np.asarray(value.T if transposed else value, order="C")
        return {"$transposed" if transposed else "$array": where}

    def _object(self, value: Any, where: str) -> Any:
        name = type(value).__name__
        if _find_type(name) is not type(value):
            raise InputError(
                f"{where or 'it'} is a {type(value).__module__}.{name}, and a model file holds "
                "riskad's detectors, feature maps and TablePreparer, and pipelines of these. Save "
                "anything else with skops (skops.io.dump), or register a class of your own "
                "(riskad.storage.codec.register)."
            )
        state = state_of(value)
        before = f"{where}." if where else ""
        return {"$type": [name, {key: self.tree(v, before + key) for key, v in state.items()}]}


def to_members(model: Any) -> tuple[bytes, bytes]:
    """A fitted model as the bytes of a JSON text and of a safetensors file."""
    tree, arrays = to_tree(model)
    return json.dumps(tree, allow_nan=False).encode(), save_arrays(arrays)


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object that a file holds."""
    if isinstance(value, tuple):  # a named one
        return value._asdict()  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    state = dict(value.__getstate__())
    state.pop("_sklearn_version", None)  # the header of the file has it
    left_out = _not_stored(type(value))
    return {name: each for name, each in state.items() if name not in left_out}


# --- from a tree to objects ---------------------------------------------------------------


def from_tree(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The model of a tree and its arrays; an `InputError` explains what is wrong with them."""
    return _Reader(arrays).value(tree, 0)


def from_members(text: bytes, arrays: bytes) -> Any:
    """The model of `to_members`; an `InputError` explains what is wrong with the bytes."""
    if int.from_bytes(arrays[:8], "little") > _FEW_BYTES + _HEADER_BYTES * len(text):
        raise InputError("it holds more arrays than the model names")
    tree = read_json(text)
    try:
        named = load_arrays(arrays)  # which checks sizes against the number of bytes
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type NumPy lacks
        raise InputError(f"its arrays cannot be read: {error}") from None
    return _Reader(named).value(tree, 0)


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


class _Reader:
    """Builds the objects of a tree, innermost values first."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = dict(arrays)
        self._builders: dict[str, Callable[[Any, int], Any]] = {
            "$number": self._number,
            "$tuple": lambda content, depth: tuple(self._list(content, depth)),
            "$dict": self._dict,
            "$slice": self._slice,
            "$array": self._array,
            "$transposed": lambda content, depth: self._array(content, depth).T,
            "$objects": self._objects,
            "$type": self._object,
            "$pipeline": self._pipeline,
        }

    def value(self, tree: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InputError("values are nested too deeply")
        if isinstance(tree, str) and not is_unicode(tree):
            raise InputError(f"{tree!a} is not a text")
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        if isinstance(tree, list):
            return self._list(tree, depth)
        ((kind, content),) = tree.items() if len(tree) == 1 else [("", None)]
        if kind not in self._builders:
            raise InputError(f"{enumerate_names(tree, 3)} says nothing of what it is")
        return self._builders[kind](content, depth + 1)

    def _list(self, content: Any, depth: int) -> list[Any]:
        _expect(isinstance(content, list), "a list", content)
        return list(map(self.value, content, repeat(depth + 1)))

    def _number(self, content: Any, depth: int) -> float:
        _expect(content in ("nan", "inf", "-inf"), "nan, inf or -inf", content)
        return float(content)

    def _dict(self, content: Any, depth: int) -> dict[Any, Any]:
        pairs, n_numbers = self._list(content, depth), 0
        for pair in pairs:
            right = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)
            _expect(right, "pairs", content)
            if type(pair[0]) is int:
                n_numbers += 1
                few = n_numbers <= _MOST_NUMBER_KEYS and abs(pair[0]) < _LARGEST_KEY
                _expect(few, f"at most {_MOST_NUMBER_KEYS:,} numbers as keys", content)
        return dict(pairs)

    def _slice(self, content: Any, depth: int) -> slice:
        ends = self._list(content, depth)
        plain = len(ends) == 2 and all(end is None or type(end) is int for end in ends)
        _expect(plain, "two whole numbers", content)
        return slice(*ends)

    def _array(self, content: Any, depth: int) -> np.ndarray:
        unused = isinstance(content, str) and content in self._arrays
        _expect(unused, "an array that nothing else uses", content)
        return self._arrays.pop(content)

    def _objects(self, content: Any, depth: int) -> np.ndarray:
        values = self._list(content, depth)
        for value in values:
            _expect(not isinstance(value, (list, dict, tuple)), "texts", content)
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found

    def _object(self, content: Any, depth: int) -> Any:
        right = isinstance(content, list) and len(content) == 2 and isinstance(content[0], str)
        _expect(right and isinstance(content[1], dict), "a name and a state", content)
        name, state = content
        cls = _find_type(name)
        if cls is None:
            raise InputError(
                f"{name!a} is not on the list of types that a model file may hold (a class of your "
                "own must be registered first: riskad.storage.codec.register)"
            )
        values = self._list(list(state.values()), depth)
        try:
            return build(cls, dict(zip(state, values, strict=True)))
        except MissingLibrary:
            raise
        except InputError as error:
            raise InputError(f"{name}: {error}") from None

    def _pipeline(self, content: Any, depth: int) -> Pipeline:
        """A pipeline of fitted steps that can follow each other."""
        pairs, width = self._list(content, depth), None
        steps: dict[str, Any] = {}
        for pair in pairs:
            right = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is str
            _expect(right and isinstance(pair[1], BaseEstimator), "steps", content)
            name, step = pair
            _expect(_find_type(type(step).__name__) is type(step), "steps", content)
            require(name != "" and "__" not in name, "steps: bad names")
            require(set(vars(step)) > set(step.get_params(deep=False)), f"{name!a} is not fitted")
            takes = getattr(step, "n_features_in_", width)
            require(width in (None, takes), f"{name!a} takes {takes} columns and is given {width}")
            if pair is not pairs[-1]:
                require(hasattr(step, "transform"), f"{name!a} transforms nothing")
                width = getattr(step, "n_features_out_", None)
            steps[name] = step
        require(len(steps) == len(pairs) > 0, "steps: expected different names")
        return Pipeline(list(steps.items()))


def build(cls: type, state: Mapping[str, Any]) -> Any:
    """Build an object of a listed type with this state, if the state is valid."""
    names: Any = getattr(cls, "_get_param_names", None)  # of an estimator
    settings = set() if names is None else set(names())
    fitted = names is None or bool(set(state) - settings)
    check_state(state, fields_of(cls), needed=None if fitted else settings - _not_stored(cls))
    if fitted and hasattr(cls, "_check_state"):
        cls._check_state(state)
    if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
        return cls(**state)
    made: Any = object.__new__(cls)
    parameters = inspect.signature(cls).parameters
    for name in _not_stored(cls):
        if name in parameters:
            setattr(made, name, parameters[name].default)
    vars(made).update(state)
    return made


def _not_stored(cls: type) -> set[str]:
    """Parameters that depend on the machine, and not on the model."""
    return set(_NOT_STORED) - set(fields_of(cls))


def fields_of(cls: type) -> dict[str, Field]:
    """The fields of a class, including those of its base classes."""
    fields: dict[str, Field] = {}
    for each in reversed(cls.__mro__):
        fields |= vars(each).get("_state_fields", {})
    return fields


def _expect(holds: bool, what: str, got: Any) -> None:
    if not holds:
        text = ascii(got)
        raise InputError(f"expected {what}, got {text if len(text) <= 80 else text[:77] + '...'}")


def _find_type(name: str) -> type | None:
    """The listed type with this name; types of networks need libraries that may be missing."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in OURS:
        return None
    try:
        return getattr(importlib.import_module(OURS[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibrary(
            "Networks are saved and loaded with torch, which is not installed: "
            "pip install 'riskad[deep]'."
        ) from None
