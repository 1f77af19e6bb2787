"""What a person should know of how a file was read: said once, as a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from riskad.core.checks import DataWarning

__all__ = ["ReadingNote", "note", "saying_once"]


class ReadingNote(DataWarning):
    """Something about a file that was decided for the reader: an encoding, a line left out."""


def note(text: str) -> None:
    """Say how a file was read."""
    warnings.warn(ReadingNote(text), stacklevel=2)


@contextmanager
def saying_once(said: set[str]) -> Iterator[None]:
    """Say on the way out what was noted and is not in `said`, and put it there.

    A file that is read several times has one story.

    >>> said = {"known"}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     with saying_once(said):
    ...         for text in ("known", "new", "new"):
    ...             note(text)
    >>> [str(warning.message) for warning in caught], sorted(said)
    (['new'], ['known', 'new'])
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReadingNote)
        yield
    for warning in caught:
        text = str(warning.message)
        if not isinstance(warning.message, ReadingNote):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        elif text not in said:
            said.add(text)
            note(text)
