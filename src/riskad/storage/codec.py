"""Fitted models as plain values: a tree of types, numbers and texts, and arrays by name.

A model file may contain only a closed list of types: those of `OURS` and the scikit-learn types
that `riskad.storage.sklearn_types` describes. Each type declares the allowed values of its
attributes (`riskad.storage.fields`), and everything is checked against these before anything is
built. Nothing in a file names a function, a module or a path, and building a model only calls
methods of these types.

The tree is JSON. Numbers, texts, true, false, null and lists represent themselves; all else is an
object with one key, which names its kind:

=============  ======================================================
`$number`      "nan", "inf" or "-inf"
`$tuple`       a list of values
`$dict`        a list of pairs of key and value
`$slice`       [start, stop]
`$dtype`       the name of a NumPy type of numbers
`$array`       the name of an array
`$transposed`  the name of an array that is stored transposed
`$objects`     a list of values, for an array of texts
`$csr`         shape, data, indices and indptr of a sparse matrix
`$type`        [name, {attribute: value}]
=============  ======================================================
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import keyword
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from scipy import sparse

from riskad.core.checks import InputError, MissingLibrary, enumerate_names
from riskad.core.losses import LOSSES, Loss
from riskad.storage.fields import ANYTHING_PLAIN, Field, Optional, check_state, is_printable
from riskad.storage.sklearn_types import SKLEARN

__all__ = [
    "OURS",
    "from_members",
    "from_tree",
    "read_arrays",
    "read_json",
    "register",
    "to_members",
    "to_tree",
]

OURS = {
    "AnomalyRate": "riskad.decisions.thresholds",
    "Auc": "riskad.decisions.ranking_metrics",
    "AutoRAD": "riskad.detectors.auto",
    "BesideGroup": "riskad.tables.prepared.derived",
    "BestF": "riskad.decisions.thresholds",
    "BoostedRAD": "riskad.detectors.boosted",
    "Calibration": "riskad.decisions.calibration",
    "Candidate": "riskad.decisions.selection",
    "Capacity": "riskad.decisions.thresholds",
    "CategoryColumn": "riskad.tables.prepared.categories",
    "CompressedRAD": "riskad.detectors.compressed",
    "Cost": "riskad.decisions.thresholds",
    "DeepRAD": "riskad.deep.risk_detectors",
    "DeepSAD": "riskad.deep.deep_sad",
    "DensityRatio": "riskad.decisions.conformal",
    "DistilledForest": "riskad.detectors.distilled",
    "Estimate": "riskad.decisions.estimates",
    "FalseAlarms": "riskad.decisions.thresholds",
    "Fidelity": "riskad.detectors.compressed",
    "Filled": "riskad.rows.columns",
    "FlagColumn": "riskad.tables.prepared.numbers",
    "ForestRAD": "riskad.detectors.forest",
    "GaussianKernels": "riskad.detectors.features",
    "GroupComparison": "riskad.tables.groups",
    "LabelledTrees": "riskad.detectors.labelled_trees",
    "LearnedFeatures": "riskad.detectors.features",
    "LeftOut": "riskad.tables.prepared.left_out",
    "LevelEvidence": "riskad.rows.level_evidence",
    "Likely": "riskad.decisions.thresholds",
    "MomentColumn": "riskad.tables.prepared.moments",
    "NNPU": "riskad.deep.risk_detectors",
    "NeighbourDistances": "riskad.detectors.features",
    "Novelty": "riskad.detectors.auto.novelty",
    "NumberByGroup": "riskad.tables.group_numbers",
    "NumberColumn": "riskad.tables.prepared.numbers",
    "OneClassSVM": "riskad.detectors.one_class_svm",
    "OutlierMean": "riskad.detectors.outlier_mean",
    "OutlierScores": "riskad.detectors.features",
    "PresenceColumn": "riskad.tables.prepared.presence",
    "PretrainedRAD": "riskad.detectors.pretrained",
    "RateEstimate": "riskad.decisions.rates",
    "RiskZero": "riskad.decisions.thresholds",
    "Selection": "riskad.decisions.selection",
    "SemiSupervisedOneClassSVM": "riskad.detectors.one_class_svm",
    "ShallowPU": "riskad.detectors.shallow_pu",
    "ShallowRAD": "riskad.detectors.shallow",
    "ShareByGroup": "riskad.tables.group_shares",
    "Shifts": "riskad.tables.shifts",
    "SincePrevious": "riskad.tables.prepared.derived",
    "SmoothScaler": "riskad.detectors.features",
    "StreamSummary": "riskad.detectors.linear.stream_summary",
    "StreamingRAD": "riskad.detectors.streaming",
    "TablePreparer": "riskad.tables.preparation",
    "TextColumn": "riskad.tables.prepared.texts",
    "TextVectors": "riskad.tables.texts",
    "TimeBetween": "riskad.tables.prepared.derived",
    "TopK": "riskad.decisions.thresholds",
    "TreeLeaves": "riskad.detectors.features",
    "Trees": "riskad.detectors.tree_arrays",
    "UnlabelledSummary": "riskad.decisions.drift",
}
"""The modules of our types."""

_REGISTERED: dict[str, type] = {}
_DEEPEST = 40
_LEFT_OUT = {"callback", "memory"}  # a function, and the path of a pipeline's cache
_NUMBERS = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def register(cls: type) -> type:
    """Allow models of your own class to be saved and loaded; usable as a decorator.

    The class has `_state_fields`, a `riskad.storage.fields.Field` for each attribute, and may have
    a static method `_check_state(state)` that raises an `InputError` if individually valid values
    are inconsistent. A file can only contain it if it has been registered.
    """
    name = cls.__name__
    if name in OURS or name in SKLEARN or not getattr(cls, "_state_fields", None):
        raise InputError(
            f"{name} cannot be registered: the name is taken, or the class has no _state_fields."
        )
    _REGISTERED[name] = cls
    return cls


# --- from objects to a tree ---------------------------------------------------------------


def to_tree(model: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A fitted model as a tree and its arrays.

    >>> from riskad.decisions.ranking_metrics import Auc
    >>> to_tree(Auc(0.9, 0.8, 1.0, n_normal=20, n_anomaly=4))
    ({'$type': ['Auc', {'value': 0.9, 'low': 0.8, 'high': 1.0, 'n_normal': 20, 'n_anomaly': 4, \
'confidence': 0.95}]}, {})
    """
    writer = _Writer()
    return writer.tree(model, ""), writer.arrays


