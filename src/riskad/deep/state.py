"""Fitted detectors as bytes: safetensors for arrays, JSON for everything else, no pickle.

The bytes are a safetensors file. Its metadata holds one entry, "riskad": a JSON object with the
class, its parameters and the learned values that are not arrays. Loading builds one of the
detectors of this package and nothing else, whoever wrote the bytes.

`riskad.save` puts these bytes into its model file, where other tools can read the weights. Called
directly, the functions here also serve detectors with a module of one's own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from riskad._checks import InputError, enumerate_names, lookup
from riskad.calibration import Calibration
from riskad.deep.detectors import NNPU, DeepRAD, DeepSAD
from riskad.drift import PileSummary
from riskad.losses import LOSSES, Loss
from riskad.thresholds import Threshold, parse_threshold

__all__ = ["state_from_bytes", "state_to_bytes"]

FORMAT_VERSION = 1

_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in (DeepRAD, NNPU, DeepSAD)}
_KEY = "riskad"
_RECORDS: dict[str, Any] = {"calibration_": Calibration, "pile_": PileSummary}
# What every fitted detector has besides its parameters; column names only if it was given some.
_LEARNED = {
    "_mean",
    "_scale",
    "best_step_",
    "history_",
    "n_features_in_",
    "n_steps_",
    "offset_",
    "shape_",
    "weights_",
}
# What reading damaged bytes raises, according to where the damage is.
_DAMAGE = (
    SafetensorError,
    struct.error,
    AttributeError,
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    OverflowError,
    RuntimeError,  # weights of another shape; JSON nested too deeply
)


def state_to_bytes(detector: DeepRAD | NNPU | DeepSAD) -> bytes:
    """A fitted detector as the bytes of a safetensors file.

    A `module` of one's own and a `callback` are code and cannot be stored: the former is to be
    given again to `state_from_bytes`, the latter is left out.
    """
    _check_storable(detector)
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    for name, value in detector.__getstate__().items():
        if name == "callback" or (name == "module" and not isinstance(value, str)):
            values[name] = None
        elif isinstance(value, (Mapping, Calibration, PileSummary)):
            parts = value if isinstance(value, Mapping) else value.to_arrays()
            arrays |= {f"{name}/{key}": np.asarray(part, order="C") for key, part in parts.items()}
        elif isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = np.asarray(value, order="C")
        else:
            values[name] = _as_json(name, value)
    header = {"version": FORMAT_VERSION, "class": type(detector).__name__, "values": values}
    return bytes(save(arrays, metadata={_KEY: json.dumps(header)}))


def state_from_bytes(data: bytes, module: Any = None) -> Any:
    """The detector that `state_to_bytes` wrote; scores are the same to the last bit.

    `module` is the module of one's own, or the function that made it, if there was one.
    """
    with _damage_is_input_error():
        header = _read_header(data)
        version, values = header["version"], dict(header["values"])
    if version != FORMAT_VERSION:
        raise InputError(f"the detector has format {version}, this riskad reads {FORMAT_VERSION}.")
    with _damage_is_input_error():
        cls = lookup("class", header["class"], _CLASSES)
        state = {name: _from_json(name, value) for name, value in values.items()}
        state |= _nest(load(data))
        for name, record in _RECORDS.items():
            if name in state:
                state[name] = record.from_arrays(state[name])
        _check_complete(cls, state)
    if state["module"] is None:
        if module is None:
            raise InputError(
                f"this {cls.__name__} was fitted with a module of one's own; give it again: "
                "state_from_bytes(data, module=...)."
            )
        state["module"] = module
    detector = object.__new__(cls)
    detector.__setstate__(state)
    _build_network(detector)
    return detector


def _check_storable(detector: Any) -> None:
    if _CLASSES.get(type(detector).__name__) is not type(detector):
        raise InputError(
            f"only {', '.join(_CLASSES)} can be stored, not {type(detector).__name__}: a class of "
            "one's own is code."
        )
    try:
        check_is_fitted(detector)
    except NotFittedError as error:
        raise InputError(
            f"This {type(detector).__name__} is not fitted; call fit first."
        ) from error


def _read_header(data: bytes) -> dict[str, Any]:
    """Our entry in the metadata, which stands in the JSON at the beginning of the bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])
    return header


def _nest(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays by attribute; those called "attribute/key" make a dict."""
    nested: dict[str, Any] = {}
    for name, value in arrays.items():
        attribute, _, key = name.partition("/")
        if key:
            nested.setdefault(attribute, {})[key] = value
        else:
            nested[attribute] = value
    return nested


def _check_complete(cls: type[Any], state: Mapping[str, Any]) -> None:
    needed = _LEARNED | set(cls._get_param_names()) | ({"centre_"} if cls is DeepSAD else set())
    missing = sorted(needed - set(state))
    if missing:
        raise InputError(f"without {enumerate_names(missing)}")


def _build_network(detector: Any) -> None:
    """Make the network now, so that weights that do not fit it are found before they are used."""
    try:
        detector._stack = detector._rebuild()
    except _DAMAGE as error:
        raise InputError(
            f"the stored weights do not fit the network of this {type(detector).__name__}, or they "
            f"are damaged ({_say(error)})."
        ) from error


@contextmanager
def _damage_is_input_error() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise InputError(
            "these bytes are not a detector that riskad stored, or they are damaged "
            f"({_say(error)})."
        ) from error


def _say(error: Exception) -> str:
    """The last line of an error: where torch says what it is about."""
    lines = str(error).strip().rstrip(".").splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def _as_json(name: str, value: Any) -> Any:
    """Plain values; names for losses, spellings for rules, lists for tuples and column names."""
    if isinstance(value, Loss):
        if LOSSES.get(value.name) is value:
            return value.name
    elif isinstance(value, Threshold):
        return str(value)
    elif value is None or isinstance(value, (bool, int, float, str)):
        return value
    elif isinstance(value, np.generic):
        return value.item()
    elif isinstance(value, (tuple, list, np.ndarray)):
        return [_as_json(name, part) for part in value]
    raise InputError(f"{name}={value!r} cannot be stored without pickle.")


def _from_json(name: str, value: Any) -> Any:
    if name == "threshold_":
        return parse_threshold(value)
    if not isinstance(value, list):
        return value
    return np.array(value, dtype=object) if name == "feature_names_in_" else tuple(value)
