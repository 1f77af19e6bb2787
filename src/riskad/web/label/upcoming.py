"""Which row comes next: suggested rows, every tenth at random, none for two people at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import NamedTuple

import numpy as np

from riskad.web.label.fitting import Ranking

RANDOM = "drawn at random"
HIGH = "high score"
_EVERY = 10  # of which one is drawn at random
_SECONDS = 600.0  # for which a row that was given to one person is kept from others
_TRIES = 50
_DRAWN = 20  # random rows that are drawn at a time


class _Handed(NamedTuple):
    """Who has a row, until when, and why it came."""

    tab: str
    until: float
    kind: str
    source: str


class Upcoming:
    """The next rows.

    Rows that a model suggests are chosen to help it, and do not show how many anomalies there are.
    So every tenth row is drawn at random from all rows that nobody judged, and its answer records
    this.
    """

    def __init__(self, n_rows: int, seed: int = 0):
        self._n_rows = n_rows
        self._rng = np.random.default_rng(seed)
        self._suggested: deque[tuple[int, str]] = deque()
        self._random = deque(self._draw())
        self._handed: dict[int, _Handed] = {}
        self._count = 0

    def take_over(self, ranking: Ranking) -> None:
        """Continue with the rows that another fit suggests, then with others by their score."""
        self._suggested = deque(zip(ranking.found.rows, ranking.found.kinds, strict=True))
        known = set(ranking.found.rows)
        rest = (row for row in ranking.worst(len(ranking.places)) if row not in known)
        self._suggested.extend((row, HIGH) for row in rest)

    def next(
        self, tab: str, n: int, judged: Callable[[int], bool]
    ) -> Iterator[tuple[int, str, str]]:
        """Yield up to n rows for a tab: the number, the kind and the source of each."""
        now = monotonic()
        self._release(lambda handed: handed.until <= now)

        def free(row: int) -> bool:
            return row not in self._handed and not judged(row)

        for _ in range(n):
            found = self._one(free)
            if found is None:
                return
            self._count += 1
            row, kind, source = found
            self._handed[row] = _Handed(tab, now + _SECONDS, kind, source)
            yield found

    def give_back(self, tab: str) -> None:
        """Release the rows that a tab was given and did not judge; others get them first."""
        self._release(lambda handed: handed.tab == tab)

    def _release(self, wanted: Callable[[_Handed], bool]) -> None:
        gone = [(row, handed) for row, handed in self._handed.items() if wanted(handed)]
        for row, handed in reversed(gone):
            del self._handed[row]
            if handed.source == "suggested":
                self._suggested.appendleft((row, handed.kind))

    def _one(self, free: Callable[[int], bool]) -> tuple[int, str, str] | None:
        if self._count % _EVERY == _EVERY - 1 and (row := self._drawn(free)) is not None:
            return row, RANDOM, "random"
        for _ in range(len(self._suggested)):
            row, kind = self._suggested.popleft()
            if free(row):
                return row, kind, "suggested"
        row = self._drawn(free)
        return None if row is None else (row, RANDOM, "random")

    def _draw(self) -> list[int]:
        return [int(row) for row in self._rng.integers(1, self._n_rows + 1, _DRAWN)]

    def _drawn(self, free: Callable[[int], bool]) -> int | None:
        """A random row; if few are left, one of those."""
        for _ in range(_TRIES):
            row = self._random.popleft()
            if not self._random:
                self._random.extend(self._draw())
            if free(row):
                return row
        rest = [row for row in range(1, self._n_rows + 1) if free(row)]
        return int(self._rng.choice(rest)) if rest else None

    def soon(self, n: int) -> list[int]:
        """Return some rows that will come soon, so that they can be prepared."""
        suggested = [row for row, _ in islice(self._suggested, n)]
        return list(islice(self._random, 5)) + suggested
