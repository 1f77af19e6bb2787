"""Where scored rows are added to rows that are there already: all rows of a run, or none.

Rows wait in a spool, outside of the target, until all of them are scored. Then the target takes
them in one step. A process that ends before that step, in whatever way, leaves the target as it
was; one that ends after it has done its work. A row is known by its `id`: in mode "add" rows whose
id is there already are left out, so that a second run adds what is missing, each row once.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError, describe_column_difference
from riskad.tables.columns import check_columns, to_text
from riskad.tables.writing import disk_errors

__all__ = ["MODES", "Spool", "Target", "check_same_columns", "without_known"]

MODES = ("new", "replace", "add")


class Spool:
    """Frames that wait on the disk, in their order, each under a key."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="riskad-score-", ignore_cleanup_errors=True
        )
        self._keys: list[str] = []

    def add(self, frame: pl.DataFrame, key: str = "") -> None:
        """Keep a frame."""
        with disk_errors():
            frame.write_ipc(self._path(len(self._keys)))
        self._keys.append(key)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return map(self._read, range(len(self._keys)))

    @property
    def keys(self) -> list[str]:
        """The keys, each once, in order."""
        return sorted(set(self._keys))

    def of(self, key: str) -> Iterator[pl.DataFrame]:
        """Return the frames under a key."""
        return (self._read(k) for k, each in enumerate(self._keys) if each == key)

    def close(self) -> None:
        """Forget all frames."""
        self._folder.cleanup()

    def _read(self, k: int) -> pl.DataFrame:
        return pl.read_ipc(self._path(k))

    def _path(self, k: int) -> Path:
        return Path(self._folder.name, f"{k:06}.ipc")


class Target(ABC):
    """A place to which the rows of a run are added in one step.

    Parameters
    ----------
    name
        What messages call it.
    id
        The column that names the rows; mode "add" needs it.
    mode
        "new" if nothing may be there yet, "replace" what is there, or "add" rows to it.
    """

    _spool: Spool

    def __init__(self, name: str, id: str | None, mode: str):
        if mode == "add" and id is None:
            raise InputError(
                f"Rows are added to {name!r} once each, by the column that names them, and the "
                "model knows of none. Say which it is: id='COLUMN'."
            )
        self.name, self.id, self.mode = name, id, mode

    @abstractmethod
    def check(self) -> None:
        """Say before any work whether rows can be added."""

    @abstractmethod
    def lacking(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a frame that are not there yet."""

    @abstractmethod
    def take(self, frames: Spool) -> None:
        """Add all frames in one step."""

    @contextmanager
    def writing(self) -> Iterator[Target]:
        """Add what is given to `add` when the block succeeds."""
        self.check()
        self._spool = Spool()
        try:
            yield self
            self._check_ids()
            self.take(self._spool)
        finally:
            self._spool.close()

    def add(self, frame: pl.DataFrame) -> None:
        """Keep a frame until the block ends."""
        self._spool.add(frame)

    def _check_ids(self) -> None:
        """Refuse ids that are blank or name two rows: such rows cannot be told from known ones."""
        if self.mode != "add":
            return
        assert self.id is not None
        nothing = pl.Series("id", [], dtype=pl.String)
        ids = pl.concat([nothing, *(to_text(each[self.id]).alias("id") for each in self._spool)])
        if ids.null_count():
            raise InputError(
                f"Column {self.id!r} is blank in {ids.null_count():,} rows, which cannot be told "
                "from rows that are there already. Fill it in, or name another: id='COLUMN'."
            )
        twice = ids.filter(ids.is_duplicated())
        if len(twice):
            raise InputError(
                f"Column {self.id!r} names several rows {twice[0]!r}, so that it is not known "
                "which of them are there already. Name a column that differs in all rows: "
                "id='COLUMN'."
            )


def without_known(frame: pl.DataFrame, id: str, known: pl.Series) -> pl.DataFrame:
    """Return the rows whose id, as text, is not known.

    >>> without_known(pl.DataFrame({"id": [1, 2, 3]}), "id", pl.Series(["2"]))["id"].to_list()
    [1, 3]
    """
    check_columns([id], frame.columns)
    ids = to_text(frame[id])
    return frame.filter(~ids.is_in(known.implode()).fill_null(False)) if len(known) else frame


def check_same_columns(there: Sequence[str], frame: pl.DataFrame, name: str) -> None:
    """Refuse rows with other columns than those that are there."""
    if set(there) != set(frame.columns):
        raise InputError(
            f"{name!r} has other columns than the rows that would be added; write to another "
            "place, or score with the same options as before.\n"
            + describe_column_difference(there, frame.columns)
        )
