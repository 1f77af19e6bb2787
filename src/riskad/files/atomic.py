"""Files are written completely or not at all: checks before the work, atomic writing after it."""

from __future__ import annotations

import difflib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from riskad.core.checks import InputError
from riskad.files.remote import address, is_file, is_remote, put_file


def check_input_file(path: str | os.PathLike[str]) -> Path:
    """Return `path` if it is a file; otherwise raise an error that says what is there instead."""
    path = Path(path)
    if is_remote(path):
        if not is_file(path):
            raise InputError(f"There is no file {address(path)!r}, or you may not see it.")
        return path
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; give the path of one file in it.")
    if not path.exists():
        if not path.parent.is_dir():
            raise InputError(
                f"There is no file {str(path)!r}. There is no folder {str(path.parent)!r} either."
            )
        neighbours = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
        close = difflib.get_close_matches(path.name, neighbours, n=2, cutoff=0.75)
        guess = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(f"There is no file {str(path)!r}.{guess}")
    return path


def check_output_file(path: str | os.PathLike[str], force: bool = False) -> Path:
    """Return the path to write a file to, with links resolved, if it may be written.

    Called before long work, so that nobody waits for a result that cannot be written.
    """
    # A link is followed, or writing through it would replace the link by a file.
    target = Path(path) if is_remote(path) else Path(os.path.realpath(path))
    if not is_remote(path):
        if target.is_dir():
            raise InputError(f"{str(path)!r} is a folder; give the path of a file to write.")
        if not target.parent.is_dir():
            raise InputError(
                f"Cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; make it "
                "first."
            )
        if target.exists() and not target.is_file():
            raise InputError(
                f"{str(path)!r} is not a plain file; give the path of a file to write."
            )
    if not force and is_file(target):
        raise InputError(
            f"{address(path)!r} exists already and was left as it is; "
            "give another name, or replace it with force=True."
        )
    if not (is_remote(path) or os.access(target.parent, os.W_OK)):
        raise InputError(f"Cannot write {str(path)!r}: its folder does not let you write in it.")
    return target


def check_different(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Fail if two outputs have the same file."""
    targets: set[str] = set()
    for path in paths:
        target = os.path.realpath(path)
        if target in targets:
            raise InputError(
                f"{str(path)!r} is named for two different outputs; give each a file of its own."
            )
        targets.add(target)


# Path, complete file and `force` of each file of the enclosing `together`; a context variable, so
# that threads do not share them.
_Parts: TypeAlias = list[tuple[str | os.PathLike[str], Path, bool]]
_waiting: ContextVar[_Parts | None] = ContextVar("_waiting", default=None)


@contextmanager
def together(keep_if_interrupted: bool = False) -> Iterator[None]:
    """Let all files that `atomic_path` writes in the block appear at its end, or none of them.

    A failure in the block, however late, leaves all files as they were before. If requested, an
    interrupt by the user, or a signal that ends the process, keeps the complete files.
    """
    parts: _Parts = []
    token = _waiting.set(parts)
    try:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            if keep_if_interrupted:
                _publish(parts)
            raise
        _publish(parts)
    finally:
        _waiting.reset(token)
        for _, part, _ in parts:
            part.unlink(missing_ok=True)


def _publish(parts: _Parts) -> None:
    """Name the files, unless a name was taken meanwhile."""
    # All are checked before the first gets its name: a failure later would leave only some of them.
    for path, _, force in parts:
        check_output_file(path, force)
    for path, part, force in parts:
        target = check_output_file(path, force)  # again: copies to a store before it take time
        if is_remote(target):
            put_file(part, target)
            continue
        if target.exists():
            # The new file keeps the permissions of the one that it replaces.
            os.chmod(part, stat.S_IMODE(target.stat().st_mode))
        os.replace(part, target)


@contextmanager
def atomic_path(path: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; it replaces `path` when the block succeeds.

    If the block fails, or is interrupted, `path` is as it was before and the temporary file is
    gone. Inside `together` the file replaces `path` when all others do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder, "out.txt")) as part:
    ...         _ = part.write_text("whole")
    ...     Path(folder, "out.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    waiting = _waiting.get()
    if waiting is None:
        # A single file is a group of one.
        with together(), atomic_path(path, force) as part:
            yield part
        return
    target = check_output_file(path, force)
    check_different([path, *(other for other, _, _ in waiting)])
    # In the same folder, since a rename is atomic within one file system only.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    if is_remote(target):  # a store has no names to change: the file is copied when it is complete
        handle, name = tempfile.mkstemp(prefix="riskad-")
        os.close(handle)
        part = Path(name)
    try:
        yield part
        # The bytes must be on the disk before the name points to them. Windows syncs only files
        # that are open for writing.
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    waiting.append((path, part, force))
