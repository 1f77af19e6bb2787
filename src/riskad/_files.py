"""Files come whole or not at all: checks before the work, atomic writing after it."""

from __future__ import annotations

import difflib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from riskad._checks import InputError

__all__ = ["atomic_path", "check_input_file", "check_output_file"]


def check_input_file(path: str | os.PathLike[str]) -> Path:
    """Return `path` if a file is there; otherwise say what is there instead."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; give the path of one file in it.")
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}.{_near_names(path)}")
    return path


def _near_names(path: Path) -> str:
    """Guess which neighbour of a missing file was meant."""
    if not path.parent.is_dir():
        return f" There is no folder {str(path.parent)!r} either."
    neighbours = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    close = difflib.get_close_matches(path.name, neighbours, n=2, cutoff=0.75)
    return f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def check_output_file(path: str | os.PathLike[str], force: bool = False) -> Path:
    """Return the place a file is to be written to, links resolved, if it may be written.

    Called before long work, so that nobody waits for a result that has nowhere to go.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{str(path)!r} is a folder; give the path of a file to write.")
    if not target.parent.is_dir():
        raise InputError(
            f"Cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; make it first."
        )
    if target.exists() and not target.is_file():
        raise InputError(f"{str(path)!r} is not a plain file; give the path of a file to write.")
    if target.exists() and not force:
        raise InputError(
            f"{str(path)!r} exists already and was left as it is; "
            "give another name, or replace it with --force (in Python: force=True)."
        )
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"Cannot write {str(path)!r}: its folder does not let you write in it.")
    return target


@contextmanager
def atomic_path(path: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; it takes the place of `path` when the block succeeds.

    When the block fails, or is interrupted, `path` is as it was before and the temporary file
    is gone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder, "out.txt")) as part:
    ...         _ = part.write_text("whole")
    ...     Path(folder, "out.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    target = check_output_file(path, force)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        _flush_to_disk(part)
        if target.exists():
            os.chmod(part, stat.S_IMODE(target.stat().st_mode))
        check_output_file(path, force)  # it may have come into being meanwhile
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _flush_to_disk(path: Path) -> None:
    """Make sure the bytes are on the disk before the name points to them."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
