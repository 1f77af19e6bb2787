"""What the user should know about the data or a fit: warnings, collected and shown once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from sklearn.exceptions import ConvergenceWarning

from riskad.core.checks import DataWarning
from riskad.tables.notes import NotAsInTraining

Progress: TypeAlias = Callable[[str], object]
"""A function that is called with each step."""


NOTICED = (DataWarning, ConvergenceWarning)
"""The kinds of warning by which a user is told of the data or the fit."""


@contextmanager
def no_warnings() -> Iterator[None]:
    """Suppress messages that were already shown."""
    with warnings.catch_warnings():
        for kind in NOTICED:
            warnings.simplefilter("ignore", kind)
        yield


def merge_warnings(notes: Sequence[Warning]) -> list[Warning]:
    """Merge what several batches of rows have in common."""
    news = [note for note in notes if isinstance(note, NotAsInTraining)]
    others = {str(note): note for note in notes if not isinstance(note, NotAsInTraining)}
    return [*([NotAsInTraining.of_all(news)] if news else []), *others.values()]
