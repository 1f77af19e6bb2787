"""Models on disk: one file, no pickle, checked before it is believed.

A model file is a zip archive of two members:

- `riskad.json` says what the file is: its format version, the versions of the libraries that
  wrote it, the class of the model and the notes that were saved with it;
- the model, without code: `model.safetensors` for `DeepRAD`, `NNPU` and `DeepSAD` (weights as
  safetensors, everything else as JSON), `model.skops` for all others, pipelines among them (arrays
  and named types, as skops stores them).

Loading builds only types that are known to be harmless: those skops trusts, the estimators of
this package, and what the caller lists in `trusted`. The trees of `BoostedRAD` and `ForestRAD` are
checked first (`riskad.trees`). torch is needed for networks alone, LightGBM for boosted trees.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import riskad
from riskad._checks import InputError, enumerate_names
from riskad._files import atomic_path, check_input_file, check_output_file
from riskad.calibration import Calibration
from riskad.conformal import DensityRatio
from riskad.drift import PileSummary
from riskad.metrics import Estimate
from riskad.selection import Selection
from riskad.stream import Stream
from riskad.thresholds import Threshold

__all__ = ["FORMAT", "FORMAT_VERSION", "ModelHeader", "load", "make_header", "read_header", "save"]

FORMAT = "riskad-model"
FORMAT_VERSION = 1

_HEADER = "riskad.json"
_MODEL = "model.skops"
_NETWORK = "model.safetensors"
_NETWORK_LIBRARIES = ("torch", "safetensors")
_DETECTORS = "riskad.deep.detectors"
# What a fitted estimator may hold beside arrays: data, and no code.
_RECORDS = (Calibration, DensityRatio, Estimate, PileSummary, Selection, Stream, Threshold)
# What reading a damaged archive raises, according to where the damage is.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    NotImplementedError,  # a compression method that does not exist
    RuntimeError,  # a member that claims to be encrypted
    ValueError,
    OSError,
)


@dataclass(frozen=True)
class ModelHeader:
    """What a model file says about itself; reading it builds no model."""

    model: str
    created: str
    versions: dict[str, str]
    notes: dict[str, Any] = field(default_factory=dict)
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    notes: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write a fitted model to one file, without pickle; an existing file needs `force`.

    `notes` is kept with the model and read back by `read_header`: anything that JSON can hold.
    What was written is read back before the file gets its name. The `callback` of an `AutoRAD`,
    `DeepRAD`, `NNPU` or `DeepSAD` is left out.

    >>> import tempfile
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = StandardScaler().fit([[0.0], [2.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "scaler.riskad")
    ...     save(model, path, notes={"rows": 2})
    ...     load(path).mean_, read_header(path).notes
    (array([1.]), {'rows': 2})
    """
    check_output_file(path, force)
    _check_fitted(model)
    member, dump = (_NETWORK, _dump_network) if _is_network(model) else (_MODEL, _dump)
    stored = dump(model)
    header = _header_bytes(model, notes or {})
    with atomic_path(path, force) as part:
        with zipfile.ZipFile(part, "x", compression=zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_HEADER, header)
            archive.writestr(member, stored)
        if _read_member(part, member) != stored:
            raise OSError(f"{str(path)!r} did not come back from the disk as it was written.")


def load(path: str | os.PathLike[str], *, trusted: Sequence[str] = ()) -> Any:
    """Read a model that `save` wrote.

    `trusted` lists further types that the file may contain, by full name. A file can only
    build what is trusted; the error that names a type is the moment to ask where the file
    comes from. A network that was saved by itself needs none.
    """
    path = check_input_file(path)
    read_header(path)
    if _has_member(path, _NETWORK):
        return _load_network(path)
    return _load_skops(path, trusted)


