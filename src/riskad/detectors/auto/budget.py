"""How much work a fit does in its budget, and a clock that stops a fit far beyond it.

A budget of seconds buys work: rows to learn from, members, rows that the pretrained network reads
and scores, folds. All of it is planned before the fit from the shape of the table (`plan`), with
the constants here, which were measured once on one core of a typical machine. So the same data and
seed give the same model on a slow or busy machine; there the fit takes longer than its budget. Only
if it takes `PATIENCE` times as long, planned work is left out, with a warning.
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
"""Most rows that members learn from; beyond it unlabelled rows are sampled."""
MOST_DISTILLED, MOST_READ = 1_000, 300
"""Most unlabelled rows that the pretrained network scores, and reads, for a distilled forest."""
PATIENCE = 10.0
"""A fit that takes this many times its budget does not start another step."""
_LEAST_PATIENCE = 60.0  # seconds
_TELLING_SHARE, _WORTH_SAYING = 0.1, 2.0  # share of the work before the rest is shown; seconds
_ROWS_PER_SECOND, _FEWEST_PER_SECOND, _FEWEST_ROWS, _ENOUGH_ROWS = 1_000, 150, 200, 1_000
_TEACHER_SHARE = 0.25  # of the budget, for the pretrained network
_FEWEST_DISTILLED, _STEP = 50, 50
_PER_PAIR, _ALONE = 5e-8, 400  # seconds per cell and context row; cost of a cell without a context


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine the work of a fit.

    Parameters
    ----------
    rows
        Rows to learn from, including labelled ones.
    columns
        Columns, in numbers.
    labelled
        Labelled rows.
    counting
        Rows that a forest learns from: labelled ones, or all if only one kind of label is present.
    read
        Labelled rows that the pretrained network reads.
    teacher_columns
        Columns that the network reads of each row.
    all_labelled
        Labelled rows, including those beyond `rows`.
    """

    rows: int
    columns: int
    labelled: int
    counting: int
    read: int
    teacher_columns: int
    all_labelled: int = 0


def rows_to_learn_from(seconds: float, n_columns: int) -> tuple[int, int]:
    """Return for how many rows features can be learned, and the minimum of unlabelled rows.

    >>> rows_to_learn_from(60, 30), rows_to_learn_from(2, 30)
    ((20000, 1000), (1250, 300))
    """
    most = _ROWS_PER_SECOND * seconds / (1 + n_columns / 50)
    fewest = min(_ENOUGH_ROWS, max(_FEWEST_ROWS, _FEWEST_PER_SECOND * seconds))
    return int(min(MOST_ROWS, max(1, most))), int(fewest)


def teacher_seconds(scored: int, read: int, n_columns: int) -> float:
    """Return the seconds that a pretrained network takes to read rows and to score others."""
    return _PER_PAIR * (scored + read) * (n_columns + 1) * (read + _ALONE)


def rows_to_distil(seconds: float, sizes: Sizes) -> int:
    """Return how many rows the network can score in its share of a budget, 0 if too few.

    The cost includes the labelled rows that it reads, at most 600, and the unlabelled ones.

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
    """Wall time, which does not affect planned work unless it exceeds the budget by far.

    It also predicts how long the rest of the work will take, from the planned and actual seconds of
    finished steps: on a busy machine both are longer.
    """

    def __init__(self, seconds: float):
        self.seconds = max(PATIENCE * seconds, _LEAST_PATIENCE)
        self.start = time.perf_counter()
        self.ran_out = False
        self._planned = self._done = 0.0
        self._lock = threading.Lock()  # folds end in threads

    def allows_more(self) -> bool:
        """Return whether another step may start, and remember if not."""
        self.ran_out = self.ran_out or time.perf_counter() - self.start > self.seconds
        return not self.ran_out

    def expect(self, planned: float) -> None:
        """Set the planned seconds of the whole fit."""
        self._planned = planned

    def finish(self, planned: float) -> None:
        """Record that a step is done, with its planned seconds."""
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
        """Return the remaining time, to be appended to a sentence; "" if it is short."""
        left = self.seconds_left()
        if left is None or left < _WORTH_SAYING:
            return ""
        return f" (about {left:.0f} s left)" if left < 100 else f" (about {left / 60:.0f} min left)"
