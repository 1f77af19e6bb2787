"""Fitted detectors as bytes: safetensors for arrays, JSON for everything else, no pickle.

The bytes are a safetensors file. Its metadata holds one entry, "riskad": a JSON object with the
class, its parameters and the learned values that are not arrays. Loading builds one of the
detectors of this package and nothing else, whoever wrote the bytes.

`riskad.save` stores these detectors as well, also inside a pipeline; this is for who wants the
weights in a format that other tools read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from riskad._checks import InputError, check_choice
from riskad.deep.detectors import NNPU, DeepRAD, DeepSAD
from riskad.losses import LOSSES, Loss

__all__ = ["state_from_bytes", "state_to_bytes"]

FORMAT_VERSION = 1

_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in (DeepRAD, NNPU, DeepSAD)}
_KEY = "riskad"
_DAMAGE = (struct.error, KeyError, TypeError, ValueError, OverflowError)


def state_to_bytes(detector: DeepRAD | NNPU | DeepSAD) -> bytes:
    """A fitted detector as the bytes of a safetensors file.

    A `module` of one's own and a `callback` are code and cannot be stored: the former is to be
    given again to `state_from_bytes`, the latter is left out.
    """
    from safetensors.numpy import save

    try:
        check_is_fitted(detector)
    except NotFittedError as error:
        raise InputError(
            f"This {type(detector).__name__} is not fitted; call fit first."
        ) from error
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    for name, value in detector.__getstate__().items():
        if name == "callback" or (name == "module" and not isinstance(value, str)):
            values[name] = None
        elif isinstance(value, Mapping):
            arrays |= {f"{name}/{key}": np.ascontiguousarray(part) for key, part in value.items()}
        elif isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = np.ascontiguousarray(value)
        else:
            values[name] = _as_json(name, value)
    header = {"version": FORMAT_VERSION, "class": type(detector).__name__, "values": values}
    return bytes(save(arrays, metadata={_KEY: json.dumps(header)}))


def state_from_bytes(data: bytes, module: Any = None) -> Any:
    """The detector that `state_to_bytes` wrote; scores are the same to the last bit.

    `module` is the module of one's own, or the function that made it, if there was one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])
        version, values, arrays = header["version"], header["values"], load(data)
        cls = _CLASSES[check_choice("class", header["class"], _CLASSES)]
    except (*_DAMAGE, SafetensorError) as error:
        raise InputError(
            f"these bytes are not a detector that riskad stored, or they are damaged ({error})."
        ) from error
    if version != FORMAT_VERSION:
        raise InputError(f"the detector has format {version}, this riskad reads {FORMAT_VERSION}.")
    if values.get("module") is None:
        if module is None:
            raise InputError(
                f"this {cls.__name__} was fitted with a module of one's own; give it again: "
                "state_from_bytes(data, module=...)."
            )
        values["module"] = module
    detector = object.__new__(cls)
    detector.__setstate__({name: _from_json(name, value) for name, value in values.items()})
    for name, value in arrays.items():
        attribute, _, key = name.partition("/")
        if key:
            vars(detector).setdefault(attribute, {})[key] = value
        else:
            vars(detector)[attribute] = value
    return detector


def _as_json(name: str, value: Any) -> Any:
    """Plain values; names for losses, lists for tuples and for column names."""
    if isinstance(value, Loss):
        if LOSSES.get(value.name) is value:
            return value.name
    elif value is None or isinstance(value, (bool, int, float, str)):
        return value
    elif isinstance(value, np.generic):
        return value.item()
    elif isinstance(value, (tuple, list, np.ndarray)):
        return [_as_json(name, part) for part in value]
    raise InputError(f"{name}={value!r} cannot be stored without pickle.")


def _from_json(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return np.array(value, dtype=object) if name == "feature_names_in_" else tuple(value)