class _Writer:
    """Turns objects into trees; arrays that occur twice are stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._known: dict[int, Any] = {}
        self._alive: list[Any] = []  # so that no other array gets the id of a known one

    def tree(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
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
        if sparse.issparse(value):
            return self._sparse(value.tocsr(), where)
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
        if isinstance(value, np.dtype) or (
            isinstance(value, type) and issubclass(value, np.generic)
        ):
            return {"$dtype": np.dtype(value).name}
        return self._object(value, where)

    def _each(self, values: Any, where: str) -> list[Any]:
        return [self.tree(each, f"{where}[{place}]") for place, each in enumerate(values)]

    def _array(self, value: np.ndarray, where: str) -> Any:
        if value.dtype.kind in "OU" and value.ndim == 1:
            return {"$objects": self._each(value.tolist(), where)}
        if value.dtype.name not in _NUMBERS:
            raise InputError(f"{where} is an array of {value.dtype}, which cannot be stored.")
        if id(value) not in self._known:
            name = where or "array"
            transposed = value.flags.f_contiguous and not value.flags.c_contiguous
            self.arrays[name] = np.asarray(value.T if transposed else value, order="C")
            self._known[id(value)] = {"$transposed" if transposed else "$array": name}
            self._alive.append(value)
        return self._known[id(value)]

    def _sparse(self, value: Any, where: str) -> Any:
        names = ("data", "indices", "indptr")
        parts = [self.tree(getattr(value, name), f"{where}.{name}") for name in names]
        return {"$csr": [list(value.shape), *parts]}

    def _object(self, value: Any, where: str) -> Any:
        name = type(value).__name__
        if _find_type(name) is not type(value):
            raise InputError(
                f"{where or 'It'} is a {type(value).__module__}.{name}, not on the list of what a "
                "model file may hold. Functions, modules and classes of your own are code; for a "
                "class of your own see riskad.storage.codec.register."
            )
        state = _state_of(value)
        before = f"{where}." if where else ""
        return {"$type": [name, {key: self.tree(v, before + key) for key, v in state.items()}]}


def to_members(model: Any) -> tuple[bytes, bytes]:
    """A fitted model as the bytes of a JSON text and of a safetensors file."""
    tree, arrays = to_tree(model)
    return json.dumps(tree, allow_nan=False).encode(), save_arrays(arrays)


def _state_of(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):  # a named one
        return value._asdict()  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    state = dict(value.__getstate__())
    state.pop("_sklearn_version", None)  # the header of the file has it
    for name in _LEFT_OUT & set(state):
        state[name] = None
    return state


# --- from a tree to objects ---------------------------------------------------------------


def from_tree(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The model of a tree and its arrays; an `InputError` explains what is wrong with them."""
    return _Reader(arrays).value(tree, 0)


