"""What a person should know of the data or of a fit: warnings, gathered and said once."""

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
"""A function that is told what is being done."""


@contextmanager
def collect_warnings() -> Iterator[list[Warning]]:
    """Gather what a person should know about the data or the fit; let other warnings pass."""
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
    """Let nothing be said that was said before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def merge_warnings(notes: Sequence[Warning]) -> list[Warning]:
    """Say once what several batches of rows have in common."""
    news = [note for note in notes if isinstance(note, NotAsInTraining)]
    others = {str(note): note for note in notes if not isinstance(note, NotAsInTraining)}
    return [*([NotAsInTraining.of_all(news)] if news else []), *others.values()]
