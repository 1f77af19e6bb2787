"""Records: one line of JSON for each cell, only ever appended.

A process killed in the middle of a line leaves it torn; the next to open the file cuts it off and
runs that cell again. Nothing else is ever removed or rewritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from riskad.core.checks import InputError

__all__ = ["FAILED", "NOT_RUN", "OK", "SKIPPED", "Records", "read_records"]

# A skipped cell is one that its method cannot run; what is not run is a dataset or a method that
# cannot be had.
OK, FAILED, SKIPPED, NOT_RUN = "ok", "failed", "skipped", "not run"


class Records:
    """The open records of one experiment: what is there, and where to add."""

    def __init__(self, file: IO[bytes], rows: list[dict[str, Any]]):
        self._file = file
        self.rows = rows

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; it is with the operating system when this returns."""
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        self.rows.append(dict(record))


@contextmanager
def open_records(path: Path) -> Iterator[Records]:
    """Open for reading and appending, alone: a second run on the same file is refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        _lock(file, path)
        file.seek(0)
        data = file.read()
        whole = data.rfind(b"\n") + 1
        file.truncate(whole)
        yield Records(file, _parse(data[:whole], path))


def read_records(path: Path) -> list[dict[str, Any]]:
    """All complete records of a file, in the order in which they came."""
    data = path.read_bytes()
    return _parse(data[: data.rfind(b"\n") + 1], path)


def _parse(data: bytes, path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "status" not in row:
            raise InputError(
                f"line {number} of {path} is not a record. Remove the line, and its cell is run "
                "again."
            )
        rows.append(row)
    return rows


def _lock(file: IO[bytes], path: Path) -> None:
    """Hold the file until it is closed, also by death; where there is no flock, do without."""
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(
            f"another run is writing to {path}. Wait for it, or choose another folder."
        ) from None
