"""Fitted detectors as bytes, for those with a custom module: no pickle.

The bytes are a safetensors file. Its metadata holds one entry, "riskad": the tree of
`riskad.storage.codec` as JSON. A custom module is code and is not stored: give it again when
loading. Detectors with a named architecture are better saved by `riskad.save`.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from safetensors.numpy import save
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.deep.base import DeepDetector
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD
from riskad.storage.codec import from_tree, read_arrays, read_json, to_tree

__all__ = ["state_from_bytes", "state_to_bytes"]

_CLASSES = (DeepRAD, NNPU, DeepSAD)
_KEY = "riskad"
_LENGTH = 8  # bytes at the start of a safetensors file, which give the length of its JSON


def state_to_bytes(detector: DeepRAD | NNPU | DeepSAD) -> bytes:
    """A fitted detector as the bytes of a safetensors file.

    A custom `module` and a `callback` are code and cannot be stored: give the former again to
    `state_from_bytes`; the latter is left out.
    """
    if type(detector) not in _CLASSES:
        names = ", ".join(each.__name__ for each in _CLASSES)
        raise InputError(
            f"only {names} can be stored, not {type(detector).__name__}: a class of one's own is "
            "code."
        )
    try:
        check_is_fitted(detector)
    except NotFittedError as error:
        raise InputError(
            f"This {type(detector).__name__} is not fitted; call fit first."
        ) from error
    stored = copy.copy(detector)
    if not isinstance(detector.module, str):
        stored.module = None
    tree, arrays = to_tree(stored)
    return bytes(save(arrays, metadata={_KEY: json.dumps(tree, allow_nan=False)}))


def state_from_bytes(data: bytes, module: Any = None) -> Any:
    """The detector that `state_to_bytes` wrote; scores are the same to the last bit.

    `module` is the custom module, or the function that made it, if there was one.
    """
    try:
        detector = from_tree(_read_tree(data), read_arrays(data))
        if not isinstance(detector, _CLASSES):
            raise InputError(f"they hold a {type(detector).__name__}")
    except InputError as error:
        raise InputError(
            f"these bytes are not a detector that riskad stored, or they are damaged ({error})."
        ) from None
    if detector.module is None:
        if module is None:
            raise InputError(
                f"this {type(detector).__name__} was fitted with a module of one's own; give it "
                "again: state_from_bytes(data, module=...)."
            )
        detector.module = module
        _check_module(detector)
    return detector


def _read_tree(data: bytes) -> Any:
    """Our entry in the metadata, which is in the JSON at the start of the bytes."""
    length = int.from_bytes(data[:_LENGTH], "little")
    header = read_json(data[_LENGTH : _LENGTH + length])
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    tree = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(tree, str):
        raise InputError("its metadata says nothing of it")
    return read_json(tree.encode(errors="replace"))


def _check_module(detector: DeepDetector) -> None:
    """Refuse weights that are not those of the module, before they are used."""
    wanted = {
        name: tuple(value.shape) for name, value in detector._build([detector]).state_dict().items()
    }
    stored = {name: weight.shape for name, weight in detector.weights_.items()}
    if stored != wanted:
        raise InputError(
            f"the stored weights do not fit the module of this {type(detector).__name__}: they are "
            f"{stored}, and it has {wanted}."
        )
