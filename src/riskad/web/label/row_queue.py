"""Which row comes next: suggested rows, every tenth at random, none for two people at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import NamedTuple

import numpy as np

from riskad.web.label.fits import Ranking

RANDOM = "drawn at random"
HIGH = "high score"
_EVERY = 10  # of which one is drawn at random
_SECONDS = 600.0  # for which a row that one person has does not come to others
_TRIES = 50


class _Loan(NamedTuple):
    """Which tab has a row, until when, and why the row came."""

    tab: str
    until: float
    kind: str
    source: str


class RowQueue:
    """The next rows.

    Rows that a model suggests are chosen to help it, and do not show how many anomalies there are.
    So every tenth row is drawn at random from all rows that nobody judged, and its answer records
    this. Harmless rows are drawn, but not suggested.
    """

    def __init__(
        self, n_rows: int, seed: int = 0, is_harmless: Callable[[int], object] = lambda row: False
    ):
        self._n_rows, self._is_harmless = n_rows, is_harmless
        self._rng = np.random.default_rng(seed)
        self._suggestions: deque[tuple[int, str]] = deque()
        self._loans: dict[int, _Loan] = {}
        self._count = 0

    def refill(self, ranking: Ranking) -> None:
        """Continue with the rows that another fit suggests, then with others by their score."""
        self._suggestions = deque(zip(ranking.result.rows, ranking.result.kinds, strict=True))
        suggestions = set(ranking.result.rows)
        rest = (row for row in ranking.worst(len(ranking.places)) if row not in suggestions)
        self._suggestions.extend((row, HIGH) for row in rest)

    def next(
        self, tab: str, n: int, is_judged: Callable[[int], bool]
    ) -> Iterator[tuple[int, str, str]]:
        """Yield up to n rows for a tab: the number, the kind and the source of each."""
        self.release()

        def free(row: int) -> bool:
            return row not in self._loans and not is_judged(row)

        for _ in range(n):
            choice = self._choose(free)
            if choice is None:
                return
            self._count += 1
            row, kind, source = choice
            self._loans[row] = _Loan(tab, monotonic() + _SECONDS, kind, source)
            yield choice

    def release(self, tab: str | None = None) -> None:
        """Take back the rows that a tab, or anybody for too long, has and did not judge.

        Others get them first.
        """
        now = monotonic()
        over = [
            (r, loan) for r, loan in self._loans.items() if loan.tab == tab or loan.until <= now
        ]
        for row, loan in reversed(over):
            del self._loans[row]
            if loan.source == "suggested":
                self._suggestions.appendleft((row, loan.kind))

    def _choose(self, free: Callable[[int], bool]) -> tuple[int, str, str] | None:
        if self._count % _EVERY != _EVERY - 1:
            for _ in range(len(self._suggestions)):
                row, kind = self._suggestions.popleft()
                if free(row) and not self._is_harmless(row):
                    return row, kind, "suggested"
        drawn = self._draw_free(free)
        return None if drawn is None else (drawn, RANDOM, "random")

    def _draw_free(self, free: Callable[[int], bool]) -> int | None:
        """A random row; if few are left, one of those."""
        for _ in range(_TRIES):
            row = int(self._rng.integers(1, self._n_rows + 1))
            if free(row):
                return row
        rest = [row for row in range(1, self._n_rows + 1) if free(row)]
        return int(self._rng.choice(rest)) if rest else None
