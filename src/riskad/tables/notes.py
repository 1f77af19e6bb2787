"""What the user should know about how a file was read: reported once, as a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from riskad.core.checks import DataWarning

__all__ = ["ReadingNote", "note", "saying_once"]


class ReadingNote(DataWarning):
    """A decision about a file that was made for the user: an encoding, a line left out."""


def note(text: str) -> None:
    """Report how a file was read."""
    warnings.warn(ReadingNote(text), stacklevel=2)


@contextmanager
def saying_once(said: set[str]) -> Iterator[None]:
    """At the end, report notes that are not in `said`, and add them to it.

    So a file that is read several times is reported once.

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