def read_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Read what a model file says about itself: versions, date, class and notes."""
    path = check_input_file(path)
    with _damage_is_input_error(path):
        fields = json.loads(_read_member(path, _HEADER))
        if fields["format"] != FORMAT:
            raise KeyError(fields["format"])
        format_version = int(fields["format_version"])
        if format_version == FORMAT_VERSION:
            return ModelHeader(**fields)
    written_by = f"format {format_version}, riskad {fields.get('versions', {}).get('riskad', '?')}"
    if format_version > FORMAT_VERSION:
        raise InputError(
            f"{path.name!r} was written by a newer riskad ({written_by}) than this one, "
            f"{riskad.__version__}; upgrade riskad to read it."
        )
    raise InputError(
        f"{path.name!r} has a format that riskad no longer reads ({written_by}); "
        "fit the model again and save it with this version."
    )


def _load_network(path: Path) -> Any:
    """Read a network: one of our detectors, whatever the file holds."""
    data = _read_member(path, _NETWORK)
    state = _import_room("riskad.deep.state")
    try:
        return state.state_from_bytes(data)
    except InputError as error:
        raise InputError(f"{path.name!r} cannot be read: {error}") from error


def _load_skops(path: Path, trusted: Sequence[str]) -> Any:
    data = _read_member(path, _MODEL)
    import skops.io

    with _damage_is_input_error(path):
        unknown = [name for name in skops.io.get_untrusted_types(data=data) if not _is_ours(name)]
    refused = sorted(set(unknown) - set(trusted))
    if refused:
        raise InputError(
            f"{path.name!r} contains types that are not known to be safe: "
            f"{enumerate_names(refused)}. If you know who made the file and trust them, "
            f"load it with trusted={refused!r}."
        )
    with _damage_is_input_error(path):
        return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


def _check_fitted(model: BaseEstimator) -> None:
    if not isinstance(model, BaseEstimator):
        raise InputError(f"Only scikit-learn estimators can be saved, got {type(model).__name__}.")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError(f"This {type(model).__name__} is not fitted; call fit first.") from error


def make_header(model: BaseEstimator, notes: Mapping[str, Any]) -> ModelHeader:
    """Return what a file of this model, saved now, would say about itself."""
    return ModelHeader(
        model=f"{type(model).__module__}.{type(model).__qualname__}",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(_NETWORK_LIBRARIES if _is_network(model) else ("skops",)),
        notes=dict(notes),
    )


def _header_bytes(model: BaseEstimator, notes: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(asdict(make_header(model, notes)), indent=1, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"The notes cannot be written as JSON: {error}.") from error


def _versions(others: Sequence[str]) -> dict[str, str]:
    libraries = ("numpy", "scipy", "scikit-learn", *others)
    own = {"riskad": riskad.__version__, "python": platform.python_version()}
    return own | {library: version(library) for library in libraries}


def _is_network(model: BaseEstimator) -> bool:
    """Whether a model is one of our networks by itself; a subclass of them is another's code."""
    return type(model).__module__ == _DETECTORS


def _dump_network(model: Any) -> bytes:
    """Return one of our networks as safetensors and JSON, if it can be built again from that."""
    if not isinstance(model.module, str):
        raise InputError(
            f"This {type(model).__name__} has a module of your own, which is code and cannot be "
            "saved without pickle. Choose a named architecture, such as module='mlp' with hidden; "
            "or keep riskad.deep.state.state_to_bytes(model) and give the module again to "
            "state_from_bytes(data, module=...)."
        )
    state = _import_room("riskad.deep.state")
    stored: bytes = state.state_to_bytes(model)
    state.state_from_bytes(stored)
    return stored


def _dump(model: BaseEstimator) -> bytes:
    """Return the model as skops stores it, if it can be built again from that."""
    import skops.io

    try:
        stored: bytes = skops.io.dumps(model)
        skops.io.loads(stored, trusted=skops.io.get_untrusted_types(data=stored))
    except Exception as error:  # skops has no common error; a lambda fails in its own way
        raise InputError(
            f"This {type(model).__name__} cannot be saved without pickle: {error} "
            "Functions defined on the spot are the usual cause; use named ones."
        ) from error
    return stored


def _read_member(path: Path, member: str) -> bytes:
    """Read one member whole; the archive's checksum is verified on the way."""
    with _damage_is_input_error(path), zipfile.ZipFile(path) as archive:
        return archive.read(member)


def _has_member(path: Path, member: str) -> bool:
    with _damage_is_input_error(path), zipfile.ZipFile(path) as archive:
        return member in archive.namelist()


@contextmanager
def _damage_is_input_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (InputError, PermissionError):
        raise
    except _DAMAGE as error:
        raise InputError(
            f"{path.name!r} is not a riskad model, or it is damaged ({_say(error)}). "
            "Copy it again from where it was made, or fit the model again."
        ) from error


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else repr(error)


def _is_ours(name: str) -> bool:
    """Whether a type's name is that of an estimator or a record of ours (never of a function)."""
    module, _, attribute = name.rpartition(".")
    if module != "riskad" and not module.startswith("riskad."):
        return False
    try:
        found = getattr(_import_room(module), attribute)
    except (ImportError, AttributeError):
        return False
    return isinstance(found, type) and issubclass(found, (BaseEstimator, *_RECORDS))


def _import_room(module: str) -> Any:
    """A module of this package; those of networks need libraries that may not be there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in _NETWORK_LIBRARIES:
            raise
        raise InputError(
            f"Networks are saved and loaded with {error.name}, which is not installed: "
            "pip install 'riskad[deep]'."
        ) from None
