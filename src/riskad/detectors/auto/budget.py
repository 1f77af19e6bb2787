"""What a fit may do in its budget, and the clock that it is not to outrun by far.

A budget of seconds buys work: rows to learn from, members, rows that a teacher reads and scores,
folds. All is planned before the fit from the shape of the table (`plan`), with the constants here,
which were measured once on one core of a usual machine. So the same data and seed give the same
model on a slow and on a busy machine; there the fit takes longer than its budget. Only where it
takes `PATIENCE` times as long is something left out that was planned, and a warning says so.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

__all__ = [
    "MOST_DISTILLED",
    "MOST_ROWS",
    "PATIENCE",
    "Clock",
    "Sizes",
    "rows_to_distil",
    "rows_to_learn_from",
    "teacher_seconds",
]

MOST_ROWS = 20_000
"""Rows that members learn from; beyond it unlabelled rows are sampled."""
MOST_DISTILLED, MOST_READ = 1_000, 300
"""Unlabelled rows that a teacher scores, and reads."""
PATIENCE = 10.0
"""A fit that takes so many times its budget does not begin another step."""
_LEAST_PATIENCE = 60.0  # seconds
_TELLING_SHARE, _WORTH_SAYING = 0.1, 2.0  # of the work, before what is left is told; seconds
_ROWS_PER_SECOND, _FEWEST_PER_SECOND, _FEWEST_ROWS, _ENOUGH_ROWS = 1_000, 150, 200, 1_000
_TEACHER_SHARE = 0.25  # of the budget
_FEWEST_DISTILLED, _STEP = 50, 50
_PER_PAIR, _ALONE = 5e-8, 400  # seconds for a cell and a row of the context; what it does alone


@dataclass(frozen=True)
class Sizes:
    """What the work of a fit depends on.

    Parameters
    ----------
    rows
        Rows to learn from, labelled ones among them.
    columns
        Columns, in numbers.
    labelled
        Labelled rows.
    counting
        Rows that teach a forest: labelled ones, or all with labels of one kind alone.
    read
        Labelled rows that a teacher reads.
    teacher_columns
        Columns that it reads of each row.
    all_labelled
        Labelled rows, those beyond `rows` among them.
    """

    rows: int
    columns: int
    labelled: int
    counting: int
    read: int
    teacher_columns: int
    all_labelled: int = 0


def rows_to_learn_from(seconds: float, n_columns: int) -> tuple[int, int]:
    """Return for how many rows features can be learned, and the fewest unlabelled ones.

    >>> rows_to_learn_from(60, 30), rows_to_learn_from(2, 30)
    ((20000, 1000), (1250, 300))
    """
    most = _ROWS_PER_SECOND * seconds / (1 + n_columns / 50)
    fewest = min(_ENOUGH_ROWS, max(_FEWEST_ROWS, _FEWEST_PER_SECOND * seconds))
    return int(min(MOST_ROWS, max(1, most))), int(fewest)


def teacher_seconds(scored: int, read: int, n_columns: int) -> float:
    """Return what a pretrained network takes to read rows and to score others."""
    return _PER_PAIR * (scored + read) * (n_columns + 1) * (read + _ALONE)


def rows_to_distil(seconds: float, sizes: Sizes) -> int:
    """Return how many rows a teacher can score in its share of a budget, 0 if too few.

    It is charged for the labelled rows that it reads, 600 at most, and for those read unlabelled.

    >>> many, few = (Sizes(9_000, 40, 3_000, 3_000, read, 42) for read in (600, 60))
    >>> rows_to_distil(60, many), rows_to_distil(6, many), rows_to_distil(6, few)
    (1000, 0, 550)
    >>> rows_to_distil(0.1, few)
    0
    """
    for rows in range(MOST_DISTILLED, _FEWEST_DISTILLED - 1, -_STEP):
        read = sizes.read + min(MOST_READ, rows)
        if teacher_seconds(rows, read, sizes.teacher_columns) <= _TEACHER_SHARE * seconds:
            return rows
    return 0


class Clock:
    """Wall time, which planned work does not look at unless it outruns the budget by far.

    It also tells how long the rest of the work will take, by what the work that is done was planned
    to take and did take: on a busy machine both are longer.
    """

    def __init__(self, seconds: float):
        self.seconds = max(PATIENCE * seconds, _LEAST_PATIENCE)
        self.start = time.perf_counter()
        self.ran_out = False
        self._planned = self._done = 0.0
        self._lock = threading.Lock()  # folds end in threads

    def allows_more(self) -> bool:
        """Return whether another step may begin; remembers if not."""
        self.ran_out = self.ran_out or time.perf_counter() - self.start > self.seconds
        return not self.ran_out

    def expect(self, planned: float) -> None:
        """Hear what the whole fit is planned to take."""
        self._planned = planned

    def finish(self, planned: float) -> None:
        """Hear that a step is done, and what it was planned to take."""
        with self._lock:
            self._done += planned

    def seconds_left(self) -> float | None:
        """Return how long the rest will take, once a tenth is done.

        >>> clock = Clock(60)
        >>> clock.expect(20.0)
        >>> clock.seconds_left() is None
        True
        >>> clock.start -= 3.0      # three seconds later
        >>> clock.finish(5.0)
        >>> round(clock.seconds_left())
        9
        """
        if self._done < _TELLING_SHARE * self._planned or not self._done:
            return None
        spent = time.perf_counter() - self.start
        return spent * max(self._planned - self._done, 0.0) / self._done

    def in_words(self) -> str:
        """Return how long the rest will take, to be put after a sentence; "" where it is short."""
        left = self.seconds_left()
        if left is None or left < _WORTH_SAYING:
            return ""
        return f" (about {left:.0f} s left)" if left < 100 else f" (about {left / 60:.0f} min left)"
