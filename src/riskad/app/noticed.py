"""What the user should know about the data or a fit: warnings, collected and shown once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from sklearn.exceptions import ConvergenceWarning

from riskad.core.checks import DataWarning
from riskad.tables.differences import NotAsInTraining

__all__ = ["Progress", "collect_warnings", "merge_warnings", "no_warnings"]

Progress: TypeAlias = Callable[[str], object]
"""A function that is called with each step."""


@contextmanager
def collect_warnings() -> Iterator[list[Warning]]:
    """Collect what the user should know about the data or the fit; let other warnings pass."""
    notes: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        yield notes
    for warning in caught:
        if issubclass(warning.category, DataWarning | ConvergenceWarning):
            notes.append(warning.message)  # type: ignore[arg-type]
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


@contextmanager
def no_warnings() -> Iterator[None]:
    """Suppress messages that were already shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def merge_warnings(notes: Sequence[Warning]) -> list[Warning]:
    """Merge what several batches of rows have in common."""
    news = [note for note in notes if isinstance(note, NotAsInTraining)]
    others = {str(note): note for note in notes if not isinstance(note, NotAsInTraining)}
    return [*([NotAsInTraining.of_all(news)] if news else []), *others.values()]