def from_members(text: bytes, arrays: bytes) -> Any:
    """The model of `to_members`; an `InputError` explains what is wrong with the bytes."""
    return from_tree(read_json(text), read_arrays(arrays))


def read_json(data: bytes) -> Any:
    """The content of a JSON text; numbers must be finite, and texts without half characters."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError("values are nested too deeply") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number of thousands of digits
        raise InputError(f"it holds no JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; the library checks sizes against the number of bytes."""
    try:
        return load_arrays(data)
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type NumPy lacks
        raise InputError(f"its arrays cannot be read: {error}") from None


class _Reader:
    """Builds the objects of a tree, innermost values first."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = arrays
        self._builders: dict[str, Callable[[Any, int], Any]] = {
            "$number": self._number,
            "$tuple": lambda content, depth: tuple(self._list(content, depth)),
            "$dict": self._dict,
            "$slice": self._slice,
            "$dtype": self._dtype,
            "$array": self._array,
            "$transposed": lambda content, depth: self._array(content, depth).T,
            "$objects": self._objects,
            "$csr": self._csr,
            "$type": self._object,
        }

    def value(self, tree: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InputError("values are nested too deeply")
        if isinstance(tree, str) and not is_printable(tree):
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
        return [self.value(each, depth + 1) for each in content]

    def _number(self, content: Any, depth: int) -> float:
        _expect(content in ("nan", "inf", "-inf"), "nan, inf or -inf", content)
        return float(content)

    def _dict(self, content: Any, depth: int) -> dict[Any, Any]:
        pairs = self._list(content, depth)
        right = all(isinstance(p, list) and len(p) == 2 for p in pairs)
        _expect(right and all(isinstance(p[0], (str, int)) for p in pairs), "pairs", content)
        return dict(pairs)

    def _slice(self, content: Any, depth: int) -> slice:
        ends = self._list(content, depth)
        plain = len(ends) == 2 and all(end is None or type(end) is int for end in ends)
        _expect(plain, "two whole numbers", content)
        return slice(*ends)

    def _dtype(self, content: Any, depth: int) -> np.dtype:
        _expect(isinstance(content, str) and content in {*_NUMBERS, "object"}, "a type", content)
        return np.dtype(content)

    def _array(self, content: Any, depth: int) -> np.ndarray:
        _expect(isinstance(content, str) and content in self._arrays, "an array", content)
        return self._arrays[content]

    def _objects(self, content: Any, depth: int) -> np.ndarray:
        values = self._list(content, depth)
        _expect(not any(isinstance(v, (list, dict, tuple)) for v in values), "texts", content)
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found

    def _csr(self, content: Any, depth: int) -> Any:
        _expect(isinstance(content, list) and len(content) == 4, "four parts", content)
        shape, data, indices, indptr = self._list(content, depth)
        parts = (data, indices, indptr)
        right = all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts)
        sizes = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int for n in shape)
        _expect(right and sizes and indices.dtype.kind == indptr.dtype.kind == "i", "a matrix", "")
        _expect(0 <= shape[0] < len(indptr) and 0 <= shape[1] < 2**31, "a matrix", shape)
        try:
            matrix = sparse.csr_matrix(parts, shape=tuple(shape))
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"a sparse matrix is damaged: {error}") from None
        return matrix

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
        values = {key: self.value(each, depth + 1) for key, each in state.items()}
        upgrade = getattr(cls, "_upgrade_state", dict)  # a state of an earlier version
        try:
            return build(cls, upgrade(values))
        except MissingLibrary:
            raise
        except InputError as error:
            raise InputError(f"{name}: {error}") from None


def build(cls: type, state: Mapping[str, Any]) -> Any:
    """Build an object of a listed type with this state, if the state is valid."""
    if cls.__module__.startswith("sklearn."):
        state = {**_defaults(cls), **state}
        fields = _with_plain(cls, state, SKLEARN[cls.__name__].fields)
        check = SKLEARN[cls.__name__].check
    else:
        fields, check = fields_of(cls), getattr(cls, "_check_state", None)
    parameters: list[str] | None = getattr(cls, "_get_param_names", lambda: None)()
    fitted = parameters is None or bool(set(state) - set(parameters))
    check_state(state, fields, needed=None if fitted else parameters)
    if check is not None and (fitted or cls.__module__.startswith("sklearn.")):
        check(state)
    return _made(cls, state)


def _defaults(cls: type) -> dict[str, Any]:
    """Settings that the scikit-learn version of the file may not have had."""
    parameters = inspect.signature(cls).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def fields_of(cls: type) -> dict[str, Field]:
    """The fields of a class, including those of its base classes."""
    fields: dict[str, Field] = {}
    for each in reversed(cls.__mro__):
        fields |= vars(each).get("_state_fields", {})
    return fields


def _with_plain(
    cls: type, state: Mapping[str, Any], fields: Mapping[str, Field]
) -> dict[str, Field]:
    """Fields of a scikit-learn type: attributes of other versions may be plain values."""
    known = set(cls._get_param_names())  # type: ignore[attr-defined]
    settings = {name for name in fields if not name.startswith("_") and not name.endswith("_")}
    gone = settings - known  # another version's
    found = {name: Optional(f) if name in gone else f for name, f in fields.items()}
    for name in set(state) - set(fields):
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
            raise InputError(f"{name!a} is not the name of an attribute")
        if hasattr(cls, name):
            raise InputError(f"{name!a} would hide what {cls.__name__} does")
        found[name] = ANYTHING_PLAIN
    return found


def _made(cls: type, state: Mapping[str, Any]) -> Any:
    if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
        return cls(**state)
    made: Any = object.__new__(cls)
    if hasattr(cls, "__setstate__") and not cls.__module__.startswith("sklearn."):
        made.__setstate__(dict(state))
    else:  # scikit-learn's own would warn of a version that the state does not hold
        vars(made).update(state)
    return made


def _expect(holds: bool, what: str, got: Any) -> None:
    if not holds:
        text = ascii(got)
        raise InputError(f"expected {what}, got {text if len(text) <= 80 else text[:77] + '...'}")


def _find_type(name: str) -> type | None:
    """The listed type with this name; types of networks need libraries that may be missing."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    module = OURS.get(name) or (SKLEARN[name].module if name in SKLEARN else None)
    if module is None:
        return None
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibrary(
            "Networks are saved and loaded with torch, which is not installed: "
            "pip install 'riskad[deep]'."
        ) from None
