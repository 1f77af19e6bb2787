"""Where the datasets of experiments come from: one class for each kind, one registry of them.

A source is a frozen dataclass; its fields are what a description may say of such a dataset, and
`load` reads it. To add a kind, write such a class in a file and enter it in `SOURCES`. A class of
your own needs no entry: `source = "mymodule.MySource"` names it.
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
        How records and tables call it. Seeds depend on it, so that another name is another split.
    state : str, optional
        Which state of data that may change is meant; set by `pinned`.
    """

    holds_images: ClassVar[bool] = False

    name: str
    state: str | None = field(default=None, kw_only=True)

    @abstractmethod
    def load(self) -> Any:
        """Read the dataset.

        Returns
        -------
        `Dataset` or `FrameDataset`; `ImageDataset` where `holds_images`.

        Raises
        ------
        DatasetMissing
            If it cannot be had here; it is then recorded as not run, and the others are run.
        """

    def pinned(self) -> DatasetSource:
        """Return the source of the data as they are now, for data that may change.

        Its `state` tells them from others. Caches and records go by it, so that a table that was
        changed is read and run again.
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
    """A table of one's own: `load_table` says what each entry means.

    `path` is relative to the folder of the description, whose place is `folder`.
    """

    path: str
    label: str | None = None
    normal: Words = None
    anomaly: Words = None
    drop: tuple[str, ...] = ()
    folder: str = "."

    @classmethod
    def of(cls, entries: Mapping[str, Any], folder: Path) -> DatasetSource:
        """Make one; its name is that of the file if none is given."""
        own = {"name": Path(str(entries.get("path", ""))).name.partition(".")[0]}
        return super().of({**own, **entries, "folder": str(folder)}, folder)

    @property
    def place(self) -> Path:
        """Where the file is."""
        return Path(self.folder) / self.path

    def pinned(self) -> DatasetSource:
        """Return one whose state is a digest of the file's bytes and of how it is read."""
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


_NOT_ENTRIES = ("folder", "state")  # fields that no description says

SOURCES: dict[str, type[DatasetSource]] = {
    "adbench": ADBenchSource,
    "images": ImageSource,
    "file": FileSource,
}


def read_source(
    entry: str | Mapping[str, Any], folder: Path = Path(), *, images: bool = False
) -> DatasetSource:
    """Read what a description says of a dataset.

    Parameters
    ----------
    entry
        A name, of ADBench or, with `images`, of an image set; or entries: `source`, a name in
        `SOURCES` or the dotted path of a class ("file" where there is a `path`), and what such
        a source takes.
    folder
        Where the description lies; paths are relative to it.
    images
        Whether the experiment is one on images.

    Returns
    -------
    The source, of which nothing was read yet.

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
