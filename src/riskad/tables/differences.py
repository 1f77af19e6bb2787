"""How rows to score differ from the training rows of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce

from riskad.core.checks import DataWarning, enumerate_names
from riskad.tables.words import say_count

__all__ = ["MOST_NEW_VALUES", "NotAsInTraining"]

MOST_NEW_VALUES = 1000
"""Most new values of a column that are distinguished; more would only take memory."""


class NotAsInTraining(DataWarning):
    """What rows to score have and training rows did not have, by column.

    >>> a = NotAsInTraining(rows={"country": 2}, values={"country": {"NA"}})
    >>> b = NotAsInTraining(blanks={"age": 1}, rows={"country": 1}, values={"country": {"XX"}})
    >>> print(NotAsInTraining.of_all([a, b]))
    Not as in training: age: 1 blank filled with the median, where it had none; \
country: 3 rows with a new value ('NA', 'XX').
    """

    def __init__(
        self,
        *,
        blanks: Mapping[str, int] | None = None,
        rows: Mapping[str, int] | None = None,
        values: Mapping[str, set[str]] | None = None,
        unread: Mapping[str, tuple[int, str]] | None = None,
        changes: Mapping[str, list[str]] | None = None,
    ):
        self.blanks = Counter(blanks or {})
        self.rows = Counter(rows or {})
        self.values = dict(values or {})
        self.unread = dict(unread or {})
        self.changes = dict(changes or {})
        super().__init__(self._sentence())

    @classmethod
    def of_all(cls, news: Iterable[NotAsInTraining]) -> NotAsInTraining:
        """Merge the differences of several batches of rows."""
        return reduce(cls._with, news)

    def _with(self, other: NotAsInTraining) -> NotAsInTraining:
        values = {
            name: set(sorted(self.values.get(name, set()) | more)[:MOST_NEW_VALUES])
            for name, more in other.values.items()
        }
        unread = dict(self.unread)
        for name, (n, cell) in other.unread.items():
            before, first = unread.get(name, (0, cell))
            unread[name] = before + n, first
        return NotAsInTraining(
            blanks=self.blanks + other.blanks,
            rows=self.rows + other.rows,
            values=self.values | values,
            unread=unread,
            changes={**other.changes, **self.changes},  # of a column, those that were first
        )

    def _sentence(self) -> str:
        notes = [
            f"{name}: {say_count(n, 'blank')} filled with the median, where it had none"
            for name, n in self.blanks.items()
        ]
        for name, (n, cell) in self.unread.items():
            cells = say_count(n, "cell")
            notes.append(f"{name}: {cells} that cannot be read count as blank ({cell} first)")
        for name, n in self.rows.items():
            values = sorted(self.values[name])
            shown = enumerate_names(values, 3)
            if len(values) >= MOST_NEW_VALUES:
                shown = f"{enumerate_names(values[:3])} and at least {len(values) - 3} more"
            notes.append(f"{name}: {say_count(n, 'row')} with a new value ({shown})")
        notes += [said.rstrip(".") for each in self.changes.values() for said in each]
        return "Not as in training: " + "; ".join(notes) + "."
