"""Where the datasets of experiments come from: one class for each kind, one registry of them.

A source is a frozen dataclass; its fields are the entries that a description of the dataset may
have, and `load` reads it. To add a kind, write such a class in a file and add it to `SOURCES`. A
class of your own needs no entry: `source = "mymodule.MySource"` names it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from riskad.core.checks import InputError, check_choice, lookup
from riskad.datasets.adbench import load_adbench
from riskad.datasets.dataset import Dataset, FrameDataset
from riskad.datasets.files import Words, digest_of, load_table
from riskad.datasets.images import ImageDataset, load_images

__all__ = ["SOURCES", "ADBenchSource", "DatasetSource", "FileSource", "ImageSource", "read_source"]


@dataclass(frozen=True)
class DatasetSource(ABC):
    """A dataset of one kind, as a description names it.

    Parameters
    ----------
    name : str
        Name in records and tables. Seeds depend on it, so another name gives another split.
    state : str, optional
        Identifies the state of data that may change; set by `pinned`.
    """

    holds_images: ClassVar[bool] = False

    name: str
    state: str | None = field(default=None, kw_only=True)

    @abstractmethod
    def load(self) -> Any:
        """Read the dataset.

        Returns
        -------
        `Dataset` or `FrameDataset`; `ImageDataset` if `holds_images`.

        Raises
        ------
        DatasetMissing
            If it is not available here; it is then recorded as not run, and the others are run.
        """

    def pinned(self) -> DatasetSource:
        """Return the source of the current data, for data that may change.

        Its `state` identifies them. Caches and records use it, so that a changed table is read and
        run again.
        """
        return self

    @classmethod
    def of(cls, entries: Mapping[str, Any], folder: Path) -> DatasetSource:
        """Make a source from the entries of a description that lies in `folder`."""
        for each in dataclasses.fields(cls):
            if each.default is dataclasses.MISSING and each.name not in entries:
                raise InputError(f"a dataset of source {cls.__name__} needs {each.name} = ...")
        return cls(**entries)


@dataclass(frozen=True)
class ADBenchSource(DatasetSource):
    """A set of ADBench: `load_adbench`."""

    def load(self) -> Dataset:
        """Read it, see `load_adbench`."""
        return load_adbench(self.name)


@dataclass(frozen=True)
class ImageSource(DatasetSource):
    """MNIST, F-MNIST or CIFAR-10: `load_images`."""

    holds_images: ClassVar[bool] = True

    def load(self) -> ImageDataset:
        """Read it, see `load_images`."""
        return load_images(self.name)


@dataclass(frozen=True)
class FileSource(DatasetSource):
    """A table of your own: `load_table` explains each entry.

    `path` is relative to `folder`, the folder of the description.
    """

    path: str
    label: str | None = None
    normal: Words = None
    anomaly: Words = None
    drop: tuple[str, ...] = ()
    folder: str = "."

    @classmethod
    def of(cls, entries: Mapping[str, Any], folder: Path) -> DatasetSource:
        """Make a source; its name is that of the file if none is given."""
        own = {"name": Path(str(entries.get("path", ""))).name.partition(".")[0]}
        return super().of({**own, **entries, "folder": str(folder)}, folder)

    @property
    def place(self) -> Path:
        """The path of the file."""
        return Path(self.folder) / self.path

    def pinned(self) -> DatasetSource:
        """Return a source whose state is a digest of the file's bytes and of how it is read."""
        digest = digest_of(self.place, self.label, self.normal, self.anomaly, self.drop)
        return dataclasses.replace(self, state=digest)

    def load(self) -> Dataset | FrameDataset:
        """Read it, see `load_table`."""
        return load_table(
            self.place,
            label=self.label,
            normal=self.normal,
            anomaly=self.anomaly,
            drop=self.drop,
            name=self.name,
        )


_NOT_ENTRIES = ("folder", "state")  # fields that no description contains

SOURCES: dict[str, type[DatasetSource]] = {
    "adbench": ADBenchSource,
    "images": ImageSource,
    "file": FileSource,
}


def read_source(
    entry: str | Mapping[str, Any], folder: Path = Path(), *, images: bool = False
) -> DatasetSource:
    """Read the description of a dataset.

    Parameters
    ----------
    entry
        A name, of ADBench or, with `images`, of an image set; or entries: `source`, a name in
        `SOURCES` or the dotted path of a class ("file" if there is a `path`), and the entries of
        this source.
    folder
        The folder of the description; paths are relative to it.
    images
        Whether the experiment uses images.

    Returns
    -------
    The source; nothing is read yet.

    Examples
    --------
    >>> read_source("pendigits")
    ADBenchSource(name='pendigits', state=None)
    >>> entry = {"path": "cards.csv", "label": "state", "normal": "ok", "anomaly": "fraud"}
    >>> read_source(entry).name
    'cards'
    >>> read_source({"path": "cards.csv", "lable": "state"})
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: entry='lable' is not known; choose from name, path, label, \
normal, anomaly, drop. Did you mean 'label'?
    """
    if isinstance(entry, str):
        entry = {"source": "images" if images else "adbench", "name": entry}
    if not isinstance(entry, Mapping):
        raise InputError(
            f"each of datasets is a name or a table of entries such as {{ path = ... }}, got "
            f"{entry!r}."
        )
    entries: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()
    }
    kind = _find(entries.pop("source", "file" if "path" in entries else "adbench"))
    known = [each.name for each in dataclasses.fields(kind) if each.name not in _NOT_ENTRIES]
    for key in entries:
        check_choice("entry", key, known)
    source = kind.of(entries, folder)
    _check_protocol(source, images)
    return source


def _check_protocol(source: DatasetSource, images: bool) -> None:
    if source.holds_images and not images:
        raise InputError(
            f"{source.name!r} is a set of images: say anomaly_rates = [...], the shares of "
            "anomalies to make of its classes."
        )
    if images and not source.holds_images:
        raise InputError(
            f"with anomaly_rates the datasets are images, and {source.name!r} is a table. Leave "
            "anomaly_rates out."
        )


def _find(name: str) -> type[DatasetSource]:
    """The class of this name, or at this dotted path."""
    if "." not in str(name):
        return lookup("source", name, SOURCES)
    module, _, attribute = str(name).rpartition(".")
    try:
        kind = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise InputError(f"source = {name!r} cannot be imported: {error}.") from None
    if not isinstance(kind, type) or not issubclass(kind, DatasetSource):
        raise InputError(
            f"source = {name!r} must be a class over riskad.datasets.DatasetSource, got {kind!r}."
        )
    return kind
