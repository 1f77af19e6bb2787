"""What the user should know about the data or a fit: warnings, collected and shown once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from sklearn.exceptions import ConvergenceWarning

from riskad.core.checks import DataWarning
from riskad.tables.notes import NotAsInTraining, catch_kinds

Progress: TypeAlias = Callable[[str], object]
"""A function that is called with each step."""


def collect_warnings() -> AbstractContextManager[list[Warning]]:
    """Collect what the user should know about the data or the fit; let other warnings pass."""
    return catch_kinds(DataWarning, ConvergenceWarning)


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
