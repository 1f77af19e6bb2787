"""What a user is told about rows: how a file was read, and what is not as in training.

The command line imports this at its start: nothing here needs NumPy or polars.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from riskad.core.checks import DataWarning, enumerate_names

MOST_NEW_VALUES = 1000
"""Most new values of a column that are distinguished; more would only take memory."""


def pluralize(n: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def show_number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:,.6g}"


def list_names(names: Sequence[str], limit: int = 8) -> str:
    """Return names in one line, at most `limit` of them."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


class ReadingNote(DataWarning):
    """A decision about a file that was made for the user: an encoding, a line left out."""


def note(text: str) -> None:
    """Report how a file was read."""
    warnings.warn(ReadingNote(text), stacklevel=2)


@contextmanager
def catch_kinds(*kinds: type[Warning]) -> Iterator[list[Warning]]:
    """Collect warnings of some kinds; let others pass."""
    collected: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        for kind in kinds:
            warnings.simplefilter("always", kind)
        try:
            yield collected
        finally:  # notes that came before an error are the user's, too
            collected += [each.message for each in caught if isinstance(each.message, kinds)]
    for each in caught:
        if not isinstance(each.message, kinds):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


@contextmanager
def note_each_once(texts: set[str]) -> Iterator[None]:
    """Report new notes of the block at its end, and add them to `texts`: files are read again."""
    with catch_kinds(ReadingNote) as notes:
        yield
    for text in map(str, notes):
        if text not in texts:
            texts.add(text)
            note(text)


@dataclass(eq=False, repr=False, kw_only=True)
class NotAsInTraining(DataWarning):
    """What rows to score have and training rows did not have, by column."""

    blanks: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # with new values
    values: dict[str, set[str]] = field(default_factory=dict)
    unread: dict[str, tuple[int, str]] = field(default_factory=dict)  # cells, and the first one
    changes: dict[str, list[str]] = field(default_factory=dict)  # sentences

    @classmethod
    def of_all(cls, batches: Iterable[NotAsInTraining]) -> NotAsInTraining:
        """Merge the differences of several batches of rows."""
        merged = cls()
        for batch in batches:
            merged.blanks = Counter(merged.blanks) + Counter(batch.blanks)
            merged.rows = Counter(merged.rows) + Counter(batch.rows)
            for name, values in batch.values.items():
                every = values | merged.values.get(name, set())
                merged.values[name] = set(sorted(every)[:MOST_NEW_VALUES])
            for name, (n, cell) in batch.unread.items():
                before, first = merged.unread.get(name, (0, cell))
                merged.unread[name] = before + n, first
            merged.changes = {**batch.changes, **merged.changes}  # of a column, the first ones
        return merged

    def __str__(self) -> str:
        notes = [
            f"{name}: {pluralize(n, 'blank')} filled with the median, where it had none"
            for name, n in self.blanks.items()
        ]
        for name, (n, cell) in self.unread.items():
            cells = pluralize(n, "cell")
            notes.append(f"{name}: {cells} that cannot be read count as blank ({cell} first)")
        for name, n in self.rows.items():
            values = sorted(self.values[name])
            shown = enumerate_names(values, 3)
            if len(values) >= MOST_NEW_VALUES:
                shown = f"{enumerate_names(values[:3])} and at least {len(values) - 3} more"
            notes.append(f"{name}: {pluralize(n, 'row')} with a new value ({shown})")
        notes += [sentence.rstrip(".") for each in self.changes.values() for sentence in each]
        return "Not as in training: " + "; ".join(notes) + "."
