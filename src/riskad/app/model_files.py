"""Models on disk: one file, no pickle, checked before use.

A model file is a zip archive of three members:

- `riskad.json`, the header: what the file is, the versions of the libraries that wrote it, the
  class of the model, the report of its fit, notes of the user, and a checksum of the other two
  members;
- `state.json`, the model: its types, numbers and texts (`riskad.files.codec`);
- `arrays.safetensors`, its arrays, which other tools can read, too.

The format has a version, which is part of the header and changes whenever the layout of a stored
detector changes. Only this version is read: a file of another, older or newer, is refused with a
message that says what to do. Within a version every file keeps loading and scoring as before;
`tests/fixtures/models` holds files with every type.

A file may contain only riskad's own types and pipelines of these, each with its allowed values.
Everything is checked against them when a file is opened, so a file is either a valid model or
refused with one sentence.
`SECURITY.md` says what opening, scoring, calibrating and refitting a file from others can do.
The checksum detects accidental damage. It does not protect against intent: anyone who changes a
file can write another checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import riskad
from riskad.app.fit_report import FitReport
from riskad.core.checks import InputError, MissingLibrary, enumerate_names
from riskad.decisions.thresholds import parse_threshold
from riskad.files.atomic import atomic_path, check_input_file, check_output_file
from riskad.files.codec import from_members, read_json, to_members
from riskad.files.records import Count, from_plain, to_plain

FORMAT: Literal["riskad-model"] = "riskad-model"
FORMAT_VERSION = 9
"""Version of the layout of stored models. No other is read."""

_HEADER, _STATE, _ARRAYS = _MEMBERS = ("riskad.json", "state.json", "arrays.safetensors")
_NETWORKS = "riskad.deep."
_DEEPEST = 40  # nesting of the header

# An archive's own statements are trusted only within limits, so that the memory for reading is
# bounded by the size of the file. JSON, which becomes objects many times its size, is not
# compressed unless it is small (the headers of earlier versions were, and must be read to say so),
# and arrays may expand by no more than a factor.
_EXPANSION = {_HEADER: 1, _STATE: 1, _ARRAYS: 10}
_SMALL = 100_000  # bytes to which anything may expand
_LEVEL = 1  # numbers hardly shrink, whatever the effort
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
# Exceptions of the zipfile module for damaged archives, depending on the damage.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
    OSError,
)


@dataclass(frozen=True)
class ModelHeader:
    """The header of a model file; reading it builds no model."""

    model: str
    created: str
    versions: dict[str, str]
    report: FitReport | None  # what `riskad.fit_table` did and found; None for other models
    notes: dict[str, Any]
    format: Literal["riskad-model"]
    format_version: Count
    checksum: str  # SHA-256 of the other members, in the order of their names


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    report: FitReport | None = None,
    notes: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write a fitted model to one file, without pickle; an existing file needs `force`.

    Detectors and feature maps of riskad and `TablePreparer` can be saved, and pipelines of these;
    anything else is refused. Save pipelines with other steps of scikit-learn with skops
    (https://skops.readthedocs.io), and allow a class of your own with
    `riskad.files.codec.register`. What belongs to a computer rather than to a model is left out:
    the `callback` and `n_jobs` of detectors, and all settings of pipelines.

    Parameters
    ----------
    model : estimator
        A fitted detector, feature map, `TablePreparer`, or a pipeline of these.
    path : path
        Where to write it.
    report : FitReport, optional
        `fit.report` of `riskad.fit_table`, which `riskad inspect`, `refit` and others need.
    notes : dict, optional
        Anything that JSON can hold, to be read back by `read_header`.
    force : bool, default=False
        Whether an existing file may be replaced.

    Examples
    --------
    >>> import tempfile
    >>> import riskad
    >>> model = riskad.ForestRAD().fit([[0.0], [1.0], [2.0], [9.0]], [1, 1, 0, -1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.riskad")
    ...     save(model, path, notes={"rows": 4})
    ...     load(path).predict([[1.0], [9.0]]), read_header(path).notes
    (array([ 1, -1]), {'rows': 4})
    """
    check_output_file(path, force)
    _check_fitted(model)
    try:
        state, arrays = to_members(model)
        # Read back before anything is written: what a reader would refuse is refused now, while the
        # model is still there.
        from_members(state, arrays)
    except InputError as error:
        raise InputError(
            f"This {type(model).__name__} cannot be saved: {error}{_way_out(model)}"
        ) from None
    try:
        json.dumps(dict(notes or {}), allow_nan=False)  # only these come from the user
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The notes cannot be written as JSON: {error}.") from error
    members = {_STATE: state, _ARRAYS: arrays}
    header = make_header(model, report, notes, _checksum(members))
    try:
        data = json.dumps(to_plain(header), indent=1, allow_nan=False).encode()
        _parse_header(data)
    except (InputError, ValueError) as error:
        raise InputError(f"The report and the notes cannot be written: {error}.") from None
    members = {_HEADER: data, **members}
    with atomic_path(path, force) as part:
        with zipfile.ZipFile(part, "x") as archive:
            for name, data in members.items():
                # What would shrink too much to be read again is not compressed.
                shrunk = len(zlib.compress(data, _LEVEL)) - 6  # less its header and checksum
                shrinks = shrunk < len(data) <= _EXPANSION[name] * shrunk
                method = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
                archive.writestr(name, data, method, _LEVEL)
        with zipfile.ZipFile(part) as archive:
            size = part.stat().st_size
            # Read again before the file takes its place: an older model is not replaced by one that
            # a full or failing disk cut.
            written = {name: _read_member(archive, name, size) for name in members}
        if written != members:
            raise OSError(f"{str(path)!r} did not come back from the disk as it was written.")


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    A file, whoever wrote it, can only build types on a closed list, and runs no code of its own
    (`SECURITY.md`).

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    estimator
        The fitted model; it gives the same scores as the saved one.

    Examples
    --------
    >>> import tempfile
    >>> import riskad
    >>> model = riskad.ForestRAD().fit([[0.0], [1.0], [2.0], [9.0]], [1, 1, 0, -1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, Path(folder, "model.riskad"))
    ...     again = load(Path(folder, "model.riskad"))
    >>> bool((again.score_samples([[1.0], [8.0]]) == model.score_samples([[1.0], [8.0]])).all())
    True
    """
    return load_with_header(path)[0]


def load_with_header(path: str | os.PathLike[str]) -> tuple[Any, ModelHeader]:
    """Read a model that `save` wrote, and the header of its file."""
    header, members = _read(path, whole=True)
    try:
        # First, since damage explains whatever the checks of values would say.
        if _checksum(members) != header.checksum:
            raise InputError("its content is not what was written: the checksum differs")
        model = from_members(members[_STATE], members[_ARRAYS])
        if not isinstance(model, BaseEstimator) or _class_name(model) != header.model:
            raise InputError(f"its header says that it is a {header.model!a}")
        if not isinstance(model, Pipeline):  # whose steps were checked one by one
            _check_fitted(model)
    except MissingLibrary:
        raise
    except InputError as error:
        raise _damaged(path, str(error)) from None
    return model, header


def read_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Read the header of a model file: versions, date, class and notes."""
    return _read(path, whole=False)[0]


def make_header(
    model: BaseEstimator,
    report: FitReport | None = None,
    notes: Mapping[str, Any] | None = None,
    checksum: str = "",
) -> ModelHeader:
    """Return the header that a file of this model, saved now, would have."""
    name = _class_name(model)
    libraries = ["numpy", "scipy", "scikit-learn", "safetensors"]
    libraries += ["torch"] if name.startswith(_NETWORKS) else []
    versions = {"riskad": riskad.__version__, "python": platform.python_version()}
    return ModelHeader(
        model=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions | {library: version(library) for library in libraries},
        report=report,
        notes=dict(notes or {}),
        format=FORMAT,
        format_version=FORMAT_VERSION,
        checksum=checksum,
    )


# --- what both need -----------------------------------------------------------------------


def _check_fitted(model: Any) -> None:
    if not isinstance(model, BaseEstimator):
        raise InputError(f"Only estimators can be saved, got {type(model).__name__}.")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError(f"This {type(model).__name__} is not fitted; call fit first.") from error


def _way_out(model: BaseEstimator) -> str:
    """Alternatives for a model that cannot be saved."""
    if hasattr(model, "best_estimator_"):
        return " Save its best_estimator_."
    if _class_name(model).startswith(_NETWORKS) and not isinstance(
        model.module, (str, list, tuple)
    ):
        return (
            " Choose a named architecture, such as module='mlp', or sizes of layers; or save "
            "it without its code, model.set_params(module=None), and give the module to the loaded "
            "model, set_params(module=...)."
        )
    return ""


def _class_name(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _checksum(members: Mapping[str, bytes]) -> str:
    content = hashlib.sha256(members[_ARRAYS])
    content.update(members[_STATE])
    return content.hexdigest()


# --- reading ------------------------------------------------------------------------------


def _read(path: str | os.PathLike[str], *, whole: bool) -> tuple[ModelHeader, dict[str, bytes]]:
    """The header of a file and, if it is to be read as a whole, the bytes of its other members."""
    path = check_input_file(path)
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = path.stat().st_size
            header = _parse_header(_read_member(archive, _HEADER, size))
            if whole:
                names = archive.namelist()
                # Nothing else may lie in the archive, and nothing twice: other readers might take
                # the other copy.
                if sorted(names) != sorted(_MEMBERS):
                    wanted = enumerate_names(_MEMBERS)
                    raise InputError(f"it holds {enumerate_names(names, 4)} instead of {wanted}")
                members = {name: _read_member(archive, name, size) for name in (_STATE, _ARRAYS)}
    except PermissionError:
        raise
    except _OtherVersion as error:
        raise InputError(f"{path.name!r} {error}") from None
    except InputError as error:
        raise _damaged(path, str(error).removeprefix(": ")) from None
    except RecursionError:
        raise _damaged(path, "values are nested too deeply") from None
    except _DAMAGE as error:
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise _damaged(path, f"{type(error).__name__}: {text}") from None
    return header, members


class _OtherVersion(InputError):
    """A file of another version of the format."""


def _read_member(archive: zipfile.ZipFile, name: str, file_size: int) -> bytes:
    if archive.namelist().count(name) != 1:
        raise InputError(f"it holds {enumerate_names(archive.namelist(), 4)} instead of {name!r}")
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
        raise InputError(f"{name!r} is compressed or encrypted in a way that riskad never does")
    most = max(_EXPANSION[name] * info.compress_size, _SMALL)
    if info.compress_size > file_size or info.file_size > most:
        raise InputError(
            f"{name!r} says that it becomes {info.file_size:,} bytes from {info.compress_size:,}"
        )
    with archive.open(info) as member:
        # One byte more than is stated, so that a member that lies about its size is noticed and
        # never read as a whole.
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise InputError(f"{name!r} is not as long as it says")
    return data


def _parse_header(data: bytes) -> ModelHeader:
    fields = read_json(data)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InputError("its header is of another kind of file")
    other = fields.get("format_version")
    # bool is an int, too; numbers that no version will have are damage rather than another version.
    if type(other) is int and other != FORMAT_VERSION and 0 <= other < 2**63:
        newer = other > FORMAT_VERSION
        remedy = "upgrade riskad" if newer else "fit the model again and save it with this riskad"
        raise _OtherVersion(
            f"has version {other} of the format of model files, and riskad "
            f"{riskad.__version__} reads version {FORMAT_VERSION}; {remedy}."
        )
    # After the version: a file of another version may be laid out in any way.
    _check_depth(fields, 0)
    header = from_plain(ModelHeader, fields)
    try:
        datetime.fromisoformat(header.created)
    except ValueError:
        raise InputError(f"{header.created!a} is no date") from None
    if header.report is not None:
        # The rule is written out again by commands that change a model, and must be one.
        parse_threshold(header.report.rule)
    return header


def _check_depth(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError("values are nested too deeply")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, depth + 1)


def _damaged(path: str | os.PathLike[str], why: str) -> InputError:
    return InputError(
        f"{Path(path).name!r} is not a riskad model, or it is damaged ({why}). "
        "Copy it again from where it was made, or fit the model again."
    )
