"""Records: what came out for each cell, in one Parquet file per experiment.

While an experiment runs, each finished cell is one line of JSON in a journal beside the file, so
that a run that is killed loses nothing that was finished. When the run ends, the journal is folded
into the Parquet file, which is replaced as a whole.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import polars as pl

import riskad
from riskad import InputError
from riskad.files.atomic import atomic_path

# A skipped cell is one that its method cannot run; what is not run is a dataset or a method that
# is not available here.
OK, FAILED, SKIPPED, NOT_RUN = "ok", "failed", "skipped", "not run"

IDENTITY = ("experiment", "dataset", "method", "budget", "trial")
"""Columns that come first, in this order; settings that identify a cell follow them."""

_OUTCOME = ("status", "reason", "commit", "versions")
_REPOSITORY = Path(__file__).parents[1]


def read_records(path: Path) -> pl.DataFrame:
    """Return all records of an experiment, with those of a run that has not ended properly."""
    journal = _read_journal(_journal_path(path))[0]
    if path.exists() and not journal:
        return pl.read_parquet(path)
    rows = _read_rows(path) + journal
    if not rows:
        raise InputError(f"there are no records in {path}. Run the experiment first.")
    return to_frame(rows)


class Records:
    """The records of one experiment, open to be added to by one process at a time.

    The columns `identity` identify a row: one that is added replaces a row that agrees in them.
    """

    def __init__(self, path: Path, identity: Sequence[str]):
        self.path, self.identity = Path(path), tuple(identity)
        self._old: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._journal = _open_alone(_journal_path(self.path))
        rows, end = _read_journal(_journal_path(self.path))
        self._journal.truncate(end)  # a torn last line
        self._old, self._new = _read_rows(self.path), [without_nulls(row) for row in rows]
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._new:
                with atomic_path(self.path, force=True) as part:
                    self.frame.write_parquet(part, compression="zstd", compression_level=19)
            _journal_path(self.path).unlink()
        finally:
            self._journal.close()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All records, each with the columns that apply to it."""
        new = {row_key(row, self.identity): row for row in self._new}
        old = (row for row in self._old if row_key(row, self.identity) not in new)
        return [*old, *new.values()]

    @property
    def frame(self) -> pl.DataFrame:
        """All records as a table."""
        return to_frame(self.rows, self.identity)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one record; it is on the disk when this returns."""
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())
        self._new.append(without_nulls(row))

    def forget(self, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
        """Leave rows out of what is written when the records are closed after an addition."""
        self._old = [row for row in self._old if not is_gone(row)]
        self._new = [row for row in self._new if not is_gone(row)]


def to_frame(rows: Iterable[Mapping[str, Any]], identity: Sequence[str] = ()) -> pl.DataFrame:
    """Return rows as a table sorted by their identity; columns that mix kinds become text."""
    frame = pl.DataFrame(list(rows), infer_schema_length=None)
    identity = [name for name in dict.fromkeys((*IDENTITY, *identity)) if name in frame.columns]
    outcome = [name for name in _OUTCOME if name in frame.columns]
    columns = dict.fromkeys((*identity, *outcome, *frame.columns))
    return frame.select(*columns).sort(identity, maintain_order=True)


def row_key(row: Mapping[str, Any], names: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Return what identifies a row as texts to compare; a value that is absent is left out.

    A number is the same whether it comes from code or from a column that also holds words.

    >>> row_key({"prior": 0.8, "trial": 3}, ["prior", "trial", "a"]) == row_key(
    ...     {"prior": "0.8", "trial": 3.0, "a": None}, ["a", "prior", "trial"]
    ... )
    True
    """
    return frozenset((name, _text(row[name])) for name in names if row.get(name) is not None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the columns that apply to it."""
    return {name: value for name, value in row.items() if value is not None}


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return [without_nulls(row) for row in pl.read_parquet(path).to_dicts()] if path.exists() else []


def _journal_path(path: Path) -> Path:
    return path.with_suffix(".journal.jsonl")


def _read_journal(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a journal, and where they end."""
    data = path.read_bytes() if path.exists() else b""
    end = data.rfind(b"\n") + 1
    return [json.loads(line) for line in data[:end].splitlines()], end


def _open_alone(path: Path) -> IO[bytes]:
    """Open a journal that no other process has open."""
    while True:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(
                f"another run is writing to {path}. Wait for it, or choose another folder."
            ) from None
        # Another run may have ended, and removed the journal, after it was opened here.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()


# --- what the figures depend on beside their seeds ---------------------------------------


@functools.cache
def versions(*more: str) -> str:
    """Return the versions of riskad, of the packages it computes with, and of Python."""
    packages = ("numpy", "scipy", "scikit-learn", *more)
    parts = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    python = f"python {platform.python_version()}"
    return "; ".join([f"riskad {riskad.__version__}", *parts, python])


@functools.cache
def commit() -> str:
    """Return what git calls the working tree ("-dirty" if it was changed), or the version."""
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty", "--tags"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        return riskad.__version__
